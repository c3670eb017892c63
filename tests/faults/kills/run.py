"""Kill a process at every I/O call it makes on real files, and look at what it left:
``python -m tests.faults.kills.run --share 50``.

A parent that does nothing else forks each child, holds what the child told it over a pipe, and checks the folder
when the child is dead: a reader beside, the independent verification, then the next writer, of which some are
killed too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from random import Random

from pyreplog.log import LogRoot, open_readers
from pyreplog.ports import Disk
from pyreplog.record import Record, records_of, split
from pyreplog.system import SystemDisk
from pyreplog.verify import Level, verify
from tests.faults.kills.killing import KEY, KillingDisk, Tell, live
from tests.unit.log.support import CLOCK, raw

ROUNDS = 3
APPENDS = 24


class Told:
    """What children told before they died."""

    def __init__(self) -> None:
        self.tried: dict[int, list[str]] = {}
        self.promised = 0
        self.synced = 0
        """What outlives power loss of an ``os`` log."""
        self.ended = False

    def take(self, data: bytes) -> None:
        """Lines of a child; the last may be cut off and then was never said."""
        whole, _, _ = data.rpartition(b"\n")
        for line in whole.decode().splitlines():
            word, _, rest = line.partition(" ")
            if word == "tried":
                offset, _, tag = rest.partition(" ")
                self.tried.setdefault(int(offset), []).append(tag)
            elif word == "acked":
                self.promised = int(rest)
            elif word == "cutting":
                self.promised = min(self.promised, int(rest))
                self.synced = min(self.synced, int(rest))
            elif word == "synced":
                self.synced = int(rest)
            elif word == "ended":
                self.ended = True


def child(work: Callable[[Tell], None]) -> tuple[bytes, int]:
    """Run ``work`` in a fork; what it told, and the signal it died of (0: none)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            work(lambda text: _say(write, text))
            _say(write, "ended")
            code = 0
        except BaseException as error:
            print(f"the child: {error!r}", file=sys.stderr)
        finally:
            os._exit(code)
    os.close(write)
    told = b""
    while piece := os.read(read, 1 << 16):
        told += piece
    os.close(read)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a child failed"
    return told, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _say(pipe: int, text: str) -> None:
    os.write(pipe, text.encode() + b"\n")


def count_calls(durability: str) -> int:
    """How many calls the whole life makes."""
    path = tempfile.mkdtemp(prefix="replog-kills-", dir=_place())
    try:
        told, _ = child(lambda tell: _count(path, durability, tell))
        return int(told.split(b"calls ")[1].split()[0])
    finally:
        shutil.rmtree(path)


def _count(path: str, durability: str, tell: Tell) -> None:
    disk = KillingDisk(SystemDisk(), 0)
    live(disk, f"{path}/root", tell, durability=durability, rounds=ROUNDS, appends=APPENDS)
    tell(f"calls {disk.calls}")


def _place() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def kill_at(durability: str, at: int, chance: Random, *, planted: bool = False) -> None:
    """One child killed at call ``at``, sometimes a second one at a call of its recovery.

    AssertionError where something is lost or wrong. ``planted``: the child promises too early.
    """
    path = tempfile.mkdtemp(prefix="replog-kills-", dir=_place())
    told = Told()
    what = f"{durability}, call {at}"
    try:
        points = [(at, chance.random() < 0.5)]
        if chance.random() < 0.4:
            points.append((1 + chance.randrange(120), chance.random() < 0.5))
        for point, halves in points:
            data, died_of = child(
                lambda tell, point=point, halves=halves: live(  # type: ignore[misc]
                    KillingDisk(SystemDisk(), point, halves=halves),
                    f"{path}/root",
                    tell,
                    durability=durability,
                    rounds=ROUNDS,
                    appends=APPENDS,
                    planted=planted,
                )
            )
            told.take(data)
            assert died_of in (0, signal.SIGKILL), f"{what}: died of {died_of}"
            what += f", half {halves}" if point == at else f", then {point}"
            check(path, told, what)
    finally:
        shutil.rmtree(path)


def check(path: str, told: Told, what: str, *, rebooted: SystemDisk | None = None) -> None:
    """The folder after a kill: what was promised is there for a reader and for the next writer, and nothing that
    was never written is.

    ``rebooted``: the disk after power loss. Then the mark may be old, and a reader sees all of it only when a
    writer has been there.
    """
    disk = rebooted or SystemDisk()
    try:
        root = f"{path}/root"
        if disk.stat(root) is None:
            assert told.promised == 0, what
            return
        reader = open_readers(disk, root).get(KEY)
        if reader is not None:
            records: list[Record] = []
            for one in reader.batches(reader.start_offset, reader.end_offset):
                records += records_of(one, "t", 0, 0, 2**63 - 1)
            _look(records, told, f"{what}: a reader", reader.end_offset, promised=0 if rebooted else told.promised)
            reader.close()
            book = verify(disk, root)
            bad = [finding for finding in book.findings if finding.level is Level.DAMAGE]
            assert not bad, f"{what}: {bad}"
        else:
            assert told.promised == 0, what
        _write(disk, root, told, what)
    finally:
        disk.close()


def _write(disk: Disk, root: str, told: Told, what: str) -> None:
    copy = f"{root}-copy"
    shutil.rmtree(copy, ignore_errors=True)  # power loss may have brought back the last one
    shutil.copytree(root, copy)
    opened = LogRoot.open(disk, copy, clock=CLOCK, random=Random(5))
    try:
        assert not opened.damaged, f"{what}: {opened.damaged}"
        log = opened.logs.get(KEY)
        if log is None:
            assert told.promised == 0, what
            return
        records: list[Record] = []
        for one in split(raw(log)):
            one.check_crc()
            records += records_of(one, "t", 0, 0, 2**63 - 1)
        _look(records, told, f"{what}: a writer", log.end_offset, promised=told.promised)
    finally:
        opened.close(clean=False)
        shutil.rmtree(copy)


def _look(records: list[Record], told: Told, what: str, end: int, *, promised: int) -> None:
    assert end >= promised, f"{what} has offsets below {end}, and {promised} was promised"
    assert [record.offset for record in records] == list(range(end)), what
    tags: list[str] = []
    for record in records:
        if record.offset in told.tried:
            tags = told.tried[record.offset]
        value = (record.value or b"").decode()
        assert any(value.startswith(tag) for tag in tags) or _earlier(value, told, record.offset), (
            f"{what}: offset {record.offset} is {value}"
        )


def _earlier(value: str, told: Told, offset: int) -> bool:
    """Whether ``value`` was tried in a batch that began up to two offsets before."""
    return any(value.startswith(tag) for back in range(3) for tag in told.tried.get(offset - back, ()))


def dealt(calls: dict[str, int], chance: Random) -> list[tuple[str, int]]:
    """(durability, call) of every call of each life, in any order: whatever part is done of it is a part of all."""
    points = [(durability, at) for durability, count in calls.items() for at in range(1, count + 1)]
    chance.shuffle(points)
    return points


def main() -> int:
    """Kill at every call, or at a share of them; one line with the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="every n-th call by chance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time")
    parser.add_argument("--planted", action="store_true", help="let the children promise too early: this must fail")
    arguments = parser.parse_args()
    chance = Random(arguments.seed)
    started, kills = time.monotonic(), 0
    points = dealt({durability: count_calls(durability) for durability in ("sync", "os")}, chance)
    for durability, at in points[: max(-(-len(points) // arguments.share), 1)]:
        if arguments.seconds and time.monotonic() - started > arguments.seconds:
            break
        kill_at(durability, at, chance, planted=arguments.planted)
        kills += 1
    print(f"kills: {kills:,} of {len(points):,} calls, lost 0, wrong 0, {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
