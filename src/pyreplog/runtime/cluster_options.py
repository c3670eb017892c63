"""ClusterOptions: the arguments of ``Cluster(...)``, checked. All four cluster classes share the names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from pyreplog.config import NodeConfig, Permissions, check_callable, check_flag
from pyreplog.errors import ConfigError
from pyreplog.ports import Clock, Disk
from pyreplog.runtime.folder_opening import check_clock, check_progress, check_together, folder_of
from pyreplog.runtime.locking import LockWait, cluster_wait
from pyreplog.runtime.node_racks import RacksAsked, checked_racks
from pyreplog.runtime.node_roles import NodeRole, RolesAsked, checked_roles
from pyreplog.system import SystemClock, SystemDisk, anchored
from pyreplog.values import RecoveryProgress

if TYPE_CHECKING:
    from pyreplog.runtime.node_folders import NodesAsked

__all__ = [
    "ClusterOptions",
    "ClusterReaderSettings",
    "ClusterSettings",
    "ClusterWriterSettings",
    "OwnProcessSettings",
    "check_mode",
    "check_setting_names",
    "reader_place",
    "refuse_writer_settings",
]


class ClusterReaderSettings(TypedDict, total=False):
    """The settings of ``Cluster(path, mode="r")``."""

    disk: Callable[[str], Disk] | None
    clock: Clock | None
    permissions: Permissions


class ClusterWriterSettings(TypedDict, total=False):
    """The settings that only the process that runs the cluster has."""

    roles: RolesAsked
    racks: RacksAsked
    config: NodeConfig | Mapping[str, object] | None
    progress: Callable[[RecoveryProgress], None] | None
    lock_timeout: float | None


class ClusterSettings(ClusterReaderSettings, ClusterWriterSettings, total=False):
    """The settings of ``aio.Cluster(path)``."""


class OwnProcessSettings(ClusterSettings, total=False):
    """The settings of ``Cluster(path)``."""

    own_process: bool


_WRITER_DEFAULTS: Final[Mapping[str, object]] = {
    "nodes": None,
    "roles": None,
    "racks": None,
    "config": None,
    "own_process": False,
    "progress": None,
    "lock_timeout": 0,
}


class ClusterOptions(NamedTuple):
    """The arguments of one cluster in this process."""

    path: str
    """The folder: absolute, unless the caller brought a disk."""
    nodes: NodesAsked
    roles: Mapping[int, NodeRole] | None
    racks: tuple[str | None, ...] | None
    config: NodeConfig
    disk: Callable[[str], Disk] | None
    """Makes a disk by its name; None: the machine's own disk."""
    clock: Clock
    own_process: bool
    progress: Callable[[RecoveryProgress], None] | None
    permissions: Permissions
    wait: LockWait

    @classmethod
    def checked(cls, path: str | os.PathLike[str], nodes: NodesAsked, settings: OwnProcessSettings) -> ClusterOptions:
        """Return the options with their defaults. Raises ConfigError or TypeError for a wrong one;
        ``nodes`` is checked by :class:`NodeFolders`.
        """
        folder = folder_of(path)
        config = settings.get("config")
        checked = NodeConfig.from_mapping({} if config is None else config)
        disk, clock, permissions = _check_ports(settings)
        progress, own_process = settings.get("progress"), settings.get("own_process", False)
        check_progress(progress)
        check_flag("own_process", own_process)
        check_together(permissions, disk)
        return cls(
            anchored(folder) if disk is None else folder,
            nodes,
            checked_roles(settings.get("roles")),
            checked_racks(settings.get("racks")),
            checked,
            disk,
            SystemClock() if clock is None else clock,
            own_process,
            progress,
            permissions,
            cluster_wait(folder, settings.get("lock_timeout", 0)),
        )


def _check_ports(settings: ClusterReaderSettings) -> tuple[Callable[[str], Disk] | None, Clock | None, Permissions]:
    """Return ``disk``, ``clock`` and ``permissions``. Raises ConfigError for a wrong disk or clock."""
    disk, clock = settings.get("disk"), settings.get("clock")
    check_callable(
        "disk", disk, "a function that makes a Disk (see pyreplog.ports) by its name, or None for the machine's own"
    )
    check_clock(clock)
    return disk, clock, settings.get("permissions", "owner")


def reader_place(path: str | os.PathLike[str], settings: ClusterReaderSettings) -> tuple[str, Disk]:
    """Return the folder and the disk for ``Cluster(path, mode="r")``, checked."""
    folder = folder_of(path)
    disk, _, permissions = _check_ports(settings)
    check_together(permissions, disk)
    if disk is None:
        return anchored(folder), SystemDisk(permissions=permissions)
    return folder, disk("controller")


def check_mode(mode: object) -> None:
    """Raise ConfigError for a ``mode`` other than "a"; "r" makes an object of another class."""
    if mode != "a":
        raise ConfigError(
            f"mode is {mode!r}; it must be 'a' (run the cluster) or 'r' (read it beside the process that runs it)"
        )


def check_setting_names(settings: Mapping[str, object], kind: type[TypedDict]) -> None:  # type: ignore[valid-type]
    """Raise TypeError for a setting that ``kind`` does not have."""
    for name in settings:
        if name not in kind.__annotations__:
            raise TypeError(f"Cluster() got an unexpected keyword argument {name!r}")


def refuse_writer_settings(settings: Mapping[str, object]) -> None:
    """Raise ConfigError if a caller gave a reader one of the writer's settings, and TypeError for any other name."""
    for name, value in settings.items():
        if name not in _WRITER_DEFAULTS:
            raise TypeError(f"Cluster() got an unexpected keyword argument {name!r}")
        if value != _WRITER_DEFAULTS[name] or (value is None) != (_WRITER_DEFAULTS[name] is None):
            raise ConfigError(f"{name} belongs to mode='a': a reader takes the cluster as it is")
