"""Known-bad rules of the quorum, each overriding one method of :class:`~pyreplog.quorum.RaftNode`.

Give one to a ``QuorumWorld`` or to another harness of the quorum as its ``node_class``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyreplog.quorum import HardState, RaftNode, ReplicaKey

__all__ = ["QUORUM_VARIANTS"]


class CommitsByCounting(RaftNode):
    """A record of an older epoch counts as committed as soon as a majority has it (Raft, figure 8)."""

    def may_commit(self, role: Any, offset: int) -> bool:
        """Return True for every offset."""
        return offset > 0


class VoteNotPersisted(RaftNode):
    """Term and vote are only kept in memory, so a voter that restarts may vote twice in one epoch."""

    def persist(self, state: HardState) -> None:
        """Keep the state until the process ends."""
        kept = getattr(self, "kept_state", None)
        if kept is None:
            self.storage = _Forgetful(self.storage)
            self.kept_state = True
        super().persist(state)


class _Forgetful:
    """A storage that keeps term and vote in memory only."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage
        self.state = storage.read_state()

    def __getattr__(self, name: str) -> Any:
        if name == "storage":
            raise AttributeError(name)
        return getattr(self.storage, name)

    def read_state(self) -> HardState:
        """Return the state that was written last."""
        return self.state  # type: ignore[no-any-return]

    def write_state(self, state: HardState) -> None:
        """Keep ``state`` until the process ends."""
        self.state = state


class VotesTwice(RaftNode):
    """A voter votes for each candidate whose log is long enough, also if it voted in this epoch already."""

    def grants_vote(self, candidate: ReplicaKey, last: tuple[int, int], epoch: int) -> bool:
        """Look at the log alone."""
        return last >= self.own_last()


class AnyLogGetsVote(RaftNode):
    """A voter votes for the first candidate, however short its log is."""

    def grants_vote(self, candidate: ReplicaKey, last: tuple[int, int], epoch: int) -> bool:
        """Look at the vote alone."""
        return super().grants_vote(candidate, (1 << 30, 1 << 62), epoch)


class LeaderCountsUnflushed(RaftNode):
    """The leader does not flush what it appends, and counts itself all the same (Q1)."""

    def append_leader(self, records: Sequence[bytes]) -> Any:
        """Append without the sync."""
        storage: Any = self.storage
        flush = storage._sync
        storage_class = type(storage)

        def skip(this: Any) -> None:
            plan = this._log.sync_plan()
            if plan is not None:
                this._log.synced(plan.upto, plan.generation)

        storage_class._sync = skip
        try:
            return super().append_leader(records)
        finally:
            storage_class._sync = flush.__func__


class ChangesBeforeOwnCommit(RaftNode):
    """A new leader changes the voters before a record of its own epoch is committed (the single-server bug)."""

    def may_change_voters(self, role: Any) -> bool:
        """Only look at the changes of this leader itself."""
        return role.change is None


class TwoChangesAtOnce(RaftNode):
    """A change of the voters may begin before the last one is committed."""

    def may_change_voters(self, role: Any) -> bool:
        """Only ask for a committed record of this epoch."""
        if self.high_watermark > role.epoch_start:
            role.change = None
            return True
        return False


class NoPreVote(RaftNode):
    """A voter whose leader is silent becomes a candidate at once, so a node that was cut off raises the epoch."""

    def begin_pre_vote(self, leader_id: int | None = None, address: str | None = None) -> None:
        """Begin with the vote."""
        self.begin_vote()


class WipedVoterCounts(RaftNode):
    """Voters are known by their node ids alone: one with an empty disk counts for what the old disk had (F51)."""

    def on_vote(self, request: Any, body: Any) -> None:
        """Answer also a request that names the old disk."""
        body.topics[0].partitions[0].voter_directory_id = self.key.directory_id
        super().on_vote(request, body)

    def on_begin_epoch(self, request: Any, body: Any) -> None:
        """Follow also a leader that names the old disk."""
        body.topics[0].partitions[0].voter_directory_id = self.key.directory_id
        super().on_begin_epoch(request, body)

    def progress_of(self, role: Any, key: ReplicaKey) -> Any:
        """Take the progress of any disk of this node."""
        voter = self.voters.get(key.node_id)
        return super().progress_of(role, key if voter is None else voter.key)


class WatermarkRecomputedByVoters(RaftNode):
    """The high watermark is computed without regard to its old value, so a change of the voters may lower it."""

    def raise_high_watermark(self, offset: int) -> bool:
        """Set it."""
        if offset == self.high_watermark:
            return False
        self.high_watermark = min(self.high_watermark, offset)
        return super().raise_high_watermark(offset)


class ProvesAlone(RaftNode):
    """A leader answers reads without asking a majority whether it still leads."""

    def prove(self, token: object) -> None:
        """Say so at once."""
        super().prove(token)
        role: Any = self.role
        for key in self.voters.keys:
            if self.is_leader:
                self.progress_of(role, key).round = role.round
        if self.is_leader:
            self._settle_proofs(role)


class TruncatesOnEqualPrefix(RaftNode):
    """A follower truncates its log to where the fetched records begin, even if it has them already."""

    def _take(self, role: Any, data: Any) -> None:
        if data.records:
            self.truncate(max(self.storage.end_offset - 1, self.storage.start_offset))
        super()._take(role, data)


class TruncatesBelowWatermark(RaftNode):
    """A follower truncates to wherever the leader says, also below what is committed."""

    def truncate_diverging(self, theirs: Any) -> None:
        """Truncate one batch more than needed."""
        target = self.divergence_target(theirs.epoch, theirs.end_offset)
        self.truncate(max(target - 1, self.storage.start_offset))


class LeadsOnInItsEpoch(RaftNode):
    """A restarted leader takes up its epoch again, in which it may have given offsets away that it lost."""

    def begin_pre_vote(self, leader_id: int | None = None, address: str | None = None) -> None:
        """Lead at once, if this node led the epoch."""
        state = self.storage.read_state()
        if state.epoch == self.epoch and state.leader_id == self.key.node_id and self.leader_id is None:
            self.become_leader(self.epoch, [self.key])
        else:
            super().begin_pre_vote(leader_id, address)


class CommitsWithHalf(RaftNode):
    """Half of the voters count as a majority."""

    def update_high_watermark(self, role: Any) -> bool:
        """Take the greatest offset that half of the voters have reached."""
        offsets = sorted((self.offset_of(role, key) for key in self.voters.keys), reverse=True)
        offset = offsets[(len(offsets) - 1) // 2]
        return self.may_commit(role, offset) and self.raise_high_watermark(offset)


class InstallsOverNewer(RaftNode):
    """A follower takes every snapshot that its leader names, also in place of newer records that it acknowledged."""

    def may_install(self, snapshot_id: Any) -> bool:
        """Compare nothing."""
        return True


class NeverResigns(RaftNode):
    """A leader that hears from no majority leads on for ever (KAFKA-15489)."""

    def quorum_deadline(self, role: Any) -> int:
        """Return a time that never comes."""
        return (1 << 63) - 1


QUORUM_VARIANTS: Final[dict[str, type[RaftNode]]] = {
    kind.__name__: kind
    for kind in (
        CommitsByCounting,
        VoteNotPersisted,
        VotesTwice,
        AnyLogGetsVote,
        LeaderCountsUnflushed,
        ChangesBeforeOwnCommit,
        TwoChangesAtOnce,
        NoPreVote,
        WipedVoterCounts,
        WatermarkRecomputedByVoters,
        ProvesAlone,
        TruncatesOnEqualPrefix,
        TruncatesBelowWatermark,
        LeadsOnInItsEpoch,
        CommitsWithHalf,
        InstallsOverNewer,
        NeverResigns,
    )
}
"""The known-bad rules by the names of their classes."""
