"""Which share runs of what is too much for every run: ``REPLOG_CRASH_SEED`` draws it, ``-m soak`` runs all. Not
set, it is another one each time; so whoever goes by it prints it, for a failure to be had again."""

from __future__ import annotations

import os
from typing import Final

SEED: Final = int(os.environ.get("REPLOG_CRASH_SEED") or int.from_bytes(os.urandom(3), "big"))
EVERY: Final = 3
"""Of what is struck at every moment of a call, every so many from :data:`FIRST` on."""
FIRST: Final = 1 + SEED % EVERY


def tell() -> None:
    """Into the test's output."""
    print(f"REPLOG_CRASH_SEED={SEED}")
