"""The messages of the quorum and of administration, byte for byte as Kafka writes them."""

from __future__ import annotations

from typing import Any

import pytest

from pyreplog.errors import RemoteProtocolError
from pyreplog.wire.binary import Reader, Writer
from pyreplog.wire.codec import decode_value, encode_value
from pyreplog.wire.layouts import LAYOUTS
from tests.unit.wire.golden_messages import GOLDEN, MESSAGES
from tests.unit.wire.values import plain

CASES = list(zip(MESSAGES, map(bytes.fromhex, GOLDEN.read_text().split()), strict=True))
NAMES = [f"{number}-{type(value).__name__}" for number, (value, _) in enumerate(CASES)]


@pytest.mark.parametrize(("value", "data"), CASES, ids=NAMES)
def test_golden(value: Any, data: bytes) -> None:
    """Kafka's bytes are read as the value, and the value is written as Kafka's bytes."""
    assert plain(decode_value(Reader(data), type(value))) == plain(value)
    out = Writer()
    encode_value(out, value)
    assert b"".join(bytes(memoryview(part)) for part in out.parts()) == data


@pytest.mark.parametrize(("value", "data"), CASES, ids=NAMES)
def test_hostile(value: Any, data: bytes) -> None:
    """Cut anywhere, or longer, a message is refused; with a byte changed it is refused or is another message; a tagged
    field of a newer peer at its end is passed over."""
    for size in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            decode_value(Reader(data, 0, size), type(value))
    with pytest.raises(RemoteProtocolError, match="too many"):
        decode_value(Reader(data + b"\0"), type(value))
    for position in range(len(data)):
        for byte in (0, 1, 0x7F, 0x80, 0xFF):
            changed = bytearray(data)
            changed[position] = byte
            try:
                decode_value(Reader(changed), type(value))
            except RemoteProtocolError:
                pass
    tagged = [word.partition(":")[0] for word in LAYOUTS[type(value).__name__].split() if "@" in word]
    if not any(getattr(value, name) for name in tagged):  # so the message ends with a zero: no tagged fields
        newer = data[:-1] + bytes([1, 99, 3]) + b"new"
        assert plain(decode_value(Reader(newer), type(value))) == plain(value)


def test_required_records_are_not_null() -> None:
    """Kafka allows no null records in a piece of a snapshot; neither does the codec."""
    value, data = next((value, data) for value, data in CASES if b"a piece" in data)
    piece = b"a piece of a file"
    null = data.replace(bytes([len(piece) + 1]) + piece, b"\0")
    assert null != data
    with pytest.raises(RemoteProtocolError, match="required records are null"):
        decode_value(Reader(null), type(value))
