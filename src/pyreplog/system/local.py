"""LocalNetwork: messages between endpoints of one process.

Objects are handed over without a copy, a thread or a system call. Messages keep their order from
one endpoint to another, and are lost only when the receiving endpoint closes. An endpoint with
messages is entered once in the network's ready queue, so that a loop over the queue costs as much
as there are messages, not as there are endpoints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from pyreplog.errors import LocalProtocolError
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.ports import Address, Connected, Disconnected, Received, TransportEvent

__all__ = ["QUEUE_MAX", "LocalNetwork", "LocalTransport"]

QUEUE_MAX: Final = 4096
"""Messages that may wait at one endpoint before ``send`` returns False."""


@mypyc_attr(allow_interpreted_subclasses=True)
class LocalNetwork:
    """All endpoints of one process. It has one owner; some methods allow any thread."""

    __slots__ = ("_endpoints", "_notify", "ready")

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        """``notify`` is called, from any thread, after an endpoint was woken; the driver then
        checks ``ready``.
        """
        self._notify = notify
        self._endpoints: dict[Address, LocalTransport] = {}
        self.ready: deque[LocalTransport] = deque()
        """Endpoints with messages, each once. The driver takes one out, clears its ``is_ready`` and
        polls its machine.
        """

    def endpoint(self) -> LocalTransport:
        """Return a new endpoint, which does not listen yet."""
        return LocalTransport(self)

    def find(self, address: Address) -> LocalTransport | None:
        """Return the endpoint that listens at ``address``, or None."""
        return self._endpoints.get(address)

    def join(self, address: Address, endpoint: LocalTransport) -> None:
        """Let ``endpoint`` listen at ``address``."""
        if address in self._endpoints:
            raise LocalProtocolError(f"another endpoint listens at {address} already")
        self._endpoints[address] = endpoint

    def leave(self, address: Address) -> None:
        """Remove the endpoint at ``address`` and notify all others.

        If a signal handler interrupted it, a repeated call does the rest.
        """
        if address in self._endpoints:
            for other in list(self._endpoints.values()):
                if other.address != address:
                    other.deliver(Disconnected(address))
            self._endpoints.pop(address, None)

    def woken(self, endpoint: LocalTransport) -> None:
        """Note that ``endpoint`` wants to be polled. Any thread."""
        self.enter(endpoint)
        self._notify()

    def enter(self, endpoint: LocalTransport) -> None:
        """Enter ``endpoint`` into the ready queue, unless it is there."""
        if not endpoint.is_ready:
            endpoint.is_ready = True
            self.ready.append(endpoint)


@mypyc_attr(allow_interpreted_subclasses=True)
class LocalTransport:
    """One endpoint: the :class:`~pyreplog.ports.Transport` between nodes and clients of one process."""

    __slots__ = ("_address", "_inbox", "_network", "_paused", "is_ready")

    def __init__(self, network: LocalNetwork) -> None:
        """Use :meth:`LocalNetwork.endpoint` to make one."""
        self._network = network
        self._address: Address | None = None
        self._inbox: deque[TransportEvent] = deque()
        self._paused: dict[Address, list[TransportEvent]] = {}
        self.is_ready = False

    @property
    def address(self) -> Address | None:
        """The address at which this endpoint listens, or None."""
        return self._address

    def listen(self, address: Address) -> Address:
        """Receive at ``address``.

        Raises LocalProtocolError if another endpoint listens there, or this one listens elsewhere.
        """
        if self._address is not None:
            raise LocalProtocolError(f"this endpoint listens at {self._address} already")
        self._network.join(address, self)
        self._address = address
        return address

    def connect(self, peer: Address) -> None:
        """Report by ``poll`` whether an endpoint listens at ``peer``; there is nothing to set up."""
        self.deliver(Connected(peer) if self._network.find(peer) is not None else Disconnected(peer))

    def send(self, peer: Address, message: object) -> bool:
        """Hand ``message`` over.

        Return False if no endpoint listens there (``poll`` reports it too), or its queue is full.
        """
        network = self._network
        target = network._endpoints.get(peer)
        if target is None or self._address is None:
            self.deliver(Disconnected(peer))
            return False
        inbox = target._inbox
        if len(inbox) >= QUEUE_MAX:
            return False
        event = Received(self._address, message)
        if target._paused and (kept := target._paused.get(self._address)) is not None:
            if len(kept) >= QUEUE_MAX:
                return False
            kept.append(event)
            return True
        inbox.append(event)
        if not target.is_ready:
            target.is_ready = True
            network.ready.append(target)
        return True

    def deliver(self, event: TransportEvent) -> None:
        """Put an event into this endpoint's inbox."""
        self._inbox.append(event)
        self._network.enter(self)

    def poll(self, timeout_ns: int) -> Iterable[TransportEvent]:
        """Return the events that arrived.

        It never waits, whatever ``timeout_ns`` says: the driver waits once for all endpoints.
        """
        inbox = self._inbox
        if not inbox:
            return ()
        self._inbox = deque()
        return inbox

    def pause(self, peer: Address) -> None:
        """Keep messages from ``peer`` until :meth:`resume`."""
        self._paused.setdefault(peer, [])

    def resume(self, peer: Address) -> None:
        """Undo :meth:`pause`."""
        for event in self._paused.pop(peer, ()):
            self.deliver(event)

    def disconnect(self, peer: Address) -> None:
        """Drop the untaken messages from ``peer``, which may send again at once."""
        self._inbox = deque([event for event in self._inbox if event.peer != peer])
        self._paused.pop(peer, None)

    def wake(self) -> None:
        """Have this endpoint polled soon. Any thread."""
        self._network.woken(self)

    def close(self) -> None:
        """Stop listening; untaken messages are lost.

        A repeated call is harmless, and does the rest of an interrupted call.
        """
        self._inbox.clear()
        self._paused.clear()
        address = self._address
        if address is not None:
            if self._network.find(address) is self:  # otherwise another endpoint listens there now
                self._network.leave(address)
            self._address = None
