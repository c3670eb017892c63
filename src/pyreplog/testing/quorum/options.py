"""The options of a simulated quorum: its voters, its load and its faults. The seed draws them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from random import Random

from pyreplog.quorum import QuorumConfig
from pyreplog.testing.network import NetworkOptions

__all__ = ["QuorumFaultRates", "QuorumWorldOptions"]


@dataclass(frozen=True, slots=True)
class QuorumFaultRates:
    """The weights of the faults of a simulated quorum, and the mean time between two of them.

    ``hits_leader`` is the probability that a fault of one node hits the leader. A fault that would destroy the
    disks of a majority of voters is skipped.
    """

    interval_ms: int = 300
    lasting_ms: int = 800
    hits_leader: float = 0.4
    kill: int = 3
    power_loss: int = 3
    clean_restart: int = 1
    wipe: int = 1
    kill_majority: int = 1
    power_loss_of_all: int = 1
    cut: int = 3
    isolate: int = 2
    partition: int = 2
    slow_link: int = 1
    pause: int = 1
    io_error: int = 1
    disk_full: int = 1
    resign: int = 1
    voter_change: int = 2
    snapshot: int = 3

    @classmethod
    def none(cls) -> QuorumFaultRates:
        """Return rates without any fault."""
        return cls(**dict.fromkeys(cls.kinds(), 0))

    @classmethod
    def kinds(cls) -> list[str]:
        """Return the names of the faults."""
        return [one.name for one in dataclasses.fields(cls) if isinstance(one.default, int) and one.name[-3:] != "_ms"]


@dataclass(frozen=True, slots=True)
class QuorumWorldOptions:
    """All options that a seed draws. Times are in ms of simulated time."""

    voters: int = 3
    observers: int = 1
    append_interval_ms: int = 15
    records_max: int = 3
    value_size_max: int = 60
    read_share: float = 0.2
    """Share of the operations that are proofs of leadership instead of appends."""
    safety_ms: int = 6000
    liveness_ms: int = 60_000
    told_of_kills: float = 0.7
    """Probability that the other nodes learn of a kill at once (the connections close)."""
    through_bytes: bool = False
    """Send every message through the byte codec."""
    network: NetworkOptions = field(default_factory=NetworkOptions)
    faults: QuorumFaultRates = field(default_factory=QuorumFaultRates)
    config: QuorumConfig = field(default_factory=QuorumConfig)

    @classmethod
    def drawn(cls, random: Random) -> QuorumWorldOptions:
        """Draw options from ``random``. Each run gets another mix of settings and faults (swarm testing)."""
        voters = random.choice([1, 3, 3, 3, 5, 5])
        return cls(
            voters=voters,
            observers=random.choice([0, 1, 2]),
            append_interval_ms=random.choice([3, 8, 20]),
            records_max=random.choice([1, 3, 8]),
            value_size_max=random.choice([10, 60, 400]),
            safety_ms=random.choice([5000, 8000, 12_000]),
            told_of_kills=random.choice([0.0, 0.7, 1.0]),
            through_bytes=random.random() < 0.25,
            network=NetworkOptions(
                delay_max_ns=random.choice([200_000, 2_000_000, 20_000_000]),
                loss=random.choice([0.0, 0.0, 0.01, 0.05]),
                duplicate=random.choice([0.0, 0.0, 0.05]),
                reorder=random.choice([0.0, 0.0, 0.1]),
            ),
            faults=_faults(random),
            config=_config(random),
        )


def _faults(random: Random) -> QuorumFaultRates:
    weights = {kind: random.choice([0, 1, 1, 3]) for kind in QuorumFaultRates.kinds()}
    return QuorumFaultRates(
        interval_ms=random.choice([40, 100, 300, 800]),
        lasting_ms=random.choice([100, 400, 1500]),
        hits_leader=random.choice([0.1, 0.4, 0.8]),
        **weights,
    )


def _config(random: Random) -> QuorumConfig:
    fetch_timeout_ms = random.choice([200, 500, 2000])
    config = QuorumConfig(
        election_timeout_ms=random.choice([100, 300, 1000]),
        fetch_timeout_ms=fetch_timeout_ms,
        request_timeout_ms=random.choice([fetch_timeout_ms // 2, fetch_timeout_ms]),
        fetch_max_wait_ms=random.choice([20, fetch_timeout_ms // 4]),
        fetch_max_bytes=random.choice([300, 4000, 8 << 20]),
        segment_bytes=random.choice([4096, 64 << 20]),
        auto_join=random.random() < 0.2,
    )
    # A node with an empty folder that takes the vote from its earlier one must join by itself, too.
    return config._replace(auto_join=True, auto_replace=True) if random.random() < 0.3 else config
