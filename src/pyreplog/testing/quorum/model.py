"""The slow, obvious model beside a simulated quorum: what every node showed, and the invariants over it (S15).

It sees each node after every turn. It keeps every batch that was ever seen in a log, every record that was ever
below a high watermark, every vote that left a node, and every append that was acknowledged.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["EntrySummary", "Fold", "NodeView", "QuorumModel", "VoterKey"]

VoterKey = tuple[int, str]
"""(node id, directory id)."""
UNKNOWN = -1


class EntrySummary(NamedTuple):
    """One batch of a metadata log: its offsets, both ends included, its leader epoch and a checksum of its bytes."""

    base_offset: int
    last_offset: int
    epoch: int
    checksum: int


class Fold(NamedTuple):
    """The state of the simulated state machine: a running checksum over all records below ``end``."""

    end: int = 0
    chain: int = 0

    def apply(self, offset: int, value: bytes) -> Fold:
        """Return the state after one more record."""
        return Fold(offset + 1, zlib.crc32(b"%d:%b" % (offset, value), self.chain))


class NodeView(NamedTuple):
    """The facts of one node after a turn. ``changed_from`` is the index in ``log`` from which it may differ from the
    last view of the same node."""

    key: VoterKey
    life: int
    epoch: int
    is_leader: bool
    led_epoch: int
    """The epoch that it led before or after this turn; -1: none. A leader that removed itself resigns in the turn that
    commits the change."""
    high_watermark: int
    log_end: int
    log: Sequence[EntrySummary]
    changed_from: int
    voters: frozenset[VoterKey]


class QuorumModel:
    """Checks the invariants. ``broken(rule, about)`` raises the error."""

    def __init__(self, broken: Callable[[str, str], None]) -> None:
        self._broken = broken
        self.leaders: dict[int, tuple[VoterKey, int]] = {}
        """By epoch: which node led in it, and in which of its lives."""
        self.votes: dict[tuple[VoterKey, int], VoterKey] = {}
        """By voter and epoch: for which candidate it voted."""
        self.batches: dict[tuple[int, int], tuple[EntrySummary, tuple[int, int] | None]] = {}
        """By base offset and epoch: the batch, and the (base offset, epoch) of the batch before it, if known."""
        self.committed: dict[int, EntrySummary] = {}
        """By base offset: the batches that were below a high watermark."""
        self.committed_in: dict[int, int] = {}
        """By base offset: the epoch of the leader that committed the batch."""
        self.committed_end = 0
        self.values: dict[int, bytes] = {}
        """By offset: the records that a state machine applied."""
        self.folds: dict[int, int] = {0: 0}
        """By end offset: the state there."""
        self.acknowledged: dict[int, bytes] = {}
        self.acknowledged_end = 0
        self._logs: dict[VoterKey, Sequence[EntrySummary]] = {}
        self._watermarks: dict[tuple[VoterKey, int], int] = {}
        self._voters: dict[VoterKey, frozenset[VoterKey]] = {}

    # ------------------------------------------------------------------------------------ the nodes

    def turn(self, view: NodeView) -> None:
        """Check a node after a turn."""
        before = self._logs.get(view.key, ())
        if view.log is not before:
            self._match_logs(view)
            self._logs[view.key] = view.log
        self._voters[view.key] = view.voters
        if view.is_leader:
            self._check_leader(view)
        self._check_watermark(view)

    def forget(self, key: VoterKey) -> None:
        """Forget the voters of a node whose disk was destroyed; its log still tells what it had acknowledged."""
        self._voters.pop(key, None)

    def voter_sets(self) -> list[frozenset[VoterKey]]:
        """Return the voter sets that any node with a disk acts on."""
        return [*dict.fromkeys(self._voters.values())]

    def _match_logs(self, view: NodeView) -> None:
        """Log matching: an offset and an epoch stand for one batch, and for one history before it."""
        previous: tuple[int, int] | None = None
        for index, entry in enumerate(view.log):
            place = entry.base_offset, entry.epoch
            if index >= view.changed_from:
                known = self.batches.get(place)
                if known is None:
                    self.batches[place] = entry, previous
                else:
                    if known[0] != entry:
                        self._broken("log matching", f"{view.key} has {entry}, another log has {known[0]}")
                    if known[1] is None:
                        self.batches[place] = entry, previous
                    elif previous is not None and known[1] != previous:
                        self._broken(
                            "log matching", f"{view.key} has {entry} behind {previous}, another log behind {known[1]}"
                        )
            previous = place

    def _check_leader(self, view: NodeView) -> None:
        known = self.leaders.get(view.epoch)
        if known is None:
            self.leaders[view.epoch] = view.key, view.life
            self._check_completeness(view)
        elif known != (view.key, view.life):
            self._broken("election safety", f"{known} and {view.key, view.life} lead in epoch {view.epoch}")

    def _check_completeness(self, view: NodeView) -> None:
        """A new leader has every record that a leader of an older epoch committed, in its log or below its start.

        A node that won its votes late may lead an epoch that is over: later commits do not bind it.
        """
        end = 0
        for base, entry in self.committed.items():
            if self.committed_in[base] < view.epoch:
                end = max(end, entry.last_offset + 1)
        if view.log_end < end:
            self._broken(
                "leader completeness",
                f"{view.key} leads in epoch {view.epoch}; its log ends at {view.log_end}, and {end} was committed",
            )
        for entry in view.log:
            committed = self.committed.get(entry.base_offset)
            if committed not in (None, entry) and self.committed_in[entry.base_offset] < view.epoch:
                self._broken(
                    "leader completeness",
                    f"{view.key} leads in epoch {view.epoch} with {entry}, and {committed} was committed",
                )

    def _check_watermark(self, view: NodeView) -> None:
        watermark, place = view.high_watermark, (view.key, view.life)
        if watermark == UNKNOWN:
            return
        if watermark > view.log_end:
            self._broken("high watermark", f"{view.key}: it is {watermark}, and the log ends at {view.log_end}")
        before = self._watermarks.get(place, UNKNOWN)
        if watermark < before:
            self._broken("high watermark", f"{view.key} lowered it from {before} to {watermark}")
        if watermark == before:
            return
        self._watermarks[place] = watermark
        fresh = [entry for entry in view.log if before <= entry.last_offset and entry.base_offset < watermark]
        for entry in fresh:
            known = self.committed.setdefault(entry.base_offset, entry)
            self.committed_in.setdefault(entry.base_offset, max(view.led_epoch, 0) or view.epoch)
            if known != entry:
                self._broken(
                    "state machine safety", f"{view.key} has {entry} below its watermark {watermark}, others {known}"
                )
            if entry.last_offset >= watermark:
                self._broken("high watermark", f"{view.key}: {watermark} lies inside {entry}")
        if view.led_epoch >= 0:
            self._check_commit(view, fresh)
        elif watermark > self.committed_end:
            self._broken(
                "high watermark", f"{view.key} follows with {watermark}, no leader had more than {self.committed_end}"
            )
        self.committed_end = max(self.committed_end, watermark)

    def _check_commit(self, view: NodeView, fresh: Sequence[EntrySummary]) -> None:
        """A leader's high watermark is unknown until a record of its own epoch is on a majority."""
        if fresh and fresh[-1].epoch != view.led_epoch:
            self._broken(
                "commit of an older epoch",
                f"{view.key} leads in epoch {view.led_epoch} and commits up to {fresh[-1]}",
            )
        if not fresh or view.high_watermark <= self.committed_end:
            return
        last = fresh[-1]
        holders = [key for key in view.voters if self._holds(key, last)]
        if 2 * len(holders) <= len(view.voters):
            self._broken(
                "commit without a majority",
                f"{view.key} commits {last} in epoch {view.led_epoch}; of {sorted(view.voters)} only {sorted(holders)}"
                " have it",
            )

    def _holds(self, key: VoterKey, entry: EntrySummary) -> bool:
        for other in reversed(self._logs.get(key, ())):
            if other.base_offset <= entry.base_offset:
                return other == entry
        return False

    # ------------------------------------------------------------------------------------ the votes

    def vote(self, voter: VoterKey, epoch: int, candidate: VoterKey) -> None:
        """A voter's answer says that it votes for ``candidate``."""
        known = self.votes.setdefault((voter, epoch), candidate)
        if known != candidate:
            self._broken("durable vote", f"{voter} voted for {known} and for {candidate} in epoch {epoch}")

    # -------------------------------------------------------------------------- the state machines

    def applied(self, key: VoterKey, fold: Fold, value: bytes) -> None:
        """A state machine applied the record ``value``; ``fold`` is its state behind it."""
        offset = fold.end - 1
        known = self.values.setdefault(offset, value)
        if known != value:
            self._broken("state machine safety", f"{key} applied {value!r} at offset {offset}, others {known!r}")
        if self.folds.setdefault(fold.end, fold.chain) != fold.chain:
            self._broken("state machine safety", f"{key} has another state at offset {fold.end}")

    def loaded(self, key: VoterKey, fold: Fold) -> None:
        """A state machine was loaded from a snapshot."""
        known = self.folds.get(fold.end)
        if known is None:
            self._broken("snapshot", f"{key} loaded a snapshot that ends at {fold.end}, where no state ended")
        if known != fold.chain:
            self._broken("snapshot", f"{key} loaded another state from the snapshot that ends at {fold.end}")

    # ----------------------------------------------------------------------------------- the client

    def acknowledge(self, first_offset: int, values: Sequence[bytes]) -> None:
        """The leader told its client that these records are committed."""
        for offset, value in enumerate(values, first_offset):
            self.acknowledged[offset] = value
            known = self.values.get(offset, value)
            if known != value:
                self._broken("acknowledged record", f"{value!r} was acknowledged at {offset}, {known!r} is there")
        self.acknowledged_end = max(self.acknowledged_end, first_offset + len(values))

    def proved(self, key: VoterKey, high_watermark: int, acknowledged_end: int) -> None:
        """A leader proved that it still led when a read arrived; ``acknowledged_end`` is of that moment."""
        if high_watermark < acknowledged_end:
            self._broken(
                "linearizable read",
                f"{key} proved that it leads with high watermark {high_watermark}; {acknowledged_end} had been"
                " acknowledged before the read",
            )

    def final(self) -> None:
        """Check that every acknowledged record was applied."""
        for offset, value in self.acknowledged.items():
            if self.values.get(offset) != value:
                self._broken(
                    "acknowledged record", f"{value!r} at {offset} is lost: {self.values.get(offset)!r} is there"
                )
