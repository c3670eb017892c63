"""ChangeFence: the log that this process leads, and its repair after a change that was cut short.

Ctrl-C, another exception of a signal handler, or MemoryError may end a change of the log between
any two steps. The fence is raised before each change and lowered behind it. A caller that finds it
raised opens the partition again from its files, as after a kill of the process: every acknowledged
record is there.
"""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.errors import ClosedError, PyreplogError, ReentrantCallError, StorageError, copy_for_raise
from pyreplog.log import Log
from pyreplog.runtime.logger import LOGGER
from pyreplog.system import OwnedLock

__all__ = ["ChangeFence"]


class ChangeFence:
    """Hold one led log with its lock, tell whether it can be changed, and open it again after a
    cut-short change.

    Use it by ``with`` around a change that is not an append. All methods REQUIRE ``lock``; the
    attributes may be read by any thread.
    """

    __slots__ = ("_on_reopen", "_reopen_log", "_sync_failure", "ended", "epoch", "is_raised", "lock", "log", "name")

    def __init__(self, log: Log, name: str, reopen: Callable[[], Log], on_reopen: Callable[[Log], None]) -> None:
        """Lead ``log``, which errors call ``name``, in a new epoch.

        ``reopen`` opens the partition again, as after a kill. ``on_reopen`` gets the new log before
        it is led.
        """
        self.log = log
        self.name = name
        self.lock = OwnedLock(name)
        self.is_raised = False
        """Whether a change is under way, or was cut short."""
        self.ended: PyreplogError | None = None
        """Why the owner takes nothing any more: it closed the log, or forked."""
        self._reopen_log = reopen
        self._on_reopen = on_reopen
        self._sync_failure: StorageError | None = None
        self._lead()

    def _lead(self) -> None:
        log = self.log
        self.epoch = log.epochs.latest + 1
        log.become_leader(self.epoch)
        log.advance_high_watermark(log.ack_offset)
        log.write_mark()

    def __enter__(self) -> None:
        self.is_raised = True

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or self.is_refusal(error):
            self.is_raised = False

    @staticmethod
    def is_refusal(error: BaseException) -> bool:
        """Return whether the log refused a change as a whole with ``error``, which left the log as
        it was."""
        # A ReentrantCallError refused a use of this log within the change, by a signal handler, not
        # the change.
        return isinstance(error, PyreplogError) and not isinstance(error, ReentrantCallError)

    # --------------------------------------------------------------------------- may it be changed?

    @property
    def log_failure(self) -> Exception | None:
        """The failed sync or write that poisoned the log, or another failure that ended it."""
        return self._sync_failure or self.log.failure

    @property
    def poisoned(self) -> bool:
        """Whether the content of the disk is unknown. A log that ended otherwise can be opened
        again at once."""
        return self._sync_failure is not None or self.log.poisoned

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be appended any more (closed, forked or poisoned); None if a reopening
        repairs the log."""
        return self.ended or (None if self.is_repairable else self.log_failure)

    @property
    def is_repairable(self) -> bool:
        """Whether a change was cut short and nothing else is wrong, although the log may have ended
        with it."""
        return self.is_raised and not self.poisoned

    def check(self) -> None:
        """Raise :attr:`failure`, as :class:`ClosedError` if the log is poisoned."""
        if self.ended is not None:
            raise copy_for_raise(self.ended)
        if not self.is_repairable:
            self.check_log()

    def check_log(self) -> None:
        """Raise ClosedError, with its cause, if a sync or a write failed, or the log ended
        otherwise."""
        failure = self.log_failure
        if failure is not None:
            if not self.poisoned:
                raise ClosedError(
                    f"{self.name} has ended with an earlier failure ({failure}): close the log and open it again"
                ) from failure
            raise ClosedError(
                f"{self.name} is poisoned by an earlier failure ({failure}). The content of the disk is unknown: "
                "close the log and open it again, which verifies it"
            ) from failure

    def poison(self, error: StorageError) -> None:
        """Note that a sync failed with ``error``: nothing is appended any more, and the next
        opening verifies the log."""
        self._sync_failure = error
        self.log.poison(error)

    # -------------------------------------------------------------------------------------- repair

    def make_whole(self) -> None:
        """Prepare for a change: raise :attr:`failure`, or repair the log if a change was cut short."""
        self.check()
        if self.is_raised:
            self.reopen()

    def repair(self) -> None:
        """Prepare for a look or a wait: repair the log if a change was cut short and the log is not
        closed or poisoned.

        A repair that was itself cut short leaves a closed log.
        """
        if self.is_raised and self.failure is None:
            self.reopen()

    def reopen(self) -> None:
        """Open the partition again and lead it."""
        LOGGER.warning("%s: an append was interrupted; opening the partition again", self.name)
        self.log = self._reopen_log()
        self._on_reopen(self.log)
        self._lead()
        self.is_raised = False

    def forked(self, error: PyreplogError) -> None:
        """Refuse every call with ``error``, because this process is a forked child. Take a new lock that no thread
        holds."""
        self.lock = OwnedLock(self.name)
        self.ended = error
