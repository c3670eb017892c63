"""More requests as nodes answer them: many bytes, from followers, deletions, producer ids, unclean elections. In
calm simulated clusters."""

from __future__ import annotations

from typing import Any

from pyreplog.testing import TopicOptions
from pyreplog.wire import (
    ELECT_UNCLEAN,
    NO_LEADER,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    InitProducerIdRequest,
    PartitionData,
)
from tests.replication.sim.cluster import NAME, QUICK, all_die, in_sync, key_of, log_of, partition, until
from tests.unit.node.caller import node_of, produce, quiet


def bytes_of(part: PartitionData) -> int:
    """Bytes of records in one partition's answer."""
    return 0 if part.records is None else memoryview(part.records).nbytes  # type: ignore[arg-type]


def test_bytes_of_several_partitions_add_up() -> None:
    """``min_bytes`` is about all partitions together, also about what came to one that had answered already; when
    the time is up the answer is what there is."""
    world, caller = quiet(TopicOptions("t", partitions=4, replication_factor=1, min_insync_replicas=1, durability="os"))
    topic_id = key_of(world)[0]
    by_leader: dict[int, list[int]] = {}
    for number, one in world.image.topics[topic_id].partitions.items():
        by_leader.setdefault(one.leader, []).append(number)
    leader, (first, second) = next((leader, mine) for leader, mine in by_leader.items() if len(mine) == 2)
    caller.ask(leader, produce(topic_id, first))
    size = bytes_of(
        caller.ask(leader, FetchRequest(0, 1, [FetchTopic(topic_id, [FetchPartition(first, -1, 0)])]))
        .responses[0]
        .partitions[0]
    )

    def read(count: float, wait_ms: int = 5000, *, limit: int = 1 << 20) -> FetchRequest:
        parts = [FetchPartition(one, -1, 0, partition_max_bytes=limit) for one in (first, second)]
        return FetchRequest(wait_ms, int(count * size), [FetchTopic(topic_id, parts)])

    def sizes(answer: Any) -> dict[int, int]:
        return {part.partition_index: bytes_of(part) for topic in answer.responses for part in topic.partitions}

    assert sizes(caller.ask(leader, read(1))) == {first: size, second: 0}
    number = caller.send(leader, read(4))
    for more in (second, first, first):
        world.run_for(20)
        caller.take()
        assert number not in caller.answers
        caller.ask(leader, produce(topic_id, more))
    world.run_for(20)
    caller.take()
    assert sizes(caller.answers[number]) == {first: 3 * size, second: size}
    before = world.clock.monotonic_ns()
    assert sizes(caller.ask(leader, read(100, 300))) == {first: 3 * size, second: size}
    assert 300 <= (world.clock.monotonic_ns() - before) / 1e6 < 320
    assert sizes(caller.ask(leader, read(100, 300, limit=size))) == {first: size, second: size}, (
        "one answer cannot have more"
    )


def test_a_follower_answers_who_lets_it() -> None:
    """Fetches with a rack are answered by followers in sync, below their own high watermark; without one they are
    told who leads."""
    world, caller = quiet()
    leader = partition(world).leader
    other = next(one for one in world.node_ids if one != leader)
    caller.ask(leader, produce(key_of(world)[0], 0))
    world.run_for(20)

    def read(rack: str, offset: int = 0) -> PartitionData:
        wanted = FetchRequest(0, 1, [FetchTopic(key_of(world)[0], [FetchPartition(0, -1, offset)])], rack_id=rack)
        answer: PartitionData = caller.ask(other, wanted).responses[0].partitions[0]
        return answer

    assert bytes_of(read("here")) > 0
    assert read("here", 3).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert read("").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_deletion_reaches_every_live_node() -> None:
    """The answer says the low watermark; all copies start there; a node that is down does not hold it up and
    deletes when it is back."""
    world, caller = quiet()
    leader = partition(world).leader
    down = next(one for one in world.node_ids if one != leader)
    world.watch_with(())  # they look for what was committed, wherever the log starts
    for _ in range(5):
        caller.ask(leader, produce(key_of(world)[0], 0))

    def delete(offset: int, node_id: int = leader) -> tuple[int, int]:
        parts = [DeleteRecordsPartition(0, offset)]
        (topic,) = caller.ask(node_id, DeleteRecordsRequest([DeleteRecordsTopic("t", parts)], 2000)).topics
        return (topic.partitions[0].error_code, topic.partitions[0].low_watermark)

    assert delete(4) == (0, 4)
    assert [log_of(world, one).start_offset for one in world.node_ids] == [4, 4, 4]
    assert delete(11)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(5, down)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = DeleteRecordsRequest([DeleteRecordsTopic("none", [DeleteRecordsPartition(3, 1)])], 100)
    assert caller.ask(leader, unknown).topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.kill(down)
    assert delete(-1) == (0, 10)
    world.start(down)
    until(world, in_sync(world, 1, 2, 3), "it is back")
    world.run_for(100)
    assert log_of(world, down).start_offset == 10


def test_any_node_gets_a_producer_its_id() -> None:
    """Nodes pass the question on to the controller, whose ids are never handed out twice, whatever dies."""
    world, caller = quiet()
    ids = [caller.ask(one, InitProducerIdRequest()).producer_id for one in (1, 2, 3, 1)]
    all_die(world, power_loss=False)
    for one in world.node_ids:
        world.start(one)
    until(world, lambda: partition(world).leader >= 0, "all are back")
    ids += [caller.ask(one, InitProducerIdRequest()).producer_id for one in (1, 2)]
    assert all(one >= 0 for one in ids)
    assert len(dict.fromkeys(ids)) == 6
    assert caller.ask(1, InitProducerIdRequest("a transaction")).error_code == ErrorCode.INVALID_REQUEST
    assert caller.ask(1, ElectLeadersRequest(ELECT_UNCLEAN, None)).error_code == ErrorCode.NOT_CONTROLLER


def test_an_unclean_election_takes_the_best_of_the_living_and_says_what_it_costs() -> None:
    """Two followers lag by different amounts when their leader dies alone in the set: the one that has more leads,
    the loss is stated, and the old leader, when it is back, states exactly what it gives up. No safety rule counts
    as broken."""
    config = type(QUICK)(
        replica_lag_time_max_ms=300, replica_fetch_wait_max_ms=100, heartbeat_interval_ms=100, session_timeout_ms=600
    )
    world, caller = quiet(TopicOptions("t", min_insync_replicas=1, durability="os"), config=config)
    topic_id = key_of(world)[0]
    leader = partition(world).leader
    near, far = (one for one in world.node_ids if one != leader)
    world.network.cut_both(f"node-{leader}", f"node-{far}")
    caller.ask(leader, produce(topic_id, 0))
    until(world, in_sync(world, leader, near), "one is out")
    world.network.cut_both(f"node-{leader}", f"node-{near}")
    caller.ask(leader, produce(topic_id, 0))
    until(world, in_sync(world, leader), "both are out")
    caller.ask(leader, produce(topic_id, 0))
    assert [log_of(world, one).end_offset for one in (leader, near, far)] == [6, 2, 0]
    world.watch_with(())
    world.kill(leader)
    until(world, lambda: partition(world).leader == NO_LEADER, "nobody can lead")
    world.network.heal()
    answer = caller.ask("controller", ElectLeadersRequest(ELECT_UNCLEAN, [ElectLeadersTopic("t", [0])]))
    (part,) = answer.replica_election_results[0].partition_result
    assert part.error_code == 0
    assert (
        part.error_message
        == f"node {near} leads in epoch {partition(world).leader_epoch}; all records from offset 2 on are lost"
    )
    assert partition(world).leader == near
    world.start(leader)
    until(world, in_sync(world, 1, 2, 3), "everybody follows")
    ((name, loss),) = node_of(world, leader).losses
    assert (name, loss.start, loss.end) == (NAME, 2, 6)
    assert all(not node_of(world, one).broken_rules for one in world.node_ids)
    assert not partition(world).recovering
    assert len(dict.fromkeys(log_of(world, one).end_offset for one in world.node_ids)) == 1


def test_how_far_a_copy_reaches_is_told_though_an_older_heartbeat_is_answered() -> None:
    """The answer to one that was sent before the partition lost its leader comes with that news, in one turn of the
    node: what it did not tell is told in the next, or an unclean election would not know of the best log."""
    world, caller = quiet(TopicOptions("t", min_insync_replicas=1, durability="os"))
    leader = partition(world).leader
    near, far = (one for one in world.node_ids if one != leader)
    world.network.cut_both(f"node-{leader}", f"node-{far}")
    caller.ask(leader, produce(key_of(world)[0], 0))
    until(world, in_sync(world, leader, near), "one is out")
    world.network.cut_both(f"node-{leader}", f"node-{near}")
    until(world, lambda: log_of(world, near).end_offset == 2, "has it")
    caller.ask(leader, produce(key_of(world)[0], 0))
    until(world, in_sync(world, leader), "both are out")
    world.watch_with(())
    lifecycle = node_of(world, near)._lifecycle
    until(world, lambda: not lifecycle._heartbeats, "all are answered")
    until(world, lambda: len(lifecycle._heartbeats) == 1, "the next one is on its way")
    world.machines[near].paused = True
    world.kill(leader)
    world.run_for(50)
    world.machines[near].paused = False
    world.touch(f"node-{near}")
    world.run_for(1000)
    answer = caller.ask("controller", ElectLeadersRequest(ELECT_UNCLEAN, [ElectLeadersTopic("t", [0])]))
    (part,) = answer.replica_election_results[0].partition_result
    assert (part.error_code, partition(world).leader) == (0, near)
    assert part.error_message.endswith("all records from offset 2 on are lost")
