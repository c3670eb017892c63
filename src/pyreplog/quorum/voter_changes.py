"""Changes of the voters, one at a time: add, remove, update (KIP-853), and a node's wish to join by itself."""

from __future__ import annotations

from typing import Final

from pyreplog.errors import InvalidRequestError, StorageError
from pyreplog.quorum.leading import Leaders
from pyreplog.quorum.node_state import MS
from pyreplog.quorum.states import Following, Leading, VoterChange
from pyreplog.quorum.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet, endpoint_of
from pyreplog.wire import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    CurrentLeader,
    ErrorCode,
    KRaftVersionFeature,
    QuorumEndpoint,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    Request,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

__all__ = ["VoterChanges"]

_RECENT_MS: Final = 3_600_000
"""A voter that is added must have fetched within this."""


class VoterChanges(Leaders):
    """The part of a node that changes the voters."""

    # -- requests --

    def on_add_voter(self, request: Request, body: AddRaftVoterRequest) -> None:
        """Make an observer a voter, after it has caught up."""
        voter = Voter(
            body.voter_id,
            body.voter_directory_id,
            tuple(VoterEndpoint(one.name, one.host, one.port) for one in body.listeners),
        )
        timeout_ms = body.timeout_ms if body.timeout_ms > 0 else self.config.add_voter_timeout_ms
        change = VoterChange(
            "add",
            request.source,
            request.correlation_id,
            voter,
            self.now_ns + timeout_ms * MS,
            self.storage.end_offset,
            early=not body.ack_when_committed,
        )
        refusal = self._refusal(change, body.cluster_id)
        if refusal is None and self.voters.get(body.voter_id) is not None:
            refusal = ErrorCode.DUPLICATE_VOTER, f"node {body.voter_id} is a voter already"
        self._begin(change, refusal)

    def on_remove_voter(self, request: Request, body: RemoveRaftVoterRequest) -> None:
        """Take the vote from a voter, also from this leader."""
        key = ReplicaKey(body.voter_id, body.voter_directory_id)
        change = VoterChange(
            "remove",
            request.source,
            request.correlation_id,
            Voter(*key, ()),
            self.now_ns + self.config.add_voter_timeout_ms * MS,
            0,
        )
        refusal = self._refusal(change, body.cluster_id)
        if refusal is None and key not in self.voters:
            refusal = ErrorCode.VOTER_NOT_FOUND, f"node {key.node_id} with directory {key.directory_id} is no voter"
        if refusal is None:
            refusal = self._costs_majority(key)
        self._begin(change, refusal)

    def on_update_voter(self, request: Request, body: UpdateRaftVoterRequest) -> None:
        """Change the endpoints of a voter."""
        feature = body.kraft_version_feature
        voter = Voter(
            body.voter_id,
            body.voter_directory_id,
            tuple(VoterEndpoint(one.name, one.host, one.port) for one in body.listeners),
            feature.min_supported_version,
            feature.max_supported_version,
        )
        change = VoterChange(
            "update",
            request.source,
            request.correlation_id,
            voter,
            self.now_ns + self.config.add_voter_timeout_ms * MS,
            0,
        )
        refusal = self._refusal(change, body.cluster_id)
        if refusal is None and body.current_leader_epoch != self.epoch:
            refusal = ErrorCode.FENCED_LEADER_EPOCH, f"the epoch is {self.epoch}"
        if refusal is None and voter.key not in self.voters:
            refusal = ErrorCode.VOTER_NOT_FOUND, f"node {voter.node_id} is no voter"
        if refusal is None and self.voters.get(voter.node_id) == voter:
            self.answer_change(change, 0, None)
            return
        self._begin(change, refusal)

    # -- rules --

    def may_change_voters(self, role: Leading) -> bool:
        """Return whether a change may begin.

        A record of this epoch is committed, and so is the last set of voters (one change at a time).
        """
        committed = self.high_watermark
        return committed > role.epoch_start and self.voter_history[-1].offset < committed and role.change is None

    def _refusal(self, change: VoterChange, cluster_id: str | None) -> tuple[int, str] | None:
        role = self.role
        if cluster_id is not None and cluster_id != self.identity.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID, f"the cluster is {self.identity.cluster_id}"
        if not isinstance(role, Leading):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the metadata quorum"
        if not self.may_change_voters(role):
            return ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is not committed yet: try again"
        return None

    def _costs_majority(self, key: ReplicaKey) -> tuple[int, str] | None:
        """Refuse to remove a voter that the remaining majority needs."""
        try:
            rest = self.voters.remove(key)
        except InvalidRequestError as error:
            return ErrorCode.INVALID_REQUEST, str(error)
        alive = sum(self._is_alive(voter.key) for voter in rest)
        if alive < rest.majority:
            reason = f"only {alive} of the {len(rest)} voters that would remain are up"
            return ErrorCode.INVALID_REQUEST, f"{reason}: a majority is {rest.majority}"
        return None

    def _is_alive(self, key: ReplicaKey) -> bool:
        role = self.role
        if key == self.key:
            return True
        voter = self.voters.get(key.node_id)
        if not isinstance(role, Leading) or voter is None or voter.address in self.gone:
            return False
        progress = role.progress.get(key)
        limit = self.config.fetch_timeout_ms * MS * 3 // 2
        return progress is not None and progress.offset >= 0 and self.now_ns - progress.fetched_ns <= limit

    # -- the course of a change --

    def _begin(self, change: VoterChange, refusal: tuple[int, str] | None) -> None:
        role = self.role
        if refusal is not None or not isinstance(role, Leading):
            code, text = refusal or (ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
            self.answer_change(change, int(code), text)
            return
        role.change = change
        self.go_on(role, change)

    def go_on(self, role: Leading, change: VoterChange) -> None:
        """Append the new set of voters if the change is ready for it."""
        if change.offset >= 0 or (change.kind == "add" and not self._has_caught_up(role, change)):
            return
        try:
            change.offset = self.change_voters(self._changed(change))
        except StorageError:
            if self.storage.failure is not None:
                raise
            role.change = None
            self.answer_change(change, ErrorCode.KAFKA_STORAGE_ERROR, "the leader's disk has no room for the change")
            return
        if change.early:
            self.answer_change(change, 0, None)
        self.after_append(role)

    def _changed(self, change: VoterChange) -> VoterSet:
        if change.kind == "add":
            return self.voters.add(change.voter)
        return self.voters.remove(change.voter.key) if change.kind == "remove" else self.voters.update(change.voter)

    def _has_caught_up(self, role: Leading, change: VoterChange) -> bool:
        progress = role.progress.get(change.voter.key)
        return (
            progress is not None
            and progress.offset >= change.target
            and self.clock.wall_ms() - progress.fetched_ms <= _RECENT_MS
        )

    def after_commit(self, role: Leading) -> None:
        """Finish a change whose set of voters is committed. A leader that is no voter any more resigns."""
        super().after_commit(role)
        change = role.change
        if change is not None:
            self.go_on(role, change)
            if self.role is role and role.change is change and 0 <= change.offset < self.high_watermark:
                role.change = None
                self.answer_change(change, 0, None)
        if self.role is not role:
            return
        if self.key not in self.voters and self.voter_history[-1].offset < self.high_watermark:
            self.resign_now()
            return
        own = self.voters.get(self.identity.node_id)
        if own is not None and own.key == self.key and own.address != self.endpoint and self.may_change_voters(role):
            self._update_own(role, own)

    def _update_own(self, role: Leading, own: Voter) -> None:
        """Change this leader's own endpoint in the set of voters."""
        try:
            self.change_voters(self.voters.update(own._replace(endpoints=(endpoint_of(self.endpoint),))))
        except StorageError:
            if self.storage.failure is not None:
                raise
            return
        self.after_append(role)

    def leader_timer(self, role: Leading) -> None:
        """Give up a change whose time is over."""
        change = role.change
        if change is not None and self.now_ns >= change.deadline_ns:
            if change.offset < 0:
                role.change = None
            self.answer_change(
                change, ErrorCode.REQUEST_TIMED_OUT, f"the {change.kind} of voter {change.voter.node_id} took too long"
            )
        super().leader_timer(role)

    def drop_change(self, change: VoterChange) -> None:
        """Answer the request for a change that this leader cannot finish."""
        self.answer_change(
            change, ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader resigned before the change was committed"
        )

    def answer_change(self, change: VoterChange, code: int, text: str | None) -> None:
        """Answer the request for a change, once."""
        if change.answered:
            return
        change.answered = True
        body: AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateRaftVoterResponse
        if change.kind == "add":
            body = AddRaftVoterResponse(int(code), text)
        elif change.kind == "remove":
            body = RemoveRaftVoterResponse(int(code), text)
        else:
            body = UpdateRaftVoterResponse(int(code), CurrentLeader(self.known_leader(), self.epoch))
        self.answer(change.source, change.correlation_id, body)

    # -- a node's own vote --

    def on_change_answer(self) -> None:
        """Look soon whether the change of this node's own vote is there, or ask again."""
        if isinstance(self.role, Following):
            self.role.change_ns = self.now_ns + self.config.retry_backoff_ms * MS

    def mind_own_vote(self, role: Following) -> None:
        """Tell the leader this voter's new endpoint, or ask once to become a voter, in place of an earlier folder."""
        if self.now_ns < role.change_ns or self.voter_failure is not None:
            return
        own = self.voters.get(self.identity.node_id)
        listeners = [QuorumEndpoint(*endpoint_of(self.endpoint))]
        if own is not None and own.key == self.key and own.address != self.endpoint:
            update = UpdateRaftVoterRequest(
                self.epoch, *self.key, listeners, KRaftVersionFeature(), self.identity.cluster_id
            )
            self.request("update_voter", role.address, update)
        elif own is None and self.config.auto_join and not self.storage.was_voter and self.high_watermark >= 0:
            add = AddRaftVoterRequest(*self.key, listeners, self.identity.cluster_id, self.config.add_voter_timeout_ms)
            self.request("add_voter", role.address, add)
        elif own is not None and own.key != self.key and self.config.auto_replace and not self.storage.was_voter:
            remove = RemoveRaftVoterRequest(*own.key, self.identity.cluster_id)
            self.request("remove_voter", role.address, remove)
        else:
            return
        role.change_ns = self.now_ns + self.config.request_timeout_ms * MS
