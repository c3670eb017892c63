"""Replication of one partition, without any I/O except on its own log.

``Replica`` is the state machine. It takes events and returns effects;
:mod:`pyreplog.replica.events` defines both, and their order.
"""

from __future__ import annotations

from pyreplog.replica.events import (
    AlterPartition,
    AlterPartitionAnswered,
    BrokenRule,
    BrokersApplied,
    BrokerStatus,
    CancelFetch,
    ConsumerFetch,
    Damaged,
    DeleteRecords,
    Effect,
    Event,
    Fetch,
    FetchAnswered,
    FollowerFetch,
    ListOffsets,
    Lost,
    MetadataApplied,
    Offline,
    OffsetForLeaderEpoch,
    Produce,
    ProduceMany,
    Reply,
    Result,
    RootFailed,
    Stalled,
    Stop,
    StopFetching,
    Sync,
    Synced,
    SyncFailed,
    Tick,
    Unexpected,
    Wake,
)
from pyreplog.replica.follower import Follower
from pyreplog.replica.in_sync_set import InSyncSet
from pyreplog.replica.leader import Leader
from pyreplog.replica.progress import Progress
from pyreplog.replica.replica import Replica

__all__ = [
    "AlterPartition",
    "AlterPartitionAnswered",
    "BrokenRule",
    "BrokerStatus",
    "BrokersApplied",
    "CancelFetch",
    "ConsumerFetch",
    "Damaged",
    "DeleteRecords",
    "Effect",
    "Event",
    "Fetch",
    "FetchAnswered",
    "Follower",
    "FollowerFetch",
    "InSyncSet",
    "Leader",
    "ListOffsets",
    "Lost",
    "MetadataApplied",
    "Offline",
    "OffsetForLeaderEpoch",
    "Produce",
    "ProduceMany",
    "Progress",
    "Replica",
    "Reply",
    "Result",
    "Stalled",
    "Stop",
    "StopFetching",
    "Sync",
    "RootFailed",
    "SyncFailed",
    "Synced",
    "Tick",
    "Unexpected",
    "Wake",
]
