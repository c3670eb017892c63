"""Compaction of folders that a broker's cleaner left, and of a broker's transactions."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from typing import Final

import pytest

from pyreplog.config import LogConfig
from pyreplog.log import Cleaner, Log, RecoveryContext
from pyreplog.record import RecordBatch, split
from pyreplog.system import SystemDisk
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import CheckContext, Level, Report, check_partition
from tests.interop.golden.units import unit
from tests.oracle.compaction import batches_of, compacted
from tests.unit.log.producing import marker
from tests.unit.log.support import CLOCK, create, raw, sync
from tests.unit.log.test_compaction import batch

UNIT: Final = "clean-4.1.0"
TOPICS: Final = (
    "compact-basic",
    "compact-delete",
    "compact-gzip",
    "compact-idempotent",
    "compact-logappend",
    "compact-nothing-left",
    "compact-tombstones-gone",
    "compact-txn",
    "compact-txn-gone",
)
YEARS_MS: Final = 10**12
CONFIG: Final = LogConfig(durability="os", cleanup_policy="compact", delete_retention_ms=YEARS_MS)


def opened(topic: str, target: Path) -> Log:
    """A copy of a broker's partition, with the settings of a compacted log."""
    folder = target / f"{topic}-0"
    shutil.copytree(unit(UNIT) / "data" / folder.name, folder)
    os.chmod(folder, 0o700)
    origin = RecoveryContext(clean=False, same_boot=None, high_watermark=1 << 40, trust_mark=False)
    log = Log.open(SystemDisk(), str(folder), TopicPartition(topic, 0), CONFIG, CLOCK, None, origin)
    log.set_high_watermark(log.end_offset)
    log._segments.note_synced(log.end_offset)
    return log


def run(log: Log, now_ms: int) -> None:
    """One pass."""
    cleaner = Cleaner(log.disk, log.cleaning_plan(now_ms), bytes(16), lambda: None)
    end = cleaner.map_keys()
    for group in cleaner.plan.groups(end):
        assert log.install(cleaner.clean(group))
    log.note_cleaned(end)


def shown(batch: RecordBatch) -> tuple[object, ...]:
    """A batch without its delete horizon."""
    horizon = batch.delete_horizon_ms is not None
    return batch.base_offset, batch.last_offset, batch.record_count, batch.attributes & 0xBF, horizon


@pytest.mark.parametrize("topic", TOPICS)
def test_what_kafkas_cleaner_left_is_left_as_it_is(topic: str, tmp_path: Path) -> None:
    """Before any horizon a pass finds nothing to drop: every byte stays. Only markers whose transactions Kafka's
    pass emptied get their horizon, as in Kafka's next pass; and the small segments are joined."""
    log = opened(topic, tmp_path)
    before, count = raw(log), len(log.segments())
    run(log, 1000)
    assert len(log.segments()) < count
    if topic != "compact-txn":
        assert raw(log) == before
    else:
        pairs = list(zip(split(before), split(raw(log)), strict=True))
        changed = [(one, other) for one, other in pairs if bytes(one.data) != bytes(other.data)]
        assert changed
        for one, other in changed:
            assert one.is_control
            assert shown(one)[:4] == shown(other)[:4]
            assert other.delete_horizon_ms == 1000 + YEARS_MS
    log.close(clean=True)
    book = Report()
    check_partition(SystemDisk(), log.directory, topic, 0, CheckContext(), book)
    assert not [one for one in book.findings if one.level is Level.DAMAGE]


@pytest.mark.parametrize("room", [8, 1000])
def test_aborted_records_go_and_markers_follow_them(room: int) -> None:
    """C2, KAFKA-13727: also if the map is full in the middle of a transaction, whose aborted records behind that place
    go in a later pass. The markers stay until nothing of their transactions is left, and then for their time."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    settings = {"segment_bytes": 1024, "log_cleaner_dedupe_buffer_size": 24 * room}
    config = LogConfig(cleanup_policy="compact", delete_retention_ms=1000, **settings)  # type: ignore[arg-type]
    log = create(disk, "data/t-0", config)
    draw, sequences = Random(room), {1: 0, 2: 0}
    aborted: list[tuple[int, int, int]] = []
    for number in range(30):
        producer = 1 + number % 2
        first = log.end_offset
        for _ in range(draw.randrange(1, 4)):
            records = [(b"k%d" % draw.randrange(20), b"%d" % number) for _ in range(3)]
            one = batch(log.end_offset, records, attributes=0x10, producer=producer, sequence=sequences[producer])  # type: ignore[arg-type]
            log.append_as_follower([bytearray(one)])
            sequences[producer] += 3
        end = log.end_offset
        commits = draw.random() < 0.5
        log.append_as_follower([bytearray(marker(base=end, commit=commits, producer=producer))])
        if not commits:
            aborted.append((producer, first, end))
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    log.close_active_segment()
    now = 10_000
    for _ in range(12):
        before = raw(log)
        plan = log.cleaning_plan(now)
        cleaner = Cleaner(disk, plan, bytes(16), lambda: None)
        end = cleaner.map_keys()
        groups = plan.groups(end)
        expected = compacted(
            batches_of(before),
            plan.first_dirty,
            end,
            groups[-1][-1].end_offset if groups else 0,
            now_ms=now,
            retention_ms=1000,
            producers=plan.producers,
            aborted=aborted,
            drops_unkeyed=False,
        )
        for group in groups:
            assert log.install(cleaner.clean(group))
        log.note_cleaned(end)
        assert batches_of(raw(log)) == expected
        now += 700
    assert log.cleaned_end == log.end_offset
    log.close(clean=True)


def test_a_dropped_tombstone_is_remembered_by_later_passes(tmp_path: Path) -> None:
    """Also in a folder of a broker, whose gaps are not recorded: a table that is behind must hear of it."""
    log = opened("compact-basic", tmp_path)
    now = YEARS_MS + CLOCK.wall_ms()
    log.update_config(LogConfig(durability="os", cleanup_policy="compact", delete_retention_ms=0))
    for step in range(4):
        log.append_as_leader(memoryview(bytearray(batch(0, [(b"gone", None if step == 0 else b"")]))), 0)
        sync(log.disk, log)
        log.advance_high_watermark(log.end_offset)
        log.close_active_segment()
        run(log, now + step)
        if step == 2:
            first = log.dropped_tombstone
    assert log.dropped_tombstone >= first >= 0
    directory = log.directory
    log.close(clean=True)
    (path, *_) = Path(directory).glob("*.gaps")
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(bytes(content))
    book = Report()
    check_partition(SystemDisk(), directory, "compact-basic", 0, CheckContext(own=True, bare=False), book)
    assert next(one.what for one in book.findings if one.level is Level.DAMAGE).endswith("dropped is not known")
