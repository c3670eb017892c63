"""The incarnation of a log root (``replog.incarnation``) and the marker of its clean shutdown
(``.kafka_cleanshutdown``).

An incarnation lasts from one open of the root for writing to its close. Its file is synced before anything else is
written. A clean shutdown names the incarnation in the marker, in a field that Kafka ignores; a marker without that
field or with another incarnation is not from pyreplog. After an unclean end the boot id tells whether the machine
restarted, too. The boot id of the running system is recorded only after every log was opened, because until then
some logs may still be as an earlier boot left them.

Formats: docs/internals/format/state_files.md, clean_shutdown.md. Rules: docs/internals/durability.md, unclean
exclusion.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyreplog.errors import CorruptError
from pyreplog.log.layout import CLEAN_SHUTDOWN_NAME, INCARNATION_NAME, join
from pyreplog.log.snapshot import read_state, read_whole, replace_file, write_state
from pyreplog.ports import Disk

NOTHING: Final = ""
PARTITIONS: Final = "partitions"
"""Value of ``adopting``: another program created some of the partitions. The files of an empty partition do not show
that."""
LOGS: Final = "logs"
"""Value of ``adopting``: a broker wrote to logs that have marks, so the marks are void."""
_VERSION: Final = "0"
_FAREWELL_SIZE_MAX: Final = 64 << 10
_INCARNATION_FIELD: Final = "replogIncarnation"
_STORE_SIZE_FIELD: Final = "replogStoreSize"
_STORE_CRC_FIELD: Final = "replogStoreCrc"


class Incarnation(NamedTuple):
    """The incarnation of a root. ``boot_id``: "" if some logs may not have been recovered since an earlier boot.

    ``adopting``: which files another program wrote here (:data:`NOTHING`, :data:`PARTITIONS`, :data:`LOGS`). It is
    kept until every log was opened once, because the broker's marker is removed earlier.
    """

    incarnation_id: str
    boot_id: str
    adopting: str = NOTHING


class CleanShutdownMarker(NamedTuple):
    """A clean shutdown marker. ``broker_epoch`` is -1 and ``incarnation_id`` "" if the file does not have them.

    ``store``: length and CRC-32C of ``replog.db`` at the shutdown; None if that file must be ignored.
    """

    broker_epoch: int
    incarnation_id: str
    store: tuple[int, int] | None = None


def read_incarnation(disk: Disk, root: str) -> Incarnation | None:
    """Return the incarnation that wrote to ``root`` last, or None for a new or foreign root or a damaged file."""
    try:
        values = read_state(disk, join(root, INCARNATION_NAME))
    except CorruptError:
        return None
    if values is None or values.get("version") != _VERSION:
        return None
    return Incarnation(values.get("incarnation_id", ""), values.get("boot_id", ""), values.get("adopting", NOTHING))


def write_incarnation(disk: Disk, root: str, incarnation: Incarnation) -> None:
    """Replace the incarnation file of ``root``, durably."""
    values = {"version": _VERSION, "incarnation_id": incarnation.incarnation_id, "boot_id": incarnation.boot_id}
    if incarnation.adopting:
        values["adopting"] = incarnation.adopting
    write_state(disk, join(root, INCARNATION_NAME), values, reserve_in=root)


def read_farewell(disk: Disk, root: str) -> CleanShutdownMarker | None:
    """Return the clean shutdown marker of ``root``, or None if it is missing or damaged.

    An empty file counts as the marker of an old broker.
    """
    try:
        content = read_whole(disk, join(root, CLEAN_SHUTDOWN_NAME), _FAREWELL_SIZE_MAX)
    except CorruptError:
        return None
    if content is None:
        return None
    if not content:
        return CleanShutdownMarker(-1, "")
    import json  # noqa: PLC0415  (a new log needs json only at its close)

    try:
        values = json.loads(content)
    except (ValueError, RecursionError):  # RecursionError if it is nested too deeply
        return None
    if not isinstance(values, dict):
        return None
    epoch = values.get("brokerEpoch", -1)
    incarnation_id = values.get(_INCARNATION_FIELD, "")
    size, crc = values.get(_STORE_SIZE_FIELD), values.get(_STORE_CRC_FIELD)
    return CleanShutdownMarker(
        epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else -1,
        incarnation_id if isinstance(incarnation_id, str) else "",
        (size, crc) if isinstance(size, int) and isinstance(crc, int) else None,
    )


def write_farewell(disk: Disk, root: str, farewell: CleanShutdownMarker) -> None:
    """Write the clean shutdown marker durably. It is the last file that a process writes in ``root``."""
    import json  # noqa: PLC0415  (as above)

    values: dict[str, object] = {
        "version": 0,
        "brokerEpoch": farewell.broker_epoch,
        _INCARNATION_FIELD: farewell.incarnation_id,
    }
    if farewell.store is not None:
        values[_STORE_SIZE_FIELD], values[_STORE_CRC_FIELD] = farewell.store
    content = json.dumps(values, separators=(",", ":")).encode()
    replace_file(disk, join(root, CLEAN_SHUTDOWN_NAME), content, reserve_in=root)


def remove_farewell(disk: Disk, root: str) -> None:
    """Remove the marker durably, before any log is opened."""
    path = join(root, CLEAN_SHUTDOWN_NAME)
    if disk.stat(path) is not None:
        disk.remove(path)
        disk.sync_directory(root)
