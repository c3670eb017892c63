"""Edge cases 35 to 53: offset index, time index, index of aborted transactions."""

from __future__ import annotations

import errno
from random import Random

import pytest

from pyreplog._core import OffsetIndex, TimeIndex
from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, CorruptError, StorageError
from pyreplog.log import open_readers
from pyreplog.log.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_base_offset,
    segment_name,
)
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.log.transaction_index import AbortedRange, TransactionIndex, format_aborted, parse_aborted
from tests.interop.edges.support import INT32_MAX, filled, segments
from tests.interop.golden import vectors
from tests.oracle import batch as oracle
from tests.unit.log.conftest import Place
from tests.unit.log.producing import Play
from tests.unit.log.support import batch, contents, create, reopen

BASE = 100


@pytest.mark.parametrize(("kind", "nothing"), [(OffsetIndex, (BASE, 0)), (TimeIndex, (-1, BASE))])
def test_e035_before_the_first_entry(kind: type[OffsetIndex] | type[TimeIndex], nothing: tuple[int, int]) -> None:
    """Below its first entry, and empty, an index answers with the beginning of its segment."""
    index = kind(BASE)
    for asked in (-(2**63), -1, 0, BASE, 2**63 - 1):
        assert index.lookup(asked) == nothing
    first = (120, 7) if kind is OffsetIndex else (5000, 120)
    index.append(*first)
    assert [index.lookup(asked) for asked in (-1, 0, first[0] - 1)] == [nothing] * 3
    assert [index.lookup(asked) for asked in (first[0], first[0] + 1, 2**63 - 1)] == [first] * 3


@pytest.mark.parametrize("count", [1, 2, 3, 10, 400, 3000])
def test_e036_lookups_agree_with_a_sorted_map(count: int) -> None:
    """Whatever is in them, both indexes find what a plain search finds: at, between, below and above their
    entries."""
    random = Random(count)
    offsets, plain_offsets = OffsetIndex(BASE), oracle.OffsetIndex(BASE)
    times, plain_times = TimeIndex(BASE), oracle.TimeIndex(BASE)
    offset, position, timestamp = BASE, 0, 1000
    for _ in range(count):
        offset, position, timestamp = (
            offset + random.randrange(1, 9),
            position + random.randrange(500),
            timestamp + random.randrange(1, 30),
        )
        offsets.append(offset, position)
        plain_offsets.append(offset, position)
        times.append(timestamp, offset)
        plain_times.append(timestamp, offset)
    for asked in (
        *range(BASE - 2, BASE + 40),
        *range(offset - 40, offset + 3),
        *random.choices(range(BASE, offset + 1), k=300),
    ):
        assert offsets.lookup(asked) == plain_offsets.lookup(asked)
    for asked in (
        *range(990, 1100),
        *range(timestamp - 90, timestamp + 3),
        *random.choices(range(1000, timestamp + 1), k=300),
    ):
        assert times.lookup(asked) == plain_times.lookup(asked)
    assert (offsets.data(), times.data()) == (plain_offsets.data(), plain_times.data())


def test_e037_out_of_order_or_full(place: Place) -> None:
    """An entry that does not rise is refused and changes nothing; an index that is full gets none: its segment is
    closed before."""
    index = OffsetIndex(BASE)
    index.append(105, 50)
    for offset, position in ((105, 60), (104, 60), (101, 60), (106, 49)):
        with pytest.raises(CorruptError, match="order"):
            index.append(offset, position)
    assert (index.count, index.last) == (1, (105, 50))
    for size in (40, 60, 61, 200):
        log = create(place.disk, place.of(f"{size}-0"), _small_index(size))
        for number in range(30):
            log.append_as_leader(batch(1, timestamp=number), 0)
        found = segments(log)
        assert len(found) > 1
        for segment in found:
            # Full is full: the next batch's entry would not have had room.
            assert segment.indexes.offsets.count <= size // 8
            assert segment.indexes.times.count <= size // 12
        for segment in found[:-1]:
            assert segment.indexes.offsets.count == min(size // 8, size // 12 - 1)
        assert [one.offset for one in contents(log)] == list(range(30))
        log.close(clean=True)


def _small_index(size: int) -> LogConfig:
    """An entry for each batch but the first of a segment, and room for ``size`` bytes of them."""
    return LogConfig(index_interval_bytes=0, segment_index_bytes=size)


@pytest.mark.parametrize("base", [0, BASE, 2**63 - 1 - INT32_MAX])
def test_e038_offsets_beyond_an_index(base: int) -> None:
    """An offset of base + 2**31 - 1 has its entry; base + 2**31, or one below the base, does not."""
    for kind in (OffsetIndex, TimeIndex):
        index = kind(base)
        for wrong in (base + INT32_MAX + 1, base + 2**32, base - 1):
            with pytest.raises((CorruptError, OverflowError)):
                index.append(*((wrong, 0) if kind is OffsetIndex else (5, wrong)))
        assert index.count == 0
        entry = (base + INT32_MAX, 0) if kind is OffsetIndex else (5, base + INT32_MAX)
        index.append(*entry)
        assert index.last == kind(base, index.data()).last == entry


def test_e039_truncations() -> None:
    """Past the end, at it, at an entry, between entries, and to nothing: what is at or above goes, and the rest
    goes on."""
    for cut, left in (
        (10**9, 2),
        (111, 2),
        (110, 1),
        (107, 1),
        (105, 1),
        (104, 0),
        (101, 0),
        (100, 0),
        (0, 0),
        (-5, 0),
    ):
        offsets, times = OffsetIndex(BASE, vectors.A9_OFFSET_INDEX), TimeIndex(BASE, vectors.A10_TIME_INDEX)
        for index in (offsets, times):
            entries = [index.entry(slot) for slot in range(left)]
            index.truncate(cut)
            assert [index.entry(slot) for slot in range(index.count)] == entries, cut
        offsets.append(200, 5000)
        times.append(1700000009999, 200)
        assert (offsets.count, times.count) == (left + 1, left + 1)
        assert (offsets.lookup(10**6), times.lookup(2**60)) == ((200, 5000), (1700000009999, 200))


def test_e040_an_entry_at_the_base() -> None:
    """The last offset of an index may be its base: it is found, kept, read again and cut."""
    for kind, entry in ((OffsetIndex, (BASE, 0)), (TimeIndex, (7, BASE))):
        index = kind(BASE)
        index.append(*entry)
        assert (index.count, index.last, index.lookup(entry[0])) == (1, entry, entry)
        assert kind(BASE, index.data()).last == entry
        index.truncate(BASE + 1)
        assert index.count == 1
        index.truncate(BASE)
        assert index.count == 0


def test_e041_an_index_for_reading(place: Place) -> None:
    """Who opened a segment for reading looks up in its indexes, and cannot write them: the files stay as they
    are."""
    log = filled(place)
    log.set_high_watermark(80)
    log.close(clean=True)
    names = [name for name in place.disk.list(place.of("t-0")) if name.endswith("index")]
    before = {name: place.read(f"t-0/{name}") for name in names}
    for name in names:
        file = place.disk.open(place.of(f"t-0/{name}"))
        with pytest.raises(StorageError) as caught:
            file.write_at(0, [bytes(12)])
        assert caught.value.errno == errno.EBADF
        with pytest.raises(StorageError):
            file.truncate(0)
        file.close()
    # A reader of the log, also where an index is wrong or gone: what it makes anew stays in memory.
    name = segment_name(0, INDEX_SUFFIX)
    for bad in (before[name], b"\xff" * 16, None):
        place.disk.remove(place.of(f"t-0/{name}"))
        if bad is not None:
            place.write(f"t-0/{name}", bad)
        ((_, reader),) = open_readers(place.disk, place.of("t-0")).items()
        for offset in (0, 2, 7, 40):
            assert next(reader.batches(offset, 80)).base_offset == offset // 2 * 2
        assert reader.find_timestamp(20_500) == (42, 21_000)
        reader.close()
        size = len(place.read(f"t-0/{segment_name(0, LOG_SUFFIX)}"))
        segment = SegmentReader(place.disk, place.of("t-0"), 0, size=size, index_interval=0)
        assert segment.indexes.offsets.count > 3
        with pytest.raises(StorageError):
            segment.file.write_at(size, (batch(2),))
        segment.release()
        found = {one: place.read(f"t-0/{one}") for one in names if one in place.disk.list(place.of("t-0"))}
        assert found == {one: content for one, content in before.items() if one != name} | (
            {} if bad is None else {name: bad}
        )


def test_e042_upper_bounds(place: Place) -> None:
    """What bounds the search for aborted transactions is exact: at a transaction's first offset, one behind it, far
    behind."""
    log = create(place.disk, place.of("t-0"))
    play = Play(log)
    play.other()
    play.data(1)  # 1, 2
    play.end(1, commit=False)  # 3
    play.other()
    log.set_high_watermark(log.end_offset)
    assert [len(log.aborted_transactions(0, end)) for end in (1, 2, 3, 5)] == [0, 1, 1, 1]
    assert [len(log.aborted_transactions(start, 5)) for start in (0, 1, 3, 4)] == [1, 1, 1, 0]
    log.close(clean=True)


def test_e043_a_preallocated_index(place: Place) -> None:
    """An index file longer than its entries (zeros behind them) has the same entries, and is cut to them when it is
    closed."""
    log = filled(place)
    log.close(clean=True)
    last = max(base for name in place.disk.list(place.of("t-0")) if (base := parse_base_offset(name)) is not None)
    before = {}
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        name = f"t-0/{segment_name(last, suffix)}"
        before[name] = place.read(name)
        assert before[name]
        place.write(name, before[name] + bytes(240))
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert log.find_timestamp(38_500, log.end_offset) == (78, 39_000)
    assert log.append_as_leader(batch(1), 0).base_offset == 80
    log.truncate_to(80)
    log.close(clean=True)
    for name, content in before.items():
        assert place.read(name) == content


def test_e044_times_rise() -> None:
    """An equal or smaller timestamp is no entry, and no error; a greater one whose offset falls is an error."""
    index = TimeIndex(BASE)
    assert index.append(-1, 105) is False
    assert index.append(1000, 105) is True
    for timestamp, offset in ((1000, 105), (1000, 200), (999, 200), (-1, 300)):
        assert index.append(timestamp, offset) is False
        assert (index.count, index.last) == (1, (1000, 105))
    with pytest.raises(CorruptError, match="order"):
        index.append(1001, 104)
    assert (index.count, index.last) == (1, (1000, 105))
    assert index.append(1001, 105) is True
    assert index.append(1002, 200) is True
    assert index.data() == oracle_times((1000, 105), (1001, 105), (1002, 200))


def oracle_times(*entries: tuple[int, int]) -> bytes:
    """The file of a time index."""
    plain = oracle.TimeIndex(BASE)
    plain.entries = list(entries)
    return plain.data()


def test_e045_the_time_index_is_full_one_entry_early(place: Place) -> None:
    """With room for n time entries a segment is closed after n - 1, so that there is room for a final one."""
    log = filled(place, segment_bytes=1 << 20, segment_index_bytes=60)
    assert len(segments(log)) > 3
    for segment in segments(log)[:-1]:
        assert segment.indexes.times.count == 4
        assert segment.indexes.offsets.count == 4
    log.close(clean=True)


def test_e046_use_after_release(place: Place) -> None:
    """A segment whose files were closed opens them again when asked; a closed log says so."""
    log = filled(place)
    for segment in segments(log)[:-1]:
        segment.release()
        assert segment.position_of(segment.base_offset) == 0
    index = segments(log)[0].indexes.offsets
    log.close(clean=True)
    assert index.count
    with pytest.raises(ClosedError):
        log.read(0, 100, 80)


def test_e047_what_cannot_be_an_index(place: Place) -> None:
    """A length that is no multiple of an entry leaves the whole ones; entries that do not rise are refused; a log
    makes its index anew."""
    for extra in range(1, 12):
        if extra < 8:
            assert OffsetIndex(BASE, vectors.A9_OFFSET_INDEX + b"\7" * extra).data() == vectors.A9_OFFSET_INDEX
        assert TimeIndex(BASE, vectors.A10_TIME_INDEX + b"\7" * extra).data() == vectors.A10_TIME_INDEX
    offsets, times = vectors.A9_OFFSET_INDEX, vectors.A10_TIME_INDEX
    wrong_offsets = (offsets[8:] + offsets[:8], offsets + offsets[8:], offsets + bytes(8), b"\xff" * 4 + bytes(4))
    for data in wrong_offsets:
        with pytest.raises(CorruptError, match="order"):
            OffsetIndex(BASE, data)
    for data in (times[12:] + times[:12], times + times[12:], times + bytes(12)):
        with pytest.raises(CorruptError, match="order"):
            TimeIndex(BASE, data)
    log = filled(place)
    log.close(clean=True)
    name = f"t-0/{segment_name(0, INDEX_SUFFIX)}"
    good = place.read(name)
    for bad in (good[:-3], good + b"\7" * 5, good[:-8] + good[:8], good[8:] + good[:8], good + bytes(8)):
        place.write(name, bad)
        log = reopen(place.disk, place.of("t-0"), clean=True)
        log.set_tail_cache_size(0)
        for offset in range(80):
            assert contents(log, offset)[0].offset == offset
        assert segments(log)[0].position_of(2) == batch(2).nbytes
        log.close(clean=True)


# -- aborted transactions --


def aborted(first: int, last: int, producer: int = 1) -> AbortedRange:
    """A transaction that was aborted, with no other open."""
    return AbortedRange(producer, first, last, last + 1)


def index_of(place: Place, base: int = BASE) -> TransactionIndex:
    """The index of a segment, as somebody finds it who opens it."""
    return TransactionIndex(place.disk, place.path, base)


def test_e048_no_file_before_an_entry(place: Place) -> None:
    """Looking, writing, truncating, syncing and closing make no file; the first entry does, once it is written."""
    index = index_of(place)
    assert index.entries == []
    index.write()
    index.truncate(0)
    assert index.files() == []
    index.close()
    assert place.disk.stat(index.path) is None
    index.append(aborted(101, 110))
    assert place.disk.stat(index.path) is None
    index.write()
    found = place.disk.stat(index.path)
    assert found is not None
    assert (found.size, len(index.files())) == (34, 1)
    index.close()
    # So it is with a log: nothing aborted, no file.
    log = create(place.disk, place.of("t-0"))
    play = Play(log)
    play.data(1)
    play.end(1, commit=True)
    log.close(clean=True)
    assert not [name for name in place.disk.list(place.of("t-0")) if name.endswith(TRANSACTION_INDEX_SUFFIX)]


@pytest.mark.parametrize("again", [False, True])
def test_e049_last_offsets_rise(place: Place, again: bool) -> None:
    """An entry that does not end behind the one before is refused and changes nothing, also after the index was
    opened again."""
    index = index_of(place)
    index.append(aborted(101, 110))
    index.append(aborted(105, 120))
    if again:
        index.write()
        index.close()
        index = index_of(place)
    for last in (120, 119, 110, 101):
        with pytest.raises(CorruptError, match="after 120"):
            index.append(aborted(101, last))
    index.append(aborted(101, 121, producer=9))
    index.write()
    index.close()
    assert [entry.last_offset for entry in index_of(place).entries] == [110, 120, 121]


def test_e050_which_reach_into_a_range(place: Place) -> None:
    """For a range come those transactions that overlap it, left, right or inside, from one segment or several, and
    no other."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    play = Play(log)
    ranges = []
    for number in range(40):
        first = log.end_offset
        play.data(1)
        if number % 3 == 0:
            play.data(2)
            play.end(2, commit=False)
            ranges.append((2, first + 2, log.end_offset - 1))
        play.end(1, commit=False)
        ranges.append((1, first, log.end_offset - 1))
    log.set_high_watermark(log.end_offset)
    assert len([one for one in segments(log) if one.transactions.entries]) > 3
    ranges.sort(key=lambda one: one[2])
    end = log.end_offset
    for start in range(0, end, 3):
        for stop in (*range(start + 1, min(start + 12, end)), end):
            expected = [one for one in ranges if one[2] >= start and one[1] < stop]
            assert [entry[:3] for entry in log.aborted_transactions(start, stop)] == expected, (start, stop)
    # Each entry says from where on everything is settled: who has read that far need not look on.
    for entry in log.aborted_transactions(0, end):
        still_open = [first for _, first, last in ranges if first < entry.last_offset < last]
        assert entry.last_stable_offset == min(still_open, default=entry.last_offset + 1)
    log.close(clean=True)


def test_e051_cut_and_gone_on_with(place: Place) -> None:
    """After a truncation what ended below it is there, in the file too, and what comes then is behind it."""
    index = index_of(place)
    for last in (110, 120, 130):
        index.append(aborted(101, last))
    index.write()
    index.truncate(120)
    assert len(place.read(segment_name(BASE, TRANSACTION_INDEX_SUFFIX))) == 34
    index.append(aborted(111, 125, producer=2))
    index.write()
    index.close()
    assert index_of(place).entries == [aborted(101, 110), aborted(111, 125, producer=2)]
    index = index_of(place)
    index.truncate(BASE)
    index.append(aborted(101, 102))
    index.write()
    index.close()
    assert index_of(place).entries == [aborted(101, 102)]


def test_e052_removed_when_it_is_not_there(place: Place) -> None:
    """Segments without this file are removed, set aside and truncated as those with it."""
    log = filled(place)
    log.set_high_watermark(60)
    assert not [name for name in place.disk.list(place.of("t-0")) if name.endswith(TRANSACTION_INDEX_SUFFIX)]
    log.increment_start_offset(segments(log)[2].base_offset)
    assert log.apply_retention(confirmed=True) == 2
    log.truncate_to(segments(log)[2].base_offset + 1)
    log.truncate_fully(500)
    log.close(clean=True)
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert (log.start_offset, log.end_offset) == (500, 500)
    log.close(clean=True)


def test_e053_an_entry_below_its_segment(place: Place) -> None:
    """It makes the index corrupt, and opening the log after an unclean end makes the index anew."""
    below = format_aborted([AbortedRange(1, 90, 99, 100)])
    with pytest.raises(CorruptError, match="out of order after 99"):
        parse_aborted(below, BASE, "x")
    assert parse_aborted(below, 99, "x") == [AbortedRange(1, 90, 99, 100)]
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    play = Play(log)
    while len(segments(log)) < 3:
        play.data(1, 4)
        play.end(1, commit=False)
    log.set_high_watermark(log.end_offset)
    expected = log.aborted_transactions(0, log.end_offset)
    base = segments(log)[1].base_offset
    log.close(clean=True)
    for clean in (False, True):
        place.write(
            f"t-0/{segment_name(base, TRANSACTION_INDEX_SUFFIX)}", format_aborted([AbortedRange(1, 0, base - 1, base)])
        )
        log = reopen(place.disk, place.of("t-0"), clean=clean)
        log.set_high_watermark(log.end_offset)
        assert log.aborted_transactions(0, log.end_offset) == expected
        log.close(clean=True)
