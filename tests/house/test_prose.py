"""The project's prose is plain English: turns of phrase that readers stumble over are counted, and stay rare."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.house.prose import Rates, pages, prose, rates, sources
from tests.house.sources import ROOT

FIRST_MAX = 3.0
SECOND_MAX = 2.0
"""Phrases of each list per 1,000 words, over ``src`` and over ``docs``."""
FILE_MAX = 6.0
FILE_WORDS = 150
"""Phrases of either list per 1,000 words in one file, if it has more than so many words."""
HELP = "write plainly (`python -m tests.house.prose FILE` shows each phrase)"


@functools.cache
def measured() -> dict[Path, Rates]:
    """Return the counts of every file with prose."""
    return {path: rates(prose(path)) for path in [*sources(), *pages()]}


@pytest.mark.parametrize("group", [sources, pages], ids=["src", "docs"])
def test_few_phrases_need_a_second_reading(group: object) -> None:
    """Over src and over docs, at most 3 phrases of the first list and 2 of the second per 1,000 words."""
    assert callable(group)
    first, second = sum((measured()[path] for path in group()), Rates(0, 0, 0)).per_1000
    assert first <= FIRST_MAX, HELP
    assert second <= SECOND_MAX, HELP


def test_no_file_stands_out() -> None:
    """No file of more than 150 words has more than 6 phrases of either list per 1,000 words."""
    found = {
        str(path.relative_to(ROOT)): counts
        for path, counts in measured().items()
        if counts.words > FILE_WORDS and max(counts.per_1000) > FILE_MAX
    }
    assert not found, HELP


def test_phrases_are_counted() -> None:
    """A phrase of each list counts once, but not in code."""
    assert rates("whoever reads what is there must know where it lies") == Rates(10, 3, 0)
    assert rates("someone hears of it by then; `whoever` does not") == Rates(8, 0, 3)
