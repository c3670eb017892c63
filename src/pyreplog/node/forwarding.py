"""Requests that only the controller can answer, passed on to it by the node that a client happened to ask."""

from __future__ import annotations

from typing import Final

from pyreplog.node.effects import Effects
from pyreplog.ports import Address
from pyreplog.wire import ErrorCode, InitProducerIdRequest, InitProducerIdResponse, Request, Response

__all__ = ["Forwarding"]

UNANSWERED_MAX: Final = 1024


class Forwarding:
    """What was passed on and has no answer yet. Whoever asked gives up by itself; the oldest is forgotten when there are too many."""

    def __init__(self, effects: Effects, controller: Address) -> None:
        self._effects = effects
        self._controller = controller
        self._askers: dict[int, tuple[Address, int]] = {}

    def forward(self, message: Request) -> None:
        """Ask the controller in the client's place."""
        body = message.body
        assert isinstance(body, InitProducerIdRequest)
        number = self._effects.request(self._controller, body)
        if number < 0:
            self._effects.respond(message.source, message.correlation_id, InitProducerIdResponse(ErrorCode.BROKER_NOT_AVAILABLE))
            return
        if len(self._askers) >= UNANSWERED_MAX:
            del self._askers[next(iter(self._askers))]
        self._askers[number] = (message.source, message.correlation_id)

    def answered(self, message: Response) -> None:
        """The controller's answer goes to whoever asked."""
        asker = self._askers.pop(message.correlation_id, None)
        if asker is not None:
            self._effects.respond(*asker, message.body)
