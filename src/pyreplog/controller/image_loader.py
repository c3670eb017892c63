"""Metadata records as bytes, to and from an image, at a cost that suits a million partitions.

The bytes of a partition's record are those of few fields that are its own (number and topic id),
and a rest that most partitions share. So each different rest is encoded and decoded once.
"""

from __future__ import annotations

from typing import Final

from pyreplog.controller.image import MetadataImage, PartitionImage, TopicImage
from pyreplog.errors import CorruptError, UnsupportedVersionError
from pyreplog.log import encode_uuid
from pyreplog.wire import (
    METADATA_TOPIC_ID,
    MetadataRecord,
    PartitionRecord,
    UnknownMetadataRecord,
    decode_record,
    encode_record,
)

__all__ = ["ImageLoader", "PartitionEncoder", "decode_known"]

ALIKE_MAX: Final = 65_536
"""Different rests that are kept."""
_FRAME: Final = encode_record(PartitionRecord(0, METADATA_TOPIC_ID, (), ()))[:3]
"""Frame version, kind and version of a partition's record."""
_ID: Final = 7
_REST: Final = 23
"""Where topic id and rest begin: behind frame and partition number."""


def decode_known(value: bytes, offset: int) -> MetadataRecord:
    """Return the record of ``value``. Raises :class:`UnsupportedVersionError` if its kind is not
    known."""
    record = decode_record(value)
    if isinstance(record, UnknownMetadataRecord):
        raise UnsupportedVersionError(
            f"the metadata record at offset {offset} has type {record.api_key}, which only a newer version of pyreplog"
            " knows: open the cluster with that version"
        )
    return record


class PartitionEncoder:
    """Encodes the records of partitions."""

    __slots__ = ("_rests",)

    def __init__(self) -> None:
        self._rests: dict[PartitionImage, bytes] = {}

    def encode(self, topic_id: bytes, number: int, partition: PartitionImage) -> bytes:
        """Return the record that states ``partition``; ``topic_id`` is in 16 bytes."""
        rest = self._rests.get(partition)
        if rest is None:
            if len(self._rests) >= ALIKE_MAX:
                self._rests.clear()
            rest = self._rests[partition] = encode_record(partition.to_record(METADATA_TOPIC_ID, 0))[_REST:]
        return b"%b%b%b%b" % (_FRAME, number.to_bytes(4, "big"), topic_id, rest)


class ImageLoader:
    """Applies records that restate a whole image. All of them have the same ``offset``."""

    __slots__ = ("_offset", "_rests", "_topic", "_topic_id", "image")

    def __init__(self, offset: int) -> None:
        self.image = MetadataImage()
        self._offset = offset
        self._rests: dict[bytes, PartitionImage] = {}
        self._topic_id = b""
        self._topic: TopicImage | None = None
        """The topic of the last partition."""

    def add(self, value: bytes) -> None:
        """Apply one record. Raises RemoteProtocolError, :class:`CorruptError` if it does not follow,
        and :class:`UnsupportedVersionError`."""
        if value[:3] != _FRAME:
            self._topic_id = b""
            self.image.apply(self._offset, decode_known(value, self._offset))
            return
        rest = value[_REST:]
        partition = self._rests.get(rest)
        if partition is None:
            partition = self._decoded(value, rest)
        topic_id = value[_ID:_REST]
        if topic_id != self._topic_id:
            self._topic = self.image.topics.get(encode_uuid(topic_id))
            self._topic_id = topic_id
        if self._topic is None:
            raise CorruptError(f"metadata: a partition of the unknown topic id {encode_uuid(topic_id)}")
        self.image.set_partition(self._topic, int.from_bytes(value[3:_ID], "big"), partition)

    def _decoded(self, value: bytes, rest: bytes) -> PartitionImage:
        record = decode_record(value)
        if not isinstance(record, PartitionRecord):
            raise CorruptError("metadata: the record of a partition is none")
        if len(self._rests) >= ALIKE_MAX:
            self._rests.clear()
        partition = self._rests[rest] = self.image.share(PartitionImage.from_record(record))
        return partition
