"""Backups of a log, a cluster or a broker's folder, made beside its writer, and again into the same folder.

:func:`make` copies, verifies, and reports its work. :func:`pyreplog.log.duplicate` copies one partition.
"""

from __future__ import annotations

from pyreplog.backups.making import Progress, make
from pyreplog.backups.places import Place, find_places

__all__ = ["Place", "Progress", "find_places", "make"]
