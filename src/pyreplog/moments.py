"""Moments as Kafka counts them, in ms since 1970: from whole numbers, and from datetimes that know their time zone."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Final, SupportsIndex

from pyreplog.errors import ConfigError

__all__ = ["datetime_ms", "record_ms"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def datetime_ms(value: datetime, name: str, *, up: bool = False) -> int:
    """``value`` in ms since 1970, exactly; of a part of a ms nothing is left, or with ``up`` it counts as a whole one.

    Raises ConfigError, which calls it ``name``, for a naive one: which moment it means depends on the machine.
    """
    if value.tzinfo is None or value.utcoffset() is None:
        raise ConfigError(f"{name} is the naive datetime {value.isoformat()}; give it a time zone, such as tzinfo=datetime.UTC")
    return -((_EPOCH - value) // _MILLISECOND) if up else (value - _EPOCH) // _MILLISECOND


def record_ms(value: SupportsIndex | datetime) -> int:
    """The timestamp of a record: ``value``, if it is a whole number, or the millisecond in which it lies.

    Raises ConfigError for a naive datetime and for one before 1970, which no record has, TypeError for anything else, True and False too.
    """
    if isinstance(value, bool):
        raise TypeError("a timestamp is no bool")
    if not isinstance(value, datetime):
        return operator.index(value)
    found = datetime_ms(value, "timestamp")
    if found < 0:
        raise ConfigError(f"timestamp {value.isoformat()} is before 1970, when timestamps begin")
    return found
