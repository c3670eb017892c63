"""Compactor: runs the passes of compaction over one led log, now or in the background.

A pass reads and writes without the log's lock; only its plan and each swap take it. One pass at a time runs in a
process, because each has a map of keys in memory (``log.cleaner.dedupe.buffer.size``), which exists only during the
pass.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pyreplog.errors import ClosedError, ConfigError, PyreplogError, StorageError
from pyreplog.log import CleanedSegment, Cleaner, Log, LogRoot
from pyreplog.ports import Clock
from pyreplog.runtime.background import Background
from pyreplog.runtime.change_fence import ChangeFence
from pyreplog.runtime.group_commit import GroupCommit
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.nowait_batch import NowaitBatch
from pyreplog.values import Compaction

__all__ = ["BACKOFF_S", "ONE_PASS", "Compactor"]

BACKOFF_S: Final = 15.0
"""The pause between two looks whether a pass is due (Kafka's ``log.cleaner.backoff.ms``)."""

ONE_PASS: Final = threading.Lock()
"""Held during a pass."""


class Compactor:
    """Compacts one log. Any thread may call :meth:`run`."""

    def __init__(
        self, root: LogRoot, fence: ChangeFence, batch: NowaitBatch, group_commit: GroupCommit, clock: Clock
    ) -> None:
        self._root = root
        self._fence = fence
        self._batch = batch
        self._group_commit = group_commit
        self._clock = clock
        self._stopping = False
        # Why no pass can be made until the log is opened again.
        self._failure: PyreplogError | None = None
        self._background = Background(f"pyreplog compaction {fence.log.topic_partition}", self._look)

    # -- the background --

    def start(self) -> None:
        """Look every few seconds whether a pass is due, if the log is compacted by its settings."""
        if self._fence.log.config.compacts:
            self._background.start(BACKOFF_S)

    def stop(self) -> None:
        """End the thread. A pass that runs is given up, and leaves the log as it is."""
        self._stopping = True
        self._background.stop()

    def forked(self) -> None:
        """Forget the thread, because this process is a forked child."""
        self._stopping = True

    def _look(self) -> float | None:
        fence = self._fence
        if fence.ended is not None or self._failure is not None:
            return None
        try:
            done = self._pass(lambda log: log.cleaning_plan(self._clock.wall_ms()).is_due)
        except ClosedError:
            return None
        except PyreplogError as error:
            # As Kafka's "uncleanable": the log can be used, and stays as it is.
            self._failure = error
            LOGGER.error("%s is not compacted any more until it is opened again: %s", fence.name, error)
            return None
        return 0.0 if done is not None else BACKOFF_S

    # -- a pass --

    def run(self) -> Compaction:
        """Compact all that is committed now, and return the counts.

        The segment being written is closed first, so that its records are compacted too. Raises
        :class:`ConfigError` if the log is not compacted by its settings, :class:`CorruptLogError` for damage,
        :class:`StorageError`; the log is as before then, or partly compacted.
        """
        fence = self._fence
        with fence.lock.enter():
            self._batch.prepare_change()
            if not fence.log.config.compacts:
                raise ConfigError(
                    f"{fence.name} has cleanup.policy={fence.log.config.cleanup_policy}: open it with"
                    " config={'cleanup.policy': 'compact'} to compact it"
                )
            end = fence.log.end_offset
        self._group_commit.wait(end)
        with fence.lock.enter():
            self._batch.prepare_change()
            with fence:
                fence.log.close_active_segment()
            end = fence.log.end_offset
        total: Compaction | None = None
        while True:
            done = self._pass(lambda log: True)
            if done is None:
                assert total is not None, "the first pass always runs"
                return total
            total = done if total is None else total.followed_by(done)
            # A full map ends a pass early. Without progress the rest cannot be compacted now.
            if done.end_offset >= end or done.end_offset <= done.start_offset:
                return total

    def _pass(self, is_wanted: Callable[[Log], bool]) -> Compaction | None:
        """Make one pass if ``is_wanted`` says so of the log; else return None. As much as the map of keys allows."""
        fence = self._fence
        with ONE_PASS:
            with fence.lock.enter():
                fence.check()
                fence.repair()
                log = fence.log
                if not is_wanted(log):
                    return None
                plan = log.cleaning_plan(self._clock.wall_ms())
            # Without new records there may still be tombstones whose time is over.
            cleaner = Cleaner(log.disk, plan, os.urandom(16), self._go_on)
            end = cleaner.map_keys()
            whole = True
            for group in plan.groups(end):
                if not self._install(log, cleaner.clean(group)):
                    whole = False
                    break
            if whole:
                with fence.lock.enter():
                    if fence.log is log:
                        log.note_cleaned(end)
                        with fence:
                            self._root.checkpoint_cleaned_ends()
            return cleaner.result()

    def _install(self, log: Log, cleaned: CleanedSegment) -> bool:
        """Put ``cleaned`` in its place, and return whether the log still had its sources."""
        fence = self._fence
        with fence.lock.enter():
            if fence.log is not log or fence.is_raised or self._stopping or fence.ended is not None:
                with suppress(StorageError):  # a reopening may have removed them
                    log.discard(cleaned)
                self._go_on()
                return False
            with fence:
                return log.install(cleaned)

    def _go_on(self) -> None:
        if self._stopping:
            raise ClosedError(f"{self._fence.name} is being closed: compaction stopped, and the log is as it was")
