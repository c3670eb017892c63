"""DeadLetterLog: the dead letters of a log, in a log of their own. It is open for the moment of an append only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from pyreplog.config import INT32_MAX, INT64_MAX, MAX_BATCH_BYTES, LogConfig
from pyreplog.errors import ConfigError
from pyreplog.readers import dead_letter_topic, letter_headers, read_letter
from pyreplog.record import Record, crc32c
from pyreplog.runtime.log_opening import LogOpening
from pyreplog.runtime.log_place import LogPlace
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.open_options import OpenOptions
from pyreplog.runtime.spool_watcher import SpoolWatcher
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView, record_lists
from pyreplog.system import OwnedLock
from pyreplog.values import TopicPartition

__all__ = [
    "DEAD_LETTER_FOLDER_SUFFIX",
    "HEADERS_SIZE",
    "DeadLetterLog",
    "DeadLetterWriter",
    "WrittenLetters",
]

DEAD_LETTER_FOLDER_SUFFIX: Final = ".dlq"
LOCK_TIMEOUT_S: Final = 30.0
HEADERS_SIZE: Final = 64 << 10
"""Bytes that the headers of a dead letter may add to a record of the greatest size."""


class DeadLetterWriter(Protocol):
    """Writes dead letters, each once."""

    def write(self, records: Sequence[Record], *, group: str, message: str, floor: int) -> None:
        """Write the dead letters of ``records``, which are of one partition, unless they are there already. They are
        then as durable as the records' log. ``floor``: all records of the partition below it are settled."""
        ...


class SourceSettings(Protocol):
    """A view of the source log, for its settings."""

    topic: str

    @property
    def config(self) -> LogConfig:
        """The settings of the log."""
        ...


class WrittenLetters:
    """The dead letters that one reader or queue wrote of one partition's records, as far as it may write them again:
    those of the records from its floor on. Each is looked at once. Not thread-safe."""

    def __init__(self, source: TopicPartition, group: str) -> None:
        self._source = source
        self._group = group
        self._floor = INT64_MAX
        self._next_offset = 0
        self._topic_id = ""
        self._sums: dict[int, set[int]] = {}
        """Source offset -> the checksums of key and value of its dead letters."""

    def begin(self, floor: int, topic_id: str, start: int, end: int) -> int:
        """Return the offset of the first dead letter to :meth:`add`. ``start``, ``end``: the dead letters that are
        there. ``floor``: no record below it will be asked for."""
        if floor < self._floor or end < self._next_offset or topic_id != self._topic_id:
            self._sums.clear()
            self._next_offset = start
        elif floor > self._floor:
            self._sums = {offset: sums for offset, sums in self._sums.items() if offset >= floor}
        self._floor, self._topic_id = floor, topic_id
        self._next_offset = max(self._next_offset, start)
        return self._next_offset

    def add(self, letters: Iterable[Record]) -> None:
        """Take the next dead letters."""
        topic, partition = self._source
        for record in letters:
            letter = read_letter(record.headers)
            if (
                letter is not None
                and letter.offset >= self._floor
                and (letter.topic, letter.partition, letter.group) == (topic, partition, self._group)
            ):
                self._sums.setdefault(letter.offset, set()).add(_sum_of(record))
            self._next_offset = record.offset + 1

    def holds(self, record: Record) -> bool:
        """Return whether the dead letter of ``record`` is there. A topic that was created again may have another
        record at the offset, so key and value must be equal too."""
        return _sum_of(record) in self._sums.get(record.offset, ())


def _sum_of(record: Record) -> int:
    key, value = record.key, record.value
    sizes = b"%d %d " % (-1 if key is None else len(key), -1 if value is None else len(value))
    return crc32c(sizes + bytes(key or b"") + bytes(value or b""))


class DeadLetterLog:
    """Writes dead letters of one log, each once. Any thread."""

    def __init__(self, place: LogPlace, view: SourceSettings, folder: str | None) -> None:
        """``folder``: where their log lies; None: the log's folder with ``.dlq`` behind it. Raises
        :class:`InvalidTopicError` if the topic's name leaves no room for that of its dead letters."""
        self._place = place
        self._view = view
        #: The folder of the log.
        self.folder = place.folder.rstrip("/") + DEAD_LETTER_FOLDER_SUFFIX if folder is None else folder
        self._topic = dead_letter_topic(view.topic)
        self._lock = OwnedLock(f"the dead letters of {view.topic}")
        self._written: WrittenLetters | None = None

    def write(self, records: Sequence[Record], *, group: str, message: str, floor: int) -> None:
        """Write the dead letters of ``records``, unless they are there already. They are then as durable as the log.

        The first call reads all dead letters, because a process may have ended before it noted that it wrote one; later
        calls read those that came since. Value, key and headers are those of the records; six headers are added. Raises
        LockedError if another process writes the log of the dead letters for too long, StorageError if the disk
        refuses, CorruptLogError if that log is damaged.
        """
        if records:
            with self._lock.enter():
                self._write(records, group, message, floor)

    def _write(self, records: Sequence[Record], group: str, message: str, floor: int) -> None:
        config = self._view.config
        try:
            # A folder that is there may hold no log yet: the process that made it may have ended.
            writer, view = self._open(config, config.durability)
        except ConfigError:
            writer, view = self._open(config, None)  # the log of the dead letters has another durability
        try:
            view.refresh()
            if self._written is None:
                self._written = WrittenLetters(TopicPartition(records[0].topic, records[0].partition), group)
            there, end = self._written, view.end_offset
            start = there.begin(floor, view.topic_id, view.start_offset, end)
            for letters in record_lists(view, start, end):
                there.add(letters)
            missing = [record for record in records if not there.holds(record)]
            if missing:
                writer.append_many(
                    [record.value for record in missing],
                    [record.key for record in missing],
                    [letter_headers(record, group, message) for record in missing],  # type: ignore[misc]
                    None,
                )
            if config.durability == "sync":
                writer.flush()  # their log may be an ``os`` log
        finally:
            view.close()

    def _open(self, config: LogConfig, durability: str | None) -> tuple[LogWriter, WriterView]:
        place = self._place
        options = OpenOptions(
            self._topic, None, durability,
            {"max.message.bytes": min(config.max_message_bytes + HEADERS_SIZE, INT32_MAX)},
            None, None, "read_uncommitted", False, MAX_BATCH_BYTES, None, "owner", LOCK_TIMEOUT_S, True, place.disk,
            place.clock,
        )  # fmt: skip
        return LogOpening(self.folder, options).open("a", _opened)


def _opened(
    folder: str,
    view: WriterView | ReaderView | CommittedView,
    writer: LogWriter | None,
    watcher: SpoolWatcher | None,
    place: LogPlace,
) -> tuple[LogWriter, WriterView]:
    assert writer is not None
    assert isinstance(view, WriterView)
    return writer, view
