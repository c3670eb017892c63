"""Followers and observers: fetch, append, truncate on the leader's evidence, install snapshots."""

from __future__ import annotations

from typing import Final

from pyreplog.errors import CorruptError, StorageError
from pyreplog.ports import Address
from pyreplog.quorum.effects import SnapshotInstalled
from pyreplog.quorum.elections import Elections
from pyreplog.quorum.node_state import MS
from pyreplog.quorum.states import Campaign, Following, LostLeader, SnapshotFetch, Unattached
from pyreplog.wire import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NO_ID,
    EpochEndOffset,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchSnapshotPartition,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopic,
    FetchTopic,
    PartitionData,
    ReplicaState,
    SnapshotId,
)

__all__ = ["Followers"]

_STALLED_MS: Final = 1000
"""The pause of a follower without room on its disk."""
_DISCOVERY_MAX_MS: Final = 200
"""The longest pause of an observer that looks for the leader."""


class Followers(Elections):
    """The part of a node that follows."""

    # -- asking --

    def fetch(self) -> None:
        """Fetch from the leader, unless a request is outstanding or a pause has not ended."""
        role = self.role
        if not isinstance(role, Following) or role.request_id is not None or self.now_ns < role.retry_ns:
            return
        if role.snapshot is not None:
            self._fetch_snapshot(role, role.snapshot)
            return
        role.request_id = self._send_fetch(role.address, role.session_id)

    def _send_fetch(self, address: Address, session_id: int) -> int:
        storage = self.storage
        part = FetchPartition(
            0,
            self.epoch,
            storage.end_offset,
            storage.last_epoch,
            storage.start_offset,
            self.config.fetch_max_bytes,
            self.fetching_directory(),
            self.high_watermark,
        )
        body = FetchRequest(
            self.config.fetch_max_wait_ms,
            0,
            [FetchTopic(METADATA_TOPIC_ID, [part])],
            ReplicaState(self.identity.node_id),
            self.config.fetch_max_bytes,
            session_id=session_id,
            cluster_id=self.identity.cluster_id,
        )
        return self.request("fetch", address, body)

    def fetching_directory(self) -> str:
        """Return the directory id for a fetch. A voter that is not whole fetches without, and does not count."""
        return self.identity.directory_id if self.voter_failure is None else NO_ID

    def follower_timer(self, role: Following) -> None:
        """Notice a silent leader, and end pauses."""
        if self.now_ns >= role.deadline_ns:
            if self.may_campaign:
                self.begin_pre_vote(role.leader_id, role.address)
            else:
                self.become_unattached(self.epoch)
            return
        self.fetch()

    def discover(self, role: Unattached) -> None:
        """Ask one of the voters for the leader."""
        if self.may_campaign or self.now_ns < role.deadline_ns:
            return
        addresses = [voter.address for voter in self.voters if voter.address not in (None, self.endpoint)]
        known = [address for address in addresses if address is not None] or list(self.config.bootstrap)
        pause = min(self.config.retry_backoff_ms << min(role.tries, 8), _DISCOVERY_MAX_MS)
        role.deadline_ns = self.now_ns + pause * MS
        if known:
            role.tries += 1
            self._send_fetch(known[self.random.randrange(len(known))], 0)

    def back_off(self, pause_ms: int) -> None:
        """Pause before the next fetch."""
        if isinstance(self.role, Following):
            self.role.retry_ns = self.now_ns + pause_ms * MS

    # -- answers --

    def on_fetch_answer(self, body: FetchResponse) -> None:
        """Take the leader's answer: records, a divergence, a snapshot, or news about the leader."""
        role = self.role
        if isinstance(role, Following):
            role.request_id = None
        if body.error_code or not body.responses:
            self.back_off(self.config.retry_backoff_ms)
            return
        data = body.responses[0].partitions[0]
        leader = data.current_leader
        if leader is not None and self.hear_of_leader(leader.leader_epoch, leader.leader_id, body.node_endpoints):
            return
        if not isinstance(role, Following):
            return
        if leader is not None and leader.leader_epoch != self.epoch:
            self.back_off(self.config.retry_backoff_ms)
            return
        if data.error_code:
            self._refused(data.error_code)
            return
        role.deadline_ns = self.now_ns + self.config.fetch_timeout_ms * MS
        role.has_fetched = True
        role.session_id = body.session_id
        self._take(role, data)
        if self.role is role:
            self.mind_own_vote(role)
            self.fetch()

    def mind_own_vote(self, role: Following) -> None:
        """Send a request about this node's own vote, if there is reason for it."""

    def _refused(self, code: int) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self.is_voter:
            # The leader has this voter's word for more than this log holds.
            self.storage.note_failure("the log ends below an offset that this voter had acknowledged")
        self.back_off(self.config.retry_backoff_ms)

    def _take(self, role: Following, data: PartitionData) -> None:
        if data.diverging_epoch is not None:
            self.truncate_diverging(data.diverging_epoch)
        elif data.snapshot_id is not None and data.snapshot_id.end_offset >= 0:
            if self.may_install(data.snapshot_id):
                self.storage.begin_install(data.snapshot_id)
                role.snapshot = SnapshotFetch(data.snapshot_id)
            else:
                self.back_off(self.config.retry_backoff_ms)
        elif self._append(data):
            self.take_high_watermark(data.high_watermark)

    def _append(self, data: PartitionData) -> bool:
        records = data.records
        if not records:
            return True
        try:
            self.take_control(self.storage.append_fetched(bytes(records)))  # type: ignore[arg-type]
        except CorruptError:
            # The answer was damaged on the way, or is not for this log any more.
            self.back_off(self.config.retry_backoff_ms)
            return False
        except StorageError:
            if self.storage.failure is not None:
                raise
            self.back_off(_STALLED_MS)
            return False
        return True

    def take_high_watermark(self, leader_high_watermark: int) -> None:
        """Take over the leader's high watermark, as far as this log reaches."""
        self.raise_high_watermark(min(leader_high_watermark, self.storage.flushed_offset))
        self.note_voter()

    def note_voter(self) -> None:
        """Keep that this node was a voter once, when that is committed: it will not join by itself again."""
        if self.is_voter and not self.storage.was_voter and self.voter_history[-1].offset < self.high_watermark:
            self.storage.note_voter()

    def truncate_diverging(self, theirs: EpochEndOffset) -> None:
        """Truncate to the end of the greatest common epoch that the leader's answer allows."""
        target = self.divergence_target(theirs.epoch, theirs.end_offset)
        if target < max(self.high_watermark, self.storage.committed_offset):
            reason = f"the leader's log diverges at {target}, below the high watermark {self.high_watermark}"
            self.fail(CorruptError(reason))
            return
        self.truncate(target)

    def divergence_target(self, epoch: int, end_offset: int) -> int:
        """Return the offset to truncate to, if ``epoch`` is the leader's greatest that is not above ours."""
        end = self.storage.end_offset
        own = self.storage.end_offset_for(epoch)
        if own.start_offset < 0:
            return min(end_offset, end)
        if own.epoch != epoch:
            return min(own.start_offset, end)
        return min(own.start_offset, end_offset, end)

    # -- snapshots --

    def may_install(self, snapshot_id: SnapshotId) -> bool:
        """Return whether a snapshot is newer than this log, which it replaces: records that this
        voter acknowledged are not dropped for older ones."""
        storage = self.storage
        return (snapshot_id.epoch, snapshot_id.end_offset) > (storage.last_epoch, storage.end_offset)

    def _fetch_snapshot(self, role: Following, wanted: SnapshotFetch) -> None:
        part = FetchSnapshotPartition(0, self.epoch, wanted.snapshot_id, wanted.position, self.fetching_directory())
        body = FetchSnapshotRequest(
            [FetchSnapshotTopic(METADATA_TOPIC, [part])],
            self.identity.cluster_id,
            self.identity.node_id,
            self.config.fetch_max_bytes,
        )
        role.request_id = self.request("fetch_snapshot", role.address, body)

    def on_snapshot_answer(self, body: FetchSnapshotResponse) -> None:
        """Take a piece of the leader's snapshot."""
        role = self.role
        if not isinstance(role, Following):
            return
        role.request_id = None
        if body.error_code or not body.topics:
            self.back_off(self.config.retry_backoff_ms)
            return
        part = body.topics[0].partitions[0]
        leader = part.current_leader
        if leader is not None and self.hear_of_leader(leader.leader_epoch, leader.leader_id, body.node_endpoints):
            return
        wanted = role.snapshot
        if wanted is None:
            return
        data = bytes(part.unaligned_records)  # type: ignore[arg-type]
        if part.error_code or part.snapshot_id != wanted.snapshot_id or part.position != wanted.position:
            role.snapshot = None  # ask with a fetch which snapshot there is now
            self.back_off(self.config.retry_backoff_ms)
            return
        role.deadline_ns = self.now_ns + self.config.fetch_timeout_ms * MS
        role.has_fetched = True
        self.storage.install(wanted.position, data)
        wanted.position += len(data)
        if wanted.position >= part.size:
            role.snapshot = None
            self._end_install(wanted.snapshot_id)
        elif not data:
            role.snapshot = None
            self.back_off(self.config.retry_backoff_ms)
        self.fetch()

    def _end_install(self, snapshot_id: SnapshotId) -> None:
        try:
            self.storage.end_install()
        except CorruptError:
            self.back_off(self.config.retry_backoff_ms)
            return
        self.load_voters()
        self.out.append(SnapshotInstalled(snapshot_id))
        self.raise_high_watermark(snapshot_id.end_offset)
        self.note_voter()

    # -- the end of a leader --

    def on_leader_gone(self, address: Address) -> None:
        """React to the end of an endpoint, if it was the leader's: no timer has to expire."""
        role = self.role
        gone = isinstance(role, Following) and role.address == address
        if gone:
            until = self.now_ns + self.config.fetch_timeout_ms * MS
            self.lost_leader = LostLeader(address, self.epoch, until)
        if isinstance(role, Campaign) and role.address == address:
            role.leader_id = role.address = None
        if gone:
            self.become_unattached(self.epoch, self.leader_gone_deadline() if self.may_campaign else None)
            self.election_due()
