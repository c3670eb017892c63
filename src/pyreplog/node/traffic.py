"""Counters of one node: requests, bytes and syncs. They count per message and per sync, not per
record."""

from __future__ import annotations

from pyreplog.wire import PartitionData, PartitionProduceData

__all__ = ["NodeTraffic", "size_of"]


class NodeTraffic:
    """The counters, from 0 at the node's start. The services of the node add to them."""

    __slots__ = (
        "bytes_from_leaders",
        "bytes_from_producers",
        "bytes_to_consumers",
        "bytes_to_followers",
        "fetches",
        "follower_fetches",
        "other_requests",
        "produces",
        "sync_max_ns",
        "sync_ns",
        "syncs",
    )

    def __init__(self) -> None:
        self.produces = 0
        self.fetches = 0
        self.follower_fetches = 0
        self.other_requests = 0
        self.bytes_from_producers = 0
        self.bytes_to_consumers = 0
        self.bytes_to_followers = 0
        self.bytes_from_leaders = 0
        self.syncs = 0
        self.sync_ns = 0
        """The time of all finished syncs together, from the turn that began one to the turn that
        found its end."""
        self.sync_max_ns = 0

    def synced(self, took_ns: int) -> None:
        """Count a finished sync."""
        self.syncs += 1
        self.sync_ns += took_ns
        if took_ns > self.sync_max_ns:
            self.sync_max_ns = took_ns

    def add(self, other: NodeTraffic) -> None:
        """Add the counters of another incarnation of the node."""
        for name in self.__slots__:
            if name != "sync_max_ns":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.sync_max_ns = max(self.sync_max_ns, other.sync_max_ns)


def size_of(data: PartitionData | PartitionProduceData) -> int:
    """Return the bytes of the records in a part of an answer, or of a request."""
    records = data.records
    if records is None:
        return 0
    size = getattr(records, "size", None)
    return memoryview(records).nbytes if size is None else size  # type: ignore[arg-type]
