"""The plan that gives a topic more or fewer replicas: a pure function, as the plan of a rebalance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyreplog.controller.rebalance import PlannedTopic, RebalancePlan, ReplicaMove

__all__ = ["plan_replication_factor"]


def plan_replication_factor(
    topic: PlannedTopic,
    factor: int,
    racks: Mapping[int, str | None],
    frozen: Mapping[int, str | None],
    totals: Mapping[int, int],
) -> RebalancePlan:
    """Return the plan after which each partition has ``factor`` replicas; no other replica moves.

    A new replica goes into a rack that the partition does not have, then to the node with the fewest
    replicas of the topic, then of all (``totals``). The replica that goes is on a frozen node (cordoned
    or down) if there is one, then in a rack with another one, then on the node with the most replicas.
    The preferred leader stays unless its node is frozen.

    REQUIRES that ``racks`` has enough nodes for each partition.
    """
    known = {**racks, **frozen}
    loads = Counter(node for members in topic.replicas for node in members)
    sums = Counter(totals)
    moves: list[ReplicaMove] = []
    assignment: dict[tuple[str, int], tuple[int, ...]] = {}
    for number, old in enumerate(topic.replicas):
        members = list(old)
        why = f"{topic.name!r} gets {factor} replicas instead of {len(old)}"
        while len(members) < factor:
            used = Counter(known.get(node) for node in members)
            node = min(
                (one for one in racks if one not in members),
                key=lambda one: (used[racks[one]], loads[one], sums[one], one),
            )
            members.append(node)
            loads[node] += 1
            sums[node] += 1
            moves.append(ReplicaMove(topic.name, number, None, node, topic.sizes[number], why))
        while len(members) > factor:
            used = Counter(known.get(node) for node in members)
            node = max(
                members,
                key=lambda one: (
                    one not in racks,
                    one != members[0],
                    used[known.get(one)],
                    loads[one],
                    sums[one],
                    one,
                ),
            )
            members.remove(node)
            loads[node] -= 1
            sums[node] -= 1
            moves.append(ReplicaMove(topic.name, number, node, None, 0, why))
        if members != list(old):
            assignment[topic.name, number] = tuple(members)
    return RebalancePlan(tuple(moves), len(moves), (), assignment)
