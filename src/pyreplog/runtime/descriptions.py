"""Descriptions: topics, partitions and nodes as the controller knows them, and topics to make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, NamedTuple

from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError, TopicExistsError
from pyreplog.wire import (
    STATE_FENCED,
    STATE_OFFLINE,
    STATE_ONLINE,
    STATE_STOPPING,
    DescribeClusterBroker,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeTopicPartitionsResponse,
)

__all__ = [
    "ClusterDescription",
    "GrownTopic",
    "NewTopic",
    "NodeDescription",
    "NodeState",
    "PartitionDescription",
    "Placement",
    "TopicDescription",
    "check_alike",
    "check_placement",
    "description_of",
    "settings_of",
    "state_of",
]

DEFAULT_CONFIG: Final = 5
"""Kafka's config source for a setting that neither the topic nor the cluster was given."""
MIN_ISR: Final = "min.insync.replicas"
Placement = Literal["striped", "shifted", "modular"]
"""A rule by which the replicas of a topic are put on nodes."""
_PLACEMENTS: Final[dict[str, Placement]] = {"striped": "striped", "shifted": "shifted", "modular": "modular"}
NodeState = Literal["offline", "fenced", "online", "stopping"]
_STATES: Final[dict[int, NodeState]] = {
    STATE_OFFLINE: "offline",
    STATE_FENCED: "fenced",
    STATE_ONLINE: "online",
    STATE_STOPPING: "stopping",
}


class NewTopic(NamedTuple):
    """A topic to make, for ``create_topics``. The values mean the same as those of ``create_topic``."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, object] | LogConfig | None = None
    placement: Placement = "striped"


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition as the controller knows it. Nodes by number; ``leader`` -1: none now."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """The in-sync set."""
    elr: tuple[int, ...]
    """Eligible leaders that left the in-sync set."""
    partition_epoch: int = -1
    """It grows with every change of the partition. -1: unknown."""
    adding: tuple[int, ...] = ()
    """Nodes that a reassignment adds."""
    removing: tuple[int, ...] = ()
    """Nodes that a reassignment removes."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic and its partitions. ``config``: ``durability``, ``min.insync.replicas`` and every other setting that
    the topic or the cluster was given, by Kafka's keys. ``metadata_offset``: the last record of the metadata log that
    the description reflects; a description with a higher one is newer. ``controller_epoch``: the epoch of the
    controller that answered; -1: unknown. Neither counts when descriptions are compared."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    config: Mapping[str, str]
    metadata_offset: int = field(default=-1, kw_only=True, compare=False, repr=False)
    controller_epoch: int = field(default=-1, kw_only=True, compare=False, repr=False)

    def to_json(self) -> str:
        """Return all fields as one JSON object."""
        return json.dumps({**asdict(self), "config": dict(self.config)})


@dataclass(frozen=True, slots=True)
class GrownTopic(TopicDescription):
    """A topic after ``create_partitions``. ``added``: how many partitions are new. ``note``: what that means for
    records with keys; "" if none is new."""

    added: int
    note: str


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node. ``state``: ``"offline"`` (it does not run, or the controller does not hear from it), ``"fenced"`` (it
    runs and must not serve yet), ``"online"``, or ``"stopping"`` (it moves its leaderships away, to end then).
    ``rack``: the name of its rack, or None. ``cordoned``: it gets no new replicas."""

    node_id: int
    state: NodeState
    rack: str | None = None
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster: the node whose controller decides (None: no node has it), its nodes in the order of their numbers,
    and the defaults of topic settings that it was given (``alter_cluster_config``), by Kafka's keys.
    ``metadata_offset``: see :class:`TopicDescription`."""

    cluster_id: str
    controller_id: int | None
    nodes: tuple[NodeDescription, ...]
    config: Mapping[str, str]
    metadata_offset: int = field(default=-1, kw_only=True, compare=False, repr=False)


def description_of(topics: DescribeTopicPartitionsResponse, configs: DescribeConfigsResponse) -> TopicDescription:
    """Return the description of the one topic in two answers of a controller."""
    topic = topics.topics[0]
    assert topic.name is not None, "the request named the topic"
    return TopicDescription(
        topic.name,
        topic.topic_id,
        tuple(
            PartitionDescription(
                entry.partition_index,
                entry.leader_id,
                entry.leader_epoch,
                tuple(entry.replica_nodes),
                tuple(entry.isr_nodes),
                tuple(entry.eligible_leader_replicas or ()),
                entry.partition_epoch,
                tuple(entry.adding),
                tuple(entry.removing),
            )
            for entry in topic.partitions
        ),
        {key: value for result in configs.results for key, value in settings_of(result).items()},
        metadata_offset=topics.metadata_offset,
        controller_epoch=topics.controller_epoch,
    )


def check_placement(placement: object) -> Placement:
    """Return the rule of that name. Raises ConfigError for any other value."""
    found = _PLACEMENTS.get(placement) if isinstance(placement, str) else None
    if found is None:
        raise ConfigError(f"placement is {placement!r}; it must be one of {', '.join(_PLACEMENTS)}")
    return found


def settings_of(result: DescribeConfigsResult) -> dict[str, str]:
    """Return the settings of a topic, or of the cluster, that a description shows."""
    return {
        entry.name: entry.value
        for entry in result.configs
        if (entry.config_source != DEFAULT_CONFIG or entry.name == MIN_ISR) and entry.value is not None
    }


def state_of(broker: DescribeClusterBroker) -> NodeState:
    """Return the state of a node in the controller's answer."""
    return _STATES.get(broker.state, "fenced" if broker.is_fenced else "online")


def check_alike(
    topic: TopicDescription, partitions: int | None, replication_factor: int | None, config: Mapping[str, str]
) -> None:
    """Raise TopicExistsError if the topic differs from the given values. None and missing keys match everything."""
    there, factor = len(topic.partitions), len(topic.partitions[0].replicas)
    defaults = LogConfig().to_mapping(whole=True)
    differences = [
        f"{found} {noun}, not {asked}"
        for found, noun, asked in ((there, "partitions", partitions), (factor, "replicas", replication_factor))
        if asked is not None and found != asked
    ]
    settings = {key: topic.config.get(key, defaults[key]) for key in config}
    differences += [f"{key}={found}, not {config[key]}" for key, found in settings.items() if found != config[key]]
    if differences:
        raise TopicExistsError(f"{topic.name!r}, with {'; '.join(differences)}")
