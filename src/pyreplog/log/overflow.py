"""Segments whose offsets reach further than the 31 bits of an index entry, and what they are split into.

Brokers before KAFKA-5413 (0.11) made them when they compacted. Readers take such a file for the segments that it
should have been; who opens it for writing splits it as Kafka does: the parts are written under ``.cleaned``,
renamed to ``.swap``, and then take the place of the old file. Wherever that ends, :mod:`pyreplog.log.folder` finds
either the old segment or all of the new ones.
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
"""A scanner's status where a batch's last offset does not fit the segment (``STATUS_RANGE``)."""
OFFSETS_FALL: Final = -7
"""The same where a sound batch begins below the end of the one before it (``STATUS_ORDER``)."""
_DAMAGED_INDEX: Final = b"\xff" * 34


class SplitSegment(NamedTuple):
    """Bytes ``start`` to ``end`` of a segment's file, which fit a segment at ``base_offset``."""

    base_offset: int
    start: int
    end: int


def may_overflow(segment: SegmentReader, following: int | None) -> bool:
    """Whether a batch of ``segment`` may lie too far from its base: a look behind its last index entry, and none
    where ``following``, the base offset of the next segment, says no."""
    if not segment.size or (following is not None and following - segment.base_offset <= INT32_MAX):
        return False
    position = segment.indexes.offsets.last[1]
    scan = scan_segment(segment.file, segment.size, segment.base_offset, position=position, check_crc=False)
    return scan.status == OFFSET_TOO_FAR


def find_parts(file: File, size: int, base_offset: int, following: int | None) -> list[SplitSegment]:
    """The parts of a segment's ``file``, in order: one where nothing overflows. All of its ``size`` bytes are in
    them, what is damaged or torn too.

    No checksum covers an offset. So a part is only believed where its first batch is whole, the next does not
    contradict it, and it ends below ``following``, the base offset of the next segment; else its bytes stay with
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
    """The first offset of the batch or message at ``position``, not below ``least``; None where it is not whole."""
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
    """Write ``parts`` of the segment at ``base_offset`` of the folder ``directory`` as segments, durably, under
    their ``.swap`` names: what is left to be done, the plan of the folder says. REQUIRES that no replacement is
    under way there.

    Indexes are not among them: whoever opens them makes them from the batches.
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
    # While one is still `.cleaned` all of higher offsets are dropped. So the first part comes last,
    # once the others are durable.
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
    """What the transaction index of each part holds: the entries whose marker is in it."""
    path = join(directory, segment_name(base_offset, TRANSACTION_INDEX_SUFFIX))
    try:
        content = read_whole(disk, path)
        entries = parse_aborted(content or b"", base_offset, path)
    except CorruptError:
        # Each part's is made anew from the batches then, if it says as plainly that it is damaged.
        return [_DAMAGED_INDEX] * len(parts)
    ends = [part.base_offset for part in parts[1:]] + [INT64_MAX]
    return [
        format_aborted([entry for entry in entries if part.base_offset <= entry.last_offset < end])
        for part, end in zip(parts, ends, strict=True)
    ]
