"""The leader epoch history: Kafka's rules, against a slow twin, and its file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import CorruptError, InternalError
from pyreplog.log import EpochCache
from pyreplog.log.epochs import read_epochs, write_epochs
from pyreplog.log.layout import INT64_MAX
from pyreplog.values import EpochEntry
from tests.oracle.epochs import SlowEpochs
from tests.unit.log.conftest import Place

SMALL = st.integers(0, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), SMALL, SMALL),
        st.tuples(st.just("truncate_from_end"), st.integers(-1, 14)),
        st.tuples(st.just("truncate_from_start"), st.integers(-1, 14)),
    ),
    max_size=20,
)


def compare(cache: EpochCache, steps: list[tuple[object, ...]]) -> None:
    """Carry out ``steps`` on ``cache`` and on the slow twin, and compare everything they say."""
    twin = SlowEpochs()
    for name, *values in steps:
        before = cache.entries
        changed = getattr(cache, str(name))(*values)
        getattr(twin, str(name))(*values)
        assert changed == (cache.entries != before)
        assert [tuple(entry) for entry in cache.entries] == twin.entries
    assert cache.latest == (twin.entries[-1][0] if twin.entries else -1)
    for epoch in range(-1, 15):
        assert tuple(cache.end_offset_for(epoch, 20)) == twin.end_offset_for(epoch, 20)
        assert cache.epoch_for_offset(epoch) == twin.epoch_for_offset(epoch)
    assert EpochCache.parse(cache.format()) == cache


@given(STEPS)
def test_it_agrees_with_its_slow_twin(steps: list[tuple[object, ...]]) -> None:
    """After any steps the entries and every answer are those of the slow twin, and each step says whether it
    changed anything."""
    compare(EpochCache(), steps)


class EndOffByOne(EpochCache):
    """A planted bug: an epoch that is not the latest ends one offset late."""

    def end_offset_for(self, epoch: int, end_offset: int) -> EpochEntry:
        found = super().end_offset_for(epoch, end_offset)
        return found if epoch == self.latest or found.epoch < 0 else found._replace(start_offset=found.start_offset + 1)


class KeepsLaterEntries(EpochCache):
    """A planted bug: an entry that begins exactly at the cut stays."""

    def truncate_from_end(self, offset: int) -> bool:
        return super().truncate_from_end(offset + 1)


@pytest.mark.parametrize("bug", [EndOffByOne, KeepsLaterEntries])
def test_a_planted_bug_is_caught(bug: type[EpochCache]) -> None:
    """The slow twin tells an epoch's end that is off by one, and a cut that is."""
    with pytest.raises(AssertionError):
        compare(
            bug(), [("assign", 0, 0), ("assign", 1, 5), ("assign", 2, 9), ("truncate_from_end", 9), ("assign", 4, 9)]
        )


@given(STEPS, STEPS)
def test_histories_agree_up_to_where_they_part(
    left_steps: list[tuple[object, ...]], right_steps: list[tuple[object, ...]]
) -> None:
    """From where the later one begins up to the offset given, both histories give every offset the same epoch, and
    at it they do not: a history of which deleted records took the beginning still agrees."""
    left, right = EpochCache(), EpochCache()
    for cache, steps in ((left, left_steps), (right, right_steps)):
        for name, *values in steps:
            getattr(cache, str(name))(*values)
    part = left.agrees_up_to(right)
    assert part == right.agrees_up_to(left)
    begin = max((cache.entries[0].start_offset for cache in (left, right) if cache.entries), default=0)
    for offset in range(begin, min(part, begin + 60)):
        assert left.epoch_for_offset(offset) == right.epoch_for_offset(offset)
    if part == INT64_MAX:
        assert left.latest == right.latest
    else:
        assert part >= begin or not (left.entries and right.entries)
        assert left.epoch_for_offset(part) != right.epoch_for_offset(part)


def test_a_history_whose_beginning_was_deleted_agrees() -> None:
    """Only what both still tell of can differ."""
    whole = EpochCache([(0, 0), (1, 8)])
    assert EpochCache([(0, 5), (1, 8)]).agrees_up_to(whole) == INT64_MAX
    assert EpochCache([(1, 9)]).agrees_up_to(whole) == INT64_MAX
    assert EpochCache([(0, 5), (1, 10)]).agrees_up_to(whole) == 8
    assert EpochCache([(2, 9)]).agrees_up_to(whole) == 9


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_negative_values_are_a_bug(epoch: int, offset: int) -> None:
    """Nobody may assign a negative epoch or offset."""
    with pytest.raises(InternalError):
        EpochCache().assign(epoch, offset)


@pytest.mark.parametrize("entries", [[(1, 0), (1, 5)], [(2, 0), (1, 5)], [(1, 5), (2, 5)], [(1, 5), (2, 4)], [(-1, 0)]])
def test_entries_rise_in_both(entries: list[tuple[int, int]]) -> None:
    """A history that does not rise strictly in epoch and offset is refused."""
    with pytest.raises(CorruptError):
        EpochCache(entries)


def test_the_file_keeps_it(place: Place) -> None:
    """What is written is read again, by Kafka's text; no file is None."""
    assert read_epochs(place.disk, place.path) is None
    cache = EpochCache([(0, 0), (3, 17), (4, 2**40)])
    write_epochs(place.disk, place.path, cache)
    assert place.read("leader-epoch-checkpoint") == b"0\n3\n0 0\n3 17\n4 1099511627776\n"
    assert read_epochs(place.disk, place.path) == cache
    write_epochs(place.disk, place.path, EpochCache(), durable=True)
    assert read_epochs(place.disk, place.path) == EpochCache()


CONTENT = EpochCache([(0, 0), (3, 17), (12, 345)]).format()


@pytest.mark.parametrize("size", range(len(CONTENT)))
def test_a_cut_file_is_refused_or_harmless(size: int) -> None:
    """Cut at any byte the file is refused, or says the same less its last line break or digits, which the mark's
    checksum tells."""
    try:
        cut = EpochCache.parse(CONTENT[:size])
    except CorruptError:
        return
    assert size < 2 or cut.checksum() != EpochCache.parse(CONTENT).checksum() or size == len(CONTENT) - 1


def test_every_flipped_bit_is_refused_or_told_by_the_checksum() -> None:
    """Any flipped bit makes the file no history, or one whose checksum differs, or changes nothing."""
    told = 0
    for position in range(len(CONTENT)):
        for bit in range(8):
            flipped = bytearray(CONTENT)
            flipped[position] ^= 1 << bit
            try:
                cache = EpochCache.parse(bytes(flipped))
            except CorruptError:
                told += 1
                continue
            if cache != EpochCache.parse(CONTENT):
                assert cache.checksum() != EpochCache.parse(CONTENT).checksum()
                told += 1
    assert told > len(CONTENT) * 7
