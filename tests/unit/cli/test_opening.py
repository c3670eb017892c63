"""How commands open a log that other users or processes use too, and how often they say that others may write to
its folders."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import pyreplog
from tests.unit.cli.support import Replog

COMMANDS = (("append",), ("import", "--resume"))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_permissions(replog: Replog, tmp_path: Path, words: tuple[str, ...]) -> None:
    """``--permissions group`` writes to a folder that the group may write to, which is refused with that advice
    otherwise; everything that it makes is the group's."""
    tmp_path.chmod(0o2770)
    (tmp_path / "rows.ndjson").write_text('{"value": "x"}\n')
    command, *rest = words
    given = (command, tmp_path / "log", tmp_path / "rows.ndjson", *rest)
    assert replog(*given, "--permissions", "group").code == 0
    made = {path: path.stat().st_mode & 0o7777 for path in (tmp_path / "log", *(tmp_path / "log").rglob("*"))}
    assert {path.name: oct(mode) for path, mode in made.items() if mode != (0o2770 if path.is_dir() else 0o660)} == {}
    refused = replog(*given)
    assert refused.code == 1
    assert "write to it with --permissions group" in refused.err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_lock_timeout(replog: Replog, tmp_path: Path, words: tuple[str, ...]) -> None:
    """``--lock-timeout`` waits for another opening to end; without it the error names the holder and the option."""
    (tmp_path / "rows.ndjson").write_text('{"value": "x"}\n')
    command, *rest = words
    given = (command, tmp_path / "log", tmp_path / "rows.ndjson", *rest)
    with pyreplog.open_log(tmp_path / "log") as log:
        refused = replog(*given)
        assert refused.code == 1
        assert "is already open for writing by this process, pid " in refused.err
        assert "read it with `replog cat`, wait for it with --lock-timeout SECONDS, or close" in refused.err
        timer = threading.Timer(0.1, log.close)
        timer.start()
        assert replog(*given, "--lock-timeout", 20).code == 0
        timer.join()


def test_one_warning_for_all_folders(replog: Replog, tmp_path: Path) -> None:
    """A command that reads folders that others may write to says so in one line, however many there are."""
    for partition in range(4):
        with pyreplog.open_log(tmp_path / "log", partition=partition, durability="os") as log:
            log.append(b"x")
    commands = ("topics", "cat", "describe", "verify")
    before = {command: replog(command, tmp_path / "log") for command in commands}
    for folder in (tmp_path / "log", *(tmp_path / "log").glob("log-*")):
        folder.chmod(0o770)
    for command in commands:
        done = replog(command, tmp_path / "log")
        assert (done.code, done.out, before[command].err) == (0, before[command].out, "")
        (line,) = done.err.splitlines()
        assert "writable by its group" in line
        assert "4 more folders" in line


def test_repair_into_a_folder_of_the_group(replog: Replog, tmp_path: Path) -> None:
    """``replog repair --permissions group`` makes a log that the group may write to."""
    tmp_path.chmod(0o2770)
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
    done = replog("repair", tmp_path / "log", "--to", tmp_path / "new", "--yes", "--permissions", "group")
    assert (done.code, done.err) == (0, "")
    made = {path: path.stat().st_mode & 0o7777 for path in (tmp_path / "new", *(tmp_path / "new").rglob("*"))}
    assert {path.name: oct(mode) for path, mode in made.items() if mode != (0o2770 if path.is_dir() else 0o660)} == {}


def test_backup_into_a_folder_of_the_group(replog: Replog, tmp_path: Path) -> None:
    """``replog backup --permissions group`` makes a copy that the group may write to, and the command that it
    prints restores to one."""
    tmp_path.chmod(0o2770)
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
    kept = tmp_path / "kept"
    kept.mkdir()
    kept.chmod(0o2770)
    done = replog("backup", tmp_path / "log", kept / "new", "--permissions", "group")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(" --permissions group\n")
    made = {path: path.stat().st_mode & 0o7777 for path in (kept / "new", *(kept / "new").rglob("*"))}
    assert {path.name: oct(mode) for path, mode in made.items() if mode != (0o2770 if path.is_dir() else 0o660)} == {}


@pytest.mark.parametrize("command", ["append", "import"])
def test_partition(replog: Replog, tmp_path: Path, command: str) -> None:
    """``--partition`` names one of several; without it the command says so. Rows of a cluster's topic go there
    unless they name another."""
    rows = tmp_path / "rows.ndjson"
    rows.write_bytes(b'{"value":"a"}\n')
    for number in (0, 1):
        assert (
            replog(command, tmp_path / "log", rows, "--partition", number).out
            == f"appended 1 record: log-{number} offsets 0 to 0\n"
        )
    refused = replog(command, tmp_path / "log", rows)
    assert (refused.code, refused.out) == (1, "")
    assert "has 2 partitions (0, 1), and a log is one of them: name it with --partition N\n" in refused.err
    with pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster:
        cluster.admin.create_topic("orders", partitions=4)
    assert (
        replog(command, tmp_path / "data", rows, "--partition", 3).out == "appended 1 record: orders-3 offsets 0 to 0\n"
    )
