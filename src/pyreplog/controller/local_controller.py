"""The controller of a cluster in one process. It decides, keeps its state in one file, and sends
its decisions to the nodes.

It takes the place of Kafka's metadata quorum and uses the same messages: brokers register with it,
send it heartbeats and proposals, and fetch its decisions as metadata records at offsets from
``__cluster_metadata``. It sends no answer before its state is durable.

How to run one::

    controller = LocalController.open(disk, "data", config, random, now_ns=clock.monotonic_ns())
    server = ControllerServer(controller, transport, clock)     # listens at CONTROLLER_ADDRESS
    server.poll()                                               # whenever a message may have arrived; False: no work
    server.next_wake_ns                                         # call poll at this time at the latest
    server.fence(broker_id)                                     # if the caller knows that a node was killed
    server.close()                                              # there is nothing to flush
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyreplog.config import NodeConfig
from pyreplog.controller import describe
from pyreplog.controller.controller import Controller
from pyreplog.controller.decision_log import tell_decisions
from pyreplog.controller.election import ReplicaEnd, UncleanElection
from pyreplog.controller.image import MetadataImage, PartitionKey
from pyreplog.controller.metadata_fetches import MetadataFetches
from pyreplog.controller.requested_elections import RequestedElections
from pyreplog.controller.state import STATE_FILE, ControllerState, decode, encode, load, read_state, store
from pyreplog.controller.topics import new_id
from pyreplog.errors import ClosedError, CorruptError, InternalError, StorageError, excerpt, is_interruption
from pyreplog.log import keep_reserve, make_folder
from pyreplog.ports import Address, Clock, Disk, Random, Received, Transport
from pyreplog.wire import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ErrorCode,
    FetchRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    Repeats,
    Request,
    RequestBody,
    Response,
    ResponseBody,
    refusal,
)

__all__ = ["CONTROLLER_ADDRESS", "LocalController", "ControllerServer", "ControllerReply"]

CONTROLLER_ADDRESS: Final = "controller"
STALL_NS: Final = 250_000_000
"""A step that runs this much later than planned means that the process was paused."""
_MS: Final = 1_000_000
_ONCE: Final = frozenset({CreateTopicsRequest, DeleteTopicsRequest, ElectLeadersRequest})
"""Requests that must be carried out once only. A second copy would give the client a wrong answer
or undo a later request."""

_log = logging.getLogger("pyreplog")


class ControllerReply(NamedTuple):
    """An effect: ``body`` answers request ``correlation_id`` of ``peer``."""

    peer: Address
    correlation_id: int
    body: ResponseBody


class LocalController:
    """The state machine: ``step(requests, now_ns)`` -> replies. Its decisions are durable when it
    returns. One owner."""

    #: The class that decides; the known-bad variants of ``pyreplog.testing`` replace it.
    controller_class: type[Controller] = Controller

    def __init__(self, disk: Disk, folder: str, controller: Controller, durable: bytes) -> None:
        self._disk = disk
        self._folder = folder
        self._config = controller.config
        self._controller = controller
        self._durable = durable
        self._decided_offset = -1
        """The offset of the last durable record."""
        self._fetches = MetadataFetches(controller.image)
        self._proposed: dict[int, tuple[int, int]] = {}
        """Broker -> its epoch and the newest of its decided AlterPartition requests."""
        self._repeats = Repeats()
        self._planned_ns: int | None = None
        self._last_ns = 0
        self._failure: StorageError | None = None
        self._elections = RequestedElections(controller)

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        config: NodeConfig,
        random: Random,
        *,
        now_ns: int,
        after: LocalController | None = None,
    ) -> LocalController:
        """Open the authority whose state is in ``folder``.

        A missing folder is created, and a folder without state starts a new cluster. ``after``: the
        ended authority whose cluster continues. Then no folder is created and no cluster started:
        if the folder is missing for a moment, or is another one, opening fails and can be tried
        again.

        Every broker is fenced until it registers, and no leader continues in its old epoch. Raises
        :class:`CorruptError` if the state is damaged, or is not the one that ``after`` decided;
        :class:`StorageError` if the disk refuses.
        """
        if after is None and disk.stat(folder) is None:
            make_folder(disk, folder)
        state = load(disk, folder)
        if after is not None:
            after._check_state(state)
        if state is None:
            # Also if the folder exists: its creator may have died before the name was durable.
            disk.sync_directory(folder.rstrip("/").rpartition("/")[0] or ("/" if folder.startswith("/") else "."))
            state = ControllerState(new_id(random), MetadataImage(), {})
        controller = cls.controller_class(state.image, config, random, state.cluster_id, state.suspects)
        controller.start(now_ns)
        authority = cls(disk, folder, controller, b"")
        authority._commit()
        keep_reserve(disk, folder)
        return authority

    @property
    def cluster_id(self) -> str:
        """The cluster id that nodes must send when they register."""
        return self._controller.cluster_id

    @property
    def image(self) -> MetadataImage:
        """The metadata as decided. Read-only."""
        return self._controller.image

    @property
    def suspects(self) -> Mapping[PartitionKey, Mapping[int, ReplicaEnd]]:
        """Members that restarted uncleanly and are not known complete since, with their ends at
        that time. Read-only."""
        return self._controller.suspects

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`step` must run even if no message arrives."""
        deadlines = (
            self._controller.next_deadline_ns(),
            self._elections.next_deadline_ns,
            self._fetches.next_deadline_ns,
        )
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def step(self, requests: Sequence[Request], now_ns: int) -> list[ControllerReply]:
        """Decide ``requests`` in order, then the timed work that is due, with one write of the
        state.

        If the disk is full, all requests are refused and the state does not change. If a sync or
        rename fails, this authority ends, because the state on disk is unknown: this call raises
        :class:`StorageError` and each later call :class:`ClosedError`.
        """
        self._check()
        if self._planned_ns is not None and now_ns - self._planned_ns > STALL_NS:
            self._controller.extend_sessions(now_ns - self._last_ns)
        replies: list[ControllerReply] = []
        for request in requests:
            body = self._answer(request, now_ns)
            if body is not None:
                replies.append(ControllerReply(request.source, request.correlation_id, body))
        self._controller.tick(now_ns)
        decided = [one for one in requests if type(one.body) is not ElectLeadersRequest]
        for request, answer in self._elections.hold(now_ns):
            replies.append(ControllerReply(request.source, request.correlation_id, answer))
            decided.append(request)
        replies = self._finish(decided, replies, now_ns)
        self._planned_ns = self.next_wake_ns
        self._last_ns = now_ns
        return replies

    def _check_state(self, state: ControllerState | None) -> None:
        """Raise :class:`CorruptError` unless ``state``, read from disk, has every answered
        decision."""
        if state is None:
            reason = "the controller's state is gone while the cluster was open"
        elif state.cluster_id != self.cluster_id:
            reason = f"the controller's state is that of another cluster, {excerpt(state.cluster_id)}"
        elif state.image.offset < self._decided_offset:
            reason = (
                f"the controller's state ends at offset {state.image.offset}, before its last decision at"
                f" {self._decided_offset}"
            )
        else:
            return
        raise CorruptError(
            f"{reason}: put the file back, and the controller goes on", file=f"{self._folder}/{STATE_FILE}"
        )

    def _check(self) -> None:
        if self._failure is not None:
            raise ClosedError("the controller's disk failed") from self._failure

    def fence(self, broker_id: int, now_ns: int) -> list[ControllerReply]:
        """Fence a node that the caller has killed, without waiting for its session to end."""
        self._check()
        self._controller.fence(broker_id, now_ns)
        return self._finish((), [], now_ns)

    def elect_uncleanly(
        self, topic: str, partition: int, now_ns: int
    ) -> tuple[UncleanElection | None, list[ControllerReply]]:
        """Elect the live replica with the longest log now, even if acknowledged records are lost.

        Only a person may ask for this. (An ElectLeaders request first waits a moment for the
        reports of the live replicas.) Return None if no replica is up or the partition has a
        leader. Raises :class:`StorageError` if the election could not be made durable; then it did
        not happen.
        """
        self._check()
        done = self._controller.elect_uncleanly(topic, partition)
        try:
            self._commit()
        except StorageError:
            if self._failure is None:
                self._controller.try_again(now_ns)
            raise
        return done, self._serve_fetches(now_ns)

    # -------------------------------------------------------------------------------------- answers

    def _answer(self, request: Request, now_ns: int) -> ResponseBody | None:
        body = request.body
        controller = self._controller
        if type(body) in _ONCE and self._repeats.is_repeat(request.source, request.correlation_id):
            return None
        if isinstance(body, FetchRequest):
            self._fetches.park(request, body, now_ns)
            return None
        if isinstance(body, ElectLeadersRequest):
            self._elections.add(request, body, now_ns)
            return None
        if isinstance(body, InitProducerIdRequest):
            if body.transactional_id is not None:
                return InitProducerIdResponse(ErrorCode.INVALID_REQUEST)
            return InitProducerIdResponse(producer_id=controller.init_producer_id())
        if isinstance(body, BrokerHeartbeatRequest):
            return controller.heartbeat(body, now_ns)
        if isinstance(body, AlterPartitionRequest):
            if self._is_old(body, request.correlation_id):
                return None
            return controller.alter_partition(body)
        if isinstance(body, BrokerRegistrationRequest):
            return controller.register(body, now_ns)
        if isinstance(body, CreateTopicsRequest):
            return controller.create_topics(body)
        if isinstance(body, DeleteTopicsRequest):
            return controller.delete_topics(body)
        try:
            return self._describe(body)
        except Exception as error:
            if isinstance(error, InternalError) or is_interruption(error):
                raise
            # Only this client's request is affected: nothing was decided.
            _log.error(
                "the controller could not answer %s of %s; it goes on",
                type(body).__name__,
                request.source,
                exc_info=error,
            )
            text = f"the controller met {type(error).__name__}: {excerpt(str(error))}"
            found: ResponseBody | None = refusal(body, ErrorCode.UNKNOWN_SERVER_ERROR, text)
            return found

    def _is_old(self, body: AlterPartitionRequest, correlation_id: int) -> bool:
        """Return whether these proposals, or later ones of the same broker, were already decided.

        A transport may deliver a request twice, or an older request after a newer one. A leader
        whose proposal was refused continues without the proposed member; only its next request may
        add that member to the set.
        """
        epoch, latest = self._proposed.get(body.broker_id, (-1, -1))
        if body.broker_epoch < epoch or (body.broker_epoch == epoch and not _is_later(correlation_id, latest)):
            return True
        self._proposed[body.broker_id] = (body.broker_epoch, correlation_id)
        return False

    def _describe(self, body: RequestBody) -> ResponseBody | None:
        if isinstance(body, MetadataRequest):
            return describe.metadata(self.image, body, self.cluster_id)
        if isinstance(body, DescribeTopicPartitionsRequest):
            return describe.describe_topics(self.image, body)
        if isinstance(body, DescribeConfigsRequest):
            return describe.describe_configs(self.image, body)
        if isinstance(body, DescribeClusterRequest):
            return describe.describe_cluster(self.image, body, self.cluster_id)
        return None  # not a controller request: the caller times out, as if the message were lost

    def _serve_fetches(self, now_ns: int) -> list[ControllerReply]:
        return [ControllerReply(*served) for served in self._fetches.serve(self.image, now_ns)]

    # ----------------------------------------------------------------------------------- durability

    def _finish(
        self, requests: Sequence[Request], replies: list[ControllerReply], now_ns: int
    ) -> list[ControllerReply]:
        try:
            self._commit()
        except StorageError as error:
            if self._failure is not None:
                raise
            self._controller.try_again(now_ns)
            replies = [
                ControllerReply(request.source, request.correlation_id, body)
                for request in requests
                if (body := _refusal(request.body, error)) is not None
            ]
        return replies + self._serve_fetches(now_ns)

    def _commit(self) -> None:
        """Make the new decisions durable, then visible."""
        records = self._controller.take()
        controller = self._controller
        if not records and self._durable:
            return
        data = encode(ControllerState(controller.cluster_id, controller.image, controller.suspects))
        try:
            store(self._disk, self._folder, data)
        except StorageError as error:
            if self._durable:  # else the state on disk is unknown
                self._undo(error)
            raise
        self._durable = data
        self._decided_offset = controller.image.offset
        tell_decisions(records, controller.image)
        self._fetches.append(records)

    def _undo(self, error: StorageError) -> None:
        """Return to the durable state, if the file in place is known to be that state; else fail.

        That is so if the disk was full before the new file replaced the old one. A disk may also be
        full in the sync of the folder; then a kill would bring back the refused decisions.
        """
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._is_in_place():
            self._failure = error
            return
        state = decode(self._durable, self._folder)
        self._controller.image = state.image
        self._controller.suspects = state.suspects

    def _is_in_place(self) -> bool:
        """Return whether the file holds the state that is known to be durable."""
        try:
            return read_state(self._disk, self._folder) == self._durable
        except StorageError:
            return False


def _is_later(number: int, other: int) -> bool:
    """Return whether request ``number`` was sent after ``other``. Numbers have 31 bits and wrap to
    0."""
    return 0 < (number - other) & 0x7FFFFFFF < 1 << 30


def _refusal(body: RequestBody, error: StorageError) -> ResponseBody | None:
    """Return the answer to a request whose decision could not be written and so did not happen."""
    code = ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(body, BrokerHeartbeatRequest):
        return BrokerHeartbeatResponse(code)
    if isinstance(body, AlterPartitionRequest):
        return AlterPartitionResponse(error_code=code)
    if isinstance(body, BrokerRegistrationRequest):
        return BrokerRegistrationResponse(code)
    if isinstance(body, (CreateTopicsRequest, ElectLeadersRequest, InitProducerIdRequest, DeleteTopicsRequest)):
        found: ResponseBody | None = refusal(body, code, str(error))
        return found
    return None


class ControllerServer:
    """An authority on a transport. Call it under the caller's lock.

    ``poll`` never waits longer than its timeout.
    """

    def __init__(self, authority: LocalController, transport: Transport, clock: Clock) -> None:
        self.authority = authority
        self.address = transport.listen(CONTROLLER_ADDRESS)
        self._transport = transport
        self._clock = clock

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`poll` must run even if no message arrives."""
        return self.authority.next_wake_ns

    def poll(self, timeout_ns: int = 0) -> bool:
        """Receive requests, decide and answer. Return whether there was work."""
        requests = [
            event.message
            for event in self._transport.poll(timeout_ns)
            if type(event) is Received and type(event.message) is Request
        ]
        now_ns = self._clock.monotonic_ns()
        due = self.authority.next_wake_ns
        if not requests and (due is None or due > now_ns):
            return False
        self.send(self.authority.step(requests, now_ns))
        return True

    def fence(self, broker_id: int, address: Address | None = None) -> None:
        """Fence a node that was killed.

        ``address``: the address of that node. Its unreceived messages are discarded, because a
        registration of the dead process would block the new one for a whole session timeout.
        """
        if address is not None:
            self._transport.disconnect(address)
        self.send(self.authority.fence(broker_id, self._clock.monotonic_ns()))

    def elect_uncleanly(self, topic: str, partition: int) -> UncleanElection | None:
        """See :meth:`LocalController.elect_uncleanly`."""
        done, replies = self.authority.elect_uncleanly(topic, partition, self._clock.monotonic_ns())
        self.send(replies)
        return done

    def send(self, replies: Sequence[ControllerReply]) -> None:
        """Send the replies that a step of the authority returned."""
        for reply in replies:
            self._transport.send(reply.peer, Response(self.address, reply.correlation_id, reply.body))

    def close(self) -> None:
        """Stop listening. The state is on disk already."""
        self._transport.close()
