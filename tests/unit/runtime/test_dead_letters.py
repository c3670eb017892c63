"""Poison records: attempts, dead letters, each once, whatever ends the process between them and the commit."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyreplog
from pyreplog import Cluster, ConfigError, Log, RetryPolicy, StorageError, TopicPartition, aio, open_log
from pyreplog.readers import DeadLetter, read_letter, source_headers
from pyreplog.runtime import dead_letter_log

KEY = TopicPartition("events", 0)
AT_ONCE = RetryPolicy(attempts=3, backoff_ms=0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log of six records, of which the third is poison."""
    with open_log(tmp_path / "events", durability="os") as log:
        log.append_many(
            [b"0", b"1", b"bad", b"3", b"4", b"5"], keys=[b"k"] * 6, headers=[[("h", b"x"), ("h", None)]] * 6
        )
        yield log


def letters(path: str | Path, topic: str = "events") -> list[DeadLetter]:
    """What the dead letters say."""
    with open_log(path, "r", topic=f"dlq.{topic}") as log:
        found = [read_letter(record.headers) for record in log]
    assert None not in found
    return [letter for letter in found if letter is not None]


class Handler:
    """Raises for the poison, and notes the rest."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.tries = 0

    def __call__(self, record: pyreplog.Record) -> None:
        if record.value == b"bad":
            self.tries += 1
            raise ValueError("cannot take it: é")
        self.seen.append(record.offset)


def test_a_poison_record_becomes_a_dead_letter(log: Log) -> None:
    """After its attempts it is written with its value, key, headers and the six of KIP-1191, and is passed."""
    handler = Handler()
    with log.consumer("billing") as consumer:
        consumer.run(handler, retry=AT_ONCE, until_end=True)
        assert consumer.committed(KEY) == 6
    assert (handler.seen, handler.tries) == ([0, 1, 3, 4, 5], 3)
    with open_log(f"{log.path}.dlq", "r") as dead:
        (letter,) = list(dead)
        assert (dead.topic, dead.durability) == ("dlq.events", "os")
    assert (letter.key, letter.value) == (b"k", b"bad")
    assert list(letter.headers) == [
        ("h", b"x"),
        ("h", None),
        ("__dlq.errors.topic", b"events"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"2"),
        ("__dlq.errors.group", b"billing"),
        ("__dlq.errors.delivery.count", b"3"),
        ("__dlq.errors.message", "ValueError: cannot take it: é".encode()),
    ]
    assert source_headers(letter.headers) == [("h", b"x"), ("h", None)]
    assert read_letter(letter.headers[:-1]) is None


def test_without_a_policy_the_exception_is_raised(log: Log) -> None:
    """The record comes again at the next call, and nothing behind it is committed before."""
    handler = Handler()
    with log.consumer("billing") as consumer:
        for _ in range(2):
            with pytest.raises(ValueError, match="cannot take it"):
                consumer.run(handler, retry=None, until_end=True)
            assert consumer.committed(KEY) == 2
        assert (handler.seen, handler.tries) == ([0, 1], 2)
        with pytest.raises(ConfigError, match="attempts"):
            consumer.run(handler, retry=RetryPolicy(attempts=0))
        with pytest.raises(ConfigError, match="retry is 3; it must be a RetryPolicy"):
            consumer.run(handler, retry=3)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="handler"):
            consumer.run(None)  # type: ignore[arg-type]
    assert not os.path.exists(f"{log.path}.dlq")


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_is_no_attempt(log: Log, interruption: type[BaseException]) -> None:
    """Ctrl-C and an exit are raised and do not count."""
    tries = 0

    def interrupted(record: pyreplog.Record) -> None:
        nonlocal tries
        if record.value == b"bad":
            tries += 1
            if tries < 4:
                raise interruption
            raise ValueError

    for _ in range(3):
        with log.consumer("billing") as consumer, pytest.raises(interruption):
            consumer.run(interrupted, retry=AT_ONCE, until_end=True)
    with log.consumer("billing") as consumer:
        consumer.run(interrupted, retry=AT_ONCE, until_end=True)
    assert tries == 3 + AT_ONCE.attempts
    (letter,) = letters(f"{log.path}.dlq")
    assert letter.delivery_count == 3


def killed_by_a_record(path: str) -> None:
    """A reader process that its record kills."""
    with open_log(path, "r") as log, log.consumer("billing", lock_timeout=None) as consumer:
        consumer.run(
            lambda record: os.kill(os.getpid(), signal.SIGKILL) if record.value == b"bad" else None,
            retry=AT_ONCE,
            until_end=True,
        )


def test_a_record_that_kills_its_process_counts(log: Log) -> None:
    """Each process that dies in the handler was an attempt; the one after the last makes the dead letter."""
    context = multiprocessing.get_context("fork")
    codes = []
    for _ in range(4):
        child = context.Process(target=killed_by_a_record, args=(log.path,))
        child.start()
        child.join()
        codes.append(child.exitcode)
    assert codes == [-signal.SIGKILL] * 3 + [0]
    (letter,) = letters(f"{log.path}.dlq")
    assert (letter.offset, letter.delivery_count) == (2, 3)
    assert "ended while it handled the record" in letter.message
    with log.consumer("billing") as consumer:
        assert consumer.committed(KEY) == 6


def test_other_partitions_go_on_while_one_waits(tmp_path: Path) -> None:
    """A partition waits for the next attempt at its record; on a cluster the dead letters' topic is made like its
    source."""
    order: list[tuple[int, int]] = []

    def handler(record: pyreplog.Record) -> None:
        order.append((record.partition, record.offset))
        if record.value == b"bad":
            raise RuntimeError

    with Cluster(tmp_path / "data", nodes=2) as cluster:
        cluster.admin.create_topic("orders", partitions=3, config={"durability": "os", "min.insync.replicas": 1})
        with cluster.producer() as producer:
            producer.send_many("orders", [b"bad", b"1"], partition=1).wait()
            producer.send_many("orders", [b"0"] * 5, partition=2).wait()
        with cluster.consumer("orders", name="billing") as consumer:
            consumer.run(handler, retry=RetryPolicy(attempts=2, backoff_ms=1, backoff_max_ms=1), until_end=True)
            assert consumer.lag() == {TopicPartition("orders", number): 0 for number in range(3)}
        assert order.count((1, 0)) == 2
        assert [offset for partition, offset in order if partition == 2] == list(range(5))
        dead = cluster.admin.describe("dlq.orders")
        assert (len(dead.partitions), dead.config["durability"]) == (3, "os")
        with cluster.consumer("dlq.orders") as reader:
            (letter,) = list(reader.until_end())
        assert letter.partition == 1
        assert read_letter(letter.headers) == DeadLetter("orders", 1, 0, "billing", 2, "RuntimeError: ")
        with Cluster(tmp_path / "data", mode="r") as beside:
            with beside.consumer("orders", name="beside") as consumer:
                record = consumer.poll(5.0, 1)[0]
                with pytest.raises(ConfigError, match="give dead_letters|dead_letters=FOLDER"):
                    consumer.dead_letter(record, "no")
            with beside.consumer("orders", name="beside", dead_letters=tmp_path / "letters") as consumer:
                consumer.dead_letter(consumer.poll(5.0, 1)[0], "no")
        assert [letter.message for letter in letters(tmp_path / "letters", "orders")] == ["no"]


def test_loops_of_ones_own(log: Log, tmp_path: Path) -> None:
    """``dead_letter`` writes and commits; a repetition, here or by the next reader, writes none."""
    with log.consumer("billing", dead_letters=tmp_path / "letters") as consumer:
        records = consumer.poll(5.0)
        for record in records[:3]:
            consumer.dead_letter(record, ValueError(f"of {record.offset}"))
        assert consumer.committed(KEY) == 3
        consumer.dead_letter(records[1])
        consumer.seek("events", 0, 0)
        consumer.dead_letter(records[0])
        assert consumer.committed(KEY) == 1
    with log.consumer("other", dead_letters=tmp_path / "letters") as consumer:
        consumer.dead_letter(records[0], "other")
        with pytest.raises(TypeError):
            consumer.dead_letter(b"x")  # type: ignore[arg-type]
    found = letters(tmp_path / "letters")
    assert [(letter.offset, letter.group) for letter in found] == [
        (0, "billing"),
        (1, "billing"),
        (2, "billing"),
        (0, "other"),
    ]


def test_a_refused_dead_letter_leaves_the_record(log: Log) -> None:
    """If the dead letter cannot be written, the run ends with the error, and the record comes again."""
    Path(f"{log.path}.dlq").write_bytes(b"a file in the way")
    handler = Handler()
    with log.consumer("billing") as consumer:
        for _ in range(2):
            with pytest.raises(StorageError):
                consumer.run(handler, retry=AT_ONCE, until_end=True)
            assert consumer.committed(KEY) == 2
        os.remove(f"{log.path}.dlq")
        consumer.run(handler, retry=AT_ONCE, until_end=True)
    assert [letter.offset for letter in letters(f"{log.path}.dlq")] == [2]
    assert handler.seen == [0, 1, 3, 4, 5]


def test_coroutines_have_it(log: Log) -> None:
    """The handler is awaited; cancelling the run is no attempt."""
    handler = Handler()

    async def main() -> None:
        async def slow(record: pyreplog.Record) -> None:
            await asyncio.sleep(0)
            handler(record)

        async def stuck(record: pyreplog.Record) -> None:
            started.set()
            await asyncio.sleep(60)

        started = asyncio.Event()
        async with await aio.open_log(log.path, "r") as beside, beside.consumer("billing") as consumer:
            task = asyncio.ensure_future(consumer.run(stuck, retry=AT_ONCE))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await consumer.run(slow, retry=AT_ONCE, until_end=True)
            assert consumer.committed(KEY) == 6

    asyncio.run(main())
    assert (handler.seen, handler.tries) == ([0, 1, 3, 4, 5], 3)
    assert [letter.delivery_count for letter in letters(f"{log.path}.dlq")] == [3]


def test_a_letter_is_found_behind_any_number_of_others(log: Log) -> None:
    """A reader that wrote a dead letter and died before the commit writes none when it comes back, however many
    letters of other readers came since."""
    with log.consumer("billing") as consumer:
        record = consumer.poll(5.0)[2]
        consumer.commit({KEY: 2})
        consumer.dead_letter(record, "poison")
    Path(log.path, "replog.offsets-billing").unlink()  # as if it had died before its commits
    with log.consumer("other") as other:
        other.dead_letter(other.poll(5.0)[2], "of another reader")
    letter = {"__dlq.errors.topic": b"events", "__dlq.errors.partition": b"0", "__dlq.errors.offset": b"2"}
    rest = {"__dlq.errors.group": b"crowd", "__dlq.errors.delivery.count": b"1", "__dlq.errors.message": b""}
    with open_log(f"{log.path}.dlq") as dead:
        dead.append_many([b"x"] * 20_000, headers=[list({**letter, **rest}.items())] * 20_000)
    with log.consumer("billing") as consumer:
        consumer.run(Handler(), retry=AT_ONCE, until_end=True)
        assert consumer.committed(KEY) == 6
    groups = [letter.group for letter in letters(f"{log.path}.dlq")]
    assert (groups.count("billing"), groups.count("other"), len(groups)) == (1, 1, 20_002)


def test_the_dead_letters_are_read_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first dead letter of a reader looks at all that are there, a later one at those that came since."""
    seen: list[int] = []
    plain = read_letter

    def counted(headers: object) -> DeadLetter | None:
        seen.append(1)
        return plain(headers)  # type: ignore[arg-type]

    monkeypatch.setattr(dead_letter_log, "read_letter", counted)
    with log.consumer("billing") as consumer:
        for record in consumer.poll(5.0):
            consumer.dead_letter(record, "no")
        assert len(seen) == 5
        with log.consumer("other") as other:
            other.dead_letter(other.poll(5.0)[0], "no")
        assert len(seen) == 5 + 6
        consumer.seek("events", 0, 0)
        consumer.dead_letter(consumer.poll(5.0)[0], "again")  # below the committed offset: all are looked at again
        assert len(seen) == 5 + 6 + 7
    assert len(letters(f"{log.path}.dlq")) == 7


def test_partitions_share_a_topic_of_dead_letters(tmp_path: Path) -> None:
    """With fewer partitions of dead letters than of records, each letter is found all the same."""
    with Cluster(tmp_path / "data", nodes=1) as cluster:
        cluster.admin.create_topic("orders", partitions=3, replication_factor=1, config={"durability": "os"})
        cluster.admin.create_topic("dlq.orders", partitions=1, replication_factor=1, config={"durability": "os"})
        with cluster.producer() as producer:
            for partition in range(3):
                producer.send_many("orders", [b"bad"] * 2, partition=partition).wait(20)
        for _ in range(2):
            with cluster.consumer("orders", name="billing", offsets=tmp_path / "kept") as consumer:
                records = consumer.poll(20.0)
                while len(records) < 6:
                    records += consumer.poll(20.0)
                for record in records:
                    consumer.dead_letter(record, "no")
            shutil.rmtree(tmp_path / "kept")  # as if no commit had been written
        with cluster.consumer("dlq.orders") as reader:
            found = [read_letter(record.headers) for record in reader.until_end()]
    assert sorted((letter.partition, letter.offset) for letter in found if letter is not None) == [
        (partition, offset) for partition in range(3) for offset in range(2)
    ]
