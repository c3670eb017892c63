"""Frozen values that every layer shares, without behaviour.

``Record`` and ``Ack`` are not here: they are made once per record or call and live in the compiled
core.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "BackupProgress",
    "BackupReport",
    "NO_EPOCH",
    "NO_OFFSET",
    "NO_TIMESTAMP",
    "EpochEntry",
    "Compaction",
    "LogStats",
    "QuorumInfo",
    "QuorumReplica",
    "RecordMetadata",
    "QueueStats",
    "RecoveryProgress",
    "TimestampType",
    "TopicCompaction",
    "TopicPartition",
]

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1


class TimestampType(IntEnum):
    """The origin of a record's timestamp: the producer or the log."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class TopicPartition(NamedTuple):
    """A topic's name and the number of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RecordMetadata(NamedTuple):
    """The position of an acknowledged record.

    ``timestamp`` is in ms since 1970 (-1: none). ``offset`` is -1 with acks=0. It is also -1 if a
    producer sent a batch again, and the leader had the batch but no longer knew its offset. The
    records are then in the log, once.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    leader_epoch: int


class EpochEntry(NamedTuple):
    """One line of an epoch history: ``epoch`` begins at ``start_offset``."""

    epoch: int
    start_offset: int


class QueueStats(NamedTuple):
    """Records of a queue, as all its workers see them. Acquired and available ones are in flight."""

    next_offset: int
    """The first record that was never delivered. If it falls ever further behind the log's high
    watermark, there are too few workers.
    """
    acquired: int
    """Records that are with a worker now."""
    available: int
    """Records that a worker released or left behind. They are delivered again next."""
    accepted: int
    """Records that were accepted since the queue began."""
    dead_letters: int
    """Dead letters since the queue began. Alert on any."""
    deleted: int
    """Records that were deleted from the log before a worker accepted them. Alert on any: the
    retention is too short.
    """


class RecoveryProgress(NamedTuple):
    """Progress of one partition's recovery, while its log is opened after an unclean shutdown.

    Sizes are in bytes.
    """

    topic: str
    """The topic."""
    partition: int
    """The partition's number."""
    directory: str
    """The partition's folder."""
    scanned_size: int
    """Bytes scanned so far."""
    total_size: int
    """Bytes to scan, unless damage ends the scan before."""


class BackupProgress(NamedTuple):
    """Progress of a backup. Sizes are in bytes."""

    stage: str
    """The current stage: ``"copied"`` or ``"verified"``."""
    done_size: int
    """Bytes done in this stage."""
    total_size: int
    """Bytes to do, as known when the stage began; a writer may add to it."""


class BackupReport(NamedTuple):
    """Report of a finished and verified backup. Sizes are in bytes."""

    source: str
    """The folder that was copied."""
    target: str
    """The folder of the backup."""
    partition_count: int
    """Number of partition copies: a partition with three replicas counts three."""
    record_count: int
    """Number of records in them; each copy counts."""
    copied_size: int
    """Bytes that were new since the last backup into this folder."""
    total_size: int
    """Bytes of all files of the backup."""
    notes: tuple[str, ...]
    """Further facts, such as a folder that was set aside."""
    restore: str
    """The command that restores the backup."""


class Compaction(NamedTuple):
    """The result of a compaction. Sizes are in bytes."""

    start_offset: int
    """Records from this offset on were not compacted before the pass."""
    end_offset: int
    """Records below this offset are compacted now."""
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    unkeyed_dropped: int = 0
    """Records without a key that were dropped, because of ``compact.unkeyed=drop``."""
    dropped_tombstone: int = -1
    """The highest offset of a tombstone that was dropped because its time was over; -1: none was."""
    segments_read: int = 0
    segments_written: int = 0

    def followed_by(self, other: Compaction) -> Compaction:
        """Return the result of this compaction and ``other``, the next one of the same log, together."""
        return Compaction(
            self.start_offset,
            other.end_offset,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.records_read + other.records_read,
            self.records_kept + other.records_kept,
            self.unkeyed_dropped + other.unkeyed_dropped,
            max(self.dropped_tombstone, other.dropped_tombstone),
            self.segments_read + other.segments_read,
            self.segments_written + other.segments_written,
        )


class TopicCompaction(NamedTuple):
    """The result of a compaction of a topic: of each replica in this process."""

    topic: str
    partitions: Mapping[int, Mapping[int, Compaction]]
    """By partition, then by the node that has the replica."""
    skipped: Mapping[int, Mapping[int, str]]
    """The replicas that were not compacted, by partition and node, with the reason: the node is down, or the copy is
    damaged."""

    def __str__(self) -> str:
        """A table for people: a line for each replica."""
        rows = [["partition", "node", "records read", "kept", "bytes read", "written"]]
        for number, replicas in self.partitions.items():
            for node, done in replicas.items():
                counts = (done.records_read, done.records_kept, done.bytes_read, done.bytes_written)
                rows.append([str(number), str(node), *(f"{count:,}" for count in counts)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
        lines += [
            f"partition {number} on node {node} was not compacted: {why}"
            for number, replicas in self.skipped.items()
            for node, why in replicas.items()
        ]
        return "\n".join([f"topic {self.topic}", *lines])


class LogStats(NamedTuple):
    """Contents of one partition's log, and counts since it was opened. Sizes are in bytes."""

    start_offset: int
    """The log start offset: the first offset that can be read."""
    end_offset: int
    """The log end offset: the offset that the next record gets."""
    flushed_offset: int
    """All records below this offset are on stable storage."""
    high_watermark: int
    """Readers see the records below this offset."""
    leader_epoch: int
    """The newest leader epoch; each opening for writing begins one."""
    segment_count: int
    """Number of segments, including the active one."""
    size: int
    """Bytes of all segments, without their indexes."""
    batches_appended: int
    """Batches appended since the log was opened. The counts below start at the opening, too."""
    records_appended: int
    """Records in these batches."""
    bytes_appended: int
    """Bytes of these batches, as they are stored."""
    syncs: int
    """Syncs of its files that made records durable."""
    torn_bytes_cut: int
    """Bytes that recovery truncated at the opening. They are kept beside the log, unless all are
    zeros.
    """


class QuorumReplica(NamedTuple):
    """A voter, or an observer: a node that reads the metadata log and has no vote.

    ``last_caught_up`` is in ms since 1970, by the leader's clock: the latest time at which this node
    had the whole metadata log that the leader had then. -1: not since this leader was elected.
    """

    node_id: int
    log_end_offset: int
    last_caught_up: int


class QuorumInfo(NamedTuple):
    """The metadata quorum, as its leader knows it.

    The leader is the active controller. Metadata below ``high_watermark`` is committed (-1: the
    leader does not know it yet, because it was only just elected). Voters and observers are sorted
    by node id.
    """

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
