"""The storage of a node whose files are damaged: it takes no part, or only as an observer."""

from __future__ import annotations

from collections.abc import Iterator

from pyreplog.errors import CorruptError
from pyreplog.quorum.storage import ControlEntry, HardState
from pyreplog.quorum.voters import Identity
from pyreplog.wire import SnapshotId

__all__ = ["DamagedLog", "LostState"]


class LostState:
    """Stands for :class:`~pyreplog.quorum.state_file.StateFile` if that is damaged.

    The state is kept in memory only, which is enough for an observer.
    """

    __slots__ = ("failure", "identity", "in_doubt", "state", "was_voter")

    def __init__(self, identity: Identity, failure: str) -> None:
        self.identity = identity
        self.failure: str | None = failure
        self.state = HardState()
        self.was_voter = True
        self.in_doubt = False

    def write(self, state: HardState) -> None:
        """Keep ``state`` in memory."""
        self.state = state

    def note_voter(self) -> None:
        """Do nothing: it may have been a voter, so it will not join by itself."""

    def note_failure(self, reason: str) -> None:
        """Do nothing: the reason for the damage is known."""

    def close(self) -> None:
        """Do nothing."""


class DamagedLog:
    """Stands for the whole storage if the log is damaged. It has failed from the beginning."""

    def __init__(self, failure: CorruptError) -> None:
        self.failure = failure
        self.start_offset = self.end_offset = self.flushed_offset = self.committed_offset = self.last_epoch = 0
        self.was_voter = True

    @property
    def voter_failure(self) -> str:
        """The damage."""
        return str(self.failure)

    def read_state(self) -> HardState:
        """Return the state of a node that knows nothing."""
        return HardState()

    def latest_snapshot(self) -> SnapshotId | None:
        """Return None."""
        return None

    def control_entries(self) -> Iterator[ControlEntry]:
        """Return nothing."""
        return iter(())

    def close(self) -> None:
        """Do nothing."""
