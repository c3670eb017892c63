"""The function that gets the error of each damaged range that a reader leaves out."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Final

from pyreplog.errors import ConfigError, CorruptLogError, DamagedRecordsWarning

__all__ = ["teller_of"]

_PACKAGE: Final = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def teller_of(skip_damaged: bool | Callable[[CorruptLogError], object]) -> Callable[[CorruptLogError], object] | None:
    """Return the function that gets the error of each range that a reader leaves out: the given
    one, a warning for True, None for False."""
    if isinstance(skip_damaged, bool):
        return _warn if skip_damaged else None
    if not callable(skip_damaged):
        raise ConfigError(
            f"skip_damaged is {skip_damaged!r}; it must be True, False, or a function that takes each CorruptLogError"
        )
    return skip_damaged


def _warn(error: CorruptLogError) -> None:
    # Python shows a warning once for each line of code. That should be the application's line that
    # reads, so skip the frames of this package.
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(DamagedRecordsWarning(error), stacklevel=level)
