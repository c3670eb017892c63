"""Outcome: what an Ack belongs to, one batch on its way. Once per batch, shared by every handle on its records.

It has no thread of its own: its owner (an open log, or the driver of a cluster) waits for it and settles it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from pyreplog.config import check_seconds
from pyreplog.interruptions import is_interruption
from pyreplog.moments import record_ms
from pyreplog.values import NO_EPOCH, NO_OFFSET, RecordMetadata

__all__ = ["Outcome", "Owner", "Pending"]

_YEARS_S: Final = 1e9
"""Longer than anybody waits, and in nanoseconds still a small number."""


class Owner(Protocol):
    """Who brings pending things about, and can therefore wait for one."""

    def monotonic_ns(self) -> int:
        """The clock that its waits are measured by."""
        ...

    def wait_for(self, pending: Pending, timeout: float | None) -> None:
        """Block until ``pending`` is settled; TimeoutError when ``timeout`` seconds pass first."""
        ...

    def future_of(self, pending: Pending) -> Any:
        """An awaitable of the running event loop that ends when ``pending`` is settled."""
        ...


class Pending:
    """Something that is settled once, by one thread, and may be waited for by any: its state, and who is to be told.

    Needs no lock: a waiter that registers while it is being settled finds ``settled`` true afterwards, or is called, or both; never
    neither.
    """

    __slots__ = ("_owner", "_waiters", "error", "settled")

    def __init__(self, owner: Owner | None = None) -> None:
        self._owner = owner
        self._waiters: list[Callable[[], None]] = []
        self.error: BaseException | None = None
        #: Written last: whoever sees it true sees the rest.
        self.settled = False

    def wait(self, timeout: float | None) -> None:
        """Block until settled; TimeoutError when ``timeout`` seconds pass first, ConfigError where that is no time."""
        if timeout is not None:
            timeout = check_seconds("timeout", timeout)
        if not self.settled:
            assert self._owner is not None, "nobody brings this about"
            self._owner.wait_for(self, timeout)

    def deadline_ns(self, timeout: float) -> int:
        """The moment ``timeout`` seconds from now, by the clock of who brings this about. REQUIRES that it is not settled."""
        assert self._owner is not None, "nobody brings this about"
        return self._owner.monotonic_ns() + int(min(timeout, _YEARS_S) * 1e9)

    def wait_until(self, deadline_ns: int) -> None:
        """As :meth:`wait`, up to a moment as :meth:`deadline_ns` gives it, of the same owner."""
        if not self.settled:
            assert self._owner is not None, "nobody brings this about"
            self._owner.wait_for(self, max(deadline_ns - self._owner.monotonic_ns(), 0) / 1e9)

    def future(self) -> Any:
        """An awaitable of the running event loop that ends when settled."""
        assert self._owner is not None, "nobody brings this about"
        return self._owner.future_of(self)

    def add_waiter(self, release: Callable[[], None]) -> bool:
        """Have ``release`` called, from whichever thread settles this; twice is possible. False: it is settled, and ``release`` need not
        be waited for."""
        self._waiters.append(release)
        if self.settled:
            try:
                self._waiters.remove(release)
            except ValueError as error:  # it was called just now
                if is_interruption(error):
                    raise
                return True
            return False
        return True

    def remove_waiter(self, release: Callable[[], None]) -> None:
        """Forget a waiter that gave up. Unknown ones are fine."""
        try:
            self._waiters.remove(release)
        except ValueError as error:
            if is_interruption(error):
                raise

    def so_far(self) -> str:
        """What is known of it before it is settled, to be put behind "it goes on"; mostly nothing."""
        return ""

    def settle(self) -> None:
        """Settle, with nothing more to say."""
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
            self._release_all()  # who was not told yet is told all the same, and the interruption passed on
            raise

    def _release_all(self) -> None:
        waiters = self._waiters
        while waiters:
            try:
                release = waiters[0]
            except IndexError:  # it gave up just now
                break
            release()
            self.remove_waiter(release)  # told twice rather than not at all


class Outcome(Pending):
    """The fate of one batch: a range of offsets or an error, for ever."""

    __slots__ = ("asked", "base_offset", "leader_epoch", "partition", "refusal", "timestamps", "topic")

    def __init__(self, owner: Owner | None, topic: str, partition: int, timestamps: Sequence[int | datetime] | int = -1) -> None:
        self._owner = owner
        self._waiters = []
        self.error = None
        self.settled = False
        self.topic = topic
        self.partition = partition
        self.base_offset = NO_OFFSET
        self.leader_epoch = NO_EPOCH
        #: Whether somebody has heard of its error.
        self.asked = False
        #: What the last leader said that did not take it: it is sent again.
        self.refusal: BaseException | None = None
        #: Of each record as they were given, or one number where all share it. Replaced by the leader's where it sets them.
        self.timestamps = timestamps

    def so_far(self) -> str:
        """The last refusal."""
        return "" if self.refusal is None else f". The last answer, after which it is sent again: {self.refusal}"

    def metadata(self, index: int) -> RecordMetadata:
        """Where the ``index``-th record of the batch is. REQUIRES settled without error."""
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
        """Settle with the first record's offset (-1: not told, acks 0); ``append_timestamp`` (ms) replaces the records' where the leader
        set it."""
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        if append_timestamp >= 0:
            self.timestamps = append_timestamp
        assert not self.settled, "settled once"
        self.settled = True
        if self._waiters:
            self._release()
