"""A new leader's mark: what it shows to readers from its first moment is in the mark before."""

from __future__ import annotations

from tests.replica.conftest import MakeHarness


def test_a_new_leader_writes_its_mark_first(make_harness: MakeHarness) -> None:
    """A follower's mark may lag behind its high watermark while records stream in; it is brought up to date when
    the follower leads."""
    harness = make_harness(3)
    harness.elect(1)
    harness.settle()
    harness.append(1)
    harness.settle()
    log = harness.logs[2]
    marked: list[tuple[int, str]] = []
    write = log.write_mark

    def spy() -> None:
        marked.append((log.high_watermark, harness.replicas[2].role.name))
        write()

    log.write_mark = spy
    harness.elect(2)
    assert marked
    assert marked[0] == (1, "leader")
