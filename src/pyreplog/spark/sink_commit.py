"""The driver's part of a write: publish the staged files, and make sure that the log has their rows. This module
does not import Spark.

The process that has the log open appends the rows. If no process has it open, and the write allows it, this process
opens the log for the commit only. If no process takes the batch in time, the commit withdraws it, so that a failed
write has written no row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from pyreplog.errors import (
    LockedError,
    OutcomeUnknownError,
    PyreplogError,
    SpoolDamagedError,
    SpoolRefusedError,
    StorageError,
)
from pyreplog.ports import Disk
from pyreplog.runtime import apply_offline, make_unowned
from pyreplog.spark.logger import LOGGER
from pyreplog.spool import BatchId, Spool, StagedFile, damage_of
from pyreplog.system import SystemClock

__all__ = ["commit_batch", "commit_nothing", "withdraw_batch"]

PAUSE_MIN_S: Final = 0.001
PAUSE_MAX_S: Final = 0.05
OWN_PAUSE_S: Final = 0.5
"""The interval at which a folder that another process has open is tried again."""


def commit_batch(
    disk: Disk,
    path: str,
    batch_id: BatchId,
    files: Sequence[StagedFile],
    *,
    once: bool,
    timeout_s: float,
    own: bool,
    keep: bool = False,
) -> None:
    """Return when the batch is in the log, as durable as that promises.

    ``once``: the query has no other batch. ``own``: open the folder if no process has it open. ``keep``: see
    :meth:`Spool.publish`. Raises :class:`SpoolRefusedError` (no row was appended), :class:`OutcomeUnknownError` if
    an owner began and did not finish within ``timeout_s`` seconds, :class:`SpoolDamagedError` if it cannot finish
    because of damage, and the errors of opening the folder, which then appended no row.
    """
    spool = Spool(disk, path)
    deadline = time.monotonic() + timeout_s
    _publish(spool, batch_id, files, once, keep, deadline)
    _wait(spool, batch_id, deadline, timeout_s, own)
    if once:
        # The owner may still be removing the batch's files. If it is killed, the next owner
        # removes them, and the refusal that is kept here.
        while spool.stands(batch_id) and time.monotonic() < deadline:
            time.sleep(PAUSE_MIN_S)
        if not spool.stands(batch_id):
            spool.forget(batch_id.query)


def _wait(spool: Spool, batch_id: BatchId, deadline: float, timeout_s: float, own: bool) -> None:
    """Return when the published batch is in the log; see :func:`commit_batch`."""
    holder = ""
    pause, own_at = PAUSE_MIN_S, 0.0
    while not _answered(spool, batch_id, own):
        now = time.monotonic()
        if own and now >= own_at:  # once at least, however long it took to get here
            own_at = now + OWN_PAUSE_S
            try:
                apply_offline(spool.disk, spool.folder, SystemClock())
                continue
            except LockedError as error:
                holder = error.holder
            except PyreplogError as error:
                # It may be of another query, whose batch waits beside this one, or of the release:
                # a write that is in did not fail.
                if not spool.answered(batch_id):
                    _take_back(spool, batch_id, error)
                    raise
                LOGGER.warning("%s is in the log; beside it: %s", batch_id, error)
                continue
        if now >= deadline:
            _give_up(spool, batch_id, timeout_s, holder, own)
            return
        time.sleep(min(pause, deadline - now))
        pause = min(pause * 2, PAUSE_MAX_S)


def _take_back(spool: Spool, batch_id: BatchId, error: PyreplogError) -> None:
    """Prevent the next owner from appending a batch whose write fails by ``error``. Raise
    :class:`OutcomeUnknownError` if that is not possible."""
    if spool.withdraw(batch_id) or isinstance(error, (OutcomeUnknownError, SpoolDamagedError)):
        return
    why = f"its append was begun, and could not be finished: {error}. The next one to open {spool.folder} goes on"
    raise OutcomeUnknownError(f"{batch_id}", why) from error


def _answered(spool: Spool, batch_id: BatchId, own: bool) -> bool:
    """As :meth:`Spool.answered`."""
    try:
        return spool.answered(batch_id)
    except SpoolRefusedError:
        if own and spool.stands(batch_id):
            # The owner that refused the batch was killed before it removed the files, and the next
            # attempt would find them: an owner must remove them.
            try:
                apply_offline(spool.disk, spool.folder, SystemClock())
            except LockedError:
                pass  # the process that has the folder open does it
            except PyreplogError as error:
                LOGGER.warning("%s was refused, and its files could not be cleared up: %s", batch_id, error)
        raise


def _publish(
    spool: Spool, batch_id: BatchId, files: Sequence[StagedFile], once: bool, keep: bool, deadline: float
) -> None:
    while True:
        try:
            if not spool.publish(batch_id, files, once=once, keep=keep):
                _tell_skipped(spool, batch_id, files)
            return
        except LockedError as error:
            if time.monotonic() >= deadline:
                raise SpoolRefusedError(f"another driver is publishing {batch_id}: {error.holder}") from None
        except StorageError as error:
            if once:
                # The manifest may exist nevertheless, and this batch will not be run again: an
                # owner must not append it.
                try:
                    _take_back(spool, batch_id, error)
                except StorageError:
                    why = (
                        f"it could not be published, nor taken back: {error}. The next one to open {spool.folder} may"
                        " append it"
                    )
                    raise OutcomeUnknownError(f"{batch_id}", why) from error
            raise
        time.sleep(PAUSE_MAX_S)


def _tell_skipped(spool: Spool, batch_id: BatchId, files: Sequence[StagedFile]) -> None:
    conflict = spool.conflict(batch_id, files)
    if conflict:
        LOGGER.warning("%s is skipped, and its rows are not written (appliedBatch=keep): %s", batch_id, conflict)
    else:
        LOGGER.info("%s was published before: that one counts", batch_id)


def commit_nothing(
    disk: Disk, path: str, batch_id: BatchId, *, keep: bool, topic: str | None, once: bool, timeout_s: float, own: bool
) -> None:
    """Commit a batch without a row: as :func:`commit_batch`, and a batch of the query that waits to be appended
    comes first.

    ``topic``: make its log if there is none, so that readers find one without records. None: make nothing.
    """
    spool = Spool(disk, path)
    conflict = spool.conflict(batch_id, [])
    if conflict and not keep:
        raise SpoolRefusedError(conflict)
    if conflict:
        _tell_skipped(spool, batch_id, [])
    deadline = time.monotonic() + timeout_s
    latest = max(spool.standing(batch_id.query), default=-1)
    if latest >= batch_id.batch:
        _wait(spool, batch_id, deadline, timeout_s, own)
    if topic is not None:
        try:
            make_unowned(disk, path, topic, SystemClock())
        except LockedError:
            pass  # the process that has it open made its log
    if not once:
        _note_empty(spool, batch_id, deadline, own)


def _note_empty(spool: Spool, batch_id: BatchId, deadline: float, own: bool) -> None:
    """Note the number of a batch without a row, after the batches of the query that wait are in the log."""
    holder = ""
    while True:
        try:
            if spool.note_empty(batch_id):
                return
            if own:
                apply_offline(spool.disk, spool.folder, SystemClock())
        except LockedError as error:
            holder = f" (open: {error.holder})"
        if time.monotonic() >= deadline:
            waiting = max(spool.standing(batch_id.query), default=batch_id.batch)
            raise SpoolRefusedError(
                f"{batch_id} has no rows, and its number cannot be noted while batch {waiting} of the query waits to be"
                f" appended to {spool.folder}{holder}. The next process that opens it to write (open_log, Cluster)"
                " appends that batch; then run this one again"
            )
        time.sleep(PAUSE_MAX_S)


def _give_up(spool: Spool, batch_id: BatchId, timeout_s: float, holder: str, own: bool) -> None:
    """Raise the error of a commit that no process took in time."""
    if spool.withdraw(batch_id):
        if holder:
            who = (
                f"{holder} has {spool.folder} open, and did not take it: it must be a process that writes with pyreplog"
            )
        elif own:
            who = f"{spool.folder} could not be opened"
        else:
            who = f"start the process that has {spool.folder} open as Cluster or by open_log"
        raise SpoolRefusedError(f"no process took {batch_id} within {timeout_s:g} s (option commitTimeout): {who}")
    damage = damage_of(spool, batch_id)
    if spool.answered(batch_id):
        return
    if damage is not None:
        raise damage
    raise OutcomeUnknownError(
        f"{batch_id}",
        f"the owner of {spool.folder} began to append it, and was not done after {timeout_s:g} s; it or the next one"
        " goes on",
    )


def withdraw_batch(disk: Disk, path: str, batch_id: BatchId, files: Sequence[StagedFile], *, once: bool) -> None:
    """Remove the staged files of a write that failed, unless it was published and an owner took it."""
    spool = Spool(disk, path)
    try:
        spool.abandon(batch_id, files, once=once)
    except StorageError as error:
        LOGGER.warning("the staged files of %s stay in %s for now: %s", batch_id, path, error)
