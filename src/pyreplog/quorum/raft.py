"""One node of the quorum: KRaft's pull-based Raft as a sans-IO machine (KIP-595, 630, 853, 996, 1166).

``step`` takes a message, the end of a peer, or the time, and returns effects. Every sync blocks
inside the step, so a message that leaves a step never speaks of anything that is not durable.

The machine is one class in layers, each in a module: :mod:`node_state <pyreplog.quorum.node_state>`,
:mod:`elections <pyreplog.quorum.elections>`, :mod:`following <pyreplog.quorum.following>`,
:mod:`leading <pyreplog.quorum.leading>`, :mod:`voter_changes <pyreplog.quorum.voter_changes>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from pyreplog.errors import CorruptError, InvalidRequestError, OutcomeUnknownError, PyreplogError, StorageError
from pyreplog.ports import Address, Clock, Disk, Random
from pyreplog.quorum.config import QuorumConfig
from pyreplog.quorum.description import describe_quorum
from pyreplog.quorum.effects import PeerGone, QuorumAppended, QuorumEffect, QuorumEvent, QuorumFailed, TimerDue
from pyreplog.quorum.node_state import MS
from pyreplog.quorum.raft_log import open_storage
from pyreplog.quorum.states import FAR_FUTURE_NS, Campaign, Failed, Following, Leading, Resigned, Unattached
from pyreplog.quorum.storage import ControlEntry, HardState, QuorumStorage, SnapshotInProgress
from pyreplog.quorum.voter_changes import VoterChanges
from pyreplog.quorum.voter_records import kraft_version_entry, voters_entry
from pyreplog.quorum.voters import Identity, VoterSet
from pyreplog.wire import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    Request,
    Response,
    SnapshotId,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)

__all__ = ["RaftNode"]

_REFUSED_MS = 1000
"""The pause after the disk refused a change for lack of room."""


class RaftNode(VoterChanges):
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
        super().__init__(storage, identity, config, clock, random, endpoint=endpoint, now_ns=now_ns)
        self.held: list[QuorumEffect] = []
        """Effects of a call that raised; the next step returns them."""
        self.epoch = storage.read_state().epoch
        if storage.failure is not None:
            self.role = Failed(storage.failure)
            return
        self.load_voters()
        if self.epoch < storage.last_epoch:
            self.persist(HardState(storage.last_epoch))
        # The former role does not count: this node asks the others, and they name a living leader.
        # A former leader or candidate voted for itself, so it can only go on to the next epoch.
        self.role = Unattached(self.leader_gone_deadline() if self.may_campaign else now_ns)

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
        storage = open_storage(disk, folder, identity, config, clock)
        try:
            return cls(storage, identity, config, clock, random, endpoint=endpoint, now_ns=now_ns)
        except BaseException:
            storage.close()
            raise

    # -- facts --

    @property
    def role_name(self) -> str:
        """``unattached``, ``follower``, ``prospective``, ``candidate``, ``leader``, ``resigned`` or ``failed``."""
        role = self.role
        if isinstance(role, Campaign):
            return "prospective" if role.pre_vote else "candidate"
        names = {Unattached: "unattached", Following: "follower", Leading: "leader", Resigned: "resigned"}
        return names.get(type(role), "failed")

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The id of the newest snapshot."""
        return self.storage.latest_snapshot()

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which ``step(TimerDue())`` must be called next; None for never."""
        if self.held:
            return self.now_ns
        due = self._role_deadline()
        for pending in self.requests.values():
            due = min(due, pending.expiry_ns)
        return None if due >= FAR_FUTURE_NS else due

    def _role_deadline(self) -> int:
        role = self.role
        if isinstance(role, Unattached | Resigned):
            return role.deadline_ns
        if isinstance(role, Following):
            retry = role.retry_ns if role.request_id is None else FAR_FUTURE_NS
            return min(role.deadline_ns, retry)
        if isinstance(role, Campaign):
            return min(role.deadline_ns, role.resend_ns)
        if isinstance(role, Leading):
            due = min(self.quorum_deadline(role), role.proof_ns)
            if role.change is not None and not role.change.answered:
                due = min(due, role.change.deadline_ns)
            for fetch in role.parked:
                due = min(due, fetch.expiry_ns)
            return due if self.voters.is_only(self.key) else min(due, role.begin_ns)
        return FAR_FUTURE_NS

    def expects(self, correlation_id: int) -> bool:
        """Return whether a response with this correlation id belongs to this node."""
        return correlation_id in self.requests

    # -- the machine --

    def step(self, event: QuorumEvent, now_ns: int) -> list[QuorumEffect]:
        """Handle one event."""
        self.now_ns = now_ns
        self.out, self.held = self.held, []
        if not isinstance(self.role, Failed):
            try:
                if self.storage.failure is not None:  # a snapshot could not be written
                    raise self.storage.failure
                self._handle(event)
            except (StorageError, CorruptError, OutcomeUnknownError) as error:
                self._storage_failed(error)
            if isinstance(self.role, Failed):
                self.out.append(QuorumFailed(self.role.error))
        return self._effects()

    def _effects(self) -> list[QuorumEffect]:
        effects, self.out = self.out, []
        return effects

    def _storage_failed(self, error: PyreplogError) -> None:
        """Pause if the disk only lacks room, otherwise end this node until it is opened again."""
        role = self.role
        if isinstance(error, StorageError) and self.storage.failure is None:
            pause = self.now_ns + _REFUSED_MS * MS
            if isinstance(role, Following):
                role.retry_ns = pause
            elif isinstance(role, Unattached | Campaign | Resigned):
                role.deadline_ns = pause
            return
        if isinstance(error, CorruptError):
            with suppress(StorageError):
                self.storage.note_failure(str(error))
        if isinstance(self.role, Leading):
            self.resign_now()
        self.fail(error)

    def _handle(self, event: QuorumEvent) -> None:
        if isinstance(event, Request):
            self.gone.discard(event.source)
            self._on_request(event)
        elif isinstance(event, Response):
            self.gone.discard(event.source)
            self._on_response(event)
        elif isinstance(event, PeerGone):
            self._on_gone(event.address)
        elif isinstance(event, TimerDue):
            self._on_time()

    def _on_request(self, request: Request) -> None:
        body = request.body
        if isinstance(body, AddRaftVoterRequest):
            self.on_add_voter(request, body)
        elif isinstance(body, RemoveRaftVoterRequest):
            self.on_remove_voter(request, body)
        elif isinstance(body, UpdateRaftVoterRequest):
            self.on_update_voter(request, body)
        elif isinstance(body, FetchRequest | VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest):
            self._on_raft_request(request)
        elif isinstance(body, FetchSnapshotRequest):
            if body.topics and body.topics[0].partitions:
                self.on_fetch_snapshot(request, body)
        elif isinstance(body, DescribeQuorumRequest):
            self.answer(request.source, request.correlation_id, describe_quorum(self))

    def _on_raft_request(self, request: Request) -> None:
        body = request.body
        topics = getattr(body, "topics", ())
        if not topics or not topics[0].partitions:
            return
        if isinstance(body, FetchRequest):
            self.on_fetch(request, body)
        elif isinstance(body, VoteRequest):
            self.on_vote(request, body)
        elif isinstance(body, BeginQuorumEpochRequest):
            self.on_begin_epoch(request, body)
        elif isinstance(body, EndQuorumEpochRequest):
            self.on_end_epoch(request, body)

    def _on_response(self, response: Response) -> None:
        pending = self.requests.get(response.correlation_id)
        if pending is None or pending.address != response.source:
            return
        del self.requests[response.correlation_id]
        body = response.body
        if isinstance(body, VoteResponse):
            self.on_vote_answer(pending, body)
        elif isinstance(body, FetchResponse) and pending.kind == "fetch":
            self.on_fetch_answer(body)
        elif isinstance(body, FetchSnapshotResponse) and pending.kind == "fetch_snapshot":
            self.on_snapshot_answer(body)
        elif isinstance(body, (AddRaftVoterResponse, RemoveRaftVoterResponse)):
            self.on_change_answer()
        elif isinstance(body, BeginQuorumEpochResponse) and body.topics:
            part = body.topics[0].partitions[0]
            if part.leader_epoch > self.epoch:
                self.hear_of_leader(part.leader_epoch, part.leader_id, body.node_endpoints)

    def _on_gone(self, address: Address) -> None:
        self.gone.add(address)
        self.requests = {number: one for number, one in self.requests.items() if one.address != address}
        if isinstance(self.role, Leading):
            self.role.parked = [fetch for fetch in self.role.parked if fetch.source != address]
            self.on_peer_gone(self.role)
        else:
            self.on_leader_gone(address)

    def _on_time(self) -> None:
        for number, pending in list(self.requests.items()):
            if pending.expiry_ns <= self.now_ns:
                del self.requests[number]
                if isinstance(self.role, Following) and self.role.request_id == number:
                    self.role.request_id = None
                    self.back_off(self.config.retry_backoff_ms)
        role = self.role
        if isinstance(role, Unattached):
            self.election_due()
            if self.role is role:
                self.discover(role)
        elif isinstance(role, Following):
            self.follower_timer(role)
        elif isinstance(role, Campaign):
            self.campaign_timer(role)
        elif isinstance(role, Leading):
            self.leader_timer(role)
        elif isinstance(role, Resigned):
            self.resigned_timer(role)

    # -- the leader's face --

    def append(self, records: Sequence[bytes], now_ns: int) -> QuorumAppended:
        """Append ``records`` as one batch. They are durable here when this returns.

        Raises :class:`NotControllerError` if this node does not lead, and :class:`StorageError` if
        the disk refuses: nothing was appended, and the node leads on unless its storage failed. Then
        the next step, which is due at once, reports :class:`QuorumFailed`.
        """
        self.now_ns = now_ns
        self.out = []
        try:
            first, last = self.append_leader(records)
        except (StorageError, OutcomeUnknownError) as error:
            if self.storage.failure is not None:
                self._storage_failed(error)
                self.held = [*self._effects(), QuorumFailed(error)]
            raise
        return QuorumAppended(first, last, self._effects())

    def prove_leadership(self, token: object, now_ns: int) -> list[QuorumEffect]:
        """Have a majority confirm that this node still leads: ``Proved`` or ``NotProved`` follows."""
        self.now_ns = now_ns
        self.out = []
        self.prove(token)
        return self._effects()

    def resign(self, now_ns: int) -> list[QuorumEffect]:
        """Give up leadership in order: the voter that knows most is asked to follow."""
        self.now_ns = now_ns
        self.out = []
        if isinstance(self.role, Leading):
            self.resign_now()
        return self._effects()

    # -- everybody's face --

    def read_committed(self, from_offset: int) -> Iterator[tuple[int, bytes | ControlEntry]]:
        """Return every committed record from ``from_offset`` on: (offset, value or control record).

        Raises :class:`OffsetOutOfRangeError` below the log's start: read the snapshot then.
        """
        end = self.high_watermark
        for batch in self.storage.batches(from_offset, end) if from_offset < end else ():
            found: Iterable[tuple[int, bytes | ControlEntry]] = (
                [(entry.offset, entry) for entry in batch.control]
                if batch.control
                else [(batch.base_offset + place, value) for place, value in enumerate(batch.records)]
            )
            for offset, record in found:
                if from_offset <= offset < end:
                    yield offset, record

    def read_snapshot(self) -> tuple[SnapshotId, Iterator[bytes]] | None:
        """Return the newest snapshot: its id and its metadata records."""
        found = self.storage.latest_snapshot()
        return None if found is None else (found, self.storage.snapshot_records(found))

    def write_snapshot(self, end_offset: int, records: Iterable[bytes]) -> None:
        """Write a small snapshot at once: see :meth:`begin_snapshot`."""
        writing = self.begin_snapshot(end_offset)
        if writing is not None:
            writing.append(records)
            writing.finish()

    def begin_snapshot(self, end_offset: int) -> SnapshotInProgress | None:
        """Begin a snapshot of the state below ``end_offset``; None if there is one up to there.

        The caller appends the records in slices, between steps if it likes. The log then forgets the
        records that older snapshots hold. Raises :class:`InvalidRequestError` unless everything
        below is committed and ``end_offset`` ends a batch.
        """
        latest = self.storage.latest_snapshot()
        if latest is not None and end_offset <= latest.end_offset:
            return None
        if end_offset > self.high_watermark:
            raise InvalidRequestError(f"snapshot at {end_offset}, above the high watermark {self.high_watermark}")
        batch = next(iter(self.storage.batches(end_offset - 1, end_offset)), None)
        if batch is None or batch.last_offset != end_offset - 1:
            raise InvalidRequestError(f"snapshot at {end_offset}, inside a batch")
        voters: VoterSet = next(one.voters for one in reversed(self.voter_history) if one.offset < end_offset)
        control = [kraft_version_entry(), voters_entry(voters)] if len(voters) else []
        return self.storage.begin_snapshot(SnapshotId(end_offset, batch.epoch), control)

    def close(self) -> None:
        """Release the files. The node is not used afterwards."""
        self.storage.close()
