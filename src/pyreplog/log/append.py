"""Appending to a log, as its leader and as a follower of another leader.

======== ============================================================ ==================================
as       batches                                                      path
======== ============================================================ ==================================
leader   made by our encoder, or valid as they are; writable; the     compiled: ``append_own`` stamps
         next of their producer; in the current epoch and segment     offsets and epoch
leader   any other: invalid, to be rewritten, a producer's first,     ``LogValidator.take``, the checks of
         the first of an epoch, too large for the segment             :meth:`LogAppender._append_checked`
follower one in each buffer, the very next offsets, the epoch that    compiled: ``append_next`` checks
         goes on, no control batch, in the current segment            them
follower any other: several in a buffer, gaps, a new epoch, control   ``check_fetched``, then
         batches, too large for the segment                           :meth:`LogAppender._append_validated`
======== ============================================================ ==================================

The compiled paths are for nearly all batches. All four end in one commit, compiled too
(:meth:`SegmentEnd.commit <pyreplog._core.SegmentEnd.commit>`): write at the end of the segment,
count, keep for readers near the end, note the producers. All ask :meth:`SegmentEnd.fits
<pyreplog._core.SegmentEnd.fits>` whether the segment is full.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from pyreplog._core import RecordBatch, stamp
from pyreplog.errors import (
    InternalError,
    InvalidRequestError,
    MessageTooLargeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from pyreplog.log.contiguity import ContiguityCheck
from pyreplog.log.layout import INT32_MAX, INT64_MAX
from pyreplog.log.segment_writer import INTERRUPTING, SegmentWriter
from pyreplog.log.state import LogState
from pyreplog.log.validator import Appended, Fetched, check_fetched, cut_fetched, is_valid
from pyreplog.ports import Buffer

_OFFSETS_SCARCE_FROM: Final = INT64_MAX - INT32_MAX
"""Below this offset there are offsets for any batch."""
_new_tuple = tuple.__new__


def _gaps_before(batches: Sequence[Fetched], end_offset: int) -> list[int]:
    """Return start and end of each gap before and between ``batches``, which follow ``end_offset``."""
    bounds: list[int] = []
    for base, last, _, _, _ in batches:
        if base != end_offset:
            bounds += (end_offset, base)
        end_offset = last + 1
    return bounds


class LogAppender(LogState):
    """A log that can be appended to. REQUIRES the caller's lock."""

    __slots__ = ()

    # -- as the leader --

    def become_leader(self, leader_epoch: int) -> None:
        """Let ``leader_epoch`` begin at the log's end. REQUIRES it to be newer than any in the log.

        Raises :class:`InvalidRequestError` if there is no such number.
        """
        self._check_writable()
        if leader_epoch > INT32_MAX:
            raise InvalidRequestError(
                f"{self.topic_partition} has used up its leader epochs: import its records into a new log"
            )
        if leader_epoch < self.epochs.latest:
            raise InternalError(f"{self.topic_partition}: leader epoch {leader_epoch} after {self.epochs.latest}")
        self._change_epochs(partial(self._leader_epochs.assign, leader_epoch, self.end_offset))

    def append_as_leader(
        self, batch: Buffer, leader_epoch: int, *, trusted: bool = False, times_checked: bool = False
    ) -> Appended:
        """Append one whole batch and give it offsets and epoch, in place if it is writable.

        The caller hands the batch over and must not change it afterwards. It is checked first (size,
        checksum, count, density, no control records) unless it is ``trusted``: our own encoder made it
        in the same call. ``times_checked``: its records' timestamps were in bounds when they came.

        Nothing was appended after :class:`MessageTooLargeError`, :class:`CorruptError`,
        :class:`InvalidRequestError`, :class:`StorageError`, or :class:`UnknownServerError` (an
        unforeseen error while the batch was checked). After :class:`OutcomeUnknownError` a write
        failed and its bytes could not be cut off, so the next opening may find the batch.
        :class:`ClosedError` once the log is closed or poisoned. A batch with a producer id may also
        raise :class:`OutOfOrderSequenceError`, :class:`InvalidProducerEpochError` or
        :class:`UnknownProducerIdError`; a repeated one is not appended again, see :class:`Appended`.
        """
        if self._failure is not None or self._closed:
            self._check_writable()
        validator = self._validator
        rewrites = validator.keyed or (validator.converts if times_checked else validator.rewrites)
        if trusted and leader_epoch == self.epochs.current and not rewrites and self.end_offset < _OFFSETS_SCARCE_FROM:
            places = self._append_own(((batch, True),), leader_epoch)
            if places:
                return places[0]
        view, header = validator.take(batch, trusted=trusted, times_checked=times_checked)
        return self._append_checked(view, header, leader_epoch)

    def append_many_as_leader(self, batches: Sequence[tuple[Buffer, bool]], leader_epoch: int) -> list[Appended]:
        """Append at least the first of ``batches`` (bytes, whether trusted) and return the places of those appended.

        The batches behind the first go with the same write as long as they need no special treatment. The
        caller appends the rest with another call. Raises the errors of :meth:`append_as_leader` for the
        first batch; :class:`OutcomeUnknownError` is about all of them.
        """
        plain = (
            leader_epoch == self.epochs.current
            and not self._validator.rewrites
            and not self._validator.keyed
            and self.end_offset < _OFFSETS_SCARCE_FROM
        )
        if len(batches) > 1 and plain and self._failure is None and not self._closed:
            places = self._append_own(batches, leader_epoch)
            if places:
                return places
        return [self.append_as_leader(batches[0][0], leader_epoch, trusted=batches[0][1])]

    def _append_own(self, batches: Sequence[tuple[Buffer, bool]], leader_epoch: int) -> list[Appended]:
        """Append the first of ``batches`` that need no special treatment, with one write, and return their places."""
        active = self._active
        before = active.size
        try:
            places = active.append_own(
                batches, self.end_offset, leader_epoch, self._size_limit, self._tail, self.producers, is_valid
            )
            self.end_offset = active.next_offset
        except BaseException as error:
            self._own_failed(error, before, batches)
            raise
        # The constructor of Appended is a Python function; this is not.
        return [_new_tuple(Appended, place) for place in places]

    def _append_checked(self, view: memoryview, header: RecordBatch, leader_epoch: int) -> Appended:
        """Append a batch that ``LogValidator.take`` gave. See :meth:`append_as_leader`."""
        size, count = header.size, header.record_count
        if size > self._size_limit:
            raise MessageTooLargeError(self._validator.too_large(size))
        if header.producer_id != -1 and (sent := self.producers.table.check(header)) is not None:
            timestamp = sent.timestamp if self._append_time else -1
            return Appended(sent.base_offset, sent.last_offset, timestamp, sent.offset_delta + 1, 0, duplicate=True)
        if self.epochs.current is None:
            self._change_epochs(self._leader_epochs.write)
        if leader_epoch != self.epochs.latest:
            self.become_leader(leader_epoch)
        base = self.end_offset
        if count > INT64_MAX - base:
            raise InvalidRequestError(
                f"{self.topic_partition} has used up its offsets: import its records into a new log"
            )
        active = self._writer_for(size, 1, base, base + count - 1, header.max_timestamp)
        before = active.size
        stamp(view, base, leader_epoch)
        try:
            active.commit((view,), 1, base, self._tail, self.producers)
            self.end_offset = active.next_offset
        except BaseException as error:
            if active.size == before:
                stamp(view, 0, -1)  # as it came, because it may come again
            self._own_failed(error, before, ((view, True),))
            raise
        timestamp = header.max_timestamp if self._append_time else -1
        return Appended(base, base + count - 1, timestamp, count, size)

    def _own_failed(self, error: BaseException, before: int, batches: Sequence[tuple[Buffer, bool]]) -> None:
        """Note ``error`` of a leader's append. Raises :class:`OutcomeUnknownError` if records may have stayed."""
        self._append_failed(error, before)
        active = self._active
        # If there was no room, one batch leaves less than itself, which no opening takes for a
        # batch. Several may leave whole ones.
        if active.torn and (self._poisoned or (isinstance(error, StorageError) and active.tried > 1)):
            count = sum(RecordBatch(batch).record_count for batch, _ in batches[: active.tried])
            raise self._validator.not_cut(count) from error

    # -- as a follower --

    def append_as_follower(self, parts: Sequence[Buffer], *, at_end: bool = False, dropped_tombstone: int = -1) -> int:
        """Append batches fetched from the leader, whole ones in each of ``parts``; return the new end offset.

        Their bytes stay as they are. All are checked before any is written: checksum, offsets not
        below the end and rising, leader epochs not falling. Gaps are allowed, but with ``at_end`` only
        if the log :attr:`takes_gaps`, and then they are noted. ``dropped_tombstone``: the leader's,
        which is noted too if these batches may have lost it. Raises :class:`CorruptError`, or its
        :class:`UnexpectedAppendOffsetError` for batches that do not follow.
        """
        if self._failure is not None or self._closed:
            self._check_writable()
        if self.epochs.current is None:
            self._change_epochs(self._leader_epochs.write)
        end, active = self.end_offset, self._active
        if dropped_tombstone < end:  # most answers
            before = active.size
            try:
                size = active.append_next(parts, end, self.epochs.latest, self._tail, self.producers)
                self.end_offset = active.next_offset
            except BaseException as error:
                self._append_failed(error, before)
                raise
            if size:
                return self.end_offset
        views, batches, gaps = check_fetched(parts, end, self.epochs.latest)
        if not batches:
            return end
        notes = at_end and self.takes_gaps and not self._mark.may_have_gaps
        if gaps and at_end and not notes and not self._mark.may_have_gaps:
            missing, base = _gaps_before(batches, end)[:2]
            last = next(one[1] for one in batches if one[0] == base)
            reason = f"{self.topic_partition}: a batch fetched from offset {missing} begins elsewhere"
            raise UnexpectedAppendOffsetError(reason, first_offset=base, last_offset=last, end_offset=missing)
        if batches[-1][1] - batches[0][0] <= INT32_MAX:
            self._append_validated(views, batches, gaps=gaps, notes=notes, dropped_tombstone=dropped_tombstone)
        else:
            # No segment holds them all.
            for view, fetched in zip(cut_fetched(views, batches), batches, strict=True):
                self._append_validated([view], [fetched], gaps=gaps, notes=notes, dropped_tombstone=dropped_tombstone)
        return self.end_offset

    def _append_validated(
        self,
        views: Sequence[memoryview],
        batches: Sequence[Fetched],
        *,
        gaps: bool,
        notes: bool = False,
        dropped_tombstone: int = -1,
    ) -> None:
        """Append ``batches``, which ``check_fetched`` found one after another in ``views``, with one write.
        ``notes``: gaps and a dropped tombstone are noted."""
        start, size = self.end_offset, sum(view.nbytes for view in views)
        noted: Sequence[int] = ()
        if notes:
            noted = _gaps_before(batches, start) if gaps else ()
            if noted and batches[-1][1] - start > INT32_MAX:
                # The next segment begins at the first batch, so the first gap ends this one.
                self._note_gaps_in(self._active, noted[:2], -1)
                noted = noted[2:]
        elif gaps and not self._mark.may_have_gaps:
            self._allow_gaps()
        epochs = self.epochs.entries if batches[-1][2] != self.epochs.latest else None
        try:
            if epochs is not None:
                for base, _, epoch, _, _ in batches:
                    if epoch != self.epochs.latest:
                        self._change_epochs(partial(self._leader_epochs.assign, epoch, base))
            active = self._writer_for(size, len(batches), batches[0][0], batches[-1][1], batches[0][4])
            tombstone = min(dropped_tombstone, batches[-1][1]) if notes and dropped_tombstone >= start else -1
            if noted or tombstone >= 0:
                self._note_gaps_in(active, noted, tombstone)
            before = active.size
            try:
                active.commit(views, len(batches), start, self._tail, self.producers)
                self.end_offset = active.next_offset
            except BaseException as error:
                self._append_failed(error, before)
                if before < active.size < before + size:
                    self.fail_until_reopened(error)  # the history has epochs that did not begin
                raise
        except BaseException as error:
            if self.end_offset == start and self._failure is None and not self._mark.may_have_gaps:
                self._forget_gaps_ahead()
            if epochs is not None and self.end_offset == start:
                self._leader_epochs.restore(epochs)
                if self._failure is None:
                    # If the disk refuses this too, the next append tries it again, and the next
                    # opening drops the epochs that begin behind the end.
                    with contextlib.suppress(StorageError):
                        self._change_epochs(self._leader_epochs.write)
            if isinstance(error, StorageError) and self.end_offset > start:
                self._write_failed(error)
            raise

    def _note_gaps_in(self, segment: SegmentWriter, bounds: Sequence[int], dropped_tombstone: int) -> None:
        try:
            self.note_gaps(segment, bounds, dropped_tombstone)
        except StorageError as error:
            self._append_refused(error)
            raise
        self._dropped_tombstone = None

    def note_gaps(self, segment: SegmentWriter, bounds: Sequence[int], dropped_tombstone: int) -> None:
        """Write down which offsets the batches that are written to ``segment`` next leave out, before they are.

        ``bounds``: start and end of each gap. So no gap is ever taken for a lost batch, and no lost batch for a gap.
        Raises :class:`StorageError`.
        """
        self._allow_recorded_gaps()
        segment.add_gaps(bounds, dropped_tombstone)

    def _forget_gaps_ahead(self) -> None:
        """Forget the gaps of batches that could not be written. Others may be written there."""
        active = self._active
        if active.base_offset > self.end_offset:
            self.fail_until_reopened(InternalError("a segment was begun behind a gap, and its first batch refused"))
        elif self._mark.state.compacted:
            try:
                active.cut_gaps(self.end_offset)
            except StorageError as error:
                self.fail_after_refused_write(error)

    def _allow_recorded_gaps(self, *, sync: bool = False) -> None:
        """Say in the mark, durably, that the files of gaps count."""
        if not self._mark.state.compacted:
            try:
                self._mark.write_state(self._state()._replace(compacted=True))
            except StorageError as error:
                self._write_failed(error)
                raise
            if self._contiguity is not None:
                self._contiguity = ContiguityCheck(self.epochs, compacted=True)
        if sync or not self._gaps_allowed:
            self._sync_mark()
        self._gaps_allowed = True

    def _allow_gaps(self) -> None:
        """Say in the mark that offsets may be missing, before any are: they are no sign of damage then."""
        try:
            self._mark.write_state(self._state()._replace(may_have_gaps=True))
        except StorageError as error:
            self._write_failed(error)
            raise
        self._sync_mark()
        self._contiguity = None

    # -- the segment being written --

    def _write_to(self, segment: SegmentWriter) -> None:
        """Make ``segment`` the one being written."""
        segment.count_on(self._active)
        self._active = segment
        segment.begin_writing(self.config, self.clock, str(self.topic_partition))

    def _writer_for(
        self, size: int, count: int, first_offset: int, last_offset: int, max_timestamp: int
    ) -> SegmentWriter:
        """Return the segment for ``count`` batches of ``size`` bytes: the active one, or a new one if it is full."""
        if self._active.fits(size, count, last_offset, max_timestamp):
            return self._active
        # The new segment begins at the log's end, unless the offsets are too far away for its
        # indexes.
        return self._roll(self.end_offset if last_offset - self.end_offset <= INT32_MAX else first_offset)

    def _roll(self, base_offset: int) -> SegmentWriter:
        """Close the segment being written and begin the next one, at ``base_offset``.

        Its files are made, and the folder and the mark are synced.
        """
        active = self._active
        if active.size == 0 and active.base_offset == base_offset:
            return active
        try:
            active.close_for_writing()
            active.synced = False
            segment = SegmentWriter.create(
                self.disk,
                self.directory,
                base_offset,
                index_interval=self.config.index_interval_bytes,
                wall_ms=self.clock.wall_ms(),
                room=self.config.segment_bytes if self.config.preallocate else 0,
            )
        except StorageError as error:
            self._append_refused(error)
            raise
        try:
            self._sync_or_poison(partial(self.producers.roll, base_offset, self.clock.monotonic_ns() // 1_000_000))
            self._sync_directory()
            self._write_mark_synced()
        except StorageError as error:
            # The new segment exists now. Going on in the old one would make the two overlap, so the
            # log stops here even if only room was lacking.
            self.fail_after_refused_write(error)
            raise
        try:
            self._segments.append(segment)
            self._write_to(segment)
        except INTERRUPTING as error:
            self.fail_until_reopened(error)
            raise
        if active.size == 0 and active is not self._segments.first and not len(active.gaps):
            # The next batch is too far away for the indexes of this empty segment. The oldest
            # segment stays, because the log's start is in it; so does one whose offsets are a gap.
            # If the disk keeps the file it does no harm.
            with contextlib.suppress(StorageError):
                self._segments.drop(active)
        if self.on_roll is not None:
            self.on_roll()
        return segment
