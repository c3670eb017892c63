"""The stage as checkers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyreplog.controller import MetadataImage, PartitionImage, PartitionKey
from pyreplog.testing.stage_clients import NAME, StageClients
from pyreplog.testing.stage_controller import StageController
from pyreplog.testing.stage_node import StageNode
from pyreplog.values import TopicPartition

__all__ = ["StageView"]


class StageView:
    """The parts of :class:`~pyreplog.testing.observed.ObservedWorld` that a stage has. It has no clients of a
    world and no time of its own, and the checkers of a stage ask for none."""

    def __init__(
        self,
        machines: Mapping[int, StageNode],
        authority: StageController,
        clients: StageClients,
        broken: Callable[[str, str], None],
    ) -> None:
        self.machines = machines
        self.broken = broken
        self.lost: dict[TopicPartition, dict[int, None]] = {}
        self.rotten: dict[tuple[TopicPartition, int], None] = {}
        self.delete_asked = clients.delete_asked
        self._authority = authority

    @property
    def image(self) -> MetadataImage:
        """The metadata as the controller has it."""
        return self._authority.controller.image

    def partitions(self) -> list[tuple[TopicPartition, PartitionKey, PartitionImage]]:
        """Return the one partition, once it is created."""
        key = self._authority.key
        topic = None if key is None else self.image.topics.get(key[0])
        return [] if key is None or topic is None else [(NAME, key, topic.partitions[0])]

    def hosted(self, node_id: int, key: PartitionKey) -> Any:
        """Return the partition that a node hosts; None while it hosts none."""
        node = self.machines[node_id].node
        return None if node is None else node.hosted.get(key)

    def log_of(self, node_id: int, key: PartitionKey) -> Any:
        """Return a node's log; None while it has none, or is down."""
        return self.machines[node_id].log

    def is_registered(self, node_id: int) -> bool:
        """Return whether a node is up and the controller knows its present incarnation."""
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.incarnation_id == self.machines[node_id].incarnation_id != ""

    def promises(self, attempt: Any) -> bool:
        """Return True: only appends with acks=all are shown to checkers."""
        return True
