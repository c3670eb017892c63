"""A follower's batches of one fetch, whatever they are, appended with one write: those that simply follow are
appended by the core.

A part of :class:`Log`, and used by it alone.
"""

from __future__ import annotations

from pyreplog._core import RecordBatch
from pyreplog.errors import StorageError
from pyreplog.log import history, rolling
from pyreplog.log.layout import INT32_MAX
from pyreplog.log.state import LogState
from pyreplog.log.validator import Fetched


def append_validated(
    log: LogState,
    views: list[memoryview],
    batches: list[Fetched],
    with_producer_id: list[RecordBatch],
    total: int,
    gaps: bool,
) -> None:
    """Write ``batches`` (base, last offset, epoch, size, max timestamp), which lie one after another in ``views``.
    ``with_producer_id``: those with a producer id."""
    first = batches[0]
    last_offset = batches[-1][1]
    start = log.end_offset
    if gaps and not log._mark.may_have_gaps:
        # Before they are there: say that they are none of damage.
        try:
            log._mark.write_state(log._state()._replace(may_have_gaps=True))
        except StorageError as error:
            log._write_failed(error)
            raise
        log._sync_mark()
        log._contiguity = None
    epochs = log.epochs.entries if batches[-1][2] != log.epochs.latest else None
    try:
        if epochs is not None:
            for base, _, epoch, _, _ in batches:
                if epoch != log.epochs.latest:
                    history.assign(log, epoch, base)
        active = log._active
        if (
            active.size > active.size_max - total
            or last_offset >= active.roll_offset
            or active.entries_left < len(batches)
            or (first[4] > active.roll_timestamp and rolling.is_old(log, first[4]))
        ):
            # The new segment begins where the log ends, unless the batches are too far away for its
            # indexes.
            active = rolling.roll(log, log.end_offset if last_offset - log.end_offset <= INT32_MAX else first[0])
        before, ends = active.size, [last + 1 for _, last, _, _, _ in batches]
        try:
            active.write(views, total)
            active.unheard = bool(with_producer_id)
            for (_, last, _, size, timestamp), end in zip(batches, ends, strict=True):
                active.note(size, last, timestamp)
                log.end_offset = end  # with each: what is written must not be written again
            if with_producer_id:
                log.producers.note_all(with_producer_id, active)
                active.unheard = False
            _keep(log, views, batches, start, total)
        except BaseException as error:
            log._append_failed(error, before, before + total)
            if before < active.size < before + total:
                log.end(error)  # with epochs that did not begin
            raise
    except BaseException as error:
        if epochs is not None and log.end_offset == start:
            history.take_back(log, epochs)
        if isinstance(error, StorageError) and log.end_offset > start:
            log._write_failed(error)
        raise


def _keep(log: LogState, views: list[memoryview], batches: list[Fetched], start: int, total: int) -> None:
    """What was appended, from offset ``start`` on, in the memory for readers near the end, and in what is
    counted."""
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
