"""Every workload of the crash layer by its name, with its check and how much there is of it; what ``make soak``
goes through.

Each can be done in parts: the calls whose number leaves the same rest. A failure names the line of Python that
replays its part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial, wraps
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from pyreplog.runtime.background import Background
from pyreplog.testing.crash import CrashReport, crash_points, error_points
from pyreplog.testing.disk import SimDisk
from tests.faults.crash import lives, test_lives, test_open_log, test_producers, workloads
from tests.faults.crash.refusing import RecoveryReport, refused_recoveries
from tests.unit.log.support import CLOCK

DAMAGES: Final = 80
"""Power losses at each call, beside the kills."""
THOROUGH: Final = 0.002
"""So many of all states are crashed again at every call of their recovery; of each call, one state is at one of
them."""
AGAIN: Final = 0.3
"""So many of the recovered logs live on, and lose power once more."""


class Workload(NamedTuple):
    """``check``: of what a crash left; ``check_refused``: of what refused calls left. ``recover``: open it, and
    close it or not."""

    life: Callable[[SimDisk, list[Any]], None]
    check: Callable[[SimDisk, Sequence[Any]], None]
    check_refused: Callable[[SimDisk, Sequence[Any]], None]
    recover: Callable[[SimDisk, Random], None]


def _one_thread(work: Callable[..., None]) -> Callable[..., None]:
    """``work`` without a background thread: the simulated disk has one."""

    @wraps(work)
    def alone(*arguments: Any, **options: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Background, "start", lambda _: None)
            work(*arguments, **options)

    return alone


def _recover_root(disk: SimDisk, chance: Random) -> None:
    root = lives.Crowd.open(disk, lives.ROOT, clock=CLOCK, random=Random(77), lazy=chance.random() < 0.5)
    try:
        for key in root.logs:
            root.logs.get(key)
    finally:
        root.close(clean=chance.random() < 0.5)


def _recover_open_log(disk: SimDisk, chance: Random, *, durability: test_open_log.Durability) -> None:
    # Said again: the crash may have left a folder without a log, which would be made with another.
    log = test_open_log.opened(disk, durability)
    if chance.random() < 0.5:
        log.close()
    else:
        test_open_log.left(log)


def _of_lives(life: lives.Workload) -> Workload:
    return Workload(life, test_lives.checking(life, AGAIN), test_lives.checking(life, 0.0), _recover_root)


def _of_root(life: Callable[[SimDisk, list[workloads.Fact]], None], durability: str) -> Workload:
    check = partial(workloads.check, durability=durability)
    return Workload(life, check, check, _recover_root)


def _of_open_log(durability: test_open_log.Durability) -> Workload:
    check = _one_thread(test_open_log.check)
    return Workload(
        partial(_one_thread(test_open_log.life), durability=durability),
        partial(check, durability=durability),
        partial(check, durability=durability, power_too=False),
        partial(_one_thread(_recover_open_log), durability=durability),
    )


WORKLOADS: Final[dict[str, Workload]] = {
    **{life.__name__: _of_lives(life) for life in lives.LIVES},
    "sync_appends": _of_root(workloads.sync_appends, "sync"),
    "os_follower": _of_root(workloads.os_follower, "os"),
    "clean_stops": _of_root(workloads.clean_stops, "sync"),
    "open_log_sync": _of_open_log("sync"),
    "open_log_os": _of_open_log("os"),
    "producers": Workload(test_producers.life, test_producers.check, test_producers.check, _recover_root),
}
REFUSALS: Final = 2 * len(test_lives.ERRORS)
"""Of each call: every error, once and for ever."""


@cache
def count_points(name: str) -> int:
    """At how many calls the workload can be crashed, its end among them."""
    return crash_points(WORKLOADS[name].life, lambda *_: None, seed=0, damages=0, kills=False).calls


@cache
def count_calls(name: str) -> int:
    """How many calls it makes."""
    disk = SimDisk()
    WORKLOADS[name].life(disk, [])
    return disk.calls


def crash(
    name: str, seed: int, part: int, parts: int, *, damages: int = DAMAGES, known: set[bytes] | None = None
) -> CrashReport:
    """A part of the crash points; the end of the workload goes with the first."""
    one = WORKLOADS[name]
    return crash_points(
        one.life,
        one.check,
        seed=seed,
        damages=damages,
        thorough=THOROUGH,
        every=parts,
        first=1 + part,
        end=part == 0,
        known=known,
        replay=_replay(f"crash({name!r}, {seed}, {part}, {parts}, damages={damages})"),
    )


def refuse(name: str, seed: int, part: int, parts: int) -> CrashReport:
    """A part of the calls, each refused in every way."""
    one = WORKLOADS[name]
    return error_points(
        one.life,
        one.check_refused,
        seed=seed,
        errors=test_lives.ERRORS,
        damages=1,
        every=parts,
        first=1 + part,
        replay=_replay(f"refuse({name!r}, {seed}, {part}, {parts})"),
    )


def refuse_recovery(name: str, seed: int, part: int, parts: int, *, known: set[bytes] | None = None) -> RecoveryReport:
    """A part of the crash points, and every call of the recovery refused after each."""
    one = WORKLOADS[name]
    return refused_recoveries(
        one.life,
        one.recover,
        one.check_refused,
        seed=seed,
        every=parts,
        first=1 + part,
        known=known,
        replay=_replay(f"refuse_recovery({name!r}, {seed}, {part}, {parts})"),
    )


def _replay(how: str) -> str:
    return f'.venv/bin/python -c "from tests.faults.crash.all_crash_points import *; {how}"'
