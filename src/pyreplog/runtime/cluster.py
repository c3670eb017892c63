"""Cluster: nodes, their controller and their clients in this process, on real files.

All files lie under one folder: ``node-1``, ``node-2``, ... are Kafka log roots, each with its copy
of the cluster's metadata in ``__cluster_metadata-0``. Opening the folder again continues from these
files, however the last process ended.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, NoReturn, Self, SupportsIndex, Unpack, overload

from pyreplog.arrow import TOPIC_COLUMNS, Scan
from pyreplog.client import ConsumerConfig, ProducerConfig
from pyreplog.config import NodeConfig, Permissions, check_seconds, whole
from pyreplog.errors import ClosedError, ConfigError, ForkedError, PyreplogError, UnknownTopicError, copy_for_raise
from pyreplog.log import make_folder, open_readers, refuse_unfinished, with_reserve
from pyreplog.ports import Clock, Disk, Lock
from pyreplog.runtime.admin import Admin
from pyreplog.runtime.at_exit import end_on_sigterm, forget, remember
from pyreplog.runtime.clients import Clients
from pyreplog.runtime.cluster_dead_letters import ClusterDeadLetters
from pyreplog.runtime.cluster_node import ClusterNode, Nodes
from pyreplog.runtime.cluster_options import (
    ClusterOptions,
    ClusterReaderSettings,
    OwnProcessSettings,
    check_mode,
)
from pyreplog.runtime.cluster_reader import ReaderFace
from pyreplog.runtime.consumer import ANSWER_TIMEOUT_S, Consumer, Subject
from pyreplog.runtime.consumer_settings import ConsumerSettings, NamedConsumerSettings, NamedReaderSettings
from pyreplog.runtime.deliveries import OnDelivery
from pyreplog.runtime.deserializers import Deserializer, Deserializers
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.error_advice import Advice
from pyreplog.runtime.folder_opening import check_name
from pyreplog.runtime.metrics import Measured
from pyreplog.runtime.named_consumer import NamedConsumer
from pyreplog.runtime.node_disks import NodeDisks, close_disk
from pyreplog.runtime.node_folders import NodeFolders, NodesAsked
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.runtime.node_racks import RacksAsked, checked_rack
from pyreplog.runtime.node_roles import RolesAsked
from pyreplog.runtime.producer import Producer
from pyreplog.runtime.quorum_folders import CLUSTER_LOCK_NAME
from pyreplog.runtime.quorum_host import QuorumHost
from pyreplog.runtime.reader_opening import TopicReaders, check_reader_settings
from pyreplog.runtime.recovery import Recovery
from pyreplog.runtime.send_functions import Partitioner, SendFunctions, Serializer, acks_number
from pyreplog.runtime.spool_applier import SpoolApplier
from pyreplog.runtime.table import ClusterTable
from pyreplog.runtime.table_opening import TopicTables
from pyreplog.runtime.topic_compactor import TopicCompactor
from pyreplog.runtime.views import ReaderView
from pyreplog.runtime.voter_upkeep import forget_removed, settle_voters
from pyreplog.spool import Spool
from pyreplog.system import LocalNetwork, OwnedLock, SystemDisk
from pyreplog.values import RecoveryProgress, TopicPartition

__all__ = ["Cluster", "ClusterReader"]

FINAL_FETCH_S: Final = 0.5
"""How long a closing cluster waits for its followers to know the final high watermarks. It takes about
a millisecond, unless a disk is slow."""
LEADER_S: Final = 5.0
"""How long :meth:`Cluster.leader` waits until a leader that was killed is replaced. It takes milliseconds."""
_PRODUCER: Final = ProducerConfig()
_CONSUMER: Final = ConsumerConfig()

logging.getLogger("pyreplog").addHandler(logging.NullHandler())  # silent unless the application configures logging


class Cluster(Measured):
    """A replicated log in this process. Use it in ``with``, or call ``close``. Thread-safe.

    ``mode="r"`` reads the cluster beside the process that runs it: that is a
    :class:`ClusterReader`, which takes no lock and starts no node.

    ``nodes``: how many nodes, up to 100. None: as many as the folder has, and 3 in a new one. A
    larger number than before adds nodes; a smaller one is a ConfigError. A list such as
    ``["/disk1/n1", "/disk2/n2"]`` gives each node's folder, so that they can be on different disks;
    the cluster's folder stores the list, so the next opening needs none. ``roles``: the nodes that
    vote for the controller, such as ``{4: "controller"}``: node 4 only votes, and the nodes that are
    not named hold partitions and do not vote ("broker"); "broker,controller" does both. The folders
    keep the roles. ``racks``: the rack of each node, such as ``["a", "a", "b"]``, for all nodes or
    none; the cluster keeps them, and a later list changes them. ``config``: every node's settings,
    a NodeConfig or a dict. ``own_process``: the process exists for this cluster, so SIGTERM ends
    both in order, as Ctrl-C does; call it from the main thread. ``progress`` is called while logs
    are recovered that were not closed cleanly, as by ``open_log``. ``permissions`` and
    ``lock_timeout`` mean the same as for ``open_log``. ``disk`` (by its name: "node-1", ...,
    "controller") and ``clock`` replace the machine's own, for tests.

    Raises LockedError (with the holder) if another opening still has the cluster after
    ``lock_timeout``, ConfigError if the folder is something else, StorageError if the disk refuses.
    """

    _network_class: ClassVar[type[LocalNetwork]] = LocalNetwork
    """Carries the messages between nodes, controller and clients; tests replace it by one with faults."""

    def __new__(cls, *args: object, mode: object = "a", **settings: object) -> Self:
        """Return a :class:`~pyreplog.ClusterReader` for ``mode="r"``; its own ``__init__`` runs."""
        kind: type[Any] = ClusterReader if mode == "r" and cls is Cluster else cls
        made: Self = object.__new__(kind)
        return made

    @overload
    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: NodesAsked = None,
        *,
        mode: Literal["a"] = "a",
        **settings: Unpack[OwnProcessSettings],
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
        nodes: NodesAsked = None,
        *,
        mode: Literal["a", "r"] = "a",
        roles: RolesAsked = None,
        racks: RacksAsked = None,
        config: NodeConfig | Mapping[str, object] | None = None,
        disk: Callable[[str], Disk] | None = None,
        clock: Clock | None = None,
        own_process: bool = False,
        progress: Callable[[RecoveryProgress], None] | None = None,
        permissions: Permissions = "owner",
        lock_timeout: float | None = 0,
    ) -> None:
        """Start the cluster from its folder. Every node that can serve does so on return."""
        check_mode(mode)
        settings: OwnProcessSettings = {
            "roles": roles,
            "racks": racks,
            "config": config,
            "disk": disk,
            "clock": clock,
            "own_process": own_process,
            "progress": progress,
            "permissions": permissions,
            "lock_timeout": lock_timeout,
        }
        self._closed = False
        self._is_released = False
        self._closing = OwnedLock("the cluster")
        self._refusal: PyreplogError | None = None
        self._lock: Lock | None = None
        self._applier: SpoolApplier | None = None
        self._build(ClusterOptions.checked(path, nodes, settings))
        try:
            self._start()
        except BaseException:
            self._closed = True
            try:
                self._end()
            except BaseException:
                self._end()  # as in close
                raise
            raise

    def _build(self, options: ClusterOptions) -> None:
        """Make the parts of the cluster. None of them takes a lock or starts."""
        self._options = options
        self._path = path = options.path
        self._driver = driver = Driver(options.clock, path, self._network_class)
        self._make_disk: Callable[[str], Disk] = options.disk or (
            lambda name: SystemDisk(permissions=options.permissions, batcher=driver.syncs)
        )
        self._disk = disk = self._make_disk("controller")
        self._named = TopicReaders(disk, options.clock, path, ClusterDeadLetters(self))
        self._tables = TopicTables(disk, path)
        self._node_disks = NodeDisks(self._make_disk)
        self._folders = NodeFolders(disk, path, options.nodes, anchor=options.disk is None)
        self._controller = controller = QuorumHost(
            options.config, options.clock, driver, self._folders, self._node_disks, options.roles
        )
        driver.lack = controller.lack
        self._nodes = nodes = NodeGroup(path, driver, controller, self._folders)
        # Disks of tests may not be used by two threads at once.
        self._compactor = TopicCompactor(driver, nodes, options.clock, path, is_apart=options.disk is None)
        self._advice = Advice(
            nodes.nodes, controller.topic_names, controller.leaderless, nodes.refusals, controller.lack
        )
        self._clients = Clients(
            driver, options.clock, nodes.addresses, controller.addresses, controller.batch_limit, self._advice, path
        )
        if disk.stat(path) is None:
            make_folder(disk, path)

    def _start(self) -> None:
        """Lock the folder, start the controller and its nodes, and open the cluster for clients."""
        disk, path, options = self._disk, self._path, self._options
        wait = options.wait
        self._lock = wait.call(
            lambda: with_reserve(disk, path, lambda: disk.lock(f"{path}/{CLUSTER_LOCK_NAME}", "a cluster"))
        )
        refuse_unfinished(disk, [path])
        self._controller.load()
        count = self._nodes.count(is_asked=options.nodes is not None)
        make_node = partial(
            ClusterNode,
            folders=self._folders,
            controller=self._controller,
            driver=self._driver,
            make_disk=self._node_disks.take,
            clock=options.clock,
            config=options.config,
            trusted=self._clients.trusted,
        )
        self._nodes.settle_racks(count, options.racks)
        with Recovery(f"the cluster {path!r}", options.clock, options.progress) as recovery:
            self._nodes.start(count, make_node, recovery, wait)
        self._clients.open_admin(self._nodes, self._compactor)
        self._driver.start()
        settle_voters(self._nodes, self._clients.admin, self._driver, self._folders)
        forget_removed(self._nodes, self._clients.admin, self._driver, self._folders)
        if options.disk is None:  # other processes reach only the machine's own files
            self._applier = self._make_applier()
            self._applier.start()
        self._compactor.start()
        remember(self)
        if options.own_process:
            end_on_sigterm()

    def _make_applier(self) -> SpoolApplier:
        """Return the thread that appends batches that other processes staged for this cluster."""
        applier = SpoolApplier(
            Spool(self._disk, self._path),
            lambda: self._clients.appender(lambda: applier.stopping),
            self._options.clock,
            self._nodes.retain_producers,
        )
        return applier

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Cluster cannot be copied or pickled: one process opens it, and any number may read it with Cluster(path,"
            " mode='r')"
        )

    # -------------------------------------------------------------------------------------- clients

    @property
    def admin(self) -> Admin:
        """Topics: ``create_topic``, ``topics``, ``describe``."""
        self._check()
        return self._clients.admin

    def producer(
        self,
        acks: Literal["all", -1, 1, 0] = "all",
        *,
        batch_size_max: int = _PRODUCER.batch_size_max,
        max_in_flight: int = _PRODUCER.max_in_flight,
        request_timeout_ms: int = _PRODUCER.request_timeout_ms,
        delivery_timeout_ms: int = _PRODUCER.delivery_timeout_ms,
        max_block_ms: int = _PRODUCER.max_block_ms,
        enable_idempotence: bool | None = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Producer:
        """Open a producer. ``acks``: "all" (default): every in-sync replica has the record; 1: the
        leader has it; 0: no acknowledgement.

        ``delivery_timeout_ms``: how long a refused record is sent again. ``request_timeout_ms``: how
        long an answer may take before the outcome counts as unknown; a request in flight is awaited
        that long even after ``delivery_timeout_ms``. ``max_block_ms``: how long ``send`` waits for
        the metadata of a topic, unless ``delivery_timeout_ms`` is shorter. ``max_in_flight``:
        requests in flight per node. ``batch_size_max``: bytes after which a batch is closed, fewer
        if the topic takes no such batch. ``enable_idempotence``: every record once and in order,
        whatever must be sent again (None: with acks="all" and ``max_in_flight`` up to 5, which it
        needs). ``key_serializer`` and ``value_serializer`` are called with each key and value that
        is not None, and return bytes. ``partitioner(key, partitions)`` is called with the bytes of
        the key, or None, and the number of the topic's partitions, and returns the number of one.
        ``on_delivery``: for every record, unless its ``send`` brings another. Raises ConfigError.
        """
        self._check()
        functions = SendFunctions(key_serializer, value_serializer, partitioner, on_delivery).checked()
        return self._clients.producer(
            ProducerConfig(
                acks=acks_number(acks),
                batch_size_max=batch_size_max,
                max_in_flight=max_in_flight,
                request_timeout_ms=request_timeout_ms,
                delivery_timeout_ms=delivery_timeout_ms,
                max_block_ms=max_block_ms,
                enable_idempotence=enable_idempotence,
            ),
            functions,
        )

    @overload
    def consumer(self, topics: Subject, *, name: None = None, **settings: Unpack[ConsumerSettings]) -> Consumer: ...
    @overload
    def consumer(self, topics: Subject, *, name: str, **settings: Unpack[NamedConsumerSettings]) -> NamedConsumer: ...
    def consumer(
        self,
        topics: Subject,
        *,
        name: str | None = None,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest",
        max_poll_records: int = _CONSUMER.max_poll_records,
        fetch_max_bytes: int = _CONSUMER.fetch_max_bytes,
        fetch_min_bytes: int = _CONSUMER.fetch_min_bytes,
        read_from: Literal["leader", "follower"] = "leader",
        rack: str | None = None,
        timeout: float | None = ANSWER_TIMEOUT_S,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        **named: Unpack[NamedReaderSettings],
    ) -> Consumer | NamedConsumer:
        """Open a consumer of a topic (all its partitions), a (topic, partition) pair, or several.

        ``name``: a :class:`NamedConsumer`, which keeps its place under this name in the cluster's
        folder. Its settings are those of :meth:`Log.consumer`, ``max_poll_records`` and the
        deserializers. It reads the nodes' files, so it goes on while nodes are down. Without a name:

        ``auto_offset_reset``: where to begin, and where to continue if the records at a position
        were deleted; ``"none"``: begin at the first record, and raise OffsetOutOfRangeError instead
        of continuing elsewhere. ``max_poll_records``: the most records of one poll.
        ``fetch_max_bytes``: the most bytes of each partition in one answer (at least one batch).
        ``fetch_min_bytes``: a node waits for so many bytes (from 1), for half a second at most.
        ``read_from``: "follower" asks an in-sync follower if there is one, which is about a
        millisecond behind; with ``rack`` one of that rack if there is one. ``timeout``: how many
        seconds to wait for the metadata of the topics. ``key_deserializer`` and
        ``value_deserializer`` are called with the bytes of each key and value that is not None; the
        records are DecodedRecords with the objects that they return. If one raises, the read raises
        DeserializationError and stays at the record. Raises ConfigError, UnknownTopicError,
        RequestTimedOutError.
        """
        self._check()
        functions = Deserializers(key_deserializer, value_deserializer).checked()
        others = {
            "auto_offset_reset": (auto_offset_reset, "earliest"),
            "fetch_max_bytes": (fetch_max_bytes, _CONSUMER.fetch_max_bytes),
            "fetch_min_bytes": (fetch_min_bytes, _CONSUMER.fetch_min_bytes),
            "read_from": (read_from, "leader"),
            "rack": (rack, None),
            "timeout": (timeout, ANSWER_TIMEOUT_S),
        }
        check_reader_settings(name, named, others)
        if name is not None:
            return self._named.open(topics, name, named, max_poll_records, functions)
        if auto_offset_reset not in ("earliest", "latest", "none"):
            raise ConfigError(f"auto_offset_reset is {auto_offset_reset!r}; it must be 'earliest', 'latest' or 'none'")
        if read_from not in ("leader", "follower"):
            raise ConfigError(f"read_from is {read_from!r}; it must be 'leader' or 'follower'")
        config = ConsumerConfig(
            auto_offset_reset=auto_offset_reset,
            max_poll_records=max_poll_records,
            fetch_max_bytes=fetch_max_bytes,
            fetch_min_bytes=fetch_min_bytes,
            read_from=read_from,
            rack=checked_rack(rack, read_from),
        )
        return self._clients.consumer(config, topics, timeout, functions)

    def table(
        self,
        topic: str,
        store: str | os.PathLike[str] | None = None,
        *,
        partitioner: Partitioner | None = None,
        progress: Callable[[TopicPartition, int, int], object] | None = None,
    ) -> ClusterTable:
        """Return the latest value of each key of a topic, as a Mapping that follows the topic.

        See :meth:`Log.table`. Its files lie in the cluster's folder, or in the folder ``store``.
        ``partitioner``: the producers' own. ``progress(topic_partition, next_offset, end)``."""
        self._check()
        self._clients.await_ends(topic)
        return self._tables.open(topic, store, partitioner, progress)

    def scan(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
    ) -> Scan:
        """Return a topic as Arrow columns, partition after partition, below the high watermark: give
        it to pyarrow, Polars, DuckDB or pandas.

        ``start`` and ``end`` are offsets in each partition; a partition with fewer records has no
        rows. Timestamps are ms since 1970 or aware datetimes, the end exclusive.

        The scan reads the nodes' files. If a leader has just taken over, it waits up to 10 s for the
        leader to know which of its records are committed. So a record that a sender does not find
        in a scan does not appear later. Raises UnknownTopicError; OffsetOutOfRangeError if records
        were deleted after ``start``.
        """
        self._check()
        self._clients.await_ends(topic)
        readers = open_readers(self._disk, self._path, topic)
        if not readers:
            raise self._advice.unknown_topic(topic)
        return Scan(
            # Several threads may read a scan at once, and each may read it several times.
            [(key.partition, ReaderView(reader, self._disk)) for key, reader in sorted(readers.items())],
            name=f"topic {topic!r}",
            columns=columns,
            default_columns=TOPIC_COLUMNS,
            checked=True,
            start=start,
            end=end,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            spread=True,
        )

    # ---------------------------------------------------------------------------------------- nodes

    @property
    def path(self) -> str:
        """The folder."""
        return self._path

    @property
    def mode(self) -> Literal["a", "r"]:
        """``"a"``, or ``"r"`` for a :class:`ClusterReader`."""
        return "a"

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def nodes(self) -> Sequence[ClusterNode]:
        """The nodes, in the order of their numbers: ``nodes[0]`` is node 1. A missing one raises
        IndexError."""
        return Nodes(self._nodes.nodes)

    def node(self, node_id: int) -> ClusterNode:
        """Return the node with this number, from 1. A missing one raises IndexError."""
        number = whole("node_id", node_id)
        for node in self._nodes.nodes:
            if node.node_id == number:
                return node
        raise IndexError(f"there is no node {number}: the nodes are 1 to {len(self._nodes.nodes)}")

    @property
    def controller(self) -> ClusterNode | None:
        """The node whose vote made it the active controller; None while there is none, because a
        majority of the voters is down or an election goes on."""
        active = self._driver.run_exclusively(lambda: self._controller.active_id)
        return None if active is None else self.node(active)

    @property
    def cluster_id(self) -> str:
        """The cluster's id, as in every node's ``meta.properties``."""
        return self._controller.cluster_id

    def leader(self, topic: str, partition: int = 0) -> ClusterNode | None:
        """Return the node that leads the partition now, by the controller's metadata; None while
        there is no leader. Raises UnknownTopicError."""
        self._check()
        check_name(topic)
        partition = whole("partition", partition)
        # A node that was killed is replaced by the next decision, which takes a moment.
        controller, nodes = self._controller, self._nodes
        self._driver.wait_until(lambda: nodes.has_replaced(controller.leader_of(topic, partition)), LEADER_S)
        leaders = self._controller.leaders(topic)
        if leaders is None:
            raise self._advice.unknown_topic(topic)
        if partition not in leaders:
            raise UnknownTopicError(f"{topic!r} has partitions 0 to {len(leaders) - 1}, not {partition}")
        leader = next((node for node in self._nodes.nodes if node.node_id == leaders[partition]), None)
        return leader if leader is not None and leader.alive else None

    # -------------------------------------------------------------------------------------- the end

    def close(self, timeout: float | None = 10.0) -> None:
        """Send the producers' buffered records (for up to ``timeout`` seconds; None: no limit), end
        every node in order, and release the folder.

        A second call is harmless: it waits for the first, and finishes it if it was interrupted.
        """
        timeout = check_seconds("timeout", timeout)
        if self._is_released or self._closing.is_mine():  # a signal handler may call close within close
            return
        self._driver.check_free("; for SIGTERM, Cluster(path, own_process=True) does")
        with self._closing:
            if self._is_released:
                return
            self._closed = True
            try:
                try:
                    self._named.close()
                    self._tables.close()
                    self._compactor.stop()
                    if self._applier is not None:
                        self._applier.stop()
                    self._clients.close(timeout)
                    self._await_followers(timeout)
                finally:
                    self._end()
            except BaseException:
                self._end()  # finish an interrupted end before the interruption is raised
                raise
        if self._nodes.failure is not None:
            raise copy_for_raise(self._nodes.failure)

    def _await_followers(self, timeout: float | None) -> None:
        """Wait until the followers know the final high watermarks. Then each replica's folder alone
        shows all acknowledged records.
        """
        patience = FINAL_FETCH_S if timeout is None else min(timeout, FINAL_FETCH_S)
        deadline = time.monotonic() + patience  # by the machine's clock, because the caller's may stand still
        self._driver.wait_until(lambda: time.monotonic() >= deadline or self._nodes.followers_know_ends(), patience)

    def _end(self) -> None:
        """Stop all parts and release the folder. A second call finishes an interrupted first."""
        if self._is_released:
            return
        if self._applier is not None:
            self._applier.stop()
        self._compactor.stop()
        self._driver.stop()
        self._driver.run_exclusively(self._nodes.close)
        if self._lock is not None:
            self._lock.release()
        self._node_disks.close()
        close_disk(self._disk)
        forget(self)
        self._is_released = True

    def _unclosed(self) -> str | None:
        """Return the name for the warning at exit; None if the process exists for its cluster, so
        that both end together."""
        return None if self._options.own_process else repr(self)

    def _forked(self) -> None:
        """Refuse all calls: this process is the child of a fork, and the cluster is its parent's."""
        self._closed = self._is_released = True
        self._refusal = ForkedError(
            f"the cluster {self._path!r} belongs to the parent process, of which this one is a fork: leave it to that"
            " one, or open another one here, in a folder of its own"
        )
        self._compactor.forked()
        self._driver.forked(self._refusal)

    def _check(self) -> None:
        if self._refusal is not None:
            raise copy_for_raise(self._refusal)
        if self._closed:
            raise ClosedError(f"the cluster {self._path!r} is closed: open it again to use it")

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if getattr(self, "_lock", None) is None:  # its __init__ did not finish
            return "<pyreplog.Cluster, not opened>"
        count = len(self._nodes.nodes)
        return (
            f"<pyreplog.Cluster {self._path!r}, {count}"
            f" node{'' if count == 1 else 's'}{', closed' if self._closed else ''}>"
        )


class ClusterReader(ReaderFace, Cluster):  # type: ignore[misc]  # its consumer has no settings for clients of nodes
    """A cluster that another process writes, opened by ``Cluster(path, mode="r")``. Use it in ``with``, or call
    ``close``. Thread-safe.

    It reads topics as a whole: ``topics``, ``describe``, ``consumer``, ``scan``, ``follow``. Any number of processes
    may do so. ``path`` is a cluster's folder, or any other folder that holds logs: a Kafka broker's, the folder above
    several of its ``log.dirs``, one node's. Each call finds topics and partitions that were made before it. Calls that
    write or that concern nodes raise ReadOnlyError.

    Raises StorageNotFoundError if there is no cluster and no log, ConfigError for settings that only a writer has.
    """
