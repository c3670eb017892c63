"""Requests that only the controller can answer. The node that receives one passes it on."""

from __future__ import annotations

from typing import Final

from pyreplog.node.effects import Effects
from pyreplog.node.hosting import ClusterView
from pyreplog.ports import Address
from pyreplog.wire import ErrorCode, InitProducerIdRequest, InitProducerIdResponse, Request, Response

__all__ = ["Forwarding"]

UNANSWERED_MAX: Final = 1024


class Forwarding:
    """The forwarded requests without an answer yet.

    If there are too many, the oldest is forgotten; its client times out.
    """

    def __init__(self, effects: Effects, standing: ClusterView, controller: Address) -> None:
        self._effects = effects
        self._standing = standing
        self._controller = controller
        self._askers: dict[int, tuple[Address, int]] = {}

    def forward(self, message: Request) -> None:
        """Send the request to the controller in the client's place."""
        body = message.body
        assert isinstance(body, InitProducerIdRequest)
        if self._effects.now_ns > self._standing.leased_until_ns:
            self._refuse(message.source, message.correlation_id)
            return
        number = self._effects.request(self._controller, body)
        if number < 0:
            self._refuse(message.source, message.correlation_id)
            return
        if len(self._askers) >= UNANSWERED_MAX:
            del self._askers[next(iter(self._askers))]
        self._askers[number] = (message.source, message.correlation_id)

    def answered(self, message: Response) -> None:
        """Pass the controller's answer to the client."""
        asker = self._askers.pop(message.correlation_id, None)
        if asker is not None:
            self._effects.respond(*asker, message.body)

    def disconnected(self, peer: Address) -> None:
        """If ``peer`` is the controller, refuse the open requests, so that their clients need not
        wait."""
        if peer == self._controller:
            askers, self._askers = self._askers, {}
            for asker in askers.values():
                self._refuse(*asker)

    def _refuse(self, source: Address, correlation_id: int) -> None:
        self._effects.respond(source, correlation_id, InitProducerIdResponse(ErrorCode.BROKER_NOT_AVAILABLE))
