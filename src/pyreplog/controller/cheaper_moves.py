"""Make the moves of a rebalance fewer, where nodes that already hold a replica are in each other's way.

A rebalance is a flow of replicas: from each partition through its racks to the nodes of its topic, and from
those to the nodes. A cycle of negative cost in what is left of that flow is a set of exchanges after which
the goal holds as before with fewer moves. If there is no such cycle, no plan has fewer moves. This is
exact and slow, so it is only for plans that miss their lower bound, and its work is limited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

__all__ = ["FlowPartition", "FlowTopic", "cancel_cycles"]

WORK_MAX: Final = 8_000_000
"""Edges that are looked at before the search ends without a proof: some seconds."""

Edge = tuple[int, int, int, int, int]
"""From, to, cost; then the index of a partition and the node to which the edge brings a replica (or, negative and
less one, from which it takes one); -1 and 0 for other edges."""


class FlowPartition(NamedTuple):
    """One partition: its topic, its replicas before and now (changed in place), and those that stay."""

    topic: int
    before: Sequence[int]
    members: list[int]
    frozen: frozenset[int]


class FlowTopic(NamedTuple):
    """One topic: the least number of its replicas on each node of a rack, and whether one more is allowed."""

    low: int
    may_round_up: bool


def cancel_cycles(
    partitions: Sequence[FlowPartition],
    topics: Sequence[FlowTopic],
    racks: Mapping[int, str],
    rack_of: Mapping[int, str],
    limits: Mapping[int, tuple[int, int]],
) -> bool:
    """Exchange replicas until there are no fewer moves. Return whether that is proved.

    ``racks``: the nodes that may get replicas; ``rack_of``: those and the frozen ones. ``limits``: the
    least and the largest number of replicas of each node. REQUIRES that the goal is reached.
    """
    work = 0
    while True:
        edges = list(_edges(partitions, topics, racks, rack_of, limits))
        cycle, looked = _cycle(edges, WORK_MAX - work)
        work += looked
        if cycle is None:
            return work < WORK_MAX
        gone: dict[int, list[int]] = {}
        come: dict[int, list[int]] = {}
        for _, _, _, at, node in cycle:
            if at >= 0:
                (come if node >= 0 else gone).setdefault(at, []).append(node if node >= 0 else -node - 1)
        for at, nodes in come.items():
            members = partitions[at].members
            for old, new in zip(gone[at], nodes, strict=True):
                members[members.index(old)] = new


def _edges(
    partitions: Sequence[FlowPartition],
    topics: Sequence[FlowTopic],
    racks: Mapping[int, str],
    rack_of: Mapping[int, str],
    limits: Mapping[int, tuple[int, int]],
) -> Iterator[Edge]:
    """Yield the edges along which one more replica can flow."""
    nodes = list(racks)
    place = {node: at for at, node in enumerate(nodes)}
    names = sorted(set(rack_of.values()))
    width = len(nodes)
    first_of_topics = width + 1
    first_of_partitions = first_of_topics + width * len(topics)
    loads: Counter[tuple[int, int]] = Counter()
    for at, one in enumerate(partitions):
        center = first_of_partitions + at * (len(names) + 1)
        used = Counter(rack_of[node] for node in one.members)
        for index, name in enumerate(names):
            stay = sum(rack_of[node] == name for node in one.frozen)
            if len(one.members) > len(names):
                least, most = max(0, 1 - stay), width
            else:
                least, most = (int(len(one.members) == len(names)) if not stay else 0), max(0, 1 - stay)
            free = used[name] - stay
            if free < most:
                yield center, center + 1 + index, 0, -1, 0
            if free > least:
                yield center + 1 + index, center, 0, -1, 0
        first = first_of_topics + one.topic * width
        rack_places = {name: center + 1 + index for index, name in enumerate(names)}
        for node, rack in racks.items():
            cost = int(node not in one.before)
            if node in one.members:
                loads[one.topic, node] += 1
                yield first + place[node], rack_places[rack], -cost, at, -node - 1
            else:
                yield rack_places[rack], first + place[node], cost, at, node
    totals: Counter[int] = Counter()
    for topic, limit in enumerate(topics):
        for node in nodes:
            load = loads[topic, node]
            totals[node] += load
            vertex = first_of_topics + topic * width + place[node]
            if load < limit.low + limit.may_round_up:
                yield vertex, place[node], 0, -1, 0
            if load > limit.low:
                yield place[node], vertex, 0, -1, 0
    for node in nodes:
        low, high = limits[node]
        if totals[node] < high:
            yield place[node], width, 0, -1, 0
        if totals[node] > low:
            yield width, place[node], 0, -1, 0


def _cycle(edges: Sequence[Edge], work_max: int) -> tuple[list[Edge] | None, int]:
    """Return a cycle of negative cost, or None, and how many edges were looked at (Bellman and Ford)."""
    cost: dict[int, int] = {}
    came: dict[int, Edge] = {}
    work = 0
    while work < work_max:
        changed = False
        work += len(edges)
        for edge in edges:
            start, end, price, _, _ = edge
            now = cost.get(start, 0) + price
            if now < cost.get(end, 0):
                cost[end] = now
                came[end] = edge
                changed = True
        if not changed:
            return None, work
        found = _loop(came)
        if found is not None:
            return found, work
    return None, work


def _loop(came: Mapping[int, Edge]) -> list[Edge] | None:
    """Return the edges of a loop in the tree of predecessors."""
    state: dict[int, int] = {}
    for begin in came:
        vertex = begin
        while vertex in came and vertex not in state:
            state[vertex] = begin
            vertex = came[vertex][0]
        if state.get(vertex) == begin and vertex in came:
            loop = [came[vertex]]
            while loop[-1][0] != vertex:
                loop.append(came[loop[-1][0]])
            return loop
    return None
