"""The operator of a simulated quorum: it asks the leader to add, remove and update voters."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, Protocol

from pyreplog.ports import Received
from pyreplog.testing.clock import SimClock
from pyreplog.testing.network import SimNetwork
from pyreplog.testing.quorum.machine import CLUSTER_ID, QuorumMachine
from pyreplog.testing.quorum.model import VoterKey
from pyreplog.wire import (
    AddRaftVoterRequest,
    KRaftVersionFeature,
    QuorumEndpoint,
    RemoveRaftVoterRequest,
    Request,
    RequestBody,
    Response,
    UpdateRaftVoterRequest,
)

__all__ = ["OPERATOR_ADDRESS", "QuorumOperator"]

OPERATOR_ADDRESS: Final = "operator"
TIMEOUT_NS: Final = 1_500_000_000
PAUSE_NS: Final = 50_000_000


class QuorumOperatorHost(Protocol):
    """The parts of the world that the operator needs."""

    @property
    def clock(self) -> SimClock: ...
    @property
    def network(self) -> SimNetwork: ...
    @property
    def machines(self) -> Mapping[int, QuorumMachine]: ...
    @property
    def leader(self) -> QuorumMachine | None: ...
    def say(self, text: str) -> None: ...
    def may_remove(self, node_id: int) -> bool: ...


class QuorumOperator:
    """Brings the voters to ``wanted``, one request at a time, and again after each lost or refused one.

    An operator is never sure of its success: it looks at the leader's voters and asks for the next difference.
    """

    def __init__(self, world: QuorumOperatorHost, random: Random, wanted: list[int]) -> None:
        self._world = world
        self._random = random
        self.wanted = wanted
        """The ids of the nodes that must be voters, with their present disks."""
        self.transport = world.network.endpoint(OPERATOR_ADDRESS)
        self.changes = 0
        """The number of requests that the quorum answered with success."""
        self.leaving: dict[VoterKey, int] = {}
        """The voters whose removal was asked for lately, and when."""
        self._correlation_id = 0
        self._open: int | None = None
        self.next_wake_ns: int | None = world.clock.monotonic_ns() + PAUSE_NS

    def poll(self) -> None:
        """Read answers, and send the next request if it is due."""
        now = self._world.clock.monotonic_ns()
        for event in self.transport.poll():
            if isinstance(event, Received) and isinstance(event.message, Response):
                code = int(getattr(event.message.body, "error_code", 0))
                self.changes += not code
                if event.message.correlation_id == self._open:
                    self._open = None
                    self.next_wake_ns = now + PAUSE_NS
        if self.next_wake_ns is not None and self.next_wake_ns <= now:
            self._ask()

    def settled(self) -> bool:
        """Return whether the leader's voters are the wanted ones, with their present disks."""
        leader = self._world.leader
        if leader is None or leader.node is None:
            return False
        voters = {voter.node_id: voter.directory_id for voter in leader.node.voters}
        return voters == {node_id: self._world.machines[node_id].directory_id for node_id in self.wanted}

    def two_at_once(self) -> None:
        """Send two changes without waiting: the second must be refused, or wait for the first."""
        for body in self._differences()[:2]:
            self._send(body)

    def update(self, node_id: int) -> None:
        """Send a voter's endpoint again, as a voter does after its address changed."""
        leader = self._world.leader
        if leader is None or leader.node is None:
            return
        machine = self._world.machines[node_id]
        self._send(
            UpdateRaftVoterRequest(
                leader.node.epoch,
                node_id,
                machine.directory_id,
                [QuorumEndpoint("CONTROLLER", machine.address)],
                KRaftVersionFeature(0, 1),
                CLUSTER_ID,
            )
        )

    def _ask(self) -> None:
        now = self._world.clock.monotonic_ns()
        differences = self._differences()
        self._open = None
        self.next_wake_ns = now + (TIMEOUT_NS if differences else PAUSE_NS)
        if differences:
            self._open = self._send(differences[0])

    def _differences(self) -> list[RequestBody]:
        """Return the requests that are still needed.

        Destroyed disks leave first, then new voters come, then others leave: so a majority of the voters has disks
        at every step. A voter that this majority needs stays.
        """
        world = self._world
        leader = world.leader
        if leader is None or leader.node is None:
            return []
        voters = {voter.node_id: voter.directory_id for voter in leader.node.voters}
        lost: list[RequestBody] = []
        coming: list[RequestBody] = []
        leaving: list[RequestBody] = []
        for node_id, directory_id in voters.items():
            request = RemoveRaftVoterRequest(node_id, directory_id, CLUSTER_ID)
            if world.machines[node_id].directory_id != directory_id:
                lost.append(request)
            elif node_id not in self.wanted and world.may_remove(node_id):
                leaving.append(request)
        for node_id in self.wanted:
            machine = world.machines[node_id]
            if node_id not in voters:
                listeners = [QuorumEndpoint("CONTROLLER", machine.address)]
                coming.append(AddRaftVoterRequest(node_id, machine.directory_id, listeners, CLUSTER_ID, 1500))
        return [*lost, *coming, *leaving]

    def _send(self, body: RequestBody) -> int:
        self._correlation_id += 1
        if isinstance(body, RemoveRaftVoterRequest):
            self.leaving[body.voter_id, body.voter_directory_id] = self._world.clock.monotonic_ns()
        leader = self._world.leader
        if leader is not None:
            self.transport.send(leader.address, Request(OPERATOR_ADDRESS, self._correlation_id, body))
        return self._correlation_id
