"""The hosted partitions of a node: one object for each, the node's standing, and the shared
timers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

from pyreplog.config import LogConfig
from pyreplog.controller import MetadataImage, PartitionKey
from pyreplog.log import Log, UnloadedLog
from pyreplog.replica import BrokerStatus, Replica
from pyreplog.values import TopicPartition

__all__ = ["HostedPartition", "ClusterView", "Timers"]


class HostedPartition:
    """One partition on this node: its log, its state machine, and the node's data about it."""

    __slots__ = ("config", "key", "partition", "replica", "topic_id", "topic_partition", "wake_ns")

    def __init__(self, key: PartitionKey, topic_partition: TopicPartition, replica: Replica) -> None:
        self.key = key
        self.topic_id, self.partition = key
        self.topic_partition = topic_partition
        self.replica = replica
        self.config: LogConfig | None = None
        """The settings that the replica was given last."""
        self.wake_ns = 0
        """The time of its next ``Tick``; 0: none is planned."""

    @property
    def log(self) -> Log | UnloadedLog:
        """Its log, or the handle of its log: see :class:`ReplicaContext`. Valid until the replica's
        next step."""
        return self.replica.log


class ClusterView:
    """The latest state of this node as the controller decided it.

    ``leased_until_ns``: after this time the controller may have given this node's leaderships away,
    so clients are refused until the controller answers again. It is a lease: the end of the session
    by this node's clock, less the error that this clock may have.
    """

    __slots__ = ("broker_epoch", "brokers", "image", "leaderless", "leased_until_ns", "under_replicated")

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.broker_epoch = -1
        """The broker epoch of this incarnation; -1 before it is registered."""
        self.brokers: Mapping[int, BrokerStatus] = {}
        """The brokers of ``image``, as the replicas need them. Replaced, never changed."""
        self.leased_until_ns = -1
        self.leaderless: dict[PartitionKey, HostedPartition] = {}
        """Hosted partitions without a leader: their ends are reported to the controller."""
        self.under_replicated: dict[PartitionKey, HostedPartition] = {}
        """Partitions that this node leads and that have a replica out of sync, by the metadata."""

    @property
    def includes_registration(self) -> bool:
        """Whether the image includes this incarnation's registration; else it describes an earlier
        one."""
        return 0 <= self.broker_epoch <= self.image.offset


class Timers:
    """Calls at times of the monotonic clock, in order.

    A call cannot be cancelled: the called function checks whether it is still due.
    """

    __slots__ = ("_heap", "_sequence", "next_ns")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.next_ns: int | None = None
        """The time of the next call."""

    def call_at(self, at_ns: int, call: Callable[[], None]) -> None:
        """Plan ``call`` for ``at_ns``."""
        self._sequence += 1
        heapq.heappush(self._heap, (at_ns, self._sequence, call))
        self.next_ns = self._heap[0][0]

    def run_due(self, now_ns: int) -> bool:
        """Make the calls that are due; return whether there were any."""
        heap = self._heap
        if not heap or heap[0][0] > now_ns:
            return False
        while heap and heap[0][0] <= now_ns:
            heapq.heappop(heap)[2]()
        self.next_ns = heap[0][0] if heap else None
        return True
