"""The router: who leads what, learnt from nodes of which some lag."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest

from pyreplog.client.calls import RequestTracker
from pyreplog.client.router import BACKOFF_MAX_MS, BACKOFF_MS, Router, backoff_ns
from pyreplog.errors import UnknownTopicError
from pyreplog.system import LocalNetwork, LocalTransport
from pyreplog.testing import SimClock
from pyreplog.wire import (
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
    Request,
    Response,
)

MS = 1_000_000


class Desk:
    """A router and the three nodes that it asks; the test answers for them."""

    def __init__(self, timeout_ms: int = 1000) -> None:
        self.network = LocalNetwork()
        self.clock = SimClock()
        self.nodes: dict[str, LocalTransport] = {f"node-{number}": self.network.endpoint() for number in (1, 2, 3)}
        for address, endpoint in self.nodes.items():
            endpoint.listen(address)
        self.calls = RequestTracker(self.network.endpoint(), self.clock, "client", timeout_ms)
        self.router = Router(self.calls, self.clock, Random(1), list(self.nodes))

    def answer(self, code: int = 0, leader: int = 1, *, epoch: int = 5, topic_id: str = "id") -> list[str]:
        """Let the router ask, and answer what was asked about ``t``: who was asked."""
        self.router.poll()
        asked = []
        for address, endpoint in self.nodes.items():
            for event in endpoint.poll(0):
                message: Any = getattr(event, "message", None)
                if isinstance(message, Request):
                    asked.append(address)
                    partitions = [] if code else [MetadataResponsePartition(0, leader, epoch)]
                    topic = MetadataResponseTopic("t", "" if code else topic_id, partitions, error_code=code)
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
        desk.router.stale_leader("t", 0, 1)
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


def test_a_fenced_node_is_passed_over_at_once() -> None:
    """A node that is fenced turns its clients away: the next one is asked without a pause. Only when all have done so
    does the client wait, and then it asks again."""
    desk = Desk()
    desk.router.want("t")

    def turned_away() -> str:
        desk.router.poll()
        for address, endpoint in desk.nodes.items():
            for event in endpoint.poll(0):
                message: Any = getattr(event, "message", None)
                body = MetadataResponse([], [], error_code=ErrorCode.BROKER_NOT_AVAILABLE)
                endpoint.send("client", Response(address, message.correlation_id, body))
                desk.calls.poll()
                return address
        return ""

    for _ in range(3):
        assert sorted(turned_away() for _ in range(3)) == ["node-1", "node-2", "node-3"]
        assert turned_away() == ""
        wake = desk.router.next_wake_ns
        assert wake is not None
        assert 0 < wake - desk.clock.monotonic_ns() <= BACKOFF_MAX_MS * MS
        desk.clock.advance(wake - desk.clock.monotonic_ns())
    desk.answer()
    assert desk.router.topic("t") is not None


def test_a_node_that_hangs_is_passed_over() -> None:
    """Who does not answer within a second is passed over, long before a request is given up; its late answer
    changes nothing."""
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


def test_a_late_answer_changes_nothing() -> None:
    """Somebody else was asked meanwhile, and is heard."""
    desk = Desk(timeout_ms=10_000)
    desk.router.want("t")
    desk.router.poll()
    (late,) = [(endpoint, event) for endpoint in desk.nodes.values() for event in endpoint.poll(0)]
    endpoint, event = late
    message: Any = getattr(event, "message", None)
    desk.clock.advance(1000 * MS)
    desk.router.poll()
    desk.clock.advance(3 * MS)
    desk.router.poll()
    topic = MetadataResponseTopic("t", "id", [MetadataResponsePartition(0, 9, 5)])
    endpoint.send("client", Response("node", message.correlation_id, MetadataResponse([], [topic])))
    desk.calls.poll()
    assert desk.router.topic("t") is None
    assert desk.answer(leader=2)
    route = desk.router.topic("t")
    assert route is not None
    assert route.leaders == [2]


def test_an_older_picture_is_passed_over() -> None:
    """Of a node that lags: it does not bring back who led before, and somebody else is asked, after a pause."""
    desk = Desk()
    desk.router.want("t")
    desk.answer(leader=1)
    desk.router.stale_leader("t", 0, 1)
    desk.answer(leader=3, epoch=4)
    route = desk.router.topic("t")
    assert route is not None
    assert (route.leaders, list(desk.router.wanted)) == ([-1], ["t"])
    wake = desk.router.next_wake_ns
    assert wake is not None
    desk.clock.advance(wake - desk.clock.monotonic_ns())
    assert desk.answer(leader=2, epoch=6)
    assert route.leaders == [2]
    desk.router.stale_leader("t", 0, 1)
    assert route.leaders == [2], "a refusal of who led before says nothing of who does now"


def test_a_topic_that_was_made_anew() -> None:
    """One with the same name and another id is another topic, whose epochs begin again."""
    desk = Desk()
    desk.router.want("t")
    desk.answer(leader=1)
    desk.router.want("t")
    desk.answer(leader=2, epoch=0, topic_id="other")
    route = desk.router.topic("t")
    assert route is not None
    assert (route.topic_id, route.leaders, route.epochs) == ("other", [2], [0])
    assert desk.router.name_of("other") == "t"
    # Who still tells of the former one lags: somebody else is asked.
    desk.router.want("t")
    assert desk.answer(leader=1, epoch=9)
    assert desk.router.topic("t") is route
    assert route.leaders == [2]
    assert desk.router.wanted


def test_a_topic_that_only_a_node_that_lags_tells_of() -> None:
    """Nobody can know which of two is the older one: what most nodes tell is taken again, and what one alone tells
    never is."""
    desk = Desk()

    def tell(topic_id: str) -> tuple[str, str]:
        desk.router.want("t")
        if (wake := desk.router.next_wake_ns) is not None:
            desk.clock.advance(max(wake - desk.clock.monotonic_ns(), 0))
        (asked,) = desk.answer(topic_id=topic_id)
        route = desk.router.topic("t")
        assert route is not None
        return asked, route.topic_id

    assert tell("new")[1] == "new"
    assert tell("former")[1] == "former"
    first, known = tell("new")
    assert known == "former"
    second, known = tell("new")
    assert known == "new"
    assert first != second
    for address in ("node-2", "node-3"):
        desk.nodes.pop(address).close()
    for _ in range(5):
        assert tell("former") == ("node-1", "new")


@pytest.mark.parametrize("failures", range(1, 30))
def test_pauses_grow(failures: int) -> None:
    """From the first failure on each is twice as long as the one before, up to a bound, give or take a fifth."""
    due = min(BACKOFF_MS * 2 ** (failures - 1), BACKOFF_MAX_MS) * MS
    assert 0.8 * due <= backoff_ns(failures, Random(failures)) <= 1.2 * due


def test_only_what_was_asked_of_who_is_gone_is_given_up() -> None:
    """The requests to other nodes go on."""
    desk = Desk()
    heard: list[tuple[str, object]] = []
    for address in desk.nodes:
        assert desk.calls.send(
            address, MetadataRequest([]), partial(lambda whom, answer: heard.append((whom, answer)), address)
        )
    desk.nodes["node-2"].close()
    desk.calls.poll()
    assert heard == [("node-2", None)]
    assert len(desk.calls.open) == 2
