"""The envelope of a message: the sender, the correlation id, and the message itself.

In one process and in simulation these very objects are passed. A transport whose ends must not
share memory (a simulated one, which delays and repeats messages) calls ``materialised()`` when a
message is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, TypeVar

from pyreplog.mypyc_build import mypyc_attr
from pyreplog.ports import Address
from pyreplog.wire.admin_schemas import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
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
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pyreplog.wire.peer_schemas import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from pyreplog.wire.quorum_schemas import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from pyreplog.wire.reassignment_schemas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
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
    | CreatePartitionsRequest
    | AlterPartitionReassignmentsRequest
    | ListPartitionReassignmentsRequest
    | IncrementalAlterConfigsRequest
    | DeleteRecordsRequest
    | InitProducerIdRequest
    | AlterPartitionRequest
    | BrokerRegistrationRequest
    | BrokerHeartbeatRequest
    | UnregisterBrokerRequest
    | ControllerRegistrationRequest
    | UpdateFeaturesRequest
    | AddRaftVoterRequest
    | BeginQuorumEpochRequest
    | DescribeQuorumRequest
    | EndQuorumEpochRequest
    | FetchSnapshotRequest
    | RemoveRaftVoterRequest
    | UpdateRaftVoterRequest
    | VoteRequest
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
    | CreatePartitionsResponse
    | AlterPartitionReassignmentsResponse
    | ListPartitionReassignmentsResponse
    | IncrementalAlterConfigsResponse
    | DeleteRecordsResponse
    | InitProducerIdResponse
    | AlterPartitionResponse
    | BrokerRegistrationResponse
    | BrokerHeartbeatResponse
    | UnregisterBrokerResponse
    | ControllerRegistrationResponse
    | UpdateFeaturesResponse
    | AddRaftVoterResponse
    | BeginQuorumEpochResponse
    | DescribeQuorumResponse
    | EndQuorumEpochResponse
    | FetchSnapshotResponse
    | RemoveRaftVoterResponse
    | UpdateRaftVoterResponse
    | VoteResponse
)

T = TypeVar("T")


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Request:
    """A request. ``source`` is the address for the answer.

    The sender chooses ``correlation_id``: no other of its latest requests may have it
    (:mod:`pyreplog.wire.repeats`).
    """

    source: Address
    correlation_id: int
    body: RequestBody

    def __init__(self, source: Address, correlation_id: int, body: RequestBody) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.body = body

    def materialised(self) -> Request:
        """Return a deep copy that shares no memory with this request; see :func:`materialised`."""
        return Request(self.source, self.correlation_id, materialised(self.body))


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Response:
    """A response. ``source`` is the address that answers; ``correlation_id`` is that of the
    request."""

    source: Address
    correlation_id: int
    body: ResponseBody

    def __init__(self, source: Address, correlation_id: int, body: ResponseBody) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.body = body

    def materialised(self) -> Response:
        """Return a deep copy that shares no memory with this response; see :func:`materialised`."""
        return Response(self.source, self.correlation_id, materialised(self.body))


def materialised(value: T) -> T:
    """Return a deep copy of a message or of a part of one.

    Record bytes are copied into new ``bytearray`` objects (writable, because a leader writes into
    the batches that it receives), and slices of a log are read into bytes. If the log was truncated
    since, this raises the error of ``RecordsSlice.parts``: such a message is dropped as if it were
    lost.
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
    if hasattr(value, "as_list"):  # a sequence that is made when it is read
        return _copied(value.as_list())
    return bytearray(value)  # any other buffer


def _plan(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(kind)]
    if len(names) == 1:
        one = attrgetter(names[0])
        return lambda value: (one(value),)
    return attrgetter(*names)
