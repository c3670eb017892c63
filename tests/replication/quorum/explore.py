"""Explicit-state exploration of the quorum: every order in which a few things can happen, over real machines.

A state is some voters with their storages (the in-memory twin), and the messages on their way. Each thing that can
happen next leads to another state; equal states are looked at once. Within its :class:`Bounds` an exploration that
ends has seen all there is; one that is stopped has gone down from states drawn at random.

Each node has a clock of its own, which only moves when one of its timers fires, so any order of timers is possible.
Messages of one link keep their order, except those that the bounds let overtake. A step of a machine is computed
once: machines and messages that are equal lead to equal machines and messages.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from random import Random
from typing import Any, Final, NamedTuple

from pyreplog.errors import PyreplogError
from pyreplog.quorum import (
    Identity,
    LogBatch,
    PeerGone,
    QuorumConfig,
    QuorumEffect,
    QuorumFailed,
    RaftNode,
    ReplicaKey,
    Send,
    TimerDue,
    Voter,
    VoterSet,
)
from pyreplog.testing import SimClock
from pyreplog.wire import Request, Response, VoteRequest, VoteResponse
from tests.oracle.memory_quorum import MemoryQuorumStorage, packed
from tests.replication.quorum.structure import state_copy, state_print
from tests.replication.quorum.support import (
    CLUSTER_ID,
    add_request,
    address_of_node,
    bootstrap_control,
    directory_of,
    remove_request,
)

BEGIN_NS: Final = 1_000_000_000
FRONTIER_MAX: Final = 40_000
DRAWN: Final = 0.03
APPEND, TIMER, DROP, DUPLICATE, OVERTAKE, CRASH, CHANGE, SNAPSHOT = range(8)
OPERATOR: Final = "operator"


class ViolationError(AssertionError):
    """An invariant does not hold; the text has the way there."""


class Bounds(NamedTuple):
    """How much of what may happen. ``epochs``: the highest epoch; ``told``: peers learn of a crash at once.

    ``fresh``: begin with voters that never met, instead of with node 1 as the leader of epoch 1.
    """

    voters: int = 3
    observers: int = 0
    epochs: int = 3
    appends: int = 2
    timers: int = 4
    drops: int = 1
    duplicates: int = 0
    overtakes: int = 0
    crashes: int = 1
    changes: int = 0
    snapshots: int = 0
    told: bool = True
    fresh: bool = False


class FixedRandom(Random):
    """Always the middle: the clocks of the nodes are free against each other, so nothing is lost."""

    def random(self) -> float:
        """Return a half."""
        return 0.5

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return the middle of the range."""
        first, end = (0, start) if stop is None else (start, stop)
        return (first + end) // 2

    def randint(self, a: int, b: int) -> int:
        """Return the middle of the range."""
        return (a + b) // 2

    def randbytes(self, n: int) -> bytes:
        """Return the same bytes."""
        return b"r" * n


class Parcel(NamedTuple):
    """A message on its way, or the news that ``source`` is gone."""

    source: int
    target: int
    life: int
    event: Any
    print: bytes
    correlation_id: int


class Peer:
    """One node. Never changed after it became part of a state: a step makes a new one."""

    __slots__ = ("life", "log", "now_ns", "print", "raft", "shape")

    def __init__(self, raft: RaftNode, life: int, now_ns: int) -> None:
        self.raft = raft
        self.life = life
        self.now_ns = now_ns
        self.log: tuple[LogBatch, ...] = ()
        self.shape: tuple[tuple[int, int, bytes], ...] = ()
        self.print = b""

    def seal(self) -> None:
        """Compute what the checks and the fingerprint of the state need."""
        storage: Any = self.raft.storage
        self.log = storage.log
        self.shape = tuple((batch.base_offset, batch.epoch, packed(batch)) for batch in self.log)
        self.print = _digest((self.life, state_print(self.raft, self.now_ns)))


class State(NamedTuple):
    """See the module. ``ghost``: the batches that were below a high watermark, each with the epoch of the leader that
    committed it; ``leaders`` and ``votes``: by epoch."""

    peers: tuple[Peer, ...]
    flight: tuple[Parcel, ...]
    ghost: tuple[tuple[int, int, bytes, int], ...]
    leaders: tuple[tuple[int, int, int], ...]
    votes: tuple[tuple[int, int, int], ...]
    counts: tuple[int, ...]

    def digest(self) -> bytes:
        """Return the state's fingerprint."""
        found = blake2b(repr((self.ghost, self.leaders, self.votes, self.counts)).encode(), digest_size=12)
        links: dict[tuple[int, int], list[bytes]] = {}
        for parcel in self.flight:
            links.setdefault((parcel.source, parcel.target), []).append(parcel.print)
        for link in sorted(links):
            found.update(repr(link).encode())
            for text in links[link]:
                found.update(text)
        for peer in self.peers:
            found.update(peer.print)
        return found.digest()


Way = Any
"""How a state was reached: (the way to the one before, what happened then), None for the first."""


class Explorer:
    """``run(limit)`` looks at up to so many states; ``seen``, ``steps`` and ``complete`` say what it came to."""

    def __init__(
        self,
        bounds: Bounds | None = None,
        *,
        node_class: type[RaftNode] = RaftNode,
        seed: int = 0,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.node_class = node_class
        self.config = QuorumConfig()
        self.random = Random(seed)
        self.seen: dict[bytes, None] = {}
        self.steps = 0
        self.computed = 0
        self.complete = False
        count = self.bounds.voters
        self.ids = tuple(range(1, count + self.bounds.observers + 1))
        self.by_address = {address_of_node(node_id): node_id for node_id in self.ids}
        self.voters = VoterSet(
            Voter.at(ReplicaKey(one, directory_of(one)), address_of_node(one)) for one in self.ids[:count]
        )
        self._memo: dict[tuple[bytes, bytes, int], tuple[Peer, tuple[Parcel, ...], tuple[int, int, int] | None]] = {}

    # ----------------------------------------------------------------------------------- exploring

    def run(self, limit: int, *, until: float = math.inf) -> Explorer:
        """Go on until there is nothing new, or ``limit`` states were seen, or the monotonic clock says ``until``
        (s). Raises :class:`ViolationError`."""
        first = self.begin()
        self.seen[first.digest()] = None
        frontier: list[tuple[State, Way]] = [(first, None)]
        while frontier and len(self.seen) < limit and time.monotonic() < until:
            if len(frontier) < FRONTIER_MAX and self.random.random() < DRAWN:
                index = self.random.randrange(len(frontier))
                frontier[index], frontier[-1] = frontier[-1], frontier[index]
            state, way = frontier.pop()
            how = ""
            try:
                for how, found in self.next(state):
                    digest = found.digest()
                    if digest not in self.seen:
                        self.seen[digest] = None
                        frontier.append((found, (way, how)))
            except (AssertionError, PyreplogError) as error:
                raise ViolationError(f"{error!r} after {how}\n  " + "\n  ".join(_steps(way))) from error
        self.complete = not frontier
        return self

    def begin(self) -> State:
        """Return the first state: fresh voters, or node 1 as the leader of the first epoch with nothing on its way."""
        peers = []
        control = bootstrap_control(self.voters)
        for node_id in self.ids:
            storage = MemoryQuorumStorage(control if node_id <= self.bounds.voters else ())
            peers.append(self._open(node_id, storage, 1, BEGIN_NS))
        state = State(tuple(peers), (), (), (), (), (0,) * 8)
        if self.bounds.fresh:
            return state
        for _ in range(100):
            if state.flight:
                state = self._deliver(state, 0)
            elif not state.peers[0].raft.is_leader:
                state = self._fire(state, 1)
            elif all(peer.raft.high_watermark == state.peers[0].raft.log_end_offset for peer in state.peers):
                return state._replace(counts=(0,) * 8)
            else:
                idle = next(peer for peer in state.peers if peer.raft.leader_id != 1 or peer.raft.high_watermark < 0)
                state = self._fire(state, idle.raft.identity.node_id)
        raise AssertionError("node 1 did not become the leader")

    def next(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield what can happen next."""
        bounds, counts = self.bounds, state.counts
        for peer in state.peers:
            node_id, raft = peer.raft.identity.node_id, peer.raft
            if counts[APPEND] < bounds.appends and raft.is_leader:
                yield f"append to {node_id}", self._append(state, node_id)
            if counts[TIMER] < bounds.timers and raft.next_wake_ns is not None:
                yield from self._bounded(f"timer of {node_id}", self._fire(_more(state, TIMER), node_id))
            if counts[CRASH] < bounds.crashes:
                yield f"crash of {node_id}", self._crash(state, node_id)
            if counts[CHANGE] < bounds.changes and raft.is_leader:
                yield from self._changes(state, node_id)
            if counts[SNAPSHOT] < bounds.snapshots and raft.high_watermark > max(raft.storage.start_offset, 0):
                yield f"snapshot of {node_id}", self._snapshot(state, node_id)
        links: dict[tuple[int, int], None] = {}
        for index, parcel in enumerate(state.flight):
            link = parcel.source, parcel.target
            first = link not in links
            links[link] = None
            about = f"{_name(parcel)} {parcel.source} -> {parcel.target}"
            if first:
                yield from self._bounded(f"{about} arrives", self._deliver(state, index))
            elif counts[OVERTAKE] < bounds.overtakes:
                yield from self._bounded(f"{about} overtakes", self._deliver(_more(state, OVERTAKE), index))
            if counts[DROP] < bounds.drops and not isinstance(parcel.event, PeerGone):
                yield f"{about} is lost", _more(_without(state, index), DROP)
            if counts[DUPLICATE] < bounds.duplicates and first and not isinstance(parcel.event, PeerGone):
                yield from self._bounded(
                    f"{about} arrives and stays", self._deliver(_more(state, DUPLICATE), index, keep=True)
                )

    def _bounded(self, how: str, state: State) -> Iterator[tuple[str, State]]:
        if all(peer.raft.epoch <= self.bounds.epochs for peer in state.peers):
            yield how, state

    # -------------------------------------------------------------------------------- what happens

    def _open(self, node_id: int, storage: MemoryQuorumStorage, life: int, now_ns: int) -> Peer:
        raft = self.node_class(
            storage,
            Identity(node_id, directory_of(node_id), CLUSTER_ID),
            self.config._replace(bootstrap=tuple(address_of_node(one) for one in self.ids if one != node_id)),
            SimClock(),
            FixedRandom(),
            endpoint=address_of_node(node_id),
            now_ns=now_ns,
        )
        peer = Peer(raft, life, now_ns)
        peer.seal()
        return peer

    def _append(self, state: State, node_id: int) -> State:
        number = state.counts[APPEND]
        return self._step(_more(state, APPEND), node_id, ("append", b"r%d" % number), b"append%d" % number)

    def _fire(self, state: State, node_id: int) -> State:
        return self._step(state, node_id, TimerDue(), b"timer")

    def _snapshot(self, state: State, node_id: int) -> State:
        return self._step(_more(state, SNAPSHOT), node_id, ("snapshot", b"s"), b"snapshot")

    def _changes(self, state: State, leader_id: int) -> Iterator[tuple[str, State]]:
        voters = state.peers[leader_id - 1].raft.voters
        for node_id in self.ids:
            key = ReplicaKey(node_id, directory_of(node_id))
            body = remove_request(key) if key in voters else add_request(key)
            request = Request(OPERATOR, 1000 + state.counts[CHANGE], body)
            about = f"{leader_id} is asked to {'remove' if key in voters else 'add'} {node_id}"
            yield about, self._step(_more(state, CHANGE), leader_id, request, _digest(repr(request)))

    def _deliver(self, state: State, index: int, *, keep: bool = False) -> State:
        parcel = state.flight[index]
        rest = state if keep else _without(state, index)
        if state.peers[parcel.target - 1].life != parcel.life:
            return rest
        return self._step(rest, parcel.target, parcel.event, parcel.print)

    def _crash(self, state: State, node_id: int) -> State:
        """The process ends and begins again at once; messages to it are lost."""
        old = state.peers[node_id - 1]
        storage: Any = old.raft.storage
        peer = self._open(node_id, storage.copy(), old.life + 1, old.now_ns)
        flight = [parcel for parcel in state.flight if parcel.target != node_id]
        if self.bounds.told:
            for other in state.peers:
                if other is not old:
                    event = PeerGone(address_of_node(node_id))
                    flight.append(
                        Parcel(
                            node_id,
                            other.raft.identity.node_id,
                            other.life,
                            event,
                            b"gone%d%d" % (node_id, old.life),
                            -1,
                        )
                    )
        state = _more(state, CRASH)._replace(peers=_with(state.peers, peer), flight=tuple(flight))
        return self._check(state, None, peer)

    # --------------------------------------------------------------------------------- one machine

    def _step(self, state: State, node_id: int, event: Any, text: bytes) -> State:
        self.steps += 1
        old = state.peers[node_id - 1]
        free = 1 + max(
            (
                parcel.correlation_id
                for parcel in state.flight
                if (parcel.source == node_id and isinstance(parcel.event, Request))
                or (parcel.target == node_id and isinstance(parcel.event, Response))
            ),
            default=0,
        )
        free = max(free, 1 + max(old.raft.requests, default=0))
        key = old.print, text, free
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = self._compute(old, event, free)
        peer, parcels, vote = known
        if parcels:
            lives = {one.raft.identity.node_id: one.life for one in state.peers}
            lives[node_id] = peer.life
            state = state._replace(
                flight=(*state.flight, *(parcel._replace(life=lives[parcel.target]) for parcel in parcels))
            )
        if vote is not None:
            state = self._vote(state, vote)
        return self._check(state._replace(peers=_with(state.peers, peer)), old, peer)

    def _compute(
        self, old: Peer, event: Any, free: int
    ) -> tuple[Peer, tuple[Parcel, ...], tuple[int, int, int] | None]:
        self.computed += 1
        raft: RaftNode = state_copy(old.raft)
        # Ids of requests depend on the state, not on its history.
        raft.next_id = free - 1
        now_ns = old.now_ns
        effects: Sequence[QuorumEffect]
        if isinstance(event, TimerDue):
            assert raft.next_wake_ns is not None
            now_ns = max(now_ns, raft.next_wake_ns)
            effects = raft.step(event, now_ns)
        elif isinstance(event, tuple) and event[0] == "append":
            effects = raft.append([event[1]], now_ns).effects
        elif isinstance(event, tuple) and event[0] == "snapshot":
            raft.write_snapshot(raft.high_watermark, [b"s"])
            effects = ()
        else:
            effects = raft.step(event, now_ns)
        peer = Peer(raft, old.life, now_ns)
        peer.seal()
        node_id = raft.identity.node_id
        parcels = []
        vote = None
        for effect in effects:
            assert not isinstance(effect, QuorumFailed), f"node {node_id} failed: {effect}"
            if isinstance(effect, Send) and effect.address in self.by_address:
                message = effect.message
                target = self.by_address[effect.address]
                parcels.append(
                    Parcel(node_id, target, 0, message, _digest(state_print(message, 0)), message.correlation_id)
                )
                granted = _granted(event, message)
                if granted is not None:
                    vote = node_id, *granted
        if raft.role_name == "candidate":
            vote = node_id, raft.epoch, node_id
        return peer, tuple(parcels), vote

    @staticmethod
    def _vote(state: State, vote: tuple[int, int, int]) -> State:
        for voter, epoch, candidate in state.votes:
            if (voter, epoch) == vote[:2]:
                assert candidate == vote[2], f"durable vote: {voter} votes for {candidate} and {vote[2]} in {epoch}"
                return state
        return state._replace(votes=tuple(sorted((*state.votes, vote))))

    # ---------------------------------------------------------------------------------- the checks

    def _check(self, state: State, old: Peer | None, peer: Peer) -> State:
        raft = peer.raft
        node_id = raft.identity.node_id
        if old is None or old.log is not peer.log:
            assert all(one.last_offset + 1 == other.base_offset for one, other in pairwise(peer.log))
            for other in state.peers:
                if other is not peer:
                    _compare(peer.shape, other.shape)
        watermark = raft.high_watermark
        assert watermark <= raft.log_end_offset, f"high watermark {watermark} of {node_id}"
        before = -1 if old is None else old.raft.high_watermark
        assert watermark >= before or (watermark == -1 and raft.is_leader), (
            f"high watermark of {node_id}: {watermark} after {before}"
        )
        if raft.is_leader:
            state = self._check_leader(state, peer)
        if watermark > before:
            # A leader that removed itself resigns in the step that commits the change.
            led = old if old is not None and old.raft.is_leader else peer
            state = self._check_exposed(state, peer, watermark, led.raft.epoch if led.raft.is_leader else None)
        return state

    @staticmethod
    def _check_leader(state: State, peer: Peer) -> State:
        raft = peer.raft
        node_id, epoch = raft.identity.node_id, raft.epoch
        for known, led, life in state.leaders:
            if led == epoch:
                assert (known, life) == (node_id, peer.life), f"election safety: {known} and {node_id} lead in {epoch}"
                return state
        # A leader that won its votes late may lead an epoch that is over.
        ghost = [one[:3] for one in state.ghost if one[3] < epoch]
        mine = set(peer.shape)
        missing = [one for one in ghost if one[0] >= raft.storage.start_offset and one not in mine]
        assert not missing, f"leader completeness: {node_id} leads in {epoch} without {missing}"
        end = max((one[0] for one in ghost), default=-1)
        assert raft.log_end_offset > end, f"leader completeness: {node_id} ends at {raft.log_end_offset}"
        return state._replace(leaders=(*state.leaders, (node_id, epoch, peer.life)))

    @staticmethod
    def _check_exposed(state: State, peer: Peer, watermark: int, epoch: int | None) -> State:
        raft = peer.raft
        ghost = {one[0]: one[:3] for one in state.ghost}
        fresh = [one for one in peer.shape if one[0] < watermark]
        new = []
        for one in fresh:
            known = ghost.get(one[0])
            assert known in (None, one), (
                f"state machine safety: {raft.identity.node_id} has {one}, committed is {known}"
            )
            if known is None:
                new.append(one)
        if not new:
            return state
        assert epoch is not None, f"high watermark: {raft.identity.node_id} follows, and is the first to expose {new}"
        assert new[-1][1] == epoch, f"commit of an older epoch: {new[-1]} in epoch {epoch}"
        voters = [voter.node_id for voter in raft.voters]
        holders = [one for one in voters if new[-1] in state.peers[one - 1].shape]
        assert 2 * len(holders) > len(voters), f"commit without a majority: {holders} of {voters}"
        return state._replace(ghost=tuple(sorted((*state.ghost, *((*one, epoch) for one in new)))))


def _granted(event: Any, message: Request | Response) -> tuple[int, int] | None:
    """Return (epoch, candidate) if ``message`` answers the vote request ``event`` with a granted vote."""
    if not (isinstance(event, Request) and isinstance(event.body, VoteRequest) and isinstance(message, Response)):
        return None
    asked = event.body.topics[0].partitions[0]
    body = message.body
    if asked.pre_vote or not isinstance(body, VoteResponse) or message.correlation_id != event.correlation_id:
        return None
    if not body.topics or not body.topics[0].partitions[0].vote_granted:
        return None
    return asked.replica_epoch, asked.replica_id


def _name(parcel: Parcel) -> str:
    event = parcel.event
    return type(event.body).__name__ if isinstance(event, Request | Response) else type(event).__name__


def _steps(way: Way) -> list[str]:
    found = []
    while way is not None:
        way, how = way
        found.append(how)
    return found[::-1]


def _compare(one: Sequence[tuple[int, int, bytes]], other: Sequence[tuple[int, int, bytes]]) -> None:
    """Log matching: the same offset and epoch mean the same batch, and the same batches before it."""
    places = {(base, epoch): index for index, (base, epoch, _) in enumerate(other)}
    for index in range(len(one) - 1, -1, -1):
        found = places.get(one[index][:2])
        if found is not None:
            length = min(index, found) + 1
            assert one[index - length + 1 : index + 1] == other[found - length + 1 : found + 1], (
                f"log matching: {one} and {other}"
            )
            return


def _more(state: State, index: int) -> State:
    counts = state.counts
    return state._replace(counts=(*counts[:index], counts[index] + 1, *counts[index + 1 :]))


def _without(state: State, index: int) -> State:
    return state._replace(flight=state.flight[:index] + state.flight[index + 1 :])


def _with(peers: tuple[Peer, ...], peer: Peer) -> tuple[Peer, ...]:
    at = peer.raft.identity.node_id - 1
    return (*peers[:at], peer, *peers[at + 1 :])


def _digest(about: object) -> bytes:
    return blake2b(repr(about).encode(), digest_size=10).digest()
