"""Known-bad rules, each overriding one method: for the tests of the checkers, and to learn from. Nothing in shipped code switches on them.

Give one to a world, a stage or a test in the place of the real class: every variant must be caught, the real thing never. :data:`MUSEUM`
has them all, with the checker that catches each and the schedule in which it does; ``replog lesson`` shows some of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyreplog.replica import Replica
from pyreplog.testing.variants.controllers import AnyBrokerEpoch, AnyPartitionEpoch, ElrKept, NoElr, SuspectsTrusted, UncleanStartsIgnored
from pyreplog.testing.variants.followers import FirstDesign, NonDurableFollower, TruncateAfterFirstAnswer, TruncateToHighWatermark
from pyreplog.testing.variants.leaders import (
    AckBeforeFsync,
    AnswersLeft,
    AnyEpochFetches,
    CommittedIsrOnly,
    DeletesAlone,
    DivergenceCounts,
    EmptyEpochForgotten,
    EpochEndOffByOne,
    FsyncFailureIgnored,
    JoinBelowStartOfEpoch,
    KeepsProgress,
    MetadataReplayCounts,
    NoMinimum,
    OldEndTold,
    OneQuestion,
    OneQuestionAndEmptyEpoch,
    ReadsTwice,
    ReplyUnmatched,
    ShrinksEarly,
    UnknownEpochToHighWatermark,
    WaitersByOffset,
    WaitsForFollowersToKnow,
)
from pyreplog.testing.variants.logs import (
    ChecksumUnchecked,
    EpochNotTrimmed,
    MarkBeforeCut,
    MarkTooEarly,
    NumbersKept,
    NumbersNotCopied,
)
from pyreplog.testing.variants.museum import MUSEUM, Variant

__all__ = [
    "MUSEUM",
    "VARIANTS",
    "AckBeforeFsync",
    "AnswersLeft",
    "AnyBrokerEpoch",
    "AnyEpochFetches",
    "AnyPartitionEpoch",
    "ChecksumUnchecked",
    "CommittedIsrOnly",
    "DeletesAlone",
    "DivergenceCounts",
    "ElrKept",
    "EmptyEpochForgotten",
    "EpochEndOffByOne",
    "EpochNotTrimmed",
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
    "ReadsTwice",
    "ReplyUnmatched",
    "ShrinksEarly",
    "SuspectsTrusted",
    "TruncateAfterFirstAnswer",
    "TruncateToHighWatermark",
    "UncleanStartsIgnored",
    "UnknownEpochToHighWatermark",
    "Variant",
    "WaitersByOffset",
    "WaitsForFollowersToKnow",
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
