"""What ``import pyreplog`` offers: every name works, is documented, and nothing more is reachable by accident."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from types import GenericAlias

import pyreplog
from pyreplog import errors
from tests.house.sources import PACKAGE, ROOT, modules, tree


def test_every_export_exists_and_is_documented() -> None:
    """Each name of ``__all__`` is there once, has a docstring, and stands on a reference page."""
    reference = "".join((ROOT / "docs" / "reference" / page).read_text() for page in ("api.md", "errors.md"))
    assert sorted(set(pyreplog.__all__)) == sorted(pyreplog.__all__)
    for name in pyreplog.__all__:
        thing = getattr(pyreplog, name)
        if callable(thing) and not isinstance(thing, GenericAlias):  # a name for annotations
            assert inspect.getdoc(thing), name
        assert f"`{name}`" in reference, name


def test_all_errors_are_exported() -> None:
    """Whoever handles an error finds its class in ``pyreplog``: every one of the tree, and no other."""
    exported = {
        name
        for name in pyreplog.__all__
        if isinstance(kind := getattr(pyreplog, name), type) and issubclass(kind, BaseException)
    }
    assert exported == {name for name in errors.__all__ if name.endswith(("Error", "Warning"))}


def test_modules_are_loaded_when_they_are_named() -> None:
    """``pyreplog.aio`` and its like need no import of their own, show only what is theirs, and cost nothing until
    then."""
    code = (
        "import sys, pyreplog; early = sorted(name for name in ('asyncio', 'inspect', 'dataclasses',"
        " 'typing_extensions', 'pyreplog.aio', 'pyreplog.testing', 'pyreplog.runtime.cluster') if name in sys.modules);"
        " print(early, dir(pyreplog.aio) == sorted(pyreplog.aio.__all__), pyreplog.aio.open_log.__module__,"
        " pyreplog.errors.ClosedError is pyreplog.ClosedError, pyreplog.testing.SimDisk.__name__, {'aio', 'errors',"
        " 'testing', *pyreplog.__all__} == set(dir(pyreplog)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[] True pyreplog.aio.log True SimDisk True"
    assert not hasattr(pyreplog, "nothing")


def test_doors_say_what_they_export() -> None:
    """Every layer's ``__init__`` lists its names in ``__all__``."""
    for path in modules():
        if path.name == "__init__.py" and path.parent != PACKAGE / "cli":
            names = {
                target.id
                for node in tree(path).body
                for target in getattr(node, "targets", [])
                if hasattr(target, "id")
            }
            assert "__all__" in names, path


def test_import_needs_no_extras() -> None:
    """``import pyreplog`` loads neither pyarrow nor pyspark, pandas, polars or numpy, and is silent."""
    code = (
        "import sys, pyreplog; print(sorted({'pyarrow', 'pyspark', 'pandas', 'polars', 'numpy', 'duckdb'} &"
        " set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_logging_is_silent_by_default() -> None:
    """The logger ``pyreplog`` has a NullHandler, so an application that set up nothing sees nothing."""
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("pyreplog").handlers)
