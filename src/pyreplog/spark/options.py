"""The options of a read, checked: text in, one frozen value out.

Pure: no Spark, no files. Names and meanings are those of Spark's Kafka source, if it has them. An option that
Kafka's source ignores in silence is an error here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from pyreplog.config import MAX_BATCH_BYTES, nearest
from pyreplog.errors import ConfigError, excerpt
from pyreplog.log import READ_UNCOMMITTED, check_isolation
from pyreplog.spark.offsets import (
    EARLIEST,
    EARLIEST_OFFSET,
    LATEST,
    LATEST_OFFSET,
    Bound,
    number_of,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
)
from pyreplog.spark.patterns import check_pattern
from pyreplog.spark.places import fixed_part
from pyreplog.values import TopicPartition

__all__ = ["READ_OPTIONS", "ReadOptions", "by_name", "folder_of", "milliseconds_of", "parse_read_options", "size_of"]

READ_OPTIONS: Final = (
    "path",
    "topic",
    "subscribe",
    "subscribePattern",
    "assign",
    "partitions",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "includeHeaders",
    "isolation",
    "aboveHighWatermark",
    "maxBatchBytes",
    "pushdown",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
"""Every option of a read that means something."""

IGNORED_OPTIONS: Final = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""What jobs written for Kafka's source may carry, and means nothing where files are read."""

BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
"""Options that have no meaning in a stream; Kafka's source refuses them too. A batch read ignores the options of
triggers, as Kafka's source does."""

_INSTEAD: Final = {
    "kafka.bootstrap.servers": "name the folder by 'path'",
    "kafka.group.id": "progress is kept in the checkpoint of the query",
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "progress is kept in the checkpoint of the query",
    "kafka.key.deserializer": "keys and values are binary; cast them in the query",
    "kafka.value.deserializer": "keys and values are binary; cast them in the query",
    "kafka.interceptor.classes": "there is no consumer to intercept",
}
"""What stands for an option of a Kafka client."""

_ELSEWHERE: Final = {
    "columns": 'choose them by their names and types, as in .schema("offset long, value binary")',
    "groupid": "progress is kept in the checkpoint of the query",
    "servers": "name the folder by 'path'",
}
"""What stands for a name that one may well try."""

_ARTIFACTS_OF: Final = "SPARK_JOB_ARTIFACT_UUID"
_NO_ARTIFACTS: Final = "default"
"""Environment of Spark's Python processes: the session for whose files they run in a temporary folder, or that
there is none."""

_OF_TABLES: Final = ("owner", "provider", "location")
"""What Spark adds when a table is made."""

BYTES_PER_PARTITION: Final = 128 << 20
TRIGGER_DELAY_MS: Final = 15 * 60_000
_TIMES: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
Choice = TypeVar("Choice", bound=str)
_AMOUNT: Final = re.compile(r"([0-9]{1,19})\s*([a-z]*)")
_CANONICAL: Final = {name.lower(): name for name in (*READ_OPTIONS, *IGNORED_OPTIONS)} | {
    "kafka.isolation.level": "isolation"
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """One read, as asked."""

    path: str
    """Absolute: a log root, a cluster's folder, a partition folder or a broker's ``log.dirs`` folder; or a pattern
    of such folders."""
    logs_in: str = ""
    """If ``path`` is a pattern: the folder above its first part with a wildcard. The logs' names are relative to
    it."""
    topics: tuple[str, ...] | None = None
    """From ``topic`` or ``subscribe``; None: by pattern, by ``assign``, or the only topic there is."""
    pattern: str | None = None
    """The expression of ``subscribePattern``: it matches if it is found anywhere in a topic's name, as in Spark's
    Kafka source; internal topics never match."""
    assigned: tuple[TopicPartition, ...] | None = None
    """From ``assign``."""
    partitions: frozenset[int] | None = None
    """From ``partitions``: of the topics above, only these."""
    starting: Bound = EARLIEST
    ending: Bound = LATEST
    starting_strategy: Literal["error", "latest"] = "error"
    """The meaning of a starting time for a partition without a record at or after it."""
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int = BYTES_PER_PARTITION
    include_headers: bool = False
    isolation: str = READ_UNCOMMITTED
    """Kafka's ``isolation.level``: whether records of open and aborted transactions are left out."""
    above_high_watermark: bool = False
    """Whether a batch reads up to the last whole batch of the log, for a folder whose high watermark is stale."""
    max_batch_bytes: int = MAX_BATCH_BYTES
    """The most bytes that one compressed batch may take unpacked."""
    pushdown: Literal["false", "true", "unsafe"] = "false"
    """Whether filters limit the read; ``unsafe``: also if Spark then confuses DataFrames."""
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = TRIGGER_DELAY_MS

    @property
    def several(self) -> bool:
        """Whether ``path`` is a pattern, so that each folder that matches it is a log of its own."""
        return bool(self.logs_in)

    @property
    def limited(self) -> bool:
        """Whether a micro-batch may get less than there is."""
        limits = (self.max_offsets_per_trigger, self.max_bytes_per_trigger, self.min_offsets_per_trigger)
        return any(limit is not None for limit in limits)


def parse_read_options(options: Mapping[str, str], *, streaming: bool | None = False) -> ReadOptions:
    """Check the options of ``spark.read.format("replog")`` or of ``readStream``, whose names may have any case.
    :class:`ConfigError` names the option and its valid values. ``streaming`` None: it is not known yet which of the
    two it will be."""
    given = by_name(options, _CANONICAL, _unknown)
    if streaming:
        for name in BATCH_ONLY:
            if name in given:
                raise ConfigError(
                    f"option {name} is for batch reads, and a stream has no end: leave it out, or stop it by its"
                    " trigger"
                )
        if _flag(given, "aboveHighWatermark", False):
            raise ConfigError(
                "aboveHighWatermark is for batch reads: a leader may truncate such records, and a stream would not"
                " notice"
            )
    least, most = _positive(given, "minOffsetsPerTrigger"), _positive(given, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
    path = folder_of(given.get("path"))
    logs_in = fixed_part(path)
    return ReadOptions(
        path=path,
        logs_in=logs_in,
        **_topics(given),  # type: ignore[arg-type]
        partitions=_partitions(given),
        starting=_starting(given, streaming is not False, LATEST if streaming else EARLIEST, by_log=bool(logs_in)),
        ending=_ending(given, by_log=bool(logs_in)),
        starting_strategy=choice_of(given, "startingOffsetsByTimestampStrategy", "error", "latest"),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        min_partitions=_positive(given, "minPartitions"),
        max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
        max_bytes_per_partition=size_of(given, "maxBytesPerPartition", BYTES_PER_PARTITION),
        include_headers=_flag(given, "includeHeaders", False),
        isolation=check_isolation(given.get("isolation", READ_UNCOMMITTED).strip().lower()),
        above_high_watermark=_flag(given, "aboveHighWatermark", False),
        max_batch_bytes=size_of(given, "maxBatchBytes", MAX_BATCH_BYTES),
        pushdown=_pushdown(given, streaming is True),
        max_offsets_per_trigger=most,
        max_bytes_per_trigger=size_of(given, "maxBytesPerTrigger", 0) or None,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=milliseconds_of(given, "maxTriggerDelay", TRIGGER_DELAY_MS),
    )


def by_name(options: Mapping[str, str], canonical: Mapping[str, str], unknown: Callable[[str], str]) -> dict[str, str]:
    """``options`` by the names that ``canonical`` has for them in lower case; :class:`ConfigError` with ``unknown``
    of another."""
    given: dict[str, str] = {}
    for key, value in options.items():
        name = canonical.get(key.lower())
        if name is None:
            raise ConfigError(unknown(key))
        given[name] = value
    return given


def _unknown(key: str) -> str:
    if key.lower() == "paths":
        return (
            "several paths were given; replog takes one: a pattern, such as multi/worker-*, or union several load()"
            " calls"
        )
    if key.lower() in _OF_TABLES:
        return (
            "CREATE TABLE ... USING replog: Spark does not hand a table's options back when it is read; use CREATE"
            " TEMPORARY VIEW"
        )
    if key.lower().startswith("kafka."):
        instead = _INSTEAD.get(key.lower(), "leave it out")
        return f"option {excerpt(key)} is for a Kafka client; replog reads the files in 'path' itself: {instead}"
    if key.lower() in _ELSEWHERE:
        return f"option {excerpt(key)} means nothing here: {_ELSEWHERE[key.lower()]}"
    near = nearest(key.lower(), _CANONICAL)
    known = f"known are {', '.join(READ_OPTIONS)}" if near is None else f"did you mean {_CANONICAL[near]!r}?"
    return f"unknown option {excerpt(key)}; {known}"


def folder_of(value: str | None) -> str:
    """Return the option ``path`` as an absolute folder of this machine; raise :class:`ConfigError` if it is not
    one."""
    if not value:
        raise ConfigError(
            "option 'path' is missing: name the log's folder by .option(\"path\", ...) or .load(...) "
            "(CREATE TABLE ... USING replog loses it; CREATE TEMPORARY VIEW keeps it)"
        )
    if value.startswith("file:"):
        parts = urlsplit(value.replace("?", "%3F"))  # a wildcard, and no query
        if parts.netloc not in ("", "localhost"):
            raise ConfigError(f"path {excerpt(value)} names another machine; replog reads folders of this one")
        value = unquote(parts.path)
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", value):
        raise ConfigError(
            f"path {excerpt(value)} is not a folder of this machine; replog reads local and mounted folders"
        )
    if "\0" in value:
        raise ConfigError(f"path {excerpt(value)} holds a null character")
    value = os.path.expanduser(value)
    if not os.path.isabs(value) and os.environ.get(_ARTIFACTS_OF, _NO_ARTIFACTS) != _NO_ARTIFACTS:
        raise ConfigError(
            f"path {excerpt(value)} is relative, and Spark Connect runs this in a folder of its own, which goes when"
            " the session ends: give an absolute path"
        )
    return os.path.abspath(value)


def _topics(given: Mapping[str, str]) -> dict[str, object]:
    ways = [name for name in ("topic", "subscribe", "subscribePattern", "assign") if name in given]
    if len(ways) > 1:
        raise ConfigError(f"options {' and '.join(ways)} contradict each other; give one of them")
    if not ways:
        return {}
    way, value = ways[0], given[ways[0]]
    if way == "assign":
        return {"assigned": _assigned(value)}
    if way == "subscribePattern":
        return {"pattern": check_pattern(value)}
    names = (
        tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if way == "subscribe"
        else (value,)
    )
    if not names or not all(names):
        raise ConfigError(f"option {way!r} names no topic")
    return {"topics": names}


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"orders": [0, 1]}'
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"assign is {excerpt(text)}, which is not JSON ({error}); write it as {example}") from None
    if not isinstance(parsed, dict) or not parsed:
        raise ConfigError(f"assign is {excerpt(text)}; write it as {example}")
    assigned = []
    for topic, numbers in parsed.items():
        if (
            not isinstance(numbers, list)
            or not numbers
            or not all(type(number) is int and number >= 0 for number in numbers)
        ):
            raise ConfigError(
                f"assign gives {excerpt(str(numbers))} for {excerpt(topic)}; it must be a list of partitions, as"
                f" {example}"
            )
        assigned += [TopicPartition(topic, number) for number in dict.fromkeys(numbers)]
    return tuple(sorted(assigned))


def _partitions(given: Mapping[str, str]) -> frozenset[int] | None:
    text = given.get("partitions")
    if text is None:
        return None
    if "assign" in given:
        raise ConfigError("options partitions and assign contradict each other; give one of them")
    numbers = [number_of(part.strip()) for part in text.split(",")]
    if None in numbers:
        raise ConfigError(f"partitions is {excerpt(text)}; it must be numbers between commas, as 0,3")
    return frozenset(number for number in numbers if number is not None)


def _starting(given: Mapping[str, str], latest_too: bool, default: Bound, *, by_log: bool) -> Bound:
    bound = _bound(given, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", default, by_log=by_log)
    if latest_too:
        return bound
    latest = [
        str(partition)
        for partition, offset in bound.offsets.items()
        if bound.kind == "offsets" and offset == LATEST_OFFSET
    ]
    if bound.kind == "latest" or latest:
        where = f" for {latest[0]}" if latest else ""
        raise ConfigError(
            f"startingOffsets is latest{where}; a batch read from there would always be empty: give an offset or"
            " 'earliest'"
        )
    return bound


def _ending(given: Mapping[str, str], *, by_log: bool) -> Bound:
    bound = _bound(given, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", LATEST, by_log=by_log)
    earliest = [
        str(partition)
        for partition, offset in bound.offsets.items()
        if bound.kind == "offsets" and offset == EARLIEST_OFFSET
    ]
    if bound.kind == "earliest" or earliest:
        where = f" for {earliest[0]}" if earliest else ""
        raise ConfigError(
            f"endingOffsets is earliest{where}; a read up to there would always be empty: give an offset or 'latest'"
        )
    return bound


def _bound(
    given: Mapping[str, str], timestamp: str, timestamps: str, offsets: str, default: Bound, *, by_log: bool
) -> Bound:
    """Kafka's precedence: one time for all, then times, then offsets."""
    if timestamp in given:
        return Bound("timestamp", timestamp, timestamp=parse_timestamp(given[timestamp], timestamp))
    if timestamps in given:
        return Bound("timestamps", timestamps, parse_timestamps(given[timestamps], timestamps, by_log=by_log))
    if offsets not in given:
        return default
    text = given[offsets].strip()
    if text.lower() == "earliest":
        return Bound("earliest", offsets)
    if text.lower() == "latest":
        return Bound("latest", offsets)
    return Bound("offsets", offsets, parse_offsets(text, offsets, by_log=by_log))


def _pushdown(given: Mapping[str, str], streaming: bool) -> Literal["false", "true", "unsafe"]:
    choice: Literal["false", "true", "unsafe"] = choice_of(given, "pushdown", "false", "true", "unsafe")
    if choice != "false" and streaming:
        raise ConfigError(
            f"pushdown is {choice}, but Spark never pushes filters to a stream: leave it out, and filter the DataFrame"
        )
    return choice


def choice_of(given: Mapping[str, str], name: str, default: Choice, *others: Choice) -> Choice:
    """Which of these words the option ``name`` is, in any case."""
    text = given.get(name, default)
    for choice in (default, *others):
        if choice == text.strip().lower():
            return choice
    words = ", ".join((default, *others[:-1]))
    raise ConfigError(f"{name} is {excerpt(text)}; it must be {words} or {others[-1]}")


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise ConfigError(f"{name} is {excerpt(text)}; it must be true or false")
    return text.strip().lower() == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    number = number_of(text.strip())
    if not number:
        raise ConfigError(f"{name} is {excerpt(text)}; it must be a whole number from 1")
    return number


def size_of(given: Mapping[str, str], name: str, default: int) -> int:
    """The option ``name`` in bytes."""
    return _amount(given, name, default, _UNITS, 1, "a size such as 128m")


def milliseconds_of(given: Mapping[str, str], name: str, default: int) -> int:
    """The option ``name`` in ms; a bare number is ms."""
    return _amount(given, name, default, _TIMES, 0, "a time such as 15m, 30s or 500ms")


def _amount(given: Mapping[str, str], name: str, default: int, units: Mapping[str, int], least: int, what: str) -> int:
    text = given.get(name)
    if text is None:
        return default
    match = _AMOUNT.fullmatch(text.strip().lower())
    if match is None or match[2] not in units or int(match[1]) < least:
        raise ConfigError(f"{name} is {excerpt(text)}; it must be {what}")
    return int(match[1]) * units[match[2]]
