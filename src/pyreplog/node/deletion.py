"""DeleteRecords: a client raises log start offsets. The answer waits until every live replica has
done so."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyreplog.controller import PartitionKey
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import ClusterView, HostedPartition
from pyreplog.ports import Address
from pyreplog.replica import DeleteRecords, Result
from pyreplog.wire import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    ErrorCode,
    Request,
)

__all__ = ["DeletionService"]


class _DeletionAssembler:
    """The answer, collected until all partitions are decided."""

    __slots__ = ("_finish", "missing", "results")

    def __init__(self, missing: int, finish: Callable[[_DeletionAssembler], None]) -> None:
        self.missing = missing
        self.results: dict[PartitionKey, DeleteRecordsPartitionResult] = {}
        self._finish = finish

    def add(self, hosted: HostedPartition, result: Result) -> None:
        """Add one partition's result."""
        assert isinstance(result, DeleteRecordsPartitionResult)
        self.put(hosted.key, result)

    def abandon(self) -> None:
        """Do nothing: the replicas continue, and their later results are dropped."""

    def put(self, key: PartitionKey, result: DeleteRecordsPartitionResult) -> None:
        """Add the result of a partition that is not hosted here."""
        self.results[key] = result
        self.missing -= 1
        if self.missing == 0:
            self._finish(self)


class DeletionService:
    """Deletions by clients, at the leaders."""

    def __init__(self, effects: Effects, hosted: Mapping[PartitionKey, HostedPartition], standing: ClusterView) -> None:
        self._effects = effects
        self._hosted = hosted
        self._standing = standing

    def delete(self, message: Request) -> None:
        """Pass each part to its replica. Partitions that are not led here are refused."""
        body = message.body
        assert isinstance(body, DeleteRecordsRequest)
        effects, image = self._effects, self._standing.image
        place = (message.source, message.correlation_id)
        assembler = _DeletionAssembler(
            sum(len(topic.partitions) for topic in body.topics), lambda done: self._answer(place, body, done)
        )
        if not assembler.missing:
            effects.answer(*place, DeleteRecordsResponse([]))
            return
        effects.assemblers[place] = assembler
        leased = effects.now_ns <= self._standing.leased_until_ns
        for topic in body.topics:
            topic_id = image.topic_ids.get(topic.name, "")
            for one in topic.partitions:
                hosted = self._hosted.get((topic_id, one.partition_index))
                if hosted is not None and leased:
                    effects.run(hosted, DeleteRecords(*place, one.offset, body.timeout_ms))
                    continue
                known = image.partition((topic_id, one.partition_index)) is not None
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assembler.put(
                    (topic.name, one.partition_index), DeleteRecordsPartitionResult(one.partition_index, -1, code)
                )

    def _answer(self, place: tuple[Address, int], body: DeleteRecordsRequest, assembler: _DeletionAssembler) -> None:
        self._effects.assemblers.pop(place, None)
        topics = []
        for topic in body.topics:
            topic_id = self._standing.image.topic_ids.get(topic.name, "")
            parts = []
            for one in topic.partitions:
                number = one.partition_index
                found = assembler.results.get((topic_id, number)) or assembler.results.get((topic.name, number))
                parts.append(found or DeleteRecordsPartitionResult(number, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topics.append(DeleteRecordsTopicResult(topic.name, parts))
        self._effects.answer(*place, DeleteRecordsResponse(topics))
