"""What `replog import` makes of files as other programs write them: times, separators, encodings, compression, pipes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.support import Replog


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
