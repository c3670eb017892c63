"""The admin client: which questions it puts again, and which it must not."""

from __future__ import annotations

from random import Random
from typing import Any

from pyreplog.client import Admin
from pyreplog.errors import OutcomeUnknownError
from pyreplog.ports import Received
from pyreplog.system import LocalNetwork
from pyreplog.testing import SimClock
from pyreplog.wire import (
    CreateTopicsRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    Request,
    Response,
)

MS = 1_000_000
TIMEOUT_MS = 10_000


class Controller:
    """A controller that answers only what the test tells it to, and the admin client that asks it."""

    def __init__(self) -> None:
        self.network = network = LocalNetwork()
        self.clock = SimClock()
        self.endpoint = network.endpoint()
        self.endpoint.listen("controller")
        self.admin = Admin(
            network.endpoint(), self.clock, Random(1), address="admin", controller="controller", timeout_ms=TIMEOUT_MS
        )

    def requests(self) -> list[Request]:
        """Let the client do what is due now; the requests that arrive."""
        self.admin.poll()
        arrived: list[Any] = [event.message for event in self.endpoint.poll(0) if isinstance(event, Received)]
        return arrived

    def hang_up(self) -> None:
        """The controller's process ends: the client is told that its connection is gone. A new process listens at
        the address."""
        self.endpoint.close()
        self.endpoint = self.network.endpoint()
        self.endpoint.listen("controller")

    def next_requests(self, within_ms: int = 2000) -> list[Request]:
        """The first requests that arrive within this time, in steps of 50 ms."""
        for _ in range(within_ms // 50):
            arrived = self.requests()
            if arrived:
                return arrived
            self.clock.advance(50 * MS)
        return []


def test_what_may_be_repeated_is_asked_again() -> None:
    """A description comes to the same when it is asked twice: if the connection breaks, the client asks again,
    after a pause."""
    controller = Controller()
    answer = controller.admin.describe_topics(["t"])
    (first,) = controller.requests()
    assert isinstance(first.body, DescribeTopicPartitionsRequest)
    controller.hang_up()
    (again,) = controller.next_requests()
    assert isinstance(again.body, DescribeTopicPartitionsRequest)
    assert again.correlation_id != first.correlation_id
    body = DescribeTopicPartitionsResponse([])
    controller.endpoint.send("admin", Response("controller", again.correlation_id, body))
    controller.admin.poll()
    assert answer.settled
    assert answer.value is body


def test_what_may_have_been_done_is_not_asked_again() -> None:
    """The creation of a topic may have been carried out when the connection breaks: its outcome is unknown, and it
    is sent once."""
    controller = Controller()
    answer = controller.admin.create_topic("t", 1, 1, {})
    (first,) = controller.requests()
    assert isinstance(first.body, CreateTopicsRequest)
    controller.hang_up()
    assert controller.next_requests() == []
    assert answer.settled
    assert isinstance(answer.error, OutcomeUnknownError)


def test_a_repeated_question_ends_with_its_timeout() -> None:
    """A controller that never answers is asked until the timeout has passed; then the question fails with an error,
    never silently."""
    controller = Controller()
    answer = controller.admin.describe_topics(["t"])
    assert controller.requests()
    for _ in range(3):
        controller.hang_up()
        assert controller.next_requests()
    controller.clock.advance(TIMEOUT_MS * MS)
    controller.hang_up()
    assert controller.next_requests() == []
    assert answer.settled
    assert answer.error is not None
