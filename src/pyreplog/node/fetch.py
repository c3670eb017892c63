"""What readers ask: Fetch, ListOffsets, OffsetForLeaderEpoch. Followers' fetches go to :mod:`pyreplog.node.sessions`.

A consumer's fetch of several partitions is answered as soon as one of them has something; the others then say where they stand.
Consumers have no sessions here: they send all they want each time.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyreplog.node.effects import Effects
from pyreplog.node.hosting import Hosted, Standing
from pyreplog.ports import Address
from pyreplog.quorum import PartitionKey
from pyreplog.replica import CancelFetch, ConsumerFetch, ListOffsets, OffsetForLeaderEpoch, Result
from pyreplog.wire import (
    ErrorCode,
    FetchableTopicResponse,
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


class _FetchGather:
    """The answer to a consumer's fetch of several partitions. ``asking``: the partitions are still being asked."""

    __slots__ = ("_correlation_id", "_effects", "_results", "_source", "_waiting", "asking")

    def __init__(self, effects: Effects, source: Address, correlation_id: int) -> None:
        self._effects = effects
        self._source = source
        self._correlation_id = correlation_id
        self._waiting: dict[PartitionKey, Hosted] = {}
        self._results: dict[PartitionKey, PartitionData] = {}
        self.asking = True

    @property
    def answered(self) -> bool:
        """Whether some partition has said something."""
        return bool(self._results)

    @property
    def size(self) -> int:
        """Bytes of records so far."""
        return sum(0 if data.records is None else data.records.size for data in self._results.values() if hasattr(data.records, "size"))

    def wait_for(self, hosted: Hosted) -> None:
        """``hosted`` is about to be asked."""
        self._waiting[hosted.key] = hosted

    def put(self, key: PartitionKey, data: PartitionData) -> None:
        """An answer where nobody is asked."""
        self._results[key] = data

    def add(self, hosted: Hosted, result: Result) -> None:
        """One partition's answer; the first one to come later ends the waiting."""
        assert type(result) is PartitionData
        self._results[hosted.key] = result
        self._waiting.pop(hosted.key, None)
        if not self.asking:
            self.finish()

    def finish(self) -> None:
        """Answer with what there is."""
        effects = self._effects
        waiting, self._waiting = self._waiting, {}
        effects.gathers.pop((self._source, self._correlation_id), None)
        for hosted in waiting.values():
            effects.run(hosted, CancelFetch(self._source, self._correlation_id))
            self._results[hosted.key] = PartitionData(
                hosted.partition, high_watermark=hosted.log.high_watermark, log_start_offset=hosted.log.start_offset
            )
        by_topic: dict[str, list[PartitionData]] = {}
        for key, data in self._results.items():
            by_topic.setdefault(key[0], []).append(data)
        responses = [FetchableTopicResponse(topic_id, parts) for topic_id, parts in by_topic.items()]
        effects.respond(self._source, self._correlation_id, FetchResponse(responses))


class _Collect:
    """Takes the one answer that a replica gives at once."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: Result | None = None

    def add(self, hosted: Hosted, result: Result) -> None:
        """The answer."""
        self.result = result


class FetchService:
    """Readers' requests."""

    def __init__(self, effects: Effects, hosted: Mapping[PartitionKey, Hosted], standing: Standing) -> None:
        self._standing = standing
        self._effects = effects
        self._hosted = hosted

    def fetch(self, message: Request, body: FetchRequest) -> None:
        """A consumer's fetch: records below the high watermark."""
        topics = body.topics
        effects = self._effects
        leased = effects.now_ns <= self._standing.leased_until_ns
        if len(topics) == 1 and len(topics[0].partitions) == 1 and leased:
            request = topics[0].partitions[0]
            hosted = self._hosted.get((topics[0].topic_id, request.partition))
            if hosted is not None:
                event = ConsumerFetch(
                    message.source, message.correlation_id, request, body.max_wait_ms, body.min_bytes, body.isolation_level
                )
                effects.run(hosted, event)
                return
        gather = _FetchGather(effects, message.source, message.correlation_id)
        effects.gathers[message.source, message.correlation_id] = gather
        for topic in topics:
            for request in topic.partitions:
                key = (topic.topic_id, request.partition)
                hosted = self._hosted.get(key)
                if hosted is None or not leased:
                    gather.put(key, PartitionData(request.partition, self._refusal(key)))
                    continue
                if gather.size >= body.max_bytes:
                    break
                gather.wait_for(hosted)
                wait_ms = 0 if gather.answered else body.max_wait_ms
                event = ConsumerFetch(message.source, message.correlation_id, request, wait_ms, body.min_bytes, body.isolation_level)
                effects.run(hosted, event)
        gather.asking = False
        if gather.answered or not topics:
            gather.finish()

    def list_offsets(self, message: Request, body: ListOffsetsRequest) -> None:
        """Offsets by time, answered at once."""
        answers = []
        for topic in body.topics:
            parts = []
            topic_id = self._standing.image.topic_ids.get(topic.name, "")
            for request in topic.partitions:
                event = ListOffsets(message.source, message.correlation_id, request, body.replica_id, body.isolation_level)
                result = self._ask((topic_id, request.partition_index), message, event)
                if not isinstance(result, ListOffsetsPartitionResponse):
                    result = ListOffsetsPartitionResponse(
                        request.partition_index, self._refusal((topic_id, request.partition_index), named=True)
                    )
                parts.append(result)
            answers.append(ListOffsetsTopicResponse(topic.name, parts))
        self._effects.respond(message.source, message.correlation_id, ListOffsetsResponse(answers))

    def offset_for_leader_epoch(self, message: Request, body: OffsetForLeaderEpochRequest) -> None:
        """Where leader epochs end, answered at once."""
        answers = []
        for topic in body.topics:
            parts = []
            topic_id = self._standing.image.topic_ids.get(topic.topic, "")
            for request in topic.partitions:
                event = OffsetForLeaderEpoch(message.source, message.correlation_id, request)
                result = self._ask((topic_id, request.partition), message, event)
                if not isinstance(result, OffsetForLeaderEpochResult):
                    result = OffsetForLeaderEpochResult(request.partition, self._refusal((topic_id, request.partition), named=True))
                parts.append(result)
            answers.append(OffsetForLeaderTopicResult(topic.topic, parts))
        self._effects.respond(message.source, message.correlation_id, OffsetForLeaderEpochResponse(answers))

    def _ask(self, key: PartitionKey, message: Request, event: ListOffsets | OffsetForLeaderEpoch) -> Result | None:
        """The answer that the replica gives at once; None where there is no replica to ask."""
        effects = self._effects
        hosted = self._hosted.get(key)
        if hosted is None or effects.now_ns > self._standing.leased_until_ns:
            return None
        collect = _Collect()
        effects.gathers[message.source, message.correlation_id] = collect
        effects.run(hosted, event)
        del effects.gathers[message.source, message.correlation_id]
        return collect.result

    def _refusal(self, key: PartitionKey, *, named: bool = False) -> ErrorCode:
        if key[0] not in self._standing.image.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if named else ErrorCode.UNKNOWN_TOPIC_ID
        if self._standing.image.partition(key) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
