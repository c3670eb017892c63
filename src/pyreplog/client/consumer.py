"""Consumer: reads its assigned partitions, each from its position, from the node that leads it. A
polled machine over a Transport.

A fetch names every partition of one node that needs records, unless records of it are buffered or
already asked for. The node holds the fetch while there is nothing new. Partitions that need records
during that time (because their buffer was read, or after a seek) go in another fetch and do not
wait for the first. Partitions without news are combined into one fetch again, so that all idle ones
cost one fetch together. Answers are buffered as batches and decoded when they are read. Only
records below the high watermark arrive.

Source: Kafka's ``Fetcher``, without sessions. Kafka's has one fetch per node, so a seek waits for
it. Since KAFKA-17182 it sends none while records of that node are buffered, so a slow reader gets
news of its other partitions late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pyreplog.client.calls import RequestTracker
from pyreplog.client.outcome import Completion, Owner
from pyreplog.client.retries import tell_retry
from pyreplog.client.router import Router, TopicRoute, backoff_ns
from pyreplog.config import INT32_MAX, INT64_MAX, check_number
from pyreplog.errors import (
    CorruptError,
    CorruptLogError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    PyreplogError,
    TopicRecreatedError,
    UnknownTopicError,
    cluster_error,
)
from pyreplog.ports import Address, Buffer, Clock, Random, Transport
from pyreplog.record import Record, RecordBatch, records_of, split
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_ERROR,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    PartitionData,
    Records,
)

__all__ = ["Consumer", "ConsumerConfig", "Ends", "OffsetAnswer"]

Ends = Mapping[TopicPartition, int]
"""Offsets below which a caller wants to read."""

_PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Refusals after which the consumer asks for the leader again and retries."""


ANYWHERE: Final = "any"
"""``FetchRequest.rack_id`` of a consumer that accepts answers of followers; nodes only test whether
it is set."""
LEADER_ONLY_NS: Final = 300_000_000_000
"""Time for which only the leader is asked after a follower lacked records: Kafka's
``metadata.max.age.ms``, after which Kafka tries followers again."""
BACKOFFS_CORRUPT: Final = 8
"""After damaged bytes, the pause is as long as after this many failures."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """A consumer's settings. Sizes in bytes, times in ms."""

    auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest"
    """Where to begin if there is no position, or if its offset is no longer in the log.

    ``none``: raise OffsetOutOfRangeError in the second case. If an unclean election lost records
    that were already read, that error is raised once in any case; if another topic has the name
    now, TopicRecreatedError is.
    """
    fetch_max_wait_ms: int = 500
    """The longest time for which a node may hold an empty answer."""
    fetch_min_bytes: int = 1
    """A node waits until it has this many bytes (or for the longest time). At least 1: with 0 the
    node would be asked again and again."""
    read_from: Literal["leader", "follower"] = "leader"
    """The node to ask: the leader, or another in-sync replica if there is one.

    A follower's high watermark is about a millisecond late. If a follower cannot answer, the leader
    is asked.
    """
    fetch_max_bytes: int = 1 << 20
    """The most bytes per partition and fetch (but at least one batch)."""
    max_poll_records: int = 500
    """The most records of one ``take``."""
    request_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        for name, low in (
            ("fetch_max_wait_ms", 0),
            ("fetch_min_bytes", 1),
            ("fetch_max_bytes", 1),
            ("max_poll_records", 1),
            ("request_timeout_ms", 1),
        ):
            check_number(self, name, low, INT32_MAX)


class OffsetAnswer(Completion):
    """An offset looked up by time.

    ``offset`` is set once settled without error; -1 if no record is that late.
    """

    __slots__ = ("forgotten", "offset", "partition", "timestamp", "topic")

    def __init__(self, owner: Owner | None, topic: str, partition: int, timestamp: int) -> None:
        super().__init__(owner)
        self.topic = topic
        self.partition = partition
        self.timestamp = timestamp
        self.offset = -1
        self.forgotten = False
        """Whether the caller gave up waiting for it."""

    def answer(self, offset: int) -> None:
        """Settle with ``offset``."""
        self.offset = offset
        self._finish()


_Question = tuple[int, int]
"""A request for records of a partition: (first offset, leader epoch of the batch before it)."""


class _Fetch:
    """A fetch in flight, or held by its node."""

    __slots__ = ("members", "node")

    def __init__(self, node: int) -> None:
        self.node = node
        self.members: list[tuple[TopicPartition, _Partition, _Question]] = []


class _Partition:
    """One assigned partition: the next offset to hand out (``position``), the buffer, and the next
    offset to fetch."""

    __slots__ = (
        "asked",
        "batches",
        "error",
        "failures",
        "fetch_offset",
        "high_watermark",
        "is_idle",
        "last_epoch",
        "leader_until_ns",
        "paused_until_ns",
        "position",
        "records",
        "resetting",
        "topic_id",
    )

    def __init__(self) -> None:
        self.position = -1
        self.fetch_offset = -1
        self.batches: deque[RecordBatch] = deque()
        self.records: deque[Record] = deque()
        self.asked: dict[_Question, _Fetch] = {}
        """The unanswered fetches, by question.

        After a seek the old one stays and counts again if a seek returns to it, because its node
        may hold it for as long as a new one.
        """
        self.is_idle = False
        """Whether the last answer had nothing new."""
        self.resetting = False
        self.error: PyreplogError | None = None
        self.failures = 0
        self.paused_until_ns = 0
        self.high_watermark = -1
        self.leader_until_ns = 0
        """Time until which only the leader is asked, whatever ``read_from`` says."""
        self.last_epoch = -1
        """Leader epoch of the last batch before ``fetch_offset``; -1: not known."""
        self.topic_id = ""
        """Id of the topic to which these offsets belong; empty: not known yet."""

    def move(self, offset: int) -> None:
        """Discard the buffer and continue at ``offset``."""
        self.position = self.fetch_offset = offset
        self.last_epoch = -1
        self.batches.clear()
        self.records.clear()
        self.error = None
        self.is_idle = False

    @property
    def question(self) -> _Question:
        """The next question to ask."""
        return self.fetch_offset, self.last_epoch


class Consumer:
    """Reads records. One owner (the runtime's interface locks it); ``poll`` never waits.

    For a simulation: create ``Consumer(transport, clock, random, ["node-1"], address="client-2")``,
    call ``assign([TopicPartition("orders", 0)])``, then ``poll`` and ``take()``.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        random: Random,
        bootstrap: Sequence[Address],
        *,
        address: Address,
        config: ConsumerConfig | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Listen at ``address`` on ``transport``; ask the ``bootstrap`` nodes first."""
        self.config = ConsumerConfig() if config is None else config
        self._now_ns = clock.monotonic_ns
        self._random = random
        self._owner = owner
        self._calls = RequestTracker(transport, clock, address, self.config.request_timeout_ms)
        self._router = Router(self._calls, clock, random, bootstrap)
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._fetches: dict[_Fetch, None] = {}  # in the order in which they were sent
        self._lookups: list[OffsetAnswer] = []
        self._unsettled: list[OffsetAnswer] = []
        """The unsettled look-ups, sent or not. One that is interrupted half-way is still in this
        list."""
        self._retry_lookup_ns = 0
        self._retry_ns: int | None = None
        self._waiting: list[tuple[Completion, Ends | None]] = []
        self._turn = 0
        self._closed = False

    # ----------------------------------------------------------------------------------- assignment

    def knows(self, topic: str) -> bool:
        """Return whether the topic's partitions are known.

        Raises the refusal if the cluster answered that there is no such topic.
        """
        return self._router.knows(topic)

    def has_heard_of(self, topic: str) -> bool:
        """Return the same as :meth:`knows`, without raising."""
        return self._router.topic(topic) is not None

    def want(self, topic: str) -> None:
        """Ask the cluster for the topic, unless it is known."""
        if self._router.topic(topic) is None:
            self._router.want(topic)

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic. REQUIRES :meth:`knows`."""
        return len(self._router.topics[topic].leaders)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions from now on.

        Partitions that stay keep their positions; new ones begin as ``auto_offset_reset`` says.
        """
        kept = {
            TopicPartition(*entry): self._partitions.get(TopicPartition(*entry)) or _Partition() for entry in partitions
        }
        self._partitions = kept
        for entry in kept:
            self.want(entry.topic)

    @property
    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return list(self._partitions)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at ``offset``. The next fetch shows whether the log has it."""
        self._state(topic, partition).move(offset)

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record to hand out; -1: not known yet."""
        return self._state(topic, partition).position

    def high_watermark(self, topic: str, partition: int) -> int:
        """Return the end of the partition in the last answer; -1: not known yet."""
        return self._state(topic, partition).high_watermark

    def _state(self, topic: str, partition: int) -> _Partition:
        state = self._partitions.get(TopicPartition(topic, partition))
        if state is None:
            raise UnknownTopicError(f"{topic}-{partition} is not assigned to this consumer; assign() changes that")
        return state

    # -------------------------------------------------------------------------------------- reading

    def take(self, count_max: int | None = None, ends: Ends | None = None) -> list[Record]:
        """Return the records that have arrived and move the positions.

        They are in order within each partition, at most ``count_max`` (default:
        ``max_poll_records``), and below the offset in ``ends`` if their partition has one. An error
        that keeps a partition from its next record (CorruptError, OffsetOutOfRangeError, ...) is
        raised once, at that partition's turn.
        """
        limit = self.config.max_poll_records if count_max is None else count_max
        taken: list[Record] = []
        entries = list(self._partitions.items())
        if not entries:
            return taken
        self._turn = (self._turn + 1) % len(entries)  # a busy partition must not starve the others
        for entry, state in entries[self._turn :] + entries[: self._turn]:
            if len(taken) >= limit:
                break
            if state.error is not None and not taken:
                error, state.error = state.error, None
                raise error
            self._take_from(entry, state, taken, limit, _end_of(entry, ends))
        return taken

    def _take_from(self, entry: TopicPartition, state: _Partition, taken: list[Record], limit: int, end: int) -> None:
        while len(taken) < limit and state.position < end:
            if not state.records:
                if not state.batches:
                    return
                batch = state.batches.popleft()
                try:
                    batch.check_crc()
                    records = records_of(batch, entry.topic, entry.partition, state.position)
                except CorruptError as error:
                    state.move(state.position)
                    self._met_damage(entry, state, f"{entry}: {error.reason}", batch.next_offset)
                    if not taken:
                        met, state.error = state.error, None
                        assert met is not None, "_met_damage has just set it"
                        raise met from error
                    return
                state.records.extend(records)
                if not state.records:
                    state.position = max(state.position, batch.next_offset)
                    continue
            room = limit - len(taken)
            if len(state.records) <= room and state.records[-1].offset < end:
                taken.extend(state.records)
                state.records.clear()
                state.position = taken[-1].offset + 1
                continue
            while room and state.records and state.records[0].offset < end:
                taken.append(state.records.popleft())
                state.position = taken[-1].offset + 1
                room -= 1
            if room:
                state.position = end  # the next record is at or beyond it

    @property
    def has_records(self) -> bool:
        """Return whether :meth:`take` would return records or raise."""
        return self._has_records(None)

    def _has_records(self, ends: Ends | None) -> bool:
        """Return whether :meth:`take` with ``ends`` may have records, or has nothing to wait for.

        If this is uncertain, return True: :meth:`take` finds out.
        """
        for entry, state in self._partitions.items():
            if state.error is not None or ((state.records or state.batches) and state.position < _end_of(entry, ends)):
                return True
        return ends is not None and not self.has_more(ends)

    def has_more(self, ends: Ends) -> bool:
        """Return whether records below ``ends`` may still come.

        None can if they were read or deleted, or never existed.
        """
        return any(state.position < ends.get(entry, -1) for entry, state in self._partitions.items())

    def wait_for_records(self, ends: Ends | None = None) -> Completion:
        """Return a Pending that settles when :meth:`take` with ``ends`` has records or none can
        come.

        It also settles when this consumer is closed.
        """
        pending = Completion(self._owner)
        if self._closed or self._has_records(ends):
            pending.settle()
        else:
            self._waiting.append((pending, ends))
        return pending

    def forget(self, pending: Completion) -> None:
        """Stop tracking ``pending``, because its caller gave up."""
        self._waiting = [(other, ends) for other, ends in self._waiting if other is not pending]

    def look_up(self, topic: str, partition: int, timestamp: int) -> OffsetAnswer:
        """Look up the offset of the first record at or after ``timestamp``.

        ``timestamp`` is in ms, or LATEST_TIMESTAMP or EARLIEST_TIMESTAMP.
        """
        answer = OffsetAnswer(self._owner, topic, partition, timestamp)
        if self._closed:
            answer.fail(_closed_error())
            return answer
        self._unsettled = [other for other in self._unsettled if not (other.settled or other.forgotten)]
        self._unsettled.append(answer)
        self._lookups.append(answer)
        self.want(topic)
        return answer

    def forget_look_up(self, answer: OffsetAnswer) -> None:
        """Stop a look-up, because its caller gave up."""
        answer.forgotten = True
        if answer in self._lookups:
            self._lookups.remove(answer)

    # ------------------------------------------------------------------------------------- the loop

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`poll` must run even if no message arrives."""
        times = [at for at in (self._calls.next_wake_ns, self._router.next_wake_ns, self._retry_ns) if at is not None]
        return min(times, default=None)

    def poll(self, timeout_ns: int = 0) -> bool:
        """Receive answers and send the fetches that are due; return whether there was work. It
        never waits."""
        happened = self._calls.poll()
        happened |= self._ask()
        happened |= self._router.poll()
        if self._waiting:
            self._release()
        return happened

    def _release(self) -> None:
        """Release the callers whose records have arrived, or all callers once this is closed."""
        for entry in self._waiting.copy():
            pending, ends = entry
            if self._closed or self._has_records(ends):
                if not pending.settled:
                    pending.settle()
                self._waiting.remove(entry)  # last, so that an interruption loses no caller

    def _ask(self) -> bool:
        now = self._now_ns()
        self._retry_ns = None
        asked = False
        wanted: dict[int, _Fetch] = {}
        for entry, state in self._partitions.items():
            if state.resetting or state.error is not None or state.batches or state.records:
                continue
            # ``state.question``, inlined because idle partitions are many.
            if state.asked and (state.fetch_offset, state.last_epoch) in state.asked:
                continue
            if state.paused_until_ns > now:
                self._wake_at(state.paused_until_ns)
                continue
            leader = self._leader(entry.topic, entry.partition, state)
            if leader is None:
                continue
            route = self._router.topic(entry.topic)
            assert route is not None, "a known leader has a route"
            if state.topic_id != route.topic_id:
                self._meet(entry, state, route.topic_id)
                if state.error is not None:
                    continue
            if state.position < 0:
                self._reset(entry, state)
                asked = True
                continue
            if self.config.read_from == "follower" and not state.failures and now >= state.leader_until_ns:
                leader = self._follower(route, entry.partition, leader)
            fetch = wanted.get(leader)
            if fetch is None:
                fetch = wanted[leader] = _Fetch(leader)
            fetch.members.append((entry, state, state.question))
        for fetch in wanted.values():
            if self._fetches:
                self._gather_idle(fetch)
            asked |= self._fetch(fetch)
        return self._ask_offsets() or asked

    def _gather_idle(self, fetch: _Fetch) -> None:
        """Combine the idle partitions of the node into ``fetch``, if it has an idle one itself.

        The other fetches no longer count for them. Busy partitions stay in their fetches, because
        their records may be in flight.
        """
        if not any(state.is_idle for _, state, _ in fetch.members):
            return
        for other in self._fetches:
            if other.node == fetch.node:
                for entry, state, question in other.members:
                    current = state.is_idle and state.question == question and state.asked.get(question) is other
                    if current and self._partitions.get(entry) is state:
                        fetch.members.append((entry, state, question))

    def _leader(self, topic: str, partition: int, state: _Partition) -> int | None:
        route = self._router.topic(topic)
        if route is None:
            refusal = self._router.refusal(topic)
            if refusal is not None and state.error is None:
                state.error = refusal
            return None
        if partition >= len(route.leaders):
            state.error = cluster_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
            return None
        if route.leaders[partition] < 0:
            self._router.want(topic)
            return None
        return route.leaders[partition]

    def _follower(self, route: TopicRoute, partition: int, leader: int) -> int:
        """Return an in-sync replica that does not lead, or the leader if there is none."""
        others = [node for node in route.isrs[partition] if node != leader and self._router.address(node) is not None]
        return others[partition % len(others)] if others else leader

    def _fetch(self, fetch: _Fetch) -> bool:
        node = fetch.node
        topics: dict[str, list[FetchPartition]] = {}
        for entry, _, (offset, epoch) in fetch.members:
            route = self._router.topic(entry.topic)
            assert route is not None, "a known leader has a route"
            part = FetchPartition(entry.partition, -1, offset, epoch, partition_max_bytes=self.config.fetch_max_bytes)
            topics.setdefault(route.topic_id, []).append(part)
        peer = self._router.address(node)
        body = FetchRequest(
            self.config.fetch_max_wait_ms,
            self.config.fetch_min_bytes,
            [FetchTopic(topic_id, parts) for topic_id, parts in topics.items()],
            rack_id=ANYWHERE if self.config.read_from == "follower" else "",
        )
        if peer is None or not self._calls.send(peer, body, lambda answer: self._fetched(fetch, answer)):
            for entry, state, question in fetch.members:
                if question not in state.asked:  # else another fetch that was sent has it
                    self._back_off(entry, state, node)
            return False
        self._fetches[fetch] = None
        for _, state, question in fetch.members:
            state.asked[question] = fetch
        return True

    def _fetched(self, fetch: _Fetch, answer: FetchResponse | None) -> None:
        self._fetches.pop(fetch, None)
        data: dict[tuple[str | None, int], PartitionData] = {}
        refused = answer is None or answer.error_code != NO_ERROR
        if answer is not None and not refused:
            for topic in answer.responses:
                name = self._router.name_of(topic.topic_id)
                for part in topic.partitions:
                    data[name, part.partition_index] = part
        for entry, state, question in fetch.members:
            if state.asked.get(question) is not fetch:  # a later fetch asks it
                continue
            del state.asked[question]
            # Unwanted if the position changed, or if a seek returned here and earlier records are
            # buffered.
            if state.question != question or state.batches or state.records or self._partitions.get(entry) is not state:
                continue
            if refused:
                self._back_off(entry, state, fetch.node)
                continue
            found = data.get((entry.topic, entry.partition))
            if found is not None:
                self._take_in(entry, state, found, fetch.node)
            # A partition that the answer does not name has nothing new.
            state.is_idle = found is None or (
                found.error_code == NO_ERROR and state.question == question and not state.batches
            )

    def _take_in(self, entry: TopicPartition, state: _Partition, data: PartitionData, leader: int) -> None:
        code = data.error_code
        if code in _PASSING:
            self._back_off(entry, state, leader)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._leads(entry, leader):
                self._out_of_range(entry, state, data)
            else:
                # A follower may have deleted records that the leader has. Ask only the leader for a
                # while; otherwise every second fetch would fail.
                state.leader_until_ns = self._now_ns() + LEADER_ONLY_NS
        elif code == ErrorCode.CORRUPT_MESSAGE:
            # Other refusals put an end offset in this field; here it is the end of the damage, if
            # known.
            end = -1 if data.diverging_epoch is None else data.diverging_epoch.end_offset
            self._met_damage(entry, state, f"{entry} at node {leader}, and no copy in sync is known to be whole", end)
        elif code != NO_ERROR:
            state.error = cluster_error(code, str(entry))
        elif data.diverging_epoch is not None:
            self._truncated(entry, state, data)
        else:
            state.failures = 0
            state.high_watermark = data.high_watermark
            try:
                for part in _parts(data.records):  # type: ignore[arg-type]
                    for batch in split(part):
                        if batch.next_offset > state.position:
                            state.batches.append(batch)
                            state.fetch_offset = batch.next_offset
                            state.last_epoch = batch.leader_epoch
            except OutcomeUnknownError:  # the log was truncated after this answer was made
                self._back_off(entry, state, leader)
            except CorruptError as error:
                self._met_damage(entry, state, f"{entry}: {error.reason}")

    def _leads(self, entry: TopicPartition, node: int) -> bool:
        route = self._router.topic(entry.topic)
        return route is not None and entry.partition < len(route.leaders) and route.leaders[entry.partition] == node

    def _met_damage(self, entry: TopicPartition, state: _Partition, what: str, end: int = -1) -> None:
        """Note that the next records cannot be read.

        They are never skipped: they are fetched again after a pause, perhaps from another copy.
        """
        start = max(state.fetch_offset, 0)
        state.error = CorruptLogError(what, start=start, end=max(end, start + 1))
        state.paused_until_ns = self._now_ns() + backoff_ns(BACKOFFS_CORRUPT, self._random)

    def _out_of_range(self, entry: TopicPartition, state: _Partition, data: PartitionData) -> None:
        if self.config.auto_offset_reset == "none":
            state.error = OffsetOutOfRangeError(
                state.position, data.log_start_offset, data.high_watermark, log=str(entry)
            )
            state.paused_until_ns = self._now_ns() + backoff_ns(6, self._random)
        else:
            state.move(-1)

    def _truncated(self, entry: TopicPartition, state: _Partition, data: PartitionData) -> None:
        """Report that records already read are no longer in the log (KIP-320).

        An unclean election truncated them. This is reported once, whatever ``auto_offset_reset``
        says; then reading continues at the offset at which the logs diverge.
        """
        assert data.diverging_epoch is not None
        end = data.diverging_epoch.end_offset
        about = f"{entry}, which was truncated at {end} after that was read"
        error = OffsetOutOfRangeError(state.position, data.log_start_offset, end, log=about)
        state.move(min(end, state.position))
        state.error = error

    def _meet(self, entry: TopicPartition, state: _Partition, topic_id: str) -> None:
        """Note the topic's id, and report a topic that was re-created after records of it were
        read.

        This is reported once, whatever ``auto_offset_reset`` says; then reading continues at the
        first record.
        """
        before, state.topic_id = state.topic_id, topic_id
        if not before:
            return
        state.asked.clear()  # open fetches ask for the deleted topic
        position = state.position
        state.move(min(position, 0))
        if position > 0:
            state.error = TopicRecreatedError(
                f"{entry} was read up to offset {position}, but the topic was re-created (its id was {before}, it is"
                f" {topic_id})",
                "Continue reading to get the new topic from its first record",
            )

    def _back_off(self, entry: TopicPartition, state: _Partition, leader: int) -> None:
        state.failures += 1
        state.paused_until_ns = self._now_ns() + backoff_ns(state.failures, self._random)
        self._router.stale_leader(entry.topic, entry.partition, leader)
        self._wake_at(state.paused_until_ns)
        tell_retry(
            "%s-%d: node %d did not answer a fetch with records; it is tried again",
            entry.topic,
            entry.partition,
            leader,
        )

    def _wake_at(self, at_ns: int) -> None:
        self._retry_ns = at_ns if self._retry_ns is None else min(self._retry_ns, at_ns)

    # -------------------------------------------------------------------------------------- offsets

    def _reset(self, entry: TopicPartition, state: _Partition) -> None:
        """Look up the offset at which to begin."""
        timestamp = LATEST_TIMESTAMP if self.config.auto_offset_reset == "latest" else EARLIEST_TIMESTAMP
        answer = self.look_up(entry.topic, entry.partition, timestamp)
        state.resetting = True

        def found() -> None:
            state.resetting = False
            if answer.error is not None and isinstance(answer.error, PyreplogError):
                state.error = answer.error
            elif state.position < 0:
                state.move(answer.offset)

        answer.add_waiter(found)

    def _ask_offsets(self) -> bool:
        asked = False
        now = self._now_ns()
        for answer in list(self._lookups):
            if self._retry_lookup_ns > now:
                self._wake_at(self._retry_lookup_ns)
                break
            route = self._router.topic(answer.topic)
            refusal = self._router.refusal(answer.topic)
            if route is None and refusal is not None:
                self._lookups.remove(answer)
                answer.fail(refusal)
            elif route is not None and answer.partition >= len(route.leaders):
                self._lookups.remove(answer)
                answer.fail(
                    UnknownTopicError(
                        f"{answer.topic!r} has partitions 0 to {len(route.leaders) - 1}, not {answer.partition}"
                    )
                )
            elif route is not None and route.leaders[answer.partition] < 0:
                self._router.want(answer.topic)
            elif route is not None:
                asked |= self._ask_offset(answer, route.leaders[answer.partition])
        return asked

    def _ask_offset(self, answer: OffsetAnswer, leader: int) -> bool:
        def answered(response: ListOffsetsResponse | None) -> None:
            if response is not None:
                result = response.topics[0].partitions[0]
                if result.error_code == NO_ERROR:
                    answer.answer(result.offset)
                    return
                if result.error_code == ErrorCode.CORRUPT_MESSAGE:
                    answer.fail(
                        CorruptError(
                            f"{answer.topic}-{answer.partition} at node {leader} is damaged at the time that was"
                            " looked up"
                        )
                    )
                    return
                if result.error_code not in _PASSING:
                    answer.fail(cluster_error(result.error_code, f"{answer.topic}-{answer.partition}"))
                    return
            again()

        def again() -> None:
            self._router.stale_leader(answer.topic, answer.partition, leader)
            self._retry_lookup_ns = self._now_ns() + backoff_ns(2, self._random)
            if not answer.forgotten:
                self._lookups.append(answer)

        self._lookups.remove(answer)
        peer = self._router.address(leader)
        body = ListOffsetsRequest(
            [ListOffsetsTopic(answer.topic, [ListOffsetsPartition(answer.partition, answer.timestamp)])]
        )
        if peer is None or not self._calls.send(peer, body, answered):
            again()
            return False
        return True

    def close(self) -> None:
        """Stop reading. Unanswered look-ups fail, and callers that wait for records are
        released."""
        self._closed = True
        self._calls.close()
        for answer in self._unsettled:
            if not answer.settled:
                answer.fail(_closed_error())
        self._lookups.clear()
        self._unsettled.clear()
        self._release()


def _end_of(entry: TopicPartition, ends: Ends | None) -> int:
    return INT64_MAX if ends is None else ends.get(entry, INT64_MAX)


def _closed_error() -> PyreplogError:
    return cluster_error(ErrorCode.BROKER_NOT_AVAILABLE, "the consumer was closed")


def _parts(records: Records | None) -> Iterator[Buffer]:
    if records is None:
        return
    parts = getattr(records, "parts", None)
    if parts is None:
        yield records  # type: ignore[misc]
    else:
        yield from parts()
