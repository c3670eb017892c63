"""The fault table's rows about the machine, as a program with an open log meets them: disks that are full,
read-only or slow, no descriptors, no memory, clocks that jump, and somebody else's hands in the folder. The number
of its row is in each test's name."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from pyreplog.log import LogRoot
from pyreplog.system import SystemChance, SystemClock, SystemDisk
from pyreplog.testing import SimClock, SimDisk
from pyreplog.values import TopicPartition
from tests.seed import SEED, tell
from tests.unit.runtime.programs import ran

# A limit of the address space is one of AddressSanitizer's own memory, too: it ends the program
# where malloc would say no.
without_sanitizer = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="no malloc of AddressSanitizer's may fail"
)

# ------------------------------------------------------------------------------------- file systems


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """A tmpfs at ``place``."""
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=False).returncode
    ):
        pytest.skip("SKIPPED FAULT RIG: this machine does not let us mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def rotten(folder: Path, replicas: int) -> int:
    """A cluster that was closed in order, one bit of whose leader's copy flipped since; who leads. It holds 0 to
    499, ten a batch."""
    with pyreplog.Cluster(folder) as cluster:
        cluster.admin.create_topic("t", replication_factor=replicas, config={"durability": "os"})
        with cluster.producer() as producer:
            for first in range(0, 500, 10):
                producer.send_many("t", [b"%d" % number for number in range(first, first + 10)]).wait()
        leader = cluster.admin.describe("t").partitions[0].leader
    (file,) = (folder / f"node-{leader}" / "t-0").glob("*.log")
    with file.open("r+b") as log:
        log.seek(file.stat().st_size // 2)
        byte = log.read(1)[0]
        log.seek(-1, os.SEEK_CUR)
        log.write(bytes([byte ^ 1]))
    return leader


def test_row_6_rot_in_a_leaders_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who reads notices nothing: another replica leads. The copy stays as it is until a person takes it away: then
    it is fetched anew."""
    caplog.set_level("WARNING", "pyreplog")
    number = rotten(tmp_path / "data", 3)
    with pyreplog.Cluster(tmp_path / "data") as cluster:
        with cluster.consumer("t") as consumer:
            assert [record.value for record in consumer.until_end()] == [b"%d" % number for number in range(500)]
        leader = cluster.leader("t")
        assert leader is not None
        assert leader.node_id != number
        (line,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
        assert line.startswith(f"node {number}: t-0 is damaged, and not read where another leads: checksum mismatch")
        assert re.search(r"offsets 2\d0 to 2\d9 are damaged", line)

        def whole() -> bool:
            ((partition,),) = (topic.partitions.values() for topic in cluster._controller.image.topics.values())
            return sorted(partition.isr) == [1, 2, 3]

        assert whole(), "it has everything that comes"
        node = cluster.nodes[number - 1]
        node.stop()
        Path(node.path, "t-0").rename(tmp_path / "damaged")
        node.restart()
        with cluster.producer() as producer:
            producer.send("t", b"500").result(30)
        assert cluster._driver.wait_until(whole, 30)
    for one in (1, 2, 3):
        with pyreplog.open_log(tmp_path / "data" / f"node-{one}" / "t-0", mode="r") as log:
            # A follower may not have heard yet that the last one is committed.
            assert [record.value for record in log][:500] == [b"%d" % number for number in range(500)]


def test_row_6_rot_in_the_only_copy_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With its place, to who reads and in the log; what lies around it is served, and appending goes on."""
    caplog.set_level("ERROR", "pyreplog")
    leader = rotten(tmp_path / "data", 1)
    with pyreplog.Cluster(tmp_path / "data") as cluster, cluster.consumer("t") as consumer:
        got: list[bytes | None] = []
        with pytest.raises(
            pyreplog.CorruptLogError,
            match=rf"^t-0 at node {leader}, and no copy in sync is known to be whole: offsets ",
        ) as caught:
            while True:
                got += [record.value for record in consumer.poll(timeout=10)]
        assert got == [b"%d" % number for number in range(caught.value.start)]
        assert 200 <= caught.value.start < 300
        (line,) = (record.getMessage() for record in caplog.records)
        assert line.startswith(
            f"node {leader}: t-0 is damaged, and served as far as it can be, because no copy in sync is known to be"
            " whole: checksum"
        )
        with cluster.producer() as producer:
            producer.send("t", b"500").result(30)
        consumer.seek("t", 0, caught.value.start + 10)
        rest = [record.value for record in consumer.until_end()]
        assert rest == [b"%d" % number for number in range(caught.value.start + 10, 501)]


def test_row_11_no_inode_is_left(tmp_path: Path) -> None:
    """Where no file can be made any more, a roll is a StorageError, what was acknowledged stays, and with room
    again appending goes on."""
    with (
        mounted(tmp_path / "small", "size=4m,nr_inodes=30,mode=0700") as place,
        pyreplog.open_log(
            place / "log", durability="os", config={"segment.bytes": 2000, "file.delete.delay.ms": 0}
        ) as log,
    ):
        told = 0
        with pytest.raises(pyreplog.StorageError) as caught:
            while True:
                log.append(bytes(500))
                told += 1
        assert caught.value.errno == errno.ENOSPC
        assert told > 3
        assert len(list(log.read())) == told
        assert log.delete_records(told - 1) == told - 1, "deleting works on a full disk"
        log.append(bytes(500))
        assert next(log.read()).offset == told - 1


@pytest.mark.parametrize("killed", [False, True])
def test_row_11_no_inode_is_left_for_a_close(tmp_path: Path, killed: bool) -> None:
    """The close takes none that the next opening needs: it opens, records are deleted, others appended, and it
    closes in order."""
    code = """
import os, sys, pyreplog
log = pyreplog.open_log(sys.argv[1], config={"segment.bytes": 2000, "file.delete.delay.ms": 0})
log.append_many([bytes(500)] * 30)
try:
    for number in range(1000):
        open(f"{sys.argv[1]}/../{number}", "x").close()
except OSError:
    pass
if sys.argv[2] == "True":
    os._exit(0)
try:
    log.close()
except pyreplog.StorageError as error:
    print(error.errno)
"""
    with mounted(tmp_path / "small", "size=4m,nr_inodes=90,mode=0700") as place:
        done = subprocess.run(
            [sys.executable, "-c", code, str(place / "log"), str(killed)], check=True, capture_output=True
        )
        assert killed or int(done.stdout) == errno.ENOSPC
        with pyreplog.open_log(place / "log") as log:
            assert log.end_offset == 30
            assert log.delete_records(28) == 28
            log.append(bytes(500))
        with pyreplog.open_log(place / "log", mode="r") as log:
            assert [record.offset for record in log] == [28, 29, 30]


def test_row_11_no_inode_is_left_to_keep_a_torn_tail(tmp_path: Path) -> None:
    """What recovery cuts is kept, or it is not cut: without an inode for it the log is refused as often as it is
    opened, none of its files is another afterwards. With a few it opens and closes in order."""
    code = """
import os, sys, pyreplog
pyreplog.open_log(sys.argv[1]).close()
log = pyreplog.open_log(sys.argv[1])
log.append_many([bytes(500)] * 30)
os._exit(0)
"""
    with mounted(tmp_path / "small", "size=4m,nr_inodes=90,mode=0700") as place:
        subprocess.run([sys.executable, "-c", code, str(place / "log")], check=True)
        (segment,) = (place / "log").glob("*/*.log")
        with segment.open("ab") as file:
            file.write(b"torn" * 40)
        with pytest.raises(OSError, match="No space"):
            for number in range(1000):
                (place / f"{number}").touch()
        before = sorted(path.name for path in (place / "log").rglob("*"))
        for _ in range(2):
            with pytest.raises(pyreplog.StorageError, match="No space left on device.*torn"):
                pyreplog.open_log(place / "log")
            assert sorted(path.name for path in (place / "log").rglob("*")) == before
        for number in range(3):
            (place / f"{number}").unlink()
        with pyreplog.open_log(place / "log") as log:
            assert log.end_offset == 30
            log.append(b"more")
        (kept,) = (place / "log").glob("*/*torn*")
        assert kept.read_bytes() == b"torn" * 40


def fill(place: Path) -> None:
    """Leave no byte of room."""
    with (place / "filler").open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC


@pytest.mark.parametrize("killed", [False, True])
def test_row_11_a_full_disk_is_emptied(tmp_path: Path, killed: bool) -> None:
    """After a stop on a full disk, in order or not: the log opens, records are deleted, others taken in their
    place, and it closes."""
    code = """
import os, sys, pyreplog
log = pyreplog.open_log(sys.argv[1], durability="os", config={"segment.bytes": 200_000, "file.delete.delay.ms": 0})
try:
    while True:
        log.append_many([bytes(1000)] * 20)
except pyreplog.StorageError:
    print(log.end_offset)
if sys.argv[2] == "True":
    os._exit(0)
log.close()
"""
    with mounted(tmp_path / "small", "size=4m,nr_inodes=200,mode=0700") as place:
        told = int(
            subprocess.run(
                [sys.executable, "-c", code, str(place / "log"), str(killed)], check=True, capture_output=True
            ).stdout
        )
        fill(place)
        with pyreplog.open_log(place / "log") as log:
            assert (log.start_offset, log.end_offset) == (0, told)
            with pytest.raises(pyreplog.StorageError, match="No space"):
                log.append_many([bytes(1000)] * 20)
            assert log.delete_records(told // 2) == told // 2
            assert log.append_many([bytes(1000)] * 20) == range(told, told + 20)
        with pyreplog.open_log(place / "log", mode="r") as reader:
            assert [record.offset for record in reader] == list(range(told // 2, told + 20))


def test_row_11_a_cluster_on_a_full_disk_is_emptied(tmp_path: Path) -> None:
    """After a kill on a full disk: it opens, every replica deletes, also one that finds no room for what it is
    behind. When retention has removed the segments the followers catch up, so the leader knows the end."""
    code = """
import os, sys, pyreplog
cluster = pyreplog.Cluster(sys.argv[1])
cluster.admin.create_topic("t", config={"segment.bytes": 200_000, "file.delete.delay.ms": 0})
producer = cluster.producer(delivery_timeout_ms=2000, request_timeout_ms=1000)
told = 0
try:
    while True:
        producer.send_many("t", [bytes(1000)] * 20).wait()
        told += 20
except pyreplog.PyreplogError:
    print(told, flush=True)
os._exit(0)
"""
    with mounted(tmp_path / "small", "size=8m,nr_inodes=1000,mode=0700") as place:
        told = int(
            subprocess.run([sys.executable, "-c", code, str(place / "c")], check=True, capture_output=True).stdout
        )
        fill(place)
        with pyreplog.Cluster(place / "c", config={"log_retention_check_interval_ms": 200}) as cluster:
            assert cluster.admin.delete_records("t", {0: told - 400}) == {0: told - 400}
            with cluster.consumer("t") as consumer:
                assert [record.offset for record in consumer.until_end()][:400] == list(range(told - 400, told))


def test_row_11_a_limit_on_file_sizes(tmp_path: Path) -> None:
    """EFBIG is a StorageError like a full disk; what was acknowledged stays and is read by the next opening."""
    code = """
import errno, resource, signal, sys, pyreplog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = pyreplog.open_log(sys.argv[1], durability="os")
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY))
told = 0
try:
    while True:
        log.append(bytes(1000))
        told += 1
except pyreplog.StorageError as error:
    print(error.errno == errno.EFBIG, len(list(log.read())) == told > 10)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
try:
    print(log.append(b"x") == told)
except pyreplog.ClosedError:
    log.close()
    log = pyreplog.open_log(sys.argv[1])
    print(log.append(b"x") == told)
log.close()
"""
    assert ran(code, tmp_path / "log").split() == ["True"] * 3


@pytest.mark.parametrize("mode", ["a", "r"])
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_row_13_a_part_that_cannot_be_read(mode: Any, durability: Any) -> None:
    """Where a disk refuses to read one segment, whatever needs it says so with EIO after all before it was given;
    what lies behind is read, appending goes on, and when the disk is well again everything is there."""
    disk = SimDisk()
    with pyreplog.open_log("/log", disk=disk, durability=durability, config={"segment.bytes": 2000}) as log:
        for number in range(60):
            log.append(b"%d" % number * 50, timestamp=1000 + number)
    opened = pyreplog.open_log("/log", mode, disk=disk)
    bases = sorted(int(name[:20]) for name in disk.list("/log/log-0") if name.endswith(".log"))
    start, end = bases[2:4]
    fault = disk.fail("read", f"*/{start:020}.log", error=errno.EIO, times=None)
    ways: list[Callable[[int], Iterator[pyreplog.Record]]] = [opened.read, lambda at: opened.follow(at, timeout=0)]
    for iterate in ways:
        given = []
        with pytest.raises(pyreplog.StorageError) as caught:
            for record in iterate(0):
                given.append(record.offset)
        assert (caught.value.errno, given) == (errno.EIO, list(range(start)))
        assert [record.offset for record in iterate(end)] == list(range(end, 60))
    uses: list[Callable[[], object]] = [
        lambda: list(opened.scan(start=start, end=end).batches()),
        lambda: opened.seek(timestamp=1000 + start + 1),
    ]
    for use in uses:
        with pytest.raises(pyreplog.StorageError) as caught:
            use()
        assert caught.value.errno == errno.EIO
    assert sum(batch.row_count for batch in opened.scan(start=end).batches()) == 60 - end
    assert fault.hits >= 4
    if mode == "a":
        assert opened.append(b"more") == 60
    disk.clear_faults()
    assert [record.offset for record in opened.read(0)] == list(range(60 + (mode == "a")))
    opened.close()


def test_row_44_a_read_only_disk(tmp_path: Path) -> None:
    """On a file system that turned read-only opening to write is a StorageError with EROFS; reading works; writable
    again, all is there."""
    with mounted(tmp_path / "disk", "size=4m,mode=0700") as place:
        remount = ["mount", "-o", "remount,{}", "tmpfs", str(place)]
        with pyreplog.open_log(place / "log") as log:
            log.append(b"x")
        subprocess.run([part.format("ro") for part in remount], check=True)
        with pytest.raises(pyreplog.StorageError) as caught:
            pyreplog.open_log(place / "log")
        assert caught.value.errno == errno.EROFS
        with pytest.raises(pyreplog.StorageError):
            pyreplog.open_log(place / "new")
        with pyreplog.open_log(place / "log", "r") as reader:
            assert [record.value for record in reader] == [b"x"]
            assert [record.value for record in reader.follow(timeout=0)] == [b"x"]
        subprocess.run([part.format("rw") for part in remount], check=True)
        with pyreplog.open_log(place / "log") as log:
            assert log.append(b"y") == 1


@pytest.mark.parametrize("call", ["create", "open", "write", "sync", "rename", "sync_directory"])
def test_row_44_every_call_says_so(call: str) -> None:
    """Whichever call is refused with EROFS while a log is used, an error with that number comes out, and nothing
    acknowledged is lost."""
    disk = SimDisk()
    log = pyreplog.open_log("/log", disk=disk, config={"segment.bytes": 2000})
    told = [log.append(b"first")]
    disk.fail(call, "*", error=errno.EROFS, times=None)
    refused = 0
    for _ in range(10):
        try:
            told.append(log.append(bytes(500)))
        except (pyreplog.StorageError, pyreplog.ClosedError) as error:
            first: Any = error if isinstance(error, pyreplog.StorageError) else error.__cause__
            assert first is None or first.errno == errno.EROFS
            refused += 1
    disk.clear_faults()
    with contextlib.suppress(pyreplog.PyreplogError):
        log.close()
    with pyreplog.open_log("/log", disk=disk) as log:
        assert {record.offset for record in log.read()} >= set(told)
    assert refused or call in ("open", "rename", "sync_directory")


# ---------------------------------------------------------------------------------------- resources

FEW_DESCRIPTORS = """
import errno, os, resource, sys, pyreplog
folder = sys.argv[1]
with pyreplog.open_log(folder, durability="os", config={"segment.bytes": 1024}) as log:
    for number in range(20):
        log.append(bytes(300))
count = 20
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
used = len(os.listdir("/proc/self/fd"))
typed = worked = 0
first, step = map(int, sys.argv[2:])
for limit in (*range(3, 20), *range(20 + first, used + 40, step)):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    reader = log = None
    try:
        log = pyreplog.open_log(folder)
        assert log.end_offset >= count, (limit, log.end_offset, count)
        count = log.end_offset  # with what was of unknown outcome
        for _ in range(6):
            log.append(bytes(300))
            count += 1
        reader = pyreplog.open_log(folder, "r")
        assert len(list(reader)) == count
        assert len(list(reader.follow(timeout=0))) == count
        assert len(list(log.read())) == count
        worked += 1
    except pyreplog.PyreplogError as error:
        cause = error
        while cause is not None and not isinstance(cause, pyreplog.StorageError):
            cause = cause.__cause__
        assert cause is not None and cause.errno == errno.EMFILE, repr(error)
        typed += 1
    finally:
        for opened in (reader, log):
            try:
                if opened is not None:
                    opened.close()
            except pyreplog.PyreplogError:
                pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with pyreplog.open_log(folder, "r") as check:
        found = len(list(check))
        assert found >= count, (limit, found, count)
        count = found
assert len(os.listdir("/proc/self/fd")) <= used + 1, "descriptors leaked"
print(typed > 1, worked > 3)
"""


def test_row_38_too_few_descriptors(tmp_path: Path) -> None:
    """At every limit from 3 to 19 descriptors, and at every third above that the seed draws, opening, appending
    over segments, reading and following work or are a StorageError with EMFILE; nothing acknowledged is lost, none
    leaks, and with more of them everything goes on."""
    tell()
    assert ran(FEW_DESCRIPTORS, tmp_path / "log", SEED % 3, 3, options=()).split() == ["True", "True"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_row_38_too_few_descriptors_all(tmp_path: Path) -> None:
    """At every limit."""
    assert ran(FEW_DESCRIPTORS, tmp_path / "log", 0, 1, options=(), timeout_s=600).split() == ["True", "True"]


NO_MEMORY = """
import sys, _testcapi, pyreplog
from itertools import islice
from random import Random
from pyreplog.testing import SimDisk
class Table:
    def __init__(self, scan):
        self.scan = scan
    def __arrow_c_stream__(self, schema=None):
        return self.scan.__arrow_c_stream__(schema)
log = pyreplog.open_log(sys.argv[1], durability="os", config={"segment.bytes": 4096})
source = pyreplog.open_log(sys.argv[1] + "-source", durability="os")
source.append_many([b"row"] * 3)
table = Table(source.scan())
value, many = b"value", [b"many"] * 5
uses = [
    lambda: log.append(value), lambda: log.append(value, key=b"k", headers=[("h", b"v")]),
    lambda: log.append_many(many),
    lambda: log.append_nowait(value).result(), lambda: log.append_many(many, wait=False).result(),
    lambda: log.append_arrow(table),
    lambda: list(log.read(0, 200)), lambda: list(islice(log.follow(0, timeout=0), 200)),
    lambda: log.seek(timestamp=1), lambda: log.stats(),
    lambda: sum(batch.row_count for batch in log.scan(start=0, end=200).batches()),
]
told = 0
def fails(use, nth):
    # Whether the allocation number nth of this call, which fails, made the call fail.
    global told
    failed = True
    try:
        _testcapi.set_nomemory(nth, nth + 1)
        try:
            use()
        finally:
            _testcapi.remove_mem_hooks()
        failed = False
    except MemoryError:
        pass
    except ValueError as error:                   # of the table's stream, which can only say it in words
        assert "MemoryError" in str(error)
    except RuntimeError as error:                 # Python's own locks say it so
        assert "allocate lock" in str(error)
    except pyreplog.PyreplogError as error:       # what failed for lack of memory may be told by another's handle
        cause = error
        while cause is not None and not isinstance(cause, MemoryError):
            cause = cause.__cause__ or cause.__context__
        assert cause is not None or isinstance(error, pyreplog.OutcomeUnknownError), repr(error)
    offset = log.append(b"alive %d" % told)
    assert offset == log.end_offset - 1
    told += 1
    return failed

count, chance = int(sys.argv[2]), Random(int(sys.argv[3]))
for which, use in enumerate(uses):
    # How many allocations it makes, about: as far as one that fails is noticed, and up to twice
    # that.
    last = 128
    while last < 1 << 14 and any([fails(use, nth) for nth in range(last, 2 * last, last // 16)]):
        last *= 2
    drawn = chance.sample(range(last), min(count, last)) if count else range(last)
    print(which, sum(fails(use, nth) for nth in drawn) > 0, last, flush=True)
found = [record.value for record in log.read()]
assert [value for value in found if value.startswith(b"alive")] == [b"alive %d" % number for number in range(told)]
log.close()
with pyreplog.open_log(sys.argv[1], "r") as reader:
    assert [record.value for record in reader] == found
source.close()
"""


@pytest.mark.usefixtures("failing_allocations")
def test_row_37_no_memory(tmp_path: Path) -> None:
    """Some allocations of Python's within every call, which the seed draws of all that it makes, fail once:
    MemoryError, or an error it caused, comes out, nothing is left half-done, and the next append works. Offsets
    stay dense, and a new opening reads the same."""
    tell()
    _check_no_memory(ran(NO_MEMORY, tmp_path / "log", 60, SEED, options=(), quiet=False))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("failing_allocations")
def test_row_37_no_memory_all(tmp_path: Path) -> None:
    """Each of them."""
    _check_no_memory(ran(NO_MEMORY, tmp_path / "log", 0, SEED, options=(), quiet=False, timeout_s=3600))


def _check_no_memory(said: str) -> None:
    print(said)
    lines = said.splitlines()
    assert [line.split()[0] for line in lines] == [str(number) for number in range(11)]
    assert sum(line.split()[1] == "True" for line in lines) >= 8


REFUSED_OR_UNKNOWN = """
import _testcapi, sys, pyreplog
log = pyreplog.open_log(sys.argv[1], durability=sys.argv[2])
uses = (log.append, lambda value: log.append_many([value, value]))
refused, unknown = set(), set()
for which, use in enumerate(uses):
    for nth in range(150):
        value = b"%d %d" % (which, nth)
        try:
            _testcapi.set_nomemory(nth, nth + 1)
            try:
                use(value)
            finally:
                _testcapi.remove_mem_hooks()
        except MemoryError:
            refused.add(value)
        except pyreplog.OutcomeUnknownError:
            unknown.add(value)
        log.append(b"alive")
there = {record.value for record in log.read()}
print(sorted(refused & there), bool(refused), bool(unknown & there))
log.close()
"""


@pytest.mark.usefixtures("failing_allocations")
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_row_37_no_memory_behind_the_write(tmp_path: Path, durability: str) -> None:
    """What is told as a MemoryError is not in the log, so that who sends it again does not double it; else the
    outcome is unknown."""
    assert ran(REFUSED_OR_UNKNOWN, tmp_path / "log", durability, options=()) == "[] True True\n"


LITTLE_MEMORY = """
import resource, sys, pyreplog
log = pyreplog.open_log(sys.argv[1], durability="os", config={"max.message.bytes": 600_000_000})
log.append(b"before")
big = bytes(150_000_000)
size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + 60_000_000, resource.RLIM_INFINITY))
refused = 0
many = [b"x", big]
for use in (
    lambda: log.append(big), lambda: log.append_many(many),
    lambda: log.append_nowait(big), lambda: log.append(big, wait=False),
):
    try:
        use()
    except MemoryError:
        refused += 1
    log.append(b"alive")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(big)
print(refused, [len(record.value) for record in log.read()])
log.close()
"""


@without_sanitizer
def test_row_37_no_memory_for_a_batch(tmp_path: Path) -> None:
    """When the core cannot have memory for a large batch, that append is a MemoryError and the log goes on without
    a trace of it."""
    assert ran(LITTLE_MEMORY, tmp_path / "log", options=()) == "4 [6, 5, 5, 5, 5, 150000000]\n"


LITTLE_MEMORY_TO_READ = """
import resource, sys, pyreplog
log = pyreplog.open_log(sys.argv[1], durability="os", config={"max.message.bytes": 600_000_000})
log.append(b"before")
log.append(bytes(40_000_000))
log.append(b"after")
reader = pyreplog.open_log(sys.argv[1], "r")
uses = (
    lambda one: len(list(one.read(1, 2))), lambda one: (one.seek(0), len(list(one)))[1],
    lambda one: len(list(one.follow(1, timeout=0))),
    lambda one: sum(batch.row_count for batch in one.scan(start=1).batches()),
)
print([use(one) for one in (log, reader) for use in uses])
size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + 25_000_000, resource.RLIM_INFINITY))
refused = 0
for one in (log, reader):
    for use in uses:
        try:
            use(one)
        except MemoryError:
            refused += 1
        assert [record.value for record in one.read(0, 1)] == [b"before"]
        assert [record.value for record in one.read(2, 3)] == [b"after"]
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(refused)
print([use(one) for one in (log, reader) for use in uses])
log.close()
reader.close()
"""


@without_sanitizer
def test_row_37_no_memory_to_read(tmp_path: Path) -> None:
    """When a batch is larger than the memory there is, whatever reads it is a MemoryError, the records beside it
    are read on, and with memory it is read as well."""
    lines = ran(LITTLE_MEMORY_TO_READ, tmp_path / "log", options=()).splitlines()
    assert lines[0] == lines[2] == "[1, 3, 2, 2, 1, 3, 2, 2]"
    assert lines[1] == "8"


# ------------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_row_19_a_clock_that_jumps(durability: Any) -> None:
    """Wall clocks that go years back and forth change timestamps and nothing else: order, offsets, reading and the
    next opening stay."""
    clock, disk = SimClock(), SimDisk()
    jumps = [0, -3 * 365 * 86_400_000, 10 * 365 * 86_400_000, -1, 1, 86_400_000, -86_400_000]
    with pyreplog.open_log(
        "/log", disk=disk, clock=clock, durability=durability, config={"segment.bytes": 2000}
    ) as log:
        for number in range(70):
            clock.skew_wall(jumps[number % len(jumps)])
            assert log.append(bytes(100)) == number
        times = [record.timestamp for record in log.read()]
        assert len(times) == 70
        assert min(times) < max(times)
        found = log.seek(timestamp=max(times))
        assert times[found] == max(times)
    with pyreplog.open_log("/log", disk=disk, clock=clock) as log:
        assert [record.timestamp for record in log.read()] == times


# ---------------------------------------------------------------------------- somebody else's hands


def segment(folder: Path) -> Path:
    """The first segment's file."""
    return min(folder.glob("*-0/*.log"))


@pytest.mark.parametrize("way", ["truncated", "overwritten", "removed", "replaced"])
@pytest.mark.parametrize("mode", ["a", "r"])
def test_row_40_files_changed_while_open(tmp_path: Path, mode: Any, way: str) -> None:
    """A segment that an outsider cuts, overwrites, removes or replaces while a log is open: its records or a typed
    error, never fewer records without one, never other ones."""
    folder = tmp_path / "log"
    values = [b"%d" % number * 30 for number in range(100)]
    with pyreplog.open_log(folder, durability="os", config={"segment.bytes": 3000}) as log:
        log.append_many(values[:50])
        for value in values[50:]:
            log.append(value)
        opened = log if mode == "a" else pyreplog.open_log(folder, "r")
        file = segment(folder)
        if way == "truncated":
            os.truncate(file, 500)
        elif way == "overwritten":
            with file.open("r+b") as raw:
                raw.seek(200)
                raw.write(b"\xff" * 50)
        elif way == "removed":
            file.unlink()
        else:
            shutil.copy(max(folder.glob("*-0/*.log")), tmp_path / "other")
            os.replace(tmp_path / "other", file)
        for _ in range(2):
            try:
                assert [record.value for record in opened.read()] == values
            except pyreplog.PyreplogError:
                pass
        opened.close()


@pytest.mark.parametrize("durability", ["os", "sync"])
@pytest.mark.parametrize("what", ["root", "partition", "segment"])
@pytest.mark.parametrize("way", ["removed", "copied", "emptied"])
@pytest.mark.parametrize("rolls", [False, True])
def test_row_40_no_log_ends_in_order_beside_its_own_files(
    tmp_path: Path, durability: Any, what: str, way: str, rolls: bool
) -> None:
    """What is appended to files that the folder has no more, or has as they were before, is not said to be kept:
    who begins the next segment or closes the log is told."""
    log = pyreplog.open_log(tmp_path / "log", durability=durability, config={"segment.bytes": 3000})
    log.append(b"before" * 100)
    path = {"root": tmp_path / "log", "partition": tmp_path / "log" / "log-0", "segment": segment(tmp_path / "log")}[
        what
    ]
    path.rename(tmp_path / "else")
    if way == "emptied":
        path.write_bytes(b"") if what == "segment" else path.mkdir()
    elif way == "copied":
        (shutil.copy if what == "segment" else shutil.copytree)(tmp_path / "else", path)
    log.append(b"behind" * 100)
    with pytest.raises(pyreplog.StorageError, match="removed, exchanged or cut by something else"):
        if rolls:
            log.append_many([b"next" * 600])
        log.close()
    log.close()


BAD_TOPICS = ["", ".", "..", "../up", "a/b", "/etc", "a\0b", "ü", "a b", "x" * 250, "a\n", "%2e%2e", "~"]


@pytest.mark.parametrize("topic", BAD_TOPICS)
def test_row_41_names_that_are_paths(tmp_path: Path, topic: str) -> None:
    """A topic's name that is none is refused before anything is made; so is a partition that is none."""
    with pytest.raises((pyreplog.InvalidTopicError, pyreplog.ConfigError)):
        pyreplog.open_log(tmp_path / "log", topic=topic)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("partition", [-1, 2**31, "0", 0.0, True])
def test_row_41_partitions_that_are_none(tmp_path: Path, partition: Any) -> None:
    """A partition is a whole number from 0, and nothing is made for another one."""
    with pytest.raises(pyreplog.ConfigError, match="partition is"):
        pyreplog.open_log(tmp_path / "log", partition=partition)
    assert not list(tmp_path.iterdir())


def test_a_cluster_may_have_any_name(tmp_path: Path) -> None:
    """Whoever opens its folder, or a node's, as a log hears that it is a cluster's, whatever it is called and has
    in it."""
    path = tmp_path / "my data é"
    pyreplog.Cluster(path).close()
    for place in (path, path / "node-1"):
        with pytest.raises(
            pyreplog.ConfigError, match=r"belongs to a cluster: write to it with Cluster\('.*my data é'\)"
        ):
            pyreplog.open_log(place)
        with pytest.raises(
            FileNotFoundError,
            match=r"the cluster has no topic yet; Cluster\('.*my data é'\).admin.create_topic makes one",
        ):
            pyreplog.open_log(place, "r")


def test_row_41_a_folder_whose_name_is_no_topics(tmp_path: Path) -> None:
    """The error says what to do, nothing is made; with a topic named the same folder is a log."""
    with pytest.raises(
        pyreplog.InvalidTopicError, match="'my log' is the folder's, and cannot be a topic's: name one with topic="
    ):
        pyreplog.open_log(tmp_path / "my log")
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        with pyreplog.open_log(tmp_path / "my log", topic="mine") as log:
            log.append(b"x")
    with pyreplog.open_log(tmp_path / "my log") as log:
        assert log.topic == "mine"


def test_row_41_a_partition_folder_is_not_written(tmp_path: Path) -> None:
    """No log is made within another's folder of a partition, a cluster's neither: that cluster would not open any
    more."""
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
    with pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster:
        cluster.admin.create_topic("orders")
    for folder in (tmp_path / "log/log-0", tmp_path / "data/node-1/orders-0"):
        before = sorted(folder.iterdir())
        with pytest.raises(pyreplog.ConfigError, match="is a partition's folder: write to the folder it lies in"):
            pyreplog.open_log(folder)
        assert sorted(folder.iterdir()) == before
    pyreplog.Cluster(tmp_path / "data").close()


@pytest.mark.parametrize(
    "victim", ["*-0/*.log", "*-0/*.index", "*-0/replog.mark", "*-0/leader-epoch-checkpoint", "meta.properties", ".lock"]
)
def test_row_42_symbolic_links(tmp_path: Path, victim: str) -> None:
    """A file of a log that was replaced by a symbolic link is not followed: what it points to is neither read nor
    changed."""
    folder = tmp_path / "log"
    with pyreplog.open_log(folder) as log:
        log.append(b"x")
    secret = tmp_path / "secret"
    (file,) = folder.glob(victim)
    content = file.read_bytes() or b"secret"
    secret.write_bytes(content)
    secret.chmod(0o600)
    file.unlink()
    file.symlink_to(secret)
    before = secret.stat()
    try:
        with pyreplog.open_log(folder) as log:
            log.append(b"y")
    except pyreplog.PyreplogError:
        pass
    assert secret.read_bytes() == content
    assert secret.stat().st_mtime_ns == before.st_mtime_ns


def test_row_42_a_folder_of_others(tmp_path: Path) -> None:
    """A folder that others may write to is not written to."""
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
    (tmp_path / "log").chmod(0o770)
    with pytest.raises(pyreplog.StorageError, match="chmod go-w"):
        pyreplog.open_log(tmp_path / "log")
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        assert len(list(reader)) == 1


def test_row_42_links_of_others(tmp_path: Path) -> None:
    """A link to a log's folder is followed if it is this user's, in a folder that only this user may write to; else
    nothing is written."""
    (tmp_path / "log").mkdir(mode=0o700)
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
    shared = tmp_path / "shared"
    shared.mkdir()
    link = shared / "link"
    link.symlink_to(tmp_path / "log")
    with pyreplog.open_log(link, topic="log") as log:
        assert log.append(b"y") == 1
    before = content_of(tmp_path / "log/log-0")
    shared.chmod(0o777)
    with pytest.raises(pyreplog.StorageError, match=r"symbolic link, which another user could replace in .*shared"):
        pyreplog.open_log(link, topic="log")
    shared.chmod(0o700)
    if os.geteuid() == 0:
        os.lchown(link, 12345, 12345)
        with pytest.raises(pyreplog.StorageError, match="symbolic link that belongs to user 12345"):
            pyreplog.open_log(link, topic="log")
        os.lchown(link, 0, 0)
    (tmp_path / "log").chmod(0o777)
    with pytest.raises(pyreplog.StorageError, match="chmod go-w"):
        pyreplog.open_log(link, topic="log")
    assert content_of(tmp_path / "log/log-0") == before
    with pyreplog.open_log(link, "r") as reader:
        assert len(list(reader)) == 2


FOREIGN = pytest.param(
    "foreign",
    "12345",
    marks=pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FAULT RIG: giving a folder away needs root"),
)


def spoil(folder: Path, kind: str) -> Path:
    """Make ``folder`` one that is not to be trusted; where its files are then."""
    if kind == "link":
        return folder.rename(folder.parent.parent / "elsewhere")
    if kind == "foreign":
        os.chown(folder, 12345, 12345)
    else:
        folder.chmod(int(kind, 8))
    return folder


def content_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and when it was changed."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("kind", "said"), [("link", "symbolic link"), ("770", "chmod go-w"), ("702", "chmod go-w"), FOREIGN]
)
@pytest.mark.parametrize("partitions", [1, 20], ids=["opened at once", "opened when asked for"])
def test_row_42_a_partitions_folder(tmp_path: Path, kind: str, said: str, partitions: int) -> None:
    """A partition's folder that is a symbolic link, somebody else's or writable by others is not written to: it is
    refused as damaged, and read, with a warning where others may write."""
    for number in range(partitions):
        with pyreplog.open_log(tmp_path / "log", partition=number) as log:
            log.append(b"x")
    folder = spoil(tmp_path / "log" / "log-0", kind)
    if kind == "link":
        (tmp_path / "log" / "log-0").symlink_to(folder)
    before = content_of(folder)
    with pytest.raises(pyreplog.StorageError, match=said):
        pyreplog.open_log(tmp_path / "log", partition=0)
    assert content_of(folder) == before
    with pyreplog.open_log(tmp_path / "log", "r", partition=0) as reader:
        assert len(list(reader)) == 1
    if partitions > 1:
        with pyreplog.open_log(tmp_path / "log", partition=1) as log:
            assert log.append(b"y") == 1
        assert content_of(folder) == before


@pytest.mark.parametrize("name", ["log-0", "log-0.00000000000000000000000000000000-delete"])
def test_row_42_nothing_is_removed_through_a_link(tmp_path: Path, name: str) -> None:
    """A link by the name of a partition that was not made whole, or is being deleted, takes nothing with it; nor
    does its removal."""
    pyreplog.open_log(tmp_path / "log").close()
    shutil.rmtree(tmp_path / "log" / "log-0")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "partition.metadata").write_bytes(b"mine")
    (tmp_path / "log" / name).symlink_to(tmp_path / "else")
    for number in (0, 1):
        with contextlib.suppress(pyreplog.StorageError):
            pyreplog.open_log(tmp_path / "log", partition=number).close()
    root = LogRoot.open(SystemDisk(), str(tmp_path / "log"), clock=SystemClock(), random=SystemChance())
    root.remove_log(TopicPartition("log", 0))
    root.close()
    assert (tmp_path / "else" / "partition.metadata").read_bytes() == b"mine"


@pytest.mark.parametrize("where", ["log", "log/log-0"])
@pytest.mark.parametrize(
    ("kind", "said"), [("777", "chmod go-w"), ("720", "chmod go-w"), FOREIGN, ("755", ""), ("link", "")]
)
def test_row_43_a_warning_when_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str, kind: str, said: str
) -> None:
    """What others may write to is read, with a warning that says which folder and why."""
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
    folder = tmp_path / where
    if kind == "link":
        folder = folder.rename(tmp_path / "elsewhere")
        (tmp_path / where).symlink_to(folder)
    else:
        spoil(folder, kind)
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        assert len(list(reader)) == 1
    warned = [record.getMessage() for record in caplog.records if record.name == "pyreplog"]
    assert [str(tmp_path / where) in text and said in text for text in warned] == ([True] if said else [])


def test_row_43_permission_bits(tmp_path: Path) -> None:
    """Whatever the umask, what a log makes in its whole life is its owner's alone: folders 0700, files 0600."""
    before = os.umask(0)
    try:
        with pyreplog.open_log(tmp_path / "log", config={"segment.bytes": 2000}) as log:
            for _ in range(20):
                log.append(bytes(500))
            log.flush()
            modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "log", *(tmp_path / "log").rglob("*"))}
        modes |= {path: path.stat().st_mode & 0o777 for path in (tmp_path / "log", *(tmp_path / "log").rglob("*"))}
    finally:
        os.umask(before)
    assert len(modes) > 15
    assert {
        path: oct(mode)
        for path, mode in modes.items()
        if mode != (0o700 if path.suffix == "" and path.is_dir() else 0o600)
    } == {}


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "ceph", "ext4", ""])
def test_row_49_network_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A folder on NFS or SMB is not written to, unless somebody insists; reading is fine. Where the kernel does not
    tell, it is taken."""
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
    device = (tmp_path / "log").stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw,noatime master:1 - {kind} server:/x rw\n"
        if kind
        else ""
    )
    monkeypatch.setattr("pyreplog.system.mounts.MOUNTS_PATH", str(mounts))
    if kind in ("ext4", ""):
        pyreplog.open_log(tmp_path / "log").close()
        return
    with pytest.raises(pyreplog.StorageError, match=f"network file system .{kind}"):
        pyreplog.open_log(tmp_path / "log")
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        assert len(list(reader)) == 1
    with pyreplog.open_log(tmp_path / "log", disk=SystemDisk(any_folder=True)) as log:
        assert log.append(b"y") == 1


ROWS = (*range(1, 20), *range(28, 45), *range(47, 51))
"""Of the fault table, those of one machine; the others take a network or more than one node."""


def test_the_page_knows_every_row() -> None:
    """The page of the fault table has each row of one machine, and names tests for it that are there; 34 says that
    nothing is claimed."""
    root = Path(__file__).parents[3]
    page = (root / "docs/internals/faults.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page))
    assert len(named) > 20
    for path, test in named:
        text = (root / path).read_text()
        assert not test or f"def {test}" in text, f"{path} has no {test}"
    here = "".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    for number in {*ROWS, *map(int, re.findall(r"def test_row_(\d+)_", here))}:
        row = re.search(rf"^\| {number} \|.*", page, re.MULTILINE)
        assert row is not None, f"row {number} is not on the page"
        assert "`tests/" in row[0] or number == 34, f"row {number} names no test"
