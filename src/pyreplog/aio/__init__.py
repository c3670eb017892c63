"""The asyncio API of ``pyreplog``: the same names, awaited. It never blocks the event loop."""

from __future__ import annotations

from pyreplog.aio.admin import Admin
from pyreplog.aio.backing_up import backup
from pyreplog.aio.clients import Consumer, Producer
from pyreplog.aio.cluster import Cluster, ClusterNode, ClusterReader
from pyreplog.aio.log import Log, open_log
from pyreplog.aio.named_consumer import NamedConsumer
from pyreplog.aio.queue import Queue
from pyreplog.aio.quorum_recovery import recover_quorum
from pyreplog.aio.reader_consumer import ReaderConsumer
from pyreplog.aio.reassignments import ReassignmentHandle
from pyreplog.aio.several import scan
from pyreplog.aio.table import ClusterTable, Table

__all__ = [
    "Admin",
    "Cluster",
    "ClusterNode",
    "ClusterReader",
    "ClusterTable",
    "Consumer",
    "Log",
    "Producer",
    "Queue",
    "NamedConsumer",
    "ReaderConsumer",
    "ReassignmentHandle",
    "Table",
    "backup",
    "open_log",
    "recover_quorum",
    "scan",
]


def __dir__() -> list[str]:
    return sorted(__all__)
