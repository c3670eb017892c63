"""Racks and cordons of brokers in the metadata: registration, restating, placement."""

from __future__ import annotations

import pytest

from pyreplog.controller import MetadataImage
from pyreplog.controller.describe import describe_cluster, describe_configs, metadata
from pyreplog.controller.image import CORDONED, cordon_record
from pyreplog.controller.image_entries import ImageEntries
from pyreplog.wire import (
    CONFIG_APPEND,
    CONFIG_DELETE,
    CONFIG_SET,
    NO_ERROR,
    RESOURCE_BROKER,
    AlterableConfig,
    AlterConfigsResource,
    CreatableTopic,
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    UnregisterBrokerRequest,
    decode_record,
)
from tests.unit.controller.controller_setup import ControllerSetup


def alter(setup: ControllerSetup, name: str, *changes: AlterableConfig) -> int:
    """The error code of a change of one broker's settings."""
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_BROKER, name, list(changes))])
    return setup.controller.alter_configs(request).responses[0].error_code


def cordon(setup: ControllerSetup, *brokers: int) -> None:
    """Cordon them."""
    for broker in brokers:
        assert alter(setup, str(broker), AlterableConfig(CORDONED, CONFIG_SET, "*")) == NO_ERROR


def restated(image: MetadataImage) -> MetadataImage:
    """The image that its records make."""
    other = MetadataImage()
    for record in image.records():
        other.apply(image.offset, record)
    return other


def register(setup: ControllerSetup, broker: int, rack: str | None) -> None:
    """A new incarnation of a broker that had ended."""
    setup.kill(broker)
    assert setup.register(broker, rack=rack) == NO_ERROR


def test_a_cordon_is_metadata() -> None:
    """A cordon is in the image, in its copies, in the records that restate it and in the stored image; it ends as it
    began; a second one writes nothing."""
    setup = ControllerSetup()
    cordon(setup, 2, 3)
    offset = setup.image.offset
    cordon(setup, 2)
    assert setup.image.offset == offset
    assert setup.image.cordoned == {2, 3} == setup.image.copy().cordoned == restated(setup.image).cordoned
    bare = MetadataImage()  # its brokers have no real ids
    bare.cordoned = setup.image.cordoned
    stored = MetadataImage()
    for _, value in sorted(ImageEntries().of_cluster(bare)):
        stored.apply(0, decode_record(value))
    assert stored.cordoned == {2, 3}
    assert alter(setup, "3", AlterableConfig(CORDONED, CONFIG_DELETE, None)) == NO_ERROR
    assert setup.image.cordoned == {2}
    brokers = describe_cluster(setup.image, DescribeClusterRequest(), "").brokers
    assert [one.broker_id for one in brokers if one.cordoned] == [2]


def test_entries_follow_each_record() -> None:
    """The stored image changes with the record of a cordon, and with that of its end."""
    entries = ImageEntries()
    bare = MetadataImage()
    for cordoned in (True, False):
        record = cordon_record(2, cordoned=cordoned)
        bare.apply(bare.offset + 1, record)
        (entry,) = entries.of_record(bare, record)
        assert [entry for entry in [entry] if entry[1] is not None] == list(entries.of_cluster(bare))


def test_a_cordoned_broker_gets_no_replica() -> None:
    """Placement leaves a cordoned broker out; a replication factor that then does not fit is refused."""
    setup = ControllerSetup()
    cordon(setup, 2)
    assert create(setup, CreatableTopic("a", 6, 2)) == NO_ERROR
    topic = setup.image.topic("a")
    assert topic is not None
    assert {member for one in topic.partitions.values() for member in one.replicas} == {1, 3}
    assert create(setup, CreatableTopic("b", 1, 3)) == ErrorCode.INVALID_REPLICATION_FACTOR
    cordon(setup, 1, 3)
    assert create(setup, CreatableTopic("c", 1, 1)) == ErrorCode.BROKER_NOT_AVAILABLE


def create(setup: ControllerSetup, topic: CreatableTopic) -> int:
    """The error code of a creation."""
    return setup.controller.create_topics(CreateTopicsRequest([topic])).topics[0].error_code


def test_an_unknown_placement_is_refused() -> None:
    """The controller does not trust the name."""
    assert create(ControllerSetup(), CreatableTopic("a", placement="best")) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("9", AlterableConfig(CORDONED, CONFIG_SET, "*")),
        ("01", AlterableConfig(CORDONED, CONFIG_SET, "*")),
        ("1", AlterableConfig(CORDONED, CONFIG_SET, "/disk")),
        ("1", AlterableConfig(CORDONED, CONFIG_APPEND, "*")),
        ("1", AlterableConfig("retention.ms", CONFIG_SET, "1")),
    ],
)
def test_other_settings_of_a_broker_are_refused(name: str, change: AlterableConfig) -> None:
    """An unknown broker, one directory alone, a list, and any other setting."""
    setup = ControllerSetup()
    offset = setup.image.offset
    assert alter(setup, name, change) in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    assert setup.image.offset == offset


def test_describe_configs_shows_a_cordon() -> None:
    """The settings of a broker are its cordon, or none; an unknown broker is refused."""
    setup = ControllerSetup()
    cordon(setup, 2)
    asked = DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_BROKER, name) for name in "123x"])
    found = describe_configs(setup.image, asked).results
    assert [[one.value for one in result.configs] for result in found] == [[], ["*"], [], []]
    assert [result.error_code for result in found] == [0, 0, 0, ErrorCode.INVALID_REQUEST]


def test_an_unregistered_broker_is_no_longer_cordoned() -> None:
    """A node that comes back under the number begins without a cordon."""
    setup = ControllerSetup()
    cordon(setup, 3)
    setup.kill(3)
    assert setup.controller.unregister(UnregisterBrokerRequest(3)).error_code == NO_ERROR
    assert setup.image.cordoned == frozenset()


def test_racks_are_metadata() -> None:
    """A broker's rack is in the image and its records, and in the answers that name brokers. A registration that
    names none keeps it, and the empty name removes it."""
    setup = ControllerSetup()
    register(setup, 1, "east")
    assert setup.image.brokers[1].rack == restated(setup.image).brokers[1].rack == "east"
    register(setup, 1, None)
    assert setup.image.brokers[1].rack == "east"
    brokers = describe_cluster(setup.image, DescribeClusterRequest(include_fenced_brokers=True), "").brokers
    assert {one.broker_id: one.rack for one in brokers} == {1: "east", 2: None, 3: None}
    setup.beat(1)
    answer = metadata(setup.image, MetadataRequest(None), "")
    assert {one.node_id: one.rack for one in answer.brokers} == {1: "east", 2: None, 3: None}
    register(setup, 1, "")
    assert setup.image.brokers[1].rack is None
