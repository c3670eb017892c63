"""A simulated metadata quorum: voters and observers under faults, beside a slow model that knows what must hold.

``python -m pyreplog.testing --quorum --seed N`` runs one.
"""

from __future__ import annotations

from pyreplog.testing.quorum.machine import QuorumMachine
from pyreplog.testing.quorum.model import EntrySummary, Fold, NodeView, QuorumModel
from pyreplog.testing.quorum.nemesis import QuorumNemesis
from pyreplog.testing.quorum.operator import QuorumOperator
from pyreplog.testing.quorum.options import QuorumFaultRates, QuorumWorldOptions
from pyreplog.testing.quorum.totals import QuorumTotals
from pyreplog.testing.quorum.world import QuorumWorld

__all__ = [
    "EntrySummary",
    "Fold",
    "NodeView",
    "QuorumFaultRates",
    "QuorumMachine",
    "QuorumModel",
    "QuorumNemesis",
    "QuorumOperator",
    "QuorumTotals",
    "QuorumWorld",
    "QuorumWorldOptions",
]
