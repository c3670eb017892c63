"""Whether a topic that would become compacted holds records without a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyreplog.config import LogConfig
from pyreplog.controller import TopicImage
from pyreplog.errors import ConfigError, LeaderNotAvailableError
from pyreplog.log import Log
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.values import TopicPartition

__all__ = ["KeyCheck"]

_POLICY: Final = "cleanup.policy"
Places = dict[TopicPartition, int]
"""How far the records of each partition were looked at."""


class KeyCheck:
    """Looks for records without a key in the topics that a change of settings makes compacted."""

    def __init__(self, driver: Driver, nodes: NodeGroup) -> None:
        self._driver = driver
        self._nodes = nodes

    def check(self, topic: str | None, changes: Mapping[str, str | None]) -> Places:
        """Raise :class:`ConfigError`, which names the first record without a key, if ``changes`` of ``topic`` (None:
        of the cluster's defaults) make a topic compacted that has one. Otherwise return how far it was looked.

        Reads all records of such a topic, on the leaders. Raises :class:`LeaderNotAvailableError`,
        :class:`CorruptLogError`.
        """
        reached: Places = {}
        if _POLICY not in changes:
            return reached
        for partition in self._driver.run_exclusively(lambda: self._concerned(topic, changes)):
            found, reached[partition] = self._search(partition, 0)
            if found >= 0:
                raise ConfigError(
                    f"{partition} holds a record without a key at offset {found}, so {partition.topic!r} cannot become"
                    " compacted: give also 'compact.unkeyed': 'drop' to have compaction drop such records"
                )
        return reached

    def find_later(self, reached: Places) -> dict[TopicPartition, int]:
        """Return the first record without a key behind the places that :meth:`check` returned, by partition: it was
        appended before the change counted."""
        found = {}
        for partition, start in reached.items():
            offset, _ = self._search(partition, start)
            if offset >= 0:
                found[partition] = offset
        return found

    def _concerned(self, name: str | None, changes: Mapping[str, str | None]) -> list[TopicPartition]:
        image = self._nodes.controller.image
        topic = None if name is None else image.topic(name)
        defaults = _applied(image.defaults, changes) if name is None else image.defaults
        topics = image.topics.values() if name is None else () if topic is None else (topic,)
        return [
            TopicPartition(one.name, number)
            for one in topics
            if _becomes_compacted(one, defaults, {} if name is None else changes)
            for number in one.partitions
        ]

    def _search(self, partition: TopicPartition, start: int) -> tuple[int, int]:
        """Return the offset of the first record without a key from ``start`` on (-1: none), and the end that was
        reached. Each part is read while no machine runs."""
        at, end = start, -1

        def look() -> int:
            nonlocal at, end
            log = self._leading_log(partition)
            end = log.end_offset if log is not None and end < 0 else end
            if log is None or at >= min(end, log.end_offset):
                at = max(at, end)
                return -1
            found, at = log.find_unkeyed(at)
            return found

        while True:
            found = self._driver.run_exclusively(look)
            if found >= 0 or at >= end:
                return found, at

    def _leading_log(self, partition: TopicPartition) -> Log | None:
        """Return the leader's log; None if the topic is gone. REQUIRES that no machine runs."""
        topic = self._nodes.controller.image.topic(partition.topic)
        entry = None if topic is None else topic.partitions.get(partition.partition)
        if entry is None:
            return None
        owner = next((one for one in self._nodes.brokers if one.node_id == entry.leader), None)
        hosted = None if owner is None or owner._node is None else owner._node.find(partition)
        if hosted is None:
            raise LeaderNotAvailableError(
                f"{partition}, so its records cannot be looked at for keys; give also 'compact.unkeyed': 'drop' if"
                " records without a key may go"
            )
        return hosted.replica.load_log()


def _becomes_compacted(topic: TopicImage, defaults: Mapping[str, str], changes: Mapping[str, str | None]) -> bool:
    if topic.log_config.compacts:
        return False
    try:
        after = LogConfig.from_mapping({**defaults, **_applied(topic.config, changes)})
    except ConfigError:
        return False  # the controller refuses it, with the reason
    return after.compacts and after.compact_unkeyed != "drop"


def _applied(there: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    values = {key: value for key, value in there.items() if key not in changes}
    values.update((key, value) for key, value in changes.items() if value is not None)
    return values
