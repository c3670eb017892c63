"""dump, tail, import, export and bench, and what is said where a name is wrong."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import pyreplog
from pyreplog.cli import bench, exporting
from pyreplog.log import LogReader
from pyreplog.timestamps import TIMESTAMP_MAX
from tests.interop.golden.units import manifest, unit
from tests.unit.cli.support import Replog
from tests.unit.log.support import write_times

# -- dump --


def test_dump_of_a_folder(replog: Replog, events: Path) -> None:
    """Every file, each row of it as JSON; nothing is damaged."""
    done = replog("dump", events, "--records", "--json")
    assert (done.code, done.err) == (0, "")
    rows = done.objects()
    files = {os.path.basename(row["file"]) for row in rows}
    assert not {".lock", "replog.reserve"} & files, "they hold nothing"
    assert {
        "00000000000000000000.log",
        "replog.mark",
        "replog.config",
        "partition.metadata",
        "meta.properties",
        "replog.incarnation",
    } <= files
    batches = [row for row in rows if "base_offset" in row]
    assert [(row["base_offset"], row["last_offset"], row["count"]) for row in batches] == [
        (0, 0, 1),
        (1, 8, 8),
        (9, 9, 1),
    ]
    records = [row for row in rows if row["file"].endswith(".log") and "offset" in row]
    assert records[0] | {"file": ""} == {
        "file": "",
        "offset": 0,
        "timestamp": 1000,
        "key": "k",
        "value": "zero",
        "headers": [{"key": "h", "value": "x"}, {"key": "h", "value": None}],
    }
    assert records[9]["value_base64"] == "/wA="
    (newest,) = [row for row in rows if row.get("newest")]
    assert (newest["high_watermark"], newest["synced_end"]) == (10, 10)


def test_dump_draws(replog: Replog, events: Path) -> None:
    """--picture shows the bytes of each field; a damaged batch and garbage are said, and the rest is shown; exit
    code 3."""
    log = events / "events-0" / f"{0:020}.log"
    done = replog("dump", log, "--picture")
    assert done.code == 0
    assert "57 | 00 00 00 01" in done.out
    assert "record count 1" in done.out
    data = bytearray(log.read_bytes())
    size = int.from_bytes(data[8:12], "big") + 12
    data[8] = 0x7F
    log.write_bytes(data)
    done = replog("dump", log)
    assert done.code == 3
    assert f"position 0, size {size}" in done.out
    assert "DAMAGED: it has" in done.out
    assert "base_offset 9" in done.out


def test_dump_of_a_name_that_is_no_offset(replog: Replog, tmp_path: Path) -> None:
    """Digits that make no number, such as superscripts, are none."""
    path = tmp_path / "\u00b2.index"
    path.write_bytes(bytes(8))
    assert replog("dump", path).code in (0, 1)


@pytest.mark.parametrize("name", ["clean-4.1.0", "old-format-2.8.2"])
def test_dump_shows_what_kafkas_tool_shows(replog: Replog, name: str) -> None:
    """Every batch of a broker's folder, field by field, as its own tool printed it."""
    for partition in manifest(name)["partitions"]:
        rows = replog("dump", unit(name) / "data" / partition["dir"], "--json").objects()
        digest, count = hashlib.sha256(), 0
        for row in rows:
            if "base_offset" in row and row["file"].endswith(".log"):
                count += 1
                fields = [
                    os.path.basename(row["file"]),
                    *(
                        row[field]
                        for field in (
                            "position",
                            "size",
                            "base_offset",
                            "last_offset",
                            "count",
                            "crc",
                            "magic",
                            "codec",
                        )
                    ),
                    *(row.get(field, -1) for field in ("producer_id", "producer_epoch", "base_sequence")),
                    row["leader_epoch"],
                ]
                digest.update(json.dumps(fields, separators=(",", ":")).encode() + b"\n")
        assert (partition["dir"], count, digest.hexdigest()) == (
            partition["dir"],
            partition["batches"],
            partition["batchesSha256"],
        )


def test_dump_of_no_file(replog: Replog, events: Path) -> None:
    """A file that is not there is not taken for the folder of a log that `replog append` would make."""
    done = replog("dump", events / "nothing.log")
    assert done.code == 1
    assert "there is no such file" in done.err
    assert "append" not in done.err


def test_dump_of_an_empty_folder(replog: Replog, tmp_path: Path) -> None:
    """It says so, instead of nothing: the folder is probably not the one that was meant."""
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    done = replog("dump", tmp_path / "empty")
    assert (done.code, done.out) == (1, "")
    assert "there is no file of a log in this folder" in done.err


def test_dump_shows_what_lies_behind_a_file_that_cannot_be_read(replog: Replog, events: Path) -> None:
    """It is said which and why; asked for alone it is an error."""
    files = {row["file"] for row in replog("dump", events, "--json").objects()}
    link = events / "events-0" / "00000000000000000000.aaa"
    link.symlink_to("00000000000000000000.log")
    done = replog("dump", events, "--json")
    assert done.code == 3
    assert {row["file"] for row in done.objects()} == files | {str(link)}
    assert next(row["damage"] for row in done.objects() if row["file"] == str(link)).startswith(
        "it cannot be read: [Errno 40]"
    )
    assert replog("dump", link).code == 1


def test_dump_never_ends_in_a_traceback(replog: Replog, tmp_path: Path) -> None:
    """Files of garbage under every name that it knows."""
    for name in (
        "0.log",
        "0.index",
        "0.timeindex",
        "0.txnindex",
        "0.snapshot",
        "replog.mark",
        "replog.config",
        "leader-epoch-checkpoint",
    ):
        (tmp_path / name).write_bytes(os.urandom(77))
        done = replog("dump", tmp_path / name)
        assert done.code in (0, 3), done.err
    assert replog("dump", tmp_path / "nothing").code == 1


# -- tail --


def test_tail(replog: Replog, events: Path) -> None:
    """The last records, ten by default."""
    assert [row["offset"] for row in replog("tail", events).objects()] == list(range(10))
    assert [row["offset"] for row in replog("tail", events, "-n", 3).objects()] == [7, 8, 9]
    assert replog("tail", events, "-n", 0).out == ""
    assert replog("tail", events, "-n", 2, "--values").out.startswith("8\n")


def test_tail_follows_another_process(events: Path) -> None:
    """What is appended meanwhile comes, each record once and in order."""
    program = "import sys; from pyreplog.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "tail", str(events), "-n", "1", "--follow", "--timeout", "30"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        try:
            assert json.loads(tail.stdout.readline())["offset"] == 9
            with pyreplog.open_log(events, durability="os") as log:
                log.append_many([b"a", b"b"])
                log.append(b"c")
            found = [json.loads(tail.stdout.readline()) for _ in range(3)]
        finally:
            tail.terminate()
    assert [(row["offset"], row["value"]) for row in found] == [(10, "a"), (11, "b"), (12, "c")]


@pytest.mark.parametrize("watched", [True, False])
def test_tail_ends_when_nobody_reads_any_more(events: Path, watched: bool) -> None:
    """`replog tail --follow LOG | head -1`: it ends with `head`, although no record comes any more."""
    program = "import sys; from pyreplog.cli.main import main; sys.exit(main())"
    if not watched:
        program = f"from pyreplog.system import SystemDisk; SystemDisk.watch = lambda self, paths: None; {program}"
    command = [sys.executable, "-c", program, "tail", str(events), "-n", "2", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        try:
            assert json.loads(tail.stdout.readline())["offset"] == 8
            tail.stdout.close()
            assert tail.wait(20) == 0
            assert tail.stderr.read() == b""
        finally:
            tail.kill()


def test_tail_says_that_the_log_is_another_one(replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made anew under it has other records at the same offsets: none of them comes for one of the former
    log."""

    def write(count: int) -> None:
        with pyreplog.open_log(tmp_path / "log", durability="os") as log:
            log.append_many([b"%d" % number for number in range(count)])

    write(5)
    look = LogReader.refresh
    looks = 0

    def late(reader: LogReader) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            (tmp_path / "log").rename(tmp_path / "gone")
            write(9)
        look(reader)

    monkeypatch.setattr(LogReader, "refresh", late)
    said = replog("tail", tmp_path / "log", "--values", "--follow", "--timeout", "30")
    assert (said.code, said.out) == (1, "0\n1\n2\n3\n4\n")
    assert "another log of its name is in" in said.err


def test_tail_goes_on_where_records_are_removed(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that the writer removes between the look and the reading are passed over: what is left comes, each
    record once."""
    with pyreplog.open_log(
        tmp_path / "log", durability="os", config={"segment.bytes": 1024, "file.delete.delay.ms": 0}
    ) as log:
        log.append_many([b"%d" % number for number in range(5)])
        look = LogReader.refresh
        looks = 0

        def late(reader: LogReader) -> None:
            nonlocal looks
            looks += 1
            if looks == 2:
                for number in range(5, 40):
                    log.append((b"%d" % number).ljust(200))
            look(reader)
            if looks == 2:
                log.delete_records(30)

        monkeypatch.setattr(LogReader, "refresh", late)
        done = replog("tail", tmp_path / "log", "-n", 0, "--follow", "--timeout", "0.3")
    assert (done.code, done.err) == (0, "")
    offsets = [row["offset"] for row in done.objects()]
    assert offsets[-10:] == list(range(30, 40))
    assert offsets == sorted(set(offsets))


def test_tail_ends_when_nothing_comes(replog: Replog, events: Path) -> None:
    """--timeout."""
    assert len(replog("tail", events, "--follow", "--timeout", "0.01").objects()) == 10


def test_the_end_of_time(replog: Replog, tmp_path: Path) -> None:
    """A record of the last moment that there is is at or after any other."""
    write_times(tmp_path / "log", "log", [0, 2**63 - 1])
    assert [row["offset"] for row in replog("cat", tmp_path / "log", "--start-timestamp", 2**63 - 1).objects()] == [1]
    assert [row["offset"] for row in replog("cat", tmp_path / "log", "--start-timestamp", 0).objects()] == [0, 1]
    assert [row["offset"] for row in replog("cat", tmp_path / "log", "--end-timestamp", 2**63 - 1).objects()] == [0]


def test_a_record_without_a_time_is_in_no_range_of_times(replog: Replog, tmp_path: Path) -> None:
    """Whatever the range: as `read` and `scan` have it, and a Parquet export."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        log.append_many([b"a", b"b", b"c"], timestamps=[-1, 0, -1])
    for words in (("--start-timestamp", -1), ("--start-timestamp", -1, "--end-timestamp", 1), ("--end-timestamp", 1)):
        assert [row["offset"] for row in replog("cat", tmp_path / "log", *words).objects()] == [1]
        assert replog("export", tmp_path / "log", tmp_path / "x.parquet", "--force", *words).code == 0
        assert parquet.read_table(tmp_path / "x.parquet")["offset"].to_pylist() == [1]


# -- export and import --


@pytest.mark.parametrize("command", ["append", "import"])
@pytest.mark.parametrize("inner", ["one", "n1/data"])
def test_no_log_is_made_above_others(replog: Replog, tmp_path: Path, command: str, inner: str) -> None:
    """A folder that stands for the logs in it, such as that of several brokers, is not made a log: it would hide
    them from its readers."""
    rows = tmp_path / "rows.txt"
    rows.write_text("x\n")
    assert replog("append", tmp_path / "above" / inner, rows, "--topic", "t").code == 0
    done = replog(command, tmp_path / "above", rows)
    assert (done.code, done.out) == (1, "")
    assert f"holds the folders of other logs, or of nodes ({inner})" in done.err
    assert replog("topics", tmp_path / "above").out == "t  1 partition, 1 offset\n"
    assert replog(command, tmp_path / "above" / inner, rows).code == 0


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_export_and_import_are_inverse(replog: Replog, events: Path, tmp_path: Path, form: str) -> None:
    """Keys, values, headers and timestamps survive both formats."""
    file = tmp_path / f"out.{form}"
    done = replog("export", events, file)
    assert (done.code, done.out) == (0, f"exported 10 records of 1 partition to {file}\n")
    copy = tmp_path / "copy"
    done = replog("import", copy, file, "--durability", "os")
    assert (done.code, done.out) == (0, "appended 10 records: copy-0 offsets 0 to 9\n")
    rows, copied = replog("cat", events).objects(), replog("cat", copy).objects()
    assert [{**row, "topic": "copy"} for row in rows] == copied
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_odd_records_survive_export_and_import(replog: Replog, tmp_path: Path, form: str) -> None:
    """Nulls, empty keys and values, bytes that are no text, headers of one name, none at all, and records without a
    time."""
    records = [
        (None, None, (), -1),
        (b"", b"", (("", None),), 0),
        (b"\xff\x00", b"\x80", (("h", b"\xfe"), ("h", b""), ("h", None), ("\u2028", b"x")), TIMESTAMP_MAX),
        (b"[1]", b"null", (), 5),
        (b"x" * 900_000, b"k" * 50_000, (("n" * 30_000, b"v" * 50_000),), -1),
    ]
    with pyreplog.open_log(tmp_path / "odd", durability="os") as log:
        for value, key, headers, timestamp in records:
            log.append(value, key=key, headers=headers, timestamp=timestamp)
    file = tmp_path / f"out.{form}"
    assert replog("export", tmp_path / "odd", file).code == 0
    done = replog("import", tmp_path / "copy", file)
    assert done.code == 0, done.err
    with pyreplog.open_log(tmp_path / "copy", "r") as copy:
        assert [(one.value, one.key, one.headers, one.timestamp) for one in copy] == records


def test_export_says_what_it_cannot_make(replog: Replog, events: Path, tmp_path: Path) -> None:
    """Nothing is written under another format's name, and a folder that is missing is named."""
    for file, said in (
        (tmp_path / "out.csv", "name the file .ndjson or .parquet"),
        (tmp_path / "out.xlsx", "name the file .ndjson, .jsonl, .json, .parquet, .pq, or say --format"),
        (tmp_path / "no" / "x.ndjson", "there is no folder"),
    ):
        done = replog("export", events, file)
        assert (done.code, done.out) == (1, "")
        assert said in done.err
        assert not file.exists()
    assert replog("export", events, tmp_path / "out.csv", "--format", "ndjson").code == 0


def test_export_selects_and_does_not_overwrite(replog: Replog, events: Path, tmp_path: Path) -> None:
    """Ranges as in cat; a file that is there stays, unless --force says otherwise; standard output takes NDJSON."""
    file = tmp_path / "out.parquet"
    assert replog("export", events, file, "--start", 3, "--end", 5).code == 0
    assert parquet.read_table(file)["offset"].to_pylist() == [3, 4]
    done = replog("export", events, file)
    assert done.code == 1
    assert "--force" in done.err
    assert replog("export", events, file, "--force", "--start-timestamp", "9000").code == 0
    table = parquet.read_table(file)
    assert table["offset"].to_pylist() == [8, 9]
    assert table["topic"].to_pylist() == ["events"] * 2
    done = replog("export", events, "-", "--start", 9)
    assert [row["offset"] for row in done.objects()] == [9]
    assert "exported 1 record" in done.err
    assert replog("export", events, "-", "--format", "parquet").code == 1


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_an_export_appears_when_it_is_whole(
    replog: Replog, events: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the disk before it has its name, and written where nobody else writes: another export of that name, or
    somebody."""
    file = tmp_path / f"out.{form}"
    somebodys = tmp_path / f"out.{form}.part"
    somebodys.write_text("mine")
    synced: list[int] = []
    sync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        sync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    def noted_replace(source: str, target: str) -> None:
        assert os.stat(source).st_ino in synced
        assert os.fspath(target) == str(file)
        monkeypatch.setattr(os, "replace", replace)
        assert replog("export", events, file, "--start", 8).code == 0  # another one is done first
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    assert replog("export", events, file).code == 0
    assert replog("import", tmp_path / "copy", file).out == "appended 10 records: copy-0 offsets 0 to 9\n"
    assert somebodys.read_text() == "mine"
    assert {one.name for one in tmp_path.iterdir()} == {"events", "copy", file.name, somebodys.name}


def test_export_through_a_link(replog: Replog, events: Path, tmp_path: Path) -> None:
    """The file that the link names is made, or replaced, and the link stays: who reads the file by its own name
    sees the export."""
    (tmp_path / "there").mkdir()
    (tmp_path / "out.ndjson").symlink_to(tmp_path / "there" / "real.ndjson")
    for force in ([], ["--force"]):
        assert replog("export", events, tmp_path / "out.ndjson", *force).code == 0
        assert (tmp_path / "out.ndjson").is_symlink()
        assert len((tmp_path / "there" / "real.ndjson").read_text().splitlines()) == 10
        (tmp_path / "there" / "real.ndjson").write_text("old")
    assert os.listdir(tmp_path / "there") == ["real.ndjson"]
    refused = replog("export", events, "")
    assert (refused.code, refused.err) == (
        1,
        "replog export: the name of FILE is empty: name a file; - is standard output\n",
    )


def test_export_replaces_no_device(replog: Replog, events: Path, tmp_path: Path) -> None:
    """What is no plain file stays what it is, with --force too."""
    os.mkfifo(tmp_path / "fifo.ndjson")
    (tmp_path / "folder.ndjson").mkdir()
    for name in ("fifo.ndjson", "folder.ndjson"):
        for words in ((), ("--force",)):
            done = replog("export", events, tmp_path / name, *words)
            assert (done.code, done.out) == (1, "")
            assert "is no plain file, and is not replaced" in done.err
    assert (tmp_path / "fifo.ndjson").is_fifo()


def test_import_of_events_in_parquet(replog: Replog, tmp_path: Path) -> None:
    """A table with columns of its own: each row becomes the value as JSON, with a key and a time taken from it."""
    from datetime import UTC, datetime  # noqa: PLC0415  (only here)

    table = pa.table(
        {
            "carrier": ["UA", "DL"],
            "at": [datetime(2013, 1, 1, hour, tzinfo=UTC) for hour in (10, 11)],
            "delay": [1.5, None],
        }
    )
    parquet.write_table(table, tmp_path / "flights.parquet")
    path = tmp_path / "flights"
    assert (
        replog("import", path, tmp_path / "flights.parquet", "--key-field", "carrier", "--timestamp-field", "at").code
        == 0
    )
    rows = replog("cat", path).objects()
    assert [row["key"] for row in rows] == ["UA", "DL"]
    assert rows[0]["timestamp"] == 1357034400000
    assert json.loads(rows[0]["value"]) == {"carrier": "UA", "at": "2013-01-01T10:00:00+00:00", "delay": 1.5}
    fine = pa.table({"value": ["x"], "timestamp": pa.array([1_500_000_000_123_456_789], pa.timestamp("ns", "UTC"))})
    parquet.write_table(fine, tmp_path / "fine.parquet")
    assert replog("import", path, tmp_path / "fine.parquet").code == 0
    assert replog("tail", path, "-n", 1).objects()[0]["timestamp"] == 1_500_000_000_123
    far = pa.table({"n": [1], "at": pa.array([2**60], pa.timestamp("ms", "UTC"))})
    parquet.write_table(far, tmp_path / "far.parquet")
    assert replog("import", path, tmp_path / "far.parquet").code == 0
    assert json.loads(replog("tail", path, "-n", 1).objects()[0]["value"]) == {"n": 1, "at": str(2**60)}
    (tmp_path / "bad.parquet").write_bytes(b"PAR1nonsense")
    done = replog("import", path, tmp_path / "bad.parquet")
    assert done.code == 1
    assert "bad.parquet: not Parquet" in done.err


def test_names_of_files_that_are_no_text(replog: Replog, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 stand in JSON as Python has them, escaped: nothing else can be printed."""
    folder, file = tmp_path / os.fsdecode(b"log\xff"), tmp_path / os.fsdecode(b"rows\xff.txt")
    file.write_text("x\n")
    assert replog("append", folder, file, "--topic", "t").code == 0
    for words in (
        ("describe", folder),
        ("dump", folder),
        ("repair", folder),
        ("export", folder, tmp_path / os.fsdecode(b"\xff.ndjson")),
    ):
        done = replog(*words, "--json")
        assert (done.code, done.err) == (0, "")
        assert "\\udcff" in done.out
        assert "\\udcff" in str(done.objects())


# -- bench --


def test_bench(replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures with their units, nothing left behind."""
    monkeypatch.setattr(bench, "_calls", lambda *_: 20)
    done = replog("bench", tmp_path, "--json")
    assert done.code == 0
    rows = done.objects()
    assert {row["unit"] for row in rows} == {"bytes/s", "records/s", "calls/s"}
    assert all(row["value"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []


def test_bench_where_the_system_syncs_otherwise(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no fdatasync: what stands for it there is asked for."""
    monkeypatch.setattr(bench, "_calls", lambda *_: 5)
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", fcntl.F_GETFD, raising=False)
    done = replog("bench", tmp_path, "--json")
    assert (done.code, list(tmp_path.iterdir())) == (0, [])


# -- wrong names --


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["verfy", "x"], "did you mean 'verify'?"),
        (["exprot", "x", "y"], "did you mean 'export'?"),
        (["cat", "events", "--strat", "1"], "did you mean '--start'?"),
        (["cat", "evnts"], "did you mean 'events'?"),
        (["cat", "events", "--topic", "evnts"], "did you mean 'events'?"),
        (["tail", "evnts"], "did you mean 'events'?"),
        (["describe", "events/events-0/replog.mark"], "`replog dump` shows single files"),
        (["cat", "nowhere/at/all"], "check the path"),
        (["verify", "nonexist"], "holds the logs events: name one of them"),
        (["verify", "logs/nonexist"], "there is no such folder; `replog append` makes one"),
        (["verify", "evnts"], "did you mean 'events'?"),
        (["repair", "evnts"], "did you mean 'events'?"),
        (["dump", "evnts"], "did you mean 'events'?"),
        (["dump", "events/events-0/replog.mrak"], "there is no such file; did you mean 'replog.mark'?"),
        (["cat", "empty"], "`replog append` makes one"),
        (["cat", "two"], "two holds 2 independent logs (a/node-1, b/node-1), and one log is meant: open one of them"),
        (["import", "events", "x.csv", "--format", "parqet"], "did you mean 'parquet'?"),
        (["tail", "events", "--timeout", "soon"], "not a number of seconds"),
        (["tail", "events", "-n", "-1"], "'-1' is not a whole number from 0"),
        (["cat", "events", "--partition", "one"], "'one' is not a whole number from 0"),
    ],
)
def test_wrong_names(
    replog: Replog, events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], text: str
) -> None:
    """Whatever is misspelt, the answer names what is near or what to do next, on standard error, and the exit code
    is not 0."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for log in ("logs/sub/one", "two/a/node-1", "two/b/node-1"):
        (tmp_path / log).parent.mkdir(parents=True)
        pyreplog.open_log(tmp_path / log).close()
    done = replog(*words)
    assert done.code in (1, 2)
    assert text in done.err


@pytest.mark.parametrize("suffix", ["ndjson", "parquet"])
def test_an_export_that_finds_no_room_names_its_file(
    replog: Replog, events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Not the log, whose disk may be another one."""

    def full(*others: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(exporting, "write_parquet" if suffix == "parquet" else "_ndjson", full)
    target = tmp_path / f"out.{suffix}"
    done = replog("export", events, target)
    assert (done.code, done.err) == (1, f"replog export: {target}: No space left on device\n")
    assert not target.exists()
