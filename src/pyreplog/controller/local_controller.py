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

from collections.abc import Sequence
from typing import Final

from pyreplog.config import NodeConfig
from pyreplog.controller.controller import Controller
from pyreplog.controller.decision_log import tell_decisions
from pyreplog.controller.election import UncleanElection
from pyreplog.controller.file_log import FileMetadataLog
from pyreplog.controller.image import FEATURE, MetadataImage
from pyreplog.controller.metadata_fetches import MetadataFetches
from pyreplog.controller.requests import (
    DESCRIPTIONS,
    ControllerReply,
    ControllerRequests,
    Decided,
    RequestFilter,
    refused,
)
from pyreplog.controller.state import STATE_FILE, ControllerState, load
from pyreplog.controller.topics import new_id
from pyreplog.errors import ClosedError, CorruptError, StorageError, excerpt
from pyreplog.log import keep_reserve, make_folder
from pyreplog.ports import Address, Clock, Disk, Random, Received, Transport
from pyreplog.wire import ErrorCode, FetchRequest, Request, Response

__all__ = ["CONTROLLER_ADDRESS", "LocalController", "ControllerServer", "ControllerReply"]

CONTROLLER_ADDRESS: Final = "controller"


class LocalController:
    """The state machine: ``step(requests, now_ns)`` -> replies. Its decisions are durable when it
    returns. One owner."""

    #: The class that decides; the known-bad variants of ``pyreplog.testing`` replace it.
    controller_class: type[Controller] = Controller

    def __init__(self, disk: Disk, folder: str, controller: Controller) -> None:
        self._folder = folder
        self._config = controller.config
        self._controller = controller
        self._log = FileMetadataLog(disk, folder, controller.cluster_id, controller.image)
        self._fetches = MetadataFetches(self._log, set_back=True)
        self._requests = ControllerRequests(controller)
        self._filter = RequestFilter()

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
            state = ControllerState(new_id(random), MetadataImage())
        elif cls.controller_class.first_level:
            # The file does not have it: all nodes of its one process have the same version.
            state.image.feature_levels = {FEATURE: cls.controller_class.first_level}
        controller = cls.controller_class(state.image, config, random, state.cluster_id)
        controller.start_cold(now_ns)
        authority = cls(disk, folder, controller)
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
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`step` must run even if no message arrives."""
        deadlines = (self._requests.next_deadline_ns, self._fetches.next_deadline_ns)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def step(self, requests: Sequence[Request], now_ns: int) -> list[ControllerReply]:
        """Decide ``requests`` in order, then the timed work that is due, with one write of the
        state.

        If the disk is full, all requests are refused and the state does not change. If a sync or
        rename fails, this authority ends, because the state on disk is unknown: this call raises
        :class:`StorageError` and each later call :class:`ClosedError`.
        """
        self._check()
        others = []
        for request in requests:
            if isinstance(request.body, FetchRequest):
                self._fetches.park(request, request.body, now_ns)
            elif not self._filter.is_stale(request):
                others.append(request)
        replies = self._finish(self._requests.step(others, now_ns), now_ns)
        self._requests.finished(self.next_wake_ns)
        return replies

    def _check_state(self, state: ControllerState | None) -> None:
        """Raise :class:`CorruptError` unless ``state``, read from disk, has every answered
        decision."""
        if state is None:
            reason = "the controller's state is gone while the cluster was open"
        elif state.cluster_id != self.cluster_id:
            reason = f"the controller's state is that of another cluster, {excerpt(state.cluster_id)}"
        elif state.image.offset < self._log.committed_offset:
            reason = (
                f"the controller's state ends at offset {state.image.offset}, before its last decision at"
                f" {self._log.committed_offset}"
            )
        else:
            return
        raise CorruptError(
            f"{reason}: put the file back, and the controller goes on", file=f"{self._folder}/{STATE_FILE}"
        )

    def _check(self) -> None:
        if self._log.failure is not None:
            raise ClosedError("the controller's disk failed") from self._log.failure

    def fence(self, broker_id: int, now_ns: int) -> list[ControllerReply]:
        """Fence a node that the caller has killed, without waiting for its session to end."""
        self._check()
        self._controller.fence(broker_id, now_ns)
        return self._finish((), now_ns)

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
            if self._log.failure is None:
                self._controller.try_again(now_ns)
            raise
        return done, self._serve_fetches(now_ns)

    # ----------------------------------------------------------------------------------- durability

    def _finish(self, answers: Sequence[Decided], now_ns: int) -> list[ControllerReply]:
        try:
            offset = self._commit()
        except StorageError as error:
            if self._log.failure is not None:
                raise
            self._controller.try_again(now_ns)
            offset = self._log.committed_offset
            answers = [
                Decided(request, body)
                for request, _ in answers
                if not isinstance(request.body, DESCRIPTIONS)
                and (body := refused(request.body, ErrorCode.KAFKA_STORAGE_ERROR, str(error))) is not None
            ]
        replies = [ControllerReply(one.source, one.correlation_id, body, offset) for one, body in answers]
        return replies + self._serve_fetches(now_ns)

    def _commit(self) -> int:
        """Make the new decisions durable, then visible; return the last offset.

        Raises :class:`StorageError`. If the log goes on, the image is then that of the log.
        """
        records = self._controller.take()
        try:
            offset = self._log.append(records)
        except StorageError:
            self._controller.image = self._log.image
            raise
        tell_decisions(records, self._controller.image)
        return offset

    def _serve_fetches(self, now_ns: int) -> list[ControllerReply]:
        return [ControllerReply(*served) for served in self._fetches.serve(self.image, now_ns)]


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
