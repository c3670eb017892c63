"""Kafka's messages about records, as plain values. The others are in ``admin_schemas``,
``peer_schemas`` and ``quorum_schemas``.

There is one class per message and struct, with the fields in wire order and snake case, at the
newest version.

* The number after a message's name is its api key; the versions are those of Kafka 4.1 (``v18``
  marks fields that only the newest has).
* uuid fields hold Kafka's text form (22 characters of URL-safe base64); :data:`NO_ID` is all zeros.
* ``error_code`` is a number of :class:`pyreplog.wire.ErrorCode`, 0 for none.
* Structs that share a name in Kafka get their message's name in front (``AlterPartitionTopic``);
  ``FetchPartition`` and ``PartitionData`` are Fetch's.
* ``records`` holds whole record batches: a buffer, or a slice of a log that is read as late as
  possible (:class:`RecordsSlice`).
* Classes have slots and are not frozen, because freezing costs 0.7 us per object. A message must
  not be changed after it is sent, with one exception: ``PartitionProduceData.records`` is handed
  over (see there).
* Fields that Kafka's messages lack are tagged fields, all listed in :data:`LOCAL_TAGS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from typing_extensions import Buffer

from pyreplog.config import INT64_MAX
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.wire.metadata import MetadataRecord

__all__ = [
    "CONSUMER_ID",
    "EARLIEST_LOCAL_TIMESTAMP",
    "EARLIEST_TIMESTAMP",
    "LATEST_TIERED_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "LOCAL_TAGS",
    "MAX_TIMESTAMP",
    "NO_ID",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "AbortedTransaction",
    "BatchIndexAndErrorMessage",
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "LeaderIdAndEpoch",
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
    "NodeEndpoint",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderEpochResult",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
    "PartitionData",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "Records",
    "RecordsSlice",
    "ReplicaState",
    "SnapshotId",
    "TopicProduceData",
    "TopicProduceResponse",
]

NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The uuid of all zeros."""
CONSUMER_ID: Final = -1
"""``replica_id`` of a consumer."""
LATEST_TIMESTAMP: Final = -1
"""``ListOffsetsPartition.timestamp``: the end that the isolation level shows."""
EARLIEST_TIMESTAMP: Final = -2
"""``ListOffsetsPartition.timestamp``: the log start offset."""
MAX_TIMESTAMP: Final = -3
"""``ListOffsetsPartition.timestamp``: the record with the greatest timestamp; if several have it,
the first."""
EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""``ListOffsetsPartition.timestamp``: the first offset on the leader's own disk. It is the log
start offset, because there is no other storage."""
LATEST_TIERED_TIMESTAMP: Final = -5
"""``ListOffsetsPartition.timestamp``: the last offset in remote storage. It is -1, because there is
none."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class RecordsSlice(Protocol):
    """Whole batches that are still in a log (``pyreplog.log.LogSlice``).

    ``parts`` raises if the log was truncated since.
    """

    @property
    def size(self) -> int:
        """The size in bytes."""
        ...

    def parts(self) -> Sequence[Buffer]:
        """Return the bytes, in order, without copying if possible."""
        ...


Records = Buffer | RecordsSlice
"""Record batches in a message."""

LOCAL_TAGS: Final[dict[tuple[str, str], int]] = {
    ("BrokerRegistrationRequest", "partition_ends"): 10000,
    ("BrokerHeartbeatRequest", "partition_ends"): 10001,
    ("PartitionRecord", "unclean_leader_epoch"): 10002,
    ("PartitionRecord", "suspects"): 10003,
    ("PartitionChangeRecord", "suspects"): 10004,
    ("DescribeClusterBroker", "state"): 10010,
    ("DescribeTopicPartitionsResponse", "metadata_offset"): 10011,
    ("DescribeClusterResponse", "metadata_offset"): 10012,
    ("CreatableTopic", "placement"): 10030,
    ("CreatePartitionsTopic", "placement"): 10031,
    ("DescribeClusterBroker", "cordoned"): 10032,
    ("BrokerHeartbeatRequest", "replica_lags"): 10050,
    ("DescribeTopicPartitionsRequest", "state"): 10051,
    ("DescribeTopicPartitionsPartition", "partition_epoch"): 10052,
    ("DescribeTopicPartitionsPartition", "out_of_sync"): 10053,
    ("DescribeTopicPartitionsResponse", "controller_epoch"): 10054,
    ("DescribeTopicPartitionsPartition", "min_isr"): 10055,
    ("BrokerHeartbeatResponse", "controller_epoch"): 10056,
    ("ElectLeadersPartitionResult", "leader_id"): 10057,
    ("ElectLeadersPartitionResult", "leader_epoch"): 10058,
    ("ElectLeadersPartitionResult", "lost"): 10059,
    ("ElectLeadersRequest", "dry_run"): 10063,
    ("DescribeTopicPartitionsPartition", "adding"): 10064,
    ("DescribeTopicPartitionsPartition", "removing"): 10065,
    ("PartitionData", "tombstone_bound"): 10060,
    ("PartitionData", "dropped_tombstone"): 10061,
    ("FetchPartition", "flushed_offset"): 10062,
}
"""(message, field) -> tag of every field that Kafka's messages do not have.

Kafka numbers its tags from 0, and its largest so far is 8. Tags from 10000 are ours, so that a tag
that Kafka adds is never read as ours. Kafka skips tags that it does not know. Tags are never
reused."""


# ------------------------------------------------------------------------------- Produce (0), v3-13


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class PartitionProduceData:
    """One partition's batch.

    ``records``: one whole v2 batch with base offset 0, **handed over**: the leader writes base
    offset and leader epoch into it if it is writable (a read-only one is copied first). A sender
    that may send it again must keep its own copy.
    """

    index: int
    records: Buffer

    def __init__(self, index: int, records: Buffer) -> None:
        self.index = index
        self.records = records


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class TopicProduceData:
    """One topic's part of a produce request."""

    topic_id: str
    partition_data: Sequence[PartitionProduceData]

    def __init__(self, topic_id: str, partition_data: Sequence[PartitionProduceData]) -> None:
        self.topic_id = topic_id
        self.partition_data = partition_data


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class ProduceRequest:
    """Append batches. ``acks``: 0 no answer, 1 the leader has it, -1 every in-sync replica has
    it."""

    acks: int
    timeout_ms: int
    topic_data: Sequence[TopicProduceData]
    transactional_id: str | None = None

    def __init__(
        self, acks: int, timeout_ms: int, topic_data: Sequence[TopicProduceData], transactional_id: str | None = None
    ) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data = topic_data
        self.transactional_id = transactional_id


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    """A refused record of a batch, with the reason."""

    batch_index: int
    batch_index_error_message: str | None = None


@dataclass(slots=True)
class LeaderIdAndEpoch:
    """The current leader: a hint beside an error."""

    leader_id: int = -1
    leader_epoch: int = -1


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class PartitionProduceResponse:
    """One partition's result.

    If refused, ``base_offset`` is -1 and ``error_code`` is set. ``log_append_time_ms`` is -1 unless
    the topic uses it.
    """

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[BatchIndexAndErrorMessage] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None

    def __init__(
        self,
        index: int,
        error_code: int = 0,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: Sequence[BatchIndexAndErrorMessage] = (),
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.current_leader = current_leader


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class TopicProduceResponse:
    """One topic's part of a produce answer."""

    topic_id: str
    partition_responses: Sequence[PartitionProduceResponse]

    def __init__(self, topic_id: str, partition_responses: Sequence[PartitionProduceResponse]) -> None:
        self.topic_id = topic_id
        self.partition_responses = partition_responses


@dataclass(slots=True)
class NodeEndpoint:
    """The address of a node that an answer names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class ProduceResponse:
    """Answers :class:`ProduceRequest` (acks 0: never sent)."""

    responses: Sequence[TopicProduceResponse]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()

    def __init__(
        self,
        responses: Sequence[TopicProduceResponse],
        throttle_time_ms: int = 0,
        node_endpoints: Sequence[NodeEndpoint] = (),
    ) -> None:
        self.responses = responses
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints = node_endpoints


# --------------------------------------------------------------------------------- Fetch (1), v4-18


@dataclass(slots=True)
class ReplicaState:
    """The sender of a fetch: a broker and its epoch; -1 for a consumer."""

    replica_id: int = -1
    replica_epoch: int = -1


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class FetchPartition:
    """One partition to fetch, and the offset from which.

    A follower sends the leader epoch under which it asks (``current_leader_epoch``), the epoch of
    its last batch (``last_fetched_epoch``, -1: it has none) and the high watermark that it knows
    (``high_watermark``, v18; the default means: do not push). A consumer sends -1 (or the epoch
    that it knows), -1 and the default. A follower of a compacted topic also says below which offset
    its copy is on stable storage (``flushed_offset``; -1: not said).
    """

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 1 << 20
    replica_directory_id: str = NO_ID
    high_watermark: int = INT64_MAX
    flushed_offset: int = -1

    def __init__(
        self,
        partition: int,
        current_leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 1 << 20,
        replica_directory_id: str = NO_ID,
        high_watermark: int = INT64_MAX,
        flushed_offset: int = -1,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark
        self.flushed_offset = flushed_offset


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class FetchTopic:
    """One topic's part of a fetch request."""

    topic_id: str
    partitions: Sequence[FetchPartition]

    def __init__(self, topic_id: str, partitions: Sequence[FetchPartition]) -> None:
        self.topic_id = topic_id
        self.partitions = partitions


@dataclass(slots=True)
class ForgottenTopic:
    """Partitions that leave a fetch session."""

    topic_id: str
    partitions: Sequence[int]


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class FetchRequest:
    """Read from many partitions.

    Sessions: session id 0 with epoch 0 opens one, with a full list. Later epochs 1, 2, ... carry
    only the changed partitions. Epoch -1 means no session. A node's fetch of
    :data:`pyreplog.wire.METADATA_TOPIC_ID` is answered with metadata records; that of a voter or
    observer, which has a ``cluster_id``, with their batches.
    """

    max_wait_ms: int
    min_bytes: int
    topics: Sequence[FetchTopic]
    replica_state: ReplicaState | None = None
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = READ_UNCOMMITTED
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics_data: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    cluster_id: str | None = None

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        topics: Sequence[FetchTopic],
        replica_state: ReplicaState | None = None,
        max_bytes: int = 0x7FFFFFFF,
        isolation_level: int = READ_UNCOMMITTED,
        session_id: int = 0,
        session_epoch: int = -1,
        forgotten_topics_data: Sequence[ForgottenTopic] = (),
        rack_id: str = "",
        cluster_id: str | None = None,
    ) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.topics = topics
        self.replica_state = replica_state
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.forgotten_topics_data = forgotten_topics_data
        self.rack_id = rack_id
        self.cluster_id = cluster_id


@dataclass(slots=True)
class EpochEndOffset:
    """The end on the leader of the asked-for epoch, or of the greatest one below it: the follower's
    log diverges."""

    epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class SnapshotId:
    """The end of a snapshot: ``records`` restate everything below ``end_offset``.

    It is in an answer about the metadata partition and means: replace the image.
    """

    end_offset: int = -1
    epoch: int = -1


@dataclass(slots=True)
class AbortedTransaction:
    """This producer's records from ``first_offset`` up to its next abort marker were aborted."""

    producer_id: int
    first_offset: int


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class PartitionData:
    """One partition's part of a fetch answer.

    ``records`` None means no records. For the metadata partition it is a list of (offset, record),
    or batches (see :class:`FetchRequest`). Of a compacted topic, for followers: every assigned
    replica has the records below ``tombstone_bound`` on stable storage, and ``dropped_tombstone``
    is the highest offset of a tombstone that compaction dropped from the leader's log; -1:
    unknown, none.
    """

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    preferred_read_replica: int = -1
    records: Records | Sequence[tuple[int, MetadataRecord]] | None = None
    snapshot_id: SnapshotId | None = None
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    tombstone_bound: int = -1
    dropped_tombstone: int = -1

    def __init__(
        self,
        partition_index: int,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging_epoch: EpochEndOffset | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        preferred_read_replica: int = -1,
        records: Records | Sequence[tuple[int, MetadataRecord]] | None = None,
        snapshot_id: SnapshotId | None = None,
        aborted_transactions: Sequence[AbortedTransaction] | None = None,
        tombstone_bound: int = -1,
        dropped_tombstone: int = -1,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging_epoch = diverging_epoch
        self.current_leader = current_leader
        self.preferred_read_replica = preferred_read_replica
        self.records = records
        self.snapshot_id = snapshot_id
        self.aborted_transactions = aborted_transactions
        self.tombstone_bound = tombstone_bound
        self.dropped_tombstone = dropped_tombstone


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class FetchableTopicResponse:
    """One topic's part of a fetch answer."""

    topic_id: str
    partitions: Sequence[PartitionData]

    def __init__(self, topic_id: str, partitions: Sequence[PartitionData]) -> None:
        self.topic_id = topic_id
        self.partitions = partitions


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class FetchResponse:
    """Answers :class:`FetchRequest`. Within a session it has only the partitions with news."""

    responses: Sequence[FetchableTopicResponse]
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()

    def __init__(
        self,
        responses: Sequence[FetchableTopicResponse],
        error_code: int = 0,
        session_id: int = 0,
        throttle_time_ms: int = 0,
        node_endpoints: Sequence[NodeEndpoint] = (),
    ) -> None:
        self.responses = responses
        self.error_code = error_code
        self.session_id = session_id
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints = node_endpoints


# --------------------------------------------------------------------------- ListOffsets (2), v1-10


@dataclass(slots=True)
class ListOffsetsPartition:
    """A partition and the time to look up.

    ``timestamp``: ms since 1970, or :data:`LATEST_TIMESTAMP`, :data:`EARLIEST_TIMESTAMP`,
    :data:`MAX_TIMESTAMP`, :data:`EARLIEST_LOCAL_TIMESTAMP`, :data:`LATEST_TIERED_TIMESTAMP`.
    """

    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


@dataclass(slots=True)
class ListOffsetsTopic:
    """One topic's part of the request."""

    name: str
    partitions: Sequence[ListOffsetsPartition]


@dataclass(slots=True)
class ListOffsetsRequest:
    """Ask for offsets by time."""

    topics: Sequence[ListOffsetsTopic]
    replica_id: int = CONSUMER_ID
    isolation_level: int = READ_UNCOMMITTED
    timeout_ms: int = 0


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    """One partition's result. ``offset`` -1 and ``timestamp`` -1: no record at or after the given
    time."""

    partition_index: int
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    """One topic's part of the answer."""

    name: str
    partitions: Sequence[ListOffsetsPartitionResponse]


@dataclass(slots=True)
class ListOffsetsResponse:
    """Answers :class:`ListOffsetsRequest`."""

    topics: Sequence[ListOffsetsTopicResponse]
    throttle_time_ms: int = 0


# ------------------------------------------------------------------ OffsetForLeaderEpoch (23), v2-4


@dataclass(slots=True)
class OffsetForLeaderPartition:
    """Ask for the end offset of ``leader_epoch``."""

    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


@dataclass(slots=True)
class OffsetForLeaderTopic:
    """One topic's part of the request."""

    topic: str
    partitions: Sequence[OffsetForLeaderPartition]


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    """Ask for the ends of epochs. Consumers that check their position after a failover send it."""

    topics: Sequence[OffsetForLeaderTopic]
    replica_id: int = -2


@dataclass(slots=True)
class OffsetForLeaderEpochResult:
    """Kafka's ``EpochEndOffset`` of this message.

    It has the greatest epoch not above the given one, with its end offset; -1 and -1 if undefined.
    """

    partition: int
    error_code: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    """One topic's part of the answer."""

    topic: str
    partitions: Sequence[OffsetForLeaderEpochResult]


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    """Answers :class:`OffsetForLeaderEpochRequest`."""

    topics: Sequence[OffsetForLeaderTopicResult]
    throttle_time_ms: int = 0


# ------------------------------------------------------------------------- DeleteRecords (21), v0-2


@dataclass(slots=True)
class DeleteRecordsPartition:
    """Delete the records below ``offset``; -1: below the high watermark."""

    partition_index: int
    offset: int


@dataclass(slots=True)
class DeleteRecordsTopic:
    """One topic's part of the request."""

    name: str
    partitions: Sequence[DeleteRecordsPartition]


@dataclass(slots=True)
class DeleteRecordsRequest:
    """Raise log start offsets. Sent to the leaders.

    The answer follows when every live replica has deleted the records, or after ``timeout_ms``.
    """

    topics: Sequence[DeleteRecordsTopic]
    timeout_ms: int


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    """One partition's result. ``low_watermark``: the lowest log start offset among the live
    replicas; -1 if refused."""

    partition_index: int
    low_watermark: int = -1
    error_code: int = 0


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    """One topic's part of the answer."""

    name: str
    partitions: Sequence[DeleteRecordsPartitionResult]


@dataclass(slots=True)
class DeleteRecordsResponse:
    """Answers :class:`DeleteRecordsRequest`."""

    topics: Sequence[DeleteRecordsTopicResult]
    throttle_time_ms: int = 0


# ------------------------------------------------------------------------ InitProducerId (22), v0-6


@dataclass(slots=True)
class InitProducerIdRequest:
    """Ask for a new producer id, or, with an existing one, for its next epoch. Transactions are not
    supported."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 0x7FFFFFFF
    producer_id: int = -1
    producer_epoch: int = -1
    enable2_pc: bool = False
    keep_prepared_txn: bool = False


@dataclass(slots=True)
class InitProducerIdResponse:
    """Answers :class:`InitProducerIdRequest`."""

    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1
    throttle_time_ms: int = 0
