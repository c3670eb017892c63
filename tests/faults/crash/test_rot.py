"""Rot in a small root that was closed in order: flips of every small file (a half, drawn by seed), every length,
every file gone.

Whatever is damaged, opening for writing and reading beside give the records that were written, a beginning of them
where nothing vouches for more, or an error of this library; never anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, CorruptLogError, PyreplogError
from pyreplog.log import LogRoot, open_readers
from pyreplog.log.layout import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TORN_PREFIX
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.faults.crash.lives import Content, content_of
from tests.seed import SEED, tell
from tests.unit.log.support import CLOCK, batch, bytes_of, contents, leave_open, raw, sync

ROOT: Final = "data"
KEY: Final = TopicPartition("t", 0)
FOLDER: Final = f"{ROOT}/t-0"
TOPIC_ID: Final = "AbCdEfGhIjKlMnOpQrStUw"
TIMES: Final = tuple(range(990, 1140, 10))


def make(*, clean: bool) -> tuple[SimDisk, Content, dict[int, object]]:
    """A root of three segments in two epochs, closed or not; its content; the answer to each search by time."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, TOPIC_ID, LogConfig(segment_bytes=1024, index_interval_bytes=150))
    log.become_leader(0)
    for number in range(12):
        if number == 7:
            log.become_leader(2)
        log.append_as_leader(
            batch(1, size=100, timestamp=1000 + 10 * (number if number != 8 else 3)), log.epochs.latest
        )
    sync(disk, log)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    content = content_of(raw(log))
    answers: dict[int, object] = {time: log.find_timestamp(time, log.end_offset) for time in TIMES}
    if clean:
        root.close()
    else:
        leave_open(root, log)
        content = content_of(raw(log))
        root.close(clean=False)
    disk.write_back()
    return disk, content, answers


CLEAN: Final = make(clean=True)
UNCLEAN: Final = make(clean=False)


def paths(disk: SimDisk) -> list[str]:
    """Every file of the root."""
    found = [f"{ROOT}/{name}" for name in disk.list(ROOT) if name != "t-0"]
    return found + [f"{FOLDER}/{name}" for name in disk.list(FOLDER)]


def rotten(disk: SimDisk, path: str, *, bits: int = 8, share: int = 1) -> Iterator[tuple[str, SimDisk]]:
    """The disk with each damage of ``path``, in words; of flips those of every ``share``-th byte, drawn by seed."""
    data = bytes_of(disk, path)
    size = len(data)
    for position in range(SEED % share, size, share):
        # Of what lies between the slots of the mark one bit of each byte, too.
        whole = bits == 8 and any(data[max(position - 16, 0) : position + 17])
        for bit in range(8) if whole else (position % 8,):
            damaged = disk.snapshot()
            damaged.flip(path, position, 1 << bit)
            yield f"{path}: bit {bit} of byte {position} flipped", damaged
    for cut in range(size):
        damaged = disk.snapshot()
        file = damaged.open(path, write=True)
        file.truncate(cut)
        file.close()
        yield f"{path}: {cut} of {size} bytes left", damaged
    damaged = disk.snapshot()
    damaged.remove(path)
    yield f"{path}: gone", damaged


def look(disk: SimDisk, content: Content, answers: dict[int, object] | None) -> tuple[str, str]:
    """What a reader and then a writer find: ``whole``, ``part`` or the error's name, each. Anything wrong is an
    AssertionError."""
    try:
        reader = open_readers(disk, ROOT).get(KEY)
        if reader is None:
            seen = "none"
        else:
            found = content_of(
                b"".join(bytes(one.data) for one in reader.batches(reader.start_offset, reader.end_offset))
            )
            assert found == content[: len(found)], "a reader sees wrong records"
            if answers is not None and found == content:
                for time, answer in answers.items():
                    assert reader.find_timestamp(time) == answer, (
                        f"a reader finds timestamp {time} at {reader.find_timestamp(time)}, not {answer}"
                    )
            seen = "whole" if found == content else "part"
            reader.close()
    except PyreplogError as error:
        seen = type(error).__name__
    try:
        root = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(5))
    except PyreplogError as error:
        return seen, type(error).__name__
    try:
        if KEY in root.damaged:
            return seen, type(root.damaged[KEY]).__name__
        log = root.logs.get(KEY)
        if log is None:
            return seen, "none"
        found = content_of(raw(log))
        assert found == content[: len(found)], "a writer finds wrong records"
        if answers is not None and found == content:
            for time, answer in answers.items():
                assert log.find_timestamp(time, log.end_offset) == answer, (
                    f"timestamp {time} is found elsewhere than {answer}"
                )
            assert [record.offset for record in contents(log)] == list(range(log.end_offset))
            assert list(log.epochs.entries) == [(0, 0), (2, 7)], "the epochs"
        return seen, "whole" if found == content else "part"
    except PyreplogError as error:
        return seen, type(error).__name__
    finally:
        root.close(clean=False)


SMALL: Final = [path for path in paths(CLEAN[0]) if not path.endswith((LOG_SUFFIX, ".lock"))]


def test_undamaged_it_is_whole() -> None:
    """The starting point: three segments, all there."""
    disk, content, answers = CLEAN
    assert sum(path.endswith(LOG_SUFFIX) for path in paths(disk)) >= 3
    assert {path.rpartition("/")[2] for path in SMALL} >= {
        ".kafka_cleanshutdown",
        "meta.properties",
        "replog.incarnation",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "replog.config",
        "replog.mark",
    }
    assert look(disk.snapshot(), content, answers) == ("whole", "whole")
    assert look(UNCLEAN[0].snapshot(), UNCLEAN[1], None) == ("part", "whole")


@pytest.mark.parametrize("path", SMALL)
def test_no_rot_of_a_small_file_costs_a_record(path: str) -> None:
    """All records of a log that was closed are found by a reader and by the next writer, or an error says why
    not."""
    tell()
    small_file(path, share=2)


def small_file(path: str, share: int = 1) -> None:
    """Of every flip, or of a share."""
    disk, content, answers = CLEAN
    outcomes: dict[tuple[str, str], int] = {}
    for what, damaged in rotten(disk, path, share=share):
        try:
            outcome = look(damaged, content, answers)
        except Exception as caught:
            raise AssertionError(what) from caught
        assert "part" not in outcome, what
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(path, outcomes)
    if path.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)) or not path.startswith(FOLDER):
        assert set(outcomes) <= {("whole", "whole"), ("whole", "ConfigError")}


@pytest.mark.parametrize("path", [path for path in paths(UNCLEAN[0]) if path.endswith(LOG_SUFFIX)])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_rot_of_a_log_is_reported_below_the_mark_and_cut_above(path: str, power: bool) -> None:
    """Below the mark: the range is named and not a byte is changed. Above it: cut, and kept beside the log."""
    tell()
    log_file(path, power, share=2)


def log_file(path: str, power: bool, share: int = 1) -> None:
    """Of a flip in every byte, or in a share."""
    disk, content, _ = UNCLEAN
    durable = 12
    bits = 1  # one bit of each byte: the checksum is for the others
    newest = max(one for one in paths(disk) if one.endswith(LOG_SUFFIX))
    for what, rot in rotten(disk, path, bits=bits, share=share):
        damaged = rot.crash(Random(1)) if power else rot
        before = {one: bytes_of(damaged, one) for one in paths(damaged) if one.endswith(LOG_SUFFIX)}
        root = LogRoot.open(damaged, ROOT, clock=CLOCK, random=Random(5))
        after = {one: bytes_of(damaged, one) for one in paths(damaged) if one.endswith(LOG_SUFFIX)}
        error = root.damaged.get(KEY)
        if error is not None:
            assert isinstance(error, CorruptLogError), (what, error)
            assert 0 <= error.start < durable, (what, error)
            assert error.start < error.end, what
            assert after == before, what
        else:
            log = root.logs[KEY]
            try:
                found = content_of(raw(log))
            except CorruptError:
                found = ()  # in a segment below the one that the mark ends in: told when it is read
                assert log.end_offset >= durable, what
                assert path != newest, what
            else:
                # A leader epoch above the mark is nobody's word but the batch's own, and outside
                # its checksum.
                assert _without_epochs(found, durable) == _without_epochs(content[: len(found)], durable), what
                assert log.end_offset >= durable, what
                assert len(found) >= durable, what
            gone = [one for one in before if after.get(one) != before[one]]
            for one in gone:
                cut = before[one][len(after.get(one, b"")) :]
                kept = [
                    bytes_of(damaged, f"{FOLDER}/{name}")
                    for name in damaged.list(FOLDER)
                    if name.startswith(TORN_PREFIX)
                ]
                assert cut in kept or not any(cut), what
        root.close(clean=False)


def _without_epochs(content: Content, start: int) -> Content:
    return tuple((end, data if end <= start else data[:12] + data[16:]) for end, data in content)
