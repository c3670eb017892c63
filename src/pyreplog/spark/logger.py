"""Logging in Spark's Python processes: they do not configure logging, so warnings go to standard error, which Spark
keeps. This module does not import Spark.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

__all__ = ["LOGGER"]


class _Unheard(logging.StreamHandler[TextIO]):
    """Writes the messages that no handler of an application takes. Python would write them itself, but the
    library's NullHandler keeps it silent."""

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write the message, unless another handler does."""
        others = [*LOGGER.handlers, *logging.getLogger("pyreplog").handlers, *logging.getLogger().handlers]
        if all(other is self or isinstance(other, logging.NullHandler) for other in others):
            self.stream = sys.stderr
            super().emit(record)


LOGGER: Final = logging.getLogger("pyreplog.spark")
LOGGER.addHandler(_Unheard())
