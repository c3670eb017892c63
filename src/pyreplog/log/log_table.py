"""The logs of a root by partition, opened when they are first asked for where it is known that they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping

from pyreplog._core import TailBudget
from pyreplog.config import LogConfig
from pyreplog.errors import PyreplogError
from pyreplog.log.index_cache import IndexCache
from pyreplog.log.log import Log
from pyreplog.log.summary import Summary, decode_body, due_ms, encode_body, encode_key, sealed, summarize
from pyreplog.log.unloaded import UnloadedLog
from pyreplog.values import TopicPartition


class LogTable(MutableMapping[TopicPartition, Log]):
    """Belongs to the root's owner. Keys are there without a log being opened; asking for one opens it.

    One that turns out to be damaged is noted by whoever opens, and is no longer among the keys: asking for it is a
    ``KeyError``.
    """

    def __init__(
        self, make: Callable[[TopicPartition, bytes, LogConfig | None], Log], cache: IndexCache, room: TailBudget
    ) -> None:
        """``make``: a sleeping log of what the store says. ``cache`` and ``room``: what all of them keep their
        indexes and their tails in."""
        self._make = make
        self._cache = cache
        self._room = room
        self._logs: dict[TopicPartition, Log | bytes] = {}
        #: Rises whenever one comes, goes, or wakes.
        self.changes = 0

    def __getitem__(self, key: TopicPartition) -> Log:
        log = self.peek(key)
        if isinstance(log, UnloadedLog):
            try:
                log.wake()
            except PyreplogError:
                if key in self._logs:
                    raise
                raise KeyError(key) from None
        return log

    def peek(self, key: TopicPartition, config: LogConfig | None = None) -> Log:
        """The log of ``key`` as it is, open or not: one that is not wakes when it is used. ``config``: its
        settings, as far as one can know them without opening it. :class:`KeyError` where there is none."""
        found = self._logs[key]
        if isinstance(found, bytes):
            found = self._logs[key] = self._make(key, found, config)
        return found

    def __setitem__(self, key: TopicPartition, log: Log) -> None:
        self._logs[key] = log
        self.changes += 1
        if not isinstance(log, UnloadedLog):
            log.share_memory(self._cache, self._room)

    def __delitem__(self, key: TopicPartition) -> None:
        del self._logs[key]
        self.changes += 1

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter([*self._logs])

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, key: object) -> bool:
        return key in self._logs

    def add_unloaded(self, key: TopicPartition, body: bytes) -> None:
        """``key`` is there, as the ``body`` of its checked entry of the store says; not opened."""
        self._logs[key] = body
        self.changes += 1

    def opened(self) -> list[Log]:
        """The logs that are open, or were."""
        return [log for log in self._logs.values() if not isinstance(log, (bytes, UnloadedLog))]

    def usable(self) -> list[Log]:
        """Return the logs that are open and have not failed."""
        return [log for log in self.opened() if log.failure is None and not log.closed]

    def summary_entries(self, generation: str) -> list[tuple[bytes, bytes]]:
        """Return the sorted entries of the store of summaries, bound to the lifetime ``generation``.

        REQUIRES that the open logs were just closed cleanly.
        """
        bodies = self.summaries()
        for log in self.opened():
            bodies[log.topic_partition] = encode_body(summarize(log))
        keys = ((encode_key(where), body) for where, body in bodies.items())
        return sorted((key, sealed(key, generation, body)) for key, body in keys)

    def summaries(self) -> dict[TopicPartition, bytes]:
        """What the store says, or would say, of those that are not open."""
        found: dict[TopicPartition, bytes] = {}
        for key, log in self._logs.items():
            if isinstance(log, bytes):
                found[key] = log
            elif isinstance(log, UnloadedLog):
                found[key] = log._body
        return found

    def due(self, wall_ms: int) -> list[TopicPartition]:
        """Those that are not open and in which retention may have something to do by ``wall_ms``."""
        return [key for key, body in self.summaries().items() if due_ms(body) <= wall_ms]

    def take(self, key: TopicPartition) -> Log | None:
        """Take ``key`` out; its log where it was opened. One that sleeps will not wake any more."""
        found = self._logs.pop(key, None)
        self.changes += 1
        if isinstance(found, UnloadedLog):
            found.close(clean=False)
        return None if isinstance(found, (bytes, UnloadedLog)) else found

    def if_loaded(self, key: TopicPartition) -> Log | None:
        """The log of ``key``, open or not, where anybody asked for it; None where there is only what the store
        says."""
        found = self._logs[key]
        return None if isinstance(found, bytes) else found

    def summary(self, key: TopicPartition) -> Summary | None:
        """What the store says of a partition that is not open; None for one that is."""
        found = self._logs[key]
        if isinstance(found, bytes):
            return decode_body(found)
        return found.summary if isinstance(found, UnloadedLog) else None

    def close_sleeping(self) -> None:
        """No log that sleeps will wake any more."""
        for log in self._logs.values():
            if isinstance(log, UnloadedLog):
                log.close(clean=False)
