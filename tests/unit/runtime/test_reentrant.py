"""A cluster used within a use of it by the same thread, as by a signal handler: that works, or is refused at once,
and nothing hangs."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pyreplog
from pyreplog.client import Completion
from pyreplog.errors import ClosedError, ReentrantCallError
from pyreplog.runtime.driver import Driver
from pyreplog.system import SystemClock
from tests.unit.runtime.frozen_driver import still
from tests.unit.runtime.polling import Polled

PATIENCE_S = 30.0

pytestmark = pytest.mark.timeout(300)


class Handler:
    """Calls ``use`` where the interpreter would run a signal handler: at the ``moment``-th point where a Python
    function begins or a C function has returned."""

    def __init__(self, moment: int, use: Callable[[], object]) -> None:
        self.left = moment
        self.use = use
        self.results: list[Any] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "c_return"):
            return
        self.left -= 1
        if self.left == 0:
            sys.setprofile(None)
            try:
                self.results.append(self.use())
            except ReentrantCallError as error:
                self.results.append(error)


def within(act: Callable[[], object], moment: int, use: Callable[[], object]) -> list[Any]:
    """What ``use`` gave, or was refused with, at that moment of ``act``; empty where it is over before."""
    handler = Handler(moment, use)
    sys.setprofile(handler)
    try:
        act()
    finally:
        sys.setprofile(None)
    return handler.results


def moments(share: int = 10) -> Iterator[int]:
    """Every one of the first, and of the others some: the more, the greater ``share``."""
    moment = 0
    while True:
        moment += 1 + moment // share
        yield moment


@pytest.mark.parametrize("outer", ["send", "send_many", "result", "flush", "poll", "leader", "create", "end_offset"])
def test_a_call_within_another_works_or_is_refused(
    cluster: pyreplog.Cluster, create: Callable[..., str], outer: str
) -> None:
    """At whatever point of it. The outer call goes on as if nothing had been, and every record is there once."""
    create(durability="os")
    sent: Counter[bytes] = Counter()
    number = 0
    with cluster.producer() as producer, cluster.consumer("events") as consumer, cluster.consumer("events") as other:

        def send() -> pyreplog.Ack:
            nonlocal number
            number += 1
            value = b"%d" % number
            ack = producer.send("events", value)
            sent[value] = 1
            return ack

        def send_many() -> object:
            nonlocal number
            values = [b"%d" % (number + count) for count in range(1, 4)]
            number += 3
            acks = producer.send_many("events", values)
            sent.update(values)
            return acks.result(PATIENCE_S)

        def make() -> None:
            nonlocal number
            number += 1
            assert cluster.admin.create_topic(f"topic-{number}").partitions[0].leader > 0

        def flush() -> None:
            ack = send()
            producer.flush(PATIENCE_S)
            assert ack.done()

        def poll() -> None:
            send()
            assert other.poll(PATIENCE_S)

        outers: dict[str, Callable[[], object]] = {
            "send": send,
            "send_many": send_many,
            "result": lambda: send().result(PATIENCE_S),
            "flush": flush,
            "poll": poll,
            "leader": lambda: cluster.leader("events"),
            "create": make,
            "end_offset": lambda: consumer.end_offset("events", 0),
        }
        inners: list[Callable[[], object]] = [
            lambda: send().result(PATIENCE_S),
            lambda: send_many(),
            lambda: cluster.admin.describe("events"),
            lambda: cluster.leader("events"),
            lambda: consumer.poll(PATIENCE_S) if not consumer.poll(0) else None,
            lambda: producer.flush(PATIENCE_S),
            lambda: cluster.producer().close(),
            lambda: cluster.consumer("events").close(),
            lambda: cluster.nodes[0].leads("events"),
        ]
        refused = worked = 0
        send().result(PATIENCE_S)
        for use in inners:
            for moment in moments(1 if outer == "create" else 10):
                results = within(outers[outer], moment, use)
                if not results:
                    break
                if isinstance(results[0], ReentrantCallError):
                    assert "another thread" in str(results[0])
                    refused += 1
                else:
                    worked += 1
                send()
        assert worked
        assert refused
        producer.flush(PATIENCE_S)
    with cluster.consumer("events") as reader:
        assert Counter(record.value for record in reader.until_end()) == sent
    assert {node.failure for node in cluster.nodes} == {None}


@pytest.mark.parametrize("outer", ["send", "poll", "describe", "close"])
def test_closing_a_cluster_within_a_call_of_it(tmp_path: Path, outer: str) -> None:
    """A handler of SIGTERM that closes it: that succeeds, and the outer call hears of it; or is refused, and says
    what would do."""
    refused = closed = 0
    for moment in moments():
        sent: list[bytes] = []
        folder = tmp_path / f"{moment}"
        cluster = pyreplog.Cluster(folder, nodes=1)
        cluster.admin.create_topic("events", config={"durability": "os"})
        producer, consumer = cluster.producer(), cluster.consumer("events")
        producer.send("events", b"first").result(PATIENCE_S)

        def send(producer: pyreplog.Producer = producer, sent: list[bytes] = sent) -> None:
            producer.send("events", b"outer").result(PATIENCE_S)
            sent.append(b"outer")

        acts: dict[str, Callable[[], object]] = {
            "send": send,
            "poll": partial(consumer.poll, PATIENCE_S),
            "describe": partial(cluster.admin.describe, "events"),
            "close": cluster.close,
        }
        try:
            results = within(acts[outer], moment, cluster.close)
        except ClosedError:
            results = [None]
            assert cluster.closed
            assert outer != "close"
        if results and isinstance(results[0], ReentrantCallError):
            assert "own_process=True" in str(results[0])
            if outer != "close":
                producer.send("events", b"after").result(PATIENCE_S)
                sent.append(b"after")
            refused += 1
        elif results:
            closed += 1
        cluster.close()
        with pyreplog.Cluster(folder) as again, again.consumer("events") as reader:
            found = [record.value for record in reader.until_end() if record.value != b"first"]
            assert [value for value in found if value in sent] == sent
            assert len(found) == len(set(found))
        if not results:
            break
    assert closed
    assert refused or outer == "close"


def test_who_uses_a_machine_does_not_wait_for_its_turn() -> None:
    """It would have to drive that machine by itself: refused, and the machine has its turn as soon as it is
    free."""
    driver, machine = Driver(SystemClock(), "test"), Polled()
    driven = driver.add(machine, driver.network.endpoint(), lambda error: None)
    with driven.lock:
        driver.mark_ready(driven)
        with pytest.raises(ReentrantCallError, match="the cluster 'test' is used within another use"):
            driver.wait_for(Completion(driver), None)
    assert machine.count == 0
    with pytest.raises(TimeoutError):
        driver.wait_for(Completion(driver), 0.0)
    assert machine.count == 1


@pytest.mark.parametrize("way", ["wait", "alone"])
def test_who_uses_a_machine_does_not_wait_for_another_driver(way: str) -> None:
    """Who drives may be waiting for that very machine."""
    driver, machine = Driver(SystemClock(), "test"), Polled()
    other, drives = Completion(driver), threading.Event()
    waits: dict[str, Callable[[], object]] = {
        "wait": lambda: driver.wait_for(Completion(driver), None),
        "alone": lambda: driver.run_exclusively(lambda: None),
    }

    class Beginning(Polled):
        def poll(self, timeout_ns: int = 0) -> bool:
            drives.set()
            return super().poll(timeout_ns)

    driver.add(Beginning(), driver.network.endpoint(), lambda error: None)
    driven = driver.add(machine, driver.network.endpoint(), lambda error: None)
    thread = threading.Thread(target=lambda: driver.wait_for(other, PATIENCE_S), daemon=True)
    with driven.lock:
        thread.start()
        assert drives.wait(PATIENCE_S)
        with pytest.raises(ReentrantCallError):
            waits[way]()
    with still(driver):
        other.settle()
    thread.join(PATIENCE_S)
    assert machine.count == 1


def test_who_is_alone_neither_waits_nor_is_alone_again() -> None:
    """Nothing moves before it returns."""
    driver = Driver(SystemClock(), "test")
    with still(driver):
        with pytest.raises(ReentrantCallError):
            driver.wait_for(Completion(driver), None)
        with pytest.raises(ReentrantCallError):
            driver.run_exclusively(lambda: None)
    assert driver.run_exclusively(lambda: True)


def test_a_poll_that_is_refused_leaves_nothing_to_wait_for(
    cluster: pyreplog.Cluster, create: Callable[..., str]
) -> None:
    """Whoever polls again and again in a handler would add one each time, until a record comes."""
    create()
    with cluster.consumer("events") as consumer:
        with still(cluster._driver), pytest.raises(ReentrantCallError):
            consumer.poll(1.0)
        assert not consumer._machine._waiting
