"""Kafka's own dump tool has nothing to say of what we write, and a real broker serves it. Skipped without
``KAFKA_JARS``."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.log import Log, LogRoot, open_readers, random_uuid
from pyreplog.log.read_committed import CommittedSource
from pyreplog.record import CODEC_NAMES, Record, records_of, split
from pyreplog.system.clock import SystemClock
from pyreplog.system.disk import SystemDisk
from pyreplog.values import TopicPartition
from tests.interop.golden.units import copy_of
from tests.interop.judges.kafka import JARS, dump, serve
from tests.unit.log.producing import Live, Play, offsets_of, produced
from tests.unit.log.support import batch

pytestmark = pytest.mark.skipif(JARS is None, reason="KAFKA_JARS names no folder with a broker's jars")
T0 = 1_700_000_000_000


def fill(root: LogRoot) -> dict[str, Log]:
    """A log of every kind, by topic; each with several segments."""
    chance = Random(5)
    config = LogConfig(segment_bytes=4096, index_interval_bytes=200)
    logs = {
        topic: root.create_log(topic, 0, random_uuid(chance), config)
        for topic in (
            "codecs",
            "times",
            "idempotent",
            "transactions",
            "epochs",
            "truncated",
            "started",
            "single",
            "empty",
        )
    }
    logs["append-time"] = root.create_log(
        "append-time",
        0,
        random_uuid(chance),
        LogConfig(segment_bytes=4096, message_timestamp_type="LogAppendTime", compression_type="lz4"),
    )
    for log in logs.values():
        log.become_leader(0)
    for number in range(60):
        logs["codecs"].append_as_leader(
            batch(5, size=30, codec=number % len(CODEC_NAMES), timestamp=T0 + 10 * number), 0
        )
        logs["times"].append_as_leader(batch(2, timestamp=T0 + chance.randrange(100_000)), 0)
        logs["append-time"].append_as_leader(batch(2, size=100, timestamp=T0), 0)
        for producer in (1, 2):
            logs["idempotent"].append_as_leader(produced(3 * number, 3, producer=producer), 0)
        logs["epochs"].append_as_leader(batch(2, size=50, timestamp=T0 + number), number // 10 * 2)
        logs["truncated"].append_as_leader(batch(3, size=50, timestamp=T0 + number), number // 20)
        logs["started"].append_as_leader(batch(3, size=50, timestamp=T0 + number), 0)
    logs["single"].append_as_leader(batch(1, timestamp=T0), 0)
    logs["truncated"].truncate_to(100)
    logs["truncated"].append_as_leader(batch(3, timestamp=T0 + 500), 9)
    play = Play(logs["transactions"])
    for number in range(40):
        play.data(number % 3 + 1, 3)
        if number % 2:
            play.other()
        if number % 4 == 3:
            play.end(number % 3 + 1, commit=number % 8 == 3)
    for producer in (1, 2):
        if producer in play.open:
            play.end(producer, commit=producer == 1)
    for log in logs.values():
        log.set_high_watermark(log.end_offset)
    logs["started"].increment_start_offset(77)
    return logs


def records(log: Log) -> list[Record]:
    """Everything in a log."""
    found: list[Record] = []
    offset = log.start_offset
    while offset < log.end_offset:
        for part in log.read(offset, 1 << 20, log.end_offset).parts():
            for one in split(part):
                found += records_of(one, "t", 0, offset)
                offset = one.next_offset
    return found


@pytest.mark.parametrize("clean", [True, False])
def test_folders_of_every_kind(tmp_path: Path, clean: bool) -> None:
    """Logs of every codec, with idempotent producers, transactions and their markers, epochs, truncations, log
    starts: the dump tool finds every batch and record valid and every index right, and a broker serves exactly what
    was written, in both isolations; whether it trusts our clean stop or recovers what a kill left."""
    assert JARS is not None
    disk = SystemDisk()
    root = LogRoot.open(disk, str(tmp_path / "root"), clock=SystemClock(), random=Random(1))
    logs = fill(root)
    expected = {topic: records(log) for topic, log in logs.items()}
    stable = offsets_of(CommittedSource(Live(logs["transactions"])))
    starts = {topic: log.start_offset for topic, log in logs.items()}
    assert 0 < len(stable) < len(expected["transactions"])
    if clean:
        root.close()
    else:
        for log in logs.values():
            log.write_mark()
        root.checkpoint_log_starts()
        root.checkpoint_high_watermarks()
        root.close(clean=False)
    if clean:
        verdict = dump(JARS, tmp_path / "root")
        assert verdict.complaints == []
        assert verdict.batches > 400
        assert verdict.records >= sum(len(found) for found in expected.values()) - starts["started"]
        print(verdict[:3])
    topics = [topic for topic in logs if topic != "empty"]
    served = serve(
        JARS,
        tmp_path / "broker",
        tmp_path / "root",
        topics,
        clean=clean,
        isolations=("read_uncommitted", "read_committed"),
    )
    for topic in topics:
        for isolation in ("read_uncommitted", "read_committed"):
            committed = topic == "transactions" and isolation == "read_committed"
            wanted = [record for record in expected[topic] if not committed or record.offset in stable]
            assert [
                (one.offset, one.timestamp, one.key, one.value, one.headers, one.kind)
                for one in served[topic, isolation]
            ] == [
                (
                    r.offset,
                    r.timestamp,
                    r.key,
                    r.value,
                    [(name, value) for name, value in r.headers],
                    int(r.timestamp_type) + 1,
                )
                for r in wanted
            ], (topic, isolation)
    disk.close()


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        (
            "clean-4.1.0",
            (
                "plain",
                "idempotent",
                "txn",
                "txn-lz4",
                "compact-txn",
                "compact-basic",
                "time-unordered",
                "many-batches-1",
                "mixed-codecs",
            ),
        ),
        ("crash-4.1.0/torn", ("plain", "lz4", "idem", "txn", "one", "start")),
        (
            "old-format-2.8.2",
            ("magic0-none", "magic0-lz4", "magic1-gzip", "magic1-snappy", "magicmix-lz4", "magicmix-none"),
        ),
    ],
)
def test_a_taken_over_folder(name: str, topics: tuple[str, ...], tmp_path: Path) -> None:
    """A broker's folder, recovered by us where it was torn, appended to and closed: the dump tool has nothing to
    say of it, and a broker serves the old records and the new ones as we read them, in both isolations."""
    assert JARS is not None
    disk = SystemDisk()
    folder = copy_of(name, tmp_path / "root")
    for path in folder.iterdir():
        if path.is_dir() and path.name not in {f"{topic}-0" for topic in topics}:
            shutil.rmtree(path)
    root = LogRoot.open(disk, str(folder), clock=SystemClock(), random=Random(1))
    assert not root.damaged
    old_end = {}
    for topic in topics:
        log = root.logs[TopicPartition(topic, 0)]
        old_end[topic] = log.end_offset
        log.become_leader(log.epochs.latest + 1)
        log.append_as_leader(batch(3, timestamp=T0, codec=3), log.epochs.latest)
        log.set_high_watermark(log.end_offset)
    root.close()
    # Kafka itself leaves magic 0 and 1 indexed by sets of messages, which its tool calls a
    # mismatch; what we write has batches alone.
    if not name.startswith("old-format"):
        complaints = dump(JARS, folder, gaps=True).complaints
        assert complaints == []
    expected: dict[tuple[str, str], list[Record]] = {}
    for key, reader in open_readers(disk, str(folder)).items():
        for isolation in ("read_uncommitted", "read_committed"):
            source = reader.isolated(isolation)
            found = [
                record
                for one in source.batches(source.start_offset, source.end_offset)
                for record in records_of(one, "", 0, source.start_offset)
            ]
            expected[key.topic, isolation] = found
        assert [record.offset for record in expected[key.topic, "read_uncommitted"]][-3:] == [
            old_end[key.topic] + number for number in range(3)
        ]
        reader.close()
    served = serve(
        JARS, tmp_path / "broker", folder, topics, clean=True, isolations=("read_uncommitted", "read_committed")
    )
    for at, wanted in expected.items():
        assert [one[:2] + one[3:] for one in served[at]] == [
            (r.offset, r.timestamp, r.key, r.value, [(header, value) for header, value in r.headers]) for r in wanted
        ], at
    disk.close()
