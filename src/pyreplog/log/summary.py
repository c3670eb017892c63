"""The summaries of a root's partitions at a clean stop (``replog.db``), so that the next start need not read each
folder.

The file is a key-value store (:class:`pyreplog.ports.Store`) with one entry a partition. It is used only if the
clean shutdown marker names its length and CRC-32C, which are checked before the store is opened. Each entry also has
a CRC-32C over its key, the incarnation that wrote it and its body. If the store is missing, foreign, stale or
damaged, the start only takes longer, because the folders hold the same facts. Format: docs/internals/format/db.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from pyreplog._core import crc32c
from pyreplog.errors import CorruptError, InvalidTopicError, StorageError
from pyreplog.log.identity import decode_uuid, encode_uuid
from pyreplog.log.layout import INT64_MAX, PARTITION_MAX, SUMMARIES_NAME, check_topic, join
from pyreplog.log.log import Log
from pyreplog.log.snapshot import read_whole
from pyreplog.ports import Disk
from pyreplog.values import EpochEntry, TopicPartition

# On disk: never change.
_VERSION: Final = 1
_CRC: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">BBq16sqqqqqII")
"""Version, flags, retention due (ms), topic id, first base offset, start, end, synced end, high watermark, epochs,
segments."""
_EPOCH: Final = struct.Struct(">iq")
_SEGMENT: Final = struct.Struct(">qI")
_PARTITION: Final = struct.Struct(">I")
_SEPARATOR: Final = b"\0"
_SYNC: Final = 1
_INCOMPLETE: Final = 2
_REPORTED: Final = 4

NEVER_MS: Final = INT64_MAX
ALIKE_MAX: Final = 64
"""Number of decoded summaries to cache. Very many partitions may have equal summaries."""


class Summary(NamedTuple):
    """The state of one partition at a clean stop. Offsets as in :class:`Log`; ``segments``: (base offset, size in
    bytes) of each."""

    topic_id: str
    durability: str
    incomplete: bool
    first_base_offset: int
    start_offset: int
    end_offset: int
    flushed_offset: int
    high_watermark: int
    epochs: tuple[EpochEntry, ...]
    segments: tuple[tuple[int, int], ...]
    retention_due_ms: int
    """Wall time in ms from which retention may delete a segment; :data:`NEVER_MS` for never."""
    reported: bool = False

    @property
    def recovery_point(self) -> int:
        """:attr:`Log.recovery_point` of a log that was closed cleanly."""
        return self.flushed_offset

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch that has a record; -1 if there is none."""
        return next((epoch for epoch, start in reversed(self.epochs) if start < self.end_offset), -1)


class StoreName(NamedTuple):
    """The length and CRC-32C by which the clean shutdown marker names the content of the store."""

    size: int
    crc: int


def summarize(log: Log) -> Summary:
    """Return the summary of ``log``. REQUIRES that it was just closed cleanly."""
    segments = log.segments()
    return Summary(
        log.topic_id,
        log.durability,
        log.incomplete,
        log.first_base_offset,
        log.start_offset,
        log.end_offset,
        log.flushed_offset,
        log.high_watermark,
        tuple(log.epochs.entries),
        tuple(segments),
        log.retention_due_ms(),
        log.reported,
    )


def encode_key(topic_partition: TopicPartition) -> bytes:
    """Return the key of a partition: its topic, a zero byte, its number in four bytes."""
    return topic_partition.topic.encode("ascii") + _SEPARATOR + _PARTITION.pack(topic_partition.partition)


def decode_key(key: bytes) -> TopicPartition:
    """Return the partition of a ``key`` from :func:`encode_key`. Raises :class:`CorruptError` if it is none."""
    topic, separator, number = (
        key[: -_PARTITION.size - 1],
        key[-_PARTITION.size - 1 : -_PARTITION.size],
        key[-_PARTITION.size :],
    )
    if separator != _SEPARATOR or len(number) != _PARTITION.size:
        raise CorruptError("no key of a partition")
    partition = _PARTITION.unpack(number)[0]
    try:
        check_topic(topic.decode("ascii", "replace"))
    except InvalidTopicError as error:
        raise CorruptError(f"no key of a partition: {error}") from None
    if partition > PARTITION_MAX:
        raise CorruptError(f"no key of a partition: its number is {partition}")
    return TopicPartition(topic.decode("ascii"), partition)


def sealed(key: bytes, generation: str, body: bytes) -> bytes:
    """Return the value for ``key``: ``body`` after a checksum over the incarnation ``generation``, the key and the
    body."""
    return _CRC.pack(crc32c(generation.encode() + key + body)) + body


def encode_body(summary: Summary) -> bytes:
    """Return the body of the entry for ``summary``: all of its value except the checksum."""
    flags = (_SYNC if summary.durability == "sync" else 0) | (_INCOMPLETE if summary.incomplete else 0)
    flags |= _REPORTED if summary.reported else 0
    body = bytearray(
        _HEAD.pack(
            _VERSION,
            flags,
            summary.retention_due_ms,
            decode_uuid(summary.topic_id),
            summary.first_base_offset,
            summary.start_offset,
            summary.end_offset,
            summary.flushed_offset,
            summary.high_watermark,
            len(summary.epochs),
            len(summary.segments),
        )
    )
    for epoch in summary.epochs:
        body += _EPOCH.pack(*epoch)
    for segment in summary.segments:
        body += _SEGMENT.pack(*segment)
    return bytes(body)


def checked(key: bytes, generation: str, value: bytes) -> bool:
    """Return whether ``value`` has the right checksum for ``key`` and the incarnation ``generation``."""
    return len(value) >= _CRC.size + _HEAD.size and _CRC.unpack_from(value)[0] == crc32c(
        generation.encode() + key + value[_CRC.size :]
    )


@lru_cache(maxsize=ALIKE_MAX)
def decode_body(value: bytes) -> Summary:
    """Return the summary in a body from :func:`encode_body`. Raises :class:`CorruptError` if it is none.

    The last results are cached, because very many partitions may have equal summaries.
    """
    if len(value) < _HEAD.size:
        raise CorruptError("no summary of a partition")
    version, flags, due, topic_id, first, start, end, flushed, high_watermark, epochs, segments = _HEAD.unpack_from(
        value
    )
    position = _HEAD.size
    if version != _VERSION or len(value) != position + epochs * _EPOCH.size + segments * _SEGMENT.size:
        raise CorruptError("no summary of a partition")
    middle = position + epochs * _EPOCH.size
    return Summary(
        encode_uuid(topic_id),
        "sync" if flags & _SYNC else "os",
        bool(flags & _INCOMPLETE),
        first,
        start,
        end,
        flushed,
        high_watermark,
        tuple(EpochEntry(*fields) for fields in _EPOCH.iter_unpack(value[position:middle])),
        tuple(_SEGMENT.iter_unpack(value[middle:])),
        due,
        bool(flags & _REPORTED),
    )


def is_incomplete(body: bytes) -> bool:
    """Return ``incomplete`` of an entry's body without decoding the rest."""
    return bool(body[1] & _INCOMPLETE)


def is_reported(body: bytes) -> bool:
    """Return ``reported`` of an entry's body without decoding the rest."""
    return bool(body[1] & _REPORTED)


def due_ms(body: bytes) -> int:
    """Return ``retention_due_ms`` of an entry's body without decoding the rest."""
    return int(_HEAD.unpack_from(body)[2])


def read_summaries(disk: Disk, root: str, name: StoreName, generation: str) -> dict[TopicPartition, bytes] | None:
    """Return the bodies of all entries of the store in ``root``, or None if the file's length and checksum are not
    ``name`` or an entry is invalid."""
    path = join(root, SUMMARIES_NAME)
    try:
        content = read_whole(disk, path)
        if content is None or len(content) != name.size or crc32c(content) != name.crc:
            return None
        store = disk.open_store(path, write=False)
        try:
            found: dict[TopicPartition, bytes] = {}
            # Very many entries may have the same topic or body: keep one object for them.
            last = topic = ""
            body = b""
            for key, value in store.scan():
                if not checked(key, generation, value):
                    return None
                topic, partition = decode_key(key)
                last = topic if topic != last else last
                body = value[_CRC.size :] if value[_CRC.size :] != body else body
                found[TopicPartition(last, partition)] = body
            return found
        finally:
            store.close()
    except (CorruptError, StorageError):
        return None


def write_summaries(disk: Disk, root: str, entries: Iterable[tuple[bytes, bytes]]) -> StoreName | None:
    """Replace the store in ``root`` by ``entries``, durably, and return the name for the clean shutdown marker.

    Return None if the store cannot be written. The next start then reads the folders.
    """
    path = join(root, SUMMARIES_NAME)
    try:
        # The store is created from nothing each time; an old one is not read.
        if disk.stat(path) is not None:
            disk.remove(path)
        store = disk.open_store(path, write=True)
        try:
            store.fill(entries)
        finally:
            store.close()
        content = read_whole(disk, path)
    except (CorruptError, StorageError):
        return None
    return None if content is None else StoreName(len(content), crc32c(content))
