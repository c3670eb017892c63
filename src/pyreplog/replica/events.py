"""Events that a :class:`pyreplog.replica.Replica` takes.

All of them are plain values, and each concerns one partition. The node turns messages, timers and
finished syncs into events. :mod:`pyreplog.replica.effects` has the effects that a step returns.

**Duplicates and delays.** An event that stems from a message may come late, twice or never. The
state machine compares epochs, tokens and identities itself. ``source`` and ``correlation_id``
belong to the node; the replica only hands them back.

The classes have slots and are not frozen, because several are made per batch. No code changes one
after it is made.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from typing_extensions import Buffer

from pyreplog.config import LogConfig
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.ports import Address
from pyreplog.wire import (
    READ_UNCOMMITTED,
    AlterPartitionResult,
    FetchPartition,
    ListOffsetsPartition,
    OffsetForLeaderPartition,
    PartitionData,
)

__all__ = [
    "DISTANT_PAST_NS",
    "FAR_FUTURE_NS",
    "AlterPartitionAnswered",
    "BrokerStatus",
    "BrokersApplied",
    "CancelFetch",
    "ConfigApplied",
    "ConsumerFetch",
    "DeleteRecords",
    "Event",
    "FetchAnswered",
    "FollowerFetch",
    "ListOffsets",
    "MetadataApplied",
    "OffsetForLeaderEpoch",
    "Produce",
    "ProduceMany",
    "Stop",
    "SyncFailed",
    "Synced",
    "Tick",
]

FAR_FUTURE_NS: Final = 1 << 62
"""A time that never comes (ns)."""
DISTANT_PAST_NS: Final = -(1 << 62)
"""A time before all others (ns)."""


class BrokerStatus(NamedTuple):
    """A registered broker in the metadata image.

    ``eligible``: the broker is neither fenced nor in controlled shutdown.
    """

    epoch: int
    eligible: bool


# ---------------------------------------------------------------------- events: the cluster's state


@dataclass(slots=True)
class MetadataApplied:
    """The partition's metadata after the record at ``offset``.

    The node gives one such event per changed partition, in the order of the offsets. It gives none
    **before the image includes the registration of this very incarnation**, and only gives it after
    all records of one decision (one controller batch) are applied. So an ISR that lists this broker
    means this incarnation: an incomplete replica then becomes complete (the mark is fsynced inside
    the step).

    A replay (same leader epoch, and a partition epoch not above the known one) is harmless: it
    changes nothing about the ISR. ``replicas`` includes the adding replicas. ``leader`` -1: there
    is no leader now. ``brokers`` is every registered broker of the same image; the mapping is
    replaced and never changed. ``unclean_epoch`` is the latest leader epoch that began with an
    unclean election, or -1 if none did.
    """

    offset: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    brokers: Mapping[int, BrokerStatus]
    leader_recovery_state: int = 0
    unclean_epoch: int = -1


@dataclass(slots=True)
class BrokersApplied:
    """The set of brokers changed: some registered, were fenced, were unfenced or left.

    ``brokers`` is the new mapping. Only a replica that leads uses it; others ignore the event.
    """

    brokers: Mapping[int, BrokerStatus]


@dataclass(slots=True)
class ConfigApplied:
    """The settings in force of the partition's topic, before the metadata that follows them.

    Settings of another durability are ignored: it never changes.
    """

    config: LogConfig


@dataclass(slots=True)
class Stop:
    """The partition leaves this node, or the node closes.

    The replica answers all waiting requests and does nothing more. The log belongs to the node
    again.
    """


# ------------------------------------------------------------------------- events: what clients ask


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Produce:
    """Append one batch.

    The answer is a ``Reply`` with a :class:`PartitionProduceResponse`. With ``acks`` 0 there is no
    answer, not even for an error. The caller hands ``records`` over; the leader stamps the batch in
    place if the buffer is writable. ``trusted``: our own encoder made the batch in this process, so
    its CRC and records need no check. ``leader_epoch`` -1: the sender does not say.

    NOT_LEADER_OR_FOLLOWER, FENCED/UNKNOWN_LEADER_EPOCH, INVALID_REQUIRED_ACKS, NOT_ENOUGH_REPLICAS,
    MESSAGE_TOO_LARGE, CORRUPT_MESSAGE and KAFKA_STORAGE_ERROR prove that nothing was appended.
    REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND prove nothing: the outcome is unknown.
    """

    source: Address
    correlation_id: int
    acks: int
    records: Buffer
    timeout_ms: int
    leader_epoch: int = -1
    trusted: bool = False

    def __init__(
        self,
        source: Address,
        correlation_id: int,
        acks: int,
        records: Buffer,
        timeout_ms: int,
        leader_epoch: int = -1,
        trusted: bool = False,
    ) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.acks = acks
        self.records = records
        self.timeout_ms = timeout_ms
        self.leader_epoch = leader_epoch
        self.trusted = trusted


@dataclass(slots=True)
class ProduceMany:
    """Append several batches in this order, each as if it came alone.

    Batches that can share one write do. The followers are notified once, after all of them.
    """

    batches: Sequence[Produce]


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class ConsumerFetch:
    """A reader's fetch of records below the high watermark.

    It is answered by one ``Reply`` with a :class:`PartitionData`. The answer comes at once if there
    are ``min_bytes`` bytes (or as many as one answer may have, or all up to the end of a segment),
    an error, a divergence, or ``max_wait_ms`` <= 0. Otherwise it comes when the high watermark
    moves far enough, when the role changes, or after ``max_wait_ms`` with the records available
    then.

    ``anywhere``: a follower in the ISR may serve the fetch too, up to its own high watermark. Above
    that it answers OFFSET_NOT_AVAILABLE, which means: ask the leader. Without ``anywhere`` only the
    leader serves the fetch.
    """

    source: Address
    correlation_id: int
    request: FetchPartition
    max_wait_ms: int
    min_bytes: int = 1
    isolation_level: int = READ_UNCOMMITTED
    anywhere: bool = False

    def __init__(
        self,
        source: Address,
        correlation_id: int,
        request: FetchPartition,
        max_wait_ms: int,
        min_bytes: int = 1,
        isolation_level: int = READ_UNCOMMITTED,
        anywhere: bool = False,
    ) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.request = request
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.isolation_level = isolation_level
        self.anywhere = anywhere


@dataclass(slots=True)
class CancelFetch:
    """The reader no longer waits for this answer: another partition of its request answered first."""

    source: Address
    correlation_id: int


@dataclass(slots=True)
class ListOffsets:
    """Look up an offset by timestamp.

    The replica answers at once by ``Reply`` with a :class:`ListOffsetsPartitionResponse`. A caller
    with ``replica_id`` >= 0 sees offsets up to the log end offset.
    """

    source: Address
    correlation_id: int
    request: ListOffsetsPartition
    replica_id: int = -1
    isolation_level: int = READ_UNCOMMITTED


@dataclass(slots=True)
class DeleteRecords:
    """Delete the records below ``offset`` (-1: below the high watermark).

    The replica answers by ``Reply`` with a :class:`DeleteRecordsPartitionResult` when the log of
    every live replica starts there. After ``timeout_ms`` it answers REQUEST_TIMED_OUT, and the
    deletion goes on.
    """

    source: Address
    correlation_id: int
    offset: int
    timeout_ms: int


@dataclass(slots=True)
class OffsetForLeaderEpoch:
    """Look up the end offset of a leader epoch.

    The replica answers at once by ``Reply`` with an :class:`OffsetForLeaderEpochResult`.
    """

    source: Address
    correlation_id: int
    request: OffsetForLeaderPartition


# --------------------------------------------------------------------- events: between the replicas


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class FollowerFetch:
    """Another replica's fetch, as it stands in its fetch session.

    The leader answers by ``Reply`` with a :class:`PartitionData` at once if there are records, a
    divergence or an error, or if its high watermark is above the request's. Otherwise the fetch is
    **parked without a deadline** and answered on the next append or high-watermark move.

    A newer fetch of the same replica replaces the parked one, which then gets no answer. Every
    answer uses up the fetch: the follower must fetch again. While its fetch is parked, a replica
    has every record up to the append that answers it.
    """

    source: Address
    correlation_id: int
    request: FetchPartition
    replica_id: int
    replica_epoch: int

    def __init__(
        self, source: Address, correlation_id: int, request: FetchPartition, replica_id: int, replica_epoch: int
    ) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.request = request
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class FetchAnswered:
    """The leader's answer to a ``Fetch`` effect.

    ``request`` is **the very object** of that effect: an answer to any other request is dropped.
    When a fetch session ends without an answer (timeout, disconnect, session error), the node gives
    no event. It puts the object into the next session.
    """

    request: FetchPartition
    data: PartitionData

    def __init__(self, request: FetchPartition, data: PartitionData) -> None:
        self.request = request
        self.data = data


@dataclass(slots=True)
class AlterPartitionAnswered:
    """The end of one ``AlterPartition`` effect, matched by its token.

    ``result`` None: no answer came, or the whole request failed; ``error_code`` then has the error
    (REQUEST_TIMED_OUT if no answer came). The replica repeats the proposal by itself.
    """

    token: int
    error_code: int
    result: AlterPartitionResult | None = None


# ----------------------------------------------------------------------------- events: this machine


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Synced:
    """The files of a ``Sync`` effect are on stable storage.

    ``upto`` and ``generation`` are copied from that effect. An event of an older generation only
    allows the next sync to start.
    """

    upto: int
    generation: int

    def __init__(self, upto: int, generation: int) -> None:
        self.upto = upto
        self.generation = generation


@dataclass(slots=True)
class SyncFailed:
    """The sync failed: data may be lost, and the sync is never retried.

    The log is poisoned, and the replica stays offline for good.
    """

    error: builtins.OSError  # so that mypyc finds it, as below


@dataclass(slots=True)
class RootFailed:
    """Another copy in the same root went offline, and the node leaves the cluster.

    This replica goes offline with it. Its log is undamaged and can be used after the next start.
    """

    error: builtins.Exception


@dataclass(slots=True)
class Tick:
    """Time passed.

    The node gives it at or after the time of a ``Wake``. Extra ticks are harmless.
    """


Event = (
    Produce
    | ProduceMany
    | FollowerFetch
    | FetchAnswered
    | ConsumerFetch
    | Synced
    | Tick
    | MetadataApplied
    | BrokersApplied
    | ConfigApplied
    | AlterPartitionAnswered
    | ListOffsets
    | OffsetForLeaderEpoch
    | DeleteRecords
    | CancelFetch
    | SyncFailed
    | RootFailed
    | Stop
)
