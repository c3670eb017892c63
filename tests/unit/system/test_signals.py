"""Which exceptions are a signal handler's."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial

import pytest

from pyreplog.errors import is_interruption as hook
from pyreplog.system.signals import is_interruption


class Alarm(Exception):
    """A handler's."""


class Clock:
    """Handlers of other kinds than a function."""

    def ring(self, *_: object) -> None:
        """A bound method."""
        raise Alarm

    def __call__(self, *_: object) -> None:
        """An object that can be called."""
        self.ring()


def ring(*_: object) -> None:
    """The usual."""
    raise Alarm


def within() -> None:
    """Some call in the middle of which the signal comes."""
    signal.raise_signal(signal.SIGALRM)


@pytest.mark.parametrize(
    "handler",
    [ring, Clock().ring, Clock(), partial(ring, 1), partial(partial(Clock().ring, 1), 2)],
    ids=["function", "method", "object", "partial", "partial of a method"],
)
def test_a_handler_is_found(handler: Callable[..., None]) -> None:
    """Whatever it is, and however deep the call was that it struck; and what others raise is not its."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(Alarm) as caught:
            within()
        assert is_interruption(caught.value)
        assert hook(caught.value), "the rooms below `system` ask this one"
        with pytest.raises(ZeroDivisionError) as other:
            1 // 0  # noqa: B018
        assert not is_interruption(other.value)
        assert not hook(other.value)
        assert not is_interruption(Alarm())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not is_interruption(caught.value), "it is not set any more"
