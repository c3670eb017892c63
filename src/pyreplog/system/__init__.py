"""The real ports: this machine's clock and disk."""

from __future__ import annotations

from pyreplog.system.clock import SystemClock
from pyreplog.system.disk import SystemDisk

__all__ = ["SystemClock", "SystemDisk"]
