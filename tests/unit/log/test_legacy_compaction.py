"""Compaction of logs that begin in Kafka's formats before 0.11: the messages that stay are stored in today's format."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptLogError
from pyreplog.log import Cleaner, Log, RecoveryContext, open_readers
from pyreplog.record import Record, records_of, split
from pyreplog.repair import apply_repair, plan_repair
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import CheckContext, Level, Report, check_partition
from tests.interop.golden.units import manifest, unit
from tests.unit.log.support import CLOCK, contents, raw

UNIT: Final = "old-format-2.8.2"
TOPICS: Final = [partition["topic"] for partition in manifest(UNIT)["partitions"]]
NOW_MS: Final = 1_800_000_000_000


def copied(topic: str, target: Path) -> Path:
    """A folder with a copy of the partition of ``topic``."""
    folder = target / f"{topic}-0"
    shutil.copytree(unit(UNIT) / "data" / folder.name, folder)
    os.chmod(folder, 0o700)
    return target


def opened(folder: Path, topic: str, **settings: Any) -> Log:
    """The log of ``topic``, with the settings of a compacted log."""
    config = LogConfig(durability="os", cleanup_policy="compact", delete_retention_ms=10**12, **settings)
    origin = RecoveryContext(clean=False, same_boot=None, high_watermark=1 << 40, trust_mark=False)
    path = str(folder / f"{topic}-0")
    log = Log.open(SystemDisk(), path, TopicPartition(topic, 0), config, CLOCK, None, origin)
    log.set_high_watermark(log.end_offset)
    log._segments.note_synced(log.end_offset)
    return log


def run(log: Log) -> tuple[int, int]:
    """One pass, up to where it found keys; returns that end and the number of records that stay."""
    cleaner = Cleaner(log.disk, log.cleaning_plan(NOW_MS), bytes(16), lambda: None)
    end = cleaner.map_keys()
    for group in cleaner.plan.groups(end):
        assert log.install(cleaner.clean(group))
    log.note_cleaned(end)
    return end, cleaner.result().records_kept


def newest(records: Sequence[Record], *, drops_unkeyed: bool) -> list[tuple[object, ...]]:
    """The newest record of each key; records without a key stay, or not."""
    last = {record.key: record.offset for record in records}
    return [
        shown(record)
        for record in records
        if (not drops_unkeyed if record.key is None else last[record.key] == record.offset)
    ]


def shown(record: Record) -> tuple[object, ...]:
    """What stays of a record. Today's format has no records without a kind of timestamp: theirs is -1."""
    return record.offset, record.key, record.value, record.timestamp, record.headers


def old_messages(folder: Path, topic: str) -> list[str]:
    """The closed segments that begin with a message of an old format."""
    found = sorted((folder / f"{topic}-0").glob("*.log"))
    return [path.name for path in found if path.stat().st_size > 17 and path.read_bytes()[16] < 2]


def damage(directory: str, topic: str) -> list[str]:
    """What the independent look at the folder finds, without notes."""
    book = Report()
    check_partition(SystemDisk(), directory, topic, 0, CheckContext(own=True, bare=False), book)
    return [str(one) for one in book.findings if one.level is not Level.NOTE]


def repaired(folder: Path, target: Path, topic: str) -> list[tuple[object, ...]]:
    """The records of the log that repair makes, which loses none."""
    disk = SystemDisk()
    plans = plan_repair(disk, str(folder))
    assert [plan.lost for plan in plans] == [[]]
    apply_repair(disk, str(folder), str(target), plans, clock=SystemClock(), random=Random(1))
    (reader,) = open_readers(disk, str(target), topic).values()
    batches = reader.batches(reader.start_offset, reader.end_offset)
    found = [shown(record) for batch in batches for record in records_of(batch)]
    reader.close()
    return found


@pytest.mark.parametrize(("topic", "unkeyed"), [*((topic, "refuse") for topic in TOPICS), ("magicmix-lz4", "drop")])
def test_the_newest_record_of_each_key_stays(topic: str, unkeyed: str, tmp_path: Path) -> None:
    """With its offset and timestamp, and compressed by its codec; nothing old is left; all doors agree."""
    folder = copied(topic, tmp_path)
    log = opened(folder, topic, compact_unkeyed=unkeyed)
    log.close_active_segment()
    before = contents(log, log.start_offset)
    expected = newest(before, drops_unkeyed=unkeyed == "drop")
    end, kept = run(log)
    assert (end, kept) == (log.end_offset, len(expected))
    assert [shown(record) for record in contents(log, log.start_offset)] == expected
    assert {record.timestamp_type for record in contents(log, log.start_offset)} <= {0, 1}
    assert old_messages(folder, topic) == []
    codec = {"gzip": 1, "snappy": 2, "lz4": 3}.get(topic.split("-")[1], 0)
    assert {one.codec for one in split(raw(log))} == {codec}
    whole = raw(log)
    assert run(log) == (end, kept)
    assert raw(log) == whole
    log.close(clean=False)
    again = opened(folder, topic)
    assert [shown(record) for record in contents(again, again.start_offset)] == expected
    again.close(clean=True)
    assert damage(again.directory, topic) == []


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if not topic.startswith("magic2")])
def test_a_log_that_is_converted_in_part_is_whole(topic: str, tmp_path: Path) -> None:
    """With room for few keys a pass ends between two segments of old messages. The log is read, opened, verified and
    repaired then, and the next passes end the work."""
    folder = copied(topic, tmp_path / "data")
    log = opened(folder, topic, log_cleaner_dedupe_buffer_size=24 * 8)
    log.close_active_segment()
    before = contents(log, log.start_offset)
    last = {record.key: record.offset for record in before}
    wanted = [shown(record) for record in before if record.key is None or last[record.key] == record.offset]
    for passes in range(20):
        run(log)
        found = [shown(record) for record in contents(log, log.start_offset)]
        assert [one for one in found if one in wanted] == wanted
        for key, reader in open_readers(SystemDisk(), str(folder), topic).items():
            assert key.topic == topic
            assert sum(one.record_count for one in reader.batches(0, reader.end_offset)) == len(found)
            reader.close()
        cleaned = log.cleaned_end
        log.close(clean=True)
        assert damage(log.directory, topic) == []
        if passes == 0:
            assert repaired(folder, tmp_path / "saved", topic) == found
        log = opened(folder, topic, log_cleaner_dedupe_buffer_size=24 * 8)
        log.cleaned_end = cleaned
        log.close_active_segment()
        if cleaned == log.end_offset:
            break
    assert old_messages(folder, topic) == []
    log.close(clean=True)


@pytest.mark.parametrize("topic", ["magic0-none", "magic1-gzip", "magicmix-none"])
def test_a_damaged_message_is_not_compacted_away(topic: str, tmp_path: Path) -> None:
    """The pass names the place, and the log stays as it is, without files of the pass."""
    folder = copied(topic, tmp_path)
    log = opened(folder, topic)
    log.close_active_segment()
    (path, *_) = sorted((folder / f"{topic}-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CorruptLogError) as caught:
        run(log)
    assert caught.value.file == str(path)
    assert path.read_bytes() == bytes(content)
    assert not list(path.parent.glob("*.cleaned"))
    log.close(clean=False)
