"""The scheduled work on a root: write its three checkpoint files and remove segments by
retention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyreplog.config import NodeConfig
from pyreplog.errors import StorageError
from pyreplog.log import LogRoot
from pyreplog.node.effects import Effects
from pyreplog.node.events import NodeEvents

__all__ = ["Checkpoints"]

_MS: Final = 1_000_000


class Checkpoints:
    """Writes the recovery points, high watermarks and start offsets of all hosted partitions, and
    applies retention, each at its own interval."""

    def __init__(self, effects: Effects, root: LogRoot, config: NodeConfig, events: NodeEvents) -> None:
        self._effects = effects
        self._root = root
        self._retention_interval_ns = config.log_retention_check_interval_ms * _MS
        self._events = events
        self._plans = (
            (config.recovery_point_checkpoint_interval_ms * _MS, root.checkpoint_recovery_points),
            (config.high_watermark_checkpoint_interval_ms * _MS, root.checkpoint_high_watermarks),
            (config.log_start_offset_checkpoint_interval_ms * _MS, root.checkpoint_log_starts),
        )

    def start(self) -> None:
        """Plan the first runs."""
        for interval_ns, write in self._plans:
            self._plan(interval_ns, write)
        self._effects.timers.call_at(self._effects.now_ns + self._retention_interval_ns, self._retain)

    def _plan(self, interval_ns: int, write: Callable[[], object]) -> None:
        self._effects.timers.call_at(self._effects.now_ns + interval_ns, lambda: self._write(interval_ns, write))

    def _write(self, interval_ns: int, write: Callable[[], object]) -> None:
        try:
            write()
        except StorageError as error:
            # Nothing acknowledged depends on a checkpoint: try again at the next turn.
            self._events.storage_failed(error)
        self._plan(interval_ns, write)

    def _retain(self) -> None:
        due_ns = self._effects.now_ns + self._retention_interval_ns
        try:
            self._root.apply_retention()
            due_ns = min(due_ns, self._root.removal_due_ns)
        except StorageError as error:
            self._events.storage_failed(error)  # the remaining segments are tried again at the next run
        self._effects.timers.call_at(due_ns, self._retain)
