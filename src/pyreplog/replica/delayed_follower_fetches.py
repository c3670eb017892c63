"""Follower fetches that wait at the leader: they are at the log end and have no deadline.

:class:`~pyreplog.replica.progress.Progress` holds the parked fetch of each follower. New records
answer it, and so does a new high watermark or log start after a moment.
"""

from __future__ import annotations

from typing import Final

from pyreplog.errors import CorruptError, OffsetOutOfRangeError, StorageError
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.replica.effects import Reply
from pyreplog.replica.events import (
    FAR_FUTURE_NS,
    FollowerFetch,
)
from pyreplog.replica.in_sync_set import InSyncSet
from pyreplog.replica.progress import Progress
from pyreplog.replica.role import ReplicaRole

__all__ = ["DelayedFollowerFetches"]

PUSH_AFTER_NS: Final = 1_000_000
"""How long a new high watermark waits for records to carry it, before it is pushed to idle
followers.
"""


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedFollowerFetches:
    """The follower fetches that wait at one leader."""

    __slots__ = ("in_sync_set", "push_at", "role")

    def __init__(self, role: ReplicaRole, in_sync_set: InSyncSet) -> None:
        self.role = role
        self.in_sync_set = in_sync_set
        self.push_at = FAR_FUTURE_NS
        """The time at which :meth:`push` must be called next."""

    def park(self, follower: Progress, event: FollowerFetch, now_ns: int) -> None:
        """Keep the fetch of a follower that has all records."""
        follower.delayed_fetch = event
        follower.delayed_since_ns = now_ns
        request, log = event.request, self.role.context.log
        if (
            request.high_watermark < log.high_watermark
            or request.log_start_offset < log.start_offset
            or follower.told_bound < self.role.context.tombstone_bound
        ):
            self.push_later(now_ns)

    def serve(self, now_ns: int) -> None:
        """Answer all with the new records. Their followers had all records until now.

        Fetches from the same offset share one read.
        """
        role, data, at = self.role, None, None
        for follower in self.in_sync_set.remotes:
            fetch = follower.delayed_fetch
            if fetch is None:
                continue
            follower.delayed_fetch = None
            follower.caught_up_ns = now_ns
            follower.told_bound = role.context.tombstone_bound
            request = fetch.request
            here = (request.fetch_offset, max(request.partition_max_bytes, 1))
            if data is None or here != at:
                try:
                    log = role.context.load_log()
                    data, at = role.follower_data(log.read(*here, log.end_offset, checked=True)), here
                except (OffsetOutOfRangeError, CorruptError, StorageError) as error:
                    role.refuse_read(fetch, error)
                    continue
            role.context.out.append(Reply(fetch.source, fetch.correlation_id, data))

    def push_later(self, now_ns: int) -> None:
        """Push the high watermark and the log start soon, unless records carry them before."""
        if self.push_at == FAR_FUTURE_NS and self.in_sync_set.remotes:
            self.push_at = now_ns + PUSH_AFTER_NS
            self.role.context.wake_by(self.push_at)

    def push(self, now_ns: int) -> None:
        """Answer fetches that were parked for a while and have an old high watermark or log start.

        Followers that fetched just now are likely to get records soon, so they wait.
        """
        self.push_at = FAR_FUTURE_NS
        log = self.role.context.log
        high_watermark, start = log.high_watermark, log.start_offset
        bound = self.role.context.tombstone_bound
        for follower in self.in_sync_set.remotes:
            fetch = follower.delayed_fetch
            if fetch is None or (
                fetch.request.high_watermark >= high_watermark
                and fetch.request.log_start_offset >= start
                and follower.told_bound >= bound
            ):
                continue
            due = follower.delayed_since_ns + PUSH_AFTER_NS
            if due <= now_ns:
                follower.delayed_fetch = None
                follower.told_bound = bound
                self.role.reply(fetch, self.role.follower_data(None))
            else:
                self.push_at = min(self.push_at, due)

    def push_now(self) -> None:
        """Answer all with the present high watermark and log start."""
        for follower in self.in_sync_set.remotes:
            if follower.delayed_fetch is not None:
                follower.told_bound = self.role.context.tombstone_bound
                self.role.reply(follower.delayed_fetch, self.role.follower_data(None))
                follower.delayed_fetch = None

    def exit(self, code: int) -> None:
        """Refuse all with ``code``, because the role ends."""
        for follower in self.in_sync_set.remotes:
            self.refuse(follower, code)

    def refuse(self, follower: Progress, code: int) -> None:
        """Refuse the follower's parked fetch, if there is one."""
        if follower.delayed_fetch is not None:
            self.role.refuse_fetch(follower.delayed_fetch, code)
            follower.delayed_fetch = None
