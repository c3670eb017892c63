"""Bounds of timestamps in a log that is opened alone: what is outside is refused by the call that brings it, with
all of that call and nothing else."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import pyreplog
from pyreplog import aio
from pyreplog.config import LogConfig
from pyreplog.log import LogRoot
from pyreplog.record import crc32c
from pyreplog.testing import SimDisk
from pyreplog.timestamps import TIMESTAMP_MAX
from tests.unit.log.support import batch, write_times

NOW = 1_700_000_000_000
MANY = ["append_many", "append_many later", "append_arrow", "append_arrow later"]
BOUNDS = {"message.timestamp.before.max.ms": 1000, "message.timestamp.after.max.ms": 500}
BAD = pytest.mark.parametrize(("bad", "name"), [(NOW + 501, "after"), (NOW - 1001, "before")])


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = NOW

    def wall_ms(self) -> int:
        """What it was set to."""
        return self.now_ms

    def monotonic_ns(self) -> int:
        """The machine's."""
        return time.monotonic_ns()


def opened(settings: Mapping[str, object] | None = None, clock: Clock | None = None) -> pyreplog.Log:
    """A new log with bounds."""
    return pyreplog.open_log(
        "/log", disk=SimDisk(), clock=clock or Clock(), durability="os", config={**BOUNDS, **(settings or {})}
    )


def append(log: pyreplog.Log, way: str, values: list[bytes], timestamps: list[int]) -> object:
    """Append in one of :data:`MANY` ways."""
    wait: Any = not way.endswith(" later")
    if way.startswith("append_many"):
        return log.append_many(values, timestamps=timestamps, wait=wait)
    return log.append_arrow(pa.table({"value": values, "timestamp": timestamps}), wait=wait)


@BAD
@pytest.mark.parametrize("kind", [int, datetime])
def test_one_that_does_not_wait_is_refused_alone(bad: int, name: str, kind: type) -> None:
    """The call itself raises; what others gathered before and behind it is appended."""
    given = bad if kind is int else datetime.fromtimestamp(bad / 1000, UTC)
    calls: list[Callable[[pyreplog.Log], Any]] = [
        lambda log: log.append_nowait(b"bad", timestamp=given),
        lambda log: log.append(b"bad", timestamp=given, wait=False),
        lambda log: log.append(b"bad", timestamp=given),
    ]
    with opened() as log:
        acks = []
        for call in calls:
            acks += [log.append_nowait(b"other", timestamp=NOW + 500), log.append_nowait(b"other")]
            with pytest.raises(pyreplog.InvalidTimestampError, match=rf"{bad}.*message\.timestamp\.{name}\.max\.ms"):
                call(log)
            acks += [log.append_nowait(b"other", timestamp=NOW - 1000), log.append_nowait(b"other", timestamp=-1)]
        assert [ack.result().offset for ack in acks] == list(range(12))
        assert {record.value for record in log.read()} == {b"other"}


@BAD
@pytest.mark.parametrize("codec", ["producer", "zstd"])
@pytest.mark.parametrize("way", MANY)
def test_of_many_none_is_written(bad: int, name: str, codec: str, way: str) -> None:
    """One of them, in a later batch, is named by its number in the call; what was gathered by others is there."""
    random = Random(1)
    values = [random.randbytes(100) for _ in range(100)]
    for index in (0, 1, 50, 99):
        with opened({"max.message.bytes": 1000, "compression.type": codec}) as log:
            gathered = log.append_nowait(b"other")
            times = [NOW, NOW + 500, NOW - 1000, -1] * 25
            times[index] = bad
            with pytest.raises(
                pyreplog.InvalidTimestampError, match=rf"record {index} .*{bad}.*message\.timestamp\.{name}\.max\.ms"
            ):
                append(log, way, values, times)
            assert gathered.result().offset == 0
            assert log.end_offset == 1
            times[index] = NOW
            append(log, way, values, times)
            assert [(record.value, record.timestamp) for record in log.read(1)] == list(zip(values, times, strict=True))


def test_what_was_in_bounds_when_it_came_stays_so() -> None:
    """A record waits to be written for a moment: the clock goes on, or is put back, meanwhile, and nobody is
    refused for it."""
    clock = Clock()
    with opened(dict.fromkeys(BOUNDS, 0), clock) as log:
        acks = [log.append_nowait(b"a"), log.append_nowait(b"b", timestamp=NOW)]
        clock.now_ms += 10
        acks += [log.append_nowait(b"c"), log.append_nowait(b"d", timestamp=NOW + 10)]
        clock.now_ms -= 5
        with pytest.raises(pyreplog.InvalidTimestampError):
            log.append_nowait(b"bad", timestamp=NOW)
        assert [ack.result().offset for ack in acks] == [0, 1, 2, 3]
        assert [record.timestamp for record in log.read()] == [NOW, NOW, NOW + 10, NOW + 10]


@BAD
def test_in_a_coroutine(bad: int, name: str) -> None:
    """The await raises, on the short way and on the long one, and its neighbours are appended."""

    async def run() -> None:
        async with await aio.open_log("/log", disk=SimDisk(), clock=Clock(), durability="os", config=BOUNDS) as log:
            acks = [await log.append_nowait(b"other", timestamp=NOW)]
            for _ in range(2):
                with pytest.raises(pyreplog.InvalidTimestampError, match=name):
                    await log.append_nowait(b"bad", timestamp=bad)
                acks.append(await log.append_nowait(b"other"))
            assert [(await ack).offset for ack in acks] == [0, 1, 2]

    asyncio.run(run())


def test_what_is_no_time_is_told_as_ever() -> None:
    """A wrong type, a number below -1, one beyond 64 bits and one beyond the year 9999 are no matter of the log's
    bounds."""
    wrong: list[tuple[Any, type[Exception], str]] = [
        (True, TypeError, "not bool"),
        (1.5, TypeError, "int\\(1000"),
        ("now", TypeError, "not str"),
        (-2, pyreplog.ConfigError, "below -1"),
        (1 << 70, pyreplog.InvalidTimestampError, "beyond 9999-12-31"),
        (-(1 << 70), pyreplog.ConfigError, "64 bits"),
        (datetime.now(), pyreplog.ConfigError, "naive"),
    ]
    with opened() as log:
        for timestamp, error, text in wrong:
            for call in (log.append, log.append_nowait):
                with pytest.raises(error, match=text):
                    call(b"x", timestamp=timestamp)
            with pytest.raises(error, match=text):
                log.append_many([b"x"], timestamps=[timestamp])
        assert log.end_offset == 0


NOW_S = 1_764_255_865
FAR = [
    (NOW_S * 10**9, r"in nanoseconds \(ns\) it would be 2025-11-27, .* milliseconds \(ms\): divide it by 1,000,000$"),
    (NOW_S * 10**6, r"in microseconds \(us\) it would be 2025-11-27, .*: divide it by 1,000$"),
    (TIMESTAMP_MAX + 1, r"is beyond 9999-12-31; a timestamp counts milliseconds \(ms\) since 1970$"),
    (2**63 - 1, r"timestamp 9223372036854775807 is beyond"),
    (2**63, r"timestamp 9223372036854775808 is beyond"),
]


@pytest.mark.parametrize(("far", "text"), FAR)
def test_a_time_beyond_the_year_9999_is_refused_with_its_unit_guessed(far: int, text: str) -> None:
    """Every way to append and to send refuses it, nothing of the call is appended, and the last ms of 9999 is
    taken."""
    with opened(dict.fromkeys(BOUNDS, 2**63 - 1)) as log:
        calls: list[Callable[[int], Any]] = [
            lambda when: log.append(b"x", timestamp=when),
            lambda when: log.append(b"x", timestamp=when, wait=False),
            lambda when: log.append_nowait(b"x", timestamp=when),
            lambda when: log.append_many([b"w", b"x"], timestamps=[NOW, when]),
        ]
        if far < 2**63:
            calls.append(lambda when: log.append_arrow(pa.table({"value": [b"w", b"x"], "timestamp": [NOW, when]})))
        for call in calls:
            with pytest.raises(pyreplog.InvalidTimestampError, match=text):
                call(far)
        assert log.end_offset == 0
        for call in calls:
            call(TIMESTAMP_MAX)
        log.flush()
        assert {record.timestamp for record in log.read() if record.value == b"x"} == {TIMESTAMP_MAX}
        assert pa.table(log.scan()).to_pylist()[0]["timestamp"].year == 9999


def test_a_row_beyond_the_year_9999_is_named(tmp_path: Path) -> None:
    """Of a table in any unit that can hold such a time, and of a cluster's producer, which sends nothing of the
    call."""
    times = {"s": TIMESTAMP_MAX // 1000 + 1, "ms": TIMESTAMP_MAX + 1, "us": (TIMESTAMP_MAX + 1) * 1000}
    with opened(dict.fromkeys(BOUNDS, 2**63 - 1)) as log:
        for unit, far in times.items():
            table = pa.table({"value": [b"a", b"b"], "timestamp": pa.array([0, far], pa.timestamp(unit, "UTC"))})
            with pytest.raises(
                pyreplog.InvalidTimestampError, match=f"row 1: timestamp {TIMESTAMP_MAX + 1} is beyond 9999-12-31"
            ):
                log.append_arrow(table)
        assert log.end_offset == 0
    with pyreplog.Cluster(tmp_path, nodes=1) as cluster:
        cluster.admin.create_topic("t")
        with cluster.producer() as producer:
            for send in (
                lambda: producer.send("t", b"x", timestamp=10**18),
                lambda: producer.send_many("t", [b"w", b"x"], timestamps=[0, 10**18]),
            ):
                with pytest.raises(pyreplog.InvalidTimestampError, match=r"in nanoseconds"):
                    send()
        assert pa.table(cluster.scan("t")).num_rows == 0


def test_a_time_beyond_the_year_9999_in_a_brokers_folder_is_read(tmp_path: Path) -> None:
    """A broker takes any: what is there is read, and not hidden."""
    write_times(tmp_path / "far", "far", [7, 10**18, 2**63 - 1])
    with pyreplog.open_log(tmp_path / "far", "r") as log:
        assert [record.timestamp for record in log.read()] == [7, 10**18, 2**63 - 1]


def test_the_logs_own_time_has_no_bounds() -> None:
    """With LogAppendTime any time goes that a record may have."""
    with opened({"message.timestamp.type": "LogAppendTime"}) as log:
        log.append_nowait(b"a", timestamp=5)
        log.append_many([b"b"], timestamps=[TIMESTAMP_MAX])
        assert [record.timestamp for record in log.read()] == [NOW, NOW]


def test_a_time_before_1970_is_a_time() -> None:
    """Nothing here writes one; in another's log ``read`` and ``scan`` find the same records by it, and a record
    without one by none."""
    disk = SimDisk()
    root = LogRoot.open(disk, "/log", clock=Clock(), random=Random(1))
    log = root.create_log("log", 0, root.new_topic_id(), LogConfig())
    early = bytearray(batch(1, leader_epoch=0))
    early[27:43] = struct.pack(">qq", -1000, -1000)
    early[17:21] = struct.pack(">I", crc32c(early[21:]))
    log.append_as_follower(
        [early, *(batch(1, base_offset=at, timestamp=when, leader_epoch=0) for at, when in ((1, -1), (2, 5)))]
    )
    log.advance_high_watermark(3)
    root.close()
    with pyreplog.open_log("/log", "r", disk=disk) as reader:
        cases: list[tuple[dict[str, Any], list[int]]] = [
            ({"start_timestamp": -1000}, [0, 2]),
            ({"end_timestamp": 5}, [0]),
            ({"start_timestamp": 0}, [2]),
        ]
        for bounds, wanted in cases:
            assert [record.offset for record in reader.read(**bounds)] == wanted
            assert pa.table(reader.scan(**bounds))["offset"].to_pylist() == wanted
