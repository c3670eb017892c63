"""The transaction index of one segment, ``.txnindex``: the aborted transactions whose marker is in it.

The bytes are Kafka's, 34 an entry (big-endian): int16 version 0, int64 producer id, first offset, last offset (the
marker's), last stable offset (the first offset of the oldest other transaction that was open then, or one past the
marker). The file is created with its first entry; most segments have none. It has no checksum: readers decide by the
markers themselves, and recovery rebuilds the index from them. Format: docs/internals/format/transaction_index.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from pyreplog.errors import CorruptError
from pyreplog.log.layout import TRANSACTION_INDEX_SUFFIX, join, parent_of, segment_name
from pyreplog.log.snapshot import read_whole, replace_file
from pyreplog.ports import Disk, File

_VERSION: Final = 0  # on disk: never change
_ENTRY: Final = struct.Struct(">hqqqq")


class AbortedRange(NamedTuple):
    """An aborted transaction: its producer's records from ``first_offset`` up to its marker at ``last_offset`` do
    not count."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def format_aborted(entries: Sequence[AbortedRange]) -> bytes:
    """Return the content of a transaction index with ``entries``."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def parse_aborted(content: bytes, base_offset: int, path: str) -> list[AbortedRange]:
    """Return the whole entries of a transaction index, checked as Kafka checks them.

    Raises :class:`CorruptError` for a newer version, an entry that ends below the segment, or last offsets that do
    not rise.
    """
    entries: list[AbortedRange] = []
    last = base_offset - 1
    for position in range(0, len(content) - _ENTRY.size + 1, _ENTRY.size):
        version, *fields = _ENTRY.unpack_from(content, position)
        entry = AbortedRange(*fields)
        if version != _VERSION:
            raise CorruptError(
                f"transaction index version is {version}, expected {_VERSION}", file=path, position=position
            )
        if entry.last_offset <= last or not 0 <= entry.first_offset <= entry.last_offset:
            raise CorruptError(
                f"aborted transaction {entry.first_offset} to {entry.last_offset} is out of order after {last}",
                file=path,
                position=position,
            )
        last = entry.last_offset
        entries.append(entry)
    return entries


class TransactionIndex:
    """The transaction index of the segment at ``base_offset``. The file is read on first use. Not thread-safe: call
    it under the log's lock."""

    __slots__ = ("_base_offset", "_directory", "_disk", "_entries", "_file", "_written")

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._entries: list[AbortedRange] | None = None
        self._written = 0
        self._file: File | None = None

    @property
    def path(self) -> str:
        """Path of the index file, which may not exist."""
        return join(self._directory, segment_name(self._base_offset, TRANSACTION_INDEX_SUFFIX))

    @property
    def entries(self) -> list[AbortedRange]:
        """All entries, by rising last offset. Do not change the list. Raises :class:`CorruptError` if the file is
        damaged."""
        entries = self._entries
        if entries is None:
            entries = self._entries = self._read()
            self._written = len(entries)
        return entries

    def _read(self) -> list[AbortedRange]:
        return parse_aborted(read_whole(self._disk, self.path) or b"", self._base_offset, self.path)

    def append(self, entry: AbortedRange) -> None:
        """Add an entry in memory; :meth:`write` writes it to the file. REQUIRES that its last offset is above the
        others, else raises :class:`CorruptError`."""
        entries = self.entries
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise CorruptError(
                f"an aborted transaction ends at {entry.last_offset}, not after {entries[-1].last_offset}",
                file=self.path,
            )
        entries.append(entry)

    def write(self) -> None:
        """Write the new entries to the file, without a sync. May be called again after a :class:`StorageError`."""
        entries = self._entries
        if entries is None or self._written == len(entries):
            return
        self._open().write_at(self._written * _ENTRY.size, [format_aborted(entries[self._written :])])
        self._written = len(entries)

    def replace(self, entries: Sequence[AbortedRange]) -> None:
        """Make the file hold exactly ``entries``, which recovery found, durably if it has to be written.

        Without entries the file is removed.
        """
        self.close()
        content = format_aborted(entries)
        self._entries = list(entries)
        self._written = len(entries)
        found = self._disk.stat(self.path)
        if not content:
            if found is not None:
                self._disk.remove(self.path)
            return
        if found is not None and found.size == len(content):
            file = self._disk.open(self.path)
            try:
                if bytes(file.read_at(0, found.size)) == content:
                    return
            finally:
                file.close()
        replace_file(self._disk, self.path, content, reserve_in=parent_of(parent_of(self.path)))

    def truncate(self, offset: int) -> None:
        """Drop every entry whose last offset is at or above ``offset``, in the file too."""
        try:
            kept = [entry for entry in self.entries if entry.last_offset < offset]
        except CorruptError:
            return  # the next recovery of the log rebuilds it
        if self._disk.stat(self.path) is not None and len(kept) < self._written:
            self._open().truncate(len(kept) * _ENTRY.size)
            self._written = len(kept)
        self._entries = kept

    def files(self) -> list[File]:
        """Return the open file for a sync, as a list; empty if the file does not exist."""
        if self._file is None and self._disk.stat(self.path) is None:
            return []
        return [self._open()]

    def close(self) -> None:
        """Close the file. The next write opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            exists = self._disk.stat(self.path) is not None
            self._file = self._disk.open(self.path, write=True) if exists else self._disk.create(self.path)
        return self._file
