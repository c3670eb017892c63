"""What is left of a log where one step of an append finds no memory: all of it agrees, or the log goes no
further."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, UnknownServerError
from pyreplog.log import Log
from pyreplog.log.epochs import EpochCache
from pyreplog.log.producer_state import ProducerState
from pyreplog.record import split
from pyreplog.system import SystemDisk
from tests.unit.log.conftest import Place
from tests.unit.log.support import batch, contents, create, raw, reopen

testcapi = pytest.importorskip("_testcapi", reason="allocations that fail need the interpreter's own tests")
PATIENCE = 10
"""An append that met no failure so often in a row makes no more allocations."""


class NoMemory:
    """In the place of what knows the producers: it knows them, and cannot be told anything."""

    def __init__(self, known: ProducerState) -> None:
        self.table = known.table

    def note(self, *_: object) -> None:
        """Never."""
        raise MemoryError

    note_bytes = note_all = note


WAYS: dict[str, Callable[[Log], object]] = {
    "own": lambda log: log.append_as_leader(batch(1, sequence=0), 0, trusted=True),
    "client's": lambda log: log.append_as_leader(bytes(batch(1, sequence=0)), 0),
    "group": lambda log: log.append_many_as_leader([(batch(1, sequence=0), True), (batch(1, sequence=1), True)], 0),
    "follower": lambda log: log.append_as_follower([batch(1, base_offset=1, leader_epoch=0, sequence=0)]),
    "followers": lambda log: log.append_as_follower(
        [batch(1, base_offset=1, leader_epoch=0, sequence=0), batch(1, base_offset=2, leader_epoch=0, sequence=1)]
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_log_that_does_not_know_who_wrote_goes_no_further(place: Place, way: str) -> None:
    """Else what is sent again would be appended again. The next opening finds it in the batches."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_leader(batch(1), 0)
    log.producers = cast("ProducerState", NoMemory(log.producers))
    with pytest.raises(MemoryError):
        WAYS[way](log)
    end = log.end_offset
    assert end == log._active.next_offset
    with pytest.raises(ClosedError, match="earlier failure"):
        log.append_as_leader(batch(1), 0)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert log.end_offset == end > 1
    again = log.append_as_leader(batch(1, sequence=0), 0)
    assert (again.duplicate, again.base_offset) == (True, 1)
    log.close(clean=False)


CHANGES: dict[str, Callable[[EpochCache], object]] = {
    "assign": lambda history: history.assign(50, 10_000),
    "cut": lambda history: history.truncate_from_end(2800),
    "raise": lambda history: history.truncate_from_start(450),
    "restore": lambda history: history.restore([(epoch, epoch) for epoch in range(30)]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_history_is_changed_as_a_whole(change: str) -> None:
    """The epochs and where they begin: both, or none."""
    failed = 0
    for number in range(40):
        history = EpochCache(
            [(epoch, 300 + 100 * epoch) for epoch in range(30)]
        )  # more than the interpreter keeps at hand
        before = history.entries
        ended = False
        testcapi.set_nomemory(number, number + 1)
        try:
            CHANGES[change](history)
        except MemoryError:
            ended = True
        finally:
            testcapi.remove_mem_hooks()
        failed += ended
        assert (history.entries == before) is ended
        assert history.latest == history.entries[-1].epoch
    assert failed


def ways(log: Log) -> dict[str, Callable[[], object]]:
    """Each way to append, with all that it is given made beforehand."""
    end = log.end_offset
    two = [bytes(batch(2, base_offset=end, leader_epoch=0)), bytes(batch(1, base_offset=end + 2, leader_epoch=1))]
    one = [bytes(batch(2, base_offset=end, leader_epoch=0))]
    numbered, own, foreign = batch(2, sequence=0), batch(2), bytes(batch(2))
    group: Any = [(batch(2, tag=b"%d" % number, sequence=2 * number), True) for number in range(3)]
    return {
        "own": lambda: log.append_as_leader(own, 0, trusted=True),
        "client's": lambda: log.append_as_leader(foreign, 0),
        "producer's": lambda: log.append_as_leader(numbered, 0),
        "group": lambda: log.append_many_as_leader(group, 0),
        "follower": lambda: log.append_as_follower(one),
        "new epoch": lambda: log.append_as_follower(two),
    }


# Which thread's allocation fails is chance: it may be that of a thread that syncs, which then does
# not begin.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.usefixtures("failing_allocations")
@pytest.mark.parametrize("way", ["own", "client's", "producer's", "group", "follower", "new epoch"])
def test_whichever_allocation_fails(tmp_path: Path, way: str) -> None:
    """End, bytes, history and producers agree; or the log goes no further, and the next opening makes them
    agree."""
    config = LogConfig(durability="os", index_interval_bytes=0)
    failed = number = idle = 0
    while idle < PATIENCE:
        disk = SystemDisk()
        path = str(tmp_path / f"{number}-0")
        log = create(disk, path, config)
        log.append_as_leader(batch(1), 0)
        append = ways(log)[way]
        try:
            testcapi.set_nomemory(number, number + 1)
            try:
                append()
            finally:
                testcapi.remove_mem_hooks()
            idle += 1
        except (MemoryError, UnknownServerError):  # the latter for a batch of a client's
            failed, idle = failed + 1, 0
        number += 1
        assert log.end_offset == log._active.next_offset
        assert not log.epochs.entries or log.epochs.entries[-1].start_offset <= log.end_offset
        end = log.end_offset
        if log.failure is None:
            known = log.producers.table.get(7)
            written = [one for one in split(raw(log)) if one.producer_id == 7]
            assert [one.last_sequence for one in written] == (
                [] if known is None else [one.last_sequence for one in known.batches]
            )
            log.append_as_leader(batch(1, tag=b"next"), log.epochs.latest)
            end += 1
            assert [record.offset for record in contents(log)] == [*range(end)]
        log.close(clean=False)
        log = reopen(disk, path)
        assert log.end_offset == end
        assert [record.offset for record in contents(log)] == [*range(end)]
        log.close(clean=False)
        disk.close()
    assert failed >= 3
