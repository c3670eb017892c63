"""Settings of topics, and the cluster's defaults."""

from __future__ import annotations

import pytest

from pyreplog.config import LogConfig
from pyreplog.controller import MetadataImage, describe_configs
from pyreplog.controller.configs import alter_config
from pyreplog.controller.state import ControllerState, decode, encode
from pyreplog.wire import (
    CONFIG_APPEND,
    CONFIG_DELETE,
    CONFIG_SET,
    NO_ERROR,
    NO_LEADER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ErrorCode,
    IncrementalAlterConfigsRequest,
)
from tests.unit.controller.controller_setup import ControllerSetup

CLUSTER = ""
MIN_ISR = "min.insync.replicas"


def alter(setup: ControllerSetup, name: str, **config: str | None) -> AlterConfigsResourceResponse:
    """Change settings of topic ``name``, or of the cluster."""
    changes = [
        AlterableConfig(key.replace("_", "."), CONFIG_DELETE if value is None else CONFIG_SET, value)
        for key, value in config.items()
    ]
    kind = RESOURCE_TOPIC if name else RESOURCE_BROKER
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, changes)])
    (response,) = setup.controller.alter_configs(request).responses
    return response


def config(setup: ControllerSetup, name: str = "t") -> LogConfig:
    """The settings of a topic in force."""
    topic = setup.image.topic(name)
    assert topic is not None
    return topic.log_config


def restated(image: MetadataImage) -> MetadataImage:
    """The image that a node builds from all records of another one."""
    copy = MetadataImage()
    for offset, record in enumerate(image.records()):
        copy.apply(offset, record)
    return copy


def test_settings_are_changed_and_reset() -> None:
    """A topic's own setting wins over the cluster's default, which wins over pyreplog's."""
    setup = ControllerSetup()
    setup.topic()
    assert alter(setup, "t", retention_ms="1000", segment_bytes="2048").error_code == NO_ERROR
    assert (config(setup).retention_ms, config(setup).segment_bytes) == (1000, 2048)
    assert alter(setup, CLUSTER, retention_ms="500", max_message_bytes="9999").error_code == NO_ERROR
    assert (config(setup).retention_ms, config(setup).max_message_bytes) == (1000, 9999)
    assert alter(setup, "t", retention_ms=None).error_code == NO_ERROR
    assert (config(setup).retention_ms, config(setup).segment_bytes) == (500, 2048)
    assert alter(setup, CLUSTER, retention_ms=None).error_code == NO_ERROR
    assert (config(setup).retention_ms, config(setup).max_message_bytes) == (-1, 9999)


def test_a_new_topic_follows_the_defaults() -> None:
    """Only its own settings are written."""
    setup = ControllerSetup()
    alter(setup, CLUSTER, retention_ms="500", min_insync_replicas="1")
    setup.controller.create_topics(CreateTopicsRequest([CreatableTopic("a")]))
    topic = setup.image.topic("a")
    assert topic is not None
    assert topic.config == {"durability": "sync"}
    assert (config(setup, "a").retention_ms, config(setup, "a").min_insync_replicas) == (500, 1)
    alter(setup, CLUSTER, min_insync_replicas=None)
    assert config(setup, "a").min_insync_replicas == 2  # a majority of three


def test_images_keep_the_defaults() -> None:
    """In the controller's file, and in the records that state an image as a whole."""
    setup = ControllerSetup()
    setup.topic()
    setup.controller.create_topics(CreateTopicsRequest([CreatableTopic("a")]))
    alter(setup, CLUSTER, retention_ms="500")
    stored = decode(encode(ControllerState("c", setup.image)), "f").image
    for image in (stored, restated(setup.image)):
        assert image.defaults == {"retention.ms": "500"}
        for name in ("t", "a"):
            topic = image.topic(name)
            assert topic is not None
            assert topic.log_config == config(setup, name)


def test_descriptions_name_the_source() -> None:
    """1: the topic, 3: the cluster, 5: pyreplog."""
    setup = ControllerSetup()
    setup.topic()
    alter(setup, CLUSTER, retention_ms="500")
    alter(setup, "t", segment_bytes="2048")
    asked = [DescribeConfigsResource(RESOURCE_TOPIC, "t"), DescribeConfigsResource(RESOURCE_BROKER, "")]
    topic, cluster = describe_configs(setup.image, DescribeConfigsRequest(asked)).results
    sources = {one.name: (one.value, one.config_source) for one in topic.configs}
    assert sources["segment.bytes"] == ("2048", 1)
    assert sources["retention.ms"] == ("500", 3)
    assert sources["segment.ms"] == ("604800000", 5)
    assert [(one.name, one.value, one.config_source) for one in cluster.configs] == [("retention.ms", "500", 3)]


def is_noted(setup: ControllerSetup, name: str = "t") -> bool:
    """Whether all images say of a topic that its offsets may have gaps, also one that is built from records."""
    said = {
        image.topics[image.topic_ids[name]].log_config.was_compacted for image in (setup.image, restated(setup.image))
    }
    assert len(said) == 1
    return said.pop()


def test_a_topic_that_was_compacted_stays_noted() -> None:
    """However it became compacted, and also when its policy is delete again; no client can take the note back."""
    setup = ControllerSetup()
    setup.topic()
    assert not is_noted(setup)
    alter(setup, "t", cleanup_policy="compact")
    assert config(setup).compacts
    assert is_noted(setup)
    alter(setup, "t", cleanup_policy=None)
    assert not config(setup).compacts
    assert is_noted(setup)
    assert alter(setup, "t", was_compacted="false").error_code == ErrorCode.INVALID_CONFIG
    assert alter(setup, "t", was_compacted=None).error_code == ErrorCode.INVALID_CONFIG
    assert alter(setup, "t", was_compacted="true", retention_ms="7").error_code == NO_ERROR
    assert is_noted(setup)
    (described,) = describe_configs(
        setup.image, DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, "t")])
    ).results
    assert ("was.compacted", "true") in [(one.name, one.value) for one in described.configs]


def test_the_note_stands_before_the_policy() -> None:
    """So no prefix of the metadata log has a compacted topic without it."""
    setup = ControllerSetup()
    setup.topic()
    setup.controller.create_topics(CreateTopicsRequest([CreatableTopic("a"), CreatableTopic("b")]))
    alter(setup, "b", cleanup_policy="delete")
    with_own = [("t", "cleanup.policy", "compact"), (CLUSTER, "cleanup.policy", "compact,delete")]
    written: list[tuple[str, str]] = []
    for name, key, value in with_own:
        resource = AlterConfigsResource(
            RESOURCE_TOPIC if name else RESOURCE_BROKER, name, [AlterableConfig(key, CONFIG_SET, value)]
        )
        records, _ = alter_config(setup.image, resource)
        written += [(record.resource_name, record.name) for record in records]
        alter(setup, name, cleanup_policy=value)
    assert written == [("t", "was.compacted"), ("t", "cleanup.policy"), ("a", "was.compacted"), ("", "cleanup.policy")]
    assert [is_noted(setup, name) for name in "tab"] == [True, True, False]


def test_new_compacted_topics_are_noted() -> None:
    """By their own setting, by the cluster's default, and with the settings that another topic was described with."""
    setup = ControllerSetup()
    compact = CreatableTopicConfig("cleanup.policy", "compact")
    noted = CreatableTopicConfig("was.compacted", "true")
    denied = CreatableTopicConfig("was.compacted", "false")
    setup.controller.create_topics(CreateTopicsRequest([CreatableTopic("a", configs=[compact, denied])]))
    (result,) = setup.controller.create_topics(CreateTopicsRequest([CreatableTopic("b", configs=[noted])])).topics
    assert result.error_code == ErrorCode.INVALID_CONFIG
    alter(setup, CLUSTER, cleanup_policy="compact")
    setup.controller.create_topics(CreateTopicsRequest([CreatableTopic("c"), CreatableTopic("d", configs=[noted])]))
    assert [is_noted(setup, name) for name in "acd"] == [True, True, True]
    alter(setup, CLUSTER, cleanup_policy=None)
    assert [config(setup, name).compacts for name in "acd"] == [True, False, False]
    assert [is_noted(setup, name) for name in "acd"] == [True, True, True]


def test_the_clusters_default_keeps_a_topics_own_policy() -> None:
    """KAFKA-9254 (C10): no change of a default, of this setting or of others, makes a compacted topic delete."""
    setup = ControllerSetup()
    setup.topic()
    alter(setup, "t", cleanup_policy="compact")
    for default in ("delete", "compact,delete", None):
        alter(setup, CLUSTER, cleanup_policy=default, retention_ms="1", segment_bytes="2048")
        alter(setup, CLUSTER, retention_ms=None)
        assert config(setup).cleanup_policy == "compact"
        assert config(setup).segment_bytes == 2048


def test_a_default_must_fit_the_topics_own_settings() -> None:
    """Otherwise no node could apply it."""
    setup = ControllerSetup()
    setup.topic()
    alter(setup, "t", min_compaction_lag_ms="100")
    refused = alter(setup, CLUSTER, max_compaction_lag_ms="99")
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "topic 't' with its own settings" in (refused.error_message or "")
    assert setup.image.defaults == {}
    assert alter(setup, CLUSTER, max_compaction_lag_ms="100").error_code == NO_ERROR


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"retention_mss": "1"}, "did you mean 'retention.ms'"),
        ({"retention_mss": None}, "did you mean 'retention.ms'"),
        ({"retention_ms": "soon"}, "whole number"),
        ({"min_insync_replicas": "0"}, "from 1"),
        ({"durability": "os"}, "create"),
        ({"durability": "maybe"}, "must be one of sync, os"),
        ({"cleanup_policy": "compacted"}, "did you mean 'compact'"),
        ({"was_compacted": "true"}, "only the controller writes it"),
    ],
)
@pytest.mark.parametrize("name", ["t", CLUSTER])
def test_wrong_settings_are_refused(name: str, changes: dict[str, str | None], hint: str) -> None:
    """With the way out; nothing is written, not even the right ones beside the wrong one."""
    setup = ControllerSetup()
    setup.topic()
    offset = setup.image.offset
    response = alter(setup, name, segment_bytes="2048", **changes)
    assert response.error_code == ErrorCode.INVALID_CONFIG
    assert hint in (response.error_message or "")
    assert setup.image.offset == offset


def test_the_same_durability_is_no_change() -> None:
    """Also as a reset of the default; nothing is written."""
    setup = ControllerSetup()
    setup.topic()
    setup.topic("o", durability="os")
    offset = setup.image.offset
    assert alter(setup, "t", durability="sync").error_code == NO_ERROR
    assert alter(setup, "t", durability=None).error_code == NO_ERROR
    assert alter(setup, "o", durability="os").error_code == NO_ERROR
    assert alter(setup, "o", durability=None).error_code == ErrorCode.INVALID_CONFIG
    assert setup.image.offset == offset


def test_other_refusals() -> None:
    """An unknown topic, an internal one, one node's settings, lists, and a setting that is given twice."""
    setup = ControllerSetup()
    setup.topic()
    one = AlterableConfig("retention.ms", CONFIG_SET, "1")
    codes = [
        response.error_code
        for response in setup.controller.alter_configs(
            IncrementalAlterConfigsRequest(
                [
                    AlterConfigsResource(RESOURCE_TOPIC, "u", [one]),
                    AlterConfigsResource(RESOURCE_BROKER, "1", [one]),
                    AlterConfigsResource(8, "t", [one]),
                    AlterConfigsResource(RESOURCE_TOPIC, "t", [AlterableConfig("retention.ms", CONFIG_APPEND, "1")]),
                    AlterConfigsResource(RESOURCE_TOPIC, "t", [AlterableConfig("retention.ms", CONFIG_SET, None)]),
                    AlterConfigsResource(RESOURCE_TOPIC, "t", [one, one]),
                ]
            )
        ).responses
    ]
    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
    ]
    topic = setup.image.topic("t")
    assert topic is not None
    topic.name = "__t"
    setup.image.topic_ids = {"__t": topic.topic_id}
    assert alter(setup, "__t", retention_ms="1").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_validate_only_writes_nothing() -> None:
    """A trial run answers and changes nothing."""
    setup = ControllerSetup()
    setup.topic()
    offset = setup.image.offset
    change = AlterConfigsResource(RESOURCE_TOPIC, "t", [AlterableConfig("retention.ms", CONFIG_SET, "1")])
    (response,) = setup.controller.alter_configs(IncrementalAlterConfigsRequest([change], validate_only=True)).responses
    assert (response.error_code, setup.image.offset) == (NO_ERROR, offset)


@pytest.mark.parametrize("minimum", ["1", "3"])
@pytest.mark.parametrize("name", ["t", CLUSTER])
def test_a32_min_isr_changed_while_elr_is_in_use(name: str, minimum: str) -> None:
    """The ELR is cleared, because it rested on the old minimum, and the leader must learn of the new one before the
    controller takes a proposal. KAFKA-16540."""
    setup = ControllerSetup()
    key = setup.topic()
    if name == CLUSTER:
        alter(setup, "t", min_insync_replicas=None)  # a majority, so 2 as before
    setup.kill(2, 3)
    before = setup[key]
    assert (before.isr, before.elr, before.leader) == ((1,), (3,), 1)
    assert alter(setup, name, min_insync_replicas=minimum).error_code == NO_ERROR
    after = setup[key]
    assert (after.isr, after.elr, after.leader) == ((1,), (), 1)
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch, before.partition_epoch + 1)
    assert (
        setup.propose(key, [1], partition_epoch=before.partition_epoch).error_code == ErrorCode.INVALID_UPDATE_VERSION
    )


def test_a_leader_with_a_stale_minimum_cannot_shrink_its_set() -> None:
    """Else it would acknowledge alone by the old minimum, while the member that it dropped counts as eligible by the
    new one."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=1)
    before = setup[key]
    alter(setup, "t", min_insync_replicas="3")
    refused = setup.propose(key, [1, 2], partition_epoch=before.partition_epoch)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert setup.propose(key, [1, 2]).error_code == NO_ERROR
    assert (setup[key].isr, setup[key].elr) == ((1, 2), (3,))


def test_eligible_replicas_of_a_leaderless_partition_stay_electable() -> None:
    """No high watermark moves without a leader, so they are as complete as the in-sync ones, which they join."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(2, 3, 1)
    before = setup[key]
    assert before.leader == NO_LEADER
    assert before.elr
    members = sorted((*before.isr, *before.elr))
    alter(setup, "t", min_insync_replicas="1")
    after = setup[key]
    assert (sorted(after.isr), after.elr, after.leader) == (members, (), NO_LEADER)
    back = members[-1]
    setup.up(back, {key: (before.leader_epoch, 5)}, clean=True)
    setup.wait(1000, beating=[back])
    assert setup[key].leader == back


def test_partitions_whose_minimum_stays_do_not_change() -> None:
    """Neither those of topics with a minimum of their own, nor those with too few replicas."""
    setup = ControllerSetup()
    own = setup.topic("own", min_isr=2)
    single = setup.topic("single", min_isr=1, replicas=(1,))
    alter(setup, "single", min_insync_replicas=None)
    before = setup[own], setup[single]
    alter(setup, CLUSTER, min_insync_replicas="3")
    assert (setup[own], setup[single]) == before
