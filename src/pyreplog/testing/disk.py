"""A disk in memory that loses unsynced data in a crash, and fails calls on request.

**Legal after power loss** (:meth:`SimDisk.crash`), the pessimistic reading of POSIX:

* data that :meth:`SimFile.sync` or a completed sync covered is there, complete, with its length;
* a write or truncation after that is kept, dropped or torn: at any byte, in any set of 512-byte sectors, or with
  the length grown but the bytes zero or arbitrary. Bytes that were not written to are unchanged. Any order is
  possible: a later piece may survive although an earlier one is lost;
* a name made, renamed or removed since the last :meth:`SimDisk.sync_directory` of *its folder* is there or not.
  Syncing a file does not sync its name. A rename is atomic (the new name holds the whole old file or the whole new
  one), but the old name may remain too. The name of a folder behaves as that of a file: without it everything in
  the folder is gone;
* the boot id changes, locks are gone.

**Legal after a process kill** (:meth:`SimDisk.kill`, :meth:`SimDisk.snapshot`): all written data is shown and no
more of it is durable than before; a write in progress may be there in part; handles and locks are gone; the boot id
stays.

**Legal while running**: any call fails with any errno (:meth:`SimDisk.fail`); a failing write may have written a
part; a failing sync leaves the data shown but never durable, and a second sync reports success (a sync that finds no
file descriptor never began, and changes nothing); reads fail; bits flip (:meth:`SimDisk.flip`); a sync takes
arbitrarily long, and syncs end in any order. The real disk never raises EINTR; injected here it is an error like any
other.

**Not modelled**: sectors that a power loss makes unreadable, writes to a wrong place, disks that report syncs that
they did not do.

Not thread-safe. Deterministic: all randomness comes from the given ``random``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from typing_extensions import Buffer

from pyreplog.errors import ClosedError, InternalError, LockedError, StorageError
from pyreplog.ports import (
    HOLDER_TEXT_SIZE,
    NO_DESCRIPTORS_ERRNOS,
    Clock,
    File,
    Lock,
    R,
    SharedFile,
    Stat,
    Store,
    SyncDone,
    T,
)
from pyreplog.system import OwnedLock
from pyreplog.testing.faults import Call, Fault
from pyreplog.testing.file_tree import FileTree, storage_error
from pyreplog.testing.shared_file import SharedLocks, SimSharedFile
from pyreplog.testing.storage import Folder, Inode, PendingWrite
from pyreplog.testing.store import SimStore

__all__ = ["SimDisk", "SimFile", "SimLock"]

_reserve_lock: Final = OwnedLock()


class SimFile:
    """A :class:`~pyreplog.ports.File` of a :class:`SimDisk`. :meth:`SimDisk.kill` makes it unusable."""

    __slots__ = ("_closed", "_disk", "_generation", "_inode", "_path", "_write")

    def __init__(self, disk: SimDisk, path: str, inode: Inode, *, write: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._write = write
        self._closed = False
        self._generation = disk.generation

    @property
    def path(self) -> str:
        """The path by which it was opened."""
        return self._path

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write all of ``parts``. If a fault strikes, only the first bytes may be written."""
        self._check()
        if not self._write:
            raise StorageError(errno.EBADF, f"{os.strerror(errno.EBADF)} while writing at byte {position}", self._path)
        self._disk.write(self._path, self._inode, position, b"".join(parts))

    def read_at(self, position: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``position``; fewer only at the end of the file."""
        self._check()
        self._disk.begin("read", self._path, position)
        if position < 0 or size < 0:
            raise StorageError(
                errno.EINVAL, f"{os.strerror(errno.EINVAL)} while reading {size} bytes at byte {position}", self._path
            )
        return memoryview(bytes(self._inode.data[position : position + size]))

    def sync(self) -> None:
        """Make the content stable."""
        self._check()
        self._disk.sync(self._path, self._inode)

    def size(self) -> int:
        """Return the length of the file in bytes."""
        self._check()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        """Make the file exactly ``size`` bytes long; new bytes are zeros."""
        self._check()
        if not self._write or size < 0:
            raise StorageError(
                errno.EINVAL, f"{os.strerror(errno.EINVAL)} while truncating to {size} bytes", self._path
            )
        self._disk.truncate(self._path, self._inode, size)

    def start_sync(self, position: int, size: int) -> None:
        """Do nothing: written data may reach the disk at any moment anyway. If a fault strikes, every later sync
        fails."""
        self._check()
        self._disk.start_sync(self._path, self._inode, position)

    def reserve(self, position: int, size: int) -> None:
        """Do nothing: a simulated file takes only the space of its content."""
        self._check()

    def drop_cached(self) -> None:
        """Show the content of the disk, with the pending writes on top of it."""
        self._check()
        self._inode.drop_cached()

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            if self._generation == self._disk.generation:
                self._disk.begin("close", self._path)

    def opened_inode(self, disk: SimDisk) -> Inode:
        """Return the content that a sync of this file syncs. Raises :class:`ClosedError` if the file is closed,
        :class:`InternalError` if it belongs to another disk."""
        self._check()
        if self._disk is not disk:
            raise InternalError(f"{self._path} is a file of another disk")
        return self._inode

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._path} is closed")
        if self._generation != self._disk.generation:
            raise ClosedError(f"{self._path}: the process that opened it was killed")


class SimLock:
    """A held lock of a :class:`SimDisk`."""

    __slots__ = ("_disk", "_inode", "is_named", "text_position")

    def __init__(self, disk: SimDisk, inode: Inode, *, is_named: bool, text_position: int | None = None) -> None:
        self._disk = disk
        self._inode = inode
        self.is_named = is_named
        """Whether its holder wrote its name into the file."""
        self.text_position = text_position
        """Where in the file, if that has other content too."""

    @property
    def identity(self) -> tuple[int, int]:
        """The locked file, as in :class:`Stat`."""
        return 0, self._inode.number

    def release(self) -> None:
        """Release the lock. Releasing twice is harmless."""
        self._disk.unlock(self._inode, self)


class _Sync(NamedTuple):
    """A submitted sync that has not ended: its files, and the last sequence number that it covers."""

    files: list[tuple[str, Inode]]
    sequence: int
    wake: Callable[[], None]


class SimDisk:
    """A :class:`~pyreplog.ports.Disk` in memory. The docstring of the module lists the damage that it may do.

    ``capacity`` limits the bytes in all files and reservations; a call beyond it raises ENOSPC (None: no limit).
    ``clock`` gives the modification times. If ``manual``, syncs end only by :meth:`complete`; otherwise the next
    :meth:`poll` ends all of them, in an order drawn from ``random``.
    """

    def __init__(
        self,
        random: Random | None = None,
        *,
        capacity: int | None = None,
        clock: Clock | None = None,
        manual: bool = False,
    ) -> None:
        self.random = random if random is not None else Random(0)
        self.capacity = capacity
        self.clock = clock
        self.manual = manual
        self.calls = 0
        """The number of calls so far, of all kinds."""
        self.openings = 0
        self.generation = 0
        """The number of calls of :meth:`kill`."""
        self.observer: Callable[[Call], None] | None = None
        """Called with each call before it happens. It may use :meth:`crash` and :meth:`snapshot`, which do not count
        as calls."""
        self.trace: list[str] | None = None
        """If set to a list, the disk appends a line for each call."""
        self.syncs = 0
        """The number of file syncs that succeeded."""
        self._tree = FileTree()
        self._faults: list[Fault] = []
        self._locks: dict[Inode, tuple[str, SimLock]] = {}
        self._shared_locks = SharedLocks()
        self._pending: dict[int, _Sync] = {}
        self._done: list[SyncDone] = []
        self._token = 0

    # Faults ---------------------------------------------------------------------------------------

    def fail(
        self,
        kind: str = "*",
        path: str = "*",
        *,
        nth: int = 1,
        times: int | None = 1,
        error: int = errno.EIO,
        partial: int = 0,
    ) -> Fault:
        """Let matching calls fail with the errno ``error``: the ``nth`` from now, and ``times`` in all from there on.

        ``times=None`` means for ever. ``kind`` is a pattern over: read write truncate sync submit_sync create open
        close stat list rename remove make_directory remove_directory sync_directory lock. ``sync`` is the sync of
        one file, also of a submitted one; ``submit_sync`` is the call that submits. ``partial`` is the number of
        bytes that a failing write has written.
        """
        fault = Fault(kind, path, nth, times, error, partial)
        self._faults.append(fault)
        return fault

    def clear_faults(self) -> None:
        """Forget all faults that :meth:`fail` planted."""
        self._faults.clear()

    def flip(self, path: str, position: int, mask: int = 1) -> None:
        """Flip the bits of ``mask`` in one byte of a file, as rot does."""
        self._tree.file(path).flip(position, mask)

    # Crashes --------------------------------------------------------------------------------------

    def crash(self, random: Random) -> SimDisk:
        """Return a new disk as a power loss would leave this one, which is unchanged.

        ``random`` draws the damage, and then belongs to the new disk.
        """
        disk = self._reborn(self._tree.after_power_loss(random))
        disk.random = random
        return disk

    def kill(self) -> None:
        """Kill the process: open files and locks are gone, unfinished syncs promise nothing, written data is shown."""
        self.generation += 1
        self._locks.clear()
        self._shared_locks.clear()
        self._pending.clear()
        self._done.clear()

    def snapshot(self, call: Call | None = None, written: int = 0) -> SimDisk:
        """Return a new disk as a process kill would leave this one.

        It has the same shown and stable content, and no handles or locks. ``call`` is a write about to happen; its
        first ``written`` bytes are included.
        """
        if call is None or call.inode is None:
            return self._reborn(self._tree.copy())
        return self._reborn(self._tree.copy(call.inode, call.position, call.data[:written]))

    def fingerprint(self) -> bytes:
        """Return 16 bytes that identify the content of this disk: shown, stable and pending. Its randomness and
        its faults do not count."""
        return self._tree.fingerprint()

    @property
    def used(self) -> int:
        """The bytes in all files and reservations, which :attr:`capacity` limits."""
        return self._tree.used

    def write_back(self) -> None:
        """Make all shown content stable, as the kernel does in the background sooner or later."""
        self._tree.write_back()

    # ports.Disk -----------------------------------------------------------------------------------

    def list(self, directory: str) -> Sequence[str]:
        """Return the names in ``directory``, sorted."""
        self.begin("list", directory)
        return sorted(self._tree.folder(directory).entries)

    def create(self, path: str, size: int = 0) -> File:
        """Create an empty file; its name is durable only after :meth:`sync_directory`."""
        self.begin("create", path)
        folder, name = self._tree.parent(path)
        if self.capacity is not None and size > self._free() and name not in folder.entries:
            raise storage_error(errno.ENOSPC, f"reserving {size} bytes while creating", path)
        inode = Inode(mtime_ms=self._mtime_ms(), reserved=size)
        self._tree.add(path, inode, "creating")
        return SimFile(self, path, inode, write=True)

    def open(self, path: str, *, write: bool = False) -> File:
        """Open an existing file."""
        self.begin("open", path)
        self.openings += 1
        return SimFile(self, path, self._tree.file(path), write=write)

    def stat(self, path: str) -> Stat | None:
        """Return the facts of the file or folder at ``path``; None if there is none."""
        self.begin("stat", path)
        node = self._tree.find(path)
        if node is None:
            return None
        if isinstance(node, Folder):
            return Stat(0, self._mtime_ms(), is_directory=True, allocated=0, identity=(0, node.number))
        allocated = max(len(node.data), node.reserved)
        return Stat(len(node.data), node.mtime_ms, is_directory=False, allocated=allocated, identity=(0, node.number))

    def make_directory(self, path: str) -> None:
        """Make a folder and its missing parents.

        The names of those parents are stable at once; the folder's own name needs :meth:`sync_directory`.
        """
        self.begin("make_directory", path)
        self._tree.make_folders(path)

    def is_link(self, path: str) -> bool:
        """Return False: a simulated disk has no links."""
        return False

    def check_directory(self, path: str, *, write: bool = True) -> None:
        """Accept every folder: the user owns all files of a simulated disk, and it has no links."""

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` by ``source`` atomically."""
        self.begin("rename", source)
        self._tree.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file's name."""
        self.begin("remove", path)
        self._tree.remove(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty folder."""
        self.begin("remove_directory", path)
        self._tree.remove_folder(path)

    def sync_directory(self, directory: str) -> None:
        """Make the names in ``directory`` stable.

        A sync that fails makes only some of them stable, and no later sync makes the others stable. Exception: a
        sync that found no file descriptor never began, and can be repeated.
        """
        folder = self._tree.folder(directory)
        try:
            self.begin("sync_directory", directory)
        except StorageError as error:
            if error.errno not in NO_DESCRIPTORS_ERRNOS:
                self._tree.spoil_names(folder, self.random)
            raise
        self._tree.sync_names(folder)

    def map(self, work: Callable[[T], R], items: Sequence[T], *, waits: bool = False) -> Sequence[R]:
        """Return the result of ``work`` for each item, one after another."""
        return [work(item) for item in items]

    def new_lock(self) -> OwnedLock:
        """Return a lock for a ``with`` statement that excludes other threads."""
        return OwnedLock()

    @property
    def reserve_lock(self) -> OwnedLock:
        """The one lock of all simulated disks that is held while a folder's reserve is used."""
        return _reserve_lock

    def submit_sync(self, files: Sequence[File], wake: Callable[[], None]) -> int:
        """Begin a sync of the files; it covers their present content, not later writes."""
        own: list[tuple[str, Inode]] = []
        for file in files:
            if not isinstance(file, SimFile):
                raise InternalError(f"{file.path} is a file of another disk")
            own.append((file.path, file.opened_inode(self)))
        self.begin("submit_sync", " ".join(path for path, _ in own))
        self._token += 1
        self._pending[self._token] = _Sync(own, self._tree.sequence, wake)
        if not self.manual:
            wake()
        return self._token

    def poll(self) -> Sequence[SyncDone]:
        """Return the syncs that ended since the last call. Unless ``manual``, all submitted syncs end now."""
        if self._pending and not self.manual:
            tokens = [*self._pending]
            if len(tokens) > 1:
                self.random.shuffle(tokens)
            for token in tokens:
                self._end(token, 0)
        done, self._done = self._done, []
        return done

    def lock(self, path: str, about: str, text_position: int | None = None) -> Lock:
        """Take the lock of the file ``path``. Raises LockedError while it is held."""
        self.begin("lock", path)
        node = self._tree.find(path)
        if isinstance(node, Folder):
            raise storage_error(errno.EISDIR, "opening the lock file", path)
        if node is None:
            node = Inode(mtime_ms=self._mtime_ms())
            self._tree.add(path, node, "opening the lock file")
        elif node in self._locks:
            raise LockedError(path, self._locks[node][0])
        text = f"pid 1 on a simulated machine ({about})"
        lock = SimLock(self, node, is_named=True, text_position=text_position)
        self._write_holder(node, text, text_position)
        self._locks[node] = (text, lock)
        return lock

    def hold(self, path: str) -> Lock:
        """Hold the file ``path``. Raises LockedError while it is held."""
        self.begin("hold", path)
        node = self._tree.file(path)
        if node in self._locks:
            raise LockedError(path, self._locks[node][0])
        lock = SimLock(self, node, is_named=False)
        self._locks[node] = ("a process on a simulated machine whose lock file was removed", lock)
        return lock

    def open_store(self, path: str, *, write: bool) -> Store:
        """Open a store in a file of this disk, which loses unsynced data as other files do."""
        return SimStore(self, path, write=write)

    def open_shared(self, path: str) -> SharedFile:
        """Open a file that several simulated processes change; a missing one is made."""
        node = self._tree.find(path)
        self.begin("open" if node is not None else "create", path)
        if isinstance(node, Folder):
            raise storage_error(errno.EISDIR, "opening", path)
        if node is None:
            node = Inode(mtime_ms=self._mtime_ms())
            self._tree.add(path, node, "creating")
        return SimSharedFile(self, path, node, self._shared_locks)

    def watch(self, paths: Sequence[str]) -> None:
        """Return None: a caller that waits for a change polls again."""
        return

    def boot_id(self, directory: str) -> str:
        """Return the boot id, which :meth:`crash` changes and :meth:`kill` does not."""
        self.begin("boot_id", directory)
        return f"00000000-0000-4000-8000-{self._tree.boot:012d}"

    # Syncs as events ------------------------------------------------------------------------------

    @property
    def pending_syncs(self) -> Sequence[int]:
        """The tokens of the submitted syncs that have not ended, oldest first."""
        return [*self._pending]

    def complete(self, token: int, error: int = 0) -> None:
        """End a submitted sync, with the errno ``error`` unless 0, and call its ``wake``; :meth:`poll` returns it."""
        wake = self._pending[token].wake
        self._end(token, error)
        wake()

    # For SimFile and SimLock ----------------------------------------------------------------------

    def begin(self, kind: str, path: str, position: int = 0, data: bytes = b"", inode: Inode | None = None) -> None:
        """Count one call, show it to the observer, and raise StorageError if a fault is planted for it."""
        self.calls += 1
        if self.observer is not None or self.trace is not None:
            call = Call(self.calls, kind, path, position, data, inode)
            if self.trace is not None:
                self.trace.append(str(call))
            if self.observer is not None:
                self.observer(call)
        for fault in self._faults:
            if fault.strikes(kind, path):
                if inode is not None and data and fault.partial:
                    inode.change(PendingWrite(self._tree.next_sequence(), position, data[: fault.partial]))
                raise storage_error(fault.errno, f"{kind} (injected)", path)

    def write(self, path: str, inode: Inode, position: int, data: bytes) -> None:
        """Write ``data`` to a file; if the disk becomes full, write the part that fits and raise ENOSPC."""
        if position < 0:
            raise storage_error(errno.EINVAL, f"writing at byte {position}", path)
        self.begin("write", path, position, data, inode)
        if not data:
            return
        if self.capacity is not None:
            room = max(len(inode.data), inode.reserved) + self._free()
            if position + len(data) > room:
                if room > position:
                    inode.change(PendingWrite(self._tree.next_sequence(), position, data[: room - position]))
                raise storage_error(errno.ENOSPC, f"writing at byte {position}", path)
        inode.change(PendingWrite(self._tree.next_sequence(), position, data))
        inode.mtime_ms = self._mtime_ms()

    def truncate(self, path: str, inode: Inode, size: int) -> None:
        """Truncate or extend a file to ``size`` bytes."""
        self.begin("truncate", path, size)
        inode.change(PendingWrite(self._tree.next_sequence(), size, None))
        inode.reserved = min(inode.reserved, size)

    def sync(self, path: str, inode: Inode, *, sequence: int | None = None, error: int = 0) -> None:
        """Sync one file up to ``sequence``.

        A sync that fails loses the data that it covers for ever, unless it found no file descriptor and never began.
        """
        upto = self._tree.sequence if sequence is None else sequence
        try:
            self.begin("sync", path)
            generation, earlier = inode.failed_start
            if error or generation == self.generation:
                raise storage_error(error or earlier, "syncing", path)
        except StorageError as failure:
            if failure.errno not in NO_DESCRIPTORS_ERRNOS:
                inode.spoil(upto, self.random)
            raise
        inode.settle(upto)
        self.syncs += 1

    def start_sync(self, path: str, inode: Inode, position: int) -> None:
        """Begin a sync of one file, unless a sync of it is in progress.

        If it fails, the written data is lost for ever, and later syncs of the file by this process fail.
        """
        if any(inode is other for sync in self._pending.values() for _, other in sync.files):
            return
        try:
            self.begin("start_sync", path, position)
        except StorageError as error:
            if error.errno in NO_DESCRIPTORS_ERRNOS:
                return  # the sync never began, which loses nothing
            inode.spoil(self._tree.sequence, self.random)
            inode.failed_start = self.generation, error.errno or errno.EIO

    def unlock(self, inode: Inode, lock: SimLock) -> None:
        """Release a lock of a file."""
        held = self._locks.get(inode)
        if held is not None and held[1] is lock:
            del self._locks[inode]
            if lock.is_named:
                self._write_holder(inode, "", lock.text_position)

    # Inside ---------------------------------------------------------------------------------------

    def _write_holder(self, inode: Inode, text: str, position: int | None) -> None:
        """Write the holder's text into a lock file, or into its place in a file with other content."""
        if position is None:
            inode.change(PendingWrite(self._tree.next_sequence(), 0, None))
        data = text.encode() if position is None else text.encode()[:HOLDER_TEXT_SIZE].ljust(HOLDER_TEXT_SIZE, b"\0")
        if data:
            inode.change(PendingWrite(self._tree.next_sequence(), position or 0, data))

    def _end(self, token: int, error: int) -> None:
        sync = self._pending.pop(token)
        failure: StorageError | None = None
        for path, inode in sync.files:
            try:
                self.sync(path, inode, sequence=sync.sequence, error=error)
            except StorageError as caught:
                failure = failure or caught
        self._done.append(SyncDone(token, failure))

    def _reborn(self, tree: FileTree) -> SimDisk:
        # The new disk has a random generator of its own. If it used this disk's generator, taking a
        # crash state would change the rest of the run.
        disk = SimDisk(Random(self._tree.sequence), capacity=self.capacity, clock=self.clock, manual=self.manual)
        disk._tree = tree
        return disk

    def _mtime_ms(self) -> int:
        return self.clock.wall_ms() if self.clock is not None else 0

    def _free(self) -> int:
        assert self.capacity is not None
        return self.capacity - self.used
