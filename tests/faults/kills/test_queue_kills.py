"""Processes that work on one queue are killed at random calls: each record is accepted once, or is a dead letter."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from tests.faults.kills.queue_workers import POISON_EVERY
from tests.house.sources import ROOT
from tests.seed import SEED, tell


def check(folder: Path, seed: int, count: int, durability: Any) -> None:
    with pyreplog.open_log(folder / "log", durability=durability) as log:
        log.append_many([b"%d" % number for number in range(count)])
    run = subprocess.run(
        [sys.executable, "-m", "tests.faults.kills.queue_workers", str(folder), str(seed)],
        capture_output=True, text=True, timeout=300, cwd=ROOT, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 3, "no worker was killed"
    notes: Counter[tuple[str, int]] = Counter()
    for path in folder.glob("notes-*"):
        notes.update((what, int(offset)) for what, offset in (line.split() for line in path.read_text().splitlines()))
    accepted = {offset for what, offset in notes if what == "accepted"}
    rejected = {offset for what, offset in notes if what == "rejected"}
    tried = {offset for what, offset in notes if what == "try"}
    with pyreplog.open_log(folder / "log", "r") as log, log.queue("work") as queue:
        while record := queue.receive(timeout=0):  # what the last ones left
            queue.accept(record)
            tried.add(record.offset)
        stats = queue.stats()
    with pyreplog.open_log(folder / "log.dlq", "r") as letters:
        dead = [int(letter.value or b"") for letter in letters.read()]
    assert all(times == 1 for (what, _), times in notes.items() if what in ("accepted", "rejected")), "twice"
    assert len(dead) == len(set(dead)), "a dead letter twice"
    assert not accepted & set(dead), "accepted, and a dead letter"
    assert rejected <= set(dead)
    assert set(range(0, count, POISON_EVERY)) <= set(dead)
    assert set(range(count)) - set(dead) <= tried, "neither accepted nor a dead letter"
    assert (stats.accepted + stats.dead_letters, stats.next_offset) == (count, count)
    assert (stats.acquired, stats.available, stats.dead_letters) == (0, 0, len(dead))


def test_four_processes_are_killed_at_random(tmp_path: Path) -> None:
    """An ``os`` log: its entries are in the page cache when a call returns, so a kill loses none."""
    tell()
    check(tmp_path, SEED % 10_000, 200, "os")


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["os", "sync"])
@pytest.mark.parametrize("number", range(20))
def test_many_records_and_kills(tmp_path: Path, number: int, durability: str) -> None:
    """The same for many seeds, longer, and for a ``sync`` log."""
    tell()
    check(tmp_path, SEED % 10_000 + number, 2000, durability)
