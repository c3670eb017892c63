"""Transactions as followers and readers see them: stable offsets, aborted ranges, both isolations, on Kafka's
folders and on ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyreplog
from pyreplog.cli.main import main
from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError
from pyreplog.log import Log, LogReader, LogRoot, open_readers
from pyreplog.log.layout import LOG_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, parse_base_offset, segment_name
from pyreplog.log.producer_snapshot import format_producers, parse_producers
from pyreplog.log.producer_state import producer_batches
from pyreplog.log.producers import ProducerTable
from pyreplog.log.read_committed import CommittedSource
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.log.transaction_index import AbortedRange, TransactionIndex, format_aborted, parse_aborted
from pyreplog.record import BatchBuilder, Record, records_of
from pyreplog.system.clock import SystemClock
from pyreplog.system.disk import SystemDisk
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.interop.golden.units import UNITS, copy_of, hash_of, is_transactional, manifest, unit
from tests.unit.log.conftest import Place
from tests.unit.log.producing import Live, Play, marker, offsets_of, produced
from tests.unit.log.support import create, reopen, sync

DISK = SystemDisk()
KILLED = ("crash-4.1.0/killed", "crash-4.1.0/torn", "cluster-4.1.0/n1-diverged")


def readers_of(name: str) -> dict[TopicPartition, LogReader]:
    """A reader for each partition of a unit."""
    return open_readers(DISK, str(unit(name) / "data"))


def read(source: LogReader | CommittedSource, start: int, end: int) -> Iterator[Record]:
    """The records of a range, through either isolation."""
    for one in source.batches(start, end):
        yield from records_of(one, "", 0, start, end)


def listed(name: str, partition: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The listing of a partition's records; None where there is none."""
    if not partition.get("recordsFile"):
        return None
    return [json.loads(line) for line in (unit(name) / partition["recordsFile"]).read_text().splitlines()]


@pytest.mark.parametrize("name", UNITS)
def test_both_isolations_of_every_partition(name: str) -> None:
    """Every partition of every unit reads as its manifest lists in both isolations, and is stable up to where the
    broker said."""
    readers = readers_of(name)
    seen = 0
    for partition in manifest(name)["partitions"]:
        reader = readers[TopicPartition(partition["topic"], partition["partition"])]
        committed = reader.isolated("read_committed")
        assert reader.isolated("read_uncommitted") is reader
        if "highWatermark" in partition:
            assert (reader.start_offset, reader.end_offset) == (partition["logStartOffset"], partition["highWatermark"])
            assert reader.last_stable_offset == committed.end_offset == partition["lastStableOffset"], partition["dir"]
        if partition.get("recordsSha256") is None or name in KILLED:
            continue
        start = reader.start_offset
        assert hash_of(read(reader, start, reader.end_offset)) == (partition["records"], partition["recordsSha256"])
        found = list(read(committed, start, committed.end_offset))
        assert len(found) == partition["committedRecords"], partition["dir"]
        lines = listed(name, partition)
        if lines is not None:
            assert [record.offset for record in found] == [
                line["offset"] for line in lines if line.get("committed", True)
            ]
        if is_transactional(partition):
            seen += 1
            for begin in range(start, committed.end_offset, 7):  # from anywhere, and in pieces
                expected = [record.offset for record in found if begin <= record.offset < begin + 9]
                assert [
                    record.offset for record in read(committed, begin, min(begin + 9, committed.end_offset))
                ] == expected
    assert seen or not any(is_transactional(partition) for partition in manifest(name)["partitions"]) or name in KILLED
    for reader in readers.values():
        reader.close()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("crash-4.1.0/killed", "crash-4.1.0/recovered"),
        ("crash-4.1.0/torn", "crash-4.1.0/torn-recovered"),
        ("cluster-4.1.0/n1-diverged", "cluster-4.1.0/n2"),
    ],
)
def test_a_killed_folder_reads_as_its_survivor_in_both_isolations(name: str, other: str) -> None:
    """Below its checkpointed high watermark a killed, torn or diverged log reads, in both isolations, as what Kafka
    made of it, or as the replica that went on."""
    left, right = readers_of(name), readers_of(other)
    seen = 0
    for key, reader in left.items():
        start = max(reader.start_offset, right[key].start_offset)
        end = reader.last_stable_offset
        assert end <= right[key].last_stable_offset, key
        for isolation in ("read_uncommitted", "read_committed"):
            mine = hash_of(read(reader.isolated(isolation), start, end))
            assert mine == hash_of(read(right[key].isolated(isolation), start, end)), key
            seen += mine[0]
    assert seen > 100
    for reader in (*left.values(), *right.values()):
        reader.close()


@pytest.mark.parametrize("name", ["crash-4.1.0/killed", "crash-4.1.0/torn"])
def test_recovered_as_stable_as_in_kafkas_hands(name: str, tmp_path: Path) -> None:
    """Opened as the sole replica, ``killed`` and ``torn`` end up as stable as a broker found them, and again from
    their snapshots."""
    folder = copy_of(name, tmp_path / "data")
    for attempt in range(2):
        root = LogRoot.open(DISK, str(folder), clock=SystemClock(), random=Random(attempt))
        for directory, expected in manifest(name)["afterRecovery"].items():
            topic, _, number = directory.rpartition("-")
            log = root.logs[TopicPartition(topic, int(number))]
            log.set_high_watermark(log.end_offset)
            if expected["lastStableOffset"] is not None:  # of internal topics nobody asked
                assert log.last_stable_offset == expected["lastStableOffset"], directory
        root.close()


def segments_of(folder: Path) -> list[SegmentReader]:
    """The segments of a partition folder, for reading."""
    bases = sorted(base for path in folder.iterdir() if (base := parse_base_offset(path.name)) is not None)
    return [
        SegmentReader(
            DISK,
            str(folder),
            base,
            size=(folder / segment_name(base, LOG_SUFFIX)).stat().st_size,
            index_interval=4096,
        )
        for base in bases
    ]


@pytest.mark.parametrize("name", [name for name in UNITS if name not in KILLED])
def test_indexes_and_snapshots_are_had_again_from_the_batches(name: str) -> None:
    """Transaction indexes and producer snapshots computed from the batches are those that Kafka wrote, compacted
    topics excepted."""
    checked = 0
    for partition in manifest(name)["partitions"]:
        folder = unit(name) / "data" / partition["dir"]
        if partition.get("topicConfig", {}).get("cleanup.policy", "").startswith("compact") or partition[
            "topic"
        ].startswith("__"):
            continue
        snapshots = sorted(
            base for path in folder.iterdir() if (base := parse_base_offset(path.name, SNAPSHOT_SUFFIX)) is not None
        )
        if partition.get("logStartOffset") or not snapshots:
            continue  # what was before the first batch is gone
        segments = segments_of(folder)
        table = ProducerTable()
        aborted: dict[int, list[AbortedRange]] = {segment.base_offset: [] for segment in segments}
        due = list(snapshots)

        def check(offset: int, due: list[int] = due, table: ProducerTable = table, folder: Path = folder) -> None:
            while due and due[0] <= offset:
                path = folder / segment_name(due.pop(0), SNAPSHOT_SUFFIX)
                written = {entry.producer_id: entry for entry in parse_producers(path.read_bytes(), str(path))}
                for entry in table:
                    if entry.producer_id not in written:
                        assert (folder.parent.parent.name, path.name) == (
                            "n1",
                            f"{37:020d}.snapshot",
                        )  # expired: see the README
                        continue
                    assert format_producers([entry]) == format_producers([written[entry.producer_id]]), path
                assert written.keys() <= {entry.producer_id for entry in table}

        for segment in segments:
            for one in producer_batches((segment,), segment.base_offset, 2**63 - 1):
                check(one.base_offset)
                done = table.note(one, one.base_offset)
                if done is not None and done.aborted:
                    entry = AbortedRange(done.producer_id, done.first_offset, done.last_offset, done.last_stable_offset)
                    aborted[segment.base_offset].append(entry)
        check(2**63 - 1)
        for segment in segments:
            path = folder / segment_name(segment.base_offset, TRANSACTION_INDEX_SUFFIX)
            assert format_aborted(aborted[segment.base_offset]) == (path.read_bytes() if path.exists() else b""), path
            checked += len(aborted[segment.base_offset])
            segment.release()
    assert checked or "txn" not in str(manifest(name)["partitions"])


# -- our own logs --


def played(actions: list[tuple[str, int]], count: int = 2) -> tuple[SimDisk, Log, Play]:
    """A log after ``actions`` of producers, all of it committed; ``count`` records in each batch of a
    transaction."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0", LogConfig(segment_bytes=1024))
    play = Play(log)
    for action, producer in actions:
        if action == "d":
            play.data(producer, count)
        elif action in "ca":
            play.end(producer, commit=action == "c")
        else:
            play.other()
    log.set_high_watermark(log.end_offset)
    return disk, log, play


ACTIONS = st.lists(st.tuples(st.sampled_from("dddcao"), st.integers(1, 3)), max_size=50)


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.integers(0, 60))
def test_any_start(actions: list[tuple[str, int]], low: int) -> None:
    """Records were deleted, up to the middle of a batch or of a transaction: of the rest committed readers see what
    they saw before, and a reader that was there before, too."""
    _, log, play = played(actions, 3)
    reader = Live(log)
    before = CommittedSource(reader)
    assert offsets_of(before, 100) == play.visible(play.stable)
    low = min(low, log.end_offset)
    log.increment_start_offset(low)
    reader.start_offset = low
    left = [offset for offset in play.visible(play.stable) if offset >= low]
    assert (
        offsets_of(CommittedSource(Live(log)))
        == offsets_of(CommittedSource(Live(log)), 100)
        == offsets_of(before)
        == left
    )
    log.close(clean=True)


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.integers(0, 60))
def test_any_interleaving(actions: list[tuple[str, int]], low: int) -> None:
    """Whatever producers do: stable offset and committed records are those of the plain rules; from the log, from
    its files, after a restart; and the index names exactly the aborted transactions."""
    disk, log, play = played(actions)
    assert log.last_stable_offset == play.stable
    source = CommittedSource(Live(log))
    assert offsets_of(source) == offsets_of(source, 100) == play.visible(play.stable)
    listed_aborted = log.aborted_transactions(0, play.stable)
    everything = [entry for segment in log._segments for entry in segment.transactions.entries]
    assert listed_aborted == [entry for entry in everything if entry.first_offset < play.stable]
    assert log.aborted_transactions(low, play.stable) == [entry for entry in listed_aborted if entry.last_offset >= low]
    index = {segment.base_offset: format_aborted(segment.transactions.entries) for segment in log._segments}
    table = format_producers(log.producers.table)
    sync(disk, log)
    log.write_mark()
    ((_, reader),) = open_readers(disk, "data/t-0").items()
    assert reader.last_stable_offset == play.stable
    assert offsets_of(CommittedSource(reader), 200) == play.visible(play.stable)
    reader.close()
    log.close(clean=False)
    for name in disk.list("data/t-0"):  # recovery makes the indexes anew
        if name.endswith((TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)):
            disk.remove(f"data/t-0/{name}")
    log = reopen(disk, "data/t-0")
    assert {segment.base_offset: format_aborted(segment.transactions.entries) for segment in log._segments} == index
    assert format_producers(log.producers.table) == table
    assert log.last_stable_offset == play.stable
    log.close(clean=True)


def test_nothing_is_stable_below_the_start(place: Place) -> None:
    """Records were deleted up to within a batch of a transaction that is open, and the high watermark lies in it,
    too."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_follower([produced(0, 5, leader=0, transactional=True)])
    sync(place.disk, log)
    log.advance_high_watermark(3)
    log.delete_records(2)
    assert log.last_stable_offset == 2
    ((_, reader),) = open_readers(place.disk, place.of("t-0")).items()
    assert (reader.start_offset, reader.end_offset, reader.last_stable_offset) == (2, 3, 2)
    assert offsets_of(CommittedSource(reader)) == []
    reader.close()
    log.close(clean=True)


def test_truncation_takes_back_the_end_of_a_transaction(place: Place) -> None:
    """What was ended above a cut is open again below it: table, index, stable offset; and it may end differently
    then."""
    log = create(place.disk, place.of("t-0"))
    play = Play(log)
    play.data(1)
    play.end(1, commit=False)
    play.data(2)
    log.set_high_watermark(log.end_offset)
    log.truncate_to(2)
    assert log._segments.last.transactions.entries == []
    assert log.producers.table.open_transactions == {1: 0}
    assert log.last_stable_offset == 0
    log.append_as_follower([marker(commit=True, producer=1, base=2)])
    log.set_high_watermark(3)
    assert log.last_stable_offset == 3
    assert offsets_of(CommittedSource(Live(log))) == [0, 1]
    log.close(clean=True)


@pytest.mark.parametrize("clean", [True, False])
def test_a_lying_transaction_index(place: Place, clean: bool) -> None:
    """Readers never believe the index: with every bit of it flipped in turn they give the same records; a log
    opened after a crash has it anew."""
    log = create(place.disk, place.of("t-0"))
    play = Play(log)
    play.data(1)
    play.data(2)
    play.end(1, commit=False)
    play.data(2)
    play.end(2, commit=False)
    play.data(1)
    play.end(1, commit=True)
    play.other()
    log.set_high_watermark(log.end_offset)
    sync(place.disk, log)
    expected = play.visible(play.stable)
    content = format_aborted(log._segments.last.transactions.entries)
    assert len(content) == 68
    log.close(clean=clean)
    name = f"t-0/{0:020d}.txnindex"
    for bit in range(0, len(content) * 8, 1 if clean else 31):
        lie = bytearray(content)
        lie[bit // 8] ^= 1 << bit % 8
        place.write(name, bytes(lie))
        if clean:
            ((_, reader),) = open_readers(place.disk, place.of("t-0")).items()
            assert offsets_of(CommittedSource(reader)) == expected
            reader.close()
        else:
            log = reopen(place.disk, place.of("t-0"))
            assert format_aborted(log._segments.last.transactions.entries) == content
            log.close(clean=False)


def test_empty_and_unknown_control_batches(place: Place) -> None:
    """A control batch that compaction emptied ends nothing; control records of unknown type are passed over and
    shown to nobody."""
    log = create(place.disk, place.of("t-0"))
    play = Play(log)
    play.data(1)
    builder = BatchBuilder()
    assert builder.append(bytes(6), b"\x00\x00\x00\x63", (), 1)
    log.append_as_follower(
        [
            builder.finish(
                base_offset=2,
                leader_epoch=0,
                producer_id=1,
                producer_epoch=0,
                base_sequence=-1,
                transactional=True,
                control=True,
            )
        ]
    )
    log.set_high_watermark(3)
    assert log.last_stable_offset == 0
    play.end(1, commit=True)
    log.set_high_watermark(4)
    assert offsets_of(CommittedSource(Live(log))) == [0, 1]
    log.close(clean=True)


# -- the file --


def test_index_entries_are_kafkas() -> None:
    """Golden vector A8, both ways."""
    entry = AbortedRange(77, 100, 201, 202)
    content = bytes.fromhex("0000000000000000004d000000000000006400000000000000c900000000000000ca")
    assert format_aborted([entry]) == content
    assert parse_aborted(content, 100, "x") == [entry]
    assert parse_aborted(content + content[:33], 100, "x") == [entry]  # a fragment at the end is no entry


def test_a_transaction_index_is_what_recovery_found_and_is_synced_open_or_not(place: Place) -> None:
    """Where nothing was aborted no entry is left to come back; and files may have been closed since they were
    written."""
    index = TransactionIndex(place.disk, place.path, 100)
    index.append(AbortedRange(1, 100, 110, 100))
    index.write()
    index.close()
    assert len(index.files()) == 1
    index.replace([])
    assert TransactionIndex(place.disk, place.path, 100).entries == []
    assert index.files() == []


def test_index_file(place: Place) -> None:
    """Edges 48, 49, 51, 52, 53: made with its first entry; last offsets rise, also after it is opened again; cut
    and gone on with; absent is fine; an entry below its segment is corrupt."""
    index = TransactionIndex(place.disk, place.path, 100)
    index.write()
    index.truncate(0)
    index.close()
    assert index.files() == []
    assert place.disk.stat(index.path) is None
    for last in (110, 120, 130):
        index.append(AbortedRange(1, 101, last, last + 1))
    index.write()
    index.close()
    index = TransactionIndex(place.disk, place.path, 100)
    with pytest.raises(ValueError, match="after 130"):
        index.append(AbortedRange(1, 101, 130, 131))
    index.truncate(120)
    index.append(AbortedRange(2, 111, 125, 126))
    index.write()
    index.close()
    assert [entry.last_offset for entry in TransactionIndex(place.disk, place.path, 100).entries] == [110, 125]
    with pytest.raises(ValueError):
        parse_aborted(format_aborted([AbortedRange(1, 90, 99, 100)]), 100, "x")
    with pytest.raises(ValueError):
        parse_aborted(b"\x00\x01" + bytes(32), 0, "x")


def test_an_unknown_isolation_is_named(place: Place) -> None:
    """Only the two of Kafka."""
    log = create(place.disk, place.of("t-0"))
    ((_, reader),) = open_readers(place.disk, place.of("t-0")).items()
    with pytest.raises(ConfigError, match="read_committed"):
        reader.isolated("read_comitted")
    reader.close()
    log.close(clean=True)


# -- the faces --


@pytest.mark.parametrize("name", ["clean-4.1.0", "clean-3.9.1", "clean-4.3.1"])
@pytest.mark.parametrize(("topic", "partition"), [("txn", 0), ("txn", 1), ("txn-lz4", 0)])
def test_open_log_and_scan_read_committed(name: str, topic: str, partition: int) -> None:
    """``open_log(isolation="read_committed")`` iterates, reads, follows and scans to Arrow what a read_committed
    consumer got, and stops where that one stopped; the default gives everything."""
    one = next(p for p in manifest(name)["partitions"] if (p["topic"], p["partition"]) == (topic, partition))
    lines = listed(name, one)
    assert lines is not None
    expected = [line["offset"] for line in lines if line.get("committed", True)]
    assert expected != [line["offset"] for line in lines]
    with pyreplog.open_log(
        unit(name) / "data", "r", topic=topic, partition=partition, isolation="read_committed"
    ) as log:
        assert log.last_stable_offset == log.high_watermark == one["lastStableOffset"]
        assert [record.offset for record in log] == expected
        assert log.position == one["lastStableOffset"]
        assert [record.offset for record in log.read(start=expected[3], end=expected[-3])] == expected[3:-3]
        assert [record.offset for record in log.follow(timeout=0)] == expected
        assert pyarrow.table(log.scan(["offset"])).column("offset").to_pylist() == expected
        some = pyarrow.table(log.scan(start=expected[3], end=expected[-3]))
        assert some.column("offset").to_pylist() == expected[3:-3]
    with pyreplog.open_log(unit(name) / "data", "r", topic=topic, partition=partition) as log:
        assert log.last_stable_offset == one["lastStableOffset"]
        assert [record.offset for record in log] == [line["offset"] for line in lines]
        assert pyarrow.table(log.scan(["offset"])).column("offset").to_pylist() == [line["offset"] for line in lines]
    with pytest.raises(ConfigError, match="isolation"):
        pyreplog.open_log(unit(name) / "data", "r", topic=topic, isolation="committed")  # type: ignore[arg-type]


def test_cat_isolation(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """``replog cat --isolation read_committed`` prints what a read_committed consumer got, without it
    everything."""
    one = next(p for p in manifest("clean-4.1.0")["partitions"] if p["dir"] == "txn-0")
    lines = listed("clean-4.1.0", one)
    assert lines is not None
    for isolation in ("read_committed", "read_uncommitted"):
        arguments = [
            "cat",
            str(unit("clean-4.1.0") / "data"),
            "--topic",
            "txn",
            "--partition",
            "0",
            "--isolation",
            isolation,
        ]
        assert main(arguments) == 0
        found = [json.loads(line)["offset"] for line in capsysbinary.readouterr().out.splitlines()]
        assert found == [line["offset"] for line in lines if isolation == "read_uncommitted" or line["committed"]]
