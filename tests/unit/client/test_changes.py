"""Changes whose answer does not come: each is looked up before it is sent again. F57."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pyreplog.client import altered_configs, creatable, created_partitions, created_topics, deleted_topic
from pyreplog.errors import ConfigError, InvalidPartitionsError, OutcomeUnknownError, UnknownTopicError
from pyreplog.wire import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    AlterConfigsResourceResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeTopicPartitionsRequest,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.client.test_admin import Controller, described

ID = "id"


def grown(code: int = 0, message: str | None = "keys") -> CreatePartitionsResponse:
    """The answer to the growth of topic ``t``."""
    return CreatePartitionsResponse([CreatePartitionsTopicResult("t", code, message)])


def deleted(code: int = 0) -> DeleteTopicsResponse:
    """The answer to the deletion of topic ``t``."""
    return DeleteTopicsResponse([DeletableTopicResult("t", ID, code)])


def altered(code: int = 0, message: str | None = None) -> IncrementalAlterConfigsResponse:
    """The answer to a change of settings."""
    return IncrementalAlterConfigsResponse([AlterConfigsResourceResponse(RESOURCE_TOPIC, "t", code, message)])


def settings(values: Mapping[str, str], source: int = 1) -> DescribeConfigsResponse:
    """The description of a topic's settings, or of the cluster's."""
    found = [DescribeConfigsResourceResult(key, value, config_source=source) for key, value in values.items()]
    return DescribeConfigsResponse([DescribeConfigsResult(RESOURCE_TOPIC, "t", found)])


def test_a_growth_that_was_carried_out_is_not_sent_again() -> None:
    """The topic has the partitions."""
    controller = Controller()
    answer = controller.admin.change(created_partitions("t", 3, 1000))
    (first,) = controller.requests()
    assert isinstance(first.body, CreatePartitionsRequest)
    controller.hang_up()
    assert isinstance(controller.reply(described(3)).body, DescribeTopicPartitionsRequest)
    assert answer.settled
    assert answer.error is None
    assert controller.next_requests() == []


def test_a_growth_that_was_not_carried_out_is_sent_again() -> None:
    """If the copy is refused because the first one came late after all, that is success too."""
    controller = Controller()
    answer = controller.admin.change(created_partitions("t", 3, 1000))
    controller.requests()
    controller.hang_up()
    controller.reply(described(2))
    assert isinstance(controller.reply(grown(ErrorCode.INVALID_PARTITIONS)).body, CreatePartitionsRequest)
    controller.reply(described(3))
    assert answer.settled
    assert answer.error is None


def test_a_refused_growth() -> None:
    """With the controller's text."""
    controller = Controller()
    answer = controller.admin.change(created_partitions("t", 3, 1000))
    controller.reply(grown(ErrorCode.INVALID_PARTITIONS, "fewer"))
    assert isinstance(answer.error, InvalidPartitionsError)
    assert "fewer" in str(answer.error)
    answer = controller.admin.change(created_partitions("t", 3, 1000))
    controller.reply(grown())
    assert answer.value == "keys"


def test_a_deletion_that_was_carried_out_is_not_sent_again() -> None:
    """A topic of that name may be there, made since; it has another id and is left alone."""
    controller = Controller()
    answer = controller.admin.change(deleted_topic("t", "old", 1000))
    (first,) = controller.requests()
    assert isinstance(first.body, DeleteTopicsRequest)
    assert first.body.topics[0].topic_id == "old"
    controller.hang_up()
    controller.reply(described(1))
    assert answer.value is True
    assert controller.next_requests() == []


def test_a_deletion_that_was_not_carried_out_is_sent_again() -> None:
    """By its id."""
    controller = Controller()
    answer = controller.admin.change(deleted_topic("t", ID, 1000))
    controller.requests()
    controller.hang_up()
    controller.reply(described(1))
    again = controller.reply(deleted())
    assert isinstance(again.body, DeleteTopicsRequest)
    assert answer.value is True
    answer = controller.admin.change(deleted_topic("t", ID, 1000))
    controller.reply(deleted(ErrorCode.UNKNOWN_TOPIC_ID))
    assert isinstance(answer.error, UnknownTopicError)


@pytest.mark.parametrize(("kind", "name", "source"), [(RESOURCE_TOPIC, "t", 1), (RESOURCE_BROKER, "", 3)])
def test_settings_are_looked_up(kind: int, name: str, source: int) -> None:
    """They are as they were wanted: given ones with their values, reset ones without."""
    controller = Controller()
    wanted = {"retention.ms": "5", "segment.bytes": None}
    answer = controller.admin.change(altered_configs(kind, name, wanted))
    controller.requests()
    controller.hang_up()
    assert isinstance(controller.reply(settings({"segment.bytes": "1024"}, source)).body, DescribeConfigsRequest)
    (again,) = controller.next_requests()
    assert isinstance(again.body, IncrementalAlterConfigsRequest)
    controller.hang_up()
    controller.reply(settings({"retention.ms": "5"}, source))
    assert answer.value is True
    assert controller.next_requests() == []


def test_wrong_settings_are_a_config_error() -> None:
    """As those that the caller's own check finds."""
    controller = Controller()
    answer = controller.admin.change(altered_configs(RESOURCE_TOPIC, "t", {"retention.ms": "x"}))
    controller.reply(altered(ErrorCode.INVALID_CONFIG, "it must be a whole number"))
    assert isinstance(answer.error, ConfigError)


def test_several_topics_have_no_look_up() -> None:
    """Their outcome is unknown; the caller looks at each."""
    controller = Controller()
    answer = controller.admin.change(created_topics([creatable("a", 1, 1, {}), creatable("b", 1, 1, {})], 1000))
    controller.requests()
    controller.hang_up()
    assert controller.next_requests() == []
    assert isinstance(answer.error, OutcomeUnknownError)
