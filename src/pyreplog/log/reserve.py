"""Reserved disk space, so that a log folder can be opened, emptied and closed when the disk is full.

``replog.reserve`` is an empty file with blocks allocated behind its end. If there is no space to replace a small
state file, the process removes the reserve, replaces the file, and makes the reserve again from the remaining
space. That is nearly all of it, because the replaced file frees its blocks. The reserve is never synced: if power
loss takes it, the next open makes it again. Kafka ignores the file.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from pyreplog.errors import LockedError, StorageError
from pyreplog.log.layout import RESERVE_NAME, TEMPORARY_SUFFIX, join
from pyreplog.ports import RESOURCES_EXHAUSTED_ERRNOS, Disk

RESERVE_SIZE: Final = 256 << 10
"""Size of the reserve in bytes if the disk has that much free: enough for the small files of a root with a few
thousand partitions. XFS creates no file at all, however small, when less than about 200 KB are free."""
RESERVE_STEP: Final = 16 << 10
"""If the disk refuses a size, the next attempt asks for this many bytes less."""
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_NOT_NOW: Final = RESOURCES_EXHAUSTED_ERRNOS | {errno.EFBIG}
_NOT_ALONE: Final = (errno.EEXIST, errno.ENOENT)

_Result = TypeVar("_Result")


def keep_reserve(disk: Disk, folder: str) -> bool:
    """Make the reserve of ``folder`` as large as the disk allows, if it is missing or is a copy without blocks.

    A reserve below full size is replaced by a larger one if the disk has space for both. Removing it first would
    let another process that waits for space take its blocks. A lack of space, descriptors or memory is accepted.
    Return False if the disk has no inode even for an empty reserve. Raises :class:`StorageError` for any other
    refusal.
    """
    path = join(folder, RESERVE_NAME)
    try:
        found = disk.stat(path)
        if found is not None:
            if found.is_directory or found.allocated >= RESERVE_SIZE:
                return True
            if found.allocated:
                _exchange(disk, path, found.allocated)
                return True
            disk.remove(path)
        size = RESERVE_SIZE
        while not _make(disk, path, size):
            if not size:
                return False
            size -= RESERVE_STEP
    except StorageError as error:
        # EEXIST and ENOENT: the process that just lost the lock was making its reserve, too.
        if error.errno not in _NOT_NOW and error.errno not in _NOT_ALONE:
            raise
    return True


def with_reserve(
    disk: Disk, folder: str, action: Callable[[], _Result], undo: Callable[[_Result], bool] | None = None
) -> _Result:
    """Return ``action()``. If the disk is full, free the reserve of ``folder`` and call ``action`` once more.

    REQUIRES that ``action`` may be repeated after it failed for lack of space. It must not sync data that was
    written before: the second sync would succeed and make nothing durable. REQUIRES that no other process writes in
    ``folder``; if one does, ``action`` raises :class:`LockedError`.

    ``undo(result)`` is for an action that creates a new file. If that file took the reserve's inode and it was the
    last one, the folder could not be opened again, so the file is removed and the first error is raised. ``undo``
    returns whether it removed a file.
    """
    try:
        return action()
    except StorageError as error:
        if error.errno not in _NO_ROOM:
            raise
        refusal = error
    with disk.reserve_lock:  # if another log of this process finds no space, it waits for the new reserve
        return _with_lent(disk, folder, action, undo, refusal)


def _with_lent(
    disk: Disk,
    folder: str,
    action: Callable[[], _Result],
    undo: Callable[[_Result], bool] | None,
    refusal: StorageError,
) -> _Result:
    if not _lend(disk, folder):
        raise refusal
    alone = is_kept = True
    try:
        result = action()
    except LockedError:
        alone = False
        raise
    finally:
        if alone:
            with suppress(StorageError):  # the next open or close of the folder tries again
                is_kept = keep_reserve(disk, folder)
    if not is_kept and undo is not None and undo(result):
        with suppress(StorageError):
            keep_reserve(disk, folder)
        raise refusal
    return result


def _lend(disk: Disk, folder: str) -> bool:
    """Remove the reserve to free its blocks. Return False if there is none or it cannot be removed."""
    path = join(folder, RESERVE_NAME)
    try:
        found = disk.stat(path)
        if found is None:
            return False
        disk.remove(path)
    except StorageError:
        return False  # the caller raises its own error, which says more
    return True


def _exchange(disk: Disk, path: str, allocated: int) -> None:
    """Replace the reserve at ``path``, which has ``allocated`` bytes, by a larger one if the disk has space."""
    temporary = path + TEMPORARY_SUFFIX
    if disk.stat(temporary) is not None:
        disk.remove(temporary)
    for size in range(RESERVE_SIZE, allocated, -RESERVE_STEP):
        if _make(disk, temporary, size):
            disk.rename(temporary, path)
            return


def _make(disk: Disk, path: str, size: int) -> bool:
    """Create a reserve of ``size`` bytes at ``path``. Return False if the disk is full."""
    try:
        disk.create(path, size).close()
    except StorageError as error:
        if error.errno in _NO_ROOM:
            return False
        raise
    return True
