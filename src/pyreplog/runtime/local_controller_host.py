"""LocalControllerHost: runs the one controller of a cluster in this process, and starts it again after a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from random import Random, SystemRandom
from typing import Final

from pyreplog.config import NodeConfig
from pyreplog.controller import CONTROLLER_ADDRESS, ControllerServer, LocalController, MetadataImage, QuorumServer
from pyreplog.errors import PyreplogError
from pyreplog.log import LogRoot
from pyreplog.ports import Address, Clock, Disk, Transport
from pyreplog.runtime.controller_host import ControllerHost
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.node_folders import NodeFolders
from pyreplog.runtime.state_check import check_state

__all__ = ["LocalControllerHost", "PeriodicRetry"]

RETRY_NS: Final = 500_000_000

_log = logging.getLogger("pyreplog")


class LocalControllerHost(ControllerHost):
    """The controller of one cluster.

    The controller's file holds all its decisions. If its turn is interrupted or its disk fails, a new controller
    replaces it and starts from the file.
    """

    def __init__(
        self, disk: Disk, path: str, config: NodeConfig, clock: Clock, driver: Driver, folders: NodeFolders
    ) -> None:
        """Prepare to run the controller whose file lies in ``path``; :meth:`load` starts it."""
        super().__init__(driver)
        self._folders = folders
        self._disk = disk
        self._path = path
        self._config = config
        self._clock = clock
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

    def load(self) -> None:
        """Check the file against the nodes' folders, and start the controller from it, or that of a new cluster."""
        check_state(self._disk, self._path, self._folders)
        self._start(None)

    def format(self, roots: Mapping[int, tuple[Disk, LogRoot]]) -> None:
        """Nothing: the nodes keep no metadata."""

    def open_server(self, node_id: int, disk: Disk, root: LogRoot, transport: Transport) -> QuorumServer | None:
        """None: there is no quorum."""
        return None

    def forget_server(self, node_id: int) -> None:
        """Nothing: there is no quorum."""

    def clear(self, disk: Disk, root: LogRoot) -> None:
        """Nothing: the nodes keep no metadata."""

    def note_started(self) -> None:
        """Nothing: a controller that starts takes no node for alive."""

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

    def note_paused(self, node_id: int, *, is_paused: bool) -> None:
        """Nothing: the controller is no part of a node."""

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

    @property
    def active_id(self) -> int | None:
        """None: the controller is in no node."""
        return None

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
