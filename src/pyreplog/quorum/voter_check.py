"""Whether a node's metadata folder is that of a whole voter, found without a lock or a write."""

from __future__ import annotations

from pyreplog.errors import CorruptError
from pyreplog.log import find_damage, read_mark
from pyreplog.ports import Disk
from pyreplog.quorum.snapshots import SnapshotReader, list_snapshots
from pyreplog.quorum.state_file import find_state_damage
from pyreplog.quorum.voters import Identity
from pyreplog.wire import METADATA_TOPIC_ID

__all__ = ["find_voter_damage"]


def find_voter_damage(disk: Disk, folder: str, identity: Identity) -> str | None:
    """Return the reason for which the node in ``folder`` (``.../__cluster_metadata-0``) would neither vote nor count
    when it is opened; None if it is whole.

    The rules are those of :meth:`RaftNode.open <pyreplog.quorum.raft.RaftNode.open>`, so a kill or a power cut at any
    call leaves a whole voter. Beside the node that writes the folder a damage may be reported that is none. Raises
    :class:`StorageError`.
    """
    return (
        find_state_damage(disk, folder, identity)
        or find_damage(disk, folder, METADATA_TOPIC_ID, 0)
        or _find_missing_snapshot(disk, folder)
    )


def _find_missing_snapshot(disk: Disk, folder: str) -> str | None:
    """Return the reason if no whole snapshot reaches the log's beginning; None if there is one, or needs to be none."""
    mark = read_mark(disk, folder)
    start = 0 if mark is None else mark.start_offset
    if not start:
        return None
    for snapshot_id in reversed(list_snapshots(disk, folder)):
        if snapshot_id.end_offset < start:
            break
        reader = SnapshotReader(disk, folder, snapshot_id)
        try:
            reader.control()
        except CorruptError:
            continue  # an older one may do
        finally:
            reader.close()
        return None
    return f"the metadata log begins at {start}, and no whole snapshot reaches that offset"
