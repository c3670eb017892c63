"""Every way to read a log with gaps, from every offset: the same records, whether compaction of this library or a
broker's left the gaps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import pyreplog
from pyreplog.errors import NoRecordError
from pyreplog.values import TopicPartition
from tests.interop.golden.units import unit

CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": 2048,
    "file.delete.delay.ms": 0,
    "delete.retention.ms": 0,
}
BASE_MS: Final = 1_717_200_000_000
SHAPES: Final = ("head", "end", "nothing", "batches", "compact-basic", "compact-txn", "compact-nothing-left")


def make(path: Path, shape: str) -> str:
    """Make a log, or copy a broker's, and return its topic."""
    if shape.startswith("compact-"):
        for name in (f"{shape}-0", "meta.properties", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
            source = unit("clean-4.1.0") / "data" / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, path / name)
        return shape
    with pyreplog.open_log(path, topic="t", config=CONFIG, durability="os") as log:

        def put(keys: str, value: bytes | None) -> None:
            for key in keys:
                log.append(value, key=key.encode(), timestamp=BASE_MS + log.end_offset)

        match shape:
            case "head":
                put("ab" * 30 + "cde", b"v" * 30)
            case "end":
                put("z", b"v")
                for value in (b"v", None):
                    put("abcdefghij", value)
            case "nothing":
                for value in (b"v", None):
                    put("abc", value)
            case "batches":
                for number in range(12):
                    keys = [b"k%d" % (number * slot % 7) for slot in range(6)]
                    log.append_many([b"v" * 50] * 6, keys=keys)
        for _ in range(2):
            log.compact()
        if shape != "nothing":
            put("xyx", b"w")
    return "t"


@pytest.fixture(
    scope="module", params=[(shape, mode) for shape in SHAPES for mode in "ar" if mode == "r" or "-" not in shape]
)
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, dict[int, pyreplog.Record], Path]]:
    """A log, its records by offset, and a folder for places of readers."""
    shape, mode = request.param
    path = tmp_path_factory.mktemp("gaps")
    topic = make(path, shape)
    with pyreplog.open_log(path, mode, topic=topic) as log:
        yield log, {record.offset: record for record in log.read(log.start_offset)}, path


def test_reading_from_every_offset(opened: tuple[Any, dict[int, pyreplog.Record], Path]) -> None:
    """Ranges, lists, columns, following, the position and single records."""
    log, there, _ = opened
    start, end = log.start_offset, log.end_offset
    assert len(log) == end - start
    step = max(1, (end - start) // 25)
    for offset in (*range(start, end, step), end - 1, end):
        expected = [one for one in there.values() if one.offset >= offset]
        assert list(log.read(offset)) == expected
        assert [one for records in log.batches(offset) for one in records] == expected
        assert pa.table(log.scan(["offset"], start=offset))["offset"].to_pylist() == [one.offset for one in expected]
        assert list(log.follow(offset, timeout=0)) == expected
        assert log.seek(offset) == offset
        assert list(log) == expected
        assert log.position == end
        until = min(offset + 2 * step, end)
        part = [one for one in expected if one.offset < until]
        assert list(log.read(offset, until)) == part
        assert pa.table(log.scan(["offset"], start=offset, end=until)).num_rows == len(part)
        if offset in there:
            assert log[offset] == there[offset]
        elif offset < end:
            with pytest.raises(NoRecordError, match="it is a gap"):
                log[offset]
    for number, record in enumerate(reversed(there.values()), 1):
        assert log[-number] == record
    with pytest.raises(NoRecordError):
        log[-len(there) - 1]


def test_times_in_a_gap(opened: tuple[Any, dict[int, pyreplog.Record], Path]) -> None:
    """A look-up by time leads to the first record that is left and late enough. In a broker's log a
    marker of a transaction in front of it may be late enough too."""
    log, there, _ = opened
    times = {one.timestamp + more for one in there.values() for more in (-1, 0, 1)} | {0, BASE_MS, 1 << 50}
    for time in sorted(times)[:: max(1, len(times) // 40)]:
        late = next((one.offset for one in there.values() if one.timestamp >= time), None)
        place, late = log.seek(timestamp=time), log.end_offset if late is None else late
        assert place == late or (place < late and log.topic == "compact-txn")
        found = [one for one in there.values() if one.timestamp >= time]
        assert list(log.read(start_timestamp=time)) == found
        assert pa.table(log.scan(["offset"], start_timestamp=time)).num_rows == len(found)


def test_a_named_reader_whose_place_is_in_a_gap(opened: tuple[Any, dict[int, pyreplog.Record], Path]) -> None:
    """It may seek and commit there, goes on at the next record, and its lag counts offsets."""
    log, there, path = opened
    place = TopicPartition(log.topic, 0)
    step = max(1, len(log) // 10)
    for offset in (*range(log.start_offset, log.end_offset, step), log.end_offset):
        expected = [one.offset for one in there.values() if one.offset >= offset]
        with log.consumer("one", offsets=path / "places") as consumer:
            consumer.seek(place, offset)
            consumer.commit({place: offset})
        with log.consumer("one", offsets=path / "places") as consumer:
            assert consumer.committed(place) == offset
            assert consumer.lag() == {place: log.end_offset - offset}
            assert [record.offset for record in consumer.until_end()] == expected
            assert [record.offset for record in consumer.until_end()] == []
            consumer.commit()
        with log.consumer("one", offsets=path / "places") as consumer:
            assert [record.offset for record in consumer.until_end()] == []
            consumer.seek(place, offset)
            table = pa.table(consumer.poll_arrow(timeout=0))
            assert table["offset"].to_pylist() == expected[: table.num_rows]
            assert table.num_rows or not expected
            consumer.seek(place, offset)
            assert [record.offset for record in consumer.poll(count_max=3)] == expected[:3]
            consumer.seek(place, offset)
            consumer.commit({place: offset})


def test_a_queue_and_a_table(opened: tuple[Any, dict[int, pyreplog.Record], Path]) -> None:
    """The queue hands each record out once; the table has the newest value of each key."""
    log, there, path = opened
    with log.queue("work", offsets=path / "places") as queue:
        taken = []
        while (record := queue.receive(timeout=0)) is not None:
            taken.append(record.offset)
            queue.accept(record)
    assert taken == list(there)
    newest = {one.key: one.value for one in there.values()}
    with log.table(store=path / "table") as table:
        assert dict(table.items()) == {key: value for key, value in newest.items() if value is not None}
        assert table.offset == log.end_offset


def test_a_follower_beside_a_compacting_writer(tmp_path: Path) -> None:
    """In the middle of segments that are replaced, in a gap that grows, and at the end: it goes on, in order, and
    sees the newest record of each key."""
    with pyreplog.open_log(tmp_path, topic="t", config=CONFIG, durability="os") as log:
        for number in range(200):
            log.append(b"%d" % number, key=b"k%d" % (number % 8))
        with pyreplog.open_log(tmp_path, "r", topic="t") as reader:
            follower = reader.follow(0)
            seen = [next(follower).offset for _ in range(20)]
            for _ in range(4):
                log.compact()
                while seen[-1] < log.end_offset - 1:
                    seen.append(next(follower).offset)
                newest = {record.offset for record in log.read(0)}
                assert newest <= set(seen)
                for number in range(30):
                    log.append(b"%d" % number, key=b"k%d" % (number % 8))
                seen.append(next(follower).offset)
            assert seen == sorted(set(seen))
            assert reader.seek(100) == 100
            assert [record.offset for record in reader] == [record.offset for record in log.read(100)]
