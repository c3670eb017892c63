"""Reassignments: partitions that get other replicas, from the call to the last record that moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyreplog.client import Completion, altered_reassignments, running_reassignments
from pyreplog.config import INT32_MAX, check_flag, check_seconds, whole
from pyreplog.errors import ConfigError, UnknownTopicError
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.folder_opening import check_name
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.values import TopicPartition

if TYPE_CHECKING:
    from pyreplog.client import Admin as Machine
    from pyreplog.client import Answer

__all__ = ["PartitionReassignment", "ReassignmentHandle", "Reassignments"]

LOOK_S: Final = 0.02
"""How often a call that waits looks whether the replicas have all records."""
STALL_S: Final = 30.0
"""A call without a timeout ends when nothing moved for so long."""


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition that is getting other replicas. Nodes by number.

    ``replicas``: all of them now: first those that it will have, then those that go. ``adding``: those that copy the
    records. ``removing``: those that go when the others are in sync.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReassignmentHandle:
    """Partitions that are getting other replicas, in the background. ``admin.reassign(..., wait=False)`` returns it.
    Thread-safe.

    ``partitions``: the partitions of the call. The cluster goes on without this object or this process.
    """

    def __init__(self, owner: Reassignments, partitions: Sequence[TopicPartition]) -> None:
        """Called by :class:`Reassignments` only."""
        self._owner = owner
        self.partitions = tuple(partitions)

    def remaining(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions whose new replicas do not have all records yet."""
        going = self._owner.list_reassignments()
        return {one: going[one] for one in self.partitions if one in going}

    def done(self) -> bool:
        """Return whether every partition has its replicas."""
        return not self.remaining()

    def wait(self, timeout: float | None = None) -> None:
        """Return when every partition has its replicas. ``timeout``: seconds; None: as long as records move.

        Raises TimeoutError with the partitions that are left: the cluster goes on.
        """
        self._owner._await_replicas(self.partitions, timeout)

    def __repr__(self) -> str:
        count = len(self.partitions)
        return f"<reassignment of {count} partition{'' if count == 1 else 's'}>"


class Reassignments:
    """A part of :class:`pyreplog.Admin`, which has the rest."""

    _driver: Driver
    _nodes: NodeGroup
    _on_change: Callable[[str | None], None]

    if TYPE_CHECKING:

        def _answer(self, ask: Callable[[Machine], Answer], patience: float | None = None) -> Any: ...
        def _unknown(self, topic: str, numbers: Iterable[int]) -> UnknownTopicError: ...
        def _await_nodes(self, patience: float | None) -> float | None: ...

    def reassign(
        self,
        replicas: Mapping[TopicPartition, Sequence[int]],
        *,
        wait: bool = True,
        timeout: float | None = None,
    ) -> ReassignmentHandle:
        """Give partitions other replicas, and return when the new ones have all records and the old ones are gone.

        ``replicas``: the nodes of each partition, the preferred leader first, such as
        ``{TopicPartition("orders", 0): [4, 1, 5]}``; more or fewer nodes than before change the replication factor.
        Producers and consumers go on. The new replicas are added first and copy the records; the old ones go
        when all of the new ones are in sync. A second call for a partition replaces the first. ``wait=False``: return
        at once; the handle says how far it is. ``timeout``: seconds to wait; None: as long as records move.

        Each partition is decided by itself: if some are refused, the others begin, and the first error is raised.

        Raises InvalidReplicaAssignmentError for nodes that do not exist or are named twice, UnknownTopicError,
        InvalidTopicError for an internal topic, BrokerNotAvailableError if no node is up, and TimeoutError with the
        partitions that are left: the cluster goes on then.
        """
        wanted = _checked(replicas)
        check_flag("wait", wait)
        patience = check_seconds("timeout", timeout)
        self._change(dict(wanted), self._await_nodes(patience))
        handle = ReassignmentHandle(self, list(wanted))
        if wait:
            handle.wait(timeout)
        return handle

    def list_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """The partitions that are getting other replicas now."""
        found = self._answer(lambda machine: machine.change(running_reassignments()))
        return {
            name: PartitionReassignment(tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas))
            for name, one in found.items()
        }

    def cancel_reassignment(self, topic_partition: TopicPartition, *, timeout: float | None = None) -> None:
        """Let a partition keep the replicas that it had, and return when every live node knows that. The replicas that
        were being added go.

        Raises NoReassignmentInProgressError, UnknownTopicError, EligibleLeadersNotAvailableError if only a replica that
        is being added has all records, TimeoutError.
        """
        name = _partition_of(topic_partition)
        patience = self._await_nodes(check_seconds("timeout", timeout))
        self._change({name: None}, patience)
        self._nodes.await_metadata(f"the reassignment of {name} is cancelled", patience)

    def _change(self, targets: dict[TopicPartition, Sequence[int] | None], patience: float | None) -> None:
        """Ask the controller. Raise the first error."""
        refused = self._answer(
            lambda machine: machine.change(altered_reassignments(targets, machine.timeout_ms)), patience
        )
        for name, error in refused.items():
            raise self._unknown(name.topic, [name.partition]) if isinstance(error, UnknownTopicError) else error
        for topic in {name.topic for name in targets}:
            self._on_change(topic)

    def _await_replicas(self, names: Sequence[TopicPartition], timeout: float | None) -> None:
        """Return when the partitions have their replicas, and the nodes know it."""
        driver = self._driver
        patience = check_seconds("timeout", timeout)
        begun_ns = moved_ns = driver.monotonic_ns()
        before: tuple[int, int] | None = None
        while True:
            left, copied = driver.run_exclusively(lambda: self._left(names))
            now_ns = driver.monotonic_ns()
            if not left:
                rest = None if patience is None else max(patience - (now_ns - begun_ns) / 1e9, 0.0)
                self._nodes.await_metadata("the partitions have their new replicas", rest)
                return
            if before != (len(left), copied):
                before, moved_ns = (len(left), copied), now_ns
            late = now_ns - (moved_ns if patience is None else begun_ns)
            if late >= (STALL_S if patience is None else patience) * 1e9:
                raise TimeoutError(self._late(left, late / 1e9, is_stalled=patience is None))
            driver.wait(Completion(driver), LOOK_S)

    def _left(self, names: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, PartitionReassignment], int]:
        """Return the partitions that are on the way, and the sum of the offsets that their new replicas have reached.
        REQUIRES that no machine runs."""
        image = self._nodes.controller.image
        left: dict[TopicPartition, PartitionReassignment] = {}
        copied = 0
        for name in names:
            topic = image.topic(name.topic)
            one = None if topic is None else topic.partitions.get(name.partition)
            if one is None or not (one.adding or one.removing):
                continue
            left[name] = PartitionReassignment(one.replicas, one.adding, one.removing)
            copied += sum(self._nodes.of(node_id)._end_of(name) for node_id in one.adding)
        return left, copied

    def _late(self, left: Mapping[TopicPartition, PartitionReassignment], seconds: float, *, is_stalled: bool) -> str:
        name, one = next(iter(left.items()))
        away = [
            str(node_id)
            for node_id in one.replicas
            if node_id not in one.removing and not self._nodes.of(node_id).ready
        ]
        why = f"; node {', '.join(away)} is down, and a partition waits for all that it will have" if away else ""
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        moved = f"nothing moved for {seconds:g} s" if is_stalled else f"after {seconds:g} s it is not done"
        return (
            f"{name}{more} is still getting its new replicas: {moved}{why}. The cluster goes on: see"
            f" list_reassignments(), or cancel_reassignment(){self._driver.obstacle()}"
        )


def _checked(replicas: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, list[int]]:
    if not hasattr(replicas, "items") or not replicas:
        raise ConfigError(
            f"replicas is {replicas!r}; it must be a dict of the nodes of each partition, such as"
            " {TopicPartition('orders', 0): [4, 1, 5]}"
        )
    found: dict[TopicPartition, list[int]] = {}
    for key, numbers in replicas.items():
        name = _partition_of(key)
        if isinstance(numbers, (str, bytes)) or not isinstance(numbers, Iterable):
            raise ConfigError(
                f"the replicas of {name} are {numbers!r}; they must be a list of nodes, such as [4, 1, 5]"
            )
        found[name] = [whole(f"a replica of {name}", number, 1, INT32_MAX) for number in numbers]
    return found


def _partition_of(key: object) -> TopicPartition:
    if not isinstance(key, tuple) or len(key) != 2:
        raise ConfigError(f"{key!r} is not a partition: give TopicPartition('orders', 0)")
    topic, number = key
    check_name(topic)
    return TopicPartition(topic, whole(f"the partition of {topic!r}", number, 0, INT32_MAX))
