"""The lock between processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib.util
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreplog.errors import LockedError, StorageError
from pyreplog.system import SystemDisk
from pyreplog.system import file_lock as lock_module
from pyreplog.system.file_lock import SystemLock, hold_file, take_lock
from tests.unit.runtime.interrupt_injection import interrupted
from tests.unit.system.test_system_disk import environment

HOLD = """
import sys
from pyreplog.system import SystemDisk
lock = SystemDisk().lock(sys.argv[1], "the other one")
print("locked", flush=True)
sys.stdin.read()
"""
RACE = """
import sys
from pyreplog.errors import LockedError, StorageError
from pyreplog.system import SystemDisk
sys.stdin.readline()
try:
    lock = SystemDisk().lock(sys.argv[1], "")
except LockedError as error:
    print("refused", error.holder, flush=True)
else:
    print("locked", flush=True)
    sys.stdin.read()
"""
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


def start(program: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


def test_a_second_process_is_refused_with_the_holders_pid(path: Path) -> None:
    """Who comes second hears pid, host, start time and what the first one said about itself; the first one's death
    frees the lock."""
    holder = start(HOLD, path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(LockedError) as caught:
        SystemDisk().lock(str(path), "")
    assert re.fullmatch(
        rf"pid {holder.pid} on \S+ since \d{{4}}-\d\d-\d\dT[\d:]+\+00:00 \(the other one\)", caught.value.holder
    )
    stop(holder)
    SystemDisk().lock(str(path), "").release()


def test_a_running_broker_is_respected(path: Path) -> None:
    """A POSIX lock, which is what a Kafka broker takes, refuses us, and ours refuses it; the text names its pid,
    not an old holder."""
    if not hasattr(fcntl, "F_OFD_GETLK"):
        pytest.skip("this system has no open-file-description locks")
    path.write_text("pid 1 on elsewhere")
    broker = start(BROKER, path)
    assert broker.stdout is not None
    assert broker.stdout.readline() == "locked\n"
    with pytest.raises(LockedError, match=f"pid {broker.pid} ") as caught:
        SystemDisk().lock(str(path), "")
    assert "elsewhere" not in caught.value.holder
    stop(broker)
    lock = SystemDisk().lock(str(path), "")
    broker = start(BROKER.replace("import fcntl, sys", "import fcntl, sys; sys.stderr = open('/dev/null', 'w')"), path)
    out, _ = broker.communicate()
    assert (out, broker.returncode) == ("", 1)
    lock.release()


def test_as_macos_asks_for_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the same locks have other numbers, and ``struct flock`` has another order: a request as on Linux would
    be refused, and with it every folder."""
    if sys.platform != "linux":
        pytest.skip("it is imitated by Linux's own")
    theirs = {"F_OFD_SETLK": 90, "F_OFD_GETLK": 92, "F_WRLCK": 3, "F_UNLCK": 2}
    ours = {number: getattr(fcntl, name) for name, number in theirs.items()}
    ask = fcntl.fcntl

    def imitated(fd: int, command: int, request: bytes) -> bytes:
        begin, length, pid, kind, whence = struct.unpack("<qqihh", request)
        if command < 90 or kind not in (2, 3) or (begin, length, pid, whence) != (0, 0, 0, os.SEEK_SET):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        answer = ask(fd, ours[command], struct.pack("hhqqi0q", ours[kind], whence, begin, length, pid))
        kind, whence, begin, length, pid = struct.unpack("hhqqi0q", answer)
        return struct.pack("<qqihh", begin, length, pid, 2 if kind == ours[2] else 3, whence)

    for name, number in theirs.items():
        monkeypatch.setattr(fcntl, name, number)
    monkeypatch.setattr(fcntl, "fcntl", imitated)
    monkeypatch.setattr(sys, "platform", "darwin")
    spec = importlib.util.spec_from_file_location("lock_of_macos", lock_module.__file__)
    assert spec is not None
    assert spec.loader is not None
    there = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(there)
    lock = there.take_lock(str(path), "the first")
    with pytest.raises(LockedError, match="the first"):
        there.take_lock(str(path), "the second")
    lock.release()
    broker = start(BROKER, path)
    assert broker.stdout is not None
    assert broker.stdout.readline() == "locked\n"
    with pytest.raises(LockedError, match=f"pid {broker.pid} "):
        there.take_lock(str(path), "the third")
    stop(broker)
    there.take_lock(str(path), "the fourth").release()


def test_one_of_many_wins(path: Path) -> None:
    """Of many processes that try at the same time exactly one gets the lock, and the others name it."""
    racers = [start(RACE, path) for _ in range(20)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = {}
    for racer in racers:
        assert racer.stdout is not None
        answers[racer.pid] = racer.stdout.readline().strip()
    winners = [pid for pid, answer in answers.items() if answer == "locked"]
    assert len(winners) == 1
    for pid, answer in answers.items():
        assert pid in winners or answer.startswith(f"refused pid {winners[0]} on ")
    for racer in racers:
        stop(racer)


def test_a_text_left_by_a_dead_holder_misleads_nobody(path: Path) -> None:
    """After a kill the file still holds a text; it is no lock, and the next holder's text replaces it."""
    holder = start(HOLD, path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    stop(holder)
    assert str(holder.pid) in path.read_text()
    before = time.time()
    lock = SystemDisk().lock(str(path), "me")
    assert path.read_text().startswith(f"pid {os.getpid()} on ")
    assert time.time() - before < 5
    lock.release()
    assert path.read_text() == ""


def test_interrupted_at_any_moment(path: Path) -> None:
    """A signal handler that raises while a lock is taken or given up: neither it nor its descriptor is left
    behind."""
    take_lock(str(path), "").release()
    before = len(os.listdir("/proc/self/fd"))
    held: list[SystemLock] = []
    ways: list[Callable[[], object]] = [lambda: held.append(take_lock(str(path), "")), lambda: held[0].release()]
    for way in ways:
        moment = 0
        struck = True
        while struck:
            moment += 1
            if way is ways[1]:
                held.append(take_lock(str(path), ""))
            struck = interrupted(moment, way)
            for lock in held:
                lock.release()
            held.clear()
            take_lock(str(path), "").release()
            assert len(os.listdir("/proc/self/fd")) == before, moment
        assert moment > 5


@pytest.mark.parametrize("step", ["ftruncate", "fcntl", "flock"])
def test_what_a_handler_raises_amid_a_release(path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Is its caller's, although it is an OSError, as those are that the release itself makes nothing of; and
    nothing is left behind."""

    def raises(*_: object) -> None:
        raise TimeoutError("the program's own limit")

    def struck(*_: object) -> None:
        signal.raise_signal(signal.SIGUSR1)

    lock = take_lock(str(path), "")
    before = signal.signal(signal.SIGUSR1, raises)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os if step == "ftruncate" else fcntl, step, struck)
            with pytest.raises(TimeoutError, match="the program's own limit"):
                lock.release()
    finally:
        signal.signal(signal.SIGUSR1, before)
    take_lock(str(path), "").release()


def test_a_copy_of_its_descriptor_keeps_no_lock_that_was_released(path: Path) -> None:
    """Such as that of a process that was forked a moment ago, or by code that tells nobody of it."""
    disk = SystemDisk()
    lock = disk.lock(str(path), "the first")
    assert isinstance(lock, SystemLock)
    copy = os.dup(lock._fd)
    try:
        lock.release()
        disk.lock(str(path), "the second").release()
    finally:
        os.close(copy)


@pytest.mark.parametrize("system_lock", [True, False], ids=["the system's", "by the registry"])
def test_another_thread_has_it_before_its_release_is_over(
    path: Path, monkeypatch: pytest.MonkeyPatch, system_lock: bool
) -> None:
    """What it took stays its own: the slower one neither forgets it, nor gives it up by closing the file, nor
    fails."""
    if not system_lock:
        monkeypatch.setattr(lock_module, "_SETLK", 0)
    first = take_lock(str(path), "the first")
    faster: list[SystemLock] = []

    def try_for_it() -> None:
        if not faster:
            with contextlib.suppress(LockedError):
                faster.append(take_lock(str(path), "the second"))

    def between(call: Callable[..., None]) -> Callable[..., None]:
        def called(*arguments: int) -> None:
            with monkeypatch.context() as during:
                during.setattr(lock_module, "_set", set_it)
                during.setattr(os, "close", close)
                try_for_it()
                call(*arguments)
                try_for_it()

        return called

    set_it, close = lock_module._set, os.close
    with monkeypatch.context() as during:
        during.setattr(lock_module, "_set", between(set_it))
        during.setattr(os, "close", between(close))
        first.release()
    try_for_it()
    with pytest.raises(LockedError, match="the second"):
        take_lock(str(path), "the third")
    other = start(RACE, path)
    out, _ = other.communicate("go\n")
    assert out.startswith("refused ")
    faster[0].release()
    assert not lock_module._registry
    take_lock(str(path), "").release()


def test_a_file_that_is_held_stays_as_it_is(tmp_path: Path) -> None:
    """One at a time holds it; whoever reads it meanwhile, opening and closing it, takes nothing from its holder."""
    path = tmp_path / "meta.properties"
    path.write_text("version=1")
    held = hold_file(str(path))
    assert path.read_text() == "version=1"
    with pytest.raises(LockedError):
        hold_file(str(path))
    held.release()
    held.release()
    hold_file(str(path)).release()
    assert path.read_text() == "version=1"


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    """A child that lives on keeps no file from whoever wants it when its parent gave it up, and gives up nothing of
    its parent's."""
    path = tmp_path / "meta.properties"
    path.write_text("version=1")
    held = hold_file(str(path))
    gone, go = os.pipe()
    child = os.fork()
    if not child:
        os.close(go)
        held.release()
        os.read(gone, 1)
        os._exit(0)
    with pytest.raises(LockedError):
        hold_file(str(path))
    held.release()
    hold_file(str(path)).release()
    os.close(go)
    assert os.waitpid(child, 0)[1] == 0
    os.close(gone)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_such_locks(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There nothing is held, and nothing refused; any other failure is told, and leaves no descriptor."""
    path = tmp_path / "meta.properties"
    path.write_text("version=1")
    answer = code

    def refuse(fd: int, how: int) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(fcntl, "flock", refuse)
    held = hold_file(str(path))
    hold_file(str(path)).release()
    held.release()
    answer = errno.EIO
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(StorageError):
        hold_file(str(path))
    assert not before or len(os.listdir("/proc/self/fd")) == before
