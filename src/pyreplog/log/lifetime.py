"""How the last writer of a log root stopped, and the incarnation that writes there now.

The order of the writes is a rule of its own. :meth:`RootLifetime.begin` makes the new incarnation
durable before anything else is written. :meth:`RootLifetime.remove_marker` comes before any log is
opened. :meth:`RootLifetime.logs_opened` follows when every log is open. The clean shutdown marker
is the last write of a lifetime. Rules: docs/internals/durability.md, unclean exclusion.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from pyreplog.errors import CorruptError, StorageError
from pyreplog.log.clean_shutdown import (
    LOGS,
    NOTHING,
    PARTITIONS,
    CleanShutdownMarker,
    Incarnation,
    read_farewell,
    read_incarnation,
    remove_farewell,
    write_farewell,
    write_incarnation,
)
from pyreplog.log.identity import random_uuid
from pyreplog.log.layout import METADATA_TOPIC, parse_directory_name
from pyreplog.log.summary import StoreName
from pyreplog.ports import Disk, RandomBytes


def _is_of_partition(name: str) -> bool:
    """Return whether the folder ``name`` is of a partition of this root. The quorum's own log is not."""
    parsed = parse_directory_name(name)
    return parsed is not None and parsed.topic_partition.topic != METADATA_TOPIC


class RootLifetime:
    """One lifetime of the root at ``path``: from its opening for writing to its close.

    REQUIRES the root's lock. ``is_new``: the folder did not exist before.
    """

    def __init__(self, disk: Disk, path: str, *, is_new: bool) -> None:
        self._disk = disk
        self._path = path
        self._boot_id = ""
        self._written = Incarnation("", "")
        before = read_incarnation(disk, path)
        marker = read_farewell(disk, path)
        self._boot_id = boot_id = disk.boot_id(path)
        self._is_new = is_new
        #: Which files other programs wrote here, as in :class:`Incarnation`. It is kept until every
        #: log was opened, even if the marker is gone.
        self.adopting = self._find_adopted(before, marker)
        #: Whether the last writer stopped cleanly. A marker that names an earlier incarnation is
        #: left from a start that ended before it removed the marker.
        self.clean = marker is not None and (before is None or marker.incarnation_id == before.incarnation_id)
        #: Whether the machine has been up since the last writer ended, so that its page cache
        #: survived. None: the system gives no boot id.
        self.same_boot = (before is not None and before.boot_id == boot_id) if boot_id else None
        #: The broker epoch in the clean shutdown marker; -1 if there was no marker.
        self.previous_broker_epoch = -1 if marker is None else marker.broker_epoch
        #: The incarnation that stopped cleanly, and the store of summaries that it left.
        self.previous_id = "" if marker is None else marker.incarnation_id
        self.store = None if marker is None or marker.store is None or not self.clean else StoreName(*marker.store)
        #: The id of this lifetime; "" until :meth:`begin`.
        self.incarnation_id = ""

    def _find_adopted(self, before: Incarnation | None, marker: CleanShutdownMarker | None) -> str:
        if before is not None and before.adopting == LOGS:
            return LOGS
        if before is not None and marker is not None and marker.incarnation_id == "":
            return LOGS  # the marker is a broker's, which wrote here after us
        if before is not None and before.adopting == NOTHING:
            return NOTHING
        if not self._is_new and any(map(_is_of_partition, self._disk.list(self._path))):
            return PARTITIONS
        return NOTHING

    def begin(self, random: RandomBytes) -> None:
        """Write a new incarnation, durably. It names the boot only if no log can be older than it."""
        self.incarnation_id = random_uuid(random)
        # A new folder holds nothing of an earlier boot.
        survived = self.clean or self.same_boot or self._is_new
        self._written = Incarnation(self.incarnation_id, self._boot_id if survived else "", self.adopting)
        write_incarnation(self._disk, self._path, self._written)

    def remove_marker(self) -> None:
        """Remove the clean shutdown marker, durably, before any log is opened."""
        remove_farewell(self._disk, self._path)

    def logs_opened(self, failures: Iterable[Exception]) -> None:
        """Record that every log was opened, or found damaged; ``failures`` are the errors.

        A log that could not be read may still be as an earlier boot left it.
        """
        survived = self._written.boot_id or all(isinstance(error, CorruptError) for error in failures)
        known = Incarnation(self.incarnation_id, self._boot_id if survived else "")
        if known != self._written:
            write_incarnation(self._disk, self._path, known)

    def restore_marker(self) -> None:
        """Write the clean shutdown marker back, because opening failed before any log was changed.

        Without it, a power loss before the next start would make every ``os`` log count as
        incomplete. If the marker cannot be written, the next opening only checks more.
        """
        with suppress(StorageError):
            self._write_marker(CleanShutdownMarker(self.previous_broker_epoch, self.incarnation_id))

    def sign_off(self, broker_epoch: int, store: StoreName | None) -> None:
        """Write the clean shutdown marker, durably. REQUIRES that all logs are closed cleanly."""
        self._write_marker(CleanShutdownMarker(broker_epoch, self.incarnation_id, store))

    def _write_marker(self, marker: CleanShutdownMarker) -> None:
        write_farewell(self._disk, self._path, marker)
