"""A whole cluster in one process on one simulated clock: nodes, controller, clients, network and
disks, and the faults that can hit them.

Nothing here judges the cluster: :class:`~pyreplog.testing.World` adds the checkers and the run.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from pyreplog.client import Consumer
from pyreplog.controller import (
    LEVEL_LATEST,
    Controller,
    MetadataImage,
    PartitionImage,
    PartitionKey,
    QuorumServer,
    new_id,
)
from pyreplog.errors import PyreplogError
from pyreplog.log import Log, LogRoot, UnloadedLog
from pyreplog.node import HostedPartition, MetadataListener, Node
from pyreplog.ports import Address, Clock
from pyreplog.replica import Replica
from pyreplog.testing.clock import SimClock
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.losses import CopyLosses
from pyreplog.testing.machine import Machine, MachineServer, Member
from pyreplog.testing.network import SimNetwork
from pyreplog.testing.options import TopicOptions, WorldOptions
from pyreplog.testing.sim_loop import FAR_NS, SimLoop
from pyreplog.testing.sim_voters import WORLD_ADDRESS, SimVoters
from pyreplog.testing.workload import SimConsumer, SimProducer
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    RequestBody,
)

__all__ = ["SimCluster"]

_MS: Final = 1_000_000
SETUP_MS: Final = 10_000


class SimCluster(SimLoop):
    """A simulated cluster. A subclass reports broken invariants and may watch every turn.

    Not thread-safe. All parts share one simulated clock and draw from one ``random``.
    """

    root_class: type[LogRoot] = LogRoot
    """The class of every machine's root."""

    def __init__(
        self,
        seed: int,
        options: WorldOptions,
        *,
        replica_class: type[Replica] = Replica,
        log_class: type[Log] = Log,
        controller_class: type[Controller] = Controller,
        metadata_class: type[MetadataListener] = MetadataListener,
        consumer_class: type[Consumer] = Consumer,
        node_class: type[Node] = Node,
        server_class: type[QuorumServer] = QuorumServer,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.options = options
        super().__init__(SimClock())
        self.network = self.make_network(Random(self.random.getrandbits(64)))
        self.events: list[str] = []
        """Every action on the cluster with its time, in words."""
        self.faults: dict[str, int] = {}
        """How often each fault occurred; ``hits``: to the active controller, and to a majority of the voters."""
        self.machines: dict[int, Machine] = {}
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []
        self._last_image = MetadataImage()
        self.passing_topic = TopicOptions("passing", partitions=2, durability="os")
        """A topic that no client uses, and that :class:`TopicEvents` makes and deletes."""
        self.cluster_id = ""
        self.hits: dict[str, int] = {}
        self.open_changes: dict[str, Callable[[], bool]] = {}
        """Changes of topics that a controller was asked for, and how to see that each is made. Nobody may lose a copy
        meanwhile: a new partition may lie on a disk that is gone, and the ELR may be cleared (KAFKA-16540)."""
        self.delete_asked: dict[TopicPartition, int] = {}
        """The highest offset up to which a client asked to delete records."""
        self._losses = CopyLosses(self)
        self._controller_class = self._of_level(controller_class, 0 if options.old_nodes else LEVEL_LATEST)
        self._consumer_class = consumer_class
        old_controller_class = type("Old", (self._controller_class,), {"feature_level": 0})
        self._voters = SimVoters(self, self._controller_class, old_controller_class, server_class)
        self._killed_for_controller: dict[int, None] = {}
        # Made once and not at each start, because code runs fastest when it meets the same classes.
        metadata = type("Metadata", (metadata_class,), {"replica_class": replica_class})
        self._root_class: type[LogRoot] = type("Root", (self.root_class,), {"log_class": log_class})
        self._node_class: type[Node] = type("Node", (node_class,), {"metadata_class": metadata})
        self._old_node_class: type[Node] = type("OldNode", (self._node_class,), {"feature_level": 0})
        self._syncs: dict[int, dict[int, None]] = {}

    def _of_level(self, controller_class: type[Controller], level: int) -> type[Controller]:
        """Return the class of controllers whose new cluster begins at ``level``.

        The level rises only after all nodes have registered once: nodes of several versions begin a new cluster here,
        which they do not do elsewhere.
        """

        def raise_level(controller: Controller) -> None:
            if len(controller.image.brokers) >= self.options.nodes:
                controller_class._raise_level(controller)

        attributes = {"_raise_level": raise_level, "first_level": level}
        return type(controller_class.__name__, (controller_class,), attributes)

    # ------------------------------------------------------------------ what a subclass adds to it

    @abstractmethod
    def turn_ended(self, address: Address, member: Member) -> None:
        """Called after each turn of a member."""

    @abstractmethod
    def node_started(self, machine: Machine) -> None:
        """Called after a node opened its logs, before its first turn."""

    @abstractmethod
    def node_stopping(self, machine: Machine, how: str) -> None:
        """Called before a node ends; ``how`` is kill, power loss, stop or wipe."""

    @abstractmethod
    def disk_called(self, machine: Machine) -> None:
        """Called in the middle of a turn, before a disk call that may fail."""

    # ------------------------------------------------------------------------- building the cluster

    def make_network(self, random: Random) -> SimNetwork:
        """Return the network that connects everything."""
        return SimNetwork(self.clock, random, self.options.network)

    def new_disk(self, clock: Clock | None = None, *, manual: bool = True) -> SimDisk:
        """Return an empty disk with its own source of randomness."""
        return SimDisk(Random(self.random.getrandbits(64)), clock=clock or self.clock, manual=manual)

    def open_root(self, machine: Machine, random: Random) -> LogRoot:
        """Open the machine's root for writing."""
        opened: LogRoot = self._root_class.open(
            machine.disk,
            machine.address,
            clock=machine.clock,
            random=random,
            node_id=machine.node_id,
            cluster_id=self.cluster_id,
            lazy=True,
        )
        return opened

    def make_node(self, machine: Machine, random: Random) -> Node:
        """Make the machine's node."""
        assert machine.root is not None
        assert machine.transport is not None
        is_old = machine.starts == 1 and machine.node_id <= self.options.old_nodes
        return (self._old_node_class if is_old else self._node_class)(
            machine.root,
            machine.disk,
            machine.transport,
            machine.clock,
            self.options.config,
            self.controller_address(machine.node_id),
            random,
        )

    def open_server(self, machine: Machine, random: Random) -> QuorumServer | None:
        """Open the machine's quorum server; None if it has none."""
        return self._voters.open_server(machine, random)

    def _begin(self) -> None:
        """Start the machines, create the topics, start the clients."""
        options = self.options
        self._begin_machines()
        self.run_until(
            lambda: (
                all(not one.fenced for one in self.image.brokers.values()) and len(self.image.brokers) == options.nodes
            ),
            SETUP_MS,
        )
        self._voters.create([one.creatable() for one in options.topics])
        nodes = self.node_addresses
        by_acks: dict[int, list[TopicOptions]] = {}
        for topic in options.topics:
            by_acks.setdefault(topic.acks, []).append(topic)
        for topics in by_acks.values():
            for _ in range(options.producers):
                self._add_producer(nodes, topics)
        for _ in range(options.consumers):
            self._add_consumer(nodes)

    def _begin_machines(self) -> None:
        options = self.options
        self.cluster_id = new_id(self._chance())
        self._members[WORLD_ADDRESS] = self._voters
        for node_id in options.machine_ids:
            machine = self.machines[node_id] = Machine(
                self, node_id, options.clock_error(self.seed, node_id), is_broker=node_id <= options.nodes
            )
            self._members[machine.address] = machine
            machine.open()
        self._voters.format([self.machines[node_id] for node_id in options.voter_ids])
        for machine in self.machines.values():
            machine.run()
            self._members[machine.server_address] = MachineServer(machine)
            self._after(machine.address)
            self._after(machine.server_address)

    def _add_producer(self, nodes: Sequence[Address], topics: Sequence[TopicOptions]) -> None:
        options = self.options
        producer = SimProducer(
            len(self.producers),
            self.network.endpoint(),
            self.clock,
            self._chance(),
            nodes,
            topics,
            interval_ms=options.burst_interval_ms,
            burst_max=options.burst_max,
            size_max=options.value_size_max,
            max_in_flight=options.max_in_flight,
        )
        self.producers.append(producer)
        self._members[producer.address] = producer
        self._after(producer.address)

    def _add_consumer(self, nodes: Sequence[Address]) -> None:
        number, transport, chance = len(self.consumers), self.network.endpoint(), self._chance()
        topics = self.options.topics
        consumer = SimConsumer(number, transport, self.clock, chance, nodes, topics, self._consumer_class)
        self.consumers.append(consumer)
        self._members[consumer.address] = consumer
        self._after(consumer.address)

    def ask_controller(self, body: RequestBody, done: Callable[[Any], None], node_id: int | None = None) -> bool:
        """Send a request to the active controller, or to a node's part of the quorum. Return whether there is one.

        ``done`` gets the answer, unless the network loses it.
        """
        return self._voters.ask(body, done, node_id)

    def read_metadata(self) -> None:
        """Ask every server that takes itself as the active controller for all partitions; a checker looks at the
        answers."""
        self._voters.read()

    def _chance(self) -> Random:
        return Random(self.random.getrandbits(64))

    # ------------------------------------------------------------------------------- the controller

    def start_controller(self, *, knows_ends: bool = True) -> None:
        """Start the machines that were stopped because their controllers were active.

        ``knows_ends``: the servers learn at once that the machines which are down have ended, as in one process.
        """
        killed, self._killed_for_controller = self._killed_for_controller, {}
        for node_id in killed:
            self.start(node_id)
        if knows_ends:
            for machine in self.machines.values():
                if machine.is_broker and not machine.is_up:
                    self._tell_end(machine)

    def _tell_end(self, machine: Machine) -> None:
        for server_address in self._voters.note_ended(machine.incarnation_id):
            self._after(server_address)

    def controller_address(self, node_id: int) -> Address:
        """Return the address of the controller that a node talks to: its own part of the quorum."""
        return f"controller-{node_id}"

    @property
    def controller_addresses(self) -> list[Address]:
        """The addresses of all controllers."""
        return [machine.server_address for machine in self.machines.values()]

    @property
    def controller_is_up(self) -> bool:
        """Whether a controller decides."""
        return self._voters.active() is not None

    @property
    def active_node(self) -> int:
        """The node whose server takes itself as the active controller of the quorum; -1: none does."""
        machine = self._voters.active()
        return -1 if machine is None else machine.node_id

    def stop_controller(self, *, power_loss: bool) -> None:
        """Kill the machine of the active controller, or cut its power if the acknowledgement table allows that."""
        machine = self._voters.active()
        if machine is None:
            return
        if power_loss and self.may_lose([machine.node_id], wiped=False):
            self.lose_power(machine.node_id, tell=False)
        else:
            self.kill(machine.node_id, tell=not power_loss, silent=power_loss)
        self._killed_for_controller[machine.node_id] = None

    @property
    def image(self) -> MetadataImage:
        """The metadata of the controller, or its last metadata while it is down."""
        for machine in self.machines.values():
            if machine.server is not None and machine.server.image.offset > self._last_image.offset:
                self._last_image = machine.server.image
        return self._last_image

    # ------------------------------------------------------------------------------------ its turns

    def _turn_done(self, address: Address, member: Member) -> None:
        """Note the syncs that a member submitted in its turn."""
        if isinstance(member, Machine) and member.disk.pending_syncs:
            self._plan_syncs(member)
        self.turn_ended(address, member)

    def _plan_syncs(self, machine: Machine) -> None:
        disk = machine.disk
        planned = self._syncs.setdefault(machine.node_id, {})
        for token in disk.pending_syncs:
            if token in planned:
                continue
            planned[token] = None
            longest = self.options.sync_delay_max_us * 1000 * (50 if machine.slow_disk else 1)
            self._plan_at(
                self.clock.monotonic_ns() + self.random.randint(10_000, max(longest, 10_000)),
                partial(self._synced, machine, disk, token),
            )

    def _synced(self, machine: Machine, disk: SimDisk, token: int) -> None:
        self._syncs.get(machine.node_id, {}).pop(token, None)
        if machine.disk is disk and machine.node is not None and token in disk.pending_syncs:
            disk.complete(token)
            self._turn(machine.address)

    def say(self, text: str) -> None:
        """Add an action on the cluster to ``events``."""
        self.events.append(f"{self.clock.monotonic_ns() / 1e9:9.4f} s  {text}")

    # -------------------------------------------------------------------------------- looking at it

    def partitions(self) -> list[tuple[TopicPartition, PartitionKey, PartitionImage]]:
        """Return every partition as the controller has it."""
        return [
            (TopicPartition(topic.name, number), (topic.topic_id, number), partition)
            for topic in self.image.topics.values()
            for number, partition in topic.partitions.items()
        ]

    @property
    def node_ids(self) -> list[int]:
        """The ids of the nodes, up or down, without the machines that only vote."""
        return [node_id for node_id, machine in self.machines.items() if machine.is_broker]

    @property
    def node_addresses(self) -> list[Address]:
        """The addresses of the nodes, for clients."""
        return [machine.address for machine in self.machines.values() if machine.is_broker]

    def hosted(self, node_id: int, key: PartitionKey) -> HostedPartition | None:
        """Return the partition that a node hosts; None while the node is down."""
        node = self.machines[node_id].node
        return None if node is None else node.hosted.get(key)

    def log_of(self, node_id: int, key: PartitionKey) -> Log | UnloadedLog | None:
        """Return a node's log of a partition; None while the node is down."""
        hosted = self.hosted(node_id, key)
        return None if hosted is None else hosted.log

    def has_copy(self, node_id: int, topic_partition: TopicPartition) -> bool:
        """Return whether a machine's disk has the folder of a partition."""
        machine = self.machines[node_id]
        return machine.disk.stat(f"{machine.address}/{topic_partition}") is not None

    def is_registered(self, node_id: int) -> bool:
        """Return whether a node is up and the controller knows its present incarnation."""
        root = self.machines[node_id].root
        broker = self.image.brokers.get(node_id)
        return root is not None and broker is not None and broker.incarnation_id == root.incarnation_id

    def machine_at(self, address: Address) -> Machine | None:
        """Return the machine that listens at ``address``; None if it is no machine's address."""
        member = self._members.get(address)
        return member if isinstance(member, Machine) else None

    def topic_options(self, name: str) -> TopicOptions:
        """Return the options of a topic."""
        return next(one for one in (*self.options.topics, self.passing_topic) if one.name == name)

    # ------------------------------------------------------------------------------------ accidents

    def kill(self, node_id: int, *, tell: bool = True, silent: bool = False) -> None:
        """Kill a node's process."""
        self.machines[node_id].kill(silent=silent)
        self.gone(node_id, tell=tell)

    def lose_power(self, node_id: int, *, tell: bool = True) -> None:
        """Cut the power of a node's machine. REQUIRES :meth:`may_lose` if the table must hold."""
        for topic_partition, options in self.copies(node_id):
            if options.durability == "os":
                self.lose_copy(topic_partition, node_id)
        self.machines[node_id].lose_power()
        self.gone(node_id, tell=tell)

    def wipe(self, node_id: int, *, tell: bool = True) -> None:
        """Replace a node's disk by an empty one."""
        for topic_partition, _ in self.copies(node_id):
            self.lose_copy(topic_partition, node_id)
        self.machines[node_id].wipe()
        self.gone(node_id, tell=tell)

    def stop(self, node_id: int) -> None:
        """Shut a node down cleanly."""
        self.machines[node_id].stop()
        self.gone(node_id, tell=True)

    def gone(self, node_id: int, *, tell: bool) -> None:
        """Note that a machine's node is down; tell the controller at once if ``tell``."""
        address = self.machines[node_id].address
        self._wakes[address] = FAR_NS
        self._wakes.pop(self.machines[node_id].server_address, None)
        self._syncs.pop(node_id, None)
        if tell:
            self._tell_end(self.machines[node_id])

    def start(self, node_id: int) -> None:
        """Start a machine that is down."""
        machine = self.machines[node_id]
        if not machine.is_up:
            try:
                machine.start()
            except PyreplogError as error:
                self.broken("start", f"node {node_id} cannot start: {error}")
            self._after(machine.address)
            if machine.server is not None:
                self._after(machine.server_address)

    def copies(self, node_id: int) -> list[tuple[TopicPartition, TopicOptions]]:
        """Return the partitions that a machine has copies of."""
        return [
            (name, self.topic_options(name.topic))
            for name, _, partition in self.partitions()
            if node_id in partition.replicas
        ]

    def lose_copy(self, topic_partition: TopicPartition, node_id: int, *, rotten: bool = False) -> None:
        """Count a copy as lossy until it is in sync again. ``rotten``: its node may not know it."""
        self._losses.add(topic_partition, node_id, rotten=rotten)

    @property
    def changes_are_open(self) -> bool:
        """Whether a change of a topic may be made at any time."""
        for name, is_made in list(self.open_changes.items()):
            if is_made():
                del self.open_changes[name]
        return bool(self.open_changes)

    def is_whole(self, topic: str) -> bool:
        """Return whether all copies of a topic are in sync, and none counts as lossy."""
        return self._losses.is_whole(topic)

    def may_lose(self, node_ids: Sequence[int], *, wiped: bool) -> bool:
        """Return whether the acknowledgement table still holds after these nodes lose power (or
        their disks), and a majority of the voters keeps its disks."""
        if self.changes_are_open or (wiped and not self._voters.may_lose(node_ids)):
            return False
        return self._losses.allow(node_ids, wiped=wiped)
