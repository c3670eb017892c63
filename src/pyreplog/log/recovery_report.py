"""The input and the output of one recovery: how the folder was left, and the changes of the recovery."""

from __future__ import annotations

from typing import NamedTuple

from pyreplog.log.mark import MarkState


class RecoveryContext(NamedTuple):
    """How a partition's folder was left, and the root's checkpoint entries, which count without a mark."""

    clean: bool
    """The last writer of this root stopped cleanly."""
    same_boot: bool | None
    """The machine did not restart since the last write to the folder. None: unknown, so the page
    cache may be lost, or it may be kept and differ from the disk."""
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    trust_mark: bool = True
    """False: another program wrote here since, so the mark is void."""
    left: MarkState | None = None
    """The mark's state at the clean stop, from the summary; it counts if the mark is gone. The
    recovery point is its ``synced_end``, so that a missing record is noticed."""


class RecoveryReport(NamedTuple):
    """The result of one open of a log. Sizes are in bytes."""

    clean: bool
    """Whether the log was opened as a clean stop left it. Its tail was checked all the same."""
    mark_found: bool
    """Whether there was a valid durable mark of this partition."""
    durable_end: int
    """Damage below this offset is rot, which recovery does not truncate."""
    poisoned: bool = False
    """Whether the mark records a failed sync."""
    scanned_size: int = 0
    torn_size: int = 0
    """Number of bytes that were truncated at the end."""
    records_may_be_lost: bool = False
    """Whether an ``os`` log lost written records although the machine did not restart. Its mark then
    has ``incomplete`` set."""
    kept: tuple[str, ...] = ()
    """Files beside the log that hold the truncated bytes."""
    notes: tuple[str, ...] = ()
    """Other findings, one sentence each."""

    def in_words(self) -> str:
        """Return the report as one line for a person."""
        if self.torn_size:
            kept = f"; kept beside it in {', '.join(self.kept)}" if self.kept else ""
            said = [f"{self.torn_size} bytes at its end were no whole batch and were cut off{kept}"]
        else:
            said = ["its end was whole, and nothing was cut off"]
        if not self.mark_found:
            said.append("it had no valid durable mark, so all that is whole was kept")
        if self.poisoned:
            said.append("a sync had failed before")
        return "; ".join([*said, *self.notes])
