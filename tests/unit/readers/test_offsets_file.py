"""The file of a named reader's offsets: it says what was committed, whatever ends its process."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import ClosedError, CorruptError, LockedError, PyreplogError, StorageError
from pyreplog.readers import EntryKind, OffsetEntry, OffsetsFile, offsets_file, topic_crc
from pyreplog.record import crc32c
from pyreplog.testing import SimDisk, crash_points, error_points

FOLDER = "/log"
PATH = f"{FOLDER}/replog.offsets-billing"
IDS = ["AbCdEfGhIjKlMnOpQrStUw", "BbCdEfGhIjKlMnOpQrStUw"]
AFTER = 1000
"""What a check commits lies above all commits of the workload."""
TOPICS = ["orders", "payments"]


def new_disk(random: Random | None = None) -> SimDisk:
    """A disk with the log's folder."""
    disk = SimDisk(random or Random(5))
    disk.make_directory(FOLDER)
    disk.sync_directory("/")
    return disk


def opened(disk: SimDisk) -> OffsetsFile:
    """The file of the reader ``billing``."""
    return OffsetsFile.open(disk, FOLDER, "billing")


def commit(
    offset: int, *, topic: str = "orders", topic_id: str = IDS[0], partition: int = 0, epoch: int = 0
) -> OffsetEntry:
    """One commit."""
    return OffsetEntry(EntryKind.COMMIT, topic_id, partition, offset, epoch, 0, 1_700_000_000_000, topic_crc(topic))


def attempt(offset: int, count: int) -> OffsetEntry:
    """An attempt at one record."""
    return OffsetEntry(EntryKind.ATTEMPT, IDS[0], 0, offset, -1, count, 0, topic_crc("orders"))


def offset_in(file: OffsetsFile, partition: int = 0) -> int | None:
    """The committed offset."""
    found = file.commit_of("orders", IDS[0], partition)
    return None if found is None else found.offset


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(TOPICS), st.sampled_from(IDS), st.integers(0, 2), st.integers(0, 9), st.integers(1, 2)
            ),
            st.sampled_from(["reopen", "kill", "replace", "sync"]),
        ),
        max_size=40,
    )
)
def test_it_says_what_a_dictionary_says(steps: list[tuple[str, str, int, int, int] | str]) -> None:
    """After any commits and attempts, closings, kills and replacements it agrees with a slow twin: the last of each
    partition counts, and the last other id of a topic's name is found."""
    disk = new_disk()
    file = opened(disk)
    twin: dict[tuple[str, int], tuple[str, int]] = {}
    attempts: dict[tuple[str, int], tuple[int, int]] = {}
    order: list[tuple[str, str, int]] = []
    for step in steps:
        if step == "reopen":
            file.close()
            file = opened(disk)
        elif step == "kill":
            disk.kill()
            file = opened(disk)
        elif step == "replace":
            file._replace()
        elif isinstance(step, str):
            file.sync()
        else:
            topic, topic_id, partition, offset, kind = step
            if kind == EntryKind.COMMIT:
                twin[topic_id, partition] = topic, offset
                order = [one for one in order if one != (topic, topic_id, partition)]
                order.append((topic, topic_id, partition))
            else:
                attempts[topic_id, partition] = offset, 3
            file.write([OffsetEntry(kind, topic_id, partition, offset, 4, 3 * (kind - 1), 7, topic_crc(topic))])
    for topic_id in IDS:
        for partition in range(3):
            found = file.commit_of("orders", topic_id, partition)
            held = twin.get((topic_id, partition))
            assert (None if found is None else found.offset) == (None if held is None else held[1])
            noted = file.attempts_of(topic_id, partition)
            if noted is not None:
                assert attempts[topic_id, partition] == noted
    assert not file.has_damage
    file.close()


def test_another_topic_of_the_name_is_found() -> None:
    """A topic that was made again has another id; the last commit of the earlier one is there to compare."""
    disk = new_disk()
    file = opened(disk)
    file.write([commit(5), commit(7, topic="payments", topic_id=IDS[1])])
    assert file.commit_of("orders", "CbCdEfGhIjKlMnOpQrStUw", 0) is None
    found = file.earlier_commit("orders", "CbCdEfGhIjKlMnOpQrStUw", 0)
    assert found is not None
    assert (found[0], found[1].offset) == (IDS[0], 5)
    assert file.earlier_commit("orders", IDS[0], 0) is None
    assert file.earlier_commit("orders", "CbCdEfGhIjKlMnOpQrStUw", 1) is None


def test_a_commit_without_an_id_counts_for_the_id_that_comes() -> None:
    """A log from before topic ids gets its id from its first newer writer."""
    disk = new_disk()
    file = opened(disk)
    file.write([commit(5, topic_id="")])
    assert offset_in(file) == 5
    assert file.earlier_commit("orders", IDS[0], 0) is None
    found = file.commit_of("other", IDS[0], 0)
    assert found is None


def test_one_holder_at_a_time() -> None:
    """A second opening hears of the first, also after the first put a new file in its place."""
    disk = new_disk()
    file = opened(disk)
    with pytest.raises(LockedError, match="reader billing"):
        opened(disk)
    file._replace()
    with pytest.raises(LockedError, match="reader billing"):
        opened(disk)
    file.write([commit(3)])
    file.close()
    file.close()
    with pytest.raises(ClosedError):
        file.write([commit(4)])
    again = opened(disk)
    assert offset_in(again) == 3


def test_a_waiting_opener_does_not_hold_a_replaced_file() -> None:
    """Between the opening of a name and its lock another process may rename a file over it: the opener looks again."""
    disk = new_disk()
    opened(disk).close()
    lock, count = disk.lock, 0

    def replaced_first(path: str, about: str, text_position: int | None = None) -> object:
        nonlocal count
        count += 1
        taken = lock(path, about, text_position)
        if count == 1:
            holder = disk.create(f"{PATH}~")
            holder.close()
            disk.rename(f"{PATH}~", PATH)
        return taken

    disk.lock = replaced_first  # type: ignore[assignment, method-assign]
    file = opened(disk)
    assert count == 3  # the file, the file again, and the new one that took its place
    file.write([commit(9)])
    disk.kill()
    disk.lock = lock  # type: ignore[method-assign]
    assert offset_in(opened(disk)) == 9


def test_it_stays_small() -> None:
    """A file that has grown is replaced by the entries that count; a disk that refuses costs nothing but room."""
    disk = new_disk()
    file = opened(disk)
    file._grown_size = 2000
    file.write([commit(1, partition=1), attempt(0, 2)])
    for number in range(100):
        file.write([commit(number)])
    found = disk.stat(PATH)
    assert found is not None
    assert found.size < 8000
    assert (offset_in(file), offset_in(file, 1)) == (99, 1)
    assert file.attempts_of(IDS[0], 0) == (0, 2)
    file.close()
    file = opened(disk)
    assert (offset_in(file), offset_in(file, 1)) == (99, 1)


def test_a_torn_entry_is_cut() -> None:
    """Each length of the last entry leaves the entries before it, and the next one lies at its place."""
    for size in range(offsets_file.ENTRY_SIZE):
        disk = new_disk()
        file = opened(disk)
        file.write([commit(1), commit(2)])
        file.close()
        raw = disk.open(PATH, write=True)
        raw.truncate(raw.size() - offsets_file.ENTRY_SIZE + size)
        raw.close()
        file = opened(disk)
        assert offset_in(file) == 1
        file.write([commit(3)])
        file.close()
        assert offset_in(opened(disk)) == 3


def test_damage_among_the_entries_is_told_and_left_behind() -> None:
    """Entries behind a damaged one count; the file is written again without it."""
    disk = new_disk()
    file = opened(disk)
    file.write([commit(1, partition=1), commit(1), commit(2)])
    file.close()
    disk.flip(PATH, offsets_file.HEADER_SIZE + 70, 3)
    file = opened(disk)
    assert file.has_damage
    assert (offset_in(file), offset_in(file, 1)) == (2, 1)
    file.close()
    file = opened(disk)
    assert not file.has_damage
    assert (offset_in(file), offset_in(file, 1)) == (2, 1)


@pytest.mark.parametrize("content", [b"x" * 2000, b"RLOF\0\2" + bytes(600), b"{}\n" + b"\0" * 600])
def test_another_file_is_refused(content: bytes) -> None:
    """A file that holds something else is an error with its path, and stays as it is but for the holder's text."""
    disk = new_disk()
    file = disk.create(PATH)
    file.write_at(0, [content])
    file.close()
    with pytest.raises(CorruptError, match="offsets") as caught:
        opened(disk)
    assert PATH in str(caught.value)
    file = disk.open(PATH)
    assert bytes(file.read_at(0, 264)) == content[:264]


def test_a_newer_version_is_named() -> None:
    """A file of a later format is not taken for a damaged one."""
    disk = new_disk()
    opened(disk).close()
    head = bytearray(offsets_file.format_header("billing"))
    head[5] = 2
    body = bytes(head[:8]) + bytes(head[16:216])
    head[8:12] = offsets_file._CRC.pack(crc32c(body))
    file = disk.open(PATH, write=True)
    file.write_at(0, [bytes(head)])
    file.close()
    with pytest.raises(CorruptError, match="version 2"):
        opened(disk)


def test_a_failed_sync_is_not_believed_later() -> None:
    """After a sync failed, the next one writes a new file: a second sync of the old one would succeed and prove
    nothing."""
    disk = new_disk()
    file = opened(disk)
    file.write([commit(1)])
    disk.fail("sync", error=errno.EIO)
    with pytest.raises(StorageError):
        file.sync()
    disk.clear_faults()
    file.write([commit(2)])
    file.sync()
    assert offset_in(opened(disk.crash(Random(3)))) == 2


def life(disk: SimDisk, acknowledged: list[tuple[int, str]]) -> None:
    """Commits, some of them synced, over several replacements and openings. It acknowledges (offset, "asked" or
    "synced")."""
    offset = 0
    for _ in range(2):
        file = opened(disk)
        file._grown_size = 900
        for _ in range(4):
            offset += 1
            acknowledged.append((offset, "asked"))
            file.write([commit(offset)])
        file.write([attempt(offset, 1)])
        file.sync()
        acknowledged.append((offset, "synced"))
        offset += 1
        acknowledged.append((offset, "asked"))
        file.write([commit(offset)])
        file.close()


def check(disk: SimDisk, acknowledged: Sequence[tuple[int, str]]) -> None:
    """No commit that was synced is lost, none that was not asked for is there, and the file goes on."""
    synced = max((offset for offset, what in acknowledged if what == "synced"), default=0)
    file = opened(disk)
    found = offset_in(file) or 0
    last = max((offset for offset, _ in acknowledged), default=0)
    assert synced <= found
    assert found <= last or found >= AFTER  # or an earlier run of this check committed it
    file.write([commit(found + AFTER)])
    file.sync()
    file.close()
    again = opened(disk.crash(Random(3)))
    assert offset_in(again) == found + AFTER
    again.close()


def test_a_crash_at_every_call() -> None:
    """Power loss and kills before each call: nothing synced is lost, and no offset is there that was not committed."""
    report = crash_points(life, check, seed=11, disk=new_disk)
    assert report.states > 100


def test_a_refusal_of_every_call() -> None:
    """Each call fails once with each error: what was acknowledged is there, and the next opening goes on."""

    def tried(disk: SimDisk, acknowledged: list[tuple[int, str]]) -> None:
        file: OffsetsFile | None = None
        for offset in range(1, 9):
            try:
                if file is None:
                    file = opened(disk)
                    file._grown_size = 700
                acknowledged.append((offset, "asked"))
                file.write([commit(offset)])
                if offset % 3 == 0:
                    file.sync()
                    acknowledged.append((offset, "synced"))
            except PyreplogError:
                if file is not None and offset % 2:
                    file.close()
                    file = None
        if file is not None:
            file.close()

    report = error_points(tried, check, seed=11, disk=new_disk)
    assert report.errors > 50
