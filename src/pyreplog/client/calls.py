"""Calls: the open requests of one client, each with the function that gets its answer.

An answer comes once or not at all. If none comes (the peer is gone, or the time is up), the request
may have been carried out or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyreplog.ports import Address, Clock, Disconnected, Received, Transport
from pyreplog.wire import Request, RequestBody, Response

__all__ = ["MS", "RequestTracker"]

MS: Final = 1_000_000
"""Nanoseconds per millisecond."""
_NUMBER_MAX: Final = 0x7FFFFFFF
"""The largest correlation id. It has 31 bits, because a node uses the negative ones itself."""

# Takes the answer, which has the class that belongs to the request; None: no answer came.
Done = Callable[[Any], None]
# (peer, function for the answer, deadline). A plain tuple, because each request creates one.
_Call = tuple[Address, Done, int]


class RequestTracker:
    """The requests of one endpoint. One owner; ``poll`` never waits."""

    def __init__(self, transport: Transport, clock: Clock, address: Address, timeout_ms: int) -> None:
        """Listen at ``address``. ``timeout_ms``: the longest time for an answer."""
        self._transport = transport
        self._now_ns = clock.monotonic_ns
        self._timeout_ns = timeout_ms * MS
        self.address = transport.listen(address)
        # Starts at the clock's microsecond, because nodes remember the numbers of an earlier client
        # at this address, and a new one must not repeat them.
        self._number = clock.monotonic_ns() // 1000 & _NUMBER_MAX
        self.open: dict[int, _Call] = {}
        """(peer, function for the answer, deadline). All have the same timeout, so the oldest ends
        first."""

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which the oldest request is given up."""
        for _, _, until_ns in self.open.values():
            return until_ns
        return None

    def send(self, peer: Address, body: RequestBody, done: Done) -> bool:
        """Send ``body`` to ``peer``.

        A later :meth:`poll` calls ``done`` with the answer, or None. Return False if it was not
        sent; then ``done`` is not called.
        """
        self._number = number = (self._number + 1) & _NUMBER_MAX
        if not self._transport.send(peer, Request(self.address, number, body)):
            return False
        self.open[number] = (peer, done, self._now_ns() + self._timeout_ns)
        return True

    def send_oneway(self, peer: Address, body: RequestBody) -> bool:
        """Send a request that is never answered."""
        self._number = number = (self._number + 1) & _NUMBER_MAX
        return self._transport.send(peer, Request(self.address, number, body))

    def poll(self) -> bool:
        """Deliver the answers and give up the requests that are due; return whether there was
        work."""
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
        """Stop listening. Every open request ends without an answer."""
        self._transport.close()
        self._give_up(list(self.open))

    def _give_up(self, numbers: list[int]) -> bool:
        for number in numbers:
            call = self.open.pop(number, None)
            if call is not None:
                _, done, _ = call
                done(None)
        return bool(numbers)
