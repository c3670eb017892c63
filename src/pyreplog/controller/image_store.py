"""The stored image: a node's committed metadata in a key-value file, so that a node of very many
partitions starts without replaying its log.

The log is the truth. The store is written some time after the commit, is not synced, and may be
lost. It is used only if snapshot or log has the very record at which it ends, and if its entries
have the sum that its mark names; else it is removed and made again. Format:
docs/internals/format/stored_image.md.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from pyreplog.controller.image import MetadataImage
from pyreplog.controller.image_entries import NAME_PART, PREFIX_SIZE, TOPIC, Entry, ImageEntries, topic_prefix
from pyreplog.controller.image_loader import ImageLoader
from pyreplog.errors import CorruptError, PyreplogError, StorageError
from pyreplog.log import format_state, join, read_state, replace_file
from pyreplog.ports import Clock, Disk, Store
from pyreplog.record import crc32c
from pyreplog.wire import MetadataRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord

__all__ = [
    "IMAGE_STORE_NAME",
    "ImageStore",
    "StoredEnd",
    "StoredMark",
    "decode_mark",
    "encode_mark",
    "entry_sum",
    "format_note",
]

IMAGE_STORE_NAME: Final = "replog.image.db"
NOTE_NAME: Final = "replog.image"
SLICE: Final = 1000
"""Entries that one step writes, and that one read returns."""
DELAY_NS: Final = 1_000_000_000
"""Fewer changes than a slice are written after this time, and the first slice of a new store."""
PAUSE_NS: Final = 50_000_000
"""A whole slice is written after this time, behind the answers and the other nodes' fetches."""
_READ_SIZE: Final = 1 << 20
_VERSION: Final = 1
_MARK_KEY: Final = b"!"
_MARK: Final = struct.Struct(">BqiqQ")
"""Version, offset and epoch of the last record, number and sum of the entries. A CRC-32C follows."""
_CRC_SIZE: Final = 4
_SUM_MASK: Final = (1 << 64) - 1

_log = logging.getLogger("pyreplog")


class StoredEnd(NamedTuple):
    """The last record that a store contains."""

    offset: int
    epoch: int


class StoredMark(NamedTuple):
    """The entry that says how far a store goes. ``total`` is the sum of the entries' checksums."""

    end: StoredEnd
    entry_count: int
    total: int


def encode_mark(mark: StoredMark) -> bytes:
    """Return the value of a mark."""
    data = _MARK.pack(_VERSION, *mark.end, mark.entry_count, mark.total)
    return data + crc32c(data).to_bytes(_CRC_SIZE, "big")


def decode_mark(data: bytes) -> StoredMark | None:
    """Return the mark in ``data``; None if it is none, or that of another version."""
    if len(data) != _MARK.size + _CRC_SIZE or crc32c(data[:-_CRC_SIZE]) != int.from_bytes(data[-_CRC_SIZE:], "big"):
        return None
    version, offset, epoch, count, total = _MARK.unpack_from(data)
    return StoredMark(StoredEnd(offset, epoch), count, total) if version == _VERSION else None


def entry_sum(key: bytes, value: bytes) -> int:
    """Return the part of an entry in the sum of its store."""
    return crc32c(key + value)


class _Changes:
    """Entries that are written together; ``end``: the last record among them."""

    __slots__ = ("end", "entries")

    def __init__(self, end: StoredEnd) -> None:
        self.end = end
        self.entries: dict[bytes, bytes | None] = {}


def format_note(boot_id: str, size: str, crc: str) -> bytes:
    """Return the content of the file that vouches for a store; no ``crc``: the store is open."""
    return format_state({"version": "1", "boot_id": boot_id, "size": size, "crc": crc})


class ImageStore:
    """The stored image in ``folder``. One owner.

    No method raises for a store that cannot be read or written: the store is then given up until
    the next start.
    """

    def __init__(self, disk: Disk, folder: str, clock: Clock, records_min: int = 0) -> None:
        self.records_min = records_min
        """An image of fewer records is loaded from snapshot and log as fast."""
        self._disk = disk
        self._clock = clock
        self._folder = folder
        self._path = join(folder, IMAGE_STORE_NAME)
        self._note = join(folder, NOTE_NAME)
        self._entries = ImageEntries()
        self._reset(None)

    def _reset(self, store: Store | None) -> None:
        self._store = store
        self._end = StoredEnd(-1, -1)
        """The last record that was noted."""
        self._is_begun = False
        """Whether the store follows an image."""
        self._is_built = False
        """Whether the store has the whole image, so that it may have a mark."""
        self._count = self._sum = 0
        self._changes: deque[_Changes] = deque()
        self._orphans: deque[bytes] = deque()
        """The prefixes of the keys of removed topics."""
        self._unbuilt: dict[str, None] = {}
        """The topics that are still to be put in."""
        self._building: tuple[str, int] | None = None
        """The topic that is being put in, and its next partition number."""
        self._due_ns: int | None = None
        """The time at which the work that is left is due."""

    @property
    def is_open(self) -> bool:
        """Whether the store is in use."""
        return self._store is not None

    @property
    def is_empty(self) -> bool:
        """Whether the store is open and waits for :meth:`build`."""
        return self._store is not None and not self._is_begun

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`work` has something to do."""
        return self._due_ns

    # ------------------------------------------------------------------------------------ beginning

    def load(self, has: Callable[[StoredEnd], bool]) -> MetadataImage | None:
        """Open the store and return its image.

        ``has``: whether log or snapshot have that record, and the log goes on behind it. Return
        None if the store may not be used; then it is open and empty, for :meth:`build`.
        """
        self.kill()
        try:
            if self._is_trusted():
                self._open()
                image = self._load(has)
                if image is not None:
                    return image
                self.kill()
            for path in (self._note, self._path):
                if self._disk.stat(path) is not None:
                    self._disk.remove(path)
            self._open()
        except (StorageError, CorruptError) as error:
            self._give_up(error)
        return None

    def _is_trusted(self) -> bool:
        """Whether the store's file is as this program left it: it has the checksum of a clean end,
        or the machine was not restarted since a process had it open."""
        note = read_state(self._disk, self._note)
        if note is None or self._disk.stat(self._path) is None:
            return False
        if note.get("crc"):
            return self._checksum() == (note.get("size"), note["crc"])
        return note.get("boot_id", "") == self._disk.boot_id(self._folder) != ""

    def _checksum(self) -> tuple[str, str]:
        """Return size and CRC-32C of the store's file, read as any other file."""
        file = self._disk.open(self._path)
        try:
            crc, size = 0, file.size()
            for position in range(0, size, _READ_SIZE):
                crc = crc32c(file.read_at(position, _READ_SIZE), crc)
            return str(size), f"{crc:08x}"
        finally:
            file.close()

    def _write_note(self, size: str, crc: str) -> None:
        data = format_note(self._disk.boot_id(self._folder), size, crc)
        replace_file(self._disk, self._note, data, durable=False)

    def _open(self) -> None:
        self._write_note("", "")
        self._reset(self._disk.open_store(self._path, write=True))

    def _load(self, has: Callable[[StoredEnd], bool]) -> MetadataImage | None:
        assert self._store is not None
        mark = self._store.get([_MARK_KEY])[0]
        found = None if mark is None else decode_mark(mark)
        if found is None or not has(found.end):
            return None
        end, count, total = found
        loader = ImageLoader(end.offset)
        try:
            self._read_all(self._store, loader)
        except (PyreplogError, ValueError, LookupError):  # a damaged record may be refused anywhere
            return None
        if (self._count, self._sum) != (count, total):
            return None
        self._end = end
        self._is_begun = self._is_built = True
        self._due_ns = 0 if self._orphans else None
        loader.image.offset = end.offset
        return loader.image

    def _read_all(self, store: Store, loader: ImageLoader) -> None:
        """Apply every entry, and work out their number and sum."""
        start = _MARK_KEY + b"\0"
        topic = b""
        count = total = 0
        while entries := store.read_from(start, SLICE):
            for key, value in entries:
                total += entry_sum(key, value)
                prefix = key[:PREFIX_SIZE]
                if prefix != topic and key[:1] == TOPIC:
                    if key[PREFIX_SIZE:] != NAME_PART:  # of a removed topic
                        if not self._orphans or self._orphans[-1] != prefix:
                            self._orphans.append(prefix)
                        continue
                    topic = prefix
                loader.add(value)
            count += len(entries)
            start = entries[-1][0] + b"\0"
        self._count, self._sum = count, total & _SUM_MASK

    def build(self, image: MetadataImage, end: StoredEnd) -> None:
        """Begin to fill the empty store from ``image``; :meth:`work` goes on. ``end``: the last
        record in it."""
        if self._store is not None:
            self._end = end
            self._is_begun = True
            self._unbuilt = dict.fromkeys(sorted(image.topics, key=topic_prefix))  # as the keys: full pages
            self._changes.append(_Changes(end))
            self._changes[0].entries.update(self._entries.of_cluster(image))
            self._due_ns = self._clock.monotonic_ns() + DELAY_NS

    # -------------------------------------------------------------------------------------- writing

    def note(self, image: MetadataImage, record: MetadataRecord, end: StoredEnd) -> None:
        """Note that the committed ``record``, whose place is ``end``, was applied to ``image``."""
        if not self._is_begun:
            return
        self._end = end
        if not self._changes or len(self._changes[-1].entries) >= SLICE:
            self._changes.append(_Changes(end))
        last = self._changes[-1]
        last.end = end
        if isinstance(record, RemoveTopicRecord):
            self._orphans.append(topic_prefix(record.topic_id))
            self._unbuilt.pop(record.topic_id, None)
            if self._building is not None and self._building[0] == record.topic_id:
                self._building = None
        if not self._is_unbuilt(record):
            last.entries.update(self._entries.of_record(image, record))
        if len(last.entries) >= SLICE:
            due_ns = self._clock.monotonic_ns() + PAUSE_NS
            self._due_ns = due_ns if self._due_ns is None else min(self._due_ns, due_ns)
        elif self._due_ns is None and last.entries:
            self._due_ns = self._clock.monotonic_ns() + DELAY_NS

    def _is_unbuilt(self, record: MetadataRecord) -> bool:
        """Whether the store gets the partition of ``record`` later, with its topic."""
        if not isinstance(record, PartitionRecord | PartitionChangeRecord):
            return False
        if self._building is not None and record.topic_id == self._building[0]:
            return record.partition_id >= self._building[1]
        return record.topic_id in self._unbuilt

    def work(self, image: MetadataImage, now_ns: int) -> None:
        """Write the next slice, if it is due. ``image`` has applied the records that were noted."""
        if self._store is None or self._due_ns is None or self._due_ns > now_ns:
            return
        try:
            if self._changes:
                changes = self._changes.popleft()
                self._write(self._store, changes.entries.items(), changes.end)
            elif not self._is_built:
                entries = self._build_slice(image)
                self._is_built = not self._unbuilt and self._building is None
                self._write(self._store, entries, self._end)
            elif self._orphans:
                self._remove_orphans(self._store)
        except (StorageError, CorruptError) as error:
            self._give_up(error)
        if not self._changes and self._is_built and not self._orphans:
            self._due_ns = None

    def _build_slice(self, image: MetadataImage) -> list[Entry]:
        entries: list[Entry] = []
        while len(entries) < SLICE and (self._unbuilt or self._building is not None):
            if self._building is None:
                topic_id, number = next(iter(self._unbuilt)), 0
                del self._unbuilt[topic_id]
                entries.extend(self._entries.of_topic(image.topics[topic_id]))
            else:
                topic_id, number = self._building
            topic = image.topics[topic_id]
            numbers = [found for found, _ in islice(topic.partitions.items_from(number), SLICE)]
            entries.extend(self._entries.partition(topic, found) for found in numbers)
            self._building = (topic_id, numbers[-1] + 1) if len(numbers) == SLICE else None
        return entries

    def _remove_orphans(self, store: Store) -> None:
        prefix = self._orphans[0]
        found = [key for key, _ in store.read_from(prefix, SLICE) if key.startswith(prefix)]
        self._write(store, [(key, None) for key in found], self._end)
        if len(found) < SLICE:
            self._orphans.popleft()

    def _write(self, store: Store, entries: Iterable[Entry], end: StoredEnd) -> None:
        """Write entries, and the mark if the store has the whole image."""
        changes = list(entries)
        count, total = self._count, self._sum
        for (key, value), old in zip(changes, store.get([key for key, _ in changes]), strict=True):
            if old is not None:
                count -= 1
                total -= entry_sum(key, old)
            if value is not None:
                count += 1
                total += entry_sum(key, value)
        total &= _SUM_MASK
        if self._is_built:
            changes.append((_MARK_KEY, encode_mark(StoredMark(end, count, total))))
        store.write(changes)
        self._count, self._sum = count, total

    # ------------------------------------------------------------------------------------------ end

    def finish(self, image: MetadataImage) -> None:
        """Do all the work that is left."""
        while self._is_begun and (self._changes or not self._is_built or self._orphans):
            self._due_ns = 0
            self.work(image, 0)

    def close(self, image: MetadataImage) -> None:
        """Finish and close the store, and note its checksum."""
        self.finish(image)
        if not self._is_begun:
            self.kill()
            return
        self.kill()
        try:
            self._write_note(*self._checksum())
        except (StorageError, CorruptError) as error:
            self._give_up(error)

    def kill(self) -> None:
        """Close the store at once. Writes nothing. A second call is harmless."""
        store = self._store
        self._reset(None)
        if store is not None:
            store.close()

    def _give_up(self, error: Exception) -> None:
        _log.warning("the stored image of the metadata is not used until the next start: %s", error)
        self.kill()
        with suppress(StorageError):
            if self._disk.stat(self._note) is not None:
                self._disk.remove(self._note)
