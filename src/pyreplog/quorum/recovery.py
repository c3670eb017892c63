"""Recovery of a quorum whose majority is lost for good: one node becomes its only voter.

The node's metadata log is not changed before a snapshot of everything in it, and behind its end, is
durable. So a crash at any call leaves the old log or the new snapshot. The next opening lets the
log begin at the end of the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyreplog.errors import CorruptError
from pyreplog.ports import Clock, Disk
from pyreplog.quorum.config import QuorumConfig
from pyreplog.quorum.raft_log import RaftLog, make_log
from pyreplog.quorum.snapshots import snapshot_name, write_snapshot
from pyreplog.quorum.state_file import STATE_NAME, VOUCHER_NAME, StateFile
from pyreplog.quorum.storage import HardState
from pyreplog.quorum.voter_records import kraft_version_entry, voters_entry
from pyreplog.quorum.voters import Identity, Voter, VoterSet
from pyreplog.wire import SnapshotId

__all__ = ["make_only_voter"]


def make_only_voter(
    disk: Disk,
    folder: str,
    identity: Identity,
    voter: Voter,
    snapshot_id: SnapshotId,
    records: Iterable[bytes],
    clock: Clock,
    config: QuorumConfig,
) -> None:
    """Make the node of the existing ``folder`` the only voter, with the metadata ``records``.

    ``voter``: the node as a voter. REQUIRES that ``snapshot_id`` is behind the end of every metadata log of the
    cluster, in offset and epoch, and that no process has the folder open. Durable when this returns.
    """
    _vote_no_more_below(disk, folder, identity, snapshot_id.epoch)
    control = [kraft_version_entry(), voters_entry(VoterSet([voter]))]
    write_snapshot(disk, folder, snapshot_id, control, records, timestamp_ms=clock.wall_ms())
    try:
        RaftLog.open(disk, folder, identity, config, clock).close()
    except CorruptError:
        # The log is damaged. The snapshot has all that could be read of it.
        kept = (snapshot_name(snapshot_id), STATE_NAME, VOUCHER_NAME)
        for name in disk.list(folder):
            if name not in kept:
                disk.remove(f"{folder}/{name}")
        make_log(disk, folder, config, clock)
        disk.sync_directory(folder)
        RaftLog.open(disk, folder, identity, config, clock).close()


def _vote_no_more_below(disk: Disk, folder: str, identity: Identity, epoch: int) -> None:
    """Let the node begin in ``epoch``, whatever became of its vote before."""
    try:
        state = StateFile.open(disk, folder, identity)
        if state.failure is not None:
            state.close()
            raise CorruptError("the vote counts no more", file=folder)
    except CorruptError:
        state = StateFile.create(disk, folder, identity, was_voter=True)
    try:
        state.write(HardState(epoch))
        if not state.was_voter:
            state.note_voter()
    finally:
        state.close()
    disk.sync_directory(folder)
