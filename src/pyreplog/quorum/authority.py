"""The controller of a cluster in one process: one machine that decides, keeps its state in one file, and tells the nodes.

It stands where the metadata quorum will stand, behind the same messages: brokers register, beat and propose to it, and fetch its
decisions as metadata records at offsets from ``__cluster_metadata``. Nothing leaves it before its state is durable.

For whoever runs one::

    authority = Authority.open(disk, "data", config, random, now_ns=clock.monotonic_ns())
    endpoint = AuthorityEndpoint(authority, transport, clock)     # listens at CONTROLLER_ADDRESS
    endpoint.poll()                                               # as often as anything may have happened; False: nothing had
    endpoint.next_wake_ns                                         # and at that time at the latest
    endpoint.fence(broker_id)                                     # a node was killed, and you know
    endpoint.close()                                              # nothing to flush
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyreplog.config import NodeConfig
from pyreplog.errors import ClosedError, CorruptError, InternalError, StorageError, excerpt
from pyreplog.interruptions import is_interruption
from pyreplog.log import keep_reserve, make_folder
from pyreplog.ports import Address, Clock, Disk, Random, Received, Transport
from pyreplog.quorum import describe
from pyreplog.quorum.controller import ELECTION_WAIT_MS, Controller
from pyreplog.quorum.election import ReplicaEnd, UncleanElection
from pyreplog.quorum.image import MetadataImage, PartitionKey
from pyreplog.quorum.state import STATE_FILE, ControllerState, decode, encode, load, read_state, store
from pyreplog.quorum.telling import tell_decisions
from pyreplog.quorum.topics import new_id
from pyreplog.wire import (
    METADATA_TOPIC_ID,
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
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRecord,
    MetadataRequest,
    PartitionData,
    Repeats,
    Request,
    RequestBody,
    Response,
    ResponseBody,
    SnapshotId,
    refusal,
)

__all__ = ["CONTROLLER_ADDRESS", "Authority", "AuthorityEndpoint", "AuthorityReply"]

CONTROLLER_ADDRESS: Final = "controller"
RECORDS_KEPT_MAX: Final = 4096
"""Records a node may be behind before it gets the whole image instead."""
STALL_NS: Final = 250_000_000
"""Running this much later than planned means that the process stood still."""
_MS: Final = 1_000_000
_ONCE: Final = frozenset({CreateTopicsRequest, DeleteTopicsRequest, ElectLeadersRequest})
"""What a client would be told wrongly of, or what would undo what came later, were a second copy carried out."""

_log = logging.getLogger("pyreplog")


class AuthorityReply(NamedTuple):
    """An effect: ``body`` answers request ``correlation_id`` of ``peer``."""

    peer: Address
    correlation_id: int
    body: ResponseBody


@dataclass(slots=True)
class _Parked:
    """A fetch of metadata that waits for something new."""

    peer: Address
    correlation_id: int
    fetch_offset: int
    until_ns: int


class Authority:
    """The machine: ``step(requests, now_ns)`` -> replies, durable when it returns. One owner."""

    #: The class that decides; the known-bad variants of ``pyreplog.testing`` put others in its place.
    controller_class: type[Controller] = Controller

    def __init__(self, disk: Disk, folder: str, controller: Controller, durable: bytes) -> None:
        self._disk = disk
        self._folder = folder
        self._config = controller.config
        self._controller = controller
        self._durable = durable
        self._decided_offset = -1
        """The last record of what is durable."""
        self._kept: deque[tuple[int, MetadataRecord]] = deque(maxlen=RECORDS_KEPT_MAX)
        self._kept_from = controller.image.offset + 1
        self._parked: dict[Address, _Parked] = {}
        self._proposed: dict[int, tuple[int, int]] = {}
        """Broker -> its epoch and the newest request with proposals that was decided."""
        self._repeats = Repeats()
        self._planned_ns: int | None = None
        self._last_ns = 0
        self._failure: StorageError | None = None
        self._elections: list[tuple[Request, int]] = []
        """Asked for, and until when (ns) to wait for the ends of live replicas."""

    @classmethod
    def open(cls, disk: Disk, folder: str, config: NodeConfig, random: Random, *, now_ns: int, after: Authority | None = None) -> Authority:
        """The authority whose state is in ``folder`` (made where missing); a folder without state begins a new cluster.

        ``after``: the one that ended, whose cluster goes on. Then nothing is begun: a folder that is away for a moment, or another one in
        its place, is refused, so that it can be tried again.

        Every broker is fenced until it registers, and no leader goes on in its old epoch. Raises :class:`CorruptError` where the state is
        damaged, or is not the one that was decided by ``after``; :class:`StorageError` where the disk refuses.
        """
        if after is None and disk.stat(folder) is None:
            make_folder(disk, folder)
        state = load(disk, folder)
        if after is not None:
            after._check_state(state)
        if state is None:
            # Also where the folder is there: whoever made it may have been killed before its name was durable.
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
        """What nodes must name when they register."""
        return self._controller.cluster_id

    @property
    def image(self) -> MetadataImage:
        """The metadata as decided; to be read only."""
        return self._controller.image

    @property
    def suspects(self) -> Mapping[PartitionKey, Mapping[int, ReplicaEnd]]:
        """The members that restarted uncleanly and are not known complete since, with how far they were then; to be read only."""
        return self._controller.suspects

    @property
    def next_wake_ns(self) -> int | None:
        """When :meth:`step` is due although nothing arrived."""
        times = [parked.until_ns for parked in self._parked.values()]
        deadline = self._controller.next_deadline_ns()
        if deadline is not None:
            times.append(deadline)
        times.extend(until for _, until in self._elections)
        return min(times, default=None)

    def step(self, requests: Sequence[Request], now_ns: int) -> list[AuthorityReply]:
        """Decide over ``requests`` in order, and over what is due; one write of the state serves all.

        A disk that is full refuses them all, and nothing has changed; one that fails to sync or rename ends this authority
        (:class:`StorageError`, and :class:`ClosedError` ever after), because nobody knows what is on it.
        """
        self._check()
        if self._planned_ns is not None and now_ns - self._planned_ns > STALL_NS:
            self._controller.forgive(now_ns - self._last_ns)
        replies: list[AuthorityReply] = []
        for request in requests:
            body = self._answer(request, now_ns)
            if body is not None:
                replies.append(AuthorityReply(request.source, request.correlation_id, body))
        self._controller.tick(now_ns)
        elected = self._elect(replies, now_ns)
        replies = self._finish([one for one in requests if type(one.body) is not ElectLeadersRequest] + elected, replies, now_ns)
        self._planned_ns = self.next_wake_ns
        self._last_ns = now_ns
        return replies

    def _check_state(self, state: ControllerState | None) -> None:
        """Whether ``state``, from the disk, has all that was answered by this authority."""
        if state is None:
            reason = "the controller's state is gone while the cluster was open"
        elif state.cluster_id != self.cluster_id:
            reason = f"the controller's state is that of another cluster, {excerpt(state.cluster_id)}"
        elif state.image.offset < self._decided_offset:
            reason = f"the controller's state ends at {state.image.offset}, and what was decided at {self._decided_offset}"
        else:
            return
        raise CorruptError(f"{reason}: put the file back, and the controller goes on", file=f"{self._folder}/{STATE_FILE}")

    def _check(self) -> None:
        if self._failure is not None:
            raise ClosedError("the controller's disk failed") from self._failure

    def fence(self, broker_id: int, now_ns: int) -> list[AuthorityReply]:
        """A node was killed, says who killed it: no need to wait for its session to end."""
        self._check()
        self._controller.fence(broker_id, now_ns)
        return self._finish((), [], now_ns)

    def _elect(self, replies: list[AuthorityReply], now_ns: int) -> list[Request]:
        """Hold the elections that were asked for and need not wait any longer; their requests."""
        held = []
        for request, until in self._elections:
            assert isinstance(request.body, ElectLeadersRequest)
            if until <= now_ns or self._controller.ends_are_known(request.body):
                replies.append(AuthorityReply(request.source, request.correlation_id, self._controller.elect_leaders(request.body)))
                held.append(request)
        self._elections = [entry for entry in self._elections if entry[0] not in held]
        return held

    def elect_uncleanly(self, topic: str, partition: int, now_ns: int) -> tuple[UncleanElection | None, list[AuthorityReply]]:
        """A person asks for the best log there is, whatever is lost, now (an ElectLeaders request waits a moment for what the live replicas
        have to say). None where no replica is up, or somebody leads already. Raises :class:`StorageError` where it could not be written
        down: then it did not happen."""
        self._check()
        done = self._controller.elect_uncleanly(topic, partition)
        try:
            self._commit()
        except StorageError:
            if self._failure is None:
                self._controller.try_again(now_ns)
            raise
        return done, self._serve_parked(now_ns)

    # ------------------------------------------------------------------------------------------------------------------------- answers

    def _answer(self, request: Request, now_ns: int) -> ResponseBody | None:
        body = request.body
        controller = self._controller
        if type(body) in _ONCE and self._repeats.is_repeat(request.source, request.correlation_id):
            return None
        if isinstance(body, FetchRequest):
            self._park(request, body, now_ns)
            return None
        if isinstance(body, ElectLeadersRequest):
            self._elections.append((request, now_ns + ELECTION_WAIT_MS * _MS))
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
            # One client's misfortune: nothing was decided.
            _log.error("the controller could not answer %s of %s; it goes on", type(body).__name__, request.source, exc_info=error)
            text = f"the controller met {type(error).__name__}: {excerpt(str(error))}"
            found: ResponseBody | None = refusal(body, ErrorCode.UNKNOWN_SERVER_ERROR, text)
            return found

    def _is_old(self, body: AlterPartitionRequest, correlation_id: int) -> bool:
        """Whether proposals of this broker that were sent later, or these very ones, were decided already.

        A transport may double a request or let an older one arrive after a newer. A leader that was refused goes on without the member it
        proposed; nothing but its next request may put it into the set then.
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
        return None  # not for a controller: whoever asks will time out, as with a lost message

    def _park(self, request: Request, body: FetchRequest, now_ns: int) -> None:
        """One waiting fetch per node; a newer one replaces it."""
        if len(body.topics) != 1 or body.topics[0].topic_id != METADATA_TOPIC_ID or len(body.topics[0].partitions) != 1:
            return
        offset = body.topics[0].partitions[0].fetch_offset
        self._parked[request.source] = _Parked(request.source, request.correlation_id, offset, now_ns + body.max_wait_ms * _MS)

    def _serve_parked(self, now_ns: int) -> list[AuthorityReply]:
        end = self.image.offset + 1
        served = []
        for parked in list(self._parked.values()):
            if parked.fetch_offset != end or parked.until_ns <= now_ns:
                del self._parked[parked.peer]
                served.append(AuthorityReply(parked.peer, parked.correlation_id, self._news(parked.fetch_offset)))
        return served

    def _news(self, fetch_offset: int) -> FetchResponse:
        """Records from ``fetch_offset`` on; for one too far behind (or ahead: of another life) the image, as records of its last offset."""
        end = self.image.offset + 1
        data = PartitionData(0, high_watermark=end, log_start_offset=self._kept_from)
        if self._kept_from <= fetch_offset <= end:
            data.records = [entry for entry in self._kept if entry[0] >= fetch_offset]
        else:
            data.snapshot_id = SnapshotId(end, 0)
            data.records = [(end - 1, record) for record in self.image.records()]
        return FetchResponse([FetchableTopicResponse(METADATA_TOPIC_ID, [data])])

    # ---------------------------------------------------------------------------------------------------------------------- durability

    def _finish(self, requests: Sequence[Request], replies: list[AuthorityReply], now_ns: int) -> list[AuthorityReply]:
        try:
            self._commit()
        except StorageError as error:
            if self._failure is not None or is_interruption(error):
                raise
            self._controller.try_again(now_ns)
            replies = [
                AuthorityReply(request.source, request.correlation_id, body)
                for request in requests
                if (body := _refusal(request.body, error)) is not None
            ]
        return replies + self._serve_parked(now_ns)

    def _commit(self) -> None:
        """Make what was decided durable, then known."""
        records = self._controller.take()
        controller = self._controller
        if not records and self._durable:
            return
        data = encode(ControllerState(controller.cluster_id, controller.image, controller.suspects))
        try:
            store(self._disk, self._folder, data)
        except StorageError as error:
            if self._durable and not is_interruption(error):  # else what is on the disk is not known
                self._undo(error)
            raise
        self._durable = data
        self._decided_offset = controller.image.offset
        tell_decisions(records, controller.image)
        for entry in records:
            if len(self._kept) == RECORDS_KEPT_MAX:
                self._kept_from = self._kept[0][0] + 1
            self._kept.append(entry)

    def _undo(self, error: StorageError) -> None:
        """Back to what is durable, where that is certain: the disk was full before the file in place was another than the one written
        last. A disk may be full in the sync of the folder, too; then a kill would bring what was refused."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._is_in_place():
            self._failure = error
            return
        state = decode(self._durable, self._folder)
        self._controller.image = state.image
        self._controller.suspects = state.suspects

    def _is_in_place(self) -> bool:
        """Whether the file is the one that is known to be durable."""
        try:
            return read_state(self._disk, self._folder) == self._durable
        except StorageError:
            return False


def _is_later(number: int, other: int) -> bool:
    """Whether the request of that number was sent after the other: they have 31 bits, and 0 follows the last one."""
    return 0 < (number - other) & 0x7FFFFFFF < 1 << 30


def _refusal(body: RequestBody, error: StorageError) -> ResponseBody | None:
    """What a request gets whose decision could not be written: it did not happen."""
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


class AuthorityEndpoint:
    """An authority on a transport. The caller's lock; ``poll`` never waits longer than it is told."""

    def __init__(self, authority: Authority, transport: Transport, clock: Clock) -> None:
        self.authority = authority
        self.address = transport.listen(CONTROLLER_ADDRESS)
        self._transport = transport
        self._clock = clock

    @property
    def next_wake_ns(self) -> int | None:
        """When :meth:`poll` is due although nothing arrived."""
        return self.authority.next_wake_ns

    def poll(self, timeout_ns: int = 0) -> bool:
        """Take what arrived, decide, answer. Whether anything happened."""
        requests = [
            event.message for event in self._transport.poll(timeout_ns) if type(event) is Received and type(event.message) is Request
        ]
        now_ns = self._clock.monotonic_ns()
        due = self.authority.next_wake_ns
        if not requests and (due is None or due > now_ns):
            return False
        self.send(self.authority.step(requests, now_ns))
        return True

    def fence(self, broker_id: int, address: Address | None = None) -> None:
        """A node was killed. ``address``: where it was; what it had sent and nobody has taken is taken back, because a registration of the
        dead would keep the living from registering for a whole session."""
        if address is not None:
            self._transport.disconnect(address)
        self.send(self.authority.fence(broker_id, self._clock.monotonic_ns()))

    def elect_uncleanly(self, topic: str, partition: int) -> UncleanElection | None:
        """See :meth:`Authority.elect_uncleanly`."""
        done, replies = self.authority.elect_uncleanly(topic, partition, self._clock.monotonic_ns())
        self.send(replies)
        return done

    def send(self, replies: Sequence[AuthorityReply]) -> None:
        """Send what a step of the authority returned."""
        for reply in replies:
            self._transport.send(reply.peer, Response(self.address, reply.correlation_id, reply.body))

    def close(self) -> None:
        """Stop listening. The state is on disk already."""
        self._transport.close()
