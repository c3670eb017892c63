"""The schedules of the known-bad rules that take a whole cluster: each goes wrong with its
variant and well without.

Three nodes, one partition of three replicas, one producer that goes on, and one reader. Every
function is given a world that has just begun, and leaves it as it may be: whoever called heals it
and waits until all is quiet.
"""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.controller import CONTROLLER_ADDRESS, PartitionImage
from pyreplog.replica import Leader
from pyreplog.testing.world import World

__all__ = [
    "all_die",
    "answer_from_the_controller_lost",
    "below_the_minimum",
    "fair_weather",
    "followers_cut_off",
    "leader_dies",
    "new_leader_hears_late",
    "power_fails_again_and_again",
    "proposal_lost",
    "rot_is_fetched",
    "silent_leader_cut_off",
    "silent_leaders_follower",
    "stops_while_somebody_waits",
]

WITHIN_MS = 20_000


def until(world: World, done: Callable[[], bool], what: str) -> None:
    """Step until ``done``, which comes sooner or later."""
    assert world.run_until(done, WITHIN_MS), f"not within {WITHIN_MS} ms: {what}"


def partition(world: World) -> PartitionImage:
    """The one partition, as the controller has it."""
    ((_, _, found),) = world.partitions()
    return found


def leads(world: World, node_id: int) -> bool:
    """Whether a node leads, as far as it knows."""
    ((_, key, _),) = world.partitions()
    hosted = world.hosted(node_id, key)
    return hosted is not None and hosted.replica.is_leader


def begin(world: World) -> tuple[int, ...]:
    """Wait until some appends were acknowledged, with all replicas in sync; return the replicas, the
    leader in front."""

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
    """Wait until a node leads that is none of these; return it."""
    until(world, lambda: partition(world).leader not in (*old, -1), "another one is elected")
    world.say(f"node {partition(world).leader} is elected")
    return partition(world).leader


def kill(world: World, node_id: int) -> None:
    """Kill a node's process."""
    world.say(f"kill node {node_id}")
    world.kill(node_id)


def heal(world: World) -> None:
    """Every message gets through again."""
    world.say("the network is well again")
    world.network.heal()


def cut_off(world: World, node_id: int, *others: int) -> None:
    """No way between a node and these."""
    world.say(f"cut between node {node_id} and {' and '.join(f'node {other}' for other in others)}")
    for other in others:
        world.network.cut_both(f"node-{node_id}", f"node-{other}")


def fair_weather(world: World) -> None:
    """Nothing happens."""
    begin(world)


def leader_dies(world: World) -> None:
    """The leader dies, another one is elected, and the first comes back as its follower."""
    first, *_ = begin(world)
    kill(world, first)
    next_leader(world, first)


def all_die(world: World) -> None:
    """All nodes die at once, so that no node can be elected; then they come back."""
    for node_id in begin(world):
        kill(world, node_id)


def answer_from_the_controller_lost(world: World) -> None:
    """For a moment a follower and the controller do not hear each other, too short for its
    session to end; then it is elected."""
    first, second, _ = begin(world)
    world.say(f"cut between node {second} and the controller")
    world.network.cut_both(f"node-{second}", CONTROLLER_ADDRESS)
    world.run_for(250)
    heal(world)
    world.run_for(250)
    kill(world, first)
    next_leader(world, first)


def new_leader_hears_late(world: World) -> None:
    """A follower learns the new leader, and fetches from it, before that one has heard of its election."""
    first, second, _ = begin(world)
    world.say(f"cut from the controller to node {second}")
    world.network.cut(CONTROLLER_ADDRESS, f"node-{second}")
    kill(world, first)
    world.run_for(150)
    heal(world)
    until(world, lambda: leads(world, second), "the new leader has heard of it")


def proposal_lost(world: World) -> None:
    """A follower lags, its leader proposes to go on without it, and that is lost; meanwhile the
    follower has caught up."""
    first, _, third = begin(world)
    ((_, key, _),) = world.partitions()

    def pending() -> bool:
        hosted = world.hosted(first, key)
        role = None if hosted is None else hosted.replica.role
        return isinstance(role, Leader) and role.in_sync_set.pending is not None

    cut_off(world, first, third)
    until(world, pending, "the leader proposes")
    heal(world)
    world.say(f"cut between node {first} and the controller")
    world.network.cut_both(f"node-{first}", CONTROLLER_ADDRESS)
    world.run_for(100)


def followers_cut_off(world: World) -> None:
    """The leader goes on taking appends; no follower fetches them."""
    first, *others = begin(world)
    cut_off(world, first, *others)
    world.run_for(200)


def below_the_minimum(world: World) -> None:
    """Appends wait when the followers are cut off; the in-sync set falls below the minimum, and
    stays there until the producer gave up."""
    first, *others = begin(world)
    producer = world.producers[0]
    cut_off(world, first, *others)
    count = len(producer.attempts)
    until(world, lambda: len(producer.attempts) > count, "another append")
    producer.sending = False
    until(world, lambda: producer.is_idle, "the producer gave up")


def stops_while_somebody_waits(world: World) -> None:
    """An append is on the leader and on one of two followers when the leader stops in order; the
    one that has it is elected."""
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
    """A leader writes nothing, is cut off, and comes back to a leader that has
    never heard of its epoch."""
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
    """The only copy that is up has a flipped bit in its first batch, unseen by its node, when an
    empty one fetches from it; then its disk is lost, and another complete copy comes back."""
    first, second, third = begin(world)
    until(world, lambda: len(world.producers[0].attempts) > 60, "there is more than what a start looks at")
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
    """The power fails while something is being synced."""
    for _ in range(20):
        world.run_for(100)
        world.say("node 1 loses power")
        world.lose_power(1)
        world.start(1)
