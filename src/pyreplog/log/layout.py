"""Names, constants and limits of what is on disk: files of a root, files of a partition, and how folder names are
read.

Kafka's layout, to which we add only files that Kafka ignores: in a root any file, in a partition folder any whose
name neither begins with a number and a dot nor ends in one of Kafka's suffixes.
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
INCARNATION_NAME: Final = "replog.incarnation"
RESERVE_NAME: Final = "replog.reserve"
SUMMARIES_NAME: Final = "replog.db"
BACKUP_NAME: Final = "replog.backup"
"""What a backup says of itself; beside it, with ``.lock`` behind the name, the lock of the run that makes it."""

# Files of a partition folder. On disk: never change.
LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
"""What goes with a segment: also the snapshot of the producers as they were where it begins."""
EPOCHS_NAME: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_NAME: Final = "partition.metadata"
MARK_NAME: Final = "replog.mark"
CONFIG_NAME: Final = "replog.config"
OWN_PREFIX: Final = "replog."
"""The names of all files that only we write begin with it."""
TORN_PREFIX: Final = "replog.torn-"
SPOOL_PREFIX: Final = "replog.spool."
"""Of what other processes left in a root for whoever owns it."""
NODES_NAME: Final = "replog.nodes"
"""In a cluster's folder: where its nodes keep their logs, if the caller said so. In such a node's folder: which
cluster it is of."""

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
"""Larger checkpoint or state files are taken for garbage."""
SCAN_CHUNK_SIZE: Final = 256 << 10
"""Read at once when a segment is walked: what fits the cache of a processor is checked from there."""
LOOKUP_CHUNK_SIZE: Final = 64 << 10
FIRST_LOOK_SIZE: Final = 8 << 10
READ_CHUNK_SIZE_MAX: Final = 16 << 20

METADATA_TOPIC: Final = "__cluster_metadata"
TOPIC_NAME_SIZE_MAX: Final = 249
PARTITION_MAX: Final = INT32_MAX

_DIRECTORY_NAME_SIZE_MAX: Final = 255
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Numbers in their one spelling: two names must not mean one partition, or one segment.
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_OFFSET: Final = re.compile(rf"[0-9]{{{OFFSET_DIGITS}}}")
_SPECIAL_DIRECTORY: Final = re.compile(r"(.+)\.([0-9A-Za-z_-]+)-(delete|future|stray)")


class DirectoryName(NamedTuple):
    """A partition folder's name, read. ``kind`` is "" for a live one, else ``delete``, ``future`` or ``stray``."""

    topic_partition: TopicPartition
    kind: str


def check_topic(name: str) -> str:
    """``name``, when Kafka would take it for a topic; :class:`InvalidTopicError` otherwise."""
    if not isinstance(name, str) or _TOPIC.fullmatch(name) is None or name in (".", ".."):
        shown = excerpt(name) if isinstance(name, str) else type(name).__name__
        raise InvalidTopicError(
            f"{shown}: use 1 to {TOPIC_NAME_SIZE_MAX} of the letters A-Z a-z 0-9 . _ -, and neither '.' nor '..'"
        )
    return name


def directory_name(topic: str, partition: int) -> str:
    """The folder of a partition: ``<topic>-<partition>``."""
    return f"{check_topic(topic)}-{partition}"


def outgoing_name(topic_partition: TopicPartition, unique: str, kind: str) -> str:
    """The folder of a partition on its way out, of ``kind`` ``delete`` or ``stray``. Of a long topic the end is
    cut: a file system takes 255 bytes, and the partition must stay, or Kafka does not know the folder for one."""
    end = f"-{topic_partition.partition}.{unique}-{kind}"
    return topic_partition.topic[: _DIRECTORY_NAME_SIZE_MAX - len(end)] + end


def parse_directory_name(name: str) -> DirectoryName | None:
    """What the folder ``name`` holds; None where it is no partition folder. Topic names may hold dashes and
    dots."""
    kind = ""
    if name.endswith(("-delete", "-future", "-stray")):
        match = _SPECIAL_DIRECTORY.fullmatch(name)
        if match is None:
            return None
        name, kind = match[1], match[3]
    topic, dash, number = name.rpartition("-")
    if not dash or _PARTITION.fullmatch(number) is None or int(number) > PARTITION_MAX or not topic:
        return None
    # A folder being deleted may have had its topic cut short, and so may name anything.
    if not kind and (_TOPIC.fullmatch(topic) is None or topic in (".", "..")):
        return None
    return DirectoryName(TopicPartition(topic, int(number)), kind)


def segment_name(base_offset: int, suffix: str) -> str:
    """``00000000000000000042.log``: the base offset in 20 digits and the suffix."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def parse_base_offset(name: str, suffix: str = LOG_SUFFIX) -> int | None:
    """The base offset in the file ``name`` that ends in ``suffix``; None where it is no such file."""
    if not name.endswith(suffix):
        return None
    number = name.removesuffix(suffix)
    if _OFFSET.fullmatch(number) is None or int(number) > INT64_MAX:
        return None
    return int(number)


def is_log_file(name: str) -> bool:
    """Whether ``name`` is a segment's log: one in use, or one that has replaced others and is still to get its name
    (for a moment, or where that was interrupted, a partition may have no other)."""
    return parse_base_offset(name.removesuffix(SWAP_SUFFIX)) is not None


def join(directory: str, name: str) -> str:
    """The path of ``name`` in ``directory``."""
    return f"{directory}/{name}" if directory else name


def parent_of(path: str) -> str:
    """The folder that ``path`` is in; "." for a bare name."""
    trimmed = path.rstrip("/")
    head, slash, _ = trimmed.rpartition("/")
    if not slash:
        return "."
    return head or "/"


def name_of(path: str) -> str:
    """The last part of ``path``."""
    return path.rstrip("/").rpartition("/")[2]
