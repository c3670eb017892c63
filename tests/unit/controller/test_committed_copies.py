"""A committed image that is a copy of the working one says the same as the log."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pyreplog.controller import MetadataImage
from pyreplog.controller.committed_metadata import CommittedMetadata
from pyreplog.controller.image_loader import decode_known
from pyreplog.controller.quorum_server import QuorumServer
from pyreplog.quorum import QuorumConfig
from tests.unit.controller.quorum_harness import QuorumHarness

COUNT = 300


def replayed(server: QuorumServer) -> MetadataImage:
    """Return the image of the committed log, record by record."""
    image = MetadataImage()
    for offset, value in server.raft.read_committed(0):
        if isinstance(value, bytes):
            image.apply(offset, decode_known(value, offset))
    image.offset = server.raft.high_watermark - 1
    return image


def content(image: MetadataImage) -> object:
    topics = {topic.name: dict(topic.partitions.items()) for topic in image.topics.values()}
    index = [sorted(image.index.leads(one)) for one in image.brokers]
    members = [sorted(image.index.members(one)) for one in image.brokers]
    return image.offset, image.brokers, topics, image.feature_levels, index, members


@pytest.mark.parametrize("stored", [1 << 40, 100], ids=["without a store", "with a store"])
def test_a_node_with_many_partitions_is_fenced_and_returns(stored: int, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    real = CommittedMetadata._copied

    def noted(self: CommittedMetadata, working: MetadataImage, records: object) -> MetadataImage | None:
        found = real(self, working, records)  # type: ignore[arg-type]
        if found is not None:
            copies.append(found.offset)
        return found

    monkeypatch.setattr(CommittedMetadata, "_copied", noted)
    harness = QuorumHarness(quorum=QuorumConfig(stored_image_records=stored))
    harness.elect()
    harness.join(1, 2, 3)
    assert harness.create(1, partitions=COUNT) == 0
    for node_id in (3, 2):
        harness.kill(node_id)
        harness.run(20)
        harness.elect()
        harness.run(20)
        harness.start(node_id)
        harness.join(node_id)
        harness.run(100, 1, 2, 3)
    assert len(copies) >= 2, "large changes are copied"
    assert all(earlier < later for earlier, later in pairwise(copies))
    assert harness.create(1, "later", partitions=3) == 0
    harness.run(2_000, 1, 2, 3)
    for server in harness.servers.values():
        assert content(server.image) == content(replayed(server))
    for node_id in (1, 2, 3):
        harness.servers[node_id].close()
        harness.servers.pop(node_id)
        harness.brokers.pop(node_id).transport.close()
        harness.start(node_id)
        server = harness.servers[node_id]
        if stored == 100:
            assert server.image.partition_count() == COUNT + 3, "the store has the image"
    harness.elect()
    harness.run(100)
    for server in harness.servers.values():
        assert content(server.image) == content(replayed(server))
