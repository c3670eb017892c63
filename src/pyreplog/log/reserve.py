"""Room that is set aside, so that a folder can be opened, emptied and closed on a disk that is full.

``replog.reserve``: an empty file for which room is reserved behind its end. Where a small state file finds no room
the reserve makes some: it is removed, the file replaced, and the reserve made anew of what is left, which is nearly
all, for a file that is replaced gives its room back. It is never synced: what power loss takes of it the next
opening makes anew. Kafka ignores it.
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
"""Bytes where there is room for them: what the small files of a root with a few thousand partitions take. XFS makes
no file at all, however small, where less than about 200 KB are free."""
RESERVE_STEP: Final = 16 << 10
"""By so much less at a time it is tried with."""
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_NOT_NOW: Final = RESOURCES_EXHAUSTED_ERRNOS | {errno.EFBIG}
_NOT_ALONE: Final = (errno.EEXIST, errno.ENOENT)

_Result = TypeVar("_Result")


def keep_reserve(disk: Disk, folder: str) -> bool:
    """Make the reserve of ``folder`` where there is none, or only a copy of one; as large as there is room for. One
    that is not whole gives way to a larger one, where there is room for both: were it removed first, others who
    wait for room would have it.

    Without room, a descriptor or memory it does without. False where there is no inode for an empty one. Raises
    :class:`StorageError` for any other refusal.
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
        # Not alone: whoever lost the lock just now had made room, too, and made it anew.
        if error.errno not in _NOT_NOW and error.errno not in _NOT_ALONE:
            raise
    return True


def with_reserve(
    disk: Disk, folder: str, action: Callable[[], _Result], undo: Callable[[_Result], bool] | None = None
) -> _Result:
    """``action()``; once more with the room of the reserve of ``folder`` where there was none. REQUIRES that a try
    that finds no room may be followed by another: never after a sync of what was there before, for a second one
    would succeed and make nothing durable. And that nobody else writes in ``folder``, unless :class:`LockedError`
    says so.

    ``undo`` is for a file that was not there: where it took the last inode, which was the reserve's, it is taken
    back and refused, or the folder could not be opened again. It says whether there was something to take back.
    """
    try:
        return action()
    except StorageError as error:
        if error.errno not in _NO_ROOM:
            raise
        refusal = error
    with disk.reserve_lock:  # another log of this process that finds no room waits for the new reserve
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
            with suppress(StorageError):  # it is looked at again when the folder is opened or closed
                is_kept = keep_reserve(disk, folder)
    if not is_kept and undo is not None and undo(result):
        with suppress(StorageError):
            keep_reserve(disk, folder)
        raise refusal
    return result


def _lend(disk: Disk, folder: str) -> bool:
    """Give the room of the reserve back to the disk. False where there is none."""
    path = join(folder, RESERVE_NAME)
    try:
        found = disk.stat(path)
        if found is None:
            return False
        disk.remove(path)
    except StorageError:
        return False  # who asked has an error of its own, which tells more
    return True


def _exchange(disk: Disk, path: str, allocated: int) -> None:
    """Put a larger reserve in the place of the one under ``path``, which has ``allocated`` bytes, if there is room
    for it."""
    temporary = path + TEMPORARY_SUFFIX
    if disk.stat(temporary) is not None:
        disk.remove(temporary)
    for size in range(RESERVE_SIZE, allocated, -RESERVE_STEP):
        if _make(disk, temporary, size):
            disk.rename(temporary, path)
            return


def _make(disk: Disk, path: str, size: int) -> bool:
    """Reserve ``size`` bytes under ``path``; False where there is no room."""
    try:
        disk.create(path, size).close()
    except StorageError as error:
        if error.errno in _NO_ROOM:
            return False
        raise
    return True
