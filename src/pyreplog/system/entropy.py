"""Random bytes from the operating system."""

from __future__ import annotations

import os

__all__ = ["SystemChance"]


class SystemChance:
    """The real :class:`~pyreplog.ports.Chance`. Any thread.

    It gives the bytes of ``random.SystemRandom`` without that module, which takes longer to load
    than a log to open.
    """

    __slots__ = ()

    def randbytes(self, n: int, /) -> bytes:
        """Return ``n`` bytes of the system's random generator."""
        return os.urandom(n)
