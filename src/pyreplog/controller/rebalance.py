"""The plan of a rebalance: which replicas move so that every node has its share, and no replica moves in vain.

Pure functions over lists of replicas. The goal, in this order: no partition has two replicas on one node;
each partition is in as many racks as it can reach; each topic is even; the whole is even
(:mod:`pyreplog.controller.fair_shares`). Replicas on a node that leaves all move; replicas on a node that
is frozen (cordoned, or down) all stay. The plan has the fewest moves with which the goal can be reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyreplog.controller.cheaper_moves import FlowPartition, FlowTopic, cancel_cycles
from pyreplog.controller.fair_shares import Goal, Share, share_of

__all__ = ["ReplicaMove", "PlannedTopic", "RebalancePlan", "plan_rebalance"]

EDGES_MAX: Final = 200_000
"""Partitions times nodes, above which a plan is not proved if it misses its lower bound."""
SHOWN_MAX: Final = 20
"""The moves that the text of a plan shows."""


class PlannedTopic(NamedTuple):
    """A topic: the replicas of each partition, and the bytes of one replica of each."""

    name: str
    replicas: Sequence[Sequence[int]]
    sizes: Sequence[int]


class ReplicaMove(NamedTuple):
    """One replica that moves. ``source`` None: it is added; ``target`` None: it is removed, and no byte is copied."""

    topic: str
    partition: int
    source: int | None
    target: int | None
    bytes: int
    why: str


@dataclass(frozen=True)
class RebalancePlan:
    """The moves of a rebalance, before or after it was carried out. ``str()`` shows them.

    ``minimum``: no way to the same goal has fewer moves. It is the number of moves, unless the cluster is so
    large that this could not be proved. ``notes``: the nodes that carry more
    than others, with the reason.
    """

    moves: tuple[ReplicaMove, ...]
    minimum: int
    notes: tuple[str, ...] = ()
    assignment: Mapping[tuple[str, int], tuple[int, ...]] = field(default_factory=dict, repr=False)
    """The replicas of each partition that changes, by (topic, partition)."""

    @property
    def bytes(self) -> int:
        """The bytes that the moves copy."""
        return sum(move.bytes for move in self.moves)

    def __str__(self) -> str:
        if not self.moves:
            head = "nothing to move: every node has its share"
        else:
            count = len(self.moves)
            least = "the fewest possible" if self.minimum == count else f"at least {self.minimum} are needed"
            head = f"{count} move{'' if count == 1 else 's'}, {self.bytes} bytes; {least}"
        lines = [
            f"  {one.topic}-{one.partition}: {_place(one.source)} -> {_place(one.target)}, {one.bytes} bytes: {one.why}"
            for one in self.moves[:SHOWN_MAX]
        ]
        if len(self.moves) > SHOWN_MAX:
            lines.append(f"  and {len(self.moves) - SHOWN_MAX} more")
        return "\n".join([head, *lines, *self.notes])


def _place(node: int | None) -> str:
    return "-" if node is None else f"node {node}"


def plan_rebalance(
    topics: Sequence[PlannedTopic], racks: Mapping[int, str | None], frozen: Mapping[int, str | None] | None = None
) -> RebalancePlan:
    """Return the plan with the fewest moves after which every node of ``racks`` has its share.

    ``racks``: the rack of each node that may get replicas; None for all: there are no racks.
    ``frozen``: the racks of the nodes whose replicas stay as they are. Replicas on any other node
    move away.

    REQUIRES that no partition has more replicas than there are nodes for them.
    """
    return _Planner(topics, racks, frozen or {}).plan()


class _TopicMoves:
    """The replicas of one topic while they are moved."""

    __slots__ = ("_banned", "_holders", "_planner", "_targets", "before", "loads", "replicas", "topic")

    def __init__(self, topic: PlannedTopic, planner: _Planner) -> None:
        self.topic = topic
        self._planner = planner
        self.before = [tuple(one) for one in topic.replicas]
        self.replicas = [list(one) for one in topic.replicas]
        self.loads: Counter[int] = Counter(node for one in self.before for node in one)
        self._holders: dict[int, list[int]] | None = None
        self._targets: dict[int, int] = {}
        self._banned: set[tuple[int, int, int]] = set()

    def share(self) -> Share:
        """Return the share of each node."""
        planner = self._planner
        free = [sum(node not in planner.frozen for node in one) for one in self.before]
        sizes = planner.sizes
        count = len(self.before)
        if len(sizes) == 1 or not any(free):
            key: tuple[object, ...] = (sum(free), count)
        else:
            taken: Counter[str] = Counter()
            if planner.frozen:
                for one in self.before:
                    taken.update({planner.rack_of[node] for node in one if node in planner.frozen})
            factor = max(map(len, self.before))
            key = (sum(free), count, factor, *sorted(taken.items()))
        found = planner.shares.get(key)
        if found is None:
            found = planner.shares[key] = self._share(sum(free), count)
        return found

    def _share(self, total: int, count: int) -> Share:
        planner = self._planner
        sizes = planner.sizes
        most = {rack: count * size for rack, size in sizes.items()}
        least = dict.fromkeys(sizes, 0)
        if len(sizes) > 1:
            for rack in sizes:
                with_it = sum(
                    any(node in planner.frozen and planner.rack_of[node] == rack for node in one) for one in self.before
                )
                factor = max(map(len, self.before))
                if factor <= planner.rack_count:
                    most[rack] = count - with_it
                if factor >= planner.rack_count:
                    least[rack] = count - with_it
        return share_of(total, sizes, least, most)

    # ---------------------------------------------------------------------------------------- moves

    def count(self) -> int:
        """Return the number of replicas that moved."""
        return sum(
            len(set(now).difference(old))
            for old, now in zip(self.before, self.replicas, strict=True)
            if now != list(old)
        )

    def put_in_order(self) -> None:
        """Give each replica that stays its place in its partition, and the new ones the places of those that went."""
        for at, (old, now) in enumerate(zip(self.before, self.replicas, strict=True)):
            if now != list(old):
                come = iter([node for node in now if node not in old])
                self.replicas[at] = [node if node in now else next(come) for node in old]

    def carry_out(self, wanted: Mapping[int, int]) -> None:
        """Move replicas until each node has the ``wanted`` number, with the fewest moves."""
        self._targets = dict(wanted)
        for node in [node for node in self.loads if self._surplus(node) > 0]:
            for number in self._of(node):
                if self._surplus(node) <= 0:
                    break
                if node in self.replicas[number]:
                    target = self._direct(number, node)
                    if target is not None:
                        self._move(number, node, target)
        if self._planner.rack_count > 1:
            self._spread()
        while path := self._cheapest_path():
            for number, source, target in path:
                if not self._may_replace(number, source, target):  # another step changed the partition's racks
                    self._banned.add((number, source, target))
                    break
                self._move(number, source, target)

    def is_uneven(self) -> bool:
        """Return whether a node still has more than it should have: there is no way to move it."""
        return bool(self._targets) and any(self._surplus(node) > 0 for node in self.loads)

    def _surplus(self, node: int) -> int:
        """Return how many replicas more than it should have a node has."""
        if node in self._planner.frozen:
            return 0
        return self.loads[node] - self._targets.get(node, 0)

    def _of(self, node: int) -> list[int]:
        """Return the partitions that had a replica on ``node``, the smallest first."""
        if self._holders is None:
            holders: dict[int, list[int]] = {}
            for number, one in enumerate(self.before):
                for member in one:
                    holders.setdefault(member, []).append(number)
            self._holders = holders
        sizes = self.topic.sizes
        return sorted(self._holders.get(node, ()), key=lambda number: (sizes[number], -number))

    def _direct(self, number: int, node: int) -> int | None:
        """Return the node with the largest lack that may take the place of ``node`` in a partition."""
        best, most = None, 0
        members = self.replicas[number]
        for one, wanted in self._targets.items():
            lack = wanted - self.loads[one]
            if lack > most and one not in members and self._may_replace(number, node, one):
                best, most = one, lack
        return best

    def _may_replace(self, number: int, before: int, after: int) -> bool:
        """Return whether a partition is in as many racks as it can reach if one node replaces another. It may also
        be in no fewer than now."""
        planner = self._planner
        if planner.rack_count <= 1:
            return True
        mine, theirs = planner.rack_of[before], planner.rack_of[after]
        if mine == theirs:
            return True
        others = {planner.rack_of[one] for one in self.replicas[number] if one != before}
        return len(others | {theirs}) >= min(len(self.replicas[number]), planner.rack_count)

    def _move(self, number: int, source: int, target: int) -> None:
        members = self.replicas[number]
        members[members.index(source)] = target
        self.loads[source] -= 1
        self.loads[target] += 1

    def _spread(self) -> None:
        """Move replicas of partitions that are in fewer racks than they can be."""
        planner = self._planner
        for number, members in enumerate(self.replicas):
            while True:
                used = Counter(planner.rack_of[one] for one in members)
                if len(used) >= min(len(members), planner.rack_count):
                    break
                movable = [one for one in members if used[planner.rack_of[one]] > 1 and one not in planner.frozen]
                targets = [one for one in self._targets if planner.rack_of[one] not in used]
                if not movable or not targets:
                    break
                source = max(movable, key=lambda one: (self._surplus(one), one))
                target = min(targets, key=lambda one: (self._surplus(one), one))
                self._move(number, source, target)

    # -------------------------------------------------------------------------------------- detours

    def _cheapest_path(self) -> list[tuple[int, int, int]] | None:
        """Return the moves, as (partition, source, target), that bring one surplus replica to a node that lacks
        one, with the fewest new moves in all. None: there is no surplus, or no way."""
        sources = [node for node in self.loads if self._surplus(node) > 0]
        if not sources:
            return None
        steps = self._steps()
        cost = dict.fromkeys(sources, 0)
        came: dict[int, tuple[int, int] | None] = dict.fromkeys(sources)
        nodes = list(dict.fromkeys([*sources, *self._targets]))
        for _ in nodes:
            changed = False
            for node in nodes:
                for one, (price, number) in steps.get(node, {}).items() if node in cost else ():
                    if one not in cost or cost[node] + price < cost[one]:
                        cost[one] = cost[node] + price
                        came[one] = (number, node)
                        changed = True
            if not changed:
                break
        lacking = [node for node in self._targets if self._surplus(node) < 0 and node in cost]
        if not lacking:
            return None
        end = min(lacking, key=lambda node: (cost[node], node))
        path: list[tuple[int, int, int]] = []
        while (step := came[end]) is not None:
            path.append((step[0], step[1], end))
            end = step[1]
        return path

    def _steps(self) -> dict[int, dict[int, tuple[int, int]]]:
        """Return for each node the others that may take one of its replicas: the price in moves, and the
        partition."""
        found: dict[int, dict[int, tuple[int, int]]] = {}
        frozen = self._planner.frozen
        for number, members in enumerate(self.replicas):
            before = self.before[number]
            for node in members:
                if node in frozen:
                    continue
                mine = found.setdefault(node, {})
                for one in self._targets:
                    if one in members:
                        continue
                    price = int(node in before and one not in before)  # never negative, so there are no loops
                    if one in mine and price >= mine[one][0]:
                        continue
                    if (number, node, one) not in self._banned and self._may_replace(number, node, one):
                        mine[one] = (price, number)
        return found


class _Planner:
    """A rebalance while it is planned."""

    def __init__(
        self, topics: Sequence[PlannedTopic], racks: Mapping[int, str | None], frozen: Mapping[int, str | None]
    ) -> None:
        known = {**racks, **frozen}
        has_racks = all(rack is not None for rack in known.values())
        self.rack_of = {node: (rack or "") if has_racks else "" for node, rack in known.items()}
        self.frozen = frozenset(frozen)
        self.sizes: Counter[str] = Counter(self.rack_of[node] for node in sorted(racks))
        self.rack_count = len(set(self.rack_of.values()))
        self.shares: dict[tuple[object, ...], Share] = {}
        self._nodes = {node: self.rack_of[node] for node in sorted(racks)}
        self._topics = [_TopicMoves(topic, self) for topic in topics]

    def plan(self) -> RebalancePlan:
        """Return the plan."""
        for topic in self._topics:
            for one in topic.before:
                for node in one:
                    self.rack_of.setdefault(node, "")
        shares = [topic.share() for topic in self._topics]
        goal = Goal(self._nodes, shares, [topic.loads for topic in self._topics])
        totals: Counter[int] = Counter()
        for topic in self._topics:
            totals.update(topic.loads)
        minimum = 0
        before = [topic.loads.copy() for topic in self._topics]
        for at, topic in enumerate(self._topics):
            if self._is_settled(topic, goal, at):
                continue
            wanted = {node: goal.wanted(at, node) for node in self._nodes}
            minimum += sum(
                max(0, count - wanted.get(node, 0)) for node, count in topic.loads.items() if node not in self.frozen
            )
            topic.carry_out(wanted)
        count = sum(topic.count() for topic in self._topics)
        is_even = not any(topic.is_uneven() for topic in self._topics)
        if count > minimum and is_even and self._cancel(shares, goal):
            minimum = sum(topic.count() for topic in self._topics)
        moves: list[ReplicaMove] = []
        for topic, loads, share in zip(self._topics, before, shares, strict=True):
            topic.put_in_order()
            moves += self._moves(topic, loads, totals, share)
        assignment = {
            (topic.topic.name, number): tuple(members)
            for topic in self._topics
            for number, members in enumerate(topic.replicas)
            if tuple(members) != topic.before[number]
        }
        return RebalancePlan(tuple(moves), minimum, tuple(self._notes()), assignment)

    def _cancel(self, shares: Sequence[Share], goal: Goal) -> bool:
        """Make the moves fewer, if they can be; return whether no plan has fewer."""
        even = [set(share.share.values()) for share in shares]
        partitions = sum(len(topic.before) for topic in self._topics)
        if any(len(one) > 1 for one in even) or partitions * len(self._nodes) > EDGES_MAX:
            return False
        flows = [
            FlowPartition(at, old, now, self.frozen.intersection(old))
            for at, topic in enumerate(self._topics)
            for old, now in zip(topic.before, topic.replicas, strict=True)
        ]
        topics = [FlowTopic(int(one), one.denominator > 1) for (one,) in even]
        low = sum(one.low for one in topics)
        limits = {node: (low + least, low + most) for node, (least, most) in goal.limits.items()}
        rack_of = {node: self.rack_of[node] for node in (*self._nodes, *self.frozen)}
        return cancel_cycles(flows, topics, self._nodes, rack_of, limits)

    def _is_settled(self, topic: _TopicMoves, goal: Goal, at: int) -> bool:
        """Return whether each node has its share already, and no partition is in too few racks."""
        for node, count in topic.loads.items():
            if node in self.frozen:
                continue
            if node not in self._nodes or count != goal.wanted(at, node):
                return False
        if any(node not in topic.loads for node in goal.ups[at]):
            return False
        if self.rack_count <= 1:
            return True
        return all(len({self.rack_of[node] for node in one}) >= min(len(one), self.rack_count) for one in topic.before)

    def _moves(
        self, topic: _TopicMoves, before: Counter[int], totals: Counter[int], share: Share
    ) -> Iterator[ReplicaMove]:
        name = topic.topic.name
        for number, members in enumerate(topic.replicas):
            old = topic.before[number]
            gone = [node for node in old if node not in members]
            come = [node for node in members if node not in old]
            for source, target in zip(gone, come, strict=True):
                why = self._why(name, old, source, target, before, totals, share)
                yield ReplicaMove(name, number, source, target, topic.topic.sizes[number], why)

    def _why(
        self,
        name: str,
        old: Sequence[int],
        source: int,
        target: int,
        before: Counter[int],
        totals: Counter[int],
        share: Share,
    ) -> str:
        if source not in self._nodes:
            return f"node {source} leaves"
        racks = [self.rack_of[node] for node in old]
        mine, theirs = self.rack_of[source], self.rack_of[target]
        if racks.count(mine) > 1 and theirs not in racks:
            return f"two replicas are in rack {mine!r}, and none is in rack {theirs!r}"
        fair = share.share[mine]
        if before[source] > -(-fair.numerator // fair.denominator) or before[target] < share.low[theirs]:
            return f"node {source} has {before[source]} replicas of {name!r}, and node {target} has {before[target]}"
        if totals[source] > totals[target]:
            return f"node {source} has {totals[source]} replicas in all, and node {target} has {totals[target]}"
        return f"node {target} has room for it, and another replica needs its place on node {source}"

    def _notes(self) -> Iterator[str]:
        """Yield a line for each node that has at least one replica more than the average, because of its rack."""
        totals: Counter[int] = Counter()
        for topic in self._topics:
            totals.update(topic.loads)
        count = len(self._nodes)
        if not count or self.rack_count <= 1:
            return
        sum_all = sum(totals[node] for node in self._nodes)
        for node, rack in self._nodes.items():
            if totals[node] > -(-sum_all // count):
                yield (
                    f"node {node} carries {totals[node]} replicas, more than the average of {sum_all / count:.1f},"
                    f" because rack {rack!r} has {self.sizes[rack]} of {count} nodes, and racks come first"
                )
