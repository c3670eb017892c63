"""Compacted topics in simulated clusters: random faults find each planted bug of compaction, and leave the real thing
unharmed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pyreplog.testing import FaultRates, InvariantBroken, TopicOptions, World, WorldOptions
from pyreplog.testing.known_bad import cleaners
from tests.replication.sim.cluster import QUICK

SEEDS_MAX = 12
TOPIC = TopicOptions(
    "t",
    durability="os",
    segment_bytes=2048,
    cleanup_policy="compact",
    keys=30,
    tombstones=0.4,
    delete_retention_ms=100,
)
OPTIONS = WorldOptions(
    topics=(TOPIC,),
    burst_interval_ms=15,
    value_size_max=60,
    safety_ms=1500,
    liveness_ms=20_000,
    compaction_interval_ms=30,
    sync_delay_max_us=20_000,
    faults=replace(FaultRates.none(), interval_ms=200, lasting_ms=600, kill=2, power_loss=1, isolate=2, pause=1),
    config=QUICK,
)
EVERY_MOMENT = (
    "a pass",
    "a whole pass",
    "a swap of a leader",
    "a dropped tombstone",
    "a gap that a follower took",
    "a pass that its process did not survive",
)
PARTS: list[dict[str, Any]] = [
    {"cleaner_class": cleaners.NewestDropped},
    {"cleaner_class": cleaners.OlderKept},
    {"cleaner_class": cleaners.HorizonForgotten},
    {"cleaner_class": cleaners.HorizonIgnored},
    {"log_class": cleaners.CleansAboveWatermark},
    {"log_class": cleaners.DropsUnfetched},
    {"log_class": cleaners.GapsUnrecorded},
]


@pytest.mark.parametrize("parts", PARTS, ids=lambda parts: next(iter(parts.values())).__name__)
def test_caught_by_seeds(parts: dict[str, Any]) -> None:
    """A bounded number of seeds finds the bug, and the checker of compaction reports it."""
    for seed in range(SEEDS_MAX):
        try:
            World(seed, OPTIONS, **parts).run()
        except InvariantBroken as broken:
            assert broken.rule == "compaction"
            return
    pytest.fail(f"not caught within {SEEDS_MAX} seeds")


def test_the_real_thing_is_well() -> None:
    """Under those seeds no invariant breaks, and passes, faults and replicas meet as they should."""
    seen: dict[str, int] = {}
    for seed in range(10):
        world = World(seed, OPTIONS)
        world.run()
        for what, times in world.seen.items():
            seen[what] = seen.get(what, 0) + times
    assert not [what for what in EVERY_MOMENT if what not in seen]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", range(4))
def test_soak(group: int) -> None:
    """Six hundred clusters as a seed draws them, each with compacted topics; together they meet every moment."""
    seen: dict[str, int] = {}
    for seed in range(20_000 + group, 20_600, 4):
        world = World(seed, WorldOptions.drawn(Random(seed), compacted=True))
        world.run()
        for what, times in world.seen.items():
            seen[what] = seen.get(what, 0) + times
    assert not [what for what in EVERY_MOMENT if what not in seen]


def test_a_pass_over_damage_is_no_pass() -> None:
    """A pass that finds damage which nobody planted breaks an invariant; it does not end in silence."""
    world = World(1, replace(OPTIONS, faults=FaultRates.none()))
    world.run_for(500)
    machine, hosted = next((one, copy) for one, copy in world.compactions.copies() if not copy.replica.is_leader)
    machine.disk.flip(f"{machine.address}/{hosted.topic_partition}/00000000000000000000.log", 100)
    with pytest.raises(InvariantBroken, match="compaction .* does not hold: pass over t-0 of node"):
        world.compactions.compact(machine, hosted, closes=True, at_once=True)


def test_a_topic_that_is_not_compacted_lets_no_record_go() -> None:
    """Its checkers allow no gap: a copy that was compacted by mistake is found at once."""
    world = World(1, replace(OPTIONS, topics=(replace(TOPIC, cleanup_policy="delete"),), faults=FaultRates.none()))
    world.run_for(500)
    assert world.compactions.copies() == []
    for machine in world.machines.values():
        for hosted in machine.node.hosted.values() if machine.node is not None else ():
            log = hosted.replica.load_log()
            log.retune(replace(log.config, cleanup_policy="compact"))
            with pytest.raises(InvariantBroken, match="its topic is not compacted"):
                world.compactions.compact(machine, hosted, closes=True, at_once=True)
            return
