"""The end of a segment: the one batch that follows is appended as the slow way appends it, and nothing else changes
anything."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog._core import (
    UNKNOWN_POSITION,
    OffsetIndex,
    ProducerEntry,
    RecordBatch,
    SegmentEnd,
    SentBatch,
    TailBudget,
    TailCache,
    TimeIndex,
    crc32c,
)
from pyreplog.config import INT64_MAX
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log.producers import ProducerTable
from pyreplog.ports import Buffer
from pyreplog.record import BatchBuilder
from tests.unit.record.guarded import GuardedMemory

COUNTERS = (
    "size",
    "next_offset",
    "max_timestamp",
    "max_timestamp_offset",
    "first_timestamp",
    "first_producer",
    "bytes_since_entry",
    "entries_left",
)


class MemoryFile:
    """A file in memory, which refuses the next write where ``error`` is set."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.error: StorageError | None = None

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Only at the end."""
        if self.error is not None:
            raise self.error
        assert position == len(self.content)
        for part in parts:
            self.content += part


class Indexes:
    """Both, in memory."""

    def __init__(self, base_offset: int) -> None:
        self.offsets, self.times = OffsetIndex(base_offset), TimeIndex(base_offset)


class Producers:
    """A table without a folder."""

    def __init__(self) -> None:
        self.table = ProducerTable()

    def note_bytes(self, batch: Buffer, base_offset: int, segment: SegmentEnd) -> None:
        """As of a log."""
        segment.first_producer = UNKNOWN_POSITION
        self.table.note(RecordBatch(batch), base_offset)


class End(SegmentEnd):
    """A segment with no more than what an append needs."""

    def __init__(self, *, interval: int = 300, base_offset: int = 0) -> None:
        self.size = self.bytes_since_entry = self._pending = 0
        self.next_offset = self.max_timestamp_offset = base_offset
        self.max_timestamp = self.first_timestamp = self.first_producer = -1
        self.entries_left = 1000
        self.size_max = self.roll_offset = self.roll_timestamp = self._reserved = INT64_MAX
        self._pieces_from = INT64_MAX
        self.index_interval = interval
        self._torn = False
        self._file = MemoryFile()
        self._indexes = Indexes(base_offset)
        self.readied: list[int] = []
        self.refused: list[StorageError] = []

    def make_ready(self, size: int) -> None:
        """Told before a write that is not like most."""
        self.readied.append(size)
        self._pending, self._torn, self._reserved = 0, False, INT64_MAX

    def is_too_old(self, max_timestamp: int) -> bool:
        """Whatever is newer than the limit."""
        return True

    def take_back(self, error: StorageError) -> None:
        """Told of a write that was refused."""
        self.refused.append(error)

    @property
    def state(self) -> tuple[Any, ...]:
        """All that an append changes."""
        offsets, times = self._indexes.offsets, self._indexes.times
        entries = (
            [offsets.entry(slot) for slot in range(offsets.count)],
            [times.entry(slot) for slot in range(times.count)],
        )
        return (*(getattr(self, name) for name in COUNTERS), entries, bytes(self._file.content))


def made(
    count: int,
    base: int,
    timestamp: int,
    *,
    size: int = 20,
    epoch: int = 3,
    sequence: int = -1,
    producer_epoch: int = 0,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """A batch as it lies in a log."""
    builder = BatchBuilder()
    for number in range(count):
        assert builder.append(b"v" * size, None, (), timestamp + number)
    if sequence < 0:
        return bytearray(builder.finish(base_offset=base, leader_epoch=epoch))
    return bytearray(
        builder.finish(
            base_offset=base,
            leader_epoch=epoch,
            producer_id=9,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
            control=control,
        )
    )


def never(batch: Buffer) -> bool:
    """Nobody is to be asked about our own encoder's batches."""
    raise AssertionError(batch)


def known(producers: Producers) -> list[tuple[int, int, int, list[SentBatch]]]:
    """What the table has."""
    return [(entry.producer_id, entry.epoch, entry.last_timestamp, entry.batches) for entry in producers.table]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4), st.integers(-1, 50), st.integers(0, 200), st.integers(0, 2), st.booleans(), st.booleans()
        ),
        min_size=1,
        max_size=12,
    )
)
def test_as_the_slow_way(batches: list[tuple[int, int, int, int, bool, bool]]) -> None:
    """A follower's and a leader's batches, one or several at once, with and without producers, beside ``write``,
    ``note`` and the table told one by one."""
    following, leading, slow = End(), End(), End()
    producers = Producers(), Producers(), Producers()
    tails = TailCache(1 << 20), TailCache(1 << 20)
    base, sequence, epoch = 0, 0, 0
    group: list[tuple[int, bytes, bytearray]] = []  # base, as it is to lie in the log, as it is given to the leader
    for count, timestamp, size, jump, numbered, waits in [*batches, (1, 0, 0, 0, False, False)]:
        if numbered and jump:
            sequence, epoch = 0, epoch + 1
        data = made(count, base, timestamp, size=size, sequence=sequence if numbered else -1, producer_epoch=epoch)
        own = made(
            count, 0, timestamp, size=size, epoch=-1, sequence=sequence if numbered else -1, producer_epoch=epoch
        )
        group.append((base, bytes(data), own))
        batch = RecordBatch(data)
        slow.write((data,), len(data))
        slow.note(len(data), batch.last_offset, batch.max_timestamp)
        if numbered:
            producers[2].note_bytes(data, base, slow)
        base += count
        sequence += count if numbered else 0
        if waits:
            continue
        whole = [data for _, data, _ in group]
        assert following.append_next(whole, group[0][0], 3, tails[0], producers[0]) == sum(map(len, whole))
        while group:
            start, one, own = group[0]
            places = leading.append_own(
                [(own, True) for _, _, own in group], start, 3, 1 << 20, tails[1], producers[1], never
            )
            for (_, one, own), place in zip(group, places, strict=False):
                batch = RecordBatch(one)
                assert own == one
                assert place == (batch.base_offset, batch.last_offset, -1, batch.record_count, len(one), False)
            if not places:  # the first of its producer in this epoch: the log asks the table
                batch = RecordBatch(one)
                assert batch.base_sequence == 0
                leading.write((one,), len(one))
                leading.note(len(one), batch.last_offset, batch.max_timestamp)
                producers[1].note_bytes(one, start, leading)
            del group[: len(places) or 1]
        assert following.state == leading.state == slow.state
        assert known(producers[0]) == known(producers[1]) == known(producers[2])
        assert all(one.table.end_offset == producers[2].table.end_offset for one in producers)
        assert not leading.producers_pending
        assert not following.producers_pending
    assert b"".join(tails[0].read(0, 1 << 20, base)[0]) == bytes(following._file.content)  # type: ignore[index]


def three(sequence: int, base: int = 7) -> list[bytearray]:
    """Batches that follow one another, as they lie in a log."""
    return [
        made(2, base + 2 * number, 1000, sequence=sequence + 2 * number if sequence >= 0 else -1) for number in range(3)
    ]


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_one_wrong_batch_keeps_a_follower_from_all(wrong: int) -> None:
    """Of three: cut at every byte, any bit flipped, another's place, nothing at all, more than one in it."""
    batches = three(5)
    end, producers, tail = End(base_offset=7), Producers(), TailCache(1 << 20)
    before = end.state

    def taken(data: Buffer) -> int:
        parts = [*batches[:wrong], data, *batches[wrong + 1 :]]
        try:
            return end.append_next(parts, 7, 3, tail, producers)
        except CorruptError:
            return 0

    right = bytes(batches[wrong])
    memory = GuardedMemory(len(right))
    others: list[Buffer] = [batches[wrong - 1], b"", right + right, batches[wrong] + batches[(wrong + 1) % 3]]
    assert not any(taken(data) for data in others)
    assert not any(taken(memory.place(right[:size])) for size in range(len(right)))
    for bit in range(len(right) * 8):
        flipped = bytearray(right)
        flipped[bit // 8] ^= 1 << bit % 8
        assert taken(flipped) == 0, f"bit {bit}"
    assert end.state == before
    assert len(tail) == len(producers.table) == 0
    assert taken(right) == sum(map(len, batches))


def test_a_leader_takes_those_before_the_first_that_is_not_in_order() -> None:
    """What is behind them is left as it is, and nobody is asked about it."""
    numbered = [made(2, 0, 1000, sequence=sequence) for sequence in (5, 7, 10)]
    full, early = made(2, 0, 1000, size=400), made(1, 0, 1, sequence=5)
    limits: list[dict[str, int]] = [
        {"size_max": len(numbered[0]) * 3},
        {"roll_offset": 12},
        {"entries_left": 2},
        {"roll_timestamp": 1001},
    ]
    cases: list[tuple[list[bytes | bytearray], dict[str, int]]]
    cases = [([*numbered], {}), ([*numbered[:2], early], {}), ([*numbered[:2], full], limits[0])]
    cases += [([*numbered[:2], made(2, 0, 1001)], limit) for limit in limits[1:]]
    cases += [
        ([*numbered[:2], other], {})
        for other in (bytes(full), full + b"x", full[:-1], b"", made(1, 0, 1, sequence=9, producer_epoch=1))
    ]
    for batches, limit in cases:
        end, producers, tail = End(base_offset=7), Producers(), TailCache(1 << 20)
        for name, value in limit.items():
            setattr(end, name, value)
        producers.table.entries[9] = ProducerEntry(9, 0)
        producers.table.entries[9].sent(4, 6, 0, 999)
        ones = [bytearray(one) if type(one) is bytearray else one for one in batches]
        asked = (True, True, False) if limit or not isinstance(ones[2], bytes) else (True, True, True)
        places = end.append_own(list(zip(ones, asked, strict=True)), 7, 3, 1 << 20, tail, producers, never)
        assert [place[:2] for place in places] == [(7, 8), (9, 10)]
        assert end.tried == 2
        assert ones[2] == batches[2]
        assert end._file.content == bytes(ones[0] + ones[1])
        assert producers.table.entries[9].last_sequence == 8


def test_a_producer_that_is_left_out_leaves_no_trace() -> None:
    """What was appended before its batch bears no producer, and the segment does not say that one does."""
    end, producers, tail = End(base_offset=7), Producers(), TailCache(1 << 20)
    pairs = [(made(1, 0, 1), True), (made(1, 0, 1, sequence=3), True)]
    assert len(end.append_own(pairs, 7, 3, 1 << 20, tail, producers, never)) == 1
    assert end.first_producer == -1
    assert not end.producers_pending


def test_who_is_asked_about_a_clients_batch() -> None:
    """Only what is not our own encoder's, in order, and no one behind the first that is not sound."""
    end, producers, tail = End(base_offset=7), Producers(), TailCache(1 << 20)
    ones = [made(1, 0, 1, size=size) for size in range(5)]
    seen: list[Buffer] = []

    def is_valid(batch: Buffer) -> bool:
        seen.append(batch)
        return batch is not ones[3]

    pairs = list(zip(ones, (False, True, False, False, False), strict=True))
    assert len(end.append_own(pairs, 7, 3, 1 << 20, tail, producers, is_valid)) == 3
    assert [ones.index(one) for one in seen] == [0, 2, 3]  # type: ignore[arg-type]
    assert ones[3:] == [made(1, 0, 1, size=size) for size in (3, 4)]
    assert end.append_own(pairs[3:], 10, 3, 1 << 20, tail, producers, is_valid) == []


def test_a_refused_group_is_as_it_came() -> None:
    """It may be given again: no offsets, no epoch. How many were to be written is known."""
    end, producers, tail = End(), Producers(), TailCache(1 << 20)
    before = end.state
    end._file.error = StorageError(errno.ENOSPC, "no room", "file")
    ones = [made(2, 0, 1000, epoch=-1) for _ in range(3)]
    with pytest.raises(StorageError, match="no room"):
        end.append_own([(one, True) for one in ones], 7, 3, 1 << 20, tail, producers, never)
    assert ones == [made(2, 0, 1000, epoch=-1)] * 3
    assert end.tried == 3
    assert end.state == before
    with pytest.raises(StorageError, match="no room"):
        end.append_next(three(-1, 0), 0, 3, tail, producers)
    assert end.state == before
    assert len(tail) == 0


def test_a_group_that_is_counted_in_part() -> None:
    """Interrupted after its first batch was: the segment ends there, and cuts off what is behind it before the next
    write."""

    class Interrupted:
        """Indexes that are struck by Ctrl-C."""

        @property
        def offsets(self) -> OffsetIndex:
            """Never there."""
            raise KeyboardInterrupt

    end, producers, tail = End(interval=10), Producers(), TailCache(1 << 20)
    end._indexes = Interrupted()
    batches = three(-1, 0)
    with pytest.raises(KeyboardInterrupt):
        end.append_next(batches, 0, 3, tail, producers)
    assert end.size == len(batches[0])
    assert end.next_offset == 2
    assert end._torn


@pytest.mark.parametrize("sequence", [-1, 5])
def test_nothing_wrong_is_taken(sequence: int) -> None:
    """A batch cut at every byte, or with any bit flipped, is refused or left alone, and the segment is as it was;
    never read past."""
    data = made(2, 7, 1000, sequence=sequence)
    end, producers, tail = End(base_offset=7), Producers(), TailCache(1 << 20)
    before = end.state
    memory = GuardedMemory(len(data))
    for size in range(len(data)):
        try:
            taken = end.append_next([memory.place(bytes(data[:size]))], 7, 3, tail, producers)
        except CorruptError:
            taken = 0
        assert taken == 0, f"{size} bytes"
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        try:
            taken = end.append_next([data], 7, 3, tail, producers)
        except CorruptError:
            taken = 0
        assert taken == 0, f"bit {bit}"
        data[bit // 8] ^= 1 << bit % 8
    assert end.state == before
    assert len(tail) == len(producers.table) == 0
    assert end.append_next([data], 7, 3, tail, producers) == len(data)


def test_what_is_left_to_the_caller() -> None:
    """Another offset or epoch, a full segment, two batches at once, one that cannot be written into, a sequence
    that does not go on."""
    tail, producers = TailCache(1 << 20), Producers()
    data = made(2, 7, 1000)
    size = len(data)
    limits: list[dict[str, int]] = [
        {"size_max": size - 1},
        {"roll_offset": 8},
        {"entries_left": 0},
        {"roll_timestamp": 1000},
    ]
    for limit in limits:
        end = End(base_offset=7)
        for name, value in limit.items():
            setattr(end, name, value)
        before = end.state
        assert end.append_next([data], 7, 3, tail, producers) == 0
        assert end.append_own([(made(2, 0, 1000), True)], 7, 3, 1 << 20, tail, producers, never) == []
        assert end.state == before
        for name, value in limit.items():
            setattr(end, name, value + 1)  # now it just fits
        assert end.append_next([data], 7, 3, TailCache(0), producers) == size
    end = End(base_offset=7)
    before = end.state
    assert end.append_next([data], 8, 3, tail, producers) == 0
    assert end.append_next([data], 6, 3, tail, producers) == 0
    assert end.append_next([data], 7, 4, tail, producers) == 0
    assert end.append_next([made(2, 7, 1000, epoch=-1)], 7, -1, tail, producers) == 0
    assert end.append_next([data + data], 7, 3, tail, producers) == 0
    assert end.append_next([b""], 7, 3, tail, producers) == 0
    assert end.append_own([(bytes(data), True)], 7, 3, 1 << 20, tail, producers, never) == []
    assert end.append_own([(data, True)], 7, 3, size - 1, tail, producers, never) == []
    for base in (INT64_MAX - 1, INT64_MAX):
        assert end.append_own([(data, True)], base, 3, 1 << 20, tail, producers, never) == []
        with pytest.raises(CorruptError, match="out of order"):
            end.append_next([made(2, base, 1000)], base, 3, tail, producers)
    for flags in ({"control": True}, {"transactional": True}):
        marked = made(1, 7, 1000, sequence=5, **flags)
        assert end.append_own([(bytearray(marked), True)], 7, 3, 1 << 20, tail, producers, never) == []
        if "control" in flags:
            assert end.append_next([marked], 7, 3, tail, producers) == 0
    entry = producers.table.entries[9] = ProducerEntry(9, 0)
    entry.sent(4, 6, 0, 999)
    for wrong in (made(1, 0, 1, sequence=4), made(1, 0, 1, sequence=6), made(1, 0, 1, sequence=5, producer_epoch=1)):
        assert end.append_own([(wrong, True)], 7, 3, 1 << 20, tail, producers, never) == []
    entry.transaction_start = 3
    assert end.append_own([(made(1, 0, 1, sequence=5), True)], 7, 3, 1 << 20, tail, producers, never) == []
    assert end.state == before
    entry.transaction_start = -1
    assert end.append_own([(made(1, 0, 1, sequence=5), True)], 7, 3, 1 << 20, tail, producers, never)
    with pytest.raises(TypeError):
        end.append_next([data], 8, 3, None, producers)  # type: ignore[arg-type]


def signed(batch: bytearray) -> bytearray:
    """With the checksum of what it says now."""
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return batch


def test_an_encoder_that_errs_is_left_to_the_caller() -> None:
    """No records, offsets that do not fit their number, bytes behind the batch: not given offsets."""
    end, producers, tail = End(), Producers(), TailCache(1 << 20)
    before = end.state
    empty, sparse = made(2, 0, 1000), made(2, 0, 1000)
    empty[57:61] = bytes(4)
    sparse[23:27] = (5).to_bytes(4, "big")
    for wrong in (signed(empty), signed(sparse), made(2, 0, 1000) + b"x"):
        assert end.append_own([(wrong, True)], 0, 3, 1 << 20, tail, producers, never) == []
    assert end.state == before


def test_the_checksum_of_a_large_batch() -> None:
    """It is looked at, too, where that takes long enough for others to go on meanwhile."""
    end, producers, tail = End(), Producers(), TailCache(1 << 20)
    data = made(2, 0, 1000, size=10_000)
    data[-1] ^= 1
    with pytest.raises(CorruptError, match="checksum|CRC"):
        end.append_next([data], 0, 3, tail, producers)
    data[-1] ^= 1
    assert end.append_next([data], 0, 3, tail, producers) == len(data)


def test_numbers_that_go_round() -> None:
    """Behind sequence 2**31 - 1 comes 0, and a batch may bear a producer and no sequence: as the table has it when
    it is told."""
    end, slow = End(), End()
    producers, told = Producers(), Producers()
    for base, sequence in ((0, 2**31 - 4), (2, 2**31 - 2), (5, -1)):
        data = made(3 if base else 2, base, 1000, sequence=max(sequence, 0))
        data[53:57] = sequence.to_bytes(4, "big", signed=True)
        end.first_producer = -1
        assert end.append_next([signed(data)], base, 3, TailCache(0), producers)
        assert end.first_producer == UNKNOWN_POSITION
        told.note_bytes(data, base, slow)
        assert known(producers) == known(told)
    leading = End()
    for base, sequence in ((0, 2**31 - 4), (2, 2**31 - 2)):
        data = made(3 if base else 2, 0, 1000, sequence=0)
        data[53:57] = sequence.to_bytes(4, "big")
        table = Producers()
        entry = table.table.entries[9] = ProducerEntry(9, 0)
        entry.sent(sequence - 1, base - 1, 0, 999)
        assert leading.append_own([(signed(data), True)], base, 3, 1 << 20, TailCache(0), table, never)
        assert entry.last_sequence == (2**31 - 3 if base == 0 else 0)


def test_a_refused_write_changes_nothing() -> None:
    """The segment is told, so that it can cut off what was half written, and the error is its caller's."""
    end, producers, tail = End(), Producers(), TailCache(1 << 20)
    before = end.state
    end._file.error = StorageError(errno.ENOSPC, "no room", "file")
    for append in (
        lambda: end.append_next([made(1, 0, 1)], 0, 3, tail, producers),
        lambda: end.append_own([(made(1, 0, 1), True)], 0, 3, 1 << 20, tail, producers, never),
        lambda: end.write((made(1, 0, 1),), 100),
    ):
        with pytest.raises(StorageError, match="no room"):
            append()
    assert end.refused == [end._file.error] * 3
    assert end.state == before
    assert len(tail) == 0


@pytest.mark.parametrize(("name", "value"), [("_torn", True), ("_pending", 128), ("_reserved", 10), ("_file", None)])
def test_what_has_to_be_done_first(name: str, value: object) -> None:
    """The segment is asked before such a write, and not before any other."""
    end, producers, tail = End(), Producers(), TailCache(1 << 20)
    assert end.append_next([made(1, 0, 1)], 0, 3, tail, producers)
    assert end.readied == []
    file = end._file
    setattr(end, name, value)
    data = made(1, 1, 1)
    if end._file is None:
        with pytest.raises(AttributeError):
            end.append_next([data], 1, 3, tail, producers)
    else:
        end.append_next([data], 1, 3, tail, producers)
        assert end._file is file
    assert end.readied == [len(data)]


def test_what_a_producer_sent() -> None:
    """The last five are kept; sequences go round behind 2**31 - 1, and a new epoch forgets."""
    entry = ProducerEntry(9, 2, last_timestamp=5)
    assert (entry.last_sequence, entry.batches) == (-1, [])
    for number in range(7):
        entry.sent(number, 10 + number, 0, 100 + number)
    assert entry.batches == [SentBatch(number, 10 + number, 0, 100 + number) for number in range(2, 7)]
    assert (entry.last_sequence, entry.last_timestamp) == (6, 106)
    entry.begin_epoch(2)
    assert len(entry.batches) == 5
    entry.begin_epoch(3)
    assert (entry.epoch, entry.batches) == (3, [])
    wrapped = SentBatch(1, 20, 3, 0)
    assert (wrapped.first_sequence, wrapped.base_offset) == (2**31 - 2, 17)
    assert len({wrapped, SentBatch(1, 20, 3, 0), SentBatch(1, 20, 2, 0)}) == 2
    assert wrapped != (1, 20, 3, 0)
    assert repr(wrapped) == "SentBatch(last_sequence=1, last_offset=20, offset_delta=3, timestamp=0)"


@pytest.mark.parametrize("shares", [False, True])
def test_what_finds_no_memory_is_not_kept(shares: bool) -> None:
    """Whatever allocation fails: bytes that were not taken are their owner's again, who fills them anew, so nothing
    of them is kept."""
    memory = pytest.importorskip("_testcapi")
    refused = 0
    for nth in range(8):
        tail = TailCache(1000, TailBudget(10_000) if shares else None)
        data = memoryview(bytes(100))
        for number in range(600):  # the list of them grows, and is cut, at some of them
            before, size = len(tail), tail.size
            memory.set_nomemory(nth, nth + 1)
            try:
                tail.append(number, number + 1, data, 100)
            except MemoryError:
                refused += 1
                memory.remove_mem_hooks()
                assert (len(tail), tail.size) == (before, size)
                tail.append(number, number + 1, data, 100)
            finally:
                memory.remove_mem_hooks()
        assert len(tail) == 10
    assert refused
