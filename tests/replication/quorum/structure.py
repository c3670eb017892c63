"""Copies and fingerprints of a machine's state, taken from its attributes alone.

An object is part of the state if its class is of the quorum or of its known-bad variants; values (numbers, texts,
messages, named tuples of values) are shared. So a machine needs no methods for this, only plain attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

from tests.oracle.memory_quorum import MemoryQuorumStorage

MUTABLE_MODULES: Final = ("pyreplog.quorum", "pyreplog.testing.known_bad", "tests.replication.quorum")
IGNORED: Final = frozenset({"clock", "random", "config", "identity", "endpoint", "next_id", "now_ns"})
"""Attributes that never change, or that every step sets."""
LONG_AGO_NS: Final = -20_000_000_000
"""Times before this are all the same."""
FAR_NS: Final = 1 << 62
"""Times after this are those of timers that do not run."""
ATOMS: Final = (int, str, bytes, float, bool, type(None), Enum, frozenset)

_names: dict[type, tuple[str, ...] | None] = {}


def _attributes(kind: type) -> tuple[str, ...] | None:
    """Return the slots of a class that belongs to the state, without those in its ``__dict__``; None for a value."""
    if kind in _names:
        return _names[kind]
    found: tuple[str, ...] | None = None
    if (
        any(base.__module__.startswith(MUTABLE_MODULES) for base in kind.__mro__)
        and not issubclass(kind, tuple | Enum)
        and kind.__name__ != "VoterSet"
    ):
        slots: list[str] = []
        for base in kind.__mro__:
            names = base.__dict__.get("__slots__", ())
            slots += (names,) if isinstance(names, str) else names
        found = tuple(name for name in slots if name not in {"__dict__", "__weakref__"})
    _names[kind] = found
    return found


def _items(thing: Any, slots: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name in slots:
        if hasattr(thing, name):
            yield name, getattr(thing, name)
    if hasattr(thing, "__dict__"):
        yield from vars(thing).items()


def state_copy(thing: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return a copy of a machine that shares only values with it."""
    if isinstance(thing, ATOMS):
        return thing
    memo = {} if memo is None else memo
    known = memo.get(id(thing))
    if known is not None:
        return known
    kind = type(thing)
    new: Any
    if kind is list:
        new = memo[id(thing)] = []
        new.extend(state_copy(one, memo) for one in thing)
    elif kind is dict:
        new = memo[id(thing)] = {}
        for key, value in thing.items():
            new[key] = state_copy(value, memo)
    elif kind is set:
        new = memo[id(thing)] = set(thing)
    elif kind is MemoryQuorumStorage:
        new = memo[id(thing)] = thing.copy()
    elif isinstance(thing, tuple):
        parts = [state_copy(one, memo) for one in thing]
        same = all(part is one for part, one in zip(parts, thing, strict=True))
        new = thing if same else kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    else:
        slots = _attributes(kind)
        if slots is None:
            return thing
        new = memo[id(thing)] = object.__new__(kind)
        for name, value in _items(thing, slots):
            setattr(new, name, value if name in IGNORED else state_copy(value, memo))
    return new


def state_print(thing: Any, now_ns: int, seen: dict[int, int] | None = None) -> Any:
    """Return a value that is equal for machines that will act the same; times count from ``now_ns``."""
    if isinstance(thing, ATOMS):
        return thing.name if isinstance(thing, Enum) else thing
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return ("again", seen[id(thing)])
    kind = type(thing)
    if kind is list:
        return [state_print(one, now_ns, seen) for one in thing]
    if kind is dict:
        return [(state_print(key, now_ns, seen), state_print(value, now_ns, seen)) for key, value in thing.items()]
    if kind is set:
        return sorted(thing)
    if kind is MemoryQuorumStorage:
        return thing.print()
    if isinstance(thing, tuple):
        names = getattr(kind, "_fields", None)
        if names is None:
            return tuple(state_print(one, now_ns, seen) for one in thing)
        return (kind.__name__, *(_part(name, one, now_ns, seen) for name, one in zip(names, thing, strict=True)))
    slots = _attributes(kind)
    if slots is None:
        if is_dataclass(thing):
            return (kind.__name__, *(state_print(getattr(thing, one.name), now_ns, seen) for one in fields(thing)))
        return repr(thing)
    seen[id(thing)] = len(seen)
    return (
        kind.__name__,
        *((name, _part(name, value, now_ns, seen)) for name, value in _items(thing, slots) if name not in IGNORED),
    )


def _part(name: str, value: Any, now_ns: int, seen: dict[int, int]) -> Any:
    if name.endswith("_ns") and isinstance(value, int):
        return value if value >= FAR_NS else max(value - now_ns, LONG_AGO_NS)
    return state_print(value, now_ns, seen)
