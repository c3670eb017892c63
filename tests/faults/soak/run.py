"""``make soak MINUTES=n``: crash points, kills, flips, fuzzing and simulated clusters side by side for n minutes,
and what they counted.

Each part is a process of its own that keeps its share of the time. The counts are printed and appended to
``docs/soak.csv`` with the commit; where anything is lost, wrong or crashes, nothing is appended, the output says
what replays it, and the exit code is 1. Parsers are fuzzed on a build with AddressSanitizer and UBSan where the
compiler has them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]
ACCOUNT: Final = ROOT / "docs" / "soak.csv"
COLUMNS: Final = (
    "date",
    "commit",
    "minutes",
    "crash_states",
    "compound_states",
    "refused_calls",
    "kills",
    "flips",
    "cuts",
    "fuzz_executions",
    "sanitizer",
    "sim_seeds",
    "sim_events",
    "lost",
    "wrong",
    "sim_faults",
    "states",
    "found",
    "crash_points",
    "refusals",
    "recoveries",
    "recovery_refusals",
    "whole",
    "quorum_seeds",
    "quorum_events",
)
COUNTED: Final = {
    "crash_points": "crash points",
    "crash_states": "crash states",
    "compound_states": "of them crashed again in recovery",
    "refusals": "refusals of a call",
    "refused_calls": "refused calls",
    "recoveries": "recoveries with every call refused",
    "recovery_refusals": "refusals in them",
    "kills": "processes killed at an I/O call",
    "flips": "flipped bits",
    "cuts": "files cut short",
    "fuzz_executions": "executions of parsers",
    "sim_seeds": "simulated clusters",
    "sim_events": "events in them",
    "sim_faults": "faults in them",
    "quorum_seeds": "simulated metadata quorums alone",
    "quorum_events": "events of theirs",
    "states": "states explored",
    "found": "known-bad rules found by walking",
}
RESULTS: Final = ROOT / "docs/internals/soak-results.md"
BEGIN: Final = "<!-- soak -->"
END: Final = "<!-- /soak -->"
SANITIZED: Final = ROOT / "build" / "soak"
SIM_SEEDS: Final = 25


class Failed(Exception):
    """A part found something; the text is its output."""


def run(words: list[str], environment: dict[str, str] | None = None) -> str:
    """The output of a Python module, in the repository."""
    command = [sys.executable, "-m", *words]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def number(pattern: str, text: str) -> int:
    """The number that ``pattern`` finds, written with commas."""
    found = re.search(pattern, text)
    if found is None:
        raise Failed(f"no {pattern!r} in {text[-500:]!r}")
    return int(found[1].replace(",", ""))


class Part(NamedTuple):
    """What a part counted; ``whole``: of which of it how many there are, where it has an end."""

    counts: dict[str, int]
    whole: dict[str, int]


def crashes(seconds: float, seed: int) -> Part:
    """Crash points, refused calls and refused recoveries of every workload."""
    counts = json.loads(run(["tests.faults.soak.crashes", str(seconds), str(seed)]))
    return Part({name: count for name, count in counts.items() if name != "whole"}, counts["whole"])


def kills(seconds: float, seed: int) -> Part:
    """Processes killed at their I/O calls on real files."""
    text = run(["tests.faults.kills.run", "--seconds", str(seconds), "--seed", str(seed)])
    return Part({"kills": number(r"kills: ([\d,]+) of", text)}, {"kills": number(r"of ([\d,]+) calls", text)})


def flips(seconds: float, seed: int) -> Part:
    """Bits flipped and files cut short."""
    counts = json.loads(run(["tests.faults.soak.flips", str(seconds), str(seed)]))
    return Part({name: counts[name] for name in ("flips", "cuts", "wrong")}, counts["whole"])


def fuzzing(seconds: float, seed: int, executions: int) -> Part:
    """Mutated input for every parser."""
    words = ["tests.faults.fuzz.run", "--count", str(executions), "--seed", str(seed), "--seconds", str(seconds)]
    return Part(
        {"fuzz_executions": number(r"fuzz: ([\d,]+) executions", run(words, sanitized()))},
        {"fuzz_executions": executions},
    )


def simulation(seconds: float, seed: int) -> Part:
    """Simulated clusters under random faults, seed after seed; every third time with compacted topics alone."""
    until = time.monotonic() + seconds
    counts = {"sim_seeds": 0, "sim_events": 0, "sim_faults": 0}
    first = 1_000_000 + seed * 10_007
    while time.monotonic() < until:
        kind = ["--compacted"] if counts["sim_seeds"] // SIM_SEEDS % 3 == seed % 3 else []
        text = run(["pyreplog.testing", "--seed", str(first), "--count", str(SIM_SEEDS), "--no-shrink", *kind])
        counts["sim_seeds"] += SIM_SEEDS
        counts["sim_events"] += number(r"seeds, ([\d,]+) events", text)
        counts["sim_faults"] += number(r"([\d,]+) faults and", text) + number(r"faults and ([\d,]+) of messages", text)
        first += SIM_SEEDS
    return Part(counts, {})


def quorum(seconds: float, seed: int) -> Part:
    """Simulated metadata quorums without brokers, seed after seed."""
    until = time.monotonic() + seconds
    counts = {"quorum_seeds": 0, "quorum_events": 0}
    first = 1_000_000 + seed * 10_007
    while time.monotonic() < until:
        text = run(["pyreplog.testing", "--quorum", "--seed", str(first), "--count", str(SIM_SEEDS)])
        counts["quorum_seeds"] += SIM_SEEDS
        counts["quorum_events"] += number(r"seeds, ([\d,]+) events", text)
        first += SIM_SEEDS
    return Part(counts, {})


def exploration(seconds: float, seed: int) -> Part:
    """States of three replicas, every order of what may happen."""
    counts: dict[str, int] = json.loads(run(["tests.faults.soak.states", str(seconds), str(seed)]))
    return Part({"states": counts["states"]}, {})


def museum(seconds: float, seed: int) -> Part:
    """Known-bad rules, looked for by random walks."""
    counts: dict[str, int] = json.loads(run(["tests.faults.soak.known_bad", str(seconds), str(seed)]))
    return Part({"found": counts["found"]}, {})


def sanitized() -> dict[str, str]:
    """The environment in which the sanitized build is used; empty where there is none."""
    if not any((SANITIZED / "lib").glob("pyreplog/_core/*.so")):
        return {}
    compiler = os.environ.get("CC", "cc")
    names = []
    for name in ("libasan.so", "libubsan.so"):
        found = subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False
        ).stdout.strip()
        if not os.path.isabs(found):
            return {}
        names.append(found)
    return {
        "LD_PRELOAD": ":".join(names),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "PYTHONPATH": str(SANITIZED / "lib"),
    }


def build_sanitized() -> None:
    """Build the core with ASan and UBSan into ``build/soak``; where that cannot be, say so."""
    words = [
        "--quiet",
        "build",
        "--build-base",
        str(SANITIZED),
        "--build-lib",
        f"{SANITIZED}/lib",
        "--build-temp",
        f"{SANITIZED}/temp",
    ]
    environment = {**os.environ, "SANITIZE": "1", "BUILD_DIR": f"{SANITIZED}/cython"}
    done = subprocess.run(
        [sys.executable, "setup.py", *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"no sanitized build, so parsers are fuzzed on the ordinary one: {done.stderr[-300:]}", flush=True)


def commit() -> str:
    """The short name of the commit; with a plus sign where the tree is not as it was committed."""
    name = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    words = ["git", "status", "--porcelain", "--", "src", "tests", "setup.py", "pyproject.toml"]
    changed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return f"{name or 'unknown'}{'+' if changed else ''}"


def wholes(text: str) -> dict[str, int]:
    """What the account's last column says: how many there are, of what has an end."""
    return {name: int(count) for name, _, count in (word.partition("=") for word in text.split())}


def reached(count: int, whole: int | None) -> str:
    """How many it was, and of how many."""
    if whole is None:
        return f"{count:,}"
    return f"{count:,} of {whole:,}" if count < whole else f"{count:,} (all {whole:,})"


def completeness(row: dict[str, str]) -> int:
    """Of how many parts with an end a run reached it."""
    return sum(int(row[name] or 0) >= count for name, count in wholes(row["whole"] or "").items())


def quoted(account: str) -> str:
    """The table of the page: of the last run, of the fullest (the latest that reached the end of most parts), and
    of all together."""
    rows = list(csv.DictReader(account.splitlines()))
    last, fullest = rows[-1], max(reversed(rows), key=completeness)
    runs = [("last", last)] if fullest is last else [("last", last), ("fullest", fullest)]
    heads = [f"the {which} run: {row['minutes']} minutes, commit `{row['commit']}`" for which, row in runs]
    lines = [f"| | {' | '.join(heads)} | all {len(rows)} runs |", f"|---|{'---:|' * (len(runs) + 1)}"]
    for name, about in {**COUNTED, "lost": "**lost**", "wrong": "**wrong**"}.items():
        total = sum(int(row[name] or 0) for row in rows)  # what was not counted yet is empty
        of = [reached(int(row[name]), wholes(row["whole"] or "").get(name)) if row[name] else "" for _, row in runs]
        if total or name not in COUNTED:
            lines.append(f"| {about} | {' | '.join(of)} | {total:,} |")
    return "\n".join(lines)


def quote(account: str) -> None:
    """Put it between the two marks in the page."""
    text = RESULTS.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if begin and end:
        RESULTS.write_text(f"{head}{begin}\n{quoted(account)}\n{end}{tail}", encoding="utf-8")


def main() -> int:
    """Run all parts for the minutes asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="default: the clock's")
    parser.add_argument("--executions", type=int, default=5_000_000, help="stop fuzzing after so many")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    seed = int(time.time()) % 100_000 if arguments.seed is None else arguments.seed
    seconds = arguments.minutes * 60
    named = commit()
    print(f"soak of {named} for {arguments.minutes:g} minutes, seed {seed}", flush=True)
    build_sanitized()
    sanitizer = "ASan+UBSan" if sanitized() else "none"
    # Each job has half of the time's worth of work where there are two of them; shares of the
    # whole.
    whole = seconds * arguments.jobs
    parts = (
        ("crash points", lambda: crashes(whole * 0.25, seed)),
        ("fuzz", lambda: fuzzing(whole * 0.17, seed, arguments.executions)),
        ("flips", lambda: flips(whole * 0.12, seed)),
        ("kills", lambda: kills(whole * 0.12, seed)),
        ("simulation", lambda: simulation(whole * 0.18, seed)),
        ("quorum", lambda: quorum(whole * 0.04, seed)),
        ("exploration", lambda: exploration(whole * 0.07, seed)),
        ("museum", lambda: museum(whole * 0.05, seed)),
    )
    counts: dict[str, int] = {"lost": 0, "wrong": 0}
    there: dict[str, int] = {}
    failed = False
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for name, future in [(name, pool.submit(work)) for name, work in parts]:
            try:
                found = future.result()
            except Failed as failure:
                failed = True
                print(f"{name}: FAILED\n{failure}", flush=True)
                continue
            counts |= found.counts
            there |= found.whole
            print(
                f"{name}:"
                f" {', '.join(f'{what} {reached(count, there.get(what))}' for what, count in found.counts.items())}",
                flush=True,
            )
    if failed:
        print("nothing is appended to the account: mend what is above first")
        return 1
    if commit() != named:
        named = f"{named.rstrip('+')}+"  # the tree was changed meanwhile: who knows what was run
    row = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": named,
        "minutes": f"{arguments.minutes:g}",
        "sanitizer": sanitizer,
        **counts,
        "whole": " ".join(f"{what}={count}" for what, count in there.items()),
    }
    new = not ACCOUNT.exists()
    with open(ACCOUNT, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
    quote(ACCOUNT.read_text(encoding="utf-8"))
    print(f"lost 0, wrong 0; appended to {ACCOUNT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
