"""The quorum servers of a simulated cluster's machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, Protocol

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
from pyreplog.testing.network import SimNetwork, SimTransport
from pyreplog.testing.options import WorldOptions
from pyreplog.wire import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeTopicPartitionsRequest,
    ErrorCode,
    Request,
    RequestBody,
    Response,
)

__all__ = ["WORLD_ADDRESS", "SimVoters"]

WORLD_ADDRESS: Final = "world"
"""The address from which a world asks its controller."""


class _Cluster(Protocol):
    """The parts of a cluster that its voters need."""

    machines: dict[int, Machine]
    network: SimNetwork
    options: WorldOptions

    def run_until(self, done: Callable[[], bool], within_ms: float) -> bool: ...
    def broken(self, rule: str, about: str) -> None: ...


class SimVoters:
    """Opens the servers of ``cluster``'s machines, and asks the active controller."""

    def __init__(
        self,
        cluster: _Cluster,
        controller_class: type[Controller],
        old_controller_class: type[Controller],
        server_class: type[QuorumServer],
    ) -> None:
        self._cluster = cluster
        # The network tells a node's end late, and delivers messages of ended processes.
        attributes = {"controller_class": controller_class, "exact_ends": False}
        self._server_class: type[QuorumServer] = type("Server", (server_class,), attributes)
        attributes["controller_class"] = old_controller_class
        self._old_server_class: type[QuorumServer] = type("OldServer", (server_class,), attributes)
        self._transport: SimTransport | None = None
        self._asked = 0
        self._waiting: dict[int, Callable[[Any], None]] = {}
        self._last_voters: dict[int, VoterSet] = {}

    def open_server(self, machine: Machine, random: Random) -> QuorumServer:
        """Open the machine's quorum server."""
        assert machine.root is not None
        root, folder = machine.root, f"{machine.root.path}/{METADATA_FOLDER}"
        identity = Identity(machine.node_id, root.directory_id, root.cluster_id)
        config = QuorumConfig.across_processes()._replace(
            snapshot_interval_ms=1000,
            fetch_max_wait_ms=350,
            auto_join=machine.node_id in self._cluster.options.voter_ids,
            auto_replace=True,
            bootstrap=tuple(one.server_address for one in self._cluster.machines.values()),
            stored_image_records=5000 if machine.node_id % 2 else 1,
        )
        if not is_formatted(machine.disk, folder):
            format_quorum(machine.disk, folder, identity, machine.clock, None, config)
            machine.disk.sync_directory(root.path)
        damage_at_times(machine.disk, folder, Random(machine.clock.monotonic_ns() + machine.node_id))
        machine.server_transport = self._cluster.network.endpoint()
        is_old = machine.starts == 1 and machine.node_id <= self._cluster.options.old_nodes
        server: QuorumServer = (self._old_server_class if is_old else self._server_class).open(
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

    def ask(self, question: RequestBody, done: Callable[[Any], None], node_id: int | None = None) -> bool:
        """Send ``question`` to the active controller, or to a node's server. Return whether there is one.

        ``done`` gets the answer, unless the network loses it.
        """
        machine = self.active() if node_id is None else self._cluster.machines[node_id]
        if machine is None:
            return False
        self._send(machine, question, done)
        return True

    def _send(self, machine: Machine, question: RequestBody, done: Callable[[Any], None]) -> None:
        if self._transport is None:
            self._transport = self._cluster.network.endpoint()
            self._transport.listen(WORLD_ADDRESS)
        self._asked += 1
        self._waiting[self._asked] = done
        self._transport.send(machine.server_address, Request(WORLD_ADDRESS, self._asked, question))

    def read(self) -> None:
        """Ask each server that takes itself as the active controller for all partitions."""
        for machine in self._cluster.machines.values():
            if machine.server is not None and machine.server.is_active:
                self._send(machine, DescribeTopicPartitionsRequest(), lambda _: None)

    def create(self, topics: Sequence[CreatableTopic]) -> None:
        """Create topics: ask again and again until all are there."""
        answers: list[CreateTopicsResponse] = []
        for _ in range(100):
            answers.clear()
            self.ask(CreateTopicsRequest(topics), answers.append)
            if self._cluster.run_until(lambda: bool(answers), 1000):
                codes = {topic.error_code for topic in answers[0].topics}
                if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    return
        self._cluster.broken("liveness", f"no controller creates the topics: {answers}")

    @property
    def next_wake_ns(self) -> int | None:
        """Never: only messages give the asker a turn."""
        return None

    def poll(self) -> None:
        """Pass the answers on that arrived."""
        if self._transport is None:
            return
        for event in self._transport.poll(0):
            if isinstance(event, Received) and isinstance(event.message, Response):
                done = self._waiting.pop(event.message.correlation_id, None)
                if done is not None:
                    done(event.message.body)

    def may_lose(self, node_ids: Sequence[int]) -> bool:
        """Return whether every set of voters that a server has in force, or had when it ended, keeps the disks of a
        majority if these nodes lose theirs."""
        machines = self._cluster.machines
        for machine in machines.values():
            if machine.server is not None:
                self._last_voters[machine.node_id] = machine.server.voters
        return all(
            2 * sum(self._is_there(voter, node_ids) for voter in voters) > len(voters)
            for node_id, voters in self._last_voters.items()
            if voters and node_id not in node_ids
        )

    def _is_there(self, voter: Voter, lost: Sequence[int]) -> bool:
        machine = self._cluster.machines[voter.node_id]
        return voter.node_id not in lost and machine.directory_id == voter.directory_id

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
