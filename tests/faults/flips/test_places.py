"""Wherever a segment is damaged and whoever reads it: the error names file, byte, partition and offset."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import pyreplog
from pyreplog.cli.cat import chosen
from pyreplog.config import INT64_MAX, MAX_BATCH_BYTES
from pyreplog.log import open_readers
from pyreplog.record import RecordBatch
from pyreplog.system import SystemDisk

SEGMENT = f"{0:020}.log"
HEADER_SIZE = 61


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A log of six batches, plain and compressed, of one and of several records, closed in order; and where each
    begins, and the end."""
    root = tmp_path_factory.mktemp("places") / "t"
    for codec in ("uncompressed", "gzip"):
        with pyreplog.open_log(root, config={"compression.type": codec, "index.interval.bytes": 100}) as log:
            log.append(b"one" * 20, key=b"k", headers=[("h", b"x")], timestamp=1000)
            log.append_many([b"%d" % number * 30 for number in range(5)], timestamps=range(2000, 2005))
            log.append_many([b"x", b"y"], timestamps=[3000, 3001])
    data = (root / "t-0" / SEGMENT).read_bytes()
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + RecordBatch(data, starts[-1]).size)
    return root, starts


def _cat(root: Path) -> None:
    arguments = Namespace(
        command="cat",
        isolation="read_uncommitted",
        max_batch_bytes=MAX_BATCH_BYTES,
        skip_damaged=False,
        start=0,
        end=INT64_MAX,
        start_timestamp=None,
        end_timestamp=None,
    )
    disk = SystemDisk()
    for reader in open_readers(disk, str(root)).values():
        for _ in chosen(reader, arguments):
            pass
        reader.close()
    disk.close()


def _reading(look: Callable[[pyreplog.Log], object]) -> Callable[[Path], None]:
    def face(root: Path) -> None:
        with pyreplog.open_log(root, "r") as log:
            look(log)

    return face


def _writing(look: Callable[[pyreplog.Log], object]) -> Callable[[Path], None]:
    def face(root: Path) -> None:
        with pyreplog.open_log(root) as log:
            look(log)

    return face


FACES: dict[str, Callable[[Path], None]] = {
    "read": _reading(lambda log: list(log.read())),
    "iteration": _reading(list),
    "scan": _reading(lambda log: list(log.scan().batches())),
    "follow": _reading(lambda log: list(log.follow(timeout=0))),
    "seek by time": _reading(lambda log: [log.seek(timestamp=time) for time in (0, 2003, 3001)]),
    "read by time": _reading(lambda log: list(log.read(start_timestamp=3000))),
    "cat": _cat,
    "writer": _writing(lambda log: list(log.read())),
    "writer's scan": _writing(lambda log: list(log.scan().batches())),
}


def _flips(starts: list[int]) -> Iterator[tuple[int, int]]:
    """A byte and a bit: some of each header field, and of the records."""
    chance = Random(7)
    for start, end in pairwise(starts):
        fields = (0, 5, 7, 8, 11, 13, 16, 19, 22, 25, 30, 40, 59, HEADER_SIZE, HEADER_SIZE + 3, end - start - 1)
        for at in chance.sample(fields, 8):
            yield start + at, 1 << chance.randrange(8)


@pytest.mark.parametrize("face", FACES)
def test_each_error_names_its_place(golden: tuple[Path, list[int]], tmp_path: Path, face: str) -> None:
    """One flipped bit: if the face raises, the error has file, position, partition and offset, and its text names
    them; the position is in the damaged batch or at its edge."""
    original, starts = golden
    raised = 0
    for position, mask in _flips(starts):
        root = tmp_path / "t"
        shutil.copytree(original, root)
        segment = root / "t-0" / SEGMENT
        data = bytearray(segment.read_bytes())
        data[position] ^= mask
        segment.write_bytes(data)
        try:
            FACES[face](root)
        except pyreplog.CorruptError as error:
            raised += 1
            what = f"byte {position}, mask {mask}: {error!r}"
            assert error.file == str(segment), what
            assert error.partition == "t-0", what
            assert error.offset is not None, what
            assert error.position is not None, what
            begin = max(start for start in starts[:-1] if start <= position)
            end = min(start for start in starts if start > position)
            assert begin <= error.position <= end, what
            text = str(error)
            assert f"in {segment} at byte {error.position} (t-0" in text, what
            assert f"offset {error.offset}" in text or f"offsets {error.offset} " in text, what
        shutil.rmtree(root)
    assert raised > 10 or face in ("seek by time", "read by time")
    assert raised
