"""The leader's side of fetch sessions."""

from __future__ import annotations

from random import Random

from pyreplog.node.sessions import LeaderFetchSessions
from pyreplog.replica import FollowerFetch, Reply
from pyreplog.wire import (
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
    Request,
)
from tests.unit.node.fakes import NodeHarness


class Leader(NodeHarness):
    """A node that node 2 follows, with partitions 0 and 1; they keep every question until told to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = LeaderFetchSessions(self.effects, self.hosted, Random(1))
        self.number = 0
        for number in range(2):
            self.host(number)

    def fetch(
        self,
        *partitions: tuple[int, int],
        session: tuple[int, int] = (0, 0),
        forget: tuple[int, ...] = (),
        replica: int = 2,
    ) -> int:
        """A request of the follower; its correlation id."""
        self.number += 1
        topics = (
            [FetchTopic("id", [FetchPartition(number, 3, offset) for number, offset in partitions])]
            if partitions
            else []
        )
        forgotten = [ForgottenTopic("id", forget)] if forget else []
        state = ReplicaState(replica, 5)
        body = FetchRequest(
            500, 1, topics, state, session_id=session[0], session_epoch=session[1], forgotten_topics_data=forgotten
        )
        self.sessions.fetch(Request("node-2", self.number, body), body, state)
        return self.number

    def flushed(self) -> list[tuple[int, FetchResponse]]:
        """(correlation id, answer) of this turn."""
        self.sessions.flush()
        found = []
        for response in self.transport.responses():
            assert isinstance(response.body, FetchResponse)
            found.append((response.correlation_id, response.body))
        return found

    def says(self, number: int) -> None:
        """The replica of a partition answers the question it keeps."""
        question = self.question(number)
        self.replicas[number].answer = lambda event: [
            Reply(question.source, question.correlation_id, PartitionData(number))
        ]
        self.effects.run(self.hosted["id", number], question)
        self.replicas[number].answer = lambda event: []
        self.replicas[number].take()

    def question(self, number: int) -> FollowerFetch:
        """The newest question a replica was given."""
        found = self.replicas[number].events[-1]
        assert isinstance(found, FollowerFetch)
        return found


def about(body: FetchResponse) -> list[int]:
    """The partitions in an answer."""
    return [one.partition_index for topic in body.responses for one in topic.partitions]


def open_session(harness: Leader) -> int:
    """Open one with both partitions, answered once; its id."""
    first = harness.fetch((0, 0), (1, 0))
    harness.says(0)
    ((number, body),) = harness.flushed()
    assert (number, about(body)) == (first, [0])
    assert body.session_id > 0
    return body.session_id


def test_an_answer_comes_as_soon_as_one_partition_has_something() -> None:
    """The open request is answered with everything said in the turn, and only that."""
    harness = Leader()
    first = harness.fetch((0, 0), (1, 0))
    assert harness.flushed() == []
    harness.says(0)
    harness.says(1)
    ((number, body),) = harness.flushed()
    assert (number, about(body)) == (first, [0, 1])


def test_what_is_said_between_requests_waits_for_the_next_one() -> None:
    """A partition that has something to say while no request is open is heard with the next."""
    harness = Leader()
    session = open_session(harness)
    harness.says(1)
    assert harness.flushed() == []
    second = harness.fetch((0, 9), session=(session, 1))
    ((number, body),) = harness.flushed()
    assert (number, about(body)) == (second, [1])


def test_a_new_question_voids_what_was_said_to_the_old_one() -> None:
    """An answer that has not left yet is dropped when the follower asks anew."""
    harness = Leader()
    session = open_session(harness)
    harness.says(1)
    harness.fetch((1, 4), session=(session, 1))
    assert harness.flushed() == []


def test_a_second_request_answers_the_first_empty() -> None:
    """Each request gets exactly one answer."""
    harness = Leader()
    session = open_session(harness)
    second = harness.fetch((0, 9), session=(session, 1))
    third = harness.fetch(session=(session, 2))
    ((number, body),) = harness.flushed()
    assert (number, about(body)) == (second, [])
    harness.says(0)
    ((number, body),) = harness.flushed()
    assert (number, about(body)) == (third, [0])


def test_an_open_request_is_answered_empty_after_its_wait() -> None:
    """No follower waits longer than it said; a later request has its own time."""
    harness = Leader()
    session = open_session(harness)
    harness.wait(300)
    second = harness.fetch((0, 9), session=(session, 1))
    harness.wait(499)
    assert harness.flushed() == []
    harness.wait(1)
    ((number, body),) = harness.flushed()
    assert (number, about(body), body.error_code) == (second, [], 0)


def test_wrong_sessions() -> None:
    """An unknown session, or a wrong epoch of a known one, is refused; the session lives on."""
    harness = Leader()
    session = open_session(harness)
    harness.fetch(session=(session + 2, 1))
    harness.fetch(session=(session, 5))
    harness.fetch(session=(session, 1), replica=3)
    codes = [body.error_code for _, body in harness.flushed()]
    assert codes == [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ]
    harness.fetch((0, 9), session=(session, 1))
    harness.says(0)
    ((_, body),) = harness.flushed()
    assert about(body) == [0]


def test_a_new_session_of_the_same_follower_replaces_the_old_one() -> None:
    """What the replicas still say to the old session reaches nobody."""
    harness = Leader()
    session = open_session(harness)
    old = harness.question(1)
    new = harness.fetch((0, 7))
    harness.replicas[1].answer = lambda event: [Reply(old.source, old.correlation_id, PartitionData(1))]
    harness.effects.run(harness.hosted["id", 1], old)
    assert harness.flushed() == []
    harness.says(0)
    ((number, body),) = harness.flushed()
    assert (number, body.session_id == session) == (new, False)


def test_what_is_idle_costs_nothing() -> None:
    """A request that names no partition puts no question to any replica, however long they have waited."""
    harness = Leader()
    session = open_session(harness)
    for number in range(2):
        harness.replicas[number].take()
    for epoch in range(1, 5):
        harness.wait(500)
        harness.fetch(session=(session, epoch))
    assert harness.replicas[0].take() == []
    assert harness.replicas[1].take() == []


def test_unknown_and_forgotten_partitions() -> None:
    """A partition that is not here is said to be unknown; one that was forgotten is not answered any more."""
    harness = Leader()
    harness.fetch((0, 0), (1, 0), (9, 0))
    ((_, body),) = harness.flushed()
    assert [(one.partition_index, one.error_code) for one in body.responses[0].partitions] == [
        (9, ErrorCode.UNKNOWN_TOPIC_ID)
    ]
    question = harness.question(1)
    harness.fetch(session=(body.session_id, 1), forget=(1,))
    harness.replicas[1].answer = lambda event: [Reply(question.source, question.correlation_id, PartitionData(1))]
    harness.effects.run(harness.hosted["id", 1], question)
    assert harness.flushed() == []


def test_a_follower_that_is_gone() -> None:
    """Its session ends; its replicas' answers reach nobody."""
    harness = Leader()
    session = open_session(harness)
    harness.sessions.disconnected("node-2")
    harness.fetch(session=(session, 1))
    ((_, body),) = harness.flushed()
    assert body.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
