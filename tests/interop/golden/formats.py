"""One golden file for each kind of file that a log leaves on a disk, as small as it can be and still say something.

Most are from one life of a root: three leaders, a transaction that is aborted, a beginning that is deleted, a clean
end, and then a crash within a write. ``python -m tests.interop.golden.formats`` writes them into
``tests/interop/golden/formats/``; the pages of docs/internals/format show their bytes.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from random import Random
from typing import Final

from pyreplog.cli.resuming import ImportedUpTo, format_places
from pyreplog.config import LogConfig
from pyreplog.controller.image import MetadataImage
from pyreplog.controller.image_entries import ImageEntries
from pyreplog.controller.image_store import StoredEnd, StoredMark, encode_mark, entry_sum, format_note
from pyreplog.controller.state import decode, encode
from pyreplog.log import Log, LogRoot
from pyreplog.log.backup_note import BackupNote, write_backup_note
from pyreplog.log.gaps import Gaps, format_gaps
from pyreplog.log.node_list import format_nodes
from pyreplog.log.snapshot import format_state
from pyreplog.log.summary import Summary, encode_body, encode_key, sealed
from pyreplog.ports import Disk
from pyreplog.quorum import HardState, Identity, ReplicaKey
from pyreplog.quorum.snapshots import write_snapshot
from pyreplog.quorum.state_file import StateFile
from pyreplog.readers import (
    Accepted,
    Acquired,
    Archived,
    Cut,
    Deleted,
    EntryKind,
    JournalIdentity,
    OffsetEntry,
    OffsetsFile,
    QueueJournal,
    Released,
    Renewed,
    topic_crc,
)
from pyreplog.readers.table_store import TableHeader, TableState, encode_entry, encode_table_state, table_owner
from pyreplog.record import BatchBuilder, xxh64
from pyreplog.spool import BatchId, Spool
from pyreplog.testing import SimClock, SimDisk
from pyreplog.values import EpochEntry, TopicPartition
from pyreplog.wire import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    PartitionRecord,
    QuorumEndpoint,
    SnapshotId,
    SuspectReplica,
    TopicRecord,
    VotersRecord,
    VotersRecordVoter,
    encode_control_record,
    encode_record,
)
from tests.interop.golden import vectors
from tests.unit.log.support import sync

HERE: Final = Path(__file__).parent / "formats"
TOPIC_ID: Final = "AbCdEfGhIjKlMnOpQrStUw"
METADATA_FOLDER: Final = "metadata/__cluster_metadata-0"
DIRECTORY_ID: Final = "wPYBkuPcASIdB7YVKIm56w"
CLUSTER_ID: Final = "Vkeo9ZaN7jZN1l8YEOqZQA"
ORDERS: Final = TopicPartition("orders", 1)
CONFIG: Final = LogConfig(durability="sync", segment_bytes=1024, index_interval_bytes=200, retention_ms=2**63 - 1)
TIME_MS: Final = 1_700_000_000_000
FOLDER: Final = "root/orders-1"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LEFT_OUT: Final = (".lock", "replog.reserve")
"""A lock says another thing each time: its golden file is only read. The reserve has no bytes to show."""


def batch(
    start: int, count: int, epoch: int, *, producer: int = -1, sequence: int = -1, transactional: bool = False
) -> memoryview:
    """The records at ``start`` and behind it, one second apart."""
    builder = BatchBuilder()
    for number in range(start, start + count):
        assert builder.append(b"value of %d" % number, b"k%d" % number, [("h", None)], TIME_MS + 1000 * number)
    return builder.finish(
        base_offset=start,
        leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
    )


def abort(offset: int, epoch: int, producer: int) -> memoryview:
    """The marker that ends a transaction of ``producer``."""
    builder = BatchBuilder()
    assert builder.append(struct.pack(">hi", 0, 12), struct.pack(">hh", 0, 0), (), TIME_MS + 1000 * offset)
    return builder.finish(
        base_offset=offset,
        leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=-1,
        transactional=True,
        control=True,
    )


def synced(disk: Disk, log: Log) -> None:
    """Everything of ``log`` is durable, and committed."""
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)


def opened(disk: SimDisk, seed: int) -> LogRoot:
    """The root, of node 1."""
    return LogRoot.open(disk, "root", clock=SimClock(TIME_MS), random=Random(seed), node_id=1, cluster_id=CLUSTER_ID)


def life() -> SimDisk:
    """A disk on which a root lived and ended in order."""
    disk = SimDisk(Random(1))
    root = opened(disk, 2)
    log = root.create_log(*ORDERS, TOPIC_ID, CONFIG)
    log.append_as_follower(
        [batch(0, 2, 0), batch(2, 3, 0, producer=77, sequence=0, transactional=True), abort(5, 0, 77)]
    )
    synced(disk, log)
    for start in range(6, 16, 2):
        log.append_as_follower([batch(start, 2, 3, producer=78, sequence=start - 6)])
    synced(disk, log)
    log.increment_start_offset(2)
    log.append_as_follower([batch(16, 1, 4)])
    synced(disk, log)
    root.close()
    return disk


def files_of(disk: Disk, folder: str) -> dict[str, bytes]:
    """Every file below ``folder`` by its path."""
    found: dict[str, bytes] = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        status = disk.stat(path)
        assert status is not None
        if status.is_directory:
            found |= files_of(disk, path)
        elif name not in LEFT_OUT:
            file = disk.open(path)
            found[path] = bytes(file.read_at(0, file.size()))
            file.close()
    return found


def torn(disk: SimDisk) -> dict[str, bytes]:
    """What recovery keeps after a write that a crash cut short: 40 bytes of a batch."""
    disk.remove("root/.kafka_cleanshutdown")
    file = disk.open(f"{FOLDER}/00000000000000000000.log", write=True)
    file.write_at(file.size(), [bytes(batch(17, 1, 4))[:40]])
    file.close()
    opened(disk, 3).close()
    return {
        f"torn/{name}": files_of(disk, FOLDER)[f"{FOLDER}/{name}"]
        for name in disk.list(FOLDER)
        if name.startswith("replog.torn")
    }


def spool() -> dict[str, bytes]:
    """A batch of a query while it is handed over, and the answer."""
    disk = SimDisk(Random(1))
    disk.make_directory("spool")
    batch_id = BatchId("query", 7)
    builder = BatchBuilder()
    builder.extend([b"a", b"b"], [None, None], None, None, 5, 0)
    writer = Spool(disk, "spool").stage(batch_id, "0-a")
    writer.add([(TopicPartition("t", 0), bytes(builder.finish()))])
    # Each row as a record has it from the key on: no key, one byte of value, no header.
    rows = [b"\x01\x02a\x00", b"\x01\x02b\x00"]
    staged = writer.finish(sum(xxh64(row, xxh64(b"t")) for row in rows) % 2**64)
    Spool(disk, "spool").publish(batch_id, [staged])
    found = files_of(disk, "spool")
    manifest = Spool(disk, "spool").take(batch_id)
    assert manifest is not None
    Spool(disk, "spool").begin(batch_id)
    Spool(disk, "spool").finish(manifest)
    return {name: data for name, data in (found | files_of(disk, "spool")).items() if not name.endswith(".lock")}


def offsets() -> dict[str, bytes]:
    """The file of a named reader that committed one record and tried the next one twice."""
    disk = SimDisk(Random(1))
    disk.make_directory("readers")
    file = OffsetsFile.open(disk, "readers", "Billing")
    crc = topic_crc("orders")
    file.write([OffsetEntry(EntryKind.COMMIT, TOPIC_ID, 1, 17, 3, 0, TIME_MS, crc)])
    file.write([OffsetEntry(EntryKind.ATTEMPT, TOPIC_ID, 1, 17, -1, 2, TIME_MS, crc)])
    file.close()
    return files_of(disk, "readers")


def summary() -> dict[str, bytes]:
    """One entry of the summary of a root: its key, and its value."""
    about = Summary(
        TOPIC_ID,
        "sync",
        False,
        100,
        104,
        140,
        140,
        140,
        (EpochEntry(0, 104), EpochEntry(3, 120)),
        ((100, 2000), (130, 500)),
        2**63 - 1,
    )
    key = encode_key(ORDERS)
    return {"db/entry.key": key, "db/entry.value": sealed(key, CLUSTER_ID, encode_body(about))}


IMPORTS: Final = [
    ImportedUpTo(
        "/data/a.csv",
        "orders",
        1,
        ("csv", None, "id", None, None, None),
        170,
        0xA5DF016B,
        1_700_000_000_000_000_000,
        5,
        104,
        done=True,
    ),
    ImportedUpTo(
        "/data/b.ndjson",
        "orders",
        1,
        ("ndjson",) + (None,) * 5,
        90,
        0x1C291CA3,
        1_700_000_000_000_000_001,
        17,
        121,
        done=False,
    ),
]


def backup_note() -> dict[str, bytes]:
    """What a finished backup says of itself."""
    disk = SimDisk(Random(1))
    disk.make_directory("backup")
    write_backup_note(disk, "backup", BackupNote("/srv/events", whole=True))
    return files_of(disk, "backup")


def metadata() -> dict[str, bytes]:
    """A metadata log of two batches, a snapshot of it, and a vote."""
    log, builder = b"", BatchBuilder()
    voters = [LeaderChangeVoter(2)]
    key, value = encode_control_record(LeaderChangeMessage(2, voters, voters))
    builder.append(value, key, (), TIME_MS)
    log += bytes(builder.finish(base_offset=0, leader_epoch=5, control=True))
    builder.reset()
    records = [
        encode_record(TopicRecord("orders", TOPIC_ID)),
        encode_record(
            PartitionRecord(
                0, TOPIC_ID, [2], [2], leader=2, leader_epoch=0, partition_epoch=0, suspects=[SuspectReplica(2, 0, 17)]
            )
        ),
    ]
    for record in records:
        builder.append(record, None, (), TIME_MS)
    log += bytes(builder.finish(base_offset=1, leader_epoch=5))
    voter = VotersRecordVoter(2, DIRECTORY_ID, [QuorumEndpoint("CONTROLLER", "controller-2", 0)], KRaftVersionFeature())
    control = [encode_control_record(KRaftVersionRecord(1)), encode_control_record(VotersRecord([voter]))]
    disk = SimDisk(Random(1))
    disk.make_directory(METADATA_FOLDER)
    write_snapshot(
        disk, METADATA_FOLDER, SnapshotId(3, 5), control, records, timestamp_ms=TIME_MS, last_timestamp_ms=TIME_MS
    )
    state = StateFile.create(disk, METADATA_FOLDER, Identity(2, DIRECTORY_ID, CLUSTER_ID), was_voter=True)
    state.write(HardState(5, 2, ReplicaKey(2, DIRECTORY_ID)))
    state.close()
    return {**files_of(disk, METADATA_FOLDER), f"{METADATA_FOLDER}/00000000000000000000.log": log}


def stored_image() -> dict[str, bytes]:
    """One entry of a stored image, the mark of a store with that entry alone, and the note beside a closed store."""
    image = MetadataImage()
    image.apply(0, TopicRecord("orders", TOPIC_ID))
    image.apply(1, PartitionRecord(1, TOPIC_ID, (1, 2, 3), (1, 2), leader=1, leader_epoch=3, partition_epoch=7))
    key, value = ImageEntries().partition(image.topics[TOPIC_ID], 1)
    return {
        "stored_image/entry.key": key,
        "stored_image/entry.value": value,
        "stored_image/mark.value": encode_mark(StoredMark(StoredEnd(1041, 3), 1, entry_sum(key, value))),
        "stored_image/replog.image": format_note("5d9c7c1e-8f8e-4f55-9e6b-0c8f4f2f3b11", "106135552", "7c1e5d9c"),
    }


QUEUE: Final = JournalIdentity("workers", TOPIC_ID, 1)
QUEUE_PARTS: Final = {"slot": (512, 568), "name": (1024, 1041), "area": (135168, 135476)}
"""The parts of a queue's journal that are not zero, by name: first byte and end."""


def queue_journal() -> dict[str, bytes]:
    """A queue's journal with one entry of each kind, in three parts, because the rest is zeros."""
    disk = SimDisk(Random(1))
    disk.make_directory("queue")
    path = "queue/replog.queue-workers"
    journal = QueueJournal.open(disk, path, QUEUE, is_sync=True)
    with journal:
        for entry in (
            Acquired(1, 30_000_000_000, 3, [(0, 5, 1)]),
            Accepted([(0, 1)]),
            Renewed(1, 31_000_000_000, [(1, 4)]),
            Released([(1, 2)]),
            Acquired(1, 32_000_000_000, 3, [(1, 1, 2), (5, 2, 1)]),
            Archived([(1, 1)]),
            Deleted(9, [(2, 1)]),
            Cut(6, 3),
        ):
            journal.append(entry)
    journal.close()
    data = files_of(disk, "queue")[path]
    assert not any(data[: QUEUE_PARTS["slot"][0]])
    assert not any(data[QUEUE_PARTS["area"][1] :])
    return {f"queue/{name}": data[start:end] for name, (start, end) in QUEUE_PARTS.items()}


ADDED_GAPS: Final = (Gaps((12, 14)), Gaps((20, 21), dropped_tombstone=15))
GAPS: Final = Gaps((0, 5, 6, 7), dropped_tombstone=3)


TABLE_OWNER: Final = table_owner("a log")


def table() -> dict[str, bytes]:
    """The header, the state and two entries of a table."""
    header = TableHeader(False, TABLE_OWNER, (64768, 1041), "5d9c7c1e-8f8e-4f55-9e6b-0c8f4f2f3b11")
    return {
        "table/header": header.encode(),
        "table/state.value": encode_table_state(TABLE_OWNER, TableState(5, 7)),
        "table/short.key": encode_entry(b"key", b"v")[0],
        "table/long.key": encode_entry(b"x" * 501, b"v")[0],
    }


NODES: Final = {1: "/disk1/n1", 2: "/disk2/\udcff n2", 3: "node-3"}


def golden() -> dict[str, bytes]:
    """Every golden file by its path, as this library writes it now."""
    disk = life()
    found = files_of(disk, "root")
    controller = (HERE / "controller" / "replog.controller").read_bytes()
    return {
        **found,
        **torn(disk),
        **spool(),
        **offsets(),
        **summary(),
        **backup_note(),
        **metadata(),
        **stored_image(),
        **queue_journal(),
        **table(),
        "nodes/cluster/replog.nodes": format_state(format_nodes(NODES)),
        "nodes/node/replog.nodes": format_state(format_nodes({}, "/srv/data")),
        f"gaps/{0:020}.gaps": format_gaps(0, GAPS),
        f"gaps/{10:020}.gaps": b"".join(format_gaps(10, one) for one in ADDED_GAPS),
        "import/replog.import": format_state(format_places(IMPORTS)),
        "controller/replog.controller": encode(decode(controller, "golden")),
        "record_batch/nulls.batch": vectors.A2_NULLS,
        "record_batch/commit.batch": vectors.A4_COMMIT,
        **{f"record_batch/{CODECS[codec]}.batch": data for codec, data in vectors.A3_BY_CODEC.items()},
        "legacy/magic-1.message": vectors.A13_MAGIC_1,
    }


if __name__ == "__main__":
    for name, data in golden().items():
        (HERE / name).parent.mkdir(parents=True, exist_ok=True)
        (HERE / name).write_bytes(data)
        sys.stdout.write(f"{len(data):6} {name}\n")
