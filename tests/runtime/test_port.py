"""Everything that ``open_log`` does to a disk, it asks of the Disk port: seen from outside by strace."""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.programs import ROOT

WORKLOAD = """
import collections, json, sys
import pyreplog
from pyreplog.system import SystemDisk
root, out, durability = sys.argv[1:]
asked = collections.Counter()

class File:
    def __init__(self, file):
        self.file = file
    def write_at(self, position, parts):
        asked["write"] += 1
        self.file.write_at(position, parts)
    def sync(self):
        asked["sync"] += 1
        self.file.sync()
    def truncate(self, size):
        asked["truncate"] += 1
        self.file.truncate(size)
    def reserve(self, position, size):
        asked["reserve"] += 1
        self.file.reserve(position, size)
    def __getattr__(self, name):
        return getattr(self.file, name)

class Disk(SystemDisk):
    def create(self, path, size=0):
        asked["create"] += 1
        asked["reserve"] += bool(size)
        return File(super().create(path, size))
    def open(self, path, *, write=False):
        asked["open for writing" if write else "open"] += 1
        return File(super().open(path, write=write))
    def rename(self, source, target):
        asked["rename"] += 1
        super().rename(source, target)
    def remove(self, path):
        asked["remove"] += 1
        super().remove(path)
    def sync_directory(self, directory):
        asked["sync of a folder"] += 1
        super().sync_directory(directory)
    def lock(self, path, about):
        asked["lock"] += 1
        return super().lock(path, about)

class Table:
    def __init__(self, scan): self.scan = scan
    def __arrow_c_stream__(self, schema=None): return self.scan.__arrow_c_stream__(schema)

for turn in range(2):
    config = {"segment.bytes": 3000, "file.delete.delay.ms": 0}
    with pyreplog.open_log(root + "/log", disk=Disk(), durability=durability, config=config) as log:
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
    with pyreplog.open_log(root + "/log", "r", disk=Disk()) as reader:
        assert list(reader.follow(timeout=0))
json.dump(asked, open(out, "w"))
"""
CALLS = (
    "write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync,syncfs,sync_file_range,msync,ftruncate,truncate,fallocate,rename,renameat,"
    "renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,open,openat,creat,mmap,sendfile,copy_file_range,splice,"
    "chmod,fchmod,fchmodat,chown,fchown,utimensat"
)


def counted(trace: Path, root: Path) -> collections.Counter[str]:
    """The system calls under ``root`` that change something, by what they are to the port."""
    seen: collections.Counter[str] = collections.Counter()
    for line in trace.read_text().splitlines():
        if not re.search(rf"{re.escape(str(root))}[/>\"]", line) or "resumed>" in line:
            continue
        found = re.match(r"(?:\d+ +)?(\w+)\((.*)", line)
        assert found, line
        name, rest = found.groups()
        if name == "openat":
            if " = -1 " in rest:
                continue
            kind = "open for writing" if "O_RDWR" in rest else "folder" if "O_DIRECTORY" in rest else "open"
            if "O_CREAT" in rest:
                kind = "create" if "O_EXCL" in rest else "lock"
            seen[kind] += 1
        elif name == "mmap":
            assert "PROT_WRITE" not in rest or "MAP_PRIVATE" in rest, line
            raise AssertionError(f"a file of the log is mapped: {line}")
        else:
            lock = "/.lock>" in rest
            seen[f"{'lock ' if lock else ''}{name}"] += 1
    return seen


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_nothing_goes_around_the_port(tmp_path: Path, durability: str) -> None:
    """In a life of a log with everything in it (appends of every kind, rolls, deletions, reading, following, reopening) the system calls
    that touch its folder are exactly those that the Disk port was asked for, one for one; and no file of it is ever mapped."""
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-o", "/dev/null", "true"], check=False, capture_output=True).returncode:
        pytest.skip("SKIPPED FAULT RIG: no strace that may trace here")
    root, trace, out = tmp_path / "root", tmp_path / "trace", tmp_path / "asked.json"
    root.mkdir(mode=0o700)
    command = [strace, "-f", "-qq", "-y", "-s", "0", "-e", "signal=none", "-o", str(trace), "-e", f"trace={CALLS}"]
    ended = subprocess.run(
        [*command, sys.executable, "-c", WORKLOAD, str(root), str(out), durability],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    asked = collections.Counter(json.loads(out.read_text()))
    seen = counted(trace, root)
    assert seen["create"] == asked["create"]
    assert seen["open for writing"] == asked["open for writing"]
    assert seen["rename"] == asked["rename"]
    assert seen["unlink"] == asked["remove"]
    assert seen["lock"] == asked["lock"]
    assert seen["fdatasync"] == asked["sync"]
    assert seen["fallocate"] == asked["reserve"]
    assert seen["ftruncate"] == asked["truncate"]
    assert seen["pwrite64"] + seen["pwritev"] + seen["pwritev2"] == asked["write"]
    # Folders made on the way: their names are synced by the port itself.
    assert asked["sync of a folder"] <= seen["fsync"] <= asked["sync of a folder"] + seen["mkdir"]
    others = {
        "create", "open for writing", "open", "folder", "rename", "unlink", "lock", "fdatasync", "fallocate", "ftruncate", "pwrite64",
        "pwritev", "pwritev2", "fsync", "mkdir", "fchmod", "chmod", "lock ftruncate", "lock pwrite64", "lock fchmod",
    }  # fmt: skip
    assert not set(seen) - others, seen
