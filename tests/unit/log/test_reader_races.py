"""A reader beside a writer that does something between any two of the reader's own calls: it sees what counts, and
nothing else.

Every single turn of the writer at every call of a look is tried; of two turns a share is drawn by seed
(``REPLOG_CRASH_SEED``), all of them with ``-m soak``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

import pytest

from pyreplog.errors import OffsetOutOfRangeError
from pyreplog.log import LogReader, open_readers
from pyreplog.record import Record, records_of, split
from pyreplog.testing.disk import SimDisk
from tests.seed import SEED, tell
from tests.unit.log.racing import ALONE, TOGETHER, Plan, RacingDisk, Turn, Writers

SHARE = 240
COPIES = [1, 3]


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


def run(plan: Plan, copies: int, *, known: bool) -> int:
    """One look with the writer's turns before the reader's calls of these numbers, and a quiet one after it; the
    calls of the first. ``known``: the reader has looked before; else it is opened in the first one."""
    disk = SimDisk(Random(1))
    writers = Writers(disk, copies)
    racing: Any = RacingDisk(disk)
    if known:
        (reader,) = open_readers(racing, "root").values()
        position = look(reader, 0, writers.told)
        assert position == writers.high_watermark
        writers.append()
        writers.append()
    racing.calls = 0
    for moment, turn in plan:
        racing.plan.setdefault(moment, []).append(lambda turn=turn: turn(writers))
    if not known:
        (reader,) = open_readers(racing, "root").values()
        position = reader.start_offset
    position = look(reader, position, writers.told)
    calls = int(racing.calls)
    racing.plan.clear()
    assert look(reader, position, writers.told) == reader.end_offset == writers.high_watermark
    reader.close()
    writers.close()
    return calls


def try_all(plans: Iterable[Plan], copies: int, known: bool) -> None:
    for plan in plans:
        try:
            run(plan, copies, known=known)
        except Exception as error:
            error.add_note(", ".join(f"{turn.__name__} before call {moment}" for moment, turn in plan))
            raise


def turns(copies: int) -> list[Turn]:
    return list(ALONE if copies == 1 else TOGETHER)


def pairs(copies: int, known: bool) -> list[Plan]:
    """The writer has two turns, at one call or at two."""
    calls = max(run([(0, turn)], copies, known=known) for turn in turns(copies)) + 4
    moments = combinations_with_replacement(range(calls), 2)
    return [list(zip(two, both, strict=True)) for two, both in product(moments, product(turns(copies), repeat=2))]


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_one_turn_of_the_writer(copies: int, known: bool) -> None:
    """Whatever the writer does in one moment of a look, the reader shows each committed record once, in order, as
    it was committed."""
    calls = run([], copies, known=known)
    assert calls >= 20 * copies
    try_all(([(moment, turn)] for moment in range(calls + 10) for turn in turns(copies)), copies, known)


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_two_turns_of_the_writer(copies: int, known: bool) -> None:
    """The same for two moments of a look: a share of all pairs."""
    tell()
    random = Random(SEED)
    try_all(random.sample(pairs(copies, known), SHARE // copies), copies, known)


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
@pytest.mark.parametrize("step", [3, 4, 5, 7, 11])
def test_a_writer_that_never_rests(copies: int, known: bool, step: int) -> None:
    """Where segments come and go as fast as the reader looks at them, it still shows what is there, or says where
    the log begins."""
    moments = range(0, 600, step)
    try_all([[(moment, turn) for moment in moments for turn in (Writers.roll, Writers.delete)]], copies, known)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_all_pairs_of_turns(copies: int, known: bool) -> None:
    """Every pair, or 50,000 of them, and as many of three."""
    random = Random(1)
    plans = pairs(copies, known)
    plans = random.sample(plans, min(len(plans), 50_000))
    try_all(plans, copies, known)
    try_all(([*plan, *random.choice(plans)[:1]] for plan in plans), copies, known)
