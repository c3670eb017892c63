"""Placement of new partitions on brokers: Kafka's striped placement, without racks.

The first replica moves on by one broker from partition to partition, and the other replicas follow
it in a circle, so that leaders and copies are spread evenly. Live brokers come first. Fenced
brokers only fill the remaining places and never lead.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["place"]


def place(
    partition_count: int, replication_factor: int, active: Sequence[int], fenced: Sequence[int], start: int = 0
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, leader first. ``start`` is the first position in the
    circle.

    REQUIRES ``active`` not empty and ``replication_factor`` at most the number of brokers.
    """
    up = sorted(active)
    down = sorted(fenced)
    placed: list[tuple[int, ...]] = []
    for partition in range(partition_count):
        first = (start + partition) % len(up)
        circle = up[first:] + up[:first]
        if down:
            turn = (start + partition) % len(down)
            circle += down[turn:] + down[:turn]
        placed.append(tuple(circle[:replication_factor]))
    return placed
