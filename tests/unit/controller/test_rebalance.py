"""The plan of a rebalance: the goal is reached with the fewest moves, as a slow flow of all replicas finds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.controller.fair_shares import share_of
from pyreplog.controller.placement import STRIPED, Candidate, place
from pyreplog.controller.rebalance import PlannedTopic, RebalancePlan, plan_rebalance
from tests.oracle.fewest_moves import fewest_moves

Racks = dict[int, str | None]


def planned(name: str, *partitions: Sequence[int]) -> PlannedTopic:
    """A topic whose partitions have 10 bytes each."""
    return PlannedTopic(name, partitions, [10] * len(partitions))


def after(topics: Sequence[PlannedTopic], plan: RebalancePlan) -> list[list[tuple[int, ...]]]:
    """The replicas of each topic once the plan is carried out; each move is checked against them."""
    found = []
    for topic in topics:
        now = [plan.assignment.get((topic.name, number), tuple(one)) for number, one in enumerate(topic.replicas)]
        for number, (old, new) in enumerate(zip(topic.replicas, now, strict=True)):
            moves = [one for one in plan.moves if (one.topic, one.partition) == (topic.name, number)]
            assert {one.source for one in moves} == set(old) - set(new)
            assert {one.target for one in moves} == set(new) - set(old)
            assert len(moves) == len(set(old) - set(new))
            assert all(a == b or b not in old for a, b in zip(old, new, strict=True)), (
                "a kept replica changed its place"
            )
        found.append(now)
    return found


def check(topics: Sequence[PlannedTopic], racks: Racks, plan: RebalancePlan, frozen: Racks | None = None) -> None:
    """No node twice, only allowed nodes, racks, each topic and the whole within one."""
    frozen = frozen or {}
    known = {**racks, **frozen}
    rack_count = len(set(known.values()))
    totals: Counter[int] = Counter()
    for topic, partitions in zip(topics, after(topics, plan), strict=True):
        loads: Counter[int] = Counter()
        for old, new in zip(topic.replicas, partitions, strict=True):
            assert len(set(new)) == len(old)
            assert set(new) <= set(known)
            assert {one for one in old if one in frozen} == {one for one in new if one in frozen}
            if rack_count > 1:
                assert len({known[one] for one in new}) == min(len(new), rack_count)
            loads.update(new)
        assert max(loads[one] for one in racks) - min(loads[one] for one in racks) <= 1
        totals.update(loads)
    if not frozen:
        assert max(totals[one] for one in racks) - min(totals[one] for one in racks) <= 1


@st.composite
def clusters(draw: st.DrawFn, *, has_racks: bool = False) -> tuple[list[PlannedTopic], Racks, list[int]]:
    """Topics whose replicas are anywhere, the nodes that stay, and the nodes that leave."""
    rack_count = draw(st.integers(2, 3)) if has_racks else 1
    size = draw(st.integers(1, 2 if has_racks else 5))
    racks: Racks = {node: f"r{node % rack_count}" if has_racks else None for node in range(rack_count * size)}
    others = [100 + node for node in range(draw(st.integers(0, 2)))]
    homes = [*list(racks)[: draw(st.integers(1, len(racks)))], *others]
    random = Random(draw(st.integers(0, 1 << 32)))
    topics = []
    for number in range(draw(st.integers(1, 4))):
        factor = draw(st.integers(1, min(3, len(racks), len(homes))))
        partitions = [random.sample(homes, factor) for _ in range(draw(st.integers(1, 6)))]
        topics.append(planned(f"t{number}", *partitions))
    return topics, racks, others


@given(clusters())
def test_fewest_moves_without_racks(cluster: tuple[list[PlannedTopic], Racks, list[int]]) -> None:
    """Replicas anywhere, nodes that are new, nodes that leave: the goal is reached, and no flow has fewer moves."""
    topics, racks, _ = cluster
    plan = plan_rebalance(topics, racks)
    check(topics, racks, plan)
    assert len(plan.moves) == plan.minimum == fewest_moves([one.replicas for one in topics], racks)


@given(clusters())
def test_fewest_moves_beside_frozen_nodes(cluster: tuple[list[PlannedTopic], Racks, list[int]]) -> None:
    """Replicas on frozen nodes stay, and the others are spread over the other nodes."""
    topics, racks, others = cluster
    frozen: Racks = dict.fromkeys(others)
    plan = plan_rebalance(topics, racks, frozen)
    check(topics, racks, plan, frozen)
    assert len(plan.moves) == plan.minimum == fewest_moves([one.replicas for one in topics], racks, others)


@given(clusters(has_racks=True))
def test_fewest_moves_with_racks(cluster: tuple[list[PlannedTopic], Racks, list[int]]) -> None:
    """Equal racks: each partition is in as many racks as it can be, besides."""
    topics, racks, _ = cluster
    plan = plan_rebalance(topics, racks)
    check(topics, racks, plan)
    assert len(plan.moves) == plan.minimum == fewest_moves([one.replicas for one in topics], racks)


@given(clusters(), st.booleans())
def test_a_plan_is_a_function_of_the_cluster(
    cluster: tuple[list[PlannedTopic], Racks, list[int]], turned: bool
) -> None:
    """The same cluster has the same plan, in whichever order its nodes are given; and after it there is nothing to
    move."""
    topics, racks, _ = cluster
    plan = plan_rebalance(topics, racks)
    assert plan == plan_rebalance(topics, dict(reversed(racks.items())) if turned else racks)
    again = [planned(one.name, *new) for one, new in zip(topics, after(topics, plan), strict=True)]
    assert plan_rebalance(again, racks).moves == ()


def test_growth_moves_what_the_new_nodes_need() -> None:
    """5 nodes with 60 replicas become 7: 7 nodes within one of each other, and each of the two new ones got 8 or 9."""
    nodes = [Candidate(number) for number in range(1, 6)]
    topics = [planned(name, *place(STRIPED, 10, 3, nodes, start)) for start, name in enumerate("ab")]
    racks: Racks = dict.fromkeys(range(1, 8))
    plan = plan_rebalance(topics, racks)
    check(topics, racks, plan)
    assert len(plan.moves) == plan.minimum == 16
    assert {move.target for move in plan.moves} == {6, 7}
    assert plan.bytes == 160


def test_a_placed_topic_needs_no_move() -> None:
    """Striped placement is a goal of the rebalance: on equal racks, and on racks that are not equal."""
    for rack_of in ({}, {1: "a", 2: "a", 3: "b", 4: "b"}, {1: "a", 2: "a", 3: "a", 4: "b"}):
        racks: Racks = {node: rack_of.get(node) for node in (1, 2, 3, 4)}
        nodes = [Candidate(node, rack) for node, rack in racks.items()]
        topic = planned("t", *place(STRIPED, 12, 2, nodes))
        assert plan_rebalance([topic], racks).moves == (), racks


def test_a_replica_stands_in_the_way() -> None:
    """Node 3 leaves, and its replica could only go to a node that has one: another replica makes room, and two moves
    are the fewest."""
    topics = [planned("t", (3, 0), (1, 2), (1, 2))]
    plan = plan_rebalance(topics, dict.fromkeys((0, 1, 2)))
    check(topics, dict.fromkeys((0, 1, 2)), plan)
    assert (len(plan.moves), plan.minimum) == (2, 2)


def test_racks_come_first() -> None:
    """The lone node of its rack has a replica of every partition; the plan names it and says why."""
    racks: Racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    topics = [planned("t", *[(1, 2), (2, 3), (3, 1)] * 3)]
    plan = plan_rebalance(topics, racks)
    loads = Counter(member for one in after(topics, plan)[0] for member in one)
    assert loads == {1: 3, 2: 3, 3: 3, 4: 9}
    assert (len(plan.moves), plan.minimum) == (9, 9)
    assert plan.notes == (
        "node 4 carries 9 replicas, more than the average of 4.5, because rack 'b' has 1 of 4 nodes, and racks come"
        " first",
    )
    assert "two replicas are in rack 'a', and none is in rack 'b'" in str(plan)


def test_a_plan_says_why() -> None:
    """Each move has its reason: a node that leaves, a topic, or the whole; the text shows the first of them."""
    racks: Racks = dict.fromkeys((1, 2))
    assert plan_rebalance([planned("t", (9,))], racks).moves[0].why == "node 9 leaves"
    (move,) = plan_rebalance([planned("t", (1,), (1,))], racks).moves
    assert move.why == "node 1 has 2 replicas of 't', and node 2 has 0"
    (move,) = plan_rebalance([planned("t", (1,)), planned("u", (1,))], racks).moves
    assert move.why == "node 1 has 2 replicas in all, and node 2 has 0"
    text = str(plan_rebalance([planned("t", *[(1,)] * 60)], racks))
    assert text.splitlines()[0] == "30 moves, 300 bytes; the fewest possible"
    assert text.splitlines()[1] == (
        "  t-59: node 1 -> node 2, 10 bytes: node 1 has 60 replicas of 't', and node 2 has 0"
    ) or text.splitlines()[1].startswith("  t-")
    assert text.splitlines()[-1] == "  and 10 more"
    assert str(plan_rebalance([planned("t", (1,), (2,))], racks)) == "nothing to move: every node has its share"


def test_small_partitions_move_first() -> None:
    """Of the partitions whose move would help, the smallest are taken."""
    topic = PlannedTopic("t", [(1,)] * 4, [40, 10, 30, 20])
    plan = plan_rebalance([topic], dict.fromkeys((1, 2)))
    assert sorted(move.bytes for move in plan.moves) == [10, 20]


@pytest.mark.parametrize(
    ("total", "sizes", "least", "most", "share"),
    [
        (10, {"": 4}, {"": 0}, {"": 40}, {"": Fraction(5, 2)}),
        (20, {"a": 3, "b": 1}, {"a": 10, "b": 10}, {"a": 10, "b": 10}, {"a": Fraction(10, 3), "b": Fraction(10)}),
        # 3 replicas in two racks: a lone node has one of each partition.
        (30, {"a": 3, "b": 1}, {"a": 10, "b": 10}, {"a": 30, "b": 10}, {"a": Fraction(20, 3), "b": Fraction(10)}),
        # 2 replicas in three racks: the large rack cannot have more than one of each.
        (20, {"a": 6, "b": 1, "c": 1}, dict.fromkeys("abc", 0), dict.fromkeys("abc", 10), None),
    ],
)
def test_shares(
    total: int,
    sizes: Mapping[str, int],
    least: Mapping[str, int],
    most: Mapping[str, int],
    share: Mapping[str, Fraction] | None,
) -> None:
    """A share is the same for all nodes, as far as the limits of racks allow it; nothing is lost by rounding."""
    found = share_of(total, sizes, least, most)
    assert sum(found.share[rack] * size for rack, size in sizes.items()) == total
    assert sum(found.low[rack] * size for rack, size in sizes.items()) + found.ups == total
    if share is not None:
        assert found.share == share
    for rack, size in sizes.items():
        assert least[rack] <= found.share[rack] * size <= most[rack]
