"""Every known way to get replication wrong is caught by the checker named, in its schedule; the same schedule
leaves the true rules unharmed. Random walks over the true rules break nothing; the soak finds the known-bad ones by
walking."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.testing import INVARIANTS, InvariantBroken, SimDisk, Stage, Walk, search
from pyreplog.testing.known_bad import KNOWN_BAD, NoMinimum
from tests.unit.log.support import batch, create, raw, reopen, sync_in_place

WALKS = 240
PAGE = Path(__file__).parents[3] / "docs" / "internals" / "simulation.md"
LISTED = [f"V{number}" for number in (*range(1, 21), 22, 23, 28, 29, 30, 31, 34, 36, 37, 39)]
PLANTED = [str(number) for number in range(26, 38)]


def test_the_catalogue_is_whole() -> None:
    """Every variant of the specification and every planted bug of replication is there, and names invariants that
    exist."""
    shown = [number for variant in KNOWN_BAD.values() for number in variant.numbers]
    assert [number for number in (*LISTED, *PLANTED, "R1", "R2") if number not in shown] == []
    for name, variant in KNOWN_BAD.items():
        assert variant.name == name
        assert all(rule in INVARIANTS for rule in variant.caught_by)
        assert variant.about or not variant.kinds
        assert variant.harmless or variant.caught_by


def test_the_page_shows_it_as_it_is() -> None:
    """The table in the documentation has every rule as its class says it, what it breaks, its schedule and its
    budget."""
    page = PAGE.read_text(encoding="utf-8")
    for name, variant in KNOWN_BAD.items():
        breaks = ", ".join(variant.caught_by) or "nothing: it is the price that is shown"
        listed, budget = ", ".join(variant.numbers), variant.search or "-"
        assert f"| {listed} | `{name}` | {variant.about}" in page
        assert f" | {breaks} | {variant.schedule.__name__} | {budget} |" in next(
            row for row in page.splitlines() if f"| `{name}` |" in row
        )


@pytest.mark.parametrize("name", [name for name, variant in KNOWN_BAD.items() if not variant.harmless])
def test_caught_in_its_schedule(name: str) -> None:
    """With the variant one of the invariants named breaks; without it none does (but for what a person asked for:
    unclean elections)."""
    variant = KNOWN_BAD[name]
    with pytest.raises(InvariantBroken) as caught:
        variant.perform()
    assert caught.value.rule in variant.caught_by
    if variant.kinds:
        variant.perform(right=True)


def rounds_until_known(name: str | None) -> int:
    """Fetches of each follower until an append is acknowledged."""
    stage = Stage() if name is None else KNOWN_BAD[name].stage()
    number = stage.append(1, b"a")
    for rounds in range(1, 10):
        stage.exchange(2, 3)
        if stage.code(number) == 0:
            return rounds
        stage.pass_time(2)
        for letter in stage.letters("records"):
            stage.deliver(letter)
    raise AssertionError("never acknowledged")


def test_the_first_rejected_fix_costs_a_round_trip() -> None:
    """Waiting until the followers know the high watermark breaks nothing, and every append takes one more round."""
    KNOWN_BAD["WaitsForFollowersToKnow"].perform()
    assert rounds_until_known(None) == 2
    assert rounds_until_known("WaitsForFollowersToKnow") == 3


@pytest.mark.parametrize("seed", range(20))
def test_epochs_may_reach_the_disk_after_their_batches(seed: int) -> None:
    """V38: that the epoch history is not awaited is harmless. Whatever power loss leaves of it, the mark does not
    vouch for a stale one, it is made anew from the batches, and an epoch without any batch is no loss: whoever
    leads again leads in a new one."""
    disk = SimDisk(Random(seed), manual=True)
    disk.make_directory("logs")
    disk.sync_directory(".")
    log = create(disk, "logs/t-0", LogConfig(segment_bytes=1200))
    disk.sync_directory("logs")
    for epoch in range(1, 5):
        log.become_leader(epoch)
        for number in range(3):
            log.append_as_leader(batch(1, tag=b"%d-%d" % (epoch, number)), epoch)
        sync_in_place(disk, log)
    log.become_leader(9)
    expected, histories = raw(log), [entry for entry in log.epochs.entries if entry.start_offset < log.end_offset]
    found = reopen(disk.crash(Random(seed)), "logs/t-0", same_boot=False)
    assert raw(found) == expected
    assert [entry for entry in found.epochs.entries if entry.start_offset < found.end_offset] == histories


def test_walks_over_the_true_rules(record_property: Callable[[str, object], None]) -> None:
    """No walk breaks an invariant, and every one heals."""
    begun, steps = time.process_time(), 0
    for seed in range(WALKS):
        steps += Walk(seed).run().steps
    seconds = time.process_time() - begun
    record_property(
        "simulation", f"{WALKS} walks, {steps:,} steps, {steps / seconds:,.0f} a second: no invariant broke"
    )


def test_walks_over_unclean_elections(record_property: Callable[[str, object], None]) -> None:
    """Elections by who is left, whatever it has: records are lost, and with them what rests on their being kept;
    but logs that say the same are the same, every log opens again, nobody asks for ever, and all agree in the
    end."""
    costs = {"S1": 0, "S8": 0, "S12": 0}
    for seed in range(WALKS):
        try:
            Walk(seed, "OneQuestionUnclean", right=True).run()
        except InvariantBroken as broken:
            assert broken.rule in costs, broken
            costs[broken.rule] += 1
    assert sum(costs.values()) < WALKS / 2
    record_property(
        "simulation",
        f"{WALKS} walks with unclean elections: {sum(costs.values())} lost something acknowledged, nothing else",
    )


def test_a_walk_is_its_seed() -> None:
    """The same seed walks the same way, and a failing one says how to repeat it."""
    assert Walk(7).run().events == Walk(7).run().events
    assert Walk(7).run().events != Walk(8).run().events
    found = search("NoMinimum", 20)
    assert found is not None
    seed, broken = found
    assert broken.replay == f"python -m pyreplog.testing --walk {seed} --variant NoMinimum"
    assert KNOWN_BAD["NoMinimum"].kinds["replica_class"] is NoMinimum


@pytest.mark.parametrize(
    "name", ["AckBeforeFsync", "NonDurableFollower", "TruncateToHighWatermark", "EpochEndOffByOne", "MarkTooLate"]
)
def test_found_soon_by_walking(name: str) -> None:
    """A walk within the budget breaks an invariant; the same walk with the true rules does not."""
    found = search(name, KNOWN_BAD[name].search)
    assert found is not None, f"not within {KNOWN_BAD[name].search} walks"
    Walk(found[0], name, right=True).run()


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [name for name, variant in KNOWN_BAD.items() if variant.search])
def test_found_by_walking(name: str) -> None:
    """A walk within the budget breaks an invariant; the same walk with the true rules does not."""
    found = search(name, KNOWN_BAD[name].search)
    assert found is not None, f"not within {KNOWN_BAD[name].search} walks"
    assert found[1].rule in KNOWN_BAD[name].caught_by
    try:
        Walk(found[0], name, right=True).run()
    except InvariantBroken as broken:
        # What an unclean election costs breaks others, whatever the rules.
        assert "unclean" in KNOWN_BAD[name].settings
        assert broken.rule not in KNOWN_BAD[name].caught_by


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_walks_over_the_true_rules(record_property: Callable[[str, object], None]) -> None:
    """Ten thousand walks."""
    steps = sum(Walk(seed).run().steps for seed in range(10_000))
    record_property("simulation", f"10,000 walks, {steps:,} steps: no invariant broke")
