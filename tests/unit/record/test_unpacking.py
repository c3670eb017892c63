"""A compressed batch in parts: the same records as at once, in bounded memory, whatever the codec; and an error for
each wrong stream."""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
from random import Random

import cramjam
import pytest

from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import BatchTooLargeError, CorruptError, NoThreadError, StorageError
from pyreplog.record import RecordBatch, parts_of, record_lists_of, records_of
from pyreplog.record.unpacking import PART_SIZE, WHOLE_SIZE
from tests.oracle import bare

CODECS = ("gzip", "snappy", "lz4", "zstd")
VALUE = b"x" * 1000
COUNT = 24_000


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(scope="module", params=CODECS)
def large(request: pytest.FixtureRequest) -> RecordBatch:
    """A batch of 24,000 records that takes 24 MB unpacked."""
    payload = b"".join(bare.record(delta, VALUE) for delta in range(COUNT))
    return RecordBatch(bare.whole(7, compressed(request.param, payload), COUNT, codec=request.param))


def compressed(codec: str, payload: bytes) -> bytes:
    """In Kafka's framing, or as one block of snappy."""
    return (
        bytes(cramjam.snappy.compress_raw(payload))
        if codec == "snappy"
        else bytes(getattr(cramjam, codec).compress(payload))
    )


def test_parts_hold_all_records_in_bounded_memory(large: RecordBatch) -> None:
    """Each record is in one part, in order; memory stays far below the size of the batch, except for one block of
    snappy."""
    offset = 7
    tracemalloc.start()
    try:
        for payload, count, last in parts_of(large):
            assert payload is not None
            records = large.records(payload, record_count=count)
            assert [record.offset for record in records] == list(range(offset, offset + count))
            assert records[-1].offset == last
            assert records[0].value == records[-1].value == VALUE
            offset += count
            del records, payload
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert offset == 7 + COUNT
    assert large.codec == 2 or peak < 40 << 20


def test_a_range_of_a_large_batch_is_read(large: RecordBatch) -> None:
    """The lists have exactly the offsets asked for, and a search by time finds the first record of a later part."""
    found = [record.offset for records in record_lists_of(large, "t", 0, 20_000, 20_010) for record in records]
    assert found == list(range(20_000, 20_010))
    assert len(records_of(large)) == COUNT
    hits = [large.find_timestamp(bare.TIME, 22_000, payload, count) for payload, count, _ in parts_of(large)]
    assert next(hit for hit in hits if hit is not None) == (22_000, bare.TIME)


def test_only_the_limit_refuses_a_large_batch(large: RecordBatch) -> None:
    """One byte below its size is a BatchTooLargeError, which is no CorruptError and names offset, limit and
    setting."""
    size = sum(memoryview(payload).nbytes for payload, _, _ in parts_of(large) if payload is not None)
    assert sum(count for _, count, _ in parts_of(large, size)) == COUNT
    for limit in (size - 1, WHOLE_SIZE, 1):
        with pytest.raises(BatchTooLargeError, match=f"offset 7 of t-0 .* {limit} bytes .*max_batch_bytes") as caught:
            list(parts_of(large, limit, partition="t-0"))
        error = caught.value
        assert not isinstance(error, CorruptError)
        assert (error.offset, error.limit, error.setting, error.partition) == (7, limit, "max_batch_bytes", "t-0")


def test_a_reader_that_stops_early_leaves_nothing_behind(large: RecordBatch) -> None:
    """After a generator is closed in its first part, neither a descriptor nor a thread of it stays."""
    before = _descriptors(), threading.active_count()
    parts = parts_of(large)
    next(parts)
    parts.close()
    del parts
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "pyreplog pipe":
            thread.join(10)
    assert (_descriptors(), threading.active_count()) == before


@pytest.mark.parametrize("codec", CODECS)
def test_records_larger_than_a_part_are_read(codec: str) -> None:
    """A part grows for the record that needs it."""
    sizes = [10, 3 * PART_SIZE, 20, PART_SIZE, 5]
    payload = b"".join(bare.record(delta, bytes(size)) for delta, size in enumerate(sizes))
    batch = RecordBatch(bare.whole(0, compressed(codec, payload), len(sizes), codec=codec))
    assert [len(record.value or b"") for records in record_lists_of(batch) for record in records] == sizes


@pytest.mark.parametrize("codec", ["gzip", "snappy", "zstd"])
@pytest.mark.parametrize(
    ("count", "cut", "tail", "reason"),
    [
        (COUNT + 1, 0, b"", "record count contradicts"),
        (COUNT - 1, 0, b"", "trailing bytes"),
        (COUNT, 3, b"", "cut off"),
        (COUNT, 0, b"\0", "trailing bytes"),
        (COUNT + 1, 0, bare.record(0, b"again"), "offsets out of order"),
        (COUNT + 1, 0, b"\3\0", "length field"),
    ],
)
def test_wrong_records_of_a_large_batch_are_damage(codec: str, count: int, cut: int, tail: bytes, reason: str) -> None:
    """Whatever the last part has too little or too much is a CorruptError that says so."""
    payload = b"".join(bare.record(delta, VALUE) for delta in range(COUNT))
    payload = payload[: len(payload) - cut] + tail
    batch = RecordBatch(bare.whole(0, compressed(codec, payload), count, codec=codec))
    with pytest.raises(CorruptError, match=reason):
        list(parts_of(batch))


@pytest.mark.parametrize("codec", CODECS)
def test_a_broken_stream_of_a_large_batch_is_damage(codec: str) -> None:
    """A stream that is cut off behind its first parts is a CorruptError that names the codec."""
    noise = Random(1)
    payload = b"".join(bare.record(delta, noise.randbytes(40_000)) for delta in range(600))
    stored = compressed(codec, payload)
    batch = RecordBatch(bare.whole(0, stored[: len(stored) * 9 // 10], 600, codec=codec))
    with pytest.raises(CorruptError, match=f"{codec} stream is broken"):
        list(parts_of(batch))


def test_a_system_without_descriptors_or_threads_is_no_damage(
    large: RecordBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe or a thread that is not to be had is a StorageError or a NoThreadError, and nothing is left open."""
    if large.codec == 2:
        return
    before = _descriptors()

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NoThreadError):
            list(parts_of(large))

    def full() -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", full)
        with pytest.raises(StorageError):
            list(parts_of(large))
    assert _descriptors() == before
    assert MAX_BATCH_BYTES == 1 << 30
