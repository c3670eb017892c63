"""Edge cases 66 to 83: appending, as leader and as follower, and beginning segments."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import pyreplog
from pyreplog.config import LogConfig
from pyreplog.errors import (
    ClosedError,
    ConfigError,
    CorruptError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    InvalidTimestampError,
    MessageTooLargeError,
    OutOfOrderSequenceError,
    StorageError,
    UnexpectedAppendOffsetError,
    UnknownProducerIdError,
)
from pyreplog.log import Log, RecoveryContext
from pyreplog.log.layout import parent_of, segment_name
from pyreplog.log.producers import PRODUCER_EXPIRATION_MS
from pyreplog.ports import Buffer
from pyreplog.record import Record, RecordBatch
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.unit.log.conftest import Place
from tests.unit.log.producing import Play, marker, produced, send
from tests.unit.log.support import CLOCK, StillClock, batch, contents, create, raw, reopen, sync


def bases(log: Log) -> list[int]:
    """Where its segments begin."""
    return [base for base, _ in log.segments()]


def clocked(place: Place, clock: StillClock, **settings: int) -> Log:
    """A log with a clock of its own."""
    return create(place.disk, place.of("t-0"), LogConfig(**settings), clock=clock)  # type: ignore[arg-type]


@pytest.mark.parametrize("trusted", [True, False])
def test_e066_offsets_across_a_roll(place: Place, trusted: bool) -> None:
    """The first and last offset that an append returns, and the log's end after it, go on over each roll, whoever
    leads; so do a follower's."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    follower = create(place.disk, place.of("u-0"), LogConfig(segment_bytes=1024))
    end = rolled = 0
    for number in range(60):
        count = number % 5 + 1
        before = len(log.segments())
        done = log.append_as_leader(batch(count), 0, trusted=trusted)
        assert (done.base_offset, done.last_offset, done.record_count) == (end, end + count - 1, count)
        end += count
        assert log.end_offset == end
        if len(log.segments()) > before:
            rolled += 1
            assert bases(log)[-1] == done.base_offset
        (part,) = log.read(done.base_offset, 1, end).parts()
        assert follower.append_as_follower([part], at_end=True) == follower.end_offset == end
    assert rolled > 5
    assert bases(follower) == bases(log)
    assert [one.offset for one in contents(log)] == list(range(end))
    # Several batches by one call.
    done_many = log.append_many_as_leader([(batch(2), True), (batch(3), True), (batch(30), True)], 0)
    expected = end
    for done in done_many:
        assert done.base_offset == expected
        expected = done.last_offset + 1
    assert log.end_offset == expected
    log.close(clean=True)
    follower.close(clean=True)


def test_e067_rolled_by_the_time_of_messages(place: Place) -> None:
    """A segment is closed by a message that is more than segment.ms younger than its first, whatever the clock
    says; only where the first has no timestamp does the clock count."""
    clock = StillClock()
    log = clocked(place, clock, segment_ms=1000)
    for timestamp in (5000, 6000, 4000, 6001, 6500, 7001, 7002):
        clock.now_ms += 10_000
        log.append_as_leader(batch(1, timestamp=timestamp), 0)
    assert bases(log) == [0, 3, 6]
    # A follower by the same rule.
    log.append_as_follower([batch(1, base_offset=7, leader_epoch=0, timestamp=8002)])
    log.append_as_follower([batch(1, base_offset=8, leader_epoch=0, timestamp=8003)])
    assert bases(log) == [0, 3, 6, 8]
    log.close(clean=True)
    place = place._replace(path=place.of("other"))
    place.disk.make_directory(place.path)
    log = clocked(place, clock, segment_ms=1000)
    for pause, timestamp in (
        (1000, -1),
        (0, -1),
        (1, 77),
        (999, -1),
        (1, -1),
        (1001, 77),
        (100_000, 500),
        (0, 1077),
        (0, 1078),
    ):
        clock.now_ms += pause
        log.append_as_leader(batch(1, timestamp=timestamp), 0)
    # The second begins with the timestamp 77: the clock does not count there.
    assert bases(log) == [0, 2, 8]
    log.close(clean=True)


def test_e068_an_empty_append_never_rolls(place: Place) -> None:
    """However old or full the segment is: nothing fetched, nothing closed, nothing begun."""
    clock = StillClock()
    log = clocked(place, clock, segment_ms=1, segment_bytes=1024, segment_index_bytes=24)
    log.append_as_leader(batch(20, timestamp=1), 0)
    names = sorted(place.disk.list(place.of("t-0")))
    clock.now_ms += 10**9
    nothings: list[list[Buffer]] = [[], [b""], [b"", memoryview(b"")]]
    for nothing in nothings:
        assert log.append_as_follower(nothing) == 20
        assert bases(log) == [0]
    assert sorted(place.disk.list(place.of("t-0"))) == names
    log.append_as_leader(batch(1, timestamp=10**6), 0)
    assert bases(log) == [0, 20]
    log.close(clean=True)


def test_e069_no_closed_segment_is_empty(place: Place) -> None:
    """Whatever makes a segment be closed, it holds something; one that is empty and would be begun again at the
    same offset goes on."""
    clock = StillClock()
    for number, settings in enumerate(
        (
            {"segment_bytes": 1024},
            {"segment_ms": 1},
            {"segment_index_bytes": 24, "index_interval_bytes": 0},
        )
    ):
        inner = place._replace(path=place.of(f"{number}"))
        place.disk.make_directory(inner.path)
        log = clocked(inner, clock, **settings)
        for turn in range(40):
            clock.now_ms += 10**6
            # Cut to nothing, or to where the segment begins, and on: it is empty, old, and at its
            # base.
            if turn % 7 == 3:
                log.truncate_to(bases(log)[-1])
                assert log.end_offset == bases(log)[-1]
            if turn == 20:
                log.truncate_to(0)
            log.append_as_leader(batch(3, size=100, timestamp=1000 * turn), 0)
            if turn % 2:
                data = batch(2, size=600, base_offset=log.end_offset, leader_epoch=0, timestamp=1000 * turn)
                log.append_as_follower([data])
        sizes = [size for _, size in log.segments()]
        assert len(sizes) > 5
        assert all(sizes), settings
        log.close(clean=True)
        log = Log.open(
            place.disk,
            inner.of("t-0"),
            TopicPartition("t", 0),
            None,
            clock,
            None,
            RecoveryContext(clean=False, same_boot=True),
        )
        assert [size for _, size in log.segments()] == sizes
        log.close(clean=True)


def test_e069_nor_one_that_waits_for_far_offsets(place: Place) -> None:
    """Where a follower's first batch is too far from an empty segment's base, that segment does not stay behind,
    but for the first, in which the log's start is."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    for number in range(20):
        log.append_as_leader(batch(3, size=60, timestamp=number), 0)
    log.truncate_to(bases(log)[-1])
    assert log.segments()[-1][1] == 0
    far = log.end_offset + 2**33
    log.append_as_follower([batch(2, base_offset=far, leader_epoch=0)])
    assert bases(log)[-1] == far
    assert all(size for _, size in log.segments())
    before = [one.offset for one in contents(log)]
    assert before[-2:] == [far, far + 1]
    sync(place.disk, log)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert [one.offset for one in contents(log)] == before
    assert all(size for _, size in log.segments())
    log.truncate_to(far - 5)
    assert (log.end_offset, len(log.segments())) == (before[-3] + 1, len(bases(log)))
    log.close(clean=True)


def test_e070_jitter_only_advances(place: Place) -> None:
    """With segment.jitter.ms a segment is closed earlier than segment.ms says, or just then; never later, and not
    all alike."""
    log = clocked(place, StillClock(), segment_ms=1000, segment_jitter_ms=900, segment_bytes=1 << 20)
    spans = []
    timestamp = first = 10**6
    for _ in range(400):
        before = len(log.segments())
        log.append_as_leader(batch(1, timestamp=timestamp), 0)
        if len(log.segments()) > before:
            spans.append(timestamp - first)
            first = timestamp
        timestamp += 20
    assert len(spans) > 8
    assert max(spans) <= 1020  # the first message beyond segment.ms
    assert min(spans) > 100  # and not more than the jitter early
    assert len({*spans}) > 3
    log.close(clean=True)


def test_e071_a_follower_takes_what_its_leader_took(place: Place) -> None:
    """A batch above max.message.bytes or segment.bytes is refused by a leader and taken by a follower, whose
    settings may be behind."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024, max_message_bytes=500))
    large = batch(20, size=100)
    with pytest.raises(MessageTooLargeError):
        log.append_as_leader(large, 0)
    data = batch(20, size=100, base_offset=0, leader_epoch=0)
    assert data.nbytes > 1024
    assert log.append_as_follower([data]) == 20
    assert log.append_as_follower([batch(20, size=100, base_offset=20, leader_epoch=0)]) == 40
    assert len(contents(log)) == 40
    log.close(clean=True)


def test_e072_larger_than_a_segment(place: Place) -> None:
    """What no segment may hold is refused by a leader, with its size, and nothing changes; one byte less is
    taken."""
    size = batch(20, size=100).nbytes
    for room, taken in ((size, True), (size - 1, False)):
        log = create(place.disk, place.of(f"{room}-0"), LogConfig(segment_bytes=room))
        log.append_as_leader(batch(1), 0)
        before = (log.segments(), log.end_offset)
        for trusted in (False, True):
            if taken:
                assert log.append_as_leader(batch(20, size=100), 0, trusted=trusted).size == size
                continue
            with pytest.raises(MessageTooLargeError, match=rf"{size} bytes; segment\.bytes .* {room}"):
                log.append_as_leader(batch(20, size=100), 0, trusted=trusted)
            assert (log.segments(), log.end_offset) == before
        assert max(size for _, size in log.segments()) <= room
        log.close(clean=True)


def test_e073_a_follower_below_its_end(place: Place) -> None:
    """What a follower has already is refused as a whole, and the error carries the first and the last offset of
    it."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_follower([batch(5, leader_epoch=4)])
    whole = raw(log)
    for base, count in ((0, 1), (0, 5), (2, 2), (4, 1), (4, 10)):
        for parts in (
            [batch(count, base_offset=base, leader_epoch=4)],
            [batch(count, base_offset=base, leader_epoch=4), batch(1, base_offset=base + count, leader_epoch=4)],
        ):
            for at_end in (False, True):
                with pytest.raises(
                    UnexpectedAppendOffsetError, match=f"offsets {base} to {base + count - 1}, expected 5"
                ) as caught:
                    log.append_as_follower(parts, at_end=at_end)
                error = caught.value
                assert (error.first_offset, error.last_offset, error.end_offset) == (base, base + count - 1, 5)
                assert isinstance(error, CorruptError)
    # Behind a good one, too; and one that begins behind the end, where it may not.
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        log.append_as_follower([batch(3, base_offset=5, leader_epoch=4), batch(2, base_offset=7, leader_epoch=4)])
    assert (caught.value.first_offset, caught.value.last_offset, caught.value.end_offset) == (7, 8, 8)
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        log.append_as_follower([batch(3, base_offset=6, leader_epoch=4)], at_end=True)
    assert (caught.value.first_offset, caught.value.last_offset, caught.value.end_offset) == (6, 8, 5)
    assert (raw(log), log.end_offset) == (whole, 5)
    assert log.append_as_follower([batch(3, base_offset=5, leader_epoch=4)], at_end=True) == 8
    log.close(clean=True)


def test_e074_a_follower_with_gaps(place: Place) -> None:
    """Offsets that the leader's log no longer has are left out, before, between and within batches, and are no
    damage afterwards."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    expected: list[int] = []
    for base in (3, 5, 9, 20, 21 + 2**20):
        assert log.append_as_follower([batch(2, base_offset=base, leader_epoch=0)]) == base + 2
        expected += [base, base + 1]
    parts = [batch(2, base_offset=log.end_offset + skip, leader_epoch=0) for skip in (7, 40, 41 + 2)]
    log.append_as_follower(parts)
    expected += [one.offset for part in parts for one in records_in(part)]
    assert [one.offset for one in contents(log)] == expected
    log.set_tail_cache_size(0)
    for offset in (0, 4, 7, 10, 500, expected[-1]):
        assert contents(log, offset)[0].offset == min(one for one in expected if one >= offset)
    sync(place.disk, log)
    log.close(clean=False)
    for _ in range(2):
        log = reopen(place.disk, place.of("t-0"), same_boot=False)
        assert [one.offset for one in contents(log)] == expected
        assert log.recovery.torn_size == 0
        log.close(clean=True)


def records_in(data: memoryview) -> list[Record]:
    """Of one batch."""
    return RecordBatch(data).records()


def test_e075_a_compacted_log_takes_no_record_without_a_key(tmp_path: Path) -> None:
    """At every door, and with the record's index; nothing of the append is taken. A log that has such records
    becomes compacted only if it may drop them."""
    config = {"cleanup.policy": "compact"}
    with pyreplog.open_log(tmp_path / "log", config=config) as log:
        log.append(b"kept", key=b"k")
        log.append(None, key=b"k")
        for refused in (
            lambda: log.append(b"v"),
            lambda: log.append(b"v", wait=False),
            lambda: log.append_nowait(b"v"),
            lambda: log.append_many([b"v"]),
            lambda: log.append_many([b"v", b"w"], keys=[b"k", None]),
            lambda: log.append_many([b"v", b"w"], keys=[b"k", None], wait=False),
            lambda: log.append_arrow(pa.table({"value": [b"v"]})),
            lambda: log.append_arrow(pa.table({"key": [b"k", None], "value": [b"v", b"w"]})),
            lambda: log.append_arrow(pa.table({"key": [b"k", None], "value": [b"v", b"w"]}), wait=False),
        ):
            with pytest.raises(pyreplog.InvalidRequestError, match="record [01] has no key"):
                refused()
        assert [(record.key, record.value) for record in log] == [(b"k", b"kept"), (b"k", None)]
        assert log.end_offset == 2
    with pyreplog.open_log(tmp_path / "other") as log:
        log.append(b"v", key=b"k")
        log.append(b"without")
    with pytest.raises(ConfigError, match="without a key at offset 1, so it cannot become compacted"):
        pyreplog.open_log(tmp_path / "other", config=config)
    with pyreplog.open_log(tmp_path / "other", config={**config, "compact.unkeyed": "drop"}) as log:
        assert log.compact().unkeyed_dropped == 1
        assert [record.offset for record in log.read(0)] == [0]


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("trusted", [True, False])
def test_e076_times_out_of_bounds(place: Place, codec: int, trusted: bool) -> None:
    """A record too far back or ahead refuses its batch, by its index; the bounds themselves are within; no
    timestamp is in order."""
    clock = StillClock()
    log = clocked(place, clock, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    now = clock.now_ms
    for timestamp, count in ((now - 1000, 1), (now + 500, 1), (now, 1), (now + 498, 3), (-1, 1)):
        log.append_as_leader(batch(count, timestamp=timestamp, codec=codec), 0, trusted=trusted)
    whole, end = raw(log), log.end_offset
    for timestamp, count, bad, setting in (
        (now - 1001, 1, 0, "before"),
        (now - 1001, 3, 0, "before"),
        (now + 501, 1, 0, "after"),
        (now + 499, 3, 2, "after"),
        (now - 10**9, 1, 0, "before"),
    ):
        with pytest.raises(
            InvalidTimestampError, match=rf"record {bad} of a batch.*message\.timestamp\.{setting}\.max\.ms"
        ):
            log.append_as_leader(batch(count, timestamp=timestamp, codec=codec), 0, trusted=trusted)
    assert (raw(log), log.end_offset) == (whole, end)
    # A follower takes what its leader took.
    log.append_as_follower([batch(2, timestamp=1, base_offset=end, leader_epoch=0)])
    assert log.end_offset == end + 2
    log.close(clean=True)


def test_e077_sent_again(place: Place) -> None:
    """Each of a producer's last five batches, sent again, gets the offsets of the first time and appends nothing;
    the sixth is refused."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    for number in range(6):
        assert send(log, 3 * number, 3) == (4 * number, 4 * number + 2, False)
        log.append_as_leader(batch(1), 0)
    whole = raw(log)
    for _ in range(2):
        for number in (5, 1, 3, 2, 4):
            assert send(log, 3 * number, 3) == (4 * number, 4 * number + 2, True)
    # Kafka says OutOfOrderSequence of the sixth; here the client hears that it is there, since
    # later ones are.
    with pytest.raises(DuplicateSequenceError):
        send(log, 0, 3)
    for sequence, count in ((15, 2), (16, 2), (14, 3), (19, 1), (21, 3)):
        with pytest.raises(OutOfOrderSequenceError):
            send(log, sequence, count)
    assert raw(log) == whole
    assert send(log, 18, 1) == (24, 24, False)
    log.close(clean=True)


def test_e078_several_producers_at_once(place: Place) -> None:
    """Batches of several producers in one append are told apart: each sent again is a duplicate for its own
    alone."""
    log = create(place.disk, place.of("t-0"))
    parts = b"".join(
        bytes(produced(0, 2, producer=producer, base=2 * slot, leader=0)) for slot, producer in enumerate((1, 2, 3))
    )
    assert log.append_as_follower([parts]) == 6
    # The same producer several times in one append.
    more = [produced(2, 1, producer=1, base=6, leader=0), produced(3, 2, producer=1, base=7, leader=0)]
    assert log.append_as_follower(more) == 9
    whole = raw(log)
    for slot, producer in enumerate((1, 2, 3)):
        assert send(log, 0, 2, producer=producer) == (2 * slot, 2 * slot + 1, True)
    assert send(log, 2, 1, producer=1) == (6, 6, True)
    assert send(log, 3, 2, producer=1) == (7, 8, True)
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 3, 2, producer=2)
    assert raw(log) == whole
    assert send(log, 2, 1, producer=3) == (9, 9, False)
    assert send(log, 5, 1, producer=1) == (10, 10, False)
    # By a leader's call for several batches, too.
    both = [(produced(3, 1, producer=3), True), (produced(2, 1, producer=2), True), (produced(3, 1, producer=3), True)]
    places = []
    while both:
        done = log.append_many_as_leader(both, 0)
        places += [(one.base_offset, one.duplicate) for one in done]
        del both[: len(done)]
    assert places == [(11, False), (12, False), (11, True)]
    log.close(clean=True)


def test_e079_an_old_producer_epoch(place: Place) -> None:
    """A client that writes in an older epoch than its producer's is refused, also with a duplicate; a replica takes
    it, as its leader did."""
    log = create(place.disk, place.of("t-0"))
    send(log, 0, producer=9, epoch=2)
    for sequence in (0, 1, 5):
        with pytest.raises(InvalidProducerEpochError):
            send(log, sequence, producer=9, epoch=1)
    assert log.end_offset == 1
    assert send(log, 0, producer=9, epoch=3) == (1, 1, False)
    with pytest.raises(InvalidProducerEpochError):
        send(log, 0, producer=9, epoch=2)
    log.append_as_follower([produced(4, producer=9, epoch=1, base=2, leader=0)])
    assert log.end_offset == 3
    assert [one.value for one in contents(log)] == [b"9-2-0", b"9-3-0", b"9-1-4"]
    log.close(clean=True)


def test_e080_where_an_unknown_producer_begins(place: Place) -> None:
    """In a folder taken over from Kafka an unknown producer may begin at any sequence. Else our leader is strict:
    it begins at 0, or, where its state was dropped for age, goes on."""
    log = create(place.disk, place.of("t-0"))
    with pytest.raises(UnknownProducerIdError):
        send(log, 5)
    assert send(log, 0) == (0, 0, False)
    assert log.producers.table.expire(CLOCK.now_ms + PRODUCER_EXPIRATION_MS - 1) == []
    assert log.producers.table.expire(CLOCK.now_ms + PRODUCER_EXPIRATION_MS * 2) == [7]
    assert send(log, 1) == (1, 1, False)
    log.close(clean=True)
    # As Kafka left it: no mark of ours.
    for name in place.disk.list(place.of("t-0")):
        if name.startswith("replog."):
            place.disk.remove(place.of(f"t-0/{name}"))
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert send(log, 30, producer=8) == (2, 2, False)
    with pytest.raises(OutOfOrderSequenceError):
        send(log, 30, 2, producer=8)
    assert send(log, 31, producer=8) == (3, 3, False)
    log.close(clean=True)


@pytest.mark.parametrize("place", ["sim"], indirect=True)
def test_e081_a_failing_transaction_index(place: Place) -> None:
    """When the entry of an aborted transaction finds no room, its marker's offset is not given out again, and the
    entry follows."""
    assert isinstance(place.disk, SimDisk)
    log = create(place.disk, place.of("t-0"))
    play = Play(log)
    play.data(1)
    place.disk.fail("write", "*.txnindex", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        log.append_as_follower([marker(commit=False, producer=1, base=2)])
    assert log.end_offset == 3
    assert len(log.aborted_transactions(0, 3)) == 1
    place.disk.clear_faults()
    play.data(2)
    play.end(2, commit=False)
    assert [entry.first_offset for entry in log.aborted_transactions(0, log.end_offset)] == [0, 3]
    log.set_high_watermark(log.end_offset)
    log.close(clean=True)
    assert len(place.read(f"t-0/{segment_name(0, '.txnindex')}")) == 68
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert [entry.first_offset for entry in log.aborted_transactions(0, log.end_offset)] == [0, 3]
    log.close(clean=True)


@pytest.mark.parametrize("place", ["sim"], indirect=True)
def test_e081_a_broken_transaction_index(place: Place) -> None:
    """When it is refused for another reason than lack of room, nobody knows what is on the disk: nothing is
    appended from then on."""
    assert isinstance(place.disk, SimDisk)
    log = create(place.disk, place.of("t-0"))
    Play(log).data(1)
    place.disk.fail("write", "*.txnindex", error=errno.EIO)
    with pytest.raises(StorageError):
        log.append_as_follower([marker(commit=False, producer=1, base=2)])
    assert log.poisoned
    log.close(clean=False)


@pytest.mark.parametrize("place", ["sim"], indirect=True)
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_e082_after_a_disk_failed(place: Place, kind: str) -> None:
    """Once the disk has refused, every append says so until the log is opened again, though the disk is well by
    then; what was durable is read, and is there afterwards."""
    disk = place.disk
    assert isinstance(disk, SimDisk)
    log = create(disk, place.of("t-0"))
    log.append_as_leader(batch(2), 0)
    sync(disk, log)
    log.advance_high_watermark(2)
    if kind == "sync":
        log.append_as_leader(batch(2), 0)
    disk.fail(kind, path="*.log", error=errno.EIO)
    with pytest.raises(StorageError) as caught:
        if kind == "sync":
            sync(disk, log)
        else:
            log.append_as_leader(batch(2), 0)
    assert caught.value.errno == errno.EIO
    disk.clear_faults()
    for _ in range(2):
        with pytest.raises(ClosedError, match="poisoned") as again:
            log.append_as_leader(batch(2), 0)
        assert isinstance(again.value.__cause__, StorageError)
        with pytest.raises(ClosedError, match="poisoned"):
            log.append_as_follower([batch(2, base_offset=log.end_offset, leader_epoch=0)])
    assert log.sync_plan() is None
    assert [one.offset for one in contents(log, 0, 4)] == [0, 1]
    log.close(clean=True)
    log = reopen(disk, place.of("t-0"), clean=False)
    assert [one.offset for one in contents(log)][:2] == [0, 1]
    log.append_as_leader(batch(2), 0)
    log.close(clean=True)


def test_e083_the_topic_id_comes_first(place: Place) -> None:
    """``partition.metadata`` is there before anything is appended, whatever a power cut then leaves, and another id
    is refused."""
    log = create(place.disk, place.of("t-0"))
    text = f"version: 0\ntopic_id: {log.topic_id}".encode()
    assert place.read("t-0/partition.metadata") == text
    disk = place.disk
    if isinstance(disk, SimDisk):
        disk.sync_directory(place.path)  # the caller's, as that of the folder above
        disk.sync_directory(parent_of(place.path))
        for seed in range(30):
            assert Place(disk.crash(Random(seed)), place.path).read("t-0/partition.metadata") == text
    log.append_as_leader(batch(1), 0)
    log.close(clean=True)
    before = {name: place.read(f"t-0/{name}") for name in disk.list(place.of("t-0"))}
    with pytest.raises(ConfigError):
        Log.open(
            place.disk,
            place.of("t-0"),
            TopicPartition("t", 0),
            None,
            CLOCK,
            "AAAAAAAAAAAAAAAAAAAAAQ",
            RecoveryContext(clean=True, same_boot=True),
        )
    assert {name: place.read(f"t-0/{name}") for name in disk.list(place.of("t-0"))} == before
