"""One partition that a consumer reads: its position, the fetched records before they are handed
out, and the error that keeps the reader from the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pyreplog.errors import CorruptError, CorruptLogError, OffsetOutOfRangeError, PyreplogError, TopicRecreatedError
from pyreplog.record import Record, RecordBatch, records_of, split
from pyreplog.values import TopicPartition
from pyreplog.wire import PartitionData

__all__ = ["AssignedPartition", "FetchInFlight", "Question"]

BACKOFFS_CORRUPT: Final = 8
"""After damaged bytes, the pause is as long as after this many failures."""
BACKOFFS_OUT_OF_RANGE: Final = 6
"""The same after an offset that the log does not have."""

Question = tuple[int, int]
"""A request for records of a partition: (first offset, leader epoch of the batch before it)."""


class FetchInFlight:
    """A fetch in flight, or held by its node."""

    __slots__ = ("members", "node")

    def __init__(self, node: int) -> None:
        self.node = node
        self.members: list[tuple[AssignedPartition, Question]] = []


class AssignedPartition:
    """The next offset to hand out (``position``), the buffer, and the next offset to fetch.

    ``pause`` returns the time (ns) to wait until after so many failures.
    """

    __slots__ = (
        "_pause",
        "asked",
        "batches",
        "begins_at_start",
        "entry",
        "error",
        "failures",
        "fetch_offset",
        "high_watermark",
        "is_idle",
        "last_epoch",
        "leader_until_ns",
        "paused_until_ns",
        "position",
        "records",
        "resetting",
        "topic_id",
    )

    def __init__(self, entry: TopicPartition, pause: Callable[[int], int]) -> None:
        self.entry = entry
        self._pause = pause
        self.position = -1
        self.fetch_offset = -1
        self.batches: deque[RecordBatch] = deque()
        self.records: deque[Record] = deque()
        self.asked: dict[Question, FetchInFlight] = {}
        """The unanswered fetches, by question.

        After a seek the old one stays and counts again if a seek returns to it, because its node
        may hold it for as long as a new one.
        """
        self.begins_at_start = False
        """Whether it is read from its first record whatever ``auto_offset_reset`` says, because it
        was added to a topic that was already being read."""
        self.is_idle = False
        """Whether the last answer had nothing new."""
        self.resetting = False
        self.error: PyreplogError | None = None
        self.failures = 0
        self.paused_until_ns = 0
        self.high_watermark = -1
        self.leader_until_ns = 0
        """Time until which only the leader is asked, whatever ``read_from`` says."""
        self.last_epoch = -1
        """Leader epoch of the last batch before ``fetch_offset``; -1: not known."""
        self.topic_id = ""
        """Id of the topic to which these offsets belong; empty: not known yet."""

    @property
    def question(self) -> Question:
        """The next question to ask."""
        return self.fetch_offset, self.last_epoch

    # --------------------------------------------------------------------------------- the position

    def move(self, offset: int) -> None:
        """Discard the buffer and continue at ``offset``."""
        self.position = self.fetch_offset = offset
        self.last_epoch = -1
        self.batches.clear()
        self.records.clear()
        self.error = None
        self.is_idle = False

    def take(self, taken: list[Record], limit: int, end: int) -> None:
        """Move the buffered records below ``end`` to ``taken``, which grows to at most ``limit``.

        Raises :class:`CorruptLogError` if ``taken`` is empty and the next batch is damaged. If
        ``taken`` has records, the error waits in :attr:`error`.
        """
        self._take(taken, limit, end)
        if not self.records and not self.batches and self.position < self.fetch_offset:
            self.position = self.fetch_offset  # compaction removed the last records of the last batch

    def _take(self, taken: list[Record], limit: int, end: int) -> None:
        while len(taken) < limit and self.position < end:
            if not self.records:
                if not self.batches:
                    return
                batch = self.batches.popleft()
                try:
                    batch.check_crc()
                    records = records_of(batch, self.entry.topic, self.entry.partition, self.position)
                except CorruptError as error:
                    self.move(self.position)
                    self.met_damage(f"{self.entry}: {error.reason}", batch.next_offset)
                    if not taken:
                        self.raise_error(error)
                    return
                self.records.extend(records)
                if not self.records:
                    self.position = max(self.position, batch.next_offset)
                    continue
            room = limit - len(taken)
            if len(self.records) <= room and self.records[-1].offset < end:
                taken.extend(self.records)
                self.records.clear()
                self.position = taken[-1].offset + 1
                continue
            while room and self.records and self.records[0].offset < end:
                taken.append(self.records.popleft())
                self.position = taken[-1].offset + 1
                room -= 1
            if room:
                self.position = end  # the next record is at or beyond it

    def raise_error(self, cause: BaseException | None = None) -> None:
        """Raise the error that keeps the reader from the next record, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error from cause

    # -------------------------------------------------------------------------------------- answers

    def accept(self, data: PartitionData) -> None:
        """Buffer the batches of an answer without error.

        Raises :class:`OutcomeUnknownError` if the log was truncated after the answer was made, and
        :class:`CorruptError` if a batch is damaged; the batches before it are buffered.
        """
        self.failures = 0
        self.high_watermark = data.high_watermark
        records: Any = data.records
        if records is None:
            return
        parts = getattr(records, "parts", None)
        for part in (records,) if parts is None else parts():
            for batch in split(part):
                if batch.next_offset > self.position:
                    self.batches.append(batch)
                    self.fetch_offset = batch.next_offset
                    self.last_epoch = batch.leader_epoch

    def met_damage(self, what: str, end: int = -1) -> None:
        """Note that the next records cannot be read.

        They are never skipped: they are fetched again after a pause, perhaps from another copy.
        """
        start = max(self.fetch_offset, 0)
        self.error = CorruptLogError(what, start=start, end=max(end, start + 1))
        self.paused_until_ns = self._pause(BACKOFFS_CORRUPT)

    def out_of_range(self, data: PartitionData) -> None:
        """Report that the log does not have the offset to fetch."""
        self.error = OffsetOutOfRangeError(
            self.position, data.log_start_offset, data.high_watermark, log=str(self.entry)
        )
        self.paused_until_ns = self._pause(BACKOFFS_OUT_OF_RANGE)

    def truncated(self, data: PartitionData) -> None:
        """Report that records already read are no longer in the log (KIP-320).

        An unclean election truncated them. This is reported once, whatever ``auto_offset_reset``
        says; then reading continues at the offset at which the logs diverge.
        """
        assert data.diverging_epoch is not None
        end = data.diverging_epoch.end_offset
        about = f"{self.entry}, which was truncated at {end} after that was read"
        error = OffsetOutOfRangeError(self.position, data.log_start_offset, end, log=about)
        self.move(min(end, self.position))
        self.error = error

    def meet_topic(self, topic_id: str) -> None:
        """Note the topic's id, and report a topic that was re-created after records of it were
        read.

        This is reported once, whatever ``auto_offset_reset`` says; then reading continues at the
        first record.
        """
        before, self.topic_id = self.topic_id, topic_id
        if not before:
            return
        self.asked.clear()  # open fetches ask for the deleted topic
        position = self.position
        self.move(min(position, 0))
        if position > 0:
            self.error = TopicRecreatedError(
                f"{self.entry} was read up to offset {position}, but the topic was re-created (its id was {before}, it"
                f" is {topic_id})",
                "Continue reading to get the new topic from its first record",
            )

    def back_off(self) -> None:
        """Pause after a failed fetch, longer after each one."""
        self.failures += 1
        self.paused_until_ns = self._pause(self.failures)
