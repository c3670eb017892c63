"""The durable mark: three slots, of which at most two are ever at risk."""

from __future__ import annotations

import errno
from functools import partial
from random import Random

import pytest

from pyreplog.errors import StorageError
from pyreplog.log import random_uuid
from pyreplog.log.mark import (
    SLOT_POSITIONS,
    SLOT_SIZE,
    MarkFile,
    MarkState,
    find_mark,
    parse_mark,
    parse_slot,
    read_mark,
)
from pyreplog.testing.disk import SimDisk
from tests.unit.log.conftest import Place
from tests.unit.log.support import interrupted

TOPIC_ID = random_uuid(Random(1))
STATE = MarkState(10, 7, 3, "sync", False, False, False, 0x12345678, TOPIC_ID, 5)


def make(place: Place) -> MarkFile:
    return MarkFile.create(place.disk, place.path, STATE)


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("flag", ["incomplete", "may_have_gaps", "poisoned", "reported", ""])
def test_it_gives_back_what_was_written(place: Place, durability: str, flag: str) -> None:
    """Every field survives."""
    state = STATE._replace(durability=durability, **({flag: True} if flag else {}))  # type: ignore[arg-type]
    mark = MarkFile.create(place.disk, place.path, state)
    mark.close()
    found = find_mark(place.disk, place.path, topic_id=TOPIC_ID, partition=5)
    assert found is not None
    assert found[0]._replace(sequence=0) == state


def test_no_mark_is_none(place: Place) -> None:
    """No file, an empty one, zeros, and another partition's mark are all no mark."""
    assert find_mark(place.disk, place.path) is None
    for content in (b"", b"\0" * 2000, b"x" * 2000):
        place.write("replog.mark", content)
        assert find_mark(place.disk, place.path) is None
    make(place).close()
    assert find_mark(place.disk, place.path) is not None
    assert find_mark(place.disk, place.path, topic_id=random_uuid(Random(2))) is None
    assert find_mark(place.disk, place.path, partition=4) is None


def test_a_slot_cut_or_flipped_is_none() -> None:
    """A slot cut at any byte or with any bit flipped does not count."""
    disk = SimDisk(Random(1))
    disk.make_directory("d")
    MarkFile.create(disk, "d", STATE).close()
    file = disk.open("d/replog.mark")
    position = SLOT_POSITIONS[1]
    slot = bytes(file.read_at(position, SLOT_SIZE))
    assert parse_slot(slot) is not None
    for size in range(SLOT_SIZE):
        assert parse_slot(slot[:size]) is None
        for bit in range(8):
            flipped = bytearray(slot)
            flipped[size] ^= 1 << bit
            assert parse_slot(bytes(flipped)) is None


def test_writes_leave_the_synced_slot_alone(place: Place) -> None:
    """However often it is written, the slot of the last sync and that of the write before stay as they were."""
    mark = make(place)
    for number in range(20):
        before = place.read("replog.mark")
        stable = parse_mark(before)
        mark.write(number, 7, 3)
        after = place.read("replog.mark")
        slots = [(before[p : p + SLOT_SIZE], after[p : p + SLOT_SIZE]) for p in SLOT_POSITIONS]
        assert sum(old != new for old, new in slots) == 1
        assert stable is not None
        assert slots[stable[1]][0] == slots[stable[1]][1]
        found = find_mark(place.disk, place.path)
        assert found is not None
        assert found[0].synced_end == number
        if number % 6 == 5:
            mark.sync()
            kept = parse_mark(place.read("replog.mark"))
            assert kept is not None
            for more in range(100, 105):
                mark.write(more, 7, 3)
                now = place.read("replog.mark")
                position = SLOT_POSITIONS[kept[1]]
                assert parse_slot(now[position : position + SLOT_SIZE]) == kept[0]
    mark.close()


def test_unchanged_values_are_not_written(place: Place) -> None:
    """Writing what is there already costs no write."""
    mark = make(place)
    mark.write(11, 7, 3)
    before = place.read("replog.mark")
    mark.write(11, 7, 3)
    assert place.read("replog.mark") == before
    mark.close()


def test_a_state_that_was_not_written_is_forgotten() -> None:
    """The disk refuses a state, or Ctrl-C strikes at any line before it is written: what the mark holds is still
    what was written last, so that the next writing of what was wanted is not taken for a repetition, and what it
    promises on the disk is known."""
    disk = SimDisk(Random(1))
    disk.make_directory("d")
    mark = MarkFile.create(disk, "d", STATE)
    mark.write(20, 21, 5)
    wanted = STATE._replace(synced_end=30, high_watermark=31, start_offset=9, incomplete=True)
    disk.fail("write", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        mark.write_state(wanted)
    assert (mark.state, mark.promised_end) == (find_mark(disk, "d")[0], 21)  # type: ignore[index]
    moment = 0
    while True:
        moment += 1
        if not interrupted(partial(mark.write_state, wanted), moment, "log/mark.py"):
            break
        found = find_mark(disk, "d")
        assert found is not None
        if found[0].synced_end != 30:
            assert mark.state == found[0], moment
        mark.write(20, 21, 5)
    assert moment > 10
    assert mark.state == find_mark(disk, "d")[0]  # type: ignore[index]
    mark.close()


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_never_loses_what_was_synced(seed: int) -> None:
    """After power loss at any time the mark is that of the last sync or a later one; after a kill within a write,
    that write or the one before."""
    random = Random(seed)
    disk = SimDisk(Random(seed))
    disk.make_directory("d")
    disk.sync_directory("/")
    mark = MarkFile.create(disk, "d", STATE)
    disk.sync_directory("d")
    synced = written = 10
    for number in range(11, 60):
        mark.write(number, 7, 3)
        written = number
        if random.random() < 0.15:
            mark.sync()
            synced = number
        if random.random() < 0.3:
            left = disk.crash(random)
            found = find_mark(left, "d")
            assert found is not None
            assert synced <= found[0].synced_end <= written
            # The next life goes on from there, and is as safe.
            again = MarkFile.open(left, "d", found[0], found[1], synced=False)
            again.write(1000, 7, 3)
            last = find_mark(left.crash(random), "d")
            assert last is not None
            assert last[0].synced_end in (found[0].synced_end, 1000)
    state = read_mark(disk, "d")
    assert state is not None
    assert state.synced_end == written


def test_a_kill_within_a_write_leaves_the_value_before() -> None:
    """Torn anywhere, a write costs only itself."""
    for size in range(SLOT_SIZE):
        disk = SimDisk(Random(1))
        disk.make_directory("d")
        mark = MarkFile.create(disk, "d", STATE)
        mark.write(11, 7, 3)
        disk.fail("write", partial=size)
        with pytest.raises(OSError, match="injected"):
            mark.write(12, 7, 3)
        found = find_mark(disk, "d")
        assert found is not None
        assert found[0].synced_end == 11


@pytest.mark.parametrize("torn", range(3))
def test_a_sealed_mark_has_no_slot_that_power_loss_tore(place: Place, torn: int) -> None:
    """Whichever it was: who looks at the folder after a life in order finds nothing damaged."""
    mark = make(place)
    mark.write(20, 20, 3)
    mark.write_redundantly()
    mark.write(21, 21, 3)
    mark.sync()
    mark.close()
    content = place.read("replog.mark")
    middle = SLOT_POSITIONS[torn] + 20
    place.write("replog.mark", content[:middle] + b"\xff" * 8 + content[middle + 8 :])
    found = find_mark(place.disk, place.path)
    assert found is not None
    again = MarkFile.open(place.disk, place.path, *found, synced=True)
    again.write(22, 22, 3)
    again.write_redundantly()
    again.close()
    content = place.read("replog.mark")
    slots = [parse_slot(content[position : position + SLOT_SIZE]) for position in SLOT_POSITIONS]
    assert [None if slot is None else slot.synced_end for slot in slots] == [22, 22, 22]


def test_a_sealed_mark_says_the_same_without_any_one_slot(place: Place) -> None:
    """After a life that ended in order no damage to one slot, nor a lost end, brings an older mark back. No write,
    no seal."""
    mark = make(place)
    mark.write(20, 20, 3)
    mark.write_redundantly()
    mark.close()
    content = place.read("replog.mark")
    assert len(content) == SLOT_POSITIONS[-1] + SLOT_SIZE
    for position in SLOT_POSITIONS:
        place.write("replog.mark", content[:position] + bytes(SLOT_SIZE) + content[position + SLOT_SIZE :])
        found = read_mark(place.disk, place.path)
        assert found is not None
        assert (found.synced_end, found.high_watermark, found.start_offset) == (20, 20, 3)
    for size in range(len(content)):
        place.write("replog.mark", content[:size])
        assert read_mark(place.disk, place.path) is None
    place.write("replog.mark", content)
    before = find_mark(place.disk, place.path)
    assert before is not None
    again = MarkFile.open(place.disk, place.path, *before, synced=True)
    again.write_redundantly()
    again.close()
    assert place.read("replog.mark") == content
