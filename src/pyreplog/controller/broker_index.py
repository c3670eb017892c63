"""The partitions of each broker: which it leads, which it is a member of, which it holds.

With this index a decision about one broker walks only the partitions of that broker. A set of
partitions is kept as bits, 512 partition numbers to an integer, because a cluster may have a
million partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from pyreplog.controller.partition_table import CHUNK, PartitionTable
from pyreplog.wire import NO_LEADER

__all__ = ["BrokerIndex", "PartitionSet"]

_Key = tuple[str, int]
"""(topic id, partition number)."""


class _Replicas(Protocol):
    """The replicas of one partition: a ``PartitionImage``."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def elr(self) -> tuple[int, ...]: ...
    @property
    def leader(self) -> int: ...


_R = TypeVar("_R", bound=_Replicas)


class PartitionSet:
    """A set of partitions."""

    __slots__ = ("_bits", "_is_shared")

    def __init__(self) -> None:
        self._bits: dict[tuple[str, int], int] = {}
        """(Topic id, number // 512) -> one bit for each partition number of that range."""
        self._is_shared = False
        """Whether another set may hold the same dict."""

    def __bool__(self) -> bool:
        return bool(self._bits)

    def __contains__(self, key: _Key) -> bool:
        return self._bits.get((key[0], key[1] // CHUNK), 0) >> key[1] % CHUNK & 1 == 1

    def add(self, key: _Key) -> None:
        """Add a partition. It may be there already."""
        self.add_bits((key[0], key[1] // CHUNK), 1 << key[1] % CHUNK)

    def add_bits(self, chunk: tuple[str, int], bits: int) -> None:
        """Add the partitions of a chunk whose bits are set."""
        self._own()
        self._bits[chunk] = self._bits.get(chunk, 0) | bits

    def copy(self) -> PartitionSet:
        """Return a set of the same partitions, which changes independently."""
        other = PartitionSet()
        other._bits = self._bits
        other._is_shared = self._is_shared = True
        return other

    def _own(self) -> None:
        if self._is_shared:
            self._bits = dict(self._bits)
            self._is_shared = False

    def discard(self, key: _Key) -> None:
        """Remove a partition, if it is there."""
        self._own()
        chunk = (key[0], key[1] // CHUNK)
        bits = self._bits.get(chunk, 0) & ~(1 << key[1] % CHUNK)
        if bits:
            self._bits[chunk] = bits
        else:
            self._bits.pop(chunk, None)

    def __iter__(self) -> Iterator[_Key]:
        """Iterate over the partitions that are in the set now. The set may change during the walk."""
        return iter([key for chunk, bits in self._bits.items() for key in _keys(chunk, bits)])

    def also_in(self, other: PartitionSet) -> list[_Key]:
        """Return the partitions that are in both sets."""
        few, many = (self._bits, other._bits) if len(self._bits) <= len(other._bits) else (other._bits, self._bits)
        return [key for chunk, bits in few.items() for key in _keys(chunk, bits & many.get(chunk, 0))]

    def not_in(self, other: PartitionSet) -> list[_Key]:
        """Return the partitions that are in this set and not in ``other``."""
        without = other._bits
        return [key for chunk, bits in self._bits.items() for key in _keys(chunk, bits & ~without.get(chunk, 0))]


def _keys(chunk: tuple[str, int], bits: int) -> list[_Key]:
    topic_id, first = chunk[0], chunk[1] * CHUNK
    found = []
    while bits:
        lowest = bits & -bits
        found.append((topic_id, first + lowest.bit_length() - 1))
        bits ^= lowest
    return found


class BrokerIndex:
    """The partitions of an image by broker. The image tells it of every change."""

    __slots__ = ("_holds", "_leads", "_members", "leaderless")

    def __init__(self) -> None:
        self._leads: dict[int, PartitionSet] = {}
        self._members: dict[int, PartitionSet] = {}
        self._holds: dict[int, PartitionSet] = {}
        self.leaderless = PartitionSet()
        """The partitions without a leader."""

    def copy(self) -> BrokerIndex:
        """Return an index that says the same and changes independently."""
        other = BrokerIndex()
        other._leads = {broker_id: found.copy() for broker_id, found in self._leads.items()}
        other._members = {broker_id: found.copy() for broker_id, found in self._members.items()}
        other._holds = {broker_id: found.copy() for broker_id, found in self._holds.items()}
        other.leaderless = self.leaderless.copy()
        return other

    def leads(self, broker_id: int) -> PartitionSet:
        """Return the partitions that the broker leads."""
        return self._leads.get(broker_id) or PartitionSet()

    def members(self, broker_id: int) -> PartitionSet:
        """Return the partitions in whose isr or elr the broker is."""
        return self._members.get(broker_id) or PartitionSet()

    def holds(self, broker_id: int) -> PartitionSet:
        """Return the partitions that have a replica on the broker."""
        return self._holds.get(broker_id) or PartitionSet()

    def change(self, key: _Key, before: _Replicas | None, after: _Replicas | None) -> None:
        """Note that a partition changed. None: it does not exist."""
        led = None if before is None else before.leader
        leads = None if after is None else after.leader
        if led != leads:
            if led is not None:
                (self.leaderless if led == NO_LEADER else _set_of(self._leads, led)).discard(key)
            if leads is not None:
                (self.leaderless if leads == NO_LEADER else _set_of(self._leads, leads)).add(key)
        had = () if before is None else before.isr + before.elr
        has = () if after is None else after.isr + after.elr
        if had != has:
            _replace(self._members, key, had, has)
        held = () if before is None else before.replicas
        holds = () if after is None else after.replicas
        if held != holds:
            _replace(self._holds, key, held, holds)

    def add_topic(self, topic_id: str, partitions: PartitionTable[_R]) -> None:
        """Add all partitions of a topic, none of which is in the index."""
        for where, chunk in partitions.chunks():
            alike: dict[tuple[tuple[int, ...], tuple[int, ...], int], int] = {}
            bit = 1
            for partition in chunk:
                if partition is not None:
                    kind = (partition.replicas, partition.isr + partition.elr, partition.leader)
                    alike[kind] = alike.get(kind, 0) | bit
                bit <<= 1
            key = (topic_id, where)
            for (replicas, members, leader), bits in alike.items():
                (self.leaderless if leader == NO_LEADER else _set_of(self._leads, leader)).add_bits(key, bits)
                for broker_id in members:
                    _set_of(self._members, broker_id).add_bits(key, bits)
                for broker_id in replicas:
                    _set_of(self._holds, broker_id).add_bits(key, bits)


def _replace(sets: dict[int, PartitionSet], key: _Key, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    for broker_id in before:
        if broker_id not in after:
            _set_of(sets, broker_id).discard(key)
    for broker_id in after:
        if broker_id not in before:
            _set_of(sets, broker_id).add(key)


def _set_of(sets: dict[int, PartitionSet], broker_id: int) -> PartitionSet:
    found = sets.get(broker_id)
    if found is None:
        found = sets[broker_id] = PartitionSet()
    return found
