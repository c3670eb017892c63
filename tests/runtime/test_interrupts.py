"""Ctrl-C while a machine moves, and machines that fail: what they held is given up, their files are not, and everybody else goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pyreplog
from pyreplog.errors import OutcomeUnknownError
from pyreplog.runtime.driver import Driver
from pyreplog.system.held import HeldSyncs, _Group
from pyreplog.system.syncs import SyncPool

PATIENCE_S = 30.0


class Interrupted:
    """A machine whose first turn in the main thread ends in a KeyboardInterrupt, after half of its work."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self.happened = False

    @property
    def next_wake_ns(self) -> int | None:
        """As the machine says."""
        wake: int | None = self._machine.next_wake_ns
        return wake

    def poll(self, timeout_ns: int = 0) -> bool:
        """A turn."""
        done: bool = self._machine.poll(timeout_ns)
        if done and not self.happened and threading.current_thread() is threading.main_thread():
            self.happened = True
            raise KeyboardInterrupt
        return done


def interrupt(cluster: pyreplog.Cluster, seat: Any, act: Callable[[], None]) -> list[threading.Thread]:
    """``act`` until a turn of the seat's machine was interrupted; the threads that saw to it afterwards."""
    seen: list[threading.Thread] = []
    failed = seat.failed

    def note(error: Exception | None) -> None:
        seen.append(threading.current_thread())
        failed(error)

    machine = Interrupted(seat.machine)
    with cluster._driver.exclusive():
        seat.failed = note
        seat.machine = machine
    with pytest.raises(KeyboardInterrupt):
        for _ in range(1000):
            act()
    assert machine.happened
    return seen


def test_an_interrupted_node_starts_again_from_its_files(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """A KeyboardInterrupt inside the leader's turn reaches the caller; the node is restarted, never by a thread that signals interrupt."""
    create()
    leader = cluster.leader("events")
    assert leader is not None
    sent: dict[bytes, int] = {}
    with cluster.producer() as producer:

        def act() -> None:
            value = b"%d" % len(sent)
            sent[value] = -1
            sent[value] = producer.send("events", value).result(PATIENCE_S).offset

        seen = interrupt(cluster, leader._seat, act)
        cluster._driver.wait_until(lambda: bool(seen) and all(node.ready for node in cluster.nodes), PATIENCE_S, "all nodes")
        assert threading.main_thread() not in seen
        producer.send("events", b"after").result(PATIENCE_S)
    with cluster.consumer("events") as consumer:
        found = {record.offset: record.value for record in consumer.until_end()}
    assert len(set(found.values())) == len(found)
    for value, offset in sent.items():
        if offset >= 0:
            assert found[offset] == value


def test_no_interrupt_leaves_a_sync_behind(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Wherever a KeyboardInterrupt strikes while syncs that were held back are begun: they begin, and so do later ones."""
    create(durability="sync")
    ways = (SyncPool.begin, SyncPool.lend, SyncPool.end_lent, HeldSyncs.begin, HeldSyncs.start, HeldSyncs.finish, Driver._sync)
    # Of what is compiled too: there nothing strikes but where it calls something that is not, or waits.
    places = {way.__code__ for way in (*ways, _Group.begin, _Group.end) if hasattr(way, "__code__")}
    struck: list[str] = []
    with cluster.producer() as producer:
        producer.send("events", b"first").result(PATIENCE_S)
        for number in range(60):
            left = number
            seen: set[tuple[int, int]] = set()

            def strike(frame: FrameType, event: str, _: Any, seen: set[tuple[int, int]] = seen) -> Any:
                nonlocal left
                if frame.f_code not in places:
                    return None
                place = id(frame), frame.f_lineno
                if event == "line" and place not in seen:  # not at a lock's line again, on the way out: only C runs there
                    seen.add(place)
                    left -= 1
                    if left == -1:
                        struck.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
                        raise KeyboardInterrupt
                return strike

            before = sys.gettrace()
            sys.settrace(strike)
            try:
                with contextlib.suppress(KeyboardInterrupt):
                    producer.send("events", b"%d" % number).result(PATIENCE_S)
            finally:
                sys.settrace(before)
            producer.send("events", b"after %d" % number).result(PATIENCE_S)
    assert len({*struck}) >= 30


class Struck(Exception):
    """Raised by a signal handler."""


def test_no_interrupt_leaves_the_machines_stopped(cluster: pyreplog.Cluster) -> None:
    """Wherever a signal handler raises on the way into a moment in which no machine moves, or out of it: the next such moment comes."""
    driver = cluster._driver
    armed, struck = False, 0

    def strike(*_: object) -> None:
        nonlocal armed, struck
        if armed:
            armed, struck = False, struck + 1
            raise Struck

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    try:
        for _ in range(10_000):
            try:
                armed = True
                with driver.exclusive():
                    pass
            except Struck:
                pass
            armed = False
            assert not driver._exclusive_guard.locked()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert struck > 100
    with driver.exclusive():
        assert not driver._exclusive_wanted


def test_an_interrupted_producer_goes_on(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """What it had on its way has an unknown outcome; what is sent afterwards is not concerned."""
    create()
    with cluster.producer() as producer:
        acks = [producer.send("events", b"before")]
        acks[0].result(PATIENCE_S)

        def act() -> None:
            acks.append(producer.send("events", b"v"))
            acks[-1].result(PATIENCE_S)

        interrupt(cluster, producer._seat, act)
        for ack in acks[:-1]:
            ack.result(0)
        with contextlib.suppress(OutcomeUnknownError):
            acks[-1].result(PATIENCE_S)
        assert producer.send("events", b"after").result(PATIENCE_S).offset > 0


@pytest.mark.parametrize("error", [None, RuntimeError("a bug")])
def test_who_waits_at_a_consumer_that_breaks_goes_on_waiting(
    cluster: pyreplog.Cluster, create: Callable[..., str], error: Exception | None
) -> None:
    """A thread in ``poll(None)`` gets the next record although the machine that it waited at is replaced; of a failure it hears, once."""
    create()
    with cluster.consumer("events") as consumer, cluster.producer() as producer:
        producer.send("events", b"first").result(PATIENCE_S)
        assert [record.value for record in consumer.poll(PATIENCE_S)] == [b"first"]
        got: list[bytes | None] = []
        told: list[pyreplog.InternalError] = []

        def wait() -> None:
            while not got:
                try:
                    got.extend(record.value for record in consumer.poll(None))
                except pyreplog.InternalError as failure:
                    told.append(failure)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        cluster._driver.wait_until(lambda: bool(consumer._machine._waiting), PATIENCE_S, "somebody who waits")
        with cluster._driver.exclusive():
            cluster._driver._fail(consumer._seat, error)
        producer.send("events", b"second").result(PATIENCE_S)
        thread.join(PATIENCE_S)
        assert got == [b"second"]
        assert [failure.__cause__ for failure in told] == [error] * (error is not None)


def test_closing_just_after_an_interrupt_is_no_clean_end(tmp_path: Path) -> None:
    """A node that was cut short half-way is not said to have ended in order: its next start verifies its files."""
    path = tmp_path / "data"
    with pyreplog.Cluster(path) as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
        with cluster.producer() as producer:
            offset = producer.send("events", b"v").result(PATIENCE_S).offset
        seat = cluster.nodes[1]._seat
        assert seat is not None
        with cluster._driver.exclusive():
            seat.busy = True
            cluster._driver._seats.pop(seat.transport)
    markers = [os.path.exists(path / f"node-{number}" / ".kafka_cleanshutdown") for number in (1, 2, 3)]
    assert markers == [True, False, True]
    with pyreplog.Cluster(path) as cluster, cluster.consumer("events") as consumer:
        assert [(record.offset, record.value) for record in consumer.until_end()] == [(offset, b"v")]


def test_a_node_restarted_by_hand_is_not_restarted_again(cluster: pyreplog.Cluster) -> None:
    """What befell a former life of a node is forgotten when somebody kills or restarts it."""
    node = cluster.nodes[0]
    with cluster._driver.exclusive():
        assert node._seat is not None
        cluster._driver._seats.pop(node._seat.transport)
        cluster._driver._broken.append((node._seat, None))
        node._kill()
        node.start()
        assert not cluster._driver._broken
        machine = node._node
    cluster._driver.wait_until(lambda: node.ready, PATIENCE_S, "the node")
    assert node._node is machine


def test_clients_leave_nothing_behind(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Closed clients, and those that were replaced, leave no endpoint, seat or address."""
    create()
    before = len(cluster._driver.network._endpoints), len(cluster._driver._seats), len(cluster._trusted)
    for _ in range(5):
        with cluster.producer() as producer, cluster.consumer("events") as consumer:
            producer.send("events", b"v").result(PATIENCE_S)
            with cluster._driver.exclusive():
                cluster._driver._fail(producer._seat, None)
                cluster._driver._fail(consumer._seat, None)
                cluster._driver._mend()
            producer.send("events", b"v").result(PATIENCE_S)
    assert (len(cluster._driver.network._endpoints), len(cluster._driver._seats), len(cluster._trusted)) == before
