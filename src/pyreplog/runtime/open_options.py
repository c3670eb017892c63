"""The options of ``open_log`` as values: as the caller gave them, and checked, for reading and for
writing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pyreplog.config import INT32_MAX, Durability, LogConfig, Permissions, check_flag, milliseconds, whole
from pyreplog.errors import ConfigError
from pyreplog.log import READ_COMMITTED, LogReader, check_isolation
from pyreplog.ports import Clock, Disk
from pyreplog.runtime.log_writer import BUFFER_MEMORY, MAX_BLOCK_MS
from pyreplog.runtime.views import CommittedView, ReaderView
from pyreplog.values import RecoveryProgress, TopicPartition

__all__ = ["OpenOptions", "ViewOptions", "WriterOptions"]

BUFFER_MEMORY_MIN: Final = 4096


class OpenOptions(NamedTuple):
    """The options of :func:`open_log` as the caller gave them; see there for their meaning."""

    topic: str | None
    partition: int | None
    durability: str | None
    config: Mapping[str, object] | LogConfig | None
    buffer_memory: int | None
    max_block_ms: float | None
    isolation: str
    above_high_watermark: bool
    max_batch_bytes: int
    progress: Callable[[RecoveryProgress], None] | None
    permissions: Permissions
    lock_timeout: float | None
    create: bool
    disk: Disk | None
    clock: Clock | None

    def check_reading(self) -> None:
        """Raise :class:`ConfigError` if an option is given that only a writer has."""
        given = (self.durability, self.config, self.buffer_memory, self.max_block_ms)
        if given != (None, None, None, None) or self.lock_timeout != 0:
            raise ConfigError(
                "durability, config, buffer_memory, max_block_ms and lock_timeout belong to mode='a': a reader takes"
                " the log as it is"
            )


class ViewOptions:
    """How the records of a log are read, checked. ``open_log`` and ``scan`` share it."""

    __slots__ = ("above_high_watermark", "committed", "max_batch_bytes")

    def __init__(self, isolation: str, above_high_watermark: bool, max_batch_bytes: int) -> None:
        """Raises :class:`ConfigError` for impossible options."""
        self.committed = check_isolation(isolation) == READ_COMMITTED
        self.above_high_watermark = above_high_watermark
        self.max_batch_bytes = whole("max_batch_bytes", max_batch_bytes, 1)

    def view_of(self, reader: LogReader, disk: Disk) -> ReaderView | CommittedView:
        """Return the records of ``reader``, which is set up for it."""
        if self.above_high_watermark:
            reader.include_above_high_watermark()
        reader.max_batch_bytes = self.max_batch_bytes
        view = ReaderView(reader, disk)
        return CommittedView(view) if self.committed else view


class WriterOptions(NamedTuple):
    """Which partition is written, and how, checked, with the defaults filled in."""

    topic: str | None
    """None: the folder's name, or its only topic."""
    partition: int | None
    """None: the only partition of the topic; 0 if the topic has none yet."""
    settings: Mapping[str, object]
    """The given settings of the topic, by Kafka's keys."""
    buffer_memory: int
    max_block_ms: float
    create: bool
    """Whether a missing log is made."""

    @classmethod
    def of(cls, options: OpenOptions) -> WriterOptions:
        """Return the checked options. Raises :class:`ConfigError`."""
        check_flag("create", options.create)
        memory, block_ms = options.buffer_memory, options.max_block_ms
        return cls(
            options.topic,
            None if options.partition is None else whole("partition", options.partition, 0, INT32_MAX),
            _settings(options.durability, options.config),
            whole("buffer_memory, in bytes,", BUFFER_MEMORY if memory is None else memory, BUFFER_MEMORY_MIN),
            MAX_BLOCK_MS if block_ms is None else milliseconds("max_block_ms", block_ms),
            options.create,
        )

    def durability(self, key: TopicPartition) -> dict[TopicPartition, Durability]:
        """Return the given durability of the partition ``key`` alone: the folder may hold other
        partitions."""
        return {key: LogConfig.from_mapping(self.settings).durability} if "durability" in self.settings else {}


def _settings(durability: str | None, config: Mapping[str, object] | LogConfig | None) -> dict[str, object]:
    """Return the given settings by Kafka's keys. A LogConfig gives all of them, its defaults too,
    but not its durability if another one is given beside it."""
    config = {} if config is None else config
    LogConfig.from_mapping(config)  # refuses before anything is touched
    if isinstance(config, LogConfig):
        settings: dict[str, object] = {**config.to_mapping(whole=True)}
        if durability is not None:
            settings["durability"] = durability
    else:
        settings = dict(config)
        if durability is not None and settings.setdefault("durability", durability) != durability:
            raise ConfigError(f"durability is {durability!r}, but config says {settings['durability']!r}")
    if LogConfig.from_mapping(settings).was_compacted:
        raise ConfigError("was.compacted is true; only the controller of a cluster writes it: leave it out")
    settings.pop("was.compacted", None)
    return settings
