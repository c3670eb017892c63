"""Names, constants and limits of the files on disk, of a root and of a partition, and parsers for the names.

The layout is Kafka's. Files of our own have names that Kafka ignores: in a root any name, in a partition folder a
name that neither begins with a number and a dot nor ends in one of Kafka's suffixes; ``.gaps`` is the one exception.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pyreplog.errors import InvalidTopicError, excerpt
from pyreplog.values import TopicPartition

# Files of a root. On disk: never change.
LOCK_NAME: Final = ".lock"
CLEAN_SHUTDOWN_NAME: Final = ".kafka_cleanshutdown"
META_PROPERTIES_NAME: Final = "meta.properties"
RECOVERY_POINT_NAME: Final = "recovery-point-offset-checkpoint"
LOG_START_NAME: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_NAME: Final = "replication-offset-checkpoint"
CLEANER_NAME: Final = "cleaner-offset-checkpoint"
INCARNATION_NAME: Final = "replog.incarnation"
RESERVE_NAME: Final = "replog.reserve"
SUMMARIES_NAME: Final = "replog.db"
BACKUP_NAME: Final = "replog.backup"
"""The description of a backup. The run that makes it holds the lock file of this name with ``.lock`` behind it."""

# Files of a partition folder. On disk: never change.
LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
GAPS_SUFFIX: Final = ".gaps"
"""Our own file of a compacted segment. Kafka ignores it, and renames and removes it with the segment's swap files."""
SEGMENT_SUFFIXES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SNAPSHOT_SUFFIX,
    GAPS_SUFFIX,
)
"""The files of a segment. The snapshot holds the producers' state at its base offset."""
EPOCHS_NAME: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_NAME: Final = "partition.metadata"
MARK_NAME: Final = "replog.mark"
CONFIG_NAME: Final = "replog.config"
OWN_PREFIX: Final = "replog."
"""The prefix of all files that only this library writes."""
TORN_PREFIX: Final = "replog.torn-"
SPOOL_PREFIX: Final = "replog.spool."
"""The prefix of files that other processes leave in a root for its owner."""
OFFSETS_PREFIX: Final = "replog.offsets-"
QUEUE_PREFIX: Final = "replog.queue-"
TABLE_PREFIX: Final = "replog.table-"
"""The prefixes of files that readers and queues keep beside a log, in a root or a cluster's folder."""
NODES_NAME: Final = "replog.nodes"
"""In a cluster's folder: the folders of its nodes, if the caller chose them. In such a node's folder: the cluster
that it belongs to."""

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"

OFFSET_DIGITS: Final = 20
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

INDEX_ENTRY_SIZE: Final = 8
TIME_INDEX_ENTRY_SIZE: Final = 12

STATE_FILE_SIZE_MAX: Final = 64 << 20
"""A larger checkpoint or state file counts as damaged."""
SCAN_CHUNK_SIZE: Final = 256 << 10
"""Bytes read at once when a segment is walked. The chunk fits a processor's cache, where its checksums are checked."""
LOOKUP_CHUNK_SIZE: Final = 64 << 10
FIRST_LOOK_SIZE: Final = 8 << 10
READ_CHUNK_SIZE_MAX: Final = 16 << 20

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_FOLDER: Final = f"{METADATA_TOPIC}-0"
"""In a node's root: the metadata log of its cluster. The quorum's server of that node writes it, never the root."""
INTERNAL_PREFIX: Final = "__"
"""The prefix of the names of a system's own topics, such as ``__consumer_offsets``."""
TOPIC_NAME_SIZE_MAX: Final = 249
PARTITION_MAX: Final = INT32_MAX

_DIRECTORY_NAME_SIZE_MAX: Final = 255
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Each number has one spelling only, so that no two names mean the same partition or segment.
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_OFFSET: Final = re.compile(rf"[0-9]{{{OFFSET_DIGITS}}}")
_SPECIAL_DIRECTORY: Final = re.compile(r"(.+)\.([0-9A-Za-z_-]+)-(delete|future|stray)")


class DirectoryName(NamedTuple):
    """A parsed partition folder name. ``kind`` is "" for a live folder, else ``delete``, ``future`` or ``stray``."""

    topic_partition: TopicPartition
    kind: str


def check_topic(name: str) -> str:
    """Return ``name`` if Kafka accepts it for a topic. Raises :class:`InvalidTopicError`."""
    if not isinstance(name, str) or _TOPIC.fullmatch(name) is None or name in (".", ".."):
        shown = excerpt(name) if isinstance(name, str) else type(name).__name__
        raise InvalidTopicError(
            f"{shown}: use 1 to {TOPIC_NAME_SIZE_MAX} of the letters A-Z a-z 0-9 . _ -, and neither '.' nor '..'"
        )
    return name


def is_internal(topic: str) -> bool:
    """Return whether ``topic`` belongs to the system itself, by Kafka's rule for names. Callers read such a topic only
    if they name it."""
    return topic.startswith(INTERNAL_PREFIX)


def directory_name(topic: str, partition: int) -> str:
    """Return the name of a partition's folder: ``<topic>-<partition>``."""
    return f"{check_topic(topic)}-{partition}"


def outgoing_name(topic_partition: TopicPartition, unique: str, kind: str) -> str:
    """Return the folder name of a partition that is being removed, of ``kind`` ``delete`` or ``stray``. The end of a
    long topic name is cut, because a file name has at most 255 bytes and Kafka needs the partition in it."""
    end = f"-{topic_partition.partition}.{unique}-{kind}"
    return topic_partition.topic[: _DIRECTORY_NAME_SIZE_MAX - len(end)] + end


def parse_directory_name(name: str) -> DirectoryName | None:
    """Parse the name of a partition folder; None if it is another name. Topic names may hold dashes and dots."""
    kind = ""
    if name.endswith(("-delete", "-future", "-stray")):
        match = _SPECIAL_DIRECTORY.fullmatch(name)
        if match is None:
            return None
        name, kind = match[1], match[3]
    topic, dash, number = name.rpartition("-")
    if not dash or _PARTITION.fullmatch(number) is None or int(number) > PARTITION_MAX or not topic:
        return None
    # The topic in the name of a folder being deleted may be cut short, so it is not checked.
    if not kind and (_TOPIC.fullmatch(topic) is None or topic in (".", "..")):
        return None
    return DirectoryName(TopicPartition(topic, int(number)), kind)


def segment_name(base_offset: int, suffix: str) -> str:
    """Return the name of a segment's file: the base offset in 20 digits and the suffix, as in
    ``00000000000000000042.log``."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def parse_base_offset(name: str, suffix: str = LOG_SUFFIX) -> int | None:
    """Return the base offset in the file name ``name`` that ends in ``suffix``; None if it is another name."""
    if not name.endswith(suffix):
        return None
    number = name.removesuffix(suffix)
    if _OFFSET.fullmatch(number) is None or int(number) > INT64_MAX:
        return None
    return int(number)


def is_log_file(name: str) -> bool:
    """Return whether ``name`` is a segment's log: one in use, or one under ``.swap`` that replaces others. During a
    replacement, or after an interrupted one, a partition may have no other."""
    return parse_base_offset(name.removesuffix(SWAP_SUFFIX)) is not None


def join(directory: str, name: str) -> str:
    """Return the path of ``name`` in ``directory``."""
    return f"{directory}/{name}" if directory else name


def parent_of(path: str) -> str:
    """Return the folder that holds ``path``; "." for a bare name."""
    trimmed = path.rstrip("/")
    head, slash, _ = trimmed.rpartition("/")
    if not slash:
        return "."
    return head or "/"


def name_of(path: str) -> str:
    """Return the last part of ``path``."""
    return path.rstrip("/").rpartition("/")[2]
