"""A whole cluster in one process, driven by a seed: nodes, controller, clients, network, disks and
faults on one simulated clock.

``World(seed).run()`` draws its options from the seed. It runs a *safety* phase in which things break
(never more than the acknowledgement table allows), then heals everything and runs a *liveness* phase
until all is quiet; checkers look on all the time. A broken invariant is an :class:`InvariantBroken`
that names the seed and the command that repeats the run. The same seed gives the same run, to the
last byte.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from random import Random

from pyreplog.client import Consumer
from pyreplog.controller import Controller
from pyreplog.log import Log
from pyreplog.node import MetadataListener, Node
from pyreplog.ports import Address
from pyreplog.replica import Replica
from pyreplog.testing.checkers import INVARIANTS, Checker, InvariantBroken, overriding, standard_checkers
from pyreplog.testing.machine import Machine, Member
from pyreplog.testing.nemesis import Nemesis
from pyreplog.testing.options import WorldOptions, differing
from pyreplog.testing.sim_cluster import SimCluster
from pyreplog.testing.workload import Attempt, SimConsumer, SimProducer
from pyreplog.values import TopicPartition

__all__ = ["World"]


class World(SimCluster):
    """See the module's text.

    ``options``: what the cluster is and which faults occur; None draws them from the seed. ``checkers``:
    None means :func:`standard_checkers`. ``replica_class``, ``log_class``, ``controller_class``,
    ``metadata_class`` and ``consumer_class`` put known-bad variants in the place of the real classes.
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
        checkers: Sequence[Checker] | None = None,
        replay: str = "",
    ) -> None:
        super().__init__(
            seed,
            # Drawn from a source of its own, so that the same seed with given options goes on as it
            # did with drawn ones.
            options if options is not None else WorldOptions.drawn(Random(seed)),
            replica_class=replica_class,
            log_class=log_class,
            controller_class=controller_class,
            metadata_class=metadata_class,
            consumer_class=consumer_class,
        )
        self._replay = replay
        self._options_given = options is not None
        self._standard = options is None and checkers is None and type(self) is World
        """Whether the seed alone made this world: a caller that gives, adds or replaces a part clears it."""
        self._as_command = False
        """Whether :meth:`run` does what ``python -m pyreplog.testing --seed N`` does."""
        standard = (Replica, Log, Controller, MetadataListener, Consumer)
        parts = {
            "replica_class": replica_class,
            "log_class": log_class,
            "controller_class": controller_class,
            "metadata_class": metadata_class,
            "consumer_class": consumer_class,
        }
        self._other_parts = [f"{name}={part.__name__}" for name, part in parts.items() if part not in standard]
        self.seen: dict[str, int] = {}
        """How often the run reached each situation that :class:`pyreplog.testing.checkers.Sightings` counts."""
        self.healed_ns = 0
        """When the liveness phase began."""
        self._digest = 0
        self._controller_seen = -1
        self._watch_with(standard_checkers() if checkers is None else checkers)
        self._begin()
        self._made = self._done()

    def _done(self) -> tuple[int, int, int]:
        """How much was done to the world so far, as counts."""
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

    def join(self, member: Member, *addresses: Address) -> None:
        """Add a program, as :meth:`SimCluster.join` says."""
        self._standard = False
        super().join(member, *addresses)

    def say(self, text: str) -> None:
        """Add an action on the cluster to ``events`` and to the digest."""
        super().say(text)
        self._digest = zlib.crc32(text.encode(), self._digest)

    @property
    def digest(self) -> int:
        """A number that tells two runs apart. It covers the time of every turn of every node, and the
        state of the node's logs after it."""
        return self._digest

    # ------------------------------------------------------------------------------- the checkers

    def watch_with(self, checkers: Sequence[Checker]) -> None:
        """Let these checkers look on from now on, and no others."""
        self._standard = False
        self._watch_with(checkers)

    def _watch_with(self, checkers: Sequence[Checker]) -> None:
        self.checkers = list(checkers)
        self._start_checkers = overriding(checkers, "started")
        self._stop_checkers = overriding(checkers, "stopped")
        self._node_checkers = overriding(checkers, "node_turn")
        self._disk_checkers = overriding(checkers, "disk_call")
        self._controller_checkers = overriding(checkers, "controller_turn")
        self._settle_checkers = overriding(checkers, "settled")
        self._read_checkers = overriding(checkers, "read")
        self._message_checkers = overriding(checkers, "message")
        self._unrest_checkers = overriding(checkers, "unrest")
        self.network.observer = self._on_message if self._message_checkers else None

    def node_started(self, machine: Machine) -> None:
        """Show the checkers a node that opened its logs."""
        for checker in self._start_checkers:
            checker.started(self, machine)

    def node_stopping(self, machine: Machine, how: str) -> None:
        """Show the checkers a node that is about to go."""
        for checker in self._stop_checkers:
            checker.stopped(self, machine, how)

    def disk_called(self, machine: Machine) -> None:
        """Show the checkers a node before a disk call that may end it."""
        for checker in self._disk_checkers:
            checker.disk_call(self, machine)

    def _on_message(self, source: Address, target: Address, message: object) -> None:
        for checker in self._message_checkers:
            checker.message(self, source, target, message)

    def turn_ended(self, address: Address, member: Member) -> None:
        """Show the checkers what a turn changed."""
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
        elif member is self and self.endpoint is not None and self.image.offset != self._controller_seen:
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
        """Raise :class:`InvariantBroken`."""
        kind = INVARIANTS.get(rule)
        says = "" if kind is None else kind.says
        raise InvariantBroken(rule, about, self.seed, self.clock.monotonic_ns(), self.events, self.replay, says)

    @property
    def lost(self) -> Mapping[TopicPartition, Mapping[int, None]]:
        """Replicas that lost data that the table allows them to lose, and have not been in sync since."""
        return self._losses.lost

    @property
    def rotten(self) -> Mapping[tuple[TopicPartition, int], None]:
        """Those of them that may have lost more than a torn tail without their node knowing it."""
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
        """Return the first invariant that is not yet quiet and whole, and the reason; empty when all are."""
        for checker in self._unrest_checkers:
            about = checker.unrest(self)
            if about:
                return checker.numbers[0], about
        return "", ""

    def about(self) -> str:
        """Return the options in words."""
        options = self.options
        lines = [f"seed {self.seed}: {options.nodes} nodes, {options.safety_ms} ms, {len(self.producers)} producers"]
        lines += [f"  {topic}" for topic in options.topics]
        lines += [f"  {options.network}", f"  {options.faults}", f"  {options.config}"]
        return "\n".join(lines)
