"""Timestamps as Kafka counts them, in ms since 1970, from integers and from aware datetimes."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Final, SupportsIndex

from pyreplog.errors import ConfigError, InvalidTimestampError

__all__ = ["TIMESTAMP_MAX", "beyond_last", "datetime_ms", "record_ms"]

TIMESTAMP_MAX: Final = 253_402_300_799_999
"""The last ms of the year 9999. Data frames and SQL engines cannot show a later time, and every
query that meets one fails.
"""

_FINER: Final = ((1_000, "microseconds (us)"), (1_000_000, "nanoseconds (ns)"))
"""Finer units, each with how many of it are one ms."""
_LIKELY_MS: Final = range(946_684_800_000, 4_102_444_800_000)
"""The years 2000 to 2099: a guessed unit is plausible if it gives a time within them."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def datetime_ms(value: datetime, name: str, *, up: bool = False) -> int:
    """Return ``value`` in ms since 1970, without rounding errors.

    A fraction of a ms is dropped; with ``up`` it counts as a whole ms. Raises ConfigError, which
    calls the value ``name``, for a naive datetime: its meaning depends on the machine.
    """
    if value.tzinfo is None or value.utcoffset() is None:
        raise ConfigError(
            f"{name} is the naive datetime {value.isoformat()}; give it a time zone, such as tzinfo=datetime.UTC"
        )
    return -((_EPOCH - value) // _MILLISECOND) if up else (value - _EPOCH) // _MILLISECOND


def beyond_last(timestamp: int, which: str = "") -> InvalidTimestampError:
    """Return the error for a record's ``timestamp`` above :data:`TIMESTAMP_MAX`.

    The error's text guesses the unit that the caller counted in. ``which`` names the record, such
    as ``"row 3: "``.
    """
    guess = "a timestamp counts milliseconds (ms) since 1970"
    for many, unit in _FINER:
        if timestamp // many in _LIKELY_MS:
            day = (_EPOCH + timestamp // many * _MILLISECOND).date()
            guess = f"in {unit} it would be {day}, but a timestamp counts milliseconds (ms): divide it by {many:,}"
            break
    return InvalidTimestampError(f"{which}timestamp {timestamp} is beyond 9999-12-31; {guess}")


def record_ms(value: SupportsIndex | datetime) -> int:
    """Return a record's timestamp: an integer ``value`` itself, or the ms of a datetime.

    Raises ConfigError for a naive datetime and for one before 1970, which no record has. Raises
    TypeError for any other type, bool included.
    """
    if isinstance(value, bool):
        raise TypeError("a timestamp must be an integer or a datetime, not a bool")
    if not isinstance(value, datetime):
        return operator.index(value)
    found = datetime_ms(value, "timestamp")
    if found < 0:
        raise ConfigError(f"timestamp {value.isoformat()} is before 1970, when timestamps begin")
    return found
