"""Published faults of a cluster's life, by their ids: topics that are made anew (A28), a silent follower of an idle
partition (F42, V40), and nodes that are killed all the time (F70)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pyreplog.testing import FaultRates, NetworkOptions, TopicOptions, World, WorldOptions
from pyreplog.testing.known_bad.controllers import FencesNobody
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    CONFIG_SET,
    NO_ERROR,
    RESOURCE_TOPIC,
    AlterableConfig,
    AlterConfigsResource,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    IncrementalAlterConfigsRequest,
    RequestBody,
)
from tests.replication.sim.cluster import (
    NAME,
    QUICK,
    acknowledged,
    calm,
    finish,
    in_sync,
    key_of,
    log_of,
    partition,
    until,
)


def voting(**parts: Any) -> World:
    """A calm world of three nodes, each of which votes."""
    return World(1, dataclasses.replace(calm(TopicOptions("t")).options, voters=3, apart=False), **parts)


def ask(world: World, body: RequestBody) -> None:
    """Let the active controller make a change."""
    answers: list[Any] = []
    until(world, lambda: world.controller_is_up, "a controller")
    assert world.ask_controller(body, answers.append)
    until(world, lambda: bool(answers), "an answer")
    found = getattr(answers[0], "topics", None) or answers[0].responses
    assert found[0].error_code == NO_ERROR, answers


def make_anew(world: World) -> str:
    """Delete the topic and create it again; return its new id."""
    ask(world, DeleteTopicsRequest([DeleteTopicState("t")]))
    ask(world, CreateTopicsRequest([world.options.topics[0].creatable()]))
    return world.image.topic_ids["t"]


def resting(world: World) -> None:
    """Wait for some records on all replicas; then nobody sends, and nobody checks what becomes of them."""
    until(world, lambda: acknowledged(world) > 20 and in_sync(world, 1, 2, 3)(), "records")
    rest(world)
    world.watch_with([])


def rest(world: World) -> None:
    """Let the producer rest until it has every outcome."""
    for producer in world.producers:
        producer.sending = False
    until(world, lambda: all(producer.is_idle for producer in world.producers), "it is idle")


def cut_from_the_others(world: World, node_id: int) -> None:
    """Cut a node off, with its part of the quorum."""
    own = (f"node-{node_id}", world.controller_address(node_id))
    for other in [one for one in world.machines if one != node_id]:
        for address in (f"node-{other}", world.controller_address(other)):
            for one in own:
                world.network.cut_both(one, address)


def while_it_is_down(world: World) -> str:
    """A28 a: the topic is made anew while a replica's broker is down."""
    world.kill(3)
    topic_id = make_anew(world)
    world.start(3)
    return topic_id


def twice_in_one_delta(world: World) -> str:
    """A28 c: the topic is made anew twice while a replica hears nothing, so that it learns both at once."""
    cut_from_the_others(world, 3)
    until(world, lambda: world.active_node in (1, 2), "a controller among the others")
    make_anew(world)
    topic_id = make_anew(world)
    world.network.heal()
    return topic_id


def after_its_elr_was_cleared(world: World) -> str:
    """A28 d: the ELR is in use, a change of the minimum clears it, and the topic is made anew before the broker that
    was eligible has heard of either."""
    cut_from_the_others(world, 3)
    until(world, lambda: 3 not in partition(world).isr, "node 3 is fenced")
    ask(world, minimum_of(3))
    ask(world, minimum_of(2))
    topic_id = make_anew(world)
    world.network.heal()
    return topic_id


def minimum_of(value: int) -> RequestBody:
    """The request that sets the minimum of in-sync replicas."""
    change = AlterableConfig("min.insync.replicas", CONFIG_SET, str(value))
    return IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_TOPIC, "t", [change])])


@pytest.mark.parametrize("make", [while_it_is_down, twice_in_one_delta, after_its_elr_was_cleared])
def test_a28_topics_made_anew(make: Any) -> None:
    """KAFKA-14616, 17190, 19383: all replicas of the new topic exist and are in sync, no node hosts one of the earlier
    topic, and none of its records comes back. What a node that was down has of it, it keeps aside."""
    world = voting()
    resting(world)
    earlier = key_of(world)
    topic_id = make(world)
    assert topic_id != earlier[0]
    until(world, lambda: all(world.is_registered(one) for one in (1, 2, 3)), "all are registered")
    until(world, in_sync(world, 1, 2, 3), "all are in sync")

    def are_all_new() -> bool:
        return all(
            world.hosted(one, (topic_id, 0)) is not None and world.hosted(one, earlier) is None for one in (1, 2, 3)
        )

    until(world, are_all_new, "every node hosts the new topic, and it alone")
    world.run_for(5_000)
    for node_id, machine in world.machines.items():
        assert log_of(world, node_id).end_offset == 0
        folders = [name for name in machine.disk.list(machine.address) if name.startswith("t-")]
        assert [name for name in folders if not name.endswith("-stray")] == [str(NAME)], folders
        assert machine.node is not None
        assert not machine.node.failed_requests
    assert world.partitions() == [(TopicPartition("t", 0), (topic_id, 0), partition(world))]


def silent_follower(world: World) -> bool:
    """Nobody sends, and a follower dies in silence; return whether it leaves the set."""
    until(world, lambda: acknowledged(world) > 5 and in_sync(world, 1, 2, 3)(), "records")
    rest(world)
    world.run_for(500)
    (follower,) = [one for one in (2, 3) if one not in (partition(world).leader, world.active_node)][:1]
    world.kill(follower, tell=False, silent=True)
    return world.run_until(lambda: follower not in partition(world).isr, 5_000)


def test_v40_a_silent_follower_of_an_idle_partition_leaves() -> None:
    """F42: it has all records, so only the end of its session takes it out, without any traffic. With a controller that
    fences nobody it would stay for ever, and the next append would wait for it."""
    world = voting()
    assert silent_follower(world)
    finish(world)
    assert not silent_follower(voting(controller_class=FencesNobody))


def test_a27_lost_heartbeats_fence_nobody() -> None:
    """KAFKA-19294: a node sends the next heartbeat although no answer came, so that one of them arrives before the
    session ends: only a silence of a whole session costs a leadership."""
    world = voting()
    until(world, in_sync(world, 1, 2, 3), "all are in sync")
    leader = partition(world).leader
    before = partition(world).leader_epoch
    for _ in range(5):
        world.network.cut_both(f"node-{leader}", world.controller_address(leader))
        world.run_for(world.options.config.session_timeout_ms * 0.6)
        world.network.heal()
        world.run_for(world.options.config.session_timeout_ms * 0.4)
    assert (partition(world).leader, partition(world).leader_epoch) == (leader, before)
    finish(world)


@pytest.mark.parametrize("seconds", [10, pytest.param(600, marks=pytest.mark.soak)])
@pytest.mark.timeout(1200)
def test_f70_nodes_are_killed_all_the_time(seconds: int) -> None:
    """Every node is killed again and again, with random pauses, for ten virtual minutes (here for some seconds of
    them); then all invariants hold, and all conditions of a quiet cluster come true."""
    options = WorldOptions(
        topics=(TopicOptions("t", durability="os"),),
        voters=3,
        apart=False,
        burst_interval_ms=500,
        burst_max=2,
        safety_ms=seconds * 1000,
        faults=dataclasses.replace(FaultRates.none(), kill=4, kill_all=1, interval_ms=1000, lasting_ms=1500),
        network=NetworkOptions(),
        config=dataclasses.replace(QUICK, heartbeat_interval_ms=200, replica_fetch_wait_max_ms=250),
    )
    world = World(7, options)
    world.run()
    assert world.faults["kill"] >= seconds // 3
    assert world.faults["kill_all"] >= seconds // 20
    assert acknowledged(world) > seconds // 3
