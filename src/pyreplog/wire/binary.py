"""Kafka's primitive types as bytes, in the compact forms that every message at its newest version uses.

Source: Kafka's protocol guide and KIP-482 (compact strings and arrays, tagged fields). A reader never looks behind its end: whatever the
bytes say, it raises :class:`~pyreplog.errors.RemoteProtocolError` with the place. A writer refuses what does not fit with
:class:`~pyreplog.errors.LocalProtocolError`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
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
_VARINT_SHIFT_MAX: Final = 28
_UINT32_MAX: Final = 0xFFFFFFFF
_INT16_MAX: Final = 0x7FFF
_UUID_SIZE: Final = 16
INLINE_SIZE_MAX: Final = 4096
"""Bytes values up to this size are copied into the message; larger ones become a part of their own."""


class Writer:
    """Gathers one message. Small values go into one buffer; large bytes stay what they are: parts between two buffers."""

    __slots__ = ("_current", "_parts", "_size")

    def __init__(self) -> None:
        self._current = bytearray()
        self._parts: list[Buffer] = []
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._size + len(self._current)

    def parts(self) -> list[Buffer]:
        """All of it, in order. The writer is used up."""
        if self._current:
            self._parts.append(self._current)
        return self._parts

    def number(self, kind: Struct, value: int) -> None:
        """One number of a fixed size, big-endian."""
        try:
            self._current += kind.pack(value)
        except error as reason:
            raise LocalProtocolError(f"{value!r} does not fit ({reason})") from None

    def varint(self, value: int) -> None:
        """An unsigned number of up to 32 bits, seven bits a byte, the lowest first."""
        if not 0 <= value <= _UINT32_MAX:
            raise LocalProtocolError(f"{value!r} is not an unsigned number of 32 bits")
        current = self._current
        while value > 0x7F:
            current.append(value & 0x7F | 0x80)
            value >>= 7
        current.append(value)

    def boolean(self, value: bool) -> None:
        """One byte."""
        self._current.append(1 if value else 0)

    def text(self, value: str) -> None:
        """A compact string: its size plus 1, then UTF-8."""
        if not isinstance(value, str):
            raise LocalProtocolError(f"{value!r} is not text")
        try:
            data = value.encode()
        except UnicodeEncodeError as reason:
            raise LocalProtocolError(f"{value!r} is no valid text: {reason.reason}") from None
        if len(data) > _INT16_MAX:
            raise LocalProtocolError(f"a text of {len(data)} bytes is too long: {_INT16_MAX} are the most")
        self.varint(len(data) + 1)
        self._current += data

    def short_text(self, value: str | None) -> None:
        """A string of the old form: its size in 16 bits (-1: null), then UTF-8. Only the header of a request has one."""
        if value is None:
            self.number(INT16, -1)
            return
        data = value.encode()
        self.number(INT16, len(data))
        self._current += data

    def data(self, parts: Sequence[Buffer]) -> None:
        """Compact bytes: their size plus 1, then themselves, not copied where they are large. Whoever sends keeps them as they are."""
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

    def uuid(self, value: str) -> None:
        """Sixteen bytes, from 22 characters of URL-safe base64."""
        try:
            data = urlsafe_b64decode(value + "==")
        except (Base64Error, ValueError, TypeError):
            data = b""
        if len(data) != _UUID_SIZE:
            raise LocalProtocolError(f"{value!r} is no uuid: that is 22 characters of URL-safe base64")
        self._current += data

    def null(self) -> None:
        """A compact string, array or bytes that is not there."""
        self._current.append(0)

    def nested(self, other: Writer) -> None:
        """What ``other`` gathered, with its size in front. ``other`` is used up."""
        self.varint(other.size)
        for part in other.parts():
            self._current += part


class Reader:
    """Reads one message from ``data[position:end]``, and nothing beside it."""

    __slots__ = ("_data", "end", "position")

    def __init__(self, data: Buffer, position: int = 0, end: int | None = None) -> None:
        self._data = memoryview(data).cast("B")
        self.position = position
        self.end = len(self._data) if end is None else end
        if not 0 <= position <= self.end <= len(self._data):
            raise ValueError(f"{position} to {self.end} is not within {len(self._data)} bytes")

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self.end - self.position

    def wrong(self, reason: str, position: int | None = None) -> RemoteProtocolError:
        """The error to raise about the byte at ``position`` (default: the next one)."""
        return RemoteProtocolError(f"{reason} at byte {self.position if position is None else position} of a message")

    def take(self, size: int) -> memoryview:
        """The next ``size`` bytes: a view into the message."""
        start = self.position
        if size > self.end - start:
            raise self.wrong(f"cut off: {size} bytes are announced, {self.end - start} are there")
        self.position = start + size
        return self._data[start : start + size]

    def number(self, kind: Struct) -> int:
        """One number of a fixed size, big-endian."""
        start = self.position
        if kind.size > self.end - start:
            raise self.wrong(f"cut off within a number of {kind.size} bytes")
        self.position = start + kind.size
        value: int = kind.unpack_from(self._data, start)[0]
        return value

    def varint(self) -> int:
        """An unsigned number of up to 32 bits."""
        start = self.position
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
        """One byte; whatever is not 0 is true, as Kafka reads it."""
        return self.number(INT8) != 0

    def size(self) -> int:
        """A size plus 1; -1 for null. Never more than what is left."""
        start = self.position
        size = self.varint() - 1
        if size > self.end - self.position:
            raise self.wrong(f"{size} are announced, {self.end - self.position} bytes are left", start)
        return size

    def text(self, size: int) -> str:
        """``size`` bytes of UTF-8."""
        start = self.position
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise self.wrong("text that is not UTF-8", start) from None

    def short_text(self) -> str | None:
        """A string of the old form."""
        size = self.number(INT16)
        if size < -1:
            raise self.wrong(f"a text of {size} bytes", self.position - INT16.size)
        return None if size < 0 else self.text(size)

    def uuid(self) -> str:
        """Sixteen bytes as 22 characters."""
        return urlsafe_b64encode(self.take(_UUID_SIZE))[:22].decode()
