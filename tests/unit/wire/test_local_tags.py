"""The messages that tell which replicas are out of sync, byte for byte: the tags are our own, so no other software has
them."""

from __future__ import annotations

from typing import Any

import pytest

from pyreplog.wire import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    DescribeTopicPartitionsPartition,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersTopic,
    LagReason,
    LostOffsets,
    OutOfSyncReplica,
    PartitionFilter,
    ReplicaLag,
)
from pyreplog.wire.binary import Reader, Writer
from pyreplog.wire.codec import decode_value, encode_value

ID = "AAAAAAAAAAAAAAAAAAAAAg"
ID_HEX = "00000000000000000000000000000002"
CASES: list[tuple[Any, str]] = [
    (
        BrokerHeartbeatRequest(
            3, 7, 90, replica_lags=[ReplicaLag(ID, 1, 4, 2, LagReason.SLOW, 1000, 2500), ReplicaLag(ID, 2, -1, 5)]
        ),
        "000000030000000000000007000000000000005a0000"
        "01c24e6d03"
        f"{ID_HEX}00000001000000040000000203" + "00000000000003e8" + "00000000000009c4" + "f" * 16 + "00"
        f"{ID_HEX}00000002ffffffff0000000500" + "f" * 16 + "0" * 16 + "f" * 16 + "00",
    ),
    (
        BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, controller_epoch=6),
        "000000000000" + "010000" + "01c84e0400000006",
    ),
    (DescribeTopicPartitionsRequest(["t"], state=PartitionFilter.OFFLINE), "0202740000" + "0007d0ff" + "01c34e0104"),
    (
        ElectLeadersRequest(1, [ElectLeadersTopic("t", [0])], dry_run=True),
        "01020274020000000000" + "0000ea60" + "01cf4e0101",
    ),
    (
        ElectLeadersPartitionResult(
            3, leader_id=2, leader_epoch=5, lost=[LostOffsets(7, 9, certain=True), LostOffsets(9, -1, certain=False)]
        ),
        "00000003000000"
        "03c94e0400000002ca4e0400000005cb4e2503"
        + "00000000000000070000000000000009"
        + "0100"
        + "0000000000000009"
        + "f" * 16
        + "0000",
    ),
    (
        DescribeTopicPartitionsResponse(
            [
                DescribeTopicPartitionsTopic(
                    "t",
                    ID,
                    [
                        DescribeTopicPartitionsPartition(
                            0,
                            1,
                            4,
                            [1, 2],
                            [1],
                            [],
                            [],
                            [2],
                            partition_epoch=9,
                            out_of_sync=[OutOfSyncReplica(2, LagReason.STUCK, 5, 3000)],
                            min_isr=1,
                        )
                    ],
                )
            ],
            metadata_offset=33,
            controller_epoch=6,
        ),
        f"000000000200000274{ID_HEX}0002"
        "0000000000000000000100000004" + "030000000100000002" + "0200000001" + "0101" + "0200000002"
        "03c44e0400000009"
        "c54e1f02000000020200000000000000050000000000000bb8" + "f" * 16 + "00"
        "c74e0400000001"
        "8000000000ff" + "029b4e080000000000000021c64e0400000006",
    ),
]


@pytest.mark.parametrize(("value", "data"), CASES, ids=[type(value).__name__ for value, _ in CASES])
def test_golden(value: Any, data: str) -> None:
    """The value is written as these bytes, and read from them."""
    out = Writer()
    encode_value(out, value)
    assert b"".join(bytes(memoryview(part)) for part in out.parts()).hex() == data
    assert decode_value(Reader(bytes.fromhex(data)), type(value)) == value
