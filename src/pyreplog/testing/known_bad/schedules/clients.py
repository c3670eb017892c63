"""Schedules about the promises to clients: acknowledged appends, reads, deletions."""

from __future__ import annotations

from pyreplog.record import BatchBuilder
from pyreplog.testing.known_bad.schedules.steps import commit
from pyreplog.testing.stage import Stage

__all__ = [
    "deleted_elsewhere",
    "deleted_inside_a_batch",
    "deleted_meanwhile",
    "old_end_told",
    "replaced_while_somebody_waits",
    "retry_after_election",
    "retry_after_truncation",
    "step_down",
    "two_looks",
    "waiting_append",
    "zombie_answers",
]


def step_down(stage: Stage) -> None:
    """F24: a client that waits for an offset is answered when another record gets that offset."""
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
    """F4: a leader that does not know of the election yet still takes appends and answers fetches."""
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


def retry_after_truncation(stage: Stage) -> None:
    """F33: a leader appended a batch, truncated it, and leads again when the producer sends it again."""
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
    """A producer's batch is committed, but the answer is lost; the producer sends it again to the next leader."""
    stage.append(1, b"s0", numbers=(7, 0, 0))
    stage.exchange(2, 3)
    stage.exchange(2, 3)
    stage.kill(1)
    stage.tell()
    stage.append(stage.leader, b"s0", numbers=(7, 0, 0))
    stage.settle()
    stage.finish()


def deleted_elsewhere(stage: Stage) -> None:
    """DeleteRecords is answered before a live replica has learnt of the deletion."""
    commit(stage, b"a", b"b")
    stage.settle()
    stage.delete_records(1, 1)
    stage.settle()
    stage.finish()


def two_looks(stage: Stage) -> None:
    """F19: another thread appends to the log between two reads of its high watermark.

    Our leader reads it only once per step, so this cannot happen there.
    """
    commit(stage, b"a")
    replica = stage.machines[1].replica

    def between() -> None:
        builder = BatchBuilder()
        assert builder.append(b"b", None, (), 1)
        stage.log(1).append_as_leader(bytearray(builder.finish()), 0)

    if hasattr(replica, "__dict__"):  # the true rules have no such hook
        vars(replica)["between"] = between
    stage.read(1, 0)
    stage.finish()


def old_end_told(stage: Stage) -> None:
    """F18: readers know the end of the log; the next leader has an older high watermark."""
    commit(stage, b"a")
    stage.latest(1)
    stage.kill(1)
    stage.tell()
    stage.latest(stage.leader)
    stage.finish()


def replaced_while_somebody_waits(stage: Stage) -> None:
    """A leader with an append that no follower fetched learns of its successor, which leads already."""
    stage.append(1, b"a")
    stage.prefer(2)
    stage.tell(2)
    stage.tell(1)
    stage.finish()


def deleted_meanwhile(stage: Stage) -> None:
    """While a follower is down, records are deleted that it does not have."""
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
    """A client deletes the first of three records of one batch."""
    stage.append(1, b"a", b"b", b"c")
    for _ in range(2):
        stage.exchange(2, 3)
    stage.delete_records(1, 1)
    stage.finish()
