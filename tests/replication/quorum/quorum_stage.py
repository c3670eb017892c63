"""A quorum that a test plays by hand: it delivers, holds, loses and repeats each message, and fires each timer.

The machines are real. Their storages are the in-memory twin, or real files on simulated disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from pyreplog.quorum import (
    Identity,
    LogBatch,
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
    format_quorum,
)
from pyreplog.testing import SimClock, SimDisk
from pyreplog.wire import Request, RequestBody, Response
from tests.oracle.memory_quorum import MemoryQuorumStorage
from tests.replication.quorum.support import CLUSTER_ID, address_of_node, bootstrap_control, directory_of

MS: Final = 1_000_000
OPERATOR: Final = "operator"
ROUNDS_MAX: Final = 10_000


class Letter(NamedTuple):
    """A message on its way."""

    source: int
    target: int
    message: Request | Response

    @property
    def kind(self) -> str:
        """The name of the message's class."""
        return type(self.message.body).__name__

    @property
    def body(self) -> Any:
        """The message itself."""
        return self.message.body


class QuorumStage:
    """``voters`` nodes that vote, and ``observers`` more that do not. Nothing happens by itself.

    ``on_disk``: each node has files on a :class:`SimDisk`, so that power can be lost and calls can fail.
    """

    def __init__(
        self,
        voters: int = 3,
        observers: int = 0,
        *,
        node_class: type[RaftNode] = RaftNode,
        config: QuorumConfig | None = None,
        on_disk: bool = False,
        seed: int = 0,
    ) -> None:
        self.clock = SimClock()
        self.random = Random(seed)
        self.config = config or QuorumConfig()
        self.node_class = node_class
        self.on_disk = on_disk
        self.ids = tuple(range(1, voters + observers + 1))
        self.directories = {one: directory_of(one) for one in self.ids}
        self.voters = VoterSet(Voter.at(self.key(one), address_of_node(one)) for one in self.ids[:voters])
        self.disks: dict[int, SimDisk] = {}
        self.storages: dict[int, MemoryQuorumStorage] = {}
        self.nodes: dict[int, RaftNode] = {}
        self.flight: list[Letter] = []
        self.answers: list[Response] = []
        """The responses to the operator's requests."""
        self.effects: dict[int, list[QuorumEffect]] = {one: [] for one in self.ids}
        """All effects of each node but its messages."""
        self.held: Callable[[Letter], bool] = lambda letter: False
        """Letters that :meth:`settle` leaves on their way."""
        self.lost: Callable[[Letter], bool] = lambda letter: False
        """Letters that are lost when they are sent."""
        self.sent: list[Letter] = []
        """Every letter that was ever sent, lost ones included."""
        self._correlation_id = 0
        for node_id in self.ids:
            self.format(node_id, self.voters if node_id <= voters else None)
            self.start(node_id)

    def key(self, node_id: int) -> ReplicaKey:
        """Return the key of a node with its present disk."""
        return ReplicaKey(node_id, self.directories[node_id])

    @property
    def now_ns(self) -> int:
        """The time of all nodes."""
        return self.clock.monotonic_ns()

    # ----------------------------------------------------------------------------- life and death

    def format(self, node_id: int, voters: VoterSet | None) -> None:
        """Give a node an empty disk, formatted with ``voters``; None: it must learn them."""
        if self.on_disk:
            disk = self.disks[node_id] = SimDisk(Random(self.random.getrandbits(64)), clock=self.clock)
            folder = f"node-{node_id}/__cluster_metadata-0"
            format_quorum(disk, folder, self._identity(node_id), self.clock, voters, self.config)
            disk.sync_directory(f"node-{node_id}")
        else:
            self.storages[node_id] = MemoryQuorumStorage(bootstrap_control(voters) if voters is not None else ())

    def _identity(self, node_id: int) -> Identity:
        return Identity(node_id, self.directories[node_id], CLUSTER_ID)

    def start(self, node_id: int) -> RaftNode:
        """Open a node from its storage."""
        config = self.config._replace(bootstrap=tuple(address_of_node(one) for one in self.ids if one != node_id))
        random = Random(self.random.getrandbits(64))
        address, identity = address_of_node(node_id), self._identity(node_id)
        if self.on_disk:
            node = self.node_class.open(
                self.disks[node_id],
                f"node-{node_id}/__cluster_metadata-0",
                identity,
                config,
                self.clock,
                random,
                endpoint=address,
                now_ns=self.now_ns,
            )
        else:
            node = self.node_class(
                self.storages[node_id], identity, config, self.clock, random, endpoint=address, now_ns=self.now_ns
            )
        self.nodes[node_id] = node
        return node

    def kill(self, node_id: int, *, told: Iterable[int] | None = None) -> None:
        """End a node; messages to it are lost. ``told``: the nodes that learn it at once (default: all)."""
        del self.nodes[node_id]
        if self.on_disk:
            self.disks[node_id].kill()
        self.flight = [letter for letter in self.flight if letter.target != node_id]
        for other in list(self.nodes) if told is None else told:
            self.step(other, PeerGone(address_of_node(node_id)))

    def lose_power(self, node_id: int) -> None:
        """Cut a node's power without a word. REQUIRES ``on_disk``."""
        self.kill(node_id, told=())
        self.disks[node_id] = self.disks[node_id].crash(Random(self.random.getrandbits(64)))

    def restart(self, node_id: int) -> RaftNode:
        """Open a node again, after ending it if it runs."""
        if node_id in self.nodes:
            self.kill(node_id, told=())
        return self.start(node_id)

    def wipe(self, node_id: int) -> RaftNode:
        """Replace a node's disk by an empty one, with another directory id, and start it."""
        if node_id in self.nodes:
            self.kill(node_id, told=())
        self.directories[node_id] = directory_of(node_id, 2)
        self.format(node_id, None)
        return self.start(node_id)

    # -------------------------------------------------------------------------------- what happens

    def step(self, node_id: int, event: QuorumEvent) -> None:
        """Give a node one event."""
        self.take(node_id, self.nodes[node_id].step(event, self.now_ns))

    def take(self, node_id: int, effects: Sequence[QuorumEffect]) -> None:
        """Send the messages of a node, and keep its other effects."""
        for effect in effects:
            if not isinstance(effect, Send):
                self.effects[node_id].append(effect)
            elif effect.address == OPERATOR:
                assert isinstance(effect.message, Response)
                self.answers.append(effect.message)
            else:
                target = int(effect.address.rpartition("-")[2])
                letter = Letter(node_id, target, effect.message)
                self.sent.append(letter)
                if target in self.nodes and not self.lost(letter):
                    self.flight.append(letter)

    def timer(self, node_id: int) -> None:
        """Move the time to a node's next timer, and fire only this one."""
        wake = self.nodes[node_id].next_wake_ns
        assert wake is not None
        self.clock.advance_to(wake)
        self.step(node_id, TimerDue())

    def deliver(self, letter: Letter, *, keep: bool = False) -> None:
        """Deliver one letter; ``keep``: a copy stays on its way."""
        if not keep:
            self.flight.remove(letter)
        if letter.target in self.nodes:
            self.step(letter.target, letter.message)

    def letters(self, kind: str = "", source: int = 0, target: int = 0) -> list[Letter]:
        """Return the letters on their way whose kind begins so, of this link."""
        return [
            letter
            for letter in self.flight
            if letter.kind.startswith(kind) and source in (0, letter.source) and target in (0, letter.target)
        ]

    def drop(self, kind: str = "", source: int = 0, target: int = 0) -> list[Letter]:
        """Lose such letters; return them."""
        found = self.letters(kind, source, target)
        self.flight = [letter for letter in self.flight if letter not in found]
        return found

    def settle(self) -> None:
        """Deliver every letter that is not held, in order, until none is left. No time passes."""
        for _ in range(ROUNDS_MAX):
            letter = next((one for one in self.flight if not self.held(one)), None)
            if letter is None:
                return
            self.deliver(letter)
        raise AssertionError(f"messages without end: {[letter.kind for letter in self.sent[-12:]]}")

    def run(self, ms: float, *, stop: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass: deliver at once, fire every timer. Return whether ``stop`` became true."""
        end = self.now_ns + int(ms * MS)
        for _ in range(ROUNDS_MAX):
            self.settle()
            if stop():
                return True
            wakes = [
                (node.next_wake_ns, node_id) for node_id, node in self.nodes.items() if node.next_wake_ns is not None
            ]
            wake, node_id = min(wakes, default=(end + 1, 0))
            if wake > end:
                self.clock.advance_to(end)
                return False
            self.clock.advance_to(wake)
            self.step(node_id, TimerDue())
        raise AssertionError("timers without end")

    def cut(self, *pairs: tuple[int, int]) -> None:
        """Lose everything that is sent over these links (source, target) from now on; replaces earlier cuts."""
        self.lost = lambda letter: (letter.source, letter.target) in pairs
        self.flight = [letter for letter in self.flight if not self.lost(letter)]

    def isolate(self, *node_ids: int) -> None:
        """Cut these nodes off from the others, both ways."""
        self.cut(
            *(
                pair
                for one in node_ids
                for other in self.ids
                if other not in node_ids
                for pair in ((one, other), (other, one))
            )
        )

    def heal(self) -> None:
        """Lose and hold nothing from now on."""
        self.lost = self.held = lambda letter: False

    # ---------------------------------------------------------------------------------- shorthands

    def elect(self, node_id: int) -> RaftNode:
        """Fire this node's timers until it leads, and let everything arrive; every node it reaches gives up on the
        leader that it follows."""
        for other, node in list(self.nodes.items()):
            leader_id = node.leader_id
            if leader_id not in (None, other) and other != leader_id:
                self.step(other, PeerGone(address_of_node(leader_id)))
        for _ in range(50):
            self.settle()
            if self.nodes[node_id].is_leader:
                return self.nodes[node_id]
            self.timer(node_id)
        raise AssertionError(f"node {node_id} does not become the leader: {self.nodes[node_id].role_name}")

    def append(self, node_id: int, *values: bytes) -> int:
        """Append one batch as this leader; return its last offset."""
        done = self.nodes[node_id].append(list(values), self.now_ns)
        self.take(node_id, done.effects)
        return done.last_offset

    def ask(self, node_id: int, body: RequestBody) -> None:
        """Send a request of the operator to a node."""
        self._correlation_id += 1
        self.step(node_id, Request(OPERATOR, self._correlation_id, body))

    def has_leader(self) -> bool:
        """Return whether a node leads."""
        return any(node.is_leader for node in self.nodes.values())

    @property
    def leader(self) -> RaftNode:
        """The leader of the newest epoch."""
        found = [node for node in self.nodes.values() if node.is_leader]
        assert found, {node_id: node.role_name for node_id, node in self.nodes.items()}
        return max(found, key=lambda node: node.epoch)

    @property
    def leader_id(self) -> int:
        """The id of the leader of the newest epoch."""
        return self.leader.identity.node_id

    def log(self, node_id: int) -> list[LogBatch]:
        """Return the batches of a node's log."""
        storage = self.nodes[node_id].storage
        return list(storage.batches(storage.start_offset, storage.end_offset))

    def values(self, node_id: int) -> list[bytes]:
        """Return the records of a node's log, committed or not."""
        return [bytes(value) for batch in self.log(node_id) for value in batch.records]

    def committed(self, node_id: int) -> list[bytes]:
        """Return the records that a node knows as committed, from its log's start on."""
        node = self.nodes[node_id]
        found = node.read_committed(node.storage.start_offset)
        return [bytes(value) for _, value in found if isinstance(value, bytes | memoryview)]
