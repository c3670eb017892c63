"""Finds anomalies in the history of the clients, without looking at the cluster.

The history is the list of records that clients sent, had acknowledged and read. It serves our own runs and programs
built on pyreplog. The anomalies are those of Jepsen's tests of Kafka and Redpanda; see :data:`KINDS`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from pyreplog.record import Record
from pyreplog.testing.checkers.base import Checker
from pyreplog.testing.checkers.logs import CommittedIdentical
from pyreplog.testing.observed import ObservedWorld
from pyreplog.testing.workload import Attempt, SimConsumer, identity
from pyreplog.values import TopicPartition

__all__ = ["KINDS", "Anomaly", "History", "HistoryHolds"]

KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lost": "it was acknowledged, readers went past its offset, and no reader ever read it",
        "unseen": "it was acknowledged, and no reader ever came as far",
        "duplicated": "one record was read at two offsets",
        "altered": "one offset was read with two values",
        "reordered": "a producer's acknowledged records are not in the order of sending",
        "skipped": "a reader went past an offset at which there is a record",
        "stale": "a reader that did not seek was given an earlier offset again",
        "phantom": "a record was read that no producer sent",
        "refused": "it was refused for good, and yet it was read",
    }
)
"""The meaning of each kind of anomaly."""


class Anomaly(NamedTuple):
    """One anomaly that was found. ``kind`` is one of :data:`KINDS`."""

    kind: str
    about: str


@dataclass(slots=True)
class _Log:
    """The history of one partition."""

    values: dict[int, Hashable] = field(default_factory=dict)
    offsets: dict[Hashable, int] = field(default_factory=dict)
    acknowledged: dict[Hashable, int] = field(default_factory=dict)
    sent: dict[Hashable, tuple[str, int]] = field(default_factory=dict)
    refused: dict[Hashable, None] = field(default_factory=dict)
    last_ok: dict[str, tuple[int, int]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    passed: list[tuple[str, int, int]] = field(default_factory=list)
    numbers: int = 0
    keys: dict[Hashable, Hashable] = field(default_factory=dict)
    newest: dict[Hashable, int] = field(default_factory=dict)
    tombstones: dict[Hashable, None] = field(default_factory=dict)

    def note(self, value: Hashable, offset: int) -> None:
        """Note that a record is there."""
        key = self.keys.get(value)
        if key is not None:
            self.newest[key] = max(self.newest.get(key, -1), offset)

    def may_be_gone(self, value: Hashable, offset: int) -> bool:
        """Return whether compaction may have removed a record: there is a later one of its key, or it is a
        tombstone."""
        key = self.keys.get(value)
        return key is not None and (self.newest.get(key, -1) > offset or value in self.tombstones)


class History:
    """The history of all clients, recorded in the order of its events.

    Values must be unique within their partition. Call ``sent`` before each append, and then one of
    ``acknowledged``, ``refused`` or ``unknown``; call ``read`` for each record that a reader gets, and ``moved``
    when a reader seeks. ``anomalies()`` returns the anomalies so far; ``ended()`` adds those that only the end of a
    run can show.
    """

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, _Log] = {}
        self._found: list[Anomaly] = []

    def _log(self, topic_partition: TopicPartition) -> _Log:
        found = self._logs.get(topic_partition)
        if found is None:
            found = self._logs[topic_partition] = _Log()
        return found

    def _note(self, kind: str, about: str) -> None:
        self._found.append(Anomaly(kind, about))

    # -- producers

    def sent(
        self,
        producer: str,
        topic_partition: TopicPartition,
        value: Hashable,
        *,
        key: Hashable | None = None,
        is_tombstone: bool = False,
    ) -> None:
        """Record that ``producer`` is about to append ``value``.

        ``key``: its key in a compacted topic. Readers may miss the record if there is a later one of the key, or if
        it is a tombstone.
        """
        log = self._log(topic_partition)
        log.numbers += 1
        if key is not None:
            log.keys[value] = key
            if is_tombstone:
                log.tombstones[value] = None
        log.sent[value] = (producer, log.numbers)

    def acknowledged(self, topic_partition: TopicPartition, value: Hashable, offset: int) -> None:
        """Record that ``value`` was acknowledged at ``offset``; -1 if it was appended at an unknown offset."""
        log = self._log(topic_partition)
        if offset < 0:
            return
        log.acknowledged[value] = offset
        log.note(value, offset)
        known = log.values.setdefault(offset, value)
        if known != value:
            self._note(
                "altered",
                f"{topic_partition} offset {offset}: {_short(known)}, and {_short(value)} was acknowledged there",
            )
        producer, number = log.sent.get(value, ("", 0))
        last_number, last_offset = log.last_ok.get(producer, (0, -1))
        if (number > last_number) != (offset > last_offset):
            self._note(
                "reordered",
                f"{topic_partition}: {_short(value)} of {producer} at {offset}, the one before at {last_offset}",
            )
        elif number > last_number:
            log.last_ok[producer] = (number, offset)

    def refused(self, topic_partition: TopicPartition, value: Hashable) -> None:
        """Record that the append of ``value`` was refused: it is certainly not in the log."""
        self._log(topic_partition).refused[value] = None

    def unknown(self, topic_partition: TopicPartition, value: Hashable) -> None:
        """Record that the outcome is unknown: ``value`` may have been appended, or may be appended later."""

    def stored(self, topic_partition: TopicPartition, value: Hashable, offset: int) -> None:
        """Record that ``value`` was in the log at ``offset``, so that compaction may have removed earlier records of
        its key, even if no client knows of it."""
        self._log(topic_partition).note(value, offset)

    # -- readers

    def moved(self, reader: str, topic_partition: TopicPartition, offset: int) -> None:
        """Record that ``reader`` seeks to ``offset``: records that it skips or repeats are no anomaly then."""
        self._log(topic_partition).positions[reader] = offset

    def read(self, reader: str, topic_partition: TopicPartition, offset: int, value: Hashable) -> None:
        """Record that ``reader`` got ``value`` at ``offset``."""
        log = self._log(topic_partition)
        known = log.values.setdefault(offset, value)
        if known != value:
            self._note(
                "altered", f"{topic_partition} offset {offset}: {_short(known)}, and {reader} read {_short(value)}"
            )
        log.note(value, offset)
        first = log.offsets.setdefault(value, offset)
        if first != offset:
            self._note("duplicated", f"{topic_partition}: {_short(value)} at {first} and {offset}")
        if value not in log.sent:
            self._note("phantom", f"{topic_partition} offset {offset}: {_short(value)}")
        elif value in log.refused:
            self._note("refused", f"{topic_partition} offset {offset}: {_short(value)}")
        expected = log.positions.get(reader)
        if expected is not None and offset < expected:
            self._note("stale", f"{topic_partition}: {reader} read {offset}, expected {expected}")
        elif expected is not None and offset > expected:
            log.passed.append((reader, expected, offset))
        log.positions[reader] = offset + 1

    # -- the judgement

    def anomalies(self) -> list[Anomaly]:
        """Return the anomalies of the history so far, in the order in which they were found."""
        found = list(self._found)
        for name, log in self._logs.items():
            furthest = max(log.offsets.values(), default=-1)
            for value, offset in log.acknowledged.items():
                if offset < furthest and value not in log.offsets and not log.may_be_gone(value, offset):
                    found.append(Anomaly("lost", f"{name} offset {offset}: {_short(value)} was acknowledged"))
            for reader, begin, end in log.passed:
                skipped = [
                    offset
                    for offset in range(begin, end)
                    if offset in log.values and not log.may_be_gone(log.values[offset], offset)
                ]
                if skipped:
                    found.append(Anomaly("skipped", f"{name}: {reader} went from {begin} to {end}, past {skipped[0]}"))
        return found

    def ended(self) -> list[Anomaly]:
        """Return the anomalies at the end of a run, when readers have had all the time that they needed.

        In addition to ``anomalies()`` it reports acknowledged records that no reader has reached as ``unseen``.
        """
        found = self.anomalies()
        for name, log in self._logs.items():
            furthest = max(log.offsets.values(), default=-1)
            found += [
                Anomaly("unseen", f"{name} offset {offset}: {_short(value)} was acknowledged")
                for value, offset in log.acknowledged.items()
                if offset >= furthest and value not in log.offsets and not log.may_be_gone(value, offset)
            ]
        return found


class HistoryHolds(Checker):
    """Checks the history of a world's own producers and consumers for anomalies."""

    numbers = ("history",)
    says = "nothing is lost, unseen, duplicated, altered, reordered, skipped, stale or a phantom"

    def __init__(self, committed: CommittedIdentical) -> None:
        self.history = History()
        self._committed = committed
        self._known = 0
        self._unknown: dict[int, int] = {}

    def _tell(self, world: ObservedWorld) -> None:
        """Record the attempts that the producers made since the last call."""
        for producer in world.producers:
            known = self._unknown.get(producer.number, 0)
            for attempt in producer.attempts[known:]:
                key = attempt.key if world.options.compacts(attempt.topic_partition.topic) else None
                self.history.sent(
                    producer.address,
                    attempt.topic_partition,
                    attempt.value,
                    key=key,
                    is_tombstone=attempt.is_tombstone,
                )
            self._unknown[producer.number] = len(producer.attempts)

    def settled(self, world: ObservedWorld, attempt: Attempt) -> None:
        """Record the outcome of an append."""
        self._tell(world)
        if attempt.outcome == "ok" and world.promises(attempt):
            self.history.acknowledged(attempt.topic_partition, attempt.value, attempt.offset)
        elif attempt.outcome == "refused":
            self.history.refused(attempt.topic_partition, attempt.value)

    def read(self, world: ObservedWorld, consumer: SimConsumer, record: Record) -> None:
        """Record that a consumer read a record, and report any anomaly that it shows."""
        self._tell(world)
        self.history.read(
            consumer.address, TopicPartition(record.topic, record.partition), record.offset, identity(record)
        )
        self._look(world, self.history._found)

    def final(self, world: ObservedWorld) -> None:
        """Report any anomaly of the whole history."""
        self._tell(world)
        for name, key, _ in world.partitions():
            records = self._committed.compacted.get(key)
            for offset, kept in () if records is None else records.records.items():
                self.history.stored(name, kept.identity, offset)
        self._look(world, self.history.ended())

    def _look(self, world: ObservedWorld, found: list[Anomaly]) -> None:
        if found:
            world.broken("history", f"{found[0].kind}: {found[0].about} ({KINDS[found[0].kind]})")


def _short(value: Hashable) -> str:
    return repr(value)[:60]
