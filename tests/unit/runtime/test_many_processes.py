"""One process writes with many threads, others read beside it without a lock: they see what counts, all of it, and
nothing else."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from tests.unit.runtime.recovery_listener import LAST

READERS = 4
THREADS = 16
ROOT = Path(__file__).parents[3]


def start_reader(folder: Path, out: Path) -> subprocess.Popen[str]:
    """One that has begun to follow."""
    command = [sys.executable, "-m", "tests.unit.runtime.recovery_listener", str(folder), str(out)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ask(process: subprocess.Popen[str], offset: int) -> str:
    """What it says about an offset."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{offset}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("deleting", [False, True], ids=["kept", "deleted"])
def test_readers_beside_a_writer(tmp_path: Path, durability: Any, deleting: bool) -> None:
    """Sixteen threads append in every way, over many segments, and old records are deleted; four processes follow.
    Each sees every record once, in the order of the log, with the value the writer was told that offset for; a
    record whose append has returned is seen by whoever looks afterwards; under ``sync`` nothing is seen that is not
    on the disk; the watermark never goes back."""
    folder = tmp_path / "log"
    told: dict[int, str] = {}
    stop = threading.Event()
    with pyreplog.open_log(
        folder, durability=durability, config={"segment.bytes": 20_000, "file.delete.delay.ms": 0}
    ) as log:
        told[log.append(b"first")] = "first"
        outs = [tmp_path / f"seen-{number}" for number in range(READERS)]
        readers = [start_reader(folder, out) for out in outs]
        asked = 0

        def work(number: int) -> None:
            nonlocal asked
            for turn in range(60):
                values = [f"{number}/{turn}/{index}/" + "x" * (turn * 7 % 90) for index in range(turn % 4 + 1)]
                encoded = [value.encode() for value in values]
                way = (turn + number) % 4
                if way == 0:
                    offsets = [log.append(value) for value in encoded]
                elif way == 1:
                    offsets = list(log.append_many(encoded))
                elif way == 2:
                    offsets = [place.offset for place in log.append_many(encoded, wait=False).result(60)]
                else:
                    offsets = [ack.result(60).offset for ack in [log.append_nowait(value) for value in encoded]]
                told.update(zip(offsets, values, strict=True))
                if number < READERS and turn % 5 == 0:
                    assert ask(readers[number], offsets[-1]) == "seen"
                    asked += 1

        def delete() -> None:
            while not stop.wait(0.02):
                log.delete_records(max(log.high_watermark - 200, 0))

        errors: list[BaseException] = []

        def guarded(number: int) -> None:
            try:
                work(number)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
        deleter = threading.Thread(target=delete)
        for thread in [*threads, *([deleter] if deleting else [])]:
            thread.start()
        for thread in threads:
            thread.join(100)
        stop.set()
        if deleting:
            deleter.join()
        assert not errors
        told[log.append(LAST)] = LAST.decode()
        end = log.end_offset
        segments = log.stats().segment_count
        first_left = log.start_offset
    deadline = time.monotonic() + 60
    for reader in readers:
        assert reader.wait(max(deadline - time.monotonic(), 1)) == 0
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.close()
        reader.stdout.close()
    assert sorted(told) == list(range(end))
    assert asked == READERS * 12
    assert first_left > 0 if deleting else segments > 2
    for out in outs:
        seen: dict[int, str] = {}
        position = 0
        for line in out.read_text().splitlines():
            if line.startswith("gap "):
                _, start, stop_at = line.split()
                assert deleting
                assert int(start) == position < int(stop_at)
                position = int(stop_at)
                continue
            offset, value = line.split(" ", 1)
            assert int(offset) == position, "dense, in order, none twice"
            seen[position] = value
            position += 1
        assert position == end
        assert seen == {offset: told[offset] for offset in seen}
        assert deleting or len(seen) == end
