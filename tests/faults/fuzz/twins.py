"""The verifier's own decoders, beside the library's: from the same bytes they get the same records."""

from __future__ import annotations

from random import Random
from typing import Final, cast

from pyreplog._core import RecordBatch
from pyreplog.errors import CorruptError
from pyreplog.ports import File
from pyreplog.record import compress, records_of, split
from pyreplog.record.compression import SIZE_MAX, decompress_payload
from pyreplog.record.legacy import convert_legacy, legacy_batches, shallow_messages
from pyreplog.verify import (
    Broken,
    Malformed,
    PlainRecord,
    Undecodable,
    Window,
    batch_at,
    batch_records,
    decompress,
    old_records_of,
)
from tests.faults.fuzz.mutate import seal_batch, seal_old
from tests.faults.fuzz.target import Target
from tests.interop.golden.units import unit
from tests.unit.log.support import batch

_STREAM, _BATCH, _OLD = range(3)
_GZIP: Final = 1
_END: Final = 2**63 - 1


class Bytes:
    """Bytes as a file."""

    path = "x"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_at(self, position: int, size: int) -> memoryview:
        """As a file."""
        return memoryview(self._data)[position : position + size]


def window(data: bytes) -> Window:
    """A file of ``data``, to be read in order."""
    return Window(cast("File", Bytes(data)), len(data))


def old_segments() -> list[bytes]:
    """Segments in the formats before 0.11."""
    return [path.read_bytes()[:1500] for path in sorted((unit("old-format-2.8.2") / "data").glob("magic[01]-*/*.log"))]


def _seeds() -> list[bytes]:
    found = [
        bytes([_STREAM, codec - 1]) + compress(codec, text)
        for codec in (1, 2, 3, 4)
        for text in (b"", b"abc" * 50, bytes(range(256)))
    ]
    found += [
        bytes([_BATCH]) + bytes(batch(count, codec=codec, base_offset=7)) for codec in range(5) for count in (1, 3)
    ]
    for name in ("txn-0", "compact-basic-0", "mixed-codecs-0"):
        for path in sorted((unit("clean-4.1.0") / "data" / name).glob("*.log"))[:2]:
            found += [bytes([_BATCH]) + bytes(one.data) for one in split(path.read_bytes()) if one.size < 1000][:4]
    for data in old_segments():
        for message in shallow_messages(memoryview(data))[0][:2]:
            found.append(bytes([_OLD]) + data[: message.size])
            data = data[message.size :]  # noqa: PLW2901  (the next one begins there)
    return found


def _seal(data: bytes, chance: Random) -> bytes:
    if not data or data[0] % 3 == _STREAM:
        return data
    return data[:1] + (seal_batch if data[0] % 3 == _BATCH else seal_old)(data[1:], chance)


def _record(one: object) -> PlainRecord:
    return PlainRecord(one.offset, one.timestamp, one.key, one.value, one.headers)  # type: ignore[attr-defined]


def _library(kind: int, data: bytes) -> object:
    """What the library makes of it. Raises :class:`CorruptError`."""
    if kind == _STREAM:
        return bytes(decompress_payload(1 + data[0] % 4, memoryview(data)[1:]))
    if kind == _BATCH:
        one = RecordBatch(data)
        one.check_crc()
        payload = decompress_payload(one.codec, one.payload) if one.codec else one.payload
        one.check_records(payload)
        return [_record(record) for record in one.records(payload)]
    messages, _ = shallow_messages(memoryview(data))
    if len(messages) != 1 or messages[0].size != len(data):
        raise CorruptError("not one message alone")
    return [
        _record(record)
        for one in legacy_batches(convert_legacy(memoryview(data)))
        for record in records_of(one, "t", 0, 0, _END)
    ]


def _verifier(kind: int, data: bytes) -> object:
    """What the verifier makes of it. Raises :class:`Malformed`, :class:`Undecodable` or :class:`Broken`."""
    if kind == _STREAM:
        return b"".join(decompress(1 + data[0] % 4, data[1:], limit=SIZE_MAX))
    one = batch_at(window(data), 0)
    if (
        one is None
        or one.checksum() != one.crc
        or (one.magic == 2) != (kind == _BATCH)
        or (kind == _OLD and one.size != len(data))
    ):
        raise Malformed("not one batch alone")
    if kind == _OLD:
        return old_records_of(one.data)
    found, before = [], one.base_offset - 1
    for record in batch_records(
        one.codec, one.data[61:], one.record_count, one.base_offset, one.base_timestamp, SIZE_MAX
    ):
        if not before < record.offset <= one.last_offset:
            raise Malformed("out of order")
        before = record.offset
        plain = record._replace(is_text=True)  # which header names were no UTF-8: the library says it by U+FFFD alone
        found.append(plain._replace(timestamp=one.max_timestamp) if one.is_log_append_time else plain)
    return found


def _codec(kind: int, data: bytes) -> int:
    if kind == _STREAM:
        return 1 + data[0] % 4
    at = 22 if kind == _BATCH else 17
    return data[at] & 7 if len(data) > at else 0


def _run(data: bytes) -> object:
    if len(data) < 2:
        return None
    kind, data = data[0] % 3, data[1:]
    ours: object = None
    theirs: object = None
    words = []
    try:
        ours = _library(kind, data)
    except CorruptError as error:
        words.append(error.reason[:20])
    try:
        theirs = _verifier(kind, data)
    except (Broken, Malformed, Undecodable) as error:
        words.append(str(error)[:20])
    codec = _codec(kind, data)
    # zlib refuses what refers to before the beginning of a stream. Of format 0 the verifier is
    # laxer about the header of lz4 frames. It is stricter about the offset around compressed
    # messages: there the library bears with what no broker has stored.
    apart = codec == _GZIP or (kind == _OLD and (data[16:17] == b"\0" or data[:8] == bytes(8)))
    assert ours == theirs or (apart and (ours is None or theirs is None))
    assert kind != _STREAM or ours is None or len(cast("bytes", ours)) <= SIZE_MAX
    return (kind, codec, ours is None, theirs is None, *words)


TWINS: Final = Target("twins", _seeds, _run, (), 4, _seal)
