"""Kafka's primitive types as bytes, in the compact forms that every message has at its newest
version.

Source: Kafka's protocol guide and KIP-482 (compact strings and arrays, tagged fields). A reader
never reads beyond its end: for wrong bytes it raises :class:`~pyreplog.errors.RemoteProtocolError`
with their position. A writer raises :class:`~pyreplog.errors.LocalProtocolError` for a value that
does not fit.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Final

from typing_extensions import Buffer

from pyreplog.errors import LocalProtocolError, RemoteProtocolError

__all__ = ["Reader", "Writer"]

INT8: Final = Struct(">b")
INT16: Final = Struct(">h")
UINT16: Final = Struct(">H")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
FLOAT64: Final = Struct(">d")
_VARINT_SHIFT_MAX: Final = 28
_UINT32_MAX: Final = 0xFFFFFFFF
_INT16_MAX: Final = 0x7FFF
_UUID_SIZE: Final = 16
UUIDS_MAX: Final = 4096
"""The number of uuids whose text and bytes are remembered, because messages repeat a few of them."""
INLINE_SIZE_MAX: Final = 4096
"""Bytes values up to this size are copied into the message; larger ones become separate parts."""


@lru_cache(UUIDS_MAX)
def _uuid_bytes(text: str) -> bytes:
    """Return the sixteen bytes. Raises ValueError, TypeError or Base64Error."""
    data = urlsafe_b64decode(text + "==")
    if len(data) != _UUID_SIZE:
        raise ValueError(text)
    return data


@lru_cache(UUIDS_MAX)
def _uuid_text(data: bytes) -> str:
    return urlsafe_b64encode(data)[:22].decode()


class Writer:
    """Collects the bytes of one message.

    Small values are copied into one buffer. Large bytes become separate parts and are not copied.
    """

    __slots__ = ("_current", "_parts", "_size")

    def __init__(self) -> None:
        self._current = bytearray()
        self._parts: list[Buffer] = []
        self._size = 0

    @property
    def size(self) -> int:
        """The number of bytes so far."""
        return self._size + len(self._current)

    def parts(self) -> list[Buffer]:
        """Return all parts, in order. The writer cannot be used afterwards."""
        if self._current:
            self._parts.append(self._current)
        return self._parts

    def joined(self) -> bytes:
        """Return all bytes. The writer cannot be used afterwards."""
        if not self._parts:
            return bytes(self._current)
        return b"".join(memoryview(part) for part in self.parts())

    def number(self, kind: Struct, value: int) -> None:
        """Write a number of a fixed size, big-endian."""
        try:
            self._current += kind.pack(value)
        except error as reason:
            raise LocalProtocolError(f"{value!r} does not fit ({reason})") from None

    def numbers(self, kind: Struct, values: Sequence[int]) -> None:
        """Write all numbers of ``kind``."""
        try:
            self._current += kind.pack(*values)
        except error as reason:
            raise LocalProtocolError(f"{list(values)!r} does not fit ({reason})") from None

    def varint(self, value: int) -> None:
        """Write an unsigned number of up to 32 bits, seven bits per byte, the lowest first."""
        if not 0 <= value <= _UINT32_MAX:
            raise LocalProtocolError(f"{value!r} is not an unsigned number of 32 bits")
        current = self._current
        while value > 0x7F:
            current.append(value & 0x7F | 0x80)
            value >>= 7
        current.append(value)

    def boolean(self, value: bool) -> None:
        """Write one byte, 0 or 1."""
        self._current.append(1 if value else 0)

    def text(self, value: str) -> None:
        """Write a compact string: its size plus 1, then UTF-8."""
        if not isinstance(value, str):
            raise LocalProtocolError(f"{value!r} is not text")
        try:
            data = value.encode()
        except UnicodeEncodeError as reason:
            raise LocalProtocolError(f"{value!r} is not valid text: {reason.reason}") from None
        if len(data) > _INT16_MAX:
            raise LocalProtocolError(f"text of {len(data)} bytes is too long, the maximum is {_INT16_MAX}")
        self.varint(len(data) + 1)
        self._current += data

    def short_text(self, value: str | None) -> None:
        """Write a string of the old form: its size in 16 bits (-1: null), then UTF-8.

        Only the header of a request has one.
        """
        if value is None:
            self.number(INT16, -1)
            return
        data = value.encode()
        self.number(INT16, len(data))
        self._current += data

    def data(self, parts: Sequence[Buffer]) -> None:
        """Write compact bytes: their size plus 1, then the bytes.

        Large parts are not copied, so the caller must not change them before the message is sent.
        """
        views = [memoryview(part).cast("B") for part in parts]
        size = sum(len(view) for view in views)
        self.varint(size + 1)
        if size <= INLINE_SIZE_MAX:
            for view in views:
                self._current += view
            return
        self._size += len(self._current) + size
        self._parts.append(self._current)
        self._parts.extend(views)
        self._current = bytearray()

    def raw(self, data: bytes) -> None:
        """Write ``data`` as it is."""
        self._current += data

    def uuid(self, value: str) -> None:
        """Write sixteen bytes, given as 22 characters of URL-safe base64."""
        try:
            self._current += _uuid_bytes(value)
        except (Base64Error, ValueError, TypeError):
            raise LocalProtocolError(f"{value!r} is not a uuid: it must be 22 characters of URL-safe base64") from None

    def null(self) -> None:
        """Write a null compact string, array or bytes."""
        self._current.append(0)

    def nested(self, other: Writer) -> None:
        """Write the bytes of ``other``, with their size in front. ``other`` cannot be used
        afterwards."""
        self.varint(other.size)
        for part in other.parts():
            self._current += part


class Reader:
    """Reads one message from ``data[position:end]``, and no byte outside of it."""

    __slots__ = ("_data", "end", "position")

    def __init__(self, data: Buffer, position: int = 0, end: int | None = None) -> None:
        self._data = memoryview(data).cast("B")
        self.position = position
        self.end = len(self._data) if end is None else end
        if not 0 <= position <= self.end <= len(self._data):
            raise ValueError(f"{position} to {self.end} is not within {len(self._data)} bytes")

    @property
    def left(self) -> int:
        """The number of bytes not read yet."""
        return self.end - self.position

    def wrong(self, reason: str, position: int | None = None) -> RemoteProtocolError:
        """Return the error to raise about the byte at ``position`` (default: the next one)."""
        return RemoteProtocolError(f"{reason} at byte {self.position if position is None else position} of a message")

    def take(self, size: int) -> memoryview:
        """Return the next ``size`` bytes, a view into the message."""
        start = self.position
        if size > self.end - start:
            raise self.wrong(f"cut off: {size} bytes are announced, {self.end - start} are there")
        self.position = start + size
        return self._data[start : start + size]

    def number(self, kind: Struct) -> int:
        """Read a number of a fixed size, big-endian."""
        start = self.position
        if kind.size > self.end - start:
            raise self.wrong(f"cut off within a number of {kind.size} bytes")
        self.position = start + kind.size
        value: int = kind.unpack_from(self._data, start)[0]
        return value

    def numbers(self, kind: Struct) -> list[int]:
        """Read all numbers of ``kind``."""
        start = self.position
        if kind.size > self.end - start:
            raise self.wrong(f"cut off within {kind.size} bytes of numbers")
        self.position = start + kind.size
        return list(kind.unpack_from(self._data, start))

    def varint(self) -> int:
        """Read an unsigned number of up to 32 bits."""
        start = self.position
        if start < self.end and (value := self._data[start]) < 0x80:
            self.position = start + 1
            return value
        value = shift = 0
        while True:
            if self.position >= self.end:
                raise self.wrong("cut off within a varint", start)
            byte = self._data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > _VARINT_SHIFT_MAX:
                raise self.wrong("a varint of more than five bytes", start)
        if value > _UINT32_MAX:
            raise self.wrong("a varint of more than 32 bits", start)
        return value

    def boolean(self) -> bool:
        """Read one byte. Like Kafka, treat every value but 0 as true."""
        return self.number(INT8) != 0

    def size(self) -> int:
        """Read a size that is stored plus 1; -1 means null. It is never more than the bytes
        left."""
        start = self.position
        size = self.varint() - 1
        if size > self.end - self.position:
            raise self.wrong(f"{size} are announced, {self.end - self.position} bytes are left", start)
        return size

    def text(self, size: int) -> str:
        """Read ``size`` bytes of UTF-8."""
        start = self.position
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise self.wrong("text that is not UTF-8", start) from None

    def short_text(self) -> str | None:
        """Read a string of the old form."""
        size = self.number(INT16)
        if size < -1:
            raise self.wrong(f"a text of {size} bytes", self.position - INT16.size)
        return None if size < 0 else self.text(size)

    def uuid(self) -> str:
        """Read sixteen bytes and return them as 22 characters."""
        return _uuid_text(bytes(self.take(_UUID_SIZE)))
