"""Advice: what to tell a caller to whom the cluster gave no answer, or who named what it does not have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pyreplog.config import suggestion
from pyreplog.errors import RequestTimedOutError, UnknownTopicError
from pyreplog.runtime.member import ClusterNode

__all__ = ["Advice"]


class Advice:
    """Errors of a cluster's clients that say what to do next. Any thread."""

    def __init__(self, nodes: Sequence[ClusterNode], topics: Callable[[], Collection[str]]) -> None:
        """``nodes``: of the cluster, all of them by the time somebody asks. ``topics``: the names it has."""
        self._nodes = nodes
        self._topics = topics

    def late(self, what: str, seconds: float | None) -> RequestTimedOutError:
        """``what`` was waited for, for so long."""
        down = [node.node_id for node in self._nodes if not node.ready]
        if len(down) == len(self._nodes):
            why = "no node of the cluster answers. cluster.nodes[0].restart() starts the first one"
        elif down:
            numbers = ", ".join(map(str, down))
            which = f"node {numbers} is" if len(down) == 1 else f"nodes {numbers} are"
            why = f"{which} down, and without a leader nobody answers. cluster.nodes[{down[0] - 1}].restart() starts node {down[0]}"
        else:
            why = "every node is up. Try again, or give it more time"
        return RequestTimedOutError(f"{what} not known{'' if seconds is None else f' after {seconds:g} s'}: {why}")

    def unknown_topic(self, name: str) -> UnknownTopicError:
        """There is no topic ``name``."""
        known = tuple(sorted(self._topics()))
        return UnknownTopicError(f"{name!r}; admin.create_topic makes one{suggestion(name, known) if known else ''}")
