"""Ctrl-C while a machine moves, and machines that fail: what they held is given up, their files are not, and
everybody else goes on."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import pyreplog
from pyreplog.client import BatchResult, Completion
from pyreplog.errors import OutcomeUnknownError
from pyreplog.log import Log as PartitionLog
from pyreplog.log import LogRoot, producer_snapshot
from pyreplog.quorum import RaftNode
from pyreplog.runtime.driver import Driver
from pyreplog.system.sync_batcher import SyncBatcher, _SyncBatch
from pyreplog.system.sync_pool import SyncPool
from pyreplog.wire import ListOffsetsRequest
from tests.unit.runtime.active_controller import controller_driven
from tests.unit.runtime.frozen_driver import still
from tests.unit.runtime.interrupt_injection import Strike, struck

PATIENCE_S = 30.0


def press_ctrl_c() -> None:
    """As the interpreter does between two instructions."""
    raise KeyboardInterrupt


class Interrupted:
    """A machine whose first turn in the main thread ends in what ``strike`` raises, after half of its work."""

    def __init__(self, machine: Any, strike: Callable[[], None]) -> None:
        self._machine = machine
        self._strike = strike
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
            self._strike()
        return done


def interrupt(
    cluster: pyreplog.Cluster,
    driven: Any,
    act: Callable[[], None],
    strike: Callable[[], None] = press_ctrl_c,
    raised: type[BaseException] = KeyboardInterrupt,
) -> list[threading.Thread]:
    """``act`` until a turn of the driven machine was interrupted; the threads that saw to it afterwards."""
    seen: list[threading.Thread] = []
    failed = driven.failed

    def note(error: Exception | None) -> None:
        seen.append(threading.current_thread())
        failed(error)

    machine = Interrupted(driven.machine, strike)
    with still(cluster._driver):
        driven.failed = note
        driven.machine = machine
    with pytest.raises(raised):
        for _ in range(1000):
            act()
    assert machine.happened
    return seen


def test_an_interrupted_node_starts_again_from_its_files(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """A KeyboardInterrupt inside the leader's turn reaches the caller; the node is restarted, never by a thread
    that signals interrupt."""
    create()
    leader = cluster.leader("events")
    assert leader is not None
    sent: dict[bytes, int] = {}
    with cluster.producer() as producer:

        def act() -> None:
            value = b"%d" % len(sent)
            sent[value] = -1
            sent[value] = producer.send("events", value).result(PATIENCE_S).offset

        seen = interrupt(cluster, leader._driven, act)
        assert cluster._driver.wait_until(lambda: bool(seen) and all(node.ready for node in cluster.nodes), PATIENCE_S)
        assert threading.main_thread() not in seen
        producer.send("events", b"after").result(PATIENCE_S)
    with cluster.consumer("events") as consumer:
        found = {record.offset: record.value for record in consumer.until_end()}
    assert len(set(found.values())) == len(found)
    for value, offset in sent.items():
        if offset >= 0:
            assert found[offset] == value


class Alarm(TimeoutError):
    """What a handler raises that limits the time a call may take. OSError and TimeoutError are caught here and
    there, to mean others."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Has the program's own handler raise an Alarm."""

    def ring(*_: object) -> None:
        raise Alarm("that is enough")

    before = signal.signal(signal.SIGALRM, ring)
    yield partial(signal.raise_signal, signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("who", ["leader", "producer", "controller"])
def test_what_a_handler_raises_is_its_callers(
    cluster: pyreplog.Cluster, create: Callable[..., str], alarm: Callable[[], None], who: str
) -> None:
    """Any exception of a signal handler's, not only a KeyboardInterrupt: it reaches the caller, and is no failure
    of whom it struck."""
    create()
    leader = cluster.leader("events")
    assert leader is not None
    with cluster.producer() as producer:
        producer.send("events", b"before").result(PATIENCE_S)
        faces: dict[str, Any] = {"leader": leader, "producer": producer}
        driven = controller_driven(cluster) if who == "controller" else faces[who]._driven

        def act() -> None:
            producer.send("events", b"v").result(PATIENCE_S)
            cluster.admin.describe("events")

        seen = interrupt(cluster, driven, act, alarm, Alarm)
        assert cluster._driver.wait_until(lambda: bool(seen) and all(node.ready for node in cluster.nodes), PATIENCE_S)
        assert [node.failure for node in cluster.nodes] == [None] * len(cluster.nodes)
        producer.send("events", b"after").result(PATIENCE_S)


def test_an_alarm_is_no_answer_of_a_nodes(
    cluster: pyreplog.Cluster, create: Callable[..., str], alarm: Callable[[], None]
) -> None:
    """Struck while the leader answers one client's question it is neither that client's misfortune nor a
    refusal."""
    create()
    leader = cluster.leader("events")
    assert leader is not None
    node = leader._node
    assert node is not None
    struck: list[threading.Thread] = []

    def strike(_: object) -> None:
        struck.append(threading.current_thread())
        if struck == [threading.main_thread()]:
            alarm()

    with still(cluster._driver):
        node._requests[ListOffsetsRequest] = strike
    with cluster.consumer("events") as consumer:
        with pytest.raises(Alarm):
            consumer.end_offset("events", 0, timeout=PATIENCE_S)
        assert list(node._guard.failed) == []
        assert consumer.end_offset("events", 0, timeout=PATIENCE_S) == 0


@pytest.mark.parametrize(
    "error",
    [
        Alarm("that is enough"),
        BrokenPipeError(errno.EPIPE, "of the handler's"),
        KeyboardInterrupt("of the handler's"),
    ],
    ids=["alarm", "pipe", "interrupt"],
)
def test_what_a_handler_raises_is_no_refusal_of_the_disks(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Struck within a write it is raised as it is, with a number or without. The log goes on, with the record or
    without it."""
    write = os.pwrite

    def ring(*_: object) -> None:
        raise error

    def strike(*arguments: Any) -> int:
        monkeypatch.setattr(os, "pwrite", write)
        signal.raise_signal(signal.SIGALRM)
        return write(*arguments)

    before = signal.signal(signal.SIGALRM, ring)
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"before")
        monkeypatch.setattr(os, "pwrite", strike)
        try:
            with pytest.raises(type(error)) as caught:
                log.append(b"struck")
        finally:
            signal.signal(signal.SIGALRM, before)
        assert caught.value is error
        log.append(b"after")
        assert [record.value for record in log if record.value != b"struck"] == [b"before", b"after"]


class Refusal(OSError):
    """Raised by a signal handler."""


@pytest.mark.parametrize("act", ["kill", "restart", "close", "open"])
def test_what_a_handler_raises_is_no_failure_of_a_nodes_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """Struck while a node begins or ends, it is raised as it is; the next call does all of it again, and no folder
    stays locked."""

    error = Refusal("of the handler's")

    def ring(*_: object) -> None:
        raise error

    cluster = pyreplog.Cluster(tmp_path / "data", nodes=1)
    node = cluster.nodes[0]
    if act == "open":
        cluster.close()
    step = "_begin" if act == "open" else "close"
    before, inner = signal.signal(signal.SIGALRM, ring), getattr(LogRoot, step)

    def strike(*arguments: Any, **options: Any) -> None:
        setattr(LogRoot, step, inner)
        signal.raise_signal(signal.SIGALRM)
        inner(*arguments, **options)

    acts: dict[str, Callable[[], object]] = {
        "kill": node.kill,
        "restart": node.restart,
        "close": cluster.close,
        "open": lambda: pyreplog.Cluster(tmp_path / "data"),
    }
    monkeypatch.setattr(LogRoot, step, strike)
    try:
        with pytest.raises(Refusal) as caught:
            acts[act]()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert caught.value is error
    if act in ("kill", "restart"):
        node.restart()
        assert node.ready
    cluster.close()
    pyreplog.Cluster(tmp_path / "data").close()


@pytest.mark.parametrize("who", ["leader", "producer"])
def test_a_second_interrupt_while_the_first_is_told_of_loses_no_machine(
    cluster: pyreplog.Cluster, create: Callable[..., str], who: str
) -> None:
    """The warning is written by handlers of the application's, where a signal may strike again: the machine is
    replaced all the same."""
    create()

    class Second(logging.Handler):
        struck = 0

        def emit(self, record: logging.LogRecord) -> None:
            if "half-way" in record.getMessage() and not self.struck:
                self.struck += 1
                raise KeyboardInterrupt

    leader = cluster.leader("events")
    assert leader is not None
    second, logger = Second(), logging.getLogger("pyreplog")
    logger.addHandler(second)
    try:
        with cluster.producer() as producer:
            producer.send("events", b"before").result(PATIENCE_S)
            driven = leader._driven if who == "leader" else producer._driven
            seen = interrupt(cluster, driven, lambda: producer.send("events", b"v").result(PATIENCE_S) and None)
            assert second.struck == 1
            assert cluster._driver.wait_until(
                lambda: bool(seen) and all(node.ready for node in cluster.nodes), PATIENCE_S
            )
            producer.send("events", b"after").result(PATIENCE_S)
    finally:
        logger.removeHandler(second)


def test_no_interrupt_leaves_a_sync_behind(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Wherever a KeyboardInterrupt strikes while syncs that were held back are begun: they begin, and so do later
    ones."""
    create(durability="sync")
    ways = (
        SyncPool.begin,
        SyncPool.lend,
        SyncPool.end_lent,
        SyncBatcher.flush_and_wait,
        SyncBatcher._lend,
        SyncBatcher._wait,
        SyncBatcher._finish,
        Driver._sleep,
    )
    # Of what is compiled too: there nothing strikes but where it calls something that is not, or
    # waits.
    places = {way.__code__ for way in (*ways, _SyncBatch.begin, _SyncBatch.end) if hasattr(way, "__code__")}
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
                if (
                    event == "line" and place not in seen
                ):  # not at a lock's line again, on the way out: only C runs there
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


# One that strikes in a callback of the garbage collector, hypothesis's for one, raises nowhere:
# Python only tells of it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_interrupt_leaves_the_machines_stopped(cluster: pyreplog.Cluster) -> None:
    """Wherever a signal handler raises on the way into a moment in which no machine moves, or out of it: the next
    such moment comes, also where somebody keeps the exception, and with its traceback all that was under way."""
    driver = cluster._driver
    armed = False
    kept: list[Struck] = []

    def strike(*_: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Struck

    # The handler stays: the last signal may come late, by way of another thread, and that of
    # pytest-timeout would take it for its own.
    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
    try:
        for _ in range(10_000):
            try:
                armed = True
                driver.run_exclusively(lambda: None)
            except Struck as error:
                kept.append(error)
            armed = False
            assert not driver._exclusive.is_mine()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(kept) > 100
    assert not driver.run_exclusively(lambda: driver._exclusive_wanted)


def test_an_interrupted_producer_goes_on(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """What it had on its way has an unknown outcome; what is sent afterwards is not concerned."""
    create()
    with cluster.producer() as producer:
        acks = [producer.send("events", b"before")]
        acks[0].result(PATIENCE_S)

        def act() -> None:
            acks.append(producer.send("events", b"v"))
            acks[-1].result(PATIENCE_S)

        interrupt(cluster, producer._driven, act)
        for ack in acks[:-1]:
            ack.result(0)
        with contextlib.suppress(OutcomeUnknownError):
            acks[-1].result(PATIENCE_S)
        assert producer.send("events", b"after").result(PATIENCE_S).offset > 0


def test_an_interrupt_just_before_an_acknowledgement_leaves_nobody_waiting(
    cluster: pyreplog.Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer's batch is its own until it is settled: what an interrupted turn was about to settle has an
    unknown outcome."""
    create()
    succeed = BatchResult.succeed
    struck: list[BatchResult] = []

    def strike(outcome: BatchResult, *given: int) -> None:
        if not struck and threading.current_thread() is threading.main_thread():
            struck.append(outcome)
            raise KeyboardInterrupt
        succeed(outcome, *given)

    with cluster.producer() as producer:
        producer.send("events", b"before").result(PATIENCE_S)
        with monkeypatch.context() as patches:
            patches.setattr(BatchResult, "succeed", strike)
            for _ in range(1000):  # until this thread drives at that moment
                ack = producer.send("events", b"v")
                with contextlib.suppress(KeyboardInterrupt):
                    ack.result(PATIENCE_S)
                if struck:
                    break
        assert isinstance(ack.exception(PATIENCE_S), OutcomeUnknownError)


def test_an_interrupt_while_waiters_are_told_forgets_none() -> None:
    """Whoever waits for something that is settled hears of it, whichever of them a signal handler comes in front
    of."""
    for moment in range(3):
        pending = Completion()
        told: list[int] = []
        struck: list[int] = []

        def wait(
            number: int,
            pending: Completion = pending,
            told: list[int] = told,
            struck: list[int] = struck,
            moment: int = moment,
        ) -> None:
            def release() -> None:
                if number == moment and not struck:
                    struck.append(number)
                    raise KeyboardInterrupt
                told.append(number)

            pending.add_waiter(release)

        for number in range(3):
            wait(number)
        with pytest.raises(KeyboardInterrupt):
            pending.settle()
        assert told == [0, 1, 2]


def test_flushing_sends_what_an_interrupt_left_unsent(
    cluster: pyreplog.Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send that is interrupted when the record is queued already, and before anybody is told to send it: who
    flushes or closes then waits for what is on its way, not for ever."""
    create()
    for end in (pyreplog.Producer.flush, pyreplog.Producer.close):
        with cluster.producer() as producer:
            producer.send("events", b"before").result(PATIENCE_S)
            with monkeypatch.context() as patches, pytest.raises(KeyboardInterrupt):
                patches.setattr(producer, "_driver", SimpleNamespace(mark_ready=lambda driven: press_ctrl_c()))
                producer.send("events", b"v")
            end(producer, PATIENCE_S)
            assert not producer._machine.unsettled()


def test_no_interrupt_of_a_send_is_in_the_way_of_the_next(
    cluster: pyreplog.Cluster, create: Callable[..., str]
) -> None:
    """Wherever it strikes: what is sent next, and asked next, is answered."""
    create()
    with cluster.producer() as producer:
        producer.send("events", b"before").result(PATIENCE_S)
        moment = 0
        going_on = True
        while going_on:
            moment += 1
            going_on = struck(Strike(moment), lambda: producer.send("events", b"v"))
            producer.flush(PATIENCE_S)
            producer.send("events", b"w").exception(PATIENCE_S)
        assert moment > 3


def test_a_look_up_that_is_lost_between_asking_and_answering_fails(
    cluster: pyreplog.Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever for a question that a machine which was interrupted had begun to ask."""
    create()
    with cluster.consumer("events") as consumer:
        machine, driven = consumer._current
        with still(cluster._driver), driven.lock:
            answer = machine.look_up("events", 0, -1)
            monkeypatch.setattr(
                machine._lookups,
                "_calls",
                SimpleNamespace(send=lambda *given: press_ctrl_c(), close=machine._calls.close),
            )
            with pytest.raises(KeyboardInterrupt):
                machine._lookups.ask(cluster._driver.monotonic_ns())
            assert not answer.settled
        with still(cluster._driver):
            driven.busy = True
            consumer._interrupted(None)
        assert answer.settled
        assert answer.error is not None


@pytest.mark.parametrize("error", [None, RuntimeError("a bug")])
def test_who_waits_at_a_consumer_that_breaks_goes_on_waiting(
    cluster: pyreplog.Cluster, create: Callable[..., str], error: Exception | None
) -> None:
    """A thread in ``poll(None)`` gets the next record although the machine that it waited at is replaced; of a
    failure it hears, once."""
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
        assert cluster._driver.wait_until(lambda: bool(consumer._machine._waiting), PATIENCE_S)
        with still(cluster._driver):
            cluster._driver._fail(consumer._driven, error)
        producer.send("events", b"second").result(PATIENCE_S)
        thread.join(PATIENCE_S)
        assert got == [b"second"]
        assert [failure.__cause__ for failure in told] == [error] * (error is not None)


def while_replaced(client: Any, act: Callable[[], object]) -> threading.Thread:
    """Have another thread ``act`` as soon as the next machine of ``client`` is wanted; it is given time to do that
    with the last."""
    make = client._make
    thread = threading.Thread(target=act, daemon=True)

    def make_beside(*arguments: Any) -> Any:
        made = make(*arguments)
        thread.start()
        thread.join(0.2)
        return made

    client._make = make_beside
    return thread


def replace(cluster: pyreplog.Cluster, driven: Any) -> None:
    """As if the machine of ``driven`` had been cut short."""
    with still(cluster._driver):
        cluster._driver._fail(driven, None)
        cluster._driver._mend()


@pytest.mark.parametrize("way", ["send", "send_many", "try_append_nowait", "partitions"])
def test_who_sends_while_a_producer_is_replaced(
    cluster: pyreplog.Cluster, create: Callable[..., str], way: str
) -> None:
    """Another thread's record goes by the machine before, and its outcome is unknown then, or by the one after: no
    error of its own."""
    create()
    with cluster.producer() as producer:
        producer.send("events", b"first").result(PATIENCE_S)
        told: list[object] = []

        def act() -> None:
            try:
                if way == "send_many":
                    told.append(producer.send_many("events", [b"x"])[0])
                elif way == "partitions":
                    told.append(producer.partitions("events"))
                elif way == "try_append_nowait":
                    told.append(producer._offer("events", b"x", None, None, (), None) or producer.send("events", b"x"))
                else:
                    told.append(producer.send("events", b"x"))
            except BaseException as error:
                told.append(error)

        thread = while_replaced(producer, act)
        replace(cluster, producer._driven)
        thread.join(PATIENCE_S)
        if way == "partitions":
            assert told == [1]
        else:
            ack = told[0]
            assert isinstance(ack, pyreplog.Ack), ack
            assert ack.result(PATIENCE_S).offset == 1


def test_who_waits_for_news_of_a_topic_asks_the_next_machine(
    cluster: pyreplog.Cluster, create: Callable[..., str]
) -> None:
    """A producer's and a consumer's first question about a topic is not lost with the machine that was asked."""
    create()
    create("second")
    done: list[object] = []
    with cluster.producer() as producer, cluster.consumer("events") as consumer:
        for client, ask in (
            (producer, lambda: producer.send("second", b"x").result(PATIENCE_S)),
            (consumer, lambda: consumer.assign("second", timeout=PATIENCE_S)),
        ):
            driven = client._driven
            with still(cluster._driver):
                cluster._driver.pause(driven)
            thread = threading.Thread(target=lambda ask=ask: done.append(ask()), daemon=True)
            thread.start()
            machine: Any = driven.machine
            assert cluster._driver.wait_until(lambda machine=machine: "second" in machine._router.wanted, PATIENCE_S)  # type: ignore[misc]
            with still(cluster._driver):
                cluster._driver.resume(driven)
            replace(cluster, driven)
            thread.join(5.0)  # half of what it would wait for news
            assert not thread.is_alive()
    assert len(done) == 2


def test_a_consumer_that_is_replaced_gives_each_record_once(
    cluster: pyreplog.Cluster, create: Callable[..., str]
) -> None:
    """What another thread takes while the next machine is made is not read again by that one."""
    create()
    with cluster.producer() as producer:
        producer.send_many("events", [b"%d" % number for number in range(5)]).result(PATIENCE_S)
    with cluster.consumer("events") as consumer:
        taken = [record.offset for record in consumer.poll(PATIENCE_S, 1)]
        thread = while_replaced(
            consumer, lambda: taken.extend(record.offset for record in consumer.poll(PATIENCE_S, 2))
        )
        replace(cluster, consumer._driven)
        thread.join(PATIENCE_S)
        while len(taken) < 5:
            taken.extend(record.offset for record in consumer.poll(PATIENCE_S))
        assert sorted(taken) == list(range(5))


def test_who_asks_while_the_admin_client_is_replaced(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """A question never goes to a machine that nobody moves any more."""
    create()
    found: list[list[str]] = []
    thread = while_replaced(cluster.admin, lambda: found.append(cluster.admin.topics()))
    replace(cluster, cluster.admin._current[1])
    thread.join(PATIENCE_S)
    assert found == [["events"]]


@pytest.mark.parametrize("way", ["poll", "take", "look_up"])
def test_a_consumer_closed_between_the_steps_of_a_call(
    cluster: pyreplog.Cluster, create: Callable[..., str], way: str
) -> None:
    """Who found it open, and waits for ever when it is closed, is told."""
    create()
    consumer = cluster.consumer("events")
    consumer.seek_to_end()
    check = consumer._check
    told: list[BaseException | None] = []

    def check_first() -> None:
        check()
        consumer._check = check  # type: ignore[method-assign]
        consumer.close()

    def act() -> None:
        try:
            if way == "poll":
                consumer.poll(None)
            elif way == "look_up":
                consumer.end_offset("events", 0, timeout=None)
            else:
                _, pending = consumer._take()
                assert pending is not None
                pending.wait(None)
                told.append(None)
        except pyreplog.ClosedError as error:
            told.append(error)

    consumer._check = check_first  # type: ignore[method-assign]
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(10.0)
    assert len(told) == 1
    assert (told[0] is None) == (way == "take")


def test_a_closed_client_keeps_nobody_waiting(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Who waits without an end for news of a topic hears of the closing by another thread."""
    create()
    create("second")
    producer, consumer = cluster.producer(), cluster.consumer("events")
    told: list[object] = []

    def hear(act: Callable[[], object]) -> None:
        try:
            told.append(act())
        except pyreplog.ClosedError as error:
            told.append(str(error))

    acts: list[tuple[Any, Callable[[], object]]] = [
        (producer, lambda: producer.send("second", b"x")),
        (consumer, lambda: consumer.assign("second", timeout=None)),
    ]
    for client, act in acts:
        with still(cluster._driver):
            cluster._driver.pause(client._driven)
        waited = cluster._driver._waited_count
        thread = threading.Thread(target=hear, args=(act,), daemon=True)
        thread.start()
        while cluster._driver._waited_count < waited + 3:
            assert thread.is_alive()
        client.close(**({"timeout": 0.0} if client is producer else {}))
        thread.join(5.0)
    assert told == ["the producer is closed", "the consumer is closed"]


def test_closing_just_after_an_interrupt_is_no_clean_end(tmp_path: Path) -> None:
    """A node that was cut short half-way is not said to have ended in order: its next start verifies its files."""
    path = tmp_path / "data"
    with pyreplog.Cluster(path) as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
        with cluster.producer() as producer:
            offset = producer.send("events", b"v").result(PATIENCE_S).offset
        driven = cluster.nodes[1]._driven
        assert driven is not None
        with still(cluster._driver):
            driven.busy = True
            cluster._driver._machines.pop(driven.transport)
    markers = [os.path.exists(path / f"node-{number}" / ".kafka_cleanshutdown") for number in (1, 2, 3)]
    assert markers == [True, False, True]
    with pyreplog.Cluster(path) as cluster, cluster.consumer("events") as consumer:
        assert [(record.offset, record.value) for record in consumer.until_end()] == [(offset, b"v")]


def test_a_node_restarted_by_hand_is_not_restarted_again(cluster: pyreplog.Cluster) -> None:
    """What befell a former life of a node is forgotten when somebody kills or restarts it."""
    node = cluster.nodes[0]
    with still(cluster._driver):
        assert node._driven is not None
        cluster._driver._machines.pop(node._driven.transport)
        cluster._driver._broken.append((node._driven, None))
        node._kill()
        node._start()
        assert not cluster._driver._broken
        machine = node._node
    assert cluster._driver.wait_until(lambda: node.ready, PATIENCE_S)
    assert node._node is machine


def test_clients_leave_nothing_behind(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Closed clients, and those that were replaced, leave no endpoint, machine or address."""
    create()
    before = len(cluster._driver.network._endpoints), len(cluster._driver._machines), len(cluster._clients.trusted)
    for _ in range(5):
        with cluster.producer() as producer, cluster.consumer("events") as consumer:
            producer.send("events", b"v").result(PATIENCE_S)
            with still(cluster._driver):
                cluster._driver._fail(producer._driven, None)
                cluster._driver._fail(consumer._driven, None)
                cluster._driver._mend()
            producer.send("events", b"v").result(PATIENCE_S)
    assert (
        len(cluster._driver.network._endpoints),
        len(cluster._driver._machines),
        len(cluster._clients.trusted),
    ) == before


@pytest.mark.parametrize("who", ["admin", "controller"])
def test_an_admin_call_after_an_interruption_waits_for_who_begins_again(cluster: pyreplog.Cluster, who: str) -> None:
    """The client that was cut short has not put the question, and a controller that has just begun again counts on
    nobody yet."""
    driven = controller_driven(cluster) if who == "controller" else cluster.admin._current[1]
    assert driven is not None
    with still(cluster._driver):
        driven.busy = True  # as a turn that a signal handler cut short leaves it
    assert cluster.admin.create_topic("events").partitions[0].leader > 0
    assert cluster.admin.topics() == ["events"]


def test_nodes_that_are_away_are_not_waited_for(tmp_path: Path) -> None:
    """A controller that did not begin again knows that they are: that is said after a second, whatever the time
    allowed."""
    config = {"session_timeout_ms": 500, "heartbeat_interval_ms": 50}
    with pyreplog.Cluster(tmp_path / "short", nodes=4, roles={4: "controller"}, config=config) as cluster:
        for node in cluster.nodes[:3]:
            node.pause()
        assert cluster._driver.wait_until(
            lambda: not any(broker.active for broker in cluster._controller.image.brokers.values()), PATIENCE_S
        )
        assert cluster._driver.run_exclusively(cluster._nodes.are_known)
        with pytest.raises(pyreplog.BrokerNotAvailableError):
            cluster.admin.create_topic("events")


def test_no_node_is_waited_for_where_none_is_up(cluster: pyreplog.Cluster) -> None:
    """That is said at once."""
    for node in cluster.nodes:
        node.kill()
    with pytest.raises(pyreplog.BrokerNotAvailableError, match="no node is up"):
        cluster.admin.create_topic("events")


@contextlib.contextmanager
def handled(error: BaseException) -> Iterator[Callable[..., Any]]:
    """Has the program's own handler raise ``error``, from within whatever calls what this gives."""

    def ring(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield lambda *_, **__: signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("way", ["consumer", "send", "poll"])
def test_a_handlers_error_reaches_the_caller_of_a_client(
    cluster: pyreplog.Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The client raises it as it is, and does not take it for an error that its own step could raise."""
    create()
    errors: dict[str, BaseException] = {
        "consumer": KeyboardInterrupt("of the handler's"),
        "send": TimeoutError("of the handler's"),
        "poll": IndexError("of the handler's"),
    }
    with cluster.producer() as producer, cluster.consumer("events") as consumer, handled(errors[way]) as strike:

        class Left(list[object]):
            popleft = strike

        def poll() -> None:
            monkeypatch.setattr(consumer, "_left", Left([None]))
            consumer.poll()

        acts: dict[str, Callable[[], object]] = {
            "consumer": lambda: cluster.consumer("events"),
            "send": lambda: producer.send("events", b"v"),
            "poll": poll,
        }
        with monkeypatch.context() as patches, pytest.raises(type(errors[way])) as caught:
            patches.setattr(type(consumer._machine), "knows", strike)
            patches.setattr(producer, "_check_open", strike)
            acts[way]()
        assert caught.value is errors[way]
        monkeypatch.undo()


def struck_once(ring: Callable[..., Any], original: Callable[..., Any]) -> tuple[Callable[..., Any], list[bool]]:
    """``original``, before which ``ring`` comes the first time that the main thread calls it, and a list that then
    is not empty."""
    struck: list[bool] = []

    def strike(*given: Any, **more: Any) -> Any:
        if not struck and threading.current_thread() is threading.main_thread():
            struck.append(True)
            ring()
        return original(*given, **more)

    return strike, struck


@pytest.mark.parametrize(
    "error",
    [TimeoutError("of the handler's"), OSError(errno.EIO, "of the handler's"), KeyboardInterrupt("of the handler's")],
    ids=["timeout", "os", "interrupt"],
)
def test_a_handlers_error_is_no_refusal_of_a_leader(
    cluster: pyreplog.Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """An error that a handler raises within a leader's append reaches the waiting caller. The replica and its node
    continue."""
    create()
    with cluster.producer() as producer, handled(error) as ring:
        strike, struck = struck_once(ring, PartitionLog.append_as_leader)
        with monkeypatch.context() as patches, pytest.raises(type(error)) as caught:
            patches.setattr(PartitionLog, "append_as_leader", strike)
            while not struck:
                producer.send("events", b"v").result(PATIENCE_S)
        assert caught.value is error
        assert producer.send("events", b"after").result(PATIENCE_S).offset >= 0
    assert cluster._driver.wait_until(lambda: all(node.ready for node in cluster.nodes), PATIENCE_S)
    assert {node.failure for node in cluster.nodes} == {None}


@pytest.mark.parametrize("where", ["snapshot", "controller"])
def test_an_os_error_that_a_handler_raises_is_not_the_disks(
    cluster: pyreplog.Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The code at this place continues on a full disk. A handler's ENOSPC reaches the caller all the same, and the
    next call succeeds."""
    create(segment_bytes="2000")
    places: dict[str, tuple[object, str]] = {
        "snapshot": (producer_snapshot, "begin_file"),
        "controller": (RaftNode, "append"),
    }
    module, name = places[where]
    with cluster.producer() as producer, handled(OSError(errno.ENOSPC, "of the handler's")) as ring:
        strike, _ = struck_once(ring, getattr(module, name))

        def act(number: int) -> None:
            if where == "controller":
                cluster.admin.create_topic(f"topic-{number}")
            else:
                producer.send("events", bytes(300)).result(PATIENCE_S)

        with monkeypatch.context() as patches, pytest.raises(OSError, match="of the handler's"):
            patches.setattr(module, name, strike)
            for number in range(200):
                act(number)
        act(1000)


def test_a_value_error_of_a_handlers_is_not_lost_where_a_waiter_gives_up() -> None:
    """A list's own ValueError says that somebody was told just now."""

    class Ringing:
        def __eq__(self, other: object) -> bool:
            signal.raise_signal(signal.SIGALRM)
            return False

        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> None: ...

    error, pending = ValueError("of the handler's"), Completion()
    pending.add_waiter(Ringing())
    with handled(error), pytest.raises(ValueError, match="of the handler's") as caught:
        pending.remove_waiter(lambda: None)
    assert caught.value is error
