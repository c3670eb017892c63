"""ClusterNode: one node of a cluster in this process, as a user sees it: it can be killed, and started again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from random import Random, SystemRandom
from typing import Literal, NoReturn, SupportsIndex, TypeVar, overload

from pyreplog.config import NodeConfig, check_seconds, whole
from pyreplog.controller import CONTROLLER_ADDRESS
from pyreplog.errors import ClosedError, PyreplogError, RequestTimedOutError
from pyreplog.log import LogRoot, RecoveryListener, RecoveryOptions
from pyreplog.node import Node
from pyreplog.ports import Address, Clock, Disk
from pyreplog.runtime.controller_host import ControllerHost
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.node_folders import NodeFolders
from pyreplog.runtime.opening import check_name
from pyreplog.runtime.recovery import Recovery, tell_torn
from pyreplog.system import is_interruption
from pyreplog.values import TopicPartition

__all__ = ["ClusterNode", "Nodes", "close_disk"]

_log = logging.getLogger("pyreplog")
T = TypeVar("T")

_node_log = logging.getLogger("pyreplog.node")


class ClusterNode:
    """One node. ``kill`` is as a process dies: nothing is flushed, nobody is answered; ``stop`` ends it in order,
    when others lead in its place; ``restart`` starts it from its folder."""

    def __init__(
        self,
        node_id: int,
        *,
        folders: NodeFolders,
        controller: ControllerHost,
        driver: Driver,
        make_disk: Callable[[str], Disk],
        clock: Clock,
        config: NodeConfig,
        trusted: Container[Address],
    ) -> None:
        """Made by the cluster. ``trusted``: addresses of clients whose batches need no validation."""
        self._node_id = node_id
        self._folders = folders
        self._controller = controller
        self._path = folders.of(node_id)
        self._driver = driver
        self._make_disk = make_disk
        self._clock = clock
        self._config = config
        self._trusted = trusted
        self._node: Node | None = None
        self._seat: DrivenMachine | None = None
        self._disk: Disk | None = None
        self._failure: Exception | None = None
        self._paused = False

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a ClusterNode cannot be copied or pickled: it belongs to its cluster, in this process")

    # ---------------------------------------------------------------------------------------- facts

    @property
    def node_id(self) -> int:
        """Its number, from 1."""
        return self._node_id

    @property
    def path(self) -> str:
        """Its folder, a Kafka log root."""
        return self._path

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._node is not None

    @property
    def failure(self) -> Exception | None:
        """Why it does not run, or does not serve, where nobody killed it: what its disk said."""
        node = self._node
        return self._failure if node is None else (node.offline or node.failure)

    @property
    def ready(self) -> bool:
        """Whether the controller lets it serve, as far as it has heard: one that is cut off has heard nothing else
        yet."""
        node = self._node
        return node is not None and not node.fenced and node.broker_epoch >= 0

    @property
    def state(self) -> Literal["down", "offline", "paused", "fenced", "starting", "ready"]:
        """How it is: ``"down"`` (killed, stopped, or it could not start), ``"offline"`` (its disk failed),
        ``"paused"``, ``"fenced"`` (the controller has not heard from it in time, and lets it serve no more),
        ``"starting"`` or ``"ready"``."""
        node = self._node
        if node is None:
            return "down"
        if node.offline is not None or node.failure is not None:
            return "offline"
        if self._paused:
            return "paused"
        if node.served and (node.fenced or self._controller.is_fenced(self._node_id)):
            return "fenced"
        return "ready" if self.ready else "starting"

    @property
    def losses(self) -> list[tuple[TopicPartition, int, int]]:
        """What unclean elections that somebody asked for cost this node's copies since it started, of what readers
        may have seen: the partition, the first offset that is gone, and the one behind the last."""
        node = self._node
        return [] if node is None else [(name, loss.start, loss.end) for name, loss in list(node.losses)]

    def leads(self, topic: str, partition: int | None = None) -> bool:
        """Whether it leads that partition of ``topic`` (None: any)."""
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

    def _serves(self, topic: str) -> tuple[int, int]:
        """Of how many partitions of ``topic``, of those that it has heard of, it has its copy, if any, and knows a
        leader; and how many those are. REQUIRES that no machine moves."""
        node = self._node
        image = None if node is None else node.image
        found = None if image is None else image.topic(topic)
        if node is None or found is None:
            return 0, 0
        return sum(
            entry.leader >= 0
            and (self._node_id not in entry.replicas or node.find(TopicPartition(topic, number)) is not None)
            for number, entry in found.partitions.items()
        ), len(found.partitions)

    def _refused(self, topic: str) -> PyreplogError | None:
        """Why it has no copy of some partition of ``topic``, where its disk does not let it make one. REQUIRES that
        no machine moves."""
        node = self._node
        image = None if node is None else node.image
        topic_id = "" if image is None else image.topic_ids.get(topic, "")
        return (
            None if node is None else next((error for key, error in node.refused.items() if key[0] == topic_id), None)
        )

    def __repr__(self) -> str:
        return f"<pyreplog.ClusterNode {self._node_id} at {self._path!r}, {self.state}>"

    # ----------------------------------------------------------------------------------------- life

    def _start(self, listener: RecoveryListener | None = None) -> None:
        """Open the folder and take part; ``listener`` is told how far a recovery is. REQUIRES that no machine
        moves. Raises what the disk, the lock or damaged files say."""
        assert self._node is None, "started once at a time"
        if listener is None:
            with Recovery(f"node {self._node_id} at {self._path!r}", self._clock) as recovery:
                self._start(recovery)
            return
        controller = self._controller
        self._folders.check(self._node_id, controller.image.brokers.get(self._node_id), controller.cluster_id)
        transport = self._driver.network.endpoint()
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
        try:
            tell_torn(root, f"node {self._node_id}")
            for partition, error in root.damaged.items():
                _log.error("node %d: %s is damaged and not served: %s", self._node_id, partition, error)
            node = Node(
                root,
                disk,
                transport,
                self._clock,
                self._config,
                CONTROLLER_ADDRESS,
                Random(SystemRandom().getrandbits(64)),
                trusted=self._trusted,
            )
            self._disk = disk
            self._failure = None
            self._seat = self._driver.add(node, transport, self._interrupted, shared=False)
            self._node = node
        except BaseException:
            if self._seat is not None:
                self._driver.remove(self._seat)
                self._seat = None
            transport.close()
            root.close(clean=False)
            self._disk = None
            close_disk(disk)
            raise

    def kill(self) -> None:
        """End it as a process dies. The controller hears of it at once, as of a broken connection. Dead already is
        fine."""
        self._driver.run_exclusively(self._kill_and_fence)

    def _kill_and_fence(self) -> None:
        if self._node is not None:
            _node_log.info("node %d is killed", self._node_id)
            self._kill()
            self._controller.fence(self._node_id)

    def stop(self, timeout: float | None = 10.0) -> None:
        """A controlled shutdown: the controller moves its leaderships away (``timeout`` seconds at most), then it
        ends as with ``close`` of the cluster. Producers notice nothing but a pause. One that is down is fine.
        Raises what the disk says, ended all the same; it ends too where Ctrl-C cuts the waiting short."""
        patience = check_seconds("timeout", timeout)
        begun: list[tuple[Node, DrivenMachine]] = []
        try:
            self._driver.run_exclusively(lambda: self._begin_stop(begun))
            if not begun:
                return
            node, seat = begun[0]
            self._driver.mark_ready(seat)
            if not self._driver.wait_until(lambda: node.may_stop or self._node is not node, patience):
                _log.warning("node %d ends although it could not give everything away", self._node_id)
        finally:
            if begun:
                self._driver.run_exclusively(lambda: self._end_stopped(begun[0][0]))

    def _begin_stop(self, begun: list[tuple[Node, DrivenMachine]]) -> None:
        """Begin, and add what there is to end to ``begun``."""
        self._driver.check()
        if self._node is not None and self._seat is not None:
            begun.append((self._node, self._seat))
            self._node.begin_shutdown()

    def _end_stopped(self, node: Node) -> None:
        """What a controlled shutdown ends with: begun, it would stay as it is for ever."""
        if self._node is not node:
            return
        if self._seat is not None:
            self._driver.remove(self._seat)
        try:
            self._close()
        finally:
            self._controller.fence(self._node_id)

    def pause(self) -> None:
        """Give it no turn until :meth:`resume`, as a process that was stopped: it answers nothing, and the
        controller soon takes it for dead. Dead or paused already is fine."""

        def pause() -> None:
            if self._seat is not None and not self._paused:
                self._paused = True
                self._driver.pause(self._seat)

        self._driver.run_exclusively(pause)

    def resume(self) -> None:
        """Undo :meth:`pause`: it goes on where it was. Not paused is fine."""

        def resume() -> None:
            if self._seat is not None and self._paused:
                self._driver.resume(self._seat)
            self._paused = False

        self._driver.run_exclusively(resume)

    def restart(self, timeout: float | None = 30.0) -> None:
        """Kill it if it runs, start it from its folder, and return when it serves again (it may still be catching
        up). RequestTimedOutError after ``timeout`` seconds: it goes on starting."""
        patience = check_seconds("timeout", timeout)

        def begin() -> None:
            self._driver.check()
            self._kill_and_fence()
            self._start()

        self._driver.run_exclusively(begin)
        if not self._driver.wait_until(self._settled, patience):
            raise RequestTimedOutError(
                f"node {self._node_id} does not serve after {patience:g} s; it goes on starting: `ready` says when it"
                " does"
            )
        if not self.ready:
            raise self.failure or ClosedError(f"node {self._node_id} did not start")

    def _retain_producers(self, producer_ids: frozenset[int]) -> None:
        """Keep these producers' sequence numbers in every open log. REQUIRES the driver."""
        for log in () if self._node is None else self._node.root.logs.opened():
            log.producers.kept = producer_ids

    def _settled(self) -> bool:
        """Whether it serves, or never will."""
        return self.ready or self.failure is not None

    def _kill(self) -> None:
        self._paused = False
        if self._seat is not None:
            self._driver.remove(self._seat)
        self._end(None if self._node is None else self._node.kill)

    def _end(self, end: Callable[[], None] | None) -> None:
        """``end`` the node, and only then forget it: where a signal handler cuts this short, whoever comes next
        does all of it again."""
        try:
            if end is not None:
                end()
        except Exception as error:
            if not is_interruption(error):
                self._forget()
            raise
        self._forget()

    def _forget(self) -> None:
        if self._disk is not None:
            close_disk(self._disk)
            self._disk = None
        self._seat = None
        self._node = None
        self._paused = False

    def _interrupted(self, error: Exception | None) -> None:
        """Its turn was cut short, by a signal handler (None) or a bug: what it holds in memory is worth nothing,
        its files are. Called by whoever drives."""
        self._kill()
        self._failure = error
        self._controller.fence(self._node_id)
        if error is None:
            try:
                self._start()
            except PyreplogError as failure:
                _log.exception("node %d cannot start again", self._node_id)
                self._failure = failure

    def _close(self) -> None:
        """End it in order; one that was cut short half-way, as a kill does. REQUIRES that nobody drives. Raises
        what the disk says, closed all the same. Again is harmless, and finishes what was cut short."""
        if self._seat is not None and self._seat.busy:
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


def close_disk(disk: Disk) -> None:
    """Release what ``disk`` holds, where it is one that holds anything: tests bring their own."""
    close = getattr(disk, "close", None)
    if close is not None:
        close()
