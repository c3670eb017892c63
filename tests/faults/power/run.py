"""Cut the power of real file systems at the I/O calls of a log, mount them again and look:
``python -m tests.faults.power.run --share 10``.

The life, and what is looked at afterwards, are those of :mod:`tests.faults.kills`. What was only in the page cache is
gone, so that of an ``os`` log only what a clean stop had synced is promised.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from random import Random
from typing import Final, NoReturn

from pyreplog.errors import PyreplogError
from pyreplog.ports import Disk, File
from pyreplog.system import SystemDisk
from tests.faults.kills.killing import KillingDisk, KillingFile, Tell, live
from tests.faults.kills.run import APPENDS, ROUNDS, Told, check, child, count_calls
from tests.faults.power.rig import KINDS, Power, Unavailable

AGAIN: Final = 0.3


class BootedDisk(SystemDisk):
    """The disk of a machine that was started ``boot`` times."""

    def __init__(self, boot: int) -> None:
        super().__init__()
        self._boot = boot

    def boot_id(self, directory: str) -> str:
        """Another one after each cut."""
        return f"00000000-0000-4000-8000-{self._boot:012d}"


class UnsyncedFile(KillingFile):
    """A planted bug: its sync does nothing."""

    def sync(self) -> None:
        self._disk.count()


class CuttingDisk(KillingDisk):
    """``disk``, at whose call number ``at`` the power of ``power`` is cut, after a part by ``chance`` of what
    waited was written back. ``planted``: it does not sync log files."""

    def __init__(self, disk: Disk, at: int, power: Power, chance: Random, *, halves: bool, planted: bool) -> None:
        super().__init__(disk, at, halves=halves)
        self._power = power
        self._chance = chance
        self._planted = planted

    def die(self) -> NoReturn:
        """The power goes, and the process with it."""
        if not self._planted and self._chance.random() < 0.5:
            self._power.write_back(self._chance)
        self._power.cut()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("alive after SIGKILL")

    def create(self, path: str, size: int = 0) -> File:
        """Counted."""
        self.count()
        file = self._disk.create(path, size)
        return UnsyncedFile(self, file) if self._planted and path.endswith(".log") else KillingFile(self, file)


def cut_at(power: Power, durability: str, at: int, chance: Random, *, planted: bool = False) -> int:
    """One life whose power goes at call ``at``, sometimes a second one at a call of its recovery; how many cuts
    that were.

    AssertionError where something is lost or wrong.
    """
    told = Told()
    what = f"{power.kind}, {durability}, call {at}"
    points = [(at, chance.random() < 0.5)]
    if chance.random() < AGAIN:
        points.append((1 + chance.randrange(120), chance.random() < 0.5))
    for boot, (point, halves) in enumerate(points, 1):

        def work(tell: Tell, boot: int = boot, point: int = point, halves: bool = halves) -> None:
            disk = CuttingDisk(BootedDisk(boot), point, power, Random(f"{at} {boot}"), halves=halves, planted=planted)
            live(disk, f"{power.place}/root", tell, durability=durability, rounds=ROUNDS, appends=APPENDS)
            disk.die()  # its life was shorter than that

        data, died_of = child(work)
        assert died_of == signal.SIGKILL, f"{what}: died of {died_of}"
        told.take(data)
        if durability == "os":
            told.promised = told.synced
        power.mount()
        try:
            check(str(power.place), told, what, rebooted=BootedDisk(boot + 1))
        except PyreplogError as error:
            raise AssertionError(f"{what}: {error}") from error
        what += f", then {point}"
    return len(points)


def main() -> int:
    """Cut at every call, or at a share of them, on each kind of file system that there is; one line for each with
    the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="every n-th call by chance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="for each kind of file system; stop after this time")
    parser.add_argument("--kinds", nargs="*", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--planted", action="store_true", help="sync no log file: this must fail")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        chance = Random(f"{arguments.seed}{kind}")
        started, cuts, all_calls = time.monotonic(), 0, 0
        try:
            with Power(kind) as power:
                for durability in ("sync", "os"):
                    calls = count_calls(durability)
                    all_calls += calls
                    points = list(range(1, calls + 1))
                    chance.shuffle(points)
                    for at in points[: max(len(points) // arguments.share, 1)]:
                        if arguments.seconds and time.monotonic() - started > arguments.seconds * (
                            1 if durability == "os" else 0.6
                        ):
                            break
                        cuts += cut_at(power, durability, at, chance, planted=arguments.planted)
                        power.empty()
        except Unavailable as error:
            print(f"power cuts on {kind}: SKIPPED FAULT RIG: {error}", flush=True)
            continue
        seconds = time.monotonic() - started
        print(f"power cuts on {kind}: {cuts:,} at {all_calls:,} calls, lost 0, wrong 0, {seconds:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
