"""A node's relation to the controller: registration, heartbeats, the lease, and controlled
shutdown.

A copy that may lack acknowledged records is marked as incomplete on disk. ``Log.open`` decides this
before the node registers. A complete copy stays complete only after a clean stop, after the mere end
of a process, or, for a ``sync`` log, after a recovery up to its durable mark. A copy that was
incomplete before, or whose mark is missing, is always incomplete. After that only the controller
makes it complete, by metadata that lists this very incarnation as in sync. If the process dies
before it receives that metadata, its next registration says that the controller knew of the copy
(``reported``), and the controller keeps it in the set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from pyreplog.config import NodeConfig
from pyreplog.controller import FEATURE, LOST_DIRECTORY, PartitionKey
from pyreplog.errors import ClusterError, StoragePermissionError, cluster_error
from pyreplog.log import LogRoot
from pyreplog.node.effects import Effects
from pyreplog.node.events import NodeEvents
from pyreplog.node.hosting import ClusterView, HostedPartition
from pyreplog.node.lag_reports import LagReports
from pyreplog.ports import Address
from pyreplog.wire import (
    NO_ERROR,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ErrorCode,
    Feature,
    Listener,
    PartitionEnd,
    ReplicaStatus,
    Response,
)

__all__ = ["Lifecycle"]

_MS: Final = 1_000_000
T = TypeVar("T")
UNANSWERED_MAX: Final = 64
REGISTRATION_RETRY_NS: Final = 100 * _MS
NO_CONTROLLER_RETRY_NS: Final = 2 * _MS
"""The pause after the first answer that no controller is active. It doubles with each further one, up
to the usual interval: an election of a controller takes milliseconds if its voters are up."""
SHUTDOWN_BEAT_NS: Final = 50 * _MS
"""Interval of the heartbeats while a node waits for permission to stop."""
LEASE_SHARE: Final = 19, 20
"""The lease as a part of the session. It must end before the controller may give a leadership away,
even if the clocks run at different rates."""
_RETRIABLE: Final = (
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)
_REGISTER_ANEW: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


def _remember(unanswered: dict[int, T], correlation_id: int, value: T) -> None:
    """Keep an unanswered request, and forget the oldest one if there are too many."""
    if correlation_id >= 0:
        if len(unanswered) >= UNANSWERED_MAX:
            del unanswered[next(iter(unanswered))]
        unanswered[correlation_id] = value


def _registered_ends(root: LogRoot) -> list[PartitionEnd]:
    return [
        PartitionEnd(
            one.topic_id, one.topic_partition.partition, one.latest_epoch, one.end_offset, one.incomplete, one.reported
        )
        for one in root.known()
    ]


def _is_lost(root: LogRoot) -> bool:
    """Return whether copies here may be damaged, not only refused by their folders' permissions."""
    return not all(isinstance(error, StoragePermissionError) for error in root.damaged.values())


def _ends(
    leaderless: Mapping[PartitionKey, HostedPartition], statuses: Mapping[PartitionKey, ReplicaStatus]
) -> list[PartitionEnd]:
    served = [(key, one.log) for key, one in leaderless.items() if statuses.get(key) != ReplicaStatus.MISSING]
    found = [PartitionEnd(*key, log.epochs.latest, log.end_offset, incomplete=log.incomplete) for key, log in served]
    return found + [PartitionEnd(*key, incomplete=True, status=status) for key, status in statuses.items()]


class Lifecycle:
    """Keeps the controller informed. ``failure``: the reason why this node can never join, or
    None."""

    def __init__(
        self,
        effects: Effects,
        standing: ClusterView,
        root: LogRoot,
        config: NodeConfig,
        controller: Address,
        events: NodeEvents,
        feature_level: int,
    ) -> None:
        self.failure: ClusterError | None = None
        self.rack: str | None = None
        """The rack of the registration; None: as before."""
        self.want_shutdown = False
        self.want_fence = False
        self.fenced = True
        self.served = False
        """Whether the controller ever unfenced this node."""
        self.may_stop = False
        """Whether the controller has moved everything away from this node."""
        self._effects = effects
        self._standing = standing
        self._root = root
        self._node_id = root.node_id
        self._events = events
        self._controller = controller
        self._feature_level = feature_level
        self._interval_ns = config.heartbeat_interval_ms * _MS
        self._lease_ns = config.session_timeout_ms * _MS * LEASE_SHARE[0] // LEASE_SHARE[1]
        self._registrations: dict[int, None] = {}
        self._lags = LagReports(standing, config)
        self._heartbeats: dict[int, tuple[int, int, int]] = {}
        """Correlation id of an unanswered heartbeat -> (time sent, value of ``_news`` that it
        reported, number of its reports of lags)."""
        self._news = 0
        """Number of changes to report about copies here: ends of leaderless partitions, and
        damage."""
        self._told = 0
        """Number of these changes that the controller has confirmed."""
        self._statuses: dict[PartitionKey, ReplicaStatus] = {}
        """The statuses of replicas here that the controller has not confirmed."""
        self._next_ns = 0
        self._without_controller = 0
        """Answers in a row that no controller is active."""
        self._previous_epoch = root.previous_broker_epoch if root.clean else -1

    def start(self) -> None:
        """Begin to register."""
        self._plan(self._effects.now_ns)

    def soon(self) -> None:
        """Send a heartbeat now, because metadata was applied or this node wants to stop."""
        self._plan(self._effects.now_ns)

    def leaderless(self) -> None:
        """Report soon how far the copy here of a partition without a leader reaches."""
        self._news += 1
        self.soon()

    def missing(self, key: PartitionKey) -> None:
        """Report that a copy is damaged and not served, so that the controller no longer counts on
        it."""
        self._report(key, ReplicaStatus.MISSING)

    def damaged(self, key: PartitionKey) -> None:
        """Report a copy that is damaged in part and still served, or that cannot be created.

        Then another replica leads, if any can.
        """
        if self._statuses.get(key) != ReplicaStatus.MISSING:
            self._report(key, ReplicaStatus.DAMAGED)

    def restored(self, key: PartitionKey) -> None:
        """Report that a copy exists which could not be created before."""
        self._report(key, ReplicaStatus.RESTORED)

    def _report(self, key: PartitionKey, status: ReplicaStatus) -> None:
        self._statuses[key] = status
        self._news += 1
        self.soon()

    def removed(self, key: PartitionKey) -> None:
        """Forget the reports about a removed copy, because another may be created in its place."""
        self._statuses.pop(key, None)

    def _plan(self, at_ns: int) -> None:
        self._next_ns = at_ns
        self._effects.timers.call_at(at_ns, self._due)

    def _due(self) -> None:
        effects = self._effects
        if self._next_ns > effects.now_ns or self.failure is not None or self.may_stop:
            return
        if self._standing.broker_epoch < 0:
            _remember(self._registrations, effects.request(self._controller, self._registration_request()), None)
            self._plan(effects.now_ns + REGISTRATION_RETRY_NS)
        else:
            body = BrokerHeartbeatRequest(
                self._node_id,
                self._standing.broker_epoch,
                self._standing.image.offset,
                want_fence=self.want_fence,
                want_shut_down=self.want_shutdown,
                partition_ends=_ends(self._standing.leaderless, self._statuses) if self._news > self._told else (),
                replica_lags=self._lags.next(effects.now_ns),
            )
            sent = (effects.now_ns, self._news, self._lags.number)
            _remember(self._heartbeats, effects.request(self._controller, body), sent)
            self._plan(
                effects.now_ns + (min(self._interval_ns, SHUTDOWN_BEAT_NS) if self.want_shutdown else self._interval_ns)
            )

    def _registration_request(self) -> BrokerRegistrationRequest:
        root = self._root
        return BrokerRegistrationRequest(
            self._node_id,
            root.cluster_id,
            root.incarnation_id,
            listeners=[Listener("PEER", self._effects.address)],
            features=[Feature(FEATURE, 0, self._feature_level)],
            rack=self.rack,
            # LOST_DIRECTORY says that a missing copy may be damaged. Without it the copy counts as
            # never created. That is right if only a permission keeps its folder from being opened,
            # because no data is lost. Such a copy leads only if no other member has one. No new
            # copy can be created in its place, and it is unchanged once its folder can be opened.
            log_dirs=[root.directory_id, LOST_DIRECTORY] if _is_lost(root) else [root.directory_id],
            previous_broker_epoch=self._previous_epoch,
            partition_ends=_registered_ends(root),
        )

    def registered(self, message: Response, body: BrokerRegistrationResponse) -> None:
        """Handle the controller's answer to a registration."""
        if self._registrations.pop(message.correlation_id, message) is message or self._standing.broker_epoch >= 0:
            return
        if body.error_code == ErrorCode.NOT_CONTROLLER:
            self._retry_soon(REGISTRATION_RETRY_NS)
        elif body.error_code == NO_ERROR:
            self._without_controller = 0
            self._standing.broker_epoch = body.broker_epoch
            self._events.registered()
            self.soon()
        elif body.error_code not in _RETRIABLE:
            self.failure = cluster_error(body.error_code, self._refusal(body.error_code))

    def _refusal(self, code: int) -> str:
        if code != ErrorCode.UNSUPPORTED_VERSION:
            return f"node {self._node_id} cannot join"
        return (
            f"node {self._node_id} cannot join: it knows {FEATURE} up to {self._feature_level}, and the cluster has a"
            " higher level; install the version of pyreplog that the other nodes run"
        )

    def _retry_soon(self, most_ns: int) -> None:
        """Send the request again soon, because no controller is active; nothing was done, and all
        that was reported is reported again."""
        pause_ns = min(NO_CONTROLLER_RETRY_NS << min(self._without_controller, 20), most_ns)
        self._without_controller += 1
        if self._effects.now_ns + pause_ns < self._next_ns:
            self._plan(self._effects.now_ns + pause_ns)

    def disconnected(self) -> None:
        """Send the open request again soon: the controller's process has ended, and another begins."""
        if self._registrations or self._heartbeats:
            self._registrations.clear()
            self._retry_soon(REGISTRATION_RETRY_NS)

    def answered(self, message: Response, body: BrokerHeartbeatResponse) -> None:
        """Handle the controller's answer to a heartbeat."""
        sent = self._heartbeats.pop(message.correlation_id, None)
        if sent is None:
            return
        sent_ns, told, lags = sent
        if body.error_code == ErrorCode.NOT_CONTROLLER:
            self._retry_soon(self._interval_ns)
            return
        self._without_controller = 0
        for earlier in [number for number, (at_ns, _, _) in self._heartbeats.items() if at_ns < sent_ns]:
            del self._heartbeats[earlier]  # only the newest answer counts
        if body.error_code in _REGISTER_ANEW:
            self._standing.broker_epoch = -1
            self._standing.leased_until_ns = -1
            self._heartbeats.clear()
            self.soon()
            return
        if body.error_code != NO_ERROR:
            return
        self.fenced = body.is_fenced
        self.served = self.served or not body.is_fenced
        self._told = max(self._told, told)
        self._lags.confirmed(lags, body.controller_epoch)
        if self._told == self._news:
            self._statuses.clear()
        if body.should_shut_down:
            self.may_stop = True
            self._standing.leased_until_ns = -1
        elif not body.is_fenced and not self.want_fence:
            self._standing.leased_until_ns = sent_ns + self._lease_ns
        elif not self.want_fence and body.is_caught_up:
            self.soon()
