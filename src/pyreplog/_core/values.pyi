"""Constructors in C for dataclasses with slots."""

from typing import TypeVar

_T = TypeVar("_T")

def quick(cls: type[_T]) -> type[_T]:
    """Make calls of ``cls`` cheap; returns it. REQUIRES a dataclass with slots that only takes its fields, each by place or with a plain
    default (TypeError)."""
