"""Sound batches of other programs that ours would not write: every face reads all of their records."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

import pyreplog
from tests.cli.support import Replog
from tests.oracle import bare


def test_header_names_that_are_not_utf8_are_shown_with_replacements(replog: Replog, tmp_path: Path) -> None:
    """Records, scan, ``cat`` and ``export`` show U+FFFD for the wrong byte, ``verify`` notes it, and a repaired copy has the same bytes."""
    odd = bare.record(0, b"odd", [("café".encode("latin-1"), b"1"), (b"", b"2")])
    data = [bare.batch(0, [bare.record(0, b"before")]), bare.batch(1, [odd]), bare.batch(2, [bare.record(0, b"behind")])]
    folder = bare.folder(tmp_path, data)
    headers = [[], [("caf\ufffd", b"1"), ("", b"2")], []]
    structs = [[{"key": name, "value": value} for name, value in row] for row in headers]
    with pyreplog.open_log(folder, "r") as log:
        assert [list(record.headers) for record in log.read()] == headers
        assert pa.table(log.scan(["headers"])).to_pydict()["headers"] == structs
    shown = replog("cat", folder).objects()[1]["headers"]
    assert shown == [{"key": "caf\ufffd", "value": "1"}, {"key": "", "value": "2"}]
    assert replog("export", folder, tmp_path / "out.ndjson").code == 0
    assert json.loads((tmp_path / "out.ndjson").read_text().splitlines()[1])["headers"][0]["key"] == "caf\ufffd"
    done = replog("verify", folder)
    assert (done.code, "not UTF-8; readers show U+FFFD" in done.out) == (0, True)
    assert replog("repair", folder, "--to", tmp_path / "saved", "--yes").code == 0
    assert [path.read_bytes() for path in (tmp_path / "saved").rglob(f"{0:020}.log")] == [b"".join(data)]
