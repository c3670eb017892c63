"""BreakableCluster: a real cluster on real files, whose nodes, links and disks break when a test says so.

For tests of programs built on pyreplog; the pytest fixture ``replog_cluster`` makes one. What is real stays real:
files, syncs, threads, time. What cannot be had on one machine is put on top: a link that is cut loses messages in
silence, a slow disk syncs late, a failing one refuses, a torn one has lost what was not synced, as after a power
cut. For faults by the thousand, in no time and repeatable, see :class:`pyreplog.testing.World`.
"""

from __future__ import annotations

import errno as errors
import os
import threading
from collections.abc import Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from pyreplog.config import Permissions, check_permissions, suggestion
from pyreplog.errors import ConfigError, PyreplogError, StorageError
from pyreplog.ports import Address, Buffer, Disk, File, Lock, SyncDone
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
        """As the disk allows."""
        self._disk.check("write", self.file.path)
        self.file.write_at(position, parts)

    def read_at(self, position: int, size: int) -> memoryview:
        """As the disk allows."""
        self._disk.check("read", self.file.path)
        return self.file.read_at(position, size)

    def truncate(self, size: int) -> None:
        """As the disk allows."""
        self._disk.check("write", self.file.path)
        self.file.truncate(size)
        self._disk.synced_to(self.file.path, size, shrink=True)

    def sync(self) -> None:
        """As the disk allows."""
        self._disk.check("sync", self.file.path)
        size = self.file.size()
        self.file.sync()
        self._disk.synced_to(self.file.path, size)


class BreakableDisk:
    """This machine's disk, as one node sees it, with faults. Thread-safe as that is.

    A call that is told to fail fails with its errno until :meth:`mend`; it changes nothing. How much of each
    segment is synced is remembered, so that :meth:`tear` can take back the rest.
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
        ] = {}  # the real disk's token -> ours, and what it will have synced
        self._done: list[SyncDone] = []
        self._boots = 0
        self._life = 0

    def begin_life(self) -> Self:
        """Another node begins to use it: what the one before still waited for is nobody's."""
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
        """Every sync takes so much longer from now on."""
        self._delay_s = seconds

    def fail(self, calls: Sequence[str], errno: int) -> None:
        """``write``, ``sync``, ``read``, ``create``: fail with ``errno`` until :meth:`mend`."""
        for call in calls:
            if call not in _CALLS:
                raise ConfigError(f"{call!r} is no call of a disk{suggestion(call, _CALLS)}")
        self._failing = dict.fromkeys(calls, errno)

    def mend(self) -> None:
        """No fault any more."""
        self._failing = {}
        self._delay_s = 0.0

    def tear(self, random: Random) -> int:
        """The power was cut: of what was appended to segments and not synced, some is gone, and the last of the
        rest may be damaged; the machine has booted again. Bytes lost. REQUIRES that nobody has the files open."""
        lost = 0
        with self._lock:
            self._boots += 1
            for path, synced in sorted(self._synced.items()):
                if path.endswith(_LOG_SUFFIX) and os.path.exists(path):
                    lost += _tear(path, synced, random)
        return lost

    def check(self, call: str, path: str) -> None:
        """Raise what ``call`` is told to raise."""
        code = self._failing.get(call)
        if code is not None:
            raise StorageError(code, f"{os.strerror(code)} (told to fail: {call})", path)

    def synced_to(self, path: str, size: int, *, shrink: bool = False) -> None:
        """So much of the file is on stable storage."""
        with self._lock:
            before = self._synced.get(path, 0)
            self._synced[path] = min(before, size) if shrink else max(before, size)

    # -- the disk ----------------------------------------------------------------------------------

    def boot_id(self, directory: str) -> str:
        """Another one after :meth:`tear`."""
        boot_id = self._disk.boot_id(directory)
        return f"{boot_id}-{self._boots}" if boot_id and self._boots else boot_id

    def create(self, path: str, size: int = 0) -> File:
        """A new file."""
        self.check("create", path)
        file: File = _File(self, self._disk.create(path, size))
        self.synced_to(path, 0)
        return file

    def open(self, path: str, *, write: bool = False) -> File:
        """An existing one: what it holds is taken for synced."""
        inner = self._disk.open(path, write=write)
        if path not in self._synced:
            self.synced_to(path, inner.size())
        file: File = _File(self, inner)
        return file

    def lock(self, path: str, about: str) -> Lock:
        """The lock file."""
        return self._disk.lock(path, about)

    def hold(self, path: str) -> Lock:
        """A file beside it."""
        return self._disk.hold(path)

    def submit_sync(self, files: Sequence[File], wake: Any) -> int:
        """Later, or never, as told."""
        with self._lock:
            self._tokens += 1
            token = self._tokens
        if "sync" in self._failing:
            code = self._failing["sync"]
            error = StorageError(code, f"{os.strerror(code)} (told to fail: sync)", files[0].path)
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
        except PyreplogError:  # closed meanwhile: nobody waits any more
            pass

    def poll(self) -> Sequence[SyncDone]:
        """Syncs that ended."""
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
        if kept > synced and random.random() < 0.5:  # the last block was on its way
            file.seek(random.randint(synced, kept - 1))
            file.write(bytes(kept - file.tell()))
    return size - kept


class _Transport(LocalTransport):
    """Loses what it sends over a cut link."""

    __slots__ = ("_cuts",)

    def __init__(self, network: _Network) -> None:
        super().__init__(network)
        self._cuts = network.cuts

    def send(self, peer: Address, message: object) -> bool:
        """Hand it over, or lose it."""
        return True if (self.address, peer) in self._cuts else super().send(peer, message)


class _Network(LocalNetwork):
    """Links between endpoints that can be cut. ``cuts``: (from, to)."""

    __slots__ = ("cuts",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.cuts: dict[tuple[Address | None, Address], None] = {}

    def endpoint(self) -> LocalTransport:
        """A new one."""
        return _Transport(self)

    def addresses(self) -> list[Address]:
        """Where somebody listens."""
        return list(self._endpoints)


class BreakableCluster(Cluster):
    """A :class:`pyreplog.Cluster` with controls: ``kill``, ``pause`` and ``resume``, ``partition`` and ``heal``,
    ``slow_disk``, ``fail_disk``, ``tear``. Nodes are named by their number, from 1.

    Beside them everything of a cluster is there: ``nodes[i].kill()`` and ``restart()``, clients, ``scan``. Faults
    end with :meth:`heal`. ``seed``: where a torn file ends. Controls may be used by any thread.
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
        """As :class:`pyreplog.Cluster`; ``disk`` is taken."""
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
        """It dies as a process does. ``restart`` brings it back."""
        self._node(node).kill()

    def restart(self, node: int) -> None:
        """It starts from its folder, and serves when this returns."""
        self._node(node).restart()

    def pause(self, node: int) -> None:
        """It gets no turn any more, as a process that is stopped or a machine that is moved: it neither answers nor
        knows of it."""
        self._node(node).pause()

    def resume(self, node: int) -> None:
        """It goes on where it was."""
        self._node(node).resume()

    # -- links -------------------------------------------------------------------------------------

    def partition(self, *groups: Sequence[int | str]) -> None:
        """Cut every link between members of different groups, both ways. A member is a node's number or an address
        ("controller", "producer-1"); who is in no group keeps all links, so clients and the controller do unless
        named."""
        sets = [[self._address_of(name) for name in group] for group in groups]
        pairs = [
            (one, other)
            for index, group in enumerate(sets)
            for others in sets[index + 1 :]
            for one in group
            for other in others
        ]
        if not pairs:
            raise ConfigError(
                "partition takes two groups or more, with somebody in them: between these the links are cut"
            )
        for one, other in pairs:
            if one == other:
                raise ConfigError(f"{one} is in two groups: between which of its links should be cut, nobody knows")
        for one, other in pairs:
            self.cut(one, other)
            self.cut(other, one)

    def cut(self, source: int | str, target: int | str) -> None:
        """Nothing arrives from ``source`` at ``target`` any more; the other way stays as it is."""
        link = self._address_of(source), self._address_of(target)
        if link[0] == link[1]:
            raise ConfigError(f"cut takes two: no link leads from {link[0]} to itself")
        self._network.cuts[link] = None

    def heal(self) -> None:
        """All links carry, all disks work, paused nodes go on. Killed ones stay dead, and a node whose disk failed
        is offline until ``restart``."""
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

    def _address_of(self, name: int | str) -> Address:
        if isinstance(name, int):
            self._node(name)
            return f"node-{name}"
        known = dict.fromkeys(
            [*(f"node-{node.node_id}" for node in self.nodes), *self._network.addresses()]
        )  # one may be down
        if name not in known:
            raise ConfigError(f"nobody is called {name!r}{suggestion(name, tuple(known))}")
        return name

    # -- disks -------------------------------------------------------------------------------------

    def slow_disk(self, node: int, seconds: float) -> None:
        """Every sync of its data takes so much longer. ConfigError for what is no number of seconds."""
        if not isinstance(seconds, (int, float)) or not 0 <= seconds <= threading.TIMEOUT_MAX:
            raise ConfigError(f"seconds is {seconds!r}; it must be a number of seconds from 0")
        self._disk_of(node).slow(seconds)

    def fail_disk(self, node: int, *, calls: Sequence[str] = ("write", "sync"), errno: int = errors.EIO) -> None:
        """These calls of its disk ("write", "sync", "read", "create") fail from now on; it goes offline at the
        first of them. But for want of room (ENOSPC) in a write or create: that is refused, and tried again, until
        there is some."""
        self._disk_of(node).fail(calls, errno)

    def tear(self, node: int) -> int:
        """Its power is cut: it dies, and some of what it had not synced is gone; the bytes that are. ``restart``
        brings it back, and it takes no part in deciding before it has caught up."""
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
