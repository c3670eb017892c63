"""This machine's disk.

Rules (docs/internals/durability.md):

* New folders are 0700 and new files 0600 whatever the umask, unless ``permissions`` says otherwise.
* A path that must name a file is refused if its last component is a symbolic link.
* Every failure is a :class:`StorageError` that says what was being done to which path.
* After a failed sync, no sync is retried.
* Objects belong to the process that made them.
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
from pyreplog.errors import StorageError, worded
from pyreplog.ports import RESOURCES_EXHAUSTED_ERRNOS, File, Lock, R, SharedFile, Stat, Store, SyncDone, T, Watch
from pyreplog.system.descriptor_cache import opener, with_free_descriptor
from pyreplog.system.file import OPEN_FLAGS, SystemFile, open_again, openings, sync_outcome
from pyreplog.system.file_lock import SystemLock, hold_file, take_lock
from pyreplog.system.locks import OwnedLock
from pyreplog.system.mounts import is_shared, kind_of
from pyreplog.system.permissions import Modes, modes_of
from pyreplog.system.process import current
from pyreplog.system.shared_file import SystemSharedFile
from pyreplog.system.signals import is_interruption, is_no_thread, is_too_late
from pyreplog.system.store import SystemStore
from pyreplog.system.sync_batcher import SyncBatcher
from pyreplog.system.sync_pool import SyncPool
from pyreplog.system.watch import open_watch

__all__ = ["SystemDisk", "anchored"]

CLOSE_S: Final = 60.0
MAP_THREADS_MAX: Final = 16
WAITS_OF_THREAD: Final = 4
BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"

_reserve_lock: Final = OwnedLock()
_sync_all = _platform.lib.rl_sync_all
_NO_RESERVATION: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


def anchored(path: str) -> str:
    """Return ``path`` as an absolute path, so that a later ``chdir`` does not change its meaning.

    Links and dots in it stay as they are.
    """
    try:
        return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    except OSError as error:
        raise StorageError.from_os_error(error, "asking for the working directory", path) from error


class SystemDisk:
    """The real :class:`~pyreplog.ports.Disk`.

    Any thread may use it; the first thread that polls gets the ended syncs.

    ``permissions``: which folders may be written to, and the modes of new files and folders; see
    :mod:`pyreplog.system.permissions`. ``any_folder``: lock and write also in a folder that is a
    symbolic link, belongs to another user, is writable by group or world, or is on a network file
    system. ``batcher`` starts the small syncs together with those of other disks.
    """

    def __init__(
        self, *, permissions: Permissions = "owner", any_folder: bool = False, batcher: SyncBatcher | None = None
    ) -> None:
        self._process = current()
        self._modes = modes_of(permissions)
        self._any_folder = any_folder
        self._syncs = SyncPool(None if batcher is None else batcher.pools)
        weakref.finalize(self, self._syncs.stop).atexit = False

    @property
    def openings(self) -> int:
        """How many existing files this process has opened by name.

        A file that gave its descriptor up is opened again by its name. The name may then belong to
        another file, to which the file system gave the same number.
        """
        return openings()

    def list(self, directory: str) -> Sequence[str]:
        """Return the names in ``directory``, sorted."""
        with self._doing("listing", directory):
            return sorted(os.listdir(directory))

    def create(self, path: str, size: int = 0) -> File:
        """Return a new file, open for reading and writing.

        If there is no room to reserve ``size`` bytes, no file is left.
        """
        with self._doing("creating", path):
            fd = with_free_descriptor(
                lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, self._modes.file)
            )
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
        """Open an existing regular file; a symbolic link, FIFO, device or directory is refused."""
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
        """Return the status of ``path`` (links followed); None if nothing or a broken link is
        there.
        """
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
        return Stat(
            status.st_size,
            status.st_mtime_ns // 1_000_000,
            stat.S_ISDIR(status.st_mode),
            status.st_blocks * 512,
            identity,
        )

    def make_directory(self, path: str) -> None:
        """Make the folder and its missing parents; an existing folder is fine.

        The names of new parents are synced; the folder's own name is not.
        """
        with self._doing("making the folder", path):
            _make_directory(path, self._modes)

    def is_link(self, path: str) -> bool:
        """Return whether ``path`` is a symbolic link, wherever it leads."""
        with self._doing("looking at it", path):
            return os.path.islink(path)

    def check_directory(self, path: str, *, write: bool = True) -> None:
        """Raise :class:`StorageError` if ``permissions`` does not trust the folder.

        Its owner and its mode decide. To ``write`` there, also raise it if the folder is a symbolic
        link. With ``any_folder``, every folder passes.
        """
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
        """Run ``work`` in as many threads as there are processors, or as a disk can use.

        A few waits are not worth a thread. The threads end with the call. The calling thread is one
        of them, and does all the work if no other can be started.
        """
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
                    break  # if a thread starts it later, it finds no work
            share()
            for one in shares:
                one.result()
        return [results[index] for index in range(len(items))]

    def submit_sync(self, files: Sequence[File], wake: Callable[[], None]) -> int:
        """Start to sync ``files`` (of this disk) in background threads; return a token at once.

        ``wake`` is called in such a thread when :meth:`poll` has the result. Requests that wait for
        the same file share one sync.
        """
        if self._process.left:
            raise self._process.refuse("the disk")
        return self._syncs.submit(files, wake)

    def poll(self) -> Sequence[SyncDone]:
        """Return the syncs that ended since the last call."""
        return self._syncs.take() if self._syncs.done else ()

    def new_lock(self) -> OwnedLock:
        """Return a lock for ``with`` that keeps out other threads."""
        return OwnedLock()

    @property
    def reserve_lock(self) -> OwnedLock:
        """The one lock of all disks of the process that is held while a folder's reserve is used."""
        return _reserve_lock

    def open_shared(self, path: str) -> SharedFile:
        """Open a file that several processes change, in a folder that this one may write to."""
        with self._doing("opening", path):
            self._check_lockable(path)
            return SystemSharedFile(path, self._modes)

    def watch(self, paths: Sequence[str]) -> Watch | None:
        """Watch ``paths`` by inotify; return None if the system has none, or no queue to spare."""
        if self._process.left:
            raise self._process.refuse("the disk")
        return open_watch(paths)

    def lock(self, path: str, about: str, text_position: int | None = None) -> Lock:
        """Take the exclusive lock of the file ``path``, and write pid, host, time and ``about``
        into it.

        ``text_position``: where in a file that has other content too. Raises :class:`LockedError`
        with the holder's text if the lock is held, and :class:`StorageError` if the folder is
        unsafe to write in.
        """
        with self._doing("locking", path):
            self._check_lockable(path)
            return take_lock(path, about, self._modes, text_position)

    def hold(self, path: str) -> Lock:
        """Hold the file ``path`` by ``flock``.

        Nothing is held if the file system has no such lock, or, with ``any_folder``, shares its
        files with other machines.
        """
        with self._doing("locking", path):
            return SystemLock() if self._any_folder and is_shared(kind_of(path)) else hold_file(path)

    def open_store(self, path: str, *, write: bool) -> Store:
        """Open an LMDB environment in one file, without a lock of its own."""
        with self._doing("opening the store", path):
            return SystemStore(path, self._modes, write=write)

    def boot_id(self, directory: str) -> str:
        """Return the kernel's boot id.

        Return '' if it has none, and on a network file system: other machines hold its unsynced
        data too.
        """
        with self._doing("reading the boot id for", directory):
            try:
                if is_shared(kind_of(directory)):
                    return ""
                with open(BOOT_ID_PATH, encoding="ascii", opener=opener) as file:
                    return file.read().strip()
            except OSError as error:
                # An empty id would mean that the machine went down.
                if is_interruption(error) or error.errno in RESOURCES_EXHAUSTED_ERRNOS:
                    raise
                return ""

    def close(self) -> None:
        """Finish the queued syncs and end the threads.

        The disk cannot sync after that; open files stay usable.
        """
        if not self._process.left:
            self._syncs.stop(CLOSE_S)

    def _check_lockable(self, path: str) -> None:
        """Raise :class:`StorageError` if the folder of the lock file ``path`` is unsafe to write in."""
        if not self._any_folder:
            folder = os.path.dirname(path) or "."
            _check_directory(folder, self._modes, write=True, link=True)
            _check_mount(folder)

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
    fd = with_free_descriptor(lambda: os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
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
        # A process of ours may have made this folder and been killed before it synced the folder's
        # name. Then it is empty, and its parent is writable.
        parent = os.path.dirname(os.path.abspath(path))
        if os.access(parent, os.W_OK):
            _sync_directory(parent)
    for index, folder in enumerate(reversed(missing)):
        if index:
            # The folder was made just before: no other code knows that its name must be synced.
            made = os.path.dirname(folder.rstrip("/"))
            try:
                _sync_directory(os.path.dirname(made))
            except OSError:
                with contextlib.suppress(OSError):
                    # Otherwise the next caller would find the folder and assume that its name is
                    # durable.
                    os.rmdir(made)
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
    """Raise :class:`StorageError` if the folder cannot be trusted.

    ``link``: the folder may be a symbolic link that no other user can exchange. It is a root, so a
    caller or a cluster named it.
    """
    # `reliability`: never write if another user could exchange files under us.
    status = os.lstat(folder) if write else os.stat(folder)
    if stat.S_ISLNK(status.st_mode) and modes.permissions != "any":
        if not link:
            raise StorageError(errno.ELOOP, "the folder is a symbolic link: name the folder itself", folder)
        _check_link(folder, status, modes)
        status = os.stat(folder)
    if modes.refusal(status, write=write):
        raise worded(lambda say: StorageError(errno.EPERM, modes.refusal(status, write=write, say=say), folder))


def _check_link(folder: str, status: os.stat_result, modes: Modes) -> None:
    """Refuse the symbolic link ``folder`` if an untrusted user made it or could replace it."""
    if status.st_uid != os.geteuid():
        why = (
            f"the folder is a symbolic link that belongs to user {status.st_uid}, not to this one: name the folder"
            " itself"
        )
        raise StorageError(errno.ELOOP, why, folder)
    parent = os.path.dirname(os.path.abspath(folder))
    above = os.stat(parent)
    if modes.refusal(above, write=True):
        raise worded(
            lambda say: StorageError(
                errno.ELOOP,
                f"the folder is a symbolic link, which another user could replace in {parent}:"
                f" {modes.refusal(above, write=True, say=say)}",
                folder,
            )
        )


def _check_mount(folder: str) -> None:
    if is_shared(kind := kind_of(folder)):
        raise StorageError(
            errno.EOPNOTSUPP,
            f"the folder is on a network file system ({kind}), where locks and syncs cannot be relied on: keep it on a"
            " disk of this machine, or, if you accept the risk, open it with disk=SystemDisk(any_folder=True)",
            folder,
        )
