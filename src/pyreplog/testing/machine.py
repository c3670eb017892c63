"""One computer of a simulated cluster, and the programs that take part in one."""

from __future__ import annotations

from random import Random
from typing import Protocol

from pyreplog.controller import QuorumServer
from pyreplog.errors import PyreplogError
from pyreplog.log import LogRoot
from pyreplog.node import Node
from pyreplog.ports import Address, Clock
from pyreplog.testing.clock import MachineClock, SimClock
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.network import SimNetwork, SimTransport

__all__ = ["Machine", "MachineServer", "Member"]


class Member(Protocol):
    """A program in a world: it has clients, or anything else to do. It runs in one thread, reads the
    world's clock and never sleeps."""

    @property
    def next_wake_ns(self) -> int | None:
        """When :meth:`poll` is due although nothing arrives (monotonic); None: not at all."""
        ...

    def poll(self) -> object:
        """Take one turn: poll the clients, do the work that is due, return."""
        ...


class _Host(Protocol):
    """The parts of a cluster that a machine needs."""

    @property
    def clock(self) -> SimClock: ...
    @property
    def network(self) -> SimNetwork: ...
    @property
    def random(self) -> Random: ...
    def new_disk(self, clock: Clock | None = None, *, manual: bool = True) -> SimDisk: ...
    def open_root(self, machine: Machine, random: Random) -> LogRoot: ...
    def open_server(self, machine: Machine, random: Random) -> QuorumServer | None: ...
    def make_node(self, machine: Machine, random: Random) -> Node: ...
    def node_started(self, machine: Machine) -> None: ...
    def node_stopping(self, machine: Machine, how: str) -> None: ...
    def disk_called(self, machine: Machine) -> None: ...
    def say(self, text: str) -> None: ...


class Machine:
    """One computer: a disk, and a node on it while it is up."""

    def __init__(self, world: _Host, node_id: int, clock_error_ppm: int = 0, *, is_broker: bool = True) -> None:
        self.world = world
        self.node_id = node_id
        self.is_broker = is_broker
        """Whether the machine has a node; otherwise only a voter of the metadata quorum."""
        self.address = f"node-{node_id}"
        self.clock = MachineClock(world.clock, clock_error_ppm)
        """The machine's own clock: its wall clock may jump, and it may run at another rate than the others."""
        self.disk = world.new_disk(self.clock)
        self.node: Node | None = None
        self.root: LogRoot | None = None
        self.transport: SimTransport | None = None
        self.server: QuorumServer | None = None
        """The machine's part of the metadata quorum, if the world has one."""
        self.server_transport: SimTransport | None = None
        self.slow_disk = False
        self.paused = False
        """The process gets no turn, as under a debugger, while swapping, or in a virtual machine
        that is migrated."""
        self.disk_failed = False
        """A call of the disk was made to fail since the node started, so the node may leave."""
        self.rotten = False
        """A bit of the machine's files was flipped since the node last opened them."""
        self.incarnation_id = ""
        """That of the node's latest start."""
        self.directory_id = ""
        """That of the disk, since the machine first started with it."""
        self.starts = 0
        self.shape: tuple[object, ...] = ()
        """The state of the node's logs after its last turn."""
        self._observing = False
        self._random = Random(0)

    @property
    def is_up(self) -> bool:
        """Whether the process runs."""
        return self.root is not None

    @property
    def server_address(self) -> Address:
        """The address of the machine's quorum server."""
        return f"controller-{self.node_id}"

    @property
    def next_wake_ns(self) -> int | None:
        """When the node is due, in the world's time."""
        due_ns = None if self.node is None or self.paused else self.node.next_wake_ns
        return None if due_ns is None else self.clock.world_ns(due_ns)

    def start(self) -> None:
        """Open the root and start the node."""
        self.open()
        self.run()

    def open(self) -> None:
        """Open the root."""
        self.starts += 1
        self.disk_failed = False
        self._random = Random(self.world.random.getrandbits(64))
        self.root = self.world.open_root(self, self._random)
        self.incarnation_id = self.root.incarnation_id
        self.directory_id = self.root.directory_id

    def run(self) -> None:
        """Start the quorum server, if the world has a quorum, and the node. REQUIRES an open root."""
        world = self.world
        assert self.root is not None
        self.server = world.open_server(self, self._random)
        if self.is_broker:
            self.transport = world.network.endpoint()
            self.node = world.make_node(self, self._random)
            self.shape = ()
            world.node_started(self)
            self.rotten = self.rotten and bool(self.root.damaged)

    def fail_disk(self, kind: str, path: str, *, error: int) -> None:
        """Let the next such call of the disk fail; the node may leave in the middle of a turn."""
        self.disk_failed = True
        self.disk.fail(kind, path, error=error)
        self.disk.observer = self._on_disk_call

    def _on_disk_call(self, call: object) -> None:
        if self._observing or self.node is None:
            return
        self._observing = True  # an observer reads the disk, too
        try:
            self.world.disk_called(self)
        finally:
            self._observing = False

    def _end(self, how: str) -> None:
        if self.is_broker:
            self.world.node_stopping(self, how)
        self.paused = False
        self.disk.clear_faults()
        self.disk.observer = None
        self.disk.capacity = None

    def kill(self, *, silent: bool = False, how: str = "kill") -> None:
        """Kill the process; the written data stays."""
        self._end(how)
        for transport in (self.server_transport, self.transport):
            if transport is not None:
                transport.close(silent=silent)
        self.disk.kill()
        self._forget()

    def lose_power(self) -> None:
        """Cut the power; unsynced data may be gone."""
        self.kill(silent=True, how="power loss")
        self.disk = self.disk.crash(Random(self.world.random.getrandbits(64)))
        self.disk.manual = True

    def stop(self) -> None:
        """Shut down cleanly. If the disk refuses, the node ends all the same, and not cleanly."""
        self._end("stop")
        if self.node is not None:
            try:
                self.node.close()
            except PyreplogError as error:
                if not self.disk_failed:
                    raise
                self.world.say(f"node {self.node_id} could not stop in order: {error}")
                self.disk.kill()
        if self.server is not None:
            self.server.close()
        if self.node is None and self.root is not None:
            self.root.close()
        self._forget()

    def _forget(self) -> None:
        self.node = self.root = self.transport = None
        self.server = self.server_transport = None

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self.kill(silent=True, how="wipe")
        self.directory_id = ""
        self.disk = self.world.new_disk(self.clock)

    def poll(self) -> None:
        """Give the node one turn."""
        if self.node is not None and not self.paused:
            self.node.poll()


class MachineServer:
    """The member of the world that gives a machine's quorum server its turns."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @property
    def next_wake_ns(self) -> int | None:
        """When the server is due."""
        machine = self.machine
        due_ns = None if machine.server is None or machine.paused else machine.server.next_wake_ns
        return None if due_ns is None else machine.clock.world_ns(due_ns)

    def poll(self) -> None:
        """Give the server one turn."""
        if self.machine.server is not None and not self.machine.paused:
            self.machine.server.poll()
