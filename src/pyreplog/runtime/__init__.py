"""Joins disks, threads, nodes and clients into what users hold in their hands. The only home of threads and
asyncio."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyreplog.runtime.follow import ChangeSignal, FileWatchSignal, Followed
from pyreplog.runtime.locking import LockWait, cluster_wait, log_wait
from pyreplog.runtime.log import Log, open_log
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.opening import folder_of

if TYPE_CHECKING:
    from pyreplog.runtime.admin import Admin, PartitionDescription, TopicDescription
    from pyreplog.runtime.background_syncs import BackgroundSyncs
    from pyreplog.runtime.backing_up import backup
    from pyreplog.runtime.cluster import Cluster
    from pyreplog.runtime.cluster_node import ClusterNode, Nodes
    from pyreplog.runtime.cluster_options import (
        ClusterReaderSettings,
        ClusterSettings,
        check_mode,
        check_setting_names,
    )
    from pyreplog.runtime.cluster_reader import ClusterReader, ReaderAdmin
    from pyreplog.runtime.consumer import ANSWER_TIMEOUT_S, Consumer
    from pyreplog.runtime.producer import Producer
    from pyreplog.runtime.reader_consumer import ReaderConsumer
    from pyreplog.runtime.several import scan
    from pyreplog.runtime.spool_applier import apply_offline, make_unowned
    from pyreplog.runtime.subject import place_of

__all__ = [
    "ANSWER_TIMEOUT_S",
    "Admin",
    "Cluster",
    "ClusterNode",
    "ClusterReader",
    "ClusterReaderSettings",
    "ClusterSettings",
    "Consumer",
    "FileWatchSignal",
    "BackgroundSyncs",
    "Followed",
    "LockWait",
    "Log",
    "LogWriter",
    "ChangeSignal",
    "Nodes",
    "PartitionDescription",
    "Producer",
    "ReaderAdmin",
    "ReaderConsumer",
    "TopicDescription",
    "apply_offline",
    "backup",
    "check_mode",
    "check_setting_names",
    "cluster_wait",
    "folder_of",
    "log_wait",
    "make_unowned",
    "open_log",
    "place_of",
    "scan",
]

_LATER: Final = {
    "ANSWER_TIMEOUT_S": ".consumer",
    "Admin": ".admin",
    "Cluster": ".cluster_reader",  # which tells it what mode="r" makes
    "ClusterNode": ".cluster_node",
    "ClusterReader": ".cluster_reader",
    "Consumer": ".consumer",
    "BackgroundSyncs": ".background_syncs",
    "ClusterReaderSettings": ".cluster_options",
    "ClusterSettings": ".cluster_options",
    "Nodes": ".cluster_node",
    "PartitionDescription": ".admin",
    "Producer": ".producer",
    "ReaderAdmin": ".cluster_reader",
    "ReaderConsumer": ".reader_consumer",
    "TopicDescription": ".admin",
    "check_mode": ".cluster_options",
    "check_setting_names": ".cluster_options",
    "apply_offline": ".spool_applier",
    "backup": ".backing_up",
    "make_unowned": ".spool_applier",
    "place_of": ".subject",
    "scan": ".several",
}


def __getattr__(name: str) -> object:
    """What a cluster or a spool needs is loaded when somebody asks for it: it takes longer to load than a log to
    open."""
    room = _LATER.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}{room}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
