"""A log root: lock, identity, incarnations, checkpoints, partitions coming and going."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError, CorruptLogError, LockedError, StorageError
from pyreplog.log import LogRoot, open_readers, parse_directory_name
from pyreplog.log.clean_shutdown import read_farewell, read_incarnation
from pyreplog.log.identity import id_for_name, parse_properties, read_properties
from pyreplog.log.snapshot import read_offsets
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, batch, contents, raw, reopen_in, sync

KEY = TopicPartition("events", 0)
ID = "AbCdEfGhIjKlMnOpQrStUw"


def open_root(place: Place, **options: object) -> LogRoot:
    return LogRoot.open(
        place.disk,
        place.of("root"),
        clock=CLOCK,
        random=Random(len(place.disk.list(place.path))),
        **options,  # type: ignore[arg-type]
    )


def test_a_new_root_is_kafkas(place: Place) -> None:
    """A new root has meta.properties in Kafka's form, the incarnation and the lock; closed in order, checkpoints
    and the marker."""
    root = open_root(place, node_id=3, cluster_id="cluster-id-of-22-chars")
    log = root.create_log("events", 0, ID, LogConfig())
    log.become_leader(0)
    log.append_as_leader(batch(3), 0)
    assert root.path == place.of("root")
    text = place.read("root/meta.properties").decode()
    assert text.startswith("#\n#Tue Nov 14 22:13:20 UTC 2023\nnode.id=3\ndirectory.id=")
    assert text.endswith("\nversion=1\ncluster.id=cluster-id-of-22-chars\n")
    assert (root.node_id, root.cluster_id) == (3, "cluster-id-of-22-chars")
    assert not root.clean
    assert root.previous_broker_epoch == -1
    root.close(broker_epoch=17)
    assert place.read("root/.kafka_cleanshutdown").startswith(b'{"version":0,"brokerEpoch":17,')
    assert place.read("root/recovery-point-offset-checkpoint") == b"0\n1\nevents 0 3\n"
    assert place.read("root/replication-offset-checkpoint") == b"0\n1\nevents 0 0\n"
    assert place.read("root/log-start-offset-checkpoint") == b"0\n0\n"
    assert place.read("root/events-0/partition.metadata") == f"version: 0\ntopic_id: {ID}".encode()
    again = open_root(place)
    assert (again.node_id, again.cluster_id, again.directory_id) == (3, root.cluster_id, root.directory_id)
    assert again.clean
    assert again.same_boot
    assert again.previous_broker_epoch == 17
    assert again.incarnation_id != root.incarnation_id
    assert place.disk.stat(place.of("root/.kafka_cleanshutdown")) is None
    assert again.logs[KEY].recovery.clean
    again.close()


def test_one_writer_at_a_time(place: Place) -> None:
    """A second open is refused while the first lives, also after the logs were used, and works once it is
    closed."""
    root = open_root(place)
    with pytest.raises(LockedError, match="already open"):
        open_root(place)
    root.close()
    root.close()
    open_root(place).close()


def test_a_root_of_another_node_or_cluster_is_refused(place: Place) -> None:
    """The ids in meta.properties are binding, and the lock is free again after the refusal."""
    open_root(place, node_id=1, cluster_id="one").close()
    with pytest.raises(ConfigError, match="node 1"):
        open_root(place, node_id=2)
    with pytest.raises(ConfigError, match="cluster one"):
        open_root(place, node_id=1, cluster_id="two")
    open_root(place, node_id=1, cluster_id="one").close()


def test_an_old_brokers_identity_is_understood(place: Place) -> None:
    """meta.properties of a ZooKeeper broker (version 0, broker.id) is taken over; comments and escapes are read."""
    place.disk.make_directory(place.of("root"))
    place.write("root/meta.properties", b"#\n! note\nversion=0\nbroker.id = 7\ncluster.id:a\\:b\n\n")
    root = open_root(place)
    assert (root.node_id, root.cluster_id) == (7, "a:b")
    root.close()
    assert read_properties(place.disk, place.of("root")) == {
        "version": "1", "cluster.id": "a:b", "node.id": "7", "directory.id": root.directory_id,
    }  # fmt: skip
    for number in ("seven", "\u00b2", "-1", "9" * 5000):
        place.write("root/meta.properties", f"node.id={number}\n".encode())
        with pytest.raises(ConfigError, match="no number of a node"):
            open_root(place)
    assert parse_properties(b"") == {}


def test_an_unclean_end_is_told_from_a_clean_one(place: Place) -> None:
    """Without the marker a root is unclean; whether the machine stayed up is told by the boot id."""
    root = open_root(place)
    log = root.create_log("events", 0, ID, LogConfig())
    log.become_leader(0)
    log.append_as_leader(batch(3), 0)
    root.close(clean=False)
    again = open_root(place)
    assert not again.clean
    assert again.same_boot
    assert again.logs[KEY].end_offset == 3
    again.close()


def test_a_start_that_never_ended_keeps_the_earlier_boot_in_mind() -> None:
    """A process killed while it recovers from power loss must not make the next start believe that the page cache
    survived.

    Left out, an os replica that had lost acknowledged records counted as complete, and led.
    """
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    disk.sync_directory("/")
    place = Place(disk, "data")
    root = open_root(place)
    log = root.create_log("events", 0, ID, LogConfig(durability="os"))
    log.become_leader(0)
    log.append_as_leader(batch(3), 0)
    log.advance_high_watermark(3)
    log.write_mark()
    crashed = disk.crash(Random(5))
    place = Place(crashed, "data")
    crashed.fail("open", path="*replog.mark", times=1)  # the start ends before the log was opened
    broken = open_root(place)
    assert broken.damaged
    broken.close(clean=False)
    incarnation = read_incarnation(crashed, place.of("root"))
    assert incarnation is not None
    crashed.clear_faults()
    again = open_root(place)
    assert again.logs[KEY].incomplete
    again.close()


def test_a_marker_of_another_life_is_not_clean(place: Place) -> None:
    """A marker that names an earlier incarnation is not a clean end; one that names none is a broker's, and voids
    our marks."""
    root = open_root(place)
    log = root.create_log("events", 0, ID, LogConfig())
    log.become_leader(0)
    log.append_as_leader(batch(3), 0)
    root.close()
    marker = place.read("root/.kafka_cleanshutdown")
    open_root(place).close(clean=False)
    place.write("root/.kafka_cleanshutdown", marker)
    root = open_root(place)
    assert not root.clean
    assert root.logs[KEY].recovery.mark_found
    root.close(clean=False)
    for content in (b'{"version":0,"brokerEpoch":146}', b"", b'{"brokerEpoch":true}'):
        place.write("root/.kafka_cleanshutdown", content)
        root = open_root(place)
        assert not root.clean
        assert not root.logs[KEY].recovery.mark_found
        assert root.logs[KEY].end_offset == 3
        assert root.previous_broker_epoch == (146 if b"146" in content else -1)
        root.close(clean=False)
    assert read_farewell(place.disk, place.of("root")) is None


@pytest.mark.parametrize(
    "content",
    [
        b"garbage",
        b"[1]",
        b"\xff",
        b"[" * 200_000,
        b'{"a":' * 20_000,
        b'{"version":0,"brokerEpoch":146}' + b" " * (1 << 20),
    ],
    ids=["text", "list", "no text", "deep list", "deep object", "too large"],
)
def test_what_is_no_marker_vouches_for_nothing(place: Place, content: bytes) -> None:
    """A damaged clean shutdown marker counts as none: not as the end of a broker, and not as a clean one where
    nobody else can tell."""
    root = open_root(place)
    log = root.create_log("events", 0, ID, LogConfig())
    log.become_leader(0)
    log.append_as_leader(batch(3), 0)
    sync(place.disk, log)
    log.advance_high_watermark(3)
    root.close()
    place.write("root/.kafka_cleanshutdown", content)
    assert [reader.end_offset for reader in open_readers(place.disk, place.of("root")).values()] == [3]
    root = open_root(place)
    assert not root.clean
    assert root.logs[KEY].recovery.mark_found
    assert root.logs[KEY].end_offset == 3
    root.close()
    place.write("root/.kafka_cleanshutdown", content)
    place.disk.remove(place.of("root/replog.incarnation"))
    root = open_root(place)
    assert not root.clean
    assert root.logs[KEY].end_offset == 3
    root.close()


def test_checkpoints_name_every_partition(place: Place) -> None:
    """Each of the three files is written for all partitions at a time, and the start only where it is not that of
    the first segment."""
    root = open_root(place)
    for number in range(3):
        log = root.create_log("events", number, ID, LogConfig())
        log.become_leader(0)
        log.append_as_leader(batch(number + 2), 0)
        sync(place.disk, log)
        log.advance_high_watermark(number + 1)
    root.logs[TopicPartition("events", 2)].increment_start_offset(1)
    root.checkpoint_recovery_points()
    root.checkpoint_high_watermarks()
    root.checkpoint_log_starts()
    keys = [TopicPartition("events", number) for number in range(3)]
    assert read_offsets(place.disk, place.of("root/recovery-point-offset-checkpoint")) == dict(
        zip(keys, (2, 3, 4), strict=True)
    )
    assert read_offsets(place.disk, place.of("root/replication-offset-checkpoint")) == dict(
        zip(keys, (1, 2, 3), strict=True)
    )
    assert read_offsets(place.disk, place.of("root/log-start-offset-checkpoint")) == {keys[2]: 1}
    root.close(clean=False)
    # They serve where a mark is missing.
    for key in keys:
        place.disk.remove(place.of(f"root/{key}/replog.mark"))
    root = open_root(place)
    assert [root.logs[key].high_watermark for key in keys] == [1, 2, 3]
    assert root.logs[keys[2]].start_offset == 1
    root.close()


def test_damaged_checkpoints_are_not_believed(place: Place) -> None:
    """Garbage in any of the root's own files costs a scan or a note, never data."""
    root = open_root(place)
    log = root.create_log("events", 0, ID, LogConfig())
    log.become_leader(0)
    log.append_as_leader(batch(3), 0)
    sync(place.disk, log)
    log.advance_high_watermark(3)
    whole = raw(log)
    root.close()
    names = (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replog.incarnation",
    )
    for name in names:
        for content in (b"", b"garbage", b"\0" * 30, b"0\n1\nevents 0 999999\n"):
            place.write(f"root/{name}", content)
            root = open_root(place)
            assert raw(root.logs[KEY]) == whole
            assert root.logs[KEY].high_watermark == 3
            assert root.logs[KEY].start_offset == 0
            root.close()


def test_a_damaged_partition_does_not_stop_the_others(place: Place) -> None:
    """A rotten partition is listed with its error, its checkpoint entries stay, no marker is written, and it is not
    made anew."""
    root = open_root(place)
    for number in range(2):
        log = root.create_log("events", number, ID, LogConfig())
        log.become_leader(0)
        log.append_as_leader(batch(3), 0)
        sync(place.disk, log)
        log.advance_high_watermark(2)
    root.close()
    path = "root/events-0/00000000000000000000.log"
    content = place.read(path)
    place.write(path, content[:30] + b"\xff" + content[31:])
    root = open_root(place)
    assert isinstance(root.damaged[KEY], CorruptLogError)
    assert list(root.logs) == [TopicPartition("events", 1)]
    with pytest.raises(CorruptLogError):
        root.create_log("events", 0, ID, LogConfig())
    root.close()
    assert place.disk.stat(place.of("root/.kafka_cleanshutdown")) is None
    assert b"events 0 3\n" in place.read("root/recovery-point-offset-checkpoint")
    assert b"events 0 2\n" in place.read("root/replication-offset-checkpoint")
    assert place.read(path) == content[:30] + b"\xff" + content[31:]
    root = open_root(place)
    root.remove_log(KEY)
    root.create_log("events", 0, ID, LogConfig())
    root.close()
    assert place.disk.stat(place.of("root/.kafka_cleanshutdown")) is not None


def test_partitions_come_and_go(place: Place) -> None:
    """A removed partition is gone with its folder; a second making of one that is there is refused; what is half
    deleted is finished."""
    root = open_root(place)
    root.create_log("events", 0, ID, LogConfig())
    with pytest.raises(StorageError, match="there already"):
        root.create_log("events", 0, ID, LogConfig())
    root.remove_log(KEY)
    root.remove_log(KEY)
    assert not [name for name in place.disk.list(place.of("root")) if parse_directory_name(name)]
    root.create_log("events", 0, ID, LogConfig())
    place.disk.make_directory(place.of(f"root/events-1.{'0' * 32}-delete"))
    place.write(f"root/events-1.{'0' * 32}-delete/{0:020}.index", b"x")
    place.disk.make_directory(place.of(f"root/events-2.{'0' * 32}-stray"))
    root.close()
    root = open_root(place)
    assert list(root.logs) == [KEY]
    assert place.disk.stat(place.of(f"root/events-1.{'0' * 32}-delete")) is None
    assert place.disk.stat(place.of(f"root/events-2.{'0' * 32}-stray")) is not None
    root.close()


def test_what_cannot_be_removed_is_in_nobodys_way(place: Place) -> None:
    """A folder that somebody made in one of a partition that is to go: it stays, is told of, and the others are
    opened."""
    root = open_root(place)
    root.create_log("events", 0, root.new_topic_id(), LogConfig()).append_as_leader(batch(2), 0)
    root.close(clean=True)
    name = f"gone-0.{'0' * 32}-delete"
    place.disk.make_directory(place.of(f"root/{name}/somebody's"))
    for _ in range(2):
        root = open_root(place)
        assert root.logs[TopicPartition("events", 0)].end_offset == 2
        assert [note for note in root.notes if note.startswith(f"{name} is left as it is: ")]
        root.close(clean=True)
    place.disk.remove_directory(place.of(f"root/{name}/somebody's"))
    open_root(place).close(clean=True)
    assert place.disk.stat(place.of(f"root/{name}")) is None


def test_a_half_made_partition_counts_as_never_made(place: Place) -> None:
    """A folder without mark, epoch file and records is what a crash left of making one: it is removed."""
    root = open_root(place)
    root.close()
    place.disk.make_directory(place.of("root/events-0"))
    place.write("root/events-0/partition.metadata", b"version: 0")
    place.write("root/events-0/00000000000000000000.log", b"")
    place.write(
        "root/events-0/00000000000000000000.log.tmp", b""
    )  # its name was made once more, while there was a mark
    root = open_root(place)
    assert not root.logs
    assert not root.damaged
    assert place.disk.stat(place.of("root/events-0")) is None
    place.disk.make_directory(place.of("root/events-0"))
    root.create_log("events", 0, ID, LogConfig())
    root.close()


def begun(place: Place, base: int = 0) -> None:
    """What a crash leaves of making a partition, but for the offset at which its segment begins."""
    place.disk.make_directory(place.of("root/events-0"))
    place.write(f"root/events-0/{base:020d}.log", b"")


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"]
)
def test_an_empty_partition_that_a_checkpoint_names_is_kept(place: Place, name: str) -> None:
    """It was there, whatever became of its mark: it goes on, and where records are missing it is damaged."""
    for base, offset in ((0, 0), (500, 500), (0, 500)):
        open_root(place).close()
        begun(place, base)
        place.write(f"root/{name}", f"0\n1\nevents 0 {offset}\n".encode())
        root = open_root(place)
        if base == offset or not name.startswith("recovery"):
            assert {key: log.end_offset for key, log in root.logs.items()} == {KEY: base}
            assert root.logs[KEY].topic_id == id_for_name("events")
        else:
            assert isinstance(root.damaged[KEY], CorruptLogError)
        assert place.disk.stat(place.of("root/events-0")) is not None
        root.remove_log(KEY)
        root.close()


@pytest.mark.parametrize(
    "other",
    [
        "00000000000000000500.snapshot",
        "00000000000000000000.snapshot",
        "00000000000000000500.index",
        "leader-epoch-checkpoint",
        "00000000000000000000.log.swap",
        "00000000000000000000.log.deleted",
        "notes.txt",
    ],
)
def test_a_folder_with_anything_else_in_it_is_kept(place: Place, other: str) -> None:
    """What is not made before the mark tells that there was a log: nothing of the folder goes."""
    open_root(place).close()
    begun(place)
    place.write(f"root/events-0/{other}", b"")
    root = open_root(place)
    assert [*root.logs, *root.damaged] == [KEY]
    assert place.disk.stat(place.of("root/events-0")) is not None
    root.close()


def test_an_empty_partition_that_begins_above_0_is_kept(place: Place) -> None:
    """Its records were deleted, and new ones get the offsets behind them."""
    open_root(place).close()
    begun(place, 500)
    root = open_root(place)
    assert (root.logs[KEY].start_offset, root.logs[KEY].end_offset) == (500, 500)
    root.logs[KEY].become_leader(0)
    assert root.logs[KEY].append_as_leader(batch(1), 0).base_offset == 500
    root.close()


@pytest.mark.parametrize("whose", ["nobody's", "a broker's", "an old broker's"])
def test_an_empty_partition_of_others_is_kept(place: Place, whose: str) -> None:
    """Where somebody else made partitions, nobody knows what the making of one that was interrupted looks like."""
    open_root(place).close()
    begun(place)
    if whose == "nobody's":
        place.disk.remove(place.of("root/replog.incarnation"))
    else:
        place.write("root/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":7}' if whose == "a broker's" else b"")
    root = open_root(place)
    assert {key: log.end_offset for key, log in root.logs.items()} == {KEY: 0}
    root.close()
    root = open_root(place)
    assert list(root.logs) == [KEY]
    root.close()


def test_an_old_brokers_empty_partition_keeps_its_offsets(place: Place) -> None:
    """A partition of Kafka 2.8 in an old message format has no epochs and no id; with all its records deleted it
    has nothing but its name and the offset at which it goes on."""
    root, folder = place.of("root"), place.of("root/events-0")
    place.disk.make_directory(root)
    place.disk.make_directory(folder)
    for suffix in ("log", "index", "timeindex"):
        place.write(f"root/events-0/{500:020d}.{suffix}", b"")
    place.write(f"root/events-0/{500:020d}.snapshot", bytes.fromhex("00010000000000000000"))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        place.write(f"root/{name}", b"0\n1\nevents 0 500\n")
    place.write("root/.kafka_cleanshutdown", b"")
    place.write("root/meta.properties", b"version=0\nbroker.id=0\ncluster.id=abc\n")
    ((_, reader),) = open_readers(place.disk, root).items()
    assert (reader.start_offset, reader.end_offset) == (500, 500)
    for _ in range(2):
        opened = open_root(place)
        assert not opened.damaged
        assert (opened.logs[KEY].start_offset, opened.logs[KEY].end_offset) == (500, 500)
        opened.close()


@pytest.mark.parametrize("again", [False, True], ids=["in one life", "in the next"])
def test_a_partition_made_again_is_not_taken_for_the_one_before(again: bool) -> None:
    """Where the making of a partition is interrupted whose name an earlier one had, it counts as never made: no
    checkpoint tells of it."""
    for number in range(1, 1000):
        disk = SimDisk(Random(number))
        root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(1))
        log = root.create_log("events", 0, ID, LogConfig())
        log.become_leader(0)
        log.append_as_leader(batch(3), 0)
        root.close()
        root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(2))
        root.remove_log(KEY)
        if again:
            disk.kill()
            root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(3))
        fault = disk.fail(nth=number, times=None)
        with suppress(StorageError):
            root.create_log("events", 0, ID, LogConfig())
        root = LogRoot.open(disk.crash(Random(number)), "r", clock=CLOCK, random=Random(4))
        assert not root.damaged
        ends = [log.end_offset for log in root.logs.values()]
        assert ends == [0] or (fault.hits and not ends)
        root.close()
        if not fault.hits:
            assert number > 30
            return
    raise AssertionError("there is an end to the calls")


def test_a_poisoned_log_reopens_verified() -> None:
    """A log poisoned by a failed sync opens again in the same root, and the root then closes in order."""
    disk = SimDisk(Random(3))
    disk.make_directory("data")
    root = open_root(Place(disk, "data"))
    log = root.create_log("events", 0, ID, LogConfig())
    log.become_leader(0)
    log.append_as_leader(batch(3), 0)
    sync(disk, log)
    log.append_as_leader(batch(3), 0)
    disk.fail("sync", path="*.log")
    with pytest.raises(StorageError):
        sync(disk, log)
    disk.clear_faults()
    again = reopen_in(root, "events", 0)
    assert again.end_offset >= 3
    assert [record.offset for record in contents(again)][:3] == [0, 1, 2]
    assert again.recovery.poisoned
    root.close()
    assert disk.stat("data/root/.kafka_cleanshutdown") is not None


def test_a_log_that_ended_without_a_segment_hinders_no_checkpoint() -> None:
    """Where the disk refuses a follower that begins anew after its old segments went, the root goes on, and
    closes."""
    disk = SimDisk(Random(3))
    disk.make_directory("data")
    root = open_root(Place(disk, "data"))
    log = root.create_log("events", 0, ID, LogConfig())
    log.append_as_follower([bytes(batch(3, leader_epoch=0))])
    disk.fail("list", "*/events-0")
    with pytest.raises(StorageError):
        log.truncate_fully(7)
    assert log.segments() == []
    root.checkpoint_recovery_points()
    root.checkpoint_log_starts()
    root.checkpoint_high_watermarks()
    root.close()
    again = open_root(Place(disk, "data"))
    assert again.logs[KEY].end_offset == 0
    again.close()


def test_a_root_whose_name_could_not_be_made_durable_is_not_there() -> None:
    """The name of a new folder that a failed sync was to make durable is shown, and no later sync makes it so by
    itself: it is taken back, so that what is kept at the next try survives power loss."""
    for seed in range(8):
        disk = SimDisk(Random(seed))
        disk.make_directory("data")
        disk.sync_directory("/")
        disk.fail("sync_directory", "data")
        place = Place(disk, "data")
        with pytest.raises(StorageError):
            open_root(place)
        assert disk.list("data") == []
        log = open_root(place).create_log("events", 0, ID, LogConfig())
        log.become_leader(0)
        log.append_as_leader(batch(3), 0)
        sync(disk, log)
        again = open_root(Place(disk.crash(Random(seed)), "data"))
        assert again.logs[KEY].end_offset == 3


def test_a_poisoned_log_leaves_no_marker() -> None:
    """A root with a poisoned log never says that it ended in order."""
    disk = SimDisk(Random(3))
    disk.make_directory("data")
    root = open_root(Place(disk, "data"))
    log = root.create_log("events", 0, ID, LogConfig())
    log.poison(OSError("a sync failed"))
    root.close()
    assert disk.stat("data/root/.kafka_cleanshutdown") is None


def test_a_folder_that_is_none_is_refused(place: Place) -> None:
    """A file where the root should be, and a folder of several nodes' roots, are refused by name."""
    place.write("root", b"a file")
    with pytest.raises(StorageError, match="a file is where"):
        open_root(place)
    place.disk.remove(place.of("root"))
    LogRoot.open(place.disk, place.of("root/node-1"), clock=CLOCK, random=Random(1)).close()
    with pytest.raises(ConfigError, match="several nodes"):
        open_root(place)


def test_a_failing_close_releases_the_lock() -> None:
    """Where closing fails, the error comes out, there is no marker, and the folder can be opened again."""
    disk = SimDisk(Random(3))
    disk.make_directory("data")
    place = Place(disk, "data")
    root = open_root(place)
    log = root.create_log("events", 0, ID, LogConfig())
    log.become_leader(0)
    log.append_as_leader(batch(1), 0)
    disk.fail("sync", path="*.log")
    with pytest.raises(StorageError):
        root.close()
    disk.clear_faults()
    root = open_root(place)
    assert not root.clean
    assert not root.damaged
    root.close()


def test_many_partitions_cost_the_root_few_syncs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that come, or go, together share the syncs of their root's folder; each is there with its own
    settings, and opens."""
    root = open_root(place)
    synced: list[str] = []
    sync_directory = place.disk.sync_directory

    def sync(path: str) -> None:
        synced.append(path)
        sync_directory(path)

    monkeypatch.setattr(place.disk, "sync_directory", sync)
    keys = [TopicPartition("events", number) for number in range(150)]
    root.create_logs(
        [
            root.new_log(key, ID, LogConfig(segment_bytes=2000 + key.partition), incomplete=key.partition == 7)
            for key in keys
        ]
    )
    assert 1 <= synced.count(root.path) <= 3
    assert list(root.logs) == keys
    root.close()
    root = open_root(place)
    assert {key: root.logs[key].config.segment_bytes for key in keys} == {key: 2000 + key.partition for key in keys}
    assert [known.topic_partition for known in root.known() if known.incomplete] == [keys[7]]
    synced.clear()
    root.remove_logs(keys[:100])
    assert 1 <= synced.count(root.path) <= 2
    root.close()
    root = open_root(place)
    assert list(root.logs) == sorted(keys[100:], key=str)
    root.close()


def test_many_logs_are_closed_side_by_side(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is several syncs: one after another, a thousand partitions that were written to would take half a minute
    to close."""
    root = open_root(place)
    for number in range(40):
        log = root.create_log("events", number, ID, LogConfig())
        log.become_leader(0)
        log.append_as_leader(batch(3), 0)
    shared: list[int] = []
    one_by_one = place.disk.map

    def side_by_side(work: Callable[[Any], Any], items: Sequence[Any], *, waits: bool = False) -> Sequence[Any]:
        if waits:
            shared.append(len(items))
        return one_by_one(work, items, waits=waits)

    monkeypatch.setattr(place.disk, "map", side_by_side)
    root.close()
    assert shared == [40]
    root = open_root(place)
    assert root.clean
    assert [log.end_offset for log in root.logs.values()] == [3] * 40
    root.close()


def test_partitions_made_together_are_there_or_not() -> None:
    """Whichever call fails while several are made, none of them is in the way of the next try."""
    keys = [TopicPartition("t", number) for number in range(3)]
    for number in range(1, 1000):
        disk = SimDisk(Random(number))
        root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(1))
        wanted = [root.new_log(key, ID, LogConfig()) for key in keys]
        fault = disk.fail(nth=number, error=errno.ENOSPC)
        try:
            root.create_logs(wanted)
        except StorageError:
            assert not root.logs
            root.create_logs(wanted)
        assert list(root.logs) == keys
        root = LogRoot.open(disk.crash(Random(number)), "r", clock=CLOCK, random=Random(2))
        assert list(root.logs) == keys
        assert not any(known.incomplete for known in root.known())
        if not fault.hits:
            assert number > 60
            return
    raise AssertionError("there is an end to the calls")


def test_the_recovery_point_is_the_flushed_end(place: Place) -> None:
    """The recovery point checkpoint names the end of the records on stable storage, not the log end: the rest is
    verified at the next start."""
    root = open_root(place)
    log = root.create_log("events", 0, ID, LogConfig())
    log.become_leader(0)
    log.append_as_leader(batch(3), 0)
    sync(place.disk, log)
    log.append_as_leader(batch(2), 0)
    assert (log.flushed_offset, log.end_offset) == (3, 5)
    root.checkpoint_recovery_points()
    assert place.read("root/recovery-point-offset-checkpoint") == b"0\n1\nevents 0 3\n"
    root.close(clean=False)


@pytest.mark.parametrize("name", [".Trash-1000", "photos-7", "report-2026", "events-1", f"photos-7.{'0' * 32}-delete"])
@pytest.mark.parametrize("content", ["a.jpg", ""])
def test_foreign_folders_are_left_alone(place: Place, name: str, content: str) -> None:
    """A folder without a partition's files keeps its name and its content, and is no topic, whatever it is
    called."""
    open_root(place).close()
    place.disk.make_directory(place.of(f"root/{name}"))
    if content:
        place.write(f"root/{name}/{content}", b"x")
    elif name.endswith("-delete"):
        return  # the rest of a removal that was interrupted
    root = open_root(place)
    assert list(root.logs) == []
    assert list(root.damaged) == []
    root.create_log("events", 0, ID, LogConfig())
    root.remove_log(TopicPartition("photos", 7))
    root.close()
    assert place.disk.list(place.of(f"root/{name}")) == ([content] if content else [])


def test_an_empty_folder_is_used_when_its_partition_is_created(place: Place) -> None:
    """An empty TOPIC-N is taken for that partition, which may be a mount point; one with foreign files is refused
    and kept."""
    place.disk.make_directory(place.of("root"))
    place.disk.make_directory(place.of("root/events-0"))
    place.disk.make_directory(place.of("root/photos-7"))
    place.write("root/photos-7/a.jpg", b"x")
    root = open_root(place)
    before = place.disk.stat(place.of("root/events-0"))
    root.create_log("events", 0, ID, LogConfig())
    after = place.disk.stat(place.of("root/events-0"))
    assert before is not None
    assert after is not None
    assert before.identity == after.identity
    with pytest.raises(StorageError, match="another program's folder has the name of the partition photos-7"):
        root.create_log("photos", 7, ID, LogConfig())
    assert place.disk.list(place.of("root/photos-7")) == ["a.jpg"]
    root.close()
