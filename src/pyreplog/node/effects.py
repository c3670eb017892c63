"""Carry out the effects that the replicas return.

The order of effects is the order of durability (:mod:`pyreplog.replica.effects`): a replica emits an
answer only when its statement is true and its mark is written. So this is a plain loop without
rules of its own. Messages to one peer are collected until the end of the node's turn. Syncs are
handed to the disk, and their completions carry a token.

An exception here concerns one client if a replica was only asked or an answer could not be built;
then that client gets another answer. Any other exception sets :attr:`Effects.half_way`: the state
of the node's memory is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from pyreplog.errors import ClosedError, InternalError, StorageError, is_interruption
from pyreplog.log import UnloadedLog
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.node.events import NodeEvents
from pyreplog.node.hosting import ClusterView, HostedPartition, Timers
from pyreplog.node.traffic import NodeTraffic, size_of
from pyreplog.ports import RESOURCES_EXHAUSTED_ERRNOS, Address, Disk, SyncDone, Transport
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
    withdrawn,
)

__all__ = ["FATAL", "Effects", "ResponseAssembler", "ReplyTarget"]

FATAL: Final = (ClosedError, InternalError, StorageError)
"""Errors that always end a node: a disk error that no replica handled, or a broken invariant."""
BEGIN_AGAIN_NS: Final = 10_000_000
"""Time after which a replica repeats a sync for which no file descriptor was available."""
NO_GENERATION: Final = -1
"""A generation that no log has: nothing was synced."""


class ResponseAssembler(Protocol):
    """Collects the parts of one answer."""

    def add(self, hosted: HostedPartition, result: Result) -> None:
        """Add one part."""
        ...

    def abandon(self) -> None:
        """Note that the answer is no longer wanted; :class:`Effects` has forgotten it."""
        ...


class ReplyTarget(Protocol):
    """A partition's entry in a follower's fetch session."""

    def answer(self, result: PartitionData) -> None:
        """Take the answer of the leader's replica."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Effects:
    """The executor of one node. ``now_ns`` is the time of the node's current turn."""

    def __init__(
        self,
        address: Address,
        transport: Transport,
        disk: Disk,
        timers: Timers,
        events: NodeEvents,
        standing: ClusterView,
        monotonic_ns: Callable[[], int],
        first_correlation_id: int,
    ) -> None:
        self.address = address
        self.now_ns = 0
        self.timers = timers
        self.traffic = NodeTraffic()
        self.assemblers: dict[tuple[Address, int], ResponseAssembler] = {}
        """Requests with several parts, by (source, correlation id)."""
        self.reply_targets: dict[int, ReplyTarget] = {}
        """Entries of fetch sessions by (negative) correlation id."""
        self.half_way = False
        """Whether an exception interrupted a change of a replica or the execution of its
        effects."""
        self._events = events
        self._standing = standing
        self._monotonic_ns = monotonic_ns
        self._transport = transport
        self._send = transport.send
        self._disk = disk
        self.syncs: dict[int, tuple[HostedPartition, Sync, int]] = {}
        """The running syncs by the disk's token, each with the time of its beginning."""
        # Random, so that an answer to an earlier process at this address matches no new request.
        self._correlation_id = first_correlation_id

    def run(self, hosted: HostedPartition, event: Event) -> None:
        """Step ``hosted`` with ``event`` and carry out its effects."""
        try:
            effects = hosted.replica.step(event, self.now_ns)
        except Exception:
            self.half_way = True
            raise
        self._carry_out(hosted, effects)

    def _begin(self, hosted: HostedPartition, sync: Sync) -> None:
        """Begin a sync. If other syncs use all descriptors, the replica asks again after a
        while."""
        try:
            token = self._disk.submit_sync(sync.files, self._transport.wake)
        except StorageError as error:
            if error.errno not in RESOURCES_EXHAUSTED_ERRNOS:
                raise
            self.timers.call_at(self.now_ns + BEGIN_AGAIN_NS, lambda: self.run(hosted, Synced(0, NO_GENERATION)))
        else:
            self.syncs[token] = (hosted, sync, self.now_ns)

    def ask(self, hosted: HostedPartition, event: ConsumerFetch | ListOffsets | OffsetForLeaderEpoch) -> None:
        """Step ``hosted`` with an event that does not change the replica.

        An exception concerns only the client, unless the log had to be opened for the request.
        """
        was_unloaded = isinstance(hosted.log, UnloadedLog)
        try:
            effects = hosted.replica.step(event, self.now_ns)
        except Exception:
            if was_unloaded:
                self.half_way = True
            raise
        self._carry_out(hosted, effects)

    def _carry_out(self, hosted: HostedPartition, effects: list[Effect]) -> None:
        try:
            for effect in effects:
                kind = type(effect)
                if kind is Reply:
                    if effect.correlation_id < 0:  # type: ignore[union-attr]
                        target = self.reply_targets.get(effect.correlation_id)  # type: ignore[union-attr]
                        if target is not None:
                            target.answer(effect.result)  # type: ignore[union-attr, arg-type]
                    else:
                        self._reply(hosted, effect)  # type: ignore[arg-type]
                elif kind is Fetch:
                    self._events.fetch_wanted(hosted, effect)  # type: ignore[arg-type]
                elif kind is Wake:
                    self._wake(hosted, effect.at_ns)  # type: ignore[union-attr]
                elif kind is Sync:
                    self._begin(hosted, effect)  # type: ignore[arg-type]
                elif isinstance(effect, AlterPartition):
                    self._events.isr_proposed(hosted, effect)
                elif isinstance(effect, StopFetching):
                    self._events.fetch_unwanted(hosted)
                elif isinstance(effect, Offline):
                    self._events.replica_offline(hosted, effect.error)
                elif isinstance(effect, BrokenRule):
                    self._events.rule_broken(effect)
                elif isinstance(effect, Lost):
                    self._events.records_lost(hosted, effect)
                elif isinstance(effect, Stalled):
                    self._events.follower_stalled(hosted, effect)
                elif isinstance(effect, Damaged):
                    self._events.damage_read(hosted, effect)
                elif isinstance(effect, Unexpected):
                    self._events.batch_failed(hosted, effect)
        except Exception:
            self.half_way = True
            raise

    def _reply(self, hosted: HostedPartition, effect: Reply) -> None:
        try:
            self._answer(hosted, effect)
        except Exception as error:
            if self.half_way or isinstance(error, FATAL) or is_interruption(error):
                raise
            self._events.answer_failed(hosted, effect, error)

    def _answer(self, hosted: HostedPartition, effect: Reply) -> None:
        result = effect.result
        correlation_id = effect.correlation_id
        if self.assemblers:
            assembler = self.assemblers.get((effect.source, correlation_id))
            if assembler is not None:
                assembler.add(hosted, result)
                return
        if type(result) is PartitionProduceResponse:
            self.answer(
                effect.source, correlation_id, ProduceResponse([TopicProduceResponse(hosted.topic_id, [result])])
            )
        elif type(result) is PartitionData:
            self.traffic.bytes_to_consumers += size_of(result)
            self.answer(
                effect.source, correlation_id, FetchResponse([FetchableTopicResponse(hosted.topic_id, [result])])
            )

    def _wake(self, hosted: HostedPartition, at_ns: int) -> None:
        if hosted.wake_ns == 0 or at_ns < hosted.wake_ns:
            hosted.wake_ns = at_ns
            self.timers.call_at(at_ns, partial(self.tick, hosted))

    def tick(self, hosted: HostedPartition) -> None:
        """Run the planned wake of ``hosted``, if it is due."""
        if hosted.wake_ns and hosted.wake_ns <= self.now_ns:
            hosted.wake_ns = 0
            self.run(hosted, Tick())

    def synced(self, done: SyncDone) -> None:
        """Handle the end of a sync of this node."""
        found = self.syncs.pop(done.token, None)
        if found is None:
            return
        hosted, effect, begun_ns = found
        self.traffic.synced(self.now_ns - begun_ns)
        if done.error is None:
            self.run(hosted, Synced(effect.upto, effect.generation))
        else:
            self.run(hosted, SyncFailed(done.error))

    def forget(self, source: Address, correlation_id: int) -> None:
        """Stop collecting parts for this request."""
        assembler = self.assemblers.pop((source, correlation_id), None)
        if assembler is not None:
            assembler.abandon()

    def answer(self, peer: Address, correlation_id: int, body: ResponseBody) -> None:
        """Answer a client, unless the lease is over: then withdraw the answer.

        The time is read again, because the turn may have been interrupted for longer than the
        lease since it began.
        """
        if self._monotonic_ns() > self._standing.leased_until_ns:
            body = withdrawn(
                body, f"{self.address} is fenced or does not reach the controller, so another node may lead; ask again"
            )
        self._send(peer, Response(self.address, correlation_id, body))

    def respond(self, peer: Address, correlation_id: int, body: ResponseBody) -> None:
        """Answer a node, or refuse a client's request. A node without a lease may do both."""
        self._send(peer, Response(self.address, correlation_id, body))

    def request(self, peer: Address, body: RequestBody) -> int:
        """Send a request. Return its correlation id, or -1 if the transport did not accept it."""
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return correlation_id if self._send(peer, Request(self.address, correlation_id, body)) else -1
