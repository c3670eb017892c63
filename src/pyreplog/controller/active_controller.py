"""The controller of a voter while that voter is the active one: it decides over a working image.

The working image is the committed one with this controller's own uncommitted records. An answer
leaves when the records that it reflects are committed, and, if it grants a lease or only reads, when
a majority of the voters has confirmed since the request that this voter still leads.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from pyreplog.controller.change_codec import ChangeEncoder
from pyreplog.controller.committed_metadata import CommittedMetadata
from pyreplog.controller.controller import Controller
from pyreplog.controller.decision_log import tell_decisions
from pyreplog.controller.requests import DESCRIPTIONS, ControllerRequests, Decided, refused
from pyreplog.errors import InternalError, LocalProtocolError, OutcomeUnknownError, PyreplogError, StorageError
from pyreplog.quorum import QuorumEffect, RaftNode
from pyreplog.wire import (
    NO_ERROR,
    BrokerHeartbeatResponse,
    DescribeClusterResponse,
    DescribeTopicPartitionsResponse,
    ErrorCode,
    MetadataRecord,
    MetadataResponse,
    Request,
)

__all__ = ["ActiveController"]

APPEND_BYTES: Final = 4 << 20
"""More records than this are appended in several batches. A controller that takes over between two
of them completes them."""

_log = logging.getLogger("pyreplog")


@dataclass(slots=True)
class _WaitingAnswers:
    """Answers that wait until the record at ``offset`` is committed and leadership is proved."""

    answers: list[Decided]
    offset: int
    proved: bool


class ActiveController:
    """Decides while ``raft`` leads. One owner.

    After each call the owner carries out :meth:`take_effects` and sends :meth:`take_released`.
    """

    def __init__(self, raft: RaftNode, committed: CommittedMetadata, controller: Controller) -> None:
        """Prepare to decide with ``controller``, whose image is a copy of the committed one.

        REQUIRES that the first record of this leader's epoch is committed.
        """
        self._raft = raft
        self._committed = committed
        self.controller = controller
        self.since_ns = 0
        """The time of :meth:`start`."""
        self._requests = ControllerRequests(controller)
        self._encoder = ChangeEncoder()
        self._uncommitted: list[tuple[int, MetadataRecord]] = []
        self._waiting: dict[int, _WaitingAnswers] = {}
        self._token = 0
        self._effects: list[QuorumEffect] = []
        self._is_refused = False
        """Whether the log refused the last decisions. Each retry would say so again."""
        self._has_begun = False
        """Whether the first decisions of this controller wait for :meth:`step`, to be appended with others."""
        self._undecided: list[Request] = []
        """Requests whose decisions are being appended. If that ends this voter, they are refused."""

    # ------------------------------------------------------------------------------------ decisions

    def start(self, now_ns: int, gone: Collection[str], *, is_followed: bool) -> None:
        """Take over from the former controller; ``gone``: see :meth:`Controller.take_over`.

        ``is_followed``: requests wait for :meth:`step`, which appends these decisions with theirs.
        """
        self.since_ns = now_ns
        self._align()
        self.controller.take_over(now_ns, gone)
        self._has_begun = is_followed
        if not is_followed:
            self._append_or_undo(now_ns)

    @property
    def next_deadline_ns(self) -> int | None:
        """The time at which :meth:`step` has work to do even if no request arrives."""
        return self._requests.next_deadline_ns

    def step(self, requests: Sequence[Request], now_ns: int) -> None:
        """Decide ``requests`` in order, then the timed work that is due."""
        self._align()
        answers = self._requests.step(requests, now_ns)
        for _, found in answers:
            if isinstance(found, DescribeClusterResponse | MetadataResponse):
                found.controller_id = self._raft.identity.node_id
            elif isinstance(found, DescribeTopicPartitionsResponse | BrokerHeartbeatResponse):
                found.controller_epoch = self._raft.epoch
        self._undecided = [answer.request for answer in answers]
        error = self._append_or_undo(now_ns)
        self._undecided = []
        if error is not None:
            code = ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, StorageError) else ErrorCode.UNKNOWN_SERVER_ERROR
            answers = [
                Decided(request, body)
                for request, _ in answers
                if (body := refused(request.body, code, str(error))) is not None
            ]
        self._hold(answers, now_ns)

    def finished(self, next_wake_ns: int | None) -> None:
        """Note when the next step is due, so that a pause of the process shows in it."""
        self._requests.finished(next_wake_ns)

    def fence(self, broker_id: int, now_ns: int) -> None:
        """Fence a broker whose end the transport reported."""
        self._align()
        self.controller.fence(broker_id, now_ns)
        self._append_or_undo(now_ns)

    def take_effects(self) -> list[QuorumEffect]:
        """Return the effects of the quorum since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def _align(self) -> None:
        """Let the next record have the offset at the end of the log, which has control records
        too."""
        if not self._has_begun:
            self.controller.image.offset = self._raft.log_end_offset - 1

    # -------------------------------------------------------------------------------------- the log

    def _append_or_undo(self, now_ns: int) -> PyreplogError | None:
        """Append the new decisions. If the log refuses them, undo them and return the reason."""
        self._has_begun = False
        records = self.controller.take()
        try:
            self._append(records, now_ns)
        except (StorageError, OutcomeUnknownError, LocalProtocolError) as error:
            if self._raft.role_name == "failed":
                raise
            if not self._is_refused:
                _log.error("the controller could not write its decisions, and tries again: %s", error)
            self._is_refused = True
            image = self._committed.image.copy()
            for entry in self._uncommitted:
                image.apply(*entry)
            self.controller.image = image
            self._align()
            self.controller.try_again(now_ns)
            return error
        if records and self._is_refused:
            self._is_refused = False
            _log.warning("the controller writes its decisions again")
        return None

    def _append(self, records: Sequence[tuple[int, MetadataRecord]], now_ns: int) -> None:
        batch: list[bytes] = []
        first = size = 0
        for index, (_, record) in enumerate(records):
            value = self._encoder.encode(record)
            if batch and size + len(value) > APPEND_BYTES:
                self._append_batch(records[first:index], batch, now_ns)
                batch, size, first = [], 0, index
            batch.append(value)
            size += len(value)
        if batch:
            self._append_batch(records[first:], batch, now_ns)

    def _append_batch(
        self, records: Sequence[tuple[int, MetadataRecord]], values: Sequence[bytes], now_ns: int
    ) -> None:
        appended = self._raft.append(values, now_ns)
        if (appended.first_offset, appended.last_offset) != (records[0][0], records[-1][0]):
            raise InternalError(
                f"records decided for offsets {records[0][0]} to {records[-1][0]} were appended at"
                f" {appended.first_offset} to {appended.last_offset}"
            )
        self._uncommitted.extend(records)
        self._effects.extend(appended.effects)

    def committed(self) -> None:
        """Apply the records that were committed since the last call to the committed image."""
        records = self._committed.advance(self._uncommitted, self.controller.image)
        end = self._committed.image.offset
        keep = 0
        while keep < len(self._uncommitted) and self._uncommitted[keep][0] <= end:
            keep += 1
        del self._uncommitted[:keep]
        tell_decisions(records, self._committed.image)

    # -------------------------------------------------------------------------------------- answers

    def _hold(self, answers: Sequence[Decided], now_ns: int) -> None:
        offset = self.controller.image.offset
        plain = [one for one in answers if not self._needs_proof(one)]
        if plain:
            self._token += 1
            self._waiting[self._token] = _WaitingAnswers(plain, offset, proved=True)
        to_prove = [one for one in answers if self._needs_proof(one)]
        if to_prove:
            self._token += 1
            self._waiting[self._token] = _WaitingAnswers(to_prove, offset, proved=False)
            self._effects.extend(self._raft.prove_leadership(self._token, now_ns))

    def _needs_proof(self, answer: Decided) -> bool:
        """Return whether the answer is right only if no other controller is active.

        A heartbeat's answer grants a lease; a description must not be older than another one.
        """
        body = answer.body
        if isinstance(body, BrokerHeartbeatResponse):
            return body.error_code == NO_ERROR
        return isinstance(answer.request.body, DESCRIPTIONS)

    def _is_committed(self, offset: int) -> bool:
        return offset < self._raft.high_watermark

    def proved(self, token: object) -> None:
        """Note that this voter led when the answers with ``token`` were made."""
        for number, waiting in self._waiting.items():
            if number == token:
                waiting.proved = True

    def take_released(self) -> list[Decided]:
        """Return the answers that may leave now."""
        released: list[Decided] = []
        for token, waiting in list(self._waiting.items()):
            if waiting.proved and self._is_committed(waiting.offset):
                released.extend(waiting.answers)
                del self._waiting[token]
        return released

    def unanswered(self) -> list[Request]:
        """Return the requests without an answer, at the end of this controller's time."""
        waiting = [answer.request for one in self._waiting.values() for answer in one.answers]
        return self._undecided + waiting + self._requests.waiting()
