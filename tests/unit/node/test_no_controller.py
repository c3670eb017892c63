"""Nodes while no controller is active: every request of theirs is refused with NOT_CONTROLLER, and nothing is lost."""

from __future__ import annotations

from pyreplog.testing import Checker, TopicOptions, World
from pyreplog.testing.observed import ObservedWorld
from pyreplog.wire import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ErrorCode,
    FetchRequest,
    InitProducerIdRequest,
    Request,
)
from tests.replication.sim.cluster import in_sync, partition, until
from tests.unit.node.caller import node_of, produce, quiet

OS = TopicOptions("t", durability="os", min_insync_replicas=1)


class Nobody(Checker):
    """The only voter is down, so every node's own server refuses; counts what the nodes ask."""

    numbers = ("nobody",)

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[type] = []
        world.watch_with([*world.checkers, self])
        world.stop_controller(power_loss=False)

    def message(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """Note a request of a node to its own server."""
        if isinstance(message, Request) and source.startswith("node-") and target.startswith("controller-"):
            self.asked.append(type(message.body))

    def end(self) -> None:
        """A controller is active again."""
        self.world.start_controller()


def test_nothing_is_lost_while_no_controller_is_active() -> None:
    """A registration, heartbeats, a proposal, metadata and a producer id are refused for a while, and all come to
    their end once a controller is active. Meanwhile nothing is asked in a tight loop."""
    world, caller = quiet(OS)
    leader = partition(world).leader
    away, other = (one for one in world.node_ids if one != leader)
    topic_id = world.image.topic_ids["t"]
    world.kill(away)
    until(world, in_sync(world, leader, other), "it is out")
    nobody = Nobody(world)
    world.start(away)
    world.network.cut_both(f"node-{leader}", f"node-{other}")
    caller.send(leader, produce(topic_id, 0))
    world.run_for(20)
    refused = caller.send(leader, InitProducerIdRequest())
    world.run_for(450)
    caller.take()
    assert caller.answers.pop(refused).error_code == ErrorCode.NOT_CONTROLLER
    counts = {kind: nobody.asked.count(kind) for kind in dict.fromkeys(nobody.asked)}
    assert counts[BrokerRegistrationRequest] in range(5, 15)
    assert counts[BrokerHeartbeatRequest] in range(8, 40)
    assert counts[FetchRequest] in range(10, 60)
    assert counts[AlterPartitionRequest] in range(1, 12)
    nobody.end()
    world.network.heal()
    until(world, in_sync(world, 1, 2, 3), "all are in sync")
    until(world, lambda: not any(node_of(world, one).fenced for one in world.node_ids), "all serve")
    assert caller.ask(leader, InitProducerIdRequest()).producer_id >= 0
    assert node_of(world, away).failure is None


def test_a_controller_that_is_soon_active_is_found_soon() -> None:
    """A node that starts while the voters still elect registers within milliseconds of the election, not after its
    usual interval."""
    world, _ = quiet(OS)
    away = next(one for one in world.node_ids if one != partition(world).leader)
    world.kill(away)
    nobody = Nobody(world)
    world.start(away)
    world.run_for(10)
    nobody.end()
    began = world.clock.monotonic_ns()
    until(world, lambda: world.is_registered(away) and node_of(world, away).broker_epoch >= 0, "it is registered")
    assert world.clock.monotonic_ns() - began < 30_000_000
