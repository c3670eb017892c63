"""Refused: the reason why a decision is refused, raised by a check for the one function that builds the answer."""

from __future__ import annotations

from pyreplog.config import LogConfig
from pyreplog.wire import ErrorCode

__all__ = ["RefusedError", "unavailable"]


class RefusedError(Exception):
    """A refusal: its error code and text."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def unavailable() -> RefusedError:
    """Return the refusal of a request that needs a live node."""
    return RefusedError(ErrorCode.BROKER_NOT_AVAILABLE, "no node is up: restart one, or wait until one has registered")


def refuse_compaction(config: LogConfig) -> None:
    """Raise :class:`RefusedError` if ``config`` asks a cluster to compact a topic. Only a log without replicas, of
    ``open_log``, is compacted."""
    if config.compacts:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"cleanup.policy is {config.cleanup_policy}; a topic of a cluster takes only delete: compaction is for logs"
            " of open_log",
        )
