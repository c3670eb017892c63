"""Metadata records as bytes: every kind at every version, and what is not one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.errors import LocalProtocolError, RemoteProtocolError
from pyreplog.wire.metadata import (
    NO_LEADER_CHANGE,
    OtherMetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    SuspectReplica,
    TopicRecord,
    UnknownMetadataRecord,
)
from pyreplog.wire.metadata_codec import decode_record, describe_record, encode_record, record_frame
from pyreplog.wire.metadata_layouts import RECORD_CLASSES, RECORD_KINDS, RECORD_LAYOUTS
from tests.unit.wire.values import plain, values

CASES = [(key, version) for key, kind in RECORD_KINDS.items() for version in range(kind.newest + 1)]
TOPIC_ID = "x8eZxIiI6FzqjrRRbN2Wdw"


def records(key: int, version: int) -> st.SearchStrategy[Any]:
    """Records of a kind that fit a version."""
    name = RECORD_KINDS[key].name
    found = values(name, version=version)
    if name in RECORD_CLASSES:
        return found
    return found.map(lambda fields: OtherMetadataRecord(name, version, fields))


@pytest.mark.parametrize(("key", "version"), CASES, ids=[f"{RECORD_KINDS[key].name}-{v}" for key, v in CASES])
@settings(max_examples=10)
@given(data=st.data())
def test_round_trip(key: int, version: int, data: st.DataObject) -> None:
    """Every kind comes back at every version as it went in, and is described under its name."""
    record = data.draw(records(key, version))
    encoded = encode_record(record, version)
    assert plain(decode_record(encoded)) == plain(record)
    assert record_frame(encoded) == (RECORD_KINDS[key].name, key, version)
    described = describe_record(encoded)
    assert isinstance(described, OtherMetadataRecord)
    assert encode_record(described, version) == encoded
    for size in range(len(encoded)):
        with pytest.raises(RemoteProtocolError):
            decode_record(encoded[:size])
    with pytest.raises(RemoteProtocolError, match="1 bytes too many"):
        decode_record(encoded + b"\0")


def test_bytes_of_a_change() -> None:
    """The bytes are Kafka's: frame, type, version, fields in order, tagged fields."""
    change = PartitionChangeRecord(1, "A" * 22, isr=[2], leader=3)
    assert encode_record(change).hex(" ") == (
        "01 05 02 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 02 00 05 02 00 00 00 02 01 04 00 00 00 03"
    )


@pytest.mark.parametrize("encoded", [bytes([1, 77, 0, 1, 2]), bytes([1, 2, 9, 1, 2]), bytes([1, 6, 0])])
def test_unknown_records_keep_their_bytes(encoded: bytes) -> None:
    """A type or version of newer software is a value with its bytes, and is written as it was."""
    record = decode_record(encoded)
    assert record == UnknownMetadataRecord(encoded[1], encoded[2], encoded)
    assert describe_record(encoded) == record
    assert encode_record(record) == encoded
    assert record_frame(encoded).kind == ""


def test_unknown_tags_are_described_and_passed_on() -> None:
    """Tagged fields that nothing here knows are skipped in a class, and kept in a description."""
    encoded = encode_record(TopicRecord("t", TOPIC_ID))[:-1] + bytes([2, 5, 3]) + b"abc" + bytes([9, 0])
    assert decode_record(encoded) == TopicRecord("t", TOPIC_ID)
    described = describe_record(encoded)
    assert isinstance(described, OtherMetadataRecord)
    assert described.fields["unknown_tagged_fields"] == {5: b"abc", 9: b""}
    assert encode_record(described) == encoded


def test_suspects_are_tagged_fields_of_ours() -> None:
    """Suspects survive; none of them costs no byte; a change tells "unchanged" from "cleared"."""
    suspects = [SuspectReplica(2, -2, 0), SuspectReplica(3, 7, 1 << 40)]
    whole = PartitionRecord(0, TOPIC_ID, [2, 3], [2, 3], suspects=suspects, unclean_leader_epoch=4)
    assert plain(decode_record(encode_record(whole))) == plain(whole)
    assert len(encode_record(whole)) > len(encode_record(PartitionRecord(0, TOPIC_ID, [2, 3], [2, 3]))) + 40
    for given_suspects in (None, [], suspects):
        change = PartitionChangeRecord(0, TOPIC_ID, suspects=given_suspects)
        decoded = decode_record(encode_record(change))
        assert isinstance(decoded, PartitionChangeRecord)
        assert decoded.suspects == given_suspects
        assert decoded.leader == NO_LEADER_CHANGE


def test_a_field_that_the_version_lacks() -> None:
    """A field that is set and that the version cannot hold is refused by name."""
    record = RegisterBrokerRecord(1, TOPIC_ID, 5, cordoned_log_dirs=[TOPIC_ID])
    with pytest.raises(LocalProtocolError, match="RegisterBrokerRecord.cordoned_log_dirs .* version 3"):
        encode_record(record)
    assert decode_record(encode_record(record, 4)) == plain_lists(record)
    with pytest.raises(LocalProtocolError, match="versions 0 to 4, not 5"):
        encode_record(record, 5)
    with pytest.raises(LocalProtocolError, match="missing"):
        encode_record(OtherMetadataRecord("ZkMigrationRecord", 0, {}))
    with pytest.raises(LocalProtocolError, match="is not a metadata record"):
        encode_record(OtherMetadataRecord("FooRecord", 0, {}))


def plain_lists(record: RegisterBrokerRecord) -> RegisterBrokerRecord:
    """The record with lists for its empty arrays, as it is read."""
    record.end_points, record.features = [], []
    return record


def test_another_frame_is_no_record() -> None:
    """Only frame version 1 is a record; empty bytes are none."""
    with pytest.raises(RemoteProtocolError, match="frame version 2"):
        decode_record(bytes([2, 2, 0]))
    with pytest.raises(RemoteProtocolError):
        decode_record(b"")


@settings(max_examples=300)
@given(st.sampled_from(sorted(RECORD_KINDS)), st.integers(0, 4), st.binary(max_size=120))
def test_any_bytes(key: int, version: int, data: bytes) -> None:
    """Any bytes are a record or a RemoteProtocolError."""
    for parse in (decode_record, describe_record):
        try:
            parse(bytes([1, key, version]) + data)
        except RemoteProtocolError:
            pass


def test_each_struct_of_the_table_is_used() -> None:
    """Every line belongs to a kind, or to a struct that a line names."""
    named = {kind.name for kind in RECORD_KINDS.values()}
    text = " ".join(RECORD_LAYOUTS.values())
    assert all(name in named or f"[{name}]" in text for name in RECORD_LAYOUTS)
