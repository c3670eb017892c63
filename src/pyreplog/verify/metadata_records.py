"""Metadata records, decoded byte by byte from Kafka's description, and the state that they add up to.

Only the records that name topics, partitions and brokers are decoded. Of the others the frame is read.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

T = TypeVar("T")

_FRAME_VERSION: Final = 1
_UNCHANGED: Final = -2
"""The leader in a PartitionChangeRecord that leaves the leader alone."""
REGISTER_BROKER: Final = 0
UNREGISTER_BROKER: Final = 1
TOPIC: Final = 2
PARTITION: Final = 3
PARTITION_CHANGE: Final = 5
REMOVE_TOPIC: Final = 9
_BEGIN: Final = 23
_END: Final = 24
_ABORT: Final = 25
NEWEST: Final = {REGISTER_BROKER: 4, PARTITION: 2, PARTITION_CHANGE: 2, 17: 3}
"""The newest version of each kind of record, where it is not 0."""
KINDS: Final = frozenset(range(30)) - {6, 13, 16}


class BadRecord(ValueError):
    """The bytes are no metadata record, or contradict the records before it; the text says why."""


class RecordFields:
    """Reads the fields of one record from its bytes, in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        if not 0 <= size <= len(self._data) - self._at:
            raise BadRecord(f"a field of {size} bytes where {len(self._data) - self._at} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def varint(self) -> int:
        """Return an unsigned number of at most five bytes."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BadRecord("a number is longer than it may be")

    def number(self, size: int) -> int:
        """Return a signed number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def flag(self) -> bool:
        """Return a boolean."""
        return self.take(1) != b"\0"

    def uuid(self) -> str:
        """Return an id in Kafka's text form."""
        return base64.urlsafe_b64encode(self.take(16)).decode().rstrip("=")

    def text(self) -> str:
        """Return a text that is there."""
        try:
            return self.take(self.varint() - 1).decode()
        except UnicodeDecodeError:
            raise BadRecord("a text that is not UTF-8") from None

    def optional_text(self) -> str | None:
        """Return a text that may be missing."""
        before = self._at
        if not self.varint():
            return None
        self._at = before
        return self.text()

    def many(self, one: Callable[[], T]) -> list[T]:
        """Return a list; a missing one is empty."""
        count = self.varint() - 1
        if count > len(self._data) - self._at:
            raise BadRecord(f"a list of {count} where {len(self._data) - self._at} bytes are left")
        return [one() for _ in range(count)]

    def int32s(self) -> list[int]:
        """Return a list of int32."""
        return self.many(lambda: self.number(4))

    def tags(self) -> dict[int, bytes]:
        """Return the tagged fields by their tags."""
        found = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = self.take(self.varint())
        return found

    def end(self) -> None:
        """Raise :class:`BadRecord` if bytes are left."""
        if self._at != len(self._data):
            raise BadRecord(f"{len(self._data) - self._at} bytes behind its end")


@dataclass(slots=True)
class PartitionFacts:
    """What the metadata says of one partition."""

    replicas: list[int]
    isr: list[int]
    elr: list[int]
    leader: int
    leader_epoch: int
    partition_epoch: int


@dataclass(slots=True)
class MetadataState:
    """The topics, partitions and brokers after a number of records. ``unknown`` counts the records of kinds or
    versions that are not known here."""

    topics: dict[str, str] = field(default_factory=dict)
    """Id -> name."""
    partitions: dict[tuple[str, int], PartitionFacts] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    unknown: Counter[tuple[int, int]] = field(default_factory=Counter)
    _open: list[bytes] | None = None
    """The records of a metadata transaction that has not ended; None: there is none."""

    def apply(self, value: bytes) -> None:
        """Apply one record. Raises :class:`BadRecord`."""
        fields = RecordFields(value)
        frame, kind, version = fields.varint(), fields.varint(), fields.varint()
        if frame != _FRAME_VERSION:
            raise BadRecord(f"its frame has version {frame}, and only {_FRAME_VERSION} is known")
        if kind not in KINDS or version > NEWEST.get(kind, 0):
            self.unknown[kind, version] += 1
        elif kind == _BEGIN:
            self._open = []
        elif kind in (_END, _ABORT):
            held, self._open = self._open or [], None
            for one in held if kind == _END else ():
                self.apply(one)
        elif self._open is not None:
            self._open.append(value)
        elif kind in _APPLIED:
            _APPLIED[kind](self, fields, version)
            fields.end()

    def _register_broker(self, fields: RecordFields, version: int) -> None:
        broker = fields.number(4)
        if version >= 2:
            fields.flag()
        fields.uuid()
        fields.number(8)
        fields.many(lambda: (fields.text(), fields.text(), fields.take(4), fields.tags()))
        fields.many(lambda: (fields.text(), fields.take(4), fields.tags()))
        fields.optional_text()
        fields.flag()
        if version >= 1:
            fields.flag()
        fields.tags()
        self.brokers.add(broker)

    def _unregister_broker(self, fields: RecordFields, _: int) -> None:
        broker = fields.number(4)
        fields.number(8)
        fields.tags()
        if broker not in self.brokers:
            raise BadRecord(f"it unregisters node {broker}, which no record registered")
        self.brokers.discard(broker)

    def _topic(self, fields: RecordFields, _: int) -> None:
        name, topic_id = fields.text(), fields.uuid()
        fields.tags()
        self.topics[topic_id] = name

    def _remove_topic(self, fields: RecordFields, _: int) -> None:
        topic_id = fields.uuid()
        fields.tags()
        if self.topics.pop(topic_id, None) is None:
            raise BadRecord(f"it removes topic {topic_id}, which no record made")
        for key in [key for key in self.partitions if key[0] == topic_id]:
            del self.partitions[key]

    def _partition(self, fields: RecordFields, version: int) -> None:
        number, topic_id = fields.number(4), fields.uuid()
        replicas, isr = fields.int32s(), fields.int32s()
        fields.int32s()
        fields.int32s()
        leader, leader_epoch, partition_epoch = fields.number(4), fields.number(4), fields.number(4)
        if version >= 1:
            fields.many(fields.uuid)
        tags = fields.tags()
        if topic_id not in self.topics:
            raise BadRecord(f"it makes a partition of topic {topic_id}, which no record made")
        elr = _int32s(tags.get(1)) if version >= 2 else None
        found = PartitionFacts(replicas, isr, elr or [], leader, leader_epoch, partition_epoch)
        self.partitions[topic_id, number] = found

    def _change(self, fields: RecordFields, version: int) -> None:
        number, topic_id = fields.number(4), fields.uuid()
        tags = fields.tags()
        found = self.partitions.get((topic_id, number))
        if found is None:
            raise BadRecord(f"it changes partition {number} of topic {topic_id}, which no record made")
        if (isr := _int32s(tags.get(0))) is not None:
            found.isr = isr
        if (replicas := _int32s(tags.get(2))) is not None:
            found.replicas = replicas
        if version >= 2 and (elr := _int32s(tags.get(6))) is not None:
            found.elr = elr
        leader = RecordFields(tags[1]).number(4) if 1 in tags else _UNCHANGED
        if leader != _UNCHANGED:
            found.leader = leader
            found.leader_epoch += 1
        found.partition_epoch += 1

    def as_controller(self, cluster_id: str) -> dict[str, Any]:
        """Return the state in the form of the controller's file of version 0.1, as far as this package reads it."""
        rows: dict[str, list[list[Any]]] = {topic_id: [] for topic_id in self.topics}
        for (topic_id, number), one in sorted(self.partitions.items()):
            rows[topic_id].append(
                [number, one.replicas, one.isr, one.elr, [], one.leader, one.leader_epoch, one.partition_epoch]
            )
        topics = [
            {"name": name, "id": topic_id, "partitions": rows[topic_id]} for topic_id, name in self.topics.items()
        ]
        return {"cluster_id": cluster_id, "brokers": sorted(self.brokers), "topics": topics}


_APPLIED: Final[dict[int, Callable[[MetadataState, RecordFields, int], None]]] = {
    REGISTER_BROKER: MetadataState._register_broker,
    UNREGISTER_BROKER: MetadataState._unregister_broker,
    TOPIC: MetadataState._topic,
    PARTITION: MetadataState._partition,
    PARTITION_CHANGE: MetadataState._change,
    REMOVE_TOPIC: MetadataState._remove_topic,
}


def _int32s(data: bytes | None) -> list[int] | None:
    """Return the list of int32 in a tagged field; None if the field, or the list in it, is missing."""
    if data is None or data == b"\0":
        return None
    fields = RecordFields(data)
    found = fields.int32s()
    fields.end()
    return found
