"""``subscribePattern``: a regular expression that Java, as in Spark's Kafka source, and Python read alike. Pure: no
Spark, no files.

On names of topics, which are ASCII, the two agree about literals, ``.``, classes, groups, ``|``, quantifiers and
anchors. They disagree about much of the rest, some of it without an error: ``[a-z&&[^b]]`` is an intersection in
Java, and four characters in Python.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from pyreplog.errors import ConfigError, excerpt

__all__ = ["check_pattern"]

_ESCAPES: Final = frozenset("dDwWsS")
_PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_QUANTIFIERS: Final = frozenset("?*+")
_DOUBLED: Final = ("&&", "--", "||", "~~")
_TAKEN: Final = (
    "taken are literals, '.', classes without '[' or '&&' inside, '\\d', '\\w', '\\s', groups, '|', '?', '*', '+',"
    " '{n,m}', '^' and '$'; '\\' stands before a sign that is meant as it is"
)


def check_pattern(text: str) -> str:
    """Return ``text`` if Java and Python read it alike. Otherwise raise :class:`ConfigError`, which names the
    construct and its place."""
    _Scanner(text).run()
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"subscribePattern is {excerpt(text)}, which is not a regular expression: {error}") from None
    return text


class _Scanner:
    """One look at a pattern, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def run(self) -> None:
        """Raise :class:`ConfigError` for the first construct that is not taken."""
        text = self._text
        atom = False  # whether something stands before, which a quantifier can repeat
        while self._at < len(text):
            sign = text[self._at]
            if sign in _QUANTIFIERS or sign == "{":
                if not atom:
                    self._refuse(sign)
                self._quantifier()
                atom = False
                continue
            if sign in "]}":
                self._refuse(sign)
            if sign == "[":
                self._set()
            elif sign == "\\":
                self._escape()
            elif sign == "(":
                self._group()
            else:
                self._at += 1
            atom = sign not in "(|^$"

    def _quantifier(self) -> None:
        """One of ``? * + {n} {n,} {n,m}``; a ``?`` behind it takes as few as possible."""
        text, start = self._text, self._at
        if text[start] == "{":
            end = text.find("}", start)
            first, comma, last = text[start + 1 : end].partition(",") if end > 0 else ("", "", "")
            if not _is_number(first) or (comma and last and not _is_number(last)):
                self._refuse(text[start : end + 1] if end > 0 else "{")
            self._at = end
        self._at += 1
        if text[self._at : self._at + 1] == "?":
            self._at += 1
        if text[self._at : self._at + 1] in ("*", "+", "?", "{"):
            self._at = start
            self._refuse(text[start : start + 2] if text[start] != "{" else text[start : text.find("}", start) + 2])

    def _escape(self) -> bool:
        """A sign as it is, or a kind of characters: whether it is the latter."""
        sign = self._text[self._at + 1 : self._at + 2]
        if sign not in _ESCAPES and sign not in _PUNCTUATION:
            self._refuse(f"\\{sign}")
        self._at += 2
        return sign in _ESCAPES

    def _group(self) -> None:
        if self._text.startswith("(?:", self._at):
            self._at += 3
            return
        if self._text.startswith("(?", self._at):
            self._refuse(self._text[self._at : self._at + 4])
        self._at += 1

    def _set(self) -> None:
        """A class: characters, ranges and kinds of characters."""
        text, start = self._text, self._at
        self._at += 2 if text.startswith("[^", start) else 1
        if text[self._at : self._at + 1] == "]":
            end, self._at = self._at + 1, start
            self._refuse(text[start:end])
        while text[self._at : self._at + 1] not in ("]", ""):
            self._refuse_operator()
            begin = self._at
            kind = self._member()
            if text[self._at : self._at + 1] == "-" and text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                self._refuse_operator(also="-")
                if self._member() or kind:
                    end, self._at = self._at, begin
                    self._refuse(text[begin:end])
        if self._at >= len(text):
            self._at = start
            self._refuse("[")
        self._at += 1

    def _refuse_operator(self, also: str = "") -> None:
        """Refuse characters that are, or may become, an operator of a class in one of the two."""
        here = self._text[self._at : self._at + 2]
        if here in _DOUBLED:
            self._refuse(here)
        if here[:1] == "[" or here[:1] == also:
            self._refuse(here[:1])

    def _member(self) -> bool:
        """One character of a class, or one kind of them: whether it is the latter."""
        if self._text[self._at] == "\\":
            return self._escape()
        self._at += 1
        return False

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(
            f"subscribePattern is {excerpt(self._text)}: {what!r} at position {self._at} is no expression that Java and"
            f" Python read alike; {_TAKEN}"
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
