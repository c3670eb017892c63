"""What a stream reader answers Spark, call by call, on real files: where a query begins, how far a micro-batch
goes, what is lost. No session needed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyreplog
from pyreplog.errors import (
    ConfigError,
    DataLossError,
    LogTruncatedError,
    RecordsDeletedError,
    TopicRecreatedError,
    UnknownTopicError,
)
from pyreplog.spark import lag
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.progress import StreamProgress, limit_bytes, limit_offsets
from pyreplog.spark.schema import COLUMNS, Field
from pyreplog.spark.stream import ReplogStreamReader
from pyreplog.values import TopicPartition

limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark before 4.2 has no limits per trigger")

FIELDS = [Field(column.name, column.type, True) for column in COLUMNS if column.default]


class Time:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move it, and let happen what somebody waits for."""
        self.now += seconds
        self.meanwhile()

    def meanwhile(self) -> None:
        """What happens while somebody sleeps."""


def stream(path: Path, time: Time | None = None, **options: object) -> ReplogStreamReader:
    """A reader of ``path``, as Spark makes one for each start of a query."""
    given = {"path": str(path)} | {
        name.lower(): value if isinstance(value, str) else json.dumps(value) for name, value in options.items()
    }
    time = time or Time()
    return ReplogStreamReader(parse_read_options(given, streaming=True), FIELDS, monotonic=time, sleep=time.sleep)


def append(root: Path, count: int, partition: int = 0, size: int = 1) -> None:
    """So many more records of topic t, each its own batch."""
    with pyreplog.open_log(root, topic="t", partition=partition, durability="os") as log:
        for _ in range(count):
            log.append(bytes(size))


def ends(offset: dict[str, Any]) -> dict[str, int]:
    """The offsets of topic t."""
    found: dict[str, int] = offset["t"].get("t", {})
    return found


def step(reader: ReplogStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """The next end, by the reader's own limit, as Spark asks for it: everything goes through JSON."""
    made: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
    return made


def rows(reader: ReplogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    """(partition, offset) of a micro-batch."""
    found: list[tuple[int, int]] = []
    for task in reader.partitions(start, end):
        for batch in reader.read(task):
            assert isinstance(batch, pa.RecordBatch)
            found += zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    return sorted(found)


def span(*ranges: tuple[int, int, int]) -> list[tuple[int, int]]:
    """(partition, offset) of the half-open ranges."""
    return [(partition, offset) for partition, start, end in ranges for offset in range(start, end)]


partitions = st.builds(TopicPartition, st.sampled_from(["a", "b-1", "ä"]), st.integers(0, 12))
offsets = st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=20)


@given(offsets, offsets, st.sampled_from(["", "one", "two"]), st.randoms())
def test_progress_is_canonical(
    ends: dict[TopicPartition, int], starts: dict[TopicPartition, int], kind: str, random: Any
) -> None:
    """It survives JSON, and the same progress is the same text in whatever order it came together."""
    ids = {partition: random.choice("xy") for partition in ends if kind == "two" and random.random() > 0.2}
    if kind == "one":
        ids = dict.fromkeys(ends, "x")
    made = StreamProgress(ends, starts, ids)
    text = json.dumps(made.to_json())
    assert StreamProgress.from_json(json.loads(text)) == made
    shuffled = list(ends)
    random.shuffle(shuffled)
    again = StreamProgress(
        {partition: ends[partition] for partition in shuffled},
        dict(reversed(starts.items())),
        dict(reversed(ids.items())),
    )
    assert json.dumps(again.to_json()) == text
    assert json.dumps(StreamProgress.from_json(json.loads(text)).to_json()) == text


@pytest.mark.parametrize("value", [{}, {"v": 2, "t": {}}, {"t": {"0": 5}}, [1], {"orders": {"0": 5}}])
def test_other_offsets_are_refused(value: object) -> None:
    """A checkpoint of Spark's Kafka source, or of a later version, is said to be one."""
    with pytest.raises(ConfigError, match="which is not one of replog's"):
        StreamProgress.from_json(value)


spans = st.dictionaries(partitions, st.tuples(st.integers(0, 50), st.integers(0, 1000)), min_size=1, max_size=8)


@given(spans, st.integers(1, 500))
def test_limits_are_shared(made: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    """Nothing beyond the end, at least one offset for each partition that has any, and about the limit
    altogether."""
    starts = {partition: start for partition, (start, _) in made.items()}
    until = {partition: start + count for partition, (start, count) in made.items()}
    for limited in (
        limit_offsets(starts, until, limit),
        limit_bytes(
            starts, until, limit, lambda _, start, end: end - start, lambda _, start, end, size: min(end, start + size)
        ),
    ):
        assert limited.keys() == until.keys()
        for partition in until:
            assert starts[partition] <= limited[partition] <= until[partition]
            assert (limited[partition] > starts[partition]) == (until[partition] > starts[partition])
        total = sum(limited.values()) - sum(starts.values())
        assert total <= max(limit, sum(until[partition] > starts[partition] for partition in until)) + len(until)
        assert total >= min(limit, sum(until.values()) - sum(starts.values())) - len(until)


def test_a_query_from_the_start(tmp_path: Path) -> None:
    """Micro-batches follow one another without gap or overlap, and what is empty is the offset that was given."""
    append(tmp_path, 10)
    reader = stream(tmp_path, startingOffsets="earliest")
    first = reader.initialOffset()
    assert first == reader.initialOffset()
    assert ends(first) == {"0": 0}
    one = step(reader, first)
    assert rows(reader, first, one) == span((0, 0, 10))
    assert step(reader, one) == one
    assert reader.partitions(one, one) == []
    append(tmp_path, 5)
    two = step(reader, one)
    assert "from" not in two
    assert rows(reader, one, two) == span((0, 10, 15))
    assert json.dumps(step(reader, two)) == json.dumps(two)
    assert reader.reportLatestOffset() == {"v": 1, "t": {"t": {"0": 15}}}
    reader.stop()


def test_latest_is_pinned_by_the_first_offset(tmp_path: Path) -> None:
    """A query from the latest offset that dies in its first micro-batch goes on where it began, whatever came
    meanwhile; also when there was nothing yet, as Spark keeps nothing but the ends of micro-batches."""
    append(tmp_path, 10)
    reader = stream(tmp_path)
    first = reader.initialOffset()
    assert ends(first) == {"0": 10}
    pinned = step(reader, first)
    assert pinned != first
    assert rows(reader, first, pinned) == []
    assert step(reader, pinned) == pinned
    append(tmp_path, 7)
    end = step(reader, first)
    assert rows(reader, first, end) == span((0, 10, 17))
    append(tmp_path, 3)
    after = stream(tmp_path)
    later = after.initialOffset()
    assert ends(later) == {"0": 20}
    assert rows(after, later, end) == span((0, 10, 17))
    assert rows(after, end, step(after, end)) == span((0, 17, 20))


def test_a_query_that_begins_before_its_topics(tmp_path: Path) -> None:
    """Where a pattern matches nothing yet, that is noted down, too: what comes is new to the query, also after a
    restart."""
    pyreplog.open_log(tmp_path, topic="other", durability="os").close()
    reader = stream(tmp_path, subscribePattern="^t")
    first = reader.initialOffset()
    assert reader.reportLatestOffset() == {"v": 1, "t": {}}  # so `lag` knows whose it is
    one = step(reader, first)
    assert one != first  # so Spark keeps it
    assert step(reader, one) == one
    assert rows(reader, first, one) == []
    append(tmp_path, 3)
    again = stream(tmp_path, subscribePattern="^t")
    two = step(again, one)
    assert rows(again, one, two) == rows(reader, one, step(reader, one)) == span((0, 0, 3))
    assert step(again, two) == two


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_partition_that_appears_before_the_first_micro_batch_is_done(starting: str, tmp_path: Path) -> None:
    """Spark runs that one again from what is there by then: the new partition is no loss, and is read by the next
    one, whole."""
    append(tmp_path, 3)
    reader = stream(tmp_path, startingOffsets=starting)
    first = reader.initialOffset()
    append(tmp_path, 2)
    one = step(reader, first)
    again = stream(tmp_path, startingOffsets=starting)
    append(tmp_path, 4, partition=1)
    assert rows(again, again.initialOffset(), one) == rows(reader, first, one)
    assert rows(again, one, step(again, one)) == span((1, 0, 4))


def test_where_a_query_begins(tmp_path: Path) -> None:
    """By offset, -1 and -2, and by time; offsets that are not there are a loss."""
    with pyreplog.open_log(tmp_path, topic="t", durability="os") as log:
        log.append_many([b"x"] * 10, timestamps=[1000 * number for number in range(10)])
    for options, start in (
        ({"startingOffsets": {"t": {"0": 4}}}, 4),
        ({"startingOffsets": {"t": {"0": -1}}}, 10),
        ({"startingOffsets": {"t": {"0": -2}}}, 0),
        ({"startingTimestamp": "3500"}, 4),
        ({"startingOffsetsByTimestamp": {"t": {"0": 9000}}}, 9),
        ({"startingTimestamp": "99999", "startingOffsetsByTimestampStrategy": "latest"}, 10),
    ):
        assert ends(stream(tmp_path, None, **options).initialOffset()) == {"0": start}, options
    with pytest.raises(
        LogTruncatedError,
        match="offsets 11 up to 11 of t-0 were asked for as the start, but offsets 0 up to 10 are there",
    ):
        stream(tmp_path, startingOffsets={"t": {"0": 11}}).initialOffset()
    assert ends(stream(tmp_path, startingOffsets={"t": {"0": 11}}, failOnDataLoss="false").initialOffset()) == {"0": 10}
    with pytest.raises(ConfigError, match="endingOffsets is for batch reads"):
        stream(tmp_path, endingOffsets="latest")


def test_partitions_that_appear(tmp_path: Path) -> None:
    """A new partition is read from its first record on, also when the micro-batch is repeated after the log was cut
    at its start."""
    append(tmp_path, 3)
    reader = stream(tmp_path, topic="t")
    first = reader.initialOffset()
    one = step(reader, first)
    append(tmp_path, 4, partition=1)
    two = step(reader, one)
    assert two["from"] == {"t": {"1": 0}}
    assert rows(reader, one, two) == span((1, 0, 4))
    append(tmp_path, 1)
    assert rows(reader, two, step(reader, two)) == span((0, 3, 4))


def test_the_only_topic_stays_the_one(tmp_path: Path) -> None:
    """A query that names no topic goes on with the one it has when another appears; a pattern takes it in, and may
    begin with none."""
    reader, by_pattern = stream(tmp_path), stream(tmp_path, subscribePattern="t|other", startingOffsets="earliest")
    empty = by_pattern.initialOffset()
    assert empty["t"] == {}
    with pytest.raises(ConfigError, match="there is no topic"):
        reader.initialOffset()
    append(tmp_path, 3)
    first = reader.initialOffset()
    with pyreplog.open_log(tmp_path, topic="other", durability="os") as log:
        log.append(b"x")
    assert step(reader, first)["t"] == {"t": {"0": 3}}
    assert step(by_pattern, empty)["t"] == {"other": {"0": 1}, "t": {"0": 3}}
    with pytest.raises(UnknownTopicError, match="no topic 'x'"):
        stream(tmp_path, topic="x").initialOffset()


def run(reader: ReplogStreamReader, start: dict[str, Any]) -> list[list[tuple[int, int]]]:
    """Micro-batches until there is nothing new."""
    batches = []
    while (end := step(reader, start)) != start:
        batches.append(rows(reader, start, end))
        start = end
    return batches


def test_limits_by_offsets(tmp_path: Path) -> None:
    """maxOffsetsPerTrigger is shared in proportion; everything comes once; a trigger that takes all takes all."""
    append(tmp_path, 90)
    append(tmp_path, 10, partition=1)
    reader = stream(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    first = reader.initialOffset()
    batches = run(reader, first)
    assert [len(batch) for batch in batches] == [20] * 5
    assert batches[0] == span((0, 0, 18), (1, 0, 2))
    assert sorted(row for batch in batches for row in batch) == span((0, 0, 90), (1, 0, 10))
    assert ends(reader.latestOffset(first, limits.ReadAllAvailable())) == {"0": 90, "1": 10}


def test_a_known_gap_is_passed_in_one_step(tmp_path: Path) -> None:
    """Limits count what is there: a stream that fell behind deleted records does not walk through them, by offsets
    nor by bytes."""
    append(tmp_path, 5)
    append(tmp_path, 3, partition=1)
    began = stream(tmp_path, startingOffsets="earliest").initialOffset()
    reached = step(stream(tmp_path, startingOffsets="earliest"), began)
    append(tmp_path, 1000)
    append(tmp_path, 10, partition=1)
    with pyreplog.open_log(tmp_path, topic="t", partition=0, durability="os") as log:
        log.delete_records(900)
    for offsets, size in (("23", "1g"), ("2000", "4k")):
        reader = stream(
            tmp_path,
            startingOffsets="earliest",
            failOnDataLoss="false",
            maxOffsetsPerTrigger=offsets,
            maxBytesPerTrigger=size,
        )
        batches = run(reader, reached)
        assert [len(batch) for batch in batches].count(0) == 0
        assert sorted(row for batch in batches for row in batch) == span((0, 900, 1005), (1, 3, 13))
    strict = stream(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="23")
    with pytest.raises(RecordsDeletedError, match=r"offsets 5 up to .* were planned"):
        rows(strict, reached, step(strict, reached))


def test_limits_by_bytes(tmp_path: Path) -> None:
    """maxBytesPerTrigger cuts along the index: about so many bytes, everything once, and always something."""
    append(tmp_path, 200, size=1000)
    for size, least, most in (("20k", 8, 14), ("1", 20, 200)):
        reader = stream(tmp_path, startingOffsets="earliest", maxBytesPerTrigger=size)
        batches = run(reader, reader.initialOffset())
        assert least <= len(batches) <= most, [len(batch) for batch in batches]
        assert [row for batch in batches for row in batch] == span((0, 0, 200))
    both = stream(tmp_path, startingOffsets="earliest", maxBytesPerTrigger="20k", maxOffsetsPerTrigger="5")
    assert {len(batch) for batch in run(both, both.initialOffset())} == {5}


def test_small_batches_are_put_off(tmp_path: Path) -> None:
    """minOffsetsPerTrigger waits for so many, for maxTriggerDelay at most; the first micro-batch is never put
    off."""
    append(tmp_path, 3)
    time = Time()
    reader = stream(tmp_path, time, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    one = step(reader, reader.initialOffset())
    assert ends(one) == {"0": 3}
    append(tmp_path, 9)
    time.now = 29
    assert step(reader, one) == one
    append(tmp_path, 1)
    two = step(reader, one)
    assert ends(two) == {"0": 13}
    append(tmp_path, 1)
    time.now = 58
    assert step(reader, two) == two
    time.now = 59
    assert ends(step(reader, two)) == {"0": 14}


def test_available_now(tmp_path: Path) -> None:
    """What was there when the query began, in micro-batches by the limits, and nothing that came later."""
    append(tmp_path, 25)
    reader = stream(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="8")
    reader.prepareForTriggerAvailableNow()
    first = reader.initialOffset()
    append(tmp_path, 5)
    assert [len(batch) for batch in run(reader, first)] == [10, 10, 5]


def test_available_now_goes_on_as_any_trigger_does(tmp_path: Path) -> None:
    """Started again, it reads the only topic that there was, beside another one by now; where that is gone, it is a
    loss like any other."""
    append(tmp_path, 5)
    reader = stream(tmp_path, startingOffsets="earliest")
    end = step(reader, reader.initialOffset())
    append(tmp_path, 2)
    pyreplog.open_log(tmp_path, topic="u").close()
    again = stream(tmp_path)
    again.prepareForTriggerAvailableNow()
    after = step(again, end)
    append(tmp_path, 1)
    assert rows(again, end, after) == span((0, 5, 7))
    assert step(again, after) == after
    shutil.rmtree(tmp_path / "t-0")
    for fail in (True, False):
        last = stream(tmp_path, failOnDataLoss=fail)
        last.prepareForTriggerAvailableNow()
        if fail:
            with pytest.raises(RecordsDeletedError, match="t-0 was read up to offset 7, but it is gone"):
                step(last, after)
        else:
            assert ends(step(last, after)) == {"0": 7}


def test_available_now_does_not_take_a_log_that_was_cut_for_one_without_news(tmp_path: Path) -> None:
    """Such a query asks once. Where less is there than it has read, it waits for a new leader that has the rest,
    and then tells of the loss, or passes over it."""
    append(tmp_path, 10)
    shutil.copytree(tmp_path, tmp_path / "before", ignore=shutil.ignore_patterns("before"))
    append(tmp_path, 5)
    whole = stream(tmp_path, startingOffsets="earliest")
    end = step(whole, whole.initialOffset())
    append(tmp_path, 1)
    shutil.move(tmp_path / "t-0", tmp_path / "ahead")
    shutil.copytree(tmp_path / "before" / "t-0", tmp_path / "t-0")

    strict = stream(tmp_path)
    strict.prepareForTriggerAvailableNow()
    with pytest.raises(LogTruncatedError, match="t-0 was read up to offset 15, but now ends at 10"):
        step(strict, end)
    lenient = stream(tmp_path, failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    cut = step(lenient, end)
    assert (ends(cut), cut["from"]) == ({"0": 10}, {"t": {"0": 10}})
    assert step(lenient, cut) == cut

    time = Time()
    waiting = stream(tmp_path, time)
    waiting.prepareForTriggerAvailableNow()

    def lead() -> None:
        if time.now > 20 and (tmp_path / "ahead").exists():
            shutil.rmtree(tmp_path / "t-0")
            shutil.move(tmp_path / "ahead", tmp_path / "t-0")

    time.meanwhile = lead  # type: ignore[method-assign]
    assert rows(waiting, end, step(waiting, end)) == span((0, 15, 16))


def test_what_is_lost_is_told(tmp_path: Path) -> None:
    """A partition that is gone, one made anew, one that stays shorter than what was read, one that begins late:
    each is its own error, or let pass."""
    append(tmp_path, 10)
    append(tmp_path, 10, partition=1)
    time = Time()
    strict, lenient = stream(tmp_path, time, topic="t"), stream(tmp_path, time, topic="t", failOnDataLoss="false")
    start = step(strict, strict.initialOffset())
    assert start == step(lenient, lenient.initialOffset())
    shutil.move(tmp_path / "t-1", tmp_path / "away")
    with pytest.raises(RecordsDeletedError, match="t-1 was read up to offset 10, but it is gone"):
        step(strict, start)
    assert step(lenient, start) == start
    shutil.move(tmp_path / "away", tmp_path / "t-1")
    assert step(strict, start) == start
    with pytest.raises(RecordsDeletedError, match="t-1 was read up to offset 10, but the options leave it out now"):
        step(stream(tmp_path, time, topic="t", partitions="0"), start)

    shutil.copytree(tmp_path, tmp_path / "before", ignore=shutil.ignore_patterns("before"))
    append(tmp_path, 5)
    ahead = step(strict, start)
    shutil.rmtree(tmp_path / "t-0")
    shutil.move(tmp_path / "before" / "t-0", tmp_path / "t-0")
    assert step(strict, ahead) == step(lenient, ahead) == ahead  # a new leader may still have it
    time.now = 31
    with pytest.raises(LogTruncatedError, match="t-0 was read up to offset 15, but now ends at 10"):
        step(strict, ahead)
    cut = step(lenient, ahead)
    assert (ends(cut), cut["from"]) == ({"0": 10, "1": 10}, {"t": {"0": 10}})

    for name in ("t-0", "t-1"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "replog.config").unlink(missing_ok=True)
    append(tmp_path, 4)
    append(tmp_path, 2, partition=1)
    with pytest.raises(
        TopicRecreatedError, match=r"t-0 was read up to offset 10, but topic t was created again \(its id was "
    ):
        step(strict, start)
    anew = step(lenient, start)
    assert rows(lenient, start, anew) == span((0, 0, 4), (1, 0, 2))


def test_a_topic_that_is_gone_hides_nothing_new(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Partitions that appear are read also while another topic that the options name is not there, which is told
    once."""
    append(tmp_path, 2)
    with pyreplog.open_log(tmp_path, topic="u", durability="os") as log:
        log.append(b"x")
    reader = stream(tmp_path, subscribe="t,u", failOnDataLoss="false", startingOffsets="earliest")
    start = step(reader, reader.initialOffset())
    shutil.rmtree(tmp_path / "u-0")
    assert step(reader, start) == step(reader, start) == start
    assert caplog.text.count("u-0 was read up to offset 1, but it is gone") == 1
    append(tmp_path, 1)
    append(tmp_path, 3, partition=1)
    assert rows(reader, start, step(reader, start)) == span((0, 2, 3), (1, 0, 3))


@pytest.mark.parametrize("limits", [{"maxBytesPerPartition": "20000"}, {"maxBytesPerTrigger": "60000"}], ids=str)
def test_a_stream_that_fell_behind_deleted_records(tmp_path: Path, limits: dict[str, object]) -> None:
    """Where it is planned by bytes, too, what was deleted before it was read is a loss, or is passed over."""
    append(tmp_path, 100, size=1000)
    options = limits | {"startingOffsets": "earliest"}
    start = stream(tmp_path, None, **options).initialOffset()
    with pyreplog.open_log(tmp_path, topic="t") as log:
        log.delete_records(10)
    careful = stream(tmp_path, None, **options)
    with pytest.raises(RecordsDeletedError, match=r"of t-0 were planned, but now offsets 10 up to 100 are there"):
        rows(careful, start, step(careful, start))
    reader = stream(tmp_path, None, failOnDataLoss="false", **options)
    found: list[tuple[int, int]] = []
    while (end := step(reader, start)) != start:
        found += rows(reader, start, end)
        start = end
    assert found == span((0, 10, 100))


def test_spark_before_limits(tmp_path: Path) -> None:
    """Spark 4.0 and 4.1 ask for the latest offset without saying where they are: the first answer still says where
    the query began, and after a restart nothing is lost."""
    append(tmp_path, 10)
    reader = stream(tmp_path)
    first = reader.initialOffset()
    append(tmp_path, 5)
    one = reader.latestOffset()
    assert one == reader.latestOffset()
    later = stream(tmp_path)
    append(tmp_path, 1)
    assert rows(later, later.initialOffset(), one) == rows(reader, first, one) == span((0, 10, 15))
    two = reader.latestOffset()
    assert rows(reader, one, two) == span((0, 15, 16))
    assert reader.latestOffset() == two
    again = stream(tmp_path)
    append(tmp_path, 2)
    assert rows(again, two, again.latestOffset()) == span((0, 16, 18))


def test_spark_before_limits_is_told_what_is_lost(tmp_path: Path) -> None:
    """After a restart Spark 4.0 and 4.1 plan without saying what was read. What was lost meanwhile is told when the
    micro-batch is read."""
    append(tmp_path, 10)
    append(tmp_path, 10, partition=1)
    reader = stream(tmp_path, startingOffsets="earliest")
    reader.initialOffset()
    start = reader.latestOffset()

    def again() -> list[tuple[int, int]]:
        """What a restarted query reads next, and that it is an error for one that is told of losses."""
        lenient, strict = (stream(tmp_path, topic="t", failOnDataLoss=fail) for fail in ("false", "true"))
        end = lenient.latestOffset()
        with pytest.raises(DataLossError) as told:
            strict.partitions(start, end)
        errors.append(told.value)
        return rows(lenient, start, end)

    errors: list[DataLossError] = []
    for name in ("t-0", "t-1"):
        shutil.move(tmp_path / name, tmp_path / f"before-{name}")
    append(tmp_path, 12)
    append(tmp_path, 10, partition=1)
    assert again() == span((0, 0, 12), (1, 0, 10))  # made anew
    for name in ("t-0", "t-1"):
        shutil.rmtree(tmp_path / name)
        shutil.move(tmp_path / f"before-{name}", tmp_path / name)
    shutil.copytree(tmp_path / "t-0", tmp_path / "kept")
    append(tmp_path, 5)
    start = stream(tmp_path, topic="t").latestOffset()
    shutil.rmtree(tmp_path / "t-0")
    shutil.move(tmp_path / "kept", tmp_path / "t-0")
    assert again() == []  # cut
    shutil.rmtree(tmp_path / "t-0")
    append(tmp_path, 1, partition=1)
    assert again() == span((1, 10, 11))  # gone
    assert [type(error) for error in errors] == [TopicRecreatedError, LogTruncatedError, RecordsDeletedError]


def test_spark_before_limits_is_told_of_a_moment_in_which_less_was_seen(tmp_path: Path) -> None:
    """Planned while a replica was in sight that had less: the log is whole again, and that is what is said; who
    takes it reads on."""
    append(tmp_path, 7)
    short = stream(tmp_path, topic="t").latestOffset()
    append(tmp_path, 3)
    start = stream(tmp_path, topic="t").latestOffset()
    with pytest.raises(
        LogTruncatedError,
        match="t-0 was read up to offset 10, but only up to 7 was seen when the query was started again",
    ):
        stream(tmp_path, topic="t").partitions(start, short)
    lenient = stream(tmp_path, topic="t", failOnDataLoss="false")
    assert rows(lenient, start, short) == []
    assert rows(lenient, short, lenient.latestOffset()) == span((0, 7, 10))


class Query:
    """What ``lag`` looks at."""

    def __init__(self, *sources: tuple[object, object]) -> None:
        self.sources = [{"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)} for end, latest in sources]

    @property
    def lastProgress(self) -> object:
        """As a dictionary, or with attributes in other versions."""
        return {"sources": self.sources} if self.sources else None


def test_lag_of_several_sources() -> None:
    """Logs are added up, other sources passed over; without one of ours it is an error, before the first trigger
    nothing is known."""
    a, b = TopicPartition("a", 0), TopicPartition("b", 3)
    ours = (StreamProgress({a: 5, b: 9}).to_json(), StreamProgress({a: 7, b: 9, TopicPartition("b", 4): 2}).to_json())
    behind = lag(Query(ours, ({"x": 1}, {"x": 2}), (5, None), ours))
    assert behind is not None
    assert behind.partitions == {a: 4, b: 0, TopicPartition("b", 4): 4}
    assert (behind.total, behind.min_offsets_behind_latest, behind.max_offsets_behind_latest) == (8, 0, 4)
    assert behind.avg_offsets_behind_latest == 8 / 3
    assert lag(Query()) is None
    with pytest.raises(ConfigError, match="reads no log by format"):
        lag(Query(({"x": 1}, {"x": 2})))
