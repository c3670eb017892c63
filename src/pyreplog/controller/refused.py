"""Refused: the reason why a decision is refused, raised by a check for the one function that builds the answer."""

from __future__ import annotations

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
