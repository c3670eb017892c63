"""ClientFace: the base of the blocking faces of the client machines. It replaces a machine that a signal handler
interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from pyreplog.errors import ClosedError
from pyreplog.runtime.driver import DrivenMachine, Driver

__all__ = ["ClientFace"]

M = TypeVar("M")
T = TypeVar("T")


class ClientFace(Generic[M]):
    """The face of a machine that the driver polls, and that another machine may replace at any time. Any thread."""

    _noun: ClassVar[str]
    _driver: Driver
    _current: tuple[M, DrivenMachine]
    """The client machine and its DrivenMachine. Both are replaced at once, under the lock of the old one."""
    _closed = False

    @property
    def _machine(self) -> M:
        return self._current[0]

    @property
    def _driven(self) -> DrivenMachine:
        return self._current[1]

    def _use(self, act: Callable[[M], T]) -> T:
        """Return ``act(machine)`` for the current machine. It is called under the machine's lock."""
        while True:
            current = self._current
            machine, driven = current
            with driven.lock.enter():
                if current is self._current:
                    return act(machine)

    def _await(self, ask: Callable[[M], None], is_known: Callable[[M], bool], timeout: float | None) -> bool:
        """Call ``ask``, and return whether the answer comes within ``timeout`` seconds.

        ``is_known`` looks for the answer while no machine runs, so that none is replaced in between.
        """
        asked: M | None = None

        def known() -> bool:
            nonlocal asked
            self._check_open()
            machine, driven = self._current
            if machine is not asked:  # a new machine has not been asked yet
                with driven.lock:
                    ask(machine)
                self._driver.mark_ready(driven)
                asked = machine
            return is_known(machine)

        return self._driver.wait_until(known, timeout)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the {self._noun} is closed")
