"""JournalSync: one sync serves all threads that wait; a failure reaches each of them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from pyreplog.errors import ClosedError, PyreplogError, StorageError, UnsyncedError
from pyreplog.readers import QueueJournal
from pyreplog.runtime import queue_sync
from pyreplog.runtime.queue_sync import JournalSync

THREADS = 12
PATIENCE_S = 20.0


class Journal:
    """Counts entries and syncs. Each sync calls ``during`` with its number."""

    path = "journal"

    def __init__(self, during: Callable[[int], None]) -> None:
        self.append_count = self.durable_count = self.syncs = 0
        self.during = during
        self.lock = threading.Lock()

    def append(self) -> int:
        with self.lock:
            self.append_count += 1
            return self.append_count

    def sync(self) -> None:
        covered = self.append_count
        self.syncs += 1
        self.during(self.syncs)
        self.durable_count = covered


def crowd(journal: Journal, during: list[Callable[[], None]]) -> list[PyreplogError | None]:
    """Append and wait in a first thread; once its sync has begun, in all others too. Return how each ended."""
    syncs = JournalSync(cast("QueueJournal", journal))
    ended: list[PyreplogError | None] = []
    first = threading.Event()

    def work() -> None:
        count = journal.append()
        try:
            syncs.wait(count)
        except PyreplogError as error:
            ended.append(error)
        else:
            assert journal.durable_count >= count
            ended.append(None)

    def wait_for_the_others() -> None:
        first.set()
        deadline = threading.Event()
        while syncs._group.count < THREADS - 1:
            deadline.wait(0.001)

    during.append(wait_for_the_others)
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    threads[0].start()
    assert first.wait(PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert len(ended) == THREADS
    return ended


def test_all_that_come_during_a_sync_share_the_next_one() -> None:
    """Two syncs serve twelve threads, and each returns only when its entry is durable."""
    during: list[Any] = []
    journal = Journal(lambda number: during[0]() if number == 1 else None)
    assert crowd(journal, during) == [None] * THREADS
    assert journal.syncs == 2


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failed_sync_is_raised_in_every_thread_that_needed_it_and_never_tried_again(failing: int) -> None:
    """Those of an earlier sync that succeeded are served."""
    during: list[Any] = []

    def sync(number: int) -> None:
        if number == 1:
            during[0]()
        if number == failing:
            raise StorageError(errno.EIO, "the disk is broken", "journal")

    journal = Journal(sync)
    ended = crowd(journal, during)
    assert journal.syncs == failing
    assert sum(isinstance(error, UnsyncedError) for error in ended) == (THREADS if failing == 1 else THREADS - 1)
    assert ended.count(None) == failing - 1


def test_a_sync_without_a_descriptor_is_tried_again_by_the_others() -> None:
    """It did not begin, so only the thread that tried it gets the error."""
    during: list[Any] = []

    def sync(number: int) -> None:
        if number == 1:
            during[0]()
            raise StorageError(errno.EMFILE, "too many files are open", "journal")

    journal = Journal(sync)
    ended = crowd(journal, during)
    assert sum(isinstance(error, UnsyncedError) for error in ended) == 1
    assert ended.count(None) == THREADS - 1


def test_a_close_reaches_every_thread() -> None:
    """Also those that sleep: each tries the sync itself and is refused."""
    during: list[Any] = []

    def sync(number: int) -> None:
        if number == 1:
            during[0]()
        raise ClosedError("journal is closed")

    ended = crowd(Journal(sync), during)
    assert [type(error) for error in ended] == [ClosedError] * THREADS


def test_an_interrupted_owner_passes_the_sync_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during a sync ends it for its own thread; another thread syncs for the rest."""
    monkeypatch.setattr(queue_sync, "LOOK_AGAIN_S", PATIENCE_S * 10)
    during: list[Any] = []

    def sync(number: int) -> None:
        if number == 1:
            during[0]()
            raise InterruptedSync("Ctrl-C")

    journal = Journal(sync)
    ended = crowd(journal, during)
    assert ended.count(None) == THREADS - 1
    assert journal.syncs >= 2


class InterruptedSync(PyreplogError):
    """Stands for an exception of a signal handler, which a thread of a test cannot get."""
