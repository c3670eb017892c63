"""The requests of readers: Fetch, ListOffsets, OffsetForLeaderEpoch. Followers' fetches go to
:mod:`pyreplog.node.sessions`.

A consumer's fetch of several partitions is answered as soon as they have ``min_bytes`` together.
Partitions without records report their offsets. Consumers have no sessions here: each request names
all partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyreplog.controller import PartitionKey
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import ClusterView, HostedPartition
from pyreplog.node.traffic import size_of
from pyreplog.replica import CancelFetch, ConsumerFetch, ListOffsets, OffsetForLeaderEpoch, Result
from pyreplog.wire import (
    ErrorCode,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResult,
    OffsetForLeaderTopicResult,
    PartitionData,
    Request,
)

__all__ = ["FetchService"]


class _FetchAssembler:
    """The answer to a consumer's fetch of several partitions.

    It is sent when the partitions have ``min_bytes`` together, when one has an error or another
    answer than records, or when the time is up. A partition with too few bytes is asked again and
    answers when it has more.
    """

    __slots__ = ("_asked", "_body", "_effects", "_message", "_results", "_until_ns", "_waiting", "asking", "done")

    def __init__(self, effects: Effects, message: Request, body: FetchRequest) -> None:
        self._effects = effects
        self._message = message
        self._body = body
        self._until_ns = effects.now_ns + body.max_wait_ms * 1_000_000
        self._asked: dict[PartitionKey, tuple[HostedPartition, FetchPartition]] = {}
        self._waiting: dict[PartitionKey, HostedPartition] = {}
        self._results: dict[PartitionKey, PartitionData] = {}
        self.asking = True
        """Whether the partitions are being asked for the first time."""
        self.done = False

    @property
    def enough(self) -> bool:
        """Whether there is no reason to wait any longer."""
        if self._effects.now_ns >= self._until_ns or self.size >= self._body.min_bytes:
            return True
        return any(data.error_code or data.diverging_epoch is not None for data in self._results.values())

    @property
    def size(self) -> int:
        """The bytes of records so far."""
        return sum(size_of(data) for data in self._results.values())

    def ask(self, hosted: HostedPartition, request: FetchPartition, min_bytes: int = 1) -> None:
        """Ask ``hosted`` for at least ``min_bytes`` bytes."""
        effects, body = self._effects, self._body
        self._asked[hosted.key] = (hosted, request)
        self._waiting[hosted.key] = hosted
        wait_ms = 0 if self.enough else max((self._until_ns - effects.now_ns) // 1_000_000, 1)
        message = self._message
        effects.ask(
            hosted,
            ConsumerFetch(
                message.source,
                message.correlation_id,
                request,
                wait_ms,
                min_bytes,
                body.isolation_level,
                body.rack_id != "",
            ),
        )

    def put(self, key: PartitionKey, data: PartitionData) -> None:
        """Set the answer of a partition without a replica here."""
        self._results[key] = data

    def add(self, hosted: HostedPartition, result: Result) -> None:
        """Add one partition's answer."""
        assert type(result) is PartitionData
        key = hosted.key
        before = self._results.get(key)
        self._results[key] = result
        self._waiting.pop(key, None)
        if self.asking:
            return
        if self.enough or (before is not None and size_of(result) <= size_of(before)):  # or no more fits
            self.finish()
        else:
            self.ask(hosted, self._asked[key][1], size_of(result) + 1)

    def begin_to_wait(self) -> None:
        """Answer, or ask the partitions with too few bytes again; called when each was asked
        once."""
        self.asking = False
        if self.enough or (not self._waiting and not self._results):
            self.finish()
            return
        for key, (hosted, request) in list(self._asked.items()):
            if key not in self._waiting and not self.done:
                self.ask(hosted, request, size_of(self._results[key]) + 1)

    def finish(self) -> None:
        """Send the answer with the results so far."""
        effects, message = self._effects, self._message
        effects.assemblers.pop((message.source, message.correlation_id), None)
        for hosted in self._stop_waiting():
            if hosted.key not in self._results:
                self._results[hosted.key] = PartitionData(
                    hosted.partition, high_watermark=hosted.log.high_watermark, log_start_offset=hosted.log.start_offset
                )
        by_topic: dict[str, list[PartitionData]] = {}
        effects.traffic.bytes_to_consumers += self.size
        for key, data in self._results.items():
            by_topic.setdefault(key[0], []).append(data)
        responses = [FetchableTopicResponse(topic_id, parts) for topic_id, parts in by_topic.items()]
        effects.answer(message.source, message.correlation_id, FetchResponse(responses))

    def abandon(self) -> None:
        """Stop waiting: no answer is wanted any more."""
        self._stop_waiting()

    def _stop_waiting(self) -> list[HostedPartition]:
        """Stop waiting; return the replicas that have not answered and need not."""
        self.done = True
        waiting, self._waiting = self._waiting, {}
        for hosted in waiting.values():
            self._effects.run(hosted, CancelFetch(self._message.source, self._message.correlation_id))
        return list(waiting.values())


class _Collect:
    """Takes the answer that a replica gives at once."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: Result | None = None

    def add(self, hosted: HostedPartition, result: Result) -> None:
        """Store the answer."""
        self.result = result

    def abandon(self) -> None:
        """Do nothing: the answer comes at once or not at all."""


class FetchService:
    """Serves the requests of readers."""

    def __init__(self, effects: Effects, hosted: Mapping[PartitionKey, HostedPartition], standing: ClusterView) -> None:
        self._standing = standing
        self._effects = effects
        self._hosted = hosted

    def fetch(self, message: Request, body: FetchRequest) -> None:
        """Answer a consumer's fetch with records below the high watermark."""
        topics = body.topics
        effects = self._effects
        leased = effects.now_ns <= self._standing.leased_until_ns
        if len(topics) == 1 and len(topics[0].partitions) == 1 and leased:
            request = topics[0].partitions[0]
            hosted = self._hosted.get((topics[0].topic_id, request.partition))
            if hosted is not None:
                event = ConsumerFetch(
                    message.source,
                    message.correlation_id,
                    request,
                    body.max_wait_ms,
                    body.min_bytes,
                    body.isolation_level,
                    body.rack_id != "",
                )
                effects.ask(hosted, event)
                return
        assembler = _FetchAssembler(effects, message, body)
        effects.assemblers[message.source, message.correlation_id] = assembler
        for topic in topics:
            for request in topic.partitions:
                key = (topic.topic_id, request.partition)
                hosted = self._hosted.get(key)
                if hosted is None or not leased:
                    assembler.put(key, PartitionData(request.partition, self._refusal(key)))
                    continue
                if assembler.size >= body.max_bytes:
                    break
                assembler.ask(hosted, request)
        assembler.begin_to_wait()

    def list_offsets(self, message: Request, body: ListOffsetsRequest) -> None:
        """Answer with offsets by time, at once."""
        answers = []
        for topic in body.topics:
            parts = []
            topic_id = self._standing.image.topic_ids.get(topic.name, "")
            for request in topic.partitions:
                event = ListOffsets(
                    message.source, message.correlation_id, request, body.replica_id, body.isolation_level
                )
                result = self._ask((topic_id, request.partition_index), message, event)
                if not isinstance(result, ListOffsetsPartitionResponse):
                    result = ListOffsetsPartitionResponse(
                        request.partition_index, self._refusal((topic_id, request.partition_index), named=True)
                    )
                parts.append(result)
            answers.append(ListOffsetsTopicResponse(topic.name, parts))
        self._effects.answer(message.source, message.correlation_id, ListOffsetsResponse(answers))

    def offset_for_leader_epoch(self, message: Request, body: OffsetForLeaderEpochRequest) -> None:
        """Answer with the end offsets of leader epochs, at once."""
        answers = []
        for topic in body.topics:
            parts = []
            topic_id = self._standing.image.topic_ids.get(topic.topic, "")
            for request in topic.partitions:
                event = OffsetForLeaderEpoch(message.source, message.correlation_id, request)
                result = self._ask((topic_id, request.partition), message, event)
                if not isinstance(result, OffsetForLeaderEpochResult):
                    result = OffsetForLeaderEpochResult(
                        request.partition, self._refusal((topic_id, request.partition), named=True)
                    )
                parts.append(result)
            answers.append(OffsetForLeaderTopicResult(topic.topic, parts))
        self._effects.answer(message.source, message.correlation_id, OffsetForLeaderEpochResponse(answers))

    def _ask(self, key: PartitionKey, message: Request, event: ListOffsets | OffsetForLeaderEpoch) -> Result | None:
        """Return the answer that the replica gives at once, or None if there is no replica."""
        effects = self._effects
        hosted = self._hosted.get(key)
        if hosted is None or effects.now_ns > self._standing.leased_until_ns:
            return None
        collect = _Collect()
        effects.assemblers[message.source, message.correlation_id] = collect
        effects.ask(hosted, event)
        del effects.assemblers[message.source, message.correlation_id]
        return collect.result

    def _refusal(self, key: PartitionKey, *, named: bool = False) -> ErrorCode:
        if key[0] not in self._standing.image.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if named else ErrorCode.UNKNOWN_TOPIC_ID
        if self._standing.image.partition(key) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
