"""pyreplog.scan: several independent logs as one Arrow stream, each record once and under the name of its log."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyreplog
from pyreplog import aio
from pyreplog.errors import ConfigError, CorruptError, CorruptLogError, StorageNotFoundError, UnknownTopicError
from pyreplog.log.identity import id_for_name


def fill(folder: Path, *values: bytes, topic: str | None = "events") -> Path:
    """A closed log in ``folder`` that holds ``values``."""
    with pyreplog.open_log(folder, topic=topic, durability="os") as log:
        log.append_many(list(values), timestamps=[1000 * number for number in range(1, len(values) + 1)])
    return folder


def rows(scan: pyreplog.Scan, *names: str) -> list[tuple[Any, ...]]:
    """The columns ``names`` of everything that ``scan`` gives, row by row."""
    table = pa.table(scan)
    table.validate(full=True)
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


@pytest.fixture
def workers(tmp_path: Path) -> list[Path]:
    """Three logs of one topic's name, with three records each."""
    return [
        fill(tmp_path / "multi" / f"worker-{number}", *(b"%d-%d" % (number, each) for each in range(3)))
        for number in range(3)
    ]


def test_each_record_comes_once_under_the_name_of_its_log(workers: list[Path]) -> None:
    """All nine records come, log after log in the order of the paths, and the column log names each log's
    folder."""
    scan = pyreplog.scan([workers[2], workers[0], workers[1]])
    assert scan.columns == ("log", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    expected = [(f"worker-{number}", each, b"%d-%d" % (number, each)) for number in (2, 0, 1) for each in range(3)]
    assert rows(scan, "log", "offset", "value") == expected
    assert rows(scan, "log", "offset", "value") == expected, "a second pass"


def test_names_are_relative_to_the_deepest_common_folder(tmp_path: Path) -> None:
    """Logs at several depths are named below the folder that holds them all; a lone log has its folder's name."""
    paths = [fill(tmp_path / "a" / "day-1", b"1"), fill(tmp_path / "a" / "b" / "day-2", b"2")]
    assert rows(pyreplog.scan(paths, ["log", "value"]), "log", "value") == [("day-1", b"1"), ("b/day-2", b"2")]
    assert rows(pyreplog.scan(paths[1:], ["log"]), "log") == [("day-2",)]


def test_ranges_and_columns_are_those_of_a_scan(workers: list[Path]) -> None:
    """Offsets count in each log, a log that ends before the start has no rows, and times and columns select as in a
    scan of one."""
    fill(workers[0], b"0-3", b"0-4")
    assert rows(pyreplog.scan(workers, start=3), "log", "value") == [("worker-0", b"0-3"), ("worker-0", b"0-4")]
    assert rows(pyreplog.scan(workers[1:], ["value"], start_timestamp=2000, end_timestamp=3000), "value") == [
        (b"1-1",),
        (b"2-1",),
    ]
    assert pyreplog.scan(workers, ["offset", "log"]).columns == ("offset", "log")
    with pytest.raises(ConfigError, match="unknown column 'lg'; did you mean 'log'"):
        pyreplog.scan(workers, ["lg"])


def test_one_log_has_no_column_log(workers: list[Path]) -> None:
    """The column log exists only if several logs are read together, and no log takes it back."""
    with pyreplog.open_log(workers[0], "r") as log, pytest.raises(ConfigError, match="several logs"):
        log.scan(["log"])
    with pyreplog.open_log(workers[0]) as log, pytest.raises(ConfigError, match="unknown column 'log'.*columns="):
        log.append_arrow(pyreplog.scan(workers[1:]))
    with pyreplog.open_log(workers[0]) as log:
        assert log.append_arrow(pyreplog.scan(workers[1:], ["key", "value", "timestamp"])) == range(3, 9)


def test_a_long_log_keeps_its_name_in_every_batch(tmp_path: Path) -> None:
    """A log of more rows than one Arrow batch holds has its name in each row, and no batch has rows of two logs."""
    long = fill(tmp_path / "long", *([b"x"] * 70_000))
    short = [fill(tmp_path / name, b"y") for name in ("short", "ünï")]
    batches = [
        pa.record_batch(batch) for batch in pyreplog.scan([short[0], long, short[1]], ["log", "offset"]).batches()
    ]
    assert [set(batch.column("log").to_pylist()) for batch in batches] == [
        {"short"},
        {"long"},
        {"long"},
        {"long"},
        {"ünï"},
    ]
    assert sum(batch.num_rows for batch in batches) == 70_002


def test_every_topic_of_its_own(tmp_path: Path) -> None:
    """Without topic each log gives its only topic, whatever the name; a log with several is refused by name, and
    topic chooses."""
    paths = [fill(tmp_path / name, name.encode(), topic=None) for name in ("ann", "bob")]
    assert rows(pyreplog.scan(paths), "log", "value") == [("ann", b"ann"), ("bob", b"bob")]
    fill(tmp_path / "eve", b"1", topic="orders")
    fill(tmp_path / "eve", b"2", topic="audit")
    with pytest.raises(ConfigError, match="eve holds several topics; name one with topic=: audit, orders"):
        pyreplog.scan([*paths, tmp_path / "eve"])
    assert rows(pyreplog.scan([tmp_path / "eve"], topic="audit"), "value") == [(b"2",)]
    with pytest.raises(UnknownTopicError, match="ann has no topic 'audit'"):
        pyreplog.scan([tmp_path / "eve", tmp_path / "ann"], topic="audit")


def test_all_partitions_of_a_log_are_read(tmp_path: Path) -> None:
    """A cluster among the paths is read whole: every partition of its topic, from one replica each; partition
    chooses one."""
    with pyreplog.Cluster(tmp_path / "cluster", nodes=3) as cluster:
        cluster.admin.create_topic("events", partitions=2, replication_factor=3)
        with cluster.producer() as producer:
            for number in range(4):
                producer.send("events", b"%d" % number, partition=number % 2).result()
    paths = [tmp_path / "cluster", fill(tmp_path / "alone", b"own")]
    found = rows(pyreplog.scan(paths), "log", "partition", "value")
    assert found == [
        ("cluster", 0, b"0"),
        ("cluster", 0, b"2"),
        ("cluster", 1, b"1"),
        ("cluster", 1, b"3"),
        ("alone", 0, b"own"),
    ]
    assert rows(pyreplog.scan(paths[:1], partition=1), "value") == [(b"1",), (b"3",)]
    with pytest.raises(ConfigError, match="hold the same partition, events-0"):
        pyreplog.scan([tmp_path / "cluster" / "node-1", tmp_path / "cluster" / "node-2"])
    with pytest.raises(ConfigError, match="cluster and .*node-2 hold the same partition"):
        pyreplog.scan([tmp_path / "cluster", tmp_path / "cluster" / "node-2"])


def test_no_record_is_read_twice(workers: list[Path], tmp_path: Path) -> None:
    """A path named twice, a copy, a link, and a partition's folder beside its log are refused, and both are
    named."""
    with pytest.raises(ConfigError, match="worker-0 is named twice"):
        pyreplog.scan([workers[0], f"{workers[0]}/"])
    copy = tmp_path / "multi" / "copy"
    shutil.copytree(workers[0], copy)
    (tmp_path / "link").symlink_to(workers[0])
    for other in (copy, tmp_path / "link", workers[0] / "events-0"):
        with pytest.raises(ConfigError, match=f"{workers[0]} and {other} hold the same partition, events-0"):
            pyreplog.scan([workers[0], other])


def test_folders_without_ids_are_told_apart_by_their_place(workers: list[Path], tmp_path: Path) -> None:
    """Old folders without any id agree with nothing, so two of them are read; the same one by a link is still
    refused."""
    bare = []
    for worker in workers[:2]:
        target = tmp_path / "bare" / worker.name / "events-0"
        shutil.copytree(worker / "events-0", target)
        for name in ("partition.metadata", "replog.mark", "replog.config"):
            (target / name).unlink(missing_ok=True)
        bare.append(target)
    assert rows(pyreplog.scan(bare), "log") == [("worker-0/events-0",)] * 3 + [("worker-1/events-0",)] * 3
    (tmp_path / "events-0").symlink_to(bare[0])
    with pytest.raises(ConfigError, match="hold the same partition"):
        pyreplog.scan([bare[0], tmp_path / "events-0"])


def test_an_id_made_of_the_name_is_no_proof(workers: list[Path], tmp_path: Path) -> None:
    """Topics of before topics had ids all get the same id for one name: without cluster ids it does not make two
    logs one."""
    bare = []
    for worker in workers[:2]:
        target = tmp_path / "old" / worker.name / "events-0"
        shutil.copytree(worker / "events-0", target)
        (target / "replog.mark").unlink()
        (target / "partition.metadata").write_text(f"version: 0\ntopic_id: {id_for_name('events')}")
        bare.append(target)
    assert len(rows(pyreplog.scan(bare), "log")) == 6


def test_wrong_lists_are_refused(tmp_path: Path) -> None:
    """No path, one text, and a folder without a log are typed errors that say which."""
    with pytest.raises(ConfigError, match="paths is empty"):
        pyreplog.scan([])
    with pytest.raises(ConfigError, match="must be a list of folders"):
        pyreplog.scan(str(tmp_path))
    with pytest.raises(StorageNotFoundError, match="no log is there"):
        pyreplog.scan([fill(tmp_path / "one", b"1"), tmp_path / "two"])


def test_damage_in_one_log_is_never_part_of_the_rows(workers: list[Path]) -> None:
    """A batch that rots in one of three logs ends the stream with an error that names the log's folder."""
    segment = workers[1] / "events-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[80] ^= 0xFF
    segment.write_bytes(data)
    with pytest.raises(CorruptError, match="worker-1"):
        list(pyreplog.scan(workers).batches())
    with pytest.raises(Exception, match="worker-1"):
        pa.table(pyreplog.scan(workers))


def test_damaged_batches_of_one_log_are_left_out_on_demand(workers: list[Path]) -> None:
    """skip_damaged gives the sound rows of all logs, and the function gets the range that is left out, with the
    log's file."""
    segment = workers[1] / "events-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[80] ^= 0xFF
    segment.write_bytes(data)
    left_out: list[CorruptLogError] = []
    found = rows(pyreplog.scan(workers, ["log"], skip_damaged=left_out.append), "log")
    assert found == [("worker-0",)] * 3 + [("worker-2",)] * 3
    assert [(error.start, error.end, "worker-1" in str(error)) for error in left_out] == [(0, 3, True)]


def test_later_records_are_in_the_next_pass(workers: list[Path]) -> None:
    """A scan beside the logs' writers sees what was appended before each pass began."""
    scan = pyreplog.scan(workers, ["log"])
    with pyreplog.open_log(workers[2]) as log:
        log.append(b"more")
        assert len(rows(scan, "log")) == 10


def test_coroutines_scan_several(workers: list[Path]) -> None:
    """aio.scan opens the logs in a thread and gives the same scan."""
    scan = asyncio.run(aio.scan(workers, ["log"], end=1))
    assert rows(scan, "log") == [("worker-0",), ("worker-1",), ("worker-2",)]


def test_pyarrow_is_not_imported(workers: list[Path]) -> None:
    """A scan of several logs needs no pyarrow: its stream is made in C."""
    program = (
        f"import sys, pyreplog; scan = pyreplog.scan({[str(path) for path in workers]!r}); scan.__arrow_c_stream__();"
        "print(sum(batch.row_count for batch in scan.batches()), 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["9", "False"]
