"""The files of a table: which ones are trusted, and a crash at each call of their user."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial

import pytest

from pyreplog.errors import ClosedError, CorruptError, StorageError
from pyreplog.readers import TableState, TableStore, read_table_header
from pyreplog.testing import SimDisk, crash_points, error_points

PATH = "root/replog.table-t-0"
Fact = int
"""The number of a round that was applied."""


def opened(disk: SimDisk, identity: str = "one") -> TableStore:
    """Open the table of the log ``identity``."""
    disk.make_directory("root")
    return TableStore(disk, "root", "t-0", identity)


def shown(table: TableStore) -> tuple[TableState | None, dict[bytes, bytes]]:
    """Return the state and all entries."""
    with table.change() as state:
        pass
    return state, dict(table.entries())


def changes(number: int) -> dict[bytes, bytes | None]:
    """Return the changes of a round: new keys, a changed one, a deleted one, a long one."""
    return {
        b"key-%d" % number: b"value-%d" % number,
        b"": b"%d" % number,
        b"x" * 600: b"long-%d" % number,
        b"key-%d" % (number - 2): None,
    }


def content(count: int) -> dict[bytes, bytes]:
    """Return the entries after ``count`` rounds."""
    entries: dict[bytes, bytes] = {}
    for number in range(count):
        for key, value in changes(number).items():
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
    return entries


def apply(table: TableStore, number: int) -> None:
    """Carry out one round, if it is the next one; begin again if the store is new."""
    with table.change() as state:
        done = 0 if state is None else state.next_offset
        for one in range(done, number + 1):
            table.apply(changes(one), TableState(one + 1, 7))


def test_what_was_applied_is_shown_after_reopening() -> None:
    """Entries, their number and the state; one more opening shares them; the files close once."""
    disk = SimDisk()
    table = opened(disk)
    for number in range(5):
        apply(table, number)
    assert shown(table) == (TableState(5, 7), content(5))
    assert table.count() == len(content(5))
    assert [table.get(key) for key in (b"key-4", b"key-0", b"", b"x" * 600)] == [b"value-4", None, b"4", b"long-4"]
    table.close()
    table.close()
    with pytest.raises(ClosedError):
        table.get(b"")
    assert shown(opened(disk)) == (TableState(5, 7), content(5))


@pytest.mark.parametrize(
    "damage", ["header", "cut", "longer", "gone", "other store", "no store", "store of nobody", "state", "other log"]
)
def test_files_that_are_not_as_they_were_left_are_made_again(damage: str) -> None:
    """Whatever is wrong, the next change finds an empty store, and goes on from nothing."""
    disk = SimDisk()
    table = opened(disk)
    apply(table, 3)
    table.close()
    identity = "one"
    if damage == "header":
        disk.flip(PATH, 9)
    elif damage in ("cut", "longer"):
        with_size = disk.open(PATH, write=True)
        with_size.truncate(with_size.size() + (1 if damage == "longer" else -1))
    elif damage == "gone":
        disk.remove(PATH)
    elif damage == "other store":
        other = disk.create("root/copy")
        source = disk.open(PATH + ".db")
        other.write_at(0, [bytes(source.read_at(0, source.size()))])
        disk.rename("root/copy", PATH + ".db")
    elif damage == "no store":
        disk.remove(PATH + ".db")
    elif damage == "store of nobody":
        store = disk.open(PATH + ".db", write=True)
        store.write_at(0, [b"no store"])
    elif damage == "state":
        written = disk.open_store(PATH + ".db", write=True)
        written.write([(b"\0", None)])
        written.close()
    else:
        identity = "two"
    table = opened(disk, identity)
    assert shown(table) == (None, {})
    apply(table, 4)
    assert shown(table) == (TableState(5, 7), content(5))


def test_a_store_that_was_replaced_while_it_is_open_is_left() -> None:
    """A change in another opening that made the store again is seen by the next change here."""
    disk = SimDisk()
    one, two = opened(disk), opened(disk)
    apply(one, 2)
    assert shown(two)[0] == TableState(3, 7)
    with two.change():
        two.remake()
        two.apply({b"a": b"b"}, TableState(9, 8))
    assert shown(one) == (TableState(9, 8), {b"a": b"b"})


def life(disk: SimDisk, facts: list[Fact]) -> None:
    """Apply rounds in two openings, one after another."""
    for first in (0, 3):
        table = opened(disk)
        for number in range(first, first + 3):
            apply(table, number)
            facts.append(number + 1)
        table.close()


def check_life(disk: SimDisk, facts: Sequence[Fact], *, lost_power: bool) -> None:
    """A crash leaves the picture of one round, or no trusted store; after a kill, of no earlier round than told, unless
    it tore the header."""
    try:
        read_table_header(bytes(disk.open(PATH).read_at(0, 1000)), PATH)
    except (CorruptError, StorageError):
        lost_power = True
    table = opened(disk)
    state, entries = shown(table)
    if state is None:
        assert entries == {}
    else:
        assert entries == content(state.next_offset)
        assert state.next_offset <= 7
    if not lost_power and facts:
        assert state is not None
        assert state.next_offset >= facts[-1]
    apply(table, 6)
    assert shown(table) == (TableState(7, 7), content(7))
    table.close()


def test_power_loss_at_every_call() -> None:
    """Only a store that was synced at its last close is believed."""
    report = crash_points(partial(life), partial(check_life, lost_power=True), seed=1, damages=4, kills=False)
    assert report.states > 50


def test_a_kill_at_every_call() -> None:
    """The store shows every round that was applied."""
    report = crash_points(partial(life), partial(check_life, lost_power=False), seed=2, damages=0, compound=0)
    assert report.states > 50


def test_an_error_at_every_call() -> None:
    """A call that fails is raised, and leaves the picture of one round."""

    def workload(disk: SimDisk, facts: list[Fact]) -> None:
        try:
            life(disk, facts)
        except StorageError:
            pass

    def check(disk: SimDisk, facts: Sequence[Fact]) -> None:
        disk.clear_faults()
        disk.kill()
        table = opened(disk)
        state, entries = shown(table)
        assert entries == ({} if state is None else content(state.next_offset))
        apply(table, 6)
        assert shown(table)[1] == content(7)

    report = error_points(workload, check, seed=1, errors=(errno.EIO, errno.ENOSPC), every=1)
    assert report.errors > 50


def test_a_header_is_read_only_if_it_is_whole() -> None:
    """Any other bytes are a CorruptError."""
    disk = SimDisk()
    table = opened(disk)
    apply(table, 0)
    data = bytes(disk.open(PATH).read_at(0, 1000))
    header = read_table_header(data, PATH)
    assert not header.is_synced
    assert read_table_header(header.encode(), PATH) == header
    for wrong in (b"", data[:-1], data + b"x", bytes(len(data)), b"X" + data[1:]):
        with pytest.raises(CorruptError):
            read_table_header(wrong, PATH)
