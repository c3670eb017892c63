"""A whole cluster in one process, driven by a seed: nodes, controller, clients, network, disks and
faults on one simulated clock.

``World(seed).run()`` draws its options from the seed. It runs a *safety* phase with faults (never more
than the acknowledgement table allows), then heals everything and runs a *liveness* phase until all
liveness conditions hold. Checkers watch both phases. A broken invariant raises
:class:`InvariantBroken`, which names the seed and the command that repeats the run. The same seed
gives the same run, byte for byte.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from random import Random

from pyreplog.client import Consumer
from pyreplog.controller import Controller, PartitionKey, QuorumServer
from pyreplog.log import Cleaner, Log
from pyreplog.node import MetadataListener, Node
from pyreplog.ports import Address
from pyreplog.replica import Replica
from pyreplog.testing.checkers import INVARIANTS, Checker, InvariantBroken, Swap, overriding, standard_checkers
from pyreplog.testing.compactions import Compactions
from pyreplog.testing.machine import Machine, MachineServer, Member
from pyreplog.testing.nemesis import Nemesis
from pyreplog.testing.options import WorldOptions, differing
from pyreplog.testing.sim_cluster import SimCluster
from pyreplog.testing.workload import Attempt, SimConsumer, SimProducer
from pyreplog.values import TopicPartition

__all__ = ["World"]


class World(SimCluster):
    """A simulated cluster with clients, faults and checkers; one seed determines its run.

    ``options`` are the parts and the faults of the cluster; None draws them from the seed. ``checkers``:
    None means :func:`standard_checkers`. ``replica_class``, ``log_class``, ``controller_class``,
    ``metadata_class``, ``consumer_class``, ``node_class``, ``server_class`` and ``cleaner_class`` replace the real
    classes by known-bad variants.
    """

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
        node_class: type[Node] = Node,
        server_class: type[QuorumServer] = QuorumServer,
        cleaner_class: type[Cleaner] = Cleaner,
        checkers: Sequence[Checker] | None = None,
        replay: str = "",
    ) -> None:
        super().__init__(
            seed,
            # The options have a random generator of their own. So a seed takes the same course with
            # given options as with equal drawn ones.
            options if options is not None else WorldOptions.drawn(Random(seed)),
            replica_class=replica_class,
            log_class=log_class,
            controller_class=controller_class,
            metadata_class=metadata_class,
            consumer_class=consumer_class,
            node_class=node_class,
            server_class=server_class,
        )
        self._replay = replay
        self._options_given = options is not None
        self._standard = options is None and checkers is None and type(self) is World
        """Whether the seed alone determines this world: giving, adding or replacing a part clears it."""
        self._as_command = False
        """Whether :meth:`run` does what ``python -m pyreplog.testing --seed N`` does."""
        standard = (Replica, Log, Controller, MetadataListener, Consumer, Node, QuorumServer, Cleaner)
        parts = {
            "replica_class": replica_class,
            "log_class": log_class,
            "controller_class": controller_class,
            "metadata_class": metadata_class,
            "consumer_class": consumer_class,
            "node_class": node_class,
            "server_class": server_class,
            "cleaner_class": cleaner_class,
        }
        self._other_parts = [f"{name}={part.__name__}" for name, part in parts.items() if part not in standard]
        self.seen: dict[str, int] = {}
        """How often the run reached each situation that :class:`pyreplog.testing.checkers.Sightings` counts."""
        self.healed_ns = 0
        """When the liveness phase began."""
        # With a random generator of its own: the worlds without compaction stay as they are.
        self.compactions = Compactions(self, Random(~seed), cleaner_class)
        self._digest = 0
        self._sendings: list[tuple[Address, Address, object]] = []
        self._controller_seen = -1
        self._watch_with(standard_checkers() if checkers is None else checkers)
        self._begin()
        self._made = self._done()

    def _done(self) -> tuple[int, int, int]:
        """Return counts that change with every event in the world."""
        return self.steps, self._sequence, len(self.events)

    @property
    def replay(self) -> str:
        """How to repeat this run, for the text of a broken invariant.

        This is a command if the command repeats the whole run, else the expression that makes this world in the
        caller's program.
        """
        if self._replay:
            return self._replay
        if self._as_command:
            return f"python -m pyreplog.testing --seed {self.seed}"
        given = [str(self.seed), *([differing(self.options)] if self._options_given else ()), *self._other_parts]
        return f"{type(self).__name__}({', '.join(given)}) in your program"

    def join(self, member: Member, *addresses: Address) -> None:
        """Add a program to the cluster; see :meth:`SimCluster.join`."""
        self._standard = False
        super().join(member, *addresses)

    def say(self, text: str) -> None:
        """Add an action on the cluster to ``events`` and to the digest."""
        super().say(text)
        self._digest = zlib.crc32(text.encode(), self._digest)

    @property
    def digest(self) -> int:
        """A checksum of the run. It covers the time of every turn of every node, and the state of the
        node's logs after it."""
        return self._digest

    # ------------------------------------------------------------------------------- the checkers

    def watch_with(self, checkers: Sequence[Checker]) -> None:
        """Let these checkers watch the world from now on, in place of the present ones."""
        self._standard = False
        self._watch_with(checkers)

    def _watch_with(self, checkers: Sequence[Checker]) -> None:
        self.checkers = list(checkers)
        self._start_checkers = overriding(checkers, "started")
        self._stop_checkers = overriding(checkers, "stopped")
        self._node_checkers = overriding(checkers, "node_turn")
        self._disk_checkers = overriding(checkers, "disk_call")
        self._server_checkers = overriding(checkers, "server_turn")
        self._controller_checkers = overriding(checkers, "controller_turn")
        self._settle_checkers = overriding(checkers, "settled")
        self._read_checkers = overriding(checkers, "read")
        self._message_checkers = overriding(checkers, "message")
        self._sent_checkers = overriding(checkers, "sent")
        self._unrest_checkers = overriding(checkers, "unrest")
        self._swap_checkers = overriding(checkers, "swapped")
        self._clean_checkers = overriding(checkers, "cleaned")
        self.network.observer = self._on_message if self._message_checkers else None
        self.network.sending = self._on_sending if self._sent_checkers else None

    def node_started(self, machine: Machine) -> None:
        """Show the checkers a node that opened its logs."""
        for checker in self._start_checkers:
            checker.started(self, machine)

    def node_stopping(self, machine: Machine, how: str) -> None:
        """Show the checkers a node that is about to end."""
        for checker in self._stop_checkers:
            checker.stopped(self, machine, how)

    def disk_called(self, machine: Machine) -> None:
        """Show the checkers a node before a disk call that may end it."""
        for checker in self._disk_checkers:
            checker.disk_call(self, machine)

    def swapped(self, machine: Machine, swap: Swap) -> None:
        """Show the checkers a swap of compaction."""
        for checker in self._swap_checkers:
            checker.swapped(self, machine, swap)

    def cleaned(self, machine: Machine, key: PartitionKey, log: Log, end: int) -> None:
        """Show the checkers the end of a pass of compaction."""
        for checker in self._clean_checkers:
            checker.cleaned(self, machine, key, log, end)

    def _on_message(self, source: Address, target: Address, message: object) -> None:
        for checker in self._message_checkers:
            checker.message(self, source, target, message)

    def _on_sending(self, source: Address, target: Address, message: object) -> None:
        self._sendings.append((source, target, message))  # a member in its turn would catch what a checker raises

    def turn_ended(self, address: Address, member: Member) -> None:
        """Call the checkers after a turn that changed something."""
        if isinstance(member, MachineServer):
            for checker in self._server_checkers:
                checker.server_turn(self, member.machine)
        if self._sendings:
            sendings, self._sendings = self._sendings, []
            for sending in sendings:
                for checker in self._sent_checkers:
                    checker.sent(self, *sending)
        if isinstance(member, Machine):
            node = member.node
            if node is not None and self._take_into_digest(address, member, node):
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
        elif isinstance(member, MachineServer) and self.image.offset != self._controller_seen:
            self._controller_seen = self.image.offset
            for checker in self._controller_checkers:
                checker.controller_turn(self, self.image)

    def _take_into_digest(self, address: Address, machine: Machine, node: Node) -> bool:
        """Add the turn to the digest; return whether it changed anything that a checker looks at."""
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

    def broken(self, rule: str, about: str) -> None:
        """Raise :class:`InvariantBroken` for invariant ``rule``."""
        kind = INVARIANTS.get(rule)
        says = "" if kind is None else kind.says
        raise InvariantBroken(rule, about, self.seed, self.clock.monotonic_ns(), self.events, self.replay, says)

    @property
    def lost(self) -> Mapping[TopicPartition, Mapping[int, None]]:
        """Replicas that lost data, as the acknowledgement table allows, and have not been in sync since."""
        return self._losses.lost

    @property
    def rotten(self) -> Mapping[tuple[TopicPartition, int], None]:
        """Replicas that may have lost more than a torn tail without their node knowing it."""
        return self._losses.rotten

    def promises(self, attempt: Attempt) -> bool:
        """Return whether the acknowledgement table promises that the record stays. With acks=1 it
        promises nothing once another replica leads."""
        return attempt.acks == -1 or self.topic_options(attempt.topic_partition.topic).replication_factor == 1

    # ------------------------------------------------------------------------------------ the run

    def run(self) -> None:
        """Run the safety phase, then the liveness phase. Raises :class:`InvariantBroken`."""
        self._as_command = self._standard and not self._other_parts and self._done() == self._made
        nemesis = Nemesis(self)
        nemesis.start()
        self.compactions.start()
        self.run_for(self.options.safety_ms)
        self.run_until(lambda: self.turns >= self.options.events_min, self.options.liveness_ms)
        nemesis.stop()
        self.compactions.stop()
        for producer in self.producers:
            producer.begin_again()
            self._after(producer.address)
        self.healed_ns = self.clock.monotonic_ns()
        self.say("everything is healed")
        if not self.run_until(self._quiet, self.options.liveness_ms):
            self.broken(*self._unrest())
        if any(topic.compacts for topic in self.options.topics):
            self._end_of_compaction()
        for checker in self.checkers:
            checker.final(self)

    def _end_of_compaction(self) -> None:
        """Compact all copies once more. A new reader must get the newest record of each key, and come to the end."""
        self.compactions.finish()
        self._add_consumer(self.node_addresses)
        if not self.run_until(self._quiet, self.options.liveness_ms):
            self.broken(*self._unrest())

    def _quiet(self) -> bool:
        return not self._unrest()[1]

    def _unrest(self) -> tuple[str, str]:
        """Return the first liveness condition that does not hold yet, and the reason; empty if all hold."""
        for checker in self._unrest_checkers:
            about = checker.unrest(self)
            if about:
                return checker.numbers[0], about
        return "", ""

    def about(self) -> str:
        """Return the options of the run as text, one line for each group."""
        options = self.options
        voters = f"{options.voters} voters{' apart' if options.apart else ''}"
        lines = [
            f"seed {self.seed}: {options.nodes} nodes, {voters}, {options.safety_ms} ms,"
            f" {len(self.producers)} producers"
        ]
        if options.old_nodes or options.clock_error_ppm:
            lines.append(f"  {options.old_nodes} old nodes, clocks wrong by up to {options.clock_error_ppm} ppm")
        lines += [f"  {topic}" for topic in options.topics]
        lines += [f"  {options.network}", f"  {options.faults}", f"  {options.config}"]
        return "\n".join(lines)
