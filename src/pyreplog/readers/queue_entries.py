"""The entries of a queue's journal: values, and their bytes.

Format: docs/internals/format/queue.md. All numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from pyreplog.errors import CorruptError

__all__ = [
    "REJECTED",
    "Accepted",
    "Acquired",
    "Archived",
    "Cut",
    "Deleted",
    "Entry",
    "Joined",
    "Lock",
    "Released",
    "Renewed",
    "Run",
    "Snapshot",
    "decode_entry",
    "encode_entry",
    "encode_one_accepted",
    "encode_one_acquired",
]

REJECTED: Final = 0x8000
"""This bit of a delivery count says that a worker rejected the record, so it becomes a dead letter. Without the bit, a
worker that ended between the dead letter and its entry would leave a record that is delivered again."""

Lock: TypeAlias = tuple[int, int, int]
"""(worker, delivery count, deadline in ns of the monotonic clock)."""
Run: TypeAlias = tuple[int, int, int]
"""(first offset, number of offsets, delivery count of each)."""
Runs: TypeAlias = Sequence[tuple[int, int]]
"""(first offset, number of offsets), by rising offset."""


class Snapshot(NamedTuple):
    """The whole state, the first entry of an area."""

    next_offset: int
    last_epoch: int
    last_worker: int
    accepted_count: int
    archived_count: int
    deleted_count: int
    available: dict[int, int]
    acquired: dict[int, Lock]


class Joined(NamedTuple):
    """A worker opened the queue."""

    worker: int


class Acquired(NamedTuple):
    """A worker acquired records. ``epoch``: the leader epoch of the last one, if it is new."""

    worker: int
    deadline_ns: int
    epoch: int
    runs: Sequence[Run]


class Accepted(NamedTuple):
    """Acquired records are done."""

    runs: Runs


class Released(NamedTuple):
    """Acquired records are available again."""

    runs: Runs


class Archived(NamedTuple):
    """Acquired records are dead letters."""

    runs: Runs


class Renewed(NamedTuple):
    """A worker has its records for longer."""

    worker: int
    deadline_ns: int
    runs: Runs


class Deleted(NamedTuple):
    """Records are not in the log any more: those in flight in ``runs``, and the new ones below ``next_offset``."""

    next_offset: int
    runs: Runs


class Cut(NamedTuple):
    """The log was truncated to ``next_offset``, where its leader epoch was ``epoch``."""

    next_offset: int
    epoch: int


Entry: TypeAlias = Snapshot | Joined | Acquired | Accepted | Released | Archived | Renewed | Deleted | Cut

# On disk: never change.
_SNAPSHOT, _JOINED, _ACQUIRED, _ACCEPTED, _RELEASED, _ARCHIVED, _RENEWED, _DELETED, _CUT = range(1, 10)
_SNAPSHOT_HEAD: Final = Struct(">BqiIQQQII")
_AVAILABLE: Final = Struct(">qH")
_LOCKED: Final = Struct(">qHIq")
_JOINED_BODY: Final = Struct(">BI")
_ACQUIRED_HEAD: Final = Struct(">BIqi")
_ONE_ACQUIRED: Final = Struct(">BIqiqIH")
_COUNTED_RUN: Final = Struct(">qIH")
_RUN: Final = Struct(">qI")
_ONE_RUN: Final = Struct(">BqI")
_RENEWED_HEAD: Final = Struct(">BIq")
_DELETED_HEAD: Final = Struct(">Bq")
_CUT_BODY: Final = Struct(">Bqi")

_RUN_MAX: Final = 2000
"""The most offsets in one entry: as many as are in flight."""
_KINDS: Final = {Accepted: _ACCEPTED, Released: _RELEASED, Archived: _ARCHIVED}


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of ``entry``, without its frame."""
    if isinstance(entry, Acquired):
        if len(entry.runs) == 1:
            return _ONE_ACQUIRED.pack(_ACQUIRED, entry.worker, entry.deadline_ns, entry.epoch, *entry.runs[0])
        head = _ACQUIRED_HEAD.pack(_ACQUIRED, entry.worker, entry.deadline_ns, entry.epoch)
        return head + b"".join([_COUNTED_RUN.pack(*run) for run in entry.runs])
    if isinstance(entry, (Accepted, Released, Archived)):
        kind = _KINDS[type(entry)]
        if len(entry.runs) == 1:
            return _ONE_RUN.pack(kind, *entry.runs[0])
        return bytes((kind,)) + _encode_runs(entry.runs)
    if isinstance(entry, Renewed):
        return _RENEWED_HEAD.pack(_RENEWED, entry.worker, entry.deadline_ns) + _encode_runs(entry.runs)
    if isinstance(entry, Joined):
        return _JOINED_BODY.pack(_JOINED, entry.worker)
    if isinstance(entry, Deleted):
        return _DELETED_HEAD.pack(_DELETED, entry.next_offset) + _encode_runs(entry.runs)
    if isinstance(entry, Cut):
        return _CUT_BODY.pack(_CUT, entry.next_offset, entry.epoch)
    parts = [
        _SNAPSHOT_HEAD.pack(_SNAPSHOT, *entry[:6], len(entry.available), len(entry.acquired)),
        *[_AVAILABLE.pack(offset, entry.available[offset]) for offset in sorted(entry.available)],
    ]
    for offset in sorted(entry.acquired):
        worker, delivery_count, deadline_ns = entry.acquired[offset]
        parts.append(_LOCKED.pack(offset, delivery_count, worker, deadline_ns))
    return b"".join(parts)


def encode_one_acquired(worker: int, deadline_ns: int, epoch: int, offset: int) -> bytes:
    """Return the bytes of an :class:`Acquired` of one record that was not delivered before."""
    return _ONE_ACQUIRED.pack(_ACQUIRED, worker, deadline_ns, epoch, offset, 1, 1)


def encode_one_accepted(offset: int) -> bytes:
    """Return the bytes of an :class:`Accepted` of one record."""
    return _ONE_RUN.pack(_ACCEPTED, offset, 1)


def _encode_runs(runs: Runs) -> bytes:
    return b"".join([_RUN.pack(*run) for run in runs])


def decode_entry(body: bytes) -> Entry:
    """Return the entry in ``body``. Raises :class:`CorruptError` unless its bytes are those of an entry."""
    try:
        return _decode(body, body[0])
    except (StructError, IndexError):
        raise CorruptError(f"an entry of a queue has {len(body)} bytes, which is too short for its kind") from None


def _decode(body: bytes, kind: int) -> Entry:
    if kind == _ACQUIRED:
        _, worker, deadline_ns, epoch = _ACQUIRED_HEAD.unpack_from(body)
        runs = list(_COUNTED_RUN.iter_unpack(body[_ACQUIRED_HEAD.size :]))
        _check_runs([run[:2] for run in runs], rising=False)
        if deadline_ns < 0 or not all(run[2] > 0 for run in runs):
            raise CorruptError("a queue's records were acquired with a delivery count or a deadline below the first")
        return Acquired(worker, deadline_ns, epoch, runs)
    if kind in (_ACCEPTED, _RELEASED, _ARCHIVED):
        plain = _decode_runs(body, 1)
        return Accepted(plain) if kind == _ACCEPTED else Released(plain) if kind == _RELEASED else Archived(plain)
    if kind == _RENEWED:
        _, worker, deadline_ns = _RENEWED_HEAD.unpack_from(body)
        if deadline_ns < 0:
            raise CorruptError("a queue's records were renewed to a negative time")
        return Renewed(worker, deadline_ns, _decode_runs(body, _RENEWED_HEAD.size))
    if kind == _JOINED:
        return Joined(_JOINED_BODY.unpack(body)[1])
    if kind == _DELETED:
        next_offset = _DELETED_HEAD.unpack_from(body)[1]
        runs_gone = _decode_runs(body, _DELETED_HEAD.size) if len(body) > _DELETED_HEAD.size else []
        return Deleted(next_offset, runs_gone)
    if kind == _CUT:
        _, next_offset, epoch = _CUT_BODY.unpack(body)
        if next_offset < 0:
            raise CorruptError(f"a queue was cut to offset {next_offset}")
        return Cut(next_offset, epoch)
    if kind == _SNAPSHOT:
        return _decode_snapshot(body)
    raise CorruptError(f"an entry of a queue has the unknown kind {kind}")


def _decode_runs(body: bytes, position: int) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = list(_RUN.iter_unpack(body[position:]))
    _check_runs(runs, rising=True)
    return runs


def _check_runs(runs: Runs, *, rising: bool) -> None:
    """Raise CorruptError unless the runs are of a queue. Their sum is bounded, because a hostile one would take all
    memory."""
    total = 0
    end = 0
    for first, count in runs:
        total += count
        if first < (end if rising else 0) or not count or first > 2**63 - 1 - count:
            raise CorruptError(f"an entry of a queue has {count} offsets from {first}, out of order or of range")
        end = first + count
    if not 0 < total <= _RUN_MAX:
        raise CorruptError(f"an entry of a queue has {total} offsets; the limit is {_RUN_MAX}")


def _decode_snapshot(body: bytes) -> Snapshot:
    head = _SNAPSHOT_HEAD.unpack_from(body)
    available_count, acquired_count = head[7], head[8]
    middle = _SNAPSHOT_HEAD.size + available_count * _AVAILABLE.size
    if len(body) != middle + acquired_count * _LOCKED.size:
        raise CorruptError(
            f"a queue's snapshot of {available_count} and {acquired_count} records has {len(body)} bytes"
        )
    available: dict[int, int] = dict(_AVAILABLE.iter_unpack(body[_SNAPSHOT_HEAD.size : middle]))
    acquired = {
        offset: (worker, count, deadline_ns)
        for offset, count, worker, deadline_ns in _LOCKED.iter_unpack(body[middle:])
    }
    if len(available) != available_count or len(acquired) != acquired_count or head[1] < 0:
        raise CorruptError("a queue's snapshot names an offset twice, or a negative one")
    if any(offset < 0 for offset in (*available, *acquired)) or any(lock[2] < 0 for lock in acquired.values()):
        raise CorruptError("a queue's snapshot has a negative offset or deadline")
    next_offset, epoch, worker, accepted, archived, deleted = head[1:7]
    return Snapshot(next_offset, epoch, worker, accepted, archived, deleted, available, acquired)
