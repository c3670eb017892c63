"""The public objects (logs, clusters, clients): they join the real disks, the nodes and the client machines, and have
the threads that run these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyreplog.lazy_door import lazy_door
from pyreplog.runtime.folder_opening import folder_of
from pyreplog.runtime.follow import ChangeSignal, FileWatchSignal, Followed
from pyreplog.runtime.locking import LockWait, cluster_wait, log_wait, reader_wait
from pyreplog.runtime.log import Log, open_log
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.retries import DEFAULT_RETRIES, RetryPolicy

if TYPE_CHECKING:
    from pyreplog.runtime.admin import Admin
    from pyreplog.runtime.background_syncs import BackgroundSyncs
    from pyreplog.runtime.backing_up import backup
    from pyreplog.runtime.cluster import Cluster, ClusterReader
    from pyreplog.runtime.cluster_node import ClusterNode, Nodes
    from pyreplog.runtime.cluster_options import ClusterReaderSettings, ClusterSettings, check_mode, check_setting_names
    from pyreplog.runtime.cluster_reader import ReaderAdmin
    from pyreplog.runtime.consumer import ANSWER_TIMEOUT_S, Consumer
    from pyreplog.runtime.consumer_settings import ConsumerSettings, NamedConsumerSettings, ReaderSettings
    from pyreplog.runtime.deliveries import OnDelivery
    from pyreplog.runtime.descriptions import (
        ClusterDescription,
        GrownTopic,
        NewTopic,
        NodeDescription,
        PartitionDescription,
        Placement,
        TopicDescription,
    )
    from pyreplog.runtime.deserializers import DecodedRecord, Deserializer
    from pyreplog.runtime.listed_partitions import LaggingReplica, ListedPartition, ListedState
    from pyreplog.runtime.metadata_repair import RebuiltMetadata, repair_metadata
    from pyreplog.runtime.named_consumer import NamedConsumer, WhatToCommit
    from pyreplog.runtime.named_position import OnDataLoss, Start
    from pyreplog.runtime.producer import Producer
    from pyreplog.runtime.queue import LOOK_PAUSE_S, Queue
    from pyreplog.runtime.quorum_recovery import (
        PossibleLoss,
        QuorumRecovery,
        StoredQuorum,
        recover_quorum,
        stored_quorum,
    )
    from pyreplog.runtime.reader_consumer import ReaderConsumer
    from pyreplog.runtime.reassignments import PartitionReassignment, ReassignmentHandle
    from pyreplog.runtime.rebalancing import RebalancePlan, ReplicaMove
    from pyreplog.runtime.record_handling import Handling, check_handler
    from pyreplog.runtime.recovered_partitions import ElectedLeader, LostRange, RecoveredPartition
    from pyreplog.runtime.replay_notes import ReplayNotes, Target
    from pyreplog.runtime.send_functions import Partitioner, SendExtras, Serializer
    from pyreplog.runtime.several import scan
    from pyreplog.runtime.spool_applier import apply_offline, make_unowned
    from pyreplog.runtime.stored_cluster import StoredCluster, StoredNode, StoredPartition, StoredReplica, StoredState
    from pyreplog.runtime.subscription import place_of, topics_of
    from pyreplog.runtime.table import ClusterTable, Table

__all__ = [
    "DEFAULT_RETRIES",
    "Handling",
    "check_handler",
    "RetryPolicy",
    "ANSWER_TIMEOUT_S",
    "Admin",
    "Cluster",
    "ClusterDescription",
    "ClusterNode",
    "ClusterReader",
    "ClusterReaderSettings",
    "ClusterTable",
    "ClusterSettings",
    "Consumer",
    "DecodedRecord",
    "Deserializer",
    "FileWatchSignal",
    "BackgroundSyncs",
    "Followed",
    "LOOK_PAUSE_S",
    "LockWait",
    "GrownTopic",
    "Log",
    "LogWriter",
    "ChangeSignal",
    "NewTopic",
    "NodeDescription",
    "Nodes",
    "OnDelivery",
    "PartitionDescription",
    "Placement",
    "PartitionReassignment",
    "ReassignmentHandle",
    "RebalancePlan",
    "ReplicaMove",
    "Partitioner",
    "PossibleLoss",
    "Producer",
    "Queue",
    "QuorumRecovery",
    "ReaderAdmin",
    "ReaderConsumer",
    "ReplayNotes",
    "SendExtras",
    "Serializer",
    "StoredQuorum",
    "Table",
    "Target",
    "TopicDescription",
    "LaggingReplica",
    "ListedState",
    "ElectedLeader",
    "LostRange",
    "RecoveredPartition",
    "ListedPartition",
    "StoredCluster",
    "StoredNode",
    "StoredPartition",
    "StoredReplica",
    "StoredState",
    "apply_offline",
    "backup",
    "check_mode",
    "check_setting_names",
    "cluster_wait",
    "folder_of",
    "log_wait",
    "make_unowned",
    "open_log",
    "place_of",
    "RebuiltMetadata",
    "repair_metadata",
    "recover_quorum",
    "scan",
    "stored_quorum",
    "topics_of",
    "ConsumerSettings",
    "NamedConsumerSettings",
    "ReaderSettings",
    "NamedConsumer",
    "WhatToCommit",
    "OnDataLoss",
    "Start",
    "reader_wait",
]

__getattr__, __dir__ = lazy_door(
    __name__,
    {
        ".admin": ["Admin"],
        ".background_syncs": ["BackgroundSyncs"],
        ".backing_up": ["backup"],
        ".cluster": ["Cluster", "ClusterReader"],
        ".cluster_node": ["ClusterNode", "Nodes"],
        ".cluster_options": ["ClusterReaderSettings", "ClusterSettings", "check_mode", "check_setting_names"],
        ".cluster_reader": ["ReaderAdmin"],
        ".consumer": ["ANSWER_TIMEOUT_S", "Consumer"],
        ".consumer_settings": ["ConsumerSettings", "NamedConsumerSettings", "ReaderSettings"],
        ".deliveries": ["OnDelivery"],
        ".deserializers": ["DecodedRecord", "Deserializer"],
        ".descriptions": [
            "ClusterDescription",
            "GrownTopic",
            "NewTopic",
            "NodeDescription",
            "PartitionDescription",
            "Placement",
            "TopicDescription",
        ],
        ".named_consumer": ["NamedConsumer", "WhatToCommit"],
        ".named_position": ["OnDataLoss", "Start"],
        ".listed_partitions": ["LaggingReplica", "ListedState", "ListedPartition"],
        ".producer": ["Producer"],
        ".metadata_repair": ["RebuiltMetadata", "repair_metadata"],
        ".queue": ["LOOK_PAUSE_S", "Queue"],
        ".quorum_recovery": ["PossibleLoss", "QuorumRecovery", "StoredQuorum", "recover_quorum", "stored_quorum"],
        ".reader_consumer": ["ReaderConsumer"],
        ".reassignments": ["PartitionReassignment", "ReassignmentHandle"],
        ".rebalancing": ["RebalancePlan", "ReplicaMove"],
        ".record_handling": ["Handling", "check_handler"],
        ".replay_notes": ["ReplayNotes", "Target"],
        ".send_functions": ["Partitioner", "SendExtras", "Serializer"],
        ".several": ["scan"],
        ".spool_applier": ["apply_offline", "make_unowned"],
        ".table": ["ClusterTable", "Table"],
        ".recovered_partitions": ["ElectedLeader", "LostRange", "RecoveredPartition"],
        ".stored_cluster": ["StoredCluster", "StoredNode", "StoredPartition", "StoredReplica", "StoredState"],
        ".subscription": ["place_of", "topics_of"],
    },
)
