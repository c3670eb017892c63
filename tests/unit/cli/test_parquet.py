"""What `replog export` writes, `replog import` takes: times, sizes, columns; and Parquet that others wrote, in
bounded memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import pyreplog
from pyreplog.cli.parquet import _GROUP_SIZE, _rows_at_once
from tests.unit.cli.support import Replog


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_parquet_stay_as_they_are(replog: Replog, tmp_path: Path, unit: str) -> None:
    """Whatever the unit in which another tool saved an export: a record without a time has none, and the others
    have theirs."""
    with pyreplog.open_log(tmp_path / "in", durability="os") as log:
        log.append_many([b"a", b"b", b"c"], timestamps=[1_717_200_000_000, -1, 0])
    assert replog("export", tmp_path / "in", tmp_path / "all.parquet").code == 0
    table = parquet.read_table(tmp_path / "all.parquet")
    where = table.schema.get_field_index("timestamp")
    for name in ("timestamp_type", "timestampType"):  # the second as Spark has it
        saved = table.set_column(where, "timestamp", table["timestamp"].cast(pa.timestamp(unit, "UTC")))
        kind = saved.schema.get_field_index("timestamp_type")
        parquet.write_table(saved.set_column(kind, name, saved["timestamp_type"]), tmp_path / f"{name}.parquet")
        assert replog("import", tmp_path / name, tmp_path / f"{name}.parquet").code == 0
        with pyreplog.open_log(tmp_path / name, "r") as log:
            assert [record.timestamp for record in log] == [1_717_200_000_000, -1, 0]


@pytest.mark.parametrize(("value", "unit"), [(-1, "s"), (-1, "ms"), (-500, "us"), (-1, "ns"), (-86_400_000, "ms")])
@pytest.mark.parametrize("exported", [False, True])
def test_a_time_before_1970_is_refused(replog: Replog, tmp_path: Path, value: int, unit: str, exported: bool) -> None:
    """Also the last millisecond before, which is the number -1; only that number means no time."""
    columns: dict[str, Any] = {"value": ["ok", "x"], "timestamp": pa.array([1, value], pa.timestamp(unit, "UTC"))}
    if exported:
        columns["timestamp_type"] = pa.array([0, 0], pa.int8())
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    done = replog("import", tmp_path / "log", tmp_path / "rows.parquet")
    assert done.code == 1
    assert "row 2: " in done.err
    assert "before 1970" in done.err


def test_nanoseconds_of_parquet_keep_their_digits(replog: Replog, tmp_path: Path) -> None:
    """A time in ns keeps all nine digits in the text of an event, at any depth, and where the time itself is the
    key."""
    moment = 1_700_000_000_123_456_789
    columns: dict[str, Any] = {
        "at": pa.array([moment, None], pa.timestamp("ns", "UTC")),
        "local": pa.array([moment, moment + 211], pa.timestamp("ns")),
        "clock": pa.array([1, 86_399_999_999_999], pa.time64("ns")),
        "within": pa.array(
            [[{"at": moment}], None], pa.list_(pa.struct([("at", pa.timestamp("ns", "Europe/Berlin"))]))
        ),
    }
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet", version="2.6")
    assert replog("import", tmp_path / "log", tmp_path / "rows.parquet", "--key-field", "clock").code == 0
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert [(record.key, json.loads(record.value or b"")) for record in log] == [
            (
                b"00:00:00.000000001",
                {
                    "at": "2023-11-14T22:13:20.123456789+00:00",
                    "local": "2023-11-14T22:13:20.123456789",
                    "clock": "00:00:00.000000001",
                    "within": [{"at": "2023-11-14T23:13:20.123456789+01:00"}],
                },
            ),
            (
                b"23:59:59.999999999",
                {"at": None, "local": "2023-11-14T22:13:20.123457", "clock": "23:59:59.999999999", "within": None},
            ),
        ]


def test_times_that_python_lacks_do_not_stop_an_import(replog: Replog, tmp_path: Path) -> None:
    """A date, time or duration beyond the year 9999 that is only part of an event is the number that Parquet holds,
    as text."""
    columns: dict[str, Any] = {
        "at": pa.array([0, 253_402_300_800_000], pa.timestamp("ms", "UTC")),
        "day": pa.array([0, 10_000_000], pa.date32()),
    }
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    assert replog("import", tmp_path / "log", tmp_path / "rows.parquet").code == 0
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert [json.loads(record.value or b"") for record in log] == [
            {"at": "1970-01-01T00:00:00+00:00", "day": "1970-01-01"},
            {"at": "253402300800000", "day": "10000000"},
        ]


@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("exported", [False, True])
def test_a_record_time_without_a_zone_is_refused(replog: Replog, tmp_path: Path, unit: str, exported: bool) -> None:
    """The error names the column and the row, and says how to give the column a zone; the rows before it are in the
    log."""
    columns: dict[str, Any] = {"value": ["a", "b"], "timestamp": pa.array([None, 1_700_000_000], pa.timestamp(unit))}
    if exported:
        columns["timestamp_type"] = pa.array([0, 0], pa.int8())
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet", version="2.6")
    events = tmp_path / "events.parquet"
    parquet.write_table(
        pa.table({"n": [1], "at": pa.array([1_700_000_000], pa.timestamp(unit))}), events, version="2.6"
    )
    for words in (("rows.parquet",), ("events.parquet", "--timestamp-field", "at")):
        done = replog("import", tmp_path / "log", tmp_path / words[0], *words[1:])
        assert done.code == 1
        row, column = (2, "timestamp") if words[0] == "rows.parquet" else (1, "at")
        assert f"{words[0]}: row {row}: column {column!r} is " in done.err
        assert "has no time zone" in done.err
        assert "tz_localize" in done.err
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert [record.value for record in log] == [b"a"]


def test_the_old_type_of_times_is_in_utc(replog: Replog, tmp_path: Path) -> None:
    """INT96, as Spark writes it by default, has no zone in the file: it is UTC, to the microsecond, in every
    year."""
    moments = [1_700_000_000_123_456, 253_370_764_800_000_000]
    table = pa.table({"n": [1, 2], "at": pa.array(moments, pa.timestamp("us"))})
    parquet.write_table(table, tmp_path / "rows.parquet", use_deprecated_int96_timestamps=True)
    assert replog("import", tmp_path / "log", tmp_path / "rows.parquet", "--timestamp-field", "at").code == 0
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        found = [(record.timestamp, json.loads(record.value or b"")["at"]) for record in log]
    assert found == [
        (1_700_000_000_123, "2023-11-14T22:13:20.123456+00:00"),
        (253_370_764_800_000, "9999-01-01T00:00:00+00:00"),
    ]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "int64"])
def test_no_time_stays_no_time_through_parquet(replog: Replog, tmp_path: Path, unit: str) -> None:
    """A null in the record's time is no time in any unit, with or without the other columns of an export; no such
    column means now."""
    kind = pa.int64() if unit == "int64" else pa.timestamp(unit, "UTC")
    table = pa.table({"key": ["k", "k"], "value": ["a", "b"], "timestamp": pa.array([None, 1], kind)})
    parquet.write_table(table, tmp_path / "rows.parquet", version="2.6")
    assert replog("import", tmp_path / "log", tmp_path / "rows.parquet").code == 0
    parquet.write_table(table.drop_columns("timestamp"), tmp_path / "rest.parquet")
    assert replog("import", tmp_path / "log", tmp_path / "rest.parquet").code == 0
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        times = [record.timestamp for record in log]
    assert (times[0], times[1] >= 0) == (-1, True)
    assert min(times[2:]) > 1_700_000_000_000


def test_a_flipped_bit_in_an_export_is_found(replog: Replog, tmp_path: Path) -> None:
    """Export writes the checksum of each page and import verifies it: a flipped bit is an error with the file and
    the row group."""
    with pyreplog.open_log(tmp_path / "in", durability="os") as log:
        log.append_many([os.urandom(100) for _ in range(100)])
    file = tmp_path / "all.parquet"
    assert replog("export", tmp_path / "in", file).code == 0
    data = bytearray(file.read_bytes())
    column = parquet.ParquetFile(file).metadata.row_group(0).column(6)
    assert column.path_in_schema == "value"
    data[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size // 2] ^= 1
    file.write_bytes(data)
    done = replog("import", tmp_path / "out", file)
    assert done.code == 1
    assert f"{file}: row group 0 of 1 (from 0) is damaged: " in done.err
    assert "CRC" in done.err


@pytest.mark.parametrize("where", ["page", "header", "footer"])
def test_damage_in_parquet_names_the_file(replog: Replog, tmp_path: Path, where: str) -> None:
    """Damaged pages of another tool's file, also of its footer, are an error with the file, and the row group if it
    is known."""
    file = tmp_path / "rows.parquet"
    parquet.write_table(
        pa.table({"value": [os.urandom(100).hex() for _ in range(1000)]}),
        file,
        compression="snappy",
        use_dictionary=False,
    )
    column = parquet.ParquetFile(file).metadata.row_group(0).column(0)
    data = bytearray(file.read_bytes())
    first, size = {
        "header": (column.data_page_offset, 8),
        "page": (column.data_page_offset + 100, 3000),
        "footer": (len(data) - 60, 40),
    }[where]
    data[first : first + size] = b"\xff" * size
    file.write_bytes(data)
    done = replog("import", tmp_path / "log", file)
    assert done.code == 1
    assert (
        f"{file}: {'not Parquet, or damaged: ' if where == 'footer' else 'row group 0 of 1 (from 0) is damaged: '}"
        in done.err
    )


def test_minus_one_is_no_time_only_as_a_number(replog: Replog, tmp_path: Path) -> None:
    """In NDJSON, as `replog cat` prints it; the moment that is -1 ms is refused as any other before 1970."""
    rows = tmp_path / "rows.ndjson"
    rows.write_text('{"value": "a", "timestamp": -1}\n{"value": "b", "timestamp": "1969-12-31T23:59:59.999Z"}\n')
    done = replog("import", tmp_path / "log", rows)
    assert done.code == 1
    assert "line 2: '1969-12-31T23:59:59.999Z' is before 1970" in done.err
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert [(record.value, record.timestamp) for record in log] == [(b"a", -1)]


def test_what_export_writes_import_takes(replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of NDJSON may be six times as long as its record, which the topic takes; what no record of it could be
    is still an error."""
    monkeypatch.setattr("pyreplog.cli.rows.LINE_SIZE_MAX", 1 << 20)
    value = bytes(300_000)
    for name in ("in", "out"):
        with pyreplog.open_log(tmp_path / name, durability="os", config={"max.message.bytes": 400_000}) as log:
            if name == "in":
                log.append(value)
    assert replog("export", tmp_path / "in", tmp_path / "all.ndjson").code == 0
    assert (tmp_path / "all.ndjson").stat().st_size > 1 << 20
    assert replog("import", tmp_path / "out", tmp_path / "all.ndjson").code == 0
    with pyreplog.open_log(tmp_path / "out", "r") as log:
        assert [record.value for record in log] == [value]
    (tmp_path / "endless.ndjson").write_bytes(b"x" * (8 << 20))
    done = replog("import", tmp_path / "out", tmp_path / "endless.ndjson")
    assert done.code == 1
    assert "line 1 is longer than 3448576 bytes" in done.err


def test_columns_of_a_frame_of_spark(replog: Replog, tmp_path: Path) -> None:
    """What Spark's source gives of a record, saved as Parquet: the log gives its own topic, offset, epoch and kind
    of time."""
    columns: dict[str, Any] = {
        "key": [b"k"],
        "value": [b"v"],
        "topic": ["t"],
        "partition": pa.array([0], pa.int32()),
        "offset": [5],
        "timestamp": pa.array([1_717_200_000_000_123], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0], pa.int32()),
        "leaderEpoch": pa.array([3], pa.int32()),
    }
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    assert replog("import", tmp_path / "log", tmp_path / "rows.parquet").code == 0
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert [(record.offset, record.key, record.value, record.timestamp) for record in log] == [
            (0, b"k", b"v", 1_717_200_000_000)
        ]


def test_rows_of_parquet_are_held_by_their_size(tmp_path: Path) -> None:
    """Large rows are held one by one, or a few; a value that is repeated counts, although the file has it once;
    small rows come by the hundred."""
    for values, wanted in (
        ([b"%08d" % number + bytes(900_000) for number in range(20)], range(1, 12)),
        ([b"x" * 900_000] * 100, range(1, 70)),
        ([b"%d" % number for number in range(10_000)], range(100, 1000)),
    ):
        parquet.write_table(
            pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "rows.parquet", compression="zstd"
        )
        assert _rows_at_once(parquet.ParquetFile(tmp_path / "rows.parquet").metadata.row_group(0)) in wanted


def test_row_groups_are_gathered_by_bytes(replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the batches of a scan and over partitions, up to a size that is of use to those who read by row
    group."""
    assert 32 << 20 <= _GROUP_SIZE <= 128 << 20
    monkeypatch.setattr("pyreplog.cli.parquet._GROUP_SIZE", 3 << 20)
    for partition in range(2):
        with pyreplog.open_log(tmp_path / "in", topic="t", partition=partition, durability="os") as log:
            for _ in range(5):
                log.append_many([b"%01000d" % number for number in range(500)])
    assert replog("export", tmp_path / "in", tmp_path / "all.parquet").code == 0
    metadata = parquet.ParquetFile(tmp_path / "all.parquet").metadata
    assert metadata.num_rows == 5000
    assert metadata.num_row_groups == 2
