"""Produce requests: one event for each partition's batch, one answer for the request."""

from __future__ import annotations

from collections.abc import Container, Mapping

from pyreplog.controller import PartitionKey
from pyreplog.errors import PyreplogError
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import ClusterView, HostedPartition
from pyreplog.node.traffic import size_of
from pyreplog.ports import Address
from pyreplog.replica import Produce, ProduceMany, Result
from pyreplog.wire import (
    ErrorCode,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    Request,
    TopicProduceResponse,
)

__all__ = ["ProduceService"]

_NO_ANSWER = 0


class _ProduceAssembler:
    """The answer to a request of several partitions, collected until all of them are decided."""

    __slots__ = ("_correlation_id", "_missing", "_parts", "_service", "_source")

    def __init__(self, service: ProduceService, source: Address, correlation_id: int, missing: int) -> None:
        self._service = service
        self._source = source
        self._correlation_id = correlation_id
        self._missing = missing
        self._parts: dict[str, list[PartitionProduceResponse]] = {}

    def add(self, hosted: HostedPartition, result: Result) -> None:
        """Add one partition's result."""
        assert type(result) is PartitionProduceResponse
        self.put(hosted.topic_id, result)

    def abandon(self) -> None:
        """Do nothing: either no replica has a part of the request yet, or each answers for
        itself."""

    def put(self, topic_id: str, result: PartitionProduceResponse) -> None:
        """Add the result of a partition that is not hosted here."""
        self._parts.setdefault(topic_id, []).append(result)
        self._missing -= 1
        if self._missing == 0:
            self._service.effects.assemblers.pop((self._source, self._correlation_id), None)
            body = ProduceResponse([TopicProduceResponse(topic_id, parts) for topic_id, parts in self._parts.items()])
            self._service.effects.answer(self._source, self._correlation_id, body)


class ProduceService:
    """Appends by clients.

    ``refused``: the copies that the disk does not let this node create. ``trusted``: the addresses
    whose batches our own encoder made in this process, so that they need no check.
    """

    def __init__(
        self,
        effects: Effects,
        hosted: Mapping[PartitionKey, HostedPartition],
        standing: ClusterView,
        node_id: int,
        refused: Mapping[PartitionKey, PyreplogError],
        trusted: Container[Address],
    ) -> None:
        self.effects = effects
        self._node_id = node_id
        self._refused = refused
        self._standing = standing
        self._hosted = hosted
        self._trusted = trusted
        self.gathered: list[tuple[HostedPartition, Produce]] = []
        """The batches that arrived in this turn; :meth:`flush` appends them."""

    def flush(self) -> None:
        """Append the collected batches, those of one partition together."""
        gathered, self.gathered = self.gathered, []
        if len(gathered) == 1:
            self.effects.run(*gathered[0])
            return
        by_partition: dict[PartitionKey, list[Produce]] = {}
        for hosted, event in gathered:
            by_partition.setdefault(hosted.key, []).append(event)
        for hosted, event in gathered:
            events = by_partition.pop(hosted.key, None)
            if events is not None:
                self.effects.run(hosted, event if len(events) == 1 else ProduceMany(events))

    def produce(self, message: Request, body: ProduceRequest) -> None:
        """Collect the batches for the end of the turn.

        The answer follows when ``acks`` is satisfied (acks 0: there is none).
        """
        topics = body.topic_data
        effects = self.effects
        if len(topics) == 1 and len(topics[0].partition_data) == 1:
            data = topics[0].partition_data[0]
            hosted = self._hosted.get((topics[0].topic_id, data.index))
            if hosted is not None and effects.now_ns <= self._standing.leased_until_ns:
                source = message.source
                trusted = source in self._trusted
                effects.traffic.bytes_from_producers += size_of(data)
                event = Produce(source, message.correlation_id, body.acks, data.records, body.timeout_ms, -1, trusted)
                self.gathered.append((hosted, event))
                return
        self._produce_many(message, body)

    def _produce_many(self, message: Request, body: ProduceRequest) -> None:
        effects = self.effects
        count = sum(len(topic.partition_data) for topic in body.topic_data)
        if count == 0:
            if body.acks != _NO_ANSWER:
                effects.answer(message.source, message.correlation_id, ProduceResponse([]))
            return
        assembler = None
        if body.acks != _NO_ANSWER:
            assembler = _ProduceAssembler(self, message.source, message.correlation_id, count)
            effects.assemblers[message.source, message.correlation_id] = assembler
        before = len(self.gathered)
        try:
            self._gather(message, body, assembler)
        except Exception:
            del self.gathered[before:]  # the whole request is refused, so none of it is appended
            raise

    def _gather(self, message: Request, body: ProduceRequest, assembler: _ProduceAssembler | None) -> None:
        trusted = message.source in self._trusted
        leased = self.effects.now_ns <= self._standing.leased_until_ns
        for topic in body.topic_data:
            for data in topic.partition_data:
                hosted = self._hosted.get((topic.topic_id, data.index))
                if hosted is not None and leased:
                    self.effects.traffic.bytes_from_producers += size_of(data)
                    event = Produce(
                        message.source,
                        message.correlation_id,
                        body.acks,
                        data.records,
                        body.timeout_ms,
                        trusted=trusted,
                    )
                    self.gathered.append((hosted, event))
                elif assembler is not None:
                    assembler.put(topic.topic_id, self._refusal(topic.topic_id, data.index))

    def _refusal(self, topic_id: str, index: int) -> PartitionProduceResponse:
        """Return the reason why a batch is not accepted: nothing was appended."""
        if topic_id not in self._standing.image.topics:
            return PartitionProduceResponse(index, ErrorCode.UNKNOWN_TOPIC_ID)
        key = (topic_id, index)
        partition = self._standing.image.partition(key)
        if partition is None:
            return PartitionProduceResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = self._refused.get(key)
        if error is not None and partition.leader == self._node_id:
            return PartitionProduceResponse(index, ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
        return PartitionProduceResponse(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
