"""``Cluster(path, mode="r")``: whole topics, read beside the process that writes them."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyreplog
from pyreplog import Cluster, ClusterReader, ReadOnlyError, TopicPartition
from pyreplog.runtime import catalog, reader_consumer
from tests.interop.golden import units

COUNTS = (18, 20, 19, 20)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Cluster]:
    """A running cluster of two nodes, whose topic ``orders`` holds 77 records in four partitions."""
    with Cluster(tmp_path / "data", nodes=2) as cluster:
        cluster.admin.create_topic("orders", partitions=4, config={"retention.ms": "-1"})
        with cluster.producer() as producer:
            for partition, count in enumerate(COUNTS):
                values = [b"%d:%d" % (partition, number) for number in range(count)]
                producer.send_many(
                    "orders", values, partition=partition, timestamps=[1000 + number for number in range(count)]
                ).wait()
        yield cluster


def _by_partition(records: Iterator[pyreplog.Record] | list[pyreplog.Record]) -> dict[int, list[int]]:
    offsets: dict[int, list[int]] = {}
    for record in records:
        offsets.setdefault(record.partition, []).append(record.offset)
    return offsets


ALL = {partition: list(range(count)) for partition, count in enumerate(COUNTS)}


def _files(path: Path) -> dict[str, tuple[int, int]]:
    return {str(one): (one.stat().st_size, one.stat().st_mtime_ns) for one in sorted(path.rglob("*"))}


def test_a_whole_topic_is_read_beside_its_writer(writer: Cluster) -> None:
    """All 77 records of four partitions come out, by consumer and by scan, in order."""
    with Cluster(writer.path, mode="r") as cluster:
        assert isinstance(cluster, ClusterReader)
        with cluster.consumer("orders") as consumer:
            assert _by_partition(consumer.until_end()) == ALL
            assert consumer.poll() == []
            assert consumer.assignment == [("orders", number) for number in range(4)]
        table = pa.table(cluster.scan("orders"))
        assert table.num_rows == 77
        assert table.num_rows == pa.table(writer.scan("orders")).num_rows
        assert pa.table(cluster.scan("orders", ["value"], start=19)).num_rows == 2


def _another_id(partition: Path) -> None:
    """Give the partition's folder the id of another topic."""
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AbCdEfGhIjKlMnOpQrStUw")


def test_a_conflict_of_one_topic_refuses_that_topic_alone(tmp_path: Path) -> None:
    """Folders of two topics of one name refuse the reads of that name; the cluster is opened, and its other topics
    are read."""
    for topic, partition in (("good", 0), ("bad", 0), ("bad", 1)):
        with pyreplog.open_log(tmp_path, topic=topic, partition=partition, durability="os") as log:
            log.append(b"x")
    _another_id(tmp_path / "bad-1")
    with Cluster(tmp_path, mode="r") as cluster:
        assert pa.table(cluster.scan("good")).num_rows == 1
        with pytest.raises(pyreplog.ConfigError, match="different topics called bad"):
            cluster.scan("bad")


def test_a_folder_of_another_topic_that_appears_later_is_refused(tmp_path: Path) -> None:
    """A reader that lives long refuses a topic when a folder with another topic's id appears."""
    with pyreplog.open_log(tmp_path / "data", topic="t", durability="os") as log:
        log.append(b"x")
    with Cluster(tmp_path / "data", mode="r") as cluster, cluster.consumer("t") as consumer:
        assert len(consumer.poll()) == 1
        shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "data" / "t-1")
        (tmp_path / "data" / "t-1" / "replog.mark").unlink()
        _another_id(tmp_path / "data" / "t-1")
        with pytest.raises(pyreplog.ConfigError, match="different topics called t"):
            cluster.scan("t")
        with pytest.raises(pyreplog.ConfigError, match="different topics called t"):
            for _ in range(100):
                consumer.poll(0.05)


def test_reading_leaves_the_folder_as_it_is(writer: Cluster) -> None:
    """Nothing is made, written or locked: the files stay as they are, and a writer opens the folder while it is
    read."""
    writer.close()
    before = _files(Path(writer.path))
    with Cluster(writer.path, mode="r") as cluster, cluster.consumer("orders") as consumer:
        assert len(list(consumer.until_end())) == pa.table(cluster.scan("orders")).num_rows == 77
        assert _files(Path(writer.path)) == before
        with Cluster(writer.path) as again, again.producer() as producer:
            producer.send("orders", b"x", partition=0).result()
            assert [one.value for one in consumer.poll(timeout=10)] == [b"x"]


def test_topics_and_their_description_are_the_controllers(writer: Cluster) -> None:
    """``topics``, ``describe`` and ``cluster_id`` say what the writing cluster's admin says, and notice topics that
    are made later."""
    with Cluster(writer.path, mode="r") as cluster:
        assert cluster.topics() == ["orders"] == cluster.admin.topics()
        assert cluster.describe("orders") == writer.admin.describe("orders") == cluster.admin.describe("orders")
        assert cluster.cluster_id == writer.cluster_id
        with pytest.raises(pyreplog.UnknownTopicError, match="'order'.*did you mean 'orders'"):
            cluster.describe("order")
        writer.admin.create_topic("later", partitions=2)
        assert cluster.topics() == ["later", "orders"]
        with writer.producer() as producer, cluster.consumer("later") as consumer:
            producer.send("later", b"x", partition=1).result()
            assert [(one.partition, one.value) for one in consumer.poll(timeout=10)] == [(1, b"x")]


def test_positions_move_as_those_of_the_writers_consumer(writer: Cluster) -> None:
    """Assign, seek by offset and time, position, start and end offsets answer as the writing cluster's consumer
    does."""

    def walk(consumer: pyreplog.Consumer | pyreplog.ReaderConsumer) -> list[object]:
        said: list[object] = [
            consumer.assignment,
            consumer.position("orders", 1),
            consumer.end_offset(TopicPartition("orders", 0)),
        ]
        said += [
            consumer.seek("orders", 1, 7),
            consumer.position("orders", 1),
            consumer.seek(TopicPartition("orders", 2), timestamp=1011),
        ]
        said.append(_by_partition(consumer.until_end()))
        said += [consumer.seek("orders", 2, timestamp=10**12), consumer.start_offset("orders", 3)]
        consumer.seek_to_beginning()
        said.append(_by_partition(consumer.until_end()))
        consumer.seek_to_end()
        said += [consumer.poll(), consumer.position("orders", 1)]
        consumer.assign([("orders", 3), ("orders", 1)])
        said += [consumer.assignment, consumer.position("orders", 1), consumer.position("orders", 3)]
        consumer.assign(("orders", 1))
        consumer.seek("orders", 1, 5)
        said += [[one.offset for one in consumer.poll(timeout=10, count_max=3)], consumer.position("orders", 1)]
        return said

    subject = [("orders", 1), ("orders", 2)]
    with (
        Cluster(writer.path, mode="r") as cluster,
        cluster.consumer(subject) as reading,
        writer.consumer(subject) as consumer,
    ):
        assert walk(reading) == walk(consumer)


def test_what_is_not_read_is_refused(writer: Cluster) -> None:
    """Unknown topics and partitions, positions that are not there and settings of a writer are errors with their
    reasons."""
    with Cluster(writer.path, mode="r") as cluster, cluster.consumer([]) as consumer:
        with pytest.raises(pyreplog.UnknownTopicError, match="partitions 0 to 3, not 4"):
            consumer.assign(("orders", 4))
        with pytest.raises(pyreplog.ConfigError, match="partition of 'orders'"):
            consumer.assign(("orders", "0"))
        with pytest.raises(pyreplog.ConfigError, match="nothing is assigned"):
            consumer.poll(timeout=None)
        consumer.assign(topic for topic in ["orders"])  # type: ignore[arg-type]
        assert len(consumer.assignment) == 4
        consumer.assign(("orders", 0))
        with pytest.raises(pyreplog.OffsetOutOfRangeError):
            consumer.seek("orders", 0, 19)
        with pytest.raises(pyreplog.UnknownTopicError, match="orders-1 is not assigned to this consumer"):
            consumer.position("orders", 1)
        with pytest.raises(pyreplog.ConfigError, match="auto_offset_reset"):
            cluster.consumer("orders", auto_offset_reset="first")  # type: ignore[call-overload]
    with pytest.raises(pyreplog.ConfigError, match="nodes belongs to mode='a'"):
        Cluster(writer.path, 3, mode="r")  # type: ignore[call-overload]
    with pytest.raises(pyreplog.ConfigError, match="mode is 'w'"):
        Cluster(writer.path, mode="w")  # type: ignore[call-overload]


def test_deleted_records_follow_the_reset(writer: Cluster) -> None:
    """A position below the start goes on at the first record, at the end, or is an error, as ``auto_offset_reset``
    says."""
    with Cluster(writer.path, mode="r") as cluster:
        consumers = [cluster.consumer(("orders", 0), auto_offset_reset=one) for one in ("earliest", "latest", "none")]
        for consumer in consumers:
            consumer.seek("orders", 0, 3)
        writer.admin.delete_records("orders", {0: 10})
        assert consumers[0].poll()[0].offset == 10
        assert (consumers[1].poll(), consumers[1].position("orders", 0)) == ([], 18)
        with pytest.raises(pyreplog.OffsetOutOfRangeError):
            consumers[2].poll()


def test_new_records_wake_a_poll_and_a_follower(writer: Cluster) -> None:
    """A waiting poll, an iteration and ``follow`` get records as the writer commits them; closing ends them."""
    with Cluster(writer.path, mode="r") as cluster, writer.producer() as producer:
        consumer = cluster.consumer("orders", auto_offset_reset="latest")
        found: list[pyreplog.Record] = []
        thread = threading.Thread(target=lambda: found.extend(consumer.poll(timeout=30)))
        thread.start()
        producer.send("orders", b"new", partition=2).result()
        thread.join()
        assert [(one.partition, one.offset, one.value) for one in found] == [(2, 19, b"new")]
        following = cluster.follow("orders", timeout=0)
        assert len(list(following)) == 78
        endless = iter(consumer)
        producer.send("orders", b"more", partition=0).result()
        assert next(endless).value == b"more"
        waiting = cluster.follow("orders")
        assert len([next(waiting) for _ in range(79)]) == 79
        ended: list[str] = []
        thread = threading.Thread(target=lambda: ended.extend(str(one) for one in waiting))
        thread.start()
        cluster.close()
        thread.join()
        assert ended == []
    with pytest.raises(pyreplog.ClosedError):
        consumer.poll()


WRITES: list[tuple[str, Callable[[ClusterReader], object]]] = [
    ("producer", lambda cluster: cluster.producer()),
    ("nodes", lambda cluster: cluster.nodes),
    ("leader", lambda cluster: cluster.leader("orders")),
    ("create_topic", lambda cluster: cluster.admin.create_topic("new")),
    ("delete_records", lambda cluster: cluster.admin.delete_records("orders", {0: 1})),
    ("elect_leaders", lambda cluster: cluster.admin.elect_leaders("orders")),
]


@pytest.mark.parametrize("call", [one for _, one in WRITES], ids=[name for name, _ in WRITES])
def test_everything_that_writes_is_refused(writer: Cluster, call: Callable[[ClusterReader], object]) -> None:
    """A producer, administration and nodes are a ReadOnlyError that says how the cluster was opened and where to
    write."""
    with Cluster(writer.path, mode="r") as cluster, pytest.raises(ReadOnlyError, match=r"mode='r'.*Cluster\(path\)"):
        call(cluster)


def test_no_call_of_a_writer_reaches_a_reader() -> None:
    """Every public name of Cluster, and of its Admin, is defined for readers too: none of them runs the writer's
    code."""
    from pyreplog.runtime import Admin, ReaderAdmin  # noqa: PLC0415

    for kind, base in ((ClusterReader, Cluster), (ReaderAdmin, Admin)):
        public = {name for name, _ in inspect.getmembers(base) if not name.startswith("_")}
        first = kind.__mro__[: kind.__mro__.index(base)]
        assert public <= {name for own in first for name in vars(own)}, kind


READ = """
import json, sys, pyreplog
with pyreplog.Cluster(sys.argv[1], mode="r") as cluster:
    with cluster.consumer("orders") as consumer:
        print(json.dumps(sorted([one.partition, one.offset, one.value.decode()] for one in consumer.until_end())))
"""


def test_another_process_reads_the_topic(writer: Cluster) -> None:
    """A second process reads the whole topic while the first has the cluster open; a LockedError sends it there."""
    done = subprocess.run([sys.executable, "-c", READ, writer.path], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        [part, number, f"{part}:{number}"] for part in range(4) for number in range(COUNTS[part])
    ]
    with pytest.raises(pyreplog.LockedError, match=r"Cluster\(path, mode='r'\)"):
        Cluster(writer.path)


def test_a_part_is_never_the_topic(writer: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that the controller knows and no folder holds is an error that names it: the rest would not be
    the topic."""
    monkeypatch.setattr(catalog, "CREATION_TIMEOUT_S", 0)
    writer.close()
    for node in (1, 2):
        shutil.rmtree(Path(writer.path) / f"node-{node}/orders-2")
    with Cluster(writer.path, mode="r") as cluster:
        for read in (cluster.scan, cluster.consumer):
            with pytest.raises(pyreplog.StorageNotFoundError, match="orders-2: its copies are on node"):
                read("orders")
        assert len(cluster.consumer(("orders", 1)).poll()) == 20


@pytest.mark.parametrize("name", ["clean-4.3.1", "cluster-4.3.1", "split"])
def test_a_brokers_folders_are_read(name: str, tmp_path: Path) -> None:
    """The ``log.dirs`` of a real broker, three brokers' side by side and one broker's two folders give each topic
    whole."""
    if name == "split":
        for place in ("disk1", "disk2"):
            units.copy_of("clean-4.3.1", tmp_path / place)
        for part in ("plain-0", "plain-2"):
            shutil.rmtree(tmp_path / "disk1" / part)
        shutil.rmtree(tmp_path / "disk2/plain-1")
        for part in {one.name for one in (tmp_path / "disk1").glob("*-[0-9]")} - {"plain-1"}:
            shutil.rmtree(tmp_path / "disk2" / part)
    folder = tmp_path if name == "split" else units.unit(name)
    parts = units.manifest("clean-4.3.1" if name != "cluster-4.3.1" else "cluster-4.3.1/n1")["partitions"]
    with Cluster(folder, mode="r") as cluster:
        for topic in [topic for topic in cluster.topics() if not topic.startswith("__")]:
            expected = {one["partition"]: one["records"] for one in parts if one["topic"] == topic}
            found = cluster.describe(topic)
            assert [(part.partition, part.leader) for part in found.partitions] == [
                (number, -1) for number in sorted(expected)
            ]
            with cluster.consumer(topic) as consumer:
                records = _by_partition(consumer.until_end())
            assert {number: len(offsets) for number, offsets in records.items()} == {
                key: count for key, count in expected.items() if count
            }
            assert pa.table(cluster.scan(topic)).num_rows == sum(expected.values())


def test_a_partition_made_later_is_read_from_its_first_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer of a whole topic that waits at the end goes on with a partition that appears in the folder."""
    monkeypatch.setattr(reader_consumer, "LOOK_AGAIN_S", 0)
    with pyreplog.open_log(tmp_path / "log", topic="t") as log:
        log.append(b"a")
    with Cluster(tmp_path / "log", mode="r") as cluster, cluster.consumer("t", auto_offset_reset="latest") as consumer:
        assert consumer.poll() == []
        with pyreplog.open_log(tmp_path / "log", topic="t", partition=1) as log:
            log.append(b"b")
        consumer.poll()
        assert [one.value for one in consumer.poll()] == [b"b"]


def test_damage_is_told_behind_what_comes_before_it(tmp_path: Path) -> None:
    """A damaged batch raises CorruptLogError; the records before it are given first, and other partitions go on."""
    with pyreplog.open_log(tmp_path / "log", topic="t") as log:
        for number in range(3):
            log.append(b"%d" % number)
    with pyreplog.open_log(tmp_path / "log", topic="t", partition=1) as log:
        log.append(b"x")
    segment = next((tmp_path / "log/t-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    with Cluster(tmp_path / "log", mode="r") as cluster, cluster.consumer("t") as consumer:
        given: list[bytes | None] = []
        failed = 0
        for _ in range(4):
            try:
                given += [one.value for one in consumer.poll()]
            except pyreplog.CorruptLogError as error:
                failed += 1
                assert "t-0" in str(error)
        assert failed >= 1
        assert given == [b"0", b"x"]
        assert consumer.position("t", 0) == 1


def test_folders_without_a_log_are_refused(tmp_path: Path) -> None:
    """A folder that is not there, a file and a folder without a log are errors that say so."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    with pytest.raises(pyreplog.StorageNotFoundError, match="no cluster is there"):
        Cluster(tmp_path / "missing", mode="r")
    with pytest.raises(pyreplog.StorageNotADirectoryError):
        Cluster(tmp_path / "file", mode="r")
    with pytest.raises(pyreplog.StorageNotFoundError, match="holds no log and no cluster"):
        Cluster(tmp_path / "empty", mode="r")


def test_a_child_of_a_fork_uses_its_own(writer: Cluster) -> None:
    """In the child of a fork the parent's reader and consumer are a ForkedError."""
    with Cluster(writer.path, mode="r") as cluster, cluster.consumer("orders") as consumer:
        pid = os.fork()
        if pid == 0:
            refused = 0
            for call in (cluster.topics, consumer.poll):
                try:
                    call()
                except pyreplog.ForkedError:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
