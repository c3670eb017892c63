"""The account of the soaks, and what the page quotes of it; the parts' loops for a moment."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import pytest

from tests.faults.soak.run import ACCOUNT, BEGIN, COLUMNS, END, RESULTS, ROOT, quoted, reached, wholes


def test_the_page_quotes_the_account() -> None:
    """The text between the marks is that of the last row, and no row has lost anything."""
    account = ACCOUNT.read_text(encoding="utf-8")
    text = RESULTS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert text == quoted(account)
    rows = list(csv.DictReader(account.splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert all((row["lost"], row["wrong"]) == ("0", "0") for row in rows)


def test_the_page_about_soaks_names_the_wholes_of_the_last_run() -> None:
    """How much there is of each part with an end; and it quotes no large number that the account does not hold."""
    last = list(csv.DictReader(ACCOUNT.read_text(encoding="utf-8").splitlines()))[-1]
    known = {f"{count:,}" for count in wholes(last["whole"]).values()}
    assert (
        set(re.findall(r"\d{1,3}(?:,\d{3})+", (ROOT / "docs/internals/soak.md").read_text(encoding="utf-8"))) == known
    )


@pytest.mark.parametrize("part", ["tests.faults.soak.crashes", "tests.faults.soak.flips", "tests.faults.soak.states"])
def test_a_part_keeps_its_time_and_counts(part: str) -> None:
    """Each part stops by itself and prints what it did."""
    done = subprocess.run(
        [sys.executable, "-m", part, "0.3", "7"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    whole = counts.pop("whole", {})
    assert sum(counts.values()) > 0
    assert all(counts[name] <= whole[name] for name in whole)
    assert counts.get("wrong", 0) == 0


def account_of(*runs: dict[str, str]) -> str:
    """An account of ``runs``, each of one minute."""
    rows = [dict.fromkeys(COLUMNS, "") | {"minutes": "1", "lost": "0", "wrong": "0"} | run for run in runs]
    return "".join(f"{','.join(row)}\n" for row in (COLUMNS, *(row.values() for row in rows)))


def test_an_account_says_how_much_of_the_whole_was_reached() -> None:
    """Where there is an end to it."""
    run = {
        "commit": "abc",
        "crash_points": "312",
        "flips": "5000",
        "sim_seeds": "25",
        "whole": "crash_points=3871 flips=5000",
    }
    told = quoted(account_of(run))
    assert "commit `abc` | all 1 runs |" in told
    assert "| crash points | 312 of 3,871 | 312 |" in told
    assert "| flipped bits | 5,000 (all 5,000) | 5,000 |" in told
    assert "| simulated clusters | 25 | 25 |" in told
    assert "| **lost** | 0 | 0 |" in told
    assert [reached(7, None), reached(1000, 5000), reached(5001, 5000)] == ["7", "1,000 of 5,000", "5,001 (all 5,000)"]


def test_the_fullest_run_is_told_where_it_is_not_the_last() -> None:
    """The latest of those that reached the end of most parts; once, where that is the last one."""
    short = {"crash_points": "3", "flips": "9", "whole": "crash_points=9 flips=9"}
    full = {"crash_points": "9", "flips": "9", "whole": "crash_points=9 flips=9"}
    told = quoted(account_of(full | {"commit": "one"}, full | {"commit": "two"}, short | {"commit": "three"}))
    assert (
        "| | the last run: 1 minutes, commit `three` | the fullest run: 1 minutes, commit `two` | all 3 runs |" in told
    )
    assert "| crash points | 3 of 9 | 9 (all 9) | 21 |" in told
    assert "fullest" not in quoted(account_of(short | {"commit": "one"}, full | {"commit": "two"}))
