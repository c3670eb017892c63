"""Bugs planted on purpose into what embeds the log in a process, by their numbers in the list of planted bugs: each
is caught by the same program that passes without it. The programs are those of the fault table's rows, cut to what
the bug touches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runtime.programs import ran

POSIX_LOCK = """
import pyreplog.system.file_lock as lock
lock._SETLK = 0                            # fcntl.lockf: a POSIX lock, which does not exclude its own process
lock._flock = lambda fd, path: None        # and nothing is held besides
"""
FORK_CHILD_WRITES = """
import pyreplog.system.process as process, pyreplog.runtime.at_exit as exits
process.Process.left = property(lambda self: False, lambda self, value: None)
exits.remember = lambda item: None
import pyreplog.runtime.log as log_module
log_module.remember = exits.remember
"""
ANY_TOPIC = """
for module in list(sys.modules.values()):
    if module.__name__.startswith("pyreplog.") and hasattr(module, "check_topic"):
        module.check_topic = lambda name: name
"""
LINKS_FOLLOWED = """
import os, pyreplog.system.file as file, pyreplog.system.disk as disk
file.OPEN_FLAGS &= ~os.O_NOFOLLOW
disk.OPEN_FLAGS &= ~os.O_NOFOLLOW
"""

FOLDERS_FOLLOWED = """
import pyreplog.system.disk as disk
disk.SystemDisk.check_directory = lambda self, path, *, write=True: None
"""

FOREIGN_LINKS_FOLLOWED = """
import pyreplog.system.disk as disk
disk._check_link = lambda folder, status, modes: None
"""

TWO_COPIES = """
import importlib, shutil, sys, pathlib
import pyreplog as first
ignored = shutil.ignore_patterns("__pycache__")
shutil.copytree(pathlib.Path(first.__file__).parent, sys.argv[2] + "/pyreplog", ignore=ignored)
{plant}
log = first.open_log(sys.argv[1])
for name in [name for name in sys.modules if name.split(".")[0] == "pyreplog"]:
    del sys.modules[name]
sys.path.insert(0, sys.argv[2])
second = importlib.import_module("pyreplog")
{plant}
try:
    second.open_log(sys.argv[1])
except second.LockedError:
    print("right")
else:
    print("caught: two writers in one folder")
"""
FORKS = """
import os, sys, pyreplog
{plant}
log = pyreplog.open_log(sys.argv[1])
log.append(b"parent")
pid = os.fork()
if not pid:
    try:
        log.append(b"child")
    except pyreplog.ForkedError:
        os._exit(0)
    os._exit(1)
print("caught: the child of a fork wrote" if os.waitpid(pid, 0)[1] else "right")
os._exit(0)
"""
DOTS = """
import os, sys, pyreplog
{plant}
try:
    pyreplog.open_log(sys.argv[1], topic="..")
except pyreplog.InvalidTopicError:
    print("right")
else:
    print("caught: a topic that is a path")
    os._exit(0)
"""
LINKS = """
import os, pathlib, sys, pyreplog
{plant}
folder, secret = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / "secret"
with pyreplog.open_log(folder) as log:
    log.append(b"x")
(file,) = folder.glob("*-0/*.log")
os.rename(file, secret)
file.symlink_to(secret)
before = secret.read_bytes()
try:
    with pyreplog.open_log(folder) as log:
        log.append(b"y")
except pyreplog.PyreplogError:
    pass
print("right" if secret.read_bytes() == before else "caught: written through a symbolic link")
"""
FOLDERS = """
import os, pathlib, sys, pyreplog
{plant}
folder, secret = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / "secret"
with pyreplog.open_log(folder) as log:
    log.append(b"x")
(partition,) = folder.glob("*-0")
os.rename(partition, secret)
partition.symlink_to(secret)
before = {file.name: file.read_bytes() for file in secret.iterdir()}
try:
    with pyreplog.open_log(folder) as log:
        log.append(b"y")
except pyreplog.PyreplogError:
    pass
after = {file.name: file.read_bytes() for file in secret.iterdir()}
print("right" if after == before else "caught: written through a symbolic link")
"""
FOREIGN_LINKS = """
import os, pathlib, sys, pyreplog
{plant}
shared, secret = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / "secret"
with pyreplog.open_log(secret) as log:
    log.append(b"x")
shared.mkdir()
shared.chmod(0o777)
(shared / "log").symlink_to(secret)
before = {str(file): file.read_bytes() for file in secret.rglob("*") if file.is_file()}
try:
    with pyreplog.open_log(shared / "log", topic="secret") as log:
        log.append(b"y")
except pyreplog.PyreplogError:
    pass
after = {str(file): file.read_bytes() for file in secret.rglob("*") if file.is_file()}
print("right" if after == before else "caught: written through a symbolic link")
"""
PLANTED = [
    pytest.param(POSIX_LOCK, TWO_COPIES, "caught: two writers in one folder", id="46"),
    pytest.param(FORK_CHILD_WRITES, FORKS, "caught: the child of a fork wrote", id="47"),
    pytest.param(ANY_TOPIC, DOTS, "caught: a topic that is a path", id="49"),
    pytest.param(LINKS_FOLLOWED, LINKS, "caught: written through a symbolic link", id="50"),
    pytest.param(FOLDERS_FOLLOWED, FOLDERS, "caught: written through a symbolic link", id="50 (a folder)"),
    pytest.param(
        FOREIGN_LINKS_FOLLOWED, FOREIGN_LINKS, "caught: written through a symbolic link", id="50 (another user's)"
    ),
]


@pytest.mark.parametrize(("plant", "program", "message"), PLANTED)
def test_a_planted_bug_is_caught(tmp_path: Path, plant: str, program: str, message: str) -> None:
    """The program says so when the bug is there, and finds everything right when it is not."""
    assert (
        ran(program.replace("{plant}", plant), tmp_path / "with", tmp_path, quiet=False, options=()).strip() == message
    )
    other = tmp_path / "other"
    other.mkdir()
    assert ran(program.replace("{plant}", ""), tmp_path / "without", other, quiet=False, options=()).strip() == "right"
