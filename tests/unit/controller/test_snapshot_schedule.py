"""When a server writes a snapshot of the metadata, where that is not by size or age alone."""

from __future__ import annotations

from pyreplog.quorum import QuorumConfig
from tests.unit.controller.quorum_harness import QuorumHarness


def test_no_snapshot_while_the_high_watermark_is_unknown() -> None:
    """A server that starts from its stored image alone, without a majority, has more than it knows to be committed: it
    writes no snapshot of that, and goes on once there is a majority."""
    config = QuorumConfig(stored_image_records=1, snapshot_interval_ms=1_000)
    harness = QuorumHarness(quorum=config._replace(snapshot_interval_ms=3_600_000))
    harness.elect()
    harness.join(1, 2, 3)
    assert harness.create(1) == 0
    harness.run(2_000, 1, 2, 3)
    for one in (1, 2, 3):
        harness.servers[one].close()
        harness.servers.pop(one)
        harness.brokers.pop(one).transport.close()
    harness.quorum_config = harness.quorum_config._replace(snapshot_interval_ms=1_000)
    harness.start(1)
    server = harness.servers[1]
    assert server.image.offset > server.raft.high_watermark, "it starts from the stored image"
    harness.run(5_000)
    assert server.raft.latest_snapshot is not None
    assert server.raft.latest_snapshot.end_offset == 0
    harness.start(2)
    harness.elect()
    harness.run(2_000)
    assert server.raft.latest_snapshot.end_offset > 0
