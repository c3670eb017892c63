"""The bytes that a recovery truncates at the end of a log, kept in files beside it.

They are copied to ``replog.torn-<base offset>-<position>-<number>`` before the truncation. Kafka
ignores such names, and no program reads the files; they are for a person.
"""

from __future__ import annotations

from functools import partial

from pyreplog.log.layout import (
    LOG_SUFFIX,
    SCAN_CHUNK_SIZE,
    SEGMENT_SUFFIXES,
    TEMPORARY_SUFFIX,
    TORN_PREFIX,
    join,
    parent_of,
    segment_name,
)
from pyreplog.log.names import NameChanges
from pyreplog.log.reserve import with_reserve
from pyreplog.log.segment_writer import SegmentWriter
from pyreplog.log.snapshot import begin_file, remove_file
from pyreplog.ports import Disk, File


class TornTail:
    """The bytes that one recovery of the log in ``directory`` truncates."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        #: The number of bytes.
        self.size = 0
        #: The files that hold them.
        self.kept: list[str] = []

    def cut(self, segment: SegmentWriter, position: int) -> None:
        """Truncate ``segment`` to ``position``, durably, and keep the bytes behind it."""
        size = segment.size
        kept = _save(self._disk, segment, position, size)
        if kept is not None:
            self.kept.append(kept)
        segment.file.truncate(position)
        segment.file.sync()  # the truncated bytes must not return behind new ones after power loss
        segment.size = position
        self.size += size - position

    def remove_from(self, segments: list[SegmentWriter], index: int) -> None:
        """Remove the segments from ``index`` on, the last one first, durably. A log file that is not
        empty is kept under another name."""
        dropped = segments[index:]
        changes = NameChanges(self._disk, self._directory)
        for segment in reversed(dropped):
            segment.release()
            for suffix in SEGMENT_SUFFIXES:
                path = join(self._directory, segment_name(segment.base_offset, suffix))
                if self._disk.stat(path) is None:
                    continue
                if suffix != LOG_SUFFIX:
                    self._disk.remove(path)
                elif segment.size:
                    kept = self._free_name(segment.base_offset)
                    changes.rename(path, kept)
                    self.kept.append(kept)
                    self.size += segment.size
                else:
                    changes.remove(path)
        if dropped:
            changes.sync()
        del segments[index:]

    def _free_name(self, base_offset: int) -> str:
        number = 0
        while self._disk.stat(path := join(self._directory, f"{TORN_PREFIX}{base_offset}-0-{number}")) is not None:
            number += 1
        return path


def _save(disk: Disk, segment: SegmentWriter, position: int, size: int) -> str | None:
    """Copy the bytes from ``position`` to ``size`` of the segment's log beside it, durably.

    Return the path of the copy; None if all bytes are zero.
    """
    if _all_zero(segment.file, position, size):
        return None
    prefix = f"{TORN_PREFIX}{segment.base_offset}-{position}-"
    directory = segment.directory
    number = 0
    while disk.stat(path := join(directory, f"{prefix}{number}")) is not None:
        # An interrupted recovery may have saved these bytes before.
        if _same(disk, path, segment.file, position, size):
            return path
        number += 1
    temporary = path + TEMPORARY_SUFFIX

    def begin() -> File:
        chunks = (
            segment.file.read_at(at, min(SCAN_CHUNK_SIZE, size - at)) for at in range(position, size, SCAN_CHUNK_SIZE)
        )
        return begin_file(disk, temporary, chunks)

    copy = with_reserve(disk, parent_of(directory), begin, partial(remove_file, disk))
    try:
        copy.sync()
    finally:
        copy.close()
    disk.rename(temporary, path)
    disk.sync_directory(directory)
    return path


def _all_zero(file: File, position: int, size: int) -> bool:
    for at in range(position, size, SCAN_CHUNK_SIZE):
        chunk = bytes(file.read_at(at, min(SCAN_CHUNK_SIZE, size - at)))
        if chunk.count(0) != len(chunk):
            return False
    return True


def _same(disk: Disk, path: str, file: File, position: int, size: int) -> bool:
    kept = disk.open(path)
    try:
        if kept.size() != size - position:
            return False
        return all(
            kept.read_at(at - position, SCAN_CHUNK_SIZE) == file.read_at(at, min(SCAN_CHUNK_SIZE, size - at))
            for at in range(position, size, SCAN_CHUNK_SIZE)
        )
    finally:
        kept.close()
