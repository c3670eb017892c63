"""Where a keyed record goes: Kafka's murmur2, so that a key lands in the same partition as with Kafka's Java client.

Source: ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``, a variant of Austin Appleby's MurmurHash2 with a fixed seed.
"""

from __future__ import annotations

from typing import Final

from pyreplog._core import murmur2
from pyreplog.ports import Buffer

_POSITIVE: Final = 0x7FFFFFFF


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """The partition (0 to ``partition_count`` - 1) of a record with this key. REQUIRES ``partition_count`` > 0."""
    return (murmur2(key) & _POSITIVE) % partition_count
