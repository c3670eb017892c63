"""The glossary explains the words that the code and the pages use, and no others."""

from __future__ import annotations

import re

from tests.house.sources import PACKAGE, ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
OURS = (
    "durable mark", "incomplete", "suspect replica", "durability", "spool", "reserve", "log root", "incarnation",
    "known-bad variant",
)  # fmt: skip
KAFKAS = (
    "topic", "partition", "replica", "leader", "follower", "offset", "log end offset (LEO)", "high watermark (HW)",
    "log start offset", "low watermark", "last stable offset (LSO)", "in-sync replicas (ISR)",
    "eligible leader replicas (ELR)", "leader epoch", "segment", "record batch", "record", "controller", "voter",
    "node, broker",
)  # fmt: skip
"""The words that the product promises to use as Kafka does."""


def terms() -> dict[str, dict[str, str]]:
    """By section: each term with its meaning."""
    found: dict[str, dict[str, str]] = {}
    section = ""
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        row = re.fullmatch(r"\| (.+?) \| (.+) \|", line)
        if row is not None and row[1] not in ("term", "---"):
            found.setdefault(section, {})[row[1]] = row[2]
    return {name: rows for name, rows in found.items() if rows}


def test_every_term_of_ours_is_explained() -> None:
    """The section of our own words has exactly our words, and that of Kafka's has at least those that the product
    promises."""
    found = terms()
    assert tuple(term for term in found["Our words"] if term != "---") == OURS
    assert set(KAFKAS) <= found["Kafka's words"].keys()
    assert all(len(meaning) > 20 for rows in found.values() for term, meaning in rows.items() if not set(term) <= {"-"})


def test_our_words_are_used() -> None:
    """A word of ours that no source uses any more is taken out of the glossary."""
    text = " ".join(re.sub(r"\s+", " ", path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")).lower()
    assert [term for term in OURS if term.split()[-1] not in text] == []


def test_a_term_stands_once() -> None:
    """No term is explained twice."""
    every = [term for rows in terms().values() for term in rows if not set(term) <= {"-"}]
    assert len(every) == len(set(every)) >= 40
