"""How fast a log becomes Arrow, beside pyarrow reading the very same rows from Parquet (snappy), each on one thread
and from warm files.

The limit is the least work that a scan must do: ``pread`` of all bytes, their CRC, and one copy into memory that
was touched before.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyreplog
from benchmarks.conftest import Duel, Peer
from pyreplog.arrow import COLUMNS
from pyreplog.record import crc32c

COUNT = 500_000
PER_BATCH = 1000
VALUE_SIZE = 100
REACH = 3.0
READ_SIZE = 1 << 19


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log of random values, and a Parquet file of the same rows."""
    folder = tmp_path_factory.mktemp("arrow")
    random = Random(1)
    with pyreplog.open_log(folder / "log", durability="os") as log:
        for _ in range(COUNT // PER_BATCH):
            log.append_many([random.randbytes(VALUE_SIZE) for _ in range(PER_BATCH)])
        table = pa.table(log.scan(COLUMNS))
    assert table.num_rows == COUNT
    pq.write_table(table, folder / "rows.parquet", compression="snappy")
    assert pq.read_table(folder / "rows.parquet").column("value").equals(table.column("value"))
    return folder / "log", folder / "rows.parquet"


def bare(folder: Path, memory: bytearray) -> None:
    """Read and check every byte of the log, and copy it into ``memory``, again from its start if it is too
    short."""
    room = memoryview(memory)
    for path in folder.glob("*/*.log"):
        file = os.open(path, os.O_RDONLY)
        position = to = 0
        while data := os.pread(file, READ_SIZE, position):
            crc32c(data)
            if to + len(data) > len(room):
                to = 0
            room[to : to + len(data)] = data
            to += len(data)
            position += len(data)
        os.close(file)
        assert position > COUNT * VALUE_SIZE


def test_scan_batch_by_batch(paths: tuple[Path, Path], duel: Duel) -> None:
    """All columns of 100 B random values, as a stream of batches. The aim is three times the speed of Parquet."""
    folder, parquet = paths
    with pyreplog.open_log(folder, "r") as log:

        def scan() -> None:
            count = 0
            for batch in pa.RecordBatchReader.from_stream(log.scan(COLUMNS)):
                count += batch.num_rows
            assert count == COUNT

        def read() -> None:
            count = 0
            for batch in pq.ParquetFile(parquet).iter_batches(32768, use_threads=False):
                count += batch.num_rows
            assert count == COUNT

        memory = bytearray(2 * READ_SIZE)
        peers = [
            Peer("pyarrow from Parquet", read, REACH),
            Peer("pread, CRC and one copy", lambda: bare(folder, memory), is_limit=True),
        ]
        duel("scan to Arrow, all columns, 100 B, batch by batch", scan, peers, count=COUNT, unit="rows")


def test_scan_to_a_table(paths: tuple[Path, Path], duel: Duel) -> None:
    """The same into one table that holds everything."""
    folder, parquet = paths
    with pyreplog.open_log(folder, "r") as log:

        def scan() -> None:
            assert pa.table(log.scan(COLUMNS)).num_rows == COUNT

        def read() -> None:
            assert pq.read_table(parquet, use_threads=False).num_rows == COUNT

        memory = bytearray(COUNT * (VALUE_SIZE + 32))
        peers = [
            Peer("pyarrow from Parquet", read, REACH),
            Peer("pread, CRC and one copy", lambda: bare(folder, memory), is_limit=True),
        ]
        duel("scan to Arrow, all columns, 100 B, one table", scan, peers, count=COUNT, unit="rows")


def test_append_arrow(paths: tuple[Path, Path], duel: Duel, tmp_path: Path) -> None:
    """The way back, a table of all of it into an ``os`` log: beside pyarrow writing the same to Parquet, and the
    same values by ``append_many``."""
    folder, _ = paths
    with pyreplog.open_log(folder, "r") as source:
        table = pa.table(source.scan(["key", "value", "timestamp", "headers"]))
    values = table.column("value").to_pylist()
    number = iter(range(10**6))

    def append() -> None:
        with pyreplog.open_log(tmp_path / f"a{next(number)}", durability="os") as log:
            assert log.append_arrow(table) == range(COUNT)

    def append_many() -> None:
        with pyreplog.open_log(tmp_path / f"m{next(number)}", durability="os") as log:
            for start in range(0, COUNT, PER_BATCH):
                log.append_many(values[start : start + PER_BATCH])

    def write() -> None:
        pq.write_table(table, tmp_path / "rows.parquet", compression="snappy")

    def clear() -> None:
        for name in list(tmp_path.iterdir()):
            if name.is_dir():
                shutil.rmtree(name)

    peers = [Peer("pyarrow to Parquet", write), Peer("append_many of the values alone", append_many, 1.0, finish=clear)]
    duel("append_arrow, all columns, 100 B", append, peers, count=COUNT, unit="rows", prepare=clear)


def test_scan_of_one_column(paths: tuple[Path, Path], duel: Duel) -> None:
    """Offsets alone, which a columnar file has side by side: only told, because a log has to walk its records."""
    folder, parquet = paths
    with pyreplog.open_log(folder, "r") as log:

        def scan() -> None:
            assert pa.table(log.scan(["offset"])).num_rows == COUNT

        def read() -> None:
            assert pq.read_table(parquet, columns=["offset"], use_threads=False).num_rows == COUNT

        duel("scan to Arrow, offset alone", scan, [Peer("pyarrow from Parquet", read)], count=COUNT, unit="rows")
