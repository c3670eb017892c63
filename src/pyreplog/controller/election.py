"""The rules of election: which replica may lead, and the next in-sync set. Pure functions over one
partition's metadata.

The rules are Kafka's of KIP-966 (eligible leader replicas) with four of ours:

* isr and elr always stay within the assignment.
* A *suspect* is a member that restarted uncleanly since it was last known complete. While a
  partition has a leader, no suspect is in its in-sync set. It moves to the elr if the set is below
  the minimum (then the high watermark does not advance); otherwise it leaves both.
* Trusted members lead before suspects. Among suspects the one with the greatest (last epoch, end)
  leads. A replica that reaches as far as one with all committed records holds them too, so the
  leader has them. The high watermark did not advance since the reports, so none is stale. Members
  whose report equals the new leader's hold the same log; they stay in the set and are trusted
  again.
* The last leader is elected again if it is in the isr, and the election waits for it; this is the
  case after a controller restart. Reason: with acks=1 it alone may hold the last acknowledged
  records, and closing and opening a cluster must not lose them. If it is a suspect because the
  close was interrupted, it still leads before trusted members if it reaches at least as far as each
  live one: then it holds all their records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pyreplog.controller.image import PartitionImage, PartitionKey, ReplicaEnd
from pyreplog.wire import NO_LEADER, NO_LEADER_CHANGE, LostOffsets, PartitionChangeRecord, SuspectReplica

__all__ = [
    "MISSING",
    "Election",
    "ReplicaEnd",
    "PartitionDecision",
    "UncleanElection",
    "change_record",
    "elect_longest",
    "with_suspects",
]


MISSING = ReplicaEnd(-2, 0)
"""A member has no copy on the disk that it always had.

Either it never created one, and then nothing was committed while it was a member, or its copy was
removed. Only the other members can tell these two cases apart. It leads only if no other member has
a copy either. Until then it is a member like other suspects, because a topic whose nodes all die
before they create a copy must not be lost for ever.
"""


class PartitionDecision(NamedTuple):
    """A partition's next state.

    ``waits``: there is no leader yet because a better candidate may come; ask again when one comes
    or when the wait time ends. ``cleared``: suspects that are trusted from now on. ``recovering``:
    the leader was elected uncleanly. ``recovered``: it has recovered since. ``suspected``: members
    that are suspects from now on, or with another end. ``replicas``, ``adding`` and ``removing``: a
    reassignment begins, changes or ends; None: they stay.
    """

    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int
    waits: bool = False
    cleared: tuple[int, ...] = ()
    recovering: bool = False
    recovered: bool = False
    suspected: tuple[SuspectReplica, ...] = ()
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None


class UncleanElection(NamedTuple):
    """The result of a requested unclean election.

    ``leader`` leads in ``leader_epoch``. Acknowledged records may be lost from offset ``start`` to
    ``end`` (exclusive), the greatest known end of an absent replica; -1 if no absent replica is
    known to reach beyond ``start``. Each copy that returns reports the records that it must give up
    (:attr:`pyreplog.node.Node.losses`).
    """

    leader: int
    leader_epoch: int
    start: int
    end: int

    def lost(self) -> list[LostOffsets]:
        """Return the offsets that are given up. Behind the known ends of absent copies there may be
        more."""
        if self.end < 0:
            return [LostOffsets(self.start, -1, certain=False)]
        return [LostOffsets(self.start, self.end, certain=True), LostOffsets(self.end, -1, certain=False)]

    def __str__(self) -> str:
        lost = (
            f"offsets {self.start} to {self.end - 1} are lost"
            if self.end >= 0
            else f"all records from offset {self.start} on are lost"
        )
        return f"node {self.leader} leads in epoch {self.leader_epoch}; {lost}"


class Election(NamedTuple):
    """The facts about one partition by which its next state is decided.

    ``active``: whether a broker may lead. ``suspects``: the members that may lack committed
    records, with their ends; while a partition has a leader, its set has no suspect. ``ends``: the
    ends of members' copies that cannot have grown since their report. ``impaired``: members that
    cannot serve all of their copy, or have no copy yet; members with the same trust lead before
    them.
    """

    partition: PartitionImage
    min_isr: int
    active: Callable[[int], bool]
    suspects: Mapping[int, ReplicaEnd]
    ends: Mapping[int, ReplicaEnd]
    impaired: tuple[int, ...] = ()

    def decide(self, isr: tuple[int, ...], *, lost: tuple[int, ...] = (), patient: bool = False) -> PartitionDecision:
        """Return the state after the in-sync set becomes ``isr``: keep a valid leader, else elect
        one.

        ``lost`` members may lack committed records, so they leave isr and elr. ``patient``: compare
        suspects only when all of isr and elr are present, and elect no leader before the last
        leader is present if it is in the in-sync set.
        """
        isr = tuple(member for member in isr if member not in lost)
        elr = _eligible(self.partition, isr, self.min_isr, lost)
        leader = self.partition.leader
        if leader != NO_LEADER and leader in isr and self.active(leader):
            return PartitionDecision(isr, elr, leader)
        return self._elect(isr, elr, patient=patient)

    def _elect(self, isr: tuple[int, ...], elr: tuple[int, ...], *, patient: bool) -> PartitionDecision:
        partition, active, suspects = self.partition, self.active, self.suspects
        members = tuple(member for member in partition.replicas if member in isr or member in elr)
        last = next((member for member in partition.last_known_elr if member in isr), NO_LEADER)
        if patient and last != NO_LEADER and not active(last):
            return PartitionDecision(isr, elr, NO_LEADER, waits=True)
        trusted = [member for member in members if member not in suspects and active(member)]
        if trusted and last != NO_LEADER and active(last) and self._reaches(last, trusted):
            return self._led_by(last, self._in_sync_with(last, isr), members)._replace(cleared=(last,))
        for group in (isr, elr):
            for member in sorted((*partition.last_known_elr, *partition.replicas), key=self.impaired.__contains__):
                if member in group and member not in suspects and active(member):
                    return self._led_by(member, self._in_sync_with(member, isr), members)
        present = [member for member in members if member in suspects and active(member)]
        if not present:
            return PartitionDecision(isr, elr, NO_LEADER)
        best = max(suspects[member] for member in present)
        if len(present) < len(members) and (patient or best == MISSING):
            return PartitionDecision(isr, elr, NO_LEADER, waits=best != MISSING)
        equals = tuple(member for member in present if suspects[member] == best)
        leader = next((member for member in equals if member in isr), equals[0])
        return self._led_by(leader, equals, members)._replace(cleared=equals)

    def _reaches(self, last: int, trusted: Sequence[int]) -> bool:
        """Return whether ``last`` is a suspect whose copy has all records of the ``trusted``.

        A member whose end is not known may have more.
        """
        end = self.suspects.get(last, MISSING)
        return end != MISSING and all(member in self.ends and self.ends[member] <= end for member in trusted)

    def _in_sync_with(self, leader: int, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Return ``leader`` and the trusted members of ``isr``, in the order of the assignment."""
        return tuple(
            one for one in self.partition.replicas if one == leader or (one in isr and one not in self.suspects)
        )

    def _led_by(self, leader: int, isr: tuple[int, ...], members: tuple[int, ...]) -> PartitionDecision:
        """Return the state in which ``leader`` leads with ``isr``.

        If the leader returned with records, members without any copy are no longer eligible.
        """
        suspects = self.suspects
        filled = suspects.get(leader, MISSING).end_offset > 0
        none = tuple(member for member in members if filled and member not in isr and suspects.get(member) == MISSING)
        before = self.partition._replace(isr=members, elr=())
        return PartitionDecision(isr, _eligible(before, isr, self.min_isr, none), leader)


def _eligible(partition: PartitionImage, isr: tuple[int, ...], min_isr: int, lost: tuple[int, ...]) -> tuple[int, ...]:
    """Return the elr for ``isr``, in the order of the assignment.

    It is empty if ``isr`` has at least the minimum; else it has all other members of isr and elr.
    """
    if len(isr) >= min_isr:
        return ()
    before = partition.isr + partition.elr
    return tuple(
        member for member in partition.replicas if member in before and member not in isr and member not in lost
    )


def elect_longest(
    partition: PartitionImage, ends: Mapping[int, ReplicaEnd], active: Callable[[int], bool]
) -> PartitionDecision | None:
    """Elect the active replica with the longest log as the only member, ignoring committed records.

    A person asked for it. Return None if no replica is active.
    """
    present = [member for member in partition.replicas if active(member)]
    if not present:
        return None
    leader = max(present, key=lambda member: (ends.get(member, MISSING), -partition.replicas.index(member)))
    return PartitionDecision((leader,), (), leader, cleared=(leader,), recovering=True)


def with_suspects(
    before: tuple[SuspectReplica, ...], suspected: tuple[SuspectReplica, ...]
) -> tuple[SuspectReplica, ...]:
    """Return ``before`` with the entries of ``suspected``, which replace those of the same
    broker."""
    if not suspected:
        return before
    new = [one.broker_id for one in suspected]
    return (*(one for one in before if one.broker_id not in new), *suspected)


def change_record(key: PartitionKey, before: PartitionImage, after: PartitionDecision) -> PartitionChangeRecord | None:
    """Return the record that changes ``before`` to ``after``, or None if they are equal.

    This is the only place that builds partition changes.
    """
    record = PartitionChangeRecord(key[1], key[0])
    changed = _reassign(record, before, after)
    if after.isr != before.isr:
        record.isr = after.isr
        changed = True
    if after.elr != before.elr:
        record.eligible_leader_replicas = after.elr
        changed = True
    last_known = before.last_known_elr
    if after.leader != NO_LEADER:
        last_known = ()
    elif before.leader != NO_LEADER:
        last_known = (before.leader,)
    elif not (after.isr or after.elr) and (before.isr or before.elr):
        last_known = before.isr + before.elr  # the last members, as a hint for an operator
    if last_known != before.last_known_elr:
        record.last_known_elr = last_known
        changed = True
    if after.leader != before.leader or (record.replicas is not None and set(before.replicas) - set(record.replicas)):
        # Also if a replica goes: what the leader knows of it must not count if it comes back.
        record.leader = after.leader
        changed = True
    if after.recovering:
        # Also if it recovers already: each unclean election needs its own epoch for truncation.
        record.leader_recovery_state = 1
        changed = True
    elif after.recovered:
        record.leader_recovery_state = 0
        changed = True
    suspects = tuple(
        one
        for one in with_suspects(before.suspects, after.suspected)
        if one.broker_id not in after.cleared and (one.broker_id in after.isr or one.broker_id in after.elr)
    )
    if suspects != before.suspects:
        record.suspects = suspects
        changed = True
    assert record.leader in (NO_LEADER_CHANGE, NO_LEADER) or record.leader in after.isr, (
        "a leader is in its in-sync set"
    )
    return record if changed else None


def _reassign(record: PartitionChangeRecord, before: PartitionImage, after: PartitionDecision) -> bool:
    """Put the change of the assignment into ``record``. Return whether there is one."""
    if after.replicas is not None and after.replicas != before.replicas:
        record.replicas = after.replicas
    if after.adding is not None and after.adding != before.adding:
        record.adding_replicas = after.adding
    if after.removing is not None and after.removing != before.removing:
        record.removing_replicas = after.removing
    return not record.replicas is record.adding_replicas is record.removing_replicas is None
