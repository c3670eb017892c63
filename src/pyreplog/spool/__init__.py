"""Rows that other processes leave for the owner of a log: the door.

:class:`Spool` is the files in a log's or cluster's folder; executors :meth:`~Spool.stage`, a driver publishes, the
owner calls :func:`apply`. Nothing here holds a lock on the log, and nothing is ever pickled. Protocol:
docs/internals/format/spool.md.
"""

from __future__ import annotations

from pyreplog.spool.applied import Applied
from pyreplog.spool.apply import Appender, Resumer, apply, damage_of
from pyreplog.spool.fingerprint import Fingerprint, fingerprint_of
from pyreplog.spool.layout import BatchId, check_id, parse_name, producer_of
from pyreplog.spool.manifest import Manifest
from pyreplog.spool.spool import ORPHAN_AGE_MS, Spool, Waiting
from pyreplog.spool.staged import StagedBatch, StagedFile, StagedWriter, Syncs, read_staged

__all__ = [
    "ORPHAN_AGE_MS",
    "Appender",
    "Applied",
    "BatchId",
    "Fingerprint",
    "Manifest",
    "Resumer",
    "Spool",
    "StagedBatch",
    "StagedFile",
    "StagedWriter",
    "Syncs",
    "Waiting",
    "apply",
    "check_id",
    "damage_of",
    "fingerprint_of",
    "parse_name",
    "producer_of",
    "read_staged",
]
