"""Explicit-state exploration: every order in which a few things can happen, over the real replicas, roles and
controller.

A state is three replicas with their logs (the in-memory twin), what each has heard of the controller's decisions,
the controller's own picture, and the messages on their way. Each thing that can happen next leads to another state;
states that are the same are looked at once. Within its :class:`Bounds` an exploration that ends has seen all there
is; one that is stopped has gone down from states drawn at random. After every step the invariants are checked
(names as in ``docs/internals/simulation.md``).

Only the replica that is given an event is copied, so a step costs some fifty microseconds. Time stands still: what
only time brings about (pushes of the high watermark, laggards) happens through the controller's fencing instead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from pyreplog.config import LogConfig, NodeConfig
from pyreplog.controller import (
    FEATURE,
    LEVEL_LATEST,
    BrokerImage,
    Controller,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from pyreplog.replica import (
    AlterPartition,
    AlterPartitionAnswered,
    BrokersApplied,
    BrokerStatus,
    Effect,
    Event,
    Fetch,
    FetchAnswered,
    Follower,
    FollowerFetch,
    Leader,
    MetadataApplied,
    Produce,
    Replica,
    Reply,
    StopFetching,
    Sync,
    Synced,
)
from pyreplog.testing.copies import shallow_copy
from pyreplog.wire import (
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Feature,
    FetchPartition,
    PartitionData,
    PartitionEnd,
)
from tests.oracle.memory_log import MemoryLog
from tests.unit.replica.batches import batch

NOW = 1_000_000_000
NODES = (1, 2, 3)
TOPIC_ID = "T" * 22
KEY = (TOPIC_ID, 0)
RECORDS = [bytes(batch([b"r%d" % number])) for number in range(8)]


class ViolationError(AssertionError):
    """An invariant does not hold; the text has the way there."""


class Bounds(NamedTuple):
    """How much of what may happen. ``fences``: changes of who is alive as the controller sees it; ``crashes``:
    processes that die and come back, by power loss where ``power``."""

    records: int = 3
    epochs: int = 3
    fences: int = 2
    crashes: int = 1
    drops: int = 1
    duplicates: int = 1
    durability: Any = "os"
    minimum: int = 2
    power: bool = False


class Letter(NamedTuple):
    """A message: ``print`` is what it says, for the state's fingerprint."""

    kind: str
    source: int
    target: int
    life: int
    body: Any
    print: bytes

    @classmethod
    def of(cls, kind: str, source: int, target: int, life: int, body: Any, text: tuple[Any, ...]) -> Letter:
        """With the fingerprint of what it says."""
        return cls(kind, source, target, life, body, _digest((kind, source, target, life, text)))


class Node:
    """One replica and what it knows. Never changed after it became part of a state: a step makes a new one."""

    __slots__ = ("asked", "epoch", "fetch", "life", "print", "replica", "syncing", "told")

    def __init__(self, replica: Replica, epoch: int, life: int) -> None:
        self.replica = replica
        self.epoch = epoch
        self.life = life
        self.told = 0
        self.fetch: Fetch | None = None
        self.syncing: Sync | None = None
        self.asked = 0
        self.print = b""


class Picture(NamedTuple):
    """What the metadata says after one record."""

    offset: int
    partition: PartitionImage
    brokers: tuple[tuple[int, BrokerImage], ...]
    print: bytes


class State(NamedTuple):
    """See the module's text. ``ghost``: what was ever committed; ``leaders``: who led in which epoch; ``counts``:
    what is used up."""

    nodes: tuple[Node, ...]
    flight: tuple[Letter, ...]
    pictures: tuple[Picture, ...]
    sessions: tuple[tuple[bool, bool], ...]
    decided: tuple[int, ...]
    ghost: tuple[tuple[int, int, bytes], ...]
    leaders: tuple[int, ...]
    counts: tuple[int, ...]

    def digest(self) -> bytes:
        """The state's fingerprint: the same in every process."""
        found = blake2b(repr((self.sessions, self.ghost, self.counts)).encode(), digest_size=12)
        for letter in sorted(one.print for one in self.flight):
            found.update(letter)
        for node in self.nodes:
            found.update(node.print)
            for picture in self.pictures[node.told :]:
                found.update(picture.print)
        found.update(self.pictures[-1].print)
        return found.digest()


Way = Any
"""How a state was reached: (the way to the one before, what happened then), None for the first."""
FRONTIER_MAX = 40_000
"""With fewer states to go on from, now and then one of them is drawn; else the latest is taken, which goes deep and
keeps them few."""
DRAWN = 0.03
RECORD, EPOCH, FENCE, CRASH, DROP, DUPLICATE = range(6)


class Explorer:
    """``run(limit)`` looks at up to so many states; ``states``, ``steps`` and ``complete`` say what it came to."""

    def __init__(
        self,
        bounds: Bounds | None = None,
        *,
        replica_class: type[Replica] = Replica,
        controller_class: type[Controller] = Controller,
        seed: int = 0,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.replica_class = replica_class
        self.config = NodeConfig(session_timeout_ms=1 << 40)
        self.log_config = LogConfig(durability=self.bounds.durability, min_insync_replicas=self.bounds.minimum)
        self.controller = controller_class(MetadataImage(), self.config, Random(1), "c")
        self.controller.image.feature_levels[FEATURE] = LEVEL_LATEST
        self.topic = TopicImage("t", TOPIC_ID)
        self.topic.log_config = self.log_config
        self.random = Random(seed)
        self.seen: dict[bytes, None] = {}
        self.steps = 0
        self.complete = False

    # ------------------------------------------------------------------------------------ exploring

    def run(self, limit: int, *, until: float = math.inf) -> Explorer:
        """Go on until there is nothing new, or ``limit`` states were seen, or the monotonic clock says ``until``
        (s). Raises :class:`ViolationError`."""
        first = self._begin()
        self.seen[first.digest()] = None
        frontier: list[tuple[State, Way]] = [(first, None)]
        while frontier and len(self.seen) < limit and time.monotonic() < until:
            if len(frontier) < FRONTIER_MAX and self.random.random() < DRAWN:
                index = self.random.randrange(len(frontier))
                frontier[index], frontier[-1] = frontier[-1], frontier[index]
            state, way = frontier.pop()
            try:
                for how, found in self._next(state):
                    digest = found.digest()
                    if digest not in self.seen:
                        self.seen[digest] = None
                        frontier.append((found, (way, how)))
            except AssertionError as error:
                raise ViolationError(f"{error}\n  " + "\n  ".join(_steps(way))) from None
        self.complete = not frontier
        return self

    def _begin(self) -> State:
        nodes = []
        for node_id in NODES:
            log = MemoryLog(self.log_config, topic_id=TOPIC_ID)
            nodes.append(Node(self.replica_class(log, node_id, self.config), node_id, 1))  # type: ignore[arg-type]
        brokers = tuple((one, BrokerImage(one, one, f"i{one}-1", f"n{one}", False, False, ("d",))) for one in NODES)
        partition = PartitionImage(NODES, NODES, (), (), 1, 0, 0, False)
        state = State(
            tuple(nodes),
            (),
            (Picture(10, partition, brokers, b"first"),),
            ((True, True),) * 3,
            (0, 0, 0),
            (),
            (-1,) * 4,
            (0, 0, 0, 0, 0, 0),
        )
        for node_id in NODES:
            state = self._tell(state, node_id)
        return state

    def _next(self, state: State) -> Iterator[tuple[str, State]]:
        bounds, counts = self.bounds, state.counts
        for node_id in NODES:
            node = state.nodes[node_id - 1]
            if counts[RECORD] < bounds.records and node.replica.is_leader:
                yield f"append to {node_id}", self._append(state, node_id)
            if node.told < len(state.pictures):
                yield f"tell {node_id}", self._tell(state, node_id)
            if node.syncing is not None:
                yield f"sync {node_id}", self._sync(state, node_id)
            under_way = any(
                (one.kind, one.source) == ("fetch", node_id) or (one.kind, one.target) == ("records", node_id)
                for one in state.flight
            )
            if node.fetch is not None and not under_way and not self._parked(state, node):
                yield f"{node_id} fetches again", self._fetch_again(state, node_id)
        for index, letter in enumerate(state.flight):
            if letter in state.flight[:index]:
                continue
            about = f"{letter.kind} {letter.source} -> {letter.target}"
            rest = state.flight[:index] + state.flight[index + 1 :]
            yield f"{about} arrives", self._arrive(state._replace(flight=rest), letter)
            if counts[DROP] < bounds.drops:
                yield f"{about} is lost", state._replace(flight=rest, counts=_more(counts, DROP))
            if counts[DUPLICATE] < bounds.duplicates:
                yield (
                    f"{about} arrives and stays",
                    self._arrive(state._replace(counts=_more(counts, DUPLICATE)), letter),
                )
        fenced = [one for one, broker in state.pictures[-1].brokers if broker.fenced]
        for node_id in NODES:
            if node_id in fenced:
                yield f"unfence {node_id}", self._unfence(state, node_id)
            elif counts[FENCE] < bounds.fences and counts[EPOCH] < bounds.epochs:
                yield f"fence {node_id}", self._fence(state, node_id)
            if counts[CRASH] < bounds.crashes and counts[EPOCH] < bounds.epochs:
                yield f"{'power loss' if bounds.power else 'kill'} {node_id}", self._crash(state, node_id)

    def _parked(self, state: State, node: Node) -> bool:
        """Whether its leader keeps its fetch until there is something to say."""
        assert node.fetch is not None
        leader = state.nodes[node.fetch.leader_id - 1].replica.role
        if not isinstance(leader, Leader):
            return False
        follower = leader.in_sync_set.followers.get(node.replica.broker_id)
        parked = None if follower is None else follower.delayed_fetch
        return parked is not None and parked.request is node.fetch.request

    # --------------------------------------------------------------------------------- what happens

    def _append(self, state: State, node_id: int) -> State:
        number = state.counts[RECORD]
        event = Produce("client", number, -1, bytearray(RECORDS[number]), 1 << 40)
        return self._step(state._replace(counts=_more(state.counts, RECORD)), node_id, event)

    def _tell(self, state: State, node_id: int) -> State:
        """The next picture; those before its registration say nothing to it."""
        node = state.nodes[node_id - 1]
        picture = state.pictures[node.told]
        statuses = {one: BrokerStatus(broker.epoch, broker.active) for one, broker in picture.brokers}
        told = node.told + 1
        if dict(picture.brokers)[node_id].epoch != node.epoch:
            return state._replace(nodes=_with(state.nodes, node_id, self.shallow_copy(node, told)))
        part = picture.partition
        before = state.pictures[node.told - 1] if node.told else None
        event: Event
        if before is not None and before.partition == part and node.replica.leader_epoch >= 0:
            event = BrokersApplied(statuses)
        else:
            event = MetadataApplied(
                picture.offset, part.leader, part.leader_epoch, part.partition_epoch, part.replicas, part.isr, statuses
            )
        return self._step(state, node_id, event, told)

    def _sync(self, state: State, node_id: int) -> State:
        node = state.nodes[node_id - 1]
        assert node.syncing is not None
        return self._step(state, node_id, Synced(node.syncing.upto, node.syncing.generation), synced=True)

    def _fetch_again(self, state: State, node_id: int) -> State:
        node = state.nodes[node_id - 1]
        assert node.fetch is not None
        return state._replace(flight=(*state.flight, self._fetch_letter(node, node.fetch)))

    def _arrive(self, state: State, letter: Letter) -> State:
        if letter.kind == "fetch":
            return self._step(state, letter.target, letter.body)
        if letter.kind == "proposal":
            return self._decide(state, letter)
        node = state.nodes[letter.target - 1]
        if node.life != letter.life:
            return state
        if letter.kind == "decision":
            event, number = letter.body
            return self._step(state, letter.target, event) if number == node.asked else state
        return self._step(state, letter.target, letter.body)

    def _decide(self, state: State, letter: Letter) -> State:
        effect, epoch, number = letter.body
        if number <= state.decided[letter.source - 1]:
            return state
        decided = tuple(
            number if one == letter.source else upto for one, upto in zip(NODES, state.decided, strict=True)
        )
        controller = self._load(state)
        response = controller.alter_partition(
            AlterPartitionRequest(letter.source, epoch, [AlterPartitionTopic(TOPIC_ID, [effect.proposal])])
        )
        state = self._dump(state)._replace(decided=decided)
        result = response.topics[0].partitions[0] if response.topics else None
        answer = AlterPartitionAnswered(effect.token, response.error_code, result)
        text = (
            response.error_code,
            None if result is None else (int(result.error_code), tuple(result.isr), result.partition_epoch),
            number,
        )
        node = state.nodes[letter.source - 1]
        return state._replace(
            flight=(*state.flight, Letter.of("decision", 0, letter.source, node.life, (answer, number), text))
        )

    def _fence(self, state: State, node_id: int) -> State:
        controller = self._load(state)
        epoch = state.nodes[node_id - 1].epoch
        controller.heartbeat(BrokerHeartbeatRequest(node_id, epoch, epoch, want_fence=True), NOW)
        return self._dump(state._replace(counts=_more(state.counts, FENCE)))

    def _unfence(self, state: State, node_id: int) -> State:
        controller = self._load(state)
        epoch = state.nodes[node_id - 1].epoch
        controller.heartbeat(BrokerHeartbeatRequest(node_id, epoch, epoch), NOW)
        return self._dump(state)

    def _crash(self, state: State, node_id: int) -> State:
        """The process dies and comes back at once; it registers, fenced, and has heard of nothing."""
        controller = self._load(state)
        controller.fence(node_id, NOW)
        old = state.nodes[node_id - 1]
        log = _copy_log(old.replica.log)  # type: ignore[arg-type]
        if self.bounds.power:
            log.lose_power()
        ends = [PartitionEnd(TOPIC_ID, 0, log.epochs.latest, log.end_offset)]
        response = controller.register(
            BrokerRegistrationRequest(
                node_id,
                "c",
                f"i{node_id}-{old.life + 1}",
                features=[Feature(FEATURE, 0, LEVEL_LATEST)],
                log_dirs=["d"],
                partition_ends=ends,
            ),
            NOW,
        )
        node = Node(self.replica_class(log, node_id, self.config), response.broker_epoch, old.life + 1)  # type: ignore[arg-type]
        node.told = len(state.pictures)
        node.print = _fingerprint(node)
        state = state._replace(nodes=_with(state.nodes, node_id, node), counts=_more(state.counts, CRASH))
        return self._dump(state)

    # ------------------------------------------------------------------------------- the controller

    def _load(self, state: State) -> Controller:
        controller, picture = self.controller, state.pictures[-1]
        image = controller.image
        image.offset = picture.offset
        image.brokers = dict(picture.brokers)
        image.topics = {TOPIC_ID: self.topic}
        image.topic_ids = {"t": TOPIC_ID}
        self.topic.partitions[0] = picture.partition
        image._index = None  # it is built anew from what was just set
        for one, (registered, alive) in zip(NODES, state.sessions, strict=True):
            controller._sessions.begin(one, NOW, registered=registered)
            controller._sessions[one].alive = alive
        controller._waiting = {}
        controller._records = []
        return controller

    def _dump(self, state: State) -> State:
        controller = self.controller
        image = controller.image
        partition = image.partition(KEY)
        assert partition is not None
        before = state.pictures[-1]
        sessions = tuple((controller._sessions[one].registered, controller._sessions[one].alive) for one in NODES)
        state = state._replace(sessions=sessions)
        brokers = tuple(image.brokers.items())
        if partition == before.partition and brokers == before.brokers:
            return state
        counts = state.counts
        if partition.leader_epoch != before.partition.leader_epoch:
            counts = (*counts[:EPOCH], partition.leader_epoch, *counts[EPOCH + 1 :])
        state = state._replace(
            pictures=(*state.pictures, Picture(image.offset, partition, brokers, _digest((partition, brokers)))),
            counts=counts,
        )
        self._check_members(state)
        return state

    # ---------------------------------------------------------------------------------- one replica

    def shallow_copy(self, node: Node, told: int) -> Node:
        new = Node(_copy_replica(node.replica), node.epoch, node.life)
        new.told, new.fetch, new.syncing, new.asked, new.print = told, node.fetch, node.syncing, node.asked, node.print
        return new

    def _step(self, state: State, node_id: int, event: Event, told: int = -1, *, synced: bool = False) -> State:
        self.steps += 1
        old = state.nodes[node_id - 1]
        node = self.shallow_copy(old, old.told if told < 0 else told)
        if synced:
            node.syncing = None
        if isinstance(event, FetchAnswered) and node.fetch is not None and node.fetch.request is event.request:
            node.fetch = None
        letters: list[Letter] = []
        for effect in node.replica.step(event, NOW):
            self._note(state, node, effect, letters)
        node.print = _fingerprint(node)
        after = state._replace(
            nodes=_with(state.nodes, node_id, node), flight=(*state.flight, *letters) if letters else state.flight
        )
        return self._check(after, old, node)

    def _note(self, state: State, node: Node, effect: Effect, letters: list[Letter]) -> None:
        if isinstance(effect, Reply):
            if effect.source == "client" or not isinstance(effect.result, PartitionData):
                return
            source = effect.source
            assert isinstance(source, Asking)
            follower, life, asked = int(source), source.life, source.request
            data = effect.result
            parts: Any = data.records
            content = b"" if parts is None else b"".join(parts.parts())
            diverging = data.diverging_epoch
            told = (
                data.error_code,
                data.high_watermark,
                content,
                None if diverging is None else (diverging.epoch, diverging.end_offset),
            )
            body = FetchAnswered(
                asked,
                PartitionData(
                    0,
                    data.error_code,
                    data.high_watermark,
                    data.high_watermark,
                    0,
                    diverging,
                    None,
                    -1,
                    content or None,
                ),
            )
            letters.append(
                Letter.of(
                    "records",
                    node.replica.broker_id,
                    follower,
                    life,
                    body,
                    (*told, asked.current_leader_epoch, asked.fetch_offset),
                )
            )
        elif isinstance(effect, Fetch):
            node.fetch = effect
            letters.append(self._fetch_letter(node, effect))
        elif isinstance(effect, StopFetching):
            node.fetch = None
        elif isinstance(effect, Sync):
            node.syncing = effect
        elif isinstance(effect, AlterPartition):
            node.asked += 1
            data_ = effect.proposal
            text = (
                data_.leader_epoch,
                data_.partition_epoch,
                tuple((m.broker_id, m.broker_epoch) for m in data_.new_isr_with_epochs),
                node.asked,
            )
            letters.append(
                Letter.of(
                    "proposal",
                    node.replica.broker_id,
                    0,
                    node.life,
                    (effect, node.epoch, node.life * 1000 + node.asked),
                    text,
                )
            )
            node.asked = node.life * 1000 + node.asked % 1000

    def _fetch_letter(self, node: Node, fetch: Fetch) -> Letter:
        request = fetch.request
        follower = node.replica.broker_id
        source = Asking(str(follower))  # comes back with the answer
        source.life, source.request = node.life, request
        event = FollowerFetch(source, node.life, request, follower, node.epoch)
        text = (request.current_leader_epoch, request.fetch_offset, request.last_fetched_epoch, request.high_watermark)
        return Letter.of("fetch", follower, fetch.leader_id, node.life, event, text)

    # ----------------------------------------------------------------------------------- the checks

    def _check(self, state: State, old: Node, node: Node) -> State:
        replica, log = node.replica, node.replica.log
        assert log.start_offset <= log.high_watermark <= log.end_offset, f"S9: node {replica.broker_id}"
        entries = log.epochs.entries
        assert all(
            one.epoch < other.epoch and one.start_offset < other.start_offset for one, other in pairwise(entries)
        ), "S6"
        shape = _shape(node)
        assert all(log.epochs.epoch_for_offset(base) == epoch for base, epoch, _ in shape), f"S6: {entries} and {shape}"
        for other in state.nodes:
            if other is not node:
                _compare(shape, _shape(other))
        if not replica.is_leader:
            return state
        leaders = state.leaders
        epoch = replica.leader_epoch
        who = replica.broker_id * 100 + node.life
        if epoch >= len(leaders):
            leaders += (-1,) * (epoch + 1 - len(leaders))
        assert leaders[epoch] in (-1, who), f"S5: {leaders[epoch]} and {who} lead in epoch {epoch}"
        leaders = (*leaders[:epoch], who, *leaders[epoch + 1 :])
        before = old.replica
        if before.is_leader and before.leader_epoch == epoch:
            assert log.high_watermark >= before.log.high_watermark, "S8: the high watermark fell"
        ghost = state.ghost
        exposed = [one for one in shape if one[0] < log.high_watermark]
        for ours, theirs in zip(exposed, ghost, strict=False):
            assert ours == theirs, f"S3: {ours} where {theirs} was committed"
        newest = state.pictures[-1].partition
        if epoch == newest.leader_epoch:
            assert shape[: len(ghost)] == list(ghost), (
                f"S1: node {replica.broker_id} leads in epoch {epoch} with {shape}, committed is {ghost}"
            )
            if len(newest.isr) >= self.bounds.minimum:
                assert all(one in replica.maximal_isr for one in newest.isr), (
                    f"S7: {newest.isr}, and {replica.maximal_isr} are waited for"
                )
        if len(exposed) > len(ghost):
            holders = [one for one in replica.maximal_isr if self._holds(state, one, log.high_watermark)]
            assert len(holders) >= min(self.bounds.minimum, len(NODES)), (
                f"S14: {holders} of {replica.maximal_isr} hold {log.high_watermark}"
            )
            state = state._replace(ghost=tuple(exposed), leaders=leaders)
            self._check_members(state)
            return state
        return state._replace(leaders=leaders)

    @staticmethod
    def _holds(state: State, node_id: int, end: int) -> bool:
        node = state.nodes[node_id - 1]
        return node.epoch != node_id or node.replica.log.ack_offset >= end

    def _check_members(self, state: State) -> None:
        """S2: whoever may be elected has everything that was committed."""
        picture = state.pictures[-1]
        partition, brokers = picture.partition, dict(picture.brokers)
        suspects = partition.suspect_ends
        for node_id in (*partition.isr, *partition.elr):
            node = state.nodes[node_id - 1]
            if brokers[node_id].epoch != node.epoch or node_id in suspects:
                continue
            shape = _shape(node)
            assert shape[: len(state.ghost)] == list(state.ghost), (
                f"S2: node {node_id} may be elected with {shape}, committed is {state.ghost}"
            )
        members = (*partition.isr, *partition.elr)
        assert len(dict.fromkeys(members)) == len(members), f"S18: {partition}"
        assert partition.leader < 0 or partition.leader in partition.isr, f"S18: {partition}"
        assert len(partition.isr) < self.bounds.minimum or not partition.elr, f"S18: {partition}"


def _steps(way: Way) -> list[str]:
    found = []
    while way is not None:
        way, how = way
        found.append(how)
    return found[::-1]


def _shape(node: Node) -> list[tuple[int, int, bytes]]:
    return [(one.base, one.epoch, one.data[-8:]) for one in node.replica.log.batches]  # type: ignore[union-attr]


def _compare(one: list[tuple[int, int, bytes]], other: list[tuple[int, int, bytes]]) -> None:
    """S4: the same offset and epoch mean the same batch, and the same before it."""
    places = {(base, epoch): index for index, (base, epoch, _) in enumerate(other)}
    for index in range(len(one) - 1, -1, -1):
        found = places.get(one[index][:2])
        if found is not None:
            assert one[: index + 1] == other[: found + 1], f"S4: {one} and {other}"
            return


def _more(counts: tuple[int, ...], index: int) -> tuple[int, ...]:
    return (*counts[:index], counts[index] + 1, *counts[index + 1 :])


def _with(nodes: tuple[Node, ...], node_id: int, node: Node) -> tuple[Node, ...]:
    return (*nodes[: node_id - 1], node, *nodes[node_id:])


def _digest(about: object) -> bytes:
    return blake2b(repr(about).encode(), digest_size=8).digest()


def _fingerprint(node: Node) -> bytes:
    """Everything that decides what this replica will do; times stand still and are left out."""
    replica, log, role = node.replica, node.replica.log, node.replica.role
    about: tuple[Any, ...] = ()
    if isinstance(role, Leader):
        in_sync = role.in_sync_set
        pending = in_sync.pending
        about = (
            tuple(in_sync.committed),
            tuple(in_sync.maximal),
            in_sync.start_of_epoch,
            in_sync.hw_frozen_offset,
            None
            if pending is None
            else (pending.token, tuple(one.broker_id for one in pending.data.new_isr_with_epochs)),
            tuple((one.broker_id, one.leo, one.broker_epoch, one.delayed_fetch is not None) for one in in_sync.remotes),
            len(role.delayed_appends.acks_all),
        )
    elif isinstance(role, Follower):
        asked = role.asked
        about = (
            role.leader_id,
            role.stopped,
            None if asked is None else (asked.fetch_offset, asked.last_fetched_epoch),
            role.leader_high_watermark,
        )
    return _digest(
        (
            replica.role.name,
            replica.leader_epoch,
            replica.partition_epoch,
            tuple(replica.brokers.items()),
            tuple((one.base, one.epoch, one.data[-8:]) for one in log.batches),  # type: ignore[union-attr]
            tuple(log.epochs.entries),
            log.high_watermark,
            log.flushed_offset,
            node.syncing is not None,
            node.asked,
            node.epoch,
            node.life,
            about,
        )
    )


class Asking(str):
    """A follower's name, with what it asked for and in which of its lives."""

    __slots__ = ("life", "request")
    life: int
    request: FetchPartition


def _copy_log(log: MemoryLog) -> MemoryLog:
    new: MemoryLog = shallow_copy(log)
    new.batches = list(log.batches)
    new.epochs = shallow_copy(log.epochs)
    new.epochs.log = new
    return new


def _copy_replica(replica: Replica) -> Replica:
    new: Replica = shallow_copy(replica)
    new.log = _copy_log(replica.log)  # type: ignore[arg-type, assignment]
    role = shallow_copy(replica.role)
    role.context = new
    if isinstance(role, Leader):
        in_sync = role.in_sync_set = shallow_copy(role.in_sync_set)
        followers = {one: shallow_copy(progress) for one, progress in in_sync.followers.items()}
        in_sync.context, in_sync.followers, in_sync.remotes = new, followers, list(followers.values())
        if in_sync.pending is not None:
            in_sync.pending = shallow_copy(in_sync.pending)
            if in_sync.pending.joins is not None:
                in_sync.pending.joins = followers[in_sync.pending.joins.broker_id]
        parked = role.follower_fetches = shallow_copy(role.follower_fetches)
        parked.role, parked.in_sync_set = role, in_sync
        appends = role.delayed_appends = shallow_copy(role.delayed_appends)
        appends.context, appends.acks_all, appends.acks_one = new, list(appends.acks_all), list(appends.acks_one)
        deletes = role.delayed_deletes = shallow_copy(role.delayed_deletes)
        deletes.context, deletes.deletes = new, list(deletes.deletes)
    if isinstance(role, Leader | Follower):
        role.consumer_fetches = shallow_copy(role.consumer_fetches)
        role.consumer_fetches._role = role
    new._take_role(role)
    return new
