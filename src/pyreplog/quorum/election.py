"""Who may lead, and what becomes of the in-sync set: pure functions over one partition's metadata.

The rules are Kafka's of KIP-966 (eligible leader replicas) with four of ours:

* isr and elr stay within the assignment, always.
* *A suspect* is a member that restarted uncleanly since it was last known complete. While a partition has a leader, no suspect is in its
  in-sync set: it goes to the elr (where the set is below the minimum, so that the high watermark stands still) or out.
* Trusted members lead before suspects. Among suspects the one that reaches furthest, by (last epoch, end), leads: whoever holds all
  committed records reaches at least as far as any of them, and the high watermark stood still since they reported, so that no report
  grows stale. Members whose report equals the new leader's hold the same log and stay in the set, trusted again.
* Who led last is waited for while it is in the in-sync set, as it is where a controller began meanwhile, and leads again: with acks=1 it
  alone may have what it acknowledged last, and to close a cluster and open it again must not cost that. Where it is a suspect because the
  close was cut short, it leads before trusted members if it reaches at least as far as each of them that is there: then it holds all they
  hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pyreplog.quorum.image import PartitionImage, PartitionKey
from pyreplog.wire import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord

__all__ = ["MISSING", "ReplicaEnd", "Settlement", "UncleanElection", "change_record", "settle", "settle_uncleanly"]


class ReplicaEnd(NamedTuple):
    """How far a suspect's copy reached when it registered. Compares by (last epoch, end)."""

    last_epoch: int
    end_offset: int


MISSING = ReplicaEnd(-2, 0)
"""On the disk it always had, a member has no copy: it never made one. Then nothing was ever committed while it was a member, or its
copy was taken away; which of the two, only the others can tell. It leads only when every other member has none either; until then it is
a member like other suspects, because a topic whose nodes all die before they made a copy must not be lost for ever."""


class Settlement(NamedTuple):
    """A partition's next state. ``waits``: nobody leads yet because a better candidate may come; ask again, at the latest when patience
    ends. ``cleared``: suspects that are trusted from now on. ``recovering``: elected uncleanly; ``recovered``: that is over."""

    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int
    waits: bool = False
    cleared: tuple[int, ...] = ()
    recovering: bool = False
    recovered: bool = False


class UncleanElection(NamedTuple):
    """What somebody asked for and got: ``leader`` leads in ``leader_epoch``, and acknowledged records may be lost from offset ``start`` on.

    ``end``: how far those that are away are known to have reached (exclusive); -1 where nobody who is away is known to have reached
    further than ``start``. Each copy that comes back says what it has to give up (:attr:`pyreplog.node.Node.losses`).
    """

    leader: int
    leader_epoch: int
    start: int
    end: int

    def __str__(self) -> str:
        lost = f"offsets {self.start} to {self.end - 1} are lost" if self.end >= 0 else f"what was at offset {self.start} and above is lost"
        return f"node {self.leader} leads in epoch {self.leader_epoch}; {lost}"


def settle(
    partition: PartitionImage,
    isr: tuple[int, ...],
    *,
    min_isr: int,
    active: Callable[[int], bool],
    suspects: Mapping[int, ReplicaEnd],
    ends: Mapping[int, ReplicaEnd],
    lost: tuple[int, ...] = (),
    flawed: tuple[int, ...] = (),
    patient: bool = False,
) -> Settlement:
    """The state after the in-sync set becomes ``isr``: keeps a valid leader, else elects.

    ``lost`` members may lack committed records: they leave isr and elr. ``flawed`` ones cannot serve all of their copy, or have none yet:
    among members that are trusted alike the others lead before them. ``patient``: suspects are compared only when all of isr and elr are
    there, and nobody leads before the last leader is there, where that one is in the in-sync set. ``ends``: how far the copies of members
    reach that cannot have grown since. No suspect is left in the set of a partition with a leader.
    """
    isr = tuple(member for member in isr if member not in lost)
    elr = _eligible(partition, isr, min_isr, lost)
    leader = partition.leader
    if leader != NO_LEADER and leader in isr and active(leader):
        return Settlement(isr, elr, leader)
    return _elect(partition, isr, elr, min_isr, active, suspects, ends, flawed, patient)


def _eligible(partition: PartitionImage, isr: tuple[int, ...], min_isr: int, lost: tuple[int, ...]) -> tuple[int, ...]:
    """The elr beside ``isr``, in the order of the assignment: empty at or above the minimum, else everyone who was in isr or elr."""
    if len(isr) >= min_isr:
        return ()
    before = partition.isr + partition.elr
    return tuple(member for member in partition.replicas if member in before and member not in isr and member not in lost)


def _elect(
    partition: PartitionImage,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    min_isr: int,
    active: Callable[[int], bool],
    suspects: Mapping[int, ReplicaEnd],
    ends: Mapping[int, ReplicaEnd],
    flawed: tuple[int, ...],
    patient: bool,
) -> Settlement:
    members = tuple(member for member in partition.replicas if member in isr or member in elr)
    last = next((member for member in partition.last_known_elr if member in isr), NO_LEADER)
    if patient and last != NO_LEADER and not active(last):
        return Settlement(isr, elr, NO_LEADER, waits=True)
    trusted = [member for member in members if member not in suspects and active(member)]
    if trusted and last != NO_LEADER and active(last) and _reaches(last, trusted, suspects, ends):
        kept = tuple(one for one in partition.replicas if one == last or (one in isr and one not in suspects))
        return _led_by(partition, last, kept, members, min_isr, suspects)._replace(cleared=(last,))
    for group in (isr, elr):
        for member in sorted((*partition.last_known_elr, *partition.replicas), key=flawed.__contains__):
            if member in group and member not in suspects and active(member):
                kept = tuple(one for one in partition.replicas if one == member or (one in isr and one not in suspects))
                return _led_by(partition, member, kept, members, min_isr, suspects)
    present = [member for member in members if member in suspects and active(member)]
    if not present:
        return Settlement(isr, elr, NO_LEADER)
    complete = len(present) == len(members)
    best = max(suspects[member] for member in present)
    if not complete and (patient or best == MISSING):
        return Settlement(isr, elr, NO_LEADER, waits=best != MISSING)
    equals = tuple(member for member in present if suspects[member] == best)
    leader = next((member for member in equals if member in isr), equals[0])
    settlement = _led_by(partition, leader, equals, members, min_isr, {} if best == MISSING else suspects)
    return settlement._replace(cleared=equals)


def _reaches(last: int, trusted: Sequence[int], suspects: Mapping[int, ReplicaEnd], ends: Mapping[int, ReplicaEnd]) -> bool:
    """Whether ``last`` is a suspect with a copy that holds all that the ``trusted`` hold. Whose end is not known may hold more."""
    end = suspects.get(last, MISSING)
    return end != MISSING and all(member in ends and ends[member] <= end for member in trusted)


def _led_by(
    partition: PartitionImage,
    leader: int,
    isr: tuple[int, ...],
    members: tuple[int, ...],
    min_isr: int,
    suspects: Mapping[int, ReplicaEnd],
) -> Settlement:
    """``leader`` leads with ``isr``. Beside one who came back with records, who has no copy at all is no longer eligible."""
    filled = suspects.get(leader, MISSING).end_offset > 0
    none = tuple(member for member in members if filled and member not in isr and suspects.get(member) == MISSING)
    before = partition._replace(isr=members, elr=())
    return Settlement(isr, _eligible(before, isr, min_isr, none), leader)


def settle_uncleanly(partition: PartitionImage, ends: Mapping[int, ReplicaEnd], active: Callable[[int], bool]) -> Settlement | None:
    """A person gave up on what is committed: of all active replicas the one that reaches furthest leads alone. None: none is active."""
    present = [member for member in partition.replicas if active(member)]
    if not present:
        return None
    leader = max(present, key=lambda member: (ends.get(member, MISSING), -partition.replicas.index(member)))
    return Settlement((leader,), (), leader, cleared=(leader,), recovering=True)


def change_record(key: PartitionKey, before: PartitionImage, after: Settlement) -> PartitionChangeRecord | None:
    """What brings ``before`` to ``after``, or None where nothing changes. The one builder of partition changes."""
    record = PartitionChangeRecord(key[1], key[0])
    changed = False
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
        last_known = before.isr + before.elr  # the last who left, at its return without all it had: a hint for the person who has to decide
    if last_known != before.last_known_elr:
        record.last_known_elr = last_known
        changed = True
    if after.leader != before.leader:
        record.leader = after.leader
        changed = True
    if after.recovering:
        # Also where it was already: an unclean election after an unclean one has an epoch of its own, below which logs may be cut.
        record.leader_recovery_state = 1
        changed = True
    elif after.recovered:
        record.leader_recovery_state = 0
        changed = True
    assert record.leader in (NO_LEADER_CHANGE, NO_LEADER) or record.leader in after.isr, "a leader is in its in-sync set"
    return record if changed else None
