"""Sets of voters as control records of the log."""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.errors import CorruptError, RemoteProtocolError
from pyreplog.quorum.storage import ControlEntry
from pyreplog.quorum.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pyreplog.wire import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    QuorumEndpoint,
    VotersRecord,
    VotersRecordVoter,
    decode_control_record,
    encode_control_record,
)

__all__ = ["KRAFT_VERSION", "kraft_version_entry", "leader_change_entry", "voters_entry", "voters_of"]

KRAFT_VERSION = 1
"""The level of the quorum's protocol at which voters can change."""


def voters_of(entry: ControlEntry) -> VoterSet | None:
    """Return the voters in a control record; None if it is another record."""
    try:
        record = decode_control_record(entry.key, entry.value)
    except RemoteProtocolError as error:
        raise CorruptError(f"control record at offset {entry.offset}: {error}") from error
    if not isinstance(record, VotersRecord):
        return None
    return VoterSet(
        Voter(
            one.voter_id,
            one.voter_directory_id,
            tuple(VoterEndpoint(place.name, place.host, place.port) for place in one.endpoints),
            one.kraft_version_feature.min_supported_version,
            one.kraft_version_feature.max_supported_version,
        )
        for one in record.voters
    )


def voters_entry(voters: VoterSet) -> tuple[bytes, bytes]:
    """Return the key and value of the control record with ``voters``."""
    return encode_control_record(
        VotersRecord(
            [
                VotersRecordVoter(
                    voter.node_id,
                    voter.directory_id,
                    [QuorumEndpoint(*endpoint) for endpoint in voter.endpoints],
                    KRaftVersionFeature(voter.min_version, voter.max_version),
                )
                for voter in voters
            ]
        )
    )


def kraft_version_entry() -> tuple[bytes, bytes]:
    """Return the key and value of the control record with the level of the protocol."""
    return encode_control_record(KRaftVersionRecord(KRAFT_VERSION))


def leader_change_entry(leader_id: int, voters: VoterSet, granting: Sequence[ReplicaKey]) -> tuple[bytes, bytes]:
    """Return the key and value of the first control record of a leader's epoch."""
    return encode_control_record(
        LeaderChangeMessage(
            leader_id,
            [LeaderChangeVoter(*key) for key in voters.keys],
            [LeaderChangeVoter(*key) for key in granting],
        )
    )
