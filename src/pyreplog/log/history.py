"""A log's history of leader epochs, changed in memory and on the disk as one. A part of :class:`Log`, and used by
it alone.

A change that the disk refuses is taken back, and the history has no current epoch then: before anything is appended
the file has to say what the memory says (:attr:`EpochCache.current`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pyreplog.errors import StorageError
from pyreplog.log.epochs import write_epochs
from pyreplog.log.state import LogState
from pyreplog.ports import NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS
from pyreplog.values import EpochEntry


def write(log: LogState) -> None:
    """Keep the history, not waiting for the disk: the mark has its checksum, and a scan finds it again."""
    log.epochs.current = None
    try:
        write_epochs(log.disk, log.directory, log.epochs)
        log._mark.write_state(log._state()._replace(epochs_crc=log.epochs.checksum()))
    except StorageError as error:
        log._append_refused(error)
        raise
    log.epochs.current = log.epochs.latest


def assign(log: LogState, epoch: int, offset: int) -> None:
    """Let ``epoch`` begin at ``offset``. Where the disk refuses it is tried again with the next batch: an epoch
    that is only in memory would be missing after a kill."""
    before = log.epochs.entries
    if log.epochs.assign(epoch, offset):
        _write_or_undo(log, before)


def cut_end(log: LogState) -> bool:
    """Drop what the history says of offsets that are not there; whether there was any. Where it cannot be written
    down it stays, and no older epoch can go on before the next try: a history that only memory has cut would
    contradict, after a kill, what came behind."""
    before = log.epochs.entries
    if not log.epochs.truncate_from_end(log.end_offset):
        return False
    _write_or_undo(log, before)
    return True


def _write_or_undo(log: LogState, before: Sequence[EpochEntry]) -> None:
    try:
        write(log)
    except BaseException:
        _undo(log, before)
        raise


def _undo(log: LogState, before: Sequence[EpochEntry]) -> None:
    log.epochs.restore(before)
    log.epochs.current = None


def cut_start(log: LogState) -> None:
    """Forget what lies below the log's start."""
    is_written = log.epochs.current is not None
    if not log.epochs.truncate_from_start(log.start_offset):
        return
    try:
        write(log)
    except StorageError as error:
        if error.errno not in NO_SPACE_ERRNOS and error.errno not in RESOURCES_EXHAUSTED_ERRNOS:
            raise
        # Deleting must work on a full disk, and without a descriptor to spare. The file and its
        # checksum in the mark stay as they were; who reads it cuts it again. What they lacked
        # before they lack still.
        if is_written:
            log.epochs.current = log.epochs.latest


def take_back(log: LogState, before: Sequence[EpochEntry]) -> None:
    """What was to begin an epoch was not appended: the history is ``before`` again. Else the next fetch would tell
    the leader of an epoch that this log does not have. Where the disk refuses that too it is tried again before the
    next append, and the next opening drops what lies behind the end."""
    _undo(log, before)
    if log._failure is None:
        with contextlib.suppress(StorageError):
            write(log)
