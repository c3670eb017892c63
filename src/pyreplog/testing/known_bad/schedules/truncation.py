"""Schedules about followers that truncate, and about leader epochs."""

from __future__ import annotations

from pyreplog.testing.known_bad.schedules.steps import commit
from pyreplog.testing.stage import Stage

__all__ = [
    "behind_the_high_watermark",
    "divergence",
    "diverging_fetch",
    "fast_elections",
    "fetch_of_an_older_epoch",
    "hidden_between_two_elections",
    "hw_truncation",
    "one_foreign_record",
    "parted_below",
    "silent_leader",
    "two_epochs_cut",
    "unknown_epoch",
]


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
    """F2: both nodes go down. The node that lost more records returns first, is elected uncleanly and
    writes; then the other returns."""
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
    """KIP-279: node 1 leads twice, and node 2 between, with a log that ends at the same offset.

    The logs diverge in the middle, and node 1 does not know the latest epoch of node 2.
    """
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
    """A replaced leader returns with one record that its successor does not have."""
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
    """A follower's fetch of an older leader epoch reaches a new leader.

    Afterwards the follower truncates against the zombie leader of an epoch between the two.
    """
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


def hidden_between_two_elections(stage: Stage) -> None:
    """N1: node 2 truncates under another leader between two leader epochs of node 1, which learns both elections at
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


def diverging_fetch(stage: Stage) -> None:
    """F9: a follower with a longer, diverging log fetches at its end."""
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
    """F5: a follower asks a leader that has written nothing about an epoch that this leader does not know.

    Their logs have the same length.
    """
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
    """F6: an epoch without records began at the end of the log. It must be removed if the leader has no
    such epoch."""
    commit(stage, b"a")
    stage.prefer(2)
    stage.tell(2)
    stage.prefer(1)
    stage.skip(1)
    stage.tell(2)
    stage.settle(1, 2)
    stage.finish()


def two_epochs_cut(stage: Stage) -> None:
    """A leader of two epochs has one record of each that no other replica has; a leader without both replaces it."""
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
