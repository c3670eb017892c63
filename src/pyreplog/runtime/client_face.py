"""Face: what the blocking faces of the client machines share. A machine that a signal handler cut short is replaced
by another."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from pyreplog.errors import ClosedError
from pyreplog.runtime.driver import DrivenMachine, Driver

__all__ = ["ClientFace"]

M = TypeVar("M")
T = TypeVar("T")


class ClientFace(Generic[M]):
    """The face of a machine that the driver moves, and that may be another at the next look. Any thread."""

    _noun: ClassVar[str]
    _driver: Driver
    _place: tuple[M, DrivenMachine]
    """The machine and its seat: replaced in one, under the lock of the former seat."""
    _closed = False

    @property
    def _machine(self) -> M:
        return self._place[0]

    @property
    def _seat(self) -> DrivenMachine:
        return self._place[1]

    def _use(self, act: Callable[[M], T]) -> T:
        """What ``act`` says, told the machine that is there now, which nobody else touches meanwhile."""
        while True:
            place = self._place
            machine, seat = place
            with seat.lock.enter():
                if place is self._place:
                    return act(machine)

    def _await(self, ask: Callable[[M], None], is_known: Callable[[M], bool], timeout: float | None) -> bool:
        """Whether the answer to ``ask`` comes in time. ``is_known`` looks for it while no machine moves, so none is
        replaced in between."""
        asked: M | None = None

        def known() -> bool:
            nonlocal asked
            self._check_open()
            machine, seat = self._place
            if machine is not asked:  # another in its place has not heard the question
                with seat.lock:
                    ask(machine)
                self._driver.mark_ready(seat)
                asked = machine
            return is_known(machine)

        return self._driver.wait_until(known, timeout)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the {self._noun} is closed")
