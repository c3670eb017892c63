"""Offset and time index: Kafka's bytes, Kafka's lookups, nothing out of order ever goes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog._core import OffsetIndex, TimeIndex
from pyreplog.errors import CorruptError
from tests.interop.golden import vectors
from tests.oracle import batch as oracle

INT_MAX = 2**31 - 1
BASE = 100


def test_a9_offset_index() -> None:
    """Kafka's entries read as Kafka reads them, and are written alike."""
    index = OffsetIndex(BASE, vectors.A9_OFFSET_INDEX)
    assert (index.count, index.last, index.entry(0), index.entry(1)) == (2, (110, 4321), (104, 0), (110, 4321))
    assert [index.lookup(o) for o in (0, 100, 103, 104, 109, 110, 2**62)] == [(100, 0)] * 3 + [(104, 0)] * 2 + [
        (110, 4321)
    ] * 2
    written = OffsetIndex(BASE)
    written.append(104, 0)
    written.append(110, 4321)
    assert written.data() == index.data() == vectors.A9_OFFSET_INDEX
    assert (index.data(1), index.data(2), index.data(99)) == (vectors.A9_OFFSET_INDEX[8:], b"", b"")


def test_a10_time_index() -> None:
    """The same for timestamps."""
    index = TimeIndex(BASE, vectors.A10_TIME_INDEX)
    first, second = (1700000000999, 104), (1700000001999, 110)
    assert (index.count, index.last, index.entry(0), index.entry(1)) == (2, second, first, second)
    assert [index.lookup(t) for t in (-1, 0, first[0] - 1, first[0], second[0] - 1, second[0], 2**63 - 1)] == [
        *[(-1, 100)] * 3,
        *[first] * 2,
        *[second] * 2,
    ]
    written = TimeIndex(BASE)
    assert written.append(*first)
    assert written.append(*second)
    assert written.data() == index.data() == vectors.A10_TIME_INDEX
    assert index.data(1) == vectors.A10_TIME_INDEX[12:]


@pytest.mark.parametrize(("kind", "nothing"), [(OffsetIndex, (BASE, 0)), (TimeIndex, (-1, BASE))])
def test_empty(kind: type[OffsetIndex] | type[TimeIndex], nothing: tuple[int, int]) -> None:
    """An empty index finds the segment's start, and truncates to itself."""
    index = kind(BASE)
    for asked in (-(2**63), -1, 0, BASE, 2**63 - 1):
        assert index.lookup(asked) == nothing
        index.truncate(asked)
    assert (index.count, index.last, index.data()) == (0, nothing, b"")
    for slot in (-1, 0, 1):
        with pytest.raises(IndexError):
            index.entry(slot)
    with pytest.raises(ValueError, match="negative"):
        index.data(-1)
    with pytest.raises(ValueError, match="negative"):
        kind(-1)


def test_offset_limits() -> None:
    """Relative offsets and positions reach INT_MAX and not one further; an offset equal to the base is legal."""
    index = OffsetIndex(BASE)
    for offset, position in ((BASE - 1, 0), (BASE + INT_MAX + 1, 0), (BASE, -1), (BASE, INT_MAX + 1), (-1, 0)):
        with pytest.raises(CorruptError, match="does not fit"):
            index.append(offset, position)
    index.append(BASE, 0)
    index.append(BASE + INT_MAX, INT_MAX)
    assert index.last == (BASE + INT_MAX, INT_MAX)
    assert OffsetIndex(BASE, index.data()).data() == index.data()
    far = OffsetIndex(2**63 - 1 - INT_MAX)
    far.append(2**63 - 1, 5)
    assert far.lookup(2**63 - 1) == (2**63 - 1, 5)


def test_offset_order() -> None:
    """Offsets rise, positions do not fall; what breaks that is refused and changes nothing."""
    index = OffsetIndex(BASE)
    index.append(105, 50)
    for offset, position in ((105, 60), (104, 60), (106, 49)):
        with pytest.raises(CorruptError, match="order"):
            index.append(offset, position)
    index.append(106, 50)
    assert index.count == 2


def test_time_order() -> None:
    """An equal or older timestamp is no entry; a younger one with a lower offset is an error; the first must be
    above -1."""
    index = TimeIndex(BASE)
    assert index.append(-1, 105) is False
    assert index.append(0, 105) is True
    assert index.append(0, 200) is False
    assert index.append(-5, 200) is False
    with pytest.raises(CorruptError, match="order"):
        index.append(1, 104)
    assert index.append(1, 105) is True
    for offset in (BASE - 1, BASE + INT_MAX + 1):
        with pytest.raises(CorruptError, match="does not fit"):
            index.append(9, offset)
    assert index.append(2**63 - 1, BASE + INT_MAX)
    assert index.last == (2**63 - 1, BASE + INT_MAX)
    assert index.lookup(2**63 - 1) == index.last


@pytest.mark.parametrize(
    ("data", "bad"),
    [
        (bytes(16), 8),  # zeros of an untrimmed file: the second (0, 0) does not rise
        (vectors.A9_OFFSET_INDEX + bytes(8), 16),
        (vectors.A9_OFFSET_INDEX + vectors.A9_OFFSET_INDEX, 16),
        (b"\xff\xff\xff\xff\0\0\0\0", 0),
        (b"\0\0\0\0\xff\xff\xff\xff", 0),
        (b"\0\0\0\1\0\0\0\5" + b"\0\0\0\2\0\0\0\4", 8),
    ],
)
def test_wrong_offset_entries(data: bytes, bad: int) -> None:
    """Entries out of order are refused with the byte where they begin."""
    with pytest.raises(CorruptError, match="order") as caught:
        OffsetIndex(BASE, data)
    assert caught.value.position == bad


@pytest.mark.parametrize(
    ("data", "bad"),
    [
        (bytes(24), 12),
        (vectors.A10_TIME_INDEX + bytes(12), 24),
        (b"\xff" * 8 + b"\0\0\0\0", 0),
        (bytes(8) + b"\xff" * 4, 0),
        (bytes(8) + b"\0\0\0\2" + bytes(7) + b"\1" + b"\0\0\0\1", 12),
    ],
)
def test_wrong_time_entries(data: bytes, bad: int) -> None:
    """The same for the time index."""
    with pytest.raises(CorruptError, match="order") as caught:
        TimeIndex(BASE, data)
    assert caught.value.position == bad


@given(st.binary(max_size=100))
def test_any_bytes(data: bytes) -> None:
    """Any bytes either are entries in order, whole ones only, or CorruptError."""
    for kind, size in ((OffsetIndex, 8), (TimeIndex, 12)):
        try:
            index = kind(BASE, data)
        except CorruptError:
            continue
        assert index.data() == data[: len(data) // size * size]
        assert index.count == len(data) // size


@pytest.mark.parametrize("extra", range(1, 8))
def test_partial_entry_is_dropped(extra: int) -> None:
    """A length that is no multiple of an entry leaves the whole ones."""
    assert OffsetIndex(BASE, vectors.A9_OFFSET_INDEX + b"\7" * extra).data() == vectors.A9_OFFSET_INDEX
    assert TimeIndex(BASE, vectors.A10_TIME_INDEX + b"\7" * extra).data() == vectors.A10_TIME_INDEX


steps = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5000)), max_size=60)


@given(steps, st.lists(st.integers(BASE - 5, BASE + 3200), max_size=20), st.integers(BASE - 5, BASE + 3200))
def test_offsets_agree_with_the_twin(increments: list[tuple[int, int]], asked: list[int], cut: int) -> None:
    """Lookups, truncation and bytes are those of a list of pairs."""
    index, twin = OffsetIndex(BASE), oracle.OffsetIndex(BASE)
    offset, position = BASE - 1, 0
    for rise, more in increments:
        offset, position = offset + rise, position + more
        index.append(offset, position)
        twin.append(offset, position)
    assert [index.lookup(o) for o in asked] == [twin.lookup(o) for o in asked]
    assert [index.entry(slot) for slot in range(index.count)] == twin.entries
    index.truncate(cut)
    twin.truncate(cut)
    assert index.data() == twin.data()
    assert OffsetIndex(BASE, index.data()).data() == twin.data()
    index.append(BASE + INT_MAX, INT_MAX)
    assert index.last == (BASE + INT_MAX, INT_MAX)


@given(
    st.lists(st.tuples(st.integers(-3, 50), st.integers(0, 50)), max_size=60),
    st.lists(st.integers(-5, 3200), max_size=20),
    st.integers(BASE - 5, BASE + 3200),
)
def test_times_agree_with_the_twin(increments: list[tuple[int, int]], asked: list[int], cut: int) -> None:
    """The same for timestamps, which may stand still or fall back."""
    index, twin = TimeIndex(BASE), oracle.TimeIndex(BASE)
    timestamp, offset = -1, BASE
    for rise, more in increments:
        timestamp, offset = timestamp + rise, offset + more
        assert index.append(timestamp, offset) == twin.append(timestamp, offset)
    assert [index.lookup(t) for t in asked] == [twin.lookup(t) for t in asked]
    index.truncate(cut)
    twin.truncate(cut)
    assert index.data() == twin.data()
    assert [index.entry(slot) for slot in range(index.count)] == twin.entries


def test_truncation_edges() -> None:
    """Past the end, at an entry, between entries, at and below the base."""
    for cut, left in ((111, 2), (110, 1), (105, 1), (104, 0), (100, 0), (0, 0), (-5, 0), (2**63 - 1, 2)):
        offsets, times = OffsetIndex(BASE, vectors.A9_OFFSET_INDEX), TimeIndex(BASE, vectors.A10_TIME_INDEX)
        offsets.truncate(cut)
        times.truncate(cut)
        assert (offsets.count, times.count) == (left, left), cut


def test_copies_its_bytes() -> None:
    """An index does not see what becomes of the buffer it was made from."""
    data = bytearray(vectors.A9_OFFSET_INDEX)
    index = OffsetIndex(BASE, data)
    data[:] = bytes(16)
    data.append(0)
    assert index.data() == vectors.A9_OFFSET_INDEX
