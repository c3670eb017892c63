"""Producer ids in the log: duplicates, order, epochs; kept over restarts, rolls and truncations."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog._core import ProducerEntry, SentBatch
from pyreplog.config import LogConfig
from pyreplog.errors import (
    ClosedError,
    CorruptError,
    CorruptLogError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    PyreplogError,
    UnknownProducerIdError,
)
from pyreplog.log.producer_snapshot import format_producers, parse_producers
from pyreplog.log.producers import PRODUCER_EXPIRATION_MS, ProducerTable
from pyreplog.record import RecordBatch, split
from pyreplog.testing.clock import SimClock
from pyreplog.testing.disk import SimDisk
from tests.unit.log.conftest import Place, damage_second_batch
from tests.unit.log.producing import marker, produced, send
from tests.unit.log.support import CLOCK, batch, contents, create, raw, reopen, sync

INT32_MAX = 2**31 - 1
SNAPSHOT_A7 = bytes.fromhex(
    "0001c3e435bd00000002000000000000004d0003000000090000000000000068000000040000018bcfe56be70000000c0000000000000064"
    "000000000000004e0000ffffffffffffffffffffffff000000000000018bcfe56be7ffffffffffffffffffffffff"
)
"""What Kafka's Java code writes: see tests/interop/golden/vectors.md."""


def test_duplicate_of_the_last_five_batches(place: Place) -> None:
    """Edge 77: each of a producer's last five batches, sent again, gets its first offsets and appends nothing; so
    does the sixth."""
    log = create(place.disk, place.of("t-0"))
    for number in range(6):
        assert send(log, 3 * number, 3) == (3 * number, 3 * number + 2, False)
    before = raw(log)
    for number in range(1, 6):
        done = log.append_as_leader(produced(3 * number, 3), 0)
        assert done == (3 * number, 3 * number + 2, -1, 3, 0, True)
    with pytest.raises(DuplicateSequenceError):
        send(log, 0, 3)  # it must be there, because later ones are: nobody may take it for missing and append it anew
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 15, 2)  # half of a batch is no duplicate
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 19)
    assert raw(log) == before
    assert send(log, 18) == (18, 18, False)
    log.close(clean=True)


def test_a_duplicate_keeps_the_append_time(place: Place) -> None:
    """With LogAppendTime a duplicate is answered with the time of the first append."""
    log = create(place.disk, place.of("t-0"), LogConfig(message_timestamp_type="LogAppendTime"))
    first = log.append_as_leader(produced(0), 0)
    CLOCK.now_ms += 50
    again = log.append_as_leader(produced(0), 0)
    CLOCK.now_ms -= 50
    assert (again.timestamp, again.duplicate) == (first.timestamp, True)
    log.close(clean=True)


def test_several_producers_in_one_append(place: Place) -> None:
    """Edge 78: batches of several producers in one append are told apart, and one sent twice is a duplicate for its
    own alone."""
    log = create(place.disk, place.of("t-0"))
    parts = b"".join(bytes(produced(0, 2, producer=p, base=2 * i, leader=0)) for i, p in enumerate((1, 2, 3)))
    assert log.append_as_follower([parts]) == 6
    for i, producer in enumerate((1, 2, 3)):
        assert send(log, 0, 2, producer=producer) == (2 * i, 2 * i + 1, True)
        assert send(log, 2, 1, producer=producer) == (6 + i, 6 + i, False)
    log.close(clean=True)


def test_epochs(place: Place) -> None:
    """Edge 79: an older producer epoch is refused on the leader and taken by a follower; a new one begins at 0, its
    batches unknown."""
    log = create(place.disk, place.of("t-0"))
    send(log, 0, producer=9, epoch=2)
    with pytest.raises(InvalidProducerEpochError):
        send(log, 1, producer=9, epoch=1)
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 1, producer=9, epoch=3)
    assert send(log, 0, producer=9, epoch=3) == (1, 1, False)
    with pytest.raises(InvalidProducerEpochError):
        send(log, 0, producer=9, epoch=2)  # not even as a duplicate
    log.append_as_follower([produced(4, producer=9, epoch=1, base=2, leader=0)])
    entry = log.producers.table.get(9)
    assert entry is not None
    assert (entry.epoch, entry.last_sequence) == (1, 4)
    log.close(clean=True)


def test_unknown_producer(place: Place) -> None:
    """Edge 80: an unknown producer begins at 0, one whose state was dropped for age goes on; anywhere, where the
    folder was taken over."""
    log = create(place.disk, place.of("t-0"))
    with pytest.raises(UnknownProducerIdError):
        send(log, 5)
    assert send(log, 0) == (0, 0, False)
    table = log.producers.table
    assert table.expire(CLOCK.now_ms) == []
    assert table.expire(CLOCK.now_ms + PRODUCER_EXPIRATION_MS - 1) == []
    assert table.expire(CLOCK.now_ms + PRODUCER_EXPIRATION_MS) == [7]
    assert send(log, 1) == (1, 1, False)
    table.lenient = True
    assert send(log, 30, producer=8) == (2, 2, False)
    log.close(clean=True)


def test_what_is_known_of_a_producer_that_expired(place: Place) -> None:
    """It goes on where it was. Were the second of two batches taken when the first was refused, the first would
    pass for one that is in the log. What was cut off is known no more."""
    log = create(place.disk, place.of("t-0"))
    assert [send(log, number)[0] for number in range(3)] == [0, 1, 2]
    table = log.producers.table
    table.expire(CLOCK.now_ms)
    assert table.expire(CLOCK.now_ms + PRODUCER_EXPIRATION_MS) == [7]
    assert len(table) == 0
    with pytest.raises(OutOfOrderSequenceError) as caught:
        send(log, 4)
    assert not isinstance(caught.value, DuplicateSequenceError)
    assert send(log, 2) == (2, 2, True)
    log.truncate_to(2)
    with pytest.raises(UnknownProducerIdError):
        send(log, 2)
    assert send(log, 0) == (2, 2, False)
    log.close(clean=True)


def test_a_producer_that_is_heard_of_does_not_expire(place: Place) -> None:
    """Age counts from the last batch, and an open transaction keeps its producer."""
    log = create(place.disk, place.of("t-0"))
    send(log, 0)
    log.append_as_follower([produced(0, producer=8, base=1, leader=0, transactional=True)])
    table = log.producers.table
    table.expire(CLOCK.now_ms)
    send(log, 1)
    assert table.expire(CLOCK.now_ms + PRODUCER_EXPIRATION_MS) == []
    assert table.expire(CLOCK.now_ms + 2 * PRODUCER_EXPIRATION_MS) == [7]
    assert table.get(8) is not None
    log.close(clean=True)


@pytest.mark.parametrize("days", [-3, 3])
def test_no_clock_that_jumps_makes_a_producer_expire(place: Place, days: int) -> None:
    """Age is time that went by: what was sent just before the wall clock was set is known afterwards, from the next
    snapshot too."""
    clock = SimClock()
    log = create(place.disk, place.of("t-0"), clock=clock)

    def rolled(sequence: int) -> ProducerEntry | None:
        send(log, sequence, producer=8)
        log._roll(log.end_offset)
        return log.producers.table.get(7)

    send(log, 0)
    assert rolled(0) is not None
    clock.skew_wall(days * PRODUCER_EXPIRATION_MS)
    assert rolled(1) is not None
    clock.advance(PRODUCER_EXPIRATION_MS * 1_000_000)
    assert rolled(2) is None
    log.close(clean=True)


def test_a_producer_that_is_kept_does_not_expire(place: Place) -> None:
    """What it began is not finished, as somebody says; when they say so no more, its age counts from then."""
    log = create(place.disk, place.of("t-0"))
    send(log, 0)
    send(log, 0, producer=8)
    state = log.producers
    state.pinned_ids = frozenset([7])
    for days in range(4):
        state.roll(log.end_offset, CLOCK.now_ms + days * PRODUCER_EXPIRATION_MS)
    assert [entry.producer_id for entry in state.table] == [7]
    state.pinned_ids = frozenset()
    state.roll(log.end_offset, CLOCK.now_ms + 4 * PRODUCER_EXPIRATION_MS - 1)
    assert state.table.get(7) is not None
    state.roll(log.end_offset, CLOCK.now_ms + 4 * PRODUCER_EXPIRATION_MS)
    assert state.table.get(7) is None
    log.close(clean=True)


def test_sequence_wrap(place: Place) -> None:
    """Edge 15: after 2**31 - 1 comes 0, within a batch and between batches."""
    log = create(place.disk, place.of("t-0"))
    log.producers.table.lenient = True
    assert send(log, INT32_MAX - 1, 4) == (0, 3, False)
    assert send(log, INT32_MAX - 1, 4) == (0, 3, True)
    entry = log.producers.table.get(7)
    assert entry is not None
    assert entry.batches == [SentBatch(1, 3, 3, 1003)]
    assert entry.batches[0].first_sequence == INT32_MAX - 1
    assert send(log, 2) == (4, 4, False)
    assert send(log, INT32_MAX - 2, 1, producer=8)[2] is False
    assert send(log, INT32_MAX - 1, 2, producer=8)[2] is False
    assert send(log, 0, 1, producer=8)[2] is False
    log.close(clean=True)


def test_a_refused_batch_changes_nothing(place: Place) -> None:
    """The check comes before anything is touched: a refused batch leaves log, epochs and table as they were."""
    log = create(place.disk, place.of("t-0"))
    send(log, 0)
    before = (log.end_offset, raw(log), log.epochs.entries, format_producers(log.producers.table))
    with pytest.raises(OutOfOrderSequenceError):
        log.append_as_leader(produced(5), 1)
    with pytest.raises(UnknownProducerIdError):
        log.append_as_leader(produced(1, producer=99), 1)
    assert (log.end_offset, raw(log), log.epochs.entries, format_producers(log.producers.table)) == before
    log.close(clean=True)


def test_no_plain_batch_within_a_transaction(place: Place) -> None:
    """A producer whose transaction is open in a log may not write beside it."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_follower([produced(0, base=0, leader=0, transactional=True)])
    with pytest.raises(InvalidTransactionStateError):
        send(log, 1)
    log.append_as_follower([marker(commit=True, base=1)])
    assert send(log, 1) == (2, 2, False)
    log.close(clean=True)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshots", [True, False])
def test_known_after_a_restart(place: Place, clean: bool, snapshots: bool) -> None:
    """Planted bug 23: after a restart, clean or not, with snapshots or without, what was sent before is a
    duplicate, and order holds."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    for number in range(40):
        if number < 3:
            send(log, 0, producer=number + 1, epoch=4)
        log.append_as_leader(produced(number, producer=70), 0)
    end = log.end_offset
    sync(place.disk, log)
    log.close(clean=clean)
    if not snapshots:
        for name in place.disk.list(place.of("t-0")):
            if name.endswith(".snapshot"):
                place.disk.remove(place.of(f"t-0/{name}"))
    log = reopen(place.disk, place.of("t-0"), clean=clean)
    assert log.end_offset == end
    assert log.append_as_leader(produced(39, producer=70), 0).duplicate
    with pytest.raises(UnknownProducerIdError):
        send(log, 3, producer=4)
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 41, producer=70)
    assert send(log, 40, producer=70) == (end, end, False)
    log.close(clean=True)


@pytest.mark.parametrize("way", ["restart", "truncation"])
def test_known_after_deleted_records(place: Place, way: str) -> None:
    """Whose records were all deleted is known for as long as their segment is there: what it sends again is not
    appended a second time."""
    log = create(place.disk, place.of("t-0"))
    for number in range(7):
        send(log, number)
    sync(place.disk, log)
    log.advance_high_watermark(7)
    log.delete_records(7)
    if way == "restart":
        log.close(clean=False)
        log = reopen(place.disk, place.of("t-0"))
    else:
        send(log, 0, producer=8)
        log.truncate_to(7)
    assert (log.start_offset, log.end_offset) == (7, 7)
    assert send(log, 6) == (6, 6, True)
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 0)
    assert send(log, 7) == (7, 7, False)
    log.close(clean=True)


def test_known_after_its_records_were_deleted_and_the_process_killed(place: Place) -> None:
    """Nothing of an ``os`` log was synced when records were deleted and the process was killed: who wrote them is
    known all the same."""
    log = create(place.disk, place.of("t-0"), LogConfig(durability="os", segment_bytes=1024))
    assert send(log, 0, 3) == (0, 2, False)
    while len(log.segments()) < 2:
        log.append_as_leader(batch(5, size=60), 0)
    log.advance_high_watermark(log.end_offset)
    log.delete_records(log.segments()[1][0])
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert len(log.segments()) == 1
    assert send(log, 0, 3) == (0, 2, True)
    assert send(log, 3) == (log.end_offset - 1, log.end_offset - 1, False)
    log.close(clean=True)


def remove_snapshots(place: Place) -> None:
    """Of the log t-0: who wrote is to be found in its batches."""
    for name in place.disk.list(place.of("t-0")):
        if name.endswith(".snapshot"):
            place.disk.remove(place.of(f"t-0/{name}"))


def test_damage_in_deleted_records_is_no_matter(place: Place) -> None:
    """The log opens all the same, and who wrote behind it is known."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024, index_interval_bytes=100))
    for number in range(20):
        send(log, 0, producer=number + 1)
    sync(place.disk, log)
    log.advance_high_watermark(20)
    log.delete_records(5)
    assert log.segments()[1][0] > 6
    log.close(clean=True)
    remove_snapshots(place)
    damage_second_batch(place)
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert send(log, 0, producer=6)[2] is True
    assert send(log, 0, producer=3)[2] is False
    log.close(clean=True)


def test_a_transaction_whose_end_is_damaged_in_deleted_records_is_not_open_for_ever(place: Place) -> None:
    """Nothing of it is left, so it keeps nobody from reading what came behind."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024, index_interval_bytes=100))
    log.append_as_follower([produced(0, transactional=True, leader=0), marker(commit=True, base=1)])
    for number in range(20):
        send(log, 0, producer=number + 10)
    sync(place.disk, log)
    log.advance_high_watermark(22)
    log.delete_records(5)
    assert log.segments()[1][0] > 6
    log.close(clean=True)
    remove_snapshots(place)
    damage_second_batch(place)
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert log.last_stable_offset == log.high_watermark == 22
    log.close(clean=True)


def test_bad_snapshots_are_replaced(place: Place) -> None:
    """Edge 100: a damaged snapshot is passed over for an older one and replaced; one beyond the end and stray ones
    go."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    for number in range(40):
        send(log, number)
    log.close(clean=True)
    names = sorted(name for name in place.disk.list(place.of("t-0")) if name.endswith(".snapshot"))
    assert len(names) > 3
    assert names[-1] == f"{40:020d}.snapshot"
    for name in names[1:]:
        content = bytearray(place.read(f"t-0/{name}"))
        content[-1] ^= 1
        place.write(f"t-0/{name}", bytes(content))
    place.write(f"t-0/{3:020d}.snapshot", place.read(f"t-0/{names[0]}"))
    place.write(f"t-0/{4000:020d}.snapshot", place.read(f"t-0/{names[0]}"))
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert send(log, 39)[2] is True
    left = [name for name in place.disk.list(place.of("t-0")) if name.endswith(".snapshot")]
    assert f"{3:020d}.snapshot" not in left
    assert f"{4000:020d}.snapshot" not in left
    for name in left:
        parse_producers(place.read(f"t-0/{name}"), name)
    log.close(clean=True)


def test_truncation_forgets(place: Place) -> None:
    """After a truncation what was cut is not a duplicate any more, and what is left still is; later snapshots are
    gone."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    for number in range(40):
        send(log, number)
        if number < 5:
            send(log, number, producer=8)
    log.truncate_to(25)
    assert log.end_offset == 25
    assert not [
        n for n in place.disk.list(place.of("t-0")) if n.endswith(".snapshot") and int(n.partition(".")[0]) > 25
    ]
    entry = log.producers.table.get(7)
    assert entry is not None
    last = entry.last_sequence
    assert send(log, last)[2] is True
    with pytest.raises(OutOfOrderSequenceError):
        send(log, last + 2)
    assert send(log, last + 1) == (25, 25, False)
    assert send(log, 4, producer=8)[2] is True
    log.truncate_to(3)
    entry = log.producers.table.get(7)
    assert entry is not None
    assert send(log, entry.last_sequence + 1)[:2] == (3, 3)
    log.truncate_fully(100)
    assert len(log.producers.table) == 0
    assert send(log, 0)[:2] == (100, 100)
    log.close(clean=True)


def test_truncation_twice_behind_a_recovery(place: Place) -> None:
    """Recovery noted where the first batch of a producer lies in the last segment. That was cut, others are there
    by now, and none of them bears a producer: the second cut looks for producers from where a batch begins."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    log.append_as_leader(batch(1, size=900, sequence=0), 0)
    log.append_as_leader(batch(1, size=50), 0)
    log.append_as_leader(batch(1, size=50, sequence=1), 0)
    assert [base for base, _ in log.segments()] == [0, 1]
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    log.truncate_to(1)
    for number in range(4):
        log.append_as_leader(batch(1, size=60 + number), 0)
    log.truncate_to(4)
    assert log.end_offset == 4
    entry = log.producers.table.get(7)
    assert entry is not None
    assert entry.last_sequence == 0
    log.close(clean=True)


def test_rot_that_a_truncation_meets_ends_the_log(place: Place) -> None:
    """The producers cannot be made out any more: the cut is half done, and no close calls what is known of them
    whole."""
    log = create(place.disk, place.of("t-0"))
    for number in range(6):
        log.append_as_leader(batch(1, size=50, sequence=number), 0)
    path = f"t-0/{0:020}.log"
    content = bytearray(place.read(path))
    content[len(content) // 6 + 16] = 9  # the magic of the second batch
    file = place.disk.open(place.of(path), write=True)
    file.write_at(0, [content])
    file.close()
    with pytest.raises(CorruptError):
        log.truncate_to(5)
    with pytest.raises(ClosedError):
        log.append_as_leader(batch(1), 0)
    log.close(clean=True)
    assert [name for name in place.disk.list(place.of("t-0")) if name.endswith(".snapshot")] == []


def test_snapshot_bytes() -> None:
    """Snapshots are Kafka's bytes: golden vector A7, both ways, and every flipped bit is noticed."""
    with_batch = ProducerEntry(77, 3, 12, 1_700_000_000_999, 100)
    with_batch.batches.append(SentBatch(9, 104, 4, 1_700_000_000_999))
    without = ProducerEntry(78, 0, -1, 1_700_000_000_999)
    assert format_producers([with_batch, without]) == SNAPSHOT_A7
    assert format_producers(parse_producers(SNAPSHOT_A7, "x")) == SNAPSHOT_A7
    assert format_producers(()) == bytes.fromhex("0001") + format_producers(())[2:6] + bytes(4)
    for position in range(len(SNAPSHOT_A7) * 8):
        content = bytearray(SNAPSHOT_A7)
        content[position // 8] ^= 1 << position % 8
        with pytest.raises(ValueError):
            parse_producers(bytes(content), "x")
    for size in range(len(SNAPSHOT_A7)):
        with pytest.raises(ValueError):
            parse_producers(SNAPSHOT_A7[:size], "x")


def _oracle(sent: list[tuple[int, int, int, int]], producer: int, epoch: int, first: int, count: int) -> object:
    """The rules said plainly, over everything that was appended: (producer, epoch, first sequence, count), whose
    index is its place."""
    mine = [(place, entry) for place, entry in enumerate(sent) if entry[0] == producer]
    if not mine:
        return UnknownProducerIdError if first else "append"
    known = mine[-1][1][1]
    window = []
    for place, entry in mine:
        if entry[1] == known:
            window.append((place, entry))
    for place, entry in window[-5:]:
        if entry == (producer, epoch, first, count):
            return place
    if epoch < known:
        return InvalidProducerEpochError
    if epoch > known:
        return OutOfOrderSequenceError if first else "append"
    last = window[-1][1]
    if first == last[2] + last[3]:
        return "append"
    return DuplicateSequenceError if first + count <= window[-5:][0][1][2] else OutOfOrderSequenceError


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 2),
            st.integers(0, 2),
            st.one_of(st.just(-1), st.integers(0, 6)),
            st.integers(1, 2),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_rules_against_the_oracle(steps: list[tuple[int, int, int, int, bool]]) -> None:
    """Whatever is sent: the table says what the plain rules over the whole history say, also after it went through
    a snapshot."""
    table = ProducerTable()
    sent: list[tuple[int, int, int, int]] = []
    bases: list[int] = []
    end = 0
    for producer, epoch, first, count, reload in steps:
        entry = table.get(producer)
        if first < 0:  # what a well-behaved producer would send
            first = 0 if entry is None or entry.epoch != epoch else entry.last_sequence + 1  # noqa: PLW2901
        expected = _oracle(sent, producer, epoch, first, count)
        batch = RecordBatch(produced(first, count, producer=producer, epoch=epoch))
        try:
            found: object = table.check(batch)
        except PyreplogError as error:
            found = type(error)
        if isinstance(expected, int):
            assert isinstance(found, SentBatch)
            assert found.base_offset == bases[expected]
        elif expected == "append":
            assert found is None
            table.note(batch, end)
            sent.append((producer, epoch, first, count))
            bases.append(end)
            end += count
        else:
            assert found is expected
        if reload:
            again = ProducerTable(end, parse_producers(format_producers(table), "x"))
            for entry in again:
                known = table.get(entry.producer_id)
                assert known is not None
                assert (entry.epoch, entry.last_sequence, entry.last_timestamp) == (
                    known.epoch,
                    known.last_sequence,
                    known.last_timestamp,
                )


def test_as_follower_and_leader_agree(place: Place) -> None:
    """A follower that took the leader's bytes knows of each producer what the leader knows, and answers alike when
    it leads."""
    leader = create(place.disk, place.of("t-0"))
    for number in range(12):
        send(leader, number // 2, producer=number % 2 + 1)
    follower = create(place.disk, place.of("u-0"))
    follower.append_as_follower([raw(leader)])
    assert format_producers(follower.producers.table) == format_producers(leader.producers.table)
    assert [split(raw(follower))[0].producer_id, len(contents(follower))] == [1, 12]
    follower.become_leader(1)
    assert follower.append_as_leader(produced(5, producer=2), 1).duplicate
    leader.close(clean=True)
    follower.close(clean=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 1), st.integers(-1, 4), st.integers(1, 3), st.booleans()),
        min_size=1,
        max_size=25,
    )
)
def test_together_is_as_one_by_one(steps: list[tuple[int, int, int, int, bool]]) -> None:
    """Batches appended as many at a time as the log takes lie where they would lie one by one, and the same are
    duplicates, refused, or damaged."""
    disk = SimDisk(Random(0))
    disk.make_directory("data")
    config = LogConfig(segment_bytes=1500, index_interval_bytes=100)
    single, many = create(disk, "data/t-0", config), create(disk, "data/u-0", config)
    batches: list[bytearray] = []
    next_first: dict[tuple[int, int], int] = {}
    for producer, epoch, first, count, damaged in steps:
        sequence = next_first.get((producer, epoch), 0) if first < 0 else first
        next_first[producer, epoch] = sequence + count
        plain = batch(count, tag=b"%d" % len(batches))
        one = bytearray(plain if producer == 3 else produced(sequence, count, producer=producer, epoch=epoch))
        if damaged and first == 0:
            one[-1] ^= 1
        batches.append(one)
    expected: list[object] = []
    for one in batches:
        try:
            expected.append(single.append_as_leader(bytearray(one), 0))
        except PyreplogError as error:
            expected.append(type(error))
    found: list[object] = []
    while len(found) < len(batches):
        try:
            found.extend(many.append_many_as_leader([(one, False) for one in batches[len(found) :]], 0))
        except PyreplogError as error:
            found.append(type(error))
    assert found == expected
    assert raw(many) == raw(single)
    assert many.segments() == single.segments()
    assert many.stats() == single.stats()
    assert format_producers(many.producers.table) == format_producers(single.producers.table)
    single.close(clean=True)
    many.close(clean=True)
    files = [name for name in disk.list("data/t-0") if name.endswith(("index", "snapshot"))]
    assert [disk.open(f"data/u-0/{name}").read_at(0, 9999) for name in files] == [
        disk.open(f"data/t-0/{name}").read_at(0, 9999) for name in files
    ]


def test_rot_that_the_rebuilding_of_the_producers_finds_is_located() -> None:
    """A batch of a closed segment is none any more, and who sent what has to be read again: the error says which
    offsets are damaged."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0", LogConfig(segment_bytes=1024))
    for number in range(40):
        send(log, number)
    second = log.segments()[1][0]
    sync(disk, log)
    log.close(clean=True)
    for name in disk.list("t-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"t-0/{name}")
    file = disk.open("t-0/00000000000000000000.log")
    sizes = [one.size for one in split(file.read_at(0, file.size()))]
    disk.flip("t-0/00000000000000000000.log", sum(sizes[:5]) + 8, 0x80)
    with pytest.raises(CorruptLogError) as caught:
        reopen(disk, "t-0", clean=True)
    assert (caught.value.start, caught.value.end) == (5, second)
    assert caught.value.position == sum(sizes[:5])
