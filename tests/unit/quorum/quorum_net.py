"""A few nodes of the quorum, their disks, and a network that delivers in order and at once.

Every message passes the byte codec. Time moves only by :meth:`QuorumNet.advance`. A message to a
node that is down, or over a cut link, is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from pyreplog.quorum import (
    Identity,
    LeaderChanged,
    PeerGone,
    QuorumConfig,
    QuorumEffect,
    QuorumEvent,
    RaftNode,
    ReplicaKey,
    Send,
    TimerDue,
    Voter,
    VoterSet,
    find_voter_damage,
    format_quorum,
)
from pyreplog.testing import SimClock, SimDisk
from pyreplog.wire import Conversation, Request, RequestBody, Response

MS = 1_000_000
CLUSTER = "c" * 21 + "A"
FOLDER = "node/__cluster_metadata-0"


def directory_of(node_id: int, number: int = 0) -> str:
    """Return a directory id."""
    return f"{node_id:010d}{number:011d}A"


def address_of_node(node_id: int) -> str:
    """Return the endpoint of a node."""
    return f"controller-{node_id}"


class QuorumNet:
    """Nodes 1 to ``count``; the first ``voters`` of them vote."""

    def __init__(self, count: int, *, voters: int | None = None, config: QuorumConfig | None = None, seed: int = 0):
        self.clock = SimClock()
        self.config = config or QuorumConfig(bootstrap=(address_of_node(1),))
        self.seed = seed
        self.voter_set = VoterSet(
            Voter.at(ReplicaKey(node_id, directory_of(node_id)), address_of_node(node_id))
            for node_id in range(1, (voters or count) + 1)
        )
        self.disks: dict[int, SimDisk] = {}
        self.identities: dict[int, Identity] = {}
        self.nodes: dict[int, RaftNode] = {}
        self.queue: deque[tuple[str, str, Request | Response]] = deque()
        self.cut: set[tuple[str, str]] = set()
        self.lose: Callable[[str, str, Request | Response], bool] = lambda source, target, message: False
        self.effects: dict[int, list[QuorumEffect]] = {}
        self.answers: list[Any] = []
        self.ends: dict[tuple[str, str], Conversation] = {}
        for node_id in range(1, count + 1):
            self.format(node_id)
            self.open(node_id)

    def format(self, node_id: int, number: int = 0) -> None:
        """Give a node an empty disk; ``number`` is that of the disk."""
        disk = self.disks[node_id] = SimDisk(Random(node_id), clock=self.clock)
        disk.make_directory(FOLDER)
        self.identities[node_id] = Identity(node_id, directory_of(node_id, number), CLUSTER)
        is_voter = self.identities[node_id].key in self.voter_set
        format_quorum(
            disk, FOLDER, self.identities[node_id], self.clock, self.voter_set if is_voter else None, self.config
        )
        disk.sync_directory("node")

    def open(self, node_id: int) -> RaftNode:
        """Open a node's folder. The look at it before must say the same about damage."""
        damage = find_voter_damage(self.disks[node_id], FOLDER, self.identities[node_id])
        node = self.nodes[node_id] = RaftNode.open(
            self.disks[node_id],
            FOLDER,
            self.identities[node_id],
            self.config,
            self.clock,
            Random(self.seed * 100 + node_id),
            endpoint=address_of_node(node_id),
            now_ns=self.now,
        )
        assert (damage is None) == (node.voter_failure is None), (damage, node.voter_failure)
        self.effects.setdefault(node_id, [])
        return node

    def kill(self, node_id: int, *, told: bool = True) -> None:
        """End a node's process; ``told``: the transport tells the others."""
        del self.nodes[node_id]
        self.disks[node_id].kill()
        if told:
            for other in list(self.nodes):
                self.step(other, PeerGone(address_of_node(node_id)))

    @property
    def now(self) -> int:
        """The time in ns."""
        return self.clock.monotonic_ns()

    def step(self, node_id: int, event: QuorumEvent) -> None:
        """Step one node, and take its messages."""
        self.take(node_id, self.nodes[node_id].step(event, self.now))

    def take(self, node_id: int, effects: list[QuorumEffect]) -> None:
        """Take the effects of a node."""
        for effect in effects:
            if isinstance(effect, Send):
                source = address_of_node(node_id)
                self.queue.append((source, effect.address, self.carried(source, effect.address, effect.message)))
            else:
                self.effects[node_id].append(effect)

    def carried(self, source: str, target: str, message: Request | Response) -> Request | Response:
        """Return a message as the other end decodes it from its bytes."""
        if target == "client":
            return message
        own = self.ends.setdefault((source, target), Conversation(source, target))
        peer = self.ends.setdefault((target, source), Conversation(target, source))
        frame = bytearray().join(own.encode(message))
        return peer.decode_request(frame) if isinstance(message, Request) else peer.decode_response(frame)

    def ask(self, node_id: int, body: RequestBody) -> None:
        """Send a request of a client to a node; its answer comes to :attr:`answers`."""
        self.step(node_id, Request("client", 7, body))

    def deliver(self) -> None:
        """Deliver every message, and those that follow."""
        for _ in range(10_000):
            if not self.queue:
                return
            source, target, message = self.queue.popleft()
            if target == "client":
                assert isinstance(message, Response), "a client gets answers only"
                self.answers.append(message.body)
                continue
            node_id = int(target.rpartition("-")[2])
            if node_id in self.nodes and (source, target) not in self.cut and not self.lose(source, target, message):
                self.step(node_id, message)
        raise AssertionError("the nodes never fall silent")

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass; each timer fires at its time."""
        end = self.now + ms * MS
        self.deliver()
        for _ in range(10_000):
            due = {node_id: node.next_wake_ns for node_id, node in self.nodes.items()}
            times = [at for at in due.values() if at is not None]
            at = min(times, default=end + 1)
            if at > end:
                self.clock.advance_to(end)
                return
            self.clock.advance_to(max(at, self.now))
            for node_id, its in due.items():
                if its is not None and its <= self.now and node_id in self.nodes:
                    self.step(node_id, TimerDue())
            self.deliver()
        raise AssertionError("the timers never rest")

    def isolate(self, node_id: int) -> None:
        """Cut all links of a node."""
        for other in self.disks:
            if other != node_id:
                self.cut |= {
                    (address_of_node(node_id), address_of_node(other)),
                    (address_of_node(other), address_of_node(node_id)),
                }

    @property
    def leaders(self) -> list[int]:
        """The nodes that lead, as far as they know."""
        return [node_id for node_id, node in self.nodes.items() if node.is_leader]

    @property
    def leader(self) -> RaftNode:
        """The one leader."""
        (leader,) = self.leaders
        return self.nodes[leader]

    def append(self, *values: bytes) -> int:
        """Append at the leader; return the last offset."""
        leader = self.leader
        placed = leader.append(values, self.now)
        self.take(leader.identity.node_id, placed.effects)
        return placed.last_offset

    def values(self, node_id: int) -> list[bytes]:
        """Return the committed data records of a node, in order."""
        node = self.nodes[node_id]
        start = node.storage.start_offset
        return [record for _, record in node.read_committed(start) if isinstance(record, bytes)]

    def leader_changes(self, node_id: int) -> list[LeaderChanged]:
        """Return what a node said about leaders."""
        return [effect for effect in self.effects[node_id] if isinstance(effect, LeaderChanged)]
