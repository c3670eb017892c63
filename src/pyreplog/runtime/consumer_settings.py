"""The settings of the consumers of a cluster, for type checkers: by nodes, by files, and under a name."""

from __future__ import annotations

import os
from typing import Literal, TypedDict

from pyreplog.runtime.deserializers import Deserializer
from pyreplog.runtime.named_position import OnDataLoss, Start

__all__ = ["ConsumerSettings", "Folder", "NamedConsumerSettings", "NamedReaderSettings", "ReaderSettings"]

Folder = str | os.PathLike[str]


class ConsumerSettings(TypedDict, total=False):
    """The other settings of :meth:`pyreplog.Cluster.consumer` without a name."""

    auto_offset_reset: Literal["earliest", "latest", "none"]
    max_poll_records: int
    fetch_max_bytes: int
    fetch_min_bytes: int
    read_from: Literal["leader", "follower"]
    rack: str | None
    timeout: float | None
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None


class ReaderSettings(TypedDict, total=False):
    """The other settings of :meth:`pyreplog.ClusterReader.consumer` without a name."""

    auto_offset_reset: Literal["earliest", "latest", "none"]
    max_poll_records: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None


class NamedReaderSettings(TypedDict, total=False):
    """The settings that only a consumer with a name has."""

    offsets: Folder | None
    dead_letters: Folder | None
    lock_timeout: float | None
    auto_commit: bool
    start: Start
    on_data_loss: OnDataLoss


class NamedConsumerSettings(NamedReaderSettings, total=False):
    """The other settings of ``cluster.consumer`` with a name."""

    max_poll_records: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
