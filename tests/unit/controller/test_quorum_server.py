"""The controller on the quorum: three servers elect one, answers leave when they are committed, and the death of the
active one costs nobody a leadership but its own node."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from pyreplog.config import NodeConfig
from pyreplog.controller import MetadataImage, snapshot_schedule
from pyreplog.controller.active_controller import ActiveController
from pyreplog.controller.quorum_server import QuorumServer, controller_address
from pyreplog.controller.requests import Decided
from pyreplog.errors import CorruptError
from pyreplog.quorum import QuorumConfig
from pyreplog.wire import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ErrorCode,
    InitProducerIdRequest,
    InitProducerIdResponse,
    QuorumEndpoint,
    RegisterBrokerRecord,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    TopicRecord,
    decode_record,
)
from tests.unit.controller.quorum_harness import CLUSTER, FOLDER, MS, QuorumHarness

SESSION = NodeConfig().session_timeout_ms


def up(harness: QuorumHarness) -> QuorumHarness:
    """All brokers joined, and the topic ``t``, led by node 1, where the active controller is too."""
    harness.elect()
    harness.join(*harness.servers)
    assert harness.create(1) == 0
    assert harness.active.node_id == 1
    assert harness.partition().leader == 1
    return harness


def same(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether two images say the same."""
    return (one.offset, one.records()) == (other.offset, other.records())


# -------------------------------------------------------------------------------------------- it works


@pytest.mark.parametrize("count", [1, 2, 3])
def test_requests_reach_the_active_controller_from_every_node(count: int) -> None:
    """Registration, heartbeats, topics, proposals and producer ids work through any node's server, and all images
    become equal."""
    harness = up(QuorumHarness(count))
    ids = [harness.ask(one, InitProducerIdRequest(None, 0), InitProducerIdResponse).producer_id for one in (1, count)]
    assert len(set(ids)) == 2
    if count > 1:
        members = range(1, count)
        assert harness.propose(*members) == 0
        assert harness.partition().isr == tuple(members)
    assert harness.create(count, "u") == 0
    assert harness.create(1, "u") == ErrorCode.TOPIC_ALREADY_EXISTS
    harness.run(600)
    assert all(same(server.image, harness.active.image) for server in harness.servers.values())


def test_the_nodes_see_no_gap() -> None:
    """Each offset of the log reaches a node as a record, those of the quorum's own records too; the image that it
    builds is the server's."""
    harness = up(QuorumHarness())
    harness.kill(1)
    harness.elect()
    assert harness.create(2, "u") == 0
    harness.run(600)
    data = harness.fetch(3, 0)
    records: Any = data.records
    offsets = [offset for offset, _ in records]
    assert offsets == list(range(harness.servers[3].image.offset + 1))
    image = MetadataImage()
    for offset, record in records:
        image.apply(offset, record)
    assert same(image, harness.servers[3].image)


def test_a_node_that_is_ahead_waits() -> None:
    """A server that was opened again does not know yet what is committed. Its node, which knows more, is not set back
    to an older image."""
    harness = up(QuorumHarness())
    end = harness.servers[2].image.offset + 1
    data = harness.fetch(2, end + 5, 100)
    assert data.snapshot_id is None
    assert not data.records
    assert harness.fetch(2, -3).snapshot_id is not None, "one that asks for what is not kept gets the image"


def test_a_node_without_a_vote() -> None:
    """Its server follows the metadata and sends requests on; its broker may lead."""
    harness = QuorumHarness(3, observers=1)
    harness.elect()
    harness.join(1, 2, 3, 4)
    assert harness.create(4, partitions=4) == 0
    harness.run(600, 1, 2, 3, 4)
    assert same(harness.servers[4].image, harness.active.image)
    topic = harness.active.image.topics[harness.active.image.topic_ids["t"]]
    (led,) = [number for number, one in topic.partitions.items() if one.leader == 4]
    harness.kill(1)
    harness.elect()
    harness.run(3_000, 2, 3, 4)
    after = harness.active.image.topics[topic.topic_id].partitions[led]
    assert (after.leader, after.leader_epoch) == (4, 0)
    assert harness.create(4, "u") == 0


def test_voters_change_between_decisions() -> None:
    """The quorum's own records take offsets in the middle of the controller's: the next decision stands behind them,
    and a broker epoch is still the offset of its registration."""
    harness = QuorumHarness(3, observers=1)
    harness.elect()
    harness.join(1, 2, 3)
    harness.run(3_000, 1, 2, 3)
    body = AddRaftVoterRequest(
        4,
        harness.identities[4].directory_id,
        [QuorumEndpoint("CONTROLLER", controller_address(4), 0)],
        cluster_id=CLUSTER,
        timeout_ms=5_000,
    )
    assert harness.ask(2, body, AddRaftVoterResponse, 10_000).error_code == 0
    assert len(harness.active.voters) == 4
    harness.join(4)
    record = dict(harness.active._committed.read_from(0) or ())[harness.brokers[4].epoch]
    assert isinstance(record, RegisterBrokerRecord)
    assert record.broker_id == 4
    assert harness.create(4) == 0
    harness.run(600, 1, 2, 3, 4)
    assert all(same(server.image, harness.active.image) for server in harness.servers.values())
    removal = RemoveRaftVoterRequest(1, harness.identities[1].directory_id, CLUSTER)
    assert harness.ask(3, removal, RemoveRaftVoterResponse, 10_000).error_code == 0
    harness.elect()
    assert harness.active.node_id != 1
    harness.run(3_000, 1, 2, 3, 4)
    assert harness.create(1, "u") == 0, "it follows the new leader as an observer"


# ------------------------------------------------------------------------------------------- failover


def test_the_next_change_is_committed_at_once() -> None:
    """The active controller's node is killed: another voter takes over without a timer, its node is fenced, and
    every other leadership stays in its epoch (F43)."""
    harness = up(QuorumHarness())
    for name in ("u", "v"):
        assert harness.create(2, name) == 0
    before = {name: harness.partition(name) for name in ("t", "u", "v")}
    assert {one.leader for one in before.values()} == {1, 2, 3}
    harness.kill(1)
    start = harness.clock.monotonic_ns()
    assert harness.elect().node_id == 2
    assert harness.create(3, "w") == 0
    assert harness.clock.monotonic_ns() - start <= 50 * MS
    harness.run(100, 2, 3)
    for name, old in before.items():
        new = harness.partition(name)
        assert set(new.isr) == {2, 3}
        if old.leader == 1:
            assert (new.leader, new.leader_epoch) == (2, old.leader_epoch + 1)
        else:
            assert (new.leader, new.leader_epoch) == (old.leader, old.leader_epoch)
    assert [one.broker_id for one in harness.active.image.brokers.values() if one.fenced] == [1]


def test_nobody_is_fenced_for_a_whole_session_after_a_failover() -> None:
    """F43: the new controller has heard no heartbeat. Who stays silent is fenced after a whole session from then."""
    harness = up(QuorumHarness(3))
    harness.run(SESSION - 500, 1)
    harness.brokers[1].transport.close()  # the node's broker goes on at another server: nothing is told of 2 and 3
    harness.run(1)
    harness.servers[1]._transport.close()
    del harness.servers[1]
    harness.elect()
    harness.run(SESSION - 500)
    assert [one.broker_id for one in harness.active.image.brokers.values() if one.fenced] == [1, 2, 3][:1]
    harness.run(1_000)
    assert all(one.fenced for one in harness.active.image.brokers.values())


def test_two_nodes_die_at_once() -> None:
    """F45: of five nodes the active controller's and another one are killed. Each partition keeps its living members
    and is led by one of them."""
    harness = QuorumHarness(5)
    harness.elect()
    harness.join(1, 2, 3, 4, 5)
    assert harness.create(1, partitions=5) == 0
    active = harness.active.node_id
    other = 1 if active != 1 else 2
    harness.kill(active)
    harness.kill(other)
    harness.elect()
    harness.run(100, *harness.servers)
    for partition in harness.active.image.topics[harness.active.image.topic_ids["t"]].partitions.values():
        assert set(partition.isr) == set(harness.servers)
        assert partition.leader in harness.servers


def test_a_killed_node_returns_at_once() -> None:
    """Its next incarnation registers with the new controller, which was told of the end of the one before."""
    harness = up(QuorumHarness())
    harness.kill(1)
    harness.elect()
    harness.start(1)
    start = harness.clock.monotonic_ns()
    harness.run(50)
    harness.join(1)
    assert harness.clock.monotonic_ns() - start < 1_000 * MS
    assert not harness.active.image.brokers[1].fenced
    assert harness.propose(1, 2, 3) == 0


def test_an_end_that_the_transport_may_report_late_is_not_believed() -> None:
    """Where messages and ends have no order, the report may concern an earlier incarnation: a session has to end. What
    is told by incarnation is exact."""

    class Late(QuorumServer):
        exact_ends = False

    class Harness(QuorumHarness):
        server_class = Late

    harness = up(Harness())
    ended = harness.brokers[3].incarnation
    harness.kill(3)
    harness.run(50, 1, 2)
    assert not harness.active.image.brokers[3].fenced
    harness.start(3)
    harness.run(50, 1, 2)
    assert harness.register(3) == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    harness.servers[2].note_ended(ended)
    assert not harness.active.image.brokers[3].fenced, "server 2 only notes it"
    harness.active.note_ended("another incarnation")
    harness.active.note_ended(ended)
    harness.turn()
    assert harness.active.image.brokers[3].fenced
    harness.join(3)
    harness.kill(1)
    harness.elect()
    assert not harness.active.image.brokers[3].fenced, "what was told concerned the incarnation before"


def test_the_active_controller_hands_over() -> None:
    """A server that closes in order lets another voter lead at once."""
    harness = up(QuorumHarness())
    harness.servers.pop(1).close()
    start = harness.clock.monotonic_ns()
    harness.elect()
    assert harness.clock.monotonic_ns() - start <= 50 * MS


def test_a_cluster_that_lost_power_opens_without_a_timer() -> None:
    """All nodes of one process died, and start together: no session of a dead incarnation has to end, and every
    member of a set stays one."""
    harness = up(QuorumHarness())
    assert harness.propose(1, 2, 3) == 0
    for one in (1, 2, 3):
        harness.kill(one)
    for one in (1, 2, 3):
        harness.start(one, with_=(1, 2, 3))
    start = harness.clock.monotonic_ns()
    harness.elect()
    assert harness.partition().leader == -1
    assert set(harness.partition().isr) == {1, 2, 3}
    harness.join(1, 2, 3)
    assert harness.clock.monotonic_ns() - start < 2_000 * MS, "the election of the quorum has the only timer"
    for _ in range(2):  # nobody who registered since is taken for one of before
        active = harness.active.node_id
        harness.kill(active)
        harness.elect()
        harness.run(10)
        alive = [one.broker_id for one in harness.active.image.brokers.values() if not one.fenced]
        assert sorted(alive) == sorted(harness.servers)
        harness.start(active)
        harness.join(active)


def test_an_answer_is_lost_with_the_controller() -> None:
    """F57: the active controller ends after a topic is in the log of a majority and before it answers. The sender
    asks again and hears that the topic exists: there is exactly one."""
    harness = up(QuorumHarness())
    body = CreateTopicsRequest([CreatableTopic("u", 1, 3)])
    number = harness.brokers[2].send(body)
    before = harness.servers[2].raft.log_end_offset
    for _ in range(100):
        for one in (2, 3, 1):
            harness.servers[one].poll()
            if harness.servers[2].raft.log_end_offset > before:
                break
        else:
            continue
        break
    harness.kill(1)
    harness.elect()
    harness.run(10)
    answer = harness.brokers[2].answers.pop(number)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert harness.create(2, "u") == ErrorCode.TOPIC_ALREADY_EXISTS
    assert list(harness.active.image.topic_ids) == ["t", "u"]


def test_a_request_during_the_election_waits_or_is_refused() -> None:
    """No request is lost: it is answered by the new controller, or refused with the reason."""
    harness = up(QuorumHarness())
    harness.kill(1)
    numbers = []
    for name in "uvwxyz":
        numbers.append(harness.brokers[3].send(CreateTopicsRequest([CreatableTopic(name, 1, 2)])))
        harness.run(1)
    harness.run(100)
    codes = []
    for number in numbers:
        answer = harness.brokers[3].answers[number]
        assert isinstance(answer, CreateTopicsResponse)
        codes.append(answer.topics[0].error_code)
    assert set(codes) <= {0, ErrorCode.NOT_CONTROLLER}
    assert codes[-1] == 0


def test_requests_that_wait_are_refused_when_leadership_ends() -> None:
    """An election that waits for reports is answered too."""
    harness = up(QuorumHarness())
    number = harness.brokers[1].send(ElectLeadersRequest(1, None))
    create = harness.brokers[1].send(CreateTopicsRequest([CreatableTopic("u", 1, 3)]))
    harness.cut = {1}
    harness.run(10)
    assert create not in harness.brokers[1].answers
    harness.run(6_000)
    assert not harness.servers[1].is_active
    answer = harness.brokers[1].answers[create]
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert isinstance(harness.brokers[1].answers[number], ElectLeadersResponse)


def test_a_majority_is_down() -> None:
    """Who asks is told how many voters are up, and which nodes to restart."""
    harness = up(QuorumHarness())
    harness.kill(1)
    harness.kill(2)
    harness.run(5_000)
    answer = harness.ask(3, CreateTopicsRequest([CreatableTopic("u", 1, 1)]), CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert answer.topics[0].error_message == "1 of 3 voters is up: restart node 1 or 2"
    harness.start(2)
    harness.elect()
    assert harness.create(3, "u") == 0


# --------------------------------------------------------------------------------- commit and proof


class AnswersEarly(ActiveController):
    """V27: answers leave before their records are committed."""

    def _is_committed(self, offset: int) -> bool:
        """Not asked."""
        return True


class ProvesNothing(ActiveController):
    """Heartbeats are answered without a look whether this voter still leads."""

    def _needs_proof(self, answer: Decided) -> bool:
        """Not asked."""
        return False


def server_with(active: type[ActiveController]) -> type[QuorumServer]:
    """A server with another rule."""

    class Planted(QuorumServer):
        active_class = active

    return Planted


def answered_is_kept(active: type[ActiveController]) -> None:
    """S16: what is answered is there after the active controller has died."""

    class Harness(QuorumHarness):
        server_class = server_with(active)

    harness = up(Harness())
    harness.cut = {1}
    number = harness.brokers[1].send(CreateTopicsRequest([CreatableTopic("u", 1, 3)]))
    harness.run(100)
    answer = harness.brokers[1].answers.get(number)
    harness.kill(1)
    harness.cut = set()
    harness.elect()
    if isinstance(answer, CreateTopicsResponse) and answer.topics[0].error_code == 0:
        assert "u" in harness.active.image.topic_ids


def test_answers_leave_when_they_are_committed() -> None:
    """S16, and the planted bug V27 is seen."""
    answered_is_kept(ActiveController)
    with pytest.raises(AssertionError):
        answered_is_kept(AnswersEarly)


def leases_of_one_cut_off(active: type[ActiveController]) -> list[int]:
    """The error codes of the answers that a broker beside a cut-off active controller gets for its heartbeats, until
    the others have fenced it."""

    class Harness(QuorumHarness):
        server_class = server_with(active)

    harness = up(Harness())
    harness.cut = {1}
    sent = []
    for _ in range(40):
        sent.append(harness.brokers[1].send(harness.heartbeat_of(1)))
        harness.run(100, 2, 3)
    codes = []
    for number in sent:
        answer = harness.brokers[1].answers.get(number)
        if isinstance(answer, BrokerHeartbeatResponse):
            codes.append(answer.error_code)
    assert not harness.servers[1].is_active, "it resigned"
    assert any(harness.servers[one].is_active for one in (2, 3))
    return codes


def test_a_cut_off_controller_gives_no_lease() -> None:
    """S20: no heartbeat is answered with success after the cut. Without the proof of leadership some are."""
    assert set(leases_of_one_cut_off(ActiveController)) == {ErrorCode.NOT_CONTROLLER}
    assert 0 in leases_of_one_cut_off(ProvesNothing)


def test_reads_of_the_active_controller_are_proved() -> None:
    """A description leaves after a majority has confirmed the leader; a cut-off one gives none."""
    harness = up(QuorumHarness())
    for one in (1, 3):
        found = harness.ask(one, DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse)
        assert [broker.broker_id for broker in found.brokers] == [1, 2, 3]
        assert found.controller_id == 1
    harness.cut = {1}
    number = harness.brokers[1].send(DescribeClusterRequest())
    harness.run(100)
    assert number not in harness.brokers[1].answers
    harness.run(6_000)
    answer = harness.brokers[1].answers[number]
    assert isinstance(answer, DescribeClusterResponse)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


# ------------------------------------------------------------------------------------------------ disk


def test_a_full_disk_refuses_the_change_and_the_leader_stays() -> None:
    """The change is undone and refused with KAFKA_STORAGE_ERROR; the next one works as soon as there is room."""
    harness = up(QuorumHarness())
    epoch = harness.active.raft.epoch
    harness.disks[1].fail("write", error=errno.ENOSPC, times=None)
    assert harness.create(2, "u") == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.active.node_id == 1
    assert "u" not in harness.active.image.topic_ids
    assert not harness.beat(2).is_fenced
    harness.disks[1].clear_faults()
    assert harness.create(2, "u") == 0
    assert harness.create(2, "u") == ErrorCode.TOPIC_ALREADY_EXISTS
    assert (harness.active.node_id, harness.active.raft.epoch) == (1, epoch)
    harness.run(600)
    assert same(harness.servers[2].image, harness.servers[1].image)


def test_what_only_time_decides_is_decided_once_there_is_room() -> None:
    """A silent broker's end could not be written down; it is not forgotten."""
    harness = up(QuorumHarness())
    harness.disks[1].fail("write", error=errno.ENOSPC, times=None)
    harness.run(SESSION + 500, 1, 2)
    assert not harness.active.image.brokers[3].fenced
    harness.disks[1].clear_faults()
    harness.run(1_000, 1, 2)
    assert harness.active.image.brokers[3].fenced
    assert harness.partition().isr == (1, 2)


def test_a_failed_sync_ends_the_voter() -> None:
    """Another voter leads; the failed one says so, and requests go on from the other nodes."""
    harness = up(QuorumHarness())
    harness.disks[1].fail("sync", times=None)
    number = harness.brokers[1].send(CreateTopicsRequest([CreatableTopic("u", 1, 3)]))
    harness.run(10)
    answer = harness.brokers[1].answers[number]
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code != 0
    assert harness.servers[1].failure is not None
    harness.until(lambda: any(harness.servers[one].is_active for one in (2, 3)))
    assert harness.create(2, "v") == 0
    harness.kill(1)
    harness.disks[1].clear_faults()
    harness.start(1)
    harness.run(3_000, 2, 3)
    assert same(harness.servers[1].image, harness.active.image)


def damage(harness: QuorumHarness, node_id: int, name: str) -> None:
    """Flip a bit in the middle of a file of a node that is down."""
    disk = harness.disks[node_id]
    path = f"{FOLDER}/{name}"
    disk.flip(path, disk.stat(path).size // 2)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["00000000000000000000.log", "quorum-state"])
def test_a_damaged_member_opens_and_takes_no_part(name: str) -> None:
    """The others go on without it, and its node is told why."""
    harness = up(QuorumHarness())
    harness.kill(3)
    damage(harness, 3, name)
    harness.start(3)
    harness.run(3_000, 1, 2)
    server = harness.servers[3]
    assert server.failure is not None or server.raft.voter_failure is not None
    assert harness.create(2, "u") == 0
    if server.failure is not None:
        answer = harness.ask(3, CreateTopicsRequest([CreatableTopic("v", 1, 1)]), CreateTopicsResponse)
        assert answer.topics[0].error_message.startswith("node 3 takes no part")  # type: ignore[union-attr]
    harness.kill(1)
    harness.run(10_000, 2)
    assert not any(one.is_active for one in harness.servers.values()), "two of three, one of them damaged"


def test_an_active_controller_that_cannot_read_its_log_steps_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another voter leads at once."""
    harness = up(QuorumHarness())

    def advance(*_: object) -> None:
        raise CorruptError("a record", file="x", position=1)

    monkeypatch.setattr(harness.servers[1]._committed, "advance", advance)
    harness.brokers[2].send(CreateTopicsRequest([CreatableTopic("u", 1, 1)]))
    harness.run(50)
    assert isinstance(harness.servers[1].failure, CorruptError)
    assert harness.active.node_id in (2, 3)


# ------------------------------------------------------------------------------------------- snapshots


def test_snapshots_by_size_and_age() -> None:
    """A server writes one when its config says so, from the committed image, and starts from it; an idle cluster
    writes none."""
    harness = up(QuorumHarness(quorum=QuorumConfig(snapshot_bytes=3_000, snapshot_interval_ms=60_000)))
    assert all(server.raft.latest_snapshot.end_offset == 0 for server in harness.servers.values())  # type: ignore[union-attr]
    for number in range(30):
        assert harness.create(1, f"u{number}") == 0
    harness.run(600)
    found = [server.raft.latest_snapshot for server in harness.servers.values()]
    assert all(one is not None and one.end_offset > 0 for one in found)
    harness.run(61_000, 1, 2, 3)
    ends = [server.image.offset + 1 for server in harness.servers.values()]
    assert [server.raft.latest_snapshot.end_offset for server in harness.servers.values()] == ends  # type: ignore[union-attr]
    before = harness.active.image
    for one in (1, 2, 3):
        harness.kill(one)
    for one in (1, 2, 3):
        harness.start(one, with_=(1, 2, 3))
    assert list(harness.servers[2].image.topic_ids) == list(before.topic_ids)
    harness.elect()
    harness.join(1, 2, 3)
    assert harness.create(3, "w") == 0


def test_a_request_of_another_cluster_fences_nobody() -> None:
    """A registration with another cluster id is refused before anything else."""
    harness = up(QuorumHarness())
    body = BrokerRegistrationRequest(1, "another-cluster", "x" * 22)
    number = harness.brokers[1].send(body)
    harness.run(10)
    assert harness.brokers[1].answers[number].error_code == ErrorCode.INCONSISTENT_CLUSTER_ID  # type: ignore[union-attr]
    assert not harness.active.image.brokers[1].fenced


def test_a_snapshot_of_many_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata changes while it is written, slice by slice: it has the state of its beginning. One that a full
    disk cut short is made again later."""
    monkeypatch.setattr(snapshot_schedule, "SLICE", 3)
    harness = up(QuorumHarness(1, quorum=QuorumConfig(snapshot_bytes=100_000, snapshot_interval_ms=10_000)))
    for number in range(10):
        assert harness.create(1, f"u{number}") == 0
    server = harness.servers[1]
    harness.run(9_500, 1)
    while not server._snapshots._rest:
        harness.clock.advance(100 * MS)
        harness.brokers[1].send(harness.heartbeat_of(1))
        server.poll()
    end = server.image.offset + 1
    harness.brokers[1].send(CreateTopicsRequest([CreatableTopic("late", 1, 1)]))
    server.poll()
    assert "late" in server.image.topic_ids
    assert server._snapshots._rest is not None, "it is being written"
    harness.run(100, 1)
    latest = server.raft.latest_snapshot
    assert latest is not None
    assert latest.end_offset == end
    found = server.raft.read_snapshot()
    assert found is not None
    names = [record.name for record in map(decode_record, found[1]) if isinstance(record, TopicRecord)]
    assert names == ["t", *(f"u{number}" for number in range(10))]
    harness.disks[1].fail("write", "*.checkpoint*", error=errno.ENOSPC, times=1)
    harness.run(11_000, 1)
    assert server.failure is None
    assert server.raft.latest_snapshot == latest
    harness.run(61_000, 1)
    assert server.raft.latest_snapshot.end_offset == server.image.offset + 1
