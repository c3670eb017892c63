"""The project's prose is plain English: turns of phrase that readers stumble over are counted, and may only become
fewer."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from tests.house.prose import Rates, pages, prose, rates, sources
from tests.house.sources import ROOT

TABLE = Path(__file__).with_name("prose.json")
"""Today's count of the files above the bound, by list. An entry may only shrink; it goes when its file keeps the
bound."""
FIRST_MAX = 3.0
SECOND_MAX = 2.0
FILE_MAX = 6.0
FILE_WORDS = 150


@functools.cache
def measured() -> dict[str, Rates]:
    """The counts of every file with prose."""
    return {str(path.relative_to(ROOT)): rates(prose(path)) for path in [*sources(), *pages()]}


def above(found: Rates) -> bool:
    """Whether a file exceeds the bound: 6 phrases per 1,000 words, if it has more than 150 words."""
    return found.words > FILE_WORDS and max(found.per_1000) > FILE_MAX


def test_no_file_gets_worse() -> None:
    """A file keeps the bound of 6 phrases per 1,000 words, or has at most as many phrases of each list as the table
    says."""
    table: dict[str, list[int]] = json.loads(TABLE.read_text(encoding="utf-8"))
    worse = []
    for name, found in measured().items():
        first, second = table.get(name, (0, 0))
        if above(found) and (found.first > first or found.second > second):
            worse.append(
                f"{name}: {found.first} and {found.second} phrases in {found.words} words; at most {first} and {second}"
            )
    assert not worse, "write plainly (`python -m tests.house.prose FILE` shows each phrase):\n" + "\n".join(worse)


def test_the_table_only_shrinks() -> None:
    """The table names only files that are there and exceed the bound, with no more phrases than they have."""
    found = measured()
    stale = []
    for name, (first, second) in json.loads(TABLE.read_text(encoding="utf-8")).items():
        if name not in found or not above(found[name]):
            stale.append(f"{name}: keeps the bound now; take its line out")
        elif found[name].first < first or found[name].second < second:
            stale.append(f"{name}: has {found[name].first} and {found[name].second} now; lower its line")
    assert not stale, "`python -m tests.house.prose --table` writes the table again:\n" + "\n".join(stale)
