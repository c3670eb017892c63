"""Encode and decode messages and metadata records by the lines of :mod:`pyreplog.wire.layouts`.

Decoding returns a whole message or raises :class:`~pyreplog.errors.RemoteProtocolError`. It trusts
no size beyond the bytes that follow it, and leaves no bytes unread. Unknown tagged fields are
skipped, as the protocol asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from struct import Struct
from typing import Any, Final, NamedTuple

from typing_extensions import Buffer

from pyreplog.errors import LocalProtocolError, RemoteProtocolError
from pyreplog.wire.binary import INT8, INT16, INT32, INT64, UINT16, Reader, Writer
from pyreplog.wire.layouts import CLASSES, LAYOUTS, RECORDS
from pyreplog.wire.metadata import MetadataRecord

__all__ = ["decode_record", "decode_value", "encode_record", "encode_value", "skip_tags"]

Write = Callable[[Writer, Any], None]
Read = Callable[[Reader], Any]

FRAME_VERSION: Final = 1
"""The version of the frame around a metadata record."""


class _Tagged(NamedTuple):
    tag: int
    name: str
    write: Write
    read: Read
    default: Any


class _Layout:
    """The codec of one struct."""

    __slots__ = ("_kind", "_plain", "_tagged")

    def __init__(self, kind: type, line: str) -> None:
        self._kind = kind
        self._plain: list[tuple[str, Write, Read]] = []
        tagged: list[_Tagged] = []
        defaults = {field.name: field.default for field in fields(kind)}
        for word in line.split():
            rest, _, tag = word.partition("@")
            name, _, text = rest.partition(":")
            write, read = _type(text)
            if tag:
                default = defaults[name]
                assert default is not MISSING, f"{kind.__name__}.{name} is tagged and needs a default"
                tagged.append(_Tagged(int(tag), name, write, read, default))
            else:
                self._plain.append((name, write, read))
        self._tagged = sorted(tagged)

    def write(self, out: Writer, value: Any) -> None:
        """Write the fields in order, then the tagged ones that differ from their default."""
        for name, write, _ in self._plain:
            try:
                write(out, getattr(value, name))
            except LocalProtocolError as error:
                raise LocalProtocolError(f"{type(value).__name__}.{name}: {error}") from None
        present = []
        for field in self._tagged:
            content = getattr(value, field.name)
            empty = field.default == () and not content
            if content is not None and content != field.default and not empty:
                present.append((field, content))
        out.varint(len(present))
        for field, content in present:
            nested = Writer()
            field.write(nested, content)
            out.varint(field.tag)
            out.nested(nested)

    def read(self, source: Reader) -> Any:
        """Read and return a new value. Raises RemoteProtocolError."""
        values = {name: read(source) for name, _, read in self._plain}
        known = self._tagged
        before = -1
        for _ in range(source.varint()):
            start = source.position
            tag, size = source.varint(), source.varint()
            if tag <= before:
                raise source.wrong(f"tag {tag} follows tag {before}; tags must increase", start)
            before = tag
            content = Reader(source.take(size))
            field = next((field for field in known if field.tag == tag), None)
            if field is not None:
                values[field.name] = field.read(content)
                if content.left:
                    raise source.wrong(f"tag {tag} has {content.left} bytes too many", start)
        return self._kind(**values)


def skip_tags(source: Reader) -> None:
    """Skip all tagged fields of a struct that has none."""
    for _ in range(source.varint()):
        source.varint()
        source.take(source.varint())


# -------------------------------------------------------------------------------------------- types

_NUMBERS: Final = {"int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "int64": INT64}
_LAYOUTS: dict[str, _Layout] = {}


def _layout(name: str) -> _Layout:
    found = _LAYOUTS.get(name)
    if found is None:
        found = _LAYOUTS[name] = _Layout(CLASSES[name], LAYOUTS[name])
    return found


def _type(text: str) -> tuple[Write, Read]:
    """Return the functions that write and read the type named ``text``."""
    nullable = text.startswith("?")
    text = text.removeprefix("?")
    if text.startswith("["):
        return _array(*_type(text[1:-1]), nullable=nullable)
    if text in _NUMBERS:
        return _number(_NUMBERS[text])
    if text == "bool":
        return Writer.boolean, Reader.boolean
    if text == "uuid":
        return Writer.uuid, Reader.uuid
    if text == "string":
        return _string(nullable=nullable)
    if text == "records":
        return _records(nullable=nullable)
    if text.startswith("{"):
        return _wrapped(*_type(text[1:-1].partition(":")[2]))
    return _struct(text, nullable=nullable)


def _number(kind: Struct) -> tuple[Write, Read]:
    return lambda out, value: out.number(kind, value), lambda source: source.number(kind)


def _string(*, nullable: bool) -> tuple[Write, Read]:
    def write(out: Writer, value: Any) -> None:
        if value is None and nullable:
            out.null()
        else:
            out.text(value)

    def read(source: Reader) -> str | None:
        start = source.position
        size = source.size()
        if size >= 0:
            return source.text(size)
        if nullable:
            return None
        raise source.wrong("a required string is null", start)

    return write, read


def _array(write_one: Write, read_one: Read, *, nullable: bool) -> tuple[Write, Read]:
    def write(out: Writer, value: Any) -> None:
        if value is None and nullable:
            out.null()
            return
        if value is None or isinstance(value, (str, bytes)):
            raise LocalProtocolError(f"{value!r} is not a list")
        out.varint(len(value) + 1)
        for one in value:
            write_one(out, one)

    def read(source: Reader) -> list[Any] | None:
        start = source.position
        count = source.size()  # each element takes at least one byte
        if count >= 0:
            return [read_one(source) for _ in range(count)]
        if nullable:
            return None
        raise source.wrong("a required array is null", start)

    return write, read


def _records(*, nullable: bool) -> tuple[Write, Read]:
    def write(out: Writer, value: Any) -> None:
        if value is None and nullable:
            out.null()
        elif value is None:
            raise LocalProtocolError("None is not record bytes")
        elif hasattr(value, "parts"):
            out.data(value.parts())
        else:
            out.data((value,))

    def read(source: Reader) -> memoryview | None:
        start = source.position
        size = source.size()
        if size >= 0:
            return source.take(size)
        if nullable:
            return None
        raise source.wrong("required records are null", start)

    return write, read


def _wrapped(write_one: Write, read_one: Read) -> tuple[Write, Read]:
    def write(out: Writer, value: Any) -> None:
        write_one(out, value)
        out.varint(0)

    def read(source: Reader) -> Any:
        value = read_one(source)
        skip_tags(source)
        return value

    return write, read


def _struct(name: str, *, nullable: bool) -> tuple[Write, Read]:
    def write(out: Writer, value: Any) -> None:
        if nullable:
            out.number(INT8, -1 if value is None else 1)
            if value is None:
                return
        if type(value) is not CLASSES[name]:
            raise LocalProtocolError(f"{value!r} is not a {name}")
        _layout(name).write(out, value)

    def read(source: Reader) -> Any:
        if nullable and source.number(INT8) < 0:
            return None
        return _layout(name).read(source)

    return write, read


# ------------------------------------------------------------------------------------- whole values


def encode_value(out: Writer, value: object) -> None:
    """Write a message body.

    Raises LocalProtocolError, which names the field, if a value does not fit its type.
    """
    name = type(value).__name__
    if CLASSES.get(name) is not type(value):
        raise LocalProtocolError(f"{name} is not a message of the protocol")
    _layout(name).write(out, value)


def decode_value(source: Reader, kind: type) -> Any:
    """Read a message body of class ``kind``, up to the end of ``source``.

    Record bytes are views into ``source``. Raises RemoteProtocolError.
    """
    value = _layout(kind.__name__).read(source)
    if source.left:
        raise source.wrong(f"a {kind.__name__} has {source.left} bytes too many")
    return value


_RECORD_KINDS: Final = {key: (kind, version, oldest) for kind, (key, version, oldest) in RECORDS.items()}


def encode_record(record: MetadataRecord) -> bytes:
    """Return a metadata record as the value of a log record: frame version, type, version,
    fields."""
    out = Writer()
    key, version, _ = RECORDS[type(record)]
    out.varint(FRAME_VERSION)
    out.varint(key)
    out.varint(version)
    encode_value(out, record)
    return b"".join(bytes(memoryview(part)) for part in out.parts())


def decode_record(data: Buffer) -> MetadataRecord:
    """Parse a metadata record. Raises RemoteProtocolError, also for an unknown type or version."""
    source = Reader(data)
    frame, key, version = source.varint(), source.varint(), source.varint()
    kind, spoken, oldest = _RECORD_KINDS.get(key, (None, -1, 0))
    if frame != FRAME_VERSION or kind is None or not oldest <= version <= spoken:
        raise RemoteProtocolError(
            f"a metadata record of type {key}, version {version} (frame {frame}) is not known here"
        )
    value: MetadataRecord = decode_value(source, kind)
    return value
