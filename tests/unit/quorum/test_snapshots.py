"""Snapshot files: written, read, copied in pieces, and refused if anything in them is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from pyreplog.errors import CorruptError, LocalProtocolError, StorageError
from pyreplog.log import parent_of
from pyreplog.quorum.snapshots import (
    PartialSnapshot,
    SnapshotReader,
    SnapshotWriter,
    list_snapshots,
    parse_snapshot_name,
    remove_parts,
    remove_snapshot,
    snapshot_name,
    write_snapshot,
)
from pyreplog.system import SystemDisk
from pyreplog.testing import SimDisk, crash_points
from pyreplog.wire import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    QuorumEndpoint,
    SnapshotId,
    TopicRecord,
    VotersRecord,
    VotersRecordVoter,
    decode_control_record,
    decode_record,
    encode_control_record,
    encode_record,
)
from tests.interop.golden import units

FOLDER = "root/__cluster_metadata-0"
ID = SnapshotId(1234, 7)
CONTROL = [encode_control_record(KRaftVersionRecord(1)), encode_control_record(VotersRecord([]))]
RECORDS = [encode_record(TopicRecord(f"topic-{number}", "x8eZxIiI6FzqjrRRbN2Wdw")) for number in range(20)]


@pytest.fixture
def disk() -> SimDisk:
    """A disk with the folder."""
    made = SimDisk(Random(3))
    made.make_directory(FOLDER)
    return made


def written(disk: SimDisk, snapshot_id: SnapshotId = ID, records: Sequence[bytes] = RECORDS) -> str:
    """Write a snapshot."""
    return write_snapshot(disk, FOLDER, snapshot_id, CONTROL, records, timestamp_ms=5, last_timestamp_ms=4)


def content(disk: SimDisk, name: str) -> bytes:
    """The bytes of a file."""
    file = disk.open(f"{FOLDER}/{name}")
    return bytes(file.read_at(0, file.size()))


def put(disk: SimDisk, data: bytes, snapshot_id: SnapshotId = ID) -> None:
    """A file of a snapshot with these bytes."""
    file = disk.create(f"{FOLDER}/{snapshot_name(snapshot_id)}")
    file.write_at(0, [data])
    file.close()


def test_round_trip(disk: SimDisk) -> None:
    """Control records and records come back; the name says end and epoch; nothing else is left in the folder."""
    assert written(disk) == "00000000000000001234-0000000007.checkpoint"
    assert disk.list(FOLDER) == ["00000000000000001234-0000000007.checkpoint"]
    reader = SnapshotReader(disk, FOLDER, ID)
    reader.check()
    assert [(entry.key, entry.value) for entry in reader.control()] == CONTROL
    assert list(reader.records()) == RECORDS
    reader.close()


def test_many_batches(disk: SimDisk) -> None:
    """A large state is written in slices, as it comes."""
    records = [encode_record(TopicRecord("t" * 1000, "x8eZxIiI6FzqjrRRbN2Wdw"))] * 700
    writer = SnapshotWriter(disk, FOLDER, ID, CONTROL, timestamp_ms=5)
    for start in range(0, 700, 100):
        writer.append(records[start : start + 100])
    assert disk.list(FOLDER) == [snapshot_name(ID) + ".part"]
    assert list_snapshots(disk, FOLDER) == []
    writer.finish()
    reader = SnapshotReader(disk, FOLDER, ID)
    assert list(reader.records()) == records
    assert reader.size > 700_000


def test_an_empty_state(disk: SimDisk) -> None:
    """The first snapshot of a quorum has voters and nothing else."""
    written(disk, SnapshotId(0, 0), [])
    reader = SnapshotReader(disk, FOLDER, SnapshotId(0, 0))
    assert len(reader.control()) == 2
    assert list(reader.records()) == []


def test_names(disk: SimDisk) -> None:
    """Only whole names are snapshots, in the order of their ends; one that is removed is gone."""
    for end, epoch in ((10, 2), (9, 1), (10, 3)):
        written(disk, SnapshotId(end, epoch), [])
    for name in (
        "leader-epoch-checkpoint",
        "1-2.checkpoint",
        snapshot_name(ID) + ".part",
        "9" * 20 + "-0000000001" + ".checkpoint",
    ):
        disk.create(f"{FOLDER}/{name}").close()
        assert parse_snapshot_name(name) is None
    assert list_snapshots(disk, FOLDER) == [SnapshotId(9, 1), SnapshotId(10, 2), SnapshotId(10, 3)]
    remove_snapshot(disk, FOLDER, SnapshotId(10, 2))
    remove_parts(disk, FOLDER)
    assert list_snapshots(disk, FOLDER) == [SnapshotId(9, 1), SnapshotId(10, 3)]
    assert snapshot_name(ID) + ".part" not in disk.list(FOLDER)


def test_every_bit_counts(disk: SimDisk) -> None:
    """With any bit flipped, cut anywhere, or made longer, a snapshot is refused with its file and position."""
    written(disk, records=RECORDS[:2])
    whole = content(disk, snapshot_name(ID))
    other = SnapshotId(9999, 7)
    damaged = [whole[:size] for size in range(len(whole))] + [whole + b"\0", whole + whole]
    for position in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            damaged.append(bytes(flipped))
    for data in damaged:
        put(disk, data, other)
        with pytest.raises(CorruptError) as caught:
            SnapshotReader(disk, FOLDER, other).check()
        assert caught.value.file == f"{FOLDER}/{snapshot_name(other)}"
        assert caught.value.position is not None
        disk.remove(f"{FOLDER}/{snapshot_name(other)}")


def test_a_snapshot_of_another_epoch(disk: SimDisk) -> None:
    """The epoch of the name is that of the batches."""
    written(disk)
    put(disk, content(disk, snapshot_name(ID)), SnapshotId(1234, 8))
    with pytest.raises(CorruptError, match="epoch 7, the snapshot 8"):
        SnapshotReader(disk, FOLDER, SnapshotId(1234, 8)).check()


@pytest.mark.parametrize("piece", [1, 100, 1 << 20])
def test_copied_in_pieces(disk: SimDisk, piece: int) -> None:
    """A node copies the leader's bytes, and has the same file when it is whole."""
    written(disk)
    source = SnapshotReader(disk, FOLDER, ID)
    target = SimDisk(Random(4))
    target.make_directory(FOLDER)
    partial = PartialSnapshot(target, FOLDER, ID)
    while partial.position < source.size:
        partial.append(partial.position, source.read(partial.position, piece))
        assert list_snapshots(target, FOLDER) == []
    partial.finish()
    assert [(entry.key, entry.value) for entry in partial.control()] == CONTROL
    assert content(target, snapshot_name(ID)) == content(disk, snapshot_name(ID))
    with pytest.raises(LocalProtocolError, match="a piece of a snapshot at 5"):
        PartialSnapshot(target, FOLDER, ID).append(5, b"x")


def test_a_damaged_copy(disk: SimDisk) -> None:
    """A copy that is damaged or not whole does not get a snapshot's name, and its file is removed."""
    written(disk)
    data = content(disk, snapshot_name(ID))
    for wrong in (data[:-1], data[:-75], b"", data[:100] + b"\xff" + data[101:], data + data[:60]):
        partial = PartialSnapshot(disk, FOLDER, SnapshotId(5000, 7))
        for position in range(0, len(wrong), 50):
            partial.append(position, wrong[position : position + 50])
        with pytest.raises(CorruptError):
            partial.finish()
        assert disk.list(FOLDER) == [snapshot_name(ID)]


def test_a_full_disk(disk: SimDisk) -> None:
    """If the disk refuses, there is no snapshot, and no file of one is left."""
    for operation in ("create", "write", "sync", "rename"):
        disk.fail(operation)
        with pytest.raises(StorageError):
            written(disk)
        disk.clear_faults()
        assert disk.list(FOLDER) == []
    written(disk)
    assert list_snapshots(disk, FOLDER) == [ID]


def test_power_loss_at_any_call() -> None:
    """A snapshot that has its name after a power loss is whole; one that was returned has its name."""

    def workload(disk: SimDisk, acknowledged: list[SnapshotId]) -> None:
        disk.make_directory(FOLDER)
        disk.sync_directory("root")
        disk.sync_directory(parent_of("root"))
        for end in (5, 9):
            written(disk, SnapshotId(end, 1))
            acknowledged.append(SnapshotId(end, 1))

    def check(disk: SimDisk, acknowledged: Sequence[SnapshotId]) -> None:
        found = list_snapshots(disk, FOLDER) if disk.stat(FOLDER) is not None else []
        assert all(snapshot_id in found for snapshot_id in acknowledged)
        for snapshot_id in found:
            reader = SnapshotReader(disk, FOLDER, snapshot_id)
            assert list(reader.records()) == RECORDS

    report = crash_points(workload, check, seed=1)
    assert report.states > 100


def test_a_broker_s_snapshots() -> None:
    """Snapshots that Kafka wrote are read, and written again with the same records."""
    disk = SystemDisk()
    folder = str(units.unit("clean-4.1.0") / "data" / "__cluster_metadata-0")
    found = list_snapshots(disk, folder)
    assert len(found) == 3
    for snapshot_id in found:
        reader = SnapshotReader(disk, folder, snapshot_id)
        reader.check()
        assert [decode_control_record(entry.key, entry.value) for entry in reader.control()] == []
        records = list(reader.records())
        assert len(records) > 100
        assert all(decode_record(value) is not None for value in records)
        reader.close()
    assert (Path(folder) / snapshot_name(found[-1])).exists()


KAFKAS_FIRST = bytes.fromhex(
    "00000000000000000000009a0000000002ddb3d47f002000000002000001a21f27fdd3000001a21f27fdd3ffffffffffffffffffffffffffff"
    "000000032a0000000800000003160000000001a21f27fdc800001e00000208000000050a000000010000820100000408000000066e00000200"
    "000001e7fe75c0c088417385ed559c08f033c6020b434f4e54524f4c4c45520a3132372e302e302e3172090000000001000000000000000000"
    "0000030000003f0000000002785d06d1002000000000000001a21f27fded000001a21f27fdedffffffffffffffffffffffffffff000000011a"
    "00000008000000040600000000"
)
"""The snapshot 0-0 that Kafka 4.1.0's ``kafka-storage format --standalone`` wrote."""


def test_the_first_snapshot_is_kafkas(disk: SimDisk) -> None:
    """For the same voter and times our first snapshot has Kafka's bytes."""
    voter = VotersRecordVoter(
        1, "5_51wMCIQXOF7VWcCPAzxg", [QuorumEndpoint("CONTROLLER", "127.0.0.1", 29193)], KRaftVersionFeature(0, 1)
    )
    control = [encode_control_record(KRaftVersionRecord(1)), encode_control_record(VotersRecord([voter]))]
    first = SnapshotId(0, 0)
    writer = SnapshotWriter(disk, FOLDER, first, control, timestamp_ms=1795819044307, last_timestamp_ms=1795819044296)
    assert content(disk, writer.finish(1795819044333)) == KAFKAS_FIRST
    reader = SnapshotReader(disk, FOLDER, first)
    assert [(entry.key, entry.value) for entry in reader.control()] == control
