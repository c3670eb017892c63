"""Where a keyed record goes: Kafka's murmur2, so that a key lands in the same partition as with Kafka's Java client.

Source: ``org.apache.kafka.common.utils.Utils.murmur2`` and ``toPositive``, a variant of Austin Appleby's MurmurHash2 with a fixed seed.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import Buffer

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(key: Buffer) -> int:
    """Kafka's 32-bit hash of ``key``, unsigned."""
    data = bytes(key)
    size = len(data)
    h = _SEED ^ size
    whole = size & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> _R
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    tail = size - whole
    if tail >= 3:
        h ^= data[whole + 2] << 16
    if tail >= 2:
        h ^= data[whole + 1] << 8
    if tail >= 1:
        h = ((h ^ data[whole]) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """The partition (0 to ``partition_count`` - 1) of a record with this key. REQUIRES ``partition_count`` > 0."""
    return (murmur2(key) & _POSITIVE) % partition_count
