"""A simulated cluster with its disks and its network, for our tests and for tests of programs built on pyreplog.

``World(seed).run()`` runs a whole cluster under faults, watched by checkers (``python -m pyreplog.testing --seed N``).
The simulation does not sleep and starts no threads. All randomness comes from the seed or from the given
``random.Random``.
"""

from __future__ import annotations

from pyreplog.testing.aio_breakable import AioBreakableCluster
from pyreplog.testing.breakable import BreakableCluster, BreakableDisk
from pyreplog.testing.breakable_log import BreakableLog
from pyreplog.testing.checkers import INVARIANTS, Anomaly, Checker, History, InvariantBroken, standard_checkers
from pyreplog.testing.clock import MachineClock, SimClock
from pyreplog.testing.crash import CrashFailure, CrashReport, crash_points, error_points
from pyreplog.testing.disk import SimDisk, SimFile
from pyreplog.testing.faults import Call, Fault
from pyreplog.testing.machine import Machine, Member
from pyreplog.testing.network import Link, NetworkOptions, SimNetwork, SimTransport
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.testing.options import FaultRates, TopicOptions, WorldOptions
from pyreplog.testing.shrink import shrink
from pyreplog.testing.stage import Stage
from pyreplog.testing.totals import Totals
from pyreplog.testing.transports import TransportConformance
from pyreplog.testing.walk import Walk, search
from pyreplog.testing.workload import Attempt, SimConsumer, SimProducer
from pyreplog.testing.world import World

__all__ = [
    "INVARIANTS",
    "AioBreakableCluster",
    "Anomaly",
    "Attempt",
    "BreakableCluster",
    "BreakableDisk",
    "BreakableLog",
    "Call",
    "Checker",
    "CrashFailure",
    "CrashReport",
    "Fault",
    "FaultRates",
    "History",
    "InvariantBroken",
    "Link",
    "Machine",
    "MachineClock",
    "Member",
    "NetworkOptions",
    "ObservedNode",
    "ObservedWorld",
    "SimClock",
    "SimConsumer",
    "SimDisk",
    "SimFile",
    "SimNetwork",
    "SimProducer",
    "SimTransport",
    "Stage",
    "TopicOptions",
    "Totals",
    "TransportConformance",
    "Walk",
    "World",
    "WorldOptions",
    "crash_points",
    "error_points",
    "search",
    "shrink",
    "standard_checkers",
]
