"""tests/README.md says what each folder of the tests is for."""

from __future__ import annotations

import re

import pyreplog.testing
from tests.house.sources import ROOT

TESTS = ROOT / "tests"
README = (TESTS / "README.md").read_text(encoding="utf-8")


def test_every_folder_is_in_the_table() -> None:
    """Each folder has a row in a table of tests/README.md, and each row names a folder."""
    rows = set(re.findall(r"^\|[^\n]*?`([a-z]+(?:/[a-z]+)??)/(?:scripts/)?`", README, re.MULTILINE))
    folders = {str(path.parent.relative_to(TESTS)) for depth in ("*", "*/*") for path in TESTS.glob(f"{depth}/*.py")}
    assert rows == folders


def test_no_test_is_outside_the_folders() -> None:
    """The root of the tests has no tests, because no row of the table would say when to run them."""
    assert not list(TESTS.glob("test_*.py"))


def test_the_harnesses_are_there() -> None:
    """Each module and class in the table of harnesses exists."""

    section = README[README.index("## Which harness") :]
    for module, name in re.findall(r"`(pyreplog\.testing)\.(\w+)`", section):
        assert hasattr(pyreplog.testing, name), f"{module}.{name}"
    for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", section):
        assert (ROOT / path).exists(), path
