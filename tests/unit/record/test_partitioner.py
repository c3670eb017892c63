"""Where keys go: exactly where Kafka's Java client puts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.record import murmur2, partition_for_key

# From Kafka's own UtilsTest.testMurmur2, as signed 32-bit numbers.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), KNOWN.items())
def test_known_hashes(key: bytes, expected: int) -> None:
    """The hashes of Kafka's own test."""
    assert murmur2(key) == expected % 2**32
    assert murmur2(bytearray(key)) == murmur2(memoryview(key)) == murmur2(key)


def slow_murmur2(data: bytes) -> int:
    """As the Java code reads, with its signed arithmetic."""
    m, r, length = 0x5BD1E995, 24, len(data)

    def int32(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    h = int32(0x9747B28C) ^ length
    for index in range(length // 4):
        k = int.from_bytes(data[4 * index : 4 * index + 4], "little", signed=True)
        k = int32(k * m)
        k ^= (k % 2**32) >> r
        k = int32(k * m)
        h = int32(int32(h * m) ^ k)
    tail = data[length & ~3 :]
    for index in (2, 1, 0):
        if len(tail) > index:
            h ^= int32(tail[index] << (8 * index))
    if tail:
        h = int32(h * m)
    h ^= (h % 2**32) >> 13
    h = int32(h * m)
    h ^= (h % 2**32) >> 15
    return int32(h)


@given(st.binary(max_size=40), st.integers(1, 200))
def test_any_key_goes_where_java_puts_it(key: bytes, count: int) -> None:
    """The sign bit is cleared, not the absolute value taken."""
    assert murmur2(key) == slow_murmur2(key) % 2**32
    assert partition_for_key(key, count) == (slow_murmur2(key) & 0x7FFFFFFF) % count
    assert 0 <= partition_for_key(key, count) < count
