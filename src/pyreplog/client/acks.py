"""Acks: the acknowledgements of many records sent together. A sequence that makes each :class:`Ack` only when asked for."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NoReturn, SupportsIndex, overload

from pyreplog.client.outcome import Outcome
from pyreplog.config import check_seconds
from pyreplog.record import Ack
from pyreplog.values import RecordMetadata

__all__ = ["Acks"]

Run = tuple[Outcome, int, int]
"""``count`` records of a batch from index ``start`` on: (batch, start, count)."""


class Acks(Sequence[Ack]):
    """One :class:`Ack` per record, in the order sent. ``result()``, ``await`` and ``wait`` are about all of them. Thread-safe.

    An Ack is made anew whenever it is asked for, and equal to no other: a sequence's ``index`` and ``count`` find none.
    """

    __slots__ = ("_order", "_runs")

    def __init__(self, runs: Sequence[Run], order: Sequence[tuple[Outcome, int]] | None = None) -> None:
        """``runs`` cover the records in order; or, where they were spread, ``order`` says where each one is and ``runs`` only which
        batches there are."""
        self._runs = runs
        self._order = order

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("Acks cannot be copied or pickled: they belong to what brings them about, in this process; send their result()")

    def __len__(self) -> int:
        if self._order is not None:
            return len(self._order)
        return sum(count for _, _, count in self._runs)

    @overload
    def __getitem__(self, index: int) -> Ack: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ack]: ...
    def __getitem__(self, index: int | slice) -> Ack | list[Ack]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not isinstance(index, SupportsIndex):
            raise TypeError(f"acks are asked for by a whole number or a slice, not {type(index).__name__}")
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"there are {length} acks")
        index %= length
        if self._order is not None:
            return Ack(*self._order[index])
        for outcome, start, count in self._runs:
            if index < count:
                return Ack(outcome, start + index)
            index -= count
        raise AssertionError("runs are shorter than their sum")

    def __iter__(self) -> Iterator[Ack]:
        for place in self._places():
            yield Ack(*place)

    def done(self) -> bool:
        """Whether every record is acknowledged or refused."""
        return all(outcome.settled for outcome, _, _ in self._runs)

    def last_of_each(self) -> list[Ack]:
        """One Ack of every batch: when these are acknowledged, all are."""
        return [Ack(outcome, start + count - 1) for outcome, start, count in self._runs]

    def wait(self, timeout: float | None = None) -> None:
        """Return when all are acknowledged; raises the first error, TimeoutError when that takes longer than ``timeout`` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for all; the first error, or None. TimeoutError as :meth:`wait`."""
        timeout = check_seconds("timeout", timeout)
        deadline_ns: int | None = None
        for outcome, _, _ in self._runs:
            if outcome.settled:
                continue
            if timeout is None:
                outcome.wait(None)
                continue
            if deadline_ns is None:
                deadline_ns = outcome.deadline_ns(timeout)
            try:
                outcome.wait_until(deadline_ns)
            except TimeoutError as error:
                if outcome.settled or outcome.deadline_ns(0) < deadline_ns:
                    raise  # it is not about that: a signal handler's
                missing = sum(count for one, _, count in self._runs if not one.settled)
                text = f"{missing} of {len(self)} records not acknowledged after {timeout:g} s; what was sent goes on in the background"
                text += outcome.so_far()
                raise TimeoutError(text) from error
        failed = [outcome for outcome, _, _ in self._runs if outcome.error is not None]
        for outcome in failed:
            outcome.asked = True
        return failed[0].error if failed else None

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Where each record is, after :meth:`wait`."""
        self.wait(timeout)
        return [outcome.metadata(index) for outcome, index in self._places()]

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        for outcome, _, _ in self._runs:
            if not outcome.settled:
                yield from outcome.future().__await__()
        return self.result()

    def __repr__(self) -> str:
        return f"<pyreplog.Acks of {len(self)} records{', done' if self.done() else ''}>"

    def _places(self) -> Iterator[tuple[Outcome, int]]:
        if self._order is not None:
            yield from self._order
            return
        for outcome, start, count in self._runs:
            for index in range(start, start + count):
                yield outcome, index
