"""Replication of one partition, without any I/O except on its own log.

``Replica`` is the state machine. It takes events and returns effects;
:mod:`pyreplog.replica.events` defines both, and their order.
"""

from __future__ import annotations

from pyreplog.replica.context import ReplicaContext
from pyreplog.replica.delayed_follower_fetches import DelayedFollowerFetches
from pyreplog.replica.effects import (
    AlterPartition,
    BrokenRule,
    Damaged,
    Effect,
    Fetch,
    Lost,
    Offline,
    Reply,
    Result,
    Stalled,
    StopFetching,
    Sync,
    Unexpected,
    Wake,
)
from pyreplog.replica.events import (
    AlterPartitionAnswered,
    BrokersApplied,
    BrokerStatus,
    CancelFetch,
    ConfigApplied,
    ConsumerFetch,
    DeleteRecords,
    Event,
    FetchAnswered,
    FollowerFetch,
    ListOffsets,
    MetadataApplied,
    OffsetForLeaderEpoch,
    Produce,
    ProduceMany,
    RootFailed,
    Stop,
    Synced,
    SyncFailed,
    Tick,
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
    "ConfigApplied",
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
    "DelayedFollowerFetches",
    "Produce",
    "ProduceMany",
    "Progress",
    "Replica",
    "ReplicaContext",
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
