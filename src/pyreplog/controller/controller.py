"""The controller's decisions: requests in, metadata records out. Sans-IO, deterministic, one owner.

A decision reads the image, which contains *every earlier decision*. It writes its records through
:meth:`Controller._write`, which applies them at once, so no decision is based on state that an
earlier decision has already changed. The caller must make the records durable
(:meth:`Controller.take`) before it sends any answer.

Rules: Kafka's (partition changes, AlterPartition validation in Kafka's order, KIP-903 broker
epochs, KIP-966 eligible leader replicas), the election after unclean starts
(:mod:`pyreplog.controller.election`), and fencing of brokers that are silent for too long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyreplog.config import NodeConfig
from pyreplog.controller.alter_partition_check import check_proposal
from pyreplog.controller.election import (
    MISSING,
    Election,
    PartitionDecision,
    ReplicaEnd,
    UncleanElection,
    change_record,
    elect_longest,
)
from pyreplog.controller.image import (
    LOST_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    PartitionKey,
    effective_min_isr,
)
from pyreplog.controller.reports import ReplicaReports
from pyreplog.controller.sessions import BrokerSession, BrokerSessions
from pyreplog.controller.topics import create_topic
from pyreplog.ports import Random
from pyreplog.wire import (
    NO_LEADER,
    PRODUCER_ID_BLOCK,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopicResult,
    BrokerEndpoint,
    BrokerFeature,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationChangeRecord,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ErrorCode,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicaStatus,
)

__all__ = ["ELECTION_WAIT_MS", "Controller"]

ELECTION_WAIT_MS: Final = 500
"""Milliseconds that an election waits for better candidates.

If replicas restarted uncleanly, it waits for all members of isr and elr. If the controller is new,
it waits for the last leader.
"""
_MS: Final = 1_000_000


@dataclass(slots=True)
class Controller:
    """Make decisions over ``image``. One owner.

    ``suspects``: members of isr or elr that restarted uncleanly and are not known complete since,
    with their ends at registration. They are part of the state that must be made durable.
    """

    image: MetadataImage
    config: NodeConfig
    random: Random
    cluster_id: str
    suspects: dict[PartitionKey, dict[int, ReplicaEnd]] = field(default_factory=dict)
    _waiting: dict[PartitionKey, int] = field(default_factory=dict)
    """Partition -> time (ns) until which its election waits for better candidates."""
    _records: list[tuple[int, MetadataRecord]] = field(default_factory=list)
    _producer_id: int = 1 << 62
    """The next id to hand out. It starts beyond the written block, so a new controller starts a new
    block."""
    _reports: ReplicaReports = field(default_factory=ReplicaReports)
    _sessions: BrokerSessions = field(init=False)

    def __post_init__(self) -> None:
        self._sessions = BrokerSessions(self.config.session_timeout_ms * _MS)

    # -------------------------------------------------------------------------------- the interface

    def start(self, now_ns: int) -> None:
        """Start to decide over a loaded image: fence every broker and remove every leader.

        No broker is known to be alive, and no leader may continue in its old epoch. The in-sync
        sets stay, because no replica can leave one without the agreement of a controller.
        """
        for broker in list(self.image.brokers.values()):
            if not broker.fenced:
                self._write(BrokerRegistrationChangeRecord(broker.broker_id, broker.epoch, fenced=1))
            self._sessions.begin(broker.broker_id, now_ns, registered=False)
        for key, partition in self._partitions():
            if partition.leader != NO_LEADER:
                self._change(key, partition, PartitionDecision(partition.isr, partition.elr, NO_LEADER))

    def take(self) -> list[tuple[int, MetadataRecord]]:
        """Return the records written since the last call, with their offsets."""
        records, self._records = self._records, []
        return records

    def next_deadline_ns(self) -> int | None:
        """Return the time at which :meth:`tick` has work to do if no message arrives before."""
        session = self._sessions.next_timeout_ns()
        return min(self._waiting.values() if session is None else (session, *self._waiting.values()), default=None)

    def tick(self, now_ns: int) -> None:
        """Fence brokers whose session timed out, one by one; end elections that waited long
        enough."""
        for broker_id in self._sessions.time_out(now_ns):
            self._fence(broker_id, now_ns)
        for key in [key for key, until in self._waiting.items() if until <= now_ns]:
            del self._waiting[key]
            self._elect_or_keep_leader(key, now_ns, patient=False)

    def try_again(self, now_ns: int) -> None:
        """Schedule timed decisions again after a failed write of the state.

        The image was reset to the last durable state, so fencing and elections that only the clock
        triggers must become due a second time.
        """
        again = now_ns + ELECTION_WAIT_MS * _MS
        self._sessions.time_out_again(self.image.brokers, again)
        for key, partition in self._partitions():
            if partition.leader == NO_LEADER and (partition.isr or partition.elr):
                self._waiting.setdefault(key, again)

    def extend_sessions(self, stall_ns: int) -> None:
        """Add ``stall_ns`` to every session: the controller's own pause is not silence of a
        broker."""
        self._sessions.extend(stall_ns)

    # -------------------------------------------------------------------------------------- brokers

    def register(self, request: BrokerRegistrationRequest, now_ns: int) -> BrokerRegistrationResponse:
        """Register a starting broker, fenced. Its epoch is the offset of its registration record.

        A repeated request of one incarnation gets the same epoch. If the broker lost data (an
        *incomplete* partition, or one that it should have and does not), it leaves isr and elr by
        records before its registration. So if an image shows both the registration and the broker
        as a member, then *this* incarnation became a member, or an earlier one whose copy it still
        has.
        """
        if request.cluster_id != self.cluster_id:
            return BrokerRegistrationResponse(ErrorCode.INCONSISTENT_CLUSTER_ID)
        known = self.image.brokers.get(request.broker_id)
        session = self._sessions.get(request.broker_id)
        same = known is not None and known.incarnation_id == request.incarnation_id
        if known is not None and not same:
            if session is not None and session.registered and session.alive:
                return BrokerRegistrationResponse(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            self._fence(request.broker_id, now_ns)
        self._reconcile_replicas(request, known, now_ns, same=same)
        began = not same or self._sessions.began(request.broker_id)
        self._sessions.begin(request.broker_id, now_ns, registered=True, began=began)
        if known is not None and same:
            return BrokerRegistrationResponse(broker_epoch=known.epoch)
        epoch = self.image.offset + 1
        self._write(
            RegisterBrokerRecord(
                request.broker_id,
                request.incarnation_id,
                epoch,
                end_points=tuple(
                    BrokerEndpoint(one.name, one.host, one.port, one.security_protocol) for one in request.listeners
                ),
                features=tuple(
                    BrokerFeature(one.name, one.min_supported_version, one.max_supported_version)
                    for one in request.features
                ),
                rack=request.rack,
                log_dirs=_directories(request),
            )
        )
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def _reconcile_replicas(
        self, request: BrokerRegistrationRequest, known: BrokerImage | None, now_ns: int, *, same: bool
    ) -> None:
        """Compare the broker's copies with the copies that the image expects, for each partition.

        A known incarnation keeps its memberships: it never stopped running. If it reports an
        incomplete copy of a partition of which it is a member, it has not yet received its leader's
        confirmation. The same holds for a new incarnation whose copy is marked *reported*. The
        registration that first reported the copy removed it from isr and elr. A leader confirmed it
        since, and no data was lost since; only the process died before it received the
        confirmation. It stays a member, as if it had reported a complete copy.
        """
        broker_id = request.broker_id
        clean = known is not None and request.previous_broker_epoch == known.epoch
        directories = _directories(request)
        same_disk = known is not None and len(directories) > 0 and directories == known.log_dirs
        # Otherwise an absent copy may be a damaged one.
        never_made = same_disk and len(directories) == len(request.log_dirs)
        reported = {(end.topic_id, end.partition): end for end in request.partition_ends}
        self._reports.registered(broker_id, request.partition_ends)
        if same:
            return
        for key, partition in self._partitions():
            if broker_id not in partition.isr and broker_id not in partition.elr:
                continue
            found = reported.get(key)
            led = partition.leader != NO_LEADER
            suspects = self.suspects.get(key, {})
            # A member that never had a copy was not confirmed with the copy that it created since.
            vouched = found is not None and found.reported and same_disk and suspects.get(broker_id) != MISSING
            if (found is not None and found.incomplete and not vouched) or (found is None and not never_made):
                self._elect_or_keep_leader(key, now_ns, lost=broker_id)
            elif found is None or not clean or broker_id in suspects:
                self._suspect(
                    key, broker_id, MISSING if found is None else ReplicaEnd(found.last_epoch, found.end_offset)
                )
                if led:
                    self._elect_or_keep_leader(key, now_ns, without=broker_id)

    def _suspect(self, key: PartitionKey, broker_id: int, end: ReplicaEnd) -> None:
        self.suspects.setdefault(key, {})[broker_id] = end

    def heartbeat(self, request: BrokerHeartbeatRequest, now_ns: int) -> BrokerHeartbeatResponse:
        """Note that a broker is alive.

        Unfence it if it has caught up with its own registration. If it wants to stop, move its
        leaderships and memberships to other brokers.
        """
        broker = self.image.brokers.get(request.broker_id)
        session = self._sessions.get(request.broker_id)
        if broker is None or session is None:
            return BrokerHeartbeatResponse(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if broker.epoch != request.broker_epoch or not session.registered:
            return BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH)
        session.contact_ns = now_ns
        session.alive = True
        session.metadata_offset = max(session.metadata_offset, request.current_metadata_offset)
        self._note_ends(request, now_ns)
        caught_up = request.current_metadata_offset >= broker.epoch
        stop = False
        if broker.fenced:
            stop = request.want_shut_down
            if not stop and not request.want_fence and caught_up and not broker.in_controlled_shutdown:
                self._unfence(broker, now_ns)
        elif request.want_fence:
            stop = request.want_shut_down
            self._fence(request.broker_id, now_ns)
        elif request.want_shut_down:
            if not broker.in_controlled_shutdown:
                self._write(BrokerRegistrationChangeRecord(broker.broker_id, broker.epoch, in_controlled_shutdown=1))
                self._move_away(broker.broker_id, now_ns)
                session.shutdown_offset = self.image.offset
            stop = self._may_stop(broker.broker_id, session)
        if stop:
            self.fence(broker.broker_id, now_ns)
        return BrokerHeartbeatResponse(
            is_caught_up=caught_up, is_fenced=self.image.brokers[broker.broker_id].fenced, should_shut_down=stop
        )

    def _note_ends(self, request: BrokerHeartbeatRequest, now_ns: int) -> None:
        for end in request.partition_ends:
            key = (end.topic_id, end.partition)
            if end.status == ReplicaStatus.DAMAGED:
                self._move_leader_off_damaged(key, request.broker_id, request.broker_epoch)
            elif end.status == ReplicaStatus.RESTORED:
                self._reports.note_restored(key, request.broker_id)
            elif end.status == ReplicaStatus.MISSING:
                self._remove_missing(key, request.broker_id, now_ns)
                self._reports.note_missing(request.broker_id, key)
            elif end.status == ReplicaStatus.OK:
                found = ReplicaEnd(end.last_epoch, end.end_offset)
                self._reports.note_end(request.broker_id, key, found, request.current_metadata_offset)

    def _move_leader_off_damaged(self, key: PartitionKey, broker_id: int, broker_epoch: int) -> None:
        """Note damage in a part of this replica's copy, and move the leadership away from it.

        Another in-sync replica without known damage becomes the leader, if there is one. The
        replica stays in the ISR: it receives new records and may be the last copy.
        """
        partition = self.image.partition(key)
        if partition is None or broker_id not in partition.replicas:
            return
        self._reports.note_damage(key, broker_id, broker_epoch)
        if partition.leader == broker_id and not partition.recovering:
            for member in partition.replicas:
                if member in partition.isr and self._active(member) and not self._is_damaged(key, member):
                    self._change(key, partition, PartitionDecision(partition.isr, partition.elr, member))
                    return

    def _is_damaged(self, key: PartitionKey, broker_id: int) -> bool:
        return self._reports.is_damaged(key, self.image.brokers.get(broker_id))

    def _remove_missing(self, key: PartitionKey, broker_id: int, now_ns: int) -> None:
        """Remove a copy that was found damaged while its broker runs from isr and elr.

        This is the same as at a registration. The broker's epoch does not change, so the partition
        gets a new leader epoch: then no progress that the leader noted for the damaged copy counts
        for the copy that replaces it. The only member is kept: without it the partition could never
        have a leader, and its copy may be repaired.
        """
        before = self.image.partition(key)
        if before is None or before.isr + before.elr == (broker_id,) or broker_id not in before.replicas:
            return
        if broker_id in before.isr or broker_id in before.elr:
            self._elect_or_keep_leader(key, now_ns, lost=broker_id)
        after = self.image.topics[key[0]].partitions[key[1]]
        if after.leader != NO_LEADER and after.leader_epoch == before.leader_epoch:
            self._write(PartitionChangeRecord(key[1], key[0], leader=after.leader))

    def fence(self, broker_id: int, now_ns: int) -> None:
        """Fence an incarnation that is dead or has stopped. Only a new registration admits the
        broker."""
        self._sessions.end(broker_id)
        self._fence(broker_id, now_ns)

    def _fence(self, broker_id: int, now_ns: int) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return
        if not broker.fenced:
            self._write(BrokerRegistrationChangeRecord(broker_id, broker.epoch, fenced=1))
        self._move_away(broker_id, now_ns)

    def _unfence(self, broker: BrokerImage, now_ns: int) -> None:
        self._write(BrokerRegistrationChangeRecord(broker.broker_id, broker.epoch, fenced=-1))
        for key, partition in self._partitions():
            if partition.leader == NO_LEADER and (
                broker.broker_id in partition.isr or broker.broker_id in partition.elr
            ):
                self._elect_or_keep_leader(key, now_ns)

    def _move_away(self, broker_id: int, now_ns: int) -> None:
        """Remove ``broker_id`` from the in-sync set of every partition that has a leader.

        A partition without a leader keeps it: nothing can be committed without it, so its copy
        stays complete.
        """
        for key, partition in self._partitions():
            if partition.leader != NO_LEADER and broker_id in partition.isr:
                self._elect_or_keep_leader(key, now_ns, without=broker_id)

    def _may_stop(self, broker_id: int, session: BrokerSession) -> bool:
        if any(partition.leader == broker_id for _, partition in self._partitions()):
            return False
        return all(
            self._sessions[other.broker_id].metadata_offset >= session.shutdown_offset
            for other in self.image.brokers.values()
            if other.active and other.broker_id != broker_id
        )

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

    def elect_uncleanly(self, topic: str, partition: int) -> UncleanElection | None:
        """Elect the live replica with the longest log, even if acknowledged records are lost.

        Only a person may ask for this. Return None if no replica is up or the partition has a
        leader.
        """
        key = (self.image.topic_ids.get(topic, ""), partition)
        before = self.image.partition(key)
        if before is None or before.leader != NO_LEADER:
            return None
        ends = {member: self._reports.end(member, key) or MISSING for member in before.replicas}
        after = elect_longest(before, ends, self._active)
        if after is None:
            return None
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

    def init_producer_id(self) -> int:
        """Return an unused producer id. The ids are reserved on disk in blocks."""
        if self._producer_id >= self.image.next_producer_id:
            self._producer_id = self.image.next_producer_id
            self._write(ProducerIdsRecord(-1, -1, self._producer_id + PRODUCER_ID_BLOCK))
        found = self._producer_id
        self._producer_id += 1
        return found

    def _elect_or_keep_leader(
        self, key: PartitionKey, now_ns: int, *, without: int = -1, lost: int = -1, patient: bool = True
    ) -> None:
        """Bring a partition to its next state: keep its leader or elect one.

        ``without`` leaves the in-sync set. ``lost`` may lack committed records and leaves isr and
        elr.
        """
        partition = self.image.partition(key)
        if partition is None:
            return  # deleted while its election waited
        isr = tuple(member for member in partition.isr if member != without)
        after = self._decision(key, partition, isr, () if lost < 0 else (lost,), patient=patient)
        self._change(key, partition, after)
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
            self.suspects.get(key, {}),
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
        record = change_record(key, before, after)
        if record is not None:
            self._write(record)
        if after.leader == NO_LEADER and before.leader != NO_LEADER:
            running = [member for member in before.replicas if self._sessions.is_registered(member)]
            self._reports.leader_lost(key, self.image.offset, running)
        if after.leader != NO_LEADER:
            self._reports.leader_found(key)
            self._waiting.pop(key, None)
        suspects = self.suspects.get(key)
        if suspects is not None:
            kept = {
                member: end
                for member, end in suspects.items()
                if member not in after.cleared and (member in after.isr or member in after.elr)
            }
            if kept:
                self.suspects[key] = kept
            else:
                del self.suspects[key]

    # --------------------------------------------------------------------------------------- topics

    def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create each topic separately, or refuse it with a reason."""
        results = []
        for wanted in request.topics:
            records, result = create_topic(self.image, wanted, self.random)
            if not request.validate_only:
                for record in records:
                    self._write(record)
            results.append(result)
        return CreateTopicsResponse(results)

    def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Delete topics by name or by id. Brokers delete their copies when they apply the
        record."""
        results = []
        for wanted in request.topics:
            topic_id = wanted.topic_id if wanted.name is None else self.image.topic_ids.get(wanted.name, "")
            topic = self.image.topics.get(topic_id)
            if topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID if wanted.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                results.append(DeletableTopicResult(wanted.name, wanted.topic_id, error))
                continue
            for number in topic.partitions:
                self.suspects.pop((topic_id, number), None)
                self._reports.removed((topic_id, number), topic.partitions[number])
                self._waiting.pop((topic_id, number), None)
            self._write(RemoveTopicRecord(topic_id))
            results.append(DeletableTopicResult(topic.name, topic_id))
        return DeleteTopicsResponse(results)

    # -------------------------------------------------------------------------------------- helpers

    def _active(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def _partitions(self) -> list[tuple[PartitionKey, PartitionImage]]:
        return [
            ((topic.topic_id, number), found)
            for topic in self.image.topics.values()
            for number, found in topic.partitions.items()
        ]

    def _write(self, record: MetadataRecord) -> None:
        offset = self.image.offset + 1
        self.image.apply(offset, record)
        self._records.append((offset, record))


def _directories(request: BrokerRegistrationRequest) -> tuple[str, ...]:
    """Return the broker's own directory ids, by which it is recognised at its next registration.

    ``LOST_DIRECTORY``, which only says that a copy is damaged now, is left out.
    """
    return tuple(one for one in request.log_dirs if one != LOST_DIRECTORY)
