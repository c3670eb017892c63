"""What the command refuses: in its own words, and without leaving a log behind that nobody wanted."""

from __future__ import annotations

import builtins
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from pyreplog.cli.output import in_options
from pyreplog.errors import PyreplogError, copy_for_raise
from pyreplog.runtime import Log
from tests.unit.cli.support import Replog

BAD = '{"value":\n'
GOOD = '{"value": "x"}\n'


def test_options_are_named_as_the_command_has_them(replog: Replog, events: Path, tmp_path: Path) -> None:
    """Not as arguments of Python's functions."""
    done = replog("append", tmp_path / "no topic", stdin=GOOD.encode())
    assert (done.code, "name one with --topic" in done.err) == (1, True)
    for topic in ("one", "other"):
        with pyreplog.open_log(tmp_path / "several", topic=topic):
            pass
    done = replog("append", tmp_path / "several", stdin=GOOD.encode())
    assert (done.code, "name one with --topic: one, other" in done.err) == (1, True)
    done = replog("append", events, "--durability", "sync", stdin=GOOD.encode())
    assert (
        "was made with --durability 'os' and cannot be opened with 'sync': leave --durability out to keep 'os'"
        in done.err
    )
    with pyreplog.open_log(events):
        done = replog("append", events, stdin=GOOD.encode())
        assert (done.code, "read it with `replog cat`" in done.err) == (1, True)
    done = replog("append", events / "events-0", stdin=GOOD.encode())
    assert (done.code, "read it with `replog cat`" in done.err) == (1, True)
    with pyreplog.Cluster(tmp_path / "data", nodes=1):
        pass
    done = replog("append", tmp_path / "data" / "node-1", stdin=GOOD.encode())
    assert (done.code, f"write to it with `replog append {tmp_path / 'data'}`" in done.err) == (1, True)


def test_a_row_of_another_partition_names_its_file(replog: Replog, tmp_path: Path) -> None:
    """Import says which file the refused row is in, for a new log and for one that is there; and that --partition
    does not move the row."""
    (tmp_path / "good.ndjson").write_text('{"value": "x"}\n')
    bad = tmp_path / "bad.ndjson"
    bad.write_text('{"value": "x", "partition": 3}\n')
    for words in ((bad,), (tmp_path / "good.ndjson", bad), (bad, "--partition", 0)):
        done = replog("import", tmp_path / "log", *words)
        assert done.code == 1
        assert f"replog import: {bad}: row " in done.err
        assert "asks for partition 3" in done.err
        assert "--partition is for rows without such a field" in done.err


ARGUMENT = re.compile(r"\b(mode|topic|partition|permissions|durability|lock_timeout)=|Cluster\(")
"""What a text for Python names, and a text for the command must not."""


def advice(tmp_path: Path) -> Iterator[PyreplogError]:
    """Every error of the library whose text names an argument of Python."""
    folder, cluster = tmp_path / "log", tmp_path / "cluster"
    with pyreplog.Cluster(cluster, nodes=1):
        yield refused(lambda: pyreplog.Cluster(cluster))
    with pyreplog.open_log(folder, topic="t", durability="os"):
        yield refused(lambda: pyreplog.open_log(folder))
        yield refused(lambda: pyreplog.open_log(folder, lock_timeout=0.01))
    yield refused(lambda: pyreplog.open_log(folder, durability="sync"))
    yield refused(lambda: pyreplog.open_log(folder, config={"durability": "sync"}))
    yield refused(lambda: pyreplog.open_log(folder / "t-0"))
    yield refused(lambda: pyreplog.open_log(cluster / "node-1"))
    yield refused(lambda: pyreplog.open_log(tmp_path / "none", mode="r"))
    (tmp_path / "empty").mkdir()
    yield refused(lambda: pyreplog.open_log(tmp_path / "empty", mode="r"))
    yield refused(lambda: pyreplog.open_log(tmp_path / "no topic"))
    with pyreplog.open_log(folder, topic="t", partition=1):
        pass
    yield refused(lambda: pyreplog.open_log(folder, topic="t", mode="r"))
    with pyreplog.open_log(folder, topic="other"):
        pass
    yield refused(lambda: pyreplog.open_log(folder))
    yield refused(lambda: pyreplog.open_log(folder, mode="r"))
    for mode in (0o777, 0o770):
        folder.chmod(mode)
        yield refused(lambda: pyreplog.open_log(folder, topic="t"))


def refused(call: Callable[[], object]) -> PyreplogError:
    """The error of ``call``."""
    with pytest.raises(PyreplogError) as error:
        call()
    return error.value


def test_an_error_has_a_text_for_the_command(tmp_path: Path) -> None:
    """An error that names an argument of Python has a text of its own for the command, also after a copy."""
    for error in advice(tmp_path):
        text = str(error)
        assert ARGUMENT.search(text), text
        for one in (error, copy_for_raise(error), pickle.loads(pickle.dumps(error))):
            assert not ARGUMENT.search(in_options(one)), in_options(one)


@pytest.mark.parametrize("command", ["append", "import"])
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (BAD, "not JSON"),
        (
            '{"value": "x", "partition": 3}\n',
            "row 1 of this run asks for partition 3; a new log holds partition 0 only",
        ),
        ('{"value": "' + "x" * 1_100_000 + '"}\n', "does not fit a batch"),
        ('{"value": "x", "timestamp": -5}\n', "-5"),
    ],
)
@pytest.mark.parametrize("piped", [True, False])
def test_a_refused_first_row_makes_no_log(
    replog: Replog, tmp_path: Path, command: str, rows: str, words: str, piped: bool
) -> None:
    """Nor a topic in a folder that has others; what is there stays."""
    empty, file = tmp_path / "empty.ndjson", tmp_path / "rows.ndjson"
    empty.touch()
    file.write_text(rows)
    names = ["-"] if piped else [empty, file]
    folder = tmp_path / "log"
    done = replog(command, folder, *names, stdin=rows.encode())
    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert not folder.exists()
    assert replog(command, folder, "-", "--topic", "kept", stdin=GOOD.encode()).code == 0
    before = sorted(folder.rglob("*"))
    assert replog(command, folder, *names, "--topic", "more", stdin=rows.encode()).code == 1
    assert sorted(folder.rglob("*")) == before
    assert replog("cat", folder, "--values").out == "x\n"


@pytest.mark.parametrize("command", ["append", "import"])
def test_a_row_refused_later_keeps_those_before(replog: Replog, tmp_path: Path, command: str) -> None:
    """And tells of them."""
    done = replog(command, tmp_path / "log", "-", stdin=(GOOD + GOOD + BAD).encode())
    assert (done.code, done.out) == (1, "appended 2 records: log-0 offsets 0 to 1\n")
    assert replog(command, tmp_path / "none", "-").out == "appended 0 records\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rows.cvs", "(.cvs says no format, so it was read as ndjson; did you mean '.csv'?)"),
        ("rows.xyz", "(.xyz says no format, so it was read as ndjson; --format names another)"),
        ("rows.csv.zst", "(.zst is compressed: unpack it first, or into a pipe that is read as -)"),
        ("rows.csv.gz", "not gzip, or damaged"),
        ("rows.ndjson", "not JSON"),
    ],
)
@pytest.mark.parametrize("command", ["append", "import"])
def test_a_suffix_that_is_not_known(replog: Replog, tmp_path: Path, command: str, name: str, words: str) -> None:
    """The file is taken for NDJSON, and where it is none the suffix may be why."""
    (tmp_path / name).write_text("a,b\n1,2\n")
    done = replog(command, tmp_path / "log", tmp_path / name)
    assert done.code == 1
    assert words in done.err
    assert ("says no format" in done.err) == (name in ("rows.cvs", "rows.xyz"))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("ROWS.CSV", "value\n1\n", "1"), ("rows.Txt", "1\n", "1"), ("rows.NDJSON", '{"value":"1"}\n', "1")],
)
@pytest.mark.parametrize("command", ["append", "import"])
def test_a_suffix_in_capitals(replog: Replog, tmp_path: Path, command: str, name: str, text: str, value: str) -> None:
    """It says what it says in small letters, as for `export`."""
    (tmp_path / name).write_text(text)
    assert replog(command, tmp_path / "log", tmp_path / name).code == 0
    assert replog("cat", tmp_path / "log", "--values").out == f"{value}\n"


@pytest.mark.parametrize(("suffix", "meant"), [(".ndjosn", ".ndjson"), (".parqet", ".parquet"), (".jsnl", ".jsonl")])
def test_export_to_a_suffix_that_is_misspelt(
    replog: Replog, events: Path, tmp_path: Path, suffix: str, meant: str
) -> None:
    """It says which was meant."""
    done = replog("export", events, tmp_path / f"out{suffix}")
    assert (done.code, f"did you mean {meant!r}?" in done.err) == (1, True)


@pytest.mark.parametrize("seconds", ["0.05", "0", "-1", "soon"])
def test_seconds_of_bench(replog: Replog, tmp_path: Path, seconds: str) -> None:
    """As other numbers are refused: by what they should be."""
    done = replog("bench", tmp_path, "--seconds", seconds)
    assert (done.code, f"{seconds!r} is not a whole number of seconds from 1" in done.err) == (2, True)


@pytest.mark.parametrize("command", ["append", "import"])
def test_memory_that_ends_is_no_bug(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It ends in one line that says what to do, after what was appended until then is told."""
    source = tmp_path / "in.ndjson"
    source.write_text('{"value":"v"}\n' * 1500)
    put = Log.append_many
    calls: list[int] = []

    def append_many(log: Log, values: Sequence[bytes], **others: Any) -> object:
        calls.append(len(values))
        if len(calls) > 1:
            raise MemoryError
        return put(log, values, **others)

    monkeypatch.setattr(Log, "append_many", append_many)
    done = replog(command, tmp_path / "log", source)
    assert (done.code, len(calls)) == (1, 2)
    assert done.out.startswith("appended 1,000 records")
    assert done.err.startswith(f"replog {command}: no memory is left: raise the limit of it")


def test_pyarrow_that_cannot_be_loaded_is_not_to_be_installed(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is there, and memory, say, is not."""
    assert replog("append", tmp_path / "log", stdin=GOOD.encode()).code == 0
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = replog("export", tmp_path / "log", tmp_path / "out.parquet")
    assert done.err == "replog export: Parquet needs pyarrow: pip install pyarrow\n"

    def refused(name: str, *others: Any) -> Any:
        if name == "pyarrow":
            raise ImportError("libarrow.so: failed to map segment from shared object")
        return load(name, *others)

    load = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", refused)
    done = replog("export", tmp_path / "log", tmp_path / "out.parquet")
    assert (done.code, "failed to map segment" in done.err, "install" in done.err) == (1, True, False)
