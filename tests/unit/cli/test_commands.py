"""The command as a person uses it: what it prints where, and what it exits with."""

from __future__ import annotations

import io
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pyreplog
from pyreplog.runtime import Log
from tests.unit.cli.support import Replog


def test_topics_tells_a_copy_and_the_kind_of_each_row(replog: Replog, tmp_path: Path) -> None:
    """A folder with a copy is not called a cluster, and each JSON row names its kind."""
    for name in ("a", "b"):
        with pyreplog.open_log(tmp_path / "data" / name, topic="t", durability="os") as log:
            log.append(b"x")
    shutil.copytree(tmp_path / "data" / "b", tmp_path / "data" / "b.bak")
    (tmp_path / "data" / "photos").mkdir()
    done = replog("topics", tmp_path / "data")
    assert done.out.splitlines()[0] == "2 independent logs"
    assert "b: 2 folders of one cluster id that cannot all be read together" in done.out
    assert "one cluster in" not in done.out
    rows = replog("topics", tmp_path / "data", "--json").objects()
    assert [row["kind"] for row in rows] == ["topic", "log", "cluster", "conflict", "foreign"]


def test_cat_prints_records(replog: Replog, events: Path) -> None:
    """One JSON object per record with all that it holds; what is not UTF-8 stands in Base64."""
    done = replog("cat", events)
    assert (done.code, done.err) == (0, "")
    rows = done.objects()
    assert [row["offset"] for row in rows] == list(range(10))
    assert rows[0] == {
        "topic": "events",
        "partition": 0,
        "offset": 0,
        "timestamp": 1000,
        "key": "k",
        "value": "zero",
        "headers": [{"key": "h", "value": "x"}, {"key": "h", "value": None}],
    }
    assert rows[9]["value_base64"] == "/wA="
    assert rows[1]["key"] is None


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--start", "8"], [8, 9]),
        (["--start", "2", "--end", "4"], [2, 3]),
        (["--start", "99"], []),
        (["-n", "3"], [0, 1, 2]),
        (["-n", "0"], []),
        (["--start-timestamp", "9000"], [8, 9]),
        (["--start-timestamp", "1970-01-01T00:00:02.5Z", "--end-timestamp", "5000"], [2, 3]),
        (["--end-timestamp", "2000"], [0]),
        (["--start-timestamp", "99999999"], []),
        (["--topic", "events", "--partition", "0", "--count", "1"], [0]),
    ],
)
def test_cat_selects(replog: Replog, events: Path, options: list[str], offsets: list[int]) -> None:
    """Offsets and times select rows exactly, ends are exclusive, -n counts."""
    done = replog("cat", events, *options)
    assert done.code == 0
    assert [row["offset"] for row in done.objects()] == offsets


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("cat", ["--start", "5", "--end", "2"], "--start 5 lies behind --end 2"),
        (
            "cat",
            ["--start-timestamp", "5", "--end-timestamp", "2"],
            "--start-timestamp 5 lies behind --end-timestamp 2",
        ),
        ("export", ["-", "--start", "5", "--end", "2"], "--start 5 lies behind --end 2"),
        ("tail", ["--timeout", "1"], "--timeout says how long --follow waits"),
    ],
)
def test_options_that_contradict_one_another(
    replog: Replog, events: Path, command: str, options: list[str], words: str
) -> None:
    """A range that ends before it begins, and a limit on a wait that there is not, are refused as in Python; an
    empty one is none."""
    done = replog(command, events, *options)
    assert done.code == 2
    assert words in done.err
    assert replog("cat", events, "--start", "5", "--end", "5").code == 0


def test_cat_from_behind_the_end_says_so(replog: Replog, events: Path) -> None:
    """Nothing is printed, which is no failure, and standard error says where the end is; at the end itself nothing
    needs saying."""
    done = replog("cat", events, "--start", 99)
    assert (done.code, done.out) == (0, "")
    assert re.fullmatch(r"replog cat: there is no record yet at offset 99: readers see records below (\d+)\n", done.err)
    end = done.err.split()[-1]
    assert replog("cat", events, "--start", end).err == ""


def test_cat_values(replog: Replog, events: Path) -> None:
    """--values prints the values alone."""
    assert replog("cat", events, "--values", "-n", 3).out == "zero\n1\n2\n"


def test_what_cat_prints_append_takes(replog: Replog, events: Path, tmp_path: Path) -> None:
    """`replog cat A | replog append B` copies keys, values, headers and times."""
    copy = tmp_path / "copy"
    done = replog("append", copy, "--durability", "os", stdin=replog("cat", events).out.encode())
    assert (done.code, done.out) == (0, "appended 10 records: copy-0 offsets 0 to 9\n")
    rows, copied = replog("cat", events).objects(), replog("cat", copy).objects()
    assert [{**row, "topic": "copy"} for row in rows] == copied


def test_append_from_files(replog: Replog, tmp_path: Path) -> None:
    """The format follows the suffix; fields are mapped; --json says where everything went."""
    rows = tmp_path / "rows.csv"
    rows.write_text('carrier,at,note\nUA,2013-01-01T10:00:00Z,"a, ""b"""\nDL,2013-01-01T11:00:00Z,\n')
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\n")
    path = tmp_path / "flights"
    done = replog("append", path, rows, "--key-field", "carrier", "--timestamp-field", "at", "--json")
    assert done.objects() == [{"topic": "flights", "count": 2, "ranges": [{"partition": 0, "start": 0, "end": 2}]}]
    assert replog("append", path, lines).code == 0
    found = replog("cat", path).objects()
    assert [(row["key"], row["value"]) for row in found[:2]] == [
        ("UA", '{"carrier":"UA","at":"2013-01-01T10:00:00Z","note":"a, \\"b\\""}'),
        ("DL", '{"carrier":"DL","at":"2013-01-01T11:00:00Z","note":""}'),
    ]
    assert found[0]["timestamp"] == 1357034400000
    assert [row["value"] for row in found[2:]] == ["one", "two"]


def test_a_bad_row_keeps_what_came_before(replog: Replog, tmp_path: Path) -> None:
    """The rows before the bad one are appended and counted; the error names file and line; exit code 1."""
    bad = tmp_path / "bad.ndjson"
    bad.write_text('{"value": "a"}\n{"value": "b"}\nnonsense\n{"value": "c"}\n')
    done = replog("append", tmp_path / "log", bad)
    assert done.code == 1
    assert done.out == "appended 2 records: log-0 offsets 0 to 1\n"
    assert f"{bad}: line 3 is not JSON" in done.err
    assert [row["value"] for row in replog("cat", tmp_path / "log").objects()] == ["a", "b"]


def test_files_may_stand_behind_options(replog: Replog, tmp_path: Path) -> None:
    """Wherever options are among the words, the same is understood."""
    rows = tmp_path / "rows.txt"
    rows.write_text("one\n")
    path = tmp_path / "log"
    for words in (
        (path, rows, "--topic", "t"),
        (path, "--topic", "t", rows),
        ("--topic", "t", path, rows),
        (path, "--json", rows, "--", rows),
    ):
        assert replog("append", *words).code == 0, words
    assert len(replog("cat", path).objects()) == 5
    done = replog("append", path, "--topik", "t", rows)
    assert done.code == 2
    assert "did you mean '--topic'?" in done.err


@pytest.mark.parametrize("command", ["append", "import"])
def test_a_row_that_is_too_large_keeps_what_came_before(replog: Replog, tmp_path: Path, command: str) -> None:
    """The rows before it are appended, also those that would have shared its batch; the error says which row it is
    and what to do."""
    rows = tmp_path / "rows.ndjson"
    rows.write_text("".join(f'{{"value": "{value}"}}\n' for value in ("a", "b", "x" * 2_000_000, "c")))
    done = replog(command, tmp_path / "log", rows)
    assert done.code == 1
    assert done.out == "appended 2 records: log-0 offsets 0 to 1\n"
    assert "row 3 of this run (2,000,000 bytes" in done.err
    assert "max.message.bytes" in done.err


@pytest.mark.parametrize("bad", [b'{"value": "%s"}' % (b"x" * 2_000_000), b'{"value": "x", "partition": 9}'])
def test_a_cluster_keeps_what_came_before_a_row_that_it_refuses(replog: Replog, tmp_path: Path, bad: bytes) -> None:
    """What was sent before it is waited for and told."""
    path = tmp_path / "data"
    with pyreplog.Cluster(path, nodes=1) as cluster:
        cluster.admin.create_topic("t", partitions=1, replication_factor=1, config={"min.insync.replicas": 1})
    done = replog("append", path, stdin=b'{"value": "a"}\n' + bad)
    assert done.code == 1
    assert done.out == "appended 1 record: t-0 offsets 0 to 0\n"
    assert "row 2 of this run" in done.err


def test_an_interrupted_append_tells_what_it_did(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while it waits for input: what was appended is said, exit code 130."""

    class Interrupted(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            line = super().readline()
            if not line:
                raise KeyboardInterrupt
            return line

    class Stdin:
        buffer = Interrupted(b'{"value": "a"}\n{"value": "b"}\n')

    monkeypatch.setattr(Replog, "stdin", staticmethod(lambda _: Stdin()))
    done = replog("append", tmp_path / "log")
    assert (done.code, done.out) == (130, "appended 2 records: log-0 offsets 0 to 1\n")
    assert "interrupted" in done.err


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int, int], None]]:
    """Has Ctrl-C come so many times when the n-th call of that method of a Log has done its work, and not returned
    yet."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def strike(name: str, number: int, times: int) -> None:
        numbers = itertools.count(1)
        method = getattr(Log, name)

        def struck(*arguments: object, **named: object) -> object:
            result = method(*arguments, **named)
            if next(numbers) == number:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)
            return result

        monkeypatch.setattr(Log, name, struck)

    yield strike
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("words", [["append"], ["append", "piped"], ["import"], ["import", "--resume"]])
def test_what_was_under_way_at_an_interruption_is_counted(
    replog: Replog, tmp_path: Path, ctrl_c: Callable[[str, int, int], None], words: list[str]
) -> None:
    """Ctrl-C while a batch is written: what is told is what the log holds, to the record."""
    rows = b"".join(b'{"value": "%d"}\n' % number for number in range(5000))
    file = tmp_path / "rows.ndjson"
    file.write_bytes(rows)
    ctrl_c("append_many", 3, 1)
    piped = words[1:] == ["piped"]
    done = replog(words[0], tmp_path / "log", *([] if piped else [file, *words[1:]]), stdin=rows if piped else b"")
    assert done.code == 130
    assert done.err == f"replog {words[0]}: interrupted\n"
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert done.out == f"appended {log.end_offset:,} records: log-0 offsets 0 to {log.end_offset - 1}\n"
        assert 0 < log.end_offset < 5000
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interruption_waits_for_nothing(
    replog: Replog, tmp_path: Path, ctrl_c: Callable[[str, int, int], None]
) -> None:
    """Where the disk never answers, Ctrl-C once more ends it; that more may be in the log than was counted is
    said."""
    file = tmp_path / "rows.ndjson"
    file.write_bytes(b'{"value": "a"}\n' * 2000)
    ctrl_c("append_many", 2, 2)
    done = replog("import", tmp_path / "log", file)
    assert (done.code, done.out) == (130, "appended 1,000 records: log-0 offsets 0 to 999\n")
    assert "up to 1,000 records more may be in the log than are told of" in done.err


@pytest.mark.parametrize("module", ["pyreplog.cli.main", "pyreplog.runtime.cluster", "argparse", "build_parser"])
def test_an_interrupted_start(module: str) -> None:
    """Ctrl-C while the command is being loaded, wherever that is: exit code 130, and no traceback."""
    program = f"""
import runpy, sys
class Struck:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            exec("raise KeyboardInterrupt")  # as within a dataclass: Python then likes to end by the signal
def build_parser():
    raise KeyboardInterrupt
import pyreplog
sys.meta_path.insert(0, Struck())
if {module!r} == "build_parser":
    import pyreplog.cli.main
    pyreplog.cli.main.build_parser = build_parser
sys.argv = ["replog", "topics", "x"]
runpy.run_module("pyreplog", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "replog: interrupted\n")


def test_the_script_is_what_meets_an_interrupted_start() -> None:
    """What is installed as `replog` begins where `python -m pyreplog` does."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"replog": "pyreplog.__main__:main"}


@pytest.mark.parametrize("words", ["cat {}", "export {} -", "verify {}", "append {} --format lines", "--help"])
def test_a_full_disk_behind_standard_output(events: Path, words: str) -> None:
    """One line says so, the exit code is that of every failure, and nothing that was not written is told of as
    done."""
    if not os.path.exists("/dev/full"):
        pytest.skip("SKIPPED FAULT RIG: no /dev/full")
    command = [sys.executable, "-m", "pyreplog", *words.format(events).split()]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            command, input="x", stdout=full, stderr=subprocess.PIPE, text=True, env=buffered, check=False
        )
    assert done.returncode == 1
    assert re.fullmatch(r"replog.*: No space left on device\n", done.stderr)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-"])
def test_closed_streams(tmp_path: Path, closed: str) -> None:
    """Who runs it without standard input, output or error gets no traceback, and no file of a log takes their
    place."""
    command = f"{sys.executable} -m pyreplog append {tmp_path}/log --format lines {closed}"
    done = subprocess.run(["sh", "-c", f"echo x | {command}"], capture_output=True, text=True, check=False)
    assert "Error" not in done.stderr
    if closed == ">&-":
        assert done.returncode == 1
        assert "standard output is closed" in done.stderr
    else:
        assert done.returncode == 0
        assert done.stdout.startswith("appended 1 record" if closed == "2>&-" else "appended 0 records")


@pytest.mark.parametrize(
    "words", [["cat"], ["dump", "--records", "--json"], ["dump", "--records"], ["tail", "--values"]]
)
def test_results_are_utf8_in_any_locale(tmp_path: Path, words: list[str]) -> None:
    """Records with characters that the locale does not have are printed like others."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        log.append("é中".encode())
    done = subprocess.run(
        [sys.executable, "-m", "pyreplog", words[0], tmp_path / "log", *words[1:]],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert "é中".encode() in done.stdout


def test_append_says_that_it_makes_a_topic_in_a_log_that_has_others(replog: Replog, tmp_path: Path) -> None:
    """A topic's name that was mistyped shows; a file's makes nothing."""
    rows = tmp_path / "rows.ndjson"
    rows.write_text('{"value":"a"}\n')
    first = replog("append", tmp_path / "log", rows)
    assert (first.code, first.err) == (0, "")
    other = replog("append", tmp_path / "log", rows, "--topic", "lgo")
    assert other.code == 0
    assert "had no topic lgo (but log): it is made now; did you mean 'log'?" in other.err
    assert replog("append", tmp_path / "log", rows, "--topic", "readings").err.endswith("it is made now\n")
    assert replog("append", tmp_path / "log", rows, "--topic", "lgo").err == ""
    assert replog("append", tmp_path / "new", tmp_path / "rwos.ndjson").code == 1
    assert not (tmp_path / "new").exists()
    for command, name, said in (
        ("append", "folder", "is a folder: name the files in it"),
        ("import", "folder", "is a folder: name the files in it"),
        ("append", "rows.parquet", "`replog import` takes it"),
    ):
        (tmp_path / "folder").mkdir(exist_ok=True)
        (tmp_path / "rows.parquet").touch()
        done = replog(command, tmp_path / "new", tmp_path / name)
        assert (done.code, done.out) == (1, "")
        assert said in done.err
        assert not (tmp_path / "new").exists()


def test_append_to_another_partition_is_refused(replog: Replog, tmp_path: Path) -> None:
    """A log in one folder has partition 0 only: a row that asks for another is an error, not a guess; those before
    it are appended."""
    done = replog("append", tmp_path / "log", stdin=b'{"value": "a", "partition": 0}\n{"value": "b", "partition": 3}')
    assert done.code == 1
    assert done.out == "appended 1 record: log-0 offsets 0 to 0\n"
    assert "row 2 of this run asks for partition 3" in done.err


def test_topics_and_describe(replog: Replog, events: Path) -> None:
    """What is there: names, counts, offsets, epochs, segments and sizes, for people and as JSON."""
    assert replog("topics", events).out == "events  1 partition, 10 offsets\n"
    assert replog("topics", events, "--json").objects() == [
        {"kind": "topic", "topic": "events", "partitions": 1, "offsets": 10, "above_high_watermark": 0}
    ]
    text = replog("describe", events)
    assert text.code == 0
    assert "events" in text.out
    assert "10" in text.out
    (row,) = replog("describe", events, "--json").objects()
    assert (row["topic"], row["partition"], row["start_offset"], row["high_watermark"]) == ("events", 0, 0, 10)
    assert row["segments"][0]["base_offset"] == 0
    assert row["size"] == sum(segment["size"] for segment in row["segments"]) > 0
    assert row["epochs"][0]["start_offset"] == 0
    assert row["durability"] == "os"


def test_reading_disturbs_no_writer(replog: Replog, events: Path) -> None:
    """All reading commands work while another process or this one writes the log."""
    with pyreplog.open_log(events) as log:
        log.append(b"new")
        for command in ("topics", "cat", "describe"):
            assert replog(command, events).code == 0
        done = replog("append", events, stdin=b'{"value": "x"}')
        assert done.code == 1
        assert f"pid {os.getpid()}" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["apend", "x"], "unknown command 'apend'; did you mean 'append'?"),
        (["cat", "x", "--stort", "5"], "unknown option '--stort'; did you mean '--start'?"),
        (["cat", "x", "--jsn"], "unknown option '--jsn'; did you mean '--json'?"),
        (["tail", "x", "--part", "5"], "unknown option '--part'; did you mean '--partition'?"),
        (["dump", "x", "--follow"], "unknown option '--follow'; known are -h, --help,"),
        (["cat", "x", "--json", "--values"], "not allowed with argument --json"),
        (["tail", "x", "y"], "unexpected argument 'y'"),
        (["cat", "x", "y"], "several folders are read by --all"),
        (["--json", "topics", "x"], "--json is an option of 'replog topics': put it after the command"),
        (["--start=5", "cat", "x"], "--start is an option of 'replog cat': put it after the command"),
        (["--json"], "unknown option '--json'; known are -h, --help, --version"),
        (["--jsn", "topics", "x"], "unknown option '--jsn'; did you mean '--json'?"),
        (["help", "apend"], "unknown command 'apend'; did you mean 'append'?"),
        (["helpx"], "unknown command 'helpx'; did you mean 'help'?"),
        (["cat"], "required: PATH"),
        (["cat", "x", "--start", "-5"], "not an offset"),
        (["dump", ""], "argument PATH: is empty: name a folder"),
        (["append", "-", "rows"], "argument PATH: '-' is standard input, and a folder belongs here"),
        (["repair", ""], "argument PATH: is empty: name a folder"),
        (["repair", "x", "--to", ""], "argument --to: is empty: name a folder"),
        (["cat", "x", "--start", "abc"], "'abc' is not an offset"),
        (["cat", "x", "--start-timestamp", "2013-07-04"], "no time zone"),
        (["append", "x", "--format", "xml"], "invalid choice: 'xml'"),
        (["append", "x", "--durability", "never"], "invalid choice"),
        (["\x1b[2J"], "unknown command"),
    ],
)
def test_what_is_not_understood(replog: Replog, words: list[str], said: str) -> None:
    """Exit code 2, nothing on standard output, one clear reason on standard error, no control characters."""
    done = replog(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "\x1b" not in done.err


def test_help(replog: Replog) -> None:
    """--help and --version succeed; no words at all shows the help and fails."""
    for words in (["--help"], ["cat", "--help"], ["--version"]):
        assert replog(*words).code == 0
    for words in ([], ["cat"]):
        assert replog("help", *words).out == replog(*words, "--help").out
        assert replog("help", *words).code == 0
    done = replog()
    assert done.code == 2
    assert "describe" in done.out


@pytest.mark.parametrize("command", ["topics", "cat", "describe"])
def test_wrong_folders(replog: Replog, tmp_path: Path, events: Path, command: str) -> None:
    """No folder, an empty one, a file, garbage: exit code 1 and a text that names the path; nothing is created."""
    empty = tmp_path / "empty"
    empty.mkdir()
    file = tmp_path / "file"
    file.write_bytes(b"x")
    for path in (tmp_path / "missing", file):
        done = replog(command, path)
        assert (done.code, done.out) == (1, "")
        assert str(path) in done.err
    assert not (tmp_path / "missing").exists()
    done = replog(command, empty)
    assert done.out == ""
    if command != "topics":
        done = replog(command, events, "--topic", "evnts")
        assert done.code == 1
        assert "did you mean 'events'?" in done.err
        done = replog(command, events, "--partition", 7)
        assert done.code == 1
        assert "no partition 7" in done.err


def test_damage_is_an_error_with_its_place(replog: Replog, events: Path) -> None:
    """A flipped bit in the middle of a segment: what stands before it is printed, then exit code 3 and where the
    damage is."""
    segment = next((events / "events-0").glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(data)
    done = replog("cat", events)
    assert done.code == 3
    assert segment.name in done.err or str(events) in done.err
    assert [row["offset"] for row in done.objects()] == list(range(len(done.objects())))


def test_missing_input_file(replog: Replog, tmp_path: Path) -> None:
    """An input that is not there is named, and nothing is appended."""
    done = replog("append", tmp_path / "log", tmp_path / "no.csv")
    assert done.code == 1
    assert "no.csv" in done.err


def test_a_reader_that_leaves_early_is_no_error(events: Path) -> None:
    """`replog cat | head -1` ends quietly."""
    with pyreplog.open_log(events, durability="os") as log:
        log.append_many([b"x" * 100] * 5000)
    command = [sys.executable, "-m", "pyreplog", "cat", str(events)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"{")
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(timeout=60) == 0


def test_a_cluster_folder(replog: Replog, tmp_path: Path) -> None:
    """A cluster's folder reads as one log of each partition, and takes records for its topics."""
    path = tmp_path / "data"
    with pyreplog.Cluster(path, nodes=3) as cluster:
        cluster.admin.create_topic("orders", partitions=2, replication_factor=3, config={"durability": "os"})
        with cluster.producer() as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number, partition=number % 2)
            producer.flush()
    topics, nodes = replog("topics", path).out.splitlines()
    assert topics == "orders  2 partitions, 20 offsets"
    assert re.fullmatch(r"\.: one cluster in 3 folders, cluster id \S{22}, nodes 1, 2, 3", nodes)
    rows = replog("cat", path, "--topic", "orders").objects()
    assert [int(row["value"]) for row in rows] == [*range(0, 20, 2), *range(1, 20, 2)]
    assert [row["partition"] for row in replog("describe", path, "--json").objects()] == [0, 1]
    done = replog(
        "append",
        path,
        "--topic",
        "orders",
        "--json",
        stdin=b'{"value": "more", "partition": 1}\n{"value": "more", "key": "k"}',
    )
    assert done.objects()[0]["count"] == 2
    assert len(replog("cat", path).objects()) == 22


def test_json_is_what_records_are_printed_as(replog: Replog, events: Path) -> None:
    """`cat` and `tail` take --json as every command does: it is what they print anyway."""
    for command in ("cat", "tail"):
        assert replog(command, events, "--json").out == replog(command, events).out
