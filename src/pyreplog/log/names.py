"""Names in a folder that power loss may remove although the file system shows them.

If fsync of a folder fails and the file system goes on, the file system shows the new names but may
not have written them, and the next fsync of the folder succeeds without writing them. So no sync
can be trusted for these names. Two rules follow:

* A change of names that could not be made durable is undone, so that no data is kept under such a
  name. :func:`make_folder` and :class:`NameChanges` do so.
* If the process ended before it could undo the change, the next open creates the name again:
  :func:`recreate_empty_segments`. Only the last segments can have such names, because a log appends
  nothing to a segment before the sync that makes its name durable.

A log that is open is poisoned instead, as after any failed sync. Which cases remain:
docs/internals/durability.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pyreplog.errors import StorageError
from pyreplog.log.layout import LOG_SUFFIX, join, parent_of, segment_name
from pyreplog.log.snapshot import replace_file
from pyreplog.ports import Disk


def make_folder(disk: Disk, path: str) -> None:
    """Make the folder ``path``, which does not exist, and its name durable.

    If the sync fails, the folder is removed, unless another program put something into it.
    """
    disk.make_directory(path)
    try:
        disk.sync_directory(parent_of(path))
    except StorageError:
        with suppress(StorageError):
            disk.remove_directory(path)
        raise


def recreate_empty_segments(disk: Disk, directory: str, bases: Sequence[int]) -> None:
    """Make the names of the last segments again, as far as these are empty.

    ``bases`` are the base offsets of the segments in ``directory``, rising. The caller syncs the
    folder before it appends.
    """
    for base in reversed(bases):
        path = join(directory, segment_name(base, LOG_SUFFIX))
        found = disk.stat(path)
        if found is None or found.size:
            break
        replace_file(disk, path, b"", durable=False, reserve_in=parent_of(directory))


class NameChanges:
    """Segment files of the folder ``directory`` that are removed or renamed together.

    If :meth:`sync` fails, the files get their names again, the removed ones without content. The
    next opening then finds them, and removes them once more.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        # Path, and the new path of a renamed file.
        self._done: list[tuple[str, str | None]] = []

    def remove(self, path: str) -> None:
        """Remove a file that is empty, or whose content may be lost."""
        self._disk.remove(path)
        self._done.append((path, None))

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file."""
        self._disk.rename(path, new_path)
        self._done.append((path, new_path))

    def sync(self) -> None:
        """Make the changes durable, or undo them and raise."""
        try:
            self._disk.sync_directory(self._directory)
        except StorageError:
            for path, new_path in self._done:
                with suppress(StorageError):
                    if new_path is None:
                        self._disk.create(path).close()
                    else:
                        self._disk.rename(new_path, path)
            raise
