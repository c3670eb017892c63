"""Replicas that only remember what they were given, and a transport that only remembers what was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from pyreplog.controller import PartitionKey
from pyreplog.node.effects import Effects
from pyreplog.node.events import NodeEvents
from pyreplog.node.hosting import ClusterView, HostedPartition, Timers
from pyreplog.ports import Address, Disk, Transport
from pyreplog.replica import Effect, Event, Fetch, Replica
from pyreplog.testing import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.wire import Request, Response

MS = 1_000_000


class FakeTransport:
    """Takes everything (or nothing, where ``full``) and delivers nothing."""

    def __init__(self) -> None:
        self.sent: list[tuple[Address, Any]] = []
        self.full = False

    def send(self, peer: Address, message: object) -> bool:
        """Remember it."""
        if self.full:
            return False
        self.sent.append((peer, message))
        return True

    def poll(self, timeout_ns: int) -> Iterable[Any]:
        """Nothing."""
        return ()

    def wake(self) -> None:
        """Nobody waits."""

    def take(self) -> list[tuple[Address, Any]]:
        """What was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent

    def requests(self) -> list[Request]:
        """The requests sent since the last call."""
        return [message for _, message in self.take() if isinstance(message, Request)]

    def responses(self) -> list[Response]:
        """The responses sent since the last call."""
        return [message for _, message in self.take() if isinstance(message, Response)]


class FakeReplica(Replica):
    """Remembers its events; ``answer`` makes effects of one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.answer: Callable[[Event], list[Effect]] = lambda event: []

    def step(self, event: Event, now_ns: int) -> list[Effect]:
        """As scripted."""
        self.events.append(event)
        return self.answer(event)

    def take(self) -> list[Event]:
        """Events since the last call."""
        events, self.events = self.events, []
        return events


class FakeEvents:
    """The events that a test handles; any other one fails it."""

    def __init__(self) -> None:
        self.fetch_wanted: Callable[[HostedPartition, Fetch], None]
        self.fetch_unwanted: Callable[[HostedPartition], None]


class NodeHarness:
    """Effects over fakes, and a clock moved by hand."""

    def __init__(self) -> None:
        self.transport = FakeTransport()
        self.timers = Timers()
        disk: Disk = SimDisk()
        self.events = FakeEvents()
        transport, events = cast("Transport", self.transport), cast("NodeEvents", self.events)
        self.standing = ClusterView()
        self.standing.leased_until_ns = 1 << 62
        self.effects = Effects(
            "me", transport, disk, self.timers, events, self.standing, lambda: self.effects.now_ns, 100
        )
        self.effects.now_ns = 1000 * MS
        self.hosted: dict[PartitionKey, HostedPartition] = {}
        self.replicas: dict[int, FakeReplica] = {}

    def host(self, number: int) -> HostedPartition:
        """A partition of topic id ``id``."""
        replica = self.replicas[number] = FakeReplica()
        key = ("id", number)
        hosted = self.hosted[key] = HostedPartition(key, TopicPartition("t", number), replica)
        return hosted

    def wait(self, ms: int) -> None:
        """Time passes; timers run."""
        self.effects.now_ns += ms * MS
        self.timers.run_due(self.effects.now_ns)
