"""ClusterNode: the public handle of one node of a cluster in this process. It can kill and restart the node."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Container, Iterator
from random import Random, SystemRandom
from typing import Final, Literal, NoReturn, SupportsIndex, TypeVar, overload

from pyreplog.config import NodeConfig, check_seconds, whole
from pyreplog.controller import QuorumServer
from pyreplog.errors import ClosedError, ConfigError, PyreplogError, RequestTimedOutError, StorageError
from pyreplog.log import LOG_SUFFIX, Log, LogRoot, RecoveryListener, RecoveryOptions
from pyreplog.node import Node, NodeTraffic
from pyreplog.ports import RESOURCES_EXHAUSTED_ERRNOS, Address, Clock, Disk, Transport
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.folder_opening import check_name
from pyreplog.runtime.node_disks import close_disk
from pyreplog.runtime.node_folders import NodeFolders
from pyreplog.runtime.node_roles import NodeRole
from pyreplog.runtime.periodic_retry import PeriodicRetry
from pyreplog.runtime.quorum_host import QuorumHost
from pyreplog.runtime.recovery import Recovery, tell_torn
from pyreplog.system import is_interruption
from pyreplog.values import TopicPartition

__all__ = ["ClusterNode", "Nodes"]

_LACKS: Final = RESOURCES_EXHAUSTED_ERRNOS | {errno.ENOSPC, errno.EDQUOT}
"""The errors of a start that may succeed later without any help."""

_log = logging.getLogger("pyreplog")
T = TypeVar("T")

_node_log = logging.getLogger("pyreplog.node")


class ClusterNode:
    """One node of a cluster in this process.

    ``kill`` ends it as if its process died: it flushes nothing and answers no request. ``stop`` moves its leaderships
    away, then closes it. ``restart`` starts it from its folder.
    """

    def __init__(
        self,
        node_id: int,
        *,
        folders: NodeFolders,
        controller: QuorumHost,
        driver: Driver,
        make_disk: Callable[[str], Disk],
        clock: Clock,
        config: NodeConfig,
        trusted: Container[Address],
    ) -> None:
        """Called by the cluster only. ``trusted``: addresses of clients whose batches need no validation."""
        self._node_id = node_id
        self._folders = folders
        self._controller = controller
        #: Whether it holds partitions. If not, it runs a quorum server and no :class:`Node`.
        self._is_broker = controller.role_of(node_id) != "controller"
        self._path = folders.of(node_id)
        self._driver = driver
        self._make_disk = make_disk
        self._clock = clock
        self._config = config
        self._trusted = trusted
        #: The rack with which it registers, if that is not the one of its last registration.
        self._rack: str | None = None
        self._node: Node | None = None
        self._server: QuorumServer | None = None
        self._driven: DrivenMachine | None = None
        self._server_driven: DrivenMachine | None = None
        self._root: LogRoot | None = None
        self._disk: Disk | None = None
        self._failure: Exception | None = None
        self._earlier_traffic = NodeTraffic()
        """The counters of the node's earlier incarnations."""
        self._paused = False
        self._retry: DrivenMachine | None = None
        """Tries to start the node again, while that lacks room or a descriptor."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a ClusterNode cannot be copied or pickled: it belongs to its cluster, in this process")

    # ---------------------------------------------------------------------------------------- facts

    @property
    def node_id(self) -> int:
        """The node's number, from 1."""
        return self._node_id

    @property
    def path(self) -> str:
        """The node's folder, a Kafka log root."""
        return self._path

    @property
    def role(self) -> NodeRole:
        """What the node does: ``"broker"`` (it holds partitions), ``"controller"`` (it only votes for the controller
        and may be it) or ``"broker,controller"``."""
        return self._controller.role_of(self._node_id)

    @property
    def removed(self) -> bool:
        """Whether the node left the cluster. Its number is free: ``admin.add_nodes`` gives it to a new, empty node."""
        return self._node_id in self._folders.removed

    @property
    def alive(self) -> bool:
        """Whether the node runs."""
        return (self._node if self._is_broker else self._server) is not None

    @property
    def failure(self) -> Exception | None:
        """The error of its disk or its files because of which the node does not run or does not serve; None if there
        was none."""
        if not self._is_broker:
            return self._failure if self._server is None else self._server.failure
        node, server = self._node, self._server
        if node is None:
            return self._failure
        # Without its server a node reaches no controller.
        return node.offline or node.failure or (None if server is None else server.failure)

    @property
    def ready(self) -> bool:
        """Whether the node is registered and not fenced, as far as it knows. A node that is cut off does not know yet
        that it was fenced. A node that only votes is ready while it knows the active controller."""
        if not self._is_broker:
            server = self._server
            return server is not None and server.failure is None and server.leader_id is not None
        node = self._node
        return node is not None and not node.fenced and node.broker_epoch >= 0

    @property
    def state(self) -> Literal["down", "offline", "paused", "fenced", "starting", "ready", "removed"]:
        """The node's state: ``"removed"`` (it left the cluster), ``"down"`` (killed, stopped, or it could not start),
        ``"offline"`` (its disk failed), ``"paused"``, ``"fenced"`` (its heartbeats were late, so the controller does
        not let it serve), ``"starting"`` or ``"ready"``."""
        node = self._node
        if self.removed:
            return "removed"
        if not self.alive:
            return "down"
        if self.failure is not None:
            return "offline"
        if self._paused:
            return "paused"
        if node is not None and node.served and (node.fenced or self._controller.is_fenced(self._node_id)):
            return "fenced"
        return "ready" if self.ready else "starting"

    @property
    def losses(self) -> list[tuple[TopicPartition, int, int]]:
        """Records that readers may have seen and that this node's copies lost by unclean elections since it started:
        the partition, the first lost offset, and the offset behind the last."""
        node = self._node
        return [] if node is None else [(name, loss.start, loss.end) for name, loss in list(node.losses)]

    def leads(self, topic: str, partition: int | None = None) -> bool:
        """Return whether the node leads ``partition`` of ``topic`` (None: any partition of it)."""
        check_name(topic)
        partition = None if partition is None else whole("partition", partition)
        return self._driver.run_exclusively(lambda: self._leads(topic, partition))

    def _leads(self, topic: str, partition: int | None) -> bool:
        node = self._node
        if node is None:
            return False
        image = node.image
        found = image.topic(topic)
        if found is None:
            return False
        return any(
            entry.leader == self._node_id for number, entry in found.partitions.items() if partition in (None, number)
        )

    def _traffic(self) -> NodeTraffic:
        """Return the counters since the cluster was opened. REQUIRES that no machine runs."""
        found = NodeTraffic()
        found.add(self._earlier_traffic)
        if self._node is not None:
            found.add(self._node.traffic)
        return found

    def _metadata_offset(self) -> int:
        """Return the offset of the last decision of the controller that the node applied. REQUIRES that no machine
        runs."""
        return -1 if self._node is None else self._node.image.offset

    def _serves(self, topic: str, first: int = 0) -> tuple[int, int]:
        """Return (number of partitions of ``topic`` that the node serves, number that its metadata holds), each from
        the partition ``first`` on.

        It serves a partition if it knows a leader and, if it is a replica, has its copy. REQUIRES that no machine runs.
        """
        node = self._node
        image = None if node is None else node.image
        found = None if image is None else image.topic(topic)
        if node is None or found is None:
            return 0, 0
        return sum(
            entry.leader >= 0
            and (self._node_id not in entry.replicas or node.find(TopicPartition(topic, number)) is not None)
            for number, entry in found.partitions.items()
            if number >= first
        ), len(found.partitions) - first

    def _end_of(self, topic_partition: TopicPartition) -> int:
        """Return the end offset of the node's copy of a partition; 0 if it has none. REQUIRES that no machine runs."""
        hosted = None if self._node is None else self._node.find(topic_partition)
        return 0 if hosted is None else hosted.replica.log.end_offset

    def _sizes(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield each partition of which the node has a copy, with the bytes of its segments. REQUIRES that no machine
        runs."""
        if self._node is None or self._disk is None:
            return
        for hosted in self._node.hosted.values():
            log, name = hosted.log, hosted.topic_partition
            if isinstance(log, Log):
                yield name, log.stats().size
            else:
                folder = f"{self._path}/{name}"
                stats = [
                    self._disk.stat(f"{folder}/{one}") for one in self._disk.list(folder) if one.endswith(LOG_SUFFIX)
                ]
                yield name, sum(one.size for one in stats if one is not None)

    def _refused(self, topic: str) -> PyreplogError | None:
        """Return the error with which the node's disk refused to make a copy of some partition of ``topic``; None if it
        refused none. REQUIRES that no machine runs."""
        node = self._node
        image = None if node is None else node.image
        topic_id = "" if image is None else image.topic_ids.get(topic, "")
        return (
            None if node is None else next((error for key, error in node.refused.items() if key[0] == topic_id), None)
        )

    def __repr__(self) -> str:
        return f"<pyreplog.ClusterNode {self._node_id} at {self._path!r}, {self.state}>"

    # ----------------------------------------------------------------------------------------- life

    def _start(self) -> None:
        """Open the folder and start the node. REQUIRES that no machine runs. Raises the errors of the disk, the lock
        and damaged files."""
        with Recovery(f"node {self._node_id} at {self._path!r}", self._clock) as recovery:
            self._open(recovery)
        self._run()

    def _start_anew(self, *, cleared: bool) -> None:
        """Start the node in place of an earlier one whose folder, or whose metadata (``cleared``), is lost; kill it
        before, if it runs. REQUIRES that no machine runs."""
        self._kill_and_tell()
        with Recovery(f"node {self._node_id} at {self._path!r}", self._clock) as recovery:
            self._open(recovery, is_new=not cleared)
        if cleared and self._disk is not None and self._root is not None:
            try:
                self._controller.clear(self._disk, self._root)
            except BaseException:
                self._kill()
                raise
        self._run()

    @property
    def _opened(self) -> tuple[Disk, LogRoot] | None:
        """The node's disk and its open root; None if it is not open."""
        return None if self._root is None or self._disk is None else (self._disk, self._root)

    def _open(self, listener: RecoveryListener, *, is_new: bool = False) -> None:
        """Open the folder. ``listener`` gets the progress of a recovery. ``is_new``: the folder takes the place of the
        one that the controller knows."""
        assert self._root is None, "a running node is not started again"
        controller = self._controller
        known = None if is_new else controller.directories_of(self._node_id)
        self._folders.check(self._node_id, known, controller.cluster_id)
        disk = self._make_disk(f"node-{self._node_id}")
        try:
            root = LogRoot.open(
                disk,
                self._path,
                clock=self._clock,
                random=Random(SystemRandom().getrandbits(64)),
                node_id=self._node_id,
                cluster_id=controller.cluster_id,
                lazy=True,
                recovery=RecoveryOptions(listener),
            )
        except BaseException:
            close_disk(disk)
            raise
        self._disk, self._root = disk, root
        tell_torn(root, f"node {self._node_id}")
        for partition, error in root.damaged.items():
            _log.error("node %d: %s is damaged and not served: %s", self._node_id, partition, error)

    def _run(self) -> None:
        """Start the quorum server and the node of the open folder; close the folder if that fails."""
        disk, root = self._disk, self._root
        assert disk is not None
        assert root is not None
        self._cancel_retry()
        network = self._driver.network
        transports = network.endpoint(), network.endpoint()
        try:
            self._server = self._controller.open_server(self._node_id, disk, root, transports[0])
            node = self._make_node(root, disk, transports[1]) if self._is_broker else None
            self._failure = None
            if self._server is not None:
                self._server_driven = self._driver.add(self._server, transports[0], self._interrupted, shared=False)
                damage = self._controller.damage_of(self._node_id)
                if damage is not None:
                    _log.error(
                        "node %d does not vote, because its metadata is damaged: %s. admin.replace_node(%d) lets it"
                        " copy the metadata from the others and vote again",
                        self._node_id,
                        damage,
                        self._node_id,
                    )
            if node is not None:
                self._driven = self._driver.add(node, transports[1], self._interrupted, shared=False)
            self._node = node
        except BaseException:
            self._drop_machines()
            for transport in transports:
                transport.close()
            root.close(clean=False)
            self._forget()
            raise

    def _make_node(self, root: LogRoot, disk: Disk, transport: Transport) -> Node:
        node = Node(
            root,
            disk,
            transport,
            self._clock,
            self._config,
            self._controller.address_for(self._node_id),
            Random(SystemRandom().getrandbits(64)),
            trusted=self._trusted,
        )
        node.rack = self._rack
        return node

    @property
    def _machines(self) -> list[DrivenMachine]:
        """The quorum server and the node, while they run."""
        return [driven for driven in (self._server_driven, self._driven) if driven is not None]

    def _drop_machines(self) -> None:
        for driven in self._machines:
            self._driver.remove(driven)

    def kill(self) -> None:
        """End the node as if its process died, and its vote with it. The other voters notice it at once, as they do
        when a connection breaks. A node that is down stays down."""
        self._driver.run_exclusively(self._kill_and_tell)

    def _kill_and_tell(self) -> None:
        self._cancel_retry()
        if self.alive:
            _node_log.info("node %d is killed", self._node_id)
            self._kill()

    def stop(self, timeout: float | None = 10.0) -> None:
        """Shut the node down in order: the controller moves its leaderships away (``timeout`` seconds at most), then
        the node closes as with ``close`` of the cluster. Producers notice only a pause. A node that is down stays down.
        One that only votes hands over to another voter.

        Raises the errors of its disk; the node ends all the same. It also ends if Ctrl-C interrupts the wait.
        """
        patience = check_seconds("timeout", timeout)
        begun: list[Node] = []
        try:
            self._driver.run_exclusively(lambda: self._begin_stop(begun))
            if not begun:
                return
            node = begun[0]
            for driven in self._machines:
                self._driver.mark_ready(driven)
            # Without a controller nobody could move its leaderships away.
            if not self._driver.wait_until(lambda: self._may_end(node), patience) or not node.may_stop:
                _log.warning("node %d ends although it still leads partitions", self._node_id)
        finally:
            if begun:
                self._driver.run_exclusively(lambda: self._end_stopped(begun[0]))

    def _may_end(self, node: Node) -> bool:
        return node.may_stop or self._node is not node or self._controller.lack() is not None

    def _begin_stop(self, begun: list[Node]) -> None:
        """Begin the shutdown of the node, if it runs, and add the node to ``begun``."""
        self._driver.check()
        self._cancel_retry()
        if self._node is not None:
            begun.append(self._node)
            self._node.begin_shutdown()
        elif self.alive:
            self._drop_machines()
            self._close()

    def _end_stopped(self, node: Node) -> None:
        """Close the node at the end of a shutdown. Without this it would stay in shutdown for ever."""
        if self._node is node:
            self._drop_machines()
            self._close()

    def pause(self) -> None:
        """Stop the node until :meth:`resume`, like a process that was stopped: it answers no request, and the
        controller soon fences it. A node that is down or paused already stays so."""

        def pause() -> None:
            if self._machines and not self._paused:
                self._paused = True
                for driven in self._machines:
                    self._driver.pause(driven)
                self._controller.note_paused(self._node_id, is_paused=True)

        self._driver.run_exclusively(pause)

    def resume(self) -> None:
        """Undo :meth:`pause`: the node goes on with its next step. If it is not paused, nothing happens."""

        def resume() -> None:
            if self._paused:
                for driven in self._machines:
                    self._driver.resume(driven)
                self._controller.note_paused(self._node_id, is_paused=False)
            self._paused = False

        self._driver.run_exclusively(resume)

    def restart(self, timeout: float | None = 30.0) -> None:
        """Kill the node if it runs, start it from its folder, and return when it serves again (it may still be catching
        up). Raise RequestTimedOutError after ``timeout`` seconds; the node goes on starting.

        While a majority of the voters is down, no node serves: it returns when this node's vote is there."""
        patience = check_seconds("timeout", timeout)

        def begin() -> None:
            self._driver.check()
            if self.removed:
                raise ConfigError(
                    f"node {self._node_id} left the cluster: admin.add_nodes([{self._node_id}]) gives its number to a"
                    " new, empty node"
                )
            self._kill_and_tell()
            self._start()

        self._driver.run_exclusively(begin)
        if not self._driver.wait_until(self._settled, patience):
            raise RequestTimedOutError(
                f"node {self._node_id} does not serve after {patience:g} s; it goes on starting: `ready` says when it"
                " does"
            )
        if self.failure is not None:
            raise self.failure
        if not self.alive:
            raise ClosedError(f"node {self._node_id} did not start")

    def _retain_producers(self, producer_ids: frozenset[int]) -> None:
        """Keep these producers' sequence numbers in every open log. REQUIRES the driver."""
        for log in () if self._node is None else self._node.root.logs.opened():
            log.producers.pinned_ids = producer_ids

    def _settled(self) -> bool:
        """Return whether the node serves, has failed, or waits for other voters to start."""
        return (
            self.removed
            or self.ready
            or self.failure is not None
            or (self.alive and self._controller.lack() is not None)
        )

    def _kill(self) -> None:
        self._paused = False
        self._cancel_retry()
        self._drop_machines()
        self._end(None if self._node is None else self._node.kill, is_kill=True)

    def _end(self, end: Callable[[], None] | None, *, is_kill: bool = False) -> None:
        """End the quorum server and call ``end`` (None: close the folder), then forget the node. If a signal
        handler interrupts this, the next call repeats all of it."""
        try:
            if self._server is not None:
                if is_kill:
                    self._server.kill()
                else:
                    self._server.close()
            if end is not None:
                end()
            elif self._root is not None:
                self._root.close(clean=not is_kill)
        except Exception as error:
            if not is_interruption(error):
                self._forget()
            raise
        self._forget()

    def _forget(self) -> None:
        self._controller.forget_server(self._node_id)
        self._earlier_traffic = self._traffic()
        if self._disk is not None:
            close_disk(self._disk)
        self._disk = self._root = None
        self._driven = self._server_driven = None
        self._node = self._server = None
        self._paused = False

    def _interrupted(self, error: Exception | None) -> None:
        """Kill the node, whose turn a signal handler interrupted (``error`` None) or a bug or its disk ended.

        Its state in memory is unusable then, its files are not. After an interruption the node starts again from them.
        Called by the driving thread.
        """
        self._kill()
        self._failure = error
        if error is None:
            try:
                self._start()
            except PyreplogError as failure:
                _log.exception("node %d cannot start again", self._node_id)
                self._failure = failure
                if isinstance(failure, StorageError) and failure.errno in _LACKS:
                    self._start_later()

    def _start_later(self) -> None:
        """Start the node as soon as there is room, or a free descriptor: nothing is wrong with its files."""

        def act() -> bool:
            try:
                self._start()
            except PyreplogError as failure:
                self._failure = failure
                return not (isinstance(failure, StorageError) and failure.errno in _LACKS)
            _log.warning("node %d goes on", self._node_id)
            return True

        retry = PeriodicRetry(self._clock, act)
        self._retry = self._driver.add(retry, self._driver.network.endpoint(), self._interrupted, shared=False)

    def _cancel_retry(self) -> None:
        retry, self._retry = self._retry, None
        if retry is not None:
            self._driver.remove(retry)
            retry.transport.close()

    def _close(self) -> None:
        """Close the node; kill it if its last turn was interrupted. REQUIRES that no thread drives.

        Raises the errors of the disk; the node is closed all the same. A second call is harmless, and completes an
        interrupted one.
        """
        self._cancel_retry()
        if any(driven.busy for driven in self._machines):
            self._kill()
        self._end(None if self._node is None else self._node.close)


class Nodes(tuple[T, ...]):
    """A tuple of nodes whose IndexError says which nodes there are, because nodes count from 1."""

    __slots__ = ()

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> T: ...
    @overload
    def __getitem__(self, place: slice, /) -> tuple[T, ...]: ...
    def __getitem__(self, place: SupportsIndex | slice, /) -> T | tuple[T, ...]:
        try:
            return super().__getitem__(place)
        except IndexError:
            last = len(self)
            raise IndexError(
                f"there is no nodes[{place}]: nodes[0] to nodes[{last - 1}] are the nodes 1 to {last}"
            ) from None
