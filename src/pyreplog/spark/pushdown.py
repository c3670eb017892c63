"""Filters of a query as narrower ranges: fewer offsets are read, and Spark still applies every filter itself, so
this only ever skips what cannot match.

Pure: filters are told apart by the names of PySpark's classes, which older versions do not have.
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
    """:class:`ConfigError` where ``pushdown`` is ``true`` and this Spark would then answer queries wrongly."""
    if wanted == "true" and int(spark_version.partition(".")[0]) < SAFE_FROM:
        raise ConfigError(
            f"pushdown is true, but Spark {spark_version} keeps a pushed filter with the DataFrame:"
            " df.filter(a).count() and then df.count() would both count the rows of a. Give ranges by options such as"
            " startingOffsets, or set pushdown to unsafe and call load() again for each query"
        )


def narrowed(ranges: Sequence[OffsetRange], filters: Sequence[Any], find_timestamp: FindTimestamp) -> list[OffsetRange]:
    """What of ``ranges`` can match all ``filters`` (PySpark's, taken together by AND). Those that say nothing about
    offset, partition, topic or timestamp change nothing."""
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
                # Times may go up and down: records before the first one that is late enough cannot
                # match, records behind it may.
                found = find_timestamp(whole.place, first)
                start = end if found is None else max(start, found)
        if start < end:
            kept.append(replace(whole, start=start, end=end))
    return kept


def _kind(filter_: Any) -> str:
    return type(filter_).__name__


def _among(filter_: Any, value: object) -> bool:
    """Whether ``value`` may pass an equality."""
    if _kind(filter_) in ("EqualTo", "EqualNullSafe"):
        return bool(filter_.value == value)
    return value in filter_.value if _kind(filter_) == "In" else True


def _bounds(filter_: Any) -> _Bounds:
    """Of a whole number that passes."""
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
    """The earliest time (ms) that passes; None where the filter does not say."""
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
