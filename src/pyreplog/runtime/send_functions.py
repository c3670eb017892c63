"""SendFunctions: the functions of a producer that its caller brought: serializers and a partitioner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, SupportsIndex

from pyreplog.client import ACKS
from pyreplog.config import check_callable, check_seconds
from pyreplog.errors import ConfigError
from pyreplog.ports import Buffer
from pyreplog.runtime.deliveries import OnDelivery

__all__ = ["NO_FUNCTIONS", "Partitioner", "SendExtras", "SendFunctions", "Serializer", "acks_number"]

Serializer = Callable[[Any], Buffer]
Partitioner = Callable[[Buffer | None, int], SupportsIndex]
_SHOWN_MAX: Final = 64


class SendFunctions(NamedTuple):
    """A producer's functions; None: not given. They run in the thread that sends, without a lock."""

    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    partitioner: Partitioner | None = None
    on_delivery: OnDelivery | None = None

    def checked(self) -> SendFunctions:
        """Return these functions. Raises :class:`ConfigError` for one that cannot be called."""
        check_callable("key_serializer", self.key_serializer, "a function from a key to bytes")
        check_callable("value_serializer", self.value_serializer, "a function from a value to bytes")
        check_callable("partitioner", self.partitioner, "a function of a key and the number of partitions")
        check_callable("on_delivery", self.on_delivery, "a function of a RecordMetadata and an error")
        return self

    def value_of(self, value: Any) -> Buffer | None:
        """Return the bytes of ``value``. None stays None, because a record without a value means a deletion."""
        serializer = self.value_serializer
        found: Buffer | None = value if serializer is None or value is None else serializer(value)
        return found

    def key_of(self, key: Any) -> Buffer | None:
        """Return the bytes of ``key``; None stays None."""
        serializer = self.key_serializer
        found: Buffer | None = key if serializer is None or key is None else serializer(key)
        return found

    def values_of(self, values: Sequence[Any]) -> Sequence[Buffer | None]:
        """Return the bytes of each of ``values``."""
        return values if self.value_serializer is None else [self.value_of(value) for value in values]

    def keys_of(self, keys: Sequence[Any] | None) -> Sequence[Buffer | None] | None:
        """Return the bytes of each of ``keys``."""
        return keys if keys is None or self.key_serializer is None else [self.key_of(key) for key in keys]

    def partition_of(self, topic: str, key: Buffer | None, count: int) -> int:
        """Return the partitioner's answer. REQUIRES a partitioner. Raises :class:`ConfigError` if the topic has no such
        partition."""
        assert self.partitioner is not None, "asked only if there is one"
        number = self.partitioner(key, count)
        if isinstance(number, SupportsIndex) and not isinstance(number, bool) and 0 <= number.__index__() < count:
            return number.__index__()
        raise ConfigError(
            f"the partitioner answered {repr(number)[:_SHOWN_MAX]} for the key {repr(key)[:_SHOWN_MAX]}, and"
            f" {topic!r} has partitions 0 to {count - 1}; nothing was sent"
        )


NO_FUNCTIONS: Final = SendFunctions()


class SendExtras(NamedTuple):
    """The arguments of one ``send`` that most sends do not have."""

    on_delivery: OnDelivery | None
    acks: int | None
    """Kafka's number; None: the producer's own."""
    timeout: float | None

    @classmethod
    def checked(cls, on_delivery: OnDelivery | None, acks: object, timeout: object) -> SendExtras:
        """Return the arguments. Raises :class:`ConfigError` for a wrong one."""
        check_callable("on_delivery", on_delivery, "a function of a RecordMetadata and an error")
        return cls(on_delivery, None if acks is None else acks_number(acks), check_seconds("timeout", timeout))


def acks_number(acks: object) -> int:
    """Return Kafka's number for ``acks``. Raises :class:`ConfigError`."""
    if isinstance(acks, bool) or acks not in list(ACKS):
        raise ConfigError(f"acks is {acks!r}; it must be 'all', 1 or 0")
    return ACKS[acks]
