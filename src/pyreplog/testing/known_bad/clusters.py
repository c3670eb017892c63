"""The known-bad rules that take a whole cluster: they need clients, timeouts and a controller
beyond a network.

Each rule tests one checker that no schedule on a stage reaches: only that checker may report it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pyreplog.config import NodeConfig
from pyreplog.testing.checkers import standard_checkers
from pyreplog.testing.known_bad import cleaners, clients, controllers, followers, leaders, logs, nodes, servers
from pyreplog.testing.known_bad import cluster_schedules as schedules
from pyreplog.testing.options import FaultRates, TopicOptions, WorldOptions
from pyreplog.testing.world import World

__all__ = ["CLUSTERS", "ClusterVariant"]

QUICK: Final = NodeConfig(
    replica_lag_time_max_ms=300,
    replica_fetch_wait_max_ms=100,
    heartbeat_interval_ms=100,
    session_timeout_ms=600,
    recovery_point_checkpoint_interval_ms=60_000,
    high_watermark_checkpoint_interval_ms=60_000,
)
CALM: Final = WorldOptions(
    topics=(TopicOptions("t", durability="os"),),
    burst_interval_ms=20,
    burst_max=2,
    sync_delay_max_us=1000,
    safety_ms=0,
    liveness_ms=5000,
    faults=FaultRates.none(),
    config=QUICK,
)
"""Three nodes, one partition, one producer, one reader, and no faults but those of the schedule."""


@dataclass(frozen=True, slots=True)
class ClusterVariant:
    """One known-bad rule. ``name`` is its class's; ``numbers`` its numbers in the lists;
    ``caught_by`` the one invariant that breaks.

    In a world of ``seed`` and ``options`` with the variant's parts ``schedule`` breaks an invariant;
    without them it breaks none. ``before``: another invariant that breaks earlier if all checkers
    are used. Its checker is left out to show that the intended checker reports the rule too.
    """

    name: str
    numbers: tuple[str, ...]
    kinds: Mapping[str, type]
    caught_by: str
    schedule: Callable[[World], None]
    before: str = ""
    options: WorldOptions = field(default=CALM)
    seed: int = 1

    @property
    def about(self) -> str:
        """The description of the wrong rule: the docstring of its class."""
        return " ".join((next((kind.__doc__ for kind in self.kinds.values()), None) or "").split())

    def parts(self) -> dict[str, Any]:
        """Return the keyword arguments that put the variant into a :class:`World`."""
        return dict(self.kinds)

    def world(self, *, right: bool = False, every: bool = False) -> World:
        """Return a world with the variant; if ``right``, the same world with the true rules.

        ``every``: use the checker of ``before`` too.
        """
        checkers = [one for one in standard_checkers() if every or self.before not in one.numbers]
        parts: dict[str, Any] = {} if right else self.parts()
        return World(self.seed, self.options, checkers=checkers, replay=f"replog lesson {self.name}", **parts)

    def perform(self, *, right: bool = False, every: bool = False) -> World:
        """Play the schedule, heal all faults and wait until the world is quiet. Raises
        :class:`InvariantBroken` unless ``right``."""
        world = self.world(right=right, every=every)
        self.play(world)
        return world

    def play(self, world: World) -> None:
        """Play the schedule in ``world``, heal all faults and wait until the world is quiet."""
        self.schedule(world)
        world.run()


def _replica(kind: type) -> dict[str, type]:
    return {"replica_class": kind}


_ONE_IS_ENOUGH: Final = dataclasses.replace(CALM, topics=(TopicOptions("t", durability="os", acks=1),))
"""Producers take the word of the leader alone."""
_ALONE: Final = WorldOptions(
    topics=(TopicOptions("t", replication_factor=1, min_insync_replicas=1),),
    producers=3,
    burst_interval_ms=20,
    burst_max=2,
    sync_delay_max_us=20_000,
    safety_ms=0,
    liveness_ms=5000,
    faults=FaultRates.none(),
    config=QUICK,
)
_QUORUM: Final = dataclasses.replace(_ONE_IS_ENOUGH, voters=3, apart=False)
"""Each node is a voter of the metadata quorum."""
_PATIENT: Final = dataclasses.replace(
    _QUORUM, config=dataclasses.replace(QUICK, session_timeout_ms=2000, replica_lag_time_max_ms=10_000)
)
"""Silence changes nothing for two seconds."""
_COMPACTED: Final = TopicOptions(
    "t", durability="os", segment_bytes=1024, cleanup_policy="compact", keys=40, delete_retention_ms=100
)
COMPACTED: Final = dataclasses.replace(CALM, topics=(_COMPACTED,), burst_interval_ms=5, compaction_interval_ms=20)
"""A compacted topic with few keys."""
_COMPACTED_ACKS_1: Final = dataclasses.replace(COMPACTED, topics=(dataclasses.replace(_COMPACTED, acks=1),))


def _cleaner(name: str, number: str, kind: type) -> ClusterVariant:
    return ClusterVariant(
        name, (number,), {"cleaner_class": kind}, "compaction", schedules.passes_of_compaction, options=COMPACTED
    )


_ALL: Final = (
    ClusterVariant("ReadsToTheEnd", ("C6",), _replica(leaders.ReadsToTheEnd), "S10", schedules.followers_cut_off),
    ClusterVariant(
        "RefusesWhoWaits",
        ("C7",),
        _replica(leaders.RefusesWhoWaits),
        "S12",
        schedules.stops_while_somebody_waits,
        before="history",
    ),
    ClusterVariant(
        "RefusesTheAppended",
        ("C8",),
        _replica(leaders.RefusesTheAppended),
        "S13",
        schedules.below_the_minimum,
        before="history",
    ),
    ClusterVariant(
        "RotIsFetched",
        ("37",),
        {"log_class": logs.ChecksumUnchecked},
        "S13",
        schedules.rot_is_fetched,
        before="S12",
    ),
    ClusterVariant(
        "MarkTooEarly",
        ("C9",),
        {"log_class": logs.MarkTooEarly},
        "S24",
        schedules.power_fails_again_and_again,
        options=_ALONE,
        seed=2,
    ),
    ClusterVariant("ElectsOnce", ("C10",), {"controller_class": controllers.ElectsOnce}, "L1", schedules.all_die),
    ClusterVariant(
        "AsksOnce",
        ("C11",),
        {"metadata_class": nodes.AsksOnce},
        "L2",
        schedules.answer_from_the_controller_lost,
    ),
    ClusterVariant(
        "StopsAtUnknownEpoch",
        ("C12",),
        _replica(followers.StopsAtUnknownEpoch),
        "L3",
        schedules.new_leader_hears_late,
    ),
    ClusterVariant("PushesNothing", ("C13",), _replica(leaders.PushesNothing), "L4", schedules.fair_weather),
    ClusterVariant(
        "SilentEpochNotTrimmed",
        ("V23",),
        {"log_class": logs.EpochNotTrimmed},
        "L5",
        schedules.silent_leader_cut_off,
    ),
    ClusterVariant("ProposesOnce", ("C14",), _replica(leaders.ProposesOnce), "L6", schedules.proposal_lost),
    ClusterVariant("ShrinksBySilence", ("C15",), _replica(leaders.ShrinksBySilence), "L7", schedules.fair_weather),
    ClusterVariant(
        "AsksTheSameNode", ("C16",), {"consumer_class": clients.AsksTheSameNode}, "L11", schedules.leader_dies
    ),
    ClusterVariant(
        "EndOutOfRange", ("C17",), _replica(leaders.EndOutOfRange), "L12", schedules.silent_leaders_follower
    ),
    ClusterVariant(
        "ServesForEver",
        ("V32",),
        {"node_class": nodes.ServesForEver},
        "S20",
        schedules.leader_cut_off,
        options=_ONE_IS_ENOUGH,
    ),
    ClusterVariant(
        "LooksOnce",
        ("C18",),
        {"node_class": nodes.LooksOnce},
        "S20",
        schedules.leader_stands_still,
        options=_ONE_IS_ENOUGH,
    ),
    ClusterVariant(
        "LeasesByWallClock",
        ("45",),
        {"node_class": nodes.LeasesByWallClock},
        "S20",
        schedules.clock_set_back,
        options=_ONE_IS_ENOUGH,
    ),
    ClusterVariant(
        "FencedStays", ("V35",), {"controller_class": controllers.FencedStays}, "S17", schedules.follower_dies
    ),
    ClusterVariant(
        "MissingIsEmpty",
        ("C22",),
        {"controller_class": controllers.MissingIsEmpty},
        "S17",
        schedules.eligible_one_loses_its_disk,
    ),
    ClusterVariant(
        "ReadsUnproved",
        ("C21",),
        {"server_class": servers.ReadsUnproved},
        "S16",
        schedules.deposed_controller_is_asked,
        options=_PATIENT,
        seed=4,
    ),
    ClusterVariant(
        "CommitsAlone",
        ("C19",),
        {"server_class": servers.CommitsAlone},
        "S15",
        schedules.controller_cut_off,
        options=_QUORUM,
    ),
    ClusterVariant(
        "AnswersUncommitted",
        ("V27",),
        {"server_class": servers.AnswersUncommitted},
        "S16",
        schedules.fair_weather,
        options=_QUORUM,
    ),
    ClusterVariant(
        "LeasesUnproved",
        ("C20",),
        {"server_class": servers.LeasesUnproved},
        "S20",
        schedules.controller_cut_off,
        options=_PATIENT,
        seed=3,
    ),
    _cleaner("NewestDropped", "C23", cleaners.NewestDropped),
    _cleaner("OlderKept", "C24", cleaners.OlderKept),
    _cleaner("HorizonForgotten", "C25", cleaners.HorizonForgotten),
    _cleaner("HorizonIgnored", "C26", cleaners.HorizonIgnored),
    ClusterVariant(
        "CleansAboveWatermark",
        ("C27",),
        {"log_class": cleaners.CleansAboveWatermark},
        "compaction",
        schedules.passes_while_followers_are_cut_off,
        options=_COMPACTED_ACKS_1,
    ),
    ClusterVariant(
        "DropsUnfetched",
        ("C28",),
        {"log_class": cleaners.DropsUnfetched},
        "compaction",
        schedules.passes_while_a_follower_is_down,
        options=COMPACTED,
    ),
    ClusterVariant(
        "GapsUnrecorded",
        ("C29",),
        {"log_class": cleaners.GapsUnrecorded},
        "compaction",
        schedules.passes_while_a_follower_is_down,
        options=COMPACTED,
    ),
)

CLUSTERS: Final[Mapping[str, ClusterVariant]] = MappingProxyType({one.name: one for one in _ALL})
"""The known-bad rules that take a whole cluster, by name."""
