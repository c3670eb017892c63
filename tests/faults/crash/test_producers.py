"""Stop a log at every call to the disk: what it knows of producers and transactions afterwards is what its batches
say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from pyreplog.log import Log
from pyreplog.log.producer_snapshot import format_producers, parse_producers, snapshot_offsets
from pyreplog.log.producer_state import ProducerState, producer_batches
from pyreplog.log.producers import ProducerTable
from pyreplog.log.transaction_index import AbortedRange
from pyreplog.testing.crash import CrashFailure, crash_points, error_points
from pyreplog.testing.disk import SimDisk
from tests.faults.crash.refusing import ERRORS
from tests.faults.crash.workloads import KEY, get, open_root
from tests.seed import SEED, tell
from tests.unit.log.producing import Play, produced
from tests.unit.log.support import sync

REPLAY = f"REPLOG_CRASH_SEED={SEED} .venv/bin/python -m pytest tests/faults/crash/test_producers.py"


def life(disk: SimDisk, _: list[int]) -> None:
    """Producers and transactions over several segments, a truncation, what is written differently in its place, and
    a clean stop."""
    root = open_root(disk)
    log = get(root, "os")
    log.become_leader(0)
    play = Play(log)
    sequence = 0
    for number in range(18):
        log.append_as_leader(produced(sequence, 1 + number % 3, producer=9), 0)
        sequence += 1 + number % 3
        play.data(number % 2 + 1, 1 + number % 2)
        if number % 4 == 3:
            play.end(number % 2 + 1, commit=number % 8 == 3)
        if number == 9:
            sync(disk, log)
            log.advance_high_watermark(log.end_offset)
            log.write_mark()
    log.truncate_to(log.end_offset - 20)
    play = Play(log)
    for number in range(4):
        play.sequences[7] = number
        play.data(7, 1)
        play.end(7, commit=number % 2 == 0)
    root.close()
    root = open_root(disk, 2)
    if KEY in root.logs:
        log = root.logs[KEY]
        log.append_as_leader(produced(0, 2, producer=11), log.epochs.latest)
        sync(disk, log)


def batches_say(log: Log) -> tuple[bytes, dict[int, list[AbortedRange]]]:
    """Table and aborted transactions, from nothing but the batches."""
    table = ProducerTable()
    aborted: dict[int, list[AbortedRange]] = {}
    for segment in log._segments:
        found = aborted[segment.base_offset] = []
        for one in producer_batches((segment,), segment.base_offset, 2**63 - 1):
            done = table.note(one, one.base_offset)
            if done is not None and done.aborted:
                found.append(
                    AbortedRange(done.producer_id, done.first_offset, done.last_offset, done.last_stable_offset)
                )
    return format_producers(table), aborted


def check(disk: SimDisk, _: Sequence[int]) -> None:
    """Opened, appended to, cut and opened again: the table and every transaction index are what the batches say."""
    for attempt in range(2):
        root = open_root(disk, 3 + attempt)
        log = root.logs.get(KEY)
        if log is None:
            root.close(clean=False)
            return
        table, aborted = batches_say(log)
        assert format_producers(log.producers.table) == table
        assert {segment.base_offset: segment.transactions.entries for segment in log._segments} == aborted
        for offset in snapshot_offsets(disk.list(log.directory)):
            assert offset <= log.end_offset
        if attempt == 0:
            log.truncate_to(log.end_offset * 2 // 3)
            assert (format_producers(log.producers.table), log.last_stable_offset <= log.end_offset) == (
                batches_say(log)[0],
                True,
            )
        root.close(clean=attempt == 0)


def test_no_crash_makes_it_wrong() -> None:
    """After power loss or a kill at any call, and again during recovery."""
    tell()
    report = crash_points(life, check, seed=SEED, damages=3, compound=1, replay=REPLAY)
    assert report.states > 500


def test_no_refused_call_makes_it_wrong() -> None:
    """Whichever call the disk refuses, once or for ever."""
    tell()
    report = error_points(
        life, check, seed=SEED, errors=ERRORS, damages=1, every=11, first=1 + SEED % 11, replay=REPLAY
    )
    assert report.errors > 20


LOAD_SNAPSHOT = ProducerState._load_snapshot
BUGS: dict[str, tuple[str, Callable[..., object]]] = {
    "not rebuilt": ("_note_segment", lambda *_, **__: False),
    "a truncation forgets nothing": ("truncate", lambda *_, **__: None),
    "snapshots beyond the trusted end are taken": (
        "_load_snapshot",
        lambda state, _, stray: LOAD_SNAPSHOT(state, snapshot_offsets(state._disk.list(state._directory)), stray),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug 23 and its kin: state that is not rebuilt, kept over a cut, or taken from where the log may have
    lost something."""
    monkeypatch.setattr(ProducerState, *BUGS[bug])
    with pytest.raises(CrashFailure):
        crash_points(life, check, seed=4, damages=2, compound=0, every=3)


def test_snapshots_are_good() -> None:
    """Every snapshot that the life leaves is whole."""
    disk = SimDisk(Random(1))
    life(disk, [])
    log_directory = "data/root/t-0"
    names = snapshot_offsets(disk.list(log_directory))
    assert len(names) == 3
    for offset in names:
        file = disk.open(f"{log_directory}/{offset:020d}.snapshot")
        parse_producers(bytes(file.read_at(0, file.size())), "x")
        file.close()
