"""A simulated machine and network, for our tests and for those of programs built on pyreplog.

No sleeping, no threads, and no chance but that of the ``random.Random`` given.
"""

from __future__ import annotations

from pyreplog.testing.clock import SimClock
from pyreplog.testing.disk import SimDisk, SimFile
from pyreplog.testing.faults import Call, Fault

__all__ = ["Call", "Fault", "SimClock", "SimDisk", "SimFile"]
