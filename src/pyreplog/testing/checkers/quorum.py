"""Checkers of the metadata quorum and of its answers: S15, S16, S17."""

from __future__ import annotations

from collections.abc import Mapping

from pyreplog.controller import CONTROLLER_PREFIX, MISSING, MetadataImage, PartitionImage, PartitionKey
from pyreplog.testing.checkers.base import Checker
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.wire import (
    NO_ERROR,
    NO_ID,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CreateTopicsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    RegisterBrokerRecord,
    Request,
    Response,
    TopicRecord,
    UnknownMetadataRecord,
    VoteRequest,
    VoteResponse,
    decode_record,
)

__all__ = ["AnswersCommitted", "CommittedMetadataKept", "MembersRegistered", "MetadataHistory"]

_Life = tuple[int, int]
"""(node id, number of its start)."""


class MetadataHistory:
    """Every metadata record that was ever committed on a server, and their content."""

    def __init__(self) -> None:
        self.records: dict[int, object] = {}
        self.ends: dict[int, int] = {}
        """The end of the committed records, by the epoch in which it was first seen."""
        self.topics: dict[str, None] = {}
        """The ids of all topics that were ever created."""
        self.broker_epochs: dict[int, None] = {}
        self.partition_epochs: dict[PartitionKey, int] = {}
        self.leader_epochs: dict[PartitionKey, int] = {}
        self._image = MetadataImage()
        self._positions: dict[_Life, int] = {}

    def has_topic(self, topic_id: str) -> bool:
        """Return whether a topic exists by the records so far."""
        return topic_id in self._image.topics

    def follow(self, machine: ObservedNode) -> str:
        """Take in the new committed records of a machine's server; return the first difference from those of other
        servers, else an empty text."""
        server = machine.server
        if server is None or server.failure is not None:
            return ""
        raft, life = server.raft, (machine.node_id, machine.starts)
        position = max(self._positions.get(life, 0), raft.storage.start_offset)
        if raft.high_watermark <= position:
            return ""
        self._positions[life] = raft.high_watermark
        for offset, found in raft.read_committed(position):
            record = found if isinstance(found, tuple) else bytes(found)
            known = self.records.setdefault(offset, record)
            if known != record:
                return f"node {machine.node_id} has committed {record!r} at offset {offset}, where {known!r} was"
            if offset > self._image.offset:
                self.ends[raft.epoch] = offset + 1
                self._take(offset, record)
        return ""

    def _take(self, offset: int, record: object) -> None:
        decoded = decode_record(record) if isinstance(record, bytes) else None
        if decoded is None or isinstance(decoded, UnknownMetadataRecord):
            self._image.offset = offset
            return
        self._image.apply(offset, decoded)
        if isinstance(decoded, TopicRecord):
            self.topics[decoded.topic_id] = None
        elif isinstance(decoded, RegisterBrokerRecord):
            self.broker_epochs[offset] = None
        topic_id, number = getattr(decoded, "topic_id", None), getattr(decoded, "partition_id", None)
        if topic_id is not None and number is not None:
            partition = self._image.partition((topic_id, number))
            if partition is not None:
                self.partition_epochs[topic_id, number] = partition.partition_epoch
                self.leader_epochs[topic_id, number] = partition.leader_epoch


class CommittedMetadataKept(Checker):
    """Checks that the committed records of a metadata quorum stay.

    One incarnation of one server leads in one epoch, and has every committed record of earlier ones. A voter votes
    for one candidate in one epoch. The same record is at the same offset of all servers once it is committed, and no
    server lowers its high watermark.
    """

    numbers = ("S15",)
    says = "committed metadata stays, and one voter leads in one epoch"

    def __init__(self) -> None:
        self._history = MetadataHistory()
        self._leaders: dict[int, _Life] = {}
        self._watermarks: dict[_Life, int] = {}
        self._asked: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._votes: dict[tuple[int, str, int], int] = {}

    def server_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check the server of a machine after its turn."""
        server = machine.server
        if server is None or server.failure is not None:
            return
        raft, life = server.raft, (machine.node_id, machine.starts)
        if raft.is_leader:
            self._check_leader(world, machine)
        if raft.is_voter and raft.role_name in ("candidate", "leader"):
            self._note_vote(world, machine, raft.epoch, machine.node_id)
        if raft.high_watermark < self._watermarks.get(life, -1):
            about = f"node {machine.node_id} lowered its high watermark from {self._watermarks[life]}"
            world.broken("S15", f"{about} to {raft.high_watermark}")
        self._watermarks[life] = raft.high_watermark
        difference = self._history.follow(machine)
        if difference:
            world.broken("S15", difference)

    def _check_leader(self, world: ObservedWorld, machine: ObservedNode) -> None:
        assert machine.server is not None
        raft, life = machine.server.raft, (machine.node_id, machine.starts)
        known = self._leaders.get(raft.epoch)
        if known == life:
            return
        if known is not None:
            world.broken("S15", f"epoch {raft.epoch}: nodes {known} and {life} lead")
        self._leaders[raft.epoch] = life
        end = max((end for epoch, end in self._history.ends.items() if epoch < raft.epoch), default=0)
        if raft.log_end_offset < end:
            about = f"node {machine.node_id} leads in epoch {raft.epoch} with a log that ends at {raft.log_end_offset}"
            world.broken("S15", f"{about}; committed is up to {end}")

    def sent(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """Note the votes."""
        if isinstance(message, Request) and isinstance(message.body, VoteRequest):
            part = message.body.topics[0].partitions[0]
            if not part.pre_vote:
                self._asked[source, target, message.correlation_id] = (part.replica_epoch, part.replica_id)
        elif isinstance(message, Response) and isinstance(message.body, VoteResponse):
            asked = self._asked.pop((target, source, message.correlation_id), None)
            machine = _machine_of(world, source)
            topics = message.body.topics
            if asked and machine is not None and topics and topics[0].partitions[0].vote_granted:
                self._note_vote(world, machine, *asked)

    def _note_vote(self, world: ObservedWorld, machine: ObservedNode, epoch: int, candidate: int) -> None:
        if machine.server is None:
            return
        voter = (machine.node_id, machine.server.raft.key.directory_id, epoch)
        known = self._votes.setdefault(voter, candidate)
        if known != candidate:
            world.broken("S15", f"node {machine.node_id} voted for {known} and for {candidate} in epoch {epoch}")


class AnswersCommitted(Checker):
    """Checks that the answers of a quorum's controller are committed, so that they survive it.

    These are topics, registrations and in-sync sets. A description of partitions must show all that was committed
    when it was asked for, also if the controller that answers was deposed since.
    """

    numbers = ("S16",)
    says = "the answers of a controller are committed"

    def __init__(self) -> None:
        self._history = MetadataHistory()
        self._reads: dict[tuple[str, str, int], dict[PartitionKey, int]] = {}
        """(Source, target, correlation id) -> the leader epochs that were committed then."""

    def server_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Note the records that were committed in the turn, whose answers are shown next."""
        self._history.follow(machine)

    def sent(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """Note a read that goes to a server, and check an answer that leaves one."""
        if type(message) is Request and isinstance(message.body, DescribeTopicPartitionsRequest):
            self._reads[source, target, message.correlation_id] = dict(self._history.leader_epochs)
        if type(message) is not Response or not source.startswith(CONTROLLER_PREFIX):
            return
        if isinstance(message.body, DescribeTopicPartitionsResponse):
            known = self._reads.pop((target, source, message.correlation_id), {})
            stale = self._stale(message.body, known)
            if stale:
                world.broken("S16", f"{source} shows {target} {stale} before it was asked")
            return
        missing = self._missing(message.body)
        if missing:
            world.broken("S16", f"{source} answers {target} with {missing}, which is not committed")

    def _stale(self, body: DescribeTopicPartitionsResponse, known: Mapping[PartitionKey, int]) -> str:
        """Return a committed partition that a description does not show; empty if it shows all, or is a refusal."""
        if any(topic.name is None and topic.error_code != NO_ERROR for topic in body.topics):
            return ""
        shown = {
            (topic.topic_id, part.partition_index): part.leader_epoch
            for topic in body.topics
            for part in topic.partitions
        }
        for key, epoch in known.items():
            if shown.get(key, -1) < epoch and self._history.has_topic(key[0]):
                return f"leader epoch {shown.get(key, 'none')} of {key[0]}-{key[1]}, and {epoch} was committed"
        return ""

    def _missing(self, body: object) -> str:
        """Return the first part of an answer that is not committed; empty if everything is."""
        history = self._history
        if isinstance(body, CreateTopicsResponse):
            for one in body.topics:
                if one.error_code == NO_ERROR and one.topic_id not in (NO_ID, *history.topics):
                    return f"topic {one.name} ({one.topic_id})"
        elif isinstance(body, BrokerRegistrationResponse):
            if body.error_code == NO_ERROR and body.broker_epoch not in history.broker_epochs:
                return f"broker epoch {body.broker_epoch}"
        elif isinstance(body, AlterPartitionResponse) and body.error_code == NO_ERROR:
            for topic in body.topics:
                for part in topic.partitions:
                    known = history.partition_epochs.get((topic.topic_id, part.partition_index), -1)
                    if part.error_code == NO_ERROR and part.partition_epoch > known:
                        return (
                            f"partition epoch {part.partition_epoch} of {topic.topic_id}-{part.partition_index}"
                            f" (committed: {known})"
                        )
        return ""


class MembersRegistered(Checker):
    """Checks that members of an ISR are the incarnations that are registered.

    A broker that is fenced leaves the ISR of every partition that has a leader, and a broker joins an ISR only if its
    leader proposed the incarnation that is registered. Members that were fenced together with their leader stay. A
    member of an ELR that returns stays in it only if its next incarnation stopped in order, or reports its copy, and
    does not call it incomplete for the first time.
    """

    numbers = ("S17",)
    says = "the members of an ISR and of an ELR are the registered incarnations"

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, PartitionImage] = {}
        self._fenced: dict[int, None] = {}
        self._proposed: dict[tuple[PartitionKey, int], dict[int, int]] = {}
        """(Partition, member) -> its proposed broker epoch -> the highest partition epoch of such a proposal."""
        self._eligible: dict[tuple[PartitionKey, int], str] = {}
        """(Partition, member of its ELR) -> the incarnation of the member that was registered."""
        self._registrations: dict[str, BrokerRegistrationRequest] = {}
        self._level = 0
        """The feature level before the present turn."""

    def message(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """Note the in-sync sets that leaders propose, and what brokers register with."""
        if type(message) is Request and isinstance(message.body, BrokerRegistrationRequest):
            self._registrations.setdefault(message.body.incarnation_id, message.body)
        if type(message) is not Request or not isinstance(message.body, AlterPartitionRequest):
            return
        for topic in message.body.topics:
            for proposal in topic.partitions:
                for member in proposal.new_isr_with_epochs:
                    place = ((topic.topic_id, proposal.partition_index), member.broker_id)
                    epochs = self._proposed.setdefault(place, {})
                    known = epochs.get(member.broker_epoch, -1)
                    epochs[member.broker_epoch] = max(known, proposal.partition_epoch)

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Check the members of each partition, and those that joined."""
        fenced = {one.broker_id: None for one in image.brokers.values() if one.fenced}
        fresh = [one for one in fenced if one not in self._fenced]
        self._fenced = fenced
        eligible: dict[tuple[PartitionKey, int], str] = {}
        for name, key, now in world.partitions():
            for member in now.elr:
                incarnation = image.brokers[member].incarnation_id if member in image.brokers else ""
                eligible[key, member] = incarnation
                about = self._unproved(key, member, incarnation, image)
                if about:
                    world.broken("S17", f"{name}: node {member} stays in the ELR {now.elr}, and {about}")
            before = self._partitions.get(key)
            self._partitions[key] = now
            if before is None or min(before.leader, now.leader) < 0 or now.leader_epoch > before.leader_epoch + 1:
                continue
            staying = [one for one in fresh if one in now.isr]
            if staying:
                world.broken("S17", f"{name}: led by {now.leader}, with the fenced {staying} in the ISR {now.isr}")
            if before is now or before.leader_epoch != now.leader_epoch:
                continue
            for member in now.isr:
                if member in before.isr:
                    continue
                registered = image.brokers[member].epoch
                proposed = self._proposed.get((key, member), {})
                if proposed.get(registered, -1) < before.partition_epoch:
                    about = f"{name}: node {member} joins the ISR with broker epoch {registered}"
                    world.broken("S17", f"{about}, and no leader proposed this one: {proposed}")
        self._eligible, self._level = eligible, image.level

    def _unproved(self, key: PartitionKey, member: int, incarnation: str, image: MetadataImage) -> str:
        """Return why the new incarnation of a member of an ELR may not stay there; empty if it may."""
        before, request = self._eligible.get((key, member), incarnation), self._registrations.get(incarnation)
        if before == incarnation or request is None or request.previous_broker_epoch >= 0:
            return ""
        if not self._level:
            return ""  # below level 1 no record says who is a suspect
        ends = {(end.topic_id, end.partition): end for end in request.partition_ends}
        end = ends.get(key)
        if end is None:
            partition = image.partition(key)
            known = partition is not None and partition.suspect_ends.get(member) == MISSING
            return "" if known else "its next incarnation has no copy"
        return "its next incarnation calls its copy incomplete" if end.incomplete and not end.reported else ""


def _machine_of(world: ObservedWorld, address: str) -> ObservedNode | None:
    number = address.removeprefix(CONTROLLER_PREFIX)
    return world.machines.get(int(number)) if number.isdecimal() else None
