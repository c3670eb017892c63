"""A simulated machine and network, for our tests and for those of programs built on pyreplog.

No sleeping, no threads, and no chance but that of the ``random.Random`` given.
"""

from __future__ import annotations

from pyreplog.testing.clock import SimClock
from pyreplog.testing.crash import CrashFailure, CrashReport, crash_points, error_points
from pyreplog.testing.disk import SimDisk, SimFile
from pyreplog.testing.faults import Call, Fault
from pyreplog.testing.network import Link, NetworkOptions, SimNetwork, SimTransport

__all__ = [
    "Call",
    "CrashFailure",
    "CrashReport",
    "Fault",
    "Link",
    "NetworkOptions",
    "SimClock",
    "SimDisk",
    "SimFile",
    "SimNetwork",
    "SimTransport",
    "crash_points",
    "error_points",
]
