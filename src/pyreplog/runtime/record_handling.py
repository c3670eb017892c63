"""Handling: gives a named reader's records to a handler, tries again, and makes dead letters of the hopeless ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from pyreplog.errors import ClosedError, ConfigError, PyreplogError, is_interruption
from pyreplog.ports import Clock
from pyreplog.readers import EntryKind, OffsetEntry, OffsetsFile, message_of
from pyreplog.record import Record
from pyreplog.runtime.deserializers import Deserializers
from pyreplog.runtime.named_position import NamedCursor
from pyreplog.runtime.reader_consumer import Ends
from pyreplog.runtime.retries import RetryPolicy
from pyreplog.system import OwnedLock
from pyreplog.values import NO_EPOCH, TopicPartition

__all__ = ["Handling", "check_handler", "handle_all"]

_KILLED = "the process ended while it handled the record, each time"


class HandledReader(Protocol):
    """The named reader, as this module uses it."""

    _clock: Clock
    _committing: OwnedLock
    _decodes: bool
    _deserializers: Deserializers

    @property
    def closed(self) -> bool: ...
    @property
    def _own(self) -> dict[TopicPartition, NamedCursor]: ...
    @property
    def _offsets(self) -> OffsetsFile: ...
    def commit(self, what: Record, /) -> None: ...
    def _pick_raw(self, count: int, ends: Ends | None) -> list[Record]: ...
    def _fill(self, ends: Ends | None = None) -> bool: ...
    def _await_more(self, deadline: float | None, fill: Callable[[], bool]) -> bool: ...
    def _check(self) -> None: ...
    def _check_assigned(self) -> None: ...
    def _give_up(self, record: Record, count: int, message: str) -> None: ...
    def _go_back(self, record: Record, due_s: float | None) -> None: ...


class Handling:
    """One ``run`` of a named reader. Belongs to one thread at a time."""

    def __init__(self, consumer: HandledReader, retry: RetryPolicy | None, ends: Ends | None) -> None:
        """``retry`` None: no attempt is noted. ``ends``: where to end; None: never."""
        self._consumer = consumer
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise ConfigError(f"retry is {retry!r}; it must be a RetryPolicy, or None to raise every exception")
        self._retry = None if retry is None else retry.checked()
        self._ends = ends

    def pick(self) -> Record | None:
        """Return the next record of the buffer, undecoded; None if it has none. Does not wait for the disk."""
        picked = self._consumer._pick_raw(1, self._ends)
        return picked[0] if picked else None

    def fill(self) -> bool:
        """Read on. Return whether there is a record to pick. Waits for the disk."""
        return self._consumer._fill(self._ends)

    def fill_or_over(self) -> bool:
        """Read on. Return whether there is a record to pick, or none will come."""
        return self.fill() or self.is_over

    @property
    def is_over(self) -> bool:
        """Whether no partition has a record below its end left, also none that waits for its next attempt."""
        ends = self._ends
        if ends is None:
            return False
        consumer = self._consumer
        return all(cursor.is_paused or cursor.next_offset >= ends.get(key, 0) for key, cursor in consumer._own.items())

    def due_s(self) -> float | None:
        """Return when the first partition that waits goes on, by ``time.monotonic``; None if none waits."""
        return min((due for cursor in self._consumer._own.values() if (due := cursor.due_s) is not None), default=None)

    def begin(self, record: Record) -> bool:
        """Note an attempt before the handler is called. Return False if the attempts are used up, by processes that
        ended amid them: the record is a dead letter then."""
        if self._retry is None:
            return True
        count = self._count_of(record)
        if count >= self._retry.attempts:
            self._consumer._give_up(record, count, _KILLED)
            return False
        self._note(record, count + 1)
        return True

    def failed(self, record: Record, error: BaseException) -> None:
        """After a failed attempt, let the partition wait for the next one, or make a dead letter of the record."""
        assert self._retry is not None
        count = self._count_of(record)
        if count >= self._retry.attempts:
            try:
                self._consumer._give_up(record, count, message_of(error))
            except BaseException:
                self._consumer._go_back(record, None)  # or later commits would pass it
                raise
        else:
            self._consumer._go_back(record, time.monotonic() + self._retry.backoff_s(count))

    def withdraw(self, record: Record, *, noted: bool) -> None:
        """Let the record come again. An attempt that was ``noted`` does not count."""
        with suppress(PyreplogError):
            if noted and self._retry is not None:
                self._note(record, self._count_of(record) - 1)
        with suppress(PyreplogError):
            self._consumer._go_back(record, None)

    def _count_of(self, record: Record) -> int:
        consumer = self._consumer
        cursor = consumer._own[TopicPartition(record.topic, record.partition)]
        noted = consumer._offsets.attempts_of(cursor.topic_id, record.partition)
        return noted.number if noted is not None and noted.offset == record.offset else 0

    def _note(self, record: Record, count: int) -> None:
        consumer = self._consumer
        with consumer._committing:
            consumer._check()
            cursor = consumer._own[TopicPartition(record.topic, record.partition)]
            consumer._offsets.write(
                [
                    OffsetEntry(
                        EntryKind.ATTEMPT,
                        cursor.topic_id,
                        record.partition,
                        record.offset,
                        NO_EPOCH,
                        count,
                        consumer._clock.wall_ms(),
                        cursor.topic_crc,
                    )
                ]
            )


def check_handler(handler: object) -> None:
    """Raise :class:`ConfigError` unless ``handler`` can be called."""
    if not callable(handler):
        raise ConfigError(f"handler is {handler!r}; it must be a function that takes a record")


def handle_all(
    consumer: HandledReader, handler: Callable[[Any], object], retry: RetryPolicy | None, ends: Ends | None
) -> None:
    """Give the records to ``handler``, one after another. See :meth:`NamedConsumer.run`."""
    handling = Handling(consumer, retry, ends)
    try:
        while (record := _await_next(consumer, handling)) is not None:
            noted = False
            try:
                if not handling.begin(record):
                    continue
                noted = True
                handler(consumer._deserializers.apply(record) if consumer._decodes else record)
            except Exception as error:
                if not noted or retry is None or is_interruption(error):
                    handling.withdraw(record, noted=noted)
                    raise
                handling.failed(record, error)
            except BaseException:
                handling.withdraw(record, noted=noted)
                raise
            else:
                consumer.commit(record)
    except ClosedError:
        if not consumer.closed:
            raise


def _await_next(consumer: HandledReader, handling: Handling) -> Record | None:
    """Return the next record; None if there is none up to the ends."""
    while True:
        record = handling.pick()
        if record is not None:
            return record
        if handling.fill():
            continue
        if handling.is_over:
            return None
        due = handling.due_s()
        if due is None:
            consumer._check_assigned()
        consumer._await_more(due, handling.fill_or_over)
