"""The three rules of placement: golden tables, and the properties that hold for any nodes and racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.controller.placement import MODULAR, PLACEMENTS, SHIFTED, STRIPED, Candidate, alternated, place

FIVE = [Candidate(number) for number in range(5)]
TWO_RACKS = [Candidate(0, "r1"), Candidate(1, "r1"), Candidate(2, "r2"), Candidate(3, "r2")]


def table(text: str) -> list[tuple[int, ...]]:
    """The replicas of each partition from ``"012 123"``."""
    return [tuple(map(int, word)) for word in text.split()]


def equal_racks(rack_count: int, size: int) -> list[Candidate]:
    """Racks of ``size`` nodes; the nodes' numbers go from rack to rack."""
    return [Candidate(number, f"r{number % rack_count}") for number in range(rack_count * size)]


def loads(placed: Sequence[tuple[int, ...]], nodes: Sequence[Candidate]) -> list[int]:
    """The number of replicas on each node."""
    found = Counter(member for replicas in placed for member in replicas)
    return [found[one.node_id] for one in nodes]


def test_striped_is_a_golden_table() -> None:
    """5 nodes, 20 partitions, 3 replicas: each round has the leaders of the one before, and moves the followers on by
    one."""
    assert place(STRIPED, 20, 3, FIVE) == table(
        "012 123 234 340 401  023 134 240 301 412  034 140 201 312 423  041 102 213 324 430"
    )


@pytest.mark.parametrize("dead", range(5))
def test_leaders_of_a_dead_node_fall_to_all_others(dead: int) -> None:
    """5 nodes, 20 partitions, 3 replicas: the second replicas of a dead leader's partitions are on the four others,
    one each."""
    heirs = Counter(replicas[1] for replicas in place(STRIPED, 20, 3, FIVE) if replicas[0] == dead)
    assert heirs == {number: 1 for number in range(5) if number != dead}


@pytest.mark.parametrize("nodes", [equal_racks(5, 1), equal_racks(1, 5)])
def test_one_node_a_rack_is_as_one_rack(nodes: list[Candidate]) -> None:
    """If each node is a rack of its own, the leaders of a dead node fall to all others too."""
    placed = place(STRIPED, 20, 3, nodes)
    for dead in range(5):
        assert Counter(replicas[1] for replicas in placed if replicas[0] == dead) == {
            number: 1 for number in range(5) if number != dead
        }


def test_shifted_is_kafkas_table() -> None:
    """5 nodes, 10 partitions, 3 replicas: the table in the documentation of Kafka's AdminUtils."""
    assert place(SHIFTED, 10, 3, FIVE) == table("012 123 234 340 401  023 134 240 301 412")


def test_shifted_alternates_racks() -> None:
    """Nodes 0 and 1 in one rack, 2 and 3 in another: the circle is 0, 2, 1, 3, and neighbours are in different
    racks."""
    assert alternated(TWO_RACKS) == [0, 2, 1, 3]
    assert place(SHIFTED, 8, 2, TWO_RACKS) == table("02 21 13 30  03 20 12 31")


def test_modular_is_the_repaired_formula() -> None:
    """Replica j of the k-th partition of node i is on (i + 1 + ((j - 1 + k) mod (n - 1))) mod n: the leader's own node
    is left out, also from p = 15 on. The second replicas of node 0's partitions are spread over all others."""
    placed = place(MODULAR, 100, 3, [Candidate(number, "any") for number in range(5)], start=3)
    for number, replicas in enumerate(placed):
        k, i = divmod(number, 5)
        assert replicas == (i, *((i + 1 + (j - 1 + k) % 4) % 5 for j in (1, 2)))
    assert Counter(replicas[1] for replicas in placed if replicas[0] == 0) == {1: 5, 2: 5, 3: 5, 4: 5}


@pytest.mark.parametrize(("rack_count", "size"), [(1, 1), (1, 5), (1, 7), (2, 3), (3, 2), (3, 3), (4, 3), (5, 1)])
def test_striped_spreads_equal_racks_within_one(rack_count: int, size: int) -> None:
    """Any number of replicas and partitions on equal racks: replicas and leaders of all nodes are within one of each
    other, and each partition is in as many racks as it can be."""
    nodes = equal_racks(rack_count, size)
    racks = {one.node_id: one.rack for one in nodes}
    for factor in range(1, len(nodes) + 1):
        for count in range(1, 2 * len(nodes) + 1):
            placed = place(STRIPED, count, factor, nodes, start=count)
            found = loads(placed, nodes)
            assert max(found) - min(found) <= 1, (factor, count)
            led = loads([replicas[:1] for replicas in placed], nodes)
            assert max(led) - min(led) <= 1, (factor, count)
            for replicas in placed:
                assert len(set(replicas)) == factor
                assert len({racks[member] for member in replicas}) == min(factor, rack_count)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Candidate], int]:
    """Nodes, some down, in racks of any size, and a replication factor."""
    count = draw(st.integers(1, 9))
    rack_count = draw(st.integers(0, 4))
    rack = st.sampled_from([f"r{number}" for number in range(rack_count)]) if rack_count else st.none()
    nodes = [Candidate(number * 3 + 1, draw(rack), draw(st.integers(0, 3)) > 0) for number in range(count)]
    if not any(one.up for one in nodes):
        nodes[-1] = nodes[-1]._replace(up=True)
    return draw(st.permutations(nodes)), draw(st.integers(1, count))


@given(clusters(), st.sampled_from(PLACEMENTS), st.integers(1, 25), st.integers(0, 30))
def test_every_rule_places_any_cluster(cluster: tuple[list[Candidate], int], rule: str, count: int, start: int) -> None:
    """No node has two replicas of a partition, a node that is up leads, the order in which nodes are given does not
    matter, and racks are kept by the two rules that know them."""
    nodes, factor = cluster
    placed = place(rule, count, factor, nodes, start)
    assert placed == place(rule, count, factor, sorted(nodes), start)
    up = {one.node_id for one in nodes if one.up}
    racks = {one.node_id: one.rack for one in nodes}
    reach = {racks[number] for number in up}
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
        assert replicas[0] in up
        if rule == STRIPED:
            assert len({racks[member] for member in replicas}) == min(factor, len(set(racks.values())))
        elif rule == SHIFTED and len(up) >= factor:
            assert len({racks[member] for member in replicas}) == min(factor, len(reach))


@given(clusters(), st.sampled_from((SHIFTED, MODULAR)), st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_a_topic_that_grows_continues_the_pattern(
    cluster: tuple[list[Candidate], int], rule: str, steps: list[int]
) -> None:
    """``shifted`` and ``modular``: a topic that grew in steps is as one that was made at once."""
    nodes, factor = cluster
    grown: list[tuple[int, ...]] = []
    for step in steps:
        grown += place(rule, step, factor, nodes, existing=grown)
    assert grown == place(rule, sum(steps), factor, nodes)


@given(st.integers(1, 9), st.data())
def test_a_striped_topic_that_grows_stays_within_one(count: int, data: st.DataObject) -> None:
    """Without racks, a topic that grew in any steps has its replicas within one of each other."""
    nodes = [Candidate(number) for number in range(count)]
    factor = data.draw(st.integers(1, count))
    grown: list[tuple[int, ...]] = []
    for step in data.draw(st.lists(st.integers(1, 2 * count), min_size=1, max_size=5)):
        grown += place(STRIPED, step, factor, nodes, data.draw(st.integers(0, 9)), grown)
        found = loads(grown, nodes)
        assert max(found) - min(found) <= 1


def test_unequal_racks_come_first() -> None:
    """Racks of 3 and 1 nodes, 2 replicas: the lone node of its rack has a replica of every partition, and the three
    others share the rest evenly."""
    nodes = [Candidate(1, "a"), Candidate(2, "a"), Candidate(3, "a"), Candidate(4, "b")]
    assert loads(place(STRIPED, 30, 2, nodes), nodes) == [10, 10, 10, 30]
