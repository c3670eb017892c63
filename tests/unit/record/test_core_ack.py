"""Ack: asks its outcome for everything, and adds nothing of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from pyreplog._core import Ack
from pyreplog.errors import OutcomeUnknownError
from pyreplog.values import RecordMetadata


class Settled:
    """An outcome that is known, or becomes known when waited for."""

    def __init__(self, error: BaseException | None = None, *, settled: bool = True) -> None:
        self.error = error
        self.settled = settled
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None) -> None:
        """Settle; a timeout of 0 is too short."""
        self.waited.append(timeout)
        if timeout == 0 and not self.settled:
            raise TimeoutError("too short")
        self.settled = True

    def future(self) -> Any:
        """An awaitable that settles."""
        return Awaitable(self)

    def metadata(self, index: int) -> RecordMetadata:
        """Of the record at ``index``."""
        assert self.settled
        assert self.error is None
        return RecordMetadata("t", 0, 100 + index, 5, 1)


class Awaitable:
    """Gives the loop one turn, then settles its outcome."""

    def __init__(self, outcome: Settled) -> None:
        self.outcome = outcome

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.sleep(0).__await__()
        self.outcome.settled = True


def test_result() -> None:
    """``result`` waits as long as asked, then gives the record's own metadata."""
    outcome = Settled(settled=False)
    ack = Ack(outcome, 3)
    assert not ack.done()
    assert ack.offset is None
    assert "pending" in repr(ack)
    assert ack.result(1.5) == RecordMetadata("t", 0, 103, 5, 1)
    assert ack.done()
    assert ack.offset == 103
    assert "103" in repr(ack)
    assert ack.exception() is None
    assert outcome.waited == [1.5, None]


def test_timeout_leaves_it_open() -> None:
    """A TimeoutError decides nothing: a later call may succeed."""
    ack = Ack(Settled(settled=False), 0)
    with pytest.raises(TimeoutError):
        ack.result(0)
    with pytest.raises(TimeoutError):
        ack.exception(0)
    assert ack.result().offset == 100


def test_error() -> None:
    """What went wrong is raised by ``result`` each time and returned by ``exception``; there is no offset."""
    error = OutcomeUnknownError("an append")
    ack = Ack(Settled(error), 0)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            ack.result()
    assert ack.exception() is error
    assert ack.offset is None
    assert ack.done()
    assert "failed" in repr(ack)


def test_await() -> None:
    """``await`` gives what ``result`` gives, waiting only where it must."""

    async def main() -> None:
        assert (await Ack(Settled(), 1)).offset == 101
        assert (await Ack(Settled(settled=False), 2)).offset == 102
        with pytest.raises(OutcomeUnknownError):
            await Ack(Settled(OutcomeUnknownError("an append"), settled=False), 0)

    asyncio.run(main())


def test_arguments() -> None:
    """An Ack has an outcome and a number."""
    with pytest.raises(TypeError):
        Ack(None, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Ack(Settled(), "0")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        Ack(Settled(), 0).anything = 1  # type: ignore[attr-defined]
