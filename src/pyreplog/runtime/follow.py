"""Following a log: its records, and then each new one as soon as it may be read.

Who follows the log that its own process writes is woken by the writer, in the moment the high watermark moves. Who
follows somebody else's is told by the disk that the mark was written to (inotify); where the disk cannot tell, or
does not (a network file system), it looks again: see the two pauses below.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
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
    "Followed",
    "ChangeSignal",
    "WriterSignal",
    "follow",
]

PAUSE_MIN_S: Final = 0.001
PAUSE_MAX_S: Final = 0.05
"""Where nobody tells of changes, who waits looks after 1 ms, then after twice as long each time, up to this."""
WATCHED_PAUSE_S: Final = 0.25
"""Who is told of changes looks this often all the same: a network file system tells only of its own machine's."""


class ChangeSignal(Protocol):
    """Says when there may be more to read. Belongs to one follower."""

    told: Callable[[], None] | None
    """Called with each ``wake``, for who waits elsewhere than in ``wait``. Any thread."""

    def wait(self, timeout: float | None) -> None:
        """Return when something changed since the last call, or ``wake`` was called; after ``timeout`` seconds, or
        earlier, in any case."""
        ...

    def wake(self) -> None:
        """Any thread: have ``wait`` return."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


class Followed(Protocol):
    """What is followed: a log's view."""

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        ...

    @property
    def end_offset(self) -> int:
        """The high watermark: where what readers may see ends."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was closed: nothing comes any more."""
        ...

    def look(self) -> None:
        """Take notice of what was appended since, hurrying nobody; ClosedError where nothing can come any more."""
        ...

    def news(self) -> ChangeSignal:
        """Says, from now on, when there may be more to read. The caller closes it."""
        ...

    def records(self, start: int, end: int) -> Iterator[Record]:
        """Those of the half-open range, each batch verified."""
        ...


class WriterSignal:
    """Of the log that this process writes: the writer calls ``wake`` itself. A binary semaphore, held while there
    is none."""

    __slots__ = ("_forget", "_signal", "told")

    def __init__(self, forget: Callable[[WriterSignal], None]) -> None:
        """``forget`` ends it at the writer."""
        self._forget = forget
        #: Called with each ``wake``, for who waits elsewhere than in ``wait``. Any thread.
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
        """The writer wakes it no more."""
        self._forget(self)


class FileWatchSignal:
    """Of files that another process may write."""

    __slots__ = ("__weakref__", "_guard", "_pause", "_signal", "_wake", "_watch", "told")

    def __init__(self, disk: Disk, paths: list[str]) -> None:
        """Have news of ``paths`` from now on."""
        self._wake = -1
        self._guard = OwnedLock()  # between `wake` and `close`: a number of a closed descriptor may be somebody else's
        self._watch: Watch | None = disk.watch(paths)
        if self._watch is not None:
            try:
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            except OSError:  # no descriptor to spare: look again, instead
                self._watch.close()
                self._watch = None
        self._signal = threading.Lock()
        self._signal.acquire()
        self._pause = PAUSE_MIN_S
        #: Called with each ``wake``, for who waits elsewhere than in ``wait``. Any thread.
        self.told: Callable[[], None] | None = None

    @property
    def watch(self) -> Watch | None:
        """What an event loop may wait for; None where nobody tells."""
        return self._watch

    def pause(self) -> float:
        """Seconds after which to look again although nobody told; longer each time that nothing came."""
        if self._watch is not None:
            return WATCHED_PAUSE_S
        pause = self._pause
        self._pause = min(2 * pause, PAUSE_MAX_S)
        return pause

    def came(self) -> None:
        """There was something new: look soon again."""
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

    def wake(self) -> None:
        """See :class:`ChangeSignal`."""
        release(self._signal)
        with self._guard:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)
        if self.told is not None:
            self.told()

    def forked(self) -> None:
        """In the child of a fork: a guard that another thread of the parent held would never be free."""
        self._guard = OwnedLock()

    def close(self) -> None:
        """Release the descriptors. REQUIRES that nobody waits."""
        with self._guard:
            watch, self._watch = self._watch, None
            wake, self._wake = self._wake, -1
        if watch is not None:
            watch.close()
        if wake >= 0:
            os.close(wake)

    def __del__(self) -> None:
        self.close()


def follow(view: Followed, start: int, timeout: float | None) -> Iterator[Record]:
    """The records from ``start`` on, waiting for more: ends when none came for ``timeout`` seconds (None: never),
    and when ``view`` is closed. Raises what reading raises, and ClosedError once the log can take no more."""
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
    """Whether there is something at ``offset``; False when ``timeout`` passed first."""
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
