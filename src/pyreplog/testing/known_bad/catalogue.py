"""The known-bad rules of replication, with the checkers that catch each and the schedule that shows it.

``V`` numbers are those of the specification, plain numbers the planted bugs of the reliability
plan, ``R`` the fixes that were proposed and rejected before leader epochs, ``C`` bugs that were
planted for one checker each. The rules that need a whole cluster are in
:mod:`pyreplog.testing.known_bad.clusters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pyreplog.testing.checkers import Checker, CommittedIdentical, LogsMatch
from pyreplog.testing.known_bad import cleaners, controllers, followers, leaders, logs, schedules
from pyreplog.testing.stage import Stage

__all__ = ["KNOWN_BAD", "Variant"]


def _none() -> list[Checker] | None:
    return None


@dataclass(frozen=True, slots=True)
class Variant:
    """One known-bad rule. ``name`` is its class's; ``numbers`` its numbers in the lists; it
    breaks one of the invariants ``caught_by``.

    On a stage made with ``settings`` and the variant's parts ``schedule`` breaks an invariant;
    without them it breaks none. ``search``: the number of random walks that must find it, 0 if walks
    cannot (see ``docs/internals/simulation.md``).
    """

    name: str
    numbers: tuple[str, ...]
    kinds: Mapping[str, type]
    caught_by: tuple[str, ...]
    schedule: Callable[[Stage], None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    search: int = 0
    checkers: Callable[[], list[Checker] | None] = _none
    weather: Mapping[str, float] = field(default_factory=dict)
    """Factors on the probabilities of the actions in the walks that look for the variant, because
    the actions that it needs are too rare."""
    harmless: bool = False
    """It breaks nothing: it shows a price, or another rule already covers it."""

    @property
    def about(self) -> str:
        """The description of the wrong rule: the docstring of its class."""
        return " ".join((next((kind.__doc__ for kind in self.kinds.values()), None) or "").split())

    def parts(self) -> dict[str, Any]:
        """Return the keyword arguments that put the variant into a :class:`Stage` or a :class:`World`."""
        return dict(self.kinds)

    def stage(self, *, right: bool = False, **more: Any) -> Stage:
        """Return a stage with the variant; if ``right``, the same stage with the true rules."""
        parts: dict[str, Any] = {} if right else self.parts()
        return Stage(
            **{"checkers": self.checkers(), "replay": f"replog lesson {self.name}", **self.settings, **parts, **more}
        )

    def perform(self, *, right: bool = False) -> Stage:
        """Run the schedule. Raises :class:`InvariantBroken` unless ``right`` or the variant is
        harmless."""
        stage = self.stage(right=right)
        self.schedule(stage)
        return stage


def _replica(kind: type) -> dict[str, type]:
    return {"replica_class": kind}


def _controller(kind: type) -> dict[str, type]:
    return {"controller_class": kind}


def _log(kind: type) -> dict[str, type]:
    return {"log_class": kind}


_TWO: Final = {"count": 2, "min_insync_replicas": 1}
_REIGNS: Final = {"kill": 0.1, "power": 0.1, "stop": 0}
"""Weather in which leaders change and no process dies."""
_ONE_SYNC: Final = {"count": 1, "min_insync_replicas": 1, "durability": "sync"}
_ALL: Final = (
    Variant(
        "TruncateToHighWatermark",
        ("V1", "28"),
        _replica(followers.TruncateToHighWatermark),
        ("S1", "S2"),
        schedules.hw_truncation,
        {"count": 2},
        300,
    ),
    Variant(
        "OneQuestionAndEmptyEpoch",
        ("V2",),
        _replica(leaders.OneQuestionAndEmptyEpoch),
        ("S4", "S2"),
        schedules.parted_below,
        _TWO,
        2000,
    ),
    Variant("OneQuestion", ("V3",), _replica(leaders.OneQuestion), ("S4", "S2"), schedules.parted_below, _TWO, 2000),
    Variant(
        "AnyEpochFetches",
        ("V4", "30"),
        _replica(leaders.AnyEpochFetches),
        ("S2", "S8", "S1", "S11"),
        schedules.fetch_of_an_older_epoch,
        {},
        600,
        weather={**_REIGNS, "prefer": 8, "skip": 8, "fence": 4, "unfence": 2},
    ),
    Variant(
        "JoinBelowStartOfEpoch",
        ("V5",),
        _replica(leaders.JoinBelowStartOfEpoch),
        ("S2", "S8"),
        schedules.replica_behind_the_epoch,
        {"count": 4},
        3000,
    ),
    Variant("ShrinksEarly", ("V6",), _replica(leaders.ShrinksEarly), ("S7", "S2"), schedules.shrink_undecided, {}, 300),
    Variant(
        "CommittedIsrOnly",
        ("V7",),
        _replica(leaders.CommittedIsrOnly),
        ("S8", "S7", "S2"),
        schedules.proposed_and_not_awaited,
        {},
        800,
    ),
    Variant(
        "AnyPartitionEpoch",
        ("V8",),
        _controller(controllers.AnyPartitionEpoch),
        ("S7", "S2"),
        schedules.old_proposal,
        {},
        3000,
    ),
    Variant(
        "MetadataReplayCounts",
        ("V9",),
        _replica(leaders.MetadataReplayCounts),
        ("S7", "S2"),
        schedules.metadata_replay,
        {},
        3000,
    ),
    Variant(
        "ReplyUnmatched",
        ("V10",),
        _replica(leaders.ReplyUnmatched),
        ("S7", "S2"),
        schedules.late_reply,
        {"match_answers": False},
        3000,
    ),
    Variant(
        "KeepsProgress",
        ("V11",),
        _replica(leaders.KeepsProgress),
        ("S14", "S8", "S2", "S11"),
        schedules.hidden_between_two_elections,
        {},
        8000,
        weather={**_REIGNS, "deaf": 1, "prefer": 3, "fence": 6, "unfence": 3},
    ),
    Variant(
        "DivergenceCounts",
        ("V12",),
        _replica(leaders.DivergenceCounts),
        ("S2", "S1", "S8"),
        schedules.diverging_fetch,
        {},
        300,
    ),
    Variant(
        "AnyBrokerEpoch",
        ("V13", "32"),
        _controller(controllers.AnyBrokerEpoch),
        ("S2", "S1", "S8"),
        schedules.stale_incarnation,
        {},
        7000,
    ),
    Variant(
        "NoElr", ("V14", "34"), _controller(controllers.NoElr), ("S2", "S1"), schedules.last_replica_standing, {}, 2000
    ),
    Variant(
        "NoMinimum",
        ("V15", "27"),
        _replica(leaders.NoMinimum),
        ("S14", "S2"),
        schedules.another_node_holds_the_rest,
        {},
        200,
    ),
    Variant(
        "UncleanStartsIgnored",
        ("V16", "33"),
        _controller(controllers.UncleanStartsIgnored),
        ("S2", "S1", "S19"),
        schedules.unclean_restart,
        {},
        300,
    ),
    Variant("ElrKept", ("V17",), _controller(controllers.ElrKept), ("S18", "S2"), schedules.still_eligible, {}, 200),
    Variant(
        "UnknownEpochToHighWatermark",
        ("V18",),
        _replica(leaders.UnknownEpochToHighWatermark),
        ("S2", "S1", "S8", "S11"),
        schedules.unknown_epoch,
        {},
        600,
        weather={**_REIGNS, "prefer": 8, "append": 0.5},
    ),
    Variant(
        "Unclean",
        ("V19",),
        {},
        ("S3",),
        schedules.unclean,
        {**_TWO, "unclean": True},
        0,
        lambda: [CommittedIdentical()],
    ),
    Variant(
        "OneQuestionUnclean",
        ("V20",),
        _replica(leaders.OneQuestion),
        ("S4",),
        schedules.parted_below,
        {**_TWO, "unclean": True},
        800,
        lambda: [LogsMatch()],  # the other invariants are what an unclean election costs
    ),
    Variant(
        "EmptyEpochForgotten",
        ("V22",),
        _replica(leaders.EmptyEpochForgotten),
        ("L12", "L5", "L3"),
        schedules.silent_leader,
        {},
        300,
    ),
    Variant(
        "EpochNotTrimmed",
        ("V23",),
        _log(logs.EpochNotTrimmed),
        ("L5", "S6"),
        schedules.behind_the_high_watermark,
        {},
        300,
    ),
    Variant(
        "WaitersByOffset", ("V28",), _replica(leaders.WaitersByOffset), ("S1", "S14"), schedules.step_down, {}, 600
    ),
    Variant(
        "MarkBeforeCut",
        ("V29",),
        _log(logs.MarkBeforeCut),
        ("S24", "S6"),
        schedules.cut_then_power_loss,
        {"durability": "sync", **_TWO},
        500,
    ),
    Variant(
        "NumbersKept",
        ("V30",),
        _log(logs.NumbersKept),
        ("S1", "S12"),
        schedules.retry_after_truncation,
        {},
        3000,
        weather={"number": 3, "prefer": 3},
    ),
    Variant(
        "NumbersNotCopied",
        ("V31", "36"),
        _log(logs.NumbersNotCopied),
        ("S12",),
        schedules.retry_after_election,
        {},
        2000,
        weather={"number": 3},
    ),
    Variant(
        "KeepsProgressOfTheRemoved",
        ("V34",),
        _replica(leaders.KeepsProgress),
        ("S2", "S7", "S8", "S1"),
        schedules.empty_again,
        {"min_insync_replicas": 1},
        1500,
        weather={"replace": 8, "skip": 6},
    ),
    Variant("DeletesAlone", ("V36",), _replica(leaders.DeletesAlone), ("S21",), schedules.deleted_elsewhere, {}, 400),
    Variant("ReadsTwice", ("V37",), _replica(leaders.ReadsTwice), ("S10",), schedules.two_looks, {}, 200),
    Variant(
        "FsyncFailureIgnored",
        ("V39",),
        _replica(leaders.FsyncFailureIgnored),
        ("S24", "S1"),
        schedules.failed_sync,
        _ONE_SYNC,
        300,
    ),
    Variant(
        "NonDurableFollower",
        ("26",),
        _replica(followers.NonDurableFollower),
        ("mark", "S8", "S14"),
        schedules.follower_loses_its_tail,
        {"durability": "sync"},
        200,
    ),
    Variant(
        "AckBeforeFsync",
        ("1",),
        _replica(leaders.AckBeforeFsync),
        ("mark", "S14", "S1"),
        schedules.ack_then_power_loss,
        _ONE_SYNC,
        100,
    ),
    Variant(
        "EpochEndOffByOne",
        ("29",),
        _replica(leaders.EpochEndOffByOne),
        ("S4", "S2", "S6"),
        schedules.one_foreign_record,
        _TWO,
        400,
    ),
    Variant("AnswersLeft", ("31",), _replica(leaders.AnswersLeft), ("S14", "S1"), schedules.waiting_append, {}, 200),
    Variant("OldEndTold", ("35",), _replica(leaders.OldEndTold), ("S8",), schedules.old_end_told, {}, 1000),
    Variant(
        "ChecksumUnchecked",
        ("37",),
        _log(logs.ChecksumUnchecked),
        ("S3",),
        schedules.rot_on_the_leader,
        {"min_insync_replicas": 1},
        0,
    ),
    Variant(
        "TruncateAfterFirstAnswer",
        ("R2",),
        _replica(followers.TruncateAfterFirstAnswer),
        ("S4",),
        schedules.divergence,
        {**_TWO, "unclean": True},
        300,
        lambda: [LogsMatch()],  # as above
    ),
    Variant(
        "FirstDesign",
        ("F1", "F2"),
        _replica(followers.FirstDesign),
        ("S1", "S2"),
        schedules.hw_truncation,
        {"count": 2},
        400,
    ),
    Variant(
        "StepsDownLater",
        ("C1",),
        _replica(leaders.StepsDownLater),
        ("S5",),
        schedules.replaced_while_somebody_waits,
        {},
        200,
    ),
    Variant("EpochsKept", ("C2",), _log(logs.EpochsKept), ("S6",), schedules.two_epochs_cut, _TWO, 600),
    Variant(
        "WatermarkRecomputed",
        ("C3",),
        _replica(leaders.WatermarkRecomputed),
        ("S8",),
        schedules.back_below_the_high_watermark,
        {},
        400,
    ),
    Variant("WatermarkKept", ("C4",), _log(logs.WatermarkKept), ("S9",), schedules.deleted_meanwhile, {}, 400),
    Variant(
        "DeletesWholeBatches",
        ("C5",),
        _log(logs.DeletesWholeBatches),
        ("S21",),
        schedules.deleted_inside_a_batch,
        {},
        2000,
    ),
    Variant(
        "TakesAnyGap",
        ("C30",),
        _log(cleaners.TakesAnyGap),
        ("S4",),
        schedules.answer_lacks_a_batch,
        {"count": 2, "min_insync_replicas": 1},
    ),
    Variant("MarkTooLate", ("C18",), _log(logs.MarkTooLate), ("mark",), schedules.ack_then_power_loss, _ONE_SYNC, 100),
    Variant(
        "WaitsForFollowersToKnow",
        ("R1",),
        _replica(leaders.WaitsForFollowersToKnow),
        (),
        schedules.zombie_answers,
        {},
        0,
        harmless=True,
    ),
)

KNOWN_BAD: Final[Mapping[str, Variant]] = MappingProxyType({one.name: one for one in _ALL})
"""Every known-bad rule with a schedule on a stage, by its name."""
