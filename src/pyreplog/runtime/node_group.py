"""NodeGroup: the nodes of a cluster in this process, started, observed and closed together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pyreplog.errors import (
    BrokerNotAvailableError,
    ClosedError,
    ConfigError,
    LockedError,
    PyreplogError,
    RequestTimedOutError,
)
from pyreplog.ports import Address
from pyreplog.runtime.cluster_node import ClusterNode
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.locking import LockWait
from pyreplog.runtime.node_folders import NodeFolders
from pyreplog.runtime.node_racks import settled_racks
from pyreplog.runtime.quorum_folders import quorum_lost
from pyreplog.runtime.quorum_host import QuorumHost
from pyreplog.runtime.recovery import Recovery

__all__ = ["NodeGroup"]

START_TIMEOUT_S: Final = 30.0

_log = logging.getLogger("pyreplog")


class NodeGroup:
    """All nodes of one cluster, in the order of their numbers."""

    def __init__(self, path: str, driver: Driver, controller: QuorumHost, folders: NodeFolders) -> None:
        """``path``: the cluster's folder."""
        self._path = path
        self._driver = driver
        self.controller = controller
        self._folders = folders
        self._racks: dict[int, str | None] = {}
        self._make: Callable[[int], ClusterNode] | None = None
        #: ``nodes[0]`` is node 1.
        self.nodes: list[ClusterNode] = []
        #: The last error of a node that :meth:`close` closed; None: there was none.
        self.failure: PyreplogError | None = None

    def count(self, *, is_asked: bool) -> int:
        """Return how many nodes the cluster has: as many as its folder or the controller knows, or
        more if the caller asked for more (``is_asked``). Store the list of their folders.

        Raises ConfigError if the caller asked for fewer.
        """
        controller, folders = self.controller, self._folders
        nodes = controller.known_nodes()
        known = max((number for number in nodes if number not in folders.removed), default=0)
        if is_asked and folders.count < known:
            raise folders.too_few(known)
        count = max(folders.count, known)
        folders.settle(count, nodes, controller.cluster_id)
        return count

    def settle_racks(self, count: int, asked: Sequence[str | None] | None) -> None:
        """Decide with which rack each of ``count`` nodes registers. Raises ConfigError for a wrong list."""
        brokers = self.controller.image.brokers
        numbers = [number for number in range(1, count + 1) if self.controller.role_of(number) != "controller"]
        known = {number: brokers[number].rack if number in brokers else None for number in numbers}
        self._racks = settled_racks(asked, known, count)

    def start(self, count: int, make: Callable[[int], ClusterNode], recovery: Recovery, wait: LockWait) -> None:
        """Start ``count`` nodes, made by ``make``, and return when each serves or has failed.

        Raises :class:`QuorumLostError` if no majority of the voters can start.
        """
        self._make = make
        for number in range(1, count + 1):
            node = make(number)
            node._rack = self._racks[number]
            self.nodes.append(node)
            if node.removed:
                continue
            # A killed process releases its locks one after another.
            self._attempt(node, partial(wait.call, partial(node._open, recovery)), recovery)
        opened = {node.node_id: found for node in self.nodes if (found := node._opened) is not None}
        self.controller.format(opened)
        for node in self.nodes:
            if node._opened is not None:
                self._attempt(node, node._run, recovery)
        self.controller.note_started([node.node_id for node in self.nodes])
        self._wait_until_settled()

    def _attempt(self, node: ClusterNode, act: Callable[[], None], recovery: Recovery) -> None:
        """Call ``act`` for ``node``. One damaged copy must not keep the others from serving."""
        try:
            act()
            if node.alive:
                self._folders.tell(node.node_id)
        except (LockedError, ConfigError):
            raise
        except PyreplogError as error:
            if error is recovery.failure:
                raise
            _log.error("node %d cannot start: %s", node.node_id, error)
            node._failure = error

    def of(self, node_id: int) -> ClusterNode:
        """Return the node with this number. Raises ConfigError for a missing one."""
        if not 1 <= node_id <= len(self.nodes):
            raise ConfigError(f"there is no node {node_id}: the nodes are 1 to {len(self.nodes)}")
        return self.nodes[node_id - 1]

    @property
    def brokers(self) -> list[ClusterNode]:
        """The nodes that hold partitions; the others only vote."""
        return [node for node in self.nodes if node._is_broker and not node.removed]

    def add(self, number: int, rack: str | None) -> ClusterNode:
        """Make a node that does not run yet: a new one behind the others, or one in the place of a node that left.
        REQUIRES that no machine runs."""
        assert self._make is not None, "the cluster has started"
        self._folders.add(number)
        if self._folders.has_list:
            self._folders.settle(self._folders.count, self.controller.known_nodes(), self.controller.cluster_id)
        node = self._make(number)
        node._rack = self._racks[number] = rack
        self.nodes[number - 1 : number] = [node]
        return node

    def put_away(self, number: int) -> None:
        """Give the folder of a node that left another name. REQUIRES that no machine runs and the node is down."""
        self._folders.put_away(number)

    def _wait_until_settled(self) -> None:
        brokers = self.brokers
        if not any(node.alive for node in brokers):
            raise brokers[0].failure or ClosedError("no node started")
        lack = self.controller.lack()
        if lack is not None:
            raise quorum_lost(self._path, lack)
        if not self._driver.wait_until(lambda: all(node._settled() for node in self.nodes), START_TIMEOUT_S):
            slow = ", ".join(str(node.node_id) for node in self.nodes if not node._settled())
            raise RequestTimedOutError(
                f"of the cluster {self._path!r} node {slow} does not serve after {START_TIMEOUT_S:g} s"
            )
        if not any(node.ready for node in brokers):
            raise brokers[0].failure or ClosedError("no node started")

    def addresses(self) -> list[Address]:
        """Return the addresses under which clients find the nodes."""
        return [f"node-{node.node_id}" for node in self.brokers]

    def close(self) -> None:
        """Close every node in order, and store the last error as ``failure``. A second call
        finishes an interrupted first. REQUIRES that no machine runs.
        """
        for node in self.nodes:
            try:
                node._close()
            except PyreplogError as error:
                self.failure = error

    # --------------------------------------------------------------------------------------- topics

    def await_topic(self, topic: str, partition_count: int, timeout: float | None, first: int = 0) -> None:
        """Wait until every serving node knows the topic and its leaders. None: as long as it makes
        progress.

        Only the partitions from ``first`` on are waited for. Raises TimeoutError with the share of
        them that the nodes serve.
        """
        done = wanted = 0
        refused: dict[int, PyreplogError] = {}

        def everywhere() -> bool:
            nonlocal done, wanted, refused
            # A node that is cut off considers itself ready, so the controller's word counts, too.
            # A controller that has just restarted considers no node alive yet.
            active = self.controller.active_nodes()
            ready = [node for node in self.brokers if node.ready and (node.node_id in active or not active)]
            refused = self._refusals(topic)
            done = sum(node._serves(topic, first)[0] for node in ready)
            wanted = len(ready) * (partition_count - first)
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
                    f" {done * 100 // max(wanted, 1)} % of its {partition_count - first}"
                    f"{' new' if first else ''} partitions; they go on in the"
                    f" background: wait, and do not make it again{why}{self._driver.obstacle()}"
                )

    def await_metadata(self, done: str, timeout: float | None) -> None:
        """Wait until every serving node has applied the controller's decisions up to now.

        Raises TimeoutError that says that ``done`` holds all the same.
        """
        offset = self._driver.run_exclusively(lambda: self.controller.image.offset)
        late: list[int] = []

        def everywhere() -> bool:
            nonlocal late
            active = self.controller.active_nodes()
            ready = [node for node in self.brokers if node.ready and (node.node_id in active or not active)]
            late = [node.node_id for node in ready if node._metadata_offset() < offset]
            return not late

        patience_s = START_TIMEOUT_S if timeout is None else timeout
        if not self._driver.wait_until(everywhere, patience_s):
            numbers = ", ".join(map(str, late))
            raise TimeoutError(
                f"{done}, but after {patience_s:g} s node {numbers} has not applied that; it goes on in the background:"
                f" wait, and do not repeat the call{self._driver.obstacle()}"
            )

    def refusals(self, topic: str) -> dict[int, PyreplogError]:
        """Return the errors of the disks on which no copy of some partition can be made, by node."""
        return self._driver.run_exclusively(lambda: self._refusals(topic))

    def _refusals(self, topic: str) -> dict[int, PyreplogError]:
        return {
            node.node_id: error for node in self.nodes if node.ready and (error := node._refused(topic)) is not None
        }

    def down_of(self, numbers: Sequence[int]) -> list[int]:
        """Return which of these nodes do not serve. REQUIRES that no machine runs."""
        up = {node.node_id for node in self.nodes if node.ready and node.failure is None}
        return [number for number in numbers if number not in up]

    def are_known(self) -> bool:
        """Return whether the controller knows which nodes are alive, or none is. REQUIRES that no
        machine runs.
        """
        return not any(node.alive for node in self.brokers) or self.controller.knows_active_nodes()

    def has_replaced(self, leader: int) -> bool:
        """Return whether a partition that has this leader needs no decision because it ended, or there is nobody to
        decide. REQUIRES that no machine runs.
        """
        ended = any(node.node_id == leader and not node.alive for node in self.nodes)
        return not ended or self.controller.lack() is not None

    def check_up(self) -> None:
        """Raise BrokerNotAvailableError if no node runs that could answer, ClosedError if the cluster is closed. Any
        thread."""
        if any(node.alive for node in self.nodes):
            return
        lack = self.controller.lack()
        if lack is not None:
            self._driver.check()  # the nodes of a closed cluster are down, too
            raise BrokerNotAvailableError(f"no node is up, and {lack}")

    # ------------------------------------------------------------------------------------- replicas

    def retain_producers(self, producer_ids: frozenset[int]) -> None:
        """Keep these producers' sequence numbers in every open log, however old they are."""

        def retain() -> None:
            for node in self.nodes:
                node._retain_producers(producer_ids)

        self._driver.run_exclusively(retain)

    def followers_know_ends(self) -> bool:
        """Return whether every serving in-sync follower has its leader's high watermark. REQUIRES
        that no machine runs.
        """
        image = self.controller.image
        serving = {node.node_id: node._node for node in self.nodes if node.state == "ready" and node._node is not None}
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
