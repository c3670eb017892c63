"""What is told where Spark runs us: its Python processes set no logging up, so warnings go to standard error, which
Spark keeps. No Spark in here.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

__all__ = ["LOGGER"]


class _Unheard(logging.StreamHandler[TextIO]):
    """Writes what no handler of an application takes. Python itself would, were it not for the one that keeps the
    library silent."""

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Unless somebody else does."""
        others = [*LOGGER.handlers, *logging.getLogger("pyreplog").handlers, *logging.getLogger().handlers]
        if all(other is self or isinstance(other, logging.NullHandler) for other in others):
            self.stream = sys.stderr
            super().emit(record)


LOGGER: Final = logging.getLogger("pyreplog.spark")
LOGGER.addHandler(_Unheard())
