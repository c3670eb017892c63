"""SpoolWatcher: sees when another process first stages something for the log that this one writes.

Most folders never have a spool, and what reads one is not even loaded for them: a listing of the folder, now and
then by the thread that the log has anyway, says when it is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyreplog.errors import PyreplogError
from pyreplog.log import SPOOL_PREFIX
from pyreplog.ports import Clock, Disk
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.logger import LOGGER

if TYPE_CHECKING:
    from pyreplog.runtime.spool_applier import SpoolApplier

__all__ = ["SpoolWatcher"]

INTERVAL_S: Final = 0.2
RETRY_S: Final = 1.0


class SpoolWatcher:
    """Of one folder and the one who writes its log. :meth:`stop` it before that is closed."""

    def __init__(self, disk: Disk, folder: str, clock: Clock, writer: LogWriter) -> None:
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._writer = writer
        self._said = False
        self._stopped = False
        self.owner: SpoolApplier | None = None
        """Appends what is staged, from when the first of it was seen."""

    def start(self) -> None:
        """Begin to look."""
        self._writer.watch(self._look)

    def stop(self) -> None:
        """Look no more, whoever may be looking just now. A batch being appended is finished first."""
        self._stopped = True
        if self.owner is not None:
            self.owner.stop()

    def _look(self) -> float | None:
        """The seconds until the next look; None: none is wanted any more."""
        try:
            if not any(name.startswith(SPOOL_PREFIX) for name in self._disk.list(self._folder)):
                return INTERVAL_S
            self._begin()
        except PyreplogError as error:  # no descriptor, no thread: it may be otherwise soon
            if not self._said:
                self._said = True
                LOGGER.error("the spool of %s cannot be looked at: %s", self._folder, error)
            return RETRY_S
        return None

    def _begin(self) -> None:
        from pyreplog.runtime.spool_applier import SpoolApplier, WriterAppender  # noqa: PLC0415  (a tenth of what an import loads)
        from pyreplog.spool import Spool  # noqa: PLC0415

        if self.owner is None:
            writer = self._writer
            self.owner = SpoolApplier(
                Spool(self._disk, self._folder), lambda: WriterAppender(writer), self._clock, writer.keep_producers
            )
        if not self._stopped:
            self.owner.start()
