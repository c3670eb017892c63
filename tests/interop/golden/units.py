"""Folders written by real Kafka brokers: unpacked from ``tests/interop/golden/kafka/`` once per process, or, with
REPLOG_FIXTURES=, where they lie.

``tests/interop/golden/kafka/README.md`` says who made them and what is in them.
"""

from __future__ import annotations

import atexit
import base64
import functools
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyreplog.record import Record

HERE = Path(__file__).parent / "kafka"
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}

UNITS = (
    "clean-3.9.1",
    "clean-4.1.0",
    "clean-4.3.1",
    "cluster-3.9.1/n1",
    "cluster-3.9.1/n2",
    "cluster-3.9.1/n3",
    "cluster-4.1.0/n1",
    "cluster-4.1.0/n1-diverged",
    "cluster-4.1.0/n2",
    "cluster-4.1.0/n3",
    "cluster-4.3.1/n1",
    "cluster-4.3.1/n2",
    "cluster-4.3.1/n3",
    "crash-4.1.0/killed",
    "crash-4.1.0/recovered",
    "crash-4.1.0/torn",
    "crash-4.1.0/torn-recovered",
)
"""All units of magic 2."""


@functools.cache
def unit(name: str) -> Path:
    """The folder of a unit: ``manifest.json`` and ``data/``. Shared: copy what a test writes to."""
    given = os.environ.get("REPLOG_FIXTURES")
    if given:
        return Path(given) / name
    return _unpacked(name.partition("/")[0]) / name


@functools.cache
def _unpacked(group: str) -> Path:
    target = Path(tempfile.mkdtemp(prefix="replog-units-"))
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    with tarfile.open(HERE / f"{group}.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11 has it from 3.11.4 on
        archive.extractall(target)
    return target


@functools.cache
def manifest(name: str) -> dict[str, Any]:
    """A unit's manifest."""
    loaded: dict[str, Any] = json.loads((unit(name) / "manifest.json").read_text())
    return loaded


def is_transactional(partition: dict[str, Any]) -> bool:
    """Whether a partition (of a manifest) holds transactions: its control batches are transaction markers."""
    return any(control.get("type") in {"COMMIT", "ABORT"} for control in partition.get("controlBatches", ()))


def copy_of(name: str, target: Path) -> Path:
    """A copy of a unit's data that may be written to."""
    shutil.copytree(unit(name) / "data", target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    return target


def line_of(record: Record) -> bytes:
    """A record as the manifests' hashes take it."""
    key, value = record.key, record.value
    fields = [
        record.offset,
        record.timestamp,
        TIMESTAMP_TYPES[record.timestamp_type],
        None if key is None else base64.b64encode(key).decode(),
        None if value is None else base64.b64encode(value).decode(),
        [[name, None if content is None else base64.b64encode(content).decode()] for name, content in record.headers],
    ]
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def hash_of(records: Iterable[Record]) -> tuple[int, str]:
    """How many records, and the manifests' ``recordsSha256`` of them."""
    digest = hashlib.sha256()
    count = 0
    for record in records:
        digest.update(line_of(record))
        count += 1
    return count, digest.hexdigest()
