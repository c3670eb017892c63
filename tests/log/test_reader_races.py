"""A reader beside a writer that does something between any two of the reader's own calls: it sees what counts, and nothing else.

Every single turn of the writer at every call of a look is tried; of two turns a share is drawn by seed (``REPLOG_CRASH_SEED``), all of
them with ``-m soak``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import OffsetOutOfRangeError
from pyreplog.log import Log, LogReader, LogRoot, open_readers
from pyreplog.ports import Buffer, File
from pyreplog.record import Record, records_of, split
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.log.support import CLOCK, batch

KEY = TopicPartition("events", 0)
ID = "AbCdEfGhIjKlMnOpQrStUw"
CONFIG = LogConfig(durability="os", segment_bytes=1024, index_interval_bytes=200, file_delete_delay_ms=0)
SHARE = 400


class Writer:
    """The one that writes, and remembers what it committed."""

    def __init__(self, disk: SimDisk) -> None:
        self.root = LogRoot.open(disk, "root", clock=CLOCK, random=Random(1))
        self.log: Log = self.root.create_log("events", 0, ID, CONFIG)
        self.log.become_leader(0)
        self.told: dict[int, Record] = {}
        self._count = 0
        for _ in range(5):
            self.append()

    def _append(self, count: int = 2) -> None:
        self._count += 1
        self.log.append_as_leader(batch(count, size=40, tag=b"%d/" % self._count, timestamp=10 * self._count), self.log.epochs.latest)

    def _commit(self) -> None:
        log = self.log
        start = max(self.told, default=-1) + 1
        while start < log.end_offset:
            data = b"".join(map(bytes, log.read(start, 1 << 20, log.end_offset).parts()))
            for one in split(data):
                self.told |= {record.offset: record for record in records_of(one, "events", 0, start, log.end_offset)}
                start = one.next_offset
        log.advance_high_watermark(log.end_offset)
        log.write_mark()

    def append(self) -> None:
        """One batch."""
        self._append()
        self._commit()

    def roll(self) -> None:
        """As many as need another segment."""
        count = len(self.log._segments)
        while len(self.log._segments) == count:
            self._append(3)
        self._commit()

    def delete(self) -> None:
        """All but the last few, and the files of what is gone."""
        self.log.delete_records(max(self.log.high_watermark - 3, 0))
        self.log.apply_retention(confirmed=True)

    def delete_all(self) -> None:
        """Everything, which also begins a new segment; then something new."""
        self.log.delete_records(-1)
        self.log.apply_retention(confirmed=True)
        self.append()

    def diverge(self) -> None:
        """As a follower whose tail was never committed: it is cut, and another leader's is put there."""
        for _ in range(4):
            self._append()
        self.log.truncate_to(self.log.high_watermark)
        self.log.become_leader(self.log.epochs.latest + 1)
        self.append()


Turn = Callable[[Writer], None]
Plan = list[tuple[int, Turn]]
"""Numbers of the reader's calls, and what the writer does before each."""

TURNS: Sequence[Turn] = (Writer.append, Writer.roll, Writer.delete, Writer.delete_all, Writer.diverge)


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


def look(reader: LogReader, position: int, told: dict[int, Record]) -> int:
    """Read what a refreshed reader shows from ``position`` on; where it came to."""
    before = reader.end_offset
    reader.refresh()
    assert reader.end_offset >= before, "the watermark goes back"
    seek(reader, (position + reader.end_offset) // 2, told)
    while position < reader.end_offset:
        try:
            data = reader.read(position, 300)
        except OffsetOutOfRangeError as error:
            assert error.start is not None
            assert position < error.start, error
            position = error.start
            continue
        if not data:
            break
        for one in split(data):
            for record in records_of(one, "events", 0, position, reader.end_offset):
                assert record.offset == position, "dense, in order, none twice"
                assert record == told[position]
                position += 1
    return position


def seek(reader: LogReader, offset: int, told: dict[int, Record]) -> None:
    """Timestamps rise: that of a record is found at the record, or where the log begins by then."""
    if not reader.start_offset <= offset < reader.end_offset:
        return
    found = reader.find_timestamp(told[offset].timestamp)
    expected = max(offset, reader.start_offset)
    assert found == ((expected, told[expected].timestamp) if expected < reader.end_offset else None)


def run(plan: Plan, *, known: bool = True) -> int:
    """One look with the writer's turns before the reader's calls of these numbers, and a quiet one after it; the calls of the first.
    ``known``: the reader has looked before; else it is opened in the first one."""
    disk = SimDisk(Random(1))
    writer = Writer(disk)
    racing: Any = RacingDisk(disk)
    if known:
        (reader,) = open_readers(racing, "root").values()
        position = look(reader, 0, writer.told)
        assert position == writer.log.high_watermark
        writer.append()
        writer.append()
    racing.calls = 0
    for moment, turn in plan:
        racing.plan.setdefault(moment, []).append(lambda turn=turn: turn(writer))
    if not known:
        (reader,) = open_readers(racing, "root").values()
        position = reader.start_offset
    position = look(reader, position, writer.told)
    calls = int(racing.calls)
    racing.plan.clear()
    assert look(reader, position, writer.told) == reader.end_offset == writer.log.high_watermark
    reader.close()
    writer.root.close()
    return calls


def try_all(plans: Iterable[Plan], known: bool) -> None:
    for plan in plans:
        try:
            run(plan, known=known)
        except Exception as error:
            error.add_note(", ".join(f"{turn.__name__} before call {moment}" for moment, turn in plan))
            raise


def pairs(known: bool) -> list[Plan]:
    """The writer has two turns, at one call or at two."""
    calls = max(run([(0, turn)], known=known) for turn in TURNS) + 4
    moments = combinations_with_replacement(range(calls), 2)
    return [list(zip(two, turns, strict=True)) for two, turns in product(moments, product(TURNS, repeat=2))]


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
@pytest.mark.parametrize("turn", TURNS)
def test_one_turn_of_the_writer(turn: Turn, known: bool) -> None:
    """Whatever the writer does in one moment of a look, the reader shows each committed record once, in order, as it was committed."""
    calls = run([], known=known)
    assert calls >= 20
    try_all(([(moment, turn)] for moment in range(calls + 10)), known)


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_two_turns_of_the_writer(known: bool) -> None:
    """The same for two moments of a look: a share of all pairs."""
    random = Random(int(os.environ.get("REPLOG_CRASH_SEED", "0")))
    try_all(random.sample(pairs(known), SHARE), known)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_all_pairs_of_turns(known: bool) -> None:
    """Every pair, and as many of three."""
    plans = pairs(known)
    random = Random(1)
    try_all(plans, known)
    try_all(([*plan, *random.choice(plans)[:1]] for plan in plans), known)
