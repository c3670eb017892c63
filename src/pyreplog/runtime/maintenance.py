"""Maintenance: the work of a log's background thread: batches and syncs that no caller waits for,
retention, and the root's checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyreplog.client import BatchResult
from pyreplog.config import INT64_MAX
from pyreplog.errors import PyreplogError
from pyreplog.log import LogRoot
from pyreplog.runtime.background import LINGER_S, Background
from pyreplog.runtime.change_fence import ChangeFence
from pyreplog.runtime.group_commit import GroupCommit
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.nowait_batch import NowaitBatch
from pyreplog.runtime.pending_appends import PendingAppends

__all__ = ["Maintenance"]

HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS: Final = 5_000_000_000
CHECKPOINT_INTERVAL_NS: Final = 60_000_000_000
RETENTION_INTERVAL_NS: Final = 300_000_000_000
RETRY_NS: Final = 500_000_000
"""A sync that could not begin is tried again after this."""


class Maintenance:
    """Do the due work of one root with one led log. The background thread calls ``work``; the other
    methods REQUIRE the log's lock, except ``step`` and ``retain_soon``."""

    def __init__(
        self,
        root: LogRoot,
        fence: ChangeFence,
        pending: PendingAppends,
        batch: NowaitBatch,
        group_commit: GroupCommit,
        background: Background,
        now_ns: Callable[[], int],
        fail_all: Callable[[], None],
    ) -> None:
        """``fail_all`` fails all pending results, because the log takes no more records."""
        self._root = root
        self._fence = fence
        self._pending = pending
        self._batch = batch
        self._group_commit = group_commit
        self._background = background
        self._now_ns = now_ns
        self._fail_all = fail_all
        self._last_seen_batch: BatchResult | None = None
        self._look: Callable[[], float | None] | None = None
        self._look_due_ns = 0
        now = now_ns()
        self._high_watermark_due_ns = now + HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS
        self._checkpoint_due_ns = now + CHECKPOINT_INTERVAL_NS
        self._retention_due_ns = now
        self._checkpointed = fence.log.high_watermark

    # ------------------------------------------------------------------------ the background thread

    def watch(self, look: Callable[[], float | None]) -> None:
        """Call ``look`` now, and from the background thread after as many seconds as it returns
        each time, until it returns None. Once, before anything is appended."""
        self._note_look(look())
        self._look = look
        self._background.start(max((self._look_due_ns - self._now_ns()) / 1e9, LINGER_S))

    def _note_look(self, pause_s: float | None) -> None:
        self._look_due_ns = INT64_MAX if pause_s is None else self._now_ns() + int(pause_s * 1e9)

    def work(self) -> float | None:
        """Take one turn of the background thread. Return the seconds until the next; None: only
        when woken."""
        pause_s = self.step()
        if self._look is None or self._look_due_ns == INT64_MAX:
            return pause_s
        if self._now_ns() >= self._look_due_ns:
            self._note_look(self._look())
        look_s = max(self._look_due_ns - self._now_ns(), 0) / 1e9
        return look_s if pause_s is None else min(pause_s, look_s)

    def step(self) -> float | None:
        """Write the open batch, sync, and do the due work. Return as :meth:`work` does."""
        fence, pending = self._fence, self._pending
        end = -1
        try:
            with fence.lock.enter():
                if fence.failure is not None:
                    if fence.ended is None:  # retention found it out, and the waiting callers do not know yet
                        self._fail_all()
                    return None
                now = self._now_ns()
                if self._is_new_batch() and not pending.is_urgent and not self._sync_due(now) and now < self._due_ns:
                    # Begun since the last turn: a caller that fills batches this fast needs no
                    # help.
                    self._last_seen_batch = self._batch.result
                    return LINGER_S
                pending.is_urgent = False
                self._batch.prepare_change()
                if pending.has_unsynced or self._sync_due(now):
                    end = fence.log.end_offset
            if end >= 0:
                self._group_commit.wait(end)
            # Last, so that nothing waits for these together with the sync; and in any case, so that
            # no load puts them off for good.
            if now >= self._due_ns:
                self._do_due(now)
        except PyreplogError as error:
            LOGGER.error("%s: %s", fence.name, error)
            if fence.failure is None:
                return RETRY_NS / 1e9  # a sync that could not begin, or a log that could not be opened again
        if fence.ended is None and fence.failure is not None:
            return 0.0  # some of the waiting callers may not know of it
        return self._pause_s()

    def _is_new_batch(self) -> bool:
        return self._batch.result is not self._last_seen_batch

    def _sync_due(self, now: int) -> bool:
        """Whether ``flush.messages``, ``flush.ms`` or a full segment asks for a sync of an ``os``
        log."""
        return not self._pending.needs_sync and self._fence.log.sync_due(now)

    def _pause_s(self) -> float:
        """The seconds until something falls due by itself."""
        due = self._due_ns
        now = self._now_ns()
        log = self._fence.log
        if self._pending.flushes and log.flushed_offset < log.end_offset:
            due = min(due, log.flush_due_ns(now))
        if self._pending.has_unsynced and self._fence.failure is None:
            due = min(due, now + RETRY_NS)  # a sync that could not begin, for lack of descriptors
        return max(due - now, 0) / 1e9

    # -------------------------------------------------------------------- retention and checkpoints

    @property
    def _due_ns(self) -> int:
        return min(self._high_watermark_due_ns, self._checkpoint_due_ns, self._retention_due_ns)

    def _do_due(self, now_ns: int) -> None:
        fence = self._fence
        with fence.lock.enter():
            fence.repair()
            if fence.failure is None:
                with fence:
                    self.retain(now_ns)
                    self._checkpoint(now_ns)

    def _checkpoint(self, now_ns: int) -> None:
        if now_ns >= self._checkpoint_due_ns:
            self._checkpoint_due_ns = now_ns + CHECKPOINT_INTERVAL_NS
            self._root.checkpoint_recovery_points()
            self._root.checkpoint_log_starts()
        if now_ns >= self._high_watermark_due_ns:
            self._high_watermark_due_ns = now_ns + HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS
            if self._checkpointed != self._fence.log.high_watermark:
                self._checkpointed = self._fence.log.high_watermark
                self._root.checkpoint_high_watermarks()

    def retain(self, now_ns: int) -> None:
        """Apply retention if it is due: every few minutes, after each roll, and when the files of
        deleted segments have stayed long enough."""
        if now_ns >= self._retention_due_ns:
            self._retention_due_ns = now_ns + RETENTION_INTERVAL_NS
            self._fence.log.apply_retention()
            self._note_removals()

    def _note_removals(self) -> None:
        self._retention_due_ns = min(self._retention_due_ns, self._fence.log.removal_due_ns)

    def segments_deleted(self) -> None:
        """A caller deleted segments: their files must be removed in time."""
        self._note_removals()
        self._background.arm()

    def retain_soon(self) -> None:
        """Apply retention in the next turn of the background thread, which comes at once."""
        self._retention_due_ns = 0
        self._background.arm()
