"""What goes into a :class:`pyreplog.replica.Replica` and what comes out. Plain values, one partition each.

**Who delivers.** The node turns messages, timers and finished syncs into events and carries out the effects of each ``step`` in their order
before it steps the same replica again. Everything a step does to the log itself (append, truncate, read, the mark) is done when ``step``
returns; effects are what needs somebody else.

**Durability is the order of things.** A ``Reply`` is emitted only when what it says is true: whatever waits for a sync is answered in the
step of the ``Synced`` event, never before; and the step that moves the high watermark writes the log's mark (``Log.write_mark``, no
fsync) before it emits the first ``Reply`` that depends on it. So the node may carry out effects one by one, with no rule of its own.

**Duplicates and delays.** Any event that stems from a message may come late, twice or never; the machine compares epochs, tokens and
identities itself. ``source`` and ``correlation_id`` are the node's and are only handed back.

The classes have slots and are not frozen, because they are made several times per batch; nobody changes one.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import Buffer

from pyreplog.compiled import mypyc_attr
from pyreplog.errors import CorruptError, StorageError
from pyreplog.ports import Address, File
from pyreplog.wire import (
    READ_UNCOMMITTED,
    AlterPartitionData,
    AlterPartitionResult,
    DeleteRecordsPartitionResult,
    FetchPartition,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    OffsetForLeaderEpochResult,
    OffsetForLeaderPartition,
    PartitionData,
    PartitionProduceResponse,
)

__all__ = [
    "AlterPartition",
    "AlterPartitionAnswered",
    "BrokenRule",
    "BrokerStatus",
    "BrokersApplied",
    "CancelFetch",
    "ConsumerFetch",
    "Damaged",
    "DeleteRecords",
    "Effect",
    "Event",
    "Fetch",
    "FetchAnswered",
    "FollowerFetch",
    "ListOffsets",
    "Lost",
    "MetadataApplied",
    "OffsetForLeaderEpoch",
    "Offline",
    "Produce",
    "ProduceMany",
    "Reply",
    "Result",
    "Stalled",
    "Stop",
    "StopFetching",
    "Sync",
    "SyncFailed",
    "Synced",
    "Tick",
    "Wake",
]


class BrokerStatus(NamedTuple):
    """A registered broker in the metadata picture. ``eligible``: neither fenced nor in controlled shutdown."""

    epoch: int
    eligible: bool


# -------------------------------------------------------------------------------------------------------- events: the cluster's state


@dataclass(slots=True)
class MetadataApplied:
    """The partition as the metadata has it after the record at ``offset``.

    Given once per changed partition, in the order of the offsets, **never before the picture includes the registration of this very
    incarnation**, and only after all records of one decision (one controller batch) are applied. So an in-sync set that lists this broker
    means this incarnation: an incomplete replica then becomes complete (the mark is fsynced inside the step). A replay (same leader epoch
    and a partition epoch not above the known one) is harmless: it changes nothing about the in-sync set. ``replicas`` includes the adding
    ones. ``leader`` -1: none now. ``brokers`` is every registered broker of the same picture; the mapping is not changed afterwards but
    replaced. ``unclean_epoch``: the latest leader epoch that began with an unclean election, -1 where none did.
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
    """Brokers registered, were fenced, unfenced or left: the new mapping. For replicas that lead; others ignore it."""

    brokers: Mapping[int, BrokerStatus]


@dataclass(slots=True)
class Stop:
    """The partition leaves this node, or the node closes: everybody who waits is answered, nothing more is done. The log is the node's
    again."""


# ---------------------------------------------------------------------------------------------------------- events: what clients ask


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Produce:
    """Append one batch. Answered by ``Reply`` with a :class:`PartitionProduceResponse`; with ``acks`` 0 never, not even on errors.

    ``records`` is handed over (stamped in place where writable). ``trusted``: made by our own encoder in this process, so its CRC and
    records need no check. ``leader_epoch`` -1: the sender does not say. Codes: NOT_LEADER_OR_FOLLOWER, FENCED/UNKNOWN_LEADER_EPOCH,
    INVALID_REQUIRED_ACKS, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR prove that nothing was appended;
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
    """Append these, in this order, each as if it came alone: what may go with one write does, and followers hear of all at once."""

    batches: Sequence[Produce]


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class ConsumerFetch:
    """A reader's fetch: up to the high watermark. Answered by one ``Reply`` with a :class:`PartitionData`: at once when there are
    ``min_bytes`` bytes (or as many as one answer may have, or all up to where a segment ends), an error, a divergence, or ``max_wait_ms``
    <= 0; else when the high watermark brings them, when the role changes, or after ``max_wait_ms`` with what there is.

    ``anywhere``: a follower in the in-sync set serves it, too, up to its own high watermark; above that it says OFFSET_NOT_AVAILABLE, which
    means: ask the leader. Otherwise only the leader does."""

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
    """The reader no longer waits for this answer (another partition of its request answered first)."""

    source: Address
    correlation_id: int


@dataclass(slots=True)
class ListOffsets:
    """Answered at once by ``Reply`` with a :class:`ListOffsetsPartitionResponse`. ``replica_id`` >= 0 sees up to the log end offset."""

    source: Address
    correlation_id: int
    request: ListOffsetsPartition
    replica_id: int = -1
    isolation_level: int = READ_UNCOMMITTED


@dataclass(slots=True)
class DeleteRecords:
    """Delete what lies below ``offset`` (-1: below the high watermark). Answered by ``Reply`` with a :class:`DeleteRecordsPartitionResult`:
    when the log of every live replica starts there, or with REQUEST_TIMED_OUT after ``timeout_ms``; it goes on all the same."""

    source: Address
    correlation_id: int
    offset: int
    timeout_ms: int


@dataclass(slots=True)
class OffsetForLeaderEpoch:
    """Answered at once by ``Reply`` with an :class:`OffsetForLeaderEpochResult`."""

    source: Address
    correlation_id: int
    request: OffsetForLeaderPartition


# ------------------------------------------------------------------------------------------------------ events: between the replicas


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class FollowerFetch:
    """Another replica's fetch, as it stands in its session.

    Answered by ``Reply`` with a :class:`PartitionData` at once when there are records, a divergence or an error, or when this leader's high
    watermark is above the request's; otherwise it is **parked without a deadline** and answered on the next append or high-watermark move.
    A newer fetch of the same replica replaces the parked one, which then gets no answer. Every answer uses the fetch up: the follower
    presents itself anew. While its fetch is parked a replica has everything, up to the append that answers it.
    """

    source: Address
    correlation_id: int
    request: FetchPartition
    replica_id: int
    replica_epoch: int

    def __init__(self, source: Address, correlation_id: int, request: FetchPartition, replica_id: int, replica_epoch: int) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.request = request
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class FetchAnswered:
    """The leader's answer to a ``Fetch`` effect. ``request`` is **the very object** of that effect: an answer to any other is dropped.

    When a fetch session ends without an answer (timeout, disconnect, session error) the node gives no event: it puts the object into the
    next session.
    """

    request: FetchPartition
    data: PartitionData

    def __init__(self, request: FetchPartition, data: PartitionData) -> None:
        self.request = request
        self.data = data


@dataclass(slots=True)
class AlterPartitionAnswered:
    """The end of one ``AlterPartition`` effect, by its token. ``result`` None: no answer, or an error of the whole request; ``error_code``
    then says which (REQUEST_TIMED_OUT where nothing came). The machine sends the same proposal again by itself."""

    token: int
    error_code: int
    result: AlterPartitionResult | None = None


# ---------------------------------------------------------------------------------------------------------- events: this machine


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Synced:
    """The files of a ``Sync`` effect are on stable storage; ``upto`` and ``generation`` are that effect's. One of a former generation only
    frees the slot for the next."""

    upto: int
    generation: int

    def __init__(self, upto: int, generation: int) -> None:
        self.upto = upto
        self.generation = generation


@dataclass(slots=True)
class SyncFailed:
    """The sync failed: data may be lost and is never retried. The log is poisoned, the replica goes offline for good."""

    error: builtins.OSError  # so that mypyc finds it, as below


@dataclass(slots=True)
class RootFailed:
    """Another copy in the same root went offline, and the node leaves the cluster: this replica goes offline with it. Its log is as good as
    it was, and so is the copy at the next start."""

    error: builtins.Exception


@dataclass(slots=True)
class Tick:
    """Time passed: give it at or after the moment of a ``Wake``. Too many are harmless."""


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
    | AlterPartitionAnswered
    | ListOffsets
    | OffsetForLeaderEpoch
    | DeleteRecords
    | CancelFetch
    | SyncFailed
    | RootFailed
    | Stop
)

# -------------------------------------------------------------------------------------------------------------------------- effects

Result = PartitionProduceResponse | PartitionData | ListOffsetsPartitionResponse | OffsetForLeaderEpochResult | DeleteRecordsPartitionResult


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Reply:
    """Answer the request of ``source`` with this number. ``PartitionData.records`` may be a ``LogSlice``: bytes are taken as late as
    possible, and a transport that delays takes them when it sends."""

    source: Address
    correlation_id: int
    result: Result

    def __init__(self, source: Address, correlation_id: int, result: Result) -> None:
        self.source = source
        self.correlation_id = correlation_id
        self.result = result


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Fetch:
    """Fetch this from the node that leads: the newest replaces any earlier one of this replica, sent or not. The node keeps it until it is
    answered (``FetchAnswered`` with this very ``request``), replaced or ended by ``StopFetching``, and repeats it in every new session."""

    leader_id: int
    request: FetchPartition

    def __init__(self, leader_id: int, request: FetchPartition) -> None:
        self.leader_id = leader_id
        self.request = request


@dataclass(slots=True)
class StopFetching:
    """This replica wants nothing from any leader: forget its ``Fetch``. Emitted only where one may be outstanding."""


@dataclass(slots=True)
class AlterPartition:
    """Propose a new in-sync set to the controller. ``token`` comes back in ``AlterPartitionAnswered``; a second effect with the same token
    is the same proposal again. REQUIRES that the node gives an ``AlterPartitionAnswered`` for each, also when no answer comes in time."""

    token: int
    proposal: AlterPartitionData


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Sync:
    """Make ``files`` durable without waiting (``Disk.submit_sync``), then give ``Synced(upto, generation)`` or ``SyncFailed``. At most one
    per replica is outstanding; what is appended meanwhile goes with the next."""

    files: Sequence[File]
    upto: int
    generation: int

    def __init__(self, files: Sequence[File], upto: int, generation: int) -> None:
        self.files = files
        self.upto = upto
        self.generation = generation


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Wake:
    """Give a ``Tick`` at ``at_ns`` of the monotonic clock. Earlier moments replace later ones; a replica asks again after each ``Tick``."""

    at_ns: int

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns


@dataclass(slots=True)
class Offline:
    """The disk refused or a sync failed: this replica answers KAFKA_STORAGE_ERROR from now on. The node takes it out of the cluster (stops
    being a candidate, has the controller move its leaderships); only reopening the log with verification brings it back."""

    error: builtins.Exception


@dataclass(slots=True)
class BrokenRule:
    """A safety rule did not hold although everybody kept to the protocol: ``rule`` is its name in ``docs/internals/replication.md``. The
    node logs it as an error and goes on; tests and simulations fail."""

    rule: str
    about: str


@dataclass(slots=True)
class Lost:
    """Records that readers may have seen are gone from here, offsets ``start`` to ``end`` (exclusive): somebody asked for the unclean
    election of ``leader_epoch``, and its leader does not have them. The node logs it."""

    start: int
    end: int
    leader_epoch: int


@dataclass(slots=True)
class Unexpected:
    """A client's request met ``error``, which nobody had foreseen, before anything was changed: it was refused. The node logs it and goes
    on; simulations fail."""

    error: builtins.Exception


@dataclass(slots=True)
class Stalled:
    """A follower cannot take what its leader sends for now: its disk has no room, or there are too few file descriptors. It asks again and
    again, and goes on by itself. Once for each time that this begins."""

    error: StorageError


@dataclass(slots=True)
class Damaged:
    """What was read of the log is not what was written. The controller is to hear of it. Where ``is_last``, no other replica leads in its
    place: who reads is told where the damage ends, and gets the rest. ``is_news``: the first time that this is so of this place."""

    error: CorruptError
    is_last: bool
    is_news: bool


Effect = Reply | Fetch | Sync | Wake | StopFetching | AlterPartition | Offline | BrokenRule | Lost | Stalled | Unexpected | Damaged
