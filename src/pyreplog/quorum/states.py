"""The roles of a node of the quorum, as plain data. The machine is in the modules beside this one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyreplog.ports import Address
from pyreplog.quorum.voters import ReplicaKey, Voter, VoterSet
from pyreplog.wire import SnapshotId

__all__ = [
    "FAR_FUTURE_NS",
    "Campaign",
    "Failed",
    "Following",
    "Leading",
    "LostLeader",
    "ParkedFetch",
    "PendingRequest",
    "Proof",
    "QuorumRole",
    "ReplicaProgress",
    "Resigned",
    "SnapshotFetch",
    "Unattached",
    "VoterChange",
    "VotersAt",
]

FAR_FUTURE_NS: Final = 2**63 - 1
"""The deadline of a timer that does not run."""


@dataclass(slots=True)
class Unattached:
    """No leader is known. A voter asks for pre-votes at the deadline; an observer asks a voter for the leader."""

    deadline_ns: int
    tries: int = 0
    """How often an observer has asked."""


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot that is being fetched. ``position``: the bytes that are here."""

    snapshot_id: SnapshotId
    position: int = 0


@dataclass(slots=True)
class Following:
    """The leader is known, and this node fetches from it."""

    leader_id: int
    address: Address
    deadline_ns: int
    """Without a successful fetch until then, a voter asks for pre-votes, and an observer for the leader."""
    retry_ns: int = 0
    """No fetch before."""
    request_id: int | None = None
    """The correlation id of the outstanding fetch."""
    has_fetched: bool = False
    """Whether the leader answered a fetch in this epoch."""
    session_id: int = 0
    """The round of proofs that the leader named last, to be named back."""
    snapshot: SnapshotFetch | None = None
    change_ns: int = 0
    """When a request about this node's own vote may be sent again."""


@dataclass(slots=True)
class Campaign:
    """A pre-vote (a prospective candidate) or a vote (a candidate)."""

    pre_vote: bool
    votes: dict[ReplicaKey, bool | None]
    deadline_ns: int
    resend_ns: int
    leader_id: int | None = None
    """The leader of this epoch, from which nothing was heard any more."""
    address: Address | None = None


@dataclass(slots=True)
class ReplicaProgress:
    """A leader's view of another replica. Offsets are -1 and times 0 until it fetched in this epoch."""

    offset: int = -1
    fetched_ns: int = 0
    fetched_ms: int = -1
    """The wall time of its last fetch."""
    caught_up_ms: int = -1
    end_at_fetch: int = -1
    """The end of the leader's log at its last fetch."""
    round: int = 0
    """The latest round of proofs that it has confirmed."""
    rolled_back: bool = False
    """Its log ends below an offset that it had acknowledged in this epoch, so it does not count."""


class ParkedFetch(NamedTuple):
    """A fetch that waits for news."""

    source: Address
    correlation_id: int
    offset: int
    high_watermark: int
    round: int
    size_max: int
    expiry_ns: int


class Proof(NamedTuple):
    """A reader that waits for a proof of leadership."""

    round: int
    token: object


@dataclass(slots=True)
class VoterChange:
    """A change of the voters that is under way, and the request that asked for it."""

    kind: str
    """``add``, ``remove`` or ``update``."""
    source: Address
    correlation_id: int
    voter: Voter
    deadline_ns: int
    target: int
    """A voter that is added must have fetched up to here first."""
    offset: int = -1
    """The offset of the VotersRecord; -1 until it is appended."""
    early: bool = False
    """The request is answered when the record is appended, not when it is committed."""
    answered: bool = False


@dataclass(slots=True)
class Leading:
    """This node leads the epoch."""

    epoch_start: int
    """The offset of the epoch's first record."""
    since_ns: int
    progress: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    parked: list[ParkedFetch] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)
    round: int = 0
    proof_ns: int = FAR_FUTURE_NS
    """When all parked fetches are answered for the proofs, if they are not complete by then."""
    begin_ns: int = 0
    """When the leader is named again to silent voters."""
    change: VoterChange | None = None


@dataclass(slots=True)
class Resigned:
    """This node led the epoch and gave it up."""

    deadline_ns: int


@dataclass(slots=True)
class Failed:
    """The storage failed, or it broke a rule. The node is silent until it is opened again."""

    error: Exception


QuorumRole = Unattached | Following | Campaign | Leading | Resigned | Failed


class PendingRequest(NamedTuple):
    """A request without an answer yet."""

    kind: str
    address: Address
    epoch: int
    expiry_ns: int
    key: ReplicaKey | None = None


class LostLeader(NamedTuple):
    """A leader whose endpoint the transport called gone, in one epoch."""

    address: Address
    epoch: int
    until_ns: int


class VotersAt(NamedTuple):
    """The voters from one offset of the log on; -1: they are those of the formatting."""

    offset: int
    voters: VoterSet
