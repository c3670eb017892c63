"""What several of the quorum's proofs need: ids, addresses, requests of an operator."""

from __future__ import annotations

from random import Random
from typing import Final

from pyreplog.log import random_uuid
from pyreplog.quorum import ReplicaKey, VoterSet
from pyreplog.wire import (
    AddRaftVoterRequest,
    KRaftVersionFeature,
    KRaftVersionRecord,
    QuorumEndpoint,
    RemoveRaftVoterRequest,
    VotersRecord,
    VotersRecordVoter,
    encode_control_record,
)

CLUSTER_ID: Final = random_uuid(Random(0))


def address_of_node(node_id: int) -> str:
    """Return the address at which a node's voter listens."""
    return f"controller-{node_id}"


def directory_of(node_id: int, disk: int = 1) -> str:
    """Return the id of a node's metadata folder on its first, second ... disk."""
    return random_uuid(Random(1000 * node_id + disk))


def bootstrap_control(voters: VoterSet) -> list[tuple[bytes, bytes]]:
    """Return the control records (key, value) of the snapshot that formatting writes."""
    members = [
        VotersRecordVoter(
            voter.node_id,
            voter.directory_id,
            [QuorumEndpoint(one.name, one.host, one.port) for one in voter.endpoints],
            KRaftVersionFeature(voter.min_version, voter.max_version),
        )
        for voter in voters
    ]
    return [encode_control_record(KRaftVersionRecord(1)), encode_control_record(VotersRecord(members))]


def add_request(key: ReplicaKey, timeout_ms: int = 1500) -> AddRaftVoterRequest:
    """Return the request to make an observer a voter."""
    listeners = [QuorumEndpoint("CONTROLLER", address_of_node(key.node_id))]
    return AddRaftVoterRequest(key.node_id, key.directory_id, listeners, CLUSTER_ID, timeout_ms)


def remove_request(key: ReplicaKey) -> RemoveRaftVoterRequest:
    """Return the request to take the vote from a voter."""
    return RemoveRaftVoterRequest(key.node_id, key.directory_id, CLUSTER_ID)
