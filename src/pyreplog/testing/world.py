"""A whole cluster in one process, driven by a seed: nodes, controller, clients, network, disks and faults on one
simulated clock.

``World(seed).run()`` draws its options from the seed, runs a *safety* phase in which things break (never more than
the acknowledgement table allows), then heals everything and runs a *liveness* phase until all is quiet; checkers
look on all the time. A broken invariant is an :class:`InvariantBroken` that names the seed and the command that
repeats the run. The same seed gives the same run, to the last byte.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final, Protocol

from pyreplog.client import Consumer
from pyreplog.controller import (
    CONTROLLER_ADDRESS,
    MISSING,
    Controller,
    ControllerServer,
    LocalController,
    MetadataImage,
    PartitionImage,
    PartitionKey,
)
from pyreplog.errors import PyreplogError
from pyreplog.log import Log, LogRoot
from pyreplog.node import HostedPartition, MetadataListener, Node
from pyreplog.ports import Address, Clock
from pyreplog.replica import Replica
from pyreplog.testing.checkers import INVARIANTS, Checker, InvariantBroken, standard_checkers
from pyreplog.testing.clock import MachineClock, SimClock
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.network import SimNetwork, SimTransport
from pyreplog.testing.options import TopicOptions, WorldOptions, differing
from pyreplog.testing.workload import Attempt, SimConsumer, SimProducer
from pyreplog.values import TopicPartition
from pyreplog.wire import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse, Request

__all__ = ["Machine", "Member", "World"]

_MS: Final = 1_000_000
SETUP_MS: Final = 10_000
FAR_NS: Final = 1 << 62
STEPS_MAX: Final = 2_000_000


class Member(Protocol):
    """A program in a world: whoever has clients, or anything else to do. One thread, the world's clock, no
    sleeping."""

    @property
    def next_wake_ns(self) -> int | None:
        """When :meth:`poll` is due although nothing arrives (monotonic); None: not at all."""
        ...

    def poll(self) -> object:
        """One turn: poll the clients, do what there is to do, return."""
        ...


class Machine:
    """One computer: a disk, and while it is up a node on it."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.address = f"node-{node_id}"
        self.clock = MachineClock(world.clock)
        """The machine's own: its wall clock may jump."""
        self.disk = world.new_disk(self.clock)
        self.node: Node | None = None
        self.root: LogRoot | None = None
        self.transport: SimTransport | None = None
        self.slow_disk = False
        self.paused = False
        """The process gets no turn: a debugger, a full memory, a virtual machine that is moved."""
        self.disk_failed = False
        """A call of its disk was made to fail since it started, so that it may leave the cluster."""
        self.rotten = False
        """A bit of its files was flipped since it was last open."""
        self.starts = 0
        self.shape: tuple[object, ...] = ()
        """How its logs stood after its last turn."""
        self._looked_at = False

    @property
    def next_wake_ns(self) -> int | None:
        """When the node is due."""
        return None if self.node is None or self.paused else self.node.next_wake_ns

    def start(self) -> None:
        """Open the root and begin."""
        world = self.world
        self.starts += 1
        self.disk_failed = False
        random = Random(world.random.getrandbits(64))
        self.root = world.open_root(self, random)
        self.transport = world.network.endpoint()
        self.node = world.make_node(self, random)
        self.shape = ()
        for checker in world.start_checkers:
            checker.started(world, self)
        self.rotten = self.rotten and bool(self.root.damaged)

    def fail_disk(self, kind: str, path: str, *, error: int) -> None:
        """The next such call of its disk fails, and its node may leave in the midst of a turn."""
        self.disk_failed = True
        self.disk.fail(kind, path, error=error)
        self.disk.observer = self._look

    def _look(self, call: object) -> None:
        if self._looked_at or self.node is None:
            return
        self._looked_at = True  # what looks on reads, too
        try:
            for checker in self.world.disk_checkers:
                checker.disk_call(self.world, self)
        finally:
            self._looked_at = False

    def _end(self, how: str) -> None:
        world = self.world
        for checker in world.stop_checkers:
            checker.stopped(world, self, how)
        self.paused = False
        self.disk.clear_faults()
        self.disk.observer = None
        self.disk.capacity = None

    def kill(self, *, silent: bool = False, how: str = "kill") -> None:
        """The process dies; what was written stays."""
        self._end(how)
        if self.transport is not None:
            self.transport.close(silent=silent)
        self.disk.kill()
        self.node = self.root = self.transport = None

    def lose_power(self) -> None:
        """What was not synced may be gone."""
        self.kill(silent=True, how="power loss")
        self.disk = self.disk.crash(Random(self.world.random.getrandbits(64)))
        self.disk.manual = True

    def stop(self) -> None:
        """A clean shutdown; where its disk refuses, it ends all the same, and not cleanly."""
        self._end("stop")
        if self.node is not None:
            try:
                self.node.close()
            except PyreplogError as error:
                if not self.disk_failed:
                    raise
                self.world.say(f"node {self.node_id} could not stop in order: {error}")
                self.disk.kill()
        self.node = self.root = self.transport = None

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.kill(silent=True, how="wipe")
        self.disk = self.world.new_disk(self.clock)

    def poll(self) -> None:
        """One turn of the node."""
        if self.node is not None and not self.paused:
            self.node.poll()


class World:
    """See the module's text.

    ``options``: what the cluster is and what breaks; None draws them from the seed. ``checkers``: None means
    :func:`standard_checkers`. ``replica_class``, ``log_class``, ``controller_class``, ``metadata_class`` and
    ``consumer_class`` put known-bad variants in the place of the real ones. One thread; everything in it shares one
    simulated clock.
    """

    root_class: type[LogRoot] = LogRoot
    """Of every machine's root."""

    def __init__(
        self,
        seed: int,
        options: WorldOptions | None = None,
        *,
        replica_class: type[Replica] = Replica,
        log_class: type[Log] = Log,
        controller_class: type[Controller] = Controller,
        metadata_class: type[MetadataListener] = MetadataListener,
        consumer_class: type[Consumer] = Consumer,
        checkers: Sequence[Checker] | None = None,
        replay: str = "",
    ) -> None:
        self.seed = seed
        self._replay = replay
        self._standard = options is None and checkers is None and type(self) is World
        """Whether the seed alone made this world: a caller that gives, adds or replaces a part clears it."""
        self._as_command = False
        """Whether :meth:`run` does what ``python -m pyreplog.testing --seed N`` does."""
        parts = {
            "replica_class": (replica_class, Replica),
            "log_class": (log_class, Log),
            "controller_class": (controller_class, Controller),
            "metadata_class": (metadata_class, MetadataListener),
            "consumer_class": (consumer_class, Consumer),
        }
        self._other_parts = [
            f"{name}={given.__name__}" for name, (given, standard) in parts.items() if given is not standard
        ]
        self.random = Random(seed)
        # From a chance of their own, so that the same seed with given options goes on as it did
        # with drawn ones.
        self.options = options if options is not None else WorldOptions.drawn(Random(seed))
        self._options_given = options is not None
        self.clock = SimClock()
        self.network = SimNetwork(self.clock, Random(self.random.getrandbits(64)), self.options.network)
        self.steps = 0
        """Moments at which anything happened."""
        self.turns = 0
        """Turns taken by members, and things planned that were done: the events of the run."""
        self.faults: dict[str, int] = {}
        """How often which fault was done."""
        self.events: list[str] = []
        """What was done to the cluster and when, in words."""
        self.seen: dict[str, int] = {}
        """How often something worth reaching was seen: see :class:`pyreplog.testing.checkers.Sightings`."""
        self._watch_with(standard_checkers() if checkers is None else checkers)
        self.delete_asked: dict[TopicPartition, int] = {}
        """The highest offset up to which anybody asked to delete records."""
        self.machines: dict[int, Machine] = {}
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []
        self.lost: dict[TopicPartition, dict[int, None]] = {}
        """Replicas that lost something the table says they may, and have not been in sync since."""
        self.rotten: dict[tuple[TopicPartition, int], None] = {}
        """Those of them that may have been cut without their node's knowing that it is more than a torn tail."""
        self.controller_disk = self.new_disk(manual=False)
        self.endpoint: ControllerServer | None = None
        self.cluster_id = ""
        self._controller_class = controller_class
        self._consumer_class = consumer_class
        self._controller_transport: SimTransport | None = None

        # Once, and not with each start: what runs is fastest where it meets the same classes again.
        metadata = type("Metadata", (metadata_class,), {"replica_class": replica_class})
        self._root_class: type[LogRoot] = type("Root", (self.root_class,), {"log_class": log_class})
        self._node_class: type[Node] = type("Node", (Node,), {"metadata_class": metadata})
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._syncs: dict[int, dict[int, None]] = {}
        self._wakes: dict[Address, int] = {}  # FAR_NS: not before something arrives
        self._members: dict[Address, Member] = {}
        self._digest = 0
        self.healed_ns = 0
        """When the liveness phase began."""
        self._controller_seen = -1
        self._begin()
        self._made = self._done()

    def _done(self) -> tuple[int, int, int]:
        """What was done to the world so far, as counts."""
        return self.steps, self._sequence, len(self.events)

    @property
    def replay(self) -> str:
        """How to repeat this run, as a broken invariant says it: a command if it repeats all of the run, else the
        world to make again in the caller's program."""
        if self._replay:
            return self._replay
        if self._as_command:
            return f"python -m pyreplog.testing --seed {self.seed}"
        given = [str(self.seed), *([differing(self.options)] if self._options_given else ()), *self._other_parts]
        return f"{type(self).__name__}({', '.join(given)}) in your program"

    def watch_with(self, checkers: Sequence[Checker]) -> None:
        """From now on these look on, and no others."""
        self._standard = False
        self._watch_with(checkers)

    def _watch_with(self, checkers: Sequence[Checker]) -> None:
        self.checkers = list(checkers)
        self.start_checkers = self._overriding("started")
        self.stop_checkers = self._overriding("stopped")
        self._node_checkers = self._overriding("node_turn")
        self.disk_checkers = self._overriding("disk_call")
        self._controller_checkers = self._overriding("controller_turn")
        self._settle_checkers = self._overriding("settled")
        self._read_checkers = self._overriding("read")
        self._message_checkers = self._overriding("message")
        self._unrest_checkers = self._overriding("unrest")
        self.network.observer = self._observe if self._message_checkers else None

    def _overriding(self, name: str) -> list[Checker]:
        """The checkers that have something to do there."""
        return [checker for checker in self.checkers if getattr(type(checker), name) is not getattr(Checker, name)]

    def _observe(self, source: Address, target: Address, message: object) -> None:
        for checker in self._message_checkers:
            checker.message(self, source, target, message)

    # ------------------------------------------------------------------------------------ making it

    def new_disk(self, clock: Clock | None = None, *, manual: bool = True) -> SimDisk:
        """An empty disk with a chance of its own."""
        return SimDisk(Random(self.random.getrandbits(64)), clock=clock or self.clock, manual=manual)

    def open_root(self, machine: Machine, random: Random) -> LogRoot:
        """The machine's root, opened for writing."""

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
        """The machine's node."""
        assert machine.root is not None
        assert machine.transport is not None

        return self._node_class(
            machine.node_id,
            machine.root,
            machine.disk,
            machine.transport,
            machine.clock,
            self.options.config,
            CONTROLLER_ADDRESS,
            random,
        )

    def _begin(self) -> None:
        options = self.options
        self._members[CONTROLLER_ADDRESS] = self
        self.start_controller()
        for node_id in range(1, options.nodes + 1):
            machine = self.machines[node_id] = Machine(self, node_id)
            self._members[machine.address] = machine
            machine.start()
            self._after(machine.address)
        self.run_until(
            lambda: (
                all(not one.fenced for one in self.image.brokers.values()) and len(self.image.brokers) == options.nodes
            ),
            SETUP_MS,
        )
        self._create_topics()
        nodes = [machine.address for machine in self.machines.values()]
        by_acks: dict[int, list[TopicOptions]] = {}
        for topic in options.topics:
            by_acks.setdefault(topic.acks, []).append(topic)
        for topics in by_acks.values():
            for _ in range(options.producers):
                self._add_producer(nodes, topics)
        for number in range(options.consumers):
            transport, chance = self.network.endpoint(), self._chance()
            consumer = SimConsumer(number, transport, self.clock, chance, nodes, options.topics, self._consumer_class)
            self.consumers.append(consumer)
            self._members[consumer.address] = consumer
            self._after(consumer.address)

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

    def _create_topics(self) -> None:
        assert self.endpoint is not None
        wanted = [
            CreatableTopic(
                one.name,
                one.partitions,
                one.replication_factor,
                configs=[CreatableTopicConfig(key, value) for key, value in one.config.items()],
            )
            for one in self.options.topics
        ]
        replies = self.endpoint.authority.step(
            [Request("world", 0, CreateTopicsRequest(wanted))], self.clock.monotonic_ns()
        )
        (body,) = [reply.body for reply in replies if reply.peer == "world"]
        assert isinstance(body, CreateTopicsResponse)
        assert all(topic.error_code == 0 for topic in body.topics), body
        self.endpoint.send([reply for reply in replies if reply.peer != "world"])
        self._after(CONTROLLER_ADDRESS)

    def _chance(self) -> Random:
        return Random(self.random.getrandbits(64))

    # ------------------------------------------------------------------------------- the controller

    def start_controller(self) -> None:
        """The controller starts from its file."""

        class Chosen(LocalController):
            controller_class = self._controller_class

        authority = Chosen.open(
            self.controller_disk, "controller", self.options.config, self._chance(), now_ns=self.clock.monotonic_ns()
        )
        self.cluster_id = authority.cluster_id
        self._controller_transport = self.network.endpoint()
        self.endpoint = ControllerServer(authority, self._controller_transport, self.clock)
        self._after(CONTROLLER_ADDRESS)

    def stop_controller(self, *, power_loss: bool) -> None:
        """The controller dies."""
        assert self._controller_transport is not None
        self._controller_transport.close(silent=power_loss)
        self.controller_disk.kill()
        if power_loss:
            self.controller_disk = self.controller_disk.crash(self._chance())
        self.endpoint = None

    @property
    def next_wake_ns(self) -> int | None:
        """When the controller is due."""
        return None if self.endpoint is None else self.endpoint.next_wake_ns

    def poll(self) -> None:
        """One turn of the controller."""
        if self.endpoint is not None:
            self.endpoint.poll()

    @property
    def image(self) -> MetadataImage:
        """The metadata as the controller has it, or had it."""
        if self.endpoint is not None:
            self._last_image, self._last_suspects = self.endpoint.authority.image, self.endpoint.authority.suspects
        return self._last_image

    # ------------------------------------------------------------------------------------- the loop

    def plan(self, after_ms: float, call: Callable[[], None]) -> None:
        """Have ``call`` made after so long."""
        self._plan_at(self.clock.monotonic_ns() + int(after_ms * _MS), call)

    def _plan_at(self, at_ns: int, call: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._plans, (at_ns, self._sequence, call))

    def step(self) -> None:
        """The next moment at which anything happens, and what happens then."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.broken("liveness", f"no end after {STEPS_MAX} steps")
        network, plans, wakes = self.network, self._plans, self._wakes
        moment = min(wakes.values(), default=FAR_NS)
        arrival = network.next_arrival_ns
        if arrival is not None and arrival < moment:
            moment = arrival
        if plans and plans[0][0] < moment:
            moment = plans[0][0]
        self.clock.advance_to(moment)
        moment = self.clock.monotonic_ns()
        due = dict.fromkeys(network.deliver_due()) if arrival is not None and arrival <= moment else {}
        while plans and plans[0][0] <= moment:
            self.turns += 1
            heapq.heappop(plans)[2]()
        for address, wake in wakes.items():
            if wake <= moment:
                due[address] = None
        for address in due:
            self._turn(address)

    def _turn(self, address: Address) -> None:
        member = self._members.get(address)
        if member is None:
            return
        self.turns += 1
        member.poll()
        self._after(address)

    @property
    def node_addresses(self) -> list[Address]:
        """Where clients find the nodes."""
        return [machine.address for machine in self.machines.values()]

    def join(self, member: Member, *addresses: Address) -> None:
        """A program takes part: it gets a turn whenever something arrives for one of ``addresses`` (those of its
        clients), and when it is due. Joining again in the place of an earlier program is how one restarts."""
        self._standard = False
        for address in addresses:
            self._members[address] = member
            self._wakes[address] = self.clock.monotonic_ns()

    def leave(self, *addresses: Address) -> None:
        """The program behind these addresses gets no more turns. (Close its clients' transports: that is its
        process's death.)"""
        for address in addresses:
            self._members.pop(address, None)
            self._wakes[address] = FAR_NS

    def touch(self, address: Address) -> None:
        """Something was done to ``address`` from outside: give it a turn."""
        self._turn(address)

    def _after(self, address: Address) -> None:
        """After a turn: what it submitted, when it is due next, and what the checkers say."""
        member = self._members[address]
        wake = member.next_wake_ns
        now = self.clock.monotonic_ns()
        # A member that is due for ever would stop the clock.
        self._wakes[address] = FAR_NS if wake is None else wake if wake > now else now + 1
        if isinstance(member, Machine):
            if member.disk.pending_syncs:
                self._plan_syncs(member)
            node = member.node
            if node is not None and self._note(address, member, node):
                for checker in self._node_checkers:
                    checker.node_turn(self, member)
        elif isinstance(member, SimProducer):
            for attempt in member.settled:
                for checker in self._settle_checkers:
                    checker.settled(self, attempt)
            member.settled = []
        elif isinstance(member, SimConsumer):
            for record in member.fresh:
                for checker in self._read_checkers:
                    checker.read(self, member, record)
            member.fresh = []
        elif member is self and self.endpoint is not None and self.image.offset != self._controller_seen:
            self._controller_seen = self.image.offset
            for checker in self._controller_checkers:
                checker.controller_turn(self, self.image)

    def _plan_syncs(self, machine: Machine) -> None:
        disk = machine.disk
        pending = disk.pending_syncs
        if not pending:
            return
        planned = self._syncs.setdefault(machine.node_id, {})
        for token in pending:
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

    def _note(self, address: Address, machine: Machine, node: Node) -> bool:
        """Take the turn into the digest of the run. Whether anything changed that a checker looks at."""
        shape: list[object] = [
            len(node.broken_rules) + len(node.failed_requests),
            node.offline is None,
            node.failure is None,
        ]
        for hosted in node.hosted.values():
            log, replica = hosted.log, hosted.replica
            shape += (
                log.end_offset,
                log.high_watermark,
                log.start_offset,
                log.generation,
                replica.leader_epoch,
                replica.partition_epoch,
                replica.maximal_isr,
            )
        now = tuple(shape)
        if now == machine.shape:
            self._digest = zlib.crc32(b"%d" % self.clock.monotonic_ns(), self._digest)
            return False
        machine.shape = now
        self._digest = zlib.crc32(f"{self.clock.monotonic_ns()} {address} {now}".encode(), self._digest)
        return True

    @property
    def digest(self) -> int:
        """A number that tells two runs apart: of every turn of every node, when it was and how its logs stood."""
        return self._digest

    def run_until(self, done: Callable[[], bool], within_ms: float) -> bool:
        """Step until ``done`` or the time is over; whether it was done."""
        end = self.clock.monotonic_ns() + int(within_ms * _MS)
        while not done():
            if self.clock.monotonic_ns() >= end:
                return False
            self.step()
        return True

    def run_for(self, ms: float) -> None:
        """Step for so long."""
        self.run_until(lambda: False, ms)

    def say(self, text: str) -> None:
        """Note what is done to the cluster."""
        self.events.append(f"{self.clock.monotonic_ns() / 1e9:9.4f} s  {text}")
        self._digest = zlib.crc32(text.encode(), self._digest)

    def broken(self, rule: str, about: str) -> None:
        """Raise :class:`InvariantBroken`."""
        kind = INVARIANTS.get(rule)
        says = "" if kind is None else kind.says
        raise InvariantBroken(rule, about, self.seed, self.clock.monotonic_ns(), self.events, self.replay, says)

    # -------------------------------------------------------------------------------- looking at it

    def partitions(self) -> list[tuple[TopicPartition, PartitionKey, PartitionImage]]:
        """Every partition as the controller has it."""
        return [
            (TopicPartition(topic.name, number), (topic.topic_id, number), partition)
            for topic in self.image.topics.values()
            for number, partition in topic.partitions.items()
        ]

    def hosted(self, node_id: int, key: PartitionKey) -> HostedPartition | None:
        """What a machine hosts of a partition, while it is up."""
        node = self.machines[node_id].node
        return None if node is None else node.hosted.get(key)

    def log_of(self, node_id: int, key: PartitionKey) -> Log | None:
        """Its log, while it is up."""
        hosted = self.hosted(node_id, key)
        return None if hosted is None else hosted.log

    def is_registered(self, node_id: int) -> bool:
        """Whether a machine is up and its incarnation is the one that the controller knows."""
        root = self.machines[node_id].root
        broker = self.image.brokers.get(node_id)
        return root is not None and broker is not None and broker.incarnation_id == root.incarnation_id

    def machine_at(self, address: Address) -> Machine | None:
        """The machine that listens there, if it is one."""
        member = self._members.get(address)
        return member if isinstance(member, Machine) else None

    def promises(self, attempt: Attempt) -> bool:
        """Whether the acknowledgement table promises anything for good: acks=1 promises nothing once somebody else
        leads."""
        return attempt.acks == -1 or self.topic_options(attempt.topic_partition.topic).replication_factor == 1

    def topic_options(self, name: str) -> TopicOptions:
        """As drawn."""
        return next(one for one in self.options.topics if one.name == name)

    # ---------------------------------------------------------------------------------- what breaks

    def kill(self, node_id: int, *, tell: bool = True, silent: bool = False) -> None:
        """A node's process dies."""
        self.machines[node_id].kill(silent=silent)
        self.gone(node_id, tell=tell)

    def lose_power(self, node_id: int, *, tell: bool = True) -> None:
        """A node's machine loses power. REQUIRES :meth:`may_lose` where the table is to hold."""
        for topic_partition, options in self.copies(node_id):
            if options.durability == "os":
                self.lose_copy(topic_partition, node_id)
        self.machines[node_id].lose_power()
        self.gone(node_id, tell=tell)

    def wipe(self, node_id: int, *, tell: bool = True) -> None:
        """A node's disk is replaced by an empty one."""
        for topic_partition, _ in self.copies(node_id):
            self.lose_copy(topic_partition, node_id)
        self.machines[node_id].wipe()
        self.gone(node_id, tell=tell)

    def stop(self, node_id: int) -> None:
        """A clean shutdown."""
        self.machines[node_id].stop()
        self.gone(node_id, tell=True)

    def gone(self, node_id: int, *, tell: bool) -> None:
        """A machine's node is down; the controller hears of it at once where ``tell``."""
        address = self.machines[node_id].address
        self._wakes[address] = FAR_NS
        self._syncs.pop(node_id, None)
        if tell and self.endpoint is not None:
            self.endpoint.fence(node_id)
            self._after(CONTROLLER_ADDRESS)

    def start(self, node_id: int) -> None:
        """A node that is down comes back."""
        machine = self.machines[node_id]
        if machine.node is None:
            try:
                machine.start()
            except PyreplogError as error:
                self.broken("start", f"node {node_id} cannot start: {error}")
            self._after(machine.address)

    def copies(self, node_id: int) -> list[tuple[TopicPartition, TopicOptions]]:
        """What a machine has copies of."""
        return [
            (name, self.topic_options(name.topic))
            for name, _, partition in self.partitions()
            if node_id in partition.replicas
        ]

    def lose_copy(self, topic_partition: TopicPartition, node_id: int, *, rotten: bool = False) -> None:
        """From now on that copy counts as one that may lack something, until it is in sync again. ``rotten``: it
        may not even know."""
        self.lost.setdefault(topic_partition, {})[node_id] = None
        if rotten:
            self.rotten[topic_partition, node_id] = None

    def _forget_losses(self) -> None:
        """Who is in sync again, as the incarnation that runs now, has everything again; also where it has not heard
        of that yet."""
        for name, key, partition in self.partitions():
            lost = self.lost.get(name, {})
            if partition.leader < 0:
                continue  # then being in sync says only what was so before the restart
            for node_id in list(lost):
                whole = self._counts(node_id, key) and not self.machines[node_id].disk_failed
                if whole and node_id in partition.isr and self.is_registered(node_id):
                    del lost[node_id]
                    self.rotten.pop((name, node_id), None)

    def _counts(self, node_id: int, key: PartitionKey) -> bool:
        """Whether the controller would count on that copy again after another restart. Not on one that was made
        only when its broker, a member before it had any, came back."""
        log = self.log_of(node_id, key)
        if log is None or not log.incomplete:
            return log is not None
        return log.reported and self._last_suspects.get(key, {}).get(node_id) != MISSING

    def may_lose(self, node_ids: Sequence[int], *, wiped: bool) -> bool:
        """Whether the acknowledgement table still holds after these lose power (or their disks): of each partition
        at most ``min.insync.replicas`` - 1 copies may lack something at a time, and one is left that the controller
        counts on."""
        self._forget_losses()
        for name, key, partition in self.partitions():
            options = self.topic_options(name.topic)
            if (not wiped and options.durability == "sync") or not any(one in partition.replicas for one in node_ids):
                continue
            lost = dict.fromkeys([*self.lost.get(name, ()), *(one for one in node_ids if one in partition.replicas)])
            left = [one for one in (*partition.isr, *partition.elr) if one not in lost and self._counts(one, key)]
            if len(lost) > options.min_insync_replicas - 1 or not left:
                return False
        return True

    # -------------------------------------------------------------------------------------- the run

    def run(self) -> None:
        """Safety, then liveness. Raises :class:`InvariantBroken`."""
        from pyreplog.testing.nemesis import Nemesis  # noqa: PLC0415  (a nemesis acts on a world)

        self._as_command = self._standard and not self._other_parts and self._done() == self._made
        nemesis = Nemesis(self)
        nemesis.start()
        self.run_for(self.options.safety_ms)
        nemesis.stop()
        for producer in self.producers:
            producer.begin_again()
            self._after(producer.address)
        self.healed_ns = self.clock.monotonic_ns()
        self.say("everything is healed")
        if not self.run_until(self._quiet, self.options.liveness_ms):
            self.broken(*self._unrest())
        for checker in self.checkers:
            checker.final(self)

    def _quiet(self) -> bool:
        return not self._unrest()[1]

    def _unrest(self) -> tuple[str, str]:
        """What keeps the cluster from being quiet and whole: which invariant, and why. Empty when nothing does."""
        for checker in self._unrest_checkers:
            about = checker.unrest(self)
            if about:
                return checker.numbers[0], about
        return "", ""

    def about(self) -> str:
        """The options, for people."""
        options = self.options
        lines = [f"seed {self.seed}: {options.nodes} nodes, {options.safety_ms} ms, {len(self.producers)} producers"]
        lines += [f"  {topic}" for topic in options.topics]
        lines += [f"  {options.network}", f"  {options.faults}", f"  {options.config}"]
        return "\n".join(lines)
