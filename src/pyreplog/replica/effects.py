"""Effects that a step of a :class:`pyreplog.replica.Replica` returns.

All of them are plain values, and each concerns one partition.

**Delivery.** The node carries out the effects of each ``step`` in order, before it steps the same
replica again. Everything that a step does to the log itself (append, truncate, read, write the
mark) is done when ``step`` returns. Effects are the work that needs another component.

**Durability follows from the order.** The replica emits a ``Reply`` only when its content is true.
A request that waits for a sync is answered in the step of the ``Synced`` event, never before. The
step that moves the high watermark writes the log's mark (``Log.write_mark``, no fsync) before it
emits the first ``Reply`` that depends on it. So the node may carry out the effects one by one and
needs no ordering rule of its own.

The classes have slots and are not frozen, because several are made per batch. No code changes one
after it is made.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass

from pyreplog.errors import CorruptError, StorageError
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.ports import Address, File
from pyreplog.wire import (
    AlterPartitionData,
    DeleteRecordsPartitionResult,
    FetchPartition,
    ListOffsetsPartitionResponse,
    OffsetForLeaderEpochResult,
    PartitionData,
    PartitionProduceResponse,
)

__all__ = [
    "AlterPartition",
    "BrokenRule",
    "Damaged",
    "Effect",
    "Fetch",
    "Lost",
    "Offline",
    "Reply",
    "Result",
    "Stalled",
    "StopFetching",
    "Sync",
    "Unexpected",
    "Wake",
]

Result = (
    PartitionProduceResponse
    | PartitionData
    | ListOffsetsPartitionResponse
    | OffsetForLeaderEpochResult
    | DeleteRecordsPartitionResult
)


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Reply:
    """Answer the request of ``source`` with this correlation id.

    ``PartitionData.records`` may be a ``LogSlice``. Its bytes are read as late as possible: a
    transport that delays a message reads them when it sends.
    """

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
    """Fetch this from the leader's node.

    The newest fetch of a replica replaces any earlier one, sent or not. The node keeps it and
    repeats it in every new session, until it is answered (``FetchAnswered`` with this very
    ``request``), replaced, or ended by ``StopFetching``.
    """

    leader_id: int
    request: FetchPartition

    def __init__(self, leader_id: int, request: FetchPartition) -> None:
        self.leader_id = leader_id
        self.request = request


@dataclass(slots=True)
class StopFetching:
    """Forget this replica's ``Fetch``: it wants nothing from any leader.

    The replica emits this only if a fetch may be outstanding.
    """


@dataclass(slots=True)
class AlterPartition:
    """Propose a new ISR to the controller.

    ``token`` comes back in ``AlterPartitionAnswered``. A second effect with the same token repeats
    the same proposal. REQUIRES that the node gives an ``AlterPartitionAnswered`` for each, also
    when no answer comes in time.
    """

    token: int
    proposal: AlterPartitionData


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Sync:
    """Make ``files`` durable in the background (``Disk.submit_sync``).

    The node then gives ``Synced(upto, generation)`` or ``SyncFailed``. At most one sync per replica
    is outstanding; records appended during it are synced by the next one.
    """

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
    """Give a ``Tick`` at ``at_ns`` of the monotonic clock.

    An earlier time replaces a later one. The replica asks again after each ``Tick``.
    """

    at_ns: int

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns


@dataclass(slots=True)
class Offline:
    """The disk failed, or a sync failed: this replica answers KAFKA_STORAGE_ERROR from now on.

    The node takes it out of the cluster: it stops being a candidate and has the controller move its
    leaderships. The replica comes back only when its log is reopened with verification.
    """

    error: builtins.Exception


@dataclass(slots=True)
class BrokenRule:
    """A safety rule did not hold although all members kept to the protocol.

    ``rule`` is its name in ``docs/internals/replication.md``. The node logs it as an error and goes
    on; tests and simulations fail.
    """

    rule: str
    about: str


@dataclass(slots=True)
class Lost:
    """Records that readers may have seen are lost: offsets ``start`` to ``end`` (exclusive).

    A user asked for the unclean election of ``leader_epoch``, and its leader does not have them.
    The node logs the loss.
    """

    start: int
    end: int
    leader_epoch: int


@dataclass(slots=True)
class Unexpected:
    """A client's request failed with ``error``, which the code does not expect.

    Nothing was changed, and the request was refused. The node logs the error and goes on;
    simulations fail.
    """

    error: builtins.Exception


@dataclass(slots=True)
class Stalled:
    """A follower cannot store the leader's records for now.

    Its disk is full, or the process has too few file descriptors. The follower keeps retrying, and
    recovers by itself. This effect is emitted once each time that the follower stalls.
    """

    error: StorageError


@dataclass(slots=True)
class Damaged:
    """A read of the log found damage; the node must report it to the controller.

    The bytes that were read differ from the written ones. ``is_last``: no other replica leads
    instead. Readers are then told where the damage ends, and read the rest. ``is_news``: this is
    the first such report of this place.
    """

    error: CorruptError
    is_last: bool
    is_news: bool


Effect = (
    Reply
    | Fetch
    | Sync
    | Wake
    | StopFetching
    | AlterPartition
    | Offline
    | BrokenRule
    | Lost
    | Stalled
    | Unexpected
    | Damaged
)
