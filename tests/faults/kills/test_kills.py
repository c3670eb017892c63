"""A process killed at an I/O call on real files: what it promised is there, and nothing else. A share of the calls;
all in the soak."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.house.sources import ROOT

SEED = os.environ.get("REPLOG_CRASH_SEED", "0")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The loop in a process of its own, which has no threads and may fork."""
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.kills.run", "--seed", SEED, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_share_of_the_calls() -> None:
    """Every sixtieth call, some of them a second time in the recovery: nothing lost, nothing wrong."""
    done = run("--share", "60")
    assert done.returncode == 0, done.stderr
    assert "lost 0, wrong 0" in done.stdout


def test_a_promise_made_too_early_is_noticed() -> None:
    """The loop is not blind: a child that promises before it appends is caught."""
    done = run("--share", "20", "--planted")
    assert done.returncode != 0
    assert "was promised" in done.stderr


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_call() -> None:
    """All of them."""
    done = run()
    print(done.stdout)
    assert done.returncode == 0, done.stderr
