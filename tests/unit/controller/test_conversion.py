"""The metadata of a version-0.1 cluster moves to its voters whole, or not at all, whatever call is its last."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from pyreplog import Cluster, ConfigError, open_log
from pyreplog.controller import ControllerState, MetadataImage, encode, load
from pyreplog.controller.conversion import convert_cluster
from pyreplog.controller.layout import STATE_FILE
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log import CONVERTED_NAME, METADATA_FOLDER, LogRoot, MetadataFolder, newest_metadata
from pyreplog.quorum import Identity, QuorumConfig, RaftNode, ReplicaKey, TimerDue, Voter, VoterSet
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.testing import SimClock, SimDisk
from pyreplog.testing.crash import crash_points, error_points
from pyreplog.verify import Level, Report, verify
from pyreplog.verify.metadata import check_metadata
from pyreplog.wire import SuspectReplica, decode_record
from tests.interop.golden import cluster_0_1, own
from tests.oracle import metadata_folder as made

HOME = "data"
CLUSTER_ID = own.TOPIC_ID
CONFIG = QuorumConfig()


def state(offset: int = 41) -> ControllerState:
    """The state of a cluster with everything that a controller's file keeps."""
    image = own.controller().image
    image.offset = offset
    image.defaults = {"retention.ms": "7"}
    topic = image.topics[own.TOPIC_ID]
    topic.partitions[0] = topic.partitions[0]._replace(suspects=(SuspectReplica(2, 3, 100),), unclean_epoch=2)
    image.settle(topic)
    return ControllerState(CLUSTER_ID, image)


def make(disk: SimDisk, nodes: int = 3) -> dict[int, str]:
    """A closed cluster as version 0.1 leaves it: roots with their ids, and the controller's file. Return the roots."""
    disk.make_directory(HOME)
    roots = {number: f"{HOME}/node-{number}" for number in range(1, nodes + 1)}
    for number, path in roots.items():
        random = Random(number)
        root = LogRoot.open(disk, path, clock=SimClock(), random=random, node_id=number, cluster_id=CLUSTER_ID)
        root.close()
    put(disk, state())
    disk.sync_directory(".")
    return roots


def put(disk: SimDisk, content: ControllerState) -> None:
    """Write the controller's file, durably."""
    path = f"{HOME}/{STATE_FILE}"
    if disk.stat(path) is not None:
        disk.remove(path)
    file = disk.create(path)
    file.write_at(0, [encode(content)])
    file.sync()
    file.close()
    disk.sync_directory(HOME)


def directory_of(disk: SimDisk, root: str) -> str:
    """The directory id of a root."""
    file = disk.open(f"{root}/meta.properties")
    try:
        lines = bytes(file.read_at(0, file.size())).decode().splitlines()
    finally:
        file.close()
    (found,) = [line.partition("=")[2] for line in lines if line.startswith("directory.id=")]
    return found


def voters_of(disk: SimDisk, roots: dict[int, str]) -> VoterSet:
    """The voters in these roots."""
    return VoterSet(
        Voter.at(ReplicaKey(number, directory_of(disk, root)), f"controller-{number}") for number, root in roots.items()
    )


def convert(disk: SimDisk, roots: dict[int, str], voters: VoterSet | None = None) -> int | None:
    """Convert; return where the voters' logs begin."""
    found = convert_cluster(disk, HOME, voters or voters_of(disk, roots), roots, SimClock(), CONFIG)
    return None if found is None else found.end_offset


def check_converted(disk: SimDisk, roots: Sequence[str], content: ControllerState) -> None:
    """Every voter has all of the state, and the file has its other name."""
    assert disk.stat(f"{HOME}/{STATE_FILE}") is None
    assert disk.stat(f"{HOME}/{CONVERTED_NAME}") is not None
    for root in roots:
        folder = MetadataFolder(disk, f"{root}/{METADATA_FOLDER}")
        assert folder.end() == (0, content.image.offset + 1)
        rebuilt = MetadataImage()
        for value in folder.records():
            rebuilt.apply(0, decode_record(value))
        rebuilt.offset = content.image.offset
        assert encode(ControllerState(CLUSTER_ID, rebuilt)) == encode(content)
        book = Report()
        check_metadata(disk, f"{root}/{METADATA_FOLDER}", book)
        assert [one for one in book.findings if one.level is not Level.NOTE] == []


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_whole_state_is_kept(nodes: int) -> None:
    """Brokers, topics, settings, suspects, ids and epochs; the log begins behind the state's offset."""
    disk = SimDisk(Random(1))
    roots = make(disk, nodes)
    assert convert(disk, roots) == 42
    check_converted(disk, list(roots.values()), state())
    assert convert(disk, roots) is None


def test_a_quorum_goes_on_where_the_file_ended() -> None:
    """The only voter elects itself, and its first record has the next offset."""
    disk = SimDisk(Random(1))
    roots = make(disk, 1)
    voters = voters_of(disk, roots)
    convert(disk, roots, voters)
    clock = SimClock()
    (voter,) = voters
    node = RaftNode.open(
        disk,
        f"{roots[1]}/{METADATA_FOLDER}",
        Identity(1, voter.directory_id, CLUSTER_ID),
        CONFIG,
        clock,
        Random(1),
        endpoint="controller-1",
        now_ns=clock.monotonic_ns(),
    )
    for _ in range(3):
        node.step(TimerDue(), clock.monotonic_ns())
    assert node.is_leader
    assert node.voters == voters
    assert node.append([b"\1\x14\0\0"], clock.monotonic_ns()).first_offset == 43  # behind the record of its leader
    assert newest_metadata(disk, [roots[1]]) == roots[1]


def check_conversion(disk: SimDisk, acknowledged: Sequence[str]) -> None:
    """Convert what a crash or an error left; acknowledged: ``made``, then ``converted``."""
    if not acknowledged:
        return  # the cluster itself was being made
    roots = {number: f"{HOME}/node-{number}" for number in (1, 2, 3)}
    if acknowledged[-1] == "converted":
        assert load(disk, HOME) is None
    convert(disk, roots)
    check_converted(disk, list(roots.values()), state())


def test_every_crash_leaves_a_cluster_that_the_next_call_converts() -> None:
    """At each call the file counts until all voters have the state; then the voters do."""

    def work(disk: SimDisk, acknowledged: list[str]) -> None:
        roots = make(disk)
        acknowledged.append("made")
        convert(disk, roots)
        acknowledged.append("converted")

    report = crash_points(work, check_conversion, seed=6, damages=3, every=3)
    assert report.states > 100


def test_a_refused_call_leaves_a_cluster_that_the_next_call_converts() -> None:
    """Errors of the disk are raised, and nothing is lost."""

    def work(disk: SimDisk, acknowledged: list[str]) -> None:
        roots = make(disk)
        acknowledged.append("made")
        convert(disk, roots)

    report = error_points(work, check_conversion, seed=5, every=17, first=190)
    assert report.errors > 60


def test_an_older_conversion_that_was_cut_short_is_made_again() -> None:
    """Version 0.1 may have gone on with the file since."""
    disk = SimDisk(Random(1))
    roots = make(disk)
    convert(disk, roots)
    disk.remove(f"{HOME}/{CONVERTED_NAME}")
    later = state(57)
    put(disk, later)
    assert convert(disk, roots) == 58
    check_converted(disk, list(roots.values()), later)


def test_less_than_a_majority_is_refused() -> None:
    """The error says which folders are missing; another disk in the place of a voter's counts as missing."""
    disk = SimDisk(Random(1))
    roots = make(disk)
    voters = voters_of(disk, roots)
    with pytest.raises(
        StorageError, match=r"folders of 2 of its voters, 1, 2, 3, are there. Those of 2, 3 are missing"
    ):
        convert(disk, {1: roots[1]}, voters)
    others = VoterSet(voter if voter.node_id == 1 else voter._replace(directory_id=own.GENERATION) for voter in voters)
    with pytest.raises(StorageError, match=r"Those of 2, 3 are missing, or are not the ones"):
        convert(disk, roots, others)
    assert load(disk, HOME) is not None
    assert all(disk.stat(f"{root}/{METADATA_FOLDER}") is None for root in roots.values())


def test_a_voter_that_is_away_does_not_stop_it() -> None:
    """A majority is enough; the folder that is away gets nothing."""
    disk = SimDisk(Random(1))
    roots = make(disk)
    voters = voters_of(disk, roots)
    assert convert(disk, {1: roots[1], 3: roots[3]}, voters) == 42
    check_converted(disk, [roots[1], roots[3]], state())
    assert disk.stat(f"{roots[2]}/{METADATA_FOLDER}") is None


@pytest.mark.parametrize("case", ["an older file", "other records", "a used quorum", "converted before"])
def test_two_states_that_disagree_are_refused_with_both_named(case: str) -> None:
    """A file of version 0.1 beside a metadata log that is not made of it: nothing is changed."""
    disk = SimDisk(Random(1))
    roots = make(disk)
    convert(disk, roots)
    other = f"{HOME}/node-1/{METADATA_FOLDER}"
    if case != "converted before":
        disk.remove(f"{HOME}/{CONVERTED_NAME}")
    content = state()
    if case == "an older file":
        content = state(12)
    elif case == "other records":
        content.image.defaults = {"retention.ms": "8"}
    elif case == "a used quorum":
        (name,) = [name for name in disk.list(other) if name.endswith(".log")]
        file = disk.open(f"{other}/{name}", write=True)
        file.write_at(file.size(), [made.batch(42, 1, [made.leader_change()])])
        file.close()
        disk.rename(f"{other}/{name}", f"{other}/{42:020}.log")
    else:
        content = state(43)
        other = f"{HOME}/{CONVERTED_NAME}"
    put(disk, content)
    with pytest.raises(CorruptError, match="two states of one cluster") as caught:
        convert(disk, roots)
    assert f"{HOME}/{STATE_FILE}" in str(caught.value)
    assert other in str(caught.value)
    assert load(disk, HOME) is not None


def test_no_field_of_the_image_is_forgotten() -> None:
    """A field that a later version adds to the file must be added to the records too, and here. The file has no
    feature levels, so a converted cluster begins at level 0, and no cordons."""
    names = {name for name in MetadataImage.__slots__ if not name.startswith("_")}
    kept = {"brokers", "defaults", "next_producer_id", "offset", "topic_ids", "topics"}
    assert names == {*kept, "cordoned", "feature_levels"}
    assert dataclasses.is_dataclass(SuspectReplica)


def test_a_folder_that_version_0_1_wrote(tmp_path: Path) -> None:
    """The golden folder converts: its topics, ids, epochs and members are those of its file, and readers see the same
    records as before."""
    home = cluster_0_1.unpack(tmp_path)
    disk = SystemDisk()
    before = load(disk, str(home))
    assert before is not None
    assert (before.cluster_id, before.image.offset) == (cluster_0_1.CLUSTER_ID, cluster_0_1.OFFSET)
    roots = {number: str(home / f"node-{number}") for number in (1, 2, 3)}
    voters = VoterSet(
        Voter.at(ReplicaKey(number, before.image.brokers[number].log_dirs[0]), f"controller-{number}")
        for number in roots
    )
    found = convert_cluster(disk, str(home), voters, roots, SystemClock(), CONFIG)
    assert found is not None
    assert found.end_offset == cluster_0_1.OFFSET + 1
    assert encode(found.state) == encode(before) == (home / CONVERTED_NAME).read_bytes()
    for root in roots.values():
        rebuilt = MetadataImage()
        for value in MetadataFolder(disk, f"{root}/{METADATA_FOLDER}").records():
            rebuilt.apply(cluster_0_1.OFFSET, decode_record(value))
        assert encode(ControllerState(before.cluster_id, rebuilt)) == encode(before)
    with Cluster(home, mode="r") as reader:
        assert reader.topics() == ["orders", "single"]
    values: set[bytes | None] = set()
    for number in (0, 1):
        with open_log(home, mode="r", topic="orders", partition=number) as log:
            values |= {record.value for record in log.read(start=0)}
    assert values == cluster_0_1.VALUES
    assert [one for one in verify(disk, str(home)).findings if one.level is Level.DAMAGE] == []
    with pytest.raises(ConfigError, match="belongs to a cluster"):
        open_log(home / "node-1")
