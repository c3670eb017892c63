"""A controller whose disk is full for a while, or failed: nothing decided is lost, and what only time brings about
comes about later."""

from __future__ import annotations

import errno

import pytest

from pyreplog.errors import ClosedError, StorageError
from pyreplog.wire import (
    PartitionEnd,
)
from tests.controller.controller_harness import Desk


def staffed() -> Desk:
    """With three brokers and a topic."""
    desk = Desk()
    desk.join(1, 2, 3)
    assert not desk.create("t", 1)
    return desk


def leader_of(desk: Desk) -> int:
    """Of the topic's partition."""
    (topic,) = desk.authority.image.topics.values()
    return topic.partitions[0].leader


def test_a_silent_leader_is_fenced_once_there_is_room() -> None:
    """The end of a session that could not be written down is not forgotten."""
    desk = staffed()
    first = leader_of(desk)
    others = [broker for broker in (1, 2, 3) if broker != first]
    desk.disk.fail("write", error=errno.ENOSPC, times=None)
    desk.pass_time(5_000, *others)
    assert leader_of(desk) == first
    desk.disk.clear_faults()
    desk.pass_time(1_000, *others)
    assert leader_of(desk) in others
    assert desk.authority.image.brokers[first].fenced


def test_a_killed_leader_is_fenced_once_there_is_room() -> None:
    """The same where the controller was told of the death."""
    desk = staffed()
    first = leader_of(desk)
    others = [broker for broker in (1, 2, 3) if broker != first]
    desk.disk.fail("write", error=errno.ENOSPC, times=None)
    desk.authority.fence(first, desk.clock.monotonic_ns())
    assert leader_of(desk) == first
    desk.disk.clear_faults()
    desk.pass_time(1_000, *others)
    assert leader_of(desk) in others


def test_an_election_that_waited_is_held_once_there_is_room() -> None:
    """The patience of an election among unclean members ends while the disk is full: it is held later, not
    never."""
    desk = staffed()
    (topic,) = desk.authority.image.topics.values()
    desk.open()
    for broker in (1, 2):
        desk.register(broker, PartitionEnd(topic.topic_id, 0, 0, 10 + broker))
        desk.beat(broker)
    assert leader_of(desk) == -1
    desk.disk.fail("write", error=errno.ENOSPC, times=None)
    desk.pass_time(2_000, 1, 2)
    assert leader_of(desk) == -1
    desk.disk.clear_faults()
    desk.pass_time(1_000, 1, 2)
    assert leader_of(desk) == 2


def test_a_failed_authority_writes_nothing_more() -> None:
    """After a failed sync nobody knows what is in the file: fencing and unclean elections are refused, too, and the
    file stays as it is."""
    desk = staffed()
    desk.disk.fail("sync")
    with pytest.raises(StorageError):
        desk.authority.fence(1, desk.clock.monotonic_ns())
    desk.disk.clear_faults()
    calls = desk.disk.calls
    with pytest.raises(ClosedError):
        desk.authority.fence(2, desk.clock.monotonic_ns())
    with pytest.raises(ClosedError):
        desk.authority.elect_uncleanly("t", 0, desk.clock.monotonic_ns())
    assert desk.disk.calls == calls
