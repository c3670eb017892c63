"""A folder for as long as this process lives. No Spark in here."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["process_folder"]


def process_folder(prefix: str) -> Path:
    """Return a new, empty folder in the system's temporary one, for this user only. It is removed when this process
    ends, but not when a forked child ends. A process that is killed leaves it behind."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
