"""Consumer: the blocking face of :class:`pyreplog.client.Consumer`. Thread-safe, but threads that share one also share
its positions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, NoReturn, SupportsIndex, overload

from pyreplog.arrow import timestamp_ms
from pyreplog.client import Completion, Ends
from pyreplog.client import Consumer as Machine
from pyreplog.config import INT64_MAX, check_seconds, whole
from pyreplog.errors import ConfigError, InternalError, UnknownTopicError
from pyreplog.record import Record
from pyreplog.runtime.client_face import ClientFace
from pyreplog.runtime.deserializers import NO_DESERIALIZERS, Deserializers
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.error_advice import Advice
from pyreplog.runtime.subscription import Subject, partitions_of, place_of, topics_of
from pyreplog.system import is_interruption
from pyreplog.values import TopicPartition
from pyreplog.wire import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

__all__ = ["ANSWER_TIMEOUT_S", "Consumer", "Subject", "place_of"]

ANSWER_TIMEOUT_S: Final = 10.0
"""Seconds that a call waits for an answer of the cluster by default."""
_LOOKED_UP: Final = {EARLIEST_TIMESTAMP: "the first offset", LATEST_TIMESTAMP: "the end"}


class Consumer(ClientFace[Machine]):
    """Reads records of a cluster's topics. Made by ``cluster.consumer(...)``; use it in ``with``, or call
    ``close``.

    Records come in order within each partition, and only once they are below the high watermark. Iterating over the
    consumer never ends (it waits for more); ``until_end()`` stops at the current end. A loop may be left at any record:
    the next loop, ``poll`` or ``position`` goes on behind the last record that the loop returned.
    """

    _noun = "consumer"

    def __init__(
        self,
        driver: Driver,
        advice: Advice,
        make: Callable[[Callable[[Exception | None], None]], tuple[Machine, DrivenMachine]],
        on_close: Callable[[Consumer], None],
        subject: Subject,
        timeout: float | None,
        deserializers: Deserializers = NO_DESERIALIZERS,
    ) -> None:
        """Called by the cluster only. ``make`` returns the machine and its DrivenMachine. It is called again after a
        signal handler interrupted the machine half-way; its argument is called with that failure."""
        self._driver = driver
        self._advice = advice
        self._make = make
        self._on_close = on_close
        self._closed = False
        self._ended = False
        self._failure: Exception | None = None
        self._deserializers = deserializers
        self._decodes = deserializers != NO_DESERIALIZERS
        self._left: deque[Record] = deque()
        """Records that were taken for an iteration and not returned yet. Every read returns them first. Filled under
        the machine's lock."""
        self._current = driver.run_exclusively(lambda: make(self._interrupted))
        try:
            self.assign(subject, timeout=timeout)
        except BaseException:
            self.close()
            raise

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Consumer cannot be copied or pickled: it belongs to its cluster, in this process; make another with"
            " cluster.consumer()"
        )

    # ----------------------------------------------------------------------------------- assignment

    def assign(self, subject: Subject, *, timeout: float | None = ANSWER_TIMEOUT_S) -> None:
        """Read these from now on: a topic (all its partitions, also those that it gets later, which are read from their
        first record), a (topic, partition) pair, or several of these. Partitions that were assigned before keep their
        positions.

        Raises UnknownTopicError if a topic or partition does not exist, RequestTimedOutError if the cluster does not
        answer within ``timeout`` seconds (None: wait for ever). The assignment is then unchanged.
        """
        subject = list(subject) if isinstance(subject, Iterator) else subject
        self._take_up(self._partitions_of(subject, timeout), topics_of(subject))

    def _partitions_of(self, subject: Subject, timeout: float | None) -> list[TopicPartition]:
        """Return the partitions that :meth:`assign` would read. It waits for the metadata and changes nothing."""
        self._check()
        patience = check_seconds("timeout", timeout)
        return partitions_of(subject, lambda topic: range(self._partition_count(topic, patience)))

    def _take_up(self, partitions: Sequence[TopicPartition], whole_topics: Sequence[str]) -> None:
        """Assign ``partitions``, and those that ``whole_topics`` get later: the part of :meth:`assign` that does not
        wait."""
        self._check()

        def begin(machine: Machine) -> None:
            machine.assign(partitions, whole_topics)
            self._drop_but(partitions)

        self._use(begin)
        self._driver.mark_ready(self._driven)

    def _drop_but(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop the taken records of all partitions but these. REQUIRES the machine's lock."""
        if self._left:
            self._left = deque(record for record in self._left.copy() if (record.topic, record.partition) in partitions)

    def _partition_count(self, topic: str, timeout: float | None) -> int:
        try:
            return self._answer(
                lambda machine: machine.want(topic),
                lambda machine: machine.partition_count(topic) if machine.knows(topic) else None,
                timeout,
                f"topic {topic!r}",
            )
        except UnknownTopicError:
            raise self._advice.unknown_topic(topic) from None

    def _answer(
        self,
        ask: Callable[[Machine], None],
        answer: Callable[[Machine], int | None],
        timeout: float | None,
        what: str,
        of: TopicPartition | None = None,
    ) -> int:
        """Call ``ask``, and return ``answer(machine)`` once it is not None.

        ``what`` and the partition ``of`` (None: no single partition) name the answer in the RequestTimedOutError.
        """
        found = -1

        def is_known(machine: Machine) -> bool:
            nonlocal found
            value = answer(machine)
            found = -1 if value is None else value
            return value is not None

        if not self._await(ask, is_known, timeout):
            raise self._advice.late(what, timeout, of)
        return found

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return self._machine.assignment

    # -------------------------------------------------------------------------------------- reading

    def poll(self, timeout: float | None = 0.0, count_max: int | None = None) -> list[Record]:
        """Return the available records. Wait up to ``timeout`` seconds for the first (None: for ever); the list is
        empty if none came. With deserializers they are DecodedRecords. Raises DeserializationError if the first of
        them cannot be deserialized.

        Returns at most ``count_max`` records (from 1; default 500) and moves the positions behind them.
        """
        patience = check_seconds("timeout", timeout)
        count_max = None if count_max is None else whole("count_max", count_max, 1)
        left = patience
        begun_ns = self._driver.monotonic_ns()
        while True:
            if patience is None:
                self._check_assigned()
            records, pending = self._take(count_max)
            if pending is None:
                return self._decoded(records)
            settled = False
            try:
                settled = self._driver.wait(pending, left)
            finally:
                if not settled:
                    self._forget(pending)
            if patience is not None:
                left = max(patience - (self._driver.monotonic_ns() - begun_ns) / 1e9, 0.0)
            if not settled or left == 0:
                self._check()
                return self._decoded(self._use(lambda machine: machine.take(count_max)))
            # Another thread may have taken the records that came: then wait for the next one.

    def _decoded(self, records: list[Record]) -> list[Record]:
        """Return taken records as the caller gets them. From the first on that cannot be deserialized they are left to
        the next read."""
        if not self._decodes:
            return records
        return self._deserializers.apply_all(
            records, lambda rest: self._use(lambda machine: self._left.extendleft(reversed(rest)))
        )

    def _take(self, count_max: int | None = None, ends: Ends | None = None) -> tuple[list[Record], Completion | None]:
        """Return the available records (below ``ends``) and None; if there are none, [] and a completion.

        The completion is settled as soon as a record arrives. If the caller stops waiting before, it must
        :meth:`_forget` it.
        """
        self._check()
        records: list[Record] = []
        if self._left:
            limit = self._machine.config.max_poll_records if count_max is None else count_max
            while self._left and len(records) < limit:
                try:
                    records.append(self._left.popleft())
                except IndexError as error:  # another thread took them
                    if is_interruption(error):
                        raise
            if records:
                return records, None
        return records, self._arrived(records, count_max, ends)

    def _arrived(self, records: list[Record] | None, count_max: int | None, ends: Ends | None) -> Completion | None:
        """Add the arrived records to ``records`` (None: to ``_left``) and return None. If there are none, return a
        completion that is settled as soon as one arrives."""
        while True:
            current = self._current
            machine, driven = current
            with driven.lock.enter():
                if current is self._current:  # else read from the new machine: it reads again what the old one had
                    taken = machine.take(count_max, ends)
                    (self._left if records is None else records).extend(taken)
                    pending = None if taken else machine.wait_for_records(ends)
                    break
        self._driver.mark_ready(driven)
        return pending

    def _forget(self, pending: Completion) -> None:
        """Stop waiting for a completion that :meth:`_take` returned."""
        self._use(lambda machine: machine.forget(pending))

    def _check_assigned(self) -> None:
        """Raise :class:`ConfigError` if nothing is assigned: a wait without a timeout would then never end."""
        if not self.assignment and not self._closed:
            raise ConfigError("nothing is assigned to this consumer, so no record can come; assign() says what to read")

    def __iter__(self) -> Iterator[Record]:
        """Yield records for ever; at the end, wait for more."""
        while True:
            yield from self._one_by_one(None)

    def until_end(self) -> Iterator[Record]:
        """Yield records up to the current ends of the partitions. Later records stay for the next read."""
        ends = {entry: self.end_offset(*entry) for entry in self.assignment}
        while self._has_more(ends):
            yield from self._one_by_one(ends)

    def _has_more(self, ends: Ends) -> bool:
        """Return whether records below ``ends`` are left to read, as far as the consumer knows."""
        return bool(self._left) or self._use(lambda machine: machine.has_more(ends))

    def _one_by_one(self, ends: Ends | None) -> Iterator[Record]:
        """Yield the available records below ``ends``; if there are none, wait for one.

        A record counts as read when it is yielded: if the caller leaves the loop, the next read of any kind returns the
        records that are left.
        """
        if not self._left:
            self._check()
            if ends is None:
                self._check_assigned()
            pending = self._arrived(None, None, ends)
            if pending is not None:
                self._driver.wait_for(pending, None)
                return
        while True:
            try:
                record = self._left.popleft()
            except IndexError as error:  # all are yielded, or another thread took them
                if is_interruption(error):
                    raise
                return
            if self._decodes:
                (record,) = self._decoded([record])
            yield record

    # ------------------------------------------------------------------------------------ positions

    @overload
    def seek(
        self,
        topic: str,
        partition: int,
        offset: int | None = None,
        *,
        timestamp: int | datetime | None = None,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> int: ...
    @overload
    def seek(self, topic: tuple[str, int], offset: int, /) -> int: ...
    @overload
    def seek(
        self,
        topic: tuple[str, int],
        /,
        *,
        offset: int | None = None,
        timestamp: int | datetime | None = None,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> int: ...
    def seek(
        self,
        topic: str | tuple[str, int],
        partition: int | None = None,
        offset: int | None = None,
        *,
        timestamp: int | datetime | None = None,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> int:
        """Go on at ``offset``, or at the first record at or after ``timestamp`` (the end if there is none); return
        the offset.

        ``seek("orders", 0, 17)``, or ``seek(TopicPartition("orders", 0), 17)``. Only a ``timestamp`` needs an answer of
        the cluster: raises RequestTimedOutError if none comes within ``timeout`` seconds. Raises UnknownTopicError if
        this consumer does not read the partition.
        """
        self._check()
        check_seconds("timeout", timeout)
        if not isinstance(topic, str) and offset is None:
            partition, offset = None, partition
        name, number = place_of("seek", topic, partition)
        if (offset is None) == (timestamp is None):
            raise TypeError("seek takes a topic, a partition, and an offset or a timestamp: seek('orders', 0, 17)")
        if timestamp is not None:
            offset = self._at_time(name, number, timestamp, timeout)
        where = whole("offset", offset, 0, INT64_MAX)

        def move(machine: Machine) -> None:
            machine.seek(name, number, where)
            self._drop_but([entry for entry in machine.assignment if entry != (name, number)])

        self._use(move)
        self._driver.mark_ready(self._driven)
        return where

    def _at_time(self, topic: str, partition: int, timestamp: int | datetime, timeout: float | None) -> int:
        """Return the offset at which :meth:`seek` with a ``timestamp`` goes on. It waits for the answer and changes
        nothing."""
        # Kafka gives negative timestamps a special meaning, and no record is older than 1970.
        offset = self._look_up(topic, partition, max(timestamp_ms(timestamp, "timestamp"), 0), timeout)
        return offset if offset >= 0 else self.end_offset(topic, partition, timeout=timeout)

    def seek_to_beginning(self) -> None:
        """Go on at the first record of every partition."""
        for topic, partition in self.assignment:
            self.seek(topic, partition, self.start_offset(topic, partition))

    def seek_to_end(self) -> None:
        """Go on behind the last record of every partition."""
        for topic, partition in self.assignment:
            self.seek(topic, partition, self.end_offset(topic, partition))

    @overload
    def position(self, topic: str, partition: int, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    @overload
    def position(self, topic: tuple[str, int], /, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    def position(
        self, topic: str | tuple[str, int], partition: int | None = None, *, timeout: float | None = ANSWER_TIMEOUT_S
    ) -> int:
        """Return the offset of the next record to read. Wait until it is known; raise RequestTimedOutError after
        ``timeout`` seconds.

        Raises UnknownTopicError if this consumer does not read the partition.
        """
        self._check()
        patience = check_seconds("timeout", timeout)
        name, number = place_of("position", topic, partition)
        self._driver.mark_ready(self._driven)
        known = self._known_position(name, number)
        if known >= 0:
            return known

        def settled(machine: Machine) -> int | None:
            found = machine.position(name, number)
            return None if found < 0 else found

        return self._answer(
            lambda machine: None, settled, patience, f"the position in {name}-{number}", TopicPartition(name, number)
        )

    def _known_position(self, topic: str, partition: int) -> int:
        """Return the position, or -1 if it is not known yet. It does not wait."""
        self._check()
        known = self._machine.position(topic, partition)
        for record in self._left.copy():
            if (record.topic, record.partition) == (topic, partition):
                return record.offset
        return known

    @overload
    def start_offset(self, topic: str, partition: int, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    @overload
    def start_offset(self, topic: tuple[str, int], /, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    def start_offset(
        self, topic: str | tuple[str, int], partition: int | None = None, *, timeout: float | None = ANSWER_TIMEOUT_S
    ) -> int:
        """Return the first offset of any partition, assigned or not. Raise RequestTimedOutError if no answer comes
        within ``timeout`` seconds."""
        return self._look_up(*place_of("start_offset", topic, partition), EARLIEST_TIMESTAMP, timeout)

    @overload
    def end_offset(self, topic: str, partition: int, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    @overload
    def end_offset(self, topic: tuple[str, int], /, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    def end_offset(
        self, topic: str | tuple[str, int], partition: int | None = None, *, timeout: float | None = ANSWER_TIMEOUT_S
    ) -> int:
        """Return the high watermark: the offset behind the last record that consumers may read. Raise
        RequestTimedOutError if no answer comes within ``timeout`` seconds."""
        return self._look_up(*place_of("end_offset", topic, partition), LATEST_TIMESTAMP, timeout)

    def _look_up(self, topic: str, partition: int, timestamp: int, timeout: float | None) -> int:
        self._check()
        patience = check_seconds("timeout", timeout)
        self._driver.check_free()
        while True:
            current = self._current
            answer = self._use(lambda machine: machine.look_up(topic, partition, timestamp))
            self._driver.mark_ready(self._driven)
            if not self._driver.wait(answer, patience):
                break
            # Ask again if the machine was replaced before it had the answer.
            if answer.error is None or current is self._current:
                break
        if not answer.settled:
            self._use(lambda machine: machine.forget_look_up(answer))
            what = _LOOKED_UP.get(timestamp, "an offset by time")
            raise self._advice.late(f"{what} of {topic}-{partition}", patience, TopicPartition(topic, partition))
        if isinstance(answer.error, UnknownTopicError) and not self._machine.has_heard_of(topic):
            raise self._advice.unknown_topic(topic)
        if answer.error is not None:
            self._check()  # raises the reason, if the consumer was closed or failed
            raise answer.error
        return answer.offset

    # -------------------------------------------------------------------------------------- the end

    def _interrupted(self, error: Exception | None) -> None:
        """Replace the machine, because a signal handler interrupted it or it failed; the new one goes on at the same
        positions.

        Threads that wait for records look again, and raise the failure if there is one; look-ups fail. Called by the
        driving thread.
        """
        old, driven = self._current
        # A thread that takes records has moved the positions before this, or finds the new machine.
        with driven.lock:
            if error is not None:
                self._failure = error
            positions = {entry: old.position(*entry) for entry in old.assignment}
            if not self._closed:
                following = self._make(self._interrupted)
                machine, _ = following
                machine.assign(list(positions), old.whole)
                for (topic, partition), offset in positions.items():
                    if offset >= 0:
                        machine.seek(topic, partition, offset)
                self._current = following
            old.close()

    def close(self) -> None:
        """Close the consumer; waiting threads get ClosedError. A second call is harmless, and completes an
        interrupted one."""
        if not self._ended:
            if not self._driver.is_parents:
                self._driver.check_free()
            self._closed = True
            if not self._driver.is_parents:
                self._on_close(self)
            self._ended = True

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, on this consumer or on its cluster."""
        return self._closed

    def _check(self) -> None:
        self._check_open()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise InternalError(
                f"the consumer failed, and goes on at its positions: {type(failure).__name__}: {failure}"
            ) from failure

    def __enter__(self) -> Consumer:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<pyreplog.Consumer of {len(self._machine.assignment)} partition(s){', closed' if self._closed else ''}>"
        )
