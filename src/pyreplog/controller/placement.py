"""Placement of new partitions on nodes: three rules, each a pure function.

``striped`` is Kafka's striped placement with a rotation in the place of its random shuffle;
``shifted`` and ``modular`` are those of Kafka's first releases. No partition has two replicas on one
node. With racks, ``striped`` and ``shifted`` put each partition into as many racks as it can reach.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["MODULAR", "PLACEMENTS", "SHIFTED", "STRIPED", "Candidate", "alternated", "place"]

STRIPED: Final = "striped"
SHIFTED: Final = "shifted"
MODULAR: Final = "modular"
PLACEMENTS: Final = (STRIPED, SHIFTED, MODULAR)
"""The names of the rules; the first is the default."""

Replicas = tuple[int, ...]


class Candidate(NamedTuple):
    """A node that may get replicas. A node that is not ``up`` never leads a new partition."""

    node_id: int
    rack: str | None = None
    up: bool = True


def place(
    rule: str, count: int, factor: int, nodes: Sequence[Candidate], start: int = 0, existing: Sequence[Replicas] = ()
) -> list[Replicas]:
    """Return the replicas of ``count`` new partitions of a topic, leader first.

    ``start``: the place of the first leader in the circle of nodes, for ``striped``. The other two
    always begin with the first node, so their tables do not depend on other topics. ``existing``:
    the partitions that the topic has; the new ones continue the pattern.

    REQUIRES a node that is up, ``factor`` at most the number of nodes, and a rack for every node or
    for none.
    """
    if rule == STRIPED:
        return _Striped(factor, nodes, start, existing).place(count)
    ups = [one for one in nodes if one.up]
    circle = alternated(ups) if rule == SHIFTED else sorted(one.node_id for one in ups)
    racks = {one.node_id: one.rack for one in nodes} if rule == SHIFTED else {}
    spare = sorted(one.node_id for one in nodes if not one.up)
    numbers = range(len(existing), len(existing) + count)
    return [_shifted(number, factor, circle, spare, racks) for number in numbers]


def alternated(nodes: Sequence[Candidate]) -> list[int]:
    """Return the nodes so that neighbours are in different racks: the first node of each rack, then
    the second of each, and so on. Racks go by name, nodes by number."""
    racks: dict[str, deque[int]] = {}
    for one in sorted(nodes, key=lambda one: (one.rack or "", one.node_id)):
        racks.setdefault(one.rack or "", deque()).append(one.node_id)
    found: list[int] = []
    while racks:
        for name in list(racks):
            found.append(racks[name].popleft())
            if not racks[name]:
                del racks[name]
    return found


def _shifted(
    number: int, factor: int, circle: Sequence[int], spare: Sequence[int], racks: dict[int, str | None]
) -> Replicas:
    """Return the replicas of one partition. The leaders go round the circle; in each further round the
    followers are one place further away from their leader.

    This is Kafka's ``AdminUtils`` with start and shift 0. ``spare``: nodes that only fill places that
    the nodes of the circle cannot fill.
    """
    count = len(circle)
    shift, first = divmod(number, count)
    found = [circle[first]]
    rack_count = len({racks.get(one) for one in circle})
    used = {racks.get(found[0])}
    at = shift * rack_count
    while len(found) < min(factor, count):
        one = circle[(first + 1 + at % (count - 1)) % count]
        at += 1
        if one in found or (racks.get(one) in used and len(used) < rack_count):
            continue
        found.append(one)
        used.add(racks.get(one))
    turn = number % len(spare) if spare else 0
    return (*found, *[*spare[turn:], *spare[:turn]][: factor - len(found)])


class _Striped:
    """The striped placement of one topic.

    The leaders go round the circle of nodes, in which racks alternate. The followers of a partition
    are in the racks behind the leader's, one in each before a rack gets a second one. Each round of
    n partitions has every node once as leader, and moves the followers on by one: to the next node
    of their racks, and after a whole rack to the next order of racks. So a whole round gives each
    node of equal racks the same number of replicas, and the leaders of a node that dies fall to all
    others. A round that is not whole, and every round of racks that are not equal, gets its followers
    by the numbers of replicas instead.
    """

    def __init__(self, factor: int, nodes: Sequence[Candidate], start: int, existing: Sequence[Replicas]) -> None:
        self._factor = factor
        self._rack_of = {one.node_id: one.rack or "" for one in nodes}
        self._names = sorted(set(self._rack_of.values()))
        ups = [one for one in nodes if one.up]
        self._circle = alternated(ups)
        self._up = {name: sorted(one.node_id for one in ups if (one.rack or "") == name) for name in self._names}
        self._down = {
            name: sorted(one.node_id for one in nodes if not one.up and (one.rack or "") == name)
            for name in self._names
        }
        self._is_even = len({len(members) for members in self._up.values()}) == 1
        self._existing = existing
        self._start = start
        if existing and existing[0][0] in self._circle:
            self._start = self._circle.index(existing[0][0])

    def place(self, count: int) -> list[Replicas]:
        """Return the replicas of the next ``count`` partitions."""
        size = len(self._circle)
        loads: Counter[int] = Counter(member for replicas in self._existing for member in replicas)
        led = Counter(replicas[0] for replicas in self._existing)
        first, end = len(self._existing), len(self._existing) + count
        placed: list[Replicas] = []
        while first < end:
            stop = min(end, first - first % size + size)
            numbers = range(first, stop)
            if self._is_even and len(numbers) == size:
                part = [self._in_whole_round(number) for number in numbers]
            elif self._existing:
                part = self._grown(numbers, loads, led)
            else:
                part = self._by_load(numbers, loads)
            for replicas in part:
                loads.update(replicas)
                led[replicas[0]] += 1
            placed += part
            first = stop
        return placed

    def _leader(self, number: int) -> int:
        return self._circle[(self._start + number) % len(self._circle)]

    def _in_whole_round(self, number: int) -> Replicas:
        """Return the replicas of a partition of a whole round."""
        leader = self._leader(number)
        found = [leader]
        order = self._walk(leader, number)
        used = dict.fromkeys(self._names, 0)
        at = 0
        while len(found) < self._factor:
            name = order[at % len(order)]
            at += 1
            members = self._members(name, leader, number)
            if used[name] < len(members):
                found.append(members[used[name]])
                used[name] += 1
        return tuple(found)

    def _walk(self, leader: int, number: int) -> list[str]:
        """Return the racks in the order in which a partition's followers take them, its leader's last."""
        mine = self._names.index(self._rack_of[leader])
        others = self._names[mine + 1 :] + self._names[:mine]
        if others:
            largest = max(len(members) for members in self._up.values())
            turn = number // len(self._circle) // largest % len(others)
            others = others[turn:] + others[:turn]
        return [*others, self._names[mine]]

    def _members(self, name: str, leader: int, number: int) -> list[int]:
        """Return the possible followers in a rack, in the order in which the partition takes them."""
        up, down = self._up[name], self._down[name]
        home = self._up[self._rack_of[leader]]
        place, turn = home.index(leader), number // len(self._circle)
        if home is up:
            up = up[place + 1 :] + up[:place]
            place = 0
        found: list[int] = []
        for members in (up, down):
            if members:
                first = (place + turn) % len(members)
                found += members[first:] + members[:first]
        return found

    # ---------------------------------------------------------------------------- a round not whole

    def _by_load(self, numbers: range, loads: Counter[int]) -> list[Replicas]:
        """Return the replicas of partitions that are no whole round: each follower is the node with the
        fewest replicas of the topic. The leaders are known, so they count before any follower."""
        leaders = [self._leader(number) for number in numbers]
        loads = loads.copy()
        loads.update(leaders)
        ahead = Counter(leaders)
        placed: list[list[int]] = []
        for number, leader in zip(numbers, leaders, strict=True):
            ahead[leader] -= 1
            placed.append(self._with_followers(number, leader, loads, ahead))
        if self._is_even:
            self._level(placed, loads)
        return [tuple(replicas) for replicas in placed]

    def _grown(self, numbers: range, loads: Counter[int], led: Counter[int]) -> list[Replicas]:
        """Return the replicas of partitions that go on with a round.

        Each goes to the nodes with the fewest replicas, because the round began for another number of
        partitions. The one with the fewest leaders leads.
        """
        loads, led = loads.copy(), led.copy()
        placed: list[list[int]] = []
        for number in numbers:
            turn = (self._start + number) % len(self._circle)
            first = min(self._circle[turn:] + self._circle[:turn], key=lambda one: (loads[one], led[one]))
            loads[first] += 1
            replicas = self._with_followers(number, first, loads, Counter())
            leader = min((one for one in replicas if one in self._circle), key=led.__getitem__)
            replicas.remove(leader)
            led[leader] += 1
            placed.append([leader, *replicas])
        if self._is_even:
            self._level(placed, loads)
        return [tuple(replicas) for replicas in placed]

    def _with_followers(self, number: int, leader: int, loads: Counter[int], liked: Counter[int]) -> list[int]:
        """Return the replicas of a partition, and count its followers. Among nodes with equally many
        replicas, those with more of ``liked`` come first."""
        replicas = [leader]
        turns = {name: at for at, name in enumerate(self._walk(leader, number))}
        orders = {name: self._members(name, leader, number) for name in self._names}
        while len(replicas) < self._factor:
            used = Counter(self._rack_of[member] for member in replicas)
            free = {name: [one for one in members if one not in replicas] for name, members in orders.items()}
            least = min(used[name] for name, left in free.items() if left)
            best = min(
                (one not in self._up[name], loads[one], -liked[one], turns[name], at, one)
                for name, left in free.items()
                if left and used[name] == least
                for at, one in enumerate(left)
            )
            replicas.append(best[-1])
            loads[best[-1]] += 1
        return replicas

    def _level(self, placed: list[list[int]], loads: Counter[int]) -> None:
        """Exchange followers until no node that is up has two replicas more than another, if that is
        possible."""
        while True:
            low = min(self._circle, key=loads.__getitem__)
            path = self._path_to(low, placed, loads)
            if path is None:
                return
            for replicas, before, after in path:
                replicas[replicas.index(before)] = after
                loads[before] -= 1
                loads[after] += 1

    def _path_to(
        self, low: int, placed: list[list[int]], loads: Counter[int]
    ) -> list[tuple[list[int], int, int]] | None:
        """Return the exchanges of followers that give ``low`` one replica more, and one less to a node that
        has at least two more. None: there are none."""
        reached: dict[int, list[tuple[list[int], int, int]]] = {low: []}
        queue = deque([low])
        while queue:
            node = queue.popleft()
            for replicas in placed:
                if node in replicas:
                    continue
                racks = Counter(self._rack_of[one] for one in replicas)
                for other in replicas[1:]:
                    mine, theirs = self._rack_of[node], self._rack_of[other]
                    is_apart = mine == theirs or racks[theirs] > racks[mine]
                    is_used = any(replicas is step[0] for step in reached[node])
                    if other in reached or not is_apart or is_used or loads[other] <= loads[low]:
                        continue
                    reached[other] = [(replicas, other, node), *reached[node]]
                    if loads[other] >= loads[low] + 2:
                        return reached[other]
                    queue.append(other)
        return None
