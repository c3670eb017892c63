"""Folders written by Kafka 3.9, 4.1 and 4.3, read and taken over."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pyreplog
from pyreplog.config import LogConfig
from pyreplog.log import LogReader, LogRoot, list_topics, open_readers
from pyreplog.log.index_files import IndexFiles
from pyreplog.log.layout import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, parse_base_offset, segment_name
from pyreplog.log.scan import scan_segment
from pyreplog.log.settings import write_config
from pyreplog.record import Record, records_of, split
from pyreplog.system.clock import SystemClock
from pyreplog.system.disk import SystemDisk
from pyreplog.values import TopicPartition
from tests.interop.golden.units import UNITS, copy_of, hash_of, is_transactional, manifest, unit
from tests.unit.log.support import batch

DISK = SystemDisk()


def partitions() -> list[Any]:
    """Every partition of the units without transactions, as test parameters."""
    return [
        pytest.param(name, partition, id=f"{name}:{partition['dir']}")
        for name in UNITS
        for partition in manifest(name)["partitions"]
        if not is_transactional(partition)
    ]


def records(reader: LogReader, start: int | None = None, end: int | None = None) -> Iterator[Record]:
    """What a consumer gets from ``start`` to ``end``."""
    start = reader.start_offset if start is None else start
    end = reader.end_offset if end is None else end
    for one in reader.batches(start, end):
        yield from records_of(one, reader.topic, reader.partition, start, end)


def reader_of(name: str, partition: dict[str, Any]) -> LogReader:
    key = TopicPartition(partition["topic"], partition["partition"])
    found = open_readers(DISK, str(unit(name) / "data"), key.topic)
    for other, reader in found.items():
        if other != key:
            reader.close()
    return found[key]


@pytest.mark.parametrize(("name", "partition"), partitions())
def test_a_partition_reads_as_listed(name: str, partition: dict[str, Any]) -> None:
    """Every magic-2 partition reads, up to its high watermark, exactly as Kafka's consumer read it."""
    reader = reader_of(name, partition)
    try:
        assert reader.topic_id == partition.get("topicId", reader.topic_id)
        if "highWatermark" in partition:
            assert (reader.start_offset, reader.end_offset) == (partition["logStartOffset"], partition["highWatermark"])
        if partition.get("recordsSha256") is not None:
            assert hash_of(records(reader)) == (partition["records"], partition["recordsSha256"])
        elif partition["topic"].startswith("__"):  # the broker's own, without a list of records
            batches = [*reader.batches(reader.start_offset, reader.end_offset)]
            assert batches[-1].next_offset == reader.end_offset
            assert len(batches) == partition["batches"] or reader.end_offset < partition["logEndOffset"]
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("crash-4.1.0/killed", "crash-4.1.0/recovered"),
        ("crash-4.1.0/torn", "crash-4.1.0/torn-recovered"),
        ("cluster-4.1.0/n1-diverged", "cluster-4.1.0/n2"),
    ],
)
def test_a_killed_folder_reads_as_its_survivor(name: str, other: str) -> None:
    """Below its checkpointed high watermark a killed, torn or diverged log reads as what Kafka made of it, or as
    the replica that went on."""
    checked = 0
    for partition in manifest(name)["partitions"]:
        if is_transactional(partition):
            continue
        left, right = reader_of(name, partition), reader_of(other, partition)
        assert left.end_offset == manifest(name)["checkpoints"]["replication-offset-checkpoint"][partition["dir"]]
        assert left.end_offset <= right.end_offset
        start = max(left.start_offset, right.start_offset)
        expected = hash_of(records(right, start, left.end_offset))
        assert hash_of(records(left, start)) == expected
        checked += expected[0]
        left.close()
        right.close()
    assert checked > 100


@pytest.mark.parametrize("name", ["crash-4.1.0/killed", "crash-4.1.0/torn"])
def test_a_crashed_folder_recovers_as_kafka_recovers_it(name: str, tmp_path: Path) -> None:
    """Opened for writing as the sole replica, ``killed`` and ``torn`` end as they did in Kafka's hands, and again
    when opened once more."""
    folder = copy_of(name, tmp_path / "data")
    for attempt in range(2):
        root = LogRoot.open(DISK, str(folder), clock=SystemClock(), random=Random(attempt))
        assert not root.damaged
        for directory, expected in manifest(name)["afterRecovery"].items():
            topic, _, number = directory.rpartition("-")
            log = root.logs[TopicPartition(topic, int(number))]
            assert log.end_offset == expected["logEndOffset"], directory
            # Kafka's leader adds an epoch at the log's end.
            assert [list(entry) for entry in log.epochs.entries] == [
                entry for entry in expected["leaderEpochs"] if entry != [2, log.end_offset]
            ]
            if expected["logStartOffset"] is not None:
                assert log.start_offset == expected["logStartOffset"]
            segments = sorted(
                base for path in Path(log.directory).iterdir() if (base := parse_base_offset(path.name)) is not None
            )
            # A checkpoint is no reason to remove what lies below the log start; the mark that we
            # then made is, at the second opening.
            assert segments[directory == "start-0" and attempt == 0 :] == expected["segments"], directory
            damage = manifest(name).get("damage", {}).get(directory)
            if attempt == 0 and damage is not None:
                log_files = [Path(kept) for kept in log.recovery.kept]
                assert log.recovery.torn_size == damage["sizeNow"] - damage["keepBytesInFile"]
                assert sum(path.stat().st_size for path in log_files) == (
                    0 if "zero bytes after" in damage["what"] else log.recovery.torn_size
                )
            else:
                assert log.recovery.torn_size == 0
            if directory != "txn-0" and expected["recordsSha256"] is not None:
                log.advance_high_watermark(log.end_offset)
                found = []
                offset = log.start_offset
                while parts := log.read(offset, 1 << 20, log.end_offset).parts():
                    for batch in [batch for part in parts for batch in split(part)]:
                        found += records_of(batch, topic, int(number), log.start_offset, log.end_offset)
                        offset = batch.next_offset
                assert hash_of(found) == (expected["records"], expected["recordsSha256"])
        root.close(clean=attempt == 0)


def test_recovery_leaves_indexes_as_kafka_rebuilds_them(tmp_path: Path) -> None:
    """After recovery and a clean close, the index files of ``killed`` are, byte for byte, those of Kafka's own
    recovery."""
    folder = copy_of("crash-4.1.0/killed", tmp_path / "data")
    for partition in manifest("crash-4.1.0/killed")["partitions"]:
        interval = int(partition.get("topicConfig", {}).get("index.interval.bytes", 4096))
        write_config(DISK, str(folder / partition["dir"]), LogConfig(index_interval_bytes=interval))
    root = LogRoot.open(DISK, str(folder), clock=SystemClock(), random=Random(1))
    root.close()
    compared = 0
    for path in sorted((unit("crash-4.1.0/recovered") / "data").glob("*/*index")):
        if path.suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX) and (folder / path.parent.name / path.name).exists():
            assert (folder / path.parent.name / path.name).read_bytes() == path.read_bytes(), path
            compared += 1
    assert compared > 40


def test_indexes_are_rebuilt_byte_for_byte() -> None:
    """The indexes of a scan are those of Kafka's files, for every segment of units that were never restarted or
    truncated."""
    compared = 0
    for name in (
        *(one for one in UNITS if one.startswith("clean-")),
        "crash-4.1.0/recovered",
        "crash-4.1.0/torn-recovered",
        "cluster-4.1.0/n2",
        "cluster-3.9.1/n1",
        "cluster-3.9.1/n2",
        "cluster-4.3.1/n1",
        "cluster-4.3.1/n2",
    ):
        for partition in manifest(name)["partitions"]:
            interval = int(partition.get("topicConfig", {}).get("index.interval.bytes", 4096))
            directory = unit(name) / "data" / partition["dir"]
            for segment in partition["segments"]:
                base = segment["baseOffset"]
                file = DISK.open(str(directory / segment_name(base, LOG_SUFFIX)))
                scan = scan_segment(file, file.size(), base, index_interval=interval)
                assert scan.position == file.size()
                file.close()
                indexes = IndexFiles.of_scan(DISK, str(directory), scan, base, closed=True)
                for suffix, data in ((INDEX_SUFFIX, indexes.offsets.data()), (TIME_INDEX_SUFFIX, indexes.times.data())):
                    path = directory / segment_name(base, suffix)
                    if path.exists():
                        assert data == path.read_bytes(), path
                        compared += 1
    assert compared > 500


@pytest.mark.parametrize("name", ["clean-4.1.0", "cluster-4.1.0/n1", "cluster-4.3.1/n2"])
def test_a_clean_folder_is_taken_over_unchanged(name: str, tmp_path: Path) -> None:
    """Taking over a cleanly stopped broker's folder changes no byte of a log or of an index, and nothing is called
    damaged."""
    folder = copy_of(name, tmp_path / "data")
    root = LogRoot.open(DISK, str(folder), clock=SystemClock(), random=Random(1))
    assert not root.damaged
    assert root.clean
    assert root.node_id == int(manifest(name)["metaProperties"]["node.id"])
    for partition in manifest(name)["partitions"]:
        if partition["topic"] == "__cluster_metadata":
            continue
        log = root.logs[TopicPartition(partition["topic"], partition["partition"])]
        assert log.end_offset == partition["logEndOffset"]
        assert log.topic_id == partition.get("topicId", log.topic_id)
        assert log.incomplete
        assert log.recovery.torn_size == 0
        emptied = 0 < log.start_offset == log.end_offset
        expected = [entry for entry in partition["leaderEpochs"] or [] if entry[1] < log.end_offset or emptied]
        assert [list(entry) for entry in log.epochs.entries] == expected, partition["dir"]
    root.close()
    restarted = name == "cluster-4.1.0/n1"
    for path in sorted((unit(name) / "data").rglob("*")):
        if path.suffix == LOG_SUFFIX or (path.suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX) and not restarted):
            intervals = [
                p
                for p in manifest(name)["partitions"]
                if p["dir"] == path.parent.name and "index.interval.bytes" in p.get("topicConfig", {})
            ]
            if path.suffix == LOG_SUFFIX or not intervals:
                assert (folder / path.relative_to(unit(name) / "data")).read_bytes() == path.read_bytes(), path
    again = LogRoot.open(DISK, str(folder), clock=SystemClock(), random=Random(2))
    assert all(log.recovery.clean for log in again.logs.values())
    again.close()


def test_timestamps_are_found_as_kafka_found_them() -> None:
    """ListOffsets by time gives Kafka's answers, on every partition whose answers do not come from transaction
    markers or empty leftovers."""
    checked = 0
    for name in ("clean-4.1.0", "clean-4.3.1", "cluster-4.1.0/n2"):
        for partition in manifest(name)["partitions"]:
            if is_transactional(partition) or "offsetsForTimes" not in partition:
                continue
            reader = reader_of(name, partition)
            for timestamp, expected in partition["offsetsForTimes"].items():
                found = reader.find_timestamp(int(timestamp))
                if expected is None and partition["topic"].startswith("compact-"):
                    continue  # Kafka tries no second segment, we do
                assert (None if found is None else list(found)) == expected, (partition["dir"], timestamp)
                checked += 1
            reader.close()
    assert checked > 200


def test_split_points_cut_at_batches() -> None:
    """Pieces between split points, read one by one, give every record once, in order."""
    for partition in manifest("clean-4.1.0")["partitions"]:
        if is_transactional(partition) or not partition.get("records"):
            continue
        reader = reader_of("clean-4.1.0", partition)
        points = reader.split_points(reader.start_offset, reader.end_offset, 8192)
        assert points == sorted(set(points))
        assert (points[0], points[-1]) == (reader.start_offset, reader.end_offset)
        pieces = [record.offset for start, end in pairwise(points) for record in records(reader, start, end)]
        assert pieces == [record.offset for record in records(reader)]
        reader.close()


def test_a_cluster_folder_reads_as_one(tmp_path: Path) -> None:
    """The roots of three nodes in one folder give each partition once, from a replica with the highest epoch, with
    the records of the others."""
    folder = unit("cluster-4.3.1/n1").parent
    parent = tmp_path / "roots"
    for number in (1, 2, 3):
        shutil.copytree(folder / f"n{number}" / "data", parent / f"node-{number}")
    readers = open_readers(DISK, str(parent))
    assert list_topics(DISK, str(parent)).keys() == {key.topic for key in readers}
    for partition in manifest("cluster-4.3.1/n2")["partitions"]:
        if is_transactional(partition) or "records" not in partition:
            continue
        reader = readers[TopicPartition(partition["topic"], partition["partition"])]
        assert hash_of(records(reader)) == (partition["records"], partition["recordsSha256"])
    for reader in readers.values():
        reader.close()


def test_a_diverged_replica_does_not_hide_what_is_committed(tmp_path: Path) -> None:
    """A killed leader's tail that nobody else has is not read, and its old high watermark does not hold back the
    others'."""
    for name in ("n1-diverged", "n2", "n3"):
        shutil.copytree(unit(f"cluster-4.1.0/{name}") / "data", tmp_path / name)
    readers = open_readers(DISK, str(tmp_path))
    for partition in manifest("cluster-4.1.0/n2")["partitions"]:
        if is_transactional(partition) or "records" not in partition:
            continue
        reader = readers[TopicPartition(partition["topic"], partition["partition"])]
        assert hash_of(records(reader)) == (partition["records"], partition["recordsSha256"])
    for reader in readers.values():
        reader.close()


def test_a_bare_folder_reads_whole(tmp_path: Path) -> None:
    """A partition folder copied from anywhere reads up to the end of its valid batches."""
    partition = next(p for p in manifest("clean-4.1.0")["partitions"] if p["dir"] == "plain-0")
    shutil.copytree(unit("clean-4.1.0") / "data" / "plain-0", tmp_path / "anything")
    ((key, reader),) = open_readers(DISK, str(tmp_path / "anything")).items()
    assert key == TopicPartition("anything", 0)
    assert hash_of(records(reader)) == (partition["records"], partition["recordsSha256"])
    reader.close()


def test_a_taken_over_log_goes_on(tmp_path: Path) -> None:
    """After taking over a broker's folder, appends continue its offsets and survive a reopen."""
    folder = copy_of("clean-4.1.0", tmp_path / "data")
    root = LogRoot.open(DISK, str(folder), clock=SystemClock(), random=Random(1))
    log = root.logs[TopicPartition("plain", 0)]
    end = log.end_offset
    log.become_leader(log.epochs.latest + 1)
    assert log.append_as_leader(batch(3), log.epochs.latest).base_offset == end
    root.close()
    root = LogRoot.open(DISK, str(folder), clock=SystemClock(), random=Random(2))
    assert root.logs[TopicPartition("plain", 0)].end_offset == end + 3
    assert root.logs[TopicPartition("plain", 0)].config == LogConfig()
    root.close()


@pytest.mark.parametrize("asked", ["os", "sync", None])
def test_a_brokers_folder_is_written_with_the_durability_that_is_asked_for(tmp_path: Path, asked: Any) -> None:
    """It says nothing of any; from the first opening on it does, and another one is refused."""
    folder = copy_of("old-format-2.8.2", tmp_path / "data")
    for durability in (asked, None):
        with pyreplog.open_log(folder, topic="magic2-none", durability=durability) as log:
            assert log.config.durability == (asked or "sync")
            log.append(b"x")
    other: Any = "sync" if asked == "os" else "os"
    with pytest.raises(pyreplog.ConfigError, match="was made with durability="):
        pyreplog.open_log(folder, topic="magic2-none", durability=other)


@pytest.mark.parametrize("topic", ["magic2-none", None])
def test_the_durability_that_is_asked_for_one_log_is_not_that_of_the_others_in_a_brokers_folder(
    tmp_path: Path, topic: Any
) -> None:
    """Nobody asked for theirs: what is acknowledged there later is on stable storage. Nor does a refused opening
    leave one behind."""
    folder = copy_of("old-format-2.8.2", tmp_path / "data")
    if topic is None:
        with pytest.raises(pyreplog.ConfigError, match="holds several topics"):
            pyreplog.open_log(folder, durability="os")
    else:
        pyreplog.open_log(folder, topic=topic, durability="os").close()
    others = [name for name in list_topics(DISK, str(folder)) if name != topic]
    assert others
    for other in others:
        with pyreplog.open_log(folder, topic=other) as log:
            assert log.config.durability == "sync"
