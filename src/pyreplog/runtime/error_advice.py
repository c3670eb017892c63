"""Advice: error texts for a caller that got no answer from the cluster, or that named an unknown topic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pyreplog.config import suggestion
from pyreplog.errors import PyreplogError, RequestTimedOutError, UnknownTopicError
from pyreplog.runtime.cluster_node import ClusterNode
from pyreplog.runtime.metadata_view import Leaderless
from pyreplog.values import TopicPartition

__all__ = ["Advice"]


class Advice:
    """Makes errors for a cluster's clients that say what to do next. Any thread."""

    def __init__(
        self,
        nodes: Sequence[ClusterNode],
        topics: Callable[[], Collection[str]],
        awaited: Callable[[TopicPartition], Leaderless | None],
        refused: Callable[[str], Mapping[int, PyreplogError]],
        lack: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``nodes``: the cluster's nodes; the list must be complete before the first error is made.

        ``topics`` returns the names of the cluster's topics. ``awaited`` returns the nodes that may lead a leaderless
        partition, and None if it has a leader. ``refused`` returns the nodes whose disks refuse to make a copy of a
        topic, with the errors. ``lack`` returns which voters are missing while a majority of them is down.
        """
        self._nodes = nodes
        self._topics = topics
        self._awaited = awaited
        self._refused = refused
        self._lack = lack

    def late(self, what: str, seconds: float | None, of: TopicPartition | None = None) -> RequestTimedOutError:
        """Return the error for a wait of ``seconds`` for ``what``, of the partition ``of`` (None: of none)."""
        brokers = [node for node in self._nodes if node._is_broker]
        down = [node.node_id for node in brokers if not node.ready]
        awaited = None if of is None else self._awaited(of)
        lack = self._lack()
        if lack is not None and any(node.alive for node in self._nodes):
            why = lack
        elif of is not None and awaited is not None and len(down) < len(brokers):
            why = _leaderless(of, awaited, down)
        elif len(down) == len(brokers):
            why = f"no node of the cluster answers. cluster.nodes[{down[0] - 1}].restart() starts the first one"
        elif down:
            numbers = ", ".join(map(str, down))
            which = f"node {numbers} is" if len(down) == 1 else f"nodes {numbers} are"
            why = (
                f"{which} down, and only a leader can answer. cluster.nodes[{down[0] - 1}].restart() starts node"
                f" {down[0]}"
            )
        elif of is not None and (refused := self._refused(of.topic)):
            why = "; ".join(f"node {number}: {error}" for number, error in refused.items())
        elif failures := [(node.node_id, node.failure) for node in self._nodes if node.failure is not None]:
            # Their disks failed, but the controller has not fenced them: perhaps it writes to the
            # same disk.
            why = (
                f"{'; '.join(f'node {number}: {error}' for number, error in failures)}. restart() has a node try its"
                " disk again"
            )
        else:
            why = "every node is up. Try again, or give it more time"
        return RequestTimedOutError(f"{what} not known{'' if seconds is None else f' after {seconds:g} s'}: {why}")

    def lack(self) -> str | None:
        """Return which voters are missing; None unless a majority of them is down."""
        return self._lack()

    def topics(self) -> Collection[str]:
        """Return the names of the cluster's topics."""
        return self._topics()

    def unknown_topic(self, name: str) -> UnknownTopicError:
        """Return the error for a topic ``name`` that does not exist."""
        known = tuple(sorted(self._topics()))
        return UnknownTopicError(f"{name!r}; admin.create_topic makes one{suggestion(name, known) if known else ''}")


def _leaderless(of: TopicPartition, awaited: Leaderless, down: Sequence[int]) -> str:
    """Return why a partition has no leader, and what to do."""
    lose = (
        f"cluster.admin.elect_leaders({of.topic!r}, [{of.partition}], unclean=True) has another lead, and says what"
        " that loses"
    )
    if not awaited.eligible:
        return f"it has no leader, and no node is known to have all that was acknowledged: {lose}"
    others = set(awaited.replicas) - set(awaited.eligible)
    either = " or ".join(map(str, sorted(awaited.eligible)))
    why = f"only node {either} is known to have all that was acknowledged"
    back = [number for number in sorted(awaited.eligible) if number in down]
    if back:
        why += f", and node {back[0]} is down. cluster.nodes[{back[0] - 1}].restart() starts node {back[0]}"
    else:
        why += ", and does not serve it yet"
    return f"it has no leader: {why}{f'; if that is in vain, {lose}' if others else ''}"
