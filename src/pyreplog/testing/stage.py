"""One partition on a stage: the real replicas and the real controller, and every message, sync, decision and
accident in the caller's hand.

A :class:`World` is a cluster under random weather; a stage is for schedules. Nothing moves by itself: a caller says
which message arrives, is lost or arrives twice, which sync ends, who hears what the controller decided, who is
killed and who loses power. The checkers of the world look on after every step::

    stage = Stage(3, min_insync_replicas=2)
    stage.append(1, b"m1")
    stage.exchange(2, 3)          # both fetch it
    stage.exchange(2, 3)          # and say so: now it is committed
    stage.kill(1)
    stage.settle()                # everything else that can happen, happens

Nodes are called 1, 2, 3, ...; node 1 leads first.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from pyreplog.config import NodeConfig
from pyreplog.controller import Controller, MetadataImage, PartitionImage, PartitionKey
from pyreplog.errors import CorruptError, PyreplogError
from pyreplog.log import Log
from pyreplog.record import BatchBuilder, Record, records_of, split
from pyreplog.replica import (
    AlterPartition,
    AlterPartitionAnswered,
    BrokenRule,
    BrokersApplied,
    BrokerStatus,
    ConsumerFetch,
    DeleteRecords,
    Effect,
    Event,
    Fetch,
    FetchAnswered,
    FollowerFetch,
    Leader,
    ListOffsets,
    MetadataApplied,
    Offline,
    Produce,
    Replica,
    Reply,
    StopFetching,
    Sync,
    Synced,
    SyncFailed,
    Tick,
    Unexpected,
    Wake,
)
from pyreplog.testing.checkers import (
    INVARIANTS,
    Checker,
    CommittedIdentical,
    DeletedStaysDeleted,
    InvariantBroken,
    batches_of,
    stage_checkers,
)
from pyreplog.testing.clock import SimClock
from pyreplog.testing.stage_node import TOPIC, DiskHome, Envelope, StageNode
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    LATEST_TIMESTAMP,
    NO_LEADER,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    ErrorCode,
    FetchPartition,
    ListOffsetsPartition,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionEnd,
    PartitionRecord,
    materialised,
)

__all__ = ["Stage"]

CLIENT: Final = "client"
_MS: Final = 1_000_000
FOREVER_MS: Final = 1 << 40
ROUNDS_MAX: Final = 200
REFUSALS_MAX: Final = 12
"""Refused fetches of one follower in one leader epoch, beyond one for each epoch there was."""


class Stage:
    """See the module's text. ``variant``: the parts of a known-bad rule (see :mod:`pyreplog.testing.variants`), as
    keywords of this.

    ``durability``: ``"os"`` or ``"sync"``. ``home``: makes where a node keeps its log. Every broken invariant is an
    :class:`InvariantBroken`; ``events`` is what was done.
    """

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
        """Whether nodes drop answers to earlier proposals before their replicas see them (which drop them, too)."""
        self.replica_class = replica_class
        self.log_class = log_class
        self.durability = durability
        self.min_insync_replicas = min_insync_replicas
        self.config = NodeConfig(session_timeout_ms=FOREVER_MS, replica_lag_time_max_ms=lag_time_max_ms)
        self.clock = SimClock()
        self.cluster_id = "stage"
        self.controller = controller_class(MetadataImage(), self.config, Random(1), self.cluster_id)
        self.records: list[tuple[int, MetadataRecord]] = []
        self.flight: list[Envelope] = []
        self.results: dict[int, Any] = {}
        self.events: list[str] = []
        self.values: dict[int, bytes] = {}
        """What each append carried, by its number."""
        self.replay = replay
        self.steps = 0
        self.unclean = unclean
        """Whether a partition that nobody may lead is led by whoever is there."""
        self.lost: dict[TopicPartition, dict[int, None]] = {}
        self.rotten: dict[tuple[TopicPartition, int], None] = {}
        self.delete_asked: dict[TopicPartition, int] = {}
        self.machines: dict[int, StageNode] = {}
        self.quiet = False
        """Say nothing of what is done."""
        self._numbers = 0
        self._sent: dict[int, tuple[int, Any]] = {}
        self._wanting_all: dict[int, None] = {}
        self._deletions: dict[int, None] = {}
        self._end_told = 0
        self._proposals = 0
        self._decided_upto: dict[tuple[int, int], int] = {}
        self._told_off: dict[tuple[str, int, int, int], int] = {}
        self.acknowledged: dict[bytes, int] = {}
        """Value -> offset of what was acknowledged with acks=all."""
        self._fresh: list[Any] = []
        self._scene: Any = self
        self.checkers = list(stage_checkers() if checkers is None else checkers)
        self._node_checkers = [one for one in self.checkers if type(one).node_turn is not Checker.node_turn]
        self._controller_checkers = [
            one for one in self.checkers if type(one).controller_turn is not Checker.controller_turn
        ]
        self._settle_checkers = [one for one in self.checkers if type(one).settled is not Checker.settled]
        for node_id in range(1, count + 1):
            actor = self.machines[node_id] = StageNode(
                node_id,
                DiskHome(node_id, self.clock, self.cluster_id, log_class) if home is None else home(self, node_id),
            )
            self._register(actor)
            self._heartbeat(actor)
        config = {"min.insync.replicas": str(min_insync_replicas), "durability": durability}
        wanted = CreatableTopic(
            TOPIC,
            assignments=[CreatableReplicaAssignment(0, list(self.machines))],
            configs=[CreatableTopicConfig(key, value) for key, value in config.items()],
        )
        (result,) = self.controller.create_topics(CreateTopicsRequest([wanted])).topics
        assert not result.error_code, result
        self.key: PartitionKey = (self.controller.image.topic_ids[TOPIC], 0)
        self._decided()
        self.tell()

    # -------------------------------------------------------------------------------------- looking

    @property
    def now_ns(self) -> int:
        """The stage's moment."""
        return self.clock.monotonic_ns()

    @property
    def image(self) -> MetadataImage:
        """The metadata as the controller has it."""
        return self.controller.image

    @property
    def partition(self) -> PartitionImage:
        """The partition as the controller has it."""
        found = self.controller.image.partition(self.key)
        assert found is not None
        return found

    @property
    def leader(self) -> int:
        """Who leads, as the controller has it; -1: nobody."""
        return self.partition.leader

    def log(self, node_id: int) -> Any:
        """A node's log. REQUIRES that it is up and has one."""
        found = self.machines[node_id].log
        assert found is not None, f"node {node_id} has no log"
        return found

    def ends(self) -> list[int]:
        """Log end offsets, by node; -1 where there is no log, or the node is down."""
        return [-1 if actor.log is None else actor.log.end_offset for actor in self.machines.values()]

    def up(self) -> list[int]:
        """Who is up."""
        return [actor.node_id for actor in self.machines.values() if actor.incarnation_id]

    def code(self, number: int) -> int | None:
        """The error code that append ``number`` was answered with; None while it waits."""
        return self.results[number].error_code if number in self.results else None

    def partitions(self) -> list[tuple[TopicPartition, PartitionKey, PartitionImage]]:
        """For checkers."""
        topic = self.image.topics.get(self.key[0]) if hasattr(self, "key") else None
        return [] if topic is None else [(TopicPartition(TOPIC, 0), self.key, topic.partitions[0])]

    def hosted(self, node_id: int, key: PartitionKey) -> Any:
        """For checkers."""
        node = self.machines[node_id].node
        return None if node is None else node.hosted.get(key)

    def log_of(self, node_id: int, key: PartitionKey) -> Any:
        """For checkers."""
        return self.machines[node_id].log

    def is_registered(self, node_id: int) -> bool:
        """For checkers."""
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.incarnation_id == self.machines[node_id].incarnation_id != ""

    def promises(self, attempt: Any) -> bool:
        """For checkers."""
        return True

    def broken(self, rule: str, about: str) -> None:
        """Raise :class:`InvariantBroken`."""
        kind = INVARIANTS.get(rule)
        raise InvariantBroken(
            rule, about, 0, self.now_ns, self.events, self.replay or "this schedule", "" if kind is None else kind.says
        )

    def say(self, text: str) -> None:
        """Note what is done."""
        if not self.quiet:
            self.events.append(text)

    # ------------------------------------------------------------------------------------- one step

    def step(self, node_id: int, event: Event) -> None:
        """Give one event to one replica, note its effects, and let the checkers look."""
        actor = self.machines[node_id]
        replica = actor.replica
        if replica is None:
            return
        self.steps += 1
        for effect in replica.step(event, self.now_ns):
            self._note(actor, effect)
        for checker in self._node_checkers:
            checker.node_turn(self._scene, actor)
        while self._fresh:
            attempt = self._fresh.pop()
            for checker in self._settle_checkers:
                checker.settled(self._scene, attempt)
            self._is_there(actor, attempt.offset, attempt.value)

    def _note(self, actor: StageNode, effect: Effect) -> None:
        match effect:
            case Reply(source, number, result):
                if source == CLIENT:
                    self._answered(actor, number, result)
                    return
                follower, request = self._sent[number]
                try:
                    data: Any = materialised(result)
                except PyreplogError:
                    return
                self.flight.append(
                    Envelope("records", actor.node_id, follower, (FetchAnswered(request, data), self._life(follower)))
                )
            case Fetch():
                actor.fetch = effect
                self.send(actor.node_id)
            case StopFetching():
                actor.fetch = None
            case Sync():
                actor.syncs.append(effect)
            case AlterPartition():
                self._propose(actor, effect)
            case Wake(at_ns):
                actor.wake_ns = min(at_ns, actor.wake_ns) if actor.wake_ns else at_ns
            case BrokenRule():
                actor.node.broken_rules.append(effect)
            case Unexpected(error):
                actor.node.failed_requests.append(repr(error))
            case Offline(error):
                actor.node.offline = error

    def _answered(self, actor: StageNode, number: int, result: Any) -> None:
        self.results[number] = result
        if number in self._deletions and not result.error_code:
            for one in self.checkers:
                if isinstance(one, DeletedStaysDeleted):
                    one.deleted(self._scene, TopicPartition(TOPIC, 0), result.low_watermark, actor.image.brokers)
        elif number in self._wanting_all and not result.error_code:
            attempt: Any = SimpleNamespace(
                outcome="ok",
                acks=-1,
                offset=result.base_offset,
                topic_partition=TopicPartition(TOPIC, 0),
                value=self.values[number],
            )
            self._fresh.append(attempt)

    def _is_there(self, actor: StageNode, offset: int, value: bytes) -> None:
        """What a node acknowledges it has, at that offset (S1), and at no other (S12)."""
        log = actor.log
        known = self.acknowledged.setdefault(value, offset)
        if known != offset:
            self.broken("S12", f"{value!r} was acknowledged at offset {known}, and now at {offset}")
        if log is not None and offset < log.start_offset:
            return  # acknowledged once more, and deleted since
        if log is None or offset >= log.end_offset:
            self.broken("S1", f"{value!r} was acknowledged at offset {offset}, where node {actor.node_id} has nothing")
            return
        batch = next(one for one in batches_of(log, offset, log.end_offset) if one.next_offset > offset)
        found = next(iter(records_of(batch, TOPIC, 0))).value
        if found != value:
            self.broken(
                "S1", f"{value!r} was acknowledged at offset {offset}, where node {actor.node_id} has {found!r}"
            )

    def _life(self, node_id: int) -> int:
        return self.machines[node_id].starts

    def _decided(self) -> None:
        """The controller may have written something."""
        self.records += self.controller.take()
        for checker in self._controller_checkers:
            checker.controller_turn(self._scene, self.image)

    # ---------------------------------------------------------------------------------- the clients

    def append(
        self,
        node_id: int,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = FOREVER_MS,
        numbers: tuple[int, int, int] = (-1, -1, -1),
    ) -> int:
        """One batch of ``values`` (by default one of its own) to a node; its number, under which ``results`` gets
        the answer. ``numbers``: producer id, epoch and base sequence."""
        self._numbers += 1
        number = self._numbers
        records = values or (b"m%d" % number,)
        builder = BatchBuilder()
        for value in records:
            assert builder.append(value, None, (), 1)
        data = builder.finish(producer_id=numbers[0], producer_epoch=numbers[1], base_sequence=numbers[2])
        self.values[number] = records[0]
        self.say(f"append {b', '.join(records).decode()} to node {node_id}{'' if acks == -1 else f' with acks={acks}'}")
        if acks == -1:
            self._wanting_all[number] = None
        self.step(node_id, Produce(CLIENT, number, acks, bytearray(data), timeout_ms))
        return number

    def read(self, node_id: int, offset: int) -> list[Record]:
        """What a consumer is given that asks a node for what lies from ``offset`` on. None of it may be above what
        is committed, or other than what was (S10, S3)."""
        self._numbers += 1
        number = self._numbers
        request = FetchPartition(0, -1, offset, -1, -1, 1 << 20)
        self.step(node_id, ConsumerFetch(CLIENT, number, request, 0))
        data = self.results.get(number)
        if data is None or data.error_code or data.records is None:
            return []
        parts = data.records.parts() if hasattr(data.records, "parts") else [data.records]
        found = [record for part in parts for batch in split(part) for record in records_of(batch, TOPIC, 0)]
        committed = next((one for one in self.checkers if isinstance(one, CommittedIdentical)), None)
        for record in found:
            if committed is not None and record.offset >= committed.end(self.key):
                self.broken("S10", f"offset {record.offset} was read, and committed is {committed.end(self.key)}")
        self.say(f"read from node {node_id}: {[(record.value or b'').decode() for record in found]}")
        return found

    def latest(self, node_id: int) -> int | None:
        """Where a node tells readers that the end is; None where it does not know. It never goes back (S8)."""
        self._numbers += 1
        self.step(node_id, ListOffsets(CLIENT, self._numbers, ListOffsetsPartition(0, -1, LATEST_TIMESTAMP)))
        answer = self.results[self._numbers]
        if answer.error_code:
            return None
        if answer.offset < self._end_told:
            self.broken("S8", f"readers were told that the end is {self._end_told}, and now {answer.offset}")
        self._end_told = answer.offset
        return int(answer.offset)

    def delete_records(self, node_id: int, offset: int) -> int:
        """Ask for everything below ``offset`` to be deleted; the number of the answer in ``results``."""
        self._numbers += 1
        self.say(f"delete everything below offset {offset}")
        self.delete_asked[TopicPartition(TOPIC, 0)] = max(offset, self.delete_asked.get(TopicPartition(TOPIC, 0), 0))
        self._deletions[self._numbers] = None
        self.step(node_id, DeleteRecords(CLIENT, self._numbers, offset, FOREVER_MS))
        return self._numbers

    # ---------------------------------------------------------------------------------- the network

    def send(self, follower: int) -> None:
        """The outstanding fetch of a follower sets out (again)."""
        actor = self.machines[follower]
        if actor.fetch is not None:
            number = len(self._sent)
            self._sent[number] = (follower, actor.fetch.request)
            event = FollowerFetch(str(follower), number, actor.fetch.request, follower, actor.epoch)
            self.flight.append(Envelope("fetch", follower, actor.fetch.leader_id, event))

    def ask_again(self, node_id: int) -> None:
        """A leader whose proposal got no answer sends it again, as its node does after a while."""
        actor = self.machines[node_id]
        role = None if actor.replica is None else actor.replica.role
        if isinstance(role, Leader) and role.in_sync_set.pending is not None:
            self._propose(actor, AlterPartition(role.in_sync_set.pending.token, role.in_sync_set.pending.data))

    def _propose(self, actor: StageNode, effect: AlterPartition) -> None:
        self._proposals += 1
        actor.asked = self._proposals
        self.flight.append(Envelope("proposal", actor.node_id, 0, (effect, actor.epoch, self._proposals)))

    def deliver(self, letter: Envelope) -> None:
        """It arrives. REQUIRES that it is in ``flight``."""
        self.flight.remove(letter)
        self.arrive(letter)

    def lose(self, letter: Envelope) -> None:
        """It never arrives."""
        self.flight.remove(letter)

    def arrive(self, letter: Envelope) -> None:
        """What a message does where it arrives; it stays in ``flight`` where it is there, so that it arrives
        twice."""
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
            self._count_refusals(actor, event)
            self.step(letter.target, event)
        elif letter.kind == "proposal":
            effect, epoch, number = body
            if number <= self._decided_upto.get((letter.source, epoch), 0):
                return  # as the authority has it: a request is decided once, and none after a newer one
            self._decided_upto[letter.source, epoch] = number
            topic = AlterPartitionTopic(self.key[0], [effect.proposal])
            response = self.controller.alter_partition(AlterPartitionRequest(letter.source, epoch, [topic]))
            self._decided()
            result = response.topics[0].partitions[0] if response.topics else None
            answer = AlterPartitionAnswered(effect.token, response.error_code, result)
            self.flight.append(Envelope("decision", 0, letter.source, (answer, self._life(letter.source), number)))
        else:
            answer, life, number = body
            if life == self._life(letter.target) and (
                number == self.machines[letter.target].asked or not self.match_answers
            ):
                self.step(letter.target, answer)  # as a node has it: only the answer to its newest request counts

    def _count_refusals(self, actor: StageNode, event: FetchAnswered) -> None:
        """Nobody is told for ever that its log diverges (L5), or that its offset is out of range (L12)."""
        data = event.data
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or (
            data.diverging_epoch is not None and not data.error_code
        ):
            rule = "L12" if data.error_code else "L5"
            place = (rule, actor.node_id, actor.starts, event.request.current_leader_epoch)
            self._told_off[place] = self._told_off.get(place, 0) + 1
            if self._told_off[place] > event.request.current_leader_epoch + REFUSALS_MAX:
                self.broken(
                    rule,
                    f"node {actor.node_id} was refused {self._told_off[place]} times in one epoch at {event.request}",
                )

    def letters(self, kind: str, source: int = -1, target: int = -1) -> list[Envelope]:
        """What is on its way of that kind, from or to those where given."""
        return [
            one for one in self.flight if one.kind == kind and source in (-1, one.source) and target in (-1, one.target)
        ]

    def exchange(self, *followers: int) -> None:
        """Each of these has its newest fetch arrive, and gets the answer, if there is one."""
        for follower in followers:
            for letter in self.letters("fetch", follower)[:-1]:
                self.lose(letter)
            for letter in self.letters("fetch", follower) or self._again(follower):
                self.deliver(letter)
            for letter in self.letters("records", target=follower):
                self.deliver(letter)

    def _again(self, follower: int) -> list[Envelope]:
        self.send(follower)
        return self.letters("fetch", follower)

    def decide(self, leader: int, *, answer: bool = True) -> None:
        """The oldest proposal of a leader arrives at the controller; and the decision back, unless it is to stay on
        its way."""
        for letter in self.letters("proposal", leader)[:1]:
            self.deliver(letter)
        if answer:
            for letter in self.letters("decision", target=leader):
                self.deliver(letter)

    # ------------------------------------------------------------------------------- the controller

    def tell(self, *node_ids: int, count: int = FOREVER_MS) -> None:
        """These (none: all that are up) hear of the controller's next records, one after the other."""
        for node_id in node_ids or self.up():
            actor = self.machines[node_id]
            for offset, record in self.records[actor.told : actor.told + count]:
                actor.image.apply(offset, record)
                actor.told += 1
                if offset == actor.epoch:
                    self._picture(actor)
                elif offset > actor.epoch >= 0:
                    if isinstance(record, PartitionRecord | PartitionChangeRecord):
                        self._picture(actor)
                    elif actor.replica is not None:
                        self.step(node_id, BrokersApplied(self._statuses(actor)))

    def skip(self, node_id: int) -> None:
        """A node hears only how things are now, as from a snapshot or several records at once."""
        actor = self.machines[node_id]
        for offset, record in self.records[actor.told :]:
            actor.image.apply(offset, record)
        actor.told = len(self.records)
        self._picture(actor)

    def _statuses(self, actor: StageNode) -> Mapping[int, BrokerStatus]:
        return {one.broker_id: BrokerStatus(one.epoch, one.active) for one in actor.image.brokers.values()}

    def _picture(self, actor: StageNode, **changes: Any) -> None:
        partition = actor.image.partition(self.key) if hasattr(self, "key") else None
        if partition is None or not actor.incarnation_id:
            return
        if actor.replica is None and not self._host(actor, partition):
            return
        about: dict[str, Any] = {
            "offset": actor.image.offset,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "brokers": self._statuses(actor),
            "leader_recovery_state": int(partition.recovering),
            "unclean_epoch": partition.unclean_epoch,
        }
        self.step(actor.node_id, MetadataApplied(**(about | changes)))

    def picture(self, node_id: int, **changes: Any) -> None:
        """A node hears again how things are, as far as it knows; or something else, where ``changes`` say so."""
        self._picture(self.machines[node_id], **changes)

    def _host(self, actor: StageNode, partition: PartitionImage) -> bool:
        log = actor.home.log
        if log is None:
            if partition.leader == NO_LEADER:
                return False
            config = actor.image.topics[self.key[0]].log_config
            log = actor.home.create(self.key[0], config, incomplete=actor.node_id not in partition.isr)
        replica = actor.replica = self.replica_class(log, actor.node_id, self.config)
        hosted = SimpleNamespace(key=self.key, log=log, replica=replica, topic_partition=TopicPartition(TOPIC, 0))
        actor.node = SimpleNamespace(
            hosted={self.key: hosted}, broken_rules=[], failed_requests=[], offline=None, failure=None
        )
        return True

    def take_away(self, node_id: int) -> None:
        """The controller takes a node's replica away, and its copy is deleted."""
        self.say(f"the replica of node {node_id} is taken away")
        rest = tuple(one for one in self.partition.replicas if one != node_id)
        isr = tuple(one for one in self.partition.isr if one != node_id)
        self.controller._write(PartitionChangeRecord(0, self.key[0], replicas=rest, isr=isr, leader=self.leader))
        self._decided()
        actor = self.machines[node_id]
        actor.home.root.remove_log(TopicPartition(TOPIC, 0))
        actor.replica = actor.node = actor.fetch = None
        actor.syncs.clear()
        actor.wake_ns = 0

    def give_back(self, node_id: int) -> None:
        """And gives it an empty one again."""
        self.say(f"node {node_id} gets a replica again")
        self.controller._write(PartitionChangeRecord(0, self.key[0], replicas=(*self.partition.replicas, node_id)))
        self._decided()

    def flip(self, node_id: int) -> None:
        """A bit of the first batch of a node's log flips, on its disk."""
        self.say(f"a bit flips on the disk of node {node_id}")
        actor = self.machines[node_id]
        disk = actor.home.disk
        path = f"node-{node_id}/{TOPIC}-0/{0:020d}.log"
        size = int.from_bytes(bytes(disk.open(path).read_at(8, 4)), "big") + 12
        disk.flip(path, size - 2)
        actor.rotten = True

    def prefer(self, node_id: int) -> None:
        """The controller moves the leadership to a member of the in-sync set although nobody died."""
        assert node_id in self.partition.isr, f"node {node_id} is not in sync"
        self.say(f"node {node_id} is elected")
        self.controller._write(PartitionChangeRecord(0, self.key[0], leader=node_id))
        self._decided()

    def fence(self, node_id: int) -> None:
        """The controller loses sight of a node, which knows nothing of it: it leaves the in-sync set, and its
        leadership goes."""
        self.say(f"the controller takes node {node_id} for dead")
        epoch, session = self.machines[node_id].epoch, self.controller._sessions[node_id]
        self.controller.heartbeat(BrokerHeartbeatRequest(node_id, epoch, epoch, want_fence=True), self.now_ns)
        session.alive = False
        self._decided()
        self._uncleanly()

    def unfence(self, node_id: int) -> None:
        """And sees it again."""
        self.say(f"the controller sees node {node_id} again")
        self._heartbeat(self.machines[node_id])

    def _heartbeat(self, actor: StageNode) -> None:
        self.controller.heartbeat(BrokerHeartbeatRequest(actor.node_id, actor.epoch, actor.epoch), self.now_ns)
        self._decided()
        self._uncleanly()

    def _uncleanly(self) -> None:
        if self.unclean and hasattr(self, "key") and self.leader == NO_LEADER:
            self.controller.elect_uncleanly(TOPIC, 0)
            self._decided()

    # -------------------------------------------------------------------------------- the accidents

    def kill(self, node_id: int, *, tell: bool = True) -> None:
        """A process dies; where ``tell`` the controller hears of it at once."""
        self.say(f"kill node {node_id}")
        self._down(node_id, tell=tell)
        self.machines[node_id].home.kill()

    def lose_power(self, node_id: int, *, chance: Random | None = None, tell: bool = True) -> None:
        """A machine loses its power, and with it all that was not synced (or what a chance says)."""
        self.say(f"node {node_id} loses power")
        if self.durability == "os":
            self.lost.setdefault(TopicPartition(TOPIC, 0), {})[node_id] = None
        self._down(node_id, tell=tell)
        self.machines[node_id].home.lose_power(chance)

    def stop(self, node_id: int) -> None:
        """A clean stop."""
        self.say(f"node {node_id} stops")
        epoch = self.machines[node_id].epoch
        self._down(node_id, tell=True)
        self.machines[node_id].home.stop(epoch)

    def _down(self, node_id: int, *, tell: bool) -> None:
        actor = self.machines[node_id]
        actor.replica = actor.node = actor.root = actor.fetch = None
        actor.syncs.clear()
        actor.wake_ns = 0
        actor.incarnation_id = ""
        if tell:
            self.controller.fence(node_id, self.now_ns)
            self._decided()

    def start(self, node_id: int, *, unfence: bool = True) -> None:
        """A node that is down comes back on its disk: it registers, and is unfenced unless told otherwise."""
        actor = self.machines[node_id]
        if actor.incarnation_id:
            return
        self.say(f"node {node_id} starts")
        if self.controller._sessions[node_id].alive:
            self.controller.fence(node_id, self.now_ns)  # the session of its former life ends first
        self._register(actor)
        if unfence:
            self._heartbeat(actor)

    def _register(self, actor: StageNode) -> None:
        actor.incarnation_id, previous = actor.home.open()
        actor.starts += 1
        actor.disk_failed = False
        actor.root = getattr(actor.home, "root", None)
        for error in () if actor.root is None or actor.rotten else actor.root.damaged.values():
            self.broken("S24", f"node {actor.node_id} cannot open its log: {error}")
        log = actor.home.log
        ends = []
        if log is not None:
            ends.append(PartitionEnd(log.topic_id, 0, log.epochs.latest, log.end_offset, log.incomplete, log.reported))
        request = BrokerRegistrationRequest(
            actor.node_id,
            self.cluster_id,
            actor.incarnation_id,
            log_dirs=[actor.home.directory_id],
            previous_broker_epoch=previous,
            partition_ends=ends,
        )
        response = self.controller.register(request, self.now_ns)
        assert not response.error_code, ErrorCode(response.error_code).name
        actor.epoch = response.broker_epoch
        self._decided()

    # -------------------------------------------------------------------------------- disk and time

    def sync(self, *node_ids: int) -> None:
        """The outstanding sync of these (none: all) ends well."""
        for node_id in node_ids or self.up():
            self._end_sync(node_id, 0)

    def sync_all(self) -> None:
        """Every disk writes out what it shows, as the system does sooner or later."""
        for actor in self.machines.values():
            actor.home.disk.write_back()

    def fail_sync(self, node_id: int) -> None:
        """The outstanding sync of a node fails."""
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
        """Time passes, and these (none: all) notice; so does the controller."""
        self.clock.advance(int(ms * _MS))
        self.controller.tick(self.now_ns)
        self._decided()
        for node_id in node_ids or self.up():
            actor = self.machines[node_id]
            if actor.wake_ns and actor.wake_ns <= self.now_ns:
                actor.wake_ns = 0
                self.step(node_id, Tick())

    # ----------------------------------------------------------------------------------- the finale

    def settle(self, *node_ids: int, rounds: int = ROUNDS_MAX) -> None:
        """Everything that can happen between these (none: all that are up) happens in order, until nothing is left
        or changes."""
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
        return [
            self.partition,
            *(
                (
                    actor.replica.role_name,
                    actor.log.end_offset,
                    actor.log.high_watermark,
                    actor.log.flushed_offset,
                    actor.told,
                )
                for actor in self.machines.values()
                if actor.replica is not None
            ),
        ]

    def check_bytes(self, node_id: int) -> None:
        """Every batch of a node's log has the checksum it says it has (S3)."""
        log = self.log(node_id)
        for batch in batches_of(log, log.start_offset, log.end_offset):
            try:
                batch.check_crc()
            except CorruptError as error:
                self.broken("S3", f"node {node_id}: {error}")

    def finish(self) -> None:
        """Everybody comes back, everything arrives, and all logs must become equal and committed to their end."""
        self.flight.clear()
        for node_id in self.machines:
            self.start(node_id, unfence=False)
        for actor in self.machines.values():
            self._heartbeat(actor)
        for _ in range(30):
            self.settle(rounds=10)
            for node_id, actor in self.machines.items():
                if self.image.brokers[node_id].fenced:
                    self._heartbeat(actor)
            self.pass_time(1000)
            logs = [actor.log for actor in self.machines.values()]
            equal = all(
                log is not None and log.end_offset == log.high_watermark == logs[0].end_offset
                for log in logs
                if logs[0]
            )
            if equal and self.leader != NO_LEADER and len(self.partition.isr) == len(self.partition.replicas):
                break
        else:
            self.broken("L3", f"does not heal: ends {self.ends()}, {self.partition}")
        for checker in self.checkers:
            checker.final(self._scene)
        for node_id in self.machines:
            self.check_bytes(node_id)
        for value, offset in self.acknowledged.items():
            if offset >= self.log(self.leader).start_offset:
                self._is_there(self.machines[self.leader], offset, value)
