"""Following a log: its records, and then each new one as soon as it may be read.

The writer of this process wakes the followers of its log as soon as the high watermark moves. A
follower of another process's log is woken by the disk (inotify) when the mark is written. If the
disk cannot tell, or does not (a network file system), the follower looks again after one of the two
pauses below.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol

from pyreplog.errors import ClosedError
from pyreplog.ports import Disk, Watch
from pyreplog.record import Record
from pyreplog.runtime.background import release
from pyreplog.system import OwnedLock

__all__ = [
    "PAUSE_MAX_S",
    "PAUSE_MIN_S",
    "WATCHED_PAUSE_S",
    "FileWatchSignal",
    "JoinedSignal",
    "Followed",
    "ChangeSignal",
    "WriterSignal",
    "follow",
]

PAUSE_MIN_S: Final = 0.001
PAUSE_MAX_S: Final = 0.05
"""A follower that is not told of changes looks after 1 ms, then after twice as long each time, up
to this."""
WATCHED_PAUSE_S: Final = 0.25
"""A follower with a watch also looks this often: a network file system tells only of
changes by its own machine."""


class ChangeSignal(Protocol):
    """Tells one follower when there may be more to read."""

    told: Callable[[], None] | None
    """Called with each ``wake``, for a follower that does not wait in ``wait``. Any thread."""

    def wait(self, timeout: float | None) -> None:
        """Return when something changed since the last call, or ``wake`` was called, and at the
        latest after ``timeout`` seconds. It may return early."""
        ...

    def wake(self) -> None:
        """Have ``wait`` return. Any thread."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


class Followed(Protocol):
    """A log's view that can be followed."""

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        ...

    @property
    def end_offset(self) -> int:
        """The high watermark: readers may see the records below it."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the log was closed, so that no more records come."""
        ...

    def look(self) -> None:
        """See the records that were appended since, without causing a write or a sync. ClosedError
        if no more can come."""
        ...

    def news(self) -> ChangeSignal:
        """Return a signal that tells from now on when there may be more to read. The caller closes
        it."""
        ...

    def records(self, start: int, end: int) -> Iterator[Record]:
        """Return the records of the half-open range, each batch verified."""
        ...


class WriterSignal:
    """Signals of a log that this process writes: the writer calls ``wake``. A binary semaphore,
    held while there is no signal."""

    __slots__ = ("_forget", "_signal", "told")

    def __init__(self, forget: Callable[[WriterSignal], None]) -> None:
        """``forget`` removes the signal from the writer."""
        self._forget = forget
        #: See :class:`ChangeSignal`.
        self.told: Callable[[], None] | None = None
        self._signal = threading.Lock()
        self._signal.acquire()

    def wait(self, timeout: float | None) -> None:
        """See :class:`ChangeSignal`."""
        self._signal.acquire(timeout=-1 if timeout is None else max(min(timeout, threading.TIMEOUT_MAX), 0.0))

    def wake(self) -> None:
        """See :class:`ChangeSignal`."""
        release(self._signal)
        if self.told is not None:
            self.told()

    def close(self) -> None:
        """Remove it from the writer, which then wakes it no more."""
        self._forget(self)


class FileWatchSignal:
    """Signals of files that another process may write."""

    __slots__ = ("__weakref__", "_guard", "_pause", "_signal", "_wake", "_watch", "told")

    def __init__(self, disk: Disk, paths: list[str]) -> None:
        """Watch ``paths`` from now on."""
        self._wake = -1
        self._guard = OwnedLock()  # between `wake` and `close`: the number of a closed descriptor may be another file's
        self._watch: Watch | None = disk.watch(paths)
        if self._watch is not None:
            try:
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            except OSError:  # no descriptor is free: look again from time to time
                self._watch.close()
                self._watch = None
        self._signal = threading.Lock()
        self._signal.acquire()
        self._pause = PAUSE_MIN_S
        #: See :class:`ChangeSignal`.
        self.told: Callable[[], None] | None = None

    @property
    def watch(self) -> Watch | None:
        """The watch that an event loop can wait for; None if the disk cannot tell of changes."""
        return self._watch

    def pause(self) -> float:
        """Return the seconds after which to look again without a signal; more each time that
        nothing came."""
        if self._watch is not None:
            return WATCHED_PAUSE_S
        pause = self._pause
        self._pause = min(2 * pause, PAUSE_MAX_S)
        return pause

    def came(self) -> None:
        """Note that there was something new: look again soon."""
        self._pause = PAUSE_MIN_S

    def wait(self, timeout: float | None) -> None:
        """See :class:`ChangeSignal`."""
        pause = self.pause()
        if timeout is not None:
            pause = max(min(pause, timeout), 0.0)
        watch, wake = self._watch, self._wake
        if watch is None:
            self._signal.acquire(timeout=pause)
            return
        poll = select.poll()
        poll.register(watch.fileno(), select.POLLIN)
        poll.register(wake, select.POLLIN)
        if poll.poll(pause * 1000):
            watch.clear()
            with suppress(BlockingIOError):
                os.eventfd_read(wake)

    def wake(self) -> None:
        """See :class:`ChangeSignal`."""
        release(self._signal)
        with self._guard:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)
        if self.told is not None:
            self.told()

    def forked(self) -> None:
        """Take a new lock, because this process is a forked child and a thread of the parent may have held the old
        one."""
        self._guard = OwnedLock()

    def close(self) -> None:
        """Release the descriptors. REQUIRES that no thread waits."""
        with self._guard:
            watch, self._watch = self._watch, None
            wake, self._wake = self._wake, -1
        if watch is not None:
            watch.close()
        if wake >= 0:
            os.close(wake)

    def __del__(self) -> None:
        self.close()


class JoinedSignal(FileWatchSignal):
    """The signals of files that another process may write, and those of a writer in this process."""

    __slots__ = ("_signal_of_writer",)

    def __init__(self, disk: Disk, paths: list[str], signal: ChangeSignal) -> None:
        """Watch ``paths`` from now on, and take over ``signal``."""
        super().__init__(disk, paths)
        self._signal_of_writer = signal
        signal.told = self.wake

    def close(self) -> None:
        """Release both."""
        self._signal_of_writer.told = None
        self._signal_of_writer.close()
        super().close()


def follow(view: Followed, start: int, timeout: float | None) -> Iterator[Record]:
    """Yield the records from ``start`` on, and wait for more.

    It ends when none came for ``timeout`` seconds (None: never), and when ``view`` is closed.
    Raises the errors of reading, and ClosedError once the log can take no more records."""
    news = view.news()
    try:
        while True:
            end = view.end_offset
            for record in view.records(start, end):
                start = record.offset + 1
                yield record
            start = max(start, end)
            if not _wait(view, news, start, timeout):
                return
    except ClosedError:
        if not view.closed:
            raise
    finally:
        news.close()


def _wait(view: Followed, news: ChangeSignal, offset: int, timeout: float | None) -> bool:
    """Wait for a record at ``offset``. Return False if ``timeout`` passed first."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        view.look()
        if view.end_offset > offset:
            if isinstance(news, FileWatchSignal):
                news.came()
            return True
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        news.wait(left)
