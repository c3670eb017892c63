"""A controller whose disk is full for a while, or failed: nothing decided is lost, and what only time brings about
comes about later."""

from __future__ import annotations

import errno

import pytest

from pyreplog.wire import (
    ELECT_UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    ErrorCode,
    PartitionEnd,
)
from tests.unit.controller.controller_harness import ControllerHarness


def staffed() -> ControllerHarness:
    """With three brokers and a topic."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    assert not harness.create("t", 1)
    return harness


def leader_of(harness: ControllerHarness) -> int:
    """Of the topic's partition."""
    (topic,) = harness.image.topics.values()
    return topic.partitions[0].leader


def test_a_silent_leader_is_fenced_once_there_is_room() -> None:
    """The end of a session that could not be written down is not forgotten."""
    harness = staffed()
    first = leader_of(harness)
    others = [broker for broker in (1, 2, 3) if broker != first]
    harness.disk.fail("write", error=errno.ENOSPC, times=None)
    harness.pass_time(5_000, *others)
    assert leader_of(harness) == first
    harness.disk.clear_faults()
    harness.pass_time(1_000, *others)
    assert leader_of(harness) in others
    assert harness.image.brokers[first].fenced


def test_a_lack_of_room_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often the controller tries again; and that it can write again."""
    harness = staffed()
    first = leader_of(harness)
    others = [broker for broker in (1, 2, 3) if broker != first]
    harness.disk.fail("write", error=errno.ENOSPC, times=None)
    caplog.clear()
    harness.pass_time(10_000, *others)
    told = [record.getMessage() for record in caplog.records if record.name == "pyreplog"]
    assert len(told) == 1
    assert told[0].startswith("the controller could not write its decisions, and tries again: [Errno 28]")
    harness.disk.clear_faults()
    harness.pass_time(1_000, *others)
    assert leader_of(harness) in others
    assert [record.getMessage() for record in caplog.records if record.name == "pyreplog"][1:] == [
        "the controller writes its decisions again"
    ]


def test_a_killed_leader_is_fenced_once_there_is_room() -> None:
    """The same where the controller was told of the death."""
    harness = staffed()
    first = leader_of(harness)
    others = [broker for broker in (1, 2, 3) if broker != first]
    harness.disk.fail("write", error=errno.ENOSPC, times=None)
    harness.gone(first)
    assert leader_of(harness) == first
    harness.disk.clear_faults()
    harness.pass_time(1_000, *others)
    assert leader_of(harness) in others


def test_an_election_that_waited_is_held_once_there_is_room() -> None:
    """The patience of an election among unclean members ends while the disk is full: it is held later, not
    never."""
    harness = staffed()
    (topic,) = harness.image.topics.values()
    harness.open()
    for broker in (1, 2):
        harness.register(broker, PartitionEnd(topic.topic_id, 0, 0, 10 + broker))
        harness.beat(broker)
    assert leader_of(harness) == -1
    harness.disk.fail("write", error=errno.ENOSPC, times=None)
    harness.pass_time(2_000, 1, 2)
    assert leader_of(harness) == -1
    harness.disk.clear_faults()
    harness.pass_time(1_000, 1, 2)
    assert leader_of(harness) == 2


def test_a_failed_controller_writes_nothing_more() -> None:
    """After a failed sync the end of its log is not known: ends of brokers and unclean elections are refused, too, and
    its files stay as they are."""
    harness = staffed()
    harness.disk.fail("sync")
    harness.gone(1)
    assert harness.server.failure is not None
    harness.disk.clear_faults()
    calls = harness.disk.calls
    harness.gone(2)
    answer = harness.ask(ElectLeadersRequest(ELECT_UNCLEAN, [ElectLeadersTopic("t", [0])]))
    assert isinstance(answer, ElectLeadersResponse)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert harness.disk.calls == calls
