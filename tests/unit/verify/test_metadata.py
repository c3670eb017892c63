"""What `verify` says of a cluster's metadata log: nothing while it is whole, and of every damage the file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreplog import Cluster
from pyreplog.system import SystemDisk
from pyreplog.verify import Level, Report, verify
from pyreplog.verify.metadata import check_metadata, newest_metadata
from pyreplog.verify.metadata_records import MetadataState
from pyreplog.wire import MetadataRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from pyreplog.wire.control_records import SnapshotFooterRecord
from pyreplog.wire.metadata_codec import encode_record
from tests.interop.golden.cluster_0_1 import as_version_0_1
from tests.interop.golden.units import copy_of, manifest, unit
from tests.oracle import metadata_folder as made
from tests.unit.verify.support import flip

DISK = SystemDisk()
TOPIC_ID = "x8eZxIiI6FzqjrRRbN2Wdw"
ORDERS: list[MetadataRecord] = [
    TopicRecord("orders", TOPIC_ID),
    PartitionRecord(0, TOPIC_ID, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0),
]
CHANGE = PartitionChangeRecord(0, TOPIC_ID, isr=[1], leader=1)
WITH_METADATA = [
    "clean-3.9.1",
    "clean-4.1.0",
    "clean-4.3.1",
    "cluster-3.9.1/n1",
    "cluster-4.1.0/n1",
    "cluster-4.3.1/n1",
]


def look(folder: Path) -> Report:
    """The findings about one metadata folder."""
    book = Report()
    check_metadata(DISK, str(folder), book)
    return book


def whole(root: Path) -> Path:
    """A folder with a snapshot up to offset 3 of epoch 2, and two records behind it."""
    return made.write(root, [CHANGE, CHANGE], start=3, epoch=2, snapshots=[(3, 2, ORDERS)])


@pytest.mark.parametrize("name", WITH_METADATA)
def test_a_brokers_metadata_is_whole(name: str) -> None:
    """Nothing is said of any that a broker wrote, and its newest state names the topics that have folders."""
    folder = unit(name) / "data" / made.NAME
    assert look(folder).findings == []
    facts = check_metadata(DISK, str(folder), Report())
    topics = {partition["topic"] for partition in manifest(name)["partitions"]} - {"__cluster_metadata"}
    assert {*facts.state.topics.values()} >= topics
    assert facts.state.unknown == {}


def test_a_whole_folder_of_ours(tmp_path: Path) -> None:
    """The records behind the snapshot are applied to its state."""
    folder = whole(tmp_path)
    assert look(folder).findings == []
    facts = check_metadata(DISK, str(folder), Report())
    (found,) = facts.state.partitions.values()
    assert (facts.last_epoch, facts.end) == (2, 5)
    assert (found.isr, found.leader_epoch, found.partition_epoch) == ([1], 2, 2)


def remove(name: str) -> Callable[[Path], None]:
    """Remove a file."""
    return lambda folder: (folder / name).unlink()


def older_vote(folder: Path) -> None:
    """Put back the vote of an earlier epoch."""
    (folder / "quorum-state").write_bytes(made.quorum_state(1))


def older_vote_with_its_voucher(folder: Path) -> None:
    """Put back both files of an earlier epoch: they agree with one another, and not with the log."""
    older_vote(folder)
    (folder / "replog.quorum").write_bytes(made.voucher(1, b""))


def second_epoch_without_leader(folder: Path) -> None:
    """Let the log go on in an epoch that no leader began."""
    with open(folder / f"{3:020}.log", "ab") as file:
        file.write(made.batch(5, 3, [CHANGE]))
    (folder / "quorum-state").write_bytes(made.quorum_state(3))
    (folder / "replog.quorum").write_bytes(made.voucher(3, b""))


def of_another_epoch(folder: Path) -> None:
    """Give the snapshot another epoch than the log has there."""
    log = folder / f"{0:020}.log"
    (folder / f"{3:020}.log").unlink()
    log.write_bytes(made.batch(0, 2, [made.leader_change()]) + made.batch(1, 2, ORDERS) + made.batch(3, 2, [CHANGE]))
    (folder / made.snapshot_name(3, 2)).rename(folder / made.snapshot_name(3, 1))


def append(record: object) -> Callable[[Path], None]:
    """Append a record to the log."""

    def change(folder: Path) -> None:
        with open(folder / f"{3:020}.log", "ab") as file:
            file.write(made.batch(5, 2, [record]))  # type: ignore[list-item]

    return change


SNAPSHOT = made.snapshot_name(3, 2)
DAMAGE: list[tuple[str, Callable[[Path], object], str, str]] = [
    ("a flipped bit in a snapshot", lambda folder: flip(folder / SNAPSHOT, 100), SNAPSHOT, "snapshot is damaged"),
    (
        "a snapshot without its footer",
        lambda folder: (folder / SNAPSHOT).write_bytes(
            (folder / SNAPSHOT).read_bytes()[: -len(made.batch(3, 2, [SnapshotFooterRecord()]))]
        ),
        SNAPSHOT,
        "does not end with a footer",
    ),
    (
        "a snapshot that was cut within a batch",
        lambda folder: (folder / SNAPSHOT).write_bytes((folder / SNAPSHOT).read_bytes()[:-5]),
        SNAPSHOT,
        "snapshot is damaged",
    ),
    ("no snapshot", remove(SNAPSHOT), "", "begins at offset 3, and no snapshot is whole"),
    ("an epoch without its leader", second_epoch_without_leader, f"{3:020}.log", "does not begin with the record"),
    ("a snapshot of another epoch", of_another_epoch, made.snapshot_name(3, 1), "ends in epoch 1, and the log has"),
    ("no vote", remove("quorum-state"), "quorum-state", "may vote twice"),
    ("no voucher", remove("replog.quorum"), "replog.quorum", "vouches for quorum-state is missing"),
    ("an older vote", older_vote, "quorum-state", "not the file that replog.quorum vouches for"),
    (
        "an older vote and voucher",
        older_vote_with_its_voucher,
        "quorum-state",
        "knows epoch 1, and the log has epoch 2",
    ),
    ("a flipped bit in the vote", lambda folder: flip(folder / "quorum-state", 30), "quorum-state", ""),
    ("a flipped bit in the voucher", lambda folder: flip(folder / "replog.quorum", 1100), "replog.quorum", "no slot"),
    ("a change without its partition", append(PartitionChangeRecord(9, TOPIC_ID)), f"{3:020}.log", "no record made"),
    ("bytes that are no record", append(b"\1\2\0"), f"{3:020}.log", "no metadata record"),
]


@pytest.mark.parametrize(
    ("change", "name", "text"), [case[1:] for case in DAMAGE], ids=[case[0].replace(" ", "-") for case in DAMAGE]
)
def test_damage_is_found(tmp_path: Path, change: Callable[[Path], object], name: str, text: str) -> None:
    """Each is reported as damage of its file, once the folder is one of ours."""
    folder = whole(tmp_path)
    (folder / "replog.mark").touch()  # a mark of ours, which this check does not read
    change(folder)
    found = [one for one in look(folder).findings if one.level is Level.DAMAGE]
    assert [one for one in found if one.path == str(folder / name).rstrip("/") and text in one.what], found


def test_a_vote_whose_change_was_cut_short_is_no_damage(tmp_path: Path) -> None:
    """The voucher is written first, and vouches for the state before, too."""
    folder = whole(tmp_path)
    (folder / "replog.quorum").write_bytes(made.voucher(3, made.quorum_state(2)))
    (finding,) = look(folder).findings
    assert (finding.level, finding.path) == (Level.NOTE, str(folder / "quorum-state"))


def test_unknown_records_are_a_note(tmp_path: Path) -> None:
    """A newer version may write kinds of records that this one does not know."""
    folder = whole(tmp_path)
    with open(folder / f"{3:020}.log", "ab") as file:
        file.write(made.batch(5, 2, [bytes([1, 77, 3, 1, 2]), bytes([1, 2, 9, 1]), bytes([1, 77, 3])]))
    assert [(one.level, one.what.partition(",")[0]) for one in look(folder).findings] == [
        (Level.NOTE, "1 records of kind 2"),
        (Level.NOTE, "2 records of kind 77"),
    ]


def test_an_older_snapshot_may_be_damaged(tmp_path: Path) -> None:
    """While a newer one is whole, it is a warning; nothing needs it."""
    folder = whole(tmp_path)
    (folder / made.snapshot_name(1, 1)).write_bytes(b"x")
    assert [one.level for one in look(folder).findings] == [Level.WARNING]


def test_records_of_an_aborted_transaction_do_not_count() -> None:
    """Those of a committed one do, at its end."""
    state = MetadataState()
    topic = [encode_record(record) for record in ORDERS]
    begin, end, abort = bytes([1, 23, 0, 0]), bytes([1, 24, 0, 0]), bytes([1, 25, 0, 0])
    for value in (begin, *topic, abort):
        state.apply(value)
    assert not state.topics
    for value in (begin, *topic):
        state.apply(value)
    assert not state.topics
    state.apply(end)
    assert list(state.topics.values()) == ["orders"]


def cluster(path: Path) -> None:
    """Make a cluster of two nodes with one topic, and give its state to metadata logs instead of the controller's
    file."""
    with Cluster(path, nodes=2) as opened:
        opened.admin.create_topic("orders", replication_factor=2)
        found = opened.admin.describe("orders")
        leader, epoch = found.partitions[0].leader, found.partitions[0].leader_epoch
    as_version_0_1(path).unlink()
    records: list[MetadataRecord] = [
        TopicRecord("orders", found.topic_id),
        PartitionRecord(0, found.topic_id, [1, 2], [1, 2], leader=leader, leader_epoch=epoch, partition_epoch=0),
    ]
    made.write(path / "node-1", records)
    made.write(path / "node-2", records[:1])  # it has not got the last record


def damage_of(path: Path) -> list[tuple[str, str]]:
    """(path, text) of all damage below ``path``."""
    return [(one.path, one.what) for one in verify(DISK, str(path)).findings if one.level is not Level.NOTE]


def test_a_cluster_without_a_controllers_file_is_compared_with_its_metadata(tmp_path: Path) -> None:
    """The newest log among the nodes counts: it knows the partition that the other one lacks."""
    path = tmp_path / "data"
    cluster(path)
    assert damage_of(path) == []
    newest = newest_metadata(DISK, [str(path / "node-2"), str(path / "node-1")])
    assert newest is not None
    assert newest.path == str(path / "node-1" / made.NAME)
    for number in (1, 2):
        shutil.rmtree(path / f"node-{number}" / "orders-0")
    found = damage_of(path)
    assert [text for file, text in found if file == newest.path] == [
        "orders-0 has no folder: its copies are on node 1, 2"
    ]


def test_a_folder_that_the_metadata_does_not_know(tmp_path: Path) -> None:
    """A metadata log that is older than the folders is reported at each of them, as an older controller's file is."""
    path = tmp_path / "data"
    cluster(path)
    for number in (1, 2):
        shutil.rmtree(path / f"node-{number}" / made.NAME)
        made.write(path / f"node-{number}", [])
    found = damage_of(path)
    assert [file for file, text in found if "does not know this topic" in text] == [
        str(path / f"node-{number}" / "orders-0") for number in (1, 2)
    ]


@pytest.mark.parametrize("case", ["a tail of its own", "another record below a common one"])
def test_the_logs_of_two_nodes_agree_below_their_last_common_batch(tmp_path: Path, case: str) -> None:
    """Raft's log matching: a deposed leader may have records of its own at the end, and nowhere else."""
    path = tmp_path / "data"
    cluster(path)
    log = path / "node-2" / made.NAME / f"{0:020}.log"
    record = [TopicRecord("other", TOPIC_ID)]
    if case == "a tail of its own":
        log.write_bytes(log.read_bytes() + made.batch(2, 1, record))
        assert damage_of(path) == []
        return
    whole_log = (path / "node-1" / made.NAME / f"{0:020}.log").read_bytes()
    first = made.batch(0, 1, [made.leader_change()])
    second = len(log.read_bytes()) - len(first)
    log.write_bytes(first + made.batch(1, 1, record) + whole_log[len(first) + second :])
    assert [file for file, text in damage_of(path) if "another batch at offset 1 than" in text] == [str(log.parent)]


def test_a_metadata_folder_without_a_segment_is_checked(tmp_path: Path) -> None:
    """A new node has only the snapshot that formatting wrote, and its vote."""
    root = copy_of("clean-4.3.1", tmp_path / "broker")
    shutil.rmtree(root / made.NAME)
    folder = made.write(root, [], epoch=0, snapshots=[(0, 0, [])])
    for name in (f"{0:020}.log", "leader-epoch-checkpoint", "partition.metadata"):
        (folder / name).unlink()
    assert damage_of(root) == []
    flip(folder / made.snapshot_name(0, 0), 30)
    assert [file for file, _ in damage_of(root)] == [str(folder / made.snapshot_name(0, 0))]
