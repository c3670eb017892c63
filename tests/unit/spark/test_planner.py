"""Plans: every offset asked for is in exactly one task, tasks keep their limits, and what is not there is said. No
Spark needed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import (
    ConfigError,
    DataLossError,
    LogTruncatedError,
    RecordsDeletedError,
    TopicRecreatedError,
    UnknownTopicError,
)
from pyreplog.spark.offsets import Bound
from pyreplog.spark.options import ReadOptions
from pyreplog.spark.planner import Available, OffsetRange, plan, remaining, resolve, select
from pyreplog.values import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
INTERNAL = TopicPartition("__consumer_offsets", 0)
BYTES_PER_OFFSET = 10


def cut(whole: OffsetRange, size: int) -> Sequence[int]:
    """Index entries at every tenth offset, records of ten bytes."""
    step = max(10, size // BYTES_PER_OFFSET // 10 * 10)
    return range(whole.start // 10 * 10 + step, whole.end, step)


def size_of(whole: OffsetRange) -> int:
    """Records of ten bytes."""
    return (whole.end - whole.start) * BYTES_PER_OFFSET


ranges = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 500)), max_size=8).map(
    lambda edges: [OffsetRange("t", number, start, start + length) for number, (start, length) in enumerate(edges)]
)


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300), st.integers(1, 6000))
def test_every_offset_is_in_one_task(
    whole: list[OffsetRange], least: int | None, records: int | None, size: int
) -> None:
    """Tasks cover the ranges once and in order, with at most so many records each and at least so many tasks where
    there is enough."""
    options = ReadOptions("/d", min_partitions=least, max_records_per_partition=records, max_bytes_per_partition=size)
    tasks = plan(options, whole, cut, size_of)
    covered = [(part.partition, offset) for task in tasks for part in task for offset in range(part.start, part.end)]
    assert covered == [(part.partition, offset) for part in whole for offset in range(part.start, part.end)]
    assert all(part.start < part.end for task in tasks for part in task)
    if records is not None:
        assert all(sum(part.end - part.start for part in task) <= records for task in tasks)
    if least is not None:
        assert len(tasks) >= min(least, len(covered))


@given(ranges, st.integers(1600, 6000))
def test_tasks_keep_their_size(whole: list[OffsetRange], size: int) -> None:
    """No task is much larger than asked, and no range is cut that fits."""
    for task in plan(ReadOptions("/d", max_bytes_per_partition=size), whole, cut, size_of):
        total = sum(part.end - part.start for part in task) * BYTES_PER_OFFSET
        assert total <= size + 100  # as exact as the index
    assert len(plan(ReadOptions("/d"), whole, cut, size_of)) <= len(whole)


def test_small_ranges_share_a_task() -> None:
    """Many tiny partitions make few tasks; large ones are cut evenly."""
    tiny = [OffsetRange("t", number, 0, 1) for number in range(10_000)]
    tasks = plan(ReadOptions("/d"), tiny, cut, size_of)
    assert len(tasks) == 79  # each counts as what opening it costs, against a quarter of 128 MiB
    assert [part for task in tasks for part in task] == tiny
    assert [len(task) for task in plan(ReadOptions("/d", min_partitions=100), tiny, cut, size_of)] == [100] * 100
    half = 20 << 20
    heavy = plan(ReadOptions("/d"), tiny[:4], cut, lambda whole: half)
    assert [len(task) for task in heavy] == [1, 1, 1, 1]
    large = OffsetRange("t", 0, 0, 1000)
    tasks = plan(ReadOptions("/d", max_bytes_per_partition=1600), [large], cut, size_of)
    assert [task[0].end - task[0].start for task in tasks] == pytest.approx([1000 / len(tasks)] * len(tasks), abs=30)


def resolved(options: ReadOptions, there: dict[TopicPartition, Available]) -> list[tuple[int, int, int]]:
    """(partition, start, end) of each range; a record's timestamp is its offset times ten."""

    def find(partition: TopicPartition, timestamp: int) -> int | None:
        available = there[partition]
        offset = max(available.start, -(-timestamp // 10))
        return offset if offset < available.end else None

    return [(part.partition, part.start, part.end) for part in resolve(options, there, find, lambda text: None)]


THERE = {A0: Available(5, 20), A1: Available(0, 10)}


@pytest.mark.parametrize(
    ("starting", "ending", "wanted"),
    [
        (Bound("earliest"), Bound("latest"), [(0, 5, 20), (1, 0, 10)]),
        (Bound("offsets", "s", {A0: 7, A1: -2}), Bound("offsets", "e", {A0: -1, A1: 4}), [(0, 7, 20), (1, 0, 4)]),
        (Bound("offsets", "s", {A0: 20, A1: 3}), Bound("latest"), [(1, 3, 10)]),
        (Bound("timestamp", "s", timestamp=62), Bound("latest"), [(0, 7, 20), (1, 7, 10)]),
        (Bound("timestamps", "s", {A0: 0, A1: 90}), Bound("timestamp", "e", timestamp=1000), [(0, 5, 20), (1, 9, 10)]),
        (Bound("earliest"), Bound("timestamps", "e", {A0: 100, A1: 20}), [(0, 5, 10), (1, 0, 2)]),
    ],
)
def test_bounds_become_ranges(starting: Bound, ending: Bound, wanted: list[tuple[int, int, int]]) -> None:
    """Offsets, -1 and -2, one time or times, as in Kafka's source; an ending time that nothing reaches is the
    end."""
    assert resolved(ReadOptions("/d", starting=starting, ending=ending), THERE) == wanted


def test_a_starting_time_that_nothing_reaches() -> None:
    """It is an error, or by the strategy ``latest`` nothing."""
    options = ReadOptions("/d", starting=Bound("timestamp", "startingTimestamp", timestamp=150))
    with pytest.raises(ConfigError, match=r"startingTimestamp 150: a-1 has no record at or after it"):
        resolved(options, THERE)
    assert resolved(dataclasses.replace(options, starting_strategy="latest"), THERE) == [(0, 15, 20)]


@pytest.mark.parametrize(
    ("starting", "ending"),
    [
        (Bound("offsets", "startingOffsets", {A0: 3, A1: 0}), Bound("latest")),
        (Bound("earliest"), Bound("offsets", "endingOffsets", {A0: 25, A1: 5})),
        (Bound("offsets", "startingOffsets", {A0: 30, A1: 0}), Bound("offsets", "endingOffsets", {A0: 40, A1: 5})),
        (Bound("offsets", "startingOffsets", {A0: 30, A1: 0}), Bound("latest")),
        (Bound("offsets", "startingOffsets", {A0: 30, A1: 0}), Bound("timestamp", "endingTimestamp", timestamp=100)),
    ],
)
def test_what_is_not_there_is_a_loss(starting: Bound, ending: Bound) -> None:
    """Offsets below the log's start or beyond its end are a DataLossError that names both, or are left out."""
    options = ReadOptions("/d", starting=starting, ending=ending)
    with pytest.raises(DataLossError, match=r"of a-0 were asked for, but offsets 5 up to 20 are there"):
        resolved(options, THERE)
    for partition, start, end in resolved(dataclasses.replace(options, fail_on_data_loss=False), THERE):
        available = THERE[TopicPartition("a", partition)]
        assert available.start <= start < end <= available.end


@pytest.mark.parametrize(
    ("starting", "ending", "wanted"),
    [
        (Bound("timestamp", "s", timestamp=150), Bound("offsets", "e", {A0: 18, A1: 9}), [(0, 15, 18)]),
        (Bound("timestamp", "s", timestamp=70), Bound("offsets", "e", {A0: 6, A1: 9}), [(1, 7, 9)]),
        (Bound("offsets", "s", {A0: 12, A1: 3}), Bound("timestamp", "e", timestamp=80), [(1, 3, 8)]),
        (Bound("earliest"), Bound("offsets", "e", {A0: 4, A1: 9}), [(1, 0, 9)]),
    ],
)
def test_a_partition_whose_times_lie_beyond_its_offsets_has_nothing(
    starting: Bound, ending: Bound, wanted: list[tuple[int, int, int]]
) -> None:
    """As in Kafka's source: where an offset and a time bound a read, partitions may lie anyhow to them, and the
    others are read."""
    assert resolved(ReadOptions("/d", starting=starting, ending=ending, starting_strategy="latest"), THERE) == wanted


def test_contradictions_are_refused() -> None:
    """A start behind the end, of offsets or of times; JSON that leaves out a partition or names another."""
    times = ReadOptions(
        "/d", starting=Bound("timestamp", "s", timestamp=150), ending=Bound("timestamps", "e", {A0: 160, A1: 149})
    )
    with pytest.raises(ConfigError, match="s 150 lies behind e 149 for a-1"):
        resolved(dataclasses.replace(times, starting_strategy="latest"), THERE)
    backwards = ReadOptions(
        "/d", starting=Bound("offsets", "startingOffsets", {A0: 9}), ending=Bound("offsets", "endingOffsets", {A0: 7})
    )
    with pytest.raises(ConfigError, match="startingOffsets 9 lies behind endingOffsets 7 for a-0"):
        resolved(backwards, {A0: Available(5, 20)})
    with pytest.raises(ConfigError, match="startingOffsets leaves out a-1"):
        resolved(ReadOptions("/d", starting=Bound("offsets", "startingOffsets", {A0: 5})), THERE)
    with pytest.raises(ConfigError, match="names b-0, which this load does not read"):
        resolved(ReadOptions("/d", starting=Bound("offsets", "startingOffsets", {A0: 5, A1: 0, B0: 0})), THERE)


def test_topics_are_chosen() -> None:
    """By name, list, pattern, assignment; the only topic there is without any of them, internal ones aside."""
    there = [B0, A1, INTERNAL, A0]
    assert select(ReadOptions("/d", topics=("a",)), there) == [A0, A1]
    assert select(ReadOptions("/d", topics=("b", "a")), there) == [A0, A1, B0]
    assert select(ReadOptions("/d", pattern="[ab]"), there) == [A0, A1, B0]
    inside = [TopicPartition("my-orders", 0), TopicPartition("orders", 0), TopicPartition("other", 0)]
    assert (
        select(ReadOptions("/d", pattern="ord"), inside) == inside[:2]
    )  # found anywhere in a name, as Spark's Kafka source has it
    assert select(ReadOptions("/d", pattern="^ord"), inside) == inside[1:2]
    assert select(ReadOptions("/d", pattern=".*"), there) == [A0, A1, B0]
    with pytest.raises(UnknownTopicError, match="matches no topic"):
        select(ReadOptions("/d", pattern="__.*"), there)
    assert select(ReadOptions("/d", assigned=(A1,)), there) == [A1]
    assert select(ReadOptions("/d", topics=("a", "b"), partitions=frozenset([0])), there) == [A0, B0]
    assert select(ReadOptions("/d"), [A1, A0, INTERNAL]) == [A0, A1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (ReadOptions("/d", topics=("aa",)), "no topic 'aa' in /d, which holds a, b; did you mean 'a'"),
        (ReadOptions("/d", pattern="x.*"), "matches no topic in /d"),
        (ReadOptions("/d", assigned=(TopicPartition("a", 7),)), "no partition a-7 in /d"),
        (ReadOptions("/d", topics=("a",), partitions=frozenset([1, 5])), "asks for partition 5, which a does not have"),
    ],
)
def test_topics_that_are_not_there(options: ReadOptions, text: str) -> None:
    """The error names what is there."""
    with pytest.raises(UnknownTopicError, match=text):
        select(options, [A0, A1, B0, INTERNAL])


def test_several_topics_need_a_name() -> None:
    """Where there are several topics or none, the error says so."""
    with pytest.raises(ConfigError, match="name the topic by option 'topic' in /d, which holds a, b"):
        select(ReadOptions("/d"), [A0, B0])
    with pytest.raises(ConfigError, match="there is no topic in /d"):
        select(ReadOptions("/d"), [INTERNAL])


def test_what_remains_of_a_planned_range() -> None:
    """All of it, what retention left, nothing of a partition that is gone or of a topic made anew."""
    wanted = OffsetRange("a", 0, 5, 10, "id")
    assert remaining(wanted, Available(0, 20, "id")) == (wanted, None)
    kept, lost = remaining(wanted, Available(7, 20, "id"))
    assert kept == OffsetRange("a", 0, 7, 10, "id")
    assert isinstance(lost, RecordsDeletedError)
    assert (
        lost.what
        == "offsets 5 up to 10 of a-0 were planned, but now offsets 7 up to 20 are there: the older ones were deleted"
    )
    kept, lost = remaining(wanted, Available(0, 8, "id"))
    assert kept == OffsetRange("a", 0, 5, 8, "id")
    assert isinstance(lost, LogTruncatedError)
    assert (
        lost.what == "offsets 5 up to 10 of a-0 were planned, but now offsets 0 up to 8 are there: the log ends before"
    )
    cases: list[tuple[Available | None, type[DataLossError], str]] = [
        (None, RecordsDeletedError, "now the partition is gone"),
        (Available(0, 20, "other"), TopicRecreatedError, r"created again \(its id was id, it is other\)"),
        (Available(10, 20, "id"), RecordsDeletedError, "now offsets 10"),
        (Available(0, 5, "id"), LogTruncatedError, "now offsets 0 up to 5"),
    ]
    for found, kind, text in cases:
        kept, lost = remaining(wanted, found)
        assert kept is None
        assert type(lost) is kind
        assert re.search(text, lost.what)
    assert remaining(wanted, Available(0, 20, "")) == (wanted, None)  # a folder that does not say which topic it is
