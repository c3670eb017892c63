"""What can be saved of a damaged folder, shown first and then written into a new one. Never in place.

:func:`survey` reads with the independent decoders of ``pyreplog.verify``, :func:`save` writes with the ordinary writer.
"""

from __future__ import annotations

from pyreplog.repair.save import check_target, save
from pyreplog.repair.survey import PartitionPlan, Piece, Range, survey

__all__ = ["PartitionPlan", "Piece", "Range", "check_target", "save", "survey"]
