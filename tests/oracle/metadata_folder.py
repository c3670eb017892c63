"""A node's metadata folder, written by hand: segments, snapshots, and the node's vote."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import crc32c

from pyreplog.wire import MetadataRecord
from pyreplog.wire.control_records import (
    ControlRecordValue,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control_record,
)
from pyreplog.wire.metadata_codec import encode_record
from tests.oracle import batch as oracle

TIME = 1_700_000_000_000
NAME = "__cluster_metadata-0"
DIRECTORY_ID = "Rl1nbV2tQ2-ZnZl6Y2JrAQ"
CLUSTER_ID = "Q2x1c3RlckNsdXN0ZXJDbA"
CONTROL = 32


def batch(base: int, epoch: int, records: Sequence[MetadataRecord | ControlRecordValue | bytes]) -> bytes:
    """A batch of records of one sort; bytes are the value of a metadata record."""
    pairs: list[tuple[bytes | None, bytes]] = []
    control = 0
    for record in records:
        if isinstance(record, bytes):
            pairs.append((None, record))
        elif type(record).__module__.endswith("control_records"):
            control = CONTROL
            pairs.append(encode_control_record(record))  # type: ignore[arg-type]
        else:
            pairs.append((None, encode_record(record)))  # type: ignore[arg-type]
    made = [oracle.OneRecord(base + number, TIME, *pair) for number, pair in enumerate(pairs)]
    return oracle.encode(oracle.Batch(base, epoch, control, records=made))


def leader_change(leader: int = 1) -> LeaderChangeMessage:
    """The first record of an epoch."""
    return LeaderChangeMessage(leader, [LeaderChangeVoter(leader, DIRECTORY_ID)], [])


def snapshot(epoch: int, records: Sequence[MetadataRecord], control: Sequence[ControlRecordValue] = ()) -> bytes:
    """The content of a snapshot."""
    parts = [batch(0, epoch, [SnapshotHeaderRecord(TIME), *control])]
    base = 1 + len(control)
    if records:
        parts.append(batch(base, epoch, records))
    return b"".join([*parts, batch(base + len(records), epoch, [SnapshotFooterRecord()])])


def snapshot_name(end: int, epoch: int) -> str:
    """The name of a snapshot's file."""
    return f"{end:020}-{epoch:010}.checkpoint"


def quorum_state(epoch: int, leader: int = 1, voted: int = 1) -> bytes:
    """``quorum-state`` of version 1."""
    directory = DIRECTORY_ID if voted >= 0 else "A" * 22
    fields = {"leaderId": leader, "leaderEpoch": epoch, "votedId": voted, "votedDirectoryId": directory}
    return json.dumps({**fields, "data_version": 1}, separators=(",", ":")).encode()


def voucher(epoch: int, before: bytes, *, node: int = 1, sequence: int = 1, failure: str | None = None) -> bytes:
    """``replog.quorum`` with one slot, which vouches for :func:`quorum_state` of ``epoch``."""
    content = json.dumps(
        {
            "identity": [node, DIRECTORY_ID, CLUSTER_ID],
            "before": crc32c.crc32c(before),
            "state": [epoch, 1, [1, DIRECTORY_ID]],
            "was_voter": True,
            "failure": failure,
        },
        separators=(",", ":"),
    ).encode()
    head = struct.Struct(">4sHHQI")
    checksum = crc32c.crc32c(head.pack(b"RLQS", 1, len(content), sequence, 0) + content)
    slot = (head.pack(b"RLQS", 1, len(content), sequence, checksum) + content).ljust(1024, b"\0")
    slots = [bytes(1024), bytes(1024)]
    slots[sequence % 2] = slot
    return b"".join(slots)


def write(
    root: Path,
    records: Sequence[MetadataRecord | bytes],
    *,
    start: int = 0,
    epoch: int = 1,
    snapshots: Sequence[tuple[int, int, Sequence[MetadataRecord]]] = (),
) -> Path:
    """Write the folder in ``root``: a log of one epoch from offset ``start``, a batch for each record, and
    ``snapshots`` (end, epoch, records). Return its path."""
    folder = root / NAME
    folder.mkdir(mode=0o700, parents=True)
    batches = [] if start else [batch(0, epoch, [leader_change()])]
    first = start or 1
    batches += [batch(first + number, epoch, [record]) for number, record in enumerate(records)]
    (folder / f"{start:020}.log").write_bytes(b"".join(batches))
    (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} {start}\n")
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    for end, end_epoch, held in snapshots:
        (folder / snapshot_name(end, end_epoch)).write_bytes(snapshot(end_epoch, held))
    (folder / "quorum-state").write_bytes(quorum_state(epoch))
    (folder / "replog.quorum").write_bytes(voucher(epoch, b""))
    return folder
