"""QuorumHost: the quorum servers of the nodes in this process, seen as the cluster's one controller."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from random import Random, SystemRandom

from pyreplog.config import NodeConfig
from pyreplog.controller import (
    MetadataCounts,
    MetadataImage,
    QuorumServer,
    StoredMetadata,
    controller_address,
    new_id,
)
from pyreplog.errors import QuorumLostError
from pyreplog.log import METADATA_FOLDER, LogRoot
from pyreplog.ports import Address, Clock, Disk, Transport
from pyreplog.quorum import (
    Identity,
    QuorumConfig,
    ReplicaKey,
    Voter,
    VoterSet,
    clear_quorum,
    format_quorum,
    is_formatted,
)
from pyreplog.runtime.cluster_conversion import convert, voter_count
from pyreplog.runtime.driver import Driver
from pyreplog.runtime.metadata_view import MetadataView
from pyreplog.runtime.node_disks import NodeDisks
from pyreplog.runtime.node_folders import NODES_MAX, NodeFolders
from pyreplog.runtime.node_roles import NodeRole, parsed_role, settled_roles, voters_of
from pyreplog.runtime.quorum_folders import (
    FolderMetadata,
    describe_damage,
    folders_missing,
    has_majority,
    newest_of,
    quorum_lost,
    read_folder,
)
from pyreplog.runtime.state_check import check_not_older, check_without_metadata

__all__ = ["QuorumHost"]

_log = logging.getLogger("pyreplog")


class QuorumHost(MetadataView):
    """The quorum servers of one cluster's nodes in this process.

    Each node has one, in its folder; :class:`~pyreplog.runtime.cluster_node.ClusterNode` opens and
    ends it. One of them is the active controller while a majority of the voters is up.
    """

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        driver: Driver,
        folders: NodeFolders,
        disks: NodeDisks,
        roles: Mapping[int, NodeRole] | None = None,
    ) -> None:
        """``roles``: those that the caller asked for. Nothing is read or written yet."""
        super().__init__(driver)
        self._config = config
        self._clock = clock
        self._folders = folders
        self._disks = disks
        self._asked = roles
        self._roles: dict[int, NodeRole] = {}
        """The role of each node; empty without roles."""
        self._random = Random(SystemRandom().getrandbits(64))
        self._servers: dict[int, QuorumServer] = {}
        self._keys: dict[int, ReplicaKey] = {}
        self._paused: set[int] = set()
        self._image = MetadataImage()
        self._stored: dict[int, StoredMetadata] = {}
        self._cluster_id = ""
        #: The voters that the folders or the servers know.
        self.voters = VoterSet()
        #: Elections and other decisions since the cluster was opened.
        self.counts = MetadataCounts()

    # -------------------------------------------------------------------------------------- folders

    def load(self) -> None:
        """Read the ids and the metadata in the nodes' folders, without locks. A cluster that has one controller's file
        is converted first: REQUIRES the cluster's lock.

        A folder that cannot be read is left out: the start of its node reports it. Raises
        :class:`QuorumLostError` if the metadata of a majority of the voters is not there or damaged.
        """
        folders = self._folders
        convert(folders.disk, folders.home, folders, self._clock, self._quorum_config(), self._asked)
        found: dict[int, FolderMetadata] = {}
        self._load({number: self._disks.look_at(number) for number in self._folders.numbers}, found)
        kept = {number: role for number, one in found.items() if (role := parsed_role(one.roles)) is not None}
        voters = {voter.node_id for voter in self.voters}
        count = max(self._folders.count, *self.known_nodes(), 0)
        self._roles = settled_roles(self._asked, kept, voters, self._image.brokers, count)

    def _load(self, disks: Mapping[int, Disk], found: dict[int, FolderMetadata]) -> None:
        before: list[str] = []
        for number, disk in disks.items():
            folder, earlier = self._folders.of(number), self._folders.before(number)
            one = read_folder(disk, folder, number)
            if one is not None:
                found[number] = one
            one = one if earlier == folder else read_folder(disk, earlier, number)
            if one is not None:
                before.append(one.cluster_id)
        # The folders where the nodes were before say which cluster this is: the caller may list
        # foreign ones.
        clusters = Counter(one for one in before if one) or Counter(
            one.cluster_id for one in found.values() if one.cluster_id
        )
        self._cluster_id = clusters.most_common(1)[0][0] if clusters else new_id(self._random)
        for number in [key for key, one in found.items() if one.cluster_id not in ("", self._cluster_id)]:
            del found[number]  # it is refused by name
        self._stored = {number: one.stored for number, one in found.items() if one.stored is not None}
        newest = newest_of(found)
        places = [(disk, self._folders.of(number)) for number, disk in disks.items()]
        if newest is None:
            check_without_metadata(self._folders.home, places)
            return
        check_not_older(newest.image, places, "the metadata of the voters")
        if newest.end_offset and not has_majority(newest.voters, found):
            self._folders.check_nodes(self._cluster_id)
            # Before the nodes open, so that no empty folder takes the place of a missing one.
            raise quorum_lost(self._folders.home, folders_missing(newest.voters, found))
        self._image = newest.image
        self.voters = newest.voters

    @property
    def cluster_id(self) -> str:
        """The cluster's id, once :meth:`load` returned."""
        return self._cluster_id

    def format(self, roots: Mapping[int, tuple[Disk, LogRoot]]) -> None:
        """Make the folders of the first voters of a new cluster, whose nodes have these roots.

        A crash may have left it half done: while no voter has a record, the missing parts are made.
        """
        if any(one.end_offset for one in self._stored.values()):
            return
        voters = self.voters
        if not len(voters):
            voters = VoterSet(
                Voter.at(ReplicaKey(number, roots[number][1].directory_id), controller_address(number))
                for number in self._first_voters(roots)
            )
        for number, (disk, root) in roots.items():
            if ReplicaKey(number, root.directory_id) in voters:
                self._format(number, disk, root, voters)
        self.voters = voters

    def _first_voters(self, opened: Container[int]) -> list[int]:
        """Return the nodes that vote in a new cluster, among the ``opened`` ones. Raises QuorumLostError if a node
        with that role is not among them."""
        if not self._roles:
            numbers = [number for number in self._folders.numbers if number in opened]
            return numbers[: voter_count(len(numbers))]
        wanted = voters_of(self._roles)
        missing = [number for number in wanted if number not in opened]
        if missing:
            raise QuorumLostError(
                f"a new cluster needs all its voters, and node {missing[0]} could not open its folder"
                f" {self._folders.of(missing[0])}"
            )
        return wanted

    def _format(self, number: int, disk: Disk, root: LogRoot, voters: VoterSet | None) -> None:
        folder = f"{root.path}/{METADATA_FOLDER}"
        if not is_formatted(disk, folder):
            identity = Identity(number, root.directory_id, root.cluster_id)
            format_quorum(disk, folder, identity, self._clock, voters, self._quorum_config())
            disk.sync_directory(root.path)

    def _quorum_config(self, node_id: int = 0) -> QuorumConfig:
        """Return the settings of a node's server. A future voter becomes one by itself."""
        count = max(self._folders.count, *self.known_nodes(), 0)
        votes = node_id in self.wanted_voters()
        return QuorumConfig(
            bootstrap=tuple(controller_address(one) for one in range(1, count + 1)),
            auto_join=votes,
            auto_replace=votes,
        )

    def _numbers(self) -> list[int]:
        """Return the numbers of the nodes that the cluster has."""
        return sorted({*self._folders.numbers, *self.known_nodes()})

    def wanted_voters(self, leaving: Collection[int] = ()) -> set[int]:
        """Return the future voters: by their roles, or those that vote and then the first nodes, up to the
        number of voters for that many nodes. ``leaving``: nodes that are not among them."""
        numbers = [number for number in self._numbers() if number not in leaving]
        if self._roles:
            return {number for number in voters_of(self._roles) if number in numbers}
        wanted = {voter.node_id for voter in self.newest_voters() if voter.node_id not in leaving}
        for number in numbers:
            if len(wanted) < voter_count(len(numbers)):
                wanted.add(number)
        return wanted

    def key_of(self, node_id: int) -> ReplicaKey | None:
        """Return the number and the directory id of a node that runs, by which it is a voter; None for another."""
        return self._keys.get(node_id) if node_id in self._servers else None

    def voters_beyond(self, leaving: Collection[int] = ()) -> dict[int, str]:
        """Return the voters that have no vote by the rule or by their roles, with the ids of their folders; none while
        a node that has one does not vote. The nodes ``leaving`` count as gone. REQUIRES that no machine runs."""
        voters = {voter.node_id: voter.directory_id for voter in self.newest_voters()}
        wanted = (
            voters_of(self._roles)
            if self._roles
            else sorted(voters)[: voter_count(len(set(self._numbers()) - set(leaving)))]
        )
        if not all(map(self.is_voter, wanted)):
            return {}
        return {number: directory_id for number, directory_id in voters.items() if number not in wanted}

    def is_voter(self, node_id: int) -> bool:
        """Return whether the node runs and has a vote. REQUIRES that no machine runs."""
        return self._is_up(node_id) and self.damaged_voter(node_id) is None

    def is_settled(self, node_id: int) -> bool:
        """Return whether the node has its vote, or is to have none. REQUIRES that no machine runs."""
        return self.is_voter(node_id) or node_id not in self.wanted_voters()

    def damaged_voter(self, node_id: int) -> str | None:
        """Return the id of the folder of a voter that runs and does not vote, because its metadata is damaged; None
        for any other node. REQUIRES that no machine runs."""
        server = self._servers.get(node_id)
        if server is None or (server.failure is None and server.raft.voter_failure is None):
            return None
        key = self._keys[node_id]
        return key.directory_id if key in self.newest_voters() else None

    def damage_of(self, node_id: int) -> str | None:
        """Return what is damaged in the metadata of a voter that runs; None for any other node. REQUIRES that no
        machine runs."""
        server = self._servers.get(node_id)
        return None if server is None or self._keys[node_id] not in self.newest_voters() else server.raft.voter_failure

    def clear(self, disk: Disk, root: LogRoot) -> None:
        """Remove the metadata in a folder, whose node has no vote and does not run."""
        folder = f"{root.path}/{METADATA_FOLDER}"
        if disk.stat(folder) is not None:
            clear_quorum(disk, folder)

    # -------------------------------------------------------------------------------------- servers

    def open_server(self, node_id: int, disk: Disk, root: LogRoot, transport: Transport) -> QuorumServer:
        """Open the quorum server of a node, whose root is open. A node without metadata becomes an observer."""
        self._format(node_id, disk, root, None)
        voter = self.newest_voters().get(node_id)
        if voter is not None and voter.directory_id != root.directory_id:
            _log.warning(
                "node %d has a new folder, %s: its vote counts again when it has copied the metadata from a majority of"
                " the voters",
                node_id,
                root.path,
            )
        if node_id in self._roles:
            root.keep_roles(self._roles[node_id])
        server = QuorumServer.open(
            disk,
            f"{root.path}/{METADATA_FOLDER}",
            Identity(node_id, root.directory_id, root.cluster_id),
            self._config,
            self._quorum_config(node_id),
            transport,
            self._clock,
            Random(SystemRandom().getrandbits(64)),
        )
        self._keys[node_id] = ReplicaKey(node_id, root.directory_id)
        self._servers[node_id] = server
        server.count_into(self.counts)
        return server

    def note_started(self, node_ids: Sequence[int]) -> None:
        """Tell the servers that no earlier incarnation of these nodes is alive: this process has the cluster's lock.
        That holds for nodes that cannot start, too: without it their leaderships would wait for their sessions."""
        for server in self._servers.values():
            server.note_started(node_ids)

    def forget_server(self, node_id: int) -> None:
        """Note that the server of a node ended; the newest metadata is kept."""
        self._remember()
        self.voters = self.newest_voters()
        self._servers.pop(node_id, None)
        self._paused.discard(node_id)

    def _remember(self) -> MetadataImage:
        image = self._image
        for server in self._servers.values():
            if server.image.offset > image.offset:
                image = server.image
        self._image = image
        return image

    def role_of(self, node_id: int) -> NodeRole:
        """Return the role of a node: as asked for, or kept in its folder; without roles, the first
        nodes vote and all hold partitions."""
        if self._roles:
            return self._roles.get(node_id, "broker")
        voters = {voter.node_id for voter in self.newest_voters()} or self._first_voters(range(1, NODES_MAX + 1))
        return "broker,controller" if node_id in voters else "broker"

    def known_nodes(self) -> set[int]:
        """Return the numbers of the nodes that the metadata knows."""
        return {*self.image.brokers, *(voter.node_id for voter in self.voters)}

    def directories_of(self, node_id: int) -> Sequence[str] | None:
        """Return the ids of the folders that the metadata knows of a node; None if it does not know the node."""
        voter = self.voters.get(node_id)
        broker = self.image.brokers.get(node_id)
        if broker is not None:
            return broker.log_dirs
        return None if voter is None else [voter.directory_id]

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata that a node of this process has or had."""
        return self._remember()

    def address_for(self, node_id: int) -> Address:
        """Return the address of the controller that node ``node_id`` talks to: its own server."""
        return controller_address(node_id)

    def addresses(self) -> list[Address]:
        """Return the addresses of all controllers, for clients: the active one comes first, then the servers that
        run. Any thread."""
        active = self.active_id
        running = sorted(self._servers, key=lambda one: one != active)
        others = [one for one in range(1, self._folders.count + 1) if one not in running]
        return [controller_address(one) for one in (*running, *others)]

    @property
    def active_id(self) -> int | None:
        """The node whose server is the active controller; None while there is none."""
        return next((number for number, server in list(self._servers.items()) if server.is_active), None)

    @property
    def active_epoch(self) -> int:
        """The epoch of the active controller; -1 while there is none. REQUIRES that no machine runs."""
        active = self.active_id
        return -1 if active is None else self._servers[active].raft.epoch

    def voters_up(self) -> int:
        """Return how many voters run with whole metadata. REQUIRES that no machine runs."""
        return sum(self._is_up(one.node_id) and one.node_id not in self._paused for one in self.newest_voters())

    def lack(self) -> str | None:
        """Return why there is no controller, and what to do; None if a majority of the voters is up."""
        voters = self.newest_voters()
        numbers = [voter.node_id for voter in voters]
        up = [number for number in numbers if self._is_up(number) and number not in self._paused]
        needed = voters.majority - len(up)
        if needed <= 0:
            return None
        damaged = {number: why for number in numbers if (why := self.damage_of(number)) is not None}
        paused = [number for number in numbers if number in self._paused and number not in damaged]
        down = [number for number in numbers if number not in up and number not in damaged and number not in paused]
        ways = [*describe_damage(damaged)] if len(down) + len(paused) < needed else []
        ways += [f"{way} {_some_of(which, needed)}" for way, which in (("restart", down), ("resume", paused)) if which]
        return (
            f"{len(up)} of {len(voters)} voters {'is' if 1 in (len(up), len(voters)) else 'are'} up:"
            f" {('; ' if damaged else ' or ').join(ways)}"
        )

    def note_paused(self, node_id: int, *, is_paused: bool) -> None:
        """Note that the server of a node was paused or goes on. REQUIRES that no machine runs."""
        if is_paused:
            self._paused.add(node_id)
        else:
            self._paused.discard(node_id)

    def newest_voters(self) -> VoterSet:
        """Return the newest set of voters that a server knows."""
        servers = [server for server in list(self._servers.values()) if len(server.voters)]
        newest = max(servers, key=lambda server: server.raft.voter_history[-1].offset, default=None)
        return self.voters if newest is None else newest.voters

    def _is_up(self, node_id: int) -> bool:
        server = self._servers.get(node_id)
        return (
            server is not None
            and server.failure is None
            and server.raft.voter_failure is None
            and self._keys[node_id] in self.newest_voters()
        )

    # ---------------------------------------------------------------------------------------- nodes

    def knows_active_nodes(self) -> bool:
        """Return whether a controller is active and knows a node that is alive, or has heard of none for a whole
        session. REQUIRES that no machine runs."""
        if self.lack() is not None:
            return True  # waiting would not help
        since = [server.active_since_ns for server in self._servers.values() if server.active_since_ns is not None]
        session_ns = self._config.session_timeout_ms * 1_000_000
        return any(self.active_nodes() or self._clock.monotonic_ns() - one >= session_ns for one in since)


def _some_of(numbers: Sequence[int], needed: int) -> str:
    """Return which of the nodes ``numbers`` must come back, of which ``needed`` suffice."""
    if needed == 1 or len(numbers) == 1:
        return f"node {' or '.join(map(str, numbers))}"
    return f"{min(needed, len(numbers))} of the nodes {_listed(numbers)}"


def _listed(numbers: Sequence[int]) -> str:
    """Return the numbers as text; there are at least two."""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
