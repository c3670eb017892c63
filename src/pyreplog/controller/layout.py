"""Names of the controller's files on disk. They never change."""

from __future__ import annotations

from typing import Final

from pyreplog.log import CONTROLLER_NAME

__all__ = ["STATE_FILE"]

STATE_FILE: Final = CONTROLLER_NAME
"""The controller's state file in a cluster's folder."""
