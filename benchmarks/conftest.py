"""Benchmarks end with a table of figures: the work, the measured speed, the peer, the ratio, the aim, and whether
it was reached.

A benchmark reports by ``benchmark.extra_info``: either the keys of :class:`Figure` one by one (``what``,
``measured``, ``peer``, ``ratio``, ``reach``), or a list of such mappings under ``figures``. ``duel`` does it for
the usual case: a subject and its peers doing the same work in turns, so that a noisy machine disturbs both alike.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

BENCH_ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))


def nothing() -> None:
    """What most peers need before and after a round."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another program that does the same work. ``run`` is one round; ``reach`` is the aim for subject speed / peer
    speed (None: no aim).

    ``prepare`` and ``finish`` surround every round and are not timed. ``is_limit``: a bare system call that does
    only the necessary work; its ratio to the other peers is about the highest possible one.
    """

    name: str
    run: Callable[[], object]
    reach: float | None = None
    prepare: Callable[[], object] = nothing
    finish: Callable[[], object] = nothing
    is_limit: bool = False


class Duel(Protocol):
    """See :func:`duel`."""

    def __call__(
        self,
        what: str,
        subject: Callable[[], object],
        peers: Sequence[Peer],
        *,
        count: int,
        unit: str = "records",
        rounds: int = BENCH_ROUNDS,
        prepare: Callable[[], object] = nothing,
        finish: Callable[[], object] = nothing,
    ) -> None:
        """``count`` is the number of ``unit`` in one round of the subject and of each peer; ``prepare`` and
        ``finish`` are those of a :class:`Peer`."""


@pytest.fixture
def duel(benchmark: Any) -> Duel:
    """Runs peers and subject in turns, ``rounds`` times after a warm-up, and reports the ratios of their median
    speeds."""

    def run(
        what: str,
        subject: Callable[[], object],
        peers: Sequence[Peer],
        *,
        count: int,
        unit: str = "records",
        rounds: int = BENCH_ROUNDS,
        prepare: Callable[[], object] = nothing,
        finish: Callable[[], object] = nothing,
    ) -> None:
        took: dict[str, list[float]] = {peer.name: [] for peer in peers}

        def run_peers() -> None:
            for peer in peers:
                peer.prepare()
                gc.collect()
                started = time.perf_counter()
                peer.run()
                took[peer.name].append(time.perf_counter() - started)
                peer.finish()
            prepare()
            gc.collect()

        benchmark.pedantic(subject, setup=run_peers, teardown=finish, rounds=rounds, iterations=1, warmup_rounds=1)
        if benchmark.stats is None:  # --benchmark-disable: run once, for correctness only
            return
        own = benchmark.stats.stats.median
        limit = next((statistics.median(took[peer.name][1:]) for peer in peers if peer.is_limit), None)
        benchmark.extra_info["figures"] = [
            {
                "what": what,
                "measured": f"{speed(count / own)} {unit}/s",
                "peer": f"{peer.name}: {speed(count / statistics.median(took[peer.name][1:]))} {unit}/s",
                "ratio": round(statistics.median(took[peer.name][1:]) / own, 3),
                "best_ratio": round(min(took[peer.name][1:]) / benchmark.stats.stats.min, 3),
                "limit": None
                if limit is None or peer.is_limit
                else round(statistics.median(took[peer.name][1:]) / limit, 3),
                "reach": peer.reach,
            }
            for peer in peers
        ]

    return run


def speed(number: float) -> str:
    """Three digits and a unit: ``1.23 M``."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def figures(extra: dict[str, Any]) -> list[dict[str, Any]]:
    """What one benchmark reported."""
    if "figures" in extra:
        return list(extra["figures"])
    return [dict(extra)] if "what" in extra else []


def verdict(figure: dict[str, Any]) -> str:
    """Return whether the figure reaches its aim; ``better: "lower"`` reverses the comparison."""
    ratio, reach = figure.get("ratio"), figure.get("reach")
    if not isinstance(ratio, int | float) or not isinstance(reach, int | float):
        return ""
    return "yes" if (ratio <= reach if figure.get("better") == "lower" else ratio >= reach) else "NO"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table."""
    session = getattr(config, "_benchmarksession", None)
    rows = [figure for bench in getattr(session, "benchmarks", ()) for figure in figures(bench.extra_info)]
    if not rows:
        return
    terminalreporter.section(f"figures on {machine()}")
    head = ("what", "measured", "peer", "ratio", "limit", "reach", "met")
    table = [head]
    for row in rows:
        sign = "<=" if row.get("better") == "lower" else ">="
        reach = "" if row.get("reach") is None else f"{sign} {row['reach']}"
        ratio = row.get("ratio")
        table.append(
            (
                str(row["what"]),
                str(row.get("measured", "")),
                str(row.get("peer", "")),
                f"{ratio:.2f}" if isinstance(ratio, float) else str(ratio or ""),
                "" if row.get("limit") is None else f"{row['limit']:.2f}",
                reach,
                verdict(row),
            )
        )
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]
    for line in table:
        terminalreporter.write_line(
            "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        )


def machine() -> str:
    """Processor, cores, system and Python: a number means nothing without them."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"{name}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )
