"""How long a new process takes until its first record is on the disk: import, open a new log, append, close."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.conftest import BENCH_ROUNDS

REACH_MS: Final = 60.0
FIRST_RECORD: Final = """
import sys
import pyreplog
log = pyreplog.open_log(sys.argv[1])
log.append(b"first")
print(flush=True)
log.close()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Use a tmpfs if there is one, because the figure is about the program, not the disk."""
    place = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    place = place / f"pyreplog-start-{os.getpid()}"
    place.mkdir(mode=0o700)
    yield place
    shutil.rmtree(place)


def until_first_line(code: str, *arguments: str) -> float:
    """Seconds from the start of a new interpreter to the first line that it prints."""
    started = time.perf_counter()
    # Byte code is kept, as it is of an installed package.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    process.stdout.readline()
    took = time.perf_counter() - started
    process.stdout.close()
    assert process.wait() == 0
    return took


def syncs(folder: Path) -> str:
    """Return the number of syncs until then; "?" if strace is not available."""
    strace = shutil.which("strace")
    log = folder / "trace"
    command = [str(strace), "-f", "-qq", "-o", str(log), "-e", "trace=fsync,fdatasync,sync_file_range,write"]
    if (
        strace is None
        or subprocess.run([*command, sys.executable, "-c", FIRST_RECORD, str(folder / "s")], check=False).returncode
    ):
        return "?"
    before = log.read_text().split('write(1, "\\n"')[0]
    return str(len(re.findall(r"\b(?:fsync|fdatasync)\(", before)))


def test_first_record(folder: Path, benchmark: Any) -> None:
    """Import, open and a first durable record, in a new process on tmpfs: at most 60 ms more than
    ``python -c pass`` takes."""
    number = iter(range(10**6))
    bare: list[float] = []
    first: list[float] = []  # the time that the benchmark records includes the end of the process

    def pair() -> None:
        bare.append(until_first_line("print(flush=True)"))

    def subject() -> None:
        first.append(until_first_line(FIRST_RECORD, str(folder / str(next(number)))))

    benchmark.pedantic(subject, setup=pair, rounds=2 * BENCH_ROUNDS, iterations=1, warmup_rounds=1)
    if benchmark.stats is None:
        return
    above = (statistics.median(first[1:]) - statistics.median(bare[1:])) * 1000
    benchmark.extra_info.update(
        what=f"import, open and first durable record ({syncs(folder)} syncs), ms above python -c pass",
        measured=f"{above:.1f} ms",
        peer=f"python -c pass: {statistics.median(bare[1:]) * 1000:.1f} ms",
        ratio=round(above, 1),
        reach=REACH_MS,
        better="lower",
    )
