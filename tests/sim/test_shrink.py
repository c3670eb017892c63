"""A failing run is made smaller without losing its failure."""

from __future__ import annotations

import dataclasses

import pytest

from pyreplog.testing import FaultRates, InvariantBroken, TopicOptions, World, WorldOptions
from pyreplog.testing.__main__ import main
from pyreplog.testing.shrink import shrink
from pyreplog.testing.variants import NoMinimum
from tests.sim.cluster import QUICK


def test_a_failing_seed_says_how_to_repeat_it_and_shrinks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with 1, names the rule, the one command that repeats it, and a smaller world that breaks it, too."""
    monkeypatch.setitem(shrink.__globals__, "TRIES_MAX", 4)
    words = "python -m pyreplog.testing --seed 3 --variant AckBeforeFsync"
    monkeypatch.setattr("sys.argv", words.split()[2:])
    assert main() == 1
    failure, smaller = capsys.readouterr().out.split("shrinking ...\n")
    rule = failure.partition(" does not hold")[0].splitlines()[-1].split()[0]
    assert rule in ("S8", "S14", "S1")
    assert f"repeat with: {words}\n" in failure
    assert smaller.startswith("it also fails as World(3, WorldOptions(")
    assert ", replica_class=AckBeforeFsync).run():\n" in smaller
    assert f"\n{rule} (" in smaller


def test_shrinking_keeps_the_broken_rule() -> None:
    """What the failure does not need goes: topics, producers, kinds of faults, time."""
    options = WorldOptions(
        topics=(TopicOptions("t", durability="os", acks=1), TopicOptions("u", partitions=2)),
        producers=2,
        burst_interval_ms=15,
        safety_ms=3000,
        faults=dataclasses.replace(FaultRates.none(), interval_ms=100, lasting_ms=200, kill=3, isolate=1, slow_link=1, clean_restart=1),
        config=QUICK,
    )

    for seed in range(60):

        def run(smaller: WorldOptions, seed: int = seed) -> None:
            World(seed, smaller, replica_class=NoMinimum).run()

        try:
            run(options)
        except InvariantBroken as broken:
            smaller, last = shrink(options, run, broken.rule)
            assert last is not None
            assert last.rule == broken.rule
            assert dataclasses.asdict(smaller) != dataclasses.asdict(options)
            assert len(smaller.topics) <= len(options.topics)
            with pytest.raises(InvariantBroken):
                run(smaller)
            return
    pytest.fail("never caught")
