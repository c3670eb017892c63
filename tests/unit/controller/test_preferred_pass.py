"""The periodic pass that gives leaderships back to the preferred replicas."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from pyreplog.config import NodeConfig
from pyreplog.controller import PartitionKey
from pyreplog.wire import BrokerHeartbeatRequest, PartitionEnd, ReplicaStatus
from tests.unit.controller.controller_setup import ControllerSetup

ALL = (1, 2, 3)


def setup(count: int, *, percentage: int = 10, interval_ms: int = 5_000, grace_ms: int = 1_000) -> ControllerSetup:
    """Brokers 1 to 3, and ``count`` topics that prefer broker 1; broker 2 leads all of them, and all are in sync."""
    config = NodeConfig(
        leader_imbalance_check_interval_ms=interval_ms,
        leader_imbalance_per_broker_percentage=percentage,
        leader_imbalance_grace_ms=grace_ms,
    )
    made = ControllerSetup(config=config)
    for number in range(count):
        made.topic(f"t{number}")
    return made


def lead_elsewhere(made: ControllerSetup, *keys: PartitionKey) -> None:
    """Broker 1 dies and comes back; the partitions in ``keys`` stay with broker 2, the others are given back."""
    ends = {key: (made[key].leader_epoch, 0) for key in partitions(made)}
    made.kill(1)
    made.up(1, ends, clean=True)
    for key in partitions(made):
        made.propose(key, ALL)
        if key not in keys:
            assert made.controller.elect_preferred(key) == 0


def partitions(made: ControllerSetup) -> list[PartitionKey]:
    """All partitions."""
    return [(topic.topic_id, number) for topic in made.image.topics.values() for number in topic.partitions]


def leaders(made: ControllerSetup, keys: Sequence[PartitionKey]) -> list[int]:
    """Who leads."""
    return [made[key].leader for key in keys]


def test_leaderships_are_given_back() -> None:
    """After the grace time the next pass lets the preferred replica lead again, in a new epoch, and never before."""
    made = setup(3)
    keys = partitions(made)
    lead_elsewhere(made, *keys)
    assert leaders(made, keys) == [2, 2, 2]
    made.wait(4_900, beating=ALL)
    assert leaders(made, keys) == [2, 2, 2]
    epochs = [made[key].leader_epoch for key in keys]
    made.wait(200, beating=ALL)
    assert leaders(made, keys) == [1, 1, 1]
    assert [made[key].leader_epoch for key in keys] == [epoch + 1 for epoch in epochs]
    assert all(made[key].isr == ALL for key in keys)
    offset = made.image.offset
    made.wait(20_000, beating=ALL)
    assert made.image.offset == offset, "nothing is left to do"


def test_a_small_imbalance_is_left() -> None:
    """The percentage is respected: at 10 % of the partitions that prefer a broker nothing moves, above it all do."""
    made = setup(10)
    keys = partitions(made)
    lead_elsewhere(made, keys[0])
    made.wait(11_000, beating=ALL)
    assert leaders(made, keys) == [2] + [1] * 9
    lead_elsewhere(made, *keys[:2])
    made.wait(11_000, beating=ALL)
    assert leaders(made, keys) == [1] * 10


def test_a_broker_that_just_returned_is_spared() -> None:
    """Within the grace time after a return nothing moves to the broker, so that one that comes and goes disturbs no
    leader."""
    made = setup(1, grace_ms=12_000)
    keys = partitions(made)
    lead_elsewhere(made, *keys)
    made.wait(11_000, beating=ALL)
    assert leaders(made, keys) == [2]
    made.wait(5_000, beating=ALL)
    assert leaders(made, keys) == [1]


def test_a_new_controller_waits_too() -> None:
    """A controller that takes over does not know when a broker returned: it waits the grace time."""
    made = setup(1, grace_ms=7_000)
    keys = partitions(made)
    lead_elsewhere(made, *keys)
    made.wait(4_000, beating=ALL)
    made.take_over()
    made.wait(5_100, beating=ALL)
    assert leaders(made, keys) == [2]
    made.wait(5_000, beating=ALL)
    assert leaders(made, keys) == [1]


@pytest.mark.parametrize("why", ["not in sync", "fenced", "damaged", "never"])
def test_only_a_good_replica_is_given_the_leadership(why: str) -> None:
    """A preferred replica that is out of sync, fenced or damaged does not take over from a live leader; an interval
    of 0 ends all passes."""
    made = setup(1, interval_ms=0 if why == "never" else 5_000)
    keys = partitions(made)
    lead_elsewhere(made, *keys)
    beating: Sequence[int] = ALL
    if why == "not in sync":
        made.propose(keys[0], [2, 3])
    elif why == "fenced":
        beating = (2, 3)
    elif why == "damaged":
        damage = PartitionEnd(*keys[0], status=ReplicaStatus.DAMAGED)
        request = BrokerHeartbeatRequest(1, made.epoch(1), made.image.offset, partition_ends=[damage])
        made.controller.heartbeat(request, made.now)
    made.wait(11_000, beating=beating)
    assert leaders(made, keys) == [2]


def test_many_partitions_take_several_steps() -> None:
    """No step elects more than a thousand leaders; the controller is due again at once until all are elected."""
    made = setup(0)
    for number in range(2_500):
        made.topic(f"t{number}")
    keys = partitions(made)
    lead_elsewhere(made, *keys)
    made.now += 5_000_000_000
    for broker in ALL:
        made.beat(broker)
    found = [leaders(made, keys).count(1)]
    for _ in range(6):
        made.controller.tick(made.now)
        found.append(leaders(made, keys).count(1))
    steps = [after - before for before, after in itertools.pairwise(found)]
    assert max(steps) <= 1_000
    assert found[-1] == 2_500
    deadline = made.controller.next_deadline_ns()
    assert deadline is not None
    assert deadline > made.now
