"""Feature levels: who may register, when a level rises, and what is written at which level (row 115)."""

from __future__ import annotations

from random import Random

from pyreplog.config import NodeConfig
from pyreplog.controller import FEATURE, LEVEL_LATEST, Controller, MetadataImage
from pyreplog.wire import (
    ErrorCode,
    FeatureLevelRecord,
    FeatureUpdate,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.unit.controller.controller_setup import CLUSTER, ControllerSetup


class AtLevelZero(ControllerSetup):
    """A cluster that version 0.1 left: level 0, with brokers that know the given levels."""

    def __init__(self, **levels: int) -> None:
        super().__init__(())
        self.controller = Controller(MetadataImage(), NodeConfig(), Random(1), CLUSTER)
        for broker in (1, 2, 3):  # as version 0.1 registered them
            self.image.apply(broker, RegisterBrokerRecord(broker, "before", broker))
        self.controller.take_over(self.now, {"before"})
        assert self.image.level == 0
        self.incarnations = dict.fromkeys((1, 2, 3), 0)
        self.levels = {int(name[1:]): level for name, level in levels.items()}
        for broker in (1, 2, 3):
            assert self.register(broker) == 0
            self.beat(broker)


def raise_to(setup: ControllerSetup, level: int, **more: bool) -> UpdateFeaturesResponse:
    """Ask for the level."""
    return setup.controller.update_features(UpdateFeaturesRequest([FeatureUpdate(FEATURE, level)], **more))


def test_a_new_cluster_begins_at_the_latest_level() -> None:
    """The first record of a new cluster sets the level. A controller that finds an image in which nothing was decided
    writes it again (A21): the first one may have lost it before its commit."""
    controller = Controller(MetadataImage(), NodeConfig(), Random(1), CLUSTER)
    controller.take_over(0, ())
    assert controller.take() == [(0, FeatureLevelRecord(FEATURE, LEVEL_LATEST))]
    assert controller.image.level == LEVEL_LATEST
    controller.take_over(1, ())
    assert controller.take() == []


def test_a_node_below_the_level_is_not_registered() -> None:
    """A node that does not know the finalized level could not read the records; one that knows more may join."""
    setup = ControllerSetup()
    setup.levels[4] = 0
    setup.incarnations[4] = 0
    assert setup.register(4) == ErrorCode.UNSUPPORTED_VERSION
    assert 4 not in setup.image.brokers
    setup.levels[4] = LEVEL_LATEST + 3
    assert setup.register(4) == 0
    assert setup.image.brokers[4].level_max == LEVEL_LATEST + 3


def test_a_level_rises_when_all_nodes_know_it() -> None:
    """One registered node that does not know the level holds it, also while that node is down, and a request for the
    level names it. When it registers with a newer version the level rises by itself, by one record."""
    setup = AtLevelZero(b3=0)
    assert setup.image.level == 0
    setup.kill(3)
    refused = raise_to(setup, 1)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "node 3 does not know" in (refused.error_message or "")
    setup.levels[3] = 1
    setup.controller.take()
    assert setup.register(3) == 0
    written = [record for _, record in setup.controller.take()]
    assert written[-1] == FeatureLevelRecord(FEATURE, 1)
    assert isinstance(written[-2], RegisterBrokerRecord)
    assert raise_to(setup, 1).error_code == 0
    assert setup.controller.take() == [], "it has that level"


def test_a_node_that_is_gone_does_not_hold_the_level_for_ever() -> None:
    """Once the only node that does not know the level is unregistered, the level rises."""
    setup = AtLevelZero(b3=0)
    setup.kill(3)
    assert setup.image.level == 0
    assert setup.controller.unregister(UnregisterBrokerRequest(3)).error_code == 0
    assert setup.image.level == 1
    assert setup.register(3) == ErrorCode.UNSUPPORTED_VERSION


def test_a_level_rises_on_request() -> None:
    """A controller of a newer version that takes over finds all nodes at the level: it rises when one asks, and a
    request that only validates changes nothing."""
    setup = AtLevelZero(b3=0)
    setup.image.brokers[3] = setup.image.brokers[3]._replace(level_max=1)
    assert raise_to(setup, 1, validate_only=True).error_code == 0
    assert setup.image.level == 0
    assert raise_to(setup, 1).error_code == 0
    assert setup.image.level == 1


def test_levels_that_cannot_be() -> None:
    """A level never falls; one that the controller does not know, and a feature that is none of ours, are refused,
    and then nothing of the request is done."""
    setup = ControllerSetup()
    for update, says in (
        (FeatureUpdate(FEATURE, 0), "cannot be lowered"),
        (FeatureUpdate(FEATURE, LEVEL_LATEST + 1), "newer version on all nodes"),
        (FeatureUpdate("metadata.version", 7), "unknown feature"),
    ):
        updates = [FeatureUpdate(FEATURE, LEVEL_LATEST), update]
        answer = setup.controller.update_features(UpdateFeaturesRequest(updates))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert says in (answer.error_message or "")
        assert setup.image.level == LEVEL_LATEST


def test_the_level_is_restated() -> None:
    """An image made from a snapshot has the levels, and knows which nodes know which."""
    setup = ControllerSetup()
    copy = MetadataImage()
    for record in setup.image.records():
        copy.apply(setup.image.offset, record)
    assert copy.feature_levels == {FEATURE: LEVEL_LATEST}
    assert [one.level_max for one in copy.brokers.values()] == [LEVEL_LATEST] * 3
    assert setup.image.copy().level == LEVEL_LATEST


def suspects_written(setup: ControllerSetup) -> bool:
    """Whether a record since the last look names suspects."""
    return any(
        isinstance(record, PartitionRecord | PartitionChangeRecord) and record.suspects
        for _, record in setup.controller.take()
    )


def test_writers_switch_at_the_record() -> None:
    """Below level 1 no record has our fields: a broker that restarted uncleanly is no suspect, and its copy is believed
    if the broker calls it complete. From the record on suspects are written."""
    setup = AtLevelZero(b1=0)
    key = setup.topic()
    setup.kill(1, 2)
    setup.up(2, {key: (0, 4)})
    assert not suspects_written(setup)
    assert (setup[key].leader, setup[key].isr, setup[key].elr, setup[key].suspects) == (3, (3,), (2,), ())
    setup.kill(3)
    setup.wait(1000, beating=[2])
    assert setup[key].leader == 2
    setup.levels[1] = 1
    assert setup.register(1, {key: (0, 1)}) == 0
    assert setup.image.level == 1
    setup.controller.take()
    setup.kill(2)
    setup.up(2, {key: (setup[key].leader_epoch, 4)})
    assert suspects_written(setup)


def test_a_member_without_a_copy_leaves_at_level_zero() -> None:
    """A missing copy is not believed in: its broker leaves both sets, unless it is the only member."""
    setup = AtLevelZero(b2=0)
    key = setup.topic()
    setup.kill(1, 2)
    setup.up(1, {})
    assert 1 not in setup[key].isr + setup[key].elr
    setup.kill(3)
    setup.up(3, {})
    assert 3 not in setup[key].isr + setup[key].elr
    setup.up(2, {})
    assert 2 in setup[key].isr + setup[key].elr
