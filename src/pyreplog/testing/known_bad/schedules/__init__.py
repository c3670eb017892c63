"""The schedules of the known-bad rules: each breaks an invariant with its rule, and none without it.

They have the names of ``docs/internals/replication.md`` if they have one there (F1 to F42, N1 to N3:
the history of Kafka's own bugs). Nodes are 1, 2, 3; node 1 leads at first. Every function gets a stage
whose nodes have just started.
"""

from __future__ import annotations

from pyreplog.testing.known_bad.schedules.clients import (
    deleted_elsewhere,
    deleted_inside_a_batch,
    deleted_meanwhile,
    old_end_told,
    replaced_while_somebody_waits,
    retry_after_election,
    retry_after_truncation,
    step_down,
    two_looks,
    waiting_append,
    zombie_answers,
)
from pyreplog.testing.known_bad.schedules.disks import (
    ack_then_power_loss,
    cut_then_power_loss,
    failed_sync,
    follower_loses_its_tail,
    rot_on_the_leader,
)
from pyreplog.testing.known_bad.schedules.in_sync import (
    another_node_holds_the_rest,
    back_below_the_high_watermark,
    empty_again,
    last_replica_standing,
    late_reply,
    metadata_replay,
    old_proposal,
    proposed_and_not_awaited,
    replica_behind_the_epoch,
    shrink_undecided,
    stale_incarnation,
    still_eligible,
    unclean,
    unclean_restart,
)
from pyreplog.testing.known_bad.schedules.truncation import (
    behind_the_high_watermark,
    divergence,
    diverging_fetch,
    fast_elections,
    fetch_of_an_older_epoch,
    hidden_between_two_elections,
    hw_truncation,
    one_foreign_record,
    parted_below,
    silent_leader,
    two_epochs_cut,
    unknown_epoch,
)

__all__ = [
    "deleted_elsewhere",
    "deleted_inside_a_batch",
    "deleted_meanwhile",
    "old_end_told",
    "replaced_while_somebody_waits",
    "retry_after_election",
    "retry_after_truncation",
    "step_down",
    "two_looks",
    "waiting_append",
    "zombie_answers",
    "ack_then_power_loss",
    "cut_then_power_loss",
    "failed_sync",
    "follower_loses_its_tail",
    "rot_on_the_leader",
    "another_node_holds_the_rest",
    "back_below_the_high_watermark",
    "empty_again",
    "last_replica_standing",
    "late_reply",
    "metadata_replay",
    "old_proposal",
    "proposed_and_not_awaited",
    "replica_behind_the_epoch",
    "shrink_undecided",
    "stale_incarnation",
    "still_eligible",
    "unclean",
    "unclean_restart",
    "behind_the_high_watermark",
    "divergence",
    "diverging_fetch",
    "fast_elections",
    "fetch_of_an_older_epoch",
    "hidden_between_two_elections",
    "hw_truncation",
    "one_foreign_record",
    "parted_below",
    "silent_leader",
    "two_epochs_cut",
    "unknown_epoch",
]
