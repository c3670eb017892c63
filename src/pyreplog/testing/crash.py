"""Crash tests of a workload: crash at every disk call, lose unsynced data, reopen, check.

``crash_points`` runs a workload once on a simulated disk. Before each call that changes something it takes several
states of the disk: after power loss, with damage drawn from the seed, and after a process kill, with the write of the
call not done, partly done and done. It gives each state to the check, with the acknowledgements up to then.
``error_points`` runs the workload once for each call and errno, lets that call fail, and checks the resulting disk.

A workload appends each acknowledgement to the list that it is given, as soon as it gets it::

    def workload(disk, acknowledged):
        log = open_it(disk)
        for number in range(10):
            acknowledged.append(log.append(number))

    def check(disk, acknowledged):
        log = open_it(disk)  # must not fail
        assert list(log)[: len(acknowledged)] == acknowledged

Method: SQLite's crash and I/O error loops; "Files are hard" (Pillai et al., OSDI 2014) for the states that a crash
may leave.
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
"""If this environment variable is ``<call>:<state>``, only that state is checked."""
ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE)
TRACE_MAX: Final = 20
_KILLED_AGAIN: Final = 0.25


class CrashFailure(AssertionError):
    """The check failed on the disk that a crash left.

    The text says how to repeat it; the exception of the check is the cause.
    """


@dataclass(slots=True)
class CrashReport:
    """The counts of a crash test. ``kinds`` counts the calls at which it crashed, by kind."""

    seed: int
    calls: int = 0
    states: int = 0
    compound: int = 0
    """States of a second crash, during the recovery."""
    repeated: int = 0
    """States, of both kinds, that were not checked because an equal disk had been checked before."""
    errors: int = 0
    """Calls that failed with an injected error."""
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
    """Crash at every call of ``workload`` that changes something, and after the last; ``check`` each resulting disk.

    ``damages``: number of power losses per call. ``kills``: whether to test process kills too. ``compound``: this
    many of the power losses of each call are crashed once more, at a random call of the check's own recovery, and
    checked again; if it is not 0, so is one kill in four. ``thorough``: this share of all states, drawn from the
    seed, is crashed again at *every* call of the recovery, by power loss and by a kill. ``every``, ``first``: test
    only every ``every``-th call, from call ``first`` on. ``end``: whether to crash after the last call too.
    ``disk`` makes the disk.

    ``known``: the states checked so far. Each new state is added to it; a state that is in it, with as many
    acknowledgements, is counted and not checked again. Use one set for several seeds of one workload, because they
    have many states in common, and only if ``check`` draws nothing from the random generator of its disk.

    ``replay``: the command that the text of a failure names. Raises :class:`CrashFailure` at the first state whose
    check fails. Errors of the workload itself are raised unchanged.
    """
    runner = _Runner(check, seed, replay, thorough, known)
    acknowledged: list[A] = []

    def before(call: Call) -> None:
        if call.kind not in MUTATING or (call.number - first) % every:
            return
        machine.observer = None  # calls made to take the states are not part of the workload
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
    """Let each call of ``workload`` fail with each of ``errors``; check the resulting disk.

    Each call fails in two runs: in one only once, in the other all calls from it on fail. The workload may then
    raise a :class:`PyreplogError`, but no other exception. After it has ended, the faults are removed, and the
    check gets the disk as after a process kill and as after power loss. ``every``, ``first``: test only every
    ``every``-th call, from call ``first`` on.
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
    """Makes the states of each crash point, checks them, and counts them in ``report``."""

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
                # Choose one call of the recovery, each with the same probability, although the
                # number of calls is not known in advance (reservoir sampling).
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
        """Return whether an equal state was checked before, and add it to ``known``.

        The report does not count a state whose recovery will be crashed, because its check runs anyway.
        """
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
