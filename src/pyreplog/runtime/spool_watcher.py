"""SpoolWatcher: notices when another process first stages a batch for the log that this process writes.

Most folders never have a spool, so the code that reads one is loaded only when needed. Until then the log's background
thread lists the folder now and then.
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
    """Watches one folder for a spool, and appends its batches with ``writer``. :meth:`stop` it before the writer is
    closed."""

    def __init__(self, disk: Disk, folder: str, clock: Clock, writer: LogWriter) -> None:
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._writer = writer
        self._said = False
        self._stopped = False
        self.owner: SpoolApplier | None = None
        """Appends the staged batches; None until the first spool file was seen."""

    def start(self) -> None:
        """Start watching."""
        self._writer.watch(self._look)

    def stop(self) -> None:
        """Stop watching, even if the background thread is looking just now. A batch that is being appended is finished
        first."""
        self._stopped = True
        if self.owner is not None:
            self.owner.stop()

    def _look(self) -> float | None:
        """List the folder, and start the :class:`SpoolApplier` if there is a spool. Return the seconds until the next
        look; None: no more."""
        try:
            if not any(name.startswith(SPOOL_PREFIX) for name in self._disk.list(self._folder)):
                return INTERVAL_S
            self._begin()
        except PyreplogError as error:  # no descriptor, no thread: try again soon
            if not self._said:
                self._said = True
                LOGGER.error("cannot read the spool of %s: %s", self._folder, error)
            return RETRY_S
        return None

    def _begin(self) -> None:
        from pyreplog.runtime.spool_applier import SpoolApplier, WriterAppender  # noqa: PLC0415  (see the module's docstring)
        from pyreplog.spool import Spool  # noqa: PLC0415

        if self.owner is None:
            writer = self._writer
            self.owner = SpoolApplier(
                Spool(self._disk, self._folder), lambda: WriterAppender(writer), self._clock, writer.keep_producers
            )
        if not self._stopped:
            self.owner.start()
