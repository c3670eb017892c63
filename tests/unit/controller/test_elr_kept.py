"""N5: a change of a partition that says nothing about its eligible leader replicas leaves them as they are, whatever
part of the controller makes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyreplog.config import NodeConfig
from pyreplog.controller import PartitionKey
from pyreplog.wire import (
    CONFIG_SET,
    NO_ERROR,
    RESOURCE_TOPIC,
    AlterableConfig,
    AlterConfigsResource,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    IncrementalAlterConfigsRequest,
)
from tests.unit.controller.controller_setup import ControllerSetup


def proposed_again(setup: ControllerSetup, key: PartitionKey) -> None:
    """The leader proposes the set that there is."""
    assert setup.propose(key, [1]).error_code == NO_ERROR


def another_joins_and_leaves(setup: ControllerSetup, key: PartitionKey) -> None:
    """A replica that is not eligible comes back, and goes again before it is in sync."""
    setup.up(3, {key: (0, 4)})
    setup.kill(3)


def preferred(setup: ControllerSetup, key: PartitionKey) -> None:
    """The pass over the preferred leaders."""
    setup.wait(2_000, beating=[1])


def other_setting(setup: ControllerSetup, key: PartitionKey) -> None:
    """A setting of the topic that is not the minimum."""
    change = AlterableConfig("retention.ms", CONFIG_SET, "1000")
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_TOPIC, "t", [change])])
    assert setup.controller.alter_configs(request).responses[0].error_code == NO_ERROR


def grown(setup: ControllerSetup, key: PartitionKey) -> None:
    """The topic gets one more partition, on other replicas."""
    request = CreatePartitionsRequest([CreatePartitionsTopic("t", 2)])
    assert setup.controller.create_partitions(request).results[0].error_code == NO_ERROR


def other_topic(setup: ControllerSetup, key: PartitionKey) -> None:
    """Another topic is created."""
    setup.topic("u", replicas=(1, 4, 5))


def taken_over(setup: ControllerSetup, key: PartitionKey) -> None:
    """Another controller becomes active, which knows the image alone."""
    setup.take_over()


def leader_dies(setup: ControllerSetup, key: PartitionKey) -> None:
    """The only member of the ISR dies; it becomes eligible, too."""
    setup.kill(1)
    assert set(setup[key].elr) == {1, 2}


@pytest.mark.parametrize(
    "change",
    [proposed_again, another_joins_and_leaves, preferred, other_setting, grown, other_topic, taken_over, leader_dies],
)
def test_n5_eligible_replicas_outlive_other_changes(change: Callable[[ControllerSetup, PartitionKey], None]) -> None:
    """With one member in the ISR, of two that are the minimum, the last that left stays eligible."""
    config = NodeConfig(leader_imbalance_check_interval_ms=500, leader_imbalance_per_broker_percentage=0)
    setup = ControllerSetup((1, 2, 3, 4, 5), config)
    key = setup.topic(min_isr=2)
    setup.kill(3)
    setup.kill(2)
    assert (setup[key].isr, setup[key].elr) == ((1,), (2,))
    change(setup, key)
    assert 2 in setup[key].elr
