"""The summary of a root's partitions: there at once after a clean stop, opened on first use, and never believed
where it is not whole."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog._core import crc32c
from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, CorruptError, StorageError
from pyreplog.log import Log, LogRoot, UnloadedLog
from pyreplog.log.clean_shutdown import read_farewell
from pyreplog.log.layout import CLEAN_SHUTDOWN_NAME, MARK_NAME, SUMMARIES_NAME
from pyreplog.log.snapshot import read_offsets
from pyreplog.log.summary import NEVER_MS, Summary, checked, decode_body, decode_key, encode_body, encode_key, sealed
from pyreplog.testing import SimClock
from pyreplog.testing.disk import SimDisk
from pyreplog.values import EpochEntry, TopicPartition
from tests.unit.log.conftest import Place
from tests.unit.log.support import CLOCK, JumpingClock, StillClock, batch, contents, sync

ID = "AbCdEfGhIjKlMnOpQrStUw"
COUNT = 20
KEYS = [TopicPartition("t", number) for number in range(COUNT)]


def open_root(place: Place, seed: int = 1, *, lazy: bool = True) -> LogRoot:
    return LogRoot.open(place.disk, place.of("root"), clock=CLOCK, random=Random(seed), lazy=lazy)


def fill(place: Place, seed: int = 1, **settings_: object) -> None:
    """A root of twenty partitions with as many records as their number says, closed in order."""
    root = open_root(place, seed)
    for key in KEYS:
        log = root.create_log(*key, ID, LogConfig(durability="os", segment_bytes=1024, **settings_))  # type: ignore[arg-type]
        log.become_leader(3)
        for _ in range(key.partition):
            log.append_as_leader(batch(1, size=200), 3)
        log.advance_high_watermark(log.end_offset)
        log.increment_start_offset(key.partition // 4)
    root.close()


def test_the_ends_of_compacted_records_survive_logs_that_are_not_opened(place: Place) -> None:
    """The summary does not have them: they come from the checkpoint, at the opening of each log, and stay in it."""
    fill(place)
    root = open_root(place)
    for key in KEYS[5:8]:
        root.logs[key].note_cleaned(key.partition - 1)
    root.checkpoint_cleaned_ends()
    root.close()
    for seed in (2, 3):
        root = open_root(place, seed)
        assert root.logs[KEYS[6]].cleaned_end == 5
        assert root.logs[KEYS[9]].cleaned_end == 0
        root.logs[KEYS[6]].cleaned_end = 5
        root.remove_log(KEYS[5])
        root.checkpoint_cleaned_ends()
        written = {KEYS[6]: 5, KEYS[7]: 6}
        assert read_offsets(place.disk, place.of("root/cleaner-offset-checkpoint")) == written
        root.close()
        assert read_offsets(place.disk, place.of("root/cleaner-offset-checkpoint")) == written
    root = open_root(place, 4)
    assert root.logs[KEYS[7]].cleaned_end == 6
    root.close()


def check(root: LogRoot) -> None:
    """Every partition is there and has what it had."""
    assert list(root.logs) == sorted(KEYS, key=str)
    for key in KEYS:
        log = root.logs[key]
        assert (log.start_offset, log.end_offset, log.high_watermark) == (
            key.partition // 4,
            key.partition,
            key.partition,
        )
        assert [record.offset for record in contents(log)] == list(range(key.partition // 4, key.partition))
    assert not root.damaged


def opened(root: LogRoot) -> int:
    return len(root.logs.opened())


def test_a_clock_that_jumps_ahead_takes_one_segment_at_a_time(place: Place) -> None:
    """What only a jump of the wall clock makes old goes one segment a run also of logs that were asleep when it
    jumped."""

    clock = JumpingClock()

    def begin() -> LogRoot:
        return LogRoot.open(place.disk, place.of("root"), clock=clock, random=Random(1), lazy=True)

    root = begin()
    for key in KEYS:
        log = root.create_log(*key, ID, LogConfig(durability="os", segment_bytes=1024, retention_ms=3_600_000))
        for _ in range(20):
            log.append_as_leader(batch(1, size=200, timestamp=clock.now_ms), 0)
        log.advance_high_watermark(20)
    root.close()
    root = begin()
    assert opened(root) == 0
    clock.jump_ms = 10**9
    assert [root.apply_retention() for _ in range(2)] == [COUNT, COUNT]
    clock.jump_ms = 0
    assert root.apply_retention() == 0
    root.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_log_that_cannot_wake_for_lack_of_means_sleeps_on(code: int) -> None:
    """Whichever file of it no descriptor is left for: nothing is wrong with it, and the next trial opens it as it
    was, in the epoch that it was given while it slept."""
    disk = SimDisk(Random(1))
    fill(Place(disk, ""))
    for kind in ("open", "create", "read"):
        refused, nth = 0, 1
        while True:
            at = disk.snapshot()
            root = LogRoot.open(at, "/root", clock=SimClock(), random=Random(1), lazy=True)
            log = root.logs.peek(KEYS[7])
            assert isinstance(log, UnloadedLog)
            log.become_leader(9)
            at.fail(kind, f"/root/{KEYS[7]}/*", nth=nth, error=code)
            try:
                log.load().append_as_leader(batch(1), 9)
                break
            except StorageError as error:
                assert error.errno == code
            at.clear_faults()
            refused += 1
            assert isinstance(log, UnloadedLog)
            assert (log.failure, root.damaged, opened(root)) == (None, {}, 0)
            loaded = log.load()
            assert loaded.append_as_leader(batch(1), 9).base_offset == 7
            assert loaded.epochs.entries[-1] == EpochEntry(9, 7)
            assert opened(root) == 1
            root.close()
            nth += 1
        assert refused, kind


def test_a_clean_start_opens_no_partition(place: Place) -> None:
    """After a clean stop every partition is known with its facts, and none is opened until it is asked for."""
    fill(place)
    root = open_root(place, 2)
    assert opened(root) == 0
    assert len(root.logs) == COUNT
    assert KEYS[7] in root.logs
    assert list(root.logs) == sorted(KEYS, key=str)
    summary = root.logs.summary(KEYS[7])
    assert summary is not None
    assert (summary.start_offset, summary.end_offset, summary.high_watermark, summary.flushed_offset) == (1, 7, 7, 7)
    assert (summary.topic_id, summary.durability, summary.epochs) == (ID, "os", (EpochEntry(3, 1),))
    assert sum(size for _, size in summary.segments) == root.logs[KEYS[7]].stats().size
    assert opened(root) == 1
    assert root.logs[KEYS[7]].recovery.clean
    check(root)
    assert opened(root) == COUNT
    root.close()


def test_a_log_of_which_everything_was_deleted_wakes(place: Place) -> None:
    """It has no record that bears its last epoch, and keeps that all the same, asleep and awake."""
    fill(place)
    with_rest = open_root(place)
    for key in KEYS:
        with_rest.logs[key].increment_start_offset(key.partition)
    with_rest.close()
    for seed in range(2, 5):
        root = open_root(place, seed)
        peek = root.logs.peek(KEYS[7], None)
        assert isinstance(peek, UnloadedLog)
        told = peek.epochs.entries
        log = root.logs[KEYS[7]]
        assert (log.start_offset, log.end_offset, log.epochs.entries) == (7, 7, told)
        assert list(told) == [(3, 7)]
        root.close()


@pytest.mark.parametrize("harm", ["gone", "empty", "garbled"])
def test_a_log_whose_mark_was_lost_wakes(place: Place, harm: str) -> None:
    """What the mark said the summary says, too: the log opens as it was left, what was deleted stays so, and so it
    is after a kill."""
    fill(place)
    path = place.of(f"root/{KEYS[7]}/{MARK_NAME}")
    if harm == "gone":
        place.disk.remove(path)
    else:
        file = place.disk.open(path, write=True)
        file.truncate(0)
        file.write_at(0, [b"" if harm == "empty" else b"\xff" * 400])
        file.close()
    root = open_root(place, 2)
    check(root)
    assert not root.logs[KEYS[7]].incomplete
    root.close()
    place.disk.remove(place.of(f"root/{CLEAN_SHUTDOWN_NAME}"))
    root = open_root(place, 3)
    check(root)
    assert not root.logs[KEYS[7]].incomplete
    root.close()


def test_a_log_whose_mark_was_lost_with_its_end_is_damaged(place: Place) -> None:
    """Records are missing that were there at the clean end: it is refused, now and later, and no new mark calls
    that whole."""
    fill(place)
    place.disk.remove(place.of(f"root/{KEYS[7]}/{MARK_NAME}"))
    last = max(name for name in place.disk.list(place.of(f"root/{KEYS[7]}")) if name.endswith(".log"))
    file = place.disk.open(place.of(f"root/{KEYS[7]}/{last}"), write=True)
    file.truncate(0)
    file.close()
    root = open_root(place, 2)
    with pytest.raises(CorruptError, match=r"ends below the end recorded in its mark.*offsets 6 to 6 are damaged"):
        root.logs.peek(KEYS[7]).load()  # type: ignore[union-attr]
    root.close()
    for seed in (3, 4):
        root = open_root(place, seed, lazy=False)
        assert list(root.damaged) == [KEYS[7]]
        root.close()


def test_who_was_not_opened_is_remembered_on(place: Place) -> None:
    """Several lives, each of which touches one partition: nothing is forgotten, checkpoints included, and changes
    are seen."""
    fill(place)
    for life in range(4):
        root = open_root(place, 10 + life)
        assert opened(root) == 0
        log = root.logs[KEYS[life]]
        log.append_as_leader(batch(1), 3)
        log.advance_high_watermark(log.end_offset)
        root.checkpoint_high_watermarks()
        root.checkpoint_recovery_points()
        root.checkpoint_log_starts()
        root.close()
    root = open_root(place, 20, lazy=False)
    assert opened(root) == COUNT
    assert [root.logs[key].end_offset for key in KEYS] == [number + (number < 4) for number in range(COUNT)]
    root.close()
    checkpoint = place.read(f"root/{'replication-offset-checkpoint'}").decode().splitlines()
    assert len(checkpoint) == COUNT + 2
    assert len(place.read("root/log-start-offset-checkpoint").decode().splitlines()) == 2 + sum(
        n // 4 > 0 for n in range(COUNT)
    ) - _at_base(place)


def _at_base(place: Place) -> int:
    """Logs whose start is that of their first segment are not in the checkpoint of starts."""
    root = open_root(place, 30, lazy=False)
    count = sum(0 < log.start_offset <= log.first_base_offset for log in root.logs.values())
    root.close()
    return count


def spoil_missing(place: Place) -> None:
    place.disk.remove(place.of(f"root/{SUMMARIES_NAME}"))


def spoil_empty(place: Place) -> None:
    write(place, b"")


def spoil_garbage(place: Place) -> None:
    write(place, bytes(range(256)) * 40)


def spoil_short(place: Place) -> None:
    write(place, place.read(f"root/{SUMMARIES_NAME}")[:-1])


def spoil_longer(place: Place) -> None:
    write(place, place.read(f"root/{SUMMARIES_NAME}") + b"\0")


def spoil_folder(place: Place) -> None:
    spoil_missing(place)
    place.disk.make_directory(place.of(f"root/{SUMMARIES_NAME}"))


def spoil_foreign(place: Place) -> None:
    """The store of another root, whole, which a marker of that root names."""
    other = Place(place.disk, place.of("other"))
    place.disk.make_directory(other.path)
    fill(other, 99)
    write(place, other.read(f"root/{SUMMARIES_NAME}"))


def spoil_foreign_marked(place: Place) -> None:
    """The same, and the marker names its content: the entries are still of another life."""
    spoil_foreign(place)
    farewell = read_farewell(place.disk, place.of("root"))
    assert farewell is not None
    assert farewell.store is not None
    content = place.read(f"root/{SUMMARIES_NAME}")
    marker = place.read(f"root/{CLEAN_SHUTDOWN_NAME}").decode()
    marker = marker.replace(str(farewell.store[0]), str(len(content))).replace(
        str(farewell.store[1]), str(crc32c(content))
    )
    write(place, marker.encode(), CLEAN_SHUTDOWN_NAME)


def spoil_stale(place: Place) -> None:
    """An old copy is put back after another life."""
    old = place.read(f"root/{SUMMARIES_NAME}")
    root = open_root(place, 5)
    root.logs[KEYS[3]].update_config(LogConfig(durability="os", segment_bytes=2000))
    root.logs[KEYS[3]].append_as_leader(batch(1), 3)
    root.logs[KEYS[3]].truncate_to(3)
    root.close()
    write(place, old)


def write(place: Place, content: bytes, name: str = SUMMARIES_NAME) -> None:
    file = place.disk.open(place.of(f"root/{name}"), write=True)
    file.truncate(0)
    file.write_at(0, [content])
    file.close()


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_missing,
        spoil_empty,
        spoil_garbage,
        spoil_short,
        spoil_longer,
        spoil_folder,
        spoil_foreign,
        spoil_foreign_marked,
        spoil_stale,
    ],
)
def test_a_bad_store_costs_time_and_no_data(place: Place, spoil: Callable[[Place], None]) -> None:
    """A store that is missing, foreign, stale or damaged is not believed: the folders are read, and the next stop
    leaves a good one."""
    fill(place)
    spoil(place)
    root = open_root(place, 6)
    assert opened(root) == COUNT
    assert root.clean
    assert any(SUMMARIES_NAME in note for note in root.notes)
    check(root)
    root.close()
    if spoil is not spoil_folder:
        root = open_root(place, 7)
        assert opened(root) == 0
        check(root)
        root.close()


def test_no_flipped_bit_is_believed(place: Place) -> None:
    """One flipped bit anywhere in the store's file: it is not even opened as one. (LMDB would trust it, and may
    crash.)"""
    fill(place)
    marker = place.read(f"root/{CLEAN_SHUTDOWN_NAME}")
    content = place.read(f"root/{SUMMARIES_NAME}")
    disk = place.disk
    random = Random(3)
    for _ in range(12 if isinstance(disk, SimDisk) else 2):
        flipped = bytearray(content)
        flipped[random.randrange(len(content))] ^= 1 << random.randrange(8)
        write(place, bytes(flipped))
        root = open_root(place, 6)
        assert opened(root) == COUNT
        check(root)
        root.close(clean=False)
        restored = disk.create(place.of(f"root/{CLEAN_SHUTDOWN_NAME}"))
        restored.write_at(0, [marker])
        restored.close()


def test_an_unclean_stop_ignores_it(place: Place) -> None:
    """Without the marker the store counts for nothing."""
    fill(place)
    open_root(place, 4).close(clean=False)
    root = open_root(place, 5)
    assert not root.clean
    assert opened(root) == COUNT
    check(root)
    root.close()


def test_folders_that_came_and_went_are_noticed(place: Place) -> None:
    """A partition removed or added by somebody while nothing ran is as its folder says, whatever the store says."""
    fill(place)
    whole = Place(place.disk, place.of("other"))
    place.disk.make_directory(whole.path)
    fill(whole, 99)
    disk = place.disk
    disk.rename(place.of("root/t-5"), place.of("gone-5"))
    disk.rename(whole.of("root/t-6"), place.of("root/u-0"))
    root = open_root(place, 4)
    assert KEYS[5] not in root.logs
    assert root.logs.get(KEYS[5]) is None
    assert opened(root) == 0 or root.logs.opened()[0].topic_partition == TopicPartition("u", 0)
    assert len(root.logs) + len(root.damaged) == COUNT
    assert len(root.logs) == COUNT
    root.close()


def test_one_that_turns_out_damaged_is_told_when_asked_for(place: Place) -> None:
    """Asking for a partition whose files are damaged finds nothing; the reason is kept, no clean stop is signed,
    its checkpoints stay."""
    fill(place)
    names = [name for name in place.disk.list(place.of("root/t-9")) if name.endswith(".log")]
    file = place.disk.open(place.of(f"root/t-9/{names[-1]}"), write=True)
    file.truncate(10)
    file.close()
    root = open_root(place, 4)
    assert not root.damaged
    assert root.logs.get(KEYS[9]) is None
    assert isinstance(root.damaged[KEYS[9]], CorruptError)
    assert KEYS[9] not in root.logs
    with pytest.raises(CorruptError):
        root.create_log(*KEYS[9], ID, LogConfig())
    root.close()
    assert read_farewell(place.disk, place.of("root")) is None
    assert b"t 9 9" in place.read("root/replication-offset-checkpoint")


def test_who_goes_on_with_one_that_turned_out_damaged_hears_why(place: Place) -> None:
    """Whoever held on to it while it slept: each use says that it could not be opened, or is closed, and nothing
    else."""
    fill(place)
    place.disk.remove(place.of(f"root/t-9/{MARK_NAME}"))
    place.disk.remove(place.of("root/t-9/partition.metadata"))
    root = open_root(place, 4)
    log = root.logs.peek(KEYS[9], LogConfig())
    assert isinstance(log, UnloadedLog)
    with pytest.raises(CorruptError):
        log.load()
    for use in (lambda: log.become_leader(7), log.load):
        with pytest.raises(ClosedError, match="t-9 could not be opened"):
            use()
    log.close(clean=False)
    with pytest.raises(ClosedError, match="t-9 is closed"):
        log.load()
    root.close()


def test_a_store_that_cannot_be_written_is_no_failure() -> None:
    """A disk that has no room for it, or refuses: the stop is a clean one, and the next start reads the folders."""
    for number in range(1, 7):
        disk = SimDisk(Random(1))
        disk.make_directory("d")
        place = Place(disk, "d")
        root = open_root(place)
        for key in KEYS:
            root.create_log(*key, ID, LogConfig())
        fault = disk.fail("*", f"*/{SUMMARIES_NAME}", nth=number)
        root.close()
        again = open_root(place, 2)
        assert again.clean
        assert opened(again) == (COUNT if fault.hits else 0)
        again.close()


def test_retention_opens_only_where_it_has_something_to_do(place: Place) -> None:
    """The summary says from when on a look is of use."""
    clock = StillClock()
    root = LogRoot.open(place.disk, place.of("root"), clock=clock, random=Random(1))
    for key in KEYS:
        retention = {3: {"retention_ms": 1000}, 4: {"retention_ms": 10**9}, 5: {"retention_bytes": 1}}.get(
            key.partition, {}
        )
        log = root.create_log(*key, ID, LogConfig(durability="os", segment_bytes=1024, **retention))  # type: ignore[arg-type]
        log.become_leader(0)
        for _ in range(10):
            log.append_as_leader(batch(1, size=400, timestamp=clock.now_ms), 0)
        log.advance_high_watermark(10)
    root.close()
    clock.now_ms += 1001
    root = LogRoot.open(place.disk, place.of("root"), clock=clock, random=Random(2), lazy=True)
    assert root.logs.summary(KEYS[0]).retention_due_ms == NEVER_MS  # type: ignore[union-attr]
    assert root.apply_retention() > 0
    assert sorted(log.topic_partition.partition for log in root.logs.opened()) == [3, 5]
    assert root.logs[KEYS[3]].start_offset == 10
    root.close()


@settings(max_examples=200, deadline=None)
@given(
    topic=st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,40}", fullmatch=True),
    partition=st.integers(0, 2**31 - 1),
    offsets=st.lists(st.integers(0, 2**63 - 1), min_size=6, max_size=6),
    epochs=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=5),
    segments=st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)), max_size=5),
    durability=st.sampled_from(["sync", "os"]),
    flip=st.integers(0, 10**6),
)
def test_an_entry_says_what_was_put_in(
    topic: str,
    partition: int,
    offsets: list[int],
    epochs: list[tuple[int, int]],
    segments: list[tuple[int, int]],
    durability: str,
    flip: int,
) -> None:
    """Every field round-trips; another key, another life or a flipped bit is noticed."""
    first, start, end, flushed, high_watermark, due = offsets
    history = tuple(EpochEntry(*one) for one in epochs)
    summary = Summary(ID, durability, True, first, start, end, flushed, high_watermark, history, tuple(segments), due)
    where = TopicPartition(topic, partition)
    key = encode_key(where)
    assert decode_key(key) == where
    value = sealed(key, "life", encode_body(summary))
    assert checked(key, "life", value)
    assert decode_body(value[4:]) == summary
    assert not checked(key, "another", value)
    assert not checked(key + b"x", "life", value)
    assert checked(key, "next", sealed(key, "next", value[4:]))
    spoiled = bytearray(value)
    spoiled[flip % len(value)] ^= 1 << flip % 8
    assert not checked(key, "life", bytes(spoiled))


def test_the_real_store_refuses_what_is_none(place: Place) -> None:
    """A file that is no store, one that is not there, and a link are errors of ours."""
    disk = place.disk
    with pytest.raises(StorageError):
        disk.open_store(place.of("nothing"), write=False)
    file = disk.create(place.of("garbage"))
    file.write_at(0, [b"x" * 10_000])
    file.close()
    with pytest.raises((CorruptError, StorageError)):
        list(disk.open_store(place.of("garbage"), write=False).scan())
    store = disk.open_store(place.of("fresh"), write=True)
    store.fill([(b"b", b"2"), (b"a", b"1" * 5000)])
    assert list(store.scan()) == [(b"a", b"1" * 5000), (b"b", b"2")]
    store.close()
    store.close()


def test_small_roots_do_without(place: Place) -> None:
    """A few folders are read as fast: no store is made for them."""
    root = open_root(place)
    log = root.create_log("t", 0, ID, LogConfig())
    log.become_leader(0)
    log.append_as_leader(batch(1), 0)
    sync(place.disk, log)
    root.close()
    assert place.disk.stat(place.of(f"root/{SUMMARIES_NAME}")) is None
    assert isinstance(open_root(place, 2).logs[KEYS[0]], Log)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("count", "limit"), [(100, 100), pytest.param(10_000, 256, marks=pytest.mark.soak)])
def test_many_partitions_share_few_descriptors(tmp_path: Path, count: int, limit: int) -> None:
    """Every partition of a large root opened, read and written once: no more descriptors are held than the limit
    and what is unsynced."""
    script = """
import os, resource, sys
from random import Random
from pyreplog.config import LogConfig
from pyreplog.log import LogRoot
from pyreplog.record import BatchBuilder
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.values import TopicPartition

COUNT, limit = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

def one():
    builder = BatchBuilder()
    builder.append(b"x", None, (), 1)
    return builder.finish()

for life in range(3):
    root = LogRoot.open(SystemDisk(), sys.argv[1], clock=SystemClock(), random=Random(life), lazy=True)
    assert len(root.logs.opened()) == 0
    assert len(root.logs) == (COUNT if life else 0)
    most = 0
    for number in range(COUNT):
        key = TopicPartition("t", number)
        if life == 0:
            log = root.create_log("t", number, "AbCdEfGhIjKlMnOpQrStUw", LogConfig(durability="os"))
        else:
            log = root.logs[key]
        assert log.end_offset == life
        log.append_as_leader(one(), life)
        log.advance_high_watermark(log.end_offset)
        most = max(most, len(os.listdir("/proc/self/fd")))
    for log in root.logs.values():
        log.set_tail_cache_size(0)
        assert log.read(0, 100, log.end_offset).size > 0
        most = max(most, len(os.listdir("/proc/self/fd")))
    root.close()
    assert most <= limit
print("well")
"""
    command = [sys.executable, "-c", script, str(tmp_path / "root"), str(count), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "well\n", done.stderr
