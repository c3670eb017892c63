"""The admin client: which questions it puts again, and which it must not."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pyreplog.client import Admin
from pyreplog.errors import BrokerNotAvailableError, NotControllerError, OutcomeUnknownError, TopicExistsError
from pyreplog.ports import Received
from pyreplog.system import LocalNetwork
from pyreplog.testing import SimClock
from pyreplog.values import QuorumInfo, QuorumReplica
from pyreplog.wire import (
    METADATA_TOPIC,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeQuorumPartition,
    DescribeQuorumPartitionResult,
    DescribeQuorumReplica,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    DescribeQuorumTopicResult,
    DescribeTopicPartitionsPartition,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
    ElectLeadersRequest,
    ErrorCode,
    Request,
    Response,
    ResponseBody,
    refusal,
)

MS = 1_000_000
TIMEOUT_MS = 10_000


class Controller:
    """A controller that answers only what the test tells it to, and the admin client that asks it."""

    def __init__(self, *controllers: str) -> None:
        controllers = controllers or ("controller",)
        self.network = network = LocalNetwork()
        self.clock = SimClock()
        self.endpoint = network.endpoint()
        self.endpoint.listen("controller")
        self.admin = Admin(
            network.endpoint(), self.clock, Random(1), address="admin", controllers=controllers, timeout_ms=TIMEOUT_MS
        )

    def requests(self) -> list[Request]:
        """Let the client do what is due now; the requests that arrive."""
        self.admin.poll()
        arrived: list[Any] = [event.message for event in self.endpoint.poll(0) if isinstance(event, Received)]
        return arrived

    def reply(self, body: ResponseBody) -> Request:
        """Answer the one request that arrives next; return it."""
        (request,) = self.next_requests()
        self.endpoint.send("admin", Response("controller", request.correlation_id, body))
        self.admin.poll()
        return request

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
    """An election may have been carried out when the connection breaks: its outcome is unknown, and it is sent
    once."""
    controller = Controller()
    answer = controller.admin.elect_leaders("t", [0], unclean=True)
    (first,) = controller.requests()
    assert isinstance(first.body, ElectLeadersRequest)
    controller.hang_up()
    assert controller.next_requests() == []
    assert answer.settled
    assert isinstance(answer.error, OutcomeUnknownError)


def described(partitions: int = 0, *, error_code: int = 0) -> DescribeTopicPartitionsResponse:
    """The description of topic ``t`` with so many partitions on node 1."""
    parts = [DescribeTopicPartitionsPartition(number, 1, 0, [1], [1]) for number in range(partitions)]
    return DescribeTopicPartitionsResponse([DescribeTopicPartitionsTopic("t", "id", parts, error_code)])


def created(code: int = 0, message: str | None = None) -> CreateTopicsResponse:
    """The answer to the creation of topic ``t``."""
    return CreateTopicsResponse([CreatableTopicResult("t", "id", code, message, num_partitions=2)])


def test_a_creation_without_an_answer_is_looked_up() -> None:
    """F57: the controller dies after the commit and before its answer. The client looks, finds the topic as it wanted
    it, and sends nothing twice."""
    controller = Controller()
    answer = controller.admin.create_topic("t", 2, 1, {})
    (first,) = controller.requests()
    assert isinstance(first.body, CreateTopicsRequest)
    controller.hang_up()
    controller.reply(described(2))
    assert answer.error is None
    assert (answer.value.topic_id, answer.value.num_partitions, answer.value.replication_factor) == ("id", 2, 1)
    assert controller.next_requests() == []


def test_a_creation_that_did_not_happen_is_sent_again() -> None:
    """F57: the request was lost with the controller, and the topic is not there: it is sent again. If the first copy
    comes late after all, the refusal of the second one is no failure; and one topic exists."""
    for late in (False, True):
        controller = Controller()
        answer = controller.admin.create_topic("t", 2, 1, {})
        assert controller.requests()
        controller.hang_up()
        controller.reply(described(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        again = controller.reply(created(ErrorCode.TOPIC_ALREADY_EXISTS if late else 0))
        assert isinstance(again.body, CreateTopicsRequest)
        if late:
            controller.reply(described(2))
        assert answer.settled
        assert answer.error is None
        assert answer.value.num_partitions == 2


def test_the_topic_of_another_client_is_no_success() -> None:
    """F57: after the unknown outcome there is a topic of that name with other partitions: the refusal is passed on."""
    controller = Controller()
    answer = controller.admin.create_topic("t", 2, 1, {})
    assert controller.requests()
    controller.hang_up()
    controller.reply(described(5))
    controller.reply(created(ErrorCode.TOPIC_ALREADY_EXISTS, "'t' exists"))
    controller.reply(described(5))
    assert isinstance(answer.error, TopicExistsError)


def test_a_creation_in_doubt_until_the_deadline() -> None:
    """If no controller answers the look-up either, the outcome is unknown, and the client says so."""
    controller = Controller()
    answer = controller.admin.create_topic("t", 2, 1, {})
    assert controller.requests()
    controller.hang_up()
    while not answer.settled:
        refused = refusal(DescribeTopicPartitionsRequest(["t"]), ErrorCode.NOT_CONTROLLER, "1 of 3 voters is up")
        for request in controller.next_requests():
            controller.endpoint.send("admin", Response("controller", request.correlation_id, refused))
        controller.admin.poll()
    assert isinstance(answer.error, OutcomeUnknownError)


def test_not_controller_is_sent_again() -> None:
    """A refusal of all parts with NOT_CONTROLLER proves that nothing was done: the change is sent again until its
    deadline, and then fails with the reason."""
    controller = Controller()
    answer = controller.admin.create_topic("t", 2, 1, {})
    refused = created(ErrorCode.NOT_CONTROLLER, "1 of 3 voters is up")
    for _ in range(3):
        assert isinstance(controller.reply(refused).body, CreateTopicsRequest)
        assert not answer.settled
    controller.clock.advance(TIMEOUT_MS * MS)
    controller.reply(refused)
    assert isinstance(answer.error, NotControllerError)
    assert "1 of 3 voters is up" in str(answer.error)


def test_another_controller_is_asked() -> None:
    """If the first address does not listen, the next one is asked soon, and asked first from then on."""
    controller = Controller("nobody", "controller")
    answer = controller.admin.create_topic("t", 2, 1, {})
    controller.reply(created())
    assert answer.error is None
    second = controller.admin.describe_topics(["t"])
    (request,) = controller.requests()
    controller.endpoint.send("admin", Response("controller", request.correlation_id, described(2)))
    controller.admin.poll()
    assert second.settled
    assert controller.admin.controllers == ["controller", "nobody"]


def test_a_controller_without_nodes_is_asked_for_a_second() -> None:
    """A node that is being started is up sooner than that; after it the caller hears that no node is up."""
    controller = Controller()
    question = controller.admin.create_topic("t", 1, 1, {})
    begun = controller.clock.monotonic_ns()
    while not question.settled:
        controller.reply(created(ErrorCode.BROKER_NOT_AVAILABLE, "no node is up"))
    assert isinstance(question.error, BrokerNotAvailableError)
    assert 1000 * MS <= controller.clock.monotonic_ns() - begun <= 3000 * MS


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


def quorum_answer(part: DescribeQuorumPartitionResult) -> DescribeQuorumResponse:
    """The answer that describes the metadata quorum so."""
    return DescribeQuorumResponse([DescribeQuorumTopicResult(METADATA_TOPIC, [part])])


def test_the_quorum_is_described() -> None:
    """One request names the metadata partition; the answer is a value with voters and observers by node id."""
    controller = Controller()
    answer = controller.admin.describe_quorum()
    (request,) = controller.requests()
    assert request.body == DescribeQuorumRequest([DescribeQuorumTopic(METADATA_TOPIC, [DescribeQuorumPartition(0)])])
    part = DescribeQuorumPartitionResult(
        0,
        leader_id=2,
        leader_epoch=7,
        high_watermark=41,
        current_voters=[
            DescribeQuorumReplica(2, 42, "B" * 22, 1000, 1000),
            DescribeQuorumReplica(1, 40, "A" * 22, 990, 900),
            DescribeQuorumReplica(3, 0),
        ],
        observers=[DescribeQuorumReplica(4, 42, last_fetch_timestamp=999, last_caught_up_timestamp=999)],
    )
    controller.endpoint.send("admin", Response("controller", request.correlation_id, quorum_answer(part)))
    controller.admin.poll()
    info = answer.value
    assert info == QuorumInfo(
        leader_id=2,
        epoch=7,
        high_watermark=41,
        voters=(QuorumReplica(1, 40, 900), QuorumReplica(2, 42, 1000), QuorumReplica(3, 0, -1)),
        observers=(QuorumReplica(4, 42, 999),),
    )
    assert info.voters[0].last_caught_up == 900


@pytest.mark.parametrize(
    "refused",
    [
        DescribeQuorumResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message="1 of 3 voters is up"),
        quorum_answer(DescribeQuorumPartitionResult(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    ],
)
def test_the_quorum_is_asked_for_until_it_has_a_leader(refused: DescribeQuorumResponse) -> None:
    """A refusal that says "no leader" is passing: the client asks again, after a pause, and believes the leader."""
    controller = Controller()
    answer = controller.admin.describe_quorum()
    (first,) = controller.requests()
    controller.endpoint.send("admin", Response("controller", first.correlation_id, refused))
    assert not controller.requests()
    assert not answer.settled
    (again,) = controller.next_requests()
    part = DescribeQuorumPartitionResult(0, leader_id=1, leader_epoch=8)
    controller.endpoint.send("admin", Response("controller", again.correlation_id, quorum_answer(part)))
    controller.admin.poll()
    assert answer.value == QuorumInfo(1, 8, -1, (), ())


def test_a_quorum_without_a_leader_is_said_at_the_deadline() -> None:
    """If no voter leads until the deadline, the answer fails with the controller's own words: nothing was changed, so
    the outcome is not in doubt."""
    controller = Controller()
    answer = controller.admin.describe_quorum()
    body = DescribeQuorumResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message="1 of 3 voters is up")
    while not answer.settled:
        for request in controller.next_requests():
            controller.endpoint.send("admin", Response("controller", request.correlation_id, body))
        controller.admin.poll()
    assert isinstance(answer.error, NotControllerError)
    assert "1 of 3 voters is up" in str(answer.error)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (DescribeQuorumResponse(), "does not describe"),
        (DescribeQuorumResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), "version not supported"),
        (quorum_answer(DescribeQuorumPartitionResult(0, ErrorCode.INVALID_REQUEST, "no such")), "no such"),
    ],
)
def test_a_quorum_that_cannot_be_described(body: DescribeQuorumResponse, says: str) -> None:
    """A final refusal, or an answer about nothing, fails at once."""
    controller = Controller()
    answer = controller.admin.describe_quorum()
    (request,) = controller.requests()
    controller.endpoint.send("admin", Response("controller", request.correlation_id, body))
    controller.admin.poll()
    assert answer.settled
    assert says in str(answer.error)


def test_a_question_that_is_given_up_ends_at_once() -> None:
    """A change that was sent may have been carried out; a question that only reads, or waits, was not."""
    setup = Controller()
    lack = NotControllerError("1 of 3 voters is up")
    reading = setup.admin.describe_topics(["t"])
    change = setup.admin.create_topic("t", 1, 1, {})
    requests = setup.requests()
    assert len(requests) == 2
    waiting = setup.admin.create_topic("u", 1, 1, {})
    for answer in (reading, change, waiting):
        setup.admin.give_up(answer, lack)
    assert reading.error is lack
    assert waiting.error is lack
    assert isinstance(change.error, OutcomeUnknownError)
    assert str(lack) in str(change.error)
    setup.endpoint.send("admin", Response("controller", requests[0].correlation_id, described()))
    setup.endpoint.send("admin", Response("controller", requests[1].correlation_id, created()))
    assert setup.requests() == [], "nothing is asked again"
    assert reading.value is None


def test_a_description_without_an_answer_is_no_unknown_outcome() -> None:
    setup = Controller()
    answer = setup.admin.describe_topics(["t"])
    assert setup.requests()
    setup.clock.advance(2 * TIMEOUT_MS * MS)
    setup.admin.poll()
    assert isinstance(answer.error, BrokerNotAvailableError)
