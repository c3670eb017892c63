"""The fewest moves of a rebalance, slow and obvious: the cheapest flow of replicas from partitions to nodes.

Every replica of a partition flows through a rack and a node of its topic to a node, and from there out. A
replica costs 1 on a node that the partition was not on. Limits are bonuses: the first units that an edge
should carry at least are cheaper than any number of moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["fewest_moves"]

BONUS = 10_000


class Flow:
    """A network whose cheapest flow is found path by path (Bellman and Ford)."""

    def __init__(self) -> None:
        self.edges: list[list[int]] = []  # [from, to, room, cost]; the edge back is beside it
        self.names: dict[object, int] = {"source": 0, "sink": 1}

    def vertex(self, name: object) -> int:
        """The number of a vertex."""
        return self.names.setdefault(name, len(self.names))

    def edge(self, start: object, end: object, room: int, cost: int = 0) -> None:
        """An edge that carries up to ``room`` units."""
        if room > 0:
            self.edges.append([self.vertex(start), self.vertex(end), room, cost])
            self.edges.append([self.vertex(end), self.vertex(start), 0, -cost])

    def between(self, start: object, end: object, least: int, most: int) -> None:
        """An edge that carries ``least`` to ``most`` units."""
        self.edge(start, end, least, -BONUS)
        self.edge(start, end, most - least)

    def cheapest(self) -> tuple[int, int]:
        """The units that flow from "source" to "sink", and their cost."""
        units = total = 0
        while True:
            cost: dict[int, int] = {self.names["source"]: 0}
            came: dict[int, int] = {}
            changed = True
            while changed:
                changed = False
                for at, (start, end, room, price) in enumerate(self.edges):
                    if room and start in cost and cost[start] + price < cost.get(end, 1 << 60):
                        cost[end] = cost[start] + price
                        came[end] = at
                        changed = True
            sink = self.names["sink"]
            if sink not in cost:
                return units, total
            units += 1
            total += cost[sink]
            while sink != self.names["source"]:
                at = came[sink]
                self.edges[at][2] -= 1
                self.edges[at ^ 1][2] += 1
                sink = self.edges[at][0]


def fewest_moves(
    topics: Sequence[Sequence[Sequence[int]]], racks: Mapping[int, str | None], frozen: Sequence[int] = ()
) -> int:
    """Return the fewest moves after which each topic and the whole are within one on the nodes of ``racks``.

    ``topics``: the replicas of each partition. Racks must have equal size. Replicas on ``frozen`` nodes stay,
    which is possible without racks only.
    """
    flow = Flow()
    rack_count = len(set(racks.values()))
    replicas = bonuses = 0
    for topic, partitions in enumerate(topics):
        in_topic = 0
        for number, members in enumerate(partitions):
            free = sum(one not in frozen for one in members)
            in_topic += free
            partition = (topic, number)
            flow.edge("source", partition, free)
            for rack in set(racks.values()):
                if free <= rack_count:
                    flow.edge(partition, (partition, rack), 1)
                else:
                    flow.between(partition, (partition, rack), 1, free)
                    bonuses += 1
            for node, rack in racks.items():
                flow.edge((partition, rack), (topic, "node", node), 1, int(node not in members))
        replicas += in_topic
        for node in racks:
            least, rest = divmod(in_topic, len(racks))
            flow.between((topic, "node", node), ("node", node), least, least + (rest > 0))
            bonuses += least
    least, rest = divmod(replicas, len(racks))
    for node in racks:
        flow.between(("node", node), "sink", least, least + (rest > 0))
    bonuses += least * len(racks)
    units, cost = flow.cheapest()
    assert units == replicas, "the goal cannot be reached"
    found = cost + bonuses * BONUS
    assert found < BONUS, "the goal cannot be reached"
    return found
