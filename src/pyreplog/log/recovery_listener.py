"""RecoveryListener: receives the progress of the recovery of a root's partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from pyreplog.config import Durability
from pyreplog.values import TopicPartition

__all__ = ["RecoveryListener", "RecoveryOptions"]


class RecoveryListener(Protocol):
    """Receives the progress of each recovery. A log that was closed cleanly causes no call.

    Partitions are opened one after another. The segments of one partition are scanned side by side, so several
    threads call ``add`` at once, once for each chunk that they read.
    """

    failure: BaseException | None
    """The exception that a listener raised, or that interrupted a scanning thread (Ctrl-C). It ends the open and is
    not damage of the log. Every later ``add`` raises it again, so that all threads stop."""

    def begin(self, topic_partition: TopicPartition, directory: str, size: int) -> None:
        """Called when a scan of ``size`` bytes of the partition in ``directory`` begins, and again if it starts
        over."""
        ...

    def add(self, size: int) -> None:
        """Called when another ``size`` bytes of the partition were scanned."""
        ...


class RecoveryOptions(NamedTuple):
    """How the partitions of a root are opened."""

    listener: RecoveryListener | None = None
    """Gets the progress of each recovery."""
    durability: Mapping[TopicPartition, Durability] = {}
    """The durability of partitions whose files name none, such as a broker's. Others get ``sync``."""
