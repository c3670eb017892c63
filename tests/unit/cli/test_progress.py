"""Work that takes long shows on a terminal how far it is, in every command; nothing is shown where nobody looks,
unless asked for."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

import pytest

import pyreplog
from pyreplog.cli import bench
from pyreplog.cli.output import ProgressBar
from pyreplog.system import SystemDisk
from pyreplog.verify import batches, total_size, verify
from tests.unit.cli.support import Replog, Terminal

COMMANDS = [
    (["topics", "events"], "opened 1 of 1 (100 %) partitions"),
    (["describe", "events"], "described 1 of 1 (100 %) partitions"),
    (["cat", "events"], "read 10 of 10 (100 %) records"),
    (["tail", "events", "-n", "7"], "read 7 of 7 (100 %) records"),
    (["dump", "events", "--records"], "dumped "),
    (["verify", "events"], "verified "),
    (["repair", "events"], "read "),
    (["append", "events", "rows.ndjson"], "appended 1 records"),
    (["import", "events", "rows.ndjson"], "imported "),
    (["export", "events", "out.ndjson"], "exported 10 of 10 (100 %) records"),
    (["bench", "."], "measured 20 of 180 (11 %) batches"),
]


@pytest.fixture
def slow(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done takes seconds by the clock; a log and rows lie in the working directory."""
    clock = itertools.count().__next__
    assert ProgressBar.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(ProgressBar.__init__.__kwdefaults__, "clock", clock)
    monkeypatch.chdir(events.parent)
    Path("rows.ndjson").write_text('{"value": "x"}\n')
    monkeypatch.setattr(bench, "_calls", lambda *_: 20)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(("words", "line"), COMMANDS, ids=lambda value: value[0] if isinstance(value, list) else None)
def test_every_command_shows_how_far_it_is(
    replog: Replog, monkeypatch: pytest.MonkeyPatch, words: list[str], line: str
) -> None:
    """On a terminal the line is written and wiped."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    replog(*words)
    assert line in terminal.getvalue()
    assert terminal.getvalue().endswith(" \r")


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(("words", "line"), COMMANDS, ids=lambda value: value[0] if isinstance(value, list) else None)
def test_piped_it_shows_nothing_unless_asked(replog: Replog, words: list[str], line: str) -> None:
    """Standard error stays empty but for what each run of ``bench`` says first; with --progress a line is
    printed."""
    quiet = replog(*words)
    assert quiet.code == 0
    assert [said for said in quiet.err.splitlines() if not said.startswith("measuring with")] == []
    if words[0] == "export":
        words = [*words, "--force"]
    assert line.partition(" ")[0] in replog(*words, "--progress").err


def test_offsets_without_a_record_count_as_passed() -> None:
    """In a compacted log the share is that of the offsets; how many records there are in all is not known."""
    stream = Terminal()
    progress = ProgressBar("read", total=300, stream=stream, clock=itertools.count().__next__)
    progress.begin(0)
    progress.add(1, 1)
    assert "read 1 of 300 (0 %) records" in stream.getvalue()
    progress.add(2, 240)
    assert "read 3 (80 %) records" in stream.getvalue()


def test_records_on_a_terminal_are_progress_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what is printed is looked at, no second line moves about in it."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    clock = itertools.count().__next__
    for beside, shown in ((True, False), (False, True)):
        stream = Terminal()
        ProgressBar("read", stream=stream, clock=clock, beside=beside).add(1)
        assert bool(stream.getvalue()) is shown


def test_more_than_was_there_at_first() -> None:
    """Beside a live writer the total is passed: it is then left out, for more than all is no share."""
    stream = Terminal()
    progress = ProgressBar("verified", total=100, sized=True, stream=stream, clock=itertools.count().__next__)
    progress.add(100)
    assert "verified 100 B of 100 B (100 %), " in stream.getvalue()
    progress.add(1)
    assert "verified 101 B, " in stream.getvalue()


def test_each_byte_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read again, because a batch crosses the end of a piece, is not told again."""
    monkeypatch.setattr(batches, "CHUNK_SIZE", 1000)
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        for size in range(300, 400):
            log.append(b"x" * size)
    told: list[int] = []
    disk = SystemDisk()
    book = verify(disk, str(tmp_path / "log"), progress=told.append)
    assert sum(told) == book.byte_count <= total_size(disk, str(tmp_path / "log"))
    disk.close()


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("words", [["append", "events", "rows.ndjson"], ["import", "events", "rows.ndjson"]])
def test_a_recovery_shows_how_far_it_is(
    replog: Replog, monkeypatch: pytest.MonkeyPatch, events: Path, words: list[str]
) -> None:
    """A log that was not closed: on a terminal, or when asked; never among the results. What it found stands behind
    it."""
    found = "replog: the log 'events' (events-0) was not closed cleanly: "
    marker = events / ".kafka_cleanshutdown"
    left = marker.read_bytes()

    def run(*more: str) -> str:
        marker.unlink()
        done = replog(*words, "--json", *more)
        assert done.code == 0
        assert json.loads(done.out)["count"] == 1
        return done.err

    assert left
    assert run().startswith(found)
    assert "events-0: recovered " in run("--progress").partition(found)[0]
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run()
    assert "\revents-0: recovered " in terminal.getvalue()
    assert f" \r{found}" in terminal.getvalue()
    shown = terminal.getvalue().split("\r")
    assert any(" (100 %), " in line for line in shown if "recovered" in line)


def test_parts_of_one_work_share_its_second() -> None:
    """Ten parts of half a second each are shown from the second second on, each with what it has, and the speed of
    all."""
    stream = Terminal()
    now = 0.0
    progress = ProgressBar("recovered", sized=True, stream=stream, clock=lambda: now)
    for number in range(10):
        progress.turn(f"t-{number}: recovered", 100)
        now += 0.5
        progress.add(100)
    lines = stream.getvalue().split("\r")[1:]
    assert [line.partition(":")[0] for line in lines] == [f"t-{number}" for number in range(1, 10)]
    assert lines[0].rstrip() == "t-1: recovered 100 B of 100 B (100 %), 200 B/s"


def test_work_does_not_end_with_who_reads_of_it() -> None:
    """`replog import ... --progress 2>&1 | head -1`: the second line finds nobody, and the rows go on."""
    end, ours = os.pipe()
    os.close(end)
    with open(ours, "w", encoding="utf-8") as nobody:
        progress = ProgressBar("imported", forced=True, stream=nobody, clock=itertools.count(0, 2).__next__)
        for _ in range(3):
            progress.add(1)
        progress.close()
    assert progress.count == 3
