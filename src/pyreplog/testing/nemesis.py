"""The nemesis, which injects the faults of a simulated cluster.

It draws their kind, time and duration from the cluster's ``random``, within the limits of the acknowledgement table.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pyreplog.testing.changes import TopicEvents
from pyreplog.testing.machine import Machine
from pyreplog.testing.sim_cluster import SimCluster

__all__ = ["Nemesis"]

READ_EVERY_MS: Final = 150


class Nemesis:
    """Injects faults into a cluster from :meth:`start` until :meth:`stop`, which heals everything."""

    def __init__(self, world: SimCluster) -> None:
        self._world = world
        self._random = world.random
        self._rates = world.options.faults
        self._going = False
        self._struck: Sequence[int] = ()
        """The nodes that the latest fault struck."""
        self._latest: dict[str, dict[int, int]] = {}
        """By kind of fault: when it last struck each voter."""
        self._topics = TopicEvents(world, world.random)
        self._kinds: dict[str, Callable[[], bool]] = {
            "kill": self._kill,
            "power_loss": self._power_loss,
            "clean_restart": self._clean_restart,
            "wipe": self._wipe,
            "kill_all": self._kill_all,
            "power_loss_of_all": self._power_loss_of_all,
            "cut": self._cut,
            "isolate": self._isolate,
            "slow_link": self._slow_link,
            "slow_disk": self._slow_disk,
            "controller_restart": self._controller_restart,
            "pause": self._pause,
            "clock_jump": self._clock_jump,
            "rot": self._rot,
            "io_error": self._io_error,
            "disk_full": self._disk_full,
            "min_isr": self._topics.min_isr,
            "grow": self._topics.grow,
            "passing_topic": self._topics.passing_topic,
            "policy": self._topics.policy,
        }

    def start(self) -> None:
        """Begin to inject faults."""
        self._going = True
        if any(getattr(self._rates, kind) for kind in self._kinds):
            self._plan()
            self._read()

    def _read(self) -> None:
        if self._going:
            self._world.read_metadata()
            self._world.plan(READ_EVERY_MS, self._read)

    def stop(self) -> None:
        """Inject no more faults: heal the network, start every node."""
        self._going = False
        world = self._world
        world.network.heal()
        world.network.options = type(world.network.options)(
            delay_min_ns=world.network.options.delay_min_ns, delay_max_ns=world.network.options.delay_max_ns
        )
        for machine in world.machines.values():
            machine.slow_disk = False
            self._resume(machine)
            machine.disk.clear_faults()
            machine.disk.capacity = None
            if machine.is_up and machine.disk_failed:
                world.kill(machine.node_id)  # a node that left because of its disk returns with it
        for node_id in world.machines:
            world.start(node_id)
        self._topics.settle()

    # ------------------------------------------------------------------------------------ its turns

    def _plan(self) -> None:
        self._world.plan(self._random.random() * 2 * self._rates.interval_ms, self._strike)

    def _strike(self) -> None:
        if not self._going:
            return
        kinds = list(self._kinds)
        (kind,) = self._random.choices(kinds, [getattr(self._rates, one) for one in kinds])
        active, self._struck = self._world.active_node, ()
        if self._kinds[kind]():
            self._world.faults[kind] = self._world.faults.get(kind, 0) + 1
            self._note_hits(kind, active)
        self._plan()

    def _note_hits(self, kind: str, active: int) -> None:
        """Count a fault that struck the node of the active controller, or of as many voters as are a majority within
        the longest time that a fault lasts."""
        hits, voters = self._world.hits, self._world.options.voter_ids
        now = self._world.clock.monotonic_ns()
        struck = self._latest.setdefault(kind, {})
        struck.update(dict.fromkeys((one for one in self._struck if one in voters), now))
        since = now - self._rates.lasting_ms * 1_000_000
        found = {
            "the active controller": active >= 0 and active in self._struck,
            "a majority of the voters": 1 < len(voters) < 2 * sum(at_ns >= since for at_ns in struck.values()),
        }
        for who, is_hit in found.items():
            if is_hit and self._struck:
                hits[f"{kind} of {who}"] = hits.get(f"{kind} of {who}", 0) + 1

    def _up(self) -> list[int]:
        return [node_id for node_id, machine in self._world.machines.items() if machine.is_up]

    def _later(self, call: Callable[[], None]) -> None:
        def act() -> None:
            if self._going:
                call()

        self._world.plan(self._random.random() * self._rates.lasting_ms, act)

    def _tell(self) -> bool:
        return self._random.random() < self._world.options.told_of_kills

    def _back(self, node_id: int) -> None:
        self._later(lambda: self._world.start(node_id))

    # ----------------------------------------------------------------------------------- its faults

    def _kill(self) -> bool:
        up = self._up()
        if not up:
            return False
        node_id = self._random.choice(up)
        tell = self._tell()
        self._world.say(f"kill node {node_id}{'' if tell else ' in silence'}")
        self._struck = (node_id,)
        self._world.kill(node_id, tell=tell, silent=not tell)
        self._back(node_id)
        return True

    def _power_loss(self) -> bool:
        up = [one for one in self._up() if self._world.may_lose([one], wiped=False)]
        if not up:
            return False
        node_id = self._random.choice(up)
        self._world.say(f"power loss of node {node_id}")
        self._struck = (node_id,)
        self._world.lose_power(node_id, tell=self._tell())
        self._back(node_id)
        return True

    def _clean_restart(self) -> bool:
        up = self._up()
        if not up:
            return False
        node_id = self._random.choice(up)
        self._world.say(f"clean stop of node {node_id}")
        self._struck = (node_id,)
        self._world.stop(node_id)
        self._back(node_id)
        return True

    def _wipe(self) -> bool:
        up = [one for one in self._up() if self._world.may_lose([one], wiped=True)]
        if not up:
            return False
        node_id = self._random.choice(up)
        self._world.say(f"empty disk for node {node_id}")
        self._struck = (node_id,)
        self._world.wipe(node_id, tell=self._tell())
        self._back(node_id)
        return True

    def _kill_all(self) -> bool:
        self._world.say("kill everybody at once")
        self._struck = self._up()
        for node_id in self._up():
            self._world.kill(node_id, tell=False, silent=True)
        self._restart_all(power_loss=False)
        return True

    def _power_loss_of_all(self) -> bool:
        if not self._world.may_lose(self._up(), wiped=False):
            return False
        self._world.say("power loss of everybody at once")
        self._struck = self._up()
        for node_id in self._up():
            self._world.lose_power(node_id, tell=False)
        self._restart_all(power_loss=True)
        return True

    def _restart_all(self, *, power_loss: bool) -> None:
        world = self._world
        if world.controller_is_up:
            world.stop_controller(power_loss=power_loss)
            world.start_controller(knows_ends=False)
        for node_id in world.machines:
            world.plan(self._random.random() * 100, partial(world.start, node_id))

    def _cut(self) -> bool:
        addresses = [*self._world.node_addresses, *self._world.controller_addresses]
        one, other = self._random.sample(addresses, 2)
        both = self._random.random() < 0.5
        network = self._world.network
        self._world.say(f"cut {one} {'<->' if both else '->'} {other}")
        self._struck = self._nodes_at(one, other)
        (network.cut_both if both else network.cut)(one, other)
        self._later(lambda: self._mend(one, other))
        return True

    def _nodes_at(self, *addresses: str) -> list[int]:
        """Return the nodes one of whose servers of a quorum is at one of these addresses."""
        machines = self._world.machines.values()
        return [machine.node_id for machine in machines if machine.server_address in addresses]

    def _mend(self, one: str, other: str) -> None:
        network = self._world.network
        network.link(one, other).cut = False
        network.link(other, one).cut = False

    def _isolate(self) -> bool:
        """Cut a node off from the other nodes and the controller; clients still reach it."""
        machine = self._random.choice(list(self._world.machines.values()))
        addresses = [*self._world.node_addresses, *self._world.controller_addresses]
        own = [one for one in (machine.address, machine.server_address) if one in addresses]
        others = [one for one in addresses if one not in own]
        self._world.say(f"isolate {machine.address}")
        self._struck = (machine.node_id,)
        pairs = [(one, other) for one in own for other in others]
        for one, other in pairs:
            self._world.network.cut_both(one, other)

        def rejoin() -> None:
            for one, other in pairs:
                self._mend(one, other)

        self._later(rejoin)
        return True

    def _slow_link(self) -> bool:
        addresses = [*self._world.node_addresses, *self._world.controller_addresses]
        one, other = self._random.sample(addresses, 2)
        slow_ns = self._random.choice([20_000_000, 200_000_000])
        self._world.say(f"slow {one} -> {other} by {slow_ns // 1_000_000} ms")
        self._struck = self._nodes_at(one, other)
        self._world.network.slow(one, other, slow_ns)
        self._later(lambda: self._world.network.slow(one, other, 0))
        return True

    def _slow_disk(self) -> bool:
        machine = self._random.choice(list(self._world.machines.values()))
        self._world.say(f"slow disk of node {machine.node_id}")
        self._struck = (machine.node_id,)
        machine.slow_disk = True

        def mend() -> None:
            machine.slow_disk = False

        self._later(mend)
        return True

    def _controller_restart(self) -> bool:
        world = self._world
        if not world.controller_is_up:
            return False
        power_loss = self._random.random() < 0.5
        world.say("power loss of the controller" if power_loss else "kill the controller")
        self._struck = (world.active_node,)
        world.stop_controller(power_loss=power_loss)
        self._later(self._controller_back)
        return True

    def _controller_back(self) -> None:
        self._world.start_controller(knows_ends=False)

    def _pause(self) -> bool:
        """Let a process take no turn for a while; its timers notice that afterwards."""
        up = [one for one in self._up() if not self._world.machines[one].paused]
        if not up:
            return False
        machine = self._world.machines[self._random.choice(up)]
        self._world.say(f"pause node {machine.node_id}")
        self._struck = (machine.node_id,)
        machine.paused = True
        starts = machine.starts
        self._later(lambda: self._resume(machine) if machine.starts == starts else None)
        return True

    def _resume(self, machine: Machine) -> None:
        if machine.paused:
            machine.paused = False
            self._world.touch(machine.address)
            self._world.touch(machine.server_address)

    def _clock_jump(self) -> bool:
        """Let a wall clock jump by a second, an hour or two years, forward or back: only time stamps may show it."""
        machine = self._random.choice(list(self._world.machines.values()))
        delta_ms = self._random.choice((1_000, 3_600_000, 63_072_000_000)) * self._random.choice((1, -1))
        self._world.say(f"the clock of node {machine.node_id} jumps by {delta_ms} ms")
        self._struck = (machine.node_id,)
        machine.clock.skew_wall(delta_ms)
        return True

    def _rot(self) -> bool:
        """Kill a process and flip a bit in a file that its next start reads. The copy counts as lost: the node must
        detect it and fetch the copy again."""
        up = [one for one in self._up() if self._world.may_lose([one], wiped=True)]
        if not up:
            return False
        node_id = self._random.choice(up)
        machine = self._world.machines[node_id]
        root = machine.root
        assert root is not None
        files = []
        for name, log in root.logs.items():
            folder = f"{machine.address}/{name}"
            segments = [one for one in machine.disk.list(folder) if one.endswith(".log")]
            path = f"{folder}/{segments[-1]}" if segments else ""
            found = machine.disk.stat(path) if path else None
            if found is not None and found.size and not log.incomplete:
                files.append((name, path, found.size))
        if not files:
            return False
        name, path, size = self._random.choice(files)
        position, mask = self._random.randrange(size), 1 << self._random.randrange(8)
        self._world.say(f"kill node {node_id}, and flip a bit of {path} at {position}")
        self._struck = (node_id,)
        self._world.lose_copy(name, node_id, rotten=True)
        machine.kill(silent=True)
        machine.rotten = True
        machine.disk.flip(path, position, mask)
        self._world.gone(node_id, tell=self._tell())
        self._back(node_id)
        return True

    def _io_error(self) -> bool:
        """Let one write or sync fail: the node must leave, and must report its losses after its return."""
        up = [one for one in self._up() if self._world.may_lose([one], wiped=False)]
        if not up:
            return False
        node_id = self._random.choice(up)
        machine = self._world.machines[node_id]
        kind = self._random.choice(("sync", "write", "sync", "truncate", "rename", "create"))
        path = self._random.choice(("*.log", "*.log", "*"))
        self._world.say(f"the next {kind} of {path} on node {node_id} fails")
        self._struck = (node_id,)
        for name, options in self._world.copies(node_id):
            if options.durability == "os":
                self._world.lose_copy(name, node_id)
        machine.fail_disk(kind, path, error=errno.EIO)
        starts = machine.starts

        def restart() -> None:
            if machine.starts == starts and machine.is_up:
                self._world.kill(node_id, tell=self._tell())
                self._back(node_id)

        self._later(restart)
        return True

    def _disk_full(self) -> bool:
        """Leave little free space on a disk for a while."""
        up = self._up()
        if not up:
            return False
        node_id = self._random.choice(up)
        machine = self._world.machines[node_id]
        room = self._random.choice((0, 100, 3000))
        self._world.say(f"the disk of node {node_id} has room for {room} bytes")
        self._struck = (node_id,)
        machine.disk_failed = True
        machine.disk.capacity = machine.disk.used + room
        disk = machine.disk

        def more() -> None:
            disk.capacity = None

        self._later(more)
        return True
