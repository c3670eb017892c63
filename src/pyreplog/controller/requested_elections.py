"""The elections that clients request (ElectLeaders, KIP-460): which wait for reports, and their
answers."""

from __future__ import annotations

from pyreplog.controller.controller import Controller
from pyreplog.controller.image import PartitionKey
from pyreplog.controller.partition_decisions import ELECTION_WAIT_MS
from pyreplog.wire import (
    ELECT_UNCLEAN,
    NO_LEADER,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResult,
    ErrorCode,
    Request,
)

__all__ = ["RequestedElections"]

_MS = 1_000_000


class RequestedElections:
    """Holds requested elections over ``controller``. One owner.

    A request for an unclean election first waits a moment for the ends of all live replicas.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._waiting: list[tuple[Request, ElectLeadersRequest, int]] = []
        """(Request, its body, time in ns until which it waits)."""

    @property
    def next_deadline_ns(self) -> int | None:
        """The time at which :meth:`hold` has work to do even if no report arrives."""
        return min((until for _, _, until in self._waiting), default=None)

    def add(self, request: Request, body: ElectLeadersRequest, now_ns: int) -> None:
        """Let a request wait for the reports that it needs."""
        self._waiting.append((request, body, now_ns + ELECTION_WAIT_MS * _MS))

    def waiting(self) -> list[Request]:
        """Return the requests that wait."""
        return [request for request, _, _ in self._waiting]

    def hold(self, now_ns: int) -> list[tuple[Request, ElectLeadersResponse]]:
        """Hold the elections that need not wait any longer; return their requests and answers."""
        held = []
        waiting = []
        for entry in self._waiting:
            request, body, until = entry
            if until <= now_ns or self.ends_are_known(body):
                held.append((request, self.elect(body)))
            else:
                waiting.append(entry)
        self._waiting = waiting
        return held

    def elect(self, body: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect the preferred leader if it is in sync, or an unclean leader if there is no leader.

        The answer for each unclean election names the lost offsets.
        """
        results = []
        for name, keys in self._keys(body).items():
            parts = []
            for key in keys:
                parts.append(
                    self._elect_uncleanly(name, key, dry_run=body.dry_run)
                    if body.election_type == ELECT_UNCLEAN
                    else self._elect_preferred(key)
                )
            results.append(ElectLeadersResult(name, parts))
        return ElectLeadersResponse(results)

    def ends_are_known(self, body: ElectLeadersRequest) -> bool:
        """Return whether every live replica of the leaderless partitions in ``body`` reported its
        end."""
        return body.election_type != ELECT_UNCLEAN or all(
            self._controller.ends_are_known(key) for keys in self._keys(body).values() for key in keys
        )

    def _keys(self, body: ElectLeadersRequest) -> dict[str, list[PartitionKey]]:
        image = self._controller.image
        if body.topic_partitions is None:
            return {one.name: [(one.topic_id, number) for number in one.partitions] for one in image.topics.values()}
        return {
            one.topic: [(image.topic_ids.get(one.topic, ""), number) for number in one.partitions]
            for one in body.topic_partitions
        }

    def _elect_preferred(self, key: PartitionKey) -> ElectLeadersPartitionResult:
        code = self._controller.elect_preferred(key)
        partition = self._controller.image.partition(key)
        if partition is None:
            return ElectLeadersPartitionResult(key[1], code)
        return ElectLeadersPartitionResult(
            key[1], code, leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )

    def _elect_uncleanly(self, name: str, key: PartitionKey, *, dry_run: bool) -> ElectLeadersPartitionResult:
        partition = self._controller.image.partition(key)
        if partition is None:
            return ElectLeadersPartitionResult(key[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.leader != NO_LEADER:
            return ElectLeadersPartitionResult(
                key[1],
                ErrorCode.ELECTION_NOT_NEEDED,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
            )
        done = self._controller.elect_uncleanly(name, key[1], dry_run=dry_run)
        if done is None:
            return ElectLeadersPartitionResult(key[1], ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        return ElectLeadersPartitionResult(
            key[1], 0, str(done), leader_id=done.leader, leader_epoch=done.leader_epoch, lost=done.lost()
        )
