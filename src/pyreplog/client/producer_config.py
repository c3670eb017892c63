"""The settings of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyreplog.client.accumulator import FLYING_MAX
from pyreplog.client.topic_limits import TopicLimits
from pyreplog.config import INT32_MAX, check_flag, check_number
from pyreplog.errors import ConfigError
from pyreplog.record import HEADER_SIZE

__all__ = ["ACKS", "ProducerConfig"]

ACKS: Final = {"all": -1, -1: -1, 1: 1, 0: 0}
"""The accepted values of ``acks``, with Kafka's number for each."""


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """A producer's settings. Sizes in bytes, times in ms."""

    acks: int = -1
    """-1: every in-sync replica has it; 1: the leader has it; 0: there is no acknowledgement."""
    batch_size_max: int = 256 << 10
    """A batch is closed before it grows beyond this."""
    record_size_max: int = 1048588
    """The largest batch of a single record."""
    buffer_size_max: int = 32 << 20
    """If more than this is not acknowledged, ``send`` waits (the blocking interface does; the
    machine only counts)."""
    max_in_flight: int = 5
    """The most requests in flight per node."""
    request_timeout_ms: int = 10_000
    """The time in which an answer must arrive; after it the outcome is unknown."""
    delivery_timeout_ms: int = 30_000
    """The time in which a record must be acknowledged; after it the record fails or its outcome is
    unknown."""
    max_block_ms: int = 10_000
    """The longest wait for the first metadata of a topic, at most ``delivery_timeout_ms``. (The
    blocking interface waits; the machine never does.)"""
    metadata_max_age_ms: int = 300_000
    """The time after which the topics are asked for again, because they may have more
    partitions."""
    enable_idempotence: bool | None = None
    """Whether every record is appended once and in order, whatever is sent again.

    It needs ``acks`` -1 and ``max_in_flight`` of at most 5; None enables it if these hold.
    """

    def __post_init__(self) -> None:
        for name, low in (
            ("batch_size_max", 1),
            ("record_size_max", 1),
            ("buffer_size_max", 1),
            ("max_in_flight", 1),
            ("request_timeout_ms", 1),
            ("delivery_timeout_ms", 1),
            ("max_block_ms", 0),
            ("metadata_max_age_ms", 1),
        ):
            check_number(self, name, low, INT32_MAX)
        if self.enable_idempotence is not None:
            check_flag("enable_idempotence", self.enable_idempotence, " or None")
        if self.enable_idempotence and not (self.acks == -1 and self.max_in_flight <= FLYING_MAX):
            raise ConfigError(f"enable_idempotence needs acks='all' and max_in_flight of at most {FLYING_MAX}")

    def limits(self, of_topic: TopicLimits | None) -> TopicLimits:
        """Return the limits of this producer's batches for a topic with these limits (None: not known)."""
        if of_topic is None:
            return TopicLimits(self.batch_size_max, self.record_size_max)
        several, alone, needs_keys = of_topic
        # A topic may have a lower limit: then a too large record is sent and the leader refuses it.
        return TopicLimits(
            max(min(self.batch_size_max, several), HEADER_SIZE + 1), max(self.record_size_max, alone), needs_keys
        )

    @property
    def is_idempotent(self) -> bool:
        """Whether batches have sequence numbers."""
        if self.enable_idempotence is None:
            return self.acks == -1 and self.max_in_flight <= FLYING_MAX
        return self.enable_idempotence
