"""Deliveries: calls the ``on_delivery`` functions of one producer, in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from pyreplog.client import BatchResult
from pyreplog.runtime.background import Background
from pyreplog.runtime.logger import LOGGER
from pyreplog.values import RecordMetadata

__all__ = ["Deliveries", "OnDelivery"]

OnDelivery = Callable[[RecordMetadata | None, BaseException | None], object]
"""Called once for a record: with its place and None, or with None and its error."""


class Deliveries:
    """The functions that wait for the outcome of a record.

    The thread that settles a batch holds the lock of the producer's machine, so it only hands the
    batch over. The functions run in the background thread, which begins with the first of them: they
    may use the producer, wait and raise. An exception is logged and changes nothing.
    """

    def __init__(self) -> None:
        self._expected: dict[BatchResult, list[tuple[int, OnDelivery]]] = {}
        self._settled: deque[BatchResult | threading.Event] = deque()
        self._background = Background("pyreplog on_delivery", self._call_all)
        self._starting = threading.Lock()

    @property
    def is_used(self) -> bool:
        """Whether the thread was started, so that functions may be left to call."""
        return self._background.is_running

    def start(self) -> None:
        """Start the thread if it does not run. Raises :class:`NoThreadError`."""
        if not self._background.is_running:
            with self._starting:
                self._background.start(after_s=None)

    def expect(self, outcome: BatchResult, index: int, call: OnDelivery) -> None:
        """Have ``call`` called for the record ``index`` of ``outcome``.

        REQUIRES :meth:`start`, and the lock under which the batch is settled."""
        entries = self._expected.get(outcome)
        if entries is not None:
            entries.append((index, call))
            return
        self._expected[outcome] = [(index, call)]
        hand_over = partial(self._hand_over, outcome)
        if not outcome.add_waiter(hand_over):
            hand_over()

    def _hand_over(self, outcome: BatchResult) -> None:
        self._settled.append(outcome)
        self._background.wake()

    def _call_all(self) -> None:
        """Call the functions of all settled batches, in the order in which they were settled."""
        while self._settled:
            settled = self._settled.popleft()
            if isinstance(settled, threading.Event):
                settled.set()
                continue
            error = settled.error
            for index, call in self._expected.pop(settled, ()):  # empty if it was handed over twice
                settled.asked = True
                try:
                    call(None if error is not None else settled.metadata(index), error)
                except BaseException:  # a SystemExit must not end the thread either
                    LOGGER.exception("on_delivery of a record for %s-%d raised", settled.topic, settled.partition)

    def wait(self, timeout: float | None) -> bool:
        """Return whether all functions of the batches that are settled now have returned within ``timeout`` seconds.
        In the background thread itself it returns True at once."""
        if not self._background.is_running or self._background.is_current:
            return True
        passed = threading.Event()
        self._settled.append(passed)
        self._background.wake()
        return passed.wait(timeout)

    def close(self, timeout: float | None) -> None:
        """Wait as :meth:`wait` does, and end the thread after the call that runs."""
        if self.wait(timeout):
            self._background.stop()
