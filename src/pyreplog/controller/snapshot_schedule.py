"""When a server of the quorum writes a snapshot, and how: from the committed image, in slices, so
that no step of the driver takes long."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

from pyreplog.controller.committed_metadata import CommittedMetadata
from pyreplog.errors import StorageError
from pyreplog.quorum import QuorumConfig, RaftNode
from pyreplog.wire import MetadataRecord, encode_record

__all__ = ["SnapshotSchedule"]

SLICE: Final = 500
"""Records that one step encodes."""
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
        self._rest: Iterator[MetadataRecord] | None = None
        """The records of the image that are not encoded yet; None while no snapshot is being made."""
        self._values: list[bytes] = []
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
        latest = self._raft.latest_snapshot
        return self._committed.image.offset + 1 > (0 if latest is None else latest.end_offset)

    def step(self, now_ns: int) -> None:
        """Begin a snapshot if it is due, and encode its next slice; write it after the last one."""
        wake = self.next_wake_ns
        if wake is None or wake > now_ns:
            return
        if self._rest is None:
            self._end_offset = self._committed.image.offset + 1
            self._rest = self._committed.image.copy().iter_records()
            self._values = []
            self._committed.bytes_since_snapshot = 0
        values = [encode_record(record) for record in islice(self._rest, SLICE)]
        self._values.extend(values)
        if len(values) == SLICE:
            return
        self._rest, values, self._values = None, self._values, []
        self._due_ns = now_ns + self._interval_ns
        latest = self._raft.latest_snapshot
        if latest is not None and latest.end_offset >= self._end_offset:
            return  # the leader's snapshot was installed meanwhile
        try:
            self._raft.write_snapshot(self._end_offset, values)
        except StorageError as error:
            if self._raft.role_name == "failed":
                raise
            _log.warning("no snapshot of the metadata could be written; it is tried again: %s", error)
            self._not_before_ns = self._due_ns = now_ns + RETRY_NS
