"""The controller's part of one node: a member of the metadata quorum, and the controller while this
member is the active one.

How to run one::

    server = QuorumServer.open(disk, folder, identity, NodeConfig(), QuorumConfig(), transport, clock, random)
    server.poll()           # whenever a message may have arrived; False: there was no work
    server.next_wake_ns     # call poll at this time at the latest
    server.close()          # in order: another voter is asked to lead

It listens at ``controller-<node id>``. Its own node sends it every request to the controller. While
this voter is the active controller it decides them; otherwise it sends them on to the active one,
and the answers back. The node fetches the committed metadata from it at any time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from pyreplog.config import NodeConfig
from pyreplog.controller.active_controller import ActiveController
from pyreplog.controller.committed_metadata import CommittedMetadata
from pyreplog.controller.controller import Controller
from pyreplog.controller.image import MetadataImage
from pyreplog.controller.image_store import ImageStore
from pyreplog.controller.metadata_counts import MetadataCounts
from pyreplog.controller.metadata_fetches import MetadataFetches
from pyreplog.controller.request_forwarder import RequestForwarder
from pyreplog.controller.requests import RequestFilter
from pyreplog.controller.snapshot_schedule import SnapshotSchedule
from pyreplog.errors import (
    CorruptError,
    NotControllerError,
    OutcomeUnknownError,
    RemoteProtocolError,
    StorageError,
    UnsupportedVersionError,
)
from pyreplog.ports import Address, Clock, Disconnected, Disk, Random, Received, Transport
from pyreplog.quorum import (
    CommittedUpTo,
    Identity,
    LeaderChanged,
    PeerGone,
    Proved,
    QuorumConfig,
    QuorumEffect,
    QuorumFailed,
    RaftNode,
    Send,
    SnapshotInstalled,
    TimerDue,
    VoterSet,
)
from pyreplog.wire import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    BrokerRegistrationRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    ErrorCode,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    Request,
    Response,
    ResponseBody,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
    refusal,
)

__all__ = ["CONTROLLER_PREFIX", "QuorumServer", "controller_address"]

CONTROLLER_PREFIX: Final = "controller-"
HELD_MAX: Final = 4096
"""Requests that wait until this voter, which was elected, has become the active controller."""
_OF_THE_QUORUM: Final = (
    VoteRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
)
_TO_THE_LEADER: Final = (DescribeQuorumRequest, AddRaftVoterRequest, RemoveRaftVoterRequest, UpdateRaftVoterRequest)
_ANSWERS_OF_THE_QUORUM: Final = (
    VoteResponse,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
)

_UNREADABLE: Final = (CorruptError, RemoteProtocolError, UnsupportedVersionError)
"""The errors of a server that reads the committed records."""

_log = logging.getLogger("pyreplog")


def controller_address(node_id: int) -> Address:
    """Return the address of a node's :class:`QuorumServer` in one process."""
    return f"{CONTROLLER_PREFIX}{node_id}"


class QuorumServer:
    """A member of the quorum on a transport. Call it under the caller's lock.

    ``poll`` never waits longer than its timeout.
    """

    #: The classes that decide; the known-bad variants of ``pyreplog.testing`` replace them.
    controller_class: ClassVar[type[Controller]] = Controller
    active_class: ClassVar[type[ActiveController]] = ActiveController
    raft_class: ClassVar[type[RaftNode]] = RaftNode
    #: Whether the transport reports the end of a process exactly: before anything of the next
    #: process at that address, and after all messages of the ended one. So it is within one
    #: process. Otherwise a broker's end is told by :meth:`note_ended` only, or its session ends.
    exact_ends: ClassVar[bool] = True

    def __init__(
        self,
        raft: RaftNode,
        node_config: NodeConfig,
        quorum_config: QuorumConfig,
        transport: Transport,
        clock: Clock,
        random: Random,
        store: ImageStore | None = None,
    ) -> None:
        """Use :meth:`open` to make one. ``transport`` listens at the address of ``raft``."""
        self.address = raft.endpoint
        self.failure: Exception | None = None
        """The error that ended this member; it takes no part until it is opened again."""
        self._raft = raft
        self._config = node_config
        self._transport = transport
        self._clock = clock
        self._random = random
        self._now_ns = clock.monotonic_ns()
        self._planned_ns: int | None = None
        """The time of the next turn, as the last turn left it."""
        self._is_planned = False
        """Whether :attr:`_planned_ns` holds: nothing has changed since."""
        self._committed = CommittedMetadata(raft, store)
        try:
            self._committed.load()
        except _UNREADABLE as error:
            self.failure = error
        if raft.storage.failure is not None:
            self.failure = raft.storage.failure
        self._fetches = MetadataFetches(self._committed)
        self._snapshots = SnapshotSchedule(raft, self._committed, quorum_config, self._now_ns)
        self._forwarder = RequestForwarder(self.address, random)
        self._filter = RequestFilter()
        self._active: ActiveController | None = None
        self._active_from = 0
        """The offset that must be committed before this leader is the active controller."""
        self._requests: list[Request] = []
        self._effects: deque[QuorumEffect] = deque()
        self._is_draining = False
        self._gone: set[str] = set()
        """The incarnations of brokers whose end the transport reported."""
        self._started = [self.node_id]
        """The nodes that started together with this server."""
        self._first_epoch: int | None = None
        """The first epoch with a leader since this server started; None: there was none yet."""
        self._first_offset: int | None = None
        """The offset at which that epoch begins; None while the log does not have it yet."""
        self._absent: set[Address] = set()
        """The servers whose end the transport reported, and of which nothing was heard since."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        identity: Identity,
        node_config: NodeConfig,
        quorum_config: QuorumConfig,
        transport: Transport,
        clock: Clock,
        random: Random,
    ) -> QuorumServer:
        """Open the member whose files are in ``folder`` (``.../__cluster_metadata-0``), and listen.

        Raises :class:`StorageError`, and :class:`LocalProtocolError` if the address is taken.
        """
        address = transport.listen(controller_address(identity.node_id))
        try:
            raft = cls.raft_class.open(
                disk,
                folder,
                identity,
                quorum_config,
                clock,
                random,
                endpoint=address,
                now_ns=clock.monotonic_ns(),
            )
        except BaseException:
            transport.close()
            raise
        store = ImageStore(disk, folder, clock, quorum_config.stored_image_records)
        try:
            return cls(raft, node_config, quorum_config, transport, clock, random, store)
        except BaseException:
            store.kill()
            transport.close()
            raft.close()
            raise

    # ---------------------------------------------------------------------------------------- facts

    @property
    def image(self) -> MetadataImage:
        """The committed metadata. Read-only."""
        return self._committed.image

    @property
    def cluster_id(self) -> str:
        """The cluster id that nodes must send when they register."""
        return self._raft.identity.cluster_id

    @property
    def node_id(self) -> int:
        """The node that this server belongs to."""
        return self._raft.identity.node_id

    @property
    def is_active(self) -> bool:
        """Whether this voter is the active controller, as far as it knows."""
        return self._active is not None

    @property
    def active_since_ns(self) -> int | None:
        """The time since which this voter is the active controller; None if it is not."""
        return None if self._active is None else self._active.since_ns

    @property
    def leader_id(self) -> int | None:
        """The node that leads the quorum, if it is known."""
        return self._raft.leader_id

    @property
    def voters(self) -> VoterSet:
        """The voters."""
        return self._raft.voters

    @property
    def raft(self) -> RaftNode:
        """The member of the quorum. Read-only."""
        return self._raft

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`poll` must run even if no message arrives."""
        return self._planned_ns if self._is_planned else self._find_wake_ns()

    def _find_wake_ns(self) -> int | None:
        due = self._fetches.next_deadline_ns
        if self.failure is not None:
            return due
        for other in (
            self._raft.next_wake_ns,
            None if self._active is None else self._active.next_deadline_ns,
            self._snapshots.next_wake_ns,
            self._committed.next_wake_ns,
        ):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def count_into(self, counts: MetadataCounts) -> None:
        """Count the records that are committed from now on; servers of one process may share ``counts``."""
        self._committed.counts = counts

    def note_started(self, node_ids: Sequence[int]) -> None:
        """Note the nodes that started together with this server, in the same process.

        None of their earlier incarnations is alive. Without this call it is the server's own node.
        """
        self._started = list(node_ids)

    def note_ended(self, incarnation_id: str) -> None:
        """Note that this incarnation of a broker has ended. The active controller fences it at once."""
        self._is_planned = False
        self._now_ns = self._clock.monotonic_ns()
        try:
            self._end(incarnation_id)
        except (StorageError, OutcomeUnknownError) as error:
            self._fail_if_ended(error)

    # ----------------------------------------------------------------------------------------- turn

    def poll(self, timeout_ns: int = 0) -> bool:
        """Receive messages, decide and answer. Return whether there was work."""
        events = list(self._transport.poll(timeout_ns))
        self._now_ns = now_ns = self._clock.monotonic_ns()
        if not events:
            due = self._find_wake_ns()
            if due is None or due > now_ns:
                return False
        self._is_planned = False
        try:
            for event in events:
                if type(event) is Received:
                    self._receive(event.message)
                elif type(event) is Disconnected:
                    self._peer_gone(event.peer)
            if self.failure is None:
                wake = self._raft.next_wake_ns
                if wake is not None and wake <= now_ns:
                    self._carry_out(self._raft.step(TimerDue(), now_ns))
            self._decide()
            if self.failure is None:
                self._snapshots.step(now_ns)
                self._committed.work(now_ns)
        except (StorageError, OutcomeUnknownError) as error:
            self._fail_if_ended(error)
        except _UNREADABLE as error:
            self._give_up(error)
        for peer, correlation_id, body in self._fetches.serve(self.image, now_ns):
            self._send_answer(peer, correlation_id, body)
        self._planned_ns = self._find_wake_ns()
        self._is_planned = True
        if self._active is not None:
            self._active.finished(self._planned_ns)
        return True

    def _receive(self, message: object) -> None:
        if type(message) is Response:
            self._absent.discard(message.source)
            if type(message.body) in _ANSWERS_OF_THE_QUORUM or not self._forwarder.expects(message):
                self._step_quorum(message)
            else:
                request = self._forwarder.answered(message)
                self._send_answer(request.source, request.correlation_id, message.body)
        elif type(message) is Request:
            self._absent.discard(message.source)
            body = message.body
            if isinstance(body, _OF_THE_QUORUM) or (isinstance(body, FetchRequest) and body.cluster_id is not None):
                self._step_quorum(message)
            elif isinstance(body, FetchRequest):
                self._fetches.park(message, body, self._now_ns)
            elif isinstance(body, _TO_THE_LEADER) and self._raft.is_leader:
                self._step_quorum(message)
            else:
                self._requests.append(message)

    def _step_quorum(self, event: Request | Response | PeerGone) -> None:
        if self.failure is None:
            self._carry_out(self._raft.step(event, self._now_ns))

    def _peer_gone(self, peer: Address) -> None:
        if peer.startswith(CONTROLLER_PREFIX):
            self._absent.add(peer)
            self._refuse(self._forwarder.lost(peer))
            number = peer.removeprefix(CONTROLLER_PREFIX)
            if number.isdecimal():
                self._filter.sender_gone(int(number))
            self._step_quorum(PeerGone(peer))
            return
        if not self.exact_ends:
            return
        self._decide()  # what that process sent before its end
        image = self.image if self._active is None else self._active.controller.image
        for broker in [one for one in image.brokers.values() if one.address == peer]:
            self._end(broker.incarnation_id)

    def _end(self, incarnation_id: str) -> None:
        self._gone.add(incarnation_id)
        if self._active is None:
            return
        for broker in self._active.controller.image.brokers.values():
            if broker.incarnation_id == incarnation_id:
                self._active.fence(broker.broker_id, self._now_ns)
                self._carry_out(())
                return

    # ------------------------------------------------------------------------ effects of the quorum

    def _carry_out(self, effects: Iterable[QuorumEffect]) -> None:
        """Carry out effects of the quorum and those that follow from them, in order; then send the
        answers that may leave."""
        self._effects.extend(effects)
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while True:
                if self._active is not None:
                    self._effects.extend(self._active.take_effects())
                if not self._effects:
                    break
                self._carry_out_one(self._effects.popleft())
        finally:
            self._is_draining = False
        if self._active is not None:
            for request, body in self._active.take_released():
                self._send_answer(request.source, request.correlation_id, body)

    def _carry_out_one(self, effect: QuorumEffect) -> None:
        if isinstance(effect, Send):
            self._transport.send(effect.address, effect.message)
        elif isinstance(effect, CommittedUpTo):
            self._note_first_offset()
            if self._active is not None:
                self._active.committed()
            else:
                self._committed.advance()
                self._activate_if_due()
        elif isinstance(effect, Proved):
            if self._active is not None:
                self._active.proved(effect.token)
        elif isinstance(effect, LeaderChanged):
            self._leader_changed(effect)
        elif isinstance(effect, SnapshotInstalled):
            if self._first_offset is None:
                self._first_offset = 0  # it is not known, so no incarnation counts as ended
            self._committed.load()
        elif isinstance(effect, QuorumFailed):
            self._fail(effect.error)
        # NotProved: the LeaderChanged that comes with it refuses the requests.

    def _leader_changed(self, effect: LeaderChanged) -> None:
        self._deactivate()
        if self._first_epoch is None and effect.leader_id is not None:
            self._first_epoch = effect.epoch
        if effect.leader_id == self.node_id:
            self._active_from = self._raft.log_end_offset - 1
            self._refuse(self._forwarder.lost_except(None))
            self._activate_if_due()
        else:
            self._refuse(self._forwarder.lost_except(self._raft.leader_address))

    def _activate_if_due(self) -> None:
        if self._active is not None or not self._raft.is_leader or self._raft.high_watermark <= self._active_from:
            return
        self._committed.advance()
        image = self._committed.image
        _ = image.index  # from now on both images have one
        controller = self.controller_class(image.copy(), self._config, self._random, self.cluster_id)
        self._active = self.active_class(self._raft, self._committed, controller)
        self._gone &= {broker.incarnation_id for broker in image.brokers.values()}
        self._gone |= self._of_before(image)
        _log.info("node %d is the active controller, in epoch %d", self.node_id, self._raft.epoch)
        # The first record of a new cluster is of no use before the first broker registers.
        self._active.start(self._now_ns, self._gone, is_followed=bool(self._requests) or image.is_empty)

    def _of_before(self, image: MetadataImage) -> set[str]:
        """Return the incarnations of the nodes that started with this server which registered
        before that: below the first epoch of the quorum since."""
        self._note_first_offset()
        first = self._first_offset or 0
        return {
            broker.incarnation_id
            for broker in image.brokers.values()
            if broker.broker_id in self._started and broker.epoch < first
        }

    def _note_first_offset(self) -> None:
        storage = self._raft.storage
        if self._first_offset is None and self._first_epoch is not None and storage.last_epoch >= self._first_epoch:
            end_before = storage.end_offset_for(self._first_epoch - 1).start_offset
            # Without an earlier epoch in the log, all before its start is older.
            self._first_offset = end_before if end_before >= 0 else storage.start_offset

    def _deactivate(self) -> None:
        """End the time of the active controller: every request that waits is refused."""
        active, self._active = self._active, None
        if active is not None:
            _log.info("node %d is no longer the active controller", self.node_id)
            self._refuse(active.unanswered())

    def _give_up(self, error: Exception) -> None:
        """Leave the quorum, whose records this server cannot read: another voter leads better."""
        self._effects.clear()
        self._carry_out(self._raft.resign(self._now_ns))
        self._fail(error)

    def _fail_if_ended(self, error: Exception) -> None:
        if self._raft.role_name != "failed":
            raise error
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            _log.error("node %d takes no part in the metadata quorum until it is opened again: %s", self.node_id, error)
        self.failure = error
        self._deactivate()
        self._refuse(self._forwarder.lost_except(None))

    # ------------------------------------------------------------------------------------- requests

    def _decide(self) -> None:
        """Decide the requests that arrived, or send them on to the active controller."""
        active = self._active
        if active is None and self.failure is None and self._raft.is_leader:
            self._refuse(self._requests[HELD_MAX:])
            del self._requests[HELD_MAX:]
            return  # they wait until the first record of this leader is committed
        requests, self._requests = self._requests, []
        if active is not None:
            passed = [request for request in requests if not self._filter.is_stale(request)]
            for request in passed:
                self._fence_predecessor(active, request)
            try:
                active.step(passed, self._now_ns)
            except NotControllerError:  # the end of this leader is known only now
                self._deactivate()
            self._carry_out(())
            return
        for request in requests:
            self._forward(request)

    def _fence_predecessor(self, active: ActiveController, request: Request) -> None:
        """Fence the broker whose next incarnation registers through its own server.

        Node and server are one process, so the earlier incarnation has ended, even if the transport
        did not say so: perhaps this controller started after that.
        """
        body = request.body
        if not isinstance(body, BrokerRegistrationRequest) or body.cluster_id != self.cluster_id:
            return
        if not self.exact_ends:
            return  # it may be the earlier incarnation that registers, late
        known = active.controller.image.brokers.get(body.broker_id)
        if known is None or known.incarnation_id == body.incarnation_id:
            return
        if request.source in (known.address, controller_address(body.broker_id)):
            active.fence(body.broker_id, self._now_ns)

    def _forward(self, request: Request) -> None:
        leader = None if self.failure is not None else self._raft.leader_address
        if leader is None or leader == self.address or request.source.startswith(CONTROLLER_PREFIX):
            # A request is sent on once only. A second time it could arrive after a later one.
            self._refuse([request])
        elif not self._filter.is_stale(request):
            self._transport.send(leader, self._forwarder.forward(request, leader, self._now_ns))

    def _refuse(self, requests: Iterable[Request]) -> None:
        """Answer that this is not the active controller, and why none is known."""
        text = ""
        for request in requests:
            text = text or self._why_not()
            body = refusal(request.body, ErrorCode.NOT_CONTROLLER, text)
            if body is not None:
                self._send_answer(request.source, request.correlation_id, body)

    def _why_not(self) -> str:
        """Return the reason why there is no active controller, or that there is another one."""
        if self.failure is not None:
            return f"node {self.node_id} takes no part in the metadata quorum: {self.failure}"
        voters = self._raft.voters
        down = [voter.node_id for voter in voters if voter.address in self._absent]
        if voters and len(voters) - len(down) < voters.majority:
            up = len(voters) - len(down)
            nodes = " or ".join(str(node_id) for node_id in down)
            return f"{up} of {len(voters)} voters {'is' if 1 in (up, len(voters)) else 'are'} up: restart node {nodes}"
        return "another node is becoming the active controller: try again"

    def _send_answer(self, peer: Address, correlation_id: int, body: ResponseBody) -> None:
        self._transport.send(peer, Response(self.address, correlation_id, body))

    # ------------------------------------------------------------------------------------------ end

    def close(self) -> None:
        """End in order: an active controller hands over to another voter. Nothing is lost."""
        self._is_planned = False
        self._now_ns = self._clock.monotonic_ns()
        if self.failure is None:
            self._carry_out(self._raft.resign(self._now_ns))
            self._snapshots.abandon()
            self._committed.close()
        self._deactivate()
        self.kill()

    def kill(self) -> None:
        """End at once, as if the process died. Writes nothing. A second call is harmless."""
        self._active = None
        self._committed.kill()
        self._transport.close()
        self._raft.close()
