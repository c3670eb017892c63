"""Chance, as the system has it."""

from __future__ import annotations

import os

__all__ = ["SystemChance"]


class SystemChance:
    """The real :class:`~pyreplog.ports.Chance`: what ``random.SystemRandom`` gives, without the module, which takes longer to load than a
    log to open. Any thread."""

    __slots__ = ()

    def randbytes(self, n: int, /) -> bytes:
        """``n`` bytes of the system's generator."""
        return os.urandom(n)
