"""The real ports: this machine's clock, random bytes and disk, and in-process transport."""

from __future__ import annotations

from pyreplog.system.clock import SystemClock
from pyreplog.system.disk import SystemDisk, anchored
from pyreplog.system.entropy import SystemChance
from pyreplog.system.local import LocalNetwork, LocalTransport
from pyreplog.system.locks import OwnedLock
from pyreplog.system.process import Process
from pyreplog.system.process import current as current_process
from pyreplog.system.signals import is_interruption, is_no_thread
from pyreplog.system.sync_batcher import SyncBatcher

__all__ = [
    "LocalNetwork",
    "LocalTransport",
    "OwnedLock",
    "Process",
    "SyncBatcher",
    "SystemChance",
    "SystemClock",
    "SystemDisk",
    "anchored",
    "current_process",
    "is_interruption",
    "is_no_thread",
]
