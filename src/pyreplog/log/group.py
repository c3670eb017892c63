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
            if not trusted:
                check_from_client(view, header)
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
    base = log.end_offset
    for view, header in staged:
        stamp(view, base, leader_epoch)
        base += header.record_count
    try:
        active.write([view for view, _ in staged], total)
    except StorageError as error:
        for view, _ in staged:
            stamp(view, 0, -1)  # as they came: those behind the first are given again
        log._append_refused(error)
        if active.torn:
            raise log._intake.not_cut(base - log.end_offset) from error
        raise
    base = log.end_offset
    if base == log.flushed_offset:
        log._unsynced_since_ns = -1
    tail = log._tail
    places: list[Appended] = []
    for view, header in staged:
        size, count = header.size, header.record_count
        active.note(size, base + count - 1, header.max_timestamp)
        if header.producer_id != -1:
            log.producers.note(header, base, active)
        if tail.size_max:
            tail.append(base, base + count, view, size)
        places.append(Appended(base, base + count - 1, -1, count, size))
        base += count
    log._batches += len(staged)
    log._records += base - log.end_offset
    log._bytes += total
    log.end_offset = base
    return places


def append_checked(log: Log, views: list[memoryview], batches: list[Fetched], numbered: list[RecordBatch], total: int, gaps: bool) -> None:
    """Write ``batches`` (base, last offset, epoch, size, max timestamp), which lie one after another in ``views``. ``numbered``: those
    with a producer id."""
    first = batches[0]
    last_offset = batches[-1][1]
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
        try:
            active.write(views, total)
        except StorageError as error:
            log._append_refused(error)
            raise
    except StorageError:
        if history is not None:
            log._restore_epochs(history)
        raise
    for _, last, _, size, timestamp in batches:
        active.note(size, last, timestamp)
    start, log.end_offset = log.end_offset, last_offset + 1  # with the notes: what is written must not be written again
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
    log._records += log.end_offset - first[0]
    log._bytes += total
    if not numbered:
        return
    try:
        log.producers.note_all(numbered, active)
    except StorageError as error:
        log._write_failed(error)
        raise
