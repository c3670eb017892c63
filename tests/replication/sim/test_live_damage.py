"""Rot that is read in a running cluster: another copy leads, whoever dies meanwhile, and no copy is given up: it
may be all there is."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.log.layout import join
from pyreplog.record import split
from pyreplog.replica import ConsumerFetch
from pyreplog.testing import TopicOptions, World
from pyreplog.testing.workload import SimConsumer
from pyreplog.wire import FetchPartition
from tests.replication.sim.cluster import NAME, acknowledged, calm, key_of, log_of, partition, until

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


def rot(world: World, node: int, offset: int = -1, at: int = -1) -> int:
    """One bit of the batch with ``offset`` (one in the middle) of a node's copy flips, in its byte ``at``; where
    that batch begins."""
    machine = world.machines[node]
    folder = join(machine.address, "t-0")
    (path,) = (join(folder, name) for name in machine.disk.list(folder) if name.endswith(".log"))
    batches = list(split(machine.disk.open(path).read_at(0, log_of(world, node).stats().size)))
    middle = batches[len(batches) // 2]
    chosen = next(batch for batch in batches if batch.next_offset > (middle.base_offset if offset < 0 else offset))
    position = sum(batch.size for batch in batches if batch.next_offset <= chosen.base_offset)
    machine.disk.flip(path, position + (chosen.size - 1 if at < 0 else at))
    return chosen.base_offset


def reader(world: World) -> SimConsumer:
    """Reads everything from the beginning."""
    number = FIRST_READER + len(world._members)
    consumer = SimConsumer(
        number,
        world.network.endpoint(),
        world.clock,
        Random(5),
        world.node_addresses,
        world.options.topics,
    )
    world.join(consumer, consumer.address)
    return consumer


def is_read(world: World) -> bool:
    """Whether a new reader gets every record that any copy has."""
    consumer = reader(world)
    end = max(log_of(world, node).end_offset for node, machine in world.machines.items() if machine.node is not None)
    return world.run_until(lambda: len(consumer.read[NAME]) == end, 20_000)


def leaders_of(world: World, for_ms: float) -> list[int]:
    """Who leads, one after the other."""
    found = [partition(world).leader]
    until_ns = world.clock.monotonic_ns() + int(for_ms * 1e6)
    while world.clock.monotonic_ns() < until_ns:
        world.run_for(1)
        if partition(world).leader != found[-1]:
            found.append(partition(world).leader)
    return found


def meet(world: World, node: int, offset: int) -> None:
    """Somebody who reads from anywhere reads there."""
    machine, hosted = world.machines[node].node, world.hosted(node, key_of(world))
    assert machine is not None
    assert hosted is not None
    machine._effects.run(hosted, ConsumerFetch("nobody", 1, FetchPartition(0, -1, offset), 0, anywhere=True))


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_another_leads_where_everybody_is_there(durability: str) -> None:
    """The reader gets everything, after one change of leaders; the damaged copy is a member of the in-sync set as
    before."""
    world = filled(nodes=3, durability=durability)
    leader = partition(world).leader
    end = log_of(world, leader).end_offset
    rot(world, leader)
    consumer = reader(world)
    leaders = leaders_of(world, 5000)
    assert leaders[0] == leader
    assert len(leaders) == 2
    assert len(consumer.read[NAME]) == end
    assert len(partition(world).isr) == 3
    assert log_of(world, leader).end_offset == end


@pytest.mark.parametrize("after_ms", [0, 50, 200, 450, 700])
@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_the_others_died_just_now(nodes: int, durability: str, after_ms: int) -> None:
    """Their power fails, and nobody knows yet when the rot is read. With ``os`` they come back without what was not
    synced."""
    world = filled(nodes=nodes, durability=durability)
    leader = partition(world).leader
    end = log_of(world, leader).end_offset
    bad = rot(world, leader)
    for node in world.node_ids:
        if node != leader:
            world.lose_power(node, tell=False)
    world.run_for(after_ms)
    meet(world, leader, bad)
    until(
        world,
        lambda: list(partition(world).isr) == [leader] == [partition(world).leader],
        "it is known that it is alone",
    )
    consumer = reader(world)
    until(world, lambda: len(consumer.read[NAME]) == bad, "what lies before it is served")
    for node in world.node_ids:
        if node != leader:
            world.start(node)
    until(world, lambda: len(partition(world).isr) == nodes, "they are back")
    assert log_of(world, leader).end_offset == end
    assert is_read(world), "they have it all, and one of them leads"


@pytest.mark.parametrize("after_ms", [0, 50, 200, 450])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_the_leader_died_just_now_and_rot_is_read_at_the_follower(durability: str, after_ms: int) -> None:
    """It is sent to a leader that is not there any more. In the end the follower leads, and serves the rest."""
    world = filled(nodes=2, durability=durability)
    leader = partition(world).leader
    follower = 3 - leader
    end = log_of(world, follower).end_offset
    bad = rot(world, follower)
    world.lose_power(leader, tell=False)
    world.run_for(after_ms)
    meet(world, follower, bad)
    until(world, lambda: partition(world).leader == follower, "it leads")
    consumer = reader(world)
    until(world, lambda: len(consumer.read[NAME]) == bad, "what lies before it is served")
    world.start(leader)
    until(world, lambda: len(partition(world).isr) == 2, "it is back")
    assert log_of(world, follower).end_offset == end
    assert is_read(world), "it has it all, and leads"


def test_rot_at_a_follower_does_not_lead() -> None:
    """Its readers go to the leader; and when the leader's copy turns out to be damaged, too, a third one leads."""
    world = filled(nodes=3, durability="os")
    leader = partition(world).leader
    first, second = (node for node in world.node_ids if node != leader)
    bad = rot(world, first)
    meet(world, first, bad)
    world.run_for(500)
    assert partition(world).leader == leader
    rot(world, leader)
    assert is_read(world)
    assert partition(world).leader == second


@pytest.mark.parametrize("nodes", [2, 3])
def test_rot_everywhere_is_told_and_ends(nodes: int) -> None:
    """Each copy is tried once. The last one leads on, what lies around the damage is served, and every copy
    stays."""
    world = filled(nodes=nodes, durability="os")
    end = log_of(world, 1).end_offset
    (bad,) = {rot(world, node) for node in world.node_ids}
    consumer = reader(world)
    assert len(leaders_of(world, 5000)) == nodes
    assert len(leaders_of(world, 60_000)) == 1
    assert len(consumer.read[NAME]) == bad
    assert {log_of(world, node).end_offset for node in world.node_ids} == {end}
    assert len(partition(world).isr) == nodes


def test_the_leader_does_not_hear_that_it_is_alone() -> None:
    """The other one leaves in order, the news does not arrive, and nobody hears of the damage."""
    world = filled(nodes=2, durability="os")
    leader = partition(world).leader
    other = 3 - leader
    end = log_of(world, leader).end_offset
    rot(world, leader)
    world.network.cut(world.controller_address(leader), f"node-{leader}")
    world.stop(other)
    until(world, lambda: list(partition(world).isr) == [leader], "the other one is away")
    hosted = world.hosted(leader, key_of(world))
    assert hosted is not None
    assert len(hosted.replica.isr) == 2, "the news is not here"
    reader(world)
    world.run_for(300)
    world.network.heal()
    world.run_for(3000)
    assert (hosted.replica.role.name, log_of(world, leader).end_offset) == ("leader", end)
    world.start(other)
    until(world, lambda: len(partition(world).isr) == 2, "it is back")
    assert is_read(world)


@pytest.mark.parametrize("at", [16, 23, 26])
def test_a_former_leader_that_cannot_cut_because_of_the_rot(at: int) -> None:
    """It has records that nobody else has, and the batch before them is not what it says. That copy is fetched
    anew; the node is as it was, and its other partitions, too."""
    world = filled(nodes=2, durability="os")
    world.watch_with([])  # they would call what the leader alone has a loss
    leader = partition(world).leader
    other = 3 - leader
    world.network.cut_both(f"node-{leader}", f"node-{other}")
    before = log_of(world, leader).end_offset
    world._add_producer(world.node_addresses, world.options.topics)
    producer = world.producers[-1]
    until(world, lambda: log_of(world, leader).end_offset > before, "it has more")
    bad = rot(world, leader, before - 1, at)
    meet(world, leader, bad)
    until(world, lambda: partition(world).leader == other, "the other one leads")
    world.network.heal()
    until(world, lambda: len(partition(world).isr) == 2, "it is in sync again")
    world.leave(producer.address)
    world.run_for(1000)
    node = world.machines[leader].node
    assert node is not None
    assert node.offline is None
    assert is_read(world)


def test_a_restart_forgets_what_was_reported() -> None:
    """The copy may be another one by then: what is read of it says it again."""
    world = filled(nodes=2, durability="os")
    leader = partition(world).leader
    other = 3 - leader
    rot(world, leader)
    assert is_read(world)
    assert partition(world).leader == other
    world.stop(leader)
    world.run_for(1000)
    world.start(leader)
    until(world, lambda: len(partition(world).isr) == 2, "it is back")
    world.stop(other)
    until(world, lambda: partition(world).leader == leader, "it leads")
