"""What all logs of a root keep in memory together: indexes of closed segments, and what was appended last. No more
than so many bytes."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.log import LogRoot, open_readers
from pyreplog.log import root as root_module
from pyreplog.log.index_cache import IndexCache
from pyreplog.record import split
from pyreplog.values import TopicPartition
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, batch

ID = "AbCdEfGhIjKlMnOpQrStUw"


def fill(place: Place, count: int = 3) -> LogRoot:
    root = LogRoot.open(place.disk, place.of("root"), clock=CLOCK, random=Random(1))
    config = LogConfig(durability="os", segment_bytes=4000, index_interval_bytes=0)
    for number in range(count):
        log = root.create_log("t", number, ID, config)
        log.set_tail_cache_size(0)
        log.become_leader(0)
        for _ in range(120):
            log.append_as_leader(batch(1, size=100), 0)
        log.advance_high_watermark(120)
        log.write_mark()
    root.close()
    return LogRoot.open(place.disk, place.of("root"), clock=CLOCK, random=Random(2))


def test_it_holds_what_was_used_last(place: Place) -> None:
    """Reading everywhere in several logs keeps the cache within its bytes, and every read is right."""
    root = fill(place)
    logs = [root.logs[TopicPartition("t", number)] for number in range(3)]
    one = 8 * 19 + 12
    root.index_cache.size_max = 5 * one
    random = Random(3)
    most = 0
    for _ in range(300):
        log = random.choice(logs)
        log.set_tail_cache_size(0)
        offset = random.randrange(120)
        assert split(log.read(offset, 1, 120).parts()[0])[0].base_offset == offset
        most = max(most, root.index_cache.size)
    assert 0 < most <= 8 * one
    loaded = sum(segment.index_size for log in logs for segment in log._segments if segment is not log._segments.last)
    assert 0 < loaded <= 8 * one
    held = len(root.index_cache)
    logs[0].truncate_to(10)
    logs[1].increment_start_offset(100)
    logs[1].apply_retention()
    assert len(root.index_cache) < held
    root.close()
    assert root.index_cache.size == 0


def test_it_is_bounded_in_segments_too(place: Place) -> None:
    """However small their indexes, no more than so many segments are held."""
    root = fill(place, 1)
    log = root.logs[TopicPartition("t", 0)]
    log.set_tail_cache_size(0)
    root.index_cache.count_max = 2
    for offset in range(0, 120, 3):
        log.read(offset, 1, 120)
    assert len(root.index_cache) == 2
    root.close()


def test_readers_have_one_of_their_own(place: Place) -> None:
    """A reader without a lock keeps to the limit too, over several looks at the folder."""
    root = fill(place, 1)
    log = root.logs[TopicPartition("t", 0)]
    ((_, reader),) = open_readers(place.disk, place.of("root")).items()
    cache: IndexCache = reader._copies[0]._folder._index_cache
    cache.count_max = 3
    for offset in range(0, 120, 2):
        reader.read(offset, 1)
        if offset % 20 == 0:
            log.advance_high_watermark(log.append_as_leader(batch(1), 0).last_offset + 1)
            log.write_mark()
            reader.refresh()
    assert len(cache) <= 3
    reader.close()
    root.close()


def test_tails_share_their_room(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many partitions are written to, what they keep of it is bounded. Those that were not for longest give
    way, everything can be read all the same, and a log that ends gives back what it had."""
    monkeypatch.setattr(root_module, "TAILS_SIZE", 20_000)
    root = LogRoot.open(place.disk, place.of("root"), clock=CLOCK, random=Random(1))
    room = root.tail_room
    logs = [root.create_log("t", number, ID, LogConfig(durability="os")) for number in range(20)]
    busy = logs[0]
    for log in logs:
        log.become_leader(0)
        for one in [busy, *[log] * 5]:
            one.append_as_leader(batch(1, size=100), 0)
            assert 0 < room.size <= room.size_max
    kept = [log for log in logs if log._tail.size]
    assert kept[0] is busy
    assert kept[-1] is logs[-1]
    assert 2 < len(kept) == len(room) < 10
    for log in logs:
        found = split(b"".join(log.read(0, 1 << 20, log.end_offset).parts()))
        assert [one.base_offset for one in found] == list(range(log.end_offset))
    root.close()
    assert (room.size, len(room)) == (0, 0)


def test_who_wants_no_tail_gets_none_of_the_room(place: Place) -> None:
    """Such a log can be put among those of its root, as one is that was opened again after an append was
    interrupted."""
    root = LogRoot.open(place.disk, place.of("root"), clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, ID, LogConfig(durability="os"))
    log.set_tail_cache_size(0)
    root.logs[log.topic_partition] = log
    log.become_leader(0)
    log.append_as_leader(batch(1), 0)
    assert log._tail.size == root.tail_room.size == 0
    root.close()
