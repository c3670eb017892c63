"""Deserializers: the functions of a consumer that turn bytes into objects, and the records that then hold these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from pyreplog.config import check_callable
from pyreplog.errors import DeserializationError, is_interruption
from pyreplog.ports import Buffer
from pyreplog.record import Record
from pyreplog.values import TimestampType

__all__ = ["NO_DESERIALIZERS", "DecodedRecord", "Deserializer", "Deserializers"]

Deserializer = Callable[[Any], Any]


class DecodedRecord:
    """A record whose key and value a consumer's deserializers returned. Its other attributes are those of ``record``,
    which has the bytes. Do not change it."""

    __slots__ = ("key", "record", "value")

    record: Record
    """The record with its bytes."""
    key: Any
    """The object of the key deserializer."""
    value: Any
    """The object of the value deserializer."""

    def __init__(self, record: Record, key: Any, value: Any) -> None:
        """``record`` with another key and value."""
        self.record = record
        self.key = key
        self.value = value

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.record.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.record.partition

    @property
    def offset(self) -> int:
        """The offset in the partition."""
        return self.record.offset

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader that appended it."""
        return self.record.leader_epoch

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970, or -1 if there is none."""
        return self.record.timestamp

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the log set the timestamp."""
        return self.record.timestamp_type

    @property
    def headers(self) -> Sequence[tuple[str, Buffer | None]]:
        """The headers, in order."""
        return self.record.headers

    def __repr__(self) -> str:
        return f"<pyreplog.DecodedRecord {self.topic}-{self.partition} offset={self.offset} value={self.value!r:.60}>"


class Deserializers(NamedTuple):
    """A consumer's functions; None: the bytes stay as they are. A missing key or value stays None."""

    key: Deserializer | None = None
    value: Deserializer | None = None

    def checked(self) -> Deserializers:
        """Return these functions. Raises :class:`ConfigError` for one that cannot be called."""
        check_callable("key_deserializer", self.key, "a function from the bytes of a key to an object")
        check_callable("value_deserializer", self.value, "a function from the bytes of a value to an object")
        return self

    def apply(self, record: Record) -> Record:
        """Return ``record`` with the objects in place of its bytes. It is a :class:`DecodedRecord`, which has the same
        attributes. Raises :class:`DeserializationError` if a function raises."""
        key: Any = record.key
        value: Any = record.value
        what = "key"
        try:
            if self.key is not None and key is not None:
                key = self.key(key)
            what = "value"
            if self.value is not None and value is not None:
                value = self.value(value)
        except Exception as error:
            if is_interruption(error):
                raise
            raise DeserializationError(record.topic, record.partition, record.offset, what, error) from error
        return cast("Record", DecodedRecord(record, key, value))

    def apply_all(self, records: list[Record], put_back: Callable[[list[Record]], object]) -> list[Record]:
        """Return ``records`` with objects, up to the first record that cannot be deserialized.

        ``put_back`` gets this record and the later ones. Raises :class:`DeserializationError` if it is the first."""
        found: list[Record] = []
        for place, record in enumerate(records):
            try:
                found.append(self.apply(record))
            except BaseException as error:
                put_back(records[place:])
                if not found or not isinstance(error, DeserializationError):
                    raise
                break
        return found


NO_DESERIALIZERS = Deserializers()
