"""Elections: pre-votes, votes, and the messages by which a leader begins and ends its epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyreplog.errors import InternalError
from pyreplog.quorum.node_state import MS, NodeState
from pyreplog.quorum.states import Campaign, Following, Leading, PendingRequest, Resigned, Unattached
from pyreplog.quorum.storage import HardState
from pyreplog.quorum.voters import ReplicaKey, VoteResult, address_of, vote_result
from pyreplog.wire import (
    METADATA_TOPIC,
    BeginQuorumEpochPartitionResult,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    BeginQuorumEpochTopicResult,
    EndQuorumEpochPartition,
    EndQuorumEpochPartitionResult,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EndQuorumEpochTopicResult,
    ErrorCode,
    QuorumEndpoint,
    Request,
    VotePartition,
    VotePartitionResult,
    VoteRequest,
    VoteResponse,
    VoteTopic,
    VoteTopicResult,
)

__all__ = ["Elections"]

_RESENDS: Final = 4
"""Votes without an answer are asked for this often within an election timeout."""


class Elections(NodeState):
    """The part of a node that elects."""

    # -- being asked --

    def on_vote(self, request: Request, body: VoteRequest) -> None:
        """Answer a candidate. A granted vote is durable before the answer."""
        part = body.topics[0].partitions[0]
        code = self._vote_error(body, part)
        granted = False
        if not code:
            candidate = ReplicaKey(part.replica_id, part.replica_directory_id)
            last = (part.last_offset_epoch, part.last_offset)
            if part.replica_epoch > self.epoch:
                # Epoch and vote are written together.
                votes = not part.pre_vote and self.grants_vote(candidate, last, part.replica_epoch)
                self.become_unattached(part.replica_epoch, voted=candidate if votes else None)
            if part.pre_vote:
                granted = self.grants_pre_vote(candidate, last)
                if granted:
                    self._wait_for_candidate(self.config.election_timeout_ms // 4)
            else:
                granted = self.grants_vote(candidate, last, self.epoch)
                if granted:
                    self.persist(HardState(self.epoch, -1, candidate))
                    self._wait_for_candidate(self.config.election_timeout_ms)
        result = VotePartitionResult(0, code, self.known_leader(), self.epoch, granted)
        self.answer(
            request.source,
            request.correlation_id,
            VoteResponse([VoteTopicResult(METADATA_TOPIC, [result])], 0, self.node_endpoints()),
        )

    def _vote_error(self, body: VoteRequest, part: VotePartition) -> int:
        if body.cluster_id is not None and body.cluster_id != self.identity.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if (body.voter_id, part.voter_directory_id) != self.key:
            return ErrorCode.INVALID_VOTER_KEY
        if part.replica_epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if not part.pre_vote and part.last_offset_epoch >= part.replica_epoch:
            return ErrorCode.INVALID_REQUEST
        return 0

    def own_last(self) -> tuple[int, int]:
        """Return the epoch of the last record and the end of the log, by which logs are compared."""
        return self.storage.last_epoch, self.storage.end_offset

    def grants_vote(self, candidate: ReplicaKey, last: tuple[int, int], epoch: int) -> bool:
        """Return whether ``candidate``, whose log ends with ``last``, gets this node's vote in ``epoch``, which is
        the present one or a later one."""
        if self.voter_failure is not None:
            return False
        if epoch > self.epoch:
            return last >= self.own_last()
        if self.leader_id is not None:
            return False
        state = self.storage.read_state()
        if state.leader_id >= 0 and state.epoch == self.epoch:
            return False
        if state.epoch == self.epoch and state.voted is not None:
            return state.voted == candidate
        return last >= self.own_last()

    def grants_pre_vote(self, candidate: ReplicaKey, last: tuple[int, int]) -> bool:
        """Return whether this node would vote for ``candidate``, because it knows no living leader itself."""
        if self.voter_failure is not None or isinstance(self.role, Leading):
            return False
        if isinstance(self.role, Following) and self.role.has_fetched:
            return False
        return last >= self.own_last()

    def _wait_for_candidate(self, least_ms: int) -> None:
        """Give the candidate that was granted a vote the time to win."""
        role = self.role
        if isinstance(role, Unattached) and self.may_campaign:
            wait = self.now_ns + least_ms * MS + self.random.randrange(least_ms * MS + 1)
            role.deadline_ns = max(role.deadline_ns, wait)

    def on_begin_epoch(self, request: Request, body: BeginQuorumEpochRequest) -> None:
        """Follow a new leader."""
        part = body.topics[0].partitions[0]
        code = 0
        if body.cluster_id is not None and body.cluster_id != self.identity.cluster_id:
            code = int(ErrorCode.INCONSISTENT_CLUSTER_ID)
        elif (body.voter_id, part.voter_directory_id) != self.key:
            code = int(ErrorCode.INVALID_VOTER_KEY)
        elif part.leader_epoch < self.epoch:
            code = int(ErrorCode.FENCED_LEADER_EPOCH)
        elif part.leader_id == self.identity.node_id:
            code = int(ErrorCode.INVALID_REQUEST)
        elif part.leader_epoch > self.epoch or self.leader_id is None:
            self.become_follower(part.leader_epoch, part.leader_id, self._address_in(body, request.source))
        elif isinstance(self.role, Following) and part.leader_id == self.leader_id:
            self.role.address = self._address_in(body, request.source)  # perhaps it has moved
        result = BeginQuorumEpochPartitionResult(0, code, self.known_leader(), self.epoch)
        self.answer(
            request.source,
            request.correlation_id,
            BeginQuorumEpochResponse([BeginQuorumEpochTopicResult(METADATA_TOPIC, [result])], 0, self.node_endpoints()),
        )

    @staticmethod
    def _address_in(body: BeginQuorumEpochRequest, source: str) -> str:
        endpoints: Sequence[QuorumEndpoint] = body.leader_endpoints
        return address_of(endpoints[0].host, endpoints[0].port) if endpoints else source

    def on_end_epoch(self, request: Request, body: EndQuorumEpochRequest) -> None:
        """Elect a successor of a leader that resigns: the first of its preferred ones at once."""
        part = body.topics[0].partitions[0]
        code = 0
        if body.cluster_id is not None and body.cluster_id != self.identity.cluster_id:
            code = int(ErrorCode.INCONSISTENT_CLUSTER_ID)
        elif part.leader_epoch < self.epoch:
            code = int(ErrorCode.FENCED_LEADER_EPOCH)
        elif part.leader_epoch > self.epoch or (self.leader_id in (None, part.leader_id) and not self.is_leader):
            self.become_unattached(part.leader_epoch, self._successor_deadline(part))
        result = EndQuorumEpochPartitionResult(0, code, self.known_leader(), self.epoch)
        self.answer(
            request.source,
            request.correlation_id,
            EndQuorumEpochResponse([EndQuorumEpochTopicResult(METADATA_TOPIC, [result])], 0, self.node_endpoints()),
        )
        if not code:
            self.election_due()

    def _successor_deadline(self, part: EndQuorumEpochPartition) -> int | None:
        if not self.may_campaign:
            return None
        keys = [ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in part.preferred_candidates]
        place = keys.index(self.key) if self.key in keys else len(keys)
        if place == 0:
            return self.now_ns
        longest = min(self.config.election_backoff_max_ms, self.config.election_backoff_ms << min(place - 1, 16))
        return self.now_ns + longest * MS

    # -- asking --

    def election_due(self) -> None:
        """Begin an election if the time has come."""
        role = self.role
        if isinstance(role, Unattached) and self.may_campaign and self.now_ns >= role.deadline_ns:
            self.begin_pre_vote()

    def begin_pre_vote(self, leader_id: int | None = None, address: str | None = None) -> None:
        """Ask whether a majority would vote for this node. ``leader_id``: the leader that fell silent."""
        if self.voters.is_only(self.key):
            self.begin_vote()
            return
        self._campaign(pre_vote=True, leader_id=leader_id, address=address)

    def begin_vote(self) -> None:
        """Become a candidate in the next epoch."""
        if self.voters.is_only(self.key):
            self.become_leader(self.epoch + 1, [self.key])
            return
        self.persist(HardState(self.epoch + 1, -1, self.key))
        self._campaign(pre_vote=False)

    def _campaign(self, *, pre_vote: bool, leader_id: int | None = None, address: str | None = None) -> None:
        votes: dict[ReplicaKey, bool | None] = dict.fromkeys(self.voters.keys)
        votes[self.key] = True
        self.enter(Campaign(pre_vote, votes, self.election_timeout(), 0, leader_id, address))
        self._ask_voters()

    def _ask_voters(self) -> None:
        """Ask each voter that has not answered."""
        role = self.role
        assert isinstance(role, Campaign), "only a campaign asks"
        role.resend_ns = self.now_ns + self.config.election_timeout_ms * MS // _RESENDS
        epoch, end = self.own_last()
        for voter in self.voters:
            if role.votes.get(voter.key, True) is not None or voter.address is None:
                continue
            part = VotePartition(
                0, self.epoch, self.key.node_id, epoch, end, self.key.directory_id, voter.directory_id, role.pre_vote
            )
            body = VoteRequest([VoteTopic(METADATA_TOPIC, [part])], self.identity.cluster_id, voter.node_id)
            self.request("pre_vote" if role.pre_vote else "vote", voter.address, body, voter.key)

    def on_vote_answer(self, pending: PendingRequest, body: VoteResponse) -> None:
        """Count a vote."""
        if body.error_code or not body.topics:
            return
        part = body.topics[0].partitions[0]
        role = self.role
        if part.leader_epoch > self.epoch:
            self.hear_of_leader(part.leader_epoch, part.leader_id, body.node_endpoints)
            return
        if not isinstance(role, Campaign) or role.pre_vote != (pending.kind == "pre_vote"):
            return
        if pending.epoch != self.epoch or pending.key is None or pending.key not in role.votes:
            return
        role.votes[pending.key] = part.vote_granted and not part.error_code
        news = not part.vote_granted and part.leader_epoch == self.epoch and part.leader_id not in (-1, role.leader_id)
        if not (news and self.hear_of_leader(part.leader_epoch, part.leader_id, body.node_endpoints)):
            self.count_votes(role)

    def count_votes(self, role: Campaign) -> None:
        """Act on the votes so far."""
        result = vote_result([role.votes.get(key) for key in self.voters.keys])
        if result is VoteResult.WON:
            if role.pre_vote:
                self.begin_vote()
            else:
                self.become_leader(self.epoch, [key for key, vote in role.votes.items() if vote])
        elif result is VoteResult.LOST:
            self.lose(role)

    def lose(self, role: Campaign) -> None:
        """Pause after a lost election, or follow the old leader again."""
        if role.leader_id is not None and role.address is not None and not self.is_lost(role.address):
            self.become_follower(self.epoch, role.leader_id, role.address)
        elif role.pre_vote:
            self.become_unattached(self.epoch, self.election_backoff())
        else:
            role.deadline_ns = min(role.deadline_ns, self.election_backoff())
            role.resend_ns = role.deadline_ns

    def campaign_timer(self, role: Campaign) -> None:
        """Ask again, or give up this round."""
        if self.now_ns >= role.deadline_ns:
            if not self.may_campaign:
                self.become_unattached(self.epoch)
            elif role.pre_vote:
                self.lose(role)
            else:
                self.begin_pre_vote()
        elif self.now_ns >= role.resend_ns:
            self._ask_voters()

    def resigned_timer(self, role: Resigned) -> None:
        """Leave the epoch that this node led."""
        if self.now_ns >= role.deadline_ns:
            self.become_unattached(self.epoch + 1, self.leader_gone_deadline() if self.may_campaign else None)
            self.election_due()

    def become_leader(self, epoch: int, granting: Sequence[ReplicaKey]) -> None:
        """Lead ``epoch``."""
        raise InternalError("a part of the machine is missing")
