"""Chores: what a log that is written wants from time to time, whoever appends: retention, and its root's
checkpoints."""

from __future__ import annotations

from typing import Final

from pyreplog.log import Log, LogRoot

__all__ = ["Maintenance"]

HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS: Final = 5_000_000_000
CHECKPOINT_INTERVAL_NS: Final = 60_000_000_000
RETENTION_INTERVAL_NS: Final = 300_000_000_000


class Maintenance:
    """Of one root with one log that is written. Each method REQUIRES the lock of that log, but ``due_ns`` and
    ``retain_soon``."""

    __slots__ = ("_checkpoint_due_ns", "_checkpointed", "_high_watermark_due_ns", "_retention_due_ns", "_root")

    def __init__(self, root: LogRoot, now_ns: int) -> None:
        self._root = root
        self._high_watermark_due_ns = now_ns + HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS
        self._checkpoint_due_ns = now_ns + CHECKPOINT_INTERVAL_NS
        self._retention_due_ns = now_ns
        self._checkpointed = -1

    def begin(self, log: Log) -> None:
        """``log`` is led from now on; the checkpoints know as much as it does."""
        self._checkpointed = log.high_watermark

    @property
    def due_ns(self) -> int:
        """When the next is due."""
        return min(self._high_watermark_due_ns, self._checkpoint_due_ns, self._retention_due_ns)

    def retain_soon(self) -> None:
        """Retention is due now."""
        self._retention_due_ns = 0

    def do(self, log: Log, now_ns: int) -> None:
        """Whatever is due at ``now_ns``."""
        self.retain(log, now_ns)
        if now_ns >= self._checkpoint_due_ns:
            self._checkpoint_due_ns = now_ns + CHECKPOINT_INTERVAL_NS
            self._root.checkpoint_recovery_points()
            self._root.checkpoint_log_starts()
        if now_ns >= self._high_watermark_due_ns:
            self._high_watermark_due_ns = now_ns + HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS
            if self._checkpointed != log.high_watermark:
                self._checkpointed = log.high_watermark
                self._root.checkpoint_high_watermarks()

    def retain(self, log: Log, now_ns: int) -> None:
        """What retention asks for: every few minutes, after each roll, and when the files of what went have stayed
        long enough."""
        if now_ns >= self._retention_due_ns:
            self._retention_due_ns = now_ns + RETENTION_INTERVAL_NS
            log.apply_retention()
            self.note_removals(log)

    def note_removals(self, log: Log) -> None:
        """Retention is due when the first file of a segment that went is to be removed, if not before."""
        self._retention_due_ns = min(self._retention_due_ns, log.removal_due_ns)
