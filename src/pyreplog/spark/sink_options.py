"""The options and columns of a write. Pure: no Spark, no files.

The columns are those of Spark's Kafka sink, and a timestamp. An option or column that Kafka's sink ignores in
silence is an error here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pyreplog.config import Permissions, nearest, suggestion
from pyreplog.errors import ConfigError, InvalidTopicError, excerpt
from pyreplog.log import check_topic
from pyreplog.spark.offsets import number_of
from pyreplog.spark.options import by_name, choice_of, folder_of, milliseconds_of, size_of
from pyreplog.spark.schema import COLUMNS, Field, as_ddl
from pyreplog.spool import BatchId, check_id

__all__ = ["WRITE_OPTIONS", "WriteOptions", "check_columns", "parse_write_options"]

WRITE_OPTIONS: Final = (
    "path",
    "topic",
    "owner",
    "commitTimeout",
    "batchBytes",
    "permissions",
    "txnAppId",
    "txnVersion",
    "appliedBatch",
)
"""Every option of a write that means something."""

_PASSED_ON: Final = ("checkpointLocation", "queryName", "includeHeaders")
"""What Spark hands on of its own, and what of Kafka's sink has nothing to say: headers are written where their
column is there."""

COMMIT_TIMEOUT_MS: Final = 60_000
BATCH_BYTES: Final = 256 << 10
BATCH_BYTES_MIN: Final = 1 << 10
BATCH_BYTES_MAX: Final = 1_048_588
"""The largest batch that a topic takes unless its ``max.message.bytes`` says otherwise."""
_CANONICAL: Final = {name.lower(): name for name in (*WRITE_OPTIONS, *_PASSED_ON)}
_INSTEAD: Final = {
    "servers": "name the folder by 'path'; a running Cluster or log takes the rows from there",
    "kafka.bootstrap.servers": "name the folder by 'path'; a running Cluster or log takes the rows from there",
    "kafka.acks": "rows are as durable as the topic's own setting says",
    "kafka.enable.idempotence": "it always is",
    "kafka.transactional.id": "every row is written exactly once without one; see txnAppId for foreachBatch",
    "kafka.compression.type": "set compression.type of the topic",
    "partitioner": "keys are placed by Kafka's murmur2; a column 'partition' places a row otherwise",
}

_TEXT_OR_BYTES: Final = ("string", "binary")
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": ("array<struct<key:string,value:binary>>", "array<struct<value:binary,key:string>>", "array<void>"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
_IGNORED: Final = tuple(column.name for column in COLUMNS if column.name not in _TYPES)
"""The other columns of a frame that was read from a log: they are ignored, because the log sets its own."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """One write, as asked."""

    path: str
    """Absolute: a log's folder, or a cluster's."""
    topic: str | None = None
    """Where all rows go; None: the column says, or the folder has one."""
    owner: Literal["any", "running"] = "any"
    """Whether the driver opens a folder that no process has open, or waits for a process that opens it."""
    commit_timeout_ms: int = COMMIT_TIMEOUT_MS
    batch_bytes: int = BATCH_BYTES
    permissions: Permissions = "owner"
    """Which folders are written to, and the modes of new files and folders, staged files too: as of
    ``open_log``."""
    batch_id: BatchId | None = None
    """From ``txnAppId`` and ``txnVersion``: what makes a batch write known when it is run again."""
    applied_batch: Literal["check", "keep"] = "check"
    """What happens to a batch that the log has, with other rows or a lower number: an error, or it is skipped."""


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of ``df.write.format("replog")`` or ``writeStream``, whose names may have any case.
    :class:`ConfigError` names the option and its valid values."""
    given = by_name(options, _CANONICAL, _unknown)
    path = folder_of(given.get("path"))
    if "*" in path or "?" in path:
        raise ConfigError(f"path {excerpt(path)} is a pattern, which only reads take: name the one folder to write to")
    return WriteOptions(
        path=path,
        topic=_topic(given.get("topic")),
        owner=choice_of(given, "owner", "any", "running"),
        commit_timeout_ms=milliseconds_of(given, "commitTimeout", COMMIT_TIMEOUT_MS),
        batch_bytes=_batch_bytes(given),
        permissions=choice_of(given, "permissions", "owner", "group", "any"),
        batch_id=_batch_id(given),
        applied_batch=choice_of(given, "appliedBatch", "check", "keep"),
    )


def _unknown(key: str) -> str:
    lower = key.lower()
    if lower == "paths":
        return "several paths were given; replog writes one folder at a time"
    if lower in _INSTEAD:
        return f"option {excerpt(key)} means nothing here: {_INSTEAD[lower]}"
    if lower.startswith("kafka."):
        return f"option {excerpt(key)} is for a Kafka client; replog writes the files in 'path' itself: leave it out"
    near = nearest(lower, _CANONICAL)
    known = f"known are {', '.join(WRITE_OPTIONS)}" if near is None else f"did you mean {_CANONICAL[near]!r}?"
    return f"unknown option {excerpt(key)}; {known}"


def _topic(text: str | None) -> str | None:
    try:
        return None if text is None else check_topic(text)
    except InvalidTopicError as error:
        raise ConfigError(f"option topic: {error}") from None


def _batch_bytes(given: Mapping[str, str]) -> int:
    size = size_of(given, "batchBytes", BATCH_BYTES)
    if not BATCH_BYTES_MIN <= size <= BATCH_BYTES_MAX:
        raise ConfigError(f"batchBytes is {size}; it must be from {BATCH_BYTES_MIN} to {BATCH_BYTES_MAX}")
    return size


def _batch_id(given: Mapping[str, str]) -> BatchId | None:
    query, text = given.get("txnAppId"), given.get("txnVersion")
    if query is None and text is None:
        return None
    if query is None or text is None:
        raise ConfigError(
            "txnAppId and txnVersion come together: the name of the writing job, and a number that rises with each"
            " write"
        )
    number = number_of(text)
    if number is None:
        raise ConfigError(f"txnVersion is {excerpt(text)}; it must be a whole number from 0")
    try:
        return check_id(BatchId(query, number))
    except ConfigError as error:
        raise ConfigError(f"options txnAppId and txnVersion: {error}") from None


def check_columns(fields: Sequence[Field], topic: str | None) -> tuple[str, ...]:
    """The columns of ``fields`` that are written. ``topic``: of the option. :class:`ConfigError` by the rules of
    Spark's Kafka sink."""
    names = [field.name for field in fields]
    for field in fields:
        allowed = _TYPES.get(field.name)
        if allowed is None:
            if field.name in _IGNORED:
                continue
            near = suggestion(field.name, tuple(_TYPES))
            raise ConfigError(f"column {field.name!r} is none that a log has{near}; select the others before writing")
        if field.type not in allowed:
            raise ConfigError(
                f"column {field.name} is {field.type}; it must be {' or '.join(map(as_ddl, allowed))}: cast it in the"
                " query"
            )
    if "value" not in names:
        raise ConfigError(
            f"a column 'value' is needed, and there is none among {', '.join(map(repr, names)) or 'no columns at all'}"
        )
    return tuple(name for name in names if name in _TYPES and (name != "topic" or topic is None))
