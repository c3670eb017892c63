"""Cluster for asyncio: the same nodes in this process, with awaitable clients."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, SupportsIndex, TypedDict, Unpack, cast, overload

from pyreplog import runtime
from pyreplog.aio.admin import Admin
from pyreplog.aio.calls import ThreadCalls
from pyreplog.aio.clients import Consumer, Producer, Subject
from pyreplog.aio.named_consumer import NamedConsumer
from pyreplog.aio.opening import Opening
from pyreplog.aio.reader_consumer import ReaderConsumer
from pyreplog.aio.records import Records
from pyreplog.aio.table import ClusterTable
from pyreplog.arrow import Scan
from pyreplog.config import check_seconds
from pyreplog.errors import ClosedError
from pyreplog.record import Record
from pyreplog.runtime import LockWait, OnDelivery, Partitioner, Serializer, TopicDescription
from pyreplog.values import TopicPartition

if TYPE_CHECKING:
    from pyreplog.runtime import (
        ClusterReaderSettings,
        ClusterSettings,
        ConsumerSettings,
        NamedConsumerSettings,
        ReaderSettings,
    )

__all__ = ["Cluster", "ClusterNode", "ClusterReader"]


class ProducerSettings(TypedDict, total=False):
    """The other settings of :meth:`pyreplog.Cluster.producer`."""

    batch_size_max: int
    max_in_flight: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int
    enable_idempotence: bool | None
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner: Partitioner | None
    on_delivery: OnDelivery | None


class Cluster:
    """A replicated log in this process, for coroutines of one event loop.

    Use ``async with Cluster("data", nodes=3) as cluster``, or ``cluster = await Cluster("data")``
    and later ``await cluster.close()``. Settings and errors are those of :class:`pyreplog.Cluster`,
    except ``own_process``: the event loop handles signals. With ``mode="r"`` it is a
    :class:`ClusterReader`.
    """

    def __new__(cls, *args: object, mode: object = "a", **settings: object) -> Self:
        """Return a :class:`~pyreplog.aio.ClusterReader` for ``mode="r"``; its own ``__init__``
        runs.
        """
        kind: type[Any] = ClusterReader if mode == "r" and cls is Cluster else cls
        made: Self = object.__new__(kind)
        return made

    @overload
    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: int | Sequence[str | os.PathLike[str]] | None = None,
        *,
        mode: Literal["a"] = "a",
        **settings: Unpack[ClusterSettings],
    ) -> None: ...
    @overload
    def __init__(  # type: ignore[misc]  # this class's name makes one of that class
        self: ClusterReader,
        path: str | os.PathLike[str],
        *,
        mode: Literal["r"],
        **settings: Unpack[ClusterReaderSettings],
    ) -> None: ...
    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: int | Sequence[str | os.PathLike[str]] | None = None,
        *,
        mode: Literal["a", "r"] = "a",
        **settings: Unpack[ClusterSettings],
    ) -> None:
        """Store the settings; nothing is opened yet.

        ``progress`` is not called on the event loop. Cancelling ends a wait of ``lock_timeout``.
        """
        runtime.check_mode(mode)
        runtime.check_setting_names(settings, runtime.ClusterSettings)
        wait = partial(runtime.cluster_wait, runtime.folder_of(path), settings.pop("lock_timeout", 0))
        # The first use of runtime.Cluster loads its module.
        self._begin_with(path, lambda: runtime.Cluster(path, nodes, **settings), wait)

    def _begin_with(
        self,
        path: str | os.PathLike[str],
        open_it: Callable[[], runtime.Cluster],
        wait: Callable[[], LockWait] | None = None,
    ) -> None:
        self._name = os.path.basename(runtime.folder_of(path))
        self._opening: Opening[Any] = Opening(self._name, self._begin, open_it, wait)
        self._closing: asyncio.Future[None] | None = None
        self._opened: tuple[runtime.Cluster, ThreadCalls] | None = None
        self._nodes: Sequence[ClusterNode] = ()

    def _stand_for(self, cluster: runtime.Cluster) -> None:
        """Wrap a cluster that is open already, and that its owner closes."""
        self._begin_with(cluster.path, lambda: cluster)
        self._begin(cluster, ThreadCalls(self._name))

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Cluster cannot be copied or pickled: one process opens it, and any number may read it with Cluster(path,"
            " mode='r')"
        )

    def _begin(self, cluster: runtime.Cluster, calls: ThreadCalls) -> Self:
        self._opened = cluster, calls
        self._nodes = self._make_nodes(cluster, calls)
        return self

    def _make_nodes(self, cluster: runtime.Cluster, calls: ThreadCalls) -> Sequence[ClusterNode]:
        return runtime.Nodes(ClusterNode(node, calls) for node in cluster.nodes)

    def __await__(self) -> Generator[Any, None, Self]:
        return self._opening.__await__()

    @property
    def _cluster(self) -> runtime.Cluster:
        if self._opened is None:
            raise ClosedError("the cluster is not open yet: await it, or enter it with `async with`")
        return self._opened[0]

    @property
    def _calls(self) -> ThreadCalls:
        if self._opened is None:
            raise ClosedError("the cluster is not open yet: await it, or enter it with `async with`")
        return self._opened[1]

    @property
    def path(self) -> str:
        """The folder."""
        return self._cluster.path

    @property
    def mode(self) -> Literal["a", "r"]:
        """``"a"``, or ``"r"`` for a :class:`ClusterReader`."""
        return self._cluster.mode

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closing is not None

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._cluster.cluster_id

    @property
    def admin(self) -> Admin:
        """Makes and describes topics."""
        return Admin(self._cluster.admin, self._calls)

    @property
    def nodes(self) -> Sequence[ClusterNode]:
        """The nodes: ``nodes[0]`` is node 1. A missing one raises IndexError."""
        _ = self._cluster  # raises ClosedError before the cluster is open
        return self._nodes

    def producer(
        self, acks: Literal["all", -1, 1, 0] = "all", **settings: Unpack[ProducerSettings]
    ) -> Opening[Producer]:
        """Open a producer: ``async with cluster.producer() as producer``.

        ``settings``: those of :meth:`pyreplog.Cluster.producer`.
        """
        return Opening("producer", Producer, partial(self._cluster.producer, acks, **settings))

    @overload
    def consumer(
        self, topics: Subject, *, name: None = None, **settings: Unpack[ConsumerSettings]
    ) -> Opening[Consumer]: ...
    @overload
    def consumer(
        self, topics: Subject, *, name: str, **settings: Unpack[NamedConsumerSettings]
    ) -> Opening[NamedConsumer]: ...
    def consumer(self, topics: Subject, *, name: str | None = None, **settings: Any) -> Opening[Any]:
        """Open a consumer: ``async with cluster.consumer("orders") as consumer``.

        ``settings``: those of :meth:`pyreplog.Cluster.consumer`. With ``name``: a
        :class:`NamedConsumer`.
        """
        return _opening(self._cluster.consumer, Consumer, topics, name, settings)

    def table(
        self,
        topic: str,
        store: str | os.PathLike[str] | None = None,
        *,
        partitioner: Partitioner | None = None,
        progress: Callable[[TopicPartition, int, int], object] | None = None,
    ) -> Opening[ClusterTable]:
        """Open the latest value of each key of a topic, by ``await`` or ``async with``.

        See :meth:`pyreplog.Cluster.table`. ``partitioner`` and ``progress`` are called in a thread.
        """
        open_it = partial(self._cluster.table, topic, store, partitioner=partitioner, progress=progress)
        return Opening("table", ClusterTable, open_it)

    async def scan(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
    ) -> Scan:
        """Return a topic as Arrow columns.

        The importer reads the disk: ``await asyncio.to_thread(pyarrow.table, scan)``.
        """
        return await self._calls.read(
            self._cluster.scan,
            topic,
            columns,
            start=start,
            end=end,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
        )

    def node(self, node_id: int) -> ClusterNode:
        """Return the node with this number, from 1. A missing one raises IndexError."""
        return self._nodes[self._cluster.node(node_id).node_id - 1]

    async def controller(self) -> ClusterNode | None:
        """Return the node whose vote made it the active controller, or None while there is none."""
        found = await self._calls.read(lambda: self._cluster.controller)
        return None if found is None else self._nodes[found.node_id - 1]

    async def metrics(self, *, partitions: bool = True) -> Mapping[str, float]:
        """Return the cluster's metrics now. See :meth:`pyreplog.Cluster.metrics`."""
        return await self._calls.read(self._cluster.metrics, partitions=partitions)

    async def metrics_text(self, *, partitions: bool = True) -> str:
        """Return the metrics in Prometheus' text format. See :meth:`pyreplog.Cluster.metrics_text`."""
        return await self._calls.read(self._cluster.metrics_text, partitions=partitions)

    async def leader(self, topic: str, partition: int = 0) -> ClusterNode | None:
        """Return the node that leads the partition now, or None if there is no leader."""
        found = await self._calls.read(self._cluster.leader, topic, partition)
        return None if found is None else self._nodes[found.node_id - 1]

    async def close(self, timeout: float | None = 10.0) -> None:
        """Send the producers' buffered records, stop every node in order, and release the folder.

        A second call is harmless.
        """
        check_seconds("timeout", timeout)
        if self._closing is None:
            self._closing = self._calls.begin(partial(self._cluster.close, timeout))
            self._calls.stop()
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self if self._opened is not None else await self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        if self._opened is None:
            return f"<pyreplog.aio.Cluster {self._name!r}, not open yet>"
        return repr(self._cluster).replace("pyreplog.", "pyreplog.aio.", 1)


class ClusterReader(Cluster):
    """A cluster that another process writes, for coroutines of one event loop.

    Use ``async with Cluster("data", mode="r") as cluster``. Names and errors are those of
    :class:`pyreplog.ClusterReader`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: None = None,
        *,
        mode: Literal["r"] = "r",
        **settings: Unpack[ClusterSettings],
    ) -> None:
        """Store the settings; nothing is opened yet."""
        self._begin_with(path, lambda: runtime.ClusterReader(path, nodes, **settings))

    def _make_nodes(self, cluster: runtime.Cluster, calls: ThreadCalls) -> Sequence[ClusterNode]:
        return ()

    @property
    def _reader(self) -> runtime.ClusterReader:
        return cast("runtime.ClusterReader", self._cluster)

    @property
    def admin(self) -> Admin:
        """An Admin with ``topics`` and ``describe``; its other methods raise ReadOnlyError."""
        return Admin(self._reader.admin, self._calls)

    @property
    def nodes(self) -> Sequence[ClusterNode]:
        """Raises ReadOnlyError: the nodes run in the process that writes."""
        self._reader.nodes  # noqa: B018  (raises)
        return ()

    async def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of the topics, sorted; with ``internal`` also of a system's own ones, ``__...``."""
        return await self._calls.read(self._reader.topics, internal=internal)

    async def describe(self, name: str) -> TopicDescription:
        """Return one topic's partitions and settings."""
        return await self._calls.read(self._reader.describe, name)

    def producer(self, *args: object, **settings: object) -> Opening[Producer]:
        """Raise ReadOnlyError: only the process that runs the cluster writes."""
        self._reader.producer(*args, **settings)
        raise AssertionError("a reader has no producer")

    @overload  # type: ignore[override]  # the same calls, of a consumer that reads files
    def consumer(
        self, topics: Subject, *, name: None = None, **settings: Unpack[ReaderSettings]
    ) -> Opening[ReaderConsumer]: ...
    @overload
    def consumer(
        self, topics: Subject, *, name: str, **settings: Unpack[NamedConsumerSettings]
    ) -> Opening[NamedConsumer]: ...
    def consumer(self, topics: Subject, *, name: str | None = None, **settings: Any) -> Opening[Any]:
        """Open a consumer: ``async with cluster.consumer("orders") as consumer``.

        ``settings``: those of :meth:`pyreplog.ClusterReader.consumer`. With ``name``: a
        :class:`NamedConsumer`.
        """
        return _opening(self._reader.consumer, ReaderConsumer, topics, name, settings)

    def table(
        self,
        topic: str,
        store: str | os.PathLike[str] | None = None,
        *,
        partitioner: Partitioner | None = None,
        progress: Callable[[TopicPartition, int, int], object] | None = None,
    ) -> Opening[ClusterTable]:
        """Open the latest value of each key of a topic, by ``await`` or ``async with``.

        See :meth:`pyreplog.ClusterReader.table`. ``partitioner`` and ``progress`` are called in a thread.
        """
        open_it = partial(self._reader.table, topic, store, partitioner=partitioner, progress=progress)
        return Opening("table", ClusterTable, open_it)

    def follow(self, topics: Subject, *, timeout: float | None = None) -> Records:
        """Iterate over the records of all these partitions from the first on, and over each new
        one.

        See :meth:`pyreplog.ClusterReader.follow`.
        """
        return Records(self._follow(topics, timeout))

    async def _follow(self, topics: Subject, timeout: float | None) -> AsyncGenerator[list[Record], None]:
        patience = check_seconds("timeout", timeout)
        async with self.consumer(topics) as consumer:
            try:
                async for chunk in consumer._until(patience):
                    yield chunk
            except ClosedError:
                if not self.closed:
                    raise


def _opening(
    open_it: Callable[..., Any],
    face: Callable[[Any, ThreadCalls], Any],
    topics: Subject,
    name: str | None,
    settings: dict[str, Any],
) -> Opening[Any]:
    """Return the opening of a consumer. One with a name waits for its lock in the event loop."""
    if name is None:
        return Opening("consumer", face, partial(open_it, topics, **settings))
    timeout = settings.pop("lock_timeout", 0)
    wait = partial(runtime.reader_wait, name, timeout)
    return Opening("consumer", NamedConsumer, partial(open_it, topics, name=name, **settings), wait)


class ClusterNode:
    """One node of a cluster. See :class:`pyreplog.ClusterNode`."""

    def __init__(self, node: runtime.ClusterNode, calls: ThreadCalls) -> None:
        """Use ``cluster.nodes`` to get one."""
        self._node = node
        self._calls = calls

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a ClusterNode cannot be copied or pickled: it belongs to its cluster, in this process")

    @property
    def node_id(self) -> int:
        """The node's number, from 1."""
        return self._node.node_id

    @property
    def path(self) -> str:
        """The node's folder."""
        return self._node.path

    @property
    def role(self) -> Literal["broker", "controller", "broker,controller"]:
        """What the node does. See :attr:`pyreplog.ClusterNode.role`."""
        return self._node.role

    @property
    def alive(self) -> bool:
        """Whether the node runs."""
        return self._node.alive

    @property
    def failure(self) -> Exception | None:
        """The disk error that stopped the node or keeps it from serving; None if it was killed."""
        return self._node.failure

    @property
    def removed(self) -> bool:
        """Whether the node left the cluster."""
        return self._node.removed

    @property
    def ready(self) -> bool:
        """Whether the controller lets the node serve."""
        return self._node.ready

    @property
    def state(self) -> Literal["down", "offline", "paused", "fenced", "starting", "ready", "removed"]:
        """The node's state. See :attr:`pyreplog.ClusterNode.state`."""
        return self._node.state

    @property
    def losses(self) -> list[tuple[TopicPartition, int, int]]:
        """The offsets that unclean elections removed from its copies.

        See :attr:`pyreplog.ClusterNode.losses`.
        """
        return self._node.losses

    async def leads(self, topic: str, partition: int | None = None) -> bool:
        """Return whether the node leads that partition of ``topic`` (None: any partition)."""
        return await self._calls.read(self._node.leads, topic, partition)

    async def kill(self) -> None:
        """Stop the node as if its process died."""
        await self._calls.write(self._node.kill)

    async def stop(self, timeout: float | None = 10.0) -> None:
        """Stop the node by a controlled shutdown."""
        await self._calls.write(self._node.stop, timeout)

    async def pause(self) -> None:
        """Stop scheduling the node until :meth:`resume`, as if its process was stopped."""
        await self._calls.write(self._node.pause)

    async def resume(self) -> None:
        """Undo :meth:`pause`: the node continues."""
        await self._calls.write(self._node.resume)

    async def restart(self, timeout: float | None = 30.0) -> None:
        """Kill the node if it runs, start it from its folder, and return when it serves again."""
        await self._calls.write(self._node.restart, timeout)

    def __repr__(self) -> str:
        return repr(self._node).replace("pyreplog.", "pyreplog.aio.", 1)
