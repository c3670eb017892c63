"""The life of a log's segments: how they are closed, and when they may go. Numbers are those of the specification's
edge cases."""

from __future__ import annotations

import errno
import sys
from random import Random
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, ConfigError, InvalidTimestampError, OffsetOutOfRangeError, StorageError
from pyreplog.log import Log, LogRoot, NewLog, RecoveryContext, open_readers
from pyreplog.log.pending_deletes import PendingDeletes
from pyreplog.log.trusted_clock import JUMP_MS, TrustedClock
from pyreplog.record import compress, records_of, split
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.unit.log.conftest import Place
from tests.unit.log.support import JumpingClock, StillClock, batch, contents, sync

ID = "AbCdEfGhIjKlMnOpQrStUw"
SIZE = batch(1, size=50).nbytes


class Life:
    """A log of one record a batch and two batches a segment, with a clock of its own."""

    def __init__(self, disk: object, directory: str, *, durability: str = "os", **settings: Any) -> None:
        self.clock = StillClock()
        self.disk = disk
        self.directory = directory
        config = LogConfig(
            **{"durability": durability, "segment_bytes": max(2 * SIZE, 1024), "index_interval_bytes": 100, **settings}
        )
        self.log = Log.create(disk, [NewLog(directory, TopicPartition("t", 0), ID, config)], self.clock)[0]  # type: ignore[arg-type]
        self.log.become_leader(0)

    def append(self, count: int = 1, timestamp: int | None = None, *, size: int = 400) -> None:
        for _ in range(count):
            self.log.append_as_leader(
                batch(1, size=size, timestamp=self.clock.now_ms if timestamp is None else timestamp), 0
            )
        if self.log.durability == "os":
            self.log.advance_high_watermark(self.log.end_offset)

    def reopen(self, *, clean: bool = True) -> Log:
        self.log.close(clean=clean)
        self.log = Log.open(
            self.disk,  # type: ignore[arg-type]
            self.directory,
            TopicPartition("t", 0),
            None,
            self.clock,
            None,
            RecoveryContext(clean=clean, same_boot=True),
        )
        return self.log

    def bases(self) -> list[int]:
        return sorted(int(name[:-4]) for name in self.disk.list(self.directory) if name.endswith(".log"))  # type: ignore[attr-defined]

    def deleted(self) -> list[str]:
        return [name for name in self.disk.list(self.directory) if name.endswith(".deleted")]  # type: ignore[attr-defined]


def begin(place: Place, **settings: Any) -> Life:
    return Life(place.disk, place.of("t-0"), **settings)


# -- what may go --


def test_nothing_goes_unless_asked(place: Place) -> None:
    """By default records stay for ever, whatever their age and number."""
    life = begin(place)
    life.append(9, timestamp=1)
    assert life.log.apply_retention() == 0
    assert life.log.start_offset == 0
    life.log.close(clean=True)


def test_by_age_go_segments_whose_newest_record_is_old(place: Place) -> None:
    """The greatest timestamp of a segment decides, not its last one; the limit itself is not too old."""
    life = begin(place, retention_ms=1000)
    start = life.clock.now_ms
    life.append(1, timestamp=start)
    life.append(1, timestamp=start - 500)
    life.append(2, timestamp=start + 400)
    life.append(1, timestamp=start + 900)
    life.clock.now_ms = start + 1000
    assert life.log.apply_retention() == 0
    life.clock.now_ms = start + 1001
    assert life.log.apply_retention() == 1
    assert life.log.start_offset == 2
    life.clock.now_ms = start + 1401
    assert life.log.apply_retention() == 1
    assert life.bases() == [4]
    life.log.close(clean=True)


def test_a_future_timestamp_pins_its_segment(place: Place) -> None:
    """Records of the future are not old, and what lies behind them has to wait."""
    life = begin(place, retention_ms=1000)
    life.append(1, timestamp=life.clock.now_ms + 10**9)
    life.append(5)
    life.clock.now_ms += 5000
    assert life.log.apply_retention() == 0
    life.log.close(clean=True)


def test_records_without_timestamps_go_by_their_file() -> None:
    """Where no record has a timestamp, the time of the file's last change is taken."""
    clock = StillClock()
    disk = SimDisk(Random(1), clock=clock)
    disk.make_directory("d")
    life = Life(disk, "d/t-0", retention_ms=1000)
    life.clock = clock
    life.log.clock = clock
    life.log._trusted_clock = TrustedClock(clock)
    life.append(4, timestamp=-1)
    clock.now_ms += 1000
    assert life.log.apply_retention() == 0
    clock.now_ms += 1
    assert life.log.apply_retention() == 2
    life.log.close(clean=True)


def test_a_clock_that_jumps_ahead_takes_one_segment_at_a_time(place: Place) -> None:
    """What only a jump of the wall clock makes old goes one segment a run, until somebody says that the clock is
    right."""

    life = begin(place, retention_ms=10 * JUMP_MS)
    clock = JumpingClock(life.clock.now_ms)
    life.log.clock = clock
    life.log._trusted_clock = TrustedClock(clock)
    life.append(10)
    clock.jump_ms = 10**9
    assert [life.log.apply_retention() for _ in range(3)] == [1, 1, 1]
    clock.jump_ms = 0
    assert life.log.apply_retention() == 0
    clock.jump_ms = 10**9
    assert life.log.apply_retention(confirmed=True) == 2
    assert life.log.start_offset == 10
    life.log.close(clean=True)


# -- how it goes --


def test_files_stay_a_while_under_another_name(place: Place) -> None:
    """Removed segments are ``.deleted`` first, gone after file.delete.delay.ms, and gone in any case when the log
    is opened again."""
    life = begin(place, retention_bytes=0, file_delete_delay_ms=500)
    life.append(4)
    sync(place.disk, life.log)
    assert life.log.apply_retention() == 2
    gone = life.deleted()
    assert {name.partition(".")[2] for name in gone} >= {"log.deleted", "index.deleted", "timeindex.deleted"}
    life.clock.now_ms += 499
    life.log.apply_retention()
    assert life.deleted() == gone
    life.clock.now_ms += 1
    life.log.apply_retention()
    assert not life.deleted()
    life.append(2)
    life.log.apply_retention()
    assert life.deleted()
    life.reopen()
    assert not life.deleted()
    life.log.close(clean=True)


def test_each_of_many_goes_as_fast_as_each_of_few() -> None:
    """The log is locked meanwhile: to take twice as many segments out of it is twice the work."""

    class Nothing:
        """A disk, and a segment of it."""

        directory = "d"
        base_offset = 0

        def __getattr__(self, name: str) -> Any:
            return lambda *_: self

    def work(count: int) -> int:
        graves, disk, steps = PendingDeletes(Nothing()), Nothing(), 0

        def note(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal steps
            frame.f_trace_opcodes = True
            steps += 1
            return note

        before = sys.gettrace()
        sys.settrace(note)
        try:
            for disk.base_offset in range(count):
                graves.schedule(disk, 1)  # type: ignore[arg-type]
            graves.delete_due(1)
        finally:
            sys.settrace(before)
        assert not len(graves)
        return steps

    assert work(100) < work(200) < 3 * work(100)


def test_each_has_its_own_time_under_the_other_name(place: Place) -> None:
    """A log that begins anew may remove a segment of the same name while the files of the one before are still
    there."""
    life = begin(place, retention_bytes=0, file_delete_delay_ms=500)
    life.append(4)
    life.log.apply_retention()
    first = life.deleted()
    life.clock.now_ms += 300
    life.log.truncate_fully(0)
    life.append(4)
    life.log.apply_retention()
    assert set(first) <= set(life.deleted())
    life.clock.now_ms += 499  # the first one's time is over
    life.log.apply_retention()
    assert set(first) <= set(life.deleted())
    life.clock.now_ms += 1
    life.log.apply_retention()
    assert not life.deleted()
    life.log.close(clean=True)


def test_the_start_is_durable_before_a_file_goes() -> None:
    """Power loss at any point of the removal leaves a log that opens, begins at the old start or the new one, and
    has all from there."""
    disk = SimDisk(Random(3))
    disk.make_directory("d")
    life = Life(disk, "d/t-0", retention_bytes=0, durability="sync")
    life.append(6)
    sync(disk, life.log)
    life.log.advance_high_watermark(6)
    life.log.sync_mark()
    disk.write_back()
    states: list[SimDisk] = []

    def look(call: object) -> None:
        disk.observer = None
        states.extend(disk.crash(Random(f"{len(states)}")) for _ in range(20))
        disk.observer = look

    disk.observer = look
    life.log.update_config(life.log.config)
    assert life.log.apply_retention() == 3
    disk.observer = None
    assert len(states) > 200
    for state in states:
        log = Log.open(
            state,
            "d/t-0",
            TopicPartition("t", 0),
            None,
            life.clock,
            None,
            RecoveryContext(clean=False, same_boot=False),
        )
        assert log.start_offset in {0, 6}
        assert log.end_offset == 6
        assert [record.offset for record in contents(log)] == list(range(log.start_offset, 6))


def test_a_removal_finished_by_recovery_does_not_outrun_the_mark() -> None:
    """A start that only the page cache knows is made durable before recovery removes what lies below: power loss
    may strike again."""
    disk = SimDisk(Random(3))
    disk.make_directory("d")
    life = Life(disk, "d/t-0", durability="sync")
    life.append(6)
    sync(disk, life.log)
    life.log.advance_high_watermark(6)
    life.log.sync_mark()
    disk.write_back()
    life.log.increment_start_offset(4)
    killed = disk.snapshot()
    states: list[SimDisk] = []

    def look(call: object) -> None:
        killed.observer = None
        states.extend(killed.crash(Random(f"{len(states)}")) for _ in range(10))
        killed.observer = look

    killed.observer = look
    log = Log.open(
        killed, "d/t-0", TopicPartition("t", 0), None, life.clock, None, RecoveryContext(clean=False, same_boot=True)
    )
    killed.observer = None
    assert log.start_offset == 4
    assert sorted(name for name in killed.list("d/t-0") if name.endswith(".log")) == ["00000000000000000004.log"]
    assert len(states) > 100
    for state in states:
        log = Log.open(
            state,
            "d/t-0",
            TopicPartition("t", 0),
            None,
            life.clock,
            None,
            RecoveryContext(clean=False, same_boot=False),
        )
        assert log.start_offset in {0, 4}
        assert [record.offset for record in contents(log)] == list(range(log.start_offset, 6))


def test_segments_go_on_a_full_disk_too() -> None:
    """There is no room to cut the history: the mark says all the same where the log begins now, and it opens after
    a kill."""
    disk = SimDisk(Random(3))
    disk.make_directory("d")
    life = Life(disk, "d/t-0", retention_bytes=0, file_delete_delay_ms=0)
    life.append(5)
    disk.fail("create", "*leader-epoch*", error=errno.ENOSPC, times=None)
    assert life.log.apply_retention() == 3
    assert life.log.failure is None
    disk.clear_faults()
    log = life.reopen(clean=False)
    assert (log.start_offset, log.end_offset) == (5, 5)
    log.close(clean=True)


def test_a_removal_that_is_refused_is_tried_again() -> None:
    """A file that cannot be renamed or removed does not hurt the log; it goes the next time, or when the log is
    opened."""
    disk = SimDisk(Random(3))
    disk.make_directory("d")
    life = Life(disk, "d/t-0", retention_bytes=0, file_delete_delay_ms=0)
    life.append(6)
    for kind in ("rename", "remove"):
        fault = disk.fail(kind, "*.log*", error=errno.EIO)
        with pytest.raises(StorageError):
            life.log.apply_retention()
        assert fault.hits == 1
        assert life.log.failure is None
        assert life.log.apply_retention() == 0
        assert not life.deleted()
        assert life.bases() == [life.log.start_offset]
        life.append(4)
    assert life.reopen().recovery.clean


def test_a_file_that_stays_does_not_keep_the_others() -> None:
    """One that can never be removed is told of each time, while the rest of what is too much goes."""
    disk = SimDisk(Random(3))
    disk.make_directory("d")
    life = Life(disk, "d/t-0", retention_bytes=0, file_delete_delay_ms=0)
    stays = f"{0:020d}.log.deleted"
    disk.fail("remove", f"*/{stays}", times=None, error=errno.EPERM)
    for _ in range(3):
        life.append(6)
        with pytest.raises(StorageError) as caught:
            life.log.apply_retention()
        assert stays in str(caught.value)
        assert life.bases() == [life.log.start_offset] == [life.log.end_offset]
        assert life.deleted() == [stays]
    disk.clear_faults()
    life.log.apply_retention()
    assert not life.deleted()


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_what_kept_its_name_is_not_taken_for_what_follows(suffix: str) -> None:
    """A file that could not be renamed and waits to be removed is not in the way of a log that begins anew there,
    nor takes its files."""
    disk = SimDisk(Random(3))
    disk.make_directory("d")
    life = Life(disk, "d/t-0", retention_bytes=0, file_delete_delay_ms=5000)
    life.append(6)
    fault = disk.fail("rename", f"*00002{suffix}", error=errno.EIO)
    with pytest.raises(StorageError):
        life.log.apply_retention()
    assert fault.hits == 1
    life.log.truncate_fully(0)
    life.append(6, size=300)
    life.clock.now_ms += 10_000
    names = disk.list("d/t-0")
    life.log.update_config(LogConfig(durability="os", segment_bytes=1024, index_interval_bytes=100))
    life.log.apply_retention()
    assert [name for name in names if name not in disk.list("d/t-0") and not name.endswith(".deleted")] == []
    assert [record.offset for record in contents(life.reopen(clean=False))] == list(range(6))


def test_a_failed_sync_of_the_mark_removes_nothing() -> None:
    """Where the new start cannot be made durable, no file goes, and the log is poisoned."""
    disk = SimDisk(Random(3))
    disk.make_directory("d")
    life = Life(disk, "d/t-0", retention_bytes=0)
    life.append(6)
    disk.fail("sync", "*/replog.mark")
    with pytest.raises(StorageError):
        life.log.apply_retention()
    assert life.bases()[:3] == [0, 2, 4]
    with pytest.raises(ClosedError, match="poisoned"):
        life.log.apply_retention()


def test_readers_beside_look_again(place: Place) -> None:
    """A reader without a lock that comes too late for a segment hears that its offset is out of range, and reads on
    from the start."""
    clock = StillClock()
    root = LogRoot.open(place.disk, place.of("root"), clock=clock, random=Random(1))
    log = root.create_log(
        "t", 0, ID, LogConfig(durability="os", segment_bytes=1024, retention_bytes=1, file_delete_delay_ms=0)
    )
    log.become_leader(0)
    for _ in range(8):
        log.append_as_leader(batch(1, size=400, timestamp=clock.now_ms), 0)
        log.advance_high_watermark(log.end_offset)
    log.write_mark()
    ((_, reader),) = open_readers(place.disk, place.of("root")).items()
    assert split(reader.read(0, 1))[0].base_offset == 0
    assert log.apply_retention() == 3
    assert split(reader.read(0, 1))[0].base_offset == 0, "the file is open still"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        reader.read(3, 1)
    assert caught.value.start == 6
    assert [record.offset for one in reader.batches(6, 8) for record in records_of(one)] == [6, 7]
    assert reader.find_timestamp(0) == (6, clock.now_ms)
    reader.close()
    late = open_readers(place.disk, place.of("root"))[TopicPartition("t", 0)]
    assert (late.start_offset, late.end_offset) == (6, 8)
    late.close()
    root.close()


def test_a_root_applies_it_to_all_its_logs(place: Place) -> None:
    """One call for every partition of a root; the start goes into the checkpoint."""
    root = LogRoot.open(place.disk, place.of("root"), clock=StillClock(), random=Random(1))
    for number in range(3):
        log = root.create_log("t", number, ID, LogConfig(durability="os", segment_bytes=1024, retention_bytes=1))
        log.become_leader(0)
        for _ in range(2 * number):
            log.append_as_leader(batch(1, size=400), 0)
        log.advance_high_watermark(log.end_offset)
    assert root.apply_retention() == 1
    assert root.logs[TopicPartition("t", 2)].start_offset == 2
    root.close()
    again = LogRoot.open(place.disk, place.of("root"), clock=StillClock(), random=Random(2))
    assert again.logs[TopicPartition("t", 2)].start_offset == 2
    again.close()


# -- deleting records --


def test_records_are_deleted_up_to_an_offset(place: Place) -> None:
    """delete_records hides what lies below at once and for good, also within a batch; -1 means the high watermark,
    above it is refused."""
    life = begin(place, durability="sync")
    life.log.append_as_leader(batch(4, size=20), 0)
    life.append(3)
    sync(place.disk, life.log)
    life.log.advance_high_watermark(6)
    with pytest.raises(OffsetOutOfRangeError):
        life.log.delete_records(7)
    assert life.log.delete_records(2) == 2
    assert life.log.delete_records(1) == 2
    with pytest.raises(OffsetOutOfRangeError):
        life.log.read(1, 100, 7)
    assert [record.offset for record in contents(life.log)] == [2, 3, 4, 5, 6]
    assert life.log.delete_records(-1) == 6
    assert life.reopen(clean=False).start_offset == 6
    assert [record.offset for record in contents(life.log)] == [6]
    life.log.close(clean=True)


# -- closing segments --


def test_a_segment_reserves_its_room_and_gives_it_back() -> None:
    """31: with preallocate a segment's room is reserved at once, its length stays what was written, and closing
    trims it."""
    disk = SimDisk(Random(1), capacity=1 << 20)
    disk.make_directory("d")
    life = Life(disk, "d/t-0", preallocate=True, segment_bytes=100_000)
    free = disk._free()
    assert free < (1 << 20) - 100_000
    life.append(2)
    assert disk._free() >= free - 100, "it was reserved"
    found = disk.stat("d/t-0/00000000000000000000.log")
    assert found is not None
    assert found.size == life.log.stats().size
    life.log.close(clean=True)
    assert disk._free() > (1 << 20) - 10_000
    with pytest.raises(StorageError):
        Life(disk, "d/t-1", preallocate=True, segment_bytes=2 << 20)


def test_jitter_only_brings_a_roll_forward(place: Place) -> None:
    """70: with segment.jitter.ms a segment is closed earlier than segment.ms says, differently from segment to
    segment, never later."""
    spans = []
    life = begin(place, segment_ms=1000, segment_jitter_ms=900, segment_bytes=1 << 20)
    timestamp = first = 10**6
    for _ in range(400):
        before = life.log.stats().segment_count
        life.append(1, timestamp=timestamp, size=20)
        if life.log.stats().segment_count > before:
            spans.append(timestamp - first)
            first = timestamp
        timestamp += 20
    assert len(spans) > 8
    assert max(spans) <= 1020
    assert len({*spans}) > 3
    life.log.close(clean=True)


def test_an_empty_append_never_rolls(place: Place) -> None:
    """68, 69: nothing fetched, nothing closed; and no closed segment is empty."""
    life = begin(place, segment_ms=1)
    life.append(1, timestamp=1)
    life.clock.now_ms += 10**6
    life.log.append_as_follower([])
    assert life.log.stats().segment_count == 1
    life.append(1, timestamp=10**6)
    assert life.bases() == [0, 1]
    life.log.close(clean=True)


# -- what is taken --


@pytest.mark.parametrize("codec", [0, 4])
def test_timestamps_out_of_bounds_are_refused(place: Place, codec: int) -> None:
    """76: a record too far back or ahead refuses its batch; the bounds themselves are inside; without timestamp, or
    with the log's own, any goes."""
    life = begin(place, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    now = life.clock.now_ms
    for timestamp in (now - 1000, now + 499, now):
        life.log.append_as_leader(batch(2, timestamp=timestamp, codec=codec), 0)
    life.log.append_as_leader(batch(1, timestamp=-1, codec=codec), 0)
    end = life.log.end_offset
    for timestamp in (now - 1001, now + 500, now - 10**9):
        with pytest.raises(InvalidTimestampError, match="record [01] of a batch"):
            life.log.append_as_leader(batch(2, timestamp=timestamp, codec=codec), 0)
        with pytest.raises(InvalidTimestampError):
            life.log.append_as_leader(batch(2, timestamp=timestamp), 0, trusted=True)
    assert life.log.end_offset == end
    life.log.append_as_follower([batch(2, timestamp=1, base_offset=end, leader_epoch=0)])
    life.log.update_config(
        LogConfig(durability="os", message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=1)
    )
    life.log.append_as_leader(batch(2, timestamp=1), 0)
    assert contents(life.log)[-1].timestamp == now
    life.log.close(clean=True)


def test_the_settings_have_limits_and_survive_as_text() -> None:
    """Kafka's names and texts, -1 for no limit; what is out of bounds is refused."""
    given_settings = {
        "retention.ms": "-1",
        "retention.bytes": 10,
        "file.delete.delay.ms": 0,
        "preallocate": "true",
        "segment.jitter.ms": 5,
        "message.timestamp.before.max.ms": 1,
        "message.timestamp.after.max.ms": 2,
    }
    config = LogConfig.from_mapping(given_settings)
    assert config.preallocate is True
    assert config.to_mapping()["preallocate"] == "true"
    assert LogConfig.from_mapping(config.to_mapping()) == config
    for key, value in (
        ("retention.ms", -2),
        ("retention.bytes", -2),
        ("preallocate", "yes"),
        ("file.delete.delay.ms", -1),
    ):
        with pytest.raises(ConfigError, match=key):
            LogConfig.from_mapping({key: value})


# -- looking up times --


@settings(max_examples=60, deadline=None)
@given(
    timestamps=st.lists(st.lists(st.integers(-1, 60), min_size=1, max_size=4), min_size=1, max_size=24),
    targets=st.lists(st.integers(0, 61), min_size=1, max_size=8),
    start=st.integers(0, 20),
    compressed=st.booleans(),
)
def test_times_are_found_in_any_order(
    timestamps: list[list[int]], targets: list[int], start: int, compressed: bool
) -> None:
    """The first record at or after a time is found, however the timestamps jump, over segments, rolls and a
    reopening."""
    from pyreplog.record import BatchBuilder  # noqa: PLC0415  (only here)

    disk = SimDisk(Random(1))
    disk.make_directory("d")
    life = Life(disk, "d/t-0")
    expected: list[tuple[int, int]] = []
    for group in timestamps:
        builder = BatchBuilder()
        for timestamp in group:
            builder.append(b"x" * 90, None, (), timestamp)
            expected.append((len(expected), timestamp))
        if compressed:
            view = builder.payload()
            payload = compress(4, view)
            view.release()
            life.log.append_as_leader(builder.finish(codec=4, payload=payload), 0)
        else:
            life.log.append_as_leader(builder.finish(), 0)
    life.log.advance_high_watermark(life.log.end_offset)
    life.log.increment_start_offset(min(start, life.log.end_offset))
    for _ in range(2):
        for target in targets:
            found = life.log.find_timestamp(target, life.log.end_offset)
            wanted = next((one for one in expected if one[1] >= target and one[0] >= life.log.start_offset), None)
            assert found == wanted
        life.reopen()
