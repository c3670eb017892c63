"""What `replog import` makes of files as other programs write them: times, separators, encodings, compression,
pipes."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import pyreplog
from tests.unit.cli.support import Replog


def test_a_time_beyond_the_year_9999_names_the_line_and_the_unit(replog: Replog, tmp_path: Path) -> None:
    """The rows before the line are appended, in NDJSON and CSV, and a new log is not made for the first row."""
    nanoseconds = 1_764_255_865_000_000_000
    files = {
        "ndjson": f'{{"value":"a","timestamp":1}}\n{{"value":"b","timestamp":{nanoseconds}}}\n',
        "csv": f"value,timestamp\na,1\nb,{nanoseconds}\n",
    }
    said = rf"line \d: .*timestamp {nanoseconds} is beyond 9999-12-31; in nanoseconds \(ns\) it would be 2025-11-27"
    for form, text in files.items():
        (tmp_path / f"rows.{form}").write_text(text)
        done = replog("import", tmp_path / form, tmp_path / f"rows.{form}")
        assert done.code == 1
        assert re.search(said, done.err)
        assert [row["value"] for row in replog("cat", tmp_path / form).objects()] == ["a"]
    (tmp_path / "one.ndjson").write_text(f'{{"value":"b","timestamp":{nanoseconds}}}\n')
    assert replog("import", tmp_path / "none", tmp_path / "one.ndjson").code == 1
    assert not (tmp_path / "none").exists()


def imported(replog: Replog, tmp_path: Path, name: str, content: bytes, *options: object) -> list[Any]:
    """The records of a new log into which a file of that name and content was imported."""
    (tmp_path / name).write_bytes(content)
    log = tmp_path / "logs" / f"{len(list((tmp_path / 'logs').glob('*')))}"
    log.parent.mkdir(exist_ok=True)
    done = replog("import", log, tmp_path / name, *options)
    assert done.code == 0, done.err
    return replog("cat", log).objects()


def refused(replog: Replog, tmp_path: Path, name: str, content: bytes, *options: object) -> str:
    """What is said of a file of that name and content, of which no log is made."""
    (tmp_path / name).write_bytes(content)
    done = replog("import", tmp_path / "refused", tmp_path / name, *options)
    assert done.code in (1, 2)
    assert not (tmp_path / "refused").exists()
    return done.err


TWO = [{"id": "1", "price": "2"}, {"id": "2", "price": "3"}]


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", b"id,price\n1,2\n2,3\n", []),
        ("b.csv", b"id;price\n1;2\n2;3\n", ["--delimiter", ";"]),
        ("c.csv", b"id\tprice\r\n1\t2\r\n2\t3\r\n", ["--delimiter", r"\t"]),
        ("d.csv", b"sep=;\r\nid;price\r\n1;2\r\n2;3\r\n", []),
        ("i.csv", b'"sep=;"\r\nid;price\r\n1;2\r\n2;3\r\n', []),
        ("e.csv", b"\xef\xbb\xbfsep=\t\nid\tprice\n1\t2\n2\t3\n", ["--delimiter", "tab"]),
        ("f.csv.gz", gzip.compress(b"id,price\n1,2\n2,3\n", mtime=0), []),
        ("g.CSV.GZ", gzip.compress(b"sep=;\nid;price\n", mtime=0) + gzip.compress(b"1;2\n2;3\n", mtime=0), []),
        ("h.csv", "\ufeffid,price\n1,2\n2,3\n".encode(), ["--encoding", "UTF8"]),
    ],
)
def test_csv_as_other_programs_write_it(
    replog: Replog, tmp_path: Path, name: str, content: bytes, options: list[str]
) -> None:
    """The delimiter is the one of the option or of a first line ``sep=``; what gzip packed is unpacked, also in
    several members."""
    assert [json.loads(record["value"]) for record in imported(replog, tmp_path, name, content, *options)] == TWO


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        (
            "a.csv",
            b"id;price\n1;2\n",
            [],
            "line 1 names one column, 'id;price': if a semicolon separates the columns, say --delimiter ';'",
        ),
        (
            "b.csv",
            b"id\tprice\n1\t2\n",
            [],
            r"if a tab separates the columns, say --delimiter '\t'; if it is one column, say --delimiter ','",
        ),
        (
            "c.csv",
            b"sep=;\nid;price\n1;2\n",
            ["--delimiter", ","],
            "line 1 says that ';' separates the columns, and --delimiter says ','",
        ),
        ("d.csv", b"sep=;\nid;id\n1;2\n", [], "line 2 names a column twice"),
        ("e.csv", b"id\n1\n", ["--delimiter", "ab"], "'ab' is not one character that can separate columns"),
        ("f.ndjson", b'{"a":1}\n', ["--delimiter", ";"], "--delimiter is for CSV, and this is read as ndjson"),
        ("g.txt", b"a\n", ["--encoding", "latin-1"], "--encoding is for CSV and NDJSON, and this is read as lines"),
        ("h.csv", b"id\n1\n", ["--encoding", "latin-9000"], "'latin-9000' is no encoding of text"),
        ("i.csv", b"id\n1\n", ["--encoding", "utf-16"], "convert it first, with `iconv -f utf-16 -t utf-8`"),
        ("j.csv", b"id\n\xe9\n", [], "line 2 is not UTF-8: b'\\xe9'; --encoding names another"),
        ("k.csv.gz", b"id\n1\n", [], "k.csv.gz: not gzip, or damaged"),
        (
            "m.csv",
            b"id,price\r1,2\r2,3\r",
            [],
            r"a carriage return alone; if the file ends its lines so, as old Macs wrote them, say `tr '\r' '\n'",
        ),
        (
            "n.csv",
            b'id,price\n"1,2\n2,3\n',
            [],
            (
                "line 2 is not CSV: the record that begins there has a quote that is left open up to line 3, the end of"
                " the file"
            ),
        ),
        (
            "o.csv",
            b'"id,price\n1,2\n',
            [],
            "line 1 is not CSV: the record that begins there has a quote that is left open up to line 2",
        ),
        ("p.csv", b'id,price\n"1\n"2,3\n', [], "the record began in line 2, where a quote may be left open"),
        (
            "s.csv",
            b'id,price\n"1,2\n2",3,4\n',
            [],
            "line 3 has 3 fields; the header in line 1 names 2; the record began in line 2",
        ),
        ("q.csv", gzip.compress(b"id\n1\n", mtime=0), [], "q.csv: it is gzip: unpack it into a pipe"),
        ("r.tsv", b"id\tprice\n1\t2\n", [], r"for CSV with tabs say --format csv --delimiter '\t'"),
        ("l.csv.gz", gzip.compress(b"id\n1\n", mtime=0), ["--resume"], "l.csv.gz is packed: unpack it with `gunzip -k"),
    ],
)
def test_what_is_no_csv_says_what_to_do(
    replog: Replog, tmp_path: Path, name: str, content: bytes, options: list[str], words: str
) -> None:
    """Nothing is guessed from the rows, and no row becomes one field without a word."""
    said = refused(replog, tmp_path, name, content, *options)
    assert words in said


def test_a_packed_file_that_is_cut_short_keeps_the_rows_before_its_end(replog: Replog, tmp_path: Path) -> None:
    """The import fails, says so, and says how many rows it took."""
    packed = gzip.compress(b"id\n" + b"".join(b"%d\n" % (number * 7919 % 100_003) for number in range(100_000)))
    (tmp_path / "a.csv.gz").write_bytes(packed[: len(packed) // 2])
    done = replog("import", tmp_path / "log", tmp_path / "a.csv.gz", "--durability", "os")
    assert done.code == 1
    assert "a.csv.gz: not gzip, or damaged" in done.err
    assert re.match(r"appended [1-9]\d,\d\d\d records", done.out)


def test_one_column_with_a_semicolon_is_taken_if_the_comma_is_asked_for(replog: Replog, tmp_path: Path) -> None:
    """The advice of the refusal works."""
    assert (
        imported(replog, tmp_path, "a.csv", b"id;price\n1;2\n", "--delimiter", ",")[0]["value"] == '{"id;price":"1;2"}'
    )


def test_other_encodings(replog: Replog, tmp_path: Path) -> None:
    """``--encoding`` reads CSV and NDJSON; the values are UTF-8."""
    (record,) = imported(replog, tmp_path, "a.csv", "name\ncafé\n".encode("latin-1"), "--encoding", "latin-1")
    assert record["value"] == '{"name":"café"}'
    (record,) = imported(replog, tmp_path, "b.ndjson", '{"name":"5 €"}\n'.encode("cp1252"), "--encoding", "cp1252")
    assert record["value"] == '{"name":"5 €"}'


def test_long_integers_of_json_stay_as_they_are_written(replog: Replog, tmp_path: Path) -> None:
    """In the row as a whole, as a value, as a key and in a list; what is no JSON beside one is refused as ever."""
    digits = "9" * 5000
    assert imported(replog, tmp_path, "a.ndjson", f'{{"id":-{digits}}}\n'.encode())[0]["value"] == f'{{"id":-{digits}}}'
    options = ("--value-field", "value", "--key-field", "id")
    row = f'{{"id":{digits},"value":[{digits},7,1.50]}}\n'
    (record,) = imported(replog, tmp_path, "b.ndjson", row.encode(), *options)
    assert (record["key"], record["value"]) == (digits, f"[{digits},7,1.50]")
    assert "NaN is not JSON" in refused(replog, tmp_path, "c.ndjson", f'{{"id":{digits},"x":NaN}}\n'.encode())
    assert "not a partition" in refused(
        replog, tmp_path, "d.ndjson", f'{{"value":"a","partition":{digits}}}\n'.encode()
    )


@pytest.mark.parametrize("text", ["1700000000000.0", "1700000000000.", "1.7e12", "1.7E+12", "1700000000000"])
def test_whole_floats_are_times(replog: Replog, tmp_path: Path, text: str) -> None:
    """pandas writes the integers of a column with gaps so, in NDJSON, CSV and Parquet."""
    assert (
        imported(replog, tmp_path, "a.csv", f"value,timestamp\na,{text}\n".encode())[0]["timestamp"]
        == 1_700_000_000_000
    )
    if not text.endswith("."):
        row = f'{{"value":"a","timestamp":{text}}}\n'
        assert imported(replog, tmp_path, "a.ndjson", row.encode())[0]["timestamp"] == 1_700_000_000_000
    parquet.write_table(pa.table({"value": ["a"], "timestamp": [float(text)]}), tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    assert imported(replog, tmp_path, "a.parquet", content)[0]["timestamp"] == 1_700_000_000_000


@pytest.mark.parametrize("text", ["1700000000000.5", "1e99", "-1.0", "1e999999999", "nan"])
def test_other_floats_are_no_times(replog: Replog, tmp_path: Path, text: str) -> None:
    """A time is a whole number of ms."""
    said = refused(replog, tmp_path, "a.csv", f"value,timestamp\na,{text}\n".encode())
    assert "not a time" in said or "beyond 9999" in said or "outside a record's range" in said


@pytest.mark.parametrize("form", ["csv", "ndjson", "txt"])
def test_an_import_of_nothing_leaves_a_log_of_no_records(replog: Replog, tmp_path: Path, form: str) -> None:
    """It reads as 0 records, by the command and by the library."""
    content = {"csv": b"id,price\n"}.get(form, b"")
    assert imported(replog, tmp_path, f"a.{form}", content) == []
    with pyreplog.open_log(tmp_path / "logs" / "0", "r") as log:
        assert list(log.read()) == []
        assert pa.table(log.scan()).num_rows == 0


def test_parquet_through_a_pipe_is_refused_by_name(replog: Replog, tmp_path: Path) -> None:
    """Its end is read first, which a pipe cannot give."""
    os.mkfifo(tmp_path / "rows.parquet")
    descriptor = os.open(tmp_path / "rows.parquet", os.O_RDWR)  # so that opening it waits for no writer
    try:
        done = replog("import", tmp_path / "log", tmp_path / "rows.parquet")
    finally:
        os.close(descriptor)
    assert done.code == 1
    assert "rows.parquet: Parquet is read from its end, and this is a pipe: write it to a file first" in done.err
    assert not (tmp_path / "log").exists()


def test_append_takes_the_same(replog: Replog, tmp_path: Path) -> None:
    """``replog append`` has the options of text, too."""
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress("name;x\ncafé;1\n".encode("latin-1")))
    done = replog("append", tmp_path / "log", tmp_path / "a.csv.gz", "--delimiter", ";", "--encoding", "latin-1")
    assert done.code == 0, done.err
    assert [row["value"] for row in replog("cat", tmp_path / "log").objects()] == ['{"name":"café","x":"1"}']
