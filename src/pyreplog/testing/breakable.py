"""BreakableCluster: a real cluster on real files, for tests that break its nodes, links and disks.

It is for tests of programs built on pyreplog; the pytest fixture ``replog_cluster`` makes one. Files, syncs, threads
and time are real. Faults that one machine cannot have are added: a cut link loses messages silently, a slow disk
syncs late, a failing disk refuses calls, and a torn disk has lost unsynced data, as after a power failure. To test
thousands of faults quickly and repeatably, use :class:`pyreplog.testing.World`.
"""

from __future__ import annotations

import errno as errors
import os
import threading
from collections.abc import Collection, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from pyreplog.config import Permissions, check_permissions, suggestion
from pyreplog.controller import controller_address
from pyreplog.errors import ConfigError, PyreplogError, StorageError
from pyreplog.ports import Address, Buffer, Disk, File, Lock, SharedFile, SyncDone
from pyreplog.runtime import Cluster
from pyreplog.system import LocalNetwork, LocalTransport, SystemDisk

__all__ = ["BreakableCluster", "BreakableDisk"]

_LOG_SUFFIX: Final = ".log"
_CALLS: Final = ("write", "sync", "read", "create")


class _File:
    """An open file of a :class:`BreakableDisk`."""

    __slots__ = ("_disk", "file")

    def __init__(self, disk: BreakableDisk, file: File) -> None:
        self._disk = disk
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write all of ``parts`` at ``position``, unless the disk refuses the call."""
        self._disk.check("write", self.file.path)
        self.file.write_at(position, parts)

    def read_at(self, position: int, size: int) -> memoryview:
        """Return up to ``size`` bytes from ``position``, unless the disk refuses the call."""
        self._disk.check("read", self.file.path)
        return self.file.read_at(position, size)

    def truncate(self, size: int) -> None:
        """Make the file ``size`` bytes long, unless the disk refuses the call."""
        self._disk.check("write", self.file.path)
        self.file.truncate(size)
        self._disk.synced_to(self.file.path, size, shrink=True)

    def sync(self) -> None:
        """Sync the file, and note its synced size, unless the disk refuses the call."""
        self._disk.check("sync", self.file.path)
        size = self.file.size()
        self.file.sync()
        self._disk.synced_to(self.file.path, size)


class BreakableDisk:
    """The disk of this machine, as one node sees it, with faults added. As thread-safe as ``SystemDisk``.

    A failing call raises its errno until :meth:`mend`, and changes nothing. The disk notes how much of each segment
    is synced, so that :meth:`tear` can remove unsynced data.
    """

    def __init__(self, permissions: Permissions = "owner") -> None:
        self._permissions: Permissions = permissions
        self._disk = SystemDisk(permissions=permissions)
        self._lock = threading.Lock()
        self._failing: dict[str, int] = {}
        self._synced: dict[str, int] = {}
        self._delay_s = 0.0
        self._tokens = 0
        self._running: dict[
            int, tuple[int, list[tuple[str, int]]]
        ] = {}  # the real disk's token -> our token, and the size of each file that the sync covers
        self._done: list[SyncDone] = []
        self._boots = 0
        self._life = 0

    def begin_life(self) -> Self:
        """Give the disk to another node; pending syncs of the node before are never reported."""
        with self._lock:
            self._life += 1
            self._disk = SystemDisk(permissions=self._permissions)
            self._running.clear()
            self._done.clear()
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    # -- faults ------------------------------------------------------------------------------------

    def slow(self, seconds: float) -> None:
        """Delay every sync by ``seconds`` until :meth:`mend`."""
        self._delay_s = seconds

    def fail(self, calls: Sequence[str], errno: int) -> None:
        """Let ``calls`` ("write", "sync", "read", "create") fail with ``errno`` until :meth:`mend`."""
        for call in calls:
            if call not in _CALLS:
                raise ConfigError(f"{call!r} is not a disk call that can fail{suggestion(call, _CALLS)}")
        self._failing = dict.fromkeys(calls, errno)

    def mend(self) -> None:
        """End every fault of this disk."""
        self._failing = {}
        self._delay_s = 0.0

    def tear(self, random: Random) -> int:
        """Damage the unsynced data as a power failure does; return the number of bytes lost.

        Part of the data that was appended to segments and not synced is removed, and the end of the rest may be
        damaged. The boot id changes. REQUIRES that no process has the files open.
        """
        lost = 0
        with self._lock:
            self._boots += 1
            for path, synced in sorted(self._synced.items()):
                if path.endswith(_LOG_SUFFIX) and os.path.exists(path):
                    lost += _tear(path, synced, random)
        return lost

    def check(self, call: str, path: str) -> None:
        """Raise StorageError if ``call`` is set to fail."""
        code = self._failing.get(call)
        if code is not None:
            raise StorageError(code, f"{os.strerror(code)} (injected fault: {call})", path)

    def synced_to(self, path: str, size: int, *, shrink: bool = False) -> None:
        """Note that the first ``size`` bytes of the file are on stable storage."""
        with self._lock:
            before = self._synced.get(path, 0)
            self._synced[path] = min(before, size) if shrink else max(before, size)

    # -- the disk ----------------------------------------------------------------------------------

    def boot_id(self, directory: str) -> str:
        """Return the boot id of the machine; :meth:`tear` changes it."""
        boot_id = self._disk.boot_id(directory)
        return f"{boot_id}-{self._boots}" if boot_id and self._boots else boot_id

    def create(self, path: str, size: int = 0) -> File:
        """Create an empty file."""
        self.check("create", path)
        file: File = _File(self, self._disk.create(path, size))
        self.synced_to(path, 0)
        return file

    def open(self, path: str, *, write: bool = False) -> File:
        """Open an existing file; its content counts as synced."""
        inner = self._disk.open(path, write=write)
        if path not in self._synced:
            self.synced_to(path, inner.size())
        file: File = _File(self, inner)
        return file

    def lock(self, path: str, about: str, text_position: int | None = None) -> Lock:
        """Take the lock of the file ``path``."""
        return self._disk.lock(path, about, text_position)

    def open_shared(self, path: str) -> SharedFile:
        """Open a file that several processes change."""
        return self._disk.open_shared(path)

    def hold(self, path: str) -> Lock:
        """Hold the file ``path``."""
        return self._disk.hold(path)

    def submit_sync(self, files: Sequence[File], wake: Any) -> int:
        """Begin a sync of the files: at once, after the delay, or never if syncs are set to fail."""
        with self._lock:
            self._tokens += 1
            token = self._tokens
        if "sync" in self._failing:
            code = self._failing["sync"]
            error = StorageError(code, f"{os.strerror(code)} (injected fault: sync)", files[0].path)
            with self._lock:
                self._done.append(SyncDone(token, error))
            wake()
        elif self._delay_s:
            timer = threading.Timer(self._delay_s, partial(self._begin, self._life, token, files, wake))
            timer.daemon = True
            timer.start()
        else:
            self._begin(self._life, token, files, wake)
        return token

    def _begin(self, life: int, token: int, files: Sequence[File], wake: Any) -> None:
        inner = [file.file if isinstance(file, _File) else file for file in files]
        try:
            sizes = [(file.path, file.size()) for file in inner]
            with self._lock:
                if life != self._life:
                    return
                self._running[self._disk.submit_sync(inner, wake)] = (token, sizes)
        except PyreplogError:  # a file was closed during the delay: no caller waits for the sync
            pass

    def poll(self) -> Sequence[SyncDone]:
        """Return the syncs that have ended since the last call."""
        with self._lock:
            found, self._done = self._done, []
            for done in self._disk.poll():
                token, sizes = self._running.pop(done.token)
                if done.error is None:
                    for path, size in sizes:
                        self._synced[path] = max(self._synced.get(path, 0), size)
                found.append(SyncDone(token, done.error))
        return found


def _tear(path: str, synced: int, random: Random) -> int:
    size = os.path.getsize(path)
    if size <= synced:
        return 0
    kept = random.randint(synced, size - 1)
    with open(path, "r+b") as file:
        file.truncate(kept)
        if kept > synced and random.random() < 0.5:  # the last block was being written
            file.seek(random.randint(synced, kept - 1))
            file.write(bytes(kept - file.tell()))
    return size - kept


class _Transport(LocalTransport):
    """A transport that loses every message that it sends over a cut link."""

    __slots__ = ("_cuts",)

    def __init__(self, network: _Network) -> None:
        super().__init__(network)
        self._cuts = network.cuts

    def send(self, peer: Address, message: object) -> bool:
        """Send the message, or lose it if the link is cut."""
        return True if (self.address, peer) in self._cuts else super().send(peer, message)


class _Network(LocalNetwork):
    """A network whose links can be cut. ``cuts`` holds the cut links as (source, target)."""

    __slots__ = ("cuts",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.cuts: dict[tuple[Address | None, Address], None] = {}

    def endpoint(self) -> LocalTransport:
        """Return a new endpoint."""
        return _Transport(self)

    def addresses(self) -> list[Address]:
        """Return the addresses at which an endpoint listens."""
        return list(self._endpoints)


class BreakableCluster(Cluster):
    """A :class:`pyreplog.Cluster` with controls for faults.

    The controls are ``kill``, ``restart``, ``pause``, ``resume``, ``partition``, ``cut``, ``heal``, ``slow_disk``,
    ``fail_disk`` and ``tear``. They name a node by its number, from 1. All other methods of a cluster work as
    usual. :meth:`heal` ends the faults. ``seed`` decides where torn files end. Any thread may call the controls.
    """

    _network_class: ClassVar[type[LocalNetwork]] = _Network

    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: int | None = None,
        *,
        seed: int = 0,
        permissions: Permissions = "owner",
        **settings: Any,
    ) -> None:
        """Open a cluster as :class:`pyreplog.Cluster` does; ``disk`` cannot be given, because it is set here."""
        self._disks: dict[str, BreakableDisk] = {}
        self._permissions = check_permissions(permissions)
        self._tears = Random(seed)
        super().__init__(path, nodes, disk=self._breakable, **settings)

    def _breakable(self, name: str) -> Disk:
        return self._disks.setdefault(name, BreakableDisk(self._permissions)).begin_life()

    def _disk_of(self, node: int) -> BreakableDisk:
        self._node(node)
        return self._disks[f"node-{node}"]

    def _node(self, node: int) -> Any:
        if not (isinstance(node, int) and 1 <= node <= len(self.nodes)):
            raise ConfigError(f"there is no node {node!r}; nodes are numbered from 1 to {len(self.nodes)}")
        return self.nodes[node - 1]

    # -- nodes -------------------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        """Kill the node as a process is killed. :meth:`restart` starts it again."""
        self._node(node).kill()

    def restart(self, node: int) -> None:
        """Start the node again from its folder. When this returns, the node serves requests."""
        self._node(node).restart()

    def pause(self, node: int) -> None:
        """Freeze the node, as a stopped process or a virtual machine that is being moved.

        It does nothing and does not notice the pause. :meth:`resume` lets it go on.
        """
        self._node(node).pause()

    def resume(self, node: int) -> None:
        """Let a paused node go on."""
        self._node(node).resume()

    # -- links -------------------------------------------------------------------------------------

    def partition(self, *groups: Sequence[int | str]) -> None:
        """Cut every link between members of different groups, in both directions.

        A member is a node's number, which stands for all of the node, or an address ("producer-1"), or "controller".
        Endpoints in no group keep all their links: clients and the controller are cut off only if they are named. If
        the nodes are the controllers, "controller" stands for those in no other group.
        """
        named = {name for group in groups for name in group if isinstance(name, int)}
        sets = [[one for name in group for one in self._addresses_of(name, named)] for group in groups]
        pairs = [
            (one, other)
            for index, group in enumerate(sets)
            for others in sets[index + 1 :]
            for one in group
            for other in others
        ]
        if not pairs:
            raise ConfigError("partition takes two groups or more, each with a member: it cuts the links between them")
        for one, other in pairs:
            if one == other:
                raise ConfigError(f"{one} is in two groups; each member must be in only one")
        for one, other in pairs:
            self._network.cuts[one, other] = self._network.cuts[other, one] = None

    def cut(self, source: int | str, target: int | str) -> None:
        """Cut the link from ``source`` to ``target``; the opposite direction is unchanged."""
        named = {name for name in (source, target) if isinstance(name, int)}
        for one in self._addresses_of(source, named):
            for other in self._addresses_of(target, named):
                if one == other:
                    raise ConfigError(f"cut takes two different members: there is no link from {one} to itself")
                self._network.cuts[one, other] = None

    def heal(self) -> None:
        """Repair all links and disks, and resume the paused nodes.

        Killed nodes stay down, and a node whose disk failed stays offline, until :meth:`restart`.
        """
        self._network.cuts.clear()
        for disk in self._disks.values():
            disk.mend()
        for node in self.nodes:
            node.resume()

    @property
    def _network(self) -> _Network:
        network = self._driver.network
        assert isinstance(network, _Network)
        return network

    def _addresses_of(self, name: int | str, named: Collection[int]) -> list[Address]:
        """Return the addresses of a member. ``named``: the nodes that are members by their numbers."""
        if not self._is_quorum:
            return [self._address_of(name)]
        if isinstance(name, int):
            return [self._address_of(name), controller_address(name)]
        if name != "controller":
            return [self._address_of(name)]
        return [controller_address(node.node_id) for node in self.nodes if node.node_id not in named]

    @property
    def _is_quorum(self) -> bool:
        """Whether the nodes are the controllers."""
        return self._controller.address_for(1) == controller_address(1)

    def _address_of(self, name: int | str) -> Address:
        if isinstance(name, int):
            self._node(name)
            return f"node-{name}"
        known = dict.fromkeys(
            [*(f"node-{node.node_id}" for node in self.nodes), *self._network.addresses()]
        )  # a node that is down has no endpoint
        if self._is_quorum:
            known["controller"] = None
        if name not in known:
            raise ConfigError(f"there is no address {name!r}{suggestion(name, tuple(known))}")
        return name

    # -- disks -------------------------------------------------------------------------------------

    def slow_disk(self, node: int, seconds: float) -> None:
        """Delay every sync of the node's data by ``seconds``. Raises ConfigError if that is not a number from 0."""
        if not isinstance(seconds, (int, float)) or not 0 <= seconds <= threading.TIMEOUT_MAX:
            raise ConfigError(f"seconds is {seconds!r}; it must be a number of seconds from 0")
        self._disk_of(node).slow(seconds)

    def fail_disk(self, node: int, *, calls: Sequence[str] = ("write", "sync"), errno: int = errors.EIO) -> None:
        """Let these disk calls of the node fail from now on: "write", "sync", "read", "create".

        The node goes offline at the first failure. Exception: after ENOSPC in a write or create it refuses the
        request, stays online and tries again until there is space.
        """
        self._disk_of(node).fail(calls, errno)

    def tear(self, node: int) -> int:
        """Cut the power of the node; return the number of bytes lost.

        The node dies, and part of its unsynced data is lost. After :meth:`restart` it must catch up before it can
        join the ISR or lead.
        """
        self._node(node).kill()
        return self._disk_of(node).tear(self._tears)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
        super().__exit__(kind, error, trace)
