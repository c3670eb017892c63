"""Datetimes as timestamps of records: the millisecond in which they lie, wherever a record comes in. A naive one is
refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog._core import BatchBuilder, RecordBatch
from pyreplog.arrow import timestamp_ms
from pyreplog.client import BatchResult
from pyreplog.errors import ConfigError
from pyreplog.record import Gathering, Record
from pyreplog.timestamps import record_ms
from pyreplog.values import TimestampType

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INDIA = timezone(timedelta(hours=5, minutes=30))
AT = datetime(2024, 6, 1, 17, 30, 0, 123_987, tzinfo=INDIA)
AT_MS = 1717243200123


class Nowhere(tzinfo):
    """A time zone that does not know how far it is from any other."""

    def utcoffset(self, when: datetime | None) -> None:
        """Not known."""

    dst = tzname = utcoffset


REFUSED = [
    (datetime(2024, 6, 1), ConfigError, "timestamp is the naive datetime 2024-06-01T00:00:00; give it a time zone"),
    (datetime(2024, 6, 1, tzinfo=Nowhere()), ConfigError, "is the naive datetime"),
    (EPOCH - timedelta(microseconds=1), ValueError, "is before 1970"),
    (EPOCH - timedelta(days=1), ValueError, "is before 1970"),
    (AT.date(), TypeError, "a timestamp is a datetime with a time zone, or an int, in ms since 1970, not date"),
    (1.5, TypeError, "not float"),
]


@given(st.datetimes(datetime(1970, 1, 2), timezones=st.timezones()))
def test_the_millisecond_in_which_it_lies(when: datetime) -> None:
    """Exactly, whatever its zone: no later than it is, and less than a ms earlier. What is looked for begins there
    or right behind."""
    ms = record_ms(when)
    behind = when.astimezone(UTC) - EPOCH - timedelta(milliseconds=ms)
    assert timedelta(0) <= behind < timedelta(milliseconds=1)
    assert timestamp_ms(when, "t") == ms + (behind > timedelta(0))


def test_wherever_a_record_comes_in() -> None:
    """One by one, many, gathered, made by hand; the records have a number, and so have those who ask for it."""
    stamps: list[int] = []
    builder = BatchBuilder()
    outcome = BatchResult(None, "t", 0, stamps)
    builder.begin(outcome, stamps, 1 << 20)
    assert builder.gather(b"1", None, (), AT) is not None
    gathering = Gathering(builder, None, lambda *_: None)
    assert gathering.append(b"2", timestamp=AT) is not None
    assert stamps == [AT_MS, AT_MS]
    assert [type(one) for one in stamps] == [int, int]
    assert builder.append(b"3", None, (), AT)
    assert builder.extend([b"4", b"5"], None, None, [AT + timedelta(milliseconds=1), 7], 0, 0) == 2
    batch = RecordBatch(builder.finish())
    assert [record.timestamp for record in batch.records()] == [AT_MS, AT_MS, AT_MS, AT_MS + 1, 7]
    for kind in (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME):
        assert Record(b"v", timestamp=AT, timestamp_type=kind).timestamp == AT_MS
    shared = BatchResult(None, "t", 0, [AT, 7])
    shared.succeed(0, 0)
    assert [shared.metadata(index).timestamp for index in (0, 1)] == [AT_MS, 7]


@pytest.mark.parametrize(("given", "error", "words"), REFUSED)
def test_refused(given: Any, error: type[Exception], words: str) -> None:
    """In words that help, and nothing is added."""
    builder = BatchBuilder()
    stamps: list[int] = []
    builder.begin(BatchResult(None, "t", 0, stamps), stamps, 1 << 20)
    for use in (
        lambda: builder.append(b"v", None, (), given),
        lambda: builder.gather(b"v", None, (), given),
        lambda: builder.extend([b"a", b"b"], None, None, [1, given], 0, 0),
        lambda: Record(b"v", timestamp=given),
    ):
        with pytest.raises(error, match=words):
            use()
    assert builder.count == 0
    assert stamps == []
