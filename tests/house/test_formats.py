"""Every format has a page that shows the bytes of golden files, which this library writes, byte for byte, and
reads."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from pyreplog.cli.resuming import parse_places
from pyreplog.controller.image_store import StoredEnd, StoredMark, decode_mark, entry_sum
from pyreplog.controller.state import decode
from pyreplog.errors import LockedError
from pyreplog.log import LogRoot
from pyreplog.log.backup_note import BackupNote, read_backup_note
from pyreplog.log.clean_shutdown import read_farewell, read_incarnation
from pyreplog.log.identity import read_properties, read_topic_id
from pyreplog.log.mark import find_mark
from pyreplog.log.node_list import parse_nodes
from pyreplog.log.producer_snapshot import read_snapshot
from pyreplog.log.settings import read_config
from pyreplog.log.snapshot import parse_state, read_offsets
from pyreplog.log.summary import checked, decode_body, decode_key
from pyreplog.log.transaction_index import AbortedRange, parse_aborted
from pyreplog.quorum import ReplicaKey
from pyreplog.quorum.snapshots import SnapshotReader, list_snapshots
from pyreplog.quorum.state_file import decode_state, encode_state
from pyreplog.readers import OffsetsFile, read_queue
from pyreplog.readers.table_store import TableState, decode_table_state, encode_entry, read_table_header
from pyreplog.record import RecordBatch, control_records, convert_legacy, decompress, end_marker, records_of, split
from pyreplog.spool import BatchId, Spool, read_staged
from pyreplog.system import SystemDisk
from pyreplog.testing import SimClock, SimDisk
from pyreplog.values import EpochEntry, QueueStats, TopicPartition
from pyreplog.verify import Level, node_list, states, verify
from pyreplog.verify.tables import table_header
from pyreplog.verify.vote import Vote, quorum_state
from pyreplog.wire import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    PartitionRecord,
    VotersRecord,
    decode_control_record,
    decode_record,
    encode_record,
)
from tests.house.sources import ROOT
from tests.interop.golden import formats, vectors

PAGES = sorted((ROOT / "docs" / "internals" / "format").glob("*.md"))
EXAMPLE = re.compile(r"<!-- golden( bytes)?: (\S+)(?: (\d+):(\d+))? -->\n```text\n(.*?)```", re.DOTALL)
"""The comment above an example: the golden file that it shows (from one byte to another); ``bytes``: in
hexadecimal."""
GOLDEN = {str(path.relative_to(formats.HERE)): path for path in sorted(formats.HERE.rglob("*")) if path.is_file()}


def golden(name: str) -> bytes:
    """One golden file."""
    return GOLDEN[name].read_bytes()


@pytest.fixture
def disk() -> SimDisk:
    """A disk that holds the golden files."""
    made = SimDisk(Random(9))
    for name, path in GOLDEN.items():
        made.make_directory(str(Path(name).parent))
        file = made.create(name)
        file.write_at(0, [path.read_bytes()])
        file.close()
    return made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_shows_golden_bytes(page: Path) -> None:
    """There is a diagram, and at least one example; each is the golden file that it names. What stands behind three
    spaces is a remark."""
    text = page.read_text(encoding="utf-8")
    assert "```text" in EXAMPLE.sub("", text), "no diagram"
    examples = EXAMPLE.findall(text)
    assert examples, "no example"
    assert len(examples) == text.count("<!-- golden"), "a comment without an example below it"
    for hexadecimal, name, start, end, shown in examples:
        data = golden(name)[int(start or 0) : int(end) if end else None]
        if hexadecimal:
            assert bytes.fromhex("".join(line.partition("   ")[0] for line in shown.splitlines())) == data, name
        else:
            assert shown.removesuffix("\n") == data.decode().removesuffix("\n"), name


def test_each_golden_file_is_on_a_page() -> None:
    """Nothing lies there that no page shows."""
    shown = {name for page in PAGES for _, name, _, _, _ in EXAMPLE.findall(page.read_text(encoding="utf-8"))}
    assert shown == set(GOLDEN)


def test_they_are_what_is_written_today() -> None:
    """Byte for byte. Only what a lock says is another thing each time, and compressed batches are Kafka's own."""
    assert formats.golden() == {
        name: path.read_bytes() for name, path in GOLDEN.items() if path.name not in formats.LEFT_OUT
    }


def test_the_root_is_read(disk: SimDisk) -> None:
    """Each file of a root says what its page says."""
    assert read_properties(disk, "root") == {
        "version": "1",
        "cluster.id": formats.CLUSTER_ID,
        "node.id": "1",
        "directory.id": "c6m-9Jm79Nx70qTyyK9b2Q",
    }
    incarnation, farewell = read_incarnation(disk, "root"), read_farewell(disk, "root")
    assert incarnation is not None
    assert farewell is not None
    assert farewell.incarnation_id == incarnation.incarnation_id
    assert incarnation.boot_id == "00000000-0000-4000-8000-000000000001"
    for name, offset in (("recovery-point", 17), ("replication", 17), ("log-start", 2)):
        assert read_offsets(disk, f"root/{name}-offset-checkpoint") == {formats.ORDERS: offset}
    assert read_topic_id(disk, formats.FOLDER) == formats.TOPIC_ID
    assert read_config(disk, formats.FOLDER) == formats.CONFIG
    found = find_mark(disk, formats.FOLDER, topic_id=formats.TOPIC_ID, partition=1)
    assert found is not None
    mark, slot = found
    assert (slot, mark.sequence, mark.synced_end, mark.high_watermark, mark.start_offset) == (0, 11, 17, 17, 2)
    producers = read_snapshot(disk, formats.FOLDER, 17)
    assert producers is not None
    assert [(entry.producer_id, entry.coordinator_epoch) for entry in producers] == [(77, 12), (78, -1)]
    aborted = golden("root/orders-1/00000000000000000000.txnindex")
    assert parse_aborted(aborted, 0, "golden") == [AbortedRange(77, 2, 5, 6)]


def test_the_root_goes_on(disk: SimDisk) -> None:
    """It is opened for writing, as after a clean end, with every record and the history of its leaders."""
    root = LogRoot.open(
        disk, "root", clock=SimClock(formats.TIME_MS), random=Random(4), node_id=1, cluster_id=formats.CLUSTER_ID
    )
    log = root.logs[formats.ORDERS]
    assert root.clean
    assert (log.start_offset, log.end_offset, log.high_watermark) == (2, 17, 17)
    assert log.epochs.entries == [EpochEntry(0, 2), EpochEntry(3, 6), EpochEntry(4, 16)]
    data = b"".join(log.read(2, 1 << 20, 17).parts())
    records = [record for batch in split(data) for record in records_of(batch, *formats.ORDERS)]
    assert [(record.offset, record.value) for record in records] == [
        (n, b"value of %d" % n) for n in range(2, 17) if n != 5
    ]
    root.close()


def test_the_root_is_sound(tmp_path: Path) -> None:
    """What looks at files independently of what wrote them finds nothing wrong."""
    for name, path in GOLDEN.items():
        if name.startswith("root/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(path.read_bytes())
    real = SystemDisk()
    assert verify(real, str(tmp_path / "root")).worst is Level.NOTE
    real.close()


@pytest.mark.parametrize("codec", range(1, 5))
def test_codecs_are_read(codec: int) -> None:
    """The same record is in the batch of each codec."""
    batch = RecordBatch(golden(f"record_batch/{formats.CODECS[codec]}.batch"))
    batch.check_crc()
    assert batch.codec == codec
    assert bytes(decompress(batch)) == vectors.A3_RECORD


def test_a_marker_is_read() -> None:
    """A control batch: the end of a transaction."""
    batch = RecordBatch(golden("record_batch/commit.batch"))
    batch.check_crc()
    marker = end_marker(batch)
    assert marker is not None
    assert (marker.name, marker.offset, marker.coordinator_epoch, batch.is_control) == ("COMMIT", 200, 12, True)


def test_an_old_message_is_read() -> None:
    """Magic 1, as a record."""
    (batch,) = split(convert_legacy(memoryview(golden("legacy/magic-1.message"))))
    (record,) = records_of(batch, "t", 0)
    assert (record.offset, record.key, record.value, record.timestamp) == (7, b"k", b"v", 1_700_000_000_000)


def test_what_recovery_kept_is_part_of_a_batch() -> None:
    """The bytes that were cut, and no others."""
    (name,) = (name for name in GOLDEN if name.startswith("torn/"))
    assert golden(name) == bytes(formats.batch(17, 1, 4))[:40]
    assert name.endswith(f"-0-{len(golden('root/orders-1/00000000000000000000.log'))}-0")


def test_the_journal_of_a_queue_is_read(disk: SimDisk) -> None:
    """Its parts, put where they belong, are the queue that its page tells of."""
    file = disk.create("queue/replog.queue-workers")
    for name, (start, _) in formats.QUEUE_PARTS.items():
        file.write_at(start, [golden(f"queue/{name}")])
    identity, state = read_queue(disk, "queue/replog.queue-workers")
    assert identity == formats.QUEUE
    assert state.acquired == {3: (1, 1, 31_000_000_000), 4: (1, 1, 31_000_000_000), 5: (1, 1, 32_000_000_000)}
    assert state.stats() == QueueStats(6, acquired=3, available=0, accepted=1, dead_letters=1, deleted=3)


def test_a_table_is_read(disk: SimDisk) -> None:
    """Its header and its state, by the library and by verify; an entry of a long key has it in the value."""
    header = read_table_header(golden("table/header"), "header")
    assert (header.is_synced, header.owner, header.store) == (False, formats.TABLE_OWNER, (64768, 1041))
    assert decode_table_state(golden("table/state.value"), formats.TABLE_OWNER) == TableState(5, 7)
    key, value = encode_entry(b"x" * 501, b"v")
    assert (key, value) == (golden("table/long.key"), b"\0\0\1\xf5" + b"x" * 501 + b"v")
    assert table_header(golden("table/header"))["inode"] == 1041


def test_a_stored_image_is_read() -> None:
    """An entry, a mark and a note say what they were made of."""
    key, value = golden("stored_image/entry.key"), golden("stored_image/entry.value")
    record = decode_record(value)
    assert isinstance(record, PartitionRecord)
    assert (record.partition_id, record.topic_id, record.leader_epoch) == (1, formats.TOPIC_ID, 3)
    mark = decode_mark(golden("stored_image/mark.value"))
    assert mark == StoredMark(StoredEnd(1041, 3), 1, entry_sum(key, value))
    note = parse_state(golden("stored_image/replog.image"), "note")
    assert (note["size"], note["crc"]) == ("106135552", "7c1e5d9c")


def test_a_summary_is_read() -> None:
    """An entry counts for its own key and incarnation alone."""
    key, value = golden("db/entry.key"), golden("db/entry.value")
    assert decode_key(key) == formats.ORDERS
    assert checked(key, formats.CLUSTER_ID, value)
    assert not checked(key, formats.TOPIC_ID, value)
    assert decode_body(value[4:]).segments == ((100, 2000), (130, 500))


def test_the_offsets_of_a_reader_are_read(disk: SimDisk) -> None:
    """The commit and the attempts of its page."""
    file = OffsetsFile.open(disk, "readers", "Billing")
    assert file.commit_of("orders", formats.TOPIC_ID, 1) == (17, 3, formats.TIME_MS)
    assert file.attempts_of(formats.TOPIC_ID, 1) == (17, 2)
    assert not file.has_damage
    file.close()


def test_the_spool_is_read(disk: SimDisk) -> None:
    """The manifest names the staged file, whose rows are there; the answer counts."""
    spool = Spool(disk, "spool")
    assert spool.applied("query") == 7
    manifest = spool.take(BatchId("query", 7))
    assert manifest is not None
    (staged,) = read_staged(disk, "spool", manifest.files[0])
    assert (staged.topic_partition, staged.record_count) == (TopicPartition("t", 0), 2)


def test_the_list_of_nodes_is_read() -> None:
    """The folders of a cluster's nodes, and the cluster of a node, as they were given, by the reader and by
    verify."""
    for name, found in (("cluster", (formats.NODES, "")), ("node", ({}, "/srv/data"))):
        data = golden(f"nodes/{name}/replog.nodes")
        assert parse_nodes(parse_state(data, "golden"), "golden") == found == node_list(data)


def test_the_places_of_imports_are_read() -> None:
    """As it was kept."""
    assert parse_places(parse_state(golden("import/replog.import"), "golden"), "golden") == formats.IMPORTS
    assert [one["rows"] for one in states.imports(golden("import/replog.import"))] == [5, 17]


def test_what_a_backup_says_of_itself_is_read(disk: SimDisk) -> None:
    """The note on its page is that of a finished backup; with one bit changed it is that of an unfinished one."""
    assert read_backup_note(disk, "backup") == BackupNote("/srv/events", whole=True)
    disk.flip("backup/replog.backup", 20)
    assert read_backup_note(disk, "backup") == BackupNote("", whole=False)


def test_the_controllers_state_is_read() -> None:
    """The state on its page, read."""
    state = decode(golden("controller/replog.controller"), "golden")
    assert [topic.name for topic in state.image.topics.values()] == ["orders"]


def test_the_metadata_log_is_read(disk: SimDisk) -> None:
    """The records of the log are those of its snapshot, and each is written as it was."""
    folder = formats.METADATA_FOLDER
    voters, records = split(golden(f"{folder}/{0:020}.log"))
    (change,) = control_records(voters)
    assert isinstance(decode_control_record(change.key, change.value), LeaderChangeMessage)
    values = [record.value or b"" for record in records_of(records)]
    assert [encode_record(decode_record(value)) for value in values] == values
    (snapshot_id,) = list_snapshots(disk, folder)
    reader = SnapshotReader(disk, folder, snapshot_id)
    assert list(reader.records()) == values
    assert [type(decode_control_record(entry.key, entry.value)) for entry in reader.control()] == [
        KRaftVersionRecord,
        VotersRecord,
    ]


def test_the_quorums_state_is_read() -> None:
    """The epoch and the vote on its page."""
    data = golden(f"{formats.METADATA_FOLDER}/quorum-state")
    state = decode_state(data, "golden")
    assert (state.epoch, state.voted) == (5, ReplicaKey(2, formats.DIRECTORY_ID))
    assert encode_state(state) == data
    assert quorum_state(data) == Vote(5, 2, 2, formats.DIRECTORY_ID)


def test_a_lock_is_read(tmp_path: Path) -> None:
    """Who is refused gets the holder's text."""
    path = tmp_path / ".lock"
    disk = SystemDisk()
    held = disk.lock(str(path), "")
    path.write_bytes(golden("lock/.lock"))
    with pytest.raises(LockedError) as refused:
        disk.lock(str(path), "")
    assert golden("lock/.lock").decode() in str(refused.value)
    held.release()
    assert path.read_bytes() == b""
    disk.close()
