"""Which partition ``open_log`` means when the caller names none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import pyreplog
from pyreplog import aio


def _a_topic_of_four(path: Path) -> None:
    """A cluster whose topic holds 77 records, 18 of them in partition 0."""
    with pyreplog.Cluster(path, nodes=1) as cluster:
        cluster.admin.create_topic("orders", partitions=4)
        with cluster.producer() as producer:
            for partition, count in enumerate((18, 20, 19, 20)):
                producer.send_many("orders", [b"%d" % number for number in range(count)], partition=partition).wait()


def test_one_partition_is_never_given_out_as_the_topic(tmp_path: Path) -> None:
    """If a topic has several partitions and none is named, the log is refused, and the error names both ways to
    read it."""
    folder = tmp_path / "data"
    _a_topic_of_four(folder)
    with pytest.raises(
        pyreplog.ConfigError,
        match=r"'orders' .* 4 partitions \(0, 1, 2, 3\).*partition=N.*Cluster\('.*data', mode='r'\)",
    ):
        pyreplog.open_log(folder, "r")
    with pytest.raises(pyreplog.ConfigError, match="partition=N"):
        pyreplog.open_log(folder / "node-1", "r", topic="orders")
    counts = []
    for number in range(4):
        with pyreplog.open_log(folder, "r", partition=number) as log:
            counts.append(len(list(log)))
    assert counts == [18, 20, 19, 20]


def test_a_bare_partition_folder_is_that_partition(tmp_path: Path) -> None:
    """The folder ``orders-3`` is partition 3, and no argument has to say so."""
    _a_topic_of_four(tmp_path / "data")
    with pyreplog.open_log(tmp_path / "data/node-1/orders-3", "r") as log:
        assert (log.topic, log.partition, len(list(log))) == ("orders", 3, 20)


def test_the_only_partition_is_meant_whatever_its_number(tmp_path: Path) -> None:
    """A folder with one partition is opened as that one, to read and to write; a new log gets partition 0."""
    with pyreplog.open_log(tmp_path / "events", partition=5) as log:
        log.append(b"first")
    with pyreplog.open_log(tmp_path / "events") as log:
        assert (log.partition, log.append(b"second")) == (5, 1)
    with pyreplog.open_log(tmp_path / "events", "r") as log:
        assert [record.value for record in log] == [b"first", b"second"]
    with pyreplog.open_log(tmp_path / "new") as log:
        assert log.partition == 0


def test_writing_needs_the_number_if_there_are_several(tmp_path: Path) -> None:
    """To append to one of several partitions the caller names it; without that nothing is opened and nothing is
    made."""
    for number in (0, 1):
        pyreplog.open_log(tmp_path / "events", partition=number).close()
    before = sorted(path.name for path in (tmp_path / "events").iterdir())
    with pytest.raises(pyreplog.ConfigError, match=r"'events' .* 2 partitions \(0, 1\).*partition=N"):
        pyreplog.open_log(tmp_path / "events")
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == before
    with pyreplog.open_log(tmp_path / "events", partition=1) as log:
        assert (log.partition, log.append(b"x")) == (1, 0)
    with pyreplog.open_log(tmp_path / "events", topic="another") as log:
        assert (log.topic, log.partition) == ("another", 0)


def test_the_asyncio_twin_chooses_alike(tmp_path: Path) -> None:
    """``aio.open_log`` refuses to choose among several partitions, and opens the one that is named."""
    for number in (0, 1):
        pyreplog.open_log(tmp_path / "events", partition=number).close()

    async def use() -> int:
        with pytest.raises(pyreplog.ConfigError, match="partition=N"):
            await aio.open_log(tmp_path / "events", "r")
        async with aio.open_log(tmp_path / "events", "r", partition=1) as log:
            return log.partition

    assert asyncio.run(use()) == 1


def test_a_refused_creation_leaves_the_root_closed_cleanly(tmp_path: Path) -> None:
    """A folder of another program in the way of a new partition is refused, and the next opening recovers
    nothing."""
    with pyreplog.open_log(tmp_path / "data", topic="t", durability="os") as log:
        log.append(b"x")
    (tmp_path / "data" / "u-0").mkdir()
    (tmp_path / "data" / "u-0" / "x.txt").touch()
    with pytest.raises(pyreplog.StorageError):
        pyreplog.open_log(tmp_path / "data", topic="u")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "data" / "u-0" / "x.txt").exists()
