"""What a table costs: made from a million keys, opened again, and looked up in."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from random import Random
from typing import Any, Final

import pyreplog

KEY_COUNT: Final = int(os.environ.get("BENCH_TABLE_KEYS", "1000000"))
VALUE_SIZE: Final = 100
LOOK_UPS: Final = 50_000
REOPEN_REACH_MS: Final = 50.0
GET_REACH_US: Final = 5.0


def test_table(tmp_path: Path, benchmark: Any) -> None:
    """`table()` of a million keys is made, opened again, and looked up in; medians of nine rounds of opening, and of
    single look-ups."""
    chance = Random(7)
    keys = [b"%016x" % chance.getrandbits(64) for _ in range(KEY_COUNT)]
    reopened: list[float] = []
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        for first in range(0, KEY_COUNT, 10_000):
            part = keys[first : first + 10_000]
            log.append_many([chance.randbytes(VALUE_SIZE) for _ in part], keys=part)
        began = time.perf_counter()
        log.table().close()
        made = time.perf_counter() - began

        def subject() -> None:
            began = time.perf_counter()
            table = log.table()
            reopened.append(time.perf_counter() - began)
            assert len(table) == KEY_COUNT
            table.close()

        benchmark.pedantic(subject, rounds=9, warmup_rounds=1)
        table = log.table()
        looked: list[float] = []
        for key in chance.choices(keys, k=LOOK_UPS):
            began = time.perf_counter()
            table[key]
            looked.append(time.perf_counter() - began)
    reopen_ms, get_us = statistics.median(reopened) * 1e3, statistics.median(looked) * 1e6
    benchmark.extra_info["figures"] = [
        {
            "what": f"table() of {KEY_COUNT:,} keys, made",
            "measured": f"{made:.1f} s",
            "peer": "",
            "ratio": None,
            "reach": None,
        },
        {
            "what": f"table() of {KEY_COUNT:,} keys, opened again, ms",
            "measured": f"{reopen_ms:.2f} ms",
            "peer": "",
            "ratio": round(reopen_ms, 2),
            "reach": REOPEN_REACH_MS,
            "better": "lower",
        },
        {
            "what": "one look-up in it, p50, us",
            "measured": f"{get_us:.2f} us",
            "peer": "",
            "ratio": round(get_us, 2),
            "reach": GET_REACH_US,
            "better": "lower",
        },
    ]
