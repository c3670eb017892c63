"""A batch that is run again: the same rows count once, other rows and lower numbers are an error."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.errors import CorruptError, SpoolRefusedError
from pyreplog.log import write_state
from pyreplog.spool import Applied, BatchId, Fingerprint, Manifest, Spool, StagedFile, Waiting, apply, fingerprint_of
from pyreplog.testing import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.verify.findings import Report
from pyreplog.verify.spool import check_spool
from tests.unit.spool.support import encoded
from tests.unit.spool.test_spool import Kept

LATEST = 7
QUERY = "query"


def staged(spool: Spool, batch: int, task: str, *values: bytes, row_sum: int | None) -> StagedFile:
    """One task's file."""
    writer = spool.stage(BatchId(QUERY, batch), task)
    writer.add([(TopicPartition("t", 0), encoded(values))])
    return writer.finish(row_sum)


def spool_with(state: str, *, row_sum: int | None = 30) -> Spool:
    """Batch 7 of two rows, as far as ``state`` says."""
    disk = SimDisk(Random(1))
    disk.make_directory("/log")
    spool = Spool(disk, "/log")
    batch_id = BatchId(QUERY, LATEST)
    assert spool.publish(batch_id, [staged(spool, LATEST, "0-first", b"a", b"b", row_sum=row_sum)])
    if state in ("taken", "begun"):
        assert spool.take(batch_id) is not None
    if state == "begun":
        spool.begin(batch_id)
    if state == "applied":
        assert apply(spool, Waiting(batch_id, begun=False), Kept())
    return spool


def staged_names(spool: Spool) -> list[str]:
    """The staged files that are there."""
    return [name for name in spool.disk.list("/log") if name.endswith(".staged")]


@pytest.mark.parametrize("state", ["manifest", "taken", "begun", "applied"])
def test_the_same_rows_in_other_tasks_count_once(state: str) -> None:
    """The sums of the tasks are added up, modulo 2**64; the files of the second attempt are removed."""
    spool = spool_with(state)
    before = staged_names(spool)
    again = [
        staged(spool, LATEST, "0-second", b"b", row_sum=2**64 - 10),
        staged(spool, LATEST, "1-second", b"a", row_sum=40),
    ]
    assert not spool.publish(BatchId(QUERY, LATEST), again)
    assert staged_names(spool) == before


@pytest.mark.parametrize("state", ["manifest", "taken", "begun", "applied"])
@pytest.mark.parametrize(
    ("batch", "values", "row_sum", "text"),
    [
        (LATEST, [b"a", b"c"], 31, "now comes with other rows"),
        (LATEST, [b"a"], 30, "now comes with 1 rows, and it had 2"),
        (LATEST - 1, [b"a", b"b"], 30, "has a lower number than batch 7.*checkpoint is older than the log"),
    ],
)
def test_other_rows_are_an_error(state: str, batch: int, values: list[bytes], row_sum: int, text: str) -> None:
    """The error names the option; the batch that the log has, or will have, stays as it is; with ``keep`` the new
    one is skipped."""
    for keep in (False, True):
        spool = spool_with(state)
        before = spool.disk.list("/log")
        files = [staged(spool, batch, "0-second", *values, row_sum=row_sum)]
        if keep:
            assert not spool.publish(BatchId(QUERY, batch), files, keep=True)
        else:
            with pytest.raises(SpoolRefusedError, match=text) as caught:
                spool.publish(BatchId(QUERY, batch), files)
            assert "appliedBatch=keep" in str(caught.value)
        assert spool.disk.list("/log") == before
        assert spool.conflict(BatchId(QUERY, batch), files)


def test_a_batch_without_rows_is_compared_too() -> None:
    """One that had rows does not come back without any; a later one may have none."""
    spool = spool_with("applied")
    assert "0 rows, and it had 2" in spool.conflict(BatchId(QUERY, LATEST), [])
    assert "lower number" in spool.conflict(BatchId(QUERY, 0), [])
    assert spool.conflict(BatchId(QUERY, LATEST + 1), []) == ""


def test_without_a_fingerprint_the_number_counts() -> None:
    """An older release wrote ``applied`` and manifests without: the same number is believed, a lower one is an
    error all the same."""
    for state in ("manifest", "begun", "applied"):
        spool = spool_with(state, row_sum=None)
        assert not spool.publish(BatchId(QUERY, LATEST), [staged(spool, LATEST, "0-second", b"x", row_sum=5)])
        with pytest.raises(SpoolRefusedError, match="lower number"):
            spool.publish(BatchId(QUERY, 6), [staged(spool, 6, "0-second", b"x", row_sum=5)])
    spool = spool_with("applied")
    assert not spool.publish(BatchId(QUERY, LATEST), [staged(spool, LATEST, "0-second", b"x", row_sum=None)])


def test_applied_is_read_as_it_was_written() -> None:
    """With a fingerprint and without; anything else is damage, for the spool and for verify."""
    for one in (Applied(7, once=True), Applied(0, fingerprint=Fingerprint(3, 2**64 - 1))):
        assert Applied.from_values(one.to_values(), "x") == one
    disk = SimDisk(Random(1))
    disk.make_directory("/log")
    path = "/log/replog.spool.query.applied"
    for change in ({"version": "1"}, {"batch": "x"}, {"batch": ""}, {"fingerprint": "2"}, {"fingerprint": "2 F"}):
        write_state(disk, path, Applied(7, fingerprint=Fingerprint(2, 5)).to_values() | change)
        with pytest.raises(CorruptError):
            Spool(disk, "/log").applied(QUERY)
        book = Report(None)
        check_spool(disk, "/log", disk.list("/log"), book)
        assert [finding.path for finding in book.findings] == [path]
    write_state(disk, path, Applied(7, fingerprint=Fingerprint(2, 5)).to_values())
    book = Report(None)
    check_spool(disk, "/log", disk.list("/log"), book)
    assert not book.findings


def test_a_manifest_carries_the_fingerprint() -> None:
    """From the tasks' files to ``applied``."""
    files = (StagedFile("replog.spool.query.7.0-a.staged", 9, 5, 1, 2, 3),)
    manifest = Manifest(BatchId(QUERY, 7), files, fingerprint=fingerprint_of(files))
    read = Manifest.from_values(manifest.to_values(), "x")
    assert read.fingerprint == Fingerprint(2, 3)
    assert read._replace(files=files) == manifest
    spool = spool_with("applied")
    (name,) = (name for name in spool.disk.list("/log") if name.endswith(".applied"))
    assert b"fingerprint: 2 000000000000001e\n" in bytes(spool.disk.open(f"/log/{name}").read_at(0, 1000))
