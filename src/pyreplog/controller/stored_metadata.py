"""The metadata in a node's folder, read without its writer and without a lock.

For checks before a cluster opens, and for the recovery of a quorum whose majority is lost. It takes
everything that is sound, committed or not, because the folder alone does not say what is committed.
"""

from __future__ import annotations

from typing import NamedTuple

from pyreplog.controller.image import MetadataImage
from pyreplog.errors import CorruptError, InternalError, RemoteProtocolError
from pyreplog.log import MetadataFolder
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
    voters_offset: int
    """The offset of the record that names them; that below the log if they stand in a snapshot."""


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
    epoch, end_offset, voters_offset = base.epoch, base.end_offset, base.end_offset - 1
    log = MetadataFolder(disk, folder)
    if failure is not None and base.end_offset < log.first_offset:
        raise failure
    for batch in log.batches(base.end_offset):
        if batch.next_offset <= end_offset:
            continue
        if batch.base_offset > end_offset:
            break
        if batch.is_control:
            found = _voters_in(batch, voters)
            if found is not voters:
                voters, voters_offset = found, batch.last_offset
        else:
            for record in records_of(batch):
                if record.offset > image.offset:
                    _apply(image, record.offset, record.value or b"", folder)
        end_offset, epoch = batch.next_offset, batch.leader_epoch
        image.offset = end_offset - 1
    return StoredMetadata(image, epoch, end_offset, voters, voters_offset)


def _load_snapshot(disk: Disk, folder: str, snapshot_id: SnapshotId) -> tuple[MetadataImage, VoterSet]:
    reader = SnapshotReader(disk, folder, snapshot_id)
    try:
        voters, image = NO_VOTERS, MetadataImage()
        for entry in reader.control():
            voters = voters_of(entry) or voters
        for value in reader.records():
            _apply(image, snapshot_id.end_offset - 1, value, folder)
        return image, voters
    finally:
        reader.close()


def _apply(image: MetadataImage, offset: int, value: bytes, folder: str) -> None:
    try:
        image.apply(offset, decode_record(value))
    except (RemoteProtocolError, InternalError) as error:
        raise CorruptError(f"a record is no metadata: {error}", file=folder, offset=offset) from error


def _voters_in(batch: RecordBatch, voters: VoterSet) -> VoterSet:
    for record in control_records(batch):
        voters = voters_of(ControlEntry(record.offset, record.key, record.value or b"")) or voters
    return voters
