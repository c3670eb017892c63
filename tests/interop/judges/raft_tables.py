"""The test tables of etcd's raft library, read from the cache of Go's modules and never kept here.

A table is a text of cases: comments, a command with its arguments, perhaps input lines, a line ``----``, the expected
output, an empty line.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

MODULE: Final = "go.etcd.io/raft/v3"
VERSION: Final = "v3.6.0"
DOWNLOAD_SECONDS: Final = 60


class Case(NamedTuple):
    """One case of a table. ``arguments`` maps the name of an argument to its comma-separated values; ``input`` are
    the lines between the command and the line of dashes."""

    place: str
    command: str
    arguments: dict[str, list[str]]
    input: list[str]
    expected: list[str]


@cache
def folder() -> Path | str:
    """Return the folder of the module, or the reason why there is none."""
    go = shutil.which("go")
    if go is None:
        return "Go is not installed"
    kept = subprocess.run([go, "env", "GOMODCACHE"], capture_output=True, text=True, check=False, timeout=30)
    found = Path(kept.stdout.strip()) / f"{MODULE}@{VERSION}"
    if found.is_dir():
        return found
    try:
        done = subprocess.run(
            [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_SECONDS,
            cwd="/",
        )
        told = json.loads(done.stdout or "{}")
    except (subprocess.TimeoutExpired, ValueError) as error:
        return f"{MODULE}@{VERSION} cannot be downloaded: {error}"
    if "Dir" not in told:
        return f"{MODULE}@{VERSION} cannot be downloaded: {told.get('Error', done.stderr)}"
    return Path(told["Dir"])


def cases(path: Path) -> Iterator[Case]:
    """Yield the cases of one table."""
    lines = path.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            at += 1
            continue
        place = f"{path.name}:{at + 1}"
        command, arguments = _command(lines[at])
        at += 1
        given: list[str] = []
        while lines[at] != "----":
            given.append(lines[at])
            at += 1
        at += 1
        expected: list[str] = []
        while at < len(lines) and lines[at].strip():
            expected.append(lines[at])
            at += 1
        yield Case(place, command, arguments, given, expected)


def _command(line: str) -> tuple[str, dict[str, list[str]]]:
    command, _, rest = line.partition(" ")
    arguments = {}
    for name, several, one in re.findall(r"(\w+)=(?:\(([^)]*)\)|(\S+))", rest):
        arguments[name] = [value.strip() for value in (several or one).split(",")]
    return command.strip(), arguments
