"""The scan of a segment and the searches by header: what Kafka's files say, and the twin; any chunk sizes, any
damage."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyreplog._core import (
    BatchBuilder,
    OffsetIndex,
    SegmentScanner,
    TimeIndex,
    TimeSearch,
    find_offset,
    find_timestamp,
    whole_batches,
)
from pyreplog.errors import CorruptError, raise_for_status
from tests.interop.golden import units, vectors
from tests.oracle import batch as oracle

INT_MAX = 2**31 - 1
WORDS = {
    "length": -3,
    "magic": -4,
    "crc": -5,
    "order": -7,
    "offsets": -7,
    "count": -8,
    "range": -13,
    "epoch": -15,
    "cut": 0,
    "": 0,
}


def batch(base: int, count: int = 1, *, size: int = 10, epoch: int = 0, timestamp: int = 0) -> bytes:
    """A batch of ``count`` records of ``size`` bytes each."""
    builder = BatchBuilder()
    builder.extend([bytes(size)] * count, None, None, None, timestamp, 0)
    return bytes(builder.finish(base_offset=base, leader_epoch=epoch))


def segment(*sizes: int, base: int = 0, epochs: tuple[int, ...] = (0,), timestamps: tuple[int, ...] = (0,)) -> bytes:
    """Batches one after the other; epochs and timestamps are taken in turn."""
    data = b""
    for i, size in enumerate(sizes):
        data += batch(
            base, 2, size=size, epoch=epochs[min(i, len(epochs) - 1)], timestamp=timestamps[i % len(timestamps)]
        )
        base += 2
    return data


def begins_as_of_old(data: bytes) -> bool:
    """Whether ``data`` may be the beginning of a message of magic 0 or 1, of which the rest is missing."""
    length = int.from_bytes(data[8:12], signed=True)
    return data[16] <= 1 and (14, 22)[data[16]] <= length <= INT_MAX - 12 and length > len(data) - 12


def agrees(data: bytes, base: int = 0, interval: int = 4096) -> SegmentScanner:
    """A scanner that took ``data`` at once, after comparing all it says with the twin."""
    scanner = SegmentScanner(base, index_interval=interval)
    twin = oracle.scan(data, base, interval)
    assert scanner.feed(data) == twin.valid_size == scanner.position
    problem = twin.problem
    if problem == "magic" and not twin.valid_size and begins_as_of_old(data):
        problem = "cut"  # the twin knows no messages of old, which come before all batches
    assert scanner.status == WORDS[problem]
    assert (scanner.next_offset, scanner.max_timestamp, scanner.epochs) == (
        twin.next_offset,
        twin.max_timestamp,
        twin.epochs,
    )
    assert scanner.offset_entries() == twin.offset_entries
    assert scanner.time_entries() == twin.time_entries
    return scanner


def test_nothing() -> None:
    """An empty segment is at its base, without entries."""
    scanner = agrees(b"", 77)
    assert (scanner.next_offset, scanner.last_epoch, scanner.max_timestamp, scanner.batch_count) == (77, -1, -1, 0)
    assert (scanner.needed, scanner.bytes_since_entry, scanner.max_timestamp_offset) == (0, 0, 77)


def test_index_rule() -> None:
    """An entry for each batch that begins MORE than the interval after the last entry's batch; the first batch
    never has one."""
    size = len(batch(0, 2, size=100))
    data = segment(*[100] * 6)
    scanner = agrees(data, interval=2 * size)
    assert struct.unpack(">2i", scanner.offset_entries()) == (7, 3 * size)
    assert scanner.bytes_since_entry == 3 * size
    assert len(agrees(data, interval=2 * size - 1).offset_entries()) == 2 * 8
    assert len(agrees(data, interval=0).offset_entries()) == 5 * 8
    assert agrees(data, interval=10**6).offset_entries() == b""


def test_time_entries_name_the_earliest_batch() -> None:
    """An entry is the running maximum with the last offset of the first batch that has it; equal timestamps add
    nothing."""
    data = segment(*[50] * 6, timestamps=(5, 9, 9, 3, 9, 10))
    scanner = agrees(data, interval=0)
    entries = [
        struct.unpack_from(">qi", scanner.time_entries(), at) for at in range(0, len(scanner.time_entries()), 12)
    ]
    assert entries == [(9, 3), (10, 11)]
    assert (scanner.max_timestamp, scanner.max_timestamp_offset) == (10, 11)


def test_final_time_entry() -> None:
    """A segment without index entries still gets the closing time entry, once; one without timestamps gets none."""
    scanner = SegmentScanner(0)
    scanner.feed(batch(0, timestamp=5))
    assert scanner.time_entries() == struct.pack(">qi", 5, 0) == scanner.time_entries()
    assert agrees(batch(0, timestamp=-1)).time_entries() == b""


def test_epochs() -> None:
    """Each epoch is told with the first offset of its first batch; a fall is refused."""
    data = segment(10, 10, 10, 10, epochs=(2, 2, 5, 9))
    assert agrees(data).epochs == [(2, 0), (5, 4), (9, 6)]
    assert agrees(data).last_epoch == 9
    scanner = agrees(segment(10, epochs=(3,)) + batch(2, epoch=2))
    assert (scanner.status, scanner.next_offset) == (-15, 2)
    with pytest.raises(CorruptError, match="leader epoch falls"):
        raise_for_status(scanner.status, scanner.position)


def test_offsets() -> None:
    """Gaps are legal, overlaps are not, and nothing lies beyond base + INT_MAX."""
    assert agrees(batch(5) + batch(100), 0).next_offset == 101
    assert agrees(batch(5, 3) + batch(7)).status == -7
    assert agrees(batch(5), 6).status == -7
    assert agrees(batch(100 + INT_MAX), 100).next_offset == 101 + INT_MAX
    assert agrees(batch(100 + INT_MAX, 2), 100).status == -13
    assert agrees(batch(101 + INT_MAX), 100).status == -13
    assert SegmentScanner(0, next_offset=10).feed(batch(5)) == 0


@pytest.mark.parametrize("old", [vectors.A13_MAGIC_0, vectors.A13_MAGIC_1])
def test_old_formats(old: bytes) -> None:
    """Messages of formats 0 and 1 end the scan with the status of their magic, cut or whole."""
    good = batch(0)
    for data in (good + old, good + old[:20], good + old + bytes(500)):
        scanner = agrees(data)
        assert (scanner.status, scanner.position, scanner.needed) == (-4, len(good), 0)


def test_golden_batches() -> None:
    """Control batches, empty ones, compressed ones and ones with a delete horizon are taken as they are."""
    data = vectors.A5_EMPTY + vectors.A4_COMMIT + vectors.A4_ABORT + vectors.A11_LEADER_CHANGE
    assert agrees(data, 100).next_offset == 301
    for one in vectors.WHOLE:
        assert agrees(one).position == len(one)


def test_zero_tail() -> None:
    """Zeros behind the batches (a preallocated file) are a bad length; fewer than twelve are just too few."""
    good = segment(10, 10)
    for zeros in (12, 17, 100, 5000):
        scanner = agrees(good + bytes(zeros))
        assert (scanner.status, scanner.position) == (-3, len(good))
    scanner = agrees(good + bytes(11))
    assert (scanner.status, scanner.needed) == (0, 0)


def test_cut_anywhere() -> None:
    """Wherever the bytes end, the whole batches before are taken, and what the next one needs is told as soon as it
    is known."""
    data = segment(10, 200, 30)
    ends = [len(segment(10)), len(segment(10, 200)), len(data)]
    for size in range(len(data)):
        scanner = agrees(data[:size], interval=0)
        begin = max([end for end in [0, *ends] if end <= size])
        assert (scanner.position, scanner.status) == (begin, 0)
        whole = min(end for end in ends if end > begin) - begin
        assert scanner.needed == (whole if size - begin >= 12 else 0)


def test_any_bit_flipped() -> None:
    """A flipped bit never lets a wrong batch in: the scan stops before it, or reads the header field that a leader
    rewrites."""
    data = segment(10, 20, 5, epochs=(1, 2, 3))
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        agrees(bytes(flipped))


def test_crc_is_skipped_on_request() -> None:
    """Without the CRC check a rotten record passes, a bad header still does not."""
    data = bytearray(segment(10, 10))
    data[70] ^= 1
    assert SegmentScanner(0).feed(data) == 0
    assert SegmentScanner(0, check_crc=False).feed(data) == len(data)
    data[16] = 1
    scanner = SegmentScanner(0, check_crc=False)
    assert (scanner.feed(data), scanner.status) == (0, -4)


batches = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 300), st.integers(0, 2), st.integers(-1, 50)),
    max_size=12,
)


def build(drawn: list[tuple[int, int, int, int, int]], base: int) -> bytes:
    """(gap, count, size, epoch rise, timestamp) each to a segment's bytes."""
    data, epoch = b"", 0
    for gap, count, size, rise, timestamp in drawn:
        base, epoch = base + gap, epoch + rise
        data += batch(base, count, size=size, epoch=epoch, timestamp=timestamp)
        base += count
    return data


@given(batches, st.sampled_from([0, 1, 100, 500, 4096]), st.integers(0, 1000))
def test_agrees_with_the_twin(drawn: list[tuple[int, int, int, int, int]], interval: int, base: int) -> None:
    """Entries, epochs and offsets of any segment are the twin's."""
    agrees(build(drawn, base), base, interval)


@given(batches, st.data())
def test_chunks_make_no_difference(drawn: list[tuple[int, int, int, int, int]], draw: st.DataObject) -> None:
    """Fed in any pieces, or resumed by a second scanner's position, the scan is the same."""
    data = build(drawn, 0)
    at_once = agrees(data, interval=100)
    scanner = SegmentScanner(0, index_interval=100)
    while scanner.position < len(data):
        size = max(draw.draw(st.integers(0, 600)), scanner.needed)
        taken = scanner.feed(memoryview(data)[scanner.position : scanner.position + size])
        assert scanner.status == 0
        assert taken or scanner.needed or size < 12
    assert scanner.offset_entries() == at_once.offset_entries()
    assert scanner.time_entries() == at_once.time_entries()
    assert (scanner.epochs, scanner.batch_count, scanner.bytes_since_entry) == (
        at_once.epochs,
        at_once.batch_count,
        at_once.bytes_since_entry,
    )


@given(batches, st.binary(max_size=100), st.integers(0, 2000))
@example([], bytes(11) + b"\x0e" + bytes(5), 0)  # the beginning of a message of old
def test_garbage_behind(drawn: list[tuple[int, int, int, int, int]], garbage: bytes, at: int) -> None:
    """Garbage behind or amid the batches stops both scans at the same byte with the same reason."""
    data = build(drawn, 0)
    agrees(data + garbage)
    at = min(at, len(data))
    agrees(data[:at] + garbage + data[at + len(garbage) :])


def test_arguments() -> None:
    """Negative numbers and a next offset below the base are ValueErrors."""
    for arguments in ({"position": -1}, {"index_interval": -1}, {"next_offset": 4}, {"next_offset": -2}):
        with pytest.raises(ValueError):
            SegmentScanner(5, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        SegmentScanner(-1)
    scanner = SegmentScanner(5, position=1000)
    scanner.feed(batch(5))
    assert scanner.position == 1000 + len(batch(5))


# -- searches by header --


@given(batches, st.integers(-5, 60), st.integers(-5, 60))
def test_searches_agree_with_a_walk(drawn: list[tuple[int, int, int, int, int]], offset: int, timestamp: int) -> None:
    """The first batch that reaches the offset, or the timestamp, else where the walk ended."""
    data = build(drawn, 0)
    headers = list(oracle.headers_of(data))
    by_offset = [(p, size) for p, b, size in headers if b.base_offset + b.last_offset_delta >= offset]
    by_time = [(p, size) for p, b, size in headers if b.max_timestamp >= timestamp]
    assert find_offset(data, offset) == (by_offset or [(-1, len(data))])[0]
    assert find_timestamp(data, timestamp) == (by_time or [(-1, len(data))])[0]


def test_searches_need_headers_only() -> None:
    """The batch found may be cut behind its header; where to go on may lie behind the bytes given."""
    first, second = batch(0, 2, size=100), batch(2, 2, size=100)
    data = first + second
    cut = len(first) + 61
    assert find_offset(data[:cut], 3) == (len(first), len(second))
    assert find_offset(data[:cut], 4) == (-1, len(data))
    assert find_offset(data[: cut - 1], 3) == (-1, len(first))
    assert find_offset(b"", 0) == (-1, 0)
    assert find_offset(data[:61], 5) == (-1, len(first))


def test_searches_stop_at_bad_headers() -> None:
    """A bad header on the way is CorruptError with its position; behind the batch found it is not looked at."""
    good = batch(0, 2)
    for bad in (bytes(61), vectors.A13_MAGIC_0 + bytes(61), batch(2)[:8] + struct.pack(">i", 20) + batch(2)[12:]):
        assert find_offset(good + bad, 1) == (0, len(good))
        for search in (find_offset, find_timestamp):
            with pytest.raises(CorruptError) as caught:
                search(good + bad, 10**6)
            assert caught.value.position == len(good)


def test_whole_batches() -> None:
    """Whole batches below the end, within the size, but at least one; a bad header ends the walk."""
    one, two, three = batch(0, 2), batch(2, 2, size=50), batch(4, 2)
    data = one + two + three
    a, b, c = len(one), len(one + two), len(data)
    for end, size_max, expected in (
        (100, 10**6, c),
        (6, 10**6, c),
        (5, 10**6, b),
        (4, 10**6, b),
        (3, 10**6, a),
        (2, 10**6, a),
        (1, 10**6, 0),
        (0, 10**6, 0),
        (100, c, c),
        (100, c - 1, b),
        (100, b - 1, a),
        (100, a - 1, a),
        (100, 1, a),
        (100, 0, a),
        (100, -1, a),
    ):
        assert whole_batches(data, end, size_max) == expected, (end, size_max)
    for cut in range(c):
        assert whole_batches(data[:cut], 100, 10**6) == max(n for n in (0, a, b) if n <= cut)
    assert whole_batches(one + bytes(100), 100, 10**6) == a
    with pytest.raises(CorruptError):
        whole_batches(bytes(100), 100, 10**6)
    assert whole_batches(b"", 100, 100) == 0


@given(st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1))
@example(bytes(17), 0)  # a message of old, if its length were not wrong
@example(bytes(10) + b"\1" + bytes(6), 0)  # the beginning of one
def test_searches_on_any_bytes(data: bytes, least: int) -> None:
    """Made-up bytes give an answer or CorruptError."""
    for made_up in (data, data[:16] + b"\2" + data[17:], data[:8] + b"\0\0\0\x40" + data[12:16] + b"\2" + data[17:]):
        for search in (find_offset, find_timestamp):
            try:
                position, size = search(made_up, least)
            except CorruptError:
                continue
            assert position >= -1
            assert size >= 0
        try:
            assert 0 <= whole_batches(made_up, least, 1000) <= len(made_up)
        except CorruptError:
            pass
        agrees(made_up)


# -- what Kafka wrote --


@pytest.mark.parametrize("name", ["clean-3.9.1", "clean-4.1.0", "clean-4.3.1"])
def test_kafkas_indexes_come_out(name: str) -> None:
    """Of every segment that Kafka closed, both index files are rebuilt byte for byte, and header searches find each
    batch."""
    folder = units.unit(name)
    manifest = json.loads((folder / "manifest.json").read_text())
    seen = 0
    for partition in manifest["partitions"]:
        interval = int(partition.get("topicConfig", {}).get("index.interval.bytes", 4096))
        for log in sorted((folder / "data" / partition["dir"]).glob("*.log")):
            data = log.read_bytes()
            scanner = SegmentScanner(int(log.stem), index_interval=interval)
            assert (scanner.feed(data), scanner.status) == (len(data), 0), log
            assert scanner.offset_entries() == log.with_suffix(".index").read_bytes(), log
            assert scanner.time_entries() == log.with_suffix(".timeindex").read_bytes(), log
            for position, header, size in oracle.headers_of(data):
                assert find_offset(data, header.base_offset) == (position, size)
            seen += 1
    assert seen > 20


def search(
    data: bytes, scan: SegmentScanner, timestamp: int, start: int, end: int, cuts: st.DataObject | None = None
) -> tuple[int, int] | None:
    """What a TimeSearch over ``data`` says, with the indexes of ``scan``; with ``cuts`` the file may be shorter
    than it was at any read."""
    times, offsets = TimeIndex(0, scan.time_entries()), OffsetIndex(0, scan.offset_entries())
    found = TimeSearch(times, offsets, timestamp, start, end, len(data))
    found.expect(0, 2**63 - 1)
    reads = 0
    while found.wanted:
        assert 0 <= found.position < found.position + found.wanted <= len(data)
        piece = data[found.position :][: found.wanted]
        found.feed(piece if cuts is None else piece[: cuts.draw(st.integers(0, len(piece)))])
        reads += 1
        assert reads < 2 + len(data)
    return found.answer


def run(
    data: bytes, indexes: tuple[TimeIndex, OffsetIndex], timestamp: int, start: int, end: int
) -> tuple[int, int] | None:
    """What a TimeSearch over all of ``data`` says with these indexes."""
    found = TimeSearch(*indexes, timestamp, start, end, len(data))
    found.expect(0, 2**63 - 1)
    return found.run(lambda position, size: data[position : position + size])


def test_an_entry_of_a_time_index_is_held_against_the_log_once() -> None:
    """The next search that begins with it reads the batch of the answer alone; what is truncated and appended anew
    is looked at anew."""
    pieces = [batch(10 * number, 10, size=600, timestamp=100 * number) for number in range(6)]
    data = b"".join(pieces)
    scan = SegmentScanner(0, index_interval=100)
    assert scan.feed(data) == len(data)
    times, offsets = TimeIndex(0, scan.time_entries()), OffsetIndex(0, scan.offset_entries())
    size = times.size
    reads: list[tuple[int, int]] = []

    def read_at(position: int, size: int) -> bytes:
        reads.append((position, size))
        return data[position : position + size]

    def look() -> list[tuple[int, int]]:
        reads.clear()
        found = TimeSearch(times, offsets, 350, 0, 60, len(data))
        found.expect(0, 2**63 - 1)
        assert found.run(read_at) == (40, 400)
        return list(reads)

    places = [len(b"".join(pieces[:number])) for number in range(7)]
    assert look()[0][0] == places[3]
    assert size < times.size <= size + 4 * times.count
    assert look() == [(places[4], places[5] - places[4])]
    for index in (times, offsets):
        index.truncate(35)
    assert times.count < 6
    times.append(300, 39)
    offsets.append(39, places[3])
    assert look()[0][0] == places[3]


timed = st.lists(
    st.tuples(st.sampled_from([1, 3]), st.sampled_from([1, 600, 5000]), st.integers(0, 40)), min_size=1, max_size=12
)


@given(timed, st.sampled_from([0, 100, 4096]), st.data())
def test_a_search_by_time_is_a_walk(drawn: list[tuple[int, int, int]], interval: int, draw: st.DataObject) -> None:
    """It finds the record that a walk finds, or gives up, also where a bit of data or indexes is wrong or the file
    gets shorter; and it finds every record of a log whose timestamps rise."""
    data = b""
    answers: list[int] = []
    rising = draw.draw(st.booleans())
    for count, size, timestamp in sorted(drawn, key=lambda one: one[2] if rising else 0):
        data += batch(len(answers), count, size=size, timestamp=timestamp)
        answers += [timestamp] * count
    timestamp = draw.draw(st.integers(-1, 42))
    start, end = draw.draw(st.integers(0, len(answers))), draw.draw(st.integers(0, len(answers)))
    wanted = next(
        ((offset, at) for offset, at in enumerate(answers) if at >= timestamp and start <= offset < end), None
    )
    scan = SegmentScanner(0, index_interval=interval)
    assert scan.feed(data) == len(data)
    found = search(data, scan, timestamp, start, end)
    assert found in (None, wanted)
    if answers == sorted(answers) and wanted is not None:
        assert found == wanted
    assert search(data, scan, timestamp, start, end, draw) in (None, wanted)
    # What one search finds out about the index, later ones use: they find the same.
    indexes = TimeIndex(0, scan.time_entries()), OffsetIndex(0, scan.offset_entries())
    for again in draw.draw(st.lists(st.integers(-1, 42), max_size=4)):
        run(data, indexes, again, start, end)
    assert run(data, indexes, timestamp, start, end) == found
    cut = draw.draw(st.integers(0, len(answers)))
    for index in indexes:
        index.truncate(cut)
    run(data, indexes, timestamp, start, end)
    assert run(data, indexes, timestamp, start, end) in (None, wanted)
    # One flipped bit of an index: the search may give up, and is not led astray.
    entries = [bytearray(scan.time_entries()), bytearray(scan.offset_entries())]
    flipped = entries[draw.draw(st.integers(0, 1))]
    if flipped:
        bit = draw.draw(st.integers(0, 8 * len(flipped) - 1))
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            indexes = TimeIndex(0, entries[0]), OffsetIndex(0, entries[1])
        except CorruptError:
            return
        for _ in range(2):
            assert run(data, indexes, timestamp, start, end) in (None, wanted)
