"""Requests that a node's server sends on to the active controller, and the answers on their way
back."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyreplog.ports import Address, Random
from pyreplog.wire import Request, Response

__all__ = ["RequestForwarder"]

KEPT_NS: Final = 60_000_000_000
"""A request is forgotten after this: its sender waits no longer."""


class _Forwarded(NamedTuple):
    """A request that was sent on."""

    request: Request
    controller: Address
    until_ns: int


class RequestForwarder:
    """The open requests of one server, which listens at ``address``. One owner."""

    def __init__(self, address: Address, random: Random) -> None:
        self._address = address
        # The controller recognises repeats by this number, so a server that starts again must not
        # begin with the numbers of its predecessor.
        self._number = random.getrandbits(30)
        self._open: dict[int, _Forwarded] = {}

    def forward(self, request: Request, controller: Address, now_ns: int) -> Request:
        """Return the request to send to ``controller`` in place of ``request``."""
        while self._open:
            oldest = next(iter(self._open))
            if self._open[oldest].until_ns > now_ns:
                break
            del self._open[oldest]
        self._number = (self._number + 1) & 0x7FFFFFFF
        self._open[self._number] = _Forwarded(request, controller, now_ns + KEPT_NS)
        return Request(self._address, self._number, request.body)

    def expects(self, response: Response) -> bool:
        """Return whether ``response`` answers a request that was sent on."""
        found = self._open.get(response.correlation_id)
        return found is not None and found.controller == response.source

    def answered(self, response: Response) -> Request:
        """Return the request that ``response`` answers. REQUIRES :meth:`expects`."""
        return self._open.pop(response.correlation_id).request

    def lost(self, controller: Address) -> list[Request]:
        """Return, and forget, the requests whose answer will not come, because ``controller`` is
        gone."""
        return self._drop([number for number, one in self._open.items() if one.controller == controller])

    def lost_except(self, controller: Address | None) -> list[Request]:
        """Return, and forget, the requests to any controller but ``controller``, which is active
        now. Whether they were carried out is not known."""
        return self._drop([number for number, one in self._open.items() if one.controller != controller])

    def _drop(self, numbers: list[int]) -> list[Request]:
        return [self._open.pop(number).request for number in numbers]
