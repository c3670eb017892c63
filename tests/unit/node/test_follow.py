"""The follower's side of fetch sessions: few messages, one answer each, and nothing lost when one does not come."""

from __future__ import annotations

from pyreplog.config import NodeConfig
from pyreplog.controller import BrokerImage
from pyreplog.node.hosting import ClusterView, HostedPartition
from pyreplog.node.replica_fetcher import ReplicaFetcher
from pyreplog.replica import Effect, Event, Fetch, FetchAnswered
from pyreplog.wire import (
    ErrorCode,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    Request,
    Response,
)
from tests.unit.node.fakes import NodeHarness


class Follower(NodeHarness):
    """Node 1, which follows node 7."""

    def __init__(self) -> None:
        super().__init__()
        self.standing = ClusterView()
        self.standing.broker_epoch = 5
        for leader in (7, 8):
            self.standing.image.brokers[leader] = BrokerImage(leader, 1, "i", f"node-{leader}", False, False, ())
        self.following = ReplicaFetcher(self.effects, self.standing, 1, NodeConfig())
        self.events.fetch_wanted = self.following.want
        self.events.fetch_unwanted = self.following.forget

    def want(self, hosted: HostedPartition, offset: int, leader: int = 7) -> FetchPartition:
        """The partition's replica wants to fetch from there."""
        request = FetchPartition(hosted.partition, 3, offset)
        self.following.want(hosted, Fetch(leader, request))
        return request

    def flushed(self) -> list[tuple[Request, FetchRequest]]:
        """The requests of this turn."""
        self.following.flush()
        found = []
        for request in self.transport.requests():
            assert isinstance(request.body, FetchRequest)
            found.append((request, request.body))
        return found

    def one(self) -> tuple[Request, FetchRequest]:
        """The only request of this turn."""
        (found,) = self.flushed()
        return found

    def answer(self, request: Request, *partitions: int, error: int = 0, session_id: int = 77) -> bool:
        """The leader answers with something about these partitions."""
        responses = [FetchableTopicResponse("id", [PartitionData(number, high_watermark=9) for number in partitions])]
        body = FetchResponse(responses, error, session_id)
        return self.following.answered(Response("node-7", request.correlation_id, body), body)


def asked(body: FetchRequest) -> list[tuple[int, int]]:
    """(partition, offset) of everything in a request."""
    return [(one.partition, one.fetch_offset) for topic in body.topics for one in topic.partitions]


def again(offset: int) -> object:
    """A replica that wants the next offset as soon as it is answered."""

    def step(event: Event) -> list[Effect]:
        if isinstance(event, FetchAnswered):
            return [Fetch(7, FetchPartition(event.request.partition, 3, event.request.fetch_offset + offset))]
        return []

    return step


def test_a_session_opens_with_everything_and_goes_on_with_what_changed() -> None:
    """The first request names all partitions; later ones only those whose wish changed, with rising epochs."""
    harness = Follower()
    for number in range(3):
        harness.want(harness.host(number), number)
        harness.replicas[number].answer = again(10)  # type: ignore[assignment]
    request, body = harness.one()
    assert (asked(body), body.session_id, body.session_epoch) == ([(0, 0), (1, 1), (2, 2)], 0, 0)
    assert body.replica_state is not None
    assert (body.replica_state.replica_id, body.replica_state.replica_epoch) == (1, 5)
    assert harness.answer(request, 1)
    request, body = harness.one()
    assert (asked(body), body.session_id, body.session_epoch) == ([(1, 11)], 77, 1)
    assert harness.answer(request, 0, 2)
    request, body = harness.one()
    assert (asked(body), body.session_epoch) == ([(0, 10), (2, 12)], 2)
    assert harness.answer(request)
    _, body = harness.one()
    assert (asked(body), body.session_epoch) == ([], 3), "the others still wait with the leader: keep a request there"


def test_nothing_is_asked_while_nothing_is_wanted() -> None:
    """Where every partition was answered and wants nothing yet (it syncs first), no request is sent."""
    harness = Follower()
    hosted = harness.host(0)
    harness.want(hosted, 0)
    request, _ = harness.one()
    assert harness.answer(request, 0)
    assert harness.flushed() == []
    harness.want(hosted, 5)
    _, body = harness.one()
    assert (asked(body), body.session_epoch) == ([(0, 5)], 1)


def test_a_new_wish_does_not_wait_for_the_open_request() -> None:
    """While one request waits at the leader, another partition's wish goes out at once; both requests get their
    answers."""
    harness = Follower()
    harness.want(harness.host(0), 0)
    first, _ = harness.one()
    harness.answer(first)
    second, _ = harness.one()
    harness.want(harness.host(1), 4)
    third, body = harness.one()
    assert (asked(body), body.session_epoch) == ([(1, 4)], 2)
    assert harness.answer(second)
    assert harness.answer(third, 1)
    assert not harness.answer(third, 1), "only once"


def test_the_session_is_open_before_it_goes_on() -> None:
    """Before the leader has named the session, a second wish waits."""
    harness = Follower()
    harness.want(harness.host(0), 0)
    first, _ = harness.one()
    harness.want(harness.host(1), 4)
    assert harness.flushed() == []
    harness.answer(first)
    _, body = harness.one()
    assert (asked(body), body.session_id) == ([(1, 4)], 77)


def test_an_answer_to_an_older_wish_is_dropped() -> None:
    """What the leader says about a question that was replaced since does not reach the replica."""
    harness = Follower()
    hosted = harness.host(0)
    old = harness.want(hosted, 0)
    first, _ = harness.one()
    harness.answer(first)
    second, _ = harness.one()
    new = harness.want(hosted, 8)
    third, _ = harness.one()
    harness.answer(second, 0)
    assert harness.replicas[0].take() == [], "asked before the new wish was sent"
    harness.answer(third, 0)
    (event,) = harness.replicas[0].take()
    assert isinstance(event, FetchAnswered)
    assert event.request is new
    assert event.request is not old


def test_without_an_answer_a_new_session_begins_with_everything() -> None:
    """When an answer stays away, all that was wanted goes into a new session; a late answer to the old one changes
    nothing."""
    harness = Follower()
    for number in range(2):
        harness.want(harness.host(number), number)
    first, _ = harness.one()
    harness.answer(first, 0)
    harness.want(harness.hosted["id", 0], 20)
    second, _ = harness.one()
    harness.wait(1499)
    assert harness.flushed() == []
    harness.wait(2)
    _, body = harness.one()
    assert (sorted(asked(body)), body.session_id, body.session_epoch) == ([(0, 20), (1, 1)], 0, 0)
    harness.replicas[0].take()
    assert not harness.answer(second, 0)
    assert harness.replicas[0].take() == []


def test_a_session_error_begins_anew_at_once() -> None:
    """The leader does not know the session (it restarted): a new one begins with everything."""
    harness = Follower()
    harness.want(harness.host(0), 3)
    first, _ = harness.one()
    harness.answer(first, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    _, body = harness.one()
    assert (asked(body), body.session_id, body.session_epoch) == ([(0, 3)], 0, 0)


def test_a_peer_that_is_gone_is_tried_again_after_a_pause() -> None:
    """Where the leader's node vanished, or the transport is full, the next try comes after the back-off."""
    harness = Follower()
    harness.want(harness.host(0), 3)
    harness.one()
    harness.following.disconnected("node-7")
    assert harness.flushed() == []
    harness.wait(100)
    assert asked(harness.one()[1]) == [(0, 3)]
    harness.following.disconnected("somebody else")
    assert harness.flushed() == []

    harness = Follower()
    harness.transport.full = True
    harness.want(harness.host(0), 3)
    assert harness.flushed() == []
    harness.transport.full = False
    harness.wait(100)
    assert asked(harness.one()[1]) == [(0, 3)]


def test_partitions_leave_a_session() -> None:
    """A partition that goes to another leader, or wants nothing more, is named as forgotten; the last one ends the
    session."""
    harness = Follower()
    for number in range(2):
        harness.want(harness.host(number), number)
    first, _ = harness.one()
    harness.answer(first)
    harness.one()
    harness.want(harness.hosted["id", 1], 1, leader=8)
    found = harness.flushed()
    by_epoch = {body.session_epoch: body for _, body in found}
    assert asked(by_epoch[0]) == [(1, 1)], "a new session with the other leader"
    assert [(one.topic_id, list(one.partitions)) for one in by_epoch[2].forgotten_topics_data] == [("id", [1])]
    harness.following.forget(harness.hosted["id", 0])
    assert harness.flushed() == []
    harness.want(harness.hosted["id", 0], 9)
    assert harness.one()[1].session_id == 0


def test_nobody_fetches_before_the_registration() -> None:
    """Without a broker epoch nothing is fetched; with it everything that was wanted goes out."""
    harness = Follower()
    harness.standing.broker_epoch = -1
    harness.want(harness.host(0), 0)
    assert harness.flushed() == []
    harness.standing.broker_epoch = 6
    harness.following.resume()
    assert asked(harness.one()[1]) == [(0, 0)]


def test_a_leader_nobody_knows_is_tried_again() -> None:
    """A leader that is not in the picture (yet) is asked later."""
    harness = Follower()
    harness.want(harness.host(0), 0, leader=99)
    assert harness.flushed() == []
    harness.standing.image.brokers[99] = BrokerImage(99, 1, "i", "node-99", False, False, ())
    harness.wait(100)
    assert asked(harness.one()[1]) == [(0, 0)]


def test_a_session_that_has_used_up_its_epochs_begins_anew() -> None:
    """What has waited since before is wanted in the next one: its answer would be taken for one to an older
    question."""
    harness = Follower()
    harness.want(harness.host(0), 4)
    harness.want(harness.host(1), 6)
    request, _ = harness.one()
    harness.replicas[0].answer = again(1)  # type: ignore[assignment]
    harness.replicas[1].answer = again(1)  # type: ignore[assignment]
    for session in harness.following._sessions.values():
        session.epoch = 0x7FFFFFFF - 1
    assert harness.answer(request, 0, 1)
    request, body = harness.one()
    assert (asked(body), body.session_epoch) == ([(0, 5), (1, 7)], 0x7FFFFFFF - 1)
    assert harness.answer(request, 0)
    request, body = harness.one()
    assert (sorted(asked(body)), body.session_id, body.session_epoch) == ([(0, 6), (1, 7)], 0, 0)
    assert harness.answer(request, 1, session_id=78)
    request, body = harness.one()
    assert (asked(body), body.session_id, body.session_epoch) == ([(1, 8)], 78, 1)
