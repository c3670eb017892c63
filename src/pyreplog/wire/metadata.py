"""The controller's decisions as KRaft's metadata records, in snake case.

The records are sent in order, each at an offset of ``__cluster_metadata``. If every node applies
the same records in the same order, all nodes have the same image. uuid fields hold Kafka's text
form (22 characters of URL-safe base64). A field that is None in a *change* record keeps its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "METADATA_TOPIC",
    "METADATA_TOPIC_ID",
    "NO_LEADER",
    "NO_LEADER_CHANGE",
    "PRODUCER_ID_BLOCK",
    "RESOURCE_BROKER",
    "RESOURCE_TOPIC",
    "BrokerEndpoint",
    "BrokerFeature",
    "BrokerRegistrationChangeRecord",
    "ConfigRecord",
    "FeatureLevelRecord",
    "MetadataRecord",
    "OtherMetadataRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RemoveTopicRecord",
    "SuspectReplica",
    "TopicRecord",
    "UnknownMetadataRecord",
    "UnregisterBrokerRecord",
]

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Kafka's fixed id of ``__cluster_metadata``."""
NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
"""``PartitionChangeRecord.leader``: the leader and its epoch do not change."""
PRODUCER_ID_BLOCK: Final = 1000
"""The number of producer ids that one record hands out."""
RESOURCE_TOPIC: Final = 2
RESOURCE_BROKER: Final = 4
"""``ConfigRecord.resource_type`` of a broker. With an empty name it is a default of the cluster."""


@dataclass(slots=True)
class TopicRecord:
    """A topic was created. Record type 2, version 0."""

    name: str
    topic_id: str


@dataclass(slots=True)
class RemoveTopicRecord:
    """A topic was deleted. Record type 9, version 0."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class SuspectReplica:
    """A member of the ISR or ELR that started uncleanly, and its log as it registered (ours).

    ``last_epoch`` is -2 if it has no copy.
    """

    broker_id: int
    last_epoch: int
    end_offset: int


@dataclass(slots=True)
class PartitionRecord:
    """A partition was created, or is stated as a whole. Record type 3, version 2.

    ``unclean_leader_epoch`` (ours): the latest leader epoch that began with an unclean election; -1
    if there was none. ``suspects`` (ours): the members whose logs no leader has confirmed yet.
    """

    partition_id: int
    topic_id: str
    replicas: Sequence[int]
    isr: Sequence[int]
    removing_replicas: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    directories: Sequence[str] = ()
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None
    unclean_leader_epoch: int = -1
    suspects: Sequence[SuspectReplica] = ()


@dataclass(slots=True)
class PartitionChangeRecord:
    """A change of a partition. Each one increases its partition epoch by 1. Record type 5, version
    2.

    A ``leader`` other than :data:`NO_LEADER_CHANGE` increases the leader epoch by 1, even if it is
    the same leader. ``suspects`` (ours): as in :class:`PartitionRecord`.
    """

    partition_id: int
    topic_id: str
    isr: Sequence[int] | None = None
    leader: int = NO_LEADER_CHANGE
    replicas: Sequence[int] | None = None
    removing_replicas: Sequence[int] | None = None
    adding_replicas: Sequence[int] | None = None
    leader_recovery_state: int = -1
    directories: Sequence[str] | None = None
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None
    suspects: Sequence[SuspectReplica] | None = None


@dataclass(slots=True)
class ConfigRecord:
    """One setting of a topic or broker; ``value`` None removes it. Record type 4, version 0."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(slots=True)
class FeatureLevelRecord:
    """The level of a feature. Record type 12, version 0."""

    name: str
    feature_level: int


@dataclass(slots=True)
class BrokerEndpoint:
    """The address at which a broker listens."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(slots=True)
class BrokerFeature:
    """The versions of a feature that a broker supports."""

    name: str
    min_supported_version: int
    max_supported_version: int


@dataclass(slots=True)
class RegisterBrokerRecord:
    """A broker registered; ``broker_epoch`` is this record's own offset. Record type 0, version 3.

    ``cordoned_log_dirs`` exists from version 4.
    """

    broker_id: int
    incarnation_id: str
    broker_epoch: int
    end_points: Sequence[BrokerEndpoint] = ()
    features: Sequence[BrokerFeature] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: Sequence[str] = ()
    is_migrating_zk_broker: bool = False
    cordoned_log_dirs: Sequence[str] | None = None


@dataclass(slots=True)
class BrokerRegistrationChangeRecord:
    """A change of a broker's registration. Record type 17, version 2.

    ``fenced``: -1 unfenced, 0 no change, 1 fenced. ``in_controlled_shutdown``: 0 no change, 1 yes.
    ``cordoned_log_dirs`` exists from version 3.
    """

    broker_id: int
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: Sequence[str] = ()
    cordoned_log_dirs: Sequence[str] | None = None


@dataclass(slots=True)
class ProducerIdsRecord:
    """A block of producer ids was handed out; the next block begins at ``next_producer_id``. Record
    type 15, version 0."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(slots=True)
class UnregisterBrokerRecord:
    """A broker was removed for good. Record type 1, version 0."""

    broker_id: int
    broker_epoch: int


@dataclass(slots=True)
class OtherMetadataRecord:
    """A record of Kafka's that the image does not use: ACLs, quotas, tokens, transactions, ...

    ``kind`` is Kafka's name, such as ``NoOpRecord``. ``fields`` has the fields in snake case;
    structs are dictionaries.
    """

    kind: str
    version: int
    fields: dict[str, Any]


@dataclass(slots=True)
class UnknownMetadataRecord:
    """A record of a type or version that only newer software knows. ``data`` is the whole record
    with its frame."""

    api_key: int
    version: int
    data: bytes


MetadataRecord = (
    TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | FeatureLevelRecord
    | RegisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | ProducerIdsRecord
    | UnregisterBrokerRecord
    | OtherMetadataRecord
    | UnknownMetadataRecord
)
