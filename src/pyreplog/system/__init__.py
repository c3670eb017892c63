"""The real ports: this machine's clock, random bytes and disk, and in-process transport."""

from __future__ import annotations

from pyreplog.system.clock import SystemClock
from pyreplog.system.disk import SystemDisk, anchored
from pyreplog.system.entropy import SystemChance
from pyreplog.system.held import HeldSyncs
from pyreplog.system.local import LocalNetwork, LocalTransport
from pyreplog.system.locks import OwnedLock
from pyreplog.system.process import current as current_process
from pyreplog.system.signals import is_interruption, is_no_thread

__all__ = [
    "HeldSyncs",
    "LocalNetwork",
    "LocalTransport",
    "OwnedLock",
    "SystemChance",
    "SystemClock",
    "SystemDisk",
    "anchored",
    "current_process",
    "is_interruption",
    "is_no_thread",
]
