"""Rows in: lines of text, NDJSON or CSV become records to append.

In NDJSON and CSV each row is either a record, as ``replog cat`` prints it (it has a field ``value``), or an event
that is the value as a whole. The first row decides for all of them; ``--value-field`` decides beforehand.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import codecs
import csv
import datetime
import decimal
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from pyreplog.cli.options import timestamp_of
from pyreplog.cli.output import say
from pyreplog.config import nearest
from pyreplog.errors import excerpt
from pyreplog.timestamps import TIMESTAMP_MAX, beyond_last

__all__ = [
    "FORMATS",
    "LINE_SIZE_MAX",
    "PARQUET",
    "VALUES",
    "WHOLE_ROW",
    "Fields",
    "Lines",
    "RowNumber",
    "Row",
    "RowError",
    "Style",
    "check_style",
    "fields_of",
    "form_of",
    "guessed",
    "is_gzip",
    "line_size_max",
    "map_rows",
    "read_rows",
    "style_of",
]

FORMATS: Final = ("ndjson", "csv", "lines")
PARQUET: Final = "parquet"
_SUFFIXES: Final = {".csv": "csv", ".txt": "lines", ".log": "lines", ".parquet": PARQUET, ".pq": PARQUET}
_SUFFIXES_NDJSON: Final = (".ndjson", ".jsonl", ".json")
_SUFFIXES_COMPRESSED: Final = (".bz2", ".xz", ".zst", ".lz4", ".zip")
GZIP: Final = ".gz"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_SUFFIXES_TABS: Final = (".tsv", ".tab")
#: ``--value-field '*'``: the row as a whole is the value.
WHOLE_ROW: Final = "*"
VALUES: Final = frozenset(("value", "value_base64"))
#: What ``cat``, ``export`` and ``dump`` print of a record, and the columns of a Spark frame of
#: records.
_RECORD_FIELDS: Final = frozenset(
    (
        *(
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestamp_type",
            "leader_epoch",
            "timestampType",
            "leaderEpoch",
        ),
        *("key", "key_base64", "value", "value_base64", "headers"),
    )
)
#: What says that a row with a field ``log`` is a record of one of several logs, as ``cat --all``
#: prints it.
_RECORD_PLACE: Final = frozenset(["topic", "partition", "offset"])
LINE_SIZE_MAX: Final = 64 << 20
"""Bytes of a line of NDJSON, CSV or text, unless the topic takes larger records: see :func:`line_size_max`."""
_ESCAPED_SIZE: Final = 6
"""Bytes in JSON, at most, for one byte of a record: ``\\u0000``."""
_OTHER_SIZE_MAX: Final = 1 << 20
_CHUNK_SIZE: Final = 1 << 20


class RowError(ValueError):
    """A row that cannot become a record: what is wrong with it, and in which line."""


class Row(NamedTuple):
    """One record to append. ``timestamp`` in ms since 1970, -1 for no time, None for now; ``partition`` None where
    the key decides."""

    value: bytes | None
    key: bytes | None
    timestamp: int | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None


class Fields(NamedTuple):
    """Which field of a row is what. None: the usual name in rows that are records, nothing in rows that are
    events."""

    value: str | None = None
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    partition: str | None = None


class Style(NamedTuple):
    """How text is written. ``delimiter``: between the columns of CSV, None for a comma or the file's own ``sep=``
    line. ``encoding``: None for UTF-8."""

    delimiter: str | None = None
    encoding: str | None = None


_PLAIN: Final = Style()


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class Lines:
    """The lines of a stream, as they arrive; ``waiting`` says that the next one has yet to be read."""

    def __init__(
        self, stream: _Readable, tell: Callable[[int], None] | None = None, size_max: int = LINE_SIZE_MAX
    ) -> None:
        """``tell`` is told of each piece of bytes that was read. ``size_max``: bytes of a line."""
        self._size_max = size_max
        self._stream = stream
        self._tell = tell
        self._lines: list[bytes] = []
        self._next = 0
        self.number = 0
        self.size = 0

    @property
    def waiting(self) -> bool:
        """Whether the next line may block: the moment to append what was gathered."""
        return self._next >= len(self._lines)

    def __iter__(self) -> Iterator[bytes]:
        """Each line without its end; ``number`` counts them from 1, ``size`` their bytes with their ends."""
        rest: list[bytes] = []  # pieces of the line that has not ended yet, put together once it has
        rest_size = 0
        while True:
            while self._next < len(self._lines):
                line = self._lines[self._next]
                self._next += 1
                self.number += 1
                self.size += len(line) + 1
                yield line
            chunk = self._stream.read1(_CHUNK_SIZE)
            if not chunk:
                break
            if self._tell is not None:
                self._tell(len(chunk))
            self._lines = chunk.split(b"\n")
            last = self._lines.pop()
            self._next = 0
            if self._lines:
                self._lines[0] = b"".join([*rest, self._lines[0]])
                rest, rest_size = [], 0
            rest.append(last)
            rest_size += len(last)
            if rest_size > self._size_max:
                number = self.number + len(self._lines) + 1
                raise RowError(
                    f"line {number} is longer than {self._size_max} bytes, the most for a topic of this"
                    " max.message.bytes"
                )
        if rest_size:
            self.number += 1
            self.size += rest_size
            yield b"".join(rest)


def line_size_max(record_size_max: int) -> int:
    """Bytes of a line that ``replog export`` may write of a record of ``record_size_max`` bytes, and never less
    than :data:`LINE_SIZE_MAX`."""
    return max(LINE_SIZE_MAX, _ESCAPED_SIZE * record_size_max + _OTHER_SIZE_MAX)


def form_of(name: str) -> str:
    """How the file ``name`` is written, by its suffix, ahead of ``.gz``; ndjson if that does not say."""
    plain = name.lower().removesuffix(GZIP)
    return next((form for suffix, form in _SUFFIXES.items() if plain.endswith(suffix)), "ndjson")


def is_gzip(name: str) -> bool:
    """Whether the file ``name`` is unpacked while it is read."""
    return name.lower().endswith(GZIP)


def guessed(name: str, asked: str | None) -> str:
    """For the end of what is said of a row that cannot be read: what the suffix of ``name`` may have meant, where
    it was not known."""
    suffix = os.path.splitext(name.lower().removesuffix(GZIP))[1]
    if suffix in _SUFFIXES_COMPRESSED:
        return f" ({suffix} is compressed: unpack it first, or into a pipe that is read as -)"
    if asked is None and suffix in _SUFFIXES_TABS:
        return (
            rf" ({suffix} says no format, so it was read as ndjson; for CSV with tabs say --format csv --delimiter"
            r" '\t')"
        )
    known = (*_SUFFIXES, *_SUFFIXES_NDJSON)
    if asked is not None or not suffix or suffix in known:
        return ""
    near = nearest(suffix, known)
    return (
        f" ({suffix} says no format, so it was read as"
        f" ndjson{'; --format names another' if near is None else f'; did you mean {near!r}?'})"
    )


def fields_of(arguments: argparse.Namespace) -> Fields:
    """Which field is what, as the options say."""
    return Fields(
        arguments.value_field,
        arguments.key_field,
        arguments.timestamp_field,
        arguments.headers_field,
        arguments.partition_field,
    )


def style_of(arguments: argparse.Namespace) -> Style:
    """How the text is written, as the options say."""
    encoding: str | None = arguments.encoding
    if encoding is not None and codecs.lookup(encoding).name == "utf-8":
        encoding = None  # as without the option, and a byte order mark is passed over
    return Style(arguments.delimiter, encoding)


class RowNumber:
    """Which row of a file is being read, from 1."""

    number = 0


def check_style(form: str, style: Style) -> None:
    """Raise :class:`RowError` if ``style`` says something that the format ``form`` does not have."""
    if style.delimiter is not None and form != "csv":
        raise RowError(f"--delimiter is for CSV, and this is read as {form}: --format csv says otherwise")
    if style.encoding is not None and form not in ("csv", "ndjson"):
        raise RowError(f"--encoding is for CSV and NDJSON, and this is read as {form}")


def read_rows(lines: Lines, form: str, fields: Fields, style: Style = _PLAIN) -> Iterator[Row]:
    """Records of ``lines`` in the format ``form``. Raises :class:`RowError` naming the line."""
    check_style(form, style)
    if form == "lines":
        if any(fields):
            raise RowError("lines of text have no fields: --value-field and its like are for NDJSON, CSV and Parquet")
        return (Row(line, None, None, (), None) for line in lines)
    objects = _csv_objects(lines, style) if form == "csv" else _json_objects(lines, style.encoding)
    return map_rows(lines, objects, fields)


def _json_objects(lines: Lines, encoding: str | None) -> Iterator[tuple[dict[str, Any], bytes]]:
    for line in lines:
        if encoding is not None:
            line = _text(line, lines.number, encoding).encode()  # noqa: PLW2901  (the value is the line in UTF-8)
        if lines.number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901  (no part of the text)
        if not line.strip():
            continue
        try:
            row = _object(_text(line, lines.number))
        except RowError:
            raise
        except RecursionError:
            raise RowError(f"line {lines.number} is nested too deeply") from None
        except ValueError as error:
            hint = _instead(line) if lines.number == 1 else ""
            raise RowError(f"line {lines.number} is not JSON ({error}): {excerpt(line)}{hint}") from None
        if not isinstance(row, dict):
            hint = "; to append the lines as they are say --format lines" if lines.number == 1 else ""
            raise RowError(f"line {lines.number} is not a JSON object: {excerpt(line)}{hint}")
        yield row, line.strip()


def _object(text: str) -> object:
    """What the JSON ``text`` holds."""
    try:
        return _decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer has more digits than Python converts. It stays as it is written.
        return _decode_long(text)


def _instead(line: bytes) -> str:
    """What the first line may be that is not JSON."""
    if line.lstrip()[:1] in (b"[", b"{"):
        return "; NDJSON has one object in each line: `jq -c .` writes JSON so, `jq -c '.[]'` what an array holds"
    return "; for plain text say --format lines"


class _Literal:
    """A number as it stands in JSON: one with a fraction or an exponent that Python rounds or writes otherwise, or
    a very long integer."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def _number(text: str) -> float | _Literal:
    """What stands in JSON: as a number where Python writes it just so, which goes fast."""
    number = float(text)
    return number if repr(number) == text else _Literal(text)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Made once: json.loads with options makes a decoder for each call.
_decode: Final = json.JSONDecoder(parse_float=_number, parse_constant=_no_constant).decode


def _integer(text: str) -> int | _Literal:
    return int(text) if len(text) <= _INTEGER_DIGITS_MAX else _Literal(text)


_INTEGER_DIGITS_MAX: Final = 19
_decode_long: Final = json.JSONDecoder(parse_float=_number, parse_constant=_no_constant, parse_int=_integer).decode


def _csv_objects(lines: Lines, style: Style) -> Iterator[tuple[dict[str, Any], bytes]]:
    csv.field_size_limit(LINE_SIZE_MAX)
    began = 1
    texts: Iterator[str] = (_text(line, lines.number, style.encoding) + "\n" for line in lines)
    try:
        first = next(texts, "")
        delimiter, header = _own_delimiter(first, style.delimiter), 1
        if delimiter is not None:
            header = 2
        else:
            texts = itertools.chain([first], texts)
        reader = csv.reader(texts, strict=True, delimiter=delimiter or style.delimiter or ",")
        began = header
        names = next(reader, [])
        if len(set(names)) != len(names):
            raise RowError(f"line {header} names a column twice: {excerpt(','.join(names))}")
        if len(names) == 1 and style.delimiter is None and delimiter is None:
            _check_one_column(names[0])
        began = lines.number + 1
        for values in reader:
            start, began = began, lines.number + 1
            if not values:
                continue
            if len(values) != len(names):
                since = (
                    ""
                    if start == lines.number
                    else f"; the record began in line {start}, where a quote may be left open"
                )
                raise RowError(
                    f"line {lines.number} has {len(values)} fields; the header in line {header} names"
                    f" {len(names)}{since}"
                )
            row = dict(zip(names, values, strict=True))
            yield row, json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
    except csv.Error as error:
        raise RowError(_not_csv(str(error), began, lines.number)) from None


def _not_csv(error: str, began: int, line: int) -> str:
    """Return the reason why the record that began in line ``began`` is not CSV, of which ``line`` was read last."""
    if error == "unexpected end of data":
        return (
            f"line {began} is not CSV: the record that begins there has a quote that is left open up to line {line},"
            " the end of the file"
        )
    if error.startswith("new-line character"):
        return (
            f"line {line} is not CSV: it holds a carriage return alone; if the file ends its lines so, as old Macs"
            " wrote them, "
            r"say `tr '\r' '\n' <FILE | replog import PATH - --format csv`"
        )
    since = "" if began == line else f"; the record began in line {began}, where a quote may be left open"
    return f"line {line} is not CSV: {error}{since}"


def _own_delimiter(line: str, asked: str | None) -> str | None:
    """The delimiter that the first line states as ``sep=;``, as spreadsheets write it; None if it is a header."""
    text = line.rstrip("\r\n")
    if text.startswith('"') and text.endswith('"'):
        text = text[1:-1]
    if len(text) != 5 or not text.lower().startswith("sep="):
        return None
    if asked not in (None, text[4]):
        raise RowError(
            f"line 1 says that {text[4]!r} separates the columns, and --delimiter says {asked!r}: leave one of them out"
        )
    return text[4]


def _check_one_column(name: str) -> None:
    """Refuse a header of one column that looks like several: no row may become one field without a word."""
    for delimiter, (words, option) in _OTHER_DELIMITERS.items():
        if delimiter in name:
            raise RowError(
                f"line 1 names one column, {excerpt(name)}: if {words} separates the columns, say --delimiter"
                f" '{option}'; if it is one column, say --delimiter ','"
            )


_OTHER_DELIMITERS: Final = {";": ("a semicolon", ";"), "\t": ("a tab", "\\t")}


def _text(line: bytes, number: int, encoding: str | None = None) -> str:
    if number == 1 and line.startswith(_GZIP_MAGIC):
        raise RowError(
            "it is gzip: unpack it into a pipe, as in `gunzip -c FILE | replog import PATH -`, or give a file whose"
            " name ends in .gz"
        )
    try:
        if encoding is not None:
            return line.decode(encoding)
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        hint = "; --encoding names another" if encoding is None else ""
        raise RowError(f"line {number} is not {encoding or 'UTF-8'}: {excerpt(line)}{hint}") from None


def map_rows(
    lines: Lines | RowNumber, objects: Iterator[tuple[dict[str, Any], bytes | None]], fields: Fields, word: str = "line"
) -> Iterator[Row]:
    """Records of ``objects``, each with its line where it has one; ``lines`` knows the number of the one that was
    given last.

    Raises :class:`RowError` that names it, after ``word``.
    """
    whole: bool | None = None if fields.value is None else fields.value == WHOLE_ROW
    taken_for_record = told = False
    topic: object = None
    for row, line in objects:
        try:
            if whole is None:
                whole = row.keys().isdisjoint(VALUES)
                if not whole:
                    taken_for_record = True
                    fields = Fields(*(given or name for given, name in zip(fields, Fields._fields, strict=True)))
            made = _row(row, line, fields, whole=whole)
            if taken_for_record:
                _check_record(row, fields)
                named = row.get("topic")
                topic = topic or named
                if named and named != topic and not told:
                    told = True
                    before, here = excerpt(str(topic)), excerpt(str(named))
                    say(
                        f"replog: {word} {lines.number} is of topic {here}, those before of {before}: all go into one"
                        " topic; `replog export --topic` takes out one alone"
                    )
            yield made
        except ValueError as error:
            raise RowError(f"{word} {lines.number}: {error}") from None


def _check_record(row: dict[str, Any], fields: Fields) -> None:
    """Of a row that is taken for a record because it has a field ``value``: an event may have one, too, and would
    lose all others."""
    for name in row:
        if name == "log" and row.keys() >= _RECORD_PLACE:
            continue
        if name not in _RECORD_FIELDS and name not in fields:
            raise ValueError(
                f"has the field {excerpt(name)} beside 'value', which no record has: --value-field '*' takes the row as"
                " a whole for the value, --value-field value that field alone"
            )


def _row(row: dict[str, Any], line: bytes | None, fields: Fields, *, whole: bool) -> Row:
    if whole and line is None:
        line = _json(row)
    value = line if whole else _one(row, fields.value or "value", needed=True)
    key = None if fields.key is None else _one(row, fields.key, needed=fields.key != "key")
    timestamp = None if fields.timestamp is None else _timestamp(row, fields.timestamp)
    headers = () if fields.headers is None else _headers(_there(row, fields.headers, "headers"), fields.headers)
    partition = (
        None if fields.partition is None else _partition(_there(row, fields.partition, "partition"), fields.partition)
    )
    return Row(value, key, timestamp, headers, partition)


def _there(row: dict[str, Any], name: str, usual: str) -> object:
    """The field ``name``, None where it is null. Only under its usual name may it be missing: else what was named
    is a slip, or not in all rows, and no row may get another time, say, without a word."""
    if name != usual and name not in row:
        raise _missing(row, name)
    return row.get(name)


def _missing(row: dict[str, Any], name: str) -> ValueError:
    near = nearest(name, row)
    hint = "" if near is None else f" (did you mean {near!r}?)"
    return ValueError(f"has no field {name!r}{hint}; its fields are {excerpt(', '.join(row))}")


def _one(row: dict[str, Any], name: str, *, needed: bool) -> bytes | None:
    """A field as bytes, where it is not there twice."""
    if name in row and row.get(f"{name}_base64") is not None:
        raise ValueError(f"has both {name!r} and '{name}_base64': leave one of them out")
    return _bytes(row, name, needed=needed)


def _bytes(row: dict[str, Any], name: str, *, needed: bool) -> bytes | None:
    """A field as bytes: text as UTF-8, also that which stands for what JSON has no type for, null as null, anything
    else as its JSON; ``NAME_base64`` as what it encodes."""
    if name in row:
        field = row[name]
        if field is None:
            return None
        if isinstance(field, bytes):
            return field
        try:
            if isinstance(field, str):
                return field.encode()
            text = _json(field)
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


def _json(field: object) -> bytes:
    try:
        try:
            text = _encode(field)
        except ValueError:
            text = _written(field)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    return text.encode()


def _written(field: object) -> str:
    """``field`` as JSON, with numbers that came as they stood, and those that JSON has not as text: "NaN",
    "Infinity", "-Infinity", as Spark and Protocol Buffers write them."""
    if isinstance(field, _Literal):
        return str(field)
    if isinstance(field, float) and not math.isfinite(field):
        return '"NaN"' if math.isnan(field) else '"Infinity"' if field > 0 else '"-Infinity"'
    if isinstance(field, dict):
        return "{" + ",".join([f"{_encode(name)}:{_written(value)}" for name, value in field.items()]) + "}"
    return "[" + ",".join([_written(one) for one in field]) + "]" if isinstance(field, list | tuple) else _encode(field)


def _plain(value: object) -> object:
    """What JSON has no type for: bytes as text, or in Base64 where they are none; times in ISO 8601; numbers in
    full."""
    if isinstance(value, _Literal):
        raise ValueError("only what writes numbers as they stood can write it")
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
    """``text``, without the fraction of a whole float: pandas writes the integers of a column with gaps as
    1700000000000.0."""
    if not text.isdigit() and _FLOAT.fullmatch(text):
        number = decimal.Decimal(text)
        if number == number.to_integral_value():
            return str(int(number))
    return text


def _timestamp(row: dict[str, Any], name: str) -> int | None:
    """Return the time of a record: -1, no time, if the field is null or empty, and None, which means now, if the
    row has no such field."""
    field = _there(row, name, "timestamp")
    if field is None or field == "":
        return -1 if name in row else None
    if isinstance(field, datetime.datetime):
        return timestamp_of(field.isoformat())
    if type(field) is int and field >= 0:
        if field > TIMESTAMP_MAX:
            raise beyond_last(field)
        return field
    if isinstance(field, float | _Literal | str):
        field = _whole(str(field))
    if isinstance(field, bool) or not isinstance(field, int | str):
        raise ValueError(
            f"field {name!r} is {excerpt(str(field))}, not a time: give ms since 1970, or ISO 8601 with its zone"
        )
    found = timestamp_of(str(field))
    if found > TIMESTAMP_MAX:
        raise beyond_last(found)
    return found


def _headers(field: object, name: str) -> tuple[tuple[str, bytes | None], ...]:
    """Headers: a list of ``{"key": ..., "value": ...}`` as ``cat`` prints it, one object of names and values, or a
    flat list of a name, its value, the next name and so on, as ``kcat -J`` prints them."""
    if field is None or field == "":
        return ()
    if isinstance(field, str):
        try:
            field = _decode(field)
        except RecursionError:
            raise ValueError(f"field {name!r} is nested too deeply") from None
        except ValueError:
            field = None  # as anything else that is none
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


def _partition(field: object, name: str) -> int | None:
    if field is None or field == "":
        return None
    text = str(field)
    if isinstance(field, bool) or not (text.isascii() and text.isdigit()) or len(text) > _INTEGER_DIGITS_MAX:
        raise ValueError(f"field {name!r} is {excerpt(text)}, not a partition (a whole number from 0)")
    return int(text)
