"""Lives of a log root that tell what they try and what they promise, and a check that holds what is left to all of
it.

Stricter than the facts of ``workloads``: a life also tells each content that the log may have, so that the check
knows every byte that may be there, and each watermark before readers are shown it. The check reads beside the
crashed folder before anybody repairs it, compares what recovery cut with what it kept, and lets the recovered log
live, acknowledge and lose power once more.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from pyreplog._core import SegmentScanner
from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, StorageError
from pyreplog.log import Log, LogRoot, open_readers
from pyreplog.log.layout import LOG_SUFFIX, TORN_PREFIX
from pyreplog.log.mark import read_mark
from pyreplog.record import split, stamp
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.unit.log.support import CLOCK, batch, bytes_of, raw, reopen_in, sync

ROOT: Final = "data/root"
KEY: Final = TopicPartition("t", 0)
FOLDER: Final = f"{ROOT}/t-0"
TOPIC_ID: Final = "AbCdEfGhIjKlMnOpQrStUw"
OTHER_ID: Final = "ZbCdEfGhIjKlMnOpQrStUw"
FIRST_BOOT: Final = SimDisk(Random(0)).boot_id("")

Content = tuple[tuple[int, bytes], ...]
"""(next offset, bytes) of each batch, oldest first."""


class Fact(NamedTuple):
    """Told before it is done (``tried``, ``showing``, ``cut``, ``removing``, ``configuring``) or once it is (the
    others).

    ``made``: the partition is there. ``tried``: the log may have ``content`` from now on. ``acked``: what
    ``content`` has below ``end`` survives what the durability says; ``synced``: it survives power loss in any case.
    ``showing``: readers may see below ``end``. ``cut``: of what was promised, that above ``end`` may go.
    ``removing``: the partition may go. ``configured``: segment.bytes is ``end``. ``failed``: the disk refused, and
    the page cache is not what it has. ``starting``: the log may begin at up to ``end``; ``started``: it does not
    begin below, whatever happens.
    """

    kind: str
    end: int = 0
    content: Content = ()


class Life:
    """One owner of the root and its log, who tells facts."""

    def __init__(
        self,
        disk: SimDisk,
        facts: list[Fact],
        durability: str,
        *,
        seed: int = 1,
        segment_size: int = 1200,
        root_class: type[LogRoot] = LogRoot,
        lazy: bool = False,
        **settings: Any,
    ) -> None:
        self.disk = disk
        self.facts = facts
        self.config = LogConfig(durability=durability, segment_bytes=segment_size, index_interval_bytes=100, **settings)  # type: ignore[arg-type]
        self.root = root_class.open(disk, ROOT, clock=CLOCK, random=Random(seed), lazy=lazy)
        if KEY in self.root.damaged:
            raise self.root.damaged[KEY]
        log = self.root.logs.get(KEY)
        if log is None:
            log = self.root.create_log("t", 0, TOPIC_ID, self.config)
        self.log: Log = log
        self.content = content_of(raw(log))
        self.facts.append(Fact("made"))

    @property
    def sync_each(self) -> bool:
        """Whether only what is synced is acknowledged."""
        return self.config.durability == "sync"

    def lead(self, epoch: int) -> None:
        """As the partition's leader."""
        self.log.become_leader(epoch)

    def append(self, count: int = 2, *, size: int = 60, tag: bytes = b"", timestamp: int = 1000) -> None:
        """As leader. Under ``os`` it is acknowledged."""
        epoch = self.log.epochs.latest
        one = batch(count, size=size, tag=b"%s%d:" % (tag, self.log.end_offset), timestamp=timestamp)
        stamped = bytearray(one)
        stamp(stamped, self.log.end_offset, epoch)
        after = self._try(bytes(stamped))
        self.log.append_as_leader(one, epoch)
        self.content = after
        if not self.sync_each:
            self.show(self.log.end_offset)
            self.facts.append(Fact("acked", self.log.end_offset, self.content))

    def follow(self, epoch: int, count: int = 1, *, size: int = 60, tag: bytes = b"") -> None:
        """Append one fetch of several batches."""
        parts = []
        end = self.log.end_offset
        for _ in range(count):
            parts.append(bytes(batch(2, size=size, base_offset=end, leader_epoch=epoch, tag=b"%s%d:" % (tag, end))))
            end += 2
        after = self._try(*parts)
        self.log.append_as_follower(parts)
        self.content = after

    def show(self, end: int) -> None:
        """Move the high watermark."""
        self.facts.append(Fact("showing", end))
        if self.log.advance_high_watermark(end):
            self.log.write_mark()

    def sync(self) -> None:
        """Make everything durable; under ``sync`` acknowledge it. A failed one poisons the log."""
        try:
            sync(self.disk, self.log)
        except StorageError:
            if self.log.failure is not None:
                self.facts.append(Fact("failed"))
                self.refuse()
            raise  # not even begun
        if self.sync_each:
            self.show(self.log.flushed_offset)
            self.facts.append(Fact("acked", self.log.flushed_offset, self.content))
        else:
            self.facts.append(Fact("synced", self.log.flushed_offset, self.content))

    def refuse(self) -> None:
        """REQUIRES a poisoned log: it takes nothing, and shows what was durable before only."""
        log = self.log
        assert log.failure is not None, "not poisoned"
        try:
            log.append_as_leader(batch(1), max(log.epochs.latest, 0))
        except ClosedError:
            pass
        else:
            raise AssertionError("a poisoned log took a batch")
        if log.flushed_offset > log.start_offset:
            part = b"".join(log.read(log.start_offset, 1 << 20, log.end_offset).parts())
            assert begins(self.content, content_of(part), log.start_offset)
        assert log.sync_plan() is None

    def cut(self, offset: int) -> None:
        """As a follower whose leader's log parts from its own at ``offset``."""
        left = tuple(one for one in self.content if one[0] <= offset)
        self.facts.append(Fact("cut", left[-1][0] if left else 0))
        self.log.truncate_to(offset)
        self.content = left
        self.facts.append(Fact("tried", 0, self.content))

    def delete(self, offset: int) -> None:
        """Hide what lies below ``offset``."""
        self.facts.append(Fact("starting", offset))
        self.log.delete_records(offset)
        self.facts.append(Fact("started", offset))

    def retain(self) -> int:
        """Remove the segments that may go; how many did."""
        self.facts.append(Fact("starting", self.log.high_watermark))
        count = self.log.apply_retention()
        if count:
            self.facts.append(Fact("started", self.log.start_offset))
        return count

    def checkpoint(self) -> None:
        """All three of the root's files."""
        self.root.checkpoint_recovery_points()
        self.root.checkpoint_high_watermarks()
        self.root.checkpoint_log_starts()

    def close(self) -> None:
        """In order: everything is durable."""
        if self.sync_each:
            self.sync()
        end = self.log.end_offset
        self.root.close()
        self.facts.append(Fact("synced", end, self.content))

    def _try(self, *batches: bytes) -> Content:
        after = self.content + tuple((split(one)[0].next_offset, one) for one in batches)
        self.facts.append(Fact("tried", 0, after))
        return after


# -- lives --


def sync_log(disk: SimDisk, facts: list[Fact]) -> None:
    """``sync``: a leader's batches over several segments, acknowledged in groups; then a follower, cut twice;
    checkpoints on the way."""
    life = Life(disk, facts, "sync")
    life.lead(0)
    for number in range(12):
        life.append(1 + number % 3, size=60 + 40 * (number % 4))
        if number % 4 in (0, 3):
            life.sync()
        if number == 6:
            life.checkpoint()
    life.follow(2, 3, size=120, tag=b"b")
    life.cut(life.log.flushed_offset)  # nothing promised goes
    life.follow(3, 3, size=120, tag=b"c")
    life.sync()
    life.follow(3, 2, tag=b"d")
    life.show(life.log.end_offset)  # above the flushed end: the leader says that it is committed
    life.checkpoint()
    life.cut(9)  # an unclean leader took over
    life.follow(5, 4, size=30, tag=b"e")
    life.sync()
    life.follow(5, tag=b"f")


def os_log(disk: SimDisk, facts: list[Fact]) -> None:
    """``os``: a leader's batches acknowledged at once, some synced; then a follower, cut, whose watermark
    follows."""
    life = Life(disk, facts, "os")
    life.lead(0)
    for number in range(9):
        life.append(1 + number % 3, size=60 + 40 * (number % 4))
        if number in (3, 7):
            life.sync()
        if number == 5:
            life.checkpoint()
    for _ in range(3):
        life.follow(2, tag=b"b")
    life.cut(life.log.high_watermark)
    for _ in range(3):
        life.follow(3, tag=b"c")  # as large as those that were cut
    life.show(life.log.end_offset - 2)
    life.cut(5)
    life.follow(6, 3, size=40, tag=b"d")
    life.sync()
    life.follow(6, 2, tag=b"e")
    life.show(life.log.end_offset)
    life.checkpoint()


def cycles(disk: SimDisk, facts: list[Fact]) -> None:
    """Clean stops and starts, an end that was none, a second topic made and removed, new settings, a log begun
    anew."""
    for number in range(3):
        life = Life(disk, facts, "sync", seed=number)
        life.lead(life.log.epochs.latest + 1)
        life.append(2, size=300, tag=b"%d" % number)
        life.append(2, size=300, tag=b"%d" % number)
        if number == 0:
            other = life.root.create_log("u", 3, OTHER_ID, life.config)
            other.become_leader(0)
            other.append_as_leader(batch(1), 0)
        else:
            facts.append(Fact("configuring", 1300 + number))
            life.log.update_config(LogConfig(segment_bytes=1300 + number, index_interval_bytes=100))
            facts.append(Fact("configured", 1300 + number))
        life.close()
    life = Life(disk, facts, "sync", seed=4)
    life.lead(9)
    life.append()
    life.sync()
    life.root.close(clean=False)
    life = Life(disk, facts, "sync", seed=5)
    life.root.remove_log(TopicPartition("u", 3))
    facts.append(Fact("cut", 0))
    life.log.truncate_fully(0)
    life.content = ()
    life.follow(11, 2, tag=b"n")
    life.sync()
    reopen_in(life.root, "t", 0)
    life.log = life.root.logs[KEY]
    life.follow(11, tag=b"o")
    life.close()
    life = Life(disk, facts, "sync", seed=6)
    facts.append(Fact("removing"))
    life.root.remove_log(KEY)
    life.root.close()


def stubborn(disk: SimDisk, facts: list[Fact]) -> None:
    """``os``: appends that try again, with less, when the disk has no room, and go on unless the log says that it
    cannot."""
    life = Life(disk, facts, "os", segment_size=1024)
    for number in range(14):
        for size in (90, 90, 20):
            try:
                if number % 5 == 0 and life.log.epochs.latest < number // 5:
                    life.lead(number // 5)
                life.append(1 + number % 2, size=size)
            except StorageError as error:
                if error.errno != errno.ENOSPC:
                    raise
                if life.log.failure is not None:
                    life.facts.append(Fact("failed"))
                    raise
            else:
                break
        if number % 6 == 5:
            life.sync()
    life.checkpoint()
    life.close()


def replaced(disk: SimDisk, facts: list[Fact]) -> None:
    """``os``: a follower's batches are cut and others of the same size follow, and nothing is synced in between."""
    life = Life(disk, facts, "os", segment_size=5000)
    for _ in range(6):
        life.follow(0, tag=b"a")
    life.sync()
    life.cut(4)
    for _ in range(3):
        life.follow(2, tag=b"b")


def retained(disk: SimDisk, facts: list[Fact]) -> None:
    """``os``: old segments go by size, with and without delay, then all of them by age; a kill and a clean stop in
    between."""
    life = Life(disk, facts, "os", segment_size=1024, retention_bytes=1500, file_delete_delay_ms=0)
    life.lead(0)
    for number in range(16):
        life.append(2, size=150 + 20 * (number % 3))
        if number % 5 == 4:
            life.retain()
    assert life.log.start_offset > 0
    life.sync()
    life.root.checkpoint_log_starts()
    life.root.close(clean=False)
    life = Life(disk, facts, "os", seed=2)
    life.lead(1)
    facts.append(Fact("configuring", 1100))
    life.log.update_config(LogConfig(durability="os", segment_bytes=1100, index_interval_bytes=100, retention_ms=1))
    facts.append(Fact("configured", 1100))
    life.append(2, size=200, tag=b"p")
    life.retain()  # everything is too old: an empty segment begins
    assert life.log.start_offset == life.log.end_offset
    life.append(2, size=300, tag=b"q")
    life.close()
    life = Life(disk, facts, "os", seed=3)
    life.lead(2)
    life.append(3, size=300, tag=b"r")
    life.retain()
    life.close()


def deleted(disk: SimDisk, facts: list[Fact]) -> None:
    """``sync``: records are deleted within a batch, at a segment's beginning and up to the end; a follower is cut
    below the start."""
    life = Life(disk, facts, "sync", segment_size=1024, file_delete_delay_ms=0)
    life.lead(0)
    for number in range(9):
        life.append(3, size=100, tag=b"%d" % number)
        if number % 3 == 2:
            life.sync()
    life.delete(4)
    life.retain()
    life.delete(13)
    life.root.checkpoint_log_starts()
    life.append(2, size=100, tag=b"u")
    life.root.close(clean=False)
    life = Life(disk, facts, "sync", seed=2)
    life.lead(1)
    life.append(2, size=100, tag=b"v")
    life.sync()
    life.retain()
    life.delete(life.log.high_watermark)
    life.retain()
    life.append(2, size=100, tag=b"w")
    life.close()


def rolls(disk: SimDisk, facts: list[Fact]) -> None:
    """``sync``: segments of reserved room are closed by time, by a full index and by size; the last one is
    trimmed."""
    life = Life(
        disk,
        facts,
        "sync",
        segment_size=2000,
        preallocate=True,
        segment_index_bytes=36,
        segment_ms=5000,
        segment_jitter_ms=500,
    )
    life.lead(0)
    for number in range(14):
        life.append(1, size=120 + 300 * (number % 5 == 4), timestamp=1000 + 700 * number)
        if number % 4 == 3:
            life.sync()
    assert life.log.stats().segment_count > 4
    life.root.close(clean=False)
    life = Life(disk, facts, "sync", seed=2)
    life.lead(1)
    life.append(1, size=900, tag=b"y", timestamp=90_000)
    life.append(1, size=900, tag=b"z", timestamp=90_001)
    life.close()


class Crowd(LogRoot):
    """A root that leaves a summary of few partitions too."""

    summaries_from = 2


def crowd(disk: SimDisk, facts: list[Fact]) -> None:
    """``sync``: several partitions, known from the summary of a clean stop and opened when they are asked for; some
    never are."""
    life = Life(disk, facts, "sync", root_class=Crowd)
    life.lead(0)
    others = [TopicPartition("t", number) for number in range(1, 5)]
    life.root.create_logs([life.root.new_log(key, TOPIC_ID, life.config) for key in others])
    for other in [life.root.logs[key] for key in others]:
        other.become_leader(0)
        other.append_as_leader(batch(other.topic_partition.partition, size=50), 0)
    life.append(2, size=100)
    life.close()
    for seed in range(2, 4):
        life = Life(disk, facts, "sync", seed=seed, root_class=Crowd, lazy=True)
        life.lead(seed)
        life.append(2, size=100, tag=b"%d" % seed)
        other_key = TopicPartition("t", seed)
        if life.root.logs.get(other_key) is None:
            raise life.root.damaged[other_key]
        assert life.root.logs[other_key].end_offset == seed
        life.checkpoint()
        life.close()
    life = Life(disk, facts, "sync", seed=7, root_class=Crowd, lazy=True)
    life.lead(9)
    life.append(2, tag=b"x")
    life.sync()
    life.root.close(clean=False)
    life = Life(disk, facts, "sync", seed=8, root_class=Crowd, lazy=True)
    life.close()


def mended(disk: SimDisk, facts: list[Fact]) -> None:
    """``sync``: a sync fails, the log is poisoned, opened again and verified, and lives on."""
    life = Life(disk, facts, "sync")
    life.lead(0)
    life.append(3, size=100)
    life.sync()
    life.append(2, size=100, tag=b"b")
    disk.fail("sync", "*.log")
    try:
        life.sync()
    except StorageError:
        if life.log.failure is None:
            raise  # another fault: the sync was not even begun
    else:
        raise AssertionError("the sync did not fail")
    reopen_in(life.root, "t", 0)
    life.log = life.root.logs[KEY]
    life.lead(1)
    life.append(2, size=100, tag=b"c")
    life.sync()
    life.close()


Workload = Callable[[SimDisk, list[Fact]], None]
LIVES: Final[tuple[Workload, ...]] = (
    sync_log,
    os_log,
    cycles,
    stubborn,
    replaced,
    retained,
    deleted,
    rolls,
    crowd,
    mended,
)
DURABILITY: Final[dict[Workload, str]] = {
    replaced: "os",
    sync_log: "sync",
    os_log: "os",
    cycles: "sync",
    stubborn: "os",
    retained: "os",
    deleted: "sync",
    rolls: "sync",
    crowd: "sync",
    mended: "sync",
}


# -- the check --


def check(disk: SimDisk, facts: Sequence[Fact], durability: str, *, again: float = 1.0) -> None:
    """What is left opens and keeps what was promised, a reader sees no more, what was cut is kept.

    With the chance ``again`` the same once more, after another life on top of it.
    """
    seen = _look_beside(disk, facts)
    before = _log_files(disk)
    root = Crowd.open(disk, ROOT, clock=CLOCK, random=Random(77), lazy=True)
    try:
        log = root.logs.get(KEY)
        for key in root.logs:
            assert root.logs.get(key) is not None or key in root.damaged
        assert not root.damaged, f"damaged: {root.damaged}"
        if log is None:
            assert not any(fact.kind == "made" for fact in facts) or any(fact.kind == "removing" for fact in facts), (
                "the partition is gone"
            )
            return
        start = log.start_offset
        assert start <= log.high_watermark <= log.flushed_offset or (
            durability == "os" and log.high_watermark <= log.end_offset
        )
        content = content_of(raw(log))
        _check_content(content, facts, start, "the log")
        _check_start(start, facts)
        _check_promises(disk, content, facts, durability, log.recovery.poisoned, start)
        if _survived(disk, facts) and not log.recovery.poisoned:
            assert log.high_watermark >= seen, f"the high watermark fell from {seen} to {log.high_watermark}"
        _check_config(log.config.segment_bytes, facts)
        if durability == "sync":
            assert not log.incomplete, "incomplete"
        assert not _survived(disk, facts) or log.recovery.poisoned or not log.incomplete
        _check_kept(disk, before, start)
    finally:
        root.close(clean=False)
    if disk.random.random() < again:
        _live_on(disk.snapshot(), content, log.epochs.latest, durability)


def _live_on(disk: SimDisk, content: Content, epoch: int, durability: str) -> None:
    """The recovered log is opened after a kill, acknowledges, and loses power."""
    facts = [Fact("tried", 0, content)]
    life = Life(disk, facts, durability)
    assert life.content == content, "a second recovery found something else"
    facts.append(Fact("showing", life.log.high_watermark))
    facts.append(Fact("starting", life.log.start_offset))
    facts.append(Fact("started", life.log.start_offset))
    life.lead(max(epoch, life.log.epochs.latest) + 1)
    life.append(3, size=150, tag=b"on")
    life.sync()
    life.append(1, tag=b"torn")
    check(disk.crash(Random(len(content))), facts, durability, again=0.0)


def _survived(disk: SimDisk, facts: Sequence[Fact]) -> bool:
    """Whether only processes ended, so that the page cache has all that was written."""
    return disk.boot_id("") == FIRST_BOOT and not any(fact.kind == "failed" for fact in facts)


def _look_beside(disk: SimDisk, facts: Sequence[Fact]) -> int:
    """What a reader sees before anybody repairs anything; the watermark it goes by."""
    if disk.stat(ROOT) is None:
        return 0
    reader = open_readers(disk, ROOT).get(KEY)
    if reader is None:
        return 0
    try:
        data = b"".join(bytes(one.data) for one in reader.batches(reader.start_offset, reader.end_offset))
        content = content_of(data)
        _check_content(content, facts, reader.start_offset, "a reader")
        _check_start(reader.start_offset, facts)
        end = reader.end_offset
        assert (content[-1][0] if content else reader.start_offset) == end, "a reader does not reach its end"
        shown = max((fact.end for fact in facts if fact.kind in {"showing", "acked", "synced"}), default=0)
        assert end <= shown, f"a reader sees up to {end}, promised was {shown}"
        mark = read_mark(disk, FOLDER)
        if _survived(disk, facts) and (mark is None or not mark.poisoned):
            promised = 0
            for fact in facts:
                if fact.kind in {"acked", "cut"}:
                    promised = min(fact.end, promised) if fact.kind == "cut" else fact.end
            assert end >= promised or any(fact.kind == "removing" for fact in facts), (
                f"a reader sees up to {end}, {promised} is acknowledged"
            )
        return end
    finally:
        reader.close()


def _check_content(content: Content, facts: Sequence[Fact], start: int, who: str) -> None:
    """Nothing but a beginning of some content that was tried."""
    assert not content or any(begins(fact.content, content, start) for fact in facts if fact.kind == "tried"), (
        f"{who} holds what never was: {[(end, len(data)) for end, data in content]}"
    )


def _check_start(start: int, facts: Sequence[Fact]) -> None:
    """The log begins where it was told to, or where it may have been about to."""
    if any(fact.kind == "removing" or (fact.kind == "cut" and not fact.end) for fact in facts):
        return  # all of it was to go, and some may have gone
    highest = max((fact.end for fact in facts if fact.kind == "starting"), default=0)
    lowest = max((fact.end for fact in facts if fact.kind == "started"), default=0)
    assert lowest <= start <= highest, f"the log begins at {start}, not from {lowest} to {highest}"


def _check_promises(
    disk: SimDisk, content: Content, facts: Sequence[Fact], durability: str, poisoned: bool, start: int
) -> None:
    floor = None  # of what was promised, all below the lowest cut announced since
    survived = _survived(disk, facts) and not poisoned
    for fact in reversed(facts):
        if fact.kind == "cut":
            floor = fact.end if floor is None else min(floor, fact.end)
        if fact.kind == "removing":
            return
        if fact.kind == "synced" or (fact.kind == "acked" and (durability == "sync" or survived)):
            end = fact.end if floor is None else min(fact.end, floor)
            kept = [one for one in fact.content if start < one[0] <= end]
            assert list(content[: len(kept)]) == kept, (
                f"lost: {kept[-1][0]} is promised, the log ends at {content[-1][0] if content else 0}"
            )


def _check_config(segment_size: int, facts: Sequence[Fact]) -> None:
    possible = set()
    for fact in facts:
        if fact.kind == "configured":
            possible = {fact.end}
        elif fact.kind == "configuring":
            possible.add(fact.end)
    if any(fact.kind == "configured" for fact in facts):
        assert segment_size in possible, (
            f"the settings went back: segment.bytes is {segment_size}, not one of {sorted(possible)}"
        )


def begins(whole: Content, part: Content, start: int) -> bool:
    """Whether ``part``, which begins with the batch that holds ``start``, is what ``whole`` begins with there."""
    rest = tuple(one for one in whole if one[0] > start)
    return rest[: len(part)] == part


def content_end(data: bytes) -> int:
    """Where the whole batches at the beginning of ``data`` end."""
    scan = SegmentScanner(0)
    scan.feed(data)
    return scan.next_offset


def content_of(data: bytes) -> Content:
    """The batches of ``data``, checked, without gaps."""
    found = []
    expected = -1
    for one in split(data):
        one.check_crc()
        assert expected in (-1, one.base_offset), "a gap"
        expected = one.next_offset
        found.append((expected, bytes(one.data)))
    return tuple(found)


def _log_files(disk: SimDisk) -> dict[str, bytes]:
    if disk.stat(FOLDER) is None:
        return {}
    return {
        name: bytes_of(disk, f"{FOLDER}/{name}")
        for name in disk.list(FOLDER)
        if name.endswith(LOG_SUFFIX) or name.startswith(TORN_PREFIX)
    }


def _check_kept(disk: SimDisk, before: dict[str, bytes], start: int) -> None:
    """What left a log file is in a file beside it, to the byte; zeros need not be, nor what lies below the log's
    start."""
    after = _log_files(disk)
    kept = [data for name, data in after.items() if name.startswith(TORN_PREFIX)]
    for name, data in before.items():
        now = after.get(name, b"")
        if name.endswith(".tmp") or (
            name.endswith(LOG_SUFFIX) and name not in after and data and content_end(data) <= start
        ):
            continue
        assert data.startswith(now), f"recovery changed {name}"
        gone = data[len(now) :]
        assert not any(gone) or gone in kept, f"{len(gone)} bytes of {name} were cut and not kept"
