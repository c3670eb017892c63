"""Rows to append: lines of text, NDJSON or CSV become records.

In NDJSON and CSV each row is either a record, as ``replog cat`` prints it (it has a field ``value``), or an event that
becomes the value as a whole. The first row decides for all rows, unless ``--value-field`` is given.
"""

from __future__ import annotations

import argparse
import codecs
import csv
import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from pyreplog.cli.output import say
from pyreplog.cli.row_fields import (
    VALUES,
    decode,
    decode_long,
    field_bytes,
    headers_field,
    json_bytes,
    partition_field,
    timestamp_field,
)
from pyreplog.config import nearest
from pyreplog.errors import excerpt

__all__ = [
    "FORMATS",
    "LINE_SIZE_MAX",
    "PARQUET",
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
#: The fields that ``cat``, ``export`` and ``dump`` print, and the columns of a Spark frame of
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
#: If a row has these fields, its field ``log`` names the log of a record, as ``cat --all`` prints
#: it.
_RECORD_PLACE: Final = frozenset(["topic", "partition", "offset"])
LINE_SIZE_MAX: Final = 64 << 20
"""The longest line of NDJSON, CSV or text, in bytes, unless the topic takes larger records: see
:func:`line_size_max`."""
_ESCAPED_SIZE: Final = 6
"""The most bytes of JSON for one byte of a record: ``\\u0000``."""
_OTHER_SIZE_MAX: Final = 1 << 20
_CHUNK_SIZE: Final = 1 << 20


class RowError(ValueError):
    """A row cannot become a record. The text names the line and the reason."""


class Row(NamedTuple):
    """One record to append. ``timestamp`` in ms since 1970, -1 for no time, None for now. ``partition`` None: the key
    decides."""

    value: bytes | None
    key: bytes | None
    timestamp: int | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None


class Fields(NamedTuple):
    """The names of a row's fields for each part of a record. None: the usual name in rows that are records, no field in
    rows that are events."""

    value: str | None = None
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    partition: str | None = None


class Style(NamedTuple):
    """The style of a text file. ``delimiter``: between the columns of CSV; None for a comma or the file's own ``sep=``
    line. ``encoding``: None for UTF-8."""

    delimiter: str | None = None
    encoding: str | None = None


_PLAIN: Final = Style()


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class Lines:
    """The lines of a stream, as they arrive."""

    def __init__(
        self, stream: _Readable, tell: Callable[[int], None] | None = None, size_max: int = LINE_SIZE_MAX
    ) -> None:
        """``tell(size)`` is called for each chunk of bytes that was read. ``size_max``: the most bytes of a line."""
        self._size_max = size_max
        self._stream = stream
        self._tell = tell
        self._lines: list[bytes] = []
        self._next = 0
        self.number = 0
        self.size = 0

    @property
    def waiting(self) -> bool:
        """Whether the next line may block. If so, the caller should append the gathered records now."""
        return self._next >= len(self._lines)

    def __iter__(self) -> Iterator[bytes]:
        """Yield each line without its line end. ``number`` counts the lines from 1, ``size`` their bytes with line
        ends."""
        rest: list[bytes] = []  # pieces of the unfinished line, joined once its end was read
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
    """Return the longest line, in bytes, that ``replog export`` may write for a record of ``record_size_max`` bytes,
    but at least :data:`LINE_SIZE_MAX`."""
    return max(LINE_SIZE_MAX, _ESCAPED_SIZE * record_size_max + _OTHER_SIZE_MAX)


def form_of(name: str) -> str:
    """Return the format of the file ``name``, by its suffix before ``.gz``; ndjson if the suffix is unknown."""
    plain = name.lower().removesuffix(GZIP)
    return next((form for suffix, form in _SUFFIXES.items() if plain.endswith(suffix)), "ndjson")


def is_gzip(name: str) -> bool:
    """Return whether the file ``name`` is gzip, which is unpacked while it is read."""
    return name.lower().endswith(GZIP)


def guessed(name: str, asked: str | None) -> str:
    """Return a hint for the end of an error about an unreadable row: the format that an unknown suffix of ``name`` may
    mean; "" if the suffix is known."""
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
    """Return the field names that the options give."""
    return Fields(
        arguments.value_field,
        arguments.key_field,
        arguments.timestamp_field,
        arguments.headers_field,
        arguments.partition_field,
    )


def style_of(arguments: argparse.Namespace) -> Style:
    """Return the style that the options give."""
    encoding: str | None = arguments.encoding
    if encoding is not None and codecs.lookup(encoding).name == "utf-8":
        encoding = None  # as without the option, so that a byte order mark is skipped
    return Style(arguments.delimiter, encoding)


class RowNumber:
    """The number of the row that is being read, from 1."""

    number = 0


def check_style(form: str, style: Style) -> None:
    """Raise :class:`RowError` if ``style`` has a setting that the format ``form`` does not have."""
    if style.delimiter is not None and form != "csv":
        raise RowError(f"--delimiter is for CSV, and this is read as {form}: --format csv says otherwise")
    if style.encoding is not None and form not in ("csv", "ndjson"):
        raise RowError(f"--encoding is for CSV and NDJSON, and this is read as {form}")


def read_rows(lines: Lines, form: str, fields: Fields, style: Style = _PLAIN) -> Iterator[Row]:
    """Yield the records of ``lines``, which are in the format ``form``. Raises :class:`RowError` naming the line."""
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
            line = line.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901  (the mark is no part of the text)
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
    """Return the object that the JSON ``text`` holds."""
    try:
        return decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # An integer has more digits than Python converts. Keep its text.
        return decode_long(text)


def _instead(line: bytes) -> str:
    """Return a hint on the format of a file whose first line is not JSON."""
    if line.lstrip()[:1] in (b"[", b"{"):
        return "; NDJSON has one object in each line: `jq -c .` writes JSON so, `jq -c '.[]'` the objects of an array"
    return "; for plain text say --format lines"


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
    """Return why the record that began in line ``began`` is not CSV. ``line`` is the last line read."""
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
    """Return the delimiter that the first line names as ``sep=;``, as spreadsheets write it; None if the line is a
    header."""
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
    """Raise RowError if a header of one column looks like several columns. Each row would silently become one
    field."""
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
    """Yield the records of ``objects``, which are (row, its line or None).

    Raises :class:`RowError`, which names the current row as ``word`` and ``lines.number``.
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
    """Raise ValueError if a row that has a field ``value`` also has a field that no record has.

    Such a row may be an event: as a record it would lose its other fields.
    """
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
        line = json_bytes(row)
    value = line if whole else field_bytes(row, fields.value or "value", needed=True)
    key = None if fields.key is None else field_bytes(row, fields.key, needed=fields.key != "key")
    timestamp = None if fields.timestamp is None else timestamp_field(row, fields.timestamp)
    headers = () if fields.headers is None else headers_field(row, fields.headers)
    partition = None if fields.partition is None else partition_field(row, fields.partition)
    return Row(value, key, timestamp, headers, partition)
