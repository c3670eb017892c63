"""Snapshot files of the metadata log: the state below an offset, as record batches.

``<end offset, 20 digits>-<epoch, 10 digits>.checkpoint`` restates everything below its end offset;
the epoch is that of the last record in it. The file is a control batch that begins with
SNAPSHOT_HEADER, then data batches, then a control batch with SNAPSHOT_FOOTER. Its batches have
offsets of their own, from 0, and the snapshot's epoch. A file is written under its name with
``.part`` behind it, synced, and renamed, so a file with a whole name was once whole.

Format: docs/internals/format/metadata_snapshot.md; Kafka's ``RecordsSnapshotWriter`` and
``RecordsSnapshotReader``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from pyreplog.config import INT32_MAX, INT64_MAX
from pyreplog.errors import CorruptError, LocalProtocolError, RemoteProtocolError, StorageError
from pyreplog.log import join
from pyreplog.ports import Disk, File
from pyreplog.quorum.storage import ControlEntry
from pyreplog.record import BatchBuilder, RecordBatch, control_records, records_of
from pyreplog.wire import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    SnapshotId,
    decode_control_record,
    encode_control_record,
)

__all__ = [
    "PART_SUFFIX",
    "SNAPSHOT_SUFFIX",
    "PartialSnapshot",
    "SnapshotReader",
    "SnapshotWriter",
    "list_snapshots",
    "parse_snapshot_name",
    "remove_parts",
    "remove_snapshot",
    "snapshot_name",
    "write_snapshot",
]

SNAPSHOT_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".part"
SLICE_SIZE: Final = 256 << 10
"""A batch is closed at this size, so one call writes little at a time."""
SYNC_SIZE: Final = 4 << 20
"""At most so many bytes are written without a sync, so that no sync takes long."""
BATCH_SIZE_MAX: Final = 8 << 20
"""Kafka's limit of a batch of metadata records. A reader refuses one that is twice as large."""
_LENGTH_END: Final = 12
"""The bytes of a batch up to the end of its length field."""
_LENGTH_START: Final = 8
_OFFSET_DIGITS: Final = 20
_EPOCH_DIGITS: Final = 10


def snapshot_name(snapshot_id: SnapshotId) -> str:
    """Return the name of a snapshot's file."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}{SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """Return the snapshot of a file name, or None for any other name (``.part`` and ``.deleted`` files too)."""
    end, dash, epoch = name.removesuffix(SNAPSHOT_SUFFIX).partition("-")
    digits = end + epoch
    if not dash or not name.endswith(SNAPSHOT_SUFFIX) or not (digits.isascii() and digits.isdigit()):
        return None
    if len(end) != _OFFSET_DIGITS or len(epoch) != _EPOCH_DIGITS:
        return None
    found = SnapshotId(int(end), int(epoch))
    return found if found.end_offset <= INT64_MAX and found.epoch <= INT32_MAX else None


def list_snapshots(disk: Disk, folder: str) -> list[SnapshotId]:
    """Return the snapshots in ``folder``, the oldest first. Their content is not read."""
    found = [snapshot_id for name in disk.list(folder) if (snapshot_id := parse_snapshot_name(name)) is not None]
    return sorted(found, key=lambda snapshot_id: (snapshot_id.end_offset, snapshot_id.epoch))


def remove_snapshot(disk: Disk, folder: str, snapshot_id: SnapshotId) -> None:
    """Remove the file of a snapshot. The caller syncs the folder."""
    disk.remove(join(folder, snapshot_name(snapshot_id)))


def remove_parts(disk: Disk, folder: str) -> None:
    """Remove the files of snapshots that were not finished. The caller syncs the folder."""
    for name in disk.list(folder):
        if name.endswith(SNAPSHOT_SUFFIX + PART_SUFFIX):
            disk.remove(join(folder, name))


class _Part:
    """The file of a snapshot under its temporary name. An earlier one is replaced."""

    __slots__ = ("_disk", "_folder", "_started", "_synced", "file", "position", "snapshot_id")

    def __init__(self, disk: Disk, folder: str, snapshot_id: SnapshotId) -> None:
        self._disk = disk
        self._folder = folder
        self.snapshot_id = snapshot_id
        path = join(folder, snapshot_name(snapshot_id) + PART_SUFFIX)
        if disk.stat(path) is not None:
            disk.remove(path)
        self.file: File = disk.create(path)
        self.position = 0
        self._synced = self._started = 0

    def write(self, data: bytes | memoryview) -> None:
        """Write behind the bytes already written. Sync now and then, so that the last sync is short."""
        self.file.write_at(self.position, [data])
        self.position += len(data)
        if self.position - self._started >= SLICE_SIZE:
            self.file.start_sync(self._started, self.position - self._started)
            self._started = self.position
        if self.position - self._synced >= SYNC_SIZE:
            self.file.sync()
            self._synced = self.position

    def keep(self) -> str:
        """Make the file durable under its whole name, and return that name."""
        name = snapshot_name(self.snapshot_id)
        self.file.sync()
        self.file.close()
        self._disk.rename(self.file.path, join(self._folder, name))
        self._disk.sync_directory(self._folder)
        return name

    def abandon(self) -> None:
        """Remove the file, if the disk allows it."""
        with suppress(StorageError):
            self.file.close()
        with suppress(StorageError):
            self._disk.remove(self.file.path)


class SnapshotWriter:
    """Writes one snapshot, in as many steps as the caller likes. Belongs to one thread.

    ``control`` are the control records (key, value) behind the header: version and voters of the
    quorum. ``last_timestamp_ms`` is the time of the last record that the snapshot contains. If a
    method raises, call :meth:`abandon`.
    """

    __slots__ = ("_builder", "_next", "_part", "_timestamp_ms")

    def __init__(
        self,
        disk: Disk,
        folder: str,
        snapshot_id: SnapshotId,
        control: Sequence[tuple[bytes, bytes]] = (),
        *,
        timestamp_ms: int,
        last_timestamp_ms: int = 0,
    ) -> None:
        self._builder = BatchBuilder(BATCH_SIZE_MAX, SLICE_SIZE)
        self._next = 0
        self._timestamp_ms = timestamp_ms
        self._part = _Part(disk, folder, snapshot_id)
        try:
            self._write_control([encode_control_record(SnapshotHeaderRecord(last_timestamp_ms)), *control])
        except BaseException:
            self._part.abandon()
            raise

    @property
    def snapshot_id(self) -> SnapshotId:
        """The end of the snapshot."""
        return self._part.snapshot_id

    def append(self, records: Iterable[bytes]) -> None:
        """Add metadata records. Full batches are written; the rest waits in memory."""
        builder = self._builder
        for value in records:
            if builder.append(value, None, (), self._timestamp_ms):
                continue
            if builder.count:
                self._write_batch()
            if not builder.append(value, None, (), self._timestamp_ms):
                raise LocalProtocolError(f"a metadata record of {len(value)} bytes is too large for a snapshot")

    def finish(self, timestamp_ms: int | None = None) -> str:
        """Write the footer, and make the snapshot durable under its name, which is returned.

        ``timestamp_ms``: the time of the footer, by default that of the header.
        """
        if self._builder.count:
            self._write_batch()
        if timestamp_ms is not None:
            self._timestamp_ms = timestamp_ms
        self._write_control([encode_control_record(SnapshotFooterRecord())])
        return self._part.keep()

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._part.abandon()

    def _write_control(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            self._builder.append(value, key, (), self._timestamp_ms)
        self._write_batch(control=True)

    def _write_batch(self, *, control: bool = False) -> None:
        builder = self._builder
        count = builder.count
        epoch = self._part.snapshot_id.epoch
        self._part.write(builder.finish(base_offset=self._next, leader_epoch=epoch, control=control))
        self._next += count
        builder.reset()


def write_snapshot(
    disk: Disk,
    folder: str,
    snapshot_id: SnapshotId,
    control: Sequence[tuple[bytes, bytes]],
    records: Iterable[bytes],
    *,
    timestamp_ms: int,
    last_timestamp_ms: int = 0,
) -> str:
    """Write a whole snapshot durably, and return the name of its file. If it raises, there is none."""
    writer = SnapshotWriter(
        disk, folder, snapshot_id, control, timestamp_ms=timestamp_ms, last_timestamp_ms=last_timestamp_ms
    )
    try:
        writer.append(records)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


class _Walk:
    """Goes through the batches of a snapshot in order, and checks each: as far as the file is there."""

    __slots__ = ("_file", "_next_offset", "_snapshot_id", "complete", "position")

    def __init__(self, file: File, snapshot_id: SnapshotId) -> None:
        self._file = file
        self._snapshot_id = snapshot_id
        self._next_offset = 0
        self.position = 0
        self.complete = False
        """Whether the batch before :attr:`position` ends with the footer."""

    def next_batch(self, size: int) -> RecordBatch | None:
        """Return the next batch of a file of ``size`` bytes; None if it is not all there.

        Raises :class:`CorruptError`.
        """
        position = self.position
        if self.complete and position < size:
            raise self.wrong("bytes behind the footer of the snapshot")
        head = self._file.read_at(position, _LENGTH_END)
        if len(head) < _LENGTH_END or size - position < _LENGTH_END:
            return None
        batch_size = _LENGTH_END + int.from_bytes(head[_LENGTH_START:_LENGTH_END], "big")
        if batch_size > 2 * BATCH_SIZE_MAX:
            raise self.wrong(f"a batch of {batch_size} bytes is too large")
        if batch_size > size - position:
            return None
        batch = self._parsed(batch_size)
        if batch.base_offset != self._next_offset:
            raise self.wrong(f"the batch has base offset {batch.base_offset}, expected {self._next_offset}")
        if batch.leader_epoch != self._snapshot_id.epoch:
            raise self.wrong(f"the batch has epoch {batch.leader_epoch}, the snapshot {self._snapshot_id.epoch}")
        self.complete = self._check_ends(batch)
        self._next_offset = batch.next_offset
        self.position += batch_size
        return batch

    def check_end(self) -> None:
        """Raise :class:`CorruptError` unless the footer was the last batch."""
        if not self.complete:
            raise self.wrong("the snapshot is cut off: it has no footer")

    def _parsed(self, size: int) -> RecordBatch:
        try:
            batch = RecordBatch(self._file.read_at(self.position, size))
            batch.check_crc()
            if batch.codec == 0:
                batch.check_records()
        except CorruptError as error:
            raise self.wrong(error.reason) from None
        if not batch.record_count:
            raise self.wrong("a batch without records")
        return batch

    def _check_ends(self, batch: RecordBatch) -> bool:
        """Check that the header is where it must be. Return whether the batch ends with the footer."""
        entries = _entries(batch) if batch.is_control else []
        try:
            found = [decode_control_record(entry.key, entry.value) for entry in entries]
        except RemoteProtocolError as error:
            raise self.wrong(f"a control record is damaged ({error})") from None
        headers = [isinstance(record, SnapshotHeaderRecord) for record in found]
        if self.position == 0 and headers[:1] != [True]:
            raise self.wrong("the snapshot has no header")
        if any(headers if self.position else headers[1:]):
            raise self.wrong("a second header of the snapshot")
        footers = [isinstance(record, SnapshotFooterRecord) for record in found]
        if any(footers[:-1]):
            raise self.wrong("a record behind the footer of the snapshot")
        return any(footers)

    def wrong(self, reason: str) -> CorruptError:
        """Return the error about the batch at :attr:`position`."""
        return CorruptError(reason, file=self._file.path, position=self.position)


def _entries(batch: RecordBatch) -> list[ControlEntry]:
    return [ControlEntry(record.offset, record.key, record.value or b"") for record in control_records(batch)]


class SnapshotReader:
    """A snapshot's file, open for reading. Belongs to one thread.

    The methods that walk through it raise :class:`CorruptError` for a wrong checksum, order or epoch, for a
    missing header or footer, and for bytes behind the footer.
    """

    __slots__ = ("_file", "size", "snapshot_id")

    def __init__(self, disk: Disk, folder: str, snapshot_id: SnapshotId) -> None:
        self._file = disk.open(join(folder, snapshot_name(snapshot_id)))
        self.snapshot_id = snapshot_id
        self.size = self._file.size()

    def read(self, position: int, size_max: int) -> bytes:
        """Return bytes of the file, for a node that copies it."""
        return bytes(self._file.read_at(position, size_max))

    def check(self) -> None:
        """Walk through the whole file."""
        for _ in self._batches():
            pass

    def control(self) -> list[ControlEntry]:
        """Return the control records between header and footer, after a walk through the whole file."""
        found: list[ControlEntry] = []
        for batch in self._batches():
            if batch.is_control:
                found.extend(_entries(batch))
        return found[1:-1]

    def records(self) -> Iterator[bytes]:
        """Return the metadata records. The footer is checked when the last one was returned."""
        for batch in self._batches():
            if not batch.is_control:
                for record in records_of(batch):
                    yield record.value or b""

    def close(self) -> None:
        """Close the file. A second call is harmless."""
        self._file.close()

    def _batches(self) -> Iterator[RecordBatch]:
        """Return the batches, checked one by one; at the end raise if there was no footer."""
        walk = _Walk(self._file, self.snapshot_id)
        while (batch := walk.next_batch(self.size)) is not None:
            yield batch
        if walk.position < self.size:
            raise walk.wrong("the snapshot is cut off within a batch")
        walk.check_end()


class PartialSnapshot:
    """A snapshot that this node copies from the leader, piece by piece. Belongs to one thread.

    Each batch is checked when its last byte arrives, so no step takes long.
    """

    __slots__ = ("_control", "_damage", "_part", "_walk")

    def __init__(self, disk: Disk, folder: str, snapshot_id: SnapshotId) -> None:
        self._part = _Part(disk, folder, snapshot_id)
        self._walk = _Walk(self._part.file, snapshot_id)
        self._control: list[ControlEntry] = []
        self._damage: CorruptError | None = None

    @property
    def snapshot_id(self) -> SnapshotId:
        """The end of the snapshot."""
        return self._part.snapshot_id

    @property
    def position(self) -> int:
        """The number of bytes that are here: the position of the next piece."""
        return self._part.position

    def append(self, position: int, data: bytes | memoryview) -> None:
        """Take the next piece. REQUIRES ``position`` to be :attr:`position`.

        Damage is reported by :meth:`finish`.
        """
        if position != self._part.position:
            raise LocalProtocolError(f"a piece of a snapshot at {position}, expected {self._part.position}")
        self._part.write(data)
        try:
            while self._damage is None and (batch := self._walk.next_batch(self._part.position)) is not None:
                if batch.is_control:
                    self._control.extend(_entries(batch))
        except CorruptError as error:
            self._damage = error

    def control(self) -> list[ControlEntry]:
        """Return the control records between header and footer. REQUIRES that :meth:`finish` returned."""
        return self._control[1:-1]

    def finish(self) -> str:
        """Make the snapshot durable under its name, which is returned.

        Raises :class:`CorruptError` if it is damaged or cut off; then the file is removed.
        """
        try:
            if self._damage is not None:
                raise self._damage
            if self._walk.position < self._part.position:
                raise self._walk.wrong("the snapshot is cut off within a batch")
            self._walk.check_end()
        except CorruptError:
            self._part.abandon()
            raise
        return self._part.keep()

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._part.abandon()
