"""The description of the quorum, by its leader."""

from __future__ import annotations

from pyreplog.quorum.leading import Leaders
from pyreplog.quorum.states import Leading
from pyreplog.quorum.voters import ReplicaKey
from pyreplog.wire import (
    METADATA_TOPIC,
    DescribeQuorumNode,
    DescribeQuorumPartitionResult,
    DescribeQuorumReplica,
    DescribeQuorumResponse,
    DescribeQuorumTopicResult,
    ErrorCode,
    QuorumEndpoint,
)

__all__ = ["describe_quorum"]


def describe_quorum(node: Leaders) -> DescribeQuorumResponse:
    """Return the answer to a DescribeQuorum request."""
    result = DescribeQuorumPartitionResult(0)
    result.leader_id, result.leader_epoch = node.known_leader(), node.epoch
    result.high_watermark = node.leader_high_watermark
    role = node.role
    if isinstance(role, Leading):
        result.current_voters = [_replica(node, role, key) for key in node.voters.keys]
        result.observers = [_replica(node, role, key) for key in role.progress if key not in node.voters]
    else:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    nodes = [
        DescribeQuorumNode(voter.node_id, [QuorumEndpoint(*endpoint) for endpoint in voter.endpoints])
        for voter in node.voters
    ]
    return DescribeQuorumResponse([DescribeQuorumTopicResult(METADATA_TOPIC, [result])], nodes=nodes)


def _replica(node: Leaders, role: Leading, key: ReplicaKey) -> DescribeQuorumReplica:
    if key == node.key:
        now_ms = node.clock.wall_ms()
        return DescribeQuorumReplica(key.node_id, node.storage.end_offset, key.directory_id, now_ms, now_ms)
    progress = role.progress.get(key)
    if progress is None:
        return DescribeQuorumReplica(key.node_id, -1, key.directory_id)
    return DescribeQuorumReplica(
        key.node_id, progress.offset, key.directory_id, progress.fetched_ms, progress.caught_up_ms
    )
