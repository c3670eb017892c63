"""Known-bad rules, each overriding one method: for the tests of the checkers, and to learn from.
Nothing in shipped code switches on them.

Give one to a world, a stage or a test in the place of the real class: every variant must be caught,
the real thing never. :data:`KNOWN_BAD` has those that a schedule on a stage shows, with the
checkers that catch each; :data:`CLUSTERS` those that take a whole cluster, each with the one
checker that must catch it. ``replog lesson`` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyreplog.replica import Replica
from pyreplog.testing.known_bad.catalogue import KNOWN_BAD, Variant
from pyreplog.testing.known_bad.clients import AsksTheSameNode
from pyreplog.testing.known_bad.clusters import CLUSTERS, ClusterVariant
from pyreplog.testing.known_bad.controllers import (
    AnyBrokerEpoch,
    AnyPartitionEpoch,
    ElectsOnce,
    ElrKept,
    NoElr,
    SuspectsTrusted,
    UncleanStartsIgnored,
)
from pyreplog.testing.known_bad.followers import (
    FirstDesign,
    NonDurableFollower,
    StopsAtUnknownEpoch,
    TruncateAfterFirstAnswer,
    TruncateToHighWatermark,
)
from pyreplog.testing.known_bad.leaders import (
    AckBeforeFsync,
    AnswersLeft,
    AnyEpochFetches,
    CommittedIsrOnly,
    DeletesAlone,
    DivergenceCounts,
    EmptyEpochForgotten,
    EndOutOfRange,
    EpochEndOffByOne,
    FsyncFailureIgnored,
    JoinBelowStartOfEpoch,
    KeepsProgress,
    MetadataReplayCounts,
    NoMinimum,
    OldEndTold,
    OneQuestion,
    OneQuestionAndEmptyEpoch,
    ProposesOnce,
    PushesNothing,
    ReadsToTheEnd,
    ReadsTwice,
    RefusesTheAppended,
    RefusesWhoWaits,
    ReplyUnmatched,
    ShrinksBySilence,
    ShrinksEarly,
    StepsDownLater,
    UnknownEpochToHighWatermark,
    WaitersByOffset,
    WaitsForFollowersToKnow,
    WatermarkRecomputed,
)
from pyreplog.testing.known_bad.logs import (
    ChecksumUnchecked,
    DeletesWholeBatches,
    EpochNotTrimmed,
    EpochsKept,
    MarkBeforeCut,
    MarkTooEarly,
    NumbersKept,
    NumbersNotCopied,
    WatermarkKept,
)
from pyreplog.testing.known_bad.nodes import AsksOnce

__all__ = [
    "CLUSTERS",
    "KNOWN_BAD",
    "VARIANTS",
    "AckBeforeFsync",
    "AnswersLeft",
    "AnyBrokerEpoch",
    "AnyEpochFetches",
    "AnyPartitionEpoch",
    "AsksOnce",
    "AsksTheSameNode",
    "ChecksumUnchecked",
    "ClusterVariant",
    "CommittedIsrOnly",
    "DeletesAlone",
    "DeletesWholeBatches",
    "DivergenceCounts",
    "ElectsOnce",
    "ElrKept",
    "EmptyEpochForgotten",
    "EndOutOfRange",
    "EpochEndOffByOne",
    "EpochNotTrimmed",
    "EpochsKept",
    "FirstDesign",
    "FsyncFailureIgnored",
    "JoinBelowStartOfEpoch",
    "KeepsProgress",
    "MarkBeforeCut",
    "MarkTooEarly",
    "MetadataReplayCounts",
    "NoElr",
    "NoMinimum",
    "NonDurableFollower",
    "NumbersKept",
    "NumbersNotCopied",
    "OldEndTold",
    "OneQuestion",
    "OneQuestionAndEmptyEpoch",
    "ProposesOnce",
    "PushesNothing",
    "ReadsToTheEnd",
    "ReadsTwice",
    "RefusesTheAppended",
    "RefusesWhoWaits",
    "ReplyUnmatched",
    "ShrinksBySilence",
    "ShrinksEarly",
    "StepsDownLater",
    "StopsAtUnknownEpoch",
    "SuspectsTrusted",
    "TruncateAfterFirstAnswer",
    "TruncateToHighWatermark",
    "UncleanStartsIgnored",
    "UnknownEpochToHighWatermark",
    "Variant",
    "WaitersByOffset",
    "WaitsForFollowersToKnow",
    "WatermarkKept",
    "WatermarkRecomputed",
]

VARIANTS: Final[Mapping[str, type[Replica]]] = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            AckBeforeFsync,
            NonDurableFollower,
            TruncateToHighWatermark,
            EpochEndOffByOne,
            CommittedIsrOnly,
            NoMinimum,
            JoinBelowStartOfEpoch,
        )
    }
)
"""Those of the replica that need no more than a replica and its log."""
