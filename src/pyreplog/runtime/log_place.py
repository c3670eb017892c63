"""LogPlace: the place of an open log, for the objects that keep files of their own beside it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import NamedTuple, Protocol

from pyreplog.errors import ConfigError
from pyreplog.log import has_root_file, parent_of
from pyreplog.ports import Clock, Disk
from pyreplog.runtime.open_options import ViewOptions

__all__ = ["LogPart", "LogPlace", "close_parts"]


class LogPart(Protocol):
    """An object of an open log, such as a named reader, that closes with the log."""

    def close(self) -> None:
        """Close it. A second call must be harmless."""
        ...


class LogPlace(NamedTuple):
    """The disk and the folder by which a log was opened, and how it is read."""

    disk: Disk
    folder: str
    """The folder that the caller opened: a root, a cluster's or a broker's folder, or a partition's. Absolute, unless
    the caller brought a disk."""
    clock: Clock
    reading: ViewOptions

    def home(self, partition_folder: str, option: str = "offsets=FOLDER") -> str:
        """Return the folder for files beside the log, whose partition lies in ``partition_folder``: the root, or the
        cluster's folder.

        Raises :class:`ConfigError`, which names ``option``, for a partition's folder outside a root.
        """
        if partition_folder.rstrip("/") != self.folder:
            return self.folder
        parent = parent_of(self.folder)
        if not has_root_file(self.disk, parent):
            raise ConfigError(
                f"{self.folder} is the folder of one partition and lies in no log root, so there is no place beside the"
                f" log: give {option}"
            )
        return parent


def close_parts(parts: Iterable[LogPart]) -> None:
    """Close all of ``parts``. One of their errors is raised after all were tried."""
    with ExitStack() as stack:
        for part in list(parts):
            stack.callback(part.close)
