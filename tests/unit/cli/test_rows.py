"""Rows in: lines, NDJSON and CSV become records, and a bad row is named by its line."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import math
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.cli import row_fields
from pyreplog.cli.output import json_line
from pyreplog.cli.rows import LINE_SIZE_MAX, Fields, Lines, Row, RowError, RowNumber, line_size_max, map_rows, read_rows


class Trickle(io.RawIOBase):
    """A stream that gives its chunks one by one, as a pipe does."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)

    def read1(self, size: int = -1, /) -> bytes:
        """The next chunk; empty at the end."""
        return self.chunks.pop(0) if self.chunks else b""


def rows(data: bytes, form: str = "ndjson", fields: Fields = Fields()) -> list[Row]:  # noqa: B008  (immutable)
    """All rows of ``data``."""
    return list(read_rows(Lines(Trickle(data)), form, fields))


@given(st.binary(max_size=60), st.integers(min_value=1, max_value=7))
def test_lines_do_not_depend_on_chunks(data: bytes, step: int) -> None:
    """However a stream is cut into chunks, its lines are those of the whole."""
    chunks = [data[start : start + step] for start in range(0, len(data), step)]
    whole = data.split(b"\n")
    if not whole[-1]:
        whole.pop()
    lines = Lines(Trickle(*chunks))
    assert list(lines) == whole
    assert lines.number == len(whole)


def test_a_huge_line_costs_its_size() -> None:
    """A line that comes in many pieces is put together once, not once for each piece; beyond the limit it is an
    error."""
    pieces = [b"x" * (64 << 10)] * 960
    start = time.process_time()
    (line,) = Lines(Trickle(*pieces, b"\n"))
    assert len(line) == 60 << 20
    assert time.process_time() - start < 1
    with pytest.raises(RowError, match="line 2 is longer than 67108864 bytes"):
        list(Lines(Trickle(b"one\n", *pieces, *pieces)))


def test_a_line_may_be_as_long_as_a_record_of_the_topic_in_json() -> None:
    """A byte of text is up to six in JSON, so the limit follows the topic's largest record; it is never lower than
    the usual one."""
    assert line_size_max(1_048_588) == LINE_SIZE_MAX
    size = 20_000_000
    text = json_line({"value": "\0" * size, "key": None})
    assert LINE_SIZE_MAX < len(text) <= line_size_max(size)


def test_waiting_says_when_the_next_line_must_be_read() -> None:
    """After the last line at hand ``waiting`` is true, so what was gathered is appended before the program
    blocks."""
    lines = Lines(Trickle(b"a\nb\nc", b"c\n"))
    seen = [(line, lines.waiting) for line in lines]
    assert seen == [(b"a", False), (b"b", True), (b"cc", True)]


def test_text_lines_are_values() -> None:
    """``lines``: each line is a value, byte for byte, and nothing else."""
    assert [row.value for row in rows(b"a\r\n\n\xff", "lines")] == [b"a\r", b"", b"\xff"]


def test_records_as_cat_prints_them() -> None:
    """A row with a value is a record: key, timestamp, headers, partition and Base64 are understood."""
    record = {
        "topic": "t",
        "partition": 2,
        "offset": 9,
        "timestamp": 5,
        "key": None,
        "value_base64": "/w==",
        "headers": [{"key": "h", "value": "x"}, {"key": "h", "value_base64": "/w=="}, {"key": "n", "value": None}],
    }
    assert rows(json.dumps(record).encode()) == [Row(b"\xff", None, 5, (("h", b"x"), ("h", b"\xff"), ("n", None)), 2)]


def test_events_are_values_as_a_whole() -> None:
    """A row without a value is the value, as it stands; its key and time come only from fields that were named."""
    line = b'{"user": "u", "key": "no", "timestamp": 5, "at": "1970-01-01T00:00:01Z"}'
    assert rows(line) == [Row(line, None, None, (), None)]
    assert rows(line, fields=Fields(key="user", timestamp="at")) == [Row(line, b"u", 1000, (), None)]


def test_the_value_field_decides() -> None:
    """``--value-field`` names the value, or with ``*`` makes the row the value even where it has a field of that
    name."""
    line = b'{"value": 1, "v": {"a": [1, null]}}'
    assert rows(line, fields=Fields(value="v"))[0].value == b'{"a":[1,null]}'
    assert rows(line, fields=Fields(value="*"))[0].value == line
    assert rows(b'{"value": 1}')[0].value == b"1"


@pytest.mark.parametrize(
    "line",
    [b'{"value": 21.5, "sensor": "s1"}', b'{"value": "x", "kye": "k"}', b'{"value": 1}\n{"value": 2, "unit": "C"}'],
)
def test_nothing_of_a_row_is_dropped_unasked(line: bytes) -> None:
    """An event with a field called value is no record, nor is a field that was mistyped one of a record: the error
    says how to say so."""
    with pytest.raises(
        RowError, match=r"has the field '\w+' beside 'value', which no record has: --value-field '\*' takes the row"
    ):
        rows(line)
    assert rows(line, fields=Fields(value="value"))
    assert rows(line, fields=Fields(value="*"))[0].value == line.splitlines()[0]


def test_the_first_row_decides_for_all() -> None:
    """A file of records with one row that has no value is an error that names the line."""
    with pytest.raises(RowError, match="line 2: has no field 'value'"):
        rows(b'{"value": "a"}\n{"other": 1}')


@pytest.mark.parametrize("name", Fields._fields)
@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_a_field_that_was_named_is_there(name: str, form: str) -> None:
    """A slip in an option is no reason to give all rows the present time, no headers or any partition; null is an
    answer, though."""
    data = (
        b"time,heads,where,what\n1,,3,x\n" if form == "csv" else b'{"time": 1, "heads": null, "where": 3, "what": "x"}'
    )
    with pytest.raises(
        RowError, match=r"has no field 'tmie' \(did you mean 'time'\?\); its fields are 'time, heads, where, what'"
    ):
        rows(data, form, Fields(**{name: "tmie"}))
    fields = Fields(value="what", timestamp="time", headers="heads", partition="where")
    assert rows(data, form, fields) == [Row(b"x", None, 1, (), 3)]


@pytest.mark.parametrize("name", ["key", "timestamp", "headers", "partition"])
def test_a_record_may_lack_what_it_has_by_default(name: str) -> None:
    """As `replog cat` prints them, whether or not the option says the usual name."""
    assert rows(b'{"value": "x"}', fields=Fields(value="value", **{name: name})) == [Row(b"x", None, None, (), None)]


def test_csv() -> None:
    """The header names the fields; quoted line ends belong to the value; an event is its row as JSON."""
    data = b'\xef\xbb\xbfkey,value\r\nk,"two\r\nlines"\r\n'
    assert rows(data, "csv") == [Row(b"two\r\nlines", b"k", None, (), None)]
    data = b"carrier,n\nUA,1\n"
    assert rows(data, "csv", Fields(key="carrier")) == [Row(b'{"carrier":"UA","n":"1"}', b"UA", None, (), None)]


def test_the_mark_of_an_encoding_is_no_part_of_a_value() -> None:
    """Editors put one before the first row: an event that is kept as it is begins behind it."""
    assert [row.value for row in rows(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n')] == [b'{"a": 1}', b'{"a": 2}']
    assert rows(b'\xef\xbb\xbf\n{"value": "x"}\n') == [Row(b"x", None, None, (), None)]


def test_numbers_that_json_has_not() -> None:
    """Columns of Parquet hold them: they are text in the value, which is JSON all the same; what is nested too
    deeply is a bad row."""
    event = {"x": math.nan, "y": [math.inf, {"z": -math.inf}], "w": 1.5, "t": (0.5, None)}
    (row,) = map_rows(RowNumber(), iter([(event, None)]), Fields())
    assert row.value == b'{"x":"NaN","y":["Infinity",{"z":"-Infinity"}],"w":1.5,"t":[0.5,null]}'
    deep: list[object] = [math.nan]
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RowError, match="row 0: is nested too deeply"):
        list(map_rows(RowNumber(), iter([({"x": deep}, None)]), Fields(), "row"))


@pytest.mark.parametrize(
    "number", ["12345678901234567.89", "0.10", "1e999", "-1E+2", "123456789012345678901234567890", "1.5"]
)
def test_numbers_stay_as_they_stand(number: str) -> None:
    """A number that is taken out of its row is not rounded to what Python can hold, nor written otherwise."""
    line = (
        f'{{"value": {{"sum": [{number}, "x", null]}}, "key": {number}, "headers": [{{"key": "h", "value":'
        f" {number}}}]}}".encode()
    )
    text = number.encode()
    assert rows(line) == [Row(b'{"sum":[' + text + b',"x",null]}', text, None, (("h", text),), None)]
    assert rows(b'{"value":""}\n{"value":"","headers":"{\\"h\\":' + text + b'}"}')[1].headers == (("h", text),)


def test_numbers_that_python_writes_just_so_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left to the encoder, which is written in C: nobody goes through their values bit by bit."""
    slow: list[object] = []
    written = row_fields._written

    def counted(field: object) -> str:
        slow.append(field)
        return written(field)

    monkeypatch.setattr(row_fields, "_written", counted)
    line = b'{"value":{"sum":%s,"list":[0.25,1e+16,-3.0]},"key":%s}\n'
    for number in (b"1.5", b"-0.0", b"12345.678", b"1e-07"):
        assert rows(line % (number, number))[0].key == number
    assert slow == []
    assert rows(line % (b"1.50", b"1"))[0].value == b'{"sum":1.50,"list":[0.25,1e+16,-3.0]}'
    assert slow != []


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (decimal.Decimal("1.10"), b"1.10"),
        (datetime.date(2024, 2, 29), b"2024-02-29"),
        (uuid.UUID(int=7), str(uuid.UUID(int=7)).encode()),
    ],
)
def test_what_json_has_no_type_for_is_its_text(field: object, text: bytes) -> None:
    """A key, a value and a header that are a column of Parquet: without the quotes that JSON would put around
    it."""
    row = {"k": field, "v": field, "headers": [{"key": "h", "value": field}]}
    (found,) = map_rows(RowNumber(), iter([(row, None)]), Fields(value="v", key="k", headers="headers"))
    assert found == Row(text, text, None, (("h", text),), None)


def test_headers_nested_too_deeply() -> None:
    """Headers in a cell are JSON: what no parser gets through is an error that names the line."""
    with pytest.raises(RowError, match=r"line 2: field 'headers' is nested too deeply"):
        rows(b"value,headers\na," + b"[" * 100_000 + b"\n", "csv")


def test_a_null_time_is_no_time() -> None:
    """A time that is null in NDJSON, or empty in CSV, is no time (-1); without the field the time is now (None)."""
    assert [row.timestamp for row in rows(b'{"value":"a","timestamp":null}\n{"value":"b"}\n')] == [-1, None]
    assert [row.timestamp for row in rows(b'{"at":null}\n{"at":5}\n', fields=Fields(timestamp="at"))] == [-1, 5]
    assert [row.timestamp for row in rows(b"value,timestamp\na,\nb,5\n", "csv")] == [-1, 5]


def test_what_kcat_prints_is_taken() -> None:
    """A consumed message as ``kcat -J`` prints it, whose headers are one flat list of names and values."""
    data = (
        b'{"topic":"t","partition":2,"offset":0,"ts":17,"headers":["a","1","b",null,"a",""],"key":"k","payload":"{}"}'
    )
    fields = Fields(value="payload", key="key", timestamp="ts", headers="headers", partition="partition")
    assert rows(data, "ndjson", fields) == [Row(b"{}", b"k", 17, (("a", b"1"), ("b", None), ("a", b"")), 2)]
    with pytest.raises(RowError, match="neither an object nor a list"):
        rows(b'{"value": "", "headers": ["a"]}')


@pytest.mark.parametrize(
    ("form", "data", "said"),
    [
        ("ndjson", b"hello", "line 1 is not JSON .*--format lines"),
        ("ndjson", b'{"value":1}\n[1]', "line 2 is not a JSON object"),
        ("ndjson", b'"text"\n', "line 1 is not a JSON object: .*; to append the lines as they are say --format lines"),
        ("ndjson", b'{"value": NaN}', "line 1 is not JSON .NaN"),
        ("ndjson", b"[" * 100_000, "line 1 is (nested too deeply|not JSON)"),
        ("ndjson", b'{"value_base64": "?"}', "line 1: field 'value_base64' is not Base64"),
        (
            "ndjson",
            b'{"value": "\\ud800"}',
            "line 1: field 'value' is .*, which is not UTF-8: give its bytes as value_base64",
        ),
        (
            "ndjson",
            b'{"value": "", "key": "\\ud800"}',
            "line 1: field 'key' is .*, which is not UTF-8: give its bytes as key_base64",
        ),
        (
            "ndjson",
            b'{"value": "a", "value_base64": "YQ=="}',
            "line 1: has both 'value' and 'value_base64': leave one of them out",
        ),
        ("ndjson", b'{"value": 1, "timestamp": "yesterday"}', "line 1: 'yesterday' is not a time"),
        ("ndjson", b'{"value": 1, "timestamp": "2013-07-04T00:00:00"}', "has no time zone"),
        ("ndjson", b'{"value": 1, "timestamp": 1.5}', "not a time"),
        ("ndjson", b'{"value": 1, "partition": -1}', "not a partition"),
        ("ndjson", b'{"value": 1, "headers": [1]}', "neither an object nor a list"),
        ("ndjson", b'{"value": 1, "headers": "h=1"}', "line 1: field 'headers' is neither an object nor a list"),
        (
            "ndjson",
            b'{"value": 1, "headers": [{"key": "h"}]}',
            "line 1: field 'headers' is neither an object nor a list",
        ),
        ("ndjson", b'[{"value": 1},\n{"value": 2}]', "line 1 is not JSON .*one object in each line.*jq -c"),
        ("ndjson", b'{\n"value": 1\n}', "line 1 is not JSON .*one object in each line.*jq -c"),
        (
            "ndjson",
            b'{"value": 1, "headers": [{"key": 1, "value": ""}]}',
            "line 1: .* has the header key '1', which is no text",
        ),
        (
            "ndjson",
            b'{"value": 1, "headers": {"\\ud800": ""}}',
            "line 1: field 'headers' has the header key .*, which is not UTF-8",
        ),
        ("ndjson", b'{"value": 1, "headers": [{"key": "\\ud800", "value": ""}]}', "which is not UTF-8"),
        ("ndjson", b'{"value": 1, "headers": ["\\ud800", ""]}', "which is not UTF-8"),
        ("csv", b"a,b\n1\n", "line 2 has 1 fields; the header in line 1 names 2"),
        ("csv", b"a,a\n", "names a column twice"),
        ("csv", b"a\n\xff\n", "line 2 is not UTF-8"),
        ("csv", b'a\n"open', "line 2 is not CSV"),
    ],
)
def test_bad_rows_say_what_and_where(form: str, data: bytes, said: str) -> None:
    """Whatever is wrong with a row, the error names the line and the reason, and is short."""
    with pytest.raises(RowError, match=said) as caught:
        rows(data, form)
    assert len(str(caught.value)) < 300


def test_lines_have_no_fields() -> None:
    """A key that was asked for is not left out without a word."""
    with pytest.raises(RowError, match="lines of text have no fields"):
        rows(b"a\n", "lines", Fields(key="id"))


@given(st.binary(max_size=80), st.sampled_from(["ndjson", "csv", "lines"]))
def test_any_bytes_give_rows_or_a_row_error(data: bytes, form: str) -> None:
    """No input ends in anything but rows or a RowError."""
    try:
        rows(data, form)
    except RowError:
        pass
