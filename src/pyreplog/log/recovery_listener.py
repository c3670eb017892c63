"""RecoveryListener: who is told how far the recovery of a root's partitions is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from pyreplog.config import Durability
from pyreplog.values import TopicPartition

__all__ = ["RecoveryListener", "RecoveryOptions"]


class RecoveryListener(Protocol):
    """Is told, once for each piece that is read, and never of a log that was closed cleanly.

    Partitions are opened one after another, the segments of one are scanned side by side: ``add`` is called from
    several threads at once.
    """

    failure: BaseException | None
    """What telling somebody of it raised, or what struck a thread that scans (Ctrl-C): it ends the opening and is
    no fault of the log's. Every later ``add`` raises it too, so that no thread goes on."""

    def begin(self, topic_partition: TopicPartition, directory: str, size: int) -> None:
        """A scan of ``size`` bytes of the partition in ``directory`` begins: the first, or once more from the
        beginning."""
        ...

    def add(self, size: int) -> None:
        """``size`` bytes more of it were scanned."""
        ...


class RecoveryOptions(NamedTuple):
    """How the partitions of a root are opened."""

    listener: RecoveryListener | None = None
    """Gets the progress of each recovery."""
    durability: Mapping[TopicPartition, Durability] = {}
    """The durability of partitions whose files name none, such as a broker's. Others get ``sync``."""
