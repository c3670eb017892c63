"""MetadataView: the questions about the newest metadata that a cluster, its nodes and its clients ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from pyreplog.client import TopicLimits
from pyreplog.config import INT32_MAX, LogConfig, batch_max, producer_batch_max
from pyreplog.controller import MetadataImage
from pyreplog.runtime.driver import Driver
from pyreplog.values import TopicPartition
from pyreplog.wire import NO_LEADER

__all__ = ["Leaderless", "MetadataView"]


class Leaderless(NamedTuple):
    """A partition without a leader: the nodes that may lead it, and all nodes that have a copy."""

    eligible: Sequence[int]
    replicas: Sequence[int]


class MetadataView(ABC):
    """The newest metadata of one cluster, which :attr:`image` returns."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    @abstractmethod
    def image(self) -> MetadataImage:
        """The newest metadata."""

    def is_fenced(self, node_id: int) -> bool:
        """Return whether the controller has fenced the node. Any thread, because the brokers of the
        image are replaced and never changed.
        """
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.fenced

    def active_nodes(self) -> set[int]:
        """Return the nodes that the controller considers alive. REQUIRES that no machine runs."""
        return {broker.broker_id for broker in self.image.brokers.values() if broker.active}

    # --------------------------------------------------------------------------------------- topics

    def topic_names(self) -> tuple[str, ...]:
        """Return the names of all topics."""
        return self._driver.run_exclusively(lambda: tuple(self.image.topic_ids))

    def leaders(self, topic: str) -> dict[int, int] | None:
        """Return the leader of each partition of ``topic`` (-1: none); None if there is no such
        topic.
        """

        def look() -> dict[int, int] | None:
            found = self.image.topic(topic)
            return None if found is None else {number: entry.leader for number, entry in found.partitions.items()}

        return self._driver.run_exclusively(look)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the leader of a partition; -1 if it has none or does not exist. REQUIRES that no machine runs."""
        found = self.image.topic(topic)
        entry = None if found is None else found.partitions.get(partition)
        return NO_LEADER if entry is None else entry.leader

    def leaderless(self, of: TopicPartition) -> Leaderless | None:
        """Return the nodes that may lead a partition; None if it has a leader or does not exist."""

        def look() -> Leaderless | None:
            found = self.image.topic(of.topic)
            entry = None if found is None else found.partitions.get(of.partition)
            if entry is None or entry.leader != NO_LEADER:
                return None
            return Leaderless((*entry.isr, *entry.elr), entry.replicas)

        return self._driver.run_exclusively(look)

    def settings_of(self, topic: str) -> LogConfig | None:
        """Return the settings of ``topic`` in force; None if it does not exist."""

        def look() -> LogConfig | None:
            found = self.image.topic(topic)
            return None if found is None else found.log_config

        return self._driver.run_exclusively(look)

    def batch_limit(self, topic: str) -> TopicLimits:
        """Return the batches that a producer may make for ``topic``. REQUIRES the driver's turn."""
        found = self.image.topic(topic)
        if found is None:
            return TopicLimits(INT32_MAX, 0)
        config = found.log_config
        return TopicLimits(producer_batch_max(config), batch_max(config), needs_keys=config.compacts)
