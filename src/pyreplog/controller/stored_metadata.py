"""The metadata in a node's folder, read without its writer and without a lock.

For checks before a cluster opens, and for the recovery of a quorum whose majority is lost. It takes
everything that is sound, committed or not, because the folder alone does not say what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyreplog.controller.image import MetadataImage
from pyreplog.errors import CorruptError
from pyreplog.log import LOG_SUFFIX, read_whole
from pyreplog.ports import Disk
from pyreplog.quorum import NO_VOTERS, ControlEntry, SnapshotReader, VoterSet, list_snapshots, voters_of
from pyreplog.record import RecordBatch, control_records, records_of
from pyreplog.wire import SnapshotId, decode_record

__all__ = ["StoredMetadata", "read_stored"]


class StoredMetadata(NamedTuple):
    """The state that one folder holds."""

    image: MetadataImage
    epoch: int
    """The epoch of the last record; 0 if there is none."""
    end_offset: int
    """The offset behind the last sound record."""
    voters: VoterSet


def read_stored(disk: Disk, folder: str) -> StoredMetadata | None:
    """Return the metadata in ``folder`` (``.../__cluster_metadata-0``); None if there is no such folder.

    Damage ends the log there: the state is that of the sound records before it. Raises
    :class:`CorruptError` if no snapshot that the log needs can be read, and :class:`StorageError`.
    """
    if disk.stat(folder) is None:
        return None
    image, voters, base = MetadataImage(), NO_VOTERS, SnapshotId(0, 0)
    failure: CorruptError | None = None
    for snapshot_id in reversed(list_snapshots(disk, folder)):
        try:
            image, voters = _load_snapshot(disk, folder, snapshot_id)
        except CorruptError as error:
            failure = error  # an older one may do
            continue
        base = snapshot_id
        break
    image.offset = base.end_offset - 1
    epoch, end_offset = base.epoch, base.end_offset
    for batch in _batches(disk, folder):
        if batch.next_offset <= end_offset:
            continue
        if batch.base_offset > end_offset:
            if failure is not None:
                raise failure
            break
        if batch.is_control:
            voters = _voters_in(batch, voters)
        else:
            for record in records_of(batch):
                if record.offset > image.offset:
                    image.apply(record.offset, decode_record(record.value or b""))
        end_offset, epoch = batch.next_offset, batch.leader_epoch
        image.offset = end_offset - 1
    return StoredMetadata(image, epoch, end_offset, voters)


def _load_snapshot(disk: Disk, folder: str, snapshot_id: SnapshotId) -> tuple[MetadataImage, VoterSet]:
    reader = SnapshotReader(disk, folder, snapshot_id)
    try:
        voters, image = NO_VOTERS, MetadataImage()
        for entry in reader.control():
            voters = voters_of(entry) or voters
        for value in reader.records():
            image.apply(snapshot_id.end_offset - 1, decode_record(value))
        return image, voters
    finally:
        reader.close()


def _batches(disk: Disk, folder: str) -> Iterator[RecordBatch]:
    """Return the sound batches of the log, in order, up to the first damage."""
    for name in disk.list(folder):
        if not name.endswith(LOG_SUFFIX):
            continue
        data = read_whole(disk, f"{folder}/{name}") or b""
        position = 0
        while position < len(data):
            try:
                batch = RecordBatch(data, position)
                batch.check_crc()
            except CorruptError:
                return
            yield batch
            position += batch.size


def _voters_in(batch: RecordBatch, voters: VoterSet) -> VoterSet:
    for record in control_records(batch):
        voters = voters_of(ControlEntry(record.offset, record.key, record.value or b"")) or voters
    return voters
