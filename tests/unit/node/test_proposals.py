"""Proposals of in-sync sets on their way to the controller."""

from __future__ import annotations

from pyreplog.node.alter_partition_manager import TIMEOUT_NS, AlterPartitionManager
from pyreplog.node.hosting import ClusterView
from pyreplog.replica import AlterPartition, AlterPartitionAnswered
from pyreplog.wire import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopicResult,
    ErrorCode,
    Request,
    Response,
)
from tests.unit.node.fakes import MS, NodeHarness


class Proposing(NodeHarness):
    """Broker 1, whose leaders propose to the controller."""

    def __init__(self) -> None:
        super().__init__()
        standing = ClusterView()
        standing.broker_epoch = 5
        self.proposals = AlterPartitionManager(self.effects, standing, 1, "controller")

    def propose(self, number: int, token: int) -> None:
        """The leader of this partition proposes a set."""
        hosted = self.hosted.get(("id", number)) or self.host(number)
        self.proposals.propose(hosted, AlterPartition(token, AlterPartitionData(number, 3, [], 7)))

    def sent(self) -> list[tuple[Request, list[int]]]:
        """The requests of this turn, each with the partitions that it names."""
        self.proposals.flush()
        found = []
        for request in self.transport.requests():
            assert isinstance(request.body, AlterPartitionRequest)
            found.append((request, [one.partition_index for topic in request.body.topics for one in topic.partitions]))
        return found

    def answer(self, request: Request, *numbers: int) -> None:
        """The controller decides about these partitions."""
        body = AlterPartitionResponse(
            topics=[AlterPartitionTopicResult("id", [AlterPartitionResult(one) for one in numbers])]
        )
        self.proposals.answered(Response("controller", request.correlation_id, body), body)

    def told(self, number: int) -> list[tuple[int, int]]:
        """(token, error code) of each answer that the replica of this partition got."""
        events = self.replicas[number].take()
        assert all(isinstance(event, AlterPartitionAnswered) for event in events)
        return [(event.token, event.error_code) for event in events if isinstance(event, AlterPartitionAnswered)]


def test_one_request_at_a_time() -> None:
    """A broker has at most one AlterPartition request in flight: later proposals, of other partitions too, go with
    the next request."""
    broker = Proposing()
    broker.propose(0, 1)
    ((first, numbers),) = broker.sent()
    assert numbers == [0]
    broker.propose(1, 2)
    broker.propose(0, 3)
    assert broker.sent() == [], "the first has no answer yet"
    broker.answer(first, 0)
    assert broker.told(0) == [(1, 0)]
    ((second, numbers),) = broker.sent()
    assert sorted(numbers) == [0, 1]
    broker.answer(second, 0, 1)
    assert (broker.told(0), broker.told(1)) == ([(3, 0)], [(2, 0)])


def test_a_request_without_an_answer_is_given_up() -> None:
    """After a second without an answer each proposal of the request fails, the next request leaves, and a late
    answer changes nothing."""
    broker = Proposing()
    broker.propose(0, 1)
    ((late, _),) = broker.sent()
    broker.propose(1, 2)
    broker.wait(TIMEOUT_NS // MS)
    assert broker.told(0) == [(1, ErrorCode.REQUEST_TIMED_OUT)]
    ((request, numbers),) = broker.sent()
    assert numbers == [1]
    broker.answer(late, 0)
    assert (broker.told(0), broker.sent()) == ([], [])
    broker.answer(request, 1)
    assert broker.told(1) == [(2, 0)]
