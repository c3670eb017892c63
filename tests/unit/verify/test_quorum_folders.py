"""`verify` finds nothing in the folders that the quorum writes, in any moment of their lives, and says so of readers'
view of them."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.log import MetadataFolder
from pyreplog.verify import Finding, Level, verify
from pyreplog.wire import TopicRecord, encode_record
from tests.unit.quorum.quorum_net import FOLDER, QuorumNet

VALUES = [encode_record(TopicRecord(f"topic-{number}", f"{number:021d}A")) for number in range(40)]


def findings(net: QuorumNet) -> list[Finding]:
    """What is wrong with any node's metadata folder. It lies in no root of a node here."""
    found = [one for disk in net.disks.values() for one in verify(disk, "node").findings]
    return [one for one in found if one.level is not Level.NOTE and one.path.startswith(FOLDER)]


def elected(net: QuorumNet) -> QuorumNet:
    """Wait for a leader."""
    net.advance(5_000)
    assert len(net.leaders) == 1
    return net


@pytest.mark.parametrize("count", [1, 3])
def test_formatted_elected_appended_and_closed(count: int) -> None:
    """From the folder without a record to that of a clean stop; open and closed."""
    net = QuorumNet(count)
    assert findings(net) == []
    elected(net)
    assert findings(net) == []
    for value in VALUES:
        net.append(value)
    net.advance(2_000)
    assert findings(net) == []
    for node in net.nodes.values():
        node.close()
    assert findings(net) == []
    for disk in net.disks.values():
        assert list(MetadataFolder(disk, FOLDER).records()) == VALUES


def test_several_leaders_and_a_truncation() -> None:
    """A deposed leader's records are cut off; each epoch of the log has its leader's record."""
    net = elected(QuorumNet(3))
    net.append(*VALUES[:3])
    net.advance(2_000)
    first = net.leaders[0]
    net.isolate(first)
    net.append(*VALUES[3:6])  # no majority gets them
    assert findings(net) == []
    net.advance(10_000)
    (second,) = [number for number in net.leaders if number != first]
    placed = net.nodes[second].append(VALUES[6:9], net.now)
    net.take(second, placed.effects)
    net.advance(1_000)
    net.cut.clear()
    net.advance(10_000)
    assert findings(net) == []
    expected = [*VALUES[:3], *VALUES[6:9]]
    for disk in net.disks.values():
        assert list(MetadataFolder(disk, FOLDER).records()) == expected


@pytest.mark.parametrize("end", ["killed", "power lost"])
def test_a_snapshot_and_an_abrupt_end(end: str) -> None:
    """With a snapshot behind the log's begin, and with one that a node got from the leader."""
    net = elected(QuorumNet(3))
    away = next(number for number in net.nodes if number not in net.leaders)
    net.kill(away)
    for value in VALUES[:20]:
        net.append(value)
    net.advance(2_000)
    for node in net.nodes.values():
        node.write_snapshot(node.high_watermark, VALUES[:20])
    net.append(*VALUES[20:25])
    net.advance(2_000)
    assert findings(net) == []
    net.open(away)
    net.advance(10_000)
    assert findings(net) == []
    for number in list(net.nodes):
        net.kill(number, told=False)
        if end == "power lost":
            net.disks[number] = net.disks[number].crash(Random(number))
    # Files that are rebuilt at the next opening need not survive a power loss.
    assert [one for one in findings(net) if end == "killed" or one.level is Level.DAMAGE] == []
    for disk in net.disks.values():
        assert list(MetadataFolder(disk, FOLDER).records()) == VALUES[:25]
