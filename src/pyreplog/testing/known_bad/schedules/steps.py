"""Steps that many schedules share."""

from __future__ import annotations

from pyreplog.testing.stage import Stage

__all__ = [
    "commit",
    "commit_without",
    "lagging",
]


def commit(stage: Stage, *values: bytes) -> None:
    """Append each at the leader, and let every other ISR member fetch it twice, so that it is committed."""
    for value in values:
        stage.append(stage.leader, value)
        for _ in range(2):
            followers = [one for one in stage.partition.isr if one != stage.leader and one in stage.up()]
            stage.sync()
            stage.exchange(*followers)


def commit_without(stage: Stage, value: bytes, *followers: int) -> None:
    """Append at node 1; only these followers fetch."""
    stage.append(1, value)
    stage.exchange(*followers)
    stage.exchange(*followers)


def lagging(stage: Stage, slow: int) -> None:
    """Let node 1 propose to remove ``slow``, which does not fetch, from the ISR."""
    (other,) = (one for one in (2, 3) if one != slow)
    for _ in range(8):
        if stage.letters("proposal", 1):
            return
        stage.pass_time(400, 1, other)
        stage.exchange(other)
