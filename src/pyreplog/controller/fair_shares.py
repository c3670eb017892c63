"""How many replicas of each topic each node should have: the goal of a rebalance, with the fewest moves.

The share of a node in a topic is the number of replicas it would have if replicas could be divided: the
same for all nodes, as far as racks allow it. A topic is even if each node has its share, rounded up or
down. The whole is even if each node has the sum of its shares, rounded up or down. Both are possible at
once, because the shares themselves are such a division and all limits are whole numbers.

Which nodes round up decides how many replicas move. Each topic rounds up where it has more replicas than
the rounded-down share, because those then stay. If the whole is not even with that, the choice is changed
along the cheapest paths: a step moves one rounding up, in one topic, from one node to another, and costs 1
if a replica that could stay has to move (successive shortest paths of a flow with costs).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Goal", "Share", "share_of"]

Racks = Mapping[int, str]
"""The rack of each node that may have replicas; "" for all: there are no racks."""


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The shares of one topic, by rack. Two shares are equal only if they are one object."""

    share: Mapping[str, Fraction]
    """The share of each node of a rack."""
    low: Mapping[str, int]
    """The same, rounded down."""
    ups: int
    """How many nodes round up, in all racks."""
    least: Mapping[str, int]
    """How many nodes of a rack round up at least."""
    most: Mapping[str, int]
    """How many nodes of a rack round up at most."""


def share_of(total: int, sizes: Mapping[str, int], least: Mapping[str, int], most: Mapping[str, int]) -> Share:
    """Return the shares of a topic with ``total`` replicas on racks of these ``sizes`` (numbers of nodes).

    ``least`` and ``most``: how many replicas a rack has, if each partition is in as many racks as it
    can reach. A rack whose even part is outside these limits gets the limit, and the others share the rest.
    """
    share: dict[str, Fraction] = {}
    open_racks = sorted(sizes)
    left = total
    while open_racks:
        even = Fraction(left, sum(sizes[rack] for rack in open_racks))
        tight = {rack: most[rack] for rack in open_racks if sizes[rack] * even > most[rack]} or {
            rack: least[rack] for rack in open_racks if sizes[rack] * even < least[rack]
        }
        if not tight:
            share.update(dict.fromkeys(open_racks, even))
            break
        for rack, count in tight.items():
            share[rack] = Fraction(count, sizes[rack])
            left -= count
            open_racks.remove(rack)
    low = {rack: one.numerator // one.denominator for rack, one in share.items()}
    lows = {rack: sizes[rack] * one for rack, one in low.items()}
    is_split = {rack: share[rack].denominator > 1 for rack in share}
    fixed = {rack for rack in share if rack not in open_racks}
    exact = {rack: int(share[rack] * sizes[rack]) - lows[rack] for rack in fixed}
    return Share(
        share,
        low,
        total - sum(lows.values()),
        {rack: exact[rack] if rack in fixed else max(0, least[rack] - lows[rack]) for rack in share},
        {
            rack: exact[rack] if rack in fixed else min(sizes[rack], most[rack] - lows[rack]) if is_split[rack] else 0
            for rack in share
        },
    )


class Goal:
    """For each topic the nodes that round their share up, and by that the number of replicas of each node."""

    def __init__(self, racks: Racks, shares: Sequence[Share], loads: Sequence[Mapping[int, int]]) -> None:
        """``loads``: the number of replicas that each node has now, by topic."""
        self._racks = racks
        self._shares = shares
        self._loads = loads
        self._nodes = sorted(racks)
        self.ups: list[set[int]] = []
        """By topic: the nodes that round up."""
        self._count = dict.fromkeys(self._nodes, 0)
        self._owned: dict[int, dict[int, None]] = {node: {} for node in self._nodes}
        """By node: the topics in which it rounds up."""
        self._spare: dict[int, set[int]] = {}
        """By topic: the nodes that would keep a replica and do not round up."""
        self._low: dict[int, int] = {}
        self._high: dict[int, int] = {}
        for at in range(len(shares)):
            self._choose(at)
        self._bound()
        self._even_out()

    @property
    def limits(self) -> dict[int, tuple[int, int]]:
        """In how many topics each node rounds up at least and at most, if the whole is even."""
        return {node: (self._low[node], self._high[node]) for node in self._nodes}

    def wanted(self, at: int, node: int) -> int:
        """Return the number of replicas of topic ``at`` that ``node`` should have."""
        return self._shares[at].low[self._racks[node]] + (node in self.ups[at])

    def _keeps(self, at: int, node: int) -> bool:
        """Return whether one more replica can stay if the node rounds up."""
        return self._loads[at].get(node, 0) > self._shares[at].low[self._racks[node]]

    def _choose(self, at: int) -> None:
        """Choose the nodes that round up in a topic: those that keep a replica by that come first."""
        share = self._shares[at]
        ups: set[int] = set()
        self.ups.append(ups)
        if not share.ups:
            return
        low = share.low
        keeping = [
            node for node, load in self._loads[at].items() if node in self._racks and load > low[self._racks[node]]
        ]
        count = self._count
        used: Counter[str] = Counter()
        owed = sum(share.least.values())
        order: Iterator[int] | list[int]
        if len(keeping) >= share.ups and len(share.share) == 1:
            order = sorted(keeping, key=lambda node: (count[node], node))
        else:
            kept = set(keeping)
            order = sorted(self._nodes, key=lambda node: (node not in kept, count[node], node))
        for node in order:
            if len(ups) == share.ups:
                break
            rack = self._racks[node]
            is_owed = used[rack] < share.least[rack]
            if used[rack] >= share.most[rack] or (not is_owed and share.ups - len(ups) <= owed):
                continue
            owed -= is_owed
            used[rack] += 1
            ups.add(node)
            count[node] += 1
            self._owned[node][at] = None
        spare = ups.symmetric_difference(keeping).difference(ups)
        if spare:
            self._spare[at] = spare

    def _bound(self) -> None:
        """Work out how often each node may round up in all."""
        kinds = Counter(self._shares)  # many topics have the same object
        sums: dict[str, Fraction] = dict.fromkeys(self._racks.values(), Fraction(0))
        lows = dict.fromkeys(sums, 0)
        for found, times in kinds.items():
            for rack, one in found.share.items():
                sums[rack] += one * times
                lows[rack] += found.low[rack] * times
        for node, rack in self._racks.items():
            self._low[node] = sums[rack].numerator // sums[rack].denominator - lows[rack]
            self._high[node] = -(-sums[rack].numerator // sums[rack].denominator) - lows[rack]

    # ------------------------------------------------------------------------------------ the whole

    def _even_out(self) -> None:
        for is_over in (True, False):
            while path := self._free_path(is_over=is_over):
                self._take(path)
        for is_over in (True, False):
            self._pay(is_over=is_over)
            while path := self._cheapest_path(is_over=is_over):
                self._take(path)

    def _ends(self, *, is_over: bool) -> tuple[list[int], set[int]]:
        """Return the nodes that must give and those that may take; or (not ``is_over``) those that may give and
        those that must take."""
        count = self._count
        if is_over:
            over = [node for node in self._nodes if count[node] > self._high[node]]
            return over, {node for node in self._nodes if count[node] < self._high[node]} if over else set()
        under = {node for node in self._nodes if count[node] < self._low[node]}
        return [node for node in self._nodes if count[node] > self._low[node]] if under else [], under

    def _may_step(self, at: int, before: int, after: int) -> bool:
        """Return whether ``after`` may round up in the place of ``before``."""
        share, mine, theirs = self._shares[at], self._racks[before], self._racks[after]
        if mine == theirs:
            return True
        used = Counter(self._racks[node] for node in self.ups[at])
        return used[mine] > share.least[mine] and used[theirs] < share.most[theirs]

    def _free_steps(self, node: int) -> Iterator[tuple[int, int]]:
        """Yield (topic, other node) of the steps that cost nothing."""
        for at in self._owned[node]:
            ups = self.ups[at]
            others = sorted(self._spare.get(at, ())) if self._keeps(at, node) else self._nodes
            for one in others:
                if one not in ups and self._may_step(at, node, one):
                    yield at, one

    def _free_path(self, *, is_over: bool) -> list[tuple[int, int, int]] | None:
        """Return steps (topic, node, other node) that cost nothing and bring the whole nearer to even."""
        sources, sinks = self._ends(is_over=is_over)
        came: dict[int, tuple[int, int] | None] = dict.fromkeys(sources)
        queue = deque(sources)
        while queue:
            node = queue.popleft()
            for at, one in self._free_steps(node):
                if one in came:
                    continue
                came[one] = (at, node)
                if one in sinks:
                    return self._path(came, one)
                queue.append(one)
        return None

    @staticmethod
    def _path(came: Mapping[int, tuple[int, int] | None], end: int) -> list[tuple[int, int, int]]:
        path: list[tuple[int, int, int]] = []
        while (step := came[end]) is not None:
            path.append((step[0], step[1], end))
            end = step[1]
        return path

    def _take(self, path: Sequence[tuple[int, int, int]]) -> None:
        for at, before, after in path:
            self.ups[at].remove(before)
            self.ups[at].add(after)
            del self._owned[before][at]
            self._owned[after][at] = None
            spare = self._spare.setdefault(at, set())
            spare.discard(after)
            if self._keeps(at, before):
                spare.add(before)
        self._count[path[-1][1]] -= 1
        self._count[path[0][2]] += 1

    def _pay(self, *, is_over: bool) -> None:
        """Take single steps that cost 1, while there are some. REQUIRES that no path is free."""
        sources, sinks = self._ends(is_over=is_over)
        taken = True
        while sources and taken:
            taken = False
            for node in sources:
                for at in list(self._owned[node]):
                    now, sinks = self._ends(is_over=is_over)
                    if node not in now:
                        break
                    ups = self.ups[at]
                    one = min(
                        (one for one in sinks if one not in ups and self._may_step(at, node, one)),
                        key=lambda one: (self._count[one], one),
                        default=None,
                    )
                    if one is not None:
                        self._take([(at, node, one)])
                        taken = True
            sources, sinks = self._ends(is_over=is_over)

    def _cheapest_path(self, *, is_over: bool) -> list[tuple[int, int, int]] | None:
        """Return the steps with the lowest cost of all that bring the whole nearer to even (Bellman and Ford)."""
        sources, sinks = self._ends(is_over=is_over)
        if not sources:
            return None
        cost = dict.fromkeys(sources, 0)
        came: dict[int, tuple[int, int] | None] = dict.fromkeys(sources)
        steps = {node: self._cheapest_steps(node) for node in self._nodes}
        for _ in self._nodes:
            changed = False
            for node in self._nodes:
                if node not in cost:
                    continue
                for one, (price, at) in steps[node].items():
                    if one not in cost or cost[node] + price < cost[one]:
                        cost[one] = cost[node] + price
                        came[one] = (at, node)
                        changed = True
            if not changed:
                break
        best = min((node for node in sinks if node in cost), key=lambda node: (cost[node], node), default=None)
        return None if best is None else self._path(came, best)

    def _cheapest_steps(self, node: int) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for at in self._owned[node]:
            mine = self._keeps(at, node)
            for one in self._nodes:
                if one not in self.ups[at] and self._may_step(at, node, one):
                    price = mine - self._keeps(at, one)
                    if one not in found or price < found[one][0]:
                        found[one] = (price, at)
        return found
