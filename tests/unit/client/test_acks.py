"""The acknowledgements of many batches, waited for together."""

from __future__ import annotations

from typing import Any

import pytest

from pyreplog.client import Acks, BatchResult, Completion

S = 1_000_000_000


class Slow:
    """Settles one batch after the other, each so much later than the one before."""

    def __init__(self, step_s: float) -> None:
        self.now_ns = 0
        self.outcomes: list[BatchResult] = []
        self._step_ns = int(step_s * S)
        self.interruption: BaseException | None = None

    def acks(self, *counts: int) -> Acks:
        """Batches of so many records."""
        self.outcomes = [BatchResult(self, "t", 0) for _ in counts]
        return Acks([(outcome, 0, count) for outcome, count in zip(self.outcomes, counts, strict=True)])

    def monotonic_ns(self) -> int:
        """Moves only while somebody waits."""
        return self.now_ns

    def wait_for(self, pending: Completion, timeout: float | None) -> None:
        """As owners do."""
        if self.interruption is not None:
            raise self.interruption
        until_ns = None if timeout is None else self.now_ns + round(timeout * S)
        while not pending.settled:
            due_ns = self._step_ns * (1 + sum(outcome.settled for outcome in self.outcomes))
            if until_ns is not None and due_ns > until_ns:
                self.now_ns = until_ns
                raise TimeoutError
            self.now_ns = due_ns
            next(outcome for outcome in self.outcomes if not outcome.settled).succeed(0, 0)

    def obstacle(self) -> str:
        """Nothing is in the way."""
        return ""

    def future_of(self, pending: Completion) -> Any:
        """Nobody asks."""
        raise AssertionError("these are waited for by threads")


def test_a_timeout_is_for_all_of_them() -> None:
    """However many batches there are: those that were there in time count, the others are told by number."""
    owner = Slow(0.4)
    acks = owner.acks(10, 20, 30, 40)
    with pytest.raises(TimeoutError, match="70 of 100 records not acknowledged after 1 s"):
        acks.wait(1)
    assert owner.now_ns == S
    with pytest.raises(TimeoutError, match="70 of 100 .* after 0 s"):
        acks.exception(0)
    assert owner.now_ns == S
    acks.wait(0.7)
    assert owner.now_ns == 1.6 * S
    acks.wait(0)


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300])
def test_without_an_end(timeout: float | None) -> None:
    """For ever is no number of seconds, and what is as good as that does not overflow."""
    owner = Slow(3600.0)
    owner.acks(1, 1, 1).wait(timeout)
    assert owner.now_ns == 3 * 3600 * S


def test_what_a_signal_handler_raises_is_left_alone() -> None:
    """It may be a TimeoutError, too, and says something else."""
    owner = Slow(1)
    acks = owner.acks(1, 1)
    owner.interruption = TimeoutError("an alarm")
    with pytest.raises(TimeoutError, match="an alarm"):
        acks.wait(5)
