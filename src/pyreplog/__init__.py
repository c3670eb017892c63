"""The replicated log you import: an embedded, Kafka-format commit log for Python.

``open_log`` keeps one durable log in a folder. ``Cluster`` replicates topics over several nodes in this process. ``docs/tutorial.md``
begins at the beginning, ``docs/reference/api.md`` has every name.
"""

from __future__ import annotations

from pyreplog.arrow import Scan
from pyreplog.client import Acks
from pyreplog.config import LogConfig, NodeConfig
from pyreplog.errors import (
    BrokerNotAvailableError,
    BufferExhaustedError,
    ClosedError,
    ClusterError,
    ConfigError,
    CorruptError,
    CorruptLogError,
    DuplicateSequenceError,
    FencedEpochError,
    ForkedError,
    IneligibleReplicaError,
    InternalError,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTransactionStateError,
    LockedError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    PyreplogError,
    RequestTimedOutError,
    StorageError,
    TopicExistsError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownTopicError,
)
from pyreplog.record import Ack, Record, RecordBatch
from pyreplog.runtime import (
    Admin,
    Cluster,
    ClusterNode,
    Consumer,
    Log,
    PartitionDescription,
    Producer,
    TopicDescription,
    open_log,
)
from pyreplog.values import LogStats, RecordMetadata, TimestampType, TopicPartition

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "Acks",
    "Admin",
    "BrokerNotAvailableError",
    "BufferExhaustedError",
    "ClosedError",
    "Cluster",
    "ClusterError",
    "ClusterNode",
    "ConfigError",
    "Consumer",
    "CorruptError",
    "CorruptLogError",
    "DuplicateSequenceError",
    "FencedEpochError",
    "ForkedError",
    "IneligibleReplicaError",
    "InternalError",
    "InvalidProducerEpochError",
    "InvalidRequestError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "LockedError",
    "Log",
    "LogConfig",
    "LogStats",
    "MessageTooLargeError",
    "NodeConfig",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "OutcomeUnknownError",
    "PartitionDescription",
    "Producer",
    "PyreplogError",
    "Record",
    "RecordBatch",
    "RecordMetadata",
    "RequestTimedOutError",
    "Scan",
    "StorageError",
    "TimestampType",
    "TopicDescription",
    "TopicExistsError",
    "TopicPartition",
    "UnknownLeaderEpochError",
    "UnknownProducerIdError",
    "UnknownTopicError",
    "__version__",
    "open_log",
]
