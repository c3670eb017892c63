"""Names on disk of who decides: never change."""

from __future__ import annotations

from typing import Final

__all__ = ["STATE_FILE"]

STATE_FILE: Final = "replog.controller"
"""The controller's state, in a cluster's folder."""
