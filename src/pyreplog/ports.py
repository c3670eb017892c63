"""The only interfaces to the outside: time, disk, network, random bytes.

All code from ``record`` to ``client`` uses them through these Protocols. So the same code runs in
production (``pyreplog.system``), in one process, and in a deterministic simulation
(``pyreplog.testing``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from pyreplog.transport_events import Address, Connected, Disconnected, Received, TransportEvent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from random import Random

    from typing_extensions import Buffer
else:
    # Only annotations name it, and typing_extensions takes a tenth of the time that a first record
    # may take.
    Buffer = object
    """For annotations: any object that exports its bytes, such as bytes, memoryview and numpy
    arrays. At run time it is ``object``.
    """

__all__ = [
    "NO_DESCRIPTORS_ERRNOS",
    "HOLDER_TEXT_SIZE",
    "RESOURCES_EXHAUSTED_ERRNOS",
    "NO_SPACE_ERRNOS",
    "Address",
    "Buffer",
    "RandomBytes",
    "Clock",
    "Connected",
    "Disconnected",
    "Disk",
    "File",
    "Headers",
    "Lock",
    "Message",
    "Random",
    "Received",
    "Stat",
    "Store",
    "SharedFile",
    "SyncDone",
    "Transport",
    "TransportEvent",
    "Watch",
]

Headers = Collection[tuple[str, bytes | None]] | Mapping[str, bytes | None] | None
"""A record's headers: (key, value) pairs in order, such as a list, or a dict. Must be re-iterable,
because it may be read twice. ``None`` means no headers.
"""

HOLDER_TEXT_SIZE: Final = 248
"""The bytes of the holder's text in a locked file that has other content too; the rest is zeros."""

NO_SPACE_ERRNOS: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Errnos of a full disk: the stored data is intact, and the call may succeed later."""
RESOURCES_EXHAUSTED_ERRNOS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errnos of a process or system without a descriptor or memory to open a file. They say nothing
about the stored data.
"""
NO_DESCRIPTORS_ERRNOS: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Errnos of a missing file descriptor. A sync that fails with one of these never started: nothing
is lost, and it can be retried.
"""

T = TypeVar("T")
R = TypeVar("R")


def __getattr__(name: str) -> object:
    """Load Python's ``Random`` at its first use, because a log does not need it."""
    if name != "Random":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from random import Random  # noqa: PLC0415  (see above)

    globals()[name] = Random
    return Random


class Clock(Protocol):
    """The time. Wall time is only ever data; every timeout uses the monotonic clock."""

    def monotonic_ns(self) -> int:
        """Return the nanoseconds since a fixed moment; they never go back."""
        ...

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970 UTC; they may jump."""
        ...


class RandomBytes(Protocol):
    """A source of random bytes for ids. Python's ``Random`` is one."""

    def randbytes(self, n: int, /) -> bytes:
        """Return ``n`` random bytes."""
        ...


class Stat(NamedTuple):
    """The status of a path.

    ``size`` is in bytes, ``mtime_ms`` in ms since 1970. ``allocated`` is the number of bytes on the
    disk, reservations included. Files with different ``identity`` are different files, whatever
    their names.
    """

    size: int
    mtime_ms: int
    is_directory: bool
    allocated: int
    identity: tuple[int, int]


class File(Protocol):
    """An open file with absolute positions, so that readers need no lock."""

    @property
    def path(self) -> str:
        """The path by which the file was opened."""
        ...

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write all of ``parts`` one after another from ``position``.

        Raises :class:`StorageError`; some bytes may then be written.
        """
        ...

    def read_at(self, position: int, size: int) -> memoryview:
        """Return up to ``size`` bytes from ``position``; fewer only at the end of the file.

        The caller owns the memory.
        """
        ...

    def sync(self) -> None:
        """Block until the content is on stable storage.

        It is for small state files only: data goes through :meth:`Disk.submit_sync`. If it needs a
        descriptor and none is left, the sync does not start (:data:`NO_DESCRIPTORS_ERRNOS`).
        """
        ...

    def start_sync(self, position: int, size: int) -> None:
        """Have the system start to write these bytes, so that a later sync waits less.

        It promises nothing: a write error fails every sync that starts afterwards. If the disk
        cannot do this, the call does nothing.
        """
        ...

    def size(self) -> int:
        """Return the current length in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Make the file exactly ``size`` bytes long. Space reserved after that is freed."""
        ...

    def reserve(self, position: int, size: int) -> None:
        """Reserve ``size`` bytes from ``position``, the file's end, without lengthening the file.

        Appending there is then cheaper. If the disk cannot do this, the call does nothing.
        """
        ...

    def drop_cached(self) -> None:
        """Drop clean pages from the page cache, so that the next read comes from the disk.

        If the disk cannot do this, the call does nothing.
        """
        ...

    def close(self) -> None:
        """Close the file. A second call is harmless."""
        ...


class SharedFile(Protocol):
    """An open file that several processes change, one at a time.

    Each opening counts by itself, in one process too. Thread-safe, except that one thread at a time
    has the lock.
    """

    @property
    def path(self) -> str:
        """The path by which the file was opened."""
        ...

    def lock(self, *, shared: bool = False) -> None:
        """Keep every other opening of the file out, until :meth:`unlock`. It waits for its turn.

        ``shared``: keep only those out that lock it without ``shared``. Raises
        :class:`LockedError` if another opening keeps the lock for many seconds.
        """
        ...

    def lock_and_read(self, first: int, first_size: int, second: int, second_size: int) -> tuple[bytes, bytes]:
        """Take the lock as :meth:`lock` does, and return the bytes of two places.

        After an error the caller must call :meth:`unlock`.
        """
        ...

    def append_unchanged(self, place: int, expected: bytes, position: int, data: bytes) -> bool:
        """Write ``data`` at ``position`` under the lock, if the file is as the caller knows it.

        It is if the bytes at ``place`` are ``expected`` (at most 64) and the first four at ``position``
        are zero. Otherwise, and if another opening has the lock, return False: nothing was changed. A
        file may also return False for no reason. After an error the caller must call :meth:`unlock`.
        """
        ...

    def unlock(self) -> None:
        """Give the lock back. A call without the lock is harmless."""
        ...

    def hold(self, number: int) -> bool:
        """Hold ``number`` (from 0) until this file is closed or the process ends, however it ends.

        Return False if another opening holds it.
        """
        ...

    def is_held(self, number: int) -> bool:
        """Return whether an opening other than this one holds ``number``."""
        ...

    def is_current(self) -> bool:
        """Return whether :attr:`path` still names this file."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data`` at ``position``. After a :class:`StorageError` a part may be there."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``position``; fewer only at the end of the file."""
        ...

    def sync(self) -> None:
        """Block until all that was written is on stable storage, without a lock of the file.

        After a failure every later call fails too: the content of the disk is then unknown.
        """
        ...

    def close(self) -> None:
        """Close the file, and give up its lock and its number. A second call is harmless."""
        ...


class SyncDone(NamedTuple):
    """The end of one :meth:`Disk.submit_sync`. ``error`` None: all bytes are on stable storage."""

    token: int
    error: OSError | None


class Lock(Protocol):
    """A lock that is held from :meth:`Disk.lock` or :meth:`Disk.hold` until ``release``."""

    @property
    def identity(self) -> tuple[int, int]:
        """The locked file, as in :class:`Stat`. REQUIRES that the lock is held."""
        ...

    def release(self) -> None:
        """Release the lock. A second call is harmless."""
        ...


class Watch(Protocol):
    """Change notifications of some files, from :meth:`Disk.watch` until ``close``.

    Belongs to one thread at a time.
    """

    def fileno(self) -> int:
        """Return a descriptor for ``poll`` or an event loop.

        It is readable if a file was written to since the last :meth:`clear`.
        """
        ...

    def clear(self) -> None:
        """Discard the notifications so far. Look at the files after this call, not before."""
        ...

    def close(self) -> None:
        """Close the watch. A second call is harmless."""
        ...


class Store(Protocol):
    """Ordered keys and values in one file, which can be rebuilt from other data.

    It may stay open. Reads and writes go to the system's cache. A process that is killed loses
    nothing; after power loss the file may be damaged in any way. The store finds no flipped bit:
    its user must compare the content with a checksum. Belongs to one thread at a time. Keys have
    1 to 511 bytes.
    """

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of ``keys``, None for a key that is not there."""
        ...

    def get_one(self, key: bytes) -> bytes | None:
        """Return the value of ``key``; None if it is not there."""
        ...

    def read_from(self, key: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``count_max`` (key, value), by rising key, beginning at ``key``."""
        ...

    def count(self) -> int:
        """Return the number of entries."""
        ...

    def scan(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every (key, value), by rising key."""
        ...

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Set each key to its value; None removes it.

        A process that is killed leaves all or none of the changes.
        """
        ...

    def fill(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put all of ``entries`` in.

        They are durable when it returns; the file's name is durable after
        :meth:`Disk.sync_directory`.
        """
        ...

    def close(self) -> None:
        """Close the store. A second call is harmless."""
        ...


class Disk(Protocol):
    """Files and folders.

    A crash may lose unsynced changes, in part and in any order. Paths are strings with ``/``. Every
    failure is a :class:`StorageError` (missing files too, with ``errno.ENOENT``).
    """

    @property
    def openings(self) -> int:
        """How many files :meth:`open` has opened so far, in any thread.

        If it grew, a name that was opened before may belong to another file now. An open file stays
        the same file.
        """
        ...

    def list(self, directory: str) -> Sequence[str]:
        """Return the names in ``directory``, sorted."""
        ...

    def create(self, path: str, size: int = 0) -> File:
        """Create a file, open for reading and writing; it must not exist.

        ``size`` reserves space and does not lengthen the file.
        """
        ...

    def open(self, path: str, *, write: bool = False) -> File:
        """Open an existing regular file (a symbolic link is refused)."""
        ...

    def stat(self, path: str) -> Stat | None:
        """Return the status of ``path``, or None if nothing is there."""
        ...

    def make_directory(self, path: str) -> None:
        """Make the folder and its missing parents; an existing folder is fine."""
        ...

    def is_link(self, path: str) -> bool:
        """Return whether ``path`` is a symbolic link, wherever it leads."""
        ...

    def check_directory(self, path: str, *, write: bool = True) -> None:
        """Raise :class:`StorageError` if untrusted users may change the folder's content.

        To ``write`` there, also raise it if ``path`` is a symbolic link, which another user may
        have put there.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` by ``source`` atomically. Durable only after :meth:`sync_directory`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def sync_directory(self, directory: str) -> None:
        """Make creations, renames and removals in ``directory`` durable. Blocks."""
        ...

    def map(self, work: Callable[[T], R], items: Sequence[T], *, waits: bool = False) -> Sequence[R]:
        """Return the results of ``work`` for each of ``items``, in their order.

        The calls run in parallel if the machine has the processors, so each call must touch only
        its own data. ``waits``: the calls only wait for the disk, so more of them run. The first
        error is raised, after all calls ended.
        """
        ...

    def submit_sync(self, files: Sequence[File], wake: Callable[[], None]) -> int:
        """Start to sync the content of ``files``; return a token at once.

        ``wake`` is called (from any thread) when :meth:`poll` has the result.
        """
        ...

    def poll(self) -> Sequence[SyncDone]:
        """Return the syncs that ended since the last call."""
        ...

    def new_lock(self) -> AbstractContextManager[object]:
        """Return a lock for ``with`` that keeps out other threads, such as those of :meth:`map`.

        Its owner may enter it again.
        """
        ...

    @property
    def reserve_lock(self) -> AbstractContextManager[object]:
        """The one lock of all disks of the process that is held while a folder's reserve is used."""
        ...

    def open_shared(self, path: str) -> SharedFile:
        """Open a file that several processes change; a missing one is made, and empty.

        Raises :class:`StorageError` if the system or the folder's file system has no such locks.
        """
        ...

    def watch(self, paths: Sequence[str]) -> Watch | None:
        """Watch the files ``paths`` for writes.

        Return None if this disk cannot watch all of them; the caller must then poll the files. A
        notification is only a hint, which a network file system may not send. So the caller must
        also poll the files, only less often.
        """
        ...

    def lock(self, path: str, about: str, text_position: int | None = None) -> Lock:
        """Take the exclusive lock of the file ``path``, and write ``about`` into it.

        The file is made if it is missing. ``text_position``: the file has other content too, and
        the :data:`HOLDER_TEXT_SIZE` bytes from there are the holder's; None: the whole file is.
        After a rename the name may belong to another file than the locked one, so a caller that
        renames files must compare the two. Raises :class:`LockedError` with the holder's text if
        the lock is held.
        """
        ...

    def hold(self, path: str) -> Lock:
        """Take the exclusive lock of the existing file ``path``, which stays as it is.

        A process that removed the lock file beside it still finds the holder. Raises
        :class:`LockedError` if the lock is held.
        """
        ...

    def open_store(self, path: str, *, write: bool) -> Store:
        """Return the store in the file ``path``; with ``write``, a missing file is made.

        Raises :class:`CorruptError` if the file is not a store, or if other users may have written
        it. Several stores of one file in one process share it. Each write must be kept apart from
        other writes, and from reads of other processes, by a lock of the caller.
        """
        ...

    def boot_id(self, directory: str) -> str:
        """Return an id that changes when unsynced data in ``directory`` may be lost (a reboot).

        It is empty if the system cannot tell, as on a network file system. Then neither assume that
        the data survived nor that it was lost.
        """
        ...


class Message(Protocol):
    """A whole message.

    Byte transports call ``encode``; local and simulated ones hand the object over unchanged.
    """

    def encode(self) -> Sequence[Buffer]:
        """Return its bytes in order, uncopied."""
        ...


class Transport(Protocol):
    """Carries whole messages between addresses. Each object is one endpoint with one address.

    It may drop, delay, duplicate or reorder messages, without any notice. It never splits, joins or
    alters one. No method blocks except ``poll``. Only ``wake`` may be called from another thread.
    """

    def listen(self, address: Address) -> Address:
        """Start to receive at ``address``; return it with port 0 replaced."""
        ...

    def connect(self, peer: Address) -> None:
        """Start to connect; the result arrives by ``poll``. A second call is harmless."""
        ...

    def send(self, peer: Address, message: object) -> bool:
        """Hand over one message, which the sender must not change later.

        Return False if the queue is full and the message was not taken.
        """
        ...

    def poll(self, timeout_ns: int) -> Iterable[TransportEvent]:
        """Return the events that arrived; wait up to ``timeout_ns`` (0: not at all) for the first."""
        ...

    def pause(self, peer: Address) -> None:
        """Stop receiving from ``peer`` (back-pressure)."""
        ...

    def resume(self, peer: Address) -> None:
        """Undo :meth:`pause`."""
        ...

    def disconnect(self, peer: Address) -> None:
        """Drop the connection to ``peer``."""
        ...

    def wake(self) -> None:
        """Make a waiting ``poll`` return. This is the only method for other threads."""
        ...

    def close(self) -> None:
        """Stop listening and drop all connections."""
        ...
