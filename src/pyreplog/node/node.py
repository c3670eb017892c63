"""One member of a cluster: it hosts replicas on one log root, and exchanges messages with clients,
other nodes and the controller.

How to run one::

    node = Node(root, disk, transport, clock, config, controller_address="controller-1", random=random)
    node.poll()              # one turn: handle messages, timers and finished syncs, then
                             # send the results. False: no work
    node.next_wake_ns        # call poll at this time at the latest (monotonic; None: only when a message arrives)
    node.begin_shutdown()    # optional: ask the controller to move the leaderships away; then poll until node.may_stop
    node.close()             # clean: logs, checkpoints and the marker are durable when it returns
    node.kill()              # or end like a killed process: nothing is flushed

* One owner: the caller holds one lock around every method (except ``transport.wake``).
* ``transport`` and ``disk`` belong to this node alone, with all their completions and messages. The
  node listens at ``address`` (default ``node-<id>``), and closes its transport and its root in
  ``close`` and ``kill``.
* ``root`` must be open with this node's number and the cluster's id (``QuorumServer.cluster_id``).
* A client numbers its requests from 0 up, and no two of its latest (:class:`Repeats`) have the same
  number, even if another client used the address before. ``transport`` may deliver an append or a
  deletion twice; only the first copy counts. ``trusted`` names the addresses whose batches our own
  encoder made in this process.
* When a sync is done, ``transport.wake`` is called; any thread may make this call.
* :attr:`failure` says why a node can never join (for example, its root belongs to another cluster).
  :attr:`offline` says that its disk failed: it answers KAFKA_STORAGE_ERROR and gives up its
  leaderships. Close it, and open the root again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from typing import ClassVar

from pyreplog.config import NodeConfig
from pyreplog.controller import LEVEL_LATEST, MetadataImage, PartitionKey
from pyreplog.errors import ClusterError, CorruptError, PyreplogError, is_interruption
from pyreplog.log import LogRoot
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.node.admin import AdminService
from pyreplog.node.alter_partition_manager import AlterPartitionManager
from pyreplog.node.checkpoints import Checkpoints
from pyreplog.node.deletion import DeletionService
from pyreplog.node.effects import FATAL, Effects
from pyreplog.node.events import NodeEvents
from pyreplog.node.fetch import FetchService
from pyreplog.node.forwarding import Forwarding
from pyreplog.node.hosting import ClusterView, HostedPartition, Timers
from pyreplog.node.lifecycle import Lifecycle
from pyreplog.node.metadata import MetadataListener
from pyreplog.node.produce import ProduceService
from pyreplog.node.replica_fetcher import ReplicaFetcher
from pyreplog.node.request_errors import RequestErrorHandler
from pyreplog.node.sessions import LeaderFetchSessions
from pyreplog.node.traffic import NodeTraffic
from pyreplog.ports import Address, Clock, Disconnected, Disk, Random, Received, Transport
from pyreplog.replica import (
    AlterPartition,
    BrokenRule,
    Damaged,
    Fetch,
    Lost,
    Reply,
    RootFailed,
    Stalled,
    Stop,
    SyncFailed,
    Unexpected,
)
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    NO_LEADER,
    AlterPartitionResponse,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    DeleteRecordsRequest,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    Repeats,
    Request,
    Response,
)

__all__ = ["Node"]

_log = logging.getLogger("pyreplog.node")


def _offline_by(hosted: HostedPartition, error: Exception) -> SyncFailed | RootFailed:
    """Return the event for the replicas of a root when ``hosted`` cannot continue.

    A failed sync puts all other unsynced data of that root in doubt. A full disk, or damage in one
    copy, does not.
    """
    failure = hosted.log.failure
    return SyncFailed(failure) if hosted.log.poisoned and isinstance(failure, OSError) else RootFailed(error)


@mypyc_attr(allow_interpreted_subclasses=True)
class Node(NodeEvents):
    """One member of a cluster. The module's docstring describes how to run it."""

    metadata_class: ClassVar[type[MetadataListener]] = MetadataListener
    effects_class: ClassVar[type[Effects]] = Effects
    feature_level: ClassVar[int] = LEVEL_LATEST
    """The highest level of features that this node knows."""

    def __init__(
        self,
        root: LogRoot,
        disk: Disk,
        transport: Transport,
        clock: Clock,
        config: NodeConfig,
        controller_address: Address,
        random: Random | None = None,
        *,
        trusted: Container[Address] = (),
    ) -> None:
        self.root = root
        self.node_id = root.node_id
        self.address = transport.listen(f"node-{root.node_id}")
        self.offline: Exception | None = None
        self.broken_rules: list[BrokenRule] = []
        """Safety rules that did not hold. Not empty only if a peer broke the protocol or we have a
        bug."""
        self.losses: list[tuple[TopicPartition, Lost]] = []
        """Records that this node's copies lost by unclean elections, as far as readers may have
        seen them."""
        self._disk = disk
        self._transport = transport
        self._clock = clock
        self._controller = controller_address
        self._now_ns = clock.monotonic_ns
        self._closed = False
        self._is_quiet = False
        self._hosted: dict[PartitionKey, HostedPartition] = {}
        self._standing = standing = ClusterView()
        self._timers = Timers()
        random = random if random is not None else Random(self.node_id)
        first, now_ns = random.getrandbits(30), clock.monotonic_ns
        self._effects = effects = self.effects_class(
            self.address, transport, disk, self._timers, self, standing, now_ns, first
        )
        effects.now_ns = now_ns()
        self._following = ReplicaFetcher(effects, standing, self.node_id, config)
        self._guard = RequestErrorHandler(effects, self.node_id)
        self._sessions = LeaderFetchSessions(effects, self._hosted, random)
        self._fetch = FetchService(effects, self._hosted, standing)
        self._proposals = AlterPartitionManager(effects, standing, self.node_id, controller_address)
        self._lifecycle = Lifecycle(effects, standing, root, config, controller_address, self, self.feature_level)
        self._metadata = self.metadata_class(effects, standing, root, self._hosted, config, controller_address, self)
        self._produce = ProduceService(effects, self._hosted, standing, self.node_id, self._metadata.refused, trusted)
        self._checkpoints = Checkpoints(effects, root, config, self)
        root.on_damaged = self._found_damaged
        self._forwarding = Forwarding(effects, standing, controller_address)
        self._deletion = DeletionService(effects, self._hosted, standing)
        self._repeats = Repeats()
        self._requests: dict[type, Callable[[Request], None]] = {
            ListOffsetsRequest: self._list_offsets,
            OffsetForLeaderEpochRequest: self._offset_for_leader_epoch,
            InitProducerIdRequest: self._forwarding.forward,
            DeleteRecordsRequest: self._delete_records,
            **AdminService(effects, standing, root.cluster_id).handlers,
        }
        self._lifecycle.start()
        self._checkpoints.start()

    # ----------------------------------------------------------------------------------- properties

    @property
    def image(self) -> MetadataImage:
        """The metadata that this node has applied. Read-only."""
        return self._standing.image

    @property
    def rack(self) -> str | None:
        """The rack with which the node registers. None: the one of its last registration; "": none.

        Set it before the first :meth:`poll`.
        """
        return self._lifecycle.rack

    @rack.setter
    def rack(self, name: str | None) -> None:
        self._lifecycle.rack = name

    @property
    def hosted(self) -> dict[PartitionKey, HostedPartition]:
        """The hosted partitions by (topic id, partition). Read-only."""
        return self._hosted

    @property
    def refused(self) -> Mapping[PartitionKey, PyreplogError]:
        """The copies that this node cannot create or open yet, by (topic id, partition), with the
        error. Read-only."""
        return self._metadata.refused

    def find(self, topic_partition: TopicPartition) -> HostedPartition | None:
        """Return the hosted partition of that name, or None."""
        topic_id = self._standing.image.topic_ids.get(topic_partition.topic)
        return None if topic_id is None else self._hosted.get((topic_id, topic_partition.partition))

    @property
    def traffic(self) -> NodeTraffic:
        """The counters of requests, bytes and syncs since the node started. Read-only."""
        return self._effects.traffic

    @property
    def running_syncs(self) -> int:
        """The number of syncs that have not ended."""
        return len(self._effects.syncs)

    @property
    def failed_requests(self) -> Sequence[str]:
        """The latest client requests that failed unexpectedly. Not empty only if we have a bug."""
        return self._guard.failed

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of this incarnation; -1 before it is registered."""
        return self._standing.broker_epoch

    @property
    def served(self) -> bool:
        """Whether the controller ever unfenced this node."""
        return self._lifecycle.served

    @property
    def fenced(self) -> bool:
        """Whether this node was fenced in the controller's last answer."""
        return self._lifecycle.fenced

    @property
    def failure(self) -> ClusterError | None:
        """The reason why this node can never join, or None."""
        return self._lifecycle.failure

    @property
    def may_stop(self) -> bool:
        """Whether the controller has moved everything away, after :meth:`begin_shutdown`."""
        return self._lifecycle.may_stop

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`poll` must run even if no message arrives."""
        return self._timers.next_ns

    # ------------------------------------------------------------------------------------- the turn

    def poll(self, timeout_ns: int = 0) -> bool:
        """Run one turn; return whether there was work.

        Wait up to ``timeout_ns`` for the first event (0: do not wait).
        """
        events = self._transport.poll(timeout_ns)
        effects = self._effects
        effects.now_ns = now_ns = self._now_ns()
        progress = False
        for event in events:
            progress = True
            if type(event) is Received:
                message = event.message
                if type(message) is Request:
                    self._requested(message)
                elif type(message) is Response:
                    self._answered(message)
            elif type(event) is Disconnected:
                self._following.disconnected(event.peer)
                self._sessions.disconnected(event.peer)
                self._forwarding.disconnected(event.peer)
                if event.peer == self._controller:
                    self._lifecycle.disconnected()
                    self._metadata.disconnected()
                    self._proposals.disconnected()
        if self._produce.gathered:
            self._produce.flush()
        if effects.syncs:
            for done in self._disk.poll():
                progress = True
                effects.synced(done)
        due_ns = self._timers.next_ns
        if due_ns is not None and due_ns <= now_ns and self._timers.run_due(now_ns):
            progress = True
        if progress:
            if self._following.dirty:
                self._following.flush()
            if self._sessions.dirty:
                self._sessions.flush()
            if self._proposals.waiting:
                self._proposals.flush()
        return progress

    def _requested(self, message: Request) -> None:
        body = message.body
        if message.correlation_id < 0:
            return
        kind = type(body)
        traffic = self._effects.traffic
        of_client = True
        try:
            if kind is FetchRequest:
                replica = body.replica_state  # type: ignore[union-attr]
                if replica is not None and replica.replica_id >= 0:
                    of_client = False
                    traffic.follower_fetches += 1
                    self._sessions.fetch(message, body, replica)  # type: ignore[arg-type]
                else:
                    traffic.fetches += 1
                    self._fetch.fetch(message, body)  # type: ignore[arg-type]
            elif kind is ProduceRequest:
                traffic.produces += 1
                if not self._repeats.is_repeat(message.source, message.correlation_id):
                    self._produce.produce(message, body)  # type: ignore[arg-type]
            else:
                traffic.other_requests += 1
                handler = self._requests.get(kind)
                if handler is not None:
                    handler(message)
        except Exception as error:  # fails only this client's request, unless more is in doubt
            if not of_client or self._effects.half_way or isinstance(error, FATAL) or is_interruption(error):
                raise
            self._guard.request_failed(message, error)

    def _answered(self, message: Response) -> None:
        body = message.body
        kind = type(body)
        if kind is FetchResponse:
            if not self._following.answered(message, body):  # type: ignore[arg-type]
                self._metadata.answered(message, body)  # type: ignore[arg-type]
        elif kind is BrokerHeartbeatResponse:
            self._lifecycle.answered(message, body)  # type: ignore[arg-type]
        elif kind is AlterPartitionResponse:
            self._proposals.answered(message, body)  # type: ignore[arg-type]
        elif kind is BrokerRegistrationResponse:
            self._lifecycle.registered(message, body)  # type: ignore[arg-type]
        elif kind is InitProducerIdResponse:
            self._forwarding.answered(message)

    def _delete_records(self, message: Request) -> None:
        if not self._repeats.is_repeat(message.source, message.correlation_id):
            self._deletion.delete(message)

    def _list_offsets(self, message: Request) -> None:
        assert isinstance(message.body, ListOffsetsRequest)
        self._fetch.list_offsets(message, message.body)

    def _offset_for_leader_epoch(self, message: Request) -> None:
        assert isinstance(message.body, OffsetForLeaderEpochRequest)
        self._fetch.offset_for_leader_epoch(message, message.body)

    # ------------------------------------------------------ events of the services (see NodeEvents)

    def fetch_wanted(self, hosted: HostedPartition, effect: Fetch) -> None:
        """Send the request to the leader with the others of this turn."""
        self._following.want(hosted, effect)

    def fetch_unwanted(self, hosted: HostedPartition) -> None:
        """Remove the request from the leader's fetch session."""
        self._following.forget(hosted)

    def isr_proposed(self, hosted: HostedPartition, effect: AlterPartition) -> None:
        """Send the proposal to the controller with the others of this turn."""
        self._proposals.propose(hosted, effect)

    def answer_failed(self, hosted: HostedPartition, effect: Reply, error: Exception) -> None:
        """Answer the client with the error instead."""
        self._guard.answer_failed(hosted, effect, error)

    def batch_failed(self, hosted: HostedPartition, effect: Unexpected) -> None:
        """Log the failure and keep it in :attr:`failed_requests`."""
        self._guard.note(f"a batch for {hosted.topic_partition}", effect.error)

    def registered(self) -> None:
        """Apply the metadata for this incarnation, and fetch from the leaders again."""
        self._metadata.registered()
        self._following.resume()

    def metadata_to_confirm(self) -> None:
        """Send a heartbeat now: it has the offset of the applied metadata."""
        self._lifecycle.soon()

    def leader_lost(self) -> None:
        """Report soon how far the copy here reaches."""
        self._lifecycle.leaderless()

    def hosting_failed(self, key: PartitionKey) -> None:
        """Report the copy as damaged: then another replica leads, if any can."""
        self._lifecycle.damaged(key)

    def hosting_restored(self, key: PartitionKey) -> None:
        """Report the copy as restored: it is as good as any other."""
        self._lifecycle.restored(key)

    def hosting_ended(self, hosted: HostedPartition) -> None:
        """Forget the requests and reports of the partition."""
        self._following.forget(hosted)
        self._proposals.forget(hosted)
        self._lifecycle.removed(hosted.key)

    def storage_failed(self, error: PyreplogError, *, is_news: bool = True) -> None:
        """Take the replicas whose log can no longer be written offline, and so all others."""
        if is_news:
            _log.error("node %d: %s", self.node_id, error)
        for hosted in list(self._hosted.values()):
            failure = hosted.log.failure
            if failure is not None:
                self._effects.run(hosted, _offline_by(hosted, failure))  # takes all replicas offline

    def damage_read(self, hosted: HostedPartition, effect: Damaged) -> None:
        """Log the damage and report it, so that another replica leads, if any can."""
        if effect.is_news:
            what = (
                "served as far as it can be, because no copy in sync is known to be whole"
                if effect.is_last
                else "not read where another leads"
            )
            _log.error("node %d: %s is damaged, and %s: %s", self.node_id, hosted.topic_partition, what, effect.error)
        self._lifecycle.damaged(hosted.key)

    def rule_broken(self, effect: BrokenRule) -> None:
        """Log the rule and keep it in :attr:`broken_rules`."""
        _log.error("node %d: rule %s did not hold: %s", self.node_id, effect.rule, effect.about)
        self.broken_rules.append(effect)

    def follower_stalled(self, hosted: HostedPartition, effect: Stalled) -> None:
        """Log the reason."""
        _log.warning(
            "node %d: %s does not follow its leader for now, and goes on by itself when it can: %s",
            self.node_id,
            hosted.topic_partition,
            effect.error,
        )

    def records_lost(self, hosted: HostedPartition, effect: Lost) -> None:
        """Log the offsets and keep them in :attr:`losses`."""
        name = hosted.topic_partition
        _log.warning(
            "node %d: %s: offsets %d to %d are lost by the unclean election of leader epoch %d",
            self.node_id,
            name,
            effect.start,
            effect.end - 1,
            effect.leader_epoch,
        )
        self.losses.append((name, effect))

    def replica_offline(self, hosted: HostedPartition, error: Exception) -> None:
        """Leave the cluster until the root is opened again.

        The disk failed for one copy, so no copy of this root can be trusted to it.
        """
        if self.offline is not None or hosted.topic_partition in self.root.damaged:
            return
        if isinstance(error, CorruptError) and hosted.replica.leader_id not in (NO_LEADER, self.node_id):
            # A follower could not truncate its log. Its leader just answered and has all records.
            self._timers.call_at(
                self._effects.now_ns, lambda: self._discard_copy(hosted, error)
            )  # the current step is half-way
            return
        self.offline = error
        _log.error("node %d: %s failed; the node goes offline: %s", self.node_id, hosted.topic_partition, error)
        self._lifecycle.want_fence = True
        self._standing.leased_until_ns = -1
        self._lifecycle.soon()
        event = _offline_by(hosted, error)
        for other in list(self._hosted.values()):
            if other is not hosted:
                self._effects.run(other, event)

    # ------------------------------------------------------------------------------- damaged copies

    def _found_damaged(self, name: TopicPartition, error: PyreplogError) -> None:
        """Give up a copy that was found damaged when it was opened.

        A timer does the work, because the current step is half-way.
        """
        self._timers.call_at(self._effects.now_ns, lambda: self._give_up(name, error))

    def _give_up(self, name: TopicPartition, error: PyreplogError) -> None:
        """Stop serving a damaged copy, as if it had been found at a start.

        The other copies are served, and the controller no longer counts on this one.
        """
        hosted = self.find(name)
        if hosted is None or hosted.log.failure is not error:
            return
        self._effects.run(hosted, RootFailed(error))
        self._report_missing(hosted, error)

    def _discard_copy(self, hosted: HostedPartition, error: CorruptError) -> None:
        """Discard a follower's damaged copy, to be fetched again; the other copies continue."""
        if self.find(hosted.topic_partition) is hosted and hosted.topic_partition in self.root.logs:
            log = hosted.replica.load_log()
            self.root.mark_damaged(log, error)
            self._report_missing(hosted, error)
            log.close(clean=False)

    def _report_missing(self, hosted: HostedPartition, error: PyreplogError) -> None:
        """Log that the copy is damaged, and report it to the controller, which no longer counts on
        it."""
        _log.error("node %d: %s is damaged and not served: %s", self.node_id, hosted.topic_partition, error)
        self._lifecycle.missing(hosted.key)

    # -------------------------------------------------------------------------------------- the end

    def begin_shutdown(self) -> None:
        """Ask the controller to move everything away; then :attr:`may_stop` becomes true."""
        self._lifecycle.want_shutdown = True
        self._lifecycle.soon()

    def close(self) -> None:
        """Answer all waiting requests, then end cleanly.

        Raises :class:`StorageError` if the disk refuses; the node is closed all the same. A second
        call completes an interrupted one; it is clean only if all requests had been answered.
        """
        if not self._closed:
            self._closed = True
            self._effects.now_ns = self._clock.monotonic_ns()
            for hosted in self._hosted.values():
                self._effects.run(hosted, Stop())
            self._sessions.flush()
            self._is_quiet = True
        self._transport.close()
        self.root.close(clean=self._is_quiet and self.offline is None, broker_epoch=self._standing.broker_epoch)

    def kill(self) -> None:
        """End like a killed process: flush nothing and answer no request. May be called again."""
        self._closed = True
        self._transport.close()
        self.root.close(clean=False)
