"""Carrying out what the replicas ask for.

The order of effects is the order of durability (:mod:`pyreplog.replica.events`): a replica emits an answer only when what it says is true
and its mark is written, so this is a plain loop with no rule of its own. Messages to one peer are gathered until the end of the
node's turn; syncs are handed to the disk and come back by their token.

What raises in here is either one client's, who is answered in another way then (an answer that cannot be given, a replica that was only
asked), or :attr:`Effects.half_way`: nobody knows what the node's memory is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from pyreplog.errors import ClosedError, InternalError, StorageError
from pyreplog.interruptions import is_interruption
from pyreplog.log import Sleeping
from pyreplog.node.hosting import Hosted, Timers
from pyreplog.ports import OUT_OF_MEANS, Address, Disk, SyncDone, Transport
from pyreplog.replica import (
    AlterPartition,
    BrokenRule,
    ConsumerFetch,
    Damaged,
    Effect,
    Event,
    Fetch,
    ListOffsets,
    Lost,
    Offline,
    OffsetForLeaderEpoch,
    Reply,
    Result,
    Stalled,
    StopFetching,
    Sync,
    Synced,
    SyncFailed,
    Tick,
    Unexpected,
    Wake,
)
from pyreplog.wire import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    PartitionProduceResponse,
    ProduceResponse,
    Request,
    RequestBody,
    Response,
    ResponseBody,
    TopicProduceResponse,
)

__all__ = ["FATAL", "Effects", "Gather", "Seat"]

FATAL: Final = (ClosedError, InternalError, StorageError)
"""What ends a node wherever it is met: a disk's refusal that no replica took upon itself, an invariant that does not hold."""
BEGIN_AGAIN_NS: Final = 10_000_000
"""After so long a replica asks again for a sync for which there was no descriptor."""
NO_GENERATION: Final = -1
"""Of no log: nothing was synced."""


class Gather(Protocol):
    """Puts together the parts of one answer."""

    def add(self, hosted: Hosted, result: Result) -> None:
        """One part."""
        ...

    def abandon(self) -> None:
        """Nobody waits for the answer any more; it was forgotten here."""
        ...


class Seat(Protocol):
    """A partition's place in a follower's fetch session."""

    def answer(self, result: PartitionData) -> None:
        """The leader's replica has something to say."""
        ...


class Effects:
    """The executor of one node. ``now_ns`` is the moment of the node's present turn."""

    def __init__(self, address: Address, transport: Transport, disk: Disk, timers: Timers, first_correlation_id: int) -> None:
        self.address = address
        self.now_ns = 0
        self.timers = timers
        self.gathers: dict[tuple[Address, int], Gather] = {}
        """Requests of more than one part, by (source, correlation id)."""
        self.seats: dict[int, Seat] = {}
        """By (negative) correlation id."""
        self.on_fetch: Callable[[Hosted, Fetch], None]
        self.on_stop_fetching: Callable[[Hosted], None]
        self.on_alter: Callable[[Hosted, AlterPartition], None]
        self.on_offline: Callable[[Hosted, Exception], None]
        self.on_broken_rule: Callable[[Hosted, BrokenRule], None]
        self.on_lost: Callable[[Hosted, Lost], None]
        self.on_stalled: Callable[[Hosted, Stalled], None]
        self.on_damage: Callable[[Hosted, Damaged], None]
        self.on_unexpected: Callable[[Hosted, Unexpected], None]
        self.on_unanswered: Callable[[Hosted, Reply, Exception], None]
        self.half_way = False
        """Whether something was raised while a replica changed, or while what it asked for was carried out."""
        self._transport = transport
        self._send = transport.send
        self._disk = disk
        self.syncs: dict[int, tuple[Hosted, Sync]] = {}
        """Those that are under way, by the disk's token."""
        # By chance, so that an answer to a former life of this address is not taken for one to this.
        self._correlation_id = first_correlation_id

    def run(self, hosted: Hosted, event: Event) -> None:
        """Step ``hosted`` and carry out what comes of it."""
        try:
            effects = hosted.replica.step(event, self.now_ns)
        except Exception:
            self.half_way = True
            raise
        self._carry_out(hosted, effects)

    def _begin(self, hosted: Hosted, sync: Sync) -> None:
        """Begin a sync. Where all descriptors are taken, by syncs of other partitions, the replica is to ask again in a while."""
        try:
            token = self._disk.submit_sync(sync.files, self._transport.wake)
        except StorageError as error:
            if error.errno not in OUT_OF_MEANS:
                raise
            self.timers.call_at(self.now_ns + BEGIN_AGAIN_NS, lambda: self.run(hosted, Synced(0, NO_GENERATION)))
        else:
            self.syncs[token] = (hosted, sync)

    def ask(self, hosted: Hosted, event: ConsumerFetch | ListOffsets | OffsetForLeaderEpoch) -> None:
        """The same with what changes nothing of a replica: what it raises concerns nobody but who asks, unless a log had to be opened
        for it."""
        slept = isinstance(hosted.log, Sleeping)
        try:
            effects = hosted.replica.step(event, self.now_ns)
        except Exception:
            if slept:
                self.half_way = True
            raise
        self._carry_out(hosted, effects)

    def _carry_out(self, hosted: Hosted, effects: list[Effect]) -> None:
        try:
            for effect in effects:
                kind = type(effect)
                if kind is Reply:
                    if effect.correlation_id < 0:  # type: ignore[union-attr]
                        seat = self.seats.get(effect.correlation_id)  # type: ignore[union-attr]
                        if seat is not None:
                            seat.answer(effect.result)  # type: ignore[union-attr, arg-type]
                    else:
                        self._reply(hosted, effect)  # type: ignore[arg-type]
                elif kind is Fetch:
                    self.on_fetch(hosted, effect)  # type: ignore[arg-type]
                elif kind is Wake:
                    self._wake(hosted, effect.at_ns)  # type: ignore[union-attr]
                elif kind is Sync:
                    self._begin(hosted, effect)  # type: ignore[arg-type]
                elif isinstance(effect, AlterPartition):
                    self.on_alter(hosted, effect)
                elif isinstance(effect, StopFetching):
                    self.on_stop_fetching(hosted)
                elif isinstance(effect, Offline):
                    self.on_offline(hosted, effect.error)
                elif isinstance(effect, BrokenRule):
                    self.on_broken_rule(hosted, effect)
                elif isinstance(effect, Lost):
                    self.on_lost(hosted, effect)
                elif isinstance(effect, Stalled):
                    self.on_stalled(hosted, effect)
                elif isinstance(effect, Damaged):
                    self.on_damage(hosted, effect)
                elif isinstance(effect, Unexpected):
                    self.on_unexpected(hosted, effect)
        except Exception:
            self.half_way = True
            raise

    def _reply(self, hosted: Hosted, effect: Reply) -> None:
        try:
            self._answer(hosted, effect)
        except Exception as error:
            if self.half_way or isinstance(error, FATAL) or is_interruption(error):
                raise
            self.on_unanswered(hosted, effect, error)

    def _answer(self, hosted: Hosted, effect: Reply) -> None:
        result = effect.result
        correlation_id = effect.correlation_id
        if self.gathers:
            gather = self.gathers.get((effect.source, correlation_id))
            if gather is not None:
                gather.add(hosted, result)
                return
        if type(result) is PartitionProduceResponse:
            self.respond(effect.source, correlation_id, ProduceResponse([TopicProduceResponse(hosted.topic_id, [result])]))
        elif type(result) is PartitionData:
            self.respond(effect.source, correlation_id, FetchResponse([FetchableTopicResponse(hosted.topic_id, [result])]))

    def _wake(self, hosted: Hosted, at_ns: int) -> None:
        if hosted.wake_ns == 0 or at_ns < hosted.wake_ns:
            hosted.wake_ns = at_ns
            self.timers.call_at(at_ns, partial(self.tick, hosted))

    def tick(self, hosted: Hosted) -> None:
        """A planned wake of ``hosted`` has come."""
        if hosted.wake_ns and hosted.wake_ns <= self.now_ns:
            hosted.wake_ns = 0
            self.run(hosted, Tick())

    def synced(self, done: SyncDone) -> None:
        """A sync of this node ended."""
        found = self.syncs.pop(done.token, None)
        if found is None:
            return
        hosted, effect = found
        if done.error is None:
            self.run(hosted, Synced(effect.upto, effect.generation))
        else:
            self.run(hosted, SyncFailed(done.error))

    def forget(self, source: Address, correlation_id: int) -> None:
        """Gather nothing more for this request."""
        gather = self.gathers.pop((source, correlation_id), None)
        if gather is not None:
            gather.abandon()

    def respond(self, peer: Address, correlation_id: int, body: ResponseBody) -> None:
        """Answer a request."""
        self._send(peer, Response(self.address, correlation_id, body))

    def request(self, peer: Address, body: RequestBody) -> int:
        """Send a request; its correlation id, or -1 where the transport did not take it."""
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return correlation_id if self._send(peer, Request(self.address, correlation_id, body)) else -1
