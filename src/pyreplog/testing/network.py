"""A network in memory that delays, drops, repeats and reorders whole messages, and cuts links.

The caller sets the faults; its random generator decides which messages they hit.

**Legal**: any message is late, lost, doubled or overtaken; a link fails in one direction only; a link is slow; a cut
is silent at both ends and drops the messages in flight. When a peer closes in good order, its peers receive
:class:`Disconnected`, late, unless their link is cut. A message sent to an address before its present owner began to
listen is lost, as with connections; messages that a dead process had sent may arrive.

**Not modelled**: messages altered in flight (TLS and batch checksums are tested elsewhere), split or joined.

Messages are copied when they are sent, so that two nodes never share memory. The function ``materialise`` copies
them; the default calls the message's own ``materialised()`` if it has one. A message that cannot be copied any more,
because its log was truncated, is lost.

Not thread-safe. The same seed gives the same run: events at one moment happen in the order of their creation.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from pyreplog.errors import ClosedError, LocalProtocolError, PyreplogError
from pyreplog.ports import Address, Connected, Disconnected, Received, TransportEvent
from pyreplog.testing.clock import SimClock

__all__ = ["Link", "NetworkOptions", "SimNetwork", "SimTransport", "materialise"]

QUEUE_MAX: Final = 1024
"""Messages in flight on one link above which ``send`` returns False."""


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Delays and faults that apply to every message of a network. Probabilities from 0 to 1, times in ns."""

    delay_min_ns: int = 50_000
    delay_max_ns: int = 500_000
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Probability that a message may overtake others of its link or be overtaken; the other messages keep their
    order."""
    reorder_max_ns: int = 20_000_000
    """Greatest extra delay of such a message, and of the second copy of a doubled one."""


@dataclass(slots=True)
class Link:
    """The link from one address to another; the opposite direction is a link of its own."""

    cut: bool = False
    slow_ns: int = 0
    """Added to every delay."""
    loss: float | None = None
    """Replaces the network's probability of loss, unless None."""
    last_ns: int = 0
    """Arrival time of the last message that keeps its order."""
    queued: int = 0


class _Arrival(NamedTuple):
    """A message in flight. Ordered by arrival time, then by creation.

    ``sequence`` is unique, so the fields after it are never compared.
    """

    at_ns: int
    sequence: int
    source: Address
    target: Address
    event: TransportEvent
    incarnation: int
    """The incarnation of the target when the message was sent."""


def materialise(message: object) -> object:
    """Return a copy of ``message`` that shares no memory with it.

    This calls the message's ``materialised()``; a message without that method is returned itself.
    """
    copy = getattr(message, "materialised", None)
    return message if copy is None else copy()


class SimNetwork:
    """The links between all endpoints. The caller delivers messages by :meth:`deliver_next` or :meth:`deliver_due`."""

    def __init__(
        self,
        clock: SimClock,
        random: Random,
        options: NetworkOptions | None = None,
        *,
        materialise: Callable[[object], object] = materialise,
    ) -> None:
        self.clock = clock
        self.random = random
        self.options = options if options is not None else NetworkOptions()
        """May be replaced at any time."""
        self.trace: list[str] | None = None
        """If set to a list, the network appends a line for each message sent, lost and delivered."""
        self.observer: Callable[[Address, Address, object], None] | None = None
        """Called with (source, target, message) for each message that arrives."""
        self.sending: Callable[[Address, Address, object], None] | None = None
        """Called with (source, target, message) for each message that is sent, also if it is lost."""
        self.sent = 0
        self.lost = 0
        self.doubled = 0
        self.reordered = 0
        self.delivered = 0
        self._materialise = materialise
        self._arrivals: list[_Arrival] = []
        self._links: dict[tuple[Address, Address], Link] = {}
        self._endpoints: dict[Address, SimTransport] = {}
        self._incarnations: dict[Address, int] = {}
        self._sequence = 0

    def endpoint(self, address: Address | None = None) -> SimTransport:
        """Return a new transport on this network, which listens at ``address`` unless that is None."""
        transport = SimTransport(self)
        if address is not None:
            transport.listen(address)
        return transport

    # Faults ---------------------------------------------------------------------------------------

    def link(self, source: Address, target: Address) -> Link:
        """Return the link from ``source`` to ``target``; the caller may change it."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
        return link

    def cut(self, source: Address, target: Address) -> None:
        """Cut the link from ``source`` to ``target``; the opposite direction is unchanged."""
        self.link(source, target).cut = True

    def cut_both(self, one: Address, other: Address) -> None:
        """Cut both directions."""
        self.cut(one, other)
        self.cut(other, one)

    def partition(self, *groups: Sequence[Address]) -> None:
        """Cut every link between addresses of different groups.

        Links inside a group, and links of addresses in no group, are unchanged.
        """
        for index, group in enumerate(groups):
            for other in groups[index + 1 :]:
                for one in group:
                    for two in other:
                        self.cut_both(one, two)

    def isolate(self, address: Address) -> None:
        """Cut the links between ``address`` and every address that has ever listened here."""
        for other in self._incarnations:
            if other != address:
                self.cut_both(address, other)

    def vanish(self, address: Address) -> None:
        """Close the endpoint at ``address`` as a power failure does.

        Unlike with :meth:`SimTransport.close`, no peer sees a disconnection.
        """
        endpoint = self._endpoints.get(address)
        if endpoint is not None:
            endpoint.close(silent=True)

    def slow(self, source: Address, target: Address, slow_ns: int) -> None:
        """Add ``slow_ns`` to every delay from ``source`` to ``target``; 0 ends it."""
        self.link(source, target).slow_ns = slow_ns

    def heal(self) -> None:
        """Repair every link: no cut, no slow link, no loss of its own. Lost messages stay lost."""
        for link in self._links.values():
            link.cut = False
            link.slow_ns = 0
            link.loss = None

    # Time -----------------------------------------------------------------------------------------

    @property
    def next_arrival_ns(self) -> int | None:
        """When the next message arrives, which may be in the past; None if no message is in flight."""
        return self._arrivals[0].at_ns if self._arrivals else None

    def deliver_next(self) -> Address | None:
        """Move the clock to the next arrival and deliver it.

        Return the target; None if the message was lost or no message was in flight.
        """
        if not self._arrivals:
            return None
        arrival = heapq.heappop(self._arrivals)
        self.clock.advance_to(arrival.at_ns)
        link = self.link(arrival.source, arrival.target)
        link.queued -= 1
        endpoint = self._endpoints.get(arrival.target)
        if link.cut or endpoint is None or self._incarnations.get(arrival.target) != arrival.incarnation:
            self.lost += 1
            self._tell("lost on the way", arrival.source, arrival.target, arrival.event)
            return None
        self.delivered += 1
        if self.trace is not None:
            self._tell("arrived", arrival.source, arrival.target, arrival.event)
        endpoint.accept(arrival.event)
        if self.observer is not None and type(arrival.event) is Received:
            self.observer(arrival.source, arrival.target, arrival.event.message)
        return arrival.target

    def deliver_due(self) -> Sequence[Address]:
        """Deliver all messages that are due; return their targets, each once, in order of arrival."""
        targets: dict[Address, None] = {}
        while self._arrivals and self._arrivals[0].at_ns <= self.clock.monotonic_ns():
            target = self.deliver_next()
            if target is not None:
                targets[target] = None
        return [*targets]

    # For SimTransport -----------------------------------------------------------------------------

    def join(self, address: Address, endpoint: SimTransport) -> None:
        """Register an endpoint that begins to listen at ``address``."""
        if address in self._endpoints:
            raise LocalProtocolError(f"another endpoint listens at {address} already")
        self._endpoints[address] = endpoint
        self._incarnations[address] = self._incarnations.get(address, 0) + 1

    def leave(self, address: Address) -> None:
        """Remove the endpoint at ``address``."""
        self._endpoints.pop(address, None)

    def listens(self, address: Address) -> bool:
        """Return whether an endpoint listens at ``address``."""
        return address in self._endpoints

    def message(self, source: Address, target: Address, message: object) -> bool:
        """Send one message, or lose it; return False if the queue of the link is full."""
        link = self.link(source, target)
        if link.queued >= QUEUE_MAX:
            return False
        if self.sending is not None:
            self.sending(source, target, message)
        try:
            copy = self._materialise(message)
        except PyreplogError:
            self._lose(source, target, message)
            return True
        self.sent += 1
        options = self.options
        chance = self.random
        loss = options.loss if link.loss is None else link.loss
        if link.cut or (loss and chance.random() < loss):
            self._lose(source, target, message)
            return True
        if self.trace is not None:
            self._tell("sent", source, target, Received(source, message))
        self._send(source, target, Received(source, copy), link)
        if options.duplicate and chance.random() < options.duplicate:
            self.doubled += 1
            self._send(
                source,
                target,
                Received(source, self._materialise(copy)),
                link,
                extra_ns=chance.randint(0, options.reorder_max_ns),
            )
        return True

    def notice(self, source: Address, target: Address, event: TransportEvent) -> None:
        """Send ``target`` an event of a connection, unless the link is cut."""
        link = self.link(source, target)
        if not link.cut:
            self._send(source, target, event, link)

    def _send(self, source: Address, target: Address, event: TransportEvent, link: Link, *, extra_ns: int = 0) -> None:
        options = self.options
        chance = self.random
        at_ns = self.clock.monotonic_ns() + chance.randint(options.delay_min_ns, options.delay_max_ns) + link.slow_ns
        if extra_ns:
            at_ns += extra_ns
        elif options.reorder and chance.random() < options.reorder:
            self.reordered += 1
            at_ns += chance.randint(0, options.reorder_max_ns)
        else:
            at_ns = link.last_ns = max(at_ns, link.last_ns)
        self._sequence += 1
        link.queued += 1
        heapq.heappush(
            self._arrivals, _Arrival(at_ns, self._sequence, source, target, event, self._incarnations.get(target, 0))
        )

    def _lose(self, source: Address, target: Address, message: object) -> None:
        self.lost += 1
        self._tell("lost", source, target, Received(source, message))

    def _tell(self, what: str, source: Address, target: Address, event: TransportEvent) -> None:
        if self.trace is not None:
            about = type(getattr(event.message, "body", event.message)) if isinstance(event, Received) else type(event)
            self.trace.append(f"{self.clock.monotonic_ns()} {source} -> {target} {about.__name__} {what}")


class SimTransport:
    """A :class:`~pyreplog.ports.Transport` of a :class:`SimNetwork`.

    ``poll`` never waits, because the owner of the network moves the time.
    """

    __slots__ = ("_address", "_closed", "_inbox", "_network", "_paused", "_peers")

    def __init__(self, network: SimNetwork) -> None:
        self._network = network
        self._address: Address | None = None
        self._inbox: list[TransportEvent] = []
        self._peers: dict[Address, None] = {}
        self._paused: dict[Address, None] = {}
        self._closed = False

    @property
    def address(self) -> Address:
        """The address at which this transport listens. Raises ClosedError if it does not listen."""
        if self._closed or self._address is None:
            raise ClosedError(
                "the transport is closed" if self._closed else "the transport does not listen yet: call listen first"
            )
        return self._address

    @property
    def has_news(self) -> bool:
        """Whether ``poll`` would return an event."""
        return bool(self._inbox) and any(event.peer not in self._paused for event in self._inbox)

    def listen(self, address: Address) -> Address:
        """Begin to listen at ``address``.

        Raises :class:`LocalProtocolError` if the transport already listens or the address is taken.
        """
        if self._closed:
            raise ClosedError("the transport is closed")
        if self._address is not None:
            raise LocalProtocolError(f"this transport listens at {self._address} already")
        self._network.join(address, self)
        self._address = address
        return address

    def connect(self, peer: Address) -> None:
        """Connect to ``peer``.

        :class:`Connected` arrives if ``peer`` listens, else :class:`Disconnected`; no event arrives if the link is
        cut.
        """
        own = self.address
        if peer in self._peers:
            return
        network = self._network
        if network.link(own, peer).cut:
            return
        if network.listens(peer):
            self._peers[peer] = None
            network.notice(peer, own, Connected(peer))
        else:
            network.notice(peer, own, Disconnected(peer))

    def send(self, peer: Address, message: object) -> bool:
        """Send one message. Return False, without sending it, if the queue of the link is full.

        True does not mean that the message will arrive.
        """
        self._peers[peer] = None
        return self._network.message(self.address, peer, message)

    def poll(self, timeout_ns: int = 0) -> Iterable[TransportEvent]:
        """Return the events delivered since the last call, except those of paused peers. Never waits."""
        if not self._inbox or self._closed:
            return ()
        if not self._paused:
            events, self._inbox = self._inbox, []
            return events
        events = [event for event in self._inbox if event.peer not in self._paused]
        self._inbox = [event for event in self._inbox if event.peer in self._paused]
        return events

    def pause(self, peer: Address) -> None:
        """Hold back the events of ``peer`` until :meth:`resume`."""
        self._paused[peer] = None

    def resume(self, peer: Address) -> None:
        """Let :meth:`poll` return the events of ``peer`` again, in their order."""
        self._paused.pop(peer, None)

    def disconnect(self, peer: Address) -> None:
        """Close the connection to ``peer``, which receives :class:`Disconnected`."""
        if peer in self._peers:
            del self._peers[peer]
            self._network.notice(self.address, peer, Disconnected(self.address))

    def wake(self) -> None:
        """Do nothing: no call of this transport ever waits."""

    def close(self, *, silent: bool = False) -> None:
        """Stop listening; messages that were not polled are lost.

        Unless ``silent``, every peer of this transport receives :class:`Disconnected`.
        """
        if not self._closed:
            if self._address is not None:
                for peer in () if silent else self._peers:
                    self._network.notice(self._address, peer, Disconnected(self._address))
                self._network.leave(self._address)
            self._closed = True
            self._inbox.clear()

    def accept(self, event: TransportEvent) -> None:
        """Take an event that the network delivers."""
        if isinstance(event, Disconnected):
            self._peers.pop(event.peer, None)
        else:
            self._peers[event.peer] = None
        self._inbox.append(event)
