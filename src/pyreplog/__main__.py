"""The command ``replog``, and ``python -m pyreplog``, where its script is not on the path.

Loading the command takes longer than many of its answers: it is done where Ctrl-C is met, so nothing else may be
imported above.
"""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["main"]

_INTERRUPTED: Final = 130


def main() -> int:
    """Run the command of ``sys.argv``; its exit code."""
    try:
        from pyreplog.cli.main import main as run  # noqa: PLC0415  (see above)
    except KeyboardInterrupt:
        _say()
        # If the signal came within an `exec` of text, which makes a dataclass for example, Python
        # ends by the signal in spite of any exit code. No log is open yet.
        os._exit(_INTERRUPTED)
    try:
        return run()
    except KeyboardInterrupt:
        _say()
        return _INTERRUPTED


def _say() -> None:
    if sys.stderr is not None:
        print("replog: interrupted", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
