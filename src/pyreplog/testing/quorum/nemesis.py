"""The nemesis of a simulated quorum: it injects faults, within the limit of a minority of lost disks."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from pyreplog.testing.network import SimNetwork
from pyreplog.testing.quorum.machine import QuorumMachine
from pyreplog.testing.quorum.operator import QuorumOperator
from pyreplog.testing.quorum.options import QuorumFaultRates, QuorumWorldOptions

__all__ = ["QuorumNemesis"]

FULL_SLACK_BYTES = 400
"""Room that a disk which becomes full still has."""


class QuorumNemesisHost(Protocol):
    """The parts of the world that the nemesis needs."""

    @property
    def random(self) -> Random: ...
    @property
    def options(self) -> QuorumWorldOptions: ...
    @property
    def network(self) -> SimNetwork: ...
    @property
    def machines(self) -> Mapping[int, QuorumMachine]: ...
    @property
    def leader(self) -> QuorumMachine | None: ...
    @property
    def operator(self) -> QuorumOperator: ...
    @property
    def faults(self) -> dict[str, int]: ...
    @property
    def on_leader(self) -> dict[str, int]: ...
    def say(self, text: str) -> None: ...
    def voting(self) -> list[int]: ...
    def may_wipe(self, node_id: int) -> bool: ...
    def start(self, node_id: int) -> None: ...
    def kill(self, node_id: int, *, silent: bool) -> None: ...
    def lose_power(self, node_id: int, *, silent: bool = True) -> None: ...
    def stop(self, node_id: int) -> None: ...
    def wipe(self, node_id: int) -> None: ...
    def touch(self, machine: QuorumMachine) -> None: ...
    def plan(self, after_ms: float, call: Callable[[], None]) -> None: ...


class QuorumNemesis:
    """Injects faults from :meth:`start` until :meth:`stop`, which heals everything."""

    def __init__(self, world: QuorumNemesisHost) -> None:
        self._world = world
        self._random = world.random
        self._rates = world.options.faults
        self._going = False

    def start(self) -> None:
        """Begin to inject faults."""
        self._going = True
        if any(getattr(self._rates, kind) for kind in QuorumFaultRates.kinds()):
            self._plan()

    def stop(self) -> None:
        """Inject no more faults: heal the network and the disks, start every node."""
        self._going = False
        world = self._world
        network = world.network
        network.heal()
        network.options = type(network.options)(
            delay_min_ns=network.options.delay_min_ns, delay_max_ns=network.options.delay_max_ns
        )
        for machine in world.machines.values():
            machine.disk.clear_faults()
            machine.disk.capacity = None
            if machine.paused:
                machine.paused = False
                world.touch(machine)
            world.start(machine.node_id)

    # ----------------------------------------------------------------------------------- its turns

    def _plan(self) -> None:
        self._world.plan(self._random.random() * 2 * self._rates.interval_ms, self._strike)

    def _strike(self) -> None:
        if not self._going:
            return
        kinds = QuorumFaultRates.kinds()
        (kind,) = self._random.choices(kinds, [getattr(self._rates, one) for one in kinds])
        call: Callable[[], bool] = getattr(self, f"_{kind}")
        if call():
            self._world.faults[kind] = self._world.faults.get(kind, 0) + 1
        self._plan()

    def _later(self, call: Callable[[], None]) -> None:
        def act() -> None:
            if self._going:
                call()

        self._world.plan(self._random.random() * self._rates.lasting_ms, act)

    def _back(self, node_id: int) -> None:
        self._later(lambda: self._world.start(node_id))

    def _victim(self, kind: str, *, up: bool = True) -> QuorumMachine | None:
        """Return the node that a fault hits: often the leader."""
        world = self._world
        leader = world.leader
        if leader is not None and self._random.random() < self._rates.hits_leader:
            world.on_leader[kind] = world.on_leader.get(kind, 0) + 1
            return leader
        found = [machine for machine in world.machines.values() if machine.node is not None or not up]
        return self._random.choice(found) if found else None

    def _silent(self) -> bool:
        return self._random.random() >= self._world.options.told_of_kills

    def _majority(self) -> list[int]:
        voting = self._world.voting()
        return self._random.sample(voting, len(voting) // 2 + 1)

    # ---------------------------------------------------------------------------------- its faults

    def _kill(self) -> bool:
        machine = self._victim("kill")
        if machine is None:
            return False
        silent = self._silent()
        self._world.say(f"kill node {machine.node_id}{' in silence' if silent else ''}")
        self._world.kill(machine.node_id, silent=silent)
        self._back(machine.node_id)
        return True

    def _power_loss(self) -> bool:
        machine = self._victim("power_loss")
        if machine is None:
            return False
        self._world.say(f"power loss of node {machine.node_id}")
        self._world.lose_power(machine.node_id, silent=self._silent())
        self._back(machine.node_id)
        return True

    def _clean_restart(self) -> bool:
        machine = self._victim("clean_restart")
        if machine is None or machine.paused:
            return False
        self._world.say(f"clean stop of node {machine.node_id}")
        self._world.stop(machine.node_id)
        self._back(machine.node_id)
        return True

    def _wipe(self) -> bool:
        machine = self._victim("wipe")
        if machine is None or not self._world.may_wipe(machine.node_id):
            return False
        self._world.say(f"empty disk for node {machine.node_id}")
        self._world.wipe(machine.node_id)
        self._back(machine.node_id)
        return True

    def _kill_majority(self) -> bool:
        majority = self._majority()
        power = self._random.random() < 0.5
        self._world.say(f"{'power loss of' if power else 'kill'} nodes {majority}")
        for node_id in majority:
            if self._world.machines[node_id].node is None:
                continue
            if power:
                self._world.lose_power(node_id)
            else:
                self._world.kill(node_id, silent=self._silent())
        for node_id in majority:
            self._back(node_id)
        return True

    def _power_loss_of_all(self) -> bool:
        self._world.say("power loss of all nodes")
        for machine in self._world.machines.values():
            if machine.node is not None:
                self._world.lose_power(machine.node_id)
            self._back(machine.node_id)
        return True

    def _cut(self) -> bool:
        one = self._victim("cut", up=False)
        others = [machine for machine in self._world.machines.values() if machine is not one]
        if one is None or not others:
            return False
        other = self._random.choice(others)
        network, both = self._world.network, self._random.random() < 0.4
        source, target = (one, other) if self._random.random() < 0.5 else (other, one)
        self._world.say(f"cut {source.address} {'<->' if both else '->'} {target.address}")
        network.cut(source.address, target.address)
        if both:
            network.cut(target.address, source.address)

        def heal() -> None:
            network.link(source.address, target.address).cut = False
            network.link(target.address, source.address).cut = False

        self._later(heal)
        return True

    def _isolate(self) -> bool:
        """Cut one node off; in one direction only, half of the time."""
        one = self._victim("isolate", up=False)
        if one is None:
            return False
        network, direction = self._world.network, self._random.choice(["in", "out", "both", "both"])
        self._world.say(f"isolate node {one.node_id}, {direction}")
        others = [machine.address for machine in self._world.machines.values() if machine is not one]
        for other in others:
            if direction != "in":
                network.cut(one.address, other)
            if direction != "out":
                network.cut(other, one.address)

        def heal() -> None:
            for other in others:
                network.link(one.address, other).cut = False
                network.link(other, one.address).cut = False

        self._later(heal)
        return True

    def _partition(self) -> bool:
        """Part the nodes into two groups; the leader is in the smaller one half of the time."""
        addresses = [machine.address for machine in self._world.machines.values()]
        if len(addresses) < 2:
            return False
        self._random.shuffle(addresses)
        leader = self._world.leader
        if leader is not None and self._random.random() < 0.5:
            addresses.sort(key=lambda address: address != leader.address)
        size = self._random.randint(1, len(addresses) // 2)
        one, other = addresses[:size], addresses[size:]
        self._world.say(f"part {one} from {other}")
        network = self._world.network
        network.partition(one, other)

        def heal() -> None:
            for source in one:
                for target in other:
                    network.link(source, target).cut = False
                    network.link(target, source).cut = False

        self._later(heal)
        return True

    def _slow_link(self) -> bool:
        machines = list(self._world.machines.values())
        if len(machines) < 2:
            return False
        one, other = self._random.sample(machines, 2)
        delay_ms = self._random.choice([5, 50, 400])
        self._world.say(f"{delay_ms} ms from {one.address} to {other.address}")
        network = self._world.network
        network.slow(one.address, other.address, delay_ms * 1_000_000)
        self._later(lambda: network.slow(one.address, other.address, 0))
        return True

    def _pause(self) -> bool:
        machine = self._victim("pause")
        if machine is None or machine.paused:
            return False
        self._world.say(f"pause node {machine.node_id}")
        machine.paused = True

        def resume() -> None:
            if machine.paused:
                machine.paused = False
                self._world.touch(machine)

        self._later(resume)
        return True

    def _io_error(self) -> bool:
        machine = self._victim("io_error")
        if machine is None or not self._world.may_wipe(machine.node_id):
            return False
        kind = self._random.choice(["sync", "sync", "write", "rename", "sync_directory", "create"])
        self._world.say(f"the next {kind} of node {machine.node_id} fails")
        machine.fail_disk(kind, error=errno.EIO)
        return True

    def _disk_full(self) -> bool:
        machine = self._victim("disk_full")
        if machine is None:
            return False
        self._world.say(f"the disk of node {machine.node_id} is full")
        machine.disk_failed = True
        disk = machine.disk
        disk.capacity = disk.used + self._random.randint(0, FULL_SLACK_BYTES)

        def free() -> None:
            disk.capacity = None

        self._later(free)
        return True

    def _resign(self) -> bool:
        leader = self._world.leader
        if leader is None:
            return False
        self._world.say(f"node {leader.node_id} resigns")
        leader.resign()
        self._world.touch(leader)
        return True

    def _voter_change(self) -> bool:
        """Let the operator want another set of voters, or update one."""
        world = self._world
        operator = world.operator
        wanted = operator.wanted
        others = [node_id for node_id in world.machines if node_id not in wanted]
        choice = self._random.random()
        if choice < 0.4 and others:
            operator.wanted = sorted([*wanted, self._random.choice(others)])
        elif choice < 0.8 and len(wanted) > 1 and len(wanted) > world.options.voters - 2:
            leaving = self._random.choice(wanted)
            operator.wanted = [node_id for node_id in wanted if node_id != leaving]
        elif choice < 0.9 and others and len(wanted) > 1:
            leaving = self._random.choice(wanted)
            operator.wanted = sorted([*(one for one in wanted if one != leaving), self._random.choice(others)])
            operator.two_at_once()
        else:
            operator.update(self._random.choice(wanted))
        world.say(f"voters wanted: {operator.wanted}")
        return True

    def _snapshot(self) -> bool:
        machine = self._victim("snapshot")
        if machine is None or machine.paused or not machine.write_snapshot():
            return False
        self._world.say(f"snapshot of node {machine.node_id} at {machine.fold.end}")
        self._world.touch(machine)
        return True
