"""A metadata quorum in one process, driven by a seed: voters, observers, network, disks and faults on one clock.

``QuorumWorld(seed).run()`` draws its options from the seed. It runs a safety phase with faults (never more than a
minority of voters loses its disks), then heals everything and runs until the quorum is quiet: one leader, every log
equal, every change of the voters done. :class:`~pyreplog.testing.quorum.model.QuorumModel` watches both. The same
seed gives the same run.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from pyreplog.ports import Address
from pyreplog.quorum import RaftNode, Voter, VoterSet
from pyreplog.testing.checkers import InvariantBroken
from pyreplog.testing.clock import SimClock
from pyreplog.testing.network import SimNetwork, materialise
from pyreplog.testing.options import differing
from pyreplog.testing.quorum.machine import QuorumMachine
from pyreplog.testing.quorum.model import QuorumModel, VoterKey
from pyreplog.testing.quorum.nemesis import QuorumNemesis
from pyreplog.testing.quorum.operator import OPERATOR_ADDRESS, QuorumOperator
from pyreplog.testing.quorum.options import QuorumWorldOptions
from pyreplog.wire import Request, Response
from pyreplog.wire.binary import Reader, Writer
from pyreplog.wire.codec import decode_value, encode_value

__all__ = ["QuorumWorld"]

_MS: Final = 1_000_000
FAR_NS: Final = 1 << 62
TURNS_MAX: Final = 2_000_000
LEAVING_NS: Final = 10_000_000_000
"""For so long the removal of a voter that was asked for may still happen."""
LOAD_AFTER_HEALING: Final = 10
"""The load goes on for so many of its intervals after everything is healed."""


class QuorumWorld:
    """A simulated quorum with a load, faults and a model; one seed determines its run.

    ``options`` None draws them from the seed. ``node_class`` replaces the real machine by a known-bad variant.
    """

    def __init__(
        self, seed: int, options: QuorumWorldOptions | None = None, *, node_class: type[RaftNode] = RaftNode
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self._given = options is not None
        self.options = options if options is not None else QuorumWorldOptions.drawn(Random(seed))
        self.node_class = node_class
        self.clock = SimClock()
        self.network = SimNetwork(
            self.clock,
            Random(self.random.getrandbits(64)),
            self.options.network,
            materialise=through_bytes if self.options.through_bytes else materialise,
        )
        self.model = QuorumModel(self.broken)
        self.events: list[str] = []
        """Every action on the quorum with its time, in words."""
        self.faults: dict[str, int] = {}
        """How often each fault occurred."""
        self.on_leader: dict[str, int] = {}
        """How often each fault of one node hit the leader."""
        self.turns = 0
        """Turns of nodes, deliveries and planned calls: the events of the run."""
        self.appends = 0
        self.digest = 0
        self.loading = True
        """Whether clients append and read."""
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._wakes: dict[Address, int] = {}
        self.machines: dict[int, QuorumMachine] = {}
        self._begin()

    def _begin(self) -> None:
        options = self.options
        count = options.voters + options.observers
        for node_id in range(1, count + 1):
            self.machines[node_id] = QuorumMachine(self, node_id)
        voting = [self.machines[node_id] for node_id in range(1, options.voters + 1)]
        voters = VoterSet(Voter.at(machine.key, machine.address) for machine in voting)
        for machine in self.machines.values():
            machine.format(voters if machine.node_id <= options.voters else None)
        self.operator = QuorumOperator(
            self, Random(self.random.getrandbits(64)), [machine.node_id for machine in voting]
        )
        for machine in self.machines.values():
            self.start(machine.node_id)
        self._wakes[OPERATOR_ADDRESS] = self.clock.monotonic_ns()
        self.plan(self.random.random() * options.append_interval_ms, self._load)

    # ------------------------------------------------------------------------------- for its parts

    def say(self, text: str) -> None:
        """Add an action on the quorum to ``events``."""
        self.events.append(f"{self.clock.monotonic_ns() / 1e9:9.4f} s  {text}")

    def broken(self, rule: str, about: str) -> None:
        """Raise :class:`InvariantBroken`."""
        replay = f"python -m pyreplog.testing --quorum --seed {self.seed}"
        if self._given or self.node_class is not RaftNode:
            given = f", {differing(self.options)}" if self._given else ""
            wrong = "" if self.node_class is RaftNode else f", node_class={self.node_class.__name__}"
            replay = f"QuorumWorld({self.seed}{given}{wrong}).run() in your program"
        raise InvariantBroken(rule, about, self.seed, self.clock.monotonic_ns(), self.events, replay)

    def bootstrap(self, node_id: int) -> Sequence[Address]:
        """Return the addresses that a node without voters asks."""
        return [machine.address for machine in self.machines.values() if machine.node_id != node_id]

    def failed(self, machine: QuorumMachine, error: Exception) -> None:
        """End a node whose files failed; it is started again later."""
        self.say(f"node {machine.node_id} ends: {error}")
        if not machine.disk_failed:
            self.broken("files", f"node {machine.node_id} failed without a fault of its disk: {error!r}")
        self.kill(machine.node_id, silent=False)
        self.plan(self.random.random() * self.options.faults.lasting_ms, lambda: self.start(machine.node_id))

    @property
    def leader(self) -> QuorumMachine | None:
        """The node that leads the newest epoch; None if no running node leads."""
        found = [machine for machine in self.machines.values() if machine.leads]
        return max(found, key=lambda machine: machine.node.epoch if machine.node else -1, default=None)

    def voting(self) -> list[int]:
        """Return the ids of the nodes that the leader, else any node, has as voters."""
        found = [machine.node for machine in self.machines.values() if machine.node is not None and machine.node.voters]
        if not found:
            return list(self.operator.wanted)
        newest = max(found, key=lambda node: (node.is_leader, node.epoch))
        return [voter.node_id for voter in newest.voters]

    def may_wipe(self, node_id: int) -> bool:
        """Return whether every voter set in use, or soon in use, keeps the disks of a majority without this node's."""
        alive = self._disks()
        alive.discard((node_id, self.machines[node_id].directory_id))
        since = self.clock.monotonic_ns() - LEAVING_NS
        leaving = [key for key, asked in self.operator.leaving.items() if asked >= since]
        return all(
            2 * len(rest & alive) > len(rest)
            for voters in self.model.voter_sets()
            for rest in (voters, *(voters - {key} for key in leaving))
            if rest
        )

    def may_remove(self, node_id: int) -> bool:
        """Return whether the voters without this node, in every set in use, keep the disks of a majority."""
        alive = self._disks()
        key = (node_id, self.machines[node_id].directory_id)
        return all(
            2 * len((voters - {key}) & alive) > len(voters - {key}) for voters in self.model.voter_sets() if voters
        )

    def _disks(self) -> set[VoterKey]:
        return {(one.node_id, one.directory_id) for one in self.machines.values() if not one.injured}

    # ----------------------------------------------------------------------------------- accidents

    def start(self, node_id: int) -> None:
        """Start a node that is down."""
        machine = self.machines[node_id]
        if machine.node is None:
            machine.start()
            self._after(machine)
            if machine.injured:
                self.say(f"node {node_id} does not vouch for its files: its disk is replaced")
                self.plan(self.random.random() * self.options.faults.lasting_ms, lambda: self._replace_disk(machine))

    def _replace_disk(self, machine: QuorumMachine) -> None:
        if machine.injured:
            self.wipe(machine.node_id)
            self.start(machine.node_id)

    def kill(self, node_id: int, *, silent: bool) -> None:
        """Kill a node's process."""
        self.machines[node_id].kill(silent=silent)
        self._wakes.pop(self.machines[node_id].address, None)

    def lose_power(self, node_id: int, *, silent: bool = True) -> None:
        """Cut the power of a node."""
        self.machines[node_id].lose_power(silent=silent)
        self._wakes.pop(self.machines[node_id].address, None)

    def stop(self, node_id: int) -> None:
        """Shut a node down in order."""
        self.machines[node_id].stop()
        self._wakes.pop(self.machines[node_id].address, None)

    def wipe(self, node_id: int) -> None:
        """Give a node an empty disk. REQUIRES :meth:`may_wipe`."""
        self.machines[node_id].wipe()
        self._wakes.pop(self.machines[node_id].address, None)

    # ------------------------------------------------------------------------------------ the loop

    def plan(self, after_ms: float, call: Callable[[], None]) -> None:
        """Call ``call`` in ``after_ms`` milliseconds."""
        self._sequence += 1
        heapq.heappush(self._plans, (self.clock.monotonic_ns() + int(after_ms * _MS), self._sequence, call))

    def touch(self, machine: QuorumMachine) -> None:
        """Give a node a turn, because a caller changed something there."""
        self.turns += 1
        machine.poll()
        self._after(machine)

    def step(self) -> None:
        """Advance the clock to the next event, and handle all events of that moment."""
        if self.turns > TURNS_MAX:
            self.broken("liveness", f"no end after {TURNS_MAX} events")
        network, plans = self.network, self._plans
        arrival = network.next_arrival_ns
        moment = min(self._wakes.values(), default=FAR_NS)
        if arrival is not None:
            moment = min(moment, arrival)
        if plans:
            moment = min(moment, plans[0][0])
        self.clock.advance_to(moment)
        now = self.clock.monotonic_ns()
        due = dict.fromkeys(network.deliver_due()) if arrival is not None and arrival <= now else {}
        while plans and plans[0][0] <= now:
            self.turns += 1
            heapq.heappop(plans)[2]()
        for address, wake in self._wakes.items():
            if wake <= now:
                due[address] = None
        for address in due:
            self._turn(address)

    def _turn(self, address: Address) -> None:
        self.turns += 1
        if address == OPERATOR_ADDRESS:
            self.operator.poll()
            wake = self.operator.next_wake_ns
            self._wakes[address] = FAR_NS if wake is None else max(wake, self.clock.monotonic_ns() + 1)
            return
        machine = next((one for one in self.machines.values() if one.address == address), None)
        if machine is not None:
            machine.poll()
            self._after(machine)

    def _after(self, machine: QuorumMachine) -> None:
        if machine.node is None:
            self._wakes.pop(machine.address, None)
            return
        wake = machine.next_wake_ns
        now = self.clock.monotonic_ns()
        self._wakes[machine.address] = FAR_NS if wake is None else max(wake, now + 1)
        node = machine.node
        text = f"{now} {machine.address} {node.role_name} {node.epoch} {node.log_end_offset} {node.high_watermark}"
        self.digest = zlib.crc32(text.encode(), self.digest)

    def run_until(self, done: Callable[[], bool], within_ms: float) -> bool:
        """Step until ``done()`` or until the time is over; return whether it was done."""
        end = self.clock.monotonic_ns() + int(within_ms * _MS)
        while not done():
            if self.clock.monotonic_ns() >= end:
                return False
            self.step()
        return True

    def run_for(self, ms: float) -> None:
        """Step for ``ms`` milliseconds."""
        self.run_until(lambda: False, ms)

    # ------------------------------------------------------------------------------------ the load

    def _load(self) -> None:
        """Let each node that believes to lead append records, or begin a read."""
        options, random = self.options, self.random
        if not self.loading:
            return
        for machine in self.machines.values():
            if not machine.leads:
                continue
            assert machine.node is not None
            if random.random() < options.read_share:
                machine.prove()
            else:
                self.appends += 1
                count = random.randint(1, options.records_max)
                machine.append(
                    [
                        b"%d %d %d " % (machine.node.epoch, self.appends, number)
                        + random.randbytes(random.randint(0, options.value_size_max))
                        for number in range(count)
                    ]
                )
            self._after(machine)
        self.plan(random.random() * 2 * options.append_interval_ms, self._load)

    # ------------------------------------------------------------------------------------- the run

    def run(self) -> None:
        """Run the safety phase, then the liveness phase. Raises :class:`InvariantBroken`."""
        nemesis = QuorumNemesis(self)
        nemesis.start()
        self.run_for(self.options.safety_ms)
        nemesis.stop()
        self.say("everything is healed")
        self.run_for(self.options.append_interval_ms * LOAD_AFTER_HEALING)
        self.loading = False
        self._must_become_quiet()
        leader = self.leader
        assert leader is not None
        leader.append([b"the last record"])
        self._after(leader)
        self._must_become_quiet()
        self.model.final()
        if self.model.values.get(self.model.acknowledged_end - 1) != b"the last record":
            self.broken("L9", "an append to a healthy quorum was not committed")

    def _must_become_quiet(self) -> None:
        if not self.run_until(lambda: not self.unrest(), self.options.liveness_ms):
            self.broken("L9", self.unrest())

    def unrest(self) -> str:
        """Return the first condition of a quiet quorum without load that does not hold yet; empty if all hold."""
        leader = self.leader
        if leader is None or leader.node is None:
            return "no node leads"
        if not self.operator.settled():
            voters = [tuple(voter.key) for voter in leader.node.voters]
            return f"the voters are {voters}, and {self.operator.wanted} are wanted"
        for machine in self.machines.values():
            node = machine.node
            if node is None:
                return f"node {machine.node_id} is down"
            if node.leader_id != leader.node_id or node.epoch != leader.node.epoch:
                return (
                    f"node {machine.node_id} ({node.role_name}) follows {node.leader_id} in epoch {node.epoch},"
                    f" and {leader.node_id} leads in {leader.node.epoch}"
                )
            if node.voters != leader.node.voters:
                return f"node {machine.node_id} has other voters than the leader"
            end = leader.node.log_end_offset
            if not node.log_end_offset == node.high_watermark == machine.fold.end == end:
                return (
                    f"node {machine.node_id} ends at {node.log_end_offset}, knows the high watermark"
                    f" {node.high_watermark} and applied up to {machine.fold.end}; the leader's log ends at {end}"
                )
        return ""

    def answered(self, machine: QuorumMachine, response: Response) -> None:
        """Called for a response that no node asked for; there is none."""

    def about(self) -> str:
        """Return the options of the run as text."""
        options = self.options
        return (
            f"seed {self.seed}: {options.voters} voters, {options.observers} observers, {options.safety_ms} ms,"
            f" an operation each {options.append_interval_ms} ms{', through bytes' if options.through_bytes else ''}\n"
            f"  {options.network}\n  {options.faults}\n  {options.config}"
        )


def through_bytes(message: object) -> object:
    """Return a message with the body that its bytes in Kafka's protocol have."""
    if not isinstance(message, Request | Response):
        return materialise(message)
    out = Writer()
    encode_value(out, message.body)
    body = decode_value(Reader(b"".join(out.parts())), type(message.body))
    return type(message)(message.source, message.correlation_id, body)
