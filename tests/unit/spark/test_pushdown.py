"""Filters of a query as narrower ranges: never less than can match, and refused where Spark would then be wrong. No
session needed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import ConfigError
from pyreplog.spark.planner import OffsetRange
from pyreplog.spark.pushdown import check_safe, narrowed
from pyreplog.values import TopicPartition

datasource = pytest.importorskip("pyspark.sql.datasource")
if not hasattr(datasource, "EqualTo"):
    pytest.skip("Spark 4.0 pushes no filters", allow_module_level=True)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = [5, 30, 20, 25, 10, 60, 40, 55, 70, 1]
"""Timestamp of the record at each offset: up and down."""


def find(partition: TopicPartition, timestamp: int) -> int | None:
    """The first record that is late enough."""
    return next((offset for offset, time in enumerate(TIMES) if time >= timestamp), None)


def at(milliseconds: float) -> datetime:
    """A time as PySpark hands it over: in some zone, with microseconds."""
    return (EPOCH + timedelta(milliseconds=milliseconds)).astimezone(timezone(timedelta(hours=5)))


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda value, wanted: value == wanted,
    "GreaterThan": lambda value, wanted: value > wanted,
    "GreaterThanOrEqual": lambda value, wanted: value >= wanted,
    "LessThan": lambda value, wanted: value < wanted,
    "LessThanOrEqual": lambda value, wanted: value <= wanted,
    "In": lambda value, wanted: value in wanted,
}


@st.composite
def filters(draw: st.DrawFn) -> tuple[Any, str, str, Any]:
    """(filter, name, column, value)."""
    name = draw(st.sampled_from(sorted(COMPARISONS)))
    column = draw(st.sampled_from(["offset", "partition", "topic", "timestamp"]))
    one: st.SearchStrategy[Any] = {
        "offset": st.integers(-2, 12),
        "partition": st.integers(-1, 3),
        "topic": st.sampled_from(["a", "b"]),
        "timestamp": (st.sampled_from(TIMES) | st.integers(0, 150).map(lambda half: half / 2)).map(at),
    }[column]
    value = draw(st.lists(one, min_size=1, max_size=3)) if name == "In" else draw(one)
    return getattr(datasource, name)((column,), value), name, column, value


@given(st.lists(filters(), max_size=4))
def test_nothing_that_matches_is_left_out(chosen: list[tuple[Any, str, str, Any]]) -> None:
    """Every row that passes the filters is in what is left, and nothing is added."""
    ranges = [OffsetRange(topic, partition, 0, len(TIMES), "id") for topic in "ab" for partition in range(3)]
    left = narrowed(ranges, [each for each, *_ in chosen], find)
    kept = {(part.topic, part.partition, offset) for part in left for offset in range(part.start, part.end)}
    for whole in ranges:
        for offset, time in enumerate(TIMES):
            row = {"offset": offset, "partition": whole.partition, "topic": whole.topic, "timestamp": at(time)}
            if all(COMPARISONS[name](row[column], value) for _, name, column, value in chosen):
                assert (whole.topic, whole.partition, offset) in kept
    assert all(part.topic_id == "id" and 0 <= part.start < part.end <= len(TIMES) for part in left)


def test_ranges_are_narrowed() -> None:
    """By offset, partition, topic and earliest time; what is not understood changes nothing."""
    ranges = [OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 10), OffsetRange("b", 0, 0, 10)]
    ge, lt, equal, one_of = datasource.GreaterThanOrEqual, datasource.LessThan, datasource.EqualTo, datasource.In
    assert narrowed(ranges, [ge(("offset",), 3), lt(("offset",), 7), equal(("partition",), 1)], find) == [
        OffsetRange("a", 1, 3, 7)
    ]
    assert narrowed(ranges, [one_of(("offset",), [4, 2]), equal(("topic",), "b")], find) == [OffsetRange("b", 0, 2, 5)]
    assert narrowed(ranges[:1], [ge(("timestamp",), at(21))], find) == [OffsetRange("a", 0, 1, 10)]
    assert narrowed(ranges[:1], [ge(("timestamp",), at(60.001))], find) == [OffsetRange("a", 0, 8, 10)]
    assert narrowed(ranges, [ge(("timestamp",), at(71))], find) == []
    assert narrowed(ranges[:1], [one_of(("timestamp",), [at(60), at(20)])], find) == [OffsetRange("a", 0, 1, 10)]
    assert narrowed(ranges[:1], [one_of(("timestamp",), [at(71), at(40)])], find) == [OffsetRange("a", 0, 5, 10)]
    other = [
        equal(("key",), b"x"),
        datasource.Not(equal(("offset",), 3)),
        datasource.IsNotNull(("offset",)),
        ge(("value",), b"y"),
    ]
    assert narrowed(ranges, other, find) == ranges


def test_it_is_refused_where_spark_would_be_wrong() -> None:
    """The reason is in the error, and so is the way round it."""
    check_safe("false", "4.3.0")
    check_safe("unsafe", "4.3.0")
    check_safe("true", "5.0.0.dev1")
    with pytest.raises(
        ConfigError, match=r"true, but Spark 4.3.0 keeps a pushed filter with the DataFrame.*call load\(\) again"
    ):
        check_safe("true", "4.3.0")
