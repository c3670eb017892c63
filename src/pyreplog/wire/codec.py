"""Encode and decode messages by the lines of :mod:`pyreplog.wire.layouts`.

:class:`StructCodec` is the engine for other tables of such lines too (metadata records, control
records).

Decoding returns a whole message or raises :class:`~pyreplog.errors.RemoteProtocolError`. It trusts
no size beyond the bytes that follow it, and leaves no bytes unread. Unknown tagged fields are
skipped, as the protocol asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from struct import Struct
from typing import Any, Final, NamedTuple

from pyreplog.errors import LocalProtocolError
from pyreplog.wire.binary import FLOAT64, INT8, INT16, INT32, INT64, UINT16, Reader, Writer
from pyreplog.wire.layouts import CLASSES, LAYOUTS

__all__ = ["UNKNOWN_TAGS", "StructCodec", "decode_value", "encode_value", "skip_tags"]

Write = Callable[[Writer, Any], None]
Read = Callable[[Reader], Any]

UNKNOWN_TAGS: Final = "unknown_tagged_fields"
"""The key, in a struct that is a dictionary, of the tagged fields that its line does not name."""


class _Tagged(NamedTuple):
    tag: int
    name: str
    write: Write
    read: Read
    default: Any


class StructCodec:
    """The codec of one struct.

    ``kind`` is the class of its values; without one, values are dictionaries. ``struct`` returns
    the codec of a struct that the line names. ``defaults`` is the class that has the defaults of
    tagged fields, if it is not ``kind``.
    """

    __slots__ = ("_by_tag", "_kind", "_plain", "_tagged")

    def __init__(
        self, kind: type | None, line: str, struct: Callable[[str], StructCodec], defaults: type | None = None
    ) -> None:
        self._kind = kind
        described = defaults or kind
        self._plain: list[tuple[str, Write, Read]] = []
        tagged: list[_Tagged] = []
        known = {} if described is None else {field.name: field.default for field in fields(described)}
        for word in line.split():
            rest, _, tag = word.partition("@")
            name, _, text = rest.partition(":")
            write, read = _type(text, struct)
            if tag:
                default = _default(text) if described is None else known[name]
                assert default is not MISSING, f"{kind}.{name} is tagged and needs a default"
                tagged.append(_Tagged(int(tag), name, write, read, default))
            else:
                self._plain.append((name, write, read))
        self._tagged = sorted(tagged)
        self._by_tag = {field.tag: field for field in self._tagged}

    def accepts(self, value: object) -> bool:
        """Whether ``value`` is of the struct's class."""
        return type(value) is (dict if self._kind is None else self._kind)

    def write(self, out: Writer, value: Any) -> None:
        """Write the fields in order, then the tagged ones that differ from their default."""
        of = getattr if self._kind is not None else _item
        for name, write, _ in self._plain:
            try:
                write(out, of(value, name))
            except LocalProtocolError as error:
                raise LocalProtocolError(f"{type(value).__name__}.{name}: {error}") from None
        present = []
        for field in self._tagged:
            content = of(value, field.name)
            empty = field.default == () and not content
            if content is not None and content != field.default and not empty:
                present.append((field, content))
        unknown = value.get(UNKNOWN_TAGS) if self._kind is None else None
        if unknown:
            self._write_with_unknown(out, present, unknown)
            return
        out.varint(len(present))
        for field, content in present:
            nested = Writer()
            field.write(nested, content)
            out.varint(field.tag)
            out.nested(nested)

    @staticmethod
    def _write_with_unknown(out: Writer, present: list[tuple[_Tagged, Any]], unknown: dict[int, bytes]) -> None:
        """Write the tagged fields, and those whose bytes were kept, in the order of their tags."""
        contents = dict(unknown)
        for field, content in present:
            nested = Writer()
            field.write(nested, content)
            contents[field.tag] = nested.joined()
        out.varint(len(contents))
        for tag, data in sorted(contents.items()):
            out.varint(tag)
            out.varint(len(data))
            out.raw(data)

    def read(self, source: Reader) -> Any:
        """Read and return a new value. Raises RemoteProtocolError."""
        values = {name: read(source) for name, _, read in self._plain}
        count = source.varint()
        unknown = self._read_tags(source, count, values) if count else None
        if self._kind is not None:
            return self._kind(**values)
        for field in self._tagged:
            values.setdefault(field.name, field.default)
        if unknown:
            values[UNKNOWN_TAGS] = unknown
        return values

    def _read_tags(self, source: Reader, count: int, values: dict[str, Any]) -> dict[int, bytes]:
        """Read the tagged fields into ``values``. Return the unknown ones."""
        before = -1
        unknown: dict[int, bytes] = {}
        for _ in range(count):
            start = source.position
            tag, size = source.varint(), source.varint()
            if tag <= before:
                raise source.wrong(f"tag {tag} follows tag {before}; tags must increase", start)
            before = tag
            content = Reader(source.take(size))
            field = self._by_tag.get(tag)
            if field is None:
                unknown[tag] = bytes(content.take(size))
                continue
            values[field.name] = field.read(content)
            if content.left:
                raise source.wrong(f"tag {tag} has {content.left} bytes too many", start)
        return unknown


def _item(value: dict[str, Any], name: str) -> Any:
    if name not in value:
        raise LocalProtocolError("the field is missing")
    return value[name]


def skip_tags(source: Reader) -> None:
    """Skip all tagged fields of a struct that has none."""
    for _ in range(source.varint()):
        source.varint()
        source.take(source.varint())


# -------------------------------------------------------------------------------------------- types

_NUMBERS: Final = {
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "int64": INT64,
    "float64": FLOAT64,
}
_COUNT_MAX: Final = 17
"""Arrays of fewer numbers have a prepared format."""
_LAYOUTS: dict[str, StructCodec] = {}


def _layout(name: str) -> StructCodec:
    found = _LAYOUTS.get(name)
    if found is None:
        found = _LAYOUTS[name] = StructCodec(CLASSES[name], LAYOUTS[name], _layout)
    return found


def _default(text: str) -> Any:
    """Return the default of a tagged field without a class: null if it may be null."""
    if text.startswith("?"):
        return None
    return () if text.startswith("[") else 0


def _type(text: str, struct: Callable[[str], StructCodec]) -> tuple[Write, Read]:
    """Return the functions that write and read the type named ``text``."""
    nullable = text.startswith("?")
    text = text.removeprefix("?")
    if text.startswith("["):
        if text[1:-1] in _NUMBERS:
            return _numbers(_NUMBERS[text[1:-1]], nullable=nullable)
        return _array(*_type(text[1:-1], struct), nullable=nullable)
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
    if text == "bytes":
        return _bytes()
    if text.startswith("{"):
        return _wrapped(*_type(text[1:-1].partition(":")[2], struct))
    return _struct(text, struct, nullable=nullable)


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


def _numbers(kind: Struct, *, nullable: bool) -> tuple[Write, Read]:
    """An array of numbers, which is read and written at once."""
    element = kind.format[1:]
    by_count = [Struct(f">{count}{element}") for count in range(_COUNT_MAX)]

    def write(out: Writer, value: Any) -> None:
        if value is None and nullable:
            out.null()
            return
        if value is None or isinstance(value, (str, bytes)):
            raise LocalProtocolError(f"{value!r} is not a list")
        count = len(value)
        out.varint(count + 1)
        out.numbers(by_count[count] if count < _COUNT_MAX else Struct(f">{count}{element}"), value)

    def read(source: Reader) -> list[int] | None:
        start = source.position
        count = source.size()
        if count >= 0:
            return source.numbers(by_count[count] if count < _COUNT_MAX else Struct(f">{count}{element}"))
        if nullable:
            return None
        raise source.wrong("a required array is null", start)

    return write, read


def _bytes() -> tuple[Write, Read]:
    def write(out: Writer, value: Any) -> None:
        out.data((value,))

    def read(source: Reader) -> bytes:
        start = source.position
        size = source.size()
        if size < 0:
            raise source.wrong("required bytes are null", start)
        return bytes(source.take(size))

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


def _struct(name: str, struct: Callable[[str], StructCodec], *, nullable: bool) -> tuple[Write, Read]:
    def write(out: Writer, value: Any) -> None:
        if nullable:
            out.number(INT8, -1 if value is None else 1)
            if value is None:
                return
        codec = struct(name)
        if not codec.accepts(value):
            raise LocalProtocolError(f"{value!r} is not a {name}")
        codec.write(out, value)

    def read(source: Reader) -> Any:
        if nullable and source.number(INT8) < 0:
            return None
        return struct(name).read(source)

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
