"""What mypyc compiles is ordinary Python, and ``PURE=1`` builds without: the same tests pass where the interpreter
runs the sources.

Some can strike at every line only there (``tests/unit/runtime/test_interrupts.py``).
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.house.sources import PACKAGE, ROOT

INTERPRETED = """
import importlib.machinery as machinery, sys
import pytest
package = sys.argv[1]
sources = machinery.FileFinder.path_hook((machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES))

def hook(path):
    if path.startswith(package) and not path.startswith(package + "/_core"):
        return sources(path)
    raise ImportError

sys.path_hooks.insert(0, hook)
sys.path_importer_cache.clear()
code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]])
import pyreplog.replica.leader, pyreplog.runtime.driver
assert pyreplog.replica.leader.__file__.endswith(".py")
assert pyreplog.runtime.driver.__file__.endswith(".py")
sys.exit(code)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "paths",
    [
        ("tests/unit/runtime/test_interrupts.py",),
        pytest.param(("tests/unit/node", "tests/unit/replica"), marks=pytest.mark.soak),
    ],
    ids=["interrupts", "replicas"],
)
def test_the_sources_pass_as_they_are(paths: tuple[str, ...]) -> None:
    """Ctrl-C at every line of the driver, without what was compiled; in a long run node and replica, too."""
    if not [*PACKAGE.parent.glob("pyreplog__mypyc*.so")]:
        pytest.skip("nothing of Python is compiled here: all tests run the sources")
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED, str(PACKAGE), *paths], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
