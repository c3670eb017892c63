"""The metadata quorum: KRaft's Raft, sans-IO, over the library's own log.

One door: other layers import from here.
"""

from __future__ import annotations

from pyreplog.quorum.config import QuorumConfig
from pyreplog.quorum.effects import (
    CommittedUpTo,
    LeaderChanged,
    NotProved,
    PeerGone,
    Proved,
    QuorumAppended,
    QuorumEffect,
    QuorumEvent,
    QuorumFailed,
    Send,
    SnapshotInstalled,
    TimerDue,
)
from pyreplog.quorum.raft import RaftNode
from pyreplog.quorum.raft_log import clear_quorum, format_quorum, is_formatted
from pyreplog.quorum.recovery import make_only_voter
from pyreplog.quorum.snapshots import SnapshotReader, list_snapshots
from pyreplog.quorum.state_file import find_epoch
from pyreplog.quorum.storage import ControlEntry, HardState, LogBatch, QuorumStorage, SnapshotInProgress
from pyreplog.quorum.voter_check import find_voter_damage
from pyreplog.quorum.voter_records import voters_of
from pyreplog.quorum.voters import (
    NO_VOTERS,
    Identity,
    ReplicaKey,
    Voter,
    VoterEndpoint,
    VoteResult,
    VoterSet,
    majority_offset,
    vote_result,
)

__all__ = [
    "NO_VOTERS",
    "CommittedUpTo",
    "ControlEntry",
    "HardState",
    "Identity",
    "LeaderChanged",
    "LogBatch",
    "NotProved",
    "PeerGone",
    "Proved",
    "QuorumAppended",
    "QuorumConfig",
    "QuorumEffect",
    "QuorumEvent",
    "QuorumFailed",
    "QuorumStorage",
    "RaftNode",
    "ReplicaKey",
    "Send",
    "SnapshotInProgress",
    "SnapshotInstalled",
    "SnapshotReader",
    "TimerDue",
    "VoteResult",
    "Voter",
    "VoterEndpoint",
    "VoterSet",
    "clear_quorum",
    "find_epoch",
    "find_voter_damage",
    "format_quorum",
    "is_formatted",
    "list_snapshots",
    "majority_offset",
    "make_only_voter",
    "vote_result",
    "voters_of",
]
