"""The logs of a root by partition, opened when they are first asked for where a summary says that they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping

from pyreplog.log.index_cache import IndexCache
from pyreplog.log.log import Log
from pyreplog.log.summary import Summary, decode_summary, due_ms
from pyreplog.values import TopicPartition


class Logs(MutableMapping[TopicPartition, Log]):
    """Belongs to the root's owner. Keys are there without a log being opened; asking for one opens it.

    One that turns out to be damaged is noted by whoever opens, and is no longer among the keys: asking for it is a ``KeyError``.
    """

    def __init__(self, open_one: Callable[[TopicPartition, Summary], Log | None], cache: IndexCache) -> None:
        """``cache``: what all of them keep their indexes in."""
        self._open_one = open_one
        self._cache = cache
        self._logs: dict[TopicPartition, Log | bytes] = {}

    def __getitem__(self, key: TopicPartition) -> Log:
        found = self._logs[key]
        if not isinstance(found, bytes):
            return found
        log = self._open_one(key, decode_summary(found))
        if log is None:
            del self._logs[key]
            raise KeyError(key)
        self[key] = log
        return log

    def __setitem__(self, key: TopicPartition, log: Log) -> None:
        self._logs[key] = log
        log.share_indexes(self._cache)

    def __delitem__(self, key: TopicPartition) -> None:
        del self._logs[key]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter([*self._logs])

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, key: object) -> bool:
        return key in self._logs

    def remember(self, key: TopicPartition, entry: bytes) -> None:
        """``key`` is there, as its checked ``entry`` of the store says; not opened."""
        self._logs[key] = entry

    def opened(self) -> list[Log]:
        """The logs that are open, or were."""
        return [log for log in self._logs.values() if not isinstance(log, bytes)]

    def unopened(self) -> dict[TopicPartition, bytes]:
        """The entries of those that nobody asked for."""
        return {key: log for key, log in self._logs.items() if isinstance(log, bytes)}

    def due(self, wall_ms: int) -> list[TopicPartition]:
        """Those that are not open and in which retention may have something to do by ``wall_ms``."""
        return [key for key, log in self._logs.items() if isinstance(log, bytes) and due_ms(log) <= wall_ms]

    def take(self, key: TopicPartition) -> Log | None:
        """Take ``key`` out; its log where it was opened."""
        found = self._logs.pop(key, None)
        return None if isinstance(found, bytes) else found

    def summary(self, key: TopicPartition) -> Summary | None:
        """What the store says of a partition that is not open; None for one that is."""
        found = self._logs[key]
        return decode_summary(found) if isinstance(found, bytes) else None
