"""Two checklists of other people's raft tests, in our own words.

The names of etcd raft's ``raft_paper_test.go`` (the rules of the Raft paper) and of hashicorp raft's ``fuzzy``
scenarios. KRaft pulls where the paper pushes, so a rule about AppendEntries is here one about Fetch.

=========================================  =====================================================
etcd raft, raft_paper_test.go              here
=========================================  =====================================================
{Follower,Candidate,Leader}UpdateTerm...   test_a_higher_epoch_is_taken_over
RejectStaleTermMessage                     test_an_older_epoch_is_refused
StartAsFollower                            test_nobody_leads_at_the_start
LeaderBcastBeat                            test_followers_hear_from_a_silent_leader
FollowerStartElection                      test_silence_begins_an_election
CandidateStartNewElection                  test_a_candidate_without_answers_tries_again
LeaderElectionInOneRoundRPC                test_an_election_takes_two_rounds
FollowerVote                               test_one_vote_an_epoch
CandidateFallback                          test_a_candidate_follows_the_leader_that_it_hears_of
{Follower,Candidate}ElectionTimeout...     test_timeouts_differ
LeaderStartReplication                     test_a_waiting_follower_gets_records_at_once
LeaderCommitEntry, LeaderAcknowledge...    test_a_majority_commits
LeaderCommitPrecedingEntries               test_older_records_are_committed_with_an_own_one
FollowerCommitEntry                        test_followers_learn_what_is_committed
FollowerCheckMsgApp, FollowerAppend...     test_logs_become_equal
LeaderSyncFollowerLog                      test_logs_become_equal (the seven logs of the paper's figure 7)
VoteRequest                                test_a_vote_request_says_how_long_the_log_is
Voter                                      test_a_shorter_log_gets_no_vote
LeaderOnlyCommitsLogFromCurrentTerm        test_log_schedules.test_a2_f50
=========================================  =====================================================

=========================================  =====================================================
hashicorp raft, fuzzy                      here
=========================================  =====================================================
NoIssueSanity                              test_fair_weather
AddMembership                              test_three_grow_to_five
AddRemoveNodesNotLeader                    test_five_shrink_to_three
RemoveLeader                               test_the_leader_of_five_is_removed
RemovePartitionedNode                      test_voter_schedules.test_removed_node_disturbs_nobody
LeaderPartitions                           test_leaders_are_cut_off_again_and_again
SlowSendVote, SlowRecvVote                 test_slow_voters
LeadershipTransfer                         test_leadership_goes_round
=========================================  =====================================================
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pyreplog.quorum import LogBatch
from pyreplog.wire import (
    METADATA_TOPIC_ID,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
    Request,
)
from tests.replication.quorum.quorum_stage import OPERATOR, Letter, QuorumStage
from tests.replication.quorum.support import CLUSTER_ID, add_request, remove_request
from tests.replication.quorum.test_election_schedules import vote_of

MS = 1_000_000


def anybody_leads(stage: QuorumStage) -> bool:
    """Return whether a node leads."""
    return any(node.is_leader for node in stage.nodes.values())


def equal_logs(stage: QuorumStage) -> bool:
    """Return whether all running nodes have the same log and know all of it as committed."""
    logs = [stage.log(one) for one in stage.nodes]
    end = stage.nodes[next(iter(stage.nodes))].log_end_offset
    return all(log == logs[0] for log in logs) and all(node.high_watermark == end for node in stage.nodes.values())


# -------------------------------------------------------------------------- the rules of the paper


def test_nobody_leads_at_the_start() -> None:
    """Voters that never met have no leader, and ask for votes only after a timeout."""
    stage = QuorumStage(3)
    assert not anybody_leads(stage)
    assert not stage.sent
    assert all(node.epoch == 0 for node in stage.nodes.values())


@pytest.mark.parametrize("who", ["follower", "candidate", "leader"])
def test_a_higher_epoch_is_taken_over(who: str) -> None:
    """A node that hears of a higher epoch enters it, whatever it was, and keeps it before it answers."""
    stage = QuorumStage(3)
    stage.elect(1)
    if who == "candidate":
        stage.isolate(2)
        while stage.nodes[2].epoch < 1 or stage.nodes[2].leader_id is not None:
            stage.timer(2)
        stage.heal()
    node_id = 1 if who == "leader" else 2
    other = 3
    answer = vote_of(stage, node_id, other, 9)
    node = stage.nodes[node_id]
    assert answer.leader_epoch == node.epoch == node.storage.read_state().epoch == 9
    assert not node.is_leader


def test_an_older_epoch_is_refused() -> None:
    """Requests of an older epoch are refused by name and change nothing."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    before = [(node.epoch, node.leader_id) for node in stage.nodes.values()]
    assert vote_of(stage, 2, 3, 0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    part = FetchPartition(0, leader.epoch - 1, 0, 0, -1, 1 << 20, stage.key(2).directory_id)
    body = FetchRequest(0, 0, [FetchTopic(METADATA_TOPIC_ID, [part])], ReplicaState(2), cluster_id=CLUSTER_ID)
    stage.step(1, Request(OPERATOR, 1, body))
    answer: Any = stage.answers[-1].body
    assert answer.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert [(node.epoch, node.leader_id) for node in stage.nodes.values()] == before


def test_followers_hear_from_a_silent_leader() -> None:
    """With nothing to tell, followers get an answer at least once in each fetch timeout."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.run(1000)
    for _ in range(10):
        before = len([one for one in stage.sent if one.kind == "FetchResponse"])
        stage.run(stage.config.fetch_timeout_ms)
        assert len([one for one in stage.sent if one.kind == "FetchResponse"]) >= before + 2
    assert stage.nodes[1].is_leader


def test_silence_begins_an_election() -> None:
    """A follower that hears nothing for a fetch timeout asks for pre-votes, not earlier."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.run(1000)
    stage.isolate(2)
    begun, asked = stage.now_ns, len(stage.sent)
    while not [one for one in stage.sent[asked:] if one.kind == "VoteRequest"]:
        stage.timer(2)
    waited = (stage.now_ns - begun) // MS
    assert stage.config.fetch_timeout_ms - stage.config.fetch_max_wait_ms <= waited
    assert waited <= 2 * stage.config.fetch_timeout_ms + stage.config.election_timeout_ms
    first = next(one for one in stage.sent[asked:] if one.kind == "VoteRequest")
    assert first.body.topics[0].partitions[0].pre_vote


def test_a_candidate_without_answers_tries_again() -> None:
    """A node whose requests for votes are lost asks again, and wins when they arrive."""
    stage = QuorumStage(3)
    stage.lost = lambda letter: letter.kind == "VoteRequest"
    stage.run(10_000)
    assert not anybody_leads(stage)
    asked = [one for one in stage.sent if one.kind == "VoteRequest"]
    assert len(asked) > 6
    stage.heal()
    assert stage.run(10_000, stop=lambda: anybody_leads(stage))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_an_election_takes_two_rounds(size: int) -> None:
    """One round of pre-votes and one of votes make a leader; a single voter needs none."""
    stage = QuorumStage(size)
    stage.timer(1)
    stage.settle()
    assert stage.nodes[1].is_leader
    assert len([one for one in stage.sent if one.kind == "VoteRequest"]) == 2 * (size - 1)


def test_one_vote_an_epoch() -> None:
    """A voter votes for the first candidate of an epoch that asks, and for no other."""
    for first, second in ((1, 2), (2, 1)):
        stage = QuorumStage(3)
        assert vote_of(stage, 3, first, 4).vote_granted
        assert not vote_of(stage, 3, second, 4).vote_granted
        assert vote_of(stage, 3, second, 5).vote_granted


def test_a_candidate_follows_the_leader_that_it_hears_of() -> None:
    """A candidate that lost hears of the epoch's leader, and follows it."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    stage.run(500)
    stage.isolate(3)
    stage.run(10_000)
    assert stage.nodes[3].leader_id != 1 or stage.nodes[3].role_name
    stage.heal()
    stage.run(10_000)
    assert stage.nodes[3].leader_id == 1
    assert stage.nodes[3].epoch == leader.epoch


def test_timeouts_differ() -> None:
    """The timeout of an election is drawn for each election, so two voters seldom collide."""
    seen = set()
    for seed in range(20):
        stage = QuorumStage(3, seed=seed)
        stage.cut(*((one, other) for one in stage.ids for other in stage.ids))
        stage.run(10_000)
        seen |= {(node.next_wake_ns or 0) - stage.now_ns for node in stage.nodes.values()}
    assert len(seen) > 50
    assert all(0 <= wait <= 2 * stage.config.election_timeout_ms * MS for wait in seen)


def test_a_waiting_follower_gets_records_at_once() -> None:
    """An append wakes the fetches that wait: no timer is needed."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.run(1000)
    begun = stage.now_ns
    stage.append(1, b"a")
    stage.settle()
    assert stage.now_ns == begun
    assert stage.values(2) == stage.values(3) == [b"a"]


@pytest.mark.parametrize(
    ("size", "acknowledging", "committed"), [(3, 1, True), (3, 0, False), (5, 1, False), (5, 2, True)]
)
def test_a_majority_commits(size: int, acknowledging: int, committed: bool) -> None:
    """A record is committed when a majority has it, the leader included; not earlier."""
    stage = QuorumStage(size)
    stage.elect(1)
    stage.run(1000)
    stage.lost = lambda letter: letter.kind == "FetchResponse" and letter.target > 1 + acknowledging
    stage.append(1, b"a")
    stage.settle()
    assert stage.committed(1) == ([b"a"] if committed else [])


def test_older_records_are_committed_with_an_own_one() -> None:
    """A new leader commits what former leaders left, together with its own first record."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.run(1000)
    stage.lost = lambda letter: letter.kind == "FetchRequest"
    for value in (b"a", b"b"):
        stage.append(1, value)
    stage.settle()
    # Nodes 2 and 3 got the first answer; node 1 does not know it.
    assert stage.committed(1) == []
    stage.kill(1, told=())
    stage.heal()
    longest = max((2, 3), key=lambda one: stage.nodes[one].log_end_offset)
    stage.elect(longest)
    stage.run(1000)
    assert stage.committed(longest) == stage.values(longest)
    assert stage.committed(longest)[:1] == [b"a"]


def test_followers_learn_what_is_committed() -> None:
    """Followers and observers know the high watermark in one more round, and apply the records in order."""
    stage = QuorumStage(3, 2)
    stage.elect(1)
    stage.run(1000)
    for number in range(20):
        stage.append(1, b"%d" % number)
    stage.settle()
    for node_id in stage.ids:
        assert stage.committed(node_id) == [b"%d" % number for number in range(20)]


# Figure 7 of the paper, as the epochs of each log; the first is the new leader's.
FIGURE_7 = {
    1: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6],
    2: [1, 1, 1, 4, 4, 5, 5, 6, 6],
    3: [1, 1, 1, 4],
    4: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    5: [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    6: [1, 1, 1, 4, 4, 4, 4],
    7: [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("others", [(2, 3), (2, 6), (3, 7), (6, 7), (4, 3), (5, 7)])
def test_logs_become_equal(others: tuple[int, int]) -> None:
    """Whatever logs the followers have, they become the leader's: missing records come, foreign ones are
    truncated."""
    stage = QuorumStage(3)
    for node_id, log in zip((1, 2, 3), (1, *others), strict=True):
        storage = stage.storages[node_id]
        storage.log = tuple(
            LogBatch(offset, offset, epoch, (), (b"%d@%d" % (offset, epoch),))
            for offset, epoch in enumerate(FIGURE_7[log])
        )
        stage.restart(node_id)
    stage.run(60_000, stop=lambda: anybody_leads(stage))
    stage.run(10_000)
    assert equal_logs(stage)
    leader = stage.leader_id
    longest = max(FIGURE_7[log] for log in (1, *others))
    mine = [1, *others][leader - 1]
    # Who leads is at least as far as a majority of the three.
    ahead = sum(
        (FIGURE_7[mine][-1], len(FIGURE_7[mine])) >= (FIGURE_7[log][-1], len(FIGURE_7[log])) for log in (1, *others)
    )
    assert ahead >= 2, longest


def test_a_vote_request_says_how_long_the_log_is() -> None:
    """A request for a vote names the epoch of the last record and the end of the log."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.append(1, b"a")
    stage.run(1000)
    stage.kill(1)
    begun = len(stage.sent)
    stage.run(5000, stop=lambda: anybody_leads(stage))
    for letter in stage.sent[begun:]:
        if letter.kind == "VoteRequest":
            part = letter.body.topics[0].partitions[0]
            node = stage.nodes[letter.source]
            assert part.last_offset_epoch == 1
            assert part.last_offset == node.log_end_offset - node.is_leader
            assert (part.replica_id, part.replica_directory_id) == stage.key(letter.source)


def test_a_shorter_log_gets_no_vote() -> None:
    """A candidate whose last epoch is older, or whose log is shorter in the same epoch, gets no vote."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.run(1000)
    stage.isolate(3)
    stage.append(1, b"a")
    stage.settle()
    stage.kill(1, told=())
    stage.heal()
    for _ in range(6):
        if stage.nodes[2].leader_id != 2:
            stage.timer(3)
            stage.settle()
        assert not stage.nodes[3].is_leader
    assert stage.run(20_000, stop=lambda: anybody_leads(stage))
    assert stage.leader_id == 2
    stage.run(1000)
    assert stage.committed(3) == [b"a"]


# ---------------------------------------------------------------- the scenarios of hashicorp raft


def appended(stage: QuorumStage, count: int, ms: float = 40) -> list[bytes]:
    """Let whoever leads append ``count`` records over time; return those that a leader saw committed."""
    waiting: list[tuple[int, int, int, bytes]] = []
    done = []
    for number in range(count):
        value = b"%d at %d" % (number, stage.now_ns)
        for node_id, node in list(stage.nodes.items()):
            if node.is_leader and node.epoch == max(one.epoch for one in stage.nodes.values()):
                waiting.append((node_id, node.epoch, stage.append(node_id, value), value))
        stage.run(ms)
        for one in list(waiting):
            found = stage.nodes.get(one[0])
            if found is None or not found.is_leader or found.epoch != one[1]:
                waiting.remove(one)
            elif found.high_watermark > one[2]:
                waiting.remove(one)
                done.append(one[3])
    return done


def settled(stage: QuorumStage, done: list[bytes]) -> None:
    """Check that the quorum is quiet and has every acknowledged record once, in order."""
    stage.heal()
    stage.run(30_000)
    assert equal_logs(stage)
    found = stage.committed(stage.leader_id)
    positions = [found.index(value) for value in done]
    assert positions == sorted(positions)
    assert len(set(found)) == len(found)


def test_fair_weather() -> None:
    """Five voters without faults: every append is acknowledged, in order, and all logs are equal."""
    stage = QuorumStage(5)
    stage.elect(1)
    done = appended(stage, 200, 5)
    assert len(done) == 200
    settled(stage, done)


def test_three_grow_to_five() -> None:
    """Two nodes become voters under load; all five agree at the end."""
    stage = QuorumStage(3, 2)
    stage.elect(1)
    done = appended(stage, 20)
    for node_id in (4, 5):
        stage.ask(stage.leader_id, add_request(stage.key(node_id)))
        done += appended(stage, 20)
    settled(stage, done)
    assert len(stage.leader.voters) == 5
    assert len(done) >= 55


def test_five_shrink_to_three() -> None:
    """Two voters that do not lead are removed under load; then only three count."""
    stage = QuorumStage(5)
    stage.elect(1)
    done = appended(stage, 20)
    for node_id in (4, 5):
        stage.ask(1, remove_request(stage.key(node_id)))
        done += appended(stage, 20)
    assert [voter.node_id for voter in stage.leader.voters] == [1, 2, 3]
    stage.isolate(3, 4, 5)
    done += appended(stage, 10)
    assert len(done) >= 65
    settled(stage, done)


def test_the_leader_of_five_is_removed() -> None:
    """The leader is removed under load; another one leads and nothing is lost."""
    stage = QuorumStage(5)
    stage.elect(1)
    done = appended(stage, 20)
    stage.ask(1, remove_request(stage.key(1)))
    done += appended(stage, 60, 100)
    assert stage.leader_id != 1
    assert len(done) >= 40
    settled(stage, done)


def test_leaders_are_cut_off_again_and_again() -> None:
    """Ten times the leader and some others are cut off, and healed later or not at all; at the end all agree."""
    stage = QuorumStage(5)
    random = Random(7)
    stage.elect(1)
    done: list[bytes] = []
    for _ in range(10):
        leaders = [node_id for node_id, node in stage.nodes.items() if node.is_leader]
        others = random.sample([one for one in stage.ids if one not in leaders], random.randint(0, 3))
        stage.isolate(*leaders, *others)
        done += appended(stage, 10, 400)
        if random.random() < 0.9:
            stage.heal()
        done += appended(stage, 10, 500)
    assert len(done) >= 20
    settled(stage, done)


@pytest.mark.parametrize("slow", ["VoteRequest", "VoteResponse"])
def test_slow_voters(slow: str) -> None:
    """Two voters of five get requests for votes late, or three answer them late: a leader is elected all the same,
    and stays."""
    stage = QuorumStage(5)

    def late(letter: Letter) -> bool:
        return letter.kind == slow and (letter.target if slow == "VoteRequest" else letter.source) in (1, 2, 5)

    stage.held = late
    for _ in range(20):
        if stage.run(1500, stop=lambda: anybody_leads(stage)):
            break
        for letter in [one for one in stage.flight if late(one)]:
            stage.deliver(letter)
    assert anybody_leads(stage)
    done = appended(stage, 20)
    for letter in [one for one in stage.flight if late(one)]:
        stage.deliver(letter)
    done += appended(stage, 20)
    assert len(done) >= 30
    settled(stage, done)


def test_leadership_goes_round() -> None:
    """Leaders resign one after the other under load: each time another one leads at once, and nothing is lost."""
    stage = QuorumStage(5)
    stage.elect(1)
    done: list[bytes] = []
    seen = set()
    for _ in range(12):
        leader = stage.leader
        seen.add(stage.leader_id)
        done += appended(stage, 3)
        stage.take(stage.leader_id, leader.resign(stage.now_ns))
        begun = stage.now_ns
        assert stage.run(5000, stop=lambda: anybody_leads(stage))
        assert stage.now_ns - begun <= 500 * MS
    assert len(seen) >= 2
    assert len(done) >= 30
    settled(stage, done)
