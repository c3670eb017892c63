"""Small programs in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def ran(
    code: str,
    *arguments: object,
    options: tuple[str, ...] = ("-X", "dev"),
    expected: int = 0,
    quiet: bool = True,
    timeout_s: int = 60,
) -> str:
    """What a Python program printed; it must end with ``expected`` and, if ``quiet``, have nothing to complain
    of."""
    command = [sys.executable, *options, "-W", "ignore::DeprecationWarning", "-c", code, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT, check=False)
    assert ended.returncode == expected, ended.stderr
    assert not quiet or "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout
