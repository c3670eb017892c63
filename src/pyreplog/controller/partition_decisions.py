"""The decisions about partitions: elections, in-sync sets, and the records that state them.

The base of :class:`pyreplog.controller.controller.Controller`, which decides about brokers and
topics. Known-bad variants of ``pyreplog.testing`` override single methods.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyreplog.config import NodeConfig
from pyreplog.controller.alter_partition_check import check_proposal
from pyreplog.controller.election import (
    MISSING,
    Election,
    PartitionDecision,
    UncleanElection,
    change_record,
    elect_longest,
    with_suspects,
)
from pyreplog.controller.image import (
    MetadataImage,
    PartitionImage,
    PartitionKey,
    ReplicaEnd,
    effective_min_isr,
)
from pyreplog.controller.reassignments import completed
from pyreplog.controller.replica_lags import ReplicaLags
from pyreplog.controller.reports import ReplicaReports
from pyreplog.controller.sessions import BrokerSessions
from pyreplog.ports import Random
from pyreplog.wire import (
    NO_LEADER,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopicResult,
    ErrorCode,
    MetadataRecord,
    SuspectReplica,
)

__all__ = ["ELECTION_WAIT_MS", "PartitionDecisions"]

ELECTION_WAIT_MS: Final = 500
"""Milliseconds that an election waits for better candidates.

If replicas restarted uncleanly, it waits for all members of isr and elr. If the controller is new,
it waits for the last leader.
"""
_MS: Final = 1_000_000


class PartitionDecisions:
    """Decide about the partitions of ``image``. One owner."""

    def __init__(self, image: MetadataImage, config: NodeConfig, random: Random, cluster_id: str) -> None:
        self.image = image
        self.config = config
        self.random = random
        self.cluster_id = cluster_id
        self._waiting: dict[PartitionKey, int] = {}
        """Partition -> time (ns) until which its election waits for better candidates."""
        self._records: list[tuple[int, MetadataRecord]] = []
        self._reports = ReplicaReports()
        self._sessions = BrokerSessions(config.session_timeout_ms * _MS)
        self.lags = ReplicaLags(self._sessions, self._reports)
        """Why replicas are out of sync, for descriptions."""

    # -------------------------------------------------------------------------------------- records

    def take(self) -> list[tuple[int, MetadataRecord]]:
        """Return the records written since the last call, with their offsets."""
        records, self._records = self._records, []
        return records

    def _active(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def _write(self, record: MetadataRecord) -> None:
        offset = self.image.offset + 1
        self.image.apply(offset, record)
        self._records.append((offset, record))

    # ----------------------------------------------------------------------------------- partitions

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Decide the in-sync sets that leaders propose.

        Each proposal is decided separately, by compare-and-swap on (leader epoch, partition epoch).
        """
        broker = self.image.brokers.get(request.broker_id)
        registered = self._sessions.is_registered(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch or not registered:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        return AlterPartitionResponse(
            [
                AlterPartitionTopicResult(
                    topic.topic_id, [self._alter(request.broker_id, topic.topic_id, one) for one in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _alter(self, sender: int, topic_id: str, proposal: AlterPartitionData) -> AlterPartitionResult:
        key = (topic_id, proposal.partition_index)
        error = self._validate(sender, key, proposal)
        if error != ErrorCode.NONE:
            return AlterPartitionResult(proposal.partition_index, error)
        partition = self.image.topics[topic_id].partitions[proposal.partition_index]
        isr = tuple(member.broker_id for member in proposal.new_isr_with_epochs)
        after = self._decision(key, partition, isr, (), patient=False)
        if proposal.leader_recovery_state == 0 and partition.recovering:
            after = after._replace(recovered=True)
        joined = tuple(member for member in isr if member not in partition.isr)
        self._change(key, partition, after._replace(cleared=joined))
        partition = self.image.topics[topic_id].partitions[proposal.partition_index]
        return AlterPartitionResult(
            proposal.partition_index,
            0,
            partition.leader,
            partition.leader_epoch,
            partition.isr,
            int(partition.recovering),
            partition.partition_epoch,
        )

    def _validate(self, sender: int, key: PartitionKey, proposal: AlterPartitionData) -> ErrorCode:
        return check_proposal(self.image, sender, key, proposal)

    def elect_uncleanly(self, topic: str, partition: int, *, dry_run: bool = False) -> UncleanElection | None:
        """Elect the live replica with the longest log, even if acknowledged records are lost.

        Only a person may ask for this. Return None if no replica is up or the partition has a
        leader. ``dry_run``: change nothing.
        """
        key = (self.image.topic_ids.get(topic, ""), partition)
        before = self.image.partition(key)
        if before is None or before.leader != NO_LEADER:
            return None
        ends = {member: self._reports.end(member, key) or MISSING for member in before.replicas}
        after = elect_longest(before, ends, self._active)
        if after is None:
            return None
        if not dry_run:
            self._change(key, before, after)
        start = ends[after.leader].end_offset
        end = max((ends[member].end_offset for member in before.replicas if not self._active(member)), default=-1)
        return UncleanElection(after.leader, before.leader_epoch + 1, start, end if end > start else -1)

    def elect_preferred(self, key: PartitionKey) -> ErrorCode:
        """Elect the first replica of the assignment if it is in sync."""
        partition = self.image.partition(key)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            return ErrorCode.ELECTION_NOT_NEEDED
        if partition.leader == NO_LEADER or preferred not in partition.isr or not self._active(preferred):
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        self._change(key, partition, PartitionDecision(partition.isr, partition.elr, preferred))
        return ErrorCode.NONE

    def ends_are_known(self, key: PartitionKey) -> bool:
        """Return whether every live replica reported its end. If there is no such partition, or it
        has a leader, none is needed."""
        partition = self.image.partition(key)
        if partition is None or partition.leader != NO_LEADER:
            return True
        return not any(self._active(one) and self._reports.end(one, key) is None for one in partition.replicas)

    # ------------------------------------------------------------------------------------- deciding

    def _elect_or_keep_leader(
        self,
        key: PartitionKey,
        now_ns: int,
        *,
        without: Collection[int] = (),
        lost: int = -1,
        suspected: tuple[SuspectReplica, ...] = (),
        patient: bool = True,
    ) -> None:
        """Bring a partition to its next state: keep its leader or elect one.

        ``without`` leave the in-sync set. ``lost`` may lack committed records and leaves isr and
        elr. ``suspected`` are suspects from now on.
        """
        partition = self.image.partition(key)
        if partition is None:
            return  # deleted while its election waited
        isr = tuple(member for member in partition.isr if member not in without)
        known = partition._replace(suspects=with_suspects(partition.suspects, suspected))
        after = self._decision(key, known, isr, () if lost < 0 else (lost,), patient=patient)
        self._change(key, partition, after._replace(suspected=suspected))
        if after.waits:
            self._waiting.setdefault(key, now_ns + ELECTION_WAIT_MS * _MS)

    def _decision(
        self,
        key: PartitionKey,
        partition: PartitionImage,
        isr: tuple[int, ...],
        lost: tuple[int, ...],
        *,
        patient: bool,
    ) -> PartitionDecision:
        election = Election(
            partition,
            effective_min_isr(self.image.topics[key[0]], partition),
            self._active,
            partition.suspect_ends,
            self._ends_that_cannot_grow(key, partition),
            tuple(member for member in partition.replicas if self._is_damaged(key, member)),
        )
        return election.decide(isr, lost=lost, patient=patient)

    def _ends_that_cannot_grow(self, key: PartitionKey, partition: PartitionImage) -> dict[int, ReplicaEnd]:
        """Return the ends of the copies that cannot have grown since they were reported.

        These are the copies of brokers that started while the partition had no leader, because they
        had no leader to fetch from. A broker that kept running may have fetched more from the old
        leader after its report.
        """
        if not partition.last_known_elr:
            return {}
        began = [member for member in partition.replicas if self._sessions.began(member)]
        return {member: end for member in began if (end := self._reports.end(member, key)) is not None}

    def _change(self, key: PartitionKey, before: PartitionImage, after: PartitionDecision) -> None:
        after = completed(before, after, self._active)
        record = change_record(key, before, after)
        if record is not None:
            self._write(record)
        if after.leader == NO_LEADER and before.leader != NO_LEADER:
            running = [member for member in before.replicas if self._sessions.is_registered(member)]
            self._reports.leader_lost(key, self.image.offset, running)
        if after.leader != NO_LEADER:
            self._reports.leader_found(key)
            self._waiting.pop(key, None)

    def _is_damaged(self, key: PartitionKey, broker_id: int) -> bool:
        return self._reports.is_damaged(key, self.image.brokers.get(broker_id))
