"""Groups of batches that are appended with one write: a leader's that arrived in one turn, a follower's of one fetch.

A part of :class:`Log`, and used by it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyreplog._core import RecordBatch, stamp
from pyreplog.errors import InternalError, StorageError
from pyreplog.log.intake import Appended, Fetched, check_from_client
from pyreplog.log.layout import INT32_MAX
from pyreplog.ports import Buffer

if TYPE_CHECKING:
    from pyreplog.log.log import Log

Staged = tuple[memoryview, RecordBatch]
"""A batch that may be appended, and its header."""


def stage(log: Log, batches: Sequence[tuple[Buffer, bool]]) -> tuple[list[Staged], int]:
    """Of ``batches`` those from the first on that are in order and need no new segment, and their bytes. Changes nothing: what is not
    in order is found again when it comes first."""
    staged: list[Staged] = []
    latest: dict[int, RecordBatch] = {}  # by producer
    active = log._active
    room = active.size_max - active.size if active.size else 0
    base = log.end_offset
    total = 0
    for batch, trusted in batches:
        try:
            view = memoryview(batch)
            header = RecordBatch(view)
            size, next_offset = header.size, base + header.record_count
            if (
                view.readonly
                or size > log._size_limit
                or total + size > room
                or next_offset > active.roll_offset
                or active.entries_left <= len(staged)
                or (header.max_timestamp > active.roll_timestamp and log._is_old(header.max_timestamp))
            ):
                break
            if not trusted and check_from_client(view, header) != header.max_timestamp:
                break
            if header.producer_id != -1:
                before = latest.get(header.producer_id)
                if before is None:
                    if log.producers.table.check(header) is not None:
                        break
                elif header.producer_epoch != before.producer_epoch or header.base_sequence != before.last_sequence + 1:
                    break
                latest[header.producer_id] = header
        except Exception as error:  # what nobody had foreseen is found again, too
            if isinstance(error, (InternalError, StorageError)):
                raise
            break
        staged.append((view, header))
        base = next_offset
        total += size
    return staged, total


def append_staged(log: Log, staged: Sequence[Staged], total: int, leader_epoch: int) -> list[Appended]:
    """Append all of ``staged``, ``total`` bytes; where they went. Raises as :meth:`Log.append_many_as_leader`."""
    active = log._active
    first = base = log.end_offset
    # All that needs memory is made before anything is written.
    views: list[memoryview] = []
    places: list[Appended] = []
    notes: list[tuple[int, int, int, int]] = []
    numbered = False
    for view, header in staged:
        stamp(view, base, leader_epoch)
        size, count = header.size, header.record_count
        last, end = base + count - 1, base + count
        views.append(view)
        places.append(Appended(base, last, -1, count, size))
        notes.append((size, last, header.max_timestamp, end))
        numbered = numbered or header.producer_id != -1
        base = end
    before, tail = active.size, log._tail
    try:
        active.write(views, total)
        active.unheard = numbered
        for size, last, timestamp, end in notes:
            active.note(size, last, timestamp)
            log.end_offset = end  # with each: what is written must not be written again
        for (view, header), place in zip(staged, places, strict=True):
            if header.producer_id != -1:
                log.producers.note(header, place.base_offset, active)
            if tail.size_max:
                tail.append(place.base_offset, place.last_offset + 1, view, place.size)
        active.unheard = False
    except BaseException as error:
        log._append_failed(error, before, before + total)
        if active.size == before:
            for view in views:
                stamp(view, 0, -1)  # as they came: those behind the first are given again
            if active.torn and isinstance(error, StorageError):
                raise log._intake.not_cut(base - first) from error
        raise
    if first == log.flushed_offset:
        log._unsynced_since_ns = -1
    log._batches += len(staged)
    log._records += base - first
    log._bytes += total
    return places


def append_checked(log: Log, views: list[memoryview], batches: list[Fetched], numbered: list[RecordBatch], total: int, gaps: bool) -> None:
    """Write ``batches`` (base, last offset, epoch, size, max timestamp), which lie one after another in ``views``. ``numbered``: those
    with a producer id."""
    first = batches[0]
    last_offset = batches[-1][1]
    start = log.end_offset
    if gaps and not log._mark.adopted:
        # Before they are there: say that they are none of damage.
        try:
            log._mark.write_state(log._state()._replace(adopted=True))
        except StorageError as error:
            log._write_failed(error)
            raise
        log._sync_mark()
        log._chain = None
    history = log.epochs.entries if batches[-1][2] != log.epochs.latest else None
    try:
        if history is not None:
            for base, _, epoch, _, _ in batches:
                if epoch != log.epochs.latest:
                    log._assign_epoch(epoch, base)
        active = log._active
        if (
            active.size > active.size_max - total
            or last_offset >= active.roll_offset
            or active.entries_left < len(batches)
            or (first[4] > active.roll_timestamp and log._is_old(first[4]))
        ):
            # The new segment begins where the log ends, unless the batches are too far away for its indexes.
            active = log._roll(log.end_offset if last_offset - log.end_offset <= INT32_MAX else first[0])
        before, ends = active.size, [last + 1 for _, last, _, _, _ in batches]
        try:
            active.write(views, total)
            active.unheard = bool(numbered)
            for (_, last, _, size, timestamp), end in zip(batches, ends, strict=True):
                active.note(size, last, timestamp)
                log.end_offset = end  # with each: what is written must not be written again
            if numbered:
                log.producers.note_all(numbered, active)
                active.unheard = False
            _keep(log, views, batches, start, total)
        except BaseException as error:
            log._append_failed(error, before, before + total)
            if before < active.size < before + total:
                log.end(error)  # with epochs that did not begin
            raise
    except BaseException as error:
        if history is not None and log.end_offset == start:
            log._restore_epochs(history)
        if isinstance(error, StorageError) and log.end_offset > start:
            log._write_failed(error)
        raise


def _keep(log: Log, views: list[memoryview], batches: list[Fetched], start: int, total: int) -> None:
    """What was appended, from offset ``start`` on, in the memory for readers near the end, and in what is counted."""
    last_offset = batches[-1][1]
    if len(batches) == 1 and log._tail.size_max:
        log._tail.append(start, last_offset + 1, views[0], total)
    elif log._tail.size_max:
        count = 0
        for view in views:
            # Which offsets a part holds: count its batches along.
            rest = view.nbytes
            while rest > 0:
                rest -= batches[count][3]
                count += 1
            end = batches[count - 1][1] + 1 if count else start
            log._tail.append(start, end, view, view.nbytes)
            start = end
    log._batches += len(batches)
    log._records += log.end_offset - batches[0][0]
    log._bytes += total
