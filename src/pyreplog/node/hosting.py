"""What a node hosts: one object per partition, its standing in the cluster, and the timers they share."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyreplog.log import Log
from pyreplog.quorum import MetadataImage, PartitionKey
from pyreplog.replica import BrokerStatus, Replica
from pyreplog.values import TopicPartition

if TYPE_CHECKING:
    from pyreplog.node.follow import Want

__all__ = ["Hosted", "Standing", "Timers"]


class Hosted:
    """One partition on this node: its log, its machine, and what the node keeps for it."""

    __slots__ = ("key", "log", "partition", "replica", "topic_id", "topic_partition", "wake_ns", "want")

    def __init__(self, key: PartitionKey, topic_partition: TopicPartition, log: Log, replica: Replica) -> None:
        self.key = key
        self.topic_id, self.partition = key
        self.topic_partition = topic_partition
        self.log = log
        self.replica = replica
        self.wake_ns = 0
        """When its next ``Tick`` is planned; 0: not at all."""
        self.want: Want | None = None
        """What it fetches from its leader."""


class Standing:
    """What the controller told this node last.

    ``leased_until_ns``: after that moment the controller may have given this node's leaderships away, so clients are refused until it is
    heard of again (a lease: end of the session as the node sees it, short of what its clock may be wrong).
    """

    __slots__ = ("broker_epoch", "brokers", "image", "leaderless", "leased_until_ns")

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.broker_epoch = -1
        """Of this incarnation; -1 before it registered."""
        self.brokers: Mapping[int, BrokerStatus] = {}
        """As ``image`` has them, in the replicas' terms; replaced, never changed."""
        self.leased_until_ns = -1
        self.leaderless: dict[PartitionKey, Log] = {}
        """Hosted partitions that nobody leads: the controller hears how far they reach."""

    @property
    def in_picture(self) -> bool:
        """Whether the image includes this very incarnation's registration: before that it is the picture of another life."""
        return 0 <= self.broker_epoch <= self.image.offset


class Timers:
    """Calls at moments of the monotonic clock, in order. A call is never taken back: whoever is called checks whether it is still due."""

    __slots__ = ("_heap", "_sequence", "next_ns")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.next_ns: int | None = None
        """When the next call is due."""

    def call_at(self, at_ns: int, call: Callable[[], None]) -> None:
        """Plan ``call``."""
        self._sequence += 1
        heapq.heappush(self._heap, (at_ns, self._sequence, call))
        self.next_ns = self._heap[0][0]

    def run_due(self, now_ns: int) -> bool:
        """Make the calls that are due. Whether there were any."""
        heap = self._heap
        if not heap or heap[0][0] > now_ns:
            return False
        while heap and heap[0][0] <= now_ns:
            heapq.heappop(heap)[2]()
        self.next_ns = heap[0][0] if heap else None
        return True
