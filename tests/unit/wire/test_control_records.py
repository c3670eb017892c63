"""Control records as bytes: Kafka's own, ours, and hostile ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.errors import LocalProtocolError, RemoteProtocolError
from pyreplog.wire import KRaftVersionFeature, QuorumEndpoint
from pyreplog.wire.control_records import (
    ControlRecordValue,
    EndTransactionMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    UnknownControlRecord,
    VotersRecord,
    VotersRecordVoter,
    decode_control_record,
    encode_control_record,
)

ONE = "AAAAAAAAAAAAAAAAAAAAAQ"
CASES: list[tuple[ControlRecordValue, str, str]] = [
    (EndTransactionMarker(False, 7), "0000 0000", "0000 00000007"),
    (EndTransactionMarker(True, -1), "0000 0001", "0000 ffffffff"),
    (
        LeaderChangeMessage(1, [LeaderChangeVoter(1), LeaderChangeVoter(2)], [LeaderChangeVoter(1)]),
        "0000 0002",
        "0000 00000001 03 00000001 00 00000002 00 02 00000001 00 00",
    ),
    (
        LeaderChangeMessage(1, [LeaderChangeVoter(1, ONE)], [], version=1),
        "0000 0002",
        "0001 00000001 02 00000001 00000000000000000000000000000001 00 01 00",
    ),
    (SnapshotHeaderRecord(258), "0000 0003", "0000 0000000000000102 00"),
    (SnapshotFooterRecord(), "0000 0004", "0000 00"),
    (KRaftVersionRecord(1), "0000 0005", "0000 0001 00"),
    (
        VotersRecord([VotersRecordVoter(3, ONE, [QuorumEndpoint("C", "h", 65535)], KRaftVersionFeature(0, 1))]),
        "0000 0006",
        "0000 02 00000003 00000000000000000000000000000001 02 02 43 02 68 ffff 00 0000 0001 00 00 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), CASES, ids=range(len(CASES)))
def test_bytes(record: ControlRecordValue, key: str, value: str) -> None:
    """Each record has Kafka's bytes, and is read from them; cut anywhere it is refused."""
    assert encode_control_record(record) == (bytes.fromhex(key), bytes.fromhex(value))
    assert decode_control_record(bytes.fromhex(key), bytes.fromhex(value)) == record
    for size in range(len(bytes.fromhex(value))):
        with pytest.raises(RemoteProtocolError):
            decode_control_record(bytes.fromhex(key), bytes.fromhex(value)[:size])
    for size in range(4):
        with pytest.raises(RemoteProtocolError):
            decode_control_record(bytes.fromhex(key)[:size], bytes.fromhex(value))


@pytest.mark.parametrize(("key", "value"), [("0000 0007", "0000"), ("0000 0005", "0001 0001 00")])
def test_unknown_records_keep_their_bytes(key: str, value: str) -> None:
    """A type or version of newer software is a value with its bytes."""
    record = decode_control_record(bytes.fromhex(key), bytes.fromhex(value))
    assert isinstance(record, UnknownControlRecord)
    assert encode_control_record(record) == (bytes.fromhex(key), bytes.fromhex(value))


@settings(max_examples=300)
@given(st.integers(0, 8), st.none() | st.binary(max_size=60))
def test_any_bytes(number: int, value: bytes | None) -> None:
    """Any bytes are a record or a RemoteProtocolError."""
    try:
        decode_control_record(bytes([0, 0, 0, number]), value)
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize("record", [KRaftVersionRecord(1, version=1), KRaftVersionRecord(1 << 20), object()])
def test_what_does_not_fit(record: Any) -> None:
    """A value that does not fit its type or version is refused."""
    with pytest.raises(LocalProtocolError):
        encode_control_record(record)


@pytest.mark.parametrize(("key", "value"), [(b"\xff\xff\0\0", b"\0\0\0\0\0\0"), (b"\0\0\0\5", b"\xff\xff\0\0\0")])
def test_negative_versions(key: bytes, value: bytes) -> None:
    """A negative version is damage."""
    with pytest.raises(RemoteProtocolError, match="version -1"):
        decode_control_record(key, value)
