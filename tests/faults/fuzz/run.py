"""The loop: seeds, mutations, and what was worth keeping; every execution is repeatable from (target, seed,
number).

``python -m tests.faults.fuzz.run --count 100000 --seed 5`` runs all targets, each in a process of its own, so that a
crash is found and named; with ``--target NAME --in-process`` one of them here. A finding is printed with the input
that makes it, minimised; the input of a crash is kept in ``build/fuzz``, and ``--target NAME --input FILE`` runs it
again. What is mended stays as ``tests/faults/fuzz/regressions/NAME/WHAT.hex``: a seed, and a test.
"""

from __future__ import annotations

import argparse
import hashlib
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.faults.fuzz.mutate import SIZE_MAX, mutate
from tests.faults.fuzz.target import Target
from tests.faults.fuzz.targets import TARGETS

REGRESSIONS: Final = Path(__file__).parent / "regressions"
FOUND: Final = Path(__file__).parents[3] / "build" / "fuzz"
_POOL_MAX: Final = 400
_ROUND_MIN_S: Final = 20.0


class Finding(Exception):
    """An input that a target does not bear."""

    def __init__(self, target: Target, data: bytes, error: BaseException) -> None:
        self.data = data
        super().__init__(f"{target.name}: {type(error).__name__}: {error} with {data.hex()}")


def execute(target: Target, data: bytes) -> object:
    """One execution: a word on how it ended. Raises :class:`Finding`."""
    try:
        return target.run(data)
    except target.allowed as error:
        return f"{type(error).__name__} {str(error)[:24]}"
    except Exception as error:
        raise Finding(target, minimise(target, data, type(error)), error) from error


def minimise(target: Target, data: bytes, kind: type[BaseException]) -> bytes:
    """The shortest input found by cutting that still ends the same."""

    def same(candidate: bytes) -> bool:
        try:
            target.run(candidate)
        except target.allowed:
            return False
        except Exception as error:
            return type(error) is kind
        return False

    step = len(data) // 2
    while step:
        at = 0
        while at < len(data):
            shorter = data[:at] + data[at + step :]
            if same(shorter):
                data = shorter
            else:
                at += step
        step //= 2
    return data


def fuzz(target: Target, count: int, seed: int, trace: str | None = None, seconds: float = 0) -> int:
    """``count`` executions, or as many as fit into ``seconds``; how many they were.

    ``trace``: a file that holds the input of the moment, for who dies of it.
    """
    until = time.monotonic() + seconds
    chance = Random(f"{target.name} {seed}")
    pool = [*target.seeds(), *regressions(target)]
    seen = {repr(execute(target, data)) for data in pool}
    note = None if trace is None else _shared(trace)
    for number in range(count):
        if seconds and number % 512 == 511 and time.monotonic() > until:
            count = number
            break
        data = mutate(pool[int(chance.random() * len(pool))], pool, chance)
        if target.seal is not None:
            data = target.seal(data, chance)
        if note is not None:
            if len(note) < 4 + len(data):  # sealing makes some of them longer
                note.resize(4 + len(data))
            note[4 : 4 + len(data)] = data
            note[:4] = len(data).to_bytes(4, "big")
        word = repr(execute(target, data))
        if word not in seen and len(pool) < _POOL_MAX:
            seen.add(word)
            pool.append(data)
    if note is not None:
        note.close()
    return count


def _shared(path: str) -> mmap.mmap:
    """A file of memory that outlives a crash of this process."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(file, 4 + SIZE_MAX)
        return mmap.mmap(file, 4 + SIZE_MAX)
    finally:
        os.close(file)


def regressions(target: Target) -> list[bytes]:
    """Inputs that once were findings."""
    return [bytes.fromhex(path.read_text()) for path in sorted((REGRESSIONS / target.name).glob("*.hex"))]


def keep(target: Target, data: bytes, folder: Path = FOUND) -> str:
    """Write ``data`` into a file of its own; in words, where it is and how it is run again."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}.hex"
    file.write_text(data.hex())
    again = f"python -m tests.faults.fuzz.run --target {target.name} --input {file}"
    return f"the input is in {file}; again: {again}; mended, it belongs into {REGRESSIONS / target.name}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the targets; exit code 1 where one crashed or raised what it may not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", choices=[target.name for target in TARGETS])
    parser.add_argument("--count", type=int, default=100_000, help="executions of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time, with what was done by then")
    parser.add_argument("--in-process", action="store_true")
    parser.add_argument("--trace")
    parser.add_argument("--input", type=Path, help="run what this file holds, in hex, and nothing else")
    arguments = parser.parse_args(words)
    chosen = [target for target in TARGETS if arguments.target is None or target.name in arguments.target]
    if arguments.input is not None:
        for target in chosen:
            print(f"{target.name}: {execute(target, bytes.fromhex(arguments.input.read_text()))}")
        return 0
    if arguments.in_process:
        for target in chosen:
            print(
                f"{target.name}: {fuzz(target, arguments.count, arguments.seed, arguments.trace, arguments.seconds)}"
                " executions"
            )
        return 0
    return _all(chosen, arguments.count, arguments.seed, arguments.seconds)


def _all(chosen: list[Target], count: int, seed: int, seconds: float) -> int:
    """Each target by its share of the executions and of the time, and what time some leave over for the others;
    then one line."""
    left = portions(chosen, count)
    done = failed = number = 0
    started = time.monotonic()
    while chosen and not failed:
        shares = sum(target.share for target in chosen)
        rest = max(started + seconds - time.monotonic(), 0.0) if seconds else 0.0
        if seconds and rest < _ROUND_MIN_S and done:
            break
        for target in chosen:
            number += 1
            found = _process(target, left[target.name], seed * 1009 + number, rest * target.share / shares)
            left[target.name] -= found
            done += found
            failed += not found
        chosen = [target for target in chosen if left[target.name] > 0]
    print(f"fuzz: {done:,} executions of {len(left)} targets, {failed} crashes, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def portions(chosen: Sequence[Target], count: int) -> dict[str, int]:
    """How many of ``count`` executions each target is to have. Rounded up: together they are never fewer."""
    shares = sum(target.share for target in chosen)
    return {target.name: -(-count * target.share // shares) for target in chosen}


def _process(target: Target, count: int, seed: int, seconds: float) -> int:
    """One target in a process of its own; how many executions, 0 where it crashed or raised what it may not."""
    trace = f"/tmp/replog-fuzz-{os.getpid()}"
    words = [
        "--in-process",
        "--target",
        target.name,
        "--count",
        str(count),
        "--seed",
        str(seed),
        "--seconds",
        str(seconds),
        "--trace",
        trace,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.fuzz.run", *words], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        os.unlink(trace)
        return int(done.stdout.split()[1])
    print(f"{target.name}, seed {seed}, {count} executions: exit code {done.returncode}\n{done.stderr[-3000:]}")
    if os.path.exists(trace):
        data = Path(trace).read_bytes()
        print(keep(target, data[4 : 4 + int.from_bytes(data[:4], "big")]))
        os.unlink(trace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
