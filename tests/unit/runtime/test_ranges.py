"""``read`` and ``scan`` take the same ranges, and refuse the same ones with the same errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import polars
import pytest

import pyreplog
from pyreplog import aio
from pyreplog.record import BatchBuilder
from pyreplog.runtime.views import records
from pyreplog.testing import SimDisk


@pytest.fixture
def log(tmp_path: Path) -> Iterator[pyreplog.Log]:
    """Offsets 2 to 9 are there, each with its offset times 10 as its timestamp."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        log.append_many([b"v"] * 10, timestamps=[10 * number for number in range(10)])
        log.delete_records(2)
        yield log


@pytest.mark.parametrize(
    ("range_", "kind", "words"),
    [
        ({"start": 5, "end": 2}, pyreplog.ConfigError, "start 5 lies behind end 2"),
        ({"start": 11, "end": 3}, pyreplog.ConfigError, "start 11 lies behind end 3"),
        ({"start": -1}, pyreplog.OffsetOutOfRangeError, "offset -1 is outside the log .*, which holds offsets 2 up to"),
        ({"end": -1}, pyreplog.OffsetOutOfRangeError, "offset -1 is outside"),
        ({"start": 3, "end": -1}, pyreplog.OffsetOutOfRangeError, "offset -1 is outside"),
        ({"start": 1}, pyreplog.OffsetOutOfRangeError, "offset 1 is outside"),
        ({"start": 11}, pyreplog.OffsetOutOfRangeError, "offset 11 is outside"),
        ({"start": 2**70}, pyreplog.OffsetOutOfRangeError, "outside"),
        ({"start": "1"}, pyreplog.ConfigError, "start is '1'; it must be a whole number"),
        ({"end": 1.5}, pyreplog.ConfigError, r"end is 1\.5; it must be a whole number"),
        ({"start": True}, pyreplog.ConfigError, "start is True; it must be a whole number"),
        (
            {"start_timestamp": 5, "end_timestamp": 4},
            pyreplog.ConfigError,
            "start_timestamp 5 lies behind end_timestamp 4",
        ),
        ({"start_timestamp": "x"}, pyreplog.ConfigError, "start_timestamp is 'x'"),
    ],
    ids=str,
)
def test_ranges_that_are_none(log: pyreplog.Log, range_: dict[str, Any], kind: type[Exception], words: str) -> None:
    """Refused at once by both, with one error."""
    texts = []
    for use in (log.read, log.scan):
        with pytest.raises(kind, match=words) as refused:
            use(**range_)
        texts.append(str(refused.value))
    assert texts[0] == texts[1]
    path = log.path
    log.close()

    async def main() -> None:
        async with aio.open_log(path) as again:
            with pytest.raises(kind, match=words):
                await anext(again.read(**range_))
            with pytest.raises(kind, match=words):
                await again.scan(**range_)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("range_", "offsets"),
    [
        ({}, [2, 3, 4, 5, 6, 7, 8, 9]),
        ({"start": 10}, []),
        ({"start": 4, "end": 4}, []),
        ({"start": 8, "end": 100}, [8, 9]),
        ({"end": 1}, []),
        ({"end": 2**70, "start": 9}, [9]),
        ({"start": numpy.int64(7), "end": numpy.int32(9)}, [7, 8]),
        ({"start_timestamp": numpy.int64(70), "end_timestamp": numpy.int64(85)}, [7, 8]),
        ({"start_timestamp": 30, "end_timestamp": 30}, []),
    ],
    ids=str,
)
def test_ranges_that_are_some(log: pyreplog.Log, range_: dict[str, Any], offsets: list[int]) -> None:
    """Both give the same records."""
    assert [record.offset for record in log.read(**range_)] == offsets
    assert polars.DataFrame(log.scan(["offset"], **range_))["offset"].to_list() == offsets


def test_a_start_counts_in_each_partition(tmp_path: Path) -> None:
    """One that has not so many records has no rows; beyond all of them there are none. What was deleted from one is
    an error still."""
    with pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster:
        cluster.admin.create_topic("events", partitions=3, config={"durability": "os"})
        with cluster.producer() as producer:
            for partition, count in ((0, 2), (1, 5)):
                producer.send_many("events", [b"v"] * count, partition=partition, timestamps=list(range(count))).wait(
                    20
                )

        def found(**range_: Any) -> list[tuple[int, int]]:
            table = polars.DataFrame(cluster.scan("events", columns=["partition", "offset"], **range_))
            return list(zip(table["partition"], table["offset"], strict=True))

        assert found(start=3) == [(1, 3), (1, 4)]
        assert found(start=2, end=4) == [(1, 2), (1, 3)]
        assert found(start=1, start_timestamp=1) == [(0, 1), (1, 1), (1, 2), (1, 3), (1, 4)]
        for start in (5, 6, 2**70):
            assert found(start=start) == []
            assert found(start=start, start_timestamp=0) == []
        empty = polars.DataFrame(cluster.scan("events", start=100))
        assert empty.columns == ["partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
        cluster.admin.delete_records("events", {1: 2})
        assert found(start=2) == [(1, 2), (1, 3), (1, 4)]
        with pytest.raises(pyreplog.OffsetOutOfRangeError, match="offset 1 is outside partition 1 of topic 'events'"):
            cluster.scan("events", start=1)
        for wrong in ({"start": -1}, {"end": -1}):
            with pytest.raises(pyreplog.OffsetOutOfRangeError, match="offset -1 is outside partition 0"):
                found(**wrong)

    async def main() -> None:
        async with aio.Cluster(tmp_path / "data", nodes=1) as again:
            assert polars.DataFrame(await again.scan("events", start=4)).height == 1

    asyncio.run(main())


def test_no_record_before_the_start() -> None:
    """However early the time is that is asked for, too."""
    with pyreplog.open_log("/log", disk=SimDisk(), durability="os") as log:
        log.append_many([b"%d" % number for number in range(10)], timestamps=list(range(10)))
        log.append_many([b"%d" % number for number in range(10, 20)], timestamps=list(range(10, 20)))
        assert [record.offset for record in log.read(5, 12, start_timestamp=2)] == list(range(5, 12))
        assert [record.offset for record in log.read(12, start_timestamp=2, end_timestamp=15)] == [12, 13, 14]
        log.delete_records(7)
        assert log.seek(timestamp=0) == 7


def test_behind_what_holds_no_record() -> None:
    """Who read all stands at the end, though the last offsets are marks; a view with nothing to give ends."""
    builder = BatchBuilder()
    builder.append(b"\0\0\0\0", b"\0\0\0\2", (), 1)
    with pyreplog.open_log("/log", disk=SimDisk(), durability="os") as log:
        assert log._writer is not None
        log.append(b"x")
        log._writer.append_batch(builder.finish(control=True))
        assert [record.value for record in log] == [b"x"]
        assert log.position == log.end_offset == 2


def test_what_retention_takes_is_not_waited_for() -> None:
    """The position is not below the first record that is left."""
    with pyreplog.open_log("/log", disk=SimDisk(), config={"segment.bytes": 16384, "retention.bytes": 32768}) as log:
        assert log._writer is not None
        log._writer._background.stop()
        for _ in range(20):
            log.append(bytes(10_000))
        assert log.position == 0
        assert log.apply_retention() > 0
        assert log.position == log.start_offset > 0


def test_a_view_that_gives_nothing_ends() -> None:
    """Below its end, even: who reads does not try for ever."""

    class Empty:
        is_checked = True
        topic, partition = "events", 0
        reads = 0

        def read(self, offset: int, size_max: int) -> bytes:
            self.reads += 1
            assert self.reads < 100
            return b""

    view: Any = Empty()
    assert list(records(view, 0, 5)) == []
    assert view.reads == 1
