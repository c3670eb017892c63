"""Real power cuts on real file systems, where the machine lets us: what was acknowledged is there, and nothing
else. All in the soak (``make soak-power``)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.power.rig import KINDS
from tests.house.sources import ROOT


def run(*words: str, loop: str = "tests.faults.power.run") -> subprocess.CompletedProcess[str]:
    """The loop in a process of its own, which has no threads and may fork. Skips where there is no such rig."""
    done = subprocess.run([sys.executable, "-m", loop, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if "SKIPPED FAULT RIG" in done.stdout:
        pytest.skip(done.stdout.strip())
    return done


def test_a_few_cuts() -> None:
    """Some calls of each durability: nothing lost, nothing wrong."""
    done = run("--share", "300", "--kinds", "ext4")
    assert done.returncode == 0, done.stderr
    assert "lost 0, wrong 0" in done.stdout


def test_a_sync_left_out_is_noticed() -> None:
    """The loop is not blind: a log whose files are not synced loses what it acknowledged."""
    done = run("--share", "40", "--kinds", "ext4", "--planted")
    assert done.returncode != 0
    assert "was promised" in done.stderr or "are damaged" in done.stderr, done.stderr


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
def test_every_call(kind: str) -> None:
    """All of them."""
    done = run("--kinds", kind)
    print(done.stdout)
    assert done.returncode == 0, done.stderr


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_states_of_recorded_blocks(kind: str) -> None:
    """What power loss may leave of the blocks that a life wrote, whichever of them reached the disk since the last
    flush."""
    done = run("--kinds", kind, loop="tests.faults.power.blocks_run")
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "250 states" in done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_recorded_blocks_show_a_sync_left_out(kind: str) -> None:
    """That loop is not blind either."""
    done = run("--states", "100", "--kinds", kind, "--planted", loop="tests.faults.power.blocks_run")
    assert done.returncode != 0
    assert "was promised" in done.stderr or "are damaged" in done.stderr, done.stderr
