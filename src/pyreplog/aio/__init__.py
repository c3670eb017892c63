"""The faces of ``pyreplog`` for coroutines: the same names, awaited, and never blocking the event loop."""

from __future__ import annotations

from pyreplog.aio.log import Log, open_log

__all__ = ["Log", "open_log"]
