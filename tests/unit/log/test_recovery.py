"""Opening a log after a crash: torn tails are cut and kept, rot is reported and never cut, indexes and histories
are made anew."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from pyreplog._core import TAIL_COUNT, TailCache
from pyreplog.config import Durability, LogConfig
from pyreplog.errors import ConfigError, CorruptLogError, PyreplogError, StorageError
from pyreplog.log import Log, NewLog, RecoveryContext
from pyreplog.log.folder import apply_plan, plan_folder
from pyreplog.log.layout import (
    INDEX_ENTRY_SIZE,
    INDEX_SUFFIX,
    MARK_NAME,
    TIME_INDEX_ENTRY_SIZE,
    TIME_INDEX_SUFFIX,
    TORN_PREFIX,
    parse_base_offset,
    segment_name,
)
from pyreplog.log.resumption import resume_offset
from pyreplog.record import split
from pyreplog.repair import plan_repair
from pyreplog.testing.crash import crash_points
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.faults import MUTATING, Call
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, verify
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, batch, contents, create, raw, reopen, sync, sync_in_place

SMALL = LogConfig(segment_bytes=1200, index_interval_bytes=100)
T = "t-0"


def written(place: Place, count: int = 20, *, synced: int = 0, config: LogConfig = SMALL) -> bytes:
    """A log of ``count`` batches of two records, the first ``synced`` of them synced, left as by a kill. Its
    bytes."""
    log = create(place.disk, place.of(T), config)
    for number in range(count):
        if number == count // 2:
            log.become_leader(2)
        log.append_as_leader(batch(2, size=50, timestamp=1000 + number, tag=b"%d:" % number), log.epochs.latest)
        if number + 1 == synced:
            sync(place.disk, log)
    data = raw(log)
    log.write_mark()
    log.close(clean=False)
    return data


def logs(place: Place) -> list[str]:
    """Names of the log files."""
    return [f"{T}/{name}" for name in place.disk.list(place.of(T)) if parse_base_offset(name) is not None]


def kept(place: Place) -> list[bytes]:
    """The contents of what was cut."""
    return [place.read(f"{T}/{name}") for name in place.disk.list(place.of(T)) if name.startswith(TORN_PREFIX)]


def test_a_kill_loses_nothing(place: Place) -> None:
    """Without a close, everything written is there again, with its epochs and times."""
    data = written(place)
    log = reopen(place.disk, place.of(T))
    assert raw(log) == data
    assert log.epochs.entries == [(0, 0), (2, 20)]
    assert log.find_timestamp(1015, 40) == (29, 1015)
    assert log.recovery.mark_found
    assert not log.recovery.clean
    assert log.flushed_offset == 40  # a sync log is made durable before it goes on
    log.close(clean=True)


def test_a_tail_torn_anywhere_is_cut_and_kept(place: Place) -> None:
    """The last file cut or garbled at any byte: the whole batches before are there, the rest is beside the log, and
    counted."""
    whole = written(place, 8, config=LogConfig())
    sizes = [one.size for one in split(whole)]
    name = logs(place)[-1]
    files = {entry: place.read(f"{T}/{entry}") for entry in place.disk.list(place.of(T))}
    for size in range(len(whole) - sizes[-1] - 2, len(whole) + 1):
        for tail in (b"", b"\xff" * 40):
            for entry in place.disk.list(place.of(T)):
                place.disk.remove(place.of(f"{T}/{entry}"))
            for entry, content in files.items():
                place.write(f"{T}/{entry}", content)
            place.write(name, whole[:size] + tail)
            log = reopen(place.disk, place.of(T))
            found = raw(log)
            assert whole.startswith(found)
            assert len(found) + sizes[-1] > size
            torn = whole[len(found) : size] + tail
            assert log.recovery.torn_size == len(torn)
            assert kept(place) == ([torn] if torn.strip(b"\0") else [])
            assert len(log.recovery.kept) == len(kept(place))
            log.close(clean=False)
            # Again: the same, and nothing is kept twice.
            log = reopen(place.disk, place.of(T))
            assert raw(log) == found
            assert log.recovery.torn_size == 0
            assert kept(place) == ([torn] if torn.strip(b"\0") else [])
            log.close(clean=True)


def test_zeros_at_the_end_are_cut_and_not_kept(place: Place) -> None:
    """A tail of zeros, as some file systems leave after power loss, is cut; there is nothing in it to keep."""
    whole = written(place, 3, config=LogConfig())
    place.write(logs(place)[-1], whole + bytes(5000))
    log = reopen(place.disk, place.of(T))
    assert raw(log) == whole
    assert log.recovery.torn_size == 5000
    assert kept(place) == []
    log.close(clean=True)


def test_a_torn_place_ends_the_log_in_the_middle(place: Place) -> None:
    """Above the mark, a flipped bit in an earlier segment ends the log there: later segments are kept beside it,
    under another name."""
    whole = written(place)
    names = logs(place)
    assert len(names) > 2
    first = bytearray(place.read(names[0]))
    first[-1] ^= 1
    place.write(names[0], bytes(first))
    log = reopen(place.disk, place.of(T), same_boot=False)
    found = raw(log)
    assert whole.startswith(found)
    assert len(found) < len(first)
    assert log.recovery.torn_size == len(whole) - len(found)
    assert sum(len(content) for content in kept(place)) == log.recovery.torn_size
    assert logs(place) == names[:1]
    log.become_leader(9)
    log.append_as_leader(batch(1), 9)
    log.close(clean=True)


def test_a_lost_segment_ends_the_log(place: Place) -> None:
    """Above the mark, a segment that is gone or too short ends the log: what lies behind the gap must not be
    seen."""
    written(place)
    names = logs(place)
    place.write(names[1], place.read(names[1])[:-1])
    log = reopen(place.disk, place.of(T), same_boot=False)
    end = log.end_offset
    assert [record.offset for record in contents(log)] == list(range(end))
    assert logs(place) == names[:2]
    log.close(clean=False)
    place.disk.remove(place.of(names[0]))
    with pytest.raises(CorruptLogError, match="beginning"):
        reopen(place.disk, place.of(T))


@pytest.mark.parametrize("same_boot", [False, True])
def test_rot_below_the_mark_is_reported_and_not_cut(place: Place, same_boot: bool) -> None:
    """Any flipped byte of a batch below the durable mark: CorruptLogError with the range of the batch, and no file
    is touched."""
    whole = written(place, 6, synced=5, config=LogConfig())
    batches = split(whole)
    name = logs(place)[0]
    for index in (0, 2, 4):
        one = batches[index]
        position = sum(other.size for other in batches[:index])
        for at in (0, 8, 12, 16, 17, 23, 57, one.size - 1):
            rotten = bytearray(whole)
            rotten[position + at] ^= 0x40
            place.write(name, bytes(rotten))
            if at == 12:
                # The leader epoch is outside of the checksum: a rise is only told by the mark's
                # history.
                continue
            with pytest.raises(CorruptLogError) as caught:
                reopen(place.disk, place.of(T), same_boot=same_boot)
            assert caught.value.start == one.base_offset
            assert caught.value.start < caught.value.end
            if at not in (0, 8) and index < 4:
                assert caught.value.end == one.next_offset
            assert caught.value.file == place.of(name)
            assert place.read(name) == bytes(rotten)
            assert kept(place) == []
    place.write(name, whole)
    reopen(place.disk, place.of(T)).close(clean=True)


def test_rot_that_was_found_is_found_again_after_power_loss() -> None:
    """What a start found by a mark that was only in the page cache is not forgotten with it: a flipped epoch, which
    no checksum covers, would be taken for a tail."""
    disk = SimDisk()
    directory = f"data/{T}"
    disk.make_directory("data")
    disk.sync_directory("")
    log = create(disk, directory, SMALL)
    disk.sync_directory("data")
    log.append_as_leader(batch(2), 0)
    sync(disk, log)
    log.close(clean=False)
    name = next(name for name in disk.list(directory) if name.endswith(".log"))
    disk.flip(f"{directory}/{name}", 14, 0x80)
    with pytest.raises(CorruptLogError, match="leader epoch"):
        reopen(disk, directory)
    for seed in range(40):
        with pytest.raises(CorruptLogError, match="leader epoch"):
            reopen(disk.crash(Random(seed)), directory, same_boot=False)


def test_what_was_stopped_in_order_is_so_after_power_loss() -> None:
    """All of it was on the disk before anybody called it clean, the history too: else an ``os`` copy would count as
    one that lost something."""
    disk = SimDisk()
    disk.make_directory("data")
    disk.sync_directory("")
    log = create(disk, "data/t-0", LogConfig(durability="os"))
    disk.sync_directory("data")
    for epoch in (1, 2):
        log.append_as_leader(batch(2), epoch)
    history = log.epochs.entries
    log.close(clean=True)
    for seed in range(40):
        log = reopen(disk.crash(Random(seed)), "data/t-0", clean=True, same_boot=False)
        assert log.recovery.clean
        assert not log.incomplete
        assert log.epochs.entries == history
        log.close(clean=False)


@pytest.mark.parametrize("seed", range(8))
def test_power_loss_while_what_lies_below_the_start_goes(seed: int) -> None:
    """All was deleted and the process died as it began a new segment: the recovery removes what lies below the
    start. Power lost then leaves a log that opens: the new segment's name is durable before the old one's files
    go."""
    disk = SimDisk(Random(seed))
    disk.make_directory(T)
    disk.sync_directory("")
    log = create(disk, T, LogConfig(segment_bytes=1200, index_interval_bytes=100, file_delete_delay_ms=0))
    for _ in range(18):  # three segments, to the brim
        log.append_as_leader(batch(2, size=50), 0)
    end = log.end_offset
    sync(disk, log)
    log.advance_high_watermark(end)
    log.delete_records(-1)
    assert log.apply_retention() == 2
    killed: list[SimDisk] = []

    def before(call: Call) -> None:
        if call.kind == "sync_directory":
            killed.append(disk.snapshot())

    disk.observer = before
    assert log.append_as_leader(batch(2, size=50), 0).base_offset == end
    lost: list[SimDisk] = []
    left = killed[0]
    left.observer = lambda call: lost.append(left.crash(Random(f"{seed} {len(lost)}")))
    log = reopen(left, T)
    left.observer = None
    assert log.start_offset == end
    assert len(lost) > 40
    for after in lost:
        log = reopen(after, T, same_boot=False)
        assert log.start_offset == end
        assert log.append_as_leader(batch(1), 0).base_offset >= end


def with_a_gap(place: Place) -> Log:
    """Twenty batches over segments, all of them synced; an offset is missing before the fourth."""
    log = create(place.disk, place.of(T), SMALL)
    for number in range(20):
        epoch = max(log.epochs.latest, 0)
        log.append_as_follower([batch(2, size=50, base_offset=log.end_offset + (number == 3), leader_epoch=epoch)])
    sync(place.disk, log)
    return log


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_beginning_is_rot_where_there_are_gaps_too(place: Place, clean: bool) -> None:
    """A log whose offsets have gaps lost its first segment: the mark says where it begins, and nothing in between
    is a gap."""
    log = with_a_gap(place)
    end = log.end_offset
    log.advance_high_watermark(end)
    log.close(clean=True)
    first, second = logs(place)[:2]
    for suffix in (".log", ".index", ".timeindex"):
        place.disk.remove(place.of(first[: -len(".log")] + suffix))
    with pytest.raises(CorruptLogError) as caught:
        reopen(place.disk, place.of(T), clean=clean)
    assert (caught.value.start, caught.value.end) == (0, int(second[-24:-4]))
    damage = [one for one in verify(place.disk, place.of(T)).findings if one.level is Level.DAMAGE]
    assert [(one.start, one.end) for one in damage] == [(0, int(second[-24:-4]))]
    (plan,) = plan_repair(place.disk, place.of(T))
    assert [(one.start, one.end) for one in plan.lost] == [(0, int(second[-24:-4]))]


def test_missing_data_below_the_mark_is_rot(place: Place) -> None:
    """A log shorter than its mark, or without files, is damaged, not empty."""
    whole = written(place, 6, synced=6, config=LogConfig())
    name = logs(place)[0]
    place.write(name, whole[:-1])
    with pytest.raises(CorruptLogError) as caught:
        reopen(place.disk, place.of(T), same_boot=False)
    assert (caught.value.start, caught.value.end) == (10, 12)
    place.write(name, b"")
    with pytest.raises(CorruptLogError):
        reopen(place.disk, place.of(T))
    place.disk.remove(place.of(name))
    with pytest.raises(CorruptLogError):
        reopen(place.disk, place.of(T))


@pytest.mark.parametrize("same_boot", [True, False])
def test_a_synced_segment_is_not_cut_for_what_lies_before_it(place: Place, same_boot: bool) -> None:
    """The last two segments were swapped: that the one before seems to reach up to the end makes nothing torn of
    what was synced."""
    written(place, synced=20)
    one, two = logs(place)[-2:]
    contents_of = place.read(one), place.read(two)
    place.write(one, contents_of[1])
    place.write(two, contents_of[0])
    for _ in range(2):
        with pytest.raises(CorruptLogError, match="overlap") as caught:
            reopen(place.disk, place.of(T), same_boot=same_boot)
        assert caught.value.end == 40
        assert (place.read(two), place.read(one)) == contents_of
    assert kept(place) == []


@pytest.mark.parametrize("marked", [True, False])
def test_a_batch_that_claims_a_later_offset_makes_no_tail_of_what_was_synced(place: Place, marked: bool) -> None:
    """A log whose offsets have gaps: no checksum covers where a batch begins, and that one seems to reach beyond
    all that was synced cuts nothing behind it."""
    log = with_a_gap(place)
    end = log.end_offset
    log.close(clean=False)
    if not marked:
        place.disk.remove(place.of(f"{T}/replog.mark"))
    name = logs(place)[-1]
    content = bytearray(place.read(name))
    last, claims = split(bytes(content))[-1], split(bytes(content))[-2]
    content[len(content) - last.size - claims.size + 6] ^= 0x10
    place.write(name, bytes(content))
    with pytest.raises(CorruptLogError, match="but the next batch begins at") as caught:
        reopen(place.disk, place.of(T), same_boot=False, recovery_point=end)
    assert (caught.value.start, caught.value.end) == (last.base_offset, claims.next_offset + 0x1000)
    assert place.read(name) == content
    assert kept(place) == []


def test_after_a_kill_the_mark_is_exact() -> None:
    """What an os log showed its readers must be there after a kill; after power loss only what was synced must."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    place = Place(disk, "data")
    log = create(disk, place.of(T), LogConfig(durability="os"))
    for _ in range(5):
        log.append_as_leader(batch(2), 0)
    log.advance_high_watermark(8)
    log.write_mark()
    log.close(clean=False)
    name = logs(place)[0]
    data = place.read(name)
    place.write(name, data[:-70])
    after_kill = reopen(disk, place.of(T), same_boot=True)
    assert after_kill.high_watermark == 8
    assert not after_kill.incomplete
    after_kill.close(clean=False)
    place.write(name, data[: len(data) // 2])
    with pytest.raises(CorruptLogError):
        reopen(disk, place.of(T), same_boot=True)
    after_power_loss = reopen(disk, place.of(T), same_boot=False)
    assert after_power_loss.high_watermark == 0
    assert after_power_loss.end_offset == 4
    assert after_power_loss.incomplete
    after_power_loss.close(clean=True)


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("bit", [0, 1, 7, 8, 21, 30, 31])
def test_a_flipped_epoch_of_the_last_batch_is_no_epoch(durability: str, bit: int) -> None:
    """The checksum of a batch does not cover its leader epoch. Where only the process died, an epoch that was never
    written down is damage: above what the mark promises the batch is cut, and the history stays what it was; below
    it is rot."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    place = Place(disk, "data")
    log = create(disk, place.of(T), LogConfig(durability=durability))  # type: ignore[arg-type]
    for _ in range(3):
        log.append_as_leader(batch(2), 0)
    log.become_leader(1)
    log.append_as_leader(batch(2), 1)
    history = log.epochs.entries
    log.append_as_leader(batch(2), 1)
    log.write_mark()
    log.close(clean=False)
    name = logs(place)[0]
    content = bytearray(place.read(name))
    size = len(content) // 5
    content[4 * size + 15 - bit // 8] ^= 1 << bit % 8
    place.write(name, bytes(content))
    again = reopen(disk, place.of(T), same_boot=True)
    assert (again.end_offset, again.epochs.entries) == (8, history)
    assert again.recovery.torn_size == size
    again.append_as_leader(batch(2), 1)
    again.advance_high_watermark(10)
    again.write_mark()
    again.close(clean=False)
    content = bytearray(place.read(name))
    content[4 * size + 15 - bit // 8] ^= 1 << bit % 8
    place.write(name, bytes(content))
    with pytest.raises(CorruptLogError):
        reopen(disk, place.of(T), same_boot=True)


def test_without_a_mark_everything_is_scanned_and_the_replica_is_incomplete(place: Place) -> None:
    """A missing or damaged mark never means an empty log; the root's recovery point then tells torn from rotten."""
    whole = written(place, 10, synced=10)
    for content in (None, b"", b"\0" * 1100, b"garbage" * 200):
        if content is None:
            place.disk.remove(place.of(f"{T}/replog.mark"))
        else:
            place.write(f"{T}/replog.mark", content)
        log = reopen(place.disk, place.of(T), clean=True)
        assert raw(log) == whole
        assert log.incomplete
        assert not log.recovery.mark_found
        assert not log.recovery.clean
        log.close(clean=False)
    place.disk.remove(place.of(f"{T}/replog.mark"))
    last = logs(place)[-1]
    content = place.read(last)
    place.write(last, content[:-1])
    with pytest.raises(CorruptLogError):
        reopen(place.disk, place.of(T), recovery_point=20)
    log = reopen(place.disk, place.of(T), recovery_point=18)
    assert log.end_offset == 18
    log.close(clean=True)


def test_another_partitions_mark_does_not_count(place: Place) -> None:
    """A mark that was swapped in from elsewhere is as none."""
    written(place, 3)
    (other,) = Log.create(
        place.disk, [NewLog(place.of("t-1"), TopicPartition("t", 1), "ZbCdEfGhIjKlMnOpQrStUw", LogConfig())], CLOCK
    )
    other.close(clean=True)
    place.write(f"{T}/replog.mark", place.read("t-1/replog.mark"))
    log = reopen(place.disk, place.of(T))
    assert log.end_offset == 6
    assert log.incomplete
    log.close(clean=True)


def test_wrong_indexes_only_cost_time(place: Place) -> None:
    """Indexes cut, flipped, swapped, emptied or gone, of any segment, after a clean stop: every answer stays the
    same."""
    log = create(place.disk, place.of(T), LogConfig(segment_bytes=1500, index_interval_bytes=60))
    for number in range(30):
        log.append_as_leader(batch(2, size=40, timestamp=1000 + 7 * (number % 11), tag=b"%d:" % number), 0)
    whole = raw(log)
    times = [(timestamp, log.find_timestamp(timestamp, 60)) for timestamp in range(995, 1080, 3)]
    log.close(clean=True)
    files = {entry: place.read(f"{T}/{entry}") for entry in place.disk.list(place.of(T))}
    indexes = [entry for entry in files if entry.endswith("index")]
    random = Random(1)
    for attempt in range(120):
        name = random.choice(indexes)
        content = bytearray(files[name])
        if attempt % 4 == 0 or not content:
            content = content[: random.randrange(len(content) + 1)]
        elif attempt % 4 == 1:
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        elif attempt % 4 == 2:
            content += bytes(random.randrange(1, 100))
        else:
            content = bytearray(files[random.choice(indexes)])
        place.write(f"{T}/{name}", bytes(content))
        if attempt % 17 == 16:
            place.disk.remove(place.of(f"{T}/{name}"))
        log = reopen(place.disk, place.of(T), clean=attempt % 2 == 0)
        log.set_tail_cache_size(0)
        assert raw(log) == whole
        for offset in range(0, 60, 7):
            assert contents(log, offset)[0].offset == offset
        assert [(timestamp, log.find_timestamp(timestamp, 60)) for timestamp, _ in times] == times, (attempt, name)
        log.close(clean=False)
        for entry, saved in files.items():
            if entry != "replog.mark":
                place.write(f"{T}/{entry}", saved)
        place.write(f"{T}/replog.mark", files["replog.mark"])


def test_an_index_entry_beyond_the_end_hinders_no_append(place: Place) -> None:
    """Any bit of the last entry of an index flipped after a clean stop: what is appended then goes in, and is
    found."""
    log = create(place.disk, place.of(T), LogConfig(index_interval_bytes=1))
    for number in range(3):
        log.append_as_leader(batch(timestamp=1000 + number), 0)
    log.close(clean=True)
    files = {entry: place.read(f"{T}/{entry}") for entry in place.disk.list(place.of(T))}
    for suffix, size in ((INDEX_SUFFIX, INDEX_ENTRY_SIZE), (TIME_INDEX_SUFFIX, TIME_INDEX_ENTRY_SIZE)):
        name = segment_name(0, suffix)
        for bit in range(size * 8):
            content = bytearray(files[name])
            content[bit // 8 - size] ^= 1 << bit % 8
            place.write(f"{T}/{name}", bytes(content))
            log = reopen(place.disk, place.of(T), clean=True)
            assert log.append_as_leader(batch(timestamp=2000), 0).base_offset == 3, (name, bit)
            log.set_tail_cache_size(0)
            assert [record.offset for record in contents(log)] == [0, 1, 2, 3]
            assert log.find_timestamp(1500, 4) == (3, 2000)
            log.close(clean=True)
            for entry, saved in files.items():
                place.write(f"{T}/{entry}", saved)


def test_reading_what_is_damaged_forgets_nothing_behind_it(place: Place) -> None:
    """The index leads behind a batch whose length is damaged, and no walk does: it is as useful after somebody has
    met that one."""
    log = create(place.disk, place.of(T), LogConfig(index_interval_bytes=0))
    for number in range(6):
        log.append_as_leader(batch(2, timestamp=1000 + number), 0)
    sync(place.disk, log)
    log.close(clean=True)
    path = f"{T}/{0:020}.log"
    content = bytearray(place.read(path))
    content[4 * len(content) // 6 + 8] ^= 0x40
    place.write(path, bytes(content))
    for _ in range(3):
        log = reopen(place.disk, place.of(T), clean=True)
        log.set_tail_cache_size(0)
        with pytest.raises(CorruptLogError) as caught:
            log.read(8, 1 << 20, 12)
        assert (caught.value.start, caught.value.end) == (8, 10)
        assert [record.offset for record in contents(log, 10)] == [10, 11]
        assert log.recovery.clean
        log.close(clean=True)


@pytest.mark.parametrize("claimed", [9, 10, 1000])
def test_a_batch_that_claims_to_lie_elsewhere_does_not_end_the_log(place: Place, claimed: int) -> None:
    """It gets into an index that is made anew, and yet what is appended is taken, what the index names is read, and
    the log is closed."""
    log = create(place.disk, place.of(T), LogConfig(index_interval_bytes=0))
    for number in range(6):
        log.append_as_leader(batch(2, timestamp=2000 - 100 * abs(number - 3)), 0)
    sync(place.disk, log)
    log.close(clean=True)
    path = f"{T}/{0:020}.log"
    content = bytearray(place.read(path))
    at = 4 * len(content) // 6
    content[at : at + 8] = claimed.to_bytes(8, "big")
    place.write(path, bytes(content))
    log = reopen(place.disk, place.of(T), clean=True)
    log.set_tail_cache_size(0)
    for offset in (8, 9):
        with pytest.raises(CorruptLogError) as caught:
            log.read(offset, 1 << 20, 12)
        assert (caught.value.start, caught.value.end) == (8, 10)
    assert [record.offset for record in contents(log, 10)] == [10, 11]
    log.append_as_leader(batch(2, timestamp=1950), 0)
    log.append_as_leader(batch(2, timestamp=3000), 0)
    assert [record.offset for record in contents(log, 12)] == [12, 13, 14, 15]
    assert [record.offset for record in contents(log, 10)] == [10, 11, 12, 13, 14, 15]
    log.close(clean=True)


@pytest.mark.parametrize("harm", ["zeros", "flips"])
def test_where_damage_ends_is_found_without_reading_everything_again_and_again(harm: str) -> None:
    """However many places the index names behind it, and however large the segment is."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0", LogConfig(index_interval_bytes=0))
    for _ in range(300):
        log.append_as_leader(batch(2), 0)
    segment = log._segments.last
    half = segment.size // 2
    content = bytearray(segment.file.read_at(0, segment.size))
    if harm == "zeros":
        content[half:] = bytes(half)
    else:
        content[half + 70 :: half // 150] = b"?" * len(content[half + 70 :: half // 150])
    segment.file.write_at(0, [content])
    read: list[int] = []

    class Counted:
        def read_at(self, position: int, size: int) -> memoryview:
            read.append(size)
            return file.read_at(position, size)

    file = segment.file
    segment._file = Counted()  # type: ignore[assignment]
    assert resume_offset(segment, half, 300) is None
    assert sum(read) < 3 * segment.size
    segment._file = file
    log.close(clean=False)


@pytest.mark.parametrize("cut", [0, 12, 24])
@pytest.mark.parametrize("truncates", [False, True])
def test_a_cut_time_index_hides_nothing_from_what_is_appended_behind_it(
    place: Place, cut: int, truncates: bool
) -> None:
    """The time index of the last segment lost its end after a clean stop, and with it the greatest timestamp. What
    is appended then adds entries behind the loss: every search finds the same, while the segment is written and
    once it is closed, and it is as new."""
    log = create(place.disk, place.of(T), LogConfig(segment_bytes=4000, index_interval_bytes=60))
    for number in range(10):
        log.append_as_leader(batch(2, size=50, timestamp=5000 if number == 3 else 1000 + number), 0)
    log.close(clean=True)
    name = f"{T}/{0:020}.timeindex"
    assert len(place.read(name)) == 36
    place.write(name, place.read(name)[:cut])
    log = reopen(place.disk, place.of(T), clean=True)
    assert log.recovery.clean
    if truncates:
        log.truncate_to(18)
    for number in range(3):
        log.append_as_leader(batch(2, size=50, timestamp=1100 + number), 0)
    assert log.find_timestamp(5000, log.end_offset) == (6, 5000)
    for number in range(20):
        log.append_as_leader(batch(2, size=50, timestamp=1200 + number), 0)
    assert len(log.segments()) > 1
    assert log.find_timestamp(5000, log.end_offset) == (6, 5000)
    log.close(clean=True)
    log = reopen(place.disk, place.of(T), clean=True)
    assert log.find_timestamp(5000, log.end_offset) == (6, 5000)
    assert log.find_timestamp(5001, log.end_offset) == (7, 5001)
    log.close(clean=True)


def test_a_wrong_epoch_history_is_made_anew(place: Place) -> None:
    """Any flipped bit in the epoch file, any cut, none at all, or an old copy: the history is that of the
    batches."""
    written(place, 10)
    path = f"{T}/leader-epoch-checkpoint"
    good = place.read(path)
    files = {entry: place.read(f"{T}/{entry}") for entry in place.disk.list(place.of(T))}
    bad = [good[:size] for size in range(len(good))] + [b"0\n1\n0 0\n", b"0\n2\n0 0\n2 4\n", b"0\n3\n0 0\n2 10\n7 20\n"]
    for position in range(len(good)):
        flipped = bytearray(good)
        flipped[position] ^= 1 << position % 8
        bad.append(bytes(flipped))
    for clean in (False, True):
        for content in bad:
            for entry, saved in files.items():
                place.write(f"{T}/{entry}", saved)
            place.write(path, content)
            log = reopen(place.disk, place.of(T), clean=clean)
            assert log.epochs.entries == [(0, 0), (2, 10)], content
            log.close(clean=True)
            assert place.read(path) == good
    place.disk.remove(place.of(path))
    log = reopen(place.disk, place.of(T), clean=True)
    assert log.epochs.entries == [(0, 0), (2, 10)]
    log.close(clean=True)


def test_a_clean_marker_does_not_hide_a_torn_tail(place: Place) -> None:
    """With the clean shutdown marker there, the tail is checked all the same (9.3)."""
    log = create(place.disk, place.of(T), LogConfig())
    for _ in range(5):
        log.append_as_leader(batch(2), 0)
    log.close(clean=True)
    name = logs(place)[0]
    data = place.read(name)
    place.write(name, data[:-5])
    with pytest.raises(CorruptLogError):
        reopen(place.disk, place.of(T), clean=True)
    place.write(name, data + b"more")
    log = reopen(place.disk, place.of(T), clean=True)
    assert not log.recovery.clean
    assert log.recovery.notes
    assert raw(log) == data
    assert kept(place) == [b"more"]
    log.close(clean=True)


def test_a_checkpoint_behind_the_end_wipes_nothing(place: Place) -> None:
    """A log start checkpoint above the end is not believed against the data (Kafka would delete all)."""
    whole = written(place, 5)
    place.disk.remove(place.of(f"{T}/replog.mark"))
    log = Log.open(
        place.disk,
        place.of(T),
        TopicPartition("t", 0),
        None,
        CLOCK,
        None,
        RecoveryContext(clean=False, same_boot=True, log_start_offset=1000),
    )
    assert raw(log) == whole
    assert log.start_offset == 0
    assert any("was ignored" in note for note in log.recovery.notes)
    log.close(clean=True)


def test_unfinished_replacements_are_finished(place: Place) -> None:
    """Kafka's cleaned, swap and deleted files: unfinished ones are dropped, finished ones win, in every state
    between."""
    whole = written(place, 20)
    names = [name.partition("/")[2] for name in logs(place)]
    log = reopen(place.disk, place.of(T))
    log.close(clean=True)
    stems = [name[:-4] for name in names]
    # (1) only .cleaned: dropped
    for suffix in ("log", "index", "timeindex"):
        place.write(f"{T}/{stems[0]}.{suffix}.cleaned", b"anything")
    place.write(f"{T}/{stems[1]}.log.deleted", b"anything")
    log = reopen(place.disk, place.of(T))
    assert raw(log) == whole
    assert not [name for name in place.disk.list(place.of(T)) if name.endswith((".cleaned", ".deleted"))]
    log.close(clean=True)
    # (2) a finished replacement of the first two segments: it wins
    replacement = place.read(f"{T}/{names[0]}") + place.read(f"{T}/{names[1]}")
    place.write(f"{T}/{stems[0]}.log.swap", replacement)
    place.write(f"{T}/{stems[0]}.index.swap", b"")
    place.write(f"{T}/{stems[0]}.timeindex.swap", b"")
    log = reopen(place.disk, place.of(T))
    assert raw(log) == whole
    assert [name.partition("/")[2] for name in logs(place)] == [names[0], *names[2:]]
    log.close(clean=True)
    # (3) a swap of several segments that was interrupted before all were renamed: dropped
    place.write(f"{T}/{stems[2]}.log.swap", b"")
    place.write(f"{T}/{stems[0]}.log.cleaned", b"")
    log = reopen(place.disk, place.of(T))
    assert raw(log) == whole
    log.close(clean=True)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "state",
    ["log final, indexes swap", "log final, both indexes", "all swap, an original gone", "half cleaned, half swap"],
)
def test_a_replacement_in_each_of_its_states(place: Place, state: str, clean: bool) -> None:
    """Two segments replaced by one, wherever that ended: every byte is there, each offset is found, and nothing is
    left over."""
    whole = written(place, 40)
    reopen(place.disk, place.of(T)).close(clean=True)
    first, second = (f"{T}/{name[:-4]}" for name in [name.partition("/")[2] for name in logs(place)][:2])
    merged = place.read(f"{first}.log") + place.read(f"{second}.log")
    if state.startswith("log final"):
        place.write(f"{first}.log", merged)
        for suffix in ("log", "index", "timeindex"):
            place.disk.remove(place.of(f"{second}.{suffix}"))
        for suffix in ("index", "timeindex"):
            place.write(f"{first}.{suffix}.swap", place.read(f"{first}.{suffix}"))
            if state.endswith("indexes swap"):
                place.disk.remove(place.of(f"{first}.{suffix}"))
    else:
        place.write(f"{first}.log.swap", merged)
        suffix = "swap" if state.startswith("all swap") else "cleaned"
        place.write(f"{first}.index.{suffix}", b"")
        place.write(f"{first}.timeindex.{suffix}", b"")
        if state.startswith("all swap"):
            place.disk.remove(place.of(f"{first}.log"))
    log = reopen(place.disk, place.of(T), clean=clean)
    assert raw(log) == whole
    log.set_tail_cache_size(0)
    assert [contents(log, offset, log.end_offset)[0].offset for offset in range(log.end_offset)] == list(
        range(log.end_offset)
    )
    assert not log.recovery.kept
    assert not [name for name in place.disk.list(place.of(T)) if name.endswith((".swap", ".cleaned"))]
    log.close(clean=True)


@pytest.mark.parametrize("ready", [True, False])
def test_power_loss_while_a_replacement_is_finished(ready: bool) -> None:
    """Two segments replaced by two others, finished (``ready``) or dropped: whatever of the changes power loss
    keeps, no record is twice there or gone."""
    random = Random(4)

    def prepared(_: Random) -> SimDisk:
        disk = SimDisk(Random(4))
        disk.make_directory("data")
        place = Place(disk, "data")
        written(place, 20)
        first, second, third = [name[: -len(".log")] for name in logs(place)][:3]
        content = [place.read(f"{name}.log") for name in (first, second, third)]
        half = split(content[0])[-1]
        # The same batches, cut elsewhere: the last of the first segment goes to the new second one.
        place.write(f"{first}.log.swap" if ready else f"{first}.log.cleaned", content[0][: -half.size])
        place.write(f"{T}/{half.base_offset:020d}.log.swap", content[0][-half.size :] + content[1] + content[2])
        disk.write_back()
        return disk

    whole = raw(reopen(prepared(random), f"data/{T}"))

    def life(disk: SimDisk, _: list[int]) -> None:
        apply_plan(disk, f"data/{T}", plan_folder(disk, f"data/{T}", disk.list(f"data/{T}")))

    def check(disk: SimDisk, _: Sequence[int]) -> None:
        log = reopen(disk, f"data/{T}", same_boot=disk.boot_id("") == SimDisk().boot_id(""))
        assert raw(log) == whole
        assert not log.recovery.kept
        log.close(clean=False)

    report = crash_points(life, check, seed=4, damages=60, disk=prepared)
    assert report.states > 100


def test_files_on_their_way_out_cost_a_look_little() -> None:
    """A reader looks whenever something was appended: of thousands that wait for their removal none is held against
    every other."""
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    names = [Name(segment_name(base, ".log") + (".deleted" if base < 4000 else "")) for base in range(4010)]
    plan = plan_folder(SimDisk(Random(1)), "data", names)
    assert (len(plan.remove), plan.bases) == (4000, [*range(4000, 4010)])
    assert compared < 10 * len(names)


def test_a_folder_of_another_topic_is_refused(place: Place) -> None:
    """A topic id that differs, and garbage where it should be, are refused with what was found."""
    written(place, 2)
    with pytest.raises(ConfigError, match="topic id"):
        Log.open(
            place.disk,
            place.of(T),
            TopicPartition("t", 0),
            None,
            CLOCK,
            "ZbCdEfGhIjKlMnOpQrStUw",
            RecoveryContext(clean=False, same_boot=True),
        )
    content = place.read(f"{T}/partition.metadata")
    place.write(f"{T}/partition.metadata", b"garbage")
    log = reopen(place.disk, place.of(T))  # the mark knows it too, and has a checksum
    assert log.end_offset == 4
    log.close(clean=True)
    assert place.read(f"{T}/partition.metadata") == content
    place.disk.remove(place.of(f"{T}/partition.metadata"))
    reopen(place.disk, place.of(T)).close(clean=True)
    assert place.read(f"{T}/partition.metadata") == content
    place.write(f"{T}/partition.metadata", b"garbage")
    place.disk.remove(place.of(f"{T}/replog.mark"))
    with pytest.raises(PyreplogError, match=r"partition\.metadata"):
        reopen(place.disk, place.of(T))


def test_a_flipped_topic_id_does_not_outvote_the_mark(place: Place) -> None:
    """Every bit of partition.metadata flipped: the log opens whole, as the same topic's, its mark believed and the
    file mended."""
    written(place, 2)
    content = place.read(f"{T}/partition.metadata")
    for position in range(len(content)):
        for bit in range(8) if isinstance(place.disk, SimDisk) else (0, 5):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            place.write(f"{T}/partition.metadata", bytes(flipped))
            log = reopen(place.disk, place.of(T))
            assert log.recovery.mark_found
            assert not log.incomplete
            assert content.endswith(log.topic_id.encode())
            log.close(clean=False)
    place.write(f"{T}/partition.metadata", b"version: 0\ntopic_id: ZbCdEfGhIjKlMnOpQrStUw")
    log = reopen(place.disk, place.of(T))
    assert log.topic_id == "ZbCdEfGhIjKlMnOpQrStUw", "nothing in common: the mark is not that of this topic"
    assert not log.recovery.mark_found
    log.close(clean=False)


def test_segments_are_scanned_side_by_side(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery gives all segments to the disk's map at once, and finds what one after another would."""
    log = create(place.disk, place.of(T), LogConfig(durability="os", segment_bytes=1024, index_interval_bytes=100))
    for _ in range(20):
        log.append_as_leader(batch(2, size=200), 0)
    whole = raw(log)
    log.close(clean=False)
    asked: list[int] = []
    real = type(place.disk).map

    def counting(disk: Any, work: Any, items: Any) -> Any:
        asked.append(len(items))
        return real(disk, work, items)

    monkeypatch.setattr(type(place.disk), "map", counting)
    log = reopen(place.disk, place.of(T))
    assert raw(log) == whole
    assert asked == [log.stats().segment_count]
    assert log.recovery.scanned_size == len(whole)
    log.close(clean=False)
    gone = sorted(name for name in place.disk.list(place.of(T)) if name.endswith(".log"))[3]
    content = bytearray(place.read(f"{T}/{gone}"))
    content[-3] ^= 1
    place.write(f"{T}/{gone}", bytes(content))
    log = reopen(place.disk, place.of(T), same_boot=False)
    assert whole.startswith(raw(log))
    assert 0 < log.end_offset < 40
    log.close(clean=True)


def test_what_was_written_again_is_read_from_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed sync the reopened log is read past the system's memory; a disk that has something else is told
    of, not believed."""
    for lies in (False, True):
        disk = SimDisk(Random(5))
        disk.make_directory("d")
        log = create(disk, "d/t-0", LogConfig())
        for _ in range(5):
            log.append_as_leader(batch(2, size=200), 0)
        disk.fail("sync", "*.log")
        with pytest.raises(StorageError):
            sync(disk, log)
        log.close(clean=False)
        if lies:
            # The system says that it wrote, and did not.
            monkeypatch.setattr("pyreplog.testing.storage.Inode.settle", lambda inode, sequence: inode.pending.clear())
            with pytest.raises(CorruptLogError, match="not on the disk"):
                reopen(disk, "d/t-0")
            monkeypatch.undo()
        else:
            log = reopen(disk, "d/t-0")
            assert log.end_offset == 10
            assert log.flushed_offset == 10
            after = disk.crash(Random(6))
            assert reopen(after, "d/t-0", same_boot=False).end_offset == 10


def test_the_tail_is_bounded_in_entries_too() -> None:
    """Many small batches do not keep more of them in memory than so many, however few bytes they have."""
    tail = TailCache(1 << 30)
    for number in range(3 * TAIL_COUNT):
        tail.append(number, number + 1, b"x" * 61, 61)
    assert tail.size == TAIL_COUNT * 61
    assert tail.read(2 * TAIL_COUNT - 1, 100, 10**9) is None


def test_no_file_of_a_log_can_make_it_fail_otherwise(place: Place) -> None:
    """Random damage to any file of the folder: it opens, or raises an error of ours that names a file; never
    anything else."""
    written(place, 12, synced=6)
    files = {entry: place.read(f"{T}/{entry}") for entry in place.disk.list(place.of(T))}
    random = Random(8)
    opened = 0
    for _ in range(250):
        for entry in place.disk.list(place.of(T)):
            place.disk.remove(place.of(f"{T}/{entry}"))
        for entry, content in files.items():
            place.write(f"{T}/{entry}", content)
        for _ in range(random.randrange(1, 3)):
            name = random.choice(sorted(files))
            damaged = bytearray(files[name])
            match random.randrange(4):
                case 0:
                    damaged = damaged[: random.randrange(len(damaged) + 1)]
                case 1 if damaged:
                    for _ in range(random.randrange(1, 8)):
                        damaged[random.randrange(len(damaged))] = random.randrange(256)
                case 2:
                    damaged += random.randbytes(random.randrange(200))
                case _:
                    damaged = bytearray(files[random.choice(sorted(files))])
            place.write(f"{T}/{name}", bytes(damaged))
        with contextlib.suppress(PyreplogError):
            log = reopen(place.disk, place.of(T), clean=random.random() < 0.3, same_boot=random.random() < 0.5)
            opened += 1
            for one in split(raw(log)):
                one.check_crc()
            log.close(clean=False)
    assert opened > 30


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("noted", "same_boot"), [(True, True), (False, True), (False, None)])
def test_after_a_failed_sync_the_data_is_written_again(seed: int, noted: bool, same_boot: bool | None) -> None:
    """What a failed sync covered is shown and never becomes durable by itself: a log that opens after it and says
    that all is flushed has written it once more, so that power loss takes nothing. Also where the process ended
    before it could note that, unless the machine is known to have restarted since."""
    disk = SimDisk(Random(seed), manual=True)
    disk.make_directory("logs")
    disk.sync_directory(".")
    log = create(disk, f"logs/{T}", SMALL)
    disk.sync_directory("logs")
    for number in range(4):
        log.append_as_leader(batch(2, size=50, tag=b"%d:" % number), 0)
    sync_in_place(disk, log)
    for number in range(4, 8):
        log.append_as_leader(batch(2, size=50, tag=b"%d:" % number), 0)
    plan = log.sync_plan()
    assert plan is not None
    disk.complete(disk.submit_sync(plan.files, lambda: None), errno.EIO)
    (done,) = disk.poll()
    assert done.error is not None
    if noted:
        log.poison(done.error)
    disk.kill()
    log = reopen(disk, f"logs/{T}", same_boot=same_boot)
    expected, flushed = raw(log), log.flushed_offset
    assert flushed == log.end_offset
    disk.kill()
    log = reopen(disk.crash(Random(seed)), f"logs/{T}", same_boot=False)
    assert log.end_offset >= flushed
    assert raw(log) == expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_after_a_failed_sync_of_its_folder_a_segment_gets_its_name_again(
    durability: Durability, noted: bool, seed: int
) -> None:
    """The name of a segment that a failed sync was to make durable is shown, and no later sync makes it so by
    itself: what is flushed in that segment once the log was opened again survives power loss. Also where the
    process ended before it could note the failure."""
    disk = SimDisk(Random(seed))
    disk.make_directory("logs")
    disk.sync_directory(".")
    directory = f"logs/{T}"
    log = create(disk, directory, LogConfig(durability=durability, segment_bytes=SMALL.segment_bytes))
    disk.sync_directory("logs")
    disk.fail("sync_directory", directory)
    if not noted:
        disk.fail("write", f"{directory}/{MARK_NAME}", times=None)
    with pytest.raises(StorageError):
        for _ in range(3):
            log.append_as_leader(batch(2, size=400), 0)
    assert log.stats().segment_count == 1
    disk.clear_faults()
    disk.kill()
    log = reopen(disk, directory)
    assert log.stats().segment_count == 2
    log.append_as_leader(batch(2, size=50), 0)
    sync(disk, log)
    expected = raw(log)
    disk.kill()
    assert raw(reopen(disk.crash(Random(seed)), directory, same_boot=False)) == expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("who", ["follower", "recovery"])
def test_after_a_failed_sync_of_its_folder_a_segment_is_removed_again(who: str, seed: int) -> None:
    """The removal of a segment that a failed sync was to make durable is shown, and no later sync makes it so by
    itself: what is flushed where it was, once the log was opened again, survives power loss, and the old segment
    does not come back beside it."""
    disk = SimDisk(Random(seed))
    disk.make_directory("logs")
    disk.sync_directory(".")
    directory = f"logs/{T}"
    log = create(disk, directory, LogConfig(durability="os", segment_bytes=SMALL.segment_bytes))
    disk.sync_directory("logs")
    for number in range(8):
        log.append_as_leader(batch(2, size=200, tag=b"%d:" % number), 0)
    assert log.stats().segment_count > 2
    disk.write_back()
    if who == "follower":
        fault = disk.fail("sync_directory", directory)
        with pytest.raises(StorageError):
            log.truncate_to(3)
    else:  # the second batch is torn, and no segment behind it may stay
        disk.flip(f"{directory}/{segment_name(0, '.log')}", 900)
        disk.kill()
        fault = disk.fail("sync_directory", directory)
        with pytest.raises(StorageError):
            reopen(disk, directory, same_boot=False)
    assert fault.hits == 1
    disk.kill()
    log = reopen(disk, directory, same_boot=False)
    log.become_leader(1)
    for number in range(12):
        log.append_as_leader(batch(3, size=100, tag=b"%d;" % number), 1)
    sync(disk, log)
    expected = raw(log)
    disk.kill()
    assert raw(reopen(disk.crash(Random(seed)), directory, same_boot=False)) == expected


@pytest.mark.parametrize("seed", range(6))
def test_a_segment_gets_its_name_again_before_those_below_the_start_go(seed: int) -> None:
    """Else power loss may leave neither, and the log would end where its mark says that it must not."""
    disk = SimDisk(Random(seed))
    disk.make_directory("logs")
    disk.sync_directory(".")
    directory = f"logs/{T}"
    log = create(disk, directory, SMALL)
    disk.sync_directory("logs")
    for number in range(5):
        log.append_as_leader(batch(2, size=200, tag=b"%d:" % number), 0)
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    end = log.delete_records(-1)
    assert log.stats().segment_count > 1
    disk.fail("sync_directory", directory)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(2, size=500), 0)
    disk.kill()
    left: list[SimDisk] = []
    chance = Random(seed)
    disk.observer = lambda call: left.extend(disk.crash(chance) for _ in range(4)) if call.kind in MUTATING else None
    assert reopen(disk, directory).end_offset == end
    for one in left:
        assert reopen(one, directory, same_boot=False).end_offset == end
