"""A log with ``compression.type`` whose records do not get smaller: its own batches leave room for what the codec
adds."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import pyreplog
from pyreplog.testing import SimDisk

WAYS = ["append_many", "append_many later", "append_arrow", "append_arrow later", "append_nowait"]
CODECS = ["gzip", "snappy", "lz4", "zstd"]


def opened(**config: object) -> pyreplog.Log:
    """A new log with these settings."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return pyreplog.open_log("/log", disk=SimDisk(), durability="os", config=settings)


def append(log: pyreplog.Log, way: str, values: list[bytes]) -> None:
    """Append ``values`` in one of :data:`WAYS`, and see where they are."""
    later = way.endswith(" later")
    end = log.end_offset
    if way == "append_nowait":
        offsets: Any = [ack.result().offset for ack in [log.append_nowait(value) for value in values]]
    elif way.startswith("append_many"):
        offsets = log.append_many(values, wait=False) if later else log.append_many(values)
    else:
        table = pa.table({"value": pa.array(values, pa.binary())})
        offsets = log.append_arrow(table, wait=False) if later else log.append_arrow(table)
    if later:
        offsets = [place.offset for place in offsets.result()]
    assert list(offsets) == list(range(end, end + len(values)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", CODECS)
def test_what_does_not_get_smaller(way: str, codec: str) -> None:
    """It is appended as several batches, none of which the log refuses for its size, whatever the bound."""
    random = Random(1)
    for bound in ({"segment_bytes": 4096}, {"max_message_bytes": 1000}, {}):
        values = [random.randbytes(random.randrange(700)) for _ in range(300 if bound else 3500)]
        with opened(compression_type=codec, **bound) as log:
            append(log, way, values)
            assert [record.value for record in log.read()] == values


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", CODECS)
def test_a_large_record_goes_alone(way: str, codec: str) -> None:
    """A record with no room for what a codec may add is taken where its batch fits as it is written, between others
    and in their order."""
    large = [bytes(990), Random(1).randbytes(780) + bytes(110), bytes(910)]
    values = [b"before", large[0], b"between", large[1], large[2], b"behind", b"last"]
    with opened(compression_type=codec, max_message_bytes=1060) as log:
        append(log, way, values)
        assert [record.value for record in log.read()] == values
        for value in large:
            append(log, way, [value])
        append(log, way, large)
        assert [record.value for record in log.read(len(values))] == large * 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("codec", CODECS)
def test_a_large_record_that_does_not_fit_leaves_nothing(way: str, codec: str) -> None:
    """It fits before and not behind the codec: the call itself refuses it, by its index, and writes nothing of what
    it brought."""
    bad = Random(1).randbytes(990)
    values = [*[bytes(600)] * 5, bad, b"behind"]
    with opened(compression_type=codec, max_message_bytes=990 + 70) as log, opened(max_message_bytes=990 + 70) as plain:
        plain.append(bad)
        if way == "append_nowait":
            acks = [log.append_nowait(value) for value in values[:5]]
            with pytest.raises(pyreplog.MessageTooLargeError, match="nothing was appended"):
                log.append_nowait(bad)
            acks.append(log.append_nowait(b"behind"))
            assert [ack.result().offset for ack in acks] == [0, 1, 2, 3, 4, 5]
            assert log.append_nowait(bytes(990)).result().offset == 6
            return
        with pytest.raises(
            pyreplog.MessageTooLargeError, match="record 5 does not fit a batch of 1060 bytes once it is compressed"
        ):
            append(log, way, values)
        with pytest.raises(pyreplog.MessageTooLargeError):
            log.append(bad)
        assert log.end_offset == 0
        append(log, way, [b"after"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bound", [100, 143, 150])
def test_the_smallest_bounds(way: str, bound: int) -> None:
    """Where a batch leaves no room for what a codec may add, each record goes alone."""
    values = [b"", b"1", b"2" * 7]
    with opened(compression_type="gzip", max_message_bytes=bound) as log:
        append(log, way, values)
        assert [record.value for record in log.read()] == values


def test_uncompressed_batches_are_as_large_as_before() -> None:
    """``compression.type`` uncompressed adds nothing to batches that are not compressed: they take all of the
    bound."""
    values = [bytes(100)] * 100
    counts = []
    for codec in ("producer", "uncompressed"):
        with opened(compression_type=codec, max_message_bytes=1000) as log:
            append(log, "append_many", values)
            counts.append(log.stats().batches_appended)
    assert counts[0] == counts[1] == 13
