"""ControllerHost: runs the controller of a cluster in this process, and starts it again after a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random, SystemRandom
from typing import Final, NamedTuple

from pyreplog.config import INT32_MAX, NodeConfig, batch_max, producer_batch_max
from pyreplog.controller import CONTROLLER_ADDRESS, ControllerServer, LocalController, MetadataImage
from pyreplog.errors import PyreplogError
from pyreplog.ports import Address, Clock, Disk
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.values import TopicPartition
from pyreplog.wire import NO_LEADER

__all__ = ["ControllerHost", "Leaderless", "PeriodicRetry"]

RETRY_NS: Final = 500_000_000

_log = logging.getLogger("pyreplog")


class Leaderless(NamedTuple):
    """A partition without a leader: the nodes that may lead it, and all nodes that have a copy."""

    eligible: Sequence[int]
    replicas: Sequence[int]


class ControllerHost:
    """The controller of one cluster.

    The controller's file holds all its decisions. If its turn is interrupted or its disk fails, a new controller
    replaces it and starts from the file.
    """

    def __init__(self, disk: Disk, path: str, config: NodeConfig, clock: Clock, driver: Driver) -> None:
        """Prepare to run the controller whose file lies in ``path``; :meth:`start` starts it."""
        self._disk = disk
        self._path = path
        self._config = config
        self._clock = clock
        self._driver = driver
        self._random = Random(SystemRandom().getrandbits(64))
        self._server: ControllerServer | None = None
        self._driven: DrivenMachine | None = None
        self._restarted_ns: int | None = None
        """The time of the last restart; None: there was none."""
        #: False while the controller cannot start again, because its disk has no room or no
        #: descriptor is free.
        self.is_running = True

    @property
    def _controller(self) -> LocalController:
        assert self._server is not None, "started"
        return self._server.authority

    @property
    def image(self) -> MetadataImage:
        """The metadata of the cluster."""
        return self._controller.image

    def address_for(self, node_id: int) -> Address:
        """Return the address of the controller that node ``node_id`` talks to."""
        return CONTROLLER_ADDRESS

    def addresses(self) -> list[Address]:
        """Return the addresses of all controllers, for clients."""
        return [CONTROLLER_ADDRESS]

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._controller.cluster_id

    # ----------------------------------------------------------------------------------------- life

    def start(self) -> None:
        """Start the controller from its file, or as that of a new cluster."""
        self._start(None)

    def close(self) -> None:
        """Stop the controller, if it was started. A second call is harmless."""
        if self._server is not None:
            self._server.close()

    def _start(self, after: LocalController | None) -> None:
        """Start a controller whose file must hold all decisions of ``after``. If a signal handler
        interrupts this, nothing of the new controller is left.
        """
        now_ns = self._clock.monotonic_ns()
        controller = LocalController.open(
            self._disk, self._path, self._config, self._random, now_ns=now_ns, after=after
        )
        transport = self._driver.network.endpoint()
        driven: DrivenMachine | None = None
        try:
            server = ControllerServer(controller, transport, self._clock)
            driven = self._driver.add(server, transport, self._interrupted, shared=False)
            self._server, self._driven = server, driven
        except BaseException:
            if driven is not None:
                self._driver.remove(driven)
            transport.close()
            raise

    def _interrupted(self, error: Exception | None) -> None:
        """Restart the controller, whose turn was interrupted (``error`` None) or failed. Retry it
        while no room or no descriptor is free. REQUIRES that no machine runs.
        """
        assert self._server is not None
        assert self._driven is not None
        self._driver.remove(self._driven)
        self._server.close()
        if self._restart():
            return
        transport = self._driver.network.endpoint()

        def restart() -> bool:
            done = self._restart()
            if done:
                _log.warning("the controller goes on")
                self._driver.remove(driven)
            return done

        driven = self._driver.add(PeriodicRetry(self._clock, restart), transport, self._interrupted, shared=False)

    def _restart(self) -> bool:
        """Return whether the controller runs again."""
        try:
            self._start(self._controller)
        except PyreplogError as error:
            if self.is_running:
                _log.exception(
                    "the controller cannot go on; no topic can be made and no leader elected until it can: %s", error
                )
            self.is_running = False
            return False
        self.is_running = True
        self._restarted_ns = self._clock.monotonic_ns()
        return True

    # ---------------------------------------------------------------------------------------- nodes

    def fence(self, node_id: int) -> None:
        """Tell the controller that a node died. REQUIRES that no other machine runs."""
        server, driven = self._server, self._driven
        assert server is not None
        assert driven is not None
        if not self.is_running or driven.busy:
            return  # a controller that starts considers no node alive
        # This is a turn of the controller: if a signal handler interrupts it, the driver finds the
        # machine busy and restarts it from its file.
        driven.busy = True
        try:
            server.fence(node_id, f"node-{node_id}")
        except PyreplogError as error:
            _log.error("the controller cannot take note of the end of node %d: %s", node_id, error)
        driven.busy = False

    def is_fenced(self, node_id: int) -> bool:
        """Return whether the controller has fenced the node. Any thread, because the brokers of the
        image are replaced and never changed.
        """
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.fenced

    def active_nodes(self) -> set[int]:
        """Return the nodes that the controller considers alive. REQUIRES that no machine runs."""
        return {broker.broker_id for broker in self.image.brokers.values() if broker.active}

    def knows_active_nodes(self) -> bool:
        """Return whether the controller knows which nodes are alive.

        It does not while its turn is interrupted, nor after a restart until the first node has
        registered. REQUIRES that no machine runs.
        """
        assert self._driven is not None
        if not self.is_running:
            return True  # waiting would not help
        if self._driven.busy:
            return False
        session_ns = self._config.session_timeout_ms * 1_000_000
        if self._restarted_ns is None or self._clock.monotonic_ns() - self._restarted_ns >= session_ns:
            return True  # the nodes that have not registered by now are away
        return bool(self.active_nodes())

    # --------------------------------------------------------------------------------------- topics

    def topic_names(self) -> tuple[str, ...]:
        """Return the names of all topics."""
        return self._driver.run_exclusively(lambda: tuple(self.image.topic_ids))

    def leaders(self, topic: str) -> dict[int, int] | None:
        """Return the leader of each partition of ``topic`` (-1: none); None if there is no such
        topic.
        """

        def look() -> dict[int, int] | None:
            found = self.image.topic(topic)
            return None if found is None else {number: entry.leader for number, entry in found.partitions.items()}

        return self._driver.run_exclusively(look)

    def leaderless(self, of: TopicPartition) -> Leaderless | None:
        """Return the nodes that may lead a partition; None if it has a leader or does not exist."""

        def look() -> Leaderless | None:
            found = self.image.topic(of.topic)
            entry = None if found is None else found.partitions.get(of.partition)
            if entry is None or entry.leader != NO_LEADER:
                return None
            return Leaderless((*entry.isr, *entry.elr), entry.replicas)

        return self._driver.run_exclusively(look)

    def batch_limit(self, topic: str) -> tuple[int, int]:
        """Return the size in bytes of the largest batch that a producer may make for ``topic``: one
        of several records, and one of a single record. REQUIRES the driver's turn.
        """
        found = self.image.topic(topic)
        if found is None:
            return INT32_MAX, 0
        config = found.log_config
        return producer_batch_max(config), batch_max(config)


class PeriodicRetry:
    """A driven machine that calls ``act`` every half second until ``act`` returns True.

    ``act`` may then remove this machine from the driver.
    """

    def __init__(self, clock: Clock, act: Callable[[], bool]) -> None:
        self._clock = clock
        self._act = act
        self._next_ns: int | None = clock.monotonic_ns() + RETRY_NS

    @property
    def next_wake_ns(self) -> int | None:
        """The time of the next attempt; None after success."""
        return self._next_ns

    def poll(self, timeout_ns: int = 0) -> bool:
        """Call ``act`` if it is due, and return whether it was. It never waits."""
        if self._next_ns is None or self._clock.monotonic_ns() < self._next_ns:
            return False
        self._next_ns = None if self._act() else self._clock.monotonic_ns() + RETRY_NS
        return True
