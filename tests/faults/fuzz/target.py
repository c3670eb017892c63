"""What a parser is fed first, how mutated input is made plausible, what it may raise, and what must hold of its
answer."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

Seal = Callable[[bytes, Random], bytes]


class Target(NamedTuple):
    """``run`` takes bytes and gives a word on what became of them: a word not seen before makes the input worth
    keeping. It may raise ``allowed``. ``share``: how many of each hundred executions."""

    name: str
    seeds: Callable[[], list[bytes]]
    run: Callable[[bytes], object]
    allowed: tuple[type[BaseException], ...]
    share: int
    seal: Seal | None = None
