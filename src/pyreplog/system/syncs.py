"""Syncs in the background: a few threads, one call per file for all who wait for it.

A file is synced by one thread at a time. Whoever asks while its sync has not begun shares it; whoever asks after it began waits for
the next one, because a sync promises nothing about what was written after its start. Different files are synced side by side.

What was held back may also be lent (:mod:`pyreplog.system.held`): then somebody else syncs those files, and says so.
"""

from __future__ import annotations

import atexit
import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from pyreplog.errors import ClosedError, InternalError, NoThreadError, StorageError
from pyreplog.interruptions import is_ending, is_no_thread
from pyreplog.mutex import new_mutex
from pyreplog.ports import File, SyncDone
from pyreplog.system.file import Descriptor, SystemFile, sync_data
from pyreplog.system.shelf import hard_limit

if TYPE_CHECKING:
    from pyreplog.system.held import HeldSyncs, Loan

__all__ = ["SyncPool"]

THREADS_MAX: Final = 4
HELD_SIZE_MAX: Final = 32 << 10
"""Where more than so many bytes wait for a sync it is not held back: it keeps the disk busy while others do their writing."""
IDLE_S: Final = 5.0
"""A thread that had nothing to do for this long ends."""
EXIT_S: Final = 10.0
"""How long the interpreter's exit waits for a sync that is under way."""


class _Request:
    """One ``submit_sync``: done when none of its files is left."""

    __slots__ = ("error", "left", "token", "wake")

    def __init__(self, token: int, left: dict[Descriptor, SystemFile], wake: Callable[[], None]) -> None:
        self.token = token
        self.left = left
        self.wake = wake
        self.error: StorageError | None = None


Waiting: TypeAlias = dict[Descriptor, list[_Request]]
"""Files that wait for a thread, and the requests that wait for each."""


def _end(descriptor: Descriptor, requests: Sequence[_Request], code: int, ended: list[_Request]) -> None:
    """Its sync ended with ``code``: add the requests that are done by that to ``ended``. Again is harmless."""
    for request in requests:
        if code and request.error is None:  # before it leaves: who is cut short in between, and does this again, must not take it for done
            request.error = StorageError(code, f"{os.strerror(code)} while syncing", request.left[descriptor].path)
        request.left.pop(descriptor, None)
        if not request.left:
            ended.append(request)


class SyncPool:
    """Threads that sync, started when first needed. ``submit``, ``begin`` and ``take`` from any thread.

    ``held``: of its owner. What is submitted then waits until somebody begins all that is held there: so that syncs of several disks begin
    at the same moment. A file system writes its journal once for all that begin together. Large ones begin at once.
    """

    def __init__(self, held: HeldSyncs | None = None) -> None:
        self._held = held
        # Entered by itself, not by way of the condition: that is Python, in which Ctrl-C could strike with the lock held.
        self._lock = new_mutex()
        self._changed = threading.Condition(self._lock)
        self._waiting: Waiting = {}
        self._running: dict[Descriptor, None] = {}
        self._lent: Waiting = {}
        self._errands: deque[Callable[[], None]] = deque()
        self.done: deque[SyncDone] = deque()
        """What ended and was not taken."""
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._token = 0
        self._stopped = False
        self.calls = 0
        """Sync calls made; fewer than requests where they were shared."""
        _pools.add(self)

    def submit(self, files: Sequence[File], wake: Callable[[], None]) -> int:
        """Begin; see :meth:`pyreplog.ports.Disk.submit_sync`. A file that is closed meanwhile is synced all the same."""
        under_way = len(self._waiting) + len(self._running) + len(self._lent)
        if under_way and under_way + len(files) > hard_limit() // 2:
            # Each keeps its descriptor until it has ended: whoever else needs one, for an append or a mark, has to find it.
            raise StorageError(errno.EMFILE, "too many files are being synced", files[0].path)
        left: dict[Descriptor, SystemFile] = {}
        size = 0
        for file in files:
            if not isinstance(file, SystemFile):
                raise InternalError(f"{file.path} is a file of another disk")
            descriptor = file.descriptor
            if descriptor.process.left:
                raise descriptor.process.refuse(file.path)
            if descriptor.fd < 0:
                raise ClosedError(f"{file.path} is closed")
            left[descriptor] = file
            size += descriptor.writes - descriptor.writes_synced
        nothing = not left  # asked now: a thread may be done with all of them by the end
        held = self._held
        is_mine = False
        with self._lock:
            if self._stopped:
                raise ClosedError("the disk is closed")
            self._token = token = self._token + 1
            request = _Request(token, left, wake)
            waiting = self._waiting
            for descriptor in left:
                requests = waiting.get(descriptor)
                if requests is None:
                    waiting[descriptor] = [request]
                else:
                    requests.append(request)
            if nothing:
                self.done.append(SyncDone(token, None))
            elif held is None or size > HELD_SIZE_MAX:
                try:
                    is_mine = self._employ()
                except BaseException:
                    self._withdraw(request)
                    raise
            elif self not in held.pools:
                held.pools.append(self)
        if nothing:
            wake()
        if is_mine:
            self._work(0.0)
        return token

    def _withdraw(self, request: _Request) -> None:
        # REQUIRES the lock. Nobody will do it, and who asked is told so.
        for descriptor in request.left:
            requests = self._waiting.get(descriptor)
            if requests is not None and request in requests:
                requests.remove(request)
                if not requests:
                    del self._waiting[descriptor]

    def begin(self) -> None:
        """Begin what was held back, and leave the list; last, so that who is interrupted before finds it there. Where no thread is to be
        had the caller does it: those who asked for it were not refused, and a cluster could not be closed."""
        with self._lock:
            try:
                is_mine = bool(self._waiting) and self._employ()
            except NoThreadError:
                is_mine = True
            if self._held is not None and self in self._held.pools:
                self._held.pools.remove(self)
        if is_mine:
            self._work(0.0)

    def lend(self, loans: list[Loan]) -> None:
        """Lend what waits, and enter that into ``loans``; not while a thread is at work here, nor what was lent before is out."""
        with self._lock:
            if self._waiting and not self._running and not self._lent:
                loans.append((self, self._waiting))
                self._lent, self._waiting = self._waiting, {}

    def end_lent(self, lent: Waiting, codes: Sequence[int]) -> None:
        """All of ``lent`` was synced, or failed: ``codes`` has 0 or an errno for each. Tells who waits. Again is harmless."""
        ended: list[_Request] = []
        with self._lock:
            for (descriptor, requests), code in zip(lent.items(), codes, strict=True):
                _end(descriptor, requests, code, ended)
            self.calls += len(lent)
        for request in ended:
            self.done.append(SyncDone(request.token, request.error))
        for request in ended:
            request.wake()
        with self._lock:
            if self._lent is lent:  # last, so that who is interrupted before finds it there
                self._lent = {}
            is_mine = self._go_on()
        if is_mine:
            self._work(0.0)

    def take_back(self, lent: Waiting) -> None:
        """Nothing of ``lent`` was even begun: it waits as before, and what was added since with it. Again is harmless."""
        with self._lock:
            if self._lent is lent:
                for descriptor, requests in lent.items():
                    requests.extend([request for request in self._waiting.get(descriptor, ()) if request not in requests])
                self._waiting, self._lent = {**self._waiting, **lent}, {}
            is_mine = self._go_on()
        if is_mine:
            self._work(0.0)

    def _go_on(self) -> bool:
        # REQUIRES the lock. Something came back: what waits is held as before, or for the threads, or the caller's as of `_employ`.
        held = None if self._held is None else self._held.pools
        if held is not None and self in held:
            if not self._waiting:
                held.remove(self)
            return False
        return bool(self._waiting) and self._employ()

    def employ(self, errand: Callable[[], None]) -> None:
        """Have a thread do ``errand``."""
        with self._lock:
            self._errands.append(errand)
            is_mine = self._employ()
        if is_mine:
            self._work(0.0)

    def take(self) -> Sequence[SyncDone]:
        """What ended since the last call, oldest first."""
        taken: list[SyncDone] = []
        for _ in range(len(self.done)):
            taken.append(self.done.popleft())
        return taken

    def stop(self, timeout_s: float = 0.0) -> None:
        """Take nothing more on, finish what is queued, and wait up to ``timeout_s`` for it."""
        with self._lock:
            self._stopped = True
            try:
                is_mine = bool(self._waiting) and self._employ()
            except NoThreadError:
                is_mine = True
            self._changed.notify_all()
            threads = list(self._threads)
        if is_mine:
            self._work(0.0)
        for thread in threads:
            if timeout_s and thread is not threading.current_thread():
                thread.join(timeout_s)

    def abandon(self) -> None:
        """In a forked child: a copy of a pool whose threads and waiters are all in the parent."""
        self._lock = new_mutex()
        self._changed = threading.Condition(self._lock)
        self._stopped = True
        self._threads.clear()
        self._errands.clear()

    def _employ(self) -> bool:
        # REQUIRES: the condition is held. One more thread only where all are busy. True: an interpreter that ends starts none, so it is the
        # caller's to do, by `_work(0.0)`, once it has let the condition go.
        if self._idle:
            self._changed.notify()
        elif len(self._threads) < THREADS_MAX:
            # A daemon, so that a disk that hangs does not keep the process from ending; `_at_exit` waits for the others.
            thread = threading.Thread(target=self._work, name="pyreplog-sync", daemon=True)
            try:
                self._threads.append(thread)
                thread.start()
            except BaseException as error:  # no thread is to be had, or Ctrl-C
                if thread.ident is None and thread in self._threads:
                    self._threads.remove(thread)
                if (is_no_thread(error) or isinstance(error, MemoryError)) and self._threads:
                    return False  # those that there are do it
                if is_ending(error):
                    return True
                if is_no_thread(error):
                    raise NoThreadError("to sync files") from error
                raise
        return False

    def _next(self) -> tuple[Descriptor, list[_Request]] | None:
        for descriptor in self._waiting:
            if descriptor not in self._running and descriptor not in self._lent:
                return descriptor, self._waiting.pop(descriptor)
        return None

    def _work(self, idle_s: float = IDLE_S) -> None:
        # Until there was nothing to do for `idle_s`.
        while True:
            with self._lock:
                while (found := self._next()) is None and not self._errands:
                    if not idle_s or (self._stopped and not self._waiting):
                        break
                    self._idle += 1
                    woken = self._changed.wait(idle_s)
                    self._idle -= 1
                    if not woken and not self._waiting and not self._errands:
                        break
                errand = self._errands.popleft() if found is None and self._errands else None
                if found is None and errand is None:
                    if threading.current_thread() in self._threads:  # not where Ctrl-C struck while it was started
                        self._threads.remove(threading.current_thread())
                    if self._stopped:
                        self._changed.notify_all()  # others may wait for what this one finished
                    return
                if found is not None:
                    descriptor, requests = found
                    self._running[descriptor] = None
                    self.calls += 1
                if idle_s and (self._waiting or self._errands):  # else it goes on itself
                    self._employ()
            if errand is not None:
                errand()
                del errand
                continue
            code = sync_data(descriptor)
            ended: list[_Request] = []
            with self._lock:
                del self._running[descriptor]
                _end(descriptor, requests, code, ended)
                if descriptor in self._waiting:
                    self._changed.notify()
                # Still in here: who hears that all of a request is synced must not find one of its files held by a thread that was slower.
                del descriptor, found
            for request in ended:
                self.done.append(SyncDone(request.token, request.error))
            for request in ended:
                request.wake()


_pools: weakref.WeakSet[SyncPool] = weakref.WeakSet()


def _at_exit() -> None:
    for pool in list(_pools):
        pool.stop(EXIT_S)


def _in_child() -> None:
    # The threads stayed in the parent, and one of them may have held the lock when it was copied: nothing here may wait for them.
    for pool in list(_pools):
        pool.abandon()
    _pools.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
