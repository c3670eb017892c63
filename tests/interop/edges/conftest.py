"""Most edge cases run on the real disk and on the simulated one."""

from __future__ import annotations

from tests.unit.log.conftest import place

__all__ = ["place"]
