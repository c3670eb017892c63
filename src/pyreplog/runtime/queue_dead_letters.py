"""DeadLetterLog: the dead letters of a log, in a log of their own. It is open for the moment of an append only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.readers import dead_letter_topic
from pyreplog.record import Record
from pyreplog.runtime.log_opening import LogOpening
from pyreplog.runtime.log_place import LogPlace
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.open_options import OpenOptions
from pyreplog.runtime.spool_watcher import SpoolWatcher
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView

__all__ = ["DEAD_LETTER_FOLDER_SUFFIX", "DeadLetterLog"]

DEAD_LETTER_FOLDER_SUFFIX: Final = ".dlq"
_PREFIX: Final = "__dlq.errors."
"""KIP-1191's prefix of the headers of a dead letter."""
LOOK_BACK_COUNT: Final = 10_000
"""The dead letters at the end of the log among which one that was written already is looked for. A process that ended
between its dead letter and its note of it left it there, and at most 2,000 records are in flight."""
LOCK_TIMEOUT_S: Final = 30.0
_HEADERS_SIZE: Final = 64 << 10
"""Bytes that the headers of a dead letter may add to a record of the greatest size."""
MESSAGE_SIZE_MAX: Final = 4096


class DeadLetterLog:
    """Writes dead letters of one log, each once. Any thread."""

    def __init__(self, place: LogPlace, view: WriterView | ReaderView | CommittedView, folder: str | None) -> None:
        """``folder``: where their log lies; None: the log's folder with ``.dlq`` behind it. Raises
        :class:`InvalidTopicError` if the topic's name leaves no room for that of its dead letters."""
        self._place = place
        self._view = view
        self._folder = place.folder.rstrip("/") + DEAD_LETTER_FOLDER_SUFFIX if folder is None else folder
        self._topic = dead_letter_topic(view.topic)

    def write(self, records: Sequence[Record], *, group: str, message: str) -> None:
        """Write the dead letters of ``records``, unless they are there already. They are then as durable as the log.

        Value, key and headers are those of the records; six headers are added. Raises LockedError if another process
        writes the log of the dead letters for too long, StorageError if the disk refuses.
        """
        if not records:
            return
        config = self._view.config
        place = self._place
        is_new = place.disk.stat(self._folder) is None
        options = OpenOptions(
            self._topic, None, config.durability if is_new else None,
            {"max.message.bytes": min(config.max_message_bytes + _HEADERS_SIZE, 2**31 - 1)},
            None, None, "read_uncommitted", False, MAX_BATCH_BYTES, None, "owner", LOCK_TIMEOUT_S, True, place.disk,
            place.clock,
        )  # fmt: skip
        writer, view = LogOpening(self._folder, options).open("a", _opened)
        try:
            there = _written(view)
            missing = [record for record in records if _name(record, group) not in there]
            if missing:
                headers = [[*record.headers, *_headers(record, group, message)] for record in missing]
                writer.append_many(
                    [record.value for record in missing], [record.key for record in missing], headers, None
                )
        finally:
            view.close()


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


def _headers(record: Record, group: str, message: str) -> list[tuple[str, bytes]]:
    values = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "group": group,
        "delivery.count": str(record.delivery_count),
        "message": message[:MESSAGE_SIZE_MAX],
    }
    return [(_PREFIX + name, value.encode("utf-8", "replace")) for name, value in values.items()]


def _name(record: Record, group: str) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the content of the headers by which a dead letter of ``record`` is found."""
    return (
        record.topic.encode(),
        str(record.partition).encode(),
        str(record.offset).encode(),
        group.encode(),
    )


def _written(view: WriterView) -> set[tuple[bytes | None, ...]]:
    """Return the names of the last dead letters."""
    view.refresh()
    end = view.end_offset
    found = set()
    for letter in view.records(max(view.start_offset, end - LOOK_BACK_COUNT), end):
        headers = dict(letter.headers[-6:])
        found.add(tuple(headers.get(_PREFIX + name) for name in ("topic", "partition", "offset", "group")))
    return found
