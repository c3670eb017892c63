"""The standard library's logger ``pyreplog``. ``logging`` is loaded at the first message.

Loading ``logging`` takes longer than opening a log. Messages go nowhere unless the application configures logging.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging

    from pyreplog.client import Failures

__all__ = ["LOGGER", "tell_unheard"]

_OF_CALLER: Final = 2


class Logger:
    """The part of ``logging.Logger`` that the runtime uses. Any thread. If ``logging`` cannot be loaded (no descriptor,
    no memory, a failing disk), messages are dropped, so that the caller can still handle that trouble."""

    __slots__ = ()

    def info(self, message: str, *values: object) -> None:
        """Log at level INFO."""
        if (logger := _logger()) is not None:
            logger.info(message, *values, stacklevel=_OF_CALLER)

    def warning(self, message: str, *values: object) -> None:
        """Log at level WARNING."""
        if (logger := _logger()) is not None:
            logger.warning(message, *values, stacklevel=_OF_CALLER)

    def error(self, message: str, *values: object) -> None:
        """Log at level ERROR."""
        if (logger := _logger()) is not None:
            logger.error(message, *values, stacklevel=_OF_CALLER)

    def exception(self, message: str, *values: object) -> None:
        """Log at level ERROR, with the exception that is being handled."""
        if (logger := _logger()) is not None:
            logger.exception(message, *values, stacklevel=_OF_CALLER)


def tell_unheard(failures: Failures, where: str) -> None:
    """Warn of failed records whose Acks no caller read, as asyncio warns of exceptions that were never retrieved.
    ``where`` names the log or producer that closes."""
    count, first = failures.unheard()
    if count:
        records = f"{count} record{' was' if count == 1 else 's were'}"
        LOGGER.warning(
            "%s: %s not acknowledged, and no caller read why: %s: %s", where, records, type(first).__name__, first
        )


def _logger() -> logging.Logger | None:
    # Call getLogger only once: each call takes a lock of `logging`, and a signal handler that
    # raises there leaves it locked for ever.
    global _found
    if _found is not None:
        return _found
    try:
        import logging  # noqa: PLC0415  (see above)
    except (ImportError, OSError, MemoryError):
        return None
    logger = logging.getLogger("pyreplog")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    _found = logger
    return logger


_found: logging.Logger | None = None

if "logging" in sys.modules:
    _logger()

LOGGER: Final = Logger()
