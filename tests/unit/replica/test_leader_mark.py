"""A new leader's mark: what it shows to readers from its first moment is in the mark before."""

from __future__ import annotations

from tests.unit.replica.conftest import MakeStage


def test_a_new_leader_writes_its_mark_first(make_stage: MakeStage) -> None:
    """A follower's mark may lag behind its high watermark while records stream in; it is brought up to date when
    the follower leads."""
    stage = make_stage(3)
    stage.elect(1)
    stage.settle()
    stage.append(1)
    stage.settle()
    log = stage.logs[2]
    marked: list[tuple[int, str]] = []
    write = log.write_mark

    def spy() -> None:
        marked.append((log.high_watermark, stage.replicas[2].role.name))
        write()

    log.write_mark = spy
    stage.elect(2)
    assert marked
    assert marked[0] == (1, "leader")
