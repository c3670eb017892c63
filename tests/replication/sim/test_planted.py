"""Every checker finds something: for each number of the table there is a planted bug that is reported under it, by
the checker itself."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreplog.testing import INVARIANTS, Checker, InvariantBroken, Stage, standard_checkers
from pyreplog.testing.checkers import CommittedIdentical, stage_checkers
from pyreplog.testing.known_bad import CLUSTERS, KNOWN_BAD, ClusterVariant, Variant

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "simulation.md"
ON_A_STAGE = [type(checker) for checker in stage_checkers()]
ALONE = [name for name, variant in KNOWN_BAD.items() if any(number.startswith("C") for number in variant.numbers)]


def only(number: str) -> list[Checker]:
    """The checker of that number, and what it has to know of what was committed."""
    return [one for one in standard_checkers() if number in one.numbers or isinstance(one, CommittedIdentical)]


def said_by_a_checker(broken: InvariantBroken) -> bool:
    """Whether it was a checker that spoke: a stage finds some things by itself."""
    return any(
        "checkers" in Path(frame.f_code.co_filename).parts for frame, _ in traceback.walk_tb(broken.__traceback__)
    )


@pytest.mark.parametrize("name", CLUSTERS)
def test_caught_in_its_cluster(name: str) -> None:
    """With the variant its invariant breaks and no other, but for the one that is said to break earlier; without it
    none does."""
    variant = CLUSTERS[name]
    with pytest.raises(InvariantBroken) as caught:
        variant.perform()
    assert caught.value.rule == variant.caught_by
    if variant.before:
        with pytest.raises(InvariantBroken) as caught:
            variant.perform(every=True)
        assert caught.value.rule == variant.before
    variant.perform(right=True, every=True)


@pytest.mark.parametrize("name", ALONE)
def test_caught_by_one_checker(name: str) -> None:
    """Where all look on and where it looks on alone, the checker that the bug was planted for is the one that finds
    it."""
    variant = KNOWN_BAD[name]
    (number,) = variant.caught_by
    for checkers in (None, only(number)):
        stage = variant.stage(checkers=checkers)
        with pytest.raises(InvariantBroken) as caught:
            variant.schedule(stage)
        assert caught.value.rule == number
        assert said_by_a_checker(caught.value)
    variant.perform(right=True)


def fetch_behind_unmarked(stage: Stage) -> None:
    """A follower syncs a record, and fetches behind it."""
    stage.exchange(2)
    stage.sync(2)


def send_unmarked_high_watermark(stage: Stage) -> None:
    """A follower's second fetch raises the high watermark, and waits; the next append answers it."""
    stage.exchange(2, 2)
    stage.append(1, b"b", acks=1)


@pytest.mark.parametrize(
    ("schedule", "durability", "about"),
    [
        (fetch_behind_unmarked, "sync", "Fetch of node 2"),
        (lambda stage: stage.sync(1), "sync", "Reply of node 1"),
        (send_unmarked_high_watermark, "os", "Reply of node 1"),
    ],
)
def test_each_thing_that_the_mark_must_hold(schedule: Callable[[Stage], None], durability: str, about: str) -> None:
    """A fetch, an acknowledgement and a high watermark are each compared with the mark."""
    for right in (False, True):
        stage = KNOWN_BAD["MarkTooLate"].stage(
            right=right, checkers=only("mark"), count=2, min_insync_replicas=1, durability=durability
        )
        stage.append(1, b"a", acks=1 if durability == "sync" else -1)
        if right:
            schedule(stage)
            continue
        with pytest.raises(InvariantBroken, match=f"{about} tells 1, its mark says 0"):
            schedule(stage)


def test_a_high_watermark_that_falls() -> None:
    """S8 is of two halves, and most of what breaks it breaks the second: here it is the first."""
    with pytest.raises(InvariantBroken, match="the high watermark fell from 2 to 1"):
        KNOWN_BAD["WatermarkRecomputed"].perform()


@pytest.mark.parametrize(
    ("name", "about"), [("RotIsFetched", "no producer sent"), ("RefusesTheAppended", "was refused")]
)
def test_both_kinds_of_phantom(name: str, about: str) -> None:
    """S13 is of two halves, too: what nobody sent, and what was refused."""
    with pytest.raises(InvariantBroken, match=about):
        CLUSTERS[name].perform()


def is_reported(number: str, variant: Variant) -> bool:
    """Whether the checker of that number, looking on alone, finds the bug on a stage."""
    stage = variant.stage(checkers=only(number))
    try:
        variant.schedule(stage)
    except InvariantBroken as broken:
        return broken.rule == number and said_by_a_checker(broken)
    return False


def expects(number: str, variant: ClusterVariant) -> bool:
    """Whether that is the number under which the bug is reported, which another test shows."""
    return number in (variant.caught_by, variant.before)


@pytest.mark.parametrize("number", INVARIANTS)
def test_every_invariant_is_broken_by_something(number: str) -> None:
    """A checker that nothing planted breaks proves nothing: a new one comes with a bug that it finds."""
    if any(expects(number, variant) for variant in CLUSTERS.values()):
        return
    assert INVARIANTS[number] in ON_A_STAGE, f"no rule of CLUSTERS is reported as {number}"
    rules = sorted(KNOWN_BAD.values(), key=lambda variant: number not in variant.caught_by)
    assert any(is_reported(number, variant) for variant in rules), f"no rule is reported as {number}"


def test_the_page_shows_the_clusters_as_they_are() -> None:
    """The table in the documentation has every rule, what it breaks and its schedule."""
    rows = PAGE.read_text(encoding="utf-8").splitlines()
    assert [name for name in CLUSTERS if name in KNOWN_BAD] == []
    for name, variant in CLUSTERS.items():
        breaks = f"{variant.before}, then {variant.caught_by}" if variant.before else variant.caught_by
        assert (
            f"| {', '.join(variant.numbers)} | `{name}` | {variant.about} | {breaks} | {variant.schedule.__name__} |"
            in rows
        )
