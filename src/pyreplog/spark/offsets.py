"""Offsets as Spark's users write them: the JSON of Kafka's source, and the start and end of a read.

Pure: no Spark, no files. Rules and names: Spark's Kafka integration guide. The texts of errors are pyreplog's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from pyreplog.config import INT32_MAX, INT64_MAX
from pyreplog.errors import ConfigError, excerpt
from pyreplog.spark.places import LogPartition
from pyreplog.values import TopicPartition

__all__ = [
    "EARLIEST",
    "EARLIEST_OFFSET",
    "LATEST",
    "LATEST_OFFSET",
    "Bound",
    "number_of",
    "parse_offsets",
    "parse_timestamp",
    "parse_timestamps",
]

EARLIEST_OFFSET: Final = -2
"""In offset JSON: where the partition begins."""
LATEST_OFFSET: Final = -1
"""In offset JSON: where the partition ends."""

DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True)
class Bound:
    """The requested start or end of a read. ``option`` is the option that set it, for messages."""

    kind: Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
    option: str = ""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """For ``offsets`` (-2 earliest, -1 latest) and, as ms since 1970, for ``timestamps``: exactly the partitions
    that are read."""
    timestamp: int = 0
    """For ``timestamp``: ms since 1970, for every partition."""


EARLIEST: Final = Bound("earliest")
LATEST: Final = Bound("latest")

_EXAMPLE: Final = '{"orders": {"0": 23, "1": -1}}'
_EXAMPLE_BY_LOG: Final = '{"worker-0": {"orders": {"0": 23, "1": -1}}}'


def number_of(text: str) -> int | None:
    """Return ``text`` as a whole number from 0; None if it is not one, or has more digits than any offset (Python
    refuses to read very many digits)."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None


def _by_place(text: str, option: str, *, by_log: bool) -> dict[TopicPartition, int]:
    """``{"topic": {"0": number}}`` as a table, ``by_log`` with such an object for each log; a number is an int and
    not a boolean."""
    example = _EXAMPLE_BY_LOG if by_log else _EXAMPLE
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{option} is {excerpt(text)}, which is not JSON ({error}); write it as {example}") from None
    logs = parsed.values() if by_log and isinstance(parsed, dict) else [parsed]
    if not isinstance(parsed, dict) or not all(isinstance(topics, dict) for topics in logs):
        raise ConfigError(
            f"{option} is {excerpt(text)}; it must be an object of {'logs' if by_log else 'topics'}, as {example}"
        )
    if not by_log:
        return {**_by_partition(parsed, option, example)}
    return {
        LogPartition(*partition, log): number
        for log, topics in parsed.items()
        for partition, number in _by_partition(topics, option, example).items()
    }


def _by_partition(parsed: dict[str, object], option: str, example: str) -> dict[TopicPartition, int]:
    table: dict[TopicPartition, int] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise ConfigError(
                f"{option} gives {excerpt(str(partitions))} for topic {excerpt(topic)}; it must be an object, as"
                f" {example}"
            )
        for partition, number in partitions.items():
            index = number_of(partition)
            if index is None or index > INT32_MAX:
                raise ConfigError(
                    f"{option} names partition {excerpt(partition)} of {excerpt(topic)}; it must be a whole number"
                )
            if not isinstance(number, int) or isinstance(number, bool):
                where = f"partition {partition} of {excerpt(topic)}"
                raise ConfigError(f"{option} gives {excerpt(str(number))} for {where}; it must be a whole number")
            table[TopicPartition(topic, index)] = number
    return table


def parse_offsets(text: str, option: str, *, by_log: bool = False) -> dict[TopicPartition, int]:
    """The offsets of ``{"topic": {"partition": offset}}``: from 0, or -1 (latest), or -2 (earliest). ``by_log``:
    one such object for each log."""
    table = _by_place(text, option, by_log=by_log)
    for partition, offset in table.items():
        if not EARLIEST_OFFSET <= offset <= INT64_MAX:
            raise ConfigError(
                f"{option} gives offset {offset} for {partition}; it must be from 0, or -1 for latest or -2 for"
                " earliest"
            )
    return table


def parse_timestamps(text: str, option: str, *, by_log: bool = False) -> dict[TopicPartition, int]:
    """The times of ``{"topic": {"partition": ms}}``, in ms since 1970. ``by_log``: one such object for each log."""
    table = _by_place(text, option, by_log=by_log)
    for partition, timestamp in table.items():
        if not 0 <= timestamp <= INT64_MAX:
            raise ConfigError(f"{option} gives {timestamp} for {partition}; it must be in milliseconds since 1970")
    return table


def parse_timestamp(text: str, option: str) -> int:
    """ms since 1970, from such a number or from ISO 8601 with a time zone (``2024-06-01T00:00:00Z``; a part of a ms
    counts up)."""
    stripped = text.strip()
    number = number_of(stripped)
    if number is not None and number <= INT64_MAX:
        return number
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        wanted = "milliseconds since 1970, or ISO 8601 with a time zone such as 2024-06-01T00:00:00Z"
        raise ConfigError(f"{option} is {excerpt(text)}; it must be {wanted}") from None
    if moment.tzinfo is None:
        raise ConfigError(
            f"{option} is {excerpt(text)}, which has no time zone; write {moment.isoformat()}Z, or with an offset such"
            " as +02:00"
        )
    since = moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return -(-(since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) // 1000)
