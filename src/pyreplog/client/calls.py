"""Calls: requests of one client on their way, each with what is to be done with its answer.

An answer comes once or not at all. "Not at all" (the peer is gone, or the time is up) says nothing about whether the request was
carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyreplog.ports import Address, Clock, Disconnected, Received, Transport
from pyreplog.wire import Request, RequestBody, Response

__all__ = ["MS", "Calls"]

MS: Final = 1_000_000
"""Nanoseconds."""
_NUMBER_MAX: Final = 0x7FFFFFFF
"""Correlation ids are of 32 bits, and negative ones are a node's own."""

# The answer's class is that of the request; None: none came.
Done = Callable[[Any], None]
# To whom, what is done with the answer, and until when. A plain tuple: one is made for each request.
_Call = tuple[Address, Done, int]


class Calls:
    """The requests of one endpoint. One owner; ``poll`` never waits."""

    def __init__(self, transport: Transport, clock: Clock, address: Address, timeout_ms: int) -> None:
        """Listens at ``address``. ``timeout_ms``: how long an answer may take."""
        self._transport = transport
        self._now_ns = clock.monotonic_ns
        self._timeout_ns = timeout_ms * MS
        self.address = transport.listen(address)
        # Begun at the clock's microsecond: who comes to the address of one that is gone does not repeat its numbers, which nodes remember.
        self._number = clock.monotonic_ns() // 1000 & _NUMBER_MAX
        self.open: dict[int, _Call] = {}
        """To whom, what is done with the answer, until when. All have the same time, so the oldest is due first."""

    @property
    def next_wake_ns(self) -> int | None:
        """When the first request is given up."""
        for _, _, until_ns in self.open.values():
            return until_ns
        return None

    def send(self, peer: Address, body: RequestBody, done: Done) -> bool:
        """Send ``body`` to ``peer``; ``done`` gets the answer, or None, in a later :meth:`poll`. False: not sent, ``done`` is forgotten."""
        self._number = number = (self._number + 1) & _NUMBER_MAX
        if not self._transport.send(peer, Request(self.address, number, body)):
            return False
        self.open[number] = (peer, done, self._now_ns() + self._timeout_ns)
        return True

    def tell(self, peer: Address, body: RequestBody) -> bool:
        """Send what is never answered."""
        self._number = number = (self._number + 1) & _NUMBER_MAX
        return self._transport.send(peer, Request(self.address, number, body))

    def poll(self) -> bool:
        """Hand on the answers that arrived and give up what is due. Whether anything happened."""
        happened = False
        for event in self._transport.poll(0):
            kind = type(event)
            if kind is Received:
                message = event.message  # type: ignore[union-attr]
                if type(message) is Response:
                    call = self.open.pop(message.correlation_id, None)
                    if call is not None:
                        happened = True
                        _, done, _ = call
                        done(message.body)
            elif kind is Disconnected:
                happened |= self._give_up([number for number, (peer, _, _) in self.open.items() if peer == event.peer])
        if self.open:
            now = self._now_ns()
            due: list[int] = []
            for number, (_, _, until_ns) in self.open.items():
                if until_ns > now:
                    break
                due.append(number)
            if due:
                happened |= self._give_up(due)
        return happened

    def close(self) -> None:
        """Stop listening; every open request ends without an answer."""
        self._transport.close()
        self._give_up(list(self.open))

    def _give_up(self, numbers: list[int]) -> bool:
        for number in numbers:
            call = self.open.pop(number, None)
            if call is not None:
                _, done, _ = call
                done(None)
        return bool(numbers)
