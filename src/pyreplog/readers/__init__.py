"""Files that readers keep of their own beside a log: the door.

The files of named readers and queues lie in a log's root or in a cluster's folder, or in a folder that their user
chose. The writer of the log does not know them, and Kafka ignores them. Each is written by the process that holds its
lock.
"""

from __future__ import annotations

from pyreplog.readers.dead_letters import DeadLetter, letter_headers, message_of, read_letter, source_headers
from pyreplog.readers.layout import (
    DEAD_LETTER_PREFIX,
    OFFSETS_PREFIX,
    QUEUE_PREFIX,
    REPLACEMENT_SUFFIX,
    TABLE_PREFIX,
    check_reader_name,
    dead_letter_topic,
    offsets_file_name,
    queue_file_name,
    reader_name_of,
    table_file_name,
)
from pyreplog.readers.offsets_file import (
    Attempts,
    Commit,
    EntryKind,
    OffsetEntry,
    OffsetsFile,
    topic_crc,
)
from pyreplog.readers.queue_entries import (
    REJECTED,
    Accepted,
    Acquired,
    Archived,
    Cut,
    Deleted,
    Entry,
    Released,
    Renewed,
)
from pyreplog.readers.queue_journal import QUEUE_FILE_SIZE, JournalIdentity, QueueJournal, read_queue
from pyreplog.readers.queue_state import DELIVERIES_MAX, IN_FLIGHT_MAX, QueueState, counted_runs, runs_of
from pyreplog.readers.table_store import TABLE_STORE_SUFFIX, TableState, TableStore, read_table_header

__all__ = [
    "DeadLetter",
    "letter_headers",
    "message_of",
    "read_letter",
    "source_headers",
    "REPLACEMENT_SUFFIX",
    "Attempts",
    "Commit",
    "OffsetEntry",
    "EntryKind",
    "OffsetsFile",
    "topic_crc",
    "Accepted",
    "Acquired",
    "Archived",
    "Cut",
    "DELIVERIES_MAX",
    "Deleted",
    "Entry",
    "IN_FLIGHT_MAX",
    "JournalIdentity",
    "QUEUE_FILE_SIZE",
    "QueueJournal",
    "QueueState",
    "REJECTED",
    "Released",
    "Renewed",
    "counted_runs",
    "read_queue",
    "runs_of",
    "DEAD_LETTER_PREFIX",
    "OFFSETS_PREFIX",
    "QUEUE_PREFIX",
    "check_reader_name",
    "dead_letter_topic",
    "offsets_file_name",
    "queue_file_name",
    "reader_name_of",
    "TABLE_PREFIX",
    "TABLE_STORE_SUFFIX",
    "TableState",
    "TableStore",
    "read_table_header",
    "table_file_name",
]
