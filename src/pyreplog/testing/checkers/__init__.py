"""The invariants of replication as small classes.

A world calls its checkers at every turn; a checker whose invariant is broken raises :class:`InvariantBroken`.
:data:`INVARIANTS` maps the numbers of the specification to these classes (``docs/internals/simulation.md`` has the
table).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyreplog.testing.checkers.base import Checker, InvariantBroken, Swap, batches_of, overriding
from pyreplog.testing.checkers.clients import AckImplies, DeletedStaysDeleted, NoPhantoms, OncePerRecord, ReadsCommitted
from pyreplog.testing.checkers.committed_records import CommittedRecords
from pyreplog.testing.checkers.compaction import CompactionKeeps
from pyreplog.testing.checkers.history import KINDS, Anomaly, History, HistoryHolds
from pyreplog.testing.checkers.leases import FencedServesNothing
from pyreplog.testing.checkers.liveness import (
    AllInSync,
    AppendsSucceed,
    DivergenceEnds,
    EverybodyLed,
    NoFlapping,
    NoRangeLoop,
    NothingPending,
    ReadersArrive,
    WatermarksArrive,
)
from pyreplog.testing.checkers.logs import (
    CommittedIdentical,
    CrashConsistent,
    EpochsWellFormed,
    LogsMatch,
    MarkedBeforeTold,
    NoBrokenRule,
    WatermarkMonotonic,
)
from pyreplog.testing.checkers.metadata import (
    CandidatesComplete,
    LeaderComplete,
    MaximalSuperset,
    MetadataWellFormed,
    OneLeaderPerEpoch,
    SomewhereKept,
)
from pyreplog.testing.checkers.quorum import AnswersCommitted, CommittedMetadataKept, MembersRegistered
from pyreplog.testing.checkers.sightings import Sightings

__all__ = [
    "INVARIANTS",
    "KINDS",
    "AckImplies",
    "AllInSync",
    "Anomaly",
    "AnswersCommitted",
    "AppendsSucceed",
    "CandidatesComplete",
    "Checker",
    "CommittedIdentical",
    "CommittedMetadataKept",
    "CommittedRecords",
    "CompactionKeeps",
    "CrashConsistent",
    "DeletedStaysDeleted",
    "DivergenceEnds",
    "EpochsWellFormed",
    "EverybodyLed",
    "FencedServesNothing",
    "History",
    "HistoryHolds",
    "InvariantBroken",
    "LeaderComplete",
    "LogsMatch",
    "MarkedBeforeTold",
    "MaximalSuperset",
    "MembersRegistered",
    "MetadataWellFormed",
    "NoBrokenRule",
    "NoFlapping",
    "NoPhantoms",
    "NoRangeLoop",
    "NothingPending",
    "OncePerRecord",
    "OneLeaderPerEpoch",
    "ReadersArrive",
    "ReadsCommitted",
    "Sightings",
    "SomewhereKept",
    "Swap",
    "WatermarkMonotonic",
    "WatermarksArrive",
    "batches_of",
    "overriding",
    "stage_checkers",
    "standard_checkers",
]

_KINDS: Final = (
    LeaderComplete,
    CandidatesComplete,
    CommittedIdentical,
    CompactionKeeps,
    LogsMatch,
    OneLeaderPerEpoch,
    EpochsWellFormed,
    MaximalSuperset,
    WatermarkMonotonic,
    ReadsCommitted,
    NoBrokenRule,
    OncePerRecord,
    NoPhantoms,
    AckImplies,
    CommittedMetadataKept,
    AnswersCommitted,
    MetadataWellFormed,
    MembersRegistered,
    SomewhereKept,
    FencedServesNothing,
    DeletedStaysDeleted,
    CrashConsistent,
    MarkedBeforeTold,
    HistoryHolds,
    EverybodyLed,
    AppendsSucceed,
    AllInSync,
    WatermarksArrive,
    DivergenceEnds,
    NothingPending,
    ReadersArrive,
    NoRangeLoop,
    NoFlapping,
)

INVARIANTS: Final[Mapping[str, type[Checker]]] = MappingProxyType(
    {number: kind for kind in _KINDS for number in kind.numbers}
)
"""The class that checks each invariant, by its number in the specification."""


def standard_checkers() -> list[Checker]:
    """Return a new checker of every kind, in the order in which a world calls them.

    If one bug breaks several invariants at once, the first checker in this order reports it: the order puts the
    invariant that explains most first.
    """
    committed = CommittedIdentical()
    ghosts = (
        LeaderComplete,
        CandidatesComplete,
        CompactionKeeps,
        LogsMatch,
        ReadsCommitted,
        OncePerRecord,
        AckImplies,
        SomewhereKept,
        DeletedStaysDeleted,
        HistoryHolds,
    )
    return [
        committed,
        *(kind(committed) if kind in ghosts else kind() for kind in _KINDS if kind is not CommittedIdentical),  # type: ignore[call-arg]
        Sightings(),
    ]


def stage_checkers() -> list[Checker]:
    """Return new checkers for a :class:`pyreplog.testing.Stage`.

    A stage has no clients, so these are the checkers that look only at replicas and metadata.
    """
    committed = CommittedIdentical()
    return [
        committed,
        LeaderComplete(committed),
        CandidatesComplete(committed),
        LogsMatch(committed),
        OneLeaderPerEpoch(),
        EpochsWellFormed(),
        MaximalSuperset(),
        AckImplies(committed),
        WatermarkMonotonic(),
        NoBrokenRule(),
        MetadataWellFormed(),
        SomewhereKept(committed),
        DeletedStaysDeleted(committed),
        MarkedBeforeTold(),
    ]
