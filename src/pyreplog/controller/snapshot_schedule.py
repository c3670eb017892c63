"""When a server of the quorum writes a snapshot, and how: from the committed image, in slices, so
that no step of the driver takes long."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

from pyreplog.controller.committed_metadata import CommittedMetadata
from pyreplog.controller.image_entries import ImageEntries
from pyreplog.errors import StorageError
from pyreplog.quorum import QuorumConfig, RaftNode, SnapshotInProgress

__all__ = ["SnapshotSchedule"]

SLICE: Final = 500
"""Records that one step writes."""
RETRY_NS: Final = 60_000_000_000
_MS: Final = 1_000_000

_log = logging.getLogger("pyreplog")


class SnapshotSchedule:
    """The snapshots that one server writes. One owner."""

    def __init__(self, raft: RaftNode, committed: CommittedMetadata, config: QuorumConfig, now_ns: int) -> None:
        self._raft = raft
        self._committed = committed
        self._bytes_max = config.snapshot_bytes
        self._interval_ns = config.snapshot_interval_ms * _MS
        self._not_before_ns = now_ns
        self._due_ns = now_ns + self._interval_ns
        self._rest: Iterator[bytes] | None = None
        """The records of the image that are not written yet; None while no snapshot is being made."""
        self._writing: SnapshotInProgress | None = None
        self._end_offset = 0

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`step` has work to do; in the past while a snapshot is being made."""
        if self._rest is not None:
            return self._not_before_ns
        if not self._has_news:
            return None
        return self._not_before_ns if self._committed.bytes_since_snapshot >= self._bytes_max else self._due_ns

    @property
    def _has_news(self) -> bool:
        # A server that starts from a stored image does not know the high watermark again yet.
        return self._latest_end <= self._committed.image.offset < self._raft.high_watermark

    @property
    def _latest_end(self) -> int:
        latest = self._raft.latest_snapshot
        return 0 if latest is None else latest.end_offset

    def step(self, now_ns: int) -> None:
        """Begin a snapshot if it is due, and write its next slice."""
        wake = self.next_wake_ns
        if wake is None or wake > now_ns:
            return
        try:
            if self._rest is None:
                self._begin()
            if self._latest_end >= self._end_offset:  # the leader's snapshot was installed meanwhile
                self.abandon()
            if self._write_slice():
                self._due_ns = now_ns + self._interval_ns
        except StorageError as error:
            self._rest = self._writing = None
            if self._raft.role_name == "failed":
                raise
            _log.warning("no snapshot of the metadata could be written; it is tried again: %s", error)
            self._not_before_ns = self._due_ns = now_ns + RETRY_NS

    def abandon(self) -> None:
        """Give up the snapshot that is being made, if there is one."""
        if self._writing is not None:
            self._writing.abandon()
        self._rest = self._writing = None

    def _begin(self) -> None:
        image = self._committed.image
        self._end_offset = image.offset + 1
        self._writing = self._raft.begin_snapshot(self._end_offset)
        self._rest = ImageEntries().values(image.copy())
        self._committed.bytes_since_snapshot = 0

    def _write_slice(self) -> bool:
        """Write the next slice; return whether none is left."""
        if self._writing is None or self._rest is None:
            self._rest = None
            return True
        values = list(islice(self._rest, SLICE))
        self._writing.append(values)
        if len(values) == SLICE:
            return False
        self._writing.finish()
        self._rest = self._writing = None
        return True
