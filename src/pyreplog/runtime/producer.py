"""Producer: the blocking face of :class:`pyreplog.client.Producer`. Thread-safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import NoReturn, SupportsIndex, TypeVar

from pyreplog.client import Acks, BatchResult
from pyreplog.client import Producer as Machine
from pyreplog.config import check_seconds, listed
from pyreplog.errors import ClosedError, OutcomeUnknownError, PyreplogError, ReentrantCallError, UnknownTopicError
from pyreplog.ports import Buffer, Headers
from pyreplog.record import Ack
from pyreplog.runtime.advice import Advice
from pyreplog.runtime.client_face import ClientFace
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.logger import tell_unheard
from pyreplog.runtime.opening import check_name

__all__ = ["Producer"]

_Item = TypeVar("_Item")


def _listed(given: Iterable[_Item] | None, name: str) -> Sequence[_Item] | None:
    """What goes with the values, to be read more than once: themselves, or what they give."""
    if given is None or isinstance(given, (list, tuple)):
        return given
    if isinstance(given, (str, bytes, bytearray, memoryview)) or not isinstance(given, Iterable):
        raise TypeError(f"{name} are a list, with one for each value, not {type(given).__name__}")
    return list(given)


class Producer(ClientFace[Machine]):
    """Sends records to a cluster's topics. Made by ``cluster.producer()``; use it in ``with``, or call ``close``.

    ``send`` does not wait: the :class:`Ack` it returns does (``ack.result()``, ``await ack``). Records sent
    meanwhile share batches.
    """

    _noun = "producer"

    def __init__(
        self,
        driver: Driver,
        advice: Advice,
        make: Callable[[Callable[[Exception | None], None]], tuple[Machine, DrivenMachine]],
        on_close: Callable[[Producer], None],
        cluster: str,
    ) -> None:
        """Made by the cluster. ``make`` gives the machine and its seat, again after one was interrupted half-way,
        told whom to tell of that."""
        self._driver = driver
        self._advice = advice
        self._make = make
        self._on_close = on_close
        self._cluster = cluster
        self._known: dict[str, None] = {}
        """The topics that the machine knows which is there now: emptied before another takes its place."""
        self._closed = False
        self._ended = False
        self._place = driver.run_exclusively(lambda: make(self._interrupted))

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Producer cannot be copied or pickled: it belongs to its cluster, in this process; threads may share it"
        )

    def send(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
    ) -> Ack:
        """Send one record soon and return its :class:`Ack` at once.

        It goes to ``partition`` if given, else where Kafka's murmur2 puts its ``key``, else together with others to
        a partition of the producer's choice. ``timestamp`` in ms since 1970, or an aware datetime (default: now).
        Waits only for the first news of a topic, and while very much is on its way. Raises TypeError for a ``str``,
        ConfigError for a naive datetime and a time before 1970 (-1 means none), UnknownTopicError,
        MessageTooLargeError, RequestTimedOutError where there is no news of the topic within ``max_block_ms``; what
        happens to the record later is the Ack's to tell.
        """
        while True:
            place = (
                self._place
            )  # before what is known: who finds the next machine here finds nothing there that is not its own
            if topic not in self._known:
                self._learn(topic)
                continue
            machine, seat = place
            try:
                with seat.lock.enter():
                    ack = machine.send(topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp)
                break
            except ClosedError:
                if self._closed or place is self._place:
                    raise
        self._driver.mark_ready(seat)
        if machine.buffered_size > machine.config.buffer_size_max:
            self._wait_for_room()
        return ack

    def _offer(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None,
        partition: int | None,
        headers: Headers,
        timestamp: int | datetime | None,
    ) -> Ack | None:
        """As :meth:`send`, where nothing has to be waited for, not even the machine. None: nothing was taken; take
        the long way."""
        machine, seat = self._place
        if topic not in self._known or machine.buffered_size > machine.config.buffer_size_max:
            return None
        held: list[bool] = []
        try:
            if not seat.lock.try_enter(held):
                return None
            ack = machine.send(topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp)
        except ClosedError:  # replaced just now, or closed: the long way tells
            return None
        finally:
            if held:
                seat.lock.release()
        self._driver.mark_ready(seat)
        return ack

    def send_many(
        self,
        topic: str,
        values: Iterable[Buffer | None],
        *,
        keys: Sequence[Buffer | None] | None = None,
        partition: int | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int | datetime] | None = None,
    ) -> Acks:
        """Send many records, each as :meth:`send` would, and return their :class:`Acks`: ``acks.wait()``,
        ``acks.result()``, ``acks[0]``. Where one of them is refused here (MessageTooLargeError, TypeError,
        ConfigError), none is sent."""
        if not isinstance(values, (list, tuple)):
            values = listed(values, "send_many", "send")
        keys, headers, timestamps = (
            _listed(keys, "keys"),
            _listed(headers, "headers"),
            _listed(timestamps, "timestamps"),
        )
        while True:
            place = self._place  # as in send
            if topic not in self._known:
                self._learn(topic)
                continue
            machine, seat = place
            try:
                with seat.lock.enter():
                    acks = machine.send_many(
                        topic, values, keys=keys, partition=partition, headers=headers, timestamps=timestamps
                    )
                break
            except ClosedError:
                if self._closed or place is self._place:
                    raise
        self._driver.mark_ready(seat)
        if machine.buffered_size > machine.config.buffer_size_max:
            self._wait_for_room()
        return acks

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has. Raises UnknownTopicError, and RequestTimedOutError as :meth:`send`
        does."""
        while True:
            machine, _ = self._place  # as in send
            if topic in self._known:
                return machine.partition_count(topic)
            self._learn(topic)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, or the cluster's."""
        return self._closed

    def _knows(self, topic: str) -> bool:
        """Whether there is news of the topic, for which nobody has to wait then."""
        return topic in self._known

    def _learn(self, topic: str, since_ns: int | None = None) -> None:
        """Return once there is news of the topic, waiting for it as who sent to it at ``since_ns`` (None: now)
        would."""
        self._check_open()
        check_name(topic)

        def is_known(machine: Machine) -> bool:
            if not machine.knows(topic):
                return False
            self._known[topic] = None
            return True

        config = self._machine.config
        patience_s = min(config.max_block_ms, config.delivery_timeout_ms) / 1000
        try:
            waited_s = 0.0 if since_ns is None else (self._driver.monotonic_ns() - since_ns) / 1e9
            in_time = self._await(lambda machine: machine.want(topic), is_known, max(patience_s - waited_s, 0.0))
        except UnknownTopicError:
            raise self._advice.unknown_topic(topic) from None
        if not in_time:
            raise self._advice.late(f"nothing was sent: topic {topic!r}", patience_s)

    def _wait_for_room(self) -> None:
        while self._machine.buffered_size > self._machine.config.buffer_size_max:
            waiting = self._unsettled()
            if not waiting:
                return
            try:
                self._driver.wait_for(waiting[0], None)
            except ReentrantCallError:
                return  # the record was taken, and who could make room is this thread itself

    def _unsettled(self) -> list[BatchResult]:
        machine, seat = self._place
        with seat.lock.enter():
            waiting = machine.unsettled()
        if waiting:
            self._driver.mark_ready(seat)  # who sent it may have been interrupted before that
        return waiting

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything sent so far is acknowledged or refused (its Acks say which); TimeoutError after
        ``timeout`` seconds."""
        patience = check_seconds("timeout", timeout)
        until = None if patience is None else time.monotonic() + patience
        for outcome in self._unsettled():
            if not self._driver.wait(outcome, None if until is None else max(until - time.monotonic(), 0.0)):
                raise TimeoutError(
                    f"not all is acknowledged after {patience:g} s; what was sent goes on in the background"
                )

    def close(self, timeout: float | None = None) -> None:
        """:meth:`flush`, then end. Twice is harmless, and finishes what was interrupted.

        Of records that were not acknowledged, and whose Acks nobody asked, a warning is logged: how many, and why
        the first was not.
        """
        check_seconds("timeout", timeout)
        if self._driver.is_parents:  # which sends what it holds
            self._closed = self._ended = True
        if self._ended:
            return
        self._driver.check_free()
        try:
            if not self._closed:
                self.flush(timeout)
        finally:
            self._closed = True
            self._known.clear()
            self._on_close(self)
            self._ended = True
            tell_unheard(self._machine.failures, f"a producer of the cluster {self._cluster!r}")

    def _interrupted(self, error: Exception | None) -> None:
        """The machine was cut short by a signal handler (or failed): what it had on its way is unknown, and a new
        one goes on. Called by whoever drives."""
        failure: PyreplogError = OutcomeUnknownError("sending records", "interrupted" if error is None else str(error))
        machine, seat = self._place
        with seat.lock:  # who sends has sent, or finds the next one
            machine.abandon(failure)
            seat.transport.close()
            if self._closed:
                return
            following = self._make(self._interrupted)
            following[0].failures = machine.failures
            for topic in list(self._known):
                following[0].want(topic)
            self._known.clear()
            self._place = following

    def __enter__(self) -> Producer:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        acks = "all" if self._machine.config.acks == -1 else self._machine.config.acks
        return (
            f"<pyreplog.Producer acks={acks} with {self._machine.buffered_size} bytes on their"
            f" way{', closed' if self._closed else ''}>"
        )
