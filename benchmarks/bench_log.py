"""How fast is appending to one log? Against a bare ``pwrite`` of the same bytes, LMDB, SQLite, and a Kafka client's ``produce()``."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable
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


def fresh(folder: Path) -> Callable[[], str]:
    """A function that gives a new path each time and removes what stood at the one before the last."""
    numbers = itertools.count()

    def path() -> str:
        number = next(numbers)
        shutil.rmtree(folder / f"{number - 2}", ignore_errors=True)
        (folder / f"{number}").mkdir(parents=True)
        return str(folder / f"{number}" / "it")

    return path


def batch_size(folder: Path, values: list[bytes]) -> int:
    """Bytes on disk of one batch of ``values``, after checking that they come back as they went in."""
    with pyreplog.open_log(folder / "check", durability="os") as log:
        log.append_many(values)
        assert [record.value for record in log.read()] == values
        return log.stats().size


@pytest.mark.parametrize(("size", "calls"), [(100, 200), (1000, 60)], ids=["100B", "1KB"])
def test_append_many(duel: Duel, tmp_path: Path, size: int, calls: int) -> None:
    """append_many of 1000 records a call, durability "os"."""
    values = payloads(size, BATCH_COUNT)
    encoded = memoryview(bytearray(batch_size(tmp_path, values)))
    log_path, file_path, lmdb_path, sqlite_path = (fresh(tmp_path / name) for name in ("log", "file", "lmdb", "sqlite"))

    def ours() -> None:
        with pyreplog.open_log(log_path(), durability="os", config={"max.message.bytes": 1 << 21}) as log:
            append = log.append_many
            for _ in range(calls):
                append(values)
            assert log.end_offset == calls * BATCH_COUNT

    def bare() -> None:
        file = os.open(file_path(), os.O_CREAT | os.O_WRONLY, 0o600)
        for position in range(0, calls * len(encoded), len(encoded)):
            os.pwrite(file, encoded, position)
        os.close(file)

    def with_lmdb() -> None:
        environment = lmdb.open(lmdb_path(), map_size=1 << 32, sync=False, metasync=False, subdir=True)
        offset = 0
        for _ in range(calls):
            with environment.begin(write=True) as transaction:
                for value in values:
                    transaction.put(offset.to_bytes(8, "big"), value, append=True)
                    offset += 1
        environment.close()

    def with_sqlite() -> None:
        database = sqlite3.connect(sqlite_path(), isolation_level=None)
        database.execute("pragma journal_mode=wal")
        database.execute("pragma synchronous=off")
        database.execute("create table log (offset integer primary key, value blob not null)")
        rows = [(value,) for value in values]
        for _ in range(calls):
            database.execute("begin")
            database.executemany("insert into log (value) values (?)", rows)
            database.execute("commit")
        database.close()

    peers = [
        Peer("pwrite of the same bytes", bare, 0.5),
        Peer("LMDB, append, no sync", with_lmdb, 4.0),
        Peer("SQLite WAL, sync off", with_sqlite, 15.0),
    ]
    duel(f"append_many, {size} B x 1000, os", ours, peers, count=calls * BATCH_COUNT)


def test_append_nowait(duel: Duel, tmp_path: Path) -> None:
    """append_nowait one by one, 100 B, one thread, until all are acknowledged."""
    values = payloads(100, ONE_BY_ONE_COUNT)
    log_path = fresh(tmp_path)
    settings: dict[str, Any] = {
        "test.mock.num.brokers": 1,
        "queue.buffering.max.messages": 2 * ONE_BY_ONE_COUNT,
        "queue.buffering.max.kbytes": 1 << 20,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer(settings)
    producer.produce("events", b"warm")
    assert producer.flush(30) == 0

    def ours() -> None:
        with pyreplog.open_log(log_path(), durability="os") as log:
            append = log.append_nowait
            for value in values:
                ack = append(value)
            assert ack.result().offset == ONE_BY_ONE_COUNT - 1

    def with_client() -> None:
        produce = producer.produce
        for value in values:
            produce("events", value)
        assert producer.flush(60) == 0

    duel("append_nowait, 100 B one by one, os", ours, [Peer("confluent-kafka produce()", with_client, 2.0)], count=ONE_BY_ONE_COUNT)


def test_append_waits(duel: Duel, tmp_path: Path) -> None:
    """append one by one under "sync": each call waits for the disk, as an fsync of a bare file does."""
    values = payloads(100, 200)
    log_path, file_path = fresh(tmp_path / "log"), fresh(tmp_path / "file")

    def ours() -> None:
        with pyreplog.open_log(log_path()) as log:
            for value in values:
                log.append(value)

    def bare() -> None:
        file = os.open(file_path(), os.O_CREAT | os.O_WRONLY, 0o600)
        for number, value in enumerate(values):
            os.pwrite(file, value, number * len(value))
            os.fdatasync(file)
        os.close(file)

    duel("append, 100 B one by one, sync", ours, [Peer("pwrite + fdatasync", bare)], count=len(values))


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
        assert sum(len(value) for (_, value) in database.execute("select offset, value from log order by offset")) == 10_000_000

    duel("read every value, 100 B", ours, [Peer("SQLite", with_sqlite)], count=100 * BATCH_COUNT)
    database.close()
