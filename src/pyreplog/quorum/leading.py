"""The leader: fetch answers, the commit rule, proofs of leadership, and the end of its epoch."""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.errors import NotControllerError, StorageError
from pyreplog.quorum.effects import NotProved, Proved
from pyreplog.quorum.following import Followers
from pyreplog.quorum.node_state import MS
from pyreplog.quorum.states import FAR_FUTURE_NS, Leading, ParkedFetch, Proof, ReplicaProgress, Resigned, VoterChange
from pyreplog.quorum.storage import ControlEntry, HardState
from pyreplog.quorum.voter_records import kraft_version_entry, leader_change_entry, voters_entry
from pyreplog.quorum.voters import ReplicaKey, VoterSet, endpoint_of, majority_offset
from pyreplog.wire import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    BeginQuorumEpochPartition,
    BeginQuorumEpochRequest,
    BeginQuorumEpochTopic,
    EndQuorumEpochPartition,
    EndQuorumEpochRequest,
    EndQuorumEpochTopic,
    EpochEndOffset,
    ErrorCode,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchSnapshotPartitionResult,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopicResult,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    PreferredCandidate,
    QuorumEndpoint,
    Request,
    SnapshotId,
)

__all__ = ["Leaders"]

_UNKNOWN = 2**63 - 1
"""The high watermark in a fetch whose sender wants no push."""
_SESSIONS = 2**31 - 2
_PROOF_PATIENCE_NS = 2 * MS
"""How long a proof waits for the voters that were asked first."""


def session_of(proof_round: int) -> int:
    """Return the session id that names a round of proofs in a fetch answer; 0 for none."""
    return 0 if proof_round == 0 else 1 + proof_round % _SESSIONS


def confirmed_round(latest: int, session_id: int) -> int:
    """Return the round, ``latest`` or one shortly before it, that a fetch names back; 0 for none."""
    return max(0, latest - (session_of(latest) - session_id) % _SESSIONS) if session_id > 0 and latest > 0 else 0


class Leaders(Followers):
    """The part of a node that leads."""

    # -- the beginning --

    def become_leader(self, epoch: int, granting: Sequence[ReplicaKey]) -> None:
        """Lead ``epoch``, and append its first records."""
        self.persist(HardState(epoch, self.identity.node_id, self.key))
        role = Leading(self.storage.end_offset, self.now_ns)
        self.enter(role, self.identity.node_id)
        self.election_tries = 0
        for key in self.voters.keys:
            if key != self.key:
                role.progress[key] = ReplicaProgress(fetched_ns=self.now_ns)
        try:
            self.append_control(self._first_records(granting))
        except StorageError:
            if self.storage.failure is not None:
                raise
            self.resign_now()  # without room it cannot lead, and another voter may have room
            return
        self.announce()
        self._tell_voters(role)
        self.after_append(role)

    def _first_records(self, granting: Sequence[ReplicaKey]) -> list[tuple[bytes, bytes]]:
        records = [leader_change_entry(self.identity.node_id, self.voters, granting)]
        if self.voter_history[-1].offset < 0:
            # They are known from the formatting only, which the other nodes never see.
            records += [kraft_version_entry(), voters_entry(self.voters)]
        return records

    def append_control(self, records: Sequence[tuple[bytes, bytes]]) -> int:
        """Append control records, and put a set of voters among them in force. Return the first offset."""
        first, _ = self.storage.append_control(records, self.epoch, self.clock.wall_ms())
        self.take_control(ControlEntry(first + place, *record) for place, record in enumerate(records))
        return first

    def _tell_voters(self, role: Leading) -> None:
        """Name the leader to the voters that have not fetched lately."""
        pause = self.config.fetch_timeout_ms * MS // 2
        role.begin_ns = self.now_ns + pause
        host, port = endpoint_of(self.endpoint)[1:]
        for voter in self.voters:
            progress = role.progress.get(voter.key)
            if voter.key == self.key or voter.address is None:
                continue
            if progress is not None and progress.offset >= 0 and progress.fetched_ns + pause > self.now_ns:
                continue
            part = BeginQuorumEpochPartition(0, self.identity.node_id, self.epoch, voter.directory_id)
            body = BeginQuorumEpochRequest(
                [BeginQuorumEpochTopic(METADATA_TOPIC, [part])],
                self.identity.cluster_id,
                voter.node_id,
                [QuorumEndpoint("CONTROLLER", host, port)],
            )
            self.request("begin_epoch", voter.address, body)

    # -- the high watermark --

    def own_offset(self) -> int:
        """Return the offset that this leader has for the commit rule: only flushed records count (Q1)."""
        return self.storage.flushed_offset

    def offset_of(self, role: Leading, key: ReplicaKey) -> int:
        """Return the offset that a voter has for the commit rule; -1 if it is not known."""
        if key == self.key:
            return self.own_offset()
        progress = role.progress.get(key)
        return -1 if progress is None or progress.rolled_back else progress.offset

    def may_commit(self, role: Leading, offset: int) -> bool:
        """Return whether everything below ``offset`` is committed when a majority has it.

        Only if a record of this epoch is among it (Raft, section 5.4.2).
        """
        return offset > role.epoch_start

    def update_high_watermark(self, role: Leading) -> bool:
        """Raise the high watermark as far as a majority of the voters allows, and return whether it rose."""
        offset = majority_offset([self.offset_of(role, key) for key in self.voters.keys])
        return self.may_commit(role, offset) and self.raise_high_watermark(offset)

    @property
    def leader_high_watermark(self) -> int:
        """The high watermark for others; -1 until a record of this leader's epoch is committed."""
        role = self.role
        return (
            self.high_watermark if not isinstance(role, Leading) or self.may_commit(role, self.high_watermark) else -1
        )

    def after_append(self, role: Leading) -> None:
        """Commit at once if there is one voter, and wake the fetches that wait for records."""
        self.update_high_watermark(role)
        self.serve_parked(role)
        self.after_commit(role)

    def after_commit(self, role: Leading) -> None:
        """Go on with what waits for the high watermark."""
        self._settle_proofs(role)
        self.note_voter()

    # -- fetches --

    def on_fetch(self, request: Request, body: FetchRequest) -> None:
        """Answer a fetch, or park it until there is news."""
        part = body.topics[0].partitions[0]
        if body.cluster_id is not None and body.cluster_id != self.identity.cluster_id:
            self._answer_fetch(request, PartitionData(0, ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        role = self.role
        code = self._epoch_error(part.current_leader_epoch)
        if code or not isinstance(role, Leading):
            self._answer_fetch(request, PartitionData(0, code))
            return
        replica_id = -1 if body.replica_state is None else body.replica_state.replica_id
        progress = self.progress_of(role, ReplicaKey(replica_id, part.replica_directory_id))
        progress.fetched_ns = self.now_ns
        progress.fetched_ms = self.clock.wall_ms()
        self._unpark(role, request.source)
        outcome = self.validate_fetch(part)
        if outcome is not None:
            self._answer_fetch(request, outcome)
            return
        if not self.take_progress(ReplicaKey(replica_id, part.replica_directory_id), progress, part.fetch_offset):
            self._answer_fetch(request, PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE))
            return
        confirmed = confirmed_round(role.round, body.session_id)
        progress.round = max(progress.round, confirmed)
        self.progressed(role)
        if self.role is not role:
            self._answer_fetch(request, PartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        size_max = min(part.partition_max_bytes, body.max_bytes, self.config.fetch_max_bytes)
        wait = min(body.max_wait_ms, self.config.fetch_max_wait_ms) * MS
        parked = ParkedFetch(
            request.source,
            request.correlation_id,
            part.fetch_offset,
            part.high_watermark,
            confirmed,
            size_max,
            self.now_ns + wait,
        )
        if wait <= 0 or self.has_news(role, parked):
            self._serve(role, parked)
        else:
            role.parked.append(parked)

    def _epoch_error(self, epoch: int) -> int:
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return 0 if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def progress_of(self, role: Leading, key: ReplicaKey) -> ReplicaProgress:
        """Return the progress of a replica; a new observer gets one."""
        found = role.progress.get(key)
        if found is None:
            found = role.progress[key] = ReplicaProgress()
        return found

    def take_progress(self, key: ReplicaKey, progress: ReplicaProgress, offset: int) -> bool:
        """Note that a replica has everything below ``offset``, flushed.

        Return False if a voter had acknowledged more in this epoch, or more that is committed: it lost
        records, unless the network delayed an old fetch. It does not count until it has as much again.
        An observer may begin anew.
        """
        if key in self.voters and offset < max(progress.offset, self.remembered.get(key, 0)):
            progress.rolled_back = True
            return False
        progress.rolled_back = False
        end = self.storage.end_offset
        if offset >= end:
            progress.caught_up_ms = progress.fetched_ms
        progress.offset = offset
        progress.end_at_fetch = end
        committed = min(offset, self.high_watermark)
        if key in self.voters and committed > self.remembered.get(key, 0):
            self.remembered[key] = committed
        return True

    def validate_fetch(self, part: FetchPartition) -> PartitionData | None:
        """Return the answer to a fetch that diverges or needs a snapshot; None if it is valid."""
        storage = self.storage
        offset, last_epoch = part.fetch_offset, part.last_fetched_epoch
        oldest, latest = storage.oldest_snapshot(), storage.latest_snapshot()
        real = latest is not None and latest.end_offset > 0
        start = storage.start_offset
        if offset == 0 and not real and start == 0:
            return None
        if real and oldest is not None:
            at_start = offset == start and last_epoch != oldest.epoch and start > 0
            if offset == 0 or offset < start or at_start or last_epoch < self._oldest_epoch(oldest):
                return PartitionData(0, snapshot_id=latest)
            if offset == start:
                return None
        end = storage.end_offset_for(last_epoch)
        if end.epoch != last_epoch or end.start_offset < offset:
            return PartitionData(0, diverging_epoch=EpochEndOffset(end.epoch, end.start_offset))
        return None

    def _oldest_epoch(self, oldest: SnapshotId) -> int:
        """Return the first epoch whose end this log knows."""
        return oldest.epoch if self.storage.start_offset > 0 else 0

    def has_news(self, role: Leading, fetch: ParkedFetch) -> bool:
        """Return whether a parked fetch can be answered: records, a high watermark, or a reader that waits."""
        if fetch.offset < self.storage.end_offset:
            return True
        if fetch.high_watermark != _UNKNOWN and fetch.high_watermark < self.leader_high_watermark:
            return True
        return bool(role.proofs) and fetch.round < role.round

    def _serve(self, role: Leading, fetch: ParkedFetch) -> None:
        data = PartitionData(0)
        if fetch.offset < self.storage.end_offset:
            data.records = self.storage.read(fetch.offset, fetch.size_max)
        self._fill(data)
        body = FetchResponse(
            [FetchableTopicResponse(METADATA_TOPIC_ID, [data])],
            session_id=session_of(role.round),
            node_endpoints=self._fetch_endpoints(),
        )
        self.answer(fetch.source, fetch.correlation_id, body)

    def _answer_fetch(self, request: Request, data: PartitionData) -> None:
        self._fill(data)
        body = FetchResponse(
            [FetchableTopicResponse(METADATA_TOPIC_ID, [data])], node_endpoints=self._fetch_endpoints()
        )
        self.answer(request.source, request.correlation_id, body)

    def _fill(self, data: PartitionData) -> None:
        data.high_watermark = data.last_stable_offset = self.leader_high_watermark
        data.log_start_offset = self.storage.start_offset
        data.current_leader = LeaderIdAndEpoch(self.known_leader(), self.epoch)

    def _fetch_endpoints(self) -> list[NodeEndpoint]:
        return [NodeEndpoint(one.node_id, one.host, one.port) for one in self.node_endpoints()]

    def _unpark(self, role: Leading, source: str) -> None:
        """Forget the fetch of ``source`` that waits: it has sent another one."""
        role.parked = [fetch for fetch in role.parked if fetch.source != source]

    def serve_parked(self, role: Leading) -> None:
        """Answer the parked fetches for which there is news, or whose time is over."""
        due = [one for one in role.parked if one.expiry_ns <= self.now_ns or self.has_news(role, one)]
        if due:
            role.parked = [one for one in role.parked if one not in due]
            for fetch in due:
                self._serve(role, fetch)

    def progressed(self, role: Leading) -> None:
        """Act on the progress of a replica."""
        if self.update_high_watermark(role):
            self.serve_parked(role)
        self.after_commit(role)

    def on_fetch_snapshot(self, request: Request, body: FetchSnapshotRequest) -> None:
        """Answer with a piece of a snapshot."""
        part = body.topics[0].partitions[0]
        result = FetchSnapshotPartitionResult(0, part.snapshot_id)
        result.current_leader = LeaderIdAndEpoch(self.known_leader(), self.epoch)
        role = self.role
        result.error_code = self._epoch_error(part.current_leader_epoch)
        size = self.storage.snapshot_size(part.snapshot_id)
        if result.error_code or not isinstance(role, Leading):
            pass
        elif size is None or part.snapshot_id.end_offset <= 0:
            result.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= part.position < size:
            result.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            progress = self.progress_of(role, ReplicaKey(body.replica_id, part.replica_directory_id))
            progress.fetched_ns = self.now_ns
            progress.fetched_ms = self.clock.wall_ms()
            size_max = min(body.max_bytes, self.config.fetch_max_bytes)
            result.size, result.position = size, part.position
            result.unaligned_records = self.storage.read_snapshot(part.snapshot_id, part.position, size_max)
        self.answer(
            request.source,
            request.correlation_id,
            FetchSnapshotResponse([FetchSnapshotTopicResult(METADATA_TOPIC, [result])], 0, 0, self.node_endpoints()),
        )

    # -- proofs of leadership --

    def prove(self, token: object) -> None:
        """Have a majority confirm that this node leads now.

        The answers to fetches name the round; a fetch that names it back was sent after the call.
        """
        role = self.role
        if not isinstance(role, Leading):
            self.out.append(NotProved(token))
            return
        role.round += 1
        role.proofs.append(Proof(role.round, token))
        self._settle_proofs(role)
        if role.proofs:
            self._ask_majority(role)

    def _ask_majority(self, role: Leading) -> None:
        """Answer the parked fetches of as many voters as a proof needs, and all others if these are slow."""
        role.proof_ns = self.now_ns + _PROOF_PATIENCE_NS
        needed = self.voters.majority - (self.key in self.voters)
        addresses = [voter.address for voter in self.voters]
        asked = [fetch for fetch in role.parked if fetch.source in addresses and fetch.round < role.round][:needed]
        role.parked = [fetch for fetch in role.parked if fetch not in asked]
        for fetch in asked:
            self._serve(role, fetch)

    def _settle_proofs(self, role: Leading) -> None:
        if not role.proofs or self.high_watermark <= role.epoch_start:
            return  # a leader that has committed nothing in its epoch does not know the committed end
        rounds = [
            role.round if key == self.key else role.progress[key].round if key in role.progress else 0
            for key in self.voters.keys
        ]
        proved = majority_offset(rounds)
        while role.proofs and role.proofs[0].round <= proved:
            self.out.append(Proved(role.proofs.pop(0).token))
        if not role.proofs:
            role.proof_ns = FAR_FUTURE_NS

    # -- the end --

    def leave(self) -> None:
        """Answer everything that waits for this leader."""
        role = self.role
        if not isinstance(role, Leading):
            return
        data = PartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, self.leader_high_watermark)
        data.current_leader = LeaderIdAndEpoch(-1, self.epoch)
        for fetch in role.parked:
            body = FetchResponse([FetchableTopicResponse(METADATA_TOPIC_ID, [data])])
            self.answer(fetch.source, fetch.correlation_id, body)
        for proof in role.proofs:
            self.out.append(NotProved(proof.token))
        if role.change is not None:
            self.drop_change(role.change)

    def drop_change(self, change: VoterChange) -> None:
        """Answer the request for a change of the voters that this leader cannot finish."""

    def resign_now(self) -> None:
        """Give up the epoch, and ask the voter that knows most to follow."""
        role = self.role
        assert isinstance(role, Leading), "only a leader resigns"
        others = [voter for voter in self.voters if voter.key != self.key]
        others.sort(key=lambda voter: -self.offset_of(role, voter.key))
        part = EndQuorumEpochPartition(
            0,
            self.identity.node_id,
            self.epoch,
            [PreferredCandidate(voter.node_id, voter.directory_id) for voter in others],
        )
        host, port = endpoint_of(self.endpoint)[1:]
        wait = self.config.election_timeout_ms * MS if others else self.config.election_backoff_ms * MS
        self.enter(Resigned(self.now_ns + wait))
        for voter in others:
            if voter.address is not None:
                body = EndQuorumEpochRequest(
                    [EndQuorumEpochTopic(METADATA_TOPIC, [part])],
                    self.identity.cluster_id,
                    [QuorumEndpoint("CONTROLLER", host, port)],
                )
                self.request("end_epoch", voter.address, body)

    def quorum_deadline(self, role: Leading) -> int:
        """Return when this leader must resign unless more voters fetch: check-quorum."""
        if self.voters.is_only(self.key):
            return FAR_FUTURE_NS
        times = [
            FAR_FUTURE_NS
            if key == self.key
            else role.progress[key].fetched_ns
            if key in role.progress
            else role.since_ns
            for key in self.voters.keys
        ]
        latest = majority_offset(times)
        if latest == FAR_FUTURE_NS:
            return FAR_FUTURE_NS
        return latest + self.config.fetch_timeout_ms * MS * 3 // 2

    def _heard_ns(self, role: Leading, key: ReplicaKey) -> int:
        """Return when a voter fetched last; this leader itself always does."""
        if key == self.key:
            return FAR_FUTURE_NS
        progress = role.progress.get(key)
        return role.since_ns if progress is None else max(progress.fetched_ns, role.since_ns)

    def leader_timer(self, role: Leading) -> None:
        """Resign without a majority, answer fetches whose time is over, name the leader to silent voters."""
        if self.now_ns >= self.quorum_deadline(role):
            self.resign_now()
            return
        self.serve_parked(role)
        if self.now_ns >= role.proof_ns:
            role.proof_ns = FAR_FUTURE_NS
        if self.now_ns >= role.begin_ns:
            self._tell_voters(role)

    def on_peer_gone(self, role: Leading) -> None:
        """Resign if the endpoints of a majority of the voters are gone."""
        reachable = sum(voter.key == self.key or voter.address not in self.gone for voter in self.voters)
        if reachable < self.voters.majority:
            self.resign_now()

    # -- appends --

    def append_leader(self, records: Sequence[bytes]) -> tuple[int, int]:
        """Append one batch of metadata records; return its first and last offset. See ``RaftNode.append``."""
        role = self.role
        if not isinstance(role, Leading):
            raise NotControllerError("this node does not lead the metadata quorum")
        placed = self.storage.append_records(records, self.epoch, self.clock.wall_ms())
        self.after_append(role)
        return placed

    def change_voters(self, voters: VoterSet) -> int:
        """Append a set of voters, which is in force at once. Return its offset."""
        return self.append_control([voters_entry(voters)])
