"""Judging a history alone: what clients did and saw, with no look inside. For our own runs and for programs built
on pyreplog.

The anomalies are those of Jepsen's tests of Kafka and Redpanda; see :data:`KINDS`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from pyreplog.record import Record
from pyreplog.testing.checkers.base import Checker
from pyreplog.testing.observed import ObservedWorld
from pyreplog.testing.workload import Attempt, SimConsumer
from pyreplog.values import TopicPartition

__all__ = ["KINDS", "Anomaly", "History", "HistoryHolds"]

KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lost": "it was acknowledged, readers went past its offset, and nobody ever read it",
        "unseen": "it was acknowledged, and no reader ever came as far",
        "duplicated": "one record was read at two offsets",
        "altered": "one offset was read with two values",
        "reordered": "a producer's acknowledged records are not in the order of sending",
        "skipped": "a reader went past an offset at which there is a record",
        "stale": "a reader that did not seek was given an earlier offset again",
        "phantom": "nobody sent what was read",
        "refused": "it was refused for good, and yet it was read",
    }
)
"""Every kind of anomaly, and what it means."""


class Anomaly(NamedTuple):
    """One finding. ``kind`` is one of :data:`KINDS`."""

    kind: str
    about: str


@dataclass(slots=True)
class _Log:
    """What is known of one partition."""

    values: dict[int, Hashable] = field(default_factory=dict)
    offsets: dict[Hashable, int] = field(default_factory=dict)
    acknowledged: dict[Hashable, int] = field(default_factory=dict)
    sent: dict[Hashable, tuple[str, int]] = field(default_factory=dict)
    refused: dict[Hashable, None] = field(default_factory=dict)
    last_ok: dict[str, tuple[int, int]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    passed: list[tuple[str, int, int]] = field(default_factory=list)
    numbers: int = 0


class History:
    """What happened, in the order in which it happened. Each value must be unique within its partition.

    Tell it ``sent`` before each append, then one of ``acknowledged``, ``refused`` or ``unknown``; ``read`` for each
    record a reader is given, and ``moved`` when a reader seeks. ``anomalies()`` says what is wrong; ``ended`` adds
    what only the end of a run can show.
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

    def sent(self, producer: str, topic_partition: TopicPartition, value: Hashable) -> None:
        """``producer`` is about to append ``value``."""
        log = self._log(topic_partition)
        log.numbers += 1
        log.sent[value] = (producer, log.numbers)

    def acknowledged(self, topic_partition: TopicPartition, value: Hashable, offset: int) -> None:
        """It is at ``offset``, for good. -1: it is there, and whoever said so does not know where."""
        log = self._log(topic_partition)
        if offset < 0:
            return
        log.acknowledged[value] = offset
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
        """It was surely not appended."""
        self._log(topic_partition).refused[value] = None

    def unknown(self, topic_partition: TopicPartition, value: Hashable) -> None:
        """It may have been appended, or may yet be: nothing can be said."""

    # -- readers

    def moved(self, reader: str, topic_partition: TopicPartition, offset: int) -> None:
        """``reader`` goes on at ``offset``: what it skips or repeats by that it wanted."""
        self._log(topic_partition).positions[reader] = offset

    def read(self, reader: str, topic_partition: TopicPartition, offset: int, value: Hashable) -> None:
        """``reader`` was given ``value`` at ``offset``."""
        log = self._log(topic_partition)
        known = log.values.setdefault(offset, value)
        if known != value:
            self._note(
                "altered", f"{topic_partition} offset {offset}: {_short(known)}, and {reader} read {_short(value)}"
            )
        first = log.offsets.setdefault(value, offset)
        if first != offset:
            self._note("duplicated", f"{topic_partition}: {_short(value)} at {first} and {offset}")
        if value not in log.sent:
            self._note("phantom", f"{topic_partition} offset {offset}: {_short(value)}")
        elif value in log.refused:
            self._note("refused", f"{topic_partition} offset {offset}: {_short(value)}")
        expected = log.positions.get(reader)
        if expected is not None and offset < expected:
            self._note("stale", f"{topic_partition}: {reader} read {offset} where {expected} was next")
        elif expected is not None and offset > expected:
            log.passed.append((reader, expected, offset))
        log.positions[reader] = offset + 1

    # -- the judgement

    def anomalies(self) -> list[Anomaly]:
        """What can be said so far, in the order of finding."""
        found = list(self._found)
        for name, log in self._logs.items():
            furthest = max(log.offsets.values(), default=-1)
            for value, offset in log.acknowledged.items():
                if offset < furthest and value not in log.offsets:
                    found.append(Anomaly("lost", f"{name} offset {offset}: {_short(value)} was acknowledged"))
            for reader, begin, end in log.passed:
                skipped = [offset for offset in range(begin, end) if offset in log.values]
                if skipped:
                    found.append(Anomaly("skipped", f"{name}: {reader} went from {begin} to {end}, past {skipped[0]}"))
        return found

    def ended(self) -> list[Anomaly]:
        """As ``anomalies``, when readers had all the time they needed: then also nothing acknowledged may be
        unseen."""
        found = self.anomalies()
        for name, log in self._logs.items():
            furthest = max(log.offsets.values(), default=-1)
            found += [
                Anomaly("unseen", f"{name} offset {offset}: {_short(value)} was acknowledged")
                for value, offset in log.acknowledged.items()
                if offset >= furthest and value not in log.offsets
            ]
        return found


class HistoryHolds(Checker):
    """The history of a world's own producers and consumers, judged from outside."""

    numbers = ("history",)
    says = "nothing is lost, unseen, duplicated, altered, reordered, skipped, stale or a phantom"

    def __init__(self) -> None:
        self.history = History()
        self._known = 0
        self._unknown: dict[int, int] = {}

    def _tell(self, world: ObservedWorld) -> None:
        """What was sent since."""
        for producer in world.producers:
            known = self._unknown.get(producer.number, 0)
            for attempt in producer.attempts[known:]:
                self.history.sent(producer.address, attempt.topic_partition, attempt.value)
            self._unknown[producer.number] = len(producer.attempts)

    def settled(self, world: ObservedWorld, attempt: Attempt) -> None:
        """An outcome."""
        self._tell(world)
        if attempt.outcome == "ok" and world.promises(attempt):
            self.history.acknowledged(attempt.topic_partition, attempt.value, attempt.offset)
        elif attempt.outcome == "refused":
            self.history.refused(attempt.topic_partition, attempt.value)

    def read(self, world: ObservedWorld, consumer: SimConsumer, record: Record) -> None:
        """A record."""
        self._tell(world)
        self.history.read(
            consumer.address, TopicPartition(record.topic, record.partition), record.offset, record.value or b""
        )
        self._look(world, self.history._found)

    def final(self, world: ObservedWorld) -> None:
        """All of it."""
        self._tell(world)
        self._look(world, self.history.ended())

    def _look(self, world: ObservedWorld, found: list[Anomaly]) -> None:
        if found:
            world.broken("history", f"{found[0].kind}: {found[0].about} ({KINDS[found[0].kind]})")


def _short(value: Hashable) -> str:
    return repr(value)[:60]
