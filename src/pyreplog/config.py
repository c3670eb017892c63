"""Settings: frozen values with limits, units in their names. A topic's settings use Kafka's own keys outside.

``LogConfig.from_mapping({"segment.bytes": 1048576})`` checks keys, types and limits; an unknown key is a :class:`ConfigError`
with the nearest known one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, dataclass_transform

from pyreplog.errors import ConfigError

if TYPE_CHECKING:
    from dataclasses import Field

__all__ = [
    "DURABILITIES",
    "FOREVER_S",
    "INT64_MAX",
    "LogConfig",
    "NodeConfig",
    "check_number",
    "check_seconds",
    "check_whole",
    "default_min_insync_replicas",
    "suggestion",
]

FOREVER_S: Final = float("inf")
INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1

SUGGESTED_MAX: Final = 40
"""A text lists at most so many names that are known."""

Durability = Literal["sync", "os"]
DURABILITIES: Final = ("sync", "os")
CODECS: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


def default_min_insync_replicas(replication_factor: int) -> int:
    """A majority: RF/2 + 1, rounded down."""
    return replication_factor // 2 + 1


def suggestion(word: str, known: tuple[str, ...]) -> str:
    """``"; did you mean 'x'?"`` where something near is known, else the list of what is."""
    import difflib  # noqa: PLC0415  (only on this cold path)

    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    more = f" and {len(known) - SUGGESTED_MAX} more" if len(known) > SUGGESTED_MAX else ""
    return f"; known are {', '.join(known[:SUGGESTED_MAX])}{more}"


def check_number(name: str, value: object, low: int, high: int | None = None) -> None:
    """Raises :class:`ConfigError` unless ``value`` is a whole number from ``low`` (to ``high``)."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        raise ConfigError(f"{name} is {value!r}; it must be a whole number from {low}{'' if high is None else f' to {high}'}")


def check_whole(name: str, value: object) -> None:
    """Raises :class:`ConfigError` unless ``value`` is a whole number, of whatever sign."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name} is {value!r}; it must be a whole number")


def check_seconds(name: str, value: object, without: str = "for ever") -> float | None:
    """What a timeout says, in seconds; None where it never passes (None, or infinite). ``without``: what None means.

    Raises :class:`ConfigError` for what is below 0, not a number (nan too), or no time at all.
    """
    if value is None:
        return None
    seconds = -1.0
    try:
        seconds = float(value) if hasattr(value, "__float__") else -1.0
    except (TypeError, ValueError, OverflowError):  # an array; a whole number beyond all clocks
        pass
    if not seconds >= 0:
        raise ConfigError(f"{name} is {value!r}; it must be seconds from 0, or None {without}")
    return None if seconds == FOREVER_S else seconds


class _Fields:
    """What the functions of ``dataclasses`` look for, made when one does: to load that module takes longer than to open a log."""

    def __get__(self, instance: object, owner: type[_Settings]) -> dict[str, Field[Any]]:
        from dataclasses import make_dataclass  # noqa: PLC0415  (see above)

        made: Any = make_dataclass(owner.__name__, [(name, owner.__annotations__[name], value) for name, value in owner._defaults.items()])
        fields: dict[str, Field[Any]] = made.__dataclass_fields__
        return fields


class _SettingsType(type):
    """Makes the annotated names of a class slots, and what they are set to their defaults."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _SettingsType:
        defaults = {one: namespace.pop(one) for one in namespace.get("__annotations__", ()) if one in namespace}
        return super().__new__(cls, name, bases, {**namespace, "__slots__": tuple(defaults), "_defaults": defaults})


@dataclass_transform(frozen_default=True)
class _Settings(metaclass=_SettingsType):
    """Frozen values with defaults; to everybody else a dataclass."""

    _defaults: ClassVar[dict[str, object]]
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    else:
        __dataclass_fields__ = _Fields()

    def __init__(self, *values: object, **named: object) -> None:
        given = dict(zip(self._defaults, values, strict=False))
        if len(values) > len(self._defaults) or given.keys() & named.keys() or named.keys() - self._defaults.keys():
            wrong = sorted(named.keys() - self._defaults.keys()) or sorted(given.keys() & named.keys()) or values[len(self._defaults) :]
            raise TypeError(f"{type(self).__name__} takes no {', '.join(map(repr, wrong))}, or not twice")
        for name, value in (self._defaults | given | named).items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Checks, where there are any."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; dataclasses.replace() makes another one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def _values(self) -> tuple[object, ...]:
        return tuple([getattr(self, name) for name in self._defaults])

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, _Settings) and type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._defaults)})"

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), self._values()


class LogConfig(_Settings):
    """One topic's settings. Sizes in bytes, times in ms."""

    durability: Durability = "sync"
    """Which end of a replica counts: the flushed one (``sync``) or the written one (``os``)."""
    min_insync_replicas: int = 1
    """An append with acks=all needs as many in-sync replicas."""
    segment_bytes: int = 1 << 30
    """A segment is closed before it would grow beyond this."""
    segment_ms: int = 7 * 24 * 3600 * 1000
    """A segment is closed by an append this much later than its first record."""
    segment_jitter_ms: int = 0
    """Each segment is closed up to this much earlier than ``segment.ms`` says, drawn at random, so that not all are closed at once."""
    segment_index_bytes: int = 10 << 20
    """Room of one index file."""
    index_interval_bytes: int = 4096
    """One index entry where more than this lies before a batch."""
    preallocate: bool = False
    """Reserve the whole of ``segment.bytes`` when a segment is begun, and give back what is left when it is closed."""
    retention_ms: int = -1
    """A segment may go once its newest record is older than this. -1: records do not go by age."""
    retention_bytes: int = -1
    """The oldest segments may go as long as this much is left without them. -1: records do not go by size."""
    file_delete_delay_ms: int = 60_000
    """Files of segments that went stay this long under the name ``.deleted``, for readers that are on their way to them."""
    max_message_bytes: int = 1048588
    """Largest batch, header included."""
    compression_type: str = "producer"
    """``producer`` keeps what came; another codec rewrites batches on the leader."""
    message_timestamp_type: str = "CreateTime"
    """``LogAppendTime``: the leader's clock replaces the records' timestamps."""
    message_timestamp_before_max_ms: int = INT64_MAX
    """A record whose own timestamp is further back than this is refused."""
    message_timestamp_after_max_ms: int = INT64_MAX
    """A record whose own timestamp is further ahead than this is refused."""
    flush_messages: int = INT64_MAX
    """An ``os`` log is synced after this many records."""
    flush_ms: int = INT64_MAX
    """An ``os`` log is synced when something has been unsynced for this long."""

    def __post_init__(self) -> None:
        for name, allowed in (
            ("durability", DURABILITIES),
            ("compression_type", CODECS),
            ("message_timestamp_type", TIMESTAMP_TYPES),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{_key(name)} is {getattr(self, name)!r}; it must be one of {', '.join(allowed)}")
        if not isinstance(self.preallocate, bool):
            raise ConfigError(f"preallocate is {self.preallocate!r}; it must be true or false")
        for name, low, high in _LIMITS:
            check_number(_key(name), getattr(self, name), low, high)

    @classmethod
    def from_mapping(cls, config: Mapping[str, object]) -> LogConfig:
        """From Kafka's keys. Numbers may be given as text, as Kafka stores them."""
        if not hasattr(config, "items"):
            raise ConfigError(f"config is {config!r}; it must be a dict of Kafka's keys, such as {{'retention.ms': 86400000}}")
        values: dict[str, object] = {}
        for key, value in config.items():
            name = _NAMES.get(key)
            if name is None:
                raise ConfigError(f"unknown topic setting {key!r}{suggestion(str(key), tuple(_NAMES))}")
            if cls.__annotations__[name] == "int" and isinstance(value, str):
                try:
                    value = int(value)  # noqa: PLW2901
                except ValueError:
                    raise ConfigError(f"{key} is {value!r}; it must be a whole number") from None
            elif cls.__annotations__[name] == "bool" and isinstance(value, str):
                value = {"true": True, "false": False}.get(value.lower(), value)  # noqa: PLW2901
            values[name] = value
        return cls(**values)  # type: ignore[arg-type]

    def to_mapping(self) -> dict[str, str]:
        """Kafka's keys, with what differs from the defaults, as text."""
        default = LogConfig()
        return {_key(name): _text(getattr(self, name)) for name in self._defaults if getattr(self, name) != getattr(default, name)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(name: str) -> str:
    return name.replace("_", ".")


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
)
_NAMES: Final = {_key(name): name for name in LogConfig._defaults}


class NodeConfig(_Settings):
    """One node's settings. Times in ms, sizes in bytes."""

    replica_lag_time_max_ms: int = 2000
    """A follower that has not caught up for this long leaves the in-sync set."""
    replica_fetch_max_bytes: int = 1 << 20
    """Per partition and fetch."""
    replica_fetch_wait_max_ms: int = 500
    """How long a leader may hold an empty fetch."""
    replica_fetch_backoff_ms: int = 100
    """Pause after a failed fetch; doubles up to 1000."""
    recovery_point_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    log_start_offset_checkpoint_interval_ms: int = 60_000
    log_retention_check_interval_ms: int = 300_000
    """How often segments are looked for that may go."""
    heartbeat_interval_ms: int = 500
    session_timeout_ms: int = 3_000
    """The controller fences a node that was silent for this long."""
    request_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        for name in self._defaults:
            check_number(name, getattr(self, name), 0)
