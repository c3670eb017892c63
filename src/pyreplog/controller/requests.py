"""Requests to a controller: each is carried out once, in order, and gets one answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyreplog.controller import describe
from pyreplog.controller.controller import Controller
from pyreplog.controller.requested_elections import RequestedElections
from pyreplog.errors import InternalError, excerpt, is_interruption
from pyreplog.wire import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    Repeats,
    Request,
    RequestBody,
    ResponseBody,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
    refusal,
)

__all__ = ["DESCRIPTIONS", "Decided", "ControllerRequests", "RequestFilter", "refused"]

STALL_NS: Final = 250_000_000
"""A step that runs this much later than planned means that the process was paused."""
DESCRIPTIONS: Final = (
    MetadataRequest,
    DescribeTopicPartitionsRequest,
    DescribeConfigsRequest,
    DescribeClusterRequest,
    ListPartitionReassignmentsRequest,
)
"""Requests that only read the image."""
_ONCE: Final = frozenset(
    {
        AlterPartitionReassignmentsRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        ElectLeadersRequest,
        IncrementalAlterConfigsRequest,
        UnregisterBrokerRequest,
        UpdateFeaturesRequest,
    }
)
"""Requests that must be carried out once only. A second copy would give the client a wrong answer
or undo a later request."""

_log = logging.getLogger("pyreplog")


class Decided(NamedTuple):
    """A request and its answer, which is not sent before the decision is committed."""

    request: Request
    body: ResponseBody


class RequestFilter:
    """Recognises requests that a transport delivers twice, or too late. One owner."""

    def __init__(self) -> None:
        self._repeats = Repeats()
        self._proposed: dict[int, tuple[int, int]] = {}
        """Broker -> its epoch and the newest of its AlterPartition requests."""

    def is_stale(self, request: Request) -> bool:
        """Return whether a request must not be carried out (again), and remember it."""
        body = request.body
        if isinstance(body, AlterPartitionRequest):
            return self._is_old(body, request.correlation_id)
        return type(body) in _ONCE and self._repeats.is_repeat(request.source, request.correlation_id)

    def sender_gone(self, broker_id: int) -> None:
        """Note that what sends a broker's requests has ended: its next one may number them anew."""
        self._proposed.pop(broker_id, None)

    def _is_old(self, body: AlterPartitionRequest, correlation_id: int) -> bool:
        """Return whether these proposals, or later ones of the same broker, were already seen.

        A transport may deliver a request twice, or an older request after a newer one. A leader
        whose proposal was refused continues without the proposed member; only its next request may
        add that member to the set.
        """
        epoch, latest = self._proposed.get(body.broker_id, (-1, -1))
        if body.broker_epoch < epoch or (body.broker_epoch == epoch and not _is_later(correlation_id, latest)):
            return True
        self._proposed[body.broker_id] = (body.broker_epoch, correlation_id)
        return False


class ControllerRequests:
    """Carries out requests over ``controller``. One owner."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._elections = RequestedElections(controller)
        self._planned_ns: int | None = None
        self._last_ns = 0

    @property
    def next_deadline_ns(self) -> int | None:
        """The time at which :meth:`step` has work to do even if no request arrives."""
        deadlines = (self._controller.next_deadline_ns(), self._elections.next_deadline_ns)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def step(self, requests: Sequence[Request], now_ns: int) -> list[Decided]:
        """Decide ``requests`` in order, then the timed work that is due; return the answers.

        REQUIRES that a :class:`RequestFilter` has let every request pass.
        """
        if self._planned_ns is not None and now_ns - self._planned_ns > STALL_NS:
            self._controller.extend_sessions(now_ns - self._last_ns)
        answers: list[Decided] = []
        for request in requests:
            body = self._answer(request, now_ns)
            if body is not None:
                answers.append(Decided(request, body))
        self._controller.tick(now_ns)
        answers.extend(Decided(*held) for held in self._elections.hold(now_ns))
        self._last_ns = now_ns
        return answers

    def finished(self, next_wake_ns: int | None) -> None:
        """Note when the next step is due, so that a pause of the process shows in it."""
        self._planned_ns = next_wake_ns

    def waiting(self) -> list[Request]:
        """Return the requests that wait for an election."""
        return self._elections.waiting()

    def _answer(self, request: Request, now_ns: int) -> ResponseBody | None:
        body = request.body
        controller = self._controller
        if isinstance(body, ElectLeadersRequest):
            self._elections.add(request, body, now_ns)
            return None
        if isinstance(body, InitProducerIdRequest):
            if body.transactional_id is not None:
                return InitProducerIdResponse(ErrorCode.INVALID_REQUEST)
            return InitProducerIdResponse(producer_id=controller.init_producer_id())
        if isinstance(body, BrokerHeartbeatRequest):
            return controller.heartbeat(body, now_ns)
        if isinstance(body, AlterPartitionRequest):
            return controller.alter_partition(body)
        if isinstance(body, BrokerRegistrationRequest):
            return controller.register(body, now_ns)
        if isinstance(body, UnregisterBrokerRequest):
            return controller.unregister(body)
        if isinstance(body, UpdateFeaturesRequest):
            return controller.update_features(body)
        if isinstance(body, CreateTopicsRequest):
            return controller.create_topics(body)
        if isinstance(body, DeleteTopicsRequest):
            return controller.delete_topics(body)
        if isinstance(body, CreatePartitionsRequest):
            return controller.create_partitions(body)
        if isinstance(body, AlterPartitionReassignmentsRequest):
            return controller.alter_reassignments(body)
        if isinstance(body, IncrementalAlterConfigsRequest):
            return controller.alter_configs(body)
        return self._describe(request, now_ns)

    def _describe(self, request: Request, now_ns: int) -> ResponseBody | None:
        """Answer a request that only reads the image."""
        controller = self._controller
        known = describe.KnownByController(controller.is_alive, controller.lags, now_ns)
        return described(request, lambda: describe.answer(controller.image, request.body, controller.cluster_id, known))


def described(request: Request, answer: Callable[[], ResponseBody | None]) -> ResponseBody | None:
    """Return the answer to a request that only reads; a bug in it affects only this request."""
    try:
        return answer()
    except Exception as error:
        if isinstance(error, InternalError) or is_interruption(error):
            raise
        _log.error(
            "the controller could not answer %s of %s; it goes on",
            type(request.body).__name__,
            request.source,
            exc_info=error,
        )
        text = f"the controller met {type(error).__name__}: {excerpt(str(error))}"
        found: ResponseBody | None = refusal(request.body, ErrorCode.UNKNOWN_SERVER_ERROR, text)
        return found


def _is_later(number: int, other: int) -> bool:
    """Return whether request ``number`` was sent after ``other``. Numbers have 31 bits and wrap to
    0."""
    return 0 < (number - other) & 0x7FFFFFFF < 1 << 30


def refused(body: RequestBody, code: ErrorCode, text: str) -> ResponseBody | None:
    """Return the answer to a request that was not carried out, or whose decision could not be
    written and so did not happen. None: the sender times out."""
    if isinstance(body, BrokerHeartbeatRequest):
        return BrokerHeartbeatResponse(code)
    if isinstance(body, AlterPartitionRequest):
        return AlterPartitionResponse(error_code=code)
    if isinstance(body, BrokerRegistrationRequest):
        return BrokerRegistrationResponse(code)
    found: ResponseBody | None = refusal(body, code, text)
    return found
