"""A build of which a part is missing, or is of another one, says so when it is imported: it does not crash, now or
later."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.house.sources import CORE_SOURCES, PACKAGE, compiled_modules, tree, where

CORE = [path.name.partition(".")[0] for path in sorted((PACKAGE / "_core").glob("*.so"))]
GROUP = [*PACKAGE.parent.glob("pyreplog__mypyc*.so")]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package as it was built, elsewhere."""
    root = tmp_path_factory.mktemp("build") / "src"
    shutil.copytree(PACKAGE, root / "pyreplog", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for path in (*PACKAGE.rglob("*.so"), *GROUP):
        (root / path.relative_to(PACKAGE.parent)).symlink_to(path)
    yield root
    shutil.rmtree(root)


def imported(root: Path, *missing: Path, before: str = "import sys") -> tuple[int, str]:
    """The exit code and the last words of a process that imports all there is, from a build of which some files are
    ``missing``."""
    folder = Path(mkdtemp(dir=root.parent)) / "src"
    shutil.copytree(root, folder, symlinks=True)
    for path in missing:
        (folder / path.relative_to(PACKAGE.parent)).unlink()
    code = f"{before}; import pyreplog, pyreplog.testing; pyreplog.Cluster; print(pyreplog.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    shutil.rmtree(folder)
    if done.returncode == 0:
        assert done.stdout.startswith(str(folder))
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


def test_a_compiled_dataclass_with_slots_is_native() -> None:
    """From Python 3.14 on a dataclass that makes itself slots looks into the code of its properties, which compiled
    ones of a class that is not native do not have: importing it would fail there."""
    slotted = [
        where(path, node)
        for path in (PACKAGE / f"{name}.py" for name in compiled_modules())
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
        for decorators in [" ".join(map(ast.unparse, node.decorator_list))]
        if "native_class=False" in decorators and "slots=True" in decorators
    ]
    assert slotted == []


def test_a_whole_build_is_imported(copy: Path) -> None:
    """The copy is as good as what it is one of."""
    assert imported(copy) == (0, "")


@pytest.mark.parametrize("name", CORE)
def test_a_missing_part_of_the_core_is_named(copy: Path, name: str) -> None:
    """With what to do about it."""
    code, said = imported(copy, *(PACKAGE / "_core").glob(f"{name}.*.so"))
    assert code == 1
    assert said.startswith("ImportError: ")
    assert name in said
    assert ".ready-core" in said
    assert "pip install" in said


@pytest.mark.skipif(not GROUP, reason="nothing of Python is compiled here")
def test_a_missing_part_of_what_mypyc_compiled_is_named(copy: Path) -> None:
    """Compiled classes that meet interpreted ones would end the process, so none of them is loaded."""
    every = {name: [*PACKAGE.glob(f"{name}.*.so")] for name in compiled_modules()}
    assert all(len(paths) == 1 for paths in every.values())
    missing = dict(list(every.items())[::4])
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(missing, pool.map(lambda paths: imported(copy, *paths), missing.values()), strict=True))
    for name, (code, said) in found.items():
        assert code == 1, (name, code)
        assert said.startswith("ImportError: "), (name, said)
        assert f"pyreplog.{name.replace('/', '.')} " in said
        assert ".ready-core" in said
    alone = "import sys; sys.modules['pyreplog__mypyc'] = None"  # nor is it found in another place
    code, said = imported(copy, *GROUP, before=alone)
    assert code == 1
    assert said.startswith("ImportError: ")
    assert "pyreplog__mypyc" in said
    assert ".ready-core" in said
    everything = [*GROUP, *(path for paths in every.values() for path in paths)]
    for before in ("import sys", alone):
        assert imported(copy, *everything, before=before) == (0, "")  # then the interpreter runs the sources


def test_another_interpreter_of_the_process_is_told_so() -> None:
    """Nothing is wrong with the build there: where to run is what has to change. The first interpreter goes on."""
    code = """
import pyreplog
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
interpreters.run_string(interpreters.create(), '''
try:
    import pyreplog
except ImportError as error:
    print(error, flush=True)
''')
print(pyreplog._core.crc32c(b"123456789"))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == 2
    assert "one interpreter of a process" in told[0]
    assert "build it anew" not in told[0]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_either_compiler_takes_it(compiler: str) -> None:
    """What is written in C, of which each takes something that the other one refuses. macOS has only clang."""
    found = shutil.which(compiler)
    if found is None:
        pytest.skip(f"no {compiler}")
    sources = [*CORE_SOURCES.glob("*.c"), *CORE_SOURCES.glob("kernels/*.c")]
    assert sources
    command = [
        found,
        "-std=c11",
        "-fsyntax-only",
        "-Werror",
        f"-I{CORE_SOURCES}",
        f"-I{CORE_SOURCES / 'kernels'}",
        *map(str, sources),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
