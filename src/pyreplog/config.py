"""Settings: frozen values with limits, units in their names. A topic's settings use Kafka's own keys outside.

``LogConfig.from_mapping({"segment.bytes": 1048576})`` checks keys, types and limits; an unknown key is a
:class:`ConfigError` with the nearest known one.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Final, Literal, SupportsIndex, TypeVar

from pyreplog.errors import EXCERPT_SIZE_MAX, ConfigError
from pyreplog.settings_base import Settings, meant, nearest, suggestion

__all__ = [
    "DURABILITIES",
    "FOREVER_S",
    "INT32_MAX",
    "INT64_MAX",
    "LogConfig",
    "NodeConfig",
    "MAX_BATCH_BYTES",
    "PERMISSIONS",
    "Permissions",
    "RECORDS_SIZE_MAX",
    "batch_max",
    "check_callable",
    "check_flag",
    "check_methods",
    "check_number",
    "check_permissions",
    "check_seconds",
    "default_min_insync_replicas",
    "listed",
    "meant",
    "milliseconds",
    "nearest",
    "producer_batch_max",
    "small_retention",
    "suggestion",
    "whole",
]

FOREVER_S: Final = float("inf")
INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1
RECORDS_SIZE_MAX: Final = 64 << 20
"""Most bytes that the records of a compressed batch may have uncompressed when it is appended here."""
MAX_BATCH_BYTES: Final = 1 << 30
"""Default of ``max_batch_bytes``: the most bytes that a reader unpacks of one compressed batch, in parts of a few
MiB."""

T = TypeVar("T")
Durability = Literal["sync", "os"]
DURABILITIES: Final = ("sync", "os")
Permissions = Literal["owner", "group", "any"]
PERMISSIONS: Final = ("owner", "group", "any")
CODECS: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES: Final = ("delete", "compact", "compact,delete")
UNKEYED: Final = ("refuse", "drop")
_RATIO: Final = "min.cleanable.dirty.ratio"


def default_min_insync_replicas(replication_factor: int) -> int:
    """Return a majority of the replicas: RF/2 + 1, rounded down."""
    return replication_factor // 2 + 1


def check_number(settings: object, field: str, low: int, high: int | None = None, name: str | None = None) -> None:
    """Replace a field of frozen ``settings`` by its value as an int, which :func:`whole` checks. ``name`` is the
    field's name in errors."""
    value = getattr(settings, field)
    number = whole(name or field, value, low, high)
    if number is not value:
        object.__setattr__(settings, field, number)


def check_flag(name: str, value: object, otherwise: str = "") -> None:
    """Raise :class:`ConfigError` unless ``value`` is True or False, because ``"no"`` would count as True.
    ``otherwise`` names the other values that are allowed."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {_shown(value)}; it must be True{',' if otherwise else ' or'} False{otherwise}")


def check_permissions(value: object) -> Permissions:
    """Return ``value`` if it is one of :data:`PERMISSIONS`, the users that may write to a log's folders. Otherwise
    raise :class:`ConfigError`."""
    if value not in PERMISSIONS:
        raise ConfigError(f"permissions is {_shown(value)}; it must be one of {', '.join(map(repr, PERMISSIONS))}")
    return value


def whole(name: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """Return ``value`` as an int: any whole number, numpy's too, from ``low`` to ``high``. Raise
    :class:`ConfigError` for other values."""
    if type(value) is int or (isinstance(value, SupportsIndex) and not isinstance(value, bool)):
        number = operator.index(value)
        if (low is None or number >= low) and (high is None or number <= high):
            return number
    limits = f"{'' if low is None else f' from {low}'}{'' if high is None else f' to {high}'}"
    raise ConfigError(f"{name} is {value!r}; it must be a whole number{limits}")


def listed(values: Iterable[T], many: str, one: str) -> list[T]:
    """Return the ``values`` of a call of ``many`` as a list. Raise TypeError for a single value, which is an
    argument of ``one``, and for an object that is not iterable."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"values is one {type(values).__name__}; {many} takes a list of them, {one} takes one")
    if not isinstance(values, Iterable):
        raise TypeError(f"values are a list, not {type(values).__name__}; {one} takes one of them")
    return list(values)


def check_seconds(name: str, value: object, without: str = "for ever") -> float | None:
    """Return a timeout in seconds; None if it never ends (None, or infinite). ``without`` is the meaning of None in
    the error.

    Raise :class:`ConfigError` if it is negative or not a number (nan too).
    """
    if value is None:
        return None
    seconds = _span(value)
    if not seconds >= 0:
        raise ConfigError(f"{name} is {value!r}; it must be seconds from 0, or None {without}")
    return None if seconds == FOREVER_S else seconds


def milliseconds(name: str, value: object) -> float:
    """Return ``value``, a duration in ms, as a float. Raise :class:`ConfigError` if it is negative, not a number
    (nan too), or too large for a float."""
    span = _span(value)
    if not span >= 0:
        raise ConfigError(f"{name} is {_shown(value)}; it must be milliseconds from 0 (never wait)")
    return span


def _span(value: object) -> float:
    """Return ``value`` as a number, numpy's too; -1 if it is not a number. It may be nan."""
    try:
        return float(value) if hasattr(value, "__float__") and not isinstance(value, bool) else -1.0
    except (TypeError, ValueError, OverflowError):  # an array; a whole number beyond all clocks
        return -1.0


def check_callable(name: str, value: object, what: str) -> None:
    """Raise :class:`ConfigError` unless ``value`` is None or can be called. ``what`` describes the right value."""
    if value is not None and not callable(value):
        raise ConfigError(f"{name} is {_shown(value)}; it must be {what}")


def check_methods(name: str, value: object, methods: Iterable[str], what: str) -> None:
    """Raise :class:`ConfigError` unless ``value`` is None or an object with these ``methods``. ``what`` describes
    the right value."""
    if value is not None and (
        isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods)
    ):
        raise ConfigError(f"{name} is {_shown(value)}; it must be {what}")


class LogConfig(Settings):
    """One topic's settings. Sizes in bytes, times in ms."""

    durability: Durability = "sync"
    """The end of a replica that counts: the flushed end (``sync``) or the written end (``os``)."""
    min_insync_replicas: int = 1
    """An append with acks=all needs as many in-sync replicas; all replicas, if a topic has fewer."""
    segment_bytes: int = 1 << 30
    """A segment is closed before it would grow beyond this."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """A segment is closed by an append this much later than its first record."""
    segment_jitter_ms: int = 0
    """Each segment is closed up to this much earlier than ``segment.ms``, by a random time, so that segments are
    not all closed at once."""
    segment_index_bytes: int = 10 << 20
    """The size of one index file."""
    index_interval_bytes: int = 4096
    """A batch gets an index entry if more than this lies between it and the last entry's batch."""
    preallocate: bool = False
    """Reserve all of ``segment.bytes`` when a segment begins, and free the unused part when it is closed."""
    retention_ms: int = -1
    """A segment is removed when its newest record is older than this. -1: no record is removed by age."""
    retention_bytes: int = -1
    """The oldest segments are removed if at least this much is left without them. -1: no record is removed by
    size."""
    file_delete_delay_ms: int = 60_000
    """Files of removed segments stay for this long under the name ``.deleted``, for readers that still need
    them."""
    max_message_bytes: int = 1048588
    """The largest batch, header included. If the leader compresses it, it has at most 64 MiB before that."""
    compression_type: str = "producer"
    """``producer`` keeps each batch's codec; with another codec the leader rewrites batches."""
    message_timestamp_type: str = "CreateTime"
    """``LogAppendTime``: the leader's clock replaces the records' timestamps."""
    message_timestamp_before_max_ms: int = INT64_MAX
    """A record whose own timestamp is further back than this is refused."""
    message_timestamp_after_max_ms: int = INT64_MAX
    """A record whose own timestamp is further ahead than this is refused."""
    flush_messages: int = INT64_MAX
    """An ``os`` log is synced after this many records."""
    flush_ms: int = INT64_MAX
    """An ``os`` log is synced when a record has been unsynced for this long."""
    cleanup_policy: str = "delete"
    """``delete``: old segments are removed by ``retention.ms`` and ``retention.bytes``. ``compact``: of each key the
    newest record is kept. ``compact,delete``: both."""
    min_compaction_lag_ms: int = 0
    """A segment is compacted at the earliest when its newest record is this old."""
    max_compaction_lag_ms: int = INT64_MAX
    """A record is compacted at the latest when it is this old, whatever the dirty ratio; it also limits
    ``segment.ms``."""
    min_cleanable_dirty_ratio: float = 0.5
    """A log is compacted when more than this share of its closed segments is not compacted yet."""
    delete_retention_ms: int = 86_400_000
    """A record without a value (a tombstone) stays for this long after it was first compacted, so that readers see
    that its key was deleted."""
    log_cleaner_dedupe_buffer_size: int = 16 << 20
    """The memory for keys while a log is compacted: 24 bytes a key, and a tenth stays free."""
    compact_unkeyed: str = "refuse"
    """A log that holds records without a key cannot become compacted, unless this is ``drop``: then the next
    compaction drops them."""
    was_compacted: bool = False
    """Whether the topic of a cluster is or was compacted, so that its offsets may have gaps. Only the controller writes
    it, when a topic becomes compacted; nothing takes it back."""

    def __post_init__(self) -> None:
        if isinstance(self.cleanup_policy, str) and self.cleanup_policy not in CLEANUP_POLICIES:
            object.__setattr__(self, "cleanup_policy", _policy(self.cleanup_policy))
        for name, allowed in (
            ("cleanup_policy", CLEANUP_POLICIES),
            ("compact_unkeyed", UNKEYED),
            ("durability", DURABILITIES),
            ("compression_type", CODECS),
            ("message_timestamp_type", TIMESTAMP_TYPES),
        ):
            if getattr(self, name) not in allowed:
                hint = meant(str(getattr(self, name)), allowed)
                raise ConfigError(
                    f"{_key(name)} is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}{hint}"
                )
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{_key(name)} is {getattr(self, name)!r}; it must be true or false")
        for name, low, high in _LIMITS:
            check_number(self, name, low, high, _key(name))
        _check_ratio(self)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms is {self.min_compaction_lag_ms}; it must be at most max.compaction.lag.ms,"
                f" {self.max_compaction_lag_ms}"
            )

    @property
    def compacts(self) -> bool:
        """Whether the log keeps only the newest record of each key."""
        return self.cleanup_policy != "delete"

    @property
    def deletes(self) -> bool:
        """Whether old segments are removed by age and size."""
        return self.cleanup_policy != "compact"

    @property
    def may_have_gaps(self) -> bool:
        """Whether the offsets of a cluster's topic may have gaps: it is or was compacted."""
        return self.was_compacted or self.compacts

    @property
    def rolls_after_ms(self) -> int:
        """The age in ms at which a segment is closed: Kafka's rule for ``segment.ms`` of a compacted log."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @classmethod
    def from_mapping(cls, config: Mapping[str, object] | LogConfig) -> LogConfig:
        """Return the settings of Kafka's keys. Numbers may be text, as Kafka stores them. A LogConfig is returned
        as it is."""
        if isinstance(config, LogConfig):
            return config
        if not hasattr(config, "items"):
            raise ConfigError(
                f"config is {_shown(config)}; it must be a dict of Kafka's keys, such as {{'retention.ms': 86400000}}"
            )
        values: dict[str, object] = {}
        for key, value in config.items():
            name = _NAMES.get(key)
            if name is None:
                raise ConfigError(f"unknown topic setting {key!r}{suggestion(str(key), tuple(_NAMES))}")
            values[name] = _read(cls.__annotations__[name], key, value)
        return cls(**values)  # type: ignore[arg-type]

    def to_mapping(self, *, whole: bool = False) -> dict[str, str]:
        """Return the settings that differ from the defaults (``whole``: all settings) by Kafka's keys, as text."""
        found: dict[str, str] = {}
        for name, default in self._defaults.items():
            value = getattr(self, name)
            if whole or value != default:
                found[_KEYS[name]] = value if type(value) is str else _text(value)
        return found


def batch_max(config: LogConfig) -> int:
    """Return the size in bytes of the largest uncompressed batch that a topic accepts from a client."""
    limit = min(config.max_message_bytes, config.segment_bytes)
    return limit if config.compression_type in ("producer", "uncompressed") else min(limit, RECORDS_SIZE_MAX)


def producer_batch_max(config: LogConfig) -> int:
    """Return the size in bytes up to which a producer gathers records in a batch for a topic, so that no leader
    refuses the batch. A larger record is sent alone, and the leader decides."""
    limit = batch_max(config)
    # The leader compresses the batch. Data that cannot be compressed grows by some bytes for
    # each
    # block, so the uncompressed batch must be smaller than the limit.
    return limit if config.compression_type in ("producer", "uncompressed") else limit - limit // 8 - 64


def small_retention(config: LogConfig) -> str:
    """Return a warning if ``retention.bytes`` is below ``segment.bytes``: how many bytes are kept. Otherwise return
    ""."""
    kept, segment = config.retention_bytes, config.segment_bytes
    if not 0 <= kept < segment:
        return ""
    return (
        f"retention.bytes ({kept}) is below segment.bytes ({segment}): only whole segments go, and never the one being"
        f" written, so up to {kept + segment} bytes are kept. Lower segment.bytes to keep less"
    )


def _read(kind: str, key: str, value: object) -> object:
    """Return ``value``, converted from text if the setting has the ``kind`` int or bool."""
    if kind == "int" and isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise ConfigError(f"{key} is {value!r}; it must be a whole number") from None
    if kind == "float" and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise ConfigError(f"{key} is {value!r}; it must be a number") from None
    if kind == "bool" and isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower(), value)
    return value


def _policy(text: str) -> str:
    """Return the policies of ``text`` in our order, as Kafka takes them in any order and with spaces."""
    asked = {one.strip() for one in text.split(",")}
    return "compact,delete" if asked == {"compact", "delete"} else text if len(asked) != 1 else asked.pop()


def _check_ratio(config: LogConfig) -> None:
    """Replace the dirty ratio by its value as a float. Raise :class:`ConfigError` unless it is from 0 to 1."""
    ratio = config.min_cleanable_dirty_ratio
    try:
        number = float(ratio)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isinstance(ratio, bool) or not 0 <= number <= 1:
        raise ConfigError(f"{_RATIO} is {_shown(ratio)}; it must be a number from 0 to 1")
    object.__setattr__(config, "min_cleanable_dirty_ratio", number)


def _shown(value: object) -> str:
    """Return ``value`` for the text of an error, or only its type if it is long."""
    text = repr(value)
    return text if len(text) <= EXCERPT_SIZE_MAX else f"a {type(value).__name__}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(name: str) -> str:
    return name.replace("_", ".")


_FLAGS: Final = ("preallocate", "was_compacted")
_LIMITS: Final = (
    ("min_insync_replicas", 1, INT32_MAX),
    ("segment_bytes", 1024, INT32_MAX),
    ("segment_ms", 1, INT64_MAX),
    ("segment_jitter_ms", 0, INT64_MAX),
    ("segment_index_bytes", 24, INT32_MAX),
    ("index_interval_bytes", 0, INT32_MAX),
    ("retention_ms", -1, INT64_MAX),
    ("retention_bytes", -1, INT64_MAX),
    ("file_delete_delay_ms", 0, INT64_MAX),
    ("max_message_bytes", 100, INT32_MAX),
    ("message_timestamp_before_max_ms", 0, INT64_MAX),
    ("message_timestamp_after_max_ms", 0, INT64_MAX),
    ("flush_messages", 1, INT64_MAX),
    ("flush_ms", 0, INT64_MAX),
    ("min_compaction_lag_ms", 0, INT64_MAX),
    ("max_compaction_lag_ms", 1, INT64_MAX),
    ("delete_retention_ms", 0, INT64_MAX),
    ("log_cleaner_dedupe_buffer_size", 48, INT32_MAX),
)
_KEYS: Final = {name: _key(name) for name in LogConfig._defaults}
_NAMES: Final = {key: name for name, key in _KEYS.items()}


_FROM_0: Final = (
    "replica_fetch_max_bytes",
    "replica_fetch_backoff_ms",
    "leader_imbalance_check_interval_ms",
    "leader_imbalance_per_broker_percentage",
    "leader_imbalance_grace_ms",
)
"""The settings of a node that may be 0. With any other interval of 0 a node would do no other work."""


class NodeConfig(Settings):
    """One node's settings. Times in ms, sizes in bytes."""

    replica_lag_time_max_ms: int = 2000
    """A follower that has not caught up for this long leaves the in-sync set."""
    replica_fetch_max_bytes: int = 1 << 20
    """The bytes of each partition that a follower requests in one fetch."""
    replica_fetch_wait_max_ms: int = 500
    """How long a leader may hold an empty fetch."""
    replica_fetch_backoff_ms: int = 100
    """The first pause after a failed fetch is a sixteenth of this; each is twice as long as the one before, up to a
    second."""
    recovery_point_checkpoint_interval_ms: int = 60_000
    """The interval at which ``recovery-point-offset-checkpoint`` is written: the synced end of each partition."""
    high_watermark_checkpoint_interval_ms: int = 5_000
    """The interval at which ``replication-offset-checkpoint`` is written: each partition's high watermark."""
    log_start_offset_checkpoint_interval_ms: int = 60_000
    """The interval at which ``log-start-offset-checkpoint`` is written: the start of each partition whose first
    records were deleted."""
    log_retention_check_interval_ms: int = 300_000
    """The interval of the check for segments that retention removes."""
    heartbeat_interval_ms: int = 500
    """The interval of a node's heartbeats to the controller: at most half of ``session_timeout_ms``."""
    session_timeout_ms: int = 3_000
    """The controller fences a node without a heartbeat for this long."""
    leader_imbalance_check_interval_ms: int = 300_000
    """The interval at which the controller looks for partitions that are not led by their preferred replica, the
    first of their assignment, and lets it lead again. 0: never; ``admin.elect_leaders`` does it on request."""
    leader_imbalance_per_broker_percentage: int = 10
    """A node's leaderships are given back only if more than this share of the partitions that prefer the node are led
    by another one."""
    leader_imbalance_grace_ms: int = 60_000
    """No leadership is given back to a node that returned within this time."""

    def __post_init__(self) -> None:
        for name in self._defaults:
            check_number(self, name, 0 if name in _FROM_0 else 1)
            # Otherwise a live node would be fenced between two heartbeats, again and again.
        if self.heartbeat_interval_ms * 2 > self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms is {self.heartbeat_interval_ms}; it must be at most half of session_timeout_ms,"
                f" which is {self.session_timeout_ms}: give both"
            )

    @classmethod
    def from_mapping(cls, config: Mapping[str, object] | NodeConfig) -> NodeConfig:
        """Return the settings of the fields' names, or of Kafka's keys with dots. Numbers may be text. A NodeConfig
        is returned as it is."""
        if isinstance(config, NodeConfig):
            return config
        if not hasattr(config, "items"):
            raise ConfigError(
                f"config is {_shown(config)}; it must be a NodeConfig, or a dict such as {{'session_timeout_ms':"
                " 3000}; a topic's settings go to admin.create_topic"
            )
        values: dict[str, object] = {}
        for key, value in config.items():
            name = str(key).replace(".", "_")
            if name not in cls._defaults:
                where = (
                    "; it is a topic's, for admin.create_topic"
                    if name in LogConfig._defaults
                    else suggestion(name, tuple(cls._defaults))
                )
                raise ConfigError(f"unknown setting {key!r} of a node{where}")
            if name in values:
                raise ConfigError(f"{key} is given twice, with dots and without")
            values[name] = _read(cls.__annotations__[name], key, value)
        return cls(**values)  # type: ignore[arg-type]
