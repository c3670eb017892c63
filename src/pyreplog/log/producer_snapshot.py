"""Producer snapshots: ``<offset>.snapshot`` holds the producer table of the log below ``offset``, in Kafka's bytes.

Layout (big-endian): int16 version 1, CRC-32C of the bytes after it, int32 count, then 46 bytes a producer: id, int16
epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp, int32 coordinator epoch, int64
first offset of the open transaction; -1 means none. Only a producer's newest batch is kept. No snapshot is
indispensable: if one is missing or damaged, recovery rebuilds the table from the batches. Format:
docs/internals/format/producer_snapshot.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import partial
from typing import Final

from pyreplog._core import ProducerEntry, SentBatch, crc32c
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log.layout import SNAPSHOT_SUFFIX, TEMPORARY_SUFFIX, join, parent_of, parse_base_offset, segment_name
from pyreplog.log.reserve import with_reserve
from pyreplog.log.snapshot import begin_file, read_whole, remove_file
from pyreplog.ports import Disk

_VERSION: Final = 1  # on disk: never change
_HEAD: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_START: Final = 6


def format_producers(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of a snapshot with ``entries``, in their order."""
    body = bytearray()
    count = 0
    for entry in entries:
        last = entry.batches[-1] if entry.batches else SentBatch(-1, -1, 0, -1)
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_start,
        )
        count += 1
    counted = struct.pack(">i", count)
    return struct.pack(">hI", _VERSION, crc32c(counted + body)) + counted + bytes(body)


def parse_producers(content: bytes, path: str) -> list[ProducerEntry]:
    """Return the producers in a snapshot. Raises :class:`CorruptError` unless every bit of it is right."""
    if len(content) < _HEAD.size:
        raise CorruptError(f"producer snapshot has {len(content)} bytes, fewer than its header", file=path)
    version, crc, count = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise CorruptError(f"producer snapshot version is {version}, expected {_VERSION}", file=path, position=0)
    if crc32c(memoryview(content)[_CRC_START:]) != crc:
        raise CorruptError("checksum mismatch", file=path, position=2)
    if count < 0 or len(content) != _HEAD.size + count * _ENTRY.size:
        raise CorruptError(f"{count} producers do not make {len(content)} bytes", file=path, position=_CRC_START)
    entries = []
    for fields in _ENTRY.iter_unpack(memoryview(content)[_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_start = fields
        entry = ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, transaction_start)
        if sequence >= 0 and offset >= 0:
            entry.batches.append(SentBatch(sequence, offset, delta, timestamp))
        entries.append(entry)
    return entries


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the snapshots among the file ``names``, rising."""
    return sorted(offset for name in names if (offset := parse_base_offset(name, SNAPSHOT_SUFFIX)) is not None)


def read_snapshot(disk: Disk, directory: str, offset: int) -> list[ProducerEntry] | None:
    """Return the producers in the snapshot at ``offset``, or None if it is missing or damaged."""
    path = join(directory, segment_name(offset, SNAPSHOT_SUFFIX))
    try:
        content = read_whole(disk, path)
        return None if content is None else parse_producers(content, path)
    except CorruptError:
        return None


def write_snapshot(
    disk: Disk, directory: str, offset: int, entries: Iterable[ProducerEntry], *, sync: bool = False
) -> bool:
    """Replace the snapshot at ``offset``. Return False if the disk refused to create, write or rename it.

    ``sync`` makes the content durable. The name is durable once the caller syncs the folder; this function never
    does, because the error of that sync must reach the caller. Without both, power loss may leave no snapshot or a
    torn one, which the checksum rejects. Raises :class:`StorageError` if the sync or the close of the file fails.
    """
    path = join(directory, segment_name(offset, SNAPSHOT_SUFFIX))
    temporary = path + TEMPORARY_SUFFIX
    content = format_producers(entries)
    try:
        file = with_reserve(
            disk, parent_of(directory), lambda: begin_file(disk, temporary, [content]), partial(remove_file, disk)
        )
    except StorageError:
        return False
    try:
        if sync:
            file.sync()
    finally:
        file.close()
    try:
        disk.rename(temporary, path)
    except StorageError:
        return False
    return True


def remove_snapshots(disk: Disk, directory: str, offsets: Iterable[int]) -> None:
    """Remove the snapshots at ``offsets``. The caller syncs the folder if they must not return after power loss."""
    for offset in offsets:
        path = join(directory, segment_name(offset, SNAPSHOT_SUFFIX))
        if disk.stat(path) is not None:
            disk.remove(path)
