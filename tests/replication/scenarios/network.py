"""Messages in a script's hand: delivered at once unless the script holds them, then when it lets them go, or
never."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from pyreplog.controller import controller_address
from pyreplog.ports import Address, Disconnected
from pyreplog.testing import NetworkOptions, SimClock, SimNetwork
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

CONTROLLER = controller_address(99)
"""The address of the only voter, a node that holds no partition."""

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
        return "metadata" if source == CONTROLLER else "data"
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


class HoldingNetwork(SimNetwork):
    """A network without delays. ``rules`` say which messages are held until a script releases or loses them."""

    def __init__(self, clock: SimClock, random: Random) -> None:
        super().__init__(clock, random, NetworkOptions(delay_min_ns=0, delay_max_ns=0))
        self.rules: list[Rule] = []
        self.held: list[Held] = []

    def message(self, source: Address, target: Address, message: Any) -> bool:
        """Take a message: hold it, or let it arrive at once."""
        if not self.link(source, target).cut:
            one = Held(kind_of(source, message), source, target, message)
            if any(rule.fits(one) for rule in self.rules):
                self.held.append(one._replace(message=message.materialised()))
                return True
            if not self.listens(target):
                self.notice(target, source, Disconnected(target))
                return False
        return super().message(source, target, message)

    def hold(self, rule: Rule) -> None:
        """Hold the messages that fit ``rule`` from now on."""
        self.rules.append(rule)

    def release(self, rule: Rule, *, lost: bool, one: bool) -> int:
        """Let the held messages that fit ``rule`` arrive (or be ``lost``), and hold no more of them; with ``one``
        only the first, and hold the others. Return how many they were."""
        fitting = [held for held in self.held if rule.fits(held)]
        if one:
            fitting = fitting[:1]
        else:
            self.rules = [other for other in self.rules if other != rule]
        for held in fitting:
            self.held.remove(held)
            if not lost and self.listens(held.target):
                super().message(held.source, held.target, held.message)
            elif not lost:
                self.notice(held.target, held.source, Disconnected(held.target))
        return len(fitting)
