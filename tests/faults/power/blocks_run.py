"""Record what a log's life does to a disk's blocks, and look at the states in which power loss may leave them:
``python -m tests.faults.power.blocks_run --states 250``.

The life, and what is looked at afterwards, are those of :mod:`tests.faults.kills`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Final

from pyreplog.errors import PyreplogError
from pyreplog.ports import Disk, File
from tests.faults.kills.killing import KillingDisk, KillingFile, Tell, live
from tests.faults.kills.run import APPENDS, ROUNDS, Told, check, child
from tests.faults.power.blocks import FLUSHED, TOLD, Entry, Recording, told
from tests.faults.power.rig import KINDS, Unavailable
from tests.faults.power.run import BootedDisk, UnsyncedFile

_LIBC: Final = ctypes.CDLL(None)


class RecordedDisk(KillingDisk):
    """``disk``; at some of its calls the system writes some pages below ``place`` back by itself. ``planted``: it
    syncs no log file."""

    def __init__(self, disk: Disk, place: Path, chance: Random, *, planted: bool) -> None:
        super().__init__(disk, 0)
        self._place, self._chance, self._planted = place, chance, planted

    def strikes(self) -> bool:
        """Never; but what waits may be written back."""
        if not self._planted and self._chance.random() < 0.03:
            for path in sorted(self._place.rglob("*.log")):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    if self._chance.random() < 0.5:
                        assert _LIBC.sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), 7) == 0
                finally:
                    os.close(descriptor)
        return super().strikes()

    def create(self, path: str, size: int = 0) -> File:
        """Counted."""
        file = super().create(path, size)
        assert isinstance(file, KillingFile)
        return UnsyncedFile(self, file.file) if self._planted and path.endswith(".log") else file


def recorded(disk: Recording, durability: str, chance: Random, *, planted: bool) -> list[Entry]:
    """One life of a log on ``disk``."""

    def life(tell: Tell) -> None:
        def work(_: Tell) -> None:
            recording = RecordedDisk(BootedDisk(1), disk.place, chance, planted=planted)
            live(recording, f"{disk.place}/root", tell, durability=durability, rounds=ROUNDS, appends=APPENDS)

        _, died_of = child(work)
        assert died_of == 0, f"{disk.kind}, {durability}: the life died of {died_of}"

    return disk.record(life)


def look(disk: Recording, entries: list[Entry], durability: str, end: int, chance: Random, fate: str) -> None:
    """AssertionError where power loss after ``end`` entries loses what was promised by then, or shows what was
    never tried."""
    what = f"{disk.kind}, {durability}, after {end} entries, {fate} of the writes since the last flush"
    known = Told()
    known.take(told(entries, end))
    if durability == "os":
        known.promised = known.synced
    disk.after(entries, end, chance, fate=fate)
    try:
        check(str(disk.place), known, what, rebooted=BootedDisk(2))
    except PyreplogError as error:
        raise AssertionError(f"{what}: {error}") from error
    disk.unmount()  # where the check failed it may be in use, and is taken down in the end


def points(entries: list[Entry], count: int, chance: Random) -> list[int]:
    """Where to lose power: within the life (not while the file system is mounted), just before and after something
    was told or flushed, and anywhere."""
    first = next(number for number, entry in enumerate(entries) if entry.kind == TOLD)
    last = max(number for number, entry in enumerate(entries) if entry.kind == TOLD) + 1
    near = [
        number + more for number, entry in enumerate(entries[:last]) for more in (0, 1) if entry.kind in (TOLD, FLUSHED)
    ]
    near = [number for number in near if number >= first]
    return [chance.choice(near) if chance.random() < 0.7 else chance.randint(first, last) for _ in range(count)]


def main() -> int:
    """So many states of each kind of file system; one line for each with the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=250, help="for each kind of file system")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--planted", action="store_true", help="sync no log file: this must fail")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        chance = Random(f"{arguments.seed}{kind}")
        started, states, blocks, flushes = time.monotonic(), 0, 0, 0
        try:
            with Recording(kind) as disk:
                for durability in ("sync", "os"):
                    entries = recorded(disk, durability, chance, planted=arguments.planted)
                    flushes += sum(entry.kind == FLUSHED for entry in entries)
                    blocks += len(entries)
                    for end in points(entries, (arguments.states + 1) // 2, chance):
                        look(
                            disk,
                            entries,
                            durability,
                            end,
                            chance,
                            chance.choice(("none", "all", "some", "some", "some")),
                        )
                        states += 1
        except Unavailable as error:
            print(f"block logs on {kind}: SKIPPED FAULT RIG: {error}", flush=True)
            continue
        seconds = time.monotonic() - started
        what = f"{states:,} states of {blocks:,} entries, {flushes:,} flushes"
        print(f"block logs on {kind}: {what}, lost 0, wrong 0, {seconds:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
