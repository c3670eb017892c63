"""One computer of a simulated quorum: a disk, and a voter or observer on it while it is up."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple, Protocol

from pyreplog.errors import PyreplogError, StorageError
from pyreplog.log import random_uuid
from pyreplog.ports import Disconnected, Received
from pyreplog.quorum import (
    CommittedUpTo,
    Identity,
    LogBatch,
    NotProved,
    PeerGone,
    Proved,
    QuorumEffect,
    QuorumEvent,
    QuorumFailed,
    RaftNode,
    ReplicaKey,
    Send,
    SnapshotInstalled,
    TimerDue,
    VoterSet,
    find_voter_damage,
    format_quorum,
)
from pyreplog.testing.clock import SimClock
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.network import SimNetwork, SimTransport
from pyreplog.testing.quorum.model import EntrySummary, Fold, NodeView, QuorumModel, VoterKey
from pyreplog.testing.quorum.options import QuorumWorldOptions
from pyreplog.wire import Request, Response, VoteRequest, VoteResponse

__all__ = ["PendingAppend", "QuorumMachine"]

CLUSTER_ID: Final = "SimulatedQuorumAAAAAAA"
FOLDER: Final = "__cluster_metadata-0"
REREAD_EVERY: Final = 64
"""After so many turns the whole log is read again, not only the part that grew."""
VOTES_KEPT: Final = 1024


class PendingAppend(NamedTuple):
    """Records that the leader of ``epoch`` appended, and whose commit its client waits for."""

    first_offset: int
    last_offset: int
    epoch: int
    values: Sequence[bytes]


class QuorumMachineHost(Protocol):
    """The parts of the world that a machine needs."""

    @property
    def clock(self) -> SimClock: ...
    @property
    def network(self) -> SimNetwork: ...
    @property
    def random(self) -> Random: ...
    @property
    def model(self) -> QuorumModel: ...
    @property
    def options(self) -> QuorumWorldOptions: ...
    @property
    def node_class(self) -> type[RaftNode]: ...
    def say(self, text: str) -> None: ...
    def failed(self, machine: QuorumMachine, error: Exception) -> None: ...
    def bootstrap(self, node_id: int) -> Sequence[str]: ...
    def answered(self, machine: QuorumMachine, response: Response) -> None: ...


class QuorumMachine:
    """One node of a simulated quorum and its disk."""

    def __init__(self, world: QuorumMachineHost, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.address = f"controller-{node_id}"
        self.disk = self._new_disk()
        self.directory_id = self._new_id()
        self.node: RaftNode | None = None
        self.transport: SimTransport | None = None
        self.paused = False
        self.disk_failed = False
        """A call of the disk was made to fail since the node started, so the node may end."""
        self.injured = False
        """A call of the disk was made to fail since the node last opened its files and vouched for all of them."""
        self.life = 0
        self.fold = Fold()
        self.pending: list[PendingAppend] = []
        self._proofs: dict[object, int] = {}
        self._votes: dict[tuple[str, int], tuple[int, VoterKey]] = {}
        self._log: list[EntrySummary] = []
        self._log_start = 0
        self._turns = 0
        self._token = 0
        self._led_epoch = -1

    def _new_disk(self) -> SimDisk:
        return SimDisk(Random(self.world.random.getrandbits(64)), clock=self.world.clock)

    def _new_id(self) -> str:
        return random_uuid(self.world.random)

    @property
    def key(self) -> ReplicaKey:
        """The key of this node with its present disk."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def next_wake_ns(self) -> int | None:
        """When the node is due."""
        return None if self.node is None or self.paused else self.node.next_wake_ns

    @property
    def leads(self) -> bool:
        """Whether the node is up and believes that it leads."""
        return self.node is not None and not self.paused and self.node.is_leader

    # ------------------------------------------------------------------------------ life and death

    def format(self, voters: VoterSet | None) -> None:
        """Make the folder of a new node; None: an observer that learns the voters from the leader."""
        identity = Identity(self.node_id, self.directory_id, CLUSTER_ID)
        format_quorum(self.disk, self.folder, identity, self.world.clock, voters, self.world.options.config)
        self.disk.sync_directory(f"node-{self.node_id}")

    @property
    def folder(self) -> str:
        """The folder of the metadata log."""
        return f"node-{self.node_id}/{FOLDER}"

    def start(self) -> None:
        """Open the node."""
        world = self.world
        self.life += 1
        self.disk_failed = False
        identity = Identity(self.node_id, self.directory_id, CLUSTER_ID)
        damage = find_voter_damage(self.disk, self.folder, identity)
        self.node = world.node_class.open(
            self.disk,
            self.folder,
            identity,
            world.options.config._replace(bootstrap=tuple(world.bootstrap(self.node_id))),
            world.clock,
            Random(world.random.getrandbits(64)),
            endpoint=self.address,
            now_ns=world.clock.monotonic_ns(),
        )
        self.transport = world.network.endpoint(self.address)
        self.fold = Fold()
        self._log, self._log_start, self._turns = [], -1, 0
        self._led_epoch = -1
        is_whole = self.node.voter_failure is None and self.node.storage.failure is None
        if is_whole != (damage is None):
            raise AssertionError(
                f"node {self.node_id}: a look at its files and their opening differ: {damage!r},"
                f" {self.node.voter_failure!r}"
            )
        if is_whole:
            self.injured = False
        elif not self.injured:
            raise AssertionError(
                f"node {self.node_id} does not vouch for its files without a fault: {self.node.voter_failure}"
                f" {self.node.storage.failure!r}"
            )
        self._load_snapshot()
        self._observe()

    def _end(self) -> None:
        self.paused = False
        self.disk.clear_faults()
        self.disk.capacity = None
        self.pending.clear()
        self._proofs.clear()
        self._votes.clear()

    def kill(self, *, silent: bool) -> None:
        """Kill the process; the written data stays."""
        self._end()
        if self.transport is not None:
            self.transport.close(silent=silent)
        self.disk.kill()
        self.node = self.transport = None

    def lose_power(self, *, silent: bool = True) -> None:
        """Cut the power; unsynced data may be gone."""
        self.kill(silent=silent)
        self.disk = self.disk.crash(Random(self.world.random.getrandbits(64)))

    def stop(self) -> None:
        """Shut down in order: a leader resigns first."""
        if self.node is not None:
            try:
                self._carry_out(self.node.resign(self.world.clock.monotonic_ns()))
                if self.node is not None:
                    self.node.close()
            except PyreplogError as error:
                if not self.disk_failed:
                    raise
                self.world.say(f"node {self.node_id} could not stop in order: {error}")
        self.kill(silent=False)

    def wipe(self) -> None:
        """Replace the disk by an empty one, with another directory id."""
        self.kill(silent=True)
        self.world.model.forget((self.node_id, self.directory_id))
        self.disk = self._new_disk()
        self.injured = False
        self.directory_id = self._new_id()
        self.format(None)

    def fail_disk(self, kind: str, *, error: int, times: int | None = 1) -> None:
        """Let the next such call of the disk fail; the node may end."""
        self.disk_failed = self.injured = True
        self.disk.fail(kind, "*", error=error, times=times)

    # --------------------------------------------------------------------------------------- turns

    def poll(self) -> None:
        """Give the node one turn."""
        if self.node is None or self.paused or self.transport is None:
            return
        transport = self.transport
        for event in transport.poll():
            if isinstance(event, Received):
                message = event.message
                if isinstance(message, Request):
                    self._note_vote_request(message)
                    self._step(message)
                elif isinstance(message, Response):
                    self._step(message)
            elif isinstance(event, Disconnected):
                self._step(PeerGone(event.peer))
            if self.transport is not transport:
                return
        wake = self.node.next_wake_ns
        if wake is not None and wake <= self.world.clock.monotonic_ns():
            self._step(TimerDue())

    def _step(self, event: QuorumEvent) -> None:
        if self.node is None:
            return
        try:
            effects = self.node.step(event, self.world.clock.monotonic_ns())
        except StorageError as error:
            self.world.failed(self, error)
            return
        self._carry_out(effects)
        self._observe()

    def _carry_out(self, effects: Sequence[QuorumEffect]) -> None:
        for effect in effects:
            if self.transport is None or self.node is None:
                return
            if isinstance(effect, Send):
                self._note_vote(effect)
                self.transport.send(effect.address, effect.message)
            elif isinstance(effect, Proved):
                self.world.model.proved(self.key, self.node.high_watermark, self._proofs.pop(effect.token))
            elif isinstance(effect, NotProved):
                self._proofs.pop(effect.token, None)
            elif isinstance(effect, QuorumFailed):
                self.world.failed(self, effect.error)
                return
            elif isinstance(effect, SnapshotInstalled):
                self._log_start = -1
                self._load_snapshot()
            elif isinstance(effect, CommittedUpTo):
                self._apply()

    # ------------------------------------------------------------------------------ the operations

    def append(self, values: Sequence[bytes]) -> None:
        """Append ``values`` as the leader. The model gets them when they are committed."""
        assert self.node is not None
        before = self.node.log_end_offset
        try:
            done = self.node.append(values, self.world.clock.monotonic_ns())
        except StorageError as error:
            if self.node.storage.failure is not None:
                self.world.failed(self, error)
                return
            if self.node.log_end_offset != before:
                raise AssertionError(f"node {self.node_id}: an append that failed left records behind") from error
            self.world.say(f"node {self.node_id} could not append: {error}")
            self._observe()
            return
        self.pending.append(PendingAppend(done.first_offset, done.last_offset, self.node.epoch, values))
        self._carry_out(done.effects)
        self._observe()

    def prove(self) -> None:
        """Begin a linearizable read."""
        assert self.node is not None
        self._token += 1
        self._proofs[self._token] = self.world.model.acknowledged_end
        self._carry_out(self.node.prove_leadership(self._token, self.world.clock.monotonic_ns()))
        self._observe()

    def resign(self) -> None:
        """Give up leadership in order."""
        if self.node is not None:
            self._carry_out(self.node.resign(self.world.clock.monotonic_ns()))
            self._observe()

    def write_snapshot(self) -> bool:
        """Write a snapshot of the state machine; return whether there was anything new."""
        node = self.node
        if node is None or self.fold.end <= (node.latest_snapshot.end_offset if node.latest_snapshot else 0):
            return False
        content = [b"%d %d" % self.fold, *(b"padding %d" % number for number in range(self.fold.end % 7))]
        try:
            node.write_snapshot(self.fold.end, content)
        except StorageError as error:
            self.world.say(f"node {self.node_id} could not write a snapshot: {error}")
        self._log_start = -1
        self._observe()
        return True

    # --------------------------------------------------------------------------- the state machine

    def _load_snapshot(self) -> None:
        assert self.node is not None
        found = self.node.read_snapshot()
        if found is None:
            return
        snapshot_id, records = found
        content = list(records)
        if snapshot_id.end_offset == 0:
            return
        end, chain = (int(word) for word in content[0].split())
        if end != snapshot_id.end_offset or len(content) != 1 + end % 7:
            raise AssertionError(f"node {self.node_id}: snapshot {snapshot_id} holds {content}")
        if end > self.fold.end:
            self.fold = Fold(end, chain)
            self.world.model.loaded(self.key, self.fold)

    def _apply(self) -> None:
        node = self.node
        assert node is not None
        for offset, value in node.read_committed(self.fold.end):
            if offset < self.fold.end:
                continue
            if offset != self.fold.end:
                raise AssertionError(f"node {self.node_id} read offset {offset} after {self.fold.end - 1}")
            plain = value if isinstance(value, bytes) else bytes(value) if isinstance(value, memoryview) else b"control"
            self.fold = self.fold.apply(offset, plain)
            self.world.model.applied(self.key, self.fold, plain)
        if self.fold.end != node.high_watermark:
            raise AssertionError(f"node {self.node_id} applied up to {self.fold.end} of {node.high_watermark}")

    # ---------------------------------------------------------------------- the view of the model

    def _note_vote_request(self, request: Request) -> None:
        body = request.body
        if isinstance(body, VoteRequest):
            part = body.topics[0].partitions[0]
            if not part.pre_vote:
                place = request.source, request.correlation_id
                self._votes[place] = part.replica_epoch, (part.replica_id, part.replica_directory_id)
                if len(self._votes) > VOTES_KEPT:
                    del self._votes[next(iter(self._votes))]

    def _note_vote(self, effect: Send) -> None:
        message = effect.message
        if isinstance(message, Response) and isinstance(message.body, VoteResponse):
            asked = self._votes.pop((effect.address, message.correlation_id), None)
            if asked and message.body.topics and message.body.topics[0].partitions[0].vote_granted:
                self.world.model.vote(self.key, *asked)

    def _observe(self) -> None:
        node = self.node
        if node is None:
            return
        key: VoterKey = (self.node_id, self.directory_id)
        if node.role_name in {"candidate", "leader"} and node.is_voter:
            self.world.model.vote(key, node.epoch, key)
        changed_from = self._read_log(node)
        view = NodeView(
            key,
            self.life,
            node.epoch,
            node.is_leader,
            node.epoch if node.is_leader else self._led_epoch,
            node.high_watermark,
            node.log_end_offset,
            self._log,
            changed_from,
            frozenset((voter.node_id, voter.directory_id) for voter in node.voters),
        )
        self.world.model.turn(view)
        self._led_epoch = node.epoch if node.is_leader else -1
        self._settle(node)

    def _read_log(self, node: RaftNode) -> int:
        """Bring the picture of the log up to date; return the index from which it is new."""
        self._turns += 1
        storage, log = node.storage, self._log
        start, end = storage.start_offset, storage.end_offset
        known_end = log[-1].last_offset + 1 if log else -1
        same = start == self._log_start and known_end >= 0 and end >= known_end and self._turns % REREAD_EVERY
        if same and end == known_end and log[-1].epoch == storage.last_epoch:
            return len(log)
        if same and end > known_end:
            fresh = [summary_of(batch) for batch in storage.batches(known_end, end)]
            self._log = [*log, *fresh]
            return len(log)
        self._log_start = start
        self._log = [summary_of(batch) for batch in storage.batches(start, end)] if start < end else []
        return 0

    def _settle(self, node: RaftNode) -> None:
        """Acknowledge the appends that are committed; forget those of an older epoch."""
        while self.pending:
            append = self.pending[0]
            if append.epoch != node.epoch or not node.is_leader:
                self.pending.clear()
            elif node.high_watermark > append.last_offset:
                self.pending.pop(0)
                self.world.model.acknowledge(append.first_offset, append.values)
            else:
                return


def summary_of(batch: LogBatch) -> EntrySummary:
    """Return the fields that tell a batch from every other."""
    checksum = 0
    for record in batch.records:
        checksum = zlib.crc32(record, checksum)
    for control in batch.control:
        checksum = zlib.crc32(b"%b=%b" % (control.key, control.value), checksum)
    return EntrySummary(batch.base_offset, batch.last_offset, batch.epoch, checksum)
