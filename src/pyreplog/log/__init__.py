"""Batches -> one partition on a Disk: the door.

:class:`Log` is a partition being written, :class:`LogRoot` the folder of a node's partitions, :class:`LogReader` a
view of one partition that needs no lock and writes nothing.
"""

from __future__ import annotations

from pyreplog._core import LogSlice
from pyreplog.log.backup_note import BackupNote, read_backup_note, refuse_unfinished, write_backup_note
from pyreplog.log.cleaner import CleanedSegment, Cleaner
from pyreplog.log.cleaning_plan import CleaningPlan
from pyreplog.log.cluster_metadata import (
    CONVERTED_NAME,
    MetadataEnd,
    MetadataFolder,
    cluster_of,
    has_metadata,
    holds_cluster,
    newest_metadata,
)
from pyreplog.log.controller_file import CONTROLLER_NAME, frame_controller, read_controller, unframe_controller
from pyreplog.log.damage_check import find_damage
from pyreplog.log.damage_skipping import SkippingSource, check_skipping, placed_lists
from pyreplog.log.discovery import (
    Finder,
    Found,
    deeper_logs,
    find_logs,
    find_roots,
    list_topics,
    open_readers,
    several_logs,
    unfinished_backups,
    unsafe_permissions,
    untrusted,
)
from pyreplog.log.duplicate import Duplicate, check_extends, duplicate, sign_off
from pyreplog.log.epochs import EpochCache, read_epochs
from pyreplog.log.found_log import Conflict, FoundLog, unreadable
from pyreplog.log.identity import (
    ROLES_PROPERTY,
    decode_uuid,
    encode_uuid,
    keep_roles,
    random_uuid,
    read_properties,
    read_topic_id,
    write_topic_id,
)
from pyreplog.log.layout import (
    BACKUP_NAME,
    INCARNATION_NAME,
    LOCK_NAME,
    LOG_SUFFIX,
    META_PROPERTIES_NAME,
    METADATA_FOLDER,
    METADATA_TOPIC,
    NODES_NAME,
    OFFSETS_PREFIX,
    QUEUE_PREFIX,
    SPOOL_PREFIX,
    TABLE_PREFIX,
    check_topic,
    directory_name,
    is_internal,
    join,
    outgoing_name,
    parent_of,
    parse_directory_name,
    segment_name,
)
from pyreplog.log.log import Log, SyncPlan
from pyreplog.log.mark import read_mark
from pyreplog.log.names import make_folder
from pyreplog.log.node_list import read_cluster, read_nodes, write_cluster, write_nodes
from pyreplog.log.partition_opening import NewLog
from pyreplog.log.read_committed import (
    ISOLATIONS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    CommittedSource,
    StableSource,
    check_isolation,
)
from pyreplog.log.reader import LogReader
from pyreplog.log.recovery_listener import RecoveryListener, RecoveryOptions
from pyreplog.log.recovery_report import RecoveryContext, RecoveryReport
from pyreplog.log.replica_view import ReplicaView
from pyreplog.log.reserve import keep_reserve, with_reserve
from pyreplog.log.root import LogRoot
from pyreplog.log.root_discovery import (
    DEPTH_MAX,
    FoundRoot,
    has_root_file,
    hidden_roots,
    is_partition,
    is_refusal,
    root_above,
    topic_id_of,
)
from pyreplog.log.root_view import RootView
from pyreplog.log.settings import read_config
from pyreplog.log.several_logs import DistinctLogs, cluster_id_of, log_names, printable_name, twice
from pyreplog.log.snapshot import format_state, parse_state, read_state, read_whole, replace_file, write_state
from pyreplog.log.transaction_index import AbortedRange
from pyreplog.log.unloaded import UnloadedLog
from pyreplog.log.validator import Appended, LogValidator, first_unkeyed, unkeyed_text

__all__ = [
    "ROLES_PROPERTY",
    "CONTROLLER_NAME",
    "CONVERTED_NAME",
    "AbortedRange",
    "Appended",
    "BACKUP_NAME",
    "BackupNote",
    "CleanedSegment",
    "Cleaner",
    "CleaningPlan",
    "CommittedSource",
    "first_unkeyed",
    "unkeyed_text",
    "DEPTH_MAX",
    "Conflict",
    "Duplicate",
    "EpochCache",
    "Finder",
    "Found",
    "FoundLog",
    "FoundRoot",
    "INCARNATION_NAME",
    "ISOLATIONS",
    "LogValidator",
    "LOCK_NAME",
    "LOG_SUFFIX",
    "Log",
    "LogReader",
    "LogRoot",
    "LogSlice",
    "METADATA_FOLDER",
    "METADATA_TOPIC",
    "NODES_NAME",
    "OFFSETS_PREFIX",
    "QUEUE_PREFIX",
    "TABLE_PREFIX",
    "MetadataEnd",
    "MetadataFolder",
    "META_PROPERTIES_NAME",
    "NewLog",
    "RecoveryListener",
    "RecoveryOptions",
    "RecoveryContext",
    "ReplicaView",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "RecoveryReport",
    "RootView",
    "SPOOL_PREFIX",
    "SkippingSource",
    "check_skipping",
    "UnloadedLog",
    "StableSource",
    "SyncPlan",
    "DistinctLogs",
    "check_extends",
    "check_isolation",
    "check_topic",
    "cluster_id_of",
    "cluster_of",
    "decode_uuid",
    "directory_name",
    "unsafe_permissions",
    "duplicate",
    "encode_uuid",
    "deeper_logs",
    "find_damage",
    "find_logs",
    "find_roots",
    "format_state",
    "frame_controller",
    "has_metadata",
    "has_root_file",
    "hidden_roots",
    "holds_cluster",
    "is_internal",
    "is_partition",
    "is_refusal",
    "join",
    "keep_reserve",
    "keep_roles",
    "list_topics",
    "log_names",
    "make_folder",
    "newest_metadata",
    "open_readers",
    "outgoing_name",
    "parent_of",
    "parse_directory_name",
    "parse_state",
    "placed_lists",
    "printable_name",
    "random_uuid",
    "read_backup_note",
    "read_cluster",
    "read_config",
    "read_nodes",
    "read_controller",
    "read_epochs",
    "read_mark",
    "read_properties",
    "read_state",
    "read_topic_id",
    "read_whole",
    "refuse_unfinished",
    "replace_file",
    "segment_name",
    "root_above",
    "several_logs",
    "sign_off",
    "twice",
    "unframe_controller",
    "unfinished_backups",
    "unreadable",
    "topic_id_of",
    "untrusted",
    "with_reserve",
    "write_backup_note",
    "write_cluster",
    "write_nodes",
    "write_state",
    "write_topic_id",
]
