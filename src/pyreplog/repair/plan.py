"""The plan of a repair: which batches are whole, which others can be corrected without doubt, and which records are
lost.

It reads with the independent decoders of ``pyreplog.verify`` and changes nothing. The fields that a batch's
checksum does not cover (base offset, length, leader epoch, format) are corrected if only one value fits; so is one
flipped bit of the checksum itself. Ranges that one copy lost are taken from another replica that has exactly these
records.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crc32c import crc32c

from pyreplog.errors import CorruptError, StorageError
from pyreplog.ports import Disk
from pyreplog.values import NO_EPOCH
from pyreplog.verify import (
    CHUNK_SIZE,
    HEADER_SIZE,
    METADATA_TOPIC,
    OVERHEAD,
    Broken,
    CheckedBatch,
    PartitionState,
    Window,
    batch_at,
    find_partitions,
    leads_on,
    look_behind,
    read_partition_state,
    resume,
    segment_files,
    split_deleted,
)

_CRC_FROM: Final = 21
_CRC_POSITION: Final = 17
_EPOCH_POSITION: Final = 12
_HEAD: Final = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, format, checksum: what no checksum covers, and it."""


_BASE_DIGITS: Final = 20
_UNKNOWN: Final = "compaction removed them or they are lost: the file of gaps of their segment is missing or damaged"


class RecoveredBatch(NamedTuple):
    """One batch that can be saved: ``size`` bytes at ``position`` of the file ``path``. ``patch``: what to write
    over its header first. ``old``: it is a message in one of the formats before 0.11."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    path: str
    position: int
    size: int
    patch: bytes = b""
    old: bool = False


class Range(NamedTuple):
    """Offsets from ``start`` up to (not including) ``end``, and a word on them."""

    start: int
    end: int
    about: str = ""


@dataclass(slots=True)
class PartitionPlan:
    """What repair makes of one partition."""

    topic: str
    partition: int
    source: str
    """The copy that is followed."""
    state: PartitionState
    pieces: list[RecoveredBatch] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)
    unknown: list[Range] = field(default_factory=list)
    """Offsets without a batch in a compacted log, if no file says whether compaction removed them."""
    mended: list[Range] = field(default_factory=list)
    borrowed: list[Range] = field(default_factory=list)
    dropped: list[Range] = field(default_factory=list)
    """The batch lies behind a gap, above the synced and shown offsets, so readers must never see it."""
    dropped_tombstone: int = -1
    """The highest offset of a tombstone that compaction may have dropped; -1 if it dropped none."""
    first_base: int = 0
    """The base offset of the first segment."""
    unsure: bool = False
    """While the plan is made: the present segment has no file of gaps that can be read."""

    @property
    def base_offset(self) -> int:
        """Where the first segment of the repaired log begins: below :attr:`start_offset` if its first batch does."""
        return min(self.pieces[0].base_offset, self.start_offset) if self.pieces else self.start_offset

    @property
    def start_offset(self) -> int:
        """Where the repaired log begins. It stays if compaction removed the first records."""
        first = self.pieces[0].base_offset if self.pieces else 0
        if not any(lost.start < first for lost in self.lost):
            first = 0 if self.state.dense else min(first, self.first_base)
        return max(first, self.state.start_offset)

    @property
    def end_offset(self) -> int:
        """The end of the plan."""
        return self.pieces[-1].next_offset if self.pieces else self.start_offset

    @property
    def offset_count(self) -> int:
        """How many offsets have a batch that is saved."""
        return sum(piece.next_offset - piece.base_offset for piece in self.pieces)

    @property
    def old_count(self) -> int:
        """How many pieces there are up to the last message in one of the formats before 0.11."""
        return max((index for index, piece in enumerate(self.pieces, 1) if piece.old), default=0)

    def saved_ranges(self) -> list[Range]:
        """Return the offset ranges that repair saves. Adjacent batches share one range, and so do those with nothing
        but a gap of compaction between them."""
        ranges: list[Range] = []
        for piece in self.pieces:
            if ranges and piece.base_offset in (ranges[-1].end, self.state.behind(ranges[-1].end)):
                ranges[-1] = Range(ranges[-1].start, piece.next_offset)
            else:
                ranges.append(Range(piece.base_offset, piece.next_offset))
        return ranges


def plan_repair(disk: Disk, path: str, progress: Callable[[int], None] | None = None) -> list[PartitionPlan]:
    """Return a plan for each partition under ``path``. Raise :class:`StorageError` if there is none.

    The metadata log of a cluster is left out: only a cluster can write it.
    """
    found = {key: folders for key, folders in find_partitions(disk, path).items() if key[0] != METADATA_TOPIC}
    if not found:
        raise StorageError(errno.ENOENT, "there is no partition here", path)
    plans = []
    for (topic, partition), folders in sorted(found.items()):
        copies = [_read_copy(disk, folder, topic, partition, progress) for folder in folders]
        # The copy of the latest epoch that reaches furthest, as an election would have it.
        copies.sort(
            key=lambda plan: (plan.pieces[-1].leader_epoch if plan.pieces else -1, plan.end_offset), reverse=True
        )
        best = copies[0]
        for other in copies[1:]:
            if other.state.topic_id == best.state.topic_id:
                _borrow(best, other)
        plans.append(best)
    return plans


def _read_copy(
    disk: Disk, folder: str, topic: str, partition: int, progress: Callable[[int], None] | None
) -> PartitionPlan:
    """What one copy holds."""
    state = read_partition_state(disk, folder)
    plan = PartitionPlan(topic, partition, folder, state)
    names = list(disk.list(folder))
    bases = segment_files(disk, folder, names)
    if state.marked:
        _, bases = split_deleted(bases, state.start_offset)
    plan.first_base = min(bases, default=0)
    expected = state.start_offset if state.marked else None
    for index, (base, following) in enumerate(zip(bases, [*list(bases)[1:], None], strict=False)):
        name = bases[base]
        path = f"{folder}/{name}"
        if expected is None or (expected > base and not plan.pieces):
            expected = base  # the log's start lies within its first segment
        if base > expected:
            expected = state.behind(expected)
        if base > expected:
            if index and plan.unsure and base <= (state.promised or 0) and not _has_remains(names, expected, base):
                plan.unknown.append(Range(expected, base, _UNKNOWN))
            elif state.dense or not index:
                _lose(plan, expected, base, "the segment that held them is missing or cut short")
            expected = base
        plan.unsure = state.dense and state.compacted and not state.gap_files.get(base, False)
        try:
            file = disk.open(path)
        except StorageError as error:
            _lose(
                plan, expected, following or max(state.promised or 0, expected + 1), f"{name} cannot be read: {error}"
            )
            continue
        try:
            later = [] if following is None else _first_epochs(disk, f"{folder}/{bases[following]}")
            expected = _read_segment(plan, Window(file, file.size(), progress), path, expected, following, later)
        finally:
            file.close()
    if plan.pieces and plan.pieces[-1].next_offset <= state.start_offset:
        plan.pieces.clear()  # all of them are deleted, and would be seen again in a log that ends below its start
    if state.promised is not None and (expected or 0) < state.promised:
        _lose(
            plan, max(expected or 0, state.start_offset), state.promised, "the log ends before the synced or shown end"
        )
    _lose_moved(disk, plan)
    _cut_behind_gaps(plan)
    _bound_tombstone(plan, list(bases))
    return plan


def _lose(plan: PartitionPlan, start: int, end: int, about: str) -> None:
    """Note the range as lost, without the offsets that compaction removed."""
    parts = plan.state.outside_gaps(max(start, plan.state.start_offset), end)
    plan.lost += [Range(*part, about) for part in parts]


def _has_remains(names: Sequence[str], start: int, end: int) -> bool:
    """Return whether a file is left of a segment that began in the half-open range."""
    heads = (name[:_BASE_DIGITS] for name in names if name[_BASE_DIGITS : _BASE_DIGITS + 1] == ".")
    return any(start <= int(head) < end for head in heads if head.isascii() and head.isdecimal())


def _bound_tombstone(plan: PartitionPlan, bases: Sequence[int]) -> None:
    """Set the highest offset of a tombstone that may have been dropped. If a file of gaps is damaged or missing, it is
    the last offset that the file could name, so that a reader which may have missed a deletion begins again."""
    state = plan.state
    end = state.promised or 0
    ends = dict(zip(bases, [*bases[1:], end], strict=True))
    damaged = [ends.get(base, base + 1) - 1 for base, is_whole in state.gap_files.items() if not is_whole]
    plan.dropped_tombstone = max(
        [state.dropped_tombstone, *damaged, *(min(one.end, end) - 1 for one in plan.unknown)], default=-1
    )


def _first_epochs(disk: Disk, path: str) -> list[int]:
    """The leader epochs of the first few batches of a segment, as far as they are whole."""
    try:
        file = disk.open(path)
    except StorageError:
        return []
    try:
        window = Window(file, file.size())
        first = batch_at(window, 0)
        if first is None or first.checksum() != first.crc:
            return []
        return [first.leader_epoch, *(one.leader_epoch for one in look_behind(window, first))]
    except (Broken, StorageError):
        return []
    finally:
        file.close()


def _read_segment(
    plan: PartitionPlan, window: Window, path: str, expected: int, following: int | None, later: Sequence[int]
) -> int:
    """The batches of one segment; the offset that comes next. ``later``: the leader epochs of those that the next
    segment begins with."""
    state, position = plan.state, 0
    while True:
        try:
            batch = _next_batch(plan, window, position, expected, following, later)
            if batch is None:
                return expected
        except Broken as broken:
            after = resume(
                window,
                position,
                expected + 1,
                broken.size,
                following=following,
                dense=state.dense and not state.compacted,
            )
            end = after.base_offset if after is not None else following
            # If no batch follows, the bytes above the mark may be anything: only the batch's own
            # header says where it ends.
            mended = _mend(plan, window, path, position, after, expected, end, later)
            if mended is not None:
                plan.pieces.append(mended)
                plan.mended.append(Range(mended.base_offset, mended.next_offset, broken.reason))
                expected, position = mended.next_offset, position + mended.size
                continue
            if after is None:
                if end == state.behind(expected):
                    return expected  # behind the last batch of a segment, and offsets go on in the next one
                if end is not None or expected < (state.promised or 0):
                    stop = end if end is not None else state.promised or expected
                    _lose(plan, expected, max(stop, expected + 1), broken.reason)
                    return max(stop, expected)
                plan.dropped.append(
                    Range(
                        expected,
                        expected,
                        f"{window.size - position} bytes behind the last whole batch: {broken.reason}",
                    )
                )
                return expected
            _lose(plan, expected, after.base_offset, broken.reason)
            expected, position = after.base_offset, after.position
            continue
        next_offset = batch.last_offset + 1
        if batch.base_offset > state.behind(expected) and state.dense:
            plan.unknown.append(Range(expected, batch.base_offset, _UNKNOWN))
        piece = RecoveredBatch(
            batch.base_offset, next_offset, batch.leader_epoch, path, position, batch.size, old=batch.magic < 2
        )
        if batch.leader_epoch == NO_EPOCH and not piece.old:
            # A log takes none without: that of the one before it will do.
            epoch = max(_epoch_before(plan), 0)
            patch = _HEAD.pack(batch.base_offset, batch.size - OVERHEAD, epoch, batch.magic, batch.crc)
            piece = piece._replace(leader_epoch=epoch, patch=patch)
        plan.pieces.append(piece)
        expected, position = next_offset, position + batch.size


def _next_batch(
    plan: PartitionPlan, window: Window, position: int, expected: int, following: int | None, later: Sequence[int]
) -> CheckedBatch | None:
    """Return the batch at ``position``; None at the end of the segment. Raises :class:`Broken` if its
    checksum, base offset or leader epoch is wrong.
    """
    batch = batch_at(window, position)
    if batch is None:
        return None
    reason = ""
    if batch.checksum() != batch.crc:
        reason = "checksum mismatch"
    elif batch.base_offset < expected or (
        plan.state.dense
        and batch.base_offset not in (expected, plan.state.behind(expected))
        and not _may_be_gap(plan, window, batch, expected, following)
    ):
        reason = f"batch has base offset {batch.base_offset}, expected {expected}"
    elif batch.base_offset > expected and not leads_on(window, batch, following):
        reason = f"batch has base offset {batch.base_offset}, which the batches behind it contradict"
    elif not _epoch_fits(plan, window, batch, later):
        reason = f"leader epoch {batch.leader_epoch} does not belong here"
    if reason:
        raise Broken(position, reason, batch.size)
    return batch


def _may_be_gap(plan: PartitionPlan, window: Window, batch: CheckedBatch, expected: int, following: int | None) -> bool:
    """Return whether compaction may have removed the offsets before ``batch``: the segment's file of gaps is missing
    or damaged, and ``batch`` at ``expected`` would not fit."""
    if not plan.unsure or batch.base_offset > (plan.state.promised or 0):
        return False
    if (batch.base_offset ^ expected).bit_count() > 1:
        return True
    try:
        after = batch_at(window, batch.position + batch.size)
    except Broken:
        return False
    end = (following or plan.state.promised) if after is None else after.base_offset
    return end != expected + batch.last_offset - batch.base_offset + 1


def _epoch_fits(plan: PartitionPlan, window: Window, batch: CheckedBatch, later: Sequence[int]) -> bool:
    """Return whether the leader epoch of ``batch``, which no checksum covers, agrees with the history, or may
    follow the epoch of the batch before. A rising epoch is refused if all batches behind it have an older one."""
    if batch.magic < 2 and (not plan.pieces or plan.pieces[-1].old or plan.pieces[-1].path != window.file.path):
        return True  # they have none, also behind a segment that compaction converted
    epoch, before = batch.leader_epoch, _epoch_before(plan)
    known = plan.state.epoch_at(batch.base_offset)
    if epoch == NO_EPOCH and batch.magic == 2:
        return known is None
    if epoch < before:
        return False
    if known == epoch:
        return True
    if known is not None and batch.base_offset < (plan.state.promised or 0):
        return False
    if epoch == before:
        return True
    return not _rose(epoch, [one.leader_epoch for one in look_behind(window, batch)] or later)


def _epoch_before(plan: PartitionPlan) -> int:
    """Return the leader epoch of the batch that was saved last; :data:`NO_EPOCH` if there is none."""
    return plan.pieces[-1].leader_epoch if plan.pieces else NO_EPOCH


def _rose(epoch: int, behind: Sequence[int]) -> bool:
    """Whether ``epoch`` is above all those ``behind`` it, and so not to be believed."""
    return bool(behind) and max(behind) < epoch


def _mend(
    plan: PartitionPlan,
    window: Window,
    path: str,
    position: int,
    after: CheckedBatch | None,
    expected: int,
    end: int | None,
    later: Sequence[int],
) -> RecoveredBatch | None:
    """Return the batch at ``position`` with a corrected header, if exactly one value agrees with its checksum and
    its neighbours."""
    reach = (window.size if after is None else after.position) - position
    head = bytes(window.take(position, HEADER_SIZE))
    if len(head) < HEADER_SIZE:
        return None
    extent = _extent(window, position, head, reach)
    if extent is None:
        return None
    size, crc = extent
    (said,) = struct.unpack_from(">q", head)
    (delta,) = struct.unpack_from(">i", head, 23)
    bases = [
        base
        for base in sorted({expected, plan.state.behind(expected)})
        if _fits(plan, base + delta + 1, end, is_whole=size == reach)
        # A batch of elsewhere in this log, and no flip of one bit, is none of this place.
        and ((said ^ base).bit_count() <= 1 or not 0 <= said < (plan.state.promised or 0))
    ]
    if delta < 0 or len(bases) != 1:
        return None
    base = bases[0]
    (epoch,) = struct.unpack_from(">i", head, _EPOCH_POSITION)
    behind = later if after is None else [after.leader_epoch, *(one.leader_epoch for one in look_behind(window, after))]
    mended = _mended_epoch(plan, base, epoch, behind)
    if mended is None:
        return None
    return RecoveredBatch(
        base, base + delta + 1, mended, path, position, size, _HEAD.pack(base, size - OVERHEAD, mended, 2, crc)
    )


def _fits(plan: PartitionPlan, next_offset: int, end: int | None, *, is_whole: bool) -> bool:
    """Return whether a batch that is mended may end at ``next_offset``. ``end``: the offset behind it, if that is
    known; ``is_whole``: nothing else lies between."""
    state = plan.state
    if not state.dense or plan.unsure:
        return next_offset == end  # where offsets are missing it may have had others
    if end is None or end in (next_offset, state.behind(next_offset)):
        return True
    return next_offset < end and not is_whole and not state.compacted


def _extent(window: Window, position: int, head: bytes, reach: int) -> tuple[int, int] | None:
    """Size and checksum of the batch at ``position``, of ``reach`` bytes at the most; None where its checksum says
    that it is none."""
    (length,) = struct.unpack_from(">i", head, 8)
    (stored,) = struct.unpack_from(">I", head, _CRC_POSITION)
    # Up to the next batch, or to the end by its own header, if the next batch is damaged too.
    for size in (reach, length + OVERHEAD):
        computed = _checksum(window, position, size) if HEADER_SIZE <= size <= reach else None
        if computed is not None and (stored ^ computed).bit_count() <= 1:
            return size, computed
    return None


def _mended_epoch(plan: PartitionPlan, offset: int, said: int, behind: Sequence[int]) -> int | None:
    """Return the leader epoch of the batch of ``offset``, whose header has ``said``: the epoch of the history; or
    that of its neighbours, if they agree; or its own, if it fits between them (0 for the first batch, if its own is
    negative)."""
    known = plan.state.epoch_at(offset)
    if known is not None:
        return known
    before = _epoch_before(plan)
    behind = [epoch for epoch in behind if epoch >= 0]
    if behind and before in (NO_EPOCH, behind[0]):
        return behind[0]
    if before == NO_EPOCH:
        said = max(said, 0)
    return None if said < before or _rose(said, behind) else said


def _lose_moved(disk: Disk, plan: PartitionPlan) -> None:
    """Discard a corrected offset if it may be wrong. A batch from another place in the log may have an offset that
    differs by one bit from the expected one. So the corrected batch counts as lost, unless the batch of the offset
    in its header exists, and is a different one."""
    heads = {piece.base_offset: _head(disk, piece) for piece in plan.pieces if piece.patch}
    moved = {
        base: said for base, head in heads.items() if (said := int.from_bytes(head[:8], "big", signed=True)) != base
    }
    unsure = set()
    for base, said in moved.items():
        slot = bisect_right(plan.pieces, said, key=lambda piece: piece.base_offset) - 1
        there = plan.pieces[slot] if slot >= 0 and said < plan.pieces[slot].next_offset else None
        if there is None:
            sure = slot < 0 or said >= (plan.state.promised or 0)
        else:
            sure = there.base_offset not in moved and _head(disk, there)[_CRC_POSITION:] != heads[base][_CRC_POSITION:]
        if not sure:
            unsure.add(base)
    for piece in plan.pieces:
        if piece.base_offset in unsure:
            _lose(
                plan,
                piece.base_offset,
                piece.next_offset,
                f"the batch in its place says offset {moved[piece.base_offset]}",
            )
    plan.lost.sort()
    plan.pieces = [piece for piece in plan.pieces if piece.base_offset not in unsure]
    plan.mended = [one for one in plan.mended if one.start not in unsure]


def _head(disk: Disk, piece: RecoveredBatch) -> bytes:
    """Return the bytes in the file at the place of the base offset, length, leader epoch, format and checksum of
    ``piece``."""
    file = disk.open(piece.path)
    try:
        return bytes(file.read_at(piece.position, _CRC_FROM))
    finally:
        file.close()


def _checksum(window: Window, position: int, size: int) -> int | None:
    """Of the batch of ``size`` bytes at ``position``, piece by piece, for damage may be as large as a segment; None
    where the file ends before."""
    computed, at, end = 0, position + _CRC_FROM, position + size
    while at < end:
        piece = window.take(at, min(CHUNK_SIZE, end - at))
        if not piece:
            return None
        computed, at = crc32c(piece, computed), at + len(piece)
    return computed


def _cut_behind_gaps(plan: PartitionPlan) -> None:
    """End the log at the first gap above the synced and shown offsets: readers must not see a record behind it."""
    promised = plan.state.promised
    if promised is None or not plan.state.dense:
        return
    gaps = [lost for lost in plan.lost if lost.start >= promised]
    if not gaps:
        return
    end = gaps[0].start
    behind = [piece for piece in plan.pieces if piece.base_offset >= end]
    if behind:
        plan.dropped.append(
            Range(behind[0].base_offset, behind[-1].next_offset, "behind a gap above the synced and shown offsets")
        )
    plan.pieces = [piece for piece in plan.pieces if piece.base_offset < end]
    plan.dropped += gaps
    plan.lost = [lost for lost in plan.lost if lost.start < promised]


def _borrow(plan: PartitionPlan, other: PartitionPlan) -> None:
    """Fill the ranges that ``plan`` lost, or does not know, with the batches of ``other`` that lie wholly within them.
    Offsets that compaction removed from ``other`` are not lost."""
    lost, taken = _filled(plan, other, plan.lost)
    unknown, also_taken = _filled(plan, other, plan.unknown)
    plan.lost, plan.unknown = lost, unknown
    if taken or also_taken:
        plan.pieces = sorted([*plan.pieces, *taken, *also_taken])


def _filled(
    plan: PartitionPlan, other: PartitionPlan, ranges: Sequence[Range]
) -> tuple[list[Range], list[RecoveredBatch]]:
    """Return the parts of ``ranges`` that ``other`` does not fill, and its batches in the others."""
    left: list[Range] = []
    taken: list[RecoveredBatch] = []
    for lost in ranges:
        at = lost.start
        around = _epochs_around(plan, lost)
        for piece in other.pieces:
            if piece.base_offset < at or piece.next_offset > lost.end or piece.base_offset >= lost.end:
                continue
            # Of one offset and leader epoch there is one record. Another epoch's may never have
            # been committed.
            known = plan.state.epoch_at(piece.base_offset)
            if piece.leader_epoch != known if known is not None else not around.issubset({piece.leader_epoch}):
                continue
            if piece.base_offset > at:
                left.append(Range(at, piece.base_offset, lost.about))
            taken.append(piece)
            plan.borrowed.append(Range(piece.base_offset, piece.next_offset, other.source))
            at = piece.next_offset
        if at < lost.end:
            left.append(Range(at, lost.end, lost.about))
    parts = ((part, lost.about) for lost in left for part in other.state.outside_gaps(lost.start, lost.end))
    return [Range(*part, about) for part, about in parts], taken


def _epochs_around(plan: PartitionPlan, lost: Range) -> set[int]:
    """Return the leader epochs of the saved batches next to ``lost``, on either side."""
    before = [piece.leader_epoch for piece in plan.pieces if piece.next_offset <= lost.start][-1:]
    behind = [piece.leader_epoch for piece in plan.pieces if piece.base_offset >= lost.end][:1]
    return {*before, *behind}


def check_plan(plan: PartitionPlan) -> None:
    """Raises :class:`CorruptError` where the pieces do not follow one another: a mistake here must not become a
    log."""
    expected = -1
    for piece in plan.pieces:
        if piece.base_offset < expected:
            raise CorruptError(f"two pieces hold offset {piece.base_offset}", file=piece.path, position=piece.position)
        expected = piece.next_offset
