"""Splitting segments whose offsets need more than the 31 bits of an index entry.

Brokers before KAFKA-5413 (0.11) created them when they compacted. Readers treat such a file as the segments that it
should have been. A writer that opens it splits it as Kafka does: it writes the parts under ``.cleaned``, renames
them to ``.swap``, and then puts them in the place of the old file. After a crash at any step,
:mod:`pyreplog.log.folder` finds either the old segment or all of the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pyreplog._core import LOG_OVERHEAD, RecordBatch
from pyreplog.errors import CorruptError
from pyreplog.log.layout import (
    CLEANED_SUFFIX,
    INT32_MAX,
    INT64_MAX,
    LOG_SUFFIX,
    SCAN_CHUNK_SIZE,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    join,
    segment_name,
)
from pyreplog.log.scan import scan_segment
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.log.snapshot import read_whole
from pyreplog.log.transaction_index import format_aborted, parse_aborted
from pyreplog.ports import Disk, File
from pyreplog.record import MAGIC_POSITION, SIZE_UP_TO_MAGIC, convert_legacy, size_of

OFFSET_TOO_FAR: Final = -13
"""The scanner's status if a batch's last offset does not fit the segment (``STATUS_RANGE``)."""
OFFSETS_FALL: Final = -7
"""The scanner's status if a sound batch begins below the end of the one before it (``STATUS_ORDER``)."""
_DAMAGED_INDEX: Final = b"\xff" * 34


class SplitSegment(NamedTuple):
    """The bytes ``start`` to ``end`` of a segment's file, which fit into a segment at ``base_offset``."""

    base_offset: int
    start: int
    end: int


def may_overflow(segment: SegmentReader, following: int | None) -> bool:
    """Return whether a batch of ``segment`` may lie too far from the base offset. Scans only the batches behind the
    last index entry, and none if ``following``, the base offset of the next segment, is near enough."""
    if not segment.size or (following is not None and following - segment.base_offset <= INT32_MAX):
        return False
    position = segment.indexes.offsets.last[1]
    scan = scan_segment(segment.file, segment.size, segment.base_offset, position=position, check_crc=False)
    return scan.status == OFFSET_TOO_FAR


def find_parts(file: File, size: int, base_offset: int, following: int | None) -> list[SplitSegment]:
    """Return the parts of a segment's ``file``, in order: a single one if nothing overflows. They cover all of its
    ``size`` bytes, damaged and torn ones too.

    No checksum covers an offset. So a part counts only if its first batch is whole, the next batch does not
    contradict it, and it ends below ``following``, the base offset of the next segment. Otherwise its bytes stay in
    the part before, and are damage there.
    """
    parts: list[SplitSegment] = []
    base, start = base_offset, 0
    scan = scan_segment(file, size, base, check_crc=False)
    while scan.status == OFFSET_TOO_FAR:
        position = scan.position
        begin = _first_offset(file, position, max(scan.next_offset, base))
        if begin is None:
            break
        after = scan_segment(file, size, begin, position=position, check_crc=False)
        contradicted = after.batch_count == 1 and after.status == OFFSETS_FALL
        if not after.batch_count or contradicted or after.next_offset > (INT64_MAX if following is None else following):
            break
        parts.append(SplitSegment(base, start, position))
        base, start, scan = begin, position, after
    parts.append(SplitSegment(base, start, size))
    return parts


def _first_offset(file: File, position: int, least: int) -> int | None:
    """Return the first offset of the batch or message at ``position``, at least ``least``; None if the batch is
    damaged."""
    head = bytes(file.read_at(position, SIZE_UP_TO_MAGIC))
    if len(head) < SIZE_UP_TO_MAGIC:
        return None
    data = file.read_at(position, max(size_of(head), LOG_OVERHEAD))
    try:
        batch = RecordBatch(convert_legacy(data) if head[MAGIC_POSITION] <= 1 else data)
        batch.check_crc()
    except CorruptError:
        return None
    return max(batch.base_offset, least)


def split_segment(disk: Disk, directory: str, base_offset: int, parts: Sequence[SplitSegment]) -> None:
    """Write ``parts`` of the segment at ``base_offset`` of the folder ``directory`` as segments, durably, under their
    ``.swap`` names. The folder's plan does the rest. REQUIRES that no replacement is under way there.

    Writes no indexes: the next opening rebuilds them from the batches.
    """
    names: list[list[str]] = []
    source = disk.open(join(directory, segment_name(base_offset, LOG_SUFFIX)))
    try:
        for part in parts:
            names.append([segment_name(part.base_offset, LOG_SUFFIX)])
            _write(disk, join(directory, names[-1][0] + CLEANED_SUFFIX), _pieces(source, part))
    finally:
        source.close()
    snapshot = read_whole(disk, join(directory, segment_name(base_offset, SNAPSHOT_SUFFIX)))
    if snapshot is not None:
        names[0].append(segment_name(base_offset, SNAPSHOT_SUFFIX))
        _write(disk, join(directory, names[0][-1] + CLEANED_SUFFIX), [snapshot])
    for content, part, own in zip(_aborted(disk, directory, base_offset, parts), parts, names, strict=True):
        if content:
            own.append(segment_name(part.base_offset, TRANSACTION_INDEX_SUFFIX))
            _write(disk, join(directory, own[-1] + CLEANED_SUFFIX), [content])
    disk.sync_directory(directory)
    # Recovery drops all new parts above a part that is still `.cleaned`. So the first part is
    # renamed last, after the others are durable.
    for own in reversed(names):
        for name in own:
            disk.rename(join(directory, name + CLEANED_SUFFIX), join(directory, name + SWAP_SUFFIX))
        if own is names[1]:
            disk.sync_directory(directory)
    disk.sync_directory(directory)


def _write(disk: Disk, path: str, pieces: Iterator[bytes | memoryview] | Sequence[bytes]) -> None:
    file = disk.create(path)
    try:
        position = 0
        for piece in pieces:
            file.write_at(position, [piece])
            position += len(piece)
        file.sync()
    finally:
        file.close()


def _pieces(source: File, part: SplitSegment) -> Iterator[memoryview]:
    for at in range(part.start, part.end, SCAN_CHUNK_SIZE):
        yield source.read_at(at, min(SCAN_CHUNK_SIZE, part.end - at))


def _aborted(disk: Disk, directory: str, base_offset: int, parts: Sequence[SplitSegment]) -> list[bytes]:
    """Return the content of each part's transaction index: the entries whose marker is in the part."""
    path = join(directory, segment_name(base_offset, TRANSACTION_INDEX_SUFFIX))
    try:
        content = read_whole(disk, path)
        entries = parse_aborted(content or b"", base_offset, path)
    except CorruptError:
        # Write indexes that are plainly damaged too, so that the next opening rebuilds them from
        # the batches.
        return [_DAMAGED_INDEX] * len(parts)
    ends = [part.base_offset for part in parts[1:]] + [INT64_MAX]
    return [
        format_aborted([entry for entry in entries if part.base_offset <= entry.last_offset < end])
        for part, end in zip(parts, ends, strict=True)
    ]
