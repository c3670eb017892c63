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

from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from pyreplog.config import NodeConfig
from pyreplog.controller.configs import alter_configs
from pyreplog.controller.election import MISSING, PartitionDecision, change_record
from pyreplog.controller.features import LEVEL_LATEST, LEVEL_SUSPECTS, knows_level, update_features
from pyreplog.controller.image import (
    FEATURE,
    LOST_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    PartitionKey,
    ReplicaEnd,
    TopicImage,
    cordon_record,
)
from pyreplog.controller.partition_decisions import ELECTION_WAIT_MS, PartitionDecisions
from pyreplog.controller.partitions import create_partitions
from pyreplog.controller.preferred_leaders import PreferredLeaders
from pyreplog.controller.reassignments import alter_reassignments
from pyreplog.controller.sessions import BrokerSession
from pyreplog.controller.topics import create_topics, delete_topics
from pyreplog.controller.unregister import unregister_broker
from pyreplog.ports import Random
from pyreplog.wire import (
    NO_LEADER,
    PRODUCER_ID_BLOCK,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    BrokerEndpoint,
    BrokerFeature,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationChangeRecord,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ErrorCode,
    FeatureLevelRecord,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicaStatus,
    SuspectReplica,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ["Controller"]

_MS: Final = 1_000_000


class Controller(PartitionDecisions):
    """Make decisions over ``image``. One owner.

    :meth:`take_over` must be the first call.
    """

    feature_level: ClassVar[int] = LEVEL_LATEST
    """The highest level of features that this controller knows."""
    first_level: ClassVar[int] = LEVEL_LATEST
    """The level with which a new cluster begins."""

    def __init__(self, image: MetadataImage, config: NodeConfig, random: Random, cluster_id: str) -> None:
        super().__init__(image, config, random, cluster_id)
        self._producer_id = 1 << 62
        """The next id to hand out. It starts beyond the written block, so a new controller starts a
        new block."""
        self._preferred = PreferredLeaders(config, self._may_lead_again, self.elect_preferred)

    # -------------------------------------------------------------------------------- the interface

    def take_over(self, now_ns: int, gone: Collection[str]) -> None:
        """Start to decide over the image of a running cluster, whose former controller is gone.

        ``gone``: the incarnation ids whose end this process was told of. They are fenced at once.
        Every other broker keeps its leaderships and memberships, and has a whole session from now
        on: its lease from the former controller ends before that.

        What only the former controller knew is not assumed. No report about a copy is known, and no
        incarnation counts as one that began under this controller. A leaderless partition counts
        as leaderless since the end of the image, so only later reports are used, and its election
        waits anew. A broker in controlled shutdown may stop only after all others have applied the
        whole image.
        """
        image = self.image
        self._begin_cluster()
        self._preferred.start(now_ns)
        for broker in image.brokers.values():
            self._sessions.begin(broker.broker_id, now_ns, registered=True)
            session = self._sessions[broker.broker_id]
            # A fenced broker has no lease: another incarnation may replace it without a wait.
            session.alive = not broker.fenced
            if broker.in_controlled_shutdown:
                session.shutdown_offset = image.offset
        for key in image.index.leaderless:
            self._reports.leader_lost(key, image.offset, ())
        self._wait_for_leaders(now_ns + ELECTION_WAIT_MS * _MS)
        ended = [broker for broker in image.brokers.values() if broker.incarnation_id in gone]
        self._fence_together([broker.broker_id for broker in ended], now_ns)
        for broker in list(image.brokers.values()):
            if not broker.active:
                self._move_away(broker.broker_id, now_ns)  # the former controller may have ended in the middle

    def _fence_together(self, broker_ids: Sequence[int], now_ns: int) -> None:
        """Fence brokers whose processes have all ended before now.

        If all members of a partition have ended, all of them stay members, and the best copy leads:
        none could leave the in-sync set without the agreement of a controller. Fenced one after the
        other, only the last would stay.
        """
        index = self.image.index
        for broker_id in broker_ids:
            self._sessions.end(broker_id)
            broker = self.image.brokers[broker_id]
            if not broker.fenced:
                self._write(BrokerRegistrationChangeRecord(broker_id, broker.epoch, fenced=1))
        changed = {key: None for one in broker_ids for key in index.members(one).not_in(index.leaderless)}
        for key in changed:
            partition = self.image.topics[key[0]].partitions[key[1]]
            if any(self._active(member) for member in (*partition.isr, *partition.elr)):
                self._elect_or_keep_leader(key, now_ns, without=broker_ids)
            else:
                self._change(key, partition, PartitionDecision(partition.isr, partition.elr, NO_LEADER))

    def _begin_cluster(self) -> None:
        """Write the first record of a new cluster. A controller that lost it before its commit leaves
        an empty image, over which the next one writes it again."""
        if self.image.is_empty and self.first_level:
            self._write(FeatureLevelRecord(FEATURE, self.first_level))

    def _raise_level(self) -> None:
        """Finalize the highest level that this controller and all registered brokers know, if it is
        above the present one. The records of a converted cluster begin at level 0."""
        level = min(self.feature_level, *(broker.level_max for broker in self.image.brokers.values()))
        if level > self.image.level:
            self._write(FeatureLevelRecord(FEATURE, level))

    def next_deadline_ns(self) -> int | None:
        """Return the time at which :meth:`tick` has work to do if no message arrives before."""
        times = (self._sessions.next_timeout_ns(), self._preferred.next_ns, *self._waiting.values())
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def tick(self, now_ns: int) -> None:
        """Fence brokers whose session timed out, one by one; end elections that waited long
        enough."""
        for broker_id in self._sessions.time_out(now_ns):
            self._fence(broker_id, now_ns)
        for key in [key for key, until in self._waiting.items() if until <= now_ns]:
            del self._waiting[key]
            self._elect_or_keep_leader(key, now_ns, patient=False)
        self._preferred.tick(self.image, now_ns)

    def _may_lead_again(self, key: PartitionKey, partition: PartitionImage, now_ns: int) -> bool:
        """Return whether the preferred replica may take the leadership from a live leader: it is in
        sync, undamaged, and back for a while, so that it does not move twice in a row."""
        preferred = partition.replicas[0]
        session = self._sessions.get(preferred)
        return (
            preferred in partition.isr
            and not partition.recovering
            and self._active(preferred)
            and not self._is_damaged(key, preferred)
            and session is not None
            and now_ns - session.unfenced_ns >= self.config.leader_imbalance_grace_ms * _MS
        )

    def try_again(self, now_ns: int) -> None:
        """Schedule timed decisions again after a failed write of the state.

        The image was reset to the last durable state, so fencing and elections that only the clock
        triggers must become due a second time.
        """
        again = now_ns + ELECTION_WAIT_MS * _MS
        self._sessions.time_out_again(self.image.brokers, again)
        self._wait_for_leaders(again)

    def _wait_for_leaders(self, until_ns: int) -> None:
        """Let every leaderless partition with a member hold an election at ``until_ns``, unless one
        waits already."""
        for key in self.image.index.leaderless:
            partition = self.image.partition(key)
            if partition is not None and (partition.isr or partition.elr):
                self._waiting.setdefault(key, until_ns)

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
        if not knows_level(self.image, request):
            return BrokerRegistrationResponse(ErrorCode.UNSUPPORTED_VERSION)
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
                rack=_rack(request, known),
                log_dirs=_directories(request),
            )
        )
        self._raise_level()
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
        for key in self.image.index.members(broker_id):
            partition = self.image.topics[key[0]].partitions[key[1]]
            found = reported.get(key)
            suspects = partition.suspect_ends
            # A member that never had a copy was not confirmed with the copy that it created since.
            vouched = found is not None and found.reported and same_disk and suspects.get(broker_id) != MISSING
            if (found is not None and found.incomplete and not vouched) or (found is None and not never_made):
                self._elect_or_keep_leader(key, now_ns, lost=broker_id)
            elif self.image.level < LEVEL_SUSPECTS:
                if found is None or not clean:
                    has_copy = found is not None
                    self._reconcile_without_suspects(key, partition, broker_id, now_ns, has_copy=has_copy)
            elif found is None or not clean or broker_id in suspects:
                end = MISSING if found is None else ReplicaEnd(found.last_epoch, found.end_offset)
                suspected = self._suspected(broker_id, end)
                if partition.leader != NO_LEADER:
                    self._elect_or_keep_leader(key, now_ns, without=(broker_id,), suspected=suspected)
                else:
                    same_members = PartitionDecision(partition.isr, partition.elr, NO_LEADER, suspected=suspected)
                    self._change(key, partition, same_members)

    def _reconcile_without_suspects(
        self, key: PartitionKey, partition: PartitionImage, broker_id: int, now_ns: int, *, has_copy: bool
    ) -> None:
        """Judge a member that restarted uncleanly while records cannot call it a suspect.

        As in Kafka before suspects, a copy that its broker calls complete is believed. Then damage
        that recovery did not notice may cost records. A member without a copy leaves both sets,
        unless it is the only one left.
        """
        if not has_copy and partition.isr + partition.elr != (broker_id,):
            self._elect_or_keep_leader(key, now_ns, lost=broker_id)
        elif partition.leader != NO_LEADER:
            self._elect_or_keep_leader(key, now_ns, without=(broker_id,))

    def _suspected(self, broker_id: int, end: ReplicaEnd) -> tuple[SuspectReplica, ...]:
        return (SuspectReplica(broker_id, *end),)

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
        self.lags.note(request.broker_id, request.replica_lags, now_ns)
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
        self._sessions[broker.broker_id].unfenced_ns = now_ns
        index = self.image.index
        for key in index.members(broker.broker_id).also_in(index.leaderless):
            self._elect_or_keep_leader(key, now_ns)

    def _move_away(self, broker_id: int, now_ns: int) -> None:
        """Remove ``broker_id`` from the in-sync set of every partition that has a leader.

        A partition without a leader keeps it: nothing can be committed without it, so its copy
        stays complete.
        """
        index = self.image.index
        for key in index.members(broker_id).not_in(index.leaderless):
            if broker_id in self.image.topics[key[0]].partitions[key[1]].isr:
                self._elect_or_keep_leader(key, now_ns, without=(broker_id,))

    def _may_stop(self, broker_id: int, session: BrokerSession) -> bool:
        if self.image.index.leads(broker_id):
            return False
        return all(
            self._sessions[other.broker_id].metadata_offset >= session.shutdown_offset
            for other in self.image.brokers.values()
            if other.active and other.broker_id != broker_id
        )

    def update_features(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        """Set the levels of features."""
        records, answer = update_features(self.image, request, self.feature_level)
        for record in records:
            self._write(record)
        return answer

    def unregister(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        """Remove the registration of a fenced broker that will not come back."""
        record, answer = unregister_broker(self.image, request.broker_id)
        if record is not None:
            self._write(record)
            if request.broker_id in self.image.cordoned:
                self._write(cordon_record(request.broker_id, cordoned=False))
            self._sessions.end(request.broker_id)
            if self.image.brokers:
                self._raise_level()
        return answer

    def init_producer_id(self) -> int:
        """Return an unused producer id. The ids are reserved on disk in blocks."""
        if self._producer_id >= self.image.next_producer_id:
            self._producer_id = self.image.next_producer_id
            self._write(ProducerIdsRecord(-1, -1, self._producer_id + PRODUCER_ID_BLOCK))
        found = self._producer_id
        self._producer_id += 1
        return found

    # --------------------------------------------------------------------------------------- topics

    def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create each topic separately, or refuse it with a reason."""
        return create_topics(self.image, request, self.random, self._write)

    def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Delete topics by name or by id. Brokers delete their copies when they apply the
        record."""
        return delete_topics(self.image, request, self._remove_topic)

    def _remove_topic(self, topic: TopicImage) -> None:
        for number, partition in topic.partitions.items():
            key = (topic.topic_id, number)
            self._reports.removed(key, partition)
            self.lags.removed(key, partition)
            self._waiting.pop(key, None)
        self._write(RemoveTopicRecord(topic.topic_id))

    def create_partitions(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Add partitions to each topic separately, or refuse it with a reason."""
        return create_partitions(self.image, request, self._write)

    def alter_reassignments(self, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        """Begin, change or cancel the reassignment of each partition separately."""
        return alter_reassignments(self.image, request, self._change, self._active)

    def alter_configs(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        """Change the settings of each topic, or of the cluster, separately, or refuse them with a
        reason."""
        return alter_configs(self.image, request, self._write, self._renew)

    def _renew(self, key: PartitionKey, before: PartitionImage, after: PartitionDecision) -> None:
        """Change a partition, and raise its partition epoch in any case."""
        if change_record(key, before, after) is None:
            self._write(PartitionChangeRecord(key[1], key[0]))
        else:
            self._change(key, before, after)

    def is_alive(self, broker_id: int) -> bool:
        """Return whether the controller hears from a broker that has registered here."""
        return self._sessions.is_alive(broker_id)


def _rack(request: BrokerRegistrationRequest, known: BrokerImage | None) -> str | None:
    """Return the rack of a broker: the one that it names ("": none), else that of its last registration."""
    if request.rack is None:
        return None if known is None else known.rack
    return request.rack or None


def _directories(request: BrokerRegistrationRequest) -> tuple[str, ...]:
    """Return the broker's own directory ids, by which it is recognised at its next registration.

    ``LOST_DIRECTORY``, which only says that a copy is damaged now, is left out.
    """
    return tuple(one for one in request.log_dirs if one != LOST_DIRECTORY)
