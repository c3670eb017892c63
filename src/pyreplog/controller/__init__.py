"""The controller: metadata as a value, the rules that decide it, and the servers of the nodes that
run them over a quorum.

Files are reached through the ``Disk`` port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyreplog.controller.layout import STATE_FILE
from pyreplog.lazy_door import lazy_door

if TYPE_CHECKING:
    from pyreplog.controller.active_controller import ActiveController
    from pyreplog.controller.controller import Controller
    from pyreplog.controller.conversion import Converted, convert_cluster
    from pyreplog.controller.describe import describe_cluster, describe_configs, describe_topics, metadata
    from pyreplog.controller.drain import drained, too_large_topics
    from pyreplog.controller.election import (
        MISSING,
        Election,
        PartitionDecision,
        ReplicaEnd,
        UncleanElection,
        change_record,
        elect_longest,
    )
    from pyreplog.controller.features import LEVEL_LATEST
    from pyreplog.controller.image import (
        ALL_DIRECTORIES,
        CORDONED,
        FEATURE,
        LOST_DIRECTORY,
        BrokerImage,
        MetadataImage,
        PartitionImage,
        PartitionKey,
        TopicImage,
        effective_min_isr,
    )
    from pyreplog.controller.image_records import ImageRecords
    from pyreplog.controller.image_store import IMAGE_STORE_NAME
    from pyreplog.controller.metadata_counts import MetadataCounts
    from pyreplog.controller.placement import place
    from pyreplog.controller.quorum_server import CONTROLLER_PREFIX, QuorumServer, controller_address
    from pyreplog.controller.rebalance import PlannedTopic, RebalancePlan, ReplicaMove, plan_rebalance
    from pyreplog.controller.rebuild import UNKNOWN, RebuiltMetadata, rebuild_metadata
    from pyreplog.controller.recovery import QuorumRecovery, image_in, recover_quorum
    from pyreplog.controller.replication_factor import plan_replication_factor
    from pyreplog.controller.requests import Decided
    from pyreplog.controller.state import ControllerState, decode, encode, load, read_state, store
    from pyreplog.controller.stored_metadata import StoredMetadata, read_stored
    from pyreplog.controller.survivors import PossibleLoss
    from pyreplog.controller.topics import PARTITIONS_MAX, new_id

__all__ = [
    "ALL_DIRECTORIES",
    "CONTROLLER_PREFIX",
    "CORDONED",
    "FEATURE",
    "IMAGE_STORE_NAME",
    "LEVEL_LATEST",
    "LOST_DIRECTORY",
    "MISSING",
    "PARTITIONS_MAX",
    "STATE_FILE",
    "ActiveController",
    "BrokerImage",
    "Controller",
    "ControllerState",
    "Converted",
    "Decided",
    "ImageRecords",
    "MetadataImage",
    "PartitionImage",
    "PartitionKey",
    "PossibleLoss",
    "QuorumRecovery",
    "ReplicaEnd",
    "Election",
    "PartitionDecision",
    "TopicImage",
    "UncleanElection",
    "QuorumServer",
    "StoredMetadata",
    "change_record",
    "drained",
    "too_large_topics",
    "controller_address",
    "convert_cluster",
    "decode",
    "describe_cluster",
    "describe_configs",
    "describe_topics",
    "MetadataCounts",
    "effective_min_isr",
    "elect_longest",
    "encode",
    "image_in",
    "load",
    "metadata",
    "new_id",
    "ReplicaMove",
    "PlannedTopic",
    "RebalancePlan",
    "place",
    "plan_rebalance",
    "plan_replication_factor",
    "read_state",
    "RebuiltMetadata",
    "UNKNOWN",
    "rebuild_metadata",
    "recover_quorum",
    "read_stored",
    "store",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        ".active_controller": ["ActiveController"],
        ".controller": ["Controller"],
        ".conversion": ["Converted", "convert_cluster"],
        ".metadata_counts": ["MetadataCounts"],
        ".describe": ["describe_cluster", "describe_configs", "describe_topics", "metadata"],
        ".election": [
            "Election",
            "MISSING",
            "PartitionDecision",
            "ReplicaEnd",
            "UncleanElection",
            "change_record",
            "elect_longest",
        ],
        ".features": ["LEVEL_LATEST"],
        ".drain": ["drained", "too_large_topics"],
        ".image": [
            "ALL_DIRECTORIES",
            "CORDONED",
            "BrokerImage",
            "FEATURE",
            "LOST_DIRECTORY",
            "MetadataImage",
            "PartitionImage",
            "PartitionKey",
            "TopicImage",
            "effective_min_isr",
        ],
        ".image_records": ["ImageRecords"],
        ".image_store": ["IMAGE_STORE_NAME"],
        ".placement": ["place"],
        ".rebalance": ["ReplicaMove", "PlannedTopic", "RebalancePlan", "plan_rebalance"],
        ".replication_factor": ["plan_replication_factor"],
        ".rebuild": ["UNKNOWN", "RebuiltMetadata", "rebuild_metadata"],
        ".recovery": ["QuorumRecovery", "image_in", "recover_quorum"],
        ".survivors": ["PossibleLoss"],
        ".quorum_server": ["CONTROLLER_PREFIX", "QuorumServer", "controller_address"],
        ".requests": ["Decided"],
        ".state": ["ControllerState", "decode", "encode", "load", "read_state", "store"],
        ".stored_metadata": ["StoredMetadata", "read_stored"],
        ".topics": ["PARTITIONS_MAX", "new_id"],
    },
)
