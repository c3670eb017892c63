"""The only doors to the world: time, disk, network, measurements, chance.

Everything from ``record`` to ``client`` reaches them through these Protocols, so that the same code runs in production
(``pyreplog.system``), in one process, and in a deterministic simulation (``pyreplog.testing``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from pyreplog.arrivals import Address, Connected, Disconnected, Received, TransportEvent

if TYPE_CHECKING:
    from random import Random

    from typing_extensions import Buffer
else:
    Buffer = object  # only annotations name it, and typing_extensions takes a tenth of the time that a first record may take
    """For annotations: whatever lends its bytes, such as bytes, memoryview and numpy arrays. While a program runs, ``object``."""

__all__ = [
    "OUT_OF_DESCRIPTORS",
    "OUT_OF_MEANS",
    "OUT_OF_ROOM",
    "Address",
    "Buffer",
    "Chance",
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
    "SyncDone",
    "Transport",
    "TransportEvent",
    "Watch",
]

Headers = Collection[tuple[str, bytes | None]] | None
"""A record's headers: (key, value) pairs in order, such as a list or a dict's ``items()``. No iterator: they may be read twice. None is
none."""

OUT_OF_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Disk full: nothing is wrong with what is there, and it may work again later."""
OUT_OF_MEANS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""The process or the system had no descriptor or no memory to open a file with: says nothing about what is there."""
OUT_OF_DESCRIPTORS: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Of opening alone: a sync that is refused with one of these did not begin. Nothing is in doubt, and a later one can be believed."""

T = TypeVar("T")
R = TypeVar("R")


def __getattr__(name: str) -> object:
    """``Random`` is Python's, loaded when somebody asks for it: a log can do without."""
    if name != "Random":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from random import Random  # noqa: PLC0415  (see above)

    globals()[name] = Random
    return Random


class Clock(Protocol):
    """Time. Wall time is only ever data; every timeout uses the monotonic clock."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some fixed moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""
        ...


class Chance(Protocol):
    """Where ids come from. Python's ``Random`` is one."""

    def randbytes(self, n: int, /) -> bytes:
        """``n`` random bytes."""
        ...


class Stat(NamedTuple):
    """What a path is. ``size`` in bytes, ``mtime_ms`` since 1970; ``allocated`` in bytes: what it takes on the disk, reservations
    too; ``identity``: another one is another file, whatever it is called."""

    size: int
    mtime_ms: int
    is_directory: bool
    allocated: int
    identity: tuple[int, int]


class File(Protocol):
    """An open file with absolute positions, so that readers need no lock."""

    @property
    def path(self) -> str:
        """The path it was opened by."""
        ...

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write all of ``parts`` one after another from ``position``, or raise :class:`StorageError` (some bytes may then be there)."""
        ...

    def read_at(self, position: int, size: int) -> memoryview:
        """Up to ``size`` bytes from ``position``; fewer only at the end of the file. The caller owns the memory."""
        ...

    def sync(self) -> None:
        """Block until the content is on stable storage. For small state files only: data goes through :meth:`Disk.submit_sync`. Where that
        takes a descriptor and there is none, nothing began (:data:`OUT_OF_DESCRIPTORS`)."""
        ...

    def start_sync(self, position: int, size: int) -> None:
        """Have the system begin to bring these bytes to stable storage, so that a sync that follows soon has less to wait for. Promises
        nothing: what goes wrong fails every sync that begins afterwards. Where that cannot be, nothing happens."""
        ...

    def size(self) -> int:
        """Current length in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Make the file exactly ``size`` bytes long. What was reserved behind is given back."""
        ...

    def reserve(self, position: int, size: int) -> None:
        """Reserve room for ``size`` bytes from ``position``, the file's end, without lengthening it: appending there is then cheaper.
        Where that cannot be, nothing happens."""
        ...

    def drop_cached(self) -> None:
        """Have the system forget what it keeps of the content in memory and is on the disk, so that the next read comes from there. Where
        that cannot be, nothing happens."""
        ...

    def close(self) -> None:
        """Release it. Twice is harmless."""
        ...


class SyncDone(NamedTuple):
    """The end of one :meth:`Disk.submit_sync`. ``error`` is None when everything is on stable storage."""

    token: int
    error: OSError | None


class Lock(Protocol):
    """Held from :meth:`Disk.lock` or :meth:`Disk.hold` until ``release``."""

    def release(self) -> None:
        """Give it up. Twice is harmless."""
        ...


class Watch(Protocol):
    """News of some files, from :meth:`Disk.watch` until ``close``. Belongs to one thread at a time."""

    def fileno(self) -> int:
        """A descriptor that is readable, for ``poll`` or an event loop, when a file was written to since the last :meth:`clear`."""
        ...

    def clear(self) -> None:
        """Forget the news so far. Look at the files after this, not before."""
        ...

    def close(self) -> None:
        """Release it. Twice is harmless."""
        ...


class Store(Protocol):
    """A small ordered key-value state in one file, which can be made anew from elsewhere. Not for long: opened, used, closed.

    What it holds is not to be trusted before its file was compared with a checksum kept elsewhere.
    """

    def scan(self) -> Iterable[tuple[bytes, bytes]]:
        """Every (key, value), by rising key."""
        ...

    def fill(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put all of ``entries`` in. Durable when it returns; its name is, after :meth:`Disk.sync_directory`."""
        ...

    def close(self) -> None:
        """Release it. Twice is harmless."""
        ...


class Disk(Protocol):
    """Files and folders. What is not synced may be lost on a crash: in part, and in any order.

    Paths are strings with ``/``. Every failure is a :class:`StorageError` (missing files too, with ``errno.ENOENT``).
    """

    @property
    def openings(self) -> int:
        """How many files :meth:`open` has opened so far, in any thread: what is open stays the same file, and what is opened by its name
        may be another by now."""
        ...

    def list(self, directory: str) -> Sequence[str]:
        """Names in ``directory``, sorted."""
        ...

    def create(self, path: str, size: int = 0) -> File:
        """A new file, open for reading and writing; it must not exist. ``size`` reserves space and does not lengthen it."""
        ...

    def open(self, path: str, *, write: bool = False) -> File:
        """An existing regular file (a symbolic link is refused)."""
        ...

    def stat(self, path: str) -> Stat | None:
        """What is at ``path``; None when nothing is."""
        ...

    def make_directory(self, path: str) -> None:
        """Make it, parents too; existing is fine."""
        ...

    def is_link(self, path: str) -> bool:
        """Whether ``path`` is a symbolic link, wherever it leads."""
        ...

    def check_directory(self, path: str, *, write: bool = True) -> None:
        """Raise :class:`StorageError` where others may change what is in the folder ``path``; to ``write`` there, also where it is a
        symbolic link, which somebody else may have put there."""
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
        """What ``work`` returns for each of ``items``, in their order; side by side where the machine has the processors for it (``waits``:
        the calls only wait for the disk, so more of them), so each call has to keep to what is its own. The first error is raised, after
        all calls ended."""
        ...

    def submit_sync(self, files: Sequence[File], wake: Callable[[], None]) -> int:
        """Begin to sync the content of ``files``; returns a token at once. ``wake`` is called (from any thread) when :meth:`poll` has
        news."""
        ...

    def poll(self) -> Sequence[SyncDone]:
        """Syncs that ended since the last call."""
        ...

    def watch(self, paths: Sequence[str]) -> Watch | None:
        """Have news of writes to the files ``paths``; None where this disk cannot tell of all of them: look again from time to time.

        A hint, which a network file system may owe: whoever relies on it looks again too, only less often."""
        ...

    def lock(self, path: str, about: str) -> Lock:
        """Take the exclusive lock file ``path`` and write ``about`` into it; :class:`LockedError` with the holder's text when taken."""
        ...

    def hold(self, path: str) -> Lock:
        """Take the exclusive lock of the file ``path``, which is there and stays as it is: whoever removed the lock file beside it finds
        its holder all the same. :class:`LockedError` when taken."""
        ...

    def open_store(self, path: str, *, write: bool) -> Store:
        """The store in the file ``path``; made where missing, if ``write``. :class:`CorruptError` where the file is none."""
        ...

    def boot_id(self, directory: str) -> str:
        """Changes whenever unsynced data in ``directory`` may have been lost (a reboot). Empty where the system cannot tell, as of a
        network file system: then never trust equality, nor that anything was lost."""
        ...


class Message(Protocol):
    """A whole message. Byte transports call ``encode``; local and simulated ones hand the object over unchanged."""

    def encode(self) -> Sequence[Buffer]:
        """Its bytes in order, uncopied."""
        ...


class Transport(Protocol):
    """Carries whole messages between addresses. One endpoint (one address) per object.

    May drop, delay, duplicate or reorder messages, and says nothing when it does. Never splits, joins or alters one.
    No method blocks except ``poll``. Only ``wake`` may be called from another thread.
    """

    def listen(self, address: Address) -> Address:
        """Begin to receive at ``address``; returns it with port 0 replaced."""
        ...

    def connect(self, peer: Address) -> None:
        """Begin to connect; the outcome arrives by ``poll``. Twice is harmless."""
        ...

    def send(self, peer: Address, message: object) -> bool:
        """Hand over one message, which the sender leaves unchanged. False: queue full, nothing taken."""
        ...

    def poll(self, timeout_ns: int) -> Iterable[TransportEvent]:
        """What arrived, waiting up to ``timeout_ns`` (0: not at all) for the first event."""
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
        """Make a waiting ``poll`` return. The only method for other threads."""
        ...

    def close(self) -> None:
        """Stop listening and drop all connections."""
        ...
