"""The note in a backup's folder (``replog.backup``): the folder it was copied from, and whether the copy is whole.

The note is a small state file in the backup's folder and in each root below it. While it says that the backup is
unfinished, neither readers nor writers open the folder. Format: docs/internals/format/state_files.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pyreplog.errors import CorruptError, UnfinishedBackupError
from pyreplog.log.layout import BACKUP_NAME, join
from pyreplog.log.snapshot import read_state, write_state
from pyreplog.ports import Disk

_VERSION: Final = "0"
_WHOLE: Final = "whole"
_UNFINISHED: Final = "unfinished"


class BackupNote(NamedTuple):
    """The content of a backup note. ``source``: the folder that was copied; ``whole``: the copy was finished and
    verified."""

    source: str
    whole: bool


def read_backup_note(disk: Disk, folder: str) -> BackupNote | None:
    """Return the backup note in ``folder``, or None if the folder is no backup.

    A damaged note counts as that of an unfinished backup.
    """
    try:
        values = read_state(disk, join(folder, BACKUP_NAME))
    except CorruptError:
        return BackupNote("", whole=False)
    if values is None:
        return None
    return BackupNote(values.get("source", ""), values.get("version") == _VERSION and values.get("state") == _WHOLE)


def write_backup_note(disk: Disk, folder: str, note: BackupNote) -> None:
    """Replace the backup note in ``folder`` by ``note``, durably."""
    source = note.source.replace("\n", "?").encode("utf-8", "replace").decode()
    state = _WHOLE if note.whole else _UNFINISHED
    write_state(disk, join(folder, BACKUP_NAME), {"version": _VERSION, "source": source, "state": state})


def refuse_unfinished(disk: Disk, folders: Iterable[str]) -> None:
    """Raise :class:`UnfinishedBackupError` if one of ``folders`` is an unfinished backup."""
    for folder in folders:
        if disk.stat(join(folder, BACKUP_NAME)) is None:
            continue
        note = read_backup_note(disk, folder)
        if note is not None and not note.whole:
            raise UnfinishedBackupError(folder, note.source)
