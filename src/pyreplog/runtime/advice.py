"""Advice: what to tell a caller to whom the cluster gave no answer, or who named what it does not have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pyreplog.config import suggestion
from pyreplog.errors import PyreplogError, RequestTimedOutError, UnknownTopicError
from pyreplog.runtime.cluster_node import ClusterNode
from pyreplog.runtime.controller_host import Leaderless
from pyreplog.values import TopicPartition

__all__ = ["Advice"]


class Advice:
    """Errors of a cluster's clients that say what to do next. Any thread."""

    def __init__(
        self,
        nodes: Sequence[ClusterNode],
        topics: Callable[[], Collection[str]],
        awaited: Callable[[TopicPartition], Leaderless | None],
        refused: Callable[[str], Mapping[int, PyreplogError]],
    ) -> None:
        """``nodes``: of the cluster, all of them by the time somebody asks. ``topics``: the names it has.
        ``awaited``: who may lead a partition that nobody leads; None where somebody does. ``refused``: which nodes'
        disks do not let them make a copy of a topic, and why."""
        self._nodes = nodes
        self._topics = topics
        self._awaited = awaited
        self._refused = refused

    def late(self, what: str, seconds: float | None, of: TopicPartition | None = None) -> RequestTimedOutError:
        """``what``, of that partition, was waited for, for so long."""
        down = [node.node_id for node in self._nodes if not node.ready]
        awaited = None if of is None else self._awaited(of)
        if of is not None and awaited is not None and len(down) < len(self._nodes):
            why = _leaderless(of, awaited, down)
        elif len(down) == len(self._nodes):
            why = "no node of the cluster answers. cluster.nodes[0].restart() starts the first one"
        elif down:
            numbers = ", ".join(map(str, down))
            which = f"node {numbers} is" if len(down) == 1 else f"nodes {numbers} are"
            why = (
                f"{which} down, and without a leader nobody answers. cluster.nodes[{down[0] - 1}].restart() starts node"
                f" {down[0]}"
            )
        elif of is not None and (refused := self._refused(of.topic)):
            why = "; ".join(f"node {number}: {error}" for number, error in refused.items())
        elif failures := [(node.node_id, node.failure) for node in self._nodes if node.failure is not None]:
            # The controller did not fence them: perhaps its disk is theirs.
            why = (
                f"{'; '.join(f'node {number}: {error}' for number, error in failures)}. restart() has a node try its"
                " disk again"
            )
        else:
            why = "every node is up. Try again, or give it more time"
        return RequestTimedOutError(f"{what} not known{'' if seconds is None else f' after {seconds:g} s'}: {why}")

    def unknown_topic(self, name: str) -> UnknownTopicError:
        """There is no topic ``name``."""
        known = tuple(sorted(self._topics()))
        return UnknownTopicError(f"{name!r}; admin.create_topic makes one{suggestion(name, known) if known else ''}")


def _leaderless(of: TopicPartition, awaited: Leaderless, down: Sequence[int]) -> str:
    """Why nobody leads, and what to do."""
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
