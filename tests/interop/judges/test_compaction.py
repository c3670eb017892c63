"""Kafka's cleaner and ours make the same of the same log. Skipped without KAFKA_JARS."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Final

import pytest

from pyreplog.config import LogConfig
from pyreplog.log import Cleaner, Log, LogRoot
from pyreplog.record import RecordBatch, records_of, split
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.values import TopicPartition
from tests.interop.judges.kafka import JARS, Broker, _merge_checkpoint, _patience
from tests.unit.log.support import sync
from tests.unit.log.test_compaction import batch

pytestmark = pytest.mark.skipif(JARS is None, reason="KAFKA_JARS names no folder with a broker's jars")

TOPIC: Final = "compacted"
SEGMENT_SIZE: Final = 1 << 20
DAY_MS: Final = 86_400_000


def shown(one: RecordBatch) -> tuple[object, ...]:
    """A batch without its delete horizon, which is made of the time of the pass, and without its codec's bytes."""
    records = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records_of(one)]
    place = (one.base_offset, one.last_offset, one.leader_epoch, one.record_count, one.attributes)
    return *place, one.producer_id, one.producer_epoch, one.base_sequence, one.max_timestamp, records


def segments(folder: Path) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Name and batches of each segment that was not being written."""
    paths = sorted(folder.glob("*.log"))[:-1]
    return [(path.name, [shown(one) for one in split(path.read_bytes())]) for path in paths]


def fill(log: Log, draw: Random, now_ms: int) -> None:
    """Batches of many kinds over several segments, with a producer, tombstones, codecs and log append times."""
    sequence = 0
    for number in range(900):
        records = [
            (b"k%d" % draw.randrange(120), None if draw.random() < 0.15 else b"v%d" % number * draw.randrange(1, 800))
            for _ in range(draw.randrange(1, 8))
        ]
        producer = draw.choice((-1, -1, 7))
        one = batch(
            log.end_offset,
            records,  # type: ignore[arg-type]
            attributes=draw.choice((0, 0, 1, 8)),
            producer=producer,
            sequence=sequence if producer >= 0 else -1,
            timestamp=now_ms - 1_000_000 + number,
        )
        sequence += len(records) if producer >= 0 else 0
        log.append_as_follower([bytearray(one)])
    sync(log.disk, log)
    log.advance_high_watermark(log.end_offset)


def ours(log: Log, now_ms: int) -> None:
    """One pass of ours, which leaves the active segment alone as a broker's does."""
    cleaner = Cleaner(log.disk, log.cleaning_plan(now_ms), bytes(16), lambda: None)
    end = cleaner.map_keys()
    for group in cleaner.plan.groups(end):
        assert log.install(cleaner.clean(group))
    log.note_cleaned(end)


@pytest.mark.parametrize("seed", [1])
def test_both_cleaners_make_the_same_segments(seed: int, tmp_path: Path) -> None:
    """Batch for batch, segment for segment: the same names, offsets, producers, attributes, timestamps, records."""
    assert JARS is not None
    disk, clock = SystemDisk(), SystemClock()
    root = LogRoot.open(disk, str(tmp_path / "root"), clock=clock, random=Random(seed))
    config = LogConfig(cleanup_policy="compact", segment_bytes=SEGMENT_SIZE, durability="os")
    log = root.create_log(TOPIC, 0, root.new_topic_id(), config)
    log.become_leader(0)
    fill(log, Random(seed), clock.wall_ms())
    root.close()
    shutil.copytree(tmp_path / "root", tmp_path / "theirs")
    settings = {"log_cleaner_backoff_ms": 200, "log_cleaner_dedupe_buffer_size": 16 << 20}
    with Broker(JARS, tmp_path / "broker", **settings) as broker:  # type: ignore[arg-type]
        broker.start()
        wanted = {
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT_SIZE),
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": str(DAY_MS * 365),
        }
        broker.create(TOPIC, wanted)
        folder = broker.data / f"{TOPIC}-0"
        for _ in _patience(30):
            if (folder / "partition.metadata").exists():
                break
        broker.stop()
        identity = (folder / "partition.metadata").read_text()
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "theirs" / folder.name, folder)
        (folder / "partition.metadata").write_text(identity)
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            _merge_checkpoint(broker.data / name, tmp_path / "theirs" / name, [TOPIC])
        broker.start()
        for _ in _patience(60):
            checkpoint = broker.data / "cleaner-offset-checkpoint"
            if checkpoint.exists() and f"{TOPIC} 0 " in checkpoint.read_text():
                break
        broker.stop()
        theirs = segments(folder)
    root = LogRoot.open(disk, str(tmp_path / "root"), clock=clock, random=Random(seed))
    log = root.logs[TopicPartition(TOPIC, 0)]
    ours(log, clock.wall_ms())
    root.close()
    assert segments(tmp_path / "root" / folder.name) == theirs
    assert sum(len(batches) for _, batches in theirs) < 900
    disk.close()
