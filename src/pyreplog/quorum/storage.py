"""The durable state of one node of the quorum, as the machine sees it.

:class:`QuorumStorage` is the seam below the machine. :mod:`pyreplog.quorum.raft_log` is the one on a
disk; a search over states may keep lists in memory. Every change is durable when its method
returns. A method that raises :class:`StorageError` has changed nothing, unless :attr:`failure` is
set: then the storage takes no further change until it is opened again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from pyreplog.quorum.voters import ReplicaKey
from pyreplog.values import EpochEntry
from pyreplog.wire import SnapshotId

__all__ = ["ControlEntry", "HardState", "LogBatch", "QuorumStorage", "SnapshotInProgress"]


class HardState(NamedTuple):
    """The part of the state that must survive a restart: Kafka's ``quorum-state``."""

    epoch: int = 0
    leader_id: int = -1
    """The leader of the epoch; -1 if it is not known."""
    voted: ReplicaKey | None = None
    """The candidate that got the vote of this node in this epoch."""


class ControlEntry(NamedTuple):
    """One control record of the log."""

    offset: int
    key: bytes
    value: bytes


class LogBatch(NamedTuple):
    """One batch of the log. ``records`` has the values of a data batch, in order."""

    base_offset: int
    last_offset: int
    epoch: int
    control: tuple[ControlEntry, ...]
    records: tuple[bytes, ...]


class SnapshotInProgress(Protocol):
    """A snapshot that is being written, in as many steps as the caller likes.

    If a method raises, the snapshot is abandoned.
    """

    def append(self, records: Iterable[bytes]) -> None:
        """Add metadata records."""
        ...

    def finish(self) -> None:
        """Make the snapshot durable. From now on it is the newest."""
        ...

    def abandon(self) -> None:
        """Give it up."""
        ...


class QuorumStorage(Protocol):
    """See the module."""

    @property
    def failure(self) -> Exception | None:
        """The error that ended the use of the storage."""
        ...

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset behind the log. Everything below is written."""
        ...

    @property
    def flushed_offset(self) -> int:
        """Everything below is on stable storage."""
        ...

    @property
    def committed_offset(self) -> int:
        """An offset below which the log is known to be committed, from before a restart too."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; 0 if there was none."""
        ...

    def read_state(self) -> HardState:
        """Return the state that :meth:`write_state` kept last."""
        ...

    def write_state(self, state: HardState) -> None:
        """Keep ``state``, durably."""
        ...

    @property
    def was_voter(self) -> bool:
        """Whether this node was a voter once, under its present directory id."""
        ...

    def note_voter(self) -> None:
        """Keep that this node was a voter once."""
        ...

    @property
    def voter_failure(self) -> str | None:
        """The reason for which this node is no whole voter: it neither votes nor counts."""
        ...

    def note_failure(self, reason: str) -> None:
        """Keep that this node is no whole voter any more."""
        ...

    def append_records(self, values: Sequence[bytes], epoch: int, timestamp_ms: int) -> tuple[int, int]:
        """Append one batch of metadata records as the leader; return its first and last offset."""
        ...

    def append_control(self, records: Sequence[tuple[bytes, bytes]], epoch: int, timestamp_ms: int) -> tuple[int, int]:
        """Append one batch of control records (key, value) as the leader; return its first and last offset."""
        ...

    def append_fetched(self, data: bytes) -> list[ControlEntry]:
        """Append whole batches of the leader at the end; return their control records.

        Raises :class:`CorruptError` if they do not follow; nothing is appended then.
        """
        ...

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that reaches ``offset``."""
        ...

    def note_committed(self, offset: int) -> None:
        """Note that everything below ``offset`` is committed. Need not be durable."""
        ...

    def end_offset_for(self, epoch: int) -> EpochEntry:
        """Return the greatest epoch not above ``epoch`` and its end; (-1, -1) if the log does not tell."""
        ...

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the record at ``offset``, -1 if the log does not tell."""
        ...

    def read(self, offset: int, size_max: int) -> bytes:
        """Return whole batches, beginning with that of ``offset``: at least one, else up to ``size_max`` bytes."""
        ...

    def batches(self, offset: int, end_offset: int) -> Iterator[LogBatch]:
        """Return the batches from that of ``offset`` on, below ``end_offset``."""
        ...

    def control_entries(self) -> Iterator[ControlEntry]:
        """Return every control record of the log."""
        ...

    # -- snapshots --

    def latest_snapshot(self) -> SnapshotId | None:
        """Return the id of the newest snapshot; formatting writes (0, 0)."""
        ...

    def oldest_snapshot(self) -> SnapshotId | None:
        """Return the id of the oldest snapshot that is kept."""
        ...

    def snapshot_control(self, snapshot_id: SnapshotId) -> list[ControlEntry]:
        """Return the control records of a snapshot. Their offsets count for nothing."""
        ...

    def snapshot_records(self, snapshot_id: SnapshotId) -> Iterator[bytes]:
        """Return the metadata records of a snapshot."""
        ...

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """Return the size of a snapshot in bytes; None if there is no such one."""
        ...

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, size_max: int) -> bytes:
        """Return bytes of a snapshot."""
        ...

    def begin_snapshot(self, snapshot_id: SnapshotId, control: Sequence[tuple[bytes, bytes]]) -> SnapshotInProgress:
        """Begin a snapshot of committed state. Afterwards the log may lose records below older snapshots."""
        ...

    def begin_install(self, snapshot_id: SnapshotId) -> None:
        """Begin to receive a snapshot of the leader."""
        ...

    def install(self, position: int, data: bytes) -> None:
        """Take the next bytes of the snapshot that is being received."""
        ...

    def end_install(self) -> None:
        """Check the received snapshot, keep it, and let the log begin at its end.

        Raises :class:`CorruptError` if it is damaged; then the log is unchanged.
        """
        ...

    def close(self) -> None:
        """Release the files."""
        ...
