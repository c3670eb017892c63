"""ClusterAppender: appends batches that other processes staged for a cluster. It sends them to the leaders, as any
client does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyreplog.client import BatchForwarder
from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, ForkedError, OutcomeUnknownError, UnknownTopicError
from pyreplog.log import LogValidator
from pyreplog.ports import Clock
from pyreplog.record import RecordBatch
from pyreplog.runtime.admin import Admin
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.values import TopicPartition

__all__ = ["ClusterAppender"]

WINDOW_SIZE: Final = 16 << 20
"""The most unacknowledged bytes; then :meth:`append` waits."""
LOOK_S: Final = 0.2
"""A wait checks this often whether the cluster is being closed."""


class ClusterAppender:
    """Appends one spooled batch. One thread may use it, and must :meth:`close` it."""

    def __init__(
        self,
        admin: Admin,
        driver: Driver,
        make: Callable[[Callable[[Exception | None], None]], tuple[BatchForwarder, DrivenMachine]],
        stopping: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """``make`` returns the machine and its DrivenMachine; its argument is called if the machine breaks.

        ``stopping`` returns whether to give up. ``clock`` is the time that the records' timestamps are checked against.
        """
        self._admin = admin
        self._driver = driver
        self._stopping = stopping
        self._clock = clock
        self._config: dict[str, tuple[int, LogConfig]] = {}
        self._relay, self._driven = make(self._broken)

    def _broken(self, error: Exception | None) -> None:
        with self._driven.lock:
            self._relay.close(OutcomeUnknownError("append of a staged batch", f"the relay was interrupted ({error})"))

    def check_of(self, key: TopicPartition) -> Callable[[RecordBatch], None]:
        """See :class:`pyreplog.spool.Appender`."""
        known = self._config.get(key.topic)
        if known is None:
            description = self._admin.describe(key.topic)
            known = self._config[key.topic] = (
                len(description.partitions),
                LogConfig.from_mapping(dict(description.config)),
            )
        if key.partition >= known[0]:
            raise UnknownTopicError(f"{key}: the topic has partitions 0 to {known[0] - 1}")
        return LogValidator(known[1], key, self._clock).check

    def append(self, key: TopicPartition, data: memoryview) -> None:
        """See :class:`pyreplog.spool.Appender`."""
        with self._driven.lock:
            self._relay.send(key, bytes(data))
        self._driver.mark_ready(self._driven)
        if self._relay.size > WINDOW_SIZE:
            self._wait(WINDOW_SIZE // 2)

    def finish(self) -> None:
        """See :class:`pyreplog.spool.Appender`."""
        self._wait(0)

    def _wait(self, size: int) -> None:
        with self._driven.lock:
            pending = self._relay.below(size)
        self._driver.mark_ready(self._driven)
        while not pending.settled:
            if self._stopping():
                raise ClosedError("the cluster is being closed; the batch is appended when it is opened again")
            self._driver.wait(pending, LOOK_S)
        if pending.error is not None:
            raise pending.error

    def close(self) -> None:
        """See :class:`pyreplog.spool.Appender`."""

        def end() -> None:
            self._driver.remove(self._driven)
            self._relay.close()

        try:
            self._driver.run_exclusively(end)
        except ForkedError:
            pass
