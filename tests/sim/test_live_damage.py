"""Rot that is read in a running cluster, while another replica is about to die or away: the copy that is left is not given up for one that
may not come back."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.log.layout import join
from pyreplog.quorum import CONTROLLER_ADDRESS
from pyreplog.record import RecordBatch, split
from pyreplog.replica import ConsumerFetch
from pyreplog.testing import TopicOptions, World
from pyreplog.testing.workload import SimConsumer
from pyreplog.wire import FetchPartition
from tests.sim.cluster import NAME, acknowledged, calm, key_of, log_of, partition, until

FIRST_READER = 100


def filled(*, nodes: int, durability: str, min_insync_replicas: int = 1) -> World:
    """Every node has every record, which nobody sends any more, and has read none: they are in no memory."""
    world = calm(TopicOptions("t", 1, nodes, min_insync_replicas, durability, segment_bytes=1 << 20), nodes=nodes)
    until(world, lambda: acknowledged(world) > 200, "200 records are acknowledged")
    for producer in world.producers:
        world.leave(producer.address)
    for node in range(1, nodes + 1):
        world.run_for(2000)
        world.stop(node)
        world.run_for(2000)
        world.start(node)
    until(world, lambda: len(partition(world).isr) == nodes, "all are in sync")
    world.run_for(2000)
    return world


def rot(world: World, node: int) -> int:
    """One bit of a batch in the middle of a node's copy flips; where that batch begins."""
    machine = world.machines[node]
    folder = join(machine.address, "t-0")
    (path,) = (join(folder, name) for name in machine.disk.list(folder) if name.endswith(".log"))
    batches = list(split(machine.disk.open(path).read_at(0, log_of(world, node).stats().size)))
    half = len(batches) // 2
    machine.disk.flip(path, sum(batch.size for batch in batches[: half + 1]) - 1)
    return batches[half].base_offset


def reader(world: World) -> SimConsumer:
    """Reads everything from the beginning."""
    number = FIRST_READER + len(world._members)
    consumer = SimConsumer(
        number, world.network.endpoint(), world.clock, Random(5), [m.address for m in world.machines.values()], world.options.topics
    )
    world.join(consumer, consumer.address)
    return consumer


def is_read(world: World) -> bool:
    """Whether a new reader gets every record that any copy has."""
    consumer = reader(world)
    end = max(log_of(world, node).end_offset for node, machine in world.machines.items() if machine.node is not None)
    return world.run_until(lambda: len(consumer.read[NAME]) == end, 20_000)


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_rot_that_is_read_just_after_the_others_died(nodes: int, durability: str) -> None:
    """Their power fails, and nobody knows yet. With ``os`` they come back without what was not synced; nothing is lost all the same."""
    world = filled(nodes=nodes, durability=durability)
    end = log_of(world, 1).end_offset
    leader = partition(world).leader
    bad = rot(world, leader)
    for node in world.machines:
        if node != leader:
            world.lose_power(node, tell=False)
    world.run_for(world.options.config.replica_fetch_wait_max_ms + 300)
    consumer = reader(world)
    until(world, lambda: len(partition(world).isr) == 1, "they are known to be away")
    world.run_for(2000)
    assert len(consumer.read[NAME]) == bad, "what lies before it is served"
    assert log_of(world, leader).end_offset == end
    for node in world.machines:
        if node != leader:
            world.start(node)
    until(world, lambda: len(partition(world).isr) == nodes, "they are back", 60_000)
    assert is_read(world) or durability == "os", "those that have it all lead now"
    assert max(log_of(world, node).end_offset for node in world.machines) == end


def test_rot_that_is_read_while_the_leader_does_not_hear_that_it_is_alone() -> None:
    """The others leave in order, and the news does not arrive: the copy that is given up would be the last."""
    world = filled(nodes=2, durability="os")
    leader = partition(world).leader
    other = 3 - leader
    end = log_of(world, leader).end_offset
    rot(world, leader)
    world.network.cut(CONTROLLER_ADDRESS, f"node-{leader}")
    world.stop(other)
    until(world, lambda: list(partition(world).isr) == [leader], "the other one is away")
    hosted = world.hosted(leader, key_of(world))
    assert hosted is not None
    assert len(hosted.replica.isr) == 2, "the news is not here"
    reader(world)
    world.run_for(300)
    world.network.heal()
    world.run_for(3000)
    assert (hosted.replica.role, log_of(world, leader).end_offset) == ("leader", end)
    world.start(other)
    until(world, lambda: len(partition(world).isr) == 2, "it is back")
    assert is_read(world)


def test_a_copy_is_kept_until_the_next_leader_takes_its_fetch() -> None:
    """The successor was heard of just now, is named, and does not answer: the damaged copy stays as it is until it does."""
    world = filled(nodes=2, durability="os")
    leader = partition(world).leader
    other = 3 - leader
    end = log_of(world, leader).end_offset
    rot(world, leader)
    world.network.cut_both(f"node-{leader}", f"node-{other}")
    reader(world)
    until(world, lambda: partition(world).leader == other, "the other one is named")
    hosted = world.hosted(leader, key_of(world))
    assert hosted is not None
    until(world, lambda: hosted.replica.role == "follower", "it follows")
    world.run_for(3000)
    assert world.hosted(leader, key_of(world)) is hosted
    assert (log_of(world, leader).end_offset, log_of(world, leader).failure) == (end, None)
    world.network.heal()
    until(world, lambda: world.hosted(leader, key_of(world)) is not hosted, "it is given up")
    until(world, lambda: len(partition(world).isr) == 2, "it is in sync again")
    assert is_read(world)


@pytest.mark.parametrize("is_leader_alive", [True, False])
def test_rot_that_is_read_at_a_follower(is_leader_alive: bool) -> None:
    """Its readers go to the leader. The copy is fetched anew while that one is there; else it may be all there is, and leads in the end."""
    world = filled(nodes=2, durability="os")
    leader = partition(world).leader
    follower = 3 - leader
    hosted = world.hosted(follower, key_of(world))
    assert hosted is not None
    bad = rot(world, follower)
    if not is_leader_alive:
        world.lose_power(leader, tell=False)
        world.run_for(world.options.config.replica_fetch_wait_max_ms + 300)
    question = ConsumerFetch("nobody", 1, FetchPartition(0, -1, bad), 0, anywhere=True)
    node = world.machines[follower].node
    assert node is not None
    node._effects.run(hosted, question)
    if is_leader_alive:
        until(world, lambda: world.hosted(follower, key_of(world)) is not hosted, "it is given up")
        until(world, lambda: len(partition(world).isr) == 2, "it is in sync again")
        assert is_read(world)
        return
    until(world, lambda: partition(world).leader == follower, "it leads")
    assert world.hosted(follower, key_of(world)) is hosted
    consumer = reader(world)
    world.run_for(2000)
    assert len(consumer.read[NAME]) == bad, "what lies before it is served"


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_rot_is_repaired_while_everybody_is_there(durability: str) -> None:
    """Whoever leads: the reader gets everything, and every copy is whole in the end."""
    world = filled(nodes=3, durability=durability)
    leader = partition(world).leader
    end = log_of(world, leader).end_offset
    bad = rot(world, leader)
    assert is_read(world)
    machine = world.machines[leader]

    def is_set_aside() -> bool:
        return any(name.endswith("-stray") for name in machine.disk.list(machine.address))

    until(world, lambda: is_set_aside() and len(partition(world).isr) == 3, "it is fetched anew, and in sync again")
    assert partition(world).leader != leader
    read = log_of(world, leader).read(bad, 1, end, checked=True)
    assert RecordBatch(read.parts()[0]).base_offset == bad
