"""Kafka's messages of the metadata quorum: KRaft's Raft, its description, and its voters. The
conventions are those of :mod:`pyreplog.wire.schemas`.

* ``topics`` always has one element in practice, for :data:`pyreplog.wire.METADATA_TOPIC`, with one
  partition, 0.
* A voter is a pair of node id and directory id. The directory id is the uuid of the folder that
  holds the voter's log; :data:`NO_ID` if the sender does not know it.
* ``cluster_id`` None means that the sender does not name its cluster.
* ``error_code`` of a message is about the message as a whole, and that of a partition about the
  partition.
* The quorum also uses Fetch (:class:`pyreplog.wire.FetchRequest`), with ``cluster_id`` and
  ``replica_state`` set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyreplog.wire.schemas import NO_ID, LeaderIdAndEpoch, Records, SnapshotId

__all__ = [
    "AddRaftVoterRequest",
    "AddRaftVoterResponse",
    "BeginQuorumEpochPartition",
    "BeginQuorumEpochPartitionResult",
    "BeginQuorumEpochRequest",
    "BeginQuorumEpochResponse",
    "BeginQuorumEpochTopic",
    "BeginQuorumEpochTopicResult",
    "CurrentLeader",
    "DescribeQuorumNode",
    "DescribeQuorumPartition",
    "DescribeQuorumPartitionResult",
    "DescribeQuorumReplica",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeQuorumTopic",
    "DescribeQuorumTopicResult",
    "EndQuorumEpochPartition",
    "EndQuorumEpochPartitionResult",
    "EndQuorumEpochRequest",
    "EndQuorumEpochResponse",
    "EndQuorumEpochTopic",
    "EndQuorumEpochTopicResult",
    "FetchSnapshotPartition",
    "FetchSnapshotPartitionResult",
    "FetchSnapshotRequest",
    "FetchSnapshotResponse",
    "FetchSnapshotTopic",
    "FetchSnapshotTopicResult",
    "KRaftVersionFeature",
    "PreferredCandidate",
    "QuorumEndpoint",
    "QuorumNodeEndpoint",
    "RemoveRaftVoterRequest",
    "RemoveRaftVoterResponse",
    "UpdateRaftVoterRequest",
    "UpdateRaftVoterResponse",
    "VotePartition",
    "VotePartitionResult",
    "VoteRequest",
    "VoteResponse",
    "VoteTopic",
    "VoteTopicResult",
]


@dataclass(slots=True)
class QuorumEndpoint:
    """The address at which a voter listens: Kafka's ``LeaderEndpoint``, and the ``Listener`` of the
    voter messages. In one process ``host`` is the address and ``port`` 0."""

    name: str
    host: str
    port: int = 0


@dataclass(slots=True)
class QuorumNodeEndpoint:
    """The address of a leader that an answer names: Kafka's ``NodeEndpoint`` of the quorum's
    messages. In one process ``host`` is the address and ``port`` 0."""

    node_id: int
    host: str
    port: int = 0


# --------------------------------------------------------------------------------- Vote (52), v0-2


@dataclass(slots=True)
class VotePartition:
    """A candidate asks for a vote in ``replica_epoch``.

    ``replica_id`` and ``replica_directory_id`` name the candidate, ``voter_directory_id`` the voter
    that is asked. ``last_offset`` is the candidate's log end offset, and ``last_offset_epoch`` the
    epoch of its last batch. With ``pre_vote`` the voter only says whether it would vote: it writes
    nothing, and ``replica_epoch`` is the candidate's present epoch.
    """

    partition_index: int
    replica_epoch: int
    replica_id: int
    last_offset_epoch: int
    last_offset: int
    replica_directory_id: str = NO_ID
    voter_directory_id: str = NO_ID
    pre_vote: bool = False


@dataclass(slots=True)
class VoteTopic:
    """The metadata topic's part of a vote request."""

    topic_name: str
    partitions: Sequence[VotePartition]


@dataclass(slots=True)
class VoteRequest:
    """A candidate or a prospective candidate asks one voter, ``voter_id``, for its vote."""

    topics: Sequence[VoteTopic]
    cluster_id: str | None = None
    voter_id: int = -1


@dataclass(slots=True)
class VotePartitionResult:
    """One voter's decision. ``leader_id`` and ``leader_epoch`` are the leader that the voter knows
    (-1: none) and its epoch."""

    partition_index: int
    error_code: int = 0
    leader_id: int = -1
    leader_epoch: int = -1
    vote_granted: bool = False


@dataclass(slots=True)
class VoteTopicResult:
    """The metadata topic's part of the answer."""

    topic_name: str
    partitions: Sequence[VotePartitionResult]


@dataclass(slots=True)
class VoteResponse:
    """Answers :class:`VoteRequest`."""

    topics: Sequence[VoteTopicResult] = ()
    error_code: int = 0
    node_endpoints: Sequence[QuorumNodeEndpoint] = ()


# -------------------------------------------------------------------- BeginQuorumEpoch (53), v0-1


@dataclass(slots=True)
class BeginQuorumEpochPartition:
    """The leader and its epoch. ``voter_directory_id`` is the voter that is told."""

    partition_index: int
    leader_id: int
    leader_epoch: int
    voter_directory_id: str = NO_ID


@dataclass(slots=True)
class BeginQuorumEpochTopic:
    """The metadata topic's part of the request."""

    topic_name: str
    partitions: Sequence[BeginQuorumEpochPartition]


@dataclass(slots=True)
class BeginQuorumEpochRequest:
    """A new leader tells one voter, ``voter_id``, that it leads and where to fetch."""

    topics: Sequence[BeginQuorumEpochTopic]
    cluster_id: str | None = None
    voter_id: int = -1
    leader_endpoints: Sequence[QuorumEndpoint] = ()


@dataclass(slots=True)
class BeginQuorumEpochPartitionResult:
    """The leader and epoch that the voter knows now."""

    partition_index: int
    error_code: int = 0
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class BeginQuorumEpochTopicResult:
    """The metadata topic's part of the answer."""

    topic_name: str
    partitions: Sequence[BeginQuorumEpochPartitionResult]


@dataclass(slots=True)
class BeginQuorumEpochResponse:
    """Answers :class:`BeginQuorumEpochRequest`."""

    topics: Sequence[BeginQuorumEpochTopicResult] = ()
    error_code: int = 0
    node_endpoints: Sequence[QuorumNodeEndpoint] = ()


# ---------------------------------------------------------------------- EndQuorumEpoch (54), v0-1


@dataclass(slots=True)
class PreferredCandidate:
    """Kafka's ``ReplicaInfo`` of this message: a voter that should become the leader."""

    candidate_id: int
    candidate_directory_id: str = NO_ID


@dataclass(slots=True)
class EndQuorumEpochPartition:
    """The leader that resigns, and the voters that should follow it, the furthest caught up
    first."""

    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_candidates: Sequence[PreferredCandidate] = ()


@dataclass(slots=True)
class EndQuorumEpochTopic:
    """The metadata topic's part of the request."""

    topic_name: str
    partitions: Sequence[EndQuorumEpochPartition]


@dataclass(slots=True)
class EndQuorumEpochRequest:
    """A leader resigns, so that the voters elect a successor at once."""

    topics: Sequence[EndQuorumEpochTopic]
    cluster_id: str | None = None
    leader_endpoints: Sequence[QuorumEndpoint] = ()


@dataclass(slots=True)
class EndQuorumEpochPartitionResult:
    """The leader and epoch that the voter knows now."""

    partition_index: int
    error_code: int = 0
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class EndQuorumEpochTopicResult:
    """The metadata topic's part of the answer."""

    topic_name: str
    partitions: Sequence[EndQuorumEpochPartitionResult]


@dataclass(slots=True)
class EndQuorumEpochResponse:
    """Answers :class:`EndQuorumEpochRequest`."""

    topics: Sequence[EndQuorumEpochTopicResult] = ()
    error_code: int = 0
    node_endpoints: Sequence[QuorumNodeEndpoint] = ()


# ----------------------------------------------------------------------- FetchSnapshot (59), v0-1


@dataclass(slots=True)
class FetchSnapshotPartition:
    """The snapshot to read, and the byte in its file from which."""

    partition: int
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int
    replica_directory_id: str = NO_ID


@dataclass(slots=True)
class FetchSnapshotTopic:
    """The metadata topic's part of the request: Kafka's ``TopicSnapshot``."""

    name: str
    partitions: Sequence[FetchSnapshotPartition]


@dataclass(slots=True)
class FetchSnapshotRequest:
    """A follower that a Fetch sent to a snapshot reads a piece of its file."""

    topics: Sequence[FetchSnapshotTopic]
    cluster_id: str | None = None
    replica_id: int = -1
    max_bytes: int = 0x7FFFFFFF


@dataclass(slots=True)
class FetchSnapshotPartitionResult:
    """A piece of a snapshot's file.

    ``size`` is that of the whole file, ``position`` where the piece begins. The piece may begin and
    end within a batch.
    """

    index: int
    snapshot_id: SnapshotId
    error_code: int = 0
    size: int = 0
    position: int = 0
    unaligned_records: Records = b""
    current_leader: LeaderIdAndEpoch | None = None


@dataclass(slots=True)
class FetchSnapshotTopicResult:
    """The metadata topic's part of the answer."""

    name: str
    partitions: Sequence[FetchSnapshotPartitionResult]


@dataclass(slots=True)
class FetchSnapshotResponse:
    """Answers :class:`FetchSnapshotRequest`."""

    topics: Sequence[FetchSnapshotTopicResult] = ()
    error_code: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[QuorumNodeEndpoint] = ()


# ---------------------------------------------------------------------- DescribeQuorum (55), v0-2


@dataclass(slots=True)
class DescribeQuorumPartition:
    """The metadata partition."""

    partition_index: int = 0


@dataclass(slots=True)
class DescribeQuorumTopic:
    """The metadata topic's part of the request."""

    topic_name: str
    partitions: Sequence[DescribeQuorumPartition]


@dataclass(slots=True)
class DescribeQuorumRequest:
    """Ask the quorum's leader for the state of the quorum."""

    topics: Sequence[DescribeQuorumTopic]


@dataclass(slots=True)
class DescribeQuorumReplica:
    """A voter or an observer: Kafka's ``ReplicaState`` of this message.

    Times are ms since 1970, -1 if unknown. ``last_caught_up_timestamp`` is the latest time at which
    this replica had the whole log that the leader had then.
    """

    replica_id: int
    log_end_offset: int
    replica_directory_id: str = NO_ID
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


@dataclass(slots=True)
class DescribeQuorumPartitionResult:
    """The quorum as its leader knows it."""

    partition_index: int
    error_code: int = 0
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    high_watermark: int = -1
    current_voters: Sequence[DescribeQuorumReplica] = ()
    observers: Sequence[DescribeQuorumReplica] = ()


@dataclass(slots=True)
class DescribeQuorumTopicResult:
    """The metadata topic's part of the answer."""

    topic_name: str
    partitions: Sequence[DescribeQuorumPartitionResult]


@dataclass(slots=True)
class DescribeQuorumNode:
    """The addresses of one voter: Kafka's ``Node``."""

    node_id: int
    listeners: Sequence[QuorumEndpoint] = ()


@dataclass(slots=True)
class DescribeQuorumResponse:
    """Answers :class:`DescribeQuorumRequest`."""

    topics: Sequence[DescribeQuorumTopicResult] = ()
    error_code: int = 0
    error_message: str | None = None
    nodes: Sequence[DescribeQuorumNode] = ()


# ------ AddRaftVoter (80), v0-1; RemoveRaftVoter (81), v0; UpdateRaftVoter (82), v0


@dataclass(slots=True)
class AddRaftVoterRequest:
    """Make an observer a voter.

    The answer comes when the change is committed; without ``ack_when_committed``, when it is in the
    leader's log.
    """

    voter_id: int
    voter_directory_id: str
    listeners: Sequence[QuorumEndpoint]
    cluster_id: str | None = None
    timeout_ms: int = 60_000
    ack_when_committed: bool = True


@dataclass(slots=True)
class AddRaftVoterResponse:
    """Answers :class:`AddRaftVoterRequest`."""

    error_code: int = 0
    error_message: str | None = None
    throttle_time_ms: int = 0


@dataclass(slots=True)
class RemoveRaftVoterRequest:
    """Take the vote from a voter. The answer comes when the change is committed."""

    voter_id: int
    voter_directory_id: str
    cluster_id: str | None = None


@dataclass(slots=True)
class RemoveRaftVoterResponse:
    """Answers :class:`RemoveRaftVoterRequest`."""

    error_code: int = 0
    error_message: str | None = None
    throttle_time_ms: int = 0


@dataclass(slots=True)
class KRaftVersionFeature:
    """The versions of ``kraft.version`` that a voter supports."""

    min_supported_version: int = 0
    max_supported_version: int = 1


@dataclass(slots=True)
class UpdateRaftVoterRequest:
    """A voter tells the leader its new addresses and the versions that it supports."""

    current_leader_epoch: int
    voter_id: int
    voter_directory_id: str
    listeners: Sequence[QuorumEndpoint]
    kraft_version_feature: KRaftVersionFeature
    cluster_id: str | None = None


@dataclass(slots=True)
class CurrentLeader:
    """The leader that the answerer knows, and its address."""

    leader_id: int = -1
    leader_epoch: int = -1
    host: str = ""
    port: int = 0


@dataclass(slots=True)
class UpdateRaftVoterResponse:
    """Answers :class:`UpdateRaftVoterRequest`."""

    error_code: int = 0
    current_leader: CurrentLeader | None = None
    throttle_time_ms: int = 0
