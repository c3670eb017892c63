"""Rebalancing: the calls of an Admin that spread replicas over nodes, and keep them off some. Thread-safe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyreplog.client import altered_configs
from pyreplog.config import INT32_MAX, check_flag, check_seconds, whole
from pyreplog.controller import (
    ALL_DIRECTORIES,
    CORDONED,
    MetadataImage,
    PlannedTopic,
    RebalancePlan,
    ReplicaMove,
    plan_rebalance,
    plan_replication_factor,
)
from pyreplog.errors import ConfigError, InvalidTopicError
from pyreplog.log import is_internal
from pyreplog.runtime.descriptions import ClusterDescription
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.error_advice import Advice
from pyreplog.runtime.folder_opening import check_name
from pyreplog.runtime.node_folders import NODES_MAX
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.values import TopicPartition
from pyreplog.wire import RESOURCE_BROKER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyreplog.client import Admin as Machine
    from pyreplog.client import Answer
    from pyreplog.runtime.reassignments import PartitionReassignment, ReassignmentHandle

__all__ = ["RebalancePlan", "Rebalancing", "ReplicaMove"]

MOVING_MAX: Final = 16
"""The partitions that get other replicas at the same time."""


class _Situation(NamedTuple):
    """What a plan is made of."""

    topics: list[PlannedTopic]
    racks: dict[int, str | None]
    """The nodes that may get replicas."""
    frozen: dict[int, str | None]
    """The nodes that are cordoned or down."""


class Rebalancing:
    """A part of :class:`pyreplog.Admin`, which has the rest."""

    _driver: Driver
    _advice: Advice
    _nodes: NodeGroup

    if TYPE_CHECKING:

        def _answer(self, ask: Callable[[Machine], Answer], patience: float | None = None) -> Any: ...
        def _await_nodes(self, patience: float | None) -> float | None: ...
        def describe_cluster(self) -> ClusterDescription: ...
        def list_reassignments(self) -> dict[TopicPartition, PartitionReassignment]: ...
        def reassign(
            self,
            replicas: Mapping[TopicPartition, Sequence[int]],
            *,
            wait: bool = True,
            timeout: float | None = None,
        ) -> ReassignmentHandle: ...

    def cordon(self, node_id: int) -> None:
        """Give a node no new replicas, and return when that is decided. It keeps those that it has, and its
        leaderships.

        The cluster remembers it until :meth:`uncordon`, also over restarts. Raises ConfigError for a missing node.
        """
        self._set_cordon(node_id, ALL_DIRECTORIES)

    def uncordon(self, node_id: int) -> None:
        """Let a node get new replicas again. Nothing happens if it is not cordoned. Raises ConfigError for a missing
        node."""
        self._set_cordon(node_id, None)

    def _set_cordon(self, node_id: int, value: str | None) -> None:
        number = whole("node_id", node_id, 1, NODES_MAX)
        self._await_nodes(None)
        known = self._driver.run_exclusively(lambda: sorted(self._nodes.controller.image.brokers))
        if number not in known:
            raise ConfigError(
                f"there is no node {number} that holds partitions: those are {', '.join(map(str, known))}"
            )
        change = altered_configs(RESOURCE_BROKER, str(number), {CORDONED: value})
        self._answer(lambda machine: machine.change(change))
        self._nodes.await_metadata(f"the cordon of node {number} is changed", None)

    def rebalance(self, dry_run: bool = False, *, timeout: float | None = None) -> RebalancePlan:
        """Spread the replicas evenly over the nodes with the fewest moves, and return the plan when it is carried out.

        Each topic has as many replicas on each node as on any other, within one, and so have all topics together;
        racks come first: then the plan names the nodes that carry more. The replicas on nodes that are cordoned or
        down stay. New replicas copy their records before old ones go, a few partitions at a time; producers and
        consumers go on. ``dry_run``: only return the plan. ``timeout``: seconds for the moves; None: as long as
        records move.

        Raises ConfigError while partitions get other replicas already (it names one), TimeoutError, which says what
        is left: a second call plans the rest.
        """
        check_flag("dry_run", dry_run)
        patience = self._await_nodes(check_seconds("timeout", timeout))
        situation = self._situation()
        if not situation.racks:
            raise ConfigError("every node is cordoned or down: uncordon or restart one first")
        plan = plan_rebalance(*situation)
        if not dry_run:
            self._move_replicas(plan, patience)
        return plan

    def alter_replication_factor(
        self, topic: str, replication_factor: int, *, dry_run: bool = False, timeout: float | None = None
    ) -> RebalancePlan:
        """Give a topic more or fewer replicas, and return the plan when it is carried out.

        New replicas go where the topic has the fewest; those on nodes that are cordoned or down go first. No other
        replica moves. ``dry_run`` and ``timeout`` mean the same as in :meth:`rebalance`.

        Raises ConfigError for more replicas than there are nodes for them, UnknownTopicError, InvalidTopicError for
        an internal topic, and the errors of :meth:`rebalance`.
        """
        check_name(topic)
        if is_internal(topic):
            raise InvalidTopicError(f"{topic!r} is an internal topic: only pyreplog itself changes it")
        factor = whole("replication_factor", replication_factor, 1, INT32_MAX)
        check_flag("dry_run", dry_run)
        patience = self._await_nodes(check_seconds("timeout", timeout))
        topics, racks, frozen = self._situation()
        wanted = next((one for one in topics if one.name == topic), None)
        if wanted is None:
            raise self._advice.unknown_topic(topic)
        for number, members in enumerate(wanted.replicas):
            room = len({*racks, *members})
            if factor > max(room, len(members)):
                raise ConfigError(
                    f"replication_factor is {factor}; {topic}-{number} can have at most {room} replicas, because there"
                    f" are {len(racks)} nodes that are up and not cordoned: add nodes first, with add_nodes"
                )
        totals = Counter(node for one in topics for members in one.replicas for node in members)
        plan = plan_replication_factor(wanted, factor, racks, frozen, totals)
        if not dry_run:
            self._move_replicas(plan, patience)
        return plan

    def _situation(self) -> _Situation:
        """Return the topics and nodes as they are now. Raises ConfigError while partitions get other replicas."""
        going = self.list_reassignments()
        if going:
            name, one = next(iter(going.items()))
            raise ConfigError(
                f"{name}{f' and {len(going) - 1} more partitions' if len(going) > 1 else ''} is getting other replicas"
                f" already, on nodes {', '.join(map(str, one.replicas))}: wait, or cancel_reassignment"
            )
        image, sizes = self._driver.run_exclusively(self._measured)
        brokers = image.brokers.values()
        frozen = {one.broker_id: one.rack for one in brokers if not one.active or one.broker_id in image.cordoned}
        racks = {one.broker_id: one.rack for one in brokers if one.broker_id not in frozen}
        topics = [
            PlannedTopic(
                topic.name,
                [partition.target for partition in topic.partitions.values()],
                [sizes.get(TopicPartition(topic.name, number), 0) for number in topic.partitions],
            )
            for topic in image.topics.values()
            if not is_internal(topic.name)
        ]
        return _Situation(topics, racks, frozen)

    def _measured(self) -> tuple[MetadataImage, dict[TopicPartition, int]]:
        """Return the metadata, and the bytes of the largest copy of each partition. REQUIRES that no machine runs."""
        sizes: dict[TopicPartition, int] = {}
        for node in self._nodes.brokers:
            for name, size in node._sizes():
                sizes[name] = max(size, sizes.get(name, 0))
        return self._nodes.controller.image.copy(), sizes

    def _move_replicas(self, plan: RebalancePlan, patience: float | None) -> None:
        """Move the replicas of a few partitions at a time."""
        begun_ns = self._driver.monotonic_ns()
        left = iter(plan.assignment.items())
        while part := dict(islice(left, MOVING_MAX)):
            rest = None
            if patience is not None:
                rest = max(patience - (self._driver.monotonic_ns() - begun_ns) / 1e9, 0.0)
            self.reassign({TopicPartition(*name): replicas for name, replicas in part.items()}, timeout=rest)
