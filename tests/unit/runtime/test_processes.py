"""The fault table's rows about processes, as a program with an open log meets them: forks, other processes, other
copies of the library, signals, and every way to end. The number of its row is in each test's name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pyreplog
from tests.unit.runtime.programs import ran

# --------------------------------------------------------------------------------------------- fork

FORK = """
import os, sys, threading, pyreplog
folder, moment = sys.argv[1:]
log = pyreplog.open_log(folder)
log.append_many([b"a", b"b"])
ack = log.append_nowait(b"c")
iterator = log.read()
next(iterator)
reader = pyreplog.open_log(folder, "r")
stop = threading.Event()
def busy():
    while not stop.is_set():
        log.append(b"thread")
threads = [threading.Thread(target=busy) for _ in range(3 if moment == "busy" else 0)]
for thread in threads:
    thread.start()
if moment == "locked":  # another thread is inside, as it may be at any moment
    held, go = threading.Event(), threading.Event()
    def hold():
        with log._writer.lock:
            held.set()
            go.wait()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
size = lambda: sum(os.stat(os.path.join(at, name)).st_size for at, _, names in os.walk(folder) for name in names)
pid = os.fork()
if not pid:
    import pyarrow as pa
    refused = 0
    uses = [
        lambda: log.append(b"x"), lambda: log.append(b"x", wait=False), lambda: log.append_nowait(b"x"),
        lambda: log.append_many([b"x"]),
        lambda: log.append_many([b"x"], wait=False), lambda: log.append_arrow(pa.table({"value": [b"x"]})),
        lambda: log.flush(),
        lambda: log.delete_records(1), lambda: list(log.read()), lambda: list(log.follow(timeout=0)), lambda: list(log),
        lambda: log.stats(), lambda: log.seek(timestamp=1), lambda: list(reader),
        lambda: list(reader.follow(timeout=0)),
    ]
    for use in uses:
        try:
            use()
        except pyreplog.ForkedError:
            refused += 1
        except BaseException as error:
            print("child", error.__class__, error, flush=True)
    print("refused", refused, "of", len(uses), flush=True)
    log.close()
    reader.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
if moment == "locked":
    go.set()
    holder.join()
stop.set()
for thread in threads:
    thread.join()
assert ack.result().offset == 2
log.append(b"after")
print([record.value.decode() for record in log if record.value != b"thread"])
reader.close()
log.close()
pyreplog.open_log(folder).close()
"""


@pytest.mark.parametrize("moment", ["quiet", "locked", "busy"])
def test_row_29_fork(tmp_path: Path, moment: str) -> None:
    """Whatever the child of a fork asks of an open log is a ForkedError, even when a thread of the parent was
    inside at that moment; the parent goes on, its pending records and its lock are its own."""
    lines = ran(FORK, tmp_path / "log", moment).splitlines()
    assert lines == ["refused 15 of 15", "['a', 'b', 'c', 'after']"]


FORK_PENDING = """
import asyncio, os, signal, sys, threading, pyreplog, pyreplog.runtime.views
from pyreplog.runtime.group_commit import GroupCommit
folder, pyreplog.runtime.views.READ_SIZE = sys.argv[1], 100     # a batch at a time
log = pyreplog.open_log(folder, config={"segment.bytes": 1024})
log.append_many([b"x" * 200, b"y" * 200])
log.append_many([b"x" * 200, b"y" * 200])
reader = pyreplog.open_log(folder, "r")
iterator, follower = reader.read(), reader.follow()
next(iterator), next(follower)
sync, entered, go = GroupCommit._sync, threading.Event(), threading.Event()
def slow(*arguments):
    entered.set()
    go.wait()
    sync(*arguments)
GroupCommit._sync = slow
written = log.append_nowait(b"written")      # the background thread syncs it
assert entered.wait(20)
many = log.append_many([b"many"], wait=False)
log._writer._background._work = lambda: None
gathered = log.append_nowait(b"gathered")
lost = log.append_many([b"in between"], wait=False)
between = log._writer._pending._unsynced.pop()       # as in the thread that is about to note it
held = threading.Event()
def hold():     # other threads are inside, as they may be at any moment
    with log._writer.lock, log._writer._closing, reader._view._lock:
        held.set()
        go.wait()
holder = threading.Thread(target=hold)
holder.start()
held.wait()
async def awaited(ack):
    return await ack
pid = os.fork()
if not pid:
    signal.alarm(20)
    refused = 0
    acks = (written, gathered, many[0], lost[0])
    uses = [lambda: next(follower) and [next(follower) for _ in range(4)], lambda: list(iterator)]
    uses += [lambda ack=ack: ack.result() for ack in acks]
    uses += [lambda ack=ack: ack.result(1) for ack in acks]
    uses += [lambda ack=ack: asyncio.run(awaited(ack)) for ack in acks]
    for use in uses:
        try:
            print("child", use(), flush=True)
        except pyreplog.ForkedError:
            refused += 1
        except BaseException as error:
            print("child", error.__class__, error, flush=True)
    print("refused", refused, "of", len(uses), flush=True)
    log.close()
    reader.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
log._writer._pending._unsynced.append(between)
go.set()
holder.join()
log.flush()
print([ack.result().offset for ack in (written, many[0], gathered, lost[0])])
reader.close()
log.close()
"""


def test_row_29_what_waits_when_a_process_forks(tmp_path: Path) -> None:
    """Handles on what was not acknowledged yet, and iterators that are under way, are the parent's too: none hangs
    in the child."""
    assert ran(FORK_PENDING, tmp_path / "log").splitlines() == ["refused 14 of 14", "[4, 5, 6, 7]"]


def test_row_29_a_child_that_lives_on(tmp_path: Path) -> None:
    """A child that outlives its parent neither keeps the folder locked nor writes to it when it ends in order."""
    code = """
import os, sys, pyreplog
log = pyreplog.open_log(sys.argv[1])
log.append(b"parent")
gate, opened = os.pipe()
pid = os.fork()
if not pid:
    os.close(opened)
    os.read(gate, 1)
    sys.exit(0)     # atexit runs in the child, too
os.close(gate)
log.close()
with pyreplog.open_log(sys.argv[1]) as again:   # while the child lives
    again.append(b"again")
before = {name: os.stat(os.path.join(sys.argv[1], name)).st_mtime_ns for name in os.listdir(sys.argv[1])}
os.close(opened)
assert os.waitpid(pid, 0)[1] == 0
assert before == {name: os.stat(os.path.join(sys.argv[1], name)).st_mtime_ns for name in os.listdir(sys.argv[1])}
"""
    ran(code, tmp_path / "log")
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        assert [record.value for record in reader] == [b"parent", b"again"]


# ----------------------------------------------------------------------- other processes and copies

HOLD = """
import sys, pyreplog
log = pyreplog.open_log(sys.argv[1])
log.append(b"x")
print("open", flush=True)
sys.stdin.read()
"""


def test_row_30_another_process(tmp_path: Path) -> None:
    """A second writer is refused with the holder's pid; readers are not; when the holder is killed the folder is
    free at once."""
    folder = tmp_path / "log"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(pyreplog.LockedError) as caught:
            pyreplog.open_log(folder)
        assert f"pid {holder.pid} " in caught.value.holder
        with pyreplog.open_log(folder, "r") as reader:
            assert [record.value for record in reader] == [b"x"]
    finally:
        holder.kill()
        holder.communicate()
    with pyreplog.open_log(folder) as log:
        assert log.append(b"y") == 1


@pytest.mark.parametrize("times", ["first", "again"])
def test_row_30_the_lock_file_was_removed(tmp_path: Path, times: str) -> None:
    """People remove lock files. A second writer is refused all the same, in another process and in this one, and
    what was acknowledged is there; when the holder is killed the folder is free at once. So it is in a folder that
    was written before."""
    folder = tmp_path / "log"
    if times == "again":
        pyreplog.open_log(folder).close()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        (folder / ".lock").unlink()
        for _ in range(2):  # the first try leaves a lock file
            with pytest.raises(pyreplog.LockedError, match="whose lock file was removed"):
                pyreplog.open_log(folder)
    finally:
        holder.kill()
        holder.communicate()
    with pyreplog.open_log(folder) as log:
        assert log.append(b"y") == 1
        (folder / ".lock").unlink()
        with pytest.raises(pyreplog.LockedError):
            pyreplog.open_log(folder)
        assert log.append(b"z") == 2
    with pyreplog.open_log(folder) as log:
        assert [record.value for record in log] == [b"x", b"y", b"z"]


def test_row_31_twice_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same folder under any spelling of its path is refused to the same process, which keeps the first one's
    lock all the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "way").symlink_to(tmp_path / "real")
    with pyreplog.open_log("real/log") as log:
        for spelling in ("real/log", "./real//log/", str(tmp_path / "real" / "log"), "way/log", "real/../real/log"):
            with pytest.raises(pyreplog.LockedError, match=f"pid {os.getpid()} "):
                pyreplog.open_log(spelling)
        with pytest.raises(AssertionError, match="LockedError"):
            ran(HOLD, tmp_path / "real" / "log")
        log.append(b"x")


TWO_COPIES = """
import importlib, shutil, sys, pathlib
import pyreplog as first
package = pathlib.Path(first.__file__).parent
shutil.copytree(package, sys.argv[2] + "/pyreplog", ignore=shutil.ignore_patterns("__pycache__"))
for name in [name for name in sys.modules if name.split(".")[0] == "pyreplog"]:
    del sys.modules[name]
sys.path.insert(0, sys.argv[2])
second = importlib.import_module("pyreplog")
assert second.__file__ != first.__file__ and second.LockedError is not first.LockedError
with first.open_log(sys.argv[1]) as log:
    try:
        second.open_log(sys.argv[1])
    except second.LockedError as error:
        print("refused", "pid" in error.holder)
    log.append(b"first")
    with second.open_log(sys.argv[1], "r") as reader:
        print([record.value for record in reader])
    try:                                      # what was closed by one copy must not have given up the other's lock
        second.open_log(sys.argv[1])
    except second.LockedError:
        print("refused")
with second.open_log(sys.argv[1]) as log:
    print(log.append(b"second"))
"""


def test_row_32_two_copies_of_the_library(tmp_path: Path) -> None:
    """Two copies of the package in one process exclude each other as two processes do."""
    assert ran(TWO_COPIES, tmp_path / "log", tmp_path).splitlines() == ["refused True", "[b'first']", "refused", "1"]


# ------------------------------------------------------------------------------------------ signals

STORM = """
import random, signal, sys, pyreplog
class Struck(BaseException):
    pass
def strike(number, frame):
    global armed
    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00005, 0.01))
    if armed:
        armed = False
        raise Struck
armed = False
chance = random.Random(int(sys.argv[3]))
log = pyreplog.open_log(sys.argv[1], durability=sys.argv[2], config={"segment.bytes": 20000})
told = {}
tried = set()
signal.signal(signal.SIGALRM, strike)
signal.setitimer(signal.ITIMER_REAL, 0.001)
number = strikes = 0
while strikes < 200:
    try:
        while True:
            armed = True  # again each time: one that struck within a `__del__` was swallowed
            number += 1
            value = b"%d" % number
            tried.add(value)
            way = number % 5
            if way == 0:
                told[log.append(value)] = value
            elif way == 1:
                told[log.append_many([value])[0]] = value
            elif way == 2:
                told[log.append_nowait(value).result().offset] = value
            elif way == 3:
                told[log.append_many([value], wait=False)[0].result().offset] = value
            else:
                for record in log.follow(max(log.high_watermark - 2, 0), timeout=0.0005):
                    pass
    except Struck:
        strikes += 1
signal.setitimer(signal.ITIMER_REAL, 0)
told[log.append(b"last")] = b"last"
found = {record.offset: record.value for record in log.read()}
assert sorted(found) == list(range(len(found)))
assert told.items() <= found.items(), "lost or moved"
assert len(set(found.values())) == len(found), "repeated"
assert set(found.values()) <= tried | {b"last"}
log.close()
print(len(told) > 0)
"""


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_row_35_signals(tmp_path: Path, durability: str) -> None:
    """Handlers that raise (as Ctrl-C does) 200 times at chance moments: what was acknowledged is there once, at its
    offset, and nobody hangs. Every single moment is tried in test_log_faults.py."""
    # Python itself tells, on stderr, of handlers that raised within a `__del__`.
    assert ran(STORM, tmp_path / "log", durability, 1, options=(), quiet=False) == "True\n"


def test_row_35_ctrl_c_ends_a_program_in_order(tmp_path: Path) -> None:
    """SIGINT while a program waits in ``follow`` is a KeyboardInterrupt there; the log is closed in order at
    exit."""
    code = """
import sys, pyreplog
log = pyreplog.open_log(sys.argv[1])
log.append(b"x")
try:
    for record in log.follow():
        print("follows", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "follows\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted\n"
    assert process.returncode == 0
    assert (tmp_path / "log" / ".kafka_cleanshutdown").exists()


# ---------------------------------------------------------------------------------------- every end

ENDS = {
    "return": "",
    "exit": "sys.exit(0)",
    "exit in a thread": "thread = threading.Thread(target=sys.exit); thread.start()",
    "daemon threads append": (
        """
def work():
    try:
        while True:
            log.append_nowait(b"d")
    except pyreplog.ClosedError:
        pass
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
"""
    ),
    "daemon thread follows": "threading.Thread(target=lambda: list(log.follow()), daemon=True).start()",
    "thread closes": "threading.Thread(target=log.close).start()",
    "cycle": "log.me = [log]; del log",
    "deleted": "import gc; del log; gc.collect()",
    "follower left": "follower = log.follow(); next(follower)",
}


@pytest.mark.parametrize("end", list(ENDS))
def test_row_36_the_end_of_the_interpreter(tmp_path: Path, end: str) -> None:
    """However a program ends without closing its log, handles that are pending then are records of the log: it is
    closed in order."""
    code = f"""
import sys, threading, warnings, pyreplog
warnings.simplefilter("ignore", ResourceWarning)
log = pyreplog.open_log(sys.argv[1], durability="os")
acks = [log.append_nowait(b"%d" % number) for number in range(1000)]
many = log.append_many([b"many"], wait=False)
{ENDS[end]}
"""
    ran(code, tmp_path / "log", options=("-X", "dev"))
    assert (tmp_path / "log" / ".kafka_cleanshutdown").exists()
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        values = [record.value for record in reader]
    assert [value for value in values if value != b"d"] == [b"%d" % number for number in range(1000)] + [b"many"]


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_row_36_no_end_at_all(tmp_path: Path, durability: str) -> None:
    """``os._exit`` closes nothing: what was acknowledged is there, and what was pending is there in order from the
    first or not at all."""
    code = """
import os, sys, pyreplog
log = pyreplog.open_log(sys.argv[1], durability=sys.argv[2])
log.append_many([b"acknowledged"] * 10)
for number in range(1000):
    log.append_nowait(b"%d" % number)
os._exit(0)
"""
    ran(code, tmp_path / "log", durability)
    with pyreplog.open_log(tmp_path / "log") as log:
        values = [record.value for record in log]
    assert values[:10] == [b"acknowledged"] * 10
    assert values[10:] == [b"%d" % number for number in range(len(values) - 10)]


def test_row_36_asyncio_ends(tmp_path: Path) -> None:
    """A loop that is left with a log open and appends under way ends the program without a hang or a complaint, and
    loses nothing that was acknowledged."""
    code = """
import asyncio, sys, warnings
from pyreplog import aio
warnings.simplefilter("ignore", ResourceWarning)
async def main():
    global log
    log = await aio.open_log(sys.argv[1])
    await log.append(b"acknowledged")
    tasks = [asyncio.create_task(log.append(b"x")) for _ in range(50)]
    await asyncio.sleep(0)
asyncio.run(main())
"""
    ran(code, tmp_path / "log")
    with pyreplog.open_log(tmp_path / "log", "r") as reader:
        values = [record.value for record in reader]
    assert values[0] == b"acknowledged"
    assert len(values) == 51
