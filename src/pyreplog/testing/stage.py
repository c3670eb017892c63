"""One partition on a stage: real replicas and the real controller, driven step by step.

A :class:`World` is a cluster under random faults; a stage is for schedules. Nothing moves by itself: the
caller decides which message arrives or is lost, which sync ends, which node learns the controller's
decisions, is killed or loses power. The checkers check the stage after every step::

    stage = Stage(3, min_insync_replicas=2)
    stage.append(1, b"m1")
    stage.exchange(2, 3)          # both fetch it
    stage.exchange(2, 3)          # and fetch again: now it is committed
    stage.kill(1)
    stage.settle()                # all other possible events happen

The nodes are 1, 2, 3, ...; node 1 leads first.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final

from pyreplog.config import NodeConfig
from pyreplog.controller import Controller, MetadataImage, PartitionImage, PartitionKey
from pyreplog.errors import CorruptError
from pyreplog.log import Log
from pyreplog.record import Record
from pyreplog.replica import (
    AlterPartition,
    BrokersApplied,
    Effect,
    Event,
    Fetch,
    Leader,
    Replica,
    Reply,
    Synced,
    SyncFailed,
    Tick,
)
from pyreplog.testing.checkers import (
    INVARIANTS,
    Checker,
    CommittedIdentical,
    DeletedStaysDeleted,
    InvariantBroken,
    batches_of,
    overriding,
    stage_checkers,
)
from pyreplog.testing.clock import SimClock
from pyreplog.testing.stage_clients import CLIENT, NAME, StageAttempt, StageClients
from pyreplog.testing.stage_controller import StageController
from pyreplog.testing.stage_flight import Flight
from pyreplog.testing.stage_node import FOREVER_MS, DiskHome, Envelope, StageNode
from pyreplog.testing.stage_view import StageView
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    NO_LEADER,
    PartitionChangeRecord,
    PartitionRecord,
)

__all__ = ["Stage"]

_MS: Final = 1_000_000
ROUNDS_MAX: Final = 200
CLUSTER_ID: Final = "stage"


class Stage:
    """One partition with its replicas and its controller, for schedules.

    ``durability``: ``"os"`` or ``"sync"``. ``unclean``: any live replica may lead a partition without an
    eligible leader. ``home`` makes the home of a node's log; None means a :class:`DiskHome`. A known-bad
    rule (see :mod:`pyreplog.testing.known_bad`) passes its classes as keywords. A broken invariant raises
    :class:`InvariantBroken`.
    """

    topic_settings: ClassVar[Mapping[str, str]] = {}
    """More settings of the topic."""

    def __init__(
        self,
        count: int = 3,
        *,
        min_insync_replicas: int = 2,
        durability: str = "os",
        unclean: bool = False,
        lag_time_max_ms: int = 1000,
        replica_class: type[Replica] = Replica,
        log_class: type[Log] = Log,
        controller_class: type[Controller] = Controller,
        checkers: Sequence[Checker] | None = None,
        home: Callable[[Stage, int], Any] | None = None,
        match_answers: bool = True,
        replay: str = "",
    ) -> None:
        self.match_answers = match_answers
        """Whether nodes drop answers to earlier proposals, which their replicas would drop, too."""
        self.replica_class = replica_class
        self.durability = durability
        self.min_insync_replicas = min_insync_replicas
        self.replay = replay
        self.config = NodeConfig(session_timeout_ms=FOREVER_MS, replica_lag_time_max_ms=lag_time_max_ms)
        self.clock = SimClock()
        self.events: list[str] = []
        """Every action on the stage, in words."""
        self.steps = 0
        self.quiet = False
        """Add nothing to ``events``."""
        self.machines: dict[int, StageNode] = {}
        self.clients = StageClients(self.broken)
        self.messages = Flight(self.broken)
        self.authority = StageController(
            controller_class, self.config, self.clock, CLUSTER_ID, unclean=unclean, changed=self._decided
        )
        self._acknowledged: list[StageAttempt] = []
        self.view = StageView(self.machines, self.authority, self.clients, self.broken)
        self._observed: Any = self.view
        self._watch_with(stage_checkers() if checkers is None else checkers)
        for node_id in range(1, count + 1):
            place = home(self, node_id) if home else DiskHome(node_id, self.clock, CLUSTER_ID, log_class)
            actor = self.machines[node_id] = StageNode(node_id, place)
            self._register(actor)
            self.authority.heartbeat(actor)
        settings = {"min.insync.replicas": str(min_insync_replicas), "durability": durability, **self.topic_settings}
        self.key: PartitionKey = self.authority.create(list(self.machines), settings)
        self.tell()

    def _watch_with(self, checkers: Sequence[Checker]) -> None:
        self.checkers = list(checkers)
        self._effect_checkers = overriding(checkers, "effect")
        self._node_checkers = overriding(checkers, "node_turn")
        self._controller_checkers = overriding(checkers, "controller_turn")
        self._settle_checkers = overriding(checkers, "settled")

    # -------------------------------------------------------------------------------------- looking

    @property
    def now_ns(self) -> int:
        """The present monotonic time in ns."""
        return self.clock.monotonic_ns()

    @property
    def controller(self) -> Controller:
        """The real controller."""
        return self.authority.controller

    @property
    def image(self) -> MetadataImage:
        """The metadata as the controller has it."""
        return self.controller.image

    @property
    def partition(self) -> PartitionImage:
        """The partition as the controller has it."""
        return self.authority.partition

    @property
    def leader(self) -> int:
        """The leader as the controller has it; -1: none."""
        return self.partition.leader

    @property
    def flight(self) -> list[Envelope]:
        """The messages in flight, in the order of sending."""
        return self.messages.messages

    @property
    def results(self) -> dict[int, Any]:
        """The answers to clients, by the number of the request."""
        return self.clients.results

    @property
    def lost(self) -> dict[TopicPartition, dict[int, None]]:
        """Replicas that may lack records that the acknowledgement table allows them to lose."""
        return self.view.lost

    def is_registered(self, node_id: int) -> bool:
        """Return whether a node is up and the controller knows its present incarnation."""
        return self.view.is_registered(node_id)

    def log(self, node_id: int) -> Any:
        """Return a node's log. REQUIRES that the node is up and has one."""
        found = self.machines[node_id].log
        assert found is not None, f"node {node_id} has no log"
        return found

    def ends(self) -> list[int]:
        """Return the log end offsets by node; -1 if a node is down or has no log."""
        return [-1 if actor.log is None else actor.log.end_offset for actor in self.machines.values()]

    def up(self) -> list[int]:
        """Return the nodes that are up."""
        return [actor.node_id for actor in self.machines.values() if actor.incarnation_id]

    def code(self, number: int) -> int | None:
        """Return the error code of the answer to append ``number``; None while it waits."""
        return self.results[number].error_code if number in self.results else None

    def broken(self, rule: str, about: str) -> None:
        """Raise :class:`InvariantBroken`."""
        kind = INVARIANTS.get(rule)
        raise InvariantBroken(
            rule, about, 0, self.now_ns, self.events, self.replay or "this schedule", "" if kind is None else kind.says
        )

    def say(self, text: str) -> None:
        """Add an action to ``events``."""
        if not self.quiet:
            self.events.append(text)

    # ------------------------------------------------------------------------------------- one step

    def step(self, node_id: int, event: Event) -> None:
        """Give one event to one replica, note its effects, and call the checkers."""
        actor = self.machines[node_id]
        replica = actor.replica
        if replica is None:
            return
        self.steps += 1
        for effect in replica.step(event, self.now_ns):
            for checker in self._effect_checkers:
                checker.effect(self._observed, actor, effect)
            self._note(actor, effect)
        for checker in self._node_checkers:
            checker.node_turn(self._observed, actor)
        while self._acknowledged:
            attempt = self._acknowledged.pop()
            for checker in self._settle_checkers:
                checker.settled(self._observed, attempt)  # type: ignore[arg-type]
            self.clients.check(actor.log, node_id, attempt.offset, attempt.value)

    def _note(self, actor: StageNode, effect: Effect) -> None:
        match effect:
            case Reply(source, number, result):
                if source == CLIENT:
                    self._answered(actor, number, result)
                    return
                self.messages.send_records(actor.node_id, number, result)
            case Fetch():
                actor.fetch = effect
                self.send(actor.node_id)
            case AlterPartition():
                self.messages.send_proposal(actor, effect)
            case _:
                actor.note(effect)

    def _answered(self, actor: StageNode, number: int, result: Any) -> None:
        attempt = self.clients.answered(number, result)
        if attempt is not None:
            self._acknowledged.append(attempt)
        elif self.clients.is_deletion(number) and not result.error_code:
            for one in self.checkers:
                if isinstance(one, DeletedStaysDeleted):
                    one.deleted(self._observed, NAME, result.low_watermark, actor.image.brokers)

    def _decided(self) -> None:
        """Show the checkers the decisions of the controller."""
        for checker in self._controller_checkers:
            checker.controller_turn(self._observed, self.image)

    # ---------------------------------------------------------------------------------- the clients

    def append(
        self,
        node_id: int,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = FOREVER_MS,
        numbers: tuple[int, int, int] = (-1, -1, -1),
    ) -> int:
        """Send one batch of ``values`` (by default of one unique value) to a node. Return its number, under which
        ``results`` gets the answer. ``numbers``: producer id, epoch and base sequence."""
        event = self.clients.append(values, acks, timeout_ms, numbers)
        number = event.correlation_id
        said = b", ".join(values or (self.clients.values[number],)).decode()
        self.say(f"append {said} to node {node_id}{'' if acks == -1 else f' with acks={acks}'}")
        self.step(node_id, event)
        return number

    def read(self, node_id: int, offset: int) -> list[Record]:
        """Read from a node as a consumer from ``offset`` on. Every record must be committed, with the committed value
        (S10, S3)."""
        event = self.clients.read(offset)
        self.step(node_id, event)
        committed = next((one for one in self.checkers if isinstance(one, CommittedIdentical)), None)
        found = self.clients.records(event.correlation_id, None if committed is None else committed.end(self.key))
        if found is None:
            return []
        self.say(f"read from node {node_id}: {[(record.value or b'').decode() for record in found]}")
        return found

    def latest(self, node_id: int) -> int | None:
        """Return the log end that a node reports to readers; None if it does not know. It never goes back (S8)."""
        event = self.clients.latest()
        self.step(node_id, event)
        return self.clients.end(event.correlation_id)

    def delete_records(self, node_id: int, offset: int) -> int:
        """Ask a node to delete everything below ``offset``; return the number of the answer in ``results``."""
        event = self.clients.delete(offset)
        self.say(f"delete everything below offset {offset}")
        self.step(node_id, event)
        return event.correlation_id

    # ---------------------------------------------------------------------------------- the network

    def send(self, follower: int) -> None:
        """Send the outstanding fetch of a follower (again)."""
        self.messages.send_fetch(self.machines[follower])

    def ask_again(self, node_id: int) -> None:
        """Let a leader repeat its unanswered proposal, as its node does after a while."""
        actor = self.machines[node_id]
        role = None if actor.replica is None else actor.replica.role
        pending = role.in_sync_set.pending if isinstance(role, Leader) else None
        if pending is not None:
            self.messages.send_proposal(actor, AlterPartition(pending.token, pending.data))

    def deliver(self, letter: Envelope) -> None:
        """Let a message arrive. REQUIRES that it is in ``flight``."""
        self.flight.remove(letter)
        self.arrive(letter)

    def lose(self, letter: Envelope) -> None:
        """Lose a message. REQUIRES that it is in ``flight``."""
        self.flight.remove(letter)

    def arrive(self, letter: Envelope) -> None:
        """Handle a message at its target. It stays in ``flight`` if it is there, so it can arrive twice."""
        body = letter.body
        if letter.kind == "fetch":
            if letter.target in self.machines:
                self.step(letter.target, body)
        elif letter.kind == "records":
            event, life = body
            actor = self.machines[letter.target]
            if life != actor.starts:
                return
            if actor.fetch is not None and actor.fetch.request is event.request:
                actor.fetch = None
            self.messages.count_refusal(actor, event)
            self.step(letter.target, event)
        elif letter.kind == "proposal":
            effect, epoch, number = body
            answer = self.authority.decide(effect, letter.source, epoch, number)
            if answer is not None:
                life = self.machines[letter.source].starts
                self.flight.append(Envelope("decision", 0, letter.source, (answer, life, number)))
        else:
            answer, life, number = body
            if life == self.machines[letter.target].starts and (
                number == self.machines[letter.target].asked or not self.match_answers
            ):
                self.step(letter.target, answer)  # as a node has it: only the answer to its newest request counts

    def letters(self, kind: str, source: int = -1, target: int = -1) -> list[Envelope]:
        """Return the messages in flight of ``kind``, from ``source`` and to ``target`` if given."""
        return self.messages.find(kind, source, target)

    def exchange(self, *followers: int) -> None:
        """Let the newest fetch of each of these nodes arrive, and its answer, if it has one."""
        for follower in followers:
            for letter in self.letters("fetch", follower)[:-1]:
                self.lose(letter)
            if not self.letters("fetch", follower):
                self.send(follower)
            for letter in self.letters("fetch", follower):
                self.deliver(letter)
            for letter in self.letters("records", target=follower):
                self.deliver(letter)

    def decide(self, leader: int, *, answer: bool = True) -> None:
        """Let the oldest proposal of a leader arrive at the controller; if ``answer``, let the decision arrive, too."""
        for letter in self.letters("proposal", leader)[:1]:
            self.deliver(letter)
        if answer:
            for letter in self.letters("decision", target=leader):
                self.deliver(letter)

    # ------------------------------------------------------------------------------- the controller

    def tell(self, *node_ids: int, count: int = FOREVER_MS) -> None:
        """Give these nodes (none: all that are up) the next records of the controller, one after the other."""
        for node_id in node_ids or self.up():
            actor = self.machines[node_id]
            for offset, record in self.authority.records[actor.told : actor.told + count]:
                actor.apply(offset, record)
                if offset == actor.epoch:
                    self._picture(actor)
                elif offset > actor.epoch >= 0:
                    if isinstance(record, PartitionRecord | PartitionChangeRecord):
                        self._picture(actor)
                    elif actor.replica is not None:
                        self.step(node_id, BrokersApplied(actor.statuses()))

    def skip(self, node_id: int) -> None:
        """Give a node all records at once, as from a snapshot: its replica sees only the last state."""
        actor = self.machines[node_id]
        for offset, record in self.authority.records[actor.told :]:
            actor.apply(offset, record)
        self._picture(actor)

    def _picture(self, actor: StageNode, **changes: Any) -> None:
        key = self.authority.key
        if key is None or not actor.incarnation_id or actor.image.partition(key) is None:
            return
        if actor.replica is not None or actor.host(key, self.replica_class, self.config):
            self.step(actor.node_id, actor.metadata(key, **changes))

    def picture(self, node_id: int, **changes: Any) -> None:
        """Give a node its own metadata of the partition again; ``changes`` replace parts of it."""
        self._picture(self.machines[node_id], **changes)

    def take_away(self, node_id: int) -> None:
        """Take a node out of the assignment and delete its copy."""
        self.say(f"the replica of node {node_id} is taken away")
        rest = tuple(one for one in self.partition.replicas if one != node_id)
        isr = tuple(one for one in self.partition.isr if one != node_id)
        self.authority.write(replicas=rest, isr=isr, leader=self.leader)
        actor = self.machines[node_id]
        actor.home.root.remove_log(NAME)
        actor.unhost()

    def give_back(self, node_id: int) -> None:
        """Assign the node again, with an empty copy."""
        self.say(f"node {node_id} gets a replica again")
        self.authority.write(replicas=(*self.partition.replicas, node_id))

    def flip(self, node_id: int) -> None:
        """Flip a bit in the first batch of a node's log on its disk."""
        self.say(f"a bit flips on the disk of node {node_id}")
        actor = self.machines[node_id]
        actor.home.flip()
        actor.rotten = True

    def prefer(self, node_id: int) -> None:
        """Move the leadership to another member of the ISR while the leader lives."""
        assert node_id in self.partition.isr, f"node {node_id} is not in sync"
        self.say(f"node {node_id} is elected")
        self.authority.write(leader=node_id)

    def fence(self, node_id: int) -> None:
        """Fence a node that does not know it: it leaves the ISR and loses its leadership."""
        self.say(f"the controller takes node {node_id} for dead")
        self.authority.fence(node_id, self.machines[node_id].epoch)

    def unfence(self, node_id: int) -> None:
        """Let the controller receive the node's heartbeats again."""
        self.say(f"the controller sees node {node_id} again")
        self.authority.heartbeat(self.machines[node_id])

    # -------------------------------------------------------------------------------- the accidents

    def kill(self, node_id: int, *, tell: bool = True) -> None:
        """Kill a process; with ``tell`` the controller learns it at once."""
        self.say(f"kill node {node_id}")
        self._down(node_id, tell=tell)
        self.machines[node_id].home.kill()

    def lose_power(self, node_id: int, *, chance: Random | None = None, tell: bool = True) -> None:
        """Cut the power of a machine. It loses all unsynced data, or the part that ``chance`` draws."""
        self.say(f"node {node_id} loses power")
        if self.durability == "os":
            self.lost.setdefault(NAME, {})[node_id] = None
        self._down(node_id, tell=tell)
        self.machines[node_id].home.lose_power(chance)

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly."""
        self.say(f"node {node_id} stops")
        epoch = self.machines[node_id].epoch
        self._down(node_id, tell=True)
        self.machines[node_id].home.stop(epoch)

    def _down(self, node_id: int, *, tell: bool) -> None:
        self.machines[node_id].went_down()
        if tell:
            self.authority.gone(node_id)

    def start(self, node_id: int, *, unfence: bool = True) -> None:
        """Start a node that is down, on its disk: it registers, and is unfenced if ``unfence``."""
        actor = self.machines[node_id]
        if actor.incarnation_id:
            return
        self.say(f"node {node_id} starts")
        self.authority.end_session(node_id)
        self._register(actor)
        if unfence:
            self.authority.heartbeat(actor)

    def _register(self, actor: StageNode) -> None:
        previous = actor.open()
        for error in () if actor.root is None or actor.rotten else actor.root.damaged.values():
            self.broken("S24", f"node {actor.node_id} cannot open its log: {error}")
        self.authority.register(actor, previous)

    # -------------------------------------------------------------------------------- disk and time

    def sync(self, *node_ids: int) -> None:
        """Let the oldest sync of each of these (none: all) succeed."""
        for node_id in node_ids or self.up():
            self._end_sync(node_id, 0)

    def sync_all(self) -> None:
        """Let every disk write back its cache, as the kernel does sooner or later."""
        for actor in self.machines.values():
            actor.home.disk.write_back()

    def fail_sync(self, node_id: int) -> None:
        """Let the oldest sync of a node fail."""
        self.say(f"a sync of node {node_id} fails")
        self.machines[node_id].disk_failed = True
        self._end_sync(node_id, errno.EIO)

    def _end_sync(self, node_id: int, error: int) -> None:
        actor = self.machines[node_id]
        for sync in actor.syncs[:1]:
            actor.syncs.remove(sync)
            failure = actor.home.sync(sync.files, error)
            if failure is None:
                self.step(node_id, Synced(sync.upto, sync.generation))
            else:
                self.step(node_id, SyncFailed(failure))

    def pass_time(self, ms: float, *node_ids: int) -> None:
        """Let time pass for the controller and for these nodes (none: all)."""
        self.clock.advance(int(ms * _MS))
        self.authority.tick()
        for node_id in node_ids or self.up():
            actor = self.machines[node_id]
            if actor.wake_ns and actor.wake_ns <= self.now_ns:
                actor.wake_ns = 0
                self.step(node_id, Tick())

    # ----------------------------------------------------------------------------------- the finale

    def settle(self, *node_ids: int, rounds: int = ROUNDS_MAX) -> None:
        """Let all possible events between these nodes (none: all that are up) happen, until nothing changes."""
        live = list(node_ids) or self.up()
        for _ in range(rounds):
            before = self._shape()
            self.tell(*live)
            while any(self.machines[node_id].syncs for node_id in live):
                self.sync(*live)
            for letter in list(self.flight):
                if letter in self.flight and all(end == 0 or end in live for end in (letter.source, letter.target)):
                    self.deliver(letter)
            for node_id in live:
                if self.machines[node_id].fetch is not None and not self.letters("fetch", node_id):
                    self.send(node_id)
                if not self.letters("proposal", node_id) and not self.letters("decision", target=node_id):
                    self.ask_again(node_id)
            self.pass_time(20, *live)
            if self._shape() == before and not any(one.kind != "fetch" for one in self.flight):
                return

    def _shape(self) -> list[object]:
        return [self.partition, *(actor.shape for actor in self.machines.values() if actor.replica is not None)]

    def check_bytes(self, node_id: int) -> None:
        """Check the checksum of every batch of a node's log (S3)."""
        log = self.log(node_id)
        for batch in batches_of(log, log.start_offset, log.end_offset):
            try:
                batch.check_crc()
            except CorruptError as error:
                self.broken("S3", f"node {node_id}: {error}")

    def finish(self) -> None:
        """Start every node and deliver all messages: all logs must become equal and committed to their end."""
        self.flight.clear()
        for node_id in self.machines:
            self.start(node_id, unfence=False)
        for actor in self.machines.values():
            self.authority.heartbeat(actor)
        for _ in range(30):
            self.settle(rounds=10)
            for node_id, actor in self.machines.items():
                if self.image.brokers[node_id].fenced:
                    self.authority.heartbeat(actor)
            self.pass_time(1000)
            logs = [actor.log for actor in self.machines.values()]
            ends = {None if log is None else (log.end_offset, log.high_watermark == log.end_offset) for log in logs}
            equal = len(ends) == 1 and all(end is not None and end[1] for end in ends)
            if equal and self.leader != NO_LEADER and len(self.partition.isr) == len(self.partition.replicas):
                break
        else:
            self.broken("L3", f"does not heal: ends {self.ends()}, {self.partition}")
        for checker in self.checkers:
            checker.final(self._observed)
        for node_id in self.machines:
            self.check_bytes(node_id)
        log = self.log(self.leader)
        for value, offset in self.clients.acknowledged.items():
            if offset >= log.start_offset:
                self.clients.check(log, self.leader, offset, value)
