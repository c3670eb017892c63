"""The replicated log you import: an embedded, Kafka-format commit log for Python.

``open_log`` keeps one durable log in a folder. ``Cluster`` replicates topics over several nodes in this process. ``docs/tutorial.md``
begins at the beginning, ``docs/reference/api.md`` has every name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

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
    EligibleLeadersNotAvailableError,
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
    NoThreadError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    PreferredLeaderNotAvailableError,
    PyreplogError,
    RequestTimedOutError,
    StorageError,
    TopicExistsError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownTopicError,
    UnsyncedError,
)
from pyreplog.record import Ack, Record, RecordBatch
from pyreplog.runtime import Log, open_log
from pyreplog.values import LogStats, RecordMetadata, TimestampType, TopicPartition

if TYPE_CHECKING:
    from pyreplog.runtime import Admin, Cluster, ClusterNode, Consumer, PartitionDescription, Producer, TopicDescription

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
    "EligibleLeadersNotAvailableError",
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
    "NoThreadError",
    "NodeConfig",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "OutcomeUnknownError",
    "PartitionDescription",
    "PreferredLeaderNotAvailableError",
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
    "UnsyncedError",
    "__version__",
    "open_log",
]

_LATER: Final = {
    "Admin": ".runtime",
    "Cluster": ".runtime",
    "ClusterNode": ".runtime",
    "Consumer": ".runtime",
    "PartitionDescription": ".runtime",
    "Producer": ".runtime",
    "TopicDescription": ".runtime",
}


def __getattr__(name: str) -> object:
    """What a cluster needs is loaded when somebody asks for it: it takes longer to load than a log to open."""
    room = _LATER.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}{room}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
