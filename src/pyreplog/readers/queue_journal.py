"""The journal of one queue: a file that all its workers append to, one at a time.

    byte 0     512     1024              4096                135168                266240
         | slot | slot  | name            | area 0            | area 1            |

Each area begins with a snapshot of the state; entries follow it. The slots take turns, and so do
the areas: when the area in use is full, the state is written to the other one and synced, then the
slot of that area is written with the next sequence number and synced. So the file stays as small as
the queue's records in flight, and a crash leaves the old area or the new one. The file is never
replaced by another one, because the locks of its workers belong to the file.

An entry's checksum covers the checksum before it. So an entry that power loss left behind a hole
never comes back to life when the hole is filled.

A change is: lock the file, read the other slot (has the area changed?) and the entries that were
appended since, decide, append one entry, unlock. Format: docs/internals/format/queue.md.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from types import TracebackType
from typing import Final, NamedTuple

from pyreplog.errors import (
    ConfigError,
    CorruptError,
    InternalError,
    OutcomeUnknownError,
    StorageError,
    TopicRecreatedError,
)
from pyreplog.log import decode_uuid, encode_uuid, parent_of
from pyreplog.ports import Disk, SharedFile
from pyreplog.readers.queue_damage import damage_text, find_entry_behind
from pyreplog.readers.queue_entries import (
    Entry,
    Joined,
    Snapshot,
    decode_entry,
    encode_entry,
    encode_one_accepted,
    encode_one_acquired,
)
from pyreplog.readers.queue_slots import (
    NAME_POSITION,
    NO_BOOT,
    SEQUENCE_END,
    SLOT_POSITIONS,
    SLOT_SIZE,
    JournalSlot,
    boot_bytes,
    encode_name,
    name_of,
    slots_of,
)
from pyreplog.readers.queue_state import QueueState
from pyreplog.record import chained_frame, crc32c

__all__ = ["QUEUE_FILE_SIZE", "JournalIdentity", "QueueJournal", "read_queue"]

# On disk: never change.
_AREAS_POSITION: Final = 4096
_AREA_SIZE: Final = 128 << 10
QUEUE_FILE_SIZE: Final = _AREAS_POSITION + 2 * _AREA_SIZE
_FRAME: Final = Struct(">II")
"""In front of each entry: its size and its checksum. A size of 0 ends the entries."""
_SEED: Final = Struct(">Q16s")

_LOOK_SIZE: Final = 96
"""Bytes that are read at the end of the entries: enough for the entry of another worker that has one record."""
_FIRST_SIZE: Final = 4096
"""A first writer writes one entry at the beginning of an area, and no byte of it behind this many."""
_READ_SIZE: Final = 4096
_NO_ENTRY: Final = bytes(4)
_WORKER_MAX: Final = 2**32 - 1
_HOLD_TRIES: Final = 100
_OPEN_TRIES: Final = 10
_NO_ID: Final = encode_uuid(bytes(16))
"""The topic id of a log from before Kafka 2.8, until its first newer writer."""


class JournalIdentity(NamedTuple):
    """The queue's name, and the log whose records it delivers."""

    name: str
    topic_id: str
    partition: int


class QueueJournal:
    """The open journal of one worker. Not thread-safe.

    ``with journal as state:`` is one change, under the lock of the file. Within it
    :meth:`append` adds entries, and ``state`` is up to date.
    """

    def __init__(self, disk: Disk, file: SharedFile, identity: JournalIdentity, boot_id: bytes, *, is_sync: bool):
        """Use :meth:`open` to make one."""
        self._disk = disk
        self._file = file
        self._identity = identity
        self._boot_id = boot_id
        self._is_sync = is_sync
        self.state = QueueState()
        self.worker = 0
        """The number of this worker, from 1."""
        self.append_count = 0
        """Entries that this worker appended. :meth:`sync` covers those appended before its call."""
        self.torn_size = 0
        """Bytes behind the last whole entry when the journal was opened: an entry that a crash tore, or damage."""
        self._sequence = 0
        self._position = 0
        self._end = 0
        self._chain = 0
        self._other = b""
        self._other_position = 0
        self._is_valid = False
        self._on_damage: Callable[[str], object] = str

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        identity: JournalIdentity,
        *,
        is_sync: bool,
        start_offset: int = 0,
        on_damage: Callable[[str], object] = str,
    ) -> QueueJournal:
        """Open the journal ``path`` as one more worker, and make it if it is missing.

        ``start_offset``: where a new queue begins. ``is_sync``: what the file holds is made durable now, and the
        caller syncs what must be durable later. ``on_damage`` is called with a text for bytes that are no whole entry,
        now and later: entries may be lost, and their records are delivered again. Raises
        :class:`TopicRecreatedError` if the journal belongs to another topic id, :class:`ConfigError` for another
        partition or queue, :class:`CorruptError` for damage, :class:`StorageError` if the disk refuses.
        """
        identity = identity._replace(topic_id=identity.topic_id or _NO_ID)
        boot_id = boot_bytes(disk.boot_id(parent_of(path)))
        for _ in range(_OPEN_TRIES):
            journal = cls(disk, disk.open_shared(path), identity, boot_id, is_sync=is_sync)
            journal.state.next_offset = start_offset
            journal._on_damage = on_damage
            try:
                journal._file.lock()
                if journal._file.is_current():
                    journal._join()
                    return journal
            except BaseException:
                journal.close()
                raise
            finally:
                journal._file.unlock()
            journal.close()  # the worker that made it could not, and removed it
        raise StorageError(errno.EAGAIN, "the queue's journal is removed again and again while it is opened", path)

    def _join(self) -> None:
        head = self._file.read_at(0, _AREAS_POSITION)
        slots = slots_of(head)
        name = name_of(head)
        if not slots:
            if name is not None or self._was_used():
                raise CorruptError(
                    "neither slot of the queue's journal is whole: restore the file, or remove it to deliver every"
                    " record again",
                    file=self._file.path,
                    position=0,
                )
            self._create()
        else:
            newest = self._newest(head, slots)
            self._check(newest, name)
            self._load()
            if self.torn_size:
                self._tell_damage(is_always=True)
            if newest.boot_id != self._boot_id or self._boot_id == NO_BOOT or self.torn_size or self._is_sync:
                self._turn()
            if name is None:
                self._write_name()
        last = self.state.last_worker
        for number in range(last + 1, min(last + _HOLD_TRIES, _WORKER_MAX) + 1):
            if self._file.hold(number):
                self.append(Joined(number))
                self.worker = number
                return
        raise CorruptError(
            "the numbers of workers in the queue's journal are used up, or older than its workers: remove the file to"
            " deliver every record again",
            file=self.path,
        )

    def _check(self, found: JournalSlot, name: str | None) -> None:
        """Raise unless the journal is that of this queue."""
        identity, path = self._identity, self._file.path
        if found.topic_id not in (identity.topic_id, _NO_ID):
            raise TopicRecreatedError(
                f"{path} belongs to topic id {found.topic_id}, and the log has {identity.topic_id}: the log was made"
                " again, or this is the queue of another log",
                "Remove the file to begin the queue at the first record, or keep it in another folder with"
                " offsets=FOLDER",
            )
        if found.partition != identity.partition or (name is not None and name != identity.name):
            raise ConfigError(
                f"{path} is the journal of queue {name!r} of partition {found.partition}, not of {identity.name!r} of"
                f" partition {identity.partition}"
            )

    def _newest(self, head: bytes, slots: list[JournalSlot]) -> JournalSlot:
        """Return the slot that counts.

        If the other one is damaged and its area is in use, that one counts: entries are appended to an area only after
        its slot was written whole. So a damaged slot loses no entry.
        """
        newest = max(slots, key=lambda slot: slot.sequence)
        following = newest.sequence + 1
        start = SLOT_POSITIONS[following % 2]
        if len(slots) == 1 and any(head[start : start + SLOT_SIZE]):
            data = self._file.read_at(_area_position(following), _AREA_SIZE)
            if len(_entries(data, _seed(following, newest.topic_id))) > 1:
                return newest._replace(sequence=following, boot_id=NO_BOOT)
        return newest

    def _tell_damage(self, *, is_always: bool = False) -> None:
        """Tell of the bytes at the present position, which are no whole entry, if a whole one follows, or always."""
        data = self._file.read_at(self._position, self._end - self._position)
        behind = find_entry_behind(data, self._chain)
        if is_always or behind is not None:
            position = self._position
            size = len(data.rstrip(b"\0")) if behind is None else behind
            self._on_damage(damage_text(self.path, position, size, None if behind is None else position + behind))

    def _was_used(self) -> bool:
        """Return whether this is no file whose first writer was interrupted: it has its whole size, and an area has two
        entries, the second of which continues the first, or bytes where that writer leaves zeros.

        A shorter file may have any bytes, because power loss leaves such where a write was not synced."""
        if not self._file.read_at(_AREAS_POSITION + 2 * _AREA_SIZE - 1, 1):
            return False
        for sequence in (0, 1):
            position = _area_position(sequence)
            data = self._file.read_at(position, _AREA_SIZE)
            if any(data[_FIRST_SIZE:]):
                return True
            if len(data) < 2 * _FRAME.size:
                continue
            size, crc = _FRAME.unpack_from(data)
            if size and _entries(data[_FRAME.size + size :], crc):
                return True
        return False

    def _create(self) -> None:
        """Write a new journal. The file's name is durable before its first slot, and the slot before the last byte; a
        shorter file without a slot is a new one."""
        file = self._file
        end = _AREAS_POSITION + 2 * _AREA_SIZE
        file.write_at(0, bytes(end - 1))
        folder = parent_of(file.path)
        try:
            self._disk.sync_directory(folder)
        except StorageError:
            # A second sync would be believed, and the name might not be durable all the same.
            with suppress(StorageError):
                self._disk.remove(file.path)
            raise
        self._turn(is_first=True)
        self._write_name()
        file.write_at(end - 1, b"\0")

    def _write_name(self) -> None:
        self._file.write_at(NAME_POSITION, encode_name(self._identity.name))

    # -- one change --------------------------------------------------------------------------------

    @property
    def disk(self) -> Disk:
        """The disk of the file."""
        return self._disk

    @property
    def path(self) -> str:
        """The file."""
        return self._file.path

    def __enter__(self) -> QueueState:
        try:
            other, news = self._file.lock_and_read(self._other_position, SEQUENCE_END, self._position, _LOOK_SIZE)
            if not self._is_valid or other != self._other:
                self._load()
            elif news[:4] != _NO_ENTRY:
                self._read_on()
        except BaseException:
            self._file.unlock()
            raise
        return self.state

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.unlock()

    def append_unchanged(self, entry: Entry) -> bool:
        """Append ``entry`` and apply it, if no other worker has changed the file since this one looked last.

        The caller has derived ``entry`` from ``state``. It does not have the lock. If this returns False, nothing was
        changed: make the change in ``with``. Raises as :meth:`append` does.
        """
        if not self._append_unchanged(encode_entry(entry)):
            return False
        self.state.apply(entry)
        self._is_valid = True
        return True

    def acquire_next(self, deadline_ns: int) -> bool:
        """Acquire the record at ``next_offset``, of the epoch of the one before; see :meth:`append_unchanged`."""
        state = self.state
        if not self._append_unchanged(
            encode_one_acquired(self.worker, deadline_ns, state.last_epoch, state.next_offset)
        ):
            return False
        state.acquire_next(self.worker, deadline_ns)
        self._is_valid = True
        return True

    def accept_one(self, offset: int, delivery_count: int) -> bool:
        """Accept one record that this worker has; see :meth:`append_unchanged`."""
        lock = self.state.acquired.get(offset)
        if lock is None or lock[0] != self.worker or lock[1] != delivery_count:
            return False
        if not self._append_unchanged(encode_one_accepted(offset)):
            return False
        self.state.accept_one(offset)
        self._is_valid = True
        return True

    def _append_unchanged(self, body: bytes) -> bool:
        """Append an entry. After True the caller applies it and sets ``_is_valid``: until then a signal handler may
        raise, and the next change reads the file again."""
        position = self._position
        if not self._is_valid or position + 2 * _FRAME.size + len(body) > self._end:
            return False
        frame, crc = chained_frame(body, self._chain)
        self._is_valid = False
        try:
            if not self._file.append_unchanged(self._other_position, self._other, position, frame):
                self._is_valid = True
                return False
        except StorageError as error:
            try:
                if not self._is_written(frame, error):
                    raise
                self._is_valid = False
            finally:
                self._file.unlock()
        self._position = position + len(frame)
        self._chain = crc
        self.append_count += 1
        return True

    def append(self, entry: Entry) -> None:
        """Append ``entry`` and apply it. REQUIRES the lock of the file.

        Raises :class:`StorageError` if nothing was appended, :class:`OutcomeUnknownError` if that cannot be told.
        """
        body = encode_entry(entry)
        if self._position + 2 * _FRAME.size + len(body) > self._end:
            self._turn()
        frame, crc = chained_frame(body, self._chain)
        try:
            self._file.write_at(self._position, frame)
        except StorageError as error:
            if not self._is_written(frame, error):
                raise
        self._is_valid = False  # until the state has the entry: a signal handler may raise in between
        self.state.apply(entry)
        self._position += len(frame)
        self._chain = crc
        self.append_count += 1
        self._is_valid = True

    def _is_written(self, frame: bytes, failure: StorageError) -> bool:
        """Return whether a write that failed wrote all of ``frame``: other workers would then find the entry."""
        self._is_valid = False
        try:
            found = self._file.read_at(self._position, len(frame))
        except StorageError:
            raise OutcomeUnknownError(f"an entry of the queue's journal {self._file.path}", str(failure)) from failure
        self._is_valid = found != frame  # if it is there, the caller goes on
        return found == frame

    def _read_on(self) -> None:
        """Apply the entries that other workers appended."""
        size = _READ_SIZE
        while True:
            data = self._file.read_at(self._position, min(size, self._end - self._position))
            if data[:4] == _NO_ENTRY:
                return
            self._is_valid = False
            before = self._position
            self._apply(data)
            self._is_valid = True
            if self._position == before:
                if size >= _AREA_SIZE:
                    self._tell_damage()
                    return  # a crash tore an entry, which the next one replaces
                size = _AREA_SIZE

    def _load(self) -> None:
        """Read the newest slot and all of its area."""
        self._is_valid = False
        head = self._file.read_at(0, _AREAS_POSITION)
        slots = slots_of(head)
        if not slots:
            raise CorruptError("neither slot of the queue's journal is whole", file=self._file.path, position=0)
        newest = self._newest(head, slots)
        self._set_sequence(newest.sequence)
        self._other = self._file.read_at(self._other_position, SEQUENCE_END)
        self._position = _area_position(newest.sequence)
        self._chain = _seed(newest.sequence, newest.topic_id)
        self.state = QueueState()
        start = self._position
        self.torn_size = self._apply(self._file.read_at(self._position, _AREA_SIZE))
        if self._position == start:
            raise CorruptError("the queue's journal has no snapshot", file=self._file.path, position=start)
        self._is_valid = True

    def _apply(self, data: bytes) -> int:
        """Apply the entries in ``data``, which was read at the present position.

        Return the number of bytes from the first that is no whole entry to the last that is not zero.
        """
        position, count, chain = 0, 0, self._chain
        start = self._position
        try:
            for body, crc, end in _entries(data, chain):
                entry = decode_entry(body)
                _check_place(entry, is_first=start + position == _area_position(self._sequence))
                self.state.apply(entry)
                position, count, chain = end, count + 1, crc
        except CorruptError as error:
            raise CorruptError(error.reason, file=self._file.path, position=start + position) from None
        self._position += position
        self._chain = chain
        return len(data[position:].rstrip(b"\0"))

    def _set_sequence(self, sequence: int) -> None:
        self._sequence = sequence
        self._other_position = SLOT_POSITIONS[(sequence + 1) % 2]
        self._end = _area_position(sequence) + _AREA_SIZE

    def _turn(self, *, is_first: bool = False) -> None:
        """Write the state to the other area, and go on there. All of the state is durable then. ``is_first``: leave the
        file one byte short."""
        sequence = self._sequence + 1
        self._is_valid = False
        seed = _seed(sequence, self._identity.topic_id)
        frame, crc = chained_frame(encode_entry(self.state.snapshot()), seed)
        if len(frame) > _AREA_SIZE // 2:
            raise InternalError(f"a queue's snapshot has {len(frame)} bytes; an area has {_AREA_SIZE}")
        file = self._file
        file.write_at(_area_position(sequence), frame.ljust(_AREA_SIZE - is_first, b"\0"))
        file.sync()
        identity = self._identity
        slot = JournalSlot(sequence, identity.topic_id, identity.partition, self._boot_id, self._is_sync)
        file.write_at(SLOT_POSITIONS[sequence % 2], slot.encode())
        file.sync()
        self._set_sequence(sequence)
        self._other = file.read_at(self._other_position, SEQUENCE_END)
        self._position = _area_position(sequence) + len(frame)
        self._chain = crc
        self._is_valid = True

    # -- without the lock --------------------------------------------------------------------------

    def sync(self) -> None:
        """Make every entry durable that was appended so far. Any thread, without the lock of the file.

        After a failure it fails for ever: open the queue again.
        """
        self._file.sync()

    def gone(self, workers: list[int]) -> set[int]:
        """Return those of ``workers`` that have ended, however they ended."""
        return {number for number in workers if number != self.worker and not self._file.is_held(number)}

    def is_current(self) -> bool:
        """Return whether the path still names this file."""
        return self._file.is_current()

    def close(self) -> None:
        """Close the file: this worker has ended. A second call is harmless."""
        self._file.close()


def read_queue(disk: Disk, path: str) -> tuple[JournalIdentity, QueueState]:
    """Return the queue in the journal ``path``, as the last whole entry leaves it, without a lock.

    Raises :class:`CorruptError` for damage, :class:`StorageError` if the disk refuses.
    """
    file = disk.open(path)
    try:
        data = bytes(file.read_at(0, QUEUE_FILE_SIZE))
    finally:
        file.close()
    slots = slots_of(data)
    if not slots:
        raise CorruptError("neither slot of the queue's journal is whole", file=path, position=0)
    newest = max(slots, key=lambda slot: slot.sequence)
    start = position = _area_position(newest.sequence)
    state = QueueState()
    try:
        for body, _, end in _entries(data[start : start + _AREA_SIZE], _seed(newest.sequence, newest.topic_id)):
            entry = decode_entry(body)
            _check_place(entry, is_first=position == start)
            state.apply(entry)
            position = start + end
    except CorruptError as error:
        raise CorruptError(error.reason, file=path, position=position) from None
    if position == start:
        raise CorruptError("the queue's journal has no snapshot", file=path, position=start)
    return JournalIdentity(name_of(data) or "", newest.topic_id, newest.partition), state


def _check_place(entry: Entry, *, is_first: bool) -> None:
    """Raise :class:`CorruptError` unless the entry is a snapshot exactly if it is the first one of its area."""
    if isinstance(entry, Snapshot) != is_first:
        raise CorruptError("a snapshot is not the first entry of its area")


def _area_position(sequence: int) -> int:
    return _AREAS_POSITION + sequence % 2 * _AREA_SIZE


def _seed(sequence: int, topic_id: str) -> int:
    """Return the checksum that comes before the first entry of an area."""
    return crc32c(_SEED.pack(sequence, decode_uuid(topic_id)))


def _entries(data: bytes, chain: int) -> list[tuple[bytes, int, int]]:
    """Return body, checksum and end position of each whole entry."""
    found = []
    position = 0
    while position + _FRAME.size < len(data):
        size, crc = _FRAME.unpack_from(data, position)
        body = data[position + _FRAME.size : position + _FRAME.size + size]
        if not size or len(body) < size:
            break
        chain = crc32c(body, crc32c(data[position : position + 4], chain))
        if chain != crc:
            break
        position += _FRAME.size + size
        found.append((body, crc, position))
    return found
