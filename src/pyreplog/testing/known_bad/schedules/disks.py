"""Schedules about power loss, failed syncs and rot."""

from __future__ import annotations

from pyreplog.record import split
from pyreplog.testing.known_bad.schedules.steps import commit
from pyreplog.testing.stage import Stage

__all__ = [
    "answer_lacks_a_batch",
    "ack_then_power_loss",
    "cut_then_power_loss",
    "failed_sync",
    "follower_loses_its_tail",
    "rot_on_the_leader",
]


def cut_then_power_loss(stage: Stage) -> None:
    """F17: a follower truncates, and loses power right after."""
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


def ack_then_power_loss(stage: Stage) -> None:
    """A record is appended and acknowledged; then the leader loses power."""
    stage.append(1, b"a")
    stage.append(1, b"b", acks=1)
    stage.finish()


def follower_loses_its_tail(stage: Stage) -> None:
    """A follower fetches again before it has synced the records that it wrote."""
    stage.append(1, b"a")
    stage.exchange(2, 3)
    stage.sync(1)
    stage.exchange(2, 3)
    stage.finish()


def failed_sync(stage: Stage) -> None:
    """A sync fails; then the node loses power."""
    stage.append(1, b"a")
    stage.fail_sync(1)
    stage.lose_power(1)
    stage.start(1)
    stage.tell()
    stage.finish()


def rot_on_the_leader(stage: Stage) -> None:
    """A bit of the leader's log is flipped; a follower that was fenced fetches the batch."""
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


def answer_lacks_a_batch(stage: Stage) -> None:
    """A leader's answer lacks its first batch, as after a wrong search in its index."""
    commit(stage, b"a")
    stage.append(1, b"b", acks=1)
    stage.append(1, b"c", acks=1)
    stage.sync()
    for letter in stage.letters("records", target=2):
        stage.lose(letter)
    stage.send(2)
    for letter in stage.letters("fetch", 2):
        stage.deliver(letter)
    (answer,) = stage.letters("records", target=2)
    data = answer.body[0].data
    first, *_ = split(memoryview(data.records))
    stage.say(f"the answer lacks the batch at {first.base_offset}")
    data.records = data.records[first.size :]
    stage.deliver(answer)
    stage.finish()
