"""Keeping what recovery cuts: the bytes behind the last good batch go into a file beside the log before they leave
it.

``replog.torn-<base offset>-<position>-<number>``: Kafka ignores such names. Nobody reads them but a person.
"""

from __future__ import annotations

from functools import partial

from pyreplog.log.layout import SCAN_CHUNK_SIZE, TEMPORARY_SUFFIX, TORN_PREFIX, join, parent_of
from pyreplog.log.reserve import with_reserve
from pyreplog.log.segment import Segment
from pyreplog.log.snapshot import begin_file, remove_file
from pyreplog.ports import Disk, File


def save_torn_tail(disk: Disk, segment: Segment, position: int, size: int) -> str | None:
    """Copy bytes ``position`` to ``size`` of the segment's log beside it, durably; the copy's path, None where they
    are all zero."""
    if _all_zero(segment.file, position, size):
        return None
    prefix = f"{TORN_PREFIX}{segment.base_offset}-{position}-"
    directory = segment.directory
    number = 0
    while disk.stat(path := join(directory, f"{prefix}{number}")) is not None:
        # Recovery may itself have been interrupted: what it had kept by then is not kept twice.
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
