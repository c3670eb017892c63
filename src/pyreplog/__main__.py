"""``python -m pyreplog``: the command ``replog``, where its script is not on the path."""

from __future__ import annotations

import sys

from pyreplog.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
