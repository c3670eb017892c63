"""``open_log`` as a user meets it, on real files."""

from __future__ import annotations

import copy
import errno
import gc
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Literal

import polars
import pyarrow
import pytest

import pyreplog
from pyreplog.ports import Stat
from pyreplog.testing import SimDisk


def test_five_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that the product promises work as printed."""
    monkeypatch.chdir(tmp_path)
    with pyreplog.open_log("events/") as log:
        offset = log.append(b"hello", key=b"user-1")
        log.append_many([b"a", b"b", b"c"])
        pending = log.append_nowait(b"later")
        assert pending.result().offset == 4
        lines = [(record.offset, record.value) for record in log.read(start=0)]
    assert offset == 0
    assert lines == [(0, b"hello"), (1, b"a"), (2, b"b"), (3, b"c"), (4, b"later")]
    assert log.topic == "events"
    assert (tmp_path / "events" / "events-0" / "00000000000000000000.log").exists()


def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is meant where the program was when it opened the log, whoever reads or writes it later."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with (
        pyreplog.open_log("events", durability="os", config={"segment.bytes": 1024}) as log,
        pyreplog.open_log("events", "r") as reader,
    ):
        log.append(bytes(700))
        monkeypatch.chdir("elsewhere")
        for _ in range(3):
            log.append(bytes(700))
        assert len(list(log.read())) == len(list(reader.read())) == len(list(reader.follow(timeout=0))) == 4
    with pyreplog.open_log("../events") as log:
        assert len(list(log)) == 4
    with pyreplog.Cluster("cluster", nodes=1) as cluster:
        monkeypatch.chdir(tmp_path)
        cluster.admin.create_topic("t", partitions=1, replication_factor=1, config={"min.insync.replicas": 1})
        with cluster.producer() as producer:
            producer.send("t", b"x").result()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "events"]
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["cluster"]


@pytest.mark.parametrize(
    "make",
    [copy.copy, copy.deepcopy, lambda log: copy.deepcopy(log._writer.log), lambda log: log.__reduce_ex__(4)],
    ids=["copy", "deepcopy", "deepcopy of its files", "pickle"],
)
def test_a_log_is_not_copied(tmp_path: Path, make: Callable[[Any], Any]) -> None:
    """A copy of it, or of anything that holds its files, is refused and does it no harm; pickling it, too."""
    with pyreplog.open_log(tmp_path / "log") as log:
        with pytest.raises(TypeError, match="cannot be (copied|pickled)|cannot pickle"):
            make(log)
        gc.collect()
        assert log.append(b"x") == 0
        assert [record.value for record in log.read()] == [b"x"]


def test_records_come_back_whole(tmp_path: Path) -> None:
    """Key, value, headers and timestamp are those given; None stays None; other buffers count as bytes."""
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(None, key=None)
        log.append(bytearray(b"v"), key=memoryview(b"k"), headers=[("h", b"1"), ("h", None)], timestamp=5)
        log.append_many([b"a", None], keys=[None, b"k"], headers=[(), [("x", b"")]], timestamps=[7, 6])
        ack = log.append_nowait(b"n", key=b"k", headers=(("y", b"2"),), timestamp=8)
        assert ack.result() == ("log", 0, 4, 8, 0)
        records = list(log)
    assert [(r.key, r.value, r.headers) for r in records] == [
        (None, None, ()),
        (b"k", b"v", (("h", b"1"), ("h", None))),
        (None, b"a", ()),
        (b"k", None, (("x", b""),)),
        (b"k", b"n", (("y", b"2"),)),
    ]
    assert [r.timestamp for r in records[1:]] == [5, 7, 6, 8]
    assert records[0].timestamp > 1_600_000_000_000
    assert all(
        r.topic == "log" and r.partition == 0 and r.timestamp_type == pyreplog.TimestampType.CREATE_TIME
        for r in records
    )


def test_no_headers_may_be_none(tmp_path: Path) -> None:
    """As with Kafka's Python clients, on each way to append."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        log.append(b"", headers=None)
        log.append(b"", headers=None, wait=False)
        log.append_nowait(b"", headers=None)
        log.append_many([b"", b""], headers=[None, [("h", b"")]])
        log.flush()
        assert [record.headers for record in log] == [(), (), (), (), (("h", b""),)]


def test_order_of_all_ways_to_append(tmp_path: Path) -> None:
    """What was appended without waiting keeps its place before what is appended after it."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        acks = []
        for number in range(0, 300, 3):
            acks.append(log.append_nowait(b"%d" % number))
            log.append(b"%d" % (number + 1))
            log.append_many([b"%d" % (number + 2)])
        assert [record.value for record in log] == [b"%d" % number for number in range(300)]
        assert [ack.offset for ack in acks] == list(range(0, 300, 3))


def test_many_records_become_several_batches_in_order(tmp_path: Path) -> None:
    """What does not fit ``max.message.bytes`` is split between records, and the range of offsets covers all of
    it."""
    values = [b"%05d" % number * 20 for number in range(500)]
    with pyreplog.open_log(tmp_path / "log", durability="os", config={"max.message.bytes": 5000}) as log:
        assert log.append_many(values) == range(500)
        assert log.append_many([]) == range(500, 500)
        assert log.append_many(iter([b"x"])) == range(500, 501)
        assert [record.value for record in log][:500] == values
        assert log.stats().batches_appended > 10


def test_what_is_compressed_can_be_read_again(tmp_path: Path) -> None:
    """However large ``max.message.bytes`` is: what decompresses to more than readers take is refused, or split
    between records."""
    most = 64 << 20
    with pyreplog.open_log(
        tmp_path / "log", durability="os", config={"max.message.bytes": 1 << 28, "compression.type": "zstd"}
    ) as log:
        with pytest.raises(
            pyreplog.MessageTooLargeError, match=f"{most} bytes; nothing was appended.* leave out compression.type"
        ):
            log.append(bytes(most))
        with pytest.raises(pyreplog.MessageTooLargeError):
            log.append_nowait(bytes(most))
        assert log.end_offset == 0
        sizes = [most - 100, most // 2, most // 2]
        assert [log.append(bytes(sizes[0])), log.append_many([bytes(size) for size in sizes[1:]])] == [0, range(1, 3)]
        assert [len(record.value or b"") for record in log] == sizes


def test_gathered_batches_split_where_they_are_full(tmp_path: Path) -> None:
    """``append_nowait`` takes any record that fits ``max.message.bytes``, also one larger than what it gathers."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        sizes = [10, 300_000, 200_000, 200_000, 1_000_000, 10]
        acks = [log.append_nowait(bytes(size)) for size in sizes]
        assert [ack.result().offset for ack in acks] == [0, 1, 2, 3, 4, 5]
        assert [len(record.value or b"") for record in log] == sizes


@pytest.mark.parametrize("way", ["append", "append_nowait", "append_many"])
def test_a_refused_value_leaves_nothing(tmp_path: Path, way: str) -> None:
    """A str, a number, or too much raises what it is, and the log is as before and goes on."""
    with pyreplog.open_log(tmp_path / "log", durability="os", config={"max.message.bytes": 1000}) as log:
        one = getattr(log, way)
        wrap = (lambda value: [b"first", value]) if way == "append_many" else (lambda value: value)
        with pytest.raises(TypeError, match="encode"):
            one(wrap("text"))
        with pytest.raises(TypeError):
            one(wrap(5))
        with pytest.raises(pyreplog.MessageTooLargeError, match="1000 bytes"):
            one(wrap(bytes(1001)))
        assert log.end_offset == 0
        assert log.append(b"fine") == 0
    with pytest.raises(TypeError, match="list"):
        log.append_many(b"one")  # type: ignore[arg-type]


def test_a_wrong_argument_says_what_is_wanted(tmp_path: Path) -> None:
    """Whatever is handed over in the wrong place: never a bare error of Python's."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as opened:
        log: Any = opened  # the types forbid all of it
        wrong: list[tuple[Callable[[], object], str]] = [
            (lambda: log.append(b"x", headers=5), r"headers are \(key, value\) pairs, not int"),
            (lambda: log.append_nowait(b"x", headers=5), r"headers are \(key, value\) pairs, not int"),
            (lambda: log.append(b"x", headers="h"), r"headers are \(key, value\) pairs, not one str"),
            (lambda: log.append(b"x", headers=[("h", "v")]), "encode"),
            (lambda: log.append(b"x", key="k"), "encode"),
            (lambda: log.append_many(None), "values are a list, not NoneType"),
            (lambda: log.append_many([b"x"], keys=5), "keys are a list, with one for each value, not int"),
            (lambda: log.append_many([b"x"], keys=b"k"), "keys are a list, with one for each value, not one bytes"),
            (lambda: log.append_many([b"x"], keys=["k"]), "encode"),
            (lambda: log.append_many([b"x"], headers=[5]), r"headers are \(key, value\) pairs, not int"),
            (lambda: log.append_many([b"x"], timestamps=5), "timestamps are a list, with one for each value, not int"),
        ]
        for use, words in wrong:
            with pytest.raises(TypeError, match=words):
                use()
        ack = log.append_nowait(b"x")
        with pytest.raises(pyreplog.ConfigError, match="timeout is 'x'; it must be seconds"):
            ack.result("x")
        assert log.append_many(iter([b"y"]), keys=iter([b"k"])) == range(1, 2)


def test_iterating_goes_on_from_where_it_stopped(tmp_path: Path) -> None:
    """Iteration moves ``position`` as in a file, stops at the end as it was, and ``seek`` moves it by offset and
    time."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        for minute in range(10):
            log.append(b"%d" % minute, timestamp=int((start + timedelta(minutes=minute)).timestamp() * 1000))
        for record in log:
            if record.offset == 3:
                break
        assert log.position == 4
        for _ in log:
            log.append(b"more")  # does not make the loop endless
        assert log.position == 10
        assert [record.offset for record in log] == list(range(10, 16))
        assert log.seek(2) == 2
        assert next(iter(log)).offset == 2
        assert log.seek(timestamp=start + timedelta(minutes=4, seconds=1)) == 5
        assert log.seek(timestamp=int(start.timestamp() * 1000)) == 0
        assert log.seek(timestamp=datetime(2100, 1, 1, tzinfo=UTC)) == 16
        with pytest.raises(pyreplog.OffsetOutOfRangeError):
            log.seek(17)
        with pytest.raises(TypeError):
            log.seek()
        with pytest.raises(pyreplog.ConfigError, match="time zone"):
            log.seek(timestamp=datetime(2024, 1, 1))


def test_position_is_moved_within_a_loop(tmp_path: Path) -> None:
    """``seek`` and ``delete_records`` move a loop that is under way, as with a file; ``position`` is never below
    the start."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        for _ in range(3):
            log.append_many([b"x"] * 10)
        offsets = []
        for record in log:
            offsets.append(record.offset)
            if record.offset in (4, 12):
                log.seek(12 if record.offset == 4 else 27)
        assert offsets == [*range(5), 12, *range(27, 30)]
        log.seek(0)
        one = iter(log)
        assert [next(one).offset for _ in range(3)] == [0, 1, 2]
        assert log.delete_records(8) == log.position == 8
        assert [record.offset for record in one] == list(range(8, 30))
        log.seek(8)
        for record in log:
            assert record.offset == 8
            assert log.delete_records() == 30
        assert log.position == 30


@pytest.mark.parametrize("mode", ["a", "r"])
def test_one_record_costs_no_look_at_thousands(
    tmp_path: Path, mode: Literal["a", "r"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes the first record of a range has read a few KB; who takes all of them reads ever more at once."""
    with pyreplog.open_log(tmp_path / "events", durability="os") as writer:
        for _ in range(4000):
            writer.append(bytes(100))
        with writer if mode == "a" else pyreplog.open_log(tmp_path / "events", mode) as log:
            sizes: list[int] = []
            view = type(log._view)
            read = view.read

            def counting(self: Any, offset: int, size_max: int) -> Any:
                found = read(self, offset, size_max)
                sizes.append(memoryview(found).nbytes)
                return found

            monkeypatch.setattr(view, "read", counting)
            assert next(log.read(start=1234)).offset == 1234
            assert sum(sizes) < 20_000
            sizes.clear()
            assert [record.offset for record in log.read()] == list(range(4000))
            assert len(sizes) <= 6


def test_reading_ranges(tmp_path: Path) -> None:
    """``read`` selects by offset and exactly by time, without moving the position, and ``scan`` agrees with it."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        log.append_many([b"%d" % number for number in range(100)], timestamps=[number * 10 for number in range(100)])
        log.append_many([b"late", b"early", b"never"], timestamps=[5000, 15, -1])
        assert [record.offset for record in log.read(95, 98)] == [95, 96, 97]
        assert [record.offset for record in log.read(103)] == []
        assert [record.offset for record in log.read(start_timestamp=15, end_timestamp=31)] == [2, 3, 101]
        assert [record.offset for record in log.read(start_timestamp=5000)] == [100]
        assert [record.offset for record in log.read(start_timestamp=5001)] == []
        with pytest.raises(
            pyreplog.OffsetOutOfRangeError, match="offset 104 is outside the log .*log.*, which holds offsets 0 up to"
        ):
            log.read(104)
        assert log.position == 0
        table = pyarrow.table(log.scan(["offset"], start_timestamp=15, end_timestamp=31))
        assert table.column("offset").to_pylist() == [2, 3, 101]
        assert pyarrow.table(log.scan()).num_rows == 103


def test_a_log_goes_on_in_a_new_epoch(tmp_path: Path) -> None:
    """Each writing opening leads in a new epoch, behind what is there."""
    for life in range(3):
        with pyreplog.open_log(tmp_path / "log", durability="os") as log:
            assert log.append(b"x") == life
            assert [record.leader_epoch for record in log] == list(range(life + 1))


def test_durability_belongs_to_the_log(tmp_path: Path) -> None:
    """It is kept when left out; another one is refused with both named; so is a contradiction in one call."""
    with pyreplog.open_log(tmp_path / "log", durability="os"):
        pass
    with pyreplog.open_log(tmp_path / "log") as log:
        assert log.durability == "os"
    with pytest.raises(pyreplog.ConfigError, match="durability='os'.*'sync'"):
        pyreplog.open_log(tmp_path / "log", durability="sync")
    with pytest.raises(pyreplog.ConfigError):
        pyreplog.open_log(tmp_path / "other", durability="sync", config={"durability": "os"})
    with pytest.raises(pyreplog.ConfigError, match="sync, os"):
        pyreplog.open_log(tmp_path / "other", durability="maybe")  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()
    with pyreplog.open_log(tmp_path / "log"):  # nothing is locked after a refusal
        pass


def test_settings_are_kept(tmp_path: Path) -> None:
    """Settings are stored with the log; those given later change just themselves; unknown ones are refused with the
    nearest."""
    with pyreplog.open_log(tmp_path / "log", config={"segment.bytes": 5000, "compression.type": "lz4"}) as log:
        log.append_many([b"x" * 100] * 100)
    with pyreplog.open_log(tmp_path / "log", config={"max.message.bytes": 4000}) as log:
        assert (log.config.segment_bytes, log.config.compression_type, log.config.max_message_bytes) == (
            5000,
            "lz4",
            4000,
        )
        assert [record.value for record in log] == [b"x" * 100] * 100
    with pytest.raises(pyreplog.ConfigError, match=r"segment\.bytes"):
        pyreplog.open_log(tmp_path / "log", config={"segment.byte": 1})


def test_append_time(tmp_path: Path) -> None:
    """With LogAppendTime every record bears the log's time, and the Ack says so."""
    with pyreplog.open_log(tmp_path / "log", config={"message.timestamp.type": "LogAppendTime"}) as log:
        ack = log.append_nowait(b"x", timestamp=1)
        assert ack.result().timestamp > 1_600_000_000_000
        record = next(iter(log))
        assert record.timestamp == ack.result().timestamp
        assert record.timestamp_type == pyreplog.TimestampType.LOG_APPEND_TIME


def test_topic_name(tmp_path: Path) -> None:
    """The folder's name, or ``topic=``, or whatever topic is there; a name that Kafka refuses is refused."""
    with pyreplog.open_log(tmp_path / "folder", topic="orders") as log:
        assert log.topic == "orders"
        log.append(b"x")
    with pyreplog.open_log(tmp_path / "folder") as log:
        assert [record.topic for record in log] == ["orders"]
    with pyreplog.open_log(tmp_path / "folder", topic="other") as log:
        assert log.end_offset == 0
    with pytest.raises(pyreplog.ConfigError, match="orders, other"):
        pyreplog.open_log(tmp_path / "folder")
    with pytest.raises(pyreplog.ConfigError, match="orders, other"):
        pyreplog.open_log(tmp_path / "folder", mode="r")
    with pytest.raises(pyreplog.InvalidTopicError):
        pyreplog.open_log(tmp_path / "with space")
    with pytest.raises(pyreplog.UnknownTopicError, match="orders"):
        pyreplog.open_log(tmp_path / "folder", mode="r", topic="order")


def test_a_reader_opens_no_other_partition() -> None:
    """Of a root with thousands, or with one that cannot be read, one is read as of a root that has no other."""
    disk = SimDisk()
    for topic in ("orders", "other"):
        with pyreplog.open_log("folder", topic=topic, disk=disk) as log:
            log.append(b"x")
    disk.trace = []
    with pyreplog.open_log("folder", mode="r", topic="orders", disk=disk) as log:
        assert [record.topic for record in log] == ["orders"]
    opened = [call for call in disk.trace if " open " in call]
    assert any("orders-0" in call for call in opened)
    assert not any("other-0" in call for call in opened), opened


def test_readers_need_no_lock_and_see_what_counts(tmp_path: Path) -> None:
    """A reader beside a live writer sees what was acknowledged, also later, and changes nothing."""
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"one")
        with pyreplog.open_log(tmp_path / "log", mode="r") as reader:
            assert [record.value for record in reader] == [b"one"]
            log.append_many([b"two", b"three"])
            assert [record.value for record in reader] == [b"two", b"three"]
            assert (reader.high_watermark, reader.end_offset, reader.start_offset, reader.mode) == (3, 3, 0, "r")
            assert pyarrow.table(reader.scan()).num_rows == 3
            with pytest.raises(pyreplog.ClosedError, match="mode='a'"):
                reader.append(b"no")
            with pytest.raises(pyreplog.ConfigError):
                pyreplog.open_log(tmp_path / "log", mode="r", durability="os")


def test_wrong_offsets(tmp_path: Path) -> None:
    """What is no offset, or no time to wait, is a typed error that says so, and nothing moves."""
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
        wrong: list[Any] = ["1", 1.0, b"1", True]
        for value in wrong:
            for use in (log.read, log.seek, log.follow, log.delete_records, lambda value: log.read(0, value)):
                with pytest.raises(pyreplog.ConfigError, match="must be a whole number"):
                    use(value)
        with pytest.raises(pyreplog.ConfigError, match="timeout is 'x'; it must be seconds from 0"):
            log.follow(timeout="x")  # type: ignore[arg-type]
        assert (log.start_offset, log.position) == (0, 0)
    with pytest.raises(pyreplog.ConfigError, match="config is 5"):
        pyreplog.open_log(tmp_path / "log", config=5)  # type: ignore[arg-type]


def test_wrong_paths(tmp_path: Path) -> None:
    """Nothing there, a file, an empty folder, nonsense: an error that says what, where and what to do."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(pyreplog.StorageError, match="mode='a' makes one") as caught:
        pyreplog.open_log(tmp_path / "nothing", mode="r")
    assert caught.value.filename == str(tmp_path / "nothing")
    with pytest.raises(pyreplog.PyreplogError, match="empty"):
        pyreplog.open_log(tmp_path / "empty", mode="r")
    for mode in ("a", "r"):
        with pytest.raises(pyreplog.PyreplogError, match="file"):
            pyreplog.open_log(tmp_path / "file", mode=mode)
    with pytest.raises(TypeError, match="path"):
        pyreplog.open_log(b"bytes")  # type: ignore[arg-type]
    for path in ("", "a\0b"):
        with pytest.raises(pyreplog.ConfigError):
            pyreplog.open_log(path)
    with pytest.raises(pyreplog.ConfigError, match="mode"):
        pyreplog.open_log(tmp_path / "log", mode="w")  # type: ignore[arg-type]


def test_second_writer_is_refused(tmp_path: Path) -> None:
    """In this process and in another, with the holder's pid; and the folder is free again afterwards."""
    code = (
        f"import pyreplog\ntry: pyreplog.open_log({str(tmp_path / 'log')!r})\nexcept pyreplog.LockedError as error:"
        " print(error)"
    )
    with pyreplog.open_log(tmp_path / "log"):
        with pytest.raises(pyreplog.LockedError, match=f"pid {os.getpid()}"):
            pyreplog.open_log(tmp_path / "log")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert f"pid {os.getpid()}" in done.stdout
    with pyreplog.open_log(tmp_path / "log"):
        pass


def test_a_clusters_folder_is_not_for_single_writers(tmp_path: Path) -> None:
    """Writing to one node's copy behind the cluster's back is refused; reading it is fine."""
    with pyreplog.Cluster(tmp_path / "data") as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
        with cluster.producer() as producer:
            producer.send("events", b"x").result(10)
    for path in ("data", "data/node-1"):
        with pytest.raises(pyreplog.ConfigError, match="cluster"):
            pyreplog.open_log(tmp_path / path, topic="events")
        with pyreplog.open_log(tmp_path / path, mode="r", topic="events") as reader:
            assert [record.value for record in reader] == [b"x"]


def test_a_log_is_a_table(tmp_path: Path) -> None:
    """Whoever takes Arrow takes the log itself, for all that its scan gives; another log takes it in, too. Its
    position stays."""
    with (
        pyreplog.open_log(tmp_path / "log", durability="os") as log,
        pyreplog.open_log(tmp_path / "copy", durability="os") as copied,
    ):
        log.append_many([b"a", b"b", None], keys=[b"k", None, None], timestamps=[3, 2, 1])
        table = pyarrow.table(log.scan())
        assert pyarrow.table(log).equals(table)
        assert pyarrow.schema(log).equals(table.schema)
        assert polars.DataFrame(log).rows() == polars.DataFrame(log.scan()).rows()
        assert copied.append_arrow(log) == range(3)
        assert pyarrow.table(copied).equals(table)
        assert log.position == 0
    with pytest.raises(pyreplog.ClosedError):
        pyarrow.table(log)


def test_closed(tmp_path: Path) -> None:
    """A closed log refuses everything with ClosedError; closing twice is harmless; unfinished Acks were
    finished."""
    log = pyreplog.open_log(tmp_path / "log", durability="os")
    ack = log.append_nowait(b"x")
    log.close()
    log.close()
    assert ack.offset == 0
    for use in (
        lambda: log.append(b"x"),
        lambda: log.append_many([b"x"]),
        lambda: log.append_nowait(b"x"),
        lambda: log.flush(),
        lambda: list(log),
        lambda: log.read(),
        lambda: log.scan(),
        lambda: log.end_offset,
        lambda: log.stats(),
        lambda: log.__enter__(),
    ):
        with pytest.raises(pyreplog.ClosedError):
            use()
    assert "closed" in repr(log)


def test_exit_closes(tmp_path: Path) -> None:
    """A program that ends without closing loses nothing: the log is closed in order, gathered records included."""
    code = f"import pyreplog; log = pyreplog.open_log({str(tmp_path / 'log')!r}); log.append_nowait(b'last words')"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, check=True)
    assert (tmp_path / "log" / ".kafka_cleanshutdown").exists()
    with pyreplog.open_log(tmp_path / "log", mode="r") as reader:
        assert [record.value for record in reader] == [b"last words"]
    assert "Traceback" not in done.stderr


def test_child_of_a_fork(tmp_path: Path) -> None:
    """The child gets ForkedError, whatever it tries, and takes nothing from the parent: neither its lock nor its
    records."""
    code = f"""
import os, pyreplog
log = pyreplog.open_log({str(tmp_path / "log")!r}, durability="os")
log.append_nowait(b"gathered before the fork")
child = os.fork()
if child == 0:
    caught = 0
    for use in (lambda: log.append(b"x"), lambda: log.append_nowait(b"x"), lambda: log.append_many([b"x"]), log.flush):
        try:
            use()
        except pyreplog.ForkedError as error:
            caught += 1
    log.close()
    os._exit(caught)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
log.append(b"parent")
print([record.value.decode() for record in log])
log.close()
pyreplog.open_log({str(tmp_path / "log")!r}).close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stdout.strip() == "['gathered before the fork', 'parent']", done.stderr


def test_silent_by_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong is told to the logger ``pyreplog``; an application without logging sees nothing of it."""
    code = f"import os, pyreplog; log = pyreplog.open_log({str(tmp_path / 'log')!r}); log.append(b'x'); os._exit(0)"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr == ""
    with caplog.at_level(logging.WARNING, "pyreplog"), pyreplog.open_log(tmp_path / "log"):
        assert "not closed cleanly: recovered up to offset" in caplog.text
        assert "its end was whole, and nothing was cut off" in caplog.text
        assert "RecoveryReport" not in caplog.text


def test_forgotten_logs_are_warned_of(tmp_path: Path) -> None:
    """A log that nobody closed and nobody holds warns, as a file does, and is closed at exit."""
    log = pyreplog.open_log(tmp_path / "log")
    writer = log._writer
    with pytest.warns(ResourceWarning, match="unclosed log"):
        del log
    assert writer is not None
    assert writer._unclosed() is None  # once is enough
    writer.close()


@pytest.mark.parametrize("staged", [False, True])
def test_a_forgotten_log_is_closed_when_it_is_opened_again(tmp_path: Path, staged: bool) -> None:
    """Nobody can close it any more, so the next opening does; one that somebody holds is refused, and the error
    says what to close."""
    path = tmp_path / "log"
    with pytest.warns(ResourceWarning, match="unclosed log"):
        ack = pyreplog.open_log(path, durability="os").append_nowait(b"queued")
    if staged:
        (path / "replog.spool.query.lock").touch()
    with pyreplog.open_log(path) as log:
        assert ack.result(0).offset == 0
        assert log.append(b"next") == 1
        names = sorted(
            thread.name
            for thread in threading.enumerate()
            if thread.name in ("pyreplog log-0", f"pyreplog spool of {path}")
        )
        assert (
            names == ["pyreplog log-0", f"pyreplog spool of {path}"][: 1 + staged]
        )  # those of the forgotten one have ended
        with pytest.raises(
            pyreplog.LockedError, match=r"by this process, pid .* close the object that has it open"
        ) as caught:
            pyreplog.open_log(path)
        assert str(os.getpid()) in caught.value.holder
        assert [record.value for record in log] == [b"queued", b"next"]


@pytest.mark.parametrize("how", ["default", "error"])
@pytest.mark.parametrize("kind", ["log", "cluster", "own"])
def test_what_is_open_at_exit_is_warned_of(tmp_path: Path, kind: str, how: str) -> None:
    """What nobody closed before the interpreter ends warns by its name, as files do, and is closed; but a process
    that is there for its cluster. Who wants warnings as errors is shown it, too."""
    path = str(tmp_path / "events")
    make = {
        "log": f"pyreplog.open_log({path!r})",
        "cluster": f"pyreplog.Cluster({path!r}, 1)",
        "own": f"pyreplog.Cluster({path!r}, 1, own_process=True)",
    }[kind]
    command = [sys.executable, "-W", how, "-c", f"import pyreplog; it = {make}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("ResourceWarning: unclosed") == (kind != "own"), done.stderr
    if kind != "own":
        assert path in done.stderr
        assert {"log": "unclosed log", "cluster": "unclosed <pyreplog.Cluster"}[kind] in done.stderr
    assert list(tmp_path.rglob(".kafka_cleanshutdown"))


@pytest.mark.parametrize("mode", ["a", "r"])
def test_rot_found_by_reading_says_where_it_is(tmp_path: Path, mode: Literal["a", "r"]) -> None:
    """A bit that flipped while nobody looked: the error names folder and offsets, and what lies behind can be
    read."""
    with pyreplog.open_log(tmp_path / "log", config={"segment.bytes": 1024}) as log:
        for number in range(30):
            log.append_many([b"%d" % number * 50] * 2)
    first = tmp_path / "log/log-0/00000000000000000000.log"
    content = bytearray(first.read_bytes())
    content[100] ^= 1
    first.write_bytes(content)
    with pyreplog.open_log(tmp_path / "log", mode) as log:
        with pytest.raises(pyreplog.CorruptLogError, match=re.escape(str(first.parent))) as caught:
            list(log.read())
        assert (caught.value.start, caught.value.end) == (0, 2)
        assert len(list(log.read(2))) == 58


@pytest.mark.parametrize("mode", ["a", "r"])
@pytest.mark.parametrize("topic", [3, b"t", ["t"]])
def test_a_topic_that_is_no_text(tmp_path: Path, mode: Any, topic: Any) -> None:
    """It is told by its kind, in either mode; a kind's name is not taken for the topic's."""
    pyreplog.open_log(tmp_path / "log", topic="t").close()
    with pytest.raises(TypeError, match=f"^topic must be text, not {type(topic).__name__}$"):
        pyreplog.open_log(tmp_path / "log", mode, topic=topic)


def test_a_reader_is_told_where_damage_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Below the end, with whole records behind it: by its offset, and nothing is said of bytes behind the end."""
    with pyreplog.open_log(tmp_path / "t") as log:
        for value in (b"a", b"b", b"c"):
            log.append(value)
    segment = tmp_path / "t" / "t-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pyreplog.open_log(tmp_path / "t", "r") as log:
        assert [record.value for record in log.read(2)] == [b"c"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "t-0 is damaged at offset 1, below its end at 3; reading stops there" in said


def test_a_reader_is_told_of_what_it_does_not_see(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder without a mark, as a broker's, in which there is garbage: it reads up to there, and the log has a
    warning."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(Random(1).randbytes(4000))
    with pyreplog.open_log(tmp_path, "r") as log:
        assert list(log) == []
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("4000 bytes in ")
    assert "behind offset 0 are no whole record batch" in said


def test_a_torn_tail_is_told_in_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """How much was cut off after a kill, and where it is kept; by the name that errors use."""
    code = f"import os, pyreplog; log = pyreplog.open_log({str(tmp_path / 'log')!r}); log.append(b'x'); os._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True)
    segment = next((tmp_path / "log" / "log-0").glob("*.log"))
    with segment.open("ab") as file:
        file.write(b"torn")
    with caplog.at_level(logging.WARNING, "pyreplog"), pyreplog.open_log(tmp_path / "log") as log:
        assert [record.value for record in log.read()] == [b"x"]
    text = caplog.text
    assert f"the log {str(tmp_path / 'log')!r} (log-0) was not closed cleanly: recovered up to offset 1: " in text
    assert "bytes at its end were no whole batch and were cut off; kept beside it in " in text
    assert "mark_found" not in text


@pytest.mark.parametrize("inner", ["one", "n1/data"])
def test_no_log_is_made_above_others(tmp_path: Path, inner: str) -> None:
    """It would hide them from whoever reads the folder, which stands for them until then."""
    with pyreplog.open_log(tmp_path / "above" / inner, topic="t", durability="os") as log:
        log.append(b"x")
    before = sorted(tmp_path.rglob("*"))
    for topic in (None, "t", "other"):
        with pytest.raises(
            pyreplog.ConfigError,
            match=rf"holds the folders of other logs, or of nodes \({inner}\).*: name one log's own folder",
        ):
            pyreplog.open_log(tmp_path / "above", topic=topic)
    assert sorted(tmp_path.rglob("*")) == before
    with pyreplog.open_log(tmp_path / "above", "r", topic="t") as reader:
        assert [record.value for record in reader] == [b"x"]
    with pyreplog.open_log(tmp_path / "above" / inner, topic="second") as second, pytest.raises(pyreplog.LockedError):
        pyreplog.open_log(second.path, topic="third")


def test_a_log_is_made_beside_what_may_not_be_looked_into() -> None:
    """A folder of somebody else's in the one that becomes a log's is no reason to refuse it."""

    class Private(SimDisk):
        def stat(self, path: str) -> Stat | None:
            if "private/" in path:
                raise pyreplog.StorageError(errno.EACCES, "not yours", path)
            return super().stat(path)

    disk = Private()
    disk.make_directory("log/private")
    with pyreplog.open_log("log", topic="t", durability="os", disk=disk) as log:
        assert log.append(b"x") == 0
