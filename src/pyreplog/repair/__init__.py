"""Save the undamaged records of a damaged folder: the plan is shown first, then written into a new folder.

:func:`plan_repair` reads with the independent decoders of ``pyreplog.verify``, :func:`apply_repair` writes with the
ordinary writer.
"""

from __future__ import annotations

from pyreplog.repair.apply import apply_repair, check_target
from pyreplog.repair.plan import PartitionPlan, Range, RecoveredBatch, plan_repair

__all__ = ["PartitionPlan", "RecoveredBatch", "Range", "check_target", "apply_repair", "plan_repair"]
