"""Changes of partitions as bytes, at a cost that suits a node with very many of them.

A node that is fenced, or returns, changes all its partitions at once, and most of these records
differ in partition number and topic id only. So each different rest is encoded and decoded once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pyreplog.controller.image_loader import decode_known
from pyreplog.log import decode_uuid, encode_uuid
from pyreplog.wire import METADATA_TOPIC_ID, MetadataRecord, PartitionChangeRecord, encode_record

__all__ = ["ChangeDecoder", "ChangeEncoder"]

_RESTS_MAX: Final = 4096
"""Different rests that are kept."""
_FRAME: Final = encode_record(PartitionChangeRecord(0, METADATA_TOPIC_ID))[:3]
"""Frame version, kind and version of a change."""
_ID: Final = 7
_REST: Final = 23
"""Where topic id and rest begin: behind frame and partition number."""
_topic_bytes = lru_cache(maxsize=1024)(decode_uuid)
_topic_text = lru_cache(maxsize=1024)(encode_uuid)


class ChangeEncoder:
    """Encodes metadata records as ``encode_record`` does. One owner."""

    __slots__ = ("_rests",)

    def __init__(self) -> None:
        self._rests: dict[tuple[Any, ...], bytes] = {}

    def encode(self, record: MetadataRecord) -> bytes:
        """Return a record with its frame."""
        if type(record) is not PartitionChangeRecord:
            return encode_record(record)
        fields = (
            record.isr,
            record.leader,
            record.replicas,
            record.removing_replicas,
            record.adding_replicas,
            record.leader_recovery_state,
            record.directories,
            record.eligible_leader_replicas,
            record.last_known_elr,
            record.suspects,
        )
        try:
            rest = self._rests.get(fields)
        except TypeError:  # a list among the fields
            return encode_record(record)
        if rest is None:
            if len(self._rests) >= _RESTS_MAX:
                self._rests.clear()
            rest = self._rests[fields] = encode_record(record)[_REST:]
        return b"%b%b%b%b" % (_FRAME, record.partition_id.to_bytes(4, "big"), _topic_bytes(record.topic_id), rest)


class ChangeDecoder:
    """Decodes metadata records as ``decode_known`` does. One owner."""

    __slots__ = ("_rests",)

    def __init__(self) -> None:
        self._rests: dict[bytes, PartitionChangeRecord] = {}

    def decode(self, value: bytes, offset: int) -> MetadataRecord:
        """Return the record at ``offset``. Records with the same rest share its lists."""
        if value[:3] != _FRAME:
            return decode_known(value, offset)
        rest = value[_REST:]
        alike = self._rests.get(rest)
        if alike is None:
            record = decode_known(value, offset)
            if isinstance(record, PartitionChangeRecord):
                if len(self._rests) >= _RESTS_MAX:
                    self._rests.clear()
                self._rests[rest] = record
            return record
        return PartitionChangeRecord(
            int.from_bytes(value[3:_ID], "big", signed=True),
            _topic_text(value[_ID:_REST]),
            alike.isr,
            alike.leader,
            alike.replicas,
            alike.removing_replicas,
            alike.adding_replicas,
            alike.leader_recovery_state,
            alike.directories,
            alike.eligible_leader_replicas,
            alike.last_known_elr,
            alike.suspects,
        )
