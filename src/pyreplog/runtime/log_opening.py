"""LogOpening: one call of ``open_log``, which leaves no folder locked if it fails at any step."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from pyreplog.errors import ConfigError, LockedError, PyreplogError
from pyreplog.runtime.at_exit import forget, remembered
from pyreplog.runtime.folder_opening import (
    check_clock,
    check_disk,
    check_progress,
    disk_of,
    folder_of,
    open_for_reading,
    open_for_writing,
)
from pyreplog.runtime.locking import log_wait
from pyreplog.runtime.log_place import LogPlace
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.open_options import OpenOptions, ViewOptions, WriterOptions
from pyreplog.runtime.spool_watcher import SpoolWatcher
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView
from pyreplog.system import SystemClock, anchored

__all__ = ["LogOpening", "log_name"]

T = TypeVar("T")
MakeLog = Callable[[str, WriterView | ReaderView | CommittedView, LogWriter | None, SpoolWatcher | None, LogPlace], T]


def log_name(folder: str) -> str:
    """Return what errors call a log: it is named by the folder that it was opened by."""
    return f"the log {folder!r}"


class LogOpening:
    """Open one log by its folder and options, in either mode."""

    def __init__(self, path: str | os.PathLike[str], options: OpenOptions) -> None:
        """Raises :class:`ConfigError` for impossible options."""
        self._folder = folder = folder_of(path)
        self._options = options
        self._reading = ViewOptions(options.isolation, options.above_high_watermark, options.max_batch_bytes)
        check_progress(options.progress)
        check_disk(options.disk)
        check_clock(options.clock)
        self._place = anchored(folder) if options.disk is None else folder
        self._disk = disk_of(options.permissions, options.disk)
        self._clock = SystemClock() if options.clock is None else options.clock
        self._wait = log_wait(folder, options.lock_timeout)

    def open(self, mode: str, make: MakeLog[T]) -> T:
        """Return the log that ``make`` makes of its folder, view, writer, spool watcher and place."""
        if mode == "r":
            return self._open_to_read(make)
        if self._reading.above_high_watermark:
            raise ConfigError(
                "above_high_watermark belongs to mode='r': the writer's opening decides what becomes of the records"
                " above it"
            )
        if mode != "a":
            raise ConfigError(f"mode is {mode!r}; it must be 'a' (append and read) or 'r' (read only)")
        return self._open_to_write(make)

    def _open_to_read(self, make: MakeLog[T]) -> T:
        options = self._options
        options.check_reading()
        reader = open_for_reading(self._disk, self._place, options.topic, options.partition)
        return make(self._folder, self._reading.view_of(reader, self._disk), None, None, self._where())

    def _open_to_write(self, make: MakeLog[T]) -> T:
        # The writer is noted in `made` in the step that makes it: an exception of a signal handler
        # must not leave its folder locked.
        made: list[LogWriter] = []
        watcher: SpoolWatcher | None = None
        attempt = partial(
            open_for_writing,
            self._disk,
            self._clock,
            self._place,
            WriterOptions.of(self._options),
            log_name(self._folder),
            self._options.progress,
            made,
        )
        try:
            writer = self._wait.call(partial(self._open_or_take_over, attempt))
            if self._options.disk is None:  # other processes do not reach a simulated disk
                watcher = SpoolWatcher(self._disk, self._place, self._clock, writer)
            whole = WriterView(writer, self._reading.max_batch_bytes)
            view = CommittedView(whole) if self._reading.committed else whole
            return make(self._folder, view, writer, watcher, self._where())
        except BaseException:
            if watcher is not None:
                watcher.stop()
            for writer in made:
                with suppress(PyreplogError):
                    writer.close()
                forget(writer)
            raise

    def _where(self) -> LogPlace:
        return LogPlace(self._disk, self._place, self._clock, self._reading)

    def _open_or_take_over(self, attempt: Callable[[], LogWriter]) -> LogWriter:
        try:
            return attempt()
        except LockedError:
            if not self._close_abandoned():
                raise
        return attempt()

    def _close_abandoned(self) -> bool:
        """Close the log of this folder that this process opened, never closed, and holds no more
        (``open_log(path).append(value)``, a notebook's cell run twice). Return whether there was
        one."""
        for writer in remembered():
            if isinstance(writer, LogWriter) and writer.abandoned is not None and writer.folder == self._place:
                writer.abandoned()
                return True
        return False
