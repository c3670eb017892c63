"""The tests that the internal pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/internals").glob("*.md"))
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    """Every ``tests/file.py`` is a file, and has every function that is named behind it."""
    missing = []
    for file, name in NAMED.findall(page.read_text(encoding="utf-8")):
        path = ROOT / file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if not path.is_file() or (name and f"def {name}(" not in text):
            missing.append(f"{file}::{name}")
    assert not missing
