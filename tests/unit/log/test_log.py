"""One partition's log: append as a leader and as a follower, settings, epochs, closing."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import (
    ClosedError,
    ConfigError,
    CorruptError,
    InternalError,
    InvalidRequestError,
    MessageTooLargeError,
)
from pyreplog.log import Log, NewLog
from pyreplog.log.producer_state import ProducerState
from pyreplog.record import CODEC_NUMBERS, split
from pyreplog.testing.disk import SimDisk
from pyreplog.values import EpochEntry, TimestampType, TopicPartition
from tests.unit.log.conftest import Place
from tests.unit.log.support import (
    CLOCK,
    SMALL,
    bases,
    batch,
    contents,
    create,
    filled,
    raw,
    reopen,
    sync,
)


def test_a_leader_gives_offsets_and_epoch(place: Place) -> None:
    """Batches get consecutive offsets and the leader's epoch; the answer says which."""
    log = create(place.disk, place.of("t-0"))
    first = log.append_as_leader(batch(3), 0)
    second = log.append_as_leader(batch(2), 0)
    assert (first.base_offset, first.last_offset, first.record_count, first.timestamp) == (0, 2, 3, -1)
    assert (second.base_offset, second.last_offset) == (3, 4)
    assert log.end_offset == 5
    assert [(record.offset, record.leader_epoch) for record in contents(log)] == [(offset, 0) for offset in range(5)]
    assert log.stats().batches_appended == 2
    assert log.stats().records_appended == 5
    assert log.stats().bytes_appended == log.stats().size == first.size + second.size
    log.close(clean=True)


def test_a_read_only_batch_is_copied(place: Place) -> None:
    """Bytes that cannot be written to are not."""
    log = create(place.disk, place.of("t-0"), start_offset=7)
    content = bytes(batch(2))
    before = bytes(content)
    assert log.append_as_leader(content, 0).base_offset == 7
    assert content == before
    assert contents(log)[0].offset == 7
    log.close(clean=True)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_checked_and_kept(place: Place, codec: str) -> None:
    """A compressed batch is stored as it came and reads back."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_leader(batch(5, codec=CODEC_NUMBERS[codec]), 0)
    assert split(raw(log))[0].codec == CODEC_NUMBERS[codec]
    assert [record.key for record in contents(log)] == [b"k%d" % number for number in range(5)]
    log.close(clean=True)


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_rewrites_batches(place: Place, codec: str) -> None:
    """With compression.type set, every batch is stored in that codec, with its records and header fields
    unchanged."""
    log = create(place.disk, place.of("t-0"), LogConfig(compression_type=codec))
    for sent in ("none", "zstd", "lz4"):
        log.append_as_leader(batch(4, codec=CODEC_NUMBERS[sent], timestamp=77), 0)
    assert {one.codec for one in split(raw(log))} == {CODEC_NUMBERS[codec]}
    assert [(record.offset, record.timestamp, record.key) for record in contents(log)] == [
        (o, 77 + o % 4, b"k%d" % (o % 4)) for o in range(12)
    ]
    log.close(clean=True)


def test_append_time_replaces_timestamps(place: Place) -> None:
    """With LogAppendTime every record bears the leader's clock, and the answer says so."""
    log = create(place.disk, place.of("t-0"), LogConfig(message_timestamp_type="LogAppendTime"))
    appended = log.append_as_leader(batch(3, timestamp=5), 0, trusted=True)
    assert appended.timestamp == CLOCK.wall_ms()
    assert {(record.timestamp, record.timestamp_type) for record in contents(log)} == {
        (CLOCK.wall_ms(), TimestampType.LOG_APPEND_TIME)
    }
    assert log.find_timestamp(CLOCK.wall_ms(), 3) == (0, CLOCK.wall_ms())
    log.close(clean=True)


def test_a_leader_refuses_bad_batches(place: Place) -> None:
    """A flipped bit, bytes behind the batch, a cut one, control records, offsets not from 0: refused, and nothing
    is appended."""
    log = create(place.disk, place.of("t-0"))
    good = bytes(batch(3))
    for position in range(16, len(good)):
        flipped = bytearray(good)
        flipped[position] ^= 4
        with pytest.raises(CorruptError):
            log.append_as_leader(flipped, 0)
    for bad in (good + b"\0", good + good, good[:-1], good[:40], b""):
        with pytest.raises(CorruptError):
            log.append_as_leader(bytearray(bad), 0)
    with pytest.raises(InvalidRequestError):
        log.append_as_leader(batch(1, base_offset=4), 0)
    assert log.end_offset == 0
    assert log.stats().size == 0
    log.append_as_leader(bytearray(good), 0)
    assert len(contents(log)) == 3
    log.close(clean=True)


def test_too_large_is_refused(place: Place) -> None:
    """A batch above max.message.bytes or segment.bytes is refused with its size; one exactly as large is taken."""
    one = batch(1, size=400)
    log = create(place.disk, place.of("t-0"), LogConfig(max_message_bytes=len(one)))
    log.append_as_leader(one, 0)
    with pytest.raises(MessageTooLargeError, match="max.message.bytes"):
        log.append_as_leader(batch(1, size=401), 0)
    log.close(clean=True)
    other = create(place.disk, place.of("t-1"), LogConfig(segment_bytes=1024))
    with pytest.raises(MessageTooLargeError, match="segment.bytes"):
        other.append_as_leader(batch(1, size=2000), 0)
    # A follower takes what its leader took (KAFKA-17375).
    assert other.append_as_follower([batch(1, size=2000, leader_epoch=0)]) == 1
    other.close(clean=True)


@pytest.mark.parametrize("trusted", [False, True])
def test_the_last_offsets_and_epochs(place: Place, trusted: bool) -> None:
    """Up to 2^63 - 2 records are taken, and found again; what does not fit below is refused, as is an epoch above
    2^31 - 1."""
    log = create(place.disk, place.of("t-0"), SMALL)
    first = 2**63 - 4
    log.truncate_fully(first)
    log.become_leader(2**31 - 1)
    log.append_as_leader(batch(2), 2**31 - 1, trusted=trusted)
    with pytest.raises(InvalidRequestError, match="used up its offsets: import"):
        log.append_as_leader(batch(2), 2**31 - 1, trusted=trusted)
    log.append_as_leader(batch(1), 2**31 - 1, trusted=trusted)
    for number in (1, 5):
        with pytest.raises(InvalidRequestError, match="used up its offsets: import"):
            log.append_as_leader(batch(number), 2**31 - 1, trusted=trusted)
    with pytest.raises(InvalidRequestError, match="used up its leader epochs: import"):
        log.become_leader(2**31)
    sync(place.disk, log)
    log.close(clean=False)
    again = reopen(place.disk, place.of("t-0"), same_boot=True)
    assert [record.offset for record in contents(again)] == [first, first + 1, first + 2]
    assert (again.end_offset, again.epochs.latest) == (2**63 - 1, 2**31 - 1)
    again.close(clean=True)


def test_a_follower_keeps_the_bytes(place: Place) -> None:
    """What a follower appends is what the leader has, byte for byte, with the same epochs, however it is cut into
    parts."""
    leader = create(place.disk, place.of("t-0"), SMALL)
    for number in range(12):
        if number in (4, 9):
            leader.become_leader(number)
        leader.append_as_leader(batch(1 + number % 3, size=60, tag=b"%d" % number), leader.epochs.latest)
    random = Random(5)
    for index in range(4):
        (follower,) = Log.create(
            place.disk, [NewLog(place.of(f"f-{index}"), TopicPartition("t", 0), leader.topic_id, SMALL)], CLOCK
        )
        while follower.end_offset < leader.end_offset:
            cut = leader.read(follower.end_offset, random.randrange(100, 900), leader.end_offset)
            assert follower.append_as_follower(cut.parts()) == follower.end_offset
        assert raw(follower) == raw(leader)
        assert follower.epochs == leader.epochs
        follower.close(clean=True)
    leader.close(clean=True)


class NoMemory:
    """In the place of what knows the producers."""

    def __getattr__(self, _: str) -> None:
        raise MemoryError


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_follower_wrote_counts_although_memory_ended(place: Place, count: int) -> None:
    """Where there is no memory to note who sent a batch it is in the log all the same, once: given again it is
    refused."""
    log = create(place.disk, place.of("t-0"))
    for number in range(2):
        log.append_as_follower([batch(1, base_offset=number, leader_epoch=0, sequence=number)])
    parts = [batch(1, base_offset=2 + number, leader_epoch=0, sequence=2 + number) for number in range(count)]
    producers, log.producers = log.producers, cast("ProducerState", NoMemory())
    with pytest.raises(MemoryError):
        log.append_as_follower(parts, at_end=True)
    log.producers = producers
    assert log.end_offset == 2 + count
    with pytest.raises(ClosedError):  # it does not know who sent what it has
        log.append_as_follower(parts, at_end=True)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    with pytest.raises(CorruptError):
        log.append_as_follower(parts, at_end=True)
    assert (
        log.append_as_follower([batch(1, base_offset=2 + count, leader_epoch=0, sequence=2 + count)], at_end=True)
        == 3 + count
    )
    assert [record.offset for record in contents(log)] == [*range(3 + count)]


def test_what_a_leader_wrote_counts_although_memory_ended(place: Place) -> None:
    """As of a follower: the next batch goes behind it, and it is known when it is sent again."""
    log = create(place.disk, place.of("t-0"))
    for number in range(2):
        log.append_as_leader(batch(1, sequence=number), 0, trusted=True)
    known = log.producers
    sent: list[int] = []

    class Failing:
        """The first look finds the producer; then memory ends."""

        @property
        def table(self) -> object:
            if sent:
                raise MemoryError
            sent.append(1)
            return known.table

    log.producers = cast("ProducerState", Failing())
    with pytest.raises(MemoryError):
        log.append_as_leader(batch(1, sequence=2), 0, trusted=True)
    log.producers = known
    assert log.end_offset == 3
    with pytest.raises(ClosedError):
        log.append_as_leader(batch(1, sequence=2), 0, trusted=True)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert log.append_as_leader(batch(1, sequence=2), 0, trusted=True).duplicate
    assert log.append_as_leader(batch(1), 0, trusted=True).base_offset == 3
    assert [record.offset for record in contents(log)] == [0, 1, 2, 3]


def test_a_follower_refuses_what_does_not_follow(place: Place) -> None:
    """Offsets below the end, falling epochs, a bad checksum, half a batch: refused as a whole, and nothing of it is
    appended."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_follower([batch(3, leader_epoch=4)])
    good = batch(2, base_offset=3, leader_epoch=4)
    for bad in (
        batch(1, base_offset=2, leader_epoch=4),
        batch(1, base_offset=3, leader_epoch=3),
        batch(1, base_offset=3, leader_epoch=-1),
        bytes(batch(1, base_offset=5, leader_epoch=4))[:-3],
    ):
        with pytest.raises(CorruptError):
            log.append_as_follower([good, bad])
        with pytest.raises(CorruptError):
            log.append_as_follower([bad], at_end=True)
    flipped = bytearray(batch(1, base_offset=5, leader_epoch=4))
    flipped[-1] ^= 1
    with pytest.raises(CorruptError):
        log.append_as_follower([good, flipped])
    near = bytearray(batch(1, base_offset=3, leader_epoch=4))
    near[-1] ^= 1
    with pytest.raises(CorruptError):
        log.append_as_follower([near], at_end=True)
    assert log.end_offset == 3
    assert log.append_as_follower([]) == 3
    assert log.append_as_follower([b""]) == 3
    # Gaps are allowed: the leader's log may have been compacted.
    assert log.append_as_follower([batch(1, base_offset=30, leader_epoch=6)]) == 31
    assert log.epochs.entries == [EpochEntry(0, 0), EpochEntry(6, 30)][-2:] or log.epochs.latest == 6
    assert [record.offset for record in contents(log)] == [0, 1, 2, 30]
    log.close(clean=True)


def test_a_gap_too_wide_for_a_segment_begins_a_new_one(place: Place) -> None:
    """Offsets further away than a segment's index can say begin a new segment, and the log opens again."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_follower([batch(1, leader_epoch=0)])
    far = 2**33
    log.append_as_follower([batch(1, base_offset=far, leader_epoch=0)])
    assert bases(place) == [0, far]
    sync(place.disk, log)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"), same_boot=False)
    assert [record.offset for record in contents(log)] == [0, far]
    assert log.end_offset == far + 1
    log.close(clean=True)


def test_a_closed_log_refuses(place: Place) -> None:
    """Everything but closing again raises ClosedError."""
    log = filled(place)
    log.close(clean=True)
    log.close(clean=True)
    assert log.closed
    for call in (
        lambda: log.append_as_leader(batch(1), 0),
        lambda: log.append_as_follower([batch(1)]),
        lambda: log.read(0, 100, 40),
        lambda: log.find_timestamp(0, 40),
        lambda: log.truncate_to(3),
        lambda: log.truncate_fully(3),
        lambda: log.become_leader(9),
        lambda: log.increment_start_offset(1),
        lambda: log.set_incomplete(True),
        log.sync_mark,
    ):
        with pytest.raises(ClosedError):
            call()
    assert log.sync_plan() is None
    log.write_mark()
    log.synced(40, log.generation)
    log.poison(OSError())


def test_a_leader_epoch_never_falls(place: Place) -> None:
    """Leading in an older epoch than the log's is a bug."""
    log = filled(place)
    log.become_leader(5)
    with pytest.raises(InternalError):
        log.become_leader(4)
    with pytest.raises(InternalError):
        log.append_as_leader(batch(1), 4)
    assert log.epochs.entries == [(0, 0), (5, 40)]
    log.close(clean=True)


def test_durability_stays(place: Place) -> None:
    """Opened without settings a log keeps its own; another durability is refused by both names; others are taken
    over and kept."""
    directory = place.of("t-0")
    create(place.disk, directory, LogConfig(durability="os", segment_bytes=2000)).close(clean=True)
    log = reopen(place.disk, directory, clean=True)
    assert log.config == LogConfig(durability="os", segment_bytes=2000)
    assert log.durability == "os"
    with pytest.raises(ConfigError, match=r"'os'.*'sync'"):
        log.update_config(LogConfig(durability="sync"))
    log.close(clean=True)
    with pytest.raises(ConfigError, match=r"'os'.*'sync'"):
        reopen(place.disk, directory, config=LogConfig(durability="sync"))
    reopen(place.disk, directory, config=LogConfig(durability="os", segment_bytes=3000)).close(clean=True)
    log = reopen(place.disk, directory)
    assert log.config.segment_bytes == 3000
    log.update_config(LogConfig(durability="os", segment_bytes=4000))
    log.close(clean=False)
    # Even without the file the mark knows.
    place.disk.remove(f"{directory}/replog.config")
    log = reopen(place.disk, directory)
    assert log.config == LogConfig(durability="os")
    log.close(clean=True)


def test_incomplete_is_durable_at_once() -> None:
    """Being incomplete is on stable storage when the call returns, and so is being complete again."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    disk.sync_directory("/")
    log = create(disk, "data/t-0", LogConfig(durability="sync"))
    for incomplete in (True, True, False, True):
        log.set_incomplete(incomplete)
        assert log.incomplete == incomplete
        disk.sync_directory("data")
        left = reopen(disk.crash(Random(3)), "data/t-0", same_boot=False)
        assert left.incomplete == incomplete
    log.close(clean=True)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_reported_lasts_as_long_as_nothing_is_lost(durability: str) -> None:
    """That the controller has heard of an incomplete copy survives what the copy survives: the end of a process,
    and power loss under ``sync``. After a loss the controller has to hear of it anew, and of a complete copy there
    is nothing to hear."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    disk.sync_directory("/")
    log = create(disk, "data/t-0", LogConfig(durability=durability))  # type: ignore[arg-type]
    disk.sync_directory("data")
    log.set_reported()
    assert not log.reported, "it lacks nothing"
    log.set_incomplete(True)
    assert not log.reported
    log.set_reported()
    assert log.reported
    log.close(clean=False)
    log = reopen(disk, "data/t-0", same_boot=True)
    assert log.incomplete
    assert log.reported
    log.append_as_leader(batch(2), 0)
    log.close(clean=False)
    for chance in range(20):
        left = reopen(disk.crash(Random(chance)), "data/t-0", same_boot=False)
        assert left.incomplete
        assert left.reported == (durability == "sync")
    log = reopen(disk, "data/t-0", same_boot=True)
    log.poison(OSError(5, "the sync failed"))
    log.close(clean=False)
    log = reopen(disk, "data/t-0", same_boot=True)
    assert log.reported == (durability == "sync")
    log.set_reported()
    log.set_incomplete(True)
    assert not log.reported, "it lost something again"
    log.set_incomplete(False)
    log.set_incomplete(True)
    assert not log.reported
    log.close(clean=True)
