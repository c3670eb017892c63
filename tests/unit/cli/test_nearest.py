"""What is suggested for a misspelt name is near by its letters, or nothing is."""

from __future__ import annotations

import pytest

from pyreplog.config import nearest, suggestion

OPTIONS = ("-h", "--help", "--topic", "--partition", "--start", "--end", "-n", "--count", "--values", "--progress")


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("--stort", OPTIONS, "--start"),
        ("--strat", OPTIONS, "--start"),
        ("--part", OPTIONS, "--partition"),
        ("-topic", OPTIONS, "--topic"),
        ("--COUNT", OPTIONS, "--count"),
        ("--json", OPTIONS, None),
        ("--jsn", OPTIONS, None),
        ("-x", OPTIONS, None),
        ("--p", OPTIONS, None),
        ("", OPTIONS, None),
        ("nonexist", ("bin", "dev", "etc", "home", "lib", "mnt", "opt", "root"), None),
        ("evnts", ("events", "orders"), "events"),
        ("aa", ("a", "b"), "a"),
        ("a", ("b",), None),
        ("retention.mss", ("retention.bytes", "retention.ms", "segment.ms"), "retention.ms"),
        ("re", ("read", "readers"), None),
    ],
)
def test_nearest(word: str, known: tuple[str, ...], meant: str | None) -> None:
    """A beginning that fits one name alone, else as few slips as possible: at most one for every three letters."""
    assert nearest(word, known) == meant


def test_a_long_list_is_cut() -> None:
    """Where nothing is near, what is known is listed: of ten thousand names the first ones."""
    text = suggestion("x", tuple(f"topic-{number}" for number in range(10_000)))
    assert text.startswith("; known are topic-0, topic-1, ")
    assert text.endswith("topic-39 and 9,960 more")
