"""A staged file: the record batches of one task for one batch, one behind the other, with a footer that describes
them.

Any process writes it, without a lock; it counts only when a manifest names it. Format:
docs/internals/format/spool.md.
"""

from __future__ import annotations

import errno
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple, Protocol

from pyreplog.errors import CorruptError, StorageError, excerpt
from pyreplog.log import check_topic, format_state, join, parse_state
from pyreplog.ports import Disk, File
from pyreplog.record import RecordBatch, crc32c
from pyreplog.spool.layout import BatchId, staged_name
from pyreplog.values import TopicPartition

_VERSION: Final = "0"  # on disk: never change
_FOOTER_SIZE_MAX: Final = 64 << 20
SYNC_SIZE: Final = 8 << 20
"""A sync may begin whenever so many bytes more are written."""


class StagedFile(NamedTuple):
    """One staged file, as a manifest names it. Sizes and positions in bytes; plain data, fit to travel between
    processes."""

    name: str
    size: int
    footer_position: int
    footer_crc: int
    record_count: int
    row_sum: int | None = None
    """The hashes of the rows, summed modulo 2**64: see :class:`pyreplog.spool.Fingerprint`. None: not known, also
    after a manifest was read, which has the sum of all its files."""


class StagedBatch(NamedTuple):
    """One record batch of a staged file, verified."""

    topic_partition: TopicPartition
    data: memoryview
    record_count: int


class Syncs(Protocol):
    """How a staged file gets onto stable storage."""

    def begin(self, file: File) -> None:
        """Some of it is written; more comes. May begin with it."""
        ...

    def finish(self, file: File) -> None:
        """Return when all of it is there. :class:`StorageError` where any of it could not be."""
        ...


class AtTheEnd:
    """Syncs once, when all is written."""

    def begin(self, file: File) -> None:
        """See :class:`Syncs`."""

    def finish(self, file: File) -> None:
        """See :class:`Syncs`."""
        file.sync()


class StagedWriter:
    """Writes one staged file. Belongs to one thread; :meth:`finish` or :meth:`discard` ends it."""

    def __init__(self, disk: Disk, folder: str, batch_id: BatchId, task: str, syncs: Syncs) -> None:
        """Makes the file. ``task`` must be new: see :func:`staged_name`."""
        self._syncs = syncs
        self._begun = 0
        self._disk = disk
        self._folder = folder
        self._name = staged_name(batch_id, task)
        self._path = join(folder, self._name)
        self._file: File = disk.create(self._path)
        self._position = 0
        self._record_count = 0
        self._entries: list[str] = []

    def add(self, batches: Sequence[tuple[TopicPartition, bytes]]) -> None:
        """Append encoded record batches, in the order that each partition must have."""
        self._file.write_at(self._position, [data for _, data in batches])
        for (topic, partition), data in batches:
            self._position += len(data)
            self._record_count += RecordBatch(data).record_count
            self._entries.append(f"{topic} {partition} {len(data)}")
        if self._position - self._begun >= SYNC_SIZE:
            self._begun = self._position
            self._syncs.begin(self._file)

    def finish(self, row_sum: int | None = None) -> StagedFile:
        """Write the footer, make the file durable and return its entry for a manifest. ``row_sum``: see
        :class:`StagedFile`."""
        values = {f"batch.{number:09d}": entry for number, entry in enumerate(self._entries)}
        footer = format_state({"version": _VERSION, **values})
        try:
            self._file.write_at(self._position, [footer])
            self._syncs.finish(self._file)
        finally:
            self._file.close()
        self._disk.sync_directory(self._folder)
        return StagedFile(
            self._name, self._position + len(footer), self._position, crc32c(footer), self._record_count, row_sum
        )

    def discard(self) -> None:
        """Give it up."""
        self._file.close()
        self._disk.remove(self._path)


def read_staged(disk: Disk, folder: str, staged: StagedFile) -> Generator[StagedBatch]:
    """Yields the batches of a staged file in order, each verified. Raises :class:`CorruptError` if it is not the
    file that the manifest names. Close it."""
    path = join(folder, staged.name)
    try:
        file = disk.open(path)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        raise CorruptError("a staged file is gone", file=path) from None
    try:
        if file.size() != staged.size:
            raise CorruptError(f"{file.size()} bytes where the manifest says {staged.size}", file=path)
        position = 0
        for topic_partition, size in _read_footer(file, path, staged):
            data = file.read_at(position, size)
            try:
                batch = RecordBatch(data)
                if batch.size != size:
                    raise CorruptError(f"a batch of {batch.size} bytes where the footer says {size}")
                batch.check_crc()
            except CorruptError as error:
                raise CorruptError(error.reason, file=path, position=position + (error.position or 0)) from None
            yield StagedBatch(topic_partition, data, batch.record_count)
            position += size
    finally:
        file.close()


def _read_footer(file: File, path: str, staged: StagedFile) -> list[tuple[TopicPartition, int]]:
    size = staged.size - staged.footer_position
    if not 0 < size <= _FOOTER_SIZE_MAX:
        raise CorruptError(f"a footer of {size} bytes", file=path)
    footer = bytes(file.read_at(staged.footer_position, size))
    if crc32c(footer) != staged.footer_crc:
        raise CorruptError("checksum mismatch", file=path, position=staged.footer_position)
    return parse_footer(footer, path, staged.footer_position)


def parse_footer(footer: bytes, path: str, position: int) -> list[tuple[TopicPartition, int]]:
    """Return the partition and size of each batch in the footer at ``position``. Raise :class:`CorruptError` if it
    is not a footer."""
    values = parse_state(footer, path)
    if values.pop("version", None) != _VERSION:
        raise CorruptError("unknown version", file=path, position=position)
    entries = []
    for name in sorted(values):
        try:
            topic, partition, length = values[name].split(" ")
            if not (partition.isdecimal() and length.isdecimal()):
                raise ValueError(f"{excerpt(values[name])} is none of its lines")
            entries.append((TopicPartition(check_topic(topic), int(partition)), int(length)))
        except ValueError as error:  # also that of a name that is no topic's
            raise CorruptError(f"no footer of a staged file: {error}", file=path, position=position) from None
    if sum(length for _, length in entries) != position:
        raise CorruptError("the footer's sizes do not add up", file=path, position=position)
    return entries
