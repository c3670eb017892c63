"""The input and the output of a :class:`pyreplog.quorum.RaftNode`.

Everything that a step does to its own files is durable when ``step`` returns, so the caller may
carry out the effects at once and in order.
"""

from __future__ import annotations

from typing import NamedTuple

from pyreplog.ports import Address
from pyreplog.wire import Request, Response, SnapshotId

__all__ = [
    "CommittedUpTo",
    "LeaderChanged",
    "NotProved",
    "PeerGone",
    "Proved",
    "QuorumAppended",
    "QuorumEffect",
    "QuorumEvent",
    "QuorumFailed",
    "Send",
    "SnapshotInstalled",
    "TimerDue",
]

# ------------------------------------------------------------------------------------------- events


class PeerGone(NamedTuple):
    """The transport says that the endpoint ``address`` is gone."""

    address: Address


class TimerDue(NamedTuple):
    """``next_wake_ns`` of the node has come."""


QuorumEvent = Request | Response | PeerGone | TimerDue

# ------------------------------------------------------------------------------------------ effects


class Send(NamedTuple):
    """Send ``message`` to ``address``."""

    address: Address
    message: Request | Response


class CommittedUpTo(NamedTuple):
    """The high watermark rose: everything below it is committed."""

    high_watermark: int


class LeaderChanged(NamedTuple):
    """Another leader is known, or none (None), or another epoch began.

    For the leader itself it comes once in each epoch, after its first record was appended:
    ``log_end_offset`` is then the offset behind that record.
    """

    leader_id: int | None
    epoch: int


class Proved(NamedTuple):
    """The leader still led when ``prove_leadership`` was called with ``token``."""

    token: object


class NotProved(NamedTuple):
    """The node ceased to lead before it could prove anything for ``token``."""

    token: object


class SnapshotInstalled(NamedTuple):
    """A snapshot of the leader replaced the log. Load it (``read_snapshot``)."""

    snapshot_id: SnapshotId


class QuorumFailed(NamedTuple):
    """The files of this node failed. It takes no part until it is opened again."""

    error: Exception


QuorumEffect = Send | CommittedUpTo | LeaderChanged | Proved | NotProved | SnapshotInstalled | QuorumFailed


class QuorumAppended(NamedTuple):
    """The place of appended records. They are durable here, and not committed yet in general."""

    first_offset: int
    last_offset: int
    effects: list[QuorumEffect]
