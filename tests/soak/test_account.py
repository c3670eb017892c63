"""The account of the soaks, and what the README quotes of it; the parts' loops for a moment."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

from tests.soak.run import ACCOUNT, BEGIN, COLUMNS, END, README, ROOT, quoted


def test_the_readme_quotes_the_account() -> None:
    """The text between the marks is that of the last row, and no row has lost anything."""
    account = ACCOUNT.read_text(encoding="utf-8")
    text = README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert text == quoted(account)
    rows = list(csv.DictReader(account.splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert all((row["lost"], row["wrong"]) == ("0", "0") for row in rows)


@pytest.mark.parametrize("part", ["tests.soak.crashes", "tests.soak.flips", "tests.soak.states"])
def test_a_part_keeps_its_time_and_counts(part: str) -> None:
    """Each part stops by itself and prints what it did."""
    done = subprocess.run([sys.executable, "-m", part, "0.3", "7"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert sum(counts.values()) > 0
    assert counts.get("wrong", 0) == 0
