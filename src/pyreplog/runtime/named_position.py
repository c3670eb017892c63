"""The options of a named reader, and its position in one partition: whether the records there are still those that
follow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final, Literal, NamedTuple

from pyreplog.arrow import timestamp_ms
from pyreplog.config import INT64_MAX, check_flag, whole
from pyreplog.errors import (
    ConfigError,
    DataLossError,
    LogTruncatedError,
    RecordsDeletedError,
    TopicRecreatedError,
)
from pyreplog.readers import EntryKind, OffsetEntry, check_reader_name, topic_crc
from pyreplog.record import Record
from pyreplog.runtime.cluster_dead_letters import NoDeadLetters
from pyreplog.runtime.dead_letter_log import DeadLetterWriter
from pyreplog.runtime.deserializers import NO_DESERIALIZERS, Deserializers
from pyreplog.runtime.reader_consumer import MAX_POLL_RECORDS, ReadCursor
from pyreplog.runtime.views import CommittedView, ReaderView
from pyreplog.values import NO_EPOCH, TopicPartition

__all__ = ["NamedCursor", "OnDataLoss", "ReaderOptions", "Start", "committed_one_by_one", "last_of_each"]

Start = Literal["earliest", "latest"] | int | datetime
OnDataLoss = Literal["raise", "earliest", "latest"]

_ADVICE: Final = (
    "To go on, seek to an offset (seek_to_beginning, seek_to_end), or open the reader with on_data_loss='earliest' or"
    " 'latest'"
)


class ReaderOptions(NamedTuple):
    """The options of a named reader, checked."""

    name: str
    auto_commit: bool
    start: Start
    on_data_loss: OnDataLoss
    max_poll_records: int = MAX_POLL_RECORDS
    deserializers: Deserializers = NO_DESERIALIZERS
    letters: Callable[[ReaderView], DeadLetterWriter] = lambda _: NoDeadLetters("it has no place for them")
    """Returns the writer of the dead letters of a partition's topic."""

    @classmethod
    def checked(
        cls,
        name: object,
        auto_commit: object = False,
        start: Start = "earliest",
        on_data_loss: OnDataLoss = "raise",
    ) -> ReaderOptions:
        """Return the options. Raises :class:`ConfigError`."""
        check_flag("auto_commit", auto_commit)
        if on_data_loss not in ("raise", "earliest", "latest"):
            raise ConfigError(f"on_data_loss is {on_data_loss!r}; it must be 'raise', 'earliest' or 'latest'")
        if isinstance(start, datetime):
            timestamp_ms(start, "start")
        elif start not in ("earliest", "latest"):
            if isinstance(start, (str, bytes)):
                raise ConfigError(
                    f"start is {start!r}; it must be 'earliest', 'latest', an offset, or a datetime with a time zone"
                )
            start = whole("start", start, 0, INT64_MAX)
        return cls(check_reader_name(name), bool(auto_commit), start, on_data_loss)


class NamedCursor(ReadCursor):
    """The read position of one partition of a named reader."""

    __slots__ = (
        "committed",
        "due_s",
        "handed",
        "has_news",
        "is_paused",
        "is_sought",
        "loss",
        "read_epoch",
        "topic_crc",
        "topic_id",
    )

    def __init__(self, files: ReaderView, view: ReaderView | CommittedView) -> None:
        super().__init__(files, 0, view)
        self.topic_id = files.topic_id
        self.topic_crc = topic_crc(files.topic)
        #: The committed offset; None if nothing was committed.
        self.committed: int | None = None
        #: The offset behind the last record that was handed out, and that record's epoch.
        self.handed = -1, NO_EPOCH
        #: Whether a record was handed out, or the position was moved.
        self.has_news = False
        #: Whether the position was moved since the last commit, so that a lower offset may be
        #: committed.
        self.is_sought = False
        self.is_paused = False
        #: When the partition goes on after a failed attempt, by `time.monotonic`; None: now.
        self.due_s: float | None = None
        #: The epoch of the record before ``next_offset``; -1 if it is not known.
        self.read_epoch = NO_EPOCH
        #: Why reading cannot go on here. A seek clears it.
        self.loss: DataLossError | None = None

    def read_on(self, offset: int, last: Record | None) -> None:
        """See :class:`ReadCursor`."""
        if offset != self.next_offset:
            self.read_epoch = last.leader_epoch if last is not None and last.offset + 1 == offset else NO_EPOCH
            self.next_offset = offset

    def seek_end(self) -> int:
        """See :class:`ReadCursor`. After power loss the high watermark on the disk may be older than a place that the
        caller kept, until the next writer opens the log."""
        return max(self.view.end_offset, self.files.log_end())

    def hand_out(self, offset: int, epoch: int) -> None:
        """Note that the records below ``offset`` were handed out."""
        self.handed = offset, epoch
        self.has_news = True

    def commit_entry(self, offset: int, epoch: int, time_ms: int) -> OffsetEntry:
        """Return the entry of a commit of ``offset``. ``epoch``: that of the record before it."""
        return OffsetEntry(
            EntryKind.COMMIT, self.topic_id, self.files.partition, offset, epoch, 0, time_ms, self.topic_crc
        )

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before ``offset``; -1 if the history does not say it."""
        if offset <= self.files.start_offset:
            return NO_EPOCH
        entries = self.files.epochs
        slot = bisect_left([start for _, start in entries], offset)
        return entries[slot - 1].epoch if slot else NO_EPOCH

    def loss_at(self, reader: str, key: TopicPartition) -> DataLossError | None:
        """Return why the records at the position are not those that follow the last one; None if they are."""
        files, offset = self.files, self.next_offset
        start, end = files.start_offset, files.end_offset
        at = f"the reader {reader!r} is at offset {offset} of {key}"
        if offset < start:
            deleted = RecordsDeletedError(
                f"{at}, and the log begins at offset {start}: the records between were deleted", _ADVICE
            )
            return _told(deleted, offset, start)
        # After power loss the high watermark on the disk may be older than the reader's commit,
        # until the next writer opens the log. So the end of the whole batches decides.
        if offset > end and offset > (end := files.log_end()):
            return _told(LogTruncatedError(f"{at}, and the log ends at offset {end}", _ADVICE), offset, end)
        epoch = self.read_epoch
        ended = None if epoch == NO_EPOCH else next((start for other, start in files.epochs if other > epoch), None)
        if ended is not None and ended < offset:
            cut = LogTruncatedError(
                f"{at} in leader epoch {epoch}, which ended at offset {ended}: the log was truncated to that offset,"
                " and has other records since",
                _ADVICE,
            )
            return _told(cut, offset, ended)
        return None

    def recreated(self, reader: str, key: TopicPartition) -> DataLossError:
        """Return the error for a topic that was deleted and created again."""
        offset, start = self.next_offset, self.files.start_offset
        error = TopicRecreatedError(
            f"the reader {reader!r} is at offset {offset} of {key}, whose topic was deleted and created again since:"
            f" the log begins at offset {start}",
            _ADVICE,
        )
        return _told(error, offset, start)


def _told(error: DataLossError, committed: int, found: int) -> DataLossError:
    """Return ``error`` with its offsets."""
    error.committed, error.found = committed, found
    return error


def last_of_each(records: list[Record]) -> Iterator[tuple[TopicPartition, Record]]:
    """Yield the last record of each run of one partition's records."""
    before, last = records[0], records[-1]
    if (before.partition, before.topic) == (last.partition, last.topic):
        # A buffer holds each partition's records in one run.
        yield TopicPartition(last.topic, last.partition), last
        return
    for record in records:
        if record.partition != before.partition or record.topic != before.topic:
            yield TopicPartition(before.topic, before.partition), before
        before = record
    yield TopicPartition(before.topic, before.partition), before


def committed_one_by_one(records: Iterator[Record], commit: Callable[[Record], object]) -> Iterator[Record]:
    """Yield ``records``, and commit each when the next one is asked for."""
    for record in records:
        yield record
        commit(record)
