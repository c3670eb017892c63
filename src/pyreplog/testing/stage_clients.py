"""The clients of a stage: the requests that they send, the answers that they get, and the checks
of those answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyreplog.record import BatchBuilder, Record, records_of, split
from pyreplog.replica import ConsumerFetch, DeleteRecords, ListOffsets, Produce
from pyreplog.testing.checkers import batches_of
from pyreplog.testing.stage_node import FOREVER_MS, TOPIC
from pyreplog.values import TopicPartition
from pyreplog.wire import LATEST_TIMESTAMP, FetchPartition, ListOffsetsPartition

__all__ = ["CLIENT", "NAME", "StageAttempt", "StageClients"]

CLIENT: Final = "client"
NAME: Final = TopicPartition(TOPIC, 0)
READ_SIZE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StageAttempt:
    """An append that was acknowledged with acks=all, with the fields that checkers read of an attempt."""

    offset: int
    value: bytes
    topic_partition: TopicPartition = NAME
    outcome: str = "ok"
    acks: int = -1


class StageClients:
    """All clients together. Every request has a number, under which ``results`` gets its answer."""

    def __init__(self, broken: Callable[[str, str], None]) -> None:
        self.results: dict[int, Any] = {}
        self.values: dict[int, bytes] = {}
        """The first value of each append, by its number."""
        self.acknowledged: dict[bytes, int] = {}
        """Value -> offset of each record that was acknowledged with acks=all."""
        self.delete_asked: dict[TopicPartition, int] = {}
        """The highest offset up to which a client asked to delete records."""
        self._broken = broken
        self._numbers = 0
        self._wanting_all: dict[int, None] = {}
        self._deletions: dict[int, None] = {}
        self._end_told = 0

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Requests -------------------------------------------------------------------------------------

    def append(self, values: Sequence[bytes], acks: int, timeout_ms: int, numbers: tuple[int, int, int]) -> Produce:
        """Return the request that appends one batch; by default of one unique value."""
        number = self._number()
        records = values or (b"m%d" % number,)
        builder = BatchBuilder()
        for value in records:
            assert builder.append(value, None, (), 1)
        data = builder.finish(producer_id=numbers[0], producer_epoch=numbers[1], base_sequence=numbers[2])
        self.values[number] = records[0]
        if acks == -1:
            self._wanting_all[number] = None
        return Produce(CLIENT, number, acks, bytearray(data), timeout_ms)

    def read(self, offset: int) -> ConsumerFetch:
        """Return the request of a consumer that reads from ``offset``."""
        return ConsumerFetch(CLIENT, self._number(), FetchPartition(0, -1, offset, -1, -1, READ_SIZE), 0)

    def latest(self) -> ListOffsets:
        """Return the request for the end of the log."""
        return ListOffsets(CLIENT, self._number(), ListOffsetsPartition(0, -1, LATEST_TIMESTAMP))

    def delete(self, offset: int) -> DeleteRecords:
        """Return the request that deletes the records below ``offset``."""
        number = self._number()
        self.delete_asked[NAME] = max(offset, self.delete_asked.get(NAME, 0))
        self._deletions[number] = None
        return DeleteRecords(CLIENT, number, offset, FOREVER_MS)

    # Answers --------------------------------------------------------------------------------------

    def answered(self, number: int, result: Any) -> StageAttempt | None:
        """Note an answer. Return the append that it acknowledges with acks=all, if it does."""
        self.results[number] = result
        if number in self._wanting_all and not result.error_code:
            return StageAttempt(result.base_offset, self.values[number])
        return None

    def is_deletion(self, number: int) -> bool:
        """Return whether the request asked to delete records."""
        return number in self._deletions

    def records(self, number: int, committed_end: int | None) -> list[Record] | None:
        """Return the records in the answer to a read; None if it has none. No record may lie at or above
        ``committed_end`` (S10)."""
        data = self.results.get(number)
        if data is None or data.error_code or data.records is None:
            return None
        parts = data.records.parts() if hasattr(data.records, "parts") else [data.records]
        found = [record for part in parts for batch in split(part) for record in records_of(batch, TOPIC, 0)]
        for record in found:
            if committed_end is not None and record.offset >= committed_end:
                self._broken("S10", f"offset {record.offset} was read, and committed is {committed_end}")
        return found

    def end(self, number: int) -> int | None:
        """Return the end of the log that a node answered; None for an error. It never goes back (S8)."""
        answer = self.results[number]
        if answer.error_code:
            return None
        if answer.offset < self._end_told:
            self._broken("S8", f"readers were told that the end is {self._end_told}, and now {answer.offset}")
        self._end_told = answer.offset
        return int(answer.offset)

    def check(self, log: Any, node_id: int, offset: int, value: bytes) -> None:
        """Check that an acknowledged value is in the acknowledging node's log at its offset (S1), and was not
        acknowledged at another offset before (S12)."""
        known = self.acknowledged.setdefault(value, offset)
        if known != offset:
            self._broken("S12", f"{value!r} was acknowledged at offset {known}, and now at {offset}")
        if log is not None and offset < log.start_offset:
            return  # acknowledged once more, and deleted since
        if log is None or offset >= log.end_offset:
            self._broken("S1", f"{value!r} was acknowledged at offset {offset}, where node {node_id} has nothing")
            return
        batch = next(one for one in batches_of(log, offset, log.end_offset) if one.next_offset > offset)
        found = next(iter(records_of(batch, TOPIC, 0))).value
        if found != value:
            self._broken("S1", f"{value!r} was acknowledged at offset {offset}, where node {node_id} has {found!r}")
