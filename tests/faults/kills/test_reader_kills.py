"""Whole clusters with a named reader killed again and again: each record is handled at least once; exactly once if the
program keeps the offset with its result (F68)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.seed import SEED, tell

KILLS = 5


def run(folder: Path, seed: int, kills: int, program: str) -> subprocess.CompletedProcess[str]:
    """The loop in a process of its own, which has no threads and may fork."""
    tell()
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.kills.reader_lives", str(folder), str(seed), str(kills), program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("program", ["least", "once"])
def test_clusters_are_killed_under_a_reader(tmp_path: Path, program: str) -> None:
    """Between handler and commit, within the commit, behind it, and at any call of the disk of any node."""
    done = run(tmp_path, SEED % 10_000, KILLS, program)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= KILLS // 2, done.stdout


def test_a_commit_before_the_handler_is_noticed(tmp_path: Path) -> None:
    """The loop is not blind: a program that commits first passes a record."""
    done = run(tmp_path, SEED % 10_000, 3, "early")
    assert done.returncode != 0
    assert "and the last one was" in done.stderr


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("program", ["least", "once"])
@pytest.mark.parametrize("number", range(20))
def test_many_kills(tmp_path: Path, number: int, program: str) -> None:
    """The same until all is read, for many seeds."""
    done = run(tmp_path, SEED % 10_000 + number, 1000, program)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
