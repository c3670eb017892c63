"""The quorum servers of a simulated cluster's machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from pyreplog.controller import Controller, QuorumServer
from pyreplog.log import METADATA_FOLDER
from pyreplog.ports import Address, Received
from pyreplog.quorum import (
    Identity,
    QuorumConfig,
    ReplicaKey,
    Voter,
    VoterSet,
    format_quorum,
    is_formatted,
)
from pyreplog.testing.checkers.stored_image import compare_with_replay, damage_at_times
from pyreplog.testing.machine import Machine
from pyreplog.testing.network import SimNetwork
from pyreplog.testing.options import WorldOptions
from pyreplog.wire import Request, RequestBody, Response

__all__ = ["SimVoters"]


class _Cluster(Protocol):
    """The parts of a cluster that its voters need."""

    machines: dict[int, Machine]
    network: SimNetwork
    options: WorldOptions

    def run_until(self, done: Callable[[], bool], within_ms: float) -> bool: ...
    def broken(self, rule: str, about: str) -> None: ...


class SimVoters:
    """Opens the servers of ``cluster``'s machines, and asks the one that is the active controller."""

    def __init__(self, cluster: _Cluster, controller_class: type[Controller], server_class: type[QuorumServer]) -> None:
        self._cluster = cluster
        # The network tells a node's end late, and delivers messages of ended processes.
        attributes = {"controller_class": controller_class, "exact_ends": False}
        self._server_class: type[QuorumServer] = type("Server", (server_class,), attributes)

    def open_server(self, machine: Machine, random: Random) -> QuorumServer:
        """Open the machine's quorum server."""
        assert machine.root is not None
        root, folder = machine.root, f"{machine.root.path}/{METADATA_FOLDER}"
        identity = Identity(machine.node_id, root.directory_id, root.cluster_id)
        config = QuorumConfig.across_processes()._replace(
            snapshot_interval_ms=1000,
            bootstrap=tuple(f"controller-{number}" for number in range(1, self._cluster.options.nodes + 1)),
            stored_image_records=5000 if machine.node_id % 2 else 1,
        )
        if not is_formatted(machine.disk, folder):
            format_quorum(machine.disk, folder, identity, machine.clock, None, config)
            machine.disk.sync_directory(root.path)
        damage_at_times(machine.disk, folder, Random(machine.clock.monotonic_ns() + machine.node_id))
        machine.server_transport = self._cluster.network.endpoint()
        server: QuorumServer = self._server_class.open(
            machine.disk,
            folder,
            identity,
            self._cluster.options.config,
            config,
            machine.server_transport,
            machine.clock,
            random,
        )
        difference = compare_with_replay(server)
        if difference:
            self._cluster.broken("stored image", f"node {machine.node_id}: {difference}")
        return server

    def format(self, machines: Sequence[Machine]) -> None:
        """Make ``machines`` the voters of a new quorum."""
        roots = {machine: machine.root for machine in machines if machine.root is not None}
        voters = VoterSet(
            Voter.at(ReplicaKey(machine.node_id, root.directory_id), machine.server_address)
            for machine, root in roots.items()
        )
        for machine, root in roots.items():
            identity = Identity(machine.node_id, root.directory_id, root.cluster_id)
            folder = f"{root.path}/{METADATA_FOLDER}"
            format_quorum(machine.disk, folder, identity, machine.clock, voters, QuorumConfig())
            machine.disk.sync_directory(root.path)

    def ask(self, question: RequestBody) -> object:
        """Ask the active controller until it answers. REQUIRES a network that loses only what is asked twice."""
        transport = self._cluster.network.endpoint()
        transport.listen("world")
        answers: list[object] = []

        def answered() -> bool:
            for event in transport.poll(0):
                if isinstance(event, Received) and isinstance(event.message, Response):
                    answers.append(event.message.body)
            return bool(answers)

        for number in range(100):
            for machine in self._cluster.machines.values():
                if machine.server is not None and machine.server.is_active and not answers:
                    transport.send(machine.server_address, Request("world", number, question))
            if self._cluster.run_until(answered, 1000):
                break
        transport.close()
        if not answers:
            self._cluster.broken("liveness", "no controller answers at the beginning")
        return answers[0]

    def note_ended(self, incarnation_id: str) -> list[Address]:
        """Tell all servers that this incarnation of a node has ended; return their addresses."""
        told = []
        for machine in self._cluster.machines.values():
            if machine.server is not None:
                machine.server.note_ended(incarnation_id)
                told.append(machine.server_address)
        return told

    def active(self) -> Machine | None:
        """Return the machine whose server is the active controller."""
        return next(
            (
                machine
                for machine in self._cluster.machines.values()
                if machine.server is not None and machine.server.is_active
            ),
            None,
        )
