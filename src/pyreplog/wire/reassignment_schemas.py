"""Kafka's messages that give partitions other replicas. The conventions are those of
:mod:`pyreplog.wire.schemas`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
]

# ----------------------------------------------------------- AlterPartitionReassignments (45), v0-1


@dataclass(slots=True)
class ReassignablePartition:
    """The new replicas of one partition, the preferred leader first. None: cancel the running
    change."""

    partition_index: int
    replicas: Sequence[int] | None = None


@dataclass(slots=True)
class ReassignableTopic:
    """One topic's partitions."""

    name: str
    partitions: Sequence[ReassignablePartition]


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    """Give partitions other replicas. Sent to the controller, which answers when the change has
    begun."""

    topics: Sequence[ReassignableTopic]
    timeout_ms: int = 60_000
    allow_replication_factor_change: bool = True


@dataclass(slots=True)
class ReassignablePartitionResponse:
    """The result for one partition."""

    partition_index: int
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class ReassignableTopicResponse:
    """One topic's results."""

    name: str
    partitions: Sequence[ReassignablePartitionResponse]


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    """Answers :class:`AlterPartitionReassignmentsRequest`."""

    responses: Sequence[ReassignableTopicResponse] = ()
    error_code: int = 0
    error_message: str | None = None
    allow_replication_factor_change: bool = True
    throttle_time_ms: int = 0


# -------------------------------------------------------------- ListPartitionReassignments (46), v0


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    """The partitions of one topic to list."""

    name: str
    partition_indexes: Sequence[int]


@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    """List the changes that go on. ``topics`` None: those of all partitions."""

    topics: Sequence[ListPartitionReassignmentsTopics] | None = None
    timeout_ms: int = 60_000


@dataclass(slots=True)
class OngoingPartitionReassignment:
    """A change that goes on. ``replicas`` has all of them: those that stay, come and go."""

    partition_index: int
    replicas: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()


@dataclass(slots=True)
class OngoingTopicReassignment:
    """One topic's changes."""

    name: str
    partitions: Sequence[OngoingPartitionReassignment]


@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    """Answers :class:`ListPartitionReassignmentsRequest`."""

    topics: Sequence[OngoingTopicReassignment] = ()
    error_code: int = 0
    error_message: str | None = None
    throttle_time_ms: int = 0
