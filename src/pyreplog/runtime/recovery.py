"""Recovery: report how far the recovery of a root is, to a callback and, if it takes long, to the
log."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final

from pyreplog.log import Log, LogRoot
from pyreplog.ports import Clock
from pyreplog.runtime.logger import LOGGER
from pyreplog.system import OwnedLock
from pyreplog.values import RecoveryProgress, TopicPartition

__all__ = ["Recovery", "tell_torn"]

LONG_S: Final = 1.0
"""A recovery that takes longer is logged."""


class Recovery:
    """Report the recovery of one root while the root is opened: enter it, and hand it to
    ``LogRoot.open`` as its listener. Any thread."""

    def __init__(self, name: str, clock: Clock, progress: Callable[[RecoveryProgress], None] | None = None) -> None:
        """``name`` names the opened log or cluster. ``progress`` is called by one thread at a time;
        an exception of it ends the opening."""
        self.failure: BaseException | None = None
        self._name = name
        self._clock = clock
        self._progress = progress
        self._lock = OwnedLock()
        self._began_ns = -1
        self._told = False
        self._size = 0
        self._now = RecoveryProgress("", 0, "", 0, 0)

    def __enter__(self) -> Recovery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._told:
            how = "took" if error is None else "failed after"
            LOGGER.info(
                "%s: recovery %s %.1f s; %d bytes were looked through", self._name, how, self._elapsed_s(), self._size
            )

    def begin(self, topic_partition: TopicPartition, directory: str, size: int) -> None:
        """A scan begins."""
        with self._lock:
            if self._began_ns < 0:
                self._began_ns = self._clock.monotonic_ns()
            self._now = RecoveryProgress(*topic_partition, directory, 0, size)
            self._tell()

    def add(self, size: int) -> None:
        """The next piece was scanned. Bytes that are scanned twice count once."""
        with self._lock:
            self._size += size
            now = self._now
            self._now = now._replace(scanned_size=min(now.scanned_size + size, now.total_size))
            self._tell()

    def _tell(self) -> None:
        if self.failure is not None:
            raise self.failure
        if not self._told and self._elapsed_s() >= LONG_S:
            self._told = True
            done, total = self._now.scanned_size, self._now.total_size
            LOGGER.info(
                "%s was not closed cleanly and is recovered: %d of %d bytes of %s",
                self._name,
                done,
                total,
                self._now.directory,
            )
        if self._progress is not None:
            try:
                self._progress(self._now)
            except BaseException as error:
                self.failure = error
                raise

    def _elapsed_s(self) -> float:
        return (self._clock.monotonic_ns() - self._began_ns) / 1e9


def tell_torn(root: LogRoot, name: str, besides: Log | None = None) -> None:
    """Warn of the torn tails that recovery cut off when ``root`` was opened, except that of the partition ``besides``.
    ``name`` is the log, node or cluster that the root belongs to."""
    for log in root.logs.opened():
        if log.recovery.torn_size and log is not besides:
            found = log.recovery.in_words()
            LOGGER.warning(
                "%s: %s was not closed cleanly: recovered up to offset %d: %s",
                name,
                log.topic_partition,
                log.end_offset,
                found,
            )
