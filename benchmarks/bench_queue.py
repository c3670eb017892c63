"""How fast does a queue hand out and settle records? Beside a queue in a table of SQLite, with the same durability.

SQLite's queue takes a job with one UPDATE and settles it with one DELETE, each in a transaction, as such queues do. In
hundreds it takes and settles as many in one transaction each. The limit is the write of the same number of bytes: two
``pwrite`` for each record (``sync``: and one ``fdatasync``, which sixteen threads share).
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from benchmarks.conftest import Duel, Peer

VALUE = b"x" * 100
ENTRY_SIZE = 30
HUNDREDS = 200
THREADS = 16
TAKE = (
    "UPDATE jobs SET state = 1, worker = ? WHERE id IN (SELECT id FROM jobs WHERE state = 0 ORDER BY id LIMIT {})"
    " RETURNING id, body"
)


class Ours:
    """A log with as many records as one round takes."""

    def __init__(self, folder: Path, count: int, durability: Any) -> None:
        self.folder, self.count, self.durability, self.round = folder, count, durability, 0

    def open(self) -> None:
        """A new log and its queue."""
        self.round += 1
        self.log = pyreplog.open_log(self.folder / f"log-{self.round}", topic="jobs", durability=self.durability)
        self.log.append_many([VALUE] * self.count)
        self.queue = self.log.queue("work")

    def close(self) -> None:
        """All records are settled."""
        assert self.queue.stats().accepted == self.count
        self.log.close()


class Table:
    """A queue in a table of SQLite, in WAL mode."""

    def __init__(self, folder: Path, count: int, synchronous: str) -> None:
        self.path, self.count, self.synchronous, self.round = folder, count, synchronous, 0

    def connect(self) -> sqlite3.Connection:
        """One worker's connection."""
        connection = sqlite3.connect(self.path / f"{self.round}.db", isolation_level=None, timeout=60)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        return connection

    def open(self) -> None:
        """A new table."""
        self.round += 1
        self.path.mkdir(exist_ok=True)
        self.db = self.connect()
        self.db.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, body BLOB, state INT DEFAULT 0, worker INT)")
        self.db.execute("CREATE INDEX new_jobs ON jobs (state, id)")
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO jobs (body) VALUES (?)", [(VALUE,)] * self.count)
        self.db.execute("COMMIT")

    def close(self) -> None:
        """All jobs are gone."""
        assert self.db.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
        self.db.close()

    def one_by_one(self, db: sqlite3.Connection) -> None:
        """Take and settle until nothing is left."""
        take = TAKE.format(1)
        while rows := db.execute(take, (1,)).fetchall():
            db.execute("DELETE FROM jobs WHERE id = ?", (rows[0][0],))

    def in_hundreds(self) -> None:
        """The same, with many in each transaction."""
        take = TAKE.format(HUNDREDS)
        while rows := self.db.execute(take, (1,)).fetchall():
            self.db.execute("BEGIN")
            self.db.executemany("DELETE FROM jobs WHERE id = ?", [row[:1] for row in rows])
            self.db.execute("COMMIT")

    def in_threads(self) -> None:
        """Sixteen threads, each with a connection."""

        def work() -> None:
            db = self.connect()
            self.one_by_one(db)
            db.close()

        run_threads(work)


def run_threads(work: Callable[[], None]) -> None:
    """Run ``work`` in sixteen threads."""
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def drain(ours: Ours) -> None:
    """Take and settle one record at a time."""
    queue = ours.queue
    while (record := queue.receive()) is not None:
        queue.accept(record)


def bare(folder: Path, count: int, *, is_sync: bool) -> Peer:
    """The writes of the same entries, and nothing else."""
    entry = b"x" * ENTRY_SIZE

    def write() -> None:
        file = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
        os.pwrite(file, bytes(1 << 18), 0)
        for number in range(count):
            position = number * 2 * ENTRY_SIZE % (1 << 17)
            os.pwrite(file, entry, position)
            os.pwrite(file, entry, position + ENTRY_SIZE)
            if is_sync:
                os.fdatasync(file)
        os.close(file)

    name = f"two pwrite{' and one fdatasync' if is_sync else ''} for each record"
    return Peer(name, write, 0.0, is_limit=True)


def bare_in_crowds(folder: Path, count: int) -> Peer:
    """The writes of the same entries, and one sync for as many records as there are threads."""
    entry = b"x" * ENTRY_SIZE

    def write() -> None:
        file = os.open(folder / "crowds", os.O_RDWR | os.O_CREAT)
        os.pwrite(file, bytes(1 << 18), 0)
        for first in range(0, count, THREADS):
            for number in range(first, first + THREADS):
                os.pwrite(file, entry, 2 * ENTRY_SIZE * number)
                os.pwrite(file, entry, 2 * ENTRY_SIZE * number + ENTRY_SIZE)
            os.fdatasync(file)
        os.close(file)

    return Peer(f"two pwrite for each record, one fdatasync for {THREADS}", write, 0.0, is_limit=True)


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_one_at_a_time(duel: Duel, tmp_path: Path, durability: str) -> None:
    """One worker receives and accepts single records."""
    is_sync = durability == "sync"
    count = 100 if is_sync else 5000
    ours = Ours(tmp_path, count, durability)
    table = Table(tmp_path / "sql", count, "FULL" if is_sync else "NORMAL")
    peers = [
        bare(tmp_path, count, is_sync=is_sync),
        Peer(
            f"a table of SQLite, WAL, {table.synchronous}",
            lambda: table.one_by_one(table.db),
            5.0 if is_sync else 8.0,
            table.open,
            table.close,
        ),
    ]
    duel(
        f"queue, one at a time, {durability}",
        lambda: drain(ours),
        peers,
        count=count,
        prepare=ours.open,
        finish=ours.close,
    )


def test_in_hundreds(duel: Duel, tmp_path: Path) -> None:
    """One worker receives and accepts 200 records at a time, beside SQLite's one at a time and in hundreds."""
    count = 20_000
    ours = Ours(tmp_path, count, "os")
    one, many = Table(tmp_path / "one", count // 10, "NORMAL"), Table(tmp_path / "many", count, "NORMAL")

    def settle() -> None:
        while records := ours.queue.receive_many(HUNDREDS):
            ours.queue.accept(records)

    def ten_times() -> None:
        for _ in range(10):
            one.open()
            one.one_by_one(one.db)
            one.close()

    peers = [
        Peer("a table of SQLite, WAL, NORMAL, one at a time", ten_times, 30.0),
        Peer("a table of SQLite, WAL, NORMAL, in hundreds", many.in_hundreds, 1.0, many.open, many.close),
    ]
    duel(f"queue, {HUNDREDS} at a time, os", settle, peers, count=count, prepare=ours.open, finish=ours.close)


def test_sixteen_threads_synced(duel: Duel, tmp_path: Path) -> None:
    """Sixteen threads, each receives and accepts single records; each accept is on the disk when it returns."""
    count = 480
    ours = Ours(tmp_path, count, "sync")
    table = Table(tmp_path / "sql", count, "FULL")
    peers = [
        bare_in_crowds(tmp_path, count),
        Peer("a table of SQLite, WAL, FULL", table.in_threads, 40.0, table.open, table.close),
    ]
    duel(
        "queue, 16 threads, sync",
        lambda: run_threads(lambda: drain(ours)),
        peers,
        count=count,
        prepare=ours.open,
        finish=ours.close,
    )
