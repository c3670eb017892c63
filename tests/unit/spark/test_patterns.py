"""subscribePattern: what is taken, Java and Python read alike; what they do not is refused with its place."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from pyreplog.errors import ConfigError
from pyreplog.spark.patterns import check_pattern

TAKEN = [
    "",
    "orders",
    "ord.*",
    "^(al|x)[a-z]+$",
    "a|b|",
    "(?:a|be)ta",
    "t-[0-9]{1,3}",
    "t-[0-9]{2}$",
    "[^a-c]{2,}",
    "x{0}",
    r"a\.b",
    "[a-]",
    "[-a]",
    "[a.b_-]+",
    "[a^b]",
    r"[\w.]+",
    r"\d+$",
    r"[\-\]\[]",
    r"\W",
    "a+?b",
    "(a*)*b",
    "(a|b)?",
    "[+*?(){}|$.]",
    r"\\",
    "((a))",
    r"[^\d]+-\d",
    "[!-/]",
    "[a-c-e]+",
    r"\$\^\{",
    "a{2}?",
]
REFUSED = {
    "^[a-z&&[^b]]+$": ("&&", 5),
    "[a[b]]": ("[", 2),
    "[a&&b]": ("&&", 2),
    "[]a]": ("[]", 0),
    "[^]a]": ("[^]", 0),
    "[a--b]": ("-", 3),
    "[a||b]": ("||", 2),
    "[a~~b]": ("~~", 2),
    "[--/]": ("--", 1),
    r"[\w-z]": (r"\w-z", 1),
    "[a-[b]]": ("[", 3),
    "(?i)a": ("(?i)", 0),
    "(?<n>a)": ("(?<n", 0),
    "(?P<n>a)": ("(?P<", 0),
    "a(?=b)": ("(?=b", 1),
    "a++": ("++", 1),
    "a*+": ("*+", 1),
    "a{2}+": ("{2}+", 1),
    "a**": ("**", 1),
    "*a": ("*", 0),
    "^*": ("*", 1),
    "(*a)": ("*", 1),
    "a|*": ("*", 2),
    "a{,3}": ("{,3}", 1),
    "{": ("{", 0),
    "a{": ("{", 1),
    "a{x}": ("{x}", 1),
    "a}": ("}", 1),
    "a]": ("]", 1),
    r"\bt": (r"\b", 0),
    r"\Aa": (r"\A", 0),
    r"a\Z": (r"\Z", 1),
    r"\Qa\E": (r"\Q", 0),
    r"(a)\1": (r"\1", 3),
    r"\p{L}": (r"\p", 0),
    r"[\b]": (r"\b", 1),
    "a\\": ("\\", 1),
    "[a": ("[", 0),
    "ab[": ("[", 2),
}
NAMES = [
    "a",
    "ab",
    "aab",
    "alpha",
    "beta",
    "orders",
    "orders.eu",
    "orders-1",
    "t-0",
    "t-12",
    "t-1234",
    "_x",
    "a.b",
    "a-b",
    "A",
    "e-e",
    "123",
]
"""Of topics."""


@pytest.mark.parametrize("pattern", TAKEN)
def test_taken(pattern: str) -> None:
    """As it is."""
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", REFUSED)
def test_refused(pattern: str) -> None:
    """The construct and its place are named."""
    what, place = REFUSED[pattern]
    with pytest.raises(ConfigError, match=re.escape(f"{what!r} at position {place} ")):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(", "a)", "[b-a]", "a{3,2}"])
def test_what_neither_reads(pattern: str) -> None:
    """Nor is an expression that is none."""
    with pytest.raises(ConfigError, match=r"subscribePattern is .* not a regular expression"):
        check_pattern(pattern)


@pytest.mark.spark
def test_java_reads_them_alike(spark: SparkSession) -> None:
    """Each that is taken finds the same names in Java, whose word counts."""
    java = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    for pattern in TAKEN:
        compiled = java.compile(pattern)
        found = [name for name in NAMES if compiled.matcher(name).find()]
        assert found == [name for name in NAMES if re.search(pattern, name)], pattern
