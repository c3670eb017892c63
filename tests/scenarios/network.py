"""Messages in a script's hand: delivered at once unless the script holds them, then when it lets them go, or
never."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyreplog.controller import CONTROLLER_ADDRESS
from pyreplog.ports import Address, Connected, Disconnected, Received, TransportEvent
from pyreplog.wire import (
    METADATA_TOPIC_ID,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
)

KINDS = {
    AlterPartitionRequest: "alter",
    AlterPartitionResponse: "altered",
    BrokerHeartbeatRequest: "beat",
    BrokerHeartbeatResponse: "beaten",
    ProduceRequest: "produce",
}


def kind_of(source: Address, message: Any) -> str:
    """What a script calls a message."""
    body = message.body
    if type(body) is FetchRequest:
        return "ask" if body.topics and body.topics[0].topic_id == METADATA_TOPIC_ID else "fetch"
    if type(body) is FetchResponse:
        return "metadata" if source == CONTROLLER_ADDRESS else "data"
    return KINDS.get(type(body), "other")


class Rule(NamedTuple):
    """Which messages: a kind or ``any``, and who to whom ("": anybody)."""

    kind: str
    source: Address
    target: Address

    def fits(self, held: Held) -> bool:
        """Whether it is about this message."""
        return self.kind in ("any", held.kind) and self.source in ("", held.source) and self.target in ("", held.target)


class Held(NamedTuple):
    """A message on its way."""

    kind: str
    source: Address
    target: Address
    message: Any


class HandNetwork:
    """All endpoints; ``rules`` say what is held, ``cuts`` which ways are cut (what is sent there is lost, and
    nobody is told)."""

    def __init__(self) -> None:
        self.endpoints: dict[Address, HandTransport] = {}
        self.rules: list[Rule] = []
        self.held: list[Held] = []
        self.cuts: dict[tuple[Address, Address], None] = {}

    def send(self, source: Address, target: Address, message: Any) -> bool:
        """Take a message."""
        one = Held(kind_of(source, message), source, target, message.materialised())
        if (source, target) in self.cuts:
            return True
        if any(rule.fits(one) for rule in self.rules):
            self.held.append(one)
            return True
        return self.deliver(one)

    def deliver(self, one: Held) -> bool:
        """Let it arrive; False where nobody listens."""
        endpoint = self.endpoints.get(one.target)
        if endpoint is None:
            back = self.endpoints.get(one.source)
            if back is not None:
                back.inbox.append(Disconnected(one.target))
            return False
        endpoint.inbox.append(Received(one.source, one.message))
        return True

    def hold(self, rule: Rule) -> None:
        """From now on."""
        self.rules.append(rule)

    def release(self, rule: Rule, *, lost: bool, one: bool) -> int:
        """Let what ``rule`` is about arrive (or be ``lost``): the first ``one``, or all, and hold it no more; how
        many there were."""
        fitting = [held for held in self.held if rule.fits(held)]
        if one:
            fitting = fitting[:1]
        else:
            self.rules = [other for other in self.rules if other != rule]
        for held in fitting:
            self.held.remove(held)
            if not lost:
                self.deliver(held)
        return len(fitting)

    def leave(self, address: Address, *, silent: bool) -> None:
        """An endpoint is gone; unless ``silent`` everybody hears of it."""
        if self.endpoints.pop(address, None) is not None and not silent:
            for endpoint in self.endpoints.values():
                endpoint.inbox.append(Disconnected(address))


class HandTransport:
    """One endpoint."""

    def __init__(self, network: HandNetwork) -> None:
        self.network = network
        self.address: Address = ""
        self.inbox: deque[TransportEvent] = deque()
        self.woken = False
        self.silent = False

    def listen(self, address: Address) -> Address:
        """Receive at ``address``."""
        self.network.endpoints[address] = self
        self.address = address
        return address

    def connect(self, peer: Address) -> None:
        """At once."""
        self.inbox.append(Connected(peer))

    def send(self, peer: Address, message: object) -> bool:
        """Into the network."""
        return self.network.send(self.address, peer, message)

    def poll(self, timeout_ns: int) -> Iterable[TransportEvent]:
        """What arrived."""
        self.woken = False
        inbox, self.inbox = self.inbox, deque()
        return inbox

    def pause(self, peer: Address) -> None:
        """Not in scripts."""

    def resume(self, peer: Address) -> None:
        """Not in scripts."""

    def disconnect(self, peer: Address) -> None:
        """Not in scripts."""

    def wake(self) -> None:
        """A sync ended."""
        self.woken = True

    def close(self) -> None:
        """Gone."""
        self.network.leave(self.address, silent=self.silent)
