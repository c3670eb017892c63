"""The content of a simulated disk: files and folders, each with a *shown* and a *stable* state.

The running system sees the shown state (the page cache); power loss leaves the stable state for certain.
Between the two lie pending pieces: writes and truncations of a file, changes of names in folders. A crash
keeps, drops or tears each of them (:class:`PowerLoss`).
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Final, NamedTuple

__all__ = ["SECTOR_SIZE", "Change", "PowerLoss", "Folder", "Inode", "Node", "PendingWrite", "put"]

SECTOR_SIZE: Final = 512
PIECES_MAX: Final = 4096
"""A file with more unsynced pieces than this has the older half written back, as the kernel does after a while."""


class PendingWrite(NamedTuple):
    """One unsynced change of a file: ``chunk`` written at ``position``, or (``chunk`` is None) the length set to
    ``position``."""

    sequence: int
    position: int
    chunk: bytes | None


class Inode:
    """A file's content, without its name."""

    __slots__ = (
        "_frozen_data",
        "_frozen_stable",
        "data",
        "failed_start",
        "mtime_ms",
        "number",
        "pending",
        "reserved",
        "stable",
    )
    _numbers: Final = count()

    def __init__(self, data: bytes = b"", stable: bytes = b"", *, mtime_ms: int = 0, reserved: int = 0) -> None:
        self.data: bytes | bytearray = data
        self.stable: bytes | bytearray = stable
        self.pending: list[PendingWrite] = []
        self.mtime_ms = mtime_ms
        self.reserved = reserved
        #: Unique among the files of this process.
        self.number = next(self._numbers)
        #: (process generation, errno) of a sync that failed when it was begun. The process
        #: remembers that failure, not the file.
        self.failed_start = (-1, 0)
        self._frozen_data: bytes | None = data
        self._frozen_stable: bytes | None = stable

    def change(self, piece: PendingWrite) -> None:
        """Show ``piece`` and keep it pending."""
        if type(self.data) is bytes:
            self.data = bytearray(self.data)
        self._frozen_data = None
        _apply(self.data, piece.position, piece.chunk)  # type: ignore[arg-type]
        self.pending.append(piece)
        if len(self.pending) > PIECES_MAX:
            self.settle(self.pending[PIECES_MAX // 2].sequence)

    def settle(self, sequence: int) -> None:
        """Make the pending pieces up to ``sequence`` stable."""
        pending = self.pending
        if not pending or pending[0].sequence > sequence:
            return
        stable = self._writable_stable()
        count = 0
        for piece in pending:
            if piece.sequence > sequence:
                break
            _apply(stable, piece.position, piece.chunk)
            count += 1
        del pending[:count]

    def spoil(self, sequence: int, chance: Random) -> None:
        """Fail a sync up to ``sequence``: the pending pieces reach the disk in part, and no later sync writes them."""
        damage = PowerLoss.independent(chance)
        stable = self._writable_stable()
        for piece in self.pending:
            if piece.sequence <= sequence:
                damage.apply(stable, piece)
        self.pending = [piece for piece in self.pending if piece.sequence > sequence]

    def drop_cached(self) -> None:
        """Show the content of the disk, with the pending pieces on top of it."""
        data = bytearray(self.stable)
        for piece in self.pending:
            _apply(data, piece.position, piece.chunk)
        self.data = data
        self._frozen_data = None

    def flip(self, position: int, mask: int) -> None:
        """Flip the bits of ``mask`` in the byte at ``position``, on the disk and in the cache."""
        if type(self.data) is bytes:
            self.data = bytearray(self.data)
        self.data[position] ^= mask  # type: ignore[index]
        self._frozen_data = None
        if position < len(self.stable):
            self._writable_stable()[position] ^= mask

    def after_crash(self, damage: PowerLoss) -> Inode:
        """Return a new file as power loss leaves this one."""
        if self.pending:
            content = bytearray(self.stable)
            for piece in self.pending:
                damage.apply(content, piece)
            left = bytes(content)
        else:
            if self._frozen_stable is None:
                self._frozen_stable = bytes(self.stable)
            left = self._frozen_stable
        after = Inode(left, left, mtime_ms=self.mtime_ms, reserved=self.reserved)
        after.number = self.number
        return after

    def copy(self) -> Inode:
        """Return a new file with the same shown, stable and pending state."""
        if self._frozen_data is None:
            self._frozen_data = bytes(self.data)
        if self._frozen_stable is None:
            self._frozen_stable = bytes(self.stable)
        copied = Inode(self._frozen_data, self._frozen_stable, mtime_ms=self.mtime_ms, reserved=self.reserved)
        copied.number = self.number
        copied.pending = list(self.pending)
        return copied

    def _writable_stable(self) -> bytearray:
        self._frozen_stable = None
        if type(self.stable) is bytes:
            self.stable = bytearray(self.stable)
        return self.stable  # type: ignore[return-value]


class Folder:
    """The names in a folder: ``entries`` as shown, ``stable`` as power loss leaves them for certain."""

    __slots__ = ("entries", "number", "stable")

    def __init__(self) -> None:
        #: Unique, as that of a file.
        self.number = next(Inode._numbers)
        self.entries: dict[str, Node] = {}
        self.stable: dict[str, Node] = {}


Node = Inode | Folder


class Change(NamedTuple):
    """One unsynced change of names, which is atomic. Each part is ``(folder, name, file or folder, or None)``.

    A rename has two parts, the new name first. After a crash its old name may remain beside the new one, but at
    least one of the two is there.
    """

    sequence: int
    parts: tuple[tuple[Folder, str, Node | None], ...]

    def apply_stable(self) -> None:
        """Make the change stable."""
        for folder, name, node in self.parts:
            put(folder.stable, name, node)

    def touches(self, folder: Folder) -> bool:
        """Return whether a name in ``folder`` changes."""
        return any(part[0] is folder for part in self.parts)


class PowerLoss:
    """How one power loss treats the pending pieces. It is drawn once, and then asked for each piece in the order of
    their creation.

    Legal for a file: each piece kept, dropped or torn (at any byte; any set of sectors; length grown but bytes zero
    or, where nothing was written before, arbitrary). Legal for names: each change kept or dropped; a rename's old
    name may survive it. The order of the disk is not the order of the calls.
    """

    __slots__ = ("_chance", "_cut", "_drop_data", "_drop_names", "_tear")

    def __init__(
        self, chance: Random, *, drop_data: float, drop_names: float, tear: float, cut: int | None = None
    ) -> None:
        self._chance = chance
        self._drop_data = drop_data
        self._drop_names = drop_names
        self._tear = tear
        self._cut = cut

    @classmethod
    def drawn(cls, chance: Random, oldest: int, newest: int) -> PowerLoss:
        """Draw one of several tempers, so that rare combinations (all names but no data) are not rare."""
        kind = chance.randrange(8)
        if kind == 0:
            return cls(chance, drop_data=1.0, drop_names=1.0, tear=0.0)  # nothing was written back
        if kind == 1:
            return cls(chance, drop_data=1.0, drop_names=0.0, tear=0.0)  # names only: the empty file
        if kind == 2:
            return cls(chance, drop_data=0.0, drop_names=1.0, tear=0.0)  # data only: the file without a name
        if kind == 3:
            # A disk that keeps the order: all pieces before one moment are kept, and the piece of
            # that moment is torn.
            return cls(chance, drop_data=0.0, drop_names=0.0, tear=0.0, cut=chance.randint(oldest, newest + 1))
        if kind == 4:
            return cls(chance, drop_data=0.0, drop_names=0.0, tear=1.0)
        return cls.independent(chance)

    @classmethod
    def independent(cls, chance: Random) -> PowerLoss:
        """Draw the fate of each piece independently."""
        return cls(
            chance, drop_data=chance.choice((0.15, 0.5, 0.85)), drop_names=chance.choice((0.15, 0.5, 0.85)), tear=0.4
        )

    def keeps(self, change: Change) -> bool:
        """Return whether a change of names reached the disk."""
        if self._cut is not None:
            return change.sequence < self._cut
        return self._chance.random() >= self._drop_names

    def keeps_old_name(self) -> bool:
        """Return whether a rename that reached the disk left its old name there too."""
        return self._cut is None and self._chance.random() < 0.1

    def apply(self, content: bytearray, piece: PendingWrite) -> None:
        """Apply the part of ``piece`` that survives to ``content``."""
        chance = self._chance
        if self._cut is not None:
            if piece.sequence > self._cut:
                return
            tear = piece.sequence == self._cut
        else:
            if chance.random() < self._drop_data:
                return
            tear = chance.random() < self._tear
        if tear and piece.chunk:
            _tear(content, piece.position, piece.chunk, chance)
        else:
            _apply(content, piece.position, piece.chunk)


def put(names: dict[str, Node], name: str, node: Node | None) -> None:
    """Let ``name`` name ``node``; remove the name if that is None."""
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _apply(content: bytearray, position: int, chunk: bytes | None) -> None:
    size = len(content)
    if chunk is None:
        if position < size:
            del content[position:]
        else:
            content.extend(bytes(position - size))
        return
    if position > size:
        content.extend(bytes(position - size))
    content[position : position + len(chunk)] = chunk


def _tear(content: bytearray, position: int, chunk: bytes, chance: Random) -> None:
    size = len(chunk)
    kind = chance.randrange(5)
    if kind == 0:
        _apply(content, position, chunk[: chance.randrange(size)])
    elif kind == 1:
        start = chance.randrange(size)
        _apply(content, position + start, chunk[start:])
    elif kind == 2:
        start = 0
        while start < size:
            end = min(size, start + SECTOR_SIZE - (position + start) % SECTOR_SIZE)
            if chance.random() < 0.5:
                _apply(content, position + start, chunk[start:end])
            start = end
    else:
        # The length reached the disk and the bytes did not. Bytes that were there before stay as
        # they were.
        missing = position + size - len(content)
        if missing > 0:
            content.extend(bytes(missing) if kind == 3 else chance.randbytes(missing))
