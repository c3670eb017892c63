"""The envelope: who asks, under which number, and the message itself.

In one process and in simulation these very objects travel. A transport that must not share memory between its ends (a simulated one, whose
messages are delayed and repeated) calls ``materialised()`` when a message is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, TypeVar

from pyreplog.compiled import mypyc_attr
from pyreplog.ports import Address
from pyreplog.wire.admin_schemas import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    MetadataRequest,
    MetadataResponse,
)
from pyreplog.wire.peer_schemas import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from pyreplog.wire.schemas import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)

__all__ = ["Request", "RequestBody", "Response", "ResponseBody", "materialised"]

RequestBody = (
    ProduceRequest
    | FetchRequest
    | ListOffsetsRequest
    | MetadataRequest
    | CreateTopicsRequest
    | DeleteTopicsRequest
    | OffsetForLeaderEpochRequest
    | DescribeConfigsRequest
    | DescribeClusterRequest
    | DescribeTopicPartitionsRequest
    | ElectLeadersRequest
    | DeleteRecordsRequest
    | InitProducerIdRequest
    | AlterPartitionRequest
    | BrokerRegistrationRequest
    | BrokerHeartbeatRequest
    | UnregisterBrokerRequest
)
ResponseBody = (
    ProduceResponse
    | FetchResponse
    | ListOffsetsResponse
    | MetadataResponse
    | CreateTopicsResponse
    | DeleteTopicsResponse
    | OffsetForLeaderEpochResponse
    | DescribeConfigsResponse
    | DescribeClusterResponse
    | DescribeTopicPartitionsResponse
    | ElectLeadersResponse
    | DeleteRecordsResponse
    | InitProducerIdResponse
    | AlterPartitionResponse
    | BrokerRegistrationResponse
    | BrokerHeartbeatResponse
    | UnregisterBrokerResponse
)

T = TypeVar("T")


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Request:
    """``source`` is where the answer goes; ``correlation_id`` is the sender's, no other of its latest requests has it
    (:mod:`pyreplog.wire.repeats`)."""

    source: Address
    correlation_id: int
    body: RequestBody

    def __init__(self, source: Address, correlation_id: int, body: RequestBody) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.body = body

    def materialised(self) -> Request:
        """A deep copy that shares no memory with anyone; see :func:`materialised`."""
        return Request(self.source, self.correlation_id, materialised(self.body))


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Response:
    """``source`` is who answers; ``correlation_id`` is that of the request."""

    source: Address
    correlation_id: int
    body: ResponseBody

    def __init__(self, source: Address, correlation_id: int, body: ResponseBody) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.body = body

    def materialised(self) -> Response:
        """A deep copy that shares no memory with anyone; see :func:`materialised`."""
        return Response(self.source, self.correlation_id, materialised(self.body))


def materialised(value: T) -> T:
    """A deep copy of a message or a part of one: record bytes are copied into fresh ``bytearray`` (writable: a leader stamps what it was
    handed), slices of a log become bytes now.

    Raises what ``RecordsSlice.parts`` raises when the log was truncated since: such a message is dropped, as if it had got lost.
    """
    return _copied(value)  # type: ignore[no-any-return]


_PLAIN = (int, str, type(None))
_PLANS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind is int or kind is str or value is None:
        return value
    plan = _PLANS.get(kind)
    if plan is not None:
        return kind(*[_copied(item) for item in plan(value)])
    if kind is list or kind is tuple:
        return kind([_copied(item) for item in value])
    if kind is bytes or kind is bytearray or kind is memoryview:
        return bytearray(value)
    if isinstance(value, _PLAIN):
        return value
    if is_dataclass(kind):
        _PLANS[kind] = _plan(kind)
        return _copied(value)
    if hasattr(value, "parts"):
        return bytearray().join(value.parts())
    return bytearray(value)  # any other buffer


def _plan(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(kind)]
    if len(names) == 1:
        one = attrgetter(names[0])
        return lambda value: (one(value),)
    return attrgetter(*names)
