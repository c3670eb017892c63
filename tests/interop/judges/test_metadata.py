"""Metadata logs and snapshots of ours in the hands of Kafka's dump tool, and our tables of records against the schemas
in its jars. Skipped without ``KAFKA_JARS``; what older jars lack is left out."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from pyreplog.log import parent_of
from pyreplog.quorum import (
    Identity,
    QuorumConfig,
    RaftNode,
    TimerDue,
    Voter,
    VoterEndpoint,
    VoterSet,
    format_quorum,
)
from pyreplog.quorum.snapshots import write_snapshot
from pyreplog.record import BatchBuilder
from pyreplog.system import SystemDisk
from pyreplog.testing import SimClock, SimDisk
from pyreplog.wire import (
    RESOURCE_TOPIC,
    ConfigRecord,
    FeatureLevelRecord,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    OtherMetadataRecord,
    PartitionRecord,
    QuorumEndpoint,
    SnapshotId,
    SuspectReplica,
    TopicRecord,
    VotersRecord,
    VotersRecordVoter,
    encode_control_record,
    encode_record,
)
from pyreplog.wire.control_records import CONTROL_LAYOUTS
from pyreplog.wire.metadata_layouts import RECORD_KINDS, RECORD_LAYOUTS, line_at
from tests.interop.judges.kafka import JARS, Broker, dump_metadata
from tests.interop.judges.test_messages import Field, ours, schemas_in, theirs, within
from tests.unit.quorum.quorum_net import FOLDER, QuorumNet
from tests.unit.wire.test_metadata_golden import check_payload

pytestmark = pytest.mark.skipif(JARS is None, reason="KAFKA_JARS names no folder with a broker's jars")

UUID: Final = "x8eZxIiI6FzqjrRRbN2Wdw"
TIME_MS: Final = 1_700_000_000_000
METADATA_VERSION: Final = 27
"""The level of Kafka 4.1's metadata."""
CASES: Final = [(key, version) for key, kind in RECORD_KINDS.items() for version in range(kind.newest + 1)]


@cache
def schemas() -> dict[int, dict[str, Any]]:
    """Record type -> the schema, of every metadata record in the jars."""
    found = schemas_in("kafka-metadata-*.jar", r"common/metadata/\w+\.json")
    return {schema["apiKey"]: schema for schema in found}


def kafkas_fields(schema: dict[str, Any], version: int) -> list[Field]:
    """The fields of a schema at a version."""
    common = {one["name"]: one for one in schema.get("commonStructs", ())}
    return theirs(schema["fields"], version, common)


@pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{RECORD_KINDS[key].name}-{v}" for key, v in CASES])
def test_layout(key: int, version: int) -> None:
    """Each line of our table is the schema at each version: names, order, types, nulls and tags."""
    schema = schemas().get(key)
    if schema is None or not within(version, schema["validVersions"]):
        pytest.skip("these jars do not have it")
    assert within(version, schema["flexibleVersions"])
    assert ours(RECORD_KINDS[key].name, RECORD_LAYOUTS, version) == kafkas_fields(schema, version)


def test_every_record_of_kafka_is_known() -> None:
    """The jars have no record type and no version that our table lacks."""
    for key, schema in schemas().items():
        assert key in RECORD_KINDS, schema["name"]
        assert not within(RECORD_KINDS[key].newest + 1, schema["validVersions"]), schema["name"]


@pytest.mark.parametrize("name", ["LeaderChangeMessage", "SnapshotHeaderRecord", "KRaftVersionRecord", "VotersRecord"])
def test_control_layout(name: str) -> None:
    """So is each control record."""
    found = schemas_in("kafka-clients-*.jar", rf"common/message/{name}\.json")
    if not found:
        pytest.skip("these jars do not have it")
    for version in (0, 1):
        if within(version, found[0]["validVersions"]):
            assert ours(name, CONTROL_LAYOUTS, version) == kafkas_fields(found[0], version)


def sample(name: str, version: int, chance: Random) -> dict[str, Any]:
    """The fields of a record or struct with values that are not defaults, those that only we have too."""
    return {
        field: value_of(text, version, chance)
        for field, _, text in (
            word.partition("@")[0].partition(":") for word in line_at(RECORD_LAYOUTS[name], version).split()
        )
    }


def value_of(text: str, version: int, chance: Random) -> Any:
    """A value of a type's text."""
    text = text.removeprefix("?")
    if text.startswith("["):
        return [value_of(text[1:-1], version, chance) for _ in range(chance.randrange(1, 4))]
    if text in RECORD_LAYOUTS:
        return sample(text, version, chance)
    plain = {
        "bool": True,
        "uuid": UUID,
        "string": f"text {chance.randrange(99)} \u00e9",
        "bytes": b"\x00\xff",
        "float64": 1.5,
    }
    return plain[text] if text in plain else chance.randrange(1, 100)


def samples() -> list[bytes]:
    """A record of every kind and version that the jars have."""
    chance = Random(7)
    found = []
    for key, version in CASES:
        schema = schemas().get(key)
        if schema is not None and within(version, schema["validVersions"]):
            name = RECORD_KINDS[key].name
            found.append(encode_record(OtherMetadataRecord(name, version, sample(name, version, chance))))
    return found


def check_payloads(lines: list[str], values: list[bytes]) -> None:
    """Kafka's decoding of the records, in order, says what ours says."""
    payloads = [json.loads(line.partition(" payload: ")[2]) for line in lines if " payload: " in line]
    assert len(payloads) == len(values)
    for payload, value in zip(payloads, values, strict=True):
        check_payload(payload, value)


needs_the_tool = pytest.mark.skipif(not list(Path(JARS or "").glob("kafka_2*")), reason="KAFKA_JARS has no broker")


@needs_the_tool
def test_a_log_of_ours(tmp_path: Path) -> None:
    """Kafka's tool decodes a log with a record of every kind and version, our own tagged fields in between."""
    assert JARS is not None
    values = samples()
    assert len(values) > 30
    builder = BatchBuilder()
    voters = [LeaderChangeVoter(1), LeaderChangeVoter(2)]
    key, value = encode_control_record(LeaderChangeMessage(1, voters, voters[:1]))
    builder.append(value, key, (), TIME_MS)
    data = bytes(builder.finish(leader_epoch=3, control=True))
    builder.reset()
    for value in values:
        assert builder.append(value, None, (), TIME_MS)
    data += bytes(builder.finish(base_offset=1, leader_epoch=3))
    path = tmp_path / "__cluster_metadata-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(data)
    lines = dump_metadata(JARS, path)
    check_payloads(lines, values)
    (change,) = [line for line in lines if "LeaderChange: " in line]
    assert json.loads(change.partition("LeaderChange: ")[2])["leaderId"] == 1


@needs_the_tool
def test_a_snapshot_of_ours(tmp_path: Path) -> None:
    """Kafka's tool reads a snapshot from header to footer, with voters and records."""
    assert JARS is not None
    values = samples() * 300
    voter = VotersRecordVoter(2, UUID, [QuorumEndpoint("CONTROLLER", "controller-2", 0)], KRaftVersionFeature())
    control = [encode_control_record(KRaftVersionRecord(1)), encode_control_record(VotersRecord([voter]))]
    name = write_snapshot(
        SystemDisk(), str(tmp_path), SnapshotId(4321, 9), control, values, timestamp_ms=TIME_MS, last_timestamp_ms=77
    )
    lines = dump_metadata(JARS, tmp_path / name)
    check_payloads(lines, values)
    assert any("Snapshot end offset: 4321, epoch: 9" in line for line in lines)
    said = [line.partition(word)[2] for word in ("SnapshotHeader ", "KRaftVoters ") for line in lines if word in line]
    assert json.loads(said[0])["lastContainedLogTimestamp"] == 77
    assert json.loads(said[1])["voters"][0]["endpoints"] == [{"name": "CONTROLLER", "host": "controller-2", "port": 0}]
    assert sum("SnapshotFooter" in line for line in lines) == 1


def files_of(disk: SimDisk) -> dict[str, bytes]:
    """The segments and snapshots of a node."""
    found = {}
    for name in disk.list(FOLDER):
        if name.endswith((".log", ".checkpoint")):
            file = disk.open(f"{FOLDER}/{name}")
            found[name] = bytes(file.read_at(0, file.size()))
    return found


@needs_the_tool
@pytest.mark.parametrize("voters", [1, 3])
def test_a_quorum_of_ours(tmp_path: Path, voters: int) -> None:
    """Kafka's tool reads all that a quorum wrote: the bootstrap snapshot, two leaders' logs, a snapshot of each."""
    assert JARS is not None
    net = QuorumNet(voters)
    net.advance(5)
    values = samples()
    for start in range(0, len(values), 10):
        net.append(*values[start : start + 10])
        net.deliver()
    if voters > 1:
        net.kill(1)
        net.advance(10)
        net.append(values[0])
        values.append(values[0])
        net.deliver()
    node_id, node = net.leader.identity.node_id, net.leader
    files = files_of(net.disks[node_id])
    node.write_snapshot(node.high_watermark, values)
    files = files_of(net.disks[node_id]) | files
    assert sorted(name.endswith(".log") for name in files) == [False, False, True]
    for name, data in files.items():
        path = tmp_path / name
        path.write_bytes(data)
        lines = dump_metadata(JARS, path)
        if name.endswith(".log"):
            check_payloads(lines, values)
            assert sum("LeaderChange: " in line for line in lines) == (2 if voters > 1 else 1)
        else:
            check_payloads(lines, values if not name.startswith("0" * 20) else [])
            (said,) = [line.partition("KRaftVoters ")[2] for line in lines if "KRaftVoters " in line]
            assert [voter["voterId"] for voter in json.loads(said)["voters"]] == list(range(1, voters + 1))


@needs_the_tool
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_broker_goes_on_with_our_metadata(tmp_path: Path, snapshot: bool) -> None:
    """A real broker starts on a metadata folder that our quorum wrote, leads it, and serves the topic in it."""
    assert JARS is not None
    with Broker(JARS, tmp_path / "broker", standalone=True) as broker:
        properties = dict(
            line.split("=", 1) for line in (broker.data / "meta.properties").read_text().splitlines() if "=" in line
        )
        directory_id = properties["directory.id"]
        identity = Identity(1, directory_id, properties["cluster.id"])
        voter = Voter(1, directory_id, (VoterEndpoint("CONTROLLER", "127.0.0.1", broker.controller_port),))
        clock, disk, config = SimClock(TIME_MS), SimDisk(Random(1)), QuorumConfig()
        disk.make_directory(parent_of(FOLDER))
        format_quorum(disk, FOLDER, identity, clock, VoterSet([voter]), config)
        now = clock.monotonic_ns()
        node = RaftNode.open(disk, FOLDER, identity, config, clock, Random(2), endpoint="controller-1", now_ns=now)
        node.step(TimerDue(), now)
        partition = PartitionRecord(
            0,
            UUID,
            [1],
            [1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory_id],
            unclean_leader_epoch=3,
            suspects=[SuspectReplica(1, 0, 5)],
        )
        records = [
            encode_record(record)
            for record in (
                FeatureLevelRecord("metadata.version", METADATA_VERSION),
                TopicRecord("orders", UUID),
                partition,
                ConfigRecord(RESOURCE_TOPIC, "orders", "retention.ms", "123456"),
            )
        ]
        node.append(records, now)
        if snapshot:
            node.write_snapshot(node.high_watermark, records)
            node.append([encode_record(ConfigRecord(RESOURCE_TOPIC, "orders", "segment.ms", "654321"))], now)
        node.close()
        shutil.rmtree(broker.data / "__cluster_metadata-0")
        (broker.data / "__cluster_metadata-0").mkdir()
        for name in disk.list(FOLDER):
            file = disk.open(f"{FOLDER}/{name}")
            (broker.data / "__cluster_metadata-0" / name).write_bytes(file.read_at(0, file.size()))
        broker.start()
        said = broker.topics()
    assert f"Topic: orders\tTopicId: {UUID}\tPartitionCount: 1" in said
    assert "Configs: retention.ms=123456" in said
    assert ("segment.ms=654321" in said) is snapshot
    assert "Partition: 0\tLeader: 1\tReplicas: 1\tIsr: 1" in said
