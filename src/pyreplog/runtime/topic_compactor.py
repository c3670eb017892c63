"""TopicCompactor: compacts the replicas of a cluster's topics, in the background and when an admin asks.

One thread makes all passes, one after another, so the caller of an admin's call can be interrupted at any time. A pass
reads and writes its files while the nodes go on: only its plan and each swap run exclusively. In between a replica may
be truncated, deleted or created again, and its node may end. Then the pass is given up and its files are removed,
because the swap takes only sources that the log still has.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from pyreplog.controller import PartitionKey
from pyreplog.errors import ClosedError, PyreplogError, StorageError
from pyreplog.log import CleanedSegment, Cleaner, CleaningPlan, Log, UnloadedLog
from pyreplog.node import Node
from pyreplog.ports import Clock
from pyreplog.runtime.background import Background, release
from pyreplog.runtime.cluster_node import ClusterNode
from pyreplog.runtime.compactor import BACKOFF_S, ONE_PASS
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.values import Compaction, TopicCompaction, TopicPartition

__all__ = ["TopicCompactor"]

ATTEMPTS_MAX: Final = 3
"""How often a pass that an admin asked for begins, if the log changes while it runs."""
ONE_PASS_CHECK_S: Final = 0.05
COMMIT_S: Final = 1.0
"""Seconds for which a call waits until the followers know all that is committed."""

T = TypeVar("T")


class _GivenUpError(Exception):
    """The replica is not any more as the pass found it."""


class _CompactedCopy:
    """A replica of a running node, as long as that node runs."""

    __slots__ = ("key", "log", "name", "node", "owner")

    def __init__(self, owner: ClusterNode, node: Node, key: PartitionKey, name: TopicPartition) -> None:
        self.owner = owner
        self.node = node
        self.key = key
        self.name = name
        self.log: Log | None = None
        """Its log, once a pass began."""

    @property
    def goes_on(self) -> bool:
        """Whether its node runs and has it. Any thread may ask; the answer may be late."""
        log = self.log
        return self._is_there and (log is None or not (log.closed or log.failure is not None))

    @property
    def _is_there(self) -> bool:
        owner, node = self.owner, self.node
        return owner._node is node and not owner._paused and node.offline is None and self.key in node.hosted

    def stands(self, log: Log) -> bool:
        """Whether ``log`` is still its log, and usable. REQUIRES that no machine runs."""
        return self._is_there and self.node.hosted[self.key].log is log and log.failure is None and not log.closed

    def __str__(self) -> str:
        return f"{self.name} on node {self.owner.node_id}"


class _CompactionCall:
    """The compaction of a topic that a caller waits for."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.found: TopicCompaction | None = None
        self.error: Exception | None = None
        self._turn = threading.Lock()
        self._turn.acquire()

    def settle(self) -> None:
        """Let the caller go on."""
        release(self._turn)

    def wait(self, timeout: float | None) -> bool:
        """Return whether it is settled within ``timeout`` seconds."""
        return self._turn.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX))


class TopicCompactor:
    """Compacts the replicas of one cluster's nodes. Any thread may call its methods."""

    def __init__(self, driver: Driver, nodes: NodeGroup, clock: Clock, name: str, *, is_apart: bool) -> None:
        """``is_apart``: the disks may be used by another thread while the nodes use them."""
        self._driver = driver
        self._nodes = nodes
        self._clock = clock
        self._is_apart = is_apart
        self._stopping = False
        self._requests: deque[_CompactionCall] = deque()
        self._look_at_ns = 0
        self._uncleanable: dict[tuple[int, PartitionKey], Log] = {}
        """The logs in which a pass found damage, by node and partition."""
        self._complaints: dict[tuple[int, PartitionKey], str] = {}
        """The last errors of the disks, as they were logged."""
        self._background = Background(f"pyreplog compaction {name}", self._work)

    # -- the thread --

    def start(self) -> None:
        """Begin to look for logs to compact, if a topic is compacted by its settings."""
        if self._driver.run_exclusively(self._has_work):
            self.settings_changed()

    def settings_changed(self) -> None:
        """Look for logs to compact from now on, because a topic is compacted by its new settings."""
        self._driver.run_exclusively(lambda: self._background.start(BACKOFF_S))
        self._background.arm()

    def stop(self) -> None:
        """End the thread. A pass that runs is given up. Requests that wait get :class:`ClosedError`."""
        self._stopping = True
        self._background.stop()
        self._refuse_all()

    def _refuse_all(self) -> None:
        with suppress(IndexError):  # another thread may take the last one
            while self._requests:
                request = self._requests.popleft()
                request.error = self._closed()
                request.settle()

    def forked(self) -> None:
        """Forget the thread, because this process is a forked child."""
        self._stopping = True

    def _work(self) -> float | None:
        while self._requests and not self._stopping:
            request = self._requests.popleft()
            try:
                request.found = self._compact(request.topic)
            except Exception as error:
                request.error = error
            request.settle()
        now_ns = self._driver.monotonic_ns()
        if now_ns >= self._look_at_ns:
            self._look_at_ns = now_ns + int(BACKOFF_S * 1e9)
            self._look()
        return BACKOFF_S if self._driver.run_exclusively(self._has_work) else None

    def _has_work(self) -> bool:
        return any(topic.log_config.compacts for topic in self._nodes.controller.image.topics.values())

    def _closed(self) -> ClosedError:
        return ClosedError("the cluster is being closed: compaction stopped, and the logs are as they were")

    # -- the background --

    def _look(self) -> None:
        """Make the passes that are due, the log with the greatest share of new records first."""
        exclusively = self._driver.run_exclusively
        replicas = exclusively(lambda: self._replicas(None))
        known = {(one.owner.node_id, one.key) for one in replicas}
        self._uncleanable = {key: log for key, log in self._uncleanable.items() if key in known}
        self._complaints = {key: text for key, text in self._complaints.items() if key in known}
        due: list[tuple[float, int, _CompactedCopy]] = []
        for index, replica in enumerate(replicas):
            if self._stopping:
                return
            ratio = exclusively(partial(self._dirty_ratio, replica))
            if ratio is not None:
                due.append((-ratio, index, replica))
        for _, _, replica in sorted(due):
            try:
                self._pass(replica, lambda plan: plan.is_due)
            except _GivenUpError:
                pass
            except PyreplogError as error:
                self._note_failure(replica, error)
            if self._stopping:
                return

    def _replicas(self, topic: str | None) -> list[_CompactedCopy]:
        """Return the replicas of compacted topics (of ``topic`` alone, whatever its policy) in this process."""
        found = []
        for owner in self._nodes.brokers:
            node = owner._node
            if node is None or owner._paused or node.offline is not None:
                continue
            for key, hosted in node.hosted.items():
                config, name = hosted.config, hosted.topic_partition
                if config is not None and config.compacts if topic is None else name.topic == topic:
                    found.append(_CompactedCopy(owner, node, key, name))
        return found

    def _dirty_ratio(self, replica: _CompactedCopy) -> float | None:
        """Return the dirty ratio of a log that is due for a pass; else None. A log that is not open has no new
        records."""
        hosted = replica.node.hosted.get(replica.key) if replica.goes_on else None
        if hosted is None or isinstance(hosted.log, UnloadedLog):
            return None
        log = hosted.log
        if self._uncleanable.get((replica.owner.node_id, replica.key)) is log or not self._is_cleanable(log):
            return None
        try:
            plan = log.cleaning_plan(self._clock.wall_ms())
        except PyreplogError as error:
            self._note_failure(replica, error, log)
            return None
        return plan.dirty_ratio if plan.is_due else None

    @staticmethod
    def _is_cleanable(log: Log) -> bool:
        return log.failure is None and not log.closed and log.config.compacts

    def _note_failure(self, replica: _CompactedCopy, error: PyreplogError, log: Log | None = None) -> None:
        """Leave a damaged log alone until it is opened again. Log each failure once."""
        key, log = (replica.owner.node_id, replica.key), log or replica.log
        if isinstance(error, StorageError):  # the disk may be full, and have room later
            if self._complaints.get(key) != str(error):
                self._complaints[key] = str(error)
                LOGGER.warning("%s cannot be compacted now, and is tried again: %s", replica, error)
        elif log is not None and self._uncleanable.get(key) is not log:
            self._uncleanable[key] = log
            LOGGER.error("%s is not compacted any more until it is opened again: %s", replica, error)

    # -- a call --

    def compact(self, topic: str, timeout: float | None) -> TopicCompaction | None:
        """Compact all that is committed in the replicas of ``topic``, and return the counts; None after ``timeout``
        seconds: it goes on then. Raises :class:`ClosedError`."""
        self._driver.check_free()
        if self._stopping:
            raise self._closed()
        request = _CompactionCall(topic)
        self._requests.append(request)
        self._driver.run_exclusively(lambda: self._background.start(None))
        self._background.wake()
        if self._stopping:  # the thread may not take it any more
            self._refuse_all()
        if not request.wait(timeout):
            return None
        if request.error is not None:
            raise request.error
        return request.found

    def _compact(self, topic: str) -> TopicCompaction:
        exclusively = self._driver.run_exclusively
        self._await_followers(topic)
        partitions: dict[int, dict[int, Compaction]] = {}
        skipped = exclusively(lambda: self._absent(topic))
        for replica in exclusively(lambda: self._replicas(topic)):
            number, node_id = replica.name.partition, replica.owner.node_id
            try:
                partitions.setdefault(number, {})[node_id] = self._compact_replica(replica)
            except _GivenUpError:
                if self._stopping:
                    raise self._closed() from None
                skipped.setdefault(number, {})[node_id] = "the copy changed, or its node ended"
            except PyreplogError as error:
                self._note_failure(replica, error)
                skipped.setdefault(number, {})[node_id] = str(error)
        return TopicCompaction(
            topic,
            {number: partitions[number] for number in sorted(partitions) if partitions[number]},
            {number: dict(sorted(skipped[number].items())) for number in sorted(skipped)},
        )

    def _await_followers(self, topic: str) -> None:
        """Wait until the in-sync copies of ``topic`` know all that is committed now, because a copy is compacted only
        as far as that."""
        ends: dict[PartitionKey, int] = {}

        def all_know() -> bool:
            copies = [one.node.hosted[one.key] for one in self._replicas(topic)]
            for copy in copies:
                if copy.replica.is_leader:
                    ends.setdefault(copy.key, copy.log.high_watermark)
            return all(copy.log.high_watermark >= ends.get(copy.key, 0) for copy in copies if copy.replica.in_sync)

        deadline = time.monotonic() + COMMIT_S  # by the machine's clock, because the caller's may stand still
        self._driver.wait_until(lambda: self._stopping or time.monotonic() >= deadline or all_know(), COMMIT_S)

    def _absent(self, topic: str) -> dict[int, dict[int, str]]:
        """Return the replicas of ``topic`` that no running node of this process has, with the reason."""
        found = self._nodes.controller.image.topic(topic)
        absent: dict[int, dict[int, str]] = {}
        for number, entry in () if found is None else found.partitions.items():
            for node_id in entry.replicas:
                why = self._absence(node_id, TopicPartition(topic, number))
                if why:
                    absent.setdefault(number, {})[node_id] = why
        return absent

    def _absence(self, node_id: int, name: TopicPartition) -> str:
        owner = next((one for one in self._nodes.brokers if one.node_id == node_id), None)
        node = None if owner is None else owner._node
        if owner is None or node is None or owner._paused or node.offline is not None:
            return f"the node is {'not in this process' if owner is None else owner.state}"
        if node.find(name) is not None:
            return ""
        damage = node.root.damaged.get(name)
        return "the node has no copy" if damage is None else f"the copy is damaged: {damage}"

    def _compact_replica(self, replica: _CompactedCopy) -> Compaction:
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self._compact_once(replica)
            except _GivenUpError:
                if attempt + 1 == ATTEMPTS_MAX or not replica.goes_on:
                    raise
        raise _GivenUpError

    def _compact_once(self, replica: _CompactedCopy) -> Compaction:
        end = self._driver.run_exclusively(lambda: self._close_segment(replica))
        total: Compaction | None = None
        while True:
            done = self._pass(replica, lambda plan: True)
            assert done is not None, "every pass is wanted"
            total = done if total is None else total.followed_by(done)
            # A full map ends a pass early. Without progress the rest cannot be compacted now.
            if done.end_offset >= end or done.end_offset <= done.start_offset:
                return total

    def _close_segment(self, replica: _CompactedCopy) -> int:
        log = self._open(replica)
        self._guarded(replica, log, log.close_active_segment)
        return min(log.high_watermark, log.end_offset)

    # -- a pass --

    def _open(self, replica: _CompactedCopy) -> Log:
        """Return the log of the replica, opened if it was not. REQUIRES that no machine runs."""
        if not replica.goes_on:
            raise _GivenUpError
        try:
            log = replica.node.hosted[replica.key].replica.load_log()
        except PyreplogError:
            if not replica.goes_on:
                raise _GivenUpError from None
            raise
        if not self._is_cleanable(log):
            raise _GivenUpError
        replica.log = log
        return log

    def _pass(self, replica: _CompactedCopy, is_wanted: Callable[[CleaningPlan], bool]) -> Compaction | None:
        """Make one pass, as far as the map of keys allows, if ``is_wanted`` says so of its plan.

        Raises :class:`_GivenUpError` if the replica changed, and the errors of a damaged log.
        """
        exclusively = self._driver.run_exclusively

        def plan_it() -> tuple[Log, CleaningPlan]:
            log = self._open(replica)
            return log, log.cleaning_plan(self._clock.wall_ms())

        while not ONE_PASS.acquire(timeout=ONE_PASS_CHECK_S):
            self._go_on(replica)
        try:
            log, plan = exclusively(plan_it)
            if not is_wanted(plan):
                return None
            try:
                cleaner = Cleaner(log.disk, plan, os.urandom(16), lambda: self._go_on(replica))
                end = self._apart(cleaner.map_keys)
                for group in plan.groups(end):
                    cleaned = self._apart(partial(cleaner.clean, group))
                    exclusively(partial(self._install, replica, log, plan, cleaned))
            except (PyreplogError, _GivenUpError):
                # A log that was truncated or shortened while the pass read it is not damaged.
                if not exclusively(lambda: self._has_sources(replica, log, plan)):
                    raise _GivenUpError from None
                raise
            exclusively(lambda: self._note(replica, log, end))
            return cleaner.result()
        finally:
            ONE_PASS.release()

    def _go_on(self, replica: _CompactedCopy) -> None:
        if self._stopping or not replica.goes_on:
            raise _GivenUpError

    def _apart(self, act: Callable[[], T]) -> T:
        """Call ``act``, which only uses files of the pass, while the nodes go on if their disks allow that."""
        return act() if self._is_apart else self._driver.run_exclusively(act)

    def _has_sources(self, replica: _CompactedCopy, log: Log, plan: CleaningPlan) -> bool:
        if not replica.stands(log) or not log.config.compacts:
            return False
        now = {(one.base_offset, one.size, one.path) for one in log.cleaning_plan(self._clock.wall_ms()).sources}
        return all((one.base_offset, one.size, one.path) in now for one in plan.sources)

    def _install(self, replica: _CompactedCopy, log: Log, plan: CleaningPlan, cleaned: CleanedSegment) -> None:
        if self._stopping or not replica.stands(log) or log.config != plan.config:
            with suppress(StorageError):  # an opening may have removed them
                log.discard(cleaned)
            raise _GivenUpError
        if not self._guarded(replica, log, lambda: log.install(cleaned)):
            raise _GivenUpError

    def _note(self, replica: _CompactedCopy, log: Log, end_offset: int) -> None:
        if replica.stands(log):
            log.note_cleaned(end_offset)
            try:
                replica.node.root.checkpoint_cleaned_ends()
            except StorageError as error:
                replica.node.storage_failed(error)  # a later pass writes it

    def _guarded(self, replica: _CompactedCopy, log: Log, act: Callable[[], T]) -> T:
        """Return the result of ``act``, a change of the log. If the log ends by it, its node goes offline, as after
        each other failure of its disk. REQUIRES that no machine runs."""
        try:
            return act()
        except StorageError as error:
            replica.node.storage_failed(error)
            driven = replica.owner._driven
            if driven is not None:
                self._driver.mark_ready(driven)
            if log.failure is not None:
                raise _GivenUpError from error
            raise
