"""A controller whose disk is full for a while, or failed: nothing decided is lost, and what only time brings about comes about later."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from pyreplog.config import NodeConfig
from pyreplog.errors import ClosedError, StorageError
from pyreplog.quorum import Authority
from pyreplog.testing import SimClock, SimDisk
from pyreplog.wire import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreatableTopic,
    CreateTopicsRequest,
    PartitionEnd,
    Request,
    RequestBody,
)

MS = 1_000_000


class Desk:
    """An authority on a simulated disk with three brokers and a topic."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(clock=self.clock)
        self.number = 0
        self.epochs: dict[int, int] = {}
        self.open()
        for broker in (1, 2, 3):
            self.register(broker)
            self.beat(broker)
        self.ask(CreateTopicsRequest([CreatableTopic("t", 1, 3)]))

    def open(self) -> None:
        """Start the authority, perhaps again."""
        self.authority = Authority.open(self.disk, "data", NodeConfig(), Random(1), now_ns=self.clock.monotonic_ns())

    def ask(self, body: RequestBody) -> Any:
        """The answer."""
        self.number += 1
        for reply in self.authority.step([Request("x", self.number, body)], self.clock.monotonic_ns()):
            if reply.correlation_id == self.number:
                return reply.body
        return None

    def register(self, broker: int, *ends: PartitionEnd) -> None:
        """A new incarnation."""
        body = BrokerRegistrationRequest(
            broker, self.authority.cluster_id, f"i-{broker}-{self.number}", log_dirs=["d"], partition_ends=list(ends)
        )
        self.epochs[broker] = self.ask(body).broker_epoch

    def beat(self, *brokers: int) -> None:
        """They are alive."""
        for broker in brokers:
            self.ask(BrokerHeartbeatRequest(broker, self.epochs[broker], self.authority.image.offset))

    @property
    def leader(self) -> int:
        """Of the topic's partition."""
        (topic,) = self.authority.image.topics.values()
        return topic.partitions[0].leader

    def pass_time(self, ms: int, *brokers: int) -> None:
        """Step by step, with these alive."""
        for _ in range(ms // 100):
            self.clock.advance(100 * MS)
            self.beat(*brokers)


def test_a_silent_leader_is_fenced_once_there_is_room() -> None:
    """The end of a session that could not be written down is not forgotten."""
    desk = Desk()
    first = desk.leader
    others = [broker for broker in (1, 2, 3) if broker != first]
    desk.disk.fail("write", error=errno.ENOSPC, times=None)
    desk.pass_time(5_000, *others)
    assert desk.leader == first
    desk.disk.clear_faults()
    desk.pass_time(1_000, *others)
    assert desk.leader in others
    assert desk.authority.image.brokers[first].fenced


def test_a_killed_leader_is_fenced_once_there_is_room() -> None:
    """The same where the controller was told of the death."""
    desk = Desk()
    first = desk.leader
    others = [broker for broker in (1, 2, 3) if broker != first]
    desk.disk.fail("write", error=errno.ENOSPC, times=None)
    desk.authority.fence(first, desk.clock.monotonic_ns())
    assert desk.leader == first
    desk.disk.clear_faults()
    desk.pass_time(1_000, *others)
    assert desk.leader in others


def test_an_election_that_waited_is_held_once_there_is_room() -> None:
    """The patience of an election among unclean members ends while the disk is full: it is held later, not never."""
    desk = Desk()
    (topic,) = desk.authority.image.topics.values()
    desk.open()
    for broker in (1, 2):
        desk.register(broker, PartitionEnd(topic.topic_id, 0, 0, 10 + broker))
        desk.beat(broker)
    assert desk.leader == -1
    desk.disk.fail("write", error=errno.ENOSPC, times=None)
    desk.pass_time(2_000, 1, 2)
    assert desk.leader == -1
    desk.disk.clear_faults()
    desk.pass_time(1_000, 1, 2)
    assert desk.leader == 2


def test_a_failed_authority_writes_nothing_more() -> None:
    """After a failed sync nobody knows what is in the file: fencing and unclean elections are refused, too, and the file stays as it is."""
    desk = Desk()
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
