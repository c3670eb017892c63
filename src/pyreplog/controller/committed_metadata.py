"""The committed part of a quorum's log, as an image and as the newest records."""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.controller.image import MetadataImage
from pyreplog.controller.metadata_log import RecentRecords
from pyreplog.errors import UnsupportedVersionError
from pyreplog.quorum import RaftNode
from pyreplog.wire import MetadataRecord, OtherMetadataRecord, UnknownMetadataRecord, decode_record

__all__ = ["CommittedMetadata"]


class CommittedMetadata:
    """Follows the committed records of ``raft``, once :meth:`load` was called. One owner.

    A control record takes an offset too. In its place stands a record that changes nothing, so that
    readers see no gap.
    """

    def __init__(self, raft: RaftNode) -> None:
        self._raft = raft
        self.image = MetadataImage()
        self._recent = RecentRecords(0)
        self.bytes_since_snapshot = 0
        """The size of the records since the newest snapshot."""

    @property
    def start_offset(self) -> int:
        """The first offset whose record is kept in memory."""
        return self._recent.start_offset

    def read_from(self, offset: int) -> list[tuple[int, MetadataRecord]] | None:
        """Return the records from ``offset`` on; None if they are not kept."""
        return self._recent.read_from(offset)

    def load(self) -> None:
        """Build the image from the newest snapshot and the committed records behind it.

        Raises :class:`CorruptError`, and :class:`UnsupportedVersionError` for a record that only
        newer software knows; then the image is as before.
        """
        image = MetadataImage()
        found = self._raft.read_snapshot()
        if found is not None:
            snapshot_id, values = found
            last = snapshot_id.end_offset - 1
            for value in values:
                image.apply(last, _decoded(value, last))
            image.offset = last
        self.image = image
        self._recent = RecentRecords(image.offset + 1)
        self.bytes_since_snapshot = 0
        self.advance()
        if self._raft.is_voter:
            _ = image.index  # built now, and not when this voter becomes the active controller

    def advance(self, own: Sequence[tuple[int, MetadataRecord]] = ()) -> list[tuple[int, MetadataRecord]]:
        """Apply the records that were committed since; return them.

        ``own``: records that this process appended and still has, which need not be read again.
        """
        end = self._raft.high_watermark
        following = self.image.offset + 1
        if following >= end:
            return []
        records = _taken(own, following, end)
        if records is None:
            records = self._read(following, end)
        else:
            self.bytes_since_snapshot += 64 * len(records)  # about
        for offset, record in records:
            self.image.apply(offset, record)
        self._recent.append(records)
        return records

    def _read(self, offset: int, end: int) -> list[tuple[int, MetadataRecord]]:
        found: list[tuple[int, MetadataRecord]] = []
        for place, value in self._raft.read_committed(offset):
            if place >= end:
                break
            if isinstance(value, bytes):
                self.bytes_since_snapshot += len(value)
                found.append((place, _decoded(value, place)))
            else:
                found.append((place, OtherMetadataRecord("NoOpRecord", 0, {})))
        return found


def _taken(own: Sequence[tuple[int, MetadataRecord]], offset: int, end: int) -> list[tuple[int, MetadataRecord]] | None:
    """Return the records from ``offset`` to ``end`` of ``own``; None if it has not all of them."""
    count = end - offset
    if len(own) < count or own[0][0] != offset or own[count - 1][0] != end - 1:
        return None
    return [own[index] for index in range(count)]


def _decoded(value: bytes, offset: int) -> MetadataRecord:
    record = decode_record(value)
    if isinstance(record, UnknownMetadataRecord):
        raise UnsupportedVersionError(
            f"the metadata record at offset {offset} has type {record.api_key}, which only a newer version of pyreplog"
            " knows: open the cluster with that version"
        )
    return record
