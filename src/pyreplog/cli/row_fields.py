"""The fields of one row: JSON values become the bytes, time, headers and partition of a record."""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import math
import re
from typing import Any, Final

from pyreplog.cli.options import timestamp_of
from pyreplog.config import nearest
from pyreplog.errors import excerpt
from pyreplog.timestamps import TIMESTAMP_MAX, beyond_last

__all__ = [
    "VALUES",
    "JsonNumber",
    "decode",
    "decode_long",
    "field_bytes",
    "headers_field",
    "json_bytes",
    "partition_field",
    "timestamp_field",
]

VALUES: Final = frozenset(("value", "value_base64"))


class JsonNumber:
    """The text of a JSON number that Python would write differently: a fraction or an exponent that a
    float rounds, or a very long integer.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def _number(text: str) -> float | JsonNumber:
    """Return a float if Python writes it with the same text, because floats are fast."""
    number = float(text)
    return number if repr(number) == text else JsonNumber(text)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Made once: json.loads with options makes a decoder for each call.
decode: Final = json.JSONDecoder(parse_float=_number, parse_constant=_no_constant).decode


def _integer(text: str) -> int | JsonNumber:
    return int(text) if len(text) <= _INTEGER_DIGITS_MAX else JsonNumber(text)


_INTEGER_DIGITS_MAX: Final = 19
decode_long: Final = json.JSONDecoder(parse_float=_number, parse_constant=_no_constant, parse_int=_integer).decode


def _optional_field(row: dict[str, Any], name: str, usual: str) -> object:
    """Return the field ``name``; None if it is null, or if it is missing under its ``usual`` name.

    Raises ValueError if a field with another name is missing: the user named it, so the name is
    misspelled, or some rows lack it and would silently get the current time, for example.
    """
    if name != usual and name not in row:
        raise _missing(row, name)
    return row.get(name)


def _missing(row: dict[str, Any], name: str) -> ValueError:
    near = nearest(name, row)
    hint = "" if near is None else f" (did you mean {near!r}?)"
    return ValueError(f"has no field {name!r}{hint}; its fields are {excerpt(', '.join(row))}")


def field_bytes(row: dict[str, Any], name: str, *, needed: bool) -> bytes | None:
    """Return a field as bytes. Raises ValueError if the row has both ``NAME`` and ``NAME_base64``."""
    if name in row and row.get(f"{name}_base64") is not None:
        raise ValueError(f"has both {name!r} and '{name}_base64': leave one of them out")
    return _bytes(row, name, needed=needed)


def _bytes(row: dict[str, Any], name: str, *, needed: bool) -> bytes | None:
    """Return a field as bytes: text as UTF-8, null as None, and any other value as its JSON.

    ``NAME_base64`` is decoded. A value without a JSON type is written as text, and that text is
    returned.
    """
    if name in row:
        field = row[name]
        if field is None:
            return None
        if isinstance(field, bytes):
            return field
        try:
            if isinstance(field, str):
                return field.encode()
            text = json_bytes(field)
            return str(json.loads(text)).encode() if text.startswith(b'"') else text
        except UnicodeEncodeError:
            # JSON can name half of a pair of UTF-16, which is no character.
            raise ValueError(
                f"field {name!r} is {excerpt(str(field))}, which is not UTF-8: give its bytes as {name}_base64"
            ) from None
    encoded = row.get(f"{name}_base64")
    if encoded is None:
        if needed:
            raise _missing(row, name)
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ValueError(f"field '{name}_base64' is not Base64: {excerpt(str(encoded))}") from None


def json_bytes(field: object) -> bytes:
    """Return ``field`` as JSON. Raises ValueError if it is nested too deeply."""
    try:
        try:
            text = _encode(field)
        except ValueError:
            text = _written(field)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    return text.encode()


def _written(field: object) -> str:
    """Return ``field`` as JSON. A :class:`JsonNumber` keeps its text. Floats that JSON cannot write
    become the texts "NaN", "Infinity" and "-Infinity", as in Spark and Protocol Buffers.
    """
    if isinstance(field, JsonNumber):
        return str(field)
    if isinstance(field, float) and not math.isfinite(field):
        return '"NaN"' if math.isnan(field) else '"Infinity"' if field > 0 else '"-Infinity"'
    if isinstance(field, dict):
        return "{" + ",".join([f"{_encode(name)}:{_written(value)}" for name, value in field.items()]) + "}"
    return "[" + ",".join([_written(one) for one in field]) + "]" if isinstance(field, list | tuple) else _encode(field)


def _plain(value: object) -> object:
    """Return the text for a value without a JSON type: bytes as UTF-8, or else in Base64, times in
    ISO 8601, numbers with all digits.
    """
    if isinstance(value, JsonNumber):
        raise ValueError("a JsonNumber keeps its text: _written writes it")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


# Made once, as the decoder is.
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain).encode


_FLOAT: Final = re.compile(r"\d+(\.\d*)?([eE][+]?\d{1,2})?", re.ASCII)


def _whole(text: str) -> str:
    """Return ``text`` without the fraction of a whole number, because pandas writes the integers of a
    column with gaps as 1700000000000.0.
    """
    if not text.isdigit() and _FLOAT.fullmatch(text):
        number = decimal.Decimal(text)
        if number == number.to_integral_value():
            return str(int(number))
    return text


def timestamp_field(row: dict[str, Any], name: str) -> int | None:
    """Return the time of a record: -1, no time, if the field is null or empty, and None, which means now, if the
    row has no such field."""
    field = _optional_field(row, name, "timestamp")
    if field is None or field == "":
        return -1 if name in row else None
    if isinstance(field, datetime.datetime):
        return timestamp_of(field.isoformat())
    if type(field) is int and field >= 0:
        if field > TIMESTAMP_MAX:
            raise beyond_last(field)
        return field
    if isinstance(field, float | JsonNumber | str):
        field = _whole(str(field))
    if isinstance(field, bool) or not isinstance(field, int | str):
        raise ValueError(
            f"field {name!r} is {excerpt(str(field))}, not a time: give ms since 1970, or ISO 8601 with its zone"
        )
    found = timestamp_of(str(field))
    if found > TIMESTAMP_MAX:
        raise beyond_last(found)
    return found


def headers_field(row: dict[str, Any], name: str) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of a record.

    The field may be a list of ``{"key": ..., "value": ...}`` as ``cat`` prints it, one object of names and
    values, or a flat list of names and values in turn, as ``kcat -J`` prints it.
    """
    field = _optional_field(row, name, "headers")
    if field is None or field == "":
        return ()
    if isinstance(field, str):
        try:
            field = decode(field)
        except RecursionError:
            raise ValueError(f"field {name!r} is nested too deeply") from None
        except ValueError:
            field = None  # no headers: refused below
    if isinstance(field, dict):
        return tuple((_header_key(key, name), _bytes(field, key, needed=True)) for key in field)
    if isinstance(field, list) and all(isinstance(pair, tuple) for pair in field):
        # A map of Parquet, which may have one key more than once.
        return tuple((_header_key(key, name), _bytes({"value": value}, "value", needed=True)) for key, value in field)
    if isinstance(field, list) and all(
        isinstance(pair, dict) and "key" in pair and not pair.keys().isdisjoint(VALUES) for pair in field
    ):
        return tuple((_header_key(pair["key"], name), _bytes(pair, "value", needed=True)) for pair in field)
    if isinstance(field, list) and len(field) % 2 == 0 and all(isinstance(one, str) for one in field[::2]):
        values = (_bytes({"value": value}, "value", needed=True) for value in field[1::2])
        return tuple(zip((_header_key(key, name) for key in field[::2]), values, strict=True))
    raise ValueError(f'field {name!r} is neither an object nor a list of {{"key": ..., "value": ...}}')


def _header_key(key: object, name: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"field {name!r} has the header key {excerpt(str(key))}, which is no text")
    try:
        key.encode()
    except UnicodeEncodeError:
        # JSON can name half of a pair of UTF-16, which is no character.
        raise ValueError(f"field {name!r} has the header key {excerpt(key)}, which is not UTF-8") from None
    return key


def partition_field(row: dict[str, Any], name: str) -> int | None:
    """Return the partition of a record; None if the field is null, empty or missing."""
    field = _optional_field(row, name, "partition")
    if field is None or field == "":
        return None
    text = str(field)
    if isinstance(field, bool) or not (text.isascii() and text.isdigit()) or len(text) > _INTEGER_DIGITS_MAX:
        raise ValueError(f"field {name!r} is {excerpt(text)}, not a partition (a whole number from 0)")
    return int(text)
