"""An independent check of everything on disk, for users that do not trust the writer.

It shares no code with the writer: it has its own decoders, written from the format descriptions, and the ``crc32c``
package. It reads through the ``Disk`` port, takes no lock and changes nothing, so it may run beside a live writer.
"""

from __future__ import annotations

from pyreplog.verify.batches import (
    CHUNK_SIZE,
    HEADER_SIZE,
    OVERHEAD,
    Broken,
    CheckedBatch,
    Window,
    batch_at,
    leads_on,
    look_behind,
    resume,
    walk,
)
from pyreplog.verify.codecs import NAMES as CODEC_NAMES
from pyreplog.verify.codecs import SIZE_MAX, TooLarge, Unavailable, Undecodable, decompress
from pyreplog.verify.controller import check_controller
from pyreplog.verify.findings import Finding, Level, Report
from pyreplog.verify.folder import CheckContext, Facts, read_file, segment_files, split_deleted
from pyreplog.verify.logs import OneLog, Surroundings, could_be_ours, look_around
from pyreplog.verify.lookup import PartitionState, find_partitions, read_identity, read_partition_state
from pyreplog.verify.members import absent_partitions
from pyreplog.verify.metadata import METADATA_TOPIC
from pyreplog.verify.nodes import listed, node_list
from pyreplog.verify.partition import check_partition
from pyreplog.verify.producers import CONTROL_NAMES, control_type
from pyreplog.verify.queues import is_whole_queue
from pyreplog.verify.records import Malformed, PlainRecord, batch_records, old_records_of, records_of
from pyreplog.verify.root import check_root, total_size, verify
from pyreplog.verify.show import small_file
from pyreplog.verify.states import partition_of

__all__ = [
    "CHUNK_SIZE",
    "CODEC_NAMES",
    "CONTROL_NAMES",
    "HEADER_SIZE",
    "CheckedBatch",
    "Report",
    "Broken",
    "Facts",
    "Finding",
    "Level",
    "CheckContext",
    "METADATA_TOPIC",
    "Malformed",
    "OVERHEAD",
    "OneLog",
    "PartitionState",
    "PlainRecord",
    "SIZE_MAX",
    "TooLarge",
    "Surroundings",
    "Unavailable",
    "Undecodable",
    "Window",
    "absent_partitions",
    "batch_at",
    "batch_records",
    "check_controller",
    "check_partition",
    "check_root",
    "control_type",
    "could_be_ours",
    "decompress",
    "find_partitions",
    "leads_on",
    "look_around",
    "look_behind",
    "listed",
    "node_list",
    "old_records_of",
    "partition_of",
    "read_file",
    "read_identity",
    "read_partition_state",
    "records_of",
    "resume",
    "segment_files",
    "split_deleted",
    "small_file",
    "is_whole_queue",
    "total_size",
    "verify",
    "walk",
]
