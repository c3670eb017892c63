"""Processes that run a whole cluster of three replicas and a named reader of it, killed (kill -9) again and again.

``python -m tests.faults.kills.reader_lives FOLDER SEED KILLS PROGRAM``: PROGRAM is ``least`` (each record is handled at
least once, by commits), ``once`` (exactly once: the result and the offsets are in one database), or the wrong
``early``, which commits before it handles. A parent that does nothing else forks each process, holds what it told over
a pipe, and looks at it when the process is dead. It prints at which moments how many were killed.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections import Counter
from random import Random
from typing import Any, ClassVar, Final

from pyreplog import Cluster, Record, TopicPartition
from pyreplog.readers import OffsetsFile
from pyreplog.system import SystemDisk
from tests.faults.kills.killing import KillingDisk, Tell
from tests.faults.kills.run import child

PARTITIONS: Final = 2
RECORDS: Final = 60
"""Of each partition."""
MOMENTS: Final = ("handled", "before the write", "after the write", "a call", "half a write")
CALLS: Final = 1750
"""A process that dies at a call dies at one of its first so many: all but a hundred or so open the cluster."""


def die() -> None:
    """End this process as kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Countdown(KillingDisk):
    """The disk of one node. All of them count the calls together."""

    left: ClassVar[list[int]] = [0]

    def strikes(self) -> bool:
        """See :class:`KillingDisk`."""
        Countdown.left[0] -= 1
        return Countdown.left[0] == 0


def fill(folder: str) -> None:
    """Make the topic and its records. The value of each is its number among all."""
    with Cluster(f"{folder}/data", nodes=3) as cluster:
        cluster.admin.create_topic("events", partitions=PARTITIONS, config={"durability": "os"})
        with cluster.producer() as producer:
            for partition in range(PARTITIONS):
                values = [b"%d" % (partition * RECORDS + number) for number in range(RECORDS)]
                producer.send_many("events", values, partition=partition).wait(30)
    database = sqlite3.connect(f"{folder}/totals.sqlite")
    with database:
        database.execute("CREATE TABLE total (sum INTEGER, count INTEGER)")
        database.execute("INSERT INTO total VALUES (0, 0)")
        database.execute("CREATE TABLE place (topic, partition, next_offset, PRIMARY KEY (topic, partition))")
    database.close()


def doom(moment: str, chance: Random) -> int:
    """Let this process die at ``moment``. Return the number of the record that it may die at; -1 for none."""
    number = chance.randrange(9)
    if moment in ("a call", "half a write"):
        Countdown.left[0] = 1 + chance.randrange(CALLS)
        return -1
    if moment == "handled":
        return number
    plain = OffsetsFile.write
    left = [number + 1]

    def write(self: OffsetsFile, entries: Any) -> None:
        left[0] -= 1
        if not left[0] and moment == "before the write":
            die()
        plain(self, entries)
        if not left[0]:
            die()

    OffsetsFile.write = write  # type: ignore[method-assign]
    return -1


def life(folder: str, seed: int, moment: str, program: str, tell: Tell) -> None:
    """Run the cluster and its reader until a kill, or to the end."""
    chance = Random(seed)
    fatal = doom(moment, chance) if moment else -1
    settings: dict[str, Any] = {}
    if moment in ("a call", "half a write"):
        halves = moment == "half a write"
        settings["disk"] = lambda name: Countdown(SystemDisk(), 0, halves=halves)
    with (
        Cluster(f"{folder}/data", **settings) as cluster,
        cluster.consumer("events", name="billing", lock_timeout=30) as consumer,
    ):
        database = sqlite3.connect(f"{folder}/totals.sqlite")
        database.execute("PRAGMA synchronous=OFF")  # the page cache outlives a kill
        if program == "once":
            for topic, partition, offset in database.execute("SELECT * FROM place").fetchall():
                consumer.seek(topic, partition, offset)
        for number, record in enumerate(consumer.until_end()):
            if program == "early":
                consumer.commit(record)
            tell(f"handled {record.partition} {record.offset} {(record.value or b'').decode()}")
            if program == "once":
                keep(database, record, dies=number == fatal)
            elif number == fatal:
                die()
            if program == "least":
                consumer.commit(record)
        if program == "least":
            assert consumer.committed() == {TopicPartition("events", one): RECORDS for one in range(PARTITIONS)}
        database.close()


def keep(database: sqlite3.Connection, record: Record, *, dies: bool) -> None:
    """The recipe of the guide: the result and the place in one transaction."""
    with database:
        database.execute("UPDATE total SET sum = sum + ?, count = count + 1", (int(record.value or b""),))
        if dies:
            die()
        database.execute(
            "INSERT OR REPLACE INTO place VALUES (?, ?, ?)", (record.topic, record.partition, record.offset + 1)
        )


def check_told(told: bytes, seen: dict[int, int], program: str) -> None:
    """Each process goes on at the record in hand of the last one, or behind it: it passes none, and repeats one."""
    first: set[int] = set()
    whole, _, _ = told.rpartition(b"\n")
    for line in whole.decode().splitlines():
        word, *rest = line.split()
        if word != "handled":
            continue
        partition, offset, value = map(int, rest)
        assert value == partition * RECORDS + offset, f"another record: {line}"
        last = seen.get(partition, -1)
        allowed = {last + 1} if partition in first else {last, last + 1}
        assert offset in allowed, f"{program}: {line}, and the last one was {last}"
        first.add(partition)
        seen[partition] = max(last, offset)


def main(folder: str, seed: int, kills: int, program: str) -> None:
    """Kill so many, then read to the end, and compare."""
    chance = Random(seed)
    child(lambda _: fill(folder))
    seen: dict[int, int] = {}
    moments: Counter[str] = Counter()
    order = [moment for moment in MOMENTS if program != "once" or "the write" not in moment]
    for number in range(kills):
        moment = order[number % len(order)]
        told, died_of = child(
            lambda tell, number=number, moment=moment: life(  # type: ignore[misc]
                folder, seed * 1000 + number, moment, program, tell
            )
        )
        assert died_of in (0, signal.SIGKILL)
        moments[moment] += died_of == signal.SIGKILL
        check_told(told, seen, program)
        if all(seen.get(partition) == RECORDS - 1 for partition in range(PARTITIONS)):
            break
    told, died_of = child(lambda tell: life(folder, chance.randrange(1000), "", program, tell))
    assert died_of == 0
    check_told(told, seen, program)
    assert seen == dict.fromkeys(range(PARTITIONS), RECORDS - 1)
    if program == "once":
        database = sqlite3.connect(f"{folder}/totals.sqlite")
        found = database.execute("SELECT sum, count FROM total").fetchone()
        database.close()
        count = PARTITIONS * RECORDS
        assert found == (count * (count - 1) // 2, count), f"the sum and number are {found}"
    print(sum(moments.values()), dict(moments))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
