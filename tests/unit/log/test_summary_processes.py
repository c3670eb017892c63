"""Rot of the summary's store, and kills of who writes it, each met by a process of its own: LMDB maps the file, and
may end a process with a signal where it is not what it was. None may, for the file is checked before it is
mapped."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.seed import SEED, tell

PROGRAM = """
import os, shutil, signal, sys
from random import Random
from pyreplog.log import summary
from pyreplog.log.layout import SUMMARIES_NAME
from pyreplog.system import SystemDisk
from tests.faults.kills.killing import KillingDisk
from tests.unit.log.conftest import Place
from tests.unit.log.test_summary import check, fill, open_root

folder, rounds, seed, planted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "planted"
chance = Random(seed)
def child(work):
    # What a fork ends with: 0, a signal as -number, or 1 for an error.
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(repr(error)[:300], file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def look(path):
    place = Place(SystemDisk(), path)
    root = open_root(place, 6)
    check(root)
    root.close(clean=False)

def close(path, at, halves):
    root = open_root(Place(KillingDisk(SystemDisk(), at, halves=halves), path), 7)
    check(root)
    root.close()

fill(Place(SystemDisk(), f"{folder}/whole"))
store = f"{folder}/whole/root/{SUMMARIES_NAME}"
content = open(store, "rb").read()
if planted:  # the store is mapped whatever it holds, and its entries are believed
    real, named = summary.crc32c, summary.crc32c(content)
    summary.crc32c = lambda data: named if len(data) == len(content) else real(data)
    summary.checked = lambda *_: True
counting = KillingDisk(SystemDisk(), 0)
shutil.copytree(f"{folder}/whole", f"{folder}/count")
root = open_root(Place(counting, f"{folder}/count"), 7)
check(root)
root.close()
flips = kills = signals = wrong = 0
for number in range(rounds):
    path = f"{folder}/{number}"
    shutil.copytree(f"{folder}/whole", path)
    if number % 3 < 2 or planted:
        changed = bytearray(content)
        for _ in range(chance.choice((1, 1, 8, 64))):
            changed[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        if number % 6 == 1 and not planted:
            del changed[chance.randrange(len(content)) :]
        open(f"{path}/root/{SUMMARIES_NAME}", "wb").write(changed)
        flips += 1
    else:
        end = child(lambda: close(path, 1 + chance.randrange(counting.calls), chance.random() < 0.5))
        kills += end == -signal.SIGKILL
        wrong += end not in (0, -signal.SIGKILL)
    end = child(lambda: look(path))
    signals += end < 0
    wrong += end > 0
    shutil.rmtree(path)
print(f"flips {flips} kills {kills} signals {signals} wrong {wrong}")
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory, where that is a folder: every round syncs a whole root."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


def run(folder: Path, rounds: int, planted: str = "", timeout_s: int = 120) -> dict[str, int]:
    """The counts of that many rounds."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(rounds), str(2848617 if planted else SEED), planted]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=timeout_s)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    print(done.stdout, done.stderr[-2000:])
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def test_no_rot_and_no_kill_ends_a_process(place: Path) -> None:
    """Flipped bits and cuts of the store, kills at any call of a clean stop: the next start has all, and no process
    dies of a signal."""
    tell()
    counts = run(place, 45)
    assert counts["flips"] == 30
    assert counts["kills"] > 3
    assert (counts["signals"], counts["wrong"]) == (0, 0)


def test_a_store_that_is_not_checked_is_noticed(place: Path) -> None:
    """With the check of its content left out, some flips end a process or are believed."""
    counts = run(place, 20, "planted")
    assert counts["signals"] + counts["wrong"] > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_rot_and_no_kill_ends_a_process_all(place: Path) -> None:
    """Many of them."""
    counts = run(place, 5000, timeout_s=3600)
    assert (counts["signals"], counts["wrong"]) == (0, 0)
