"""What a program asks the Disk port for, and what strace saw it do under a folder: each as (kind, path) -> how
often."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from pyreplog.system import SystemDisk
from pyreplog.system.file import SystemFile
from tests.unit.runtime.programs import ROOT

Seen = Counter[tuple[str, str]]
TIMEOUT_S: Final = 100
CALLS: Final = (
    "write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync,syncfs,sync_file_range,msync,ftruncate,truncate,fallocate,rename,renameat,"
    "renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,open,openat,creat,mmap,sendfile,copy_file_range,splice,"
    "chmod,fchmod,fchmodat,chown,fchown,utimensat"
)
_SAME: Final = {
    "pwrite64": "write",
    "pwritev": "write",
    "pwritev2": "write",
    "fdatasync": "sync",
    "ftruncate": "truncate",
}
_PLAIN: Final = {"fallocate": "reserve", "unlink": "remove", "rmdir": "remove_directory", "fsync": "sync_directory"}
_UNFINISHED: Final = re.compile(r"(\d+) +(\w+\(.*) <unfinished \.\.\.>")
_RESUMED: Final = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")
_CALL: Final = re.compile(r"(?:\d+ +)?(\w+)\((.*)")
_PATH: Final = re.compile(r'"([^"]+)"|\d<([^>]+)>')
_DELETED: Final = "(deleted)"


# ----------------------------------------------------------------------------------- in the program


def write_down(place: str) -> None:
    """From here on, in this process: every call of the port goes into the file ``place`` before it is made, so that
    a kill loses none."""
    out = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(kind: str, path: str) -> None:
        os.write(out, f"{kind}\t{_plain(path)}\n".encode())

    def tell_file(kind: str, file: Any) -> None:
        tell(kind, os.readlink(f"/proc/self/fd/{file.descriptor.fd}"))

    def listen(
        owner: type, name: str, before: Callable[..., None], after: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        real = getattr(owner, name)

        def asked(self: Any, *arguments: Any, **named: Any) -> Any:
            before(self, *arguments, **named)
            answer = real(self, *arguments, **named)
            after(self, *arguments, **named)
            return answer

        setattr(owner, name, asked)

    def nothing(*_: object, **__: object) -> None:
        pass

    def tell_shared(_: SystemDisk, files: Sequence[Any], wake: object) -> None:
        for file in files:
            tell_file("shared sync", file)

    def tell_room(_: SystemDisk, path: str, size: int = 0) -> None:
        if size:
            tell("reserve", path)

    for name in (
        "rename",
        "remove",
        "remove_directory",
        "make_directory",
        "sync_directory",
        "lock",
        "open_store",
        "list",
    ):
        listen(SystemDisk, name, lambda _, path, *rest, _name=name, **more: tell(_name, path))
    listen(SystemDisk, "submit_sync", tell_shared)
    # Strace tells these from others by their success.
    listen(
        SystemDisk, "open", nothing, lambda _, path, *, write=False: tell("open for writing" if write else "open", path)
    )
    listen(SystemDisk, "hold", nothing, lambda _, path: tell("open", path))
    listen(SystemDisk, "create", tell_room, lambda _, path, size=0: tell("create", path))
    for name, kind in (
        ("write_at", "write"),
        ("sync", "sync"),
        ("start_sync", "sync_file_range"),
        ("truncate", "truncate"),
        ("reserve", "reserve"),
    ):
        listen(SystemFile, name, lambda file, *rest, _kind=kind: tell_file(_kind, file))


def _plain(path: str) -> str:
    return os.path.normpath(path.removesuffix(_DELETED).rstrip())


# ------------------------------------------------------------------------------------- from outside


class Watched(NamedTuple):
    """How a program ended, what it asked for, and what strace saw under the folder."""

    returncode: int
    errors: str
    asked: Seen
    seen: Seen


def watched(program: str, root: Path, beside: Path, *arguments: str) -> Watched:
    """Run ``program`` with the words ``root``, ``beside`` and ``arguments``, each call of its port written down,
    and look at what it does under ``root``. Both files lie in the folder ``beside``."""
    strace = shutil.which("strace")
    if (
        strace is None
        or subprocess.run([strace, "-o", "/dev/null", "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("SKIPPED FAULT RIG: no strace that may trace here")
    beside.mkdir(exist_ok=True)
    asked, trace = beside / "asked", beside / "trace"
    asked.unlink(missing_ok=True)
    prelude = f"import tests.unit.runtime.syscall_audit as a; a.write_down({str(asked)!r})\n"
    command = [strace, "-f", "-qq", "-y", "-s", "0", "-e", "signal=none", "-o", str(trace), "-e", f"trace={CALLS}"]
    ended = subprocess.run(
        [*command, sys.executable, "-c", prelude + program, str(root), str(beside), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return Watched(ended.returncode, ended.stderr, _asked(asked, str(root)), _seen(trace, str(root)))


def _under(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _asked(place: Path, root: str) -> Seen:
    found: Seen = Counter()
    for line in place.read_text().splitlines():
        kind, _, path = line.partition("\t")
        if _under(path, root):
            found[kind, path] += 1
    return found


def _seen(trace: Path, root: str) -> Seen:
    """The system calls under ``root``, by what they are to the port; one that it has no word for keeps its own."""
    found: Seen = Counter()
    begun: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        if (cut := _UNFINISHED.match(line)) is not None:
            begun[cut[1]] = cut[2]
            continue
        if (rest := _RESUMED.match(line)) is not None:
            line = begun.pop(rest[1]) + rest[2]  # noqa: PLW2901  (the call as a whole)
        _count(line, root, found)
    for line in begun.values():  # a kill came in between
        _count(line, root, found)
    return found


def _count(line: str, root: str, found: Seen) -> None:
    if root not in line or (call := _CALL.match(line)) is None:
        return
    name, rest = call.groups()
    paths = [_plain(one[1] or one[2]) for one in _PATH.finditer(rest)]
    path = next((one for one in paths if _under(one, root)), None)
    if path is None:
        return
    kind = _SAME.get(name) or _PLAIN.get(name) or name
    if name == "openat":
        if " = -1 " in rest:
            return
        kind = (
            "open for writing"
            if "O_RDWR" in rest or "O_WRONLY" in rest
            else "folder"
            if "O_DIRECTORY" in rest
            else "open"
        )
        if "O_CREAT" in rest:
            kind = "create" if "O_EXCL" in rest else "lock"
    found[kind, path] += 1


def around(run: Watched) -> dict[tuple[str, str], tuple[int, int]]:
    """What was done under the folder and not asked for, or asked for and not done: (kind, path) -> (how often seen,
    how often asked for).

    The exceptions, each with its reason:

    * the file of a store that was asked for: LMDB maps and writes it itself, by design (``pyreplog.system.store``);
    * a lock's text and its mode, on the file that the port was asked to lock: no data, and written by the lock;
    * the mode of a file or folder that the port has just made: a part of making it;
    * the parents of a folder to make: made on the way, and their names synced, for nobody else knows that they were
      made;
    * listing a folder, which changes nothing: whoever asks the port to list, sync or make one opens it, and the
      command looks for near names without it;
    * one sync for several who wait for it, who asked for it together or had theirs shared by the port: seen less
      often than asked for.
    """
    asked, seen = run.asked, run.seen
    paths = {kind: {path for one, path in asked if one == kind} for kind in {kind for kind, _ in asked}}
    stores, locks = paths.get("open_store", set()), paths.get("lock", set())
    made = {folder for path in paths.get("make_directory", set()) for folder in (path, *map(str, Path(path).parents))}
    found = {}
    for kind, path in sorted(asked.keys() | seen.keys()):
        have, want = seen[kind, path], asked[kind, path]
        if kind in ("list", "folder", "make_directory", "open_store", "shared sync") or path in stores:
            continue
        if (kind, path in locks) in (("write", True), ("truncate", True), ("fchmod", True)):
            continue
        if kind == "fchmod" and have <= asked["create", path]:
            continue
        if kind in ("mkdir", "chmod") and path in made:
            continue
        if kind == "sync_directory" and path in made and have >= want:
            continue
        if kind == "sync" and want <= have <= want + asked["shared sync", path]:
            continue
        if have != want:
            found[kind, path] = (have, want)
    return found
