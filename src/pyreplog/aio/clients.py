"""Producer and Consumer for asyncio: the blocking classes, with slow calls in threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, SupportsIndex, TypeVar, overload

from pyreplog import runtime
from pyreplog.aio.calls import ThreadCalls
from pyreplog.aio.records import Steps
from pyreplog.client import Acks, Completion
from pyreplog.config import check_seconds, whole
from pyreplog.errors import ClosedError, DeserializationError, NoThreadError
from pyreplog.ports import Headers
from pyreplog.record import Ack, Record
from pyreplog.runtime import ANSWER_TIMEOUT_S, OnDelivery, SendExtras, topics_of
from pyreplog.system import is_interruption
from pyreplog.values import TopicPartition

if TYPE_CHECKING:
    from pyreplog.client import Ends

__all__ = ["Consumer", "Producer"]

T = TypeVar("T")
Subject = str | tuple[str, int] | Collection[str | tuple[str, int]]


class _TopicQueue:
    """The coroutines that wait for the first metadata of one topic, in the order of their calls."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.count = 0


class _Deadline:
    """The time limit of a whole call, shared by all its steps."""

    def __init__(self, timeout: float | None) -> None:
        self._seconds = check_seconds("timeout", timeout)
        self._loop = asyncio.get_running_loop()
        self._until = None if self._seconds is None else self._loop.time() + self._seconds

    def bound(self) -> asyncio.Timeout:
        """Return the time limit for ``async with``."""
        return asyncio.timeout_at(self._until)

    def left(self) -> float | None:
        """Return the seconds left; None: no limit."""
        return None if self._until is None else max(self._until - self._loop.time(), 0.0)

    def told(self, error: TimeoutError) -> TimeoutError:
        """Return the error to raise for a step's ``error``; it names the limit of the whole call."""
        if self._seconds is None or is_interruption(error):
            return error
        return TimeoutError(f"not all is acknowledged after {self._seconds:g} s; sending goes on in the background")


class Producer:
    """Sends records to a cluster's topics.

    Made by ``cluster.producer()``: ``async with`` it. See :class:`pyreplog.Producer`.
    """

    def __init__(self, producer: runtime.Producer, calls: ThreadCalls) -> None:
        """Use ``cluster.producer()`` to make one."""
        self._producer = producer
        self._calls = calls
        # The producer's own thread must not call a function that belongs to the event loop.
        self._on_delivery = producer._functions.on_delivery
        producer._functions = producer._functions._replace(on_delivery=None)
        self._lines: dict[str, _TopicQueue] = {}
        """The coroutines that wait for a topic's first metadata, by topic."""
        self._closing: asyncio.Future[None] | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a Producer cannot be copied or pickled: it belongs to its cluster, in this process")

    async def send(
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
        """Send one record soon and return its :class:`Ack`: ``await ack``.

        It waits only for the first metadata of a topic, and for buffer space. Serializers and
        ``on_delivery`` are called on the event loop; an exception of ``on_delivery`` goes to the
        loop's exception handler. See :meth:`pyreplog.Producer.send`.
        """
        extras: SendExtras | None = None
        call = on_delivery or self._on_delivery
        if self._producer._has_functions or call is not None or acks is not None or timeout is not None:
            extras = SendExtras.checked(self._on_loop(call), acks, timeout)
            functions = self._producer._functions
            value, key = functions.value_of(value), functions.key_of(key)
        if not (self._calls.waiting_count or topic in self._lines or self._closing is not None):
            ack = self._producer._offer(topic, value, key, partition, headers, timestamp, extras)
            if ack is not None:
                return ack
        if extras is not None:
            send = partial(self._producer._send_apart, topic, value, key, partition, headers, timestamp, extras)
        else:
            send = partial(
                self._producer.send, topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp
            )
        return await self._in_turn(topic, send, None if extras is None else extras.timeout)

    def _on_loop(self, call: OnDelivery | None) -> OnDelivery | None:
        """Return a function for the producer's thread that has the running event loop call ``call``."""
        if call is None or not callable(call):
            return call
        loop = asyncio.get_running_loop()
        return lambda metadata, error: loop.call_soon_threadsafe(call, metadata, error)

    async def send_many(
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
        """Send many records, each as :meth:`send` would; return their :class:`Acks` to await.

        Serializers are called in a thread.
        """
        send = partial(
            self._producer.send_many,
            topic,
            values,
            keys=keys,
            partition=partition,
            headers=headers,
            timestamps=timestamps,
            on_delivery=self._on_loop(on_delivery or self._on_delivery),
        )
        return await self._in_turn(topic, send)

    async def send_arrow(
        self, topic: str, table: object, *, partition: int | None = None, on_delivery: OnDelivery | None = None
    ) -> Acks:
        """Send the rows of an Arrow table; return their :class:`Acks` to await.

        See :meth:`pyreplog.Producer.send_arrow`.
        """
        call = self._on_loop(on_delivery or self._on_delivery)
        send = partial(self._producer.send_arrow, topic, table, partition=partition, on_delivery=call)
        return await self._in_turn(topic, send)

    async def _in_turn(self, topic: str, send: Callable[[], T], patience: float | None = None) -> T:
        """Return the result of ``send``, after all earlier sends to this topic. ``patience``: the
        timeout of this send, in seconds.

        A send that waits for the first metadata of one topic delays no send to another topic.
        """
        self._calls.check()
        if self._closing is not None:
            raise ClosedError("the producer is closed")
        if topic not in self._lines and self._producer._knows(topic):
            return await self._calls.write(send)
        since_ns = self._producer._driver.monotonic_ns()
        line = self._lines.setdefault(topic, _TopicQueue())
        line.count += 1
        try:
            async with line.turn:
                if not self._producer._knows(topic):
                    await self._calls.read(self._producer._learn, topic, since_ns, patience)
                sending = self._calls.begin_write(send)
        finally:
            line.count -= 1
            if not line.count:
                del self._lines[topic]
        return await asyncio.shield(sending)

    async def _behind_all(self) -> None:
        """Return when every earlier send is handed over, or refused."""
        self._calls.check()  # a caller that waits in a fork's parent must not go on here
        for line in tuple(self._lines.values()):
            async with line.turn:
                pass
        await self._calls.written()

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of the topic."""
        return await self._calls.read(self._producer.partitions, topic)

    async def flush(self, timeout: float | None = None) -> None:
        """Return when everything sent so far is acknowledged or refused.

        Raises TimeoutError after ``timeout`` seconds.
        """
        patience = _Deadline(timeout)
        was_closed = self._closing is not None
        try:
            try:
                async with patience.bound():
                    await self._behind_all()
                await self._calls.flush(self._producer.flush, patience.left())
            except ClosedError:
                if was_closed or self._closing is None:
                    raise
                async with patience.bound():
                    # A close came in between, and waits for the same records.
                    await asyncio.shield(self._closing)
        except TimeoutError as error:
            raise patience.told(error) from None

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` of this producer or of its cluster was called."""
        return self._closing is not None or self._producer.closed

    async def close(self, timeout: float | None = None) -> None:
        """Flush, see :meth:`flush`, then close. A second call is harmless."""
        patience = _Deadline(timeout)
        if self._closing is None:
            is_waited_for = self._lines or self._calls.waiting_count
            self._closing = (
                asyncio.ensure_future(self._end_behind_all(patience)) if is_waited_for else self._end(timeout)
            )
        await asyncio.shield(self._closing)

    async def _end_behind_all(self, patience: _Deadline) -> None:
        try:
            async with patience.bound():
                await self._behind_all()
        except TimeoutError as error:
            if is_interruption(error):
                raise
        finally:  # also if the loop ends before
            try:
                ending = self._end(patience.left())
            except NoThreadError:
                self._closing = None  # nothing was started: the next call tries again
                raise
        try:
            await asyncio.shield(ending)
        except TimeoutError as error:
            raise patience.told(error) from None

    def _end(self, timeout: float | None) -> asyncio.Future[None]:
        begin = self._calls.beside if self._calls.waiting_count else self._calls.begin
        ending = begin(lambda: self._producer.close(timeout))
        self._calls.stop()
        return ending

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._producer).replace("pyreplog.", "pyreplog.aio.", 1)


class Consumer:
    """Reads records of a cluster's topics.

    Made by ``cluster.consumer(...)``: ``async with`` it. See :class:`pyreplog.Consumer`. ``async
    for record in consumer`` never ends; ``until_end()`` stops at the current end. A loop that is
    left early has consumed only the records that it yielded. For one coroutine at a time.
    """

    def __init__(self, consumer: runtime.Consumer, calls: ThreadCalls) -> None:
        """Use ``cluster.consumer(...)`` to make one."""
        self._consumer = consumer
        self._calls = calls
        #: Records that were taken and not yet handed out, because the caller was cancelled or takes
        #: them one by one. Threads add to it in order, and remove the records that a seek forgets,
        #: under the lock; picking a record needs no lock. No code waits for an answer under the
        #: lock, nor in one of the ``beside`` threads that do this: a cancelled call would delay the
        #: later ones.
        self._left: deque[Record] = deque()
        self._taking = threading.Lock()
        self._closing: asyncio.Future[None] | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Consumer cannot be copied or pickled: it belongs to its cluster, in this process; make another with"
            " cluster.consumer()"
        )

    async def poll(self, timeout: float | None = 0.0, count_max: int | None = None) -> list[Record]:
        """Return the available records; wait up to ``timeout`` seconds for the first.

        None: wait for ever. The list is empty if none came. A cancelled poll loses no record: the
        next one returns them.
        """
        patience = check_seconds("timeout", timeout)
        # With 0 the loop would never end.
        count_max = None if count_max is None else whole("count_max", count_max, 1)
        while await self._fill(patience, count_max):
            count = len(self._left) if count_max is None else min(count_max, len(self._left))
            # A cancelled poll may be adding to it.
            records: list[Record] = []
            try:
                for _ in range(count):
                    records += self._pick()
            except DeserializationError:
                if not records:
                    raise
            if records:
                return records
        return []

    def _pick(self) -> list[Record]:
        """Return the next record in a list, or an empty list if a cancelled seek took it just now.

        Raises DeserializationError, and leaves the record where it is.
        """
        try:
            record = self._left.popleft()
        except IndexError:
            return []
        if not self._consumer._decodes:
            return [record]
        return self._consumer._deserializers.apply_all([record], self._left.extendleft)

    async def _fill(self, patience: float | None, count_max: int | None) -> bool:
        """Wait for a record to hand out; return False after ``patience`` seconds without one."""
        loop = asyncio.get_running_loop()
        deadline = None if patience is None else loop.time() + patience
        while not self._left:
            if patience is None:
                self._consumer._check_assigned()
            pending = await self._calls.beside(partial(self._take, count_max, None))
            if self._left or pending is None:
                continue
            if not await self._wait(pending, None if deadline is None else deadline - loop.time()):
                return False
        return True

    async def _wait(self, pending: Completion, patience: float | None) -> bool:
        """Return whether ``pending`` is settled within ``patience`` seconds; forget it otherwise."""
        settled = False
        try:
            async with asyncio.timeout(patience):
                await pending.future()
            settled = True
        except TimeoutError:
            pass
        finally:
            if not settled:
                self._calls.dispatch(partial(self._consumer._forget, pending))
        return settled

    def _take(self, count_max: int | None, ends: Ends | None) -> Completion | None:
        """Take records in a thread, and keep them first, in case the caller was cancelled."""
        with self._taking:
            records, pending = self._consumer._take(count_max, ends)
            self._left.extend(records)
            return pending

    async def _go_on(self, move: Callable[[], T], forget: Callable[[Record], bool]) -> T:
        """Run ``move``, which changes the position; drop the kept records that ``forget`` names.

        Return the result of ``move``. If this is cancelled, the move happens before any later call,
        or not at all.
        """
        wanted = [True]
        try:
            return await self._calls.beside(partial(self._move, move, forget, wanted))
        finally:
            wanted.clear()

    def _move(self, move: Callable[[], T], forget: Callable[[Record], bool], wanted: Sequence[bool]) -> T:
        """Run ``move`` in a thread."""
        with self._taking:
            if not wanted:
                raise asyncio.CancelledError
            found = move()
            left: list[Record] = []
            # One by one: if the caller was cancelled, another one may be picking at the same time.
            with suppress(IndexError):
                while True:
                    left.append(self._left.popleft())
            self._left.extend(record for record in left if not forget(record))
            return found

    def _position(self, place: tuple[str, int], timeout: float | None) -> int:
        """Return the position in a partition. Runs in a thread."""
        while True:
            with self._taking:
                for record in self._left.copy():
                    if (record.topic, record.partition) == place:
                        return record.offset
                known = self._consumer._known_position(*place)
            if known >= 0:
                return known
            # Now the position is known; a cancelled poll may have moved it since.
            self._consumer.position(*place, timeout=timeout)

    def __aiter__(self) -> Steps:
        """Iterate over records for ever, waiting for more at the end."""
        return Steps(self._step)

    async def _step(self) -> Record:
        while True:
            await self._fill(None, None)
            if picked := self._pick():
                return picked[0]

    def until_end(self) -> Steps:
        """Iterate over records up to the current ends of the partitions.

        Later records stay for the next call.
        """
        found: list[Ends] = []
        looked = [False]

        async def step() -> Record | None:
            if not found:
                found.append({entry: await self.end_offset(*entry) for entry in self.assignment})
            (ends,) = found
            while True:
                if picked := self._pick():
                    return picked[0]
                if looked[0] and not await self._calls.beside(partial(self._consumer._has_more, ends)):
                    return None
                looked[0] = True
                pending = None if self._left else await self._calls.beside(partial(self._take, None, ends))
                if pending is not None:
                    await self._wait(pending, None)

        return Steps(step)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return self._consumer.assignment

    async def assign(self, subject: Subject, *, timeout: float | None = ANSWER_TIMEOUT_S) -> None:
        """Read these topics or partitions from now on."""
        subject = list(subject) if isinstance(subject, Iterator) else subject
        partitions = await self._calls.read(self._consumer._partitions_of, subject, timeout)
        wanted = frozenset(partitions)
        await self._go_on(
            partial(self._consumer._take_up, partitions, topics_of(subject)),
            lambda record: TopicPartition(record.topic, record.partition) not in wanted,
        )

    @overload
    async def seek(
        self,
        topic: str,
        partition: int,
        offset: int | None = None,
        *,
        timestamp: int | datetime | None = None,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> int: ...
    @overload
    async def seek(self, topic: tuple[str, int], offset: int, /) -> int: ...
    @overload
    async def seek(
        self,
        topic: tuple[str, int],
        /,
        *,
        offset: int | None = None,
        timestamp: int | datetime | None = None,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> int: ...
    async def seek(
        self,
        topic: str | tuple[str, int],
        partition: int | None = None,
        offset: int | None = None,
        *,
        timestamp: int | datetime | None = None,
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> int:
        """Continue at ``offset``, or at the first record at or after ``timestamp``.

        If no record is that late, continue at the end. Return the offset.
        """
        if not isinstance(topic, str) and offset is None:
            partition, offset = None, partition
        place = runtime.place_of("seek", topic, partition)
        if offset is None and timestamp is not None:
            offset = await self._calls.read(self._consumer._at_time, *place, timestamp, timeout)
            timestamp = None
        move = partial(self._consumer.seek, *place, offset, timestamp=timestamp, timeout=timeout)
        return await self._go_on(move, lambda record: (record.topic, record.partition) == place)

    async def seek_to_beginning(self) -> None:
        """Continue at the first record of every partition."""
        await self._go_to([(entry, await self.start_offset(*entry)) for entry in self.assignment])

    async def seek_to_end(self) -> None:
        """Continue after the last record of every partition."""
        await self._go_to([(entry, await self.end_offset(*entry)) for entry in self.assignment])

    async def _go_to(self, offsets: Sequence[tuple[TopicPartition, int]]) -> None:
        """Continue at ``offsets``, in every assigned partition."""

        def move() -> None:
            for (topic, partition), offset in offsets:
                self._consumer.seek(topic, partition, offset)

        await self._go_on(move, lambda record: True)

    @overload
    async def position(self, topic: str, partition: int, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    @overload
    async def position(self, topic: tuple[str, int], /, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    async def position(
        self, topic: str | tuple[str, int], partition: int | None = None, *, timeout: float | None = ANSWER_TIMEOUT_S
    ) -> int:
        """Return the offset of the next record that ``poll`` returns."""
        return await self._calls.read(self._position, runtime.place_of("position", topic, partition), timeout)

    @overload
    async def start_offset(self, topic: str, partition: int, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    @overload
    async def start_offset(self, topic: tuple[str, int], /, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    async def start_offset(
        self, topic: str | tuple[str, int], partition: int | None = None, *, timeout: float | None = ANSWER_TIMEOUT_S
    ) -> int:
        """Return the log start offset of a partition."""
        place = runtime.place_of("start_offset", topic, partition)
        return await self._calls.read(partial(self._consumer.start_offset, *place, timeout=timeout))

    @overload
    async def end_offset(self, topic: str, partition: int, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    @overload
    async def end_offset(self, topic: tuple[str, int], /, *, timeout: float | None = ANSWER_TIMEOUT_S) -> int: ...
    async def end_offset(
        self, topic: str | tuple[str, int], partition: int | None = None, *, timeout: float | None = ANSWER_TIMEOUT_S
    ) -> int:
        """Return the high watermark: the offset after the last record that may be read."""
        place = runtime.place_of("end_offset", topic, partition)
        return await self._calls.read(partial(self._consumer.end_offset, *place, timeout=timeout))

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` of this consumer or of its cluster was called."""
        return self._closing is not None or self._consumer.closed

    async def close(self) -> None:
        """Close the consumer. A second call is harmless."""
        if self._closing is None:
            self._closing = self._calls.begin(self._consumer.close)
            self._calls.stop()
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._consumer).replace("pyreplog.", "pyreplog.aio.", 1)
