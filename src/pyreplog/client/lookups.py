"""Look-ups: how a client learns whether a change was carried out whose answer did not come.

The change is not sent again before that is known. A controller that fails over after the commit and
before its answer would refuse a second copy, or carry it out twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyreplog.wire import (
    NO_ERROR,
    CreatableTopic,
    CreatableTopicResult,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ErrorCode,
    RequestBody,
)

__all__ = ["Lookup", "created_topic", "refusal_of", "refused_as_a_whole"]

_NOT_DONE: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE})
"""Refusals that prove that nothing was done, and that another controller or a later time may help."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The question that shows whether a change was carried out.

    ``judge`` gets its answer. It returns the value with which the change succeeds, or None if the
    change was not carried out and must be sent again. ``refusals`` are the answers to a change that
    was sent again which may mean that the first copy was carried out.
    """

    question: RequestBody
    judge: Callable[[Any], Any]
    refusals: frozenset[int] = frozenset()


def created_topic(wanted: CreatableTopic) -> Lookup:
    """Return the look-up after the creation of a topic: it is there, as it was wanted."""

    def judge(body: DescribeTopicPartitionsResponse) -> CreatableTopicResult | None:
        topic = next((one for one in body.topics if one.name == wanted.name and one.error_code == NO_ERROR), None)
        if topic is None:
            return None
        partitions = len(topic.partitions)
        factor = len(topic.partitions[0].replica_nodes) if topic.partitions else -1
        if wanted.num_partitions not in (-1, partitions) or wanted.replication_factor not in (-1, factor):
            return None  # the topic of another client: a second copy is refused with the reason
        return CreatableTopicResult(wanted.name, topic.topic_id, num_partitions=partitions, replication_factor=factor)

    question = DescribeTopicPartitionsRequest([wanted.name])
    return Lookup(question, judge, frozenset({ErrorCode.TOPIC_ALREADY_EXISTS}))


def refused_as_a_whole(body: Any) -> tuple[int, str] | None:
    """Return the error and its text if ``body`` says of every part that nothing was done because no
    controller was there to do it; else None."""
    if getattr(body, "error_code", NO_ERROR) in _NOT_DONE:
        return body.error_code, getattr(body, "error_message", None) or ""
    parts = _parts(body)
    if parts and all(getattr(one, "error_code", NO_ERROR) in _NOT_DONE for one in parts):
        return refusal_of(body)
    return None


def refusal_of(body: Any) -> tuple[int, str]:
    """Return the error of the first part of an answer, and its text."""
    part = next(iter(_parts(body)), None)
    return getattr(part, "error_code", NO_ERROR), getattr(part, "error_message", None) or ""


def _parts(body: Any) -> Sequence[Any]:
    for name in ("topics", "responses", "results"):
        parts: Sequence[Any] | None = getattr(body, name, None)
        if parts:
            return parts
    return ()
