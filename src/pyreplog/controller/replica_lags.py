"""Why replicas are out of sync, as their leaders report it. Soft state, never written: a new
controller begins without it, and gets every report again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pyreplog.controller.election import MISSING
from pyreplog.controller.image import MetadataImage, PartitionImage, PartitionKey
from pyreplog.controller.reports import ReplicaReports
from pyreplog.controller.sessions import BrokerSessions
from pyreplog.wire import NO_LEADER, LagReason, OutOfSyncReplica, ReplicaLag

__all__ = ["ReplicaLags"]

_MS: Final = 1_000_000


class _Reported(NamedTuple):
    leader: int
    leader_epoch: int
    reason: LagReason
    lag: int
    since_ns: int
    in_sync_ns: int
    """When it is expected to be in sync; -1: unknown."""


class ReplicaLags:
    """The newest report about each replica out of sync. One owner."""

    def __init__(self, sessions: BrokerSessions, reports: ReplicaReports) -> None:
        self._sessions = sessions
        self._reports = reports
        self._reported: dict[tuple[PartitionKey, int], _Reported] = {}

    def note(self, leader: int, lags: Iterable[ReplicaLag], now_ns: int) -> None:
        """Note the reports of a leader, which arrived now."""
        for one in lags:
            key = ((one.topic_id, one.partition), one.replica_id)
            known = self._reported.get(key)
            reason = _reason(one.reason)
            if reason == LagReason.IN_SYNC:
                if known is not None and known.leader == leader:
                    del self._reported[key]
            elif known is None or known.leader_epoch <= one.leader_epoch:
                in_sync_ns = -1 if one.estimate_ms < 0 else now_ns + one.estimate_ms * _MS
                since_ns = now_ns - max(0, one.since_ms) * _MS
                self._reported[key] = _Reported(leader, one.leader_epoch, reason, one.lag, since_ns, in_sync_ns)

    def removed(self, key: PartitionKey, partition: PartitionImage) -> None:
        """Forget the reports about a partition that is deleted."""
        for member in partition.replicas:
            self._reported.pop((key, member), None)

    def out_of_sync(
        self, image: MetadataImage, key: PartitionKey, partition: PartitionImage, now_ns: int
    ) -> list[OutOfSyncReplica]:
        """Return the replicas that are not in sync, in the order of preference.

        Without a leader, a member of the in-sync set counts as one of them while its broker is away
        or its copy is damaged.
        """
        found = []
        for member in partition.replicas:
            in_sync = member in partition.isr
            if in_sync and partition.leader != NO_LEADER:
                continue
            one = self._state(image, key, partition, member, now_ns)
            if not in_sync or one.reason != LagReason.UNKNOWN:
                found.append(one)
        return found

    def _state(
        self, image: MetadataImage, key: PartitionKey, partition: PartitionImage, member: int, now_ns: int
    ) -> OutOfSyncReplica:
        known = self._reported.get((key, member))
        if known is not None and (known.leader, known.leader_epoch) != (partition.leader, partition.leader_epoch):
            known = None
        broker, session = image.brokers.get(member), self._sessions.get(member)
        reason = LagReason.UNKNOWN if known is None else known.reason
        lag = -1 if known is None else known.lag
        since_ns = None if known is None else known.since_ns
        if broker is None or not broker.active:
            reason = LagReason.GONE
            if since_ns is None and session is not None:
                since_ns = session.contact_ns
        elif self._reports.is_damaged(key, broker) or (
            # A replica that has no copy but fetches is copying the records from the leader.
            self._reports.end(member, key) == MISSING and reason not in (LagReason.SLOW, LagReason.CATCHING_UP)
        ):
            reason = LagReason.DAMAGED
        moves = known is not None and reason == LagReason.CATCHING_UP and known.in_sync_ns >= 0
        return OutOfSyncReplica(
            member,
            reason,
            lag,
            -1 if since_ns is None else max(0, now_ns - since_ns) // _MS,
            max(0, known.in_sync_ns - now_ns) // _MS if known is not None and moves else -1,
        )


def _reason(number: int) -> LagReason:
    """Return the reason, which a newer leader may have taken from a longer list."""
    try:
        return LagReason(number)
    except ValueError:
        return LagReason.UNKNOWN
