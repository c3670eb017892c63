"""DeadLetterLog: the dead letters of a log, in a log of their own. It is open for the moment of an append only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from pyreplog.config import INT32_MAX, MAX_BATCH_BYTES, LogConfig
from pyreplog.errors import ConfigError
from pyreplog.readers import dead_letter_topic, letter_headers, read_letter
from pyreplog.record import Record, crc32c
from pyreplog.runtime.log_opening import LogOpening
from pyreplog.runtime.log_place import LogPlace
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.open_options import OpenOptions
from pyreplog.runtime.spool_watcher import SpoolWatcher
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView

__all__ = [
    "DEAD_LETTER_FOLDER_SUFFIX",
    "HEADERS_SIZE",
    "LOOK_BACK_COUNT",
    "DeadLetterLog",
    "DeadLetterWriter",
    "WrittenLetters",
]

DEAD_LETTER_FOLDER_SUFFIX: Final = ".dlq"
LOOK_BACK_COUNT: Final = 10_000
"""The dead letters at the end of the log among which one that was written already is looked for. A process that ended
between its dead letter and its note of it left it there, and at most 2,000 records are in flight."""
LOCK_TIMEOUT_S: Final = 30.0
HEADERS_SIZE: Final = 64 << 10
"""Bytes that the headers of a dead letter may add to a record of the greatest size."""


class DeadLetterWriter(Protocol):
    """Writes dead letters, each once."""

    def write(self, records: Sequence[Record], *, group: str, message: str) -> None:
        """Write the dead letters of ``records``, unless they are there already. They are then as durable as the
        records' log."""
        ...


class SourceSettings(Protocol):
    """A view of the source log, for its settings."""

    topic: str

    @property
    def config(self) -> LogConfig:
        """The settings of the log."""
        ...


class WrittenLetters:
    """The last dead letters of a log or topic, by the records that they are of."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._sums: dict[tuple[str, int, int, str], int] = {}
        for record in records:
            letter = read_letter(record.headers)
            if letter is not None:
                self._sums[letter[:4]] = _sum_of(record)

    def holds(self, record: Record, group: str) -> bool:
        """Return whether the dead letter of ``record`` by ``group`` is there. A topic that was created again may have
        another record at the offset, so key and value must be equal too."""
        return self._sums.get((record.topic, record.partition, record.offset, group)) == _sum_of(record)


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

    def write(self, records: Sequence[Record], *, group: str, message: str) -> None:
        """Write the dead letters of ``records``, unless they are there already. They are then as durable as the log.

        Value, key and headers are those of the records; six headers are added. Raises LockedError if another process
        writes the log of the dead letters for too long, StorageError if the disk refuses.
        """
        if not records:
            return
        config = self._view.config
        try:
            # A folder that is there may hold no log yet: the process that made it may have ended.
            writer, view = self._open(config, config.durability)
        except ConfigError:
            writer, view = self._open(config, None)  # the log of the dead letters has another durability
        try:
            view.refresh()
            end = view.end_offset
            there = WrittenLetters(view.records(max(view.start_offset, end - LOOK_BACK_COUNT), end))
            missing = [record for record in records if not there.holds(record, group)]
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
