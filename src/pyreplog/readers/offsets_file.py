"""The committed offsets of one named reader: ``replog.offsets-<name>``.

A header of 512 bytes, then entries of 64 bytes each, appended::

    header  "RLOF" | version | name size | crc | name | holder's text
               4   |    2    |     2     |  4  | 200  | 248 at byte 264
    entry   kind | 0 | partition | topic id | offset | leader epoch | attempts | time | crc of the topic | 0 | crc
              1  | 3 |     4     |    16    |   8    |      4       |    4     |  8   |        4         | 8 |  4

The last whole entry of a partition counts. An entry of kind 1 is a commit: all records below its offset are done.
An entry of kind 2 says how often the record at its offset was given to a handler.

* A commit is one write, which is not synced. A process that dies within it leaves a torn entry at the end; the next
  holder cuts it. Power loss may take entries back, so their records are read again. It never adds one.
* The file is locked by its user. A file that has grown is replaced: a new file is locked, written, synced and
  renamed. A process that waits for the lock compares the locked file with the name.

Format: docs/internals/format/offsets.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

from pyreplog.errors import ClosedError, CorruptError, InternalError, StorageError
from pyreplog.log import decode_uuid, encode_uuid, join
from pyreplog.ports import HOLDER_TEXT_SIZE, Disk, File, Lock
from pyreplog.readers.layout import REPLACEMENT_SUFFIX, offsets_file_name
from pyreplog.record import crc32c

__all__ = [
    "HEADER_SIZE",
    "HOLDER_POSITION",
    "Attempts",
    "Commit",
    "OffsetEntry",
    "EntryKind",
    "OffsetsFile",
    "ParsedOffsets",
    "format_header",
    "format_entry",
    "parse_entry",
    "parse_offsets_file",
]

# On disk: never change.
MAGIC: Final = b"RLOF"
VERSION: Final = 1
_FIXED: Final = struct.Struct(">4sHHI")
_NAME_POSITION: Final = _FIXED.size + 4
NAME_SIZE_MAX: Final = 200
HOLDER_POSITION: Final = 264
HEADER_SIZE: Final = HOLDER_POSITION + HOLDER_TEXT_SIZE
_ENTRY: Final = struct.Struct(">B3xi16sqiIqI8x")
_CRC: Final = struct.Struct(">I")
ENTRY_SIZE: Final = _ENTRY.size + _CRC.size

GROWN_SIZE: Final = 512 << 10
"""A file above this size is replaced, if most of it is entries that count no longer."""
TAKES_MAX: Final = 1000
"""The most attempts to lock a file that its holders keep replacing."""
NO_ID: Final = bytes(16)


class EntryKind:
    """The kinds of entries."""

    COMMIT: Final = 1
    ATTEMPT: Final = 2


class Commit(NamedTuple):
    """A committed offset: the records below it are done."""

    offset: int
    leader_epoch: int
    """The epoch of the record before ``offset``; -1 if it is not known."""
    time_ms: int


class Attempts(NamedTuple):
    """How often the record at ``offset`` was given to a handler."""

    offset: int
    number: int


class OffsetEntry(NamedTuple):
    """One entry. ``topic_crc`` is the CRC-32C of the topic's name, by which a new topic of the name is noticed."""

    kind: int
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int
    attempts: int
    time_ms: int
    topic_crc: int


class ParsedOffsets(NamedTuple):
    """The content of a file."""

    name: str | None
    """The reader's name; None if the header is damaged."""
    entries: list[OffsetEntry]
    """The whole entries, in order."""
    end: int
    """The position behind the last whole entry."""
    damaged_count: int
    """The number of entries before ``end`` that are not whole."""


_Key = tuple[bytes, int]


def topic_crc(topic: str) -> int:
    """Return the checksum by which entries name a topic."""
    return crc32c(topic.encode())


@lru_cache(maxsize=256)
def _id_bytes(topic_id: str) -> bytes:
    return decode_uuid(topic_id) if topic_id else NO_ID


def format_header(name: str) -> bytes:
    """Return the header without the holder's text."""
    data = name.encode().ljust(NAME_SIZE_MAX, b"\0")
    head = MAGIC + struct.pack(">HH", VERSION, len(name))
    return (head + _CRC.pack(crc32c(head + data)) + bytes(4) + data).ljust(HOLDER_POSITION, b"\0")


def format_entry(entry: OffsetEntry) -> bytes:
    """Return the bytes of an entry."""
    kind, topic_id, partition, offset, leader_epoch, attempts, time_ms, crc = entry
    body = _ENTRY.pack(kind, partition, _id_bytes(topic_id), offset, leader_epoch, attempts, time_ms, crc)
    return body + _CRC.pack(crc32c(body))


def parse_entry(data: bytes | memoryview) -> OffsetEntry | None:
    """Return the entry in these 64 bytes, or None if it is torn, damaged, or of an unknown kind."""
    body = bytes(data[: _ENTRY.size])
    if len(data) != ENTRY_SIZE or _CRC.unpack_from(data, _ENTRY.size)[0] != crc32c(body):
        return None
    kind, partition, topic_id, offset, leader_epoch, attempts, time_ms, crc = _ENTRY.unpack(body)
    if kind not in (EntryKind.COMMIT, EntryKind.ATTEMPT) or partition < 0 or offset < 0 or leader_epoch < -1:
        return None
    name = "" if topic_id == NO_ID else encode_uuid(topic_id)
    return OffsetEntry(kind, name, partition, offset, leader_epoch, attempts, time_ms, crc)


def parse_offsets_file(data: bytes | memoryview, path: str) -> ParsedOffsets:
    """Return the content of a whole file.

    Raises :class:`CorruptError` if it is no file of offsets, or one of a newer version. A file of zeros, as an
    interrupted creation leaves it, is an empty one.
    """
    head = bytes(data[:HOLDER_POSITION])
    name: str | None = None
    if any(head):
        magic, version, size, crc = _FIXED.unpack(head[: _FIXED.size].ljust(_FIXED.size, b"\0"))
        text = head[_NAME_POSITION : _NAME_POSITION + NAME_SIZE_MAX]
        if len(head) == HOLDER_POSITION and crc == crc32c(head[: _FIXED.size - 4] + text) and magic == MAGIC:
            if version != VERSION:
                raise CorruptError(
                    f"the offsets are in version {version} of their format, and this pyreplog knows version {VERSION}:"
                    " use the newer pyreplog that wrote them",
                    file=path,
                )
            name = text[:size].decode("ascii", "replace")
    entries: list[OffsetEntry] = []
    end, damaged_count = HEADER_SIZE, 0
    for position in range(HEADER_SIZE, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
        entry = parse_entry(data[position : position + ENTRY_SIZE])
        if entry is not None:
            entries.append(entry)
            damaged_count += (position - end) // ENTRY_SIZE
            end = position + ENTRY_SIZE
    if name is None and any(head) and not entries and len(data) > HEADER_SIZE:
        raise CorruptError(
            "this is no file of a reader's offsets, or all of it is damaged: move it away, and the reader begins as a"
            " new one",
            file=path,
        )
    return ParsedOffsets(name, entries, end, damaged_count)


class OffsetsFile:
    """The open and locked file of one named reader. Not thread-safe."""

    def __init__(self, disk: Disk, folder: str, name: str, about: str, lock: Lock) -> None:
        """Use :meth:`open`."""
        self._disk = disk
        self._folder = folder
        self._about = about
        self._lock = lock
        #: The reader's name.
        self.name = name
        #: The file's path.
        self.path = join(folder, offsets_file_name(name))
        self._file: File | None = None
        self._is_closed = False
        self._end = HEADER_SIZE
        self._commits: dict[_Key, tuple[Commit, int]] = {}
        self._attempts: dict[_Key, tuple[Attempts, int]] = {}
        #: (topic's checksum, partition) -> the topic ids of its commits, the latest last.
        self._ids: dict[tuple[int, int], list[bytes]] = {}
        #: Whether the file held bytes that are no whole entry. A partition without a commit may
        #: then have lost it.
        self.has_damage = False
        #: Whether a sync of the file may have failed before, in this process or an earlier one.
        #: Then the disk may lack entries that the cache has, and a later sync would succeed and
        #: prove nothing.
        self._must_replace = True
        self._grown_size = GROWN_SIZE

    @classmethod
    def open(cls, disk: Disk, folder: str, name: str, about: str = "") -> OffsetsFile:
        """Lock the file of ``name`` in ``folder`` and read it; make it if it is missing.

        Raises :class:`LockedError` with the holder if another reader has it, :class:`CorruptError` if the file
        holds something else, :class:`StorageError`.
        """
        path = join(folder, offsets_file_name(name))
        about = f"reader {name}{f', {about}' if about else ''}"
        for _ in range(TAKES_MAX):
            lock = disk.lock(path, about, HOLDER_POSITION)
            opened = cls(disk, folder, name, about, lock)
            try:
                found = disk.stat(path)
                if found is not None and found.identity == lock.identity:
                    opened._load()
                    return opened
            except BaseException:
                opened.close()
                raise
            opened.close()  # its holder put a new file in its place
        raise InternalError(f"{path} was replaced {TAKES_MAX} times while it was being locked")

    def _load(self) -> None:
        """Read the file, cut a torn entry, and write the header of a new file."""
        file = self._opened()
        size = file.size()
        data = file.read_at(0, size)
        parsed = parse_offsets_file(data, self.path)
        for entry in parsed.entries:
            self._take(entry)
        self._end = parsed.end
        self.has_damage = parsed.damaged_count > 0 or any(data[parsed.end :])
        if size > self._end:
            file.truncate(self._end)
        if not parsed.entries:
            # The name is durable before the first entry: of a reader that began at the end, nothing
            # is skipped later.
            self._replace()
        elif parsed.damaged_count or parsed.name != self.name:
            self._replace_if_possible()

    # --------------------------------------------------------------------------------- what it says

    def commit_of(self, topic: str, topic_id: str, partition: int) -> Commit | None:
        """Return the last commit of a partition; None if there is none. A commit from before the topic had an id
        counts."""
        key = _id_bytes(topic_id), partition
        found = self._commits.get(key)
        if found is None and topic_id:
            found = self._commits.get((NO_ID, partition))
            if found is not None and found[1] != topic_crc(topic):
                found = None
        return None if found is None else found[0]

    def earlier_commit(self, topic: str, topic_id: str, partition: int) -> tuple[str, Commit] | None:
        """Return the last commit of a partition in another topic of this name, and that topic's id; None if there
        is none."""
        own = _id_bytes(topic_id)
        for other in reversed(self._ids.get((topic_crc(topic), partition), ())):
            if other not in (own, NO_ID) and own != NO_ID:
                return encode_uuid(other), self._commits[other, partition][0]
        return None

    def attempts_of(self, topic_id: str, partition: int) -> Attempts | None:
        """Return the attempts of the record that was last given to a handler; None if none was noted."""
        found = self._attempts.get((_id_bytes(topic_id), partition))
        return None if found is None else found[0]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever committed."""
        return not self._commits

    def entries(self) -> list[OffsetEntry]:
        """Return the entries that count."""
        found = [
            OffsetEntry(EntryKind.COMMIT, _id_text(key[0]), key[1], one.offset, one.leader_epoch, 0, one.time_ms, crc)
            for key, (one, crc) in self._commits.items()
        ]
        for key, (attempts, crc) in self._attempts.items():
            commit = self._commits.get(key)
            if commit is None or commit[0].offset <= attempts.offset:
                found.append(
                    OffsetEntry(
                        EntryKind.ATTEMPT, _id_text(key[0]), key[1], attempts.offset, -1, attempts.number, 0, crc
                    )
                )
        return found

    # -------------------------------------------------------------------------------------- writing

    def write(self, entries: Sequence[OffsetEntry]) -> None:
        """Append entries with one write, unsynced. After an error none of them counts."""
        file = self._opened()
        data = format_entry(entries[0]) if len(entries) == 1 else b"".join(map(format_entry, entries))
        file.write_at(self._end, (data,))
        self._end += len(data)
        for entry in entries:
            self._take(entry)
        if self._end > self._grown_size:
            self._replace_if_possible()

    def sync(self) -> None:
        """Make all entries durable.

        The first sync of an opening, and the first one after an error, write the entries into a new file. Raises
        :class:`StorageError`.
        """
        if self._must_replace:
            self._replace()
            return
        try:
            self._opened().sync()
        except StorageError:
            self._must_replace = True
            raise

    def close(self) -> None:
        """Close the file and release its lock. A second call is harmless."""
        self._is_closed = True
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        finally:
            self._lock.release()

    # --------------------------------------------------------------------------------------- inside

    def _opened(self) -> File:
        if self._file is None:
            if self._is_closed:
                raise ClosedError(f"{self.path} is closed")
            self._file = self._disk.open(self.path, write=True)
        return self._file

    def _take(self, entry: OffsetEntry) -> None:
        key = _id_bytes(entry.topic_id), entry.partition
        if entry.kind == EntryKind.ATTEMPT:
            self._attempts[key] = Attempts(entry.offset, entry.attempts), entry.topic_crc
            return
        self._commits[key] = Commit(entry.offset, entry.leader_epoch, entry.time_ms), entry.topic_crc
        ids = self._ids.setdefault((entry.topic_crc, entry.partition), [])
        if not ids or ids[-1] != key[0]:
            if key[0] in ids:
                ids.remove(key[0])
            ids.append(key[0])

    def _replace_if_possible(self) -> None:
        """Replace the file by one with the entries that count. If the disk refuses, go on with the file that is
        there, and try again when it has grown by half."""
        live = len(self._commits) + len(self._attempts)
        try:
            self._replace()
        except StorageError:
            self._grown_size = self._end + self._end // 2
        else:
            self._grown_size = max(GROWN_SIZE, HEADER_SIZE + 4 * live * ENTRY_SIZE)

    def _replace(self) -> None:
        """Write the entries that count into a new file, make it durable, and rename it over this one.

        An error before the rename changes nothing. An error after it leaves the new file in use, and :meth:`sync`
        makes another one, because the new name may not be durable.
        """
        temporary = self.path + REPLACEMENT_SUFFIX
        data = b"".join(map(format_entry, self.entries()))
        if self._disk.stat(temporary) is not None:
            self._disk.remove(temporary)
        lock = self._disk.lock(temporary, self._about, HOLDER_POSITION)
        try:
            with _Closing(self._disk.open(temporary, write=True)) as file:
                file.write_at(0, [format_header(self.name)])
                file.write_at(HEADER_SIZE, [data])
                file.sync()
            self._disk.rename(temporary, self.path)
        except BaseException:
            lock.release()
            with suppress(StorageError):
                self._disk.remove(temporary)
            raise
        old_file, old_lock = self._file, self._lock
        # The next use opens the file by its own name: the handle of the temporary name may have to
        # open it again.
        self._file, self._lock = None, lock
        self._end = HEADER_SIZE + len(data)
        self._must_replace = True
        try:
            if old_file is not None:
                old_file.close()
        finally:
            old_lock.release()
        self._disk.sync_directory(self._folder)
        self._must_replace = False


class _Closing:
    """An open file for ``with``."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __enter__(self) -> File:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _id_text(topic_id: bytes) -> str:
    return "" if topic_id == NO_ID else encode_uuid(topic_id)
