"""Growth: nodes that join a running cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyreplog.config import check_seconds, whole
from pyreplog.errors import ConfigError
from pyreplog.runtime.cluster_node import ClusterNode
from pyreplog.runtime.descriptions import ClusterDescription
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.node_folders import NODES_MAX
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.runtime.node_racks import checked_racks

__all__ = ["Growth"]


class Growth:
    """A part of :class:`pyreplog.Admin`, which has the rest."""

    _driver: Driver
    _nodes: NodeGroup

    if TYPE_CHECKING:

        def describe_cluster(self) -> ClusterDescription: ...

    def add_nodes(
        self, node_ids: Iterable[int], racks: Sequence[str] | None = None, *, timeout: float | None = 30.0
    ) -> ClusterDescription:
        """Start new, empty nodes, and return when they serve.

        ``node_ids``: their numbers. A new number must follow the highest one; the number of a node that left
        (``remove_nodes``) may be used again. ``racks``: the rack of each, if the nodes of the cluster have racks. The
        new nodes get replicas of new topics from then on, and of existing partitions by ``rebalance`` or ``reassign``.
        ``timeout``: seconds to wait for each.

        Raises ConfigError for numbers or racks that cannot be, RequestTimedOutError: the nodes go on starting then.
        """
        numbers = self._checked_numbers(node_ids)
        names = self._checked_racks(racks, numbers)
        patience = check_seconds("timeout", timeout)
        made: list[ClusterNode] = []
        for number in numbers:
            rack = names[number]
            made.append(self._driver.run_exclusively(lambda number=number, rack=rack: self._nodes.add(number, rack)))  # type: ignore[misc]
        for node in made:
            node.restart(patience)
        self._driver.run_exclusively(self._nodes.controller.let_vote)
        return self.describe_cluster()

    def _checked_numbers(self, node_ids: Iterable[int]) -> list[int]:
        if isinstance(node_ids, (str, bytes)) or not isinstance(node_ids, Iterable):
            raise ConfigError(f"node_ids is {node_ids!r}; it must be a list of numbers, such as [4, 5]")
        numbers = [whole("a node of node_ids", number, 1, NODES_MAX) for number in node_ids]
        if not numbers:
            raise ConfigError("node_ids is empty: name the numbers of the new nodes, such as [4, 5]")
        present = [node.node_id for node in self._nodes.nodes if not node.removed]
        known = len(self._nodes.nodes)
        for position, number in enumerate(numbers):
            if number in numbers[:position]:
                raise ConfigError(f"node {number} is named twice in node_ids")
            if number in present:
                raise ConfigError(f"there is a node {number} already: the nodes are {_listed(present)}")
        new = sorted(number for number in numbers if number > known)
        if new != list(range(known + 1, known + 1 + len(new))):
            raise ConfigError(
                f"node {new[0]} does not follow node {known}: number new nodes from {known + 1} on, without a gap"
            )
        return sorted(numbers)

    def _checked_racks(self, racks: Sequence[str] | None, numbers: Sequence[int]) -> dict[int, str | None]:
        given = checked_racks(racks)
        brokers = self._driver.run_exclusively(lambda: self._nodes.controller.image.brokers)
        have_racks = any(one.rack for one in brokers.values())
        if given is not None and len(given) != len(numbers):
            raise ConfigError(
                f"racks has {len(given)} names for {len(numbers)} nodes: give one for each, in the order of their"
                " numbers"
            )
        has_names = given is not None and given[0] is not None
        if has_names != have_racks:
            raise ConfigError(
                "the nodes of this cluster have racks: give racks= with one for each new node"
                if have_racks
                else "the nodes of this cluster have no racks: leave racks= out, or open the cluster with racks for all"
            )
        return dict(zip(numbers, given, strict=True)) if given is not None else dict.fromkeys(numbers)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
