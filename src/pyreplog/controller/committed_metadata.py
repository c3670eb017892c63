"""The committed part of a quorum's log, as an image and as the newest records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyreplog.controller.change_codec import ChangeDecoder
from pyreplog.controller.image import MetadataImage
from pyreplog.controller.image_loader import ImageLoader
from pyreplog.controller.image_store import ImageStore, StoredEnd
from pyreplog.controller.metadata_counts import MetadataCounts
from pyreplog.controller.metadata_log import RecentRecords
from pyreplog.quorum import RaftNode
from pyreplog.wire import (
    MetadataRecord,
    OtherMetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)

__all__ = ["CommittedMetadata"]

_RECORD_SIZE: Final = 80
"""About the size of a partition's record in a snapshot."""
_LONG: Final = 10_000
"""Records that are read before they are applied; more are not in memory at once."""
_MANY: Final = 64
"""So many records, and one more for every other topic, cost more to apply than a copy of the image."""


class CommittedMetadata:
    """Follows the committed records of ``raft``, once :meth:`load` was called. One owner.

    A control record takes an offset too. In its place stands a record that changes nothing, so that
    readers see no gap. ``store`` keeps a large image; None: no image is stored.
    """

    def __init__(self, raft: RaftNode, store: ImageStore | None = None) -> None:
        self._raft = raft
        self._store = store
        self._may_grow = store is not None
        """Whether a store may still be made for an image that has become large."""
        self._record_count = 0
        """About the number of records that restate the image."""
        self._decoder = ChangeDecoder()
        self.image = MetadataImage()
        self.counts: MetadataCounts | None = None
        """Counts the records that are committed from now on; None: nothing counts them."""
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
        self._record_count = self._estimate()
        image = None
        if self._store is not None and self._record_count >= self._store.records_min:
            self._may_grow = False
            image = self._store.load(self._has)
        if image is None:
            image = self._load_snapshot()
        self.image = image
        self._recent = RecentRecords(image.offset + 1)
        self.bytes_since_snapshot = 0
        self.advance()
        if self._store is not None and self._store.is_empty:
            self._store.build(self.image, self._end_at(self.image.offset))
        if self._raft.is_voter:
            _ = self.image.index  # built now, and not when this voter becomes the active controller

    def _load_snapshot(self) -> MetadataImage:
        found = self._raft.read_snapshot()
        if found is None:
            return MetadataImage()
        snapshot_id, values = found
        loader = ImageLoader(snapshot_id.end_offset - 1)
        for value in values:
            loader.add(value)
        loader.image.offset = snapshot_id.end_offset - 1
        return loader.image

    def advance(
        self, own: Sequence[tuple[int, MetadataRecord]] = (), working: MetadataImage | None = None
    ) -> list[tuple[int, MetadataRecord]]:
        """Apply the records that were committed since; return them, or the last ones of very many.

        ``own``: records that this process appended and still has, which need not be read again.
        ``working``: the committed image after all of ``own``. If all of them are committed, and they
        are many, this image becomes a copy of it.
        """
        end = self._raft.high_watermark
        following = self.image.offset + 1
        if following >= end:
            return []
        records = _taken(own, following, end)
        if records is None:
            return self._catch_up(following, end)
        self.bytes_since_snapshot += 64 * len(records)  # about
        if self.counts is not None:
            self.counts.note(self.image, records)
        copy = None
        if working is not None and working.offset == end - 1 and len(records) == len(own):
            copy = self._copied(working, records)
        if copy is None:
            self._apply(records)
        else:
            self.image = copy
            self._note(records)
        return records

    def _copied(self, working: MetadataImage, records: Sequence[tuple[int, MetadataRecord]]) -> MetadataImage | None:
        """Return a copy of ``working``, the image after ``records``; None if they must be applied one by one."""
        if len(records) < _MANY + len(working.topics) // 2:
            return None
        if self._store is None or not self._store.is_open:
            return working.copy()
        # The store takes each part of the image as its record left it, and a copy has the last
        # state of each.
        if not _are_apart(records):
            return None
        copy = working.copy()
        for offset, record in records:
            self._store.note(copy, record, self._end_at(offset))
        return copy

    def _catch_up(self, offset: int, end: int) -> list[tuple[int, MetadataRecord]]:
        """Read and apply the records below ``end``, some at a time; return the last ones."""
        is_long = end - offset >= _LONG
        if is_long:
            self.image.drop_index()  # it is faster to build than to change for each record
        found: list[tuple[int, MetadataRecord]] = []
        for place, value in self._raft.read_committed(offset):
            if place >= end:
                break
            if isinstance(value, bytes):
                self.bytes_since_snapshot += len(value)
                found.append((place, self._decoder.decode(value, place)))
            else:
                found.append((place, OtherMetadataRecord("NoOpRecord", 0, {})))
            if len(found) == _LONG:
                self._count_and_apply(found)
                found = []
        self._count_and_apply(found)
        if is_long and self._raft.is_voter:
            _ = self.image.index
        return found

    def _count_and_apply(self, records: Sequence[tuple[int, MetadataRecord]]) -> None:
        if self.counts is not None:
            self.counts.note(self.image, records)
        self._apply(records)

    def _apply(self, records: Sequence[tuple[int, MetadataRecord]]) -> None:
        store = self._store
        if store is not None and store.is_open:
            for offset, record in records:
                self.image.apply(offset, record)
                store.note(self.image, record, self._end_at(offset))
        else:
            for offset, record in records:
                self.image.apply(offset, record)
        self._note(records)

    def _note(self, records: Sequence[tuple[int, MetadataRecord]]) -> None:
        """Keep records that are applied, and make a store for an image that has become large."""
        store = self._store
        self._recent.append(records)
        self._record_count += len(records)
        if self._may_grow and store is not None and self._record_count >= store.records_min:
            self._may_grow = False
            store.load(lambda _: False)  # a store from earlier counts for nothing
            store.build(self.image, self._end_at(self.image.offset))

    # --------------------------------------------------------------------------------- stored image

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`work` has something to do."""
        return None if self._store is None else self._store.next_wake_ns

    def work(self, now_ns: int) -> None:
        """Write a slice of the stored image, if it is due."""
        if self._store is not None:
            self._store.work(self.image, now_ns)

    def close(self) -> None:
        """Bring the stored image up to date, and close it."""
        if self._store is not None:
            self._store.close(self.image)

    def kill(self) -> None:
        """Close the stored image as it is."""
        if self._store is not None:
            self._store.kill()

    def _estimate(self) -> int:
        """Return about how many records snapshot and log have."""
        latest = self._raft.latest_snapshot
        if latest is None:
            return self._raft.log_end_offset
        size = self._raft.storage.snapshot_size(latest) or 0
        return size // _RECORD_SIZE + self._raft.log_end_offset - latest.end_offset

    def _end_at(self, offset: int) -> StoredEnd:
        """Return the place of the record at ``offset``."""
        latest = self._raft.latest_snapshot
        if latest is not None and offset == latest.end_offset - 1:
            return StoredEnd(offset, latest.epoch)
        return StoredEnd(offset, self._raft.storage.epoch_for_offset(offset))

    def _has(self, end: StoredEnd) -> bool:
        """Return whether snapshot or log has the record at ``end``, and the log goes on behind it."""
        if self._raft.storage.start_offset > end.offset + 1 or end.offset >= self._raft.log_end_offset:
            return False
        return end.epoch >= 0 and self._end_at(end.offset) == end


def _are_apart(records: Sequence[tuple[int, MetadataRecord]]) -> bool:
    """Return whether all records are about different partitions, but for one that removes no topic."""
    keys = set()
    others = 0
    for _, record in records:
        if isinstance(record, PartitionChangeRecord | PartitionRecord):
            keys.add((record.topic_id, record.partition_id))
        else:
            others += 1
            if isinstance(record, RemoveTopicRecord):
                return False
    return others <= 1 and others + len(keys) == len(records)


def _taken(own: Sequence[tuple[int, MetadataRecord]], offset: int, end: int) -> list[tuple[int, MetadataRecord]] | None:
    """Return the records from ``offset`` to ``end`` of ``own``; None if it has not all of them."""
    count = end - offset
    if len(own) < count or own[0][0] != offset or own[count - 1][0] != end - 1:
        return None
    return [own[index] for index in range(count)]
