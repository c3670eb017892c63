"""What the tests of the log share: batches, a clock, both disks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from pyreplog.config import LogConfig
from pyreplog.log import Log, LogRoot, NewLog, RecoveryContext, random_uuid
from pyreplog.log.layout import parse_base_offset
from pyreplog.ports import Clock, Disk
from pyreplog.record import BatchBuilder, Record, records_of, split
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition
from tests.unit.log.conftest import Place


class StillClock:
    """A clock that moves when told to."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = wall_ms
        self._begun_ms = wall_ms - 5000

    def monotonic_ns(self) -> int:
        """As the wall clock, from the start of the machine on."""
        return (self.now_ms - self._begun_ms) * 1_000_000

    def wall_ms(self) -> int:
        """What was set."""
        return self.now_ms


class JumpingClock(StillClock):
    """One whose wall clock jumps by ``jump_ms``."""

    jump_ms = 0

    def wall_ms(self) -> int:
        """What was set, and the jump."""
        return self.now_ms + self.jump_ms


CLOCK = StillClock()
SMALL = LogConfig(segment_bytes=1200, index_interval_bytes=100)


def batch(
    count: int = 1,
    *,
    size: int = 10,
    timestamp: int = 1000,
    codec: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    tag: bytes = b"v",
    sequence: int = -1,
) -> memoryview:
    """A batch of ``count`` records of about ``size`` bytes, one ms apart, as a client sends it; with ``sequence``
    as producer 7."""
    builder = BatchBuilder()
    for number in range(count):
        assert builder.append(
            (b"%s%d-" % (tag, number)).ljust(size, b"x"), b"k%d" % number, [("h", b"1")], timestamp + number
        )
    if codec:
        from pyreplog.record import compress  # noqa: PLC0415  (only here)

        view = builder.payload()
        payload = compress(codec, view)
        view.release()
        return builder.finish(base_offset=base_offset, leader_epoch=leader_epoch, codec=codec, payload=payload)
    if sequence >= 0:
        return builder.finish(
            base_offset=base_offset, leader_epoch=leader_epoch, producer_id=7, producer_epoch=0, base_sequence=sequence
        )
    return builder.finish(base_offset=base_offset, leader_epoch=leader_epoch)


def create(
    disk: Disk, directory: str, config: LogConfig | None = None, *, clock: Clock = CLOCK, start_offset: int = 0
) -> Log:
    """A new log that leads in epoch 0."""
    new = NewLog(
        directory, TopicPartition("t", 0), random_uuid(Random(7)), config or LogConfig(), start_offset=start_offset
    )
    (log,) = Log.create(disk, [new], clock)
    log.become_leader(0)
    return log


def filled(place: Place, count: int = 20, config: LogConfig = SMALL) -> Log:
    """Return a log of ``count`` batches of two records, over several segments."""
    log = create(place.disk, place.of("t-0"), config)
    for number in range(count):
        log.append_as_leader(batch(2, size=50, timestamp=1000 + 10 * number, tag=b"%d:" % number), 0)
    return log


def bases(place: Place) -> list[int]:
    """Return the base offsets of the segment files of ``t-0``."""
    return [base for name in place.disk.list(place.of("t-0")) if (base := parse_base_offset(name)) is not None]


def reopen(
    disk: Disk,
    directory: str,
    *,
    clean: bool = False,
    same_boot: bool | None = True,
    config: LogConfig | None = None,
    recovery_point: int = 0,
) -> Log:
    """The log opened again."""
    return Log.open(
        disk,
        directory,
        TopicPartition("t", 0),
        config,
        CLOCK,
        None,
        RecoveryContext(clean=clean, same_boot=same_boot, recovery_point=recovery_point),
    )


def reopen_in(root: LogRoot, topic: str, partition: int) -> Log:
    """A log of a root that goes on, opened again as after an unclean end: everything is verified."""
    key = TopicPartition(topic, partition)
    old = root.logs[key]
    old.close(clean=False)
    log = root.log_class.open(
        root.disk, old.directory, key, None, root.clock, None, RecoveryContext(clean=False, same_boot=not old.poisoned)
    )
    root.logs[key] = log
    return log


def sync(disk: Disk, log: Log) -> None:
    """Carry out the log's sync plan and tell it."""
    plan = log.sync_plan()
    if plan is None:
        return
    token = disk.submit_sync(plan.files, lambda: None)
    while True:
        for done in disk.poll():
            if done.token == token:
                if done.error is not None:
                    log.poison(done.error)
                    raise done.error
                log.synced(plan.upto, plan.generation)
                return


def write_times(path: Path, topic: str, timestamps: Sequence[int]) -> None:
    """Make a log folder with one record for each timestamp, also those that no append of ours takes, as a broker
    may hold them."""
    root = LogRoot.open(SystemDisk(), str(path), clock=CLOCK, random=Random(1))
    log = root.create_log(topic, 0, root.new_topic_id(), LogConfig(durability="os"))
    log.append_as_follower(
        [batch(1, base_offset=at, timestamp=when, leader_epoch=0) for at, when in enumerate(timestamps)]
    )
    log.advance_high_watermark(len(timestamps))
    root.close()


def leave_open(root: LogRoot, log: Log) -> None:
    """As a crash finds it: everything so far checkpointed, and two batches more that nobody synced."""
    log.sync_mark()
    root.checkpoint_recovery_points()
    root.checkpoint_high_watermarks()
    root.checkpoint_log_starts()
    log.append_as_leader(batch(2, size=200), 2)
    log.append_as_leader(batch(2, size=200), 2)


def sync_in_place(disk: Disk, log: Log) -> None:
    """As :func:`sync`, file by file: also on a disk whose syncs end when a test says so."""
    plan = log.sync_plan()
    if plan is not None:
        for file in plan.files:
            file.sync()
        log.synced(plan.upto, plan.generation)


def bytes_of(disk: Disk, path: str) -> bytes:
    """All of a file."""
    file = disk.open(path)
    try:
        return bytes(file.read_at(0, file.size()))
    finally:
        file.close()


def size_of(disk: Disk, path: str) -> int:
    """Bytes in a file."""
    found = disk.stat(path)
    assert found is not None
    return found.size


def contents(log: Log, start: int | None = None, end: int | None = None, size_max: int = 1 << 20) -> list[Record]:
    """The records of a log, read through slices."""
    return list(
        _contents(log, log.start_offset if start is None else start, log.end_offset if end is None else end, size_max)
    )


def _contents(log: Log, start: int, end: int, size_max: int) -> Iterator[Record]:
    while start < end:
        cut = log.read(start, size_max, end)
        if not cut.size:
            return
        for part in cut.parts():
            for one in split(part):
                one.check_crc()
                yield from records_of(one, "t", 0, start, end)
                start = one.next_offset


def raw(log: Log) -> bytes:
    """Every byte of a log's batches."""
    found = b""
    offset = log.start_offset
    while offset < log.end_offset:
        cut = log.read(offset, 1 << 20, log.end_offset)
        if not cut.size:
            break
        data = b"".join(cut.parts())
        found += data
        offset = split(data)[-1].next_offset
    return found


def interrupted(act: Callable[[], object], moment: int, *files: str) -> bool:
    """Call ``act``, and raise KeyboardInterrupt at the ``moment``-th line of ``files`` that it comes to; whether it
    came so far."""
    left = moment

    def strike(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename.endswith(files) and event == "line":
            left -= 1
            if not left:
                raise KeyboardInterrupt
        return strike

    tracer = sys.gettrace()
    sys.settrace(strike)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(tracer)
    return False
