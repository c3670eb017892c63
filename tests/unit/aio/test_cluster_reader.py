"""``aio.Cluster(path, mode="r")``: whole topics in a coroutine, read beside the process that writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyreplog
from pyreplog import aio


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[pyreplog.Cluster]:
    """A running cluster whose topic holds 5 records in each of two partitions."""
    with pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster:
        cluster.admin.create_topic("orders", partitions=2)
        with cluster.producer() as producer:
            for partition in range(2):
                producer.send_many("orders", [b"%d" % number for number in range(5)], partition=partition).wait()
        yield cluster


def test_the_names_of_the_blocking_reader_are_awaited(writer: pyreplog.Cluster) -> None:
    """Topics, description, scan, consumer with its positions, and follow give what the blocking calls give."""

    async def use() -> None:
        async with aio.Cluster(writer.path, mode="r") as cluster:
            assert isinstance(cluster, aio.ClusterReader)
            assert (await cluster.topics(), cluster.mode) == (["orders"], "r")
            assert (
                await cluster.describe("orders")
                == writer.admin.describe("orders")
                == await cluster.admin.describe("orders")
            )
            scan = await cluster.scan("orders")
            assert (await asyncio.to_thread(pa.table, scan)).num_rows == 10
            async with cluster.consumer("orders") as consumer:
                assert len([one async for one in consumer.until_end()]) == 10
                assert await consumer.seek("orders", 1, 3) == 3
                assert await consumer.position("orders", 1) == 3
                assert [one.offset for one in await consumer.poll(timeout=5)] == [3, 4]
                assert (await consumer.start_offset("orders", 0), await consumer.end_offset(("orders", 0))) == (0, 5)
                await consumer.seek_to_beginning()
                await consumer.assign(("orders", 0))
                assert [one.offset for one in await consumer.poll(count_max=2)] == [0, 1]
                await consumer.seek_to_end()
                assert await consumer.poll() == []
            assert len([one async for one in cluster.follow("orders", timeout=0)]) == 10

    asyncio.run(use())


def test_waiting_blocks_no_loop_and_loses_nothing(writer: pyreplog.Cluster) -> None:
    """A poll that waits is woken by the writer's record; one that is cancelled leaves its records to the next."""

    async def use() -> None:
        async with (
            aio.Cluster(writer.path, mode="r") as cluster,
            cluster.consumer("orders", auto_offset_reset="latest") as consumer,
        ):
            cancelled = asyncio.create_task(consumer.poll(timeout=None))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            waiting = asyncio.create_task(consumer.poll(timeout=30))
            with writer.producer() as producer:
                await producer.send("orders", b"new", partition=1)
                assert [one.value for one in await waiting] == [b"new"]
                endless = aiter(consumer)
                await producer.send("orders", b"more", partition=0)
                assert (await anext(endless)).value == b"more"
            assert (await anext(cluster.follow("orders"))).offset == 0

    asyncio.run(use())


def test_writing_is_refused(writer: pyreplog.Cluster) -> None:
    """A producer, administration and nodes are a ReadOnlyError."""

    async def use() -> None:
        async with aio.Cluster(writer.path, mode="r") as cluster:
            for call in (cluster.producer, lambda: cluster.nodes):
                with pytest.raises(pyreplog.ReadOnlyError):
                    call()
            with pytest.raises(pyreplog.ReadOnlyError):
                await cluster.admin.create_topic("new")
            with pytest.raises(pyreplog.ReadOnlyError):
                await cluster.leader("orders")

    asyncio.run(use())
