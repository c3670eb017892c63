"""Producer: the blocking face of :class:`pyreplog.client.Producer`. Thread-safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Literal, NoReturn, SupportsIndex, TypeAlias, TypeVar

from pyreplog.arrow import rows_of
from pyreplog.client import Acks, BatchResult, PartitionQueue
from pyreplog.client import Producer as Machine
from pyreplog.config import check_callable, check_seconds, listed
from pyreplog.errors import ClosedError, OutcomeUnknownError, PyreplogError, ReentrantCallError, UnknownTopicError
from pyreplog.ports import Buffer, Headers
from pyreplog.record import Ack
from pyreplog.runtime.arrow_fields import fields_of
from pyreplog.runtime.client_face import ClientFace
from pyreplog.runtime.deliveries import Deliveries, OnDelivery
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.error_advice import Advice
from pyreplog.runtime.folder_opening import check_name
from pyreplog.runtime.logger import tell_unheard
from pyreplog.runtime.send_functions import NO_FUNCTIONS, SendExtras, SendFunctions

__all__ = ["Producer"]

_Item = TypeVar("_Item")


_OpenBatch: TypeAlias = tuple[DrivenMachine, PartitionQueue, int, Callable[..., Ack | None]]
"""A machine, one of its queues, the number of batches that this had sealed, and a function that adds a record to the
batch that is open since then. Used under the machine's lock."""


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
        functions: SendFunctions = NO_FUNCTIONS,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Called by the cluster only. ``make`` returns the machine and its DrivenMachine. It is called again after a
        signal handler interrupted the machine half-way; its argument is called with that failure. ``now_ms``: the time
        of records without one; None: this machine's clock."""
        self._driver = driver
        self._advice = advice
        self._make = make
        self._on_close = on_close
        self._cluster = cluster
        self._known: dict[str, None] = {}
        """The topics that the current machine knows. Emptied before another machine replaces it."""
        self._open_batches: dict[tuple[str, int | None], _OpenBatch] = {}
        """The batch that the last :meth:`send` to a partition, or to any (None), left open."""
        self._now_ms = now_ms
        self._functions = functions
        self._has_functions = functions != NO_FUNCTIONS
        self._deliveries = Deliveries()
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
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        on_delivery: OnDelivery | None = None,
        acks: Literal["all", -1, 1, 0] | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Send one record soon and return its :class:`Ack` at once.

        The record goes to ``partition`` if given, else to the partition of its ``key`` (Kafka's murmur2, or the
        producer's partitioner), else together with others to a partition that the producer chooses. ``timestamp`` in ms
        since 1970, or an aware datetime (default: now). The call waits only for the metadata of a new topic, and while
        the buffer is full.

        ``on_delivery(metadata, error)`` is called once, in a thread of the producer: with the record's RecordMetadata
        and None, or with None and the error. It may use the producer; an exception is logged and changes nothing.
        ``acks`` and ``timeout`` (seconds) are for this record alone: it gets a batch of its own behind the earlier
        records of its partition. When ``timeout`` passes, an unsent record is refused, and the outcome of a sent one
        is unknown (OutcomeUnknownError).

        Raises TypeError for a ``str`` without a serializer, ConfigError for a naive datetime and a time before 1970 (-1
        means none), UnknownTopicError, MessageTooLargeError, RequestTimedOutError if the topic's metadata does not come
        within ``max_block_ms`` or ``timeout``. Later errors are raised by the Ack. Exceptions of a serializer and of a
        partitioner are raised as they are; nothing was sent then.
        """
        if self._has_functions or on_delivery is not None or acks is not None or timeout is not None:
            extras = SendExtras.checked(on_delivery, acks, timeout)
            functions = self._functions
            value, key = functions.value_of(value), functions.key_of(key)
            return self._send_apart(topic, value, key, partition, headers, timestamp, extras)
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
                    is_usual = partition.__class__ is int or (partition is None and key is None)
                    batch = self._open_batches.get((topic, partition)) if is_usual else None
                    added = None
                    is_open = False
                    if batch is not None and batch[0] is driven and batch[1].sealed_count == batch[2]:
                        is_open = True
                        added = batch[3](value, key=key, headers=headers, timestamp=timestamp)
                    if added is None:
                        ack = machine.send(
                            topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp
                        )
                        if is_usual and not is_open:
                            self._note_open(driven, machine.topics[topic].last_queue(partition), topic, partition)
                    else:
                        ack = added
                break
            except ClosedError:
                if self._closed or current is self._current:
                    raise
        self._driver.mark_ready(driven)
        if added is None and machine.buffered_size > machine.config.buffer_size_max:
            self._wait_for_room()
        return ack

    def _note_open(self, driven: DrivenMachine, queue: PartitionQueue, topic: str, partition: int | None) -> None:
        """Let the next records of a partition, or of any (None), go straight to its open batch."""
        self._open_batches[topic, partition] = driven, queue, queue.sealed_count, queue.gathering(self._now_ms)

    def _send_apart(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None,
        partition: int | None,
        headers: Headers,
        timestamp: int | datetime | None,
        extras: SendExtras,
    ) -> Ack:
        """Send serialized fields as :meth:`send` does, with the producer's functions or the ``extras`` of one send."""
        since_ns = self._driver.monotonic_ns()

        def prepare(machine: Machine) -> Callable[[], Ack]:
            number = self._placed(machine, topic, key, partition)
            left_ns = None
            if extras.timeout is not None:
                left_ns = max(int(extras.timeout * 1e9) - (self._driver.monotonic_ns() - since_ns), 0)
            return partial(self._queue, machine, (topic, value, key, number, headers, timestamp), extras, left_ns)

        return self._hand_over(topic, prepare, since_ns, extras.timeout)

    def _placed(self, machine: Machine, topic: str, key: Buffer | None, partition: int | None) -> int | None:
        """Return ``partition``, or the partitioner's answer if there is one and the caller named none."""
        if partition is None and self._functions.partitioner is not None:
            return self._functions.partition_of(topic, key, machine.partition_count(topic))
        return partition

    def _queue(
        self,
        machine: Machine,
        fields: tuple[str, Buffer | None, Buffer | None, int | None, Headers, int | datetime | None],
        extras: SendExtras,
        timeout_ns: int | None,
    ) -> Ack:
        """Queue one record. REQUIRES the machine's lock."""
        topic, value, key, partition, headers, timestamp = fields
        call = extras.on_delivery or self._functions.on_delivery
        if call is not None:
            self._deliveries.start()
        outcome, index = machine.send_apart(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp=timestamp,
            acks=extras.acks,
            timeout_ns=timeout_ns,
        )
        if call is not None:
            self._deliveries.expect(outcome, index, call)
        return Ack(outcome, index)

    def _hand_over(
        self,
        topic: str,
        prepare: Callable[[Machine], Callable[[], _Item]],
        since_ns: int | None = None,
        patience: float | None = None,
    ) -> _Item:
        """Return ``prepare(machine)()``; only the second call is made under the machine's lock. Wait for the topic's
        metadata before, and for room in the buffer afterwards, as :meth:`send` does."""
        while True:
            current = self._current  # as in send
            if topic not in self._known:
                self._learn(topic, since_ns, patience)
                continue
            machine, driven = current
            act = prepare(machine)
            try:
                with driven.lock.enter():
                    found = act()
                break
            except ClosedError:
                if self._closed or current is self._current:
                    raise
        self._driver.mark_ready(driven)
        if machine.buffered_size > machine.config.buffer_size_max and patience is None:
            self._wait_for_room()
        return found

    def _offer(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None,
        partition: int | None,
        headers: Headers,
        timestamp: int | datetime | None,
        extras: SendExtras | None = None,
    ) -> Ack | None:
        """Send serialized fields like :meth:`send`, but never wait, not even for the machine's lock. None: nothing was
        sent; the caller must use :meth:`send`."""
        machine, driven = self._current
        if topic not in self._known or machine.buffered_size > machine.config.buffer_size_max:
            return None
        if extras is not None:
            partition = self._placed(machine, topic, key, partition)
        held: list[bool] = []
        try:
            if not driven.lock.try_enter(held):
                return None
            if extras is None:
                ack = machine.send(topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp)
            else:
                timeout_ns = None if extras.timeout is None else int(extras.timeout * 1e9)
                ack = self._queue(machine, (topic, value, key, partition, headers, timestamp), extras, timeout_ns)
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
        values: Iterable[Any],
        *,
        keys: Sequence[Any] | None = None,
        partition: int | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int | datetime] | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Acks:
        """Send many records, each as :meth:`send` would, and return their :class:`Acks`: ``acks.wait()``,
        ``acks.result()``, ``acks[0]``. If this call raises for one of them (MessageTooLargeError, TypeError,
        ConfigError, or an exception of a serializer), none is sent. ``on_delivery`` is called for each record."""
        if not isinstance(values, (list, tuple)):
            values = listed(values, "send_many", "send")
        keys, headers, timestamps = (
            _listed(keys, "keys"),
            _listed(headers, "headers"),
            _listed(timestamps, "timestamps"),
        )
        check_callable("on_delivery", on_delivery, "a function of a RecordMetadata and an error")
        functions = self._functions
        return self._send_fields(
            topic,
            (functions.values_of(values), functions.keys_of(keys), headers, timestamps),
            partition,
            on_delivery or functions.on_delivery,
        )

    def _send_fields(
        self,
        topic: str,
        fields: tuple[
            Sequence[Buffer | None],
            Sequence[Buffer | None] | None,
            Sequence[Headers] | None,
            Sequence[int | datetime] | None,
        ],
        partition: int | None,
        call: OnDelivery | None,
    ) -> Acks:
        """Send the serialized values, keys, headers and timestamps of many records."""
        values, keys, headers, timestamps = fields

        def prepare(machine: Machine) -> Callable[[], Acks]:
            chosen: int | list[int] | None = partition
            if partition is None and self._functions.partitioner is not None:
                count = machine.partition_count(topic)
                chosen = [
                    self._functions.partition_of(topic, key, count)
                    for key in ([None] * len(values) if keys is None else keys)
                ]
            if call is not None:
                self._deliveries.start()
            return partial(send, machine, chosen)

        def send(machine: Machine, chosen: int | list[int] | None) -> Acks:
            acks = machine.send_many(topic, values, keys=keys, partition=chosen, headers=headers, timestamps=timestamps)
            if call is not None:
                for outcome, start, count in acks.runs:
                    for index in range(start, start + count):
                        self._deliveries.expect(outcome, index, call)
            return acks

        return self._hand_over(topic, prepare)

    def send_arrow(
        self, topic: str, table: object, *, partition: int | None = None, on_delivery: OnDelivery | None = None
    ) -> Acks:
        """Send the rows of an Arrow table, record batch or stream, as :meth:`send_many` would, and return their
        :class:`Acks`.

        ``table`` and its columns: see :meth:`Log.append_arrow`. They hold bytes, so serializers are not called; each
        row goes to ``partition`` if given, else by its key as in :meth:`send`. A stream is read to its end first. If
        this call raises for one row, none is sent.
        """
        check_callable("on_delivery", on_delivery, "a function of a RecordMetadata and an error")
        rows = rows_of(table)
        self.partitions(topic)  # waits for the topic's metadata, and raises its errors
        fields = fields_of(rows, self._machine.limits(topic).alone_max, topic)
        return self._send_fields(topic, fields, partition, on_delivery or self._functions.on_delivery)

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

    def _learn(self, topic: str, since_ns: int | None = None, patience: float | None = None) -> None:
        """Wait until the topic's metadata is known, at most as long as a :meth:`send` that began at ``since_ns`` (None:
        now) with the timeout ``patience`` would."""
        self._check_open()
        check_name(topic)

        def is_known(machine: Machine) -> bool:
            if not machine.knows(topic):
                return False
            self._known[topic] = None
            return True

        config = self._machine.config
        patience_s = min(config.max_block_ms, config.delivery_timeout_ms) / 1000
        if patience is not None:
            patience_s = min(patience_s, patience)
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
        """Return when every record sent so far is acknowledged or refused (its Ack says which), and its ``on_delivery``
        has returned. Raise TimeoutError after ``timeout`` seconds."""
        patience = check_seconds("timeout", timeout)
        until = None if patience is None else time.monotonic() + patience

        def left() -> float | None:
            return None if until is None else max(until - time.monotonic(), 0.0)

        for outcome in self._unsettled():
            if not self._driver.wait(outcome, left()):
                raise TimeoutError(
                    f"not all is acknowledged after {patience:g} s; sending goes on in the background"
                    f"{self._driver.obstacle()}"
                )
        if self._deliveries.is_used:
            with self._driven.lock.enter():
                pass  # the thread that settled the last batch has handed it over now
            if not self._deliveries.wait(left()):
                raise TimeoutError(f"not all on_delivery functions have returned after {patience:g} s")

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
            self._open_batches.clear()
            self._on_close(self)
            self._ended = True
            if self._deliveries.is_used:
                self._deliveries.close(timeout)
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
            self._open_batches.clear()
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
