"""This machine's disk.

Rules (docs/internals/durability.md): new folders are 0700 and new files 0600 whatever the umask, unless ``permissions`` says
otherwise; the last component of a path is never followed when it is a symbolic link and a file is meant; every failure is a
:class:`StorageError` that says what was being done to which path; after a failed sync nothing is tried again; objects
belong to the process that made them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pyreplog._core import _platform
from pyreplog.config import Permissions
from pyreplog.errors import StorageError
from pyreplog.interruptions import is_interruption, is_no_thread, is_too_late
from pyreplog.ports import OUT_OF_MEANS, File, Lock, R, Stat, Store, SyncDone, T, Watch
from pyreplog.system.file import OPEN_FLAGS, SystemFile, open_again, openings, sync_outcome
from pyreplog.system.held import HeldSyncs
from pyreplog.system.lock import SystemLock, hold_file, take_lock
from pyreplog.system.mounts import is_shared, kind_of
from pyreplog.system.permissions import Modes, modes_of
from pyreplog.system.process import current
from pyreplog.system.shelf import make_room, opener
from pyreplog.system.store import SystemStore
from pyreplog.system.syncs import SyncPool
from pyreplog.system.watch import open_watch

__all__ = ["SystemDisk", "anchored"]

CLOSE_S: Final = 60.0
MAP_THREADS_MAX: Final = 16
WAITS_OF_THREAD: Final = 4
BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"

_sync_all = _platform.lib.rl_sync_all
_NO_RESERVATION: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


def anchored(path: str) -> str:
    """``path`` as it is meant now, whatever working directory the program goes to later. Links and dots in it stay as they are."""
    try:
        return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    except OSError as error:
        raise StorageError.from_os_error(error, "asking for the working directory", path) from error


class SystemDisk:
    """The real :class:`~pyreplog.ports.Disk`. Any thread; completions of syncs are for whoever polls first.

    ``permissions``: which folders are written to, and the modes of new files and folders; see :mod:`pyreplog.system.permissions`.
    ``any_folder``: lock and write in a folder that is a symbolic link, somebody else's, writable by group or world, or on a network
    file system. ``held_syncs``: see :class:`~pyreplog.system.syncs.SyncPool`.
    """

    def __init__(self, *, permissions: Permissions = "owner", any_folder: bool = False, held_syncs: HeldSyncs | None = None) -> None:
        self._process = current()
        self._modes = modes_of(permissions)
        self._any_folder = any_folder
        self._syncs = SyncPool(held_syncs)
        weakref.finalize(self, self._syncs.stop).atexit = False

    @property
    def openings(self) -> int:
        """Of the whole process: a file that gave its descriptor up is opened again by its name, and by then it may be another one that got
        the same number from the file system."""
        return openings()

    def list(self, directory: str) -> Sequence[str]:
        """Names in ``directory``, sorted."""
        with self._doing("listing", directory):
            return sorted(os.listdir(directory))

    def create(self, path: str, size: int = 0) -> File:
        """Return a new file, open for reading and writing. If there is no room to reserve ``size`` bytes, no file is left."""
        with self._doing("creating", path):
            fd = make_room(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, self._modes.file))
            try:
                self._modes.settle_file(fd)
                if size and (code := _platform.lib.rl_preallocate(fd, size)) and code not in _NO_RESERVATION:
                    raise OSError(code, f"{os.strerror(code)} while reserving {size} bytes")
            except OSError:
                os.close(fd)
                with contextlib.suppress(OSError):
                    os.unlink(path)
                raise
        return SystemFile(path, fd, write=True)

    def open(self, path: str, *, write: bool = False) -> File:
        """An existing regular file; a symbolic link, FIFO, device or directory is refused."""
        with self._doing("opening", path):
            fd = open_again(path, write=write)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError(errno.EINVAL, "Not a regular file")
            except OSError:
                os.close(fd)
                raise
        return SystemFile(path, fd, write=write)

    def stat(self, path: str) -> Stat | None:
        """What is at ``path`` (links followed); None when nothing is, and for a link that leads nowhere."""
        with self._doing("looking at it", path):
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError) as error:
                if is_interruption(error):
                    raise
                return None
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                return None
        identity = (status.st_dev, status.st_ino)
        return Stat(status.st_size, status.st_mtime_ns // 1_000_000, stat.S_ISDIR(status.st_mode), status.st_blocks * 512, identity)

    def make_directory(self, path: str) -> None:
        """Make the folder and its missing parents; an existing one is fine. The entries of new parents are synced, its own is not."""
        with self._doing("making the folder", path):
            _make_directory(path, self._modes)

    def is_link(self, path: str) -> bool:
        """Whether ``path`` is a symbolic link, wherever it leads."""
        with self._doing("looking at it", path):
            return os.path.islink(path)

    def check_directory(self, path: str, *, write: bool = True) -> None:
        """Raise :class:`StorageError` if ``permissions`` does not trust the folder's owner and mode, and to ``write`` there, also
        if it is a symbolic link; unless any folder will do."""
        if not self._any_folder:
            with self._doing("looking at it", path):
                _check_directory(path, self._modes, write=write)

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` by ``source`` atomically. Durable only after :meth:`sync_directory`."""
        with self._doing(f"renaming to {target}", source):
            os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        with self._doing("removing", path):
            os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty folder."""
        with self._doing("removing the folder", path):
            os.rmdir(path)

    def sync_directory(self, directory: str) -> None:
        """Make creations, renames and removals in ``directory`` durable. Blocks."""
        with self._doing("syncing the folder", directory):
            _sync_directory(directory)

    def map(self, work: Callable[[T], R], items: Sequence[T], *, waits: bool = False) -> Sequence[R]:
        """In as many threads as there are processors, or as a disk can use (of a few waits none is worth a thread), which end with the
        call. This one is among them, and does all where no other is to be had."""
        count = min(len(items) // WAITS_OF_THREAD if waits else min(len(items), os.cpu_count() or 1), MAP_THREADS_MAX)
        if count < 2:
            return [work(item) for item in items]
        try:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  (slow to load, and seldom needed)
        except RuntimeError as error:
            if not is_too_late(error):
                raise
            return [work(item) for item in items]

        waiting = deque(enumerate(items))
        results: dict[int, R] = {}

        def share() -> None:
            while True:
                try:
                    index, item = waiting.popleft()
                except IndexError:
                    return
                results[index] = work(item)

        with ThreadPoolExecutor(count - 1, "pyreplog-map") as pool:
            shares = []
            for _ in range(count - 1):
                try:
                    shares.append(pool.submit(share))
                except (RuntimeError, MemoryError) as error:
                    if not (is_no_thread(error) or is_too_late(error) or isinstance(error, MemoryError)):
                        raise
                    break  # should one begin it later, it finds nothing to do
            share()
            for one in shares:
                one.result()
        return [results[index] for index in range(len(items))]

    def submit_sync(self, files: Sequence[File], wake: Callable[[], None]) -> int:
        """Begin to sync ``files`` (of this disk) in background threads; returns a token at once.

        ``wake`` is called in such a thread when :meth:`poll` has the outcome. A file that several wait for is synced once.
        """
        if self._process.left:
            raise self._process.refuse("the disk")
        return self._syncs.submit(files, wake)

    def poll(self) -> Sequence[SyncDone]:
        """Syncs that ended since the last call."""
        return self._syncs.take() if self._syncs.done else ()

    def watch(self, paths: Sequence[str]) -> Watch | None:
        """By inotify; None where the system has none, or no more to spare."""
        if self._process.left:
            raise self._process.refuse("the disk")
        return open_watch(paths)

    def lock(self, path: str, about: str) -> Lock:
        """Take the exclusive lock file ``path`` and write pid, host, time and ``about`` into it.

        Refused (:class:`LockedError` with the holder's text) while anyone holds it; :class:`StorageError` where the folder is unsafe to
        write in.
        """
        with self._doing("locking", path):
            if not self._any_folder:
                folder = os.path.dirname(path) or "."
                _check_directory(folder, self._modes, write=True, link=True)
                _check_mount(folder)
            return take_lock(path, about, self._modes)

    def hold(self, path: str) -> Lock:
        """By ``flock``; where a file system has no such lock, or shares what it holds with other machines, nothing is held."""
        with self._doing("locking", path):
            return SystemLock() if self._any_folder and is_shared(kind_of(path)) else hold_file(path)

    def open_store(self, path: str, *, write: bool) -> Store:
        """An LMDB environment in one file, without a lock of its own."""
        with self._doing("opening the store", path):
            return SystemStore(path, self._modes, write=write)

    def boot_id(self, directory: str) -> str:
        """The kernel's boot id; '' where it has none, and on a network file system: what is written there waits in other machines, too."""
        with self._doing("reading the boot id for", directory):
            try:
                if is_shared(kind_of(directory)):
                    return ""
                with open(BOOT_ID_PATH, encoding="ascii", opener=opener) as file:
                    return file.read().strip()
            except OSError as error:
                if is_interruption(error) or error.errno in OUT_OF_MEANS:  # which would be taken for a machine that went down
                    raise
                return ""

    def close(self) -> None:
        """Finish queued syncs and end the threads. The disk cannot sync any more; open files stay usable."""
        if not self._process.left:
            self._syncs.stop(CLOSE_S)

    @contextlib.contextmanager
    def _doing(self, doing: str, path: str) -> Iterator[None]:
        if self._process.left:
            raise self._process.refuse("the disk")
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            raise StorageError.from_os_error(error, doing, path) from error


def _sync_directory(directory: str) -> None:
    fd = make_room(lambda: os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        code = sync_outcome(_sync_all, fd)
    finally:
        os.close(fd)
    if code:
        raise OSError(code, os.strerror(code))


def _is_empty(directory: str) -> bool:
    with os.scandir(directory) as entries:
        return next(entries, None) is None


def _make_directory(path: str, modes: Modes) -> None:
    missing: list[str] = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path.rstrip("/"))
    if missing and path and _is_empty(path):
        # Perhaps a process of ours made it that was killed before it synced its name: then it is empty, and lies where we may write.
        parent = os.path.dirname(os.path.abspath(path))
        if os.access(parent, os.W_OK):
            _sync_directory(parent)
    for index, folder in enumerate(reversed(missing)):
        if index:
            # The folder made just before: nobody else knows that it needs its name synced.
            made = os.path.dirname(folder.rstrip("/"))
            try:
                _sync_directory(os.path.dirname(made))
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(made)  # else the next one who needs it would find it there, and take its name for durable
                raise
        try:
            os.mkdir(folder, modes.directory)
        except FileExistsError:
            if not os.path.isdir(folder):
                if index + 1 < len(missing):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
                raise
        else:
            modes.settle_directory(folder)


def _check_directory(folder: str, modes: Modes, *, write: bool, link: bool = False) -> None:
    """``link``: the folder may be a symbolic link that no other user can exchange. It is a root, so a caller or a cluster named it."""
    # `reliability`: never write where somebody else could exchange files under us.
    status = os.lstat(folder) if write else os.stat(folder)
    if stat.S_ISLNK(status.st_mode) and modes.permissions != "any":
        if not link:
            raise StorageError(errno.ELOOP, "the folder is a symbolic link: name the folder itself", folder)
        _check_link(folder, status, modes)
        status = os.stat(folder)
    if refusal := modes.refusal(status, write=write):
        raise StorageError(errno.EPERM, refusal, folder)


def _check_link(folder: str, status: os.stat_result, modes: Modes) -> None:
    """Refuse the symbolic link ``folder`` if a user that is not trusted made it, or could put another one in its place."""
    if status.st_uid != os.geteuid():
        why = f"the folder is a symbolic link that belongs to user {status.st_uid}, not to this one: name the folder itself"
        raise StorageError(errno.ELOOP, why, folder)
    parent = os.path.dirname(os.path.abspath(folder))
    if refusal := modes.refusal(os.stat(parent), write=True):
        raise StorageError(errno.ELOOP, f"the folder is a symbolic link, which another user could replace in {parent}: {refusal}", folder)


def _check_mount(folder: str) -> None:
    if is_shared(kind := kind_of(folder)):
        raise StorageError(
            errno.EOPNOTSUPP,
            f"the folder is on a network file system ({kind}), where locks and syncs cannot be relied on: keep it on a disk of this "
            "machine, or, knowing better, open it with disk=SystemDisk(any_folder=True)",
            folder,
        )
