"""Log entries for requests that a client sends again."""

from __future__ import annotations

__all__ = ["tell_retry"]


def tell_retry(message: str, *values: object) -> None:
    """Log at DEBUG that a request is sent again. The caller gets no error, because the retry may
    succeed."""
    import logging  # noqa: PLC0415  (a log that is opened alone has no retries, and starts faster without it)

    logging.getLogger("pyreplog.node").debug(message, *values)
