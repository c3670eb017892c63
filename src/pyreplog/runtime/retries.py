"""RetryPolicy: how often a record is given to a handler that raises, and how long its partition waits between."""

from __future__ import annotations

from typing import NamedTuple

from pyreplog.config import INT32_MAX, milliseconds, whole

__all__ = ["DEFAULT_RETRIES", "RetryPolicy"]


class RetryPolicy(NamedTuple):
    """The attempts at one record. After the last one failed it becomes a dead letter."""

    attempts: int = 5
    """How often a record is given to the handler, at least once."""
    backoff_ms: float = 100
    """How long its partition waits after the first failed attempt; after each further one twice as long."""
    backoff_max_ms: float = 1000
    """The longest wait."""

    def checked(self) -> RetryPolicy:
        """Return the policy. Raises :class:`ConfigError` for impossible values."""
        return RetryPolicy(
            whole("attempts", self.attempts, 1, INT32_MAX),
            milliseconds("backoff_ms", self.backoff_ms),
            milliseconds("backoff_max_ms", self.backoff_max_ms),
        )

    def backoff_s(self, failed_count: int) -> float:
        """Return the seconds to wait after this many failed attempts, from 1."""
        return min(self.backoff_ms * 2.0 ** min(failed_count - 1, 60), self.backoff_max_ms) / 1000


DEFAULT_RETRIES = RetryPolicy()
