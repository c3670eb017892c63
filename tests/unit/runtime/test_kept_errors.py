"""Errors that are kept and raised for many callers: each gets one of its own, so that nothing grows and no caller's
frames are held."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import pyreplog
from pyreplog.testing import SimDisk


def thrice(call: Callable[[], object], kind: type[Exception]) -> None:
    """The call fails each time with a new error, whose traceback does not have the earlier ones'."""
    caught = []
    for _ in range(3):
        with pytest.raises(kind) as info:
            call()
        caught.append(info.value)
    assert len({id(error) for error in caught}) == 3
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in caught}) == 1
    assert len({str(error) for error in caught}) == 1
    assert len({repr(error.__cause__) for error in caught}) == 1


def test_a_closed_log(tmp_path: Path) -> None:
    """As a handler meets it that goes on calling."""
    log = pyreplog.open_log(tmp_path / "log")
    log.append(b"x")
    log.close()
    thrice(lambda: log.append(b"x"), pyreplog.ClosedError)
    thrice(lambda: log.append_many([b"x"]), pyreplog.ClosedError)
    thrice(lambda: log.flush(), pyreplog.ClosedError)


def test_a_poisoned_log() -> None:
    """After a sync that failed: closed, with its cause."""
    disk = SimDisk()
    with pyreplog.open_log("/log", disk=disk, durability="sync") as log:
        log.append(b"x")
        disk.fail("sync", "*.log")
        with pytest.raises(pyreplog.StorageError):
            log.append(b"x")
        thrice(lambda: log.append(b"x"), pyreplog.ClosedError)


def test_a_closed_cluster(tmp_path: Path) -> None:
    """And its clients."""
    cluster = pyreplog.Cluster(tmp_path / "data", nodes=1)
    cluster.admin.create_topic("t", replication_factor=1)
    producer, consumer = cluster.producer(), cluster.consumer("t")
    cluster.close()
    thrice(lambda: cluster.producer(), pyreplog.ClosedError)
    thrice(lambda: cluster.admin.topics(), pyreplog.ClosedError)
    thrice(lambda: producer.send("t", b"x"), pyreplog.ClosedError)
    thrice(lambda: next(iter(consumer)), pyreplog.ClosedError)


def test_a_topic_that_is_not_there(tmp_path: Path) -> None:
    """What the router remembers of it, too."""
    with pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster, cluster.producer() as producer:
        thrice(lambda: producer.send("none", b"x"), pyreplog.UnknownTopicError)
