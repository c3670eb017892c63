"""Row 48 of the fault table while it runs: an audit hook hears of everything that Python unpickles, unmarshals,
compiles or executes.

A first life loads all that is ever loaded (which executes the library's own modules); in the second, from the same
calls with damaged files besides, nothing of the kind may happen, and no file may be opened outside the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.runtime.programs import ran

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what else is opened is known of Linux alone")

LIVES = """
import os, shutil, sys
import pyreplog
from pyreplog.repair import plan_repair
from pyreplog.system import SystemDisk
from pyreplog.verify import verify

place, planted = sys.argv[1:]
FOREIGN = ("pickle.", "marshal.", "exec", "compile", "code.", "import", "ctypes.", "dbm.", "shelve.",
           "os.system", "os.exec", "subprocess.")
SYSTEM = ("/proc/", "/sys/", "/dev/")
heard, armed = [], False

def hook(event, arguments):
    if armed:
        if event.startswith(FOREIGN):
            heard.append((event, str(arguments)[:200]))
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path = os.fsdecode(arguments[0])
            if path.startswith("/") and not path.startswith((place, *SYSTEM)):
                heard.append((event, path))

def alone(root):
    with pyreplog.open_log(f"{root}/log", config={"segment.bytes": 2048, "compression.type": "gzip"}) as log:
        for number in range(20):
            log.append(b"%d" % number * 50, key=b"k", headers=[("h", b"v")])
        log.append_many([b"many"] * 20)
        log.append_nowait(b"later").result()
        assert len(list(log.read())) == 41
        assert log.seek(timestamp=0) is not None
        assert sum(batch.row_count for batch in log.scan().batches()) == 41
        assert len(list(log.follow(0, timeout=0))) == 41
        log.stats()
    with pyreplog.open_log(f"{root}/log", "r") as reader:
        assert len(list(reader)) == 41
    if planted == "pickle":
        import pickle
        pickle.loads(pickle.dumps(print))

def damaged(root):
    # Every file of the log, with a byte in its middle changed, and cut short: read, verified,
    # surveyed, opened for writing.
    disk = SystemDisk()
    found = [os.path.join(folder, name) for folder, _, names in os.walk(f"{root}/log") for name in names]
    names = [os.path.relpath(path, f"{root}/log") for path in found]
    for name in sorted(names):
        for change in (
            lambda data: data[: len(data) // 2] + b"\\x80" + data[len(data) // 2 + 1 :],
            lambda data: data[: len(data) // 2],
        ):
            copy = f"{root}/copy"
            shutil.copytree(f"{root}/log", copy)
            with open(f"{copy}/{name}", "r+b") as file:
                data = change(file.read())
                file.seek(0)
                file.truncate()
                file.write(data)
            for mode in ("r", "a"):
                try:
                    with pyreplog.open_log(copy, mode) as log:
                        list(log)
                except pyreplog.PyreplogError:
                    pass
            verify(disk, copy)
            try:
                plan_repair(disk, copy)
            except pyreplog.PyreplogError:
                pass
            shutil.rmtree(copy)
    disk.close()

def together(root):
    for _ in range(2):
        with pyreplog.Cluster(f"{root}/cluster", nodes=2) as cluster:
            if not cluster.admin.topics():
                cluster.admin.create_topic("t", partitions=2, replication_factor=2)
            with cluster.producer() as producer:
                producer.send("t", b"value").result(30)
            with cluster.consumer("t") as consumer:
                assert list(consumer.until_end())

sys.addaudithook(hook)
for number in range(2):
    root = f"{place}/{number}"
    os.mkdir(root)
    armed = number == 1
    alone(root)
    damaged(root)
    together(root)
armed = False
for event in dict.fromkeys(heard):
    print(event)
print("heard", len(heard))
"""


def test_row_48_no_foreign_bytes_are_run(tmp_path: Path) -> None:
    """Appending, reading, scanning, verifying, a cluster, damaged folders: not one of those events."""
    assert ran(LIVES, tmp_path, "", options=()) == "heard 0\n"


def test_a_pickle_is_heard(tmp_path: Path) -> None:
    """The hook is not deaf."""
    assert "pickle.find_class" in ran(LIVES, tmp_path, "pickle", options=())
