"""Drain: where the replicas of nodes that leave go. A pure function of the metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from pyreplog.controller.image import MetadataImage
from pyreplog.log import is_internal

__all__ = ["drained", "too_large_topics"]

_NO_RACK: Final = None


def too_large_topics(image: MetadataImage, leaving: Collection[int]) -> dict[str, int]:
    """Return the topics with more replicas than there would be nodes for them, with their factors.

    A cordoned node keeps the replicas that it has, and gets no more.
    """
    staying = [one for one in image.brokers if one not in leaving]
    found: dict[str, int] = {}
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            usable = [one for one in staying if one not in image.cordoned or one in partition.target]
            if len(partition.target) > len(usable):
                found[topic.name] = max(found.get(topic.name, 0), len(partition.target))
    return found


def drained(image: MetadataImage, leaving: Collection[int]) -> Mapping[tuple[str, int], tuple[int, ...]]:
    """Return the new replicas of each partition that has some on nodes of ``leaving``, by (topic, number).

    Only those replicas move, each to the node that has the fewest replicas of its topic and then of all; a rack that
    the partition does not have yet comes first. The new replica takes the place of the old one, so a preferred leader
    moves with it. REQUIRES that :func:`too_large_topics` found none. Internal topics are left out.
    """
    moved: dict[tuple[str, int], tuple[int, ...]] = {}
    totals: Counter[int] = Counter()
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            totals.update(partition.target)
    for topic in image.topics.values():
        if is_internal(topic.name):
            continue
        loads: Counter[int] = Counter()
        for partition in topic.partitions.values():
            loads.update(partition.target)
        for number, partition in topic.partitions.items():
            replicas = list(partition.target)
            for position, node in enumerate(partition.target):
                if node in leaving:
                    replicas[position] = _best(image, replicas, leaving, loads, totals)
                    for counts in (loads, totals):
                        counts[replicas[position]] += 1
                        counts[node] -= 1
            if replicas != list(partition.target):
                moved[topic.name, number] = tuple(replicas)
    return moved


def _best(
    image: MetadataImage, replicas: list[int], leaving: Collection[int], loads: Counter[int], totals: Counter[int]
) -> int:
    racks = {image.brokers[one].rack for one in replicas if one in image.brokers and one not in leaving}
    candidates = [
        one for one in image.brokers if one not in leaving and one not in replicas and one not in image.cordoned
    ]
    return min(
        candidates,
        key=lambda one: (image.brokers[one].rack in racks - {_NO_RACK}, loads[one], totals[one], one),
    )
