"""The replicas out of sync of the partitions that a node leads: why, how far behind, since when.

A heartbeat reports a replica whose state has changed since the last report that the controller
confirmed. A new controller knows no earlier report, so it gets all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyreplog.config import NodeConfig
from pyreplog.controller import PartitionKey
from pyreplog.node.hosting import ClusterView, HostedPartition
from pyreplog.replica import Progress
from pyreplog.wire import LagReason, ReplicaLag

__all__ = ["LagReports"]

_MS: Final = 1_000_000
EXAMINED_MAX: Final = 1_000
"""The most partitions that one heartbeat looks at. With more of them out of sync, they take turns."""

_ReplicaKey = tuple[PartitionKey, int]


class _Seen(NamedTuple):
    """A replica out of sync at an earlier heartbeat of this leader epoch."""

    leader_epoch: int
    first_ns: int
    """When it was first seen out of sync."""
    fetching_ns: int
    """Since when it fetches; -1: it is gone."""
    moved_ns: int
    """When its fetch offset was last seen to move."""
    leo: int
    at_ns: int
    """The time of ``lag``, with which the next one is compared."""
    lag: int
    next_at_ns: int
    """The time of ``next_lag``, which takes the place of ``lag`` when it is old enough itself."""
    next_lag: int


class LagReports:
    """Makes the reports of one node. ``partitions``: those that it leads and that have fewer
    replicas in sync than replicas; the owner keeps them up to date."""

    def __init__(self, standing: ClusterView, config: NodeConfig) -> None:
        self._standing = standing
        self._partitions: dict[PartitionKey, HostedPartition] = standing.under_replicated
        self._lag_max_ns = config.replica_lag_time_max_ms * _MS
        self._seen: dict[PartitionKey, dict[int, _Seen]] = {}
        self._reported: dict[_ReplicaKey, tuple[int, int, int]] = {}
        """The newest report of each replica: leader epoch, reason, lag."""
        self._unconfirmed: dict[_ReplicaKey, tuple[int, ReplicaLag]] = {}
        """Replica -> the number of the first heartbeat with its newest report, and the report."""
        self._number = 0
        self._controller_epoch = -1

    @property
    def number(self) -> int:
        """The number of the latest call of :meth:`next`."""
        return self._number

    def next(self, now_ns: int) -> Sequence[ReplicaLag]:
        """Return the reports for the heartbeat that is sent now."""
        self._number += 1
        if self._partitions or self._seen:
            self._look(now_ns)
        return [report for _, report in self._unconfirmed.values()]

    def confirmed(self, number: int, controller_epoch: int) -> None:
        """Note that the controller has the reports of this heartbeat. A controller of another epoch
        gets all reports again."""
        if controller_epoch != self._controller_epoch:
            self._controller_epoch = controller_epoch
            self._reported.clear()
            self._unconfirmed.clear()
            return
        if self._unconfirmed:
            for key in [key for key, (first, _) in self._unconfirmed.items() if first <= number]:
                del self._unconfirmed[key]

    def _look(self, now_ns: int) -> None:
        partitions = self._partitions
        for key in [key for key in self._seen if key not in partitions]:
            for broker_id in self._seen.pop(key):
                self._void(key, broker_id)
        keys = list(partitions)
        if len(keys) > EXAMINED_MAX:
            del keys[EXAMINED_MAX:]
            for key in keys:
                partitions[key] = partitions.pop(key)  # the next heartbeat begins behind it
        for key in keys:
            self._look_at(key, partitions[key], now_ns)

    def _look_at(self, key: PartitionKey, hosted: HostedPartition, now_ns: int) -> None:
        before = self._seen.get(key) or {}
        found: dict[int, _Seen] = {}
        replica = hosted.replica
        epoch, end = replica.leader_epoch, replica.log.end_offset
        for follower in replica.followers:
            if follower.committed:
                continue
            seen = before.get(follower.broker_id)
            if seen is None or seen.leader_epoch != epoch:
                seen = _Seen(epoch, now_ns, -1, now_ns, follower.leo, now_ns, 0, now_ns, 0)
            elif follower.leo != seen.leo:
                seen = seen._replace(moved_ns=now_ns, leo=follower.leo)
            found[follower.broker_id] = self._report(key, follower, seen, end, now_ns)
        for broker_id in before:
            if broker_id not in found:
                self._void(key, broker_id)
        if found:
            self._seen[key] = found
        else:
            self._seen.pop(key, None)

    def _report(self, key: PartitionKey, follower: Progress, seen: _Seen, end: int, now_ns: int) -> _Seen:
        """Report the replica if its state is new, and return the entry for the next heartbeat."""
        lag = -1 if follower.leo < 0 else max(0, end - follower.leo)
        if self._is_gone(follower, now_ns):
            seen = seen._replace(fetching_ns=-1)
        elif seen.fetching_ns < 0:
            seen = _Seen(seen.leader_epoch, seen.first_ns, now_ns, now_ns, follower.leo, now_ns, lag, now_ns, lag)
        reason, estimate_ms = self._judge(follower, seen, lag, now_ns)
        replica = (key, follower.broker_id)
        state = (seen.leader_epoch, int(reason), lag)
        if self._reported.get(replica) != state:
            self._reported[replica] = state
            since_ns = max(follower.caught_up_ns, 0) or seen.first_ns
            report = ReplicaLag(
                key[0],
                key[1],
                seen.leader_epoch,
                follower.broker_id,
                reason,
                lag,
                (now_ns - since_ns) // _MS,
                estimate_ms,
            )
            self._unconfirmed[replica] = (self._number, report)
        if now_ns - seen.next_at_ns >= self._lag_max_ns:
            return seen._replace(at_ns=seen.next_at_ns, lag=seen.next_lag, next_at_ns=now_ns, next_lag=lag)
        return seen

    def _judge(self, follower: Progress, seen: _Seen, lag: int, now_ns: int) -> tuple[LagReason, int]:
        """Return why the replica is out of sync, and the milliseconds until it is in sync (-1: unknown)."""
        limit_ns = now_ns - self._lag_max_ns
        if seen.fetching_ns < 0:
            return LagReason.GONE, -1
        if lag == 0:
            return LagReason.CATCHING_UP, 0  # only the controller's decision is missing
        if seen.moved_ns <= limit_ns:
            return LagReason.STUCK, -1
        nearer, passed_ns = seen.lag - lag, now_ns - seen.at_ns
        if nearer > 0 and passed_ns > 0:
            return LagReason.CATCHING_UP, passed_ns * lag // nearer // _MS
        slow = passed_ns > 0 and max(follower.caught_up_ns, seen.fetching_ns) <= limit_ns
        return (LagReason.SLOW if slow else LagReason.CATCHING_UP), -1

    def _is_gone(self, follower: Progress, now_ns: int) -> bool:
        status = self._standing.brokers.get(follower.broker_id)
        fetches = follower.leo >= 0 and follower.last_fetch_ns >= now_ns - self._lag_max_ns
        return status is None or not status.eligible or not fetches

    def _void(self, key: PartitionKey, broker_id: int) -> None:
        """Report that the replica is in sync, or no replica any more, if another report went before."""
        replica = (key, broker_id)
        if self._reported.pop(replica, None) is not None:
            self._unconfirmed[replica] = (self._number, ReplicaLag(key[0], key[1], -1, broker_id))
