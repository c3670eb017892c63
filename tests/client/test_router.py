"""The router: who leads what, learnt from nodes of which some lag."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pyreplog.client.calls import Calls
from pyreplog.client.router import Router
from pyreplog.errors import UnknownTopicError
from pyreplog.system import LocalNetwork, LocalTransport
from pyreplog.testing import SimClock
from pyreplog.wire import ErrorCode, MetadataResponse, MetadataResponsePartition, MetadataResponseTopic, Request, Response

MS = 1_000_000


class Desk:
    """A router and the three nodes that it asks; the test answers for them."""

    def __init__(self) -> None:
        self.network = LocalNetwork()
        self.clock = SimClock()
        self.nodes: dict[str, LocalTransport] = {f"node-{number}": self.network.endpoint() for number in (1, 2, 3)}
        for address, endpoint in self.nodes.items():
            endpoint.listen(address)
        self.calls = Calls(self.network.endpoint(), self.clock, "client", 1000)
        self.router = Router(self.calls, self.clock, Random(1), list(self.nodes))

    def answer(self, code: int = 0, leader: int = 1) -> list[str]:
        """Let the router ask, and answer what was asked about ``t``: who was asked."""
        self.router.poll()
        asked = []
        for address, endpoint in self.nodes.items():
            for event in endpoint.poll(0):
                message: Any = getattr(event, "message", None)
                if isinstance(message, Request):
                    asked.append(address)
                    partitions = [] if code else [MetadataResponsePartition(0, leader, 5)]
                    topic = MetadataResponseTopic("t", "" if code else "id", partitions, error_code=code)
                    endpoint.send("client", Response(address, message.correlation_id, MetadataResponse([], [topic])))
        self.calls.poll()
        return asked


def test_a_topic_is_unknown_only_when_all_say_so() -> None:
    """One node that does not know a topic may have just started: the others are asked before it is refused."""
    desk = Desk()
    desk.router.want("t")
    asked = desk.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) + desk.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert desk.router.refusal("t") is None
    asked += desk.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert sorted(asked) == ["node-1", "node-2", "node-3"]
    with pytest.raises(UnknownTopicError):
        raise desk.router.refusal("t") or AssertionError("no refusal")
    desk.router.want("t")
    assert desk.router.refusal("t") is None
    desk.answer()
    assert desk.router.topic("t") is not None


def test_a_known_topic_does_not_become_unknown() -> None:
    """A node that lags and denies a topic that others knew is passed over, after a pause, whoever asks."""
    desk = Desk()
    desk.router.want("t")
    desk.answer()
    for _ in range(5):
        desk.router.misled("t", 0, 1)
        assert desk.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert desk.router.refusal("t") is None
        wake = desk.router.next_wake_ns
        assert wake is not None
        desk.clock.advance(wake - desk.clock.monotonic_ns())
        assert desk.answer(leader=1)
        route = desk.router.topic("t")
        assert route is not None
        assert route.leaders == [1]


def test_not_yet_is_not_no() -> None:
    """LEADER_NOT_AVAILABLE for a topic that nobody knew so far is asked again, for ever."""
    desk = Desk()
    desk.router.want("t")
    for _ in range(7):
        assert desk.answer(ErrorCode.LEADER_NOT_AVAILABLE)
        assert desk.router.refusal("t") is None
        wake = desk.router.next_wake_ns
        assert wake is not None
        desk.clock.advance(wake - desk.clock.monotonic_ns())


def test_a_node_that_hangs_is_passed_over() -> None:
    """Who does not answer within a second is passed over, long before a request is given up; its late answer changes nothing."""
    desk = Desk()
    desk.router.want("t")
    desk.router.poll()
    (first,) = [address for address, endpoint in desk.nodes.items() if list(endpoint.poll(0))]
    assert desk.router.next_wake_ns == desk.clock.monotonic_ns() + 1000 * MS
    desk.clock.advance(999 * MS)
    assert desk.answer() == []
    desk.clock.advance(1000 * MS)
    desk.router.poll()
    desk.clock.advance(1000 * MS)
    asked = desk.answer(leader=2)
    assert asked
    assert asked != [first]
    route = desk.router.topic("t")
    assert route is not None
    assert route.leaders == [2]
