"""Wrong rules of a client, each one overridden method."""

from __future__ import annotations

from typing import Any, Final

from pyreplog.client import Consumer

__all__ = ["AsksTheSameNode"]

PAUSE_NS: Final = 100_000_000


class AsksTheSameNode(Consumer):
    """A reader that was refused waits, and then asks the same node again instead of looking for the
    new leader."""

    def _back_off(self, state: Any, leader: int) -> None:
        """Pause, and keep the known leader."""
        state.failures += 1
        state.paused_until_ns = self._now_ns() + PAUSE_NS
