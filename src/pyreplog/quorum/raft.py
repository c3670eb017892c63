"""One node of the quorum: KRaft's pull-based Raft as a sans-IO machine (spec: KIP-595, 630, 853, 996).

``step`` takes a message, the end of a peer, or the time, and returns effects. Every sync blocks
inside the step, so a message that leaves a step never speaks of anything that is not durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyreplog.errors import InternalError
from pyreplog.ports import Address, Clock, Disk, Random
from pyreplog.quorum.config import QuorumConfig
from pyreplog.quorum.effects import QuorumAppended, QuorumEffect, QuorumEvent
from pyreplog.quorum.storage import ControlEntry, QuorumStorage
from pyreplog.quorum.voters import NO_VOTERS, Identity, VoterSet
from pyreplog.wire import SnapshotId

__all__ = ["RaftNode"]


class RaftNode:
    """A voter or an observer of the quorum. Belongs to one thread."""

    def __init__(
        self,
        storage: QuorumStorage,
        identity: Identity,
        config: QuorumConfig,
        clock: Clock,
        random: Random,
        *,
        endpoint: Address,
        now_ns: int,
    ) -> None:
        self.storage = storage
        self.identity = identity
        self.config = config
        self.clock = clock
        self.random = random
        self.endpoint = endpoint
        self.voters: VoterSet = NO_VOTERS
        self.epoch = 0
        self.leader_id: int | None = None
        self.high_watermark = -1
        self.voter_failure: str | None = None
        """The reason for which this voter neither votes nor counts; None while it is whole."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        identity: Identity,
        config: QuorumConfig,
        clock: Clock,
        random: Random,
        *,
        endpoint: Address,
        now_ns: int,
    ) -> RaftNode:
        """Open the node whose files are in ``folder`` (``.../__cluster_metadata-0``).

        Raises :class:`StorageError`. Damage does not raise: see :attr:`voter_failure`.
        """
        raise InternalError("the machine is not here")

    # -- facts --

    @property
    def role(self) -> str:
        """``unattached``, ``follower``, ``prospective``, ``candidate``, ``leader``, ``resigned`` or ``failed``."""
        raise InternalError("the machine is not here")

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the present epoch, as far as it knows."""
        raise InternalError("the machine is not here")

    @property
    def is_voter(self) -> bool:
        """Whether this node is a voter and whole."""
        raise InternalError("the machine is not here")

    @property
    def leader_address(self) -> Address | None:
        """The address of the leader, if it is known."""
        raise InternalError("the machine is not here")

    @property
    def log_end_offset(self) -> int:
        """The offset behind the log."""
        raise InternalError("the machine is not here")

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The id of the newest snapshot."""
        raise InternalError("the machine is not here")

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which ``step(TimerDue())`` must be called next."""
        raise InternalError("the machine is not here")

    def expects(self, correlation_id: int) -> bool:
        """Return whether a response with this correlation id belongs to this node."""
        raise InternalError("the machine is not here")

    # -- the machine --

    def step(self, event: QuorumEvent, now_ns: int) -> list[QuorumEffect]:
        """Handle one event."""
        raise InternalError("the machine is not here")

    # -- the leader's face --

    def append(self, records: Sequence[bytes], now_ns: int) -> QuorumAppended:
        """Append ``records`` as one batch. They are durable here when this returns.

        Raises :class:`NotControllerError` if this node does not lead, and :class:`StorageError` if
        the disk refuses: nothing was appended, and the node leads on unless its storage failed.
        """
        raise InternalError("the machine is not here")

    def prove_leadership(self, token: object, now_ns: int) -> list[QuorumEffect]:
        """Have a majority confirm that this node still leads: :class:`Proved` or :class:`NotProved` follows."""
        raise InternalError("the machine is not here")

    def resign(self, now_ns: int) -> list[QuorumEffect]:
        """Give up leadership in order: the voter that knows most is asked to follow. Does nothing if not leader."""
        raise InternalError("the machine is not here")

    # -- everybody's face --

    def read_committed(self, from_offset: int) -> Iterator[tuple[int, bytes | ControlEntry]]:
        """Return every committed record from ``from_offset`` on: (offset, value or control record)."""
        raise InternalError("the machine is not here")

    def read_snapshot(self) -> tuple[SnapshotId, Iterator[bytes]] | None:
        """Return the newest snapshot: its id and its metadata records."""
        raise InternalError("the machine is not here")

    def write_snapshot(self, end_offset: int, records: Iterable[bytes]) -> None:
        """Write a snapshot of the state below ``end_offset``. REQUIRES that it is committed and ends a batch."""
        raise InternalError("the machine is not here")

    def close(self) -> None:
        """Release the files. The node is not used afterwards."""
        raise InternalError("the machine is not here")
