"""The checker of leases: S20."""

from __future__ import annotations

from typing import Any, Final

from pyreplog.controller import MetadataImage
from pyreplog.testing.checkers.base import Checker
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.wire import (
    NO_ERROR,
    DeleteRecordsResponse,
    DescribeClusterResponse,
    DescribeConfigsResponse,
    DescribeTopicPartitionsResponse,
    FetchResponse,
    ListOffsetsResponse,
    MetadataResponse,
    OffsetForLeaderEpochResponse,
    ProduceResponse,
    Response,
)

__all__ = ["FencedServesNothing"]

_BY_TOPIC: Final = {
    ProduceResponse: ("responses", "partition_responses"),
    FetchResponse: ("responses", "partitions"),
    ListOffsetsResponse: ("topics", "partitions"),
    OffsetForLeaderEpochResponse: ("topics", "partitions"),
    DeleteRecordsResponse: ("topics", "partitions"),
    DescribeTopicPartitionsResponse: ("topics", ""),
    DescribeConfigsResponse: ("results", ""),
}


class FencedServesNothing(Checker):
    """Checks, at the true time of the sending, that no node serves a client after the controller fenced it.

    A node serves if any part of its answer is no refusal: an acknowledgement (also with acks=1), a read, an offset or
    a description. Then another replica may lead already, so two would serve one partition at the same time. Not meant
    are nodes in a controlled shutdown.
    """

    numbers = ("S20",)
    says = "a fenced node serves no client"

    def __init__(self) -> None:
        self._fenced: dict[int, tuple[int, int]] = {}
        """Broker -> (its epoch, when it was fenced)."""

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Note which brokers the controller has fenced since its last turn."""
        for broker in image.brokers.values():
            if not broker.fenced or broker.in_controlled_shutdown:
                self._fenced.pop(broker.broker_id, None)
            elif self._fenced.get(broker.broker_id, (-1, 0))[0] != broker.epoch:
                self._fenced[broker.broker_id] = (broker.epoch, world.clock.monotonic_ns())

    def sent(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """Check an answer to a client."""
        machine = world.machine_at(source)
        if machine is None or machine.node is None or type(message) is not Response:
            return
        epoch, at_ns = self._fenced.get(machine.node_id, (-1, -1))
        if at_ns < 0 or epoch != machine.node.broker_epoch or world.machine_at(target) is not None:
            return
        if _serves(message.body):
            self._report(world, machine, at_ns, message)

    def _report(self, world: ObservedWorld, machine: ObservedNode, at_ns: int, message: Response) -> None:
        late_ms = (world.clock.monotonic_ns() - at_ns) / 1e6
        kind = type(message.body).__name__
        world.broken("S20", f"node {machine.node_id} sends a {kind} {late_ms:.1f} ms after it was fenced")


def _serves(body: Any) -> bool:
    if isinstance(body, MetadataResponse | DescribeClusterResponse):
        return body.error_code == NO_ERROR
    found = _BY_TOPIC.get(type(body))
    if found is None:
        return False
    each, part = found
    parts: list[Any] = []
    for topic in getattr(body, each):
        parts.extend(getattr(topic, part) if part else [topic])
    return any(one.error_code == NO_ERROR for one in parts)
