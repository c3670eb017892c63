"""Copy one partition up to an offset while its writer runs: the new segments, the last one, and all small files.

The source is read without a lock, as :class:`ReplicaView` does: all records below the mark's high watermark are in
the files, and no byte below it changes. REQUIRES that no other process uses the target folder. A file there gets its
name only when it is whole and synced, so the next run keeps a file of the same name and size. The caller keeps
readers away from the copy until it is complete.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pyreplog.errors import BackupDivergedError, CorruptError, StorageError
from pyreplog.log.clean_shutdown import (
    CleanShutdownMarker,
    Incarnation,
    remove_farewell,
    write_farewell,
    write_incarnation,
)
from pyreplog.log.epochs import EpochCache, read_epochs
from pyreplog.log.folder_view import INDEX_INTERVAL, LogFilePart
from pyreplog.log.gaps import GAPS_SIZE_MAX
from pyreplog.log.identity import random_uuid
from pyreplog.log.index_files import IndexFiles
from pyreplog.log.layout import (
    CONFIG_NAME,
    DELETED_SUFFIX,
    EPOCHS_NAME,
    GAPS_SUFFIX,
    HIGH_WATERMARK_NAME,
    INDEX_SUFFIX,
    LOG_START_NAME,
    LOG_SUFFIX,
    METADATA_TOPIC,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    join,
    segment_name,
)
from pyreplog.log.mark import MarkFile, MarkState, find_mark
from pyreplog.log.producer_snapshot import read_snapshot, snapshot_offsets
from pyreplog.log.replica_view import ReplicaView
from pyreplog.log.scan import scan_segment
from pyreplog.log.settings import read_config
from pyreplog.log.snapshot import read_whole, write_offsets
from pyreplog.ports import Disk, File, RandomBytes
from pyreplog.values import TopicPartition

COPY_CHUNK_SIZE: Final = 1 << 20
"""Number of bytes to copy at a time."""
TAIL_COMPARED_SIZE: Final = 4 << 10
"""Number of bytes to compare at the end of a segment that was copied before. Its last batch distinguishes two
histories."""
NAMED_AT_ONCE_SIZE: Final = 1 << 20
"""A segment of at least this many bytes gets its name as soon as it is copied. Smaller segments are synced
together."""
FILES_TOGETHER: Final = 16
"""Number of files that are open at a time, so that their syncs run side by side."""
_ABORTED: Final = struct.Struct(">hqqqq")
_LAST_OFFSET: Final = 3
_EXTRA: Final = (".checkpoint", "quorum-state", "replog.quorum")
"""Files of the metadata log of a cluster: snapshots, which may replace its first records, and the node's vote."""


class Duplicate(NamedTuple):
    """The offsets of the copy of a partition, and its cost."""

    first_base_offset: int
    start_offset: int
    end_offset: int
    copied_size: int
    """Number of bytes that this run copied."""


def duplicate(
    source: ReplicaView,
    end_offset: int,
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    progress: Callable[[int], None],
) -> Duplicate:
    """Copy the records of ``source`` below ``end_offset`` into the folder ``directory``, durably except for the
    folder's own name.

    ``progress`` is called with the number of bytes after each chunk. Raises :class:`BackupDivergedError` if the
    folder holds records that ``source`` does not have, :class:`CorruptError` if ``source`` is damaged, and
    :class:`StorageError` with ENOENT if the writer of ``source`` removed a file.
    """
    return _Duplicator(source, end_offset, disk, directory, topic_partition, progress).run()


def check_extends(
    source: ReplicaView, end_offset: int, disk: Disk, directory: str, topic_partition: TopicPartition
) -> None:
    """Raise :class:`BackupDivergedError` if the copy in ``directory`` is not the beginning of ``source`` below
    ``end_offset``.

    Nothing is written. A copy that an interrupted run left without a mark is not checked: the next run replaces its
    files. Raises :class:`StorageError` with ENOENT if the writer of ``source`` removed a file.
    """
    _Duplicator(source, end_offset, disk, directory, topic_partition, lambda size: None).check()


def sign_off(
    disk: Disk,
    root: str,
    made: Mapping[TopicPartition, Duplicate],
    random: RandomBytes,
    *,
    broker_epoch: int,
    own: bool,
) -> None:
    """Write the checkpoints and the shutdown files of the copy of a root, as a clean stop writes them, durably.

    ``made``: the copied partitions. ``own``: pyreplog wrote the source. The copy of a broker's root gets no clean
    shutdown marker, so that the next broker recovers it.
    """
    write_offsets(disk, join(root, RECOVERY_POINT_NAME), {key: one.end_offset for key, one in made.items()})
    write_offsets(disk, join(root, HIGH_WATERMARK_NAME), {key: one.end_offset for key, one in made.items()})
    starts = {key: one.start_offset for key, one in made.items() if one.start_offset > one.first_base_offset}
    write_offsets(disk, join(root, LOG_START_NAME), starts)
    remove_farewell(disk, root)
    if own:
        incarnation = Incarnation(random_uuid(random), disk.boot_id(root))
        write_incarnation(disk, root, incarnation)
        write_farewell(disk, root, CleanShutdownMarker(broker_epoch, incarnation.incarnation_id))


class _Duplicator:
    """One run of :func:`duplicate` or :func:`check_extends` over one partition."""

    def __init__(
        self,
        source: ReplicaView,
        end_offset: int,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        progress: Callable[[int], None],
    ) -> None:
        self._source, self._end, self._disk, self._directory = source, end_offset, disk, directory
        self._topic_partition, self._progress = topic_partition, progress
        self._parts: Sequence[LogFilePart] = ()
        self._wanted: set[str] = set()
        self._names: set[str] = set()
        self._open: list[File] = []
        self._copied_size = 0
        self._changed = False
        #: The mark of a copy that an earlier run completed; None without one.
        self._before: MarkState | None = None

    def check(self) -> None:
        """Compare the epochs and the segments of the earlier copy with the source. Changes nothing."""
        self._look_there()
        for part in self._parts:
            name = segment_name(part.base_offset, LOG_SUFFIX)
            if not self._keep_log(part, name):
                self._check_prefix(part, name)

    def _look_there(self) -> None:
        """Find the segments to copy and the mark of an earlier run, and compare the epoch histories of both."""
        self._names = set(self._disk.list(self._directory))
        self._parts = self._source.log_files_below(self._end)
        found = find_mark(self._disk, self._directory)
        self._before = None if found is None else found[0]
        self._check_history()

    def run(self) -> Duplicate:
        """Make the copy; see :func:`duplicate`."""
        disk, directory, source = self._disk, self._directory, self._source
        disk.make_directory(directory)
        self._look_there()
        epochs = EpochCache(source.epochs.entries)
        epochs.keep_those_of(min(source.start_offset, self._end), self._end)
        try:
            for name in (PARTITION_METADATA_NAME, CONFIG_NAME):
                self._small(name)
            for part in self._parts:
                before = self._copied_size
                self._segment(part)
                if self._copied_size - before >= NAMED_AT_ONCE_SIZE:
                    self._finish_open()  # so that `replog repair` finds it if this run is interrupted
            if not self._parts and source.mark is not None:
                self._first_segment()
            self._snapshots()
            self._put(EPOCHS_NAME, epochs.format())
            self._finish_open()
            self._check_not_compacted()
        except CorruptError:
            self._check_not_compacted()
            raise
        finally:
            for file in self._open:
                file.close()
        if self._changed:
            disk.sync_directory(directory)
        if source.mark is not None:
            self._mark(source.mark, epochs)
        self._remove_rest()
        start = min(source.start_offset, self._end)
        return Duplicate(self._parts[0].base_offset if self._parts else start, start, self._end, self._copied_size)

    def _check_not_compacted(self) -> None:
        """Raise :class:`StorageError` with ESTALE if compaction replaced a segment since the source was looked at:
        the copy may have the beginning of another file."""
        if self._source.mark is not None and self._source.was_compacted():
            raise StorageError(
                errno.ESTALE, "compaction replaced a segment while it was copied", self._source.directory
            )

    # -- comparison with an earlier copy --

    def _check_history(self) -> None:
        """Raise :class:`BackupDivergedError` if an earlier run copied records that the source no longer has."""
        before = self._before
        if before is None:
            return
        if before.high_watermark > self._end:
            last = f"the source's last offset is {self._end - 1}" if self._end else "the source has no records"
            raise self._diverged(self._end, f"the backup's last offset is {before.high_watermark - 1}, and {last}")
        try:
            kept = read_epochs(self._disk, self._directory)
        except CorruptError:
            return  # the batches decide
        if kept is None:
            return
        agreed = kept.agrees_up_to(self._source.epochs)
        if agreed < before.high_watermark:
            raise self._diverged(agreed, f"from offset {agreed} on its leader epochs are not those of the source")

    def _diverged(self, offset: int, why: str) -> BackupDivergedError:
        return BackupDivergedError(str(self._topic_partition), self._source.directory, self._directory, offset, why)

    # -- files --

    def _segment(self, part: LogFilePart) -> None:
        """Copy the log of one segment and the files beside it that do not depend on the end of the copy."""
        name = segment_name(part.base_offset, LOG_SUFFIX)
        kept = self._keep_log(part, name)
        if not kept:
            self._check_prefix(part, name)
            self._copy(part.path, name, part.size)
        self._wanted.add(name)
        if self._source.mark is not None:
            self._index(part, kept=kept)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX) if self._source.mark is None and not part.last else ():
            self._beside(part, suffix, kept=kept)
        self._beside(part, TRANSACTION_INDEX_SUFFIX, kept=kept)
        self._gaps(part)

    def _beside(self, part: LogFilePart, suffix: str, *, kept: bool) -> None:
        """Copy a file beside the log of a segment, if the source has it."""
        name = segment_name(part.base_offset, suffix)
        path = part.path[: -len(LOG_SUFFIX + part.suffix)] + suffix + part.suffix
        found = self._source.disk.stat(path)
        if found is None:
            return
        self._wanted.add(name)
        if part.last:
            self._aborted(path, name)
        elif not kept or self._size_there(name) != found.size:
            self._copy(path, name, found.size)

    def _gaps(self, part: LogFilePart) -> None:
        """Copy the gaps that compaction left in a segment."""
        name = segment_name(part.base_offset, GAPS_SUFFIX)
        path = part.path[: -len(LOG_SUFFIX + part.suffix)] + GAPS_SUFFIX
        for there in dict.fromkeys((path + part.suffix, path)):
            content = read_whole(self._source.disk, there, GAPS_SIZE_MAX)
            if content is not None:
                self._wanted.add(name)
                self._put(name, content)
                return

    def _index(self, part: LogFilePart, *, kept: bool) -> None:
        """Build both indexes of a segment from its batches, because those of the source may be incomplete, unsynced
        or wrong."""
        names = [segment_name(part.base_offset, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        self._wanted.update(names)
        if kept and self._names.issuperset(names):
            return
        config = read_config(self._source.disk, self._source.directory)
        interval = INDEX_INTERVAL if config is None else config.index_interval_bytes
        file = self._source.disk.open(part.path)
        try:
            scan = scan_segment(file, part.size, part.base_offset, index_interval=interval, check_crc=False)
        finally:
            file.close()
        indexes = IndexFiles.of_scan(self._disk, self._directory, scan, part.base_offset, closed=True)
        for name, content in zip(names, (indexes.offsets.data(0), indexes.times.data(0)), strict=True):
            self._put(name, bytes(content))

    def _keep_log(self, part: LogFilePart, name: str) -> bool:
        """Return whether the log ``name`` of an earlier run is the segment ``part``: the same size and last
        bytes."""
        if self._size_there(name) != part.size:
            return False
        start = max(part.size - TAIL_COMPARED_SIZE, 0)
        mine = _read(self._disk, join(self._directory, name), start, part.size)
        if mine == _read(self._source.disk, part.path, start, part.size):
            return True
        self._differs(part.base_offset)
        return False

    def _check_prefix(self, part: LogFilePart, name: str) -> None:
        """Raise :class:`BackupDivergedError` if the log ``name`` of an earlier run and the segment ``part`` differ
        in a byte of both."""
        size = min(self._size_there(name), part.size)
        for start in range(0, size, COPY_CHUNK_SIZE):
            end = min(start + COPY_CHUNK_SIZE, size)
            if _read(self._disk, join(self._directory, name), start, end) != _read(
                self._source.disk, part.path, start, end
            ):
                self._differs(part.base_offset)
                return

    def _differs(self, base_offset: int) -> None:
        """Raise :class:`BackupDivergedError` for a segment whose earlier copy has other bytes than the source, unless
        a broker's cleaner may have rewritten it."""
        before = self._before
        # A broker's cleaner rewrites segments, and so does ours. In any other log of pyreplog no
        # byte below the high watermark changes.
        mark = self._source.mark
        is_compacted = mark is not None and mark.compacted
        if before is not None and not before.may_have_gaps and not is_compacted and before.high_watermark > base_offset:
            why = (
                f"its segment from offset {base_offset} on holds other bytes than the source's (`replog verify` tells"
                " if one is damaged)"
            )
            raise self._diverged(base_offset, why)

    def _size_there(self, name: str) -> int:
        """Return the size of the file ``name`` in the copy; -1 if there is none."""
        if name not in self._names:
            return -1
        found = self._disk.stat(join(self._directory, name))
        return -1 if found is None else found.size

    def _copy(self, path: str, name: str, size: int) -> None:
        """Copy the first ``size`` bytes of the file at ``path`` to ``name``."""
        source = self._source.disk.open(path)
        try:
            target = self._begin(name)
            at = 0
            while at < size:
                data = source.read_at(at, min(COPY_CHUNK_SIZE, size - at))
                if not data:
                    raise CorruptError(f"the file has {at} bytes, expected {size}", file=path, position=at)
                target.write_at(at, [data])
                at += len(data)
                self._copied_size += len(data)
                self._progress(len(data))
        finally:
            source.close()

    def _begin(self, name: str) -> File:
        """Create a file that gets the name ``name`` when it is synced."""
        if len(self._open) >= FILES_TOGETHER:
            self._finish_open()
        path = join(self._directory, name + TEMPORARY_SUFFIX)
        if self._disk.stat(path) is not None:
            self._disk.remove(path)
        file = self._disk.create(path)
        self._open.append(file)
        return file

    def _finish_open(self) -> None:
        """Sync the open files, close them and give them their names."""
        self._disk.map(_sync, self._open, waits=True)
        while self._open:
            file = self._open.pop()
            file.close()
            self._disk.rename(file.path, file.path.removesuffix(TEMPORARY_SUFFIX))
            self._changed = True

    def _aborted(self, path: str, name: str) -> None:
        """Copy the entries of the last segment's transaction index that lie below the end."""
        content = read_whole(self._source.disk, path) or b""
        kept = b""
        for position in range(0, len(content) - _ABORTED.size + 1, _ABORTED.size):
            entry = content[position : position + _ABORTED.size]
            if _ABORTED.unpack(entry)[_LAST_OFFSET] >= self._end:
                break
            kept += entry
        self._put(name, kept)

    def _snapshots(self) -> None:
        """Copy the producer snapshots, and for the metadata log of a Kafka cluster its other files."""
        names = self._source.disk.list(self._source.directory)
        first = self._parts[0].base_offset if self._parts else 0
        disk, directory = self._source.disk, self._source.directory
        # Power loss may have left a torn snapshot. Recovery ignores it, so the copy leaves it out.
        whole = [
            offset
            for offset in snapshot_offsets(names)
            if first <= offset <= self._end and read_snapshot(disk, directory, offset) is not None
        ]
        wanted = [segment_name(offset, SNAPSHOT_SUFFIX) for offset in whole]
        wanted += [name for name in names if name.endswith(_EXTRA) and self._may_be_metadata]
        for name in wanted:
            content = read_whole(self._source.disk, join(self._source.directory, name))
            if content is not None:
                self._wanted.add(name)
                self._put(name, content)

    @property
    def _may_be_metadata(self) -> bool:
        """Whether the partition may be a metadata log: a folder of another program's, or one of that name."""
        return self._source.mark is None or self._topic_partition.topic == METADATA_TOPIC

    def _put(self, name: str, content: bytes) -> None:
        """Write the small file ``name``, unless the copy has it with the same content."""
        if self._size_there(name) == len(content) and read_whole(self._disk, join(self._directory, name)) == content:
            return
        self._begin(name).write_at(0, [content])

    def _small(self, name: str) -> None:
        """Copy the small file ``name`` if the source has it."""
        content = read_whole(self._source.disk, join(self._source.directory, name))
        if content is not None:
            self._put(name, content)

    def _first_segment(self) -> None:
        """Create an empty segment in the copy of a log without records, as a clean stop leaves it."""
        name = segment_name(self._end, LOG_SUFFIX)
        self._wanted.add(name)
        self._put(name, b"")

    def _mark(self, mark: MarkState, epochs: EpochCache) -> None:
        disk, directory = self._disk, self._directory
        state = mark._replace(
            synced_end=self._end,
            high_watermark=self._end,
            start_offset=min(self._source.start_offset, self._end),
            poisoned=False,
            epochs_crc=epochs.checksum(),
        )
        found = find_mark(disk, directory, topic_id=state.topic_id, partition=state.partition)
        if found is None:
            MarkFile.create(disk, directory, state).close()
            disk.sync_directory(directory)
        elif found[0]._replace(sequence=state.sequence) == state:
            return
        else:
            file = MarkFile.open(disk, directory, *found, synced=False)
            try:
                file.write_state(state)
                file.sync()
                file.write_redundantly()
            finally:
                file.close()

    def _remove_rest(self) -> None:
        """Remove the segments that retention removed from the source, and the temporary files of interrupted
        runs."""
        gone = False
        for name in self._disk.list(self._directory):
            ours = name.endswith((*SEGMENT_SUFFIXES, TEMPORARY_SUFFIX, DELETED_SUFFIX)) and name not in self._wanted
            if ours:
                self._disk.remove(join(self._directory, name))
                gone = True
        if gone:
            self._disk.sync_directory(self._directory)


def _read(disk: Disk, path: str, start: int, end: int) -> bytes:
    file = disk.open(path)
    try:
        return bytes(file.read_at(start, end - start))
    finally:
        file.close()


def _sync(file: File) -> None:
    file.sync()
