"""The voters of the quorum: their keys, their endpoints, and the computations of a majority.

A voter is a pair of node id and directory id (KIP-853): a node whose disk was replaced is another
voter. Node ids are unique within a set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from pyreplog.errors import InvalidRequestError
from pyreplog.ports import Address
from pyreplog.wire import NO_ID

__all__ = [
    "NO_VOTERS",
    "Identity",
    "ReplicaKey",
    "Voter",
    "VoterEndpoint",
    "VoterSet",
    "VoteResult",
    "address_of",
    "endpoint_of",
    "majority_offset",
    "vote_result",
]


class ReplicaKey(NamedTuple):
    """A node and the disk that its metadata log is on. ``directory_id`` may be :data:`NO_ID`: unknown."""

    node_id: int
    directory_id: str = NO_ID


class Identity(NamedTuple):
    """The identity of one node of the quorum."""

    node_id: int
    directory_id: str
    cluster_id: str

    @property
    def key(self) -> ReplicaKey:
        """The node's key in a set of voters."""
        return ReplicaKey(self.node_id, self.directory_id)


class VoterEndpoint(NamedTuple):
    """One listener of a voter. In one process ``host`` is its address and ``port`` 0."""

    name: str
    host: str
    port: int = 0


def address_of(host: str, port: int) -> Address:
    """Return the address of an endpoint."""
    return f"tcp://{host}:{port}" if port else host


def endpoint_of(address: Address, name: str = "CONTROLLER") -> VoterEndpoint:
    """Return the endpoint with this address."""
    if address.startswith("tcp://"):
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        return VoterEndpoint(name, host, int(port))
    return VoterEndpoint(name, address)


class Voter(NamedTuple):
    """One voter, with the versions of the protocol that it knows."""

    node_id: int
    directory_id: str
    endpoints: tuple[VoterEndpoint, ...]
    min_version: int = 0
    max_version: int = 1

    @property
    def key(self) -> ReplicaKey:
        """The voter's key."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def address(self) -> Address | None:
        """The address of its first endpoint."""
        if not self.endpoints:
            return None
        return address_of(self.endpoints[0].host, self.endpoints[0].port)

    @classmethod
    def at(cls, key: ReplicaKey, address: Address) -> Voter:
        """Return the voter with one endpoint."""
        return cls(key.node_id, key.directory_id, (endpoint_of(address),))


class VoterSet:
    """An immutable set of voters, by rising node id."""

    __slots__ = ("_by_id", "keys", "voters")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        #: The voters by rising node id.
        self.voters: tuple[Voter, ...] = tuple(sorted(voters))
        #: Their keys, in the same order.
        self.keys: tuple[ReplicaKey, ...] = tuple(voter.key for voter in self.voters)
        self._by_id = {voter.node_id: voter for voter in self.voters}
        if len(self._by_id) != len(self.voters):
            raise InvalidRequestError("two voters have one node id")

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    __hash__ = None  # type: ignore[assignment]  # no set of such sets is needed

    def __repr__(self) -> str:
        return f"VoterSet({[tuple(voter.key) for voter in self.voters]})"

    def __contains__(self, key: ReplicaKey) -> bool:
        """Return whether ``key`` is a voter: node id and directory id."""
        found = self._by_id.get(key.node_id)
        return found is not None and found.directory_id == key.directory_id

    @property
    def majority(self) -> int:
        """The size of a majority."""
        return len(self.voters) // 2 + 1

    def get(self, node_id: int) -> Voter | None:
        """Return the voter with this node id."""
        return self._by_id.get(node_id)

    def place(self, key: ReplicaKey) -> int:
        """Return the place of a voter in the list; the length of the list for any other node."""
        return self.keys.index(key) if key in self else len(self.voters)

    def is_only(self, key: ReplicaKey) -> bool:
        """Return whether ``key`` is the only voter."""
        return len(self.voters) == 1 and key in self

    def add(self, voter: Voter) -> VoterSet:
        """Return the set with one more voter. Raises :class:`InvalidRequestError` if its node is in it."""
        if voter.node_id in self._by_id:
            raise InvalidRequestError(f"node {voter.node_id} is a voter already")
        return VoterSet((*self.voters, voter))

    def remove(self, key: ReplicaKey) -> VoterSet:
        """Return the set without ``key``. Raises :class:`InvalidRequestError` if it is no voter, or the last."""
        if key not in self:
            raise InvalidRequestError(f"node {key.node_id} with directory {key.directory_id} is not a voter")
        if len(self.voters) == 1:
            raise InvalidRequestError(f"node {key.node_id} is the last voter")
        return VoterSet(voter for voter in self.voters if voter.key != key)

    def update(self, voter: Voter) -> VoterSet:
        """Return the set with other endpoints of one voter. Raises :class:`InvalidRequestError` if it is no voter."""
        if voter.key not in self:
            raise InvalidRequestError(f"node {voter.node_id} with directory {voter.directory_id} is not a voter")
        return VoterSet(voter if one.key == voter.key else one for one in self.voters)


NO_VOTERS: Final = VoterSet()


class VoteResult(Enum):
    """The state of an election."""

    WON = "won"
    LOST = "lost"
    PENDING = "pending"


def vote_result(votes: Sequence[bool | None]) -> VoteResult:
    """Return the result of one vote a voter: True granted, False refused, None without an answer yet.

    An election without voters is won, as in etcd's tests.
    """
    majority = len(votes) // 2 + 1 if votes else 0
    granted = sum(vote is True for vote in votes)
    if granted >= majority:
        return VoteResult.WON
    open_votes = sum(vote is None for vote in votes)
    return VoteResult.PENDING if granted + open_votes >= majority else VoteResult.LOST


def majority_offset(offsets: Sequence[int]) -> int:
    """Return the greatest offset that a majority has reached; -1 for an unknown one.

    ``offsets`` has one entry for each voter, -1 for a voter whose offset is unknown.
    """
    return sorted(offsets, reverse=True)[len(offsets) // 2] if offsets else -1
