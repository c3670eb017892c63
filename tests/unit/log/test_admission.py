"""What a leader makes of a client's header that contradicts the records."""

from __future__ import annotations

import struct

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import MessageTooLargeError, OutOfOrderSequenceError, StorageError
from pyreplog.ports import Buffer
from pyreplog.record import CODEC_NUMBERS, RecordBatch, crc32c, split
from pyreplog.testing.disk import SimDisk
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, batch, contents, create, raw, reopen


def lying(data: memoryview, max_timestamp: int) -> bytearray:
    """The batch ``data`` under a header that names this greatest timestamp, with a checksum that holds."""
    copy = bytearray(data)
    struct.pack_into(">q", copy, 35, max_timestamp)
    struct.pack_into(">I", copy, 17, crc32c(memoryview(copy)[21:]))
    return copy


@pytest.mark.parametrize("codec", CODEC_NUMBERS)
@pytest.mark.parametrize("said", [-1, 5000, 9000, -(2**63)])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_leader_names_the_greatest_timestamp(place: Place, codec: str, said: int, frozen: bool) -> None:
    """Whatever the client's header says: by it records are searched. What a follower gets is what the leader made
    of it."""
    log = create(place.disk, place.of("t-0"))
    data = lying(batch(3, timestamp=5000, codec=CODEC_NUMBERS[codec]), said)
    log.append_as_leader(bytes(data) if frozen else data, 0)
    log.append_as_leader(batch(1, timestamp=7000), 0)
    kept = split(raw(log))
    assert [one.max_timestamp for one in kept] == [5002, 7000]
    for one in kept:
        one.check_crc()
    assert [record.timestamp for record in contents(log)] == [5000, 5001, 5002, 7000]
    assert [log.find_timestamp(timestamp, 4) for timestamp in (1, 5001, 5003, 7001)] == [
        (0, 5000),
        (1, 5001),
        (3, 7000),
        None,
    ]
    log.close(clean=True)
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert log.find_timestamp(5001, 4) == (1, 5001)
    log.close(clean=True)


@pytest.mark.parametrize("lies", [0, 1, 2])
def test_so_it_does_in_a_group(place: Place, lies: int) -> None:
    """Of batches that arrive together the one whose header is wrong may be any."""
    log = create(place.disk, place.of("t-0"))
    given: list[tuple[Buffer, bool]] = [(batch(1, timestamp=1000 + number), False) for number in range(3)]
    given[lies] = (lying(batch(1, timestamp=1000 + lies), 17), False)
    while given:
        given = given[len(log.append_many_as_leader(given, 0)) :]
    assert [one.max_timestamp for one in split(raw(log))] == [1000, 1001, 1002]
    log.close(clean=True)


def test_a_batch_that_was_mended_is_known_when_it_is_sent_again(place: Place) -> None:
    """A producer sends it as it did before, and hears of the offsets of the first time."""
    log = create(place.disk, place.of("t-0"))
    data = lying(batch(2, timestamp=5000, sequence=0), 1)
    first = log.append_as_leader(bytes(data), 0)
    assert not first.duplicate
    again = log.append_as_leader(bytes(data), 0)
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, first.base_offset, first.last_offset)
    assert log.end_offset == 2
    log.close(clean=True)


def test_the_logs_time_comes_before_any_other(place: Place) -> None:
    """With LogAppendTime the header names the leader's clock, as ever."""
    log = create(place.disk, place.of("t-0"), LogConfig(message_timestamp_type="LogAppendTime"))
    done = log.append_as_leader(lying(batch(2, timestamp=5000), 1), 0)
    assert done.timestamp == RecordBatch(raw(log)).max_timestamp == CLOCK.wall_ms()
    log.close(clean=True)


def test_a_batch_that_is_refused_is_still_its_senders(place: Place) -> None:
    """Sent again from the same memory it is judged as it was: too large the second time, too, and in order once it
    is."""
    log = create(place.disk, place.of("t-0"), LogConfig(message_timestamp_type="LogAppendTime", max_message_bytes=200))
    large = bytearray(batch(1, size=300))
    for _ in range(2):
        with pytest.raises(MessageTooLargeError):
            log.append_as_leader(large, 0)
    later = bytearray(batch(1, sequence=1))
    log.append_as_leader(bytearray(batch(1, sequence=0)), 0)
    third = bytearray(batch(1, sequence=2))
    with pytest.raises(OutOfOrderSequenceError):
        log.append_as_leader(third, 0)
    assert [log.append_as_leader(data, 0).base_offset for data in (later, third, later)] == [1, 2, 1]
    log.close(clean=True)


@pytest.mark.parametrize(
    "config", [LogConfig(), LogConfig(message_timestamp_before_max_ms=1 << 60)], ids=["plain", "looked at"]
)
def test_a_batch_for_which_there_was_no_room_may_come_again(config: LogConfig) -> None:
    """Nothing was appended, and nothing of the try is left in the sender's memory."""
    disk = SimDisk()
    log = create(disk, "/t-0", config)
    log.append_as_leader(batch(2), 0)
    data = bytearray(batch(2))
    disk.capacity = disk.used + 10
    with pytest.raises(StorageError):
        log.append_as_leader(data, 0)
    disk.capacity = None
    assert log.append_as_leader(data, 0).base_offset == 2
    log.close(clean=True)
