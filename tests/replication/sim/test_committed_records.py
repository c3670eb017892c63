"""The history of a compacted partition says what a copy may lack, and nothing else may differ."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyreplog.record import BatchBuilder, RecordBatch
from pyreplog.testing.checkers import CommittedRecords

Row = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""


def log(*rows: Row, epoch: int = 0) -> list[RecordBatch]:
    """One batch for each record."""
    found = []
    for offset, key, value in rows:
        builder = BatchBuilder()
        assert builder.append(value, key, [], 1000)
        found.append(RecordBatch(builder.finish(base_offset=offset, leader_epoch=epoch)))
    return found


ROWS: tuple[Row, ...] = (
    (0, b"a", b"1"),
    (1, b"b", b"1"),
    (2, b"a", b"2"),
    (3, b"c", b"1"),
    (4, b"c", None),
    (5, None, b"no key"),
    (6, b"b", b"2"),
)
END = 7


def history(*, dropped: Sequence[int] = ()) -> CommittedRecords:
    """All rows committed; these tombstones dropped rightly."""
    found = CommittedRecords()
    for one in log(*ROWS):
        found.add(one)
    found.dropped = dict.fromkeys(dropped)
    return found


def without(*offsets: int) -> list[RecordBatch]:
    """A copy that lacks these."""
    return log(*(row for row in ROWS if row[0] not in offsets))


@pytest.mark.parametrize("offsets", [(), (0,), (1,), (3,), (0, 1, 3)])
def test_what_is_replaced_may_be_missing(offsets: tuple[int, ...]) -> None:
    """A later record of the key is committed."""
    assert history().wrong(without(*offsets), 0, END) == ""


@pytest.mark.parametrize(("offset", "text"), [(2, "b'a' = b'2'"), (6, "b'b' = b'2'"), (5, "None"), (4, "a tombstone")])
def test_the_newest_of_a_key_may_not_be_missing(offset: int, text: str) -> None:
    """Neither a value nor a tombstone, and a record without a key never goes."""
    about = history().wrong(without(offset), 0, END)
    assert about.startswith(f"offset {offset} is missing")
    assert text in about


def test_a_dropped_tombstone_may_be_missing_with_all_before_it() -> None:
    """But not while an older record of its key is there: the key would be back."""
    known = history(dropped=[4])
    assert known.wrong(without(3, 4), 0, END) == ""
    assert known.wrong(without(4), 0, END).startswith("its newest record of a key is at 3: b'c' = b'1'; offset 4 is")


def test_a_shorter_copy_may_lack_what_a_later_record_will_replace() -> None:
    """A follower that fetches from a compacted copy has an older record until it comes to the newest."""
    known = history()
    for one in log((7, b"a", b"3")):
        known.add(one)
    assert known.wrong(without(2, 6), 0, 6) == ""
    assert known.wrong([*without(2)], 0, END) == "", "the record at 7 is not fetched yet"
    assert known.wrong([*without(2), *log((7, b"a", b"3"))], 0, END + 1) == ""
    assert known.wrong(without(2, 4, 5, 6), 0, 4) == ""


def test_records_below_the_start_are_deletions() -> None:
    """They may be missing whatever they are."""
    assert history().wrong(without(0, 1, 2), 3, END) == ""


def test_what_is_there_is_what_was_committed() -> None:
    """Another value, another epoch, another place, a batch twice: each is found."""
    known = history()
    assert known.wrong([*without(2)[:2], *log((2, b"a", b"X"))], 0, 3).startswith("offset 2 is b'a' = b'X', and")
    assert "and None was committed" in known.wrong(log((9, b"z", b"1")), 0, 10)
    assert "was committed" in known.wrong(log(ROWS[0], epoch=1), 0, 1)
    assert "begins below the end" in known.wrong([*log(*ROWS), *log(ROWS[3])], 0, END)


def test_a_pass_leaves_one_record_of_a_key() -> None:
    """Below its end; what is above may replace it later."""
    known = history()
    assert known.not_replaced(without(0, 1, 3), 0, END) == ""
    assert known.not_replaced(without(0), 0, END).startswith("offset 3 is there beside 4")
    assert known.not_replaced(without(0), 0, 4) == ""


def test_a_reader_gets_the_newest_record_of_each_key() -> None:
    """Of a key whose tombstone was dropped it gets nothing, or the tombstone."""
    known = history(dropped=[4])
    assert known.wrong_table({2: b"2", 5: b"no key", 6: b"2"}) == ""
    assert known.wrong_table({0: b"1", 2: b"2", 3: b"1", 4: b"", 6: b"2"}) == ""
    assert known.wrong_table({2: b"2", 3: b"1", 6: b"2"}).startswith("has offset 3 as the newest of b'c'; that is at 4")
    assert known.wrong_table({2: b"2", 1: b"1"}).startswith("has offset 1 as the newest of b'b'; that is at 6")
    assert history().wrong_table({2: b"2", 6: b"2"}).startswith("has offset -1 as the newest of b'c'")
