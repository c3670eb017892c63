"""The partitions that one read covers: of one log, or of each log that a path with wildcards matches.

Pure: no Spark, no files.
"""

from __future__ import annotations

import re
from typing import Final, Self

from pyreplog.errors import ConfigError, excerpt
from pyreplog.values import TopicPartition

__all__ = ["WILDCARD", "LogPartition", "fixed_part", "log_of", "partition_of"]

WILDCARD: Final = re.compile(r"[*?\[]")
"""A character that makes a part of a path a pattern."""


class LogPartition(TopicPartition):
    """One partition of one of several logs. ``log`` is the log's folder, relative to the part of the path before
    the first wildcard."""

    def __new__(cls, topic: str, partition: int, log: str) -> Self:
        """A value of three parts: equal only to one of the same log."""
        return tuple.__new__(cls, (topic, partition, log))

    @property
    def log(self) -> str:
        """The log's name."""
        return str(tuple.__getitem__(self, 2))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} of the log {self.log}"

    def __repr__(self) -> str:
        return f"LogPartition(topic={self.topic!r}, partition={self.partition!r}, log={self.log!r})"


def log_of(partition: TopicPartition) -> str:
    """The name of the log that ``partition`` is in; "" if only one log is read."""
    return partition.log if isinstance(partition, LogPartition) else ""


def partition_of(log: str, topic: str, partition: int) -> TopicPartition:
    """The partition of these names; ``log`` is "" if only one log is read."""
    return LogPartition(topic, partition, log) if log else TopicPartition(topic, partition)


def fixed_part(path: str) -> str:
    """The folder above the first part of the absolute ``path`` that has a wildcard; "" if none has one."""
    parts = path.split("/")
    first = next((number for number, part in enumerate(parts) if WILDCARD.search(part)), None)
    if first is None:
        return ""
    if "**" in parts:
        raise ConfigError(f"path {excerpt(path)} has the part '**': write one '*' for each folder, as in multi/*/*")
    return "/".join(parts[:first]) or "/"
