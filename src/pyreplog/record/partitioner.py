"""The partition of a keyed record, by Kafka's murmur2: a key gets the same one as in Kafka's Java
client.

Source: ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``, a variant of Austin
Appleby's MurmurHash2 with a fixed seed.
"""

from __future__ import annotations

from typing import Final

from pyreplog._core import murmur2
from pyreplog.ports import Buffer

_POSITIVE: Final = 0x7FFFFFFF


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """Return the partition (0 to ``partition_count`` - 1) of a record with this key.

    REQUIRES ``partition_count`` > 0.
    """
    return (murmur2(key) & _POSITIVE) % partition_count
