"""The schedules of the museum: each goes wrong with its variant and well without. Named as in
``docs/internals/replication.md`` where they have a name there (F1 to F42, N1 to N3: the history of Kafka's own
bugs).

Nodes are 1, 2, 3; node 1 leads at first. Every function is given a stage whose nodes have just started.
"""

from __future__ import annotations

from pyreplog.record import BatchBuilder
from pyreplog.testing.stage import Stage

__all__ = [
    "ack_then_power_loss",
    "another_node_holds_the_rest",
    "back_below_the_high_watermark",
    "behind_the_high_watermark",
    "cut_then_power_loss",
    "deleted_elsewhere",
    "deleted_inside_a_batch",
    "deleted_meanwhile",
    "divergence",
    "diverging_fetch",
    "empty_again",
    "failed_sync",
    "fast_elections",
    "fetch_of_an_older_epoch",
    "follower_loses_its_tail",
    "hidden_between_two_elections",
    "hw_truncation",
    "last_replica_standing",
    "late_reply",
    "metadata_replay",
    "old_end_told",
    "old_proposal",
    "one_foreign_record",
    "parted_below",
    "proposed_and_not_awaited",
    "replaced_while_somebody_waits",
    "replica_behind_the_epoch",
    "retry_after_election",
    "retry_after_truncation",
    "rot_on_the_leader",
    "shrink_undecided",
    "silent_leader",
    "stale_incarnation",
    "step_down",
    "still_eligible",
    "two_epochs_cut",
    "two_looks",
    "unclean",
    "unclean_restart",
    "unknown_epoch",
    "waiting_append",
    "zombie_answers",
]


def commit(stage: Stage, *values: bytes) -> None:
    """Append each at the leader, and have everyone in sync fetch it and say so."""
    for value in values:
        stage.append(stage.leader, value)
        for _ in range(2):
            followers = [one for one in stage.partition.isr if one != stage.leader and one in stage.up()]
            stage.sync()
            stage.exchange(*followers)


def hw_truncation(stage: Stage) -> None:
    """F1: a follower has a committed record and does not know yet that it is committed; it restarts, and then the
    leader dies."""
    commit(stage, b"m1")
    stage.pass_time(2)
    stage.exchange(2)
    stage.append(1, b"m2")
    stage.exchange(2)
    stage.exchange(2)
    stage.kill(2)
    stage.start(2)
    stage.tell(2, 1)
    stage.settle(1) if stage.partition.isr == (1,) else None
    stage.kill(1)
    stage.settle()
    stage.finish()


def divergence(stage: Stage) -> None:
    """F2: both lose their power; the one that lost more returns first, leads (uncleanly), writes; then the other
    returns."""
    stage.append(1, b"m1", acks=1)
    stage.exchange(2)
    stage.exchange(2)
    stage.pass_time(2)
    stage.exchange(2)
    stage.sync_all()
    stage.append(1, b"m2", acks=1)
    stage.exchange(2)
    stage.exchange(2)
    stage.pass_time(2)
    stage.lose_power(2)
    stage.stop(1)
    stage.start(2)
    stage.settle(2)
    stage.append(2, b"m3", acks=1)
    stage.settle(2)
    stage.start(1)
    stage.settle()
    stage.append(stage.leader, b"m4", acks=1)
    stage.finish()


def fast_elections(stage: Stage) -> None:
    """F3: two elections between two fetches. Node 1 has a tail of epoch 2 over a common part of epoch 0."""
    stage.append(1, b"a0", b"a1", b"a2", acks=1)
    stage.exchange(2)
    stage.prefer(2)
    stage.tell(2)
    for number in range(7):
        stage.append(2, b"b%d" % number, acks=1)
    stage.prefer(1)
    stage.skip(1)
    stage.tell(2)
    for number in range(3):
        stage.append(1, b"c%d" % number, acks=1)
    stage.prefer(2)
    stage.tell(2)
    stage.append(2, b"d0", acks=1)
    stage.tell(1)
    for _ in range(4):
        stage.exchange(1)
    stage.finish()


def parted_below(stage: Stage) -> None:
    """KIP-279: node 1 led, was away, and leads again; node 2 led between, over a log that ends in the same offset.
    The two part in the middle, and the latest epoch of node 2 is one that node 1 has never heard of."""
    stage.append(1, b"a0", b"a1", b"a2", acks=1)
    stage.exchange(2)
    stage.append(1, b"a3", b"a4", b"a5", acks=1)
    stage.prefer(2)
    stage.tell(2)
    stage.append(2, b"b3", b"b4", b"b5", acks=1)
    stage.prefer(1)
    stage.skip(1)
    stage.append(1, b"c6", acks=1)
    stage.tell(2)
    for _ in range(4):
        stage.exchange(2)
    stage.finish()


def one_foreign_record(stage: Stage) -> None:
    """A leader that was replaced returns with one record that its successor does not have."""
    stage.append(1, b"a", acks=1)
    stage.exchange(2)
    stage.append(1, b"b", acks=1)
    stage.prefer(2)
    stage.tell(2)
    stage.append(2, b"x", acks=1)
    stage.append(2, b"y", acks=1)
    stage.tell(1)
    for _ in range(4):
        stage.exchange(1)
    stage.finish()


def fetch_of_an_older_epoch(stage: Stage) -> None:
    """A follower's fetch of an older reign reaches a new leader, and afterwards the follower truncates against a
    zombie between the two."""
    stage.append(1, b"a", acks=1)
    stage.exchange(2, 3)
    stage.append(1, b"b", acks=1)
    stage.exchange(3)
    (late,) = stage.letters("fetch", 3)
    stage.prefer(2)
    stage.tell(2)
    stage.fence(2)
    stage.skip(1)
    stage.deliver(late)
    stage.tell(3, count=1)
    stage.exchange(3)
    stage.kill(1)
    stage.finish()


def replica_behind_the_epoch(stage: Stage) -> None:
    """F7: the new leader's high watermark is old; a replica between it and the start of the epoch asks to join."""
    stage.append(1, b"a")
    stage.exchange(2, 3, 4)
    stage.fence(3)
    stage.tell()
    commit(stage, b"b")
    stage.kill(1)
    stage.tell()
    stage.unfence(3)
    stage.tell()
    stage.deliver(stage.letters("fetch", 3, 2)[-1])
    for letter in stage.letters("records", target=3):
        stage.lose(letter)
    stage.decide(2)
    stage.kill(2)
    stage.finish()


def shrink_undecided(stage: Stage) -> None:
    """A slow follower is to leave; the controller has not heard of it yet."""
    commit(stage, b"a")
    stage.append(1, b"b")
    for _ in range(6):
        stage.pass_time(400, 1, 2)
        stage.exchange(2)
    assert stage.letters("proposal", 1)
    stage.kill(1)
    stage.kill(2)
    stage.finish()


def proposed_and_not_awaited(stage: Stage) -> None:
    """The controller accepted a new member, the answer is on its way, and the leader goes on without it."""
    stage.fence(3)
    stage.tell()
    stage.unfence(3)
    stage.tell()
    stage.exchange(3)
    stage.decide(1, answer=False)
    stage.pass_time(5000, 1, 2)
    commit_without(stage, b"a", 2)
    stage.kill(1)
    stage.kill(2)
    stage.finish()


def commit_without(stage: Stage, value: bytes, *followers: int) -> None:
    """Append at node 1; only these fetch."""
    stage.append(1, value)
    stage.exchange(*followers)
    stage.exchange(*followers)


def lagging(stage: Stage, slow: int) -> None:
    """Node 1 proposes to go on without ``slow``, which does not fetch."""
    (other,) = (one for one in (2, 3) if one != slow)
    for _ in range(8):
        if stage.letters("proposal", 1):
            return
        stage.pass_time(400, 1, other)
        stage.exchange(other)


def old_proposal(stage: Stage) -> None:
    """A proposal is long on its way; meanwhile the controller changes the set itself, and the leader goes on with
    that."""
    stage.append(1, b"a", acks=1)
    stage.exchange(2)
    lagging(stage, 3)
    (first,) = stage.letters("proposal", 1)
    stage.fence(2)
    stage.tell(1, 3)
    commit_without(stage, b"b", 3)
    stage.exchange(3)
    stage.unfence(2)
    stage.tell(1)
    stage.deliver(first)
    stage.kill(1)
    stage.finish()


def metadata_replay(stage: Stage) -> None:
    """N2: the metadata of a shrink that the leader knows from the answer arrives while an expansion is
    undecided."""
    stage.append(1, b"a", acks=1)
    stage.exchange(2)
    lagging(stage, 3)
    stage.decide(1)
    stage.exchange(3)
    stage.exchange(3)
    assert stage.letters("proposal", 1)
    stage.append(1, b"x", acks=1)  # which answers the fetch of node 3 that waits: it is not proposed again
    stage.tell(1)
    stage.decide(1, answer=False)
    stage.pass_time(5000, 1, 2)
    commit_without(stage, b"b", 2)
    stage.kill(1)
    stage.kill(2)
    stage.finish()


def late_reply(stage: Stage) -> None:
    """N3: the answer to a shrink is late; the leader has learnt of it from the metadata and proposed something
    else."""
    stage.append(1, b"a", acks=1)
    stage.exchange(2)
    lagging(stage, 3)
    stage.decide(1, answer=False)
    (late,) = stage.letters("decision", target=1)
    stage.tell(1)
    stage.exchange(3)
    stage.exchange(3)
    assert stage.letters("proposal", 1)
    stage.append(1, b"x", acks=1)
    stage.deliver(late)
    stage.decide(1, answer=False)
    stage.pass_time(5000, 1, 2)
    commit_without(stage, b"b", 2)
    stage.kill(1)
    stage.kill(2)
    stage.finish()


def hidden_between_two_elections(stage: Stage) -> None:
    """N1: node 2 truncates under another leader between two reigns of node 1, which hears of both elections at
    once."""
    stage.append(1, b"a")
    stage.append(1, b"b")
    stage.exchange(2)
    stage.exchange(2)
    stage.prefer(3)
    stage.tell(3)
    stage.tell(2)
    stage.exchange(2)
    stage.fence(3)
    stage.skip(1)
    stage.pass_time(1, 1)
    stage.kill(1)
    stage.finish()


def empty_again(stage: Stage) -> None:
    """F40: a replica is taken away and comes back empty; the leader hears of both at once."""
    commit(stage, b"a")
    stage.exchange(3)
    stage.take_away(3)
    stage.give_back(3)
    stage.skip(1)
    stage.decide(1)
    stage.tell()
    stage.kill(1)
    stage.kill(2)
    stage.finish()


def diverging_fetch(stage: Stage) -> None:
    """F9: a follower with a longer, foreign log fetches at its end."""
    for value in (b"a", b"b", b"c"):
        stage.append(1, value, acks=1)
        stage.exchange(2)
    stage.prefer(3)
    stage.tell(3)
    stage.append(3, b"x")
    stage.tell(1, 2)
    for letter in stage.letters("fetch"):
        if letter.target == 3:
            stage.deliver(letter)
    stage.kill(3)
    stage.finish()


def stale_incarnation(stage: Stage) -> None:
    """F30: a replica that was about to join loses its power; the proposal names its former life."""
    stage.fence(3)
    stage.tell()
    commit(stage, b"a")
    stage.unfence(3)
    stage.tell()
    stage.exchange(3)
    stage.exchange(3)
    assert stage.letters("proposal", 1)
    stage.lose_power(3)
    stage.start(3)
    stage.decide(1, answer=False)
    stage.tell(3)
    stage.kill(1)
    stage.kill(2)
    stage.finish()


def last_replica_standing(stage: Stage) -> None:
    """F35: two are gone, one after the other; the last one loses its power and returns alone."""
    commit(stage, b"a")
    stage.fence(3)
    stage.tell()
    commit(stage, b"b")
    stage.fence(2)
    stage.tell()
    stage.lose_power(1)
    stage.start(1)
    stage.tell(1)
    stage.finish()


def another_node_holds_the_rest(stage: Stage) -> None:
    """F20: below the minimum a leader alone takes more; then it dies and one of the eligible replicas is
    elected."""
    commit(stage, b"a")
    stage.fence(2)
    stage.fence(3)
    stage.tell()
    stage.append(1, b"b", acks=1)
    stage.pass_time(5000, 1)
    stage.append(1, b"c", acks=1)
    stage.kill(1)
    stage.finish()


def unclean_restart(stage: Stage) -> None:
    """An eligible replica lost its power, and with it what made it eligible."""
    stage.fence(3)
    stage.tell()
    commit(stage, b"a")
    stage.lose_power(2)
    stage.start(2)
    stage.tell()
    stage.kill(1)
    stage.finish()


def still_eligible(stage: Stage) -> None:
    """The set is large enough again, and goes on; whoever is still eligible is not any more."""
    commit(stage, b"a")
    stage.fence(2)
    stage.fence(3)
    stage.tell()
    stage.unfence(2)
    stage.tell()
    stage.exchange(2)
    stage.exchange(2)
    stage.decide(1)
    stage.tell()
    commit(stage, b"b")
    stage.finish()


def unknown_epoch(stage: Stage) -> None:
    """A new leader that has written nothing is asked about an epoch that it does not know."""
    commit(stage, b"a")
    stage.prefer(2)
    stage.tell(2)
    stage.append(2, b"x", acks=1)
    stage.prefer(3)
    stage.tell(3)
    stage.tell(2)
    stage.exchange(2)
    stage.kill(3)
    stage.finish()


def silent_leader(stage: Stage) -> None:
    """F5: a leader that writes nothing is asked by one whose epoch it has never heard of, over a log just as
    long."""
    stage.append(1, b"a", acks=1)
    stage.exchange(2, 3)
    stage.append(1, b"b", acks=1)
    stage.exchange(3)
    stage.prefer(2)
    stage.tell(2)
    stage.append(2, b"x", acks=1)
    stage.prefer(3)
    stage.tell(3)
    stage.tell(2)
    stage.settle(2, 3)
    stage.finish()


def behind_the_high_watermark(stage: Stage) -> None:
    """F6: an epoch that began at the end of the log and in which nothing was written must go when the leader has no
    such epoch."""
    commit(stage, b"a")
    stage.prefer(2)
    stage.tell(2)
    stage.prefer(1)
    stage.skip(1)
    stage.tell(2)
    stage.settle(1, 2)
    stage.finish()


def unclean(stage: Stage) -> None:
    """A replica that lacks committed records leads because somebody wanted it to."""
    stage.fence(2)
    stage.tell(1)
    stage.append(1, b"a")
    stage.kill(1)
    stage.unfence(2)
    stage.tell(2)
    stage.append(2, b"x")
    stage.append(2, b"y")
    stage.finish()


def step_down(stage: Stage) -> None:
    """F24: who waits for an offset is answered when another record comes to it."""
    stage.append(1, b"a")
    stage.prefer(2)
    stage.tell(2)
    stage.tell(1)
    stage.append(2, b"x", acks=1)
    for _ in range(3):
        stage.exchange(1)
    stage.prefer(1)
    stage.tell(1)
    stage.tell(2)
    for _ in range(3):
        stage.exchange(2)
    stage.finish()


def waiting_append(stage: Stage) -> None:
    """A leader steps down while an append waits."""
    stage.append(1, b"a")
    stage.prefer(2)
    stage.tell()
    stage.finish()


def zombie_answers(stage: Stage) -> None:
    """F4: a leader that has not heard of the election still takes appends and answers fetches."""
    commit(stage, b"a")
    stage.append(1, b"b", acks=1)
    stage.exchange(3)
    stage.prefer(2)
    stage.tell(2)
    stage.append(2, b"x")
    stage.exchange(3)
    stage.append(1, b"c", acks=1)
    stage.tell()
    stage.finish()


def cut_then_power_loss(stage: Stage) -> None:
    """F17: a follower truncates, and loses its power right after."""
    stage.append(1, b"a", acks=1)
    stage.sync()
    stage.exchange(2)
    stage.prefer(2)
    stage.tell(2)
    stage.append(2, b"x", acks=1)
    stage.sync()
    stage.append(1, b"b", acks=1)
    stage.sync()
    stage.tell(1)
    stage.exchange(1)
    stage.lose_power(1)
    stage.start(1)
    stage.finish()


def retry_after_truncation(stage: Stage) -> None:
    """F33: a leader took a batch, lost it to a truncation, and leads again when its producer sends it once more."""
    stage.append(1, b"s0", numbers=(7, 0, 0))
    stage.exchange(2, 3)
    stage.exchange(2, 3)
    stage.append(1, b"s1", numbers=(7, 0, 1), acks=1)
    stage.prefer(2)
    stage.tell(2)
    stage.tell(1)
    for _ in range(3):
        stage.exchange(1)
    stage.prefer(1)
    stage.tell(1)
    stage.append(1, b"s1", numbers=(7, 0, 1))
    stage.append(1, b"other")
    stage.settle()
    stage.finish()


def retry_after_election(stage: Stage) -> None:
    """A producer's batch is committed, its answer lost; it sends it again to the next leader."""
    stage.append(1, b"s0", numbers=(7, 0, 0))
    stage.exchange(2, 3)
    stage.exchange(2, 3)
    stage.kill(1)
    stage.tell()
    stage.append(stage.leader, b"s0", numbers=(7, 0, 0))
    stage.settle()
    stage.finish()


def deleted_elsewhere(stage: Stage) -> None:
    """DeleteRecords is answered; a live replica has not heard of it."""
    commit(stage, b"a", b"b")
    stage.settle()
    stage.delete_records(1, 1)
    stage.settle()
    stage.finish()


def two_looks(stage: Stage) -> None:
    """F19: between two looks at the log another thread appends to it. (Ours has no such moment: one step, one
    look.)"""
    commit(stage, b"a")
    replica = stage.machines[1].replica

    def between() -> None:
        builder = BatchBuilder()
        assert builder.append(b"b", None, (), 1)
        stage.log(1).append_as_leader(bytearray(builder.finish()), 0)

    if hasattr(replica, "__dict__"):  # the true rules have no room for it
        vars(replica)["between"] = between
    stage.read(1, 0)
    stage.finish()


def ack_then_power_loss(stage: Stage) -> None:
    """Appended, answered, and then the power is gone."""
    stage.append(1, b"a")
    stage.append(1, b"b", acks=1)
    stage.finish()


def follower_loses_its_tail(stage: Stage) -> None:
    """A follower has written and not synced, and asks for more."""
    stage.append(1, b"a")
    stage.exchange(2, 3)
    stage.sync(1)
    stage.exchange(2, 3)
    stage.finish()


def failed_sync(stage: Stage) -> None:
    """A sync fails; then the power is gone."""
    stage.append(1, b"a")
    stage.fail_sync(1)
    stage.lose_power(1)
    stage.start(1)
    stage.tell()
    stage.finish()


def old_end_told(stage: Stage) -> None:
    """F18: readers were told where the end is; the next leader's high watermark is older."""
    commit(stage, b"a")
    stage.latest(1)
    stage.kill(1)
    stage.tell()
    stage.latest(stage.leader)
    stage.finish()


def rot_on_the_leader(stage: Stage) -> None:
    """A bit of the leader's log flipped; a follower that was away fetches it."""
    stage.fence(3)
    stage.tell()
    commit(stage, *(bytes([letter]) * 3000 for letter in b"abcd"))
    stage.stop(2)
    stage.stop(1)
    stage.flip(1)
    stage.start(1)
    stage.tell(1)
    stage.unfence(3)
    stage.tell()
    stage.settle(1, 3)
    stage.check_bytes(3)


def replaced_while_somebody_waits(stage: Stage) -> None:
    """A leader with an append that nobody has fetched yet hears that another one was elected, which leads
    already."""
    stage.append(1, b"a")
    stage.prefer(2)
    stage.tell(2)
    stage.tell(1)
    stage.finish()


def back_below_the_high_watermark(stage: Stage) -> None:
    """A follower was out of sight for a moment; meanwhile the others committed something."""
    commit(stage, b"a")
    stage.fence(3)
    stage.tell()
    commit(stage, b"b")
    stage.unfence(3)
    stage.tell()
    stage.finish()


def deleted_meanwhile(stage: Stage) -> None:
    """While a follower was down records were deleted that it has not got."""
    commit(stage, b"a")
    stage.kill(3)
    stage.tell()
    commit(stage, b"b", b"c")
    stage.delete_records(1, 2)
    stage.start(3)
    stage.tell()
    stage.exchange(3)
    stage.finish()


def deleted_inside_a_batch(stage: Stage) -> None:
    """The first of three records that came in one batch is to be deleted."""
    stage.append(1, b"a", b"b", b"c")
    for _ in range(2):
        stage.exchange(2, 3)
    stage.delete_records(1, 1)
    stage.finish()


def two_epochs_cut(stage: Stage) -> None:
    """A leader of two epochs, with a record in each that nobody else has, is replaced by one that has neither."""
    stage.append(1, b"a", acks=1)
    stage.exchange(2)
    for value in (b"x", b"y"):
        stage.prefer(2)
        stage.tell(2)
        stage.append(2, value, acks=1)
    stage.prefer(1)
    stage.skip(1)
    stage.tell(2)
    for _ in range(4):
        stage.exchange(2)
    stage.finish()
