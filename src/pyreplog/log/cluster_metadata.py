"""The metadata logs in the folders of a cluster's nodes, for readers of logs: which topics there are, with their ids
and the members of their partitions.

A node's metadata log is its copy of the cluster's metadata. The copy with the highest epoch and end counts, as it
would in an election. ``pyreplog.quorum`` writes these files, and ``pyreplog.wire`` knows every record; this module
reads only the records that make topics and partitions, without a lock, as far as the log is sound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from pyreplog.errors import CorruptError, StorageError
from pyreplog.log.controller_file import CONTROLLER_NAME, ControllerBody, Members
from pyreplog.log.damage_check import VouchedEpochs
from pyreplog.log.identity import encode_uuid
from pyreplog.log.layout import MARK_NAME, METADATA_FOLDER, is_log_file, join, parent_of, parse_base_offset
from pyreplog.log.node_list import read_cluster, read_nodes
from pyreplog.log.scan import scan_segment
from pyreplog.ports import Disk, File
from pyreplog.record import RecordBatch, records_of, size_of
from pyreplog.values import TopicPartition

CONVERTED_NAME: Final = "replog.controller.0.1"
"""The controller's file of version 0.1, after a cluster's metadata was moved from it into metadata logs."""
VOUCHER_NAME: Final = "replog.quorum"
_OURS: Final = (VOUCHER_NAME, MARK_NAME)
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_CHUNK_SIZE: Final = 4 << 20
_SIZE_FIELD_END: Final = 12
_TOPIC: Final = 2
_PARTITION: Final = 3
_CHANGE: Final = 5
_REMOVE_TOPIC: Final = 9
_BEGIN: Final = 23
_END: Final = 24
_ABORT: Final = 25
_ISR_TAG: Final = 0
_REPLICAS_TAG: Final = 2
_ELR_OF_PARTITION_TAG: Final = 1
_ELR_OF_CHANGE_TAG: Final = 6
_LEADER_AND_EPOCHS_SIZE: Final = 12


class MetadataEnd(NamedTuple):
    """The end of a metadata log, in the order in which an election prefers them."""

    epoch: int
    end_offset: int


def has_metadata(disk: Disk, root: str) -> bool:
    """Return whether the folder ``root`` is a node's, with a metadata log that pyreplog wrote."""
    folder = join(root, METADATA_FOLDER)
    return any(disk.stat(join(folder, name)) is not None for name in _OURS)


def holds_cluster(disk: Disk, folder: str) -> bool:
    """Return whether ``folder`` is a cluster's: it holds the controller's file, or a node with a metadata log."""
    if any(disk.stat(join(folder, name)) is not None for name in (CONTROLLER_NAME, CONVERTED_NAME)):
        return True
    stat = disk.stat(folder)
    if stat is None or not stat.is_directory:
        return False
    names = [name for name in disk.list(folder) if name.startswith("node-")]
    return any(has_metadata(disk, join(folder, name)) for name in names) or any(
        has_metadata(disk, node) for node in read_nodes(disk, folder).values()
    )


def cluster_of(disk: Disk, folder: str) -> str | None:
    """Return the folder of the cluster that ``folder``, an absolute path, is, lies in, or names as its own; None if it
    belongs to no cluster."""
    above = parent_of(folder)
    if holds_cluster(disk, folder):
        return folder
    if any(disk.stat(join(above, name)) is not None for name in (CONTROLLER_NAME, CONVERTED_NAME)):
        return above
    if has_metadata(disk, join(above, "node-1")):
        return above  # the folder above may hold very many names, so they are not looked through
    named = read_cluster(disk, folder)
    if named:
        return named
    return above if has_metadata(disk, folder) else None


def newest_metadata(disk: Disk, roots: Sequence[str]) -> str | None:
    """Return the one of the nodes' folders ``roots`` whose metadata log has the highest epoch and end; None if none
    has a metadata log."""
    found = [
        (MetadataFolder(disk, join(root, METADATA_FOLDER)).end(), root) for root in roots if has_metadata(disk, root)
    ]
    return max(found, key=lambda one: one[0])[1] if found else None


def metadata_body(disk: Disk, root: str, cluster_id: str) -> ControllerBody:
    """Return the topics and partitions by the metadata log in the node's folder ``root``, up to the log's end."""
    topics = _Topics()
    for value in MetadataFolder(disk, join(root, METADATA_FOLDER)).records():
        with suppress(IndexError, KeyError, ValueError):  # `replog verify` names such a record
            topics.apply(value)
    ids = {name: encode_uuid(topic_id) for topic_id, name in topics.names.items()}
    members = {
        TopicPartition(name, number): Members(one.replicas, one.isr + one.elr)
        for topic_id, name in topics.names.items()
        for number, one in topics.partitions[topic_id].items()
    }
    return ControllerBody(cluster_id, ids, members)


class MetadataFolder:
    """One metadata folder, read without a lock: the newest whole snapshot and the sound log behind it."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        names = disk.list(folder)
        matches = [(match, name) for name in names if (match := _SNAPSHOT.fullmatch(name)) is not None]
        self._snapshots = sorted(((int(match[1]), int(match[2]), name) for match, name in matches), reverse=True)
        bases = [base for name in names if is_log_file(name) and (base := parse_base_offset(name)) is not None]
        self._bases = sorted(bases)

    def end(self) -> MetadataEnd:
        """Return the epoch of its last sound record, and the offset behind it."""
        offset, epoch, _ = self._newest_snapshot()
        end = MetadataEnd(epoch, offset)
        for batch in self.batches(offset):
            end = MetadataEnd(max(end.epoch, batch.leader_epoch), max(end.end_offset, batch.next_offset))
        return end

    def records(self) -> Iterator[bytes]:
        """Iterate over the values of its metadata records: those of the snapshot, then those of the log behind it.
        Records of an aborted metadata transaction are left out."""
        held: list[bytes] | None = None
        for value in self._values():
            kind = value[1] if len(value) > 1 else -1
            if kind == _BEGIN:
                held = []
            elif kind in (_END, _ABORT):
                yield from (held or ()) if kind == _END else ()
                held = None
            elif held is not None:
                held.append(value)
            else:
                yield value

    def _values(self) -> Iterator[bytes]:
        start, _, snapshot = self._newest_snapshot()
        for batch in snapshot:
            yield from _values_of(batch, 0)
        for batch in self.batches(start):
            yield from _values_of(batch, start)

    @property
    def first_offset(self) -> int:
        """The offset at which the log begins; 0 if it has no segment."""
        return min(self._bases, default=0)

    def _newest_snapshot(self) -> tuple[int, int, list[RecordBatch]]:
        """Return the end, the epoch and the batches of the newest whole snapshot; (0, 0, []) if none is whole."""
        for offset, epoch, name in self._snapshots:
            batches = self._snapshot(name)
            if batches is not None:
                return offset, epoch, batches
        return 0, 0, []

    def _snapshot(self, name: str) -> list[RecordBatch] | None:
        """Return the batches of a snapshot; None if it is not whole: it begins and ends with a control batch."""
        file = self._disk.open(join(self._folder, name))
        try:
            batches = list(_sound(file, 0))
            size = sum(batch.size for batch in batches)
            is_whole = size == file.size() and len(batches) > 1 and batches[0].is_control and batches[-1].is_control
            return batches if is_whole else None
        finally:
            file.close()

    def batches(self, start: int) -> Iterator[RecordBatch]:
        """Iterate over the batches that reach ``start``, up to the first damage or gap: none if the log begins
        behind ``start``."""
        vouched = VouchedEpochs.read(self._disk, self._folder)
        expected: int | None = None
        for base, after in zip(self._bases, [*self._bases[1:], None], strict=False):  # there may be no segment
            if after is not None and after <= start:
                continue
            if base != expected if expected is not None else base > start:
                return
            expected = base
            try:
                file = self._disk.open(join(self._folder, f"{base:020d}.log"))
            except StorageError:
                return  # its writer removed it
            try:
                for batch in _sound(file, base):
                    if batch.base_offset != expected or not vouched.fits(batch.leader_epoch, batch.base_offset):
                        return
                    expected = batch.next_offset
                    if expected > start:
                        yield batch
            finally:
                file.close()


def _sound(file: File, base_offset: int) -> Iterator[RecordBatch]:
    """Iterate over the sound batches at the beginning of ``file``."""
    size = scan_segment(file, file.size(), base_offset).position
    position = 0
    want = _CHUNK_SIZE
    while position < size:
        data = bytes(file.read_at(position, min(want, size - position)))
        at = 0
        while len(data) - at >= _SIZE_FIELD_END and size_of(memoryview(data)[at:]) <= len(data) - at:
            batch = RecordBatch(data, at)
            yield batch
            at += batch.size
        if not at and len(data) < want:
            return  # the file is shorter than it was
        want = _CHUNK_SIZE if at else 2 * want
        position += at


def _values_of(batch: RecordBatch, start: int) -> Iterator[bytes]:
    if batch.is_control:
        return
    try:
        records = records_of(batch, METADATA_FOLDER, 0, batch.base_offset, batch.next_offset)
    except CorruptError:
        return
    for record in records:
        if record.offset >= start and record.value is not None:
            yield bytes(record.value)


class _RecordBytes:
    """The fields of one record, read in order. Raises IndexError or ValueError if they do not fit the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise IndexError("a field is cut off")
        self._at += size
        return self._data[self._at - size : self._at]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        return value

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int32s(self) -> tuple[int, ...]:
        return tuple(self.int32() for _ in range(self.varint() - 1))

    def tags(self) -> dict[int, bytes]:
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())}


class _Partition(NamedTuple):
    """The members of one partition by the records so far."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]


class _Topics:
    """The topics and partitions that the records so far add up to, by topic id."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {}
        self.partitions: dict[bytes, dict[int, _Partition]] = {}

    def apply(self, value: bytes) -> None:
        """Apply one record; records of other kinds change nothing.

        Raises KeyError, IndexError or ValueError for a record that is none, or contradicts those before it.
        """
        fields = _RecordBytes(value)
        if fields.varint() != 1:
            raise ValueError("the frame has an unknown version")
        kind, version = fields.varint(), fields.varint()
        if kind == _TOPIC:
            name = fields.take(fields.varint() - 1).decode()
            topic_id = fields.take(16)
            self.names[topic_id] = name
            self.partitions[topic_id] = {}
        elif kind == _REMOVE_TOPIC:
            topic_id = fields.take(16)
            del self.names[topic_id], self.partitions[topic_id]
        elif kind == _PARTITION:
            self._partition(fields, version)
        elif kind == _CHANGE:
            self._change(fields)

    def _partition(self, fields: _RecordBytes, version: int) -> None:
        number, topic_id = fields.int32(), fields.take(16)
        replicas, isr = fields.int32s(), fields.int32s()
        fields.int32s()  # of a reassignment, as the next one
        fields.int32s()
        fields.take(_LEADER_AND_EPOCHS_SIZE)
        if version >= 1:
            fields.take(16 * (fields.varint() - 1))
        elr = _list_in(fields.tags().get(_ELR_OF_PARTITION_TAG)) or ()
        self.partitions[topic_id][number] = _Partition(replicas, isr, elr)

    def _change(self, fields: _RecordBytes) -> None:
        number, topic_id = fields.int32(), fields.take(16)
        tags = fields.tags()
        before = self.partitions[topic_id][number]
        isr, replicas, elr = (_list_in(tags.get(tag)) for tag in (_ISR_TAG, _REPLICAS_TAG, _ELR_OF_CHANGE_TAG))
        self.partitions[topic_id][number] = _Partition(
            before.replicas if replicas is None else replicas,
            before.isr if isr is None else isr,
            before.elr if elr is None else elr,
        )


def _list_in(data: bytes | None) -> tuple[int, ...] | None:
    """Return the list of int32 in a tagged field; None if there is none, which leaves it unchanged."""
    return None if data is None or data == b"\0" else _RecordBytes(data).int32s()
