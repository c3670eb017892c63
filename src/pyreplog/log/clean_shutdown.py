"""One life of a root: from being opened for writing to its end (``replog.incarnation``), and the marker of a clean
end.

The incarnation is synced before anything else is written. A clean shutdown signs off by naming it in
``.kafka_cleanshutdown``, in a field that Kafka ignores: a marker that names none, or another one, is not ours. The
boot id tells, after an unclean end, whether the machine went down too; it is only that of the running system once
every log was opened, for until then some may still be as an earlier boot left them.

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
"""Adopting: some of the partitions are not ours, which a look at an empty one cannot tell."""
LOGS: Final = "logs"
"""Adopting: logs that we had marked were written to by a broker; the marks are void."""
_VERSION: Final = "0"
_FAREWELL_SIZE_MAX: Final = 64 << 10
_INCARNATION_FIELD: Final = "replogIncarnation"
_STORE_SIZE_FIELD: Final = "replogStoreSize"
_STORE_CRC_FIELD: Final = "replogStoreCrc"


class Incarnation(NamedTuple):
    """``boot_id``: "" where logs of an earlier boot may not have been recovered yet. ``adopting``: what somebody
    else wrote here, as long as not every log was opened since; it outlives the marker that told of it."""

    incarnation_id: str
    boot_id: str
    adopting: str = NOTHING


class CleanShutdownMarker(NamedTuple):
    """A clean shutdown marker. ``broker_epoch`` -1 and ``incarnation_id`` "" where it does not say.

    ``store``: length and CRC-32C of ``replog.db`` as it was left; None where there is none to be believed.
    """

    broker_epoch: int
    incarnation_id: str
    store: tuple[int, int] | None = None


def read_incarnation(disk: Disk, root: str) -> Incarnation | None:
    """The incarnation that wrote to ``root`` last; None where none is known (a new or foreign root, or a damaged
    file)."""
    try:
        values = read_state(disk, join(root, INCARNATION_NAME))
    except CorruptError:
        return None
    if values is None or values.get("version") != _VERSION:
        return None
    return Incarnation(values.get("incarnation_id", ""), values.get("boot_id", ""), values.get("adopting", NOTHING))


def write_incarnation(disk: Disk, root: str, incarnation: Incarnation) -> None:
    """Keep it, durably."""
    values = {"version": _VERSION, "incarnation_id": incarnation.incarnation_id, "boot_id": incarnation.boot_id}
    if incarnation.adopting:
        values["adopting"] = incarnation.adopting
    write_state(disk, join(root, INCARNATION_NAME), values, reserve_in=root)


def read_farewell(disk: Disk, root: str) -> CleanShutdownMarker | None:
    """The clean shutdown marker of ``root``; None where there is none, or something that is no marker: what was
    damaged vouches for nothing. An empty one is that of an old broker."""
    try:
        content = read_whole(disk, join(root, CLEAN_SHUTDOWN_NAME), _FAREWELL_SIZE_MAX)
    except CorruptError:
        return None
    if content is None:
        return None
    if not content:
        return CleanShutdownMarker(-1, "")
    import json  # noqa: PLC0415  (a new log needs it no sooner than when it is closed)

    try:
        values = json.loads(content)
    except (ValueError, RecursionError):  # the latter where it is nested too deeply
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
    """Sign off, durably. The very last thing that is written."""
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
    """Remove the marker, durably, before anything is loaded."""
    path = join(root, CLEAN_SHUTDOWN_NAME)
    if disk.stat(path) is not None:
        disk.remove(path)
        disk.sync_directory(root)
