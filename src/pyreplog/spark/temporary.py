"""A folder for as long as this process lives. No Spark in here."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["process_folder"]


def process_folder(prefix: str) -> Path:
    """A new, empty folder in the system's temporary one, its user's own. It goes when this process ends, not when a
    child that it forked does; one that is killed leaves it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
