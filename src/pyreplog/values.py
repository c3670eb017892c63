"""Frozen values that every layer shares. No behaviour, nothing that changes.

``Record`` and ``Ack`` are not here: they are made once per record or call and live in the compiled core.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "BackupProgress",
    "BackupReport",
    "NO_EPOCH",
    "NO_OFFSET",
    "NO_TIMESTAMP",
    "EpochEntry",
    "LogStats",
    "RecordMetadata",
    "RecoveryProgress",
    "TimestampType",
    "TopicPartition",
]

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1


class TimestampType(IntEnum):
    """Who set a record's timestamp."""

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
    """Where an acknowledged record is. ``timestamp`` in ms since 1970 (-1: none). ``offset`` is -1 with acks=0, and where a producer sent
    a batch again that its leader had, and had forgotten where: the records are in the log, once."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    leader_epoch: int


class EpochEntry(NamedTuple):
    """One line of an epoch history: ``epoch`` begins at ``start_offset``."""

    epoch: int
    start_offset: int


class RecoveryProgress(NamedTuple):
    """How far the recovery of one partition is, while its log is opened that was not closed cleanly. Sizes in bytes."""

    topic: str
    """Whose log it is."""
    partition: int
    """Its number."""
    directory: str
    """The partition's folder."""
    scanned_size: int
    """So much of it was looked through."""
    total_size: int
    """So much has to be, unless damage ends it before."""


class BackupProgress(NamedTuple):
    """How far a backup is. Sizes in bytes."""

    stage: str
    """``"copied"`` or ``"verified"``: what is being done."""
    done_size: int
    """So much of it is done."""
    total_size: int
    """So much there was to do when the stage began; a writer may add to it."""


class BackupReport(NamedTuple):
    """What a backup holds that was finished and verified. Sizes in bytes."""

    source: str
    """The folder that was copied."""
    target: str
    """The backup."""
    partition_count: int
    """Copies of partitions: of a partition with three replicas three."""
    record_count: int
    """Records in them, each copy counted."""
    copied_size: int
    """So much was new since the last backup into this folder."""
    total_size: int
    """Of all files of the backup."""
    notes: tuple[str, ...]
    """What else there is to know, such as a folder that was set aside."""
    restore: str
    """The command that restores it."""


class LogStats(NamedTuple):
    """What one partition's log holds and did since it was opened. Sizes in bytes."""

    start_offset: int
    """The first offset that is there."""
    end_offset: int
    """The offset that the next record gets."""
    flushed_offset: int
    """Everything below is on stable storage."""
    high_watermark: int
    """Readers see what is below."""
    leader_epoch: int
    """The newest; each opening for writing begins one."""
    segment_count: int
    """The active one too."""
    size: int
    """Of all segments, without their indexes."""
    batches_appended: int
    """Since it was opened, as all below."""
    records_appended: int
    """In these batches."""
    bytes_appended: int
    """Of the batches, as they are stored."""
    syncs: int
    """Syncs of its files that made records durable."""
    torn_bytes_cut: int
    """What recovery cut when it was opened. It is kept beside the log, unless it is nothing but zeros."""
