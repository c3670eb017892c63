"""``pyreplog.aio.Cluster``: producer, consumer and admin for coroutines, beside disks that stand still."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import pyreplog
from pyreplog import aio
from pyreplog.aio.calls import READERS_MAX, ThreadCalls
from pyreplog.aio.cluster import ProducerSettings
from pyreplog.record import BatchBuilder, RecordBatch, records_of
from pyreplog.runtime.consumer_settings import ConsumerSettings
from pyreplog.runtime.send_functions import NO_FUNCTIONS
from tests.unit.runtime.slow import FOREVER, SlowDisk


def run(main: Any) -> None:
    """Runs a coroutine function, and fails when it takes for ever."""

    async def limited() -> None:
        async with asyncio.timeout(FOREVER):
            await main()

    asyncio.run(limited())


def test_the_same_names(tmp_path: Path) -> None:
    """A topic is made, written and read; the leader dies and nothing acknowledged is lost: all of it awaited."""

    async def main() -> None:
        cluster = aio.Cluster(tmp_path / "data", nodes=3)
        with pytest.raises(pyreplog.ClosedError, match="not open yet"):
            _ = cluster.admin
        async with cluster:
            described = await cluster.admin.create_topic("orders", partitions=2, config={"durability": "os"})
            assert len(described.partitions) == 2
            assert await cluster.admin.topics() == ["orders"]
            async with cluster.producer() as producer:
                assert await producer.partitions("orders") == 2
                acks = [await producer.send("orders", b"%d" % number, partition=0) for number in range(100)]
                assert [(await ack).offset for ack in acks] == list(range(100))
                assert [
                    place.offset for place in await (await producer.send_many("orders", [b"a", b"b"], partition=1))
                ] == [0, 1]
                leader = await cluster.leader("orders", 0)
                assert leader is not None
                await leader.kill()
                assert not leader.alive
                assert (await (await producer.send("orders", b"after", partition=0))).offset == 100
                await leader.restart()
                assert leader.alive
                await producer.flush()
            async with cluster.consumer("orders") as consumer:
                found = [record async for record in consumer.until_end()]
                assert [record.value for record in found if record.partition == 0] == [
                    b"%d" % number for number in range(100)
                ] + [b"after"]
                assert len(found) == 103
                assert await consumer.poll(0.01) == []
                assert await consumer.seek("orders", 0, 99) == 99
                assert [record.value for record in await consumer.poll(5.0)] == [b"99", b"after"]
                assert await consumer.end_offset("orders", 0) == 101
                assert await consumer.position("orders", 0) == 101
                # A loop that is left has read what it gave, and nothing else.
                await consumer.seek("orders", 0, 10)
                async for record in consumer:
                    assert await consumer.position("orders", 0) == record.offset + 1
                    if record.offset == 12:
                        break
                assert [record.offset for record in await consumer.poll(5.0, 2)] == [13, 14]
                records = consumer.until_end()
                assert (await anext(records)).offset == 15
                async with cluster.producer() as producer:
                    await (await producer.send("orders", b"behind", partition=0))
                assert [record.offset async for record in records] == list(range(16, 101))
                assert [record.value for record in await consumer.poll(5.0)] == [b"behind"]
            scan = await cluster.scan("orders", ["value"])
            assert sum(batch.row_count for batch in await asyncio.to_thread(lambda: list(scan.batches()))) == 104

    run(main)


@pytest.mark.parametrize("name", ["Admin", "Cluster", "ClusterNode", "Consumer", "Log", "Producer", "Queue"])
def test_every_name_of_the_blocking_face_is_there(name: str) -> None:
    """What a user may ask of an object there, somebody who writes coroutines may ask of it here."""
    blocking, awaited = (
        {entry for entry in dir(getattr(of, name)) if not entry.startswith("_")} for of in (pyreplog, aio)
    )
    assert blocking - awaited == set()


@pytest.mark.parametrize(("make", "settings"), [("producer", ProducerSettings), ("consumer", ConsumerSettings)])
def test_a_clients_settings_are_those_of_the_blocking_one(make: str, settings: type) -> None:
    """Who checks types or is helped by an editor is told of the same settings, of the same types."""
    blocking = getattr(pyreplog.Cluster, make)
    named = {name for name, value in inspect.signature(blocking).parameters.items() if value.kind is value.KEYWORD_ONLY}
    hints = get_type_hints(blocking)
    assert {name: hints[name] for name in named - {"name"}} == get_type_hints(settings)


def test_a_node_that_gets_no_turn(tmp_path: Path) -> None:
    """It is fenced while it is paused, and serves again when it goes on; it has not failed, and lost nothing."""

    async def main() -> None:
        async with aio.Cluster(
            tmp_path / "data",
            nodes=3,
            roles={3: "controller"},
            config={"session_timeout_ms": 200, "heartbeat_interval_ms": 50},
        ) as cluster:
            await cluster.admin.create_topic("orders", config={"min.insync.replicas": 1})
            leader = await cluster.leader("orders")
            assert leader is not None
            await leader.pause()
            async with cluster.producer(request_timeout_ms=200) as producer:
                assert (await (await producer.send("orders", b"by the other"))).offset == 0
            assert (await cluster.leader("orders")) is not leader
            await leader.resume()
            assert leader.alive
            assert leader.failure is None
            assert leader.losses == []

    run(main)


def test_a_consumers_iterators_go_on_after_a_timeout(tmp_path: Path) -> None:
    """A cancelled ``anext`` ends neither: each record comes once, in order."""

    async def run() -> None:
        async with aio.Cluster(tmp_path, nodes=1) as cluster:
            await cluster.admin.create_topic("t")
            async with cluster.producer() as producer:
                await producer.send_many("t", [b"%d" % number for number in range(20)])
                await producer.flush()
                for name in ("for ever", "until the end"):
                    async with cluster.consumer("t") as consumer:
                        records = aiter(consumer) if name == "for ever" else consumer.until_end()
                        offsets = []
                        for turn in range(1000):
                            with suppress(TimeoutError):
                                offsets.append((await asyncio.wait_for(anext(records), 0 if turn % 2 else 1)).offset)
                            if len(offsets) == 20:
                                break
                        assert offsets == list(range(20)), name
                        if name == "for ever":
                            with pytest.raises(TimeoutError):
                                await asyncio.wait_for(anext(records), 0.001)
                            await (await producer.send("t", b"20"))
                            assert (await anext(records)).offset == 20
                        else:
                            offsets.append((await anext(records)).offset)  # sent before the loop began
                            with pytest.raises(StopAsyncIteration):
                                await anext(records)

    asyncio.run(run())


def test_nothing_to_read(tmp_path: Path) -> None:
    """Who would wait for ever for records of nothing is told so."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster, cluster.consumer([]) as consumer:
            assert await consumer.poll() == [record async for record in consumer.until_end()] == []
            for reading in (consumer.poll(None), anext(aiter(consumer))):
                with pytest.raises(pyreplog.ConfigError, match="nothing is assigned"):
                    await reading

    run(main)


def test_waiting_for_records(tmp_path: Path) -> None:
    """A poll that waits is woken by what is sent; one that is cancelled loses nothing."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            await cluster.admin.create_topic("t", config={"durability": "os"})
            async with cluster.producer() as producer, cluster.consumer("t") as consumer:
                got: list[bytes | None] = []
                for turn in range(30):
                    task = asyncio.create_task(consumer.poll(None))
                    for _ in range(turn % 4):
                        await asyncio.sleep(0)
                    await producer.send("t", b"%d" % turn)
                    for _ in range(turn % 5):
                        await asyncio.sleep(0.0005)
                    if turn % 2:
                        task.cancel()
                    try:
                        got += [record.value for record in await task]
                    except asyncio.CancelledError:
                        pass
                while len(got) < 30:
                    got += [record.value for record in await consumer.poll(None)]
                assert got == [b"%d" % turn for turn in range(30)]

    run(main)


class Held:
    """A consumer whose first look takes until it is told, having moved on already."""

    _decodes = False

    def __init__(self) -> None:
        self.began, self.told = threading.Event(), threading.Event()
        self.offset = 0

    def _take(self, count_max: int | None = None, ends: object = None) -> tuple[list[pyreplog.Record], None]:
        """The next record."""
        offset, self.offset = self.offset, self.offset + 1
        if not self.began.is_set():
            self.began.set()
            self.told.wait(FOREVER)
        builder = BatchBuilder()
        assert builder.append(b"", None, (), 0)
        batch = RecordBatch(builder.finish(base_offset=offset, leader_epoch=0))
        return records_of(batch, "t", 0), None

    def _check_assigned(self) -> None:
        """There is something to read."""

    def _known_position(self, topic: str, partition: int) -> int:
        """Behind what was taken."""
        return self.offset

    def seek(
        self,
        topic: str,
        partition: int,
        offset: int | None = None,
        *,
        timestamp: object = None,
        timeout: float | None = None,
    ) -> int:
        """Go on there."""
        assert offset is not None
        self.offset = offset
        return offset


def test_a_poll_of_no_records_is_refused() -> None:
    """It would wait for ever, or hand out all but some of what a cancelled poll left."""

    async def main() -> None:
        calls = ThreadCalls("consumer")
        consumer = aio.Consumer(Held(), calls)  # type: ignore[arg-type]
        for count in (0, -1, 1.5):
            with pytest.raises(pyreplog.ConfigError, match="count_max is .*; it must be a whole number from 1"):
                await consumer.poll(0.0, count)  # type: ignore[arg-type]
        calls.stop()

    run(main)


class Watched:
    """A record of which the seek that may have to forget it asks where it is: that takes until it is told."""

    def __init__(self, partition: int, began: threading.Event, told: threading.Event) -> None:
        self.topic, self._partition, self._began, self._told = "t", partition, began, told

    @property
    def partition(self) -> int:
        """Its partition, to the thread that seeks."""
        self._began.set()
        self._told.wait(FOREVER)
        return self._partition


@pytest.mark.parametrize("ask", ["poll", "loop"])
@pytest.mark.parametrize("partition", [0, 1])
def test_a_cancelled_seek_that_is_under_way_gives_no_record_twice(partition: int, ask: str) -> None:
    """Who polls meanwhile gets what the seek leaves, once."""

    async def main() -> None:
        held = Held()
        held.told.set()
        consumer = aio.Consumer(held, ThreadCalls("test"))  # type: ignore[arg-type]
        began, told = threading.Event(), threading.Event()
        left = [Watched(partition, began, told), Watched(1, began, told)]
        consumer._left.extend(left)  # type: ignore[arg-type]
        seek = asyncio.create_task(consumer.seek("t", 0, 50))
        await asyncio.to_thread(began.wait, FOREVER)
        seek.cancel()
        await asyncio.gather(seek, return_exceptions=True)
        got: list[Any] = []

        async def poll() -> None:
            while len(got) < 4:
                got.extend(await consumer.poll(None, 1))

        async def loop() -> None:
            async for record in consumer:
                got.append(record)
                if len(got) == 4:
                    break

        asked = asyncio.create_task(poll() if ask == "poll" else loop())
        await asyncio.wait([asked], timeout=0.05)
        told.set()
        await asked
        kept = left if partition else left[1:]
        assert got[: len(kept)] == kept
        assert [record.offset for record in got[len(kept) :]] == list(range(50, 54 - len(kept)))

    run(main)


@pytest.mark.parametrize("after", ["poll", "position", "seek"])
def test_a_cancelled_poll_that_is_under_way_comes_first(after: str) -> None:
    """What it takes is handed out before what is taken later, counts for the position, and is forgotten by a
    seek."""

    async def main() -> None:
        held = Held()
        consumer = aio.Consumer(held, ThreadCalls("test"))  # type: ignore[arg-type]
        task = asyncio.create_task(consumer.poll(None))
        await asyncio.to_thread(held.began.wait, FOREVER)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        coroutine: Any = (
            consumer.poll(None)
            if after == "poll"
            else consumer.position("t", 0)
            if after == "position"
            else consumer.seek("t", 0, 50)
        )
        second = asyncio.create_task(coroutine)
        await asyncio.wait([second], timeout=0.05)
        held.told.set()
        found = await second
        if after == "seek":
            assert [record.offset for record in await consumer.poll(None)] == [50]
        elif after == "position":
            assert found == 0
        else:
            offsets = [record.offset for record in found]
            while len(offsets) < 2:
                offsets += [record.offset for record in await consumer.poll(None)]
            assert offsets == [0, 1]

    run(main)


def test_slow_disks_never_block_the_loop(tmp_path: Path) -> None:
    """While every node's disk stands still in a write or a read, sends and polls wait, and the loop goes on."""

    async def main() -> None:
        disks: list[SlowDisk] = []

        def make(name: str) -> SlowDisk:
            disks.append(SlowDisk("write", "read"))
            return disks[-1]

        async with aio.Cluster(tmp_path / "data", nodes=3, disk=make) as cluster:
            await cluster.admin.create_topic("t")
            async with cluster.producer(delivery_timeout_ms=60_000) as producer, cluster.consumer("t") as consumer:
                await (await producer.send("t", b"before"))
                for disk in disks:
                    disk.gate.clear()
                tasks = [asyncio.create_task(_sent(producer)) for _ in range(20)]
                polls = asyncio.create_task(consumer.poll(None))
                loop = asyncio.get_running_loop()
                longest = 0.0
                for _ in range(200):
                    before = loop.time()
                    await asyncio.sleep(0.001)
                    longest = max(longest, loop.time() - before)
                assert longest < 5.0, "the loop stood still"
                assert not any(task.done() for task in tasks)
                for disk in disks:
                    disk.gate.set()
                await asyncio.gather(*tasks)
                assert await polls

    run(main)


async def _sent(producer: aio.Producer) -> pyreplog.RecordMetadata:
    return await (await producer.send("t", b"x"))


def test_it_is_loaded_in_the_thread_that_opens_it() -> None:
    """A first cluster's modules take a fifth of a second to load: not on the event loop."""
    code = (
        'import sys; from pyreplog import aio; aio.Cluster("data"); sys.exit("pyreplog.runtime.cluster" in sys.modules)'
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_reading_up_to_an_end_whose_records_are_deleted(tmp_path: Path) -> None:
    """It ends where the positions are behind the end, though no record brought them there."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            await cluster.admin.create_topic("orders", config={"durability": "os"})
            async with cluster.producer() as producer:
                for number in range(5):
                    await (await producer.send("orders", b"%d" % number))
            async with cluster.consumer("orders", fetch_max_bytes=1, max_poll_records=1) as consumer:
                records = consumer.until_end()
                assert (await anext(records)).offset == 0
                await cluster.admin.delete_records("orders", {0: -1})
                async with asyncio.timeout(5):
                    found = [record.offset async for record in records]
                assert found in ([], [1]), "what had come already"
                assert await consumer.position("orders", 0) == 5

    run(main)


def test_sends_keep_the_order_in_which_they_were_begun(tmp_path: Path) -> None:
    """One that needs no thread stands behind those that wait for theirs. Nor is anything left of a poll that nobody
    answered."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            await cluster.admin.create_topic("orders", config={"durability": "os"})
            async with cluster.producer() as producer:
                await (await producer.send("orders", b"first"))
                gate = threading.Event()
                blocker = asyncio.ensure_future(producer._calls.write(gate.wait, FOREVER))
                await asyncio.sleep(0)
                many = asyncio.ensure_future(producer.send_many("orders", [b"a", b"b"]))
                await asyncio.sleep(0)
                one = asyncio.ensure_future(producer.send("orders", b"c"))
                await asyncio.sleep(0)
                gate.set()
                await blocker
                assert [place.offset for place in await (await many)] == [1, 2]
                assert (await (await one)).offset == 3
            async with cluster.consumer("orders") as consumer:
                while len(await consumer.poll(FOREVER)) < 4:
                    await consumer.seek_to_beginning()
                consumer._calls.dispatch = lambda call: call()  # type: ignore[method-assign,assignment]
                assert await consumer.poll(0.0) == []
                assert consumer._consumer._machine._waiting == []

    run(main)


def test_a_flush_holds_up_no_send() -> None:
    """It may take as long as replicas are missing; those of other partitions are there."""

    class Stuck:
        closed = False
        _functions = NO_FUNCTIONS
        _has_functions = False

        def __init__(self) -> None:
            self.began, self.told = threading.Event(), threading.Event()
            self.sent: list[bytes] = []

        def _offer(self, topic: str, value: bytes, *others: object) -> None:
            """The long way."""

        def _knows(self, topic: str) -> bool:
            """There is news of it."""
            return True

        def send(self, topic: str, value: bytes, **others: object) -> bytes:
            """No Ack."""
            self.sent.append(value)
            return value

        def flush(self, timeout: float | None) -> list[bytes]:
            """What was sent before, when told."""
            sent = list(self.sent)
            self.began.set()
            assert self.told.wait(FOREVER)
            assert sent == [b"before"]
            return sent

    async def main() -> None:
        stuck, calls = Stuck(), ThreadCalls("test")
        producer = aio.Producer(stuck, calls)  # type: ignore[arg-type]
        sending = asyncio.create_task(producer.send("t", b"before"))
        await asyncio.sleep(0)
        flushing = asyncio.create_task(producer.flush())
        await sending
        assert await asyncio.to_thread(stuck.began.wait, FOREVER)
        async with asyncio.timeout(FOREVER / 2):
            await producer.send("t", b"beside")
        assert not flushing.done()
        stuck.told.set()
        await flushing
        calls.stop()

    asyncio.run(main())


def test_who_waits_for_news_of_a_topic_holds_up_no_other(tmp_path: Path) -> None:
    """Those of one topic keep their order, and a flush or a close waits for all of them."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            for name in ("known", "new", "newer"):
                await cluster.admin.create_topic(name, config={"durability": "os"})
            producer = await cluster.producer(max_block_ms=60_000)
            await (await producer.send("known", b"first"))
            node: Any = cluster._cluster.nodes[0]
            for topic, end in (("new", producer.flush), ("newer", producer.close)):
                node.pause()
                waiting = [asyncio.create_task(producer.send(topic, b"%d" % number)) for number in range(3)]
                await asyncio.sleep(0)
                await producer.send_many("known", [b"beside", b"it"])
                ending: asyncio.Task[None] = asyncio.create_task(end())
                await asyncio.sleep(0)
                assert not any(task.done() for task in (*waiting, ending))
                node.resume()
                await ending
                acks = [task.result() for task in waiting]
                assert all(ack.done() for ack in acks)
                assert [ack.offset for ack in acks] == [0, 1, 2]
            assert producer._lines == {}
            with pytest.raises(pyreplog.ClosedError):
                await producer.send("newest", b"")

    run(main)


def test_who_waits_for_news_of_a_topic_waits_from_its_call_on(tmp_path: Path) -> None:
    """However many wait for the same, or gave up."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            await cluster.admin.create_topic("new")
            async with cluster.producer(max_block_ms=1_000) as producer:
                node: Any = cluster._cluster.nodes[0]
                node.pause()
                loop = asyncio.get_running_loop()
                began = loop.time()
                given_up = asyncio.create_task(producer.send("new", b""))
                await asyncio.sleep(0)
                waiting = [producer.send("new", b"") for _ in range(20)]
                told = asyncio.gather(*waiting, return_exceptions=True)
                await asyncio.sleep(0)
                given_up.cancel()
                assert {type(error) for error in await told} == {pyreplog.RequestTimedOutError}
                assert 1.0 <= loop.time() - began < 10.0, "not each behind the one before"
                with pytest.raises(TimeoutError, match=r"after 0\.01 s"):
                    late = asyncio.ensure_future(producer.send("new", b""))
                    await asyncio.sleep(0)
                    await producer.flush(0.01)
                node.resume()
                assert (await (await late)).offset == 0

    run(main)


def test_a_close_takes_no_longer_than_it_is_told() -> None:
    """However long a send waits for room before it."""

    class Full:
        closed = False
        _functions = NO_FUNCTIONS
        _has_functions = False

        def __init__(self) -> None:
            self.began, self.ended = threading.Event(), threading.Event()

        def _knows(self, topic: str) -> bool:
            """There is news of it."""
            return True

        def send_many(self, topic: str, values: list[bytes], **others: object) -> list[bytes]:
            """Once there is room, or it is closed."""
            self.began.set()
            assert self.ended.wait(FOREVER)
            return values

        def flush(self, timeout: float | None) -> None:
            """The close comes before it."""

        def close(self, timeout: float | None) -> None:
            """Nothing was acknowledged."""
            assert timeout == 0.0
            self.ended.set()
            raise TimeoutError

    async def main() -> None:
        full = Full()
        producer = aio.Producer(full, ThreadCalls("test"))  # type: ignore[arg-type]
        sending = asyncio.create_task(producer.send_many("t", [b"x"]))
        assert await asyncio.to_thread(full.began.wait, FOREVER)
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        async with asyncio.timeout(FOREVER / 2):
            for ending in (producer.close(0.01), flushing):  # a flush that waits without end ends with it
                with pytest.raises(TimeoutError, match=r"not all is acknowledged after 0\.01 s"):
                    await ending
        await sending

    asyncio.run(main())


def test_a_close_that_no_thread_was_to_be_had_for_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next call, also where a send was under way before it; until then the producer is open."""

    class Sending:
        closed = False
        _functions = NO_FUNCTIONS
        _has_functions = False

        def __init__(self) -> None:
            self.began, self.go_on = threading.Event(), threading.Event()

        def _knows(self, topic: str) -> bool:
            """There is news of it."""
            return True

        def send_many(self, topic: str, values: list[bytes], **others: object) -> list[bytes]:
            """It takes a while."""
            self.began.set()
            assert self.go_on.wait(FOREVER)
            return values

        def close(self, timeout: float | None) -> None:
            """In its turn."""
            self.closed = True
            self.go_on.set()

    async def main() -> None:
        sending = Sending()
        producer = aio.Producer(sending, ThreadCalls("test"))  # type: ignore[arg-type]
        sent = asyncio.create_task(producer.send_many("t", [b"x"]))
        assert await asyncio.to_thread(sending.began.wait, FOREVER)

        def refuse(call: object) -> None:
            raise pyreplog.NoThreadError("for the test")

        with monkeypatch.context() as patched:
            patched.setattr(producer._calls._flushing, "submit", refuse)
            with pytest.raises(pyreplog.NoThreadError):
                await producer.close(0.01)
        assert not producer.closed
        await producer.close(0.01)
        assert sending.closed
        assert producer.closed
        assert await sent == [b"x"]

    asyncio.run(main())


def test_a_forked_child_does_not_wait_for_its_parents_senders(tmp_path: Path) -> None:
    """Whoever waited for news of a topic there never goes on here."""
    code = """
import asyncio, os, sys, pyreplog
from pyreplog import aio
async def main():
    cluster = await aio.Cluster(sys.argv[1], nodes=1)
    await cluster.admin.create_topic("new")
    producer = await cluster.producer(max_block_ms=60_000)
    cluster._cluster.nodes[0].pause()
    sending = asyncio.create_task(producer.send("new", b"parent"))
    await asyncio.sleep(0)
    return cluster, producer, sending
async def child(producer):
    for use in (
        lambda: producer.send("new", b""), lambda: producer.send_many("new", [b""]),
        producer.flush, producer.close,
    ):
        try:
            await use()
        except pyreplog.ForkedError:
            continue
        os._exit(1)
async def end(cluster, sending):
    cluster._cluster.nodes[0].resume()
    assert (await (await sending)).offset == 0
    await cluster.close()
with asyncio.Runner() as runner:
    cluster, producer, sending = runner.run(main())
    pid = os.fork()
    if not pid:
        asyncio.new_event_loop().run_until_complete(child(producer))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    runner.run(end(cluster, sending))
"""
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, str(tmp_path / "data")], check=True, timeout=60
    )


@pytest.mark.parametrize("ask", ["seek", "seek_to_beginning", "seek_to_end", "assign", "position"])
def test_what_was_cancelled_while_it_waits_for_an_answer_holds_up_no_poll(tmp_path: Path, ask: str) -> None:
    """However many: a poll waits no longer than it is told; and what was cancelled changes nothing later."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            for name in ("orders", "other"):
                await cluster.admin.create_topic(name, config={"durability": "os"})
            async with cluster.producer() as producer:
                await producer.send_many("orders", [b"%d" % number for number in range(5)])
            async with cluster.consumer("orders") as consumer:
                assert len(await consumer.poll(FOREVER, 3)) == 3
                if ask == "position":
                    await consumer.assign("other")
                node: Any = cluster._cluster.nodes[0]
                node.pause()
                asks: dict[str, Any] = {
                    "seek": lambda: consumer.seek("orders", 0, timestamp=0, timeout=FOREVER),
                    "seek_to_beginning": consumer.seek_to_beginning,
                    "seek_to_end": consumer.seek_to_end,
                    "assign": lambda: consumer.assign("new", timeout=FOREVER),
                    "position": lambda: consumer.position("other", 0, timeout=FOREVER),
                }
                began = threading.Semaphore(0)
                submit = consumer._calls._reading.submit

                def told(call: Any) -> Any:
                    def run() -> Any:
                        began.release()
                        return call()

                    return submit(run)

                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(consumer._calls._reading, "submit", told)
                    for _ in range(READERS_MAX):
                        task = asyncio.create_task(asks[ask]())
                        assert await asyncio.to_thread(began.acquire, timeout=FOREVER)
                        task.cancel()
                        await asyncio.gather(task, return_exceptions=True)
                async with asyncio.timeout(FOREVER / 4):
                    found = await consumer.poll(0.0)
                assert [record.offset for record in found] == ([] if ask == "position" else [3, 4])
                node.resume()

    run(main)


def test_a_cancelled_seek_that_waits_for_another_call_is_not_carried_out_later() -> None:
    """What was asked after it counts."""

    async def main() -> None:
        held = Held()
        consumer = aio.Consumer(held, ThreadCalls("test"))  # type: ignore[arg-type]
        polling = asyncio.create_task(consumer.poll(None))
        await asyncio.to_thread(held.began.wait, FOREVER)
        polling.cancel()
        seeking = asyncio.create_task(consumer.seek("t", 0, 50))
        while len(consumer._calls._flushing._pool._threads) < 2:
            await asyncio.sleep(0)
        seeking.cancel()
        await asyncio.gather(polling, seeking, return_exceptions=True)
        held.told.set()
        got = [record.offset for record in await consumer.poll(None)]
        while len(got) < 3:
            got += [record.offset for record in await consumer.poll(None)]
        assert got[:3] == [0, 1, 2]

    run(main)


def test_a_node_that_is_not_there(tmp_path: Path) -> None:
    """An IndexError that says which there are; before the cluster is open there are none to ask for."""

    async def main() -> None:
        cluster = aio.Cluster(tmp_path / "data", nodes=3)
        with pytest.raises(pyreplog.ClosedError, match="not open yet"):
            _ = cluster.nodes
        async with cluster:
            with pytest.raises(
                IndexError, match=r"there is no nodes\[3\]: nodes\[0\] to nodes\[2\] are the nodes 1 to 3"
            ):
                _ = cluster.nodes[3]
        assert not cluster.nodes[2].alive

    run(main)
