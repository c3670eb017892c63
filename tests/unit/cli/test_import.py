"""`replog import --resume`: every row once, whatever ended it, however often it is run, and whatever became of the
file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import pyreplog
from pyreplog.cli import importing, resuming
from pyreplog.cli.resuming import ImportedUpTo, Resume, parse_places
from pyreplog.cli.rows import Row
from pyreplog.cli.source import Source
from pyreplog.cli.writing import RowTarget
from pyreplog.log import format_state, parse_state, write_state
from pyreplog.ports import Disk
from pyreplog.record import crc32c
from tests.unit.cli.support import Done, Replog


def rows_file(path: Path, count: int) -> Path:
    """NDJSON with so many records."""
    path.write_text(
        "".join(json.dumps({"value": f"row {number}", "key": str(number % 7)}) + "\n" for number in range(count))
    )
    return path


@pytest.mark.parametrize("stop", [0, 1, 999, 1000, 1001, 2500, 4999, 5000, 5001, 8000])
def test_import_resumes(replog: Replog, tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after any number of rows, begun again: every row is there once, in order."""
    files = [rows_file(tmp_path / "a.ndjson", 5000), rows_file(tmp_path / "b.ndjson", 3000)]
    path = tmp_path / "log"
    done_rows = 0
    write = importing._write

    def stopping(batch: list[Row], source: Source, target: RowTarget, resume: Resume | None) -> None:
        nonlocal done_rows
        if done_rows + len(batch) > stop:
            part = batch[: stop - done_rows]
            if part:
                target.append(part)  # and its place is never noted
            raise KeyboardInterrupt
        write(batch, source, target, resume)
        done_rows += len(batch)

    monkeypatch.setattr(importing, "_write", stopping)
    code = replog("import", path, *files, "--resume", "--durability", "os").code
    assert code == (130 if stop < 8000 else 0)
    monkeypatch.setattr(importing, "_write", write)
    if stop < 8000:
        done = replog("import", path, *files, "--resume", "--durability", "os")
        assert done.code == 0, done.err
        assert stop == 0 or f"{stop:,} row" in done.err
    values = [row["value"] for row in replog("cat", path).objects()]
    assert values == [f"row {number}" for number in (*range(5000), *range(3000))]
    done = replog("import", path, *files, "--resume")
    assert (done.code, done.out, done.err) == (0, "already imported: 8,000 records, nothing to do\n", "")
    assert len(values_of(replog, path)) == 8000


@pytest.mark.parametrize("stop", [0, 1, 700, 999, 1000, 2500, 2999])
def test_an_import_into_a_compacted_log_resumes(
    replog: Replog, tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after any number of rows, and the log compacted before it goes on: each row has the offset that it
    would have without the stop."""
    file = rows_file(tmp_path / "a.ndjson", 3000)
    with file.open("a") as rows:
        rows.writelines(json.dumps({"value": None, "key": str(number % 7)}) + "\n" for number in range(3000, 3003))
    path = tmp_path / "log"
    config = {"cleanup.policy": "compact", "segment.bytes": 4096, "delete.retention.ms": 0}
    pyreplog.open_log(path, config=config, durability="os").close()

    def stopping(batch: list[Row], source: Source, target: RowTarget, resume: Resume | None) -> None:
        nonlocal stop
        if part := batch[:stop]:
            target.append(part)  # and its place is never noted
        stop -= len(part)
        if not stop:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(importing, "_write", stopping)
        assert replog("import", path, file, "--resume").code == 130
    with pyreplog.open_log(path) as log:
        for _ in range(3):
            log.compact()
    done = replog("import", path, file, "--resume")
    assert done.code == 0, done.err
    with pyreplog.open_log(path, "r") as reader:
        assert reader.end_offset == 3003
        assert {record.key: record.offset for record in reader} == {b"%d" % (n % 7): n for n in range(2996, 3003)}
        assert {record.value for record in reader.read(3000)} == {None}
    assert replog("import", path, file, "--resume").out == "already imported: 3,003 records, nothing to do\n"


def test_an_import_does_not_resume_behind_records_of_another_program(replog: Replog, tmp_path: Path) -> None:
    """Also if compaction removed some of them: a row that is gone has a later row of its key, or is a tombstone."""
    path, bad = tmp_path / "log", rows_file(tmp_path / "bad.ndjson", 10)
    bad.write_text(bad.read_text() + "nonsense\n")
    config = {"cleanup.policy": "compact", "delete.retention.ms": 0}
    pyreplog.open_log(path, config=config, durability="os").close()
    assert replog("import", path, bad, "--resume").code == 1
    more = rows_file(tmp_path / "more.ndjson", 30).read_text().splitlines(keepends=True)
    bad.write_text("".join(more[:20]))
    with pyreplog.open_log(path) as log:
        for number in range(12):
            log.append(b"other" if number < 6 else None, key=b"x%d" % (number % 6))
        for _ in range(3):
            log.compact()
    done = replog("import", path, bad, "--resume")
    assert done.code == 1
    assert "another program appended after the import was stopped" in done.err


def test_import_does_not_resume_into_the_unknown(replog: Replog, tmp_path: Path) -> None:
    """Other files, or somebody else's records since: refused with what to do."""
    file = rows_file(tmp_path / "a.ndjson", 10)
    bad = tmp_path / "bad.ndjson"
    bad.write_text(file.read_text() + "nonsense\n")
    path = tmp_path / "log"
    assert replog("import", path, bad, "--resume").code == 1
    assert (path / "replog.import").exists()
    done = replog("import", path, file, "--resume")
    assert done.code == 1
    assert f"tells of an import of {bad} that was stopped" in done.err
    with pyreplog.open_log(path) as log:
        log.append(b"somebody else's")
    done = replog("import", path, bad, "--resume")
    assert done.code == 1


def stopped_import(replog: Replog, tmp_path: Path) -> tuple[Path, Path]:
    """A log, and a file whose import into it ended at a row that cannot be read."""
    bad = rows_file(tmp_path / "bad.ndjson", 10)
    bad.write_text(bad.read_text() + "nonsense-----\n")
    path = tmp_path / "log"
    assert replog("import", path, bad, "--resume").code == 1
    return path, bad


def values_of(replog: Replog, path: Path) -> list[object]:
    """The value of each record."""
    return [row["value"] for row in replog("cat", path).objects()]


def changed(state: bytes, before: str, after: str) -> bytes:
    """A whole state file that says something else."""
    values = {name: value.replace(before, after) for name, value in parse_state(state, "").items()}
    assert values != parse_state(state, "")
    return format_state(values)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"files":[]}', "rows: 2\n", "cut", "flipped", "version", "higher", "sealed"]
)
def test_a_damaged_place_of_an_import_is_refused(replog: Replog, tmp_path: Path, content: str) -> None:
    """Whatever is in the file that says how far an import came: what it does not vouch for is not believed, and no
    row is left out."""
    path, bad = stopped_import(replog, tmp_path)
    place = path / "replog.import"
    before = place.read_bytes()
    if content == "cut":
        place.write_bytes(before[:-1])
    elif content == "flipped":
        place.write_bytes(before.replace(b'"rows":0', b'"rows":2'))
    elif content == "higher":  # as written by a log that lost its tail since
        place.write_bytes(changed(before, '"offset":0', '"offset":11'))
    elif content == "version":
        place.write_bytes(format_state({**parse_state(before, ""), "version": "0"}))
    elif content == "sealed":
        place.write_bytes(changed(before, '"rows":0', '"rows":11'))
    else:
        place.write_text(content)
    assert place.read_bytes() != before
    kept = place.read_bytes()
    bad.write_text(
        bad.read_text().replace("nonsense-----", '{"value":"z"}')
    )  # the same size: it goes on with the row that was bad
    done = replog("import", path, bad, "--resume")
    assert done.code != 0
    assert "replog.import" in done.err
    assert "remove" in done.err
    assert "report" not in done.err
    assert f"a new log in {place}" not in done.err
    assert place.read_bytes() == kept
    assert values_of(replog, path) == [f"row {number}" for number in range(10)]
    place.write_bytes(before)
    assert replog("import", path, bad, "--resume").code == 0
    assert len(values_of(replog, path)) == 11


def test_verification_and_dump_know_the_place_of_an_import(replog: Replog, tmp_path: Path) -> None:
    """Whole, it is noted, and its values shown; damaged, it is warned of with what to do."""
    path, _ = stopped_import(replog, tmp_path)
    place = path / "replog.import"
    done = replog("verify", path)
    assert "was stopped before its end" in done.out + done.err
    shown = [row for row in replog("dump", place, "--json").objects() if row.get("damage") is None]
    assert any("rows" in json.dumps(row) for row in shown)
    place.write_bytes(place.read_bytes().replace(b'"rows":0', b'"rows":2'))
    done = replog("verify", path)
    assert "replog.import" in done.out + done.err
    assert "remove it" in done.out + done.err


def test_the_place_of_an_import_is_kept_like_other_small_files(replog: Replog, tmp_path: Path) -> None:
    """Checksummed, replaced as a whole, and a symbolic link in the way of it is not followed."""
    path, bad = stopped_import(replog, tmp_path)
    values = parse_state((path / "replog.import").read_bytes(), "replog.import")
    how = ("ndjson", None, None, None, None, None)
    assert parse_places(values, "") == [
        ImportedUpTo(str(bad), "log", 0, how, 0, 0, bad.stat().st_mtime_ns, 0, 0, done=False)
    ]
    other = tmp_path / "other"
    other.write_text("mine")
    (path / "replog.import.tmp").symlink_to(other)
    bad.write_text(bad.read_text().replace("nonsense-----", '{"value":"z"}'))
    assert replog("import", path, bad, "--resume").code == 0
    assert other.read_text() == "mine"
    (tmp_path / "again").mkdir()
    path, bad = stopped_import(replog, tmp_path / "again")
    (path / "replog.import").unlink()
    (path / "replog.import").symlink_to(other)
    done = replog("import", path, bad, "--resume")
    assert done.code != 0
    assert "report" not in done.err
    assert other.read_text() == "mine"


def test_a_script_may_repeat_it(replog: Replog, tmp_path: Path) -> None:
    """Run once more after it succeeded it appends nothing, and ends well: also beside other files, and with JSON as
    its answer."""
    files = [rows_file(tmp_path / "a.ndjson", 3), rows_file(tmp_path / "b.ndjson", 4)]
    path = tmp_path / "log"
    assert replog("import", path, files[0], "--resume").code == 0
    for _ in range(2):
        done = replog("import", path, files[0], "--resume")
        assert (done.code, done.out, done.err) == (0, "already imported: 3 records, nothing to do\n", "")
    done = replog("import", path, files[0], "--resume", "--json")
    assert (done.code, done.objects()) == (0, [{"topic": "log", "count": 0, "ranges": []}])
    assert "already imported: 3 records" in done.err
    done = replog("import", path, *files, "--resume")
    assert (done.code, done.out) == (0, "appended 4 records: log-0 offsets 3 to 6\n")
    assert "3 rows were in the log already" in done.err
    with pyreplog.open_log(path) as log:
        log.append(b"somebody else's")  # who may, when it is done
    assert replog("import", path, *files, "--resume").out == "already imported: 7 records, nothing to do\n"
    assert replog("verify", path).code == 0
    assert len(values_of(replog, path)) == 8
    assert replog("import", path, files[0]).code == 0  # without --resume: a new one
    assert len(values_of(replog, path)) == 11
    assert replog("import", path, files[0], "--resume", "--topic", "other").code == 0  # another topic has none of it
    assert len([row for row in replog("cat", path).objects() if row["topic"] == "other"]) == 3
    done = replog("import", path, files[0], files[0], "--resume")
    assert done.code == 1
    assert "is named twice" in done.err


@pytest.fixture
def pipe() -> Iterator[str]:
    """The path of a pipe that holds three rows."""
    reading, writing = os.pipe()
    os.write(writing, b'{"value": "a"}\n{"value": "b"}\n{"value": "c"}\n')
    os.close(writing)
    yield f"/dev/fd/{reading}"
    os.close(reading)


@pytest.mark.parametrize("new", [True, False])
def test_what_comes_through_a_pipe_is_read_once(replog: Replog, tmp_path: Path, pipe: str, new: bool) -> None:
    """As bash's `<(zcat events.gz)` gives it: the first row is looked at before a new log is made, and none is lost
    by that."""
    nothing = tmp_path / "empty.ndjson"
    nothing.touch()
    files = rows_file(tmp_path / "a.ndjson", 1), rows_file(tmp_path / "b.ndjson", 2)
    if not new:
        assert replog("import", tmp_path / "log", files[0]).code == 0
    done = replog("import", tmp_path / "log", nothing, pipe, files[1], files[1])
    assert (done.code, done.err) == (0, "")
    assert values_of(replog, tmp_path / "log")[not new :] == [*"abc", "row 0", "row 1", "row 0", "row 1"]


@pytest.mark.parametrize("where", ["-", "pipe"])
def test_a_pipe_cannot_be_resumed(replog: Replog, tmp_path: Path, pipe: str, where: str) -> None:
    """Its bytes come once. This is said before there is a log."""
    done = replog("import", tmp_path / "log", pipe if where == "pipe" else where, "--resume")
    assert done.code == 1
    assert "cannot be read again" in done.err
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("grown", [False, True])
def test_it_may_be_stopped_at_each_step(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool, grown: bool
) -> None:
    """Before or after each time that it keeps its place, of two files, new or with lines added: run again, every
    row is there once."""
    write = write_state
    kept_in_all = 0
    for stop in range(50):
        folder = tmp_path / str(stop)
        folder.mkdir()
        files = [folder / "a.ndjson", folder / "b.ndjson"]
        path = folder / "log"
        wanted: list[str] = []

        def add(first: int, files: list[Path] = files, wanted: list[str] = wanted) -> None:
            for file in files:
                with file.open("a") as stream:
                    for number in range(first, first + 5):
                        stream.write(json.dumps({"value": f"{file.name} {number}"}) + "\n")
                        wanted.append(f"{file.name} {number}")

        add(0)
        if grown:
            assert replog("import", path, *files, "--resume", "--durability", "os").code == 0
            add(5)
        kept = 0

        def stopping(disk: Disk, name: str, values: Mapping[str, str], stop: int = stop) -> None:
            nonlocal kept
            kept += 1
            if kept <= stop or not before:
                write(disk, name, values)
            if kept > stop:
                raise KeyboardInterrupt

        monkeypatch.setattr(resuming, "_KEEP_EVERY", 1)
        monkeypatch.setattr(importing, "_BATCH_COUNT", 2)
        monkeypatch.setattr(resuming, "write_state", stopping)
        code = replog("import", path, *files, "--resume", "--durability", "os").code
        monkeypatch.setattr(resuming, "write_state", write)
        again = replog("import", path, *files, "--resume", "--durability", "os")
        assert again.code == 0, again.err
        assert sorted(map(str, values_of(replog, path))) == sorted(wanted)
        assert replog("import", path, *files, "--resume").out.startswith(f"already imported: {len(wanted)} records")
        if code == 0:
            kept_in_all = kept
            break
        assert code == 130
    assert kept_in_all == 2 * (1 + 3 + 1)  # as it begins, after each batch, and at the end


@pytest.mark.parametrize("form", ["ndjson", "csv", "lines"])
def test_lines_that_were_added_follow(replog: Replog, tmp_path: Path, form: str) -> None:
    """Of a file that was imported whole, whoever appended to the log since; and of one whose import was stopped."""
    path, file = tmp_path / "log", tmp_path / f"rows.{form}"

    def line(value: str) -> str:
        return json.dumps({"value": value}) + "\n" if form == "ndjson" else f"{value}\n"

    def run() -> Done:
        return replog("import", path, file, "--resume", "--format", form)

    file.write_text((line("value") if form == "csv" else "") + line("a") + line("b"))
    assert run().code == 0
    with pyreplog.open_log(path) as log:
        log.append(b"somebody else's")
    with file.open("a") as stream:
        stream.write(line("c") + line("d"))
    done = run()
    assert (done.code, done.out) == (0, "appended 2 records: log-0 offsets 3 to 4\n")
    assert run().out == "already imported: 4 records, nothing to do\n"
    with file.open("a") as stream:
        stream.write("\n" if form != "lines" else "")  # no row
    assert run().code == 0
    assert values_of(replog, path) == ["a", "b", "somebody else's", "c", "d"]
    if form == "ndjson":
        with file.open("a") as stream:
            stream.write(line("e") + "nonsense")
        assert run().code == 1
        file.write_text(file.read_text().replace("nonsense", line("f") + line("g")))
        assert run().code == 0
        assert values_of(replog, path)[-3:] == ["e", "f", "g"]


def test_a_file_that_changed_otherwise_is_refused(replog: Replog, tmp_path: Path) -> None:
    """Shorter, other bytes, a last line that went on, other options, another Parquet file: nothing is appended, and
    it says what to do. One that was only touched or copied is the same."""
    path, file = tmp_path / "log", tmp_path / "rows.txt"
    file.write_text("one\ntwo\nthr")
    assert replog("import", path, file, "--resume").code == 0
    refused = {
        "one\ntwo\n": "bytes of",
        "one\ntwO\nthr": "bytes of",
        "one\ntwo\nthree\n": "had no line end",
    }
    for number, (text, reason) in enumerate(refused.items()):
        file.write_text(text)
        os.utime(file, (number, number))
        done = replog("import", path, file, "--resume")
        assert done.code == 1
        assert reason in done.err
        assert "without --resume" in done.err
    file.write_text("one\ntwo\nthr")
    os.utime(file, (5, 5))
    assert replog("import", path, file, "--resume").out == "already imported: 3 records, nothing to do\n"
    done = replog("import", path, file, "--resume", "--format", "csv")
    assert done.code == 1
    assert "another format" in done.err
    assert len(values_of(replog, path)) == 3
    table = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"value": ["x"]}), table)
    assert replog("import", path, table, "--resume").code == 0
    assert replog("import", path, table, "--resume").out == "already imported: 1 record, nothing to do\n"
    parquet.write_table(pa.table({"value": ["x", "y"]}), table)
    done = replog("import", path, table, "--resume")
    assert done.code == 1
    assert "another file since" in done.err
    assert len(values_of(replog, path)) == 4
    os.mkfifo(tmp_path / "fifo.ndjson")
    descriptor = os.open(tmp_path / "fifo.ndjson", os.O_RDWR)
    done = replog("import", path, tmp_path / "fifo.ndjson", "--resume")
    os.close(descriptor)
    assert done.code == 1
    assert "plain files" in done.err


def test_the_log_that_lost_what_was_imported_is_no_place_for_more(replog: Replog, tmp_path: Path) -> None:
    """A topic that was removed and made anew: what is said of the import into it is not believed. What retention
    removed was imported."""
    path, file = tmp_path / "log", rows_file(tmp_path / "rows.ndjson", 5)
    assert replog("import", path, file, "--resume").code == 0
    with pyreplog.open_log(path) as log:
        log.delete_records(5)
    assert replog("import", path, file, "--resume").out == "already imported: 5 records, nothing to do\n"
    place = path / "replog.import"
    place.write_bytes(changed(place.read_bytes(), '"offset":5', '"offset":6'))
    done = replog("import", path, file, "--resume")
    assert done.code == 1
    assert "records were removed since" in done.err


def test_the_checksum_is_of_the_rows_that_are_in_the_log(replog: Replog, tmp_path: Path) -> None:
    """So what comes behind them may be mended."""
    path, bad = stopped_import(replog, tmp_path)
    bad.write_text(bad.read_text().replace("nonsense-----", "more nonsense"))
    assert replog("import", path, bad, "--resume").code == 1
    (place,) = parse_places(parse_state((path / "replog.import").read_bytes(), ""), "")
    good = bad.read_bytes().partition(b"more")[0]
    assert (place.rows, place.size, place.crc, place.done) == (10, len(good), crc32c(good), False)
    bad.write_bytes(good)
    assert replog("import", path, bad, "--resume").code == 0
    assert len(values_of(replog, path)) == 10


def headers_file(path: Path, headers: list[list[tuple[object, bytes]]], kind: pa.DataType) -> Path:
    """Parquet of one record for each of ``headers``, a map whose keys are of ``kind``."""
    values = pa.array([f"row {number}" for number in range(len(headers))])
    parquet.write_table(pa.table({"value": values, "headers": pa.array(headers, pa.map_(kind, pa.binary()))}), path)
    return path


def test_a_map_of_parquet_keeps_each_header(replog: Replog, tmp_path: Path) -> None:
    """A map of Parquet may have one key twice, as a record may: both headers are in the log, in order."""
    pairs: list[tuple[object, bytes]] = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    file = headers_file(tmp_path / "rows.parquet", [pairs], pa.string())
    assert replog("import", tmp_path / "log", file).code == 0
    with pyreplog.open_log(tmp_path / "log") as log:
        assert [record.headers for record in log.read()] == [tuple(pairs)]


def test_a_header_key_that_is_no_text_is_a_bad_row(replog: Replog, tmp_path: Path) -> None:
    """The row is named, and what came before it is appended and counted."""
    file = headers_file(tmp_path / "rows.parquet", [[], [(17, b"1")]], pa.int64())
    path = tmp_path / "log"
    done = replog("import", path, file)
    assert (done.code, done.out) == (1, "appended 1 record: log-0 offsets 0 to 0\n")
    assert "row 2: field 'headers' has the header key '17', which is no text" in done.err
    assert values_of(replog, path) == ["row 0"]


def test_two_columns_of_one_name_are_refused(replog: Replog, tmp_path: Path) -> None:
    """As in CSV: one of them would be dropped."""
    parquet.write_table(
        pa.table([pa.array(["x"]), pa.array(["y"])], names=["value", "value"]), tmp_path / "twice.parquet"
    )
    done = replog("import", tmp_path / "log", tmp_path / "twice.parquet")
    assert done.code == 1
    assert "twice.parquet: two columns have the name 'value'" in done.err


def test_it_goes_on_in_a_log_that_gives_the_times(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With LogAppendTime the time of a row is nowhere in the log, and rows are known by the rest."""
    file = tmp_path / "a.ndjson"
    file.write_text(
        "".join(json.dumps({"value": f"row {number}", "timestamp": 1000 + number}) + "\n" for number in range(10))
    )
    path = tmp_path / "log"
    pyreplog.open_log(path, config={"message.timestamp.type": "LogAppendTime"}).close()
    write = importing._write

    def stopping(batch: list[Row], source: Source, target: RowTarget, resume: Resume | None) -> None:
        target.append(batch[:4])
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "_write", stopping)
    assert replog("import", path, file, "--resume").code == 130
    monkeypatch.setattr(importing, "_write", write)
    done = replog("import", path, file, "--resume")
    assert (done.code, done.err) == (0, "replog import: 4 rows were in the log already\n")
    assert values_of(replog, path) == [f"row {number}" for number in range(10)]


def test_rows_with_a_partition_that_is_not_there(replog: Replog, tmp_path: Path) -> None:
    """What was exported from a cluster's topic does not fit one log as it is; the refusal says how it does, and
    that works."""
    row = (
        '{"topic":"t","partition":3,"offset":0,"timestamp":5,"key":"k","value_base64":"/w==",'
        '"headers":[{"key":"h","value":"x"}]}\n'
    )
    (tmp_path / "t.ndjson").write_text(row)
    refused = replog("import", tmp_path / "log", tmp_path / "t.ndjson")
    assert (refused.code, "asks for partition 3; a new log holds partition 0 only" in refused.err) == (1, True)
    options = refused.err.partition("leave partitions out: ")[2].split()
    assert len(options) == 8
    assert replog("import", tmp_path / "log", tmp_path / "t.ndjson", *options).code == 0
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert [(one.timestamp, one.key, one.value, one.headers) for one in log] == [(5, b"k", b"\xff", (("h", b"x"),))]


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_rows_of_two_topics_are_told(replog: Replog, tmp_path: Path, form: str) -> None:
    """They all go into one: that is said once, with the first such row. Events with a field of that name say
    nothing."""
    for topic in ("a", "b"):
        with pyreplog.open_log(tmp_path / "both", topic=topic) as log:
            log.append_many([b"1", b"2"])
    assert replog("export", tmp_path / "both", tmp_path / f"both.{form}").code == 0
    done = replog("import", tmp_path / "one", tmp_path / f"both.{form}")
    assert done.code == 0
    where = "line 3" if form == "ndjson" else "row 3"
    assert (
        done.err.count(f"{where} is of topic 'b', those before of 'a': all go into one topic; `replog export --topic`")
        == 1
    )
    done = replog(
        "append",
        tmp_path / "one",
        stdin=b'{"topic":1,"value":"x"}\n{"topic":null,"value":"x"}\n{"topic":2,"value":"x"}\n',
    )
    assert (done.code, "line 3 is of topic '2', those before of '1'" in done.err) == (0, True)
    done = replog("append", tmp_path / "events", stdin=b'{"topic":"a"}\n{"topic":"b"}\n')
    assert (done.code, "topic" in done.err) == (0, False)
