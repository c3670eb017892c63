"""Finding the batch behind damage at which reading goes on: the next one with a right checksum whose offset the
batches behind it confirm.

No checksum covers a base offset. So a batch counts only if the batches behind it, or the next segment, do not
contradict its offset.
"""

from __future__ import annotations

from typing import Final

from pyreplog._core import HEADER_SIZE, LOG_OVERHEAD
from pyreplog.errors import CorruptError
from pyreplog.log.layout import INT32_MAX, SCAN_CHUNK_SIZE
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.record import (
    DELTA_POSITION,
    MAGIC,
    MAGIC_POSITION,
    OFFSET_AND_LENGTH,
    SEQUENCE_FIELDS,
    SIZE_UP_TO_DELTA,
    base_offset_of,
    size_of,
)

_LOOKS: Final = 3


def is_cut_off(segment: SegmentReader, position: int) -> bool:
    """Return whether the file of ``segment`` ends at ``position`` or within the batch that begins there."""
    head = segment.file.read_at(position, LOG_OVERHEAD)
    return len(head) < LOG_OVERHEAD or position + size_of(head) > segment.size


def resume_offset(segment: SegmentReader, position: int, start: int, following: int | None = None) -> int | None:
    """Return the base offset of the batch that :func:`resume` finds; None if it finds none."""
    found = resume(segment, position, start, following)
    return None if found is None else found[0]


def resume(
    segment: SegmentReader, position: int, start: int, following: int | None = None, *, dense: bool = False
) -> tuple[int, int] | None:
    """Return (base offset, position) of the first sound batch behind the damage at ``position`` that begins above
    offset ``start``; None if there is none.

    First tries the place that the length of the damaged batch gives, and takes the batch there if its base offset
    follows the damaged batch. Otherwise other batches may lie before it, so the search goes byte by byte.
    ``following`` is the base offset of the next segment. ``dense``: each batch begins at the offset where the one
    before it ends.
    """
    head = segment.file.read_at(position, SIZE_UP_TO_DELTA)
    if len(head) == SIZE_UP_TO_DELTA:
        base, length, _, delta = SEQUENCE_FIELDS.unpack_from(head)
        behind = position + LOG_OVERHEAD + length
        found = _sound(segment, behind, start + 1, following, dense=dense) if length > 0 else None
        if found is not None and found - delta - 1 in (base, start):
            return found, behind
    legacy = segment.legacy
    return _search(segment, max(position + 1, 0 if legacy is None else legacy.end), start, following, dense=dense)


def seek_behind(
    segment: SegmentReader, offset: int, following: int | None = None, *, dense: bool = False
) -> tuple[int, bool]:
    """Return the position of the batch of ``offset`` (or, in a log with gaps, of the next batch) behind damage that
    stops a walk, and True. If damage reaches ``offset``, return the position of the damage, and False."""
    position, expected = segment.anchor(offset)
    legacy = segment.legacy
    if legacy is not None and position < legacy.end:
        position, expected = legacy.end, legacy.next_offset
    while position < segment.size:
        before = (expected, position)
        while (header := segment.header_at(position)) is not None:
            if header[0] < expected or (dense and header[0] != expected):
                break
            behind = _behind(segment, position)
            if header[1] >= offset:
                if header[0] > offset and position > before[1] and _whole(segment, before[1]) is None:
                    # This is no gap: the batch before is damaged, and may have reached further
                    # than its header says.
                    expected, position = before
                    break
                after = segment.header_at(behind)
                if (
                    after is None
                    or after[0] > header[1]
                    or _sound(segment, position, expected, following, dense=dense) is not None
                ):
                    return position, True
                break
            before = (expected, position)
            expected, position = header[1] + 1, behind
        if position > before[1] and _lied(segment, before[1], before[0], following, dense=dense):
            expected, position = before  # the last batch of the walk had a wrong end
        found = resume(segment, position, expected, following, dense=dense)
        if found is None or found[0] > offset:
            break
        expected, position = found
    return position, False


def _lied(segment: SegmentReader, position: int, expected: int, following: int | None, *, dense: bool) -> bool:
    """Return whether the batch at ``position`` is damaged if a walk cannot go on behind it. In a log without gaps it
    began at the right offset, and its checksum covers the rest."""
    if dense:
        return _whole(segment, position) is None
    return _sound(segment, position, expected, following, dense=False) is None


def _search(
    segment: SegmentReader, position: int, start: int, following: int | None, *, dense: bool
) -> tuple[int, int] | None:
    while position + HEADER_SIZE <= segment.size:
        piece = bytes(segment.file.read_at(position, min(SCAN_CHUNK_SIZE, segment.size - position)))
        if len(piece) < HEADER_SIZE:
            return None  # the file is shorter than it was
        last = len(piece) - HEADER_SIZE
        at = piece.find(MAGIC, MAGIC_POSITION) - MAGIC_POSITION
        while 0 <= at <= last:
            base, length = OFFSET_AND_LENGTH.unpack_from(piece, at)
            if (
                start < base <= start + INT32_MAX
                and HEADER_SIZE - LOG_OVERHEAD <= length <= segment.size - position - at - LOG_OVERHEAD
            ):
                found = _sound(segment, position + at, start + 1, following, dense=dense)
                if found is not None:
                    return found, position + at
            at = piece.find(MAGIC, at + MAGIC_POSITION + 1) - MAGIC_POSITION
        position += last + 1
    return None


def _sound(segment: SegmentReader, position: int, least: int, following: int | None, *, dense: bool) -> int | None:
    """Return the base offset, at least ``least``, of the batch at ``position``; None if the batch is damaged, or if
    the batches behind contradict it."""
    header = _whole(segment, position)
    if header is None or header[0] < least or (following is not None and header[1] >= following):
        return None
    after = header[1] + 1
    # A checksum covers the number of offsets of a batch. So one of the batches behind may have a
    # wrong base offset if the next one agrees.
    for _ in range(_LOOKS):
        position = _behind(segment, position)
        behind = _whole(segment, position)
        if behind is None:
            break
        if behind[0] == after or (behind[0] > after and not dense):
            return header[0]
        after += behind[1] - behind[0] + 1
    return header[0] if after == header[1] + 1 else None


def _whole(segment: SegmentReader, position: int) -> tuple[int, int, int] | None:
    header = segment.header_at(position)
    if header is not None:
        try:
            segment.check_batch(position)
        except CorruptError:
            return None
    return header


def _behind(segment: SegmentReader, position: int) -> int:
    return position + size_of(segment.file.read_at(position, LOG_OVERHEAD))


def begins_at(segment: SegmentReader, position: int) -> int | None:
    """Return the base offset that the bytes at ``position`` claim; None if there are too few."""
    data = segment.file.read_at(position, 8)
    return int.from_bytes(data, "big", signed=True) if len(data) == 8 else None


def position_of(segment: SegmentReader, offset: int) -> int:
    """Return the position in ``segment`` of the batch with base offset ``offset``, without use of the index, which
    may be stale after an unclean end.

    REQUIRES that the batch exists and that it and all batches before it are whole.
    """
    position = 0
    while True:
        head = bytes(segment.file.read_at(position, LOG_OVERHEAD))
        if base_offset_of(head) == offset:
            return position
        position += size_of(head)


def least_end(segment: SegmentReader, position: int) -> int:
    """Return the end offset that the last batch before ``position`` would have if it began at the end of the batch
    before it. REQUIRES that all batches before ``position`` are whole."""
    at, end = 0, segment.base_offset
    while at < position:
        head = bytes(segment.file.read_at(at, SIZE_UP_TO_DELTA))
        base = base_offset_of(head)
        above = int.from_bytes(head[DELTA_POSITION:], "big") if head[MAGIC_POSITION] == MAGIC else 0
        at += size_of(head)
        end = (base if at < position else end) + above + 1
    return end
