"""The files of a metadata folder with other content: the quorum opens it or says why not, and so does verify."""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cache
from random import Random
from typing import Final

from crc32c import crc32c

from pyreplog.controller import read_stored
from pyreplog.controller.change_codec import ChangeDecoder
from pyreplog.controller.image_loader import ImageLoader, decode_known
from pyreplog.controller.image_store import StoredEnd, StoredMark, decode_mark, encode_mark
from pyreplog.errors import CorruptError, PyreplogError
from pyreplog.log.cluster_metadata import metadata_body, newest_metadata
from pyreplog.quorum import RaftNode, TimerDue, find_voter_damage
from pyreplog.quorum.snapshots import SnapshotReader, list_snapshots, parse_snapshot_name
from pyreplog.quorum.state_file import decode_state
from pyreplog.testing import SimDisk
from pyreplog.verify import verify
from pyreplog.verify.metadata_records import BadRecord, MetadataState
from pyreplog.wire import PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord, encode_record
from tests.faults.fuzz.mutate import seal_batch
from tests.faults.fuzz.target import Target
from tests.unit.quorum.quorum_net import FOLDER, QuorumNet, address_of_node

_KINDS: Final = 8
_STATE, _VOUCHER, _LOG, _SNAPSHOT, _NAME, _RECORD, _MARK, _IMAGE = range(_KINDS)
_ENDINGS: Final = {_STATE: "quorum-state", _VOUCHER: "replog.quorum", _LOG: ".log", _SNAPSHOT: ".checkpoint"}
_SLOT_SIZE: Final = 1024
_HEAD_SIZE: Final = 20
_CRC: Final = slice(16, 20)
TOPIC_ID: Final = "x8eZxIiI6FzqjrRRbN2Wdw"
RECORDS: Final = [
    encode_record(record)
    for record in (
        RegisterBrokerRecord(1, TOPIC_ID, 3),
        TopicRecord("orders", TOPIC_ID),
        PartitionRecord(0, TOPIC_ID, [1], [1], leader=1, leader_epoch=0, partition_epoch=0),
    )
]
CHANGE: Final = encode_record(PartitionChangeRecord(0, TOPIC_ID, [1], 1))


@cache
def _net() -> QuorumNet:
    """One voter with a log and a snapshot."""
    net = QuorumNet(1)
    net.advance(0)
    net.append(*RECORDS)
    net.leader.write_snapshot(net.leader.high_watermark, RECORDS)
    net.append(RECORDS[1])
    net.leader.close()
    return net


def _path(disk: SimDisk, kind: int) -> str:
    return next(f"{FOLDER}/{name}" for name in disk.list(FOLDER) if name.endswith(_ENDINGS[kind]))


def _seeds() -> list[bytes]:
    disk = _net().disks[1]
    found = []
    for kind in _ENDINGS:
        file = disk.open(_path(disk, kind))
        found.append(bytes([kind]) + bytes(file.read_at(0, file.size())))
    names = (b"00000000000000000003-0000000005.checkpoint", b"1-2.checkpoint", b"\xc2\xb2")
    found += [bytes([_NAME]) + name for name in names]
    found += [bytes([_RECORD]) + record for record in RECORDS]
    found += [bytes([_IMAGE]) + record for record in (*RECORDS, CHANGE)]
    return [*found, bytes([_MARK]) + encode_mark(StoredMark(StoredEnd(5, 1), 3, 7))]


def _seal(data: bytes, chance: Random) -> bytes:
    """Most of the time: the checksums set right."""
    if not data or chance.random() < 0.25:
        return data
    kind = data[0] % _KINDS
    if kind in (_LOG, _SNAPSHOT):
        return data[:1] + seal_batch(data[1:], chance)
    if kind != _VOUCHER:
        return data
    out = bytearray(data[1:])
    for start in (0, _SLOT_SIZE):
        head = out[start : start + _HEAD_SIZE]
        if len(head) == _HEAD_SIZE:
            (size,) = struct.unpack_from(">H", head, 6)
            head[_CRC] = bytes(4)
            checksum = crc32c(bytes(head) + out[start + _HEAD_SIZE : start + _HEAD_SIZE + size])
            out[start + 16 : start + 20] = checksum.to_bytes(4, "big")
    return data[:1] + bytes(out)


def _run(data: bytes) -> object:
    if not data:
        return None
    kind, content = data[0] % _KINDS, data[1:]
    if kind == _NAME:
        return parse_snapshot_name(content.decode("utf-8", "replace")) is not None
    if kind == _RECORD:
        try:
            MetadataState().apply(content)
        except BadRecord:
            return "bad"
        return "record"
    if kind == _MARK:
        return decode_mark(content) is not None
    if kind == _IMAGE:
        decoder = ChangeDecoder()
        decoder.decode(CHANGE, 0)
        assert decoder.decode(content, 0) == decode_known(content, 0)
        loader = ImageLoader(5)
        for record in (RECORDS[1], content):
            loader.add(record)
        return sorted(loader.image.topic_ids)
    if kind == _STATE:
        try:
            decode_state(content, "x")
        except CorruptError:
            pass
    net = _net()
    disk = net.disks[1].snapshot()
    file = disk.open(_path(disk, kind), write=True)
    file.truncate(0)
    file.write_at(0, [content])
    file.close()
    assert newest_metadata(disk, ["node"]) == "node"
    metadata_body(disk, "node", "cluster")
    findings = min(len(verify(disk, "node").findings), 3)
    for snapshot_id in list_snapshots(disk, FOLDER):
        reader = SnapshotReader(disk, FOLDER, snapshot_id)
        try:
            reader.check()
        except CorruptError:
            assert findings, "verify must see what the reader refuses"
    with suppress(CorruptError):
        read_stored(disk, FOLDER)
    damage = find_voter_damage(disk, FOLDER, net.identities[1])
    endpoint = address_of_node(1)
    node = RaftNode.open(
        disk, FOLDER, net.identities[1], net.config, net.clock, Random(1), endpoint=endpoint, now_ns=net.now
    )
    assert (damage is None) == (node.voter_failure is None), (damage, node.voter_failure)
    node.step(TimerDue(), net.now)
    return kind, findings, node.is_leader, bool(node.voter_failure)


QUORUM: Final = Target("quorum", _seeds, _run, (PyreplogError,), 2, _seal)
