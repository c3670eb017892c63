"""Named readers: a reader goes on behind what its name committed, in whatever process and whatever ended the last."""

from __future__ import annotations

import asyncio
import datetime
import multiprocessing
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyreplog
from pyreplog import (
    ClosedError,
    Cluster,
    ConfigError,
    ForkedError,
    LockedError,
    Log,
    LogTruncatedError,
    OffsetOutOfRangeError,
    RecordsDeletedError,
    StorageError,
    TopicPartition,
    TopicRecreatedError,
    UnknownTopicError,
    aio,
    open_log,
)
from pyreplog.system import SystemDisk
from pyreplog.testing import SimClock, SimDisk
from pyreplog.verify import Level, small_file, verify
from tests.interop.golden import units

KEY = TopicPartition("events", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log of ten records."""
    with open_log(tmp_path / "events", durability="os") as log:
        log.append_many([b"%d" % number for number in range(10)])
        yield log


def offsets(records: list[pyreplog.Record] | Iterator[pyreplog.Record]) -> list[int]:
    """The offsets of these records."""
    return [record.offset for record in records]


@pytest.mark.parametrize("mode", ["a", "r"])
def test_it_goes_on_behind_what_was_committed(log: Log, mode: str) -> None:
    """The records behind the last commit come again, the others do not; beside the writer too, without asking it."""
    with open_log(log.path, "r") if mode == "r" else log as reading:
        with reading.consumer("billing") as consumer:
            records = consumer.poll(5.0)
            assert offsets(records) == list(range(10))
            assert consumer.committed() == {}
            consumer.commit(records[3])
            assert consumer.committed(KEY) == 4
            assert consumer.lag() == {KEY: 0}
        with reading.consumer("billing") as consumer:
            assert consumer.lag() == {KEY: 6}
            assert offsets(consumer.until_end()) == [4, 5, 6, 7, 8, 9]
            consumer.commit()
        with reading.consumer("billing") as consumer, reading.consumer("other") as other:
            assert consumer.poll() == []
            assert len(other.poll(5.0)) == 10
    assert consumer.closed


def test_a_name_has_one_consumer(log: Log) -> None:
    """A second one hears of the holder, from any opening of the log, and gets the name when the first ends."""
    with open_log(log.path, "r") as beside:
        first = log.consumer("billing")
        for other in (log, beside):
            with pytest.raises(LockedError, match=f"pid {os.getpid()}") as caught:
                other.consumer("billing")
            assert "named reader 'billing' is already open" in str(caught.value)
        timer = threading.Timer(0.05, first.close)
        timer.start()
        with beside.consumer("billing", lock_timeout=30) as second:
            assert not second.closed
        timer.join()


def test_what_a_commit_says(log: Log) -> None:
    """A record, all that was handed out, or offsets; nothing new writes nothing; a lower offset needs a seek."""
    with log.consumer("billing") as consumer:
        consumer.commit()
        assert consumer.committed() == {}
        records = consumer.poll(5.0, 4)
        consumer.commit()
        assert consumer.committed() == {KEY: consumer.committed(tp=KEY)} == {KEY: 4}
        size = os.path.getsize(f"{log.path}/replog.offsets-billing")
        consumer.commit()
        consumer.commit(records[3])
        consumer.commit({KEY: 4}, sync=True)
        assert os.path.getsize(f"{log.path}/replog.offsets-billing") <= size
        for lower in (records[1], {KEY: 2}):
            with pytest.raises(ConfigError, match="below the committed offset 4: seek"):
                consumer.commit(lower)
        consumer.commit({KEY: 10})
        with pytest.raises(OffsetOutOfRangeError):
            consumer.commit({KEY: 11})
        with pytest.raises(UnknownTopicError):
            consumer.commit({("other", 0): 1})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="commit takes a Record"):
            consumer.commit(7)  # type: ignore[arg-type]
        consumer.seek("events", 0, 2)
        assert offsets(consumer.poll(5.0, 1)) == [2]
        consumer.commit()
        assert consumer.committed(KEY) == 3


def test_automatic_commits(log: Log) -> None:
    """A record is committed when the next is asked for, a poll's at the next poll; the one in hand is not."""
    with log.consumer("billing", auto_commit=True) as consumer:
        for record in consumer:
            if record.offset == 3:
                break
        assert consumer.committed(KEY) == 3
        with pytest.raises(RuntimeError):
            for record in consumer:
                if record.offset == 5:
                    raise RuntimeError("in hand")
        assert consumer.committed(KEY) == 5
    with log.consumer("billing", auto_commit=True) as consumer:
        assert offsets(consumer.poll(5.0, 2)) == [5, 6]
        assert consumer.committed(KEY) == 5
        assert offsets(consumer.poll(5.0, 2)) == [7, 8]
        assert consumer.committed(KEY) == 7
    with log.consumer("billing", auto_commit=True) as consumer:
        assert offsets(consumer.until_end()) == [7, 8, 9]
        assert consumer.committed(KEY) == 10
        assert pa.table(consumer.poll_arrow()).num_rows == 0


def test_where_a_new_name_begins(log: Log, tmp_path: Path) -> None:
    """At the first record, the end, an offset or a time; a name that has begun goes on where it is, even if nothing was
    committed."""
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    for name, start, first in (("a", "earliest", 0), ("b", "latest", 10), ("c", 4, 4), ("d", later, 10)):
        with log.consumer(name, start=start) as consumer:  # type: ignore[arg-type]
            assert consumer.position(KEY) == first
    log.append(b"10")
    with log.consumer("b", start="latest") as consumer:
        assert offsets(consumer.poll(5.0)) == [10]
    with log.consumer("c", start="latest") as consumer:
        assert consumer.position(KEY) == 4
    with pytest.raises(OffsetOutOfRangeError):
        log.consumer("e", start=12)
    for wrong in ({"start": "first"}, {"on_data_loss": "skip"}, {"auto_commit": 1}, {"lock_timeout": -1}):
        with pytest.raises(ConfigError):
            log.consumer("f", **wrong)
    for name in ("", "a b", "x" * 201):
        with pytest.raises(ConfigError, match="is no name"):
            log.consumer(name)


def test_deleted_records_are_told(log: Log) -> None:
    """A reader whose records were deleted hears of it at every poll, with both offsets, until it seeks or its policy
    says where to go on (G19)."""
    with log.consumer("billing") as consumer:
        consumer.commit(consumer.poll(5.0)[2])
    log.delete_records(6)
    with log.consumer("billing") as consumer:
        for _ in range(2):
            with pytest.raises(
                RecordsDeletedError, match="offset 3 of events-0, and the log begins at offset 6"
            ) as told:
                consumer.poll()
            assert (told.value.committed, told.value.found) == (3, 6)
        with pytest.raises(RecordsDeletedError):
            consumer.poll_arrow()
        with pytest.raises(RecordsDeletedError):
            next(iter(consumer))
        consumer.seek_to_beginning()
        assert offsets(consumer.poll(5.0)) == [6, 7, 8, 9]
    for policy, first in (("earliest", 6), ("latest", 10)):
        with log.consumer("billing", on_data_loss=policy) as consumer:  # type: ignore[arg-type]
            assert consumer.poll() == [] if policy == "latest" else offsets(consumer.poll(5.0)) == [6, 7, 8, 9]
            assert consumer.committed(KEY) == 3
            assert first <= consumer.position(KEY)


def test_deletion_under_a_reader_is_told(log: Log) -> None:
    """Records that are deleted before a running reader gets to them are told, not passed over."""
    with log.consumer("billing") as consumer:
        consumer.poll(5.0, 1)
        consumer.seek("events", 0, 2)
        log.delete_records(8)
        with pytest.raises(RecordsDeletedError):
            consumer.poll()


@pytest.mark.parametrize("grown", [False, True])
def test_a_cut_log_is_told(grown: bool) -> None:
    """A log that lost its end to a power loss is told, also when it has grown past the committed offset since: its
    leader epoch tells."""
    disk, clock = SimDisk(Random(3)), SimClock()
    log = open_log("events", disk=disk, clock=clock, durability="os")
    log.append_many([b"%d" % number for number in range(4)])
    log.flush()
    log.close()
    before = disk.crash(Random(1))  # the state that a backup or a lost cache would bring back
    log = open_log("events", disk=disk, clock=clock)
    log.append_many([b"%d" % number for number in range(6)])
    with log.consumer("billing", offsets="kept") as consumer:
        consumer.poll()
        consumer.commit(sync=True)
        assert consumer.committed() == {KEY: 10}
    log.close()
    kept = disk.open("kept/replog.offsets-billing").read_at(0, 10_000)
    log = open_log("events", disk=before, clock=clock)
    before.make_directory("kept")
    file = before.create("kept/replog.offsets-billing")
    file.write_at(0, [kept])
    file.close()
    if grown:
        log.append(b"once")
        log.close()
        log = open_log("events", disk=before, clock=clock)  # in the epoch behind that of the lost records
        log.append_many([b"other %d" % number for number in range(20)])
    with log.consumer("billing", offsets="kept") as consumer:
        for _ in range(2):
            with pytest.raises(LogTruncatedError, match="offset 10 of events-0") as told:
                consumer.poll()
            assert (told.value.committed, told.value.found) == (10, 5 if grown else 4)
        consumer.seek("events", 0, 4)
        assert len(consumer.poll()) == (21 if grown else 0)
        consumer.commit()
    with log.consumer("billing", offsets="kept") as consumer:
        assert consumer.poll() == []
    log.close()


def test_a_commit_above_a_stale_watermark_is_no_loss(log: Log) -> None:
    """After power loss the mark on the disk may be older than a commit: the whole batches that are there decide."""
    mark = Path(log.path, "events-0", "replog.mark")
    old = mark.read_bytes()
    log.append_many([b"10", b"11"])
    with log.consumer("billing") as consumer:
        assert len(consumer.poll(5.0)) == 12
        consumer.commit()
    log.close()
    mark.write_bytes(old)
    with open_log(log.path, "r") as beside, beside.consumer("billing") as consumer:
        assert consumer.poll() == []
        assert consumer.seek(KEY, 12) == 12  # as a program does that keeps its place itself
        assert consumer.poll() == []
        with pytest.raises(OffsetOutOfRangeError, match="13"):
            consumer.seek(KEY, 13)


def test_a_recreated_topic_is_told(tmp_path: Path) -> None:
    """Another topic under the name of the one whose offsets were committed is told at every poll (G15)."""
    for life in range(2):
        with open_log(tmp_path / "events", durability="os") as log:
            log.append_many([b"%d" % life] * 5)
            with log.consumer("billing", offsets=tmp_path / "kept") as consumer:
                if life:
                    for _ in range(2):
                        with pytest.raises(TopicRecreatedError, match="created again") as told:
                            consumer.poll()
                        assert (told.value.committed, told.value.found) == (4, 0)
                    consumer.seek_to_beginning()
                    assert consumer.poll(5.0)[0].value == b"1"
                    consumer.commit()
                else:
                    consumer.commit(consumer.poll(5.0)[3])
            with log.consumer("billing", offsets=tmp_path / "kept") as consumer:
                assert consumer.committed(KEY) == (5 if life else 4)
                assert len(consumer.poll()) == (0 if life else 1)
        shutil.rmtree(tmp_path / "events")


def test_a_broker_folder_needs_another_place(tmp_path: Path) -> None:
    """Beside a broker's partitions nothing is written; ``offsets=`` names another folder."""
    folder = units.unit("clean-4.1.0") / "data"
    names = sorted(os.listdir(folder))
    with open_log(folder, "r", topic="plain", partition=0) as log:
        with pytest.raises(ConfigError, match="give offsets=FOLDER"):
            log.consumer("billing")
        with log.consumer("billing", offsets=tmp_path / "kept") as consumer:
            first = consumer.poll(5.0, 3)
            consumer.commit()
        with log.consumer("billing", offsets=tmp_path / "kept") as consumer:
            assert consumer.poll(5.0, 1)[0].offset == first[-1].offset + 1
    assert sorted(os.listdir(folder)) == names


def test_arrow_tables(log: Log) -> None:
    """The same records in the same order as by ``poll``; positions and commits go with them."""
    with log.consumer("billing") as consumer:
        assert offsets(consumer.poll(5.0, 3)) == [0, 1, 2]
        table = pa.table(consumer.poll_arrow(timeout=5.0))
        assert table.column("offset").to_pylist() == [3, 4, 5, 6, 7, 8, 9]
        assert table.column("value").to_pylist() == [b"%d" % number for number in range(3, 10)]
        consumer.commit()
        assert consumer.committed(KEY) == 10
        empty = consumer.poll_arrow()
        assert (len(empty), pa.table(empty).schema) == (0, table.schema)
        log.append(b"10")
        assert len(consumer.poll_arrow(5.0)) == 1


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("poll"), st.integers(1, 7)),
            st.tuples(st.just("next"), st.integers(1, 7)),
            st.tuples(st.just("seek"), st.integers(0, 30)),
            st.tuples(st.sampled_from(["position", "commit", "pause", "new iterator", "table"]), st.just(0)),
        ),
        max_size=30,
    )
)
@settings(max_examples=60)
def test_all_ways_to_read_share_one_place(steps: list[tuple[str, int]]) -> None:
    """Iterators, polls, tables and seeks, mixed, hand out each record once, in order, and commits say what they
    did."""
    disk = SimDisk(Random(2))
    with open_log("events", disk=disk, clock=SimClock(), durability="os") as log:
        for _ in range(10):
            log.append_many([b"a", b"b", b"c"])
        with log.consumer("billing") as consumer:
            iterator, place = iter(consumer), 0
            for step, number in steps:
                if step == "poll":
                    found = offsets(consumer.poll(0.0, number))
                elif step == "next":
                    found = [next(iterator).offset for _ in range(min(number, 30 - place))]
                elif step == "table":
                    found = pa.table(consumer.poll_arrow()).column("offset").to_pylist()
                else:
                    found = []
                    if step == "seek":
                        place = consumer.seek("events", 0, number)
                    elif step == "position":
                        assert consumer.position(KEY) == place
                    elif step == "commit":
                        consumer.commit()
                        assert consumer.committed(KEY) in ((None, 0) if place == 0 else (place,))
                    elif step == "pause":
                        consumer.pause()
                        assert consumer.poll() == []
                        consumer.resume()
                    else:
                        iterator = iter(consumer)
                assert found == list(range(place, place + len(found)))
                place += len(found)
            assert offsets(consumer.until_end()) == list(range(place, 30))


def test_pauses(log: Log) -> None:
    """A paused partition keeps its place and gives nothing; a wait goes on when it is resumed."""
    with log.consumer("billing") as consumer:
        assert offsets(consumer.poll(5.0, 2)) == [0, 1]
        consumer.pause()
        assert (consumer.poll(), consumer.paused, consumer.position(KEY)) == ([], [KEY], 2)
        threading.Timer(0.02, consumer.resume, ["events"]).start()
        assert offsets(consumer.poll(30.0, 1)) == [2]
        with pytest.raises(UnknownTopicError):
            consumer.pause("other")


def test_the_end_of_a_log_ends_its_readers(tmp_path: Path) -> None:
    """Closing the log closes them, a waiting one too, and gives the names back."""
    log = open_log(tmp_path / "events", durability="os")
    consumer = log.consumer("billing")
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            consumer.poll(None)
        except ClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    log.close()
    thread.join()
    assert caught
    for use in (consumer.poll, consumer.commit, consumer.lag, consumer.committed, consumer.pause):
        with pytest.raises(ClosedError):
            use()
    with open_log(log.path) as log, log.consumer("billing") as consumer:
        assert consumer.poll() == []


def test_a_child_of_a_fork_has_no_reader(log: Log) -> None:
    """It refuses, and neither holds the name nor changes the file."""
    consumer = log.consumer("billing")
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        try:
            consumer.commit({KEY: 3})
        except ForkedError:
            consumer.close()
            sender.send("refused")

    process = context.Process(target=child)
    process.start()
    assert receiver.recv() == "refused"
    consumer.close()
    with log.consumer("billing") as again:
        assert again.committed() == {}
    process.join()


def test_a_cluster_has_named_readers(tmp_path: Path) -> None:
    """Of several partitions, in the process that runs it and beside it; each partition goes on at its own place."""
    with Cluster(tmp_path / "data", nodes=2) as cluster:
        cluster.admin.create_topic("orders", partitions=3)
        cluster.admin.create_topic("more", partitions=1)
        with cluster.producer() as producer:
            for partition in range(3):
                producer.send_many("orders", [b"%d" % n for n in range(5)], partition=partition).wait()
            producer.send("more", b"x").result()
        with cluster.consumer(["orders", "more"], name="billing") as consumer:
            records = [record for _ in range(4) for record in consumer.poll(5.0, 5)]
            seen: dict[TopicPartition, int] = {}
            for record in records[:7]:
                consumer.commit(record)
                seen[TopicPartition(record.topic, record.partition)] = record.offset + 1
            assert consumer.committed() == seen
            assert (tmp_path / "data" / "replog.offsets-billing").exists()
            with Cluster(tmp_path / "data", mode="r") as beside, pytest.raises(LockedError):
                beside.consumer("orders", name="billing")
        with Cluster(tmp_path / "data", mode="r") as beside:
            with beside.consumer(["orders", "more"], name="billing") as consumer:
                rest = list(consumer.until_end())
                assert len(rest) == 16 - 7
                assert pa.table(consumer.poll_arrow()).num_rows == 0
                consumer.seek_to_beginning()
                table = pa.table(consumer.poll_arrow(5.0))
                assert (table.num_rows, set(table.column("log").to_pylist())) == (16, {"orders", "more"})
            assert beside.consumer("orders", name="billing").committed()
        for wrong in (
            {"auto_offset_reset": "latest", "name": "b"},
            {"start": "latest"},
            {"read_from": "follower", "name": "b"},
        ):
            with pytest.raises(ConfigError):
                cluster.consumer("orders", **wrong)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="unexpected"):
            cluster.consumer("orders", colour=1)  # type: ignore[call-overload]
        consumer = cluster.consumer("orders", name="closing")
    assert consumer.closed


def test_coroutines_have_them(log: Log) -> None:
    """The asyncio face does the same, and waits for a name without a thread."""

    async def main() -> None:
        async with await aio.open_log(log.path, "r") as beside:
            async with beside.consumer("billing", auto_commit=True) as consumer:
                with pytest.raises(LockedError):
                    await beside.consumer("billing", lock_timeout=0.01)
                async for record in consumer:
                    if record.offset == 3:
                        break
                assert consumer.committed(KEY) == 3
                assert offsets(await consumer.poll(5.0, 2)) == [4, 5]
                table = await consumer.poll_arrow(5.0)
                assert consumer.committed(KEY) == 6
                assert len(table) == 4
                assert await consumer.lag() == {KEY: 0}
                await consumer.seek(KEY, 8)
                assert [record.offset async for record in consumer.until_end()] == [8, 9]
                assert consumer.committed(KEY) == 10
                await consumer.pause()
                assert await consumer.poll() == []
                await consumer.resume()
                await consumer.commit({KEY: 10}, sync=True)
                waiting = asyncio.ensure_future(_opened(beside))
                await asyncio.sleep(0)
            assert await waiting == 10

    async def _opened(beside: aio.Log) -> int | None:
        async with beside.consumer("billing", lock_timeout=30) as consumer:
            return consumer.committed(KEY)

    asyncio.run(main())


def read_until_killed(path: str, kind: str, handled: Connection) -> None:
    """A reader process: send each offset, as the handler's effect, and commit when the test has seen it."""
    with ExitStack() as stack:
        if kind == "log":
            log = stack.enter_context(open_log(path, "r"))
            consumer = stack.enter_context(log.consumer("billing", lock_timeout=None))
        else:
            cluster = stack.enter_context(Cluster(path, mode="r"))
            consumer = stack.enter_context(cluster.consumer("events", name="billing", lock_timeout=None))
        for record in consumer:
            handled.send(record.offset)
            handled.recv()
            consumer.commit(record)


@pytest.fixture(params=["log", "cluster"])
def fifty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The kind and the folder of a log or a running cluster of fifty records in one partition."""
    folder = tmp_path / "events"
    if request.param == "log":
        with open_log(folder, durability="os") as log:
            log.append_many([b"x"] * 50)
            yield request.param, str(folder)
        return
    with Cluster(folder) as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
        with cluster.producer() as producer:
            producer.send_many("events", [b"x"] * 50).wait()
        yield request.param, str(folder)


def test_readers_that_are_killed_miss_nothing(fifty: tuple[str, str]) -> None:
    """Processes killed with SIGKILL between handler and commit, or within the commit: each record is handled at least
    once, in order, and the next process takes over at once. A kill repeats two records at most."""
    kind, path = fifty
    random, handled, kills = Random(7), list[int](), 0
    context = multiprocessing.get_context("fork")
    while not handled or handled[-1] < 49:
        ours, theirs = context.Pipe()
        child = context.Process(target=read_until_killed, args=(path, kind, theirs))
        child.start()
        theirs.close()
        first = len(handled)
        for _ in range(random.randrange(4, 15)):
            handled.append(ours.recv())
            if handled[-1] == 49:
                break
            ours.send("seen")
        assert handled[first:] == list(range(handled[first], handled[first] + len(handled) - first))
        child.kill()
        child.join()
        ours.close()
        kills += 1
    assert sorted(set(handled)) == list(range(50))
    assert kills > 3
    assert len(handled) <= 50 + 2 * kills


def test_verify_dump_and_backup_know_the_file(log: Log, tmp_path: Path) -> None:
    """A reader's file is no stranger: its entries are shown, a torn end is a note, damage a warning, and a restored
    backup goes on at the place that it had."""
    with log.consumer("Billing") as consumer:
        consumer.commit(consumer.poll(5.0)[4])
        consumer.commit({KEY: 7})
    file = Path(log.path, "replog.offsets-%billing")
    rows = list(small_file(file.name, file.read_bytes()))
    assert rows[0]["reader"] == "Billing"
    assert [(row["kind"], row["partition"], row["offset"]) for row in rows[1:]] == [("commit", 0, 5), ("commit", 0, 7)]
    pyreplog.backup(log.path, tmp_path / "copy")
    log.close()
    disk = SystemDisk()
    assert [one for one in verify(disk, log.path).findings if "offsets" in one.path] == []
    whole = file.read_bytes()
    file.write_bytes(whole + b"torn")
    (torn,) = (one for one in verify(disk, log.path).findings if "offsets" in one.path)
    assert torn.level is Level.NOTE
    damaged = bytearray(whole)
    damaged[520] ^= 1
    file.write_bytes(damaged)
    (broken,) = (one for one in verify(disk, log.path).findings if "offsets" in one.path)
    assert (broken.level, broken.position) == (Level.WARNING, 512)
    with open_log(tmp_path / "copy", "r", topic="events") as copy, copy.consumer("Billing") as consumer:
        assert offsets(consumer.poll()) == [7, 8, 9]


def test_committed_records_only(tmp_path: Path) -> None:
    """A reader of a log of ``isolation="read_committed"`` sees no aborted record, and its place passes the markers."""
    folder = units.unit("clean-4.1.0") / "data"
    key = TopicPartition("txn", 0)
    with open_log(folder, "r", topic="txn", partition=0, isolation="read_committed") as log:
        expected = offsets(log.read())
        for way in ("poll", "tables"):
            with log.consumer(way, offsets=tmp_path / "kept") as consumer:
                found: list[int] = []
                while consumer.position(key) < log.high_watermark:
                    if way == "poll":
                        found += offsets(consumer.poll())
                    else:
                        found += pa.table(consumer.poll_arrow()).column("offset").to_pylist()
                assert found == expected
                consumer.commit()
                assert consumer.lag() == {key: 0}
            with log.consumer(way, offsets=tmp_path / "kept") as consumer:
                assert consumer.poll() == []
                assert consumer.committed(key) == log.high_watermark


def sum_until_killed(path: str, database_path: str, handled: Connection) -> None:
    """A process of the recipe for exactly once: the result and the next offset in one transaction."""
    database = sqlite3.connect(database_path)
    with open_log(path, "r") as log, log.consumer("totals", lock_timeout=None) as consumer:
        consumer.seek(KEY, database.execute("SELECT next_offset FROM total").fetchone()[0])
        for record in consumer:
            handled.send(record.offset)
            with database:
                database.execute(
                    "UPDATE total SET sum = sum + ?, next_offset = ?", (int(record.value or b"0"), record.offset + 1)
                )


def test_exactly_once_where_the_result_has_the_offset(log: Log, tmp_path: Path) -> None:
    """Processes of the guide's recipe killed at any moment count each record once."""
    random, database_path = Random(8), str(tmp_path / "totals.sqlite")
    log.append_many([b"%d" % number for number in range(10, 60)])
    database = sqlite3.connect(database_path, isolation_level=None)
    database.execute("PRAGMA synchronous=OFF")
    database.execute("CREATE TABLE total (sum INTEGER, next_offset INTEGER)")
    database.execute("INSERT INTO total VALUES (0, 0)")
    context = multiprocessing.get_context("fork")
    ended = False
    while not ended:
        ours, theirs = context.Pipe()
        child = context.Process(target=sum_until_killed, args=(log.path, database_path, theirs))
        child.start()
        theirs.close()
        for _ in range(random.randrange(1, 12)):
            (place,) = database.execute("SELECT next_offset FROM total").fetchone()
            ended = place == 60
            if ended:
                break
            if ours.poll(0.5):
                ours.recv()
        child.kill()
        child.join()
        ours.close()
    assert database.execute("SELECT sum FROM total").fetchone() == (sum(range(60)),)
    database.close()


def test_a_synced_commit_of_nothing_new_makes_earlier_ones_durable() -> None:
    """Also those of a process that ended: what is committed when it returns survives power loss."""
    disk = SimDisk(Random(2))
    log = open_log("events", disk=disk, clock=SimClock(), durability="os")
    log.append_many([b"a", b"b"])
    log.flush()
    with log.consumer("billing") as consumer:
        consumer.commit(consumer.poll()[0])
    with log.consumer("billing") as consumer:
        consumer.commit(sync=True)
        left = [disk.crash(Random(number)) for number in range(20)]
    log.close()
    for after in left:
        with open_log("events", "r", disk=after, clock=SimClock()) as log, log.consumer("billing") as consumer:
            assert consumer.committed(KEY) == 1


def test_a_full_disk_fails_a_commit_alone() -> None:
    """A refused commit is an error and changes nothing; the next one works."""
    disk = SimDisk(Random(2))
    with open_log("events", disk=disk, clock=SimClock(), durability="os") as log:
        log.append_many([b"a", b"b"])
        with log.consumer("billing") as consumer:
            records = consumer.poll()
            disk.fail("write", "*replog.offsets*", partial=30)
            with pytest.raises(StorageError):
                consumer.commit(records[0])
            assert consumer.committed() == {}
            consumer.commit(records[1])
        with log.consumer("billing") as consumer:
            assert consumer.committed() == {KEY: 2}
