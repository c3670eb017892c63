"""Reading behind damage goes on at the next sound batch, whatever byte of a header is damaged, with an index and
without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pyreplog
from pyreplog.record import RecordBatch

SEGMENT = f"{0:020}.log"
COUNT, SIZE = 120, 10
# Of these only the last two are covered by the checksum.
FIELDS = {
    "base offset": 7,
    "far base offset": 5,
    "length": 11,
    "leader epoch": 13,
    "magic": 16,
    "last offset delta": 26,
    "record": 62,
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A log of many batches of ten records each, and where each batch begins."""
    root = tmp_path_factory.mktemp("resumption") / "t"
    with pyreplog.open_log(root) as log:
        for number in range(COUNT):
            log.append_many([b"%d" % (number * SIZE + record) for record in range(SIZE)])
    data = (root / "t-0" / SEGMENT).read_bytes()
    starts = [0]
    while (end := starts[-1] + RecordBatch(data, starts[-1]).size) < len(data):
        starts.append(end)
    return root, starts


def _damaged(golden: tuple[Path, list[int]], tmp_path: Path, bytes_of: dict[int, int], kept: str) -> Path:
    """A copy of the log with one flipped bit at a byte of each of some batches, and of its other files those that
    ``kept`` names."""
    root, starts = golden
    copy = tmp_path / "t"
    shutil.copytree(root, copy)
    segment = copy / "t-0" / SEGMENT
    data = bytearray(segment.read_bytes())
    for batch, at in bytes_of.items():
        data[starts[batch] + at] ^= 1
    segment.write_bytes(data)
    for file in (copy / "t-0").iterdir():
        if file != segment and (kept == "nothing" or (kept == "the mark" and file.suffix == ".index")):
            file.unlink()
    return copy


@pytest.mark.parametrize("kept", ["all", "the mark", "nothing"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("batch", [0, 20])
def test_one_damaged_batch_hides_only_its_own_records(
    golden: tuple[Path, list[int]], tmp_path: Path, batch: int, field: str, kept: str
) -> None:
    """One flipped bit in a batch, header or not: every other record is read, and one range with the batch's place
    is told."""
    root = _damaged(golden, tmp_path, {batch: FIELDS[field]}, kept)
    told: list[pyreplog.CorruptLogError] = []
    with pyreplog.open_log(root, "r") as log:
        offsets = [record.offset for record in log.read(skip_damaged=told.append)]
    if field == "leader epoch" and kept == "nothing":
        assert offsets == list(
            range(COUNT * SIZE)
        )  # nothing is left that says which epoch is right, and the records do not depend on it
        return
    lost = range(batch * SIZE, batch * SIZE + SIZE)
    assert [(error.start, error.end, error.position) for error in told] == [(lost.start, lost.stop, golden[1][batch])]
    assert offsets == [offset for offset in range(COUNT * SIZE) if offset not in lost]


@pytest.mark.parametrize("kept", ["all", "the mark", "nothing"])
def test_reading_starts_behind_damage(golden: tuple[Path, list[int]], tmp_path: Path, kept: str) -> None:
    """A reading that starts behind damaged headers, in a batch's middle too, finds its records: nothing is left
    out."""
    root = _damaged(golden, tmp_path, {2: 16, 9: 7, 15: 11}, kept)
    with pyreplog.open_log(root, "r") as log:
        for start in (30, 100, 105, 163, 170):
            assert [
                record.offset
                for record in log.read(start, start + 12, skip_damaged=lambda error: pytest.fail(str(error)))
            ] == list(range(start, start + 12))


@pytest.mark.parametrize("kept", ["all", "the mark", "nothing"])
def test_each_of_several_damaged_batches_is_one_range(
    golden: tuple[Path, list[int]], tmp_path: Path, kept: str
) -> None:
    """Several damaged batches, each with another field damaged, are as many ranges, and everything between them is
    read."""
    bytes_of = {3: 16, 5: 26, 40: 7, 42: 62, 90: 11, 110: 5}
    root = _damaged(golden, tmp_path, bytes_of, kept)
    told: list[pyreplog.CorruptLogError] = []
    with pyreplog.open_log(root, "r") as log:
        count = sum(1 for _ in log.read(skip_damaged=told.append))
    assert [(error.start, error.end) for error in told] == [(batch * SIZE, batch * SIZE + SIZE) for batch in bytes_of]
    assert count == (COUNT - len(bytes_of)) * SIZE


@pytest.mark.parametrize("kept", ["all", "the mark", "nothing"])
def test_a_batch_that_ends_early_by_its_header_leaves_no_gap(
    golden: tuple[Path, list[int]], tmp_path: Path, kept: str
) -> None:
    """A lowered last-offset delta makes a batch seem to end early. A read of its last offset is an error, not the
    next batch."""
    root = _damaged(golden, tmp_path, {20: 26}, kept)  # a delta of 9 becomes 8
    with pyreplog.open_log(root, "r") as log, pytest.raises(pyreplog.CorruptLogError):
        next(iter(log.read(20 * SIZE + 9)))
