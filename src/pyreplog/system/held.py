"""HeldSyncs: small syncs of several disks that begin at the same moment, and who begins them may wait for them by itself.

A file system writes its journal once for all that begin together. Where nobody has anything else to do meanwhile, no thread of Python takes
part: the system's own carry the syncs out, and who waits wakes once, at the end of the last. The pools' threads do it in all other cases,
and for what is not over when whoever waited has to leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyreplog._core import _platform

if TYPE_CHECKING:
    from pyreplog.system.file import Descriptor
    from pyreplog.system.syncs import SyncPool, Waiting

    Loan: TypeAlias = tuple[SyncPool, Waiting]

__all__ = ["HeldSyncs"]

WAIT_MAX_NS: Final = 2_000_000
"""Who begins syncs waits for them so long: a slow disk is for the threads to wait for."""
_TURN_NS: Final = 1_000_000_000

_lib = _platform.lib
_ffi = _platform.ffi
_begin = _lib.rl_syncs_begin
_wait = _lib.rl_syncs_wait
_wait_below = _lib.rl_syncs_wait_below
_wake = _lib.rl_syncs_wake


class _Group:
    """The syncs of one beginning. Belongs to one thread at a time, except ``handle``."""

    __slots__ = ("begun", "codes", "descriptors", "files", "handle", "left", "loans", "told", "writes")

    def __init__(self) -> None:
        handle = _lib.rl_syncs_new()
        if handle == _ffi.NULL:
            raise MemoryError
        self.handle: Any = _ffi.gc(handle, _lib.rl_syncs_free)
        self.files: Any = _ffi.new("rl_file *[]", _lib.RL_SYNCS_MAX)
        self.codes: Any = _ffi.new("int[]", _lib.RL_SYNCS_MAX)
        self.loans: list[Loan] = []
        """Whose files these are, or were to be."""
        self.descriptors: list[Descriptor] = []
        self.writes: list[int] = []
        self.begun: list[int] = []
        """What beginning answered; empty before."""
        self.told: list[int] = []
        """The places of the loans that were given back."""
        self.left = 0
        """How many had not ended when that was asked last."""

    def begin(self) -> bool:
        """Begin what was lent; False where nothing was begun."""
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
        # One call into C: no signal handler comes between the beginning and its note.
        self.begun.extend(map(_begin, (self.handle,), (files,), (count,)))
        return self.begun[0] == 0

    def end(self) -> None:
        """Give back the loans that have ended, with what came of them: a disk that hangs is not for the others to wait for. All of them
        where nothing was begun. REQUIRES that ``codes`` were read otherwise. Again is harmless."""
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
        """In a thread of a pool: :meth:`end`, for each loan as soon as that can be."""
        if self.begun and self.begun[0] == 0:
            left = _lib.RL_SYNCS_MAX + 1
            while left := _wait_below(self.handle, left, _TURN_NS, self.codes):
                self.end()
        self.end()


class HeldSyncs:
    """What the pools of several disks hold back. :meth:`start`, :meth:`wait`, :meth:`finish` and :meth:`rescue` are for one thread at a
    time, the others for any."""

    __slots__ = ("_group", "_spare", "pools")

    def __init__(self) -> None:
        self.pools: list[SyncPool] = []
        """Those that hold something back, or lent it and have not got it back. Where there is one somebody has to do something."""
        self._group: _Group | None = None
        self._spare: _Group | None = None

    def begin(self) -> None:
        """Have threads carry out what is held back."""
        for pool in tuple(self.pools):
            pool.begin()

    def start(self) -> bool:
        """Begin what is held back, and then :meth:`wait` and :meth:`finish`. False: threads do all of it."""
        if self._group is not None:
            self.rescue()  # a former call was cut short
        group, self._spare = self._spare or _Group(), None
        self._group = group
        for pool in tuple(self.pools):
            pool.lend(group.loans)
        if group.begin():
            return True
        group.end()
        self._group = None
        self.begin()
        return False

    def wait(self, timeout_ns: int) -> None:
        """Return when all that :meth:`start` began has ended, at :meth:`wake`, or after ``timeout_ns``."""
        group = self._group
        assert group is not None, "nothing was started"
        group.left = _wait(group.handle, min(timeout_ns, WAIT_MAX_NS), group.codes)

    def wake(self) -> None:
        """Have who waits go on."""
        group = self._group
        if group is not None:
            _wake(group.handle)

    def finish(self) -> None:
        """Tell those concerned what came of it; of what has not ended, a thread will."""
        group = self._group
        assert group is not None, "nothing was started"
        if group.left:
            group.left = _wait(group.handle, 0, group.codes)
        group.end()
        if group.left:
            self.rescue()
            return
        self._group = None
        group.loans.clear()
        group.descriptors = []  # a file that is closed now must not stay open until the next sync
        group.begun.clear()
        group.told.clear()
        self._spare = group

    def rescue(self) -> None:
        """Who started was cut short, or has to leave: a thread does what is left to do. Harmless where nothing is."""
        group = self._group
        if group is None:
            return
        for number, (pool, _) in enumerate(group.loans):
            if number not in group.told:  # the thread is one of those whose disk is slow
                pool.employ(group.rest)
                break
        self._group = None
