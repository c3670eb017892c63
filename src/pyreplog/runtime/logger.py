"""The logger ``pyreplog`` of the standard library, which is loaded when there is something to say.

To load ``logging`` takes longer than to open a log. Silent unless the application configures logging.
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
    """The part of ``logging.Logger`` that is used. Any thread. Where ``logging`` cannot be loaded (no descriptor,
    no memory, a disk that fails) it says nothing, so that what has to be done about the trouble is done."""

    __slots__ = ()

    def info(self, message: str, *values: object) -> None:
        """As in ``logging``."""
        if (logger := _logger()) is not None:
            logger.info(message, *values, stacklevel=_OF_CALLER)

    def warning(self, message: str, *values: object) -> None:
        """As in ``logging``."""
        if (logger := _logger()) is not None:
            logger.warning(message, *values, stacklevel=_OF_CALLER)

    def error(self, message: str, *values: object) -> None:
        """As in ``logging``."""
        if (logger := _logger()) is not None:
            logger.error(message, *values, stacklevel=_OF_CALLER)

    def exception(self, message: str, *values: object) -> None:
        """As in ``logging``: with the exception that is being handled."""
        if (logger := _logger()) is not None:
            logger.exception(message, *values, stacklevel=_OF_CALLER)


def tell_unheard(failures: Failures, where: str) -> None:
    """At the end of ``where``: warn of records that failed, where nobody asked their Acks, as asyncio does of
    exceptions that were never retrieved."""
    count, first = failures.unheard()
    if count:
        records = f"{count} record{' was' if count == 1 else 's were'}"
        LOGGER.warning(
            "%s: %s not acknowledged, and nobody asked why: %s: %s", where, records, type(first).__name__, first
        )


def _logger() -> logging.Logger | None:
    # Asked for once: each time takes a lock of `logging`, which a signal handler that raises there
    # leaves held for ever.
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
