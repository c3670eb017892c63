"""The durable mark: the state of a partition that must survive a crash (``replog.mark``).

Three slots of one fixed size, each with a sequence number and a CRC-32C; the valid slot with the highest number
counts::

    position 0, 512 and 1024
    magic "RLMK" | version | flags | sequence | synced end | high watermark | ...
       4 bytes   |    2    |   2   |    8     |     8      |       8        |
    ... start offset | partition | epochs crc | topic id | crc
             8       |     4     |     4      |    16    |  4

The slot of the last sync is not overwritten until the next sync; writes alternate between the other two. So:

* a process that dies within a write leaves the slot before it; then the newest whole slot is exact;
* power loss, which may tear both alternating slots, leaves the synced slot, which may be old;
* a reader beside a live writer always finds a whole slot. If two writes happen during its read, that may be only the
  slot of the last sync; then the reader reads again.

A clean close leaves two slots with the same state. The file has its full length from the beginning. A shorter file
has lost its end, perhaps with its newest slot, and is ignored.

Format: docs/internals/format/mark.md. Rules: a mark above a truncated log would read as rot, so a truncation below
``synced_end`` lowers and syncs the mark first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from pyreplog._core import crc32c
from pyreplog.config import Durability
from pyreplog.log.identity import decode_uuid, encode_uuid
from pyreplog.log.layout import MARK_NAME, join, parent_of
from pyreplog.log.reserve import with_reserve
from pyreplog.ports import Disk, File

# On disk: never change.
_MAGIC: Final = b"RLMK"
_VERSION: Final = 1
_SLOT: Final = struct.Struct(">4sHHQqqqiI16s")
_CHANGING: Final = struct.Struct(">Qqqq")
_CHANGING_POSITION: Final = 8
"""The fields that change with every write: sequence, synced end, high watermark, start offset."""
_CRC: Final = struct.Struct(">I")
SLOT_SIZE: Final = _SLOT.size + _CRC.size
_CRC_POSITION: Final = _SLOT.size
SLOT_POSITIONS: Final = (0, 512, 1024)
_SIZE: Final = SLOT_POSITIONS[-1] + SLOT_SIZE

_SYNC: Final = 1
_INCOMPLETE: Final = 2
_ADOPTED: Final = 4
_POISONED: Final = 8
_REPORTED: Final = 16
_COMPACTED: Final = 32
_KNOWN_FLAGS: Final = _SYNC | _INCOMPLETE | _ADOPTED | _POISONED | _REPORTED | _COMPACTED

_READ_TRIES: Final = 5


class MarkState(NamedTuple):
    """The content of a slot."""

    synced_end: int
    """The log is on stable storage below this offset."""
    high_watermark: int
    start_offset: int
    durability: Durability
    incomplete: bool
    """This replica may lack acknowledged records. It cannot lead or join the ISR until it has caught up."""
    may_have_gaps: bool
    """Another program wrote the log before it had a mark, so its offsets may have gaps."""
    poisoned: bool
    """A sync failed: the page cache may differ from the disk."""
    epochs_crc: int
    """CRC-32C of the leader epoch history that belongs to this mark."""
    topic_id: str
    partition: int
    sequence: int = 0
    reported: bool = False
    """The replica is incomplete, the controller knows it, and nothing was lost since."""
    compacted: bool = False
    """This library compacted the log, so its offsets have the gaps that the segments' files of gaps name."""


class MarkFile:
    """The open mark file of a log that is being written. Not thread-safe: call it under the log's lock."""

    __slots__ = (
        "_buffer",
        "_crc_part",
        "_disk",
        "_file",
        "_high_watermark",
        "_parts",
        "_root",
        "_sealed",
        "_sequence",
        "_start_offset",
        "_state",
        "_synced_end",
        "_synced_slot",
        "_topic_id",
        "_torn",
        "_written_slot",
        "path",
    )

    def __init__(self, disk: Disk, directory: str, file: File, state: MarkState, slot: int) -> None:
        self.path = file.path
        self._disk = disk
        self._root = parent_of(directory)
        self._file = file
        #: The slot that the last sync made durable, and the slot that was written last.
        self._synced_slot = self._written_slot = slot
        self._sequence = state.sequence
        self._topic_id = decode_uuid(state.topic_id)
        self._sealed = True  # no slot was written since the file was opened
        self._torn = False
        self._buffer = bytearray(SLOT_SIZE)
        self._crc_part = memoryview(self._buffer)[: _SLOT.size]
        self._parts = (self._buffer,)
        self._take(state)

    def _take(self, state: MarkState) -> None:
        # The fields that change with every write are kept beside the state, because making a new
        # MarkState each time would cost as much as the write.
        self._state = state
        self._synced_end = state.synced_end
        self._high_watermark = state.high_watermark
        self._start_offset = state.start_offset
        flags = (
            (_SYNC if state.durability == "sync" else 0)
            | (_INCOMPLETE if state.incomplete else 0)
            | (_ADOPTED if state.may_have_gaps else 0)
            | (_POISONED if state.poisoned else 0)
            | (_REPORTED if state.reported else 0)
            | (_COMPACTED if state.compacted else 0)
        )
        _SLOT.pack_into(
            self._buffer, 0, _MAGIC, _VERSION, flags, 0, 0, 0, 0, state.partition, state.epochs_crc, self._topic_id
        )

    @property
    def state(self) -> MarkState:
        """The state that was written last."""
        return self._state._replace(
            synced_end=self._synced_end,
            high_watermark=self._high_watermark,
            start_offset=self._start_offset,
            sequence=self._sequence,
        )

    @property
    def incomplete(self) -> bool:
        """``incomplete`` of :attr:`state`."""
        return self._state.incomplete

    @property
    def reported(self) -> bool:
        """``reported`` of :attr:`state`."""
        return self._state.reported

    @property
    def may_have_gaps(self) -> bool:
        """``may_have_gaps`` of :attr:`state`."""
        return self._state.may_have_gaps

    @property
    def promised_end(self) -> int:
        """The highest offset below which the mark says that the log is synced or was shown to readers."""
        return max(self._synced_end, self._high_watermark)

    @classmethod
    def create(cls, disk: Disk, directory: str, state: MarkState) -> MarkFile:
        """Create a mark file with ``state`` in two slots, synced. An existing file is replaced. The caller syncs the
        folder."""
        mark = cls.begin(disk, directory, state)
        mark.sync()
        return mark

    @classmethod
    def begin(cls, disk: Disk, directory: str, state: MarkState) -> MarkFile:
        """Create a mark file as :meth:`create`, without a sync."""
        path = join(directory, MARK_NAME)
        if disk.stat(path) is not None:
            disk.remove(path)
        mark = cls(disk, directory, disk.create(path), state, 0)
        mark.write_state(state)
        mark.write_state(state)
        return mark

    @classmethod
    def open(cls, disk: Disk, directory: str, found: MarkState, slot: int, *, synced: bool) -> MarkFile:
        """Open the mark file to continue from ``found``, which :func:`find_mark` found in ``slot``.

        That slot becomes the synced one, so the file is synced first unless ``synced`` says that it already is.
        """
        path = join(directory, MARK_NAME)
        file = disk.open(path, write=True)
        try:
            if not synced:
                file.sync()
            mark = cls(disk, directory, file, found, slot)
            mark._torn = _slots(file.read_at(0, _SIZE))[1] > 0
        except BaseException:
            file.close()
            raise
        return mark

    def write(self, synced_end: int, high_watermark: int, start_offset: int) -> None:
        """Write these offsets if one of them differs from the last write. Not synced."""
        if (
            self._high_watermark == high_watermark
            and self._synced_end == synced_end
            and self._start_offset == start_offset
        ):
            return
        self._write_slot(synced_end, high_watermark, start_offset)

    def write_state(self, state: MarkState) -> None:
        """Write all of ``state`` under the next sequence number. Not synced."""
        before = self.state
        try:
            self._take(state)
            self._write_slot(state.synced_end, state.high_watermark, state.start_offset)
        except BaseException:
            self._take(before)
            raise

    def _write_slot(self, synced_end: int, high_watermark: int, start_offset: int) -> None:
        sequence = self._sequence + 1
        buffer = self._buffer
        _CHANGING.pack_into(buffer, _CHANGING_POSITION, sequence, synced_end, high_watermark, start_offset)
        _CRC.pack_into(buffer, _CRC_POSITION, crc32c(self._crc_part))
        stable, newest = self._synced_slot, self._written_slot
        slot = (stable + 1) % 3 if newest == stable else 3 - stable - newest
        self._sealed = False
        # A copy-on-write file system, such as btrfs, needs free space even to overwrite a slot.
        with_reserve(self._disk, self._root, partial(self._file.write_at, SLOT_POSITIONS[slot], self._parts))
        self._written_slot = slot
        self._sequence = sequence
        self._synced_end = synced_end
        self._high_watermark = high_watermark
        self._start_offset = start_offset

    def sync(self) -> None:
        """Make the slot that was written last durable; it is not overwritten until the next sync. Does nothing if no
        slot was written since the last one."""
        if self._synced_slot != self._written_slot:
            self._file.sync()
            self._synced_slot = self._written_slot

    def write_redundantly(self) -> None:
        """Write the last state to a second slot, synced, at a clean close.

        Readers use the mark alone, so damage to one slot must not make them use an older one. If power loss left a
        torn slot, all three slots are written. Does nothing if no slot was written since the file was opened.
        """
        if not self._sealed:
            for _ in SLOT_POSITIONS if self._torn else SLOT_POSITIONS[:1]:
                self._write_slot(self._synced_end, self._high_watermark, self._start_offset)
                self.sync()
            self._sealed = True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def parse_slot(data: bytes | memoryview) -> MarkState | None:
    """Return the state in a slot's bytes, or None if the checksum is wrong or the version is newer."""
    if len(data) != SLOT_SIZE:
        return None
    view = memoryview(data)
    (crc,) = _CRC.unpack_from(view, _SLOT.size)
    if crc != crc32c(view[: _SLOT.size]):
        return None
    magic, version, flags, sequence, synced_end, high_watermark, start, partition, epochs_crc, topic_id = (
        _SLOT.unpack_from(view)
    )
    if magic != _MAGIC or version != _VERSION or flags & ~_KNOWN_FLAGS:
        return None
    return MarkState(
        synced_end,
        high_watermark,
        start,
        "sync" if flags & _SYNC else "os",
        bool(flags & _INCOMPLETE),
        bool(flags & _ADOPTED),
        bool(flags & _POISONED),
        epochs_crc,
        encode_uuid(topic_id),
        partition,
        sequence,
        bool(flags & _REPORTED),
        bool(flags & _COMPACTED),
    )


def parse_mark(data: bytes | memoryview) -> tuple[MarkState, int] | None:
    """Return the state in the newest valid slot of a mark file's content, and the slot's number.

    Return None if no slot is valid or the file is too short.
    """
    return None if len(data) < _SIZE else _written_slot(_slots(data)[0])


def _slots(data: bytes | memoryview) -> tuple[list[MarkState | None], int]:
    """Return the state in each slot (None if invalid), and the number of slots that are neither valid nor empty."""
    slots = [bytes(data[position : position + SLOT_SIZE]) for position in SLOT_POSITIONS]
    states = [parse_slot(slot) for slot in slots]
    return states, sum(state is None and any(slot) for slot, state in zip(slots, states, strict=True))


def _written_slot(states: Sequence[MarkState | None]) -> tuple[MarkState, int] | None:
    best: tuple[MarkState, int] | None = None
    for slot, state in enumerate(states):
        if state is not None and (best is None or state.sequence > best[0].sequence):
            best = (state, slot)
    return best


def find_mark(
    disk: Disk, directory: str, *, topic_id: str | None = None, partition: int | None = None
) -> tuple[MarkState, int] | None:
    """Return the mark in ``directory`` and its slot, or None if it is missing, damaged or of another partition."""
    data = _content(disk, directory)
    found = None if data is None else parse_mark(data)
    if found is None:
        return None
    state = found[0]
    if (topic_id is not None and state.topic_id != topic_id) or (
        partition is not None and state.partition != partition
    ):
        return None
    return found


def sync_found_mark(disk: Disk, directory: str) -> None:
    """Make the mark that :func:`find_mark` found durable, because after a process kill it may only be in the page
    cache. REQUIRES that there is a mark.

    The same bytes are written again before the sync: the process may have died after a failed sync, and a second
    sync without a write would succeed and do nothing. The slot of the last good sync has the same bytes on the disk,
    so a torn write leaves at least that slot.
    """
    file = disk.open(join(directory, MARK_NAME), write=True)
    try:
        content = [file.read_at(0, _SIZE)]
        with_reserve(disk, parent_of(directory), partial(file.write_at, 0, content))
        file.sync()
    finally:
        file.close()


def mark_incomplete(disk: Disk, directory: str) -> None:
    """Record durably in the mark that this replica lacks records and that the controller does not know it yet.

    REQUIRES that there is a mark.
    """
    found = find_mark(disk, directory)
    assert found is not None, "a mark that was found before"
    mark = MarkFile.open(disk, directory, *found, synced=False)
    try:
        mark.write_state(found[0]._replace(incomplete=True, reported=False))
        mark.sync()
    finally:
        mark.close()


def read_mark(disk: Disk, directory: str) -> MarkState | None:
    """Return the mark in ``directory`` for a reader beside a live writer, or None. Half-written slots are read
    again."""
    return MarkReader(disk, directory).read()


class MarkReader:
    """Reads a mark again and again, for a reader beside a live writer. It parses only changed bytes."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._data = b""
        self._state: MarkState | None = None

    def read(self) -> MarkState | None:
        """Return the mark, or None. Half-written slots are read again."""
        found = None
        for _ in range(_READ_TRIES):
            data = _content(self._disk, self._directory)
            if data is None or len(data) < _SIZE:
                continue
            if data == self._data:
                return self._state
            states, broken_count = _slots(data)
            found = _written_slot(states) or found
            # If both alternating slots were being written, the synced slot may be much older than
            # the state that this reader saw before.
            if found is not None and broken_count < len(SLOT_POSITIONS) - 1:
                self._data, self._state = bytes(data), found[0]
                break
        return None if found is None else found[0]


def _content(disk: Disk, directory: str) -> memoryview | None:
    """Return the content of the mark file, or None if there is none."""
    path = join(directory, MARK_NAME)
    if disk.stat(path) is None:
        return None
    file = disk.open(path)
    try:
        return file.read_at(0, _SIZE)
    finally:
        file.close()
