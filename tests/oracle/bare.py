"""A bare partition folder whose batches are written by hand, as another program's would be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import cramjam
import crc32c

from tests.oracle import batch as oracle

TIME = 1_700_000_000_000
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def record(delta: int, value: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """One record as it is stored; header names are bytes, which need not be UTF-8."""
    body = b"\0\0" + oracle.varint(delta) + b"\1" + oracle.varint(len(value)) + value + oracle.varint(len(headers))
    for name, content in headers:
        body += oracle.varint(len(name)) + name + oracle.varint(len(content)) + content
    return oracle.varint(len(body)) + body


def batch(base: int, records: Sequence[bytes], *, codec: str = "none", count: int | None = None) -> bytes:
    """A batch with a correct checksum. ``count``: the record count that its header claims."""
    payload = b"".join(records)
    if codec == "snappy":
        payload = bytes(cramjam.snappy.compress_raw(payload))
    elif codec != "none":
        payload = bytes(getattr(cramjam, codec).compress(payload))
    return whole(base, payload, len(records) if count is None else count, codec=codec)


def whole(base: int, payload: bytes, count: int, *, codec: str = "none") -> bytes:
    """A batch of a payload that is compressed already."""
    head = oracle.Batch(
        base_offset=base,
        leader_epoch=0,
        attributes=_CODECS.index(codec),
        last_offset_delta=max(count - 1, 0),
        base_timestamp=TIME,
        max_timestamp=TIME,
        record_count=count,
    )
    data = bytearray(oracle.encode_header(head, b""))
    data += payload
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def folder(place: Path, batches: Iterable[bytes], name: str = "orders-0") -> Path:
    """The folder, with one segment of ``batches``."""
    made = place / name
    made.mkdir(mode=0o700, parents=True)
    (made / f"{0:020}.log").write_bytes(b"".join(batches))
    return made
