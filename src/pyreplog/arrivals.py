"""What a transport tells of by ``poll``, and how it names who it is about. Part of :mod:`pyreplog.ports`, which hands it on.

The classes are not frozen, which would cost more than the rest of handing a message over; nobody changes an object.
"""

from __future__ import annotations

from pyreplog.compiled import mypyc_attr

__all__ = ["Address", "Connected", "Disconnected", "Received", "TransportEvent"]

Address = str
"""Where a node listens: ``"node-1"`` in one process, ``"tcp://10.0.0.1:9092"`` across machines."""


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
    """A peer can be sent to."""

    __slots__ = ()


@mypyc_attr(acyclic=True)
class Received:
    """A message arrived."""

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
    """A peer is gone; what was sent and not answered may or may not have arrived."""

    __slots__ = ()


TransportEvent = Connected | Received | Disconnected
