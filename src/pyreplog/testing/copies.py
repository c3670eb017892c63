"""Shallow copies of objects whose class may be compiled: ``copy.copy`` misses the attributes of compiled classes."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["shallow_copy"]

_Thing = TypeVar("_Thing")


def shallow_copy(thing: _Thing) -> _Thing:
    """Return a new object of the class of ``thing`` with the same attributes, without calling ``__init__``."""
    kind = type(thing)
    new = kind.__new__(kind)
    for base in kind.__mro__:
        for name in (*base.__dict__.get("__mypyc_attrs__", ()), *base.__dict__.get("__slots__", ())):
            if name not in {"__dict__", "__weakref__"} and hasattr(thing, name):
                setattr(new, name, getattr(thing, name))
    if hasattr(thing, "__dict__"):
        vars(new).update(vars(thing))
    return new
