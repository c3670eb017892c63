"""What users install: sdist -> wheel -> a fresh environment -> import. The runtime dependencies come from the
package registry."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.house.sources import PACKAGE, ROOT, compiled_modules

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]

SOURCES = (".pyx", ".pxd", ".c", ".h", ".cpp")


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(sdist, wheel) of ``REPLOG_DIST``; where that names no folder they are built here, as ``make dist`` does."""
    given = os.environ.get("REPLOG_DIST", "")
    folder = Path(given or tmp_path_factory.mktemp("dist")).resolve()
    if not given:
        # Not optimized: that takes half of the time, and is the same to look at.
        environment = {**os.environ, "QUICK": "1"}
        done = subprocess.run(
            [".ci/dist", folder],
            cwd=ROOT,
            env=environment | {"PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def test_sdist_holds_all_sources(built: tuple[Path, Path]) -> None:
    """Everything in ``src/_core`` travels: without it nobody can build. What is made of it does not, nor do some of
    the tests."""
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    core = ROOT / "src" / "_core"
    wanted = {str(path.relative_to(ROOT)) for path in core.rglob("*") if path.suffix in {*SOURCES, ".py"}}
    assert wanted
    assert wanted <= names
    assert not [name for name in names if name.startswith(("build/", "tests/", "docs/", "benchmarks/"))]


def test_wheel_holds_types_and_no_sources(built: tuple[Path, Path]) -> None:
    """``py.typed``, every module, every stub, the compiled modules, and not one source of them."""
    with zipfile.ZipFile(built[1]) as archive:
        names = set(archive.namelist())
    assert "pyreplog/py.typed" in names
    expected = {f"pyreplog/{path.relative_to(PACKAGE)}" for kind in ("*.py", "*.pyi") for path in PACKAGE.rglob(kind)}
    assert expected <= names
    assert any(name.startswith("pyspark_replog/") for name in names)
    assert not [name for name in names if name.endswith(SOURCES) or name.startswith("_core/")]
    compiled = {name.partition(".")[0] for name in names if name.endswith(".so")}
    core = {f"pyreplog/_core/{path.stem}" for path in (PACKAGE / "_core").glob("*.pyi")}
    assert core | {str(Path("pyreplog", name)) for name in compiled_modules()} | {"pyreplog__mypyc"} == compiled


def test_windows_is_told_where_to_go() -> None:
    """A build on Windows stops at once, with what to do instead."""
    program = (
        "import Cython.Build, runpy, setuptools.command.build_ext, sys; sys.platform = 'win32';"
        " runpy.run_path('setup.py')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search("runs on Linux and macOS. On Windows, .*WSL", done.stderr)


def test_wheel_installs_and_works_alone(built: tuple[Path, Path], tmp_path: Path) -> None:
    """In an environment with nothing but the runtime dependencies a log can be written, read and handed over, and
    the command runs."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", built[1], cwd=tmp_path)
    code = (
        "import pyreplog\n"
        "with pyreplog.open_log('events') as log:\n"
        "    log.append(b'hello', key=b'k')\n"
        "    assert [r.value for r in log.read(start=0)] == [b'hello']\n"
        "    assert log.scan().__arrow_c_stream__()\n"
        "import importlib.util\n"
        "assert not any(importlib.util.find_spec(name) for name in ('pyarrow', 'pyspark', 'pandas', 'polars'))\n"
        "with pyreplog.Cluster('cluster', nodes=3) as cluster:\n"
        "    cluster.admin.create_topic('events')\n"
        "    with cluster.producer() as producer:\n"
        "        assert producer.send('events', b'hello').result(30).offset == 0\n"
        "import pyreplog.replica.leader\n"
        "assert pyreplog.replica.leader.__file__.endswith('.so')\n"
        "print(pyreplog.__file__)\n"
    )
    where = run(python, "-c", code, cwd=tmp_path)
    assert str(tmp_path) in where
    replog = tmp_path / "env" / "bin" / "replog"
    assert '"value":"hello"' in run(replog, "cat", "events", cwd=tmp_path)
