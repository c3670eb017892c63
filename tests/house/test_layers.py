"""The floor plan of docs/internals/architecture.md, executed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.sources import CORE_SOURCES, PACKAGE, PURE, ROOT, modules, tree, where


def test_layers() -> None:
    """Every import goes down the floor plan of pyproject.toml, and no room is missing from it."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_contracts_name_every_room_that_exists() -> None:
    """The purity and seam contracts cover each room from the day it is furnished."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    pure = {
        name.removeprefix("pyreplog.")
        for c in contracts
        if c["name"] == "the middle is pure"
        for name in c["source_modules"]
    }
    assert pure == rooms & set(PURE)
    # What verifies shares nothing with what writes: for it the whole of that is forbidden, by the
    # floor plan.
    strangers = rooms - {"_core", "record", "log", "system", "testing", "verify"}
    seam = {
        name.removeprefix("pyreplog.")
        for c in contracts
        if c["name"].startswith("one seam")
        for name in c["source_modules"]
    }
    assert seam == strangers


def test_one_door_to_the_core() -> None:
    """No file but ``_core/__init__.py`` names a module behind it: import-linter sees only that door."""
    found = []
    for path in modules():
        if path == PACKAGE / "_core" / "__init__.py":
            continue
        for node in ast.walk(tree(path)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            found += [
                where(path, node) for name in names if name.startswith("pyreplog._core.") and not allowed(path, name)
            ]
    assert not found


def allowed(path: Path, name: str) -> bool:
    """The disk is the one user of the system calls; they are optional, hence not behind the door."""
    return name == "pyreplog._core._platform" and path.parent.name == "system"


def test_one_door_per_layer() -> None:
    """A layer is imported by its name: ``pyreplog.log``, never ``pyreplog.log.segment``, except by itself."""
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    found = []
    for path in modules():
        own = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                parts = node.module.split(".")
                # The wire's schemas, the simulation and the command's files are rooms of many
                # names: their modules are doors.
                if (
                    len(parts) > 2
                    and parts[0] == "pyreplog"
                    and parts[1] in rooms - {own, "wire", "_core", "testing", "cli"}
                ):
                    found.append(f"{where(path, node)} imports {node.module}")
    assert not found


@pytest.mark.parametrize("source", sorted(CORE_SOURCES.glob("*.pyx")), ids=lambda path: path.name)
def test_the_core_imports_only_what_lies_below(source: Path) -> None:
    """A compiled module may raise our errors, make our values and take a datetime, and knows nothing else of the
    package."""
    names = set(re.findall(r"^\s*(?:from|import|cimport)\s+(pyreplog[\w.]*)", source.read_text(), re.MULTILINE))
    assert names <= {"pyreplog.errors", "pyreplog.timestamps", "pyreplog.values"}


def test_kernels_know_no_python() -> None:
    """Kernels take bytes and give counts: no ``Python.h``, no memory of their own, no files, no time."""
    banned = re.compile(
        r'#\s*include\s*[<"](Python\.h|time\.h|unistd\.h|stdio\.h|fcntl\.h)|\b(malloc|calloc|realloc|free)\s*\('
    )
    found = [
        where(path, number)
        for path in sorted((CORE_SOURCES / "kernels").glob("*.[ch]"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if banned.search(line)
    ]
    assert not found


def test_optional_packages_stay_optional() -> None:
    """pyarrow, pyspark and pandas are imported by ``spark`` alone, and by the command where it reads and writes
    Parquet, when it does."""
    found = []
    for path in modules():
        if path.relative_to(PACKAGE).parts[0] == "spark" or path == PACKAGE / "cli" / "parquet.py":
            continue
        for node in ast.walk(tree(path)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            found += [
                where(path, node)
                for name in names
                if name.split(".")[0] in {"pyarrow", "pyspark", "pandas", "polars", "duckdb"}
            ]
    assert not found
