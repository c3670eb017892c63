"""What does a named reader cost: a commit, beside the write of its bytes and a row of SQLite; records in a loop and in
tables, beside confluent-kafka's ``consume`` if that and a broker are at hand (``SPARK_KAFKA_SERVERS``)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from benchmarks.conftest import Duel, Peer

VALUE = b"x" * 100
BATCH = 1000
COMMITS = 5000
RECORDS = 200_000


class Reader:
    """A log of records, and a reader with a new name for each round."""

    def __init__(self, folder: Path, count: int) -> None:
        self.log = pyreplog.open_log(folder / "events", durability="os")
        for _ in range(count // BATCH):
            self.log.append_many([VALUE] * BATCH)
        self.count, self.round = count, 0

    def open(self) -> None:
        """The next name."""
        self.round += 1
        self.consumer = self.log.consumer(f"reader-{self.round}")

    def read(self) -> None:
        """Open it, and take the records into memory."""
        self.open()
        self.records: list[pyreplog.Record] = []
        while len(self.records) < self.count:
            self.records += self.consumer.poll()

    def close(self) -> None:
        """Everything was read."""
        assert self.consumer.lag() == {pyreplog.TopicPartition("events", 0): 0}
        self.consumer.close()


def commit_all(reader: Reader) -> None:
    """One commit for each record."""
    commit = reader.consumer.commit
    for record in reader.records:
        commit(record)


def in_tables(reader: Reader) -> None:
    """All records as Arrow tables."""
    while reader.consumer.poll_arrow():
        pass


def bare(folder: Path) -> Peer:
    """The writes of the same entries, and nothing else."""
    entry = b"x" * 64

    def write() -> None:
        file = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
        for number in range(COMMITS):
            os.pwrite(file, entry, 512 + 64 * number)
        os.close(file)

    return Peer("one pwrite of 64 bytes", write, 0.0, is_limit=True)


def row(folder: Path) -> Peer:
    """The offset in a row of SQLite."""
    database = sqlite3.connect(folder / "offsets.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("CREATE TABLE offsets (name TEXT PRIMARY KEY, next INTEGER)")
    database.execute("INSERT INTO offsets VALUES ('billing', 0)")

    def update() -> None:
        for number in range(COMMITS):
            database.execute("UPDATE offsets SET next = ? WHERE name = 'billing'", (number,))

    return Peer("a row of SQLite, WAL, NORMAL", update, 1.0)


def test_commits(duel: Duel, tmp_path: Path) -> None:
    """Each record is committed. 15 us a commit are 67,000 in a second."""
    reader = Reader(tmp_path, COMMITS)
    duel(
        "commit of a named reader, os",
        lambda: commit_all(reader),
        [bare(tmp_path), row(tmp_path)],
        count=COMMITS,
        unit="commits",
        prepare=reader.read,
        finish=reader.close,
    )
    reader.log.close()


def consume(folder: Path, count: int) -> list[tuple[str, Callable[[], None]]]:
    """confluent-kafka's consume() of the same records from a broker; nothing if one of them is missing."""
    servers = os.environ.get("SPARK_KAFKA_SERVERS", "")
    kafka: Any = pytest.importorskip("confluent_kafka") if servers else None
    if kafka is None:
        return []
    topic = f"bench-readers-{os.getpid()}"
    producer = kafka.Producer({"bootstrap.servers": servers, "linger.ms": 50})
    for number in range(count):
        producer.produce(topic, VALUE)
        if not number % 10_000:
            producer.poll(0)
    producer.flush()

    def run() -> None:
        consumer = kafka.Consumer(
            {"bootstrap.servers": servers, "group.id": os.urandom(4).hex(), "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        left = count
        while left:
            left -= len(consumer.consume(10_000, 1.0))
        consumer.close()

    return [("confluent-kafka's consume()", run)]


@pytest.mark.parametrize("way", ["loop", "tables"])
def test_reading(duel: Duel, tmp_path: Path, way: str) -> None:
    """All records, one by one or as Arrow tables."""
    reader = Reader(tmp_path, RECORDS)

    def loop() -> None:
        for record in reader.consumer:
            if record.offset == RECORDS - 1:
                break

    def read() -> None:
        for _ in reader.log.read():
            pass

    reach = 4.0 if way == "loop" else 30.0
    peers = [Peer("log.read(), which keeps no place", read)]
    peers += [Peer(name, run, reach) for name, run in consume(tmp_path, RECORDS)]
    duel(
        f"records of a named reader, in a {way}" if way == "loop" else "records of a named reader, in Arrow tables",
        loop if way == "loop" else lambda: in_tables(reader),
        peers,
        count=RECORDS,
        prepare=reader.open,
        finish=reader.close,
    )
    reader.log.close()
