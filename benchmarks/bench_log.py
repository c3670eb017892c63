"""How fast is appending to one log? Against a bare ``pwrite`` of the same bytes, LMDB, SQLite, and a Kafka client's
``produce()``."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import lmdb
import pytest

import pyreplog
from benchmarks.conftest import Duel, Peer

BATCH_COUNT = 1000
ONE_BY_ONE_COUNT = 100_000


def payloads(size: int, count: int) -> list[bytes]:
    """``count`` values of ``size`` random bytes, the same every time."""
    random = Random(size)
    return [random.randbytes(size) for _ in range(count)]


class Folders:
    """A new folder for each round; ``clear`` removes it, and so its pages in the page cache."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._numbers = itertools.count()
        self.path = parent

    def next(self) -> Path:
        """A folder that is there and empty."""
        self.path = self._parent / str(next(self._numbers))
        self.path.mkdir(parents=True)
        return self.path

    def clear(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path)


class Ours(Folders):
    """A log with durability "os"."""

    def open(self) -> None:
        """A new log."""
        self.log = pyreplog.open_log(self.next() / "events", durability="os")

    def close(self) -> None:
        """Close and remove it."""
        self.log.close()
        self.clear()


class Bare(Folders):
    """A file that the same bytes are written to, one ``pwrite`` per call of ours."""

    def __init__(self, parent: Path, data: memoryview, calls: int) -> None:
        super().__init__(parent)
        self.data, self.calls = data, calls

    def open(self) -> None:
        """A new file."""
        self.file = os.open(self.next() / "file", os.O_CREAT | os.O_WRONLY, 0o600)

    def run(self) -> None:
        """Write."""
        size = len(self.data)
        for position in range(0, self.calls * size, size):
            os.pwrite(self.file, self.data, position)

    def close(self) -> None:
        """Close and remove it."""
        os.close(self.file)
        self.clear()


class Joined(Bare):
    """The same, of values that have to be put together first, and nothing else: no log that writes once a call does
    with less."""

    def __init__(self, parent: Path, values: list[bytes], calls: int) -> None:
        super().__init__(parent, memoryview(b"".join(values)), calls)
        self.values = values

    def run(self) -> None:
        """Join and write."""
        size = len(self.data)
        for position in range(0, self.calls * size, size):
            os.pwrite(self.file, b"".join(self.values), position)


class WithLmdb(Folders):
    """LMDB with growing keys appended, nothing synced, one transaction per call of ours."""

    def __init__(self, parent: Path, values: list[bytes], calls: int) -> None:
        super().__init__(parent)
        self.values, self.calls = values, calls

    def open(self) -> None:
        """A new environment."""
        self.environment = lmdb.open(str(self.next()), map_size=1 << 32, sync=False, metasync=False)

    def run(self) -> None:
        """Put."""
        offset = 0
        for _ in range(self.calls):
            with self.environment.begin(write=True) as transaction:
                put = transaction.put
                for value in self.values:
                    put(offset.to_bytes(8, "big"), value, append=True)
                    offset += 1

    def close(self) -> None:
        """Close and remove it."""
        self.environment.close()
        self.clear()


class WithSqlite(Folders):
    """SQLite in WAL mode without sync, one transaction per call of ours."""

    def __init__(self, parent: Path, values: list[bytes], calls: int) -> None:
        super().__init__(parent)
        self.rows, self.calls = [(value,) for value in values], calls

    def open(self) -> None:
        """A new database."""
        self.database = sqlite3.connect(self.next() / "events", isolation_level=None)
        self.database.execute("pragma journal_mode=wal")
        self.database.execute("pragma synchronous=off")
        self.database.execute("create table log (offset integer primary key, value blob not null)")

    def run(self) -> None:
        """Insert."""
        for _ in range(self.calls):
            self.database.execute("begin")
            self.database.executemany("insert into log (value) values (?)", self.rows)
            self.database.execute("commit")

    def close(self) -> None:
        """Close and remove it."""
        self.database.close()
        self.clear()


def batch_size(folder: Path, values: list[bytes]) -> int:
    """Bytes on disk of one batch of ``values``, after checking that they come back as they went in."""
    with pyreplog.open_log(folder / "check", durability="os") as log:
        log.append_many(values)
        assert [record.value for record in log.read()] == values
        return log.stats().size


@pytest.mark.parametrize(("size", "calls"), [(100, 200), (1000, 60)], ids=["100B", "1KB"])
def test_append_many(duel: Duel, tmp_path: Path, size: int, calls: int) -> None:
    """append_many of 1000 records a call, durability "os", in a log that is open. Opening and closing is not timed,
    for the log and its peers."""
    values = payloads(size, BATCH_COUNT)
    ours = Ours(tmp_path / "log")
    bare = Bare(tmp_path / "file", memoryview(bytearray(batch_size(tmp_path, values))), calls)
    joined = Joined(tmp_path / "joined", values, calls)
    with_lmdb, with_sqlite = WithLmdb(tmp_path / "lmdb", values, calls), WithSqlite(tmp_path / "sqlite", values, calls)

    def append() -> None:
        append_many = ours.log.append_many
        for _ in range(calls):
            append_many(values)

    peers = [
        Peer("pwrite of the same bytes", bare.run, 0.6, bare.open, bare.close, is_limit=True),
        Peer("b''.join(values) and pwrite", joined.run, None, joined.open, joined.close),
        Peer("LMDB, append, no sync", with_lmdb.run, 5.0, with_lmdb.open, with_lmdb.close),
        Peer("SQLite WAL, sync off", with_sqlite.run, 20.0, with_sqlite.open, with_sqlite.close),
    ]
    duel(
        f"append_many, {size} B x 1000, os",
        append,
        peers,
        count=calls * BATCH_COUNT,
        prepare=ours.open,
        finish=ours.close,
    )


def test_append_nowait(duel: Duel, tmp_path: Path) -> None:
    """append_nowait one by one, 100 B, one thread, until all are acknowledged."""
    values = payloads(100, ONE_BY_ONE_COUNT)
    ours = Ours(tmp_path)
    settings: dict[str, Any] = {
        "test.mock.num.brokers": 1,
        "queue.buffering.max.messages": 2 * ONE_BY_ONE_COUNT,
        "queue.buffering.max.kbytes": 1 << 20,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer(settings)
    delivered: list[object] = []
    producer.produce("events", b"warm", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(30) == 0
    assert delivered == [None]

    def append() -> None:
        append_nowait = ours.log.append_nowait
        for value in values:
            ack = append_nowait(value)
        assert ack.result().offset == ONE_BY_ONE_COUNT - 1

    def with_client() -> None:
        produce = producer.produce
        for value in values:
            produce("events", value)
        assert producer.flush(60) == 0

    peer = Peer("confluent-kafka produce()", with_client, 4.0)
    duel(
        "append_nowait, 100 B one by one, os",
        append,
        [peer],
        count=ONE_BY_ONE_COUNT,
        prepare=ours.open,
        finish=ours.close,
    )


def test_append_waits(duel: Duel, tmp_path: Path) -> None:
    """append one by one under "sync": each call waits for the disk, as an fsync of a bare file does."""
    values = payloads(100, 200)
    log = pyreplog.open_log(tmp_path / "log")
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY, 0o600)

    def append() -> None:
        for value in values:
            log.append(value)

    def bare() -> None:
        for value in values:
            os.pwrite(file, value, os.fstat(file).st_size)
            os.fdatasync(file)

    duel("append, 100 B one by one, sync", append, [Peer("pwrite + fdatasync", bare)], count=len(values))
    log.close()
    os.close(file)


def test_read(duel: Duel, tmp_path: Path) -> None:
    """Reading every record of a warm log as Python objects."""
    values = payloads(100, BATCH_COUNT)
    sqlite_path = tmp_path / "events.sqlite"
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        for _ in range(100):
            log.append_many(values)
    database = sqlite3.connect(sqlite_path, isolation_level=None)
    database.execute("create table log (offset integer primary key, value blob not null)")
    database.execute("begin")
    database.executemany("insert into log (value) values (?)", [(value,) for _ in range(100) for value in values])
    database.execute("commit")

    def ours() -> None:
        with pyreplog.open_log(tmp_path / "events", mode="r") as reader:
            assert sum(len(record.value or b"") for record in reader.read()) == 10_000_000

    def with_sqlite() -> None:
        assert (
            sum(len(value) for (_, value) in database.execute("select offset, value from log order by offset"))
            == 10_000_000
        )

    duel("read every value, 100 B", ours, [Peer("SQLite", with_sqlite)], count=100 * BATCH_COUNT)
    database.close()
