"""Names of a spool's files, and what of a batch's identity follows from them.

All lie in the folder of the log or cluster itself, beside the partitions: Kafka ignores files there, and would not
ignore a folder.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pyreplog.errors import ConfigError, excerpt
from pyreplog.log import SPOOL_PREFIX

# On disk: never change one, nor the prefix.
MANIFEST: Final = "manifest"
TAKEN: Final = "taken"
BEGUN: Final = "begun"
REFUSED: Final = "refused"
WITHDRAWN: Final = "withdrawn"
APPLIED: Final = "applied"
LOCK: Final = "lock"
STAGED: Final = "staged"

BATCH_MAX: Final = 2**63 - 1
EPOCH_COUNT: Final = 2**15
"""Producer epochs are int16: so many batches of one query share a producer id."""
ID_BITS: Final = 62

_QUERY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TASK: Final = re.compile(r"[0-9]{1,10}-[A-Za-z0-9]{1,32}")
_OF_BATCH: Final = re.compile(
    r"replog\.spool\.([A-Za-z0-9_-]{1,64})\.([0-9]{1,19})\.(?:([0-9]{1,10}-[A-Za-z0-9]{1,32})\.)?([a-z]+)"
)
_OF_QUERY: Final = re.compile(r"replog\.spool\.([A-Za-z0-9_-]{1,64})\.(applied|lock)")


class BatchId(NamedTuple):
    """One batch of one writing query: both numbers stay the same however often it is run again."""

    query: str
    batch: int

    def __str__(self) -> str:
        return f"batch {self.batch} of query {self.query}"


class SpoolName(NamedTuple):
    """A file's name, read. ``batch`` is -1 for what belongs to the query, ``task`` empty but for staged files."""

    query: str
    batch: int
    kind: str
    task: str = ""


def check_id(batch_id: BatchId) -> BatchId:
    """``batch_id``, when it can be part of a file's name; :class:`ConfigError` otherwise."""
    if _QUERY.fullmatch(batch_id.query) is None:
        raise ConfigError(f"query {excerpt(batch_id.query)} is no name for a query: use 1 to 64 of A-Z a-z 0-9 _ -")
    if not 0 <= batch_id.batch <= BATCH_MAX:
        raise ConfigError(f"batch {batch_id.batch} is not within 0 and {BATCH_MAX}")
    return batch_id


def parse_name(name: str) -> SpoolName | None:
    """Return the kind of the file ``name``; None if it is not a file of a spool."""
    if not name.startswith(SPOOL_PREFIX):
        return None
    found = _OF_QUERY.fullmatch(name)
    if found is not None:
        return SpoolName(found[1], -1, found[2])
    found = _OF_BATCH.fullmatch(name)
    if found is None or (found[4] == STAGED) != (found[3] is not None):
        return None
    if found[4] not in (MANIFEST, TAKEN, BEGUN, REFUSED, WITHDRAWN, STAGED):
        return None
    return SpoolName(found[1], int(found[2]), found[4], found[3] or "")


def batch_name(batch_id: BatchId, kind: str) -> str:
    """The name of a batch's file of that kind."""
    return f"{SPOOL_PREFIX}{batch_id.query}.{batch_id.batch}.{kind}"


def query_name(query: str, kind: str) -> str:
    """The name of a query's file of that kind."""
    return f"{SPOOL_PREFIX}{query}.{kind}"


def staged_name(batch_id: BatchId, task: str) -> str:
    """The name of what one task staged. ``task``: its number, a hyphen, and what no other attempt has."""
    if _TASK.fullmatch(task) is None:
        raise ConfigError(f"task {excerpt(task)} is no name for a task")
    return f"{SPOOL_PREFIX}{batch_id.query}.{batch_id.batch}.{task}.{STAGED}"


def producer_of(batch_id: BatchId) -> tuple[int, int]:
    """Return the producer id and epoch of a batch: the same at each attempt, and different for every batch.

    The id is a digest of the query's name in the upper half of the positive int64, which controllers never assign.
    The epoch counts batches; when it starts again at 0, the id changes.
    """
    turn, epoch = divmod(batch_id.batch, EPOCH_COUNT)
    import hashlib  # noqa: PLC0415  (rarely needed, and slow to load)

    digest = hashlib.blake2b(f"{batch_id.query}.{turn}".encode(), digest_size=8, person=b"replog.spool").digest()
    return int.from_bytes(digest, "big") % (1 << ID_BITS) | 1 << ID_BITS, epoch
