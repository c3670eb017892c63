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
from pyreplog.runtime.client_face import ClientFace
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.error_advice import Advice
from pyreplog.runtime.folder_opening import check_name
from pyreplog.runtime.logger import tell_unheard

__all__ = ["Producer"]

_Item = TypeVar("_Item")


def _listed(given: Iterable[_Item] | None, name: str) -> Sequence[_Item] | None:
    """Return ``given`` as a list or tuple, so that it can be read more than once; None stays None."""
    if given is None or isinstance(given, (list, tuple)):
        return given
    if isinstance(given, (str, bytes, bytearray, memoryview)) or not isinstance(given, Iterable):
        raise TypeError(f"{name} are a list, with one for each value, not {type(given).__name__}")
    return list(given)


class Producer(ClientFace[Machine]):
    """Sends records to a cluster's topics. Made by ``cluster.producer()``; use it in ``with``, or call ``close``.

    ``send`` does not wait: the :class:`Ack` it returns does (``ack.result()``, ``await ack``). Records that are sent
    before an earlier batch is written share batches.
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
        """Called by the cluster only. ``make`` returns the machine and its DrivenMachine. It is called again after a
        signal handler interrupted the machine half-way; its argument is called with that failure."""
        self._driver = driver
        self._advice = advice
        self._make = make
        self._on_close = on_close
        self._cluster = cluster
        self._known: dict[str, None] = {}
        """The topics that the current machine knows. Emptied before another machine replaces it."""
        self._closed = False
        self._ended = False
        self._current = driver.run_exclusively(lambda: make(self._interrupted))

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

        The record goes to ``partition`` if given, else to the partition of its ``key`` (Kafka's murmur2), else together
        with others to a partition that the producer chooses. ``timestamp`` in ms since 1970, or an aware datetime
        (default: now). The call waits only for the metadata of a new topic, and while the buffer is full.

        Raises TypeError for a ``str``, ConfigError for a naive datetime and a time before 1970 (-1 means none),
        UnknownTopicError, MessageTooLargeError, RequestTimedOutError if the topic's metadata does not come within
        ``max_block_ms``. Later errors are raised by the Ack.
        """
        while True:
            # Read _current before _known. _known is emptied before the machine is replaced, so it
            # never holds topics that only an older machine than this one knows.
            current = self._current
            if topic not in self._known:
                self._learn(topic)
                continue
            machine, driven = current
            try:
                with driven.lock.enter():
                    ack = machine.send(topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp)
                break
            except ClosedError:
                if self._closed or current is self._current:
                    raise
        self._driver.mark_ready(driven)
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
        """Send like :meth:`send`, but never wait, not even for the machine's lock. None: nothing was sent; the caller
        must use :meth:`send`."""
        machine, driven = self._current
        if topic not in self._known or machine.buffered_size > machine.config.buffer_size_max:
            return None
        held: list[bool] = []
        try:
            if not driven.lock.try_enter(held):
                return None
            ack = machine.send(topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp)
        except ClosedError:  # replaced just now, or closed: send() finds out which
            return None
        finally:
            if held:
                driven.lock.release()
        self._driver.mark_ready(driven)
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
        ``acks.result()``, ``acks[0]``. If this call raises for one of them (MessageTooLargeError, TypeError,
        ConfigError), none is sent."""
        if not isinstance(values, (list, tuple)):
            values = listed(values, "send_many", "send")
        keys, headers, timestamps = (
            _listed(keys, "keys"),
            _listed(headers, "headers"),
            _listed(timestamps, "timestamps"),
        )
        while True:
            current = self._current  # as in send
            if topic not in self._known:
                self._learn(topic)
                continue
            machine, driven = current
            try:
                with driven.lock.enter():
                    acks = machine.send_many(
                        topic, values, keys=keys, partition=partition, headers=headers, timestamps=timestamps
                    )
                break
            except ClosedError:
                if self._closed or current is self._current:
                    raise
        self._driver.mark_ready(driven)
        if machine.buffered_size > machine.config.buffer_size_max:
            self._wait_for_room()
        return acks

    def partitions(self, topic: str) -> int:
        """Return the number of the topic's partitions. Raises UnknownTopicError, and RequestTimedOutError as
        :meth:`send` does."""
        while True:
            machine, _ = self._current  # as in send
            if topic in self._known:
                return machine.partition_count(topic)
            self._learn(topic)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, on this producer or on its cluster."""
        return self._closed

    def _knows(self, topic: str) -> bool:
        """Return whether the topic's metadata is known, so that a call need not wait for it."""
        return topic in self._known

    def _learn(self, topic: str, since_ns: int | None = None) -> None:
        """Wait until the topic's metadata is known, at most as long as a :meth:`send` that began at ``since_ns`` (None:
        now) would."""
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
                return  # the record was taken, and only this thread could make room

    def _unsettled(self) -> list[BatchResult]:
        machine, driven = self._current
        with driven.lock.enter():
            waiting = machine.unsettled()
        if waiting:
            self._driver.mark_ready(driven)  # the sender may have been interrupted before it did this
        return waiting

    def flush(self, timeout: float | None = None) -> None:
        """Return when every record sent so far is acknowledged or refused (its Ack says which). Raise TimeoutError
        after ``timeout`` seconds."""
        patience = check_seconds("timeout", timeout)
        until = None if patience is None else time.monotonic() + patience
        for outcome in self._unsettled():
            if not self._driver.wait(outcome, None if until is None else max(until - time.monotonic(), 0.0)):
                raise TimeoutError(
                    f"not all is acknowledged after {patience:g} s; sending goes on in the background"
                    f"{self._driver.obstacle()}"
                )

    def close(self, timeout: float | None = None) -> None:
        """Flush as :meth:`flush` does, then close the producer. A second call is harmless, and completes an interrupted
        one.

        If records failed and no caller read their Acks, a warning is logged: how many, and the error of the first.
        """
        check_seconds("timeout", timeout)
        if self._driver.is_parents:  # the parent process sends the buffered records
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
        """Replace the machine, because a signal handler interrupted it or it failed. The outcome of its unacknowledged
        records is unknown. Called by the driving thread."""
        failure: PyreplogError = OutcomeUnknownError("sending records", "interrupted" if error is None else str(error))
        machine, driven = self._current
        with driven.lock:  # a sending thread has sent before this, or finds the new machine
            machine.abandon(failure)
            driven.transport.close()
            if self._closed:
                return
            following = self._make(self._interrupted)
            following[0].failures = machine.failures
            for topic in list(self._known):
                following[0].want(topic)
            self._known.clear()
            self._current = following

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
