"""A path with wildcards: each folder that matches is a log of its own, in batches and in streams. Only the last
test needs a session."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import pyreplog
from pyreplog.errors import ConfigError, CorruptError, RecordsDeletedError, TopicRecreatedError, UnknownTopicError
from pyreplog.log import READ_UNCOMMITTED
from pyreplog.spark import lag, map_arrow
from pyreplog.spark.batch import plan_tasks
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.places import LogPartition, fixed_part
from pyreplog.spark.progress import StreamProgress
from pyreplog.spark.schema import COLUMNS, LOG, Field, project
from pyreplog.spark.several import SeveralAccess, matching
from pyreplog.spark.stream import LIMITS, ReplogStreamReader
from pyreplog.spark.tasks import read_ranges
from pyreplog.values import TopicPartition

FIELDS = [Field(column.name, column.type, True) for column in (*COLUMNS, LOG) if column.default]


def fill(folder: Path, count: int, topic: str = "events") -> Path:
    """``count`` more records in a log of its own."""
    with pyreplog.open_log(folder, topic=topic, durability="os") as log:
        log.append_many([b"%d" % number for number in range(count)])
    return folder


@pytest.fixture
def multi(tmp_path: Path) -> Path:
    """A folder with three logs of one, two and three records, and things that are no logs."""
    folder = tmp_path / "multi"
    for number in range(3):
        fill(folder / f"worker-{number}", number + 1)
    (folder / "worker-notes").mkdir()
    (folder / "worker-list.txt").write_text("no log")
    return folder


def batch(path: Path | str, **options: object) -> list[tuple[str, int]]:
    """(log, offset) of a batch read, in the order of its tasks."""
    read = parse_read_options({"path": str(path)} | {name.lower(): str(value) for name, value in options.items()})
    ranges = [each for task in plan_tasks(read) for each in task]
    return rows(read_ranges(read, [Field("log", "string", True), Field("offset", "bigint", True)], ranges))


def rows(batches: Any) -> list[tuple[str, int]]:
    """(log, offset) of Arrow batches."""
    found: list[tuple[str, int]] = []
    for made in batches:
        found += zip(made.column("log").to_pylist(), made.column("offset").to_pylist(), strict=True)
    return found


def span(*ranges: tuple[str, int, int]) -> list[tuple[str, int]]:
    """(log, offset) of the half-open ranges."""
    return [(log, offset) for log, start, end in ranges for offset in range(start, end)]


def stream(path: Path | str, **options: object) -> ReplogStreamReader:
    """A reader, as Spark makes one for each start of a query."""
    given = {"path": str(path), "startingoffsets": "earliest"}
    given |= {name.lower(): value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return ReplogStreamReader(parse_read_options(given, streaming=True), FIELDS)


def step(reader: ReplogStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """The next end, through JSON, as Spark keeps it."""
    arguments: Sequence[Any] = (start, reader.getDefaultReadLimit()) if LIMITS else ()
    made: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(*arguments)))
    return made


def read(reader: ReplogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int]]:
    """(log, offset) of a micro-batch, sorted."""
    return sorted(row for task in reader.partitions(start, end) for row in rows(reader.read(task)))


# -- the pattern --


@pytest.mark.parametrize(
    ("path", "fixed"),
    [("/a/b", ""), ("/a/b*", "/a"), ("/a/w-[0-9]/x", "/a"), ("/*", "/"), ("/a/?/b-*", "/a"), ("/a/b/c-*/d", "/a/b")],
)
def test_the_fixed_part_of_a_pattern(path: str, fixed: str) -> None:
    """The logs are named relative to the part of the path before its first wildcard; a path without one is one
    folder."""
    assert fixed_part(path) == fixed


def test_what_a_pattern_matches(tmp_path: Path) -> None:
    """Folders match part by part, in the order of their names; files, hidden folders and lost+found do not."""
    for name in ("b/x", "a/x", ".c/x", "lost+found/x", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "e").write_text("")
    assert list(matching(str(tmp_path), f"{tmp_path}/*")) == ["a", "b", "d"]
    assert matching(str(tmp_path), f"{tmp_path}/*/x") == {"a/x": f"{tmp_path}/a/x", "b/x": f"{tmp_path}/b/x"}
    assert list(matching(str(tmp_path), f"{tmp_path}/.*")) == [".c"]
    assert list(matching(str(tmp_path), f"{tmp_path}/[a-b]/?")) == ["a/x", "b/x"]
    assert matching(f"{tmp_path}/none", f"{tmp_path}/none/*") == {}


def test_patterns_that_are_refused(multi: Path) -> None:
    """``**`` is refused with the way to write it; so are several paths, and a folder whose name Spark cannot
    say."""
    with pytest.raises(ConfigError, match=r"write one '\*' for each folder"):
        batch(multi / "**")
    with pytest.raises(ConfigError, match=r"a pattern, such as multi/worker-\*"):
        parse_read_options({"path": "x", "paths": "[]"})
    fill(Path(f"{multi}/worker-\udcff"), 1)
    with pytest.raises(ConfigError, match="not UTF-8"):
        batch(multi / "worker-*")


def test_a_uri_may_hold_wildcards(multi: Path) -> None:
    """A file: path is a pattern like any other, the question mark too."""
    assert batch(f"file:{multi}/worker-?", partitions="0") == span(
        ("worker-0", 0, 1), ("worker-1", 0, 2), ("worker-2", 0, 3)
    )


# -- batches --


def test_every_log_is_read_once_under_its_name(multi: Path) -> None:
    """All records of all logs that match come, and nothing of what is no log."""
    assert batch(multi / "worker-*") == span(("worker-0", 0, 1), ("worker-1", 0, 2), ("worker-2", 0, 3))
    assert batch(multi / "worker-[02]") == span(("worker-0", 0, 1), ("worker-2", 0, 3))
    assert batch(multi.parent / "*" / "worker-1") == span(("multi/worker-1", 0, 2))


def test_the_column_log_needs_a_pattern() -> None:
    """A read of one log has no column log, and says when there is one."""
    with pytest.raises(ConfigError, match="only if the path is a pattern"):
        project([Field("log", "string", True)])
    assert project([Field("log", "string", True)], several=True) == [LOG]


def test_tasks_never_mix_up_logs(multi: Path) -> None:
    """Partitions of one name in several logs are cut, dealt out and read each by itself."""
    assert sorted(batch(multi / "worker-*", minPartitions=5)) == span(
        ("worker-0", 0, 1), ("worker-1", 0, 2), ("worker-2", 0, 3)
    )
    assert sorted(batch(multi / "worker-*", maxRecordsPerPartition=1)) == span(
        ("worker-0", 0, 1), ("worker-1", 0, 2), ("worker-2", 0, 3)
    )


def test_offsets_are_given_by_log(multi: Path) -> None:
    """Offset JSON has one more level, the log, and must name each; a log that is left out is an error."""
    starting = {f"worker-{number}": {"events": {"0": number}} for number in range(3)}
    assert batch(multi / "worker-*", startingOffsets=json.dumps(starting)) == span(
        ("worker-0", 0, 1), ("worker-1", 1, 2), ("worker-2", 2, 3)
    )
    del starting["worker-1"]
    with pytest.raises(ConfigError, match="startingOffsets leaves out events-0 of the log worker-1"):
        batch(multi / "worker-*", startingOffsets=json.dumps(starting))
    with pytest.raises(ConfigError, match='"worker-0"'):
        batch(multi / "worker-*", startingOffsets='{"events": {"0": 1}}')


def test_topics_of_several_logs(multi: Path) -> None:
    """Each log gives its only topic, whatever its name; of a topic that is named, the logs that have it; one with
    several is refused."""
    fill(multi / "worker-3", 2, topic="other")
    (multi / "worker-4").mkdir()
    everything = span(("worker-0", 0, 1), ("worker-1", 0, 2), ("worker-2", 0, 3), ("worker-3", 0, 2))
    assert batch(multi / "worker-*") == everything
    assert batch(multi / "worker-*", topic="other") == span(("worker-3", 0, 2))
    assert batch(multi / "worker-*", subscribe="events,other") == everything
    assert batch(multi / "worker-*", assign='{"other": [0]}') == span(("worker-3", 0, 2))
    with pytest.raises(
        UnknownTopicError, match=r"no topic 'othr' in any log that matches .*worker-\*; they hold events, other"
    ):
        batch(multi / "worker-*", topic="othr")
    with pytest.raises(UnknownTopicError, match="no partition other-1"):
        batch(multi / "worker-*", assign='{"other": [0, 1]}')
    with pytest.raises(UnknownTopicError, match="partition 7"):
        batch(multi / "worker-*", partitions="7")
    fill(multi / "worker-3", 1, topic="audit")
    with pytest.raises(ConfigError, match="name the topic by option 'topic' in .*worker-3, which holds audit, other"):
        batch(multi / "worker-*")


def test_a_pattern_that_matches_no_log(multi: Path) -> None:
    """A pattern that matches nothing, or no log, is a typed error, in a batch and where a stream begins."""
    for path in (multi / "none-*", multi / "worker-n*", multi.parent / "gone" / "*"):
        with pytest.raises(ConfigError, match="no folder that matches path .* holds a log"):
            batch(path)
        with pytest.raises(ConfigError, match="no folder that matches path .* holds a log"):
            stream(path).initialOffset()


def test_no_record_is_read_twice(multi: Path) -> None:
    """A copy of a log that matches, too, and the nodes of a cluster, are refused, and both are named."""
    shutil.copytree(multi / "worker-1", multi / "worker-9")
    with pytest.raises(ConfigError, match="worker-1 and .*worker-9 hold the same partition, events-0"):
        batch(multi / "worker-*")
    with pytest.raises(ConfigError, match="hold the same partition"):
        stream(multi / "worker-*").initialOffset()
    with pyreplog.Cluster(multi / "cluster", nodes=2) as cluster:
        cluster.admin.create_topic("events", partitions=1, replication_factor=2)
    with pytest.raises(ConfigError, match="node-1 and .*node-2 hold the same partition"):
        batch(multi / "cluster" / "node-*")


def test_a_folder_of_several_logs_is_refused(multi: Path) -> None:
    """A folder that matches and holds several logs itself is refused by its name: the pattern has to reach each
    log."""
    with pytest.raises(ConfigError, match="multi holds 3 independent logs"):
        batch(multi.parent / "mul*")
    assert len(batch(multi.parent / "mul*" / "*")) == 6


def test_a_folder_that_goes_while_it_is_looked_at(multi: Path) -> None:
    """A log that is removed between two looks of a running query is one that is gone, and no failure of the
    look."""
    with SeveralAccess(str(multi), f"{multi}/worker-*", READ_UNCOMMITTED) as access:
        places = access.partitions()
        assert [access.available(place) is not None for place in places] == [True, True, True]
        shutil.rmtree(multi / "worker-1")
        access.refresh()
        assert [access.available(place) is not None for place in places] == [True, False, True]


def test_damage_in_one_log_fails_the_read(multi: Path) -> None:
    """Rot in one of three logs is an error that names the log's folder."""
    segment = multi / "worker-1" / "events-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[70] ^= 0xFF
    segment.write_bytes(data)
    with pytest.raises(CorruptError, match="worker-1"):
        batch(multi / "worker-*")


def test_few_logs_keep_files_open(multi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many logs those that were not used for longest close their files, and are read all the same."""
    monkeypatch.setattr("pyreplog.spark.several.OPEN_LOGS_MAX", 1)
    assert batch(multi / "worker-*") == span(("worker-0", 0, 1), ("worker-1", 0, 2), ("worker-2", 0, 3))
    with SeveralAccess(str(multi), f"{multi}/worker-*", READ_UNCOMMITTED) as access:
        seen = [access.available(place) for place in access.partitions()]
        assert [found.end for found in seen if found is not None] == [1, 2, 3]


# -- streams --


def test_a_stream_keeps_offsets_by_folder_and_cluster(multi: Path) -> None:
    """The offset JSON has an entry for each log, with its cluster id; a folder that appears later begins at its
    start."""
    reader = stream(multi / "worker-*")
    first = reader.initialOffset()
    assert {log: entry["t"] for log, entry in first["logs"].items()} == {
        f"worker-{number}": {"events": {"0": 0}} for number in range(3)
    }
    one = step(reader, first)
    assert one["v"] == 2
    for number in range(3):
        entry = one["logs"][f"worker-{number}"]
        assert entry["t"] == {"events": {"0": number + 1}}
        assert f"cluster.id={entry['cluster']}" in (multi / f"worker-{number}" / "meta.properties").read_text()
        assert entry["id"]["events"] in (multi / f"worker-{number}" / "events-0" / "partition.metadata").read_text()
    assert read(reader, first, one) == span(("worker-0", 0, 1), ("worker-1", 0, 2), ("worker-2", 0, 3))
    assert step(reader, one) == one
    fill(multi / "worker-1", 2)
    fill(multi / "worker-7", 2, topic="others")
    again = stream(multi / "worker-*")
    two = step(again, one)
    assert two["logs"]["worker-7"]["from"] == {"others": {"0": 0}}
    assert read(again, one, two) == span(("worker-1", 2, 4), ("worker-7", 0, 2))
    assert again.reportLatestOffset() == {
        "v": 2,
        "logs": {log: {"t": entry["t"]} for log, entry in two["logs"].items()},
    }


@pytest.mark.skipif(not LIMITS, reason="PySpark before 4.2 has no limits per trigger")
def test_limits_are_shared_among_logs(multi: Path) -> None:
    """A limit gives something of each log."""
    fill(multi / "worker-2", 37)
    reader = stream(multi / "worker-*", maxOffsetsPerTrigger="10")
    first = reader.initialOffset()
    one = step(reader, first)
    assert all(entry["t"]["events"]["0"] > 0 for entry in one["logs"].values())
    assert len(read(reader, first, one)) <= 12


@pytest.mark.parametrize("seed", range(3))
def test_each_record_comes_once_whatever_happens(multi: Path, seed: int) -> None:
    """Appends, logs that appear, restarts of the query, limits, and micro-batches that are planned again: each
    record is read once."""
    chance = Random(seed)
    holds = {f"worker-{number}": number + 1 for number in range(3)}
    given: dict[str, object] = {"maxOffsetsPerTrigger": "4"} if LIMITS and seed else {}
    reader = stream(multi / "worker-*", **given)
    at = reader.initialOffset()
    seen: list[tuple[str, int]] = []
    for _ in range(12):
        for _ in range(chance.randrange(3)):
            log = chance.choice([*holds, f"worker-{len(holds)}"])
            count = chance.randint(1, 5)
            fill(multi / log, count)
            holds[log] = holds.get(log, 0) + count
        until = step(reader, at)
        if chance.random() < 0.4:  # it dies, and Spark runs the micro-batch again, from what it noted down
            reader.stop()
            reader = stream(multi / "worker-*", **given)
        seen += read(reader, at, until)
        at = until
    while (until := step(reader, at)) != at:
        seen += read(reader, at, until)
        at = until
    assert sorted(seen) == sorted(span(*((log, 0, count) for log, count in holds.items())))
    reader.stop()


def begun(path: Path) -> dict[str, Any]:
    """The offset of a query that read all there is."""
    reader = stream(path)
    return step(reader, reader.initialOffset())


def test_a_folder_that_another_log_took(multi: Path) -> None:
    """A folder with a log of another cluster id fails the query, and says so; failOnDataLoss=false reads it from
    its start."""
    one = begun(multi / "worker-*")
    shutil.rmtree(multi / "worker-1")
    fill(multi / "worker-1", 5)
    with pytest.raises(
        TopicRecreatedError, match="events-0 of the log worker-1 was read up to offset 2.*another log.*cluster id was"
    ):
        step(stream(multi / "worker-*"), one)
    reader = stream(multi / "worker-*", failOnDataLoss="false")
    two = step(reader, one)
    assert read(reader, one, two) == span(("worker-1", 0, 5))
    assert two["logs"]["worker-1"]["cluster"] != one["logs"]["worker-1"]["cluster"]


def test_a_moved_topic_id_does_not_hide_another_cluster(multi: Path) -> None:
    """The cluster id decides by itself: also where the partition's folder is the one that was read."""
    one = begun(multi / "worker-*")
    with pyreplog.open_log(multi / "other", topic="x") as log:
        log.append(b"1")
    shutil.copy(multi / "other" / "meta.properties", multi / "worker-1" / "meta.properties")
    with pytest.raises(TopicRecreatedError, match="another log"):
        step(stream(multi / "worker-*"), one)


def test_a_task_notices_another_log_in_the_folder(multi: Path) -> None:
    """A range that was planned of one log is not read of another one that took the folder since, whatever the topic
    id says."""
    options = parse_read_options({"path": f"{multi}/worker-*"})
    ranges = [each for task in plan_tasks(options) for each in task]
    with pyreplog.open_log(multi / "other", topic="x") as log:
        log.append(b"1")
    shutil.copy(multi / "other" / "meta.properties", multi / "worker-1" / "meta.properties")
    with pytest.raises(
        TopicRecreatedError, match="of the log worker-1 were planned, but now the folder holds another log"
    ):
        list(read_ranges(options, FIELDS, ranges))


def test_a_folder_that_is_gone(multi: Path) -> None:
    """A log that was removed is lost data, whose name is told."""
    one = begun(multi / "worker-*")
    shutil.rmtree(multi / "worker-2")
    with pytest.raises(
        RecordsDeletedError, match="events-0 of the log worker-2 was read up to offset 3, but it is gone"
    ):
        step(stream(multi / "worker-*"), one)
    shutil.rmtree(multi)
    with pytest.raises(RecordsDeletedError, match="worker-0"):
        step(stream(multi / "worker-*"), one)


def test_a_folder_that_is_gone_leaves_the_offsets(multi: Path) -> None:
    """With failOnDataLoss=false the next offset no longer names a log that is gone, so the option can be set back;
    the others go on."""
    one = begun(multi / "worker-*")
    shutil.rmtree(multi / "worker-2")
    lenient = stream(multi / "worker-*", failOnDataLoss="false")
    two = step(lenient, one)
    assert set(two["logs"]) == set(one["logs"]) - {"worker-2"}
    assert read(lenient, one, two) == []
    strict = stream(multi / "worker-*")
    assert step(strict, two) == two
    fill(multi / "worker-2", 2)
    assert read(strict, two, step(strict, two)) == span(("worker-2", 0, 2))


def test_checkpoints_of_one_folder_and_of_several(multi: Path) -> None:
    """A checkpoint without a pattern is as it was, and neither kind is taken for the other."""
    alone = begun(multi / "worker-2")
    assert alone["v"] == 1
    assert alone["t"] == {"events": {"0": 3}}
    assert step(stream(multi / "worker-2"), alone) == alone
    with pytest.raises(ConfigError, match="of a query whose path was one folder.*checkpointLocation of its own"):
        step(stream(multi / "worker-*"), alone)
    with pytest.raises(ConfigError, match="of a query whose path was a pattern"):
        step(stream(multi / "worker-2"), begun(multi / "worker-*"))


logs = st.builds(LogPartition, st.sampled_from(["a", "b-1"]), st.integers(0, 3), st.sampled_from(["x", "y/z", "ü"]))


@given(st.dictionaries(logs, st.integers(0, 2**63 - 1)), st.sampled_from(["none", "some", "all"]), st.randoms())
def test_progress_of_several_logs_is_canonical(ends: dict[TopicPartition, int], kind: str, random: Any) -> None:
    """What comes back from JSON is what went in, and the text does not depend on the order."""
    ids = {
        place: "t" if kind == "all" else str(random.random())
        for place in ends
        if kind != "none" and (kind == "all" or random.random() < 0.5)
    }
    clusters = {place.log: "c" for place in ends if isinstance(place, LogPartition) and random.random() < 0.5}
    made = StreamProgress(ends, dict(list(ends.items())[:2]), ids, clusters, several=True)
    text = json.dumps(made.to_json())
    assert StreamProgress.from_json(json.loads(text)) == made
    turned = StreamProgress(dict(reversed(ends.items())), made.starts, ids, clusters, several=True)
    assert json.dumps(turned.to_json()) == text


@pytest.mark.parametrize(
    "logs",
    [
        [],
        {"": {"t": {}}},
        {"a": 1},
        {"a": {}},
        {"a": {"t": {"x": {"0": "1"}}}},
        {"a": {"t": {}, "cluster": 5}},
        {"a": {"t": {"x": {"-1": 1}}}},
    ],
)
def test_other_offsets_are_refused(logs: object) -> None:
    """Damaged JSON of several logs is a typed error."""
    with pytest.raises(ConfigError, match="the checkpoint holds the offset"):
        StreamProgress.from_json({"v": 2, "logs": logs})


def test_partitions_of_several_logs_are_values() -> None:
    """A partition of a log is equal to itself alone, also after a journey to a worker, and never to one of a single
    log."""
    import pickle  # noqa: PLC0415

    place = LogPartition("t", 1, "w")
    assert pickle.loads(pickle.dumps(place)) == place
    assert hash(pickle.loads(pickle.dumps(place))) == hash(place)
    assert place not in (TopicPartition("t", 1), LogPartition("t", 1, "v"))
    assert (repr(place), str(place)) == ("LogPartition(topic='t', partition=1, log='w')", "t-1 of the log w")


# -- in a session --


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_reads_a_pattern(spark: SparkSession, multi: Path, tmp_path: Path) -> None:
    """A batch, map_arrow and a stream over a pattern have the column log; the stream goes on in its checkpoint,
    with a log that came."""
    frame = spark.read.format("replog").load(f"{multi}/worker-*")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "log"]
    everything = span(("worker-0", 0, 1), ("worker-1", 0, 2), ("worker-2", 0, 3))
    assert sorted((row["log"], row["offset"]) for row in frame.select("log", "offset").collect()) == everything

    def counted(batches: Any) -> Any:
        for batch in batches:
            yield pa.record_batch({"log": batch["log"]})

    mapped = map_arrow(spark, counted, "log string", columns=["log"], path=f"{multi}/worker-*")
    assert mapped.count() == 6

    def run() -> list[tuple[str, int]]:
        stream = (
            spark.readStream.format("replog").option("path", f"{multi}/worker-*").option("startingOffsets", "earliest")
        )
        sink = stream.schema("log string, offset long").load().writeStream.format("parquet").trigger(availableNow=True)
        query = (
            sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "seen"))
            .start()
        )
        assert query.awaitTermination(120)
        if LIMITS:
            behind = lag(query)
            assert behind is not None
            assert {str(place) for place in behind.partitions} >= {"events-0 of the log worker-0"}
        return sorted((row["log"], row["offset"]) for row in spark.read.parquet(str(tmp_path / "seen")).collect())

    assert run() == everything
    fill(multi / "worker-3", 2)
    fill(multi / "worker-0", 1)
    assert run() == span(("worker-0", 0, 2), ("worker-1", 0, 2), ("worker-2", 0, 3), ("worker-3", 0, 2))
