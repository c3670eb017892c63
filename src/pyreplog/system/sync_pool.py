"""Background syncs: a few threads, and one fsync per file for all requests that wait for it.

One thread syncs a file at a time. A request that comes before the sync starts shares it. A request
that comes after the start waits for the next sync, because a sync promises nothing about bytes
written after its start. Different files are synced in parallel.

A pool may also lend syncs that it holds back (:mod:`pyreplog.system.sync_batcher`): the borrower
then syncs those files and reports the results.
"""

from __future__ import annotations

import atexit
import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pyreplog.errors import ClosedError, InternalError, StorageError
from pyreplog.ports import File, SyncDone
from pyreplog.system.descriptor_cache import hard_limit
from pyreplog.system.file import Descriptor, SystemFile, sync_data
from pyreplog.system.locks import OwnedLock
from pyreplog.system.signals import is_no_thread

__all__ = ["SyncPool"]

THREADS_MAX: Final = 4
HELD_SIZE_MAX: Final = 32 << 10
"""A request with more unsynced bytes than this is not held back: the disk works on it while the
process writes elsewhere.
"""
IDLE_S: Final = 5.0
"""A thread ends after this long without work."""
EXIT_S: Final = 10.0
"""How long the interpreter's exit waits for a running sync."""


class _Request:
    """One ``submit_sync``; it is done when ``left`` has no file any more."""

    __slots__ = ("error", "left", "token", "wake")

    def __init__(self, token: int, left: dict[Descriptor, SystemFile], wake: Callable[[], None]) -> None:
        self.token = token
        self.left = left
        self.wake = wake
        self.error: StorageError | None = None


Waiting: TypeAlias = dict[Descriptor, list[_Request]]
"""Files that wait for a thread, each with its requests."""


Loan: TypeAlias = tuple["SyncPool", Waiting]
"""Files that a pool has lent, with the pool."""


def _end(descriptor: Descriptor, requests: Sequence[_Request], code: int, ended: list[_Request]) -> None:
    """Record that a file's sync ended with ``code``; add finished requests to ``ended``.

    A repeated call is harmless.
    """
    for request in requests:
        # Set the error before the file is removed from the request. A call that is interrupted in
        # between and repeated must not report success.
        if code and request.error is None:
            request.error = StorageError(code, f"{os.strerror(code)} while syncing", request.left[descriptor].path)
        request.left.pop(descriptor, None)
        if not request.left:
            ended.append(request)


class SyncPool:
    """A pool of threads that sync, started when first needed.

    ``submit``, ``begin`` and ``take`` may be called from any thread.

    ``held`` lists the pools that hold syncs back; it belongs to their owner. With it, submitted
    syncs wait until the owner starts all held syncs, so that syncs of several disks start at the
    same moment: a file system writes its journal once for all that start together. Large syncs
    start at once.
    """

    def __init__(self, held: list[SyncPool] | None = None) -> None:
        self._held = held
        # Take the lock itself, not the condition: a condition's ``__enter__`` is Python code, in
        # which Ctrl-C could strike with the lock held.
        self._lock = OwnedLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: Waiting = {}
        self._running: dict[Descriptor, tuple[int, list[_Request]]] = {}
        self._lent: Waiting = {}
        self._errands: deque[Callable[[], None]] = deque()
        self.done: deque[SyncDone] = deque()
        """Ended syncs that :meth:`take` has not returned yet."""
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._token = 0
        self._stopped = False
        self.calls = 0
        """Number of sync calls; smaller than the number of requests if some shared a sync."""
        _pools.add(self)

    def submit(self, files: Sequence[File], wake: Callable[[], None]) -> int:
        """Start a sync; see :meth:`pyreplog.ports.Disk.submit_sync`.

        A file that is closed before the sync ends is synced all the same.
        """
        under_way = len(self._waiting) + len(self._running) + len(self._lent)
        if under_way and under_way + len(files) > hard_limit() // 2:
            # Each file keeps its descriptor until its sync has ended, and appends and marks need
            # descriptors too.
            raise StorageError(errno.EMFILE, "too many files are being synced at once", files[0].path)
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
        # Check now: a thread may have synced all of them before the end of this call.
        nothing = not left
        alone = False
        held = self._held
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
                    alone = self._run_somewhere()
                except BaseException:
                    self._withdraw(request)
                    raise
            elif self not in held:
                held.append(self)
        if nothing:
            wake()
        elif alone:
            self._work_here(request)
        return token

    def _withdraw(self, request: _Request) -> None:
        # REQUIRES the lock. No thread will do this sync; the caller gets an error.
        for descriptor in request.left:
            requests = self._waiting.get(descriptor)
            if requests is not None and request in requests:
                requests.remove(request)
                if not requests:
                    del self._waiting[descriptor]

    def begin(self) -> None:
        """Start the syncs that were held back, then remove this pool from the held list.

        The removal is last, so that an interrupted call leaves the pool listed. The pool also stays
        listed if new syncs arrived while this thread synced because no other could be started.
        """
        with self._lock:
            alone = bool(self._waiting) and self._run_somewhere()
        if alone:
            self._work_here()
        with self._lock:
            if self._held is not None and self in self._held and (self._threads or not self._waiting):
                self._held.remove(self)

    def lend(self, loans: list[Loan]) -> None:
        """Lend the waiting syncs, and add them to ``loans``.

        Nothing is lent while a thread of this pool syncs, or while an earlier loan is not given
        back.
        """
        with self._lock:
            if self._waiting and not self._running and not self._lent:
                loans.append((self, self._waiting))
                self._lent, self._waiting = self._waiting, {}

    def end_lent(self, lent: Waiting, codes: Sequence[int]) -> None:
        """Take back ``lent`` after its syncs ended, and notify the waiting callers.

        ``codes`` has 0 or an errno for each file. A repeated call is harmless.
        """
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
            # Last, so that a repeated call after an interruption finds it there.
            if self._lent is lent:
                self._lent = {}
            alone = self._go_on()
        if alone:
            self._work_here()

    def take_back(self, lent: Waiting) -> None:
        """Take back ``lent`` although no sync of it started: it waits again.

        Requests that were added since wait with it. A repeated call is harmless.
        """
        with self._lock:
            if self._lent is lent:
                for descriptor, requests in lent.items():
                    requests.extend(
                        [request for request in self._waiting.get(descriptor, ()) if request not in requests]
                    )
                self._waiting, self._lent = {**self._waiting, **lent}, {}
            alone = self._go_on()
        if alone:
            self._work_here()

    def _go_on(self) -> bool:
        # REQUIRES the lock. After a loan came back, waiting syncs are held as before, or start.
        # Returns what `_run_somewhere` returns.
        held = self._held
        if held is None or self not in held:
            return bool(self._waiting) and self._run_somewhere()
        if not self._waiting:
            held.remove(self)
        return False

    def employ(self, errand: Callable[[], None]) -> None:
        """Have a thread run ``errand``."""
        with self._lock:
            self._errands.append(errand)
            alone = self._run_somewhere()
        if alone:
            self._work_here()

    def take(self) -> Sequence[SyncDone]:
        """Return the syncs that ended since the last call, oldest first."""
        taken: list[SyncDone] = []
        for _ in range(len(self.done)):
            taken.append(self.done.popleft())
        return taken

    def stop(self, timeout_s: float = 0.0) -> None:
        """Accept no more syncs, finish the queued ones, and wait up to ``timeout_s`` for them."""
        with self._lock:
            self._stopped = True
            alone = bool(self._waiting) and self._run_somewhere()
            self._changed.notify_all()
            threads = list(self._threads)
        if alone:
            self._work_here()
        for thread in threads:
            if timeout_s and thread is not threading.current_thread():
                thread.join(timeout_s)

    def abandon(self) -> None:
        """Empty this pool in a forked child: its threads and waiting callers are all in the parent."""
        self._lock = OwnedLock()
        self._changed = threading.Condition(self._lock)
        self._stopped = True
        self._threads.clear()
        self._errands.clear()

    def _run_somewhere(self) -> bool:
        # REQUIRES the lock. An idle thread does the work, or a new one if all are busy. Returns
        # True if no thread can be started (a limit, or an interpreter that ends) and none runs: the
        # caller must then call `_work_here` without the lock.
        if self._idle:
            self._changed.notify()
            return False
        if len(self._threads) >= THREADS_MAX:
            return False
        # A daemon, so that a disk that hangs does not keep the process from ending; `_at_exit`
        # waits for the others.
        thread = threading.Thread(target=self._work, name="pyreplog-sync", daemon=True)
        try:
            self._threads.append(thread)
            thread.start()
            return False
        except BaseException as error:  # no thread can be started, or Ctrl-C
            if thread.ident is None and thread in self._threads:
                self._threads.remove(thread)
            if not is_no_thread(error) and not (isinstance(error, MemoryError) and self._threads):
                raise
        return not self._threads

    def _work_here(self, own: _Request | None = None) -> None:
        # Do the work in the caller's thread. If Ctrl-C strikes, the caller's `own` request is
        # withdrawn, and the requests of other callers are finished before the exception goes on.
        try:
            self._work(0.0)
        except BaseException:
            with self._lock:
                self._give_back()
                if own is not None:
                    self._withdraw(own)
            self._work(0.0)
            raise

    def _give_back(self) -> None:
        # REQUIRES the lock. The requests that this thread has taken wait again.
        for descriptor, (thread_id, requests) in list(self._running.items()):
            if thread_id == threading.get_ident():
                del self._running[descriptor]
                later = self._waiting.get(descriptor, ())
                self._waiting[descriptor] = [*requests, *(one for one in later if one not in requests)]

    def _next(self) -> tuple[Descriptor, list[_Request]] | None:
        for descriptor, requests in self._waiting.items():
            if descriptor not in self._running and descriptor not in self._lent:
                self._running[descriptor] = (threading.get_ident(), requests)
                del self._waiting[descriptor]
                return descriptor, requests
        return None

    def _work(self, idle_s: float = IDLE_S) -> None:
        # Work until there was no work for `idle_s`.
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
                    # Not if Ctrl-C struck during the start.
                    if threading.current_thread() in self._threads:
                        self._threads.remove(threading.current_thread())
                    if self._stopped:
                        self._changed.notify_all()  # other threads may wait for this one's work
                    return
                if found is not None:
                    descriptor, requests = found
                    self.calls += 1
                if idle_s and (self._waiting or self._errands):  # otherwise this thread continues
                    self._run_somewhere()
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
                # Drop the references under the lock: a caller that learns that all of a request is
                # synced must not find one of its files still held by a slower thread.
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
    # The threads stayed in the parent, and one of them may have held the lock at the fork: this
    # code must not wait for them.
    for pool in list(_pools):
        pool.abandon()
    _pools.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
