"""Nodes as others meet them: requests answered, disks that fail, shutdowns, checkpoints, the lease. In calm
simulated clusters."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from pyreplog.errors import StorageError
from pyreplog.log import Log
from pyreplog.record import split
from pyreplog.replica import Effect, Event, Replica, Tick
from pyreplog.testing import SimDisk, TopicOptions, World
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    RESOURCE_TOPIC,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeTopicPartitionsRequest,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    ProduceRequest,
    ProduceResponse,
    Request,
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
from tests.unit.node.caller import OS, SYNC, Caller, loose, node_of, produce, quiet


def test_appending_and_reading_many_partitions() -> None:
    """A request of several partitions has one answer, each partition's outcome in it; a fetch of several brings all
    there is."""
    world, caller = quiet(TopicOptions("t", partitions=3, replication_factor=1, min_insync_replicas=1, durability="os"))
    topic_id = key_of(world)[0]
    leaders = {number: one.leader for number, one in world.image.topics[topic_id].partitions.items()}
    for number, leader in leaders.items():
        answer = caller.ask(leader, produce(topic_id, number))
        assert [part.base_offset for topic in answer.responses for part in topic.partition_responses] == [0]
        everything = caller.ask(leader, produce(topic_id, 0, 1, 2, 9))
        assert isinstance(everything, ProduceResponse)
        found = {part.index: part for topic in everything.responses for part in topic.partition_responses}
        assert found[number].base_offset == 2
        assert all(found[one].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for one in range(3) if one != number)
        assert found[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wanted = FetchRequest(300, 1, [FetchTopic(topic_id, [FetchPartition(one, -1, 0) for one in (0, 1, 2, 9)])])
        read = caller.ask(leader, wanted)
        assert isinstance(read, FetchResponse)
        parts = {part.partition_index: part for topic in read.responses for part in topic.partitions}
        assert parts[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        records: Any = parts[number].records
        assert sum(one.record_count for one in split(records)) == 4
        assert parts[number].high_watermark == 4
    assert (
        caller.ask(1, produce("no such id", 0)).responses[0].partition_responses[0].error_code
        == ErrorCode.UNKNOWN_TOPIC_ID
    )
    assert caller.ask(1, ProduceRequest(-1, 100, [])).responses == []
    assert caller.ask(1, produce(topic_id, 0, 1, acks=0), within_ms=500) is None, "acks=0 is never answered"


def test_a_fetch_of_several_waits_for_the_first_that_has_something() -> None:
    """All partitions are empty: the answer comes with the first append, or empty when the wait is over."""
    options = TopicOptions("t", partitions=4, replication_factor=1, min_insync_replicas=1, durability="os")
    world, caller = quiet(options, nodes=3)
    topic_id = key_of(world)[0]
    by_leader: dict[int, list[int]] = {}
    for number, one in world.image.topics[topic_id].partitions.items():
        by_leader.setdefault(one.leader, []).append(number)
    leader, mine = next((leader, mine) for leader, mine in by_leader.items() if len(mine) == 2)
    wanted = FetchRequest(400, 1, [FetchTopic(topic_id, [FetchPartition(one, -1, 0) for one in mine])])
    started = world.clock.monotonic_ns()
    empty = caller.ask(leader, wanted)
    assert [part.records for topic in empty.responses for part in topic.partitions if part.records] == []
    assert world.clock.monotonic_ns() - started >= 400_000_000
    number = caller.send(leader, wanted)
    world.run_for(50)
    caller.ask(leader, produce(topic_id, mine[1]))
    world.run_for(20)
    caller.take()
    read = caller.answers[number]
    found = {part.partition_index: part for topic in read.responses for part in topic.partitions}
    assert found[mine[1]].records
    assert not found[mine[0]].records


def test_offsets_and_epochs() -> None:
    """ListOffsets and OffsetForLeaderEpoch are answered by the leader; others refuse."""
    world, caller = quiet()
    leader = partition(world).leader
    other = next(one for one in world.node_ids if one != leader)
    caller.ask(leader, produce(key_of(world)[0], 0))
    for timestamp, offset in ((EARLIEST_TIMESTAMP, 0), (LATEST_TIMESTAMP, 2), (1000, 0)):
        asked = ListOffsetsRequest([ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp)])])
        assert caller.ask(leader, asked).topics[0].partitions[0].offset == offset
    asked = ListOffsetsRequest([ListOffsetsTopic("t", [ListOffsetsPartition(0, -1), ListOffsetsPartition(7, -1)])])
    codes = [part.error_code for part in caller.ask(other, asked).topics[0].partitions]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    epochs = OffsetForLeaderEpochRequest(
        [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, 0), OffsetForLeaderPartition(7, 0)])]
    )
    found = caller.ask(leader, epochs).topics[0].partitions
    assert [(one.error_code, one.leader_epoch, one.end_offset) for one in found] == [
        (0, 0, 2),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


def test_descriptions_from_a_node() -> None:
    """Any node says who leads what; deciding is the controller's."""
    world, caller = quiet()
    found = caller.ask(2, MetadataRequest())
    assert [topic.name for topic in found.topics] == ["t"]
    assert found.topics[0].partitions[0].leader_id == partition(world).leader
    assert found.cluster_id == world.cluster_id
    assert caller.ask(2, DescribeTopicPartitionsRequest(["t"])).topics[0].partitions[0].isr_nodes == (1, 2, 3)
    assert len(caller.ask(2, DescribeClusterRequest()).brokers) == 3
    settings = caller.ask(2, DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, "t")]))
    assert {one.name: one.value for one in settings.results[0].configs}["durability"] == "os"
    assert caller.ask(2, CreateTopicsRequest([CreatableTopic("x")])).topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert (
        caller.ask(2, DeleteTopicsRequest([DeleteTopicState("t")])).responses[0].error_code == ErrorCode.NOT_CONTROLLER
    )


def test_deleting_a_topic_removes_its_folders() -> None:
    """The controller deletes; every node removes its copy, and requests for it are refused."""
    world, caller = quiet()
    topic_id = key_of(world)[0]
    caller.ask("controller", DeleteTopicsRequest([DeleteTopicState("t")]))
    world.run_for(500)
    for machine in map(world.machines.__getitem__, world.node_ids):
        assert not [name for name in machine.disk.list(machine.address) if name.startswith("t-0")]
        assert not node_of(world, machine.node_id).hosted
    assert (
        caller.ask(1, produce(topic_id, 0)).responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    )


def test_a_failed_sync_takes_the_node_out() -> None:
    """After a failed sync the leader's node leaves the cluster, the others lead on, and nothing acknowledged is
    lost."""
    world = calm(SYNC)
    until(world, lambda: acknowledged(world) > 40, "records")
    victim = partition(world).leader
    loose(world, "S11")
    world.machines[victim].disk.fail("sync", "*.log", times=None)
    until(world, lambda: node_of(world, victim).offline is not None, "it noticed")
    until(world, lambda: partition(world).leader not in (victim, -1), "another leads")
    assert victim not in partition(world).isr
    before = acknowledged(world)
    until(world, lambda: acknowledged(world) > before + 40, "the others go on")
    caller = Caller(world)
    answer = caller.ask(victim, produce(key_of(world)[0], 0))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.machines[victim].disk.clear_faults()
    world.stop(victim)
    finish(world)


def test_a_sync_for_which_there_is_no_descriptor_is_begun_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of very many partitions take all that there are: the node stays, and what was appended is acknowledged
    when it is synced."""
    world = calm(SYNC)
    until(world, lambda: acknowledged(world) > 10, "records")
    begin, left = SimDisk.submit_sync, [30]

    def refused(disk: SimDisk, files: Any, wake: Any) -> int:
        if left[0]:
            left[0] -= 1
            raise StorageError(errno.EMFILE, "Too many open files", "x.log")
        return begin(disk, files, wake)

    monkeypatch.setattr(SimDisk, "submit_sync", refused)
    until(world, lambda: not left[0], "refusals")
    before = acknowledged(world)
    until(world, lambda: acknowledged(world) > before + 40, "appends")
    assert all(node_of(world, node_id).offline is None for node_id in (1, 2, 3))
    finish(world)


def test_a_full_disk_refuses_and_recovers() -> None:
    """ENOSPC on the leader refuses appends, keeps the node, and everything works again when there is room."""
    world, caller = quiet()
    leader = partition(world).leader
    disk = world.machines[leader].disk
    disk.fail("write", "*.log", error=28, times=None)
    answer = caller.ask(leader, produce(key_of(world)[0], 0))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.clear_faults()
    answer = caller.ask(leader, produce(key_of(world)[0], 0))
    assert answer.responses[0].partition_responses[0].base_offset == 0
    assert node_of(world, leader).offline is None


def test_a_copy_that_finds_no_room_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often it is tried; and what is said to be refused is so only until it is there, or wanted no more."""
    world, caller = quiet()
    for one in (1, 2):
        world.machines[one].disk.fail("write", "*partition.metadata*", error=28, times=None)
    caller.transport.send(
        world.controller_address(world.active_node),
        Request("caller", 1, CreateTopicsRequest([CreatableTopic("u", 2, 3)], 1000)),
    )
    world.run_for(5_000)
    for one in (1, 2):
        assert [key[1] for key in node_of(world, one).refused] == [0, 1]
        said = [record.getMessage() for record in caplog.records if record.getMessage().startswith(f"node {one}: ")]
        assert ["u-0/partition.metadata" in said[0], "u-1/partition.metadata" in said[1], len(said)] == [True, True, 2]
    world.machines[1].disk.clear_faults()
    world.run_for(2_000)
    assert not node_of(world, 1).refused
    caller.transport.send(
        world.controller_address(world.active_node),
        Request("caller", 2, DeleteTopicsRequest([DeleteTopicState("u")], 1000)),
    )
    world.run_for(2_000)
    assert not node_of(world, 2).refused


def test_a_copy_that_finds_no_room_is_tried_once_a_second() -> None:
    """However often its partition's leader or in-sync set changed meanwhile."""
    world, caller = quiet()
    disk = world.machines[2].disk
    disk.fail("write", "*u-0/partition.metadata*", error=28, times=None)
    caller.transport.send(
        world.controller_address(world.active_node),
        Request("caller", 1, CreateTopicsRequest([CreatableTopic("u", 1, 3)], 1000)),
    )
    for _ in range(4):
        for one in (1, 3):
            world.kill(one)
            world.run_for(3_000)
            world.start(one)
            world.run_for(3_000)
    tries: list[str] = []
    disk.observer = lambda call: (
        tries.append(call.path) if "u-0/partition.metadata" in call.path and call.kind == "write" else None
    )
    world.run_for(10_000)
    assert 9 <= len(tries) <= 11


def test_the_last_copy_outlives_a_full_disk() -> None:
    """Who is elected on a full disk leads and refuses; and a copy that has to be opened again for lack of room lost
    nothing, so that it leads again, however little the others have."""
    world, caller = quiet()
    loose(world, "S11")
    leader, *others = (partition(world).leader, *(one for one in world.node_ids if one != partition(world).leader))
    assert caller.ask(leader, produce(key_of(world)[0], 0)).responses[0].partition_responses[0].base_offset == 0
    machine = world.machines[leader]
    for other in others:
        world.kill(other)
    world.kill(leader)
    world.start(leader)
    machine.disk.fail("write", "*/t-0/*", times=None, error=28)  # no room for the topic; there is for the metadata
    until(world, lambda: partition(world).leader == leader, "it leads, alone")
    world.run_for(200)
    assert node_of(world, leader).offline is None
    assert caller.ask(leader, produce(key_of(world)[0], 0, acks=1)).responses[0].partition_responses[0].error_code == (
        ErrorCode.KAFKA_STORAGE_ERROR
    )
    assert log_of(world, leader).epochs.latest < partition(world).leader_epoch
    machine.disk.clear_faults()
    machine.disk.capacity = None
    until(
        world,
        lambda: log_of(world, leader).epochs.latest == partition(world).leader_epoch,
        "its epoch is recorded",
        within_ms=600,
    )
    assert caller.ask(leader, produce(key_of(world)[0], 0, acks=1)).responses[0].partition_responses[0].base_offset == 2
    # A roll that ends half-way is beyond going on: the node leaves, and is opened again.
    log_of(world, leader).fail_after_refused_write(StorageError(28, "No space left on device"))
    caller.ask(leader, produce(key_of(world)[0], 0, acks=1))
    assert node_of(world, leader).offline is not None
    world.kill(leader)
    world.start(leader)
    assert not log_of_root(world, leader).incomplete
    for other in others:
        world.start(other)
    until(world, in_sync(world, 1, 2, 3), "everybody is back")
    assert {log_of(world, one).end_offset for one in world.node_ids} == {4}


def log_of_root(world: World, node_id: int) -> Log:
    """A node's copy as it was opened, hosted or not."""
    root = world.machines[node_id].root
    assert root is not None
    return root.logs[NAME]


def test_a_mark_that_cannot_be_synced_takes_the_node_out() -> None:
    """A checkpoint's sync that fails is a failed sync like any other: the node leaves, and others lead."""
    config = replace(QUICK, recovery_point_checkpoint_interval_ms=300)
    world = loose(calm(OS, config=config), "S11")
    until(world, lambda: acknowledged(world) > 10, "records")
    victim = partition(world).leader
    world.machines[victim].disk.fail("sync", "*.mark")
    until(world, lambda: node_of(world, victim).offline is not None, "it noticed")
    until(world, lambda: partition(world).leader not in (victim, -1), "another leads")
    world.kill(victim)
    world.start(victim)
    assert log_of_root(world, victim).incomplete
    finish(world)


def test_controlled_shutdown_loses_nothing_and_refuses_little() -> None:
    """F72: nodes that stop in order, one after the other, hand over first; no outcome is unknown, and the ISR stays
    at two or more."""
    world = calm(OS)
    until(world, lambda: acknowledged(world) > 40, "records")
    for node_id in (1, 2, 3):
        node = node_of(world, node_id)
        node.begin_shutdown()
        until(world, lambda one=node: one.may_stop, "handed over", within_ms=3000)  # type: ignore[misc]
        assert partition(world).leader not in (node_id, -1)
        assert len(partition(world).isr) >= 2
        world.stop(node_id)
        world.start(node_id)
        until(world, in_sync(world, 1, 2, 3), "it is back in sync")
    finish(world)
    outcomes = [attempt.outcome for producer in world.producers for attempt in producer.attempts]
    assert outcomes.count("unknown") == 0
    assert outcomes.count("ok") > 60


def test_checkpoints_on_their_schedule_and_at_the_end() -> None:
    """The three files are written when their time has come, and by a clean close; a clean start believes them."""
    config = type(QUICK)(
        recovery_point_checkpoint_interval_ms=900,
        high_watermark_checkpoint_interval_ms=300,
        log_start_offset_checkpoint_interval_ms=1500,
        heartbeat_interval_ms=100,
    )
    world = calm(OS, config=config)
    until(world, lambda: acknowledged(world) > 10, "records")
    disk = world.machines[1].disk

    def present(name: str) -> bool:
        return disk.stat(f"node-1/{name}") is not None

    began = world.clock.monotonic_ns()
    for name, within_ms in (
        ("replication-offset-checkpoint", 300),
        ("recovery-point-offset-checkpoint", 900),
        ("log-start-offset-checkpoint", 1500),
    ):
        world.run_until(lambda one=name: present(one), within_ms + 100)  # type: ignore[misc]
        assert present(name), f"{name} after {(world.clock.monotonic_ns() - began) / 1e6} ms"
    for producer in world.producers:
        producer.sending = False
    until(world, lambda: all(producer.is_idle for producer in world.producers), "quiet")
    world.run_for(500)
    end = log_of(world, 1).end_offset
    world.stop(1)
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        file = disk.open(f"node-1/{name}")
        assert f"t 0 {end}".encode() in bytes(file.read_at(0, file.size()))
    assert disk.stat("node-1/.kafka_cleanshutdown") is not None
    world.start(1)
    root = world.machines[1].root
    assert root is not None
    assert root.clean
    assert root.logs[NAME].recovery.clean
    assert root.logs[NAME].high_watermark == end


def test_the_lease_ends() -> None:
    """F58: a leader that hears nothing from the controller refuses clients before another one can lead."""
    world, caller = quiet(TopicOptions("t", durability="os", acks=1))
    old = partition(world).leader
    topic_id = key_of(world)[0]
    assert caller.ask(old, produce(topic_id, 0, acks=1)).responses[0].partition_responses[0].error_code == 0
    for other in (*(f"node-{one}" for one in world.node_ids if one != old), world.controller_address(old)):
        world.network.cut_both(f"node-{old}", other)
    until(world, lambda: partition(world).leader not in (old, -1), "another leads")
    answer = caller.ask(old, produce(topic_id, 0, acks=1))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    read = caller.ask(old, FetchRequest(0, 1, [FetchTopic(topic_id, [FetchPartition(0, -1, 0)])]))
    assert read.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log_of(world, old).end_offset == 2
    world.network.heal()
    until(world, in_sync(world, 1, 2, 3), "healed")


def test_a_root_of_another_cluster_cannot_join() -> None:
    """The controller's refusal is kept as the node's failure, and it asks no more."""
    world, _ = quiet()
    loose(world, "S11", "S24")
    world.stop(3)
    other = calm(OS, seed=2)
    machine = other.machines[3]
    world.machines[3].disk = machine.disk
    machine.stop()
    world.machines[3].disk.manual = True
    world.cluster_id = other.cluster_id
    world.watch_with(())
    world.start(3)
    world.run_for(500)
    failure = node_of(world, 3).failure
    assert failure is not None
    assert "node 3" in str(failure)
    assert world.image.brokers[3].fenced


def test_a_damaged_copy_is_set_aside_and_fetched_anew() -> None:
    """Rot below the durable mark of one copy: it is kept beside, never served, and the partition comes back from
    another node."""
    world = calm(SYNC)
    until(world, lambda: acknowledged(world) > 60 and in_sync(world, 1, 2, 3)(), "records")
    world.run_for(200)
    victim = partition(world).leader
    loose(world, "S24")
    world.kill(victim)
    disk = world.machines[victim].disk
    folder = f"node-{victim}/{NAME}"
    logs = [f"{folder}/{name}" for name in disk.list(folder) if name.endswith(".log")]
    scanned = logs[-1]  # older segments were synced when they were closed, and are not read through again
    stat = disk.stat(scanned)
    assert stat is not None
    assert stat.size > 300
    disk.flip(scanned, 70)
    world.start(victim)
    root = world.machines[victim].root
    assert root is not None
    assert NAME in root.damaged
    finish(world)
    assert not root.damaged
    strays = [name for name in disk.list(f"node-{victim}") if name.endswith("-stray")]
    assert len(strays) == 1
    assert TopicPartition("t", 0) in root.logs


def test_ten_thousand_idle_turns_do_not_look_at_partitions() -> None:
    """A turn with nothing to do touches no replica: what it costs does not grow with what is hosted."""
    world, _ = quiet(TopicOptions("t", partitions=50, replication_factor=1, min_insync_replicas=1, durability="os"))
    node = node_of(world, 1)
    touched: list[object] = []

    class Watched(Replica):
        def step(self, event: Event, now_ns: int) -> list[Effect]:
            touched.append(event)
            return super().step(event, now_ns)

    for hosted in node.hosted.values():
        old = hosted.replica
        hosted.replica = Watched(old.log, old.broker_id, old.config)
    for _ in range(10_000):
        node.poll()
    assert touched == []
    (hosted, *_) = node.hosted.values()
    node._effects.run(hosted, Tick())
    assert touched == [Tick()]
