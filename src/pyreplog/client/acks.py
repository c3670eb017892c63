"""Acks: the acknowledgements of records sent together, a sequence that creates each :class:`Ack` on
access."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NoReturn, SupportsIndex, overload

from pyreplog.client.outcome import BatchResult
from pyreplog.config import check_seconds
from pyreplog.record import Ack
from pyreplog.values import RecordMetadata

__all__ = ["Acks"]

Run = tuple[BatchResult, int, int]
"""(batch, start, count): ``count`` records of a batch from index ``start`` on."""


class Acks(Sequence[Ack]):
    """One :class:`Ack` per record, in the order sent. Thread-safe.

    ``result()``, ``await`` and ``wait`` cover all of them. An Ack is created on each access and is
    equal to no other, so a sequence's ``index`` and ``count`` find none.
    """

    __slots__ = ("_order", "_runs")

    def __init__(self, runs: Sequence[Run], order: Sequence[tuple[BatchResult, int]] | None = None) -> None:
        """Cover the records of ``runs``, in order.

        If the records were spread over partitions, ``order`` has the place of each one and ``runs``
        only the batches.
        """
        self._runs = runs
        self._order = order

    @property
    def runs(self) -> Sequence[Run]:
        """The batches of the records, with the place of the records in each; not in the order sent if the records were
        spread over partitions."""
        return self._runs

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "Acks cannot be copied or pickled: they belong to a log or cluster of this process; send their result()"
        )

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
            raise TypeError(f"acks are indexed by a whole number or a slice, not {type(index).__name__}")
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
        """Return whether every record is acknowledged or refused."""
        return all(outcome.settled for outcome, _, _ in self._runs)

    def last_of_each(self) -> list[Ack]:
        """Return one Ack of every batch: when these are acknowledged, all are."""
        return [Ack(outcome, start + count - 1) for outcome, start, count in self._runs]

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all records are acknowledged.

        Raises the first error, or TimeoutError if it takes longer than ``timeout`` seconds.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for all records; return the first error, or None. Raises TimeoutError like
        :meth:`wait`."""
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
                    raise  # a signal handler raised it, not this wait
                missing = sum(count for one, _, count in self._runs if not one.settled)
                text = (
                    f"{missing} of {len(self)} records not acknowledged after {timeout:g} s; sending goes on in"
                    " the background"
                )
                text += outcome.so_far()
                raise TimeoutError(text) from error
        failed = [outcome for outcome, _, _ in self._runs if outcome.error is not None]
        for outcome in failed:
            outcome.asked = True
        return failed[0].error if failed else None

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Return the place of each record, after :meth:`wait`."""
        self.wait(timeout)
        return [outcome.metadata(index) for outcome, index in self._places()]

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        for outcome, _, _ in self._runs:
            if not outcome.settled:
                yield from outcome.future().__await__()
        return self.result()

    def __repr__(self) -> str:
        return f"<pyreplog.Acks of {len(self)} records{', done' if self.done() else ''}>"

    def _places(self) -> Iterator[tuple[BatchResult, int]]:
        if self._order is not None:
            yield from self._order
            return
        for outcome, start, count in self._runs:
            for index in range(start, start + count):
                yield outcome, index
