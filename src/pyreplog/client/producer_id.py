"""The producer id of an idempotent producer (KIP-98): asked for when a batch first needs it."""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.client.accumulator import PartitionQueue, Sequencer
from pyreplog.client.calls import RequestTracker
from pyreplog.client.router import Router, backoff_ns
from pyreplog.errors import ClusterError, cluster_error
from pyreplog.ports import Random
from pyreplog.wire import NO_ERROR, InitProducerIdRequest, InitProducerIdResponse

__all__ = ["ProducerId"]


class ProducerId:
    """The current id, ``value``; -1: none yet."""

    __slots__ = ("_asking", "_calls", "_failures", "_now_ns", "_random", "_router", "refusal", "retry_ns", "value")

    def __init__(self, calls: RequestTracker, router: Router, random: Random, now_ns: Callable[[], int]) -> None:
        self.value = -1
        self.retry_ns = 0
        """Time before which no node is asked, after a failure."""
        self.refusal: ClusterError | None = None
        """The last refusal; None if the last request was answered with an id, or not at all."""
        self._calls = calls
        self._router = router
        self._random = random
        self._now_ns = now_ns
        self._asking = False
        self._failures = 0

    def begin(self, queue: PartitionQueue, sequencer: Sequencer, now: int) -> bool:
        """Number the batches of ``queue`` from now on. REQUIRES that its ``sequencer`` has no producer id.

        If there is no id, ask for one and return False; the batches learn why they wait.
        """
        if self.value >= 0 and sequencer.epoch < 0:
            sequencer.begin(self.value)
            return True
        if sequencer.epoch >= 0:  # all epochs of its producer id are used
            self.value = -1
            sequencer.epoch = -1
        self._ask(now)
        if self.refusal is not None:
            queue.refuse(self.refusal)
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
        self.refusal = None
        if answer is None or answer.error_code != NO_ERROR:
            if answer is not None:
                text = "the controller gave the producer no id, so nothing was sent and nothing was appended"
                self.refusal = cluster_error(answer.error_code, text)
            self._failed()
            return
        self._failures = 0
        self.value = answer.producer_id

    def _failed(self) -> None:
        self._failures += 1
        self.retry_ns = self._now_ns() + backoff_ns(self._failures, self._random)
        self._router.turn()
