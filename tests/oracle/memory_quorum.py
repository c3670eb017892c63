"""The slow, obvious twin of the quorum's storage: batches in a tuple, nothing on a disk.

Every change counts as durable at once. A batch travels as the hash of its content, and a table of all batches ever
made turns the hash back, so that messages and states are small and compare equal in every process. All state is in
immutable values, so :meth:`MemoryQuorumStorage.copy` costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

from pyreplog.errors import CorruptError
from pyreplog.quorum import ControlEntry, HardState, LogBatch
from pyreplog.testing.copies import shallow_copy
from pyreplog.values import EpochEntry
from pyreplog.wire import SnapshotId

__all__ = ["MemoryQuorumStorage"]

HASH_SIZE: Final = 12
_known: dict[bytes, Any] = {}


def packed(thing: object) -> bytes:
    """Return the hash of a value, which :func:`unpacked` turns back."""
    found = blake2b(repr(thing).encode(), digest_size=HASH_SIZE).digest()
    _known[found] = thing
    return found


def unpacked(data: bytes) -> Any:
    """Return the value with this hash."""
    try:
        return _known[bytes(data)]
    except KeyError:
        raise CorruptError(f"{bytes(data)!r} is no batch") from None


class MemoryQuorumStorage:
    """See :class:`pyreplog.quorum.QuorumStorage`."""

    def __init__(self, control: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """``control``: the control records of the bootstrap snapshot; none for an observer that knows no voters."""
        self.failure: Exception | None = None
        self.start_offset = 0
        self.committed_offset = 0
        self.was_voter = False
        self.voter_failure: str | None = None
        self.state = HardState()
        self.log: tuple[LogBatch, ...] = ()
        self.start_epoch = -1
        self.snapshots: tuple[tuple[SnapshotId, tuple[ControlEntry, ...], tuple[bytes, ...]], ...] = ()
        self.received: tuple[SnapshotId, bytes] | None = None
        if control:
            self.snapshots = ((SnapshotId(0, 0), _entries(control), ()),)

    def copy(self) -> MemoryQuorumStorage:
        """Return a storage with the same state."""
        new: MemoryQuorumStorage = shallow_copy(self)
        return new

    def print(self) -> tuple[object, ...]:
        """Return everything that decides what the storage will answer."""
        return (
            self.start_offset,
            self.start_epoch,
            self.committed_offset,
            self.was_voter,
            self.voter_failure,
            self.state,
            tuple(packed(batch) for batch in self.log),
            self.snapshots,
            self.received,
        )

    # -- the log --

    @property
    def end_offset(self) -> int:
        """The offset behind the log."""
        return self.log[-1].last_offset + 1 if self.log else self.start_offset

    @property
    def flushed_offset(self) -> int:
        """Everything is on stable storage."""
        return self.end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record."""
        return self.log[-1].epoch if self.log else max(self.start_epoch, 0)

    def read_state(self) -> HardState:
        """Return the state that was written last."""
        return self.state

    def write_state(self, state: HardState) -> None:
        """Keep ``state``."""
        self.state = state

    def note_voter(self) -> None:
        """Keep that this node was a voter."""
        self.was_voter = True

    def note_failure(self, reason: str) -> None:
        """Keep that this node is no whole voter any more."""
        self.voter_failure = reason

    def append_records(self, values: Sequence[bytes], epoch: int, timestamp_ms: int) -> tuple[int, int]:
        """Append one batch of records."""
        base = self.end_offset
        self._append(LogBatch(base, base + len(values) - 1, epoch, (), tuple(bytes(value) for value in values)))
        return base, self.end_offset - 1

    def append_control(self, records: Sequence[tuple[bytes, bytes]], epoch: int, timestamp_ms: int) -> tuple[int, int]:
        """Append one batch of control records."""
        base = self.end_offset
        self._append(LogBatch(base, base + len(records) - 1, epoch, _entries(records, base), ()))
        return base, self.end_offset - 1

    def _append(self, batch: LogBatch) -> None:
        assert batch.epoch >= self.last_epoch, f"epoch {batch.epoch} after {self.last_epoch}"
        self.log = (*self.log, batch)

    def append_fetched(self, data: bytes) -> list[ControlEntry]:
        """Append batches of the leader."""
        found: list[LogBatch] = []
        end = self.end_offset
        for position in range(0, len(data), HASH_SIZE):
            batch = unpacked(data[position : position + HASH_SIZE])
            if batch.base_offset != end:
                raise CorruptError(f"batch has base offset {batch.base_offset}, expected {end}")
            found.append(batch)
            end = batch.last_offset + 1
        for batch in found:
            self._append(batch)
        return [entry for batch in found for entry in batch.control]

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that reaches ``offset``."""
        self.log = tuple(batch for batch in self.log if batch.last_offset < offset)

    def note_committed(self, offset: int) -> None:
        """Note that everything below ``offset`` is committed."""
        self.committed_offset = max(self.committed_offset, offset)

    def _epochs(self) -> list[EpochEntry]:
        found = [EpochEntry(self.start_epoch, self.start_offset)] if self.start_epoch >= 0 else []
        for batch in self.log:
            if not found or batch.epoch != found[-1].epoch:
                found.append(EpochEntry(batch.epoch, batch.base_offset))
        return found

    def end_offset_for(self, epoch: int) -> EpochEntry:
        """Return the greatest epoch not above ``epoch`` and its end; (-1, -1) if the log does not tell."""
        entries = self._epochs()
        if not entries or epoch < 0 or epoch > entries[-1].epoch:
            return EpochEntry(-1, -1)
        below = [entry for entry in entries if entry.epoch <= epoch]
        after = [entry for entry in entries if entry.epoch > epoch]
        if not below:
            return EpochEntry(epoch, after[0].start_offset)
        return EpochEntry(below[-1].epoch, after[0].start_offset if after else self.end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the record at ``offset``, -1 before the history."""
        found = [entry for entry in self._epochs() if entry.start_offset <= offset]
        return found[-1].epoch if found else -1

    def read(self, offset: int, size_max: int) -> bytes:
        """Return batches from ``offset`` on; ``size_max`` is taken as a number of batches if it is small."""
        found = [packed(batch) for batch in self.log if batch.last_offset >= offset]
        return b"".join(found[: max(size_max // HASH_SIZE, 1)])

    def batches(self, offset: int, end_offset: int) -> Iterator[LogBatch]:
        """Return the batches from the one that holds ``offset``, below ``end_offset``."""
        return iter([batch for batch in self.log if batch.last_offset >= offset and batch.base_offset < end_offset])

    def control_entries(self) -> Iterator[ControlEntry]:
        """Return every control record of the log."""
        return iter([entry for batch in self.log for entry in batch.control])

    # -- snapshots --

    def latest_snapshot(self) -> SnapshotId | None:
        """Return the id of the newest snapshot."""
        return self.snapshots[-1][0] if self.snapshots else None

    def oldest_snapshot(self) -> SnapshotId | None:
        """Return the id of the oldest snapshot."""
        return self.snapshots[0][0] if self.snapshots else None

    def _snapshot(self, snapshot_id: SnapshotId) -> tuple[SnapshotId, tuple[ControlEntry, ...], tuple[bytes, ...]]:
        return next(one for one in self.snapshots if one[0] == snapshot_id)

    def snapshot_control(self, snapshot_id: SnapshotId) -> list[ControlEntry]:
        """Return the control records of a snapshot."""
        return list(self._snapshot(snapshot_id)[1])

    def snapshot_records(self, snapshot_id: SnapshotId) -> Iterator[bytes]:
        """Return the records of a snapshot."""
        return iter(self._snapshot(snapshot_id)[2])

    def snapshot_size(self, snapshot_id: SnapshotId) -> int | None:
        """Return the size of a snapshot."""
        return HASH_SIZE if any(one[0] == snapshot_id for one in self.snapshots) else None

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, size_max: int) -> bytes:
        """Return bytes of a snapshot."""
        return packed(self._snapshot(snapshot_id))[position : position + size_max]

    def begin_snapshot(self, snapshot_id: SnapshotId, control: Sequence[tuple[bytes, bytes]]) -> MemorySnapshot:
        """Begin a snapshot."""
        return MemorySnapshot(self, snapshot_id, control)

    def keep_snapshot(
        self, snapshot_id: SnapshotId, control: Sequence[tuple[bytes, bytes]], records: Sequence[bytes]
    ) -> None:
        """Keep a snapshot, and only this one; drop the log below it."""
        self.snapshots = ((snapshot_id, _entries(control), tuple(records)),)
        self._start_at(snapshot_id, self.log)

    def _start_at(self, snapshot_id: SnapshotId, log: Sequence[LogBatch]) -> None:
        self.start_offset, self.start_epoch = snapshot_id.end_offset, snapshot_id.epoch
        self.log = tuple(batch for batch in log if batch.base_offset >= snapshot_id.end_offset)
        self.committed_offset = max(self.committed_offset, snapshot_id.end_offset)

    def begin_install(self, snapshot_id: SnapshotId) -> None:
        """Begin to receive a snapshot."""
        self.received = snapshot_id, b""

    def install(self, position: int, data: bytes) -> None:
        """Take the next bytes."""
        assert self.received is not None
        snapshot_id, before = self.received
        assert position == len(before)
        self.received = snapshot_id, before + bytes(data)

    def end_install(self) -> None:
        """Keep the received snapshot, and begin the log at its end."""
        assert self.received is not None
        snapshot_id, data = self.received
        found = unpacked(data)
        if found[0] != snapshot_id:
            raise CorruptError(f"snapshot {found[0]} instead of {snapshot_id}")
        self.received = None
        self.snapshots = (found,)
        self._start_at(snapshot_id, ())

    def close(self) -> None:
        """Do nothing."""


class MemorySnapshot:
    """A snapshot that is being written."""

    def __init__(
        self, storage: MemoryQuorumStorage, snapshot_id: SnapshotId, control: Sequence[tuple[bytes, bytes]]
    ) -> None:
        self._storage = storage
        self._id = snapshot_id
        self._control = control
        self._records: list[bytes] = []

    def append(self, records: Iterable[bytes]) -> None:
        """Add records."""
        self._records += records

    def finish(self) -> None:
        """Keep it."""
        self._storage.keep_snapshot(self._id, self._control, self._records)

    def abandon(self) -> None:
        """Give it up."""


def _entries(records: Sequence[tuple[bytes, bytes]], base: int = 0) -> tuple[ControlEntry, ...]:
    return tuple(ControlEntry(offset, bytes(key), bytes(value)) for offset, (key, value) in enumerate(records, base))
