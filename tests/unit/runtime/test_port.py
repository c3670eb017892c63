"""Everything that happens to files under a data folder was asked of the Disk port: seen from outside by strace,
call for call and file for file. What is excepted, and why: :func:`tests.unit.runtime.syscall_audit.around`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.unit.runtime.syscall_audit import around, watched

LOG = """
import sys
import pyreplog
root, beside, durability = sys.argv[1:]

class Table:
    def __init__(self, scan): self.scan = scan
    def __arrow_c_stream__(self, schema=None): return self.scan.__arrow_c_stream__(schema)

for turn in range(2):
    config = {"segment.bytes": 3000, "file.delete.delay.ms": 0}
    with pyreplog.open_log(root + "/log", durability=durability, config=config) as log:
        for number in range(20):
            log.append(b"%d" % number * 50, key=b"k", headers=[("h", b"v")])
        log.append_many([bytes(100)] * 40)
        acks = [log.append_nowait(bytes(10)) for _ in range(50)]
        log.append_many([b"x"] * 5, wait=False).result()
        log.append_arrow(log.scan(end=5))
        log.flush()
        assert len(list(log.read())) == len(list(log.follow(timeout=0)))
        log.seek(timestamp=1)
        log.delete_records(30)
    with pyreplog.open_log(root + "/log", "r") as reader:
        assert list(reader.follow(timeout=0))
"""
KILLED = """
import os, signal, sys
import pyreplog
root = sys.argv[1] + "/log"
log = pyreplog.open_log(root, config={"segment.bytes": 3000})
for number in range(60):
    log.append(bytes(100), key=b"%d" % number)
os.kill(os.getpid(), signal.SIGKILL)
"""
RECOVERY = """
import sys
from pathlib import Path
import pyreplog
root = sys.argv[1] + "/log"
with pyreplog.open_log(root) as log:
    assert len(list(log.read())) == 60, log
    log.append(b"y")
assert list(Path(root).glob("*-0/replog.torn-*"))
"""
CLUSTER = """
import sys
import pyreplog
root = sys.argv[1] + "/deep/data"
for turn in range(2):
    with pyreplog.Cluster(root) as cluster:
        if not turn:
            config = {"segment.bytes": "2000", "file.delete.delay.ms": "0"}
            cluster.admin.create_topic("t", partitions=3, replication_factor=3, config=config)
        with cluster.producer() as producer:
            for number in range(30):
                producer.send("t", bytes(100), key=b"%d" % number)
            producer.flush()
            node = cluster.leader("t")
            node.kill()
            producer.send("t", b"x", partition=0).result()
            node.restart()
            producer.send("t", b"x", partition=0).result()
        cluster.admin.delete_records("t", {0: 1})
        with cluster.consumer("t") as consumer:
            assert consumer.poll(timeout=10)
"""
# Of so many partitions a clean stop leaves a summary, which is LMDB's file; the second opening
# reads it.
SUMMARY = """
import sys
from random import Random
from pyreplog.config import LogConfig
from pyreplog.log import LogRoot
from pyreplog.system import SystemClock, SystemDisk
disk = SystemDisk()
for turn in range(2):
    root = LogRoot.open(disk, sys.argv[1] + "/root", clock=SystemClock(), random=Random(turn), lazy=True)
    for number in range(0 if turn else 20):
        root.create_log("t", number, "AAAAAAAAAAAAAAAAAAAAAQ", LogConfig())
    assert len(root.logs) == 20
    root.close()
disk.close()
"""
COMMANDS = """
import sys
import pyreplog
from pathlib import Path
from pyreplog.cli.main import main
from pyreplog.system import SystemDisk
root, beside = sys.argv[1:]
log, saved = root + "/log", root + "/saved"
rows = Path(beside) / "rows.ndjson"
rows.write_text('{"value": "x", "key": "k"}\\n' * 500)
def run(code, *words):
    assert main([str(word) for word in words]) == code, words
run(0, "import", log, rows, "--durability", "os")
run(0, "import", "--resume", log, rows)
run(0, "append", log, rows)
for name in ("out.ndjson", "out.parquet"):
    run(0, "export", log, Path(beside) / name, "--force")
run(0, "verify", log)
run(0, "describe", log)
run(0, "topics", log)
run(0, "dump", log)
run(0, "tail", log)
run(1, "describe", root + "/lag")
file = SystemDisk().open(str(next(Path(log).glob("*-0/*.log"))), write=True)
file.write_at(100, [b"rot"])
file.close()
run(3, "verify", log)
run(3, "repair", log, "--to", saved)
run(3, "repair", log, "--to", saved, "--yes")
run(0, "verify", saved)
"""
# What executors and a driver do, and then whoever owns the log: one batch is appended, one refused,
# one withdrawn, and one is given up.
SPOOL = """
import sys
import pyreplog
from pyreplog.runtime import apply_offline
from pyreplog.spool import BatchId, Spool
from pyreplog.system import SystemClock, SystemDisk
from tests.unit.spool.support import stage
root = sys.argv[1] + "/log"
pyreplog.open_log(root, topic="t").close()
disk = SystemDisk()
spool = Spool(disk, root)
for number in range(4):
    batch = BatchId("query", number)
    staged = [stage(spool, batch, ("t" if number != 2 else "no topic", 0, [b"x"] * 50)) for _ in range(2)]
    lost = stage(spool, batch, ("t", 0, [b"y"]))
    spool.discard([lost])
    if number == 1:
        spool.abandon(batch, staged, once=False)
        continue
    assert spool.publish(batch, staged)
    if number == 3:
        assert spool.withdraw(batch)
    apply_offline(disk, root, SystemClock())
assert spool.answered(BatchId("query", 0))
spool.sweep(1 << 50)
disk.close()
"""
# What the tests above would have to find: done without the port.
AROUND = """
import os, sys
from pyreplog.system import SystemDisk
root = sys.argv[1]
SystemDisk().create(root + "/asked").write_at(0, [b"x"])
with open(root + "/made", "wb") as file:
    file.write(b"x")
    file.flush()
    os.fdatasync(file.fileno())
    os.ftruncate(file.fileno(), 0)
os.rename(root + "/made", root + "/renamed")
open(root + "/renamed", "rb").close()
os.unlink(root + "/renamed")
os.mkdir(root + "/folder")
"""
PROGRAMS = {"cluster": CLUSTER, "summary": SUMMARY, "commands": COMMANDS, "spool": SPOOL}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that is watched."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    return root


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_nothing_goes_around_the_port(root: Path, tmp_path: Path, durability: str) -> None:
    """A life of a log with everything in it: appends of every kind, rolls, deletions, reading, following,
    reopening."""
    run = watched(LOG, root, tmp_path / "beside", durability)
    assert run.returncode == 0, run.errors
    assert around(run) == {}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_else_goes_around_it(root: Path, tmp_path: Path, name: str) -> None:
    """A cluster whose nodes die and come back, a root with a summary, the commands, and what Spark's tasks leave
    for a log."""
    run = watched(PROGRAMS[name], root, tmp_path / "beside")
    assert run.returncode == 0, run.errors
    assert around(run) == {}


def test_nor_in_a_recovery(root: Path, tmp_path: Path) -> None:
    """A log whose writer was killed, and the process that opens it next, which finds a torn tail."""
    killed = watched(KILLED, root, tmp_path / "beside")
    assert killed.returncode == -signal.SIGKILL, killed.errors
    assert around(killed) == {}
    with max((root / "log" / "log-0").glob("*.log")).open("ab") as file:
        file.write(b"torn")
    recovered = watched(RECOVERY, root, tmp_path / "beside")
    assert recovered.returncode == 0, recovered.errors
    assert around(recovered) == {}


def test_what_goes_around_it_is_seen(root: Path, tmp_path: Path) -> None:
    """The look itself: a file that is made, written, synced, cut, renamed, read and removed without the port, and a
    folder."""
    run = watched(AROUND, root, tmp_path / "beside")
    assert run.returncode == 0, run.errors
    made, renamed = f"{root}/made", f"{root}/renamed"
    done = [
        ("lock", made),
        *((kind, made) for kind in ("write", "sync", "truncate", "rename")),
        ("open", renamed),
        ("remove", renamed),
    ]
    assert around(run) == dict.fromkeys([*done, ("mkdir", f"{root}/folder")], (1, 0))
