"""Settings of the metadata quorum: timeouts, sizes, and the rule that lets a node join by itself."""

from __future__ import annotations

from typing import NamedTuple

from pyreplog.ports import Address

__all__ = ["QuorumConfig"]


class QuorumConfig(NamedTuple):
    """Times in ms, sizes in bytes. The defaults are for voters in one process.

    There no timer has to expire, because the transport says at once that a leader is gone. So the
    timeouts are Kafka's long ones, and a stalled disk deposes no leader.
    """

    election_timeout_ms: int = 1000
    """An election that is not decided ends after this, plus a random time of the same length."""
    fetch_timeout_ms: int = 2000
    """A follower that got no answer from its leader for this long asks for an election."""
    request_timeout_ms: int = 2000
    """A request without an answer counts as lost."""
    retry_backoff_ms: int = 20
    """The pause after a refused or lost request."""
    election_backoff_ms: int = 20
    """The first pause after a lost election; each further one may be twice as long."""
    election_backoff_max_ms: int = 1000
    """The longest pause after a lost election."""
    leader_gone_step_ms: int = 5
    """A voter whose leader is gone waits this long, times its place in the voter list."""
    fetch_max_wait_ms: int = 500
    """A leader without news answers a fetch after this."""
    fetch_max_bytes: int = 8 << 20
    """The most bytes of one fetch answer, and of one part of a snapshot."""
    segment_bytes: int = 64 << 20
    """A segment of the metadata log is closed before it would grow beyond this."""
    max_batch_bytes: int = 8 << 20
    """The largest batch of metadata records."""
    snapshot_bytes: int = 20 << 20
    """A snapshot is written when the records since the last one have about this size."""
    snapshot_interval_ms: int = 3_600_000
    """A snapshot is written after this, if there are records since the last one."""
    stored_image_records: int = 5000
    """Metadata of at least this many records is also kept as an image, from which a node starts."""
    add_voter_timeout_ms: int = 10_000
    """An added voter must catch up within this, unless the request says another time."""
    bootstrap: tuple[Address, ...] = ()
    """Addresses that an observer asks while it knows no voter."""
    auto_join: bool = False
    """An observer that was never a voter asks once to become one."""
    auto_replace: bool = False
    """A node with a new folder asks to take the vote from its earlier folder, which is gone."""

    @classmethod
    def across_processes(cls) -> QuorumConfig:
        """Return the settings for voters in processes of their own: silence is noticed within half a second."""
        return cls(
            election_timeout_ms=300,
            fetch_timeout_ms=500,
            request_timeout_ms=500,
            election_backoff_max_ms=300,
            fetch_max_wait_ms=200,
        )
