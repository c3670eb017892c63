"""The producer id of an idempotent producer (KIP-98): asked for when a batch first needs it."""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.client.accumulator import Sequencer
from pyreplog.client.calls import RequestTracker
from pyreplog.client.router import Router, backoff_ns
from pyreplog.ports import Random
from pyreplog.wire import NO_ERROR, InitProducerIdRequest, InitProducerIdResponse

__all__ = ["ProducerId"]


class ProducerId:
    """The current id, ``value``; -1: none yet."""

    __slots__ = ("_asking", "_calls", "_failures", "_now_ns", "_random", "_router", "retry_ns", "value")

    def __init__(self, calls: RequestTracker, router: Router, random: Random, now_ns: Callable[[], int]) -> None:
        self.value = -1
        self.retry_ns = 0
        """Time before which no node is asked, after a failure."""
        self._calls = calls
        self._router = router
        self._random = random
        self._now_ns = now_ns
        self._asking = False
        self._failures = 0

    def begin(self, sequencer: Sequencer, now: int) -> bool:
        """Number a partition's batches from now on. REQUIRES that ``sequencer`` has no producer id.

        If there is no id, ask for one and return False.
        """
        if self.value >= 0 and sequencer.epoch < 0:
            sequencer.begin(self.value)
            return True
        if sequencer.epoch >= 0:  # all epochs of its producer id are used
            self.value = -1
            sequencer.epoch = -1
        self._ask(now)
        return False

    def _ask(self, now: int) -> None:
        if self._asking or now < self.retry_ns:
            return
        for peer in self._router.peers():
            if self._calls.send(peer, InitProducerIdRequest(), self._answered):
                self._asking = True
                return
        self._failed()

    def _answered(self, answer: InitProducerIdResponse | None) -> None:
        self._asking = False
        if answer is None or answer.error_code != NO_ERROR:
            self._failed()
            return
        self._failures = 0
        self.value = answer.producer_id

    def _failed(self) -> None:
        self._failures += 1
        self.retry_ns = self._now_ns() + backoff_ns(self._failures, self._random)
        self._router.turn()
