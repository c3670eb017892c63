"""The nodes of a stage with their disks, and the messages between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from pyreplog.config import LogConfig, NodeConfig
from pyreplog.controller import MetadataImage, PartitionKey
from pyreplog.log import Log, LogRoot
from pyreplog.ports import Clock
from pyreplog.replica import (
    BrokenRule,
    BrokerStatus,
    Effect,
    Fetch,
    MetadataApplied,
    Offline,
    Replica,
    StopFetching,
    Sync,
    Unexpected,
    Wake,
)
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.wire import NO_LEADER, MetadataRecord

__all__ = ["FOREVER_MS", "TOPIC", "StageNode", "DiskHome", "Envelope"]

TOPIC: Final = "t"
FOREVER_MS: Final = 1 << 40


@dataclass(slots=True, eq=False)
class Envelope:
    """A message in flight. ``kind``: fetch, records, proposal or decision; ``body``: its content."""

    kind: str
    source: int
    target: int
    body: Any

    def __str__(self) -> str:
        return f"{self.kind} {self.source or 'controller'} -> {self.target or 'controller'}"


class DiskHome:
    """The disk of one node, and the :class:`LogRoot` in it while the node is up."""

    def __init__(self, node_id: int, clock: Clock, cluster_id: str, log_class: type[Log]) -> None:
        self._node_id = node_id
        self._clock = clock
        self._cluster_id = cluster_id
        self._root_class: type[LogRoot] = type("Root", (LogRoot,), {"log_class": log_class})
        self._random = Random(node_id)
        self.disk = SimDisk(Random(node_id), manual=True)
        self.root: LogRoot | None = None

    @property
    def log(self) -> Any:
        """The partition's log; None if the node is down or has none."""
        return None if self.root is None else self.root.logs.get(TopicPartition(TOPIC, 0))

    def open(self) -> tuple[str, int]:
        """Begin a life of the node. Return (incarnation id, broker epoch of the clean stop before it or -1)."""
        self.root = self._root_class.open(
            self.disk,
            f"node-{self._node_id}",
            clock=self._clock,
            random=self._random,
            node_id=self._node_id,
            cluster_id=self._cluster_id,
        )
        return self.root.incarnation_id, self.root.previous_broker_epoch if self.root.clean else -1

    @property
    def directory_id(self) -> str:
        """The directory id of the disk; empty while the node is down."""
        return "" if self.root is None else self.root.directory_id

    def create(self, topic_id: str, config: LogConfig, *, incomplete: bool) -> Log:
        """Create an empty copy of the partition."""
        assert self.root is not None
        return self.root.create_log(TOPIC, 0, topic_id, config, incomplete=incomplete)

    def kill(self) -> None:
        """Kill the process."""
        self.disk.kill()
        self.root = None

    def lose_power(self, chance: Random | None) -> None:
        """Cut the power: ``chance`` decides which unsynced data survives; without it none does."""
        self.kill()
        if chance is None:
            self.disk = self.disk.crash(_Worst(0))
        else:
            self.disk = self.disk.crash(chance)
        self.disk.manual = True

    def stop(self, broker_epoch: int) -> None:
        """Stop cleanly."""
        assert self.root is not None
        self.root.close(clean=True, broker_epoch=broker_epoch)
        self.root = None

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.kill()
        self.disk = SimDisk(Random(self._node_id + 100), manual=True)

    def flip(self) -> None:
        """Flip a bit in the last byte but one of the first batch."""
        path = f"node-{self._node_id}/{TOPIC}-0/{0:020d}.log"
        size = int.from_bytes(bytes(self.disk.open(path).read_at(8, 4)), "big") + 12
        self.disk.flip(path, size - 2)

    def sync(self, files: Sequence[Any], error: int = 0) -> OSError | None:
        """End a sync and return its error. A sync that fails loses everything that it covers. Files that the log has
        closed since, because it began anew, are left out."""
        files = [file for file in files if not file._closed]
        if error:
            self.disk.random = _Worst(0)
        self.disk.complete(self.disk.submit_sync(files, lambda: None), error)
        (done,) = self.disk.poll()
        return done.error


class _Worst(Random):
    """A random generator with which a crash loses all unsynced data."""

    def randrange(self, *arguments: Any, **more: Any) -> int:
        """Always the first."""
        return 0

    def choice(self, seq: Any) -> Any:
        """Always the first."""
        return seq[0]

    def random(self) -> float:
        """Always least."""
        return 0.0


@dataclass(slots=True, eq=False)
class StageNode:
    """One node on the stage. ``told`` is the number of the controller's records that it has applied;
    ``epoch`` is its broker epoch.

    Checkers read ``node``, ``root``, ``disk_failed`` and ``rotten``, as they do with a machine of a world.
    """

    node_id: int
    home: Any
    replica: Replica | None = None
    image: MetadataImage = field(default_factory=MetadataImage)
    told: int = 0
    epoch: int = -1
    incarnation_id: str = ""
    starts: int = 0
    fetch: Fetch | None = None
    syncs: list[Sync] = field(default_factory=list)
    wake_ns: int = 0
    asked: int = 0
    """The number of its newest proposal."""
    node: Any = None
    root: Any = None
    server: Any = None
    disk_failed: bool = False
    rotten: bool = False

    @property
    def log(self) -> Any:
        """Its log; None while the node has none, or is down."""
        return None if self.replica is None else self.replica.log

    @property
    def shape(self) -> tuple[object, ...]:
        """The state that changes as long as anything goes on. REQUIRES a replica."""
        assert self.replica is not None
        log = self.log
        return self.replica.role.name, log.end_offset, log.high_watermark, log.flushed_offset, self.told

    # Its life -------------------------------------------------------------------------------------

    def open(self) -> int:
        """Begin a life on its disk. Return the broker epoch of the clean stop before it, or -1."""
        self.incarnation_id, previous = self.home.open()
        self.starts += 1
        self.disk_failed = False
        self.root = getattr(self.home, "root", None)
        return int(previous)

    def went_down(self) -> None:
        """Clear the state that a process loses when it ends."""
        self.unhost()
        self.root = None
        self.incarnation_id = ""

    # Its replica ----------------------------------------------------------------------------------

    def host(self, key: PartitionKey, replica_class: type[Replica], config: NodeConfig) -> bool:
        """Open or create the copy of the partition, and a replica over it. False if there is no copy and no
        leader to copy from. REQUIRES that its metadata has the partition."""
        partition = self.image.partition(key)
        assert partition is not None
        log = self.home.log
        if log is None:
            if partition.leader == NO_LEADER:
                return False
            log_config = self.image.topics[key[0]].log_config
            log = self.home.create(key[0], log_config, incomplete=self.node_id not in partition.isr)
        self.replica = replica_class(log, self.node_id, config)
        hosted = SimpleNamespace(key=key, log=log, replica=self.replica, topic_partition=TopicPartition(TOPIC, 0))
        self.node = SimpleNamespace(
            hosted={key: hosted}, broken_rules=[], failed_requests=[], offline=None, failure=None
        )
        return True

    def unhost(self) -> None:
        """Drop the replica and its pending requests and syncs."""
        self.replica = self.node = self.fetch = None
        self.syncs.clear()
        self.wake_ns = 0

    def note(self, effect: Effect) -> None:
        """Take an effect of the replica that concerns only this node."""
        match effect:
            case StopFetching():
                self.fetch = None
            case Sync():
                self.syncs.append(effect)
            case Wake(at_ns):
                self.wake_ns = min(at_ns, self.wake_ns) if self.wake_ns else at_ns
            case BrokenRule():
                self.node.broken_rules.append(effect)
            case Unexpected(error):
                self.node.failed_requests.append(repr(error))
            case Offline(error):
                self.node.offline = error

    # Its metadata ---------------------------------------------------------------------------------

    def apply(self, offset: int, record: MetadataRecord) -> None:
        """Apply one record of the controller."""
        self.image.apply(offset, record)
        self.told += 1

    def statuses(self) -> Mapping[int, BrokerStatus]:
        """Return the brokers in the node's metadata."""
        return {one.broker_id: BrokerStatus(one.epoch, one.active) for one in self.image.brokers.values()}

    def metadata(self, key: PartitionKey, **changes: Any) -> MetadataApplied:
        """Return the event that tells the replica about the partition; ``changes`` replace parts of it."""
        partition = self.image.partition(key)
        assert partition is not None
        about: dict[str, Any] = {
            "offset": self.image.offset,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "brokers": self.statuses(),
            "leader_recovery_state": int(partition.recovering),
            "unclean_epoch": partition.unclean_epoch,
        }
        return MetadataApplied(**(about | changes))
