"""Who writes beside a reader, one log or three replicas, and the disk on which the reader's calls are the writer's
moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from pyreplog.config import LogConfig
from pyreplog.log import Log, LogRoot
from pyreplog.ports import Buffer, File
from pyreplog.record import Record, records_of, split
from pyreplog.testing.disk import SimDisk
from tests.unit.log.support import CLOCK, batch

ID = "AbCdEfGhIjKlMnOpQrStUw"
CONFIG = LogConfig(durability="os", segment_bytes=1024, index_interval_bytes=200, file_delete_delay_ms=0)
CLUSTER_ID = "ClUsTeRiDeNtItYoFtHeMQ"


class Writers:
    """The replicas of one partition, one or three, each in its own root. What is committed is remembered in
    ``told``.

    Replication is by hand: a follower cuts what its leader does not have and takes the rest, byte for byte, and
    learns the high watermark one turn late. Only who has everything committed is elected.
    """

    def __init__(self, disk: SimDisk, count: int) -> None:
        names = ["root"] if count == 1 else [f"root/node-{number}" for number in range(count)]
        disk.make_directory("root")
        self.roots = [
            LogRoot.open(disk, name, clock=CLOCK, random=Random(seed), node_id=seed, cluster_id=CLUSTER_ID)
            for seed, name in enumerate(names)
        ]
        self.logs: list[Log] = [root.create_log("events", 0, ID, CONFIG) for root in self.roots]
        self.told: dict[int, Record] = {}
        self._leader = 0
        self._in_sync = list(range(count))
        self._count = 0
        self._leads(0)
        for _ in range(5):
            self.append()

    @property
    def high_watermark(self) -> int:
        """Of the one that leads."""
        return self.logs[self._leader].high_watermark

    def close(self) -> None:
        """All of them."""
        for root in self.roots:
            root.close()

    def _leads(self, number: int) -> None:
        self._leader = number
        self.logs[number].become_leader(max(log.epochs.latest for log in self.logs) + 1)

    def _append(self, count: int = 2) -> None:
        log = self.logs[self._leader]
        self._count += 1
        value = batch(count, size=40, tag=b"%d/" % self._count, timestamp=10 * self._count)
        log.append_as_leader(value, log.epochs.latest)

    def _replicate(self) -> None:
        """Whoever is in sync takes what the leader has; then it is committed."""
        leader = self.logs[self._leader]
        for number in self._in_sync:
            if number != self._leader:
                _follow(self.logs[number], leader)
        start = max(self.told, default=-1) + 1
        while start < leader.end_offset:
            for one in split(b"".join(leader.read(start, 1 << 20, leader.end_offset).parts())):
                self.told |= {
                    record.offset: record for record in records_of(one, "events", 0, start, leader.end_offset)
                }
                start = one.next_offset
        leader.advance_high_watermark(leader.end_offset)
        leader.write_mark()

    # -- turns --

    def append(self) -> None:
        """One batch."""
        self._append()
        self._replicate()

    def roll(self) -> None:
        """As many as need another segment."""
        log = self.logs[self._leader]
        count = len(log._segments)
        while len(log._segments) == count:
            self._append(3)
        self._replicate()

    def delete(self) -> None:
        """All but the last few, and the files of what is gone."""
        start = max(self.high_watermark - 3, 0)
        for log in self.logs:
            log.delete_records(min(start, log.high_watermark))
            log.apply_retention(confirmed=True)

    def delete_all(self) -> None:
        """Everything, which also begins a new segment; then something new."""
        start = self.high_watermark
        for log in self.logs:
            log.delete_records(min(start, log.high_watermark))
            log.apply_retention(confirmed=True)
        self.append()

    def diverge(self) -> None:
        """The one that leads has a tail that is never committed, and another leads from then on; or itself again,
        where it is alone."""
        for _ in range(4):
            self._append()
        before = self._leader
        if len(self.logs) == 1:
            self.logs[0].truncate_to(self.high_watermark)
        self._leads(self._in_sync[-1 if before != self._in_sync[-1] else 0])
        self.append()

    def lag(self) -> None:
        """One replica is left behind."""
        if len(self._in_sync) > 2:
            self._in_sync.remove(next(number for number in self._in_sync if number != self._leader))
        self.append()

    def catch_up(self) -> None:
        """All are in sync again."""
        self._in_sync = list(range(len(self.logs)))
        self._replicate()


def _follow(follower: Log, leader: Log) -> None:
    """Fetches until it has all: what the leader does not have is cut, what is missing comes, and the watermark as
    the leader had it."""
    while follower.end_offset > leader.start_offset:
        shared, leader_end = leader.epochs.end_offset_for(follower.epochs.latest, leader.end_offset)
        epoch, end = follower.epochs.end_offset_for(shared, follower.end_offset)
        if epoch == shared and follower.end_offset <= min(end, leader_end):
            break
        follower.truncate_to(min(end, leader_end))
    else:
        follower.truncate_fully(leader.start_offset)
    while follower.end_offset < leader.end_offset:
        follower.append_as_follower(leader.read(follower.end_offset, 1 << 20, leader.end_offset).parts())
    follower.advance_high_watermark(leader.high_watermark)
    if leader.start_offset <= follower.high_watermark:
        follower.increment_start_offset(leader.start_offset)
    follower.write_mark()


Turn = Callable[[Writers], None]
Plan = list[tuple[int, Turn]]
"""Numbers of the reader's calls, and what the writer does before each."""

ALONE: Sequence[Turn] = (Writers.append, Writers.roll, Writers.delete, Writers.delete_all, Writers.diverge)
TOGETHER: Sequence[Turn] = (*ALONE, Writers.lag, Writers.catch_up)


class RacingFile:
    """A file of which each read is a moment for the writer."""

    def __init__(self, file: File, disk: RacingDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_at(self, position: int, size: int) -> Buffer:
        self._disk.moment()
        return self._file.read_at(position, size)

    def size(self) -> int:
        self._disk.moment()
        return self._file.size()


class RacingDisk:
    """The reader's disk: before its n-th call the writer has the turns planned for n."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.calls = 0
        self.plan: dict[int, list[Callable[[], None]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def moment(self) -> None:
        """A call is about to be made."""
        for turn in self.plan.pop(self.calls, ()):
            turn()
        self.calls += 1

    def list(self, directory: str) -> Sequence[str]:
        self.moment()
        return self._disk.list(directory)

    def stat(self, path: str) -> Any:
        self.moment()
        return self._disk.stat(path)

    def open(self, path: str, *, write: bool = False) -> Any:
        self.moment()
        return RacingFile(self._disk.open(path, write=write), self)
