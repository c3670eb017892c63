"""What a reading command cannot show, it tells of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pyreplog
from pyreplog.cli.main import main


@pytest.mark.parametrize("damage", [b"", b"\x07" * 5000])
def test_bytes_that_are_no_batch_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: bytes) -> None:
    """A bare partition folder with garbage behind its records: the records are printed, and standard error names
    the rest."""
    with pyreplog.open_log(tmp_path / "ev") as log:
        log.append(b"a")
    bare = tmp_path / "ev-0"
    bare.mkdir()
    shutil.copy(tmp_path / "ev" / "ev-0" / "00000000000000000000.log", bare)
    with (bare / "00000000000000000000.log").open("ab") as file:
        file.write(damage)
    assert main(["cat", "--values", str(bare)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "a\n"
    assert ("5000 bytes" in printed.err and "behind offset 1" in printed.err) if damage else not printed.err


def test_damage_among_records_is_told_by_its_offset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It lies below the log's end, with whole records behind it: no line says that bytes behind the end are not
    shown."""
    with pyreplog.open_log(tmp_path / "ev") as log:
        for value in (b"a", b"b", b"c"):
            log.append(value)
    segment = tmp_path / "ev" / "ev-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    assert main(["describe", str(tmp_path / "ev")]) == 0
    said = capsys.readouterr().err
    assert "ev-0 is damaged at offset 1, below its end at 3" in said
    assert "not shown" not in said


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_an_export_of_damage_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    """Whatever the format: exit code 3, the text that `cat` has, and no file."""
    pytest.importorskip("pyarrow")
    with pyreplog.open_log(tmp_path / "ev") as log:
        log.append_many([b"a", b"b"])
    with (tmp_path / "ev" / "ev-0" / "00000000000000000000.log").open("r+b") as file:
        file.seek(70)
        file.write(b"\xff")
    assert main(["export", str(tmp_path / "ev"), str(tmp_path / f"out.{form}")]) == 3
    assert "\nreplog export: checksum mismatch" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["ev"]


@pytest.mark.parametrize("command", ["append", "import"])
def test_what_an_opening_cuts_off_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    """Who writes cuts what is torn: how much, and where it is kept, stands on standard error, of a log and of a
    cluster."""
    rows = tmp_path / "rows.ndjson"
    rows.write_text('{"value": "b"}\n')
    with pyreplog.open_log(tmp_path / "ev") as log:
        log.append(b"a")
    (tmp_path / "ev" / ".kafka_cleanshutdown").unlink()
    with pyreplog.Cluster(tmp_path / "data") as cluster:
        cluster.admin.create_topic("orders")
        for node in cluster.nodes:
            node.kill()
    for path, folder in (("ev", "ev/ev-0"), ("data", "data/node-1/orders-0")):
        with (tmp_path / folder / "00000000000000000000.log").open("ab") as file:
            file.write(b"\x07" * 5000)
        assert main([command, str(tmp_path / path), str(rows)]) == 0
        printed = capsys.readouterr()
        assert printed.out.startswith("appended 1 record")
        (kept,) = (tmp_path / folder).glob("replog.torn-*")
        assert printed.err.startswith("replog: ")
        assert "5000 bytes at its end were no whole batch and were cut off" in printed.err
        assert kept.name in printed.err
