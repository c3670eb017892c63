"""``backup``: a copy of a log, a cluster or a broker's folder, made beside its writer."""

from __future__ import annotations

import os
from collections.abc import Callable

from pyreplog.backups import make
from pyreplog.config import Permissions, check_callable
from pyreplog.runtime.folder_opening import folder_of
from pyreplog.system import SystemChance, SystemDisk
from pyreplog.values import BackupProgress, BackupReport

__all__ = ["backup"]


def backup(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    progress: Callable[[BackupProgress], None] | None = None,
    permissions: Permissions = "owner",
) -> BackupReport:
    """Copy the log, the cluster or the broker's folder ``source`` into the folder ``target``, and verify the copy.

    A writer may be at work in ``source``: nothing is locked, and the backup holds the records that readers see, of
    each partition from its start to one offset. All of it is on stable storage when this returns. ``target`` is a
    new folder, an empty one, or an earlier backup of ``source``: then only new segments and the last one are
    copied. An interrupted backup is not opened by anything until the next call has finished it. ``progress`` is
    called with a BackupProgress for each piece that is done, one call at a time, and perhaps from other threads.
    ``permissions`` gives new folders and files their modes, as for :func:`open_log`.

    To restore, back up the other way round into a new folder, as the field ``restore`` of the report says.

    Raises ConfigError for a folder that is something else, BackupDivergedError where ``target`` holds records that
    ``source`` has not, CorruptError where ``source`` is damaged, LockedError while ``target`` is open for writing,
    StorageError where the disk refuses.
    """
    check_callable("progress", progress, "a function that takes a BackupProgress")
    places = [os.path.abspath(folder_of(path)) for path in (source, target)]
    disk = SystemDisk(permissions=permissions)
    try:
        report = make(disk, *places, random=SystemChance(), progress=progress)
    finally:
        disk.close()
    return (
        report if permissions == "owner" else report._replace(restore=f"{report.restore} --permissions {permissions}")
    )
