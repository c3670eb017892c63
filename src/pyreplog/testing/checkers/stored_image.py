"""The image of a server of the quorum is the replay of its snapshot and log, also if a stored image was damaged."""

from __future__ import annotations

from pyreplog.controller import IMAGE_STORE_NAME, MetadataImage, QuorumServer
from pyreplog.errors import CorruptError, StorageError
from pyreplog.ports import Disk, Random
from pyreplog.quorum import RaftNode
from pyreplog.testing.store import damage_store
from pyreplog.wire import decode_record, encode_record

__all__ = ["compare_with_replay", "damage_at_times"]


def damage_at_times(disk: Disk, folder: str, random: Random) -> None:
    """Let a stored image lose its newest writes, all of them or a bit, before one start in three."""
    path = f"{folder}/{IMAGE_STORE_NAME}"
    if random.random() < 1 / 3 and disk.stat(path) is not None:
        damage_store(disk, path, random)


def compare_with_replay(server: QuorumServer) -> str:
    """Return how the image of ``server`` differs from a replay of what it has on its disk; "" if it does not."""
    if server.failure is not None:
        return ""
    try:
        replay = _replayed(server.raft, server.image.offset + 1)
    except (StorageError, CorruptError):
        return ""  # a fault of the disk
    if replay is None or _content(replay) == _content(server.image):
        return ""
    return f"at offset {server.image.offset} the image is not the replay of snapshot and log"


def _replayed(raft: RaftNode, end: int) -> MetadataImage | None:
    """Return the image below ``end``; None if the newest snapshot ends behind it."""
    image = MetadataImage()
    found = raft.read_snapshot()
    if found is not None:
        snapshot_id, values = found
        if snapshot_id.end_offset > end:
            return None
        for value in values:
            image.apply(snapshot_id.end_offset - 1, decode_record(value))
        image.offset = snapshot_id.end_offset - 1
    for batch in raft.storage.batches(image.offset + 1, end):
        for offset, value in enumerate(batch.records, batch.base_offset):
            if image.offset < offset < end:
                image.apply(offset, decode_record(value))
    return image


def _content(image: MetadataImage) -> list[bytes]:
    return sorted(encode_record(record) for record in image.records())
