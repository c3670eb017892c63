"""Invariants as small classes. A world shows each of them every turn; one that is broken raises
:class:`InvariantBroken`.

:data:`INVARIANTS` says which class stands for which number of the specification (``docs/internals/simulation.md``
has the table).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyreplog.testing.checkers.base import Checker, InvariantBroken, batches_of, overriding
from pyreplog.testing.checkers.clients import AckImplies, DeletedStaysDeleted, NoPhantoms, OncePerRecord, ReadsCommitted
from pyreplog.testing.checkers.history import KINDS, Anomaly, History, HistoryHolds
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
from pyreplog.testing.checkers.sightings import Sightings

__all__ = [
    "INVARIANTS",
    "KINDS",
    "AckImplies",
    "AllInSync",
    "Anomaly",
    "AppendsSucceed",
    "CandidatesComplete",
    "Checker",
    "CommittedIdentical",
    "CrashConsistent",
    "DeletedStaysDeleted",
    "DivergenceEnds",
    "EpochsWellFormed",
    "EverybodyLed",
    "History",
    "HistoryHolds",
    "InvariantBroken",
    "LeaderComplete",
    "LogsMatch",
    "MaximalSuperset",
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
    MetadataWellFormed,
    SomewhereKept,
    DeletedStaysDeleted,
    CrashConsistent,
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
"""Number of the specification -> the class that checks it."""


def standard_checkers() -> list[Checker]:
    """All of them, fresh. The order is that in which a world asks them, so that of several broken invariants the
    plainest is named."""
    committed = CommittedIdentical()
    ghosts = (LeaderComplete, CandidatesComplete, ReadsCommitted, AckImplies, SomewhereKept, DeletedStaysDeleted)
    return [
        committed,
        *(kind(committed) if kind in ghosts else kind() for kind in _KINDS if kind is not CommittedIdentical),  # type: ignore[call-arg]
        Sightings(),
    ]


def stage_checkers() -> list[Checker]:
    """Those that look at replicas and metadata alone, fresh: for a :class:`pyreplog.testing.Stage`, which has no
    clients."""
    committed = CommittedIdentical()
    return [
        committed,
        LeaderComplete(committed),
        CandidatesComplete(committed),
        LogsMatch(),
        OneLeaderPerEpoch(),
        EpochsWellFormed(),
        MaximalSuperset(),
        AckImplies(committed),
        WatermarkMonotonic(),
        NoBrokenRule(),
        MetadataWellFormed(),
        SomewhereKept(committed),
        DeletedStaysDeleted(committed),
    ]
