"""The layout of every metadata record, at each of its versions. Facts of Kafka 4.4's schemas.

The lines are those of :mod:`pyreplog.wire.layouts`, with one addition: ``name:type/2`` is a field
that exists from version 2. A test reads all records that brokers wrote, and writes their bytes
again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyreplog.wire import metadata

__all__ = ["RECORD_CLASSES", "RECORD_KINDS", "RECORD_LAYOUTS", "RecordKind", "line_at"]


class RecordKind(NamedTuple):
    """A type of metadata record: its name, its newest version, and the version that we write."""

    name: str
    newest: int = 0
    written: int = 0


RECORD_KINDS: Final[dict[int, RecordKind]] = {
    0: RecordKind("RegisterBrokerRecord", 4, 3),
    1: RecordKind("UnregisterBrokerRecord"),
    2: RecordKind("TopicRecord"),
    3: RecordKind("PartitionRecord", 2, 2),
    4: RecordKind("ConfigRecord"),
    5: RecordKind("PartitionChangeRecord", 2, 2),
    7: RecordKind("FenceBrokerRecord"),
    8: RecordKind("UnfenceBrokerRecord"),
    9: RecordKind("RemoveTopicRecord"),
    10: RecordKind("DelegationTokenRecord"),
    11: RecordKind("UserScramCredentialRecord"),
    12: RecordKind("FeatureLevelRecord"),
    14: RecordKind("ClientQuotaRecord"),
    15: RecordKind("ProducerIdsRecord"),
    17: RecordKind("BrokerRegistrationChangeRecord", 3, 2),
    18: RecordKind("AccessControlEntryRecord"),
    19: RecordKind("RemoveAccessControlEntryRecord"),
    20: RecordKind("NoOpRecord"),
    21: RecordKind("ZkMigrationRecord"),
    22: RecordKind("RemoveUserScramCredentialRecord"),
    23: RecordKind("BeginTransactionRecord"),
    24: RecordKind("EndTransactionRecord"),
    25: RecordKind("AbortTransactionRecord"),
    26: RecordKind("RemoveDelegationTokenRecord"),
    27: RecordKind("RegisterControllerRecord"),
    28: RecordKind("ClearElrRecord"),
    29: RecordKind("UnregisterControllerRecord"),
}
"""Record type -> its kind. The oldest version of each is 0."""

RECORD_LAYOUTS: Final[dict[str, str]] = {
    "AbortTransactionRecord": "reason:?string@0",
    "AccessControlEntryRecord": (
        "id:uuid resource_type:int8 resource_name:string pattern_type:int8 principal:string host:string operation:int8"
        " permission_type:int8"
    ),
    "BeginTransactionRecord": "name:?string@0",
    "BrokerRegistrationChangeRecord": (
        "broker_id:int32 broker_epoch:int64 fenced:int8@0 in_controlled_shutdown:int8/1@1 log_dirs:[uuid]/2@2"
        " cordoned_log_dirs:?[uuid]/3@3"
    ),
    "ClearElrRecord": "topic_name:string",
    "ClientQuotaRecord": "entity:[EntityData] key:string value:float64 remove:bool",
    "EntityData": "entity_type:string entity_name:?string",
    "ConfigRecord": "resource_type:int8 resource_name:string name:string value:?string",
    "DelegationTokenRecord": (
        "owner:string requester:string renewers:[string] issue_timestamp:int64 max_timestamp:int64"
        " expiration_timestamp:int64 token_id:string"
    ),
    "EndTransactionRecord": "",
    "FeatureLevelRecord": "name:string feature_level:int16",
    "FenceBrokerRecord": "id:int32 epoch:int64",
    "NoOpRecord": "",
    "PartitionChangeRecord": (
        "partition_id:int32 topic_id:uuid isr:?[int32]@0 leader:int32@1 replicas:?[int32]@2"
        " removing_replicas:?[int32]@3 adding_replicas:?[int32]@4 leader_recovery_state:int8@5"
        " directories:?[uuid]/1@8 eligible_leader_replicas:?[int32]/2@6 last_known_elr:?[int32]/2@7"
        " suspects:?[SuspectReplica]@10004"
    ),
    "PartitionRecord": (
        "partition_id:int32 topic_id:uuid replicas:[int32] isr:[int32] removing_replicas:[int32]"
        " adding_replicas:[int32] leader:int32 leader_recovery_state:int8@0 leader_epoch:int32 partition_epoch:int32"
        " directories:[uuid]/1 eligible_leader_replicas:?[int32]/2@1 last_known_elr:?[int32]/2@2"
        " unclean_leader_epoch:int32@10002 suspects:[SuspectReplica]@10003"
    ),
    "SuspectReplica": "broker_id:int32 last_epoch:int32 end_offset:int64",
    "ProducerIdsRecord": "broker_id:int32 broker_epoch:int64 next_producer_id:int64",
    "RegisterBrokerRecord": (
        "broker_id:int32 is_migrating_zk_broker:bool/2 incarnation_id:uuid broker_epoch:int64"
        " end_points:[BrokerEndpoint] features:[BrokerFeature] rack:?string fenced:bool in_controlled_shutdown:bool/1"
        " log_dirs:[uuid]/3@0 cordoned_log_dirs:?[uuid]/4@1"
    ),
    "BrokerEndpoint": "name:string host:string port:uint16 security_protocol:int16",
    "BrokerFeature": "name:string min_supported_version:int16 max_supported_version:int16",
    "RegisterControllerRecord": (
        "controller_id:int32 incarnation_id:uuid zk_migration_ready:bool end_points:[ControllerEndpoint]"
        " features:[ControllerFeature]"
    ),
    "ControllerEndpoint": "name:string host:string port:uint16 security_protocol:int16",
    "ControllerFeature": "name:string min_supported_version:int16 max_supported_version:int16",
    "RemoveAccessControlEntryRecord": "id:uuid",
    "RemoveDelegationTokenRecord": "token_id:string",
    "RemoveTopicRecord": "topic_id:uuid",
    "RemoveUserScramCredentialRecord": "name:string mechanism:int8",
    "TopicRecord": "name:string topic_id:uuid",
    "UnfenceBrokerRecord": "id:int32 epoch:int64",
    "UnregisterBrokerRecord": "broker_id:int32 broker_epoch:int64",
    "UnregisterControllerRecord": "controller_id:int32",
    "UserScramCredentialRecord": (
        "name:string mechanism:int8 salt:bytes stored_key:bytes server_key:bytes iterations:int32"
    ),
    "ZkMigrationRecord": "zk_migration_state:int8",
}
"""Name of a record, or of a struct in one -> its fields in bytes."""

RECORD_CLASSES: Final[dict[str, type]] = {
    name: getattr(metadata, name) for name in RECORD_LAYOUTS if hasattr(metadata, name)
}
"""The records and structs that have a class; the others are dictionaries."""


def line_at(line: str, version: int) -> str:
    """Return the fields of ``line`` that exist at ``version``, without their marks."""
    found = []
    for word in line.split():
        field, mark, rest = word.partition("/")
        since, tagged, tag = rest.partition("@")
        if not mark or int(since) <= version:
            found.append(field + tagged + tag)
    return " ".join(found)
