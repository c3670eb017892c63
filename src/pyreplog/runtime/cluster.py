"""Cluster: three nodes (or any number), a controller and their clients in this process, on real files.

Everything is under one folder: ``node-1``, ``node-2``, ... are Kafka log roots, ``replog.controller`` is the
controller's state. Opening the same folder again goes on from what is there, however the last process ended.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from random import Random, SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn, Self, SupportsIndex, overload

from pyreplog.arrow import TOPIC_COLUMNS, Scan
from pyreplog.client import ACKS, BatchForwarder, ConsumerConfig, ProducerConfig
from pyreplog.client import Admin as AdminMachine
from pyreplog.client import Consumer as ConsumerMachine
from pyreplog.client import Producer as ProducerMachine
from pyreplog.config import (
    INT32_MAX,
    NodeConfig,
    Permissions,
    batch_max,
    check_callable,
    check_flag,
    check_seconds,
    default_min_insync_replicas,
    producer_batch_max,
    whole,
)
from pyreplog.controller import CONTROLLER_ADDRESS, STATE_FILE, ControllerServer, LocalController, TopicImage
from pyreplog.controller import load as load_state
from pyreplog.errors import (
    ClosedError,
    ClusterError,
    ConfigError,
    CorruptError,
    ForkedError,
    LockedError,
    PyreplogError,
    RequestTimedOutError,
    UnknownTopicError,
    copy_for_raise,
)
from pyreplog.log import make_folder, open_readers, read_properties, refuse_unfinished, with_reserve
from pyreplog.ports import Address, Clock, Disk, Lock
from pyreplog.runtime.admin import Admin
from pyreplog.runtime.advice import Advice, Awaited
from pyreplog.runtime.at_exit import end_on_sigterm, forget, remember
from pyreplog.runtime.cluster_node import ClusterNode, close_disk
from pyreplog.runtime.consumer import ANSWER_TIMEOUT_S, Consumer, Subject
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.locking import LockWait, cluster_wait
from pyreplog.runtime.node_folders import NodeFolders, NodesAsked
from pyreplog.runtime.nodes import Nodes
from pyreplog.runtime.older_state import check_not_older
from pyreplog.runtime.opening import check_clock, check_name, check_progress, check_together, folder_of
from pyreplog.runtime.producer import Producer
from pyreplog.runtime.recovery import Recovery
from pyreplog.runtime.relay import ClusterAppender
from pyreplog.runtime.retry import Retry
from pyreplog.runtime.spool_applier import SpoolApplier
from pyreplog.runtime.views import ReaderView
from pyreplog.spool import Spool
from pyreplog.system import LocalNetwork, OwnedLock, SystemClock, SystemDisk, anchored, is_interruption
from pyreplog.values import RecoveryProgress, TopicPartition
from pyreplog.wire import NO_LEADER

if TYPE_CHECKING:
    from pyreplog.runtime.cluster_reader import ClusterReader

__all__ = ["Cluster"]

START_TIMEOUT_S: Final = 30.0
ENDS_TIMEOUT_S: Final = 10.0
"""How long a scan waits for leaders to know where their partitions end."""
FINAL_FETCH_S: Final = 0.5
"""How long a closing cluster waits for its followers to know the final high watermarks: about a millisecond, unless
a disk is slow."""
LOCK_NAME: Final = "replog.controller.lock"
_PRODUCER: Final = ProducerConfig()
_CONSUMER: Final = ConsumerConfig()

_log = logging.getLogger("pyreplog")
_log.addHandler(logging.NullHandler())  # silent unless the application configures logging


class Cluster:
    """A replicated log in this process. Use it in ``with``, or call ``close``. Thread-safe.

    ``mode="r"``: read it beside the process that runs it; that is a :class:`ClusterReader`, which takes no lock and
    starts no node. ``nodes``: how many, up to 100; None: as many as the folder has, 3 in a new one. More than
    before adds nodes, fewer are a ConfigError. A list such as ``["/disk1/n1", "/disk2/n2"]`` says where each node
    keeps its log, so that they are on different disks; the cluster's folder keeps the list, and the next opening
    needs none. ``config``: every node's settings, a NodeConfig or a dict of them. ``own_process``: the process is
    there for this cluster, so SIGTERM ends both in order, as Ctrl-C does; call it from the main thread.
    ``progress`` is called while logs are recovered that were not closed cleanly, as by ``open_log``.
    ``permissions`` and ``lock_timeout`` mean the same as for ``open_log``. ``disk`` (by name: "node-1", ...,
    "controller") and ``clock`` replace the machine's own, for tests.

    Raises LockedError (with the holder) when another opening still has it after ``lock_timeout``, ConfigError for a
    folder that is something else, StorageError where the disk refuses.
    """

    _network_class: ClassVar[type[LocalNetwork]] = LocalNetwork
    """What carries the messages of its members; tests put one with faults in its place."""
    _reader_class: ClassVar[type[Any]]
    """What ``mode="r"`` makes. Its module, which imports this one, sets it."""

    def __new__(cls, *args: object, mode: object = "a", **settings: object) -> Self:
        """With ``mode="r"`` a :class:`~pyreplog.ClusterReader`, whose own ``__init__`` runs then."""
        kind: type[Any] = cls._reader_class if mode == "r" and cls is Cluster else cls
        made: Self = object.__new__(kind)
        return made

    @overload
    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: NodesAsked = None,
        *,
        mode: Literal["a"] = "a",
        config: NodeConfig | Mapping[str, object] | None = None,
        disk: Callable[[str], Disk] | None = None,
        clock: Clock | None = None,
        own_process: bool = False,
        progress: Callable[[RecoveryProgress], None] | None = None,
        permissions: Permissions = "owner",
        lock_timeout: float | None = 0,
    ) -> None: ...
    @overload
    def __init__(  # type: ignore[misc]  # this class's name makes one of that class
        self: ClusterReader,
        path: str | os.PathLike[str],
        *,
        mode: Literal["r"],
        disk: Callable[[str], Disk] | None = None,
        clock: Clock | None = None,
        permissions: Permissions = "owner",
    ) -> None: ...
    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: NodesAsked = None,
        *,
        mode: Literal["a", "r"] = "a",
        config: NodeConfig | Mapping[str, object] | None = None,
        disk: Callable[[str], Disk] | None = None,
        clock: Clock | None = None,
        own_process: bool = False,
        progress: Callable[[RecoveryProgress], None] | None = None,
        permissions: Permissions = "owner",
        lock_timeout: float | None = 0,
    ) -> None:
        """Start, or go on from what is there; every node that can serve does when this returns."""
        if mode != "a":
            raise ConfigError(
                f"mode is {mode!r}; it must be 'a' (run the cluster) or 'r' (read it beside the process that runs it)"
            )
        folder = folder_of(path)
        settings = NodeConfig.from_mapping({} if config is None else config)
        check_callable(
            "disk", disk, "a function that makes a Disk (see pyreplog.ports) by its name, or None for the machine's own"
        )
        check_clock(clock)
        check_progress(progress)
        check_flag("own_process", own_process)
        check_together(permissions, disk)
        wait = cluster_wait(folder, lock_timeout)
        self._path = anchored(folder) if disk is None else folder
        self._config = settings
        self._clock = SystemClock() if clock is None else clock
        self._random = Random(SystemRandom().getrandbits(64))
        self._driver = driver = Driver(self._clock, self._path, self._network_class)
        self._make_disk: Callable[[str], Disk] = (
            (lambda name: SystemDisk(permissions=permissions, batcher=driver.syncs)) if disk is None else disk
        )
        self._trusted: dict[Address, None] = {}
        self._producers: dict[Producer, None] = {}
        self._consumers: dict[Consumer, None] = {}
        self._client_numbers = itertools.count(1)
        self._closed = False
        self._closing = OwnedLock("the cluster")
        self._is_released = False
        self._is_controlled = True
        """Whether the controller runs: not where it was cut short, and its disk does not let it begin again yet."""
        self._controlled_again_ns: int | None = None
        """When a controller last began again in the place of one that was cut short; None: none did."""
        self._failure: PyreplogError | None = None
        self._lock: Lock | None = None
        self._owner: SpoolApplier | None = None
        self._own_process = own_process
        self._nodes: list[ClusterNode] = []
        self._advice = Advice(
            self._nodes,
            self._topic_names,
            self._awaited_leaders,
            lambda topic: self._driver.run_exclusively(lambda: self._refused(topic)),
        )
        self._refusal: PyreplogError | None = None
        self._controller_disk = self._make_disk("controller")
        self._folders = NodeFolders(self._controller_disk, self._path, nodes, anchor=disk is None)
        if self._controller_disk.stat(self._path) is None:
            make_folder(self._controller_disk, self._path)
        try:
            self._start(progress, wait, is_asked=nodes is not None)
            if disk is None:  # other processes reach this machine's files only
                self._owner = self._own_spool()
                self._owner.start()
            remember(self)
            if own_process:
                end_on_sigterm()
        except BaseException:
            self._closed = True
            try:
                self._end()
            except BaseException:
                self._end()  # as in close
                raise
            raise

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Cluster cannot be copied or pickled: one process opens it, and any number may read it with Cluster(path,"
            " mode='r')"
        )

    # ---------------------------------------------------------------------------------------- start

    def _start(self, progress: Callable[[RecoveryProgress], None] | None, wait: LockWait, *, is_asked: bool) -> None:
        """Take the folder, and run the controller and its nodes, or as many more as it knows. ``is_asked``: the
        caller said how many."""
        disk, path, folders = self._controller_disk, self._path, self._folders
        self._lock = wait.call(lambda: with_reserve(disk, path, lambda: disk.lock(f"{path}/{LOCK_NAME}", "a cluster")))
        refuse_unfinished(disk, [path])
        _check_state(disk, path, folders)
        self._start_controller()
        authority = self._authority.authority
        known = max(authority.image.brokers, default=0)
        if is_asked and folders.count < known:
            raise folders.too_few(known)
        count = max(folders.count, known)
        folders.settle(count, authority.image.brokers, authority.cluster_id)
        with Recovery(f"the cluster {path!r}", self._clock, progress) as recovery:
            self._start_nodes(count, recovery, wait)
        self._wait_for_nodes()
        self._admin = Admin(self._driver, self._advice, self._make_admin, self._settle, self._counts, len(self._nodes))
        self._driver.start()

    def _start_controller(self, after: LocalController | None = None) -> None:
        """Begin with what is in its file, which has to have what ``after`` decided. Nothing of it is left where a
        signal handler cuts this short."""
        now_ns = self._clock.monotonic_ns()
        authority = LocalController.open(
            self._controller_disk, self._path, self._config, self._random, now_ns=now_ns, after=after
        )
        transport = self._driver.network.endpoint()
        seat: DrivenMachine | None = None
        try:
            endpoint = ControllerServer(authority, transport, self._clock)
            seat = self._driver.add(endpoint, transport, self._controller_interrupted, shared=False)
            self._authority, self._authority_seat = endpoint, seat
        except BaseException:
            if seat is not None:
                self._driver.remove(seat)
            transport.close()
            raise

    def _start_nodes(self, count: int, recovery: Recovery, wait: LockWait) -> None:
        for number in range(1, count + 1):
            node = ClusterNode(
                number,
                self._folders.of(number),
                check=partial(self._check_folder, number),
                driver=self._driver,
                make_disk=self._make_disk,
                clock=self._clock,
                config=self._config,
                cluster_id=self._authority.authority.cluster_id,
                trusted=self._trusted,
                fence=self._fence,
                is_fenced=self._is_fenced,
            )
            self._nodes.append(node)
            try:
                wait.call(
                    partial(node._start, recovery)
                )  # a process that is killed gives its locks up one after another
                self._folders.tell(number)
            except (LockedError, ConfigError):
                raise
            except PyreplogError as error:
                if error is recovery.failure:
                    raise
                # One damaged copy must not keep the others from serving.
                _log.error("node %d cannot start: %s", number, error)
                node._failure = error  # the cluster makes its nodes

    def _check_folder(self, number: int) -> None:
        """Raise if the folder of this node may not be its own now. REQUIRES that no machine moves."""
        authority = self._authority.authority
        self._folders.check(number, authority.image.brokers.get(number), authority.cluster_id)

    def _wait_for_nodes(self) -> None:
        if not any(node.alive for node in self._nodes):
            raise self._nodes[0].failure or ClosedError("no node started")
        if not self._driver.wait_until(lambda: all(node._settled() for node in self._nodes), START_TIMEOUT_S):
            slow = ", ".join(str(node.node_id) for node in self._nodes if not node._settled())
            raise RequestTimedOutError(
                f"of the cluster {self._path!r} node {slow} does not serve after {START_TIMEOUT_S:g} s"
            )
        if not any(node.ready for node in self._nodes):
            raise self._nodes[0].failure or ClosedError("no node started")

    def _is_fenced(self, node_id: int) -> bool:
        """As the controller has it. Any thread: the image's brokers are replaced, not changed."""
        broker = self._authority.authority.image.brokers.get(node_id)
        return broker is not None and broker.fenced

    def _fence(self, node_id: int) -> None:
        """Tell the controller that a node died. REQUIRES that no other machine moves."""
        seat = self._authority_seat
        if not self._is_controlled or seat.busy:
            return  # one that begins takes nobody for alive
        # as in a turn of its own: where a signal handler cuts this short, it begins again with what
        # is in its file
        seat.busy = True
        try:
            self._authority.fence(node_id, f"node-{node_id}")
        except PyreplogError as error:
            _log.error("the controller cannot take note of the end of node %d: %s", node_id, error)
        seat.busy = False

    def _controller_interrupted(self, error: Exception | None) -> None:
        """Its turn was cut short, or its disk failed: what is in its file is true. Where there is no room or no
        descriptor to begin with that, it is tried again. Called by whoever drives."""
        self._driver.remove(self._authority_seat)
        self._authority.close()
        if self._restart_controller():
            return
        transport = self._driver.network.endpoint()

        def again() -> bool:
            done = self._restart_controller()
            if done:
                _log.warning("the controller goes on")
                self._driver.remove(seat)
            return done

        seat = self._driver.add(Retry(self._clock, again), transport, self._controller_interrupted, shared=False)

    def _restart_controller(self) -> bool:
        try:
            self._start_controller(self._authority.authority)
        except PyreplogError as error:
            if self._is_controlled:
                _log.exception(
                    "the controller cannot go on; no topic can be made and no leader elected until it can: %s", error
                )
            self._is_controlled = False
            return False
        self._is_controlled = True
        self._controlled_again_ns = self._clock.monotonic_ns()
        return True

    # -------------------------------------------------------------------------------------- clients

    def _address(self, kind: str) -> Address:
        return f"{kind}-{next(self._client_numbers)}"

    def _bootstrap(self) -> list[Address]:
        return [f"node-{node.node_id}" for node in self._nodes]

    def _make_admin(self) -> tuple[AdminMachine, DrivenMachine]:
        transport = self._driver.network.endpoint()
        machine = AdminMachine(
            transport,
            self._clock,
            self._random,
            address=self._address("admin"),
            controller=CONTROLLER_ADDRESS,
            owner=self._driver,
        )
        return machine, self._driver.add(machine, transport, lambda error: self._admin._interrupted(error))

    def _own_spool(self) -> SpoolApplier:
        """Take what other processes stage for this cluster, from now on."""

        def make(broken: Callable[[Exception | None], None]) -> tuple[BatchForwarder, DrivenMachine]:
            def begin() -> tuple[BatchForwarder, DrivenMachine]:
                transport = self._driver.network.endpoint()
                machine = BatchForwarder(
                    transport,
                    self._clock,
                    self._random,
                    self._bootstrap(),
                    address=self._address("relay"),
                    owner=self._driver,
                )
                return machine, self._driver.add(machine, transport, broken)

            return self._driver.run_exclusively(begin)

        owner = SpoolApplier(
            Spool(self._controller_disk, self._path),
            lambda: ClusterAppender(self._admin, self._driver, make, lambda: owner.stopping, self._clock),
            self._clock,
            self._keep_producers,
        )
        return owner

    def _keep_producers(self, producer_ids: frozenset[int]) -> None:
        def keep() -> None:
            for node in self._nodes:
                node._keep_producers(producer_ids)

        self._driver.run_exclusively(keep)

    def _settle(self, topic: str, partition_count: int, timeout: float | None) -> None:
        """Until every node that serves, as far as it and the controller know, knows the topic, with leaders. None:
        as long as it comes closer."""
        done = wanted = 0
        refused: dict[int, PyreplogError] = {}

        def everywhere() -> bool:
            nonlocal done, wanted, refused
            # Also by what the controller knows: one that is cut off hears of no topic, and not that
            # it is taken for dead. A controller that has just begun again counts on nobody yet.
            active = {broker.broker_id for broker in self._authority.authority.image.brokers.values() if broker.active}
            ready = [node for node in self._nodes if node.ready and (node.node_id in active or not active)]
            refused = self._refused(topic)
            done, wanted = sum(node._serves(topic)[0] for node in ready), len(ready) * partition_count
            return done >= wanted

        patience_s = START_TIMEOUT_S if timeout is None else timeout
        while True:
            before = done
            if self._driver.wait_until(everywhere, patience_s):
                return
            if timeout is not None or done <= before:
                why = "".join(f"; node {number}: {error}" for number, error in refused.items())
                raise TimeoutError(
                    f"topic {topic!r} is made, but after {patience_s:g}"
                    f" s{' without progress' if timeout is None else ''} the nodes serve only"
                    f" {done * 100 // max(wanted, 1)} % of its {partition_count} partitions; they go on in the"
                    f" background: wait, and do not make it again{why}"
                )

    def _refused(self, topic: str) -> dict[int, PyreplogError]:
        """The nodes whose disks do not let them make a copy of some partition, and why. REQUIRES that no machine
        moves."""
        return {
            node.node_id: error for node in self._nodes if node.ready and (error := node._refused(topic)) is not None
        }

    def _counts(self) -> bool:
        """Whether the controller knows on which nodes to count: not where it was cut short, nor when it has just
        begun again and heard from none yet. REQUIRES that no machine moves."""
        if not self._is_controlled or not any(node.alive for node in self._nodes):
            return True  # there is nothing to wait for
        if self._authority_seat.busy:
            return False
        again_ns = self._controlled_again_ns
        heard = self._config.session_timeout_ms * 1_000_000
        if again_ns is None or self._clock.monotonic_ns() - again_ns >= heard:
            return True  # whom it does not count on now is away
        return any(broker.active for broker in self._authority.authority.image.brokers.values())

    @property
    def admin(self) -> Admin:
        """Topics: ``create_topic``, ``topics``, ``describe``."""
        self._check()
        return self._admin

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
    ) -> Producer:
        """Something that sends. ``acks``: "all" (default): every in-sync replica has it; 1: the leader has it; 0:
        nobody says.

        ``delivery_timeout_ms``: how long a record that nobody takes is tried again; ``request_timeout_ms``: how
        long an answer may take before the outcome counts as unknown (a request on its way is waited for so long,
        also when the former is over); ``max_block_ms``: how long ``send`` waits for the first news of a topic,
        where ``delivery_timeout_ms`` is not shorter; ``max_in_flight``: requests on their way per node;
        ``batch_size_max``: bytes after which a batch is closed, sooner where the topic takes no such batch;
        ``enable_idempotence``: every record once and in order, whatever has to be sent again (None: with acks="all"
        and ``max_in_flight`` up to 5, which it needs). Raises ConfigError.
        """
        self._check()
        if isinstance(acks, bool) or acks not in list(ACKS):
            raise ConfigError(f"acks is {acks!r}; it must be 'all', 1 or 0")
        config = ProducerConfig(
            acks=ACKS[acks],
            batch_size_max=batch_size_max,
            max_in_flight=max_in_flight,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            max_block_ms=max_block_ms,
            enable_idempotence=enable_idempotence,
        )

        def make(interrupted: Callable[[Exception | None], None]) -> tuple[ProducerMachine, DrivenMachine]:
            transport = self._driver.network.endpoint()
            address = self._address("producer")
            self._trusted[address] = None  # its batches are made by our own encoder, in this process
            machine = ProducerMachine(
                transport,
                self._clock,
                self._random,
                self._bootstrap(),
                address=address,
                config=config,
                owner=self._driver,
                batch_limit=self._batch_limit,
            )

            def broken(error: Exception | None) -> None:
                self._trusted.pop(address, None)
                interrupted(error)

            return machine, self._driver.add(machine, transport, broken)

        producer = Producer(self._driver, self._advice, make, self._producer_closed, self._path)
        self._producers[producer] = None
        return producer

    def _batch_limit(self, topic: str) -> tuple[int, int]:
        """Bytes of the largest batches that the topic's settings let a producer make: of several records, of one.
        REQUIRES the driver's turn."""
        found = self._found(topic)
        if found is None:
            return INT32_MAX, 0
        config = found.log_config
        return producer_batch_max(config), batch_max(config)

    def _producer_closed(self, producer: Producer) -> None:
        def end() -> None:
            machine, seat = producer._place  # now that nobody replaces them any more
            with seat.lock:  # somebody may be sending
                self._driver.remove(seat)
                self._trusted.pop(seat.transport.address or "", None)
                if seat.busy:  # cut short half-way
                    producer._interrupted(None)
                else:
                    machine.close()

        self._driver.run_exclusively(end)
        self._producers.pop(producer, None)

    def consumer(
        self,
        topics: Subject,
        *,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest",
        max_poll_records: int = _CONSUMER.max_poll_records,
        fetch_max_bytes: int = _CONSUMER.fetch_max_bytes,
        fetch_min_bytes: int = _CONSUMER.fetch_min_bytes,
        read_from: Literal["leader", "follower"] = "leader",
        timeout: float | None = ANSWER_TIMEOUT_S,
    ) -> Consumer:
        """Something that reads: a topic (all its partitions), a (topic, partition) pair, or several of these.

        ``auto_offset_reset``: where to begin, and where to go on when a position is no longer there; ``"none"``:
        begin at the first, and raise OffsetOutOfRangeError instead of going on elsewhere. ``max_poll_records``: the
        most of one poll. ``fetch_max_bytes``: of each partition in one answer (one batch at least);
        ``fetch_min_bytes``: a node waits for so many (from 1), half a second at most. ``read_from``: whom to ask,
        where a follower is in sync; it is about a millisecond behind. ``timeout``: how many seconds to wait for the
        first news of the topics. Raises ConfigError, UnknownTopicError, RequestTimedOutError.
        """
        self._check()
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
        )

        def make(interrupted: Callable[[Exception | None], None]) -> tuple[ConsumerMachine, DrivenMachine]:
            transport = self._driver.network.endpoint()
            machine = ConsumerMachine(
                transport,
                self._clock,
                self._random,
                self._bootstrap(),
                address=self._address("consumer"),
                config=config,
                owner=self._driver,
            )
            return machine, self._driver.add(machine, transport, interrupted)

        consumer = Consumer(self._driver, self._advice, make, self._consumer_closed, topics, timeout)
        self._consumers[consumer] = None
        return consumer

    def _consumer_closed(self, consumer: Consumer) -> None:
        def end() -> None:
            machine, seat = consumer._place  # as above
            with seat.lock:  # somebody may be about to wait
                self._driver.remove(seat)
                machine.close()

        self._driver.run_exclusively(end)
        self._consumers.pop(consumer, None)

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
        """A topic as Arrow columns, partition after partition, below the high watermark: give it to pyarrow,
        Polars, DuckDB or pandas.

        ``start`` and ``end`` are offsets of each partition: one that has not so many records has no rows;
        timestamps are ms since 1970 or aware datetimes, the end exclusive. OffsetOutOfRangeError where a partition
        begins behind ``start``: records were deleted there. It reads the nodes' files beside the cluster, and
        disturbs nobody. Where a leader has just taken over, the call waits until it knows which of the records it
        began with are committed (10 s at most; then it reads what was known before): what a sender finds missing in
        a scan does not turn up later.
        """
        self._check()
        self._settle_ends(topic)
        readers = open_readers(self._controller_disk, self._path, topic)
        if not readers:
            raise self._advice.unknown_topic(topic)
        # A scan may be read by several threads at once, and several times.
        sources = [
            (key.partition, ReaderView(reader, self._controller_disk)) for key, reader in sorted(readers.items())
        ]
        return Scan(
            sources,
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

    def _settle_ends(self, topic: str) -> None:
        """Wait until the leaders of ``topic`` can say where it ends: a new one cannot until its high watermark has
        reached its first own offset (KIP-207). Without a leader, or with fewer in-sync replicas than it takes,
        nothing is committed that could be waited for."""
        description = self.admin.describe(topic)
        minimum = description.config.get("min.insync.replicas")
        left_s = self._countdown(ENDS_TIMEOUT_S)
        with self.consumer(()) as consumer:
            for part in description.partitions:
                needed = int(minimum or default_min_insync_replicas(len(part.replicas)))
                if part.leader < 0 or len(part.isr) < min(needed, len(part.replicas)):
                    continue
                try:
                    consumer.end_offset(topic, part.partition, timeout=left_s())
                except (ClusterError, TimeoutError) as error:
                    if is_interruption(error):
                        raise
                    _log.warning(
                        "scan of %s-%d: its end is not known yet (%s); reading what was committed before",
                        topic,
                        part.partition,
                        error,
                    )

    # ---------------------------------------------------------------------------------------- nodes

    @property
    def path(self) -> str:
        """The folder."""
        return self._path

    @property
    def mode(self) -> Literal["a", "r"]:
        """``"a"``, or ``"r"`` of a :class:`ClusterReader`."""
        return "a"

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def nodes(self) -> Sequence[ClusterNode]:
        """The nodes, in the order of their numbers: ``nodes[0]`` is node 1. IndexError for one that is not
        there."""
        return Nodes(self._nodes)

    @property
    def cluster_id(self) -> str:
        """The cluster's id, as in every node's ``meta.properties``."""
        return self._authority.authority.cluster_id

    def leader(self, topic: str, partition: int = 0) -> ClusterNode | None:
        """The node that leads the partition now, as the controller has it; None while nobody does. Raises
        UnknownTopicError."""
        self._check()
        check_name(topic)
        partition = whole("partition", partition)
        found = self._driver.run_exclusively(lambda: self._found(topic))
        if found is None:
            raise self._advice.unknown_topic(topic)
        entry = found.partitions.get(partition)
        if entry is None:
            raise UnknownTopicError(f"{topic!r} has partitions 0 to {len(found.partitions) - 1}, not {partition}")
        return next((node for node in self._nodes if node.node_id == entry.leader), None)

    def _countdown(self, seconds: float) -> Callable[[], float]:
        """Gives what is left of so many seconds."""
        now_ns = self._driver.monotonic_ns
        started_ns = now_ns()
        return lambda: max(seconds - (now_ns() - started_ns) / 1e9, 0.0)

    def _topic_names(self) -> tuple[str, ...]:
        return self._driver.run_exclusively(lambda: tuple(self._authority.authority.image.topic_ids))

    def _awaited_leaders(self, of: TopicPartition) -> Awaited | None:
        def look() -> Awaited | None:
            found = self._found(of.topic)
            entry = None if found is None else found.partitions.get(of.partition)
            return (
                None
                if entry is None or entry.leader != NO_LEADER
                else Awaited((*entry.isr, *entry.elr), entry.replicas)
            )

        return self._driver.run_exclusively(look)

    def _found(self, topic: str) -> TopicImage | None:
        """The topic as the controller has it. REQUIRES that no machine moves."""
        return self._authority.authority.image.topic(topic)

    # -------------------------------------------------------------------------------------- the end

    def close(self, timeout: float | None = 10.0) -> None:
        """Send what producers still hold (up to ``timeout`` seconds; None: as long as it takes), end every node in
        order, release the folder. Twice is harmless: who comes second waits for the first, and finishes what that
        one was interrupted in."""
        timeout = check_seconds("timeout", timeout)
        if self._is_released or self._closing.is_mine():  # a signal handler that closes what its thread is closing
            return
        self._driver.check_free("; for SIGTERM, Cluster(path, own_process=True) does")
        with self._closing:
            if self._is_released:
                return
            self._closed = True
            try:
                try:
                    self._close_clients(timeout)
                    self._await_followers(timeout)
                finally:
                    self._end()
            except BaseException:
                self._end()  # once more: whatever was interrupted is done all the same, and the interruption passed on
                raise
        if self._failure is not None:
            raise copy_for_raise(self._failure)

    def _close_clients(self, timeout: float | None) -> None:
        if self._owner is not None:
            self._owner.stop()
        left_s = None if timeout is None else self._countdown(timeout)
        for producer in list(self._producers):
            try:
                producer.close(None if left_s is None else left_s())
            except (TimeoutError, ClosedError) as error:  # closed: who came as far as that before was interrupted
                if is_interruption(error):
                    raise
                _log.warning("closing the cluster with records that nobody acknowledged")
        for consumer in list(self._consumers):
            consumer.close()

    def _await_followers(self, timeout: float | None) -> None:
        """Wait until the followers know the final high watermarks, so that the copy of each shows all acknowledged
        records by itself."""
        patience = FINAL_FETCH_S if timeout is None else min(timeout, FINAL_FETCH_S)
        deadline = time.monotonic() + patience  # of the machine's clock: the caller's may stand still
        self._driver.wait_until(lambda: time.monotonic() >= deadline or self._followers_know(), patience)

    def _followers_know(self) -> bool:
        """Whether every in-sync follower that serves has its leader's high watermark. REQUIRES that no machine
        moves."""
        image = self._authority.authority.image
        serving = {node.node_id: node._node for node in self._nodes if node.state == "ready" and node._node is not None}
        for node_id, leader in serving.items():
            for key, hosted in leader.hosted.items():
                entry = image.partition(key)
                if entry is None or entry.leader != node_id:
                    continue
                end = hosted.log.high_watermark
                for follower in entry.isr:
                    copy = serving[follower].hosted.get(key) if follower in serving else None
                    if copy is not None and copy.log.high_watermark < end:
                        return False
        return True

    def _end(self) -> None:
        """End what is there, and release the folder. None of it is taken for done before it is, so it may be called
        again."""
        if self._is_released:
            return
        if self._owner is not None:
            self._owner.stop()
        self._driver.stop()
        self._driver.run_exclusively(self._end_nodes)
        if hasattr(self, "_authority"):
            self._authority.close()
        if self._lock is not None:
            self._lock.release()
        close_disk(self._controller_disk)
        forget(self)
        self._is_released = True

    def _end_nodes(self) -> None:
        for node in self._nodes:
            try:
                node._close()
            except PyreplogError as error:
                self._failure = error

    def _unclosed(self) -> str | None:
        """For the warning at exit. That a process which is there for its cluster ends with it is in order."""
        return None if self._own_process else repr(self)

    def _forked(self) -> None:
        """In the child of a fork: this object is the parent's."""
        self._closed = self._is_released = True
        self._refusal = ForkedError(
            f"the cluster {self._path!r} belongs to the parent process, of which this one is a fork: leave it to that"
            " one, or open another one here, in a folder of its own"
        )
        self._driver.forked(self._refusal)

    def _check(self) -> None:
        if self._refusal is not None:
            raise copy_for_raise(self._refusal)
        if self._closed:
            raise ClosedError(f"the cluster {self._path!r} is closed: open it again to use it")

    def __enter__(self) -> Cluster:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if getattr(self, "_lock", None) is None:  # its __init__ was left half-way
            return "<pyreplog.Cluster, not opened>"
        count = len(self._nodes)
        return (
            f"<pyreplog.Cluster {self._path!r}, {count}"
            f" node{'' if count == 1 else 's'}{', closed' if self._closed else ''}>"
        )


def _check_state(disk: Disk, path: str, folders: NodeFolders) -> None:
    """Refuse nodes beside which the state of their controller is missing, or that of another cluster lies: a new
    cluster is never begun over them."""
    state = load_state(disk, path)
    inside = [name for name in disk.list(path) if name.startswith("node-")]
    clusters = _clusters_of_nodes(disk, path, inside + (folders.outside() if state is None else []))
    if state is not None and set(clusters) <= {state.cluster_id}:
        check_not_older(disk, path, state, [*(f"{path}/{name}" for name in inside), *folders.outside()])
        return
    if not clusters:
        return
    nodes = " and ".join(f"{', '.join(names)} of cluster {cluster[:64]}" for cluster, names in clusters.items())
    what = "is missing" if state is None else f"is that of cluster {state.cluster_id}"
    raise CorruptError(
        f"the controller's state {STATE_FILE} {what}, and this folder holds {nodes}: put the nodes of one cluster and"
        f" its own {STATE_FILE} into {path}, from the backup or the folder that they were copied out of. The records"
        " are in the nodes' folders, each of which can be read as it is",
        file=f"{path}/{STATE_FILE}",
    )


def _clusters_of_nodes(disk: Disk, path: str, names: Iterable[str]) -> dict[str, list[str]]:
    """The nodes among the folders ``names``, in ``path`` or absolute, that say which cluster they are of, by the id
    of that cluster."""
    found: dict[str, list[str]] = {}
    for name in names:
        values = read_properties(disk, name if name.startswith("/") else f"{path}/{name}")
        if values is not None and values.get("cluster.id"):
            found.setdefault(values["cluster.id"], []).append(name)
    return found
