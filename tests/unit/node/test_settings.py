"""Settings that change, and partitions that come, while nodes and clients run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyreplog.controller import Controller, PartitionDecision, PartitionImage, PartitionKey
from pyreplog.log import Log, read_config
from pyreplog.log.unloaded import UnloadedLog
from pyreplog.testing import InvariantBroken, TopicOptions, World
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    CONFIG_DELETE,
    CONFIG_SET,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    AlterableConfig,
    AlterConfigsResource,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DescribeClusterRequest,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
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
from tests.unit.node.caller import OS, Caller, batch, node_of, produce, quiet
from tests.unit.node.test_sleeping import append, drowsy, restart_all, settled

CONTROLLER = "controller"
"""Stands for the active controller, wherever it is."""


def alter(caller: Caller, **config: str | None) -> None:
    """Change settings of the topic."""
    ask(caller, RESOURCE_TOPIC, NAME.topic, **config)


def ask(caller: Caller, kind: int, name: str, **config: str | None) -> None:
    """Change settings of a topic or of the cluster; the controller says that it is done."""
    changes = [
        AlterableConfig(key.replace("_", "."), CONFIG_DELETE if value is None else CONFIG_SET, value)
        for key, value in config.items()
    ]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, changes)])
    answer = caller.ask(CONTROLLER, request)
    assert answer.responses[0].error_code == 0, answer


def logs(world: World) -> list[Log]:
    """The copies of all nodes."""
    return [log_of(world, node_id) for node_id in world.node_ids]


def test_nodes_apply_settings_to_open_logs_and_keep_them() -> None:
    """At once, on leaders and followers, also those that the cluster's defaults change; a restarted node has them."""
    world, caller = quiet()
    alter(caller, retention_ms="123456", segment_bytes="2048")
    ask(caller, RESOURCE_BROKER, "", max_message_bytes="1999")
    until(world, lambda: all(log.config.max_message_bytes == 1999 for log in logs(world)), "applied")
    for log in logs(world):
        assert (log.config.retention_ms, log.config.segment_bytes) == (123456, 2048)
        assert read_config(log.disk, log.directory) == log.config
    world.kill(1)
    world.run_for(200)
    alter(caller, retention_ms=None)
    world.run_for(200)
    world.start(1)
    until(world, in_sync(world, 1, 2, 3), "in sync")
    for log in logs(world):
        assert (log.config.retention_ms, log.config.segment_bytes, log.config.max_message_bytes) == (-1, 2048, 1999)
        assert read_config(log.disk, log.directory) == log.config


def test_a_leader_refuses_by_the_new_limit() -> None:
    """max.message.bytes of the next batch."""
    world, caller = quiet()
    leader = partition(world).leader
    alter(caller, max_message_bytes="100")
    until(world, lambda: log_of(world, leader).config.max_message_bytes == 100, "applied")
    data = [PartitionProduceData(0, batch(b"x" * 100))]
    answer = caller.ask(leader, ProduceRequest(-1, 2000, [TopicProduceData(key_of(world)[0], data)]))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_retention_that_is_lowered_takes_effect() -> None:
    """On every copy, at the next check."""
    world = calm(
        TopicOptions("t", durability="os", segment_bytes=1024),
        config=replace(QUICK, log_retention_check_interval_ms=400),
    )
    until(world, lambda: acknowledged(world) > 10, "records")
    until(world, lambda: log_of(world, 1).stats().segment_count > 6, "segments")
    world.delete_asked[NAME] = 10**9  # the checker allows a start anywhere below the committed end
    alter(Caller(world), retention_bytes="3000")
    until(world, lambda: all(log.start_offset > 0 for log in logs(world)), "segments gone", 1500)
    finish(world)


def test_a_sleeping_log_gets_its_settings_when_it_is_opened() -> None:
    """Nothing is opened for that, except by retention, which must look again."""
    world, caller = drowsy()
    append(world, caller)
    settled(world)
    restart_all(world)
    alter(caller, segment_bytes="2048")
    world.run_for(500)
    for node_id in (1, 2, 3):
        hosted = world.hosted(node_id, key_of(world))
        assert hosted is not None
        assert isinstance(hosted.replica.log, UnloadedLog)
        assert hosted.replica.log.config.segment_bytes == 2048
        assert hosted.replica.log.has_new_settings
        log = hosted.replica.load_log()
        assert log.config.segment_bytes == 2048
        assert read_config(log.disk, log.directory) == log.config


@pytest.mark.parametrize("minimum", ["1", "3"])
def test_a32_min_isr_changes_under_load(minimum: str) -> None:
    """While one member of three is away, the minimum of 2 is lowered and raised again: what was acknowledged stays,
    whoever leads next, and by a minimum of 3 nothing is acknowledged."""
    world = calm(TopicOptions("t", min_insync_replicas=2), config=QUICK)
    caller = Caller(world)
    until(world, lambda: acknowledged(world) > 20, "records")
    leader = partition(world).leader
    first, second = (one for one in (1, 2, 3) if one != leader)
    world.kill(first)
    until(world, in_sync(world, leader, second), "two in sync")
    before = acknowledged(world)
    alter(caller, min_insync_replicas=minimum)
    if minimum == "3":
        world.run_for(300)
        count = acknowledged(world)
        world.run_for(300)
        assert acknowledged(world) == count, "two members are too few now"
        alter(caller, min_insync_replicas="2")
    until(world, lambda: acknowledged(world) > before + 20, "records again")
    world.kill(second)
    until(world, in_sync(world, leader), "one in sync")
    assert partition(world).elr == ((second,) if minimum == "3" else ())
    if minimum == "3":
        alter(caller, min_insync_replicas="1")
        assert partition(world).elr == ()
    before = acknowledged(world)
    until(world, lambda: acknowledged(world) > before + 20, "the leader alone suffices")
    world.start(first)
    world.start(second)
    until(world, in_sync(world, 1, 2, 3), "in sync")
    world.kill(leader)
    until(world, lambda: partition(world).leader not in (-1, leader), "another leader")
    world.start(leader)
    finish(world)


def test_new_partitions_are_served() -> None:
    """Every node has a copy of each, with the topic's settings, and appends are acknowledged."""
    world, caller = quiet(replace(OS, segment_bytes=4096))
    answer = caller.ask(CONTROLLER, CreatePartitionsRequest([CreatePartitionsTopic("t", 3)]))
    assert answer.results[0].error_code == 0
    topic_id = key_of(world)[0]

    def everywhere() -> bool:
        return all(
            world.hosted(node_id, (topic_id, number)) is not None for node_id in world.node_ids for number in (1, 2)
        )

    until(world, everywhere, "copies")
    for number in (1, 2):
        entry = world.image.topics[topic_id].partitions[number]
        answer = caller.ask(entry.leader, produce(topic_id, number))
        assert answer.responses[0].partition_responses[0].error_code == 0
        root = world.machines[entry.leader].root
        assert root is not None
        assert root.logs[TopicPartition("t", number)].config.segment_bytes == 4096


def test_a_node_names_no_states() -> None:
    """Only the controller knows which nodes it hears from; both requests are refused by nodes."""
    world, caller = quiet()
    assert {one.state for one in caller.ask(1, DescribeClusterRequest()).brokers} == {-1}
    assert {one.state for one in caller.ask(CONTROLLER, DescribeClusterRequest()).brokers} == {2}
    world.kill(1)
    states = {one.broker_id: one.state for one in caller.ask(CONTROLLER, DescribeClusterRequest()).brokers}
    assert states == {1: 0, 2: 2, 3: 2}
    refused = caller.ask(2, CreatePartitionsRequest([CreatePartitionsTopic("t", 3)]))
    assert refused.results[0].error_code == ErrorCode.NOT_CONTROLLER
    assert node_of(world, 2).node_id == 2


class KeepsEligible(Controller):
    """Planted: it forgets that a new minimum voids the eligible replicas."""

    def _renew(self, key: PartitionKey, before: PartitionImage, after: PartitionDecision) -> None:
        """Leave the partition as it is."""


def lowered_then_alone(controller_class: type[Controller]) -> World:
    """One in-sync replica is left of three under a minimum of 2; the minimum is lowered to 1, the leader acknowledges
    alone and dies, and the replica that was eligible before comes back."""
    options = calm(TopicOptions("t", min_insync_replicas=2, durability="os")).options
    world = World(1, options, controller_class=controller_class)
    until(world, lambda: acknowledged(world) > 20, "records")
    leader = partition(world).leader
    first, second = (one for one in (1, 2, 3) if one != leader)
    world.kill(first)
    until(world, in_sync(world, leader, second), "two in sync")
    world.kill(second)
    until(world, in_sync(world, leader), "one in sync")
    assert partition(world).elr == (second,)
    alter(Caller(world), min_insync_replicas="1")
    before = acknowledged(world)
    until(world, lambda: acknowledged(world) > before + 20, "the leader alone suffices")
    world.kill(leader)
    world.start(second)
    world.run_for(3000)
    return world


def test_an_eligible_replica_of_an_older_minimum_does_not_lead() -> None:
    """It lacks what the leader acknowledged alone; the partition waits for that one."""
    world = lowered_then_alone(Controller)
    assert partition(world).leader == -1
    for node_id in world.node_ids:
        world.start(node_id)
    finish(world)


def test_planted_a_controller_that_keeps_eligible_replicas_loses_records() -> None:
    """The checkers see the loss."""
    with pytest.raises(InvariantBroken):
        finish(lowered_then_alone(KeepsEligible))
