"""Admin: create and describe topics, elect leaders, delete records. A polled machine over a
Transport, for which the runtime has a blocking interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyreplog.client.calls import MS, RequestTracker
from pyreplog.client.changes import ClusterChange
from pyreplog.client.lookups import Lookup, created_topic, refusal_of, refused_as_a_whole
from pyreplog.client.outcome import Completion, Owner
from pyreplog.client.router import address_of, backoff_ns
from pyreplog.errors import (
    BrokerNotAvailableError,
    ClusterError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    PyreplogError,
    RequestTimedOutError,
    cluster_error,
)
from pyreplog.ports import Address, Clock, Random, Transport
from pyreplog.values import QuorumInfo, QuorumReplica
from pyreplog.wire import (
    EARLIEST_TIMESTAMP,
    ELECT_PREFERRED,
    ELECT_UNCLEAN,
    LATEST_TIMESTAMP,
    METADATA_TOPIC,
    NO_ERROR,
    RESOURCE_TOPIC,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeQuorumPartition,
    DescribeQuorumPartitionResult,
    DescribeQuorumReplica,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    ErrorCode,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    PartitionFilter,
    RequestBody,
)

__all__ = ["Admin", "Answer"]

_PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals of a deletion after which the client asks for the leader and tries again."""


_NO_CONTROLLER = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Refusals of a description of the quorum that end when a controller is active."""


_NO_NODE_PATIENCE_MS = 1000
"""How long a question is repeated while the controller knows of no live node. A node that is being started is up
sooner."""


class Answer(Completion):
    """The answer to one question. ``value`` is set once settled without error."""

    __slots__ = (
        "_deadline_ns",
        "asked",
        "body",
        "failures",
        "is_looked_up",
        "is_unknown",
        "lookup",
        "no_node_ns",
        "peers",
        "refusal",
        "retriable",
        "value",
        "value_of",
        "what",
    )

    def __init__(
        self,
        owner: Owner | None,
        what: str,
        body: RequestBody,
        peers: Sequence[Address],
        *,
        retriable: bool,
        deadline_ns: int,
        lookup: Lookup | None = None,
        value_of: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(owner)
        self.what = what
        self.body = body
        self.peers = peers
        self.value: Any = None
        self.value_of = value_of
        """Returns the value of an answer, or raises its error. None: the answer is the value."""
        self.failures = 0
        self.asked = False
        """Whether the question was sent, or was about to be."""
        self.lookup = lookup
        self.is_unknown = False
        """Whether it was sent without an answer, and may have been carried out."""
        self.is_looked_up = False
        """Whether the next question is the one of ``lookup``."""
        self.refusal: ClusterError | None = None
        """The refusal of a second copy, if the first one may be the reason."""
        self.no_node_ns = 0
        """When the controller first answered that no node is alive."""
        self.retriable = retriable
        """Whether a second answer has the same effect."""
        self._deadline_ns = deadline_ns

    def answer(self, value: Any) -> None:
        """Settle with ``value``."""
        self.value = value
        self._finish()

    @property
    def may_be_put_again(self) -> bool:
        """Whether the question may be asked again after this one was given up.

        It may if a second answer has the same effect, or if the first question was never sent.
        """
        return self.retriable or not self.asked

    @property
    def next_question(self) -> RequestBody:
        """The question to send next."""
        return self.lookup.question if self.lookup is not None and self.is_looked_up else self.body

    def may_repeat(self, now_ns: int) -> bool:
        """Return whether a question may be sent again: the deadline has not passed, and no second
        copy can do harm, or a look-up shows it before."""
        if now_ns >= self._deadline_ns:
            return False
        return self.retriable or not self.is_unknown or self.lookup is not None


class _Deletion(Answer):
    """A deletion of records. It asks the controller for the leaders, then the leaders; again if
    they change."""

    __slots__ = ("low_watermarks", "offsets", "out", "refused", "topic")

    def __init__(
        self, owner: Owner | None, topic: str, offsets: Mapping[int, int], peers: Sequence[Address], deadline_ns: int
    ) -> None:
        body = MetadataRequest([MetadataRequestTopic(topic)])
        super().__init__(
            owner, f"deletion of records of {topic!r}", body, peers, retriable=True, deadline_ns=deadline_ns
        )
        self.topic = topic
        self.offsets = dict(offsets)
        """The offsets that are not deleted yet, by partition."""
        self.low_watermarks: dict[int, int] = {}
        self.out = 0
        """The number of leaders that were asked and have not answered."""
        self.refused = False
        """Whether it fails as soon as the leader's offsets are known."""


class Admin:
    """Sends requests to the controller. One owner; ``poll`` never waits. Every method returns an :class:`Answer` at
    once."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        random: Random,
        *,
        address: Address,
        controllers: Sequence[Address],
        timeout_ms: int = 10_000,
        owner: Owner | None = None,
    ) -> None:
        """Listen at ``address``; ask one of ``controllers``, and the next one if it cannot answer.

        An answer may take at most ``timeout_ms``.
        """
        self._calls = RequestTracker(transport, clock, address, timeout_ms)
        self._now_ns = clock.monotonic_ns
        self._random = random
        self.controllers = list(controllers)
        """The addresses to ask, the one that answered last first."""
        self._timeout_ms = self.timeout_ms = timeout_ms
        self._owner = owner
        self._waiting: list[tuple[int, Answer]] = []  # (not before, question)
        self._unsettled: list[Answer] = []
        self._failure: PyreplogError | None = None

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        placement: str | None = None,
    ) -> Answer:
        """Create a topic. The answer's value is its CreatableTopicResult. ``partitions`` and ``replication_factor``
        -1: the cluster's default."""
        configs = [CreatableTopicConfig(key, value) for key, value in config.items()]
        topic = CreatableTopic(name, partitions, replication_factor, configs=configs, placement=placement)
        body = CreateTopicsRequest([topic], self._timeout_ms)
        return self._ask(f"creation of topic {name!r}", body, retriable=False, lookup=created_topic(topic))

    def change(self, change: ClusterChange) -> Answer:
        """Carry out a change once. See :mod:`pyreplog.client.changes` for the values."""
        return self._ask(
            change.what, change.body, retriable=change.retriable, lookup=change.lookup, value_of=change.value_of
        )

    def describe_cluster(self) -> Answer:
        """Describe the nodes. The value is a DescribeClusterResponse."""
        return self._ask("description of the cluster", DescribeClusterRequest(), retriable=True)

    def describe_topics(self, names: Sequence[str] = (), state: int = PartitionFilter.ALL) -> Answer:
        """Describe these topics (none: all): partitions, leaders, replicas, ISR, ELR. ``state``: only
        the partitions in this state.

        The value is a DescribeTopicPartitionsResponse.
        """
        body = DescribeTopicPartitionsRequest(list(names), state=state)
        return self._ask("description of topics", body, retriable=True)

    def describe_configs(self, names: Sequence[str], kind: int = RESOURCE_TOPIC) -> Answer:
        """Describe the topics' settings. The value is a DescribeConfigsResponse. ``kind`` RESOURCE_BROKER and the name
        "": the cluster's defaults."""
        resources = [DescribeConfigsResource(kind, name) for name in names]
        return self._ask("description of settings", DescribeConfigsRequest(resources), retriable=True)

    def describe_quorum(self) -> Answer:
        """Describe the metadata quorum as its leader knows it. The value is a QuorumInfo.

        While no leader is known, the client asks again until the deadline; then the answer fails
        with the controller's reason.
        """
        topics = [DescribeQuorumTopic(METADATA_TOPIC, [DescribeQuorumPartition(0)])]
        return self._ask("description of the quorum", DescribeQuorumRequest(topics), retriable=True)

    def elect_leaders(self, topic: str, partitions: Sequence[int], *, unclean: bool, dry_run: bool = False) -> Answer:
        """Elect the preferred leaders or, with ``unclean``, the longest logs of leaderless
        partitions.

        An unclean election may lose records. The value is an ElectLeadersResponse; the
        ``error_message`` of its results names the records that an unclean election lost.
        """
        kind = ELECT_UNCLEAN if unclean else ELECT_PREFERRED
        body = ElectLeadersRequest(kind, [ElectLeadersTopic(topic, list(partitions))], self._timeout_ms, dry_run)
        return self._ask(f"election of leaders of {topic!r}", body, retriable=dry_run)

    def delete_records(self, topic: str, offsets: Mapping[int, int]) -> Answer:
        """Delete the records below these offsets on every live replica.

        ``offsets`` is by partition; -1: below the high watermark. The value is the low watermark of
        each partition.
        """
        now = self._now_ns()
        return self._begin(now, _Deletion(self._owner, topic, offsets, self.controllers, now + self._timeout_ms * MS))

    def _ask(
        self,
        what: str,
        body: RequestBody,
        *,
        retriable: bool,
        lookup: Lookup | None = None,
        value_of: Callable[[Any], Any] | None = None,
    ) -> Answer:
        now = self._now_ns()
        deadline_ns = now + self._timeout_ms * MS
        peers = list(self.controllers)
        answer = Answer(
            self._owner,
            what,
            body,
            peers,
            retriable=retriable,
            deadline_ns=deadline_ns,
            lookup=lookup,
            value_of=value_of,
        )
        return self._begin(now, answer)

    def _begin(self, now: int, answer: Answer) -> Answer:
        if self._failure is not None:
            answer.fail(self._failure)  # a closed client is no longer polled
            return answer
        self._unsettled = [other for other in self._unsettled if not other.settled]
        self._unsettled.append(answer)
        self._waiting.append((now, answer))
        return answer

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`poll` must run even if no message arrives."""
        times = [at for at, _ in self._waiting]
        if self._calls.next_wake_ns is not None:
            times.append(self._calls.next_wake_ns)
        return min(times, default=None)

    def poll(self, timeout_ns: int = 0) -> bool:
        """Receive answers and send the waiting questions; return whether there was work. It never
        waits."""
        happened = self._calls.poll()
        now = self._now_ns()
        waiting, self._waiting = self._waiting, []
        for at, answer in waiting:
            if at > now:
                self._waiting.append((at, answer))
                continue
            happened = True
            first, answer.asked = not answer.asked, True
            if not self._calls.send(
                answer.peers[0],
                answer.next_question,
                lambda body, answer=answer: self._answered(answer, body),  # type: ignore[misc]
            ):
                answer.asked = not first
                self._again(answer, BrokerNotAvailableError("the controller does not answer"), sent=False)
        return happened

    def give_up(self, answer: Answer, error: ClusterError) -> None:
        """Ask no more, and fail with ``error``. A change that may have been carried out has an unknown outcome."""
        if answer.settled:
            return
        is_waiting = any(other is answer for _, other in self._waiting)
        self._waiting = [entry for entry in self._waiting if entry[1] is not answer]
        if not answer.retriable and (answer.is_unknown or (answer.asked and not is_waiting)):
            answer.fail(OutcomeUnknownError(answer.what, str(error)))
        else:
            answer.fail(error)

    def _answered(self, answer: Answer, body: Any) -> None:
        if answer.settled:  # given up
            return
        if body is None:
            self._again(answer, BrokerNotAvailableError("the controller does not answer"), sent=True)
            return
        refused = refused_as_a_whole(body)
        if refused is not None:
            code, message = refused
            # It is the active controller that knows of no live node.
            stays = code == ErrorCode.BROKER_NOT_AVAILABLE
            error = cluster_error(code, message or answer.what)
            if stays and self._is_too_long_without_nodes(answer):
                answer.fail(error)
            else:
                self._again(answer, error, sent=False, stays=stays)
            return
        self._put_first(answer.peers[0])
        lookup = answer.lookup
        if lookup is not None and answer.is_unknown and self._looked_up(answer, lookup, body):
            return
        if isinstance(answer, _Deletion):
            self._led(answer, body)
            return
        if isinstance(body, DescribeQuorumResponse):
            self._described(answer, body)
            return
        if isinstance(body, ElectLeadersResponse) and body.error_code != NO_ERROR:
            answer.fail(cluster_error(body.error_code, answer.what))
            return
        if answer.value_of is not None:
            try:
                value = answer.value_of(body)
            except PyreplogError as error:
                answer.fail(error)
            else:
                answer.answer(value)
            return
        if isinstance(body, CreateTopicsResponse):
            result = body.topics[0]
            if result.error_code != NO_ERROR:
                answer.fail(cluster_error(result.error_code, result.error_message or repr(result.name)))
            else:
                answer.answer(result)
            return
        answer.answer(body)

    def _is_too_long_without_nodes(self, answer: Answer) -> bool:
        now = self._now_ns()
        answer.no_node_ns = answer.no_node_ns or now
        return not answer.is_unknown and now - answer.no_node_ns >= _NO_NODE_PATIENCE_MS * MS

    def _looked_up(self, answer: Answer, lookup: Lookup, body: Any) -> bool:
        """Handle an answer after an unknown outcome; return whether it is handled.

        If the change was carried out, settle; if not, send it again. If that copy is refused, look
        up whether the first one was carried out in between.
        """
        if answer.is_looked_up:
            answer.is_looked_up = False
            value = lookup.judge(body)
            if value is not None:
                answer.answer(value)
                return True
            if answer.refusal is not None:
                answer.fail(answer.refusal)
                return True
        else:
            code, message = refusal_of(body)
            if code not in lookup.refusals:
                return False
            answer.refusal = cluster_error(code, message or answer.what)
            answer.is_looked_up = True
        self._waiting.append((self._now_ns(), answer))
        return True

    def _put_first(self, controller: Address) -> None:
        """Ask this controller first from now on: it answered."""
        if self.controllers[0] != controller and controller in self.controllers:
            at = self.controllers.index(controller)
            self.controllers = self.controllers[at:] + self.controllers[:at]

    def _described(self, answer: Answer, body: DescribeQuorumResponse) -> None:
        """Settle with the quorum that ``body`` describes, or ask again if there is no leader."""
        parts = [part for topic in body.topics if topic.topic_name == METADATA_TOPIC for part in topic.partitions]
        code, message = body.error_code, body.error_message
        if code == NO_ERROR:
            if not parts:
                code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "the answer does not describe the metadata quorum"
            else:
                code, message = parts[0].error_code, parts[0].error_message
        if code == NO_ERROR:
            answer.answer(_quorum_info(parts[0]))
        elif code in _NO_CONTROLLER:
            self._again(answer, cluster_error(code, message or answer.what), sent=False)
        else:
            answer.fail(cluster_error(code, message or answer.what))

    def _led(self, deletion: _Deletion, body: MetadataResponse) -> None:
        """Ask each leader for its partitions, after the controller named the leaders."""
        topic = body.topics[0]
        if topic.error_code != NO_ERROR:
            deletion.fail(cluster_error(topic.error_code, repr(deletion.topic)))
            return
        addresses = {one.node_id: address_of(one) for one in body.brokers}
        leaders = {one.partition_index: one.leader_id for one in topic.partitions}
        by_peer: dict[Address, list[DeleteRecordsPartition]] = {}
        for number, offset in deletion.offsets.items():
            if number not in leaders:
                deletion.fail(cluster_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{deletion.topic}-{number}"))
                return
            peer = addresses.get(leaders[number])
            if peer is not None:
                by_peer.setdefault(peer, []).append(DeleteRecordsPartition(number, offset))
        for peer, parts in by_peer.items():
            request = DeleteRecordsRequest([DeleteRecordsTopic(deletion.topic, parts)], self._timeout_ms)
            if self._calls.send(peer, request, partial(self._deleted, deletion, peer)):
                deletion.out += 1
        if not deletion.out:
            self._again(deletion, BrokerNotAvailableError("no leader answers"), sent=False)

    def _deleted(self, deletion: _Deletion, peer: Address, body: DeleteRecordsResponse | None) -> None:
        deletion.out -= 1
        if deletion.settled or deletion.refused:
            return
        for topic in () if body is None else body.topics:
            for part in topic.partitions:
                if part.error_code == NO_ERROR:
                    deletion.offsets.pop(part.partition_index, None)
                    deletion.low_watermarks[part.partition_index] = part.low_watermark
                elif part.error_code not in _PASSING:
                    if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        self._out_of_range(deletion, peer, part.partition_index)
                    else:
                        deletion.fail(cluster_error(part.error_code, f"{deletion.topic}-{part.partition_index}"))
                    return
        if deletion.out:
            return
        if deletion.offsets:
            self._again(
                deletion,
                RequestTimedOutError("not every live replica has deleted its records yet; it goes on"),
                sent=False,
            )
        else:
            deletion.answer(deletion.low_watermarks)

    def _out_of_range(self, deletion: _Deletion, peer: Address, number: int, start: int = -1) -> None:
        """Fail the deletion with the leader's start and end: it does not have the given offset."""
        deletion.refused = True
        asked = deletion.offsets[number]
        name = f"{deletion.topic}-{number}"

        def heard(answer: ListOffsetsResponse | None) -> None:
            if deletion.settled:
                return
            result = None if answer is None else answer.topics[0].partitions[0]
            if result is None or result.error_code != NO_ERROR:
                deletion.refused = False
                if not deletion.out:  # else the last answer shows that an offset is left
                    self._again(deletion, BrokerNotAvailableError("no leader answers"), sent=False)
            elif start < 0:
                self._out_of_range(deletion, peer, number, result.offset)
            else:
                deletion.fail(OffsetOutOfRangeError(asked, start, result.offset, log=name))

        timestamp = EARLIEST_TIMESTAMP if start < 0 else LATEST_TIMESTAMP
        question = ListOffsetsRequest([ListOffsetsTopic(deletion.topic, [ListOffsetsPartition(number, timestamp)])])
        if not self._calls.send(peer, question, heard):
            heard(None)

    def _again(self, answer: Answer, error: ClusterError, *, sent: bool, stays: bool = False) -> None:
        """Put the question again, to the next controller, or to the same one (``stays``), if that is allowed."""
        if answer.settled:  # given up
            return
        now = self._now_ns()
        answer.failures += 1
        if not stays:
            answer.peers = [*answer.peers[1:], answer.peers[0]]
        if sent and not answer.retriable and not answer.is_looked_up:
            answer.is_unknown = True
            answer.is_looked_up = answer.lookup is not None
        if answer.may_repeat(now):
            self._waiting.append((now + backoff_ns(answer.failures, self._random), answer))
        elif not answer.retriable and (answer.is_unknown or sent):
            answer.fail(OutcomeUnknownError(answer.what, str(error)))
        else:
            answer.fail(error)

    def close(self) -> None:
        """Close the client. Unanswered questions fail."""
        self.abandon(BrokerNotAvailableError("the client was closed"))

    def abandon(self, error: PyreplogError) -> None:
        """Close the client with ``error``. All unanswered questions fail, even one that was interrupted half-way, and
        later ones too.

        A question that may never have been sent fails with ``error``.
        """
        self._failure = error
        self._calls.close()
        for answer in self._unsettled:
            if not answer.settled:
                answer.fail(error)
        self._waiting.clear()
        self._unsettled.clear()


def _quorum_info(part: DescribeQuorumPartitionResult) -> QuorumInfo:
    return QuorumInfo(
        part.leader_id,
        part.leader_epoch,
        part.high_watermark,
        _quorum_replicas(part.current_voters),
        _quorum_replicas(part.observers),
    )


def _quorum_replicas(replicas: Sequence[DescribeQuorumReplica]) -> tuple[QuorumReplica, ...]:
    return tuple(
        sorted(QuorumReplica(one.replica_id, one.log_end_offset, one.last_caught_up_timestamp) for one in replicas)
    )
