"""SyncBatcher: small syncs of several disks that start at the same moment.

A file system writes its journal once for all syncs that start together. The caller that starts them
may also wait for them. If the process has no other work then, no Python thread takes part: threads
of the C library carry out the syncs, and the caller wakes once, at the end of the last one. In all
other cases the pools' threads sync. They also take over the unfinished syncs if the caller has to
stop waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyreplog._core import _platform
from pyreplog.system.file import Descriptor
from pyreplog.system.sync_pool import Loan, SyncPool

__all__ = ["SyncBatcher"]

WAIT_MAX_NS: Final = 2_000_000
"""How long the caller waits for the syncs that it started; a slow disk is left to the threads."""
_TURN_NS: Final = 1_000_000_000

_lib = _platform.lib
_ffi = _platform.ffi
_begin = _lib.rl_syncs_begin
_wait = _lib.rl_syncs_wait
_wait_below = _lib.rl_syncs_wait_below
_wake = _lib.rl_syncs_wake


class _SyncBatch:
    """The syncs that one call started. Belongs to one thread at a time, except ``handle``."""

    __slots__ = ("begun", "codes", "descriptors", "files", "handle", "left", "loans", "told", "writes")

    def __init__(self) -> None:
        handle = _lib.rl_syncs_new()
        if handle == _ffi.NULL:
            raise MemoryError
        self.handle: Any = _ffi.gc(handle, _lib.rl_syncs_free)
        self.files: Any = _ffi.new("rl_file *[]", _lib.RL_SYNCS_MAX)
        self.codes: Any = _ffi.new("int[]", _lib.RL_SYNCS_MAX)
        self.loans: list[Loan] = []
        """The lent files, each with the pool that owns them."""
        self.descriptors: list[Descriptor] = []
        self.writes: list[int] = []
        self.begun: list[int] = []
        """The result of starting the syncs; empty before."""
        self.told: list[int] = []
        """Indexes of the loans that were given back."""
        self.left = 0
        """Number of unfinished syncs at the last check."""

    def begin(self) -> bool:
        """Start syncs of the lent files; return False if none was started."""
        descriptors = self.descriptors = []
        for _, lent in self.loans:
            descriptors += lent
        count = len(descriptors)
        if not count or count > _lib.RL_SYNCS_MAX:
            return False
        files = self.files
        writes = self.writes = []
        for place, descriptor in enumerate(descriptors):
            writes.append(descriptor.writes)
            files[place] = descriptor.handle
        self.left = count
        # One call into C: no signal handler runs between the start and the note of it.
        self.begun.extend(map(_begin, (self.handle,), (files,), (count,)))
        return self.begun[0] == 0

    def end(self) -> None:
        """Give back the loans that have ended, with their results.

        If nothing was started, give back all loans. Loans are given back one by one, so that a disk
        that hangs does not delay the others. REQUIRES that ``codes`` were read if anything was
        started. A repeated call is harmless.
        """
        if not self.begun or self.begun[0]:
            for pool, lent in self.loans:
                pool.take_back(lent)
            return
        codes = _ffi.unpack(self.codes, len(self.descriptors))
        first = 0
        for number, (pool, lent) in enumerate(self.loans):
            start, first = first, first + len(lent)
            ended = codes[start:first]
            if number in self.told or -1 in ended:
                continue
            for place, code in enumerate(ended, start):
                if not code:
                    self.descriptors[place].writes_synced = self.writes[place]
            pool.end_lent(lent, ended)
            self.told.append(number)

    def rest(self) -> None:
        """Give back each loan as soon as it ends. Runs in a thread of a pool."""
        if self.begun and self.begun[0] == 0:
            left = _lib.RL_SYNCS_MAX + 1
            while left := _wait_below(self.handle, left, _TURN_NS, self.codes):
                self.end()
        self.end()


class SyncBatcher:
    """The syncs that the pools of several disks hold back, started together.

    :meth:`flush_and_wait` is for one thread at a time, :meth:`wake` for any thread.
    """

    __slots__ = ("_batch", "_spare", "_timeout_ns", "pools")

    def __init__(self) -> None:
        self.pools: list[SyncPool] = []
        """Pools that hold syncs back, or have lent them and not got them back. If there is one, the
        owner must call :meth:`flush_and_wait`.
        """
        self._batch: _SyncBatch | None = None
        self._spare: _SyncBatch | None = None
        self._timeout_ns = WAIT_MAX_NS
        """Of the present wait."""

    def flush_and_wait(self, timeout_ns: int, sleep: Callable[[Callable[[], object]], object] | None = None) -> None:
        """Start all syncs that are held back, and wait up to ``timeout_ns`` until they have ended.

        The wait also ends after :data:`WAIT_MAX_NS`, and at :meth:`wake`. Threads finish the rest;
        with ``timeout_ns`` 0 they do all of it. ``sleep`` gets the wait as a function, to call it
        unless other work has come. A call that a signal handler interrupts loses no sync:
        the next call takes it over.
        """
        if self._batch is not None:
            self._leave_to_thread()  # an earlier call was interrupted
        if timeout_ns > 0 and self._lend():
            self._timeout_ns = timeout_ns if timeout_ns < WAIT_MAX_NS else WAIT_MAX_NS
            if sleep is None:
                self._wait()
            else:
                sleep(self._wait)
            self._finish()
            return
        for pool in tuple(self.pools):
            pool.begin()

    def wake(self) -> None:
        """End the wait of :meth:`flush_and_wait`."""
        batch = self._batch
        if batch is not None:
            _wake(batch.handle)

    def _lend(self) -> bool:
        # Start the held syncs by the C library. False: not one was started.
        batch, self._spare = self._spare or _SyncBatch(), None
        self._batch = batch
        for pool in tuple(self.pools):
            pool.lend(batch.loans)
        if batch.begin():
            return True
        batch.end()
        self._batch = None
        return False

    def _wait(self) -> None:
        batch = self._batch
        assert batch is not None, "nothing was started"
        batch.left = _wait(batch.handle, self._timeout_ns, batch.codes)

    def _finish(self) -> None:
        # Report the results to the pools; a thread reports those of unfinished syncs later.
        batch = self._batch
        assert batch is not None, "nothing was started"
        if batch.left:
            batch.left = _wait(batch.handle, 0, batch.codes)
        batch.end()
        if batch.left:
            self._leave_to_thread()
            return
        self._batch = None
        batch.loans.clear()
        batch.descriptors = []  # a file that is closed now must not stay open until the next sync
        batch.begun.clear()
        batch.told.clear()
        self._spare = batch

    def _leave_to_thread(self) -> None:
        batch = self._batch
        assert batch is not None, "nothing was started"
        for number, (pool, _) in enumerate(batch.loans):
            if number not in batch.told:  # the thread comes from a pool whose disk is slow
                pool.employ(batch.rest)
                break
        self._batch = None
