"""Outcome: the result of one batch, shared by all Acks of its records.

It has no thread of its own: its owner (an open log, or the driver of a cluster) waits for it and
settles it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from pyreplog.config import check_seconds
from pyreplog.errors import is_interruption
from pyreplog.timestamps import record_ms
from pyreplog.values import NO_EPOCH, NO_OFFSET, RecordMetadata

__all__ = ["BatchResult", "Owner", "Completion"]

_YEARS_S: Final = 1e9
"""A longer wait than any caller needs, and in nanoseconds still a small number."""


class Owner(Protocol):
    """The object that settles pending results, and can therefore wait for one."""

    def monotonic_ns(self) -> int:
        """Return the time of the clock that measures its waits."""
        ...

    def wait_for(self, pending: Completion, timeout: float | None) -> None:
        """Block until ``pending`` is settled; raise TimeoutError after ``timeout`` seconds."""
        ...

    def future_of(self, pending: Completion) -> Any:
        """Return an awaitable of the running event loop that ends when ``pending`` is settled."""
        ...

    def obstacle(self) -> str:
        """Return what keeps everything pending from being settled, to be appended to a text; empty if nothing does."""
        ...


class Completion:
    """A result that one thread settles once and any thread may wait for, with its waiters.

    It needs no lock. A waiter that registers while the result is being settled finds ``settled``
    true afterwards, or is called, or both.
    """

    __slots__ = ("_owner", "_waiters", "error", "settled")

    def __init__(self, owner: Owner | None = None) -> None:
        self._owner = owner
        self._waiters: list[Callable[[], None]] = []
        self.error: BaseException | None = None
        #: Written last: a thread that sees it true also sees the other fields.
        self.settled = False

    def wait(self, timeout: float | None) -> None:
        """Block until settled.

        Raises TimeoutError after ``timeout`` seconds, ConfigError if ``timeout`` is not a time.
        """
        if timeout is not None:
            timeout = check_seconds("timeout", timeout)
        if not self.settled:
            assert self._owner is not None, "a result that is waited for has an owner"
            self._owner.wait_for(self, timeout)

    def deadline_ns(self, timeout: float) -> int:
        """Return the time ``timeout`` seconds from now, by the owner's clock. REQUIRES not
        settled."""
        assert self._owner is not None, "a result that is waited for has an owner"
        return self._owner.monotonic_ns() + int(min(timeout, _YEARS_S) * 1e9)

    def wait_until(self, deadline_ns: int) -> None:
        """Wait like :meth:`wait`, until a time that :meth:`deadline_ns` of the same owner
        returned."""
        if not self.settled:
            assert self._owner is not None, "a result that is waited for has an owner"
            self._owner.wait_for(self, max(deadline_ns - self._owner.monotonic_ns(), 0) / 1e9)

    def future(self) -> Any:
        """Return an awaitable of the running event loop that ends when this is settled."""
        assert self._owner is not None, "a result that is waited for has an owner"
        return self._owner.future_of(self)

    def add_waiter(self, release: Callable[[], None]) -> bool:
        """Register ``release``, to be called by the thread that settles this, perhaps twice.

        Return False if this is settled already; then no call need be waited for.
        """
        self._waiters.append(release)
        if self.settled:
            try:
                self._waiters.remove(release)
            except ValueError as error:  # it has just been called
                if is_interruption(error):
                    raise
                return True
            return False
        return True

    def remove_waiter(self, release: Callable[[], None]) -> None:
        """Remove a waiter that gave up. An unknown one is ignored."""
        try:
            self._waiters.remove(release)
        except ValueError as error:
            if is_interruption(error):
                raise

    def so_far(self) -> str:
        """Return the known facts before it is settled, to be appended to "it goes on"; usually
        empty."""
        return "" if self._owner is None else self._owner.obstacle()

    def settle(self) -> None:
        """Settle without a value."""
        self._finish()

    def fail(self, error: BaseException) -> None:
        """Settle with ``error``."""
        self.error = error
        self._finish()

    def _finish(self) -> None:
        assert not self.settled, "settled once"
        self.settled = True
        if self._waiters:
            self._release()

    def _release(self) -> None:
        try:
            self._release_all()
        except BaseException:
            self._release_all()  # release the others before the interruption is raised
            raise

    def _release_all(self) -> None:
        waiters = self._waiters
        while waiters:
            try:
                release = waiters[0]
            except IndexError:  # the waiter has just given up
                break
            release()
            self.remove_waiter(release)  # after the call: twice is better than not at all


class BatchResult(Completion):
    """The final result of one batch: a range of offsets or an error."""

    __slots__ = ("asked", "base_offset", "leader_epoch", "partition", "refusal", "timestamps", "topic")

    def __init__(
        self, owner: Owner | None, topic: str, partition: int, timestamps: Sequence[int | datetime] | int = -1
    ) -> None:
        self._owner = owner
        self._waiters = []
        self.error = None
        self.settled = False
        self.topic = topic
        self.partition = partition
        self.base_offset = NO_OFFSET
        self.leader_epoch = NO_EPOCH
        #: Whether a caller has seen its error.
        self.asked = False
        #: The last leader's refusal, after which the batch is sent again.
        self.refusal: BaseException | None = None
        #: The given timestamp of each record, or one for all. Replaced if the leader sets them.
        self.timestamps = timestamps

    def so_far(self) -> str:
        """Return the obstacle, if there is one, and the last refusal as text."""
        refusal = "" if self.refusal is None else f". The last answer, after which it is sent again: {self.refusal}"
        return f"{'' if self._owner is None else self._owner.obstacle()}{refusal}"

    def metadata(self, index: int) -> RecordMetadata:
        """Return the place of the ``index``-th record of the batch. REQUIRES settled without
        error."""
        stamps = self.timestamps
        stamp = stamps if isinstance(stamps, int) else stamps[index]
        return RecordMetadata(
            self.topic,
            self.partition,
            self.base_offset + index if self.base_offset >= 0 else NO_OFFSET,
            stamp if type(stamp) is int else record_ms(stamp),
            self.leader_epoch,
        )

    def succeed(self, base_offset: int, leader_epoch: int, append_timestamp: int = -1) -> None:
        """Settle with the first record's offset (-1: unknown, with acks 0).

        ``append_timestamp`` (ms) replaces the records' timestamps if the leader set it.
        """
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        if append_timestamp >= 0:
            self.timestamps = append_timestamp
        assert not self.settled, "settled once"
        self.settled = True
        if self._waiters:
            self._release()
