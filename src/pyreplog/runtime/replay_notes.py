"""ReplayNotes: what a reader that sends dead letters back notes of each before it sends it."""

from __future__ import annotations

from typing import NamedTuple

from pyreplog.readers import EntryKind, OffsetEntry, topic_crc
from pyreplog.record import Record
from pyreplog.runtime.named_consumer import NamedConsumer
from pyreplog.values import NO_EPOCH, TopicPartition

__all__ = ["ReplayNotes", "Target"]

NOTE_AGAIN_COUNT = 1000
"""The end of a target is noted again after this many letters."""


class Target(NamedTuple):
    """The partition that letters are sent back to."""

    topic: str
    topic_id: str
    partition: int


class ReplayNotes:
    """Notes, durably and in the reader's own file, that a letter is about to be sent, and where its target ended.

    A process may end between sending and committing. The next one finds the note, and looks for the letter in its
    target, from the noted end on. Belongs to one thread.
    """

    def __init__(self, consumer: NamedConsumer) -> None:
        self._consumer = consumer
        offsets = consumer._offsets
        self._pending = {
            key
            for key, cursor in consumer._own.items()
            if (noted := offsets.attempts_of(cursor.topic_id, key.partition)) is not None
            and noted.offset >= (cursor.committed or 0)
        }
        """The partitions of letters that an earlier process may have sent without a commit."""
        self._count: dict[Target, int] = {}

    def may_be_there(self, letter: Record) -> bool:
        """Return whether an earlier process may have sent ``letter``."""
        key = TopicPartition(letter.topic, letter.partition)
        if key not in self._pending:
            return False
        noted = self._consumer._offsets.attempts_of(self._consumer._own[key].topic_id, key.partition)
        return noted is not None and noted.offset == letter.offset

    def start_of(self, target: Target) -> int:
        """Return the first offset at which a letter that :meth:`may_be_there` is; 0 if none was noted."""
        found = self._consumer._offsets.commit_of(*target)
        return 0 if found is None else found.offset

    def needs_end(self, target: Target) -> bool:
        """Return whether :meth:`begin` needs the end of ``target`` now."""
        return not self._count.get(target, 0) % NOTE_AGAIN_COUNT

    def begin(self, letter: Record, target: Target, end: int | None) -> None:
        """Note, durably, that ``letter`` is sent to ``target``, which ends at or behind ``end`` (None: as noted)."""
        consumer = self._consumer
        self._count[target] = self._count.get(target, 0) + 1
        cursor = consumer._own[TopicPartition(letter.topic, letter.partition)]
        time_ms = consumer._clock.wall_ms()
        notes = []
        if end is not None:
            earlier = consumer._offsets.commit_of(*target)
            if earlier is not None and self._pending:
                end = min(end, earlier.offset)  # a letter that is not settled yet may be from there on
            notes.append(
                OffsetEntry(
                    EntryKind.COMMIT, target.topic_id, target.partition, end, NO_EPOCH, 0, time_ms,
                    topic_crc(target.topic),
                )
            )  # fmt: skip
        notes.append(
            OffsetEntry(
                EntryKind.ATTEMPT, cursor.topic_id, letter.partition, letter.offset, NO_EPOCH, 1, time_ms,
                cursor.topic_crc,
            )
        )  # fmt: skip
        with consumer._committing:
            consumer._check()
            consumer._offsets.write(notes)
            consumer._offsets.sync()

    def end(self, letter: Record) -> None:
        """Commit a letter that is sent, or that was there."""
        self._consumer.commit(letter)
        self._pending.discard(TopicPartition(letter.topic, letter.partition))
