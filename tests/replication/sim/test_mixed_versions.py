"""Row 115: nodes of two versions in one cluster. Old ones know feature level 0 only; they are upgraded when they
restart, one by one, and the level rises when the last one is."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from pyreplog.config import NodeConfig
from pyreplog.controller import LEVEL_LATEST
from pyreplog.errors import UnsupportedVersionError
from pyreplog.testing import TopicOptions, World, WorldOptions
from tests.replication.sim.cluster import QUICK, acknowledged, calm, finish, in_sync, until
from tests.unit.node.caller import loose


def mixed(old_nodes: int, config: NodeConfig = QUICK) -> World:
    """A calm world of three nodes, of which so many are old."""
    options = dataclasses.replace(calm(TopicOptions("t")).options, old_nodes=old_nodes, config=config)
    return World(1, options)


def test_the_level_rises_with_the_last_upgrade() -> None:
    """Clients notice nothing while nodes are upgraded one after the other, and the level rises only at the end."""
    world = mixed(3)
    assert world.image.level == 0
    for node_id in (1, 2, 3):
        until(world, in_sync(world, 1, 2, 3), "all are in sync")
        assert world.image.level == 0
        assert world.image.brokers[node_id].level_max == 0
        count = acknowledged(world)
        world.stop(node_id)
        until(world, lambda count=count: acknowledged(world) > count + 5, "appends go on")  # type: ignore[misc]
        world.start(node_id)
        until(world, lambda node_id=node_id: world.is_registered(node_id), "it is back")  # type: ignore[misc]
    assert world.image.level == LEVEL_LATEST
    world.stop_controller(power_loss=True)
    world.start_controller()
    assert world.image.level == LEVEL_LATEST, "the next start keeps it"
    finish(world)


def test_an_old_node_cannot_join_a_cluster_of_a_higher_level() -> None:
    """Its failure names both levels and what to do; the others go on."""
    world = loose(mixed(0), "S11")
    until(world, in_sync(world, 1, 2, 3), "all are in sync")
    world.stop(3)
    node_class, world._node_class = world._node_class, world._old_node_class
    world.start(3)
    world.run_for(300)
    node = world.machines[3].node
    assert node is not None
    assert isinstance(node.failure, UnsupportedVersionError)
    assert "replog.version up to 0" in str(node.failure)
    assert "install the version" in str(node.failure)
    world._node_class = node_class
    world.stop(3)
    world.start(3)
    until(world, in_sync(world, 1, 2, 3), "it is back with the right version")
    finish(world)


@pytest.mark.parametrize("seed", range(40, 44))
def test_mixed_versions_under_faults(seed: int) -> None:
    """Every invariant holds in clusters that begin at level 0, with one old node or only old ones."""
    options = WorldOptions.drawn(Random(seed))
    old_nodes = (1, options.nodes)[seed % 2]
    World(
        seed, dataclasses.replace(options, old_nodes=old_nodes, faults=dataclasses.replace(options.faults, rot=0))
    ).run()
