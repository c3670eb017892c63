"""LocalNetwork: messages between endpoints of one process. Objects are handed over: no copy, no thread, no system call.

Messages keep their order from one endpoint to another, and are lost only when the endpoint they wait at closes. An endpoint that has news
is entered once in the network's queue of those, so that a loop over it costs what happened, not what exists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from pyreplog.compiled import mypyc_attr
from pyreplog.errors import LocalProtocolError
from pyreplog.ports import Address, Connected, Disconnected, Received, TransportEvent

__all__ = ["QUEUE_MAX", "LocalNetwork", "LocalTransport"]

QUEUE_MAX: Final = 4096
"""Messages that may wait at one endpoint before ``send`` says False."""


@mypyc_attr(allow_interpreted_subclasses=True)
class LocalNetwork:
    """All endpoints of one process. One owner, except where a method says any thread."""

    __slots__ = ("_endpoints", "_notify", "ready")

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        """``notify`` is called, from any thread, after an endpoint was woken: whoever drives looks at ``ready``."""
        self._notify = notify
        self._endpoints: dict[Address, LocalTransport] = {}
        self.ready: deque[LocalTransport] = deque()
        """Endpoints with news, each once. The driver takes one out, clears its ``is_ready`` and polls its machine."""

    def endpoint(self) -> LocalTransport:
        """A new endpoint, which does not listen yet."""
        return LocalTransport(self)

    def find(self, address: Address) -> LocalTransport | None:
        """Who listens at ``address``."""
        return self._endpoints.get(address)

    def join(self, address: Address, endpoint: LocalTransport) -> None:
        """``endpoint`` listens from now on."""
        if address in self._endpoints:
            raise LocalProtocolError(f"somebody listens at {address} already")
        self._endpoints[address] = endpoint

    def leave(self, address: Address) -> None:
        """Nobody listens there any more: everybody else hears of it. Again does the rest, where a signal handler cut this short."""
        if address in self._endpoints:
            for other in list(self._endpoints.values()):
                if other.address != address:
                    other.deliver(Disconnected(address))
            self._endpoints.pop(address, None)

    def woken(self, endpoint: LocalTransport) -> None:
        """Any thread: ``endpoint`` wants to be polled."""
        self.enter(endpoint)
        self._notify()

    def enter(self, endpoint: LocalTransport) -> None:
        """Into the queue, unless it is there."""
        if not endpoint.is_ready:
            endpoint.is_ready = True
            self.ready.append(endpoint)


@mypyc_attr(allow_interpreted_subclasses=True)
class LocalTransport:
    """One endpoint: the :class:`~pyreplog.ports.Transport` between nodes and clients of one process."""

    __slots__ = ("_address", "_inbox", "_network", "_paused", "is_ready")

    def __init__(self, network: LocalNetwork) -> None:
        """Made by :meth:`LocalNetwork.endpoint`."""
        self._network = network
        self._address: Address | None = None
        self._inbox: deque[TransportEvent] = deque()
        self._paused: dict[Address, list[TransportEvent]] = {}
        self.is_ready = False

    @property
    def address(self) -> Address | None:
        """Where this endpoint listens."""
        return self._address

    def listen(self, address: Address) -> Address:
        """Receive at ``address``. LocalProtocolError where somebody else does, or this endpoint listens elsewhere."""
        if self._address is not None:
            raise LocalProtocolError(f"this endpoint listens at {self._address} already")
        self._network.join(address, self)
        self._address = address
        return address

    def connect(self, peer: Address) -> None:
        """Nothing to set up: says by ``poll`` whether anybody is there."""
        self.deliver(Connected(peer) if self._network.find(peer) is not None else Disconnected(peer))

    def send(self, peer: Address, message: object) -> bool:
        """Hand ``message`` over. False: nobody listens there (``poll`` says so, too), or very much waits there already."""
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
        """What arrived. Never waits, whatever ``timeout_ns`` says: one wait for all endpoints is the driver's."""
        inbox = self._inbox
        if not inbox:
            return ()
        self._inbox = deque()
        return inbox

    def pause(self, peer: Address) -> None:
        """Keep what ``peer`` sends until :meth:`resume`."""
        self._paused.setdefault(peer, [])

    def resume(self, peer: Address) -> None:
        """Undo :meth:`pause`."""
        for event in self._paused.pop(peer, ()):
            self.deliver(event)

    def disconnect(self, peer: Address) -> None:
        """Drop what ``peer`` sent and was not taken yet. It may send again at once."""
        self._inbox = deque([event for event in self._inbox if event.peer != peer])
        self._paused.pop(peer, None)

    def wake(self) -> None:
        """Any thread: have this endpoint polled soon."""
        self._network.woken(self)

    def close(self) -> None:
        """Stop listening. What waited here is lost. Again is harmless, and finishes what was interrupted."""
        self._inbox.clear()
        self._paused.clear()
        address = self._address
        if address is not None:
            if self._network.find(address) is self:  # else somebody else listens there by now
                self._network.leave(address)
            self._address = None
