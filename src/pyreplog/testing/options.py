"""The options of a simulated cluster: its parts and its faults. The seed draws them, and a run prints them first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pyreplog.config import NodeConfig
from pyreplog.testing.network import NetworkOptions
from pyreplog.wire import CreatableTopic, CreatableTopicConfig

__all__ = ["FaultRates", "TopicOptions", "WorldOptions", "differing"]


COMPACTED_SHARE: Final = 0.12
"""The share of the drawn worlds without old nodes that have compacted topics."""
_CHANGES: Final = ("min_isr", "grow", "passing_topic")


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """One topic of the cluster. ``acks`` is the setting of its producers."""

    name: str
    partitions: int = 1
    replication_factor: int = 3
    min_insync_replicas: int = 2
    durability: str = "sync"
    segment_bytes: int = 16384
    acks: int = -1
    cleanup_policy: str = "delete"
    keys: int = 0
    """The number of different keys; 0: records without a key, which a compacted topic does not take."""
    tombstones: float = 0.2
    """The share of tombstones among the records with a key."""
    delete_retention_ms: int = 500

    @property
    def compacts(self) -> bool:
        """Whether the topic is compacted."""
        return self.cleanup_policy != "delete"

    @property
    def config(self) -> dict[str, str]:
        """The settings of the topic under Kafka's keys."""
        return {
            "min.insync.replicas": str(self.min_insync_replicas),
            "durability": self.durability,
            "segment.bytes": str(self.segment_bytes),
            "index.interval.bytes": "512",
            **self._compaction,
        }

    @property
    def _compaction(self) -> dict[str, str]:
        if not self.compacts:
            return {}
        return {
            "cleanup.policy": self.cleanup_policy,
            "delete.retention.ms": str(self.delete_retention_ms),
            "log.cleaner.dedupe.buffer.size": str(1 << 16),
        }

    def creatable(self) -> CreatableTopic:
        """Return the topic as a request creates it."""
        configs = [CreatableTopicConfig(key, value) for key, value in self.config.items()]
        return CreatableTopic(self.name, self.partitions, self.replication_factor, configs=configs)


@dataclass(frozen=True, slots=True)
class FaultRates:
    """The weights of the faults, and the mean time between two of them.

    The nemesis skips a fault that would do more damage than the acknowledgement table allows.
    """

    interval_ms: int = 1000
    lasting_ms: int = 1500
    """The longest time that a node stays down or a link stays cut."""
    kill: int = 3
    power_loss: int = 2
    clean_restart: int = 1
    wipe: int = 1
    kill_all: int = 1
    power_loss_of_all: int = 1
    cut: int = 3
    isolate: int = 2
    slow_link: int = 1
    slow_disk: int = 1
    controller_restart: int = 1
    pause: int = 1
    clock_jump: int = 1
    rot: int = 1
    io_error: int = 1
    disk_full: int = 1
    min_isr: int = 0
    """``min.insync.replicas`` of a topic is raised, or set back. Like the next three no fault."""
    grow: int = 0
    """A topic gets one more partition."""
    passing_topic: int = 0
    """A topic without clients is made, or deleted."""
    policy: int = 0
    """``cleanup.policy`` of a compacted topic becomes ``delete``, or what it was."""

    @classmethod
    def none(cls) -> FaultRates:
        """Return rates without any fault."""
        return cls(**{one.name: 0 for one in dataclasses.fields(cls)})


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """All options that a seed draws. Times are in ms of simulated time."""

    nodes: int = 3
    voters: int = 1
    """The voters of the metadata quorum at the beginning."""
    apart: bool = True
    """Whether the voters are machines of their own, which only vote, with numbers after those of the nodes; else they
    are the nodes with the lowest numbers."""
    topics: Sequence[TopicOptions] = (TopicOptions("sync"),)
    producers: int = 1
    consumers: int = 1
    burst_interval_ms: int = 40
    burst_max: int = 4
    value_size_max: int = 200
    max_in_flight: int = 0
    """Requests of a producer in flight, with idempotence if ``acks`` is -1; 0: one request, without idempotence."""
    safety_ms: int = 6000
    events_min: int = 0
    """The safety phase goes on until there were so many events."""
    liveness_ms: int = 60_000
    """The longest liveness phase: it ends as soon as all liveness conditions hold."""
    sync_delay_max_us: int = 3000
    clock_error_ppm: int = 0
    """The most that the clock of a machine gains or loses in a second, in microseconds. A lease allows for 50,000."""
    old_nodes: int = 0
    """Nodes that begin with a version that knows only feature level 0, and are upgraded when they restart; the cluster
    begins at level 0 then."""
    told_of_kills: float = 0.7
    """Probability that the controller learns of a kill at once, not only from missing heartbeats."""
    compaction_interval_ms: int = 100
    """The mean time between two passes of compaction, if a topic is compacted."""
    network: NetworkOptions = field(default_factory=NetworkOptions)
    faults: FaultRates = field(default_factory=FaultRates)
    config: NodeConfig = field(default_factory=NodeConfig)

    @property
    def voter_ids(self) -> range:
        """The numbers of the machines that vote at the beginning."""
        first = self.nodes + 1 if self.apart else 1
        return range(first, first + self.voters)

    @property
    def machine_ids(self) -> range:
        """The numbers of all machines: the nodes, and the voters that are apart from them."""
        return range(1, self.nodes + (self.voters if self.apart else 0) + 1)

    def compacts(self, topic: str) -> bool:
        """Return whether the topic of this name is compacted."""
        return any(one.compacts for one in self.topics if one.name == topic)

    def clock_error(self, seed: int, node_id: int) -> int:
        """Draw the error of a machine's clock, from a generator of its own: other draws stay as they are."""
        most = self.clock_error_ppm
        return Random(seed * 1_000 + node_id).randint(-most, most) if most else 0

    @classmethod
    def drawn(cls, random: Random, *, compacted: bool = False) -> WorldOptions:
        """Draw options from ``random``. Each run gets another mix of settings and faults (swarm testing).

        ``compacted``: with compacted topics, which otherwise a small share of the runs have.
        """
        nodes = random.choice([3, 3, 3, 4, 5])
        options = cls(
            nodes=nodes,
            topics=_topics(random, nodes),
            producers=random.choice([1, 1, 2]),
            burst_interval_ms=random.choice([15, 40, 120]),
            burst_max=random.choice([1, 4, 8]),
            value_size_max=random.choice([30, 200, 2000]),
            max_in_flight=random.choice([0, 1, 5, 5]),
            safety_ms=random.choice([500, 1000, 2000]),
            events_min=2600,
            sync_delay_max_us=random.choice([200, 3000, 20_000]),
            told_of_kills=random.choice([0.0, 0.7, 1.0]),
            network=NetworkOptions(
                delay_max_ns=random.choice([200_000, 2_000_000, 20_000_000]),
                loss=random.choice([0.0, 0.0, 0.01, 0.05]),
                duplicate=random.choice([0.0, 0.0, 0.05]),
                reorder=random.choice([0.0, 0.0, 0.1]),
            ),
            faults=_faults(random),
            config=NodeConfig(
                replica_lag_time_max_ms=random.choice([300, 600, 1000]),
                replica_fetch_wait_max_ms=random.choice([100, 250]),
                replica_fetch_max_bytes=random.choice([500, 1 << 20]),
                heartbeat_interval_ms=random.choice([200, 300]),
                session_timeout_ms=random.choice([600, 1000]),
                high_watermark_checkpoint_interval_ms=random.choice([300, 5000]),
                recovery_point_checkpoint_interval_ms=random.choice([500, 60_000]),
                log_start_offset_checkpoint_interval_ms=random.choice([700, 60_000]),
                leader_imbalance_check_interval_ms=random.choice([0, 0, 500]),
                leader_imbalance_per_broker_percentage=random.choice([0, 10]),
                leader_imbalance_grace_ms=random.choice([0, 300]),
            ),
            clock_error_ppm=random.choice([0, 0, 45_000]),
            voters=random.choice([1, 1, 3, 3, 3, 5]),
        )
        # Last, so that the seeds without them are as they were before these were drawn.
        changes = {kind: random.choice([0, 0, 0, 3]) for kind in _CHANGES}
        options = dataclasses.replace(options, faults=dataclasses.replace(options.faults, **changes))
        old_nodes = random.choice([0, 0, 0, 1, nodes])
        nodes += random.choice([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3])
        apart = options.voters > nodes or random.random() < 0.3
        options = dataclasses.replace(options, nodes=nodes, apart=apart)
        is_drawn = random.random() < COMPACTED_SHARE
        if compacted or (is_drawn and not old_nodes):
            return _compacted(random, options)
        if not old_nodes:
            return options
        # Below level 1 no replica is a suspect: damage that recovery does not notice may
        # cost records.
        return dataclasses.replace(options, old_nodes=old_nodes, faults=dataclasses.replace(options.faults, rot=0))


def differing(options: object) -> str:
    """Return ``options`` as an expression that names only the settings that differ from their defaults.

    ``options`` is a dataclass, or a value or sequence of them.
    """
    if isinstance(options, tuple | list):
        return f"({''.join(f'{differing(each)}, ' for each in options).rstrip()})"
    if not dataclasses.is_dataclass(options):
        return repr(options)
    shown = []
    for one in dataclasses.fields(options):
        value = getattr(options, one.name)
        default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        if value != default:
            shown.append(f"{one.name}={differing(value)}")
    return f"{type(options).__name__}({', '.join(shown)})"


def _topics(random: Random, nodes: int) -> tuple[TopicOptions, ...]:
    found = []
    for number in range(random.choice([1, 1, 2])):
        factor = random.choice([3, 3, 3, min(5, nodes), 2, 1])
        found.append(
            TopicOptions(
                f"t{number}",
                partitions=random.choice([1, 1, 2]),
                replication_factor=factor,
                min_insync_replicas=random.choice([factor // 2 + 1, factor // 2 + 1, random.randint(1, factor)]),
                durability=random.choice(["sync", "os"]),
                segment_bytes=random.choice([4096, 16384, 1 << 20]),
                acks=random.choice([-1, -1, -1, 1]),
            )
        )
    return tuple(found)


def _compacted(random: Random, options: WorldOptions) -> WorldOptions:
    """Return ``options`` with a compacted topic, or two."""
    count = random.randint(1, len(options.topics))
    topics = tuple(
        dataclasses.replace(
            topic,
            cleanup_policy="compact",
            keys=random.choice([3, 12, 60]),
            tombstones=random.choice([0.1, 0.4]),
            delete_retention_ms=random.choice([50, 300, 1500]),
            segment_bytes=random.choice([1024, 2048, 8192]),
        )
        for topic in options.topics[:count]
    )
    return dataclasses.replace(
        options,
        old_nodes=0,
        topics=(*topics, *options.topics[count:]),
        compaction_interval_ms=random.choice([20, 60, 200]),
        value_size_max=min(options.value_size_max, 200),  # many records in a small segment
        faults=dataclasses.replace(options.faults, policy=random.choice([0, 0, 2])),
    )


def _faults(random: Random) -> FaultRates:
    kinds = [
        one.name
        for one in dataclasses.fields(FaultRates)
        if not one.name.endswith("_ms") and one.name not in (*_CHANGES, "policy")
    ]
    weights = {kind: random.choice([0, 1, 1, 3]) for kind in kinds}
    return FaultRates(interval_ms=random.choice([50, 100, 300, 800]), lasting_ms=random.choice([200, 1500]), **weights)
