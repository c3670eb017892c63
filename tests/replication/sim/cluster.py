"""Worlds for schedules written by hand: nothing happens in them but what the test does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyreplog.config import NodeConfig
from pyreplog.controller import PartitionImage, PartitionKey
from pyreplog.log import Log
from pyreplog.replica import Replica
from pyreplog.testing import FaultRates, NetworkOptions, TopicOptions, World, WorldOptions
from pyreplog.values import TopicPartition

QUICK = NodeConfig(
    replica_lag_time_max_ms=300,
    replica_fetch_wait_max_ms=100,
    heartbeat_interval_ms=100,
    session_timeout_ms=600,
    recovery_point_checkpoint_interval_ms=60_000,
    high_watermark_checkpoint_interval_ms=60_000,
)
NAME = TopicPartition("t", 0)


def calm(
    topic: TopicOptions,
    *,
    seed: int = 1,
    nodes: int = 3,
    config: NodeConfig = QUICK,
    burst_interval_ms: int = 5,
    burst_max: int = 2,
    sync_delay_max_us: int = 1000,
    network: NetworkOptions | None = None,
    replica_class: type[Replica] = Replica,
    log_class: type[Log] = Log,
) -> World:
    """A world without faults, with one topic and one producer that never rests."""
    options = WorldOptions(
        nodes=nodes,
        topics=(replace(topic, name=NAME.topic),),
        burst_interval_ms=burst_interval_ms,
        burst_max=burst_max,
        sync_delay_max_us=sync_delay_max_us,
        faults=FaultRates.none(),
        network=network or NetworkOptions(),
        config=config,
    )
    return World(seed, options, replica_class=replica_class, log_class=log_class)


def key_of(world: World) -> PartitionKey:
    """The one partition's key."""
    return (world.image.topic_ids[NAME.topic], 0)


def partition(world: World) -> PartitionImage:
    """As the controller has it."""
    found = world.image.partition(key_of(world))
    assert found is not None
    return found


def log_of(world: World, node_id: int) -> Log:
    """A node's copy; the node is up and hosts it."""
    hosted = world.hosted(node_id, key_of(world))
    assert hosted is not None
    return hosted.replica.load_log()


def acknowledged(world: World) -> int:
    """Appends that were acknowledged so far."""
    return sum(attempt.outcome == "ok" for producer in world.producers for attempt in producer.attempts)


def until(world: World, done: Callable[[], bool], what: str, within_ms: float = 20_000) -> None:
    """Step until ``done``."""
    assert world.run_until(done, within_ms), f"not within {within_ms} ms: {what}\n" + "\n".join(world.events)


def in_sync(world: World, *members: int) -> Callable[[], bool]:
    """Whether exactly these are in sync, with a leader."""
    return lambda: sorted(partition(world).isr) == sorted(members) and partition(world).leader >= 0


def all_die(world: World, *, power_loss: bool) -> None:
    """Everybody at once, the controller too; nobody comes back yet but the controller, which knows that the others are
    gone."""
    for node_id, machine in world.machines.items():
        if machine.node is None:
            continue
        if power_loss:
            world.lose_power(node_id, tell=False)
        else:
            world.kill(node_id, tell=False, silent=True)
    world.stop_controller(power_loss=power_loss)
    world.start_controller()
    until(world, lambda: world.controller_is_up, "the controller is back")


def finish(world: World) -> None:
    """No more records; everything must become quiet, whole and equal, with all that was acknowledged."""
    world.options = replace(world.options, safety_ms=0)
    world.run()
