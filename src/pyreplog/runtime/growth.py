"""Growth: nodes that join a running cluster, and nodes that leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyreplog.client import added_voter, unregistered_broker
from pyreplog.config import check_seconds, whole
from pyreplog.controller import drained, too_large_topics
from pyreplog.errors import ConfigError
from pyreplog.runtime.cluster_node import ClusterNode
from pyreplog.runtime.descriptions import ClusterDescription
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.node_folders import NODES_MAX
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.runtime.node_racks import checked_racks
from pyreplog.runtime.reassignments import ReassignmentHandle
from pyreplog.values import TopicPartition

if TYPE_CHECKING:
    from pyreplog.client import Admin as Machine
    from pyreplog.client import Answer

__all__ = ["Growth"]

NAMED_MAX: Final = 5
"""The topics that an error names."""
FENCED_S: Final = 30.0
"""How long the controller may take to fence a node that stopped. It takes milliseconds."""


class Growth:
    """A part of :class:`pyreplog.Admin`, which has the rest."""

    _driver: Driver
    _nodes: NodeGroup

    if TYPE_CHECKING:

        def describe_cluster(self) -> ClusterDescription: ...
        def cordon(self, node_id: int) -> None: ...
        def reassign(
            self, replicas: Mapping[TopicPartition, Sequence[int]], *, wait: bool = True, timeout: float | None = None
        ) -> ReassignmentHandle: ...
        def _answer(self, ask: Callable[[Machine], Answer], patience: float | None = None) -> Any: ...
        def _remove_vote(self, node_id: int, directory_id: str, patience: float | None = None) -> None: ...

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
        self._move_votes()
        return self.describe_cluster()

    def remove_nodes(self, node_ids: Iterable[int], *, timeout: float | None = None) -> ClusterDescription:
        """Take nodes out of the cluster, and return when it does without them.

        They are cordoned, so that they get no new replicas; their replicas move to the other nodes, while clients go
        on; their votes go to other nodes; then they stop, and are forgotten. Replicas of a node that is down are copied
        from the others. The folder stays, as ``node-4.removed``: it is never opened again, and may be deleted. The
        number stays free: ``add_nodes`` gives it to a new, empty node. An interrupted call is repeated to go on.
        ``timeout``: seconds for the moves; None: as long as records move.

        Raises ConfigError for nodes that do not exist, for the last ones, and if a topic would have more replicas than
        there are nodes; TimeoutError, which says what is left: the moves go on then.
        """
        numbers = self._checked_leaving(node_ids)
        self._check_room(numbers)
        for number in numbers:
            if self._nodes.of(number)._is_broker:
                self.cordon(number)
        self._drain(numbers, timeout)
        self._move_votes(numbers)
        for number in numbers:
            self._put_away(number)
        return self.describe_cluster()

    def _checked_leaving(self, node_ids: Iterable[int]) -> list[int]:
        if isinstance(node_ids, (str, bytes)) or not isinstance(node_ids, Iterable):
            raise ConfigError(f"node_ids is {node_ids!r}; it must be a list of numbers, such as [4, 5]")
        numbers = [whole("a node of node_ids", number, 1, NODES_MAX) for number in node_ids]
        if not numbers:
            raise ConfigError("node_ids is empty: name the nodes that leave, such as [4, 5]")
        present = [node.node_id for node in self._nodes.nodes if not node.removed]
        for position, number in enumerate(numbers):
            if number in numbers[:position]:
                raise ConfigError(f"node {number} is named twice in node_ids")
            if number not in present:
                raise ConfigError(f"there is no node {number}: the nodes are {_listed(present)}")
        staying = [node.node_id for node in self._nodes.brokers if node.node_id not in numbers]
        if not staying:
            raise ConfigError("no node that holds partitions would stay: delete the cluster's folder instead")
        if not self._driver.run_exclusively(lambda: self._nodes.controller.wanted_voters(numbers)):
            raise ConfigError("no voter would stay: a cluster needs a node with the role 'controller'")
        return sorted(numbers)

    def _check_room(self, numbers: Sequence[int]) -> None:
        """Raise ConfigError if a topic has more replicas than nodes that stay."""
        large = self._driver.run_exclusively(lambda: too_large_topics(self._nodes.controller.image, numbers))
        if large:
            named = ", ".join(f"{name!r} ({factor})" for name, factor in sorted(large.items())[:NAMED_MAX])
            more = f" and {len(large) - NAMED_MAX} more" if len(large) > NAMED_MAX else ""
            room = len(self._nodes.brokers) - len(set(numbers) & {node.node_id for node in self._nodes.brokers})
            raise ConfigError(
                f"{room} nodes would stay, and these topics have more replicas: {named}{more}; give them fewer first,"
                f" with alter_replication_factor({next(iter(sorted(large)))!r}, {room})"
            )

    def _drain(self, numbers: Sequence[int], timeout: float | None) -> None:
        """Move the replicas of the nodes to others. Repeat it for topics that are created during the moves."""
        while True:
            moves = self._driver.run_exclusively(lambda: drained(self._nodes.controller.image, numbers))
            if not moves:
                return
            self.reassign({TopicPartition(*key): replicas for key, replicas in moves.items()}, timeout=timeout)

    def _move_votes(self, leaving: Sequence[int] = ()) -> None:
        """Give votes to the nodes that are to have one, then take those of nodes that leave or are too many."""
        controller, driver = self._nodes.controller, self._driver
        for number in driver.run_exclusively(lambda: sorted(controller.wanted_voters(leaving))):
            key = driver.run_exclusively(lambda number=number: controller.key_of(number))  # type: ignore[misc]
            if key is not None and not driver.run_exclusively(lambda number=number: controller.is_voter(number)):  # type: ignore[misc]
                change = added_voter(*key, controller.address_for(number), controller.cluster_id)
                self._answer(lambda machine, change=change: machine.change(change))  # type: ignore[misc]
        voters = {voter.node_id: voter.directory_id for voter in controller.newest_voters()}
        for number in leaving:
            if number in voters:
                self._remove_vote(number, voters[number])
        for number, directory_id in driver.run_exclusively(lambda: controller.voters_beyond(leaving)).items():
            self._remove_vote(number, directory_id)

    def _put_away(self, number: int) -> None:
        """Stop a node that holds nothing, give its folder another name, and let the controller forget it."""
        driver, controller = self._driver, self._nodes.controller
        left = driver.run_exclusively(
            lambda: [
                f"{topic.name}-{place}"
                for topic in controller.image.topics.values()
                for place, partition in topic.partitions.items()
                if number in partition.replicas
            ]
        )
        if left:
            raise ConfigError(f"node {number} still has a replica of {left[0]}: call remove_nodes again")
        node = self._nodes.of(number)
        node.stop()
        driver.run_exclusively(lambda: self._nodes.put_away(number))
        if driver.run_exclusively(lambda: number in controller.image.brokers):
            self._forget_node(number)

    def _forget_node(self, number: int) -> None:
        controller = self._nodes.controller
        self._driver.wait_until(lambda: controller.is_fenced(number), FENCED_S)
        self._answer(lambda machine: machine.change(unregistered_broker(number)))

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
