"""Schedules about the in-sync set, its proposals and elections."""

from __future__ import annotations

from pyreplog.testing.known_bad.schedules.steps import commit, commit_without, lagging
from pyreplog.testing.stage import Stage

__all__ = [
    "another_node_holds_the_rest",
    "back_below_the_high_watermark",
    "empty_again",
    "last_replica_standing",
    "late_reply",
    "metadata_replay",
    "old_proposal",
    "proposed_and_not_awaited",
    "replica_behind_the_epoch",
    "shrink_undecided",
    "stale_incarnation",
    "still_eligible",
    "unclean",
    "unclean_restart",
]


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
    """A leader proposes to remove a slow follower; the proposal has not reached the controller."""
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
    """The controller has accepted a new member; the leader goes on without it before the answer arrives."""
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


def old_proposal(stage: Stage) -> None:
    """A proposal is delayed; the controller changes the set itself, and the leader uses that set."""
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
    stage.append(1, b"x", acks=1)  # this answers the waiting fetch of node 3, so node 3 is not proposed again
    stage.tell(1)
    stage.decide(1, answer=False)
    stage.pass_time(5000, 1, 2)
    commit_without(stage, b"b", 2)
    stage.kill(1)
    stage.kill(2)
    stage.finish()


def late_reply(stage: Stage) -> None:
    """N3: the answer to a shrink is late; the leader knows of it from the metadata and has made another proposal."""
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


def empty_again(stage: Stage) -> None:
    """F40: a replica is removed and comes back empty; the leader learns both at once."""
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


def stale_incarnation(stage: Stage) -> None:
    """F30: a replica that was about to join loses power; the proposal names its former incarnation."""
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
    """F35: two replicas fail one after the other; the last one loses power and returns alone."""
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
    """F20: a leader alone, below the minimum, takes more appends. Then it dies, and an eligible
    replica is elected."""
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
    """An eligible replica loses power, and with it records that it must have to be eligible."""
    stage.fence(3)
    stage.tell()
    commit(stage, b"a")
    stage.lose_power(2)
    stage.start(2)
    stage.tell()
    stage.kill(1)
    stage.finish()


def still_eligible(stage: Stage) -> None:
    """The ISR is large enough again, and grows; a replica that stays in the ELR lacks the new records."""
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


def unclean(stage: Stage) -> None:
    """A replica that lacks committed records leads because a person asked for it."""
    stage.fence(2)
    stage.tell(1)
    stage.append(1, b"a")
    stage.kill(1)
    stage.unfence(2)
    stage.tell(2)
    stage.append(2, b"x")
    stage.append(2, b"y")
    stage.finish()


def back_below_the_high_watermark(stage: Stage) -> None:
    """A follower is fenced briefly, and the others commit a record without it."""
    commit(stage, b"a")
    stage.fence(3)
    stage.tell()
    commit(stage, b"b")
    stage.unfence(3)
    stage.tell()
    stage.finish()
