"""How far a streaming query is behind: what Spark's Kafka source has as metrics, from the progress that Spark keeps
anyway."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pyreplog.errors import ConfigError
from pyreplog.spark.progress import StreamProgress
from pyreplog.values import TopicPartition

__all__ = ["Lag", "Query", "lag"]


@dataclass(frozen=True, slots=True)
class Lag:
    """Offsets that are there and not processed yet, as of the query's last micro-batch. A partition it does not
    know counts from 0."""

    partitions: Mapping[TopicPartition, int]
    """Of each; of several logs the keys are :class:`LogPartition`, which has the name of the log."""

    @property
    def total(self) -> int:
        """Of all partitions together."""
        return sum(self.partitions.values())

    @property
    def min_offsets_behind_latest(self) -> int:
        """The partition that is least behind: Kafka's ``minOffsetsBehindLatest``."""
        return min(self.partitions.values(), default=0)

    @property
    def max_offsets_behind_latest(self) -> int:
        """The partition that is most behind: Kafka's ``maxOffsetsBehindLatest``."""
        return max(self.partitions.values(), default=0)

    @property
    def avg_offsets_behind_latest(self) -> float:
        """The mean of the partitions: Kafka's ``avgOffsetsBehindLatest``."""
        return self.total / len(self.partitions) if self.partitions else 0.0


class Query(Protocol):
    """A ``StreamingQuery`` of classic Spark or of Spark Connect."""

    @property
    def lastProgress(self) -> Any:
        """Of the last trigger; None before it."""
        ...


def lag(query: Query) -> Lag | None:
    """Return how far ``query`` is behind the logs that it reads; None before its first trigger. It needs PySpark
    4.2, which asks sources for it.

    Sources of other formats are skipped; :class:`ConfigError` if the query has no source of this format.
    """
    progress = query.lastProgress
    return (
        None
        if progress is None
        else _of_sources(progress["sources"] if isinstance(progress, dict) else progress.sources)
    )


def _of_sources(sources: Iterable[Any]) -> Lag:
    found: dict[TopicPartition, int] = {}
    ours = False
    for source in sources:
        end, latest = (
            source[name] if isinstance(source, dict) else getattr(source, name)
            for name in ("endOffset", "latestOffset")
        )
        try:
            done, there = (
                StreamProgress.from_json(json.loads(offset) if isinstance(offset, str) else offset)
                for offset in (end, latest)
            )
        except (ConfigError, ValueError, RecursionError):
            continue
        ours = True
        for partition, last in there.ends.items():
            behind = max(0, last - done.ends.get(partition, 0))
            found[partition] = found.get(partition, 0) + behind
    if not ours:
        raise ConfigError(
            "the query reads no log by format('replog'), or runs on PySpark before 4.2, which does not ask how far"
            " there is"
        )
    return Lag({partition: found[partition] for partition in sorted(found)})
