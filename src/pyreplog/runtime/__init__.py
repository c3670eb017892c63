"""Joins disks, threads, nodes and clients into what users hold in their hands. The only home of threads and asyncio."""

from __future__ import annotations

from pyreplog.runtime.admin import Admin, PartitionDescription, TopicDescription
from pyreplog.runtime.cluster import Cluster
from pyreplog.runtime.consumer import Consumer
from pyreplog.runtime.follow import DiskNews, Followed, News
from pyreplog.runtime.log import Log, open_log
from pyreplog.runtime.member import ClusterNode
from pyreplog.runtime.owner import apply_unowned
from pyreplog.runtime.producer import Producer
from pyreplog.runtime.writer import LogWriter

__all__ = [
    "Admin",
    "Cluster",
    "ClusterNode",
    "Consumer",
    "DiskNews",
    "Followed",
    "Log",
    "LogWriter",
    "News",
    "PartitionDescription",
    "Producer",
    "TopicDescription",
    "apply_unowned",
    "open_log",
]
