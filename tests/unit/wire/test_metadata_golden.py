"""Metadata records as brokers wrote them: read, and written again to the very same bytes."""

from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyreplog.record import control_records, records_of, split
from pyreplog.wire import LOCAL_TAGS
from pyreplog.wire.control_records import LeaderChangeMessage, decode_control_record, encode_control_record
from pyreplog.wire.metadata import OtherMetadataRecord, UnknownMetadataRecord
from pyreplog.wire.metadata_codec import decode_record, describe_record, encode_record, record_frame
from tests.interop.golden import units

UNITS = ("clean-3.9.1", "clean-4.1.0", "clean-4.3.1", "cluster-3.9.1/n1", "cluster-4.1.0/n1", "cluster-4.3.1/n1")


def files_of(unit: str) -> list[Path]:
    """The segments and snapshots of a unit's metadata log, and its bootstrap snapshot."""
    data = units.unit(unit) / "data"
    found = [*(data / "__cluster_metadata-0").iterdir(), data / "bootstrap.checkpoint"]
    return sorted(path for path in found if path.suffix in {".log", ".checkpoint"} and path.exists())


def records_in(path: Path) -> list[tuple[bool, int, bytes, bytes]]:
    """(is control, offset, key, value) of each record."""
    found = []
    for batch in split(path.read_bytes()):
        batch.check_crc()
        for record in control_records(batch) if batch.is_control else records_of(batch):
            found.append((batch.is_control, record.offset, bytes(record.key or b""), bytes(record.value or b"")))
    return found


@pytest.mark.parametrize("unit", UNITS)
def test_what_brokers_wrote(unit: str) -> None:
    """Every record and control record is read, and written again gives the broker's bytes."""
    kinds: Counter[str] = Counter()
    for path in files_of(unit):
        for is_control, _, key, value in records_in(path):
            if is_control:
                record = decode_control_record(key, value)
                assert encode_control_record(record) == (key, value)
                kinds[type(record).__name__] += 1
            else:
                kind, _, version = record_frame(value)
                kinds[kind] += 1
                assert not isinstance(decode_record(value), UnknownMetadataRecord)
                assert encode_record(decode_record(value), version) == value
                assert encode_record(describe_record(value)) == value
    for kind in ("TopicRecord", "PartitionRecord", "RegisterBrokerRecord", "LeaderChangeMessage"):
        assert kinds[kind] > 0
    assert "UnknownControlRecord" not in kinds


def snake(name: str) -> str:
    """A field's name of Kafka's in snake case."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def same(theirs: Any, ours: Any) -> bool:
    """Whether Kafka's JSON says what our fields say; it leaves out tagged fields at their defaults."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        extra = set(ours) - {snake(name) for name in theirs} - {name for _, name in LOCAL_TAGS}
        return all(same(value, ours[snake(name)]) for name, value in theirs.items()) and all(
            ours[name] in (None, (), 0, -1, -2) for name in extra
        )
    if isinstance(theirs, list):
        return len(theirs) == len(ours) and all(map(same, theirs, ours))
    if isinstance(ours, bytes):
        return base64.b64decode(theirs) == ours
    return bool(theirs == ours)


@pytest.mark.parametrize("unit", UNITS)
def test_what_brokers_meant(unit: str) -> None:
    """Each record says what Kafka's own decoder says, to the last field."""
    listing = units.unit(unit) / "decoded-__cluster_metadata-0.ndjson"
    if not listing.exists():
        pytest.skip("Kafka's decoding is in the whole set only: REPLOG_FIXTURES=")
    check_decoded(listing, units.unit(unit) / "data" / "__cluster_metadata-0")


def check_decoded(listing: Path, folder: Path) -> None:
    """Compare each line of Kafka's decoding with the record in its file."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in listing.read_text().splitlines()]
    found = {
        name: {offset: (key, value) for _, offset, key, value in records_in(folder / name)}
        for name in {line["file"] for line in lines}
    }
    assert len(lines) == sum(map(len, found.values()))
    for line in lines:
        key, value = found[line["file"]][line["offset"]]
        if "LeaderChange" in line:
            check_leader_change(json.loads(line["LeaderChange"]), key, value)
        elif "payload" in line:
            check_payload(line["payload"], value)
        else:
            decode_control_record(key, value)


def check_payload(payload: dict[str, Any], value: bytes) -> None:
    """Compare Kafka's decoding of one metadata record with ours."""
    record = describe_record(value)
    assert isinstance(record, OtherMetadataRecord)
    assert snake(record.kind) == payload["type"].lower().replace("zk_migration_state_", "zk_migration_")
    assert record.version == payload["version"]
    assert same(payload["data"], record.fields), (payload, record)


def check_leader_change(said: dict[str, Any], key: bytes, value: bytes) -> None:
    """Compare Kafka's decoding of one LeaderChange with ours."""
    record = decode_control_record(key, value)
    assert isinstance(record, LeaderChangeMessage)
    assert (record.version, record.leader_id) == (said["version"], said["leaderId"])
    for ours, theirs in ((record.voters, said["voters"]), (record.granting_voters, said["grantingVoters"])):
        assert [voter.voter_id for voter in ours] == [voter["voterId"] for voter in theirs]


def test_what_brokers_meant_in_a_sample() -> None:
    """One record of each type, version and set of fields says what Kafka's decoder says; its bytes come back."""
    lines = [json.loads(line) for line in (units.HERE / "metadata_records.ndjson").read_text().splitlines()]
    kinds = set()
    for line in lines:
        value = base64.b64decode(line["value"])
        if "key" in line:
            key = base64.b64decode(line["key"])
            check_leader_change(line["decoded"], key, value)
            assert encode_control_record(decode_control_record(key, value)) == (key, value)
        else:
            check_payload(line["decoded"], value)
            assert encode_record(decode_record(value), line["decoded"]["version"]) == value
            kinds.add((line["decoded"]["type"], line["decoded"]["version"]))
    assert len(kinds) == 20
