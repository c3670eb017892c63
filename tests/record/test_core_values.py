"""Constructors in C: no caller can tell them from a dataclass's own."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from pyreplog._core import quick


@dataclass(slots=True)
class Plain:
    """Fields whose slots, which are sorted by name, are in another order."""

    z: object
    b: object
    a: object = 7
    y: object = "y"


@quick
@dataclass(slots=True)
class Quick:
    """The same."""

    z: object
    b: object
    a: object = 7
    y: object = "y"


class Below(Quick):
    """A class of its own: made in the usual way."""

    def __init__(self, z: object) -> None:
        super().__init__(z, "below")


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((1, 2, 3, 4), {}),
    ((1,), {"b": 2}),
    ((), {"b": 2, "z": 1, "y": 0}),
    ((1, 2), {"y": None}),
    ((), {}),
    ((1,), {}),
    ((1, 2, 3, 4, 5), {}),
    ((1, 2), {"z": 3}),
    ((1, 2), {"w": 3}),
]


@pytest.mark.parametrize(("arguments", "named"), CALLS)
def test_as_the_dataclass_alone(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    """The same fields, or the same refusal."""
    try:
        expected = dataclasses.astuple(Plain(*arguments, **named))
    except TypeError as error:
        with pytest.raises(TypeError) as caught:
            Quick(*arguments, **named)
        assert str(caught.value) == str(error).replace("Plain", "Quick")
    else:
        assert dataclasses.astuple(Quick(*arguments, **named)) == expected


def test_what_is_made_is_an_object_like_any_other() -> None:
    """Equal, copied, replaced, pickled, changed, collected; a class below it is its own."""
    made = Quick(1, [2])
    assert made == Quick(1, [2], 7, "y") != Quick(1, [3])
    assert repr(made) == "Quick(z=1, b=[2], a=7, y='y')"
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == dataclasses.replace(made, a=7) == made
    made.b = 5
    assert made.b == 5
    below = Below(1)
    assert (type(below), below.z, below.b, below.a) == (Below, 1, "below", 7)
    gc.collect()
    made.b = made  # only the collector can free this
    assert gc.is_tracked(made)
    del made
    assert gc.collect() > 0


def test_references_are_counted() -> None:
    """What goes in is held once by each object, defaults too, and let go with it."""
    value = object()
    default = Quick(1, 2).a
    before = sys.getrefcount(value), sys.getrefcount(default), sys.getrefcount(Quick)
    made = [Quick(value, value) for _ in range(100)]
    assert sys.getrefcount(value) == before[0] + 200
    assert sys.getrefcount(Quick) == before[2] + 100
    del made
    assert (sys.getrefcount(value), sys.getrefcount(default), sys.getrefcount(Quick)) == before


def test_only_for_plain_dataclasses() -> None:
    """Anything whose constructor does more than to take its fields is refused, and stays as it was."""

    @dataclass
    class NoSlots:
        a: int

    @dataclass(slots=True)
    class Factory:
        a: list[int] = field(default_factory=list)

    @dataclass(slots=True)
    class After:
        a: int

        def __post_init__(self) -> None:
            self.a += 1

    @dataclass(slots=True, kw_only=True)
    class Named:
        a: int

    @dataclass(slots=True)
    class Base:
        a: int

    @dataclass(slots=True)
    class Inherits(Base):
        b: int

    for cls in (NoSlots, Factory, After, Named, Inherits, Quick, int):
        with pytest.raises(TypeError):
            quick(cls)
    assert (Factory().a, After(1).a, Named(a=1).a, Inherits(1, 2).a) == ([], 2, 1, 1)
