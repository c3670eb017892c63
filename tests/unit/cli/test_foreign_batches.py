"""Sound batches of other programs that ours would not write: every face reads all of their records."""

from __future__ import annotations

import asyncio
import json
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import pyreplog
import pyreplog.aio
from tests.oracle import bare
from tests.unit.cli.support import Replog


def test_header_names_that_are_not_utf8_are_shown_with_replacements(replog: Replog, tmp_path: Path) -> None:
    """Records, scan, ``cat`` and ``export`` show U+FFFD for the wrong byte, ``verify`` notes it, and a repaired
    copy has the same bytes."""
    odd = bare.record(0, b"odd", [("café".encode("latin-1"), b"1"), (b"", b"2")])
    data = [
        bare.batch(0, [bare.record(0, b"before")]),
        bare.batch(1, [odd]),
        bare.batch(2, [bare.record(0, b"behind")]),
    ]
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


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_is_large_when_unpacked_is_read_in_parts(replog: Replog, tmp_path: Path, codec: str) -> None:
    """``read``, scan, ``cat``, ``export`` and a search by time give all of its records, and ``verify`` and
    ``repair`` call it sound."""
    count, value = 9_000, b"x" * 2_000
    large = bare.batch(1, [bare.record(delta, value) for delta in range(count)], codec=codec)
    folder = bare.folder(
        tmp_path,
        [bare.batch(0, [bare.record(0, b"before")]), large, bare.batch(count + 1, [bare.record(0, b"behind")])],
    )
    with pyreplog.open_log(folder, "r") as log:
        assert [record.offset for record in log.read()] == list(range(count + 2))
        assert [record.value for record in log.read(count, count + 2)] == [value, b"behind"]
        assert log.seek(timestamp=bare.TIME) == 0
        for part in log.scan(["offset"]).batches():
            assert part.row_count <= 32768
        assert pa.table(log.scan(["offset"], start=5000, end=5003)).to_pydict() == {"offset": [5000, 5001, 5002]}
        assert pa.table(log.scan(["offset"], start_timestamp=bare.TIME))["offset"].to_pylist() == list(range(count + 2))
    assert len(replog("cat", "--values", "--start", count - 10, folder).out.splitlines()) == 12
    assert replog("export", folder, tmp_path / "out.parquet").code == 0
    assert replog("verify", folder).code == 0
    assert replog("repair", folder, "--to", tmp_path / "saved", "--yes").code == 0


def test_a_batch_above_the_limit_is_refused_and_is_no_damage(replog: Replog, tmp_path: Path) -> None:
    """Above ``max_batch_bytes`` each face names offset, limit and setting; ``verify`` says that it did not look
    into it, and exits 0."""
    first = bare.batch(0, [bare.record(0, b"before")])
    folder = bare.folder(tmp_path, [first, bare.batch(1, [bare.record(0, bytes(5000))], codec="zstd")])
    text = "the batch at offset 1 .*4000.*max_batch_bytes"
    with pyreplog.open_log(folder, "r", max_batch_bytes=4000) as log:
        for look in (
            lambda: list(log.read()),
            lambda: list(log),
            lambda: list(log.scan().batches()),
            lambda: list(log.read(skip_damaged=True)),
        ):
            with pytest.raises(pyreplog.BatchTooLargeError, match=text) as caught:
                look()
            assert not isinstance(caught.value, pyreplog.CorruptError)
            assert (caught.value.offset, caught.value.limit) == (1, 4000)
            place = (str(folder / f"{0:020}.log"), len(first), "orders-0")
            assert (caught.value.file, caught.value.position, caught.value.partition) == place
    for command in (["cat"], ["tail"], ["export", folder, "-"]):
        done = replog(command[0], "--max-batch-bytes", 4000, *(command[1:] or [folder]))
        assert (done.code, "the batch at offset 1" in done.err) == (1, True)
        assert "--max-batch-bytes" in done.err
        assert f"at byte {len(first)}" in done.err
        assert "before" in done.out or command == ["tail"]
    done = replog("verify", "--max-batch-bytes", 4000, folder)
    assert (done.code, "not looked into: it takes more than 4000 bytes" in done.out) == (0, True)
    with pytest.raises(pyreplog.ConfigError, match="max_batch_bytes is 0"):
        pyreplog.open_log(folder, "r", max_batch_bytes=0)


def damaged(tmp_path: Path) -> tuple[Path, list[int], list[str]]:
    """A broker's folder with six batches of two records, of which the third has a wrong checksum and the fifth a
    wrong record count; the offsets that can be read, and the lines about those that cannot."""
    batches = [
        bytearray(bare.batch(2 * number, [bare.record(0, b"%d" % number), bare.record(1, b"-")])) for number in range(6)
    ]
    batches[2][-1] ^= 1
    batches[4] = bytearray(bare.batch(8, [bare.record(0, b"4")], count=2))
    root = tmp_path / "broker"
    folder = bare.folder(root, map(bytes, batches))
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (root / name).write_text("0\n1\norders 0 12\n")
    size = len(batches[0])
    place = f"in {folder}/{0:020}.log at byte"
    return (
        root,
        [0, 1, 2, 3, 6, 7, 10, 11],
        [
            f"left out offsets 4 to 5 of orders-0: checksum mismatch (CRC-32C) {place} {2 * size}",
            f"left out offsets 8 to 9 of orders-0: record count contradicts the records {place} {4 * size}",
        ],
    )


def test_damage_is_skipped_only_if_asked_for_and_never_in_silence(replog: Replog, tmp_path: Path) -> None:
    """Without the flag ``cat`` and ``export`` end at the damage; with it they give what is behind, tell each range,
    and exit with 3."""
    folder, offsets, told = damaged(tmp_path)
    assert (done := replog("cat", folder)).code == 3
    assert [line["offset"] for line in done.objects()] == offsets[:4]
    done = replog("cat", "--skip-damaged", folder)
    assert ([line["offset"] for line in done.objects()], done.code) == (offsets, 3)
    for text in told:
        assert f"replog cat: {text}\n" in done.err
    assert len(done.err.splitlines()) == len(told)
    assert len(replog("cat", "--skip-damaged", "-n", 5, folder).objects()) == 5
    assert [
        line["offset"] for line in replog("cat", "--skip-damaged", "--start-timestamp", bare.TIME, folder).objects()
    ] == offsets
    ranges = [{"topic": "orders", "partition": 0, "start": start, "end": start + 2} for start in (4, 8)]
    for name in ("out.ndjson", "out.parquet"):
        assert replog("export", folder, tmp_path / name).code == 3
        assert not (tmp_path / name).exists()
        done = replog("export", "--skip-damaged", "--json", folder, tmp_path / name)
        assert (done.code, done.objects()[0]["left_out"], done.objects()[0]["records"]) == (3, ranges, 8)
        assert told[0] in done.err
        assert "reading stops" not in done.err
        assert (tmp_path / name).exists()
    sound = bare.folder(tmp_path / "sound", [bare.batch(0, [bare.record(0, b"v")])])
    assert replog("cat", "--skip-damaged", sound).code == 0


def test_iteration_skips_damage_and_tells_each_range(tmp_path: Path) -> None:
    """``read``, ``scan`` and ``follow`` warn of each range that ``skip_damaged=True`` leaves out, or call the
    function given instead."""
    folder, offsets, _ = damaged(tmp_path)
    with pyreplog.open_log(folder, "r") as log:
        ranges: list[pyreplog.CorruptLogError] = []
        assert [record.offset for record in log.read(skip_damaged=ranges.append)] == offsets
        assert [(error.start, error.end) for error in ranges] == [(4, 6), (8, 10)]
        with pytest.warns(pyreplog.DamagedRecordsWarning, match="left out: .*offsets [48] to [59]") as warned:
            assert [record.offset for record in log.read(skip_damaged=True)] == offsets
        assert [one.message.error.offset for one in warned] == [4, 8]  # type: ignore[union-attr]
        ranges = []
        assert pa.table(log.scan(["offset"], skip_damaged=ranges.append))["offset"].to_pylist() == offsets
        assert [record.offset for record in log.follow(timeout=0, skip_damaged=ranges.append)] == offsets
        assert [record.offset for record in log.read(5, 9, start_timestamp=0, skip_damaged=ranges.append)] == [6, 7]
        assert len(ranges) == 6
        with pytest.raises(pyreplog.CorruptLogError):
            list(log.read())
        with pytest.raises(pyreplog.ConfigError, match="skip_damaged is 1"):
            log.read(skip_damaged=1)  # type: ignore[arg-type]


def test_each_pass_tells_its_ranges_at_the_line_that_reads(tmp_path: Path) -> None:
    """A scan that is read twice tells each range twice, and Python's default filter shows the warning for each line
    that reads."""
    folder, offsets, _ = damaged(tmp_path)
    ranges: list[pyreplog.CorruptLogError] = []
    with pyreplog.open_log(folder, "r") as log, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        scan = log.scan(skip_damaged=ranges.append)
        for _ in range(2):
            assert pa.table(scan).num_rows == len(offsets)
        assert [error.start for error in ranges] == [4, 8, 4, 8]
        scan = log.scan(skip_damaged=True)
        pa.table(scan)
        pa.table(scan)
        list(log.read(skip_damaged=True))
        list(log.read(skip_damaged=True))
    lines = [(Path(one.filename), one.lineno) for one in caught]
    assert {file for file, _ in lines} == {Path(__file__)}
    assert [lines.count(line) for line in sorted(set(lines))] == [2, 2, 2, 2]


def test_damage_is_not_skipped_among_committed_records(tmp_path: Path, replog: Replog) -> None:
    """A damaged marker hides how a transaction ended: each face refuses ``skip_damaged`` with ``read_committed``
    and says what to do."""
    folder, _, _ = damaged(tmp_path)

    async def read() -> None:
        async with await pyreplog.aio.open_log(folder, "r", isolation="read_committed") as log:
            async for _ in log.read(skip_damaged=True):
                pass

    with pyreplog.open_log(folder, "r", isolation="read_committed") as log:
        for face in (
            lambda: log.read(skip_damaged=True),
            lambda: log.scan(skip_damaged=lambda error: None),
            lambda: log.follow(timeout=0, skip_damaged=True),
            lambda: pyreplog.scan([folder], isolation="read_committed", skip_damaged=True),
            lambda: asyncio.run(read()),
        ):
            with pytest.raises(pyreplog.ConfigError, match="read 'read_uncommitted'"):
                face()
    for command in (("cat", folder), ("export", folder, tmp_path / "out.ndjson")):
        done = replog(command[0], "--skip-damaged", "--isolation", "read_committed", *command[1:])
        assert done.code != 0
        assert "read 'read_uncommitted'" in done.err
        assert not done.out


def test_whole_batches_behind_damage_at_the_end_are_read(replog: Replog, tmp_path: Path) -> None:
    """In a folder without marks damage with whole batches behind it is an error; with ``skip_damaged`` these are
    read."""
    batches = [bytearray(bare.batch(number, [bare.record(0, b"%d" % number)])) for number in range(4)]
    batches[2][-1] ^= 1
    folder = bare.folder(tmp_path, map(bytes, batches))
    done = replog("cat", folder)
    assert ([line["offset"] for line in done.objects()], done.code) == ([0, 1], 3)
    done = replog("cat", "--skip-damaged", folder)
    assert ([line["offset"] for line in done.objects()], done.code) == ([0, 1, 3], 3)
    with pyreplog.open_log(folder, "r") as log:
        with pytest.raises(pyreplog.CorruptLogError):
            list(log.read())
        ranges: list[pyreplog.CorruptLogError] = []
        assert [record.offset for record in log.read(skip_damaged=ranges.append)] == [0, 1, 3]
        assert pa.table(log.scan(["offset"], skip_damaged=ranges.append))["offset"].to_pylist() == [0, 1, 3]
        assert [(error.start, error.end) for error in ranges] == [(2, 3)] * 2
