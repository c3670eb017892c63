"""What the system really is asked for, seen from outside by strace; and its errors, put in there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyreplog
from tests.unit.system.test_system_disk import environment

WORKLOAD = """
import sys, threading
from pyreplog.errors import StorageError
from pyreplog.system import SystemDisk
root = sys.argv[1]
disk = SystemDisk()
news = threading.Event()
def tell(what, call):
    try:
        call()
    except StorageError as error:
        print(what, error.errno, flush=True)
    else:
        print(what, "ok", flush=True)
def synced():
    news.clear()
    disk.submit_sync([file], news.set)
    news.wait()
    if error := disk.poll()[0].error:
        raise error
disk.make_directory(root + "/p/q")
lock = disk.lock(root + "/p/.lock", "")
file = disk.create(root + "/p/q/log", 1 << 16)
for number in range(4):
    tell("write", lambda: file.write_at(number * 100, [b"x" * 100]))
    tell("sync", synced)
tell("gather", lambda: file.write_at(400, [b"y" * 50, b"z" * 50]))
tell("truncate", lambda: file.truncate(450))
tell("blocking", file.sync)
tell("rename", lambda: disk.rename(root + "/p/q/log", root + "/p/q/new"))
tell("folder", lambda: disk.sync_directory(root + "/p/q"))
print("holds", len(bytes(file.read_at(0, 1000))), flush=True)
file.close()
tell("remove", lambda: disk.remove(root + "/p/q/new"))
lock.release()
disk.close()
"""
HANGING = """
import sys, threading, os
from pyreplog.system import SyncBatcher, SystemDisk
held = SyncBatcher()
disks = [SystemDisk(batcher=held) for _ in range(3)]
files = [disk.create(f"{sys.argv[1]}/{number}") for number, disk in enumerate(disks)]
news = threading.Semaphore(0)
def told(awaited):
    for number in awaited:
        files[number].write_at(0, [b"x"])
        disks[number].submit_sync([files[number]], news.release)
    held.flush_and_wait(1000)
    rest = set(awaited) - {1}
    while rest:
        news.acquire()
        rest -= {number for number in rest if disks[number].poll()}
    print("all" if disks[1].poll() else "told", flush=True)
told([0, 1, 2])
told([0, 2])
os._exit(0)
"""
FINE = ["write ok", "sync ok"] * 4 + [
    "gather ok",
    "truncate ok",
    "blocking ok",
    "rename ok",
    "folder ok",
    "holds 450",
    "remove ok",
]
MUTATING = (
    "write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync,syncfs,sync_file_range,msync,ftruncate,truncate,fallocate,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,open,openat,creat,mmap,sendfile,copy_file_range"
)


@pytest.fixture(scope="module")
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("SKIPPED FAULT RIG: no strace")
    tried = subprocess.run([found, "-o", "/dev/null", "-e", "trace=fsync", "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"SKIPPED FAULT RIG: strace may not trace here: {tried.stderr.strip()}")
    return found


def run(strace: str, root: Path, *options: str) -> list[str]:
    command = [strace, "-f", "-qq", "-e", "signal=none", *options, sys.executable, "-c", WORKLOAD, str(root)]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**environment(), "PYTHONDONTWRITEBYTECODE": "1"}, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_nothing_else_is_asked_for(strace: str, tmp_path: Path) -> None:
    """Under a root exactly the system calls happen that the port's calls stand for, in their order, each with safe
    flags."""
    root = tmp_path / "data"
    root.mkdir(0o700)
    log = tmp_path / "strace.txt"
    assert run(strace, root, "-y", "-s", "0", "-o", str(log), "-e", f"trace={MUTATING}") == FINE
    calls = []
    for line in log.read_text().splitlines():
        if str(root) not in line or "resumed>" in line:
            continue
        found = re.match(r"(?:\d+ +)?(\w+)\((.*)", line)
        assert found, line
        name, rest = found.groups()
        if name in ("open", "openat"):
            assert "O_CLOEXEC" in rest
            assert "O_NOFOLLOW" in rest or "O_DIRECTORY" in rest
        calls.append((name.replace("pwritev2", "pwritev"), rest))
    last = {"p": "/p", "q": "/q", "lock": "/.lock", "log": "/log", "new": "/new"}
    assert all(re.search(r"/data(/|\"|>)", rest) for _, rest in calls), last
    assert [name for name, _ in calls] == [
        "openat",  # is the root empty? then its own name, elsewhere, is synced
        "mkdir",  # p
        "openat",  # and its name in the root is synced, because nobody else will
        "fsync",
        "mkdir",  # q
        "openat",  # the lock
        "ftruncate",
        "pwrite64",
        "openat",  # the log
        "fallocate",
        *["pwrite64", "fdatasync"] * 4,
        "pwritev",
        "ftruncate",
        "fdatasync",
        "rename",
        "openat",
        "fsync",
        "unlink",
        "ftruncate",  # the lock's text
    ]
    assert not any(name == "mmap" for name, _ in calls)


@pytest.mark.parametrize(
    ("call", "inject", "told"),
    [
        ("fdatasync", "error=EIO:when=2", {3: "sync 5", 5: "sync 5", 7: "sync 5", 10: "blocking 5"}),
        ("pwrite64", "error=ENOSPC:when=3", {2: "write 28"}),
        ("pwrite64", "error=EIO:when=3", {2: "write 5"}),
        ("pwrite64", "error=EINTR:when=3", {}),
        ("fdatasync", "error=EINTR:when=1", {}),
        ("pwritev,pwritev2", "error=EIO", {8: "gather 5", 13: "holds 450"}),
        ("ftruncate", "error=EIO:when=2", {9: "truncate 5", 13: "holds 500"}),
        ("rename", "error=EXDEV", {11: "rename 18", 14: "remove 2"}),
        ("fsync", "error=EIO:when=3", {12: "folder 5"}),
        ("unlink", "error=EROFS", {14: "remove 30"}),
        ("fallocate", "error=EOPNOTSUPP", {}),
        ("fdatasync", "delay_enter=50000:when=2", {}),
    ],
)
def test_the_systems_errors_come_out(strace: str, tmp_path: Path, call: str, inject: str, told: dict[int, str]) -> None:
    """An error of a system call comes out of the call that made it with its errno; EINTR does not; a file's sync
    stays failed."""
    want = [told.get(index, line) for index, line in enumerate(FINE)]
    assert run(strace, tmp_path, "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{inject}") == want


@pytest.mark.parametrize(
    ("error", "told"),
    [
        *[(error, ["28" if error == "ENOSPC" else "5", "closed"]) for error in ("EIO", "ENOSPC")],
        *[
            (error, ["ok", "ok"])
            for error in ("EINTR", "EAGAIN", "ENOMEM", "ENOSYS", "EINVAL", "ESPIPE", "EPERM", "EACCES", "EOPNOTSUPP")
        ],
    ],
)
def test_what_is_refused_early_fails_the_sync(strace: str, tmp_path: Path, error: str, told: list[str]) -> None:
    """A large synced append is handed to the disk in pieces. What the system then cannot write it need not tell of
    again, so it counts as a failed sync, and the log is closed. Where it only says that there is no such call, or
    that it began nothing, the sync that follows does all of it."""
    program = """
import sys
import pyreplog
log = pyreplog.open_log(sys.argv[1], durability="sync")
log.append(b"first")
for _ in range(2):
    try:
        log.append(bytes(400_000))
        print("ok")
    except pyreplog.StorageError as error:
        print(error.errno)
    except pyreplog.ClosedError:
        print("closed")
"""
    calls = ("-o", "/dev/null", "-e", "trace=sync_file_range", "-e", f"inject=sync_file_range:error={error}:when=1")
    command = [strace, "-f", "-qq", "-e", "signal=none", *calls, sys.executable, "-c", program, f"{tmp_path}/log"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert ended.stdout.split() == told, ended.stderr
    with pyreplog.open_log(tmp_path / "log") as log:
        assert next(iter(log)).value == b"first"


def test_a_short_write_of_the_system_is_continued(strace: str, tmp_path: Path) -> None:
    """Where the kernel says that it took 60 of 100 bytes, the other 40 are asked for again."""
    log = tmp_path / "strace.txt"
    options = ("-o", str(log), "-e", "trace=pwrite64,pwritev,pwritev2", "-e", "inject=pwrite64:retval=60:when=3")
    assert run(strace, tmp_path, *options) == FINE
    assert re.search(
        r"= 60 \(INJECTED\)\n.*pwritev2?\(\d+, \[\{iov_base=.*iov_len=40\}\], 1, 160(, 0)?\) += 40", log.read_text()
    )


def test_a_read_that_the_system_refuses(strace: str, tmp_path: Path) -> None:
    """EIO of a read of one segment, from outside: the records before it, then the error; those behind it, and
    appends, as ever."""
    program = """
import sys
import pyreplog
log = pyreplog.open_log(sys.argv[1])
given = []
try:
    for record in log.read(0):
        given.append(record.offset)
except pyreplog.StorageError as error:
    print(given[-1], error.errno)
print(next(iter(log.read(int(sys.argv[2])))).offset, log.append(b"more"))
log.close()
"""
    with pyreplog.open_log(tmp_path / "log", config={"segment.bytes": 2000}) as log:
        for number in range(40):
            log.append(b"%d" % number * 50)
    segments = sorted((tmp_path / "log").glob("log-0/*.log"))
    start, end = (int(path.stem) for path in segments[1:3])
    calls = ("-o", "/dev/null", "-P", str(segments[1]), "-e", "trace=pread64", "-e", "inject=pread64:error=EIO")
    command = [
        strace,
        "-f",
        "-qq",
        "-e",
        "signal=none",
        *calls,
        sys.executable,
        "-c",
        program,
        f"{tmp_path}/log",
        str(end),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert ended.stdout.split() == [str(start - 1), "5", str(end), "40"], ended.stderr
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        assert len(list(log)) == 41


def test_a_disk_that_hangs_is_not_for_the_others_to_wait_for(strace: str, tmp_path: Path) -> None:
    """Syncs of several disks that began together: each is told when it ends, and the others may begin again."""
    hang = ("-P", f"{tmp_path}/1", "-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=30000000")
    command = [strace, "-f", "-qq", "-o", "/dev/null", *hang, sys.executable, "-c", HANGING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stdout is not None
        try:
            assert [running.stdout.readline() for _ in range(2)] == ["told\n", "told\n"]
        finally:
            running.kill()  # who hangs ends with the process when nobody traces it any more
