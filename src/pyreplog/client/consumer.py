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

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from pyreplog.client.assigned_partition import AssignedPartition, FetchInFlight
from pyreplog.client.calls import RequestTracker
from pyreplog.client.consumer_config import ConsumerConfig
from pyreplog.client.offset_lookups import PASSING, OffsetAnswer, OffsetLookups
from pyreplog.client.outcome import Completion, Owner
from pyreplog.client.retries import tell_retry
from pyreplog.client.router import Router, TopicRoute, backoff_ns
from pyreplog.config import INT64_MAX
from pyreplog.errors import (
    CorruptError,
    OutcomeUnknownError,
    PyreplogError,
    UnknownTopicError,
    cluster_error,
)
from pyreplog.ports import Address, Clock, Random, Transport
from pyreplog.record import Record
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
    PartitionData,
)

__all__ = ["Consumer", "Ends"]

Ends = Mapping[TopicPartition, int]
"""Offsets below which a caller wants to read."""

ANYWHERE: Final = "any"
"""``FetchRequest.rack_id`` of a consumer that accepts answers of followers; nodes only test whether
it is set."""
LEADER_ONLY_NS: Final = 300_000_000_000
"""Time for which only the leader is asked after a follower lacked records: Kafka's
``metadata.max.age.ms``, after which Kafka tries followers again."""


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
        self._pause = partial(_pause_until, clock.monotonic_ns, random)
        self._owner = owner
        self._calls = RequestTracker(transport, clock, address, self.config.request_timeout_ms)
        self._router = Router(self._calls, clock, random, bootstrap)
        self._partitions: dict[TopicPartition, AssignedPartition] = {}
        self._fetches: dict[FetchInFlight, None] = {}  # in the order in which they were sent
        self._lookups = OffsetLookups(self._calls, self._router, random, self._now_ns, owner)
        self._retry_ns: int | None = None
        self._waiting: list[tuple[Completion, Ends | None]] = []
        self._whole: dict[str, int] = {}  # topics read as a whole -> partitions that are known
        self._refresh_ns = clock.monotonic_ns() + self.config.metadata_max_age_ms * 1_000_000
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

    def refresh(self, topic: str) -> None:
        """Ask for a topic again, which may have more partitions."""
        if self._router.topic(topic) is not None:
            self._router.want(topic)

    def assign(self, partitions: Sequence[TopicPartition], whole: Collection[str] = ()) -> None:
        """Read these partitions from now on, and of the topics in ``whole`` also those that are added
        later, each from its first record.

        Partitions that stay keep their positions; new ones begin as ``auto_offset_reset`` says.
        """
        entries = [TopicPartition(*entry) for entry in partitions]
        kept = {entry: self._partitions.get(entry) or AssignedPartition(entry, self._pause) for entry in entries}
        self._partitions = kept
        self._whole = {topic: sum(entry.topic == topic for entry in kept) for topic in whole}
        for entry in kept:
            self.want(entry.topic)

    @property
    def whole(self) -> list[str]:
        """The topics that are read with the partitions that they will get."""
        return list(self._whole)

    def _take_up_added(self) -> None:
        """Read the partitions that were added to the topics that are read as a whole."""
        for topic, count in self._whole.items():
            route = self._router.topic(topic)
            if route is not None and len(route.leaders) > count:
                more = dict(self._partitions)
                for number in range(count, len(route.leaders)):
                    entry = TopicPartition(topic, number)
                    if entry not in more:
                        more[entry] = AssignedPartition(entry, self._pause)
                        more[entry].begins_at_start = True
                self._partitions = more
                self._whole[topic] = len(route.leaders)

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

    def _state(self, topic: str, partition: int) -> AssignedPartition:
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
                state.raise_error()
            state.take(taken, limit, _end_of(entry, ends))
        return taken

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
        answer = self._lookups.start(topic, partition, timestamp)
        if not self._closed:
            self.want(topic)
        return answer

    def forget_look_up(self, answer: OffsetAnswer) -> None:
        """Stop a look-up, because its caller gave up."""
        self._lookups.forget(answer)

    # ------------------------------------------------------------------------------------- the loop

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`poll` must run even if no message arrives."""
        times = (self._calls.next_wake_ns, self._router.next_wake_ns, self._retry_ns, self._lookups.next_wake_ns)
        return min((at for at in times if at is not None), default=None)

    def poll(self, timeout_ns: int = 0) -> bool:
        """Receive answers and send the fetches that are due; return whether there was work. It
        never waits."""
        happened = self._calls.poll()
        if self._whole:
            self._take_up_added()
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
        if now >= self._refresh_ns:
            self._refresh_ns = now + self.config.metadata_max_age_ms * 1_000_000
            for topic in self._whole:
                self.refresh(topic)
        wanted: dict[int, FetchInFlight] = {}
        for entry, state in self._partitions.items():
            if state.resetting or state.error is not None or state.batches or state.records:
                continue
            # ``state.question``, inlined because idle partitions are many.
            if state.asked and (state.fetch_offset, state.last_epoch) in state.asked:
                continue
            if state.paused_until_ns > now:
                self._wake_at(state.paused_until_ns)
                continue
            leader = self._leader(state)
            if leader is None:
                continue
            route = self._router.topic(entry.topic)
            assert route is not None, "a known leader has a route"
            if state.topic_id != route.topic_id:
                state.meet_topic(route.topic_id)
                if state.error is not None:
                    continue
            if state.position < 0:
                self._reset(state)
                asked = True
                continue
            if self.config.read_from == "follower" and not state.failures and now >= state.leader_until_ns:
                leader = self._follower(route, entry.partition, leader)
            fetch = wanted.get(leader)
            if fetch is None:
                fetch = wanted[leader] = FetchInFlight(leader)
            fetch.members.append((state, state.question))
        for fetch in wanted.values():
            if self._fetches:
                self._gather_idle(fetch)
            asked |= self._fetch(fetch)
        return self._lookups.ask(now) or asked

    def _gather_idle(self, fetch: FetchInFlight) -> None:
        """Combine the idle partitions of the node into ``fetch``, if it has an idle one itself.

        The other fetches no longer count for them. Busy partitions stay in their fetches, because
        their records may be in flight.
        """
        if not any(state.is_idle for state, _ in fetch.members):
            return
        for other in self._fetches:
            if other.node == fetch.node:
                for state, question in other.members:
                    current = state.is_idle and state.question == question and state.asked.get(question) is other
                    if current and self._partitions.get(state.entry) is state:
                        fetch.members.append((state, question))

    def _leader(self, state: AssignedPartition) -> int | None:
        topic, partition = state.entry
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
        """Return an in-sync replica that does not lead, or the leader if there is none. A replica of the consumer's
        rack comes first, even if it leads."""
        others = [node for node in route.isrs[partition] if node != leader and self._router.address(node) is not None]
        if self.config.rack:
            racks = self._router.racks
            near = [node for node in others if racks.get(node) == self.config.rack]
            if not near and racks.get(leader) == self.config.rack:
                return leader
            others = near or others
        return others[partition % len(others)] if others else leader

    def _fetch(self, fetch: FetchInFlight) -> bool:
        node = fetch.node
        topics: dict[str, list[FetchPartition]] = {}
        for state, (offset, epoch) in fetch.members:
            entry = state.entry
            route = self._router.topic(entry.topic)
            assert route is not None, "a known leader has a route"
            part = FetchPartition(entry.partition, -1, offset, epoch, partition_max_bytes=self.config.fetch_max_bytes)
            topics.setdefault(route.topic_id, []).append(part)
        peer = self._router.address(node)
        body = FetchRequest(
            self.config.fetch_max_wait_ms,
            self.config.fetch_min_bytes,
            [FetchTopic(topic_id, parts) for topic_id, parts in topics.items()],
            rack_id=self.config.rack or ANYWHERE if self.config.read_from == "follower" else "",
        )
        if peer is None or not self._calls.send(peer, body, lambda answer: self._fetched(fetch, answer)):
            for state, question in fetch.members:
                if question not in state.asked:  # else another fetch that was sent has it
                    self._back_off(state, node)
            return False
        self._fetches[fetch] = None
        for state, question in fetch.members:
            state.asked[question] = fetch
        return True

    def _fetched(self, fetch: FetchInFlight, answer: FetchResponse | None) -> None:
        self._fetches.pop(fetch, None)
        data: dict[tuple[str | None, int], PartitionData] = {}
        refused = answer is None or answer.error_code != NO_ERROR
        if answer is not None and not refused:
            for topic in answer.responses:
                name = self._router.name_of(topic.topic_id)
                for part in topic.partitions:
                    data[name, part.partition_index] = part
        for state, question in fetch.members:
            if state.asked.get(question) is not fetch:  # a later fetch asks it
                continue
            del state.asked[question]
            # Unwanted if the position changed, or if a seek returned here and earlier records are
            # buffered.
            if state.question != question or state.batches or state.records:
                continue
            if self._partitions.get(state.entry) is not state:
                continue
            if refused:
                self._back_off(state, fetch.node)
                continue
            found = data.get(state.entry)
            if found is not None:
                self._take_in(state, found, fetch.node)
            # A partition that the answer does not name has nothing new.
            state.is_idle = found is None or (
                found.error_code == NO_ERROR and state.question == question and not state.batches
            )

    def _take_in(self, state: AssignedPartition, data: PartitionData, leader: int) -> None:
        code = data.error_code
        if code in PASSING:
            self._back_off(state, leader)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not self._leads(state.entry, leader):
                # A follower may have deleted records that the leader has. Ask only the leader for a
                # while; otherwise every second fetch would fail.
                state.leader_until_ns = self._now_ns() + LEADER_ONLY_NS
            elif self.config.auto_offset_reset == "none":
                state.out_of_range(data)
            else:
                state.move(-1)
        elif code == ErrorCode.CORRUPT_MESSAGE:
            # Other refusals put an end offset in this field; here it is the end of the damage, if
            # known.
            end = -1 if data.diverging_epoch is None else data.diverging_epoch.end_offset
            state.met_damage(f"{state.entry} at node {leader}, and no copy in sync is known to be whole", end)
        elif code != NO_ERROR:
            state.error = cluster_error(code, str(state.entry))
        elif data.diverging_epoch is not None:
            state.truncated(data)
        else:
            try:
                state.accept(data)
            except OutcomeUnknownError:  # the log was truncated after this answer was made
                self._back_off(state, leader)
            except CorruptError as error:
                state.met_damage(f"{state.entry}: {error.reason}")

    def _leads(self, entry: TopicPartition, node: int) -> bool:
        route = self._router.topic(entry.topic)
        return route is not None and entry.partition < len(route.leaders) and route.leaders[entry.partition] == node

    def _back_off(self, state: AssignedPartition, leader: int) -> None:
        topic, partition = state.entry
        state.back_off()
        self._router.stale_leader(topic, partition, leader)
        self._wake_at(state.paused_until_ns)
        tell_retry("%s-%d: node %d did not answer a fetch with records; it is tried again", topic, partition, leader)

    def _wake_at(self, at_ns: int) -> None:
        self._retry_ns = at_ns if self._retry_ns is None else min(self._retry_ns, at_ns)

    def _reset(self, state: AssignedPartition) -> None:
        """Look up the offset at which to begin."""
        is_late = self.config.auto_offset_reset == "latest" and not state.begins_at_start
        timestamp = LATEST_TIMESTAMP if is_late else EARLIEST_TIMESTAMP
        answer = self.look_up(*state.entry, timestamp)
        state.resetting = True

        def found() -> None:
            state.resetting = False
            if answer.error is not None and isinstance(answer.error, PyreplogError):
                state.error = answer.error
            elif state.position < 0:
                state.move(answer.offset)
                state.begins_at_start = False

        answer.add_waiter(found)

    def close(self) -> None:
        """Stop reading. Unanswered look-ups fail, and callers that wait for records are
        released."""
        self._closed = True
        self._calls.close()
        self._lookups.close()
        self._release()


def _end_of(entry: TopicPartition, ends: Ends | None) -> int:
    return INT64_MAX if ends is None else ends.get(entry, 0)  # 0: it came after the ends


def _pause_until(now_ns: Callable[[], int], random: Random, failures: int) -> int:
    return now_ns() + backoff_ns(failures, random)
