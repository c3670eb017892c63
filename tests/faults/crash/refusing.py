"""A fault during the recovery from a fault: power is lost, and then the disk refuses a call to whoever opens what
is left.

``crash_points`` crashes recoveries again, and ``error_points`` refuses the calls of a workload that begins with
nothing; this is what is left between them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from pyreplog.errors import PyreplogError
from pyreplog.testing.crash import CrashFailure
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.faults import MUTATING, Call

ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EINTR)
PARTIAL_MAX: Final = 600


@dataclass(slots=True)
class RecoveryReport:
    """What was tried."""

    recoveries: int = 0
    """Crash points whose recovery was refused each of its calls."""
    refusals: int = 0
    states: int = 0
    """That were left, and held to what was promised."""


def refused_recoveries(
    life: Callable[[SimDisk, list[Any]], None],
    recover: Callable[[SimDisk, Random], None],
    check: Callable[[SimDisk, Sequence[Any]], None],
    *,
    seed: int,
    every: int = 1,
    first: int = 1,
    known: set[bytes] | None = None,
    replay: str = "",
) -> RecoveryReport:
    """Lose power before each call of ``life`` that changes something, refuse each call of ``recover`` once or for
    ever, with an error that the seed draws, and ``check`` what that leaves: as after a kill, and after one more
    loss of power.

    ``recover`` may end with any :class:`PyreplogError`, and only with one. ``every``, ``first``, ``known``,
    ``replay``: as those of ``crash_points``. Raises :class:`CrashFailure` at the first that fails.
    """
    report = RecoveryReport()
    seen = set() if known is None else known
    facts: list[Any] = []

    def before(call: Call) -> None:
        if call.kind not in MUTATING or (call.number - first) % every:
            return
        machine.observer = None  # what is done to look at it is not part of the life
        try:
            chance = Random(f"{seed}:{call.number}")
            left = machine.crash(chance)
            _refuse_each(left, recover, check, tuple(facts), chance, report, seen)
        except Exception as caught:
            raise CrashFailure(
                f"seed {seed}, power lost before call {call}, then {caught}. Replay: {replay}"
            ) from caught
        finally:
            machine.observer = before

    machine = SimDisk(Random(seed))
    machine.observer = before
    life(machine, facts)
    return report


def _refuse_each(
    left: SimDisk,
    recover: Callable[[SimDisk, Random], None],
    check: Callable[[SimDisk, Sequence[Any]], None],
    facts: Sequence[Any],
    chance: Random,
    report: RecoveryReport,
    seen: set[bytes],
) -> None:
    way = chance.random()  # every attempt goes the same way, up to the call that is refused
    probe = left.snapshot()
    begun = probe.calls
    recover(probe, Random(way))
    report.recoveries += 1
    for nth in range(1, probe.calls - begun + 1):
        disk = left.snapshot()
        error, times = chance.choice(ERRORS), chance.choice((1, None))
        disk.fail(nth=nth, error=error, times=times, partial=chance.randrange(PARTIAL_MAX))
        what = f"call {nth} of the recovery failing with {errno.errorcode[error]}{'' if times else ' for ever'}"
        try:
            recover(disk, Random(way))
        except PyreplogError:
            pass
        except Exception as caught:
            raise AssertionError(f"{what}: {caught!r}") from caught
        disk.clear_faults()
        report.refusals += 1
        for after in (disk.snapshot(), disk.crash(chance)):
            report.states += 1
            state = after.fingerprint() + len(facts).to_bytes(8)
            if state in seen:
                continue
            seen.add(state)
            try:
                check(after, facts)
            except Exception as caught:
                raise AssertionError(f"{what}: {caught!r}") from caught
