"""The events that a transport's ``poll`` returns, and the addresses in them.

:mod:`pyreplog.ports` exports them. The classes are not frozen, because that would cost more than
the rest of handing a message over. No code changes an object.
"""

from __future__ import annotations

from pyreplog.mypyc_build import mypyc_attr

__all__ = ["Address", "Connected", "Disconnected", "Received", "TransportEvent"]

Address = str
"""The address of a node: ``"node-1"`` in one process, ``"tcp://10.0.0.1:9092"`` across machines."""


class _Peered:
    __slots__ = ("peer",)

    def __init__(self, peer: Address) -> None:
        self.peer = peer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Peered) and type(other) is type(self) and self.peer == other.peer

    __hash__ = None  # type: ignore[assignment]  # as of what may change

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.peer!r})"


class Connected(_Peered):
    """A peer is connected: messages can be sent to it."""

    __slots__ = ()


@mypyc_attr(acyclic=True)
class Received:
    """A message arrived from a peer."""

    __slots__ = ("message", "peer")

    def __init__(self, peer: Address, message: object) -> None:
        self.peer = peer
        self.message = message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Received) and self.peer == other.peer and self.message == other.message

    __hash__ = None  # type: ignore[assignment]  # as of what may change

    def __repr__(self) -> str:
        return f"Received({self.peer!r}, {self.message!r})"


class Disconnected(_Peered):
    """A peer is gone; unanswered messages to it may or may not have arrived."""

    __slots__ = ()


TransportEvent = Connected | Received | Disconnected
