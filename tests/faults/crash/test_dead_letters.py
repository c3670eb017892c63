"""Dead letters at every call of the disk: the letter first, then the commit; one letter, whatever dies between.

Of a log, by its reader and by its queue, and of a cluster of three replicas. A run takes a share of the calls, another
one with each seed; the soak takes all.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

import pyreplog
from pyreplog import Cluster, RetryPolicy, TopicPartition, open_log
from pyreplog.readers import read_letter
from pyreplog.system import SystemClock
from pyreplog.testing import SimClock, SimDisk, crash_points, error_points
from tests.seed import SEED, tell

KEY = TopicPartition("events", 0)
VALUES = [b"0", b"bad", b"2", b"bad"]
POISON = [1, 3]
THRICE = RetryPolicy(attempts=3, backoff_ms=0)
"""A process that ends uses up an attempt of the record in hand, and a test ends two processes."""


def handler(record: pyreplog.Record) -> None:
    """Raise for the poison."""
    if record.value == b"bad":
        raise ValueError("poison")


def offsets_of(records: list[pyreplog.Record]) -> list[int]:
    """The offsets that the dead letters name, in their order."""
    found = [read_letter(record.headers) for record in records]
    assert None not in found
    return [letter.offset for letter in found if letter is not None]


# ------------------------------------------------------------------------------------------- a log


def log_disk(random: Random) -> SimDisk:
    """A disk with a log."""
    disk = SimDisk(random)
    with open_log("events", disk=disk, clock=SimClock()) as log:
        log.append_many(VALUES)
    return disk


def log_reader(disk: SimDisk, acknowledged: list[int]) -> None:
    """One process reads to the end."""
    with open_log("events", "r", disk=disk, clock=SimClock()) as log, log.consumer("billing") as consumer:
        consumer.run(handler, retry=THRICE, until_end=True)


def check_log_reader(disk: SimDisk, acknowledged: object) -> None:
    """The next process ends with one dead letter for each poison record, and all committed."""
    log_reader(disk, [])
    check_letters(disk)
    with open_log("events", "r", disk=disk, clock=SimClock()) as log, log.consumer("billing") as consumer:
        assert consumer.committed(KEY) == len(VALUES)


def check_letters(disk: SimDisk) -> None:
    """The log of the dead letters has one for each poison record."""
    with open_log("events.dlq", "r", disk=disk, clock=SimClock()) as dead:
        assert offsets_of(list(dead)) == POISON


def log_queue(disk: SimDisk, acknowledged: list[int]) -> None:
    """One worker takes what is there, and rejects the poison."""
    with open_log("events", "r", disk=disk, clock=SimClock()) as log, log.queue("billing") as queue:
        while (record := queue.receive()) is not None:
            if record.value == b"bad":
                queue.reject(record, "poison")
            else:
                queue.accept(record)


def check_log_queue(disk: SimDisk, acknowledged: object) -> None:
    """The next worker ends with one dead letter for each poison record, and nothing in flight."""
    log_queue(disk, [])
    check_letters(disk)
    with open_log("events", "r", disk=disk, clock=SimClock()) as log, log.queue("billing") as queue:
        stats = queue.stats()
    assert (stats.next_offset, stats.acquired, stats.available) == (len(VALUES), 0, 0)


# --------------------------------------------------------------------------------------- a cluster


class StoppedClock(SystemClock):
    """The time of the machine without the time that checks take, in which the clusters at work stand still."""

    stopped_ns = 0

    def monotonic_ns(self) -> int:
        """The time that the clusters had."""
        return super().monotonic_ns() - StoppedClock.stopped_ns


def cluster_on(disk: SimDisk) -> Cluster:
    """The cluster whose nodes share ``disk``, so that all of them end at one call."""
    return Cluster("/data", nodes=3, disk=lambda name: disk, clock=StoppedClock())


def cluster_disk(random: Random) -> SimDisk:
    """A disk with a cluster that has a topic of three replicas."""
    disk = SimDisk(random)
    with cluster_on(disk) as cluster:
        cluster.admin.create_topic("events", partitions=1, replication_factor=3)
        with cluster.producer() as producer:
            producer.send_many("events", VALUES).wait(30)
    return disk


def cluster_reader(disk: SimDisk, acknowledged: list[int]) -> None:
    """One process runs the cluster and reads to the end."""
    with cluster_on(disk) as cluster, cluster.consumer("events", name="billing") as consumer:
        consumer.run(handler, retry=THRICE, until_end=True)


def check_cluster_reader(disk: SimDisk, acknowledged: object) -> None:
    """As for a log."""
    began_ns = SystemClock().monotonic_ns()
    cluster_reader(disk, [])
    with cluster_on(disk) as cluster:
        with cluster.consumer("dlq.events") as dead:
            assert sorted(offsets_of(list(dead.until_end()))) == POISON
        with cluster.consumer("events", name="billing") as consumer:
            assert consumer.committed(KEY) == len(VALUES)
    StoppedClock.stopped_ns += SystemClock().monotonic_ns() - began_ns


# -------------------------------------------------------------------------------------- exploration


class Life(NamedTuple):
    """A program to be ended at each of its calls, and the share of a run."""

    disk: Callable[[Random], SimDisk]
    live: Callable[[SimDisk, list[int]], None]
    check: Callable[[SimDisk, object], None]
    crash_every: int
    error_every: int


LIVES = {
    "log": Life(log_disk, log_reader, check_log_reader, 31, 41),
    "queue": Life(log_disk, log_queue, check_log_queue, 31, 41),
    "cluster": Life(cluster_disk, cluster_reader, check_cluster_reader, 411, 601),
}


@pytest.mark.parametrize("name", LIVES)
def test_one_dead_letter_whatever_dies(name: str) -> None:
    """A share of the calls: power loss and a kill before each of them."""
    tell()
    life = LIVES[name]
    every = life.crash_every
    report = crash_points(
        life.live, life.check, seed=SEED, damages=1, compound=0, disk=life.disk, every=every, first=1 + SEED % every
    )
    assert report.states > 1


@pytest.mark.parametrize("name", ["log", "queue", pytest.param("cluster", marks=pytest.mark.soak)])
def test_one_dead_letter_whatever_is_refused(name: str) -> None:
    """A share of the calls: each of them fails once, and for ever. A cluster takes a minute for one call."""
    tell()
    life = LIVES[name]
    every = life.error_every
    report = error_points(
        life.live, life.check, seed=SEED, damages=1, errors=(errno.EIO,), disk=life.disk,
        every=every, first=1 + SEED % every,
    )  # fmt: skip
    assert report.states > 2


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LIVES)
def test_one_dead_letter_whatever_dies_at_every_call(name: str) -> None:
    """Every call, with second crashes in the recovery."""
    tell()
    life = LIVES[name]
    print(crash_points(life.live, life.check, seed=SEED, damages=3, compound=1, disk=life.disk))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LIVES)
def test_one_dead_letter_whatever_is_refused_at_every_call(name: str) -> None:
    """Every call."""
    tell()
    life = LIVES[name]
    print(
        error_points(
            life.live, life.check, seed=SEED, damages=1, errors=(errno.EIO, errno.ENOSPC, errno.EMFILE), disk=life.disk
        )
    )
