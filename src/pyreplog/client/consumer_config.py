"""The settings of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyreplog.config import INT32_MAX, check_number

__all__ = ["ConsumerConfig"]


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """A consumer's settings. Sizes in bytes, times in ms."""

    auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest"
    """Where to begin if there is no position, or if its offset is no longer in the log.

    ``none``: raise OffsetOutOfRangeError in the second case. If an unclean election lost records
    that were already read, that error is raised once in any case; if another topic has the name
    now, TopicRecreatedError is.
    """
    fetch_max_wait_ms: int = 500
    """The longest time for which a node may hold an empty answer."""
    fetch_min_bytes: int = 1
    """A node waits until it has this many bytes (or for the longest time). At least 1: with 0 the
    node would be asked again and again."""
    read_from: Literal["leader", "follower"] = "leader"
    """The node to ask: the leader, or another in-sync replica if there is one.

    A follower's high watermark is about a millisecond late. If a follower cannot answer, the leader
    is asked.
    """
    rack: str = ""
    """With ``read_from="follower"``: the rack whose replicas are asked first; "": none."""
    fetch_max_bytes: int = 1 << 20
    """The most bytes per partition and fetch (but at least one batch)."""
    max_poll_records: int = 500
    """The most records of one ``take``."""
    request_timeout_ms: int = 10_000
    metadata_max_age_ms: int = 300_000
    """The time after which a topic that is read as a whole is asked for again, because it may have
    more partitions."""

    def __post_init__(self) -> None:
        for name, low in (
            ("fetch_max_wait_ms", 0),
            ("fetch_min_bytes", 1),
            ("fetch_max_bytes", 1),
            ("max_poll_records", 1),
            ("request_timeout_ms", 1),
            ("metadata_max_age_ms", 1),
        ):
            check_number(self, name, low, INT32_MAX)
