"""A network in memory: it delays, drops, repeats and reorders whole messages, and cuts links, as it is told and as
its chance falls.

**Legal**: any message is late, lost, doubled or overtaken; a link fails one way only; a link is slow; a cut says
nothing to either end, and takes what is on its way. A peer that goes away in good order is told of
(:class:`Disconnected`), late, and not across a cut. What was sent to an address before its present owner began to
listen is lost, as with connections; what a dead process had sent may arrive.

**Not modelled**: messages altered on their way (TLS and batch checksums are tested elsewhere), or split or joined.

Messages are copied when they are sent, so that two nodes never share memory: by the ``materialise`` given, by
default the message's own ``materialised()`` where it has one. One that cannot be copied any more (its log was
truncated since) is lost.

One thread. The same seed gives the same run: events at one moment happen in the order of their making.
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
"""Messages on one link before ``send`` says False."""


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """How a network treats every message. Chances from 0 to 1, times in ns."""

    delay_min_ns: int = 50_000
    delay_max_ns: int = 500_000
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Chance that a message may overtake, or be overtaken by, others of its link; the rest of a link's messages
    keep their order."""
    reorder_max_ns: int = 20_000_000
    """How much later than the others such a message, or a second copy, may arrive."""


@dataclass(slots=True)
class Link:
    """One direction between two addresses."""

    cut: bool = False
    slow_ns: int = 0
    """Added to every delay."""
    loss: float | None = None
    """In place of the network's."""
    last_ns: int = 0
    """Arrival of the latest message that keeps its order."""
    queued: int = 0


class _Arrival(NamedTuple):
    """Ordered by its moment, then by its making (the number is unique, so nothing behind it is ever compared)."""

    at_ns: int
    sequence: int
    source: Address
    target: Address
    event: TransportEvent
    incarnation: int
    """Of the target, when this was sent."""


def materialise(message: object) -> object:
    """A copy of ``message`` that shares no memory with it: what its ``materialised()`` returns; without one, the
    message itself."""
    copy = getattr(message, "materialised", None)
    return message if copy is None else copy()


class SimNetwork:
    """All links between all endpoints. Moved by hand: :meth:`deliver_next`, or :meth:`deliver_due`."""

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
        """May be exchanged at any time."""
        self.trace: list[str] | None = None
        """Set to a list to have each sending, loss and arrival described in it."""
        self.observer: Callable[[Address, Address, object], None] | None = None
        """Told of each message that arrives: source, target, message."""
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
        """A new transport on this network, listening at ``address`` where one is given."""
        transport = SimTransport(self)
        if address is not None:
            transport.listen(address)
        return transport

    # Faults ---------------------------------------------------------------------------------------

    def link(self, source: Address, target: Address) -> Link:
        """The link from ``source`` to ``target``, to be changed at will."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
        return link

    def cut(self, source: Address, target: Address) -> None:
        """Nothing arrives from ``source`` at ``target`` any more; the other direction stays as it is."""
        self.link(source, target).cut = True

    def cut_both(self, one: Address, other: Address) -> None:
        """Cut both directions."""
        self.cut(one, other)
        self.cut(other, one)

    def partition(self, *groups: Sequence[Address]) -> None:
        """Cut every link between addresses of different groups; links inside a group, and of addresses in none,
        stay as they are."""
        for index, group in enumerate(groups):
            for other in groups[index + 1 :]:
                for one in group:
                    for two in other:
                        self.cut_both(one, two)

    def isolate(self, address: Address) -> None:
        """Cut ``address`` off from everyone that was ever heard of here."""
        for other in self._incarnations:
            if other != address:
                self.cut_both(address, other)

    def vanish(self, address: Address) -> None:
        """The machine behind ``address`` loses power: nobody is told, as they would be by
        :meth:`SimTransport.close`."""
        endpoint = self._endpoints.get(address)
        if endpoint is not None:
            endpoint.close(silent=True)

    def slow(self, source: Address, target: Address, slow_ns: int) -> None:
        """Add ``slow_ns`` to every delay from ``source`` to ``target``; 0 ends it."""
        self.link(source, target).slow_ns = slow_ns

    def heal(self) -> None:
        """Every link works again, and none is slow or lossier than the others. What was lost stays lost."""
        for link in self._links.values():
            link.cut = False
            link.slow_ns = 0
            link.loss = None

    # Time -----------------------------------------------------------------------------------------

    @property
    def next_arrival_ns(self) -> int | None:
        """When the next message arrives (it may be in the past); None when nothing is on its way."""
        return self._arrivals[0].at_ns if self._arrivals else None

    def deliver_next(self) -> Address | None:
        """Move the clock to the next arrival and hand it over. Returns whose it was; None where it was lost or
        nothing was on its way."""
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
        """Hand over all that arrives up to now; returns whose it was, each once, in order of arrival."""
        targets: dict[Address, None] = {}
        while self._arrivals and self._arrivals[0].at_ns <= self.clock.monotonic_ns():
            target = self.deliver_next()
            if target is not None:
                targets[target] = None
        return [*targets]

    # For SimTransport -----------------------------------------------------------------------------

    def join(self, address: Address, endpoint: SimTransport) -> None:
        """An endpoint begins to listen."""
        if address in self._endpoints:
            raise LocalProtocolError(f"another endpoint listens at {address} already")
        self._endpoints[address] = endpoint
        self._incarnations[address] = self._incarnations.get(address, 0) + 1

    def leave(self, address: Address) -> None:
        """An endpoint is gone."""
        self._endpoints.pop(address, None)

    def listens(self, address: Address) -> bool:
        """Whether anybody listens at ``address``."""
        return address in self._endpoints

    def message(self, source: Address, target: Address, message: object) -> bool:
        """Take one message; False where the link's queue is full."""
        link = self.link(source, target)
        if link.queued >= QUEUE_MAX:
            return False
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
        """Let ``target`` hear of a connection, unless the link is cut."""
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
    """A :class:`~pyreplog.ports.Transport` of a :class:`SimNetwork`. ``poll`` never waits: the network's owner
    moves time."""

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
        """Where it listens."""
        if self._closed or self._address is None:
            raise ClosedError("the transport is closed" if self._closed else "the transport listens nowhere yet")
        return self._address

    @property
    def has_news(self) -> bool:
        """Whether ``poll`` has something to return."""
        return bool(self._inbox) and any(event.peer not in self._paused for event in self._inbox)

    def listen(self, address: Address) -> Address:
        """Begin to receive at ``address``. One address per transport; an address taken is a
        :class:`LocalProtocolError`."""
        if self._closed:
            raise ClosedError("the transport is closed")
        if self._address is not None:
            raise LocalProtocolError(f"this transport listens at {self._address} already")
        self._network.join(address, self)
        self._address = address
        return address

    def connect(self, peer: Address) -> None:
        """:class:`Connected` arrives where ``peer`` listens, :class:`Disconnected` where nobody does, nothing
        across a cut."""
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
        """Hand over one message. True says nothing about its arrival; False: the link's queue is full, nothing
        taken."""
        self._peers[peer] = None
        return self._network.message(self.address, peer, message)

    def poll(self, timeout_ns: int = 0) -> Iterable[TransportEvent]:
        """What was delivered since the last call. Never waits."""
        if not self._inbox or self._closed:
            return ()
        if not self._paused:
            events, self._inbox = self._inbox, []
            return events
        events = [event for event in self._inbox if event.peer not in self._paused]
        self._inbox = [event for event in self._inbox if event.peer in self._paused]
        return events

    def pause(self, peer: Address) -> None:
        """Keep what arrives from ``peer`` back."""
        self._paused[peer] = None

    def resume(self, peer: Address) -> None:
        """Hand it out again, in its order."""
        self._paused.pop(peer, None)

    def disconnect(self, peer: Address) -> None:
        """Forget ``peer``, which hears of it."""
        if peer in self._peers:
            del self._peers[peer]
            self._network.notice(self.address, peer, Disconnected(self.address))

    def wake(self) -> None:
        """Nothing waits here."""

    def close(self, *, silent: bool = False) -> None:
        """Stop, and unless ``silent`` tell those this one spoke with. What they had sent is lost."""
        if not self._closed:
            if self._address is not None:
                for peer in () if silent else self._peers:
                    self._network.notice(self._address, peer, Disconnected(self._address))
                self._network.leave(self._address)
            self._closed = True
            self._inbox.clear()

    def accept(self, event: TransportEvent) -> None:
        """From the network: something arrived."""
        if isinstance(event, Disconnected):
            self._peers.pop(event.peer, None)
        else:
            self._peers[event.peer] = None
        self._inbox.append(event)
