"""The logs of a root by partition. A log that a clean stop left is opened at its first use."""

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
    """The logs of a root by partition. Getting an item opens the log; its key exists before that.

    Not thread-safe: the root's owner calls it. For a log that is not open the table holds the body of its entry in
    the store of summaries, and its handle (:class:`UnloadedLog`) once a caller asked for it. If opening a log shows
    that it is damaged, its key is removed, and getting the item raises ``KeyError``.

    ``load`` opens a handle and puts the log into this table. ``cache`` and ``room``: the memory
    that all logs share for their indexes and their tails.
    """

    def __init__(self, load: Callable[[UnloadedLog], Log], cache: IndexCache, room: TailBudget) -> None:
        self._load = load
        self._cache = cache
        self._room = room
        self._logs: dict[TopicPartition, Log | bytes] = {}
        # The handles of unopened logs that a caller asked for.
        self._handles: dict[TopicPartition, UnloadedLog] = {}
        # One object for each topic id, because very many partitions may have the same id.
        self._topic_ids: dict[str, str] = {}
        #: Rises with each log that is added, removed or loaded.
        self.changes = 0

    def __getitem__(self, key: TopicPartition) -> Log:
        found = self._logs[key]
        if not isinstance(found, bytes):
            return found
        try:
            return self._handle_of(key, found, None).load()
        except PyreplogError:
            if key in self._logs:
                raise
            raise KeyError(key) from None

    def peek(self, key: TopicPartition, config: LogConfig | None = None) -> Log | UnloadedLog:
        """Return the log of ``key`` if it is open, else its handle. ``config``: its settings, if the
        caller knows them. Raise :class:`KeyError` if there is none."""
        found = self._logs[key]
        return self._handle_of(key, found, config) if isinstance(found, bytes) else found

    def _handle_of(self, key: TopicPartition, body: bytes, config: LogConfig | None) -> UnloadedLog:
        handle = self._handles.get(key)
        if handle is None:
            topic_id = decode_body(body).topic_id
            topic_id = self._topic_ids.setdefault(topic_id, topic_id)
            handle = self._handles[key] = UnloadedLog(key, topic_id, body, config, self._load)
        return handle

    def __setitem__(self, key: TopicPartition, log: Log) -> None:
        self._logs[key] = log
        self._handles.pop(key, None)
        self.changes += 1
        log.share_memory(self._cache, self._room)

    def __delitem__(self, key: TopicPartition) -> None:
        del self._logs[key]
        self._handles.pop(key, None)
        self.changes += 1

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter([*self._logs])

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, key: object) -> bool:
        return key in self._logs

    def add_unloaded(self, key: TopicPartition, body: bytes) -> None:
        """Add the partition ``key`` without opening it. ``body``: the body of its checked entry in the
        store of summaries."""
        self._logs[key] = body
        self.changes += 1

    def opened(self) -> list[Log]:
        """Return the logs that were opened, including those that were closed since."""
        return [log for log in self._logs.values() if not isinstance(log, bytes)]

    def usable(self) -> list[Log]:
        """Return the logs that are open and have not failed."""
        return [log for log in self.opened() if log.failure is None and not log.closed]

    def summaries(self) -> dict[TopicPartition, bytes]:
        """Return the body of the store's entry for each log that is not open."""
        return {key: log for key, log in self._logs.items() if isinstance(log, bytes)}

    def summary(self, key: TopicPartition) -> Summary | None:
        """Return the summary of a partition that is not open; None if it is open."""
        found = self._logs[key]
        return decode_body(found) if isinstance(found, bytes) else None

    def states(self) -> Iterator[tuple[TopicPartition, Log | UnloadedLog | Summary]]:
        """Yield the facts of each partition, from the best source without opening it."""
        for key, log in [*self._logs.items()]:
            yield key, (self._handles.get(key) or decode_body(log)) if isinstance(log, bytes) else log

    def summary_entries(self, generation: str) -> list[tuple[bytes, bytes]]:
        """Return the sorted entries of the store of summaries, bound to the lifetime ``generation``.

        REQUIRES that the open logs were just closed cleanly.
        """
        bodies = self.summaries()
        for log in self.opened():
            bodies[log.topic_partition] = encode_body(summarize(log))
        keys = ((encode_key(where), body) for where, body in bodies.items())
        return sorted((key, sealed(key, generation, body)) for key, body in keys)

    def due(self, wall_ms: int) -> list[TopicPartition]:
        """Return the unopened partitions in which retention may remove a segment at ``wall_ms``."""
        handles = self._handles
        changed = {key for key, handle in handles.items() if handle.has_new_settings}
        return [key for key, body in self.summaries().items() if due_ms(body) <= wall_ms or key in changed]

    def take(self, key: TopicPartition) -> Log | None:
        """Remove ``key``; return its log if it was opened. A handle is closed."""
        found = self._logs.pop(key, None)
        handle = self._handles.pop(key, None)
        self.changes += 1
        if handle is not None:
            handle.close(clean=False)
        return None if isinstance(found, bytes) else found

    def close_unloaded(self) -> None:
        """Close all handles."""
        for handle in self._handles.values():
            handle.close(clean=False)
