"""Requests on their way: which are dropped as repeats, and which are sent on."""

from __future__ import annotations

from random import Random

from pyreplog.controller.request_forwarder import RequestForwarder
from pyreplog.controller.requests import RequestFilter
from pyreplog.wire import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreatableTopic,
    CreateTopicsRequest,
    Request,
    Response,
)

SECOND = 1_000_000_000
BEAT = BrokerHeartbeatRequest(1, 1, 1)


def test_what_must_happen_once_passes_once() -> None:
    """A topic is created by the first copy of a request only; a heartbeat may come twice."""
    found = RequestFilter()
    create = Request("client", 7, CreateTopicsRequest([CreatableTopic("t")]))
    assert not found.is_stale(create)
    assert found.is_stale(create)
    assert not found.is_stale(Request("client", 8, create.body))
    assert not found.is_stale(Request("other", 7, create.body))
    assert not any(found.is_stale(Request("node-1", 7, BEAT)) for _ in range(2))


def test_proposals_pass_in_their_order() -> None:
    """One that was sent before the newest of its broker incarnation is dropped. A sender that starts again may use
    any number."""
    found = RequestFilter()

    def passes(number: int, epoch: int = 5) -> bool:
        return not found.is_stale(Request("controller-1", number, AlterPartitionRequest(1, epoch, [])))

    assert passes(10)
    assert not passes(10)
    assert not passes(9)
    assert passes(11)
    assert not passes(12, epoch=4)
    assert passes(3, epoch=6)
    found.sender_gone(1)
    assert passes(1, epoch=6)


def test_an_answer_finds_its_request() -> None:
    """By number and controller, once; numbers are the server's own."""
    found = RequestForwarder("controller-2", Random(1))
    first, second = Request("node-2", 5, BEAT), Request("node-2", 6, BEAT)
    sent = [found.forward(one, "controller-1", 0) for one in (first, second)]
    assert [one.source for one in sent] == ["controller-2"] * 2
    assert sent[0].correlation_id != sent[1].correlation_id
    answer = Response("controller-1", sent[1].correlation_id, BrokerHeartbeatResponse())
    assert found.expects(answer)
    assert not found.expects(Response("controller-3", answer.correlation_id, answer.body))
    assert found.answered(answer) is second
    assert not found.expects(answer)


def test_requests_whose_controller_is_gone() -> None:
    """They are given back, each once."""
    found = RequestForwarder("controller-2", Random(1))
    requests = [Request("node-2", number, BEAT) for number in range(3)]
    for request, controller in zip(requests, ("controller-1", "controller-3", "controller-1"), strict=True):
        found.forward(request, controller, 0)
    assert found.lost("controller-1") == [requests[0], requests[2]]
    assert found.lost("controller-1") == []
    assert found.lost_except("controller-3") == []
    assert found.lost_except("controller-1") == [requests[1]]


def test_requests_are_not_kept_for_ever() -> None:
    """An answer that was lost costs no memory: the request is forgotten after a minute."""
    found = RequestForwarder("controller-2", Random(1))
    old = found.forward(Request("node-2", 1, BEAT), "controller-1", 0)
    found.forward(Request("node-2", 2, BEAT), "controller-1", 61 * SECOND)
    assert not found.expects(Response("controller-1", old.correlation_id, BrokerHeartbeatResponse()))
    assert len(found.lost("controller-1")) == 1
