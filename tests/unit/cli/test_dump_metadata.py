"""``replog dump`` of a metadata log: records, control records, snapshots and ``quorum-state``."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pyreplog.record import BatchBuilder
from pyreplog.wire import PartitionRecord, TopicRecord, UnknownMetadataRecord, encode_record
from tests.interop.golden.units import unit
from tests.unit.cli.support import Replog

TOPIC_ID = "x8eZxIiI6FzqjrRRbN2Wdw"


def metadata_log(folder: Path, values: list[bytes]) -> Path:
    """A segment of a metadata log with these records."""
    path = folder / "__cluster_metadata-0" / f"{0:020}.log"
    path.parent.mkdir()
    builder = BatchBuilder()
    for value in values:
        assert builder.append(value, None, (), 5)
    path.write_bytes(builder.finish(leader_epoch=3))
    return path


def test_a_brokers_metadata(replog: Replog) -> None:
    """Each record of the log and of its snapshots has a line with offset, epoch, kind, version and fields."""
    folder = unit("clean-4.1.0") / "data" / "__cluster_metadata-0"
    done = replog("dump", folder, "--json")
    assert (done.code, done.err) == (0, "")
    rows = [row for row in done.objects() if "kind" in row]
    kinds = {row["kind"] for row in rows}
    assert {"TopicRecord", "PartitionRecord", "NoOpRecord", "RegisterControllerRecord", "ConfigRecord"} <= kinds
    assert {"LeaderChangeMessage", "SnapshotHeaderRecord", "SnapshotFooterRecord"} <= kinds
    log = [row for row in rows if row["file"].endswith(".log")]
    assert [row["offset"] for row in log] == list(range(len(log)))
    topic = next(row for row in log if row["kind"] == "TopicRecord")
    assert set(topic) == {"file", "offset", "leader_epoch", "kind", "version", "fields"}
    assert set(topic["fields"]) == {"name", "topic_id"}
    (state,) = [row for row in done.objects() if os.path.basename(row["file"]) == "quorum-state"]
    assert (state["leaderId"], state["leaderEpoch"], state["data_version"]) == (1, 1, 0)
    text = replog("dump", folder).out
    assert f"    offset {topic['offset']}, epoch 1, TopicRecord v0 " in text
    assert "leaderId 1" in text


def test_records_that_are_not_known(replog: Replog, tmp_path: Path) -> None:
    """A record of newer software is shown as such with its bytes, and so are unknown tagged fields."""
    unknown = UnknownMetadataRecord(77, 2, bytes([1, 77, 2, 9]))
    tagged = encode_record(TopicRecord("t", TOPIC_ID))[:-1] + bytes([1, 5, 1, 7])
    path = metadata_log(tmp_path, [unknown.data, tagged, encode_record(PartitionRecord(0, TOPIC_ID, [1], [1]))])
    done = replog("dump", path)
    assert done.code == 0
    assert '    offset 0, epoch 3, unknown v2 {"api_key":77,"value":"AU0CCQ=="}' in done.out
    assert '"unknown_tagged_fields":{"5":"Bw=="}' in done.out
    assert "offset 2, epoch 3, PartitionRecord v2" in done.out


def test_a_damaged_record(replog: Replog, tmp_path: Path) -> None:
    """A record that is none is damage with its offset; the others are shown."""
    whole = encode_record(TopicRecord("t", TOPIC_ID))
    path = metadata_log(tmp_path, [whole, whole[:-3], whole])
    done = replog("dump", path)
    assert done.code == 3
    assert "DAMAGED: record 1 is damaged: " in done.out
    assert done.out.count("TopicRecord v0") == 2


def test_a_damaged_quorum_state(replog: Replog, tmp_path: Path) -> None:
    """What is not Kafka's JSON is damage."""
    path = tmp_path / "quorum-state"
    for content, says in (("{", "not JSON"), ("[]", "version 0 or 1"), ('{"data_version":9}', "version 0 or 1")):
        path.write_text(content)
        done = replog("dump", path)
        assert done.code == 3
        assert says in done.out
    path.write_text(json.dumps({"leaderId": 1, "data_version": 1}))
    assert replog("dump", path).code == 0
