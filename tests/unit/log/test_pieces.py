"""Large writes that a sync follows: in pieces, so that the disk is at work with each while the next is being
written."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pyreplog
from pyreplog.errors import StorageError
from pyreplog.log import segment_writer as segment_module
from pyreplog.log.segment_writer import PIECE_SIZE, SegmentWriter
from pyreplog.testing.disk import SimDisk

MODULE = segment_module.__name__


class Notes:
    """A file that takes everything and notes what it was asked."""

    def __init__(self, refuse_from: int = 1 << 62) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.content = bytearray()
        self.refuse_from = refuse_from

    def write_at(self, position: int, parts: list[memoryview]) -> None:
        data = b"".join(parts)
        self.calls.append(("write", position, len(data)))
        if position >= self.refuse_from:
            raise StorageError(errno.ENOSPC, "no room", "a")
        assert position == len(self.content)
        self.content += data

    def start_sync(self, position: int, size: int) -> None:
        self.calls.append(("start", position, size))

    def truncate(self, size: int) -> None:
        self.calls.append(("truncate", size, 0))
        del self.content[size:]


def made(file: Notes, size: int = 0) -> SegmentWriter:
    """A segment of ``size`` bytes whose log is ``file``, each write of which is synced."""
    disk = SimDisk()
    disk.make_directory("data")
    segment = SegmentWriter.create(disk, "data", 0, index_interval=4096, wall_ms=0)
    segment.expect_syncs()
    segment.size = size
    file.content += bytes(size)
    segment._file = file  # type: ignore[assignment]
    return segment


def put(segment: SegmentWriter, parts: list[Any]) -> None:
    """Append what counts as one batch."""
    size = sum(len(part) for part in parts)
    segment.write(parts, size)
    segment.note(size, 9, 0)


def test_pieces_end_where_pages_do() -> None:
    """However large pages are. Each piece but the last is begun when it is written, before the next, and no page is
    in two of them."""
    file = Notes()
    segment = made(file, 5000)
    data = Random(1).randbytes(3 * PIECE_SIZE)
    put(segment, [data])
    writes = [(position, size) for call, position, size in file.calls if call == "write"]
    ends = [position + size for position, size in writes]
    assert file.content[5000:] == data
    assert len(writes) == 4
    assert all(end % PIECE_SIZE == 0 for end in ends[:-1])
    begun = [call for pair in writes[:-1] for call in (("write", *pair), ("start", *pair))]
    assert file.calls == [*begun, ("write", *writes[-1])]


@pytest.mark.parametrize("seed", range(40))
def test_however_it_is_given(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes come to the same places, whatever parts they are given in, and wherever the segment ends."""
    monkeypatch.setattr(f"{MODULE}.PIECE_SIZE", 64)
    random = Random(seed)
    file = Notes()
    segment = made(file, random.randrange(100))
    start = segment.size
    parts = [random.randbytes(random.choice([0, 1, 16, 63, 64, 65, 300])) for _ in range(random.randrange(1, 9))]
    parts.append(random.randbytes(128))
    whole = b"".join(parts)
    put(segment, [memoryview(part) for part in parts])
    assert file.content[start:] == whole
    begun = {(position, size) for call, position, size in file.calls if call == "start"}
    written = [(position, size) for call, position, size in file.calls if call == "write"]
    assert begun == set(written[:-1])
    assert segment.size == start + len(whole)


@pytest.mark.parametrize("number", range(4))
def test_a_piece_that_is_refused_leaves_nothing(number: int) -> None:
    """Those before it are cut off: half a batch must not stay."""
    file = Notes(refuse_from=number * PIECE_SIZE)
    segment = made(file)
    data = bytes(4 * PIECE_SIZE)
    with pytest.raises(StorageError):
        put(segment, [data])
    assert file.calls[-1] == ("truncate", 0, 0)
    assert (bytes(file.content), segment.size, segment.torn) == (b"", 0, False)


@pytest.mark.parametrize("number", range(3))
def test_an_interrupt_between_two_pieces_leaves_nothing_for_long(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is cut off before the next write, which begins where the log ends."""
    file = Notes()
    segment = made(file)
    begun: list[int] = []

    def start_sync(position: int, size: int) -> None:
        begun.append(position)
        if len(begun) == number + 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(file, "start_sync", start_sync)
    data = Random(number).randbytes(4 * PIECE_SIZE)
    with pytest.raises(KeyboardInterrupt):
        put(segment, [data])
    assert (segment.torn, segment.size) == (True, 0)
    put(segment, [b"next"])
    assert (bytes(file.content), segment.torn, segment.size) == (b"next", False, 4)


def test_small_writes_are_whole() -> None:
    """Below two pieces there is one call."""
    file = Notes()
    segment = made(file)
    put(segment, [bytes(2 * PIECE_SIZE - 1)])
    assert file.calls == [("write", 0, 2 * PIECE_SIZE - 1)]


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_only_where_a_sync_follows(durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ``os`` the system writes when it likes, and nothing is begun for it."""
    begun: list[int] = []
    monkeypatch.setattr("pyreplog.system.file.SystemFile.start_sync", lambda _, position, size: begun.append(size))
    values = [Random(number).randbytes(1000) for number in range(1000)]
    with pyreplog.open_log(tmp_path, durability=durability) as log:  # type: ignore[arg-type]
        for _ in range(3):
            log.append_many(values)
        assert [record.value for record in log] == 3 * values
    assert bool(begun) == (durability == "sync")
