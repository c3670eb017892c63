"""The messages of a stage that are in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyreplog.errors import PyreplogError
from pyreplog.replica import AlterPartition, FetchAnswered, FollowerFetch
from pyreplog.testing.stage_node import Envelope, StageNode
from pyreplog.wire import ErrorCode, materialised

__all__ = ["Flight"]

REFUSALS_MAX: Final = 12
"""Refused fetches of one follower in one leader epoch, beyond one for each earlier epoch."""


class Flight:
    """Messages between nodes and controller, in the order in which they were sent."""

    def __init__(self, broken: Callable[[str, str], None]) -> None:
        self.messages: list[Envelope] = []
        self._broken = broken
        self._fetches: dict[int, tuple[StageNode, Any]] = {}
        self._proposals = 0
        self._refusals: dict[tuple[str, int, int, int], int] = {}

    def find(self, kind: str, source: int = -1, target: int = -1) -> list[Envelope]:
        """Return the messages of ``kind``, from ``source`` and to ``target`` if given."""
        return [
            one
            for one in self.messages
            if one.kind == kind and source in (-1, one.source) and target in (-1, one.target)
        ]

    def send_fetch(self, actor: StageNode) -> None:
        """Send the outstanding fetch of a follower, if it has one."""
        if actor.fetch is not None:
            number = len(self._fetches)
            self._fetches[number] = (actor, actor.fetch.request)
            event = FollowerFetch(str(actor.node_id), number, actor.fetch.request, actor.node_id, actor.epoch)
            self.messages.append(Envelope("fetch", actor.node_id, actor.fetch.leader_id, event))

    def send_records(self, leader_id: int, number: int, result: Any) -> None:
        """Send a leader's answer to the fetch ``number``."""
        follower, request = self._fetches[number]
        try:
            data: Any = materialised(result)
        except PyreplogError:
            return
        event = FetchAnswered(request, data)
        self.messages.append(Envelope("records", leader_id, follower.node_id, (event, follower.starts)))

    def send_proposal(self, actor: StageNode, effect: AlterPartition) -> None:
        """Send a leader's proposal to the controller."""
        self._proposals += 1
        actor.asked = self._proposals
        self.messages.append(Envelope("proposal", actor.node_id, 0, (effect, actor.epoch, self._proposals)))

    def count_refusal(self, actor: StageNode, event: FetchAnswered) -> None:
        """Count an answer that refuses a fetch. A follower must not learn for ever that its log diverges
        (L5), or that its offset is out of range (L12)."""
        data = event.data
        out_of_range = data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        if not out_of_range and (data.diverging_epoch is None or data.error_code):
            return
        rule = "L12" if out_of_range else "L5"
        epoch = event.request.current_leader_epoch
        place = (rule, actor.node_id, actor.starts, epoch)
        count = self._refusals[place] = self._refusals.get(place, 0) + 1
        if count > epoch + REFUSALS_MAX:
            self._broken(rule, f"node {actor.node_id} was refused {count} times in one epoch at {event.request}")
