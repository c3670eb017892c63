"""The schedules of the known-bad rules that take a whole cluster.

Each schedule breaks an invariant with its variant, and none with the true rules. The world has three
nodes, one partition of three replicas, one producer that keeps sending, and one reader. Every
function gets a world that has just begun. The caller then heals it and waits until it is quiet.
"""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.controller import PartitionImage
from pyreplog.replica import Leader
from pyreplog.testing.faults import Call
from pyreplog.testing.world import World
from pyreplog.wire import CreateTopicsRequest

__all__ = [
    "all_die",
    "answer_from_the_controller_lost",
    "below_the_minimum",
    "clock_set_back",
    "controller_cut_off",
    "deposed_controller_is_asked",
    "eligible_one_loses_its_disk",
    "fair_weather",
    "follower_dies",
    "followers_cut_off",
    "leader_cut_off",
    "leader_dies",
    "leader_stands_still",
    "new_leader_hears_late",
    "passes_of_compaction",
    "passes_while_a_follower_is_down",
    "passes_while_followers_are_cut_off",
    "power_fails_again_and_again",
    "proposal_lost",
    "rot_is_fetched",
    "silent_leader_cut_off",
    "silent_leaders_follower",
    "stops_while_somebody_waits",
]

WITHIN_MS = 20_000


def until(world: World, done: Callable[[], bool], what: str) -> None:
    """Step until ``done`` returns True; fail after ``WITHIN_MS``."""
    assert world.run_until(done, WITHIN_MS), f"not within {WITHIN_MS} ms: {what}"


def partition(world: World) -> PartitionImage:
    """Return the only partition, as the controller has it."""
    ((_, _, found),) = world.partitions()
    return found


def leads(world: World, node_id: int) -> bool:
    """Return whether a node believes it is the leader."""
    ((_, key, _),) = world.partitions()
    hosted = world.hosted(node_id, key)
    return hosted is not None and hosted.replica.is_leader


def begin(world: World) -> tuple[int, ...]:
    """Wait until some appends are acknowledged and all replicas are in sync; return the replicas, the
    leader first."""

    def going() -> bool:
        acknowledged = sum(attempt.outcome == "ok" for attempt in world.producers[0].attempts)
        return acknowledged > 3 and len(partition(world).isr) == len(partition(world).replicas)

    until(world, going, "appends succeed")
    leader = partition(world).leader
    return (leader, *(one for one in partition(world).replicas if one != leader))


def fall_silent(world: World) -> None:
    """Stop sending; wait until every replica has all records, and knows that they are committed."""
    producer = world.producers[0]
    producer.sending = False
    world.say("the producer rests")
    until(world, lambda: producer.is_idle, "every append has its outcome")
    world.run_for(200)


def next_leader(world: World, *old: int) -> int:
    """Wait until the partition has a leader other than these; return it."""
    until(world, lambda: partition(world).leader not in (*old, -1), "another one is elected")
    world.say(f"node {partition(world).leader} is elected")
    return partition(world).leader


def kill(world: World, node_id: int) -> None:
    """Kill a node's process."""
    world.say(f"kill node {node_id}")
    world.kill(node_id)


def heal(world: World) -> None:
    """End all cuts of the network."""
    world.say("the network is well again")
    world.network.heal()


def cut_off(world: World, node_id: int, *others: int) -> None:
    """Cut the links between a node and the others, in both directions."""
    world.say(f"cut between node {node_id} and {' and '.join(f'node {other}' for other in others)}")
    for other in others:
        world.network.cut_both(f"node-{node_id}", f"node-{other}")


def cut_from_controller(world: World, node_id: int) -> None:
    """Cut the links between a node and the controller, in both directions."""
    world.say(f"cut between node {node_id} and the controller")
    world.network.cut_both(f"node-{node_id}", world.controller_address(node_id))


def fair_weather(world: World) -> None:
    """Nothing happens."""
    begin(world)


def passes_of_compaction(world: World) -> None:
    """All copies are compacted again and again, for a second."""
    begin(world)
    world.compactions.start()
    world.run_for(1000)


def passes_while_followers_are_cut_off(world: World) -> None:
    """The followers are cut off, the leader goes on to append, and its copy is compacted. Then the network is well
    again."""
    first, *others = begin(world)
    world.run_for(300)
    cut_off(world, first, *others)
    world.run_for(150)
    compact(world, first)
    heal(world)


def passes_while_a_follower_is_down(world: World) -> None:
    """A follower dies, and the leader's copy is compacted. The follower comes back and fetches the rest; then it is
    killed once more."""
    first, _, third = begin(world)
    world.run_for(500)
    kill(world, third)
    for _ in range(6):
        world.run_for(150)
        compact(world, first)
    world.start(third)
    world.run_for(500)
    kill(world, third)
    world.start(third)


def compact(world: World, node_id: int) -> None:
    """Compact the copies of a node, all at once."""
    for machine, hosted in world.compactions.copies():
        if machine.node_id == node_id:
            world.compactions.compact(machine, hosted, closes=True, at_once=True)


def leader_dies(world: World) -> None:
    """The leader dies, another one is elected, and the first comes back as its follower."""
    first, *_ = begin(world)
    kill(world, first)
    next_leader(world, first)


def follower_dies(world: World) -> None:
    """A follower dies, and comes back after it was fenced."""
    _, second, _ = begin(world)
    kill(world, second)
    world.run_for(1000)


def controller_cut_off(world: World) -> None:
    """The node that leads the partition and has the active controller is cut off from the other nodes, and clients
    still reach it. Another controller takes over, and another leader is elected; then the network is well again."""
    first, *others = begin(world)
    if world.active_node != first:
        world.say(f"node {world.active_node}, which has the active controller, restarts")
        world.stop(world.active_node)
    until(world, lambda: world.active_node == first, "the leader's node has the active controller")
    for node_id in others:
        world.start(node_id)
    until(world, lambda: len(partition(world).isr) == len(partition(world).replicas), "all are in sync")
    world.say(f"node {first} is cut off from the other nodes, with its controller")
    for one in (f"node-{first}", world.controller_address(first)):
        for node_id in others:
            for other in (f"node-{node_id}", world.controller_address(node_id)):
                world.network.cut_both(one, other)
    world.run_for(3000)
    heal(world)


def deposed_controller_is_asked(world: World) -> None:
    """The node of the active controller is cut off from the other nodes. Another controller takes over and makes a
    topic; then both are asked for all topics."""
    first, *others = begin(world)
    old = world.active_node
    rest = [node_id for node_id in (first, *others) if node_id != old]
    world.say(f"node {old} is cut off from the other nodes, with its controller")
    for one in (f"node-{old}", world.controller_address(old)):
        for node_id in rest:
            for other in (f"node-{node_id}", world.controller_address(node_id)):
                world.network.cut_both(one, other)
    actives = [world.machines[node_id] for node_id in rest]
    until(world, lambda: any(one.server is not None and one.server.is_active for one in actives), "another takes over")
    (new,) = [one.node_id for one in actives if one.server is not None and one.server.is_active]
    answers: list[object] = []
    world.ask_controller(CreateTopicsRequest([world.passing_topic.creatable()]), answers.append, new)
    until(world, lambda: bool(answers), "the topic is made")
    world.say("both controllers are asked")
    world.read_metadata()
    world.run_for(2000)
    heal(world)


def eligible_one_loses_its_disk(world: World) -> None:
    """Two followers die one after the other, so that the last of them is eligible. It comes back with an empty
    disk."""
    _, second, third = begin(world)
    kill(world, third)
    until(world, lambda: third not in partition(world).isr, "it is out")
    kill(world, second)
    until(world, lambda: second in partition(world).elr, "it is eligible")
    world.say(f"node {second} loses its disk, and comes back")
    world.wipe(second)
    world.start(second)
    world.run_for(1000)


def all_die(world: World) -> None:
    """All nodes die at once, so that no node can be elected; then they come back."""
    for node_id in begin(world):
        kill(world, node_id)


def answer_from_the_controller_lost(world: World) -> None:
    """A follower and the controller are cut off from each other, too briefly for the session to
    expire; then the follower is elected."""
    first, second, _ = begin(world)
    cut_from_controller(world, second)
    world.run_for(250)
    heal(world)
    world.run_for(250)
    kill(world, first)
    next_leader(world, first)


def new_leader_hears_late(world: World) -> None:
    """A follower learns the new leader and fetches from it before that node knows of its election."""
    first, second, _ = begin(world)
    world.say(f"cut from the controller to node {second}")
    world.network.cut(world.controller_address(second), f"node-{second}")
    kill(world, first)
    world.run_for(150)
    heal(world)
    until(world, lambda: leads(world, second), "the new leader has heard of it")


def proposal_lost(world: World) -> None:
    """A follower lags, and its leader proposes to remove it from the ISR. The proposal is lost, and
    then the follower catches up."""
    first, _, third = begin(world)
    ((_, key, _),) = world.partitions()

    def pending() -> bool:
        hosted = world.hosted(first, key)
        role = None if hosted is None else hosted.replica.role
        return isinstance(role, Leader) and role.in_sync_set.pending is not None

    cut_off(world, first, third)
    until(world, pending, "the leader proposes")
    heal(world)
    cut_from_controller(world, first)
    world.run_for(100)


def followers_cut_off(world: World) -> None:
    """The leader continues to take appends, which no follower fetches."""
    first, *others = begin(world)
    cut_off(world, first, *others)
    world.run_for(200)


def below_the_minimum(world: World) -> None:
    """Appends wait because the followers are cut off. The ISR falls below the minimum, and stays
    there until the producer has given up."""
    first, *others = begin(world)
    producer = world.producers[0]
    cut_off(world, first, *others)
    count = len(producer.attempts)
    until(world, lambda: len(producer.attempts) > count, "another append")
    producer.sending = False
    until(world, lambda: producer.is_idle, "the producer gave up")


def stops_while_somebody_waits(world: World) -> None:
    """An append is on the leader and on one of two followers when the leader stops in order. The
    follower that has it is elected."""
    first, second, third = begin(world)
    producer = world.producers[0]
    ((_, key, _),) = world.partitions()
    cut_off(world, first, third)
    count = len(producer.attempts)
    until(world, lambda: len(producer.attempts) > count, "another append")
    ours, theirs = world.log_of(first, key), world.log_of(second, key)
    assert ours is not None
    assert theirs is not None
    until(world, lambda: ours.high_watermark < ours.end_offset == theirs.end_offset, "it waits for the other one")
    world.say(f"node {first} stops")
    world.stop(first)
    next_leader(world, first)


def silent_leader_cut_off(world: World) -> None:
    """A leader writes nothing and is cut off. It comes back to a leader that does not know its epoch."""
    first, *_ = begin(world)
    fall_silent(world)
    kill(world, first)
    second = next_leader(world, first)
    world.run_for(20)
    world.say(f"node {second} is cut off")
    world.network.isolate(f"node-{second}")
    next_leader(world, first, second)
    heal(world)
    world.run_for(3000)


def silent_leaders_follower(world: World) -> None:
    """A leader writes nothing for a long time."""
    first, *_ = begin(world)
    fall_silent(world)
    kill(world, first)
    next_leader(world, first)
    world.run_for(50_000)


def rot_is_fetched(world: World) -> None:
    """An empty replica fetches from the only running copy, which has a flipped bit in its first batch
    that its node has not noticed. Then that copy's disk is lost, and another complete copy comes
    back."""
    first, second, third = begin(world)
    until(world, lambda: len(world.producers[0].attempts) > 60, "the log has more batches than a start checks")
    fall_silent(world)
    world.say(f"node {third} loses its disk, the others stop")
    world.wipe(third)
    world.stop(second)
    world.stop(first)
    machine = world.machines[first]
    path = f"{machine.address}/{world.partitions()[0][0]}/{0:020d}.log"
    size = int.from_bytes(bytes(machine.disk.open(path).read_at(8, 4)), "big") + 12
    world.say(f"a bit flips on the disk of node {first}; it comes back, and so does node {third}")
    machine.disk.flip(path, size - 2)
    machine.rotten = True
    world.start(first)
    next_leader(world)
    world.start(third)
    world.run_for(2000)
    world.say(f"node {first} loses its disk, node {second} comes back")
    world.wipe(first)
    world.start(second)
    next_leader(world, first)


def power_fails_again_and_again(world: World) -> None:
    """The power fails repeatedly while data is being synced."""
    for _ in range(20):
        world.run_for(100)
        world.say("node 1 loses power")
        world.lose_power(1)
        world.start(1)


def leader_cut_off(world: World) -> None:
    """The leader is cut off from the controller and the other nodes, and clients still reach it. Another one is
    elected; then the network is well again."""
    first, *others = begin(world)
    cut_off(world, first, *others)
    cut_from_controller(world, first)
    next_leader(world, first)
    world.run_for(300)
    heal(world)


def clock_set_back(world: World) -> None:
    """The leader is cut off from the controller and the other nodes, and its wall clock is set back by an hour. Another
    one is elected; then the network is well again."""
    first, *others = begin(world)
    cut_off(world, first, *others)
    cut_from_controller(world, first)
    world.say(f"the clock of node {first} is set back by an hour")
    world.machines[first].clock.skew_wall(-3_600_000)
    next_leader(world, first)
    world.run_for(300)
    heal(world)


def leader_stands_still(world: World) -> None:
    """The leader's process stands still in the middle of an append, until another one is elected; then it goes on."""
    first, *_ = begin(world)
    machine = world.machines[first]
    stood: list[int] = []

    def stand_still(call: Call) -> None:
        if call.kind == "write" and not stood:
            stood.append(call.number)
            world.say(f"node {first} stands still")
            machine.paused = True
            next_leader(world, first)
            machine.paused = False
            world.say(f"node {first} goes on")

    machine.disk.observer = stand_still
    until(world, lambda: bool(stood), "an append")
    machine.disk.observer = None
    world.run_for(300)
