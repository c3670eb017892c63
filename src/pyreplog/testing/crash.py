"""Every crash point of a workload: stop there, lose what was not synced, reopen, check.

``crash_points`` runs a workload once on a simulated disk. Before each call that changes something it takes the disk
as it would be found after power loss (several times, with damage drawn from the seed) and after a process kill
(with the call's write not, partly and wholly done), and gives it to the check together with what was acknowledged
by then. ``error_points`` runs the workload once for each call and errno, lets that call fail, and checks what is
left.

A workload appends to the list it is given each thing that was acknowledged, as soon as it was::

    def workload(disk, acknowledged):
        log = open_it(disk)
        for number in range(10):
            acknowledged.append(log.append(number))

    def check(disk, acknowledged):
        log = open_it(disk)  # must not fail
        assert list(log)[: len(acknowledged)] == acknowledged

Method: SQLite's crash and I/O error loops; "Files are hard" (Pillai et al., OSDI 2014) for what may survive.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from pyreplog.errors import PyreplogError
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.faults import MUTATING, Call

__all__ = ["CrashFailure", "CrashReport", "crash_points", "error_points"]

A = TypeVar("A")
Workload = Callable[[SimDisk, list[A]], None]
Check = Callable[[SimDisk, Sequence[A]], None]

ONLY_VARIABLE: Final = "REPLOG_CRASH_ONLY"
"""``<call>:<state>`` in this environment variable runs that state alone."""
ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE)
TRACE_MAX: Final = 20
_KILLED_AGAIN: Final = 0.25


class CrashFailure(AssertionError):
    """A state after which the check failed. The text has all that replays it; the check's own exception is the
    cause."""


@dataclass(slots=True)
class CrashReport:
    """What was tried. ``kinds`` counts the calls at which it crashed, by kind."""

    seed: int
    calls: int = 0
    states: int = 0
    compound: int = 0
    """States in which the recovery crashed too."""
    repeated: int = 0
    """States, of both kinds, that had been checked before, to the byte, and were not checked again."""
    errors: int = 0
    """Injected errors that struck."""
    kinds: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items()))
        return (
            f"seed {self.seed}: {self.calls} calls, {self.states} states"
            f"{f', {self.compound} of them crashed again while recovering' if self.compound else ''}"
            f"{f', {self.repeated} not checked again' if self.repeated else ''}"
            f"{f', {self.errors} errors injected' if self.errors else ''} ({kinds})"
        )


def crash_points(
    workload: Workload[A],
    check: Check[A],
    *,
    seed: int,
    damages: int = 8,
    kills: bool = True,
    compound: int = 1,
    thorough: float = 0.0,
    every: int = 1,
    first: int = 1,
    end: bool = True,
    disk: Callable[[Random], SimDisk] = SimDisk,
    known: set[bytes] | None = None,
    replay: str = "",
) -> CrashReport:
    """Crash at every call of ``workload`` that changes something and once after it, and ``check`` what is left.

    ``damages``: power losses per call. ``kills``: process kills too. ``compound``: that many of a call's states are
    crashed once more, at a random call of the check's own recovery, and checked again; so is one kill in four.
    ``thorough``: this share of all states, drawn from the seed, is crashed again at *every* call of the recovery,
    by power loss and by a kill. ``every``, ``first``: only every so many-th call from that one on, for a share of
    the whole; ``end``: once after the last call too. ``disk`` makes the disk. ``known``: what was checked, added
    to; a state that is in it, with as many things acknowledged, is counted and not checked again. For one workload
    and a ``check`` that draws nothing from its disk's chance; one set for several seeds, which have many of their
    states in common. ``replay``: the command that a failure's text names. Raises :class:`CrashFailure` at the first
    state that fails; the workload's own errors come out as they are.
    """
    runner = _Runner(check, seed, replay, thorough, known)
    acknowledged: list[A] = []

    def before(call: Call) -> None:
        if call.kind not in MUTATING or (call.number - first) % every:
            return
        machine.observer = None  # what is done to look at it is not part of the workload
        try:
            runner.at(machine, call, acknowledged, damages=damages, kills=kills, compound=compound)
        finally:
            machine.observer = before

    machine = disk(Random(seed))
    machine.trace = []
    machine.observer = before
    workload(machine, acknowledged)
    if end:
        runner.at(
            machine, Call(machine.calls + 1, "end", ""), acknowledged, damages=damages, kills=kills, compound=compound
        )
    return runner.report


def error_points(
    workload: Workload[A],
    check: Check[A],
    *,
    seed: int,
    errors: Sequence[int] = ERRORS,
    damages: int = 2,
    every: int = 1,
    first: int = 1,
    disk: Callable[[Random], SimDisk] = SimDisk,
    replay: str = "",
) -> CrashReport:
    """Let each call of ``workload`` fail once, and from there on for ever, with each of ``errors``; check what is
    left.

    ``every``, ``first``: only every so many-th call from that one on. The workload may end with any
    :class:`PyreplogError` then, and only with one. Afterwards the faults end, and the check gets the disk as after
    a process kill and after power loss.
    """
    count = disk(Random(seed))
    workload(count, [])
    runner = _Runner(check, seed, replay)
    for number in range(first, count.calls + 1, every):
        for error in errors:
            for times in (1, None):
                machine = disk(Random(f"{seed}:{number}:{error}:{times}"))
                machine.trace = []
                fault = machine.fail(
                    nth=number, times=times, error=error, partial=Random(f"{seed}:{number}").randint(0, 600)
                )
                acknowledged: list[A] = []
                try:
                    workload(machine, acknowledged)
                except PyreplogError:
                    pass
                except Exception as caught:
                    raise runner.failure(
                        machine, f"call {number} failing with {errno.errorcode[error]}", number, 0
                    ) from caught
                runner.report.errors += fault.hits
                machine.clear_faults()
                call = Call(number, f"{errno.errorcode[error]}{'' if times else ' for ever'}", "")
                runner.at(machine, call, acknowledged, damages=damages, kills=True, compound=0)
    return runner.report


class _Runner:
    """Makes the states of one crash point, checks each, and counts."""

    def __init__(
        self, check: Check[Any], seed: int, replay: str, thorough: float = 0.0, known: set[bytes] | None = None
    ) -> None:
        self.check = check
        self.thorough = thorough
        self.known = known
        self.report = CrashReport(seed)
        self.replay = replay
        self.only = _only()

    def at(
        self, machine: SimDisk, call: Call, acknowledged: Sequence[Any], *, damages: int, kills: bool, compound: int
    ) -> None:
        report = self.report
        report.calls += 1
        report.kinds[call.kind] = report.kinds.get(call.kind, 0) + 1
        known = tuple(acknowledged)
        state = 0
        for _ in range(damages):
            state += 1
            if self.only in (None, (call.number, state)):
                left = machine.crash(self._random(call, state))
                self._try(machine, left, call, state, known, again=state <= compound)
        if kills:
            writes = [0]
            if call.data:
                writes += [self._random(call, 0).randrange(len(call.data)), len(call.data)]
            for written in dict.fromkeys(writes):
                state += 1
                if self.only in (None, (call.number, state)):
                    again = compound > 0 and self._random(call, -1000 - state).random() < _KILLED_AGAIN
                    self._try(machine, machine.snapshot(call, written), call, state, known, again=again)

    def failure(self, machine: SimDisk, what: str, number: int, state: int) -> CrashFailure:
        calls = "\n  ".join((machine.trace or [])[-TRACE_MAX:])
        command = f"{ONLY_VARIABLE}={number}:{state} {self.replay}".strip()
        return CrashFailure(f"seed {self.report.seed}, {what}. Replay: {command}\nThe calls before:\n  {calls}")

    def _random(self, call: Call, state: int) -> Random:
        return Random(f"{self.report.seed}:{call.number}:{call.kind}:{state}")

    def _try(
        self, machine: SimDisk, left: SimDisk, call: Call, state: int, known: Sequence[Any], *, again: bool
    ) -> None:
        self.report.states += 1
        recrashed: list[SimDisk] = []
        chance = self._random(call, -state)
        if self.thorough and chance.random() < self.thorough:

            def during(inner: Call) -> None:
                if inner.kind in MUTATING:
                    recrashed.append(left.crash(chance))
                    recrashed.append(left.snapshot(inner, chance.randint(0, len(inner.data))))

            left.observer = during
        elif again:
            seen = 0

            def choose(inner: Call) -> None:
                # One of the recovery's calls, each with the same chance, without knowing how many
                # there will be.
                nonlocal seen
                if inner.kind in MUTATING:
                    seen += 1
                    if chance.randrange(seen) == 0:
                        recrashed[:] = [left.crash(chance) if chance.random() < 0.7 else left.snapshot(inner)]

            left.observer = choose
        what = f"state {state} of a crash before call {call}"
        try:
            if not self._repeated(left, known) or left.observer is not None:
                self.check(left, known)
            for number, disk in enumerate(recrashed, 1):
                what = (
                    f"state {state} of a crash before call {call}, and a second one during the recovery ({number} of"
                    f" {len(recrashed)})"
                )
                self.report.compound += 1
                if not self._repeated(disk, known):
                    self.check(disk, known)
        except Exception as caught:
            raise self.failure(machine, what, call.number, state) from caught

    def _repeated(self, left: SimDisk, known: Sequence[Any]) -> bool:
        """Whether this was checked before. A recovery that is to be crashed again at calls of its own is none of
        it."""
        if self.known is None:
            return False
        state = left.fingerprint() + len(known).to_bytes(8)
        if state in self.known:
            self.report.repeated += left.observer is None
            return True
        self.known.add(state)
        return False


def _only() -> tuple[int, int] | None:
    text = os.environ.get(ONLY_VARIABLE)
    if not text:
        return None
    number, _, state = text.partition(":")
    return int(number), int(state)
