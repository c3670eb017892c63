"""The state that all roles of a node share: its files, its voters, its requests, and the changes of role."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyreplog.errors import InternalError
from pyreplog.ports import Address, Clock, Random
from pyreplog.quorum.config import QuorumConfig
from pyreplog.quorum.effects import CommittedUpTo, LeaderChanged, QuorumEffect, Send
from pyreplog.quorum.states import (
    FAR_FUTURE_NS,
    Failed,
    Following,
    Leading,
    LostLeader,
    PendingRequest,
    QuorumRole,
    Unattached,
    VotersAt,
)
from pyreplog.quorum.storage import ControlEntry, HardState, QuorumStorage
from pyreplog.quorum.voter_records import voters_of
from pyreplog.quorum.voters import NO_VOTERS, Identity, ReplicaKey, VoterSet, address_of
from pyreplog.wire import NodeEndpoint, QuorumNodeEndpoint, Request, RequestBody, Response, ResponseBody

__all__ = ["MS", "NodeState"]

MS: Final = 1_000_000
"""Nanoseconds of a millisecond."""
_CORRELATION_IDS: Final = 1 << 30


class NodeState:
    """The state of a node, and its changes of role."""

    def __init__(
        self,
        storage: QuorumStorage,
        identity: Identity,
        config: QuorumConfig,
        clock: Clock,
        random: Random,
        *,
        endpoint: Address,
        now_ns: int,
    ) -> None:
        self.storage = storage
        self.identity = identity
        self.key = identity.key
        self.config = config
        self.clock = clock
        self.random = random
        self.endpoint = endpoint
        self.now_ns = now_ns
        self.out: list[QuorumEffect] = []
        self.epoch = 0
        self.leader_id: int | None = None
        self.high_watermark = -1
        self.role: QuorumRole = Unattached(FAR_FUTURE_NS)
        self.voter_history: list[VotersAt] = [VotersAt(-1, NO_VOTERS)]
        """The sets of voters by rising offset; the last is in force, committed or not."""
        self.requests: dict[int, PendingRequest] = {}
        self.next_id = random.randrange(_CORRELATION_IDS)
        self.gone: set[Address] = set()
        """Endpoints that the transport called gone, and that have sent nothing since."""
        self.lost_leader = LostLeader("", -1, 0)
        """The last leader whose endpoint was called gone while this node followed it."""
        self.remembered: dict[ReplicaKey, int] = {}
        """The committed offset that each voter has acknowledged to this node, in any epoch."""
        self.election_tries = 0
        self.announced: tuple[int | None, int] = (None, -1)

    # -- facts --

    @property
    def voters(self) -> VoterSet:
        """The voters in force: the latest in the log, committed or not."""
        return self.voter_history[-1].voters

    @property
    def voter_failure(self) -> str | None:
        """The reason for which this node neither votes nor counts; None while it is whole."""
        return self.storage.voter_failure

    @property
    def is_voter(self) -> bool:
        """Whether this node is a voter and whole."""
        return self.key in self.voters and self.voter_failure is None

    @property
    def may_campaign(self) -> bool:
        """Whether this node may ask for votes.

        A node that its own log removes still may, until it knows that this is committed: perhaps
        only its log is long enough to win, and no other node could finish the removal.
        """
        if self.voter_failure is not None:
            return False
        latest = self.voter_history[-1]
        if self.key in latest.voters:
            return True
        if len(self.voter_history) < 2 or latest.offset < max(self.high_watermark, self.storage.committed_offset):
            return False
        return self.key in self.voter_history[-2].voters

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the present epoch, as far as it knows."""
        return isinstance(self.role, Leading)

    @property
    def log_end_offset(self) -> int:
        """The offset behind the log."""
        return self.storage.end_offset

    @property
    def leader_address(self) -> Address | None:
        """The address of the leader, if it is known."""
        if isinstance(self.role, Following):
            return self.role.address
        return self.endpoint if self.is_leader else None

    # -- voters --

    def load_voters(self) -> None:
        """Find the sets of voters in the newest snapshot and the log."""
        history = [VotersAt(-1, NO_VOTERS)]
        snapshot = self.storage.latest_snapshot()
        if snapshot is not None:
            for entry in self.storage.snapshot_control(snapshot):
                found = voters_of(entry)
                if found is not None:
                    history = [VotersAt(snapshot.end_offset - 1, found)]
        self.voter_history = history
        self.take_control(self.storage.control_entries())

    def take_control(self, entries: Iterable[ControlEntry]) -> None:
        """Put the sets of voters in ``entries``, which were appended, in force."""
        for entry in entries:
            found = voters_of(entry)
            if found is not None and entry.offset > self.voter_history[-1].offset:
                self.voter_history.append(VotersAt(entry.offset, found))

    def truncate(self, offset: int) -> None:
        """Truncate the log to ``offset``; the voters of truncated records are no longer in force."""
        self.storage.truncate_to(offset)
        end = self.storage.end_offset
        while len(self.voter_history) > 1 and self.voter_history[-1].offset >= end:
            self.voter_history.pop()

    # -- time and chance --

    def election_timeout(self) -> int:
        """Return a new deadline for an election: the timeout, plus up to as much."""
        timeout = self.config.election_timeout_ms * MS
        return self.now_ns + timeout + self.random.randrange(max(timeout, 1))

    def election_backoff(self) -> int:
        """Return the time after a lost election at which this node tries again."""
        self.election_tries += 1
        longest = min(
            self.config.election_backoff_max_ms, self.config.election_backoff_ms << min(self.election_tries, 16)
        )
        return self.now_ns + self.config.leader_gone_step_ms * MS + self.random.randrange(max(longest * MS, 1))

    def leader_gone_deadline(self) -> int:
        """Return when this voter asks for pre-votes if no leader is there: by its place in the list."""
        return self.now_ns + self.voters.place(self.key) * self.config.leader_gone_step_ms * MS

    # -- messages --

    def request(self, kind: str, address: Address, body: RequestBody, key: ReplicaKey | None = None) -> int:
        """Send a request; return its correlation id."""
        self.next_id = number = (self.next_id + 1) % _CORRELATION_IDS
        expiry = self.now_ns + self.config.request_timeout_ms * MS
        self.requests[number] = PendingRequest(kind, address, self.epoch, expiry, key)
        self.out.append(Send(address, Request(self.endpoint, number, body)))
        return number

    def answer(self, address: Address, correlation_id: int, body: ResponseBody) -> None:
        """Answer a request."""
        self.out.append(Send(address, Response(self.endpoint, correlation_id, body)))

    def known_leader(self) -> int:
        """Return the leader for an answer; -1 if it is not known."""
        return -1 if self.leader_id is None else self.leader_id

    def node_endpoints(self) -> list[QuorumNodeEndpoint]:
        """Return the address of the leader for an answer."""
        address = self.leader_address
        if self.leader_id is None or address is None:
            return []
        if address.startswith("tcp://"):
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            return [QuorumNodeEndpoint(self.leader_id, host, int(port))]
        return [QuorumNodeEndpoint(self.leader_id, address)]

    # -- changes of role --

    def persist(self, state: HardState) -> None:
        """Keep term and vote, durably, before anything follows from them.

        A leader alone is not written. It has the votes of a majority of its epoch, each of which is
        durable, so no other candidate can have one, whatever a voter forgets of the leader.
        """
        kept = self.storage.read_state()
        if (state.epoch, state.voted) != (kept.epoch, kept.voted):
            self.storage.write_state(state)
        self.epoch = state.epoch

    def enter(self, role: QuorumRole, leader_id: int | None = None) -> None:
        """Take on ``role``, and announce the leader unless this node itself leads."""
        self.leave()
        self.role = role
        self.leader_id = leader_id
        self.requests.clear()
        if not isinstance(role, Leading):
            self.announce()

    def leave(self) -> None:
        """Leave the present role. A leader answers what waits."""

    def announce(self) -> None:
        """Announce the leader, once."""
        said = (self.leader_id, self.epoch)
        if said != self.announced:
            self.announced = said
            self.out.append(LeaderChanged(*said))

    def become_unattached(self, epoch: int, deadline_ns: int | None = None, voted: ReplicaKey | None = None) -> None:
        """Enter ``epoch`` without a leader. A voter waits until the deadline, by default an election timeout.

        ``voted``: the candidate that gets this node's vote in the epoch, if it is a new one.
        """
        if epoch < self.epoch:
            raise InternalError(f"epoch {epoch} after {self.epoch}")
        if epoch > self.epoch:
            self.persist(HardState(epoch, -1, voted))
        if deadline_ns is None:
            deadline_ns = self.election_timeout() if self.may_campaign else self.now_ns
        self.enter(Unattached(deadline_ns))

    def become_follower(self, epoch: int, leader_id: int, address: Address) -> None:
        """Follow ``leader_id``, which leads ``epoch``."""
        state = self.storage.read_state()
        voted = state.voted if state.epoch == epoch else None
        self.persist(HardState(epoch, leader_id, voted))
        self.election_tries = 0
        deadline = self.now_ns + self.config.fetch_timeout_ms * MS
        self.enter(Following(leader_id, address, deadline), leader_id)
        self.fetch()

    def fetch(self) -> None:
        """Fetch from the leader, if this node follows one and no fetch is outstanding."""
        raise InternalError("a part of the machine is missing")

    def fail(self, error: Exception) -> None:
        """Take no part until the node is opened again."""
        self.enter(Failed(error))

    def hear_of_leader(
        self, epoch: int, leader_id: int, endpoints: Iterable[NodeEndpoint | QuorumNodeEndpoint] = ()
    ) -> bool:
        """Take over what an answer says about leader and epoch; return whether the role changed."""
        if epoch < self.epoch or isinstance(self.role, Failed):
            return False
        known = leader_id >= 0 and leader_id != self.identity.node_id
        address = self.address_of(leader_id, endpoints) if known else None
        if address is not None and (epoch > self.epoch or self.may_follow(leader_id, address)):
            self.become_follower(epoch, leader_id, address)
            return True
        if epoch > self.epoch:
            self.become_unattached(epoch)
            return True
        return False

    def may_follow(self, leader_id: int, address: Address) -> bool:
        """Return whether this node, in the same epoch, should follow a leader that others name."""
        return self.leader_id is None and not self.is_lost(address) and not isinstance(self.role, Leading)

    def is_lost(self, address: Address) -> bool:
        """Return whether ``address`` is that of a leader of this epoch that the transport called gone.

        Others may name it a little longer. If it is there all the same, this node follows it again
        after the fetch timeout.
        """
        lost = self.lost_leader
        return lost.address == address and lost.epoch == self.epoch and self.now_ns < lost.until_ns

    def address_of(self, leader_id: int, endpoints: Iterable[NodeEndpoint | QuorumNodeEndpoint]) -> Address | None:
        """Return the address of ``leader_id``: the one in an answer, else the one in the voters."""
        for endpoint in endpoints:
            if endpoint.node_id == leader_id:
                return address_of(endpoint.host, endpoint.port)
        voter = self.voters.get(leader_id)
        return None if voter is None else voter.address

    # -- the high watermark --

    def raise_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to ``offset``, and return whether it rose. It never falls."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.storage.note_committed(offset)
        self.out.append(CommittedUpTo(offset))
        return True
