"""Pushed filters: narrows the planned ranges by the filters of a query. Spark still applies every filter itself, so
this only has to skip records that cannot match.

Pure: filters are recognised by the names of PySpark's classes, because older versions do not have the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyreplog.config import INT64_MAX
from pyreplog.errors import ConfigError
from pyreplog.spark.planner import FindTimestamp, OffsetRange

__all__ = ["SAFE_FROM", "check_safe", "narrowed"]

SAFE_FROM: Final = 5
"""The major version of Spark from which a pushed filter belongs to one query and not to its DataFrame."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class _Bounds(NamedTuple):
    """The range of a value: from ``least`` to ``most``, both included."""

    least: int
    most: int


def check_safe(wanted: str, spark_version: str) -> None:
    """Raise :class:`ConfigError` if ``pushdown`` is ``true`` and this Spark would then answer queries wrongly."""
    if wanted == "true" and int(spark_version.partition(".")[0]) < SAFE_FROM:
        raise ConfigError(
            f"pushdown is true, but Spark {spark_version} keeps a pushed filter with the DataFrame:"
            " df.filter(a).count() and then df.count() would both count the rows of a. Give ranges by options such as"
            " startingOffsets, or set pushdown to unsafe and call load() again for each query"
        )


def narrowed(ranges: Sequence[OffsetRange], filters: Sequence[Any], find_timestamp: FindTimestamp) -> list[OffsetRange]:
    """Return the parts of ``ranges`` that can match all ``filters`` (PySpark's, combined by AND). A filter on another
    column than offset, partition, topic, log or timestamp changes nothing."""
    kept = []
    for whole in ranges:
        start, end = whole.start, whole.end
        for each in filters:
            column = ".".join(each.attribute) if hasattr(each, "attribute") else ""
            if column in ("topic", "log"):
                end = end if _among(each, whole.topic if column == "topic" else whole.log) else start
            elif column in ("partition", "offset"):
                bounds = _bounds(each)
                if column == "offset":
                    start, end = max(start, bounds.least), min(end, bounds.most + 1)
                elif not bounds.least <= whole.partition <= bounds.most or not _among(each, whole.partition):
                    end = start
            elif column == "timestamp" and start < end and (first := _milliseconds(each)) is not None:
                # Timestamps may go up and down. Records before the first record that is late
                # enough cannot match; records behind it may.
                found = find_timestamp(whole.place, first)
                start = end if found is None else max(start, found)
        if start < end:
            kept.append(replace(whole, start=start, end=end))
    return kept


def _kind(filter_: Any) -> str:
    return type(filter_).__name__


def _among(filter_: Any, value: object) -> bool:
    """Return whether ``value`` can pass the filter, if the filter is an equality or a list of values."""
    if _kind(filter_) in ("EqualTo", "EqualNullSafe"):
        return bool(filter_.value == value)
    return value in filter_.value if _kind(filter_) == "In" else True


def _bounds(filter_: Any) -> _Bounds:
    """Return the range of the whole numbers that pass the filter."""
    kind, value = _kind(filter_), getattr(filter_, "value", None)
    numbers = [each for each in value if isinstance(each, int)] if isinstance(value, list | tuple) else []
    if kind == "In" and numbers:
        return _Bounds(min(numbers), max(numbers))
    if not isinstance(value, int):
        return _Bounds(0, INT64_MAX)
    return {
        "EqualTo": _Bounds(value, value),
        "EqualNullSafe": _Bounds(value, value),
        "GreaterThan": _Bounds(value + 1, INT64_MAX),
        "GreaterThanOrEqual": _Bounds(value, INT64_MAX),
        "LessThan": _Bounds(0, value - 1),
        "LessThanOrEqual": _Bounds(0, value),
    }.get(kind, _Bounds(0, INT64_MAX))


def _milliseconds(filter_: Any) -> int | None:
    """Return the earliest timestamp (ms) that passes the filter; None if the filter has no lower bound."""
    kind, value = _kind(filter_), getattr(filter_, "value", None)
    moments: list[Any] = []
    if kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
        moments = [value]
    elif kind == "In" and isinstance(value, list | tuple):
        moments = list(value)
    times = [moment for moment in moments if isinstance(moment, datetime) and moment.tzinfo is not None]
    if not times or len(times) != len(moments):
        return None
    return -((_EPOCH - min(times)) // _MILLISECOND)
