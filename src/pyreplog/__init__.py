"""The replicated log you import: an embedded, Kafka-format commit log for Python.

``open_log`` keeps one durable log in a folder. ``Cluster`` replicates topics over several nodes in this process.
``docs/tutorial.md`` begins at the beginning, ``docs/reference/api.md`` has every name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyreplog import mypyc_build as mypyc_build  # comes first: it refuses a build that is none
from pyreplog.arrow import Scan
from pyreplog.client import Acks
from pyreplog.config import LogConfig, NodeConfig
from pyreplog.errors import (
    BackupDivergedError,
    BatchTooLargeError,
    BrokerNotAvailableError,
    BufferExhaustedError,
    ClosedError,
    ClusterError,
    ConfigError,
    CorruptError,
    CorruptLogError,
    DamagedRecordsWarning,
    DataLossError,
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
    KafkaStorageError,
    LeaderNotAvailableError,
    LocalProtocolError,
    LockedError,
    LogTruncatedError,
    MessageTooLargeError,
    NotControllerError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NoThreadError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    PreferredLeaderNotAvailableError,
    ProtocolError,
    PyreplogError,
    ReadOnlyError,
    RecordsDeletedError,
    ReentrantCallError,
    RemoteProtocolError,
    RequestTimedOutError,
    SpoolDamagedError,
    SpoolRefusedError,
    StorageError,
    StorageExistsError,
    StorageIsADirectoryError,
    StorageNotADirectoryError,
    StorageNotFoundError,
    StoragePermissionError,
    TopicExistsError,
    TopicRecreatedError,
    UnexpectedAppendOffsetError,
    UnfinishedBackupError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownServerError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnsyncedError,
)
from pyreplog.ports import Buffer, Headers
from pyreplog.record import Ack, Record, RecordBatch
from pyreplog.runtime import Log, open_log
from pyreplog.values import (
    BackupProgress,
    BackupReport,
    LogStats,
    RecordMetadata,
    RecoveryProgress,
    TimestampType,
    TopicPartition,
)

if TYPE_CHECKING:
    from pyreplog import aio as aio
    from pyreplog import errors as errors
    from pyreplog import testing as testing
    from pyreplog.runtime import (
        Admin,
        Cluster,
        ClusterNode,
        ClusterReader,
        Consumer,
        PartitionDescription,
        Producer,
        ReaderConsumer,
        TopicDescription,
        backup,
        scan,
    )

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "Acks",
    "Admin",
    "BackupDivergedError",
    "BackupProgress",
    "BackupReport",
    "BatchTooLargeError",
    "BrokerNotAvailableError",
    "Buffer",
    "BufferExhaustedError",
    "ClosedError",
    "Cluster",
    "ClusterError",
    "ClusterNode",
    "ClusterReader",
    "ConfigError",
    "Consumer",
    "CorruptError",
    "CorruptLogError",
    "DamagedRecordsWarning",
    "DataLossError",
    "DuplicateSequenceError",
    "EligibleLeadersNotAvailableError",
    "FencedEpochError",
    "ForkedError",
    "Headers",
    "IneligibleReplicaError",
    "InternalError",
    "InvalidProducerEpochError",
    "InvalidRequestError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "KafkaStorageError",
    "LeaderNotAvailableError",
    "LocalProtocolError",
    "LockedError",
    "Log",
    "LogConfig",
    "LogStats",
    "LogTruncatedError",
    "MessageTooLargeError",
    "NoThreadError",
    "NodeConfig",
    "NotControllerError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "OutcomeUnknownError",
    "PartitionDescription",
    "PreferredLeaderNotAvailableError",
    "Producer",
    "ProtocolError",
    "PyreplogError",
    "ReadOnlyError",
    "ReaderConsumer",
    "ReentrantCallError",
    "Record",
    "RecordBatch",
    "RecordMetadata",
    "RecordsDeletedError",
    "RecoveryProgress",
    "RemoteProtocolError",
    "RequestTimedOutError",
    "Scan",
    "SpoolDamagedError",
    "SpoolRefusedError",
    "StorageError",
    "StorageExistsError",
    "StorageIsADirectoryError",
    "StorageNotADirectoryError",
    "StorageNotFoundError",
    "StoragePermissionError",
    "TimestampType",
    "TopicDescription",
    "TopicExistsError",
    "TopicPartition",
    "TopicRecreatedError",
    "UnexpectedAppendOffsetError",
    "UnfinishedBackupError",
    "UnknownLeaderEpochError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicError",
    "UnknownTopicIdError",
    "UnsyncedError",
    "__version__",
    "backup",
    "open_log",
    "scan",
]

_MODULES: Final = ("aio", "errors", "testing")
"""Those that users name: ``pyreplog.aio.open_log``."""
_LATER: Final = {
    "Admin": ".runtime",
    "Cluster": ".runtime",
    "ClusterNode": ".runtime",
    "ClusterReader": ".runtime",
    "Consumer": ".runtime",
    "PartitionDescription": ".runtime",
    "Producer": ".runtime",
    "ReaderConsumer": ".runtime",
    "TopicDescription": ".runtime",
    "backup": ".runtime",
    "scan": ".runtime",
}


def __getattr__(name: str) -> object:
    """What a cluster needs is loaded when somebody asks for it: it takes longer to load than a log to open. So are
    whole modules."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    room = _LATER.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}{room}"), name)
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, *_MODULES))
