"""The replicated log you import: an embedded, Kafka-format commit log for Python.

``open_log`` keeps one durable log in a folder; ``Cluster`` replicates topics over nodes in this process. See docs/tutorial.md.
"""

from __future__ import annotations

from pyreplog.arrow import Scan
from pyreplog.config import LogConfig, NodeConfig
from pyreplog.errors import (
    ClosedError,
    ClusterError,
    ConfigError,
    CorruptError,
    CorruptLogError,
    ForkedError,
    LockedError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    PyreplogError,
    StorageError,
    UnknownTopicError,
)
from pyreplog.record import Ack, Record
from pyreplog.runtime import Admin, Cluster, ClusterNode, Consumer, Log, PartitionDescription, Producer, TopicDescription, open_log
from pyreplog.values import LogStats, RecordMetadata, TimestampType, TopicPartition

__version__ = "0.1.0"
__all__ = [
    "Ack",
    "Admin",
    "ClosedError",
    "Cluster",
    "ClusterError",
    "ClusterNode",
    "ConfigError",
    "Consumer",
    "CorruptError",
    "CorruptLogError",
    "ForkedError",
    "LockedError",
    "Log",
    "LogConfig",
    "LogStats",
    "MessageTooLargeError",
    "NodeConfig",
    "NotEnoughReplicasError",
    "OffsetOutOfRangeError",
    "OutcomeUnknownError",
    "PartitionDescription",
    "Producer",
    "PyreplogError",
    "Record",
    "RecordMetadata",
    "Scan",
    "StorageError",
    "TimestampType",
    "TopicDescription",
    "TopicPartition",
    "UnknownTopicError",
    "open_log",
]
